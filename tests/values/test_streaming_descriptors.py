"""Gradients of attention whose blocks TMA reads by descriptors, beside a float64 oracle."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.cases.streaming_cases import CASES
from tests.cases.streaming_formulas import causal
from tests.cases.streaming_layouts import CASES as OF_LAYOUTS
from tests.harness.importing import built, runtime_module, runtime_of
from tests.harness.oracles import DEVICE, compare
from tests.harness.replaying import replay_interpreted


@pytest.fixture
def by_tma(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType], list[int]]:
    """Has gradients read blocks by descriptors where these are possible; how many each launch has."""

    def force(operator: ModuleType) -> list[int]:
        counts: list[int] = []
        tma = runtime_of(operator, "streaming_tma")
        dims_of_blocks = tma.dims_of_blocks

        def spy(*given: object) -> object:
            found = dims_of_blocks(*given)
            counts.append(0 if found is None else len(found))
            return found

        monkeypatch.setattr(tma, "dims_of_blocks", spy)
        monkeypatch.setattr(runtime_of(operator, "streaming_heuristics"), "use_descriptors", lambda *_: True)
        return counts

    return force


@pytest.mark.parametrize(
    ("name", "counts"),
    {
        "causal": [2],
        "window": [2],
        "scales": [2],
        "heads_that_share_keys": [2],
        "scores_of_two_matmuls": [3],
        "sink": [2],
        "gate": [2],
        "sigmoid": [2],
        "values_first": [1],
        "numbers_of_positions_before_heads": [2],
        "positions_before_heads": [2],
        "one_head": [],
        "keys_of_the_batch_and_of_groups": [2],
        "keys_of_three_axes": [],
        "positions_first_of_one_head_of_keys": [2],
    }.items(),
)
def test_values_by_descriptors(
    name: str,
    counts: list[int],
    tmp_path: Path,
    small: Callable[..., None],
    by_tma: Callable[[ModuleType], list[int]],
) -> None:
    """Gradients whose blocks TMA reads, of widths and lengths that no tile divides."""
    case = CASES[name] if name in CASES else OF_LAYOUTS[name]
    operator = built(case.spec(), tmp_path)
    small(operator)
    found = by_tma(operator)
    compare(operator.attend, case.torch, case.tensors(torch.float16), case.places(), 4e-3)
    assert found == counts


@pytest.mark.parametrize(
    ("laid_out", "count"),
    [
        (lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), 2),
        (lambda x: x[:, :1].expand(-1, 2, -1, -1), 2),
        (lambda x: torch.cat([x, x[..., :4]], -1)[..., :24], 0),
        (lambda x: torch.cat([x, x], -1)[..., 4:28], 0),
        (lambda x: x.mT.contiguous().mT, 0),
    ],
    ids=["rows before heads", "one for all heads", "rows 56 bytes apart", "unaligned", "columns"],
)
@pytest.mark.skipif(DEVICE == "cuda", reason="replays launches of the interpreter")
def test_layouts_that_tma_steps_through(
    laid_out: Callable[[torch.Tensor], torch.Tensor],
    count: int,
    tmp_path: Path,
    by_tma: Callable[[ModuleType], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twice, where the second call launches what the first did on tensors of its own."""
    operator = built(CASES["causal"].spec(), tmp_path)
    found = by_tma(operator)
    launch = runtime_of(operator, "launch")
    replay_interpreted(launch, monkeypatch)
    random = torch.Generator().manual_seed(0)
    for _ in range(2):
        q, k, v = (laid_out(torch.randn((2, 2, n, 24), generator=random).half()) for n in (37, 53, 53))
        compare(operator.attend, causal, [q, k, v], [0, 1, 2], 4e-3)
        assert found == [count]
    assert len(launch.LAUNCHES) == 3


def test_tiles_whose_blocks_tma_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What streams past keys and values has the registers that addresses would take."""
    operator = built(CASES["causal"].spec(), tmp_path)
    monkeypatch.setattr(runtime_of(operator, "heuristics"), "shared_memory", lambda _: 232_448)
    configs = importlib.import_module(f"{operator.__name__}.configs")

    def rows(table: Any, itemsize: int, is_described: bool) -> int:
        widths = (128, 128)
        config = table.choose(4096, widths, widths, itemsize, torch.device("cpu"), is_described)
        return int(config.kwargs["BLOCK_M"])

    assert [rows(configs.STREAMED_DK_DV, 2, by_tma) for by_tma in (False, True)] == [128, 64]
    assert [rows(configs.STREAMED_DQ, 2, by_tma) for by_tma in (False, True)] == [128, 128]
    assert [rows(configs.STREAMED_DK_DV, 4, by_tma) for by_tma in (False, True)] == [16, 16]


@pytest.mark.parametrize(
    ("name", "by_rows", "by_streamed"),
    [
        ("causal", (128, 64), (64, 128)),
        ("bias", (128, 64), (64, 128)),
        ("sink", (128, 64), (64, 128)),
        ("softcap", (64, 64), (64, 64)),
        ("window", (64, 64), (64, 64)),
        ("documents", (64, 64), (64, 64)),
        ("relative_positions", (64, 64), (64, 64)),
    ],
)
def test_tiles_of_narrow_heads(
    name: str, by_rows: tuple[int, int], by_streamed: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer ones where little is computed for each score, and masks leave many blocks."""
    operator = built(CASES[name].spec(), tmp_path)
    monkeypatch.setattr(runtime_of(operator, "heuristics"), "shared_memory", lambda _: 232_448)
    configs = importlib.import_module(f"{operator.__name__}.configs")
    for table, tile in ((configs.STREAMED_DQ, by_rows), (configs.STREAMED_DK_DV, by_streamed)):
        found = table.choose(4096, (64, 64), (64, 64), 2, torch.device("cpu"), True).kwargs
        assert (found["BLOCK_M"], found["BLOCK_N"]) == tile


@pytest.mark.parametrize(
    ("batch", "shape"),
    [((2, 3), (2, 3, 5, 7, 16)), ((2, 3, 1), (2, 3, 5, 7, 16)), ((2, 3, 4), None)],
)
def test_dimensions_that_tma_steps_through(batch: tuple[int, ...], shape: tuple[int, ...] | None) -> None:
    """Five: the last of the batch is left out where it has a length of 1."""
    tensor = torch.empty((*batch, 5, 7, 16), dtype=torch.float16)
    found = runtime_module("streaming_tma").dims_of(tensor, tensor.stride(), batch)
    assert found == (shape and (shape, (1680, 560, 112, 16, 1)))
