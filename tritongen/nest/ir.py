"""The statements of kernels: where a program is along rows and columns, and what it does there.

`templates/triton.jinja` has a macro for each kind. What computes, loads or stores is a `Line`; no text has an
indentation, since loops and branches are statements that have others in them.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, ClassVar

from ..lang.ir import Node, Path
from ..lang.trees import walk
from .conditions import condition_text, shared_path

Nest = tuple[Any, ...]  # statements in order


class Statement:
    """What stands in a nest."""

    __slots__ = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The names whose values it takes, each as often as it does."""
        return ()

    @property
    def stores(self) -> tuple[str, ...]:
        """The names that it gives values, or others than they had."""
        return ()

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self.stores, *self.reads))


@dataclass(frozen=True, slots=True)
class Line(Statement):
    """A line of a kernel, with the comment that goes above it.

    It stands where its `path` is taken: see `nested`. The comment goes above that many of the last
    conditions.
    """

    text: str
    comment: str = ""
    path: Path = ()
    above: int = 0

    @property
    def assigned(self) -> str:
        """The name that it gives a value, if it is an assignment to one."""
        targets = self.targets
        return targets[0] if len(targets) == 1 else ""

    @property
    def targets(self) -> tuple[str, ...]:
        """The names that it gives values."""
        return self.stores if isinstance(tree_of(self.text), ast.Assign) else ()

    @property
    def is_pure(self) -> bool:
        """Whether it does nothing but give names values, without a call."""
        tree = tree_of(self.text)
        return isinstance(tree, ast.Assign) and not any(isinstance(node, ast.Call) for node in walk(tree))

    @property
    def reads(self) -> tuple[str, ...]:
        return _names(self.text)[0]

    @property
    def stores(self) -> tuple[str, ...]:
        return _names(self.text)[1]


@functools.cache
def tree_of(text: str) -> ast.stmt:
    """A line that nobody changes."""
    (tree,) = ast.parse(text).body
    return tree


@functools.cache
def _names(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names that a line reads, and those that it stores."""
    tree = tree_of(text)
    every = [node for node in walk(tree) if isinstance(node, ast.Name)]
    read, stored = (tuple(node.id for node in every if isinstance(node.ctx, kind)) for kind in (ast.Load, ast.Store))
    return read + stored * isinstance(tree, ast.AugAssign), stored


def spelled(tree: ast.stmt) -> str:
    """The text of a line; around values that are unpacked, `ast.unparse` puts parentheses."""
    match tree:
        case ast.Assign(targets=[target], value=ast.Tuple(elts=[_, *_, _] as values)):
            return f"{ast.unparse(target).strip('()')} = {', '.join(map(ast.unparse, values))}"
    return ast.unparse(tree)


@dataclass(frozen=True, slots=True)
class Branch(Line):
    """What is done where the text holds, a test, and what is done where it does not."""

    body: Nest = field(kw_only=True)
    other: Nest = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True)
class For(Line):
    """A loop whose index goes along the text, a range."""

    index: str = field(kw_only=True)
    body: Nest = field(kw_only=True)

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.index,)


@dataclass(frozen=True, slots=True)
class Given(Line):
    """A mask, which goes where nothing reads it."""

    is_pure = True


@dataclass(frozen=True, slots=True)
class Positions(Given):
    """Gives a name the positions of a tile along one dim: `block` of them, from the text on. `lanes` is how they lie in
    the tile; positions in INDEX are `wide`.
    """

    name: str = field(kw_only=True)
    block: str = field(kw_only=True)
    lanes: str = field(default="", kw_only=True)
    wide: bool = field(default=False, kw_only=True)

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (*_names(self.text)[0], *_names(self.block)[0], *(("INDEX",) if self.wide else ()))

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.name,)


class Plain(Statement):
    """It stands under no condition but that of the branch that it is in."""

    path: ClassVar[tuple[()]] = ()
    comment: str = ""


@dataclass(frozen=True)
class Blank(Plain):
    """An empty line."""


@dataclass(frozen=True)
class Advance(Plain):
    """Moves a pointer, one step after another, by positions times strides; where it is not None if it is optional."""

    pointer: str
    steps: tuple[tuple[tuple[str, str], ...], ...]
    is_optional: bool

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.pointer, *(name for terms in self.steps for term in terms for name in term if name))

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.pointer,)


@dataclass(frozen=True)
class Run(Plain):
    """Runs a device function of the module on elements: on those of a tile, or of a block of positions `of` elements,
    which needs no mask where it is full.
    """

    function: str
    pointers: tuple[str, ...]
    others: tuple[str, ...]
    of: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.pointers, *((self.of, "start", "n", "BLOCK") if self.of else ("tile_mask",)), *self.others)


BLANK = Blank()


def statements_of(nest: Iterable[Any]) -> Iterator[Any]:
    """The statements of a nest in order, what has others in it before those."""
    for one in nest:
        yield one
        for inside in ("body", "other"):
            yield from statements_of(getattr(one, inside, ()))


def lines_of(nest: Iterable[Any]) -> Iterator[Line]:
    return (one for one in statements_of(nest) if isinstance(one, Line))


def with_text(lines: Iterable[Any], spelled: Callable[[str], str]) -> tuple[Any, ...]:
    """Lines, with what their texts become."""
    return tuple(
        replace(
            one,
            text=spelled(one.text),
            **{part: with_text(getattr(one, part), spelled) for part in ("body", "other") if hasattr(one, part)},
        )
        for one in lines
    )


def names_of(nest: Iterable[Any]) -> set[str]:
    """The names in a nest."""
    return set[str]().union(*(one.names for one in statements_of(nest)))


def without_unread(lines: Iterable[Line], names: set[str]) -> list[Line]:
    """Some lines without those that give names values which neither lines behind them read nor `names` has, to which
    the names of what is left are added.
    """
    found: list[Line] = []
    for line in reversed([*lines]):
        if not line.targets or not names.isdisjoint(line.targets):
            found.insert(0, line)
            names |= names_of([line])
    return found


def without_dead_code(nest: Nest) -> Nest:
    """A nest without statements that give names values which no other reads: positions, masks, and lines that call
    nothing.
    """
    lines = [*lines_of(nest)]
    read = set[str]().union(*({*line.reads}.difference(line.targets) for line in lines))
    unread = {line for line in lines if line.is_pure and read.isdisjoint(line.targets)}
    return without_dead_code(_without(nest, unread)) if unread else nest


def needed_by(lines: Iterable[Any], given: Iterable[Line]) -> Nest:
    """Those of some positions, masks and other lines that give names values which lines read."""
    return tuple(without_unread(given, names_of(lines)))


def _without(nest: Nest, lines: Container[Any]) -> Nest:
    inside = ("body", "other")
    left = ((one, {part: _without(getattr(one, part), lines) for part in inside if hasattr(one, part)}) for one in nest)
    return tuple(replace(one, **changes) if changes else one for one, changes in left if one not in lines)


def under(path: Path, lines: Iterable[Line]) -> list[Line]:
    """The lines where a path is taken."""
    return [replace(line, path=(*path, *line.path)) for line in lines]


def nested(lines: Iterable[Any]) -> Nest:
    """Lines in the branches of their conditions; neighbours under the same one share it, and what holds otherwise
    follows in its `else`.
    """
    groups = ((test, [*some]) for test, some in groupby(lines, lambda line: line.path[0][0] if line.path else None))
    return tuple(one for test, some in groups for one in (some if test is None else [_branch(test, some)]))


def _branch(test: Node, lines: list[Line]) -> Branch:
    """Lines that all depend on a condition."""
    tops = [bool(line.comment) and line.above == len(line.path) for line in lines]
    said = "; ".join(dict.fromkeys(line.comment for line, top in zip(lines, tops, strict=True) if top))
    lines = [replace(line, comment="", above=0) if top else line for line, top in zip(lines, tops, strict=True)]
    if path := shared_path([line.path for line in lines]):
        rest = nested(replace(line, path=line.path[len(path) :]) for line in lines)
        return Branch(condition_text(path), said, body=rest)
    then, other = (
        nested(replace(line, path=line.path[1:]) for line in lines if line.path[0][1] == holds)
        for holds in (True, False)
    )
    return Branch(condition_text(((test, True),)), said, body=then, other=other)
