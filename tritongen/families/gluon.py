"""What Gluon kernels of all families share: the lines of plain kernels in Gluon's spelling."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable

from ..lang.trees import walk
from ..nest.ir import Line, lines_of, names_of, with_values
from ..nest.values import Expr, V

# What Gluon has of what kernels call of Triton's language.
SHARED = frozenset(
    "abs arange cdiv ceil cos exp exp2 floor float32 full int32 int64 log log2 maximum minimum rsqrt sin sqrt store sum"
    " where".split()
)


def calls_only(lines: Iterable[Line], names: Container[str]) -> bool:
    """Whether some lines call no more of Triton's language than some names."""
    every = (node for line in lines_of(lines) for value in line.values for node in walk(value.tree))
    return all(node.attr in names for node in every if isinstance(node, ast.Attribute) and Expr(node.value) == V.tl)


def names_in(lines: Iterable[Line], names: Iterable[str]) -> list[str]:
    """Those of some names that are in some lines."""
    known = names_of(lines)
    return [name for name in names if name in known]


def listed(names: Iterable[str]) -> str:
    """Names in front of other arguments."""
    return "".join(f"{name}, " for name in names)


def in_gluon(lines: Iterable[Line]) -> list[Line]:
    return [*with_values((*lines,), gluon_value)]


def gluon_value(value: Expr) -> Expr:
    return value.with_names({"tl": V.gl})
