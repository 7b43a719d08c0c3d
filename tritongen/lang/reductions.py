"""The reductions of the language, each built from a few primitives.

`softmax(x, N)` and the like are sugar: they name their intermediates, so that a kernel computes
each once and a reader finds it by name.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..diagnostics.report import did_you_mean
from ..spec.types import BATCH, Param
from .counted_axes import axes_of, named_axes, number_of
from .habits import KEYWORDS
from .ir import BOOL, INT64, Constant, Dtype, Load, Node, Reduce, Scalar, Scan, Size
from .promotion import summed
from .special import flag, index_along

if TYPE_CHECKING:
    from .expressions import Expressions


@dataclass(frozen=True, slots=True)
class Reduction:
    """A row of the reduction table: accepted kind, meaning, builder and keyword arguments."""

    name: str
    accepts: str  # "float", "number" or "any"
    summary: str
    build: Callable[[_Call], Node]
    keywords: tuple[tuple[str, float], ...] = ()


class _Call(NamedTuple):
    """A reduction call: the typer, its syntax tree, argument and axes, and the value of its keyword."""

    typer: Expressions
    tree: ast.Call
    arg: Node
    over: tuple[str, ...]
    option: float | Scalar  # a constant or a numeric param

    def primitive(self, kind: str, arg: Node, dtype: Dtype | None = None, correction: float = 0) -> Reduce:
        axes = tuple(axis for axis in arg.axes if axis not in self.over)
        return Reduce(kind, arg, self.over, axes, dtype or arg.dtype, correction)

    def map(self, function: str, *args: Node) -> Node:
        return self.typer.call(function, list(args), self.tree)


def build_reduction(typer: Expressions, name: str, tree: ast.Call) -> Node:
    """The nodes of `name(expression, axes…, keyword=…)`."""
    row = REDUCTIONS[name]
    if not tree.args:
        raise typer.fail("TG205", f"{name} needs a value", tree, f"{name}(x, N)")
    arg = typer.visit(tree.args[0])
    over = _axes(typer, tree, arg)
    if row.accepts == "float" and arg.dtype.kind != "float":
        uncertain = arg.dtype.kind == "any"
        found = {"int": "is an integer", "bool": "is a boolean", "any": "may be an integer"}
        message = f"{name} is for floats, and this {found[arg.dtype.kind]}"
        value, *axes = map(ast.unparse, tree.args)
        cast = f"write {name}({', '.join([f'cast({value}, float32)', *axes])})"
        hint = f"declare the input as float[...], or {cast}" if uncertain else cast
        raise typer.fail("TG401", message, tree.args[0], hint)
    option = _keyword(typer, row, tree)
    return row.build(_Call(typer, tree, arg, over, option))


def _axes(typer: Expressions, tree: ast.Call, arg: Node) -> tuple[str, ...]:
    """The axes that a reduction names; all axes if it names none."""
    named: list[str] = []
    for at in tree.args[1:]:
        axis = typer.axis(at, _no_axis(typer, tree, at))
        if axis in named:
            raise typer.fail("TG302", f"axis {axis} is named twice", at, "name it once")
        if axis not in arg.axes:
            message = f"`{ast.unparse(tree.args[0])}` has no axis {axis} to reduce"
            hint = f"its axes are [{', '.join(arg.axes)}]" if arg.axes else "it is a single number"
            raise typer.fail("TG302", message, at, hint)
        named.append(axis)
    if not arg.axes:
        message = "there is no axis to reduce: this is a single number"
        raise typer.fail("TG302", message, tree.args[0], "reduce a tensor")
    return typer.natural_order(tuple(named)) or arg.axes


def _no_axis(typer: Expressions, tree: ast.Call, at: ast.expr) -> str:
    """The hint for an argument that is no axis: axes by name, or the function of two values, as maximum for max."""
    name, value, other = ast.unparse(tree.func), ast.unparse(tree.args[0]), ast.unparse(at)
    numbered = [axis for axis in named_axes(typer, [*axes_of(typer, tree.args[0])], at) if axis != other]
    hint = f"write {name}({value}, {', '.join(numbered)}): axes have names" if numbered else ""
    of_two = {"max": "maximum", "min": "minimum", "amax": "maximum", "amin": "minimum"}.get(name)
    known = (*typer.values, *typer.inputs, *typer.params)
    if of_two and (isinstance(at, ast.Constant | ast.Call | ast.BinOp) or other in known):
        two = f"write {of_two}({value}, {other}) for the {'larger' if of_two == 'maximum' else 'smaller'} of two values"
        return f"{two}; of an axis, {hint}" if hint else two
    if not hint and number_of(at) is not None:
        return f"axes have names: {name}({value}, {', '.join(typer.axes[-1:])})"
    return hint


def _keyword(typer: Expressions, row: Reduction, tree: ast.Call) -> float | Scalar:
    allowed = dict(row.keywords)
    option: float | Scalar = next(iter(allowed.values()), 0)
    for keyword in tree.keywords:
        if keyword.arg not in allowed:
            known = KEYWORDS.get(("", keyword.arg or ""), "axes follow the value by name: {form}")
            by = named_axes(typer, [*axes_of(typer, tree.args[0])], keyword.value)
            words = {"name": row.name, "form": f"{row.name}({ast.unparse(tree.args[0])}, {', '.join(by) or 'N'})"}
            hint = did_you_mean(keyword.arg or "", allowed, known.format(**words))
            message = f"{row.name} has no argument {keyword.arg or '**'}"
            raise typer.fail("TG206", message, keyword, hint)
        if isinstance(allowed[keyword.arg], bool):
            option = flag(typer, keyword.value)
            continue
        value = typer.visit(keyword.value)
        if isinstance(value, Scalar) and value.dtype.kind != "bool":
            if keyword.arg == "p":
                _check_power(typer, typer.params[value.name], keyword.value)
            option = value
            continue
        number = value.value if isinstance(value, Constant) else None
        if not isinstance(number, int | float) or isinstance(number, bool):
            message = f"{keyword.arg} is a number that the spec spells out, or a param that is one"
            hint = f"as in {row.name}(x, N, {keyword.arg}={allowed[keyword.arg]})"
            raise typer.fail("TG205", message, keyword.value, hint)
        option = number
    return option


def _check_power(typer: Expressions, param: Param, at: ast.expr) -> None:
    """Refuse a param that may be infinite or 0 (no sum of powers), or below 1 (no gradient at zeros)."""
    low = -math.inf if param.minimum is None else param.minimum
    high = math.inf if param.maximum is None else param.maximum
    if not (low >= 1 and (high < math.inf or param.kind == "int")):
        number, most = ("2", "") if param.kind == "int" else ("2.0", ", max = 8.0")
        message = f"{param.name} may be less than 1 or infinite, and such norms are computed otherwise"
        hint = f"bound it, as in {param.name} = {{ default = {number}, min = 1{most} }}"
        raise typer.fail("TG205", message, at, hint)


def _primitive(kind: str, dtype: Dtype | None = None) -> Callable[[_Call], Node]:
    return lambda call: call.primitive(kind, call.arg, dtype)


def _sum(kind: str) -> Callable[[_Call], Node]:
    return lambda call: call.primitive(kind, call.arg, summed(call.arg.dtype))


def _var(call: _Call) -> Node:
    if not isinstance(call.option, Scalar):
        return call.primitive("var", call.arg, correction=call.option)
    # Kernels are compiled with a constant divisor: a correction that is a param is applied to the result.
    length = Size(call.over)
    divisor = call.map("maximum", call.map("sub", length, call.option), Constant(0, Dtype("int")))
    return call.map("mul", call.primitive("var", call.arg), call.map("div", length, divisor))


def _norm(call: _Call) -> Node:
    p = call.option
    size = call.map("abs", call.arg)
    if p == float("inf"):
        return call.primitive("max", size)
    if p == float("-inf"):
        return call.primitive("min", size)
    if p == 0:
        count = call.map("ne", call.arg, Constant(0.0, Dtype("float")))
        return call.primitive(
            "sum", call.typer.call("where", [count, _number(1.0), _number(0.0)], call.tree), call.arg.dtype
        )
    if p == 1:
        return call.primitive("sum", size)
    if p == 2:
        return call.map("sqrt", call.primitive("sum", call.map("square", call.arg)))
    power, root = (p, call.map("reciprocal", p)) if isinstance(p, Scalar) else map(_number, (p, 1 / p))
    return call.map("pow", call.primitive("sum", call.map("pow", size, power)), root)


def _count_nonzero(call: _Call) -> Node:
    nonzero = call.arg if call.arg.dtype.kind == "bool" else call.map("ne", call.arg, _number(0.0))
    return call.primitive("sum", nonzero, INT64)


def _number(value: float) -> Node:
    return Constant(value, Dtype("float"))


def _logsumexp(call: _Call) -> Node:
    x = call.typer.named("x", call.arg)
    largest = call.typer.named("max", call.primitive("max", x))
    # An infinite maximum would give inf - inf, so 0 is subtracted in its place, as in torch.
    infinite = call.map("isinf", largest)
    shift = call.typer.named("shift", call.map("where", infinite, _number(0.0), largest))
    total = call.primitive("sum", call.map("exp", call.map("sub", x, shift)))
    return call.map("add", call.map("log", total), shift)


def _softmax(call: _Call) -> Node:
    x = call.typer.named("x", call.arg)
    largest = call.typer.named("max", call.primitive("max", x))
    powers = call.typer.named("exp", call.map("exp", call.map("sub", x, largest)))
    return call.map("div", powers, call.primitive("sum", powers))


def _log_softmax(call: _Call) -> Node:
    x = call.typer.named("x", call.arg)
    largest = call.typer.named("max", call.primitive("max", x))
    shifted = call.typer.named("shifted", call.map("sub", x, largest))
    return call.map("sub", shifted, call.map("log", call.primitive("sum", call.map("exp", shifted))))


def _scan(call: _Call) -> Node:
    if len(call.over) != 1 or call.over[0] == "...":
        raise call.typer.fail("TG302", "a running sum is along one named axis", call.tree, "cumsum(x, N)")
    kind = ast.unparse(call.tree.func)
    return Scan(kind, call.arg, call.over[0], call.arg.axes, summed(call.arg.dtype), reverse=bool(call.option))


def _position(kind: str) -> Callable[[_Call], Node]:
    """The flattened index of the first maximum or minimum, over the axes in the order of the call.

    Kernels count in their iteration order; for other orders it is the least index of the elements that equal it.
    """

    def build(call: _Call) -> Node:
        own = call.arg.name if isinstance(call.arg, Load) and not call.arg.at else ""
        every = call.typer.inputs[own].type.axes if own else call.over
        written = tuple(map(call.typer.axis, call.tree.args[1:])) or every
        if written == call.over or BATCH in written:
            return call.primitive(f"arg{kind}", call.arg, INT64)
        found = call.map("eq", call.arg, call.primitive(kind, call.arg))
        if call.arg.dtype.kind in ("float", "any"):
            found = call.map("logical_or", found, call.map("ne", call.arg, call.arg))
        at = index_along(call.typer, written, call.tree)
        return call.primitive("min", call.map("where", found, at, Size(written)), INT64)

    return build


_BACK = (("reverse", False),)  # from the last element on
_ROWS = (
    Reduction("sum", "any", "the sum; integers and booleans are added as int64", _sum("sum")),
    Reduction("prod", "any", "the product; integers and booleans are multiplied as int64", _sum("prod")),
    Reduction("mean", "float", "the sum divided by the length", _primitive("mean")),
    Reduction("max", "any", "the maximum; NaN if any element is NaN", _primitive("max")),
    Reduction("min", "any", "the minimum; NaN if any element is NaN", _primitive("min")),
    Reduction("amax", "any", "the same as max", _primitive("max")),
    Reduction("amin", "any", "the same as min", _primitive("min")),
    Reduction("argmax", "any", "the position of the first maximum (of the first NaN, if any)", _position("max")),
    Reduction("argmin", "any", "the position of the first minimum (of the first NaN, if any)", _position("min")),
    Reduction("any", "any", "whether any element is nonzero", _primitive("any", BOOL)),
    Reduction("all", "any", "whether all elements are nonzero", _primitive("all", BOOL)),
    Reduction("count_nonzero", "any", "the number of nonzero elements", _count_nonzero),
    Reduction("var", "float", "the variance, over length - correction", _var, (("correction", 1),)),
    Reduction(
        "std", "float", "the square root of var", lambda call: call.map("sqrt", _var(call)), (("correction", 1),)
    ),
    Reduction(
        "norm", "float", "the p-norm; p is any number, inf, -inf, or a bounded param of at least 1", _norm, (("p", 2),)
    ),
    Reduction("logsumexp", "float", "log(sum(exp(x))), without overflow", _logsumexp),
    Reduction("softmax", "float", "exp(x) / sum(exp(x)), without overflow; keeps its axes", _softmax),
    Reduction("log_softmax", "float", "x - logsumexp(x); keeps its axes", _log_softmax),
    Reduction(
        "cumsum", "any", "the cumulative sum along one axis; integers and booleans are added as int64", _scan, _BACK
    ),
    Reduction(
        "cumprod",
        "any",
        "the cumulative product along one axis; integers and booleans are multiplied as int64",
        _scan,
        _BACK,
    ),
)
REDUCTIONS: dict[str, Reduction] = {row.name: row for row in _ROWS}
