"""What no kernel computes, found by values alone before an operator is made of them and offered to families.

A search for a cut asks of thousands of subgraphs whether one kernel takes them. Most that none does have matmuls beside
other reductions, or results of more axes; or else reductions along different axes, of each of which more is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..lang.ir import Call, Cast, Constant, Index, Load, Op, Reduce, Ref, Result, Scalar, Size, Value
from ..passes.contractions import free_sides
from ..passes.structure import is_extremum, reached

# Other math has kernels of its own, of which this knows nothing.
PLAIN = frozenset({Call, Cast, Constant, Index, Load, Reduce, Ref, Scalar, Size})


@dataclass(frozen=True, slots=True)
class _Sum:
    """A reduction `over` some axes, which surely is a matmul if it has `sides`: the axes that it sums, and those that
    either side has besides. It is a bit, and what it is made of others.
    """

    bit: int
    below: int
    over: frozenset[str]
    axes: frozenset[str]
    sides: tuple[frozenset[str], ...]
    is_perhaps_matmul: bool


class Beside:
    """Tells of the parts of an operator, by the names of the values that each computes."""

    def __init__(self, op: Op) -> None:
        sums = {value.name: value.node for value in op.values if isinstance(value.node, Reduce)}
        self.strips = {name for name, node in sums.items() if node.strips}
        bits = {name: 1 << place for place, name in enumerate(sums)}
        # What is read as it is stored is one factor, whatever it multiplies.
        stored = op.of(Value(value.name, Constant(0.0, value.node.dtype), "") for value in op.values)
        self.sums = {name: _sum(op, stored, sums[name], name, bits) for name in sums.keys() - self.strips}
        self.read = {name: sum(bits[one] for one in refs & sums.keys()) for name, refs in op.refs.items()}
        self.others = {value.name for value in op.values if not value.node.kinds <= PLAIN or value.node.gathers}
        self.masked = {value.name for value in op.values if Index in value.node.kinds}
        # Heads are as narrow as tiles, and groups of columns and rows of tiles as short, where a length says so; heads
        # are likely to be, where there are exponentials.
        self.is_long = not op.sizes
        self.extrema = {name for name, node in sums.items() if is_extremum(node)} - self.strips
        self.powers = {value.name for value in op.values if any("exp" in one for one in value.node.functions)}

    def refuses(self, computed: frozenset[str], targets: Iterable[Result]) -> bool:
        """Whether surely no kernel computes some values, of which it gives some results."""
        if not self.others.isdisjoint(computed):
            return False
        sums = [self.sums[name] for name in computed if name in self.sums]
        matmuls = [one for one in sums if one.sides]
        is_masked = not self.masked.isdisjoint(computed)  # Kernels may stream that, however long rows of tiles are.
        if not matmuls:
            return not is_masked and self.reads_along_several(computed, sums)
        if len({one.over for one in matmuls}) > 1 and self.is_not_streamed(computed, sums, matmuls):
            return True
        return not is_masked and self.has_more_than(matmuls[0], computed, sums, targets)

    def is_not_streamed(self, computed: frozenset[str], sums: Sequence[_Sum], matmuls: Iterable[_Sum]) -> bool:
        """Whether surely no kernel streams matmuls over different axes, which no other computes: it takes exponentials
        below one maximum, and all its matmuls are sums of others or read by these.
        """
        every, read = sum(one.bit for one in sums), 0
        streamed = set[str]()
        for one in sums:
            read |= one.below
            streamed |= one.over if one.below & every else set()
        apart = (one for one in matmuls if not one.below & every and not one.bit & read)
        return len(self.extrema & computed) > 1 or any(streamed.isdisjoint(one.over) for one in apart)

    def has_more_than(
        self, first: _Sum, computed: frozenset[str], sums: Sequence[_Sum], targets: Iterable[Result]
    ) -> bool:
        """Whether surely no kernel of a matmul computes what is beside it."""
        if not self.is_long or not self.powers.isdisjoint(computed):
            every = sum(one.bit for one in sums)
            if not self.strips.isdisjoint(computed) or any(one.below & every for one in sums):
                return False  # A kernel may stream these, or reduce rows of its tiles.
        axes = [frozenset(target.axes) for target in targets if target.output.name not in self.strips]
        if any(one == first.axes | first.sides[0] for one in axes):  # Its terms are a result, whose columns it sums.
            return False
        is_other = any(one.sides not in ((), first.sides) or not one.is_perhaps_matmul for one in sums)
        return is_other or any(not one <= first.axes for one in axes)

    def reads_along_several(self, computed: frozenset[str], sums: Iterable[_Sum]) -> bool:
        """Whether a kernel without matmuls would compute more of reductions along different axes: it goes along one row
        after another, and what it sums over rows besides is complete only when it has ended.
        """
        if not self.is_long or not self.strips.isdisjoint(computed) or any(one.is_perhaps_matmul for one in sums):
            return False
        read = 0
        for name in computed:
            read |= self.read[name]
        return len({one.over for one in sums if one.bit & read}) > 1


def _sum(op: Op, stored: Op, node: Reduce, name: str, bits: Mapping[str, int]) -> _Sum:
    """A reduction of an operator, whose values others may read as they are `stored`."""
    made, read = ({*free_sides(one, node)} for one in (op, stored))
    over = frozenset(node.over)
    sides = (over, *sorted(read, key=sorted)) if made and made == read else ()
    below = sum(bits[one] for one in reached(op.refs, op.refs[name], ()) & bits.keys())
    return _Sum(bits[name], below, over, frozenset(node.axes), sides, bool(made or read))
