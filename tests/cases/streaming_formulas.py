"""Attention and its like in torch, as cases of specs are compared with."""

from __future__ import annotations

import torch

F = torch.nn.functional
SIZES = {"...": 2, "B": 2, "H": 2, "G": 2, "R": 3, "M": 37, "F": 7, "N": 53, "L": 29}
SIZES |= {"D": 24, "E": 40, "K": 8, "P": 96, "C": 3, "W": 4, "I": 9, "X": 5, "Y": 7}


def behind(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    m, n = q.shape[-2], k.shape[-2]
    return torch.arange(m)[:, None] - m - torch.arange(n)[None, :] + n


def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ k.mT * 0.25


def masked(s: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return s.masked_fill(~mask, -torch.inf)


def limited(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    m, n = torch.arange(SIZES["M"]), torch.arange(SIZES["N"])
    mask = (n <= m[:, None] + 9) & (n <= 9 * limit[..., None])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None], scale=0.25)


def by_head(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    of = torch.arange(SIZES["N"])
    s = scores(q, k) - torch.arange(SIZES["H"])[:, None, None] * of
    return torch.softmax(masked(s, of < limit[:, None, None, None] + 9), -1) @ v


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=behind(q, k) >= 0, scale=0.25)


def full(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, scale=0.25)


def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return causal(q, k.repeat_interleave(SIZES["R"], 1), v.repeat_interleave(SIZES["R"], 1))


def positions_first(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return grouped(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)


def by_documents(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, of_q: torch.Tensor, of_k: torch.Tensor
) -> torch.Tensor:
    mask = (of_q[:, None, :, None] == of_k[:, None, None, :]) | (behind(q, k) == 0)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.25)


def with_sink(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    s = masked(scores(q, k), behind(q, k) >= 0)
    more = sink[:, None, None].expand(*s.shape[:-1], 1).to(s.dtype)
    return torch.softmax(torch.cat((s, more), -1), -1)[..., :-1] @ v


def divided(p: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return p @ v / (p.sum(-1, keepdim=True) + 1)


def decayed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """Retention: scores are multiplied by an exponential of the distance times a value for each head."""
    weights = torch.exp((exponent[:, None, None] * behind(q, k)).masked_fill(behind(q, k) < 0, -torch.inf))
    return q @ k.mT * weights @ v


def repeated(k: torch.Tensor) -> torch.Tensor:
    return k.repeat_interleave(SIZES["R"], 1)


def of_their_own(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    slope: torch.Tensor,
    bias: torch.Tensor,
    scale: torch.Tensor,
    gate: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    n = torch.arange(SIZES["N"])
    s = scores(q.transpose(1, 2), repeated(k.transpose(1, 2))) * scale.flatten(0, 1)[:, None]
    s = s + (slope[:, None] * n)[:, None] + torch.arange(SIZES["R"]).repeat(SIZES["G"])[:, None, None] * bias
    o = torch.sigmoid(gate + slope[:, None, None]) * (torch.softmax(s, -1) @ repeated(v.transpose(1, 2)))
    return o.transpose(1, 2), torch.logsumexp(s, -1)


def sink_of_all(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    more = sink[:, None, None].expand(-1, SIZES["F"], 1)
    return torch.softmax(torch.cat((scores(q, k), more), -1), -1)[..., :-1] @ v


def of_lengths(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    mask = torch.arange(SIZES["N"]) <= 9 * length[:, None, None]
    return F.scaled_dot_product_attention(q, repeated(k), repeated(v), attn_mask=mask, scale=0.25)


def relative(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, table: torch.Tensor, bias: torch.Tensor | float = 0.0
) -> torch.Tensor:
    taken = table[..., torch.arange(SIZES["M"])[:, None] - torch.arange(SIZES["N"])[None, :] + SIZES["N"] - 1]
    return torch.softmax(scores(q, k) + taken + bias, -1) @ v


def relative_factors(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, table: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    at = torch.arange(SIZES["M"])[:, None] - torch.arange(SIZES["N"])[None, :]
    factors = (table[..., at + SIZES["N"] - 1] * scale[..., None, None]).flatten(0, 1)
    s = (q @ repeated(k).mT * factors).masked_fill(at < 0, -torch.inf)
    return torch.softmax(s, -1) @ repeated(v)


def zero_of_the_first(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    o = full(q[1:], k[1:, :, :27], v[1:, :, :27])
    return F.pad(o, (0, 0, 0, 0, 0, 0, 1, 0))


def kept_rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Attention to the keys that are kept, 0 in rows that have none."""
    some = kept.any(-1, keepdim=True)
    p = torch.softmax(masked(scores(q, k), ~some[:, None] | kept[:, None]), -1)
    return torch.where(some[:, None], p @ v, 0.0)


def in_order(of_q: torch.Tensor, of_k: torch.Tensor, limit: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """Which keys are kept where documents meet those before, up to a limit of each row, from a start of each key on."""
    m, n = torch.arange(SIZES["M"])[:, None], torch.arange(SIZES["N"])
    return (of_q[..., None] >= of_k[:, None]) & (n // 9 <= limit[..., None]) & (m // 9 >= start[:, None])
