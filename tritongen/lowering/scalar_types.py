"""The dtypes that Triton gives scalars and integers, and where they must be cast to the compute dtype.

To Triton a scalar is float32 unless it meets a tensor of floats: too narrow for a kernel that may compute in float64.
"""

from __future__ import annotations

import ast
import math
import struct
from dataclasses import dataclass

from ..lang.integers import INT64, bounds_of_dtypes, inside
from ..lang.ir import Call, Choose, Constant, Index, Load, Node, Op, Reduce, Ref, walk
from ..nest.values import Expr, tl
from ..spec.types import INTS


@dataclass(frozen=True, slots=True)
class ScalarTypes:
    """The dtypes of an operator's scalars in a kernel that computes in `dtype`, as the kernel spells it.

    `is_double` says that `dtype` may be float64.
    """

    op: Op
    dtype: str
    is_double: bool

    def is_number(self, node: Node) -> bool:
        """Whether a value is computed from constants, params and lengths alone, and from nothing that is loaded."""
        nodes = list(walk(node))
        lines = [self.op.value(inner.name).node for inner in nodes if isinstance(inner, Ref)]
        return not any(isinstance(inner, Load | Index | Reduce) for inner in nodes) and all(map(self.is_number, lines))

    def narrower_operands(self, node: Node, accepts: str, call: Call) -> tuple[str, ...]:
        """The dtype leaves of integers that a constant meets, if it may not fit, which Triton refuses; else ()."""
        if not (isinstance(node, Constant) and isinstance(node.value, int)):
            return ()
        number = int(node.value)
        values = call.args[accepts == "where" :]
        if accepts == "float" or any(arg.dtype.kind == "float" for arg in values):
            return ()
        inputs = {tensor.name: tensor.type.dtypes for tensor in self.op.inputs}
        leaves = dict.fromkeys(leaf for arg in values if arg.dtype.kind in ("int", "any") for leaf in arg.dtype.leaves)
        dtypes = {dtype for leaf in leaves for dtype in inputs.get(leaf, (leaf,))} & {*INTS}
        fits = all(inside((number, number), bounds_of_dtypes((dtype,)) or INT64) for dtype in dtypes)
        return () if fits else tuple(leaves)

    def rounds(self, node: Node) -> bool:
        """Whether a constant would be rounded by Triton's float32 in a kernel that may compute in float64."""
        if not (isinstance(node, Constant) and isinstance(node.value, float)):
            return False
        return self.is_double and math.isfinite(node.value) and _float32(node.value) != node.value

    def to_type(self, accepts: str, node: Call) -> int | None:
        """The place of the argument that must be cast to the compute dtype; None if none has to be.

        Triton computes in float32 if all operands are integers and scalars.
        """
        first = int(accepts == "where")
        values = node.args[first:]
        if not self.is_double or node.dtype.kind != "float" or any(map(self.is_typed, values)):
            return None
        if first and all(map(self.is_exact, values)):
            return None
        places = [place for place, arg in enumerate(values, first) if not isinstance(arg, Constant)]
        return max(places, key=lambda place: len(node.args[place].axes), default=None)

    def is_typed(self, node: Node) -> bool:
        """Whether a value has the compute dtype, not the dtype of an integer or of a Triton scalar."""
        match node:
            case Ref(name=name, axes=axes) if axes:
                return self.is_typed(self.op.value(name).node)
            case Choose(then=then, other=other):
                return self.is_typed(then) and self.is_typed(other)
            case Call(function="where", args=(_, *others)):
                return any(map(self.is_typed, others)) or not all(map(self.is_exact, others))
            case Constant():
                return False
        return node.dtype.kind in ("float", "any")

    def is_exact(self, node: Node) -> bool:
        """Whether a value is a constant that is exact as a Triton scalar, or has a float dtype."""
        match node:
            case Constant():
                return not self.rounds(node)
            case Choose(then=then, other=other):
                return self.is_exact(then) and self.is_exact(other)
        return node.dtype.kind == "float"

    def in_compute(self, node: Node, value: Expr) -> Expr:
        """A node's `value` in the compute dtype."""
        return value if self.is_typed(node) else self.converted(node, value, self.dtype)

    def converted(self, node: Node, value: Expr, dtype: str) -> Expr:
        """A node's `value` in another dtype; a value of scalars alone may be a compile-time constant of Triton.

        Triton's interpreter makes no constants of 16-bit dtypes, which inputs may have.
        """
        if self.is_number(node):
            if dtype in (self.dtype, "tl.int64"):
                return tl.full((), value, dtype)
            value = tl.full((), value, "tl.float64" if node.dtype.kind == "float" else "tl.int64")
        return value.to(dtype)

    def full(self, value: Expr) -> Expr:
        """A scalar as a tensor of the compute dtype."""
        return tl.full((), value, self.dtype)


def _float32(value: float) -> float:
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.inf
    return rounded


def compares(template: ast.expr, name: str) -> bool:
    """Whether a spelling compares an argument or selects it, which takes scalars as float32."""
    for node in ast.walk(template):
        used = any(isinstance(child, ast.Name) and child.id == name for child in ast.iter_child_nodes(node))
        selects = isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.where"
        if used and (selects or isinstance(node, ast.Compare)):
            return True
    return False
