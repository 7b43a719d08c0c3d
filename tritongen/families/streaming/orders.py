"""The order in which streaming kernels take the strides of a tensor."""

from __future__ import annotations

from ..stream import Stream


def in_kernels(stream: Stream, axes: tuple[str, ...]) -> tuple[str, ...]:
    """The axes of a tensor as they are where those of the batch come first, and then those of the heads of a group, or
    of turns; else these, and last rows or what streams, and widths.
    """
    first = tuple(axis for axis in (*stream.batch, *stream.heads, *stream.outer_axes) if axis in axes)
    if axes[: len(first)] == first:
        return axes
    last = tuple(axis for axis in (stream.rows, stream.streamed, *stream.widths) if axis in axes)
    return (*first, *(axis for axis in axes if axis not in (*first, *last)), *last)


def moved(axes: tuple[str, ...], order: tuple[str, ...]) -> tuple[int, ...]:
    """The dimensions of a tensor that come last in another order, counted from the end; none where it is the same."""
    same = next((place for place, (one, other) in enumerate(zip(axes, order, strict=True)) if one != other), len(axes))
    return tuple(axes.index(axis) - len(axes) for axis in order[same:])
