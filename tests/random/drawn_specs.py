"""A random well-typed spec with an oracle in torch.

Tensors of the oracle have all axes of the spec in one order, with length 1 along axes that they lack. The dimensions
of `...` are flattened into one axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random

import torch

from tests.random.terms import (
    BATCH,
    BINARY,
    BY,
    DEFAULTS,
    MAPPED_BACK,
    REDUCE,
    SCANS,
    UNARY,
    Tensor,
    Term,
    Values,
    names,
    position,
)
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

LENGTHS = (2, 3, 5, 8, 16, 17, 24, 33, 40)
BATCHES = ((), (3,), (4,), (2, 3), (2, 1, 3))
LARGEST = 20_000  # elements over all axes
SCANNED = 4000  # the first seed whose spec may have scans
TIES = 2**10  # rounding errors by which the largest element must exceed the second largest


@dataclass
class Drawn:
    """A random spec. `lengths` has the lengths of its axes, in the order of the oracle's dimensions."""

    seed: int
    lengths: dict[str, int] = field(default_factory=dict)
    batch: tuple[int, ...] = ()
    fixed: set[str] = field(default_factory=set)
    groups: list[tuple[str, str]] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    lines: dict[str, Term] = field(default_factory=dict)
    outputs: list[Tensor] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    integers: set[str] = field(default_factory=set)  # lines that are indices
    rounding: float = 0.0  # epsilon of the compared dtype; with 0, ties of the largest are allowed

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        if leading := self.random.random() < 0.3:
            self.batch = self.random.choice(BATCHES)
            self.lengths[BATCH] = math.prod(self.batch)
        for axis in "MNKP"[: self.random.choice((2, 3, 3, 3, 4)) - leading]:
            room = LARGEST // math.prod(self.lengths.values())
            self.lengths[axis] = self.random.choice([one for one in LENGTHS if one <= max(2, room)])
            if self.random.random() < 0.15:
                self.fixed.add(axis)
        if len(self.lengths) - leading > 2 and self.random.random() < 0.25:
            first, _, other, *_ = _named(self.lengths)
            self.groups.append((first, other))
            self.fixed.add(first)
        for place in range(self.random.randint(1, 4)):
            self.add_input(f"x{place}", self.some(self.lengths, least=0 if place else 2))
        while missing := [axis for axis in self.lengths if not any(axis in one.axes for one in self.inputs)]:
            self.add_input(f"x{len(self.inputs)}", {missing[0], *self.some(self.lengths, least=1)})
        self.unused = [one.name for one in self.inputs]
        for place in range(self.random.randint(1, 4)):
            self.add_line(f"h{place}")
        while len(self.unused) > 1 and any(one.name in self.unused for one in self.inputs):
            self.add_line(f"h{len(self.lines)}", always_two=True)
        last = [*self.lines][-1]
        results = {name for name in self.lines if name in self.unused or name == last or self.random.random() < 0.15}
        self.outputs = [Tensor(name, self.dims(self.lines[name].axes)) for name in self.lines if name in results]
        for place in self.random.sample(range(len(self.inputs)), len(self.inputs)):
            if self.random.random() < 0.3:
                self.let_out(place)
        self.inputs.sort(key=lambda one: one.default is not None)

    # Drawing

    def some(self, axes: Iterable[str], least: int = 1) -> set[str]:
        found = sorted(axes)
        return set(self.random.sample(found, self.random.randint(min(least, len(found)), len(found))))

    def dims(self, axes: set[str] | frozenset[str]) -> tuple[tuple[str, ...], ...]:
        """Dimensions of these axes in random order, with `...` first; a group is one dimension."""
        grouped = [pair for pair in self.groups if set(pair) <= set(axes)]
        dims: list[tuple[str, ...]] = [*grouped]
        dims += [(axis,) for axis in sorted(axes) if not any(axis in pair for pair in grouped)]
        return tuple(sorted(self.random.sample(dims, len(dims)), key=lambda dim: dim != (BATCH,)))

    def add_input(self, name: str, axes: set[str]) -> None:
        self.inputs.append(Tensor(name, self.dims(axes)))

    def let_out(self, place: int) -> None:
        """Give an input a default, if other inputs determine the lengths of its axes."""
        one = self.inputs[place]
        required = [other for other in self.inputs if other is not one and other.default is None]
        known = self.fixed.union(*(other.axes for other in required))
        if known.issuperset(one.axes) and any(other.type == "T" for other in required):
            self.inputs[place] = replace(one, default=self.random.choice(DEFAULTS[one.type]))

    def leaf(self, other: str = "") -> Term:
        """An input or a line, preferably one that no line reads yet, other than `other`."""
        unused = [name for name in self.unused if name != other]
        floats = [one.name for one in self.inputs if one.type == "T"]
        name = (
            unused[0]
            if unused and self.random.random() < 0.7
            else self.random.choice([*floats, *(line for line in self.lines if line not in self.integers)])
        )
        if name in self.lines:
            return Term(name, self.lines[name].axes, lambda values: values[name])
        axes = frozenset(next(one for one in self.inputs if one.name == name).axes)
        return Term(name, axes, lambda values: values[name])

    def add_line(self, name: str, always_two: bool = False) -> None:
        """Add a line of one to three operations on one or two terms."""
        left = self.leaf()
        right = self.leaf(left.text)
        two = left.text != right.text and (always_two or self.random.random() < 0.75)
        term = self.of_two(left, right) if two else self.of_one(left)
        for _ in range(self.random.randint(0, 2)):
            term = self.of_one(term)
        self.lines[name] = term
        self.unused = [one for one in self.unused if one not in names(term.text)] + [name]

    def of_one(self, term: Term) -> Term:
        kinds = ("map", "map", "reduce", "mapped_back", "where", "chosen", "take", "position")
        kind = self.random.choice((*kinds, "scan", "scan", "packed") if self.seed >= SCANNED else kinds)
        if kind == "map" or not term.axes:
            text, function = self.random.choice([*UNARY.items()])
            return Term(text.format(term.text), term.axes, lambda values: function(term.value(values)))
        over = sorted(self.some(term.axes))
        dims = [[*self.lengths].index(axis) for axis in over]
        if kind == "position":
            return self.at_position(term)
        named = _named(over)
        if kind == "where" and named:
            first, second = named[0], self.random.choice(_named(term.axes))
            return Term(
                f"where(index({first}) <= index({second}), {term.text}, 0.125)",
                term.axes,
                lambda values: torch.where(self.positions(first) <= self.positions(second), term.value(values), 0.125),
            )
        if kind == "chosen":
            return self.chosen(term)
        if kind == "take" and named:
            return self.taken(term, named[0])
        if kind == "scan" and named:
            axis, (text, scan) = named[0], self.random.choice([*SCANS.items()])
            place = [*self.lengths].index(axis)
            return Term(text.format(term.text, axis), term.axes, lambda values: scan(term.value(values), place))
        if kind == "packed" and named:
            return self.packed(term, named[0])
        texts, left = (REDUCE, term.axes - set(over)) if kind == "reduce" else (MAPPED_BACK, term.axes)
        text, reduce = self.random.choice([*texts.items()])
        return Term(text.format(term.text, ", ".join(over)), left, lambda values: reduce(term.value(values), dims))

    def chosen(self, term: Term) -> Term:
        """A term masked by a new bool input, which may have other axes, too."""
        name = f"is{len(self.inputs)}"
        room = LARGEST // math.prod(self.lengths[axis] for axis in term.axes)
        others = {axis for axis in self.lengths if axis in term.axes or self.lengths[axis] <= room}
        axes = self.some(others, least=0)
        self.inputs.append(Tensor(name, self.dims(axes), type="bool"))
        return Term(
            f"where({name}, {term.text}, 0.125)",
            term.axes | axes,
            lambda values: torch.where(values[name], term.value(values), 0.125),
        )

    def taken(self, term: Term, axis: str) -> Term:
        """Gather rows along an axis by a new input of indices, which may have that axis or others."""
        name = f"at{len(self.inputs)}"
        others = self.some(self.lengths.keys() - term.axes | {axis}, least=0)
        self.inputs.append(Tensor(name, self.dims(others), axis, "int64"))
        return self.rows(term, Term(name, frozenset(others), lambda values: values[name]), axis)

    def packed(self, term: Term, axis: str) -> Term:
        """Gather rows by the cumulative count of a new bool input, which may have other axes of the term, too."""
        name = f"is{len(self.inputs)}"
        others = {axis, *self.some(term.axes - {axis}, least=0)}
        self.inputs.append(Tensor(name, self.dims(others), type="bool"))
        place = [*self.lengths].index(axis)
        at = Term(
            f"maximum(cumsum({name}, {axis}) - 1, 0)",
            frozenset(others),
            lambda values: (values[name].cumsum(place) - 1).clamp(min=0),
        )
        return self.rows(term, at, axis)

    def rows(self, term: Term, at: Term, axis: str) -> Term:
        place, whole = [*self.lengths].index(axis), {*term.axes, *at.axes} - ({axis} - at.axes)

        def value(values: Values) -> torch.Tensor:
            shape = [length if one in whole else 1 for one, length in self.lengths.items()]
            rows = term.value(values)
            wide = [n if here != place else rows.shape[place] for here, n in enumerate(shape)]
            return rows.expand(wide).gather(place, at.value(values).expand(shape))

        return Term(f"take({term.text}, {at.text}, {axis})", frozenset(whole), value)

    def at_position(self, term: Term) -> Term:
        """A term at the index of its largest or smallest element along an axis, or masked before that index."""
        axis = self.random.choice(sorted(term.axes))
        at = self.largest(term, axis)
        if self.random.random() < 0.4:
            name = f"p{len(self.lines)}"
            self.lines[name] = at
            self.integers.add(name)
            at = Term(name, at.axes, lambda values: values[name])
        if axis != BATCH and self.random.random() < 0.4:
            return self.rows(term, at, axis)
        along = self.random.choice(_named(term.axes) or _named(self.lengths))
        return Term(
            f"where({at.text} <= index({along}), {term.text}, 0.125)",
            term.axes | {along},
            lambda values: torch.where(at.value(values) <= self.positions(along), term.value(values), 0.125),
        )

    def largest(self, term: Term, axis: str) -> Term:
        """The index of the largest or smallest element; inputs are rounded, so that the first of several counts."""
        place, up = [*self.lengths].index(axis), self.random.random() < 0.5
        text, of, least = term.text, term.value, TIES
        if any(one.name == term.text for one in self.inputs):
            text, of, least = f"round({text} * 2)", lambda values: (term.value(values) * 2).round(), 0
        elif axis != BATCH and self.random.random() < 0.5:
            text, of = (
                f"{text} + 0.375 * index({axis})",
                lambda values: term.value(values) + 0.375 * self.positions(axis),
            )
        return Term(
            f"{'argmax' if up else 'argmin'}({text}, {axis})",
            term.axes - {axis},
            lambda values: position(of(values).detach(), place, up, least * self.rounding),
        )

    def of_two(self, left: Term, right: Term) -> Term:
        both = sorted(left.axes & right.axes)
        if both and self.random.random() < 0.5:
            over = sorted(self.some(both))
            dims = [[*self.lengths].index(axis) for axis in over]
            return Term(
                f"(sum({left.text} * {right.text}, {', '.join(over)}) * 0.25)",
                (left.axes | right.axes) - set(over),
                lambda values: (left.value(values) * right.value(values)).sum(dims, keepdim=True) * 0.25,
            )
        text, function = self.random.choice([*BINARY.items()])
        return Term(
            text.format(left.text, right.text),
            left.axes | right.axes,
            lambda values: function(left.value(values), right.value(values)),
        )

    def positions(self, axis: str) -> torch.Tensor:
        """The indices along an axis, as a tensor with all axes."""
        shape = [length if one == axis else 1 for one, length in self.lengths.items()]
        return torch.arange(self.lengths[axis]).view(shape)

    # Its text, tensors and oracle

    def text(self) -> str:
        inputs = "\n".join(f'{one.name} = "{one.type}[{self.shape(one)}]{_default(one)}"' for one in self.inputs)
        lines = "\n".join(f'{name} = "{term.text}"' for name, term in self.lines.items())
        outputs = "\n".join(f'{one.name} = "auto[{self.shape(one, "")}]"' for one in self.outputs)
        by = ", ".join(f'"{self.inputs[place].name}"' for place in self.smooth)
        grad = f"[grad]\nwrt = [{by}]\n" if by else ""
        params = "[params]\nby = 0.5\n" if any("by" in names(term.text) for term in self.lines.values()) else ""
        tests = "\n".join(f'{one.name} = {{ low = 0, high = "{one.of}" }}' for one in self.inputs if one.of)
        head = '[op]\nname = "drawn"\nsummary = "Computes something."\n[types]\nT = "float"\n'
        body = f"[inputs]\n{inputs}\n{params}[compute]\n{lines}\n[outputs]\n{outputs}\n{grad}"
        return f"{head}{body}[test]\n{tests}\n" if tests else head + body

    @cached_property
    def smooth(self) -> list[int]:
        """The positions of inputs for which a result has a nonzero gradient."""
        given = self.tensors(torch.float64)
        places = [place for place, one in enumerate(self.inputs) if one.type == "T"]
        for place in places:
            given[place].requires_grad_()
        results = [one for one in self.torch(*given) if one.requires_grad]
        random = torch.Generator().manual_seed(self.seed)
        outgoing = [torch.randn(one.shape, generator=random, dtype=one.dtype) for one in results]
        by = [given[place] for place in places]
        found = torch.autograd.grad(results, by, outgoing, allow_unused=True) if results else ()
        pairs = zip(places, found, strict=False)
        return [place for place, gradient in pairs if gradient is not None and gradient.abs().max() > 1e-12]

    def shape(self, tensor: Tensor, equals: str = "=") -> str:
        def told(axis: str) -> str:
            return f"{axis}={self.lengths[axis]}" if axis in self.fixed and equals else axis

        return ", ".join(told(dim[0]) if len(dim) == 1 else f"({' '.join(map(told, dim))})" for dim in tensor.dims)

    def spec(self) -> Spec:
        return read_spec("drawn.toml", self.text())

    def tensors(self, dtype: torch.dtype, draw: int = 0) -> list[torch.Tensor]:
        random = torch.Generator().manual_seed(self.seed + draw)
        made = []
        for one in self.inputs:
            shape = [n for dim in one.dims for n in (self.leading(one) if dim == (BATCH,) else [self.length(dim)])]
            if one.of:
                made.append(torch.randint(0, self.lengths[one.of], shape, generator=random))
            else:
                drawn = torch.randn(shape, generator=random, dtype=torch.float64)
                made.append(drawn > 0 if one.type == "bool" else drawn.to(dtype))
        return made

    def leading(self, one: Tensor) -> tuple[int, ...]:
        """The leading dimensions of an input: one required input has all of `...`, others broadcast."""
        always = [other.name for other in self.inputs if BATCH in other.axes and other.default is None]
        if one.name == Random(f"{self.seed} of all").choice(always):
            return self.batch
        random = Random(f"{self.seed} {one.name}")
        lengths = self.batch[random.randint(0, len(self.batch)) if random.random() < 0.4 else 0 :]
        return tuple(1 if random.random() < 0.2 else length for length in lengths)

    def length(self, dim: tuple[str, ...]) -> int:
        return math.prod(self.lengths[axis] for axis in dim)

    def apart(self, tensor: torch.Tensor) -> torch.Tensor:
        """A strided copy, with dimensions in another order in memory, and perhaps gaps between elements."""
        order = self.random.sample(range(tensor.ndim), tensor.ndim)
        step = self.random.choice((1, 1, 2))
        memory = torch.zeros([step * tensor.shape[place] for place in order], dtype=tensor.dtype)
        view = memory[tuple([slice(None, None, step)] * tensor.ndim)].permute(
            [order.index(n) for n in range(tensor.ndim)]
        )
        return view.copy_(tensor)

    def draw_lengths(self) -> None:
        """Draw other lengths for axes whose length the spec does not fix."""
        free = [axis for axis in sorted(_named(self.lengths)) if axis not in self.fixed]
        self.lengths |= dict.fromkeys(free, 1)
        if BATCH in self.lengths:
            self.batch = self.random.choice(BATCHES)
            self.lengths[BATCH] = math.prod(self.batch)
        for axis in free:
            room = LARGEST // math.prod(self.lengths.values())
            self.lengths[axis] = self.random.choice([one for one in (1, 4, 19, 70, 130) if one <= max(1, room)])

    def without_length(self) -> None:
        """Set the length of an axis to 0, but not of one along which indices are drawn."""
        free = sorted(self.lengths.keys() - self.fixed - {one.of for one in self.inputs})
        if free:
            self.lengths[axis := self.random.choice(free)] = 0
            self.batch = (2, 0) if axis == BATCH else self.batch

    def params(self) -> dict[str, float]:
        return {"by": BY} if "[params]" in self.text() else {}

    def torch(self, *tensors: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        values: dict[str, torch.Tensor] = {}
        for one, tensor in zip(self.inputs, tensors, strict=True):
            values[one.name] = self.filled(one) if tensor is None else self.spread(one, tensor)
        for name, term in self.lines.items():
            values[name] = term.value(values)
        return tuple(self.gathered(one, values[one.name]) for one in self.outputs)

    def spread(self, one: Tensor, tensor: torch.Tensor) -> torch.Tensor:
        """An input as a tensor with all axes."""
        if BATCH in one.axes:
            other = tensor.shape[tensor.ndim - len(one.dims) + 1 :]
            tensor = tensor.expand([*self.batch, *other])
        apart = tensor.reshape([self.lengths[axis] for axis in one.axes])
        order = [axis for axis in self.lengths if axis in one.axes]
        return apart.permute([one.axes.index(axis) for axis in order]).reshape(self.full(one))

    def filled(self, one: Tensor) -> torch.Tensor:
        """The value of an absent input."""
        dtype = {"T": torch.float64, "bool": torch.bool, "int64": torch.int64}[one.type]
        return torch.full(self.full(one), one.default or 0, dtype=dtype)

    def full(self, one: Tensor) -> list[int]:
        return [length if axis in one.axes else 1 for axis, length in self.lengths.items()]

    def gathered(self, one: Tensor, value: torch.Tensor) -> torch.Tensor:
        """A value of the oracle, expanded to the axes of a result, with the result's dimensions."""
        order = [axis for axis in self.lengths if axis in one.axes]
        apart = value.expand(self.full(one)).reshape([self.lengths[axis] for axis in order])
        whole = apart.permute([order.index(axis) for axis in one.axes])
        return whole.reshape([n for dim in one.dims for n in (self.batch if dim == (BATCH,) else [self.length(dim)])])


def _named(axes: Iterable[str]) -> list[str]:
    """The axes without `...`: in the order of a dict or list, else sorted."""
    return [axis for axis in (axes if isinstance(axes, dict | list) else sorted(axes)) if axis != BATCH]


def _default(one: Tensor) -> str:
    return "" if one.default is None else f" = {str(one.default).lower()}"
