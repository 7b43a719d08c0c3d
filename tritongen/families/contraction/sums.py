"""How contractions sum products: the loads, math and matmuls of a program for each block of the inner axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ...lang.ir import Cast, Load, Node, Op, Reduce, Ref
from ...lowering.accumulate import Accumulator, Span, full_reduction, masked, padding_value
from ...lowering.assemble import Assembler
from ...lowering.lower import Compute, Lowering, compute_of
from ...lowering.tile import needed
from ...nest.ir import Accumulate, Let, Line, nested, under
from ...nest.values import Expr, Term, V, joined, runtime, tl
from ...passes.contractions import Product
from ...passes.structure import references
from ...passes.triangles import triangle_condition
from ...spec.types import FLOAT8S
from ..tensor_cores import input_precision
from .addressing import Places, inner_of, space_of
from .copies import alternate
from .operands import Operand, operands_of, tensors_of
from .program import ContractionProgram, is_one_matmul


@dataclass
class Lines:
    """The lines of a kernel in order, each with its path."""

    setup: list[Line] = field(default_factory=list)
    loop: list[Line] = field(default_factory=list)
    end: list[Line] = field(default_factory=list)

    def nested(self) -> Lines:
        """The same lines nested in the branches of their conditions."""
        return Lines(*([*nested(lines)] for lines in (self.setup, self.loop, self.end)))


class Sums:
    """Writes the lines of a contraction's sums, from which its kernels are assembled."""

    kind: type[Places] = Places

    def __init__(self, program: ContractionProgram) -> None:
        contraction = program.contraction
        self.op, self.contraction = program.seen, contraction
        self.pads = is_one_matmul(program)  # whether the strided kernel may load the padding of copies
        self.products = {product.name: product for product in contraction.products}
        self.inside = needed(self.op.values, self.products)
        self.operands = operands_of(self.op, contraction)
        self.compute = compute_of(self.op)
        is_float = self.operands.dot.kind == "float" or self.compute.mode == "float"
        if not is_float and self.compute.text != "tl.float32":
            self.compute = Compute("tl.int32")
        self.alternates = alternate(self.op, contraction, self.operands)
        self.places = self.kind(
            self.op,
            space_of(contraction),
            self.compute,
            contraction=contraction,
            matrices=self.operands.names,
            gathered=program.gathered,
            restored=self.operands.widened_integers,
        )
        self.assembler = Assembler(self.places)
        self.choices = self.assembler.choices
        self.triangle = triangle_condition(self.op, contraction)

    # Expressions

    def lowering(self, side: int | None = None) -> Lowering:
        """The lowering for the math of one `side`; without one, for the epilogue and the scales of groups."""
        return self.places.on(side).lowering(self.choices, self.row_reduction)

    def row_reduction(self, node: Reduce, lowering: Lowering) -> Expr:
        """A reduction of the result over its columns, where a tile holds all of them, or over groups of columns, where
        each group is fully inside or outside; or by strips.
        """
        if node.strips:
            return self.by_strips(node, lowering)
        value, group, dtype = lowering.operand(node.arg), self.places.group, node.arg.dtype.kind
        is_flag = node.kind in ("any", "all")
        value = value.differs(0) if is_flag and dtype != "bool" else value
        kind = dtype if dtype in ("any", "float") else "int"
        if not group:
            accumulator = Accumulator(self.compute.text, kind)
            return full_reduction(node, accumulator, V.cols, False, masked(node.kind, accumulator, value))
        if not self.places.fills(node.arg):
            value = tl.where(self.places.full_mask, value, False if is_flag or dtype == "bool" else 0)
        if node.kind == "var":
            count = group - node.correction
            return runtime.group_squares(value) / max(int(count) if count == int(count) else count, 0)
        accumulator = Accumulator(self.compute.text, kind, span=Span("0", str(group)))
        return full_reduction(node, accumulator, None, False, value, axis=2)

    def by_strips(self, node: Reduce, lowering: Lowering) -> Expr:
        """A reduction of each strip of the result's rows or columns, masked to those inside."""
        axis = self.contraction.strips_axis(node)
        value, width = lowering.operand(node.arg), self.op.strips_along(node.strips).width
        mask = ("row_mask", "col_mask")[axis] if self.places.fills(node.arg) else self.places.full_mask
        return runtime[f"strip_{node.kind}"](value, mask, width, axis)

    # Pieces of kernels

    def block(self, lines: Lines, read: Callable[[Operand], list[Line]], may_swap: bool = False) -> None:
        """Adds the lines of a block of the inner axes; launches may swap factors of matmuls without tensor cores."""
        done: dict[str, int | None] = {}
        for operand in self.operands.matrices:
            lines.loop += under(self.choices.reading(operand.name, self.inside), read(operand))
        for name in self.operands.inside:
            if name in self.operands.names:
                continue
            side = next(n for p in self.products.values() for n in range(2) if name in tensors_of(self.op, p.sides[n]))
            is_inner = "inner" in self.places.roles(name)
            (lines.loop if is_inner else lines.setup).extend(self.loaded(name, side))
            done |= {name: side} if is_inner else {}
        for product in self.products.values():
            names = [self.side(product, n, lines, done) for n in range(2)]
            if self.contraction.groups:
                total = self.dot(*names)
                total = total if product.scale is None else total * self.scale(product, lines, done)
                line: Line = Accumulate(product.name, "+", total)
            else:
                line = self.summing(product.sum, *names, may_swap=may_swap)
            lines.loop += under(self.choices.of(product.name), [line])

    def loaded(self, name: str, side: int | None = None) -> list[Line]:
        return under(self.choices.reading(name, self.inside), self.places.on(side).load_lines(self.op.input(name)))

    def lines_before(self, node: Node, lowering: Lowering, side: int | None, done: dict[str, int | None]) -> list[Line]:
        """The lines that a node depends on, laid out for its side: values along the inner axes differ between sides.

        `done` maps each name that is already computed to the side for which it was.
        """
        lines: list[Line] = []
        for name in tensors_of(self.op, node):
            if done.get(name, side) != side:
                lines += self.loaded(name, side)
                done[name] = side
        for value in needed(self.op.values, references(node)):
            varies = not set(self.contraction.inner).isdisjoint(value.node.axes)
            if value.name not in done or (varies and done[value.name] != side):
                lines += lowering.line(value)
                done[value.name] = side
        return lines

    def summing(self, name: str, left: Term, right: Term, *, may_swap: bool = False) -> Line:
        """The line that adds the matmul of a block to an accumulator."""
        if may_swap and "float32" in self.operands.dtypes and self.op.precision == "ieee":
            precision = input_precision(self.op)
            return Let(name, runtime.block_dot(left, right, name, precision, V.SWAPS))
        comment = ""
        if self.operands.float8:
            comment = "Hopper accumulates float8 dots in less than float32 precision: add up blocks."
        return Let(name, self.dot(left, right, name), comment=comment)

    def dot(self, *terms: Term) -> Expr:
        options: dict[str, Term] = (
            {"input_precision": input_precision(self.op)} if "float32" in self.operands.dtypes else {}
        )
        if self.operands.float8 and len(terms) > 2:
            options = {"max_num_imprecise_acc": "BLOCK_K"}
        options |= {"out_dtype": self.sum_dtype} if self.sum_dtype else {}
        return tl.dot(*terms, **options)

    def scale(self, product: Product, lines: Lines, done: dict[str, int | None]) -> Expr:
        """The scale of the sum of a group's block, after the lines that compute it."""
        assert product.scale is not None
        for name in tensors_of(self.op, product.scale):
            if name not in done:
                lines.loop += self.loaded(name)
                done[name] = None
        lowering = self.lowering()
        lines.loop += self.lines_before(product.scale, lowering, None, done)
        lowering.begin(f"{product.name}_scale", self.choices.of(product.name))
        scale = lowering.expression(product.scale)
        lines.loop += lowering.pending
        return scale

    def side(self, product: Product, n: int, lines: Lines, done: dict[str, int | None]) -> Expr:
        """The name or expression of a side, after the lines that compute it."""
        node = product.sides[n]
        to: tuple[str, ...] = ("DOT",) if self.operands.converts else ()
        if isinstance(node, Load):
            float8 = set(self.op.input(node.name).type.dtypes) <= set(FLOAT8S)
            first = ("tl.float32",) if to and float8 and "float64" in self.operands.dtypes else ()
            return V[node.name].to(*first, *to)
        lowering = self.lowering(n)
        lines.loop += self.lines_before(node, lowering, n, done)
        sharing = [name for name, one in self.products.items() if one.sides[n] == node]
        name = f"{sharing[0]}_{('left', 'right')[n]}"
        if name not in done:
            lowering.begin(name, self.choices.of(*sharing))
            value = lowering.expression(node)
            if self.may_lack_dim(node, n):
                value = tl.where(self.places.on(n).mask(node.axes), value, 0.0)
            elif _padding_value(self.op, node, self.contraction.inner) != "0":
                value = tl.where(inner_of(n, "inner_mask"), value, 0.0)
            lowering.put(Let(name, value.to(*to)))
            lines.loop += lowering.pending
            done[name] = n
        return V[name]

    def may_lack_dim(self, node: Node, n: int) -> bool:
        """Whether a side may lack a dimension, since only optional inputs have its inner axes, or rows or columns."""
        roles = (self.contraction.inner, self.contraction.cols if n else self.contraction.rows)
        read = [self.op.input(name) for name in tensors_of(self.op, node)]
        there = {axis for one in read if one.default is None or one.name in self.op.chosen for axis in one.type.axes}
        return any({*axes} & {*node.axes} and not {*axes} & there for axes in roles)

    @property
    def accumulator(self) -> str:
        """The accumulator's dtype as launches pass it: the compute dtype with scales of groups, else ""."""
        if not self.contraction.groups:
            return ""
        return "compute" if self.compute.constexpr else self.compute.text

    @property
    def sum_dtype(self) -> str:
        """The accumulator dtype of matmuls, where it may not be float32; else ""."""
        if self.operands.dot.kind == "float" and "float64" not in self.operands.dtypes:
            return ""
        return "SUM" if self.contraction.groups else "ACC"

    def limit(self) -> list[Line]:
        """The line that sets the end of the loop: 0 in a fully masked tile."""
        if self.triangle is None:
            return []
        condition, last = self.triangle
        rows, cols = self.contraction.rows[0], self.contraction.cols[0]

        def index(axis: str) -> Expr:
            first, block = (V.first_row, V.BLOCK_M) if axis == rows else (V.first_col, V.BLOCK_N)
            return first + block - 1 if last[axis] else first

        assert {rows, cols} == set(last)
        every = "n_steps" if self.contraction.groups else "n_inner"
        lowering = self.lowering()
        lowering.index = index
        is_met = lowering.expression(condition)
        return [Let("n_summed", tl.where(is_met, every, 0), comment="Fully masked tiles skip the loop.")]

    def start(self, width: Term = V.BLOCK_N, names: Iterable[str] = (), knows: bool = True) -> list[Line]:
        """The initial accumulators: 0, or NaN for missing gathered matrices if a loop `knows` of them."""
        shape = [V.BLOCK_M, width]
        zeros = tl.zeros(shape, V.ACC)
        if knows and self.existing is not None:
            zeros = tl.full(shape, tl.where(self.existing, 0.0, math.nan), V.ACC)
        return [Let(name, zeros) for name in names or self.contraction.sums]

    def missing(self) -> list[Line]:
        """The lines that make sums of missing matrices NaN: flattened loops need accumulators that start at 0."""
        sums = self.contraction.sums if self.existing is not None else ()
        return [Let(name, tl.where(self.existing, name, math.nan)) for name in sums]

    @property
    def existing(self) -> Expr | None:
        """Whether all gathered matrices exist; None where there are none."""
        return joined(*(V[f"{one.name}_exists"] for one in self.places.gathered))


def _padding_value(op: Op, node: Node, inner: tuple[str, ...]) -> str:
    """The padding value of a side past the end of the inner axes, where loads give 0."""
    if isinstance(node, Ref):
        return _padding_value(op, op.value(node.name).node, inner)
    if isinstance(node, Cast):
        return _padding_value(op, node.arg, inner)
    return padding_value(op, node, inner, 0.0)
