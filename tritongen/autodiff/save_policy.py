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
    """Chooses what an operator saves; `save` are the values that its spec lists, if it does, and `stored` are those
    that its steps store anyway, which are preferred.
    """

    op: Op
    save: tuple[str, ...] | None
    stored: tuple[str, ...] = ()

    @functools.cached_property
    def values(self) -> dict[str, Value]:
        return {value.name: value for value in self.op.values}

    def of(self, nodes: Iterable[Node]) -> tuple[list[str], set[str]]:
        """What the forward saves, and which of its outputs are read: what moves the fewest bytes.

        A value per row costs next to nothing and is saved, or read where it is an output that nothing has
        rounded, or one as large as other tensors, and what a matmul or a scan gives costs more to compute again; what
        is compared with the largest of it must not differ by a bit; of outputs those are read that spare more than they
        cost; all else is computed again from the inputs. Raises `Mistakes` for what is to be saved and never read.
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
        """The outputs that are read, and not saved besides."""
        matrices = {name for name in exact if self.is_matrix(name)} - compared
        return matrices.union(name for name in exact if self.is_costly(name) or self.is_picked(name))

    def fewest_bytes(
        self, nodes: list[Node], roots: set[str], saved: set[str], outputs: list[str], alone: set[str]
    ) -> set[str]:
        """Those of some outputs, besides `alone`, that cost the least to read."""
        counts = range(len(outputs), -1, -1)
        choices = [{*some, *alone} for count in counts for some in itertools.combinations(outputs, count)]
        return min(choices, key=lambda some: self.cost(nodes, roots, saved | some))

    def without_mapped(self, nodes: list[Node], roots: set[str], known: set[str], saved: set[str]) -> set[str]:
        """Known values but those that are computed again, element by element, of fewer bytes."""
        for name in reversed(self.values):
            if name in known - saved and self.is_mapped(name, known - {name}):
                known = min(known, known - {name}, key=lambda some: self.cost(nodes, roots, some)[0])
        return known

    def asked_for(self, save: tuple[str, ...], roots: set[str], computed: set[str]) -> tuple[list[str], set[str]]:
        """Of what the spec says to save, what has to be, and the outputs that are read: not those of `computed`."""
        found = self.closure(roots, set(save), leaves=True)
        if unread := [self.unread(place, name) for place, name in enumerate(save) if name not in found]:
            raise Mistakes(*unread)
        outputs = {result.output.name for result in self.op.results}
        mapped = {name for name in outputs - computed if not self.summarises(name)}
        return [name for name in save if name not in mapped], mapped & set(save)

    def compared(self, nodes: Iterable[Node]) -> tuple[set[str], set[str]]:
        """The largest and smallest whose elements a gradient looks for, and what it computes to compare with them.

        Both have to be bitwise equal to those of the forward. Reduced again in another order they would differ in the
        last bit, rounded to the dtype of an output in more, and nothing would be the largest.
        """
        every = {name for name, value in self.values.items() if is_extremum(value.node)}
        pairs = [part.args for part in distinct(nodes) if isinstance(part, Call) and part.function == "eq"]
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
        """Whether an output may be read in place of its value: its dtype is that of the value or of the computation, or
        none that the spec spells.
        """
        computed = "float64" if any("float64" in tensor.type.dtypes for tensor in self.op.inputs) else "float32"
        if result.dtype == self.values[result.output.name].node.dtype or result.dtype.of == (computed,):
            return True
        return all(any(leaf == tensor.name for tensor in self.op.inputs) for leaf in result.dtype.leaves)

    def summarises(self, name: str) -> bool:
        """Whether a value is a value for each row, which comes of a reduction and lacks what that was over, or what a
        matmul or a scan gives.
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
        """Whether an output comes of matmuls, or is what a scan gives."""
        return comes_of_matmuls(self.op, name) or isinstance(resolve(self.op, self.values[name].node), Scan)

    def is_mapped(self, name: str, known: set[str]) -> bool:
        """Whether a value is made of known ones, element by element."""
        again = self.closure({name}, known)
        return not any(isinstance(self.values[one].node, Reduce | Scan) for one in again)

    def is_matrix(self, name: str) -> bool:
        """Whether a value is made of reductions and as large as tensors are, such as distances of all pairs of rows."""
        axes = (*(tensor.type.axes for tensor in self.op.inputs), *(result.axes for result in self.op.results))
        return self.summarises(name) and len(self.values[name].node.axes) == max(map(len, axes)) > 1

    def is_picked(self, name: str) -> bool:
        """Whether an output has elements of an input as they are, the largest or smallest of each row."""
        node = self.values[name].node
        if not is_extremum(node) or not isinstance(node.arg, Load):
            return False
        stored = next(result.dtype for result in self.op.results if result.output.name == name)
        return not stored.rule and node.arg.name in stored.of

    def closure(self, roots: Iterable[str], known: set[str], leaves: bool = False) -> set[str]:
        """The values that some names need if others are known; with `leaves`, those of them too."""
        found = reached(self.op.refs, roots, known)
        return found if leaves else found - known

    def cost(self, nodes: list[Node], roots: set[str], known: set[str]) -> tuple[int, int]:
        """How many large tensors are read, and how much is computed."""
        again = self.closure(roots, known)
        computed = [*nodes, *(self.values[name].node for name in again)]
        read = {(part.name, part.axes) for part in distinct(computed) if isinstance(part, Load)}
        read |= {(name, self.values[name].node.axes) for name in self.closure(roots, known, leaves=True) & known}
        most = max((len(axes) for _, axes in read), default=0)
        large = sum(len(axes) == most for _, axes in read)
        return large, sum(node.operations for node in computed)
