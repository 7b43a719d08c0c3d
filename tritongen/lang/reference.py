"""What a spec's reference expression may say, since it goes into generated files as it is."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator

from ..diagnostics.report import Mistake
from ..spec.types import DTYPE_CLASSES, Spec
from .syntax import NotAnExpression, Text
from .torch_names import ATTRIBUTES, CALLED, METHODS

_VALUES = frozenset((*DTYPE_CLASSES["any"], "inf", "nan", "pi", "e"))
# Arguments by which a function would write to something else than its result.
_FORBIDDEN = frozenset(("generator", "inplace", "out"))
_SYNTAX = (
    ast.Constant,
    ast.Name,
    ast.Attribute,
    ast.Call,
    ast.keyword,
    ast.Subscript,
    ast.Slice,
    ast.Tuple,
    ast.List,
    ast.Starred,
    ast.UnaryOp,
    ast.BinOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
)
_KEY = ("reference", "torch")


def reference_mistakes(spec: Spec) -> list[Mistake]:
    """What of the reference expression may not go into a generated file."""
    if not spec.reference:
        return []
    text = Text(spec.reference)
    try:
        tree = text.parse()
    except NotAnExpression as error:
        return [Mistake("TG201", error.message, _KEY, error.start, hint=error.hint)]
    names = {tensor.name for tensor in spec.inputs} | {param.name for param in spec.params}
    return list(_mistakes(tree, names, text))


def _mistakes(node: ast.AST, names: set[str], text: Text) -> Iterator[Mistake]:
    """The outermost mistakes at and below a node."""
    told = _wrong(node, names)
    if told:
        code, message, hint = told
        yield Mistake(code, message, _KEY, *text.span(node), hint)
        return
    if _path(node):
        return
    for part in ast.iter_child_nodes(node):
        if isinstance(node, ast.Call) and part is node.func and isinstance(part, ast.Attribute):
            if _path(part):  # It was looked at just now, as were methods, but for what they are of.
                continue
            part = part.value
        yield from _mistakes(part, names, text)


def _wrong(node: ast.AST, names: set[str]) -> tuple[str, str, str] | None:
    """What is wrong with a node itself: code, message and hint."""
    if isinstance(node, ast.Name) and node.id not in names:
        close = difflib.get_close_matches(node.id, sorted(names), 1)
        known = "it sees the inputs, the params and functions of torch"
        return "TG203", f"{node.id} is not defined", f"did you mean {close[0]}?" if close else known
    called = node.func if isinstance(node, ast.Call) else node
    path = _path(called)
    if isinstance(called, ast.Attribute) and not _is_allowed(called, path, called is not node):
        message = f"`{ast.unparse(called)}` is not for references"
        homes = [
            f"write {home}.{called.attr}" for home, names in CALLED.items() if called.attr in names and home != path
        ]
        return "TG202", message, homes[0] if homes else "they are made of functions of torch and methods of its tensors"
    if isinstance(node, ast.keyword) and node.arg in _FORBIDDEN:
        return "TG202", f"`{node.arg}` is not for references", "they write nothing but their result"
    if not isinstance(node, _SYNTAX):
        message = f"`{ast.unparse(node)}` is not part of the language"
        return "TG202", message, "a reference is made of calls, operators and literals"
    return None


def _is_allowed(node: ast.Attribute, path: str | None, called: bool) -> bool:
    """Whether an attribute is a tensor's, or a function that torch is asked to call, or a dtype."""
    if path is None:
        return node.attr in (METHODS if called else ATTRIBUTES)
    return node.attr in CALLED.get(path, ()) if called else path == "torch" and node.attr in _VALUES


def _path(node: ast.AST) -> str | None:
    """Where in torch an attribute is looked up, None for one of anything else."""
    if not isinstance(node, ast.Attribute):
        return None
    root: ast.AST = node
    while isinstance(root, ast.Attribute):
        root = root.value
    return ast.unparse(node.value) if isinstance(root, ast.Name) and root.id == "torch" else None
