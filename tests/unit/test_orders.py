"""In which order the factors of a sum are multiplied."""

from __future__ import annotations

import pytest

from tests.cases.step_case import Case
from tritongen.families.family import Step
from tritongen.operator.compile import backward_of, forward_of
from tritongen.passes.orders import Term, in_order, term_of
from tritongen.spec.read import read_spec


def _read(inputs: str, line: str, wrt: str = "-", more: str = "") -> list[list[str]]:
    """What each step of the forward reads, or of the backward by some inputs, with `more` in the spec."""
    spec = read_spec("steps.toml", Case(inputs, f"y = {line}", lambda: None, wrt=wrt).text() + more)
    forward = forward_of(spec)
    backward = backward_of(spec, forward)
    steps: tuple[Step, ...] = (forward,) if backward is None else backward.plan.steps
    inner = [one for step in steps for one in step.family.steps(step.program) or (step,)]
    return [sorted(tensor.name for tensor in step.op.inputs) for step in inner]


@pytest.mark.parametrize(
    ("inputs", "line", "first"),
    [
        ("a:M=64, K; b:K, N; c:N, P", "sum(a * b * c, K, N)", ["a", "b"]),
        ("a:M, K; b:K, N; c:N, P=64", "sum(a * b * c, K, N)", ["b", "c"]),
        ("a:M, K; b:K, N=64; c:N=64, P", "sum(a * b * c, N, K)", ["a", "b"]),
        ("a:M, K=64; b:K=64, N; c:N, P", "sum(a * b * c, K, N)", ["b", "c"]),
        ("q:B, S, D=64; k:B, T, D=64; v:B, T, E=64", "sum(q * k * v, D, T)", ["k", "v"]),
        ("q:B, S=64, D; k:B, T=64, D; v:B, T=64, E", "sum(q * k * v, T, D)", ["k", "q"]),
        ("x:B, I, J; b:J, R=32; c:I, R=32", "sum(x * b * c, I, J)", ["b", "c"]),
    ],
)
def test_order_is_that_of_the_least_time(inputs: str, line: str, first: list[str]) -> None:
    assert _read(inputs, line)[0] == first


@pytest.mark.parametrize(("lengths", "first"), [("P = 64", ["b", "c"]), ("P = [64, 4096]", ["a", "b"])])
def test_lengths_of_a_benchmark_are_typical(lengths: str, first: list[str]) -> None:
    """Of several the largest counts."""
    assert _read("a:M, K; b:K, N; c:N, P", "sum(a * b * c, K, N)", more=f"[bench]\n{lengths}\n")[0] == first


def test_lengths_of_a_benchmark_fix_nothing() -> None:
    """Groups of columns have a width that kernels know."""
    more = "[bench]\nB = 4096\nI = 64\nJ = 64\nO = 64\n"
    line = "sum(x * w * z, I, J)"
    assert _read("x:B, I; w:O, I, J; z:B, J", line, more=more) == [["x", "z"], ["w", "y_factor"]]


def test_order_as_written_stays_where_none_is_clearly_faster() -> None:
    assert _read("a:M, K; b:K, N; c:N, P", "sum(a * b * c, K, N)")[0] == ["a", "b"]
    assert _read("a:M, K; b:K, N; c:N, P=3500", "sum(a * b * c, K, N)")[0] == ["a", "b"]


def test_products_with_more_axes_than_their_factors_are_stored_for_matmuls() -> None:
    """Where each tile of one kernel would multiply them anew; not where that kernel waits for memory anyway."""
    bilinear = "x:B, I; w:O, I, J; z:B, J"
    assert _read(bilinear, "sum(x * w * z, I, J)") == [["x", "z"], ["w", "y_factor"]]
    assert _read("a:I, R=16; b:J, R=16; c:K, R=16", "sum(a * b * c, R)") == [["a", "b", "c"]]


@pytest.mark.parametrize(
    ("inputs", "line", "axes"),
    [
        ("x:B, I; w:O, I, J; z:B, J", "sum(x * w * z, I, J)", ("B", "I", "J")),
        ("x:I, B; w:O, I, J; z:J, B", "sum(x * w * z, I, J)", ("I", "J", "B")),
    ],
)
def test_products_are_stored_with_the_axes_of_each_factor_in_its_order(
    inputs: str, line: str, axes: tuple[str, ...]
) -> None:
    """Else factors would be read across their rows."""
    forward = forward_of(Case(inputs, f"y = {line}", lambda: None, wrt="-").spec())
    assert forward.family.steps(forward.program)[0].op.results[0].axes == axes


def test_groups_of_columns_are_summed_where_they_are_computed() -> None:
    """Fixed lengths make one kernel of a matmul and the sum of its result, which is stored for the backward alone."""
    inputs = "x:A, B, I=64; w:O=64, I=64, J=64; z:A, B, J=64"
    assert _read(inputs, "sum(x * w * z, I, J)") == [["w", "x", "z"]]


def test_factors_that_scale_others_stay_in_one_kernel() -> None:
    assert _read("q:M, D; k:N, D; w:D", "sum(q * k * w, D)") == [["k", "q", "w"]]
    assert _read("a:M, K; b:K, N; c:M; d:N", "sum(a * b * c * d, K)") == [["a", "b", "c", "d"]]


def test_gradients_of_a_bilinear_form_share_a_matmul() -> None:
    """That of the product of x and z, which both of their gradients are sums of; that of w reads the stored product."""
    steps = _read("x:B, I; w:O, I, J; z:B, J", "sum(x * w * z, I, J)", "x w z")
    assert sorted(map(len, steps)) == [2] * 4
    assert sum("w" in read for read in steps) == 1
    assert ["dy", "y_factor"] in steps


@pytest.mark.parametrize("dtype", ["float8", "int8"])
def test_bytes_are_multiplied_in_no_other_order(dtype: str) -> None:
    """Products of integers alone would wrap around; those of float8 have no dtype that a step stores."""
    text = Case("a:M, K; b:K, N; c:N, P=64", "y = sum(a * b * c, K, N)", lambda: None, wrt="-").text()
    text = text.replace('T = "float"', f'T = "bfloat16"\nS = "{dtype}"')
    text = text.replace('b = "T', 'b = "S').replace('c = "T', 'c = "S')
    step = forward_of(read_spec("orders.toml", text))
    assert [tensor.name for tensor in step.family.steps(step.program)[0].op.inputs] == ["a", "b"]


def test_chain_of_matmuls_is_that_of_the_fewest_operations() -> None:
    """An example of Cormen et al., Introduction to Algorithms: its lengths a hundred times as long."""
    lengths = dict(zip("ABCDEFG", (3000, 3500, 1500, 500, 1000, 2000, 2500), strict=True))
    factors = [Term((one, other), place=n) for n, (one, other) in enumerate(zip("ABCDEF", "BCDEFG", strict=True))]
    from_left = factors[0]
    for factor in factors[1:]:
        from_left = term_of((from_left, factor), (factor.axes[0],))

    def places(term: Term) -> object:
        return [places(part) for part in term.operands] if term.operands else term.place

    assert places(in_order(from_left, factors, lengths, {})) == [[0, [1, 2]], [[3, 4], 5]]
