"""Entries of `tritongen functions` and of the reference: the language's operators, functions and reductions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .along import ALONG
from .function import Function
from .functions import FUNCTIONS, OPERATORS
from .reductions import REDUCTIONS, Reduction
from .special import SPECIAL

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


@dataclass(frozen=True, slots=True)
class Entry:
    """One function: its call syntax, argument and result dtypes, meaning, and the gradient for each argument."""

    topic: str
    name: str
    form: str
    takes: str
    gives: str
    summary: str
    gradient: tuple[tuple[str, str], ...] = ()

    def lines(self) -> Iterator[str]:
        """The entry as lines for a terminal."""
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
    functions = (_of_function("functions", one, one.form) for one in FUNCTIONS.values() if one.name not in signs)
    special = (
        Entry("axes and dtypes", one.name, one.form, one.takes, one.gives, one.summary, one.gradient)
        for table in (SPECIAL, ALONG)
        for one in table.values()
    )
    return (*operators, *functions, *map(_of_reduction, REDUCTIONS.values()), *special)


def find(name: str) -> Entry | None:
    """The entry of a function by its name, or of an operator by its sign."""
    signs = {sign.removeprefix("u"): function for sign, function in reversed(OPERATORS.items())}
    wanted = signs.get(name, name)
    return next((one for one in entries() if one.name == wanted), None)


def written(sign: str) -> str:
    """An operator between its operands."""
    if sign in ("u-", "u+", "~", "not"):
        return f"{sign.removeprefix('u')}{' ' if sign == 'not' else ''}x"
    return f"x {sign} other"


def _of_function(topic: str, one: Function, form: str) -> Entry:
    gradient = tuple(pair for pair in one.derivative if pair[1] != "0.0")
    takes, gives = _TAKES[one.accepts], _GIVES[one.result]
    form = form if topic == "functions" else f"{form}, {one.form}"
    return Entry(topic, one.name, form, takes, gives, one.summary, gradient)


def _of_reduction(one: Reduction) -> Entry:
    options = "".join(f", {name}={default}" for name, default in one.keywords)
    summary = one.summary[:1].upper() + one.summary[1:] + "."
    gradient = () if one.name in _FLAT else (("x", "derived"),)
    topic = "scans" if one.name.startswith("cum") else "reductions"
    gives = "bool" if one.name in ("any", "all") else "int64" if one.name in _FLAT else "as x"
    return Entry(topic, one.name, f"{one.name}(x, N{options})", _TAKES[one.accepts], gives, summary, gradient)
