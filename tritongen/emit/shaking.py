"""Modules cut down to the definitions that are reached from some names: how a tree gets a runtime of its own.

A name is reached if an operator reads it, or if the text of a definition that is reached does. What a definition reads
is decided by Python's own scopes. Where a module is read as a value, and not for an attribute, all of it is reached.
"""

from __future__ import annotations

import ast
import functools
import symtable
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..lang.trees import parsed_module
from .scoping import global_names

Name = tuple[str, str]  # a module, "runtime.launch", and a name that it defines or imports
EVERYTHING = "*"
_LENGTH = 88  # of lines, as black has them
# Triton's interpreter looks for this in the module of a device function, whether or not it is read there.
_LANGUAGE = "tl"


@dataclass(frozen=True)
class Import:
    """The target of an alias of an import: a module of ours, a name in one, or something foreign ("")."""

    module: str = ""
    name: str = ""


@dataclass(frozen=True, eq=False)
class Chunk:
    """A statement of a module, with the comments directly above it; or a comment that stands alone."""

    lines: tuple[str, ...]
    gap: int  # blank lines before it
    node: ast.stmt | None = None
    names: tuple[str, ...] = ()
    uses: frozenset[str] = frozenset()
    attributes: frozenset[Name] = frozenset()  # as in `launch.run`
    passed: frozenset[str] = frozenset()  # names that are read for themselves, and not for an attribute
    imports: tuple[ast.Import | ast.ImportFrom, ...] = ()  # of functions when they run

    @property
    def is_import(self) -> bool:
        return isinstance(self.node, ast.Import | ast.ImportFrom)

    @property
    def is_definition(self) -> bool:
        return isinstance(self.node, ast.FunctionDef | ast.ClassDef)

    @property
    def is_device_function(self) -> bool:
        return self.is_definition and ("triton", "jit") in self.attributes

    @property
    def is_exports(self) -> bool:
        return self.names == ("__all__",)


@dataclass(frozen=True)
class Module:
    name: str
    chunks: tuple[Chunk, ...]
    defined: Mapping[str, Chunk] = field(default_factory=dict)
    imported: Mapping[str, Import] = field(default_factory=dict)


class Library:
    """Modules that import one another, by their dotted names; a package is its `__init__`."""

    def __init__(self, texts: Mapping[str, str], packages: Iterable[str]) -> None:
        self._packages = frozenset(packages)
        self._names = frozenset(texts)
        self.modules = {name: self._module(name, text) for name, text in sorted(texts.items())}

    def reached(self, names: Iterable[Name]) -> frozenset[Name]:
        """The names, those that they need, and so on. Unknown names reach nothing."""
        found: set[Name] = set()
        left = [one for name in names for one in self._expanded(name)]
        while left:
            one = left.pop()
            module = self.modules.get(one[0])
            if one in found or module is None or not (one[1] in module.defined or one[1] in module.imported):
                continue
            found.add(one)
            unnamed = [chunk for chunk in module.chunks if chunk.node and not chunk.names and not chunk.is_import]
            for chunk in [*unnamed, *([module.defined[one[1]]] if one[1] in module.defined else [])]:
                left += self._read_by(module, chunk)
                if chunk.is_device_function and _LANGUAGE in module.imported:
                    left.append((module.name, _LANGUAGE))
            target = module.imported.get(one[1])
            if target is not None and target.name:
                left.append((target.module, target.name))
        return frozenset(found)

    def texts(self, reached: frozenset[Name]) -> Mapping[str, str]:
        """The text of each module that has something that is reached, and of the packages that these are in."""
        names_of: dict[str, set[str]] = {}
        for module, name in reached:
            names_of.setdefault(module, set()).add(name)
            package = module.rpartition(".")[0]
            if package:
                names_of.setdefault(package, set())
        return {name: _text(self.modules[name], names_of[name]) for name in sorted(names_of)}

    def _module(self, name: str, text: str) -> Module:
        chunks = chunks_of(text)
        defined = {own: chunk for chunk in chunks for own in chunk.names if not chunk.is_exports}
        imported = {
            own: target
            for chunk in chunks
            if isinstance(chunk.node, ast.Import | ast.ImportFrom)
            for own, target in self._targets(name, chunk.node)
        }
        return Module(name, chunks, defined, imported)

    def inner(self, module: str, chunk: Chunk) -> Iterator[tuple[str, Import]]:
        """The names and targets of imports inside of functions of a module."""
        return (found for one in chunk.imports for found in self._targets(module, one))

    def _targets(self, module: str, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Import]]:
        """The names that an import in a module binds, with their targets."""
        for alias in node.names:
            own = alias.asname or alias.name
            if isinstance(node, ast.Import):
                yield own if alias.asname else own.partition(".")[0], Import()
                continue
            package = module if module in self._packages else module.rpartition(".")[0]
            for _ in range(node.level - 1):
                package = package.rpartition(".")[0]
            source = ".".join(one for one in (package, node.module) if one) if node.level else ""
            inside = f"{source}.{alias.name}" if source else alias.name
            if node.level and inside in self._names:
                yield own, Import(inside)
            elif node.level and source in self._names:
                yield own, Import(source, alias.name)
            else:
                yield own, Import()

    def _expanded(self, name: Name) -> Iterable[Name]:
        if name[1] != EVERYTHING:
            return [name]
        module = self.modules.get(name[0])
        return [(name[0], own) for own in (*module.defined, *module.imported)] if module else []

    def _read_by(self, module: Module, chunk: Chunk) -> Iterator[Name]:
        for own in chunk.uses:
            yield module.name, own
        aliases = [(own, module.imported[own]) for own in chunk.uses if own in module.imported]
        for own, target in [*aliases, *self.inner(module.name, chunk)]:
            if target.name:
                yield target.module, target.name
            elif target.module:
                found = [name for base, name in chunk.attributes if base == own]
                for name in [*found, *([EVERYTHING] if own in chunk.passed else [])]:
                    yield from self._expanded((target.module, name))


def names_read(text: str, places: Mapping[str, str]) -> frozenset[Name]:
    """The names of ours that an emitted module reads; `places` has the names of our packages there, and those here.

    For `from .._runtime import launch`, the attributes that are read; for `from .._runtime.reduce import nan_max`, it.
    """
    nodes = list(ast.walk(parsed_module(text)))
    aliases: dict[str, str] = {}
    found: set[Name] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            *_, before, last = ["", "", *(node.module or "").split(".")]
            for alias in node.names:
                if before in places:
                    found.add((f"{places[before]}.{last}", alias.name))
                elif last in places:
                    aliases[alias.asname or alias.name] = f"{places[last]}.{alias.name}"
                elif alias.name in places:
                    aliases[alias.asname or alias.name] = places[alias.name]
    read = {base: name for base, name in _attributes(nodes) if base.id in aliases}
    passed = (node for node in nodes if isinstance(node, ast.Name) and node.id in aliases and node not in read)
    found |= {(aliases[base.id], name) for base, name in read.items()}
    return frozenset(found | {(aliases[node.id], EVERYTHING) for node in passed})


# Reading


@functools.lru_cache(4096)
def chunks_of(text: str) -> tuple[Chunk, ...]:
    """The statements of a module, or of the body of a class."""
    return tuple(_chunks(text))


def _chunks(text: str) -> Iterator[Chunk]:
    lines, end = text.splitlines(), 0
    body = parsed_module(text).body
    for n, node in enumerate(body):
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))]) - 1
        own = first
        while own > end and lines[own - 1].startswith("#"):
            own -= 1
        yield from _alone(lines, end, own)
        blank = own - _content_before(lines, own, end)
        last = node.end_lineno or first + 1
        if n == len(body) - 1:
            last = len(lines)
        yield _chunk(tuple(lines[own:last]), blank, node)
        end = last


def _alone(lines: list[str], end: int, own: int) -> Iterator[Chunk]:
    """Comments between two statements that belong to neither: headings."""
    start = end
    while start < own:
        if not lines[start].strip():
            start += 1
            continue
        stop = start
        while stop < own and lines[stop].strip():
            stop += 1
        yield Chunk(tuple(lines[start:stop]), start - _content_before(lines, start, end))
        start = stop


def _content_before(lines: list[str], place: int, end: int) -> int:
    """The line after the last non-blank line before a place."""
    while place > end and not lines[place - 1].strip():
        place -= 1
    return place


def _chunk(lines: tuple[str, ...], gap: int, node: ast.stmt) -> Chunk:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return Chunk(lines, gap, node)
    within = list(ast.walk(node))
    read = dict(_attributes(within))
    return Chunk(
        lines,
        gap,
        node,
        tuple(_bound(node)),
        frozenset(global_names(symtable.symtable("\n".join(lines), "part", "exec"))),
        frozenset((base.id, name) for base, name in read.items()),
        frozenset(one.id for one in within if isinstance(one, ast.Name) and one not in read),
        tuple(one for one in within if isinstance(one, ast.ImportFrom | ast.Import)),
    )


def _attributes(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.Name, str]]:
    """Attributes of names, as `launch.run`, and those that a test replaces: `patch.setattr(launch, "run", other)`."""
    for node in nodes:
        match node:
            case ast.Attribute(ast.Name() as base, name):
                yield base, name
            case ast.Call(ast.Attribute(attr="setattr"), [ast.Name() as base, ast.Constant(str(name)), *_]):
                yield base, name


def _bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))


# Writing


def _text(module: Module, names: set[str]) -> str:
    """A module with some of its names: comments and docstrings as they are, and blank lines as black has them."""
    is_unread = not any(_LANGUAGE in chunk.uses for chunk in module.chunks if _stays(chunk, names))

    def lines_of(chunk: Chunk) -> tuple[str, ...]:
        lines = _lines(chunk, names)
        if is_unread and lines == (f"import triton.language as {_LANGUAGE}",):
            return (f"{lines[0]}  # noqa: F401 (Triton's interpreter looks for it)",)
        return lines

    return "\n".join(laid_out(module.chunks, lines_of, 2)) + "\n"


def laid_out(chunks: Iterable[Chunk], lines_of: Callable[[Chunk], tuple[str, ...]], around: int) -> list[str]:
    """The lines of chunks, with `around` blank lines around definitions, else as many as there were. A heading remains
    if a chunk below it has lines.
    """
    out: list[str] = []
    before: Chunk | None = None
    heading: list[tuple[Chunk, int]] = []
    gap, cut = 0, False
    for chunk in chunks:
        gap = max(gap, chunk.gap)
        if chunk.node is None:
            heading, gap = [(chunk, gap)], 0
            continue
        lines = lines_of(chunk)
        if not lines:
            cut = True
            continue
        for one, blank in (*heading, (chunk, min(gap, 1) if cut and not heading else gap)):
            if before is not None:
                is_separated = (one.is_definition or before.is_definition) and before.node is not None
                out += [""] * (around if is_separated else blank)
            out += lines if one is chunk else one.lines
            before = one
        heading, gap, cut = [], 0, False
    return out


def _stays(chunk: Chunk, names: set[str]) -> bool:
    return chunk.node is not None and not chunk.is_import and (not chunk.names or not names.isdisjoint(chunk.names))


def _lines(chunk: Chunk, names: set[str]) -> tuple[str, ...]:
    """The lines of a chunk, none if it is not reached."""
    if chunk.is_exports:
        return _exports(chunk, names)
    if not isinstance(chunk.node, ast.Import | ast.ImportFrom):
        return chunk.lines if _stays(chunk, names) else ()
    node = chunk.node
    left = [alias for alias in node.names if (alias.asname or alias.name.partition(".")[0]) in names]
    if len(left) == len(node.names) or not left:
        return chunk.lines if left else ()
    comments = tuple(line for line in chunk.lines if line.startswith("#"))
    entries = [alias.name + (f" as {alias.asname}" if alias.asname else "") for alias in left]
    if isinstance(node, ast.Import):
        return *comments, f"import {', '.join(entries)}"
    head = f"from {'.' * node.level}{node.module or ''} import "
    line = head + ", ".join(entries)
    if len(line) <= _LENGTH:
        return *comments, line
    return *comments, f"{head}(", *(f"    {entry}," for entry in entries), ")"


def _exports(chunk: Chunk, names: set[str]) -> tuple[str, ...]:
    assert isinstance(chunk.node, ast.Assign)
    left = [name for name in ast.literal_eval(chunk.node.value) if name in names]
    if not left:
        return ()
    quoted = [f'"{name}"' for name in left]
    line = f"__all__ = [{', '.join(quoted)}]"
    return (line,) if len(line) <= _LENGTH else ("__all__ = [", *(f"    {one}," for one in quoted), "]")
