"""The protocol of a family of kernels, and the steps of a plan, each computed by one family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ..diagnostics.report import Mistake
from ..emit.module import Around, Module
from ..lang.ir import Op
from ..lang.verify import verify
from ..passes.contractions import Contraction
from ..passes.structure import Program
from ..spec.types import Schedule, Spec
from ..testing.benchmarks import Sizes
from ..testing.tests import FamilyTests
from .stream import StoredScores, Stream

P = TypeVar("P", bound=Program)


class Family(Protocol[P]):
    """Turns one kind of math into kernels. Everything that depends on the kind of math goes through this protocol.

    The programs that a family is given are of the type that its `take` returns.
    """

    @property
    def title(self) -> str:
        """The kind of an operator in messages, as in "this operator is a contraction"."""

    @property
    def autocast(self) -> str:
        """How autocast casts float inputs: "lower" (to its dtype), "float32", or "" for not at all."""

    @property
    def has_own_tables(self) -> bool:
        """Whether each step has configurations of its own, rather than those of all row-wise steps of a backward."""

    @property
    def rows_are_independent(self) -> bool:
        """Whether rows are reduced independently, so that a forward can write their gradients."""

    @property
    def maps_in_place(self) -> bool:
        """Whether kernels read elements where they write them and nowhere else, so that both may be one tensor."""

    def take(self, op: Op) -> P | None:
        """The program of an operator whose reductions have names; None if the math is of another kind.

        Raises `Mistakes` for math of this kind that no kernel of the family computes.
        """

    def check(self, schedule: Schedule) -> list[Mistake]:
        """Mistakes for keys of a schedule that these kernels do not support."""

    def rows(self, program: P) -> tuple[str, ...] | None:
        """The axes of the rows in the iteration space of kernels, in order; None if kernels have no rows."""

    def matmuls(self, program: P) -> Contraction | None:
        """The matmuls at which a gradient is cut into steps; None if it is planned in one piece."""

    def stream(self, program: P) -> Stream | None:
        """What a kernel streams, for a gradient that recomputes the scores; None if it streams nothing."""

    def leaves(self, program: P) -> tuple[str, ...]:
        """The inputs and dtypes whose promotion a launch needs, besides those of the results."""

    def steps(self, program: P) -> tuple[Step, ...]:
        """The steps of a program, in the order in which they run; () if it is a single step."""

    def before(self, program: P) -> Step | None:
        """The step that reduces rows for a step that cannot hold them; None if it needs none."""

    def module(self, program: P, before: Step | None, around: Around, autotune: bool) -> Module:
        """The kernels of a program, the function that launches them, and what their configurations depend on."""

    def tests(self, spec: Spec, program: P, module: Module) -> FamilyTests:
        """The base classes, declarations and shapes of the emitted tests of an operator of the family."""

    def gradient_tests(self, module: Module) -> Mapping[str, str]:
        """The declarations of the emitted tests about a step of the backward, by their names in the harness."""

    def benchmark(self, spec: Spec, program: P) -> Sizes:
        """The sizes that a benchmark runs on, and the unit that it reports."""


Families = tuple[Family[Any], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a plan: a program that one host function computes, by kernels of one family.

    Besides tensors and params, the function takes the shapes and dtypes of inputs of the forward, named in `shapes` and
    `dtypes`, and the `flags`. `before` is the step that it calls if it cannot hold a row. `stored` are attention scores
    for which it takes several steps.
    """

    family: Family[Any]
    program: Program
    shapes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    before: Step | None = None
    says: str = ""  # what it computes, if the names of its results do not say
    stored: StoredScores | None = None

    @property
    def op(self) -> Op:
        return self.program.op

    @property
    def extra(self) -> tuple[str, ...]:
        """The arguments of its function besides tensors and params."""
        shapes = (f"{name}_shape" for name in self.shapes)
        dtypes = (f"{name}_dtype" for name in self.dtypes)
        return (*shapes, *dtypes, *self.flags, *dict.fromkeys(r.when for r in self.op.results if r.when))


@dataclass(frozen=True, slots=True)
class MultiStepProgram(Program):
    """An operator, and the steps that compute it in the order in which they run."""

    steps: tuple[Step, ...]


def module_of(step: Step, around: Around | None = None, autotune: bool = False) -> Module:
    """The module of a step's kernels; with `autotune`, launches tune their configurations."""
    verify(step.op)
    return step.family.module(step.program, step.before, around or Around(step.op.name), autotune)
