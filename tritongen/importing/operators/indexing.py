"""Indexing: elements at computed positions."""

from __future__ import annotations

from typing import Any

from ..axes import Dim
from ..building import Building
from ..expressions import Apply, Over, bare
from ..refusals import Refusal
from ..table import operator
from ..values import Value


@operator("embedding")
def _embedding(t: Building, weight: Value, ids: Value, padding_idx: int = -1, *_: Any, **__: Any) -> Value:
    t.axes.wish(weight.dims[0], "V U", 2)
    t.axes.wish(weight.dims[1], "E D", 3)
    found = _at(t, weight, [0], [ids])
    if padding_idx < 0:
        return found
    is_padding = t.apply("eq", ids, padding_idx).of(dims=(*ids.dims, ()))  # That row has no gradient.
    return t.apply("where", is_padding, found.of(Apply("detach", (found.expr,))), found)


@operator("index_select")
def _index_select(t: Building, x: Value, dim: int, index: Value) -> Value:
    _check_rank(t, x)
    place = x.place(dim)
    t.axes.wish(x.dims[place], "V", 4)
    return _at(t, x, [place], [index])


@operator("gather", "take_along_dim")
def _gather(t: Building, x: Value, *args: Any, **__: Any) -> Value:
    dim, index = args[:2] if t.packet == "gather" else (args[1] if len(args) > 1 else None, args[0])
    if dim is None:
        raise Refusal("take_along_dim without a dim, which flattens", "name the dimension")
    _check_rank(t, x)
    place = x.place(dim)
    for other, (own, its) in enumerate(zip(x.dims, index.dims, strict=True)):
        if other != place and own and its and t.axes.length(own) != t.axes.length(its):
            raise Refusal("an index that is shorter than what it is of", "cut what it is of to its length")
    t.axes.wish(x.dims[place], "V N", 4)
    rest = x.with_dim(place, ())
    (rest, index), dims = t.aligned([(rest, range(x.rank)), (index, range(x.rank))])
    made = t.take(rest.with_dim(place, x.dims[place]), place, index, ((),))
    return made.of(dims=tuple(dims.get(one, ()) for one in range(x.rank)))


def _check_rank(t: Building, x: Value) -> None:
    if not x.rank:
        raise Refusal(f"`{t.packet}` of a tensor without dimensions", "it has one element, at no position")


@operator("index", "index.Tensor", "_unsafe_index")
def _index(t: Building, x: Value, indices: list[Value | None]) -> Value:
    places = [place for place, one in enumerate(indices) if one is not None]
    return _at(t, x, places, [one for one in indices if one is not None])


def _at(t: Building, x: Value, places: list[int], given: list[Value]) -> Value:
    """x at indices along some dimensions, which the dimensions of the indices replace (first, if not adjacent)."""
    rank = max(one.rank for one in given)
    rest = x.of(dims=tuple(() if place in places else dim for place, dim in enumerate(x.dims)))
    labels = [[("index", place) for place in range(rank - one.rank, rank)] for one in given]
    (rest, *given), found = t.aligned([(rest, range(x.rank)), *zip(given, labels, strict=True)])
    made = rest.of(dims=tuple(x.dims[place] if place in places else dim for place, dim in enumerate(rest.dims)))
    for place, index in zip(places, given, strict=True):
        made = _taken(t, made, place, index)
    dims = tuple(found.get(("index", place), ()) for place in range(rank))
    adjacent = places == list(range(places[0], places[-1] + 1))
    others = [dim for place, dim in enumerate(rest.dims) if place not in places]
    before = places[0] if adjacent else 0
    return made.of(dims=(*others[:before], *dims, *others[before:]))


def _taken(t: Building, x: Value, place: int, index: Value) -> Value:
    """x at an index along a dimension, which is dropped; an index of all positions in order becomes the axis itself."""
    at, dim = bare(index.expr), x.dims[place]
    if isinstance(at, Apply) and at.function == "index" and isinstance(at.args[0], Over):
        own: Dim = at.args[0].dim
        if t.axes.length(own) == t.axes.length(dim) and not t.axes.is_joined(own):
            t.axes.join(own, dim)
            return x
    t.axes.wish(dim, "V", 4)
    return t.take(x, place, index, ((),))


@operator("diagonal")
def _diagonal(t: Building, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    one, other = x.place(dim1), x.place(dim2)
    if offset or x.rank < 2:
        raise Refusal("a diagonal beside the main one")
    axis = x.dims[one]
    index = t.at(t.index(axis), axis)
    if t.axes.length(axis) != t.axes.length(x.dims[other]):
        raise Refusal("a diagonal of a matrix that is not square")
    t.axes.fix(axis + x.dims[other])
    taken = t.take(x, other, index, ((),))
    return taken.of(dims=(*(dim for place, dim in enumerate(x.dims) if place not in (one, other)), axis))


@operator("one_hot")
def _one_hot(t: Building, x: Value, classes: Any) -> Value:
    axis = t.fresh(classes)
    t.axes.wish(axis, "E C", 3)
    position = t.at(t.index(axis), axis)
    return t.apply("where", t.compared("eq", x.of(dims=(*x.dims, ())), position), 1, 0)
