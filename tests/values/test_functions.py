"""Every row of the function table: its values against torch, and that it compiles.

The values run in Triton's interpreter, or on a GPU where there is one. The interpreter accepts what
a compiler refuses, and it is chosen for a whole process, so this file also is the program that the
last test runs in another process to compile every row.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import triton

ROOT = Path(__file__).parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.cases.functions import INF, KINDS, NAN, Case, kernel, source  # noqa: E402
from tests.harness.importing import module_of  # noqa: E402
from tests.harness.oracles import DEVICE  # noqa: E402
from tests.harness.processes import python  # noqa: E402
from tritongen.lang.functions import FUNCTIONS  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

# Triton 3.6 spells -x as 0 - x and compares with numbers rounded to float32; its interpreter rounds
# an fma twice, and cannot invert a uint8.
OLD = tuple(map(int, triton.__version__.split(".")[:2])) <= (3, 6)
EXACT_FMA = DEVICE == "cuda" or not OLD

FLOATS = (torch.float32, torch.float64)
INTS = (torch.int32, torch.int64, torch.uint8)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    texts = [
        kernel(f"{kind}_{place}", [case], kind) for kind, cases in KINDS.items() for place, case in enumerate(cases)
    ]
    return module_of(source(texts), tmp_path_factory.mktemp("functions"))


def run(kernels: ModuleType, kind: str, case: Case, inputs: dict[str, torch.Tensor], out: torch.Tensor) -> torch.Tensor:
    block = 512 if DEVICE == "cuda" else out.numel()
    result = out.to(DEVICE)
    function = getattr(kernels, f"{kind}_{KINDS[kind].index(case)}")
    function[(out.numel() // block,)](*(inputs[name].to(DEVICE) for name in case.tensors), result, N=block)
    return result.cpu()


def expected(case: Case, inputs: dict[str, torch.Tensor], widen: bool) -> torch.Tensor:
    """What torch says, of floats in float64; a number becomes a tensor where torch wants one."""
    dtype = next(iter(inputs.values())).dtype
    values = dict(case.numbers)
    if dtype == torch.float32:  # Where Triton rounds the numbers.
        values = {k: v and torch.tensor(v, dtype=dtype).item() for k, v in values.items()}
    for name, tensor in inputs.items():
        values[name] = tensor.double() if widen and tensor.is_floating_point() else tensor
    try:
        result = eval(case.row.torch, {"torch": torch}, values)
    except TypeError:
        like = next(value for value in values.values() if isinstance(value, torch.Tensor))
        values |= {
            name: torch.tensor(values[name], dtype=like.dtype)
            for name in ("x", "other", "values", "min", "max", "end", "weight")
            if name in case.numbers
        }
        result = eval(case.row.torch, {"torch": torch}, values)
    assert isinstance(result, torch.Tensor)
    return result


# Values

SPECIAL = (0.0, 1e-30, 1e-10, 1e-4, 0.1, 0.25, 0.3, 0.5, 0.7, 0.75, 0.99999, 1.0, 1.00001, 1.5, 2.0)
SPECIAL += (2.5, 3.0, 3.5, 7.0, 10.0, 17.3, 20.0, 50.0, 88.0, 100.0, 1e4, 8388607.5, 8388609.0)
SPECIAL += (16777217.0, 1e8, 1e10, 1e18, 1e30, 3e38, INF, NAN)
FEW = (0.0, 1e-30, 1e-3, 0.5, 1.0, 1.5, 2.0, 3.0, 10.0, 16777217.0, 1e30, INF, NAN)


def signed(values: tuple[float, ...]) -> torch.Tensor:
    positive = torch.tensor(values, dtype=torch.float64)
    return torch.cat([positive, -positive])


@cache
def floats(count: int) -> tuple[torch.Tensor, ...]:
    """Columns of arguments: every pair of special ones, then whole and other numbers at random."""
    generator = torch.Generator().manual_seed(0)
    if count == 1:
        powers = 10 ** torch.linspace(-30, 30, 901, dtype=torch.float64)
        spans = [torch.linspace(-at, at, 1501, dtype=torch.float64) for at in (1, 12, 104)]
        column = torch.cat([signed(SPECIAL), powers, -powers, *spans])
        return (torch.cat([column, column])[:8192],)
    few = signed(FEW if count == 2 else FEW[3:9])
    grid = torch.cartesian_prod(*[few] * count).T
    columns = []
    for place, specials in enumerate(grid):
        random = torch.randn(4096 - len(specials), generator=generator, dtype=torch.float64) * 4
        half = len(random) // 2
        random[: half // 2].round_()
        random[half // 2 : half] *= 5 if place else 0.3
        columns.append(torch.cat([specials, random]))
    return tuple(columns)


# Where the result is a difference of larger terms, their size, in which its error is measured.
TERMS = {
    "addcdiv": "abs(x) + value * abs(tensor1 / tensor2)",
    "addcmul": "abs(x) + value * abs(tensor1 * tensor2)",
    "digamma": "8 + abs(y)",
    "gelu": "abs(x)",
    "gelu_tanh": "abs(x)",
    "lerp": "abs(x) + abs(x - end) * (1 + abs(0 * x + weight))",
    "lgamma": "4 + abs(y)",
    "logaddexp": "1 + maximum(abs(x), abs(other + 0 * x))",
    "logaddexp2": "1 + maximum(abs(x), abs(other + 0 * x))",
    "logit": "1 + abs(y)",
    "sinc": "1 + 0 * x",
    "softplus": "abs(y) * (1 + abs(x * beta))",
    "tanhshrink": "abs(x)",
}
# Which arguments are compared: torch itself is wrong beside the poles of digamma, and what fmod
# does about quotients of more bits than two floats hold it says itself.
WHERE = {
    "digamma": "(x > 0) | (abs(x - round(x)) > 1e-3) | (x == round(x))",
    "fmod": "~(abs(x / other) > 1e12)",
    "remainder": "~(abs(x / other) > 1e12)",
    "floor_divide": "~(abs(x / other) > 1e12)",
}
# The sign of a zero that comes from two zeros of different signs is nobody's promise.
EITHER_ZERO = {"clamp", "clamp_max", "clamp_min", "fmax", "fmin", "hardtanh", "lerp", "maximum"}
EITHER_ZERO |= {"minimum", "relu", "relu6", "softshrink"}


OF_EXP = {"celu", "elu", "expm1", "logaddexp", "logaddexp2", "logsigmoid", "mish", "selu"}
OF_EXP |= {"gelu_tanh", "sigmoid", "silu", "softplus"}


def allowed(case: Case, dtype: torch.dtype) -> float:
    """The relative error: 4 ulp of float32, and 1e-12 of float64.

    On a GPU `tl.exp` of float32 rounds its argument once more, which costs abs(x) * 2**-24; `silu` does so itself.
    """
    if dtype == torch.float64:
        return 1e-12
    if DEVICE == "cuda" or case.function == "silu":
        return 6e-6 if "exp" in case.row.triton or case.function in OF_EXP else 7e-7
    if not EXACT_FMA and case.function in ("pow", "sinh", "cosh", "erfc"):
        return 1e-5
    return 4.8e-7


def language(values: dict[str, Any]) -> dict[str, Any]:
    """Names of the spec language, as torch computes them."""
    names: dict[str, Any] = {}
    for row in FUNCTIONS.values():
        head = ", ".join(f"{a.name}={a.default!r}" if not a.required else a.name for a in row.args)
        names[row.name] = eval(f"lambda {head}: {row.torch}", {"torch": torch})
    return names | values


def evaluate(expression: str, values: dict[str, Any]) -> Any:
    return eval(expression, language(values))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("case", KINDS["float"], ids=lambda case: case.label)
def test_floats(kernels: ModuleType, case: Case, dtype: torch.dtype) -> None:
    if OLD and dtype == torch.float64 and case.label in ("hardshrink-lambd=0.1", "lt-other=0.1"):
        pytest.skip("compares with a float32")
    inputs = dict(zip(case.tensors, (c.to(dtype) for c in floats(len(case.tensors))), strict=True))
    if "condition" in inputs:
        inputs["condition"] = inputs["condition"] > 0
    size = len(next(iter(inputs.values())))
    is_bool = case.row.result == "bool"
    got = run(kernels, "float", case, inputs, torch.empty(size, dtype=torch.int8 if is_bool else dtype))
    want = expected(case, inputs, widen=case.function != "nan_to_num")
    if is_bool:
        assert torch.equal(got != 0, want)
        return

    wide = case.numbers | {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    terms = evaluate(TERMS.get(case.function, "abs(y)"), wide | {"y": want}).nan_to_num(0.0)
    bound = allowed(case, dtype) * terms + 100 * torch.finfo(dtype).tiny
    rounded = want.to(dtype)
    equal = (got == rounded) | (got.isnan() & rounded.isnan())
    good = equal | ((got.double() - want).abs() <= bound)
    if case.function in WHERE:
        good |= ~evaluate(WHERE[case.function], wide)
    if case.function in ("floor_divide", "fmod", "remainder") and not EXACT_FMA:
        good |= torch.stack([v.frac() != 0 for v in inputs.values()]).any(0) | (len(inputs) == 1)
    if case.function not in EITHER_ZERO and not (case.function == "neg" and OLD):
        good &= (want != 0) | (got != 0) | (got.signbit() == want.signbit())
    report(case, good, inputs, got, want)


def report(
    case: Case,
    good: torch.Tensor,
    inputs: dict[str, torch.Tensor],
    got: torch.Tensor,
    want: torch.Tensor,
) -> None:
    bad = (~good).nonzero().flatten().tolist()
    lines = []
    for at in bad[:5]:
        arguments = {name: column[at].item() for name, column in inputs.items()}
        lines.append(f"{arguments}: {got[at].item()!r}, but torch {want[at].item()!r}")
    assert not bad, "\n".join([f"{case.label}: {len(bad)} differ", *lines])


def integers(case: Case, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    low = 0 if dtype == torch.uint8 else -40
    inputs = {}
    for name in case.tensors:
        values = torch.randint(low, 41, (512,), generator=generator)
        if name == "other" and case.function in ("floor_divide", "remainder", "fmod"):
            values[values == 0] = 7
        inputs[name] = values.to(dtype)
    if "x" in inputs:
        inputs["x"][:2] = torch.tensor([torch.iinfo(dtype).max, torch.iinfo(dtype).min]).to(dtype)
    return inputs


@pytest.mark.parametrize("dtype", INTS, ids=str)
@pytest.mark.parametrize("case", KINDS["int"], ids=lambda case: case.label)
def test_integers(kernels: ModuleType, case: Case, dtype: torch.dtype) -> None:
    if dtype == torch.uint8 and (case.function == "hardtanh" or (OLD and case.function == "bitwise_not")):
        pytest.skip("its limit of -1 is no uint8 for torch neither, or an old interpreter")
    inputs = integers(case, dtype)
    want = expected(case, inputs, widen=False)
    out = torch.empty(512, dtype=torch.int8 if want.dtype == torch.bool else want.dtype)
    got = run(kernels, "int", case, inputs, out)
    if want.dtype == torch.bool:
        got = got != 0
    report(case, got == want, inputs, got, want)


@pytest.mark.parametrize("case", KINDS["bool"], ids=lambda case: case.label)
def test_bools(kernels: ModuleType, case: Case) -> None:
    columns = torch.cartesian_prod(*[torch.tensor([False, True])] * 2).T.repeat(1, 128)
    inputs = dict(zip(case.tensors, columns, strict=False))
    want = expected(case, inputs, widen=False)
    assert want.dtype == torch.bool
    got = run(kernels, "bool", case, inputs, torch.empty(512, dtype=torch.int8)) != 0
    report(case, got == want, inputs, got, want)


# Compilation

TARGETS = [
    ("cuda", 80, "fp32"),
    ("cuda", 90, "fp32"),
    ("cuda", 90, "fp64"),
    ("cuda", 90, "i32"),
    ("cuda", 90, "u8"),
    ("cuda", 90, "i1"),
    ("hip", "gfx942", "fp32"),
]


@pytest.mark.parametrize("part", range(3))
def test_compiles(part: int, tmp_path: Path) -> None:
    """For the targets of a part in one process."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path / "cache")
    done = python(__file__, json.dumps(TARGETS[part::3]), str(tmp_path), env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def compile_all(target: tuple[str, int | str, str], folder: Path) -> int:
    """Compiles every case, a few to a kernel; where a kernel fails, its cases one by one."""
    backend, arch, dtype = target
    kind = {"i32": "int", "u8": "int", "i1": "bool"}.get(dtype, "float")
    cases = [case for case in KINDS[kind] if dtype != "u8" or case.function != "hardtanh"]
    batches = [cases[at : at + 10] for at in range(0, len(cases), 10)]
    failures = 0
    while batches:
        texts = [kernel(f"kernel_{place}", batch, kind) for place, batch in enumerate(batches)]
        module = module_of(source(texts), folder / f"{arch}_{dtype}" / f"batches_{len(batches)}_{failures}")
        again: list[list[Case]] = []
        for place, batch in enumerate(batches):
            try:
                compile_one(getattr(module, f"kernel_{place}"), backend, arch, dtype)
            except Exception as error:
                if len(batch) == 1:
                    failures += 1
                    print(f"{batch[0].label} for {arch} of {dtype}: {error.__cause__ or error}")
                again += [[case] for case in batch] if len(batch) > 1 else []
        batches = again
    return failures


def compile_one(function: Any, backend: str, arch: int | str, dtype: str) -> Any:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    pointers = [name for name in function.arg_names if name.endswith("_ptr")]
    signature = dict.fromkeys(pointers, f"*{dtype}") | {"N": "constexpr"}
    if "condition_ptr" in signature:
        signature["condition_ptr"] = "*i1"
    target = GPUTarget(backend, arch, 64 if backend == "hip" else 32)
    return triton.compile(ASTSource(function, signature, {"N": 128}), target=target)


if __name__ == "__main__":
    sys.exit(sum(compile_all(tuple(target), Path(sys.argv[2])) for target in json.loads(sys.argv[1])))
