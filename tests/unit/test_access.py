"""How loads are spelled, and which of them the runtime's function reads where an optional tensor is given."""

import math

import pytest

from tritongen.nest.access import Access, Address
from tritongen.nest.values import V

AT = Address("x_ptr").moved(V.rows * "stride_x_m", "cols")


def test_loads_are_spelled_with_what_they_have() -> None:
    assert str(Access(AT)) == "tl.load(x_ptr + rows * stride_x_m + cols)"
    assert str(Access(AT, V.row_mask)) == "tl.load(x_ptr + rows * stride_x_m + cols, mask=row_mask)"
    assert str(Access(Address("x_ptr"), other=0.0, to=("COMPUTE",))) == "tl.load(x_ptr).to(COMPUTE)"
    assert str(Access(AT, V.m, 0.0, by="read_once")) == "read_once(x_ptr + rows * stride_x_m + cols, m, 0.0)"


def test_default_instead_of_what_is_not_given() -> None:
    read = Access(AT, V.row_mask, 0.0, ("COMPUTE",))
    assert str(read.instead(1.0)) == "load_or(x_ptr, rows * stride_x_m + cols, row_mask, 1.0, COMPUTE)"


@pytest.mark.parametrize(
    "read",
    [
        Access(AT, V.row_mask, 0.0),
        Access(AT, None, 0.0, ("COMPUTE",)),
        Access(AT, V.row_mask, 0.0, ("tl.float32", "COMPUTE")),
        Access(AT, V.row_mask, -math.inf, ("COMPUTE",)),
        Access(AT, V.row_mask, 0.0, ("COMPUTE",), by="read_once"),
        Access(Address("x_row").moved("cols"), V.row_mask, 0.0, ("COMPUTE",)),
        Access(Address("x_ptr"), V.row_mask, 0.0, ("COMPUTE",)),
    ],
    ids=str,
)
def test_other_loads_stand_in_branches(read: Access) -> None:
    assert read.instead(1.0) is None
