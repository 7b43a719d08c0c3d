"""Spec -> Op: expressions are parsed by Python's `ast` into an allow-list, and typed.

Axes broadcast by name and dtypes promote as torch's do. All mistakes of a spec are collected;
an expression that has one is left out of what follows, so that one mistake is told once.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .diagnostics import Mistake, Mistakes
from .functions import FUNCTIONS, OPERATORS
from .ir import (
    BOOL,
    INT64,
    Call,
    Cast,
    Choose,
    Constant,
    Dtype,
    Index,
    Kind,
    Load,
    Node,
    Op,
    Ref,
    Result,
    Scalar,
    Size,
    Value,
    walk,
)
from .reductions import REDUCTIONS, build_reduction
from .spec import BATCH, BOOLS, DTYPE_CLASSES, FLOATS, INTS, Input, Output, Spec

CONSTANTS = {
    "inf": float("inf"),
    "nan": float("nan"),
    "pi": 3.141592653589793,
    "e": 2.718281828459045,
}
ALL_DTYPES = DTYPE_CLASSES["any"]
_RANK: dict[Kind, int] = {"bool": 0, "int": 1, "any": 2, "float": 3}


class _Abandoned(Exception):
    """A mistake was recorded and the expression cannot be typed further."""


def typecheck(spec: Spec) -> Op:
    """The operator that a spec describes. Raises `Mistakes` with all that is wrong with its math."""
    return _Typer(spec).op()


def kind_of(dtypes: Iterable[str]) -> Kind:
    names = set(dtypes)
    if names <= set(FLOATS):
        return "float"
    if names <= set(INTS):
        return "int"
    return "bool" if names <= set(BOOLS) else "any"


def promote(*dtypes: Dtype) -> Dtype:
    """torch's promotion: numbers give way to tensors unless they are of a higher kind."""
    strong = [dtype for dtype in dtypes if not dtype.weak] or list(dtypes)
    kind = max((dtype.kind for dtype in strong), key=_RANK.__getitem__)
    of = tuple(dict.fromkeys(name for dtype in strong for name in dtype.of))
    rule = "sum" if any(dtype.rule == "sum" for dtype in strong) else ""
    if kind == "float" and any(d.kind != "float" or d.rule == "float" for d in strong):
        rule = "float"
    number: Kind = max((d.kind for d in dtypes if d.weak), key=_RANK.__getitem__, default="bool")
    if of and number == "float" and kind != "float":
        return Dtype("float", of, "float")
    if of and number == "int" and kind == "bool":
        return INT64
    return Dtype(kind, of, rule)  # type: ignore[arg-type]


def as_float(dtype: Dtype) -> Dtype:
    """What torch's float functions make of an argument: integers become the default float."""
    return dtype if dtype.kind == "float" else Dtype("float", dtype.of, "float")


@dataclass
class _Typer:
    spec: Spec
    mistakes: list[Mistake] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.inputs = {tensor.name: tensor for tensor in self.spec.inputs}
        self.params = {param.name: param for param in self.spec.params}
        axes = [axis for tensor in self.spec.inputs for axis in tensor.type.axes]
        batch = [BATCH] if BATCH in axes else []
        self.axes = tuple(dict.fromkeys(batch + _outer_first(self.spec.inputs, axes)))
        self.sizes = self.fixed_sizes()
        # Where the expression in hand stands.
        self.key: tuple[str, ...] = ()
        self.text = ""
        self.target = ""

    # What can be said of a whole spec

    def fixed_sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for tensor in self.spec.inputs:
            for term in tensor.type.shape:
                for name, size in zip(term.names, term.sizes, strict=True):
                    if size is None:
                        continue
                    if sizes.setdefault(name, size) != size:
                        message = f"axis {name} has size {sizes[name]} in one input and {size} in another"
                        key = ("inputs", tensor.name)
                        self.mistakes.append(Mistake("TG304", message, key, hint="give an axis one size"))
        return sizes

    def op(self) -> Op:
        for statement in self.spec.compute:
            self.statement(statement.name, statement.expression)
        results = [result for output in self.spec.outputs if (result := self.result(output))]
        self.check_used()
        if self.mistakes:
            raise Mistakes(*self.mistakes)
        spec = self.spec
        return Op(
            name=spec.name,
            summary=spec.summary,
            inputs=spec.inputs,
            params=spec.params,
            values=tuple(self.values.values()),
            results=tuple(results),
            axes=self.axes,
            sizes=tuple(sorted(self.sizes.items())),
        )

    def statement(self, name: str, text: str) -> None:
        self.key, self.text, self.target = ("compute", name), text, name
        try:
            tree = ast.parse(f"({text}\n)", mode="eval").body
            node = self.visit(tree)
        except SyntaxError as error:
            start = min(max((error.offset or 2) - 2, 0), max(len(text) - 1, 0))
            self.report("TG201", f"this is not an expression: {error.msg}", start)
            self.broken.add(name)
        except RecursionError:
            self.report("TG201", "this expression is nested too deeply", 0)
            self.broken.add(name)
        except _Abandoned:
            self.broken.add(name)
        else:
            self.values[name] = Value(name, node, " ".join(text.split()))

    def result(self, output: Output) -> Result | None:
        self.key, self.text = ("outputs", output.name), ""
        if output.name not in self.values:
            return None
        node = self.values[output.name].node
        if output.shape is None:
            axes = self.natural_order(node.axes)
        else:
            axes = tuple(name for term in output.shape for name in term.names)
            if set(axes) != set(node.axes):
                has, wants = _list(node.axes), _list(axes)
                message = f"{output.name} has the axes {has}, but [outputs] says {wants}"
                self.report("TG303", message, None, hint=f"write {output.dtype}{has}")
                return None
        if output.dtype == "auto":
            dtype = node.dtype
            if dtype.weak:
                default = {"bool": "bool", "int": "int64"}.get(dtype.kind, "float32")
                dtype = Dtype(kind_of((default,)), (default,))
        elif output.dtype in self.inputs:
            dtype = Dtype(kind_of(self.inputs[output.dtype].type.dtypes), (output.dtype,))
        else:
            dtype = Dtype(kind_of((output.dtype,)), (output.dtype,))
        return Result(output, Ref(output.name, node.axes, node.dtype), axes, dtype)

    def natural_order(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(axis for axis in self.axes if axis in axes)

    def check_used(self) -> None:
        used = {output.name for output in self.spec.outputs}
        for value in self.values.values():
            used |= {n.name for n in walk(value.node) if isinstance(n, Load | Ref | Scalar)}
        for output in self.spec.outputs:
            used.add(output.dtype)
        if self.broken:  # What a broken line would have used is not known.
            return
        for section, names in (
            ("inputs", self.inputs),
            ("params", self.params),
            ("compute", {s.name: s for s in self.spec.compute}),
        ):
            for name in names:
                if name not in used:
                    message = f"{name} is never used"
                    hint = "use it, return it under [outputs], or delete it"
                    self.mistakes.append(Mistake("TG207", message, (section, name), hint=hint))

    # One expression

    def report(self, code: str, message: str, start: int | None, length: int = 1, hint: str = "") -> None:
        self.mistakes.append(Mistake(code, message, self.key, start, length, hint))

    def fail(self, code: str, message: str, at: ast.AST, hint: str = "") -> _Abandoned:
        """Record a mistake at a part of the expression; the caller raises what is returned."""
        start, end = self.offset(at, "lineno", "col_offset"), self.offset(at, "end_lineno", "end_col_offset")
        self.report(code, message, start, max(end - start, 1), hint)
        return _Abandoned()

    def offset(self, at: ast.AST, line: str, column: str) -> int:
        lines = f"({self.text}\n)".split("\n")
        row, col = getattr(at, line, 1), getattr(at, column, 1)
        before = sum(len(text) + 1 for text in lines[: row - 1])
        return before + len(lines[row - 1].encode()[:col].decode(errors="ignore")) - 1

    def visit(self, tree: ast.AST) -> Node:
        match tree:
            case ast.Constant(value=bool() | int() | float() as value):
                return constant(value)
            case ast.Constant(value=str() as value):
                return Constant(value, Dtype("bool"))
            case ast.Name(id=name):
                return self.name(name, tree)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.visit(operand)
            case ast.UnaryOp(op=op, operand=operand):
                node = self.visit(operand)
                if isinstance(op, ast.USub) and isinstance(node, Constant) and isinstance(
                    node.value, int | float
                ):
                    return constant(-node.value)
                return self.call(OPERATORS[_SYMBOLS[type(op)]], [node], tree)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _SYMBOLS:
                return self.binary(_SYMBOLS[type(op)], self.visit(left), self.visit(right), tree)
            case ast.BoolOp(op=op, values=parts):
                nodes = [self.visit(part) for part in parts]
                return self.chain("logical_and" if isinstance(op, ast.And) else "logical_or", nodes, tree)
            case ast.Compare(left=left, ops=ops, comparators=rights):
                return self.compare(tree, [left, *rights], ops)
            case ast.IfExp():
                return self.choose(tree)
            case ast.Call(func=ast.Name(id=name)):
                return self.function(name, tree)
            case _:
                message = f"`{ast.unparse(tree)}` is not part of the language"
                hint = "expressions are made of names, numbers, operators and functions"
                raise self.fail("TG202", message, tree, hint)

    def name(self, name: str, tree: ast.AST) -> Node:
        if name in self.values:
            node = self.values[name].node
            return Ref(name, node.axes, node.dtype)
        if name in self.inputs:
            tensor = self.inputs[name]
            return Load(name, self.natural_order(tensor.type.axes), Dtype(kind_of(tensor.type.dtypes), (name,)))
        if name in self.params:
            kind = self.params[name].kind
            return Scalar(name, Dtype("bool" if kind in ("bool", "enum") else kind))  # type: ignore[arg-type]
        if name in CONSTANTS:
            return constant(CONSTANTS[name])
        if name in self.broken:
            raise _Abandoned
        if name in self.axes:
            hint = f"write index({name}) for the position along it, size({name}) for its length"
            raise self.fail("TG203", f"{name} is an axis, not a value", tree, hint)
        known = [*self.values, *self.inputs, *self.params, *CONSTANTS]
        later = any(name == statement.name for statement in self.spec.compute)
        hint = "lines of [compute] see only the lines above them" if later else suggest(name, known)
        raise self.fail("TG203", f"{name} is not defined", tree, hint)

    def binary(self, symbol: str, left: Node, right: Node, tree: ast.AST) -> Node:
        if symbol == "**" and isinstance(right, Constant) and left.axes:
            powers: dict[object, str] = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
            row = powers.get(right.value)
            if row and (row == "square" or left.dtype.kind == "float"):
                return self.call(row, [left], tree)
        return self.call(OPERATORS[symbol], [left, right], tree)

    def chain(self, function: str, nodes: list[Node], tree: ast.AST) -> Node:
        result = nodes[0]
        for node in nodes[1:]:
            result = self.call(function, [result, node], tree)
        return result

    def compare(self, tree: ast.AST, parts: list[ast.expr], ops: list[ast.cmpop]) -> Node:
        nodes = [self.visit(part) for part in parts]
        pairs: list[Node] = []
        for left, op, right in zip(nodes, ops, nodes[1:]):
            if type(op) not in _SYMBOLS:
                raise self.fail("TG202", "only == != < <= > >= compare", tree)
            if isinstance(left, Scalar) and self.params[left.name].kind == "enum":
                self.check_word(left, right, tree)
            pairs.append(self.call(OPERATORS[_SYMBOLS[type(op)]], [left, right], tree))
        return self.chain("logical_and", pairs, tree)

    def check_word(self, left: Scalar, right: Node, tree: ast.AST) -> None:
        choices = self.params[left.name].choices
        if not isinstance(right, Constant) or right.value not in choices:
            words = ", ".join(f'"{choice}"' for choice in choices)
            raise self.fail("TG205", f"{left.name} is one of {words}", tree, "compare it with one of them")

    def choose(self, tree: ast.IfExp) -> Node:
        condition = self.visit(tree.test)
        if not self.static(condition):
            hint = "write where(condition, a, b) to choose by the values of tensors"
            raise self.fail("TG202", "`a if c else b` needs a condition on flags or words of [params]", tree.test, hint)
        then, other = self.visit(tree.body), self.visit(tree.orelse)
        axes = self.natural_order((*then.axes, *other.axes))
        return Choose(condition, then, other, axes, promote(then.dtype, other.dtype))

    def static(self, node: Node) -> bool:
        leaves = [n for n in walk(node) if not isinstance(n, Call)]
        flags = [n for n in leaves if isinstance(n, Scalar)]
        known = all(isinstance(n, Constant | Scalar) for n in leaves)
        return known and bool(flags) and all(self.params[n.name].kind in ("bool", "enum") for n in flags)

    # Functions

    def function(self, name: str, tree: ast.Call) -> Node:
        special: dict[str, Callable[[ast.Call], Node]] = {
            "index": self.index,
            "size": self.size,
            "take": self.take,
            "cast": self.cast,
        }
        if name in special:
            return special[name](tree)
        if name in REDUCTIONS:
            return build_reduction(self, name, tree)
        if name not in FUNCTIONS:
            hint = suggest(name, [*FUNCTIONS, *REDUCTIONS, *special])
            raise self.fail("TG204", f"there is no function {name}", tree.func, hint)
        names = [arg.name for arg in FUNCTIONS[name].args]
        given: dict[str, Node] = {}
        for arg_name, arg in zip(names, tree.args):
            given[arg_name] = self.visit(arg)
        if len(tree.args) > len(names):
            message = f"{name} takes {len(names)} arguments, not {len(tree.args)}"
            raise self.fail("TG205", message, tree, f"{name}({', '.join(names)})")
        for keyword in tree.keywords:
            if keyword.arg not in names or keyword.arg in given:
                hint = suggest(keyword.arg or "", names) or f"{name}({', '.join(names)})"
                raise self.fail("TG206", f"{name} has no argument {keyword.arg}", tree, hint)
            given[keyword.arg] = self.visit(keyword.value)
        nodes: list[Node] = []
        for wanted in FUNCTIONS[name].args:
            if wanted.name not in given and wanted.required:
                hint = f"{name}({', '.join(names)})"
                raise self.fail("TG205", f"{name} needs its argument {wanted.name}", tree, hint)
            nodes.append(given[wanted.name] if wanted.name in given else _default(wanted.default))
        return self.call(name, nodes, tree)

    def call(self, name: str, args: list[Node], tree: ast.AST) -> Node:
        row = FUNCTIONS[name]
        axes = self.natural_order(tuple(axis for arg in args for axis in arg.axes))
        if row.accepts == "where":
            branches = promote(*(arg.dtype for arg in args[1:]))
            return Call(name, tuple(args), axes, branches)
        dtype = promote(*(arg.dtype for arg in args))
        if row.accepts == "integral" and dtype.kind in ("float", "any"):
            message = f"{name} is for integers and booleans, and this is {_a(dtype.kind)}"
            raise self.fail("TG401", message, tree, "declare the input as int or bool, or cast it")
        if row.accepts == "number" and dtype.kind == "bool" and not dtype.weak:
            raise self.fail("TG401", f"{name} is not defined for booleans", tree, "cast it to a number")
        if row.triton_int and dtype.kind == "any":
            message = f"{name} means one thing for integers and another for floats, and this may be either"
            raise self.fail("TG402", message, tree, "declare the input as float[...] or int[...]")
        if row.result == "bool":
            return Call(name, tuple(args), axes, BOOL)
        return Call(name, tuple(args), axes, as_float(dtype) if row.result == "float" else dtype)

    def axis(self, tree: ast.AST) -> str:
        if isinstance(tree, ast.Constant) and tree.value is Ellipsis:
            return BATCH
        if isinstance(tree, ast.Name) and tree.id in self.axes:
            return tree.id
        text = ast.unparse(tree)
        raise self.fail("TG301", f"{text} is not an axis", tree, suggest(text, self.axes))

    def index(self, tree: ast.Call) -> Node:
        axis = self.one_axis(tree)
        return Index(axis, (axis,))

    def one_axis(self, tree: ast.Call) -> str:
        if len(tree.args) != 1 or tree.keywords:
            raise self.fail("TG205", "this takes one axis", tree, "index(N)")
        axis = self.axis(tree.args[0])
        if axis == BATCH:
            raise self.fail("TG305", "`...` is any number of axes and has no index", tree, "name the axis")
        return axis

    def size(self, tree: ast.Call) -> Node:
        if not tree.args or tree.keywords:
            raise self.fail("TG205", "size takes one or more axes", tree, "size(N)")
        return Size(tuple(self.axis(arg) for arg in tree.args))

    def take(self, tree: ast.Call) -> Node:
        if len(tree.args) != 3 or tree.keywords:
            raise self.fail("TG205", "take needs a tensor, an index and an axis", tree, "take(x, i, N)")
        source, index, axis = self.visit(tree.args[0]), self.visit(tree.args[1]), self.axis(tree.args[2])
        if axis not in source.axes:
            message = f"`{ast.unparse(tree.args[0])}` has no axis {axis} to take from"
            raise self.fail("TG302", message, tree.args[2], f"its axes are {_list(source.axes)}")
        if index.dtype.kind != "int":
            raise self.fail("TG403", "an index is an integer", tree.args[1], "declare it as int[...]")
        return self.substitute(source, axis, index)

    def substitute(self, node: Node, axis: str, index: Node) -> Node:
        """The node with the position along an axis replaced, down to the loads."""
        if axis not in node.axes:
            return node

        def axes_of(*parts: Node) -> tuple[str, ...]:
            return self.natural_order(tuple(a for part in parts for a in part.axes))

        def again(part: Node) -> Node:
            return self.substitute(part, axis, index)

        match node:
            case Index():
                return index
            case Ref(name=name):
                return again(self.values[name].node)
            case Load(name=name, at=at):
                rest = tuple(a for a in node.axes if a != axis)
                moved = tuple((a, again(i)) for a, i in at)
                return Load(name, self.natural_order(rest + index.axes), node.dtype, (*moved, (axis, index)))
            case Call(function=function, args=args):
                parts = tuple(again(arg) for arg in args)
                return Call(function, parts, axes_of(*parts), node.dtype)
            case Cast(arg=arg):
                part = again(arg)
                return Cast(part, node.dtype, part.axes)
            case Choose():
                then, other = again(node.then), again(node.other)
                return Choose(node.condition, then, other, axes_of(then, other), node.dtype)
            case _:
                message = "take reads inputs and what is computed from them element by element, not reductions"
                self.report("TG603", message, 0, len(self.text), "take from what was reduced instead")
                raise _Abandoned

    def cast(self, tree: ast.Call) -> Node:
        if len(tree.args) != 2 or tree.keywords:
            raise self.fail("TG205", "cast needs a value and a dtype", tree, "cast(x, float32)")
        node, to = self.visit(tree.args[0]), tree.args[1]
        if isinstance(to, ast.Name) and to.id in self.inputs:
            return Cast(node, Dtype(kind_of(self.inputs[to.id].type.dtypes), (to.id,)), node.axes)
        if not isinstance(to, ast.Name) or to.id not in ALL_DTYPES:
            text = ast.unparse(to)
            raise self.fail("TG404", f"{text} is not a dtype", to, suggest(text, ALL_DTYPES))
        return Cast(node, Dtype(kind_of((to.id,)), (to.id,)), node.axes)

    def named(self, suffix: str, node: Node) -> Ref | Load:
        """The node under a name of its own, so that what uses it twice reads and computes it once."""
        if isinstance(node, Ref | Load):
            return node
        name = f"{self.target}_{suffix}"
        taken = {*self.values, *self.inputs, *self.params, *(s.name for s in self.spec.compute)}
        while name in taken and not (name in self.values and self.values[name].node == node):
            name += "_"
        self.values[name] = Value(name, node, "")
        return Ref(name, node.axes, node.dtype)


def constant(value: float | int | bool) -> Constant:
    kind: Kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float"
    return Constant(value, Dtype(kind))


def _default(value: float | int | bool | None) -> Constant:
    return Constant(None, Dtype("bool")) if value is None else constant(value)


def suggest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, sorted(known), 1)
    return f"did you mean {close[0]}?" if close else ""


def _outer_first(inputs: tuple[Input, ...], axes: list[str]) -> list[str]:
    """The named axes so that those of the input with most of them keep their order."""
    longest = max(inputs, key=lambda tensor: len(tensor.type.axes), default=None)
    first = list(longest.type.axes) if longest else []
    return [axis for axis in [*first, *axes] if axis != BATCH]


def _list(axes: Iterable[str]) -> str:
    return f"[{', '.join(axes)}]"


def _a(kind: str) -> str:
    return {"any": "of any dtype", "float": "a float", "int": "an integer"}.get(kind, f"a {kind}")


_SYMBOLS: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.USub: "u-",
    ast.Invert: "~",
    ast.Not: "not",
}
