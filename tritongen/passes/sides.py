"""The two sides of a sum of products, by the axes of its factors."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol, TypeVar


class HasAxes(Protocol):
    """A factor of a sum."""

    @property
    def axes(self) -> tuple[str, ...]: ...


F = TypeVar("F", bound=HasAxes)


def two_sides(
    factors: Iterable[F], over: tuple[str, ...], outer: bool = True
) -> tuple[tuple[F, ...], tuple[F, ...]] | None:
    """The factors by side, each side with a free axis that the other lacks; None if that is impossible.

    A factor with a free axis that neither side has joins the side with fewer, if `outer` products are allowed.
    """
    first, *others = sorted(factors, key=lambda factor: -len(factor.axes))
    left: tuple[F, ...] = (first,)
    right: tuple[F, ...] = ()
    for factor in others:
        own, ours, theirs = (free_axes(side, over) for side in ((factor,), left, right))
        if own <= ours:
            left = (*left, factor)
        elif not right or own <= theirs:
            right = (*right, factor)
        elif not outer:
            return None
        elif len(ours) < len(theirs):
            left = (*left, factor)
        else:
            right = (*right, factor)
    ours, theirs = free_axes(left, over), free_axes(right, over)
    return (left, right) if ours - theirs and theirs - ours else None


def are_outer(factors: Collection[HasAxes]) -> bool:
    """Whether each of some factors lacks axes of their product."""
    axes = {axis for factor in factors for axis in factor.axes}
    return all({*factor.axes} < axes for factor in factors)


def free_axes(factors: Iterable[HasAxes], over: tuple[str, ...]) -> frozenset[str]:
    """The axes of a side that are not summed."""
    return frozenset(axis for factor in factors for axis in factor.axes) - set(over)
