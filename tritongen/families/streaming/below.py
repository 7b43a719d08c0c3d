"""Exponentials below a number of rows, as the kernels of this family take them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...lang.ir import Call, Node, Ref
from ...lowering.lower import Lowering
from ...nest.values import Expr, Term, V, runtime


@dataclass
class Below(Lowering):
    """Takes exponentials below a number of rows or columns, and in the loop below the largest so far.

    Those of `low` scores have a factor for each row. Of `scores`, the axes of what exponentials are of, tanh is as
    exact as that needs whose factors are of a `dtype`, which is known for a line of some axes.
    """

    largest: str = ""
    low: str = ""
    in_loop: bool = True
    scores: frozenset[str] = frozenset()
    dtype: Callable[[tuple[str, ...]], Term] = field(kw_only=True)

    def expression(self, node: Node) -> Expr:
        if self.in_loop and isinstance(node, Ref) and node.name == self.largest:
            return V.shift
        return super().expression(node)

    def call(self, node: Call) -> Expr:
        match node:
            case Call(function="exp", args=(Call(function="sub", args=(x, y)),)) if set(y.axes) < set(x.axes):
                online = self.in_loop and isinstance(y, Ref) and y.name == self.largest
                terms = map(self.in_compute, (x, y))
                if online and self.low:
                    return runtime[f"exp2_shifted{self.low}"](*terms, V.factor)
                return runtime["exp2_shifted" if online else "exp2_sub"](*terms)
            case Call(function="tanh", args=(x,)) if self.scores and self.scores <= set(node.axes):
                return self.tanh(self.in_compute(x), node.axes)
        return super().call(node)

    def tanh(self, x: Expr, axes: tuple[str, ...]) -> Expr:
        return runtime.tanh_of(x, self.dtype(axes))
