"""The common base of families of elementwise and row-wise kernels, without matmuls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic

from ..diagnostics.report import Mistake
from ..emit.module import Module
from ..passes.contractions import Contraction
from ..spec.types import Schedule, Spec
from ..testing.benchmarks import Lengths, Sizes, lengths_of
from ..testing.samples import Shapes
from ..testing.tests import FamilyTests, tolerances
from .family import P, Step
from .stream import Stream


class Maps(Generic[P]):
    """The answers of a family of elements, which others override."""

    title = "elementwise"
    autocast = ""
    has_own_tables = False
    rows_are_independent = False
    maps_in_place = False

    def check(self, schedule: Schedule) -> list[Mistake]:
        hint = "leave it out, or list block_m, block_n or num_warps"
        return [
            Mistake(
                "TG607",
                f"{key} is for {what} of a contraction, which this operator has not",
                ("schedule", key),
                hint=hint,
            )
            for key, what in (("num_stages", "the pipelined loop"), ("block_k", "the summed axis"))
            if getattr(schedule, key)
        ]

    def rows(self, program: P) -> tuple[str, ...] | None:
        return None

    def matmuls(self, program: P) -> Contraction | None:
        return None

    def stream(self, program: P) -> Stream | None:
        return None

    def leaves(self, program: P) -> tuple[str, ...]:
        return ()

    def steps(self, program: P) -> tuple[Step, ...]:
        return ()

    def before(self, program: P) -> Step | None:
        return None

    def tests(self, spec: Spec, program: P, module: Module) -> FamilyTests:
        declared = {"tolerances": tolerances(program.op, "TOLERANCES", "1e-5", {})}
        return FamilyTests("ElementwiseTests", Shapes(spec, program), declared)

    def gradient_tests(self, module: Module) -> Mapping[str, str]:
        return {}

    def benchmark(self, spec: Spec, program: P) -> Sizes:
        return Lengths(program, Shapes(spec, program), lengths_of(spec))
