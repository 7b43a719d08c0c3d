"""Operators that map rows and at the same time sum over them, as the gradient by a weight does."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from ...lang.ir import Load, Node, Op, Reduce, Ref, Result, Value, walk
from ...lang.names import fresh
from ...lang.rewrite import renamed_value
from ...lowering.choices import Choices
from ...lowering.space import row_space
from ...lowering.tile import needed
from ...passes.structure import Program, only_maps_and_reduces, reached, references
from ...planner.steps import restricted
from ...spec.types import Output


@dataclass(frozen=True, slots=True)
class SumsProgram(Program):
    """An operator whose `sums` are over all axes but the columns, over which its other reductions are."""

    sums: tuple[str, ...]

    @property
    def cols(self) -> tuple[str, ...]:
        return self.over

    @property
    def reductions(self) -> tuple[Value, ...]:
        return tuple(v for v in self.op.values if isinstance(v.node, Reduce) and v.name not in self.sums)

    @property
    def waits(self) -> bool:
        """Whether anything is computed of what the rows reduce to."""
        names = {value.name for value in self.reductions}
        return any(value.node.references & names for value in self.op.values)

    @property
    def of_rows(self) -> dict[str, str]:
        """What each reduction is called where a kernel before has computed it: a name of its own, if it is a result."""
        results, taken = {result.output.name for result in self.op.results}, self.op.names
        names = [value.name for value in self.reductions]
        return {name: fresh(f"{name}_sum", taken) if name in results else name for name in names}

    @property
    def row_axes(self) -> tuple[str, ...]:
        """The axes of the rows, in the order in which the kernels go along them."""
        nodes = tuple(value.node for value in self.op.values if value.name not in self.sums)
        mapped = tuple(result for result in self.op.results if result.output.name not in self.sums)
        return row_space(replace(self.op, results=mapped), self.cols, nodes).row_axes


def recognise_sums(op: Op) -> SumsProgram | None:
    """The program, where an operator is of this kind: sums over all axes but the same few, beside results over all axes
    and sums of rows. Of floats alone, which are added in the dtype of the computation.
    """
    if not only_maps_and_reduces(op):
        return None
    values = {value.name: value.node for value in op.values}
    sums = _sums_of_columns(op, values)
    mapped = [result for result in op.results if result not in sums]
    if not sums or not mapped:
        return None
    cols, over = sums[0].axes, {*_reduced(values, sums[0])}
    every = {*cols} | over
    names = {result.output.name for result in sums}
    fits = (
        set() < {*cols} < every
        and all({*r.axes} == every or _is_row_sum(op, r, over) for r in mapped)
        and all(_is_sum_of_columns(values[r.output.name], over) and r.axes == cols for r in sums)
        and not any(references(value) & names for value in values.values())
        and _fits_beside(op, names, cols, every, mapped[0])
    )
    return SumsProgram(op, cols, tuple(r.output.name for r in sums)) if fits else None


def _fits_beside(op: Op, names: Set[str], cols: tuple[str, ...], every: set[str], first: Result) -> bool:
    """Whether values beside sums of columns reduce nothing but full rows alike, and take nothing."""
    nodes = [node for value in op.values if value.name not in names for node in walk(value.node)]
    rows = [node for node in nodes if isinstance(node, Reduce)]
    # Sums of rows, and nothing of columns: those are of the row-wise family, unless it would read them across.
    lies_across = any({*t.type.axes} == every and {*t.type.axes[-1:]} & {*cols} for t in op.inputs)
    return (
        all({*node.over} == {*cols} and {*node.axes} == {*rows[0].axes} for node in rows)
        # Positions count in the order of their axes.
        and all(node.over == cols for node in rows if node.kind in ("argmax", "argmin"))
        and not any(isinstance(node, Load) and node.at for node in nodes)
        and (bool(rows) or lies_across or first.axes[: len(cols)] != cols)
    )


def _is_sum_of_columns(node: Node, over: Set[str]) -> bool:
    return isinstance(node, Reduce) and _adds_up(node) and {*node.over} == over


def _sums_of_columns(op: Op, values: Mapping[str, Node]) -> list[Result]:
    """The results that are reductions; of those over two sets of axes, the ones that keep the last axis in memory."""
    reduced = [result for result in op.results if isinstance(values[result.output.name], Reduce)]
    if len({frozenset(_reduced(values, result)) for result in reduced}) == 1:
        return reduced
    widest = max((tensor.type.axes for tensor in op.inputs), key=len, default=())
    return [result for result in reduced if {*widest[-1:]} & {*result.axes}]


def _is_row_sum(op: Op, result: Result, rows: Set[str]) -> bool:
    """Whether a result is a sum of a row: 0, as the sums of columns, if nothing is added up. Not by way of a maximum,
    with which the sum is better reduced at once; nor with more axes, in rows of which the columns would be summed, too.
    """
    name = result.output.name
    node = op.value(name).node
    found = [part for other in reached(op.refs, op.refs[name], ()) for part in walk(op.value(other).node)]
    plain = all(part.kind in ("sum", "mean", "var") for part in found if isinstance(part, Reduce))
    return isinstance(node, Reduce) and _adds_up(node) and {*node.axes} == rows == {*result.axes} and plain


def _adds_up(node: Reduce) -> bool:
    return node.kind == "sum" and node.dtype.kind == "float"


def _reduced(values: Mapping[str, Node], result: Result) -> tuple[str, ...]:
    """The axes that a result is reduced over."""
    node = values[result.output.name]
    assert isinstance(node, Reduce)
    return node.over


def statistics(program: SumsProgram) -> Op | None:
    """The operator that reduces the rows alone, for rows that are too long for registers."""
    op, names, rows, paths = program.op, program.of_rows, program.row_axes, Choices(program.op).paths
    results = tuple(
        Result(
            Output(names[value.name]),
            Ref(names[value.name], value.node.axes, value.node.dtype),
            tuple(axis for axis in rows if axis in value.node.axes),
            value.node.dtype.intermediate,
            paths=paths[value.name],
        )
        for value in program.reductions
    )
    values = tuple(renamed_value(value, names) for value in needed(op.values, names))
    named = replace(op, values=values, by_row=op.by_row | {*names.values()})
    return restricted(named, results, "_rows") if results else None
