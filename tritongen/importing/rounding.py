"""The dtypes in which the math of a spec rounds, whatever its inputs' dtypes."""

from __future__ import annotations

from ..lang.ir import Cast, Op
from ..spec.types import FLOATS


def rounded_dtypes(op: Op) -> frozenset[str]:
    """The floats narrower than float64 that the math casts to, and that results state as their dtype."""
    casts = [node.dtype for node in op.nodes if isinstance(node, Cast)]
    leaves = {leaf for dtype in (*casts, *(result.dtype for result in op.results)) for leaf in dtype.of}
    return frozenset(leaves & set(FLOATS) - {"float64"} - {one.name for one in op.inputs})
