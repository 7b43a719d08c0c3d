"""How the host spells the axes of tensors, of which `...` stands for any number."""

from __future__ import annotations

from ..spec.types import BATCH, AxisTerm


def sizes(axes: list[str]) -> str:
    return ", ".join("*batch" if axis == BATCH else axis for axis in axes)


def places(axes: tuple[str, ...], wanted: list[str]) -> str:
    """The positions of some axes, of which one may stand for any number: those behind it count from the end."""
    many = axes.index(BATCH) if BATCH in axes else len(axes)
    found = [axes.index(axis) if axes.index(axis) < many else axes.index(axis) - len(axes) for axis in wanted]
    every = f"{many}, {many} + len(batch)" if many else "len(batch)"
    return ", ".join(f"*range({every})" if axis == BATCH else str(at) for axis, at in zip(wanted, found, strict=True))


def regrouped(shape: tuple[AxisTerm, ...]) -> str:
    """The calls that flatten groups of axes, as the dimensions of a tensor have them."""
    ends = range(-1, -len(shape) - 1, -1)
    groups = [(end, len(term.names)) for end, term in zip(ends, reversed(shape), strict=True)]
    return "".join(f".flatten({end - count + 1}, {end})" for end, count in groups if count > 1)


def spread(name: str, axes: tuple[str, ...], wanted: list[str]) -> str:
    """A tensor with its axes in another order, and expanded along those that it lacks."""
    present = [axis for axis in wanted if axis in axes]
    text = name if list(axes) == present else f"{name}.permute({places(axes, present)})"
    return expanded(text, present, wanted)


def expanded(text: str, axes: list[str], wanted: list[str]) -> str:
    """A tensor with its axes in this order, expanded along those that it lacks."""
    if axes == wanted:
        return text
    ones = {axis: "*(1,) * len(batch)" if axis == BATCH else "1" for axis in wanted if axis not in axes}
    lengths = ", ".join(ones.get(axis) or sizes([axis]) for axis in wanted)
    return f"{text}.reshape({lengths}).expand({sizes(wanted)})"
