"""Computed lengths of [axes]: from formulas to nodes, to integers, and to expressions of the host code.

A formula is integer arithmetic over the lengths of other axes, by name, and integer params.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from ..diagnostics.report import Mistake
from ..spec.lengths import LENGTH
from ..spec.types import Input, Param, ParamValue, Statement, inference_order
from .functions import OPERATORS
from .integers import INT64, IntegerBounds, bounds_in
from .ir import Call, Constant, Dtype, Formula, Node, Op, Scalar, Size, walk
from .promotion import ARITHMETIC
from .syntax import SYMBOLS, NotAnExpression, Text, symbol
from .unparse import operation

if TYPE_CHECKING:
    from .expressions import Expressions

INT = Dtype("int")
_OPERATORS = {symbol: OPERATORS[symbol] for symbol in ("+", "-", "*", "//", "%", "u-")}
_ALLOWED = "a formula has lengths, integer params, integers, + - * // % and minimum, maximum"


# Reading


def formulas_of(typer: Expressions) -> tuple[Formula, ...]:
    """The formulas of a spec, each after the formulas that it reads. Records their mistakes.

    Formulas that read neither params nor variable lengths are evaluated into `typer.sizes`.
    """
    found: dict[str, Formula] = {}
    for statement in typer.spec.computed:
        if (node := _node_of(typer, statement)) is not None:
            source = " ".join(statement.expression.split())
            found[statement.name] = Formula(statement.name, node, source)
    ordered = _in_order(typer, found)
    for formula in ordered:
        if _is_fixed(formula.node, typer.sizes):
            _fix(typer, formula)
    return tuple(ordered)


def _node_of(typer: Expressions, statement: Statement) -> Node | None:
    from .expressions import Abandoned

    typer.key, typer.text, typer.target = ("axes", statement.name), Text(statement.expression), statement.name
    with suppress(Abandoned):
        try:
            return _visit(typer, typer.text.parse())
        except NotAnExpression as error:
            typer.report("TG201", error.message, error.start, hint=error.hint)
    typer.broken.add(statement.name)
    return None


def _visit(typer: Expressions, tree: ast.expr) -> Node:
    match tree:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return Constant(value, INT)
        case ast.Name(id=name):
            return _named(typer, name, tree)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _visit(typer, operand)
        case ast.UnaryOp(op=op, operand=operand) if SYMBOLS.get(type(op)) in _OPERATORS:
            return _call("neg", _visit(typer, operand))
        case ast.BinOp(left=left, op=op, right=right) if SYMBOLS.get(type(op)) in _OPERATORS:
            function = _OPERATORS[SYMBOLS[type(op)]]
            nodes = _visit(typer, left), _visit(typer, right)
            if function in ("floor_divide", "remainder"):
                _check_divisor(typer, nodes[1], right)
            return _call(function, *nodes)
        case ast.Call(func=ast.Name(id="minimum" | "maximum" as function), args=[left, right], keywords=[]):
            return _call(function, _visit(typer, left), _visit(typer, right))
    hint = "a length is an integer: write //" if symbol(tree) == "/" else _ALLOWED
    if isinstance(tree, ast.Call) and ast.unparse(tree.func) == "size":
        hint = "the name of an axis is its length here"
    raise typer.fail("TG307", f"`{ast.unparse(tree)}` is no part of a formula of [axes]", tree, hint)


def _call(function: str, *args: Node) -> Node:
    """A call, folded to a `Constant` if all arguments are constants."""
    node = Call(function, args, (), INT)
    return Constant(value_of(node, {}, {}), INT) if all(isinstance(arg, Constant) for arg in args) else node


def _named(typer: Expressions, name: str, tree: ast.Name) -> Node:
    if name in typer.axes:
        typer.used.add(name)
        return Size((name,))
    if name in typer.params:
        typer.used.add(name)
        kind = typer.params[name].kind
        if kind == "int":
            return Scalar(name, INT)
        what = {"float": "a float", "bool": "a flag", "enum": "a word"}[kind]
        hint = f"write an integer param: {name} = 1" if kind == "float" else "write a spec for each"
        raise typer.fail("TG307", f"a length is computed of integers, and {name} is {what}", tree, hint)
    if name in {*typer.inputs, *(one.name for one in typer.spec.compute)}:
        message = f"a length is computed before there are values, and {name} is one"
        raise typer.fail("TG307", message, tree, _ALLOWED)
    near = name.upper() if name.upper() in typer.axes else ""
    hint = f"did you mean '{near}'?" if near else f"the axes are {', '.join(typer.axes)}"
    raise typer.fail("TG203", f"{name} is neither an axis nor a param", tree, hint)


def _check_divisor(typer: Expressions, node: Node, tree: ast.expr) -> None:
    """Refuse a divisor that may be less than 1."""
    low, _ = IntegerBounds(typer.sizes, typer.params).bounds(node) or INT64
    if low > 0:
        return
    text = ast.unparse(tree)
    hint = f"write maximum({text}, 1)"
    if isinstance(node, Scalar):
        default = typer.params[node.name].default
        setting = f"default = {default}" if isinstance(default, int) and default > 0 else 'type = "int"'
        hint = f"bound it: {node.name} = {{ {setting}, min = 1 }}"
    raise typer.fail("TG307", f"{text} may be less than 1, and divides here", tree, hint)


def _in_order(typer: Expressions, found: Mapping[str, Formula]) -> list[Formula]:
    """The formulas, each after the formulas that it reads, without cycles (reported) and formulas that read one."""
    ordered: dict[str, Formula] = {}
    left = dict(found)
    while ready := [one for one in left.values() if left.keys().isdisjoint(one.reads)]:
        ordered |= {one.axis: one for one in ready}
        left = {axis: one for axis, one in left.items() if axis not in ordered}
    setting: set[str] = set()
    for axis in left:
        if circle := _circle(left, axis):
            if setting.isdisjoint(circle):
                chain = " -> ".join((*circle, axis))
                message = f"the length of {axis} is computed of itself: {chain}"
                hint = "let an input have one of them, or give it a length"
                typer.mistakes.append(Mistake("TG308", message, ("axes", axis), 0, hint=hint))
            setting.update(circle)
    return [*ordered.values()]


def _circle(formulas: Mapping[str, Formula], axis: str) -> tuple[str, ...]:
    """The shortest cycle of formulas that `axis` is on, starting with it; () if there is none."""
    pending: list[tuple[str, ...]] = [(axis,)]
    seen = set[str]()
    while pending:
        path = pending.pop(0)
        for other in sorted(formulas[path[-1]].reads & formulas.keys()):
            if other == axis:
                return path
            if other not in seen:
                seen.add(other)
                pending.append((*path, other))
    return ()


def _is_fixed(node: Node, sizes: Mapping[str, int]) -> bool:
    nodes = walk(node)
    return not any(isinstance(one, Scalar) or (isinstance(one, Size) and one.over[0] not in sizes) for one in nodes)


def _fix(typer: Expressions, formula: Formula) -> None:
    """Evaluate a formula into `typer.sizes`, or report that its length is out of range."""
    size = value_of(formula.node, typer.sizes, {})
    if 1 <= size < 2**31:
        typer.sizes[formula.axis] = size
        return
    must = "be at least 1" if size < 1 else "fit in 32 bits"
    message = f"the length of an axis must {must}, and {formula.axis} is {size}"
    typer.mistakes.append(Mistake("TG126", message, ("axes", formula.axis), 0))


# Values


def value_of(node: Node, lengths: Mapping[str, int], params: Mapping[str, ParamValue]) -> int:
    match node:
        case Constant(value=int() as value):
            return value
        case Size(over=(axis,)):
            return lengths[axis]
        case Scalar(name=name):
            return int(params[name])
        case Call(function=function, args=args):
            return int(ARITHMETIC[function](*(value_of(arg, lengths, params) for arg in args)))
    raise AssertionError(f"a formula has no {type(node).__name__}")


def may_be_negative(op: Op, formula: Formula) -> bool:
    low, _ = bounds_in(op).bounds(formula.node) or INT64
    return low < 0


def lengths_by(op: Op, lengths: Mapping[str, int], params: Mapping[str, ParamValue]) -> dict[str, int]:
    """The fixed and the given lengths, and each computed length whose formula can be evaluated from them."""
    found = dict(op.sizes) | {axis: length for axis, length in lengths.items() if axis not in op.computed}
    for formula in op.formulas:
        if formula.axis not in found and formula.reads <= found.keys():
            found[formula.axis] = value_of(formula.node, found, params)
    return found


def typical_params(params: Iterable[Param]) -> dict[str, ParamValue]:
    """A value for each integer param in cost estimates: its default, else its minimum, but at least 1."""
    ints = [param for param in params if param.kind == "int"]
    return {one.name: max(1, int(one.minimum or 0)) if one.default is None else one.default for one in ints}


def typical_lengths(op: Op, lengths: Mapping[str, int]) -> dict[str, int]:
    """The computed lengths in cost estimates, from `lengths` and `LENGTH` for other axes; `LENGTH` if not positive."""
    every = dict.fromkeys(op.axes, LENGTH) | dict(lengths)
    found = lengths_by(op, every, typical_params(op.params))
    return {one.axis: length if (length := found[one.axis]) > 0 else LENGTH for one in op.formulas}


# The host


@lru_cache(maxsize=2**10)
def python(node: Node) -> ast.expr:
    """A formula as an expression of the host code, where each axis is a variable."""
    match node:
        case Constant(value=int() as value):
            return ast.Constant(value)
        case Size(over=(axis,)):
            return ast.Name(axis)
        case Scalar(name=name):
            return ast.Name(name)
        case Call(function=function, args=args):
            trees = [*map(python, args)]
            return operation(function, *trees) or ast.Call(ast.Name(function[:3]), trees, [])  # min and max
    raise AssertionError(f"a formula has no {type(node).__name__}")


def by_params(formulas: Iterable[Formula], inputs: Iterable[Input], sizes: Iterable[str]) -> tuple[Formula, ...]:
    """The formulas that read only `sizes` and one another, without axes that a required input has as a dimension of
    their own: the others are lengths by which groups are unflattened.
    """
    setting, known = alone(inputs), {*sizes}
    found: list[Formula] = []
    for formula in formulas:
        if formula.reads <= known and formula.axis not in setting | known:
            found.append(formula)
            known.add(formula.axis)
    return tuple(found)


def inputs_in_order(op: Op) -> list[Input]:
    """The inputs in `inference_order`, given the lengths that are fixed or follow from params alone."""
    early = by_params(op.formulas, op.inputs, dict(op.sizes))
    return inference_order(op.inputs, {*dict(op.sizes), *(formula.axis for formula in early)})


def wanted_of(axes: Iterable[str], formulas: Iterable[Formula]) -> list[Formula]:
    """The formulas that the lengths of `axes` depend on, directly or through other formulas, in order."""
    wanted, found = {*axes}, list[Formula]()
    for formula in reversed([*formulas]):
        if formula.axis in wanted:
            found.insert(0, formula)
            wanted |= formula.reads
    return found


def alone(inputs: Iterable[Input]) -> set[str]:
    """The axes that required inputs have in a dimension of their own."""
    terms = [term for tensor in inputs if tensor.default is None for term in tensor.type.shape]
    return {name for term in terms if len(term.names) == 1 for name in term.names}


def lengths_in_order(
    inputs: tuple[Input, ...], formulas: Iterable[Formula], sizes: Iterable[str]
) -> list[Input | Formula]:
    """The inputs and formulas that determine lengths, each after all that it reads: inputs in `inference_order`, and
    formulas of axes that no required input has as a dimension of their own.
    """
    fixed, setting = {*sizes}, alone(inputs)
    left = [formula for formula in formulas if formula.axis not in setting | fixed]
    known, found = {*fixed}, list[Input | Formula]()
    while True:
        ready = next((formula for formula in left if formula.reads <= known), None)
        order = [] if ready else [one for one in inference_order(inputs, fixed) if one not in found]
        if ready is not None:
            left.remove(ready)
            fixed.add(ready.axis)
            known.add(ready.axis)
            found.append(ready)
        elif order:
            found.append(order[0])
            known |= {*order[0].type.axes}
        else:
            return found
