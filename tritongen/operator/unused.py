"""Options of `[op]` that change nothing, since no step does the math that they configure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..diagnostics.report import Mistake
from ..families.family import Step
from ..lang.ir import Op, Reduce, ScatterSum
from ..passes.contractions import is_product
from ..passes.factors import dtypes_of, multiplied
from ..spec.types import Spec


def unused_options(spec: Spec, steps: Iterable[Step]) -> list[Mistake]:
    """The mistakes about unused options of a spec that `steps` compute, forward and backward."""
    ops = [*_ops(steps)]
    found = []
    if spec.precision != "ieee" and not any(map(_multiplies_float32, ops)):
        message = "precision is how matmuls multiply float32, and this operator multiplies none"
        found.append(Mistake("TG609", message, ("op", "precision"), hint="leave it out"))
    if not spec.deterministic and not any(isinstance(node, ScatterSum) for op in ops for node in op.nodes):
        message = "deterministic = false permits atomics in gradients of take, and this operator scatters nothing"
        found.append(Mistake("TG609", message, ("op", "deterministic"), hint="leave it out"))
    return found


def _ops(steps: Iterable[Step]) -> Iterator[Op]:
    for step in steps:
        yield step.op
        yield from _ops(step.family.steps(step.program))


def _multiplies_float32(op: Op) -> bool:
    sums = (value.node for value in op.values if isinstance(value.node, Reduce) and is_product(op, value.node))
    return any("float32" in dtypes_of(op, leaf) for node in sums for leaf in multiplied(op, node.dtype).of)
