"""Several attentions in one spec, each with its formula in torch: differences, sums, chains and merges."""

from __future__ import annotations

import torch

from tests.cases.streaming_behind import rms
from tests.cases.streaming_cases import Case
from tests.cases.streaming_formulas import causal, full, grouped, masked, scores

TWO = "q:T[B, H, M, D]; k:T[B, H, N, D]; r:T[B, H, M, D]; j:T[B, H, N, D]; v:T[B, H, N, E]"
TWICE = "s = sum(q * k, D) * 0.25\nt = sum(r * j, D) * 0.25"
CAUSAL = (
    "s = where(index(N) - size(N) <= index(M) - size(M), sum(q * k, D) * 0.25, -inf)\n"
    "t = where(index(N) - size(N) <= index(M) - size(M), sum(r * j, D) * 0.25, -inf)"
)
APART = "a = sum(softmax(s, N) * v, N)\nb = sum(softmax(t, N) * v, N)"
CROSS = "q:T[B, H, M, D]; k:T[B, H, N, D]; v:T[B, H, N, E]; j:T[B, H, L, D]; w:T[B, H, L, E]"
CHAIN = "q:T[B, H, M, D]; k:T[B, H, N, D]; v:T[B, H, N, D]; j:T[B, H, L, D]; w:T[B, H, L, E]"


def _difference(q: torch.Tensor, k: torch.Tensor, r: torch.Tensor, j: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return causal(q, k, v) - 0.3 * causal(r, j, v)


def _head_norm(*tensors: torch.Tensor) -> torch.Tensor:
    *five, a, b, c, d, weight = tensors
    q, k, r, j, v = five
    factor = ((a * b).sum(-1).exp() - (c * d).sum(-1).exp() + 0.8)[:, None, None]
    return rms(causal(q, k, v) - factor * causal(r, j, v)) * weight


def _beside_a_sink(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, j: torch.Tensor, w: torch.Tensor, sink: torch.Tensor
) -> torch.Tensor:
    s = scores(q, k)
    lse = torch.logaddexp(torch.logsumexp(s, -1, keepdim=True), sink[:, None, None])
    return (s - lse).exp() @ v + 0.5 * full(q, j, w)


def _linear(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.mT).tril() @ v


def _merged(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, j: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return full(q, torch.cat((k, j), 2), torch.cat((v, w), 2))


def _by_its_lse(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, j: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    lse = torch.logsumexp(scores(q, k), -1)
    return lse.permute(2, 0, 1), full(full(q, k, v) * lse.sigmoid()[..., None], j, w)


def _norm_beside_rows_without_keys(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor, j: torch.Tensor, w: torch.Tensor
) -> torch.Tensor:
    seen = torch.arange(len(k)) + 9 <= torch.arange(len(q))[:, None]
    some = seen.any(-1, keepdim=True)
    means = torch.softmax(masked(scores(q, k) + bias.T, seen | ~some), -1) @ v
    return rms(torch.where(some, means, 0.0) + 0.5 * full(q, j, w))


def _norm_of_two_matmuls_and_a_sink(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    r: torch.Tensor,
    i: torch.Tensor,
    bias: torch.Tensor,
    sink: torch.Tensor,
    j: torch.Tensor,
    w: torch.Tensor,
) -> torch.Tensor:
    s = scores(q, k) + r @ i.mT + bias
    total = torch.logaddexp(torch.logsumexp(s, -1, keepdim=True), sink[:, None, None])
    return full(rms((s - total).exp() @ v), j, w)


CASES = {
    "difference_of_softmaxes": Case(
        TWO,
        f"{CAUSAL}\no = sum(softmax(s, N) * v, N) - 0.3 * sum(softmax(t, N) * v, N)",
        _difference,
        by="q k r j v",
        steps=5,
        passes=4,
    ),
    "difference_of_lines": Case(
        TWO,
        f"{TWICE}\na = sum(softmax(s, N) * v, N)\nb = sum(softmax(t, N) * v, N)\no = (a - lam * b) / (1 - lam)",
        lambda q, k, r, j, v: (full(q, k, v) - 0.2 * full(r, j, v)) / 0.8,
        params="lam = 0.2",
        by="q k r j v",
        steps=5,
        passes=4,
    ),
    "difference_by_one": Case(
        TWO,
        f"{CAUSAL}\no = sum(softmax(s, N) * v, N) - 0.3 * sum(softmax(t, N) * v, N)",
        _difference,
        by="k",
        steps=2,
        passes=1,
    ),
    "sum_of_one_with_a_sink_by_keys_and_values": Case(
        f"{CROSS}; sink:T[H]",
        "s = sum(q * k, D) * 0.25\nt = sum(q * j, D) * 0.25\nlse = logaddexp(logsumexp(s, N), sink)\n"
        "o = sum(exp(s - lse) * v, N) + 0.5 * sum(softmax(t, L) * w, L)",
        _beside_a_sink,
        by="k v j w",
        steps=4,
    ),
    "norm_of_a_difference_by_one": Case(
        TWO,
        f"{TWICE}\np = exp(s)\na = sum(p * v, N) / sum(p, N) - 0.3 * sum(softmax(t, N) * v, N)\n"
        "o = a * rsqrt(mean(a * a, E) + 1e-5)",
        lambda q, k, r, j, v: rms(full(q, k, v) - 0.3 * full(r, j, v)),
        by="r",
        steps=2,
        passes=1,
    ),
    "differential_heads": Case(
        f"{TWO}; a:T[H, D]; b:T[H, D]; c:T[H, D]; d:T[H, D]; weight:T[E]",
        "f = exp(sum(a * b, D)) - exp(sum(c * d, D)) + 0.8\n"
        f"{CAUSAL}\no1 = sum(softmax(s, N) * v, N)\no2 = sum(softmax(t, N) * v, N)\no3 = o1 - f * o2\n"
        "o = o3 * rsqrt(mean(o3 * o3, E) + 1e-5) * weight",
        _head_norm,
        by="q k r j v a b c d weight",
        steps=9,
        passes=4,
    ),
    "difference_by_a_factor_of_heads": Case(
        f"{TWO}; f:T[H]",
        f"{CAUSAL}\n{APART}\nu = a - f * b\no = u * rsqrt(mean(u * u, E) + 1e-5)",
        lambda q, k, r, j, v, f: rms(causal(q, k, v) - f[:, None, None] * causal(r, j, v)),
        by="q k r j v f",
        steps=6,
        passes=4,
    ),
    "grouped_heads": Case(
        "q:T[B, (G R), M, D]; k:T[B, G, N, D]; r:T[B, (G R), M, D]; j:T[B, G, N, D]; v:T[B, G, N, E]",
        f"{CAUSAL}\no = sum(softmax(s, N) * v, N) - 0.3 * sum(softmax(t, N) * v, N)",
        lambda q, k, r, j, v: grouped(q, k, v) - 0.3 * grouped(r, j, v),
        by="q k r j v",
        outputs="o:q[B, (G R), M, E]",
        steps=5,
        passes=4,
    ),
    "self_and_cross": Case(
        CROSS,
        "s = sum(q * k, D) * 0.25\nt = sum(q * j, D) * 0.25\n"
        "o = sum(softmax(s, N) * v, N) + 0.5 * sum(softmax(t, L) * w, L)",
        lambda q, k, v, j, w: full(q, k, v) + 0.5 * full(q, j, w),
        by="q k v j w",
        outputs="o:q[B, H, M, E]",
        steps=5,
        passes=4,
    ),
    "three": Case(
        f"{CROSS}; x:T[B, H, N, E]",
        "s = sum(q * k, D) * 0.25\nt = sum(q * j, D) * 0.25\nu = sum(q * k, D) * 0.5\n"
        "o = sum(softmax(s, N) * v, N) + sum(softmax(t, L) * w, L) + sum(softmax(u, N) * x, N)",
        lambda q, k, v, j, w, x: full(q, k, v) + full(q, j, w) + full(2 * q, k, x),
        by="q k v j w x",
        outputs="o:q[B, H, M, E]",
        steps=7,
        passes=6,
    ),
    "two_results": Case(
        CROSS,
        "o = sum(softmax(sum(q * k, D) * 0.25, N) * v, N)\nu = sum(softmax(sum(q * j, D) * 0.25, L) * w, L)",
        lambda q, k, v, j, w: (full(q, k, v), full(q, j, w)),
        by="q k v j w",
        outputs="o:q[B, H, M, E]; u:q[B, H, M, E]",
        steps=4,
        passes=4,
    ),
    "two_results_of_norms": Case(
        CROSS,
        "a = sum(softmax(sum(q * k, D) * 0.25, N) * v, N)\nb = sum(softmax(sum(q * j, D) * 0.25, L) * w, L)\n"
        "o = a * rsqrt(mean(a * a, E) + 1e-5)\nu = a * b",
        lambda q, k, v, j, w: (rms(full(q, k, v)), full(q, k, v) * full(q, j, w)),
        by="q k v j w",
        outputs="o:q[B, H, M, E]; u:q[B, H, M, E]",
        steps=5,
        passes=4,
    ),
    "chain": Case(
        CHAIN,
        "z = sum(softmax(sum(q * k, D) * 0.25, N) * v, N)\no = sum(softmax(sum(z * j, D) * 0.25, L) * w, L)",
        lambda q, k, v, j, w: full(full(q, k, v), j, w),
        by="q k v j w",
        outputs="o:q[B, H, M, E]",
        steps=4,
        passes=4,
    ),
    "chain_with_a_layer_norm": Case(  # What is stored has the dtype of what else is.
        CHAIN,
        "a = sum(softmax(sum(q * k, D) * 0.25, N) * v, N)\n"
        "n = (a - mean(a, D)) * rsqrt(var(a, D, correction=0) + 1e-5)\n"
        "o = sum(softmax(sum(n * j, D) * 0.25, L) * w, L)",
        lambda q, k, v, j, w: full(torch.nn.functional.layer_norm(full(q, k, v), v.shape[-1:]), j, w),
        by="q k v j w",
        outputs="o:q[B, H, M, E]",
        steps=5,
        passes=4,
    ),
    "chain_whose_links_are_results": Case(
        CHAIN.replace("E]", "D]"),
        "z = sum(softmax(sum(q * k, D) * 0.25, N) * v, N)\no = sum(softmax(sum(z * j, D) * 0.25, L) * w, L) + z",
        lambda q, k, v, j, w: (full(full(q, k, v), j, w) + full(q, k, v), full(q, k, v)),
        by="q k v j w",
        outputs="o:q; z:q",
        steps=5,
        passes=4,
    ),
    "norm_beside_rows_without_keys": Case(  # Scores are no larger than their bias, and yet none are stored.
        "q:T[M, D]; k:T[N, D]; v:T[N, E]; bias:T[N, M]; j:T[L, D]; w:T[L, E]",
        "s = where(index(N) + 9 <= index(M), sum(q * k, D) * 0.25 + bias, -inf)\np = exp(s - max(s, N))\n"
        "t = sum(q * j, D) * 0.25\n"
        "a = where(logsumexp(s, N) == -inf, 0.0, sum(p * v, N) / sum(p, N)) + 0.5 * sum(softmax(t, L) * w, L)\n"
        "o = a * rsqrt(mean(a * a, E) + 1e-5)",
        _norm_beside_rows_without_keys,
        by="q k v w",
        outputs="o:q[M, E]",
        steps=5,
        passes=4,
    ),
    "chain_after_a_sink": Case(
        "q:T[B, H, M, D]; k:T[B, H, N, D]; v:T[B, H, N, D]; r:T[B, H, M, K]; i:T[B, H, N, K]; bias:T[H, M, N]; "
        "sink:T[H]; j:T[B, H, L, D]; w:T[B, H, L, E]",
        "s = sum(q * k, D) * 0.25 + sum(r * i, K) + bias\ntotal = logaddexp(logsumexp(s, N), sink)\n"
        "a = where(logsumexp(s, N) == -inf, 0.0, sum(exp(s - total) * v, N))\n"
        "n = a * rsqrt(mean(a * a, D) + 1e-5)\nt = sum(n * j, D) * 0.25\no = sum(softmax(t, L) * w, L)",
        _norm_of_two_matmuls_and_a_sink,
        by="q k v sink j w",
        outputs="o:q[B, H, M, E]",
        steps=6,
        passes=4,
    ),
    "chain_by_another_name": Case(
        CHAIN,
        "s = sum(q * k, D) * 0.25\na = sum(softmax(s, N) * v, N)\nquery = a\nt = sum(query * j, D) * 0.25\n"
        "p = softmax(t, L)\nweights = p\no = sum(weights * w, L)",
        lambda q, k, v, j, w: full(full(q, k, v), j, w),
        by="q k v j w",
        steps=4,
        passes=4,
    ),
    "chain_by_an_lse_that_is_a_result": Case(  # The forward saves it as kernels do, in their order and dtype.
        CHAIN,
        "s = sum(q * k, D) * 0.25\nx = logsumexp(s, N)\nz = sum(softmax(s, N) * v, N) * sigmoid(x)\n"
        "o = sum(softmax(sum(z * j, D) * 0.25, L) * w, L)",
        _by_its_lse,
        by="v w",
        outputs="x:auto[M, B, H]; o:q[B, H, M, E]",
        steps=4,
        passes=3,
    ),
    "chain_of_linear_attentions": Case(
        CHAIN,
        "z = sum(where(index(N) <= index(M), sum(q * k, D), 0.0) * v, N)\nn = z * rsqrt(mean(z * z, D) + 1e-5)\n"
        "o = sum(where(index(L) <= index(M), sum(n * j, D), 0.0) * w, L)",
        lambda q, k, v, j, w: _linear(rms(_linear(q, k, v)), j, w),
        by="q k v j w",
        outputs="o:q[B, H, M, E]",
        steps=5,
        passes=4,
    ),
    "keys_of_attention": Case(
        "q:T[B, H, M, D]; k:T[B, H, N, D]; v:T[B, H, N, D]; r:T[B, H, L, D]",
        "z = sum(softmax(sum(q * k, D) * 0.25, N) * v, N)\no = sum(softmax(sum(r * z, D) * 0.25, M) * z, M)",
        lambda q, k, v, r: full(r, full(q, k, v), full(q, k, v)),
        by="q k v r",
        outputs="o:q[B, H, L, D]",
        steps=4,
        passes=4,
    ),
    "norms_shared_by_two": Case(
        "q:T[B, H, M, D]; k:T[B, H, N, D]; v:T[B, H, N, E]; j:T[B, H, L, D]; w:T[B, H, L, E]; weight:T[D]",
        "n = q * rsqrt(mean(q * q, D) + 1e-5) * weight\n"
        "o = sum(softmax(sum(n * k, D) * 0.25, N) * v, N) + sum(softmax(sum(n * j, D) * 0.25, L) * w, L)",
        lambda q, k, v, j, w, weight: full(rms(q) * weight, k, v) + full(rms(q) * weight, j, w),
        by="q k v j w weight",
        outputs="o:q[B, H, M, E]",
        steps=6,
        passes=4,
    ),
    "merged_by_their_logsumexp": Case(
        CROSS,
        "s = sum(q * k, D) * 0.25\nt = sum(q * j, D) * 0.25\nx = logsumexp(s, N)\ny = logsumexp(t, L)\n"
        "f = sigmoid(x - y)\no = f * sum(softmax(s, N) * v, N) + (1 - f) * sum(softmax(t, L) * w, L)",
        _merged,
        by="q k v j w",
        outputs="o:q[B, H, M, E]",
        steps=5,
        passes=4,
    ),
    "merged_beside_the_lse_of_one": Case(
        CROSS,
        "s = sum(q * k, D) * 0.25\nt = sum(q * j, D) * 0.25\nx = logsumexp(s, N)\ny = logsumexp(t, L)\n"
        "z = logaddexp(x, y)\n"
        "o = exp(x - z) * sum(softmax(s, N) * v, N) + exp(y - z) * sum(softmax(t, L) * w, L)",
        lambda q, k, v, j, w: (_merged(q, k, v, j, w), torch.logsumexp(scores(q, k), -1)),
        by="q k v j w",
        outputs="o:q[B, H, M, E]; x:q",
        steps=5,
        passes=4,
    ),
    "chain_with_a_norm_and_projections": Case(
        "q:T[B, H, M, D]; k:T[B, H, N, D]; v:T[B, H, N, E]; j:T[B, H, L, D]; w:T[B, H, L, D]; by:T[D, E]; to:T[D, E]",
        "a = sum(softmax(sum(q * k, D) * 0.25, N) * v, N)\nn = a * rsqrt(mean(a * a, E) + 1e-5)\n"
        "r = sum(n * by, E)\nz = sum(softmax(sum(r * j, D) * 0.25, L) * w, L)\no = a + sum(z * to, D)",
        lambda q, k, v, j, w, by, to: full(q, k, v) + full(rms(full(q, k, v)) @ by.T, j, w) @ to,
        by="q k v j w by to",
        steps=10,
        passes=4,
    ),
}
