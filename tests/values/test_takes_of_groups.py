"""Elements that are taken along several axes counted as one, beside torch in float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.harness.importing import built
from tests.harness.oracles import DEVICE
from tests.harness.printing import printed
from tritongen.operator.compile import generate
from tritongen.spec.read import read_spec


def _or_nan(x: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    inside = (j >= 0) & (j < len(x))
    return x[j.clamp(0, len(x) - 1)].masked_fill(~inside[:, None], torch.nan)


# The type of x, its shape, the line, what j is drawn between, and what torch computes.
CASES: dict[str, tuple[str, tuple[int, ...], str, tuple[int, int], Callable[..., torch.Tensor]]] = {
    "a_group": ("(H A=2), N", (6, 3), "take(x, j, H, A)", (0, 6), lambda x, j: x[j]),
    "a_group_of_three": ("(H A=2 B=3), N", (12, 3), "take(x, j, H, A, B)", (0, 12), lambda x, j: x[j]),
    "two_dimensions": ("H, A, N", (4, 3, 2), "take(x, j, H, A)", (0, 12), lambda x, j: x.flatten(0, 1)[j]),
    "a_number": ("(H A=2), N", (6, 3), "take(x, 3, H, A) + 0 * sum(j, T)", (0, 6), lambda x, j: x[3]),
    "a_number_of_what_is_computed": (
        "(H=3 A=2), N",
        (6, 3),
        "take(clamp_min(x, 0), 3, H, A) + 0 * sum(j, T)",
        (0, 6),
        lambda x, j: x[3].clamp(min=0),
    ),
    "a_number_of_what_is_computed_along_any_length": (
        "H, N",
        (6, 3),
        "take(clamp_min(x, 0), 3, H) + 0 * sum(j, T)",
        (0, 6),
        lambda x, j: x[3].clamp(min=0),
    ),
    "outside": ("(H A=2), N", (6, 3), "take(x, j, H, A)", (-3, 9), _or_nan),
    "of_a_sum": ("(H A=2), N", (6, 3), "take(sum(x, N), j, H, A)", (0, 6), lambda x, j: x.sum(1)[j]),
    "one_of_a_group_of_a_sum": (
        "(H A=2), N",
        (6, 3),
        "take(sum(x, N), j, H)",
        (0, 3),
        lambda x, j: x.view(3, 2, 3).sum(-1)[j],
    ),
    "by_their_own_positions": (
        "(H A=2), N",
        (6, 3),
        "take(x, size(H, A) - 1 - index(H, A), H, A) + 0 * sum(j, T)",
        (0, 6),
        lambda x, j: x.flip(0),
    ),
    "one_after_the_other": (
        "(H A=2), N",
        (6, 3),
        "take(take(x, j // 2, H), j % 2, A)",
        (0, 6),
        lambda x, j: x[j],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str, tmp_path: Path) -> None:
    axes, shape, line, (low, high), oracle = CASES[name]
    text = f"""
[op]
name = "taken"
[inputs]
x = "float[{axes}]"
j = "int64[T]"
[compute]
y = "{line}"
[outputs]
y = "x"
[grad]
wrt = ["x"]
"""
    spec = read_spec("taken.toml", text)
    operator = built(spec, tmp_path).taken
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=draw, dtype=torch.float64).to(DEVICE).requires_grad_()
    j = torch.randint(low, high, (7,), generator=draw).to(DEVICE)
    got, wanted = operator(x, j), oracle(x, j)
    torch.testing.assert_close(got, wanted, equal_nan=True)
    if low >= 0:  # Emitted tests draw no index from outside.
        torch.testing.assert_close(printed(spec)(x, j), wanted, equal_nan=True)
    incoming = torch.randn(wanted.shape, generator=draw, dtype=torch.float64).to(DEVICE)
    found, exact = (torch.autograd.grad(one, x, incoming)[0] for one in (got, wanted))
    torch.testing.assert_close(found, exact)


# The type of w, its shape, where elements are taken, and the first of them.
COUNTED: dict[str, tuple[str, tuple[int, ...], str, int]] = {
    "of_a_fixed_length": ("P, A=3, D", (5, 3, 2), "index(P, A)", 0),
    "of_any_length": ("P, A, D", (5, 3, 2), "index(P, A)", 0),
    "of_three_axes": ("P, A=3, B, D", (3, 3, 2, 2), "index(P, A, B)", 0),
    "of_a_group": ("(P A=3), D", (15, 2), "index(P, A)", 0),
    "behind_others": ("P, A=3, D", (5, 3, 2), "index(P, A) + 2", 2),
    "by_a_number": ("P, A=3, D", (5, 3, 2), "index(P) * 3 + index(A)", 0),
    "none": ("P, A, D", (5, 0, 2), "index(P, A)", 0),
    "none_of_none": ("P, A, D", (0, 3, 2), "index(P, A)", 0),
}


@pytest.mark.parametrize("name", COUNTED)
def test_gradients_by_positions_that_axes_count_together(name: str, tmp_path: Path) -> None:
    """Each element is taken once: its gradient is read where it was taken to, and nothing is scattered."""
    axes, shape, at, first = COUNTED[name]
    text = f"""
[op]
name = "taken"
[inputs]
x = "float[N, D]"
w = "float[{axes}]"
[compute]
y = "take(x, {at}, N) * w"
[outputs]
y = "w"
[grad]
wrt = ["x"]
"""
    spec = read_spec("taken.toml", text)
    assert "scatter" not in generate(spec, ".")["op.py"]
    operator = built(spec, tmp_path).taken
    draw = torch.Generator().manual_seed(0)
    x, w = (torch.randn(one, generator=draw, dtype=torch.float64).to(DEVICE) for one in ((20, 2), shape))
    x.requires_grad_()
    got, wanted = operator(x, w), x[first : first + w[..., 0].numel()].reshape(shape) * w
    torch.testing.assert_close(got, wanted)
    found, exact = (torch.autograd.grad(one, x, torch.ones_like(one))[0] for one in (got, wanted))
    torch.testing.assert_close(found, exact)
