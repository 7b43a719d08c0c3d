"""Which tiles of a matmul are fully masked: those outside of a triangle or a band."""

from __future__ import annotations

from ..lang.ir import Call, Constant, Index, Node, Op, Ref, Scalar, Size
from .contractions import Contraction
from .exponentials import resolve

_SIGNS = {"ge": 1, "gt": 1, "le": -1, "lt": -1}


def triangle_condition(op: Op, contraction: Contraction) -> tuple[Call, dict[str, bool]] | None:
    """The comparison outside of which the result is masked (triangular matmul); None where there is none.

    The dict says for the axes of rows and columns whether the comparison is true most easily at the last position of a
    tile (else at the first).
    """
    found = {_condition(op, result.node) for result in op.results}
    condition = found.pop()
    if found or condition is None or len(contraction.rows) != 1 or len(contraction.cols) != 1:
        return None
    left, right = (slopes_of(op, arg) for arg in condition.args)
    if left is None or right is None:
        return None
    slope = {axis: left.get(axis, 0) - right.get(axis, 0) for axis in (*left, *right)}
    axes = {contraction.rows[0], contraction.cols[0]}
    if set(slope) != axes or not all(slope.values()):
        return None
    return condition, {axis: slope[axis] * _SIGNS[condition.function] > 0 for axis in slope}


def _condition(op: Op, node: Node) -> Call | None:
    """The comparison of a result that is masked by it: `where(index(M) >= index(N), …, 0)`; None for any other."""
    node = resolve(op, node)
    if not isinstance(node, Call) or node.function != "where" or not isinstance(node.args[2], Constant | Scalar):
        return None
    condition = node.args[0]
    # Kernels compute it from positions, before their lines.
    if not isinstance(condition, Call) or not condition.kinds.isdisjoint((Ref, Size)):
        return None
    return condition if condition.function in _SIGNS else None


def slopes_of(op: Op, node: Node) -> dict[str, int] | None:
    """The step of an integer from each position of an axis to the next; None if it is not constant."""
    match node:
        case Constant() | Scalar() | Size():
            return {} if node.dtype.kind == "int" else None
        case Index(axis=axis):
            return {axis: 1}
        case Ref():
            return slopes_of(op, resolve(op, node))
        case Call(function="add" | "sub" as function, args=(left, right)):
            first, second = slopes_of(op, left), slopes_of(op, right)
            if first is None or second is None:
                return None
            sign = 1 if function == "add" else -1
            return {axis: first.get(axis, 0) + sign * second.get(axis, 0) for axis in (*first, *second)}
    return None
