"""Checks of a spec's reference and of the peers of its benchmark, since generated files contain them as they are."""

from __future__ import annotations

import ast
import keyword
import sys
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace

from ..diagnostics.report import Mistake, did_you_mean
from ..spec.types import DTYPE_CLASSES, Original, Spec
from .syntax import NotAnExpression, Text
from .torch_names import ATTRIBUTES, CALLED, CALLED_BY_PEERS, FUNCTIONAL_CALL, METHODS, PEER_PACKAGES

_VALUES = frozenset((*DTYPE_CLASSES["any"], "inf", "nan", "pi", "e"))
# Arguments that make a function modify something other than its result.
_FORBIDDEN = frozenset(("generator", "inplace", "out"))
# Node classes of Python's `ast` that are allowed in addition to operators.
_SYNTAX = frozenset(
    "Constant Name Attribute Call keyword Subscript Slice Tuple List Dict Starred UnaryOp BinOp BoolOp Compare"
    " IfExp".split()
)
_FUNCTIONS = frozenset("Lambda arguments arg".split())  # of indices, as flex_attention takes them


def reference_mistakes(spec: Spec) -> list[Mistake]:
    """The mistakes of the reference and of peers."""
    names = frozenset([tensor.name for tensor in spec.inputs] + [param.name for param in spec.params])
    found = _Expression(("reference", "torch"), names).mistakes(spec.reference) if spec.reference else []
    found += _original_mistakes(spec.original, names) if spec.original else []
    for peer in spec.peers:
        key = ("bench", peer.name)
        for name, text in peer.given:
            found += _Expression((*key, "given", name), names, True).mistakes(text)
        known = names | {name for name, _ in peer.given}
        if peer.function:
            found += _function_mistakes(peer.function, (*key, "function"), known)
            known |= {peer.function.rpartition(".")[2]}
        found += _Expression((*key, "torch"), known, True).mistakes(peer.torch)
    return found


def _original_mistakes(original: Original, names: frozenset[str]) -> list[Mistake]:
    """Mistakes of an imported reference. The standard library is refused, as it may read files or start programs."""
    words = original.module.split(".")
    key = "reference", "from"
    if not _are_names(words):
        return [Mistake("TG202", f"`{original.module}` is not the path of a module", key, hint="write package.module")]
    if words[0] in sys.stdlib_module_names:
        hint = "a reference is of a package that has its function or class"
        return [Mistake("TG202", f"`{original.module}` is of Python's standard library", key, hint=hint)]
    known = names | set(imported_names(original.call, names))
    return _Expression(("reference", "torch"), known).mistakes(original.call)


def _are_names(names: Iterable[str]) -> bool:
    return all(name.isidentifier() and not keyword.iskeyword(name) for name in names)


def imported_names(call: str, names: Container[str]) -> tuple[str, ...]:
    """The functions and classes that an expression calls, and modules that it passes to `functional_call`, sorted."""
    try:
        tree = Text(call).parse()
    except NotAnExpression:
        return ()
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call)]
    modules = [one.args[0] for one in calls if ast.unparse(one.func) == FUNCTIONAL_CALL and one.args]
    found = [one.id for one in (*modules, *(one.func for one in calls)) if isinstance(one, ast.Name)]
    return tuple(sorted(one for one in set(found) if one not in names))


def _function_mistakes(path: str, key: tuple[str, ...], names: frozenset[str]) -> list[Mistake]:
    """The mistakes of a peer's function: benchmarks import from `PEER_PACKAGES` only."""
    words = path.split(".")
    if len(words) < 2 or not _are_names(words):
        hint = "write it as package.module.function"
        return [Mistake("TG202", f"`{path}` is not the path of a function", key, hint=hint)]
    package, name = words[0], words[-1]
    if package not in PEER_PACKAGES:
        hint = f"peers are functions of {', '.join(PEER_PACKAGES)}"
        return [Mistake("TG202", f"`{package}` is not a package that benchmarks import", key, hint=hint)]
    if name in names:
        message = f"'{name}' is already the name of something else"
        return [Mistake("TG113", message, key, hint="every name means one thing")]
    return []


@dataclass(frozen=True, slots=True)
class _Expression:
    """An expression's key in the spec, the names that it sees, and whether it is a peer's, which allows more syntax."""

    key: tuple[str, ...]
    names: frozenset[str]
    is_peer: bool = False

    def mistakes(self, source: str) -> list[Mistake]:
        text = Text(source)
        try:
            tree = text.parse()
        except NotAnExpression as error:
            return [Mistake("TG201", error.message, self.key, error.start, hint=error.hint)]
        return list(self.below(tree, text))

    def below(self, node: ast.AST, text: Text) -> Iterator[Mistake]:
        """The outermost mistakes at and below a node."""
        mistake = _wrong(node, self.names, self.is_peer)
        if mistake:
            code, message, hint = mistake
            yield Mistake(code, message, self.key, *text.span(node), hint)
            return
        if _path(node):
            return
        inner = self
        if isinstance(node, ast.Lambda):
            own = {arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)}
            inner = replace(self, names=self.names | own)
        for child in ast.iter_child_nodes(node):
            if isinstance(node, ast.Call) and child is node.func and isinstance(child, ast.Attribute):
                if _path(child):  # Checked with the call, as are methods, but not the object of a method.
                    continue
                child = child.value
            yield from inner.below(child, text)


def _wrong(node: ast.AST, names: frozenset[str], is_peer: bool) -> tuple[str, str, str] | None:
    """The mistake of a node itself, as code, message and hint; None if it is allowed."""
    if isinstance(node, ast.Name) and node.id not in names:
        hint = did_you_mean(node.id, names, "it sees the inputs, the params and functions of torch")
        return "TG203", f"{node.id} is not defined", hint
    called = node.func if isinstance(node, ast.Call) else node
    path = _path(called)
    home = (CALLED | CALLED_BY_PEERS if is_peer else CALLED).get(path or "", frozenset())
    if isinstance(called, ast.Attribute) and not _is_allowed(called, path, called is not node, home):
        message = f"`{ast.unparse(called)}` is not for references"
        homes = [
            f"write {home}.{called.attr}" for home, names in CALLED.items() if called.attr in names and home != path
        ]
        return "TG202", message, homes[0] if homes else "they are made of functions of torch and methods of its tensors"
    if isinstance(node, ast.keyword) and node.arg in _FORBIDDEN:
        return "TG202", f"`{node.arg}` is not for references", "they write nothing but their result"
    is_operator = isinstance(node, ast.operator | ast.unaryop | ast.boolop | ast.cmpop | ast.expr_context)
    if not is_operator and type(node).__name__ not in (_SYNTAX | _FUNCTIONS if is_peer else _SYNTAX):
        message = f"`{ast.unparse(node)}` is not part of the language"
        return "TG202", message, "a reference is made of calls, operators and literals"
    return None


def _is_allowed(node: ast.Attribute, path: str | None, called: bool, home: frozenset[str]) -> bool:
    """Whether an attribute is a tensor's, a function in `home` that is called, or a dtype or constant of torch."""
    if path is None:
        return node.attr in (METHODS if called else ATTRIBUTES)
    return node.attr in home if called else path == "torch" and node.attr in _VALUES


def _path(node: ast.AST) -> str | None:
    """The module of torch in which an attribute is looked up; None if it is no attribute of torch."""
    if not isinstance(node, ast.Attribute):
        return None
    root: ast.AST = node
    while isinstance(root, ast.Attribute):
        root = root.value
    return ast.unparse(node.value) if isinstance(root, ast.Name) and root.id == "torch" else None
