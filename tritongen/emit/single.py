"""One file for an operator: the definitions of the runtime that it reads, in the order of imports, then its own
modules.

A definition keeps its name unless another has it; then the runtime's is prefixed by its module: `launch.run` becomes
`launch_run`. Names that functions bind themselves are left alone, and never hide a definition. If the operator has the
name of a builtin or an import, readers of that use another name for it.
"""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from ..lang.trees import parsed_module
from .imports import merged
from .shaking import EVERYTHING, Chunk, Import, Library, Module, Name

_IMPORTED = "pass"  # stands for an import of ours in a function
OPERATOR = "op"  # the package of an operator's modules, in names of modules


def single_file(library: Library, own: Iterable[str], top: str) -> str:
    """The text of one module, unformatted, with the modules `own` and definitions that they reach; `top` begins it."""
    reached = library.reached((name, EVERYTHING) for name in own)
    order = _in_order(library, reached)
    chunks = {name: [*_reachable(library.modules[name], reached)] for name in order}
    names = _final_names(library, reached, chunks)
    imports, others = _imports(library, reached, order, {*names.values()})
    hidden = dict(_hidden_builtins(library, chunks, {*names.values()}))
    names |= others | hidden
    imports += ["import builtins as _builtins"] * bool(hidden)
    sections: list[str] = []
    for name in order:
        module = library.modules[name]
        texts = [_renamed(module, chunk, dict(library.inner(name, chunk)), names) for chunk in chunks[name]]
        if texts:
            sections.append("\n\n".join([_title(module), *texts]))
    return "\n".join([top, *merged(imports), "\n\n", "\n\n\n".join(sections), ""])


def _in_order(library: Library, reached: frozenset[Name]) -> list[str]:
    """Modules after those that they import; the operator's come last."""
    reached_modules = {module for module, _ in reached}
    done: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in done or name not in reached_modules:
            return
        targets = sorted({one.module for one in library.modules[name].imported.values() if one.module})
        for target in (one for one in targets if one != name):
            visit(target)
        done[name] = None

    for name in sorted(reached_modules, key=lambda one: (one.startswith(f"{OPERATOR}."), one)):
        visit(name)
    return list(done)


def _final_names(library: Library, reached: frozenset[Name], chunks: Mapping[str, Iterable[Chunk]]) -> dict[Name, str]:
    """The name of each definition in the file."""
    defined = [
        (module, name) for module in chunks for name in library.modules[module].defined if (module, name) in reached
    ]
    foreign = {
        own
        for module in chunks
        for own, target in library.modules[module].imported.items()
        if not target.module and (module, own) in reached
    }
    count = Counter(name for _, name in defined)
    bound = {name for every in chunks.values() for chunk in every if chunk.node for name in _bound_inside(chunk.node)}
    found = {}
    for module, name in defined:
        is_own = module.startswith(f"{OPERATOR}.")
        clashes = count[name] > 1 or name in foreign or name in bound
        found[module, name] = name if is_own or not clashes else _prefixed(module, name)
    return found


def _hidden_builtins(
    library: Library, chunks: Mapping[str, Iterable[Chunk]], defined: AbstractSet[str]
) -> Iterator[tuple[Name, str]]:
    """The builtins that modules read and a definition of the file hides, as attributes of their module."""
    for name, every in chunks.items():
        module = library.modules[name]
        for read in sorted(defined & frozenset[str]().union(*(chunk.uses for chunk in every))):
            if hasattr(builtins, read) and read not in module.defined and read not in module.imported:
                yield (name, read), f"_builtins.{read}"


def _prefixed(module: str, name: str) -> str:
    last = module.rpartition(".")[2]
    return f"_{last}{name}" if name.startswith("_") else f"{last.upper() if name.isupper() else last}_{name}"


def _bound_inside(node: ast.stmt) -> Iterator[str]:
    """The names that functions in a statement bind: parameters, variables, functions within."""
    for function in ast.walk(node):
        if isinstance(function, ast.FunctionDef | ast.Lambda):
            for inner in ast.walk(function):
                if isinstance(inner, ast.arg):
                    yield inner.arg
                elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    yield inner.id
                elif isinstance(inner, ast.FunctionDef) and inner is not function:
                    yield inner.name


def _reachable(module: Module, reached: frozenset[Name]) -> Iterator[Chunk]:
    """The definitions that are reached, and the statements that are no definitions and always run."""
    for chunk in module.chunks:
        is_docstring = isinstance(chunk.node, ast.Expr) and isinstance(chunk.node.value, ast.Constant)
        is_reached = not chunk.names or any((module.name, name) in reached for name in chunk.names)
        if chunk.node is not None and is_reached and not (chunk.is_import or chunk.is_exports or is_docstring):
            yield chunk


def _title(module: Module) -> str:
    """The comment above a section: the first sentence of its module's docstring."""
    node = module.chunks[0].node
    docstring = ""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        docstring = " ".join(str(node.value.value).split("\n\n")[0].split())
    name = module.name.rpartition(".")[2]
    return f"# {name}: {docstring}" if docstring else f"# {name}"


def _imports(
    library: Library, reached: frozenset[Name], order: list[str], defined: Iterable[str]
) -> tuple[list[str], dict[Name, str]]:
    """The imports of foreign modules, one name per line, and new names for those whose name another has."""
    used = dict.fromkeys(defined, "")
    lines: dict[str, None] = {}
    others: dict[str, str] = {}
    names: dict[Name, str] = {}
    for module in (library.modules[name] for name in order):
        for own, line in (one for chunk in module.chunks for one in _foreign(module, chunk, reached)):
            final = own
            if (other := used.setdefault(own, line)) != line and not (other and line.startswith(f"import {own}")):
                names[module.name, own] = final = others.setdefault(line, _prefixed(module.name, own))
            source = line.partition(" as ")[0]
            lines[line if final == own else f"{source} as {final}"] = None
    return list(lines), names


def _foreign(module: Module, chunk: Chunk, reached: frozenset[Name]) -> Iterator[tuple[str, str]]:
    """The imports of foreign modules in a statement: the name that each binds, and its line."""
    node = chunk.node
    if isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            own = alias.asname or alias.name
            binds = own if alias.asname or isinstance(node, ast.ImportFrom) else own.partition(".")[0]
            if (module.name, binds) in reached and not module.imported[binds].module:
                named = alias.name + (f" as {alias.asname}" if alias.asname else "")
                yield binds, f"import {named}" if isinstance(node, ast.Import) else f"from {node.module} import {named}"


class _Renames(ast.NodeVisitor):
    """The places of our definitions' names in a statement, and the names in the file for them."""

    def __init__(self, module: Module, inner: Mapping[str, Import], names: Mapping[Name, str]) -> None:
        self.module, self.names = module, names
        self.imported = {**module.imported, **inner}
        self.bound: list[frozenset[str]] = []
        self.found: list[tuple[ast.expr | ast.stmt, str]] = []

    def of(self, name: str) -> str | None:
        if any(name in bound for bound in self.bound):
            return None
        target = self.imported.get(name)
        if target is not None and target.name:
            return self.names.get((target.module, target.name))
        return self.names.get((self.module.name, name))

    def visit_Name(self, node: ast.Name) -> None:
        if final := self.of(node.id):
            self.found.append((node, final))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        base = node.value
        target = self.imported.get(base.id) if isinstance(base, ast.Name) else None
        if target is not None and target.module and not target.name:
            self.found.append((node, self.names[target.module, node.attr]))
        else:
            self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level:
            self.found.append((node, _IMPORTED))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for outside in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults):
            if outside is not None:
                self.visit(outside)
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg) and argument.annotation:
                self.visit(argument.annotation)
        if node.returns:
            self.visit(node.returns)
        self.bound.append(frozenset(_bound_inside(node)))
        for statement in node.body:
            self.visit(statement)
        self.bound.pop()


def _is_followed(lines: list[bytes], row: int) -> bool:
    """Whether a statement below one is in the same block."""
    indent = len(lines[row]) - len(lines[row].lstrip())
    return row + 1 < len(lines) and len(lines[row + 1]) - len(lines[row + 1].lstrip()) == indent


def _renamed(module: Module, chunk: Chunk, inner: Mapping[str, Import], names: Mapping[Name, str]) -> str:
    """A statement's text with the names that its definitions have in the file."""
    lines = [line.encode() for line in chunk.lines]
    renames = _Renames(module, inner, names)
    edits: list[tuple[int, int, int, int, str]] = []
    for statement in parsed_module("\n".join(chunk.lines)).body:
        renames.visit(statement)
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            start = len("def " if isinstance(statement, ast.FunctionDef) else "class ")
            row, end = statement.lineno - 1, start + len(statement.name.encode())
            edits.append((row, start, row, end, names.get((module.name, statement.name), statement.name)))
    for node, final in renames.found:
        end = node.end_col_offset or 0
        edits.append((node.lineno - 1, node.col_offset, (node.end_lineno or node.lineno) - 1, end, final))
    for row, start, last, end, final in sorted(edits, reverse=True):
        lines[row : last + 1] = [lines[row][:start] + final.encode() + lines[last][end:]]
        if final == _IMPORTED:  # It goes, with the blank lines below it, unless a block has nothing else.
            while row + 1 < len(lines) and not lines[row + 1].strip():
                del lines[row + 1]
            if _is_followed(lines, row):
                del lines[row]
    return "\n".join(line.decode() for line in lines)
