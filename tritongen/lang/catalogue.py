"""What `tritongen functions` and the reference say of the language's operators, functions and reductions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .function import Arg, Function
from .functions import FUNCTIONS, OPERATORS
from .reductions import REDUCTIONS, Reduction

_TAKES = {
    "any": "any",
    "number": "numbers",
    "integral": "integers, booleans",
    "float": "floats",
    "bool": "any, as x != 0",
    "where": "a condition, any",
}
_GIVES = {"promote": "promoted", "float": "float", "bool": "bool"}
_FLAT = ("argmax", "argmin", "any", "all", "count_nonzero")  # reductions without a gradient
_OF_AXES = (
    ("index", "index(N, ...)", "axes", "int64", "The position along an axis, or along several flattened into one."),
    ("size", "size(N, ...)", "axes", "int64", "The length of an axis, or the number of elements over several."),
    (
        "take",
        "take(x, i, N, ..., fill=v)",
        "any, an integer, axes",
        "as x",
        "x at i along axes; v, or NaN or 0, outside.",
    ),
    (
        "sort",
        "sort(x, N, descending=False)",
        "any, an axis",
        "as x",
        "The elements along N in their order, NaN as the largest.",
    ),
    (
        "argsort",
        "argsort(x, N, descending=False)",
        "any, an axis",
        "int64",
        "Their positions, the first of equal ones first.",
    ),
    (
        "topk",
        "topk(x, K, N, largest=True)",
        "any, two axes",
        "as x",
        "Along K, the largest along N, in their order; NaN or 0 where there are no more.",
    ),
    (
        "argtopk",
        "argtopk(x, K, N, largest=True)",
        "any, two axes",
        "int64",
        "Their positions, -1 where there are no more.",
    ),
    (
        "recurrence",
        "recurrence(x, decay, T, reverse=False)",
        "floats, an axis",
        "as x * decay",
        "Along T, each element is the one before it times its decay, plus x.",
    ),
    (
        "scatter_sum",
        "scatter_sum(x, i, N, ..., over=P)",
        "any, an integer, axes",
        "as sum(x)",
        "Along N, the sum of x over the positions i of that element; over all axes of i, or one. Others are ignored.",
    ),
    ("cast", "cast(x, float32)", "any, a dtype or an input", "as named", "x in a dtype, or in that of an input."),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One function: how it is called, what it takes and gives, what it means, and its gradient by each argument."""

    topic: str
    name: str
    form: str
    takes: str
    gives: str
    summary: str
    gradient: tuple[tuple[str, str], ...] = ()

    def lines(self) -> Iterator[str]:
        """All that is known of it, for a terminal."""
        yield f"{self.form}: {self.summary}"
        yield f"arguments: {self.takes}"
        yield f"result: {self.gives}"
        for argument, text in self.gradient or (("", "none"),):
            yield f"gradient{f' by {argument}' if argument else ''}: {text}"
        if any(text not in ("derived", "none") for _, text in self.gradient):
            yield "where g is the gradient of the result, and y the result"


def entries() -> tuple[Entry, ...]:
    """The language, topic by topic."""
    signs = {name: written(sign) for sign, name in OPERATORS.items()}
    operators = (_of_function("operators", FUNCTIONS[name], form) for name, form in signs.items())
    functions = (_of_function("functions", one, call(one)) for one in FUNCTIONS.values() if one.name not in signs)
    of_axes = (Entry("axes and dtypes", *one, _by_name(one[0])) for one in _OF_AXES)
    return (*operators, *functions, *map(_of_reduction, REDUCTIONS.values()), *of_axes)


def find(name: str) -> Entry | None:
    """The entry of a function by its name, or of an operator by its sign."""
    signs = {sign.removeprefix("u"): function for sign, function in reversed(OPERATORS.items())}
    wanted = signs.get(name, name)
    return next((one for one in entries() if one.name == wanted), None)


def call(function: Function) -> str:
    """`clamp(x, min, max)`"""
    return f"{function.name}({', '.join(map(_argument, function.args))})"


def written(sign: str) -> str:
    """An operator between its operands."""
    if sign in ("u-", "u+", "~", "not"):
        return f"{sign.removeprefix('u')}{' ' if sign == 'not' else ''}x"
    return f"x {sign} other"


def _argument(arg: Arg) -> str:
    return arg.name if arg.required else f"{arg.name}={arg.default}"


def _of_function(topic: str, one: Function, form: str) -> Entry:
    gradient = tuple(pair for pair in one.derivative if pair[1] != "0.0")
    takes, gives = _TAKES[one.accepts], _GIVES[one.result]
    form = form if topic == "functions" else f"{form}, {call(one)}"
    return Entry(topic, one.name, form, takes, gives, one.summary, gradient)


def _of_reduction(one: Reduction) -> Entry:
    options = "".join(f", {name}={default}" for name, default in one.keywords)
    summary = one.summary[:1].upper() + one.summary[1:] + "."
    gradient = () if one.name in _FLAT else (("x", "derived"),)
    topic = "scans" if one.name.startswith("cum") else "reductions"
    gives = "bool" if one.name in ("any", "all") else "int64" if one.name in _FLAT else "as x"
    return Entry(topic, one.name, f"{one.name}(x, N{options})", _TAKES[one.accepts], gives, summary, gradient)


def _by_name(name: str) -> tuple[tuple[str, str], ...]:
    return {
        "take": (("x", "derived"),),
        "cast": (("x", "cast(g, x)"),),
        "sort": (("x", "derived"),),
        "topk": (("x", "derived"),),
        "recurrence": (("x", "derived"), ("decay", "derived")),
        "scatter_sum": (("x", "take(g, i, N, fill=0.0)"),),
    }.get(name, ())
