"""Hints for names, functions and syntax that the language does not have."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..diagnostics.report import did_you_mean
from ..spec.grammar import ALL_DTYPES
from ..spec.types import BATCH
from .along import ALONG
from .counted_axes import axes_of, named_axes
from .functions import FUNCTIONS
from .habits import ANSWERS, AXIS_AT, CASTS, MODULES
from .reductions import REDUCTIONS
from .special import SPECIAL
from .syntax import CONSTANTS, instead

if TYPE_CHECKING:
    from .expressions import Expressions

CLAMP_BOUNDS = {("clamp", "max"): "clamp_min(x, min) has no max", ("clamp", "min"): "clamp_max(x, max) has no min"}


def for_name(found: Expressions, name: str) -> str:
    """The hint for a name that is not defined."""
    if any(name == statement.name for statement in found.spec.compute):
        return "lines of [compute] see only the lines above them"
    if name in ("true", "false"):
        return f"write {name.capitalize()}"
    if name in FUNCTIONS or name in REDUCTIONS:
        return f"{name} is a function: write {name}(x)"
    if name.upper() in found.axes:
        return f"{name.upper()} is an axis: size({name.upper()}) is its length"
    known = [*found.values, *found.inputs, *found.params, *CONSTANTS]
    return did_you_mean(name, known, "an expression sees the inputs, the params and the lines above it")


def for_function(found: Expressions, name: str, tree: ast.Call) -> str:
    if name in (*found.values, *found.inputs, *found.params):
        return f"{name} is a value: write * to multiply it, take({name}, i, N) to read at a position"
    known = [*FUNCTIONS, *REDUCTIONS, *SPECIAL, *ALONG]
    return answer(found, name, tree) or did_you_mean(name, known, "`tritongen functions` lists all functions")


def for_syntax(found: Expressions, tree: ast.AST) -> str:
    """The hint for syntax that the language does not have."""
    match tree:
        case ast.Subscript(value=ast.Attribute(attr="shape") as value, slice=at):
            return answer(found, "shape", _called(value.value, at))
        case ast.Subscript(value=ast.Call() | ast.Attribute() as value):
            return for_syntax(found, value)
        case ast.Subscript(value=value, slice=at):
            return _at_positions(found, value, at)
        case ast.BinOp(op=ast.MatMult(), left=left, right=right):
            return answer(found, "matmul", _called(left, right))
        case ast.Attribute(value=ast.Name(id=module), attr="pi" | "e" | "inf" | "nan" as name) if module in MODULES:
            return f"write {name}"
        case ast.Attribute(attr=name) if name in ALL_DTYPES:
            return f"write {name}, as in cast(x, {name})"
        case ast.Attribute(value=value, attr=name):
            return answer(found, name, _called(value)) or "values have no attributes"
        case ast.Call(func=ast.Attribute(value=value, attr=name)):
            called = tree if _module(value) in MODULES else ast.Call(tree.func, [value, *tree.args], tree.keywords)
            return answer(found, name, called) or f"there is no {name}: `tritongen functions` lists all functions"
        case ast.Call():
            return "functions are called by their name alone: exp(x), cast(x, float32)"
    return instead(tree)


def record_subexpressions(found: Expressions, tree: ast.AST) -> None:
    """Record the mistakes in operands of syntax that the language does not have."""
    binds = isinstance(tree, ast.Lambda | ast.NamedExpr | ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp)
    pending = [] if binds else [*ast.iter_child_nodes(tree)]
    known = {*found.axes, *found.values, *found.inputs, *found.params, *MODULES}
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            pending += ast.iter_child_nodes(node)
            continue
        is_value = not isinstance(node, ast.Name) or node.id not in known
        if is_value and isinstance(node, ast.Name | ast.Call | ast.BinOp | ast.UnaryOp | ast.Compare | ast.BoolOp):
            found.record(node)
        elif isinstance(node, ast.Attribute | ast.Subscript | ast.Starred | ast.Tuple | ast.List):
            pending += ast.iter_child_nodes(node)


def answer(found: Expressions, name: str, tree: ast.Call) -> str:
    """The hint for a call that torch, numpy or Python would accept; "" if its name is unknown."""
    if name in CASTS:
        return _cast(name, tree)
    name = "shape" if name == "size" else name
    first = 1 if name in REDUCTIONS else AXIS_AT.get(name, len(tree.args))
    words = _words(found, tree, tree.args[first:])
    if name in ANSWERS:
        return ANSWERS[name].format(**words)
    if name in REDUCTIONS:
        named = words["named"] or f"{words['N']}"
        return f"write {name}({words['x']}, {named})" + ("" if words["named"] else ", with the axes to reduce")
    if name in FUNCTIONS:
        given = [*tree.args, *(ast.keyword(one.arg, one.value) for one in tree.keywords if one.arg)]
        return f"write {name}({', '.join(map(ast.unparse, given))})"
    return ""


def _cast(name: str, tree: ast.Call) -> str:
    texts = [ast.unparse(arg) for arg in (*tree.args, *(one.value for one in tree.keywords))]
    word = str(getattr(tree.args[0], "value", "")) if tree.args else ""
    if word.lstrip("+-") in CONSTANTS:
        return f"write {word}"
    dtype = texts[1].removeprefix("torch.") if name in ("to", "type", "astype") and texts[1:] else CASTS[name]
    return f"write cast({texts[0] if texts else 'x'}, {dtype})"


def _words(found: Expressions, tree: ast.Call, counted: list[ast.expr]) -> dict[str, str]:
    """The values of the fields in `ANSWERS`, and `named`, the axes that the call gives."""
    texts = [_operand(arg) for arg in tree.args if not isinstance(arg, ast.Starred)]
    x, y, z = [*texts, *"xyz"[len(texts) :]][:3]
    axes, other = ([*axes_of(found, arg)] for arg in [*tree.args, None, None][:2])
    by = next((one.value for one in tree.keywords if one.arg in ("dim", "axis")), None)
    named = [axis for arg in [*counted, by] for axis in named_axes(found, axes, arg)]
    last = ["M", "N", *(axis for axis in axes if axis != BATCH)][-2:] if len(axes) != 1 else ["M", *axes]
    shared = [axis for axis in axes if axis in other and axis != BATCH]
    return {
        "x": x,
        "y": y,
        "z": z,
        "M": last[0],
        "N": named[0] if named else last[1],
        "K": shared[0] if len(shared) == 1 else "K",
        "axes": ", ".join(axes) or "M, N",
        "named": ", ".join(named),
        "plus": f" + {y}" if len(texts) > 1 else "",
    }


def _operand(tree: ast.expr) -> str:
    text = ast.unparse(tree)
    return text if isinstance(tree, ast.Name | ast.Call | ast.Constant | ast.Attribute) else f"({text})"


def _at_positions(found: Expressions, value: ast.expr, at: ast.expr) -> str:
    """The hint for indexing as in torch: one `take` for each index."""
    indices = at.elts if isinstance(at, ast.Tuple) else [at]
    axes, text, takes = [*axes_of(found, value)], ast.unparse(value), False
    behind = next((n for n, index in enumerate(indices) if getattr(index, "value", 0) is ...), len(indices))
    for place, index in enumerate(indices):
        if isinstance(index, ast.Slice):
            if index.lower or index.upper or index.step:
                return "there are no slices: write take(x, index(P) + start, N), with P an axis of an input"
        elif getattr(index, "value", 0) not in (None, ...):
            number = ast.Constant(place - len(indices)) if place > behind else ast.Constant(place)
            axis = [*named_axes(found, axes, number), "N"][0]
            text, takes = f"take({text}, {ast.unparse(index)}, {axis})", True
    return f"write {text}, with the axis along which it is read" if takes else ANSWERS["unsqueeze"]


def _called(*indices: ast.expr) -> ast.Call:
    return ast.Call(ast.Name("f"), [*indices], [])


def _module(tree: ast.expr) -> str:
    """The last name of `torch.nn.functional`."""
    return getattr(tree, "attr", getattr(tree, "id", ""))
