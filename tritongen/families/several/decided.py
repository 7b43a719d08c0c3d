"""Which steps run is decided by params, on the host: none is launched for a side that is not chosen."""

from __future__ import annotations

from collections.abc import Sequence

from ...lang.ir import ALWAYS, Load, Path, walk
from ...lowering.choices import Choices, joined, simplified
from ..family import Step

Paths = dict[str, tuple[Path, ...]]


def paths_of(steps: Sequence[Step]) -> Paths:
    """Of what steps compute, the paths on which it is needed: always, where no other step reads it."""
    found: dict[str, list[Path]] = {result.output.name: [] for step in steps for result in step.op.results}
    for step in reversed(steps):
        ways = [path for result in step.op.results for path in found[result.output.name] or ALWAYS]
        for tensor in step.op.inputs:
            if tensor.name in found:
                both = [joined(way, path) for way in simplified(ways) for path in _reading(step, tensor.name)]
                found[tensor.name] += [path for path in both if path is not None]
    return {name: tuple(simplified(paths)) or ALWAYS for name, paths in found.items()}


def _reading(step: Step, name: str) -> tuple[Path, ...]:
    """The paths on which a step reads an input: whatever the params are, where it is gathered."""
    nodes = [node for value in step.op.values for node in walk(value.node)]
    gathered = any(isinstance(node, Load) and node.name == name and node.at for node in nodes)
    return ALWAYS if gathered else Choices(step.op).reading_paths(name, step.op.values)
