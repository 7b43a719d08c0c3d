"""Softmaxes in ways that specs write them beside `softmax`: below an lse, and cast."""

from __future__ import annotations

import torch

from tests.cases.streaming_cases import CAUSAL, QKV, Case
from tests.cases.streaming_formulas import behind, causal, masked, scores, with_sink

PROJECTED = "x:T[B, M, C]; y:T[B, N, C]; wq:T[H, C, D]; wk:T[H, C, D]; wv:T[H, C, E]; wo:T[H, E, F]"
ATTENDED = "q = sum(x * wq, C)\nk = sum(y * wk, C)\nv = sum(y * wv, C)\n" + CAUSAL + "\n"


def _projected(x: torch.Tensor, y: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    q, k, v = (torch.einsum("bnc,hcd->bhnd", one, w) for one, w in zip((x, y, y), weights[:3], strict=True))
    return torch.einsum("bhme,hef->bmf", causal(q, k, v), weights[3])


def _lse(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(masked(scores(q, k), behind(q, k) >= 0), -1)


CASES = {
    "loss_of_an_lse": Case(
        QKV,
        f"{CAUSAL}\nlse = logsumexp(s, N)\no = sum(softmax(s, N) * v, N)\nz = mean(lse * lse, H, M)",
        lambda q, k, v: (causal(q, k, v), _lse(q, k).square().mean((1, 2))),
        outputs="o:q; z:auto[B]",
        steps=3,
    ),
    "loss_of_an_lse_with_a_sink": Case(
        f"{QKV}; sink:T[H]",
        f"{CAUSAL}\nm = maximum(max(s, N), sink)\ne = exp(s - m)\n"
        "r = sum(e, N) + exp(sink - m)\nlse = m + log(r)\no = sum(e * v, N) / r\nz = sum(lse * lse, B, H, M)",
        lambda q, k, v, sink: (
            with_sink(q, k, v, sink), torch.logaddexp(_lse(q, k), sink[:, None]).square().sum()
        ),
        outputs="o:q; z:auto[]",
        by="q k v sink",
        steps=4,
    ),
    "cast_before_a_projection": Case(
        PROJECTED,
        f"{ATTENDED}a = cast(sum(softmax(s, N) * v, N), T)\no = sum(a * wo, H, E)",
        _projected,
        outputs="o:x[B, M, F]",
        by="x wq wk wv wo",
        steps=9,
    ),
    "cast_of_a_line_before_a_projection": Case(
        PROJECTED,
        f"{ATTENDED}a = sum(softmax(s, N) * v, N)\nb = cast(a, T)\no = sum(b * wo, H, E)",
        _projected,
        outputs="o:x[B, M, F]",
        by="x wq wk wv wo",
        steps=9,
    ),
}  # fmt: skip
