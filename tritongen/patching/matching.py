"""Matches a spec's form with a form of a trace: the spec's inputs are holes, its params are scalars to solve for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .forms import SCALARS, Axes, Form, Forms, value

_NUMERIC = frozenset(("add", "mul"))


@dataclass(frozen=True, slots=True)
class Bound:
    """The bindings of a partial match."""

    inputs: Mapping[str, Form] = field(default_factory=dict)
    axes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()  # of the spec, and of the trace
    sets: tuple[tuple[Axes, Axes], ...] = ()
    equal: tuple[tuple[Form, Form], ...] = ()  # scalars of the spec and of the trace
    masks: tuple[tuple[Form, Form], ...] = ()  # conditions of positions, and inputs that may equal them


class Matcher:
    """Matches a spec's form with a window's. `wanted` are the window's inputs whose producers may complete a match."""

    def __init__(self, forms: Forms) -> None:
        self._forms = forms
        self.wanted: dict[str, None] = {}
        self.met: set[Form] = set()  # functions of the spec that the trace has
        self.differs: tuple[Form, Form] | None = None  # the first mismatch

    def match(self, one: Form, other: Form, bound: Bound) -> Iterator[Bound]:
        """Yields the bindings that make a form of the spec (`one`) equal to a form of the trace (`other`)."""
        if one.kind == "input":
            yield from self._hole(one, other, bound)
        elif one.is_scalar:
            if other.is_scalar:
                yield replace(bound, equal=(*bound.equal, (one, other)))
            else:
                self._differ(one, other)
        elif other.kind == "input":
            self._differ(one, other)
            if _is_of_positions(one):
                yield replace(bound, masks=tuple(dict.fromkeys((*bound.masks, (one, other)))))
        elif one.kind != other.kind or (one.kind not in _NUMERIC and len(one.args) != len(other.args)):
            self._differ(one, other)
        elif one.kind in _NUMERIC:
            self.met.add(one)
            yield from self._several(one, other, bound)
        else:
            yield from self._same(one, other, bound)

    def _differ(self, one: Form, other: Form) -> None:
        for leaf in _behind(one, other):
            if leaf.kind == "input":
                self.wanted[str(leaf.data)] = None
        self.differs = self.differs or (one, other)

    def _hole(self, one: Form, other: Form, bound: Bound) -> Iterator[Bound]:
        name = str(one.data)
        known = bound.inputs.get(name)
        if known is None and not other.is_scalar:
            yield replace(bound, inputs={**bound.inputs, name: other})
        elif known is other:
            yield bound
        else:
            self._differ(one, other)

    def _same(self, one: Form, other: Form, bound: Bound) -> Iterator[Bound]:
        found = self._data(one, other, bound)
        if found is None:
            self._differ(one, other)
            return
        self.met.add(one)
        orders = [other.args]
        if one.kind in ("eq", "maximum", "minimum", "logical_and", "logical_or", "bitwise_and", "bitwise_or"):
            orders.append(other.args[::-1])
        for order in orders:
            yield from self._all(one.args, order, found)

    def _all(self, ones: Sequence[Form], others: Sequence[Form], bound: Bound) -> Iterator[Bound]:
        if not ones:
            yield bound
            return
        for found in self.match(ones[0], others[0], bound):
            yield from self._all(ones[1:], others[1:], found)

    def _data(self, one: Form, other: Form, bound: Bound) -> Bound | None:
        """The bindings extended by the axes of two nodes of one kind; None if their options differ."""
        if one.kind in ("take", "index"):
            return replace(bound, axes=(*bound.axes, (one.data, other.data)))  # type: ignore[arg-type]
        if isinstance(one.data, tuple) and one.data and isinstance(one.data[0], frozenset):
            assert isinstance(other.data, tuple)
            same = one.data[1] == other.data[1]
            return replace(bound, sets=(*bound.sets, (one.data[0], other.data[0]))) if same else None
        return bound if one.data == other.data else None

    def _several(self, one: Form, other: Form, bound: Bound) -> Iterator[Bound]:
        """Matches two sums or products, with terms in any order; scalar terms are combined and matched separately."""
        scalars = [arg for arg in one.args if arg.is_scalar]
        constants = [arg for arg in other.args if arg.is_scalar]
        made = self._forms.sum if one.kind == "add" else self._forms.product
        neutral = self._forms.number(0.0 if one.kind == "add" else 1.0)
        if scalars or constants:
            ours = scalars[0] if len(scalars) == 1 else Form(one.kind, tuple(scalars), None, frozenset(), -1)
            pair = ours if scalars else neutral, made(constants) if constants else neutral
            bound = replace(bound, equal=(*bound.equal, pair))
        ones = sorted((arg for arg in one.args if not arg.is_scalar), key=lambda arg: arg.kind == "input")
        others = [arg for arg in other.args if not arg.is_scalar]
        if len(others) < len(ones):
            self._differ(one, other)
            for arg in others:
                self._differ(one, arg) if arg.kind == "input" else None
            return
        yield from self._assigned(ones, others, bound, made)

    def _assigned(
        self, ones: Sequence[Form], others: Sequence[Form], bound: Bound, made: Callable[[Sequence[Form]], Form]
    ) -> Iterator[Bound]:
        if not ones:
            if not others:
                yield bound
            return
        first, rest = ones[0], ones[1:]
        if not rest and len(others) > 1:  # One hole for all remaining terms.
            if first.kind == "input":
                yield from self._hole(first, made(others), bound)
            else:
                for other in others:
                    self._differ(first, other)
            return
        for place, other in enumerate(others):
            left = [*others[:place], *others[place + 1 :]]
            for found in self.match(first, other, bound):
                yield from self._assigned(rest, left, found, made)


def _behind(one: Form, other: Form) -> Sequence[Form]:
    """Where to look for an input that hides a match: in a reciprocal's argument, since that may have a form without
    `reciprocal`; in a sum's factors if the spec has a product, since some may be moved out of it; else in `other`."""
    if other.kind == "reciprocal":
        return other.args
    if other.kind == "sum" and one.kind == "mul":
        return other.args[0].args or other.args
    return (other,)


def _is_of_positions(form: Form) -> bool:
    """Whether a form consists only of positions, lengths, params and constants."""
    return form.kind in ("index", *SCALARS) or (bool(form.args) and all(map(_is_of_positions, form.args)))


def solved(
    bound: Bound, length_of: Callable[[int], float | None], lengths: Callable[[Form], float | None]
) -> dict[str, float] | None:
    """Solves for the params that make all pairs of scalars equal; None if there is no solution.

    `length_of` gives the length of a spec's axis, `lengths` the length of a form of the trace.
    """
    params: dict[str, float] = {}

    def known(form: Form) -> float | None:
        return length_of(int(form.data)) if form.kind == "size" else params.get(str(form.data))  # type: ignore[call-overload]

    left = list(bound.equal)
    for _ in range(len(left) + 1):
        for one, other in list(left):
            wanted, has = value(other, lengths), value(one, known)
            if wanted is None:
                return None
            if has is not None:
                if not math.isclose(has, wanted, rel_tol=1e-6, abs_tol=1e-300):
                    return None
                left.remove((one, other))
            elif (found := _unknown(one, wanted, known)) is not None:
                params[found[0]] = found[1]
                left.remove((one, other))
    return params if not left else None


def _unknown(one: Form, wanted: float, known: Callable[[Form], float | None]) -> tuple[str, float] | None:
    """The only unknown param of a sum or product, and its value if the scalar is `wanted`; None for other scalars."""
    if one.kind == "param":
        return str(one.data), wanted
    if one.kind not in ("add", "mul"):
        return None
    open_ = [arg for arg in one.args if value(arg, known) is None]
    if len(open_) != 1:
        return None
    rest = [value(arg, known) or 0.0 for arg in one.args if arg is not open_[0]]
    if one.kind == "add":
        return _unknown(open_[0], wanted - math.fsum(rest), known)
    by = math.prod(rest)
    return _unknown(open_[0], wanted / by, known) if by else None
