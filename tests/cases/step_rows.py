"""Specs of reductions that no single kernel computes, each with its formula in torch."""

from __future__ import annotations

import torch

from tests.cases.step_case import Case, F, rms


def _between(sums: torch.Tensor, w: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    h = w + (w * sums).mean()
    y = h * torch.rsqrt((h * h).mean() + 0.1)
    return y, F.gelu(torch.maximum(y, x).sum())


def _of_products(h: torch.Tensor, s: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (torch.where(b > 0, 1 - h * h, s * 0.7) - 0.1 * b).amax(1), (h * 3 + b).amin()


def _sinkhorn(x: torch.Tensor) -> torch.Tensor:
    for axis in (1, 0, 1):
        x = x - torch.logsumexp(x, axis, keepdim=True)
    return x.exp()


def _group_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.group_norm(x, 4, w, b)


def _norms(x: torch.Tensor, u: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    h = x[:, None] * u
    n = (h - h.mean()) * torch.rsqrt(h.var(correction=0) + 1e-2)
    z = (n @ w.mT).mean(1)
    return (v @ (z * torch.rsqrt((z * z).mean() + 1e-2))).softmax(0)


CASES = {
    "sums_of_rows_beside_sums_of_columns": Case(
        "z:B, M, N; u:B, N; w:N; g:M; h:B; k:int64[B, M, N]",
        "a = sum(sqrt(abs(u) + 0.2) * g, M)\nb = exp(0.3 * sum(w * h, B))\ny = a * where(k > 3, b, 0.0) + z",
        lambda z, u, w, g, h, k: (
            z
            + (torch.sqrt(u.abs() + 0.2) * g.sum())[:, None]
            * torch.where(k > 3, torch.exp(0.3 * w * h.sum()), torch.zeros_like(z))
        ),
        wrt="w z u h g",
    ),
    "reductions_over_different_axes": Case(
        "x:M, N", "y = x - sum(x, M) - sum(x, N)", lambda x: x - x.sum(0) - x.sum(1, keepdim=True)
    ),
    "reductions_in_one_line": Case("x:M, N", "y = sum(x, N) + sum(x, M, N)", lambda x: x.sum(1) + x.sum()),
    "two_softmaxes": Case("x:M, N", "y = softmax(x, M) * softmax(x, N)", lambda x: x.softmax(0) * x.softmax(1)),
    "sinkhorn": Case(
        "x:M, N",
        "a = x - logsumexp(x, N)\nb = a - logsumexp(a, M)\ny = exp(b - logsumexp(b, N))",
        _sinkhorn,
    ),
    "outputs_of_different_axes": Case(
        "x:M, N", "y = x * 2\ns = sum(x, N)\nt = sum(x, M)", lambda x: (x * 2, x.sum(1), x.sum(0)), "y s t"
    ),
    "gates_of_rows": Case("x:M, N; w:N; g:M", "y = silu(x * w) * g", lambda x, w, g: F.silu(x * w) * g[:, None]),
    "norm_with_gates_of_rows": Case(
        "x:M, N; w:N; g:M",
        "y = x * rsqrt(mean(x * x, N) + 1e-6) * w * g",
        lambda x, w, g: x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6) * w * g[:, None],
    ),
    "output_apart": Case("x:M, N; w:N", "y = x * w\nv = w * w", lambda x, w: (x * w, w * w), "y v"),
    "norm_of_all": Case(
        "x:M, N", "y = x / sqrt(sum(x * x))\nz = max(x, N)", lambda x: (x / x.norm(), x.amax(1)), "y z"
    ),
    "norm_of_everything": Case(
        "x:M, N; w:N",
        "r = rsqrt(mean(x * x, M, N) + 1e-6)\ny = x * r * w",
        lambda x, w: x * torch.rsqrt((x * x).mean() + 1e-6) * w,
    ),
    "scale_of_everything": Case("x:M, N; s:", "y = gelu(x) * s", lambda x, s: F.gelu(x) * s),
    "softmax_beside_a_mean": Case(
        "a:M, K; b:K, N",
        "h = sum(a * b, K)\ny = softmax(h, N) - mean(h, M)",
        lambda a, b: (a @ b).softmax(-1) - (a @ b).mean(0),
    ),
    "group_norm": Case(
        "x:B, (G=4 C), S; w:(G=4 C); b:(G=4 C)",
        "y = (x - mean(x, C, S)) * rsqrt(var(x, C, S, correction=0) + 1e-5) * w + b",
        _group_norm,
    ),
    "group_norm_channels_last": Case(
        "x:B, S, (G=4 C); w:(G=4 C); b:(G=4 C)",
        "y = (x - mean(x, C, S)) * rsqrt(var(x, C, S, correction=0) + 1e-5) * w + b",
        lambda x, w, b: _group_norm(x.mT, w, b).mT,
    ),
    "norm_of_planes": Case(
        "x:B, C, R, S; w:C; u:R",
        "y = x * rsqrt(mean(x * x, C, R, S) + 1e-6) * w * u",
        lambda x, w, u: x * torch.rsqrt((x * x).mean((1, 2, 3), keepdim=True) + 1e-6) * w[:, None, None] * u[:, None],
    ),
    "group_norm_of_one": Case(
        "x:(G=4 C), S; w:(G=4 C)",
        "y = (x - mean(x, C, S)) * rsqrt(var(x, C, S, correction=0) + 1e-5) * w",
        lambda x, w: F.group_norm(x[None], 4, w)[0],
    ),
    "instance_norm": Case(
        "x:B, C, S; w:C; b:C",
        "y = (x - mean(x, S)) * rsqrt(var(x, S, correction=0) + 1e-5) * w + b",
        lambda x, w, b: F.instance_norm(x, None, None, w, b),
    ),
    "batch_norm": Case(
        "x:B, C; w:C; running:C",
        "m = mean(x, B)\ny = (x - m) * rsqrt(var(x, B, correction=0) + 1e-5) * w\nnext = 0.9 * running + 0.1 * m",
        lambda x, w, running: (F.batch_norm(x, None, None, w, training=True), 0.9 * running + 0.1 * x.mean(0)),
        "y next",
        "x w",
    ),
    "bias_in_a_norm": Case(
        "x:M, N; b:N; w:N",
        "h = x + b\ny = h * rsqrt(mean(h * h, N) + 1e-6) * w",
        lambda x, b, w: rms(x + b) * w,
    ),
    "terms_with_one_number": Case(  # of which no power of -1 times it is 1
        "x:M, N; w:N; v:N", "y = 0.09 * x * w + 0.09 * x * v", lambda x, w, v: 0.09 * x * (w + v)
    ),
    "temperature": Case("x:M, N; t:", "y = softmax(x * t, N)", lambda x, t: (x * t).softmax(-1)),
    "gradient_of_what_lacks_an_axis": Case(
        "x:M, N; w:N",
        "total = sum(w * w, N)\ny = x * total + rsqrt(total)",
        lambda x, w: x * (w * w).sum() + torch.rsqrt((w * w).sum()),
    ),
    "sums_of_two_sorts_of_rows": Case(
        "x:M, K; w:N, K",
        "y = sum(x * x, K) + logsumexp(w, K)",
        lambda x, w: (x * x).sum(1, keepdim=True) + torch.logsumexp(w, 1),
    ),
    "mean_of_the_columns_of_a_matmul": Case(
        "x:M, K; w:N, K; b:N", "y = mean(sum(x * w, K) + b, N)", lambda x, w, b: (x @ w.T + b).mean(1)
    ),
    "sums_of_columns_for_each_row": Case(
        "x:M, K; w:N, K; g:M", "y = x + g * sum(w, N)", lambda x, w, g: x + g[:, None] * w.sum(0)
    ),
    "variance_of_a_norm": Case(
        "x:M, N",
        "y = var(x * rsqrt(mean(x * x, N) + 0.1), N, correction=0)",
        lambda x: (x * torch.rsqrt((x * x).mean(1, keepdim=True) + 0.1)).var(1, correction=0),
    ),
    "softmax_of_the_largest": Case("x:M, N, D", "y = softmax(max(x, D), N)", lambda x: x.amax(2).softmax(1)),
    "one_gradient_in_two_orders": Case(
        "x:M, N; z:N, M; w:N",
        "y = tanh(x + z)\nt = max(w * y, M)",
        lambda x, z, w: (torch.tanh(x + z.T), (w * torch.tanh(x + z.T)).amax(0)),
        "y t",
    ),
    "single_elements_beside_others": Case(
        "x:M, N; s:; t:; at:int64[]",
        "h = sigmoid(s * t)\ny = h * x\nz = exp(-h * h)\nv = take(take(x, at, M), at, N) * h + max(x, M, N)",
        lambda x, s, t, at: (
            torch.sigmoid(s * t) * x,
            torch.exp(-(torch.sigmoid(s * t) ** 2)),
            x[at, at] * torch.sigmoid(s * t) + x.max(),
        ),
        "y z v",
    ),
    "reductions_between_single_elements": Case(
        "x:N, M; s:; w:M",
        "h = mean(w * sum(x - s, N), M)\ny = (w + h) * rsqrt(mean((w + h) * (w + h), M) + 0.1)"
        "\nz = gelu(sum(maximum(y, x), M, N))",
        lambda x, s, w: _between((x - s).sum(0), w, x),
        "y z",
    ),
    "largest_of_sums_of_products": Case(
        "x:M, N; w:N; s:; b:N, M",
        "h = gelu(x * w) * 0.3 + s\ny = max(where(b > 0, 1 - h * h, s * 0.7) - 0.1 * b, N)\nz = min(h * 3 + b, M, N)",
        lambda x, w, s, b: _of_products(F.gelu(x * w) * 0.3 + s, s, b.T),
        "y z",
    ),
    "softmax_of_sums_of_what_has_maxima": Case(
        "x:M, K; v:K",
        "h = max(x, K)\ny = softmax(sum(tanh(v + h), M), K)",
        lambda x, v: (v + x.amax(1, keepdim=True)).tanh().sum(0).softmax(0),
    ),
    "norm_that_no_step_reads": Case(  # A sum reads its factors instead.
        "x:N=5; u:K=4; w:P, K=4; v:E, N=5",
        "h = x * u\nn = (h - mean(h, K, N)) * rsqrt(var(h, K, N, correction=0) + 1e-2)\nz = mean(sum(n * w, K), P)"
        "\nr = rsqrt(mean(z * z, N) + 1e-2)\ny = softmax(sum(z * r * v, N), E)",
        _norms,
    ),
}
