"""Several results of a kernel, of which one reduces along other axes than another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.written import Written

# What is masked suits the maximum of rows, which are -inf past the last: no sum over them may take it.
MAXIMA = ("softmax(x, N)", "x - max(x, N)", "logsumexp(x, N) * x")
SUMS = ("sum(x + w, M)", "sum(x * w, M)", "sum(abs(x) + w, M)")


@pytest.mark.parametrize("p", MAXIMA)
@pytest.mark.parametrize("c", SUMS)
def test_a_maximum_of_rows_beside_a_sum_of_columns(p: str, c: str, tmp_path: Path) -> None:
    text = f"""[inputs]
x = "float[M, N]"
w = "float[N]"
[compute]
p = "{p}"
c = "{c}"
[outputs]
p = "auto[M, N]"
c = "auto[N]"
"""
    written = Written(text, tmp_path)
    written.compare({"M": 3, "N": 5}, written.drawn({"M": 3, "N": 5}))


# A result that lacks an axis is there where that is empty, whatever else its kernel computes.
EMPTY = {
    "a_map_beside_a_map": ("x:M, N; w:N; v:M", "t = exp(w)\no = exp(v)\ny = x * t * o", "t:N; o:M; y:M, N"),
    "maps_beside_a_matmul": (
        "a:M, K; k:K, N; w:N; v:M",
        "h = sum(a * k, K)\nt = exp(w)\no = exp(v)\ny = h * t * o",
        "t:N; o:M; y:M, N",
    ),
    "a_sum_beside_a_matmul": ("a:M, K; k:K, N", "h = sum(a * k, K)\nr = sum(h * h, N)", "h:M, N; r:M"),
    "a_mean_beside_what_is_compared_with_it": ("x:M, K=3; c:K=3", "y = maximum(x, mean(c, K))", "y:M, K"),
    "the_sum_of_all_beside_rows": ("x:M, N; w:N", "y = w * sum(x, M, N)", "y:N"),
}


@pytest.mark.parametrize("empty", "MNK")
@pytest.mark.parametrize("name", EMPTY)
def test_what_lacks_an_empty_axis_is_written(name: str, empty: str, tmp_path: Path) -> None:
    inputs, lines, outputs = EMPTY[name]
    named = [one.split(":") for one in inputs.split("; ")]
    if not any(empty in axes.split(", ") for _, axes in named):
        pytest.skip(f"no axis {empty} of any length")
    text = "[inputs]\n" + "".join(f'{one} = "float[{axes}]"\n' for one, axes in named)
    text += "[compute]\n" + "".join('{} = "{}"\n'.format(*line.split(" = ", 1)) for line in lines.splitlines())
    text += "[outputs]\n" + "".join('{} = "auto[{}]"\n'.format(*one.split(":")) for one in outputs.split("; "))
    text += f"[grad]\nwrt = [{', '.join(repr(one) for one, _ in named)}]\n"
    written = Written(text, tmp_path)
    lengths = {"M": 4, "N": 5, "K": 3} | {empty: 0}
    written.compare(lengths, written.drawn(lengths))


@pytest.mark.parametrize("on", [True, False])
def test_what_a_gradient_gathers_is_saved_wherever_it_does(on: bool, tmp_path: Path) -> None:
    """The gradient of a running product reads the one before at each position, whichever branch is taken."""
    text = """[inputs]
b = "float[M]"
w = "float[M]"
[params]
on = true
[compute]
z = "cumprod(1 + 0.1 * tanh(b), M)"
y = "z * w if on else z + 1"
[outputs]
y = "auto[M]"
[grad]
wrt = ["b", "w"]
"""
    written = Written(text, tmp_path)
    written.compare({"M": 5}, written.drawn({"M": 5}), {"on": on})
