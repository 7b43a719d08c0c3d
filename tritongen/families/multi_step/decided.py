"""Params decide on the host which steps run: none is launched for a side of a choice that is not chosen."""

from __future__ import annotations

from collections.abc import Sequence

from ...lang.ir import ALWAYS, Load, Op, Path
from ...lowering.choices import Choices, joined, simplified
from ...nest.conditions import implies
from ..family import Step

Paths = dict[str, tuple[Path, ...]]


def paths_of(steps: Sequence[Step], entire: Op) -> Paths:
    """For each result of a step, the paths on which other steps read it or the operator returns it; and for each input
    of the operator that is None where params do not choose its readers, the paths on which it is present.
    """
    choices = Choices(entire)
    given = {name: choices.reading_paths(name, entire.values) for name in entire.chosen}
    found: dict[str, list[Path]] = {result.output.name: [] for step in steps for result in step.op.results}
    found |= {result.output.name: [*(result.paths if result.when else ALWAYS)] for result in entire.results}
    for step in reversed(steps):
        on_paths = [path for result in step.op.results for path in found[result.output.name] or ALWAYS]
        read = {tensor.name: _reading(step, tensor.name) for tensor in step.op.inputs}
        stored = read.keys() & found.keys()
        others = [one for one in step.op.inputs if one.name not in stored | given.keys() and one.default is None]
        if not others and all(read[name] != ALWAYS for name in stored):  # Nothing would determine its lengths.
            read |= dict.fromkeys(stored, ALWAYS)
        for name in stored:
            both = [joined(way, path) for way in simplified(on_paths) for path in read[name]]
            found[name] += [path for path in both if path is not None]
    return {name: tuple(simplified(paths)) or ALWAYS for name, paths in found.items()} | given


def running(step: Step, paths: Paths) -> list[Path]:
    """The paths on which a step runs: those on which any of its results is needed."""
    return simplified([path for result in step.op.results for path in paths[result.output.name]])


def may_be_absent(step: Step, paths: Paths) -> frozenset[str]:
    """The inputs of a step that may be None when it runs."""
    on_paths = running(step, paths)
    return frozenset(one.name for one in step.op.inputs if not _is_on(on_paths, paths.get(one.name, ALWAYS)))


def read_unchosen(steps: Sequence[Step], entire: Op) -> frozenset[str]:
    """The inputs that are None where params do not choose their readers, but that a step reads nevertheless, because it
    runs to determine lengths for others.
    """
    paths, found = paths_of(steps, entire) if entire.chosen else {}, set[str]()
    for step in steps:
        for name in entire.chosen & {tensor.name for tensor in step.op.inputs}:
            both = [joined(way, path) for way in running(step, paths) for path in _reading(step, name)]
            if not _is_on([way for way in both if way is not None], paths[name]):
                found.add(name)
    return frozenset(found)


def _is_on(on_paths: Sequence[Path], others: Sequence[Path]) -> bool:
    """Whether each of the paths is one of `others`, or an extension of one."""
    return all(any(implies(way, path) for path in others) for way in on_paths)


def _reading(step: Step, name: str) -> tuple[Path, ...]:
    """The paths on which a step reads an input: all of them if it is gathered."""
    gathered = any(isinstance(node, Load) and node.name == name and node.at for node in step.op.nodes)
    return ALWAYS if gathered else Choices(step.op).reading_paths(name, step.op.values)
