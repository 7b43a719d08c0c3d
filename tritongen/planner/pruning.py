"""Rejects subgraphs that no kernel computes, by their values alone, before families are asked.

A search for a cut tries thousands of subgraphs. Most of those that no kernel computes have matmuls next to other
reductions, or to results with more axes; or reductions along different axes, each of which other values read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..lang.ir import Call, Cast, Constant, Index, Load, Op, Reduce, Ref, Result, Scalar, Size, Value
from ..passes.contractions import free_sides
from ..passes.structure import is_extremum, reached

# Other math has kernels of its own, which are not judged here.
PLAIN = frozenset({Call, Cast, Constant, Index, Load, Reduce, Ref, Scalar, Size})


@dataclass(frozen=True, slots=True)
class _Sum:
    """A reduction `over` some axes, certainly a matmul if it has `sides`: the summed axes, and the free axes of either
    operand. `bit` stands for it in sets of reductions, `below` is the set of reductions that it depends on.
    """

    bit: int
    below: int
    over: frozenset[str]
    axes: frozenset[str]
    sides: tuple[frozenset[str], ...]
    may_be_matmul: bool


class Pruning:
    """Rejects subgraphs of an operator by the names of the values that they compute."""

    def __init__(self, op: Op) -> None:
        sums = {value.name: value.node for value in op.values if isinstance(value.node, Reduce)}
        self.strips = {name for name, node in sums.items() if node.strips}
        bits = {name: 1 << place for place, name in enumerate(sums)}
        # A value that is read as it is stored is a single factor, whatever products it is computed from.
        stored = op.of(Value(value.name, Constant(0.0, value.node.dtype), "") for value in op.values)
        self.sums = {name: _sum(op, stored, sums[name], name, bits) for name in sums.keys() - self.strips}
        self.read = {name: sum(bits[one] for one in refs & sums.keys()) for name, refs in op.refs.items()}
        self.others = {value.name for value in op.values if not value.node.kinds <= PLAIN or value.node.gathers}
        self.masked = {value.name for value in op.values if Index in value.node.kinds}
        # Only fixed lengths can make heads as narrow as a tile, and groups of columns or rows as short as one. With
        # exponentials, heads are likely to be narrow.
        self.is_long = not op.sizes
        self.extrema = {name for name, node in sums.items() if is_extremum(node)} - self.strips
        self.powers = {value.name for value in op.values if any("exp" in one for one in value.node.functions)}

    def refuses(self, computed: frozenset[str], targets: Iterable[Result]) -> bool:
        """Whether certainly no kernel computes the values in `computed`, with `targets` as its results."""
        if not self.others.isdisjoint(computed):
            return False
        sums = [self.sums[name] for name in computed if name in self.sums]
        matmuls = [one for one in sums if one.sides]
        is_masked = not self.masked.isdisjoint(computed)  # Kernels may stream masked math, however long its rows are.
        if not matmuls:
            return not is_masked and self.reads_along_several(computed, sums)
        if len({one.over for one in matmuls}) > 1 and self.is_not_streamed(computed, sums, matmuls):
            return True
        return not is_masked and self.has_more_than(matmuls[0], computed, sums, targets)

    def is_not_streamed(self, computed: frozenset[str], sums: Sequence[_Sum], matmuls: Iterable[_Sum]) -> bool:
        """Whether certainly no kernel streams these matmuls over different axes; other kernels have no such. Streaming
        kernels compute at most one maximum; their matmuls read other reductions, are read by some, or share their axes.
        """
        every, read = sum(one.bit for one in sums), 0
        streamed = set[str]()
        for one in sums:
            read |= one.below
            streamed |= one.over if one.below & every else set()
        separate = (one for one in matmuls if not one.below & every and not one.bit & read)
        return len(self.extrema & computed) > 1 or any(streamed.isdisjoint(one.over) for one in separate)

    def has_more_than(
        self, first: _Sum, computed: frozenset[str], sums: Sequence[_Sum], targets: Iterable[Result]
    ) -> bool:
        """Whether certainly no kernel of the matmul `first` computes the other reductions and results, too."""
        if not self.is_long or not self.powers.isdisjoint(computed):
            every = sum(one.bit for one in sums)
            if not self.strips.isdisjoint(computed) or any(one.below & every for one in sums):
                return False  # A kernel may stream them, or reduce rows of its tiles.
        axes = [frozenset(target.axes) for target in targets if target.output.name not in self.strips]
        if any(one == first.axes | first.sides[0] for one in axes):  # It may be column sums of a result, its terms.
            return False
        is_other = any(one.sides not in ((), first.sides) or not one.may_be_matmul for one in sums)
        return is_other or any(not one <= first.axes for one in axes)

    def reads_along_several(self, computed: frozenset[str], sums: Iterable[_Sum]) -> bool:
        """Whether values of a kernel without matmuls read reductions along different axes: it iterates over rows, and
        sums over rows are complete only when it has ended.
        """
        if not self.is_long or not self.strips.isdisjoint(computed) or any(one.may_be_matmul for one in sums):
            return False
        read = 0
        for name in computed:
            read |= self.read[name]
        return len({one.over for one in sums if one.bit & read}) > 1


def _sum(op: Op, stored: Op, node: Reduce, name: str, bits: Mapping[str, int]) -> _Sum:
    """The `_Sum` of a reduction; it has `sides` only if they are the same with all values read as `stored`."""
    made, read = ({*free_sides(one, node)} for one in (op, stored))
    over = frozenset(node.over)
    sides = (over, *sorted(read, key=sorted)) if made and made == read else ()
    below = sum(bits[one] for one in reached(op.refs, op.refs[name], ()) & bits.keys())
    return _Sum(bits[name], below, over, frozenset(node.axes), sides, bool(made or read))
