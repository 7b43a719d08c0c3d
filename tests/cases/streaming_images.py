"""Attention whose queries, keys and values have two axes of positions, as those of images have."""

from __future__ import annotations

import torch

from tests.cases.streaming_cases import Case
from tests.cases.streaming_formulas import SIZES, full, masked, scores

QUERIES = "q:T[B, H, W, I, D]"
KEYS = "k:T[B, H, X, Y, D]; v:T[B, H, X, Y, E]"
MEAN = "\no = sum(softmax(s, X, Y) * v, X, Y)"
ROWS = (SIZES["W"], SIZES["I"])


def _flat(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [one.flatten(2, 3) for one in tensors]


def _biased(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    q, k, v = _flat(q, k, v)
    s = q @ k.mT * scale[:, None, None] + bias.flatten(1, 2).flatten(2, 3)
    return (torch.softmax(s, -1) @ v).unflatten(2, ROWS)


def _relative(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *tables: torch.Tensor) -> torch.Tensor:
    lengths = zip(ROWS, (SIZES["X"], SIZES["Y"]), strict=True)
    down, across = (torch.arange(rows)[:, None] - torch.arange(cols) + 10 for rows, cols in lengths)
    bias = tables[0][:, down][:, :, None, :, None] + tables[1][:, across][:, None, :, None, :]
    return _biased(q * 0.25, k, v, bias, torch.ones(SIZES["H"], dtype=q.dtype))


def _positions_first(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    q, k, v = (one.flatten(1, 2).transpose(1, 2) for one in (q, k, v))
    found = full(q, k, v), torch.logsumexp(scores(q, k), -1)
    o, lse = (one.transpose(1, 2).unflatten(1, ROWS) for one in found)
    return o, lse


def _up_to_a_position(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    k, v = _flat(k, v)
    seen = torch.arange(k.shape[2]) < 9 * last[:, None, None] + 4
    return torch.softmax(masked(scores(q, k), seen), -1) @ v


CASES = {
    "image_of_keys": Case(
        f"q:T[B, H, M, D]; {KEYS}",
        f"s = sum(q * k, D) * 0.25{MEAN}",
        lambda q, k, v: full(q, *_flat(k, v)),
        outputs="o:q[B, H, M, E]",
    ),
    "image_of_both": Case(
        f"{QUERIES}; {KEYS}",
        f"s = sum(q * k, D) * 0.25{MEAN}",
        lambda *tensors: full(*_flat(*tensors)).unflatten(2, ROWS),
        outputs="o:q[B, H, W, I, E]",
    ),
    "image_up_to_a_position_by_its_lse": Case(
        f"q:T[B, H, M, D]; {KEYS}; last:int32[H]",
        "s = where(index(X, Y) < 9 * last + 4, sum(q * k, D) * 0.25, -inf)\n"
        "lse = logsumexp(s, X, Y)\no = sum(exp(s - lse) * v, X, Y)",
        _up_to_a_position,
        outputs="o:q[B, H, M, E]",
    ),
    "image_with_a_bias": Case(
        f"{QUERIES}; {KEYS}; bias:T[H, W, I, X, Y]; scale:T[H]",
        f"s = sum(q * k, D) * scale + bias{MEAN}",
        _biased,
        outputs="o:q[B, H, W, I, E]",
        by="q k v bias scale",
        steps=4,
        passes=3,
    ),
    "image_with_relative_positions": Case(
        f"{QUERIES}; {KEYS}; down:T[H, P]; across:T[H, P]",
        "s = sum(q * k, D) * 0.25 + take(down, index(W) - index(X) + 10, P) + take(across, index(I) - index(Y) + 10, P)"
        + MEAN,
        _relative,
        outputs="o:q[B, H, W, I, E]",
    ),
    "image_of_positions_first": Case(
        "q:T[B, W, I, H, D]; k:T[B, X, Y, H, D]; v:T[B, X, Y, H, E]",
        f"s = sum(q * k, D) * 0.25\nlse = logsumexp(s, X, Y){MEAN}",
        _positions_first,
        outputs="o:q[B, W, I, H, E]; lse:q[B, W, I, H]",
    ),
}
