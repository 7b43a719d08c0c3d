"""Op -> the view of the generated module of an operator that streams an axis."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ...emit.configs import Traffic
from ...emit.host import Host
from ...emit.module import Around, Common, Module
from ...emit.statements import If, Launch, Length, Let, Note, Statement, call
from ...emit.stream_configs import Streaming
from ...lang.ir import Op
from ...lowering.axes import MATH_PROD, N_BATCH, length_of, lengths, with_dims
from ...lowering.lower import compute_of
from ...lowering.views import Kernel
from ...nest.values import Expr, Term, V, either, quoted, runtime, tensors
from ...passes.merged_axes import MergedAxes, is_grouped
from ...spec.types import BATCH, Input
from ..stream import computes_much, in_kernels, moved, multiplied_as, of_bytes, promoted
from . import partial_sums
from .gluon import gluon_kernels
from .gluon_gradient import gradient_kernels
from .gluon_shared import tiled_of
from .kernels import DESCRIPTOR, Builder, Reduction
from .places import may_be_wide, space_of
from .program import StreamingProgram


class StreamingModule(Common):
    """The module of one kernel, with one tile of rows at one index of the batch per program.

    With `search`, tiles are autotuned.
    """

    def __init__(self, program: StreamingProgram, around: Around, search: bool) -> None:
        self.op, self.stream, self.pages = program.in_kernels, program.stream, program.pages
        self.space = space_of(self.op, self.stream)
        self.search = search
        self.reduction = None if around.is_gradient else Reduction(program.not_empty).reduction()
        # Torch has to trace the launches of a triton_op.
        by_tma = self.is_plain() and around.register != "triton_op"
        # With one sum, as for dq, pointers are faster.
        is_described = by_tma and around.is_gradient and len(self.stream.summed) > 1
        self.described = self.matrices_of_blocks() if is_described else ()
        self.kernel = self.planned(program)
        self.are_few = program.blocks.are_few
        kernels = [kernel for kernel in (self.kernel, self.reduction) if kernel]
        super().__init__(program, False, self.space, compute_of(self.op), kernels, around)
        self.merged = program.merged
        if self.merged.every:
            self.op = program.in_kernels
            host = around.host(self.op, self.space, self.compute, around.function, around.extra)
            self.host = replace(host, parted=dict(_parted_tensors(program.op, self.merged)))
        if self.pages:
            self.host = replace(self.host, tables=frozenset(one.table for one in self.pages.inputs))
        # Per-score tensors may lack the batch: a descriptor then has no strides along it.
        is_known = {*self.shared} <= {tensor.name for tensor in tiled_of(self.op, self.stream)}
        is_known = is_known and not program.blocks.gap  # Only plain kernels skip the gap between two ranges.
        some = program.not_empty
        self.gluon = (gluon_kernels(some) or gradient_kernels(some)) if by_tma and is_known else None

    def planned(self, program: StreamingProgram) -> Kernel:
        return Builder(program, self.described).built(self.reduction is not None)

    across = False  # whether programs split the columns, one block each

    def module(self) -> Module:
        kernel, stream = self.kernel, self.stream
        heads = (*stream.batch, *stream.heads)
        streamed = length_of(self.pages.parted_axes((stream.streamed,)) if self.pages else (stream.streamed,))
        of_results = [*([V.n_heads] if heads else []), V.n_rows, *([V.n_cols] if self.across else [])]
        between = [
            *self.of_one_dtype(),
            Length(("n_heads", "n_rows", "n_cols"), (length_of(heads), stream.rows, streamed)),
            *self.nothing_for(functools.reduce(Expr.or_, (length.equals(0) for length in of_results))),
            *self.sized(),
        ]
        body = self.function(self.launches(), self.known(self.own(kernel)), between)
        made = self.built(body, Traffic(frozenset({"streamed"}), streaming=self.streaming()))
        return replace(made, gluon=self.gluon.functions if self.gluon else ())

    def unpacked(self) -> list[Statement]:
        return [*super().unpacked(), *(_merging(self.outer, self.merged) if self.merged.every else [])]

    def of_one_dtype(self) -> Iterator[Statement]:
        """Matrices that a tile multiplies, in one dtype; the launch of a call like this one finds other tensors."""
        matrices, widened = promoted(self.op, self.stream), self.widened()
        if matrices:
            yield Note("A tile multiplies matrices of one dtype.")
            dot = Let("dot", tensors.promote(*(V[name].dtype for name in matrices)))
            converted = self.without_key([(name, V[name].to("dot")) for name in matrices])
            yield If(_differ(matrices), (dot, converted))
        if widened:
            yield Note("Triton 3.6 multiplies float64 by nothing that was narrower.")
            is_wide = V[multiplied_as(self.op, self.stream)].dtype.equals("torch.float64")
            yield If(is_wide, (self.without_key(widened),))

    def without_key(self, changed: list[tuple[str, Expr]]) -> Let:
        """Gives tensors other values, in a call whose launches are not to be found again."""
        names, values = zip(*[*([("key", None)] if self.knows else []), *changed], strict=True)
        return Let(names, values)

    def launches(self) -> Iterator[Let | Launch]:
        kernel, constants = self.kernel, self.constants_of(self.kernel, V.index)
        own = self.table_of("STREAMED"), self.launcher(kernel), constants
        yield Let("plain", call("streaming.Kernel", *own, across=self.across, search=self.search))
        run = call(
            "streaming.run",
            self.key,
            "plain",
            lengths=("n_heads", "n_rows", "n_cols"),
            tile_widths=self.widths(of_blocks=False),
            block_widths=self.widths(of_blocks=True),
            args=self.args(self.own(kernel)),
            split=self.split(self.reduction) if self.reduction else None,
            in_group=self.stream.group,
            blocks=self.blocks(),
            gluon=self.gluon_kernel(),
        )
        yield Launch(run)

    def gluon_kernel(self) -> Expr | None:
        """The Gluon kernel in addition to the plain one; None without one."""
        if self.gluon is None:
            return None
        return call(
            "streaming.Gluon",
            module="__name__",
            name=quoted(self.op.name),
            matmuls=(len(self.stream.scores), len(self.stream.summed)),
            n_dims=len(self.space.rows),
            kinds=tuple(map(quoted, self.gluon.kinds)),
            n_own=self.own_counts(self.arguments(self.own(self.kernel))[0]),
            found_of=tuple(self.gluon.found_of) or None,
        )

    def own_counts(self, tensors: Iterable[str]) -> tuple[int | None, ...]:
        """The number of axes of each tensor after the batch; None if it has no batch."""
        counts = {name: count for name, _, count in self.folded_tensors(self.kernel)}
        return tuple(map(counts.get, tensors))

    def matrices_of_blocks(self) -> tuple[str, ...]:
        """The streamed matrices, batch axes first, for which the runtime may make descriptors."""
        stream, found = self.stream, []
        for load in (load for load in stream.matrices if load.name not in self.shared):
            outer_axes = tuple(axis for axis in stream.outer_axes if axis in load.axes)
            order = (*stream.batch, *outer_axes, stream.streamed, stream.width(load))
            if len(outer_axes) <= 3 and self.spread_axes(self.op.input(load.name)) == order:
                found.append(load.name)
        return tuple(found)

    def blocks(self) -> Expr | None:
        """The streamed matrices for which the runtime may make descriptors."""
        if not self.described:
            return None
        tensors = self.arguments(self.own(self.kernel))[0]
        places = tuple(map(tensors.index, self.described))
        n_own = self.own_counts(tensors)
        return call("streaming_tma.Blocks", n_dims=len(self.space.rows), n_own=n_own, places=places)

    def own(self, kernel: Kernel) -> Kernel:
        """A kernel with the arguments that the wrapper passes; the runtime adds descriptors and split arguments."""
        runtime = partial_sums.ARGUMENT.value, V.n_splits, DESCRIPTOR
        return replace(kernel, arguments=tuple(one for one in kernel.arguments if one.value not in runtime))

    def split(self, reduction: Kernel) -> Expr:
        """The split of the streamed axis: the reduction kernel, the length of partials per row, and its arguments."""
        kernel = self.own(reduction)
        return call(
            "streaming.Split",
            kernel=self.launcher(reduction),
            length=partial_sums.length(self.stream, lambda axis: call("streaming.padded", axis)),
            args=self.args(kernel, tensors.folded(self.sizes_of(kernel))),
            constants=self.constants_of(reduction, V.index),
        )

    def streaming(self) -> Streaming:
        streamed = (load for load in self.stream.matrices if self.stream.streamed in load.axes)
        bytes_ = any(of_bytes(self.op, load) for load in streamed)
        light = not (self.stream.largest or self.are_few or computes_much(self.op, self.stream))
        return Streaming(len(self.stream.scores), len(self.stream.summed), bool(self.described), bytes_, light)

    def widened(self) -> list[tuple[str, Expr]]:
        """The matrices of single bytes, and flags along rows or columns, that are widened next to float64 matrices,
        each with its converted value.
        """
        other = multiplied_as(self.op, self.stream)
        is_wide = other and "float64" in self.op.input(other).type.dtypes
        matrices = [load.name for load in self.stream.matrices if is_wide and of_bytes(self.op, load)]
        op = self.pages.joined(self.op) if self.pages else self.op
        flags = [tensor for tensor in self.op.inputs if may_be_wide(op, self.stream, tensor)]
        found = [(name, V[name].method("double")) for name in matrices]
        for name, value, default in ((flag.name, V[flag.name], flag.default) for flag in flags):
            integers = value.method("int")
            found.append((name, integers if default is None else either(value.is_none, value, integers)))
        return found

    def widths(self, of_blocks: bool) -> tuple[str, ...]:
        """The widths of the matrices of a tile, or with `of_blocks` of the streamed matrices."""
        stream = self.stream
        return tuple(stream.width(one) for one in stream.matrices if (stream.streamed in one.axes) == of_blocks)

    def is_plain(self) -> bool:
        """Whether all tensors are seen with the batch in front, none in pages, and no position along it is used."""
        batch, dims = self.stream.batch, self.space.rows
        axes = [self.spread_axes(tensor) for tensor in self.op.inputs]
        axes += [in_kernels(self.stream, result.axes) for result in self.op.results]
        if self.pages or not batch or any(dim.pinned for dim in dims):
            return False
        return all(one[: len(batch)] == batch for one in axes)

    @property
    def shared(self) -> tuple[str, ...]:
        """The inputs that are the same for all of the batch."""
        return tuple(tensor.name for tensor in self.op.inputs if not set(tensor.type.axes) & set(self.stream.batch))

    def spread_axes(self, tensor: Input) -> tuple[str, ...]:
        """The axes of a tensor as kernels have strides for them, with all of the batch where it lacks some."""
        batch, axes = self.stream.batch, in_kernels(self.stream, tensor.type.axes)
        if tensor.default is not None:
            return axes
        return (*batch, *(axis for axis in axes if axis not in batch))

    def spread(self, tensor: Input) -> Expr:
        """A tensor expanded along the batch axes that it lacks."""
        axes, own = self.spread_axes(tensor), in_kernels(self.stream, tensor.type.axes)
        seen = self.seen(tensor.name, tensor.type.axes)
        if axes == own:
            return seen
        missing = [place for place, axis in enumerate(axes) if axis not in own]
        leading = next((place for place, axis in enumerate(axes) if axis in own), len(axes))
        if any(place > leading for place in missing):
            seen = with_dims(seen, axes[leading:], own)
        return seen.method("expand", *lengths(axes))

    def seen(self, name: str, axes: tuple[str, ...]) -> Expr:
        """A tensor with its axes in the order of the kernels' strides."""
        return V[f"{name}_by_head"] if moved(axes, in_kernels(self.stream, axes)) else V[name]

    def sized(self) -> list[Statement]:
        if not self.is_plain():
            return self.host.fold("heads", self.space.rows)
        found: list[Statement] = []
        sizes = self.sizes_of(self.kernel)
        for name, axes in self.op.tensors.items():
            is_seen = self.gluon or self.described or self.seen(name, axes).text in sizes.names
            if is_seen and (dims := moved(axes, in_kernels(self.stream, axes))):
                found.append(Let(f"{name}_by_head", tensors.with_last(name, *dims)))
        return [*found, *self.host.folded("sizes", sizes, self.stream.batch, len(self.space.rows))]

    def sizes_of(self, kernel: Kernel) -> Expr:
        """The lengths and strides that a kernel takes, folded."""
        every = self.folded_tensors(kernel)
        return call(
            "streaming.sizes",
            n_dims=len(self.space.rows),
            batch=self.host.sizes(self.stream.batch),
            lengths=tuple(name for name in ("n_rows", "n_cols") if name in kernel.names),
            operands=tuple(value for _, value, _ in every),
            n_own=tuple(count for _, _, count in every),
        )

    def folded_tensors(self, kernel: Kernel) -> list[tuple[str, Expr, int]]:
        """The tensors of a kernel that have the batch: the name of each, it with all of that, and how many axes it has
        besides.
        """
        n_batch = len(self.stream.batch)
        every = [(t.name, self.spread(t), len(self.spread_axes(t)) - n_batch) for t in self.op.inputs]
        every = [one for one in every if one[0] not in self.shared]
        for result in self.op.results:
            name, axes = result.output.name, result.axes
            every.append((name, self.seen(name, axes), len(axes) - n_batch))
        # A kernel may be passed a tensor for its dtype alone.
        names = {name for argument in kernel.arguments for name in argument.value.names}
        return [one for one in every if f"{one[0]}_heads" in names]

    def args(self, kernel: Kernel, sizes: Expr = V.sizes) -> tuple[Term, ...]:
        """The tensors, integers and params of a launch; `sizes` are those that are folded."""
        tensors, integers, params = self.arguments(kernel)
        if self.is_plain():
            known = {*self.op.axes, *self.shared}
            others = [one for one in integers if {*one.names} <= known]
            seen: Term = tensors
            if self.gluon or self.described:  # Descriptors have the dimensions in this order, too.
                seen = tuple(self.seen(name, self.op.tensors[name]) for name in tensors)
            return seen, (sizes.each, *others) if others else sizes, params
        count = len(self.space.rows)
        found: list[Expr] = []
        for one in integers:
            every = [V[one.names[0]][n] for n in range(count)]
            if count > 1 and {*every} <= {*integers}:
                found += [V[one.names[0]].each] if one == every[0] else []
            else:
                found.append(one)
        return tensors, tuple(found), params

    def constant(self, name: str) -> Expr:
        """What the function calls a constant of its kernel, a width of matrices by its axis."""
        widths = {f"size_{axis.lower()}": V[axis] for axis in self.stream.widths}
        if self.pages:  # Positions are divided by the length of a page, which may have none.
            widths[f"size_{self.pages.slot.lower()}"] = runtime.max(1, self.pages.slot)
        widths |= {f"PADDED_{axis.upper()}": call("streaming.padded", axis) for axis in self.stream.widths}
        return widths.get(name) or super().constant(name)


def _differ(matrices: Sequence[str]) -> Expr:
    """Whether some matrices have several dtypes."""
    first, *others = (V[name].dtype for name in matrices)
    return first.differs(others[0]) if len(others) == 1 else first.equals(*others).negated


def _merging(host: Host, merged: MergedAxes) -> list[Statement]:
    """Gives tensors one dimension for merged axes, where each axis has had its own.

    That is a view wherever strides allow it, as they do for what was one dimension, and otherwise a copy.
    """
    found: list[Statement] = [Let(name, MATH_PROD) for name, group in merged.every if group == (BATCH,)]
    for tensor in host.op.inputs:
        axes, value, own = tensor.type.axes, V[tensor.name], list[Statement]()
        for name, group in merged.every:
            if group == (BATCH,) and BATCH in axes:
                rest = value.shape[N_BATCH:].each
                own = [Let(tensor.name, value.method("reshape", name, rest))]
            elif group[0] in axes:
                first = axes.index(group[0]) - len(axes)
                value = value.method("flatten", first, first + len(group) - 1)
                axes = tuple(name if axis == group[0] else axis for axis in axes if axis not in group[1:])
        found += host.guarded(tensor, [*own, *([] if value.is_name else [Let(tensor.name, value)])])
    return [*found, *(Length(name, length_of(group)) for name, group in merged.every if group != (BATCH,))]


def _parted_tensors(op: Op, merged: MergedAxes) -> Iterator[tuple[str, list[tuple[Term, ...]]]]:
    """The tensors of an operator that have a dimension for each of merged axes, with the arguments of `unflatten` that
    make these.
    """
    shapes = [(tensor.name, tensor.type.shape) for tensor in op.inputs]
    shapes += [(result.output.name, op.grouping(result)) for result in op.results]
    for tensor, shape in shapes:
        calls = list[tuple[Term, ...]]()
        dims = [term.names for term in merged.joined_shape(shape)]
        for name, group in merged.every:
            if (name,) in dims and not is_grouped(shape, group):
                place = dims.index((name,))
                calls.append((place - len(dims), group))
                dims[place : place + 1] = [(axis,) for axis in group]
        if calls:
            yield tensor, calls
