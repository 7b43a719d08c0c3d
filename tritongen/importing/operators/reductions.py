"""Reductions and scans."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from ..building import Building
from ..expressions import Apply, Number
from ..table import operator
from ..values import Value

_SIMPLE = {"amax": "max", "amin": "min"}


@operator("sum", "mean", "amax", "amin", "any", "all", "prod", "count_nonzero", "argmax", "argmin", "logsumexp")
def _reduction(t: Building, x: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return t.reduce(_SIMPLE.get(t.packet, t.packet), x, dim, keepdim)


@operator("max", "max.dim", "min", "min.dim")
def _extremum(t: Building, x: Value, dim: Any = None, keepdim: bool = False) -> Any:
    return t.reduce(t.packet, x, dim, keepdim) if dim is None else extremum(t, t.packet, x, dim, keepdim)


def extremum(t: Building, kind: str, x: Value, dim: int, keepdim: bool) -> tuple[Value, Value]:
    """The maximum or minimum along a dimension, and its position."""
    value, at = (t.reduce(one, x, dim, keepdim) for one in (kind, f"arg{kind}"))
    return value, replace(at, dtype=torch.int64, natural=torch.int64)


@operator("var", "std", "var.correction", "std.correction", "var_mean.correction", "std_mean.correction")
def _var(
    t: Building, x: Value, dim: Any = None, unbiased: Any = True, keepdim: bool = False, correction: Any = None
) -> Any:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased else 0
    options = {} if correction == 1 else {"correction": correction}
    found = t.reduce(t.packet.removesuffix("_mean"), x, dim, keepdim, **options)
    return (found, t.reduce("mean", x, dim, keepdim)) if t.packet.endswith("_mean") else found


@operator("softmax", "_softmax", "log_softmax", "_log_softmax")
def _softmax(t: Building, x: Value, dim: int, *_: Any, **__: Any) -> Value:
    function = t.packet.lstrip("_")
    expanded = Value(x.expr, x.dims, t.dtype, t.natural([x], t.dtype))
    return t.along(function, expanded, x.place(dim))


operator("cumsum", "cumprod")(lambda t, x, dim, **_: t.along(t.packet, x, x.place(dim), may_be_group=False))


@operator("logcumsumexp")
def _logcumsumexp(t: Building, x: Value, dim: int) -> Value:
    """A logsumexp over all positions up to each one, since a running sum of exponentials has no common maximum."""
    place = x.place(dim)
    ends = t.over(t.packet, x, place, may_be_group=False).dim
    terms = t.again(ends)
    earlier = Apply("le", (t.index(terms), t.index(ends)))
    taken = t.take(x, place, t.at(t.index(terms), terms), [terms])
    masked = Apply("where", (earlier, taken.expr, Number(float("-inf"))))
    return t.reduced("logsumexp", taken.of(masked), [terms], x.dims)


@operator("linalg_vector_norm")
def _norm(t: Building, x: Value, p: Any = 2, dim: Any = None, keepdim: bool = False, *_: Any, **__: Any) -> Value:
    if p == 0:
        return t.reduce("sum", t.apply("where", t.compared("ne", x, 0), 1.0, 0.0), dim, keepdim)
    if math.isinf(p):
        return t.reduce("max" if p > 0 else "min", t.apply("abs", x), dim, keepdim)
    return t.reduce("norm", x, dim, keepdim, **({} if p == 2 else {"p": p}))


operator("dist")(lambda t, x, other, p=2: _norm(t, t.apply("sub", x, other), p))


@operator("cdist", "_cdist_forward")
def _cdist(t: Building, x: Value, other: Value, p: Any = 2, *_: Any, **__: Any) -> Value:
    rows = x.of(dims=(*x.dims[:-1], (), x.dims[-1]))
    columns = other.of(dims=(*other.dims[:-2], (), *other.dims[-2:]))
    return _norm(t, t.apply("sub", rows, columns), p, -1)
