"""Lays out a nest in lines: masks with one reader are inlined, and operands that make a line too long get names.

Addresses have names as in Triton's tutorials, `x_ptrs` for a block of pointers, and masks `x_mask`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from ..lang.names import shown
from .ir import Accumulate, Branch, Do, Given, Let, Line, Nest, names_of, statements_of
from .values import Expr

# Functions whose first argument is an address.
ACCESSES = frozenset("tl.load tl.store tl.atomic_add read_once read_again".split())
_MASKS = frozenset(("row_mask", "col_mask"))
_INDENT = 4
SHORT = (Let, Given, Accumulate, Do)  # statements of one line
Scope = tuple[int, ...]  # the blocks around a statement


def laid_out(nest: Nest, width: int, margin: int, known: Iterable[str] = ()) -> Nest:
    """Lays out a nest, indented by `margin`, in a kernel that also has the names `known`."""
    nest = _Masks(nest, width).inside(nest, margin)
    return _Names({*names_of(nest), *known}, width).inside(nest, margin, ())


def _blocks(one: Line, margin: int) -> Iterator[tuple[str, int]]:
    """The nests in a statement, and their margins."""
    for name in ("body", "other"):
        if inner := getattr(one, name, ()):
            is_elif = name == "other" and len(inner) == 1 and isinstance(inner[0], Branch) and not inner[0].comment
            yield name, margin + (0 if is_elif else _INDENT)


def _fits(line: Line, margin: int, width: int) -> bool:
    return margin + len(shown(line.text)) <= width


class _Masks:
    """Inlines masks where they are read."""

    def __init__(self, nest: Nest, width: int) -> None:
        every = [*statements_of(nest)]
        self.reads = Counter(name for one in every for name in one.reads)
        self.given = Counter(name for one in every for name in one.stores)
        self.width = width

    def inside(self, nest: Nest, margin: int) -> Nest:
        found = [
            replace(one, **{block: self.inside(getattr(one, block), inner) for block, inner in _blocks(one, margin)})
            for one in nest
        ]
        for place in reversed(range(len(found))):
            mask = found[place]
            name = mask.assigned if type(mask) is Given else ""
            at = _single_read(mask, found, place) if name in _MASKS and self.reads[name] <= self.given[name] else None
            if at is not None and _fits(line := _with_mask(found[at], mask), margin, self.width):
                found[at] = line
                del found[place]
        return tuple(found)


def _single_read(mask: Given, block: Sequence[Line], given: int) -> int | None:
    """The place of the only reader of a mask before its next assignment, if nothing that the mask reads changes."""
    found: list[int] = []
    is_changed = False
    for place, one in enumerate(block[given + 1 :], given + 1):
        inside = [*statements_of([one])]
        times = [name for inner in inside for name in inner.reads].count(mask.assigned)
        if times and (is_changed or type(one) not in SHORT):
            return None
        found += [place] * times
        stored = {name for inner in inside for name in inner.stores}
        if mask.assigned in stored:
            break
        is_changed = is_changed or not mask.names.isdisjoint(stored)
    return found[0] if len(found) == 1 else None


def _with_mask(line: Line, mask: Given) -> Line:
    return line.mapped(lambda value: value.with_names({mask.name: mask.value}))


class _Names:
    """Gives names to addresses and masks that make a load or store longer than a line."""

    def __init__(self, names: set[str], width: int) -> None:
        self.names, self.width = names, width
        self.blocks = count()
        self.made: dict[str, tuple[Expr, Scope]] = {}  # the value of each name, and its scope

    def inside(self, nest: Nest, margin: int, scope: Scope) -> Nest:
        found: list[Any] = []
        for one in nest:
            found += self.short(one, margin, scope) if type(one) in SHORT else [one]
            blocks = {
                name: self.inside(getattr(one, name), inner, (*scope, next(self.blocks)))
                for name, inner in _blocks(one, margin)
            }
            found[-1] = replace(found[-1], **blocks)
        return tuple(found)

    def short(self, line: Line, margin: int, scope: Scope) -> list[Line]:
        """A line after assignments that name its long operands; only the line if it fits, or does not fit even then."""
        if _fits(line, margin, self.width):
            return [line]
        for named in _nameable(line):
            short = replace(_with_names(line, named), comment="")
            values = {name: Expr(operand) for name, operand in named.items()}
            if _fits(short, margin, self.width) and all(self.is_free(*one, scope) for one in values.items()):
                self.made |= {name: (value, scope) for name, value in values.items()}
                first, *others = (Let(name, value) for name, value in values.items())
                return [replace(first, comment=line.comment), *others, short]
        return [line]

    def is_free(self, name: str, value: Expr, scope: Scope) -> bool:
        """Whether a name is new, or has this value in a block not around this one: in loops Triton fixes its type."""
        if name not in self.made:
            return name not in self.names
        same, other = self.made[name]
        return value == same and scope[: len(other)] != other


def _nameable(line: Line) -> Iterator[dict[str, ast.expr]]:
    """Candidates of named operands for a statement of one access: its address, then its mask too."""
    calls = (node for value in line.values for node in _taken(value.tree))
    accesses = [node for node in calls if ast.unparse(node.func) in ACCESSES and node.args]
    if len(accesses) == 1:
        (access,) = accesses
        masks = [(word.value, "mask") for word in access.keywords if word.arg == "mask"]
        long = [(operand, end) for operand, end in [(access.args[0], "ptrs"), *masks] if isinstance(operand, ast.BinOp)]
        for base in _bases(line, access.args[0]):
            for last in range(1, len(long) + 1):
                yield {f"{base}_{end}": operand for operand, end in long[:last]}


def _with_names(line: Line, named: Mapping[str, ast.AST]) -> Line:
    names = {operand: ast.Name(name) for name, operand in named.items()}
    return line.mapped(lambda value: value.changed(names.get))


def _bases(line: Line, address: ast.expr) -> list[str]:
    """Prefixes of names in a statement: the tensor that it accesses, then the one name that it assigns."""
    while isinstance(address, ast.BinOp):
        address = address.left
    found = [re.sub(r"_(ptr|row|rows|head|cols)$", "", address.id)] if isinstance(address, ast.Name) else []
    return [*found, *line.stores] if len(line.stores) == 1 else found


def _taken(node: ast.AST) -> Iterator[ast.Call]:
    """The calls in an expression that are made unconditionally, outside of any `a if b else c`."""
    if isinstance(node, ast.Call):
        yield node
    if not isinstance(node, ast.IfExp):
        for child in ast.iter_child_nodes(node):
            yield from _taken(child)
