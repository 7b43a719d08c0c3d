"""The sizes that benchmarks of several steps with matmuls run on, and how many operations these matmuls take."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ..lang.ir import Op, Reduce
from ..passes.contractions import Contraction, is_product
from ..spec.lengths import LENGTH
from ..spec.types import Spec
from ..testing.benchmarks import computed_names, lengths_of, local, sizes_of, windows
from ..testing.fitting import Fitting
from ..testing.samples import usual_params
from .family import MultiStepProgram
from .streaming.program import StreamingProgram
from .streaming.sizes import PAGE, StreamingSizes, visible_range

HEAD, FEW = 128, 8  # the last axis of a side that has several; matrices in a batch
SIZES = tuple(2**n for n in range(9, 14))  # by which the harness goes
LARGEST = 2**32  # elements of a tensor


@dataclass(frozen=True)
class Length:
    """The length of an axis, or a product of lengths: a factor times a power of the benchmark's size."""

    factor: Fraction
    power: int = 0

    def __mul__(self, other: Length) -> Length:
        return Length(self.factor * other.factor, self.power + other.power)

    def __str__(self) -> str:
        above, below = self.factor.numerator, self.factor.denominator
        sizes = ["size" if self.power == 1 else f"size**{self.power}"] * (self.power > 0)
        text = " * ".join([*([str(above)] if above > 1 or not sizes else []), *sizes])
        return f"{text} // {below}" if below > 1 else text


def number(count: int, power: int = 0) -> Length:
    return Length(Fraction(count), power)


SIZE = number(1, 1)


class MatmulStepsSizes:
    """The lengths of the axes of several steps: each side of a matmul has `size` elements, and a batch 8 matrices.

    Sides of several axes are as in the benchmark of one matmul, and what a step streams is as in that of attention.
    Sizes are left out for which some tensor would be too large.
    """

    def __init__(self, program: MultiStepProgram, spec: Spec) -> None:
        self.program, self.op = program, program.op
        self.streams = [step.program for step in program.steps if isinstance(step.program, StreamingProgram)]
        self.template = "bench_streams.py.jinja" if self.streams else "bench_products.py.jinja"
        self.bounds = ("-1", "1") if self.streams else ()
        self.fit = Fitting(self.op, usual_params(self.op))
        known = windows(self.fit) | dict(self.op.sizes) | lengths_of(spec, *self.op.axes)
        self.lengths = self.assigned({axis: number(size) for axis, size in known.items()}, spec)
        lengths_of(spec, *(axis for axis, length in self.lengths.items() if length == SIZE))
        self.listed = sizes_of(spec)
        self.names = {axis: str(known[axis]) if axis in known else local(axis) for axis in self.op.axes}
        self.names |= computed_names(self.op, self.names)
        self.free = [axis for axis in self.op.axes if axis not in {*known, *self.op.computed}]

    def assigned(self, known: Mapping[str, Length], spec: Spec) -> dict[str, Length]:
        """The lengths of all axes: first of streaming steps, then of sides of matmuls, of batches, and of others."""
        lengths = dict(known)
        for stream in self.streams:
            lengths = _streamed(stream, spec) | lengths
        found = [step.family.matmuls(step.program) for step in self.program.steps]
        matmuls: list[Contraction] = [one for one in found if one is not None]
        for side in (side for one in matmuls for side in (one.rows, one.cols, one.inner)):
            lengths = _side(side, lengths) | lengths
        for one in matmuls:
            lengths = dict.fromkeys(one.batch, number(1)) | dict.fromkeys(one.batch[:1], number(FEW)) | lengths
        for formula in reversed(self.fit.slopes):
            if formula.axis in lengths:
                lengths = dict.fromkeys(self.fit.growing(formula), lengths[formula.axis]) | lengths
        tensors = list(self.tensors())
        for axis in self.op.axes:
            is_small = all(len(axes) <= 2 for axes in tensors if axis in axes)
            lengths.setdefault(axis, SIZE if is_small else number(FEW))
        return lengths

    def tensors(self) -> Iterable[tuple[str, ...]]:
        """The axes of all tensors that steps read and write."""
        for step in self.program.steps:
            yield from (tensor.type.axes for tensor in step.op.inputs)
            yield from (result.axes for result in step.op.results)

    @property
    def typical(self) -> dict[str, int]:
        lengths = {axis: self.lengths[axis] for axis in self.free} if self.streams else {}
        return {axis: math.ceil(_at([length], LENGTH)) for axis, length in lengths.items()}

    def product(self, axes: Iterable[str]) -> Length:
        return math.prod((self.lengths.get(axis, number(1)) for axis in axes), start=number(1))

    def view(self) -> dict[str, Any]:
        matmuls = [(step, axes) for step in self.program.steps for axes in _matmuls(step.op)]
        view: dict[str, Any] = {
            "sizes": self.sizes(),
            "lengths": [(self.names[axis], str(self.lengths[axis])) for axis in self.free],
        }
        if not self.streams:
            return view | {"operations": _sum(self.product(axes) for _, axes in matmuls)}
        first = self.streams[0]
        pair = (first.stream.rows, first.stream.streamed)
        rows, columns = (str(self.lengths[axis]) for axis in pair)
        ends = visible_range(first, rows, columns)
        masked = [axes for step, axes in matmuls if step.program is first]
        others = [self.product(axes) for step, axes in matmuls if step.program is not first]
        scores = [self.product(axes) for step, axes in matmuls if _is_score(step.program, axes)]
        each = _sum(self.product(axis for axis in axes if axis not in pair) for axes in masked)
        share = _at(scores, SIZES[-2]) / _at((self.product(axes) for _, axes in matmuls), SIZES[-2])
        return view | {
            "pairs": f"sum(len(range({ends})) for row in range({rows}))" if ends else f"{rows} * {columns}",
            "masked": bool(ends),
            "counted": f"{each} * pairs" + (f" + {_sum(others)}" if others else ""),
            "times_backward": f"{2 + share:.4g}",
        }

    def sizes(self) -> tuple[int, ...]:
        """The listed sizes, or the harness's sizes at which no tensor is too large; () for all of the harness's."""
        most = [size for size in SIZES if all(_at([self.product(one)], size) <= LARGEST for one in self.tensors())]
        return self.listed or (() if len(most) == len(SIZES) else tuple(most))


def _streamed(program: StreamingProgram, spec: Spec) -> dict[str, Length]:
    """The lengths of a step that streams, with leading axes as one."""
    sizes = StreamingSizes(program, replace(spec, lengths=())).lengths()
    own = {axis for tensor in program.op.inputs for axis in tensor.type.axes}
    lengths = {axis: number(math.prod(found)) for axis, found in sizes.items() if axis in own}
    lengths |= dict.fromkeys((program.stream.rows, program.stream.streamed), SIZE)
    if pages := program.pages:
        count = Length(Fraction(1, PAGE), 1)
        sequences = math.prod((lengths[axis] for axis in program.stream.batch[:1]), start=number(1))
        lengths |= {pages.slot: number(PAGE), pages.page: count}
        lengths |= dict.fromkeys([one.pages for one in pages.inputs], count * sequences)
    return lengths


def _side(side: tuple[str, ...], lengths: Mapping[str, Length]) -> dict[str, Length]:
    """The lengths of the free axes of a side of a matmul; {} if none is free, or if the size is a factor already."""
    free = [axis for axis in side if axis not in lengths]
    known = math.prod((lengths[axis] for axis in side if axis in lengths), start=number(1))
    if not free or known.power:
        return {}
    head = HEAD if len(free) > 1 else 1
    first = Length(1 / (head * known.factor), 1)
    return dict.fromkeys(free, number(1)) | {free[-1]: number(head)} | {free[0]: first}


def _matmuls(op: Op) -> Iterable[tuple[str, ...]]:
    """The axes of each matmul of an operator."""
    for value in op.values:
        if isinstance(value.node, Reduce) and is_product(op, value.node):
            yield tuple(dict.fromkeys((*value.node.axes, *value.node.over)))


def _is_score(program: object, axes: tuple[str, ...]) -> bool:
    """Whether a matmul of a streaming step computes scores, which the backward recomputes."""
    return isinstance(program, StreamingProgram) and any({*one.over} <= {*axes} for one in program.parted_stream.scores)


def _sum(products: Iterable[Length]) -> str:
    """Twice the sum of some products."""
    factors: dict[int, Fraction] = {}
    for one in products:
        factors[one.power] = factors.get(one.power, Fraction(0)) + 2 * one.factor
    return " + ".join(str(Length(factor, power)) for power, factor in factors.items())


def _at(products: Iterable[Length], size: int) -> float:
    return float(sum(one.factor * size**one.power for one in products))
