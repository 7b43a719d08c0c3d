"""Quotients and negations that functions read which jump: a last digit or the sign of zero decides what they give."""

from __future__ import annotations

from dataclasses import replace

from .ir import Call, Node, Ref, Value
from .rewrite import rebuild

# How kernels spell them where they are exact.
EXACT = {"div": "quotient(x, other)", "reciprocal": "quotient(1.0, x)", "neg": "negative(x)"}
# Integer functions, by which quotients are rounded, and those that read the sign of zero in some arguments.
_OF_QUOTIENTS = frozenset("floor ceil trunc round frac floor_divide remainder fmod".split())
_OF_SIGNS = {"atan2": (0, 1), "copysign": (1,), "signbit": (0,), "div": (1,), "reciprocal": (0,)}
# What hands on the last digit and the sign of what it is of.
_ON = frozenset("add sub mul neg abs positive maximum minimum clamp clamp_min clamp_max where detach".split())


def exact_arguments(name: str, args: tuple[Node, ...], values: dict[str, Value]) -> tuple[Node, ...]:
    """The arguments of a function, of which quotients and negations that it jumps at are exact. So are they in lines
    that are among them, of `values`.
    """
    if name in _OF_QUOTIENTS:
        return tuple(with_exact(arg, ("div", "reciprocal"), values) for arg in args)
    places = _OF_SIGNS.get(name, ())
    return tuple(with_exact(arg, ("neg",), values) if n in places else arg for n, arg in enumerate(args))


def with_exact(node: Node, functions: tuple[str, ...], values: dict[str, Value]) -> Node:
    """The node, with exact calls of some functions, as far as it hands them on."""
    if isinstance(node, Ref) and node.name in values:
        value = values[node.name]
        values[node.name] = value.of(with_exact(value.node, functions, values))
    if not isinstance(node, Call):
        return node
    if node.function in functions:
        return replace(node, exact=True)
    if node.function not in _ON:
        return node
    return rebuild(node, tuple(with_exact(arg, functions, values) for arg in node.args))
