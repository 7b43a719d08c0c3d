"""Functions outside of the elementwise table: `index`, `size`, `take` and `cast`; and the rows of such functions."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..diagnostics.report import did_you_mean, listed
from ..spec.grammar import ALIASES, ALL_DTYPES
from ..spec.types import DTYPE_CLASSES, FLOAT8S, of_types
from .exact import with_exact
from .integers import IntegerBounds
from .ir import (
    Call,
    Cast,
    Choose,
    Constant,
    Dtype,
    Index,
    Load,
    Node,
    Reduce,
    Ref,
    Scalar,
    Scan,
    Size,
    Take,
    Value,
    children,
)
from .promotion import kind_of

if TYPE_CHECKING:
    from .expressions import Expressions


@dataclass(frozen=True, slots=True)
class Special:
    """A function's call syntax, argument and result dtypes, and its gradient for each argument; `tritongen functions`
    shows the docstring of `build`.
    """

    form: str
    takes: str
    gives: str
    build: Callable[[Expressions, ast.Call], Node]
    gradient: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return self.form.partition("(")[0]

    @property
    def summary(self) -> str:
        return self.build.__doc__ or ""


def special(
    form: str, takes: str, gives: str, **gradient: str
) -> Callable[[Callable[[Expressions, ast.Call], Node]], Special]:
    """Decorator that makes the row of a function of the language from the Python function that types it."""
    return lambda build: Special(form, takes, gives, build, tuple(gradient.items()))


_FLOAT8_HINT = "a result may be float8: say so in [outputs]"


@special("index(N, ...)", "axes", "int64")
def _index(typer: Expressions, tree: ast.Call) -> Node:
    """The position along an axis, or along several flattened into one."""
    if not tree.args or tree.keywords:
        raise typer.fail("TG205", "index takes one axis or more", tree, "index(N)")
    axes = [typer.one_axis(arg, "index") for arg in tree.args]
    if twice := next((place for place, axis in enumerate(axes) if axis in axes[:place]), 0):
        raise typer.fail("TG205", f"index takes axis {axes[twice]} once", tree.args[twice], "index(J, S)")
    return index_along(typer, axes, tree)


def index_along(typer: Expressions, axes: Sequence[str], tree: ast.Call) -> Node:
    """The flattened index over several axes; the last axis varies fastest."""
    node: Node = Index(axes[0], (axes[0],))
    for axis in axes[1:]:
        first = typer.call("mul", [node, Size((axis,))], tree)
        node = typer.call("add", [first, Index(axis, (axis,))], tree)
    return node


@special("size(N, ...)", "axes", "int64")
def _size(typer: Expressions, tree: ast.Call) -> Node:
    """The length of an axis, or the number of elements over several."""
    if not tree.args or tree.keywords:
        raise typer.fail("TG205", "size takes one axis or more", tree, "size(N)")
    return Size(tuple(typer.axis(arg) for arg in tree.args))


@special("take(x, i, N, ..., fill=v)", "any, an integer, axes", "as x", x="derived")
def _take(typer: Expressions, tree: ast.Call) -> Node:
    """x at i along axes; v, or NaN or 0, outside."""
    others = [keyword for keyword in tree.keywords if keyword.arg != "fill"]
    if others:
        raise typer.fail("TG206", f"take has no keyword {others[0].arg}", others[0], "take(x, i, N, fill=0.0)")
    if len(tree.args) < 3:
        message = "take needs a tensor, an index and an axis, or several axes that are counted as one"
        raise typer.fail("TG205", message, tree, "take(x, i, N)")
    source, index, *fills = typer.visit_all((*tree.args[:2], *(keyword.value for keyword in tree.keywords)))
    axes = [typer.one_axis(at, "take") for at in tree.args[2:]]
    for place, (axis, named) in enumerate(zip(axes, tree.args[2:], strict=True)):
        if axis not in source.axes:
            message = f"`{ast.unparse(tree.args[0])}` has no axis {axis} to take from"
            raise typer.fail("TG302", message, named, axes_are(source))
        if axis in axes[:place]:
            raise typer.fail("TG205", f"take names axis {axis} once", named, "take(x, i, J, S)")
    check_index(typer, index, tree.args[1])
    if len(axes) == 1:
        _check_position(typer, axes[0], index, tree)
    return take_at(typer, source, index, axes, fills[0] if fills else None, tree)


def take_at(typer: Expressions, source: Node, index: Node, axes: list[str], fill: Node | None, tree: ast.Call) -> Node:
    """A value at a flattened index into `axes`; with a `fill`, this value where the index is out of range."""
    at = _positions(typer, axes, index, tree)
    # A flattened index that is out of range is out of range along the first axis.
    first = axes[0], at[axes[0]]
    if not any(is_reduced(source, axis, typer.values) for axis in axes):
        node = _substitute(typer, source, at)
        return _filled(typer, node, *first, fill, tree) if fill else _inside(typer, node, *first, tree)
    stored = typer.line_of("taken", source)
    remaining = tuple(other for other in source.axes if other not in at)
    brought = tuple(axis for one in at.values() for axis in one.axes)
    taken = Take(stored, tuple(at.items()), typer.natural_order((*remaining, *brought)), source.dtype)
    return _filled(typer, taken, *first, fill, tree) if fill else taken


def check_index(typer: Expressions, index: Node, tree: ast.expr) -> None:
    """Refuse an index that is no integer."""
    if index.dtype.kind != "int":
        message = f"an index is an integer, and this {may_be(index.dtype.kind)}"
        hint = "declare it as int[...], or cast it: cast(i, int64)"
        raise typer.fail("TG403", message, tree, hint)


def flag(typer: Expressions, tree: ast.expr | None) -> bool:
    """The value of an option that must be a literal True or False; False if it is not given."""
    if tree is None:
        return False
    if not isinstance(tree, ast.Constant) or not isinstance(tree.value, bool):
        raise typer.fail("TG205", "this option is True or False, as the spec spells it", tree, "write True or False")
    return tree.value


def _filled(typer: Expressions, node: Node, axis: str, index: Node, fill: Node, tree: ast.Call) -> Node:
    """`node`, and `fill` where the index is out of range; `node` alone if it never is."""
    before, behind = IntegerBounds(typer.sizes, typer.params, values=typer.values).may_be_outside(index, axis)
    tests = []
    if before:
        tests.append(typer.call("ge", [index, Constant(0, Dtype("int"))], tree))
    if behind:
        tests.append(typer.call("lt", [index, Size((axis,))], tree))
    return typer.call("where", [typer.chain("logical_and", tests, tree), node, fill], tree) if tests else node


def _positions(typer: Expressions, axes: list[str], index: Node, tree: ast.Call) -> dict[str, Node]:
    """A flattened index split into an index along each axis; the last axis varies fastest.

    If the index is out of range, it is out of range along the first axis.
    """
    at: dict[str, Node] = {}
    for axis in reversed(axes[1:]):
        number, size = index.value if isinstance(index, Constant) else None, typer.sizes.get(axis)
        if isinstance(number, int) and number >= 0 and (size or not number):  # 0 splits into zeros for any lengths.
            index, at[axis] = (Constant(one, index.dtype) for one in divmod(number, size or 1))
            continue
        at[axis] = typer.call("remainder", [index, Size((axis,))], tree)
        index = typer.call("floor_divide", [index, Size((axis,))], tree)
    return {axes[0]: index, **dict(reversed(at.items()))}


def _check_position(typer: Expressions, axis: str, index: Node, tree: ast.Call) -> None:
    """Refuse a constant index that is negative, or not below the fixed length of the axis."""
    number, size = index.value if isinstance(index, Constant) else None, typer.sizes.get(axis)
    if not isinstance(number, int):
        return
    if number < 0:
        last = f"size({axis}) - {-number}"
        message = f"position {number} is outside of axis {axis}: positions count from 0"
        raise typer.fail("TG205", message, tree.args[1], f"write {last} to count from the end")
    if size is not None and number >= size:
        message = f"position {number} is outside of axis {axis}, which has {size} elements"
        raise typer.fail("TG205", message, tree.args[1], f"the last position is {size - 1}")


def _inside(typer: Expressions, node: Node, axis: str, index: Node, tree: ast.Call) -> Node:
    """`node`, masked to NaN, 0 or False where the index is out of range, unless it has this value there already.

    Elements themselves are NaN or 0 there, but values computed from them may not be, and operands that are not taken
    would have a gradient there.
    """
    if node.dtype.kind == "any" or _is_of_elements(node, axis, index):
        return node
    inside = typer.call("lt", [index, Size((axis,))], tree)
    if isinstance(index, Constant):  # A constant index is not negative, and below a fixed length.
        if axis in typer.sizes:
            return node
    else:
        first = typer.call("ge", [index, Constant(0, Dtype("int"))], tree)
        inside = typer.call("logical_and", [first, inside], tree)
    if node.dtype.kind == "bool":
        return typer.call("logical_and", [inside, node], tree)
    outside = Constant(math.nan, Dtype("float")) if node.dtype.kind == "float" else Constant(0, Dtype("int"))
    return typer.call("where", [inside, node, outside], tree)


def _is_of_elements(node: Node, axis: str, index: Node) -> bool:
    """Whether `node` reads nothing but elements at `index`, and is NaN (0 if it is no float) where the index is out of
    range. A read at an element, as in a `take` at a `take`, does not count: it reads index 0 there.
    """

    def is_taken(inner: Node) -> bool:
        return isinstance(inner, Load | Take) and dict(inner.at).get(axis) == index

    def are_taken(inner: Node) -> bool:
        if isinstance(inner, Load | Take):
            return is_taken(inner)
        return not isinstance(inner, Ref | Index) and all(map(are_taken, children(inner)))

    if isinstance(node, Load | Take):
        return is_taken(node)
    if node.dtype.kind == "float":
        return are_taken(node) and is_nan_outside(node)
    return isinstance(node, Cast) and is_taken(node.arg) and node.arg.dtype.kind in ("int", "bool")


def is_nan_outside(node: Node) -> bool:
    """Whether a node is NaN where the index of any taken operand is out of range."""
    if isinstance(node, Load | Take):
        return bool(node.at) and node.dtype.kind in ("float", "any")
    passes = isinstance(node, Cast) or (isinstance(node, Call) and node.function in PASSES_NAN)
    return passes and any(map(is_nan_outside, children(node)))


# Functions that are NaN where any of their arguments is.
PASSES_NAN = frozenset(
    "abs add div exp expm1 log log1p log2 mul neg positive reciprocal rsqrt sigmoid sqrt square sub tanh".split()
)


def is_reduced(node: Node, axis: str, values: Mapping[str, Value]) -> bool:
    """Whether a reduction stands between a node and the loads that vary along an axis; `values` are the lines."""
    if axis not in node.axes:
        return False
    if isinstance(node, Ref):
        return is_reduced(values[node.name].node, axis, values)
    operands = children(node)[1:] if isinstance(node, Take) else children(node)
    return isinstance(node, Reduce | Scan) or any(is_reduced(operand, axis, values) for operand in operands)


def _substitute(typer: Expressions, node: Node, at: Mapping[str, Node]) -> Node:
    """The node with the indices along the axes of `at` replaced, down to its loads."""
    if at.keys().isdisjoint(node.axes):
        return node

    def axes_of(*operands: Node) -> tuple[str, ...]:
        return typer.natural_order(tuple(a for operand in operands for a in operand.axes))

    def again(operand: Node) -> Node:
        return _substitute(typer, operand, at)

    match node:
        case Index(axis=axis):
            return at[axis]
        case Ref(name=name):
            return again(typer.values[name].node)
        case Load() | Take():
            moved = {a: again(i) for a, i in node.at}
            own = typer.inputs[node.name].type.axes if isinstance(node, Load) else node.arg.axes
            moved |= {a: i for a, i in at.items() if a in own and a not in moved}
            remaining = tuple(a for a in own if a not in moved)
            axes = typer.natural_order((*remaining, *axes_of(*moved.values())))
            return replace(node, axes=axes, at=tuple(moved.items()))
        case Call(function=function, args=args):
            operands = tuple(again(arg) for arg in args)
            return Call(function, operands, axes_of(*operands), node.dtype)
        case Cast(arg=arg):
            inner = again(arg)
            return Cast(inner, node.dtype, inner.axes)
        case Choose():
            then, other = again(node.then), again(node.other)
            return Choose(node.condition, then, other, axes_of(then, other), node.dtype)
        case _:
            raise TypeError(f"{node} varies along {[*at]}, but by no load")


@special("cast(x, float32)", "any, a dtype or an input", "as named", x="cast(g, x)")
def _cast(typer: Expressions, tree: ast.Call) -> Node:
    """x in a dtype, or in that of an input."""
    if len(tree.args) != 2 or tree.keywords:
        raise typer.fail("TG205", "cast needs a value and a dtype", tree, "cast(x, float32)")
    node, to = typer.visit(tree.args[0]), tree.args[1]
    name = to.id if isinstance(to, ast.Name) else ""
    source = name if name in typer.inputs else of_types(typer.inputs.values()).get(name, "")
    if isinstance(node, Constant) or (isinstance(node, Scalar) and not source):
        message = "a number is not cast: it takes the dtype of the tensor that it meets"
        raise typer.fail("TG405", message, tree.args[0], "cast that tensor, or the result")
    if source:
        if source == name:
            typer.used.add(name)
        if typer.is_float8(source):
            raise typer.fail("TG406", f"nothing is cast to the dtype of {name}, a float8", to, _FLOAT8_HINT)
        return Cast(node, typer.dtype_of(source), node.axes)
    if name in (*FLOAT8S, "float8"):
        raise typer.fail("TG406", f"nothing is cast to {name}", to, _FLOAT8_HINT)
    if name not in ALL_DTYPES:
        text = ast.unparse(to)
        hint = f"name an input or one of {listed(ALL_DTYPES)}"
        word = text.removeprefix("torch.")
        if isinstance(to, ast.Constant) and to.value in ALL_DTYPES:
            hint = f"write {to.value} without quotes"
        elif ALIASES.get(word) in ALL_DTYPES:
            hint = f"did you mean '{ALIASES[word]}'?"
        elif word not in DTYPE_CLASSES:
            hint = did_you_mean(word, ALL_DTYPES, hint)
        raise typer.fail("TG404", f"{text} is not a dtype", to, hint)
    kind = kind_of((name,))
    node = node if kind == "float" else with_exact(node, ("div", "reciprocal"), typer.values)
    return Cast(node, Dtype(kind, (name,)), node.axes)


SPECIAL = {one.name: one for one in (_index, _size, _take, _cast)}


def axes_are(node: Node) -> str:
    """The hint that lists the axes of a value."""
    return f"its axes are [{', '.join(node.axes)}]" if node.axes else "it is a single number"


def may_be(kind: str) -> str:
    """The phrase for the kind of an argument in a message."""
    if kind == "any":
        return "may be a float"
    return {"float": "is a float", "int": "is an integer", "bool": "is a boolean"}[kind]
