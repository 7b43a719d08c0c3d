"""Reads the math of a mask's condition into comparisons of integers with 0.

Only int64 arithmetic, such as that on positions, is decomposed: a narrower dtype may wrap around, so it is opaque.
"""

from __future__ import annotations

from ...lang.integers import INT32, INT64, Bounds, bounds_in, bounds_of_dtypes, is_int64
from ...lang.ir import (
    BOOL,
    Call,
    Cast,
    Choose,
    Constant,
    Dtype,
    Index,
    Load,
    Node,
    Op,
    Reduce,
    Ref,
    Scalar,
    Scan,
    Take,
    walk,
)
from ...spec.types import INTS
from .conditions import (
    All,
    Any,
    AtLeast,
    Chosen,
    Condition,
    Greatest,
    Leaf,
    Linear,
    Opaque,
    Pick,
    Position,
    Product,
    Quotient,
    axes_of,
    opposite,
)
from .expressions import HELD

LONGEST = 2**40  # No axis is longer.

_COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
_AND = frozenset(("logical_and", "bitwise_and", "mul", "minimum"))
_OR = frozenset(("logical_or", "bitwise_or", "add", "maximum"))
_NOT = frozenset(("logical_not", "bitwise_not"))
_DIFFER = frozenset(("logical_xor", "bitwise_xor", "ne"))


class Reader:
    """Reads conditions over positions along two axes: the axis of the blocks and the streamed one."""

    def __init__(self, op: Op, block: str, streamed: str) -> None:
        self.op, self.axes, self.streamed = op, {block, streamed}, streamed
        self.integers = bounds_in(op, LONGEST)

    # Nodes

    def is_uniform(self, node: Node) -> bool:
        """Whether a value is the same in a full tile."""
        return not self.axes & set(node.axes)

    def bounds(self, node: Node) -> Bounds:
        """The least and greatest integer that a leaf may be, if nothing in it overflows."""
        match node:
            case Load(name=name) if (default := self.op.input(name).default) is not None:
                low, high = bounds_of_dtypes(self.op.input(name).type.dtypes) or INT64
                return min(low, int(default)), max(high, int(default))
        low, high = self.integers.bounds(node) or (INT32 if self.is_narrow(node) else INT64)
        return max(low, INT64[0]), min(high, INT64[1])

    def is_narrow(self, node: Node) -> bool:
        """Whether an integer has at most 32 bits, whatever dtypes the inputs have."""
        inputs = {tensor.name: tensor.type.dtypes for tensor in self.op.inputs}
        dtypes = {dtype for name in node.dtype.leaves for dtype in inputs.get(name, (name,))}
        return bool(dtypes) and not node.dtype.rule and dtypes <= set(INTS) - {"int64"}

    def is_unbounded(self, node: Node) -> bool:
        low, high = self.bounds(node)
        return low < -HELD or high > HELD

    # Integers

    def linear(self, node: Node) -> Linear:
        """An integer, or a boolean as 0 or 1."""
        match node:
            case Constant(value=int() as value):
                return Linear(constant=int(value))
            case Index(axis=axis) if axis in self.axes:
                return Linear(((Position(axis), 1),))
            case Cast(arg=arg) if node.dtype.of == ("int64",) and arg.dtype.kind in ("int", "bool"):
                return self.linear(arg)
            case Call(function="add" | "sub" | "neg" | "positive" | "detach" | "mul") if self.is_sum(node):
                return self.linear_call(node)
            case Call() if self.is_opaque(node) and (atom := self.atom(node)) is not None:
                return atom
            case Choose(condition=test, then=then, other=other) if self.is_opaque(node):
                return self.chosen(self.condition(test), self.linear(then), self.linear(other))
        if node.dtype.kind == "bool":
            return self.chosen(self.condition(node), Linear(constant=1), Linear())
        return Linear(((Leaf(node), 1),))

    def is_opaque(self, node: Node) -> bool:
        """Whether an expression is int64 and contains a position."""
        has_position = any(isinstance(part, Index) and part.axis in self.axes for part in walk(node))
        return has_position and node.dtype.kind == "int" and is_int64(node.dtype)

    def is_sum(self, node: Call) -> bool:
        """Whether int64 arithmetic is decomposed: it has a position, or at most one input or unbounded param."""
        if node.dtype.kind != "int" or not is_int64(node.dtype):
            return False
        read = {part for part in walk(node) if isinstance(part, Load)}
        params = {part for part in walk(node) if isinstance(part, Scalar) and self.is_unbounded(part)}
        return self.is_opaque(node) or len(read | params) < 2

    def linear_call(self, node: Call) -> Linear:
        first, *others = map(self.linear, node.args)
        match node.function:
            case "add":
                return first + others[0]
            case "sub":
                return first - others[0]
            case "neg":
                return first * -1
            case "mul":
                return self.product(node, first, others[0])
        return first

    def product(self, node: Call, first: Linear, second: Linear) -> Linear:
        if not first.terms or not second.terms:
            return first * second.constant if not second.terms else second * first.constant
        for one, factor in ((first, node.args[1]), (second, node.args[0])):
            if self.is_positive(factor) and not self.is_uniform(node):
                return Linear(((Product(Leaf(factor), one), 1),))
        return Linear(((Leaf(node), 1),))

    def is_positive(self, node: Node) -> bool:
        return self.is_uniform(node) and node.dtype.kind == "int" and is_readable(node) and self.bounds(node)[0] > 0

    def atom(self, node: Call) -> Linear | None:
        """A call other than a sum or product, decomposed; None if it stays opaque."""
        args = node.args
        match node.function:
            case "floor_divide":
                return self.division(node)
            case "maximum" | "clamp_min":
                return greatest(self.linear(args[0]), self.linear(args[1]))
            case "minimum" | "clamp_max":
                return least(self.linear(args[0]), self.linear(args[1]))
            case "clamp":
                x, low, high = map(self.linear, args)
                return least(greatest(x, low), high)
            case "abs":
                x = self.linear(args[0])
                return greatest(x, x * -1)
            case "where":
                return self.chosen(self.condition(args[0]), self.linear(args[1]), self.linear(args[2]))
        return None

    def division(self, node: Call) -> Linear | None:
        arg, by = self.linear(node.args[0]), self.linear(node.args[1])
        if by.terms:
            leaf = Leaf(node.args[1])
            return Linear(((Quotient(arg, leaf), 1),)) if self.is_positive(leaf.node) else None
        if by.constant == 0:
            return None
        sign = 1 if by.constant > 0 else -1
        return Linear(((Quotient(arg * sign, by.constant * sign), 1),))

    def chosen(self, test: Condition, then: Linear, other: Linear) -> Linear:
        return Linear(((Chosen(test, then, other), 1),))

    # Conditions

    def condition(self, node: Node) -> Condition:
        """A boolean as a condition; a number is compared with 0."""
        if isinstance(node, Constant) and isinstance(node.value, int | float):
            return All() if node.value else Any()
        if node.dtype.kind != "bool":
            return self.condition(Call("ne", (node, Constant(0, Dtype("int"))), node.axes, BOOL))
        if self.is_uniform(node):
            return Opaque(node)
        match node:
            case Call(function=function, args=(left, right)) if function in _COMPARISONS and is_integer(left, right):
                return self.comparison(node)
            case Call(function="where", args=(test, then, other)) | Choose(condition=test, then=then, other=other):
                return self.either(self.condition(test), self.condition(then), self.condition(other))
        if not isinstance(node, Call) or not all(self.is_truth(node, arg) for arg in node.args):
            return Opaque(node)
        operands = tuple(map(self.condition, node.args))
        if node.function in _AND:
            return All(operands)
        if node.function in _OR:
            return Any(operands)
        if node.function in _NOT:
            return opposite(operands[0])
        if node.function in _DIFFER:
            return self.either(operands[0], opposite(operands[1]), operands[1])
        return self.either(operands[0], operands[1], opposite(operands[1])) if node.function == "eq" else Opaque(node)

    def is_truth(self, node: Call, arg: Node) -> bool:
        return arg.dtype.kind == "bool" or (node.function.startswith("logical") and arg.dtype.kind == "int")

    def either(self, test: Condition, then: Condition, other: Condition) -> Condition:
        """`then` where the test is true, `other` elsewhere."""
        if then == other:
            return then
        if isinstance(test, Opaque) and self.is_uniform(test.node) and is_readable(test.node):
            return Pick(test, then, other) if test.holds else Pick(Opaque(test.node), other, then)
        return Any((All((test, then)), All((opposite(test), other))))

    def comparison(self, node: Call) -> Condition:
        left, right = node.args
        match node.function:
            case "eq":
                return self.equal(left, right)
            case "ne":
                return opposite(self.equal(left, right))
        difference = self.linear(left) - self.linear(right)
        if node.function in ("lt", "le"):
            difference *= -1
        if node.function in ("lt", "gt"):
            difference += Linear(constant=-1)
        return self.at_least(difference)

    def equal(self, left: Node, right: Node) -> Condition:
        difference = self.linear(left) - self.linear(right)
        return All((self.at_least(difference), self.at_least(difference * -1)))

    def at_least(self, linear: Linear) -> Condition:
        """Whether a sum is 0 or more, by comparisons without maxima and choices along the streamed axis."""
        if not linear.terms:
            return All() if linear.constant >= 0 else Any()
        for atom, factor in linear.terms if self.streamed in axes_of(linear) else ():
            rest = linear - Linear(((atom, factor),))
            match atom:
                case Greatest(args=args):
                    operands = tuple(self.at_least(rest + arg * factor) for arg in args)
                    return Any(operands) if factor > 0 else All(operands)
                case Chosen(test=test, then=then, other=other):
                    return self.either(test, self.at_least(rest + then * factor), self.at_least(rest + other * factor))
        return AtLeast(linear)


def greatest(*args: Linear) -> Linear:
    return Linear(((Greatest(args), 1),))


def least(*args: Linear) -> Linear:
    return greatest(*(arg * -1 for arg in args)) * -1


def is_integer(*nodes: Node) -> bool:
    """Whether a comparison is of integers; a boolean among them counts as 0 or 1."""
    kinds = {node.dtype.kind for node in nodes}
    return kinds <= {"int", "bool"} and "int" in kinds


def is_readable(node: Node) -> bool:
    """Whether a kernel can compute a value where it is needed, from params, lengths and inputs."""
    return not any(isinstance(part, Reduce | Scan | Take | Ref) for part in walk(node))
