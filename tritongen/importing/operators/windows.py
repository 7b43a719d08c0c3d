"""Pooling over windows that lie side by side, which are groups of axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..axes import Dim
from ..refusals import Refusal
from ..table import operator
from ..values import Value
from .contractions import product
from .norms import spatial

if TYPE_CHECKING:
    from ..building import Building

_HINT = "the language has axes for windows side by side: stride = kernel_size, no padding, lengths that are multiples"


def pooled(t: Building, function: str, x: Value, kernel: Any, stride: Any, padding: Any) -> Value:
    """The mean or the maximum of windows along the last dimensions."""
    sizes = kernel if isinstance(kernel, list) else [kernel]
    rank = int(t.packet.removesuffix("d")[-1])
    sizes = sizes * rank if len(sizes) == 1 else sizes
    steps = stride if isinstance(stride, list) else [stride]
    steps = (steps * rank if len(steps) == 1 else steps) or sizes
    if steps != sizes or any(padding if isinstance(padding, list) else [padding]):
        raise Refusal("windows that overlap, or reach outside", _HINT)
    outside, inside = _side_by_side(t, x, x.rank - rank, sizes)
    return t.reduced(function, x, inside, (*x.dims[: x.rank - rank], *outside))


def _side_by_side(t: Building, x: Value, first: int, sizes: list[int]) -> tuple[list[Dim], list[Dim]]:
    """Dimensions from the `first` on as windows of some sizes and positions inside of them."""
    outside, inside = [], []
    for dim, size in zip(x.dims[first:], sizes, strict=True):
        length = t.axes.length(t.axes.atoms(dim))
        if length % size:
            raise Refusal(f"windows of {size} along {length} elements", _HINT)
        outer, inner = t.axes.divide(dim, length // size, inner_fixed=True)
        t.axes.wish(outer, "P Q S", 3)
        t.axes.wish(inner, "R U V", 3)
        outside.append(outer)
        inside.append(inner)
    return outside, inside


@operator("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _average(
    t: Building, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None,
) -> Value:  # fmt: skip
    if divisor_override is not None:
        raise Refusal("an average with a divisor of its own", "write a sum")
    return pooled(t, "mean", x, kernel, list(stride), padding)


@operator("max_pool1d", "max_pool2d", "max_pool3d")
def _maximum(
    t: Building, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> Value:  # fmt: skip
    if any(one != 1 for one in (dilation if isinstance(dilation, list) else [dilation])):
        raise Refusal("dilated windows", _HINT)
    return pooled(t, "max", x, kernel, list(stride), padding)


@operator("convolution", "conv1d", "conv2d", "conv3d")
def _convolution(
    t: Building, x: Value, weight: Value, bias: Value | None = None, stride: Any = (1,), padding: Any = (0,),
    dilation: Any = (1,), *more: Any,
) -> Value:  # fmt: skip
    """One whose windows lie side by side, as those of 1 by 1 and of patches, is a matmul."""
    is_transposed, groups = (more[0], more[2]) if t.packet == "convolution" else (False, more[0] if more else 1)
    sizes = [t.axes.length(t.axes.atoms(dim)) for dim in weight.dims[2:]]
    rank = len(sizes)
    steps = list(stride) * rank if len(stride) == 1 else list(stride)
    is_plain = not isinstance(padding, str) and not any(padding) and groups == 1 and not is_transposed
    if not is_plain or steps != sizes or (set(dilation) != {1} and set(sizes) != {1}):
        raise Refusal("a convolution whose windows overlap, or reach outside", _HINT)
    t.axes.join(x.dims[1], weight.dims[1])
    t.axes.wish(weight.dims[0], "O E F", 3)
    t.axes.wish(weight.dims[1], "C K", 2)
    spatial(t, x.dims[2:])
    outside, inside = _side_by_side(t, x, x.rank - rank, sizes)
    for one, other in zip(inside, weight.dims[2:], strict=True):
        if other:
            t.axes.join(one, other)
    dims = (*x.dims[: x.rank - rank - 1], weight.dims[0], *outside)
    made = product(t, x, weight, [x.dims[1], *inside], dims)
    return made if bias is None else t.apply("add", made, bias.of(dims=(bias.dims[0], *[()] * rank)))
