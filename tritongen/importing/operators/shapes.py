"""Views (groups of axes, permutations, fixed positions), and concatenation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..axes import Dim
from ..building import Building, hint, known
from ..expressions import Apply, Expr, Number, bare, size, text
from ..formulas import made, of_symbol, replaced, symbol_of, symbols_of
from ..refusals import Refusal
from ..table import operator
from ..values import Symbolic, Value


@operator("view", "reshape", "_unsafe_view", "_reshape_alias")
def _view(t: Building, x: Value, stated: Any, *_: Any) -> Value:
    if not isinstance(stated, list):
        raise Refusal("a view of the bits as another dtype")
    pairs = [(size, isinstance(one, int) and one != -1) for size, one in zip(t.sizes, stated, strict=True)]
    return x.of(dims=t.axes.regroup(x.dims, pairs))


operator("permute")(lambda t, x, dims: x.of(dims=tuple(x.dims[x.place(one)] for one in dims)))


@operator("transpose")
def _transpose(t: Building, x: Value, one: int, other: int) -> Value:
    dims = list(x.dims)
    if dims:
        a, b = x.place(one), x.place(other)
        dims[a], dims[b] = dims[b], dims[a]
    return x.of(dims=tuple(dims))


@operator("unsqueeze")
def _unsqueeze(t: Building, x: Value, dim: int) -> Value:
    place = dim % (x.rank + 1)
    return x.of(dims=(*x.dims[:place], (), *x.dims[place:]))


@operator("squeeze")
def _squeeze(t: Building, x: Value, dim: Any = None) -> Value:
    places = range(x.rank) if dim is None else [x.place(one) for one in (dim if isinstance(dim, list) else [dim])]
    return x.of(dims=tuple(one for place, one in enumerate(x.dims) if one or place not in places))


@operator("expand")
def _expand(t: Building, x: Value, size: list[Any], **__: Any) -> Value:
    dims: list[Dim] = [()] * (len(size) - x.rank) + list(x.dims)
    for place, (length, stated) in enumerate(zip(t.sizes, size, strict=True)):
        if not dims[place] and length > 1:
            dims[place] = t.fresh(stated)
            if isinstance(stated, int):
                t.axes.wish(dims[place], "R", 3)
    return x.of(dims=tuple(dims))


@operator("broadcast_tensors")
def _broadcast_tensors(t: Building, tensors: list[Value]) -> list[Value]:
    made, dims = t.broadcast(*tensors)
    return [one.of(dims=dims) for one in made]


@operator("repeat")
def _repeat(t: Building, x: Value, repeats: list[Any]) -> Value:
    dims: list[Dim] = [()] * (len(repeats) - x.rank) + list(x.dims)
    return x.of(dims=tuple(t.fresh(count) + dim for count, dim in zip(repeats, dims, strict=True)))


@operator("chunk", "split", "split_with_sizes")
def _split(t: Building, x: Value, sizes: Any, dim: int = 0) -> list[Value]:
    place = x.place(dim)
    found = [one.shape[place] for one in t.node.meta["val"]]
    lengths = list(map(hint, found))
    if len(lengths) == 1:
        return [x]
    if len(set(lengths)) == 1:
        is_counted = t.packet == "chunk" or not isinstance(sizes, int)
        outer, inner = t.axes.divide(x.dims[place], len(lengths), outer_fixed=True, inner_fixed=not is_counted)
        t.axes.wish(outer, "P Q", 2)
        divided = x.with_dim(place, outer, inner)
        return [t.take(divided, place, one, ()) for one in range(len(lengths))]
    found = sizes if isinstance(sizes, list) else [t.length(one) for one in found]
    starts = [sum(lengths[:one]) for one in range(len(lengths))]
    full, axes = t.axes.length(x.dims[place]), [t.fresh(size) for size in found]
    chunks = zip(starts, lengths, axes, strict=True)
    return [x if one == full else _positions(t, x, place, axis, Number(start), 1) for start, one, axis in chunks]


def _positions(t: Building, x: Value, place: int, axis: Dim, start: Any, step: int) -> Value:
    return t.take(x, place, t.at(t.index(axis) * step + start, axis), (axis,))


@operator("unbind")
def _unbind(t: Building, x: Value, dim: int = 0) -> list[Value]:
    place = x.place(dim)
    t.axes.fix(x.dims[place])
    t.note_loop(x.dims[place])
    t.axes.wish(x.dims[place], "P Q", 3)
    return [t.take(x, place, one, ()) for one in range(t.axes.length(x.dims[place]))]


@operator("select")
def _select(t: Building, x: Value, dim: int, index: Any) -> Value:
    place = x.place(dim)
    if isinstance(index, Symbolic):
        return t.take(x, place, t.at(t.number(index)), ())
    if index >= 0:
        return t.take(x, place, index, ())
    return t.take(x, place, t.at(size(x.dims[place]) + index), ())


@operator("slice")
def _slice(t: Building, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    place = x.place(dim)
    sliced, entire = (_formula(node, place) for node in (t.node, t.node.args[0]))
    if sliced == entire and step == 1:
        return x
    length, full = t.sizes[place], t.axes.length(x.dims[place])
    first = 0 if start is None else start
    offset, formula = (first.hint, first.known) if isinstance(first, Symbolic) else (first, first)
    if offset < 0:
        offset, formula = offset + full, made("add", formula, entire)
    if sliced == 1:
        return t.take(x, place, int(offset), ((),))
    if not length:
        return x.with_dim(place, t.fresh(0))
    if step > 1 and full % step == 0 and length * step == full:
        outer, inner = t.axes.divide(x.dims[place], full // step, inner_fixed=True)
        t.axes.wish(inner, "P Q", 2)
        return t.take(x.with_dim(place, outer, inner), place + 1, int(offset), ())
    count = full // length
    if step == 1 and _is_chunk(sliced, entire, 1, count) and _is_chunk(formula, entire, int(offset) // length, count):
        outer, inner = t.axes.divide(x.dims[place], count, outer_fixed=True, inner_fixed=isinstance(sliced, int))
        t.axes.wish(outer, "P Q", 2)
        return t.take(x.with_dim(place, outer, inner), place, int(offset) // length, ())
    at = t.number(first) if isinstance(first, Symbolic) else Number(int(offset))
    return _positions(t, x, place, t.fresh(t.result_length(place)), at, step)


def _formula(node: Any, place: int) -> Any:
    """The length of a dimension of a node: an integer, or a formula."""
    return known(node.meta["val"].shape[place])


def _is_chunk(chunk: Any, full: Any, number: int, count: int) -> bool:
    """Whether a length is `number` of `count` equal chunks of `full`, in any call where `count` divides `full`."""
    left = made("sub", made("mul", chunk, count), made("mul", full, number))
    return bool(replaced(left, {one: made("mul", count, of_symbol(one)) for one in symbols_of(full)}) == 0)


@operator("cat")
def _cat(t: Building, tensors: list[Value], dim: int = 0) -> Value:
    place = tensors[0].place(dim)
    lengths = [_formula(node, place) for node in t.node.args[0]]
    tensors = [one for one, length in zip(tensors, lengths, strict=True) if length != 0]
    if len(tensors) == 1:
        return tensors[0]
    atoms = {t.axes.atoms(one.dims[place]) for one in tensors}
    formulas = set(lengths) - {0}
    free = all(map(symbol_of, formulas))  # Lengths of arguments, which may be the same.
    is_uniform = len({t.axes.length(one) for one in atoms}) == 1 and (free or len(formulas) == 1)
    if len(atoms) == 1 or is_uniform:
        return _side_by_side(t, tensors, place)
    return _one_behind_the_other(t, tensors, place)


def _side_by_side(t: Building, tensors: list[Value], place: int) -> Value:
    """Stacks tensors along a new axis, which is a group with their dimension at `place`."""
    axis = t.fresh(len(tensors))
    t.axes.wish(axis, "P Q", 3)
    tensors, dims = t.broadcast(*tensors)
    made = tensors[-1]
    position = t.at(t.index(axis))
    if any(one.expr is not tensors[0].expr for one in tensors):
        for number in reversed(range(len(tensors) - 1)):
            condition = t.compared("eq", position, number)
            made = t.apply("where", condition, tensors[number], made)
    return made.of(dims=(*dims[:place], axis + dims[place], *dims[place + 1 :]))


def _one_behind_the_other(t: Building, tensors: list[Value], place: int) -> Value:
    """Concatenates tensors along a new axis whose length is the sum of theirs."""
    axis = t.fresh(t.result_length(place))
    t.axes.wish(axis, "L P", 3)
    position = t.at(t.index(axis), axis, *[()] * (tensors[0].rank - place - 1))
    starts: list[Expr] = [Number(0)]
    for one in tensors:
        starts.append(starts[-1] + size(one.dims[place]))
    pieces = []
    for one, start in zip(tensors, starts, strict=False):
        pieces.append(t.take(one, place, t.at(position.expr - start, axis), (axis,)))
    pieces, dims = t.broadcast(*pieces)
    made = pieces[-1]
    for piece, end in reversed([*zip(pieces[:-1], starts[1:], strict=False)]):
        made = t.apply("where", t.compared("lt", position, t.at(end)), piece, made)
    return made.of(dims=dims)


@operator("flip")
def _flip(t: Building, x: Value, dims: list[int]) -> Value:
    for one in dims:
        place = x.place(one)
        axis = x.dims[place]
        flipped = _moved(t, x, place, size(axis) - 1 - t.index(axis))
        x = _reversed_scan(t, x, flipped) or flipped
    return x


def _reversed_scan(t: Building, x: Value, flipped: Value) -> Value | None:
    """A scan with `reverse=True`, if `flipped` completes one written as flip, scan and flip; None otherwise."""
    scan, move = bare(x.expr), bare(flipped.expr)
    if not (isinstance(scan, Apply) and scan.function in ("cumsum", "cumprod") and isinstance(move, Apply)):
        return None
    inner = bare(scan.args[0])
    if not (isinstance(inner, Apply) and inner.function == "take"):
        return None
    written = {
        text(replace(one, args=(Number(0), *one.args[1:])), lambda over, _: [*map(str, t.axes.atoms(over.dim))], {})
        for one in (inner, move)
    }
    options = (("reverse", Number(True)),)
    return x.of(Apply(scan.function, (inner.args[0], *scan.args[1:]), options)) if len(written) == 1 else None


@operator("roll")
def _roll(t: Building, x: Value, shifts: Any, dims: Any = ()) -> Value:
    shifts, dims = ([one] if not isinstance(one, list) else one for one in (shifts, dims))
    if not dims:
        raise Refusal("roll without dims, which flattens", "name the dimensions")
    for shift, one in zip(shifts, dims, strict=True):
        place = x.place(one)
        by = shift if isinstance(shift, int) and shift <= 0 else t.number(shift)
        x = _moved(t, x, place, (t.index(x.dims[place]) - by) % size(x.dims[place]))
    return x


def _moved(t: Building, x: Value, place: int, at: Any) -> Value:
    axis = x.dims[place]
    return t.take(x, place, t.at(at, axis), (axis,))
