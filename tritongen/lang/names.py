"""Hygiene, as for macros: names of a spec never collide with names that generated code introduces.

From the type check on, every name of a spec is marked, so that no name derived from it or used next to it can be the
same name: `x` is `ǂxǂ`, the pointer to it `ǂxǂ_ptr`, and an input that is called x_ptr `ǂx_ptrǂ`. Names that passes
create for values (`fresh`) are marked likewise: `ǂzǂ_meanǂ`, whose rows are `ǂzǂ_meanǂ_rows`. The marks are
letters to Python, so that marked text is parsed, searched and split as any other. `tritongen.emit.hygiene` removes
them from finished modules.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from itertools import chain, count
from typing import TypeVar

from ..diagnostics.report import Mistake, Mistakes
from ..spec.types import BATCH, Original, Peer, Spec, Statement
from .ir import Op

MARK = "ǂ"  # around a name of the spec: a caseless letter that specs cannot contain
PUBLIC_MARK = "ƻ"  # around a public name, which keeps its spelling even if the module has the same name
CODE = "ǁ"  # before a name in a string that is read as code
MARKS = MARK + PUBLIC_MARK + CODE
NAMED = re.compile(f"{MARK}([A-Za-z][A-Za-z0-9_]*){MARK}+")
PUBLIC = re.compile(f"{PUBLIC_MARK}([A-Za-z][A-Za-z0-9_]*){PUBLIC_MARK}")

# The fields of specs and operators that hold names; other strings in them, such as dtypes, stay unchanged.
_FIELDS = frozenset(
    "name names of otherwise axes axis over into at by_row sizes typical wrt save ranges smallest lengths drawn low"
    " high dtype".split()
)

T = TypeVar("T")


def shown(text: str) -> str:
    """The text without marks, for display."""
    return text.translate(_WITHOUT)


_WITHOUT = str.maketrans("", "", MARKS)


def public(text: str) -> str:
    """The text with names of the spec marked as public instead."""
    return NAMED.sub(rf"{PUBLIC_MARK}\1{PUBLIC_MARK}", text)


def in_string(name: str) -> str:
    """A name inside a string that Python or Triton reads as code."""
    return CODE + name


def marked(spec: Spec, op: Op) -> tuple[Spec, Op]:
    """A spec and its operator with all names marked, including names of axes and values.

    The name of the operator is marked as public.
    """
    names = [*(named.name for group in (op.inputs, op.params, op.values, spec.peers) for named in group), *op.axes]
    names += [name for peer in spec.peers for name, _ in peer.given]
    table: dict[str, str] = {}
    for name in dict.fromkeys(names):
        if name != BATCH:  # Names that differ only in case would collide where a name is lower-cased.
            same = sum(other.lower() == name.lower() for other in table)
            table[name] = f"{MARK}{name}{MARK * (1 + same)}"
    given = {*(one.name for one in op.inputs), *(one.name for one in op.params)}
    original = _original(spec.original, table, given) if spec.original else None
    op = replace(_renamed(op, table, set()), name=f"{PUBLIC_MARK}{op.name}{PUBLIC_MARK}")
    compute = tuple(Statement(table[s.name], _expression(s.expression, table)) for s in spec.compute)
    reference = _expression(spec.reference, table) if spec.reference else ""
    rest = _renamed(replace(spec, compute=(), peers=()), table, {"name"})
    peers = tuple(_peer(peer, table) for peer in spec.peers)
    return replace(rest, compute=compute, reference=reference, original=original, peers=peers), op


def _original(original: Original, table: Mapping[str, str], names: Container[str]) -> Original:
    from .reference import imported_names

    return replace(original, call=_expression(original.call, table), names=imported_names(original.call, names))


def _peer(peer: Peer, table: Mapping[str, str]) -> Peer:
    given = tuple((table[name], _expression(text, table)) for name, text in peer.given)
    return replace(peer, name=table[peer.name], torch=_expression(peer.torch, table), given=given)


def _renamed(value: T, table: Mapping[str, str], without: set[str]) -> T:
    """A dataclass with the names in it replaced by `table`, at any depth."""
    changes = {}
    for field in fields(value):  # type: ignore[arg-type]
        old = getattr(value, field.name)
        is_name = field.name in _FIELDS and field.name not in without
        changes[field.name] = _within(old, table, is_name)
    return replace(value, **changes)  # type: ignore[type-var]


def _within(value: object, table: Mapping[str, str], is_name: bool) -> object:
    if isinstance(value, str):
        return table.get(value, value) if is_name else value
    if isinstance(value, tuple | frozenset):
        return type(value)(_within(item, table, is_name) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return _renamed(value, table, set())
    return value


def _expression(text: str, table: Mapping[str, str]) -> str:
    """An expression with the names in it replaced, except functions and attributes of torch."""
    from .syntax import Text

    return ast.unparse(_Marking(table).visit(Text(text).parse()))


class _Marking(ast.NodeTransformer):
    def __init__(self, table: Mapping[str, str]) -> None:
        self.table = table

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.table.get(node.id, node.id))

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self.table.get(node.arg, node.arg))

    def visit_Call(self, node: ast.Call) -> ast.Call:
        function = node.func if isinstance(node.func, ast.Name) else self.visit(node.func)
        keywords = [ast.keyword(keyword.arg, self.visit(keyword.value)) for keyword in node.keywords]
        return ast.Call(function, [self.visit(arg) for arg in node.args], keywords)

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        is_torch = isinstance(node.value, ast.Name) and node.value.id == "torch"
        return ast.Attribute(node.value if is_torch else self.visit(node.value), node.attr)


@contextmanager
def in_spec_names() -> Iterator[None]:
    """Context in which mistakes found in marked text are raised with the names of the spec."""
    try:
        yield
    except Mistakes as found:
        raise Mistakes(*map(without_marks, found.mistakes)) from None


def without_marks(mistake: Mistake) -> Mistake:
    """A mistake with the names of the spec, without marks."""
    key = tuple(map(shown, mistake.key))
    return replace(mistake, message=shown(mistake.message), key=key, hint=shown(mistake.hint))


def unused(name: str, used: Container[str]) -> str:
    """The name, with underscores appended until it is not in `used`."""
    while name in used:
        name += "_"
    return name


def numbered(name: str, used: Container[str], end: str = "") -> str:
    """The name with `end`; if that is in `used`, with the first integer from 2 that makes it unique."""
    first = name if name.endswith(end) else f"{name}{end}"
    others = (f"{name}_{number}{end}" for number in count(2))
    return next(each for each in chain((first,), others) if each not in used)


def fresh(name: str, used: set[str]) -> str:
    """A new name for a generated value, numbered if it is in `used`, and added to `used`.

    Among marked names it ends in a mark, so that no name derived from another can be the same:
    `ǂzǂ_mean_rows` are the rows of z_mean, and `ǂzǂ_mean_rowsǂ` is a value.
    """
    is_marked = MARK in name or any(MARK in other for other in used)
    found = numbered(name, used, MARK if is_marked else "")
    used.add(found)
    return found
