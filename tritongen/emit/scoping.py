"""Names that emitted text uses before anything defines them.

Python and Triton tell only when the line runs, which may be in a kernel that few shapes launch.
What the body of a class defines, methods do not see.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable

from ..lang.trees import Visitor, parsed_module, walk

OF_ALL = frozenset({*dir(builtins), "__file__", "__name__"})


def undefined_names(text: str) -> dict[str, str]:
    """What a module mentions and nothing above defines, each with the place of its first use: "line 12: name"."""
    tree = parsed_module(text)
    module = _Scope(set(OF_ALL))
    for statement in tree.body:
        module.visit(statement)
    for function in module.later:
        module.enter(function)
    return module.missing


class _Scope(Visitor):
    """The names of a scope, as its statements define them one after the other."""

    def __init__(self, known: set[str], missing: dict[str, str] | None = None) -> None:
        self.known = known
        self.missing: dict[str, str] = {} if missing is None else missing
        self.later: list[ast.FunctionDef | ast.Lambda] = []

    def enter(self, function: ast.FunctionDef | ast.Lambda) -> None:
        """Go through a function's body, which sees all that the scope around it defines."""
        arguments = [node.arg for node in walk(function.args) if isinstance(node, ast.arg)]
        inner = _Scope(self.known | set(arguments), self.missing)
        inner.visit_all(function.body if isinstance(function, ast.FunctionDef) else [function.body])
        for nested in inner.later:
            inner.enter(nested)

    def visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.known.add(node.id)
        elif node.id not in self.known:
            self.missing.setdefault(node.id, f"line {node.lineno}: {node.id}")

    def visit_alias(self, node: ast.alias) -> None:
        self.known.add((node.asname or node.name).partition(".")[0])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.visit_all([*node.decorator_list, *_outside(node.args), *_types(node)])
        self.known.add(node.name)
        self.later.append(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.visit_all([*node.decorator_list, *node.bases])
        self.known.add(node.name)
        inner = _Scope(set(self.known), self.missing)
        inner.visit_all(node.body)
        self.later += inner.later

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit_all(_outside(node.args))
        self.later.append(node)

    # What runs first is visited first; the fields of `ast` have it the other way round.

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit_all([node.value, *node.targets])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.visit(ast.Name(node.target.id, ast.Load(), lineno=node.lineno))
        self.visit_all([node.value, node.target])

    def visit_For(self, node: ast.For) -> None:
        self.visit_all([node.iter, node.target, *node.body, *node.orelse])

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        """Past the handler, its name is deleted."""
        own = {node.name} if node.name else set()
        self.visit_all([node.type] if node.type else [])
        self.known |= own
        self.visit_all(node.body)
        self.known -= own

    def visit_binding(self, node: ast.MatchAs | ast.MatchStar) -> None:
        """A name in a pattern of `match`."""
        self.known |= {node.name} if node.name else set()
        self.visit_all(ast.iter_child_nodes(node))

    visit_MatchAs = visit_MatchStar = visit_binding

    def visit_comprehension_of(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> None:
        self.visit_all([*node.generators, node.elt])

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_comprehension_of

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self.visit_all([*node.generators, node.key, node.value])

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit_all([node.iter, node.target, *node.ifs])


def _outside(arguments: ast.arguments) -> list[ast.expr]:
    """The defaults of a function, which the scope around it computes."""
    return [default for default in (*arguments.defaults, *arguments.kw_defaults) if default is not None]


def _types(function: ast.FunctionDef) -> list[ast.expr]:
    """The annotations of a function, which the scope around it computes too."""
    found = [node.annotation for node in walk(function.args) if isinstance(node, ast.arg)]
    return [annotation for annotation in (*found, function.returns) if annotation is not None]
