"""Scaled dot-product attention: scores, a softmax, and a weighted sum of values."""

from __future__ import annotations

from typing import Any

import torch

from ..building import Building
from ..expressions import Apply, Over, size
from ..refusals import Refusal
from ..table import operator
from ..values import Value
from .contractions import contracted


@operator("scaled_dot_product_attention")
def _attention(
    t: Building, q: Value, k: Value, v: Value, attn_mask: Value | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> Value:  # fmt: skip
    if dropout_p:
        raise Refusal("attention with dropout: the language has no random numbers", "call .eval()")
    if enable_gqa and q.rank > 2:
        k, v = (_shared_heads(t, one, q) for one in (k, v))
    rank = max(one.rank for one in (q, k, v))
    batch, *own = (range(rank - one, rank - 2) for one in (rank, q.rank, k.rank, v.rank))
    if q.rank == rank > 2:
        t.axes.wish(q.dims[-3], "H", 3)
    wishes = {"m": ("M", 2), "n": ("N", 2), "d": ("D", 2), "e": ("E", 2)}
    s = contracted(t, [(q, [*own[0], "m", "d"]), (k, [*own[1], "n", "d"])], [*batch, "m", "n"], wishes)
    factor = Apply("pow", (size(q.dims[-1]), t.number(-0.5))) if scale is None else t.number(scale)
    s = s.of(Apply("mul", (s.expr, factor)))
    s = t.line("s", _masked(t, s, attn_mask, is_causal))
    p = s.of(Apply("softmax", (s.expr, Over(s.dims[-1]))))
    return contracted(t, [(p, [*batch, "m", "n"]), (v, [*own[2], "n", "e"])], [*batch, "m", "e"], wishes)


def _shared_heads(t: Building, x: Value, q: Value) -> Value:
    """Keys or values (GQA), with each head repeated for the query heads that share it."""
    heads = q.dims[-3]
    groups = x.dims[-3]
    own, count = (t.axes.length(dim) for dim in (groups, heads))
    if own == count:
        return x
    outer, inner = t.axes.divide(heads, own, inner_fixed=True)
    t.axes.wish(outer, "G", 2)
    t.axes.wish(inner, "R", 2)
    if groups:
        t.axes.join(outer, groups)
    return x.with_dim(x.rank - 3, outer + inner)


def _masked(t: Building, s: Value, mask: Value | None, is_causal: bool) -> Value:
    if is_causal:
        rows, keys = s.dims[-2:]
        seen = Apply("le", (t.index(keys), t.index(rows)))
        s = t.apply("where", Value(seen, s.dims[-2:], torch.bool, torch.bool), s, float("-inf"))
    if mask is None:
        return s
    if mask.dtype == torch.bool:
        return t.apply("where", mask, s, float("-inf"))
    return t.apply("add", s, mask)
