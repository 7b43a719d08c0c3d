"""The save policy: what a forward saves for its gradient, and what the gradient recomputes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from ..diagnostics.report import Mistake, Mistakes
from ..lang.ir import Call, Load, Node, Op, Reduce, Ref, Result, Scan, Value, distinct, is_order
from ..lang.names import shown
from ..passes.contractions import comes_of_matmuls, is_product
from ..passes.exponentials import resolve
from ..passes.structure import is_extremum, reached, references


@dataclass(frozen=True)
class SavePolicy:
    """Chooses the values that an operator saves; `save` are the values that its spec lists, or None, and `stored` those
    that its steps store anyway, which are preferred.
    """

    op: Op
    save: tuple[str, ...] | None
    stored: tuple[str, ...] = ()

    @functools.cached_property
    def values(self) -> dict[str, Value]:
        return {value.name: value for value in self.op.values}

    def of(self, nodes: Iterable[Node]) -> tuple[list[str], set[str]]:
        """The values that the forward saves for `nodes`, and the outputs that they read, to move the fewest bytes.

        Saved are per-row values, which cost next to nothing, and results of matmuls and scans, which cost more to
        recompute; outputs in `read_alone` are read instead. Values that are compared with their maximum must be bitwise
        equal. Other exact outputs are read if that saves more than it costs; all else is recomputed from the inputs.
        Raises `Mistakes` for values in `save` that are never read.
        """
        nodes = list(nodes)
        roots = {name for node in nodes for name in references(node)}
        exact = [r.output.name for r in self.op.results if self.is_exact(r)]
        extrema, compared = self.compared(nodes)
        alone = self.read_alone(exact, extrema | compared)
        if self.save is not None:
            return self.asked_for(self.save, roots, (extrema | compared) - alone)
        saved = {*self.stored, *extrema, *(name for name in compared if isinstance(self.values[name].node, Reduce))}
        summaries = {name for name in self.values if self.summarises(name) or name in saved} - alone
        spared = self.closure(roots, summaries | alone)
        outputs = [name for name in exact if name in spared and (name in alone or name not in compared)]
        chosen = self.fewest_bytes(nodes, roots, summaries, outputs, alone)
        known = self.without_mapped(nodes, roots, summaries | chosen, saved | compared)
        read = self.closure(roots, known, leaves=True) & known
        return [name for name in self.values if name in summaries & read], chosen & read

    def read_alone(self, exact: list[str], compared: set[str]) -> set[str]:
        """The exact outputs that are read, not saved: matrices, results of matmuls and scans, elements of inputs."""
        matrices = {name for name in exact if self.is_matrix(name)} - compared
        return matrices.union(name for name in exact if self.is_costly(name) or self.is_gathered(name))

    def fewest_bytes(
        self, nodes: list[Node], roots: set[str], saved: set[str], outputs: list[str], alone: set[str]
    ) -> set[str]:
        """The outputs, `alone` and any of `outputs`, that cost the least to read."""
        counts = range(len(outputs), -1, -1)
        choices = [{*some, *alone} for count in counts for some in itertools.combinations(outputs, count)]
        return min(choices, key=lambda some: self.cost(nodes, roots, saved | some))

    def without_mapped(self, nodes: list[Node], roots: set[str], known: set[str], saved: set[str]) -> set[str]:
        """The known values without those that are recomputed elementwise from fewer tensors."""
        for name in reversed(self.values):
            if name in known - saved and self.is_mapped(name, known - {name}):
                known = min(known, known - {name}, key=lambda some: self.cost(nodes, roots, some)[0])
        return known

    def asked_for(self, save: tuple[str, ...], roots: set[str], computed: set[str]) -> tuple[list[str], set[str]]:
        """The values in `save` that are saved, and those that are read as outputs: no summaries, none of `computed`."""
        found = self.closure(roots, set(save), leaves=True)
        if unread := [self.unread(place, name) for place, name in enumerate(save) if name not in found]:
            raise Mistakes(*unread)
        outputs = {result.output.name for result in self.op.results}
        mapped = {name for name in outputs - computed if not self.summarises(name)}
        return [name for name in save if name not in mapped], mapped & set(save)

    def compared(self, nodes: Iterable[Node]) -> tuple[set[str], set[str]]:
        """The max and min reductions that a gradient compares with, and all values from which the operands come.

        Both have to be bitwise equal to the forward's values. Reduced again in another order they would differ in the
        last bit, rounded to the dtype of an output in more, and no element would equal the maximum.
        """
        every = {name for name, value in self.values.items() if is_extremum(value.node)}
        pairs = [node.args for node in distinct(nodes) if isinstance(node, Call) and node.function == "eq"]
        pairs = [pair for pair in pairs if any(isinstance(one, Ref) and one.name in every for one in pair)]
        extrema = {one.name for pair in pairs for one in pair if isinstance(one, Ref) and one.name in every}
        others = {name for pair in pairs for one in pair for name in references(one)}
        return extrema, reached(self.op.refs, others - extrema, set()) - extrema

    def unread(self, place: int, name: str) -> Mistake:
        return Mistake(
            "TG606",
            f"the gradient does not read {name}",
            ("grad", "save", str(place)),
            0,
            len(shown(name)),
            "leave it out",
        )

    def is_exact(self, result: Result) -> bool:
        """Whether an output may be read in place of its value: its dtype is the value's dtype or the dtype of the
        computation, or follows from dtypes of inputs.
        """
        computed = "float64" if any("float64" in tensor.type.dtypes for tensor in self.op.inputs) else "float32"
        if result.dtype == self.values[result.output.name].node.dtype or result.dtype.of == (computed,):
            return True
        return all(any(leaf == tensor.name for tensor in self.op.inputs) for leaf in result.dtype.leaves)

    def summarises(self, name: str) -> bool:
        """Whether a value is a per-row value, computed from reductions and smaller than their operands, or the result
        of a sort, matmul or scan.
        """
        value = self.values[name]
        if is_order(value.node):
            return True
        if is_product(self.op, value.node) or isinstance(value.node, Scan):
            return value.node.dtype.kind in ("float", "any")
        below = [self.values[n].node for n in self.closure({name}, set())]
        over = {axis for node in below if isinstance(node, Reduce) for axis in node.over}
        own = set(value.node.axes)
        is_smaller = bool(over - own) and len(own) < max(len(node.axes) for node in below)
        return value.node.dtype.kind in ("float", "any") and bool(over) and (is_smaller or not over & own)

    def is_costly(self, name: str) -> bool:
        """Whether an output is computed from matmuls, or is the result of a scan."""
        return comes_of_matmuls(self.op, name) or isinstance(resolve(self.op, self.values[name].node), Scan)

    def is_mapped(self, name: str, known: set[str]) -> bool:
        """Whether a value is computed from known ones without a reduction or scan."""
        again = self.closure({name}, known)
        return not any(isinstance(self.values[one].node, Reduce | Scan) for one in again)

    def is_matrix(self, name: str) -> bool:
        """Whether a value summarises and has as many axes as the largest tensor, such as distances of pairs of rows."""
        axes = (*(tensor.type.axes for tensor in self.op.inputs), *(result.axes for result in self.op.results))
        return self.summarises(name) and len(self.values[name].node.axes) == max(map(len, axes)) > 1

    def is_gathered(self, name: str) -> bool:
        """Whether an output is the max or min of an input, in its dtype, so that it holds elements unchanged."""
        node = self.values[name].node
        if not is_extremum(node) or not isinstance(node.arg, Load):
            return False
        stored = next(result.dtype for result in self.op.results if result.output.name == name)
        return not stored.rule and node.arg.name in stored.of

    def closure(self, roots: Iterable[str], known: set[str], leaves: bool = False) -> set[str]:
        """The values that `roots` need if those in `known` are; with `leaves`, also the known ones that they need."""
        found = reached(self.op.refs, roots, known)
        return found if leaves else found - known

    def cost(self, nodes: list[Node], roots: set[str], known: set[str]) -> tuple[int, int]:
        """The number of tensors with the most axes that are read, and the number of operations."""
        again = self.closure(roots, known)
        computed = [*nodes, *(self.values[name].node for name in again)]
        read = {(node.name, node.axes) for node in distinct(computed) if isinstance(node, Load)}
        read |= {(name, self.values[name].node.axes) for name in self.closure(roots, known, leaves=True) & known}
        most = max((len(axes) for _, axes in read), default=0)
        large = sum(len(axes) == most for _, axes in read)
        return large, sum(node.operations for node in computed)
