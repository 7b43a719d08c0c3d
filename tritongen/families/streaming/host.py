"""Op -> the view of the generated module of an operator that streams an axis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...emit.axes import sizes
from ...emit.configs import Traffic
from ...emit.host_checks import tuple_text
from ...emit.module import Around, Common, Module, kernel_view, length_text
from ...emit.stream_configs import Streaming
from ...lowering.lines import mentions
from ...lowering.views import Kernel
from ...spec.types import BATCH, Input
from ..stream import Stream
from . import partial_sums
from .gluon import gluon_view
from .kernels import StreamingKernel, plan_streaming
from .program import StreamingProgram
from .reduction import plan_reduction


class StreamingModule(Common):
    """The module of one kernel, a program of which takes a tile of rows at one index of the batch."""

    def __init__(self, program: StreamingProgram, around: Around) -> None:
        self.stream: Stream = program.stream
        self.pages = program.pages
        self.reduction = None if around.is_gradient else plan_reduction(program)
        self.plan: StreamingKernel = plan_streaming(program, self.reduction is not None)
        kernels = [kernel for kernel in (self.plan.kernel, self.reduction) if kernel]
        super().__init__(program, False, self.plan.space, self.plan.compute, kernels, around)
        # Torch has to see what a triton_op launches.
        has_gluon = self.is_plain() and not self.shared and around.register != "triton_op"
        self.gluon = gluon_view(program) if has_gluon else None

    def module(self) -> Module:
        kernel, blocks, stream = self.plan.kernel, self.plan.blocks, self.stream
        heads = (*stream.batch, *stream.heads)
        streamed = length_text(self.pages.parted_axes((stream.streamed,)) if self.pages else (stream.streamed,))
        lengths = [length_text(heads), stream.rows, streamed]
        parts = blocks.parts
        extra: dict[str, Any] = {
            "family": "streaming",
            "kernel": kernel_view(kernel),
            "reduction": self.reduction and kernel_view(self.reduction),
            "partial": self.plan.partial,
            "partial_length": f"({partial_sums.length(stream, partial_sums.in_kernel)})",
            "n_parts": len(parts),
            "turn": self.turn(),
            "first_row": "first_row" if mentions(kernel.setup, "first_row") else "_",
            "group": stream.group and (f"i_{stream.group.lower()}", f"size_{stream.group.lower()}"),
            "turn_lines": self.plan.turn,
            "whole": parts.index("whole"),
            "use_cols": mentions(kernel.body, "cols") or kernel.use_col_mask or kernel.use_mask,
            "lengths": ", ".join(lengths),
            "is_empty": " or ".join([*(["n_heads == 0"] if heads else []), "n_rows == 0"]),
            "sizes": self.sizes_lines(),
            "key": "key" if self.knows else "None",
            "launcher": self.around.launcher(kernel.name),
            "index": self.index(),
            "reads": self.reads(),
            "passed": self.args(self.without_partial(kernel)),
            "constants_text": self.constants_of(kernel, "index"),
            "split": self.reduction and self.split(self.reduction),
            "in_group": stream.group,
            "page": self.pages and self.pages.slot,
            **self.known(self.without_partial(kernel)),
            "gluon_text": self.gluon_text(),
        }
        return Module(self.view(extra), Traffic(frozenset({"streamed"}), streaming=self.streaming()), gluon=self.gluon)

    def gluon_text(self) -> str:
        """What the launch is told of the Gluon kernel beside the plain one."""
        if self.gluon is None:
            return ""
        kinds = ", ".join(f'"{kind}"' for kind in self.gluon["kinds"])
        is_masked = self.plan.blocks.tiles is not None
        fields = f'__name__, "{self.op.name}_gluon_kernel", n_cols, {len(self.space.rows)}, {is_masked}, ({kinds})'
        return f", gluon=streaming.Gluon({fields})"

    def without_partial(self, kernel: Kernel) -> Kernel:
        """A kernel with the arguments that the wrapper has; those of a split are the runtime's."""
        own = tuple(one for one in kernel.arguments if one != partial_sums.ARGUMENT and one.value != "n_splits")
        return replace(kernel, arguments=own)

    def split(self, reduction: Kernel) -> str:
        """How the streamed axis is split: what merges partial sums, how long those of a row are, and what it takes."""
        kernel = self.without_partial(reduction)
        launcher = self.around.launcher(reduction.name)
        args = self.args(kernel, f"tensors.folded({self.sizes_of(kernel)})")
        length = partial_sums.length(self.stream, lambda axis: f"streaming.padded({axis})")
        return f"streaming.Split({launcher}, n_cols, {length}, {args}, {self.constants_of(reduction, 'index')})"

    def streaming(self) -> Streaming:
        return Streaming(len(self.stream.scores), len(self.stream.summed))

    def reads(self) -> str:
        """The widths of the matrices of a tile, and of those of a block."""
        sides: list[list[str]] = [[], []]
        for load in self.stream.matrices:
            sides[self.stream.streamed in load.axes].append(self.stream.width(load))
        return tuple_text([tuple_text(side) for side in sides])

    def turn(self) -> tuple[str, str] | None:
        """The position along the axis that is summed besides, and its length."""
        return next(((f"i_{axis.lower()}", f"size_{axis.lower()}") for axis in self.stream.turns), None)

    def is_plain(self) -> bool:
        """Whether all tensors have the batch in front, none of them in pages, and no position along it is used."""
        batch, dims = self.stream.batch, self.space.rows
        axes = [self.spread_axes(tensor) for tensor in self.op.inputs] + [result.axes for result in self.op.results]
        if self.pages or not batch or any(dim.pinned for dim in dims):
            return False
        return all(one[: len(batch)] == batch for one in axes)

    @property
    def shared(self) -> tuple[str, ...]:
        """The inputs that are the same for all of the batch."""
        return tuple(tensor.name for tensor in self.op.inputs if not set(tensor.type.axes) & set(self.stream.batch))

    def spread_axes(self, tensor: Input) -> tuple[str, ...]:
        """The axes of a tensor, with all of the batch where it lacks some and has those in front in their order."""
        batch, axes = self.stream.batch, tensor.type.axes
        front = tuple(axis for axis in batch if axis in axes)
        if tensor.default is not None or axes[: len(front)] != front:
            return axes
        return (*batch, *axes[len(front) :])

    def spread(self, tensor: Input) -> str:
        """A tensor with all of the batch, along what it lacks of which it is seen as the same."""
        axes, own = self.spread_axes(tensor), tensor.type.axes
        if axes == own:
            return tensor.name
        return f"{tensor.name}{self.index_of(axes, own)}.expand({sizes(list(axes))})"

    def index_of(self, axes: tuple[str, ...], own: tuple[str, ...]) -> str:
        """What puts a dimension where a tensor lacks an axis that is not one of the first."""
        missing = [place for place, axis in enumerate(axes) if axis not in own]
        leading = next((place for place, axis in enumerate(axes) if axis in own), len(axes))
        if all(place < leading for place in missing):
            return ""
        parts = ["..." if axis == BATCH else ":" if axis in own else "None" for axis in axes[leading:]]
        return f"[{', '.join(parts)}]"

    def sizes_lines(self) -> list[str]:
        if not self.is_plain():
            return self.host.fold("heads", self.space.rows)
        return self.host.folded("sizes", self.sizes_of(self.plan.kernel), self.stream.batch, len(self.space.rows))

    def sizes_of(self, kernel: Kernel) -> str:
        """The lengths and strides that a kernel is told, folded."""
        batch = self.stream.batch
        every = [(t.name, self.spread(t), self.spread_axes(t)) for t in self.op.inputs if t.name not in self.shared]
        every += [(result.output.name, result.output.name, result.axes) for result in self.op.results]
        every = [one for one in every if f"{one[0]}_ptr" in kernel.names]
        texts = tuple_text([text for _, text, _ in every])
        own = tuple_text([str(len(axes) - len(batch)) for _, _, axes in every])
        lengths = tuple_text([name for name in ("n_rows", "n_cols") if name in kernel.names])
        return f"streaming.sizes({len(self.space.rows)}, {self.host.sizes(batch)}, {lengths}, {texts}, {own})"

    def args(self, kernel: Kernel, sizes: str = "sizes") -> str:
        """The tensors, integers and params of a launch; `sizes` are those that are folded."""
        tensors, integers, params = self.arguments(kernel)
        if self.is_plain():
            others = [text for text in integers if text in self.op.axes or text.partition(".")[0] in self.shared]
            sizes = tuple_text([f"*{sizes}", *others]) if others else sizes
            return tuple_text([tuple_text(list(tensors)), sizes, tuple_text(list(params))])
        count = len(self.space.rows)
        texts: list[str] = []
        for text in integers:
            name, _, place = text.partition("_heads[")
            every = [f"{name}_heads[{n}]" for n in range(count)]
            if place and count > 1 and {*every} <= {*integers}:
                texts += [f"*{name}_heads"] if text == every[0] else []
            else:
                texts.append(text)
        return tuple_text([tuple_text(list(tensors)), tuple_text(texts), tuple_text(list(params))])

    def constant(self, name: str) -> str:
        """What the function calls a constant of its kernel, a width of matrices by its axis."""
        widths = {f"size_{axis.lower()}": axis for axis in self.stream.widths}
        widths |= {f"size_{self.pages.slot.lower()}": self.pages.slot} if self.pages else {}
        widths |= {f"PADDED_{axis.upper()}": f"streaming.padded({axis})" for axis in self.stream.widths}
        return widths.get(name) or super().constant(name)
