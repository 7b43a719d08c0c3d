"""The cost model of steps, by which cuts are compared: the time of kernels, scaled up where SMs are idle.

A step without matmuls takes at least the time of its scalar operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..lang.facts import fact
from ..lang.ir import Load, Op, Result
from ..passes.contractions import Contraction
from ..passes.exponentials import walks
from ..passes.factors import is_outer
from ..passes.renamed import renamed
from ..passes.structure import computed, gathered, gone_through, repeated
from ..passes.times import (
    BANDWIDTH,
    CACHED,
    ITEMSIZE,
    LAUNCH,
    PROLOGUE,
    SCALAR_RATE,
    SMS,
    count,
    kernel,
    multiplied,
    outer,
    stored,
)
from ..spec.types import BOOLS, Input

if TYPE_CHECKING:
    from ..families.family import Step

ROUNDED = 1 - 1e-9  # tolerance of times, against sums in another order
LONGEST = 65_536  # elements of the longest row that one program holds in registers
STRIDED = 1_024  # the same along a strided axis, where a program holds several adjacent rows


def time_of(step: Step) -> float:
    """The time of a step in nanoseconds."""
    inner = step.family.steps(step.program)
    if inner:
        return sum(map(time_of, inner))
    if renamed(step.op):  # A view.
        return 0.0
    lengths = lengths_of(step.op)
    matmuls = step.family.matmuls(step.program)
    moved = _moved(step, lengths) / BANDWIDTH
    by_tensor_cores = _multiplied(step.op, matmuls, lengths) if matmuls else 0.0
    if not matmuls and not step.family.stream(step.program):
        rows = reducing_rows(step)
        repeats = {(name, gone_through(node, rows)) for node in repeated(step.op, rows) for name in node.reads}
        again = sum(stored(axes, lengths) for _, axes in repeats) / CACHED
        moved = max(moved, again, sum(count(axes, lengths) for axes in computed(step.op, rows)) / SCALAR_RATE)
    return kernel(moved, by_tensor_cores)


def least_time(moved: int) -> float:
    """A lower bound in nanoseconds for steps that read and write this many bytes."""
    return (LAUNCH + moved / BANDWIDTH) * ROUNDED


def bytes_read(tensor: Input, lengths: dict[str, int]) -> int:
    return stored(tensor.type.axes, lengths) // (ITEMSIZE if tensor.type.dtypes == BOOLS else 1)


def bytes_written(result: Result, lengths: dict[str, int]) -> int:
    return stored(result.axes, lengths) // (ITEMSIZE if result.dtype.kind == "bool" else 1)


@fact
def lengths_of(op: Op) -> dict[str, int]:
    """The lengths in the spec, and the number of strips, doubled because their values are float32."""
    sizes = op.lengths
    return sizes | {one.axis: 2 * count(one.over, sizes) // one.width for one in op.strips}


def _moved(step: Step, lengths: dict[str, int]) -> float:
    """The bytes that a step reads and writes, scaled up if SMs are idle."""
    op = step.op
    taken = gathered(op)
    reads = sum(_read(tensor, taken.get(tensor.name, ()), lengths) for tensor in op.inputs)
    writes = sum(bytes_written(result, lengths) for result in op.results)
    rows = _full_rows(step)
    if rows is None:
        return reads + writes
    again = count(step.program.over, lengths) > (STRIDED if is_strided(step) else LONGEST)
    return (reads * (1 + again) + writes) * max(1.0, SMS / count(rows, lengths))


def _read(tensor: Input, loads: Sequence[Load], lengths: dict[str, int]) -> int:
    """The bytes read of an input; a `take` reads at most one element per index."""
    size = bytes_read(tensor, lengths)
    return min(size, sum(stored(load.axes, lengths) for load in loads)) if loads else size


def reducing_rows(step: Step) -> tuple[str, ...]:
    """The axes of the rows that a row-wise kernel reduces or scans; none for other kernels."""
    program = step.program
    if not program.over or step.family.matmuls(program) or step.family.stream(program) or step.family.steps(program):
        return ()
    found = {axis for value in step.op.values for axis in value.node.axes}
    found |= {axis for result in step.op.results for axis in result.axes}
    return tuple(axis for axis in step.op.axes if axis in found and axis not in program.over)


def repeats_reductions(step: Step) -> bool:
    """Whether a reduction lacks an axis of the rows of its kernel, which then repeats it for each row."""
    return bool(repeated(step.op, reducing_rows(step)))


def is_strided(step: Step) -> bool:
    """Whether some input is strided along the axes that a step reduces: its last axis is none of them."""
    over = {*step.program.over}
    return any(tensor.type.axes[-1] not in over for tensor in step.op.inputs if over & {*tensor.type.axes})


def leaves_idle(step: Step) -> bool:
    """Whether rows that programs cannot share are too few for all SMs: a single one, or as many as the spec fixes."""
    rows = _full_rows(step)
    return rows is not None and count(rows, dict(step.op.sizes)) < SMS


def _full_rows(step: Step) -> tuple[str, ...] | None:
    """The axes of rows that programs cannot share: broadcast back, or walked more than once; None if there are none."""
    rows = step.family.rows(step.program) if step.program.over else None
    if rows is None:
        return None
    maps_back = any(set(result.axes) - set(rows) for result in step.op.results)
    return rows if maps_back or max(walks(step.op).values(), default=0) > 1 else None


def _multiplied(op: Op, matmuls: Contraction, lengths: dict[str, int]) -> float:
    """The time of tensor cores in nanoseconds."""
    roles = (matmuls.batch, matmuls.rows, matmuls.cols, matmuls.inner)
    sides = tuple(count(axes, lengths) for axes in roles)
    slower = 1 if matmuls.is_plain else outer(*sides) if _are_outer(op, matmuls) else PROLOGUE
    return len(matmuls.products) * multiplied(*sides) * slower


def multiplies_outer(step: Step) -> bool:
    """Whether a matmul recomputes for each tile an outer product of factors, which could be stored instead."""
    matmuls = step.family.matmuls(step.program)
    return matmuls is not None and _are_outer(step.op, matmuls)


def _are_outer(op: Op, matmuls: Contraction) -> bool:
    return any(is_outer(op, factor) for factor in matmuls.factors)
