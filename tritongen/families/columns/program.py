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
    """An operator whose `sums` are over all axes but the columns; its other reductions are over the columns."""

    sums: tuple[str, ...]

    @property
    def cols(self) -> tuple[str, ...]:
        return self.over

    @property
    def reductions(self) -> tuple[Value, ...]:
        return tuple(v for v in self.op.values if isinstance(v.node, Reduce) and v.name not in self.sums)

    @property
    def waits(self) -> bool:
        """Whether any value depends on the reductions of the rows."""
        names = {value.name for value in self.reductions}
        return any(value.node.references & names for value in self.op.values)

    @property
    def of_rows(self) -> dict[str, str]:
        """The name of each reduction when a previous kernel computes it: a fresh name if it is also a result."""
        results, taken = {result.output.name for result in self.op.results}, self.op.names
        names = [value.name for value in self.reductions]
        return {name: fresh(f"{name}_sum", taken) if name in results else name for name in names}

    @property
    def row_axes(self) -> tuple[str, ...]:
        """The axes of the rows, in the order in which the kernels iterate over them."""
        mapped = tuple(result for result in self.op.results if result.output.name not in self.sums)
        return row_space(replace(self.op, results=mapped), self.cols).row_axes


def recognise_sums(op: Op) -> SumsProgram | None:
    """The program of an operator with column sums, which are over all axes but the same few, and with other results
    that have all axes or are sums of rows; else None. Sums are of floats, added in the compute dtype.
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
        and _others_fit(op, names, cols, every, mapped[0])
    )
    return SumsProgram(op, cols, tuple(r.output.name for r in sums)) if fits else None


def _others_fit(op: Op, names: Set[str], cols: tuple[str, ...], every: set[str], first: Result) -> bool:
    """Whether all values but the column sums reduce only full rows, with the same axes, and gather nothing."""
    nodes = [node for value in op.values if value.name not in names for node in walk(value.node)]
    rows = [node for node in nodes if isinstance(node, Reduce)]
    # Without reductions of rows, the row-wise family computes the sums, unless it would read strided rows.
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
    """The results that are reductions; if over different sets of axes, only those that keep the last axis in memory."""
    reduced = [result for result in op.results if isinstance(values[result.output.name], Reduce)]
    if len({frozenset(_reduced(values, result)) for result in reduced}) == 1:
        return reduced
    widest = max((tensor.type.axes for tensor in op.inputs), key=len, default=())
    return [result for result in reduced if {*widest[-1:]} & {*result.axes}]


def _is_row_sum(op: Op, result: Result, rows: Set[str]) -> bool:
    """Whether a result is a sum of a row, which like column sums is 0 if nothing is added up.

    It may not depend on a maximum, with which the sum is better fused, and may have no axes but those of all rows.
    """
    name = result.output.name
    node = op.value(name).node
    found = [inner for other in reached(op.refs, op.refs[name], ()) for inner in walk(op.value(other).node)]
    plain = all(inner.kind in ("sum", "mean", "var") for inner in found if isinstance(inner, Reduce))
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
