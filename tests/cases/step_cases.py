"""Specs that no single kernel computes, each with its formula in torch."""

from __future__ import annotations

from tests.cases import step_matmuls, step_rows, step_takes
from tests.cases.step_case import SIZES, Case, F, rms

__all__ = ["APART", "CASES", "SIZES", "Case"]

CASES = step_rows.CASES | step_matmuls.CASES | step_takes.CASES
APART = {
    "norm_line_by_line": Case(
        "x:M, N; w:N",
        "s = x * x\nr = rsqrt(mean(s, N) + 1e-6)\ny = x * r * w",
        lambda x, w: rms(x) * w,
        schedule="fuse = false",
    ),
    "mlp_line_by_line": Case(
        "x:M, K; w:N, K; b:N",
        "h = sum(x * w, K)\nz = h + b\ny = gelu(z)",
        lambda x, w, b: F.gelu(x @ w.T + b),
        schedule="fuse = false",
    ),
    "line_of_two_steps": Case(
        "x:M, N",
        "z = exp(x)\ny = softmax(z, M) * softmax(z, N)",
        lambda x: x.exp().softmax(0) * x.exp().softmax(1),
        schedule="fuse = false",
    ),
}

CASES |= APART
