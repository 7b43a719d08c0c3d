"""The declarations of an operator's tests about its gradient."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ..emit.configs import Table
from ..emit.module import Module
from ..families.family import Step
from ..lang.ir import Op
from ..plan.backward import Backward
from ..testing.samples import Shapes
from ..testing.tests import GradientTests, declared_together

_BASES = {"backward": "GradientTests", "forward": "GradientInForwardTests", "in_place": "GradientInPlaceTests"}


def gradient_tests(
    op: Op,
    backward: Backward,
    computed: Sequence[tuple[Step, Module]],
    shapes: Shapes,
    tables: Iterable[Table],
) -> GradientTests:
    """`computed` are the steps with functions of their own, and their modules; `tables` are those of all kernels,
    including the forward's, which decide what is saved.
    """
    splits = {"backward_splits": "(2, 3, 8)"} if backward.write != "backward" else {}
    of_steps = [step.family.gradient_tests(module) for step, module in computed]
    declared = {
        "wrt": repr(tuple(backward.gradient.wrt)),
        "leaves_rows_out": "False" if backward.stored is not None else "",
        "deterministic": "" if op.deterministic else "False",
        **splits,
        **declared_together(*of_steps),
    }
    once = backward.write == "backward" and not any(map(_rounds_between, backward.plan.steps))
    rounded = ["RoundedGradients"] if once and shapes.dense() else []
    bases = (*_of_kernels({table.kind for table in tables}), *rounded, _BASES[backward.write])
    return GradientTests(bases, declared)


def _of_kernels(kinds: Collection[str]) -> list[str]:
    """The classes that test the configurations of some kinds of kernels; classes for rows include elements."""
    bases = {
        "StreamingGradients": {"streamed"},
        "MatmulGradients": {"tma", "strided"},
        "RowKernels": {*kinds} - {"streamed", "tma", "strided", "flat", "tile"},
        "MapKernels": {"flat", "tile"},
    }
    found = [base for base, some in bases.items() if some & {*kinds}]
    return found if "RowKernels" not in found else [base for base in found if base != "MapKernels"]


def _rounds_between(step: Step) -> bool:
    """Whether the steps of a multi-step plan pass each other matrices in the dtype of an input."""
    inner = step.family.steps(step.program)
    read = {tensor.name for one in inner for tensor in one.op.inputs}
    stored = [result for one in inner for result in one.op.results if result.output.name in read]
    return any(result.dtype.kind == "float" and result.dtype.rule != "compute" for result in stored)
