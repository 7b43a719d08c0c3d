"""`formula`: the kernels of specs compared with their math over residues, to the last bit."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..diagnostics.report import Diagnostic, in_order
from ..residues.formula import Formula, formula_of
from .package import require, write_package
from .processes import in_processes
from .render import made_of
from .settings import find_projects

if TYPE_CHECKING:
    from ..residues.check import Verdict

Found = tuple[str, "list[Verdict]"]
Watch = Callable[[Iterator[Found], int], Iterator[Found]]
PACKAGE = "checked_by_tritongen"


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
    require("formula", "torch", "triton", "numpy", "pytest")
    checked: list[Checked] = []
    for project in (one for one in find_projects(paths) if one.sources):
        with tempfile.TemporaryDirectory() as home:
            sources = write_package(project, os.path.join(home, PACKAGE))  # First: it reports mistakes in any spec.
            made = (made_of(one, formula_of) for one in project.sources)
            formulas = {spec.name: formula for _, spec, formula in made}
            for op, verdicts in watch(_checked(home, formulas, words), len(formulas)):
                checked.append(Checked(op, sources[op], tuple(verdicts)))
    return sorted(checked, key=lambda one: one.op)


def findings_of(checked: list[Checked]) -> tuple[Diagnostic, ...]:
    return in_order([one for each in checked for one in each.findings])


def _checked(home: str, formulas: Mapping[str, Formula], words: tuple[str, ...]) -> Iterator[Found]:
    from ..residues import worker

    jobs = [(PACKAGE, op, formula, words) for op, formula in formulas.items()]
    # Triton reads the environment when it is imported.
    return in_processes(worker.work, jobs, worker.start, (home,), can_fork="triton" not in sys.modules)
