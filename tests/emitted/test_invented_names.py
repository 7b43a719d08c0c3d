"""Names that the generator invents for values, of which modules derive others: `ǂzǂ_mean_rows` are rows of z_mean, and
a value may be called `z_mean_rows`, too.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tests.cases.step_cases import CASES
from tests.harness.importing import built
from tests.harness.oracles import compare
from tritongen.lang import names
from tritongen.lang.names import MARK, fresh, shown

# What modules derive from names of tensors: pointers, tiles, masks, strides, partial sums.
DERIVED = (
    "rows",
    "ptr",
    "row",
    "mask",
    "cols",
    "partial",
    "desc",
    "head",
    "tile",
    "shape",
    "dtype",
    "dot",
    "sum",
    "exact",
)
MADE = (
    "norm_with_gates_of_rows",
    "layer_norm_of_a_matmul",
    "scales_of_groups",
    "statistics_of_a_matmul",
    "attention",
    "bias_behind_two_matmuls",
    "cross_entropy_of_a_matmul",
    "take_of_a_matmul",
    "softmax_of_what_is_taken_of_what_is_taken",
    "weighted_mean_of_a_matmul",
    "mean_of_a_chain",
    "line_of_two_steps",
)


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whatever passes call a value after another, it has a name that modules derive from that, too."""
    given: list[str] = []

    def invented(name: str, taken: set[str]) -> str:
        base, mark, rest = name.rpartition(MARK)
        other = (
            f"{base}{mark}_{DERIVED[sum(map(ord, rest)) % len(DERIVED)]}"  # The same each time that it is asked for.
        )
        given.append(fresh(other if mark and rest.startswith("_") else name, taken))
        return given[-1]

    for module in [module for name, module in sys.modules.items() if name.startswith("tritongen.")]:
        if module is not names and getattr(module, "fresh", None) is fresh:
            monkeypatch.setattr(module, "fresh", invented)
    return given


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MADE)
def test_values_have_whatever_name_modules_derive(name: str, hostile: list[str], tmp_path: Path) -> None:
    case = CASES[name]
    function = built(case.spec(), tmp_path).steps  # Undefined names and unread variables fail here.
    assert any(shown(one).endswith(DERIVED) for one in hostile)
    inputs = [entry.split(":")[0] for entry in case.inputs.split("; ")]
    places = [inputs.index(one) for one in case.by()] if case.wrt != "-" else []
    compare(function, case.torch, case.tensors(torch.float64), places, 1e-8)


def test_invented_names_are_no_others() -> None:
    """Neither those that are derived from others nor those of the spec; without a clash they read as they are."""
    taken = {"ǂzǂ", "ǂz_meanǂ"}
    assert [fresh("ǂzǂ_mean", taken) for _ in range(3)] == ["ǂzǂ_meanǂ", "ǂzǂ_mean_2ǂ", "ǂzǂ_mean_3ǂ"]
    assert fresh("ǂzǂ_meanǂ_rows", taken) == "ǂzǂ_meanǂ_rowsǂ"
    assert fresh("largest", taken) == "largestǂ"
    assert fresh("largest", {"z"}) == "largest"  # of an operator whose names have no marks
