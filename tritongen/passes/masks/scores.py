"""Finds the mask in a score."""

from __future__ import annotations

from dataclasses import dataclass

from ...lang.ir import Node, Op


@dataclass(frozen=True, slots=True)
class Mask:
    """A score that is `score` where `condition` is true, and the neutral number elsewhere.

    `exact` tells that this holds whatever the score is; otherwise only where it is finite, as in
    `score + where(condition, 0, -inf)`, which is NaN where the score is.
    """

    condition: Node
    score: Node
    exact: bool


def mask_of(op: Op, score: Node, neutral: float) -> Mask | None:
    raise NotImplementedError
