"""Convolutions, pooling and padding: windows along dimensions, and positions outside of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from operator import mul
from typing import Any

import torch

from ..axes import Dim
from ..building import Building, known
from ..expressions import Apply, Expr, Number
from ..expressions import size as length
from ..refusals import Refusal
from ..table import operator
from ..values import Symbolic, Value
from .contractions import product
from .norms import spatial

_PLACES, _INSIDE = "P Q", "R U V"
Pad = int | Expr  # padded elements before a dimension


def _listed(given: Any, rank: int) -> list[int]:
    """An integer for each dimension. Raises `Refusal` for symbolic ones."""
    found = list(given) if isinstance(given, list | tuple) else [given]
    if not all(isinstance(one, int) for one in found):
        raise Refusal("windows whose steps follow from lengths", "give their sizes and steps as numbers")
    return [int(one) for one in (found * rank if len(found) == 1 else found)]


def _windows(
    t: Building, x: Value, inside: Sequence[Dim], steps: Sequence[int], pads: Sequence[Pad], gaps: Sequence[int],
    fill: float | None,
) -> Value:  # fmt: skip
    """Windows along the last dimensions; each becomes two dimensions: output positions, and positions in a window."""
    first = x.rank - len(inside)
    spatial(t, x.dims[first:])
    for number, (window, step, pad, gap) in enumerate(zip(inside, steps, pads, gaps, strict=True)):
        length = t.result_length(number - len(inside))
        if isinstance(length, int):  # The trace knows it only for this length of the input.
            t.axes.fix(x.dims[first + 2 * number])
        x = _window(t, x, first + 2 * number, (t.fresh(length), window), (step, pad, gap), fill)
    return x


def _window(
    t: Building, x: Value, place: int, dims: tuple[Dim, Dim], geometry: tuple[int, Pad, int], fill: float | None
) -> Value:
    (outer, window), (step, pad, gap) = dims, geometry
    t.axes.wish(outer, _PLACES, 3)
    t.axes.wish(window, _INSIDE, 3)
    if not x.dims[place]:
        raise Refusal("a window along a dimension of length 1")
    terms = [by * t.index(dim) for dim, by in ((outer, step), (window, gap)) if dim]
    return t.take(x, place, t.at(sum(terms, Number(0)) - pad), (outer, window), fill)


def _side_by_side(t: Building, x: Value, sizes: Sequence[int]) -> tuple[list[Dim], list[Dim]]:
    """Unflattens the last dimensions to adjacent windows of `sizes`: the axes of windows, and those inside of them."""
    outside, inside = [], []
    for dim, size in zip(x.dims[x.rank - len(sizes) :], sizes, strict=True):
        length = t.axes.length(dim)
        outer, inner = t.axes.divide(dim, length // size, inner_fixed=True)
        t.axes.wish(outer, f"{_PLACES} S", 3)
        t.axes.wish(inner, _INSIDE, 3)
        outside.append(outer)
        inside.append(inner)
    return outside, inside


def _fit(t: Building, x: Value, sizes: Sequence[int], steps: Sequence[int], pads: Sequence[Pad]) -> bool:
    """Whether windows tile their dimensions, without overlap and padding: they are groups of axes."""
    lengths = [t.axes.length(dim) for dim in x.dims[x.rank - len(sizes) :]]
    return [*steps] == [*sizes] and not any(pads) and not any(n % m for n, m in zip(lengths, sizes, strict=True))


def _split_windows(
    t: Building, x: Value, sizes: Sequence[int], geometry: Sequence[Sequence[int]], fill: float | None
) -> tuple[Value, list[Dim], tuple[Dim, ...]]:
    """Windows of `sizes`: their value, the dimensions inside of them, and the dimensions of a reduction over these."""
    steps, pads, gaps = geometry
    first = x.rank - len(sizes)
    if _fit(t, x, sizes, steps, pads) and set(gaps) == {1}:
        outside, inside = _side_by_side(t, x, sizes)
        return x, inside, (*x.dims[:first], *outside)
    inside = [t.fresh(size) for size in sizes]
    made = _windows(t, x, inside, steps, pads, gaps, fill)
    return made, inside, (*made.dims[:first], *made.dims[first::2])


# Pooling


def _rank(t: Building) -> int:
    return int(t.packet.removesuffix("d")[-1])


@operator("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _average(
    t: Building, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None,
) -> Value:  # fmt: skip
    sizes = _listed(kernel, _rank(t))
    steps, pads = _listed(stride, len(sizes)) if stride else sizes, _listed(padding, len(sizes))
    is_partial = ceil_mode and not _fit(t, x, sizes, steps, pads)
    geometry = steps, pads, [1] * len(sizes)
    made, inside, left = _split_windows(t, x, sizes, geometry, 0.0 if any(pads) or is_partial else None)
    if divisor_override is not None:
        return t.apply("div", t.reduced("sum", made, inside, left), divisor_override)
    if not is_partial and (count_include_pad or not any(pads)):
        return t.reduced("mean", made, inside, left)
    dims, places = (one[-len(sizes) :] for one in (x.dims, left))
    windows = zip(dims, places, sizes, steps, pads, strict=True)
    counts = [_counted(t, *one, include_pad=count_include_pad) for one in windows]
    return t.apply("div", t.reduced("sum", made, inside, left), t.at(reduce(mul, counts), *places))


def _counted(t: Building, dim: Dim, outer: Dim, size: int, step: int, pad: int, *, include_pad: bool) -> Expr:
    """The number of elements in each window along a dimension, without those beyond its (padded) end."""
    start = step * t.index(outer) - pad
    end = Apply("minimum", (start + size, length(dim) + (pad if include_pad else 0)))
    return end - (start if include_pad or not pad else Apply("maximum", (start, Number(0))))


@operator("max_pool1d", "max_pool2d", "max_pool3d")
def _maximum(
    t: Building, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> Value:  # fmt: skip
    sizes = _listed(kernel, _rank(t))
    steps, pads = _listed(stride, len(sizes)) if stride else sizes, _listed(padding, len(sizes))
    reaches_out = any(pads) or (ceil_mode and not _fit(t, x, sizes, steps, pads))
    if reaches_out and not x.dtype.is_floating_point:
        raise Refusal("a maximum of integers with padding", "integers have no least of all: pad it before")
    geometry = steps, pads, _listed(dilation, len(sizes))
    made, inside, left = _split_windows(t, x, sizes, geometry, -math.inf if reaches_out else None)
    return t.reduced("max", made, inside, left)


@operator("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d",
          "_adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")  # fmt: skip
def _adaptive(t: Building, x: Value, size: Any) -> Any:
    """The means or maxima of `size` equal chunks of each dimension."""
    places, inside = list[Dim](), list[Dim]()
    rank = _rank(t)
    counts = [*size] * (rank if len(size) == 1 else 1) if isinstance(size, list | tuple) else [size] * rank
    first = x.rank - rank
    spatial(t, x.dims[first:])
    for dim, count, own in zip(x.dims[first:], counts, t.node.args[0].meta["val"].shape[first:], strict=True):
        if isinstance(count, Symbolic) and count.known == known(own):
            places.append(dim)
            continue
        (count,) = _listed(count, 1)
        if t.axes.length(dim) % count:
            raise Refusal("parts that are not equally long", "the length has to be a multiple of their number")
        outer, inner = t.axes.divide(dim, count, outer_fixed=True)
        t.axes.wish(outer, _PLACES, 3)
        t.axes.wish(inner, _INSIDE, 3)
        places.append(outer)
        inside.append(inner)
    found = t.reduced("max" if "max" in t.packet else "mean", x, inside, (*x.dims[:first], *places))
    return (found, None) if "max" in t.packet else found


@operator("unfold")
def _unfold(t: Building, x: Value, dim: int, size: Any, step: Any) -> Value:
    """Windows along a dimension; the positions in a window become the last dimension."""
    place = x.place(dim)
    dims = t.fresh(t.result_length(place)), t.fresh(size)
    made = _window(t, x, place, dims, (_listed(step, 1)[0], 0, 1), None)
    return made.of(dims=(*made.dims[: place + 1], *made.dims[place + 2 :], dims[1]))


@operator("im2col")
def _im2col(t: Building, x: Value, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    """The patches of an image: channels and window positions in one dimension, output positions in another."""
    spatial(t, x.dims[-2:])
    t.axes.wish(x.dims[-3], "C", 3)
    shape = t.node.args[0].meta["val"].shape[-2:]
    geometry = [*zip(*(_listed(one, 2) for one in (kernel, stride, padding, dilation)), strict=True)]
    inside = [t.fresh(size) for size, *_ in geometry]
    outside = [
        t.fresh(t.length((own + 2 * pad - gap * (size - 1) - 1) // step + 1))
        for own, (size, step, pad, gap) in zip(shape, geometry, strict=True)
    ]
    for number, (dims, (_, *own)) in enumerate(zip(zip(outside, inside, strict=True), geometry, strict=True)):
        x = _window(t, x, x.rank - 2 + number, dims, tuple(own), 0.0 if own[1] else None)
    *batch, channels, rows, row, columns, column = x.dims
    return x.of(dims=(*batch, channels + row + column, rows + columns))


# Convolutions


@operator("convolution", "conv1d", "conv2d", "conv3d")
def _convolution(
    t: Building, x: Value, weight: Value, bias: Value | None = None, stride: Any = (1,), padding: Any = (0,),
    dilation: Any = (1,), *more: Any,
) -> Value:  # fmt: skip
    is_transposed, groups = (more[0], more[2]) if t.packet == "convolution" else (False, more[0] if more else 1)
    groups = int(groups.hint) if isinstance(groups, Symbolic) else groups
    rank = weight.rank - 2
    steps, gaps = _listed(stride, rank), _listed(dilation, rank)
    if is_transposed:
        return _biased(t, _transposed(t, x, weight, (steps, _listed(padding, rank), gaps), groups), bias, rank)
    sizes = [t.axes.length(dim) for dim in weight.dims[2:]]
    pads: list[Pad]
    if padding == "same":
        pads = [_half(window, gap) for window, gap in zip(weight.dims[2:], gaps, strict=True)]
    else:
        pads = [0] * rank if padding == "valid" else [*_listed(padding, rank)]
    if groups == 1:
        places, window = x.dims[x.rank - rank :], weight.dims[2:]
        labels = [*range(x.rank - rank - 1), "channel"]
        operands = [
            (x.of(dims=x.dims[: x.rank - rank]), labels),
            (weight.of(dims=weight.dims[:2]), ["result", "channel"]),
        ]
        (x, weight), _ = t.aligned(operands)
        x, weight = x.of(dims=(*x.dims, *places)), weight.of(dims=(*weight.dims, *window))
    batch = x.dims[: x.rank - rank - 1]
    channels, summed = _grouped(t, x, weight, groups)
    x = x.with_dim(x.rank - rank - 1, *channels)
    if _fit(t, x, sizes, steps, pads) and (set(gaps) == {1} or set(sizes) == {1}):
        spatial(t, x.dims[x.rank - rank :])
        outside, inside = _side_by_side(t, x, sizes)
        for one, other in zip(inside, weight.dims[2:], strict=True):
            if other:
                t.axes.join(one, other)
    else:
        inside = list(weight.dims[2:])
        x = _windows(t, x, inside, steps, pads, gaps, 0.0 if any(pads) else None)
        outside = list(x.dims[x.rank - 2 * rank :: 2])
    made = product(t, x, weight, [*summed, *inside], (*batch, weight.dims[0], *outside))
    return _biased(t, made, bias, rank)


def _half(window: Dim, gap: int) -> Pad:
    """The padding before a dimension whose length stays the same."""
    if not window:
        return 0
    return (gap * (length(window) - 1)) // 2


def _grouped(t: Building, x: Value, weight: Value, groups: int) -> tuple[list[Dim], list[Dim]]:
    """The channel dimensions of x, unflattened if there are groups, and the summed ones among them."""
    own = x.dims[x.rank - (weight.rank - 2) - 1]
    t.axes.wish(weight.dims[0], "O E F", 3)
    t.axes.wish(weight.dims[1], "C K", 2)
    if groups == 1:
        t.axes.join(own, weight.dims[1])
        return [own], [own]
    count = t.axes.length(own)
    if count == groups and t.axes.length(weight.dims[0]) == groups:  # Depthwise.
        t.axes.join(own, weight.dims[0])
        return [own], []
    outer, inner = t.axes.divide(own, groups, outer_fixed=True)
    others, _ = t.axes.divide(weight.dims[0], groups, outer_fixed=True)
    t.axes.join(outer, others)
    t.axes.wish(outer, "G", 2)
    if inner:
        t.axes.join(inner, weight.dims[1])
    return [outer, inner], [inner]


def _biased(t: Building, made: Value, bias: Value | None, rank: int) -> Value:
    return made if bias is None else t.apply("add", made, bias.of(dims=(bias.dims[0], *[()] * rank)))


def _transposed(t: Building, x: Value, weight: Value, geometry: Sequence[Sequence[int]], groups: int) -> Value:
    """A transposed convolution: each output is the sum over the windows that contain it."""
    rank = weight.rank - 2
    t.axes.wish(weight.dims[1], "O E F", 3)
    group: Dim = ()
    if groups > 1:  # Channels of x and of the weight have the same groups.
        group, inner = t.axes.divide(x.dims[x.rank - rank - 1], groups, outer_fixed=True)
        others, own = t.axes.divide(weight.dims[0], groups, outer_fixed=True)
        t.axes.join(group, others)
        t.axes.wish(group, "G", 2)
        x, weight = x.with_dim(x.rank - rank - 1, inner), weight.with_dim(0, own)
    t.axes.join(x.dims[x.rank - rank - 1], weight.dims[0])
    t.axes.wish(weight.dims[0], "C K", 2)
    first, outside = x.rank - rank, list[Dim]()
    batch, channel = x.dims[: first - 1], x.dims[first - 1]
    for number, (window, step, pad, gap) in enumerate(zip(weight.dims[2:], *geometry, strict=True)):
        outer = t.fresh(t.result_length(number - rank))
        outside.append(outer)
        t.axes.wish(outer, _PLACES, 3)
        t.axes.wish(window, _INSIDE, 3)
        at = t.index(outer) + pad - (gap * t.index(window) if window else 0)
        x = t.take(x, first + 2 * number, t.at(at // step), (outer, window), 0.0)
        if step > 1:
            divides = Apply("eq", (at % step, Number(0)))
            x = x.of(Apply("where", (divides, x.expr, Number(0.0))))
    return product(t, x, weight, [channel, *weight.dims[2:]], (*batch, group + weight.dims[1], *outside))


# Padding


@operator("constant_pad_nd", "pad")
def _pad(t: Building, x: Value, pads: Any, *more: Any) -> Value:
    """Pads the last dimensions; negative pads crop them."""
    mode, value = (more[0] if more else "constant", more[1] if len(more) > 1 else None)
    if t.packet == "constant_pad_nd":
        mode, value = "constant", more[0] if more else 0
    listed = [(one, int(one.hint if isinstance(one, Symbolic) else one)) for one in pads]
    for number, ((first, before), (_, behind)) in enumerate(zip(listed[::2], listed[1::2], strict=True), 1):
        place = x.rank - number
        if not before and not behind:
            continue
        if not x.dims[place]:
            raise Refusal("padding along a dimension of length 1")
        axis = t.fresh(t.result_length(place))
        t.axes.wish(axis, _PLACES, 3)
        at = t.index(axis) - (t.number(first) if isinstance(first, Symbolic) else before)
        fill = _number(x, value or 0) if mode == "constant" and max(before, behind) > 0 else None
        x = t.take(x, place, t.at(_mirrored(mode, at, x.dims[place])), (axis,), fill)
    return x


def _mirrored(mode: str, at: Expr, dim: Dim) -> Expr:
    """The position of the element that padding by `mode` repeats at `at`, which may be outside of the dimension."""
    last = length(dim) - 1
    match mode:
        case "replicate":
            return Apply("clamp", (at, Number(0), last))
        case "reflect":
            return last - Apply("abs", (last - Apply("abs", (at,)),))
        case "circular":
            return at % length(dim)
    return at


def _number(x: Value, value: Any) -> Any:
    """A fill value as a bool, integer or float, as the tensor's dtype is."""
    if x.dtype == torch.bool:
        return bool(value)
    return float(value) if x.dtype.is_floating_point else int(value)


@operator("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def _upsampled(t: Building, x: Value, size: Any, *more: Any) -> Value:
    """Nearest-neighbour upsampling by integer factors: each element is repeated."""
    rank = int(t.packet[-2])
    shape, first = t.node.args[0].meta["val"].shape, x.rank - rank
    for place in range(first, x.rank):
        length, quotient = t.sizes[place], t.axes.length(x.dims[place])
        if length % quotient:
            raise Refusal(f"nearest neighbours of {length} places among {quotient}", "scale by whole numbers")
        by = length // quotient
        axis = t.fresh(t.length(shape[place] * by))
        t.axes.wish(axis, _PLACES, 3)
        x = t.take(x, place, t.at(t.index(axis) // by), (axis,))
    return x
