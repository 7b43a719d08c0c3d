"""The expressions of a spec -> nodes, each with its axes and dtype.

Axes broadcast by name and dtypes promote as torch's do. A mistake is recorded, and ends the expression that has it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from types import UnionType

from ..diagnostics.report import Mistake, did_you_mean, listed
from ..spec.types import BATCH, FLOAT8S, FLOATS, Input, Spec
from .calls import build_call
from .exact import exact_arguments
from .function import Function
from .functions import FUNCTIONS, OPERATORS, POWERS
from .hints import for_name, for_syntax, record_subexpressions
from .ir import BOOL, Call, Choose, Constant, Dtype, Index, Load, Node, Reduce, Ref, Scalar, Value, walk
from .promotion import as_float, constant, fold_constants, in_range, kind_of, promote
from .special import may_be
from .syntax import CONSTANTS, LEFT_OUT, SYMBOLS, Text, is_none, symbol
from .unfit_constants import check_constants


class Abandoned(Exception):
    """A mistake was recorded, and the expression cannot be typed any further."""


@dataclass
class Expressions:
    """Types expressions one after another: each sees the values before it."""

    spec: Spec
    mistakes: list[Mistake] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    choices: dict[str, list[Node]] = field(default_factory=dict)  # the nodes that a value may be, by the params
    tensors: set[str] = field(default_factory=set)  # the values that read an input or a position
    reduced: set[str] = field(default_factory=set)  # the values that contain reductions

    def __post_init__(self) -> None:
        self.inputs = {tensor.name: tensor for tensor in self.spec.inputs}
        self.params = {param.name: param for param in self.spec.params}
        axes = [axis for tensor in self.spec.inputs for axis in tensor.type.axes]
        own = _outer_first(self.spec.inputs, [*axes, *(one.name for one in self.spec.computed)])
        self.axes = tuple(dict.fromkeys([BATCH] * (BATCH in axes) + own))
        terms = [term for tensor in self.spec.inputs for term in tensor.type.shape]
        lengths = [pair for term in terms for pair in zip(term.names, term.sizes, strict=True)]
        self.sizes = {name: size for name, size in lengths if size is not None}
        # The current expression: its key, its text, and the name that it defines.
        self.key: tuple[str, ...] = ()
        self.text = Text("")
        self.target = ""

    def add(self, value: Value) -> None:
        self.values[value.name] = value
        self.choices[value.name] = self.choices_of(value.node)
        if self.has(self.tensors, value.node, Load | Index):
            self.tensors.add(value.name)
        if self.has(self.reduced, value.node, Reduce):
            self.reduced.add(value.name)

    def choices_of(self, node: Node) -> list[Node]:
        """The nodes that a value may be, depending on the params."""
        match node:
            case Ref(name=name):
                return self.choices[name]
            case Choose(then=then, other=other):
                return [*dict.fromkeys([*self.choices_of(then), *self.choices_of(other)])]
        return [node]

    def has(self, names: set[str], node: Node, kind: type | UnionType) -> bool:
        """Whether an expression references one of `names`, or contains a node of type `kind`."""
        return any(inner.name in names if isinstance(inner, Ref) else isinstance(inner, kind) for inner in walk(node))

    def natural_order(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(axis for axis in self.axes if axis in axes)

    def report(self, code: str, message: str, start: int | None, length: int = 1, hint: str = "") -> None:
        self.mistakes.append(Mistake(code, message, self.key, start, length, hint))

    def fail(self, code: str, message: str, at: ast.AST, hint: str = "") -> Abandoned:
        """Record a mistake at the subexpression `at`, and return the exception for the caller to raise."""
        self.report(code, message, *self.text.span(at), hint)
        return Abandoned()

    def visit(self, tree: ast.AST) -> Node:
        match tree:
            case ast.Constant(value=bool() | int() | float() as value):
                try:
                    return constant(in_range(value))
                except ArithmeticError as error:
                    raise self.fail("TG208", f"this number cannot be used: {error}", tree) from None
            case ast.Constant(value=str()):
                hint = "a word is what a param of choices is compared with: mode == 'tanh'"
                raise self.fail("TG202", f"{ast.unparse(tree)} is a word, not a value", tree, hint)
            case ast.Name(id=name):
                return self.name(name, tree)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.visit(operand)
            case ast.UnaryOp(op=op, operand=operand):
                return self.call(OPERATORS[SYMBOLS[type(op)]], [self.visit(operand)], tree)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in SYMBOLS:
                first, second = self.visit_all((left, right))
                return self.binary(SYMBOLS[type(op)], first, second, tree)
            case ast.BoolOp(op=op, values=operands):
                function = "logical_and" if isinstance(op, ast.And) else "logical_or"
                return self.chain(function, self.visit_all(operands), tree)
            case ast.Compare(left=left, ops=ops, comparators=rights):
                return self.compare(tree, [left, *rights], ops)
            case ast.IfExp():
                return self.choose(tree)
            case ast.Call(func=ast.Name(id=name)):
                return build_call(self, name, tree)
            case _:
                raise self.refuse(tree)

    def refuse(self, tree: ast.AST) -> Abandoned:
        message = f"`{ast.unparse(tree)}` is not part of the language"
        hint = LEFT_OUT if is_none(tree) else for_syntax(self, tree)
        abandoned = self.fail("TG202", message, tree, hint)
        record_subexpressions(self, tree)
        return abandoned

    def visit_all(self, trees: Iterable[ast.AST]) -> list[Node]:
        """The nodes of several operands. Records the mistakes of all operands before it raises `Abandoned`."""
        nodes, abandoned = [], None
        for tree in trees:
            try:
                nodes.append(self.visit(tree))
            except Abandoned as error:
                abandoned = error
        if abandoned:
            raise abandoned
        return nodes

    def record(self, tree: ast.AST) -> None:
        """Record the mistakes of a subexpression."""
        with suppress(Abandoned):
            self.visit(tree)

    def tried(self, tree: ast.AST) -> Node | None:
        """The node of a subexpression, None if it has a mistake. Records neither mistakes nor uses of names."""
        before = len(self.mistakes), {*self.used}
        try:
            return self.visit(tree)
        except Abandoned:
            return None
        finally:
            del self.mistakes[before[0] :]
            self.used = before[1]

    def name(self, name: str, tree: ast.AST) -> Node:
        self.used.add(name)
        if name in self.values:
            node = self.values[name].node
            return Ref(name, node.axes, node.dtype)
        if name in self.inputs:
            tensor = self.inputs[name]
            return Load(name, self.natural_order(tensor.type.axes), self.dtype_of(name))
        if name in self.params:
            kind = self.params[name].kind
            if kind == "enum":
                hint = f"compare it: {name} == '{self.params[name].choices[0]}'"
                raise self.fail("TG202", f"{name} is a word, not a value", tree, hint)
            return Scalar(name, Dtype(kind))  # type: ignore[arg-type]
        if name in CONSTANTS:
            return constant(CONSTANTS[name])
        if name in self.broken:
            raise Abandoned
        if name in self.axes:
            hint = f"write index({name}) for the position along it, size({name}) for its length"
            raise self.fail("TG203", f"{name} is an axis, not a value", tree, hint)
        raise self.fail("TG203", f"{name} is not defined", tree, for_name(self, name))

    def dtype_of(self, name: str) -> Dtype:
        """The dtype of an input. A float8 input has a weak dtype, as a constant does: other floats take precedence."""
        if self.is_float8(name):
            return Dtype("float")
        leaf = self.always_given(name)
        optional = self.inputs[leaf].default is not None
        return Dtype(kind_of(self.inputs[name].type.dtypes), (leaf,), optional=optional)

    def always_given(self, name: str) -> str:
        """`name`, or for an optional input a required input of the same shared type, if there is one."""
        own = self.inputs[name]
        if own.default is None or not own.type.variable:
            return name
        same_type = (one.name for one in self.inputs.values() if one.type.variable == own.type.variable)
        return next((other for other in same_type if self.inputs[other].default is None), name)

    def is_float8(self, name: str) -> bool:
        return set(self.inputs[name].type.dtypes) <= set(FLOAT8S)

    def binary(self, symbol: str, left: Node, right: Node, tree: ast.AST) -> Node:
        if (
            symbol == "**"
            and isinstance(right, Constant)
            and left.axes
            and (node := self.power(left, right.value, tree)) is not None
        ):
            return node
        return self.call(OPERATORS[symbol], [left, right], tree)

    def power(self, base: Node, exponent: object, tree: ast.AST) -> Node | None:
        """A power as a simpler function or as products; None if it needs `pow`."""
        is_power = isinstance(exponent, int) and not isinstance(exponent, bool) and exponent > 1
        if base.dtype.kind == "bool" or (base.dtype.kind != "float" and not is_power):
            return None  # torch promotes integers before it computes such a power.
        if isinstance(exponent, int | float) and exponent in POWERS:
            return self.call(POWERS[exponent], [base], tree)
        if exponent not in (3, 4):
            return None
        base = self.named("base", base)
        square = self.call("square", [base], tree)
        if exponent == 3:
            return self.call("mul", [square, base], tree)
        return self.call("square", [self.named("square", square)], tree)

    def chain(self, function: str, nodes: list[Node], tree: ast.AST) -> Node:
        result = nodes[0]
        for node in nodes[1:]:
            result = self.call(function, [result, node], tree)
        return result

    def compare(self, tree: ast.Compare, operands: list[ast.expr], ops: list[ast.cmpop]) -> Node:
        if any(type(op) not in SYMBOLS for op in ops):
            raise self.refuse(tree)
        for operand in operands:
            if isinstance(operand, ast.Name) and operand.id in self.params and self.params[operand.id].kind == "enum":
                return self.compare_word(tree, operand, operands, ops)
        nodes = self.visit_all(operands)
        pairs = [
            self.call(OPERATORS[SYMBOLS[type(op)]], [left, right], tree)
            for left, op, right in zip(nodes, ops, nodes[1:], strict=False)
        ]
        return self.chain("logical_and", pairs, tree)

    def compare_word(self, tree: ast.Compare, param: ast.Name, operands: list[ast.expr], ops: list[ast.cmpop]) -> Node:
        """A comparison of a param that has choices with one of the choices."""
        choices = self.params[param.id].choices
        if len(operands) > 2 or not isinstance(ops[0], ast.Eq | ast.NotEq):
            hint = f"as in {param.id} == '{choices[0]}'"
            raise self.fail("TG202", "words compare by == and != only", tree, hint)
        word = operands[1] if operands[0] is param else operands[0]
        if not isinstance(word, ast.Constant) or word.value not in choices:
            found = word.value if isinstance(word, ast.Constant) else ""
            hint = did_you_mean(str(found), choices, f"its choices are {listed(choices)}")
            raise self.fail("TG205", f"{ast.unparse(word)} is no choice of {param.id}", word, hint)
        self.used.add(param.id)
        nodes: list[Node] = [Scalar(param.id, Dtype("bool")), Constant(word.value, Dtype("bool"))]
        return self.call(OPERATORS[SYMBOLS[type(ops[0])]], nodes, tree)

    def choose(self, tree: ast.IfExp) -> Node:
        condition, then, other = self.visit_all((tree.test, tree.body, tree.orelse))
        if not self.static(condition):
            operands = ", ".join(map(ast.unparse, (tree.test, tree.body, tree.orelse)))
            hint = f"write where({operands}) to choose by the values of tensors"
            message = "`a if c else b` needs a condition on flags or words of [params]"
            raise self.fail("TG202", message, tree.test, hint)
        axes = self.natural_order((*then.axes, *other.axes))
        return Choose(condition, then, other, axes, promote(then, other))

    def static(self, node: Node) -> bool:
        leaves = [n for n in walk(node) if not isinstance(n, Call)]
        flags = [n for n in leaves if isinstance(n, Scalar)]
        known = all(isinstance(n, Constant | Scalar) for n in leaves)
        kinds = {self.params[n.name].kind for n in flags}
        return known and bool(flags) and kinds <= {"bool", "enum"}

    def call(self, name: str, args: list[Node], tree: ast.AST) -> Node:
        row = FUNCTIONS[name]
        axes = self.natural_order(tuple(axis for arg in args for axis in arg.axes))
        if row.accepts == "where":
            check_constants(self, name, args, tree)
            branches = promote(*args[1:])
            return Call(name, tuple(args), axes, branches)
        try:
            folded = fold_constants(name, args)
        except ArithmeticError as error:
            raise self.fail("TG208", f"this number cannot be used: {error}", tree) from None
        if folded is not None:
            return folded
        check_constants(self, name, args, tree)
        if args and all(isinstance(arg, Constant) for arg in args):
            message = f"{name} is computed of tensors and params, and these are numbers alone"
            raise self.fail("TG208", message, tree, "write the number that it is")
        # Optional arguments, such as the replacements of nan_to_num, do not promote.
        dtype = promote(*(arg for want, arg in zip(row.args, args, strict=True) if want.required))
        self.check_kind(row, args, dtype, tree)
        if row.result == "bool":
            dtype = BOOL
        elif row.result == "float":
            dtype = as_float(dtype)
        return Call(name, exact_arguments(name, tuple(args), self.values), axes, dtype)

    def check_kind(self, row: Function, args: list[Node], dtype: Dtype, tree: ast.AST) -> None:
        """Refuse dtypes that the function does not accept."""
        what = f"`{symbol(tree)}`" if symbol(tree) else row.name
        if row.accepts == "integral" and self.may_be_float(dtype):
            message = f"{what} is for integers and booleans, and this {may_be(dtype.kind)}"
            hint = "declare the input as int[...] or bool[...], or cast it"
            if symbol(tree) in ("&", "|"):
                hint = "compare first, in parentheses: (x > 0) & (x < 1)"
            elif symbol(tree) == "^":
                hint = "a power is written **, as in x ** 2"
            raise self.fail("TG401", message, tree, hint)
        if row.accepts == "number" and self.may_be_bool(dtype, args):
            maybe = dtype.kind == "any"
            message = f"{what} is for numbers, and this {'may be' if maybe else 'is'} a boolean"
            hint = "declare the input as number[...]" if maybe else "cast it: cast(x, int32)"
            raise self.fail("TG401", message, tree, hint)
        if row.name == "bitwise_not" and dtype.kind == "any" and (dtype.rule or len(dtype.of) > 1):
            hint = "cast what it is of: cast(x, int32)"
            raise self.fail("TG402", f"{what} differs between integers and booleans, which this may be", tree, hint)
        if row.triton_int and dtype.kind == "any" and self.may_be_float(dtype):
            message = f"{what} differs between integers and floats, and this may be either"
            raise self.fail("TG402", message, tree, "declare the input as float[...] or int[...]")

    def may_be_float(self, dtype: Dtype) -> bool:
        """Whether a dtype may be a float when the operator is called."""
        leaves = (self.inputs[n].type.may_be_float if n in self.inputs else n in FLOATS for n in dtype.leaves)
        return dtype.kind == "float" or (dtype.kind == "any" and any(leaves))

    def may_be_bool(self, dtype: Dtype, args: list[Node]) -> bool:
        if dtype.weak or dtype.rule or any(arg.dtype == Dtype("int") for arg in args):
            return False
        return all("bool" in (self.inputs[n].type.dtypes if n in self.inputs else (n,)) for n in dtype.leaves)

    def axis(self, tree: ast.AST, instead: str = "") -> str:
        """The axis that a subexpression names. `instead` replaces the hint of the diagnostic if it names none."""
        if isinstance(tree, ast.Constant) and tree.value is Ellipsis and BATCH in self.axes:
            return BATCH
        if isinstance(tree, ast.Name) and tree.id in self.axes:
            self.used.add(tree.id)
            return tree.id
        text = ast.unparse(tree)
        hint = did_you_mean(text, self.axes, f"the axes are {', '.join(self.axes)}")
        if isinstance(tree, ast.Constant) and tree.value in self.axes:
            hint = f"write {tree.value} without quotes"
        raise self.fail("TG301", f"{text} is not an axis", tree, instead or hint)

    def one_axis(self, tree: ast.AST, function: str, instead: str = "") -> str:
        axis = self.axis(tree, instead)
        if axis == BATCH:
            message = f"`...` is any number of axes, and {function} is along one"
            raise self.fail("TG305", message, tree, "give the axis a name in [inputs]")
        return axis

    def named(self, suffix: str, node: Node) -> Ref | Load:
        """The node as a line of its own (unless it is a line or input), so that it is computed once if used twice."""
        return node if isinstance(node, Ref | Load) else self.line_of(suffix, node)

    def line_of(self, suffix: str, node: Node) -> Ref:
        if isinstance(node, Ref):
            return node
        name = f"{self.target}_{suffix}"
        used = {*self.values, *self.inputs, *self.params, *(s.name for s in self.spec.compute)}
        while name in used and not (name in self.values and self.values[name].node == node):
            name += "_"
        self.add(Value(name, node, ""))
        return Ref(name, node.axes, node.dtype)


def _outer_first(inputs: tuple[Input, ...], axes: list[str]) -> list[str]:
    """The named axes: first the axes of the input with the most axes, in its order."""
    longest = max(inputs, key=lambda tensor: len(tensor.type.axes), default=None)
    first = list(longest.type.axes) if longest else []
    return [axis for axis in [*first, *axes] if axis != BATCH]


def axis_list(axes: Iterable[str]) -> str:
    return f"[{', '.join(axes)}]"
