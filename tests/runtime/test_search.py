"""Configurations that are timed, with a clock that a test sets."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
import triton
from triton.runtime.errors import OutOfResources

from tests.harness.importing import runtime_module

GPU = torch.device("cuda", 0)
CONFIGS = [triton.Config({"BLOCK_M": rows}) for rows in (16, 32, 64)]


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The runtime's module as it is on a GPU, which has room for 32 rows; more rows take less time."""
    module = runtime_module("search")

    def do_bench(call: Any, **_: Any) -> float:
        rows: int = call()
        if rows > 32:
            raise OutOfResources(rows, 32, "shared memory")
        return 1 / rows

    monkeypatch.setattr(module, "INTERPRETED", False)
    monkeypatch.setattr(module.launch, "run_stages", lambda key, by_name, rows: rows)
    monkeypatch.setattr(triton.testing, "do_bench", do_bench)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return module


def test_the_fastest_is_found_once_for_a_key(search: ModuleType) -> None:
    timed: list[int] = []

    def stages(config: triton.Config) -> Any:
        timed.append(config.kwargs["BLOCK_M"])
        return timed[-1]

    for key in ("one", "one", "other"):
        assert search.fastest((key,), CONFIGS, stages, GPU) is CONFIGS[1]
    assert timed == [16, 32, 64] * 2


def test_one_configuration_is_not_timed(search: ModuleType) -> None:
    assert search.fastest((), CONFIGS[2:], pytest.fail, GPU) is CONFIGS[2]


@pytest.mark.parametrize("where", ["interpreter", "trace", "graph", "cpu"])
def test_a_rule_chooses_where_nothing_can_be_timed(
    where: str, search: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "interpreter":
        monkeypatch.setattr(search, "INTERPRETED", True)
    if where == "trace":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    if where == "graph":
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    device = torch.device("cpu") if where == "cpu" else GPU
    assert search.fastest((), CONFIGS, pytest.fail, device) is None
