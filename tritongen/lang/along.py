"""Functions along an axis other than reductions and scans of one value: `recurrence`, `scatter_sum`, and sorting.

`sort` is a `take` at the indices from `argsort`; `topk` and `argtopk` use the first of these indices.
"""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING

from .counted_axes import named_axes
from .ir import INT64, Cast, Constant, Dtype, Index, Node, Scan, ScatterSum
from .promotion import promote, summed
from .special import axes_are, check_index, flag, may_be, special, take_at

if TYPE_CHECKING:
    from .expressions import Expressions


@special("recurrence(x, decay, T, reverse=False)", "floats, an axis", "as x * decay", x="derived", decay="derived")
def _recurrence(typer: Expressions, tree: ast.Call) -> Node:
    """Along T, each element is the one before it times its decay, plus x."""
    form = "recurrence(x, decay, T)"
    reverse = flag(typer, _keyword(typer, tree, "reverse", form))
    if len(tree.args) != 3:
        raise typer.fail("TG205", "recurrence needs a value, its decay and an axis", tree, form)
    x, decay = typer.visit_all(tree.args[:2])
    axis = typer.one_axis(tree.args[2], "recurrence")
    axes = typer.natural_order((*x.axes, *decay.axes))
    if axis not in axes:
        raise typer.fail("TG302", f"neither value has the axis {axis} to go along", tree.args[2], axes_are(x))
    dtype = promote(x, decay)
    if dtype.kind != "float":
        message = f"recurrence is for floats, and this {may_be(dtype.kind)}"
        cast = f"recurrence(cast({ast.unparse(tree.args[0])}, float32), {ast.unparse(tree.args[1])}, {axis})"
        raise typer.fail("TG401", message, tree.args[0], f"write {cast}")
    return Scan("recurrence", x, axis, axes, dtype, decay, reverse)


@special("scatter_sum(x, i, N, ..., over=P)", "any, an integer, axes", "as sum(x)", x="take(g, i, N, fill=0.0)")
def _scatter_sum(typer: Expressions, tree: ast.Call) -> Node:
    """Along N, the sum of x over the positions i of that element; over all axes of i, or one. Others are ignored."""
    form = "scatter_sum(x, i, N)"
    option = _keyword(typer, tree, "over", form)
    if len(tree.args) < 3:
        message = "scatter_sum needs a value, a position and an axis, or several axes that are counted as one"
        raise typer.fail("TG205", message, tree, form)
    x, at = typer.visit_all(tree.args[:2])
    check_index(typer, at, tree.args[1])
    if not at.axes:
        raise typer.fail("TG302", "this is one position, along no axis", tree.args[1], axes_are(at))
    into = _into(typer, tree, x, at)
    over = _over(typer, option, at, into)
    if x.dtype.weak and x.dtype.kind != "float":
        x = Cast(x, INT64, x.axes)  # Steps store it, so it needs a dtype of its own.
    axes = typer.natural_order((*(axis for axis in (*x.axes, *at.axes) if axis not in over), *into))
    return ScatterSum(x, at, into, axes, summed(x.dtype))


def _into(typer: Expressions, tree: ast.Call, x: Node, at: Node) -> tuple[str, ...]:
    """The axes of the result that the positions index into."""
    into = tuple(typer.one_axis(one, "scatter_sum") for one in tree.args[2:])
    for place, (axis, named) in enumerate(zip(into, tree.args[2:], strict=True)):
        if axis in into[:place]:
            raise typer.fail("TG205", f"scatter_sum names axis {axis} once", named, "scatter_sum(x, i, J, S)")
        if axis in x.axes and axis not in at.axes:
            message = f"`{ast.unparse(tree.args[0])}` has the axis {axis} itself, and positions do not"
            hint = f'give the result an axis of its own, as by [axes] {axis}2 = "{axis}"'
            raise typer.fail("TG302", message, named, hint)
    return into


def _over(typer: Expressions, option: ast.expr | None, at: Node, into: tuple[str, ...]) -> tuple[str, ...]:
    """The axes of the positions to sum over: the axes that `over` names, or all axes."""
    if option is None:
        return at.axes
    named = option.elts if isinstance(option, ast.Tuple) else [option]
    over = tuple(typer.axis(one) for one in named)
    for axis, tree in zip(over, named, strict=True):
        if axis not in at.axes:
            raise typer.fail("TG302", f"positions do not vary along {axis}", tree, axes_are(at))
    if left := [axis for axis in at.axes if axis in into and axis not in over]:
        message = f"positions vary along {left[0]}, which they count, so that it is summed over"
        raise typer.fail("TG302", message, option, f"over=({', '.join((*over, *left))})")
    return over


@special("argsort(x, N, descending=False)", "any, an axis", "int64")
def _argsort(typer: Expressions, tree: ast.Call) -> Node:
    """The positions of the elements along N in their order, the first of equal ones first."""
    return _order(typer, tree, "argsort(x, N)", 2, "descending", False)[1]


@special("sort(x, N, descending=False)", "any, an axis", "as x", x="derived")
def _sort(typer: Expressions, tree: ast.Call) -> Node:
    """The elements along N in their order, NaN as the largest."""
    x, order, axis = _order(typer, tree, "sort(x, N)", 2, "descending", False)
    return take_at(typer, x, typer.line_of("order", order), [axis], None, tree)


@special("argtopk(x, K, N, largest=True)", "any, two axes", "int64")
def _argtopk(typer: Expressions, tree: ast.Call) -> Node:
    """Along K, the positions of the largest along N, -1 where there are no more."""
    return _first(typer, tree, "argtopk(x, K, N)")[1]


@special("topk(x, K, N, largest=True)", "any, two axes", "as x", x="derived")
def _topk(typer: Expressions, tree: ast.Call) -> Node:
    """Along K, the largest along N, in their order; NaN or 0 where there are no more."""
    x, first, axis = _first(typer, tree, "topk(x, K, N)")
    return take_at(typer, x, typer.line_of("at", first), [axis], None, tree)


def _first(typer: Expressions, tree: ast.Call, form: str) -> tuple[Node, Node, str]:
    """The value to sort, the indices of its first `K` elements in sorted order, and the axis."""
    x, order, axis = _order(typer, tree, form, 3, "largest", True)
    number = tree.args[1].value if isinstance(tree.args[1], ast.Constant) else "k"
    k = typer.axis(tree.args[1], f"name an axis for them: [axes] K = {json.dumps(number)}, and write {form}")
    if k in x.axes:
        raise typer.fail("TG302", f"`{ast.unparse(tree.args[0])}` has the axis {k} itself", tree.args[1], axes_are(x))
    outside: Node = Constant(-1, Dtype("int"))
    return x, take_at(typer, typer.line_of("order", order), Index(k, (k,)), [axis], outside, tree), axis


def _order(
    typer: Expressions, tree: ast.Call, form: str, count: int, option: str, default: bool
) -> tuple[Node, Node, str]:
    """The value to sort, the indices that sort it, and the axis, which is the last argument."""
    given = _keyword(typer, tree, option, form)
    descending = default if given is None else flag(typer, given)
    if len(tree.args) != count:
        name = form.partition("(")[0]
        needs = "a value and an axis" if count == 2 else "a value, an axis for what is found, and the axis it is along"
        raise typer.fail("TG205", f"{name} needs {needs}", tree, form)
    x = typer.visit(tree.args[0])
    named = named_axes(typer, [*x.axes], tree.args[-1])
    hint = f"axes have names: write {named[0]}" if named else ""
    axis = typer.one_axis(tree.args[-1], form.partition("(")[0], hint)
    if axis not in x.axes:
        raise typer.fail("TG302", f"`{ast.unparse(tree.args[0])}` has no axis {axis}", tree.args[-1], axes_are(x))
    return x, Scan("argsort", x, axis, x.axes, INT64, reverse=descending), axis


def _keyword(typer: Expressions, tree: ast.Call, name: str, form: str) -> ast.expr | None:
    """The value of `name`, the only keyword that the function accepts; None if it is not given."""
    for keyword in tree.keywords:
        if keyword.arg != name:
            message = f"{ast.unparse(tree.func)} has no argument {keyword.arg or '**'}"
            raise typer.fail("TG206", message, keyword, f"{form}, with {name} by name")
    return tree.keywords[0].value if tree.keywords else None


ALONG = {one.name: one for one in (_sort, _argsort, _topk, _argtopk, _recurrence, _scatter_sum)}
