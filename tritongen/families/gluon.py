"""Gluon kernels: pipelines that are templates of functions, which nests fill.

A template, as those of `templates/gluon`, is Python. Names in capitals stand for what it is filled with: a value, a
name (`Q_ring` is the ring of that), the names of several things, or a nest, which is alone on a line. A line with names
of several things is there for each, and `*f(NAMES)` are those of all. A function takes those of its arguments that it
reads; a call says those that have other values than their names, and `warps(f)` is a function with what a group of
warps gives it. What nothing reads goes: positions, masks, loops of nothing, and functions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..lang.ir import Op
from ..lang.trees import changed, parsed_module, walk
from ..lowering.assemble import param_casts
from ..lowering.lower import Compute
from ..lowering.views import Argument, Kernel
from ..nest.ir import (
    BLANK,
    Accumulate,
    Branch,
    Constant,
    Do,
    For,
    Given,
    Let,
    Line,
    Nest,
    Return,
    free_names,
    lines_of,
    names_of,
    statements_of,
    without_dead_code,
)
from ..nest.values import Expr, V, expr, runtime
from ..resources import templates_dir

# The functions of triton.language that Gluon has, too.
SHARED = frozenset(
    "abs arange cdiv ceil cos exp exp2 floor float32 full int32 int64 log log2 maximum minimum rsqrt sin sqrt store sum"
    " where".split()
)
_OPERATORS = {ast.Add: "+", ast.Mult: "*"}


def filled(name: str, templates: Iterable[str], fills: Mapping[str, Any]) -> tuple[Kernel, ...]:
    """The functions of `templates` for an operator, and the kernel, which takes all TENSORS, and the GIVEN arguments
    that warps read.
    """
    functions: dict[str, Kernel] = {}
    known: dict[str, Any] = {"BLANK": (BLANK,), "KNOWN": fills["GIVEN"], **fills}
    for template in templates:
        text = Path(templates_dir(), "gluon", f"{template}.gluon").read_text(encoding="utf-8")
        lines = [line.strip() for line in text.split("\n")]
        comments = {number: line[2:] for number, line in enumerate(lines, 1) if line.startswith("# ")}
        for node in parsed_module(text).body:
            assert isinstance(node, ast.FunctionDef)
            functions[node.name] = _Template(name, known, functions, comments).function(node)
    read = set[str]().union(*(names_of(one.body) for one in functions.values()))
    return tuple(one for key, one in functions.items() if one.name in read or key.endswith("_kernel"))


class _Template:
    """Fills template functions, which may call the already filled `functions`."""

    def __init__(
        self, name: str, fills: dict[str, Any], functions: Mapping[str, Kernel], comments: Mapping[int, str]
    ) -> None:
        self.name, self.fills, self.functions, self.comments = name, fills, functions, comments
        self.own: dict[str, str] = {}  # for names of several things, the one that a line is printed for

    def function(self, node: ast.FunctionDef) -> Kernel:
        """A function, or a kernel, which drops no argument but those that warps might be GIVEN and are not.

        What they are given is what the function reads that unpacks it.
        """
        names = [spelled for one in node.args.args for spelled in self.arguments(one)]
        body = without_dead_code(self.body(node))
        read = {name for one in statements_of(body) for name in one.reads}
        if "given" in names:
            self.fills["GIVEN"] = tuple(one for one in self.fills["GIVEN"] if one in read)
            unpacked = Let(", ".join(self.fills["GIVEN"]), V.given)
            body = tuple(unpacked if isinstance(one, Let) and one.value == V.given else one for one in body)
        body = _where_read(body, read)
        is_kernel = node.name.endswith("_kernel")
        read = free_names(body)
        every = [*map(Argument, names)]
        if is_kernel:
            tensors, known = self.fills["TENSORS"], self.fills["KNOWN"]
            read |= {one.name for one in every if one.name in tensors or one.name not in known}
        arguments = tuple(one for one in every if one.name in read)
        fixed = [one.name for one in arguments if is_kernel and one.name in self.fills.get("FIXED", ())]
        doc = "".join(str(self.fills.get(word, word)) for word in re.split(r"(\W+)", ast.get_docstring(node) or ""))
        language = "tl" if node.decorator_list else "gl"  # what is not Gluon says so
        return Kernel(f"{self.name}{node.name}", doc, arguments, (), body=body, fixed=(*fixed,), language=language)

    def arguments(self, one: ast.arg) -> list[str]:
        found = self.named(one.arg)
        if one.annotation:
            return [f"{one.arg}: {ast.unparse(one.annotation)}"]
        return [one.arg] if found is None else [found] if isinstance(found, str) else [*found]

    def named(self, name: str) -> Any:
        """The value that a name stands for, or the names derived from it by a suffix; None if it stands for itself."""
        if name in self.own or name in self.fills:
            return self.own.get(name, self.fills.get(name))
        base, _, end = name.rpartition("_")
        match self.fills.get(base):
            case str(one):
                return f"{one}_{end}"
            case tuple(several):
                return tuple(f"{one}_{end}" for one in several)
        return None

    # Statements

    def body(self, node: ast.FunctionDef | ast.For) -> Nest:
        return self.nest(node.body[1:] if isinstance(node, ast.FunctionDef) else node.body)

    def nest(self, nodes: Iterable[ast.stmt]) -> Nest:
        return tuple(one for node in nodes for one in self.statements(node))

    def statements(self, node: ast.stmt) -> Iterator[Any]:
        comment = self.comments.get(node.lineno - 1, "")
        match node:
            case ast.Expr(value=ast.Name(id=name)):
                yield from self.fills[name]
            case ast.For(target=ast.Name(id=index), iter=span):
                if body := self.body(node):
                    yield For(self.value(span), index=index, body=body, comment=comment)
            case ast.If(test=test, body=body, orelse=other):
                yield Branch(self.value(test), self.nest(body), self.nest(other), comment=comment)
            case _:
                for _ in self.each(node):
                    yield from self.line(node, comment)

    def each(self, node: ast.AST) -> Iterator[None]:
        """Goes through the several things that a line has names of; once if it has none but behind a star."""
        inside = {id(one) for star in walk(node) if isinstance(star, ast.Starred) for one in walk(star)}
        names = {one.id for one in walk(node) if isinstance(one, ast.Name) and id(one) not in inside}
        several = {name: found for name in sorted(names) if isinstance(found := self.named(name), tuple)}
        before = self.own
        for own in zip(*several.values(), strict=True) if several else [()]:
            self.own = before | dict(zip(several, own, strict=True))
            yield
        self.own = before

    def line(self, node: ast.stmt, comment: str) -> Iterator[Line]:
        match node:
            case ast.Assign(targets=[target], value=value):
                names = ", ".join(map(ast.unparse, self.elements(getattr(target, "elts", [target]))))
                if names:
                    given = self.value(value)
                    yield (Given if given.calls else Let)(names, given, comment=comment)
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                yield Constant(name, self.value(value), comment=comment)
            case ast.AugAssign(target=target, op=operator, value=value):
                name = self.value(target).text
                yield Accumulate(name, _OPERATORS[type(operator)], self.value(value), comment=comment)
            case ast.Return(value=value):
                yield Return(self.value(value), comment=comment)
            case ast.Expr(value=value):
                yield Do(self.value(value), comment=comment)

    # Values

    def value(self, tree: Any) -> Expr:
        return Expr(changed(tree, self.change))

    def elements(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """Some values, of those with a star one for each of the things that it has names of."""
        found: list[Any] = []
        for one in nodes:
            if isinstance(one, ast.Starred):
                found += [self.value(one.value).tree for _ in self.each(one.value)]
            else:
                found.append(self.value(one).tree)
        return found

    def change(self, node: ast.AST) -> ast.AST | None:
        match node:
            case ast.Name(id=name):
                found = self.named(name)
                return None if found is None else expr(found).tree
            case ast.Call(func=ast.Name(id="warps"), args=[ast.Name(id=name)], keywords=words):
                return expr((self.functions[name].name, self.passed(name, words))).tree
            case ast.Call(func=ast.Name(id=name), keywords=words) if name in self.functions:
                return runtime[self.functions[name].name](*self.passed(name, words)).tree
            case ast.Call(func=function, args=nodes) if any(isinstance(one, ast.Starred) for one in nodes):
                return ast.Call(function, self.elements(nodes), [])
            case ast.Tuple(elts=nodes) if any(isinstance(one, ast.Starred) for one in nodes):
                elements = self.elements(nodes)
                return elements[0] if len(elements) == 1 else ast.Tuple(elements)
        return None

    def passed(self, name: str, words: Iterable[ast.keyword]) -> tuple[Expr, ...]:
        given = {word.arg: self.value(word.value) for word in words}
        return tuple(given.get(one, V[one]) for one in self.functions[name].names)


def _where_read(nest: Nest, read: Container[str]) -> Nest:
    """A nest in which names that are unpacked and not read begin with an underscore."""
    found = []
    for one in nest:
        if isinstance(one, Let) and len(one.targets) > 1:
            one = replace(one, name=", ".join(name if name in read else f"_{name}" for name in one.targets))
        found.append(replace(one, body=_where_read(one.body, read)) if isinstance(one, For) else one)
    return tuple(found)


def casts(op: Op, compute: Compute) -> Nest:
    """The lines that give params the dtype of the math, as far as they are read."""
    return tuple(Given(one.assigned, *one.values) for one in param_casts(op, compute))


def calls_only(lines: Iterable[Line], names: Container[str]) -> bool:
    """Whether some lines call no more of Triton's language than some names."""
    every = (node for line in lines_of(lines) for value in line.values for node in walk(value.tree))
    return all(node.attr in names for node in every if isinstance(node, ast.Attribute) and Expr(node.value) == V.tl)


def names_in(lines: Iterable[Line], names: Iterable[str]) -> list[str]:
    """Those of some names that are in some lines."""
    known = names_of(lines)
    return [name for name in names if name in known]
