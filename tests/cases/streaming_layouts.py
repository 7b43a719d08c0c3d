"""Attention whose heads share keys along several axes, or whose tensors have their axes in different orders."""

from __future__ import annotations

import torch

from tests.cases.streaming_cases import CAUSAL, MEAN, Case
from tests.cases.streaming_formulas import SIZES, behind, causal, masked, positions_first, repeated, scores


def _of_all(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Keys that the batch and the heads of a group share."""
    return causal(q, repeated(k[None]), repeated(v[None]))


def _of_one(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Keys that are the same for all of the batch and for all heads."""
    return causal(q, k.expand(*q.shape[:-2], *k.shape), v.expand(*q.shape[:-2], *v.shape))


def _multi_query(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Positions before heads, which have the same keys."""
    k, v = (one[:, None].expand(-1, q.shape[2], -1, -1) for one in (k, v))
    return causal(q.transpose(1, 2), k, v).transpose(1, 2)


def _with_bias(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    s = masked(scores(q, repeated(k[None])) + bias[:, None], behind(q, k) >= 0)
    return torch.softmax(s, -1) @ repeated(v[None])


SHARED = "q:T[B, (G R), M, D]; k:T[G, N, D]; v:T[G, N, E]"
OF_GROUPS = "o:q[B, (G R), M, E]"
APART = "q:T[B, M, G, R, D]; k:T[B, N, G, D]; v:T[B, N, G, E]"
CASES = {
    "keys_of_the_batch_and_of_groups": Case(SHARED, CAUSAL + MEAN, _of_all, outputs=OF_GROUPS),
    "keys_of_leading_axes_and_of_groups": Case(
        SHARED.replace("B, ", "..., "), CAUSAL + MEAN, _of_all, outputs=OF_GROUPS.replace("B, ", "..., ")
    ),
    "keys_of_the_batch_and_of_heads": Case(
        "q:T[B, H, M, D]; k:T[N, D]; v:T[N, E]", CAUSAL + MEAN, _of_one, outputs="o:q"
    ),
    "keys_of_three_axes": Case("q:T[B, H, R, M, D]; k:T[N, D]; v:T[N, E]", CAUSAL + MEAN, _of_one, outputs="o:q"),
    "keys_of_the_batch_and_values_of_their_own": Case(
        SHARED.replace("T[G, N, E]", "T[B, G, N, E]"),
        CAUSAL + MEAN,
        lambda q, k, v: causal(q, repeated(k[None]), repeated(v)),
        outputs=OF_GROUPS,
        steps=3,
        passes=3,
    ),
    "keys_of_the_batch_and_a_bias_of_these": Case(
        f"{SHARED}; bias:T[(G R), N]",
        f"{CAUSAL.replace('0.25', '0.25 + bias')}{MEAN}",
        _with_bias,
        outputs=OF_GROUPS,
        by="q k v bias",
        steps=4,
        passes=3,
    ),
    "linear_of_keys_of_the_batch": Case(
        SHARED,
        "o = sum(where(index(N) <= index(M), sum(q * k, D), 0.0) * v, N)",
        lambda q, k, v: (q @ repeated(k[None]).mT).tril() @ repeated(v[None]),
        outputs=OF_GROUPS,
    ),
    "orders_of_their_own": Case(
        "q:T[B, H, M, D]; k:T[B, N, H, D]; v:T[B, H, E, N]",
        CAUSAL + MEAN,
        lambda q, k, v: causal(q, k.transpose(1, 2), v.mT).permute(2, 0, 1, 3).flatten(-2),
        outputs="o:q[M, B, (H E)]",
    ),
    "positions_first_of_one_head_of_keys": Case(
        "q:T[B, M, (H=2 D)]; k:T[B, N, D]; v:T[B, N, E]",
        CAUSAL + MEAN,
        lambda q, k, v: _multi_query(q.unflatten(-1, (2, -1)), k, v).flatten(-2),
        outputs="o:q[B, M, (H E)]",
    ),
    "positions_before_heads_that_share_keys": Case(
        "q:T[B, M, H, D]; k:T[B, N, D]; v:T[B, N, E]", CAUSAL + MEAN, _multi_query, outputs="o:q[B, M, H, E]"
    ),
    "positions_before_groups_of_their_own": Case(
        APART,
        CAUSAL + MEAN,
        lambda q, k, v: positions_first(q.flatten(2, 3), k, v).unflatten(2, (SIZES["G"], SIZES["R"])),
        outputs="o:q[B, M, G, R, E]",
    ),
}
