"""Random well-typed specs, each with what it computes, in torch: `python tests/random_specs.py FIRST COUNT`.

Run as a program, it builds each of them, compares values and gradients with the oracle's, and tells which are wrong.
The oracle knows nothing of axes but an order of them: its tensors have all, of length 1 where they do not vary.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

os.environ.setdefault("TRITON_INTERPRET", "1")

import torch
from importing import built
from oracles import compare, differentiated

from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

F = torch.nn.functional
LENGTHS = (2, 3, 5, 8, 16, 17, 24, 33, 40)
LARGEST = 20_000  # elements over all axes
BY = 0.75  # the value of a param

Values = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Term:
    """An expression, the axes along which it varies, and its value where those of inputs and lines are known."""

    text: str
    axes: frozenset[str]
    value: Callable[[Values], torch.Tensor]


@dataclass(frozen=True)
class Tensor:
    """An input or a result: its dimensions, each an axis or a group of them; positions along `of`, or of a `type`."""

    name: str
    dims: tuple[tuple[str, ...], ...]
    of: str = ""
    type: str = "T"


UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tanh({})": torch.tanh,
    "sigmoid({})": torch.sigmoid,
    "silu({})": F.silu,
    "gelu({})": F.gelu,
    "sin({})": torch.sin,
    "softplus({})": F.softplus,
    "square({})": torch.square,
    "exp(-square({}))": lambda x: torch.exp(-(x * x)),
    "log(1 + square({}))": lambda x: torch.log(1 + x * x),
    "({} * 0.5 + 0.25)": lambda x: x * 0.5 + 0.25,
    "({} * by + 0.25)": lambda x: x * BY + 0.25,
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "({} + {})": torch.add,
    "({} - {})": torch.sub,
    "({} * {})": torch.mul,
    "({} / (1 + square({})))": lambda a, b: a / (1 + b * b),
    "maximum({}, {})": torch.maximum,
}
REDUCE: dict[str, Callable[[torch.Tensor, list[int]], torch.Tensor]] = {
    "sum({}, {})": lambda x, dims: x.sum(dims, keepdim=True),
    "mean({}, {})": lambda x, dims: x.mean(dims, keepdim=True),
    "max({}, {})": lambda x, dims: x.amax(dims, keepdim=True),
    "min({}, {})": lambda x, dims: x.amin(dims, keepdim=True),
    "var({}, {}, correction=0)": lambda x, dims: x.var(dims, correction=0, keepdim=True),
    "logsumexp({}, {})": lambda x, dims: x.logsumexp(dims, keepdim=True),
}
MAPPED_BACK: dict[str, Callable[[torch.Tensor, list[int]], torch.Tensor]] = {
    "softmax({0}, {1})": lambda x, dims: torch.exp(x - x.logsumexp(dims, keepdim=True)),
    "({0} * rsqrt(mean(square({0}), {1}) + 0.1))": lambda x, dims: (
        x * (x.square().mean(dims, keepdim=True) + 0.1).rsqrt()
    ),
    "({0} - mean({0}, {1}))": lambda x, dims: x - x.mean(dims, keepdim=True),
}


@dataclass
class Drawn:
    """A random spec. `lengths` are those of its axes, in the order that tensors of the oracle have them in."""

    seed: int
    lengths: dict[str, int] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)
    groups: list[tuple[str, str]] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    lines: dict[str, Term] = field(default_factory=dict)
    outputs: list[Tensor] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        for axis in "MNKP"[: self.random.choice((2, 3, 3, 3, 4))]:
            room = LARGEST // math.prod(self.lengths.values())
            self.lengths[axis] = self.random.choice([one for one in LENGTHS if one <= max(2, room)])
            if self.random.random() < 0.15:
                self.fixed.add(axis)
        if len(self.lengths) > 2 and self.random.random() < 0.25:
            first, _, other, *_ = self.lengths
            self.groups.append((first, other))
            self.fixed.add(first)
        for place in range(self.random.randint(1, 4)):
            self.add_input(f"x{place}", self.some(self.lengths, least=0 if place else 2))
        while missing := [axis for axis in self.lengths if not any(axis in _axes(one) for one in self.inputs)]:
            self.add_input(f"x{len(self.inputs)}", {missing[0], *self.some(self.lengths, least=1)})
        self.unused = [one.name for one in self.inputs]
        for place in range(self.random.randint(1, 4)):
            self.add_line(f"h{place}")
        while len(self.unused) > 1 and any(one.name in self.unused for one in self.inputs):
            self.add_line(f"h{len(self.lines)}", always_two=True)
        last = [*self.lines][-1]
        results = {name for name in self.lines if name in self.unused or name == last or self.random.random() < 0.15}
        self.outputs = [Tensor(name, self.dims(self.lines[name].axes)) for name in self.lines if name in results]

    # Drawing

    def some(self, axes: Iterable[str], least: int = 1) -> set[str]:
        found = sorted(axes)
        return set(self.random.sample(found, self.random.randint(min(least, len(found)), len(found))))

    def dims(self, axes: set[str] | frozenset[str]) -> tuple[tuple[str, ...], ...]:
        """Axes in some order, those of a group as one dimension."""
        grouped = [pair for pair in self.groups if set(pair) <= set(axes)]
        dims: list[tuple[str, ...]] = [*grouped]
        dims += [(axis,) for axis in sorted(axes) if not any(axis in pair for pair in grouped)]
        return tuple(self.random.sample(dims, len(dims)))

    def add_input(self, name: str, axes: set[str]) -> None:
        self.inputs.append(Tensor(name, self.dims(axes)))

    def leaf(self, other: str = "") -> Term:
        """An input or a line beside another, one that is not used yet where there is any."""
        unused = [name for name in self.unused if name != other]
        floats = [one.name for one in self.inputs if one.type == "T"]
        name = unused[0] if unused and self.random.random() < 0.7 else self.random.choice([*floats, *self.lines])
        if name in self.lines:
            return Term(name, self.lines[name].axes, lambda values: values[name])
        axes = frozenset(_axes(next(one for one in self.inputs if one.name == name)))
        return Term(name, axes, lambda values: values[name])

    def add_line(self, name: str, always_two: bool = False) -> None:
        """A line of one to three operations on one or two others."""
        left = self.leaf()
        right = self.leaf(left.text)
        two = left.text != right.text and (always_two or self.random.random() < 0.75)
        term = self.of_two(left, right) if two else self.of_one(left)
        for _ in range(self.random.randint(0, 2)):
            term = self.of_one(term)
        self.lines[name] = term
        self.unused = [one for one in self.unused if one not in _names(term.text)] + [name]

    def of_one(self, term: Term) -> Term:
        kind = self.random.choice(("map", "map", "reduce", "mapped_back", "where", "chosen", "take"))
        if kind == "map" or not term.axes:
            text, function = self.random.choice([*UNARY.items()])
            return Term(text.format(term.text), term.axes, lambda values: function(term.value(values)))
        over = sorted(self.some(term.axes))
        dims = [[*self.lengths].index(axis) for axis in over]
        if kind == "where":
            first, second = over[0], self.random.choice(sorted(term.axes))
            return Term(
                f"where(index({first}) <= index({second}), {term.text}, 0.125)",
                term.axes,
                lambda values: torch.where(self.positions(first) <= self.positions(second), term.value(values), 0.125),
            )
        if kind == "chosen":
            return self.chosen(term)
        if kind == "take":
            return self.taken(term, over[0])
        texts, left = (REDUCE, term.axes - set(over)) if kind == "reduce" else (MAPPED_BACK, term.axes)
        text, reduce = self.random.choice([*texts.items()])
        return Term(text.format(term.text, ", ".join(over)), left, lambda values: reduce(term.value(values), dims))

    def chosen(self, term: Term) -> Term:
        """A term where a bool says so, which may vary along other axes, too."""
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
        """Rows by positions along an axis of theirs, which the result varies along, or by one for each of others."""
        name = f"at{len(self.inputs)}"
        others = self.some(self.lengths.keys() - term.axes | {axis}, least=0)
        place, whole = [*self.lengths].index(axis), {*term.axes, *others} - ({axis} - others)
        self.inputs.append(Tensor(name, self.dims(others), axis, "int64"))

        def value(values: Values) -> torch.Tensor:
            shape = [length if one in whole else 1 for one, length in self.lengths.items()]
            rows = term.value(values)
            wide = [n if here != place else rows.shape[place] for here, n in enumerate(shape)]
            return rows.expand(wide).gather(place, values[name].expand(shape))

        return Term(f"take({term.text}, {name}, {axis})", frozenset(whole), value)

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
        """Along one of all axes."""
        shape = [length if one == axis else 1 for one, length in self.lengths.items()]
        return torch.arange(self.lengths[axis]).view(shape)

    # What it is

    def text(self) -> str:
        inputs = "\n".join(f'{one.name} = "{one.type}[{self.shape(one)}]"' for one in self.inputs)
        lines = "\n".join(f'{name} = "{term.text}"' for name, term in self.lines.items())
        outputs = "\n".join(f'{one.name} = "auto[{self.shape(one, "")}]"' for one in self.outputs)
        by = ", ".join(f'"{one.name}"' for one in self.inputs if one.type == "T")
        params = "[params]\nby = 0.5\n" if any("by" in _names(term.text) for term in self.lines.values()) else ""
        tests = "\n".join(f'{one.name} = {{ low = 0, high = "{one.of}" }}' for one in self.inputs if one.of)
        head = '[op]\nname = "drawn"\nsummary = "Computes something."\n[types]\nT = "float"\n'
        body = f"[inputs]\n{inputs}\n{params}[compute]\n{lines}\n[outputs]\n{outputs}\n[grad]\nwrt = [{by}]\n"
        return f"{head}{body}[test]\n{tests}\n" if tests else head + body

    def shape(self, tensor: Tensor, equals: str = "=") -> str:
        def told(axis: str) -> str:
            return f"{axis}={self.lengths[axis]}" if axis in self.fixed and equals else axis

        return ", ".join(told(dim[0]) if len(dim) == 1 else f"({' '.join(map(told, dim))})" for dim in tensor.dims)

    def spec(self) -> Spec:
        return read_spec("drawn.toml", self.text())

    def tensors(self, dtype: torch.dtype) -> list[torch.Tensor]:
        random = torch.Generator().manual_seed(self.seed)
        made = []
        for one in self.inputs:
            shape = [math.prod(self.lengths[axis] for axis in dim) for dim in one.dims]
            if one.of:
                made.append(torch.randint(0, self.lengths[one.of], shape, generator=random))
            else:
                drawn = torch.randn(shape, generator=random, dtype=torch.float64)
                made.append(drawn > 0 if one.type == "bool" else drawn.to(dtype))
        return made

    def apart(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same elements with dimensions in another order in memory, and others between them."""
        order = self.random.sample(range(tensor.ndim), tensor.ndim)
        step = self.random.choice((1, 1, 2))
        memory = torch.zeros([step * tensor.shape[place] for place in order], dtype=tensor.dtype)
        view = memory[tuple([slice(None, None, step)] * tensor.ndim)].permute(
            [order.index(n) for n in range(tensor.ndim)]
        )
        return view.copy_(tensor)

    def draw_lengths(self) -> None:
        """Other lengths of the axes whose length is not part of the spec."""
        for axis in self.lengths.keys() - self.fixed:
            self.lengths[axis] = 1
        for axis in sorted(self.lengths.keys() - self.fixed):
            room = LARGEST // math.prod(self.lengths.values())
            self.lengths[axis] = self.random.choice([one for one in (1, 4, 19, 70, 130) if one <= max(1, room)])

    def without_length(self) -> None:
        """Have an axis of no length, but one along which positions are drawn."""
        free = sorted(self.lengths.keys() - self.fixed - {one.of for one in self.inputs})
        if free:
            self.lengths[self.random.choice(free)] = 0

    def places(self) -> list[int]:
        return [place for place, one in enumerate(self.inputs) if one.type == "T"]

    def params(self) -> dict[str, float]:
        return {"by": BY} if "[params]" in self.text() else {}

    def torch(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values: dict[str, torch.Tensor] = {}
        for one, tensor in zip(self.inputs, tensors, strict=True):
            values[one.name] = self.spread(one, tensor)
        for name, term in self.lines.items():
            values[name] = term.value(values)
        return tuple(self.gathered(one, values[one.name]) for one in self.outputs)

    def spread(self, one: Tensor, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor with all axes."""
        own = _axes(one)
        apart = tensor.reshape([self.lengths[axis] for axis in own])
        order = [axis for axis in self.lengths if axis in own]
        shape = [length if axis in own else 1 for axis, length in self.lengths.items()]
        return apart.permute([own.index(axis) for axis in order]).reshape(shape)

    def gathered(self, one: Tensor, value: torch.Tensor) -> torch.Tensor:
        """What varies along all axes of a result, with its dimensions."""
        own = _axes(one)
        order = [axis for axis in self.lengths if axis in own]
        whole = value.expand([length if axis in own else 1 for axis, length in self.lengths.items()])
        apart = whole.reshape([self.lengths[axis] for axis in order]).permute([order.index(axis) for axis in own])
        return apart.reshape([math.prod(self.lengths[axis] for axis in dim) for dim in one.dims])


def _axes(tensor: Tensor) -> tuple[str, ...]:
    return tuple(axis for dim in tensor.dims for axis in dim)


def _names(text: str) -> set[str]:
    return set("".join(c if c.isalnum() else " " for c in text).split())


def check(drawn: Drawn, folder: Path, again: bool = False) -> None:
    """Its values, and its gradients by all inputs at once, in float64.

    And `again` of other lengths and any strides; and where an axis has no length, that it has results.
    """
    operator = built(drawn.spec(), folder).drawn

    def compared(given: list[torch.Tensor]) -> None:
        compare(
            lambda *own: operator(*own, **drawn.params()),
            lambda *own: _one(drawn.torch(*own)),
            given,
            drawn.places(),
            1e-7,
        )

    compared(drawn.tensors(torch.float64))
    if again:
        drawn.draw_lengths()
        compared([drawn.apart(one) for one in drawn.tensors(torch.float64)])
        drawn.without_length()
        # What steps make of nothing may differ from torch's: 0, NaN, or a refusal of a maximum.
        with contextlib.suppress(ValueError):
            differentiated(
                lambda *own: operator(*own, **drawn.params()),
                drawn.tensors(torch.float64),
                drawn.places(),
                torch.float64,
            )


def _one(results: tuple[torch.Tensor, ...]) -> object:
    return results if len(results) > 1 else results[0]


def main(first: int, count: int) -> int:
    """How many are wrong."""
    warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, in Triton's interpreter
    wrong = 0
    start = time.perf_counter()
    for seed in range(first, first + count):
        drawn = Drawn(seed)
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(drawn, Path(folder), again=True)
            except (Exception, AssertionError) as error:
                wrong += 1
                print(f"--- {seed}: {type(error).__name__}: {error}"[:1500], drawn.text(), sep="\n", flush=True)
        if time.perf_counter() - began > 30:
            print(f"--- {seed} took {time.perf_counter() - began:.0f} s", drawn.text(), sep="\n", flush=True)
    print(f"{wrong} of {count} are wrong; {time.perf_counter() - start:.0f} s")
    return wrong


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])) > 0)
