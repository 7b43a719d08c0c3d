"""Operators called again with other values in other memory, through the launches of the first call."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from tests.harness.importing import built, module_at, runtime_module, runtime_of
from tests.harness.replaying import replay_interpreted
from tritongen.spec.read import read_spec

GENERATED = Path(__file__).parents[2] / "generated"
WAYS: dict[str, dict[str, Any]] = {
    "pointers": {"use_tma": lambda *_: False, "choose_split_k": lambda *_: 1},
    "parts": {"use_tma": lambda *_: False, "choose_split_k": lambda *_: 3},
    "descriptors": {"use_tma": lambda *_: True},
    "shares": {
        "use_tma": lambda *_: True,
        "choose_stream_k": lambda tiles, *_: (tiles - tiles // 2 - tiles // 4, 2, tiles // 4, 3),
    },
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="generated tests show it on a GPU")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["linear_silu_mul", "addmm"])
def test_products_launched_again_are_right(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls alike, with other values in other memory, through the launches of the first."""
    module = module_at(GENERATED / name)
    config = triton.Config({"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP": 2}, num_warps=4)
    replay_interpreted(runtime_of(module, "launch"), monkeypatch)
    for choice, answer in WAYS[way].items():
        monkeypatch.setattr(runtime_of(module, "matmul_heuristics"), choice, answer)
    configs = importlib.import_module(f"{module.__name__}.configs")
    for table in (configs.TMA, configs.STRIDED):
        monkeypatch.setattr(table, "choose", lambda *_: config)

    both = torch.empty(2, 96, 72)  # In one piece, so that they are as far apart for every call.
    for alpha in (2.0, 3.0):
        both.normal_()
        x, (gate, up), bias = torch.randn(40, 72), both, torch.randn(40, 96)
        if name == "addmm":
            got = module.addmm(bias, x, gate.T, alpha=alpha)
            want = bias + alpha * (x.double() @ gate.T.double())
        else:
            got = module.linear_silu_mul(x, gate, up)
            want = torch.nn.functional.silu(x.double() @ gate.T.double()) * (x.double() @ up.T.double())
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)
        assert len(runtime_of(module, "launch").LAUNCHES) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="generated tests show it on a GPU")
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("logsumexp", lambda x: x.logsumexp(-1)),
        ("mean", lambda x: x.mean(-1)),
        ("var", lambda x: x.var(-1)),
        ("l2_norm", lambda x: x.norm(dim=-1)),
    ],
)
def test_stages_launched_again_are_right(
    name: str, wanted: Callable[[torch.Tensor], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that programs share, merged by an operator's own kernel and, of plain sums, by the runtime's."""
    module = module_at(GENERATED / name)
    replay_interpreted(runtime_of(module, "launch"), monkeypatch)
    monkeypatch.setattr(runtime_of(module, "heuristics"), "choose_splits", lambda *_: 3)
    monkeypatch.setattr(runtime_of(module, "heuristics").Registers, "fits", lambda *_: False)
    for seed in (0, 1):
        x = torch.randn(2, 40_000, generator=torch.Generator().manual_seed(seed))
        found = getattr(module, name)(x)
        torch.testing.assert_close(found.double(), wanted(x.double()), rtol=1e-5, atol=1e-5)
        gone = weakref.ref(x), weakref.ref(found)
        del x, found
        assert gone[0]() is gone[1]() is None
    assert len(runtime_of(module, "launch").LAUNCHES) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="generated tests show it on a GPU")
def test_rows_that_programs_share_are_mapped_back_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the second stage, with states of each call's own; the last part of a row is shorter than the others."""
    path = Path(__file__).parents[1] / "specs" / "group_norm.toml"
    module = built(read_spec(path.name, path.read_text(encoding="utf-8")), tmp_path)
    heuristics = runtime_of(module, "heuristics")
    replay_interpreted(runtime_of(module, "launch"), monkeypatch)
    monkeypatch.setattr(heuristics, "choose_mapped_splits", lambda *_: 3)
    monkeypatch.setattr(heuristics.Registers, "fits", lambda *_: False)
    for seed in (0, 1):
        x = torch.randn(1, 4, 93, 97, generator=torch.Generator().manual_seed(seed))
        weight = torch.arange(1.0, 5.0)
        want = torch.nn.functional.group_norm(x.double(), 2, weight.double())
        torch.testing.assert_close(module.group_norm(x, weight).double(), want, rtol=1e-5, atol=1e-5)
    assert len(runtime_of(module, "launch").LAUNCHES) == 1


def test_rows_that_are_mapped_back_are_split_where_sms_would_idle() -> None:
    """All programs run at once, and short rows are left whole."""
    heuristics = runtime_module("heuristics")
    device, tile = torch.device("cpu"), triton.Config({"BLOCK_M": 1, "BLOCK_N": 8192}, num_warps=16)

    def splits(n_rows: int, n_cols: int) -> int:
        found: int = heuristics.choose_mapped_splits(n_rows, n_cols, tile, device)
        return found

    programs = [rows * splits(rows, 2**20) for rows in range(4, 67)]
    assert all(132 <= count <= 2 * 132 for count in programs)
    assert splits(67, 2**20) == splits(32, 2**14) == 1
    assert splits(32, 2**16) == 4
    assert splits(1, 2**30) == 264


@pytest.mark.skipif(torch.cuda.is_available(), reason="generated tests show it on a GPU")
def test_split_streams_launched_again_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of programs that split the keys, with partial sums and a scale of each call's own."""
    module = module_at(GENERATED / "attention")
    replay_interpreted(runtime_of(module, "launch"), monkeypatch)
    streaming_heuristics = runtime_of(module, "streaming_heuristics")
    monkeypatch.setattr(streaming_heuristics, "choose_stream_splits", lambda *_: 3)
    tile = streaming_heuristics.streamed_tile(16, 16, 4, 1)
    monkeypatch.setattr(streaming_heuristics.Streamed, "choose", lambda *_: tile)
    for seed, scale in enumerate((0.1, 0.3)):
        random = torch.Generator().manual_seed(seed)
        q, k, v = (torch.randn(2, 70, 16, generator=random) for _ in range(3))
        s = (q.double() @ k.double().mT * scale).masked_fill(torch.ones(70, 70).triu(1).bool(), -torch.inf)
        got = module.attention(q, k, v, scale=scale)
        torch.testing.assert_close(got.double(), s.softmax(-1) @ v.double(), rtol=1e-4, atol=1e-5)
    assert len(runtime_of(module, "launch").LAUNCHES) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="generated tests show it on a GPU")
@pytest.mark.parametrize("wide", [False, True], ids=["whole", "tiles"])
def test_sums_over_rows_launched_again_are_right(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients with parts of each call's own; not those of rows that another function reduces before."""
    module = module_at(GENERATED / "layer_norm")
    replay_interpreted(runtime_of(module, "launch"), monkeypatch)
    monkeypatch.setattr(runtime_of(module, "heuristics").Whole, "fits", lambda *_: not wide)
    for seed in (0, 1):
        random = torch.Generator().manual_seed(seed)
        given = [torch.randn(shape, generator=random).requires_grad_() for shape in ((5, 30), (30,), (30,))]
        exact = [one.detach().double().requires_grad_() for one in given]
        dy = torch.randn(5, 30, generator=random)
        found = torch.autograd.grad(module.layer_norm(*given), given, dy)
        wanted = torch.autograd.grad(torch.nn.functional.layer_norm(exact[0], (30,), *exact[1:]), exact, dy.double())
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)
        gone = [weakref.ref(one) for one in (*given, dy, *found)]
        del given, dy, found, one
        assert not any(one() is not None for one in gone)
    known = {key[0] for key in runtime_of(module, "launch").LAUNCHES}
    assert ("_layer_norm_backward" in known) is not wide
    assert "_layer_norm_forward" in known


@pytest.mark.skipif(torch.cuda.is_available(), reason="generated tests show it on a GPU")
def test_gradients_that_are_not_asked_for_are_other_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_at(GENERATED / "bias_gelu_residual")
    replay_interpreted(runtime_of(module, "launch"), monkeypatch)
    x, bias, residual = torch.randn(6, 20), torch.randn(20), torch.randn(6, 20)
    wide = [one.double().requires_grad_() for one in (x, bias, residual)]
    wanted = torch.autograd.grad((torch.nn.functional.gelu(wide[0] + wide[1]) + wide[2]).sum(), wide[:2])
    for asked in ((0, 1), (0,), (1,), (0, 1), (1,)):
        given = [one.clone().requires_grad_(place in asked) for place, one in enumerate((x, bias, residual))]
        found = torch.autograd.grad(module.bias_gelu_residual(*given).sum(), [given[place] for place in asked])
        for one, place in zip(found, asked, strict=True):
            torch.testing.assert_close(one.double(), wanted[place], rtol=1e-5, atol=1e-5)
