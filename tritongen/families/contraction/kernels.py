"""Kernels of contractions: tiles of rows by columns, summed over blocks of the inner axes.

Four kernels of the same math: a strided one for any layout, which does split-K too, for few tiles and a long sum; a
persistent one whose tiles are copied by TMA; stream-K for the tail wave of that one; and the reduction of the partial
sums that those leave. Which of them run is decided on the host, by the runtime's `contraction`, which passes arguments
in one order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from ...lang.ir import Dtype, Reduce, Ref, Result, Value
from ...lang.promotion import is_float8
from ...lowering.assemble import converted, param_arguments, param_casts, stored
from ...lowering.axes import length_of
from ...lowering.axes import stride as host_stride
from ...lowering.choices import condition
from ...lowering.positions import TILE
from ...lowering.tile import loads, needed
from ...lowering.views import Argument, Kernel
from ...nest.ir import (
    BLANK,
    Accumulate,
    Branch,
    Do,
    For,
    Given,
    Let,
    Line,
    Nest,
    Positions,
    names_of,
    needed_by,
    nested,
    under,
    without_dead_code,
)
from ...nest.values import Expr, Term, V, either, expr, runtime, tensors, tl
from ...passes.structure import of_strips, references
from .addressing import ALIGN, stride
from .copies import ALTERNATED, HALVES, alternation, copied
from .operands import Operand, is_described
from .sums import Lines, Sums

BLOCKS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP", "INDEX")
# Stream-K: the first split tile; the number of tiles with long splits, and of splits each; the same for short splits.
SPLIT = ("first_tile", "n_long", "long_splits", "n_short", "short_splits")
REDUCED = ("BLOCK_M", "BLOCK_N", "GROUP", "REDUCE_M", "INDEX")
_PROGRAM = tl.program_id(0)
_SPLITS = tuple(map(V.__getitem__, SPLIT[1:]))
SLICERS = {2: "halves", 4: "quarters"}
_SLICING = {2: "Half by half", 4: "Quarter by quarter"}


class ContractionKernels(Sums):
    """Writes the kernels, as far as they are asked for."""

    @property
    def kernels(self) -> list[Kernel]:
        every = self.pointers, self.descriptors, self.shares, self.combine
        return [kernel for kernel in every if kernel is not None]

    @property
    def given_dtype(self) -> Dtype | None:
        """The dtype of the matmul, where kernels are given it."""
        return self.operands.dot if self.operands.converts else None

    # What the math decides

    @property
    def halved(self) -> bool:
        """Whether a tile is summed in halves: of float8, a block's sum takes as many registers as the sum of all."""
        plain = len(self.contraction.products) == 1 and not self.contraction.groups and not self.full_rows
        decided = any(map(self.choices.of, self.products))
        return self.operands.float8 and plain and self.slices == 2 and not decided

    @property
    def slices(self) -> int:
        """In how many slices the epilogue runs: matrices that it reads take shared memory."""
        if self.places.group or any(map(self.contraction.strips_axis, self.strips)):
            return 2  # Those of columns are no wider than a slice.
        outputs = [result.output.name for result in self.op.results]
        names = {load.name for load in loads(value.node for value in self.needed_after(outputs))}
        extras = names - self.operands.names
        return 4 if any({"rows", "cols"} <= set(self.places.roles(name)) for name in extras) else 2

    @property
    def strips(self) -> tuple[Reduce, ...]:
        return tuple(v.node for v in self.op.values if isinstance(v.node, Reduce) and v.node.strips)

    @property
    def others(self) -> tuple[Reduce, ...]:
        """The reductions other than matmuls and strips."""
        nodes = (v.node for v in self.op.values if v.name not in self.products)
        return tuple(node for node in nodes if isinstance(node, Reduce) and not node.strips)

    @property
    def full_rows(self) -> bool:
        """Whether results are reduced over their columns."""
        return bool(self.others) and not self.places.group

    @property
    def specialises(self) -> bool:
        """Whether the TMA kernel is warp-specialised: several matmuls of plain matrices."""
        several = len(self.contraction.sums) > 1 and not self.operands.joined
        return several and self.contraction.is_plain

    def needed_after(self, roots: Iterable[str]) -> list[Value]:
        """The values that the results need, up to the sums."""
        wanted, found = set(roots), []
        for value in reversed(self.op.values):
            if value.name in wanted:
                found.append(value)
                if value.name not in self.contraction.sums:
                    wanted |= references(value.node)
        return found[::-1]

    # The epilogue

    def after(self, described: bool = False, full_rows: bool = False) -> list[Line]:
        """The epilogue: the rest of the math, and the stores."""
        lowering = self.lowering()
        lines: list[Line] = []
        if self.places.group:
            lines += [Let(name, runtime.in_groups(name, self.places.group)) for name in self.contraction.sums]
        values = needed(self.op.values, [result.output.name for result in self.op.results], self.contraction.sums)
        lines += self.assembler.reads(values)
        for name in self.contraction.sums:
            lines += self.as_stored(name)
        for value in values:
            lines += [*lowering.line(value), *self.as_stored(value.name)]
        col = "slice_col" if described and not full_rows else "first_col"
        for result in self.op.results:
            lines += self.store(result, col, described)
        return lines

    def store(self, result: Result, col: str, described: bool) -> list[Line]:
        name, matrix = result.output.name, [V.matrix] if self.contraction.batch else []
        tile = V.first_row, col, V.n_rows, V.n_cols
        if self.is_full(result):
            desc = f"{name}_desc" if described else "None"
            is_as_it_is = not is_float8(self.op, result.dtype)
            value = V[name] if is_as_it_is else converted(self.op, result)
            if not self.places.fills(result.node):  # Of a choice, or without an input, it may be a row or a number.
                value = tl.where(self.places.full_mask, value, 0)
            value = runtime.merge_groups(value) if self.places.group else value
            line = Do(runtime.store_tile(desc, f"{name}_ptr", value, *tile, V.INDEX, *matrix))
            if is_as_it_is:
                return under(condition(result.paths), [line])
        elif node := of_strips(self.op, result):
            width, axis = self.op.strips_along(node.strips).width, self.contraction.strips_axis(node)
            line = Do(runtime.store_strips(f"{name}_ptr", name, *tile, width, axis, V.INDEX, *matrix))
        else:
            address, mask = self.places.of_result(result).value, self.places.mask(result.axes)
            line = Do(tl.store(address, stored(self.op, result), mask=mask))
        if result.when:
            return [Branch(V[f"{name}_ptr"].is_given, (line,))]
        return under(condition(result.paths), [line])

    def as_stored(self, name: str) -> list[Line]:
        """The lines that round a value to its stored dtype before tile-wise reductions read it."""
        if name not in self.reduced_in_tiles:
            return []
        values = {value.name: value.node for value in self.op.values}
        stored = [r.output.name for r in self.op.results if self.is_full(r) and not is_float8(self.op, r.dtype)]
        same = [one for one in stored if one == name or (isinstance(node := values[one], Ref) and node.name == name)]
        return [Let(name, runtime.as_stored(name, f"{one}_ptr")) for one in same]

    @cached_property
    def reduced_in_tiles(self) -> set[str]:
        """The values that reductions over strips or groups read, down to the sums."""
        names = {
            name for node in self.strips or (self.others if self.places.group else ()) for name in references(node)
        }
        return {value.name for value in self.needed_after(names)}

    def is_full(self, result: Result) -> bool:
        """Whether a result has all rows and columns, as a tile has them."""
        if of_strips(self.op, result) is not None or self.places.columns(result.axes) == "groups":
            return False
        return {"rows", "cols"} <= set(self.contraction.roles(result.axes))

    # Kernels

    def bases(self) -> list[Line]:
        """The pointers to where the rows and columns of matrices begin."""
        return self.places.gathers(self.operands.matrices, True) + [
            line
            for operand in self.operands.matrices
            for line in under(self.choices.reading(operand.name, self.inside), [self.places.base_of(operand)])
        ]

    @cached_property
    def pointers(self) -> Kernel:
        lines = Lines(setup=[*self.bases(), *self.limit(), *self.start()])
        self.block(lines, self.places.read_by_pointer, may_swap=True)
        lines.end += self.after()
        doc = "One BLOCK_M x BLOCK_N tile per program, any strides; for split-K, a partial sum over `steps` blocks."
        return self.kernel("kernel", doc, self.strided(lines.nested()))

    def of_sums(self, line: Callable[[str], Line]) -> list[Line]:
        """A line for each sum, where that is needed."""
        return [one for name in self.contraction.sums for one in under(self.choices.of(name), [line(name)])]

    def read_partials(self) -> list[Line]:
        places = V.partials, V.within, V.BLOCK_M
        return self.of_sums(lambda name: Let(name, runtime.sum_partials(name, f"{name}_partial_ptr", *places)))

    @cached_property
    def combine(self) -> Kernel:
        zeros = tl.zeros([V.REDUCE_M, V.BLOCK_N], V.ACC)
        lines = Lines(setup=[Let(name, zeros) for name in self.contraction.sums])
        lines.loop += self.read_partials()
        lines.end += self.after()
        doc = "Adds up the partial sums of split-K or stream-K, in a fixed order, and computes the epilogue."
        return self.kernel("reduce_kernel", doc, self.reduction(lines.nested()), REDUCED)

    @cached_property
    def shares(self) -> Kernel | None:
        """The stream-K kernel of the tail wave; None without TMA, or if tiles skip blocks or are `halved`."""
        if self.descriptors is None or self.triangle is not None or self.halved:
            return None
        doc = "Stream-K: partial sums of the tiles of the tail wave, which are too few to occupy all SMs."
        body = self.stream_k(self.described(True).nested())
        return self.kernel("stream_k_kernel", doc, body)

    def described(self, knows: bool) -> Lines:
        """The sums of a tile whose blocks are copied by TMA; the loop may know of matrices that do not exist."""
        lines = Lines(setup=[*self.places.gathers(self.operands.matrices), *self.limit()])

        def read(operand: Operand, half: str = "") -> list[Line]:
            matrix = V[f"{operand.name}_at"].to("tl.int32") if self.places.is_gathered(operand.name) else V.matrix
            return [copied(operand.name, operand.side, operand.flag, self.is_batched(operand), half, matrix)]

        if joined := self.operands.joined:
            (left,) = (operand for operand in self.operands.matrices if operand.side == 0)
            both = runtime[f"{joined.name}_desc.load"]([0, V.first_col, V.start])
            lines.setup += self.start(2 * V.BLOCK_N, [joined.sum])
            lines.loop += [*read(left), Let(joined.name, both.method("reshape", 2 * V.BLOCK_N, V.BLOCK_K).T)]
            lines.loop.append(self.summing(joined.sum, left.name, joined.name))
        elif self.halved:
            (name,) = self.contraction.sums
            left, right = self.operands.by_side
            lines.setup += self.start(V.BLOCK_N // 2, [f"{name}{half}" for half in HALVES])
            first, second = (self.summing(f"{name}{half}", left.name, f"{right.name}{half}") for half in HALVES)
            lines.loop += [*read(left), *(line for half in HALVES for line in read(right, half))]
            lines.loop += [first, replace(second, comment="")]
        elif self.alternates:
            batched = self.is_batched(self.operands.matrices[0])
            summed = "n_summed" if self.triangle else "n_inner"
            lines.setup += [*self.start(), Let("n_steps", tl.cdiv(summed, V.BLOCK_K))]
            lines.loop += alternation(self.contraction)
            lines.loop += [copied(name, side, flag, batched) for side, (name, flag) in enumerate(ALTERNATED.items())]
            lines.loop.append(self.summing(*self.contraction.sums, *ALTERNATED))
        else:
            lines.setup += self.start(knows=knows)
            self.block(lines, read)
        return lines

    def is_batched(self, operand: Operand) -> bool:
        return "batch" in self.places.roles(operand.name)

    @cached_property
    def descriptors(self) -> Kernel | None:
        if not is_described(self.op, self.contraction, self.operands):
            return None
        lines = self.described(False)
        lines.end += [*self.missing(), *self.after(True, self.full_rows)]
        doc = "Persistent; loads and stores tiles by TMA."
        blocks = ("WARP_SPECIALIZE", *BLOCKS) if self.specialises else BLOCKS
        return self.kernel("tma_kernel", doc, self.tma(lines.nested()), blocks)

    # Arguments, in the order in which the runtime's `contraction` passes them

    @cached_property
    def extras(self) -> Mapping[str, tuple[Argument, ...]]:
        """The arguments in addition to matrices and results with all rows and columns, by the lines that read them: of
        the loop, of both, or of the epilogue.
        """
        lines = Lines(setup=[*self.places.gathers(self.operands.matrices), *self.limit()])
        self.block(lines, self.places.read_by_pointer)
        casts = param_casts(self.op, self.compute)
        stages = [*self.start_of_group, *lines.setup, *lines.loop], [*self.read_partials(), *self.after()]
        before, after = (names_of([*needed_by(stage, casts), *stage]) for stage in map(nested, stages))
        groups = {"loop": before - after, "both": before & after, "epilogue": after - before}
        candidates = self.candidates()
        return {use: tuple(one for one in candidates if one.name in names) for use, names in groups.items()}

    def spelled(self, *uses: str) -> list[str]:
        return [argument.spelling for use in uses for argument in self.extras[use]]

    @property
    def full(self) -> tuple[str, ...]:
        """The results that have all rows and columns."""
        return tuple(result.output.name for result in self.op.results if self.is_full(result))

    @property
    def lengths(self) -> list[str]:
        return ["n_rows", "n_cols", "n_groups" if self.contraction.groups else "n_inner"]

    @property
    def flags(self) -> list[str]:
        """The constexpr flags of the layouts of descriptors."""
        flags = [operand.flag for operand in self.operands.by_side]
        if joined := self.operands.joined:
            flags = [*(operand.flag for operand in self.operands.by_side if operand.side == 0), joined.flag]
        return [f"{flag}: tl.constexpr" for flag in (ALTERNATED.values() if self.alternates else flags)]

    def arguments(self, suffix: str) -> list[str]:
        """The arguments of a kernel as its signature spells them, but for the constants that all kernels have."""
        matrices, joined = self.operands.by_side, self.operands.joined
        results = [f"{name}_ptr" for name in self.full]
        partials = [f"{name}_partial_ptr" for name in self.contraction.sums]
        described = [f"{one.name}_desc" for one in matrices if not (joined and one.side)]
        described += [f"{joined.name}_desc"] if joined else []
        match suffix:
            case "kernel":
                steps = [step for one in matrices for step in self.places.strides(one.tensor)]
                pointers = [*(f"{one.name}_ptr" for one in matrices), *results, *partials]
                return [*pointers, *self.lengths, "steps", *steps, *self.spelled("loop", "both", "epilogue")]
            case "tma_kernel":
                written = [f"{name}_{kind}" for name in self.full for kind in ("desc", "ptr")]
                extras = self.spelled("loop", "both", "epilogue")
                return [*described, *written, *self.lengths, "n_tiles", *extras, *self.flags]
            case "stream_k_kernel":
                return [*described, *partials, *self.lengths, *SPLIT, *self.spelled("loop", "both"), *self.flags]
        return [*results, *partials, *self.lengths[:2], *SPLIT, *self.spelled("both", "epilogue")]

    def candidates(self) -> list[Argument]:
        """The arguments that lines may use in addition to matrices and results with all rows and columns."""
        found = []
        for tensor in self.op.inputs:
            if tensor.name not in self.operands.names:
                found.append(Argument(f"{tensor.name}_ptr", V[tensor.name]))
                for n, role in enumerate(self.contraction.roles(tensor.type.axes)):
                    step = host_stride(tensor.name, n, tensor.default is not None)
                    found.append(Argument(stride(tensor.name, role), step))
        separate = [result.output.name for result in self.op.results if not self.is_full(result)]
        found += [Argument(f"{name}_ptr", V[name]) for name in separate]
        for axis in self.op.axes:
            found.append(Argument(self.places.size_name(axis), length_of((axis,))))
        found.append(Argument("group_size", V.group_size))
        found += param_arguments(self.op, self.compute)
        dot = V.dot if self.operands.converts else V[self.operands.matrices[0].name].dtype
        constexprs = {param.name: V[param.name] for param in self.op.params if param.kind in ("bool", "enum")}
        constexprs |= {"DOT": tensors.triton_dtype(dot), "SUM": tensors.accumulator_dtype(dot), "COMPUTE": V.compute}
        constexprs |= {
            self.places.dtype_of(one.name): tensors.triton_dtype(V[one.name].dtype) for one in self.operands.matrices
        }
        return found + [Argument(f"{name}: tl.constexpr", value) for name, value in constexprs.items()]

    def kernel(self, suffix: str, doc: str, body: Nest, blocks: tuple[str, ...] = BLOCKS) -> Kernel:
        arguments = tuple(map(Argument, self.arguments(suffix)))
        names = {argument.name for argument in arguments}
        first = param_casts(self.op, self.compute)
        if self.contraction.groups:
            first.append(Let("group_blocks", tl.cdiv(self.operands.group_size, V.BLOCK_K)))
            first.append(Let("n_steps", V.n_groups * V.group_blocks))
        return Kernel(
            name=f"{self.op.name}_{suffix}",
            doc=doc,
            arguments=arguments,
            constexprs=(
                *(("SWAPS",) if "SWAPS" in names_of(body) else ()),
                *(ALIGN.values() if suffix == "kernel" else ()),
                "ACC",
            ),
            blocks=blocks,
            body=without_dead_code((*needed_by(body, first), *body)),
            fixed=tuple(param.name for param in self.op.params if param.kind == "int" and param.name in names),
        )

    # What stands around the lines

    def stored_partials(self) -> Nest:
        return nested(self.of_sums(lambda name: Do(runtime.store_partial(f"{name}_partial_ptr", V.partial, name))))

    @property
    def extent(self) -> str:
        """How far a tile sums."""
        return "n_summed" if self.triangle else "n_steps" if self.operands.group_size else "n_inner"

    def strided(self, lines: Lines) -> Nest:
        reached = runtime.padded if self.pads else runtime.aligned
        n_rows, n_cols = (reached(n, ALIGN[n[2:]]) for n in ("n_rows", "n_cols"))
        before = [*lines.setup, *lines.loop, *([] if self.places.group else lines.end)]
        step, size = ("step", "1") if self.operands.group_size else ("start", "BLOCK_K")
        end = V.n_inner if self.operands.group_size else runtime.aligned(V.n_inner, ALIGN["inner"])
        return (
            Let("tile", _PROGRAM),
            *self.located(),
            *needed_by(before, _tile("BLOCK_M", n_rows=n_rows, n_cols=n_cols)),
            BLANK,
            *lines.setup,
            Let("first, end", runtime.split_k(self.extent, V.steps, size, V.INDEX)),
            For(
                runtime.range(V.first, V.end, *(() if size == "1" else (size,))),
                index=step,
                body=(*self.start_of_group, *self.inner(end, wide=True), *lines.loop),
            ),
            BLANK,
            Branch(
                V[f"{self.contraction.sums[0]}_partial_ptr"].is_given,
                body=(Let("partial", tl.program_id(1) * tl.num_programs(0) + V.tile), *self.stored_partials()),
                other=(*(needed_by(lines.end, self.positions()) if self.places.group else ()), *lines.end),
            ),
        )

    def stream_k(self, lines: Lines) -> Nest:
        steps = tl.cdiv(V.n_inner, V.BLOCK_K)
        steps = len(self.contraction.products) * steps if self.alternates else steps
        split = runtime.stream_k(V.partial, V.first_tile, *_SPLITS, V.tile_steps)
        start = () if self.operands.group_size or self.alternates else (Let("start", V.step * V.BLOCK_K),)
        return (
            Let("partial", _PROGRAM),
            Let("tile_steps", V.n_steps if self.operands.group_size else steps),
            Let("tile, first, end", split),
            *self.located(),
            *_tile("BLOCK_M"),
            *lines.setup,
            For(
                runtime.range(V.first, V.end),
                index="step",
                body=(*self.start_of_group, *start, *self.inner(V.n_inner), *lines.loop),
            ),
            BLANK,
            *self.joined,
            *self.stored_partials(),
        )

    def tma(self, lines: Lines) -> Nest:
        flatten = "flatten: the loads of the next tile overlap with the epilogue of this one."
        options: dict[str, Term] = {"flatten": True}
        if self.specialises:
            flatten = (
                "Warp-specialised: some warps load while others compute. Flattened: the next tile loads during this"
            )
            flatten += " epilogue."
            options = {"flatten": V.WARP_SPECIALIZE.negated, "warp_specialize": V.WARP_SPECIALIZE}
        every = tl.range(_PROGRAM, V.n_tiles, tl.num_programs(0), **options)
        step, steps, comment = "start", runtime.range(0, self.extent, V.BLOCK_K), ""
        if self.operands.group_size:
            step, steps = "step", runtime.range(self.extent)
        elif self.alternates:
            comment = (
                "The products one after the other, so that the loads of the next overlap with the dot of this one."
            )
            step, steps = "step", runtime.range(len(self.contraction.products) * V.n_steps)
        before = needed_by([*lines.setup, *lines.loop], _tile("BLOCK_M"))
        inside = (
            *self.located(),
            *before,
            *lines.setup,
            For(steps, comment=comment, index=step, body=(*self.start_of_group, *self.inner(V.n_inner), *lines.loop)),
            BLANK,
            *self.joined,
            *self.finished(lines.end, {one.assigned for one in before} if not self.places.group else set()),
        )
        return (For(every, comment=flatten, index="tile", body=inside),)

    def finished(self, end: Sequence[Line], known: set[str]) -> Nest:
        """The epilogue of a full tile, or slice by slice, whose rows may be known."""
        width = V.BLOCK_N // self.slices
        every = self.positions() if self.full_rows else self.positions("BLOCK_M", "slice_col", width)
        positions = (one for one in needed_by(end, every) if one.assigned not in known & {"rows", "row_mask"})
        if self.full_rows:
            return (*positions, *end)
        said = f"{_SLICING[self.slices]}: the store of one slice overlaps with the math of the next."
        slices = (
            expr((f"{name}_first", f"{name}_second"))
            if self.halved
            else runtime[SLICERS[self.slices]](name, V.BLOCK_M, V.BLOCK_N)
            for name in self.contraction.sums
        )
        lines = [Let(f"{name}_slices", value) for name, value in zip(self.contraction.sums, slices, strict=True)]
        body = (
            Let("slice_col", V.first_col + V.piece * width),
            *positions,
            *(Let(name, V[f"{name}_slices"][V.piece]) for name in self.contraction.sums),
            *end,
        )
        first = replace(lines[0], comment=said)
        return (first, *lines[1:], For(tl.static_range(self.slices), index="piece", body=body))

    def reduction(self, lines: Lines) -> Nest:
        return (
            Let("first", _PROGRAM * V.REDUCE_M, comment="Each program takes REDUCE_M rows of a tile."),
            Let("shared, within", expr((V.first // V.BLOCK_M, V.first % V.BLOCK_M))),
            *self.located(V.first_tile + V.shared),
            Accumulate("first_row", "+", V.within),
            *self.positions("REDUCE_M"),
            *lines.setup,
            Let("partials", runtime.partials_of(V.shared, *_SPLITS)),
            *lines.loop,
            *lines.end,
        )

    # Where a program is

    def located(self, tile: Expr = V.tile) -> Nest:
        """The tile of a program, and the matrix that it is of."""
        tiles = V.n_rows, V.n_cols, V.BLOCK_M, V.BLOCK_N, V.GROUP
        if not self.contraction.batch:
            return (Let("first_row, first_col", runtime.locate(tile, *tiles)),)
        found = Let("matrix, first_row, first_col", runtime.locate_in_batch(tile, *tiles))
        return (found, Given("batch", V.matrix.to("INDEX")))

    def positions(self, rows: str = "BLOCK_M", col: str = "first_col", cols: Expr = V.BLOCK_N) -> Nest:
        """The positions of a tile, of columns in groups [rows, groups, inside of one]."""
        if not self.places.group:
            return _tile(rows, col, cols)
        first = V[col].to("INDEX") // self.places.group
        return (
            Positions(V.first_row.to("INDEX"), name="rows", block=rows, lanes="[:, None, None]"),
            Positions(first, name="groups", block=cols // self.places.group, lanes="[None, :, None]"),
            Positions(expr(0), name="inside", block=str(self.places.group), lanes="[None, None, :]", wide=True),
            Given("cols", V.groups * self.places.group + V.inside),
            Given("row_mask", V.rows < V.n_rows),
            Given("col_mask", V.groups < V.n_cols // self.places.group),
            TILE,
        )

    @property
    def start_of_group(self) -> Nest:
        """Which group of the inner axes a step is of, and where it starts."""
        if not (size := self.operands.group_size):
            return ()
        start = V.group * size + V.step % V.group_blocks * V.BLOCK_K
        return (Let("group", V.step // V.group_blocks), Let("start", start))

    def inner(self, end: Expr, wide: bool = False) -> Nest:
        """The positions of a block along the inner axes."""
        if size := self.operands.group_size:
            end = (V.group + 1) * size
        inner = Positions(V.start, name="inner", block="BLOCK_K", wide=wide)
        return (inner, Given("inner_mask", V.inner < end))

    @property
    def joined(self) -> Nest:
        """The lines that split the accumulator of two matrices that are copied as one."""
        if (joined := self.operands.joined) is None:
            return ()
        both = f"{joined.sum}_halves"
        said = "The two halves of the joined accumulator."
        halves = Let(both, runtime.halves(joined.sum, V.BLOCK_M, 2 * V.BLOCK_N), comment=said)
        places = (either(joined.flag, 0, 1), either(joined.flag, 1, 0))
        each = zip(joined.sums, places, strict=True)
        return (halves, *(Let(name, V[both][place]) for name, place in each))


def _tile(
    rows: str, col: str = "first_col", cols: Expr = V.BLOCK_N, *, n_rows: Expr = V.n_rows, n_cols: Expr = V.n_cols
) -> Nest:
    return (
        Positions(V.first_row.to("INDEX"), name="rows", block=rows, lanes="[:, None]"),
        Positions(V[col].to("INDEX"), name="cols", block=cols, lanes="[None, :]"),
        Given("row_mask", V.rows < n_rows),
        Given("col_mask", V.cols < n_cols),
        TILE,
    )
