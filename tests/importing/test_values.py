"""What is imported computes what the original does, forward and backward, in float64 and float32, at other lengths.

The spec's math is printed in torch, which takes milliseconds; a few are built and interpreted too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.printing import printed as in_torch
from tritongen.importing.checking import check
from tritongen.importing.run import Result, imported
from tritongen.spec.read import read_spec

HERE = Path(__file__).parent
CASES = [line.split(" | ") for line in (HERE / "cases.txt").read_text().splitlines() if line and line[0] != "#"]
BUILT = ("LlamaRMSNorm", "attention", "loss", "apply_rotary_pos_emb", "SE")
NAMES = [one[0].rpartition(":")[2] + "".join(f"_{init.replace(' ', '_')}" for init in one[2:]) for one in CASES]


def brought(case: list[str]) -> Result:
    target, example, *init = case
    spelled = f"{HERE}{os.sep}{target}" if ".py:" in target else target
    return imported(spelled, init[0].split() if init else [], example)


def printed(result: Result) -> Callable[..., Any]:
    """The spec's math, in torch."""
    return in_torch(read_spec(result.imported.name, result.imported.text))


@pytest.mark.sampled(10)
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_values(case: list[str]) -> None:
    result = brought(case)
    rows, is_right = check(result, printed)
    assert is_right, "\n".join([result.imported.text, *rows])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", BUILT)
def test_built(name: str) -> None:
    result = brought(next(one for one in CASES if one[0].endswith(f":{name}")))
    rows, is_right = check(result)
    assert is_right, "\n".join([result.imported.text, *rows])


GOLDEN = [place for place, one in enumerate(CASES) if ".py:" in one[0]]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("place", GOLDEN, ids=[NAMES[place] for place in GOLDEN])
def test_reads_as_a_person_wrote_it(place: int) -> None:
    """TRITONGEN_UPDATE=1 writes the specs anew, to be read in the diff."""
    text = brought(CASES[place]).imported.text.replace(f"{HERE}{os.sep}", "")
    golden = HERE / "golden" / f"{NAMES[place]}.toml"
    if "TRITONGEN_UPDATE" in os.environ:
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_no_golden_is_left_without_its_case() -> None:
    assert {path.stem for path in (HERE / "golden").glob("*.toml")} == {NAMES[place] for place in GOLDEN}


CHECKED = {
    "functions.py:split_heads | x=f32[2,6,8] weight=f32[16,8]": ("odd lengths float64", True),
    "torch.nn:SoftMarginLoss | input=f32[4,8] target=f32[4,8]": ("odd lengths float64", True),  # by the input alone
    "functions.py:widened | x=bf16[4,8] weight=bf16[6,8]": (
        "odd lengths        the original raises RuntimeError in b",
        True,
    ),
    "functions.py:after_a_prompt | x=f32[2,16] weight=f32[4]": ("odd lengths float64", True),
    "functions.py:only_traced | x=f32[4,8]": ("nothing was compared", False),
}


@pytest.mark.parametrize("case", CHECKED)
def test_a_check_compares_what_the_original_computes(case: str) -> None:
    """At lengths that it takes, and by inputs that torch has a gradient by; without any, nothing is right."""
    rows, is_right = check(brought(case.split(" | ")), printed)
    said, expected = CHECKED[case]
    assert is_right == expected
    found = next(row for row in rows if " ".join(row.split()).startswith(" ".join(said.split())))
    assert not said.endswith("float64") or len(found.split()) == 5
