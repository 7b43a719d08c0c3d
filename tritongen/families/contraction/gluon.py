"""The Gluon kernel of a matmul of float8: on Hopper one warp loads blocks by TMA, and warp groups multiply and add."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import chain

from ...lang.promotion import is_float8
from ...lowering.views import Kernel
from ...nest.ir import Let, Line, names_of, nested
from ...nest.values import Expr, V, expr
from ...passes.factors import dtypes_of
from ...spec.types import Input
from ..gluon import SHARED, calls_only, casts, filled
from .addressing import Places
from .kernels import ContractionKernels
from .program import ContractionProgram
from .sums import Lines

TERMS, COLS = 128, 128  # of a product, and its columns
HALF = {"float16", "bfloat16"}


def gluon_functions(program: ContractionProgram, plan: ContractionKernels) -> tuple[Kernel, ...]:
    """The kernel of a product of two matrices of float8, in groups of 128 terms with scales of their own or without
    groups, and of math that has numbers of rows and of columns besides, after what it calls; none for other math.

    It takes the arguments of the kernels of a `plan`.
    """
    builder = GluonBuilder(program)
    return builder.functions(plan) if builder.takes(plan) else ()


class Vectors(Places):
    """Reads vectors: along the other axis threads would hold each number many times. All positions are inside."""

    def mask(self, axes: tuple[str, ...]) -> None:
        return None

    def uniform(self, tensor: Input) -> dict[str, int]:
        return {role: n for role, n in Places.uniform(self, tensor).items() if role == "cols" and n % COLS == 0}

    def load_lines(self, tensor: Input, policy: str = "", first: Expr | None = None) -> list[Line]:
        at = replace(self, starts=dict.fromkeys(self.uniform(tensor), V.first_col))
        read = replace(at.raw(tensor), to=self.widen(tensor)).value
        return [Let(tensor.name, read[slice(None), None] if "rows" in self.roles(tensor.name) else read)]

    def is_of_cols(self, tensor: Input) -> bool:
        """Whether a tensor has per-column values."""
        return "cols" in self.roles(tensor.name) and not self.uniform(tensor)


class GluonBuilder(ContractionKernels):
    """Makes the lines of a scale, of the loads of inputs other than matrices, and of the epilogue."""

    places: Vectors
    kind = Vectors

    def __init__(self, program: ContractionProgram) -> None:
        super().__init__(program)
        self.has_groups = bool(self.contraction.groups)
        self.vectors = [one for one in self.op.inputs if one.name not in self.operands.names]

    def takes(self, plan: ContractionKernels) -> bool:
        return self.is_product() and self.is_tile() and self.reads_vectors() and self.calls_known(plan)

    def is_product(self) -> bool:
        """Whether there is one matmul of two float8 matrices, with groups of 128 terms if any."""
        operands = self.operands
        return (
            operands.float8
            and len(self.contraction.products) == 1
            and len(operands.matrices) == 2
            and operands.group_size in ("", str(TERMS))
            and not (self.contraction.batch or self.places.gathered or self.triangle)
            and not any(map(self.choices.of, self.products))
        )

    def is_tile(self) -> bool:
        """Whether there is one result, with all rows and columns, which may be half precision."""
        (result, *others) = self.op.results
        known = chain.from_iterable(dtypes_of(self.op, leaf) for leaf in result.dtype.of)
        return (
            not others
            and self.is_full(result)
            and self.places.fills(result.node)
            and bool({*known} & HALF)
            and not is_float8(self.op, result.dtype)
            and not (result.when or self.others or self.strips)
        )

    def reads_vectors(self) -> bool:
        """Whether inputs other than matrices are along rows or columns but not both, and params are floats."""
        every = [{*self.places.roles(one.name)} for one in self.vectors]
        return (
            all(one.default is None for one in self.op.inputs)
            and all(len(roles - {"inner"}) < 2 for roles in every)
            and all(param.kind == "float" for param in self.op.params)
            and self.compute.text == "tl.float32"
        )

    def calls_known(self, plan: ContractionKernels) -> bool:
        """Whether Gluon has the functions that lines call, and the lines use positions only in loads."""
        scale, _ = self.scaling
        reads, math = self.ending
        behind = names_of(math)
        has_constants = any(":" in one for one in plan.spelled(*plan.extras))  # dtypes or choices
        return (
            not has_constants
            and calls_only([*scale, *reads, *math], SHARED | {"load"})
            and behind.isdisjoint(("rows", "cols", "first_col"))
            # Columns of a group have one scale, and the second block of a tile may begin past the last.
            and not any(map(self.places.is_of_cols, self.read_in(scale)))
            and not (self.has_groups and ("rows" not in names_of(scale) or "first_col" in names_of(reads)))
        )

    def read_in(self, lines: list[Line]) -> list[Input]:
        names = {line.assigned for line in lines}
        return [one for one in self.vectors if one.name in names]

    @cached_property
    def scaling(self) -> tuple[list[Line], Expr]:
        """The lines that compute the scale of a group, and its expression."""
        (product,) = self.contraction.products
        if product.scale is None:
            return [], expr(1.0)
        lines = Lines()
        scale = self.scale(product, lines, {})
        return [*nested(lines.loop)], scale

    @cached_property
    def ending(self) -> tuple[list[Line], list[Line]]:
        """The lines that load the other inputs, and the math of the result."""
        values = [v for v in self.needed_after([self.op.results[0].output.name]) if v.name not in self.contraction.sums]
        reads = [*nested(self.assembler.reads(values))]
        lowering = self.lowering()
        return reads, [*nested(line for value in values for line in lowering.line(value))]

    def functions(self, plan: ContractionKernels) -> tuple[Kernel, ...]:
        extras = tuple(plan.spelled(*plan.extras))
        scale, factor = self.scaling
        reads, math = self.ending
        (y,) = plan.full
        fills = {
            "Y": y,
            "MATRICES": tuple(one.name for one in plan.operands.by_side),
            "N_TERMS": plan.lengths[-1],
            "SUM": self.contraction.sums[0],
            "PASSED": extras,
            "TENSORS": extras,
            "GIVEN": (f"{y}_desc", f"{y}_blocks", *extras),
            "CASTS": casts(self.op, self.compute),
            "SCALE": (*scale,),
            "FACTOR": factor,
            "READS": (*reads,),
            "OF_COLS": tuple(one.name for one in self.read_in(reads) if self.places.is_of_cols(one)),
            "MATH": (*math,),
        }
        return filled(self.op.name, ["groups" if self.has_groups else "products"], fills)
