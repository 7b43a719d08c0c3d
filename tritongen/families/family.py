"""What a family of kernels is to the rest of the program, and a step of a plan, which one family computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ..diagnostics.report import Mistake
from ..emit.module import Around, Module
from ..lang.ir import Op
from ..passes.contractions import Contraction
from ..passes.structure import Program
from ..spec.types import Schedule, Spec
from ..testing.benchmarks import Sizes
from ..testing.tests import FamilyTests
from .stream import Stream

P = TypeVar("P", bound=Program)


class Family(Protocol[P]):
    """Turns one kind of math into kernels. All that depends on the kind is asked of its family.

    The programs that a family is given are of the type that its `take` returns.
    """

    @property
    def title(self) -> str:
        """What an operator of the family is, as in "this operator is a contraction"."""

    @property
    def autocast(self) -> str:
        """What autocast does to float inputs, as to those of torch's own: "lower", "float32", or "" for nothing."""

    @property
    def has_own_tables(self) -> bool:
        """Whether each step has configurations of its own, or shares those of all rows of a backward."""

    @property
    def keeps_rows_apart(self) -> bool:
        """Whether rows are reduced each by itself, so that a forward can write their gradients."""

    @property
    def maps_in_place(self) -> bool:
        """Whether kernels read elements where they write them and nowhere else, so that both may be one tensor."""

    def take(self, op: Op) -> P | None:
        """The program of an operator whose reductions have names; None where the math is of another kind.

        Raises `Mistakes` for math of this kind that no kernel of the family computes.
        """

    def check(self, schedule: Schedule) -> list[Mistake]:
        """What a schedule asks for that these kernels do not do."""

    def rows(self, program: P) -> tuple[str, ...] | None:
        """The axes of the rows that kernels go through, in their order; None where kernels know no rows."""

    def matmuls(self, program: P) -> Contraction | None:
        """The matmuls at which a gradient is cut into steps; None where it is planned as a whole."""

    def stream(self, program: P) -> Stream | None:
        """What a kernel streams, of which the gradient recomputes the scores; None where it streams nothing."""

    def leaves(self, program: P) -> tuple[str, ...]:
        """The inputs and dtypes whose promotion a launch asks for, besides those of the results."""

    def steps(self, program: P) -> tuple[Step, ...]:
        """The steps that a program is made of, in the order in which they run; () where it is one."""

    def before(self, program: P) -> Step | None:
        """The step whose results a step goes on from where it cannot hold a row; None where it needs none."""

    def module(self, program: P, before: Step | None, around: Around, autotune: bool) -> Module:
        """The kernels of a program, the function that launches them, and what decides their configurations."""

    def tests(self, spec: Spec, program: P, module: Module) -> FamilyTests:
        """What tests of an operator of the family inherit and declare, and the shapes that they run on."""

    def gradient_tests(self, module: Module) -> Mapping[str, str]:
        """What tests of a gradient declare of a step of the backward, by the names of the harness."""

    def benchmark(self, spec: Spec, program: P) -> Sizes:
        """The sizes that a benchmark runs on, and the unit that it reports."""


Families = tuple[Family[Any], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a plan: a program that one function of the host computes, by kernels of one family.

    `shapes` and `dtypes` are inputs of the forward whose shapes and dtypes it is passed besides tensors and params,
    `flags` are passed as they are. `before` is what it calls where it cannot hold a row.
    """

    family: Family[Any]
    program: Program
    shapes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    before: Step | None = None
    says: str = ""  # what it computes, where its results' names do not tell

    @property
    def op(self) -> Op:
        return self.program.op

    @property
    def extra(self) -> tuple[str, ...]:
        """The arguments of its function besides tensors and params."""
        shapes = (f"{name}_shape" for name in self.shapes)
        dtypes = (f"{name}_dtype" for name in self.dtypes)
        return (*shapes, *dtypes, *self.flags, *dict.fromkeys(r.when for r in self.op.results if r.when))


def module_of(step: Step, around: Around | None = None, autotune: bool = False) -> Module:
    """The module of a step's kernels; with `autotune`, launches search their configurations."""
    return step.family.module(step.program, step.before, around or Around(step.op.name), autotune)
