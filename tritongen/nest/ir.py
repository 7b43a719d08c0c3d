"""The statements of kernels that are nests: how a program goes along rows and columns, and what it does there.

`templates/triton.jinja` has a macro for each kind. What computes, loads or stores is a `Line` of `lowering.lines`,
which may stand anywhere in a nest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

Nest = tuple[Any, ...]  # statements in order, lines among them


class Statement:
    """Of a nest; it stands under no condition but that of the branch that it is in."""

    path: ClassVar[tuple[()]] = ()


@dataclass(frozen=True)
class Walk(Statement):
    """Gives positions along rows, columns or both, and their masks; `of` is what the positions are called."""

    how: str
    of: str = "cols"


@dataclass(frozen=True)
class Loop(Statement):
    """A loop along rows, columns, or a window of so many elements, which has an index."""

    how: str
    body: Nest
    index: str = ""
    count: int = 0


@dataclass(frozen=True)
class Branch(Statement):
    """What is done where a condition holds, which a line asks for."""

    head: Any
    body: Nest


@dataclass(frozen=True)
class Advance(Statement):
    """Moves a pointer, one step after another, by positions times strides; where it is not None if it is optional."""

    pointer: str
    steps: tuple[tuple[tuple[str, str], ...], ...]
    is_optional: bool


@dataclass(frozen=True)
class Run(Statement):
    """Runs a device function of the module on elements: on those of a tile, or of a block of positions `of` elements,
    which needs no mask where it is full.
    """

    function: str
    pointers: tuple[str, ...]
    others: tuple[str, ...]
    of: str = ""


BLANK, ROWS = Walk("blank"), Walk("rows")


def lines_of(nest: Iterable[Any]) -> Iterator[Any]:
    """The lines of a nest, in order."""
    for one in nest:
        if isinstance(one, Loop | Branch):
            yield from [one.head] if isinstance(one, Branch) else []
            yield from lines_of(one.body)
        elif not isinstance(one, Statement):
            yield one
