"""Kernels of contractions: tiles of rows by columns, summed over blocks of the inner axes.

Four kernels of the same math: a strided one for any layout, which does split-K too, for few tiles and a long sum; a
persistent one whose tiles are copied by TMA; stream-K for the tail wave of that one; and the reduction of the partial
sums that those leave. Which of them run is decided on the host, by the runtime's `contraction`, which passes arguments
in one order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from ...lang.ir import Dtype, Ref, Result
from ...lang.promotion import is_float8
from ...lowering.assemble import converted, param_arguments, param_casts, stored
from ...lowering.choices import condition
from ...lowering.tile import loads
from ...lowering.views import Argument, Kernel
from ...nest.ir import Branch, Do, Let, Line, Nest, names_of, needed_by, nested, under
from ...nest.values import V, runtime, tl
from ...passes.structure import of_strips, references
from ...spec.types import BATCH
from .addressing import ALIGN, stride
from .arguments import Arguments, beside
from .copies import ALTERNATED, HALVES, alternation, copied
from .frames import BLOCKS, REDUCED, Frames
from .operands import Operand, is_described
from .sums import Lines


class ContractionKernels(Frames):
    """Writes the kernels, as far as they are asked for."""

    @property
    def kernels(self) -> list[Kernel]:
        every = self.pointers, self.descriptors, self.shares, self.combine
        return [kernel for kernel in every if kernel is not None]

    @property
    def given_dtype(self) -> Dtype | None:
        """The dtype of the matmul, where kernels are given it."""
        return self.operands.dot if self.operands.converts else None

    def after(self, described: bool = False, full_rows: bool = False) -> list[Line]:
        """The epilogue: the rest of the math, and the stores."""
        lowering = self.lowering()
        lines: list[Line] = []
        if self.places.group:
            lines += [Let(name, runtime.in_groups(name, self.places.group)) for name in self.contraction.sums]
        outputs = [result.output.name for result in self.op.results]
        values = [v for v in self.needed_after(outputs) if v.name not in self.contraction.sums]
        names = {load.name for load in loads(value.node for value in values)}
        for tensor in self.op.inputs:
            if tensor.name in names:
                lines += under(self.choices.reading(tensor.name, values), self.places.load(tensor))
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
        names = {name for node in self.strips or self.groups for name in references(node)}
        return {value.name for value in self.needed_after(names)}

    def is_full(self, result: Result) -> bool:
        """Whether a result has all rows and columns, as a tile has them."""
        if of_strips(self.op, result) is not None or self.places.columns(result.axes) == "groups":
            return False
        return {"rows", "cols"} <= set(self.contraction.roles(result.axes))

    # Kernels

    def bases(self) -> list[Line]:
        """The pointers to where the rows and columns of matrices begin."""
        return self.places.picks(self.operands.matrices, True) + [
            line
            for operand in self.operands.matrices
            for line in under(self.choices.reading(operand.name, self.inside), [self.places.base_line(operand)])
        ]

    @cached_property
    def pointers(self) -> Kernel:
        lines = Lines(setup=[*self.bases(), *self.limit(), *self.start()])
        self.block(lines, self.places.read_by_pointer, may_swap=True)
        lines.end += self.after()
        doc = "One BLOCK_M x BLOCK_N tile per program, any strides; for split-K, a partial sum over `steps` blocks."
        return self.kernel("kernel", doc, self.arguments.strided(), lines, self.strided)

    def read_partials(self) -> list[Line]:
        loads = {
            name: Let(name, runtime.sum_partials(name, f"{name}_partial_ptr", V.partials, V.within, V.BLOCK_M))
            for name in self.contraction.sums
        }
        return [line for name, load in loads.items() for line in under(self.choices.of(name), [load])]

    @cached_property
    def combine(self) -> Kernel:
        zeros = tl.zeros([V.REDUCE_M, V.BLOCK_N], V.ACC)
        lines = Lines(setup=[Let(name, zeros) for name in self.contraction.sums])
        lines.loop += self.read_partials()
        lines.end += self.after()
        doc = "Adds up the partial sums of split-K or stream-K, in a fixed order, and computes the epilogue."
        return self.kernel("reduce_kernel", doc, self.arguments.reduction(), lines, self.reduction, REDUCED)

    @cached_property
    def shares(self) -> Kernel | None:
        """Stream-K, of the tiles in the tail wave, which all take the same time, and none of which skips blocks."""
        if self.descriptors is None or self.triangle is not None or self.halved:
            return None
        doc = "Stream-K: partial sums of the tiles of the tail wave, which are too few to occupy all SMs."
        lines, frame = self.described(True), self.stream_k
        return self.kernel("stream_k_kernel", doc, self.arguments.stream_k(), lines, frame)

    def described(self, knows: bool) -> Lines:
        """The sums of a tile whose blocks are copied by TMA; the loop may know of matrices that do not exist."""
        lines = Lines(setup=[*self.places.picks(self.operands.matrices), *self.limit()])

        def read(operand: Operand, half: str = "") -> list[Line]:
            batched = "batch" in self.places.roles(operand.name)
            matrix = V[f"{operand.name}_at"].to("tl.int32") if self.places.is_picked(operand.name) else V.matrix
            return [copied(operand.name, operand.side, operand.flag, batched, half, matrix)]

        if joined := self.operands.joined:
            (left,) = (operand for operand in self.operands.matrices if operand.side == 0)
            both = runtime[f"{joined.name}_desc.load"]([0, V.first_col, V.start])
            lines.setup += self.start(2 * V.BLOCK_N, [joined.sum])
            lines.loop += [*read(left), Let(joined.name, both.method("reshape", 2 * V.BLOCK_N, V.BLOCK_K).T)]
            lines.loop.append(self.summing(joined.sum, left.name, joined.name))
        elif self.halved:
            (name,) = self.contraction.sums
            left, right = sorted(self.operands.matrices, key=lambda operand: operand.side)
            lines.setup += self.start(V.BLOCK_N // 2, [f"{name}{half}" for half in HALVES])
            first, second = (self.summing(f"{name}{half}", left.name, f"{right.name}{half}") for half in HALVES)
            lines.loop += [*read(left), *(line for half in HALVES for line in read(right, half))]
            lines.loop += [first, replace(second, comment="")]
        elif self.alternates:
            batched = "batch" in self.places.roles(self.operands.matrices[0].name)
            summed = "n_summed" if self.triangle else "n_inner"
            lines.setup += [*self.start(), Let("n_steps", tl.cdiv(summed, V.BLOCK_K))]
            lines.loop += alternation(self.contraction)
            lines.loop += [copied(name, side, flag, batched) for side, (name, flag) in enumerate(ALTERNATED.items())]
            lines.loop.append(self.summing(*self.contraction.sums, *ALTERNATED))
        else:
            lines.setup += self.start(knows=knows)
            self.block(lines, read)
        return lines

    @cached_property
    def descriptors(self) -> Kernel | None:
        if not is_described(self.op, self.contraction, self.operands):
            return None
        lines = self.described(False)
        lines.end += [*self.missing(), *self.after(True, self.full_rows)]
        doc = "Persistent; loads and stores tiles by TMA."
        blocks = ("WARP_SPECIALIZE", *BLOCKS) if self.specialises else BLOCKS
        return self.kernel("tma_kernel", doc, self.arguments.tma(), lines, self.tma, blocks)

    def casts(self, lines: list[Line], loops: bool = True) -> list[Line]:
        """What some lines need first: params in the dtype of the math, and how many blocks groups have."""
        casts = [*needed_by(lines, param_casts(self.op, self.compute))]
        if self.contraction.groups and loops:
            size = self.operands.group_size
            casts.append(Let("group_blocks", tl.cdiv(size, V.BLOCK_K)))
            casts.append(Let("n_steps", V.n_groups * V.group_blocks))
        return casts

    @cached_property
    def arguments(self) -> Arguments:
        lines = Lines(setup=[*self.places.picks(self.operands.matrices), *self.limit()])
        self.block(lines, self.places.read_by_pointer)
        loop, end = [*nested([*lines.setup, *lines.loop])], [*nested([*self.read_partials(), *self.after()])]
        loop, end = [*self.casts(loop), *loop], [*self.casts(end, False), *end]
        full = tuple(result.output.name for result in self.op.results if self.is_full(result))
        found = beside(self.candidates(), loop, end)
        return Arguments(self.contraction, self.operands, self.alternates, full, found)

    def candidates(self) -> list[Argument]:
        """What lines may mention beside matrices and results that have all rows and columns."""
        found = []
        for tensor in self.op.inputs:
            if tensor.name not in self.operands.names:
                found.append(Argument(f"{tensor.name}_ptr", tensor.name))
                for n, role in enumerate(self.contraction.roles(tensor.type.axes)):
                    given = tensor.default is None
                    step = f"{tensor.name}.stride({n})" if given else f"tensors.stride({tensor.name}, {n})"
                    found.append(Argument(stride(tensor.name, role), step))
        separate = [result.output.name for result in self.op.results if not self.is_full(result)]
        found += [Argument(f"{name}_ptr", name) for name in separate]
        for axis in self.op.axes:
            found.append(Argument(self.places.size_name(axis), "math.prod(batch)" if axis == BATCH else axis))
        found.append(Argument("group_size", "group_size"))
        found += param_arguments(self.op, self.compute)
        dot = "dot" if self.operands.converts else f"{self.operands.matrices[0].name}.dtype"
        constexprs = {param.name: param.name for param in self.op.params if param.kind in ("bool", "enum")}
        constexprs |= {"DOT": f"tensors.triton_dtype({dot})", "SUM": f"tensors.accumulator_dtype({dot})"}
        constexprs["COMPUTE"] = "compute"
        constexprs |= {one.dtype: f"tensors.triton_dtype({one.name}.dtype)" for one in self.operands.matrices}
        return found + [Argument(f"{name}: tl.constexpr", value) for name, value in constexprs.items()]

    def kernel(
        self,
        suffix: str,
        doc: str,
        spelled: list[str],
        lines: Lines,
        frame: Callable[[Nest, Lines], Nest],
        blocks: tuple[str, ...] = BLOCKS,
    ) -> Kernel:
        lines = Lines(*([*nested(part)] for part in (lines.setup, lines.loop, lines.end)))
        arguments = tuple(Argument(one, "") for one in spelled)
        names = {argument.name for argument in arguments}
        constexprs = (
            *(("SWAPS",) if "SWAPS" in names_of([*lines]) else ()),
            *(ALIGN.values() if suffix == "kernel" else ()),
            "ACC",
        )
        return Kernel(
            name=f"{self.op.name}_{suffix}",
            doc=doc,
            arguments=arguments,
            constexprs=constexprs,
            blocks=blocks,
            body=frame(tuple(self.casts([*lines], suffix != "reduce_kernel")), lines),
            fixed=tuple(param.name for param in self.op.params if param.kind == "int" and param.name in names),
        )
