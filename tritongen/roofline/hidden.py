"""Costs that the math of a spec does not show: warnings, each at its line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..diagnostics.report import Mistake, listed
from ..lang.ir import Load, Op, Reduce, Scan, Take, Value
from ..lang.names import shown
from ..lang.unparse import spelled
from ..passes.structure import computed, gone_through, line_of, repeated
from ..planner.cost import reducing_rows
from ..spec.types import Spec
from .amounts import bytes_of, lengths_text, scaled, time_of
from .count import Counted, Product, StepCost
from .devices import LAUNCH

FAR = 8  # other operations of a step are reported if they take `FAR` times as long as memory
FRACTION = 8  # bytes that int32 saves are reported if they are at least 1 / `FRACTION` of the bytes of a step
Positioned = Load | Take


def hidden_costs(spec: Spec, op: Op, counted: Counted, steps: Sequence[StepCost]) -> list[Mistake]:
    """Warnings of costs that the math does not show, one for each line and kind of cost."""
    found = [one for step in steps for one in _of_other_math(step, counted)]
    found += _in_float32(steps, counted)
    found += _stored(op, counted, steps) if spec.schedule.fuse else ()
    found += _wide_indices(op, steps)
    first: dict[tuple[str, tuple[str, ...]], Mistake] = {}
    for warning in (_placed(one, spec) for one in found):
        first.setdefault((warning.code, warning.key), warning)
    return list(first.values())


def _placed(warning: Mistake, spec: Spec) -> Mistake:
    """The warning at its line, also if it is of a subexpression; one of a gradient is placed at [grad] wrt."""
    table, name = map(shown, warning.key)
    if table != "compute":
        return warning
    names = [shown(line.name) for line in spec.compute]
    lines = [line for line in names if f"{name}_".startswith(f"{line}_")]
    if lines or spec.grad is None:
        return replace(warning, key=("compute", max([*lines, ""], key=len)))
    return replace(warning, message=f"{name}: {warning.message}", key=("grad", "wrt"))


def _of_other_math(step: StepCost, counted: Counted) -> Iterator[Mistake]:
    """Operations that take longer than memory: reductions repeated for each row, or far more other operations."""
    if not step.operations or step.seconds <= LAUNCH:
        return
    op, rows = step.step.op, reducing_rows(step.step)
    again = sorted(repeated(op, rows), key=lambda node: -counted.elements(gone_through(node, rows)))
    repeats = sum(counted.elements(gone_through(node, rows)) for node in again)
    costs = (
        f"{scaled(step.operations)}op for {bytes_of(step.bytes)}, {time_of(step.seconds)} at {_lengths(op, counted)}"
    )
    if 2 * repeats > step.operations:
        value = next(value for value in op.values if again[0] in value.node.nodes)
        missing = tuple(axis for axis in rows if axis not in gone_through(again[0]))
        message = (
            f"{_said(again[0], op)} does not vary along {listed(missing)},"
            f" and is computed again for each of {counted.elements(missing):,}: {costs}"
        )
        hint = "give it a line of its own, so that a step can compute it once"
        yield Mistake("TG901", message, ("compute", line_of(op, value)), hint=hint)
        return
    moving = step.bytes / counted.device.bandwidth
    if step.seconds > FAR * max(LAUNCH, moving):
        value = max(op.values, key=lambda one: sum(map(counted.elements, computed(op.of([one])))))
        message = f"this computes far more than it reads and writes: {costs}; memory takes {time_of(moving)}"
        hint = "tensor cores compute sums of products alone, sum(a * b, K); all else is computed element by element"
        yield Mistake("TG902", message, ("compute", line_of(op, value)), hint=hint)


def _lengths(op: Op, counted: Counted) -> str:
    return lengths_text((axis, counted.lengths[axis]) for axis in op.axes)


def _said(node: Reduce | Scan, op: Op) -> str:
    """The text of a reduction, from the spec if a line has it."""
    value = next((value for value in op.values if value.node == node and value.source), None)
    return value.source if value else spelled(node)


def _in_float32(steps: Sequence[StepCost], counted: Counted) -> Iterator[Mistake]:
    """Float32 matmuls that take longer than memory does, because they do not run on tensor cores."""
    for step in steps:
        op = step.step.op
        seconds = LAUNCH + step.bytes / counted.device.bandwidth
        for product in counted.products(step.step) if op.precision == "ieee" else ():
            taken = product.flops / counted.device.peak("float32", "ieee")
            if product.dtype == "float32" and taken > 2 * seconds:
                half = product.flops / counted.device.peak("bfloat16", "ieee")
                message = (
                    f"this multiplies in float32, without tensor cores, since {_why(product, counted)}:"
                    f" {time_of(taken)}, in bfloat16 {time_of(half)} at {_lengths(op, counted)}"
                )
                hint = 'cast to bfloat16 what is wider, or choose [op] precision = "bf16x6", as exact as float32'
                yield Mistake("TG903", message, ("compute", line_of(op, product.value)), hint=hint)


def _why(product: Product, counted: Counted) -> str:
    """The reason why a matmul is in float32, as a clause."""
    known = {name: counted.dtypes[name] for name in product.of if name in counted.dtypes}
    wide = [name for name, dtype in known.items() if dtype == "float32"]
    if wide:
        return f"{listed(wide).replace(' or ', ' and ')} {'are' if len(wide) > 1 else 'is'} float32"
    if len(set(known.values())) > 1:
        return " and ".join(f"{name} is {dtype}" for name, dtype in known.items())
    return "an operand is cast to float32, or computed of integers"


def _stored(op: Op, counted: Counted, steps: Sequence[StepCost]) -> Iterator[Mistake]:
    """Tensors between steps that are larger than all arguments and results together."""
    names = {result.output.name for result in op.results if not result.saved}
    tensors = {one.name: one for step in steps for one in (*step.reads, *step.writes)}
    given = [counted.read(tensor, op).bytes for tensor in op.inputs]
    outside = sum(given) + sum(tensors[name].bytes for name in names if name in tensors)
    for step in steps:
        for tensor in step.writes:
            if tensor.uses and tensor.name not in names and tensor.bytes > outside:
                shape = f"{tensor.name}[{', '.join(tensor.axes)}]"
                message = (
                    f"{shape} is stored, {bytes_of(tensor.bytes)} of {tensor.dtype}, where all arguments"
                    f" and results have {bytes_of(outside)} at {_lengths(op, counted)}"
                )
                hint = "`tritongen plan` shows the steps that write and read it"
                line = line_of(step.step.op, step.step.op.value(tensor.name))
                yield Mistake("TG904", message, ("compute", line), hint=hint)


def _wide_indices(op: Op, steps: Sequence[StepCost]) -> Iterator[Mistake]:
    """Indices in int64 whose upper halves are at least 1 / `FRACTION` of the bytes that a step moves."""
    given = {tensor.name: tensor.type.dtypes for tensor in op.inputs}
    for step in steps:
        for tensor in step.reads:
            if tensor.dtype != "int64" or step.seconds <= LAUNCH or tensor.name not in _positions(step.step.op):
                continue
            if tensor.bytes * FRACTION < 2 * step.bytes or given.get(tensor.name, ("int64",)) != ("int64",):
                continue
            message = f"{tensor.name} holds positions in int64, {bytes_of(tensor.bytes)} of {bytes_of(step.bytes)}"
            if tensor.name in given:
                hint = f"int32 reaches 2,147,483,647: declare {tensor.name} as int32, or as int32|int64"
                yield Mistake("TG905", message, ("inputs", tensor.name), hint=hint)
            else:
                hint = "int32 reaches 2,147,483,647: cast(…, int32)"
                yield Mistake("TG905", message, ("compute", tensor.name), hint=hint)


def _positions(op: Op) -> set[str]:
    """The inputs and stored values from which indices are computed."""
    takes = (node for node in op.nodes if isinstance(node, Positioned))
    direct = [index for node in takes for _, index in node.at]
    found, left = set[str](), [Value("", index, "") for index in direct]
    while left:
        node = left.pop().node
        found |= node.reads
        left += (op.value(name) for name in node.references)
    return found
