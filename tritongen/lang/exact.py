"""Quotients and negations in arguments of discontinuous functions, where the last bit or the sign of zero matters."""

from __future__ import annotations

from dataclasses import replace

from .ir import Call, Node, Ref, Value
from .rewrite import rebuild

# The spelling of `exact` calls in kernels.
EXACT = {"div": "quotient(x, other)", "reciprocal": "quotient(1.0, x)", "neg": "negative(x)"}
# Functions that round to integers, and functions that read the sign of zero of the arguments at some positions.
_OF_QUOTIENTS = frozenset("floor ceil trunc round frac floor_divide remainder fmod".split())
_OF_SIGNS = {"atan2": (0, 1), "copysign": (1,), "signbit": (0,), "div": (1,), "reciprocal": (0,)}
# Functions that propagate the last bit and the sign of zero of their arguments.
_ON = frozenset("add sub mul neg abs positive maximum minimum clamp clamp_min clamp_max where detach".split())


def exact_arguments(name: str, args: tuple[Node, ...], values: dict[str, Value]) -> tuple[Node, ...]:
    """The arguments of a function, with quotients or negations marked `exact` if the function is discontinuous in them.
    Lines that the arguments reference are replaced in `values`.
    """
    if name in _OF_QUOTIENTS:
        return tuple(with_exact(arg, ("div", "reciprocal"), values) for arg in args)
    places = _OF_SIGNS.get(name, ())
    return tuple(with_exact(arg, ("neg",), values) if n in places else arg for n, arg in enumerate(args))


def with_exact(node: Node, functions: tuple[str, ...], values: dict[str, Value]) -> Node:
    """The node with calls of `functions` marked `exact`, down through functions and lines that propagate them."""
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
