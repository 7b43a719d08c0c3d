"""Kernels that hold a tile of rows and stream an axis: the lines before, in and after the loop."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ...lang.ir import Call, Load, Node, Op, Reduce, Ref, Result, Value, walk
from ...lowering.assemble import kernel_of, param_casts, stored
from ...lowering.axes import length_of, stride
from ...lowering.choices import Choices, condition
from ...lowering.lower import Lowering, compute_of
from ...lowering.tile import Tensor, decoded, loads, needed
from ...lowering.views import Argument, Kernel
from ...nest.ir import Branch, Do, Let, Line, Nest, names_of, needed_by, nested, under
from ...nest.values import Expr, Term, V, expr, runtime, tl
from ...passes.exponentials import resolve
from ...passes.paged import Paged
from ...passes.structure import guaranteed_axes, references
from ..stream import Scores, Stream, StreamSum, in_kernels
from ..tensor_cores import input_precision
from . import partial_sums
from .blocks import is_finite_past_the_end
from .frames import BLOCKS, Frames, Sections
from .places import Places, at_pages, space_of
from .program import StreamingProgram
from .scores import has_low_scores
from .spelling import Spelling
from .streams import is_below, is_row_sum

NOTHING = expr(0.0)
DESCRIPTOR = V.descriptor  # the value of arguments that the runtime turns into descriptors


@dataclass
class Below(Lowering):
    """Takes exponentials below per-row or per-column values, and in the loop below the running maximum.

    With `low` scores, exponentials take a factor per row. On values with the axes `scores`, tanh is as accurate as
    matrices of the dtype `dtype(axes)` need.
    """

    largest: str = ""
    low: str = ""
    in_loop: bool = True
    scores: frozenset[str] = frozenset()
    dtype: Callable[[tuple[str, ...]], Term] = field(kw_only=True)

    def expression(self, node: Node) -> Expr:
        if self.in_loop and isinstance(node, Ref) and node.name == self.largest:
            return V.shift
        return super().expression(node)

    def call(self, node: Call) -> Expr:
        match node:
            case Call(function="exp", args=(Call(function="sub", args=(x, y)),)) if set(y.axes) < set(x.axes):
                online = self.in_loop and isinstance(y, Ref) and y.name == self.largest
                terms = map(self.in_compute, (x, y))
                if online and self.low:
                    return runtime[f"exp2_shifted{self.low}"](*terms, V.factor)
                return runtime["exp2_shifted" if online else "exp2_sub"](*terms)
            case Call(function="tanh", args=(x,)) if self.scores and self.scores <= set(node.axes):
                return self.tanh(self.in_compute(x), node.axes)
        return super().call(node)

    def tanh(self, x: Expr, axes: tuple[str, ...]) -> Expr:
        return runtime.tanh_of(x, self.dtype(axes))


L = TypeVar("L", bound=Below)


class Builder:
    """Writes the kernel line by line. Blocks of `described` matrices are read by TMA where there are descriptors."""

    block_m = "BLOCK_M"
    index = "INDEX"  # the dtype of positions

    def __init__(self, program: StreamingProgram, described: tuple[str, ...] = ()) -> None:
        self.op: Op = program.in_kernels
        self.pages = program.pages and program.pages.merged(program.merged.joined_axes)
        self.described = described
        self.stream: Stream = program.stream
        self.space = space_of(self.op, self.stream)
        self.compute = compute_of(self.op)
        self.choices = Choices(self.op)
        self.places = Places(self.op, self.space, self.compute, stream=self.stream, pages=self.pages)
        self.blocks = program.blocks
        # Suffix of the functions that take scores of any magnitude.
        self.low = "_low" if has_low_scores(self.op, self.stream) else ""
        self.lowering: Below = self.lowered_by(Below)
        self.products: dict[str, Scores] = {one.name: one for one in self.stream.scores}
        self.sums: dict[str, StreamSum] = {one.name: one for one in self.stream.sums}
        self.lines = Sections()
        self.read: set[str] = set()
        self.in_row_sum = False
        self.of_limits: set[str] = set()
        self.score = self.score_of()
        # The padding values past the end of the streamed axis that no line has set so far.
        self.past_the_end = {self.score: partial_sums.LEAST} if self.score else {}
        if not self.score:
            factors = (one.factor for one in self.stream.sums)
            self.past_the_end = {factor.name: NOTHING for factor in factors if isinstance(factor, Ref)}
        roots = {*self.products, *(name for one in self.stream.sums for name in references(one.factor))}
        self.inside = {value.name for value in needed(self.op.values, roots)} - {self.stream.largest}

    def lowered_by(self, lowering: type[L]) -> L:
        places, stream = self.places, self.stream
        has_powers = any(is_below(node) for node in self.op.nodes)
        return lowering(
            self.op,
            self.compute,
            places.index,
            places.size,
            self.loaded,
            self.choices,
            largest=stream.largest,
            low=self.low,
            scores=frozenset({stream.rows, stream.streamed} if has_powers else ()),
            dtype=self.dtype_of_scores,
        )

    def dtype_of_scores(self, axes: tuple[str, ...]) -> Term:
        """The dtype of the left matrix of the scores, for a line with `axes`: by its pointer until its tile is read."""
        left = self.stream.scores[0].left
        is_read = left.name in self.read and {*left.axes} & {*self.stream.outer_axes} <= {*axes}
        return f"{left.name}.dtype" if is_read else f"{left.name}_ptr.dtype.element_ty"

    def score_of(self) -> str:
        """The value that exponentials are taken of; "" where nothing is taken below the largest."""
        node = self.op.value(self.stream.largest).node if self.stream.largest else None
        return node.arg.name if isinstance(node, Reduce) and isinstance(node.arg, Ref) else ""

    def loaded(self, node: Load, lowering: Lowering) -> Expr:
        if self.in_row_sum:
            return V[node.name].to(self.compute.text)
        return self.places.load(node, lowering)

    def built(self, splits: bool) -> Kernel:
        """The kernel; with `splits`, one that may store partial sums of a split of the streamed axis."""
        self.build()
        partial = partial_sums.stores(self.stream) if splits else ()
        streamed, rows = self.stream.streamed, self.stream.rows
        split = ", of one split if partial_ptr is given" if partial else ""
        doc = f"One BLOCK_M tile of {rows} per program; loops over blocks of {streamed}{split}."
        descriptors = (Argument(f"{name}_desc", DESCRIPTOR) for name in self.described)
        behind = (*((partial_sums.ARGUMENT,) if partial else ()), *descriptors)
        blocks = ("PACK_HEADS", *BLOCKS) if self.stream.group else BLOCKS
        frame = Frames(self.stream, self.blocks).streaming
        return self.assembled("kernel", doc, ("n_rows", "n_cols"), frame, blocks, partial, behind=behind)

    def build(self) -> None:
        pending = dict(self.sums)
        done: set[str] = set()
        for value in self.op.values:
            if value.name == self.stream.largest:
                self.largest(value)
            elif value.name in self.products:
                self.product(self.products[value.name])
            elif value.name in self.inside and is_row_sum(value, self.stream):
                self.row_sum(value)
            elif value.name in self.inside:
                self.inner(value)
            done.add(value.name)
            # A sum adds its factor as soon as it is computed, since the factor then needs no registers.
            for total in [one for one in pending.values() if references(one.factor) <= done]:
                self.sum(pending.pop(total.name))
        self.lowering.in_loop = False
        self.lines.loop = self.read_by_others(self.lines.loop)
        # In INDEX, since outer iterations may be far apart in memory.
        self.lines.turn[:0] = decoded(tl.cast(V.turn, V.INDEX), self.places.dims(self.stream.outer_axes))
        self.bounds()
        self.begin()
        self.after(value for value in self.behind() if value.name not in self.inside)

    # What it reads

    def streams(self, axes: Iterable[str]) -> bool:
        return self.stream.streamed in axes

    def lines_for(self, axes: Iterable[str]) -> list[Line]:
        """The section for a value with `axes`: the loop over blocks, the outer loop, or the setup."""
        if self.streams(axes):
            return self.lines.loop
        return self.lines.turn if set(axes) & set(self.stream.outer_axes) else self.lines.setup

    def row_tile(self, load: Load) -> None:
        if load.name not in self.read:
            self.read.add(load.name)
            self.lines_for(load.axes).extend([self.places.matrix_base(load), *self.places.matrix(load, True)])

    def block(self, load: Load) -> None:
        if load.name not in self.read:
            self.read.add(load.name)
            self.lines_for({*load.axes} - {self.stream.streamed}).append(self.places.matrix_base(load))
            self.lines_for(load.axes).extend(self.matrix(load))

    def matrix(self, load: Load) -> list[Line]:
        """The lines that load a block of a matrix; page indices are looked up once per block."""
        paged = self.pages and self.pages.of(load.name)
        if not paged:
            read, *converted = self.places.matrix(load, self.masked)
            lines = self.places.described(load, read) if load.name in self.described else [read]
            return [*lines, *converted]
        assert self.pages is not None
        return [*self.pages_of_block(paged), *self.places.paged_matrix(self.pages, paged)]

    def pages_of_block(self, paged: Paged) -> list[Line]:
        """The lines that look up page indices, once per table: the loop carries the indices of the next block."""
        looked_up = f"{paged.table}_at"  # A mask may read the table itself, too.
        if looked_up in self.read:
            return []
        assert self.pages is not None
        self.read.add(looked_up)
        self.lines.setup.append(self.places.table(paged))
        first, following = (
            self.places.page_indices(self.pages, paged, start, *self.blocks.ends)
            for start in (V.bounds[0], V.start + V.BLOCK_N)
        )
        comment = "" if self.lines.ahead else "Page indices are prefetched one block ahead."
        self.lines.ahead.append(replace(first, comment=comment))
        return [self.places.in_pages(paged, *self.blocks.ends), following]

    @property
    def masked(self) -> Expr:
        """Whether the blocks of a run are masked, known when the kernel is compiled."""
        return V.run.differs(self.blocks.runs.index("full"))

    def elements(self, values: list[Value], lines: list[Line] | None = None) -> None:
        """Reads the inputs of `values` that no line has read so far."""
        names = {load.name for load in loads(value.node for value in values)}
        for tensor in self.op.inputs:
            if tensor.name in names and tensor.name not in self.read:
                self.read.add(tensor.name)
                target = self.lines_for(self.places.axes_of(tensor)) if lines is None else lines
                if self.pages and (paged := self.pages.of(tensor.name)):
                    target += self.pages_of_block(paged)
                target += under(self.choices.reading(tensor.name, values), self.places.reads(tensor))

    # The loop

    def product(self, score: Scores) -> None:
        """A matmul of the tile with a block."""
        self.row_tile(score.left)
        self.block(score.right)
        lines = self.lines_for({*score.left.axes, *score.right.axes})
        lines.append(Let(score.name, self.dot(score.left.name, V[score.right.name].T)))
        if self.pages and (paged := self.pages.of(score.right.name)):
            # Scores are NaN where there is no page.
            lines.append(Let(score.name, tl.where(at_pages(paged) >= 0, score.name, math.nan)))

    @property
    def at_the_end(self) -> Expr:
        """Whether blocks may reach past the end of the streamed axis."""
        return self.masked

    def dot(self, *terms: Term) -> Expr:
        dtypes = {dtype for load in self.stream.matrices for dtype in self.op.input(load.name).type.dtypes}
        options: dict[str, Term] = {"input_precision": input_precision(self.op)} if "float32" in dtypes else {}
        options |= {"out_dtype": self.compute.text} if "float64" in dtypes else {}
        return tl.dot(*terms, **options)

    def row_sum(self, value: Value) -> None:
        """A sum across rows of matrices of the tile."""
        assert isinstance(value.node, Reduce)
        for node in walk(value.node.arg):
            if isinstance(node, Load):
                self.row_tile(node)
        self.lowering.begin(value.name)
        self.in_row_sum = True
        summed = self.lowering.expression(value.node.arg)
        self.in_row_sum = False
        source = f"{value.name} = {value.source}" if value.source else ""
        lines = self.lines_for(value.node.axes)
        lines += self.lowering.pending
        lines.append(Let(value.name, self.total_of_rows(summed), comment=source))

    def total_of_rows(self, summed: Expr) -> Expr:
        """The sums of the rows of a tile."""
        return tl.sum(summed, 1, keep_dims=True)

    def inner(self, value: Value) -> None:
        """A value of the tile, computed once for all blocks if it is the same in all."""
        streams = self.streams(value.node.axes)
        lines = self.lines_for(value.node.axes)
        self.elements([value])
        node, implied = value.node, None
        match node:
            case Call(function="where", args=(test, then, other)) if streams:
                implied, rest = self.blocks.split_condition(self.op, test)
                node = replace(node, args=(rest, then, other)) if rest is not None else then
        lines += self.lowering.line(replace(value, node=node))
        if implied is not None:
            lines.append(Branch(self.masked, body=tuple(self.chosen(value.name, implied, other))))

    def chosen(self, name: str, test: Node, other: Node) -> list[Line]:
        """Replaces elements of a masked block where `test` fails, and past the end if the padding value is the same."""
        limits = self.limits(test)
        self.lowering.begin(name)
        condition, otherwise = map(self.lowering.expression, (test, other))
        if otherwise == self.past_the_end.get(name) and (limits or self.at_the_end == self.masked):
            del self.past_the_end[name]
            condition = V.col_mask & condition
        self.lowering.put(Let(name, tl.where(limits or condition, name, otherwise)))
        return self.lowering.pending

    def limits(self, test: Node) -> Expr | None:
        """A condition on positions as limits per row, found before the loop, if each score would compute it in int64;
        None for other conditions.
        """
        if not self.blocks.limits_rows(self.op, test) or self.lowering.integers.all_narrow(resolve(self.op, test)):
            return None
        if "row_end" not in self.read:
            self.read.add("row_end")
            self.lines.setup += self.range_lines(lambda ranges: ranges.limits(self.index))
        self.of_limits |= {value.name for value in needed(self.op.values, references(test))}
        return self.blocks.in_limits

    def read_by_others(self, lines: list[Line]) -> list[Line]:
        """The lines of a loop without values that only conditions replaced by limits of rows read."""
        count = Counter(name for line in lines for name in line.names)
        found = [line for line in lines if line.assigned not in self.of_limits or count[line.assigned] > 1]
        return lines if len(found) == len(lines) else self.read_by_others(found)

    def masked_past_the_end(self, name: str) -> list[Line]:
        """The line that sets the padding value past the end of the streamed axis, unless an earlier line has."""
        if name not in self.past_the_end:
            return []
        masked = Let(name, tl.where(V.col_mask, name, self.past_the_end.pop(name)))
        return [Branch(self.at_the_end, body=(masked,))]

    def largest(self, value: Value) -> None:
        """Updates the running maximum by the scores of a block, which are masked past the end of the streamed axis."""
        score = self.score
        self.lines.loop += self.masked_past_the_end(score)
        names = f"{value.name}, shift, {'factor, ' if self.low else ''}rescale"
        self.lines.loop.append(Let(names, self.online_max(value.name)))

    def online_max(self, name: str) -> Expr:
        return runtime[f"online_max{self.low}"](name, self.score)

    def sum(self, total: StreamSum) -> None:
        name = total.name
        self.elements([Value(name, total.factor, "")])
        self.lowering.begin(name)
        factor = self.lowering.expression(total.factor)
        is_block = self.stream.streamed in guaranteed_axes(self.op, total.factor)
        factor = factor if is_block else factor + tl.zeros([V.BLOCK_M, V.BLOCK_N], V.COMPUTE)
        self.lines.loop += self.lowering.pending
        first, *others = (one.name for one in self.stream.sums if one.factor == total.factor)
        has_largest = bool(self.stream.largest)
        is_below = has_largest and total.is_rescaled
        is_masked = not (is_below and is_finite_past_the_end(self.op, total.factor, self.stream))
        # Past the end a largest score has none in its place, and a sum of scores adds 0.
        is_named = is_block and isinstance(total.factor, Ref) and total.factor.name != self.score
        if not is_named and (others or is_masked):
            taken = {*(one.name for one in self.op.inputs), *(one.name for one in self.op.values)}  # Steps have such.
            named = next(one for more in ("", *range(2, 99)) if (one := f"{first}_factor{more}") not in taken)
            if name == first:
                self.lines.loop.append(Let(named, factor))
                self.past_the_end |= {named: NOTHING} if is_masked else {}
            factor = V[named]
        elif is_masked and has_largest:
            self.past_the_end[factor.text] = NOTHING
        self.lines.loop += self.masked_past_the_end(factor.text)
        so_far = V[name] * V.rescale if total.is_rescaled else V[name]
        if total.matrix is None:
            self.lines.loop.append(self.add_row_total(name, factor, so_far))
        else:
            self.add_product(name, factor, total.matrix, so_far)

    def add_row_total(self, name: str, factor: Expr, so_far: Expr) -> Line:
        """The line that adds the sum of each row of a tile."""
        return Let(name, so_far + tl.sum(factor, 1, keep_dims=True))

    def add_product(self, name: str, factor: Expr, matrix: Load, so_far: Expr) -> None:
        """Add a factor times a block of a matrix to a sum."""
        self.block(matrix)
        self.lines.loop.append(Let(name, self.dot(factor.to(f"{matrix.name}.dtype"), matrix.name, so_far)))

    # Before and after

    def bounds(self) -> None:
        """The lines of the bounds of the runs of blocks, after the lines that these depend on."""
        self.lines.bounds += self.range_lines(lambda ranges: ranges.bounds(self.places.compared))

    def range_lines(self, lines: Callable[[Spelling], list[Line]]) -> list[Line]:
        """The lines of the unmasked ranges, after the lines that these depend on."""
        self.elements([Value("bounds", node, "") for node in self.blocks.values])
        self.lowering.begin("bounds", ())
        found = lines(Spelling(self.blocks, self.lowering.expression))
        return [*self.lowering.pending, *found]

    def begin(self) -> None:
        """Adds the lines that initialise the accumulators and the running maximum."""
        for name, axis in self.stream.partial_results:
            start = tl.zeros([self.block_m, f"PADDED_{axis.upper()}" if axis else 1], self.compute.text)
            if name == self.stream.largest:
                start = runtime[f"init_row_max{self.low}"](self.block_m, self.compute.text)
            self.lines.setup.append(Let(name, start))

    def behind(self) -> list[Value]:
        """The values of the epilogue: those that results need, down to the sums."""
        sums = {*self.sums, self.stream.largest}
        wanted = {result.output.name for result in self.op.results}
        found = []
        for value in reversed(self.op.values):
            if value.name in wanted - sums:
                found.append(value)
                wanted |= references(value.node)
        return found[::-1]

    def after(self, values: Iterable[Value]) -> None:
        """Adds the epilogue: the math after the sums, and the stores."""
        values, name = [*values], self.stream.largest
        nodes = [*(value.node for value in values), *(result.node for result in self.op.results)]
        if any(name in references(node) for node in nodes):
            self.lines.end.append(Let(name, runtime[f"base2_to_e{self.low}"](name)))
        self.elements(values, self.lines.end)
        for value in values:
            self.lines.end += self.final(value)
        for result in self.op.results:
            self.lines.end += self.store(result)

    def final(self, value: Value) -> list[Line]:
        """The lines of a value of the epilogue."""
        return self.lowering.line(value)

    def store(self, result: Result) -> list[Line]:
        tensor, mask = self.places.result(result), self.places.mask(result.axes)
        head, steps = f"{tensor.name}_head", self.space.steps(tensor.axes, self.space.cols)
        address = self.places.sum(head, steps, tensor)
        masked: dict[str, Term] = {} if mask is None else {"mask": mask}
        lines = [
            Let(head, self.places.at(tensor).value),
            Do(tl.store(address.value, stored(self.op, result), **masked)),
        ]
        if result.when:
            return [Branch(V[tensor.pointer].is_given, body=tuple(lines))]
        return under(condition(result.paths), lines)

    # Assembly

    def assembled(
        self,
        suffix: str,
        doc: str,
        lengths: tuple[str, ...],
        frame: Callable[[Sections], Nest],
        blocks: tuple[str, ...],
        partial: Nest = (),
        before: tuple[Argument, ...] = (),
        behind: tuple[Argument, ...] = (),
    ) -> Kernel:
        """The kernel of the lines, with arguments `before` or `behind` (after) the tensors of the math."""
        setup = [*nested(self.lines.setup), *self.lines.bounds]
        turn, ahead, loop, end = (
            [*nested(some)] for some in (self.lines.turn, self.lines.ahead, self.lines.loop, self.lines.end)
        )
        across = self.across(names_of([*setup, *turn, *ahead, *loop, *partial, *end]))
        setup = [*self.places.decode(), *across, *setup]
        casts = needed_by([*setup, *turn, *ahead, *loop, *end], param_casts(self.op, self.compute))
        nest = frame(Sections(setup, [], turn, ahead, loop, end, casts, partial))
        further = before, (*behind, *(Argument(name, V[name]) for name in lengths))
        heads, others = self.sizes()
        sizes = (*heads, *self.strides(), *others)
        constants = [f"size_{axis.lower()}" for axis in self.constant_axes]
        constants += [f"PADDED_{axis.upper()}" for axis in self.stream.widths]
        found = kernel_of(self.op, self.compute, self.tensors(), nest, further, sizes, constants)
        by_length = self.steps_by_length()
        fixed = (*lengths, *(name for name in found.names if name in by_length), *found.fixed)
        return replace(found, name=f"{self.op.name}_{suffix}", doc=doc, blocks=blocks, fixed=fixed)

    def steps_by_length(self) -> set[str]:
        """The strides between heads of tensors of per-row or per-column values, which depend on their lengths.

        Per-score tensors are not among them, as their strides are full rows: unless these are known to be divisible by
        16, loads of blocks are not vectorised.
        """
        stream = self.stream
        along = {stream.rows, stream.streamed}
        dims = (*self.space.rows, *self.places.dims(stream.outer_axes))
        scalars = [one for one in self.tensors() if not {*one.axes} & {*stream.widths} and not along <= {*one.axes}]
        return {tensor.stride(dim) for tensor in scalars for dim in dims}

    def tensors(self) -> list[Tensor]:
        return [*map(self.places.tensor, self.op.inputs), *map(self.places.result, self.op.results)]

    @property
    def constant_axes(self) -> tuple[str, ...]:
        """The axes whose lengths are constexpr: the widths, and the positions of a page."""
        return (*self.stream.widths, *([self.pages.slot] if self.pages else []))

    def across(self, names: set[str]) -> list[Line]:
        """The lines of positions along widths, and their masks, that `names` need."""
        found: list[Line] = []
        for axis in self.stream.widths:
            at, mask = f"at_{axis.lower()}", f"{axis.lower()}_mask"
            if at in names or mask in names:
                found.append(Let(at, tl.arange(0, f"PADDED_{axis.upper()}").to("INDEX")[None, :]))
            if mask in names:
                found.append(Let(mask, V[at] < f"size_{axis.lower()}"))
        return found

    def sizes(self) -> tuple[list[Argument], list[Argument]]:
        """The lengths of the dimensions of the batch, and the other lengths."""
        heads = [Argument(dim.size, V.head_sizes[place]) for place, dim in enumerate(self.space.rows)]
        known = {"n_rows", "n_cols", *(one.name for one in heads), *map(self.places.size_name, self.constant_axes)}
        others: dict[str, Argument] = {}
        for axis in (*self.stream.outer_axes, *self.stream.heads, *self.op.axes):
            name = self.places.size_name(axis)  # Merged axes may have the name of `...`.
            if name not in known:
                others.setdefault(name, Argument(name, length_of((axis,))))
        return heads, [*others.values()]

    def strides(self) -> list[Argument]:
        found = []
        # Tensors without batch axes come last, since the host has no strides of theirs along the batch.
        for tensor in sorted(self.tensors(), key=lambda one: not set(one.axes) & set(self.stream.batch)):
            steps = [(dim, V[f"{tensor.name}_heads"][place]) for place, dim in enumerate(self.space.rows)]
            mine = self.space.steps(tensor.axes, self.space.rows)
            found += [Argument(tensor.stride(dim), value) for dim, value in steps if dim in mine]
            for axis in (axis for axis in in_kernels(self.stream, tensor.axes) if axis not in self.stream.batch):
                at = tensor.axes.index(axis) - len(tensor.axes)
                found.append(Argument(self.places.taken_stride(tensor, axis), stride(tensor.name, at, tensor.optional)))
        return found


class Reduction(Builder):
    """Writes the kernel that merges the partial sums of a row, after a kernel that splits the streamed axis."""

    block_m = "1"

    def __init__(self, program: StreamingProgram) -> None:
        super().__init__(program)
        self.places = Places(self.op, self.space, self.compute, stream=self.stream, row_mask=None)
        self.lowering.in_loop = False

    def reduction(self) -> Kernel:
        self.begin()
        for (name, _), address in zip(self.stream.partial_results, partial_sums.addresses(self.stream), strict=True):
            self.merge(name, address)
        values = self.behind()
        for value in values:
            if is_row_sum(value, self.stream):
                self.row_sum(value)
        self.after(value for value in values if not is_row_sum(value, self.stream))
        lengths = ("n_cols",) if "n_cols" in names_of([*self.lines.setup, *self.lines.end]) else ()
        doc = "Adds up the partial sums of the splits, in a fixed order, and computes the epilogue."
        lengths, frame = ("n_splits", "n_rows", *lengths), Frames(self.stream, self.blocks).reduction
        blocks = "BLOCK_SPLITS", "INDEX"
        return self.assembled("reduce_kernel", doc, lengths, frame, blocks, before=(partial_sums.ARGUMENT,))

    def merge(self, name: str, address: Expr) -> None:
        """Merges the next partial sums into an accumulator; the maximum that they are taken below comes first."""
        partial, lines = f"{name}_partial", self.lines.loop
        other = partial_sums.LEAST if name == self.stream.largest else NOTHING
        lines.append(Let(partial, tl.load(address, mask=V.split_mask, other=other)))
        if name == self.stream.largest:
            lines.append(Let(f"{name}, shrink, rescale", runtime[f"merge_max{self.low}"](name, partial)))
            return
        added, so_far = V[partial], V[name]
        if self.sums[name].is_rescaled:
            added, so_far = added * V.shrink, so_far * V.rescale
        lines.append(Let(name, so_far + tl.sum(added, 0, keep_dims=True)))
