"""The families, and which of them takes an operator."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from ..diagnostics.report import Mistakes
from ..lang.ir import Op
from ..passes.means import means_as_sums
from ..passes.one_sided import one_sided_sums_first
from ..passes.structure import name_reductions, refusals
from ..resources import add_templates
from .columns.family import COLUMNS
from .contraction.family import CONTRACTION
from .contraction.gemm import GEMM
from .elementwise.family import ELEMENTWISE, WINDOWS
from .family import Families, Family, Step
from .rowwise.family import ROWWISE
from .scaled.family import SCALED
from .scatter.family import SCATTER
from .several.cost import leaves_idle, time_of
from .several.family import Several
from .several.stored import always_stored
from .streaming.family import STREAMING
from .streaming.stored import stored_scores

# Of several that would take an operator, the first does.
_FAMILIES: list[Family[Any]] = [STREAMING, CONTRACTION, WINDOWS, ROWWISE, ELEMENTWISE]


def register(family: Family[Any], templates: str) -> None:
    """Adds a family, which is asked before those that are there, and the folder that its templates are in."""
    _FAMILIES.insert(0, family)
    add_templates(templates)


def families_of_steps(is_registered: bool) -> Families:
    """Those of steps of a plan, which need not check what they are passed.

    torch.compile sees no kernels of a registered operator but those that its own module launches.
    """
    return (*(() if is_registered else (GEMM,)), COLUMNS, SCALED, SCATTER, *_FAMILIES)


def single_step_of(op: Op, candidates: Iterable[Family[Any]] = ()) -> Step:
    """The step that computes an operator, by the first family that takes it; those of forwards are asked by default.

    Raises `Mistakes` for math that no single family takes.
    """
    op = means_as_sums(name_reductions(op))
    takes_steps = always_stored(op) or (not op.fuse and len(op.lines) > 1)
    for family in () if takes_steps else candidates or _FAMILIES:
        program = family.take(op)
        if program is not None:
            return Step(family, program)
    raise Mistakes(*refusals(op))


def step_of(op: Op, candidates: Iterable[Family[Any]] = (), of_steps: Families = ()) -> Step:
    """As `single_step_of`, or a step that is made of several where no family computes all of it.

    Those are asked for the `of_steps`, by default the candidates. Also where lines shall be kept apart.
    """
    op = one_sided_sums_first(means_as_sums(name_reductions(op)))
    try:
        single = single_step_of(op, candidates)
    except Mistakes:
        several = _several(op, candidates, of_steps)
        if several is None:
            raise
        return several
    if not leaves_idle(single):
        return single
    several = _several(op, candidates, of_steps)
    return several if several is not None and time_of(several) < time_of(single) else single


def _several(op: Op, candidates: Iterable[Family[Any]], of_steps: Families) -> Step | None:
    family = Several(partial(single_step_of, candidates=of_steps or tuple(candidates)))
    program = family.take(op)
    return Step(family, program, stored=stored_scores(op, program.steps)) if program is not None else None
