"""An operator that is a scan, as its family sees it."""

from __future__ import annotations

from dataclasses import dataclass

from ...lang.ir import Op, Reduce, Scan, ScatterSum, Take, Value, children, is_order
from ...passes.structure import Program, reached


@dataclass(frozen=True, slots=True)
class ScanProgram(Program):
    """An operator whose `scans` all go along the same axis, in the same direction, none through another."""

    scans: tuple[Value, ...]
    reverse: bool


def recognise_scans(op: Op) -> ScanProgram | None:
    """The program, where an operator has scans and elementwise math, and nothing else."""
    scans = scans_alone(op)
    if not scans or any(map(is_order, scans.values())):
        return None
    directions = {(node.over, node.reverse) for node in scans.values()}
    refs = op.refs
    chained = any(scans.keys() & reached(refs, refs[name], ()) for name in scans)
    if len(directions) > 1 or chained:
        return None
    ((over, reverse),) = directions
    return ScanProgram(op, (over,), tuple(map(op.value, scans)), reverse)


def scans_alone(op: Op) -> dict[str, Scan]:
    """The scans of an operator that has elementwise math beside them alone; none where a result lacks axes."""
    nodes = {value.name: value.node for value in op.values}
    scans = {name: node for name, node in nodes.items() if isinstance(node, Scan)}
    operands = (part for node in nodes.values() for part in (children(node) if isinstance(node, Scan) else (node,)))
    kinds = frozenset[type]().union(*(part.kinds for part in operands))
    every = {axis for node in nodes.values() for axis in node.axes}
    is_alone = kinds.isdisjoint((Reduce, Scan, ScatterSum, Take))
    return scans if is_alone and all({*result.axes} == every for result in op.results) else {}
