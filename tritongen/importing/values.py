"""Values of the language, which nodes of a trace are translated to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from .axes import Dim, Dims
from .expressions import Expr


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A tensor: its expression, and the axes of each of its dimensions.

    `dtype` is the trace's, `natural` the one that the language infers for the expression: casts among floats are left
    out, since kernels compute in float32 and round only results.
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
        """The value with the dimensions `dims` in place of the one at `place`."""
        return self.of(dims=(*self.dims[:place], *dims, *self.dims[place + 1 :]))


@dataclass(frozen=True, eq=False, slots=True)
class Symbolic:
    """A scalar computed from lengths: its value in the trace, its formula as written, and by what is known now."""

    hint: float | int
    formula: Any
    known: Any  # `formula` with known relations of lengths substituted


Argument = Any  # of an operator: Value, Symbolic, a Python scalar, a dtype, None, or a list of these


class GivenFloat(float):
    """A float that the program passes to an operator, and that the source may have a name for."""


class GivenInt(int):
    """An integer that the program passes to an operator."""


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_class(dtype: torch.dtype) -> str:
    if dtype.is_floating_point:
        return "float8" if dtype.itemsize == 1 else "float"
    return dtype_name(dtype)
