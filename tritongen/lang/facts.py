"""What follows from an operator, found out once, however many stages ask for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

from .ir import Op

P = ParamSpec("P")
T = TypeVar("T")


def fact(found: Callable[Concatenate[Op, P], T]) -> Callable[Concatenate[Op, P], T]:
    """A function of an operator and other arguments, which is called once for each operator and these.

    What it returns is stored with the operator, and forgotten with it. It is not to be changed.
    """

    @wraps(found)
    def once(op: Op, /, *args: P.args, **named: P.kwargs) -> T:
        key = (found, *args, *named.items())
        if key not in op.facts:
            op.facts[key] = found(op, *args, **named)
        return cast("T", op.facts[key])

    return once
