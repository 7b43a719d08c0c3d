"""Masks, and the dtype of computations, that one line alone reads: it says them itself, where it stays a line."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence

from ..lang.names import shown
from ..lang.trees import parsed_module, walk
from .dead_code import blocks

_NAMES = frozenset(("row_mask", "col_mask", "compute"))
_WIDTH = 88
Edit = tuple[ast.Assign, ast.Name, str]  # what gives the name, where that is read, and what stands there instead


def with_single_reads_in_place(text: str) -> str:
    """A module in which no name is given to a mask, or to the dtype of computations, that a single line reads.

    Every statement stands on lines of its own.
    """
    if all(f"{name} = " not in text for name in _NAMES):
        return text
    functions = [node for node in parsed_module(text).body if isinstance(node, ast.FunctionDef)]
    edits = {edit[1].lineno: edit for function in functions for edit in _edits(function)}  # one of each line
    if not edits:
        return text
    lines = text.encode().split(b"\n")  # `ast` counts columns in bytes.
    for _, read, value in edits.values():
        line = lines[read.lineno - 1]
        lines[read.lineno - 1] = line[: read.col_offset] + value.encode() + line[read.end_col_offset :]
    gone = {made.lineno - 1 for made, _, _ in edits.values()}
    return with_single_reads_in_place(b"\n".join(line for n, line in enumerate(lines) if n not in gone).decode())


def _edits(function: ast.FunctionDef) -> Iterator[Edit]:
    names = [node for node in walk(function) if isinstance(node, ast.Name) and node.id in _NAMES]
    counts = Counter((node.id, isinstance(node.ctx, ast.Load)) for node in names)
    for block in blocks(function):
        for place, made in enumerate(block):
            match made:
                case ast.Assign([ast.Name(name)], value) if 0 < counts[name, True] <= counts[name, False]:
                    read = _single_read(name, value, block[place + 1 :])
                    if read is not None and made.lineno == made.end_lineno:
                        statement, node = read
                        own = ast.unparse(value)
                        if isinstance(value, ast.Compare | ast.BinOp) and _is_operand(node, statement):
                            own = f"({own})"
                        if _fits(statement, node, own):
                            yield made, node, own


def _single_read(name: str, value: ast.expr, later: Sequence[ast.stmt]) -> tuple[ast.stmt, ast.Name] | None:
    """The one place where a name is read until it is given anew, if nothing that its value reads has changed there."""
    found: list[tuple[ast.stmt, ast.Name]] = []
    needed, changed = {node.id for node in walk(value) if isinstance(node, ast.Name)}, False
    for statement in later:
        nodes = [node for node in walk(statement) if isinstance(node, ast.Name)]
        stored = {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
        reads = [node for node in nodes if node.id == name and isinstance(node.ctx, ast.Load)]
        if reads and (changed or not isinstance(statement, ast.Assign | ast.Expr | ast.Return)):
            return None
        found += [(statement, node) for node in reads]
        if name in stored:
            break
        changed = changed or not needed.isdisjoint(stored)
    return found[0] if len(found) == 1 else None


def _is_operand(read: ast.Name, statement: ast.stmt) -> bool:
    operators = ast.BinOp | ast.BoolOp | ast.UnaryOp | ast.Compare | ast.Attribute | ast.Subscript
    return any(read in ast.iter_child_nodes(node) for node in walk(statement) if isinstance(node, operators))


def _fits(statement: ast.stmt, read: ast.Name, value: str) -> bool:
    """Whether the line, or the argument of a call that has many, is no longer than a line with it."""
    if statement.lineno != statement.end_lineno:
        return False
    more = len(value) - len(read.id)
    if read.id != "compute":
        return statement.col_offset + len(shown(ast.unparse(statement))) + more <= _WIDTH
    arguments = [node for node in walk(statement) if isinstance(node, ast.keyword) and read in walk(node.value)]
    return any(len(shown(f"{one.arg}={ast.unparse(one.value)},")) + more + 8 <= _WIDTH for one in arguments)
