"""`take` at positions outside of its axis: NaN, or 0 where the result is no float; nothing has a gradient there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.harness.written import Written

TEXT = """[inputs]
x = "float[N]"
s = "float[]"
k = "int64[N]"
b = "bool[N]"
i = "int64[M]"
[compute]
{lines}
[outputs]
{results}
[grad]
wrt = ["x", "s"]
"""
LINES = {
    "chosen": "take(where(x > 0, 1.0, 2.0) * s, i, N)",
    "compared": "take(x > 0, i, N)",
    "denied": "take(not b, i, N)",
    "counted": "take(k + 1, i, N)",
    "scaled": "take(x * s, i, N)",
    "rectified": "take(relu(x), i, N)",
    "bounded": "take(minimum(x, 1.0), i, N)",
    "positions": "take(index(N) * 2 + 1, i, N)",
    "widened": "take(cast(k, float64) * s, i, N)",
    "shifted": "take(x - max(x, N), i, N)",
    "normed": "take(softmax(x, N), i, N)",
    "logarithms": "take(log_softmax(x, N), i, N)",
    "exponents": "take(exp(x), i, N)",
}


def test_outside(tmp_path: Path) -> None:
    text = TEXT.format(
        lines="\n".join(f'{name} = "{line}"' for name, line in LINES.items()),
        results="\n".join(f'{name} = "auto[M]"' for name in LINES),
    )
    written = Written(text, tmp_path)
    lengths = {"N": 5, "M": 6}
    written.compare(lengths, written.drawn(lengths) | {"i": torch.tensor([0, 4, 5, -1, 3, -9])})


@pytest.mark.parametrize("line", ["argmax(x, {})", "argmin(x, {})", "argmax(k, {})", "argmin(x * s, {})"])
@pytest.mark.parametrize("axes", ["H, M", "M, H", "N, M, H", "M, N"])
def test_positions_of_extrema_along_axes_in_any_order(line: str, axes: str, tmp_path: Path) -> None:
    """As `index` of the same axes counts, of which the last is the fastest."""
    text = """[inputs]
x = "float[N, H, M]"
k = "int64[N, H, M]"
s = "float[]"
[compute]
p = "{p}"
{q}
[outputs]
p = "auto[{kept}]"
{out}
"""
    rest = [axis for axis in "NHM" if axis not in axes]
    p = line.format(axes)
    unread = [one for one in ("x", "k", "s") if one not in p.replace("max", "")]
    q = f'q = "sum(where(index({axes}) == p, x * k * s, 0.0), {axes})"' if unread else ""
    out = f'q = "auto[{", ".join(rest)}]"' if unread else ""
    written = Written(text.format(p=p, q=q, kept=", ".join(rest), out=out), tmp_path)
    lengths = {"N": 3, "H": 4, "M": 5}
    tensors = written.drawn(lengths)
    tensors["x"][0, 1, 2] = tensors["x"][0, 3, 0] = torch.nan
    tensors["s"] = torch.tensor(2.0, dtype=torch.float64)
    written.compare(lengths, tensors)


@pytest.mark.parametrize("line", ["x", "x * 2", "cumsum(x, K)", "k", "k > 0"])
@pytest.mark.parametrize("positions", [5, 0])
def test_a_take_of_a_take_is_nan_where_the_second_is_outside(line: str, positions: int, tmp_path: Path) -> None:
    """The positions that the first reads there are 0, which is the position of an element."""
    text = f"""[inputs]
x = "float[N, K]"
k = "int64[N, K]"
i = "int64[I]"
j = "int64[J]"
s = "float[]"
[compute]
line = "{line}"
first = "take(line, i, N)"
y = "take(first, j, I)"
z = "x * s"
[outputs]
y = "auto[J, K]"
z = "auto[N, K]"
[grad]
wrt = ["x"]
"""
    read = [name for name in ("x", "k") if name in line] + ["x"]
    entries = [entry for entry in text.split("\n") if not entry.startswith("k =") or "k" in read]
    written = Written("\n".join(entries), tmp_path)
    lengths = {"N": 3, "K": 4, "I": positions, "J": 6}
    tensors = written.drawn(lengths) | {"j": torch.tensor([0, 4, 5, -1, 3, -9])}
    written.compare(lengths, tensors, finite=True)


@pytest.mark.parametrize("at", ["i", "clamp(i, 0, size(M) - 1)", "i * 2", "i + index(N)", "i + index(K)"])
@pytest.mark.parametrize("n", [3, 8])
def test_positions_that_a_block_of_columns_has_one_of(at: str, n: int, tmp_path: Path) -> None:
    """A sum over both axes reads a position once where a block lies in a row, and then one element."""
    inputs = '[inputs]\nt = "float[M]"\ni = "int64[N]"\nx = "float[K]"\n'
    compute = f'[compute]\ny = "mean(where(x > 0, take(t * 2 + 1, {at}, M), 0.5), N, K)"\n[outputs]\ny = "auto[]"\n'
    written = Written(inputs + compute, tmp_path)
    lengths = {"M": 13, "N": n, "K": 8}
    written.compare(lengths, written.drawn(lengths))


@pytest.mark.parametrize("scale", ["mean(b * b, N, M)", "max(b * b, N, M)", "mean(b, N)", "var(b, N, correction=0)"])
@pytest.mark.parametrize("line", ["take(b * rsqrt({} + 1) * t, w, N)", "where(w + t > 9, t * rsqrt({} + 1), 0.0)"])
def test_factors_that_empty_means_make_undefined(scale: str, line: str, tmp_path: Path) -> None:
    """What a `take` or `where` does not choose has a gradient of 0, also where a factor is the mean of nothing."""
    inputs = '[inputs]\nb = "float[N, M]"\nw = "int64[]"\nt = "float[M]"\n'
    compute = f'[compute]\nz = "{line.format(scale)}"\n[outputs]\nz = "auto[M]"\n[grad]\nwrt = ["t"]\n'
    written = Written(inputs + compute, tmp_path)
    for lengths in ({"N": 3, "M": 4}, {"N": 0, "M": 4}):
        tensors = written.drawn(lengths)
        if written.has_results(lengths, tensors, {}):
            written.compare(lengths, tensors, finite=True)
