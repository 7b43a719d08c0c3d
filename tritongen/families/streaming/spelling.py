"""Expressions of the ends of ranges, as a kernel spells them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from ...lang.ir import Load, Node
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
            case Sum(terms=terms, constant=constant):
                texts = {term: self.text(term) for term, _ in terms}
                last = Last(self.rows)
                if constant > 0 and dict(terms).get(last) == 1 and not self.is_paged:
                    # One beyond the last is a block on.
                    texts[last], constant = "first_row + BLOCK_M", constant - 1
                found = ""
                for term, factor in terms:
                    times = f"{abs(factor)} * " if abs(factor) != 1 else ""
                    sign = ("- " if factor < 0 else "+ ") if found else "-" if factor < 0 else ""
                    inner = texts[term] if isinstance(term, Last) and factor == 1 else operand(texts[term])
                    found += f"{' ' if found else ''}{sign}{times}{inner}"
                return f"{found} {'-' if constant < 0 else '+'} {abs(constant)}" if constant else found
            case Apply(function="held", args=(arg,)):
                return f"hold({self.text(arg)})"
            case Apply(function="floor_divide", args=(above, by)):
                return f"floor_divide_int({self.text(above)}, {self.text(by)})"
            case Apply(function="mul", args=args):
                return " * ".join(operand(self.text(arg)) for arg in args)
            case Apply(function="minimum" | "maximum" as function, args=args):
                found, *others = map(self.text, args)
                for other in others:
                    found = f"tl.{function}({found}, {other})"
                return found
            case Apply(function="where", args=args):
                return f"tl.where({', '.join(map(self.text, args))})"
            case Apply(function="ge" | "gt" as function, args=args):
                sign = {"ge": ">=", "gt": ">"}[function]
                return f" {sign} ".join(map(self.text, args))
            case Apply(function="and" | "or" as function, args=args):
                return {"and": " & ", "or": " | "}[function].join(f"({self.text(arg)})" for arg in args)
            case Apply(function="not", args=(arg,)):
                return f"~({self.text(arg)})"
        raise AssertionError(f"nothing spells {expression}")


def operand(text: str) -> str:
    """A text as one operand of others."""
    return text if isinstance(ast.parse(text, mode="eval").body, ast.Name | ast.Call | ast.Constant) else f"({text})"
