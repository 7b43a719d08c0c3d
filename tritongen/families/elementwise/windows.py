"""Reductions over short axes of fixed lengths, as in pooling: each element of a result loops over a window, also if
results vary along it.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import replace
from typing import Any

from ...lang.ir import Choose, Load, Node, Op, Reduce, Value
from ...lowering.accumulate import Accumulator, Running, Span, running
from ...lowering.assemble import Assembler
from ...lowering.space import Dim, Space, index_of, is_line
from ...lowering.tile import needed
from ...nest.ir import For, Let, Line, Nest, nested
from ...nest.values import V, tl
from ...passes.structure import Program, reached, references
from ...spec.types import BATCH

LONGEST = 16  # elements of a window: the loop over them is unrolled
KINDS = ("sum", "mean", "max", "min", "prod")
TILE = ("BLOCK_N", "BLOCK_M")  # rows and lanes. Columns are the first axis of tiles: see the runtime's tiles.py.


def is_windowed(program: Program) -> bool:
    """Whether programs on tiles of the results can loop over the reduced elements one by one, in a single pass."""
    op, over = program.op, set(program.over)
    lengths = dict(op.sizes)
    if not over <= set(lengths) or math.prod(lengths[axis] for axis in over) > LONGEST:
        return False
    results = {result.axes for result in op.results}
    if len(results) > 1 or any(_outside(axes, over)[-1:] in ((), (BATCH,)) for axes in results):
        return False
    if program.maps_back and not (_is_disjoint(op.results[0].axes, over) and _has_even_columns(program)):
        return False
    if not all(_is_for_windows(node, over) for node in op.nodes):
        return False
    known = _made_of(op, program.reductions)
    inside = [value for value in op.values if over & {*value.node.axes} or isinstance(value.node, Reduce)]
    once = program.reductions if program.maps_back else inside
    return not any(references(value.node) & known for value in once)


def _is_for_windows(node: Node, over: set[str]) -> bool:
    """Whether a node is no `Choose`, gathers nothing along a window, and, as a reduction, is one of KINDS of floats."""
    match node:
        case Choose():
            return False
        case Load(at=at):
            return over.isdisjoint(axis for axis, _ in at)
        case Reduce(kind=kind, arg=arg):
            return kind in KINDS and arg.dtype.kind == "float"
    return True


def shared_axes(op: Op) -> tuple[str, ...]:
    """The axes of results that have fixed lengths and that no input has."""
    read = {axis for tensor in op.inputs for axis in tensor.type.axes}
    return tuple(axis for axis, _ in op.sizes if axis not in read and any(axis in r.axes for r in op.results))


def _outside(axes: tuple[str, ...], over: Container[str]) -> tuple[str, ...]:
    """The axes of a result that do not run along the window."""
    return tuple(axis for axis in axes if axis not in over)


def _is_disjoint(axes: tuple[str, ...], over: set[str]) -> bool:
    """Whether other axes lie between the axes of a window, so that its elements are not contiguous."""
    places = [place for place, axis in enumerate(axes) if axis in over]
    return len(places) == len(over) < places[-1] - places[0] + 1


def _has_even_columns(program: Program) -> bool:
    """Whether the `columns` of results are the end of one dimension of each tensor that has window axes among them.

    Results may not overwrite inputs, which are read again, and nothing may be gathered.
    """
    op, over = program.op, set(program.over)
    cols = columns(program)
    shapes = [tensor.type.shape for tensor in op.inputs] + [op.grouping(result) for result in op.results]
    terms = [term.names for shape in shapes for term in shape if over & set(cols) & set(term.names)]
    return (
        all(names[-len(cols) :] == cols for names in terms)
        and len(_outside(op.results[0].axes, over)) > 1
        and cols[0] not in dict(op.sizes)
        and not any(result.over for result in op.results)
        and not any(isinstance(node, Load) and node.at for node in op.nodes)
    )


def columns(program: Program) -> tuple[str, ...]:
    """The last axis of results that does not run along a window, and the axes after it, which do."""
    axes = program.op.results[0].axes
    return axes[axes.index(_outside(axes, program.over)[-1]) :]


def space_of_results(program: Program, space: Space) -> Space:
    """The space of results that vary along a window, given the space of windows: its columns include the last axes of
    the window, so that stores are contiguous.
    """
    cols = columns(program)
    taken = tuple(dim for dim in space.taken if not set(dim.axes) & set(cols))
    return replace(space, cols=(Dim(cols, "cols", "n_cols", cols[-1].lower(), True),), taken=taken)


def space_of_windows(program: Program, space: Space) -> Space:
    """The space of windows, one for each column of results, given the space of results."""
    (dim,) = space.cols
    first, *others = dim.axes
    col = Dim((first,), index_of(first) if others else "cols", "n_cols", first.lower(), True)
    known = [axis for axis in program.op.axes if axis in program.over]
    taken = [Dim((axis,), index_of(axis), f"size_{axis.lower()}", axis.lower(), True) for axis in known]
    return replace(space, cols=(col,), taken=tuple(taken))


class WindowLines:
    """The lines of programs that loop over a window for each element."""

    def __init__(self, program: Program, assembler: Assembler, values: list[Value]) -> None:
        self.program, self.assembler, self.values = program, assembler, values
        self.lowering = assembler.lowering()
        self.lengths, self.over = dict(program.op.sizes), set(program.over)
        self.reductions = [value for value in values if isinstance(value.node, Reduce)]
        # The values that vary along a window.
        self.inside = [v for v in values if v not in self.reductions and set(v.node.axes) & self.over]

    def lines(self) -> list[Any]:
        """The lines before the loop over a window, the loop, and the values that depend on its reductions."""
        later = _made_of(self.program.op, self.reductions)
        others = [value for value in self.values if value not in (*self.reductions, *self.inside)]
        count = str(math.prod(self.lengths[axis] for axis in self.program.over))
        accumulator = Accumulator(self.lowering.compute.text, "float", span=Span("0", count))
        states = [(value, running(value, accumulator, plain_max=False)) for value in self.reductions]

        lines = self.assembler.reads(self.values, window=False)
        lines += [line for value in others if value.name not in later for line in self.lowering.line(value)]
        lines += [self.start(value, state) for value, state in states]
        lines += self.through(self.assembler, self.body(states)) if self.reductions else ()
        lines += [line for _, state in states for line in state.finish]
        return lines + [line for value in others if value.name in later for line in self.lowering.line(value)]

    def body(self, states: list[tuple[Value, Running]]) -> list[Line]:
        """The body of the loop over a window: loads, values of each element, and the steps of the reductions."""
        reduced = needed(self.program.op.values, [value.name for value in self.reductions])
        body = self.assembler.reads(reduced, window=True)
        body += [line for value in self.inside if value in reduced for line in self.lowering.line(value)]
        for value, state in states:
            self.lowering.begin(value.name)
            assert isinstance(value.node, Reduce)
            self.lowering.put(*state.step(self.lowering.operand(value.node.arg)))
            body += self.lowering.pending
        return body

    def start(self, value: Value, state: Running) -> Line:
        """The initial state of a reduction."""
        (one,) = state.states
        rows, lanes = ("", "BLOCK") if is_line(self.assembler.tile.space) else TILE
        comment = f"{value.name} = {value.source}" if value.source else ""
        return replace(replace(one, rows=rows, lanes=lanes).line, comment=comment)

    def through(self, assembler: Assembler, body: list[Line]) -> Nest:
        """The loop over a window, unrolled."""
        inside: Nest = nested(body)
        for dim in reversed([dim for dim in assembler.tile.space.taken if set(dim.axes) <= self.over]):
            if any(f"{dim.index}.to(" in line.text for line in body if isinstance(line, Line)):
                # Unrolled, it is a Python integer, which has no dtype to cast from.
                inside = (Let(dim.index, tl.full((), dim.index, "tl.int64")), *inside)
            inside = (For(tl.static_range(self.lengths[dim.axes[0]]), index=dim.index, body=inside),)
        return inside

    # Results that vary along a window

    def decoded(self) -> list[Line]:
        """The index of the window that a column of results is in."""
        first, *others = columns(self.program)
        count = math.prod(self.lengths[axis] for axis in others)
        return [Let(index_of(first), V.cols // count)] if others else []

    def results(self, assembler: Assembler) -> Nest:
        """The loop over the results, in their own space, once the windows are reduced."""
        op = self.program.op
        wanted = needed(tuple(self.inside), [result.output.name for result in op.results])
        along = (tensor for tensor in assembler.inputs_of(wanted) if {*tensor.type.axes} & self.over)
        body = [line for tensor in along for line in assembler.tile.load_lines(tensor)]
        body += [line for value in wanted for line in self.lowering.line(value)]
        return self.through(assembler, [*body, *assembler.stores(op.results)])


def _made_of(op: Op, reductions: Iterable[Value]) -> set[str]:
    """The names of reductions, and of the values that depend on them."""
    names = {value.name for value in reductions}
    return {value.name for value in op.values if names & reached(op.refs, [value.name], ())}
