"""Attention and its like with reductions and matmuls behind it, each with its formula in torch."""

from __future__ import annotations

import torch

from tests.cases.streaming_cases import CAUSAL, GROUPED, QKV, Case
from tests.cases.streaming_formulas import causal, decayed, full, grouped, kept_rows, with_sink

DECAY = "behind = index(M) + size(N) - size(M) - index(N)\n"
DECAY += "a = sum(where(behind >= 0, sum(q * k, D) * exp(-decay * decay * behind), 0.0) * v, N)"
ATTENDED = "s = sum(q * k, D) * 0.25\na = sum(softmax(s, N) * v, N)"


def rms(o: torch.Tensor, *axes: int) -> torch.Tensor:
    return o * torch.rsqrt((o * o).mean(axes or -1, keepdim=True) + 1e-5)


def _lse(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(q @ k.mT * 0.25, -1)


CASES = {
    "norm": Case(QKV, f"{ATTENDED}\no = a * rsqrt(mean(a * a, E) + 1e-5)", lambda q, k, v: rms(full(q, k, v)), steps=3),
    "norm_with_a_weight": Case(
        f"{QKV}; weight:T[E]",
        f"{ATTENDED}\no = a * rsqrt(mean(a * a, E) + 1e-5) * weight",
        lambda q, k, v, weight: rms(full(q, k, v)) * weight,
        by="q k v weight",
        steps=4,
    ),
    "norm_over_heads": Case(
        QKV,
        f"{ATTENDED}\no = a * rsqrt(mean(a * a, H, E) + 1e-5)",
        lambda q, k, v: rms(full(q, k, v), 1, 3),
        steps=4,
    ),
    "layer_norm_of_groups": Case(
        GROUPED,
        f"{CAUSAL}\na = sum(softmax(s, N) * v, N)\nd = a - mean(a, E)\no = d * rsqrt(mean(d * d, E) + 1e-5)",
        lambda q, k, v: torch.nn.functional.layer_norm(grouped(q, k, v), grouped(q, k, v).shape[-1:]),
        outputs="o:q[B, (G R), M, E]",
        steps=3,
    ),
    "layer_norm_by_a_variance": Case(
        f"{QKV}; weight:T[E]",
        f"{ATTENDED}\no = (a - mean(a, E)) * rsqrt(var(a, E, correction=0) + 1e-5) * weight",
        lambda q, k, v, weight: torch.nn.functional.layer_norm(full(q, k, v), weight.shape) * weight,
        by="q k v weight",
        steps=4,
    ),
    "norm_and_sink": Case(
        f"{QKV}; sink:T[H]",
        f"{CAUSAL}\nm = maximum(max(s, N), sink)\ne = exp(s - m)\n"
        "a = sum(e * v, N) / (sum(e, N) + exp(sink - m))\no = a * rsqrt(mean(a * a, E) + 1e-5)",
        lambda q, k, v, sink: rms(with_sink(q, k, v, sink)),
        by="q k v sink",
        steps=4,
    ),
    "loss_of_lse": Case(
        QKV,
        f"{ATTENDED}\no = a\nz = mean(square(logsumexp(s, N)), H, M)",
        lambda q, k, v: (full(q, k, v), torch.logsumexp(q @ k.mT * 0.25, -1).square().mean((1, 2))),
        outputs="o:q; z:auto[B]",
        steps=3,
    ),
    "largest_score_of_each_head": Case(
        QKV,
        f"{ATTENDED}\no = a\ntop = detach(max(s, B, M, N))",
        lambda q, k, v: (full(q, k, v), (q @ k.mT * 0.25).amax((0, 2, 3)).detach()),
        outputs="o:q; top:auto[H]",
        steps=3,
    ),
    "largest_score_of_lines": Case(
        QKV,
        f"{ATTENDED}\no = a\nt = detach(max(s, N))\ntop = max(t, B, M)",
        lambda q, k, v: (full(q, k, v), (q @ k.mT * 0.25).amax((0, 2, 3)).detach()),
        outputs="o:q; top:auto[H]",
        steps=3,
    ),
    "mean_and_norm": Case(
        QKV,
        f"{ATTENDED}\nlse = logsumexp(s, N)\no = a * rsqrt(mean(a * a, E) + 1e-5)",
        lambda q, k, v: (rms(full(q, k, v)), full(q, k, v), torch.logsumexp(q @ k.mT * 0.25, -1)),
        outputs="o:q; a:q; lse:q",
        steps=3,
    ),
    "mean_and_norm_of_columns": Case(
        "q:T[B, H, D, M]; k:T[B, H, D, N]; v:T[B, H, (C=2 E), N]",
        f"{ATTENDED}\no = a * rsqrt(mean(a * a, C, E) + 1e-5)",
        lambda q, k, v: (rms(full(q.mT, k.mT, v.mT)).mT, full(q.mT, k.mT, v.mT).mT),
        outputs="o:q[B, H, (C=2 E), M]; a:q[B, H, (C=2 E), M]",
        steps=3,
    ),
    "decay_and_norm": Case(
        f"{QKV}; decay:T[H]",
        f"{DECAY}\no = a * rsqrt(mean(a * a, E) + 1e-5)",
        lambda q, k, v, decay: rms(decayed(q, k, v, -decay * decay)),
        by="q k v decay",
        steps=4,
    ),
    "sum_of_squares": Case(
        QKV, f"{ATTENDED}\no = sum(a * a, E)", lambda q, k, v: full(q, k, v).square().sum(-1), steps=3
    ),
    "mean_of_rows": Case(QKV, f"{ATTENDED}\no = mean(a, M)", lambda q, k, v: full(q, k, v).mean(2), steps=3),
    "sum_of_rows_beside": Case(
        QKV,
        f"{CAUSAL}\no = sum(softmax(s, N) * v, N) + sum(q, D)",
        lambda q, k, v: causal(q, k, v) + q.sum(-1, keepdim=True),
        outputs="o:q[B, H, M, E]",
        by="k v",
        passes=1,
    ),
    "rows_of_any_key": Case(
        f"{QKV}; of_q:int32[B, M]; of_k:int32[B, N]",
        "kept = (of_q == of_k) & (of_q > 1)\ns = where(kept, sum(q * k, D) * 0.25, -inf)\n"
        "o = where(any(kept, N), sum(softmax(s, N) * v, N), 0.0)",
        lambda q, k, v, of_q, of_k: kept_rows(q, k, v, (of_q[:, :, None] == of_k[:, None]) & (of_q[:, :, None] > 1)),
        steps=4,
    ),
    "projection": Case(
        f"{QKV}; w:T[H, E, K]",
        f"{CAUSAL}\na = sum(softmax(s, N) * v, N)\no = sum(a * w, H, E)",
        lambda q, k, v, w: torch.einsum("bhme,hek->bmk", causal(q, k, v), w),
        by="q k v w",
        outputs="o:q[B, M, K]",
        steps=5,
    ),
    "lse_and_its_mean_square": Case(
        QKV,
        f"{ATTENDED}\no = a\nlse = logsumexp(s, N)\nz = mean(lse * lse, M)",
        lambda q, k, v: (full(q, k, v), _lse(q, k), _lse(q, k).square().mean(-1)),
        outputs="o:q; lse:q; z:q",
        steps=3,
    ),
}
