"""An operator that is a scan, as its family sees it."""

from __future__ import annotations

from dataclasses import dataclass

from ...lang.ir import Op, Reduce, Scan, ScatterSum, Take, Value
from ...passes.structure import Program, apart, reached


@dataclass(frozen=True, slots=True)
class ScanProgram(Program):
    """An operator whose `scans` all go along the same axis, in the same direction, none through another."""

    scans: tuple[Value, ...]

    @property
    def reverse(self) -> bool:
        return any(isinstance(value.node, Scan) and value.node.reverse for value in self.scans)


def recognise_scans(op: Op) -> ScanProgram | None:
    """The program, where an operator has scans and elementwise math, and nothing else."""
    nodes = {value.name: value.node for value in op.values}
    scans = {name: node for name, node in nodes.items() if isinstance(node, Scan)}
    others = frozenset[type]().union(*(node.kinds for name, node in nodes.items() if name not in scans))
    inner = frozenset[type]().union(*(part.kinds for node in scans.values() for part in (node.arg, node.decay) if part))
    if not scans or not (others | inner).isdisjoint((Reduce, Scan, ScatterSum, Take)):
        return None
    ways = {(node.over, node.reverse) for node in scans.values()}
    refs = op.refs
    chained = any(scans.keys() & reached(refs, refs[name], ()) for name in scans)
    every = {axis for node in nodes.values() for axis in node.axes}
    if len(ways) > 1 or chained or apart(op, set()) or any({*result.axes} != every for result in op.results):
        return None
    ((over, _),) = ways
    return ScanProgram(op, (over,), tuple(op.value(name) for name in scans))
