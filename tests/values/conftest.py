"""What tests of values share."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from tests.harness.importing import runtime_of


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has streaming kernels take small tiles, of which there are several; and so many programs split what streams."""

    def force(operator: ModuleType, n_splits: int | None = None) -> None:
        streaming_heuristics = runtime_of(operator, "streaming_heuristics")
        tile = streaming_heuristics.streamed_tile(16, 16, 4, 1)
        monkeypatch.setattr(streaming_heuristics.Streamed, "choose", lambda *_: tile)
        if n_splits is not None:
            monkeypatch.setattr(streaming_heuristics, "choose_stream_splits", lambda *_: n_splits)

    return force
