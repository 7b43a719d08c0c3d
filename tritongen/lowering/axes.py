"""Host expressions for the axes of tensors, where `...` stands for any number of axes."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..nest.values import Expr, Term, V, expr, product, runtime, tensors
from ..spec.types import BATCH, AxisTerm

N_BATCH = runtime.len("batch")  # how many axes `...` stands for
MATH_PROD = runtime["math.prod"]("batch")


def lengths(axes: Sequence[str]) -> tuple[Expr, ...]:
    """The lengths of some axes, one by one."""
    return tuple(V.batch.each if axis == BATCH else V[axis] for axis in axes)


def length_of(axes: Sequence[str]) -> Expr:
    """The product of the lengths of some axes."""
    return product(*(MATH_PROD if axis == BATCH else V[axis] for axis in axes)) if axes else expr(1)


def stride(name: str, place: int, optional: bool) -> Expr:
    """The stride of a tensor along an axis, 0 if an optional tensor is absent."""
    return tensors.stride(name, place) if optional else V[name].method("stride", place)


def ones(axes: Sequence[str], one: int = 1) -> tuple[Term, ...]:
    """The integer `one` for each axis."""
    return tuple((expr((one,)) * N_BATCH).each if axis == BATCH else one for axis in axes)


def places(axes: tuple[str, ...], wanted: list[str]) -> list[Term]:
    """The dimensions of `wanted` axes in a tensor with `axes`; those after `...` count from the end."""
    many = axes.index(BATCH) if BATCH in axes else len(axes)
    every = (many, expr(many) + N_BATCH) if many else (N_BATCH,)
    found = {axis: at if at < many else at - len(axes) for at, axis in enumerate(axes)}
    return [runtime.range(*every).each if axis == BATCH else found[axis] for axis in wanted]


def with_dims(value: Expr, axes: Sequence[str], own: Sequence[str]) -> Expr:
    """A tensor with a dimension of length 1 for each of `axes` that is not in `own`."""
    every = slice(None)
    return value[tuple(ast.Constant(...) if axis == BATCH else every if axis in own else None for axis in axes)]


def regrouped(value: Expr, shape: tuple[AxisTerm, ...]) -> Expr:
    """A tensor with groups of axes flattened, as its dimensions have them."""
    for end, term in zip(range(-1, -len(shape) - 1, -1), reversed(shape), strict=True):
        if (count := len(term.names)) > 1:
            value = value.method("flatten", end - count + 1, end)
    return value


def spread(value: Expr, axes: tuple[str, ...], wanted: list[str]) -> Expr:
    """A tensor with its axes in another order, and expanded along those that it lacks."""
    present = [axis for axis in wanted if axis in axes]
    value = value if list(axes) == present else value.method("permute", *places(axes, present))
    if present == wanted:
        return value
    sizes = (own for axis in wanted for own in (lengths([axis]) if axis in axes else ones([axis])))
    return value.method("reshape", *sizes).method("expand", *lengths(wanted))
