"""Sums over empty axes: 0, whatever their terms are multiplied by, though kernels multiply the sums instead.

Each axis is empty in turn. What torch makes of it, forward and backward, is the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.harness.importing import built
from tests.harness.oracles import compare
from tests.random.evaluated import LEADING, Evaluated
from tritongen.spec.read import read_spec

LENGTHS = {"B": 3, "C": 4, "S": 5, "M": 3, "N": 4, "K": 5, "P": 6, "D": 3, "V": 7, "G": 2}
# Inputs, lines, and the axes of the last line, which is the result.
CASES: dict[str, tuple[str, str, str]] = {
    "batch_norm": (
        "x:B, C, S; g:C; b:C",
        "m = mean(x, B, S)\nr = rsqrt(var(x, B, S, correction=0) + 1e-5)\ny = (x - m) * r * g + b",
        "B, C, S",
    ),
    "scales_of_a_group_norm": (
        "x:B, (G=2 C), S; g:(G=2 C); s:B, (G=2 C)",
        "m = mean(x, C, S)\nr = rsqrt(var(x, C, S, correction=0) + 1e-5)\ny = (x - m) * r * g * (1 + s)",
        "B, (G C), S",
    ),
    "batch_norm_of_rows": (
        "x:V, D; ids:int64[S]; g:D",
        "h = take(x, ids, V)\ny = (h - mean(h, S)) * rsqrt(var(h, S, correction=0) + 1e-2) * g",
        "S, D",
    ),
    "batch_norm_of_a_matmul": (
        "x:M, K; w:N, K; g:N",
        "h = sum(x * w, K)\ny = (h - mean(h, M)) * rsqrt(var(h, M, correction=0) + 1e-2) * g",
        "M, N",
    ),
    "layer_norm_of_a_matmul": (
        "x:M, K; w:N, K",
        "h = sum(x * w, K)\ny = (h - mean(h, N)) * rsqrt(var(h, N, correction=0) + 1e-2)",
        "M, N",
    ),
    "gates_of_rows": ("x:M, N; w:N; g:M", "y = tanh(x * w) * g", "M, N"),
    "matmul_of_rms_norm": ("x:M, K; w:N, K", "r = rsqrt(mean(x * x, K) + 1e-5)\ny = sum(x * r * w, K)", "M, N"),
    "cosines": ("x:M, K; w:N, K", "y = sum(x * w / (norm(x, K) * norm(w, K)), K)", "M, N"),
    "weight_norm": ("x:M, K; w:N, K; g:N", "y = sum(x * (g * w / norm(w, K)), K)", "M, N"),
    "scales_of_groups": (
        "x:M, (G=2 K); w:N, (G=2 K)",
        "s = rsqrt(mean(w * w, K) + 1e-5)\ny = sum(x * w * s, G, K)",
        "M, N",
    ),
    "one_side_first": ("x:M, K; w:K, N", "r = rsqrt(mean(w * w, N) + 1e-5)\ny = sum(x * w * r, K, N)", "M"),
    "a_matmul_first": (
        "x:M, K; w:N, K; u:N, P",
        "r = rsqrt(mean(x * x, K) + 1e-5)\ny = sum(x * w * u * r, K, N)",
        "M, P",
    ),
    "values_normed_along_keys": (
        "q:M, D; k:N, D; v:N, P",
        "s = sum(q * k, D)\nu = v * rsqrt(mean(v * v, N) + 1e-5)\ny = sum(sigmoid(s) * u, N)",
        "M, P",
    ),
    "weights_over_the_number_of_keys": (
        "q:M, D; k:N, D; v:N, P",
        "p = square(relu(sum(q * k, D) + index(M) - index(N))) / size(N)\ny = sum(p * v, N)",
        "M, P",
    ),
    "attention_to_values_normed_along_keys": (
        "q:M, D; k:N, D; v:N, P",
        "s = sum(q * k, D)\nu = v * rsqrt(mean(v * v, N) + 1e-5)\ny = sum(softmax(s, N) * u, N)",
        "M, P",
    ),
    "what_is_made_of_attention_of_normed_queries": (
        "q:M, D; k:N, D; v:N, P; b:P",
        "r = rsqrt(mean(q * q, D) + 1e-5)\ns = sum(q * r * k, D)\ny = tanh(sum(softmax(s, N) * v, N) + b)",
        "M, P",
    ),
    "log_softmax_of_a_matmul": (
        "q:M, D; k:N, D; v:N, P",
        "o = log_softmax(sum(q * k, D), N)\ny = sum(o * v, N)",
        "M, P",
    ),
    "log_softmax_over_more_than_is_summed": (
        "w:M, N; b:K; t:P, M",
        "y = sum(log_softmax(w * b, K, M) * t, M)",
        "N, K, P",
    ),
    "softmax_beside_a_logarithm_of_columns": (
        "x:M, N; v:N, P",
        "y = sum((softmax(x, N) + log(sum(square(x), M))) * v, N)",
        "M, P",
    ),
    "means_of_what_lacks_the_axis": ("x:M, N; b:M; w:N", "h = x * w + b\ny = mean(h, M, N)", ""),
    "mean_of_two_matmuls": (
        "x:M, K; w:N, K; c:P, N",
        "h = sum(x * w, K)\no = sum(h * c, N)\ny = mean(o, M, P)",
        "",
    ),
    "sum_of_a_matmul_of_normed_rows": (
        "x:M, K; w:N, K; u:N",
        "r = rsqrt(mean(x * x, K) + 1e-5)\nh = sum(x * w, K) * r\ny = sum(h * u, N)",
        "M",
    ),
    "divergence_of_rows": (
        "p:M, N; q:M, N",
        "lp = log_softmax(p, N)\nlq = log_softmax(q, N)\nm = logaddexp(lp, lq)\n"
        "loss = sum(exp(lp) * (lp - m), N)\ny = mean(loss, M)",
        "",
    ),
    "softmax_of_all": ("x:M, N", "y = softmax(x, M, N)", "M, N"),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tmp_path: Path) -> None:
    text = _text(*CASES[name])
    operator, evaluated = built(read_spec("empty.toml", text), tmp_path).empty, Evaluated(text)
    axes = [axis for axis in evaluated.axes if axis not in ("G", "V")]  # Groups have some, and rows are taken of some.
    for axis in axes:
        lengths = {**LENGTHS, axis: 0, **dict.fromkeys(LEADING, 1)}
        random = torch.Generator().manual_seed(0)
        given = [torch.randn(evaluated.shape(one, lengths), generator=random).double() for one in evaluated.inputs]
        for place, one in enumerate(evaluated.inputs):
            if one.dtype == "int64":
                given[place] = torch.randint(7, given[place].shape, generator=random)
        by = [place for place, one in enumerate(evaluated.inputs) if one.dtype != "int64"]

        def formula(*given: torch.Tensor, lengths: dict[str, int] = lengths) -> torch.Tensor:
            (found,) = evaluated(lengths, given, {})
            return found

        compare(operator, formula, given, by, 1e-9)


def test_largest_of_nothing_that_a_result_has(tmp_path: Path) -> None:
    """Is refused, but where all results are as empty."""
    text = _text("x:M, N; w:M", "y = w * max(x, M, N)", "M")
    operator = built(read_spec("empty.toml", text), tmp_path / "rows").empty
    with pytest.raises(ValueError, match="max has no value over an empty axis"):
        operator(torch.ones(3, 0), torch.ones(3))
    whole = built(read_spec("empty.toml", _text("x:M, N", "y = x / max(abs(x), M, N)", "M, N")), tmp_path).empty
    assert whole(torch.ones(3, 0)).shape == (3, 0)


def _text(inputs: str, compute: str, axes: str) -> str:
    pairs = [entry.split(":") for entry in inputs.split("; ")]
    types = "\n".join(f'{name} = "{axes if axes.startswith("int") else f"T[{axes}]"}"' for name, axes in pairs)
    lines = "\n".join('{} = "{}"'.format(*line.split(" = ", 1)) for line in compute.split("\n"))
    by = [name for name, axes in pairs if not axes.startswith("int")]
    head = '[op]\nname = "empty"\nsummary = "Sums."\n[types]\nT = "float"\n'
    return f'{head}[inputs]\n{types}\n[compute]\n{lines}\n[outputs]\ny = "auto[{axes}]"\n[grad]\nwrt = {by}\n'.replace(
        "'", '"'
    )


def test_tensors_without_elements_that_do_not_fold(tmp_path: Path) -> None:
    """Of which torch makes no contiguous ones, for to it they are."""
    head = '[op]\nname = "empty"\nsummary = "Sums."\n[types]\nT = "float"\n'
    text = f'{head}[inputs]\nx = "T[..., K, N, M]"\nz = "T[..., M, N]"\n[compute]\ny = "sum(x, K) + z"\n'
    operator = built(read_spec("empty.toml", f'{text}[outputs]\ny = "auto[..., M, N]"\n'), tmp_path).empty
    x, z = torch.empty(2, 1, 0, 5, 4).expand(2, 3, 0, 5, 4), torch.randn(2, 3, 4, 5)
    for one in (x, x.transpose(0, 1)):
        z = z.reshape(*one.shape[:2], 4, 5)
        assert torch.equal(operator(one, z), z)


@pytest.mark.parametrize(
    ("math", "formula"),
    [
        ("sum(x, M, N)", lambda x: x.sum((0, 1))),
        ("softmax(x, M, N)", lambda x: x.flatten().softmax(0)),
        ("mean(x, N) * 2", lambda x: x.mean(1) * 2),
        ("x / (1 + sum(x * x, M))", lambda x: (x / (1 + x.square().sum(0))).flatten()),
        ("sum(x, M)", lambda x: x.sum(0)),
    ],
)
def test_groups_without_elements(math: str, formula: Callable[[torch.Tensor], torch.Tensor], tmp_path: Path) -> None:
    """A dimension of several axes, of which one has a fixed length: it is empty, or has some rows of that."""
    text = f"""
        op.name = "grouped"
        inputs.x = "float[(M N=3)]"
        compute.y = "{math}"
        outputs.y = "auto"
        grad.wrt = ["x"]
    """
    grouped = built(read_spec("grouped.toml", text), tmp_path).grouped
    for length in (0, 2):
        given = [torch.randn(3 * length, dtype=torch.float64, generator=torch.Generator().manual_seed(0))]
        compare(grouped, lambda x: formula(x.unflatten(0, (-1, 3))), given, [0], 1e-8)
