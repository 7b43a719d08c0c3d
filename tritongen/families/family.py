"""The base of families of kernels, and the steps of a plan, each computed by one family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..diagnostics.report import Mistake
from ..emit.module import Around, Module
from ..lang.ir import Op
from ..lang.verify import verify
from ..passes.contractions import Contraction
from ..passes.structure import Program
from ..spec.types import Schedule, Spec
from ..testing.benchmarks import Lengths, Sizes, lengths_of
from ..testing.samples import Shapes
from ..testing.tests import FamilyTests, tolerances
from .stream import StoredScores, Stream

P = TypeVar("P", bound=Program)


class Family(Generic[P]):
    """Turns one kind of math into kernels. Everything that depends on the kind of math goes through its methods, whose
    defaults are for elementwise math without matmuls.

    The methods are passed programs of the type that `take` returns.
    """

    title = "elementwise"  # the kind of an operator in messages, as in "this operator is a contraction"
    autocast = ""  # how float inputs are cast: "lower" (to the dtype of autocast), "float32", or "" for not at all
    has_own_tables = False  # whether each step has a separate table, instead of the table of a backward's rows
    rows_are_independent = False  # whether each row is reduced by itself, so that a forward can write its gradient
    maps_in_place = False  # whether kernels read only the elements that they write, so that both may be one tensor

    def take(self, op: Op) -> P | None:
        """The program of an operator whose reductions have names; None if the math is of another kind.

        Raises `Mistakes` for math of this kind that no kernel of the family computes.
        """
        raise NotImplementedError

    def check(self, schedule: Schedule) -> list[Mistake]:
        """Mistakes for keys of a schedule that these kernels do not support."""
        hint = "leave it out, or list block_m, block_n or num_warps"
        every = {"num_stages": "the pipelined loop", "block_k": "the summed axis"}
        found = {key: what for key, what in every.items() if getattr(schedule, key)}
        says = "{} is for {} of a contraction, which this operator has not"
        return [Mistake("TG607", says.format(*one), ("schedule", one[0]), hint=hint) for one in found.items()]

    def rows(self, program: P) -> tuple[str, ...] | None:
        """The axes of the rows in the iteration space of kernels, in order; None if kernels have no rows."""
        return None

    def matmuls(self, program: P) -> Contraction | None:
        """The matmuls at which a gradient is cut into steps; None if it is planned in one piece."""
        return None

    def stream(self, program: P) -> Stream | None:
        """The streaming math of a program, for a gradient that recomputes the scores; None if it streams nothing."""
        return None

    def leaves(self, program: P) -> tuple[str, ...]:
        """The inputs and dtypes whose promotion a launch needs, in addition to the dtypes of results."""
        return ()

    def steps(self, program: P) -> tuple[Step, ...]:
        """The steps of a program, in the order in which they run; () if it is a single step."""
        return ()

    def before(self, program: P) -> Step | None:
        """The step that reduces rows for a step that cannot hold them; None if it needs none."""
        return None

    def module(self, program: P, before: Step | None, around: Around, autotune: bool) -> Module:
        """The kernels of a program, the function that launches them, and what their configurations depend on."""
        raise NotImplementedError

    def tests(self, spec: Spec, program: P, module: Module) -> FamilyTests:
        """The base classes, declarations and shapes of the emitted tests of an operator of the family."""
        return FamilyTests("ElementwiseTests", Shapes(spec, program), tolerances(program.op, "TOLERANCES"))

    def gradient_tests(self, module: Module) -> Mapping[str, str]:
        """The declarations of the emitted tests about a step of the backward, by their names in the harness."""
        return {}

    def benchmark(self, spec: Spec, program: P) -> Sizes:
        """The sizes that a benchmark runs on, and the unit that it reports."""
        return Lengths(program, Shapes(spec, program), lengths_of(spec))


Families = tuple[Family[Any], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a plan: a program that one host function computes, by kernels of one family.

    In addition to tensors and params, the function takes the shapes and dtypes of inputs of the forward, named in
    `shapes` and `dtypes`, and the `flags`. It calls the step `before` if it cannot hold a row. `stored` are the
    attention scores that require several steps.
    """

    family: Family[Any]
    program: Program
    shapes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    before: Step | None = None
    says: str = ""  # a summary, if the names of the results are not enough
    stored: StoredScores | None = None

    @property
    def op(self) -> Op:
        return self.program.op

    @property
    def extra(self) -> tuple[str, ...]:
        """The arguments of its function other than tensors and params."""
        shapes = (f"{name}_shape" for name in self.shapes)
        dtypes = (f"{name}_dtype" for name in self.dtypes)
        return (*shapes, *dtypes, *self.flags, *dict.fromkeys(r.when for r in self.op.results if r.when))


@dataclass(frozen=True, slots=True)
class MultiStepProgram(Program):
    """An operator, and the steps that compute it in the order in which they run."""

    steps: tuple[Step, ...]

    @property
    def leaves(self) -> tuple[str, ...]:
        """The inputs and dtypes whose promotion steps need, for launches and for what they store for one another."""
        made = {result.output.name for step in self.steps for result in step.op.results}
        stored = [leaf for step in self.steps for result in step.op.results for leaf in result.dtype.leaves]
        launched = [leaf for step in self.steps for leaf in step.family.leaves(step.program)]
        return tuple(leaf for leaf in dict.fromkeys((*stored, *launched)) if leaf not in made)


def module_of(step: Step, around: Around | None = None, autotune: bool = False) -> Module:
    """The module of a step's kernels; with `autotune`, launches tune their configurations."""
    verify(step.op)
    return step.family.module(step.program, step.before, around or Around(step.op.name), autotune)
