"""A decoder as people write it, and functions that are nearly what specs are."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim))
        self.eps = eps

    def forward(self, x):
        h = x.float() if x.dtype == torch.bfloat16 else x
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * h.to(x.dtype)


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Decoder(nn.Module):
    def __init__(self, dim=32, heads=4, groups=2, vocab=20):
        super().__init__()
        self.heads, self.groups, self.head = heads, groups, dim // heads
        self.embedding = nn.Embedding(vocab, dim)
        self.norm1, self.norm2 = Norm(dim), Norm(dim)
        self.q, self.o = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.kv = nn.Linear(dim, 2 * groups * self.head, bias=False)
        self.gate, self.up, self.down = nn.Linear(dim, 48), nn.Linear(dim, 48), nn.Linear(48, dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids, labels):
        B, T = ids.shape
        angles = torch.arange(T, device=ids.device)[:, None] / 10 ** torch.arange(self.head // 2, device=ids.device)
        cos, sin = (f(torch.cat((angles, angles), -1)) for f in (torch.cos, torch.sin))
        x = self.embedding(ids)
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
        h = self.norm1(x)
        q = self.q(h).view(B, T, self.heads, self.head).transpose(1, 2)
        k, v = self.kv(h).view(B, T, 2 * self.groups, self.head).transpose(1, 2).chunk(2, dim=1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (one.repeat_interleave(self.heads // self.groups, dim=1) for one in (k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(B, T, -1))
        h = self.norm2(x)
        x = x + self.down(F.silu(self.gate(h)) * self.up(h))
        logits = self.out(x)
        loss = F.cross_entropy(logits.float().view(B * T, -1), labels.view(-1))
        return {"loss": loss, "logits": logits}


class Called(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(x, y)


def norm(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w[0]


def norm_spelled_otherwise(x, w):
    return w[0] * (x / torch.sqrt(1e-6 + x.square().sum(-1, keepdim=True) / 8))


def norm_of_a_sum(x, w):
    h = x + x
    return h * (h.pow(2).mean(-1, keepdim=True) + 1e-6) ** -0.5 * w[0]


def eps_outside(x, w):
    return x / (x.square().mean(-1, keepdim=True).sqrt() + 1e-6) * w[0]


def over_rows(x, w):
    return x * torch.rsqrt((x * x).mean(0, keepdim=True) + 1e-6) * w[0]


def of_a_sum(x, w):
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) * w[0]


def of_another(x, w):
    return x * torch.rsqrt((w * w).mean(-1, keepdim=True) + 1e-6) * w[0]


def plus_weight(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) + w[0]


def eps_of_a_length(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + x.shape[0] / 1e6) * w[0]


def divided_by_a_number(x, w):
    """Rows are as long as this in the example, but need not be."""
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) / 6 + 1e-6) * w[0]


def scores(x, y):
    return x @ y.transpose(-1, -2)


def causal(x, y):
    return F.scaled_dot_product_attention(x, y, y * 2, is_causal=True)


def causal_by_hand(x, y):
    m = torch.arange(x.shape[-2])[:, None] >= torch.arange(y.shape[-2])[None]
    return scores(x, y).mul(0.3).masked_fill(~m, float("-inf")).softmax(-1) @ (y * 2)


def causal_by_tril(x, y):
    m = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(x, y, y * 2, attn_mask=m)


def not_causal(x, y):
    return F.scaled_dot_product_attention(x, y, y * 2)


def a_window(x, y):
    i, j = torch.arange(x.shape[-2])[:, None], torch.arange(y.shape[-2])[None]
    return F.scaled_dot_product_attention(x, y, y * 2, attn_mask=(j <= i) & (j > i - 9))


def a_short_window(x, y):
    i, j = torch.arange(x.shape[-2])[:, None], torch.arange(y.shape[-2])[None]
    inside = (j <= i) & (i - j <= 2)
    return scores(x, y).mul(0.3).masked_fill(~inside, float("-inf")).softmax(-1) @ (y * 2)


def a_window_ahead(x, y):
    i, j = torch.arange(x.shape[-2])[:, None], torch.arange(y.shape[-2])[None]
    return F.scaled_dot_product_attention(x, y, y * 2, attn_mask=(j >= i) & (j < i + 9))


def backwards(x, y):
    m = torch.arange(x.shape[-2])[:, None] <= torch.arange(y.shape[-2])[None]
    return F.scaled_dot_product_attention(x, y, y * 2, attn_mask=m)


def softmax_over_queries(x, y):
    m = torch.arange(x.shape[-2])[:, None] >= torch.arange(y.shape[-2])[None]
    return scores(x, y).mul(0.3).masked_fill(~m, float("-inf")).softmax(-2) @ (y * 2)


def attend(x, mask, scale=0.5):
    return x + F.scaled_dot_product_attention(x, x * 2, x * 3, attn_mask=mask, scale=scale)


class Masked(nn.Module):
    """Its masks are made once, and leave padding out where there is some."""

    def forward(self, x, padding=None):
        T = x.shape[-2]
        i, j = torch.arange(T)[:, None], torch.arange(T)[None]
        causal, window = (one.expand(x.shape[0], 1, T, T) for one in (j <= i, (j <= i) & (i - j < 4)))
        if padding is not None:
            causal, window = causal & padding[:, None, None], window & padding[:, None, None]
        for mask in (window, causal, window):
            x = attend(x, mask)
        return x
