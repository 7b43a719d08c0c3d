"""The statements of kernels: the positions of a program along rows and columns, and its work there.

`templates/triton.jinja` has a macro for each kind. Statements have values, which are trees, and no indentation: loops
and branches are statements that contain others.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, ClassVar, Self

from ..lang.ir import Node, Path
from .conditions import condition_tree, shared_path
from .values import Expr, expr

Nest = tuple[Any, ...]  # statements in order
NOTHING = expr(())


class Statement:
    """A statement of a nest."""

    __slots__ = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The names that it reads, each once per use."""
        return ()

    @property
    def stores(self) -> tuple[str, ...]:
        """The names that it assigns or updates."""
        return ()

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self.stores, *self.reads))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line(Statement):
    """A statement of values, with the comment above it.

    It runs where its `path` is taken: see `nested`. The comment goes above the last `above` conditions of the path.
    """

    comment: str = ""
    path: Path = ()
    above: int = 0
    operands: ClassVar[tuple[str, ...]] = ("value",)  # the fields that are values
    is_pure: ClassVar[bool] = False

    @property
    def values(self) -> tuple[Expr, ...]:
        return tuple(getattr(self, one) for one in self.operands)

    @property
    def text(self) -> str:
        return self.values[0].text

    @property
    def targets(self) -> tuple[str, ...]:
        """The names that it assigns."""
        return ()

    @property
    def assigned(self) -> str:
        """The name that it assigns, if it assigns exactly one; else ""."""
        return self.targets[0] if len(self.targets) == 1 else ""

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(name for one in self.values for name in one.names)

    def mapped(self, change: Callable[[Expr], Expr]) -> Self:
        """The statement with `change` applied to its values, and to values of statements in it."""
        inside: dict[str, Any] = {
            name: with_values(getattr(self, name), change) for name in ("body", "other") if hasattr(self, name)
        }
        own: dict[str, Any] = {one: change(getattr(self, one)) for one in self.operands}
        return replace(self, **own, **inside)


@dataclass(frozen=True, slots=True)
class Let(Line):
    """Assigns a value to a name, or the elements of a tuple to several, as in `x, y`."""

    name: str
    value: Expr

    @property
    def text(self) -> str:
        return f"{self.name} = {self.given}"

    @property
    def given(self) -> str:
        return self.value.bare

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(self.name.split(", "))

    @property
    def stores(self) -> tuple[str, ...]:
        return self.targets

    @property
    def is_pure(self) -> bool:  # type: ignore[override]
        """Whether it has no side effects: a call may."""
        return not self.value.calls


@dataclass(frozen=True, slots=True)
class Accumulate(Line):
    """Updates a name with a value, by an operator: `x += y`."""

    name: str
    operator: str
    value: Expr

    @property
    def text(self) -> str:
        return f"{self.name} {self.operator}= {self.value}"

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.value.names, self.name)

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.name,)


@dataclass(frozen=True, slots=True)
class Do(Line):
    """Makes a call for its effect, such as a store."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Return(Line):
    """Ends the program, or a function that has a value."""

    value: Expr = NOTHING

    @property
    def text(self) -> str:
        return f"return {self.value.bare}".rstrip()


@dataclass(frozen=True, slots=True)
class Branch(Line):
    """An `if`: `body` where `test` holds, else `other`."""

    test: Expr
    body: Nest
    other: Nest = ()
    operands = ("test",)


@dataclass(frozen=True, slots=True)
class For(Line):
    """A loop of `index` over the range `span`."""

    span: Expr
    index: str
    body: Nest
    operands = ("span",)

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.index,)


@dataclass(frozen=True, slots=True)
class Given(Let):
    """An assignment that is removed if nothing reads it, such as a mask."""

    is_pure = True


@dataclass(frozen=True, slots=True)
class Constant(Given):
    """A compile-time constant of Gluon, such as a layout."""


@dataclass(frozen=True, slots=True)
class Positions(Line):
    """Assigns a name the `block` positions of a tile along one dim, from `start` on. `lanes` is the index that
    broadcasts them in the tile, as `[:, None]`; `wide` positions have the INDEX type.
    """

    start: Expr
    name: str
    block: Expr | str
    lanes: str = ""
    wide: bool = False
    operands = ("start",)
    is_pure = True

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.start.names, *expr(self.block).names, *(("INDEX",) if self.wide else ()))

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.name,)


class Plain(Statement):
    """A statement without a path: its only condition is the branch that it is in."""

    path: ClassVar[tuple[()]] = ()
    comment: str = ""


@dataclass(frozen=True)
class Blank(Plain):
    """An empty line."""


@dataclass(frozen=True)
class Advance(Plain):
    """Advances a pointer by positions times strides, step by step; an optional pointer only if it is not None."""

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
    """Calls a device function of the module on the elements of a tile, or of a block at the positions named `of`, which
    needs no mask if it is full.
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
    """The statements of a nest in order, loops and branches before the statements in them."""
    for one in nest:
        yield one
        for inside in ("body", "other"):
            yield from statements_of(getattr(one, inside, ()))


def lines_of(nest: Iterable[Any]) -> Iterator[Line]:
    return (one for one in statements_of(nest) if isinstance(one, Line))


def with_values(nest: Nest, change: Callable[[Expr], Expr]) -> Nest:
    """A nest with `change` applied to its values."""
    return tuple(one.mapped(change) if isinstance(one, Line) else one for one in nest)


def names_of(nest: Iterable[Any]) -> set[str]:
    return set[str]().union(*(one.names for one in statements_of(nest)))


def without_unread(lines: Iterable[Line], names: set[str]) -> list[Line]:
    """`lines` without assignments to names that neither later lines nor `names` need. The names of the remaining lines
    are added to `names`.
    """
    found: list[Line] = []
    for line in reversed([*lines]):
        if not line.targets or not names.isdisjoint(line.targets):
            found.insert(0, line)
            names |= names_of([line])
    return found


def free_names(nest: Iterable[Any]) -> set[str]:
    """The names that a nest reads before it assigns them."""
    free, known = set[str](), set[str]()
    for one in statements_of(nest):
        free |= {*one.reads} - known
        known |= {*one.stores}
    return free


def without_dead_code(nest: Nest) -> Nest:
    """A nest without assignments that no other statement reads: positions, masks, and lines without calls."""
    lines = [*lines_of(nest)]
    read = set[str]().union(*({*line.reads} - {line.assigned} for line in lines))
    unread = {line for line in lines if line.is_pure and read.isdisjoint(line.targets)}
    return without_dead_code(_without(nest, unread)) if unread else nest


def needed_by(lines: Iterable[Any], given: Iterable[Line]) -> Nest:
    """The assignments in `given` (positions, masks and others) that `lines` need."""
    return tuple(without_unread(given, names_of(lines)))


def _without(nest: Nest, lines: Container[Any]) -> Nest:
    inside = ("body", "other")
    left = ((one, {name: _without(getattr(one, name), lines) for name in inside if hasattr(one, name)}) for one in nest)
    return tuple(replace(one, **changes) if changes else one for one, changes in left if one not in lines)


def said(comment: str, lines: Iterable[Line]) -> list[Line]:
    """Some lines with a comment above the first."""
    first, *others = lines
    return [replace(first, comment=comment), *others]


def under(path: Path, lines: Iterable[Line]) -> list[Line]:
    """`lines` where `path` is taken, in addition to their own paths."""
    return [replace(line, path=(*path, *line.path)) for line in lines]


def nested(lines: Iterable[Any]) -> Nest:
    """Lines in branches by the conditions of their paths: neighbours with the same condition share a branch, whose
    `else` has those with its opposite.
    """
    groups = ((test, [*some]) for test, some in groupby(lines, lambda line: line.path[0][0] if line.path else None))
    return tuple(one for test, some in groups for one in (some if test is None else [_branch(test, some)]))


def _branch(test: Node, lines: list[Line]) -> Branch:
    """The branch for lines whose paths all begin with `test` or its opposite."""
    tops = [bool(line.comment) and line.above == len(line.path) for line in lines]
    said = "; ".join(dict.fromkeys(line.comment for line, top in zip(lines, tops, strict=True) if top))
    lines = [replace(line, comment="", above=0) if top else line for line, top in zip(lines, tops, strict=True)]
    if path := shared_path([line.path for line in lines]):
        rest = nested(replace(line, path=line.path[len(path) :]) for line in lines)
        return Branch(Expr(condition_tree(path)), rest, comment=said)
    then, other = (
        nested(replace(line, path=line.path[1:]) for line in lines if line.path[0][1] == holds)
        for holds in (True, False)
    )
    return Branch(Expr(condition_tree(((test, True),))), then, other, comment=said)
