"""Which operators have Gluon kernels beside plain ones, and what these have of their lines."""

from __future__ import annotations

import pytest

from tests.cases.gluon import (
    BIAS,
    CAUSAL,
    COLUMNS,
    GRADIENT,
    GROUPED,
    LENGTHS,
    LOG,
    MEAN,
    OF_HEADS,
    POSITIONS_FIRST,
    QKV,
    SINK,
    SLOPES,
    kernel_of,
    spec_of,
)
from tritongen.operator.compile import generate
from tritongen.spec.types import Spec

TEMPER = f'{QKV}\ntemper = "float32[..., M]"'


@pytest.mark.parametrize(
    "spec",
    [
        spec_of(kind="float32"),
        spec_of('s = "sum(q * k, D) * scale"\no = "sum(sigmoid(s) * v, N)"'),
        spec_of(CAUSAL.replace("* scale", "* scale + bias"), f'{QKV}\nbias = "T[..., N, M]"'),
        spec_of(CAUSAL.replace("* scale", "* scale + bias"), f'{QKV}\nbias = "float32[..., M, N]"'),
        spec_of(CAUSAL.replace("* scale", "* scale + one + two"), f'{QKV}\none = "T[M, N]"\ntwo = "T[M, N]"'),
        spec_of(CAUSAL.replace("* scale", "* scale + bias"), f'{QKV}\nbias = "T[N]"'),
        spec_of(inputs=QKV.replace("T[..., N, D]", "T[..., D, N]")),
        spec_of(CAUSAL.replace("scale", "where(raw, 1, scale)"), params='scale = { type = "float" }\nraw = false'),
        spec_of(CAUSAL.replace("* scale", "* scale / size(...)")),
        spec_of(CAUSAL.replace("* scale", "* cast(scale * 2, q)")),
        spec_of(more='[torch]\nregister = "triton_op"\n'),
    ],
    ids=[
        "float32",
        "no largest",
        "a bias across",
        "a wide bias",
        "two biases",
        "of all heads",
        "keys across",
        "a flag",
        "how many heads there are",
        "the dtype of a matrix",
        "torch sees launches",
    ],
)
def test_other_math_has_a_plain_kernel_alone(spec: Spec) -> None:
    assert not kernel_of(spec)


def test_the_scores_are_those_of_the_plain_kernel() -> None:
    """Between the matmuls stand the same lines, but for the scale, which exponents take where nothing else reads it."""
    plain, gluon = generate(spec_of())["kernels.py"], kernel_of(spec_of())
    assert "s = tl.where(col_mask & (cols <= rows), s, float(" in plain
    assert "s = gl.where(cols <= rows, s, float(" in gluon
    assert "s = s_sum * scale" in plain
    assert "s = s_sum\n" in gluon
    assert "s_sum * scale" in kernel_of(spec_of(CAUSAL.replace('* scale, -inf)"', '* scale, -1.0)"')))
    capped = CAUSAL.replace("sum(q * k, D) * scale", "30 * tanh(sum(q * k, D) * scale / 30)")
    assert "tanh(" in kernel_of(spec_of(capped))


def test_the_last_block_alone_has_what_is_past_the_end() -> None:
    """It comes first, outside the loop."""
    causal, whole = kernel_of(spec_of()), kernel_of(spec_of(f's = "sum(q * k, D) * scale"\n{MEAN}'))
    assert "factor, n_cols, True, True)" in causal
    assert "factor, n_cols, run != 0, False)" in causal
    assert "factor, n_cols, True)" in whole
    assert "factor, n_cols, False)" in whole


def test_numbers_that_are_the_scale() -> None:
    """One above 0 needs no care for its sign."""
    assert "negate(q)" in kernel_of(spec_of())
    assert "negate(q)" not in kernel_of(spec_of(CAUSAL.replace("scale", "0.125"), params=""))
    assert "s = s_sum * -0.125" in kernel_of(spec_of(CAUSAL.replace("scale", "(-0.125)"), params=""))


def test_the_gradient_is_that_of_the_plain_kernel() -> None:
    """But for scores, which are in base 2 where only exponentials read them, and per-row values are vectors."""
    spec = spec_of(more=GRADIENT)
    plain, gluon = generate(spec)["kernels.py"], kernel_of(spec).partition("_backward_dq_half(")[2]
    lines = {
        "s = s_sum * scale": "s = s_sum * factor",
        "p = exp2_sub(s, lse)": "p = gl.exp2(s - to_base2(lse)[:, None])",
        "ds = p * (dp - delta)": "ds = p * (dp - delta[:, None])",
        "ds_where = tl.where(col_mask & (cols <= rows), ds_where, 0.0)": (
            "ds_where = gl.where(col_mask & (cols <= rows[:, None]), ds_where, 0.0)"
        ),
    }
    assert all(one in plain and other in gluon for one, other in lines.items())
    raised = kernel_of(spec_of(CAUSAL.replace('* scale, -inf)"', '* scale, -1.0)"'), more=GRADIENT))
    assert "p = exp2_sub(s, lse[:, None])" in raised


def test_what_is_past_the_end_is_masked_with_the_scores() -> None:
    """In one condition for each weight of dk and dv, unless masked scores are no infinities, or none are."""
    scores, weights = "s = gl.where(col_mask & (rows[:, None] <= cols), s", "p = gl.where(col_mask, p, 0.0)"
    raised = CAUSAL.replace('* scale, -inf)"', '* scale, -1.0)"')
    whole = f's = "sum(q * k, D) * scale"\n{MEAN}'
    for compute, is_joined in ((CAUSAL, True), (raised, False), (whole, False)):
        text = kernel_of(spec_of(compute, more=GRADIENT)).partition("_backward_dk_dv_half(")[2]
        assert (scores in text, weights in text) == (is_joined, not is_joined)


@pytest.mark.parametrize(
    ("compute", "inputs"),
    [
        (CAUSAL.replace("* scale", "* scale + one + two"), f'{QKV}\none = "T[M, N]"\ntwo = "T[M, N]"'),
        ('s = "sum(q * k, D) * scale"\no = "sum(s * v, N)"', QKV),
    ],
    ids=["two biases", "one score"],
)
def test_gradients_of_other_math_have_a_plain_kernel_alone(compute: str, inputs: str) -> None:
    assert "_backward_" not in kernel_of(spec_of(compute, inputs, more=GRADIENT))


def test_numbers_of_rows_that_results_are_multiplied_by_leave_dq_to_the_plain_kernel() -> None:
    """Behind the loop they lie as those of scores do, and not as the sums."""
    spec = spec_of(CAUSAL.partition("where")[0] + f'sum(q * k, D) * scale * temper"\n{MEAN}', TEMPER, more=GRADIENT)
    assert "dq = scale * (temper * dq_sum)" in generate(spec)["kernels.py"]
    assert "_backward_dq_" not in kernel_of(spec)
    assert "def attend_backward_dk_dv_gluon_kernel(" in kernel_of(spec)


def test_a_soft_cap_leaves_no_registers_for_two_sums() -> None:
    capped = CAUSAL.replace("sum(q * k, D) * scale", "30 * tanh(sum(q * k, D) * scale / 30)")
    text = kernel_of(spec_of(capped, more=GRADIENT))
    assert "def attend_backward_dq_gluon_kernel(" in text
    assert "_backward_dk_dv_" not in text


def test_heads_of_a_group_read_the_same_blocks() -> None:
    """TMA steps through five dimensions, so that the last of the batch has a length of 1 where rows have a group."""
    text = kernel_of(spec_of(inputs=GROUPED, outputs='o = "q[..., (G R), M, E]"'))
    assert "fill(k_ring, step, k_desc, (i0, i1, i2), start)" in text
    assert "fill(q_ring, q_step + half, q_desc, (i0, i1, i_r), row)" in text
    assert "store_block(o_desc, o_blocks, half, (i0, i1, i_r), first_row, o)" in text


def test_positions_before_heads() -> None:
    """Tensors are seen with the heads first, as descriptors have them."""
    files = generate(spec_of(inputs=POSITIONS_FIRST, outputs='o = "q[B, M, (G R), E]"'))
    assert "store_block(o_desc, o_blocks, half, (i0, i1, i_r), first_row, o)" in files["gluon_kernels.py"]
    assert "q_by_head = tensors.with_last(q, -3, -2, -4, -1)\n" in files["op.py"]


def test_results_are_given_in_their_order() -> None:
    """As the host has them, whichever is the matrix."""
    text = kernel_of(spec_of(CAUSAL + LOG, outputs='lse = "float32"\no = "q"'))
    signature = text.partition("def attend_gluon_kernel(")[2].partition("n_heads")[0]
    assert signature.split(", ")[:5] == ["q_desc", "k_desc", "v_desc", "lse_ptr", "o_desc"]


def test_numbers_of_heads_are_read_once_for_a_tile() -> None:
    """Before the loop where scores have them, and behind it where only the mean has."""
    slopes = kernel_of(spec_of(SLOPES, f'{OF_HEADS}\nslope = "float32[H]"'))
    tile, read, loop = (slopes.index(one) for one in ("_tile(tile, lengths", "slope = gl.load", "for run in"))
    assert slopes.count("gl.load(") == 1
    assert tile < read < loop
    sink = kernel_of(spec_of(SINK, f'{OF_HEADS}\nsink = "float32[H]"'))
    assert sink.count("gl.load(") == 1
    assert sink.index("for run in") < sink.index("sink = gl.load")


@pytest.mark.parametrize(
    ("slope", "compute"),
    [
        ("float32[H, M]", SLOPES),
        ("float32[H]", SLOPES.replace("(index(M) - index(N))", "(index(M) - 2 * index(N))")),
        ("float32[H]", SLOPES.replace("(index(M) - index(N))", "abs(index(M) - index(N))")),
        ("int32[H]", SLOPES),
        ("float32[H]", f'{SLOPES}\nmean = "sum(s, N)"'),
    ],
    ids=["of rows", "steps of two", "without a sign", "an integer", "scores that are read besides"],
)
def test_distances_that_each_score_has_of_its_own(slope: str, compute: str) -> None:
    outputs = 'o = "q"' + ('\nmean = "float32[..., H, M]"' if "mean" in compute else "")
    assert "_led" not in kernel_of(spec_of(compute, f'{OF_HEADS}\nslope = "{slope}"', outputs))


def test_numbers_of_columns_are_read_while_matmuls_run() -> None:
    """Those of rows once for a tile, as those of heads; lengths for the bounds of a tile as well."""
    numbers = kernel_of(spec_of(COLUMNS, f'{QKV}\ntemper = "float32[..., M]"\nbias = "float32[..., N]"'))
    begin, read, wait = (numbers.rindex(one) for one in ("begin_scores(", "bias = attend_columns(", "mma_wait(1"))
    assert begin < read < wait
    assert numbers.index("temper = gl.load(") < numbers.index("for run in")
    lengths = kernel_of(spec_of(LENGTHS, f'{OF_HEADS}\nlength = "int32[H]"'))
    assert lengths.count("length = gl.load(") == 2
    assert lengths.index("length = gl.load(") < lengths.index("bounds = ")


def test_a_bias_is_read_while_matmuls_run() -> None:
    kernel = kernel_of(spec_of(BIAS, f'{OF_HEADS}\nbias = "T[H, M, N]"'))
    begin, read, wait = (kernel.rindex(one) for one in ("begin_scores(", "bias = read_scores(", "mma_wait(1"))
    assert begin < read < wait
