"""What is multiplied in the sums of a streaming kernel, and which of that may be taken out of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...lang.ir import Call, Constant, Load, Node, Op, Reduce, Ref, walk
from ...lowering.tile import needed
from ...passes.contractions import applied
from ...passes.exponentials import resolve
from ...passes.masks.scores import Mask, mask_of
from ...passes.masks.tiles import conjuncts
from ...passes.structure import references
from ..stream import unless_zero


class Factors:
    """Factors products of an operator whose exponentials are below the `largest`, if there is one."""

    op: Op
    streamed: str
    largest: str

    def streams(self, node: Node) -> bool:
        return self.streamed in node.axes

    def needed(self, nodes: Iterable[Node]) -> list[str]:
        """The values that some nodes are made of, in order."""
        return [value.name for value in needed(self.op.values, set().union(*map(references, nodes)))]

    def is_summed(self, node: Node) -> bool:
        """Whether a node is made of something that is reduced along the streamed axis."""
        below = (part for name in self.needed([node]) for part in walk(self.op.value(name).node))
        return any(isinstance(part, Reduce) and self.streamed in part.over for part in below)

    def factors(self, node: Node) -> Iterator[tuple[Node, bool]]:
        """What a node multiplies and divides by. A line whose factors all stream, and are no matrices, stays a line."""
        match node:
            case Call(function="mul", args=args):
                for arg in args:
                    yield from self.factors(arg)
            case Call(function="div", args=(above, below)) if not self.streams(below):
                yield from self.factors(above)
                yield below, True
            case Call(function="div", args=(above, below)) if not isinstance(above, Constant):
                yield from self.factors(above)
                yield applied("div", Constant(1.0, above.dtype), below), False
            case Call(function="where") if (chosen := self.chosen_of_means(node)) is not None:
                yield from self.chosen_factors(chosen, node)
            case Ref(name=name):
                found = list(self.factors(self.op.value(name).node))
                separate = any(not self.streams(factor) or isinstance(factor, Load) for factor, _ in found)
                yield from found if separate and len(found) > 1 else [(node, False)]
            case _:
                yield node, False

    def chosen_factors(self, chosen: Mask, node: Node) -> Iterator[tuple[Node, bool]]:
        """What a choice of a product or 0 multiplies and divides by."""
        conditions, mask = self.conditions(chosen.condition), self.mask()
        is_masked = mask is not None and mask <= conditions
        of_rows = [] if is_masked else sorted((c for c in conditions if not self.streams(c)), key=repr)
        for factor, is_divisor in self.factors(chosen.score):
            is_sum = is_divisor and self.is_summed(factor)
            is_zero = is_sum and (is_masked or of_rows)
            yield unless_zero(factor, of_rows) if is_zero else factor, is_divisor
        if conditions != mask:
            constants = (Constant(number, node.dtype) for number in (1.0, 0.0))
            yield Call("where", (chosen.condition, *constants), chosen.condition.axes, node.dtype), False

    def chosen_of_means(self, node: Node) -> Mask | None:
        """What is chosen, or else 0, and has a sum along the streamed axis as a factor, as what dropout leaves has.

        Fully masked rows, whose sums are 0, are 0 and not NaN where what is masked is not chosen.
        """
        found = mask_of(self.op, node, 0.0) if self.largest else None
        if found is None or not self.streams(found.condition):
            return None
        factors = list(self.factors(found.score))
        sums = [is_divisor for factor, is_divisor in factors if not self.streams(factor) and self.is_summed(factor)]
        mask = self.mask()
        is_guarded = all(sums) or mask is None or not mask <= self.conditions(found.condition)
        return found if sums and is_guarded and len(sums) < len(factors) else None

    def mask(self) -> set[Node] | None:
        """The conditions outside of which scores are masked."""
        largest = self.op.value(self.largest).node
        assert isinstance(largest, Reduce)
        mask = mask_of(self.op, largest.arg, float("-inf"))
        return None if mask is None else self.conditions(mask.condition)

    def conditions(self, condition: Node) -> set[Node]:
        return {resolve(self.op, part) for part in conjuncts(self.op, condition)}
