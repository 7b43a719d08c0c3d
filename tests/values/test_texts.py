"""The smallest texts of specs of which random ones have found that they do not build, crash, or give wrong values."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.written import Written

TAKEN_BESIDE_A_GROUP = """[inputs]
b = "float[M, N]"
w = "float[(X K=7)]"
i = "int64[F]"
[compute]
s = "take(b * w, i, N)"
c = "cumsum(s, X)"
[outputs]
s = "auto[F, M, K, X]"
c = "auto[F, M, (X K)]"
[grad]
wrt = ["b", "w"]
"""
GROUPED_SCORES = """[inputs]
q = "float[F, X]"
k = "float[X, M]"
v = "float[M, D]"
[compute]
s = "sum(q * k, X)"
o = "sum({weights} * v, M)"
[outputs]
s = "auto[({group})]"
o = "auto[D, F]"
[grad]
wrt = ["q", "k", "v"]
"""
TWO_ATTENTIONS = """[inputs]
q = "float[M, F, K]"
k = "float[F, K, N]"
v = "float[F, X, N]"
w = "float[D, X]"
t = "float[D, H, E]"
x = "float[X, E, H]"
[compute]
o = "sum(softmax(sum(q * k, K), N) * v, N)"
s = "sum(sum(w * t, D) * softmax(x, H), H)"
y = "softmax(s, X)"
z = "var(s, {over}, correction=0)"
[outputs]
o = "auto[F, M, X]"
y = "auto[E, X]"
z = "auto{shape}"
[grad]
wrt = ["q", "w", "t", "x"]
"""
EMPTY_SOFTMAXES = {
    "taken": """[inputs]
x = "float[N, K]"
i = "int64[I]"
[compute]
y = "take(softmax(x, N), i, N)"
[outputs]
y = "auto[I, K]"
""",
    "taken of what is taken": """[inputs]
x = "float[K]"
i = "int64[I]"
j = "int64[N]"
[compute]
y = "take(softmax(take(x, j, K), N), i, N)"
[outputs]
y = "auto[I]"
""",
    "part of a larger one": """[inputs]
w = "float[M, I]"
x = "float[N, K, I]"
b = "float[M, K]"
[compute]
h = "sum(sum(w * x, I) * softmax(b, K), K)"
s = "logsumexp(h, N, M)"
y = "softmax(h, N)"
[outputs]
s = "auto[]"
y = "auto[N, M]"
[grad]
wrt = ["w", "x"]
""",
    "beside a sum": """[inputs]
x = "float[N, K]"
w = "float[N, M]"
[compute]
h = "sum(x * w, M)"
s = "sum(h, N)"
y = "softmax(h, N, K)"
[outputs]
s = "auto[K]"
y = "auto[N, K]"
""",
}


MIXTURE_SUMMED = """[inputs]
w = "float[M, N]"
v = "float[K, N, X]"
t = "float[K, M, X]"
[compute]
h = "sum(w * v, N)"
s = "sum(h * softmax(t, X), X)"
z = "sum(s, K)"
[outputs]
z = "auto[M]"
[grad]
wrt = ["w", "v", "t"]
"""
MIXTURE_IN_TWO_LAYOUTS = """[inputs]
w = "float[N, M]"
v = "float[N, X, K=17]"
t = "float[M, X]"
[compute]
h = "sum(sum(w * v, N) * softmax(t, X), X)"
z = "h * 0.5"
[outputs]
h = "auto[K, M]"
z = "auto[(M K)]"
[grad]
wrt = ["w", "v"]
"""
CHOSEN_BEFORE_SUMS = """[inputs]
x = "float[F, D]"
b = "float[F, D]"
t = "float[E]"
[params]
on = true
[compute]
s = "t + (x * b if on else x + 1)"
[outputs]
s = "auto[D, F, E]"
[grad]
wrt = ["x", "b", "t"]
"""
PERHAPS_ABSENT = """[inputs]
y = "float[]"
w = "float[K, M]"
x = "float[K] = 0"
[compute]
z = "erf(minimum(y, x))"
s = "sum(w, M)"
q = "softmax(w, K) * z"
[outputs]
z = "auto[K]"
s = "auto[K]"
q = "auto[K, M]"
"""


DELTA = """[inputs]
w = "float[N, M]"
i = "int64[K]"
q = "float[X, E, D]"
k = "float[D, F]"
v = "float[E, N, F]"
[compute]
y = "take(softmax(w, N), i, N)"
h = "sum(softmax(sum(q * k, D), F) * v, F)"
delta = "cumprod(1 + 0.1 * tanh(y), K)"
[outputs]
h = "auto[N, X, E]"
delta = "auto[M, K]"
[grad]
wrt = ["w", "q", "k", "v"]
"""


TAKEN_OF_A_SUM = """[inputs]
x = "float[M, N]"
w = "float[X, K]"
i = "int64[H]"
[compute]
s = "x + w"
y = "take(s, i, N)"
[outputs]
y = "auto[K, (M X), H]"
[grad]
wrt = ["x", "w"]
"""

PART_BY_WHAT_IS_LEFT_OUT = """[inputs]
q = "float[M, D]"
k = "float[N, D]"
v = "float[N, D]"
b = "float[D] = 1"
[compute]
s = "q * rsqrt(mean(q * q, D) + 1) * b"
o = "sum(softmax(sum(s * k, D), N) * v, N)"
y = "o * b"
[outputs]
y = "auto[M, D]"
[grad]
wrt = ["q", "b"]
"""
GRADIENT_ALIKE_FOR_ALL_ROWS = """[inputs]
a = "float[M, N]"
b = "float[N, K, X]"
t = "float[M, X]"
w = "float[K, F]"
[compute]
z = "sum(sum(a * b, N) * softmax(t, X), X)"
y = "sum(sum(z, M) * w, K)"
[outputs]
y = "auto[F]"
[grad]
wrt = ["t"]
"""
READ_ONCE = {  # texts whose kernels and steps are given no more than they read, and compute no more
    "exponentials that are summed in an earlier walk": """[inputs]
x = "float[M, N]"
i = "int64[N]"
[compute]
y = "mean(take(softmax(x, N), i, N), N)"
[outputs]
y = "auto[M]"
[grad]
wrt = ["x"]
""",
    "exponentials that only their sum reads": """[inputs]
x = "float[M, N]"
i = "int64[F]"
[compute]
y = "tanh(x)"
o = "take(softmax(y, N), i, N)"
[outputs]
y = "x"
o = "auto[M, F]"
""",
    "two shapes of which one has all lengths": """[inputs]
x = "float[N, M]"
table = "float[N, D]"
i = "int64[F]"
[compute]
y = "2 * x"
h = "take(table, i, N)"
[outputs]
y = "x"
h = "auto[(F D)]"
[grad]
wrt = ["x", "table"]
""",
}
TWO_STREAMS = """[inputs]
q = "float[M, K]"
k = "float[N, K]"
v = "float[N, X]"
r = "float[F, P]"
t = "float[P, D]"
w = "float[D, E]"
[compute]
y = "relu(sum(softmax(sum(q * k, K), N) * v, N))"
z = "sum(softmax(sum(r * t, P), D) * w, D)"
[outputs]
y = "auto[M, X]"
z = "auto[F, E]"
[grad]
wrt = {wrt}
"""
DTYPE_OF_A_PART = """[inputs]
w = "float[M]"
x = "float[N=2, K]"
x1 = "float[M, X=16]"
b = "float[P, B]"
grid = "float[R, P, Q]"
dy = "float[B, R]"
[compute]
z = "sum(take(w, index(M) + index(N), M) * x, N)"
y = "sum(z * x1, M)"
o = "sum(b * grid, P)"
o1 = "sum(o * softmax(dy, R), R)"
[outputs]
y = "auto[K, X]"
o1 = "auto[Q, B]"
[grad]
wrt = ["w", "x", "x1", "dy"]
"""
STREAMED_AGAIN = """[inputs]
x = "float[N=2, M]"
t = "float[X=2, K, N=2]"
c = "float[M, X=2]"
w = "float[F, D]"
[compute]
y = "sum(x * t, N)"
h = "sum(y * softmax(c, X), X)"
s = "h * w"
[outputs]
h = "auto[M, K]"
s = "auto[F, M, (K D)]"
[grad]
wrt = ["x", "t", "c", "w"]
"""
TAKEN_IN_A_WINDOW = """[inputs]
x = "float[M, N]"
b = "float[K=4, N]"
tile = "float[]"
[compute]
z = "maximum(x * rsqrt(mean(square(x), N, M) + 0.1), tile)"
at = "index(M) + index(K) - 1"
y = "sum(where(at >= 0 and at < size(M), take(z, at, M), 0.0) * b, K, N)"
[outputs]
y = "auto[M]"
[grad]
wrt = ["x", "b", "tile"]
"""
TAKEN_OF_NOTHING = """[inputs]
t = "float[M, N]"
i = "int64[K]"
b = "float[K, M]"
[compute]
y = "sum(take(t, i, M) * b, M, N)"
[outputs]
y = "auto[K]"
[grad]
wrt = ["t", "b"]
"""


def test_a_length_that_only_a_condition_reads(tmp_path: Path) -> None:
    """Rows are reduced by a function of their own, which does not read the tensor that has this length."""
    for place, text in enumerate((TAKEN_BESIDE_A_GROUP, TAKEN_OF_A_SUM)):
        written = Written(text, tmp_path / str(place))
        lengths = {"M": 2, "N": 3, "X": 3, "F": 2, "K": 5, "H": 4}
        written.compare(lengths, written.drawn(lengths))


@pytest.mark.parametrize("weights", ["softmax(s, M)", "tanh(s)"])
@pytest.mark.parametrize("group", ["M F", "F M"])
def test_groups_of_results_without_elements(group: str, weights: str, tmp_path: Path) -> None:
    """Steps of a gradient know both lengths of the group, of which one is 0."""
    written = Written(GROUPED_SCORES.format(group=group, weights=weights), tmp_path)
    for lengths in (
        {"F": 3, "M": 0, "D": 2, "X": 2},
        {"F": 0, "M": 3, "D": 2, "X": 2},
        {"F": 3, "M": 2, "D": 2, "X": 2},
    ):
        written.compare(lengths, written.drawn(lengths))


@pytest.mark.parametrize(("over", "shape"), [("E, X", "[]"), ("E", "[X]")])
def test_what_two_steps_of_a_gradient_read_has_one_layout(over: str, shape: str, tmp_path: Path) -> None:
    """The mean of an attention that others read is stored in the order of its results, not of its own rows."""
    written = Written(TWO_ATTENTIONS.format(over=over, shape=shape), tmp_path)
    lengths = {"M": 3, "N": 5, "K": 8, "X": 2, "F": 2, "D": 7, "E": 6, "H": 4}
    written.compare(lengths, written.drawn(lengths))


@pytest.mark.parametrize("wrt", [["q", "k"], ["v"], ["r"], ["w"]])
def test_two_streams_of_which_one_has_gradients(wrt: list[str], tmp_path: Path) -> None:
    written = Written(TWO_STREAMS.format(wrt=wrt), tmp_path)
    lengths = {"M": 3, "N": 5, "K": 8, "X": 2, "F": 2, "D": 7, "E": 1, "P": 4}
    written.compare(lengths, written.drawn(lengths))


def test_a_step_whose_dtype_only_a_part_of_the_gradient_has(tmp_path: Path) -> None:
    """The dtype of w is that of z, a result of that part alone: `torch.w`."""
    written = Written(DTYPE_OF_A_PART, tmp_path)
    lengths = {"M": 3, "N": 2, "K": 4, "X": 16, "B": 5, "P": 1, "Q": 3, "R": 4}
    written.compare(lengths, written.drawn(lengths), finite=True)


def test_a_result_that_a_later_stream_computes_again(tmp_path: Path) -> None:
    """What comes by it is added to what comes by the stream, which does not read it."""
    written = Written(STREAMED_AGAIN, tmp_path)
    lengths = {"N": 2, "M": 4, "X": 2, "K": 3, "F": 2, "D": 5}
    written.compare(lengths, written.drawn(lengths))


def test_what_is_taken_outside_is_no_factor_of_a_gradient(tmp_path: Path) -> None:
    """It is NaN, of which 0 times makes NaN."""
    written = Written(TAKEN_IN_A_WINDOW, tmp_path)
    lengths = {"M": 5, "N": 3, "K": 4}
    written.compare(lengths, written.drawn(lengths))


def test_what_is_taken_of_nothing_does_not_make_an_empty_sum_nan(tmp_path: Path) -> None:
    written = Written(TAKEN_OF_NOTHING, tmp_path)
    lengths = {"M": 0, "N": 2, "K": 3}
    written.compare(lengths, written.drawn(lengths))


@pytest.mark.parametrize("kind", EMPTY_SOFTMAXES)
def test_a_softmax_over_nothing_has_a_value(kind: str, tmp_path: Path) -> None:
    """Its maximum is no result: what is taken of it is NaN, and a sum beside it 0."""
    written = Written(EMPTY_SOFTMAXES[kind], tmp_path)
    lengths = {"N": 0, "K": 3, "M": 2, "I": 4}
    written.compare(lengths, written.drawn(lengths))


def test_a_sum_of_mixtures(tmp_path: Path) -> None:
    """The step behind them stores delta, a value for each row, as those who read it have their rows."""
    written = Written(MIXTURE_SUMMED, tmp_path)
    lengths = {"M": 4, "N": 7, "K": 3, "X": 3}
    written.compare(lengths, written.drawn(lengths))


def test_results_of_other_numbers_of_dimensions(tmp_path: Path) -> None:
    """Its emitted tests hide rows along a dimension that all results have in the same place, if there is one."""
    written = Written(MIXTURE_IN_TWO_LAYOUTS, tmp_path)
    lengths = {"M": 5, "N": 5, "X": 4}
    written.compare(lengths, written.drawn(lengths))


@pytest.mark.parametrize("on", [True, False])
def test_a_choice_that_one_of_two_kernels_makes(on: bool, tmp_path: Path) -> None:
    """Rows that fit into registers are chosen and summed by a kernel that knows the choice; tiles are given sums."""
    written = Written(CHOSEN_BEFORE_SUMS, tmp_path)
    for columns in (3, 3000):
        lengths = {"F": 3, "D": 4, "E": columns}
        written.compare(lengths, written.drawn(lengths), {"on": on})


def test_a_step_whose_only_dtype_is_that_of_what_is_left_out(tmp_path: Path) -> None:
    written = Written(PERHAPS_ABSENT, tmp_path)
    lengths = {"K": 3, "M": 4}
    tensors = written.drawn(lengths)
    written.compare(lengths, tensors)
    written.compare(lengths, {**tensors, "x": None})


def test_steps_called_after_a_name_of_ours_and_one_of_the_spec(tmp_path: Path) -> None:
    """A step of the backward computes delta, and another one the spec's: each has kernels of its own."""
    written = Written(DELTA, tmp_path)
    lengths = {"N": 3, "M": 4, "K": 5, "X": 2, "E": 3, "D": 4, "F": 5}
    tensors = written.drawn(lengths)
    written.compare(lengths, tensors)


@pytest.mark.parametrize("registered", ["", '[torch]\nregister = "custom_op"\nnamespace = "parts"\n'])
def test_part_of_a_gradient_by_what_is_left_out(registered: str, tmp_path: Path) -> None:
    """A step behind an attention has a part of db, to which one before it adds; without b, that still computes dq."""
    written = Written(PART_BY_WHAT_IS_LEFT_OUT + registered, tmp_path)
    lengths = {"M": 5, "N": 8, "D": 4}
    tensors = written.drawn(lengths)
    written.compare(lengths, tensors)
    written.compare(lengths, {**tensors, "b": None})


def test_a_side_of_a_matmul_whose_columns_are_left_out(tmp_path: Path) -> None:
    text = """[inputs]
w = "float[M]"
q = "float[M, K]"
c = "float[N]"
b = "float[N] = 0"
[compute]
y = "w / (1 + square(b))"
h = "sum(y * q, M) - c"
[outputs]
h = "auto[K, N]"
"""
    written = Written(text, tmp_path)
    tensors = written.drawn({"M": 8, "N": 2, "K": 5})
    written.compare({"M": 8, "N": 2, "K": 5}, {**tensors, "b": None})


def test_a_position_in_an_unrolled_window_beside_wide_lengths(tmp_path: Path) -> None:
    text = """[inputs]
i = "int64[N, M]"
x = "float[K=7, N]"
[compute]
y = "sum(where(index(K, N) == i, x, 0.25), K)"
[outputs]
y = "auto[N, M]"
"""
    written = Written(text, tmp_path)
    lengths = {"M": 4, "N": 3, "K": 7}
    written.compare(lengths, written.drawn(lengths))


def test_a_gradient_that_all_rows_have(tmp_path: Path) -> None:
    """The gradient of a mean does not vary along its rows: steps read what is stored of it, or all of the result."""
    written = Written(GRADIENT_ALIKE_FOR_ALL_ROWS, tmp_path)
    lengths = {"M": 5, "N": 7, "K": 4, "X": 3, "F": 2}
    written.compare(lengths, written.drawn(lengths))


@pytest.mark.parametrize("line", ["softmax(x * w, M, N)", "x * sum(x * w, M, N)", "x * w"])
def test_a_single_row(line: str, tmp_path: Path) -> None:
    """Kernels of one row do not take the number of rows: the host knows it, and that of columns."""
    head = '[inputs]\nx = "float[M, N]"\nw = "float[]"\n[compute]\ny = "{}"\n'
    text = head + '[outputs]\ny = "x"\n[grad]\nwrt = ["x", "w"]\n'
    written = Written(text.format(line), tmp_path)
    for lengths in ({"M": 3, "N": 5}, {"M": 2, "N": 3000}, {"M": 0, "N": 5}):
        written.compare(lengths, written.drawn(lengths))


@pytest.mark.parametrize("text", READ_ONCE)
def test_no_name_that_nothing_reads(text: str, tmp_path: Path) -> None:
    """Building fails where a function has a variable or an argument that it does not read."""
    written = Written(READ_ONCE[text], tmp_path)
    lengths = {"M": 3, "N": 5, "F": 4, "D": 2}
    written.compare(lengths, written.drawn(lengths))


def test_a_gradient_summed_over_axes_before_a_batch(tmp_path: Path) -> None:
    """Each group of a grouped convolution has a matrix, and the gradient of the weight sums those of B."""
    text = """[types]
T = "float"
[inputs]
x = "T[B, G, C, P]"
w = "T[G, D, C]"
[compute]
y = "sum(x * w, C)"
[outputs]
y = "x[B, G, D, P]"
[grad]
wrt = ["x", "w"]
"""
    written = Written(text, tmp_path)
    lengths = {"B": 3, "G": 2, "C": 3, "D": 4, "P": 5}
    written.compare(lengths, written.drawn(lengths))


@pytest.mark.parametrize("over", ["M, K", "K, M"])
def test_a_largest_element_of_columns_in_another_order(over: str, tmp_path: Path) -> None:
    """Its position counts in the order of the line, also where sums over rows go along columns in theirs."""
    text = f"""[inputs]
x = "float[N, M, K]"
t = "float[K, M]"
[compute]
h = "argmax(x, {over})"
y = "2 * x"
o = "where(index({over}) == h, t, 0.25)"
[outputs]
y = "auto[M, N, K]"
o = "auto[N, K, M]"
[grad]
wrt = ["x", "t"]
"""
    written = Written(text, tmp_path)
    for lengths in ({"M": 5, "N": 16, "K": 7}, {"M": 50, "N": 3, "K": 70}):
        written.compare(lengths, written.drawn(lengths))


def test_a_step_whose_results_are_chosen_reads_what_is_saved(tmp_path: Path) -> None:
    """It runs whatever the params are, since its results tell the last step lengths."""
    text = """[inputs]
b = "float[M, N=1]"
q = "float[]"
w = "int64[K]"
[params]
on = true
[compute]
o = "b * q if on else b + 1"
y = "take(softmax(o, N), w, N)"
[outputs]
o = "auto[M, N]"
y = "auto[M, K]"
[grad]
wrt = ["q"]
"""
    written = Written(text, tmp_path)
    lengths = {"M": 17, "N": 1, "K": 2}
    for on in (True, False):
        written.compare(lengths, written.drawn(lengths), {"on": on})


def test_steps_in_a_step_of_a_gradient_store_in_dtypes_of_what_it_does_not_read(tmp_path: Path) -> None:
    """The running product is computed again of z, whose dtype is promoted of inputs that the gradient of z lacks."""
    text = """[inputs]
x = "float[M, K]"
t = "float[N, K]"
w = "float[N, X]"
b = "float[M]"
[compute]
z = "sum(softmax(sum(x * t, K), N) * w, N)"
y = "cumprod(z, M)"
s = "y * sum(y, X, M) * b"
[outputs]
s = "auto[M, X]"
[grad]
wrt = ["x", "t", "w", "b"]
"""
    written = Written(text, tmp_path)
    lengths = {"M": 5, "N": 6, "K": 3, "X": 4}
    written.compare(lengths, written.drawn(lengths))


def test_what_is_taken_of_a_softmax_is_taken_of_its_statistics_along_their_own_axes(tmp_path: Path) -> None:
    text = """[inputs]
tile = "float[N, M=33]"
w = "int64[K]"
batch = "int64[X]"
[compute]
y = "logsumexp(tile, M)"
z = "mean(tile, M, N)"
z1 = "softmax(tile, M)"
op = "take(softmax(z1, N), w, N)"
z2 = "take(op, batch, M)"
[outputs]
y = "auto[N]"
z = "auto[]"
z2 = "auto[(X K)]"
[grad]
wrt = ["tile"]
"""
    written = Written(text, tmp_path)
    lengths = {"M": 33, "N": 16, "K": 8, "X": 5}
    written.compare(lengths, written.drawn(lengths))


def test_a_gradient_of_a_group_that_is_one_value_along_columns(tmp_path: Path) -> None:
    """It fills the memory of the group, which is no view of a vector."""
    text = """[inputs]
q = "float[(M N=8)]"
w = "float[N=8, K]"
[compute]
o = "sum(q, N)"
s = "q - mean(q, M, N)"
t = "where(s > 0, o, 0.5)"
y = "sum(t * w, N)"
[outputs]
y = "auto[M, K]"
[grad]
wrt = ["q", "w"]
"""
    written = Written(text, tmp_path)
    lengths = {"M": 5, "N": 8, "K": 3}
    written.compare(lengths, written.drawn(lengths))


def test_no_result_is_written_over_what_a_choice_leaves_out(tmp_path: Path) -> None:
    """The gradient by x reads one of two sums by positions, of which the other was not computed."""
    text = """[inputs]
x = "float[K, N=4, M]"
b = "int64[X]"
c = "float[] = 1"
[params]
on = true
[compute]
h = "x * c if on else x + 1"
h1 = "where((b >= 0) & (b < size(N)), take(softmax(h, N), b, N), 0.5)"
[outputs]
h1 = "auto[K, M, X]"
[grad]
wrt = ["x", "c"]
"""
    written = Written(text, tmp_path)
    lengths = {"K": 3, "N": 4, "M": 5, "X": 2}
    for on in (True, False):
        written.compare(lengths, written.drawn(lengths), {"on": on})


def test_a_sum_of_scores_beside_their_softmax(tmp_path: Path) -> None:
    """Each has padding of its own past the end: 0 in the sum, none of the largest."""
    text = """[inputs]
q = "float[M, D]"
k = "float[N, D]"
v = "float[N, E]"
[compute]
s = "where(index(N) <= index(M), sum(q * k, D), -inf)"
y = "sum(softmax(s, N) * v, N)"
z = "mean(s, N)"
t = "sum(q * k, D)"
o = "sum(t * v, N)"
p = "sum(softmax(t, N) * v, N)"
[outputs]
y = "auto[M, E]"
z = "auto[M]"
o = "auto[M, E]"
p = "auto[M, E]"
[grad]
wrt = ["q", "k", "v"]
"""
    written = Written(text, tmp_path)
    lengths = {"M": 16, "N": 9, "D": 3, "E": 5}
    written.compare(lengths, written.drawn(lengths), finite=True)


def test_a_softmax_taken_of_a_choice_whose_statistics_only_one_side_needs(tmp_path: Path) -> None:
    """The kernel in registers computes what is saved on one path only, and the loop along rows on all."""
    written = Written(
        """[inputs]
x = "float[(M=2 N=4)]"
b = "float[N=4]"
i = "int64[K]"
[params]
on = true
[compute]
m = "mean(x, M)"
z = "m * b if on else m + 1"
y = "take(softmax(z, N), i, N)"
[outputs]
y = "auto[K]"
[grad]
wrt = ["b"]
""",
        tmp_path,
    )
    tensors = written.drawn({"K": 5})
    for on in (True, False):
        written.compare({"K": 5}, tensors, {"on": on})


def test_no_step_stores_what_nothing_reads_beside_booleans(tmp_path: Path) -> None:
    """A lower bound of a step's time counts booleans as the step does, so that no cheaper cut is ruled out."""
    written = Written(
        """[inputs]
x = "float[M=1, N]"
t = "float[N]"
w = "float[(K M=1)]"
q = "float[(K M=1)]"
b = "bool[N, K]"
[compute]
z = "where(index(N) == argmin(x, N), t, 0.25)"
s = "sum(z * w, M)"
total = "sum(relu(q), M, K)"
y = "where(total > 2, q / relu(total - 2), 0.0)"
h = "where(b, s, 0.0)"
[outputs]
s = "auto[N, K]"
y = "auto[M, K]"
h = "auto[K, N]"
[grad]
wrt = ["t", "q"]
""",
        tmp_path,
    )
    lengths = {"N": 4, "K": 16}
    written.compare(lengths, written.drawn(lengths))


def test_a_group_of_a_result_that_the_gradient_after_another_stream_reads(tmp_path: Path) -> None:
    """The caller's tensor has one dimension for the group, and is what autograd saves."""
    written = Written(
        """[inputs]
b = "float[(F M=1), K]"
x = "float[N, K, F]"
w = "float[F, N, X]"
x1 = "float[D, E]"
c = "float[B, H]"
h = "float[B, M=1, E]"
g = "float[M=1, E, H]"
[compute]
z = "sum(softmax(sum(b * x, K) * 0.3, N) * w, N)"
y = "(z / (1 + square(x1)))"
o = "sum(sum(c * h, B) * softmax(g, M), M)"
[outputs]
z = "auto[X, (F M)]"
y = "auto[E, X, F, D, M]"
o = "auto[H, E]"
[grad]
wrt = ["x1", "h"]
""",
        tmp_path,
    )
    lengths = {"N": 7, "K": 16, "X": 3, "F": 2, "D": 17, "E": 3, "H": 3, "B": 1}
    written.compare(lengths, written.drawn(lengths))


def test_a_gradient_of_an_attention_over_a_single_key(tmp_path: Path) -> None:
    """The steps of the gradient by an epilogue may need no names at all."""
    written = Written(
        """[inputs]
x = "float[N, M]"
t = "float[X, K, N]"
start = "float[X, M]"
b = "float[(M K=3)]"
[compute]
o = "sum(sum(x * t, N) * softmax(start, X), X)"
z = "o * b"
s = "exp(-square(z))"
[outputs]
o = "auto[K, M]"
z = "auto[K, M]"
s = "auto[K, M]"
[grad]
wrt = ["b"]
""",
        tmp_path,
    )
    lengths = {"N": 5, "M": 16, "X": 1}
    written.compare(lengths, written.drawn(lengths))


def test_a_result_of_an_earlier_stream_whose_largest_position_is_read(tmp_path: Path) -> None:
    """Nothing flows back through the position, only from the caller."""
    written = Written(
        """[inputs]
w = "float[D=2, H]"
q = "float[E, H]"
cols = "float[E, B]"
t = "float[D=2]"
x = "float[K, M]"
k = "float[N, K]"
v = "float[N, X]"
[compute]
o = "sum(softmax(sum(x * k, K) * 0.3, N) * v, N)"
o1 = "sum(softmax(sum(w * q, H) * 0.3, E) * cols, E)"
y = "where(index(D) == argmin(o1, D), t, 0.25)"
[outputs]
o = "auto[M, X]"
o1 = "auto[D, B]"
y = "auto[D, B]"
[grad]
wrt = ["x", "w"]
""",
        tmp_path,
    )
    lengths = {"N": 4, "M": 4, "K": 17, "X": 3, "D": 2, "E": 5, "H": 4, "B": 16}
    written.compare(lengths, written.drawn(lengths))


def test_what_is_taken_of_a_choice_beside_an_attention_over_few_rows(tmp_path: Path) -> None:
    """The mask of the rows is read by the result that is no mean."""
    written = Written(
        """[inputs]
b = "float[M]"
on = "bool[]"
i = "int64[N=4]"
q = "float[N=4, X=3]"
k = "float[X=3, K=3]"
v = "float[F, K=3]"
[compute]
h = "take(where(on, b, 0.0) * 2 + 1, i, M)"
s = "where(index(K) <= index(N), sum(q * k, X) * 0.3, -inf)"
o = "sum(softmax(s, K) * v, K)"
[outputs]
h = "auto[N]"
o = "auto[N, F]"
[grad]
wrt = ["q", "k", "v"]
""",
        tmp_path,
    )
    lengths = {"M": 3, "N": 4, "X": 3, "K": 3, "F": 5}
    written.compare(lengths, written.drawn(lengths))


def test_a_group_of_a_result_that_is_saved_unrounded_beside_another_attention(tmp_path: Path) -> None:
    """The copy for the backward has a dimension for each axis of the group."""
    written = Written(
        """[inputs]
a = "float[M, N]"
b = "float[N, X=2, K]"
t = "float[M, X=2]"
q = "float[F, E=2]"
k = "float[D, E=2]"
v = "float[X=2, D]"
[compute]
o = "sum(sum(a * b, N) * softmax(t, X), X)"
s = "sum(softmax(sum(q * k, E) * 0.3, D) * v, D)"
[outputs]
o = "auto[(K M)]"
s = "auto[F, X]"
[grad]
wrt = ["a", "b", "t", "q", "k", "v"]
""",
        tmp_path,
    )
    lengths = {"M": 16, "N": 16, "K": 5, "F": 33, "D": 17}
    written.compare(lengths, written.drawn(lengths))


def test_batches_of_a_stream_that_do_not_fold(tmp_path: Path) -> None:
    """Copies of tensors that lack axes between others do not fold either, so that kernels have a dimension for each."""
    written = Written(
        """[inputs]
w = "float[M, K, N]"
x = "int64[X]"
x1 = "float[(D F=2), E]"
dh = "float[D, B, M, X, H=1]"
splits = "float[P=2, E, K, M]"
w1 = "float[D, P=2, X]"
h_mean = "float[M, F=2, P=2, K, X, D]"
[compute]
h = "where((x >= 0) & (x < size(N)), take(w, x, N), 0.5)"
o = "where(h > 0, x1, 0.5)"
at = "index(E) - index(H)"
z = "sum(where((at >= 0) & (at < size(E)), take(o, at, E), 0.0) * dh, H)"
y = "relu(z)"
s = "where(y > 0, 1 / y, 0.0)"
y1 = "sum(s * splits, E)"
y2 = "w1 + h_mean"
o1 = "y2 / (1 + square(y1))"
[outputs]
h = "auto[X, K, M]"
y2 = "auto[M, X, F, P, K, D]"
o1 = "auto[F, D, X, K, P, M, B]"
[grad]
wrt = ["x1", "dh", "splits", "w1", "h_mean"]
""",
        tmp_path,
    )
    lengths = {"M": 16, "N": 2, "K": 1, "X": 4, "D": 5, "E": 4, "B": 1}
    written.compare(lengths, written.drawn(lengths), finite=True)
