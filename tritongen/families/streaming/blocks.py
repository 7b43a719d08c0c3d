"""Which blocks of the streamed axis a tile of rows needs, and which of those it needs as a whole."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from ...lang.ir import Call, Node, Op, Reduce, Ref
from ...lowering.lines import Line
from ...passes.exponentials import resolve
from ...passes.masks.expressions import ZERO, Apply, Expression, Extreme, First, Last, Number, Sum, Value, parts_of
from ...passes.masks.scores import mask_of
from ...passes.masks.tiles import Tiles, conjuncts, tiles_of
from ..stream import Stream


@dataclass(frozen=True, slots=True)
class Blocks:
    """What masks tell of the blocks that a tile of rows meets.

    `tiles` has the ranges; None where there is no mask. Conditions in `decided` are true in whole blocks.
    """

    rows: str
    tiles: Tiles | None = None
    decided: frozenset[Node] = frozenset()

    @property
    def parts(self) -> tuple[str, ...]:
        """The runs of blocks in their order, each masked or whole."""
        if self.tiles is None:
            return ("whole", "masked")
        from_start = self.tiles.some.first == self.tiles.every.first == ZERO
        return ("whole", "masked") if from_start else ("masked", "whole", "masked")

    def implied(self, op: Op, test: Node) -> bool:
        """Whether a condition is true in whole blocks."""
        return all(resolve(op, part) in self.decided for part in conjuncts(op, test))

    @property
    def values(self) -> list[Node]:
        """The values of the math of which the ranges are made."""
        if self.tiles is None:
            return []
        ends = (self.tiles.some.first, self.tiles.some.last, self.tiles.every.first, self.tiles.every.last)
        return [part.node for end in ends for part in parts_of(end) if isinstance(part, Value)]

    def lines(self, spelled: Callable[[Node], str]) -> list[Line]:
        """The line that tells the bounds of the runs."""
        if self.tiles is None:
            return [Line("bounds = (0, n_cols // BLOCK_N * BLOCK_N, n_cols)", "Whole blocks need no mask.")]
        some, every = self.tiles.some, self.tiles.every
        ends = [some.first, every.first, every.last, some.last]
        ends = ends if len(self.parts) > 2 else ends[2:]
        texts = ", ".join(self.spelled(end, spelled) for end in ends)
        function = "blocks_from_start" if len(ends) == 2 else "blocks_between"
        says = "Blocks that are masked away are skipped, and those that are needed as a whole need no mask."
        return [Line(f"bounds = {function}({texts}, BLOCK_N)", says)]

    def spelled(self, expression: Expression, value: Callable[[Node], str]) -> str:
        """An expression, in int64: that of a sum begins with positions of the tile, which are."""

        def text_of(part: Expression) -> str:
            return self.spelled(part, value)

        match expression:
            case Number(value=number):
                return str(number)
            case First():
                return "first_row"
            case Last():
                return "first_row + (BLOCK_M - 1)"
            case Value(node=node):
                return value(node)
            case Sum(terms=terms, constant=constant):
                texts = {term: text_of(term) for term, _ in terms}
                if constant > 0 and dict(terms).get(last := Last(self.rows)) == 1:  # One beyond the last is a block on.
                    texts[last], constant = "first_row + BLOCK_M", constant - 1
                found = ""
                for term, factor in terms:
                    times = f"{abs(factor)} * " if abs(factor) != 1 else ""
                    sign = ("- " if factor < 0 else "+ ") if found else "-" if factor < 0 else ""
                    inner = texts[term] if isinstance(term, Last) and factor == 1 else operand(texts[term])
                    found += f"{' ' if found else ''}{sign}{times}{inner}"
                return f"{found} {'-' if constant < 0 else '+'} {abs(constant)}" if constant else found
            case Apply(function="held", args=(arg,)):
                return f"hold({text_of(arg)})"
            case Apply(function="floor_divide", args=(above, by)):
                return f"floor_divide_int({text_of(above)}, {text_of(by)})"
            case Apply(function="mul", args=args):
                return " * ".join(operand(text_of(arg)) for arg in args)
            case Apply(function="minimum" | "maximum" as function, args=args):
                found, *others = map(text_of, args)
                for other in others:
                    found = f"tl.{function}({found}, {other})"
                return found
            case Apply(function="where", args=args):
                return f"tl.where({', '.join(map(text_of, args))})"
            case Apply(function="ge" | "gt" as function, args=args):
                sign = {"ge": ">=", "gt": ">"}[function]
                return f" {sign} ".join(operand(text_of(arg)) for arg in args)
            case Apply(function="and" | "or" as function, args=args):
                return {"and": " & ", "or": " | "}[function].join(f"({text_of(arg)})" for arg in args)
            case Apply(function="not", args=(arg,)):
                return f"~({text_of(arg)})"
        raise AssertionError(f"nothing spells {expression}")


def blocks_of(op: Op, stream: Stream) -> Blocks:
    masks = [mask_of(op, score, neutral) for score, neutral in masked(op, stream)]
    conditions = {mask.condition for mask in masks if mask is not None and mask.exact}
    if len(conditions) != 1 or None in masks:
        return Blocks(stream.rows)
    (condition,) = conditions
    tiles = tiles_of(op, condition, stream.rows, stream.streamed)
    ends = (tiles.some.first, tiles.some.last, tiles.every.first, tiles.every.last)
    if any(isinstance(part, Extreme) for end in ends for part in parts_of(end)):
        return Blocks(stream.rows)
    rest = set() if tiles.rest is None else {resolve(op, part) for part in conjuncts(op, tiles.rest)}
    return Blocks(stream.rows, tiles, frozenset({resolve(op, part) for part in conjuncts(op, condition)} - rest))


def masked(op: Op, stream: Stream) -> list[tuple[Node, float]]:
    """What may be masked: the score that is taken below the largest, or else what each sum adds, with its neutral."""
    if stream.largest:
        node = op.value(stream.largest).node
        assert isinstance(node, Reduce)
        return [(node.arg, float("-inf"))]
    found: list[tuple[Node, float]] = []
    for one in stream.sums:
        power = next(
            (part for part in below(op, one.factor) if isinstance(part, Call) and part.function == "exp"), None
        )
        found.append((one.factor, 0.0) if power is None else (power.args[0], float("-inf")))
    return found


def below(op: Op, node: Node) -> list[Node]:
    """What a product is made of, through the lines that it refers to."""
    match node:
        case Ref(name=name):
            return below(op, op.value(name).node)
        case Call(function="mul", args=args):
            return [part for arg in args for part in below(op, arg)]
        case Call(function="div", args=(above, _)):
            return below(op, above)
    return [node]


def operand(text: str) -> str:
    """A text as one operand of others."""
    return text if isinstance(ast.parse(text, mode="eval").body, ast.Name | ast.Call | ast.Constant) else f"({text})"
