"""Op -> the view of the generated module of an operator that streams an axis."""

from __future__ import annotations

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
from .gluon import gluon_view
from .kernels import StreamingKernel, plan_streaming
from .program import StreamingProgram


class StreamingModule(Common):
    """The module of one kernel, a program of which takes a tile of rows at one index of the batch."""

    def __init__(self, program: StreamingProgram, around: Around) -> None:
        self.plan: StreamingKernel = plan_streaming(program)
        self.stream: Stream = program.stream
        super().__init__(program, False, self.plan.space, self.plan.compute, [self.plan.kernel], around)
        # Torch has to see what a triton_op launches.
        has_gluon = self.is_plain() and around.register != "triton_op"
        self.gluon = gluon_view(program) if has_gluon else None

    def module(self) -> Module:
        kernel, blocks, stream = self.plan.kernel, self.plan.blocks, self.stream
        lengths = [length_text(stream.batch), stream.rows, stream.streamed]
        parts = blocks.parts
        extra: dict[str, Any] = {
            "family": "streaming",
            "kernel": kernel_view(kernel),
            "n_parts": len(parts),
            "turn": self.turn(),
            "turn_lines": self.plan.turn,
            "whole": parts.index("whole"),
            "use_cols": mentions(kernel.body, "cols") or kernel.use_col_mask or kernel.use_mask,
            "lengths": ", ".join(lengths),
            "is_empty": " or ".join([*(["n_heads == 0"] if stream.batch else []), "n_rows == 0"]),
            "sizes": self.sizes_lines(),
            "key": "key" if self.knows else "None",
            "launcher": self.around.launcher(kernel.name),
            "widths": self.widths(),
            "index": self.index(),
            "reads": self.reads(),
            "passed": self.args(kernel),
            "constants_text": self.constants_text(kernel),
            "gluon_text": self.gluon_text(),
            **self.known(kernel),
        }
        return Module(self.view(extra), Traffic(frozenset({"streamed"}), streaming=self.streaming()), gluon=self.gluon)

    def gluon_text(self) -> str:
        """What the launch is told of the Gluon kernel beside the plain one."""
        if self.gluon is None:
            return ""
        kinds = ", ".join(f'"{kind}"' for kind in self.gluon["kinds"])
        is_masked = self.plan.blocks.tiles is not None
        fields = f'__name__, "{self.op.name}_gluon_kernel", {len(self.space.rows)}, {is_masked}, ({kinds})'
        return f", streaming.Gluon({fields})"

    def streaming(self) -> Streaming:
        return Streaming(len(self.stream.scores), len(self.stream.summed))

    def widths(self) -> str:
        return "{" + ", ".join(f'"{axis}": {axis}' for axis in self.stream.widths) + "}"

    def reads(self) -> str:
        """The widths of the matrices of a tile, and of those of a block."""
        sides: list[list[str]] = [[], []]
        for load in self.stream.matrices:
            width = next(axis for axis in load.axes if axis in self.stream.widths)
            sides[self.stream.streamed in load.axes].append(f'"{width}"')
        return tuple_text([tuple_text(side) for side in sides])

    def turn(self) -> tuple[str, str] | None:
        """The position along the axis that is summed besides, and its length."""
        return next(((f"i_{axis.lower()}", f"size_{axis.lower()}") for axis in self.stream.turns), None)

    def is_plain(self) -> bool:
        """Whether all tensors have the batch in front, and no position along it is used."""
        batch, dims = self.stream.batch, self.space.rows
        axes = [self.spread_axes(tensor) for tensor in self.op.inputs] + [result.axes for result in self.op.results]
        return bool(batch) and not any(dim.pinned for dim in dims) and all(one[: len(batch)] == batch for one in axes)

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
        dims, batch = self.space.rows, self.stream.batch
        if not self.is_plain():
            return self.host.fold("heads", dims)
        every = [(self.spread(t), self.spread_axes(t)) for t in self.op.inputs]
        every += [(result.output.name, result.axes) for result in self.op.results]
        names = tuple_text([name for name, _ in every])
        own = tuple_text([str(len(axes) - len(batch)) for _, axes in every])
        return [
            f"sizes = streaming.sizes({len(dims)}, {self.host.sizes(batch)}, (n_rows, n_cols), {names}, {own})",
            "if sizes is None:  # More dimensions than the kernel steps through.",
            f"    return {self.host.retry()}",
        ]

    def args(self, kernel: Kernel) -> str:
        """The tensors, integers and params of a launch."""
        tensors, integers, params = self.arguments(kernel)
        if self.is_plain():
            others = [text for text in integers if text in self.op.axes]
            sizes = tuple_text(["*sizes", *others]) if others else "sizes"
            return tuple_text([tuple_text(list(tensors)), sizes, tuple_text(list(params))])
        count = len(self.space.rows)
        texts: list[str] = []
        for text in integers:
            name, _, place = text.partition("_heads[")
            if place and count > 1 and name != "head_sizes":
                texts += [f"*{name}_heads"] if place == "0]" else []
            else:
                texts.append(text)
        return tuple_text([tuple_text(list(tensors)), tuple_text(texts), tuple_text(list(params))])

    def constants_text(self, kernel: Kernel) -> str:
        own = [name for name in kernel.constexprs if not name.startswith(("size_", "PADDED_"))]
        values = {"COMPUTE": "compute"}
        pairs = [f'"{name}": {values.get(name, name)}' for name in own]
        return "{" + ", ".join([*pairs, '"INDEX": index']) + "}"
