"""Where programs that split the streamed axis store their partial sums: adjacent for each row."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...lowering.views import Argument
from ...nest.ir import Do, Line
from ...nest.values import Expr, V, expr, tl, total
from ..stream import Stream

ARGUMENT = Argument("partial_ptr", V.partial)
LEAST = expr(-math.inf)  # below every score


def stores(stream: Stream) -> tuple[Line, ...]:
    """The stores of the partial sums of each row."""
    pairs = zip(stream.partial_results, addresses(stream), strict=True)
    return tuple(Do(tl.store(address, name, mask=V.row_mask)) for (name, _), address in pairs)


def addresses(stream: Stream) -> list[Expr]:
    """The address of each partial sum; vectors of full widths come first, so that they are aligned."""
    axes = [axis for _, axis in stream.partial_results]
    widths = [in_kernel(axis) for axis in axes if axis]
    found = []
    for place, axis in enumerate(axes):
        n_wide = sum(map(bool, axes[:place]))
        own = [V[f"at_{axis.lower()}"]] if axis else [expr(place - n_wide)] if place > n_wide else []
        found.append(total(V.partial, *(widths[:n_wide] if axis else widths), *own))
    return found


def in_kernel(axis: str) -> Expr:
    """The kernel's name for the padded width of a tile."""
    return V[f"PADDED_{axis.upper()}"]


def length(stream: Stream, padded: Callable[[str], Expr]) -> Expr:
    """The number of partial values per row: scalars padded to 16 bytes, and vectors of padded widths."""
    axes = [axis for _, axis in stream.partial_results]
    narrow = -(-axes.count("") // 4) * 4
    return total(*(padded(axis) for axis in axes if axis), *([expr(narrow)] if narrow else []))
