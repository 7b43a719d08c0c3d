"""What a node of a trace is in the language."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from .axes import Dim, Dims
from .expressions import Expr


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A tensor: its expression, and which axes each of its dimensions is.

    `dtype` is the one of the trace, `natural` the one that the language gives the expression: casts among floats are
    left out, since kernels compute in float32 and round what they store.
    """

    expr: Expr
    dims: Dims
    dtype: torch.dtype
    natural: torch.dtype

    @property
    def rank(self) -> int:
        return len(self.dims)

    def of(self, expr: Expr | None = None, dims: Dims | None = None) -> Value:
        return replace(self, expr=self.expr if expr is None else expr, dims=self.dims if dims is None else dims)

    def place(self, dim: int) -> int:
        return dim % len(self.dims) if self.dims else 0

    def with_dim(self, place: int, *dims: Dim) -> Value:
        """With others in the place of a dimension."""
        return self.of(dims=(*self.dims[:place], *dims, *self.dims[place + 1 :]))


@dataclass(frozen=True, eq=False, slots=True)
class Symbolic:
    """A number that lengths decide: its value in the trace, and its formula, as it was written and now."""

    hint: float | int
    formula: Any
    known: Any  # with lengths that turned out to be equal as one symbol


Argument = Any  # of an operator: Value, Symbolic, a number, a dtype, None, or a list of them


class GivenFloat(float):
    """A number that the program gives an operator, and that the source may have a name for."""


class GivenInt(int):
    """An integer that the program gives an operator."""


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_class(dtype: torch.dtype) -> str:
    if dtype.is_floating_point:
        return "float8" if dtype.itemsize == 1 else "float"
    return dtype_name(dtype)
