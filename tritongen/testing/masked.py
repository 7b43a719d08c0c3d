"""Masks by finite values, which leave rows without keys equal probabilities."""

from __future__ import annotations

import ast
import math
from dataclasses import replace

from ..lang.ir import Constant, Op
from ..lang.syntax import Text
from ..spec.types import Spec

LOWEST = 2.0**24  # Probabilities of lower scores cannot be recomputed from their lse in float32.


def masks_by_number(op: Op) -> bool:
    """Whether a constant of the math, or the default of a param, is so far from 0 that a mask may use it."""
    constants = (node.value for node in op.nodes if isinstance(node, Constant))
    scalars = (one for one in (*constants, *(param.default for param in op.params)) if isinstance(one, int | float))
    return any(LOWEST <= abs(one) < math.inf for one in scalars)


def without_masked_rows(spec: Spec) -> Spec:
    """The same math, but NaN in rows whose scores are all masked, by whatever number."""
    lines = (
        replace(line, expression=ast.unparse(_Masked().visit(Text(line.expression).parse()))) for line in spec.compute
    )
    return replace(spec, compute=tuple(lines))


class _Masked(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Name) or node.func.id not in ("softmax", "log_softmax", "logsumexp", "max"):
            return node
        lse = ast.Call(ast.Name("logsumexp"), node.args, [])
        is_masked = ast.Compare(lse, [ast.Lt()], [ast.UnaryOp(ast.USub(), ast.Constant(LOWEST))])
        return ast.Call(ast.Name("where"), [is_masked, ast.Name("nan"), node], [])
