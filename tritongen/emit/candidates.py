"""Candidates of launch configurations, and the values that a schedule lists for them."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from itertools import product

from ..spec.types import Schedule


@dataclass(frozen=True, slots=True)
class Config:
    """Tiles, warps and pipeline stages of one candidate.

    `block` is the elements of a program; with full rows in it, `block_n` is the longest row that it is for. `block_k`
    is the block of the inner axes of a matmul, and `width` the widest matrix that a streaming kernel has it for.
    """

    warps: int
    block_m: int = 0
    block_n: int = 0
    block_k: int = 0
    stages: int = 0
    block: int = 0
    width: int = 0


def listed(schedule: Schedule, names: Iterable[str], first_of: Container[str] = ()) -> list[dict[str, int]]:
    """The combinations of values that `[schedule]` lists for some fields, of some fields the first value alone."""
    lists = {name: getattr(schedule, {"warps": "num_warps", "stages": "num_stages"}.get(name, name)) for name in names}
    given = {name: values[:1] if name in first_of else values for name, values in lists.items() if values}
    return [dict(zip(given, values, strict=True)) for values in product(*given.values())]
