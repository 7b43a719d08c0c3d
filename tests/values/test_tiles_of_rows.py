"""Which tiles loops along rows take, by how their inputs lie in memory."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from tests.harness.importing import built
from tritongen.operator.compile import forward_of
from tritongen.roofline.account import account_of
from tritongen.roofline.devices import DEVICES
from tritongen.spec.read import read_spec

HEAD = '[op]\nname = "rows"\n[types]\nT = "float"\n'
LOOKUP = 'i = "int64[B, L]"\nx = "T[V, D]"', 'y = "sum(take(x, i, V), L)"'
PAIRS = 'x = "T[M, D]"\nz = "T[N, D]"', 'y = "sum(abs(x - z), D)"'
OF_ROWS = 'x = "T[M, N]"\nz = "T[N, D]"\nc = "T[M, D]"', 'y = "sum(x * where(c > z, 1.0, -1.0), N)"'
PLAIN = 'x = "T[M, D]"', 'y = "sum(abs(x), D)"'


def spec_of(inputs: str, line: str, wrt: str = "") -> Any:
    grad = f"[grad]\nwrt = [{wrt}]\n" if wrt else ""
    text = f'{HEAD}[inputs]\n{inputs}\n[compute]\n{line}\n[outputs]\ny = "auto"\n{grad}'
    return read_spec("rows.toml", text)


@pytest.mark.parametrize(
    ("case", "table", "by_rows"),
    [(LOOKUP, "LOOKUP", True), (PAIRS, "PAIRS", False), (OF_ROWS, "PAIRS", True), (PLAIN, "LOOP", False)],
)
def test_tables(case: tuple[str, str], table: str, by_rows: bool, tmp_path: Path) -> None:
    """Lanes go along rows where neighbouring columns are read from other rows of a table, or of a matrix."""
    module = built(spec_of(*case), tmp_path)
    configs = importlib.import_module(f"{module.__name__}.configs")
    assert isinstance(getattr(configs, table), configs.heuristics.Loop)
    text = Path(str(module.__file__)).with_name("op.py").read_text(encoding="utf-8")
    assert re.search(rf"table=(heuristics.Simple\()?configs.{table}\b", text)
    contiguous = re.search(r"rowwise\.Rows\(\s*key,\s*contiguous=(.*?),\s*table=", text, re.DOTALL)
    assert contiguous is not None
    assert (contiguous[1] == "False") == by_rows


@pytest.mark.parametrize("tile", [(8, 1), (4, 8)])
def test_values(tile: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = built(spec_of(*LOOKUP, wrt='"x"'), tmp_path)
    configs = importlib.import_module(f"{module.__name__}.configs")
    config = triton.Config({"BLOCK_M": tile[0], "BLOCK_N": tile[1]}, num_warps=4)
    monkeypatch.setattr(configs.LOOKUP, "choose", lambda *_: config)
    x = torch.randn(9, 5, dtype=torch.float64, requires_grad=True)
    i = torch.randint(0, 9, (3, 7))
    y = module.rows(i, x)
    torch.testing.assert_close(y, x[i].sum(1))
    (found,) = torch.autograd.grad(y.square().sum(), x)
    (wanted,) = torch.autograd.grad(x[i].sum(1).square().sum(), x)
    torch.testing.assert_close(found, wanted)


def test_rows_whose_position_the_math_uses(tmp_path: Path) -> None:
    """The position comes first, since neighbours in memory are along the axis behind it; by the host and in kernels."""
    line = 'y = "where(index(M) >= index(N), exp(a - b), 0)"'
    spec = spec_of('a = "T[B, M, D]"\nb = "T[B, N, D]"', line, wrt='"a", "b"')
    module = built(spec, tmp_path)
    kernels = Path(str(module.__file__)).with_name("kernels.py").read_text(encoding="utf-8")
    assert "i_m = rows // size_1 // size_0" in kernels
    a, b = (torch.randn(3, n, 4, dtype=torch.float64, requires_grad=True) for n in (5, 6))
    lower = torch.ones(5, 6).tril().bool()[..., None]
    wanted = torch.where(lower, (a[:, :, None] - b[:, None]).exp(), 0)
    found = module.rows(a, b)
    found = found.permute([found.shape.index(n) for n in (3, 5, 6, 4)])
    torch.testing.assert_close(found, wanted)
    seed = torch.randn_like(wanted)
    pairs = zip(*(torch.autograd.grad(one, (a, b), seed) for one in (found, wanted)), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("given", "axes", "contiguous"),
    [("M, N", "N, M", "False"), ("N, M, P", "N, M, P", r"\w+\.stride\(-2\) == 1"), ("M, N", "M, N", "")],
)
def test_sums_beside_a_transpose(given: str, axes: str, contiguous: str, tmp_path: Path) -> None:
    """Each element is read once, in tiles that are as high as wide where neighbours in memory are of several rows."""
    order = given.split(", ")
    text = f'{HEAD}[inputs]\nx = "T[{given}]"\nb = "T[M]"\n[compute]\ny = "relu(x + b)"\n'
    text += f'[outputs]\ny = "T[{axes}]"\n[grad]\nwrt = ["x", "b"]\n'
    module = built(read_spec("rows.toml", text), tmp_path)
    written = Path(str(module.__file__)).with_name("op.py").read_text(encoding="utf-8")
    if contiguous:
        assert re.search(rf"columns\.Call\([^#]*\bcontiguous={contiguous}", written)
        choose = importlib.import_module(f"{module.__name__}.configs").SUMS_BACKWARD.choose
        assert choose(4096, 4096, False).kwargs == {"BLOCK_M": 64, "BLOCK_N": 64}
        assert choose(2**20, 4, False).kwargs == {"BLOCK_M": 1024, "BLOCK_N": 4}
    else:
        assert "columns." not in written
    x = torch.randn([{"M": 5, "N": 70, "P": 3}[axis] for axis in order], dtype=torch.float64, requires_grad=True)
    b = torch.randn(5, dtype=torch.float64, requires_grad=True)
    turned = x.permute([order.index(axis) for axis in axes.split(", ")])
    wanted = (turned + b.reshape([-1 if axis == "M" else 1 for axis in axes.split(", ")])).relu()
    found = module.rows(x, b)
    torch.testing.assert_close(found, wanted)
    seed = torch.randn_like(wanted)
    pairs = zip(*(torch.autograd.grad(one, (x, b), seed) for one in (found, wanted)), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("channels", "is_whole"), [(5, True), (130, False)])
def test_norms_of_channels(channels: int, is_whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels lie apart: more of them than a few are read in tiles, after their sums."""
    text = f'{HEAD}[inputs]\nx = "T[B, C, S]"\nw = "T[C]"\n[compute]\ny = "x * rsqrt(mean(x * x, C) + 0.1) * w"\n'
    text += '[outputs]\ny = "T[B, C, S]"\n[grad]\nwrt = ["x", "w"]\n'
    module = built(read_spec("rows.toml", text), tmp_path)
    table = importlib.import_module(f"{module.__name__}.configs").WHOLE_BACKWARD
    chosen: list[triton.Config] = []
    choose = table.choose
    monkeypatch.setattr(table, "choose", lambda *given: chosen.append(choose(*given)) or chosen[-1])
    x = torch.randn(2, channels, 40, dtype=torch.float64, requires_grad=True)
    w = torch.randn(channels, dtype=torch.float64, requires_grad=True)
    wanted = x * (x.square().mean(1, keepdim=True) + 0.1).rsqrt() * w[:, None]
    found = module.rows(x, w)
    torch.testing.assert_close(found, wanted)
    seed = torch.randn_like(wanted)
    pairs = zip(*(torch.autograd.grad(one, (x, w), seed) for one in (found, wanted)), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other)
    assert [config.kwargs["STAGES"] for config in chosen] == [1] * is_whole


def test_pairs_take_as_long_as_their_operations() -> None:
    """An instruction for each difference, its size and the sum, of which an H100 starts 33.5e12 a second."""
    (step,) = account_of(spec_of(*PAIRS), {"M": 4096, "N": 4096, "D": 1024}, DEVICES["h100"]).forward
    assert step.operations == 3 * 4096 * 4096 * 1024
    assert step.seconds == pytest.approx(step.operations / 33.5e12)
    (short,) = account_of(spec_of(*PLAIN), {"M": 4096, "D": 1024}, DEVICES["h100"]).forward
    assert short.operations == 0
    assert forward_of(spec_of(*PAIRS)).family.title == "row-wise"


def test_shuffled_pixels(tmp_path: Path) -> None:
    """Neighbours in a line of the result come from different planes, of which each is read in order."""
    text = f'{HEAD}[inputs]\nx = "T[B, (C P=2 Q=2), H, W]"\n[compute]\ny = "2 * x"\n'
    text += '[outputs]\ny = "T[B, C, (H P), (W Q)]"\n[grad]\nwrt = ["x"]\n'
    module = built(read_spec("rows.toml", text), tmp_path)
    kernels = Path(str(module.__file__)).with_name("kernels.py").read_text(encoding="utf-8")
    assert "i_q = cols % 2" in kernels
    x = torch.randn(2, 12, 5, 7, dtype=torch.float64, requires_grad=True)
    found, wanted = module.rows(x), 2 * torch.nn.functional.pixel_shuffle(x, 2)
    torch.testing.assert_close(found, wanted)
    seed = torch.randn_like(wanted)
    torch.testing.assert_close(*(torch.autograd.grad(one, x, seed) for one in (found, wanted)))
    fold = importlib.import_module(f"{module.__name__}._runtime.elementwise").fold_rows
    axes = "B C P Q H W, B C H P W Q -> (B C) H P=2 W*Q=2"
    layouts = [((2, 3, 2, 2, 5, 700), one.stride()) for one in (torch.empty(2, 3, 2, 2, 5, 700),)]
    layouts.append(((2, 3, 5, 2, 700, 2), torch.empty(2, 3, 5, 2, 700, 2).stride()))
    close, _ = fold(axes, 1, tuple(layouts))
    assert close


@pytest.mark.parametrize("axes", ["M, C, P=2, Q=2", "M, C, (H P=2), (W Q=2)"])
def test_rows_of_several_axes(axes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which lie apart where they are shuffled; kernels for full rows and for tiles step through them alike."""
    inputs, line = f'x = "T[{axes}]"\ng = "T[C, P=2, Q=2]"', 'y = "x * rsqrt(mean(x * x, C, P, Q) + 1) * g"'
    module = built(spec_of(inputs, line, wrt='"x", "g"'), tmp_path)
    configs = importlib.import_module(f"{module.__name__}.configs")
    g = torch.randn(5, 2, 2, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 5, *((6, 14) if "H" in axes else (2, 2)), dtype=torch.float64, requires_grad=True)
    rows = x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).permute(0, 1, 3, 5, 2, 4)  # M, C, P, Q, H, W
    wanted = rows * torch.rsqrt(rows.square().mean((1, 2, 3), keepdim=True) + 1) * g[..., None, None]
    wanted = wanted.permute(0, 1, 4, 2, 5, 3).reshape(x.shape)
    seed = torch.randn_like(wanted)
    for fits in (True, False):
        monkeypatch.setattr(type(configs.WHOLE_BACKWARD), "fits", lambda *_, fits=fits: fits)
        found = module.rows(x, g)
        torch.testing.assert_close(found, wanted)
        gradients = (torch.autograd.grad(one, (x, g), seed, retain_graph=True) for one in (found, wanted))
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other)
