"""Small pieces of Python `ast`, of which lowered expressions and unparsed math are put together."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping


def parse(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def literal(value: float | int | bool | str | None) -> ast.expr:
    if isinstance(value, float) and not math.isfinite(value):
        return parse(f'float("{value}")')
    return ast.Constant(value)


def method(value: ast.expr, name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(value, name), list(args), [])


def nonzero(value: ast.expr) -> ast.expr:
    return ast.Compare(value, [ast.NotEq()], [ast.Constant(0)])


def parenthesized(tree: ast.expr) -> ast.expr:
    """The tree with each `and` inside an `or` in parentheses, as linters ask, where it comes first too.

    `ast.unparse` leaves them away there; around the one operand of another `and` it writes them.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            first = node.values[0]
            if isinstance(first, ast.BoolOp) and isinstance(first.op, ast.And) and len(first.values) > 1:
                node.values[0] = ast.BoolOp(ast.And(), [first])
    return tree


class _Substitution(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.names.get(node.id, node)

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        return ast.keyword(node.arg, self.visit(node.value))


def substitute(template: ast.expr, names: Mapping[str, ast.expr]) -> ast.expr:
    result = _Substitution(names).visit(template)
    assert isinstance(result, ast.expr)
    return result


def rounded(template: ast.expr) -> ast.expr:
    """The template with products, and what device functions give, that no compiler fuses with what is added to them."""
    result = _Rounding().visit(template)
    assert isinstance(result, ast.expr)
    return result


class _Rounding(ast.NodeTransformer):
    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return _applied("rounded_product", node.left, node.right) if isinstance(node.op, ast.Mult) else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        return _applied("rounded", node) if isinstance(node.func, ast.Name) else node


def _applied(function: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(function), list(args), [])
