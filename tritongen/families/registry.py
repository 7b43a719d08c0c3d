"""The registry of families, and the choice of the family that takes an operator."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from ..diagnostics.report import Mistake, Mistakes
from ..lang.ir import Op
from ..passes.operand_sums import means_as_sums, operand_sums_first
from ..passes.structure import line_of, refusal
from ..passes.taken_integers import integers_named
from ..passes.times import CLEARLY
from ..planner.cost import leaves_idle, multiplies_outer, repeats_reductions, time_of
from ..planner.cut import unclaimed
from ..planner.stored import always_stored
from ..planner.subgraphs import UNCLAIMED, Subgraph
from ..resources import add_templates
from .columns.family import COLUMNS
from .contraction.family import CONTRACTION, GEMM
from .elementwise.family import ELEMENTWISE, WINDOWS
from .family import Families, Family, Step
from .multi_step.family import MultiStep
from .rowwise.family import ROWWISE
from .scaled import SCALED
from .scan import SCANS
from .scatter import SCATTER
from .sort import SORTS
from .streaming.family import STREAMING
from .streaming.stored import stored_scores
from .taps import TAPS

CACHED = 2**14  # cached steps of subgraphs
AGAIN = 2**6  # and operators, such as forwards of several plans of a gradient

# The first family that takes an operator computes it.
_FAMILIES: list[Family[Any]] = [STREAMING, CONTRACTION, WINDOWS, TAPS, ROWWISE, ELEMENTWISE, SCANS, SORTS]
_OURS = frozenset({GEMM, COLUMNS, SCALED, SCATTER, *_FAMILIES})


def register(family: Family[Any], templates: str) -> None:
    """Adds a family, which is asked before all others, and its folder of templates."""
    _FAMILIES.insert(0, family)
    add_templates(templates)


def families_of_steps(is_registered: bool) -> Families:
    """The families for steps of a plan, whose arguments are already checked.

    In a registered operator, torch.compile only sees kernels that its own module launches, and not the runtime's gemm.
    """
    return (*(() if is_registered else (GEMM,)), COLUMNS, SCALED, SCATTER, *_FAMILIES)


def single_step_of(op: Op, candidates: Iterable[Family[Any]] = ()) -> Step:
    """The step that computes an operator, by the first family that takes it; by default, the families of forwards.

    Raises `Mistakes` for math that no single family takes.
    """
    op = means_as_sums(op)
    step = _taken(op, tuple(candidates or _FAMILIES))
    if step is None:
        raise Mistakes(refusal(op))
    return step


def _taken(op: Op, candidates: Families) -> Step | None:
    """The step of the first family that takes an operator; None where none does. Raises `Mistakes`."""
    takes_steps = always_stored(op) or (not op.fuse and len(op.lines) > 1)
    programs = ((family, family.take(op)) for family in (() if takes_steps else candidates))
    return next((Step(family, program) for family, program in programs if program is not None), None)


@lru_cache(maxsize=CACHED)
def _claimed(op: Op, candidates: Families) -> Subgraph:
    """The subgraph of an operator as a step of a single family, with its time; UNCLAIMED if no family takes it.

    Plans of a gradient that differ in what they save share most subgraphs.
    """
    with suppress(Mistakes):
        step = _taken(means_as_sums(op), candidates)
        return Subgraph(step, time_of(step)) if step else UNCLAIMED
    return UNCLAIMED


@dataclass(frozen=True, slots=True)
class Alone:
    """Finds the family that takes an operator by itself."""

    families: Families
    near: frozenset[str] = field(default=frozenset(), compare=False)

    def __call__(self, op: Op) -> Subgraph:
        return _claimed(op, self.families)

    @property
    def is_ours(self) -> bool:
        return _OURS.issuperset(self.families)


def step_of(
    op: Op, candidates: Iterable[Family[Any]] = (), of_steps: Families = (), near: frozenset[str] = frozenset()
) -> Step:
    """The step of `single_step_of`, or a multi-step one if no single family takes the operator, or if `fuse = false`.

    A multi-step one is also chosen if it is faster than a single step that leaves SMs idle, recomputes products of
    factors for each tile, or repeats for each row a reduction that does not vary along all rows. Its steps are of the
    families `of_steps`, by default `candidates`. `near` are values that the steps of a similar operator store.
    """
    op = integers_named(operand_sums_first(means_as_sums(op)))
    candidates = tuple(candidates) or tuple(_FAMILIES)
    of_steps = of_steps or candidates
    try:
        single = single_step_of(op, candidates)
    except Mistakes:
        several = _multi_step_of(op, of_steps, near)
        if several is None:
            raise _refused(op, of_steps) from None
        return several
    idle = leaves_idle(single)
    if not (idle or multiplies_outer(single) or (op.fuse and repeats_reductions(single))):
        return single
    several = _multi_step_of(op, of_steps, near)
    slower = 1.0 if idle else CLEARLY
    return several if several is not None and slower * time_of(several) < time_of(single) else single


def _refused(op: Op, families: Families) -> Mistakes:
    """The reason why no family takes a subgraph of an operator, reported at the subgraph's line of math."""
    entire, subgraph = unclaimed(op, Alone(families))
    try:
        single_step_of(subgraph, families)
    except Mistakes as found:
        return Mistakes(*(_about_line(entire, one) for one in found.mistakes))
    return Mistakes(refusal(op))


def _about_line(op: Op, mistake: Mistake) -> Mistake:
    name = mistake.key[-1]
    if name not in {value.name for value in op.values}:
        return mistake
    line = line_of(op, op.value(name))
    message = re.sub(rf"\b{re.escape(name)}\b", lambda _: line, mistake.message, count=1)
    return replace(mistake, message=message, key=("compute", line))


@lru_cache(maxsize=AGAIN)
def _multi_step_of(op: Op, families: Families, near: frozenset[str]) -> Step | None:
    family = MultiStep(Alone(families, near))
    program = family.take(op)
    return Step(family, program, stored=stored_scores(op, program.steps)) if program is not None else None
