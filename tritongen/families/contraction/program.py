"""An operator with matmuls, as its family sees it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, takewhile

from ...lang.ir import Op
from ...passes.contractions import Contraction
from ...passes.gathered import Gathered, as_batches
from ...passes.structure import Program
from ...spec.types import FLOATS


@dataclass(frozen=True, slots=True)
class ContractionProgram(Program):
    """An operator whose reductions are sums of products; `over` are the axes that those are summed over."""

    contraction: Contraction
    gathered: tuple[Gathered, ...] = ()

    @property
    def seen(self) -> Op:
        """The operator as kernels see it: with a matrix for each of the batch, whatever those are picked of."""
        return as_batches(self.op, self.gathered)


def is_one_matmul(program: ContractionProgram) -> bool:
    """Whether an operator multiplies two matrices of one dtype and does nothing else, as the runtime's gemm does."""
    op = program.op
    if len(op.values) > 1 or len(op.inputs) != 2 or not program.contraction.is_plain:
        return False
    kinds = {tensor.name: tensor.type.variable or _only(tensor.type.dtypes) for tensor in op.inputs}
    shared = {*kinds.values(), *(kinds.get(name, name) for name in op.results[0].dtype.of)}
    return len(shared) == 1 and all(shared)


def summed_batch(program: ContractionProgram) -> tuple[str, ...]:
    """Inner axes that come first in both matrices of a matmul, where those of one are not adjacent: B of
    `sum(dy[B, O, H, W] * x[B, C, H, W], B, H, W)`. A sum over the matrices of this batch needs no copy that has all
    inner axes together. () where there are none, what remains would need one too, or a batch is not summed.
    """
    if program.contraction.batch:
        return ()
    inner = program.contraction.inner
    sides = [tensor.type.axes for tensor in program.op.inputs]
    together = [_lie_together(axes, inner) for axes in sides]
    first = min((tuple(takewhile(inner.__contains__, axes)) for axes in sides), key=len)
    rests = [axes[len(first) :] for axes in sides]
    starts = all(axes[: len(first)] == first for axes in sides)
    if all(together) or not starts or not all(_lie_together(axes, inner) for axes in rests):
        return ()
    return first


def _lie_together(axes: tuple[str, ...], inner: tuple[str, ...]) -> bool:
    """Whether the inner axes of a matrix follow one another, and so do the others."""
    return len(list(groupby(axes, inner.__contains__))) == 2


def _only(dtypes: tuple[str, ...]) -> str:
    """The dtype of a tensor that can have one alone, where that is a float."""
    return dtypes[0] if len(dtypes) == 1 and dtypes[0] in FLOATS else ""
