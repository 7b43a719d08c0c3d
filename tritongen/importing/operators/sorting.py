"""Sorting, and sums at computed positions."""

from __future__ import annotations

from typing import Any

from ..axes import Dim, Dims
from ..building import Building
from ..expressions import Apply, Number, Over, bare
from ..refusals import Refusal
from ..table import operator
from ..values import Value
from .reductions import extremum


@operator("sort", "sort.stable")
def _sort(t: Building, x: Value, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    over = t.over(t.packet, x, x.place(dim), may_be_group=False)
    options = (("descending", Number(True)),) if descending else ()
    return _both(t, x, x.dims, "sort", (over,), options)


@operator("topk")
def _topk(t: Building, x: Value, k: Any, dim: int = -1, largest: bool = True, *_: Any) -> tuple[Value, Value]:
    place = x.place(dim)
    over = t.over(t.packet, x, place, may_be_group=False)
    first = t.fresh(k)
    if not first:
        return extremum(t, "max" if largest else "min", x, dim, True)
    t.axes.note((*first, *t.axes.atoms(over.dim)))
    t.axes.wish(first, "K", 2)
    options = () if largest else (("largest", Number(False)),)
    return _both(t, x, x.with_dim(place, first).dims, "topk", (Over(first), over), options)


def _both(
    t: Building, x: Value, dims: Dims, function: str, over: tuple[Over, ...], options: Any
) -> tuple[Value, Value]:
    """The result of `sort` or `topk`, and its positions."""
    at = t.at(Apply(f"arg{function}", (x.expr, *over), options), *dims)
    return Value(Apply(function, (x.expr, *over), options), dims, x.dtype, x.natural), at


@operator("index_add")
def _index_add(t: Building, x: Value, dim: int, index: Value, source: Value, alpha: Any = 1) -> Value:
    source = source if t.is_one(alpha) else t.apply("mul", source, alpha)
    return _summed(t, x, x.place(dim), source, index.of(dims=index.dims or ((),)), ["index"])


@operator("scatter_add", "scatter_reduce")
def _scatter_add(
    t: Building, x: Value, dim: int, index: Value, source: Value, reduce: str = "sum", include_self: bool = True
) -> Value:
    if reduce != "sum" or not include_self:
        raise Refusal(f"scatter_reduce by {reduce}" if include_self else "scatter_reduce without the tensor itself")
    place = x.place(dim)
    _check_lengths(t, index, source, None)
    _check_lengths(t, index, x, place)
    return _summed(t, x, place, source, index, _labels(x, place))


@operator("scatter.value")
def _scatter_value(t: Building, x: Value, dim: int, index: Value, value: Any) -> Value:
    """`value` at positions that any index has, else `x`."""
    place = x.place(dim)
    _check_lengths(t, index, x, place)
    (x, index), dims = t.aligned([(x, range(x.rank)), (index, _labels(x, place))])
    condition = t.compared("eq", index.of(dims=()), Value(t.index(dims.get(place, ())), (), index.dtype, index.dtype))
    over = t.axes.atoms(dims.get("index", ()))
    hit = condition if not over else condition.of(Apply("any", (condition.expr, Over(over))))
    made = t.apply("where", hit, value, x.of(dims=()))
    return made.of(dims=tuple(dims.get(one, ()) for one in range(x.rank)))


def _labels(x: Value, place: int) -> list[Any]:
    """Labels for a tensor with the dimensions of `x`, except that the one at `place` is the index's."""
    return ["index" if one == place else one for one in range(x.rank)]


def _check_lengths(t: Building, index: Value, x: Value, but: int | None) -> None:
    for place, (own, its) in enumerate(zip(x.dims, index.dims, strict=True)):
        if place != but and t.axes.length(own) != t.axes.length(its):
            raise Refusal(f"`{t.packet}` by an index that is shorter than a tensor", "cut the tensor to its length")


def _summed(t: Building, x: Value, place: int, source: Value, index: Value, labels: list[Any]) -> Value:
    """`x` with the elements of `source` added at positions `index` along dimension `place`."""
    if isinstance(bare(x.expr), Number):  # A constant has no axes of its own.
        x = x.of(dims=tuple(dim if number == place else () for number, dim in enumerate(x.dims)))
    (x, source, index), dims = t.aligned([(x, range(x.rank)), (source, _labels(x, place)), (index, labels)])
    into: Dim = t.axes.atoms(dims.get(place, ()))
    over = t.axes.atoms(dims.get("index", ()))
    if not into or not over or not t.axes_of(index.expr).issuperset(over):
        raise Refusal(f"`{t.packet}` along a dimension of length 1, or by an index that is one position")
    made = Value(
        Apply("scatter_sum", (source.expr, index.expr, Over(into), Over(over))),
        (),
        t.dtype,
        t.natural([source], t.dtype),
    )
    if not (isinstance(number := bare(x.expr), Number) and not number.value):
        made = t.apply("add", x.of(dims=()), made)
    return made.of(dims=tuple(dims.get(one, ()) for one in range(x.rank)))
