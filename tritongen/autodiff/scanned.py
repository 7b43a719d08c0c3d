"""The gradients of scans, which are scans from the last element back."""

from __future__ import annotations

from dataclasses import dataclass

from ..lang.ir import Node, Ref, Scan, Size
from .algebra import Algebra, position
from .taken import Taken


@dataclass(frozen=True)
class Scanned:
    """The gradient by what a forward scans, whose result is the value of a name."""

    scan: Scan
    name: str
    algebra: Algebra
    taken: Taken

    def gradient(self, g: Node) -> Node:
        """The gradient, where that by the result is g."""
        if self.scan.kind == "cumsum":
            return self.sum_of_later(g)
        # An element multiplies what comes before it, and what follows multiplies it in turn: no division, so that zeros
        # are elements like others.
        return self.algebra.call("mul", self.product_before(), self.products_after(g))

    def sum_of_later(self, g: Node) -> Node:
        """Of each element, the sum of g over those that it is added to."""
        over = self.scan.over
        if over in g.axes:
            return Scan("cumsum", g, over, g.axes, g.dtype, reverse=True)
        return self.algebra.parsed("g * (n - i)", {"g": g, "i": position(over), "n": Size((over,))})

    def products_after(self, g: Node) -> Node:
        """Of each element, the sum of g over those that it multiplies, each times the elements between."""
        scan, following = self.scan, self.beside(self.scan.arg, "i + 1", "where(i + 1 < n, x, 0.0)")
        axes = self.algebra.order((*g.axes, *scan.axes))
        return Scan("linear_recurrence", g, scan.over, axes, g.dtype, following, reverse=True)

    def product_before(self) -> Node:
        """The result of the scan at the element before each, 1 at the first."""
        scan = self.scan
        return self.beside(Ref(self.name, scan.axes, scan.dtype), "i - 1", "where(i > 0, x, 1.0)")

    def beside(self, node: Node, at: str, text: str) -> Node:
        """An expression of a node's element `at` another position."""
        names: dict[str, Node] = {"i": position(self.scan.over), "n": Size((self.scan.over,))}
        moved = self.taken.at(node, self.scan.over, self.algebra.parsed(at, names))
        return self.algebra.parsed(text, names | {"x": moved})
