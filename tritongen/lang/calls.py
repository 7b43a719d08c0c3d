"""Calls of functions: matches values with the arguments of the function table."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..diagnostics.report import did_you_mean
from .along import ALONG
from .functions import FUNCTIONS
from .habits import KEYWORDS
from .hints import CLAMP_BOUNDS, for_function, record_subexpressions
from .ir import Constant, Dtype, Node
from .promotion import constant
from .reductions import REDUCTIONS, build_reduction
from .special import SPECIAL

if TYPE_CHECKING:
    from .expressions import Expressions


def build_call(typer: Expressions, name: str, tree: ast.Call) -> Node:
    """The nodes of `name(…)`: an elementwise function, a reduction, or a function of `SPECIAL` or `ALONG`."""
    if built := SPECIAL.get(name) or ALONG.get(name):
        return built.build(typer, tree)
    if name in REDUCTIONS:
        return build_reduction(typer, name, tree)
    if name not in FUNCTIONS:
        abandoned = typer.fail("TG204", f"there is no function {name}", tree.func, for_function(typer, name, tree))
        record_subexpressions(typer, ast.Tuple(tree.args))
        raise abandoned
    row = FUNCTIONS[name]
    names = [arg.name for arg in row.args]
    form = f"{name}({', '.join(names)})"
    mistakes = [*_unfitting(typer, name, tree, names, form)]
    if mistakes:
        record_subexpressions(typer, ast.Tuple(tree.args))
        raise mistakes[0]
    given: dict[str, ast.expr] = dict(zip(names, tree.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in tree.keywords if keyword.arg}
    nodes = dict(zip(given, typer.visit_all(given.values()), strict=True))
    for wanted in row.args:
        if wanted.name not in given and wanted.required:
            hint = CLAMP_BOUNDS.get((name, wanted.name), form)
            raise typer.fail("TG205", f"{name} needs its argument {wanted.name}", tree, hint)
    return typer.call(name, [nodes.get(arg.name) or _default(arg.default) for arg in row.args], tree)


def _unfitting(typer: Expressions, name: str, tree: ast.Call, names: list[str], form: str) -> Iterator[Exception]:
    """Record arguments that the function does not accept; yield an exception for each."""
    if len(tree.args) > len(names):
        count = f"{len(names)} argument" + ("s" if len(names) > 1 else "")
        message = f"{name} takes {count}, not {len(tree.args)}"
        yield typer.fail("TG205", message, tree.args[len(names)], form)
    given = {*names[: len(tree.args)]}
    for keyword in tree.keywords:
        if keyword.arg is None:
            yield typer.fail("TG202", "`**` is not part of the language", keyword, form)
        elif keyword.arg in given:
            yield typer.fail("TG206", f"{keyword.arg} is given twice", keyword, form)
        elif keyword.arg not in names:
            hint = KEYWORDS.get((name, keyword.arg)) or did_you_mean(keyword.arg, names, form)
            if keyword.arg in (*typer.values, *typer.inputs, *typer.params):
                hint = f"values compare by ==: {keyword.arg} == {ast.unparse(keyword.value)}"
            yield typer.fail("TG206", f"{name} has no argument {keyword.arg}", keyword, hint)
        given.add(keyword.arg or "")


def _default(value: float | int | bool | None) -> Constant:
    return Constant(None, Dtype("bool")) if value is None else constant(value)
