"""The arguments of a contraction's kernels, in the order in which the runtime's `contraction` passes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...lowering.views import Argument
from ...nest.ir import Line, names_of
from ...passes.contractions import Contraction
from .addressing import stride
from .copies import ALTERNATED
from .operands import Operand, Operands

# Stream-K: the first split tile; the number of tiles with long splits, and of splits each; the same for short splits.
SPLIT = ("first_tile", "n_long", "long_splits", "n_short", "short_splits")


def beside(candidates: list[Argument], loop: list[Line], epilogue: list[Line]) -> Mapping[str, tuple[Argument, ...]]:
    """The candidates that the lines mention, by use: in the loop, in both, or in the epilogue."""
    before, after = names_of(loop), names_of(epilogue)
    groups = {"loop": before - after, "both": before & after, "epilogue": after - before}
    return {use: tuple(one for one in candidates if one.name in names) for use, names in groups.items()}


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of each kernel as signatures spell them, except the constants that all kernels have."""

    contraction: Contraction
    operands: Operands
    alternates: bool
    full: tuple[str, ...]  # the results that have all rows and columns
    beside: Mapping[str, tuple[Argument, ...]]  # in addition to matrices and these results

    def strided(self) -> list[str]:
        matrices = [f"{operand.name}_ptr" for operand in self.matrices]
        strides = [stride(one.name, role) for one in self.matrices for role in self.roles(one)]
        beside = self.spelled("loop", "both", "epilogue")
        return [*matrices, *self.results, *self.partials, *self.lengths, "steps", *strides, *beside]

    def tma(self) -> list[str]:
        written = [f"{name}_{kind}" for name in self.full for kind in ("desc", "ptr")]
        beside = self.spelled("loop", "both", "epilogue")
        return [*self.descriptors, *written, *self.lengths, "n_tiles", *beside, *self.flags]

    def stream_k(self) -> list[str]:
        beside = self.spelled("loop", "both")
        return [*self.descriptors, *self.partials, *self.lengths, *SPLIT, *beside, *self.flags]

    def reduction(self) -> list[str]:
        beside = self.spelled("both", "epilogue")
        return [*self.results, *self.partials, *self.lengths[:2], *SPLIT, *beside]

    @property
    def lengths(self) -> list[str]:
        return ["n_rows", "n_cols", "n_groups" if self.contraction.groups else "n_inner"]

    @property
    def matrices(self) -> list[Operand]:
        return sorted(self.operands.matrices, key=lambda operand: operand.side)

    def roles(self, operand: Operand) -> list[str]:
        """The roles of a matrix's axes, the inner ones last."""
        roles = self.contraction.roles(operand.tensor.type.axes)
        return [role for role in ("batch", "rows", "cols", "inner") if role in roles]

    @property
    def results(self) -> list[str]:
        return [f"{name}_ptr" for name in self.full]

    @property
    def partials(self) -> list[str]:
        return [f"{name}_partial_ptr" for name in self.contraction.sums]

    @property
    def descriptors(self) -> list[str]:
        joined = self.operands.joined
        names = [operand.name for operand in self.matrices if joined is None or operand.side == 0]
        return [f"{name}_desc" for name in (*names, *([joined.name] if joined else []))]

    @property
    def flags(self) -> list[str]:
        """The constexpr flags of the layouts of descriptors."""
        if self.alternates:
            flags = [*ALTERNATED.values()]
        elif joined := self.operands.joined:
            flags = [*(operand.flag for operand in self.matrices if operand.side == 0), joined.flag]
        else:
            flags = [operand.flag for operand in self.matrices]
        return [f"{flag}: tl.constexpr" for flag in flags]

    def spelled(self, *uses: str) -> list[str]:
        return [argument.spelling for use in uses for argument in self.beside[use]]
