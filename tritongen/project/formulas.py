"""`formula`: the kernels of specs compared with their math over residues, to the last bit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..diagnostics.report import Diagnostic, in_order
from ..residues import worker
from ..residues.formula import formula_of
from .package import PACKAGE, packaged, projects_for
from .processes import in_processes
from .render import made_of

if TYPE_CHECKING:
    from ..residues.check import Verdict

Found = tuple[str, "list[Verdict]"]
Watch = Callable[[Iterator[Found], int], Iterator[Found]]


@dataclass(frozen=True)
class Checked:
    """An operator, the path of its spec, and the verdicts on its tests."""

    op: str
    path: str
    verdicts: tuple[Verdict, ...]

    @property
    def findings(self) -> list[Diagnostic]:
        return [
            Diagnostic(self.path, 0, 0, "TG715", f"{one.test}: {one.difference}")
            for one in self.verdicts
            if one.difference
        ]


def check_formulas(paths: tuple[str, ...], words: tuple[str, ...], watch: Watch) -> list[Checked]:
    """Check the operators of specs in `paths` by their tests, only by those with one of `words` in the name if any.

    Raises `Rejected` for specs that are wrong, and `Unavailable` without torch, triton, numpy or pytest.
    """
    checked: list[Checked] = []
    for project in projects_for("formula", paths, "torch", "triton", "numpy", "pytest"):
        with packaged(project) as sources:  # First: it reports mistakes in any spec.
            made = (made_of(one, formula_of) for one in project.sources)
            jobs = [(PACKAGE, spec.name, formula, words) for _, spec, formula in made]
            # Triton reads the environment when it is imported.
            found = in_processes(worker.work, jobs, can_fork="triton" not in sys.modules)
            checked += [Checked(op, sources[op], tuple(verdicts)) for op, verdicts in watch(found, len(jobs))]
    return sorted(checked, key=lambda one: one.op)


def findings_of(checked: list[Checked]) -> tuple[Diagnostic, ...]:
    return in_order([one for each in checked for one in each.findings])
