"""Reductions over short axes of fixed lengths, as pooling is written: an element of a result goes through a window."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable
from dataclasses import replace

from ...lang.ir import Choose, Index, Load, Reduce, Value, walk
from ...lowering.accumulate import Numbers, Span, running
from ...lowering.assemble import Assembler
from ...lowering.lines import Line
from ...lowering.lower import Lowering
from ...lowering.space import is_line
from ...passes.structure import Program, references
from ...spec.types import BATCH

LONGEST = 16  # elements of a window: the loop over them is unrolled
KINDS = ("sum", "mean", "max", "min", "prod")
TILE = {"rows": "BLOCK_N", "lanes": "BLOCK_M"}  # Columns are the first axis of tiles: see the runtime's tiles.py.


def is_windowed(program: Program) -> bool:
    """Whether programs on tiles of the results go through the reduced elements one by one, and only once."""
    op, over = program.op, set(program.over)
    lengths = dict(op.sizes)
    if not over <= set(lengths) or math.prod(lengths[axis] for axis in over) > LONGEST:
        return False
    results = {result.axes for result in op.results}
    if len(results) > 1 or any(axes[-1:] in ((), (BATCH,)) or set(axes) & over for axes in results):
        return False
    nodes = [node for value in op.values for node in walk(value.node)]
    if any(isinstance(node, Choose) or (isinstance(node, Index) and node.axis in over) for node in nodes):
        return False
    if any(isinstance(node, Load) and over & {axis for axis, _ in node.at} for node in nodes):
        return False
    reduced = [node for node in nodes if isinstance(node, Reduce)]
    if any(node.kind not in KINDS or node.arg.dtype.kind != "float" for node in reduced):
        return False
    known = _made_of(op.values, {value.name for value in program.reductions})
    return not any(references(value.node) & known for value in op.values if _in_window(value, over))


def window_lines(program: Program, assembler: Assembler, lowering: Lowering, values: list[Value]) -> list[Line]:
    """What is the same for a whole window, the loop through it, and what is made of the reductions."""
    over, lengths = set(program.over), dict(program.op.sizes)
    reductions = [value for value in values if isinstance(value.node, Reduce)]
    inside = [value for value in values if value not in reductions and set(value.node.axes) & over]
    later = _made_of(values, {value.name for value in reductions})
    before = [value for value in values if value.name not in later and value not in inside]
    count = str(math.prod(lengths[axis] for axis in program.over))
    numbers = Numbers(lowering.compute.text, "float", span=Span("0", count))
    states = [(value, running(value, numbers, plain_max=False)) for value in reductions]

    lines = assembler.reads(values, window=False)
    lines += [line for value in before for line in lowering.line(value)]
    for value, state in states:
        (one,) = state.states
        shape = {"rows": "", "lanes": "BLOCK"} if is_line(assembler.tile.space) else TILE
        start = replace(one, **shape).line
        lines.append(replace(start, comment=f"{value.name} = {value.source}" if value.source else ""))
    indent = ""
    for dim in assembler.tile.space.taken:
        (axis,) = dim.axes
        if axis not in over:
            continue
        lines.append(Line(f"{indent}for {dim.index} in tl.static_range({lengths[axis]}):"))
        indent += "    "
    body = assembler.reads(values, window=True)
    body += [line for value in inside for line in lowering.line(value)]
    for value, state in states:
        lowering.begin(value.name)
        assert isinstance(value.node, Reduce)
        lowering.put(*state.step(ast.unparse(lowering.operand(value.node.arg))))
        body += lowering.pending
    lines += [Line(f"{indent}{line.text}", line.comment) for line in body]
    lines += [line for _, state in states for line in state.finish]
    return lines + [
        line for value in values if value.name in later and value not in reductions for line in lowering.line(value)
    ]


def _in_window(value: Value, over: set[str]) -> bool:
    """Whether a value varies along the window, or is reduced over it."""
    return bool(set(value.node.axes) & over) or isinstance(value.node, Reduce)


def _made_of(values: Iterable[Value], names: set[str]) -> set[str]:
    """The names, and the values that are made of what they stand for."""
    found = set(names)
    for value in values:
        if references(value.node) & found:
            found.add(value.name)
    return found
