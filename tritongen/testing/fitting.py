"""Lengths and params for tests of operators that compute lengths: no computed one is negative, and few are short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..lang.formulas import lengths_by
from ..lang.ir import Formula, Op
from ..spec.types import ParamValue

LONG = 1 << 20
SHORTEST = 3  # of computed lengths, if other lengths can make them so


@dataclass(frozen=True)
class Fitting:
    """For one operator. `params` are the integers that tests pass unless they try one of the `others`; `bounds` are the
    axes that bound values of inputs.
    """

    op: Op
    params: Mapping[str, ParamValue]
    bounds: frozenset[str] = frozenset()
    others: Sequence[Mapping[str, ParamValue]] = ()

    @cached_property
    def slopes(self) -> dict[Formula, dict[str, int]]:
        """For each formula that varies, the axes that it depends on, and by how much it grows with each."""
        found = {}
        for formula in self.op.formulas:
            if formula.axis not in self.op.computed:
                continue
            free = self.free(formula)
            usual = dict.fromkeys(free, LONG)
            longer = {axis: self.length(formula, usual | {axis: 2 * LONG}) for axis in free}
            found[formula] = {axis: length - self.length(formula, usual) for axis, length in longer.items()}
        return found

    def growing(self, formula: Formula) -> list[str]:
        """The axes with which a computed length grows."""
        return [axis for axis, slope in self.slopes[formula].items() if slope > 0]

    def free(self, formula: Formula) -> list[str]:
        """The axes that a formula depends on, also through other formulas, without fixed sizes."""
        by_axis = {one.axis: one for one in self.op.formulas if one.axis in self.op.computed}
        found, pending = list[str](), sorted(formula.reads)
        while pending:
            axis = pending.pop(0)
            if axis in by_axis:
                pending += sorted(by_axis[axis].reads)
            elif axis not in found and axis not in dict(self.op.sizes):
                found.append(axis)
        return found

    def length(self, formula: Formula, lengths: Mapping[str, int], /, **others: ParamValue) -> int:
        return lengths_by(self.op, lengths, {**self.params, **others})[formula.axis]

    @cached_property
    def shortening(self) -> frozenset[str]:
        """The axes that make others shorter, as windows of convolutions do."""
        return frozenset(axis for slopes in self.slopes.values() for axis, slope in slopes.items() if slope < 0)

    def lengthened(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """The lengths, with axes long enough that no computed length is short, or empty with those of the `others` for
        which it can have elements.
        """
        found = dict(lengths)
        for formula, slopes in self.slopes.items():
            growing = [axis for axis in self.growing(formula) if axis in found]
            if growing and slopes.keys() <= found.keys() | dict(self.op.sizes).keys():
                axis = growing[0]
                long = found | {axis: LONG}
                least = [(given, 1) for given in self.others if self.length(formula, long, **given) > 0]
                least.append(({}, SHORTEST))
                while any(self.length(formula, found, **given) < size for given, size in least) and found[axis] < LONG:
                    found[axis] += 1
        return found

    def fits(self, lengths: Mapping[str, int], others: Mapping[str, ParamValue] | None = None) -> bool:
        """Whether no computed length is negative, and those of inputs are the usual ones."""
        found = lengths_by(self.op, lengths, {**self.params, **(others or {})})
        same = all(found[axis] == lengths.get(axis, found[axis]) for axis in self.drawn)
        return same and all(length >= 0 for length in found.values())

    @cached_property
    def drawn(self) -> frozenset[str]:
        """The axes by which inputs are drawn, and whose lengths are computed."""
        axes = {axis for tensor in self.op.inputs for axis in tensor.type.axes}
        return self.op.computed & (axes | self.bounds)
