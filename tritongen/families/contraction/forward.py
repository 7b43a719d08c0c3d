"""The gradients of an operator that is one matmul and nothing else: matmuls again, which its own forward computes."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ...nest.values import Expr, Term
from ...passes.structure import Program
from .operands import operands_of
from .program import ContractionProgram, is_one_matmul


def call_of_forward(forward: Program | None, sides: Sequence[Expr], ndim: int) -> tuple[Term, ...]:
    """The function of a forward, and its arguments to multiply a left matrix [batch, rows, inner] by a right one
    [batch, cols, inner], as the host spells them, with so many dimensions; () if it is not for any two such matrices.

    If lengths are fixed, the forward has the kernels that suit these.
    """
    if not isinstance(forward, ContractionProgram) or not is_one_matmul(forward) or forward.op.sizes:
        return ()
    contraction, (result,) = forward.contraction, forward.op.results
    roles = "batch", "rows", "cols", "inner"
    plain = [role for role in roles if contraction.axes(role)]
    alone = all(len(contraction.axes(role)) == 1 for role in plain)
    in_order = result.axes == tuple(axis for role in plain[:-1] for axis in contraction.axes(role))
    if not (alone and in_order and ndim == len(plain) - 1):
        return ()
    passed = dict[str, Expr]()
    for operand, side in zip(operands_of(forward.seen, contraction).by_side, sides, strict=True):
        played = contraction.roles(operand.tensor.type.axes)
        if len(played) > 2 and played[0] != "batch":
            return ()
        passed[operand.name] = side if played[-1] == "inner" else transposed(side)
    return f"_{forward.op.name}_forward", *(passed[tensor.name] for tensor in forward.op.inputs)


def transposed(matrix: Expr) -> Expr:
    """A matrix with its last two dimensions swapped."""
    match matrix.tree:
        case ast.Attribute(inner, "mT"):
            return Expr(inner)
    return matrix.field("mT")
