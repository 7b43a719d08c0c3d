"""What an operator's tests declare of its gradient."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ..emit.configs import Table
from ..emit.module import Module
from ..families.family import Step
from ..lang.ir import Op
from ..plan.backward import Backward, Plan
from ..testing.samples import Shapes, dtype_columns
from ..testing.tests import GradientTests, declared_together, rounds_to_float32

_BASES = {"backward": "GradientTests", "forward": "GradientInForwardTests", "in_place": "GradientInPlaceTests"}


def gradient_tests(
    op: Op,
    backward: Backward,
    computed: Sequence[tuple[Step, Module]],
    shapes: Shapes,
    tables: Iterable[Table],
) -> GradientTests:
    """`computed` are the steps that have functions of their own, with the modules of those; `tables` are of all
    kernels, those of the forward too, which decide what is saved.
    """
    splits = {"backward_splits": "(2, 3, 8)"} if backward.write != "backward" else {}
    of_steps = [step.family.gradient_tests(module) for step, module in computed]
    by_kernel = next((name for name in backward.gradient.wrt if _is_computed(backward.plan, name)), "")
    declared = {
        "wrt": repr(tuple(backward.gradient.wrt)),
        "computed": repr(by_kernel) if by_kernel else "",
        "leaves_rows_out": "False" if backward.stored is not None else "",
        "deterministic": "" if op.deterministic else "False",
        **splits,
        **declared_together(*of_steps),
    }
    tiny = {"tiny": repr(shapes.tiny())} if _has_finite_differences(op, backward.gradient.wrt) else {}
    once = backward.write == "backward" and not any(map(_rounds_between, backward.plan.steps))
    rounded = ["RoundedGradients"] if once and shapes.dense() else []
    bases = (*_of_kernels({table.kind for table in tables}), *rounded, _BASES[backward.write])
    return GradientTests(bases, declared, tiny)


def _of_kernels(kinds: Collection[str]) -> list[str]:
    """The classes that test the configurations of some kinds of kernels; those of rows also test those of elements."""
    bases = {
        "StreamingGradients": {"streamed"},
        "MatmulGradients": {"tma", "strided"},
        "RowKernels": {*kinds} - {"streamed", "tma", "strided", "flat", "tile"},
        "MapKernels": {"flat", "tile"},
    }
    found = [base for base, some in bases.items() if some & {*kinds}]
    return found if "RowKernels" not in found else [base for base in found if base != "MapKernels"]


def _has_finite_differences(op: Op, wrt: Collection[str]) -> bool:
    """Whether all is computed in float64, and gradcheck can subtract the results, of which bools have none."""
    moved = [tensor.type.dtypes for tensor in op.inputs if tensor.name in wrt]
    inputs = {tensor.name for tensor in op.inputs}
    columns = dtype_columns(op).values()
    kept = all(set(r.dtype.of) <= inputs for r in op.results if r.dtype.kind == "float")
    subtracts = all(r.dtype.kind != "bool" for r in op.results)
    doubles = bool(columns) and all("float64" in dtypes for dtypes in (*columns, *moved))
    return doubles and kept and subtracts and not rounds_to_float32(op)


def _rounds_between(step: Step) -> bool:
    """Whether steps that it is made of store matrices for others of them, in the dtype of an input."""
    inner = step.family.steps(step.program)
    read = {tensor.name for one in inner for tensor in one.op.inputs}
    stored = [result for one in inner for result in one.op.results if result.output.name in read]
    return any(result.dtype.kind == "float" and result.dtype.rule != "compute" for result in stored)


def _is_computed(plan: Plan, name: str) -> bool:
    """Whether a gradient is a kernel's, and no gradient of a result as it came."""
    return any(result.output.name in plan.spelled[name] for step in plan.steps for result in step.op.results)
