"""Norms, in the formulas that people write for them."""

from __future__ import annotations

from typing import Any

from ..axes import Dim
from ..building import Building
from ..refusals import Refusal
from ..table import operator
from ..values import Value
from ..writes import WRITES_TO_BUFFERS
from .pointwise import squared


def normalised(t: Building, x: Value, over: list[Dim], eps: Any) -> Value:
    """(x - mu) * rstd over some axes."""
    mu = t.line("mu", t.reduced("mean", x, over, x.dims))
    var = t.reduced("var", x, over, x.dims, correction=0)
    rstd = t.line("rstd", t.apply("rsqrt", t.apply("add", var, eps)))
    return t.apply("mul", t.apply("sub", x, mu), rstd)


def spatial(t: Building, dims: tuple[Dim, ...]) -> None:
    """Wishes names for the dimensions after the channels."""
    for dim, name in zip(dims, {1: "L", 2: "H W", 3: "D H W"}.get(len(dims), "").split(), strict=False):
        t.axes.wish(dim, name, 3)


def affine(t: Building, x: Value, weight: Value | None, bias: Value | None, rank: int, place: int | None) -> Value:
    """x * weight + bias, which have the last dimensions or, if `place` is given, that one dimension."""
    for function, one in (("mul", weight), ("add", bias)):
        if one is not None:
            dims = one.dims if place is None else (one.dims[0], *[()] * (rank - place - 1))
            x = t.apply(function, x, one.of(dims=dims))
    return x


@operator("layer_norm")
def _layer_norm(
    t: Building, x: Value, shape: list[Any], weight: Value | None = None, bias: Value | None = None, eps: Any = 1e-5,
    *_: Any,
) -> Value:  # fmt: skip
    return affine(t, normalised(t, x, list(x.dims[-len(shape) :]), eps), weight, bias, x.rank, None)


@operator("rms_norm")
def _rms_norm(t: Building, x: Value, shape: list[Any], weight: Value | None = None, eps: Any = 0) -> Value:
    over = list(x.dims[-len(shape) :])
    mean = t.reduced("mean", squared(t, x), over, x.dims)
    rstd = t.line("rstd", t.apply("rsqrt", t.apply("add", mean, eps)))
    return affine(t, t.apply("mul", x, rstd), weight, None, x.rank, None)


@operator("native_group_norm")
def _group_norm(
    t: Building, x: Value, weight: Value | None, bias: Value | None, n: Any, c: Any, hxw: Any, groups: int, eps: Any
) -> tuple[Value, None, None]:
    outer, inner = t.axes.divide(x.dims[1], groups, outer_fixed=True)
    t.axes.wish(outer, "G", 2)
    t.axes.wish(inner, "C", 3)
    spatial(t, x.dims[2:])
    return affine(t, normalised(t, x, [inner, *x.dims[2:]], eps), weight, bias, x.rank, 1), None, None


@operator("batch_norm", "instance_norm")
def _batch_norm(
    t: Building, x: Value, weight: Value | None, bias: Value | None, mean: Value | None, var: Value | None,
    training: bool, momentum: Any, eps: Any, *_: Any,
) -> Value:  # fmt: skip
    t.axes.wish(x.dims[1], "C", 2)
    spatial(t, x.dims[2:])
    if training or mean is None or var is None:
        if mean is not None:
            raise Refusal(*WRITES_TO_BUFFERS)
        over = [x.dims[0], *x.dims[2:]] if t.packet == "batch_norm" else list(x.dims[2:])
        y = normalised(t, x, over, eps)
    else:
        column = [()] * (x.rank - 2)
        mean, var = (one.of(dims=(one.dims[0], *column)) for one in (mean, var))
        rstd = t.apply("rsqrt", t.apply("add", var, eps))
        y = t.apply("mul", t.apply("sub", x, mean), rstd)
    return affine(t, y, weight, bias, x.rank, 1)
