"""Functions and modules that others wrote: each is imported and planned, and right forward and backward.

`python -m tests.importing.corpus` writes the table of all of them into docs/corpus.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importing.corpus import HERE, Case, opinfo_cases, read_cases, shown_cases
from tests.importing.test_values import printed
from tritongen.diagnostics.report import Rejected
from tritongen.importing.checking import check
from tritongen.operator.compile import backward_of, forward_of
from tritongen.spec.read import read_spec

PACKAGED = list(read_cases(HERE / "packages.txt"))
OPINFOS = list(opinfo_cases())
REFUSED = list(read_cases(HERE / "refused.txt"))
SHOWN = list(shown_cases((HERE.parents[2] / "docs" / "imported.md").read_text(encoding="utf-8")))


def is_right(case: Case) -> None:
    result = case.make()
    spec = read_spec(result.imported.name, result.imported.text)
    forward = forward_of(spec)
    backward_of(spec, forward)
    rows, right = check(result, printed)
    assert right, "\n".join([result.imported.text, *rows])


@pytest.mark.sampled(12)
@pytest.mark.parametrize("case", PACKAGED, ids=[one.name for one in PACKAGED])
def test_modules_of_packages(case: Case) -> None:
    is_right(case)


@pytest.mark.sampled(40)
@pytest.mark.parametrize("case", OPINFOS, ids=[one.name for one in OPINFOS])
def test_opinfos(case: Case) -> None:
    is_right(case)


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("case", "text"), SHOWN, ids=[one.name for one, _ in SHOWN])
def test_specs_on_the_page_are_those_that_are_written(case: Case, text: str) -> None:
    assert case.make().imported.text == text


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", REFUSED, ids=[one.name for one in REFUSED])
def test_refusals_name_what_is_missing(case: Case) -> None:
    """With the line of the package, or of torch, that has it."""
    with pytest.raises(Rejected) as raised:
        case.make()
    for one in raised.value.diagnostics:
        assert one.code in ("TG001", "TG004")
        assert one.line
        assert Path(one.path).is_file()
