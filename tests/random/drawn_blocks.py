"""A random spec of blocks: each reads the last line and inputs, and adds one or more lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

import torch

from tests.random.evaluated import LEADING, Evaluated
from tritongen.spec.read import read_spec
from tritongen.spec.types import BATCH, Spec

LENGTHS = (3, 5, 8, 16, 17, 24, 33)
ROOM = 60_000  # elements over all axes of a line


class Value:
    """A line or an input: its name and its axes in order."""

    def __init__(self, name: str, axes: tuple[str, ...]) -> None:
        self.name = name
        self.axes = axes

    def __str__(self) -> str:
        return self.name


class Blocks:
    """A random spec of blocks: each reads the last line and inputs, and adds one or more lines."""

    def __init__(self, seed: int, blocks: Sequence[Block], ends: Sequence[Block]) -> None:
        self.random = Random(f"{seed} of blocks")
        self.lengths: dict[str, int] = {}
        self.fixed: dict[str, int] = {}
        self.batch: tuple[int, ...] = ()
        self.inputs: dict[str, tuple[str, str]] = {}  # name -> dtype and shape
        self.optional: dict[str, tuple[str, str]] = {}
        self.ranges: dict[str, str] = {}
        self.params: dict[str, str] = {}
        self.lines: dict[str, str] = {}
        self.values: dict[str, Value] = {}
        self.outputs: dict[str, Value] = {}
        self.discrete = False  # whether rounding can change a result discontinuously
        self.group: tuple[str, str] = ("", "")
        self.float = self.random.choice(("T", "T", "T", "float"))
        self.unused: set[str] = set()
        self.start()
        for _ in range(self.random.randint(1, 4)):
            self.last = self.random.choice(blocks)(self, self.last)
        if self.random.random() < 0.55:
            self.last = self.random.choice(ends)(self, self.last)
        self.finish()

    # Axes, inputs and lines

    def axis(self, name: str = "", length: int = 0, *, fixed: bool | None = None, room: tuple[str, ...] = ()) -> str:
        """A new axis, short enough for a tensor that has the axes `room`, too."""
        name = name or next(one for one in "NKPERTUVWXYZACDFGHIJLOQ" if one not in self.lengths)
        most = ROOM // math.prod(self.lengths[one] for one in room)
        length = length or self.random.choice([one for one in LENGTHS if one <= max(3, most)])
        self.lengths[name] = length
        if fixed or (fixed is None and self.random.random() < 0.15):
            self.fixed[name] = length
        return name

    def start(self) -> None:
        kind = self.random.choice(
            ("rows", "rows", "leading", "leading", "tokens", "image", "heads", "embedding", "vector")
        )
        if kind == "leading":
            self.batch = self.random.choice(((3,), (2, 3), (), (4,)))
            self.lengths[BATCH] = math.prod(self.batch)
            axes: tuple[str, ...] = (BATCH, self.axis("D"))
        elif kind == "rows":
            axes = (self.axis("M"), self.axis("D"))
        elif kind == "tokens":
            axes = (self.axis("B", 3), self.axis("S"), self.axis("D"))
        elif kind == "image":
            axes = (self.axis("B", 2), self.axis("C"), self.axis("H", 4), self.axis("W", 5))
        elif kind == "heads":
            axes = (self.axis("M"), self.axis("H", self.random.choice((2, 4)), fixed=True), self.axis("D", fixed=None))
            self.group = ("H", "D")
        elif kind == "vector":
            axes = (self.axis("N"),)
        else:
            axes = (self.axis("V"), self.axis("D"))
        x = self.input("x", axes)
        if kind == "embedding":
            t = self.axis("S")
            at = self.positions("ids", (t,), "V")
            x = self.line(f"take({x}, {at}, V)", (t, "D"))
        self.last = x

    def input(self, name: str, axes: tuple[str, ...], dtype: str = "", optional: float | None = None) -> Value:
        """A new input with these axes, in any order of dimensions; with `optional`, it may have that default."""
        while name in self.inputs or name in self.optional or name in self.lines:
            name += "_"
        dims = [[axis] for axis in axes]
        if self.group[0] in axes and self.group[1] in axes and self.random.random() < 0.7:
            dims = [[*self.group] if axis == self.group[0] else [axis] for axis in axes if axis != self.group[1]]
        if self.random.random() < 0.25:
            self.random.shuffle(dims)
        dims.sort(key=lambda dim: dim != [BATCH])
        shape = ", ".join(self.written(dim) for dim in dims)
        known = {axis for _, other in self.inputs.values() for axis in self.lengths if self.has(other, axis)}
        if optional is not None and self.random.random() < 0.4 and known | {*self.fixed} >= {*axes}:
            self.optional[name] = (dtype or self.float, f"[{shape}] = {optional}")
        else:
            self.inputs[name] = (dtype or self.float, f"[{shape}]")
        return Value(name, axes)

    def has(self, shape: str, axis: str) -> bool:
        return axis in "".join(c if c.isalnum() or c == "." else " " for c in shape).split()

    def written(self, dim: list[str], equals: bool = True) -> str:
        told = [f"{axis}={self.fixed[axis]}" if axis in self.fixed and equals else axis for axis in dim]
        return told[0] if len(told) == 1 else f"({' '.join(told)})"

    def param(self, name: str, default: str) -> str:
        while name in self.params:
            name += "_"
        self.params[name] = default
        return name

    def positions(self, name: str, axes: tuple[str, ...], of: str) -> Value:
        while name in self.inputs:
            name += "_"
        value = self.input(name, axes, self.random.choice(("int64", "int32")))
        self.ranges[value.name] = f'low = 0, high = "{of}"'
        return value

    def line(self, text: str, axes: tuple[str, ...], name: str = "h") -> Value:
        names = (f"{name}{n}" if n else name for n in range(100))
        name = next(
            one for one in names if one not in self.inputs and one not in self.optional and one not in self.lines
        )
        self.lines[name] = text
        value = self.values[name] = Value(name, axes)
        self.unused -= {*"".join(c if c.isalnum() or c == "_" else " " for c in text).split()}
        self.unused.add(name)
        return value

    def some(self, axes: tuple[str, ...], least: int = 1) -> tuple[str, ...]:
        chosen = set(self.random.sample(axes, self.random.randint(min(least, len(axes)), len(axes))))
        return tuple(axis for axis in axes if axis in chosen)

    def named(self, h: Value) -> tuple[str, ...]:
        return tuple(axis for axis in h.axes if axis != BATCH)

    def one(self, h: Value) -> str:
        return self.random.choice(self.named(h)) if self.random.random() < 0.3 else self.named(h)[-1]

    def without(self, h: Value, *axes: str) -> tuple[str, ...]:
        return tuple(axis for axis in h.axes if axis not in axes)

    def maybe(self, part: float = 0.5) -> bool:
        return self.random.random() < part

    # Its text and tensors

    def finish(self) -> None:
        if not self.lines:
            self.last = self.line(f"tanh({self.last})", self.last.axes)
        for name, value in self.values.items():
            if name in self.unused or name == self.last.name or self.random.random() < 0.1:
                self.outputs[name] = value

    def shape(self, value: Value) -> str:
        dims = [[axis] for axis in value.axes]
        if {*self.group} <= {*value.axes} and self.random.random() < 0.5:
            dims = [[*self.group] if axis == self.group[0] else [axis] for axis in value.axes if axis != self.group[1]]
        if self.random.random() < 0.15:
            self.random.shuffle(dims)
        dims.sort(key=lambda dim: dim != [BATCH])
        return ", ".join(self.written(dim, equals=False) for dim in dims)

    def text(self) -> str:
        if not hasattr(self, "told"):
            outputs = "\n".join(f'{name} = "auto[{self.shape(value)}]"' for name, value in self.outputs.items())
            inputs = "\n".join(
                f'{name} = "{dtype}{rest}"' for name, (dtype, rest) in [*self.inputs.items(), *self.optional.items()]
            )
            lines = "\n".join(f'{name} = """{text}"""' for name, text in self.lines.items())
            head = '[op]\nname = "blocks"\nsummary = "Computes blocks."\n[types]\nT = "float"\n'
            if self.float != "T":
                head = head.replace('[types]\nT = "float"\n', "")
            tests = "\n".join(f"{name} = {{ {bounds} }}" for name, bounds in self.ranges.items())
            params = "[params]\n" + "\n".join(f"{name} = {default}" for name, default in self.params.items()) + "\n"
            head += f"[inputs]\n{inputs}\n{params if self.params else ''}"
            self.told = f"{head}[compute]\n{lines}\n[outputs]\n{outputs}\n[test]\n{tests}\n"
            by = self.smooth()
            if by:
                self.told += "[grad]\nwrt = [" + ", ".join(f'"{one}"' for one in by) + "]\n"
        return self.told

    def smooth(self) -> list[str]:
        """All or some of the inputs for which a result has a nonzero gradient."""
        spec = read_spec("blocks.toml", self.told)
        given = self.tensors(spec, torch.float64, 0)
        leaves = {one.name: t for one, t in zip(spec.inputs, given, strict=True) if t.is_floating_point()}
        for leaf in leaves.values():
            leaf.requires_grad_()
        results = self.formula()(*given)
        smooth = [one for one in (results if isinstance(results, tuple) else (results,)) if one.requires_grad]
        if not smooth:
            return []
        seeds = [torch.randn(one.shape, dtype=one.dtype, generator=torch.Generator().manual_seed(1)) for one in smooth]
        found = torch.autograd.grad(smooth, [*leaves.values()], seeds, allow_unused=True)
        names = [n for n, g in zip(leaves, found, strict=True) if g is not None and g.abs().max() > 1e-12]
        return (
            sorted(self.random.sample(names, self.random.randint(1, len(names))), key=names.index)
            if names and self.maybe(0.4)
            else names
        )

    def formula(self) -> Callable[..., object]:
        """The oracle in torch, a function of tensors of these lengths; trailing inputs may be absent."""
        evaluated, batch = Evaluated(self.told), [*self.batch]
        lengths = {**self.lengths, **dict(zip(LEADING, [1] * (len(LEADING) - len(batch)) + batch, strict=True))}

        def call(*given: torch.Tensor) -> object:
            missing = [None] * (len(evaluated.inputs) - len(given))
            results = evaluated(lengths, [*given, *missing], {}, leading=len(batch))
            return results if len(results) > 1 else results[0]

        return call

    def spec(self) -> Spec:
        return read_spec("blocks.toml", self.text())

    def tensors(self, spec: Spec, dtype: torch.dtype, draw: int, apart: bool = False) -> list[torch.Tensor]:
        random = torch.Generator().manual_seed(draw)
        own = Random(draw)
        made = []
        ranges = dict(spec.ranges)
        for one in spec.inputs:
            shape: list[int] = []
            for term in one.type.shape:
                shape += self.batch if term.names == (BATCH,) else [math.prod(self.lengths[n] for n in term.names)]
            if one.name in ranges:
                low, high = (
                    (self.lengths[b] if isinstance(b, str) else b)
                    for b in (ranges[one.name].low, ranges[one.name].high)
                )
                if "int64" in one.type.dtypes or "int32" in one.type.dtypes or "int8" in one.type.dtypes:
                    tensor = torch.randint(int(low), int(high), shape, generator=random)
                    tensor = tensor.to(getattr(torch, one.type.dtypes[0]) if len(one.type.dtypes) == 1 else torch.int64)
                else:
                    tensor = (torch.rand(shape, generator=random, dtype=torch.float64) * (high - low) + low).to(dtype)
            else:
                drawn = torch.randn(shape, generator=random, dtype=torch.float64)
                tensor = drawn > 0 if one.type.dtypes == ("bool",) else drawn.to(dtype)
            made.append(_apart(tensor, own) if apart else tensor)
        return made

    def draw_lengths(self) -> None:
        for axis in self.lengths:
            if axis not in self.fixed and axis != BATCH:
                self.lengths[axis] = self.random.choice((1, 2, 4, 7, 18))
        if BATCH in self.lengths:
            self.batch = self.random.choice(((), (3,), (2, 3)))
            self.lengths[BATCH] = math.prod(self.batch)
        if len(self.lengths) <= 3:
            free = [a for a in self.lengths if a not in self.fixed and a != BATCH]
            if free:
                self.lengths[self.random.choice(free)] = 70


def _apart(tensor: torch.Tensor, random: Random) -> torch.Tensor:
    """A strided copy, with dimensions in another order in memory, and perhaps gaps between elements."""
    order = random.sample(range(tensor.ndim), tensor.ndim)
    step = random.choice((1, 1, 2))
    memory = torch.zeros([step * tensor.shape[place] for place in order], dtype=tensor.dtype)
    view = memory[tuple([slice(None, None, step)] * tensor.ndim)].permute([order.index(n) for n in range(tensor.ndim)])
    return view.copy_(tensor)


Block = Callable[[Blocks, Value], Value]
