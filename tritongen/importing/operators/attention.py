"""Scaled dot-product attention, as its scores and their weighted mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..expressions import Apply, Over
from ..refusals import Refusal
from ..table import operator
from ..values import Value
from .contractions import product

if TYPE_CHECKING:
    from ..building import Building


@operator("scaled_dot_product_attention")
def _attention(
    t: Building, q: Value, k: Value, v: Value, attn_mask: Value | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> Value:  # fmt: skip
    if dropout_p:
        raise Refusal("attention with dropout: the language has no random numbers", "call .eval()")
    if enable_gqa and q.rank > 2:
        k, v = (_shared_heads(t, one, q) for one in (k, v))
    k, v = _beside_queries(t, q, k, v)
    rows, keys, inside, columns = q.dims[-2], k.dims[-2], q.dims[-1], v.dims[-1]
    for dim, names in ((rows, "M"), (keys, "N"), (inside, "D"), (columns, "E")):
        t.axes.wish(dim, names, 2)
    t.axes.join(inside, k.dims[-1])
    t.axes.join(keys, v.dims[-2])
    batch = t.broadcast(*(one.of(dims=one.dims[:-2]) for one in (q, k, v)))
    if batch and batch[-1]:
        t.axes.wish(batch[-1], "H", 3)
    left = (*batch, rows, keys)
    s = product(t, q, k, [inside], left)
    factor = Apply("pow", (Apply("size", (Over(inside),)), t.number(-0.5))) if scale is None else t.number(scale)
    s = s.of(Apply("mul", (s.expr, factor)))
    s = t.line("s", _masked(t, s, attn_mask, is_causal))
    p = s.of(Apply("softmax", (s.expr, Over(keys))))
    return product(t, p, v, [keys], (*batch, rows, columns))


def _beside_queries(t: Building, q: Value, k: Value, v: Value) -> tuple[Value, Value]:
    """Keys and values of what queries are of too: another name for that axis."""
    rows = t.axes.atoms(q.dims[-2])
    if not rows or t.axes.atoms(k.dims[-2]) != rows:
        return k, v
    keys = t.renamed(k.dims[-2])
    k = t.moved(k, k.rank - 2, keys)
    return k, t.moved(v, v.rank - 2, keys) if t.axes.atoms(v.dims[-2]) == rows else v


def _shared_heads(t: Building, x: Value, q: Value) -> Value:
    """Keys or values, whose heads several of queries share."""
    heads = q.dims[-3]
    groups = x.dims[-3]
    own, count = (t.axes.length(t.axes.atoms(dim)) for dim in (groups, heads))
    if own == count:
        return x
    outer, inner = t.axes.divide(heads, own, inner_fixed=True)
    t.axes.wish(outer, "G", 2)
    t.axes.wish(inner, "R", 2)
    if groups:
        t.axes.join(outer, groups)
    return x.with_dim(x.rank - 3, outer + inner)


def _masked(t: Building, s: Value, mask: Value | None, is_causal: bool) -> Value:
    import torch

    if is_causal:
        rows, keys = s.dims[-2:]
        seen = Apply("le", (t.index(keys), t.index(rows)))
        s = t.apply("where", Value(seen, s.dims[-2:], torch.bool, torch.bool), s, float("-inf"))
    if mask is None:
        return s
    if mask.dtype == torch.bool:
        return t.apply("where", mask, s, float("-inf"))
    return t.apply("add", s, mask)
