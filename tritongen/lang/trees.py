"""Helpers for Python's `ast`, by which lowering and unparsing build expressions."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def parse(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@functools.lru_cache(maxsize=1024)
def parsed_module(text: str) -> ast.Module:
    """A parsed module, cached: callers must not modify it. A build reads each module of templates/ by it."""
    return ast.parse(text)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The children of a node, without contexts and operators, which have none."""
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            yield from (one for one in value if isinstance(one, ast.AST))
        elif isinstance(value, ast.AST) and value._fields:
            yield value


def walk(tree: ast.AST) -> list[ast.AST]:
    """A node and all below it in the order of `ast.walk`, without contexts and operators, in half the time."""
    found = [tree]
    for node in found:
        found += _children(node)
    return found


class Visitor(ast.NodeVisitor):
    """`ast.NodeVisitor` without contexts and operators, which halves its time."""

    def generic_visit(self, node: ast.AST) -> None:
        for child in _children(node):
            self.visit(child)


def literal(value: float | int | bool | str | None) -> ast.expr:
    if isinstance(value, float) and not math.isfinite(value):
        return parse(f'float("{value}")')
    return ast.Constant(value)


def parenthesized(tree: ast.expr) -> ast.expr:
    """The tree with parentheses around an `and` that is the first operand of an `or`, as linters ask.

    `ast.unparse` omits them there, but writes them around the only operand of another `and`.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            first = node.values[0]
            if isinstance(first, ast.BoolOp) and isinstance(first.op, ast.And) and len(first.values) > 1:
                node.values[0] = ast.BoolOp(ast.And(), [first])
    return tree


def changed(tree: ast.AST, change: Callable[[ast.AST], ast.AST | None]) -> Any:
    """The tree with each node replaced for which `change` does not return None."""
    if (other := change(tree)) is not None:
        return other

    def inside(value: Any) -> Any:
        if isinstance(value, list):
            return [inside(one) for one in value]
        return changed(value, change) if isinstance(value, ast.AST) else value

    return ast.copy_location(type(tree)(**{name: inside(value) for name, value in ast.iter_fields(tree)}), tree)


def substitute(template: ast.expr, names: Mapping[str, ast.expr]) -> ast.expr:
    result = changed(template, lambda node: names.get(node.id) if isinstance(node, ast.Name) else None)
    assert isinstance(result, ast.expr)
    return result


def rounded(template: ast.expr) -> ast.expr:
    """The template with operands of additions rounded, so that no compiler contracts a multiplication into an FMA.

    Quotients, most functions of the GPU and device functions may end in a multiplication, too. Of arguments, those of
    device functions alone are rounded, because these may add to them.
    """
    result = _Rounding().visit(template)
    assert isinstance(result, ast.expr)
    return _with_rounding(result)


def multiplies(node: ast.expr) -> bool:
    """Whether the operation at the root is, or may end in, a multiplication."""
    match node:
        case ast.BinOp(op=ast.Mult() | ast.Div()):
            return True
        case ast.Call(func=ast.Name()):
            return True
        case ast.Call(func=ast.Attribute(attr=name)):
            return name not in _EXACT
    return False


_EXACT = {"abs", "ceil", "floor", "maximum", "minimum", "where"}


class _Rounding(ast.NodeTransformer):
    """Rounds operands of additions and subtractions, and arguments of device functions."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add | ast.Sub):
            node.left, node.right = _with_rounding(node.left), _with_rounding(node.right)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name):
            node.args = [_with_rounding(arg) for arg in node.args]
        return node


def _with_rounding(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _applied("rounded_product", node.left, node.right)
    return _applied("rounded", node) if multiplies(node) else node


def _applied(function: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(function), list(args), [])
