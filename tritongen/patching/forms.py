"""Canonical forms of math: expressions that are equal up to names, spelling and order of operands are one object.

Composite functions are expanded: `silu(x)` is `x * sigmoid(x)`, a mean is a sum times the reciprocal of a length, a
softmax is exponentials over their sum. Sums and products have any number of terms, at most one of them a constant;
factors without a summed axis are moved out of a sum. Casts among floats are left out, because kernels round only
results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..importing.formulas import COMPUTED

T = TypeVar("T")
Axes = frozenset[int]
NONE: Axes = frozenset()
SCALARS = frozenset(("number", "param", "size"))
_SWAPPED = {"gt": "lt", "ge": "le"}
COMMUTATIVE = frozenset(
    "maximum minimum eq ne logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor".split()
)


@dataclass(frozen=True, eq=False, slots=True)
class Form:
    """A node: `kind` is a function, `sum` and other reductions, or "input", "number", "param", "size", "index", "take".

    `data` is a constant, a name, the axes of a reduction or take, or a function's options. Forms of one builder are
    equal if and only if they are the same object.
    """

    kind: str
    args: tuple[Form, ...]
    data: object
    axes: Axes
    place: int

    @property
    def is_scalar(self) -> bool:
        """Whether it is arithmetic of constants, params and lengths."""
        return self.kind in SCALARS or (bool(self.args) and all(one.is_scalar for one in self.args))


def reached(first: Iterable[T], neighbours: Callable[[T], Iterable[T]]) -> list[T]:
    """The nodes reachable from `first`, these included, breadth-first; `neighbours` gives the neighbours of a node."""
    found = list(first)
    seen = set(found)
    for one in found:  # which grows
        new = [other for other in dict.fromkeys(neighbours(one)) if other not in seen]
        seen.update(new)
        found += new
    return found


def within(form: Form) -> list[Form]:
    """A form and all of its subforms."""
    return reached([form], lambda one: one.args)


class Forms:
    """Builds forms. `length` gives the length of an axis if it is fixed, else 0."""

    def __init__(self, length: Callable[[int], int]) -> None:
        self._length = length
        self._known: dict[object, Form] = {}

    def _form(self, kind: str, args: Sequence[Form] = (), data: object = None, axes: Axes | None = None) -> Form:
        key = kind, tuple(one.place for one in args), data
        if key not in self._known:
            own = NONE.union(*(one.axes for one in args)) if axes is None else axes
            self._known[key] = Form(kind, tuple(args), data, own, len(self._known))
        return self._known[key]

    def input(self, name: str, axes: Iterable[int]) -> Form:
        return self._form("input", (), name, frozenset(axes))

    def number(self, value: float | int | bool) -> Form:
        return self._form("number", (), float(value))

    def param(self, name: str) -> Form:
        return self._form("param", (), name)

    def size(self, axes: Iterable[int]) -> Form:
        sizes = [self._form("size", (), axis, NONE) for axis in axes]
        return self.product(sizes)

    def index(self, axes: Sequence[int]) -> Form:
        return self._form("index", (), tuple(axes), frozenset(axes))

    # Arithmetic.

    def sum(self, terms: Iterable[Form]) -> Form:
        return self._several("add", terms, 0.0, lambda one, other: one + other)

    def product(self, factors: Iterable[Form]) -> Form:
        made = self._several("mul", factors, 1.0, lambda one, other: one * other)
        zero = made.kind == "mul" and any(one.kind == "number" and one.data == 0 for one in made.args)
        return self.number(0) if zero and made.is_scalar else made

    def _several(self, kind: str, given: Iterable[Form], neutral: float, of: Callable[[float, float], float]) -> Form:
        number, rest = neutral, list[Form]()
        for one in given:
            for operand in one.args if one.kind == kind else (one,):
                if operand.kind == "number":
                    number = of(number, float(operand.data))  # type: ignore[arg-type]
                else:
                    rest.append(operand)
        rest.sort(key=lambda one: one.place)
        if number != neutral or not rest:
            rest.append(self.number(number))
        return rest[0] if len(rest) == 1 else self._form(kind, rest)

    def negative(self, x: Form) -> Form:
        return self.product([self.number(-1), x])

    def reciprocal(self, x: Form) -> Form:
        if x.kind == "number" and x.data:
            return self.number(1 / float(x.data))  # type: ignore[arg-type]
        if x.kind == "mul":
            return self.product(map(self.reciprocal, x.args))
        inverse = {"sqrt": "rsqrt", "rsqrt": "sqrt"}
        if x.kind in inverse:
            return self._form(inverse[x.kind], x.args)
        if x.kind == "reciprocal":
            return x.args[0]
        exponent = self._of_one_plus_exp(x)
        return self._form("reciprocal", [x]) if exponent is None else self._form("sigmoid", [self.negative(exponent)])

    def _of_one_plus_exp(self, x: Form) -> Form | None:
        if x.kind != "add" or len(x.args) != 2 or self.number(1) not in x.args:
            return None
        other = next((one for one in x.args if one.kind == "exp"), None)
        return None if other is None else other.args[0]

    def power(self, x: Form, exponent: Form) -> Form:
        if exponent.kind == "number":
            value = float(exponent.data)  # type: ignore[arg-type]
            if x.kind == "number" and (x.data or value > 0):
                return self.number(float(x.data) ** value)  # type: ignore[arg-type]
            if value in (2.0, 3.0, 4.0):
                return self.product([x] * int(value))
            if value == 1.0:
                return x
            if value == -1.0:
                return self.reciprocal(x)
            if abs(value) == 0.5:
                return self._form("sqrt" if value > 0 else "rsqrt", [x])
        return self._form("pow", [x, exponent])

    # Reductions and positions.

    def reduced(self, kind: str, x: Form, axes: Axes, data: object = ()) -> Form:
        axes &= x.axes
        if not axes:
            return x
        if kind == "mean":
            return self.product([self.reciprocal(self.size(sorted(axes))), self.reduced("sum", x, axes)])
        if kind == "logsumexp":
            high = self.reduced("max", x, axes)
            return self.sum([high, self._form("log", [self.reduced("sum", self._shifted(x, axes), axes)])])
        if kind == "softmax":
            e = self._shifted(x, axes)
            return self.product([e, self.reciprocal(self.reduced("sum", e, axes))])
        if kind == "log_softmax":
            return self.sum([x, self.negative(self.reduced("logsumexp", x, axes))])
        if kind == "norm" and data == (2.0,):
            return self.power(self.reduced("sum", self.product([x, x]), axes), self.number(0.5))
        outside: list[Form] = []
        if kind == "sum" and x.kind == "mul":
            outside = [one for one in x.args if not one.axes & axes]
            x = self.product(one for one in x.args if one.axes & axes)
        return self.product([*outside, self._form(kind, [x], (axes, data), x.axes - axes)])

    def _shifted(self, x: Form, axes: Axes) -> Form:
        return self._form("exp", [self.sum([x, self.negative(self.reduced("max", x, axes))])])

    def take(self, x: Form, index: Form, axes: Sequence[int], *fill: Form) -> Form:
        """A take along `axes`, indexed as one; `x` itself if it has none of them and there is no `fill`."""
        if not x.axes & set(axes) and not fill:
            return x
        return self._form("take", [x, index, *fill], tuple(axes), (x.axes - set(axes)) | index.axes)

    def where(self, condition: Form, x: Form, other: Form) -> Form:
        if condition.kind == "number":
            return x if condition.data else other
        if condition.kind == "logical_not":
            return self.where(condition.args[0], other, x)
        if condition.kind == "ne":
            return self.where(self.call("eq", condition.args), other, x)
        if condition.kind == "eq":
            x, other = self._at_a_position(condition, x, other)
        return x if x is other else self._form("where", [condition, x, other])

    def _at_a_position(self, condition: Form, x: Form, other: Form) -> tuple[Form, Form]:
        """The branches of `where(index == c, x, other)` with `index` known: in `other` only for an axis of length 2."""
        index = next((one for one in condition.args if one.kind == "index"), None)
        number = next((one for one in condition.args if one.kind == "number"), None)
        if index is None or number is None or len(index.data) != 1:  # type: ignore[arg-type]
            return x, other
        x = self._replaced(x, index, number)
        if self._length(index.data[0]) == 2 and number.data in (0, 1):  # type: ignore[index]
            other = self._replaced(other, index, self.number(1 - float(number.data)))
        return x, other

    def _replaced(self, x: Form, index: Form, number: Form) -> Form:
        if x is index:
            return number
        if not x.args or not x.axes & index.axes:
            return x
        if x.kind == "take" and index.axes & set(x.data):  # type: ignore[call-overload]
            return self.take(x.args[0], self._replaced(x.args[1], index, number), x.data, *x.args[2:])  # type: ignore[arg-type]
        args = [self._replaced(one, index, number) for one in x.args]
        return self.rebuilt(x, args)

    def rebuilt(self, x: Form, args: Sequence[Form]) -> Form:
        """The form `x` with other arguments."""
        if all(one is other for one, other in zip(x.args, args, strict=True)):
            return x
        if x.kind == "take":
            return self.take(args[0], args[1], x.data, *args[2:])  # type: ignore[arg-type]
        if isinstance(x.data, tuple) and x.data and isinstance(x.data[0], frozenset):
            return self.reduced(x.kind, args[0], x.data[0], x.data[1])
        return self.call(x.kind, args, x.data or ())  # type: ignore[arg-type]

    # Functions by their names in the language.

    def call(self, name: str, args: Sequence[Form], options: Sequence[tuple[str, object]] = ()) -> Form:
        """An elementwise function of the language."""
        if name in _ALIASES:
            name = _ALIASES[name]
        made = _ARITHMETIC.get(name)
        if made is not None and not options:
            return made(self, *args)
        if name in _SWAPPED:
            return self.call(_SWAPPED[name], args[::-1])
        if all(one.kind == "number" for one in args) and name in _COMPARED:
            return self.number(_COMPARED[name](*(float(one.data) for one in args)))  # type: ignore[arg-type]
        if name in COMMUTATIVE:
            args = sorted(args, key=lambda one: one.place)
        return self._form(name, args, tuple(options) or None)


_ALIASES = {"clamp_min": "maximum", "clamp_max": "minimum", "divide": "div", "multiply": "mul", "subtract": "sub"}
_COMPARED = {name: COMPUTED[name] for name in ("eq", "ne", "lt", "le")}
_ARITHMETIC: dict[str, Callable[..., Form]] = {
    "add": lambda t, x, y: t.sum([x, y]),
    "sub": lambda t, x, y: t.sum([x, t.negative(y)]),
    "mul": lambda t, x, y: t.product([x, y]),
    "div": lambda t, x, y: t.product([x, t.reciprocal(y)]),
    "neg": lambda t, x: t.negative(x),
    "positive": lambda t, x: x,
    "reciprocal": lambda t, x: t.reciprocal(x),
    "square": lambda t, x: t.product([x, x]),
    "pow": lambda t, x, y: t.power(x, y),
    "sqrt": lambda t, x: t.power(x, t.number(0.5)),
    "rsqrt": lambda t, x: t.power(x, t.number(-0.5)),
    "silu": lambda t, x: t.product([x, t.call("sigmoid", [x])]),
    "relu": lambda t, x: t.call("maximum", [x, t.number(0)]),
    "where": lambda t, c, x, y: t.where(c, x, y),
    "bitwise_not": lambda t, x: t.call("logical_not", [x]),
}


def value(form: Form, known: Callable[[Form], float | None]) -> float | None:
    """The value of a scalar, with `known` params and lengths; None if one is unknown, or for failing arithmetic."""
    if form.kind == "number":
        return float(form.data)  # type: ignore[arg-type]
    if form.kind in ("param", "size"):
        return known(form)
    args = [value(one, known) for one in form.args]
    operands = [one for one in args if one is not None]
    if len(operands) < len(args) or form.kind not in _COMPUTED:
        return None
    try:
        return float(_COMPUTED[form.kind](*operands))
    except (ArithmeticError, ValueError):
        return None


_COMPUTED: dict[str, Callable[..., float]] = COMPUTED | {
    "add": lambda *args: math.fsum(args),
    "mul": lambda *args: math.prod(args),
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / math.sqrt(x),
}
