"""Axes given by position, as torch's `dim`, from the front or from the back; for hints."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..spec.types import BATCH

if TYPE_CHECKING:
    from .expressions import Expressions


def axes_of(found: Expressions, tree: ast.AST | None) -> tuple[str, ...]:
    """The axes of a subexpression, for an input in the order declared; () if it has a mistake."""
    if isinstance(tree, ast.Name) and tree.id in found.inputs:
        return found.inputs[tree.id].type.axes
    node = found.tried(tree) if tree is not None else None
    return node.axes if node is not None else ()


def named_axes(found: Expressions, axes: list[str], tree: ast.AST | None) -> list[str]:
    """The axes that a subexpression lists, by name or by position as in torch."""
    number = number_of(tree)
    match tree:
        case ast.Name(id=name) if name in found.axes:
            return [name]
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return [axis for item in items for axis in named_axes(found, axes, item)]
    if number is None:
        return []
    place = number + len(axes) if number < 0 else number
    counted = BATCH not in axes or number < 0
    return [axes[place]] if counted and 0 <= place < len(axes) and axes[place] != BATCH else []


def number_of(tree: ast.AST | None) -> int | None:
    """The value of an integer literal, with its sign; None for any other expression."""
    match tree:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
            return -number
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
    return None
