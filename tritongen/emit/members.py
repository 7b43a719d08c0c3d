"""The classes of the test harness, reduced to the members that the tests of some operators run.

A test whose cases no operator declares is left out: `@each("shape", lambda cls: cls.gluon)` if no class of emitted
tests declares `gluon`, or `cls.configs(heuristics.Loop)` if no operator has such a table. Then helpers and declarations
are left out that nothing mentions any more.
"""

from __future__ import annotations

import ast
import functools
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..lang.trees import parsed_module
from .shaking import EVERYTHING, Chunk, Name, chunks_of, laid_out

BASE = "Harness"  # of all classes that are cut
_KINDS = "heuristics"  # the modules of kinds of tables end so


def declared_in(text: str) -> frozenset[str]:
    """The names that the classes of an emitted test declare."""
    classes = (node for node in parsed_module(text).body if isinstance(node, ast.ClassDef))
    return frozenset(name for node in classes for name, _ in _assigned(node))


@dataclass(frozen=True)
class Declared:
    """The declarations of some operators' tests, and the kinds of tables that these operators have, if known."""

    names: Collection[str]
    kinds: Collection[str]

    @classmethod
    def of(cls, needs: Iterable[Name], names: Collection[str]) -> Declared:
        modules = [(module, name) for module, name in needs if module.endswith(_KINDS)]
        is_known = modules and EVERYTHING not in (name for _, name in modules)
        return cls(names, {name for _, name in modules} if is_known else ())


@dataclass(frozen=True)
class _Harness:
    """Modules of the harness, and the declarations that are empty in all of its classes."""

    texts: Mapping[str, str]
    declared: Declared
    classes: Collection[str] = field(init=False)
    absent: Collection[str] = field(init=False)  # declarations that are empty everywhere

    def __post_init__(self) -> None:
        nodes = [node for text in self.texts.values() for node in parsed_module(text).body]
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        tests = {BASE}
        for _ in classes:
            tests |= {one.name for one in classes if tests & {getattr(base, "id", "") for base in one.bases}}
        values = [pair for one in classes if one.name in tests for pair in _assigned(one)]
        filled = {name for name, value in values if value is None or not _is_empty_literal(value)}
        object.__setattr__(self, "classes", tests)
        object.__setattr__(self, "absent", {name for name, _ in values} - filled - {*self.declared.names})

    def cut(self) -> Mapping[str, str]:
        """The modules without tests that have no cases, and without members that nothing mentions."""
        found = {name: self._without(text, self._runs) for name, text in self.texts.items()}
        mentioned = {name for text in found.values() for name in _mentioned(text)}
        return {name: self._without(text, lambda chunk: _is_used(chunk, mentioned)) for name, text in found.items()}

    def _without(self, text: str, stays: Callable[[Chunk], bool]) -> str:
        def rest(chunk: Chunk) -> tuple[str, ...]:
            return chunk.lines if stays(chunk) else ()

        lines = text.splitlines()
        for node in reversed(parsed_module(text).body):
            if isinstance(node, ast.ClassDef) and node.name in self.classes:
                first, last = node.body[0].lineno - 1, node.end_lineno
                body = textwrap.dedent("\n".join(lines[first:last]))
                lines[first:last] = textwrap.indent("\n".join(laid_out(chunks_of(body), rest, 1)), "    ").splitlines()
        return "\n".join(lines) + "\n"

    def _runs(self, chunk: Chunk) -> bool:
        """Whether a member is no test, or one that has cases."""
        if not isinstance(chunk.node, ast.FunctionDef) or not chunk.node.name.startswith("test_"):
            return True
        lambdas = [
            argument
            for call in chunk.node.decorator_list
            if isinstance(call, ast.Call)
            for argument in call.args
            if isinstance(argument, ast.Lambda)
        ]
        return not any(self._is_empty(one.body) for one in lambdas)

    def _is_empty(self, value: ast.expr) -> bool:
        """Whether an expression of a class `cls` is empty or false for sure."""
        match value:
            case ast.Attribute(ast.Name("cls"), name):
                return name in self.absent
            case ast.Subscript(inner):
                return self._is_empty(inner)
            case ast.BoolOp(ast.And(), values):
                return any(map(self._is_empty, values))
            case ast.BoolOp(ast.Or(), values):
                return all(map(self._is_empty, values))
            case ast.IfExp(test, body, orelse):
                return self._is_empty(orelse) and (self._is_empty(test) or self._is_empty(body))
            case ast.Call(_, arguments):
                kinds = [name for one in arguments for name in _kinds_in(one)]
                is_known = bool(self.declared.kinds) and any(name not in self.declared.kinds for name in kinds)
                return is_known or any(isinstance(one, ast.Call) and self._is_empty(one) for one in arguments)
        return _is_empty_literal(value)


def cut(texts: Mapping[str, str], declared: Declared) -> Mapping[str, str]:
    """Modules of the harness without the members of classes that no test of some operators needs."""
    return _Harness(texts, declared).cut()


def _kinds_in(value: ast.expr) -> Iterator[str]:
    match value:
        case ast.Attribute(ast.Name(module), name) if module.endswith(_KINDS):
            yield name


def _is_empty_literal(value: ast.expr) -> bool:
    try:
        return not ast.literal_eval(value)
    except ValueError:
        return False


def _assigned(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None]]:
    """The names that a class assigns to, with their values."""
    for one in node.body:
        match one:
            case ast.AnnAssign(ast.Name(name)):
                yield name, one.value
            case ast.Assign([ast.Name(name)], value):
                yield name, value


@functools.lru_cache(1024)
def _mentioned(text: str) -> frozenset[str]:
    """The names that are read as attributes or variables, or are strings, as in `setattr`."""
    found = set()
    for node in ast.walk(parsed_module(text)):
        match node:
            case ast.Attribute(attr=name) | ast.Name(name, ast.Load()) | ast.Constant(str(name)):
                found.add(name)
    return frozenset(found)


def _is_used(chunk: Chunk, mentioned: Collection[str]) -> bool:
    """Whether a member is a test, is called by pytest or Python, or is mentioned."""
    hooks = ("test_", "pytest", "__")
    decorators = getattr(chunk.node, "decorator_list", ())
    is_fixture = any(ast.unparse(one).startswith("pytest.fixture") for one in decorators)
    return is_fixture or not chunk.names or any(name in mentioned or name.startswith(hooks) for name in chunk.names)
