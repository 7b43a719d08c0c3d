"""The conditions on params, decided at compile time, under which each value of an operator is needed.

Values that only one side of `a if flag else b` needs are computed, saved and refused for that side alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from ..lang.ir import ALWAYS, BOOL, Call, Choose, Load, Node, Op, Path, Ref, Value, children
from ..nest.conditions import implies, is_condition, shared_path, without_implied


@dataclass(frozen=True)
class Choices:
    """The paths of an operator on which values and inputs are needed; any of its paths suffices."""

    op: Op
    paths: dict[str, tuple[Path, ...]] = field(init=False)  # of the values

    def __post_init__(self) -> None:
        found: dict[str, list[Path]] = {}
        for result in self.op.results:
            for name in _names(result.node, Ref):
                found.setdefault(name, []).extend(result.paths)
        for value in reversed(self.op.values):
            # A value without references is summed over rows, in addition to what is stored.
            mine = found[value.name] = simplified(found.get(value.name, [*ALWAYS]))
            for name, path in _uses(value.node, Ref):
                found.setdefault(name, []).extend(both for way in mine if (both := joined(way, path)) is not None)
        object.__setattr__(self, "paths", {name: tuple(paths) for name, paths in found.items()})

    def of(self, *names: str) -> Path:
        """The condition under which any of some values is needed."""
        return condition(simplified([path for name in names for path in self.paths.get(name, ALWAYS)]))

    def is_needed(self, name: str) -> bool:
        """Whether a value is needed at all: not if it only has paths with contradicting conditions."""
        return bool(self.paths.get(name, ALWAYS))

    def reading(self, name: str, values: Iterable[Value]) -> Path:
        """The condition under which some values read an input."""
        return condition(self.reading_paths(name, values))

    def reading_paths(self, name: str, values: Iterable[Value], gathered: bool = False) -> tuple[Path, ...]:
        """The paths on which some values read an input; with `gathered`, also at computed positions."""
        found = [
            both
            for value in values
            if name in value.node.reads
            for load, path in _uses(value.node, Load, gathered=gathered)
            if load == name
            for way in self.paths.get(value.name, ALWAYS)
            if (both := joined(way, path)) is not None
        ]
        return tuple(simplified(found))

    def same_paths(self, one: Value, other: Value) -> bool:
        """Whether two values are needed under the same conditions."""
        return self.of(one.name) == self.of(other.name)


def _uses(
    node: Node, kind: type[Ref] | type[Load], path: Path = (), gathered: bool = False
) -> Iterator[tuple[str, Path]]:
    """The names in nodes of some kind inside a node, each with the path to it."""
    if isinstance(node, kind) and (gathered or not getattr(node, "at", ())):
        yield node.name, path
    if isinstance(node, Choose) and is_condition(node.condition):
        for side, holds in ((node.then, True), (node.other, False)):
            inner = joined(path, ((node.condition, holds),))
            if inner is not None:
                yield from _uses(side, kind, inner, gathered)
        return
    for child in children(node):
        yield from _uses(child, kind, path, gathered)


def _names(node: Node, kind: type[Ref] | type[Load]) -> list[str]:
    return [name for name, _ in _uses(node, kind)]


def joined(path: Path, more: Path) -> Path | None:
    """Both paths as one; None if they contradict each other."""
    for test, holds in more:
        if (test, not holds) in path:
            return None
        path = path if (test, holds) in path else (*path, (test, holds))
    return path


def simplified(paths: Sequence[Path]) -> list[Path]:
    """The paths without those that others cover; pairs that differ only in whether a condition holds become one."""
    left = list({frozenset(path): path for path in reversed(paths)}.values())[::-1]
    left = [path for n, path in enumerate(left) if not any(_covers(other, path, m < n) for m, other in enumerate(left))]
    for one, other in product(left, left):
        opposite = {(test, not holds) for test, holds in one}
        if len(one) == 1 and implies(tuple(opposite), other):  # Where the one is not taken, the other is.
            return [()]
        if len(one) == 1 and opposite < set(other):  # "a, or b where not a" is "a, or b".
            shorter = tuple(literal for literal in other if literal not in opposite)
            return simplified([shorter if path is other else path for path in left])
        if (shared := _either_way(one, other)) is not None:
            return simplified([shared if path is one else path for path in left if path is not other])
    return left


def _either_way(one: Path, other: Path) -> Path | None:
    """The common conditions of two paths that differ only in whether one condition holds; None for other pairs."""
    different = [test for test, _ in set(one) ^ set(other)]
    if len(different) != 2 or len(one) != len(other) or different[0] != different[1]:
        return None
    return tuple(literal for literal in one if literal in other)


def _covers(path: Path, other: Path, is_before: bool) -> bool:
    """Whether a path is taken wherever another is; of two equivalent paths, the shorter or first covers the other."""
    first = (len(path), not is_before) < (len(other), is_before)
    return path != other and implies(other, path) and (first or not implies(path, other))


def condition(paths: Sequence[Path]) -> Path:
    """Some paths as one: their common prefix, and then any of the rest."""
    if len(paths) < 2:
        return paths[0] if paths else ()
    shared = shared_path(paths)
    rest = [_all(path[len(shared) :]) for path in paths]
    return (*shared, (_chain("logical_or", rest), True))


def _all(path: Path) -> Node:
    return _chain(
        "logical_and",
        [test if holds else Call("logical_not", (test,), (), BOOL) for test, holds in without_implied(path)],
    )


def _chain(function: str, nodes: list[Node]) -> Node:
    first, *rest = nodes
    for node in rest:
        first = Call(function, (first, node), (), BOOL)
    return first
