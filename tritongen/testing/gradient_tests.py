"""What an operator's tests declare of its gradient."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..emit.module import Module
from ..passes.structure import Program
from ..plan.backward import Backward
from .samples import Shapes, dtype_columns

_BASES = {"backward": "GradientTests", "forward": "GradientInForwardTests", "in_place": "GradientInPlaceTests"}


@dataclass(frozen=True, slots=True)
class GradientTests:
    """The classes that tests of a gradient inherit, and what those declare by the names of the harness."""

    bases: tuple[str, ...] = ()
    declared: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, str] = field(default_factory=dict)


def gradient_tests(
    program: Program, backward: Backward | None, parts: Sequence[Module], shapes: Shapes, registered: bool
) -> GradientTests:
    if backward is None:
        return GradientTests()
    kinds = {kind for part in parts for kind in part.traffic.kinds}
    is_ahead = backward.write != "backward"
    splits = is_ahead or any(part.view.get("partial") for part in parts)
    computed = next((name for name in backward.gradient.wrt if _is_computed(backward, name)), "")
    declared = {
        "wrt": repr(tuple(backward.gradient.wrt)),
        "computed": repr(computed) if parts and computed else "",
        "no_second_derivative": "'no autograd formula'" if registered else "",
        "backward_splits": "(2, 3, 8)" if splits else "",
        "ctas_per_row": "(1, 3, 8)" if "shared" in kinds else "",
        "backward_split_k": "(2, 3)" if "pointers" in kinds else "",
        "backward_stream_k": "((1, 3), (5, 2))" if "shares" in kinds else "",
    }
    tiny = {"tiny": repr(shapes.tiny())} if _has_finite_differences(program, backward.gradient.wrt) else {}
    return GradientTests((_BASES[backward.write],), declared, tiny)


def _has_finite_differences(program: Program, wrt: Collection[str]) -> bool:
    """Whether all is computed in float64, and gradcheck can subtract the results, of which bools have none."""
    moved = [tensor.type.dtypes for tensor in program.op.inputs if tensor.name in wrt]
    op = program.op
    inputs = {tensor.name for tensor in op.inputs}
    columns = dtype_columns(op).values()
    kept = all(set(r.dtype.of) <= inputs for r in op.results if r.dtype.kind == "float")
    subtracts = all(r.dtype.kind != "bool" for r in op.results)
    return bool(columns) and all("float64" in dtypes for dtypes in (*columns, *moved)) and kept and subtracts


def _is_computed(backward: Backward, name: str) -> bool:
    """Whether a gradient is a kernel's, and no gradient of a result as it came."""
    return any(result.output.name in backward.spelled[name] for part in backward.parts for result in part.op.results)
