"""Expressions of the ends of ranges, as a kernel spells them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce

from ...lang.ir import Load, Node
from ...lang.trees import parse
from ...passes.masks.expressions import Apply, Expression, Extreme, First, Last, Number, Sum, Value


@dataclass(frozen=True, slots=True)
class Spelling:
    """What a kernel calls the axis of its rows, the first row of a tile, and values of the math.

    Where what streams is paged, the last row is not as many behind the first as the tile has.
    """

    rows: str
    first_row: str
    is_paged: bool
    value: Callable[[Node], str]

    def text(self, expression: Expression) -> str:
        """An expression, in int64: that of a sum begins with positions of the tile, which are."""
        match expression:
            case Number(value=number):
                return str(number)
            case First(axis=self.rows):
                return self.first_row
            case Last(axis=self.rows) if self.is_paged:
                return "last_row"
            case Last(axis=self.rows):
                return "first_row + (BLOCK_M - 1)"
            case First():
                return "starts"
            case Last():
                return "starts + (BLOCK_N - 1)"
            case Extreme(kind=kind, node=Load(name=name)):
                return f"{name}_{kind}"
            case Value(node=node):
                return self.value(node)
            case Sum():
                return self.sum(expression)
            case Apply(function=function, args=args):
                return APPLIED[function](list(map(self.text, args)))
        raise AssertionError(f"nothing spells {expression}")

    def sum(self, expression: Sum) -> str:
        constant, next_block = expression.constant, None
        if constant > 0 and not self.is_paged and (Last(self.rows), 1) in expression.terms:
            next_block, constant = Last(self.rows), constant - 1  # One beyond the last is a block on.
        terms = []
        for term, factor in expression.terms:
            text = "first_row + BLOCK_M" if term == next_block else self.text(term)
            terms.append((text if isinstance(term, Last) and factor == 1 else operand(text), factor))
        return added(terms, constant)


def operand(text: str) -> str:
    """A text as one operand of others."""
    return text if isinstance(parse(text), ast.Name | ast.Call | ast.Constant) else f"({text})"


def added(terms: Iterable[tuple[str, int]], constant: int) -> str:
    """A sum of operands, each times a factor."""
    signed = [("" if abs(factor) == 1 else f"{abs(factor)} * ", text, factor) for text, factor in terms]
    signed += [("", str(abs(constant)), constant)] * bool(constant)
    found = " ".join(f"{'-' if factor < 0 else '+'} {times}{text}" for times, text, factor in signed)
    return f"-{found[2:]}" if found.startswith("-") else found.removeprefix("+ ")


def _of_pairs(function: str) -> Callable[[list[str]], str]:
    return lambda args: reduce(lambda found, other: f"tl.{function}({found}, {other})", args)


# How a kernel spells what `Apply` applies to some texts.
APPLIED: dict[str, Callable[[list[str]], str]] = {
    "held": lambda args: f"hold({args[0]})",
    "floor_divide": lambda args: f"floor_divide_int({', '.join(args)})",
    "mul": lambda args: " * ".join(map(operand, args)),
    "minimum": _of_pairs("minimum"),
    "maximum": _of_pairs("maximum"),
    "where": lambda args: f"tl.where({', '.join(args)})",
    "ge": " >= ".join,
    "gt": " > ".join,
    "and": lambda args: f"({') & ('.join(args)})",
    "or": lambda args: f"({') | ('.join(args)})",
    "not": lambda args: f"~({args[0]})",
}
