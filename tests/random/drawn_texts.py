"""Random texts of specs: lines over named axes, made by blocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

import torch

from tests.harness.written import Written, differentiable

LENGTHS = (1, 2, 3, 4, 5, 7, 8, 16, 17, 33)
ROOM = 6000  # elements over all axes of a line
# Names that generated code uses, too.
NAMES = (
    "self x out key compute grad rows mask lse launch torch tl kernels n_rows configs saves replay y_sum delta p scale"
    " batch w tile cols acc dx gate x_ptr stride_x_n z_mean_rows grid n_cols sizes start x_row y_max h_sum triton ctx"
    " dy needs constants h_mean dh lse_raw splits by_name n_heads op n_inner x_shape x_dtype dot"
).split()
PARAMS = {"on": "true", "p": "0.75", "n_rows": "0.5", "scale": "0.5", "eps": "0.25", "x_ptr": "0.75", "self": "0.5"}


@dataclass(frozen=True)
class Value:
    """An input or a line, and its axes."""

    name: str
    axes: tuple[str, ...]


class Text:
    """A random spec: its text, the lengths of its axes, and how integers are drawn."""

    def __init__(
        self, seed: int, starts: Sequence[Block], blocks: Sequence[Block], choices: Sequence[Block] = ()
    ) -> None:
        self.random = Random(f"{seed} of texts")
        self.lengths: dict[str, int] = {}
        self.fixed: set[str] = set()
        self.groups: list[tuple[str, str]] = []
        self.inputs: dict[str, str] = {}
        self.optional: dict[str, str] = {}
        self.positions: dict[str, str] = {}  # integer input -> the axis that it indexes
        self.lines: dict[str, str] = {}
        self.values: list[Value] = []
        self.unused: set[str] = set()
        self.shown: set[str] = set()  # lines that must be results
        self.params: dict[str, str] = {}
        self.outside = self.random.random() < 0.15  # whether indices may be out of range
        self.lost = False  # whether rows without keys, or infinite derivatives, are masked
        while not self.lines:
            self.random.choice(starts)(self)
        for _ in range(self.random.choice((0, 1, 1, 2, 3))):
            self.random.choice(blocks)(self)
        if choices and Random(f"{seed} of choices").random() < 0.12:
            self.random.choice(choices)(self)
            self.random.choice(blocks)(self)
        self.outputs = [one for one in self.values if one.name in self.unused | self.shown or self.maybe(0.15)]
        self.wrt: list[str] = []

    # Axes, inputs and lines

    def maybe(self, part: float = 0.5) -> bool:
        return self.random.random() < part

    def axis(self, *beside: str, longest: int = ROOM) -> str:
        """A new or existing axis other than `beside`, short enough for a tensor with it and those."""
        known = [axis for axis in self.lengths if axis not in beside]
        most = min(longest, ROOM // math.prod(self.lengths[one] for one in beside))
        if known and self.maybe(0.25):
            fits = [axis for axis in known if self.lengths[axis] <= most]
            if fits:
                return self.random.choice(fits)
        name = next(one for one in "MNKXFDEHBPQRSTUVWYZAGIJLO" if one not in self.lengths)
        self.lengths[name] = self.random.choice([one for one in LENGTHS if one <= max(2, most)])
        if self.maybe(0.2):
            self.fixed.add(name)
        return name

    def ordered(self, axes: Iterable[str]) -> tuple[str, ...]:
        found = [*dict.fromkeys(axes)]
        return tuple(self.random.sample(found, len(found)))

    def dims(self, axes: Sequence[str], equals: bool) -> str:
        """The dimensions of a tensor of these axes; two adjacent axes may become a group."""
        own = [f"{axis}={self.lengths[axis]}" if equals and axis in self.fixed else axis for axis in axes]
        pairs = [n for n, pair in enumerate(itertools.pairwise(axes)) if pair in self.groups]
        if len(axes) > 1 and not pairs and not self.groups and self.maybe(0.15):
            at = self.random.randrange(len(axes) - 1)
            self.groups.append((axes[at], axes[at + 1]))
            self.fixed.add(axes[at + 1])
            return self.dims(axes, equals)
        for at in reversed(pairs):
            own[at : at + 2] = [f"({own[at]} {own[at + 1]})"]
        return ", ".join(own)

    def fresh(self, names: Sequence[str]) -> str:
        taken = {*self.inputs, *self.optional, *self.lines, *PARAMS}
        own = self.random.choice(names)
        return next(one for n in range(99) if (one := f"{own}{n or ''}") not in taken)

    def input(self, axes: Iterable[str], dtype: str = "float", optional: bool = False) -> Value:
        axes = self.ordered(axes)
        name = self.fresh(NAMES if self.maybe(0.3) else ("x", "w", "b", "t", "q"))
        text = f"{dtype}[{self.dims(axes, equals=True)}]"
        known = {axis for one in self.inputs.values() for axis in self.lengths if axis in words(one)} | self.fixed
        if optional and known.issuperset(axes) and self.maybe(0.4):
            self.optional[name] = f"{text} = {self.random.choice((0, 1))}"
        else:
            self.inputs[name] = text
        return Value(name, axes)

    def indices(self, axes: Iterable[str], of: str) -> str:
        value = self.input(axes, "int64")
        self.positions[value.name] = of
        return value.name

    def param(self, name: str) -> str:
        self.params[name] = PARAMS[name]
        return name

    def line(self, text: str, axes: Iterable[str]) -> Value:
        name = self.fresh(NAMES if self.maybe(0.15) else ("h", "y", "z", "o", "s"))
        self.lines[name] = text
        value = Value(name, tuple(dict.fromkeys(axes)))
        self.values.append(value)
        self.unused = self.unused - words(text) | {name}
        return value

    def value(self, least: int = 1) -> Value:
        """A line with at least `least` axes, preferably one that no line reads, or a new input."""
        lines = [one for one in self.values if len(one.axes) >= least]
        unread = [one for one in lines if one.name in self.unused]
        if lines and self.maybe(0.8):
            return self.random.choice(unread or lines)
        axes: list[str] = []
        while len(axes) < max(least, self.random.randint(1, 3)):
            axes.append(self.axis(*axes))
        return self.input(axes)

    def some(self, axes: Sequence[str], least: int = 1) -> list[str]:
        return self.random.sample([*axes], self.random.randint(min(least, len(axes)), len(axes)))

    def without(self, axes: Sequence[str], *others: str) -> list[str]:
        return [axis for axis in axes if axis not in others]

    # Text and tensors

    def read(self) -> None:
        """Remove inputs that no line reads, and defaults of inputs whose axes the others do not determine."""
        words_of_lines = set().union(*map(words, self.lines.values()))
        for own in (self.inputs, self.optional, self.positions):
            for name in own.keys() - words_of_lines:
                del own[name]
        known = self.fixed.union(*map(words, self.inputs.values()))
        for name, text in [*self.optional.items()]:
            if not words(text.partition("[")[2].partition("]")[0]) & self.lengths.keys() <= known:
                self.inputs[name] = self.optional.pop(name).partition(" = ")[0]
                known |= words(text)

    @cached_property
    def text(self) -> str:
        self.read()
        entries = "\n".join(f'{name} = "{one}"' for name, one in {**self.inputs, **self.optional}.items())
        params = "".join(f"{name} = {value}\n" for name, value in self.params.items())
        lines = "\n".join(f'{name} = "{line}"' for name, line in self.lines.items())
        results = "\n".join(f'{v.name} = "auto[{self.dims(self.ordered(v.axes), False)}]"' for v in self.outputs)
        params = f"[params]\n{params}" if params else ""
        text = f"[inputs]\n{entries}\n{params}[compute]\n{lines}\n[outputs]\n{results}\n"
        smooth = differentiable(text, self.lengths, self.drawn)
        self.wrt = [n for n in smooth if self.maybe(0.8)] if self.maybe(0.6) else smooth
        if self.wrt and self.maybe(0.9):
            text += f"[grad]\nwrt = [{', '.join(repr(one) for one in self.wrt)}]\n"
        return text

    def drawn(self, written: Written, seed: int = 0) -> dict[str, torch.Tensor | None]:
        """Draw inputs of the current lengths."""
        tensors: dict[str, torch.Tensor | None] = dict(written.drawn(self.lengths, seed))
        random = torch.Generator().manual_seed(seed)
        for name, axis in self.positions.items():
            shape, length = tensors[name].shape, self.lengths[axis]  # type: ignore[union-attr]
            low, high = (-1, length + 2) if self.outside or not length else (0, length)
            tensors[name] = torch.randint(low, high, shape, generator=random)
        return tensors


def words(text: str) -> set[str]:
    return {*"".join(c if c.isalnum() or c == "_" else " " for c in text).split()}


def listed(axes: Iterable[str]) -> str:
    return ", ".join(axes)


Block = Callable[[Text], Value]
