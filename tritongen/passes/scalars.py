"""Arithmetic on params and constants alone: the host computes it in float64, so that kernels get it rounded once."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..lang.facts import fact
from ..lang.ir import Call, Constant, Node, Op, Ref, Scalar, children
from ..lang.names import fresh
from ..lang.trees import literal, parse, substitute

# The host's expressions of functions, on Python floats.
_HOST = {
    "add": "x + y",
    "sub": "x - y",
    "mul": "x * y",
    "neg": "-x",
    "positive": "x",
    "square": "x * x",
    "abs": "abs(x)",
    "div": "scalars.divide(x, y)",
    "reciprocal": "scalars.divide(1.0, x)",
    "rsqrt": "scalars.divide(1.0, scalars.sqrt(x))",
    "pow": "scalars.power(x, y)",
    **{name: f"scalars.{name}(x)" for name in ("exp", "exp2", "expm1", "log", "log2", "log1p", "sigmoid", "sqrt")},
}
_WORDS = {"add": "plus", "sub": "minus", "mul": "times", "div": "over"}
_CONSTANT_WORDS = {0: "zero", 1: "one", 2: "two", 3: "three", 4: "four", 0.5: "half"}
_LONGEST = 3  # most functions in the name of a scalar


@dataclass(frozen=True, slots=True)
class HostScalar:
    """A scalar that the host computes and passes to kernels: its name, and the host's expression."""

    name: str
    tree: ast.expr


def passed_scalars(op: Op) -> dict[str, str]:
    """The kind of each scalar argument of kernels: numeric params, and scalars that the host computes from them."""
    params = {param.name: param.kind for param in op.params if param.kind in ("float", "int")}
    return params | {one.name: "float" for one in host_scalars(op).values()}


@fact
def host_scalars(op: Op) -> Mapping[Node, HostScalar]:
    """The largest subexpressions of params and constants alone that are floats."""
    found: dict[Node, HostScalar] = {}
    lines, used = set[str](), op.names
    results = {result.output.name for result in op.results}
    for value in op.values:
        for node in _largest(value.node, lines):
            if node in found:
                continue
            is_line = node is value.node and value.name not in results
            name = value.name if is_line else fresh(_named(node) or f"{value.name}_scalar", used)
            found[node] = HostScalar(name, _as_float(_tree(node)))
        if value.node in found and found[value.node].name == value.name:
            lines.add(value.name)
    return found


def _largest(node: Node, lines: set[str]) -> Iterator[Node]:
    if node.dtype.kind == "float" and _is_of_host(node, lines) and not _is_exact(node):
        yield node
        return
    for child in children(node):
        yield from _largest(child, lines)


def _is_exact(node: Node) -> bool:
    """Whether a node rounds nothing: it is a param or a constant, up to its sign and a power of two."""
    match node:
        case Call(function="neg" | "positive" | "abs", args=(arg,)):
            return _is_exact(arg)
        case (
            Call(function="mul" | "div", args=(arg, Constant(value=float() | int() as value)))
            | Call(function="mul", args=(Constant(value=float() | int() as value), arg))
        ):
            return _is_exact(arg) and abs(math.frexp(value)[0]) == 0.5
    return not isinstance(node, Call)


def _is_of_host(node: Node, lines: set[str]) -> bool:
    """Whether the host can compute a node, from constants and numeric params; `lines` are values that it computes."""
    match node:
        case Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case Scalar(dtype=dtype):
            return dtype.kind in ("int", "float")
        case Ref(name=name):
            return name in lines
        case Call(function="pow", dtype=dtype) if dtype.kind == "int":
            return False  # An integer power may have any number of digits.
        case Call(function=function, args=args):
            return function in _HOST and all(_is_of_host(arg, lines) for arg in args)
    return False


def _tree(node: Node) -> ast.expr:
    match node:
        case Constant(value=int() | float() as value):
            return literal(float(value))
        case Call(function=function, args=args):
            return substitute(parse(_HOST[function]), dict(zip("xy", map(_tree, args), strict=False)))
        case Scalar(name=name) | Ref(name=name):
            return ast.Name(name)
    raise AssertionError(f"the host computes no {type(node).__name__}")


def _as_float(tree: ast.expr) -> ast.expr:
    """The scalar as a float, whatever types params are passed as, because kernels are specialized on argument types."""
    is_float = any(isinstance(node, ast.Constant | ast.Attribute) for node in ast.walk(tree))
    return tree if is_float else ast.Call(ast.Name("float"), [tree], [])


def _named(node: Node) -> str:
    """A name that says how the scalar is computed; "" if that would be long."""
    words = _words(node)
    return "_".join(words) if words and len(words) <= 2 * _LONGEST - 1 else ""


def _words(node: Node) -> list[str]:
    match node:
        case Constant(value=int() | float() as value):
            return [_CONSTANT_WORDS[value]] if value in _CONSTANT_WORDS else []
        case Scalar(name=name) | Ref(name=name):
            return [name]
        case Call(function=function, args=args):
            words = [_words(arg) for arg in args]
            if not all(words):
                return []
            first, *others = words
            return [*first, _WORDS.get(function, function), *others[0]] if others else [function, *first]
    return []
