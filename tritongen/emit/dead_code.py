"""Removes assignments that are never read from the functions of a module that templates print."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from ..lang.trees import parsed_module, walk


def without_dead_code(text: str) -> str:
    """A module without assignments that nothing reads; of what is unpacked beside what is read, `x` becomes `_x`.

    What is computed by a call stays, since it may refuse its arguments. Every statement stands on lines of its own.
    """
    lines = text.encode().split(b"\n")  # `ast` counts columns in bytes.
    edits = [edit for function in _functions(parsed_module(text)) for edit in _edits(function)]
    for node in sorted(edits, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        line = lines[node.lineno - 1]
        if isinstance(node, ast.Name):
            lines[node.lineno - 1] = line[: node.col_offset] + b"_" + line[node.col_offset :]
        else:
            del lines[node.lineno - 1 : node.end_lineno]
    return b"\n".join(lines).decode()


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The functions and methods of a module."""
    for statement in tree.body:
        inside = statement.body if isinstance(statement, ast.ClassDef) else [statement]
        yield from (node for node in inside if isinstance(node, ast.FunctionDef))


def _edits(function: ast.FunctionDef) -> list[ast.Assign | ast.Name]:
    """The assignments of a function that are left out, and the names that get an underscore."""
    reads = _reads(function)
    left = [node for block in _blocks(function) for node in _plain(block)]
    own = {node: _reads(node) for node in left}
    dead: list[ast.Assign] = []
    while found := [node for node in left if all(reads[name.id] <= own[node][name.id] for name in _targets(node))]:
        for node in found:
            reads -= own[node]
        dead += found
        left = [node for node in left if node not in found]
    unread = [name for node in left for name in _targets(node) if not reads[name.id] and name.id[0] != "_"]
    return [*dead, *unread]


def _reads(tree: ast.AST) -> Counter[str]:
    """How often each name is read."""
    return Counter(node.id for node in walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))


def _targets(node: ast.Assign) -> list[ast.Name]:
    return [name for target in node.targets for name in walk(target) if isinstance(name, ast.Name)]


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of a statement, with those inside them."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if isinstance(block, list):
            yield block
            for statement in block:
                yield from _blocks(statement)
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield from _blocks(part)


def _may_refuse(node: ast.AST) -> bool:
    """Whether it is a call of anything but functions of scalars."""
    function = ast.unparse(node.func) if isinstance(node, ast.Call) else "abs"
    return function not in ("abs", "float") and not function.startswith("scalars.")


def _plain(block: list[ast.stmt]) -> list[ast.Assign]:
    """The assignments of a block that only give names to values; none where no other statement would be left."""
    stored = (ast.Name, ast.Tuple, ast.Starred)
    found = []
    for node in block:
        if isinstance(node, ast.Assign) and not any(_may_refuse(part) for part in walk(node.value)):
            names = [part for target in node.targets for part in walk(target)]
            found += [node] if all(isinstance(part, stored) for part in names) else []
    return found if len(found) < len(block) else []
