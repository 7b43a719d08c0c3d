"""Specs that stress the language, tests/specs/*.toml, against torch in float64.

Every spec is generated, imported and run on shapes, layouts and dtypes that its types admit: in
Triton's interpreter, or on a GPU where there is one. The oracle is the spec's own reference.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import triton

from tests.cases.spec_inputs import Case, cases, draw, multiplies, param_sets, spec_of
from tests.harness.importing import built, runtime_of
from tests.harness.oracles import DEVICE
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "tests" / "specs").glob("*.toml"))
# The interpreter cuts off what does not fit bfloat16 where a GPU rounds: one unit in the last place.
WIDE = (torch.float32, torch.float64)
TOLERANCE = {
    torch.float16: 2**-10,
    torch.bfloat16: 2**-7,
    torch.float32: 4e-6,
    torch.float64: 1e-12,
}
BF16X3 = 2**-15  # Of three products of bfloat16 on tensor cores; the interpreter multiplies float32.


def expected(spec: Spec, tensors: list[Any], params: dict[str, Any], exact: bool) -> list[Any]:
    """The reference's results, in float64 throughout or in the dtypes of the inputs."""
    scope = {"torch": torch, **params}
    for tensor, value in zip(spec.inputs, tensors, strict=True):
        if value is None:
            value = tensor.default
        elif exact and value.is_floating_point():
            value = value.double()
        scope[tensor.name] = value
    with torch.device(DEVICE):
        result = eval(spec.reference, scope)
    return list(result) if isinstance(result, tuple) else [result]


def check(spec: Spec, function: Any, tensors: list[Any], params: dict[str, Any]) -> None:
    got = function(*tensors, **params)
    got = list(got) if isinstance(got, tuple) else [got]
    exact = expected(spec, tensors, params, exact=True)
    assert len(got) == len(exact)
    dtypes = output_dtypes(spec, tensors, params)
    for output, result, wanted, dtype in zip(spec.outputs, got, exact, dtypes, strict=True):
        assert result.shape == wanted.shape, output.name
        assert result.dtype == dtype, output.name
        if result.numel() == 0:
            continue
        if not result.is_floating_point():
            assert torch.equal(result.cpu(), wanted.to(dtype).cpu()), output.name
            continue
        coarsest = max(
            BF16X3 if spec.precision == "bf16x3" else 0,
            TOLERANCE.get(dtype, 0),
            max(
                (
                    TOLERANCE[one.dtype]
                    for one in tensors
                    if one is not None and one.dtype in (TOLERANCE if multiplies(spec) else WIDE)
                ),
                default=0,
            ),
        )
        if dtype.itemsize == 1:  # The nearest, and the largest for what is larger.
            info = torch.finfo(dtype)
            near, half = wanted.double().clamp(-info.max, info.max), 0.5 * info.eps + coarsest
            atol = half * info.tiny + coarsest * multiplies(spec)
            torch.testing.assert_close(result.double(), near, rtol=half, atol=atol, equal_nan=True)
            continue
        scale = max(1.0, wanted[wanted.isfinite()].abs().max().item()) if wanted.isfinite().any() else 1.0
        torch.testing.assert_close(
            result.double(),
            wanted.double(),
            rtol=coarsest,
            atol=coarsest * scale,
            equal_nan=True,
            msg=lambda text, name=output.name: f"{name}: {text}",
        )


def output_dtypes(spec: Spec, tensors: list[Any], params: dict[str, Any]) -> list[torch.dtype]:
    """A dtype that is spelled, an input's, or torch's own."""
    inputs = {one.name: tensor for one, tensor in zip(spec.inputs, tensors, strict=True)}
    own = None
    dtypes = []
    for place, output in enumerate(spec.outputs):
        if output.dtype in inputs:
            dtypes.append(inputs[output.dtype].dtype)
        elif output.dtype == "auto":
            own = own or expected(spec, tensors, params, exact=False)
            dtypes.append(own[place].dtype)
        else:
            dtypes.append(getattr(torch, output.dtype))
    return dtypes


Way = list[tuple[Any, str, Any]]  # what to put in place of which choice of a table, or of the heuristics


def ways(module: ModuleType) -> list[Way]:
    """What to put in place of a module's choices, so that each of its kernels runs in small blocks."""
    configs = importlib.import_module(f"{module.__name__}.configs")
    heuristics, matmul_heuristics = (runtime_of(module, name) for name in ("heuristics", "matmul_heuristics"))

    def always(**blocks: int) -> Any:
        return lambda *_: triton.Config(blocks, num_warps=4)

    if hasattr(configs, "STRIDED"):
        block_n = min(config.kwargs["BLOCK_N"] for config in configs.STRIDED.half)
        tiles = always(BLOCK_M=16, BLOCK_N=block_n, BLOCK_K=32, GROUP=2)  # Of bytes, the fewest that tl.dot takes.
        by_pointers = [(matmul_heuristics, "use_tma", lambda *_: False), (configs.STRIDED, "choose", tiles)]
        found: list[Way] = [
            [*by_pointers, (matmul_heuristics, "choose_split_k", lambda *_, parts=parts: parts)] for parts in (1, 3)
        ]
        if not hasattr(configs, "TMA"):
            return found
        if block_n >= 64:  # As wide as a full row, or halves as wide as strips are.
            block_n = min(config.kwargs["BLOCK_N"] for config in configs.TMA.configs)
        tiles = always(BLOCK_M=16, BLOCK_N=block_n, BLOCK_K=32, GROUP=2)
        described = [(matmul_heuristics, "use_tma", lambda *_: True), (configs.TMA, "choose", tiles)]
        split = lambda tiles, *_: (tiles - tiles // 2 - tiles // 4, 2, tiles // 4, 3)  # noqa: E731
        return [*found, described, [*described, (matmul_heuristics, "choose_stream_k", split)]]
    small = {"FLAT": always(BLOCK=32), "TILE": always(BLOCK_M=8, BLOCK_N=16)}
    if any(hasattr(configs, name) for name in small):
        return [[(getattr(configs, name), "choose", tile) for name, tile in small.items() if hasattr(configs, name)]]
    found = []
    if hasattr(configs, "REGISTERS"):
        found.append([(configs.REGISTERS, "fits", lambda *_: True), (configs.REGISTERS, "choose", whole_rows)])
    if hasattr(configs, "LOOP"):
        loop: Way = [(configs.LOOP, "choose", always(BLOCK_M=4, BLOCK_N=8))]
        if hasattr(configs, "REGISTERS"):
            loop.append((configs.REGISTERS, "fits", lambda *_: False))
        rules = ("choose_splits", "choose_mapped_splits")
        for splits in (1, 3):
            found.append([*loop, *((heuristics, rule, lambda *_, splits=splits: splits) for rule in rules)])
    return found


def whole_rows(_: int, n_cols: int, contiguous: bool) -> Any:
    return triton.Config({"BLOCK_M": 4, "BLOCK_N": triton.next_power_of_2(n_cols)}, num_warps=4)


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_values(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(path)
    module = built(spec, tmp_path)
    function = getattr(module, spec.name)
    first, *others = param_sets(spec)
    check(spec, function, draw(spec, Case()), first)
    for way in ways(module):
        for choice in way:
            monkeypatch.setattr(*choice)
        for case in cases(spec):
            if spec.name == "casts" and case.special and DEVICE == "cuda":
                continue  # Which integer NaN is depends on the dtype that it has.
            try:
                check(spec, function, draw(spec, case), first)
            except Exception as error:
                error.add_note(f"{spec.name}: {case}, {first}, {way}")
                raise
        for params in others:
            check(spec, function, draw(spec, Case()), params)
        for tensors in with_absent(spec):
            check(spec, function, tensors, first)


def with_absent(spec: Spec) -> Iterator[list[Any]]:
    """Inputs with each set of the optional ones left out."""
    optional = [place for place, one in enumerate(spec.inputs) if one.default is not None]
    for count in range(1, len(optional) + 1):
        for absent in itertools.combinations(optional, count):
            drawn = draw(spec, Case())
            yield [None if place in absent else one for place, one in enumerate(drawn)]


def test_nan_is_out_of_every_range(tmp_path: Path) -> None:
    text = """
[op]
name = "scaled"
[inputs]
x = "float[...]"
[params]
least = { default = 0.5, min = 0 }
most = { default = 0.5, max = 1 }
[compute]
y = "x * least * most"
[outputs]
y = "x"
"""
    scaled = built(read_spec("scaled.toml", text), tmp_path).scaled
    for name, words in (("least", "at least 0"), ("most", "at most 1")):
        with pytest.raises(ValueError, match=f"scaled: {name} must be {words}, not nan"):
            scaled(torch.ones(3, device=DEVICE), **{name: math.nan})


def test_large_integers_stay_whole(tmp_path: Path) -> None:
    """A number beside an integer, or cast to its dtype, does not take the integer through a float."""
    path = ROOT / "specs" / "masked_fill.toml"
    module = built(spec_of(path), tmp_path)
    x = torch.tensor([2**24 + 1, 2**53 + 1, -(2**62) - 1], device=DEVICE)
    mask = torch.tensor([False, False, False], device=DEVICE)
    assert torch.equal(module.masked_fill(x, mask, value=1.5), x)


def test_positions_reach_beyond_int32(tmp_path: Path) -> None:
    """What `take` reads at is multiplied by a stride in the width of offsets, not in its own."""
    module = built(spec_of(ROOT / "tests" / "specs" / "embedding.toml"), tmp_path)
    table = torch.empty(2**31 + 4, dtype=torch.int8, device=DEVICE).as_strided((3, 4), (2**30, 1))
    table.copy_(torch.arange(12, device=DEVICE).view(3, 4))
    for dtype in (torch.int8, torch.int32, torch.int64):
        token = torch.tensor([2, 0, 1], dtype=dtype, device=DEVICE)
        assert torch.equal(module.embedding(table, token), table[token.long()])


def test_maximum_of_nothing(tmp_path: Path) -> None:
    """It has no value in a result; in a logsumexp alone it is no result, and torch gives -inf."""
    shared = built(spec_of(ROOT / "tests" / "specs" / "shared_maximum.toml"), tmp_path).shared_maximum
    with pytest.raises(ValueError, match="max has no value over an empty axis"):
        shared(torch.empty(3, 0, device=DEVICE))
    logsumexp = built(spec_of(ROOT / "specs" / "logsumexp.toml"), tmp_path).logsumexp
    assert logsumexp(torch.empty(3, 0, device=DEVICE)).tolist() == [-math.inf] * 3


WITHOUT_ELEMENTS = {
    "over_all": 'y = "logsumexp(x)"',
    "mapped": 'y = "sum(softmax(x, N) * logsumexp(-x, N), N)"',
    "beside_softmax": 'z = "logsumexp(x, N)"\ny = "maximum(z, sum(softmax(x, N) * x, N))"',
}


@pytest.mark.parametrize(("name", "lines"), WITHOUT_ELEMENTS.items())
def test_maximum_that_only_shifts(name: str, lines: str, tmp_path: Path) -> None:
    """However a logsumexp or softmax is used, the maximum in it is no reason to refuse rows of no elements."""
    head = f'[op]\nname = "{name}"\n[inputs]\nx = "float[M, N]"\n[compute]\n'
    text = f'{head}{lines}\n[outputs]\ny = "x"\n[grad]\nwrt = ["x"]\n'
    function = getattr(built(read_spec("spec.toml", text), tmp_path), name)
    x = torch.empty(3, 0, device=DEVICE, requires_grad=True)
    y = function(x)
    expected = {"over_all": torch.logsumexp(x, (0, 1)), "mapped": torch.zeros(3), "beside_softmax": torch.zeros(3)}
    assert torch.equal(y.cpu(), expected[name].detach().cpu())
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == (3, 0)


@pytest.mark.parametrize("needs_grad", [False, True])
def test_maximum_beside_empty_results(needs_grad: bool, tmp_path: Path) -> None:
    """A result without elements needs no maximum, whether that is kept for the backward or not."""
    text = """
        op = { name = "by_peak", summary = "Matrices by their peaks." }
        inputs = { x = "float[K, M, N]" }
        compute = { y = "x / max(abs(x), M, N)" }
        outputs = { y = "x" }
        grad = { wrt = ["x"] }
        reference = { torch = "x / x.abs().amax((-2, -1), keepdim=True)" }
    """
    by_peak = built(read_spec("spec.toml", text), tmp_path).by_peak
    for shape in ((3, 0, 4), (3, 4, 0), (0, 3, 4)):
        x = torch.empty(shape, device=DEVICE, requires_grad=needs_grad)
        y = by_peak(x)
        assert y.shape == shape
        if needs_grad:
            assert torch.autograd.grad(y.sum(), x)[0].shape == shape


LOSSES = [ROOT / path for path in ("specs/cross_entropy.toml", "specs/cross_entropy_in_place.toml")]
LOSSES.append(ROOT / "examples" / "specs" / "token_loss.toml")


@pytest.mark.parametrize("path", LOSSES, ids=lambda path: path.stem)
def test_losses_of_infinite_logits(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One infinity alone in a row, at the target or beside it: torch's losses, and gradients of rows that count."""
    inf, nan, ignored = math.inf, math.nan, -100
    rows = [[1, inf, 2], [1, -inf, 2], [inf, inf, 1], [-inf, -inf, -inf], [1, nan, 2], [1, 2, 3]]
    logits = torch.tensor([row for row in rows for _ in range(3)], device=DEVICE)
    target = torch.tensor([0, 1, ignored] * len(rows), device=DEVICE)
    module = built(spec_of(path), tmp_path)
    function = getattr(module, path.stem)
    theirs = logits.double().requires_grad_()
    wanted = torch.nn.functional.cross_entropy(theirs, target, reduction="none")
    wanted.sum().backward()
    for way in ways(module):
        for choice in way:
            monkeypatch.setattr(*choice)
        ours = logits.clone().requires_grad_()
        loss = function(ours + 0, target)
        loss.sum().backward()
        torch.testing.assert_close(loss, wanted, rtol=1e-6, atol=1e-6, equal_nan=True, check_dtype=False)
        got, want = (one.grad[target != ignored] for one in (ours, theirs))
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6, equal_nan=True, check_dtype=False)
