"""Op -> the view of the generated module of an operator that streams an axis."""

from __future__ import annotations

from typing import Any

from ...emit.configs import Traffic
from ...emit.host_checks import tuple_text
from ...emit.module import Around, Common, Module, kernel_view, length_text
from ...emit.stream_configs import Streaming
from ...lowering.lines import mentions
from ...lowering.views import Kernel
from .kernels import StreamingKernel, plan_streaming
from .program import StreamingProgram
from .streams import Stream


class StreamingModule(Common):
    """The module of one kernel, a program of which takes a tile of rows at one index of the batch."""

    def __init__(self, program: StreamingProgram, around: Around) -> None:
        self.plan: StreamingKernel = plan_streaming(program)
        self.stream: Stream = program.stream
        super().__init__(program, False, self.plan.space, self.plan.compute, [self.plan.kernel], around)

    def module(self) -> Module:
        kernel, blocks, stream = self.plan.kernel, self.plan.blocks, self.stream
        cols = [*stream.turns, stream.streamed]
        lengths = [length_text(stream.batch), stream.rows, length_text(tuple(cols))]
        parts = blocks.parts
        extra: dict[str, Any] = {
            "family": "streaming",
            "kernel": kernel_view(kernel),
            "n_parts": len(parts),
            "whole": parts.index("whole"),
            "use_cols": mentions(kernel.body, "cols") or kernel.use_col_mask,
            "lengths": ", ".join(lengths),
            "is_empty": " or ".join([*(["n_heads == 0"] if stream.batch else []), "n_rows == 0"]),
            "sizes": self.sizes_lines(kernel),
            "key": "key" if self.knows else "None",
            "launcher": self.around.launcher(kernel.name),
            "widths": self.widths(),
            "reads": self.reads(),
            "passed": self.args(kernel),
            "constants_text": self.constants_text(kernel),
            **self.known(kernel),
        }
        return Module(self.view(extra), Traffic(frozenset({"streamed"}), streaming=self.streaming()))

    def streaming(self) -> Streaming:
        return Streaming(len(self.stream.scores), sum(one.matrix is not None for one in self.stream.sums))

    def widths(self) -> str:
        return "{" + ", ".join(f'"{axis}": {axis}' for axis in self.stream.widths) + "}"

    def reads(self) -> str:
        """The widths of the matrices of a tile, and of those of a block."""
        sides: list[list[str]] = [[], []]
        for load in self.stream.matrices:
            width = next(axis for axis in load.axes if axis in self.stream.widths)
            sides[self.stream.streamed in load.axes].append(f'"{width}"')
        return tuple_text([tuple_text(side) for side in sides])

    def is_plain(self, kernel: Kernel) -> bool:
        """Whether the integers of a launch are lengths, and the strides of tensors that have the batch in front."""
        _, integers, _ = self.arguments(kernel)
        batch, dims = self.stream.batch, self.space.rows
        every = [(axes, name) for name, axes, _ in self.host.moving(dims)]
        plain = bool(batch) and all(axes[: len(batch)] == batch for axes, _ in every)
        strides = sum(len(dims) + len(axes) - len(batch) for axes, _ in every)
        return plain and not any(dim.pinned for dim in dims) and len(integers) == 1 + len(dims) + strides

    def sizes_lines(self, kernel: Kernel) -> list[str]:
        dims, batch = self.space.rows, self.stream.batch
        if not self.is_plain(kernel):
            return self.host.fold("heads", dims)
        moving = self.host.moving(dims)
        names = tuple_text([name for name, _, _ in moving])
        own = tuple_text([str(len(axes) - len(batch)) for _, axes, _ in moving])
        lengths = self.host.sizes(batch)
        return [
            f"sizes = streaming.sizes({len(dims)}, {lengths}, (n_rows, n_cols), {names}, {own})",
            "if sizes is None:  # More dimensions than the kernel steps through.",
            f"    return {self.host.retry()}",
        ]

    def args(self, kernel: Kernel) -> str:
        """The tensors, integers and params of a launch."""
        tensors, integers, params = self.arguments(kernel)
        if self.is_plain(kernel):
            return tuple_text([tuple_text(list(tensors)), "sizes", tuple_text(list(params))])
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
