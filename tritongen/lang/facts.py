"""Cached analyses of an operator: each is computed once, however many stages ask for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

from .ir import Op

P = ParamSpec("P")
T = TypeVar("T")


def fact(found: Callable[Concatenate[Op, P], T]) -> Callable[Concatenate[Op, P], T]:
    """Decorator that caches a function of an operator and further hashable arguments.

    Results are stored in `op.facts` and freed with the operator. Callers must not modify them.
    """

    @wraps(found)
    def once(op: Op, /, *args: P.args, **named: P.kwargs) -> T:
        key = (found, *args, *named.items())
        if key not in op.facts:
            op.facts[key] = found(op, *args, **named)
        return cast("T", op.facts[key])

    return once
