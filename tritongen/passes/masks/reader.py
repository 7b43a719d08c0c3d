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
from .expressions import (
    FALSE,
    HELD,
    TRUE,
    Apply,
    Expression,
    Number,
    Position,
    Value,
    at_least_0,
    axes_of,
    opposite,
    plus,
    split,
    total,
)

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

    def linear(self, node: Node) -> Expression:
        """An integer, or a boolean as 0 or 1."""
        match node:
            case Constant(value=int() as value):
                return Number(int(value))
            case Index(axis=axis) if axis in self.axes:
                return Position(axis)
            case Cast(arg=arg) if node.dtype.of == ("int64",) and arg.dtype.kind in ("int", "bool"):
                return self.linear(arg)
            case Call(function="add" | "sub" | "neg" | "positive" | "detach" | "mul") if self.is_sum(node):
                return self.linear_call(node)
            case Call() if self.is_opaque(node) and (found := self.called(node)) is not None:
                return found
            case Choose(condition=test, then=then, other=other) if self.is_opaque(node):
                return Apply("where", (self.condition(test), self.linear(then), self.linear(other)))
        if node.dtype.kind == "bool":
            return Apply("where", (self.condition(node), Number(1), Number(0)))
        return Value(node)

    def is_opaque(self, node: Node) -> bool:
        """Whether an expression is int64 and contains a position."""
        has_position = any(isinstance(inner, Index) and inner.axis in self.axes for inner in walk(node))
        return has_position and node.dtype.kind == "int" and is_int64(node.dtype)

    def is_sum(self, node: Call) -> bool:
        """Whether int64 arithmetic is decomposed: it has a position, or at most one input or unbounded param."""
        if node.dtype.kind != "int" or not is_int64(node.dtype):
            return False
        read = {inner for inner in walk(node) if isinstance(inner, Load)}
        params = {inner for inner in walk(node) if isinstance(inner, Scalar) and self.is_unbounded(inner)}
        return self.is_opaque(node) or len(read | params) < 2

    def linear_call(self, node: Call) -> Expression:
        first, *others = map(self.linear, node.args)
        match node.function:
            case "add":
                return total((first, 1), (others[0], 1))
            case "sub":
                return total((first, 1), (others[0], -1))
            case "neg":
                return total((first, -1))
            case "mul":
                return self.product(node, first, others[0])
        return first

    def product(self, node: Call, first: Expression, second: Expression) -> Expression:
        for one, other in ((first, second), (second, first)):
            if isinstance(other, Number):
                return total((one, other.value))
        for one, factor in ((first, node.args[1]), (second, node.args[0])):
            if self.is_positive(factor) and not self.is_uniform(node):
                return Apply("mul", (Value(factor), one))
        return Value(node)

    def is_positive(self, node: Node) -> bool:
        return self.is_uniform(node) and node.dtype.kind == "int" and is_readable(node) and self.bounds(node)[0] > 0

    def called(self, node: Call) -> Expression | None:
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
                return greatest(x, total((x, -1)))
            case "where":
                return Apply("where", (self.condition(args[0]), self.linear(args[1]), self.linear(args[2])))
        return None

    def division(self, node: Call) -> Expression | None:
        arg, by = map(self.linear, node.args)
        if not isinstance(by, Number):
            return Apply("floor_divide", (arg, Value(node.args[1]))) if self.is_positive(node.args[1]) else None
        if not by.value:
            return None
        sign = 1 if by.value > 0 else -1
        return Apply("floor_divide", (total((arg, sign)), Number(by.value * sign)))

    # Conditions

    def condition(self, node: Node) -> Expression:
        """A boolean as a condition; a number is compared with 0."""
        if isinstance(node, Constant) and isinstance(node.value, int | float):
            return TRUE if node.value else FALSE
        if node.dtype.kind != "bool":
            return self.condition(Call("ne", (node, Constant(0, Dtype("int"))), node.axes, BOOL))
        if self.is_uniform(node):
            return Value(node)
        match node:
            case Call(function=function, args=(left, right)) if function in _COMPARISONS and is_integer(left, right):
                return self.comparison(node)
            case Call(function="where", args=(test, then, other)) | Choose(condition=test, then=then, other=other):
                return self.either(self.condition(test), self.condition(then), self.condition(other))
        if not isinstance(node, Call) or not all(self.is_truth(node, arg) for arg in node.args):
            return Value(node)
        operands = tuple(map(self.condition, node.args))
        if node.function in _AND:
            return Apply("and", operands)
        if node.function in _OR:
            return Apply("or", operands)
        if node.function in _NOT:
            return opposite(operands[0])
        if node.function in _DIFFER:
            return self.either(operands[0], opposite(operands[1]), operands[1])
        return self.either(operands[0], operands[1], opposite(operands[1])) if node.function == "eq" else Value(node)

    def is_truth(self, node: Call, arg: Node) -> bool:
        return arg.dtype.kind == "bool" or (node.function.startswith("logical") and arg.dtype.kind == "int")

    def either(self, test: Expression, then: Expression, other: Expression) -> Expression:
        """`then` where the test is true, `other` elsewhere."""
        if then == other:
            return then
        match test:
            case Value() if self.is_known(test):
                return Apply("where", (test, then, other))
            case Apply(function="not", args=(Value() as holds,)) if self.is_known(holds):
                return Apply("where", (holds, other, then))
        both = Apply("and", (test, then)), Apply("and", (opposite(test), other))
        return Apply("or", both)

    def is_known(self, test: Value) -> bool:
        """Whether a kernel can compute a test once for a tile."""
        return self.is_uniform(test.node) and is_readable(test.node)

    def comparison(self, node: Call) -> Expression:
        left, right = node.args
        match node.function:
            case "eq":
                return self.equal(left, right)
            case "ne":
                return opposite(self.equal(left, right))
        sign = -1 if node.function in ("lt", "le") else 1
        difference = total((self.linear(left), sign), (self.linear(right), -sign))
        return self.at_least(plus(difference, -1 if node.function in ("lt", "gt") else 0))

    def equal(self, left: Node, right: Node) -> Expression:
        difference = total((self.linear(left), 1), (self.linear(right), -1))
        return Apply("and", (self.at_least(difference), self.at_least(total((difference, -1)))))

    def at_least(self, linear: Expression) -> Expression:
        """Whether an integer is 0 or more, by comparisons without maxima and choices along the streamed axis."""
        if isinstance(linear, Number):
            return TRUE if linear.value >= 0 else FALSE
        for term, factor in split(linear)[0] if self.streamed in axes_of(linear) else ():
            rest = total((linear, 1), (term, -factor))
            match term:
                case Apply(function="maximum", args=args):
                    operands = tuple(self.at_least(total((rest, 1), (arg, factor))) for arg in args)
                    return Apply("or" if factor > 0 else "and", operands)
                case Apply(function="where", args=(test, *sides)):
                    then, other = (self.at_least(total((rest, 1), (side, factor))) for side in sides)
                    return self.either(test, then, other)
        return at_least_0(linear)


def greatest(*args: Expression) -> Expression:
    return Apply("maximum", args)


def least(*args: Expression) -> Expression:
    return total((greatest(*(total((arg, -1)) for arg in args)), -1))


def is_integer(*nodes: Node) -> bool:
    """Whether a comparison is of integers; a boolean among them counts as 0 or 1."""
    kinds = {node.dtype.kind for node in nodes}
    return kinds <= {"int", "bool"} and "int" in kinds


def is_readable(node: Node) -> bool:
    """Whether a kernel can compute a value where it is needed, from params, lengths and inputs."""
    return not any(isinstance(inner, Reduce | Scan | Take | Ref) for inner in walk(node))
