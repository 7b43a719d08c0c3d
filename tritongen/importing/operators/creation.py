"""Tensors created from constants and positions."""

from __future__ import annotations

from typing import Any

import torch

from ..building import Building
from ..expressions import Apply, Expr, Number, Word
from ..refusals import Refusal
from ..table import operator
from ..values import Symbolic, Value, dtype_name


@operator(*"""zeros ones full empty new_zeros new_ones new_full new_empty zeros_like ones_like full_like empty_like
          empty_strided empty_permuted scalar_tensor""".split())  # fmt: skip
def _filled(t: Building, *args: Any, **__: Any) -> Value:
    """A constant tensor; uninitialised memory is 0, since the program has to write it before it reads it."""
    size = next((one for one in args if isinstance(one, list)), [])
    dims = args[0].dims if t.packet.endswith("_like") else tuple(map(t.fresh, size))
    value = args[-1] if "full" in t.packet or t.packet == "scalar_tensor" else int("ones" in t.packet)
    return Value(_number(t, value), dims, t.dtype, t.dtype)


def _number(t: Building, value: Any) -> Expr:
    """A scalar as a bool, float or integer, as the tensor's dtype is."""
    if t.dtype == torch.bool:
        return Number(bool(value))
    if t.dtype.is_floating_point and isinstance(value, int):
        return Number(float(value))
    return t.number(value)


@operator("fill")
def _fill(t: Building, x: Value, value: Any) -> Value:
    return Value(value.expr if isinstance(value, Value) else _number(t, value), x.dims, t.dtype, t.dtype)


@operator("arange")
def _arange(t: Building, *args: Any, **__: Any) -> Value:
    given = [one for one in args if isinstance(one, int | float | Symbolic)]
    start = given[0] if len(given) > 1 else 0
    step = given[2] if len(given) > 2 else 1
    axis = t.fresh(t.result_length(0))
    expr = t.index(axis)
    if step != 1:
        expr = Apply("mul", (expr, t.number(step)))
    if isinstance(start, Symbolic) or start:
        expr += start if isinstance(start, int) and start < 0 else t.number(start)
    if t.dtype.is_floating_point:
        expr = Apply("cast", (expr, Word(dtype_name(t.dtype))))
    return Value(expr, (axis,), t.dtype, t.dtype)


@operator("tril", "triu")
def _triangle(t: Building, x: Value, diagonal: Any = 0) -> Value:
    rows, columns = x.dims[-2:]
    t.axes.wish(rows, "M", 3)
    t.axes.wish(columns, "N", 3)
    row, column = (t.at(t.index(dim), dim) for dim in (rows, columns))
    if isinstance(diagonal, Symbolic) or diagonal:
        row = row.of(row.expr + (diagonal if isinstance(diagonal, int) and diagonal < 0 else t.number(diagonal)))
    inside = t.compared("le" if t.packet == "tril" else "ge", column.of(dims=()), row.of(dims=()))
    inside = inside.of(dims=(*((),) * (x.rank - 2), rows, columns))
    if isinstance(x.expr, Number) and x.expr.value is True:
        return inside
    return t.apply("where", inside, x, False if x.dtype == torch.bool else 0)


@operator("eye")
def _eye(t: Building, rows: Any, columns: Any = None, **__: Any) -> Value:
    dims = t.fresh(rows), t.fresh(rows if columns is None else columns)
    one, other = (t.at(t.index(dim)) for dim in dims)
    made = t.compared("eq", one, other)
    made = made if t.dtype == torch.bool else t.apply("where", made, 1.0, 0.0)
    return Value(made.expr, dims, t.dtype, t.dtype)


@operator("rand", "randn", "rand_like", "randn_like", "bernoulli", "randint", "randperm", "multinomial", "normal",
          "uniform", "randint_like", "exponential", "poisson")  # fmt: skip
def _no_random(t: Building, *_: Any, **__: Any) -> Value:
    raise Refusal(f"`{t.packet}`: the language has no random numbers", "draw them outside, and make them an argument")
