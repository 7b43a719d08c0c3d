"""Nodes -> the spec language, for derived lines in comments and docstrings."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Any

from .functions import FUNCTIONS, OPERATORS
from .ir import (
    Call,
    Cast,
    Choose,
    Constant,
    Index,
    Load,
    Node,
    Reduce,
    Ref,
    Scalar,
    Scan,
    ScatterSum,
    Size,
    Take,
    children,
)
from .syntax import SYMBOLS
from .trees import literal

_KINDS = {symbol: kind for kind, symbol in SYMBOLS.items()} | {"and": ast.And, "or": ast.Or}
_OPERATOR: dict[str, type[Any]] = {function: _KINDS[symbol] for symbol, function in OPERATORS.items()}


@lru_cache(maxsize=2**14)
def spelled(node: Node) -> str:
    return ast.unparse(_tree(node))


def _tree(node: Node) -> ast.expr:
    match node:
        case Constant(value=float() as value) if value != value or abs(value) == float("inf"):
            return ast.Name(str(value))
        case Constant(value=value):
            return literal(value)
        case Scalar(name=name) | Ref(name=name):
            return ast.Name(name)
        case Load(at=at) | Take(at=at):
            tree: ast.expr = _tree(node.arg) if isinstance(node, Take) else ast.Name(node.name)
            for axis, index in at:
                tree = _applied("take", tree, _tree(index), ast.Name(axis))
            return tree
        case Index(axis=axis):
            return _applied("index", ast.Name(axis))
        case Size(over=over):
            return _applied("size", *map(_axis, over))
        case Cast(arg=arg, dtype=dtype):
            return _applied("cast", _tree(arg), ast.Name(dtype.of[0]))
        case Choose(condition=condition, then=then, other=other):
            return ast.IfExp(_tree(condition), _tree(then), _tree(other))
        case Reduce() | ScatterSum() | Scan():
            return _along(node)
        case Call(function=function, args=args):
            return _call(function, tuple(map(_tree, args)), args)


def _along(node: Reduce | ScatterSum | Scan) -> ast.Call:
    """A reduction, scatter or scan as a call, with its axes as arguments."""
    if isinstance(node, Reduce):
        name = f"strip_{node.kind}" if node.strips else node.kind
        call = _applied(name, _tree(node.arg), *map(_axis, node.over))
        if node.kind == "var":
            call.keywords = [ast.keyword("correction", ast.Constant(node.correction))]
    elif isinstance(node, ScatterSum):
        call = _applied(node.kind, _tree(node.arg), _tree(node.at), *map(_axis, node.into))
        named = [*map(_axis, node.over)]
        several = named[0] if len(named) == 1 else ast.Tuple(named)
        call.keywords = [ast.keyword("over", several)] if node.lines else []
    else:
        call = _applied(node.kind, *map(_tree, children(node)), ast.Name(node.over))
        option = "descending" if node.kind == "argsort" else "reverse"
        call.keywords = [ast.keyword(option, ast.Constant(True))] if node.reverse else []
    return call


def operation(function: str, *trees: ast.expr) -> ast.expr | None:
    """A function as an operator of the language; None if there is no operator for it."""
    kind = _OPERATOR.get(function)
    if kind is None:
        return None
    if issubclass(kind, ast.cmpop):
        return ast.Compare(trees[0], [kind()], [trees[1]])
    if issubclass(kind, ast.operator):
        return ast.BinOp(trees[0], kind(), trees[1])
    return ast.BoolOp(kind(), [*trees]) if issubclass(kind, ast.boolop) else ast.UnaryOp(kind(), trees[0])


def _call(function: str, trees: tuple[ast.expr, ...], args: tuple[Node, ...]) -> ast.expr:
    if not function.startswith("bitwise") and (tree := operation(function, *trees)):
        return tree
    row = FUNCTIONS[function]
    given = list(trees)
    while given and row.args[len(given) - 1].default == getattr(args[len(given) - 1], "value", ...):
        given.pop()
    return _applied(function, *given)


def _applied(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name), list(args), [])


def _axis(axis: str) -> ast.expr:
    return ast.Constant(...) if axis == "..." else ast.Name(axis)
