"""Syntax trees of emitted code with positions in its text, and edits of the text, for tests/harness/mutations.py."""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

Span = tuple[int, int]


@dataclass(frozen=True)
class Mutation:
    """One edit: bytes `start` to `end` of a module become `new`; `lines` are the lines of the edited statement."""

    kind: str
    what: str
    function: str
    lines: tuple[int, int]
    start: int
    end: int
    new: str
    # Why only a GPU can distinguish the mutant from the original; empty if the interpreter can.
    gpu: str = ""

    def applied(self, text: str) -> str:
        """The module with the bug in it."""
        raw = text.encode()
        return (raw[: self.start] + self.new.encode() + raw[self.end :]).decode()

    def shown(self, text: str) -> tuple[int, str, str]:
        """The first line that differs: its number, the old and the new line."""
        pairs = itertools.zip_longest(text.splitlines(), self.applied(text).splitlines(), fillvalue="")
        return next((n, old.strip(), new.strip()) for n, (old, new) in enumerate(pairs, 1) if old != new)


class Function:
    """A kernel or host function: its syntax tree, and the text of each node."""

    def __init__(self, module: Module, name: str, node: ast.FunctionDef) -> None:
        self.module, self.name, self.node = module, name, node
        self.nodes = [found for statement in node.body for found in ast.walk(statement)]
        self.parents = {child: parent for parent in ast.walk(node) for child in ast.iter_child_nodes(parent)}
        self.args = [arg.arg for arg in node.args.args]
        self.is_kernel = any("triton.jit" in self.text(one) for one in node.decorator_list)

    def text(self, node: ast.AST) -> str:
        start, end = self.module.span(node)
        return self.module.raw[start:end].decode()

    def operand(self, node: ast.AST) -> str:
        """The text of a node, parenthesized if needed to replace the expression around it."""
        text = self.text(node)
        return text if isinstance(node, ast.Name | ast.Constant | ast.Call) else f"({text})"

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The ancestors of a node, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def statement(self, node: ast.AST) -> ast.stmt:
        return next(one for one in (node, *self.above(node)) if isinstance(one, ast.stmt))

    def edit(self, kind: str, what: str, where: ast.AST | Span, new: str, within: ast.AST, gpu: str = "") -> Mutation:
        statement = self.statement(within)
        last = statement.end_lineno or statement.lineno
        if isinstance(statement, ast.For | ast.While | ast.If | ast.With):
            last = statement.body[0].lineno - 1
        if any(isinstance(one, ast.While) for one in (statement, *self.above(statement))):
            gpu = "programs that wait for one another"
        start, end = where if isinstance(where, tuple) else self.module.span(where)
        return Mutation(kind, what, self.name, (statement.lineno, last), start, end, new, gpu)

    def between(self, kind: str, what: str, left: ast.AST, right: ast.AST, old: str, new: str) -> Mutation:
        """The edit that replaces the operator `old` between two operands by `new`."""
        start, end = self.module.span(left)[1], self.module.span(right)[0]
        gap = self.module.raw[start:end].decode()
        return self.edit(kind, what, (start, end), gap.replace(old, new, 1), left)

    def swapped(self, kind: str, what: str, left: ast.AST, right: ast.AST) -> Mutation:
        """The edit that swaps two adjacent nodes."""
        (start, first), (second, end) = self.module.span(left), self.module.span(right)
        gap = self.module.raw[first:second].decode()
        return self.edit(kind, what, (start, end), self.text(right) + gap + self.text(left), left)

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """The calls of functions by their full names in the text, such as `tl.load`."""
        for node in self.nodes:
            if isinstance(node, ast.Call) and self.text(node.func) in names:
                yield node

    def readers(self, definition: ast.stmt) -> list[tuple[str, ast.stmt]]:
        """The statements that read a name that `definition` assigns, with the name, until it is assigned again.

        At the end of a loop the search continues at its beginning. An assignment in a branch ends it only for
        definitions in that branch.
        """
        stored = (one for one in ast.walk(definition) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
        loops = [one for one in self.above(definition) if isinstance(one, ast.For | ast.While)]
        branches = {one for one in self.above(definition) if isinstance(one, ast.If)}
        found: list[tuple[str, ast.stmt]] = []

        def is_read_until_assigned(name: str, first: int, last: int) -> bool:
            for one in self.statements:
                if first < one.lineno <= last:
                    names = [node for node in _own_nodes(one) if isinstance(node, ast.Name) and node.id == name]
                    if isinstance(one, ast.AugAssign) or any(isinstance(node.ctx, ast.Load) for node in names):
                        found.extend([(name, one)] * bool(names))
                    is_sure = {each for each in self.above(one) if isinstance(each, ast.If)} <= branches
                    if isinstance(one, ast.Assign) and is_sure and any(isinstance(n.ctx, ast.Store) for n in names):
                        return True
            return False

        for name in sorted({one.id for one in stored}):
            first = definition.lineno
            for loop in (*loops, self.node):
                if is_read_until_assigned(name, first, loop.end_lineno or 0):
                    break
                if loop is not self.node:
                    is_read_until_assigned(name, loop.lineno - 1, definition.lineno)
                first = loop.end_lineno or 0
        return found

    def assigned(self, name: str) -> list[ast.Assign]:
        """The assignments to a name."""
        return [one for one in self.nodes if isinstance(one, ast.Assign) and self.text(one.targets[0]) == name]

    @functools.cached_property
    def statements(self) -> list[ast.stmt]:
        """All statements, in the order of the text."""
        return sorted((one for one in self.nodes if isinstance(one, ast.stmt)), key=lambda one: one.lineno)

    def is_address(self, node: ast.AST) -> bool:
        """Whether a node computes an address or an index, not a value."""
        statement = self.statement(node)
        if isinstance(statement, ast.For) or re.search(r"arange|program_id|_ptr \+|_desc", self.text(statement)):
            return True
        for inner, outer in itertools.pairwise((node, *self.above(node))):
            if isinstance(outer, ast.Subscript) and inner is outer.slice:
                return True
            if isinstance(outer, ast.Call) and self.text(outer.func) in ("tl.load", "tl.store"):
                return inner is outer.args[0]
        return "stride_" in self.text(statement) or "size_" in self.text(statement)

    @functools.cached_property
    def grids(self) -> tuple[tuple[ast.Tuple, str], ...]:
        """The grids of launches in a host function, each with the name of its kernel."""
        found = []
        for node in self.nodes:
            pairs: list[tuple[ast.expr, ast.expr]] = []
            if isinstance(node, ast.Call):
                pairs = list(itertools.pairwise(node.args))
            if isinstance(node, ast.Subscript):
                pairs = [(node.value, node.slice)]
            for left, right in pairs:
                kernel = self.text(left).split(".")[-1]
                if kernel not in self.module.kernels:
                    continue
                if isinstance(right, ast.Name):
                    before = [
                        one
                        for one in self.nodes
                        if isinstance(one, ast.Assign)
                        and self.text(one.targets[0]) == right.id
                        and self.module.span(one) < self.module.span(node)
                    ]
                    right = max(before, key=self.module.span).value if before else right
                if isinstance(right, ast.Tuple):
                    found.append((right, kernel))
        return tuple(found)


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement, without nested statements."""
    yield statement
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, ast.stmt):
            yield from ast.walk(child)


class Module:
    """A module of an emitted package; `beside` is the text of the module that defines the kernels it launches."""

    def __init__(self, text: str, beside: str = "") -> None:
        self.raw = text.encode()
        tree = ast.parse(text)
        self.starts = list(itertools.accumulate(map(len, self.raw.splitlines(keepends=True)), initial=0))
        self.functions: list[Function] = []
        for node in tree.body:
            for one in node.body if isinstance(node, ast.ClassDef) else [node]:
                if isinstance(one, ast.FunctionDef):
                    home = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
                    self.functions.append(Function(self, home + one.name, one))
        self.kernels: dict[str, str] = Module(beside).kernels if beside else {}
        self.kernels |= {one.name: one.text(one.node) for one in self.functions if one.is_kernel}

    def span(self, node: ast.AST) -> Span:
        assert isinstance(node, ast.expr | ast.stmt | ast.keyword)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )
