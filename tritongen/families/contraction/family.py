"""The family of matmuls on tensor cores, with the epilogues of their tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...diagnostics.report import Mistake
from ...emit.host_checks import tuple_text
from ...emit.module import Around, Module
from ...lang.ir import Op
from ...lang.promotion import is_float8
from ...passes import contractions
from ...passes.epilogues import refused
from ...passes.gathered import as_batches, gathered_in, with_gathers, with_gathers_inside
from ...passes.merged_sums import sharing_sums
from ...passes.structure import of_strips, only_maps_and_reduces
from ...spec.types import FLOAT8S, Schedule, Spec
from ...testing.tests import SHIFTS, FamilyTests, compares_values, tuple_of
from ..family import Family, Step
from ..tensor_cores import allowed_errors, too_small
from .host import Products
from .operands import operands_of
from .program import ContractionProgram, is_one_matmul
from .sizes import MatmulShapes, MatmulSizes

STREAM_K = "((1, 2), (8, 2))"  # the number of splits of some tiles, and of others


@dataclass(frozen=True)
class Contraction(Family[ContractionProgram]):
    """Matmuls over the same axes, with operands computed in the loop (prologues) and an epilogue."""

    by_gemm: bool = False  # whether it takes only what the runtime's gemm computes, without kernels of its own

    title = "a contraction"
    autocast = "lower"
    has_own_tables = True

    def take(self, op: Op) -> ContractionProgram | None:
        """Raises `Mistakes` for products that one kernel does not compute."""
        if self.by_gemm and (len(op.values) > 1 or len(op.inputs) != 2):
            return None
        op = with_gathers_inside(op)
        inputs, gathered = op.inputs, gathered_in(op) or ()
        found = contractions.contraction_of(as_batches(op, gathered)) if only_maps_and_reduces(op, True) else None
        if found is None:
            return None
        op, contraction = sharing_sums(*found)
        if _are_disjoint(op, contraction):
            raise refused(op, contraction.names[0], "has results of other axes beside it", "write a spec for each")
        for one in gathered:
            contractions.check_gathered(op, contraction, one)
        program = ContractionProgram(with_gathers(op, inputs, gathered), contraction.inner, contraction, gathered)
        return None if self.by_gemm and not is_one_matmul(program) else program

    def check(self, schedule: Schedule) -> list[Mistake]:
        keys = () if self.by_gemm else ("block_m", "block_n", "block_k")  # The runtime chooses gemm's tiles.
        return too_small(schedule, "tiles of a contraction", *keys)

    def leaves(self, program: ContractionProgram) -> tuple[str, ...]:
        """Of what is multiplied; gemm multiplies matrices of one dtype as they are."""
        return () if self.by_gemm else operands_of(program.seen, program.contraction).dot.of

    def matmuls(self, program: ContractionProgram) -> contractions.Contraction:
        return program.contraction

    def module(self, program: ContractionProgram, before: Step | None, around: Around, autotune: bool) -> Module:
        return Products(program, around, self.by_gemm, autotune).module()

    def tests(self, spec: Spec, program: ContractionProgram, module: Module) -> FamilyTests:
        op = program.op
        gives_float8 = any(is_float8(op, result.dtype) for result in op.results)
        joined = operands_of(program.seen, program.contraction).joined
        # Tensor cores add up products of float8 with 14 bits.
        is_coarse = sum({*tensor.type.dtypes} <= {*FLOAT8S} for tensor in op.inputs) > 1
        # Factors that are computed are rounded to what is multiplied; results of float8 are as exact as others.
        rounds = not program.contraction.is_plain and not gives_float8
        declared = {
            "shifts": SHIFTS if compares_values(spec) else "",
            **allowed_errors(op, is_chained=False, is_coarse=is_coarse),
            "rounds_factors": "True" if rounds else "",
            "stream_k": STREAM_K if "shares" in module.traffic.kinds else "",
            "joined": tuple_of((joined.first.name, joined.second.name)) if joined else "",
            "narrowest": narrowest(module),
            # Groups are reduced of what a gradient reads, as it is rounded; and what is made of rounded factors is
            # differentiated where it is.
            "stores_between": "True" if rounds or program.contraction.col_groups else "",
        }
        shapes = MatmulShapes(spec, program)
        if module.gluon:
            declared["gluon_matmuls"] = tuple_text([str(shape) for shape in shapes.gluon()])
            declared["has_groups"] = "True" if program.contraction.groups else ""
        return FamilyTests("MatmulTests", shapes, declared)

    def gradient_tests(self, module: Module) -> Mapping[str, str]:
        kinds = {"pointers": ("backward_split_k", "(2, 3)"), "shares": ("backward_stream_k", "((1, 3), (5, 2))")}
        declared = dict(declared for kind, declared in kinds.items() if kind in module.traffic.kinds)
        return declared | ({"narrowest": narrowest(module)} if narrowest(module) else {})

    def benchmark(self, spec: Spec, program: ContractionProgram) -> MatmulSizes:
        return MatmulSizes(Step(self, program), program, spec)


def _are_disjoint(op: Op, contraction: contractions.Contraction) -> bool:
    """Whether tiles would store a result many times over, or never where an axis is empty that it lacks."""
    results = [result for result in op.results if of_strips(op, result) is None]
    visited = {axis for result in results for axis in result.axes}
    if len(results) < len(op.results):  # Strips are reduced of tiles, which have all axes.
        visited |= {*contraction.batch, *contraction.rows, *contraction.cols}
    # Without columns there are no tiles that would store results without columns.
    visited -= {*contraction.cols} & dict(op.sizes).keys()
    return not all(visited <= {*result.axes} for result in results)


def narrowest(module: Module) -> str:
    """The minimum number of columns of tiles in tests; "" where any will do.

    TMA's kernel reduces strips by halves, and copies no less than 16 bytes of a row.
    """
    summing = module.traffic.summing
    if summing is None:
        return ""
    most = max(2 * summing.strips, 8 * summing.slices if summing.described and summing.slices > 2 else 0)
    return str(most) if most else ""


CONTRACTION = Contraction()
GEMM = Contraction(by_gemm=True)
