"""Random texts of specs: mixtures of experts, gathers, attentions, scans, convolutions by `take`, and what follows.

`python -m tests.random.texts FIRST COUNT` builds them and compares their results and gradients with what the text
itself evaluates to in float64: of drawn lengths, and with an empty axis, and without inputs that have a default.
Memory that no kernel writes is NaN.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

os.environ.setdefault("TRITON_INTERPRET", "1")

import torch

from tests.harness.written import Written, differentiable
from tritongen.diagnostics.report import Mistakes

LENGTHS = (1, 2, 3, 4, 5, 7, 8, 16, 17, 33)
ROOM = 6000  # elements over all axes of a line
# Words that generated code has uses for.
NAMES = (
    "self x out key compute grad rows mask lse launch torch tl kernels n_rows configs saves replay y_sum delta p scale"
    " batch w tile cols acc dx gate"
).split()
UNARY = (
    "tanh({})",
    "sigmoid({})",
    "exp(-square({}))",
    "({} * 0.5 + 0.25)",
    "silu({})",
    "abs({})",
    "relu({})",
    "sin({})",
)
BINARY = ("({} + {})", "({} - {})", "({} * {})", "maximum({}, {})", "({} / (1 + square({})))", "where({} > 0, {}, 0.5)")
REDUCE = ("sum({}, {})", "mean({}, {})", "max({}, {})", "logsumexp({}, {})", "min({}, {})", "norm({}, {})",
          "var({}, {}, correction=0)")  # fmt: skip
BACK = (
    "softmax({}, {})",
    "log_softmax({}, {})",
    "({0} - mean({0}, {1}))",
    "({0} * rsqrt(mean(square({0}), {1}) + 0.1))",
)


@dataclass(frozen=True)
class Value:
    """An input or a line, and its axes."""

    name: str
    axes: tuple[str, ...]


class Text:
    """A random spec: its text, the lengths of its axes, and how integers are drawn."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"{seed} of texts")
        self.lengths: dict[str, int] = {}
        self.fixed: set[str] = set()
        self.groups: list[tuple[str, str]] = []
        self.inputs: dict[str, str] = {}
        self.optional: dict[str, str] = {}
        self.positions: dict[str, str] = {}  # integer inputs, and the axis of which they are positions
        self.lines: dict[str, str] = {}
        self.values: list[Value] = []
        self.unused: set[str] = set()
        self.flag = False
        self.outside = self.random.random() < 0.15  # whether positions may be outside of their axes
        self.start()
        for _ in range(self.random.choice((0, 1, 1, 2, 3))):
            self.add(self.random.choice(BLOCKS))
        self.outputs = [one for one in self.values if one.name in self.unused or self.maybe(0.15)]
        self.wrt: list[str] = []

    # What there is

    def maybe(self, part: float = 0.5) -> bool:
        return self.random.random() < part

    def axis(self, *beside: str) -> str:
        """A new axis, or one that is there but for those beside which it is to be, short enough for both."""
        known = [axis for axis in self.lengths if axis not in beside]
        most = ROOM // math.prod(self.lengths[one] for one in beside)
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
        """The dimensions of a tensor of these axes: some two neighbours are a group."""
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
        taken = {*self.inputs, *self.optional, *self.lines, "on"}
        own = self.random.choice(names)
        return next(one for n in range(99) if (one := f"{own}{n or ''}") not in taken)

    def input(self, axes: Iterable[str], dtype: str = "float", optional: bool = False) -> Value:
        axes = self.ordered(axes)
        name = self.fresh(NAMES if self.maybe(0.3) else ("x", "w", "b", "t", "q"))
        text = f"{dtype}[{self.dims(axes, equals=True)}]"
        known = {axis for one in self.inputs.values() for axis in self.lengths if axis in _words(one)} | self.fixed
        if optional and known.issuperset(axes) and self.maybe(0.4):
            self.optional[name] = f"{text} = {self.random.choice((0, 1))}"
        else:
            self.inputs[name] = text
        return Value(name, axes)

    def indices(self, axes: Iterable[str], of: str) -> str:
        value = self.input(axes, "int64")
        self.positions[value.name] = of
        return value.name

    def line(self, text: str, axes: Iterable[str]) -> Value:
        name = self.fresh(("h", "y", "z", "o", "s"))
        self.lines[name] = text
        value = Value(name, tuple(dict.fromkeys(axes)))
        self.values.append(value)
        self.unused = self.unused - _words(text) | {name}
        return value

    def value(self, least: int = 1) -> Value:
        """A line with so many axes, one that nothing reads if there is any; or a new input."""
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

    # What is drawn

    def start(self) -> None:
        self.add(self.random.choice((*BLOCKS, mixture, mixture, attention, gather)))

    def add(self, block: Callable[[Text], Value]) -> None:
        block(self)

    def text(self) -> str:
        if not hasattr(self, "told"):
            entries = "\n".join(f'{name} = "{one}"' for name, one in {**self.inputs, **self.optional}.items())
            params = "[params]\non = true\n" if self.flag else ""
            lines = "\n".join(f'{name} = "{line}"' for name, line in self.lines.items())
            results = "\n".join(f'{v.name} = "auto[{self.dims(self.ordered(v.axes), False)}]"' for v in self.outputs)
            self.told = f"[inputs]\n{entries}\n{params}[compute]\n{lines}\n[outputs]\n{results}\n"
            smooth = differentiable(self.told, self.lengths, self.drawn)
            self.wrt = [n for n in smooth if self.maybe(0.8)] if self.maybe(0.6) else smooth
            if self.wrt and self.maybe(0.9):
                self.told += f"[grad]\nwrt = [{', '.join(repr(one) for one in self.wrt)}]\n"
        return self.told

    def drawn(self, written: Written, seed: int = 0) -> dict[str, torch.Tensor | None]:
        """Inputs of the present lengths."""
        tensors: dict[str, torch.Tensor | None] = dict(written.drawn(self.lengths, seed))
        random = torch.Generator().manual_seed(seed)
        for name, axis in self.positions.items():
            shape, length = tensors[name].shape, self.lengths[axis]  # type: ignore[union-attr]
            low, high = (-1, length + 2) if self.outside or not length else (0, length)
            tensors[name] = torch.randint(low, high, shape, generator=random)
        return tensors


def _words(text: str) -> set[str]:
    return {*"".join(c if c.isalnum() or c == "_" else " " for c in text).split()}


def _listed(axes: Iterable[str]) -> str:
    return ", ".join(axes)


def mapped(text: Text) -> Value:
    x = text.value()
    return text.line(text.random.choice(UNARY).format(x.name), x.axes)


def met(text: Text) -> Value:
    """Meets another value, or an input with an axis of its own."""
    x = text.value()
    own = text.some(x.axes, 0)
    other = text.input([*own, text.axis(*x.axes)] if text.maybe(0.3) else own, optional=True)
    form = text.random.choice(BINARY)
    names = (x.name, other.name) if text.maybe() else (other.name, x.name)
    return text.line(form.format(*names), (*x.axes, *other.axes))


def joined(text: Text) -> Value:
    """Meets another line."""
    x, other = text.value(), text.value()
    if math.prod(text.lengths[axis] for axis in {*x.axes, *other.axes}) > ROOM:
        return x
    return text.line(text.random.choice(BINARY).format(x.name, other.name), (*x.axes, *other.axes))


def reduced(text: Text) -> Value:
    x = text.value()
    if not x.axes:
        return x
    over = text.some(x.axes)
    return text.line(text.random.choice(REDUCE).format(x.name, _listed(over)), text.without(x.axes, *over))


def unlike(text: Text) -> Value:
    """Reductions of one value over different axes."""
    x = text.value(2)
    for over in {tuple(sorted(text.some(x.axes))) for _ in range(2)}:
        text.line(text.random.choice(REDUCE).format(x.name, _listed(over)), text.without(x.axes, *over))
    return normed(text, x)


def normed(text: Text, x: Value | None = None) -> Value:
    x = x or text.value()
    if not x.axes:
        return x
    return text.line(text.random.choice(BACK).format(x.name, _listed(text.some(x.axes))), x.axes)


def positioned(text: Text) -> Value:
    """Reads where the largest is."""
    x = text.value()
    if not x.axes:
        return x
    over = text.some(x.axes)
    at = text.line(
        f"{text.random.choice(('argmax', 'argmin'))}({x.name}, {_listed(over)})", text.without(x.axes, *over)
    )
    weights = text.input(over)
    return text.line(f"where(index({_listed(over)}) == {at.name}, {weights.name}, 0.25)", x.axes)


def product(text: Text) -> Value:
    x = text.value()
    if not x.axes:
        return x
    over = text.random.choice(x.axes)
    free = text.axis(*x.axes)
    batch = text.some(text.without(x.axes, over), 0) if text.maybe(0.25) else []
    w = text.input([over, *batch, *([free] if free != over else [])])
    return text.line(f"sum({x.name} * {w.name}, {over})", text.without((*x.axes, *w.axes), over))


def mixture(text: Text) -> Value:
    """Experts, each with a matrix, and weights of these by a softmax."""
    n, k, f = text.axis(), "", ""
    k = text.axis(n)
    f = text.axis(n, k)
    experts = text.axis(n, k, f)
    if len({n, k, f, experts}) < 4:
        return product(text)
    text.lengths[experts] = min(text.lengths[experts], 4)
    x = text.input([n, k] if text.maybe(0.8) else [n, k, experts])
    w = text.input([k, experts, f])
    gate = text.input(text.random.choice(([n, experts], [n, experts], [experts], [n, experts, f])))
    y = text.line(f"sum({x.name} * {w.name}, {k})", (n, experts, f))
    weights = f"softmax({gate.name}, {experts})"
    if text.maybe(0.2):
        weights = f"exp({gate.name} - logsumexp({gate.name}, {experts}))"
    return text.line(f"sum({y.name} * {weights}, {experts})", (n, f))


def attention(text: Text) -> Value:
    m, n, d = "", "", ""
    m = text.axis()
    n = text.axis(m)
    d = text.axis(m, n)
    e = text.axis(m, n)
    if len({m, n, d, e}) < 4:
        return normed(text)
    heads = [text.axis(m, n, d)] if text.maybe(0.3) else []
    heads = [] if {*heads} & {m, n, d, e} else heads
    q, k, v = (text.input([*own, *axes]) for own, axes in (
        (heads, (m, d)), (heads if text.maybe() else [], (n, d)), (heads if text.maybe() else [], (n, e))))  # fmt: skip
    score = f"sum({q.name} * {k.name}, {d}) * 0.3"
    if text.maybe(0.4):
        bias = text.input(text.random.choice(([n], [m, n], [m], [], [*heads, n], [*heads])))
        score += f" + {bias.name}" if text.maybe() else f" * {bias.name}"
    if text.maybe(0.3):
        score = f"where(index({n}) <= index({m}), {score}, -inf)"
    s = text.line(score, (*dict.fromkeys((*heads, m, n)),))
    p = f"softmax({s.name}, {n})"
    if text.maybe(0.2):
        p = f"where({text.input([m, n] if text.maybe() else [m], 'bool').name}, {p}, 0.0)"
    free = [*dict.fromkeys((*heads, m, e))]
    has_heads = heads and any(set(heads) & {*one.axes} for one in (q, k, v))
    return text.line(f"sum({p} * {v.name}, {n})", free if has_heads else (m, e))


def gather(text: Text) -> Value:
    """Takes elements of a line or of an input, at positions that are given."""
    x = text.value()
    if not x.axes:
        return x
    axis = text.random.choice(x.axes)
    rest = text.without(x.axes, axis)
    to = [text.axis(*x.axes)] if text.maybe(0.85) else text.some(rest, 0)
    at = text.indices(to, axis)
    arg = text.random.choice((x.name, x.name, f"softmax({x.name}, {axis})", f"({x.name} * 2 + 1)", f"tanh({x.name})"))
    taken = f"take({arg}, {at}, {axis})"
    if text.outside and text.maybe():
        taken = f"where(({at} >= 0) & ({at} < size({axis})), {taken}, 0.5)"
    return text.line(taken, (*rest, *to))


def scan(text: Text) -> Value:
    x = text.value()
    if not x.axes:
        return x
    form = text.random.choice(("cumsum({}, {})", "cumsum({}, {})", "cumprod(1 + 0.1 * tanh({}), {})"))
    return text.line(form.format(x.name, text.random.choice(x.axes)), x.axes)


def convolution(text: Text) -> Value:
    """A window along an axis, of which the elements outside are 0."""
    x = text.value()
    if not x.axes:
        return x
    axis, taps = text.random.choice(x.axes), text.axis(*x.axes)
    if taps in x.axes:
        return x
    text.lengths[taps] = min(text.lengths[taps], 4)
    text.fixed.add(taps)
    channels = text.some(text.without(x.axes, axis), 0)
    w = text.input(
        [taps, *channels, *([f] if (f := text.axis(*x.axes, taps)) not in (taps, *x.axes) and text.maybe() else [])]
    )
    at = f"index({axis}) - index({taps})" if text.maybe() else f"index({axis}) + index({taps}) - 1"
    inside = f"where(({at} >= 0) & ({at} < size({axis})), take({x.name}, {at}, {axis}), 0.0)"
    over = [taps, *(text.some(channels, 0) if text.maybe() else [])]
    return text.line(f"sum({inside} * {w.name}, {_listed(over)})", text.without((*x.axes, *w.axes), *over))


def chosen(text: Text) -> Value:
    """One of two by a flag."""
    x = text.value()
    other = text.input(text.some(x.axes, 0), optional=True)
    text.flag = True
    return text.line(f"{x.name} * {other.name} if on else {x.name} + 1", x.axes)


BLOCKS: tuple[Callable[[Text], Value], ...] = (
    mapped, met, met, joined, joined, reduced, reduced, unlike, unlike, normed, positioned, product, mixture, attention,
    gather, gather, scan, convolution, chosen,
)  # fmt: skip


def check(text: Text, folder: Path) -> None:
    """Raises AssertionError for wrong results and gradients, and whatever building and calling raise."""
    written = Written(text.text(), folder)
    params = {"on": True} if text.flag else {}
    written.compare(text.lengths, text.drawn(written), params, finite=text.outside)
    if text.optional:
        params = {"on": False} if text.flag else {}
        missing = {name: None for name in text.optional if text.maybe(0.8)}
        written.compare(text.lengths, text.drawn(written, 1) | missing, params, finite=text.outside)
    free = [axis for axis in text.lengths if axis not in text.fixed]
    if free and not text.outside:
        text.lengths[text.random.choice(free)] = 0
        # Over nothing, a largest has no value; what torch makes of it otherwise is what is wanted.
        with contextlib.suppress(ValueError, IndexError):
            written.compare(text.lengths, text.drawn(written, 2), params)


def main(first: int, count: int) -> int:
    """How many are wrong."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    wrong = refused = 0
    start = time.perf_counter()
    for seed in range(first, first + count):
        began = time.perf_counter()
        text = Text(seed)
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(text, Path(folder))
            except Mistakes as found:
                refused += 1
                print(f"--- {seed} refused: {found}"[:200], flush=True)
            except (Exception, AssertionError) as error:
                wrong += 1
                where = "".join(traceback.format_tb(error.__traceback__)[-1:])[-300:]
                told = f"--- {seed} WRONG: {type(error).__name__}: {error}"[:900]
                print(told, where, getattr(text, "told", text.lines), text.lengths, sep="\n", flush=True)
        if time.perf_counter() - began > 60:
            print(f"--- {seed} took {time.perf_counter() - began:.0f} s", flush=True)
        if (seed - first) % 50 == 49:
            print(
                f"=== {seed - first + 1}: {wrong} wrong, {refused} refused, {time.perf_counter() - start:.0f} s",
                flush=True,
            )
    print(f"{wrong} of {count} are wrong, {refused} refused; {time.perf_counter() - start:.0f} s")
    return wrong


if __name__ == "__main__":
    from tests.harness import fast_interpreter  # noqa: F401

    sys.exit(main(*map(int, sys.argv[1:])) > 0)
