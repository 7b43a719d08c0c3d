"""Scans, and math around them, forward and backward, beside torch's own in float64.

All rows go through each of their kernels: a loop along each, and the two stages of rows that programs share.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch
import triton

from tests.cases.step_scans import CASES, Case
from tests.harness.importing import built, runtime_of
from tests.harness.oracles import compare
from tritongen.operator.compile import forward_of
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

WAYS = {"loop": 1, "split": 3}


def force(module: ModuleType, monkeypatch: pytest.MonkeyPatch, splits: int, block: int = 8) -> None:
    """Has rows go through loops in small blocks, or be shared by so many programs."""
    heuristics = runtime_of(module, "heuristics")
    tile = triton.Config({"BLOCK_M": 4, "BLOCK_N": block}, num_warps=4)
    monkeypatch.setattr(heuristics.Registers, "fits", lambda *_: False)
    monkeypatch.setattr(heuristics.Loop, "choose", lambda *_: tile)
    for rule in ("choose_splits", "choose_mapped_splits"):
        monkeypatch.setattr(heuristics, rule, lambda _, n_cols, *__: min(splits, max(1, n_cols)))


@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64 to its last digits, so that no step is left out; in float32 as rows are chosen."""
    case = CASES[name]
    module = built(case.spec(), tmp_path)
    given = case.tensors(torch.float32)
    by = [place for place, one in enumerate(given) if one.is_floating_point()]
    compare(module.steps, case.torch, given, by, 2e-3)
    for splits in WAYS.values():
        with monkeypatch.context() as patch:
            force(module, patch, splits)
            compare(module.steps, case.torch, case.tensors(torch.float64), by, 1e-8)


SHAPES = [(5, 37), (3, 64), (1, 1), (6, 1), (1, 17), (0, 5), (5, 0)]
BOTH = Case(
    "x:M, N; w:N", "y = cumsum(x * w, N)\nz = cumprod(x, N)", lambda x, w: ((x * w).cumsum(1), x.cumprod(1)), "y z"
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return built(BOTH.spec(), tmp_path_factory.mktemp("both"))


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, both: ModuleType, monkeypatch: pytest.MonkeyPatch) -> str:
    force(both, monkeypatch, WAYS[request.param])
    return str(request.param)


def drawn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.usefixtures("way")
def test_lengths(shape: tuple[int, int], both: ModuleType) -> None:
    compare(both.steps, BOTH.torch, [drawn(*shape), drawn(shape[1], seed=1)], (0, 1), 1e-9)


@pytest.mark.parametrize("block", [8, 16, 32])
@pytest.mark.parametrize("splits", [1, 2, 3, 7])
def test_blocks_and_parts(block: int, splits: int, both: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are full blocks, so that the last ones may be short, or none."""
    force(both, monkeypatch, splits, block)
    for n in (block - 1, block, block + 1, 3 * block, 5 * block + 3):
        compare(both.steps, BOTH.torch, [drawn(5, n), drawn(n, seed=1)], (0, 1), 1e-9)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 4e-3), (torch.bfloat16, 3e-2), (torch.float32, 1e-5)])
@pytest.mark.usefixtures("way")
def test_dtypes(dtype: torch.dtype, tolerance: float, both: ModuleType) -> None:
    """What is carried is float32 in half precision."""
    x, w = drawn(5, 83).clamp(-1, 1).to(dtype), drawn(83, seed=1).to(dtype)
    compare(both.steps, BOTH.torch, [x, w], (0, 1), tolerance)


@pytest.mark.usefixtures("way")
def test_strides(both: ModuleType) -> None:
    for x in (drawn(37, 5).T, drawn(10, 74)[::2, ::2], drawn(37).expand(5, 37), drawn(5, 1).expand(5, 37)):
        compare(both.steps, BOTH.torch, [x, drawn(74, seed=1)[::2]], (0, 1), 1e-9)


@pytest.mark.usefixtures("way")
def test_gradients_of_products_with_zeros(both: ModuleType) -> None:
    """None of them divides by an element: of one zero in a row, at any place, of two, and of nothing but zeros."""
    rows = [drawn(37, seed=seed) for seed in range(9)]
    for row, places in zip(
        rows, ([0], [36], [7], [8], [3, 30], [15, 16], [0, 36], [*range(37)], [5, 6, 7]), strict=True
    ):
        row[places] = 0
    compare(both.steps, BOTH.torch, [torch.stack(rows), drawn(37, seed=9)], (0, 1), 1e-9)


@pytest.mark.usefixtures("way")
def test_infinities_and_nan(both: ModuleType) -> None:
    """They go on along a row, and into no other; an infinity and its opposite, or zero, are NaN."""
    inf, nan = float("inf"), float("nan")
    x = drawn(8, 37)
    x[0, 5], x[1, 20], x[2, 8], x[3, 7] = inf, -inf, nan, nan
    x[4, 3], x[4, 30] = inf, -inf
    x[5, 3], x[5, 30] = inf, 0
    x[6, 0], x[7, 36] = inf, nan
    compare(both.steps, BOTH.torch, [x, torch.ones(37, dtype=torch.float64)], (), 1e-9)


TEXT = """[op]
name = "scanned"
summary = "Scans."
[types]
T = "float"
[inputs]
{inputs}
[params]
{params}
[compute]
{compute}
[outputs]
{outputs}
[grad]
wrt = [{wrt}]
"""


def scanned(inputs: str, compute: str, outputs: str = 'y = "auto"', wrt: str = '"x"', params: str = "") -> Spec:
    text = TEXT.format(inputs=inputs, compute=compute, outputs=outputs, wrt=wrt, params=params)
    return read_spec("scanned.toml", text if wrt else text.partition("[grad]")[0])


@pytest.mark.parametrize("splits", WAYS.values())
def test_leading_axes(splits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any number, of which an input may have fewer; more of them than fold."""
    spec = scanned('x = "T[..., N]"\nw = "T[..., N]"', 'y = "cumsum(x * w, N) + cumprod(x, N)"', wrt='"x", "w"')
    module = built(spec, tmp_path)
    force(module, monkeypatch, splits)
    for x, w in (
        (drawn(37), drawn(37)),
        (drawn(3, 2, 37), drawn(2, 37)),
        (drawn(3, 2, 37), drawn(3, 1, 37)),
        (drawn(3, 37, 2).transpose(1, 2), drawn(3, 2, 37)),
        (drawn(4, 6, 3, 37).transpose(0, 2)[:, ::2], drawn(3, 3, 4, 37)),
    ):
        compare(module.scanned, lambda x, w: (x * w).cumsum(-1) + x.cumprod(-1), [x, w], (0, 1), 1e-9)


@pytest.mark.parametrize("splits", WAYS.values())
@pytest.mark.parametrize("given", [(True, True), (True, False), (False, False)], ids=str)
@pytest.mark.parametrize("kind", ["sum", "product", "none"])
def test_what_a_param_chooses(
    kind: str, given: tuple[bool, bool], splits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether there is a scan, and of what; of inputs that may be left out."""
    path = Path(__file__).parents[1] / "specs" / "scan_of_choice.toml"
    module = built(read_spec(path.name, path.read_text(encoding="utf-8")), tmp_path)
    force(module, monkeypatch, splits)
    x, w, b = drawn(5, 37), drawn(5, 37, seed=1), drawn(37, seed=2)

    def operator(x: torch.Tensor, *others: torch.Tensor) -> object:
        told = iter(others)
        return module.scan_of_choice(x, *(next(told) if one else None for one in given), kind=kind)

    def formula(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        told = iter(others)
        h = x * next(told) if given[0] else x
        offset = next(told) if given[1] else 0
        return {"sum": lambda: h.cumsum(1) - offset, "product": lambda: h.cumprod(1) * 2, "none": lambda: h}[kind]()

    tensors = [x, *(one for one, is_given in zip((w, b), given, strict=True) if is_given)]
    compare(operator, formula, tensors, range(1 + given[0]), 1e-9)


@pytest.mark.parametrize("splits", WAYS.values())
@pytest.mark.parametrize(
    "compute", ["cumsum(w * v, N)", "cumprod(v * w, N)", "cumsum(w, N)", "cumsum(w if flag else x, N)"]
)
@pytest.mark.parametrize("default", [0.0, 0.5])
def test_what_is_left_out(
    default: float, compute: str, splits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is scanned, only a number is there, or one for each row."""
    inputs = f'x = "T[M, N]"\nv = "T[M]"\nw = "T[M, N] = {default}"'
    spec = scanned(
        inputs, f'z = "x * v if flag else x"\ny = "{compute}"', 'z = "auto"\ny = "auto"', '"x", "v"', "flag = true"
    )
    module = built(spec, tmp_path)
    force(module, monkeypatch, splits)
    x, v, w = drawn(5, 37), drawn(5, seed=1), torch.full((5, 37), default, dtype=torch.float64)
    assert torch.equal(module.scanned(x, v)[1], module.scanned(x, v, w)[1])


@pytest.mark.parametrize("splits", WAYS.values())
@pytest.mark.parametrize("default", [True, False])
def test_a_bool_that_is_left_out(default: bool, splits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = str(default).lower()
    spec = scanned(f'x = "T[M, N]"\nkeep = "bool[N] = {keep}"', 'y = "x * cumsum(keep, N)"')
    module = built(spec, tmp_path)
    force(module, monkeypatch, splits)
    x = drawn(5, 37)
    wanted = torch.full((37,), default).cumsum(0)
    compare(module.scanned, lambda x: x * wanted, [x], (0,), 1e-9)


@pytest.mark.parametrize("splits", WAYS.values())
@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.bool])
def test_integers_are_int64(dtype: torch.dtype, splits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many bits their sums and products take, which wrap around."""
    name = str(dtype).removeprefix("torch.")
    spec = scanned(f'x = "{name}[M, N]"', 'y = "cumsum(x, N)"\nz = "cumprod(x, N)"', 'y = "auto"\nz = "auto"', "")
    module = built(spec, tmp_path)
    force(module, monkeypatch, splits)
    x = torch.randint(-120, 120, (5, 83), generator=torch.Generator().manual_seed(0)).to(dtype)
    x[1] = 1
    x[2] = x[2] | 1
    got = module.scanned(x)
    assert [one.dtype for one in got] == [torch.int64] * 2
    assert torch.equal(got[0], x.cumsum(1))
    assert torch.equal(got[1], x.cumprod(1))


def test_the_last_of_a_long_row(both: ModuleType) -> None:
    """As blocks and parts are chosen, of 10,001 elements."""
    x, w = drawn(2, 10_001) * 0.01 + 1, drawn(10_001, seed=1)
    compare(both.steps, BOTH.torch, [x.clamp(0.999, 1.001), w], (0, 1), 1e-8)


def titles(spec: Spec) -> list[str]:
    forward = forward_of(spec)
    return [step.family.title for step in forward.family.steps(forward.program) or (forward,)]


def test_steps() -> None:
    """Scans of one axis are one kernel, with the math before and after them."""
    assert titles(CASES["functions_around"].spec()) == ["a scan"]
    assert titles(CASES["several_in_one_kernel"].spec()) == ["a scan"]
    assert titles(CASES["of_different_axes"].spec()) == ["a scan"] * 2
    assert titles(CASES["a_scan_of_a_scan"].spec()) == ["a scan"] * 2
    assert titles(CASES["top_p"].spec()) == ["row-wise", "a scan"]
    assert titles(CASES["line_by_line"].spec()) == ["elementwise", "a scan", "elementwise"]
