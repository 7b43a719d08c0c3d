"""Softmaxes in ways that specs write them beside `softmax`: with factors, and below an lse."""

from __future__ import annotations

import torch

from tests.cases.streaming_cases import CAUSAL, QKV, Case
from tests.cases.streaming_formulas import behind, causal, masked, scores, with_sink

KEEP = f"{QKV}; keep:bool[B, H, M, N]"
FACTOR = f"{QKV}; keep:T[B, H, M, N]"
OVER = "\no = sum(p * v, N) / sum(p, N)"
PROJECTED = "x:T[B, M, C]; y:T[B, N, C]; wq:T[H, C, D]; wk:T[H, C, D]; wv:T[H, C, E]; wo:T[H, E, F]"
ATTENDED = "q = sum(x * wq, C)\nk = sum(y * wk, C)\nv = sum(y * wv, C)\n" + CAUSAL + "\n"


def _by_factors(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    s = masked(scores(q, k), behind(q, k) >= 0)
    p = (s - s.amax(-1, keepdim=True)).exp() * keep
    return p @ v / p.sum(-1, keepdim=True)


def _by_factors_and_lse(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    p = scores(q, k).exp() * keep.square()
    return (p * keep) @ v / p.sum(-1, keepdim=True), p.sum(-1).log()


def _by_factors_of_keys(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    return _by_factors(q, k, v, keep[:, None, None])


def _by_square_factors(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    a = _by_factors(q, k, v, keep.square())
    return a * torch.rsqrt((a * a).mean(-1, keepdim=True) + 1e-5)


def _projected(x: torch.Tensor, y: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    q, k, v = (torch.einsum("bnc,hcd->bhnd", one, w) for one, w in zip((x, y, y), weights[:3], strict=True))
    return torch.einsum("bhme,hef->bmf", causal(q, k, v), weights[3])


def _lse(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(masked(scores(q, k), behind(q, k) >= 0), -1)


CASES = {
    "exponentials_that_are_kept": Case(
        KEEP, f"{CAUSAL}\np = exp(s - max(s, N)) * keep{OVER}", _by_factors
    ),
    "factors_of_exponentials": Case(
        FACTOR,
        f"{CAUSAL}\np = exp(s - max(s, N)) * keep{OVER}",
        _by_factors,
        by="q k v keep",
        steps=3,
        passes=3,
        tiles="dkeep",
    ),
    "factors_of_exponentials_without_gradients": Case(
        FACTOR, f"{CAUSAL}\np = exp(s - max(s, N)) * keep{OVER}", _by_factors
    ),
    "factors_of_keys": Case(
        f"{QKV}; keep:T[B, N]",
        f"{CAUSAL}\np = exp(s - max(s, N)) * keep{OVER}",
        _by_factors_of_keys,
        by="q k v keep",
        steps=3,
    ),
    "squares_as_factors_and_a_norm": Case(
        FACTOR,
        f"{CAUSAL}\np = exp(s - max(s, N)) * keep * keep\na = sum(p * v, N) / sum(p, N)\n"
        "o = a * rsqrt(mean(a * a, E) + 1e-5)",
        _by_square_factors,
        by="q k v keep",
        steps=4,
        passes=3,
        tiles="dkeep",
    ),
    "factors_of_sums_and_their_logarithm": Case(
        FACTOR,
        "s = sum(q * k, D) * 0.25\nm = max(s, N)\np = exp(s - m) * keep * keep\n"
        "o = sum(p * (keep * v), N) / sum(p, N)\nlse = m + log(sum(p, N))",
        _by_factors_and_lse,
        outputs="o:q; lse:q",
        by="q k v keep",
        steps=3,
        passes=3,
        tiles="dkeep",
    ),
    "loss_of_an_lse_by_which_scores_are_below": Case(
        QKV,
        f"{CAUSAL}\nlse = logsumexp(s, N)\no = sum(exp(s - lse) * v, N)\nz = mean(lse * lse, H, M)",
        lambda q, k, v: (causal(q, k, v), _lse(q, k).square().mean((1, 2))),
        outputs="o:q; z:auto[B]",
        steps=3,
    ),
    "loss_of_an_lse_with_a_sink": Case(
        f"{QKV}; sink:T[H]",
        f"{CAUSAL}\nlse = logaddexp(logsumexp(s, N), sink)\no = sum(exp(s - lse) * v, N)\nz = sum(lse * lse, B, H, M)",
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
