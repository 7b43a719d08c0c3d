"""Which errors emitted tests let pass: those that torch has too, and those of rounding."""

from __future__ import annotations

import pytest
import torch

from tests.harness.importing import runtime_module

EPS = torch.finfo(torch.float32).eps


@pytest.mark.parametrize(
    ("dtype", "error", "of_torch", "passes"),
    [
        (torch.float32, 0.0, 0.0, True),
        (torch.float32, 2 * EPS, 0.0, True),
        (torch.float32, 8 * EPS, 0.0, False),
        (torch.float32, 8 * EPS, 4 * EPS, True),
        (torch.float32, 30 * EPS, 4 * EPS, False),
        (torch.bfloat16, 0.005, 0.0, True),
        (torch.bfloat16, 0.05, 0.0, False),
        (torch.float64, 1e-13, 0.0, True),  # The oracle's own error is as large.
        (torch.float64, 1e-6, 0.0, False),
        (torch.float32, float("nan"), 0.0, False),
        (torch.float32, float("inf"), 0.0, False),
    ],
)
def test_accuracy(dtype: torch.dtype, error: float, of_torch: float, passes: bool) -> None:
    tests = runtime_module("testing.harness").Harness
    want = torch.tensor([1.0, -0.5, float("inf"), float("nan")], dtype=torch.float64)
    got, torchs = (want + torch.tensor([by, 0.0, 0.0, 0.0]) for by in (error, of_torch))
    if passes:
        tests.check_accuracy(got.to(dtype), torchs.to(dtype), want)
    else:
        with pytest.raises(AssertionError, match="of torch's"):
            tests.check_accuracy(got.to(dtype), torchs.to(dtype), want)


def test_torch_has_numbers_in_the_dtype_of_matrices() -> None:
    """A slope in float32 has torch compute all of attention in that, and store nothing rounded between."""
    narrowed = runtime_module("testing.between").narrowed
    half, wide, whole = torch.ones(2, dtype=torch.float16), torch.ones(2), torch.ones(2, dtype=torch.int32)
    double = wide.double()
    found = narrowed((half, None, wide, whole, double))
    assert [one if one is None else one.dtype for one in found] == [
        torch.float16,
        None,
        torch.float16,
        torch.int32,
        torch.float64,
    ]
    assert [one.dtype for one in narrowed((wide, double))] == [torch.float32, torch.float64]


def test_torch_has_errors_of_floats_alone() -> None:
    tests = runtime_module("testing.between").StoresBetween
    want = torch.tensor([1.0, 0.0]), torch.tensor([True, False]), torch.tensor([3, 4])
    found = tests.errors_of_torch(lambda x: (x + 0.5, x > 0, x.long()), [torch.tensor([1.0, 0.0])], want)
    assert found == [0.5, 0.0, 0.0]


def test_values_beyond_the_dtype_are_no_mistake() -> None:
    """A loss that overflows float32, not float64: an operator that does as torch does is not to fail for it."""
    harness = runtime_module("testing.harness").Harness

    class Stable(harness):
        reference = staticmethod(lambda x: torch.logsumexp(x, 0))

    class Overflowing(harness):
        reference = staticmethod(lambda x: x.exp().sum(0).log())

    x = torch.tensor([500.0, 501.0])
    assert Stable.is_within_range([x])
    assert not Overflowing.is_within_range([x])
    assert Overflowing.is_within_range([torch.tensor([500.0, float("inf")])])
