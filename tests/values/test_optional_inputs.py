"""Steps and gradients by inputs that may be left out, beside a float64 oracle of torch's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.cases.step_cases import Case
from tests.harness.importing import built
from tests.harness.oracles import DEVICE, compare
from tests.harness.written import Written
from tritongen.spec.read import read_spec

DEFAULT = -2.0


def text_of(case: Case, default: float) -> str:
    """The spec, whose last input, `w`, may be left out."""
    axes = case.inputs.rpartition(":")[2]
    return case.text().replace(f'\nw = "T[{axes}]"', f'\nw = "T[{axes}] = {default}"')


CASES = {
    "factor_of_a_matmul": Case("x:M, K; z:N; w:N, K", "y = sum(x * w, K) * z", lambda x, z, w: x @ w.T * z),
    "factor_of_a_matmul_beside_it": Case(
        "x:M, K; z:K, M; w:M, K", "y = sum(x * w, M)\nv = w * z", lambda x, z, w: ((x * w).sum(0), w * z.T), "y v"
    ),
    "factor_of_two_matmuls": Case(
        "x:M, K; z:M, N; w:N, K",
        "h = sum(x * w, K)\ny = sum(h * z * exp(w), N)",
        lambda x, z, w: (x @ w.T * z) @ w.exp(),
    ),
    "row_of_a_matmuls_tile": Case(
        "x:M; a:M, K; b:N, K; w:N",
        "v = sum(a * b, K) + 1\ny = w * x",
        lambda x, a, b, w: (a @ b.T + 1, x[:, None] * w),
        "v y",
    ),
    "column_of_a_matmuls_tile": Case(
        "x:N; a:M, K; b:N, K; w:M, N",
        "v = sum(a * b, K) + 1\ny = w * x",
        lambda x, a, b, w: (a @ b.T + 1, w * x),
        "v y",
    ),
    "gradient_of_the_others_shape": Case(
        "x:M, N; w:M, N", "h = mean(w - x, N)\ny = sum(h * x, M)", lambda x, w: (w - x).mean(1) @ x
    ),
}


@pytest.mark.parametrize("given", [True, False], ids=["given", "left_out"])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, given: bool, tmp_path: Path) -> None:
    case = CASES[name]
    operator = built(read_spec("steps.toml", text_of(case, DEFAULT)), tmp_path).steps
    *tensors, w = case.tensors(torch.float64)
    if given:
        compare(operator, case.torch, [*tensors, w], range(len(tensors) + 1), 1e-9)
    else:
        default = torch.full_like(w, DEFAULT)
        compare(operator, lambda *others: case.torch(*others, default), tensors, range(len(tensors)), 1e-9)


@pytest.mark.parametrize(
    "expression", ["exp(w)", "mean(w, M, N)", "sum(w, N)", "var(w, N)", "max(w, N)", "any(w > 1, N)"]
)
@pytest.mark.parametrize("default", [0.0, 2.0])
@pytest.mark.parametrize("shape", [(3, 5), (2, 7000)], ids=str)
def test_nothing_but_what_is_left_out(expression: str, default: float, shape: tuple[int, int], tmp_path: Path) -> None:
    """What is past the end counts for nothing, as where the input is given; blocks that are whole have no mask."""
    case = Case("x:M, N; w:M, N", f"z = 2 * x\ny = {expression}", torch.relu, "z y", "-")
    operator = built(read_spec("steps.toml", text_of(case, default)), tmp_path).steps
    x, w = (torch.full(shape, one, dtype=torch.float64, device=DEVICE) for one in (0.0, default))
    assert torch.equal(operator(x)[1], operator(x, w)[1])


TAKEN = """
[op]
name = "taken"
summary = "Of rows of a vector, at positions."

[types]
T = "float"

[inputs]
x = "T[M, N]"
at = "int64[N]"
w = "T[N] = -2"
keep = "bool[] = false"

[compute]
y = "x + {expression}"

[outputs]
y = "x"
"""


@pytest.mark.parametrize("shape", [(3, 5), (2, 7000)], ids=str)
@pytest.mark.parametrize(
    "expression",
    [
        "cumprod(1 - 0.25 * sigmoid(where(keep, 0, take(w, at, N))), N)",
        "cumsum(where(keep, take(w, at, N), 0.125), N)",
        "logsumexp(where(keep, 0.125, take(w, at, N)), N)",
    ],
)
def test_positions_in_what_is_left_out(expression: str, shape: tuple[int, int], tmp_path: Path) -> None:
    """They make neither a tile of it, as a scan needs one, nor a number of the dtype of the others."""
    operator = built(read_spec("taken.toml", TAKEN.format(expression=expression)), tmp_path).taken
    x = torch.rand(shape, dtype=torch.float64, device=DEVICE)
    at = torch.arange(shape[1], device=DEVICE).flip(0)
    w = torch.full(shape[1:], DEFAULT, dtype=torch.float64, device=DEVICE)
    keep = torch.zeros((), dtype=torch.bool, device=DEVICE)
    torch.testing.assert_close(operator(x, at), operator(x, at, w, keep), rtol=1e-14, atol=0)


@pytest.mark.parametrize("on", [True, False])
def test_split_rows_of_nothing_but_what_is_left_out(on: bool, tmp_path: Path) -> None:
    """The first stage of long rows has no tensor at all where a flag leaves the sum of what is absent out."""
    text = """
        [op]
        name = "steps"

        [inputs]
        x = "float[M, N]"
        w = "float[N] = 1"

        [params]
        on = false

        [compute]
        total = "sum(x, M, N)"
        y = "total + sum(w, N) if on else total"

        [outputs]
        y = "auto"
    """
    operator = built(read_spec("steps.toml", text), tmp_path).steps
    x = torch.randn(2, 3000, dtype=torch.float64)
    compare(lambda x: operator(x, on=on), lambda x: x.sum() + (3000.0 if on else 0.0), [x], (), 1e-9)


@pytest.mark.parametrize("given", [True, False], ids=["given", "left_out"])
def test_a_gradient_that_is_cast_to_what_inputs_promote_to(given: bool, tmp_path: Path) -> None:
    """Of inputs that may each have a dtype of their own, one that is left out has none."""
    text = """
[op]
name = "scaled"
[inputs]
x = "float[M, K]"
w = "float[K, N]"
c = "float[K] = 2"
[compute]
y = "sum(x * (w * c), K)"
[outputs]
y = "auto"
[grad]
wrt = ["x", "w", "c"]
"""
    draw = torch.Generator().manual_seed(0)
    tensors = [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in ((5, 4), (4, 3), (4,))]
    operator = built(read_spec("scaled.toml", text), tmp_path).scaled
    if given:
        compare(operator, lambda x, w, c: (x * c) @ w, tensors, range(3), 1e-9)
    else:
        compare(operator, lambda x, w: (x * 2) @ w, tensors[:2], range(2), 1e-9)


STREAMED = """[inputs]
q = "float[M, D]"
k = "float[N, D]"
v = "float[N, D]"
m = "float[M, N] = 2"
g = "float[N] = 1"
[compute]
s = "{}"
o = "{}"
y = "o + sum(m * g, N)"
[outputs]
y = "auto[M, D]"
[grad]
wrt = ["q", "m", "g", "v"]
"""


@pytest.mark.parametrize(
    ("scores", "result"),
    [
        ("sum(q * k, D)", "sum(softmax(s, N) * v, N)"),
        ("exp(sum(q * k, D) * 0.1)", "sum(s * v, N) / sum(s, N) + sum(m * v, N)"),
    ],
)
def test_sums_beside_a_stream(scores: str, result: str, tmp_path: Path) -> None:
    """Of nothing but what is left out: each is a block, past whose end there is nothing, and stored in some dtype."""
    written = Written(STREAMED.format(scores, result), tmp_path)
    lengths = {"M": 5, "N": 6, "D": 4}
    tensors = written.drawn(lengths)
    for absent in ((), ("m",), ("g",), ("m", "g")):
        written.compare(lengths, tensors | dict.fromkeys(absent))


MULTIPLIED = """[inputs]
x = "float[K, M]"
w = "float[X, N]"
a = "float[N, K] = 0.5"
[compute]
y = "sum(x * a, K) * 0.3"
o = "sum(softmax(y, N) * w, N)"
[outputs]
o = "auto[M, X]"
[grad]
wrt = ["x", "w", "a"]
"""
FIRST_OF_A_STREAM = """[inputs]
f = "float[F]"
b = "float[]"
q = "float[M=1, N=7] = 2"
w = "float[X=1, N=7, K=2] = 0.5"
a = "float[M=1, X=1] = 2"
[compute]
o = "sum(sum(q * w, N) * softmax(a, X), X)"
z = "where(f > 0, b, 0.5)"
[outputs]
o = "auto[(M K)]"
z = "auto[F]"
[grad]
wrt = ["b", "q", "w"]
"""


@pytest.mark.parametrize(
    ("text", "lengths"),
    [(MULTIPLIED, {"K": 3, "M": 2, "N": 4, "X": 5}), (FIRST_OF_A_STREAM, {"F": 3, "M": 1, "N": 7, "K": 2, "X": 1})],
)
def test_what_a_stream_multiplies(text: str, lengths: dict[str, int], tmp_path: Path) -> None:
    """The forward saves a matrix of what is left out, which is no gradient by that; a stream may begin with nothing."""
    written = Written(text, tmp_path)
    tensors = written.drawn(lengths)
    written.compare(lengths, tensors)
    written.compare(lengths, {**tensors, "a": None})


def test_an_operator_of_gathers_alone(tmp_path: Path) -> None:
    """None of its steps has a module of which emitted tests would ask how narrow its matrices are."""
    text = """[inputs]
q = "float[M, N=7]"
i = "int64[K]"
t = "bool[K]"
c = "float[M, K] = 2"
[compute]
o = "take(softmax(q, N), i, N)"
y = "o * c * cast(t, float64)"
[outputs]
y = "auto[K, M]"
[grad]
wrt = ["c"]
"""
    written = Written(text, tmp_path)
    lengths = {"M": 5, "N": 7, "K": 4}
    written.compare(lengths, written.drawn(lengths))


def test_what_a_gradient_adds_up_of_what_is_left_out(tmp_path: Path) -> None:
    """Rows that a step adds up at positions have neither the dtype of `q`, which is absent, nor that of positions."""
    text = """[inputs]
x = "float[M=3]"
at = "int64[N]"
out = "int64[M=3]"
q = "float[M=3] = 1"
[compute]
z = "take(q * x, at, M)"
y = "take(z - mean(z, N), out, N)"
[outputs]
y = "auto[M]"
[grad]
wrt = ["x", "q"]
"""
    written = Written(text, tmp_path)
    written.compare({"M": 3, "N": 4}, {**written.drawn({"M": 3, "N": 4}), "q": None})
