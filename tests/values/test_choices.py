"""`a if flag else b` is decided when a kernel is compiled: what only the other side needs costs nothing there.

It is neither computed nor saved, and raises nothing; in every kernel that rows have, forward and backward.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton

from tests.harness.importing import built, module_at
from tests.harness.oracles import DEVICE
from tests.harness.processes import python
from tests.harness.written import Written
from tritongen.lang.trees import parenthesized, parse
from tritongen.operator.compile import generate
from tritongen.project.runtime import runtime_files
from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]
SPECS = ROOT / "tests" / "specs"
KINDS = {"choice_of_row": ("max", "mean", "none"), "choice_of_many": ("max", "norm", "lse", "sum")}
PARAMS = {
    "choice_of_row": [{"kind": kind} for kind in KINDS["choice_of_row"]],
    "choice_of_many": [
        {"kind": kind, "weighted": weighted}
        for kind, weighted in itertools.product(KINDS["choice_of_many"], (True, False))
    ],
}
CALLS = [(name, params) for name, several in PARAMS.items() for params in several]


def written(name: str, folder: Path) -> Path:
    """The folder of a spec's files, with the runtime in it."""
    spec = read_spec(f"{name}.toml", (SPECS / f"{name}.toml").read_text(encoding="utf-8"))
    texts = generate(spec, ".") | {f"_runtime/{file}": text for file, text in runtime_files().items()}
    for file, text in texts.items():
        path = folder / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / name


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return {name: module_at(written(name, tmp_path_factory.mktemp(name))) for name in KINDS}


def way(module: Any, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes all rows go through one kind of kernel, in small blocks."""
    configs = importlib.import_module(f"{module.__name__}.configs")

    def config(**blocks: int) -> triton.Config:
        return triton.Config(blocks, num_warps=4)

    for suffix in ("", "_BACKWARD"):
        registers = SimpleNamespace(
            fits=lambda *_: kernel == "registers", choose=lambda n_rows, n_cols, _: config(BLOCK_M=4, BLOCK_N=64)
        )
        monkeypatch.setattr(configs, f"REGISTERS{suffix}", registers, raising=False)
        loop = SimpleNamespace(choose=lambda *_: config(BLOCK_M=4, BLOCK_N=8))
        monkeypatch.setattr(configs, f"LOOP{suffix}", loop, raising=False)
    whole = SimpleNamespace(
        warps_per_sm=8, fits=lambda *_: kernel == "registers", choose=lambda *_: config(BLOCK_M=4, BLOCK_N=64, STAGES=1)
    )
    monkeypatch.setattr(configs, "WHOLE_BACKWARD", whole, raising=False)
    sums = SimpleNamespace(choose=lambda *_: config(BLOCK_M=4, BLOCK_N=8))
    monkeypatch.setattr(configs, "SUMS_BACKWARD", sums, raising=False)
    monkeypatch.setattr(configs.heuristics, "choose_splits", lambda *_: 3 if kernel == "split" else 1)


def expected(name: str, tensors: list[torch.Tensor], params: dict[str, Any]) -> torch.Tensor:
    """In torch, and in float64."""
    x, *others = (tensor.double() for tensor in tensors)
    kind = params["kind"]
    if name == "choice_of_row":
        return x - {"max": x.amax, "mean": x.mean}[kind](-1, keepdim=True) if kind != "none" else x.clone()
    scaled = x * others[0] if params["weighted"] else x
    y = {
        "max": lambda: scaled.amax(-1),
        "norm": lambda: scaled.mean(-1) / (scaled.var(-1) + 1).sqrt(),
        "lse": lambda: scaled.logsumexp(-1),
        "sum": lambda: scaled.sum(-1),
    }[kind]()
    return y * x.amin(-1) if params["weighted"] else y


def drawn(name: str, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"choice_of_row": [(2, 3, 35)], "choice_of_many": [(5, 35), (35,)]}[name]
    return [(torch.rand(shape, generator=generator, dtype=torch.float64) * 3 - 1).to(DEVICE, dtype) for shape in shapes]


STEPS = {
    # By the param, none needs `x + 1` beside `s * t`.
    "taken": """
    [inputs]
    x = "float[M]"
    w = "float[M]"
    t = "float[]"
    v = "float[N=2]"
    [params]
    on = true
    [compute]
    s = "x * w if on else x + 1"
    y = "s * t if on else s + 1"
    z = '''
    sum(where((index(M) + index(N) - 1 >= 0) & (index(M) + index(N) - 1 < size(M)),
        take(y, index(M) + index(N) - 1, M), 0.0) * v, N)
    '''
    [outputs]
    s = "auto[M]"
    y = "auto[M]"
    z = "auto[M]"
    [grad]
    wrt = ["x", "w", "t", "v"]
    """,
    # The gradient by `t` reads what is saved, and what a step before it computes, for one side alone.
    "lengths": """
    [inputs]
    x = "float[M, N, K]"
    w = "float[M, X]"
    t = "float[] = 1"
    [params]
    on = true
    [compute]
    s = "sum(x, K)"
    y = "s * t if on else s + 1"
    z = "sum(y * w, M)"
    [outputs]
    z = "auto[X, N]"
    [grad]
    wrt = ["t"]
    """,
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_read_what_one_side_needs(name: str, tmp_path: Path) -> None:
    operator, lengths = Written(STEPS[name], tmp_path), {"M": 5, "N": 2, "K": 3, "X": 4}
    for on in (True, False):
        operator.compare(lengths, operator.drawn(lengths), {"on": on})


@pytest.mark.parametrize("kernel", ["registers", "loop", "split"])
@pytest.mark.parametrize(
    ("name", "params"), CALLS, ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values()))
)
def test_values(
    name: str, params: dict[str, Any], kernel: str, modules: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    way(modules[name], kernel, monkeypatch)
    function = getattr(modules[name], name)
    tensors = drawn(name, torch.float32)
    tensors[0].view(-1)[40] = float("nan")
    wanted = expected(name, tensors, params)
    torch.testing.assert_close(function(*tensors, **params).double(), wanted, rtol=2e-6, atol=2e-6, equal_nan=True)
    ours = [tensor.requires_grad_() for tensor in drawn(name, torch.float64)]
    theirs = [tensor.requires_grad_() for tensor in drawn(name, torch.float64)]
    got, wanted = function(*ours, **params), expected(name, theirs, params)
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)
    given = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(DEVICE)
    found = [torch.autograd.grad(y, leaves, given, allow_unused=True) for y, leaves in ((got, ours), (wanted, theirs))]
    zeros = [torch.zeros_like(tensor) for tensor in theirs]
    want = [zero if one is None else one for one, zero in zip(found[1], zeros, strict=True)]
    torch.testing.assert_close(list(found[0]), want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("a and b or c", "(a and b) or c"),
        ("a or b and c or d and e", "a or (b and c) or (d and e)"),
        ("x if (a and b or c) and d else y", "x if ((a and b) or c) and d else y"),
        ("(a or b) and c", "(a or b) and c"),
    ],
)
def test_an_and_in_an_or_has_parentheses(condition: str, text: str) -> None:
    """In a kernel and in the reference of its tests; once, however often it is asked for."""
    assert ast.unparse(parenthesized(parenthesized(parse(condition)))) == text


def test_conditions_have_parentheses() -> None:
    spec = read_spec("spec.toml", (SPECS / "choice_of_matmul.toml").read_text(encoding="utf-8"))
    files = generate(replace(spec, reference="x if kind == 'both' and scaled or kind == 'one' else w"))
    assert "if (kind == 'one' and scaled) or (kind == 'both' and scaled):" in files["kernels.py"].replace(
        "(kind == 'other' and scaled) or ", ""
    )
    assert "x if (kind == 'both' and scaled) or kind == 'one' else w" in files["test_choice_of_matmul.py"]


@pytest.mark.parametrize(("kind", "says"), [("max", "max"), ("norm", ""), ("sum", "")])
def test_empty_rows_raise_for_what_is_chosen(kind: str, says: str, modules: dict[str, Any]) -> None:
    """A maximum has no value over no elements; nor has a minimum, which only a weighted row is multiplied by."""
    x, w = torch.empty(3, 0, device=DEVICE), torch.empty(0, device=DEVICE)
    function = modules["choice_of_many"].choice_of_many
    with pytest.raises(ValueError, match="has no value over an empty axis"):
        function(x, w, kind=kind, weighted=True)
    if says:
        with pytest.raises(ValueError, match=f"{says} has no value over an empty axis"):
            function(x, w, kind=kind, weighted=False)
        return
    wanted = torch.full((3,), {"norm": torch.nan, "sum": 0.0}[kind], device=DEVICE)
    torch.testing.assert_close(function(x, w, kind=kind, weighted=False), wanted, equal_nan=True)


@pytest.mark.parametrize("kind", ["norm", "sum"])
def test_empty_rows_of_a_registered_operator(kind: str, tmp_path: Path) -> None:
    """It saves for the backward whatever is chosen, of which nothing needs a maximum of no elements."""
    spec = read_spec("spec.toml", (SPECS / "choice_of_many.toml").read_text(encoding="utf-8"))
    spec = replace(spec, register="custom_op", namespace=f"tritongen_choices_{kind}")
    function = built(spec, tmp_path).choice_of_many
    x, w = torch.empty(3, 0, device=DEVICE, requires_grad=True), torch.empty(0, device=DEVICE)
    y = function(x, w, kind=kind, weighted=False)
    wanted = torch.full((3,), {"norm": torch.nan, "sum": 0.0}[kind], device=DEVICE)
    torch.testing.assert_close(y, wanted, equal_nan=True)
    assert torch.autograd.grad(y.sum(), x)[0].shape == (3, 0)
    with pytest.raises(ValueError, match="max has no value over an empty axis"):
        function(x, w, kind="max", weighted=False)


def test_nothing_is_saved_for_what_is_not_chosen(modules: dict[str, Any]) -> None:
    """Of a row less its maximum the maximum; of one less its mean nothing, and less nothing neither."""
    x = torch.rand(3, 8, device=DEVICE, requires_grad=True)
    for kind in ("max", "mean", "none"):
        y = modules["choice_of_row"].choice_of_row(x, kind=kind)
        saved = [one for one in y.grad_fn.saved_tensors if one is not None and one is not x]
        assert len(saved) == (kind == "max"), kind
    x, w = torch.rand(3, 8, device=DEVICE, requires_grad=True), torch.rand(8, device=DEVICE)
    for kind, count in (("max", 1), ("norm", 2), ("lse", 3), ("sum", 0)):
        for weighted in (True, False):
            y = modules["choice_of_many"].choice_of_many(x, w, kind=kind, weighted=weighted)
            saved = [one for one in y.grad_fn.saved_tensors if one is not None and one.shape == (3,)]
            assert len(saved) == count + 2 * weighted, (kind, weighted)


@pytest.mark.parametrize("kind", KINDS["choice_of_row"])
def test_torch_func_takes_what_is_not_saved(kind: str, modules: dict[str, Any]) -> None:
    """By itself, under vmap, and the gradient of each of a batch."""
    function = modules["choice_of_row"].choice_of_row
    x = torch.rand(3, 9, dtype=torch.float64, device=DEVICE)
    weight = torch.arange(9, dtype=torch.float64, device=DEVICE)

    def ours(row: torch.Tensor) -> torch.Tensor:
        return (function(row, kind=kind) * weight).sum()

    def theirs(row: torch.Tensor) -> torch.Tensor:
        return (expected("choice_of_row", [row], {"kind": kind}) * weight).sum()

    torch.testing.assert_close(torch.vmap(ours)(x), torch.vmap(theirs)(x))
    torch.testing.assert_close(torch.func.grad(ours)(x), torch.func.grad(theirs)(x))
    torch.testing.assert_close(torch.vmap(torch.func.grad(ours))(x), torch.vmap(torch.func.grad(theirs))(x))


COMPILED = """
import importlib, json, sys
from pathlib import Path
import pytest, torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

sys.path[:0] = sys.argv[1:3]
import test_choices

def compile(kernel, grid, args, options, device, around=None):
    constants = {name: options[name] for name in kernel.arg_names if name in options}
    given = dict(zip(kernel.arg_names, args))
    constants |= {name: None for name, value in given.items() if value is None}
    kinds = {name: "*fp32" if isinstance(value, torch.Tensor) else "i32" for name, value in given.items()}
    signature = {name: "constexpr" if name in constants else kinds[name] for name in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    found.append((kernel.__name__, compiled.asm["ttir"].count('"tt.reduce"')))

for name, several in test_choices.PARAMS.items():
    module = importlib.import_module(name)
    launch = importlib.import_module(f"{name}._runtime.launch")
    launch.launched = compile
    for chosen in several:
        for kernel in ("registers", "loop", "split"):
            with pytest.MonkeyPatch.context() as patch:
                test_choices.way(module, kernel, patch)
                leaves = [one.requires_grad_() for one in test_choices.drawn(name, torch.float32)]
                found = []
                getattr(module, name)(*leaves, **chosen).sum().backward()
            print(json.dumps([name, *chosen.values(), kernel, found]))
"""


def test_one_word_has_no_reduction_of_another(tmp_path: Path) -> None:
    """In what Triton compiles for Hopper, of each kernel that a forward and its backward launch."""
    for name in KINDS:
        written(name, tmp_path)
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    done = python("-c", COMPILED, str(tmp_path), str(Path(__file__).parent), env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == 3 * len(CALLS)
    counts = {
        (kind, way): [count for _, count in found] for _, kind, way, found in told[: 3 * len(KINDS["choice_of_row"])]
    }
    # Of the gradient of a maximum two: of what ties share, and of how many they are.
    per_word = {"max": [1, 2], "mean": [1, 1], "none": [0, 0]}
    assert counts == {(kind, way): per_word[kind] for kind in per_word for way in ("registers", "loop", "split")}
    forward = {(kind, weighted): found[0][1] for _, kind, weighted, way, found in told[9:] if way == "registers"}
    assert forward == {
        (kind, weighted): count + weighted
        for kind, count in {"max": 1, "norm": 2, "lse": 2, "sum": 1}.items()
        for weighted in (True, False)
    }
