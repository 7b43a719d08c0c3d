"""What tests of the runtime share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import triton

from tests.cases.gemm import GEMM, SPLIT


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has rules of the heuristics choose something, and forgets the launches of other choices."""
    GEMM.launch.LAUNCHES.clear()

    def choose(config: triton.Config | None = None, **answers: Any) -> None:
        for rule, answer in answers.items():
            monkeypatch.setattr(GEMM.matmul_heuristics, rule, answer if callable(answer) else lambda *_, it=answer: it)
        for table in (GEMM.TMA, GEMM.STRIDED, GEMM.SPLIT, SPLIT.TMA) if config else ():
            monkeypatch.setattr(table, "choose", lambda *_: config)

    return choose
