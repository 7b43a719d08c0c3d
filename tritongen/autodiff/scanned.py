"""The gradients of scans, which are scans from the last element back."""

from __future__ import annotations

from dataclasses import dataclass

from ..lang.ir import Node, Ref, Scan, Size
from .algebra import Algebra, position
from .taken import Taken
from .terms import ZERO
from .vanishing import Vanishing


@dataclass(frozen=True)
class Scanned:
    """The gradient by the operand of a scan, whose result is the value `name` of the forward."""

    scan: Scan
    name: str
    algebra: Algebra
    taken: Taken
    vanishing: Vanishing

    def gradients(self, g: Node) -> tuple[Node, ...]:
        """The gradients by the argument and, for a recurrence, by the decay; `g` is the gradient by the result."""
        if self.scan.kind == "cumsum":
            return (self.sum_of_later(g),)
        # cumprod: each element multiplies the result before it, and later elements multiply that. There is no division,
        # so zeros need no special case.
        if self.scan.decay is None:
            return (self.times(self.result_before("1.0"), self.sum_of_decayed(g, self.scan.arg)),)
        later = self.sum_of_decayed(g, self.scan.decay)
        return later, self.times(self.result_before("0.0"), later)

    def sum_of_later(self, g: Node) -> Node:
        """For each element, the sum of `g` over the results that it is added to."""
        over = self.scan.over
        if over in g.axes:
            return Scan("cumsum", g, over, g.axes, g.dtype, reverse=not self.scan.reverse)
        count = "i + 1" if self.scan.reverse else "n - i"
        return self.algebra.parsed(f"g * ({count})", {"g": g, "i": position(over), "n": Size((over,))})

    def sum_of_decayed(self, g: Node, decay: Node) -> Node:
        """For each element, the sum of `g` over the results that contain it, each times the decays in between. If a
        decay may be infinite, it is 0 where `g` of all later results is 0.
        """
        scan, algebra = self.scan, self.algebra
        axes = algebra.order((*g.axes, *scan.axes))
        factor = self.shifted(decay, 1, "0.0")
        if self.is_guarded(factor, g):
            has = algebra.parsed("where(g == 0, 0.0, 1.0)", {"g": g})
            count = self.sum_of_later(has)
            factor = algebra.where(algebra.call("eq", count, has), ZERO, factor)
        return Scan("recurrence", g, scan.over, axes, g.dtype, factor, reverse=not scan.reverse)

    def times(self, before: Node, later: Node) -> Node:
        """The product; 0 where `later` is 0, if `before` may be infinite."""
        product = self.algebra.call("mul", before, later)
        is_zero = self.algebra.plain("eq", later, ZERO)
        return self.algebra.where(is_zero, ZERO, product) if self.is_guarded(before, later) else product

    def is_guarded(self, factor: Node, g: Node) -> bool:
        return self.vanishing.vanishes(g) and self.vanishing.is_infinite(factor, lambda _: True)

    def result_before(self, first: str) -> Node:
        """The result of the scan one element earlier, and `first` at the first element."""
        return self.shifted(Ref(self.name, self.scan.axes, self.scan.dtype), -1, first)

    def shifted(self, node: Node, step: int, other: str) -> Node:
        """The node shifted by one element, forwards or backwards along the scan; `other` where there is none."""
        step = -step if self.scan.reverse else step
        at, test = ("i + 1", "i + 1 < n") if step > 0 else ("i - 1", "i > 0")
        names: dict[str, Node] = {"i": position(self.scan.over), "n": Size((self.scan.over,))}
        moved = self.taken.at(node, self.scan.over, self.algebra.parsed(at, names))
        return self.algebra.parsed(f"where({test}, x, {other})", names | {"x": moved})
