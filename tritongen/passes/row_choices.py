"""Choices of full rows out of sums: of what is summed, where one lacks the axes that are summed over.

Probabilities of rows without keys are NaN. `sum(where(isnan(softmax(s, N)), 0, softmax(s, N)) * v, N)` makes these 0,
as `nan_to_num` does, which is `where(isfinite(logsumexp(s, N)), sum(softmax(s, N) * v, N), 0)`: whether the probability
of a score is NaN is the same for all scores of a row, and known only after all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..lang.ir import BOOL, Call, Cast, Constant, Dtype, Node, Op, Reduce, Ref, Value
from ..lang.names import fresh
from ..lang.rewrite import rebuild
from .contractions import applied
from .exponentials import resolve
from .structure import is_extremum, reached, references, with_read_values

_ZERO = Constant(0.0, Dtype("float"))
_Choice = tuple[tuple[Node, ...], Node]  # conditions of rows, outside of which a node is 0, and what it is inside


def with_rows_chosen_outside(op: Op) -> Op:
    """The operator, whose reductions have names, with sums that are chosen in place of sums of what is."""
    values: list[Value] = []
    taken = op.names
    for value in op.values:
        node = value.node
        if isinstance(node, Reduce) and node.kind == "sum" and node.dtype.kind == "float":
            conditions, arg = _Rows(op, node.over).of(node.arg)
            if conditions:
                name = fresh(f"{value.name}_sum", taken)
                values.append(Value(name, replace(node, arg=arg), ""))
                node = _chosen(conditions, Ref(name, node.axes, node.dtype))
        values.append(value.of(node))
    if len(values) == len(op.values):
        return op
    return with_read_values(replace(op, values=tuple(values)))


def _chosen(conditions: Iterable[Node], node: Node) -> Node:
    for condition in dict.fromkeys(conditions):
        node = Call("where", (condition, node, _ZERO), node.axes, node.dtype)
    return node


class _Rows:
    """Looks for choices of rows in what is summed over some axes."""

    def __init__(self, op: Op, over: tuple[str, ...]) -> None:
        self.op, self.over = op, over

    def of(self, node: Node) -> _Choice:
        match node:
            case Ref(name=name):
                conditions, inner = self.of(self.op.value(name).node)
                return (conditions, inner) if conditions else ((), node)
            case Call(function="mul", args=args):
                found = [self.of(arg) for arg in args]
                conditions = tuple(condition for each, _ in found for condition in each)
                return conditions, rebuild(node, tuple(inner for _, inner in found)) if conditions else node
            case Call(function="div", args=(above, below)):
                conditions, inner = self.of(above)
                return conditions, rebuild(node, (inner, below)) if conditions else node
            case Cast(arg=arg) if node.dtype.kind == "float":
                conditions, inner = self.of(arg)
                return conditions, replace(node, arg=inner) if conditions else node
            case Call(function="nan_to_num", args=(arg, *others)) if _makes_zero(others) and (row := self.row(arg)):
                return (_finite(row),), arg
            case Call(function="where", args=(test, Constant(value=0), then)):
                if (row := self.of_nan(test, then)) is not None:
                    return (_finite(row),), then
                return self.of_choice(node, Call("logical_not", (test,), test.axes, BOOL), then)
            case Call(function="where", args=(test, then, Constant(value=0))):
                return self.of_choice(node, test, then)
        return (), node

    def of_choice(self, node: Call, test: Node, then: Node) -> _Choice:
        conditions, inner = self.of(then)
        if self.is_of_rows(test):
            return (test, *conditions), inner
        return conditions, rebuild(node, tuple(inner if arg == then else arg for arg in node.args))

    def is_of_rows(self, node: Node) -> bool:
        """Whether a node lacks the axes that are summed over, and is made of something that is reduced along them."""
        below = (self.op.value(name).node for name in reached(self.op.refs, references(node), ()))
        reduced = any(isinstance(one, Reduce) and {*one.over} & {*self.over} for one in below)
        return reduced and not {*node.axes} & {*self.over}

    def of_nan(self, test: Node, probability: Node) -> Node | None:
        """What is not finite for rows whose probabilities are NaN, if a node tests that."""
        match resolve(self.op, test):
            case Call(function="isnan", args=(tested,)) if resolve(self.op, tested) == resolve(self.op, probability):
                return self.row(probability)
        return None

    def row(self, node: Node) -> Node | None:
        """What is not finite for rows of probabilities that are NaN: the logarithm of what divides exponentials."""
        match resolve(self.op, node):
            case Cast(arg=arg):
                return self.row(arg)
            case Call(function="exp", args=(power,)):
                return self.less(power)
            case Call(function="div", args=(above, below)) if self.is_of_rows(below):
                power = resolve(self.op, above)
                less = self.less(power.args[0]) if isinstance(power, Call) and power.function == "exp" else None
                if less is None:
                    return None
                log = Call("log", (below,), below.axes, below.dtype)
                return applied("add", log, self.finite_shift(less))
        return None

    def less(self, power: Node) -> Node | None:
        """What scores are below in an exponential: their maximum, or what else is made of sums of them."""
        match resolve(self.op, power):
            case Call(function="sub", args=(_, less)) if self.is_of_rows(less):
                return less
        return None

    def finite_shift(self, less: Node) -> Node:
        """The maximum, with infinities replaced by 0, as they are in a logsumexp."""
        node = resolve(self.op, less)
        if not is_extremum(node):
            return less
        test = Call("isinf", (less,), less.axes, BOOL)
        return Call("where", (test, _ZERO, less), less.axes, less.dtype)


def _makes_zero(options: Iterable[Node]) -> bool:
    """Whether nan_to_num puts 0 in place of NaN; probabilities are not infinite."""
    return next((one.value == 0 for one in options if isinstance(one, Constant)), True)


def _finite(row: Node) -> Node:
    return Call("isfinite", (row,), row.axes, BOOL)
