"""Where operators that no single kernel computes are cut into steps, forward and backward, and what is stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cases.step_cases import APART, CASES, Case
from tritongen.families.family import Step
from tritongen.families.multi_step.family import MultiStep
from tritongen.families.streaming.program import StreamingProgram
from tritongen.lang.ir import Op, Reduce, Ref, ScatterSum, walk
from tritongen.lang.names import shown
from tritongen.operator.compile import backward_of, forward_of
from tritongen.planner.cost import repeats_reductions
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

EMITTED = Path(__file__).parents[1] / "emitted" / "specs"


def _lines_of_steps(name: str) -> list[list[str]]:
    forward = forward_of(CASES[name].spec())
    return [list(step.op.lines) for step in forward.family.steps(forward.program)]


@pytest.mark.parametrize("name", ["gates_of_rows", "norm_with_gates_of_rows"])
def test_sums_of_rows_and_of_columns_share_a_walk(name: str) -> None:
    (step,) = [one for one in _steps_of_gradient(name) if "x" in {shown(tensor.name) for tensor in one.op.inputs}]
    assert {"dx", "dw"} <= {shown(result.output.name) for result in step.op.results}


def test_sums_of_two_softmaxes_are_left_to_their_maxima() -> None:
    """Both at once would read x once more for each maximum."""
    forward = forward_of(CASES["two_softmaxes"].spec())
    assert len(forward.family.steps(forward.program)) == 2


@pytest.mark.parametrize(
    "name", ["sums_of_two_sorts_of_rows", "mean_of_the_columns_of_a_matmul", "sums_of_columns_for_each_row"]
)
def test_reductions_are_computed_once(name: str) -> None:
    """Not for each row of a kernel that has rows along which they do not vary, forward or backward."""
    spec = CASES[name].spec()
    forward = forward_of(spec)
    backward = backward_of(spec, forward)
    assert backward is not None
    passes = forward, backward.forward, *backward.plan.steps
    steps = [step for one in passes for step in one.family.steps(one.program) or (one,)]
    assert not any(map(repeats_reductions, steps))


@pytest.mark.parametrize(("shape", "axes"), [("N", "N"), ("(N P=2)", "N, P"), ("N, P", "N, P")])
def test_a_gradient_alike_for_all_elements_is_summed_once(shape: str, axes: str) -> None:
    """By w, of a mean of it: the sum was computed again for each row of w."""
    text = f"""[op]
name = "scaled"
[inputs]
x = "float[M, K]"
w = "float[{shape}]"
[compute]
y = "x * mean(w, {axes})"
[outputs]
y = "x"
[grad]
wrt = ["x", "w"]
"""
    spec = read_spec("scaled.toml", text)
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    steps = [inner for step in backward.plan.steps for inner in step.family.steps(step.program) or (step,)]
    summing = [step for step in steps if any(isinstance(value.node, Reduce) for value in step.op.values)]
    assert [result.axes for step in summing for result in step.op.results] == [()]


def test_reductions_of_one_row_are_left_where_storing_them_takes_as_long() -> None:
    forward = forward_of(Case("x:M, N; v:N", "y = x * softmax(v, N)", lambda x, v: x * v.softmax(0)).spec())
    assert not forward.family.steps(forward.program)


def test_lines_are_not_fused() -> None:
    assert _lines_of_steps("norm_line_by_line") == [["s"], ["r"], ["y"]]
    assert _lines_of_steps("mlp_line_by_line") == [["h"], ["z"], ["y"]]
    first, *others = _lines_of_steps("line_of_two_steps")
    assert first == ["z"]
    assert len(others) > 1
    assert others[-1] == ["y"]
    fused = replace(CASES["norm_line_by_line"], schedule="fuse = true")
    assert not forward_of(fused.spec()).family.steps(forward_of(fused.spec()).program)


def test_lines_of_gradients_are_not_fused() -> None:
    spec = CASES["norm_line_by_line"].spec()
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    steps = [step for one in backward.plan.steps for step in one.family.steps(one.program) or (one,)]
    assert len(steps) >= len(backward.gradient.op.lines) > 2
    assert all(len(step.op.lines) == 1 for step in steps)


def test_few_long_rows_are_shared() -> None:
    """A spec that says how few they are is cut into statistics, which programs share, and a map."""
    assert isinstance(forward_of(CASES["group_norm_of_one"].spec()).family, MultiStep)
    assert not isinstance(forward_of(CASES["group_norm"].spec()).family, MultiStep)
    short = replace(CASES["group_norm_of_one"], inputs="x:(G=4 C=8), S=64; w:(G=4 C=8)")
    assert not isinstance(forward_of(short.spec()).family, MultiStep)


@pytest.mark.parametrize(("name", "results"), [("group_norm", [2, 1]), ("group_norm_channels_last", [2, 3])])
def test_sums_along_different_axes_share_a_walk(name: str, results: list[int]) -> None:
    """Those of a group and those of a channel: x and dy are read for them once, and once for the map, which adds up
    those of a channel itself where channels are neighbours.
    """
    spec = CASES[name].spec()
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    steps = [step for one in backward.plan.steps for step in one.family.steps(one.program) or (one,)]
    walks = [step for step in steps if {"dy", "x"} <= {shown(tensor.name) for tensor in step.op.inputs}]
    assert [len(step.op.results) for step in walks] == results


@pytest.mark.parametrize("name", ["sinkhorn", "layer_norm_of_a_matmul", "lora"])
def test_no_single_kernel_computes_it(name: str) -> None:
    forward = forward_of(CASES[name].spec())
    assert isinstance(forward.family, MultiStep)


def test_attention_is_one_kernel() -> None:
    forward = forward_of(CASES["attention"].spec())
    assert isinstance(forward.program, StreamingProgram)
    assert not forward.family.steps(forward.program)


def test_steps_are_as_few_as_they_can_be() -> None:
    """Sums of rows and of columns are a step each, and one of them goes with what is made of both."""
    forward = forward_of(CASES["reductions_over_different_axes"].spec())
    assert [step.op.name for step in forward.program.steps] == ["steps_x_sum", "steps_y"]
    lora = forward_of(CASES["lora"].spec())
    assert len(lora.program.steps) == 3


def test_rows_are_read_once_for_their_largest_and_their_sum() -> None:
    """Where what is made of both is stored in place of the largest: losses of rows, summed along another axis."""
    case = Case(
        "x:B, S, V; z:B, S, V; at:int64[B, S]",
        "a = take(x, at, V) - logsumexp(x, V)\nb = take(z, at, V) - logsumexp(z, V)\n"
        "r = sum(a - b, S)\ny = mean(logsigmoid(r), B)",
        lambda *_: (),
    )
    forward = forward_of(replace(case, wrt="-").spec())
    assert [[tensor.name for tensor in step.op.inputs] for step in forward.program.steps] == [
        ["x", "z", "at"],
        ["a", "b"],
        ["r"],
    ]


@pytest.mark.parametrize(
    ("name", "forward"),
    [
        ("preferences_of_sequences", ["x z at", "p_terms q_terms", "p q"]),
        ("mean_cross_entropy_of_a_matmul", ["x w", "at h y_max_strips y_sum_exps_strips", "y_terms"]),
    ],
)
def test_rows_are_read_once_for_all_that_they_are_reduced_to(name: str, forward: list[str]) -> None:
    """The loss of each row is made of its largest and its sum where these are found, and of an element beside them."""
    steps = forward_of(CASES[name].spec()).program.steps
    assert [" ".join(tensor.name for tensor in step.op.inputs) for step in steps] == forward


@pytest.mark.parametrize(
    ("name", "made"), [("bias_behind_two_matmuls", "dx_product db"), ("layer_norm_of_a_matmul", "dh db")]
)
def test_what_a_step_stores_is_summed_by_it(name: str, made: str) -> None:
    """The gradient of a bias, beside that of the matmul before it."""
    first = _steps_of_gradient(name)[0]
    assert " ".join(result.output.name for result in first.op.results) == made


def test_operands_of_two_matmuls_are_stored_for_both() -> None:
    """The gradient of logits, of which each tile of a result would compute the exponentials again."""
    steps = _steps_of_gradient("mean_cross_entropy_of_a_matmul")
    matmuls = [step.family.matmuls(step.program) for step in steps]
    assert [one is None or one.is_plain for one in matmuls] == [True, True, True]


def test_matmuls_of_a_loss_in_float32_are_of_the_dtype_of_its_inputs() -> None:
    """As autograd casts the gradient; full float32 is multiplied without tensor cores."""
    text = CASES["mean_cross_entropy_of_a_matmul"].text().replace('= "auto"', '= "float32"')
    told = {result.dtype.of for step in _steps_of(read_spec("steps.toml", text)) for result in step.op.results}
    assert all("dy" not in map(shown, of) for of in told)


def _steps_of_gradient(name: str) -> list[Step]:
    return _steps_of(CASES[name].spec())


def _steps_of(spec: Spec) -> list[Step]:
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    return [step for one in backward.plan.steps for step in one.family.steps(one.program) or (one,)]


@pytest.mark.parametrize(
    "name", ["mean_of_products", "quotient_in_a_matmul", "matmul_of_a_softmax", "statistics_of_a_matmul"]
)
def test_products_are_matmuls_however_they_are_written(name: str) -> None:
    """Means of them, and quotients in them: the forward's matmul and the two of its gradient, and no loop over rows."""
    forward = forward_of(CASES[name].spec())
    steps = [*(forward.family.steps(forward.program) or (forward,)), *_steps_of_gradient(name)]
    assert sum(step.family.matmuls(step.program) is not None for step in steps) == 3


@pytest.mark.parametrize(
    "name",
    [
        "three_factors_over_one_axis",
        "bilinear",
        "bilinear_form_of_rows",
        "sum_of_both_sides_alone",
        "sum_of_one_side_without_a_matmul",
        "mean_of_both_sides",
        "sum_of_three_matrices",
        "mean_of_two_matmuls",
        "weighted_mean_of_a_matmul",
        "mlp_along_another_axis",
        "matmul_of_a_line_and_its_neighbour",
    ],
)
def test_only_matmuls_have_as_many_terms_as_products(name: str) -> None:
    """No other step sums along axes of which no tensor has all."""
    forward = forward_of(CASES[name].spec())
    steps = [*(forward.family.steps(forward.program) or (forward,)), *_steps_of_gradient(name)]
    for step in steps:
        if step.family.matmuls(step.program) is None:
            tensors = [{*tensor.type.axes} for tensor in step.op.inputs] + [{*r.axes} for r in step.op.results]
            nodes = [node for value in step.op.values for node in walk(value.node) if isinstance(node, Reduce)]
            assert all(any({*node.arg.axes} <= axes for axes in tensors) for node in nodes)


def test_gradients_of_two_factors_are_made_of_one_matmul() -> None:
    first, second = _steps_of_gradient("gates_in_a_matmul")
    assert [result.output.name for result in first.op.results] == ["dw_factor", "dx", "du"]
    assert [result.output.name for result in second.op.results] == ["dw"]


def test_what_is_summed_over_everything_is_added_up_by_rows_on_the_way() -> None:
    """The gradient of a temperature takes no pass of its own over the matrices."""
    first, last = _steps_of_gradient("temperature")
    assert [result.output.name for result in first.op.results] == ["dt_inner", "dx"]
    assert [tensor.name for tensor in last.op.inputs] == ["dt_inner"]


@pytest.mark.parametrize(
    "name",
    [
        "convolution_along_one_axis",
        "convolution_without_padding",
        "rows_at_their_own_positions",
        "take_at_an_offset_of_rows",
        "matmul_of_a_line_and_its_neighbour",
    ],
)
def test_what_is_taken_once_along_an_axis_is_not_scattered(name: str) -> None:
    """A gradient reads it from where it was taken to. No matmul is computed again for the neighbours."""
    steps = _steps_of_gradient(name)
    assert not any(isinstance(value.node, ScatterSum) for step in steps for value in step.op.values)
    assert sum(step.family.matmuls(step.program) is not None for step in steps) in (0, 2)


def test_what_is_summed_over_images_is_added_up_by_rows_on_the_way() -> None:
    """The gradients of an instance norm read the matrices once."""
    first, last = _steps_of_gradient("instance_norm")
    assert [result.output.name for result in first.op.results] == ["dw_inner", "db_inner", "dx"]
    assert [tensor.name for tensor in last.op.inputs] == ["dw_inner", "db_inner"]


def test_rows_that_are_mapped_back_are_contiguous() -> None:
    """Of sums over rows and over columns, both of long ones, that over columns is stored: forward and backward."""
    name = "reductions_over_different_axes"
    for step in (forward_of(CASES[name].spec()).program.steps[-1], _steps_of_gradient(name)[-1]):
        assert _overs(step.op) == [("N",)]


@pytest.mark.parametrize("name", ["norm_of_everything", "scale_of_everything"])
def test_what_is_reduced_over_everything_is_mapped_back_by_many_programs(name: str) -> None:
    """A single row is reduced by a step of its own, whose programs share it, and mapped by another."""
    spec = CASES[name].spec()
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    planned = (backward.forward, *backward.plan.steps)
    steps = [step for one in planned for step in one.family.steps(one.program) or (one,)]
    whole = [step for step in steps if {"M", "N"} in [set(over) for over in _overs(step.op)]]
    assert whole
    assert all(result.axes == () for step in whole for result in step.op.results)


def _overs(op: Op) -> list[tuple[str, ...]]:
    return [node.over for value in op.values for node in walk(value.node) if isinstance(node, Reduce)]


@pytest.mark.parametrize("name", ["mlp", "lora", "layer_norm_of_a_matmul", "stored_and_returned", *APART])
def test_nothing_is_stored_twice(name: str) -> None:
    """What the next step reads and what the backward or the caller does is one tensor."""
    spec = CASES[name].spec()
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    forward = backward.forward
    steps = forward.family.steps(forward.program)
    stored = [result.node.name for step in steps for result in step.op.results if isinstance(result.node, Ref)]
    assert len(stored) >= len(steps)
    assert len(stored) == len(set(stored))


def test_gradients_that_other_steps_read_are_stored_once() -> None:
    """In the dtype of the input, which is also that of the incoming gradient where all inputs share a type."""
    first, *others = _steps_of_gradient("softmax_with_a_table_of_biases")
    assert [result.output.name for result in first.op.results] == ["ds"]
    assert "ds" in {tensor.name for step in others for tensor in step.op.inputs}


def test_factors_that_matmuls_share_are_computed_once() -> None:
    """The gradients of an operand and of its weights read the same matrices."""
    for step in _steps_of_gradient("mlp_along_another_axis"):
        nodes = [value.node for value in step.op.values]
        assert len(nodes) == len(set(nodes))


def test_saved_matrices_lie_as_the_results_that_are_made_of_them() -> None:
    spec = CASES["matmul_of_a_line_and_its_neighbour"].spec()
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    axes = {result.output.name: result.axes for result in backward.forward.op.results}
    assert axes["y_sum"] == axes["y"] == ("B", "S", "E")


def test_numbers_of_rows_are_stored_in_the_dtype_of_the_computation() -> None:
    """Also where what goes from step to step has one axis alone: half precision would lose digits of each loss."""
    case = Case(
        "x:M, N; t:int64[M]", "l = logsumexp(x, N) - take(x, t, N)\ny = mean(where(t > 0, l, 0), M)", lambda *_: ()
    )
    steps = forward_of(replace(case, wrt="-").spec()).program.steps
    assert [result.dtype.rule for step in steps for result in step.op.results] == ["compute", ""]


@pytest.mark.parametrize("name", ["sum_of_one_side", "sums_of_both_sides", "sum_of_a_vectors_side"])
def test_one_side_is_summed_first(name: str) -> None:
    """No step goes through more axes than the largest input has, or a matmul of two has."""
    forward = forward_of(CASES[name].spec())
    *sums, last = forward.family.steps(forward.program)
    assert sums
    assert all(len(one.op.inputs) == 1 for one in sums)
    reduced = {axis for value in last.op.values if isinstance(value.node, Reduce) for axis in value.node.over}
    assert reduced == {"K"}


def _read(inputs: str, line: str) -> list[list[str]]:
    """What each step of the forward reads."""
    forward = forward_of(Case(inputs, f"y = {line}", lambda: None, wrt="-").spec())
    steps = forward.family.steps(forward.program) or (forward,)
    return [sorted(tensor.name for tensor in step.op.inputs) for step in steps]


def test_products_with_more_axes_than_their_factors_are_stored_for_matmuls() -> None:
    """Where each tile of one kernel would multiply them anew; not where that kernel waits for memory anyway."""
    assert _read("x:B, I; w:O, I, J; z:B, J", "sum(x * w * z, I, J)") == [["x", "z"], ["w", "y_factor"]]
    assert _read("a:I, R=16; b:J, R=16; c:K, R=16", "sum(a * b * c, R)") == [["a", "b", "c"]]


@pytest.mark.parametrize(
    ("inputs", "axes"),
    [("x:B, I; w:O, I, J; z:B, J", ("B", "I", "J")), ("x:I, B; w:O, I, J; z:J, B", ("I", "J", "B"))],
)
def test_products_are_stored_with_the_axes_of_each_factor_in_its_order(inputs: str, axes: tuple[str, ...]) -> None:
    """Else factors would be read across their rows."""
    forward = forward_of(Case(inputs, "y = sum(x * w * z, I, J)", lambda: None, wrt="-").spec())
    assert forward.family.steps(forward.program)[0].op.results[0].axes == axes


def test_factors_that_scale_others_stay_in_one_kernel() -> None:
    assert _read("q:M, D; k:N, D; w:D", "sum(q * k * w, D)") == [["k", "q", "w"]]
    assert _read("a:M, K; b:K, N; c:M; d:N", "sum(a * b * c * d, K)") == [["a", "b", "c", "d"]]


def test_sums_are_in_the_order_of_their_axes_or_as_they_are_nested() -> None:
    assert _read("a:M, K; b:K, N; c:N, P=64", "sum(a * b * c, K, N)")[0] == ["a", "b"]
    assert _read("a:M, K; b:K, N; c:N, P=64", "sum(a * sum(b * c, N), K)")[0] == ["b", "c"]


def test_probabilities_that_are_a_result_are_read() -> None:
    """As large as scores are, they cost less than these once more."""
    spec = read_spec("given.toml", (EMITTED / "steps_without_keys.toml").read_text(encoding="utf-8"))
    forward = forward_of(spec)
    assert [step.family.title for step in forward.family.steps(forward.program)] == [
        "a contraction",
        "row-wise",
        "a contraction",
    ]
