"""Names for addresses and masks that do not fit into a line, `tritongen.emit.pointers`."""

from __future__ import annotations

import textwrap

import pytest

from tritongen.emit.format import format_python
from tritongen.emit.pointers import with_pointers_named

LOAD = "weight = tl.load(weight_ptr + cols * stride_weight_n, mask=col_mask, other=0.0).to(COMPUTE)"


def kernel(body: str) -> str:
    head = "@triton.jit\ndef some_kernel(weight_ptr, cols, stride_weight_n, col_mask):\n"
    return head + textwrap.indent(body, "    ")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            LOAD,
            "weight_ptrs = weight_ptr + cols * stride_weight_n\n"
            "weight = tl.load(weight_ptrs, mask=col_mask, other=0.0).to(COMPUTE)",
        ),
        (
            "nll = lse - tl.load(x_ptr + rows * stride_x_0 + at * stride_x_n, mask=row_mask & (at >= 0) & (at < n))",
            "x_ptrs = x_ptr + rows * stride_x_0 + at * stride_x_n\n"
            "nll = lse - tl.load(x_ptrs, mask=row_mask & (at >= 0) & (at < n))",
        ),
        (
            "x = tl.load(x_row + cols * stride_x_n, mask=row_mask & (some_at >= 0) & (some_at < n_cols), other=0)",
            "x_ptrs = x_row + cols * stride_x_n\n"
            "x_mask = row_mask & (some_at >= 0) & (some_at < n_cols)\n"
            "x = tl.load(x_ptrs, mask=x_mask, other=0)",
        ),
        ("x = tl.load(x_ptr + cols, mask=col_mask)", None),  # fits
        (f"y = {LOAD[9:]} if weight_ptr is not None else 1", None),  # no address where there is no tensor
        (f"weight_ptrs = 1\n{LOAD.replace('weight = ', 'tl.device_print(')})", None),  # no name is left
    ],
)
def test_addresses_that_do_not_fit_have_names(before: str, after: str | None) -> None:
    assert with_pointers_named(kernel(before), 84) == kernel(before if after is None else after)


def test_names_stand_for_one_thing_in_a_loop() -> None:
    """Triton carries a name of outside through a loop and wants one type of it; after the target there is another."""
    text = with_pointers_named(kernel(f"{LOAD}\nfor start in range(2):\n    w = {LOAD[9:]}"), 84)
    assert text.count("weight_ptrs = ") == text.count("w_ptrs = ") == 1
    text = with_pointers_named(kernel(f"for start in range(2):\n    {LOAD}\nfor start in range(2):\n    {LOAD}"), 84)
    assert text.count("weight_ptrs = ") == 2


def test_what_is_formatted_stays() -> None:
    once = format_python(f"import triton\n\n\n{kernel(LOAD)}\n")
    assert format_python(once) == once


def test_functions_of_the_host_stay() -> None:
    text = f"@memoized\ndef f():\n    {LOAD}\n"
    assert with_pointers_named(text + "\n@triton.jit\ndef g():\n    pass\n", 84).startswith(text)
