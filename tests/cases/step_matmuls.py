"""Specs of matmuls with more than an epilogue, or of several, each with its formula in torch."""

from __future__ import annotations

import torch

from tests.cases.step_case import Case, F, rms


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    s = torch.einsum("bsd,btd->bst", q, k) * 0.125
    mask = torch.arange(k.shape[1])[None, :] <= torch.arange(q.shape[1])[:, None]
    return torch.einsum("bst,btd->bsd", torch.softmax(s.masked_fill(~mask, -torch.inf), -1), v)


CASES = {
    "output_beside_a_matmul": Case(
        "x:B, M, K; w:(G E=8), K; v:M, E=8",
        "y = sum(x * w, K) + v\nz = v * 2",
        lambda x, w, v: ((x @ w.T).unflatten(-1, (-1, 8)) + v[:, None], v * 2),
        "y z",
    ),
    "layer_norm_of_a_matmul": Case(
        "x:M, K; w:N, K; b:N",
        "h = sum(x * w, K) + b\ny = (h - mean(h, N)) * rsqrt(var(h, N, correction=0) + 1e-5)",
        lambda x, w, b: F.layer_norm(x @ w.T + b, (w.shape[0],)),
    ),
    "softmax_of_a_matmul": Case("a:M, K; b:K, N", "y = softmax(sum(a * b, K), N)", lambda a, b: (a @ b).softmax(-1)),
    "softmax_over_rows_of_a_matmul": Case(
        "a:B, K; b:E, K", "y = softmax(sum(a * b, K), B)", lambda a, b: (a @ b.T).softmax(0)
    ),
    "matmul_of_a_norm": Case(
        "a:M, K; b:K, N", "r = rsqrt(mean(a * a, K) + 1e-6)\ny = sum(a * r * b, K)", lambda a, b: rms(a) @ b
    ),
    "chained_matmuls": Case(
        "a:M, K; b:K, N; c:N, P", "ab = sum(a * b, K)\ny = sum(ab * c, N)", lambda a, b, c: a @ b @ c
    ),
    "lora": Case(
        "x:M, K; w:N, K; a:R, K; b:N, R",
        "y = sum(x * w, K) + 0.5 * sum(sum(x * a, K) * b, R)",
        lambda x, w, a, b: x @ w.T + 0.5 * (x @ a.T) @ b.T,
    ),
    "matmul_of_a_layer_norm": Case(
        "x:M, K; g:K; b:K; w:N, K",
        "h = (x - mean(x, K)) * rsqrt(var(x, K, correction=0) + 1e-5) * g + b\ny = sum(h * w, K)",
        lambda x, g, b, w: F.layer_norm(x, x.shape[1:], g, b) @ w.T,
    ),
    "scales_of_groups": Case(
        "x:M, (G J=32); w:N, (G J=32); s:N, G; t:M, G",
        "y = gelu(0.1 * sum(x * t * w * s, G, J))",
        lambda x, w, s, t: F.gelu(0.1 * (x * t.repeat_interleave(32, 1)) @ (w * s.repeat_interleave(32, 1)).T),
    ),
    "gates_in_a_matmul": Case(
        "x:M, K; u:M, K; w:N, K", "y = sum(silu(x) * u * w, K)", lambda x, u, w: (F.silu(x) * u) @ w.T
    ),
    "mean_of_products": Case("x:M, K; w:N, K", "y = mean(x * w, K)", lambda x, w: x @ w.T / x.shape[1]),
    "quotient_in_a_matmul": Case(
        "x:M, K; s:M; w:N, K", "y = sum(x / s * w, K)", lambda x, s, w: (x / s[:, None]) @ w.T, wrt="x w"
    ),
    "matmul_of_a_softmax": Case("x:M, K; w:N, K", "y = sum(softmax(x, K) * w, K)", lambda x, w: x.softmax(-1) @ w.T),
    "statistics_of_a_matmul": Case(
        "x:M, K; w:N, K",
        "h = sum(x * w, K)\nm = mean(h, N)\nv = var(h, N, correction=0)",
        lambda x, w: ((x @ w.T).mean(1), (x @ w.T).var(1, correction=0)),
        "m v",
    ),
    "norm_of_an_mlp": Case(
        "x:M, K; w:N, K; v:K, N",
        "h = silu(sum(x * w, K))\no = sum(h * v, N)\ny = o * rsqrt(mean(o * o, K) + 1e-6)",
        lambda x, w, v: rms(F.silu(x @ w.T) @ v.T),
    ),
    "mlp_with_biases": Case(
        "x:M, K; w:N, K; c:N; v:P, N; d:P",
        "h = gelu(sum(x * w, K) + c)\ny = sum(h * v, N) + d",
        lambda x, w, c, v, d: F.linear(F.gelu(F.linear(x, w, c)), v, d),
    ),
    "mlp": Case(
        "x:M, K; w:N, K; v:P, N",
        "h = gelu(sum(x * w, K))\ny = sum(h * v, N)",
        lambda x, w, v: F.gelu(x @ w.T) @ v.T,
    ),
    "gated_mlp_of_a_norm": Case(
        "x:M, K; s:K; w:N, K; v:N, K; u:P, N",
        "n = x * rsqrt(mean(x * x, K) + 1e-6) * s\nh = silu(sum(n * w, K)) * sum(n * v, K)\ny = sum(h * u, N)",
        lambda x, s, w, v, u: (F.silu(rms(x) * s @ w.T) * (rms(x) * s @ v.T)) @ u.T,
    ),
    "rms_of_heads": Case(
        "x:M, K; w:(E=8 D), K",
        "h = sum(x * w, K)\ny = h * rsqrt(mean(h * h, D) + 1e-6)",
        lambda x, w: rms((x @ w.T).unflatten(1, (8, -1))).permute(1, 2, 0),
    ),
    "matmul_to_a_number": Case("a:B, K; b:K, N", "y = sum(sum(a * b, K), B, N)", lambda a, b: (a @ b).sum()),
    "axis_of_the_epilogue_alone": Case(
        "a:M, K; b:K, N; c:P", "y = sum(a * b, K) * c", lambda a, b, c: (a @ b)[:, :, None] * c
    ),
    "matmul_beside_a_line": Case(
        "a:M, K; b:K, N; bias:V, N; kind:int64[M]",
        "y = sum(a * b, K) + take(bias, kind, V)",
        lambda a, b, bias, kind: a @ b + bias[kind],
        wrt="-",
    ),
    "factor_beside": Case(
        "x:M, K; w:K, N; gate:M",
        "y = gate * sum(exp(x + gate) * w, K)",
        lambda x, w, gate: gate[:, None] * (torch.exp(x + gate[:, None]) @ w),
        wrt="x gate",
    ),
    "temperature_of_scores": Case(
        "x:M, K; w:E=8, K; scale:",
        "y = softmax(scale * sum(x * w, K), E)",
        lambda x, w, scale: (scale * (x @ w.T)).softmax(-1),
        wrt="x scale",
    ),
    "stored_and_returned": Case(
        "x:M, K; w:N, K; v:P, N",
        "h = gelu(sum(x * w, K))\ny = sum(h * v, N)",
        lambda x, w, v: (F.gelu(x @ w.T), F.gelu(x @ w.T) @ v.T),
        "h y",
    ),
    "scores_without_softmax": Case(
        "q:B, S, D; k:B, T, D; v:B, T, P",
        "s = sum(q * k, D)\ny = sum(s * v, T)",
        lambda q, k, v: (q @ k.mT) @ v,
    ),
    "cross_entropy_of_a_matmul": Case(
        "a:M, K; b:K, V; at:int64[M]",
        "h = sum(a * b, K)\ny = logsumexp(h, V) - take(h, at, V)",
        lambda a, b, at: F.cross_entropy(a @ b, at, reduction="none"),
    ),
    "mean_cross_entropy_of_a_matmul": Case(
        "x:Q, K; w:L, K; at:int64[Q]",
        "h = sum(x * w, K)\ny = mean(logsumexp(h, L) - take(h, at, L), Q)",
        lambda x, w, at: F.cross_entropy(x @ w.T, at),
    ),
    "bias_behind_two_matmuls": Case(
        "x:M, K; u:R, K; v:N, R; b:N",
        "y = gelu(sum(sum(x * u, K) * v, R) + b)",
        lambda x, u, v, b: F.gelu(x @ u.T @ v.T + b),
    ),
    "matmul_of_matmuls": Case(
        "a:M, K; b:K, N; c:N, D; d:D, P",
        "y = sum(sum(a * b, K) * sum(c * d, D), N)",
        lambda a, b, c, d: (a @ b) @ (c @ d),
    ),
    "sum_of_one_side": Case("x:M, K; w:P, K, N", "y = sum(x * w, K, N)", lambda x, w: w.sum(2) @ x.T),
    "sums_of_both_sides": Case(
        "x:M, K, E; w:K, N, P",
        "y = relu(sum(2 * x * w, E, K, N))",
        lambda x, w: F.relu(2 * x.sum(2) @ w.sum(1)),
    ),
    "sum_of_both_sides_alone": Case("x:M, K; w:K, N", "y = sum(x * w)", lambda x, w: (x @ w).sum()),
    "sum_of_one_side_without_a_matmul": Case("x:M, K; w:K, N", "y = sum(x * w, M)", lambda x, w: x.sum(0)[:, None] * w),
    "mean_of_both_sides": Case("x:M, K; w:K, N", "y = 2 * mean(x * w, M, N)", lambda x, w: 2 * x.mean(0) * w.mean(1)),
    "sum_of_a_matmul": Case(
        "x:M, K; w:N, K", "h = sum(x * w, K)\ny = sum(h, M, N)", lambda x, w: (x.sum(0) * w.sum(0)).sum()
    ),
    "weighted_mean_of_a_matmul": Case(
        "x:M, K; w:N, K; u:N", "h = sum(x * w, K) * 0.5\ny = mean(h * u, N)", lambda x, w, u: (x @ w.T * u / 2).mean(1)
    ),
    "mean_of_two_matmuls": Case(
        "x:M, K; w:N, K; v:P, N",
        "h = sum(x * w, K)\no = sum(h * v, N)\ny = mean(o, M, P)",
        lambda x, w, v: (x @ w.T @ v.T).mean(),
    ),
    "sum_of_a_matmul_times_what_has_its_axis": Case(
        "x:M, K; w:N, K; z:K",
        "h = sum(x * w, K)\ny = sum(h * z, N)",
        lambda x, w, z: (x @ w.T).sum(1, keepdim=True) * z,
    ),
    "sum_of_a_matmul_that_is_read_elsewhere": Case(
        "x:M, K; w:N, K", "h = sum(x * w, K)\ny = sum(h, M) + gelu(h)", lambda x, w: (x @ w.T).sum(0) + F.gelu(x @ w.T)
    ),
    "sum_of_a_matmul_of_normed_rows": Case(
        "x:M, K; w:N, K; u:N",
        "r = rsqrt(mean(x * x, K) + 1e-6)\nh = sum(x * w, K) * r\ny = sum(h * u, N)",
        lambda x, w, u: rms(x) @ w.T @ u,
    ),
    "bilinear_form_of_rows": Case(
        "x:B, M; w:M, N; z:B, N", "y = sum(x * w * z, M, N)", lambda x, w, z: ((x @ w) * z).sum(1)
    ),
    "sum_of_three_matrices": Case("x:M, K; w:K, N; u:N, P", "y = sum(x * w * u)", lambda x, w, u: (x @ w @ u).sum()),
    "mlp_along_another_axis": Case(
        "x:B, S, D; w:P, S; u:S, P",
        "h = gelu(sum(x * w, S))\ny = x + sum(h * u, P)",
        lambda x, w, u: x + torch.einsum("bpd,sp->bsd", F.gelu(torch.einsum("bsd,ps->bpd", x, w)), u),
    ),
    "matmul_of_a_line_and_its_neighbour": Case(
        "x:B, S, D; m:D; w:E, D",
        "p = where(index(S) > 0, take(x, index(S) - 1, S), 0)\ny = relu(sum((x * m + p * (1 - m)) * w, D)) ** 2",
        lambda x, m, w: F.relu((x * m + F.pad(x, (0, 0, 1, 0))[:, :-1] * (1 - m)) @ w.T) ** 2,
    ),
    "sum_of_a_vectors_side": Case(
        "x:M, K; w:K, N; b:M", "y = b * sum(x * w, K, N)", lambda x, w, b: b * (x @ w.sum(1))
    ),
    "square_of_one_side": Case(
        "x:M, K; w:K, N",
        "v = w * w\ny = sum(x * v, K, N) + sum(x * w * w, K, N)",
        lambda x, w: 2 * (x @ (w * w)).sum(1),
    ),
    "products_about_a_mean": Case(
        "x:M, K; z:N, K; m:K",
        "s = exp(m)\ny = sum((x - s) * (z + s), K)",
        lambda x, z, m: (x - m.exp()) @ (z + m.exp()).T,
    ),
    "two_products_with_one_scale_on_either_side": Case(
        "x:M, K; z:N, K; u:M, K; v:N, K; s:K",
        "y = sum(x * s * z, K) + sum(u * (v + s), K)",
        lambda x, z, u, v, s: (x * s) @ z.T + u @ (v + s).T,
    ),
    "factor_with_an_axis_that_the_product_lacks": Case(
        "a:M, K; b:K, N; c:P, M",
        "h = logsumexp(c, M)\ny = sum(a * b * h, K)",
        lambda a, b, c: (a @ b)[:, :, None] * c.logsumexp(1),
    ),
    "products_in_the_dtype_of_a_factor": Case(
        "x:M, K; w:N, K",
        "h = nan_to_num(cast(sum(x * w, K), x))\ny = h * sum(square(cast(x - 1, w)) * w, K)",
        lambda x, w: (x @ w.T) * ((x - 1).square() @ w.T),
        wrt="-",
    ),
    "gelu_of_products_in_the_dtype_of_a_factor": Case(
        "x:M, K; w:N, K",
        "y = gelu(cast(sum(x * w, K), x))",
        lambda x, w: F.gelu(x @ w.T),
    ),
    "three_matrices_in_one_sum": Case(
        "x:M, K; w:K, N; u:N, P", "y = sum(x * w * u, K, N)", lambda x, w, u: torch.einsum("mk,kn,np->mp", x, w, u)
    ),
    "three_factors_over_one_axis": Case(
        "x:K, M; w:K, N; u:K, P", "y = sum(x * w * u, K)", lambda x, w, u: torch.einsum("km,kn,kp->mnp", x, w, u)
    ),
    "bilinear": Case("x:B, M; w:P, M, N; z:B, N", "y = sum(x * w * z, M, N)", lambda x, w, z: F.bilinear(x, z, w).T),
    "bilinear_in_groups": Case(
        "x:B, Q, K=32; w:P, K=32, E=8; z:B, Q, E=8",
        "y = sum(x * w * z, K, E)",
        lambda x, w, z: torch.einsum("bqk,pke,bqe->bqp", x, w, z),
    ),
    "bilinear_with_an_epilogue": Case(
        "x:Q, K; w:P, K, N; z:Q, N; b:P; s:Q",
        "y = gelu(sum(x * w * s * z, K, N) / 32 + b)",
        lambda x, w, z, b, s: F.gelu(F.bilinear(x, z, w) * s[:, None] / 32 + b).T,
    ),
    "chain_from_its_end": Case("a:M, K; b:K, N; c:N, E=8", "y = sum(a * b * c, K, N)", lambda a, b, c: a @ b @ c),
    "chain_of_four_with_scales": Case(
        "a:M, K; b:K, N; s:N; c:N, P; d:P, E=8",
        "y = sum(a * b * s * c * d, K, N, P) / 64",
        lambda a, b, s, c, d: (a @ b * s) @ c @ d / 64,
    ),
    "mean_of_a_chain": Case(
        "a:M, K; b:K, N; c:N, E=8", "y = mean(a * b * c, K, N)", lambda a, b, c: a @ b @ c / a[0].numel() / len(c)
    ),
    "keys_by_values": Case(
        "q:B, S, E=8; k:B, T, E=8; v:B, T, C=6",
        "y = sum(q * k * v, E, T)",
        lambda q, k, v: torch.einsum("bse,bte,btc->bsc", q, k, v),
    ),
    "factors_of_an_unfolded_tensor": Case(
        "x:M, K, N; b:K, E=8; c:N, E=8",
        "y = sum(x * b * c, K, N)",
        lambda x, b, c: torch.einsum("mkn,ke,ne->me", x, b, c),
    ),
    "core_with_three_factors": Case(
        "g:G=4, C=6, E=8; a:M, G=4; b:N, C=6; c:P, E=8",
        "y = sum(g * a * b * c, G, C, E)",
        lambda g, a, b, c: torch.einsum("uvw,mu,nv,pw->mnp", g, a, b, c),
    ),
    "three_factors_over_two_axes": Case(
        "x:B, M, K; w:B, N, K; u:B, N, P",
        "y = sum(x * w * u, N, K)",
        lambda x, w, u: torch.einsum("bmk,bnk,bnp->bmp", x, w, u),
    ),
    "computed_factors": Case(
        "x:P, M; z:P, N; at:int64[K]",
        "y = sum(where(at > 3, x, 0.125) * tanh(z * x), P, M)",
        lambda x, z, at: torch.einsum(
            "kpm,pmn->nk", torch.where(at[:, None, None] > 3, x, 0.125), torch.tanh(x[:, :, None] * z[:, None])
        ),
    ),
    "factor_of_one_side_alone": Case(
        "x:M, N; z:M, P; s:K",
        "y = sum(tanh(x * s) * x * z, M, N)",
        lambda x, z, s: torch.einsum("kmn,mn,mp->pk", torch.tanh(x * s[:, None, None]), x, z),
    ),
    "attention": Case(
        "q:B, S, D; k:B, T, D; v:B, T, D",
        "s = sum(q * k, D) * 0.125\np = softmax(where(index(T) <= index(S), s, -inf), T)\ny = sum(p * v, T)",
        _attention,
    ),
}
