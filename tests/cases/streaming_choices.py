"""Attention some of whose probabilities are 0: those that dropout leaves out, and those of masked scores."""

from __future__ import annotations

import torch

from tests.cases.streaming_cases import CAUSAL, QKV, Case
from tests.cases.streaming_formulas import SIZES, behind, masked, scores, with_sink

KEEP = f"{QKV}; keep:bool[B, H, M, N]"
DROPPED = "\np = softmax(s, N)\no = sum(where(keep, p / 0.9, 0.0) * v, N)"
LOWER = torch.ones(SIZES["M"], SIZES["N"], dtype=torch.bool).tril()


def probabilities(s: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Those of fully masked rows are 0."""
    return torch.where(mask, torch.softmax(masked(s, mask), -1), 0.0)


def _causal(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return torch.softmax(masked(scores(q, k), behind(q, k) >= 0), -1)


def _dropped_with_sink(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor, sink: torch.Tensor
) -> torch.Tensor:
    return with_sink(q, k, torch.eye(SIZES["N"], dtype=q.dtype), sink) * keep / 0.9 @ v


CASES = {
    "dropout": Case(
        KEEP,
        f"s = sum(q * k, D) * 0.25{DROPPED}",
        lambda q, k, v, keep: torch.softmax(scores(q, k), -1) * keep / 0.9 @ v,
        steps=3,
    ),
    "dropout_below_a_mask": Case(
        KEEP, f"{CAUSAL}{DROPPED}", lambda q, k, v, keep: _causal(q, k) * keep / 0.9 @ v, steps=3
    ),
    "dropout_of_what_is_dropped": Case(
        KEEP.replace("keep", "drop"),
        f"{CAUSAL}\no = sum(where(drop, 0.0, softmax(s, N)) * v, N) / 0.9",
        lambda q, k, v, drop: _causal(q, k) * ~drop / 0.9 @ v,
        steps=3,
    ),
    "dropout_and_a_sink": Case(
        f"{KEEP}; sink:T[H]",
        f"{CAUSAL}\nlse = logaddexp(logsumexp(s, N), sink)\no = sum(where(keep, exp(s - lse) / 0.9, 0.0) * v, N)",
        _dropped_with_sink,
        by="q k v sink",
        steps=4,
    ),
    "masked_probabilities": Case(
        f"{QKV}; keep:bool[B, N]",
        "of = keep & (index(N) <= index(M))\ns = where(of, sum(q * k, D) * 0.25, -inf)\n"
        "p = where(of, softmax(s, N), 0.0)\no = sum(p * v, N)",
        lambda q, k, v, keep: probabilities(scores(q, k), keep[:, None, None] & LOWER) @ v,
    ),
    "probabilities_of_padding": Case(
        f"{QKV}; pad:bool[B, N]",
        "s = where(pad, -inf, sum(q * k, D) * 0.25)\np = where(pad, 0.0, softmax(s, N))\no = sum(p * v, N)",
        lambda q, k, v, pad: probabilities(scores(q, k), ~pad[:, None, None]) @ v,
    ),
    "dropout_of_masked_probabilities": Case(
        KEEP,
        "of = index(N) <= index(M)\ns = where(of, sum(q * k, D) * 0.25, -inf)\np = where(of, softmax(s, N), 0.0)\n"
        "o = sum(where(keep, p, 0.0) * v, N)",
        lambda q, k, v, keep: probabilities(scores(q, k), LOWER) * keep @ v,
    ),
}
