"""Leading axes in emitted oracles: of several inputs, each may have fewer of them than another, or some of length 1."""

from __future__ import annotations

from collections.abc import Iterator

from ..lang.ir import Op
from ..spec.types import BATCH


def batch_shape(op: Op) -> str:
    """The lengths of the leading axes. (torch has no types for its `broadcast_shapes`.)"""
    shapes = [f"{name}.shape{f'[:-{named}]' if named else ''}" for name, named in _batched(op)]
    return shapes[0] if len(shapes) == 1 else f"({' + '.join(f'torch.ones({shape})' for shape in shapes)}).shape"


def at_full_length(op: Op) -> Iterator[str]:
    """Lines that expand the inputs to all leading axes, as sums over these count each of them."""
    batched = _batched(op)
    for name, named in batched if len(batched) > 1 else ():
        own = f", *{name}.shape[-{named}:]" if named else ""
        yield f"{name} = {name}.expand(*batch{own})"


def _batched(op: Op) -> list[tuple[str, int]]:
    """The inputs with leading axes, each with how many others it has."""
    return [(t.name, len(t.type.axes) - 1) for t in op.inputs if BATCH in t.type.axes]
