"""Axes as torch counts them, for hints: by a number from the front or from the back."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..spec.types import BATCH

if TYPE_CHECKING:
    from .expressions import Expressions


def axes_of(found: Expressions, tree: ast.AST | None) -> tuple[str, ...]:
    """The axes of a part of an expression, of an input as it is declared; none where it has a mistake."""
    if isinstance(tree, ast.Name) and tree.id in found.inputs:
        return found.inputs[tree.id].type.axes
    node = found.tried(tree) if tree is not None else None
    return node.axes if node is not None else ()


def named_axes(found: Expressions, axes: list[str], tree: ast.AST | None) -> list[str]:
    """The axes that a part of an expression names, by their names or as torch counts them."""
    number = number_of(tree)
    match tree:
        case ast.Name(id=name) if name in found.axes:
            return [name]
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return [axis for part in items for axis in named_axes(found, axes, part)]
    if number is None:
        return []
    place = number + len(axes) if number < 0 else number
    counted = BATCH not in axes or number < 0
    return [axes[place]] if counted and 0 <= place < len(axes) and axes[place] != BATCH else []


def number_of(tree: ast.AST | None) -> int | None:
    """The integer that a part of an expression is, with its sign."""
    match tree:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
            return -number
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
    return None
