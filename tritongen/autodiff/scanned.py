"""The gradients of scans, which are scans in the other direction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..lang.ir import Constant, Dtype, Node, Ref, Scan, Size
from .algebra import Algebra, position
from .taken import Taken


@dataclass(frozen=True)
class Scanned:
    """Gradients by what a scan is of, whose result is the value of a name."""

    scan: Scan
    name: str
    algebra: Algebra
    taken: Taken

    def gradients(self, g: Node) -> Iterator[tuple[Node, Node]]:
        """What the scan is of, each with the gradient by it, where that by the result is g."""
        scan, x = self.scan, self.scan.arg
        match scan.kind:
            case "cumsum":
                yield x, self.sum_of_later(g)
            case "cumprod":
                # An element multiplies what comes before it, and what follows multiplies it in turn: no division, so
                # that zeros are elements like others.
                yield x, self.algebra.call("mul", self.result_before(1.0), self.decayed(x, g))
            case "linear_recurrence":
                assert scan.decay is not None
                by_x = self.decayed(scan.decay, g)
                yield x, by_x
                yield scan.decay, self.algebra.call("mul", by_x, self.result_before(0.0))

    def sum_of_later(self, g: Node) -> Node:
        """Of each element, the sum of g over those that it is added to."""
        over = self.scan.over
        if over in g.axes:
            return Scan("cumsum", g, over, g.axes, g.dtype, reverse=not self.scan.reverse)
        names = {"g": g, "i": position(over), "n": Size((over,))}
        return self.algebra.parsed("g * (i + 1)" if self.scan.reverse else "g * (n - i)", names)

    def decayed(self, decay: Node, g: Node) -> Node:
        """What g is to each element, since an element times the decay of the next one is added to that."""
        scan = self.scan
        axes = self.algebra.order((*g.axes, *scan.axes))
        following = self.beside(decay, 0.0, later=True)
        return Scan("linear_recurrence", g, scan.over, axes, g.dtype, following, not scan.reverse)

    def result_before(self, start: float) -> Node:
        """The result of the scan at the element before each, which is a number at the start."""
        scan = self.scan
        return self.beside(Ref(self.name, scan.axes, scan.dtype), start, later=False)

    def beside(self, node: Node, end: float, later: bool) -> Node:
        """A node at the next element or the one before, in the direction of the scan; a number where there is none."""
        over, ahead = self.scan.over, later != self.scan.reverse
        if over not in node.axes:
            moved = node
        else:
            moved = self.taken.at(node, over, self.algebra.parsed("i + 1" if ahead else "i - 1", {"i": position(over)}))
        names = {"x": moved, "i": position(over), "n": Size((over,)), "end": Constant(end, Dtype("float"))}
        return self.algebra.parsed("where(i + 1 < n, x, end)" if ahead else "where(i > 0, x, end)", names)
