"""The cost model of steps, by which cuts are compared.

A roofline: the bytes that a step moves over the bandwidth, or the operations of its matmuls over the peak of the tensor
cores, whichever takes longer, plus a part of the other, plus a launch; without matmuls, no less than its other
operations take. Lengths that a spec does not fix are `LENGTH`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ...lang.ir import Load, Op
from ...passes.contractions import Contraction
from ...passes.exponentials import walks
from ...passes.structure import computed, gathered
from ...spec.lengths import LENGTH
from ...spec.types import Input
from ..family import Step

ITEMSIZE = 2
LAUNCH = 3_000.0  # ns
BANDWIDTH = 3_000.0  # bytes per ns
RATE = 600_000.0  # floating-point operations of tensor cores per ns
SCALAR_RATE = 20_000.0  # operations of other math per ns
# How much longer a matmul takes with a prologue, whose tiles pass through registers, again for each tile of the result.
# 3.5 times was measured with loads by TMA, and 20 times without.
PROLOGUE = 4
# Memory traffic and tensor cores overlap except for this part, so that what a matmul reads and writes besides its
# operands is not free.
EXPOSED = 0.125
ROUNDED = 1 - 1e-9  # tolerance of a lower bound, against sums in another order
SMS = 132
LONGEST = 65_536  # elements of the longest row that one program holds in registers
APART = 1_024  # the same along an axis that is not the last, where a program holds several adjacent rows


def time_of(step: Step) -> float:
    """Nanoseconds."""
    inner = step.family.steps(step.program)
    if inner:
        return sum(map(time_of, inner))
    lengths = _lengths(step.op)
    matmuls = step.family.matmuls(step.program)
    moved = _moved(step, lengths) / BANDWIDTH
    multiplied = _multiplied(matmuls, lengths) if matmuls else 0.0
    if not matmuls and not step.family.stream(step.program):
        moved = max(moved, sum(_count(axes, lengths) for axes in computed(step.op)) / SCALAR_RATE)
    return LAUNCH + max(moved, multiplied) + EXPOSED * min(moved, multiplied)


def least_time(op: Op, inputs: Iterable[str], tensors: Iterable[tuple[str, ...]]) -> float:
    """A lower bound in nanoseconds for steps that read whole inputs, and read or write tensors with some axes."""
    lengths = _lengths(op)
    axes = [*(op.input(name).type.axes for name in inputs), *tensors]
    return (LAUNCH + sum(_bytes(one, lengths) for one in axes) / BANDWIDTH) * ROUNDED


def _lengths(op: Op) -> dict[str, int]:
    """The lengths that a spec fixes, and the number of strips, twice, since their values are float32."""
    sizes = dict(op.sizes)
    return sizes | {one.axis: 2 * _count(one.over, sizes) // one.width for one in op.strips}


def _moved(step: Step, lengths: dict[str, int]) -> float:
    """The bytes that a step reads and writes, scaled up if SMs are idle."""
    op = step.op
    taken = gathered(op)
    reads = sum(_read(tensor, taken.get(tensor.name, ()), lengths) for tensor in op.inputs)
    writes = sum(_bytes(result.axes, lengths) for result in op.results)
    rows = _whole_rows(step)
    if rows is None:
        return reads + writes
    again = _count(step.program.over, lengths) > (APART if is_strided(step) else LONGEST)
    return (reads * (1 + again) + writes) * max(1.0, SMS / _count(rows, lengths))


def _read(tensor: Input, loads: Sequence[Load], lengths: dict[str, int]) -> int:
    """The bytes read of an input, of which `take` reads at most one element per index."""
    whole = _bytes(tensor.type.axes, lengths)
    return min(whole, sum(_bytes(load.axes, lengths) for load in loads)) if loads else whole


def is_strided(step: Step) -> bool:
    """Whether neighbours along what a step reduces lie apart in memory in some input."""
    over = {*step.program.over}
    return any(tensor.type.axes[-1] not in over for tensor in step.op.inputs if over & {*tensor.type.axes})


def leaves_idle(step: Step) -> bool:
    """Whether there are too few rows for all SMs that programs cannot share: one, or a number fixed by the spec."""
    rows = _whole_rows(step)
    return rows is not None and _count(rows, dict(step.op.sizes)) < SMS


def _whole_rows(step: Step) -> tuple[str, ...] | None:
    """The axes of rows that programs cannot share, as they are mapped back, or reduced in several walks; or None."""
    rows = step.family.rows(step.program)
    if rows is None or not step.program.over:
        return None
    maps_back = any(set(result.axes) - set(rows) for result in step.op.results)
    return rows if maps_back or max(walks(step.op).values(), default=0) > 1 else None


def _multiplied(matmuls: Contraction, lengths: dict[str, int]) -> float:
    """Nanoseconds of tensor cores."""
    axes = (*matmuls.batch, *matmuls.rows, *matmuls.cols, *matmuls.inner)
    operations = 2 * len(matmuls.products) * _count(axes, lengths)
    return operations * (1 if matmuls.is_plain else PROLOGUE) / RATE


def _bytes(axes: tuple[str, ...], lengths: dict[str, int]) -> int:
    return ITEMSIZE * _count(axes, lengths)


def _count(axes: tuple[str, ...], lengths: dict[str, int]) -> int:
    return math.prod(lengths.get(axis, LENGTH) for axis in axes)
