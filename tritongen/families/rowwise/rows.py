"""Values of kernels over rows: the pass that computes each reduction, and its expression."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from ...lang.ir import Load, Node, Path, Reduce, Result, Scan, Value
from ...lowering.accumulate import ROW, Accumulator, Span, full_reduction, masked, padding_value
from ...lowering.assemble import Assembler
from ...lowering.lower import Lowering, compute_of
from ...lowering.space import Space, ends_in_columns, row_space
from ...lowering.tile import Tile, needed
from ...lowering.views import Kernel
from ...nest.ir import Do, Let, Line
from ...nest.values import Expr, Term, V, runtime, tl
from ...passes.exponentials import exp_pairs, propagates_nan, walks
from ...passes.structure import Program, guaranteed_axes
from ...spec.types import Input


class Rows:
    """The values of a row program: how they vary along rows, and their expressions in a kernel.

    `states` has the name, dtype and path of each partial state of a split. `uniform` names the inputs that may have a
    single element per block of columns.
    """

    table = "scan"  # the kind of the table, if nothing is reduced
    are_sums = False  # whether the loop also runs along chunks of rows, whose partial sums the runtime reduces

    def __init__(self, program: Program, space: Space | None = None) -> None:
        self.program, self.op = program, program.op
        self.space = space or row_space(self.op, program.over)
        self.compute = compute_of(self.op)
        self.pairs = exp_pairs(self.op)
        # The padding value: -inf suits a softmax and 0 nearly all else, so use the one that needs fewer guards.
        guards = {other: self.guards(other) for other in (0.0, -math.inf)}
        self.other = min(guards, key=lambda other: guards[other])
        self.tile = Tile(self.op, self.space, self.compute, self.other, ends_in_columns(self.op, program.over))
        self.assembler = Assembler(self.tile, grouped=True)
        self.choices = self.assembler.choices
        self.exact = {v.name for v in self.op.values if v.source} | {r.output.name for r in self.op.results}

    @property
    def kernels(self) -> Mapping[str, Kernel]:
        """The kernels by kind: rows in registers, a loop along each, and the stages of a split; not all exist."""
        raise NotImplementedError

    @property
    def states(self) -> tuple[tuple[str, str, Path], ...]:
        return ()

    @property
    def uniform(self) -> tuple[str, ...]:
        return ()

    # Values, by how they vary

    def left(self, results: Iterable[Result], known: Container[str] = ()) -> list[Value]:
        """The values that `results` need, except those in `known`."""
        return needed(self.op.values, [result.output.name for result in results], known)

    def along(self, value: Value) -> bool:
        """Whether a value varies along the columns."""
        return bool(set(value.node.axes) & set(self.program.over))

    @cached_property
    def passes(self) -> list[list[Value]]:
        """The reductions of each pass along the row, in order."""
        depth = walks(self.op)
        levels = sorted({depth[value.name] for value in self.program.reductions})
        return [[v for v in self.program.reductions if depth[v.name] == level] for level in levels]

    def guards(self, other: float) -> int:
        return sum(self.needs_guard(v.node, other) for v in self.program.reductions if isinstance(v.node, Reduce))

    def needs_guard(self, node: Reduce, other: float) -> bool:
        if node.kind == "var":
            return False
        has = padding_value(self.op, node.arg, self.program.over, other)
        wanted = {"sum": "0", "mean": "0", "any": "0", "max": "-inf", "argmax": "-inf"}.get(node.kind)
        return has != wanted

    def accumulator(self, node: Reduce, span: Span = ROW) -> Accumulator:
        """The dtype and mask of a reduction's accumulator; int64 for integers and bools."""
        rows = "BLOCK_M" if self.tile.moves(node.arg.axes)[0] else "1"
        if node.arg.dtype.kind in ("int", "bool"):
            return Accumulator("tl.int64", "int", rows, span)
        return Accumulator(self.compute.text, node.arg.dtype.kind, rows, span)

    def plain_max(self, value: Value) -> bool:
        """Whether a maximum may drop NaN, since the sum of exponentials that is paired with it propagates NaN."""
        total = next((name for name, largest in self.pairs.items() if largest == value), None)
        if total is None or value.name in self.exact:
            return False
        return propagates_nan(self.op, value, self.op.value(total))

    # CTAs that share rows

    def unread(self, tensor: Input, when: str) -> Line:
        """The zeros in place of a row before the first one is loaded."""
        return Let(f"{tensor.name}_{when}", tl.zeros([V.BLOCK_M, V.BLOCK_N], f"{tensor.name}_ptr.dtype.element_ty"))

    def held(self, tensors: Iterable[Input], when: str) -> list[Line]:
        """The chunks of rows in registers, converted to the compute dtype."""
        return [Let(tensor.name, V[f"{tensor.name}_{when}"].to(*self.tile.widen(tensor))) for tensor in tensors]

    def exchange(
        self, at: Expr, names: Sequence[str], absent: Sequence[Term], **least: Term
    ) -> tuple[list[Line], list[Line]]:
        """The lines that publish one or two results of a CTA in slots from `at` on, and that receive all CTAs'."""
        slots, pair = Let("slots", at), "_pair" if len(names) == 2 else ""
        publish = Do(runtime[f"publish{pair}"](V.slots + V.member, *names, V.row_mask))
        received = runtime[f"receive{pair}"](V.slots, V.CTAS_PER_ROW, V.row_mask, *absent, **least)
        return [slots, publish], [slots, Let(", ".join(names), received)]

    # Expressions

    def lowering(self, kind: type[Lowering] = Lowering) -> Lowering:
        return self.assembler.lowering(self.full, kind)

    def argument(self, node: Reduce, lowering: Lowering, guard: bool | None = None) -> Expr:
        """The argument of a reduction, in the dtype that it reduces; `guard` masks the lanes that it must ignore, by
        default where these have another value than the reduction's identity.
        """
        guard = self.needs_guard(node, self.other) if guard is None else guard
        value = lowering.operand(node.arg)
        has = node.arg.dtype.kind
        if node.kind in ("any", "all") and has != "bool":
            value = value.differs(0)
        elif has in ("bool", "int") and node.kind not in ("any", "all") and not self.is_int64(node.arg):
            value = value.to("tl.int64")
        return masked(node.kind, self.accumulator(node), value) if guard else value

    def is_int64(self, node: Node) -> bool:
        return isinstance(node, Load) and self.op.input(node.name).type.dtypes == ("int64",)

    def full(self, node: Reduce | Scan, lowering: Lowering) -> Expr:
        if isinstance(node, Scan):
            return self.order(node, lowering)
        name = next(v.name for v in self.op.values if v.node == node)
        value = self.op.value(name)
        if node.kind == "var":
            known = self.mean_of(node)
            mean = known.name if known else f"{name}_mean"
            x = lowering.operand(node.arg)
            if known is None:
                average = replace(node, kind="mean")
                total = tl.sum(self.argument(average, lowering), axis=1, keep_dims=True)
                lowering.put(Let(mean, total / V.n_cols))
            distance = V[f"{name}_distance"]
            lowering.put(Let(f"{name}_distance", tl.where(V.col_mask, x - mean, 0.0)))
            x = distance * distance
        else:
            x = self.argument(node, lowering)
        return full_reduction(node, self.accumulator(node), V.cols, self.plain_max(value), x)

    def order(self, node: Scan, lowering: Lowering) -> Expr:
        """The argsort of the columns; a key that may not vary along columns is broadcast to them."""
        sorted_by = lowering.operand(node.arg)
        if node.over not in guaranteed_axes(self.op, node.arg):
            sorted_by = tl.where(V.col_mask, sorted_by, 0)
        return runtime.argsort(sorted_by, V.col_mask, descending=node.reverse)

    def mean_of(self, node: Node) -> Value | None:
        """The mean of a variance's operand, if the math computes it, too, under the same conditions."""
        if not isinstance(node, Reduce) or node.kind != "var":
            return None
        mean = replace(node, kind="mean", correction=0)
        var = next(value for value in self.program.reductions if value.node == node)
        return next((v for v in self.program.reductions if v.node == mean and self.choices.same_paths(v, var)), None)

    def means_first(self, values: list[Value]) -> list[Value]:
        """The values in order, but each mean before the variances that use it."""
        both = [(self.mean_of(value.node), value) for value in values]
        return list(dict.fromkeys(value for pair in both for value in pair if value is not None))
