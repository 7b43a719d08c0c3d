"""Parse statements of the nest IR from text, for tests."""

from __future__ import annotations

import ast
from dataclasses import replace

from tritongen.nest.ir import Accumulate, Do, Given, Let, Line
from tritongen.nest.values import Expr


def value(text: str) -> Expr:
    return Expr(ast.parse(text, mode="eval").body)


def parsed(text: str, comment: str = "") -> Line:
    """The statement of the nest IR for a line of Python."""
    return replace(_parsed(text), comment=comment)


def given(text: str) -> Given:
    """The named mask of a text `name = mask`."""
    name, _, mask = text.partition(" = ")
    return Given(name, value(mask))


def _parsed(text: str) -> Line:
    (tree,) = ast.parse(text).body
    match tree:
        case ast.Assign(targets=[target], value=own):
            return Let(ast.unparse(target).strip("()"), Expr(own))
        case ast.AugAssign(target=ast.Name(id=name), value=own):
            return Accumulate(name, text.removeprefix(f"{name} ").partition("= ")[0], Expr(own))
        case ast.Expr(value=own):
            return Do(Expr(own))
    raise AssertionError(f"no statement of a kernel: {text}")
