"""Templates of Gluon kernels, which nests fill."""

from typing import Any

import pytest

from tritongen.families.gluon import filled
from tritongen.nest.check import check
from tritongen.nest.ir import Let, names_of
from tritongen.nest.values import V, tl

FILLS: dict[str, Any] = {
    "Y": "y",
    "MATRICES": ("a", "b"),
    "N_TERMS": "n_inner",
    "SUM": "y_sum",
    "PASSED": ("bias_ptr", "stride_bias", "slope"),
    "TENSORS": ("bias_ptr", "stride_bias", "slope"),
    "GIVEN": ("y_desc", "y_blocks", "bias_ptr", "stride_bias", "slope"),
    "CASTS": (),
    "READS": (),
    "OF_COLS": (),
    "MATH": (Let("y", V.y_sum * V.slope),),
}


def test_what_nothing_reads_goes() -> None:
    rows, kernel = filled("product", ["products"], FILLS)
    assert names_of(rows.body).isdisjoint(("rows", "cols", "by_row", "by_col", "each", "bias_ptr"))
    assert rows.names == ("which", "ring", "lengths", "given", "BLOCK_M", "BLOCK_N", "GROUP", "UNROLL")
    assert "y_desc, y_blocks, slope = given" in [getattr(one, "text", "") for one in rows.body]
    # The host passes all that there is.
    assert kernel.names[:9] == ("a_desc", "b_desc", "y_desc", "n_rows", "n_cols", "n_inner", *FILLS["PASSED"])


def test_a_line_is_there_for_each_of_several_things() -> None:
    reads = tuple(Let(name, tl.load(V[f"{name}_ptr"] + V.cols)) for name in ("bias", "scale"))
    math = Let("y", V.y_sum * V.scale + V.bias)
    given = ("y_desc", "y_blocks", "bias_ptr", "scale_ptr")
    fills = FILLS | {"READS": reads, "OF_COLS": ("bias", "scale"), "MATH": (math,), "GIVEN": given}
    rows, _ = filled("product", ["products"], fills)
    spread = [one.text for one in rows.body[-2].body if "convert_layout" in getattr(one, "text", "")]
    assert spread == [f"{name} = tl.convert_layout({name}, by_col)[None, :]" for name in ("bias", "scale")]


def test_filled_templates_are_checked() -> None:
    rows, _ = filled("product", ["products"], FILLS | {"MATH": (Let("y", V.y_sum * V.late), Let("late", V.y + 1))})
    with pytest.raises(TypeError, match="late is read before it has a value"):
        check(rows.body, rows.names, narrow=True)
