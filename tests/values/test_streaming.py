"""Attention and its like: one kernel that stores no scores, and gradients that recompute them, beside a float64 oracle.

The oracle is torch's own of a formula that stands beside each spec, its gradient by autograd.
"""

from __future__ import annotations

import importlib
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")

import torch
from importing import built, runtime_module, runtime_of
from oracles import compare
from replaying import replay_interpreted

from tritongen.diagnostics.report import Mistakes
from tritongen.families.streaming.program import StreamingProgram
from tritongen.operator.compile import backward_of, forward_of, generate
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

F = torch.nn.functional
SIZES = {"...": 2, "B": 2, "H": 2, "G": 2, "R": 3, "M": 37, "F": 7, "N": 53, "D": 24, "E": 40, "K": 8, "P": 96}
QKV = "q:T[B, H, M, D]; k:T[B, H, N, D]; v:T[B, H, N, E]"
GROUPED = "q:T[B, (G R), M, D]; k:T[B, G, N, D]; v:T[B, G, N, E]"
MEAN = "\no = sum(softmax(s, N) * v, N)"
CAUSAL = "s = where(index(N) - size(N) <= index(M) - size(M), sum(q * k, D) * 0.25, -inf)"
BEHIND = "behind = index(M) - size(M) - (index(N) - size(N))\n"

Tensors = Callable[..., object]


@dataclass(frozen=True)
class Case:
    """Inputs, lines of [compute], and what torch computes; `steps` of the backward, of which `passes` stream.

    Of the gradients, `tiles` has the axes of scores; those that are `stored` are made of stored scores.
    """

    inputs: str
    compute: str
    torch: Tensors
    outputs: str = "o:q"
    by: str = "q k v"
    params: str = ""
    steps: int = 2
    passes: int = 2
    tiles: str = ""
    stored: str = ""

    def spec(self) -> Spec:
        pairs = [entry.split(":", 1) for entry in self.inputs.split("; ")]
        inputs = "\n".join(f'{name} = "{kind}"' for name, kind in pairs)
        lines = "\n".join('{} = "{}"'.format(*line.split(" = ", 1)) for line in self.compute.split("\n"))
        outputs = "\n".join('{} = "{}"'.format(*entry.split(":")) for entry in self.outputs.split("; "))
        by = ", ".join(f'"{name}"' for name in self.by.split())
        head = '[op]\nname = "attend"\nsummary = "Attends."\n[types]\nT = "float"\n'
        params = f"[params]\n{self.params}\n" if self.params else ""
        grad = f"[grad]\nwrt = [{by}]\n" if by else ""
        text = f"{head}[inputs]\n{inputs}\n{params}[compute]\n{lines}\n[outputs]\n{outputs}\n{grad}"
        return read_spec("attend.toml", text)

    def tensors(self, dtype: torch.dtype) -> list[torch.Tensor]:
        random = torch.Generator().manual_seed(0)
        made = []
        for entry in self.inputs.split("; "):
            kind, _, axes = entry.split(":", 1)[1].rstrip("]").partition("[")
            lengths = [_length(term) for term in axes.split(", ") if term]
            if kind.startswith("int"):
                made.append(torch.randint(0, 4, lengths, generator=random).sort(-1).values.to(getattr(torch, kind)))
            elif kind == "bool":
                made.append(torch.rand(lengths, generator=random) < 0.7)
            else:
                drawn = torch.randn(lengths, generator=random, dtype=torch.float64)
                made.append(drawn.to(dtype if kind == "T" else getattr(torch, kind)))
        return made


def _length(term: str) -> int:
    found = 1
    for axis in term.strip("()").split():
        found *= SIZES[axis]
    return found


def _behind(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    m, n = q.shape[-2], k.shape[-2]
    return torch.arange(m)[:, None] - m - torch.arange(n)[None, :] + n


def _scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ k.mT * 0.25


def _masked(s: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return s.masked_fill(~mask, -torch.inf)


def _limited(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    m, n = torch.arange(SIZES["M"]), torch.arange(SIZES["N"])
    mask = (n <= m[:, None] + 9) & (n <= 9 * limit[..., None])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None], scale=0.25)


def _by_head(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    of = torch.arange(SIZES["N"])
    s = _scores(q, k) - torch.arange(SIZES["H"])[:, None, None] * of
    return torch.softmax(_masked(s, of < limit[:, None, None, None] + 9), -1) @ v


def _causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=_behind(q, k) >= 0, scale=0.25)


def _full(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, scale=0.25)


def _grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return _causal(q, k.repeat_interleave(SIZES["R"], 1), v.repeat_interleave(SIZES["R"], 1))


def _positions_first(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return _grouped(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)


def _documents(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, of_q: torch.Tensor, of_k: torch.Tensor
) -> torch.Tensor:
    mask = (of_q[:, None, :, None] == of_k[:, None, None, :]) | (_behind(q, k) == 0)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.25)


def _sink(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    s = _masked(_scores(q, k), _behind(q, k) >= 0)
    more = sink[:, None, None].expand(*s.shape[:-1], 1).to(s.dtype)
    return torch.softmax(torch.cat((s, more), -1), -1)[..., :-1] @ v


def _divided(p: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return p @ v / (p.sum(-1, keepdim=True) + 1)


def _repeated(k: torch.Tensor) -> torch.Tensor:
    return k.repeat_interleave(SIZES["R"], 1)


def _of_their_own(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    slope: torch.Tensor,
    bias: torch.Tensor,
    scale: torch.Tensor,
    gate: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    n = torch.arange(SIZES["N"])
    s = _scores(q.transpose(1, 2), _repeated(k.transpose(1, 2))) * scale.flatten(0, 1)[:, None]
    s = s + (slope[:, None] * n)[:, None] + torch.arange(SIZES["R"]).repeat(SIZES["G"])[:, None, None] * bias
    o = torch.sigmoid(gate + slope[:, None, None]) * (torch.softmax(s, -1) @ _repeated(v.transpose(1, 2)))
    return o.transpose(1, 2), torch.logsumexp(s, -1)


def _sink_of_all(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    more = sink[:, None, None].expand(-1, SIZES["F"], 1)
    return torch.softmax(torch.cat((_scores(q, k), more), -1), -1)[..., :-1] @ v


def _of_lengths(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    mask = torch.arange(SIZES["N"]) <= 9 * length[:, None, None]
    return F.scaled_dot_product_attention(q, _repeated(k), _repeated(v), attn_mask=mask, scale=0.25)


def _relative(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    bias = table[:, torch.arange(SIZES["M"])[:, None] - torch.arange(SIZES["N"])[None, :] + SIZES["N"] - 1]
    return torch.softmax(_scores(q, k) + bias, -1) @ v


CASES = {
    "full": Case(QKV, f"s = sum(q * k, D) * 0.25{MEAN}", _full),
    "causal": Case(QKV, CAUSAL + MEAN, _causal),
    "leading_axes": Case(
        "q:T[..., M, D]; k:T[..., N, D]; v:T[..., N, E]".replace("...", "B, H"), CAUSAL + MEAN, _causal
    ),
    "one_head": Case("q:T[M, D]; k:T[N, D]; v:T[N, D]", CAUSAL + MEAN, _causal),
    "values_first": Case(
        "q:T[B, D, M]; k:T[B, N, D]; v:T[B, E, N]", CAUSAL + MEAN, lambda q, k, v: _causal(q.mT, k, v.mT)
    ),
    "window": Case(
        QKV,
        f"{BEHIND}s = where((behind >= 0) & (behind < window), sum(q * k, D) * 0.25, -inf){MEAN}",
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, attn_mask=(_behind(q, k) >= 0) & (_behind(q, k) < 20), scale=0.25
        ),
        params="window = 20",
    ),
    "softcap": Case(
        QKV,
        "x = 2.0 * tanh(sum(q * k, D) * 0.25 / 2.0)\ns = where(index(N) - size(N) <= index(M) - size(M), x, -inf)"
        + MEAN,
        lambda q, k, v: torch.softmax(_masked(2 * torch.tanh(_scores(q, k) / 2), _behind(q, k) >= 0), -1) @ v,
    ),
    "alibi": Case(
        f"{QKV}; slope:float32[H]",
        f"{BEHIND}s = where(behind >= 0, sum(q * k, D) * 0.25 - slope * behind, -inf){MEAN}",
        lambda q, k, v, slope: (
            torch.softmax(
                _masked(_scores(q, k) - slope[:, None, None].to(q.dtype) * _behind(q, k), _behind(q, k) >= 0), -1
            )
            @ v
        ),
    ),
    "documents": Case(
        f"{QKV}; of_q:int32[B, M]; of_k:int32[B, N]",
        f"{BEHIND}s = where((of_q == of_k) | (behind == 0), sum(q * k, D) * 0.25, -inf){MEAN}",
        _documents,
    ),
    "lengths": Case(
        f"{QKV}; length:int32[B]",
        f"s = where(index(N) <= 9 * length, sum(q * k, D) * 0.25, -inf){MEAN}",
        lambda q, k, v, length: F.scaled_dot_product_attention(
            q, k, v, attn_mask=torch.arange(SIZES["N"]) <= 9 * length[:, None, None, None], scale=0.25
        ),
    ),
    "limits": Case(
        f"{QKV}; limit:int32[B, M]",
        f"s = where((index(N) <= index(M) + 9) & (index(N) <= 9 * limit), sum(q * k, D) * 0.25, -inf){MEAN}",
        _limited,
    ),
    "scales": Case(
        f"{QKV}; scale:T[H]; common:T[]; weight:T[E]",
        "s = sum(q * k, D) * scale * common\no = sum(softmax(s, N) * v, N) * weight",
        lambda q, k, v, scale, common, weight: torch.softmax(q @ k.mT * scale[:, None, None] * common, -1) @ v * weight,
        by="q k v scale common weight",
        steps=6,
    ),
    "gradient_by_a_scale_alone": Case(
        f"{QKV}; scale:T[H]",
        f"s = sum(q * k, D) * scale{MEAN}",
        lambda q, k, v, scale: torch.softmax(q @ k.mT * scale[:, None, None], -1) @ v,
        by="scale",
        passes=1,
    ),
    "gradient_by_slopes": Case(
        f"{QKV}; slope:T[H]",
        f"{BEHIND}s = where(behind >= 0, sum(q * k, D) * 0.25 - slope * behind, -inf){MEAN}",
        lambda q, k, v, slope: (
            torch.softmax(_masked(_scores(q, k) - slope[:, None, None] * _behind(q, k), _behind(q, k) >= 0), -1) @ v
        ),
        by="q k v slope",
        steps=3,
    ),
    "gradient_by_a_cap": Case(
        f"{QKV}; cap:T[]",
        f"s = cap * tanh(sum(q * k, D) * 0.25 / cap){MEAN}",
        lambda q, k, v, cap: torch.softmax(cap * torch.tanh(_scores(q, k) / cap), -1) @ v,
        by="q k v cap",
        steps=3,
    ),
    "gradient_by_a_decay": Case(
        f"{QKV}; decay:T[H]",
        f"{BEHIND}p = where(behind >= 0, sum(q * k, D) * exp(-decay * decay * behind), 0.0)\no = sum(p * v, N)",
        lambda q, k, v, decay: (
            q @ k.mT * torch.exp(-(decay[:, None, None] ** 2) * _behind(q, k)).masked_fill(_behind(q, k) < 0, 0.0) @ v
        ),
        by="q k v decay",
        steps=3,
    ),
    "gradient_by_a_bias_of_keys": Case(
        f"{QKV}; bias:T[H, N]; all:T[B, N]",
        f"s = sum(q * k, D) * 0.25 + bias + all{MEAN}",
        lambda q, k, v, bias, every: torch.softmax(_scores(q, k) + bias[:, None] + every[:, None, None], -1) @ v,
        by="q k v bias all",
        steps=4,
    ),
    "gradient_by_scales_of_groups": Case(
        f"{GROUPED}; scale:T[G]; bias:T[G, N]",
        f"{CAUSAL.replace('0.25', 'scale + bias')}{MEAN}",
        lambda q, k, v, scale, bias: (
            torch.softmax(
                _masked(
                    q @ k.repeat_interleave(3, 1).mT * scale.repeat_interleave(3)[:, None, None]
                    + bias.repeat_interleave(3, 0)[:, None],
                    _behind(q, k) >= 0,
                ),
                -1,
            )
            @ v.repeat_interleave(3, 1)
        ),
        outputs="o:q[B, (G R), M, E]",
        by="q k v scale bias",
        steps=5,
        passes=3,
    ),
    "boolean_mask": Case(
        f"{QKV}; mask:bool[B, M, N]",
        f"s = where(mask, sum(q * k, D) * 0.25, -inf){MEAN}",
        lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None], scale=0.25),
    ),
    "bias": Case(
        f"{QKV}; bias:T[H, M, N]",
        f"s = sum(q * k, D) * 0.25 + bias{MEAN}",
        lambda q, k, v, bias: F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None], scale=0.25),
    ),
    "gradient_by_the_bias": Case(
        f"{QKV}; bias:T[H, M, N]",
        f"s = sum(q * k, D) * 0.25 + bias{MEAN}",
        lambda q, k, v, bias: F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None], scale=0.25),
        by="q k v bias",
        steps=3,
        passes=3,
        tiles="dbias",
    ),
    "gradient_by_a_bias_alone": Case(
        f"{QKV}; bias:T[B, M, N]",
        f"s = sum(q * k, D) * 0.25 + bias{MEAN}",
        lambda q, k, v, bias: F.scaled_dot_product_attention(q, k, v, attn_mask=bias[:, None], scale=0.25),
        by="bias",
        tiles="dbias",
        passes=1,
    ),
    "gradient_by_a_bias_of_all": Case(
        f"{QKV}; bias:T[M, N]",
        f"{CAUSAL.replace('0.25', '0.25 + bias')}{MEAN}",
        lambda q, k, v, bias: F.scaled_dot_product_attention(
            q, k, v, attn_mask=_masked(bias, _behind(q, k) >= 0), scale=0.25
        ),
        by="q k v bias",
        steps=3,
        passes=3,
        tiles="dbias",
    ),
    "gradient_by_a_bias_of_its_own": Case(
        f"{QKV}; bias:T[B, H, M, N]",
        f"{BEHIND}s = where((behind >= 0) & (behind < 20), sum(q * k, D) * 0.25 + bias, -inf){MEAN}",
        lambda q, k, v, bias: F.scaled_dot_product_attention(
            q, k, v, attn_mask=_masked(bias, (_behind(q, k) >= 0) & (_behind(q, k) < 20)), scale=0.25
        ),
        by="q k v bias",
        steps=3,
        passes=3,
        tiles="dbias",
    ),
    "gradient_by_weights_of_scores": Case(
        f"{GROUPED}; weight:T[G, M, N]; gate:T[B, (G R), M, E]",
        "behind = index(M) - size(M) - (index(N) - size(N))\ns = where((behind >= 0) & (behind < 20), "
        "sum(q * k, D) * weight, -inf)\no = sigmoid(gate) * sum(softmax(s, N) * v, N)",
        lambda q, k, v, weight, gate: (
            torch.sigmoid(gate)
            * (
                torch.softmax(
                    _masked(
                        q @ _repeated(k).mT * weight.repeat_interleave(SIZES["R"], 0),
                        (_behind(q, k) >= 0) & (_behind(q, k) < 20),
                    ),
                    -1,
                )
                @ _repeated(v)
            )
        ),
        outputs="o:q[B, (G R), M, E]",
        by="q k v weight gate",
        steps=4,
        passes=3,
        tiles="dweight",
    ),
    "gradient_by_a_bias_of_leading_axes": Case(
        "q:T[..., M, D]; k:T[..., N, D]; v:T[..., N, E]; bias:T[M, N]",
        f"s = sum(q * k, D) * 0.25 + bias{MEAN}",
        lambda q, k, v, bias: F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.25),
        by="q k v bias",
        steps=3,
        tiles="dbias",
        stored="dbias",
    ),
    "heads_that_share_keys": Case(GROUPED, CAUSAL + MEAN, _grouped, outputs="o:q[B, (G R), M, E]"),
    "few_rows": Case(
        "q:T[B, (G R), F, D]; k:T[B, G, N, D]; v:T[B, G, N, E]",
        CAUSAL.replace("M", "F") + MEAN,
        _grouped,
        outputs="o:q[B, (G R), F, E]",
    ),
    "few_rows_of_heads_of_their_own": Case(
        "q:T[B, F, (G R), D]; k:T[B, N, G, D]; v:T[B, N, G, E]; slope:float32[(G R)]; bias:T[(G R), F, N];"
        " scale:T[G, R, N]; gate:T[B, (G R), F, E]",
        "s = scale * sum(q * k, D) * 0.25 + slope * index(N) + index(R) * bias\nlse = logsumexp(s, N)"
        "\no = sigmoid(gate + slope) * sum(softmax(s, N) * v, N)",
        _of_their_own,
        outputs="o:q[B, F, (G R), E]; lse:q[B, (G R), F]",
        by="",
    ),
    "few_rows_of_one_key_head": Case(
        "q:T[H, F, D]; k:T[N, D]; v:T[N, E]; sink:float32[H]",
        "s = sum(q * k, D) * 0.25\nm = maximum(max(s, N), sink)\ne = exp(s - m)"
        "\no = sum(e * v, N) / (sum(e, N) + exp(sink - m))",
        _sink_of_all,
        outputs="o:q",
        by="",
    ),
    "few_rows_of_documents": Case(
        "q:T[B, (G R), F, D]; k:T[B, G, N, D]; v:T[B, G, N, E]; of_q:int32[B, F]; of_k:int32[B, N]",
        f"s = where(of_q == of_k, sum(q * k, D) * 0.25, -inf){MEAN}",
        lambda q, k, v, of_q, of_k: F.scaled_dot_product_attention(
            q,
            _repeated(k),
            _repeated(v),
            attn_mask=of_q[:, None, :, None] == of_k[:, None, None, :],
            scale=0.25,
        ),
        outputs="o:q[B, (G R), F, E]",
        by="",
    ),
    "few_rows_of_lengths_of_heads": Case(
        "q:T[B, (G R), F, D]; k:T[B, G, N, D]; v:T[B, G, N, E]; length:int32[(G R)]",
        f"s = where(index(N) <= 9 * length, sum(q * k, D) * 0.25, -inf){MEAN}",
        _of_lengths,
        outputs="o:q[B, (G R), F, E]",
        by="",
    ),
    "positions_before_heads": Case(
        "q:T[B, M, (G R), D]; k:T[B, N, G, D]; v:T[B, N, G, D]", CAUSAL + MEAN, _positions_first
    ),
    "numbers_of_positions_before_heads": Case(
        "q:T[B, M, H, D]; k:T[B, N, H, D]; v:T[B, N, H, E]; slope:float32[M, H]; bias:float32[B, N]",
        f"s = sum(q * k, D) * 0.25 * slope + bias{MEAN}",
        lambda q, k, v, slope, bias: (
            torch.softmax(_scores(q.transpose(1, 2), k.transpose(1, 2)) * slope.T[:, :, None] + bias[:, None, None], -1)
            @ v.transpose(1, 2)
        ).transpose(1, 2),
        outputs="o:q[B, M, H, E]",
    ),
    "scores_of_two_matmuls": Case(
        f"{QKV}; qk:T[B, H, M, K]; kk:T[B, N, K]",
        f"s = (sum(q * k, D) + sum(qk * kk, K)) * 0.25{MEAN}",
        lambda q, k, v, qk, kk: torch.softmax(_scores(q, k) + _scores(qk, kk[:, None]), -1) @ v,
    ),
    "exponentials_by_hand": Case(
        QKV,
        f"{CAUSAL}\ne = exp(s - max(s, N))\no = sum(e * v, N) / sum(e, N)",
        _causal,
    ),
    "probabilities_by_lse": Case(QKV, f"{CAUSAL}\nlse = logsumexp(s, N)\no = sum(exp(s - lse) * v, N)", _causal),
    "lse_beside": Case(
        QKV,
        f"s = sum(q * k, D) * 0.25\nlse = logsumexp(s, N){MEAN}",
        lambda q, k, v: (_full(q, k, v), torch.logsumexp(_scores(q, k), -1)),
        outputs="o:q; lse:q",
    ),
    "sigmoid": Case(
        QKV,
        "p = where(index(N) <= index(M), sigmoid(sum(q * k, D) * 0.25), 0.0)\no = sum(p * v, N)",
        lambda q, k, v: (torch.sigmoid(_scores(q, k)) * torch.ones(SIZES["M"], SIZES["N"]).tril()) @ v,
    ),
    "linear": Case(
        QKV,
        "p = where(index(N) <= index(M), sum(q * k, D) * 0.25, 0.0)\no = sum(p * v, N)",
        lambda q, k, v: (_scores(q, k) * torch.ones(SIZES["M"], SIZES["N"]).tril()) @ v,
    ),
    "linear_with_a_gate": Case(
        f"{QKV}; gate:T[B, H, M, E]",
        "p = where(index(N) <= index(M), sum(q * k, D) * 0.25, 0.0)\no = sum(p * v, N) * gate",
        lambda q, k, v, gate: (_scores(q, k) * torch.ones(SIZES["M"], SIZES["N"]).tril()) @ v * gate,
        by="q k v gate",
        steps=3,
    ),
    "linear_with_a_divisor": Case(
        QKV,
        "p = where(index(N) <= index(M), square(sum(q * k, D)), 0.0)\no = sum(p * v, N) / (sum(p, N) + 1.0)",
        lambda q, k, v: _divided((q @ k.mT).square() * torch.ones(SIZES["M"], SIZES["N"]).tril(), v),
        steps=3,
    ),
    "sink": Case(
        f"{QKV}; sink:T[H]",
        f"{CAUSAL}\nm = maximum(max(s, N), sink)\ne = exp(s - m)\no = sum(e * v, N) / (sum(e, N) + exp(sink - m))",
        _sink,
        by="q k v sink",
        steps=3,
    ),
    "relative_positions": Case(
        f"{QKV}; table:float32[H, P]",
        f"s = sum(q * k, D) * 0.25 + take(table, index(M) - index(N) + size(N) - 1, P){MEAN}",
        _relative,
        by="",
    ),
    "gate": Case(
        f"{QKV}; gate:T[B, H, M, E]",
        "s = sum(q * k, D) * 0.25\no = sigmoid(gate) * sum(softmax(s, N) * v, N)",
        lambda q, k, v, gate: torch.sigmoid(gate) * _full(q, k, v),
        by="q k v gate",
        steps=3,
    ),
    "gradient_by_a_gate_alone": Case(
        f"{QKV}; gate:T[B, H, M, E]",
        f"{CAUSAL}\no = sigmoid(gate) * sum(softmax(s, N) * v, N)",
        lambda q, k, v, gate: torch.sigmoid(gate) * _causal(q, k, v),
        by="gate",
        steps=1,
        passes=0,
    ),
    "gate_and_sink": Case(
        f"{QKV}; gate:T[B, H, M, E]; sink:T[H]",
        f"{CAUSAL}\nm = maximum(max(s, N), sink)\ne = exp(s - m)\n"
        "o = sigmoid(gate) * sum(e * v, N) / (sum(e, N) + exp(sink - m))",
        lambda q, k, v, gate, sink: torch.sigmoid(gate) * _sink(q, k, v, sink),
        by="q k v gate sink",
        steps=4,
    ),
    "sink_in_lse": Case(
        f"{QKV}; sink:T[H]",
        f"{CAUSAL}\nlse = logaddexp(logsumexp(s, N), sink)\no = sum(exp(s - lse) * v, N)",
        _sink,
        by="q k v sink",
        steps=3,
    ),
    "sink_as_gate": Case(
        f"{QKV}; sink:T[H]",
        f"{CAUSAL}\na = sum(softmax(s, N) * v, N)\no = a * sigmoid(logsumexp(s, N) - sink)",
        _sink,
        by="q k v sink",
        steps=3,
    ),
    "weight_and_residual": Case(
        f"{QKV}; x:T[B, H, M, E]; weight:T[E]",
        f"{CAUSAL}\na = sum(softmax(s, N) * v, N)\no = a * weight + x",
        lambda q, k, v, x, weight: _causal(q, k, v) * weight + x,
        by="q k v x weight",
        steps=4,
    ),
    "mean_and_lse_beside": Case(
        f"{QKV}; gate:T[B, H, M, E]",
        "s = sum(q * k, D) * 0.25\na = sum(softmax(s, N) * v, N)\no = a * gate\nlse = logsumexp(s, N)",
        lambda q, k, v, gate: (_full(q, k, v) * gate, _full(q, k, v), torch.logsumexp(_scores(q, k), -1)),
        outputs="o:q; a:q; lse:q",
        by="q k v gate",
        steps=3,
    ),
    "two_means": Case(
        f"{QKV}; w:T[B, H, N, K]; gate:T[B, H, M, K]",
        "s = sum(q * k, D) * 0.25\np = softmax(s, N)\no = sum(p * v, N)\nu = sum(p * w, N) * gate",
        lambda q, k, v, w, gate: (_full(q, k, v), _full(q, k, w) * gate),
        outputs="o:q; u:q",
        by="q k v w gate",
        steps=3,
    ),
    "positions_of_heads": Case(
        "q:T[B, H, M, D]; k:T[B, H, N, D]; v:T[B, H, N, E]; limit:int32[B]",
        "s = where(index(N) < limit + 9, sum(q * k, D) * 0.25 - index(H) * index(N), -inf)" + MEAN,
        _by_head,
    ),
    "taken_weights": Case(
        "q:T[B, H, M, D]; k:T[B, H, N, D]; w:float32[F]; kind:int32[B, N]",
        "s = sum(q * k, D) * 0.25\no = sum(softmax(s, N) * take(w, kind, F), N)",
        lambda q, k, w, kind: (torch.softmax(_scores(q, k), -1) @ w.to(q.dtype)[kind.long()][:, None, :, None])[..., 0],
        outputs="o:q[B, H, M]",
        by="",
    ),
    "names_of_gradients": Case(
        "q:T[B, H, M, D]; delta:T[B, H, N, D]; dp:T[B, H, N, E]; p:T[H]",
        "ds = sum(q * delta, D) * 0.25 + p\no = sum(softmax(ds, N) * dp, N)",
        lambda q, k, v, p: _full(q, k, v),
        by="q delta dp",
    ),
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType], None]:
    """Has kernels take small tiles, of which there are several."""

    def force(operator: ModuleType) -> None:
        heuristics = runtime_of(operator, "heuristics")
        tile = heuristics.streamed_tile(16, 16, 4, 1)
        monkeypatch.setattr(heuristics.Streamed, "choose", lambda *_: tile)

    return force


@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tmp_path: Path, small: Callable[[ModuleType], None]) -> None:
    """In float64 to its last digits, so that no block is left out, and in float32."""
    case = CASES[name]
    operator = built(case.spec(), tmp_path)
    small(operator)
    places = [[entry.split(":")[0] for entry in case.inputs.split("; ")].index(one) for one in case.by.split()]
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 2e-4)):
        compare(operator.attend, case.torch, case.tensors(dtype), places, tolerance)


@pytest.mark.parametrize(("name", "n_splits"), [*zip(CASES, itertools.cycle((3, 7)), strict=False)])
def test_values_of_splits(
    name: str, n_splits: int, tmp_path: Path, small: Callable[[ModuleType], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of blocks that programs split among themselves, evenly or so that some have none."""
    case = replace(CASES[name], by="")
    operator = built(case.spec(), tmp_path)
    small(operator)
    monkeypatch.setattr(runtime_of(operator, "heuristics"), "choose_stream_splits", lambda *_: n_splits)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 2e-4)):
        given = case.tensors(dtype)
        wide = [one.double() if one.is_floating_point() else one for one in given]
        found, wanted = operator.attend(*given), case.torch(*wide)
        pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
        for one, other in pairs:
            torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance)


@pytest.fixture
def by_tma(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType], list[int]]:
    """Has gradients read blocks by descriptors where these are possible; how many each launch has."""

    def force(operator: ModuleType) -> list[int]:
        counts: list[int] = []
        tma = runtime_of(operator, "streaming_tma")
        dims_of_blocks = tma.dims_of_blocks

        def spy(*given: object) -> object:
            found = dims_of_blocks(*given)
            counts.append(0 if found is None else len(found))
            return found

        monkeypatch.setattr(tma, "dims_of_blocks", spy)
        monkeypatch.setattr(runtime_of(operator, "heuristics"), "use_descriptors", lambda *_: True)
        return counts

    return force


@pytest.mark.parametrize(
    ("name", "counts"),
    {
        "causal": [2],
        "window": [2],
        "scales": [2],
        "heads_that_share_keys": [2],
        "scores_of_two_matmuls": [3],
        "sink": [2],
        "gate": [2],
        "sigmoid": [2],
        "values_first": [1],
        "numbers_of_positions_before_heads": [2],
        "positions_before_heads": [2],
        "one_head": [],
    }.items(),
)
def test_values_by_descriptors(
    name: str,
    counts: list[int],
    tmp_path: Path,
    small: Callable[[ModuleType], None],
    by_tma: Callable[[ModuleType], list[int]],
) -> None:
    """Gradients whose blocks TMA reads, of widths and lengths that no tile divides."""
    case = CASES[name]
    operator = built(case.spec(), tmp_path)
    small(operator)
    found = by_tma(operator)
    places = [[entry.split(":")[0] for entry in case.inputs.split("; ")].index(one) for one in case.by.split()]
    compare(operator.attend, case.torch, case.tensors(torch.float16), places, 4e-3)
    assert found == counts


@pytest.mark.parametrize(
    ("laid_out", "count"),
    [
        (lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), 2),
        (lambda x: x[:, :1].expand(-1, 2, -1, -1), 2),
        (lambda x: torch.cat([x, x[..., :4]], -1)[..., :24], 0),
        (lambda x: torch.cat([x, x], -1)[..., 4:28], 0),
        (lambda x: x.mT.contiguous().mT, 0),
    ],
    ids=["rows before heads", "one for all heads", "rows 56 bytes apart", "unaligned", "columns"],
)
def test_layouts_that_tma_steps_through(
    laid_out: Callable[[torch.Tensor], torch.Tensor],
    count: int,
    tmp_path: Path,
    by_tma: Callable[[ModuleType], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twice, where the second call launches what the first did on tensors of its own."""
    operator = built(CASES["causal"].spec(), tmp_path)
    found = by_tma(operator)
    launch = runtime_of(operator, "launch")
    replay_interpreted(launch, monkeypatch)
    random = torch.Generator().manual_seed(0)
    for _ in range(2):
        q, k, v = (laid_out(torch.randn((2, 2, n, 24), generator=random).half()) for n in (37, 53, 53))
        compare(operator.attend, _causal, [q, k, v], [0, 1, 2], 4e-3)
        assert found == [count]
    assert len(launch.Launches.known) == 3


def test_gradients_of_groups_whose_keys_have_fewer_leading_axes(tmp_path: Path) -> None:
    """Keys tell how many heads are in a group, and not the leading axes."""
    inputs = GROUPED.replace("B, ", "..., ")
    case = replace(CASES["heads_that_share_keys"], inputs=inputs, outputs="o:q[..., (G R), M, E]")
    operator = built(case.spec(), tmp_path)
    q, k, v = CASES["heads_that_share_keys"].tensors(torch.float64)
    compare(operator.attend, lambda q, k, v: _grouped(q, k[None], v[None]), [q, k[0], v[0]], [0, 1, 2], 1e-9)


def test_tiles_whose_blocks_tma_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What streams past keys and values has the registers that addresses would take."""
    operator = built(CASES["causal"].spec(), tmp_path)
    monkeypatch.setattr(runtime_of(operator, "heuristics"), "shared_memory", lambda _: 232_448)
    configs = importlib.import_module(f"{operator.__name__}.configs")

    def rows(table: Any, itemsize: int, is_described: bool) -> int:
        widths = (128, 128)
        config = table.choose(4096, widths, widths, itemsize, torch.device("cpu"), is_described)
        return int(config.kwargs["BLOCK_M"])

    assert [rows(configs.STREAMED_DK_DV, 2, by_tma) for by_tma in (False, True)] == [128, 64]
    assert [rows(configs.STREAMED_DQ, 2, by_tma) for by_tma in (False, True)] == [128, 128]
    assert [rows(configs.STREAMED_DK_DV, 4, by_tma) for by_tma in (False, True)] == [16, 16]


@pytest.mark.parametrize(
    ("batch", "shape"),
    [((2, 3), (2, 3, 5, 7, 16)), ((2, 3, 1), (2, 3, 5, 7, 16)), ((2, 3, 4), None)],
)
def test_dimensions_that_tma_steps_through(batch: tuple[int, ...], shape: tuple[int, ...] | None) -> None:
    """Five: the last of the batch is left out where it has a length of 1."""
    tensor = torch.empty((*batch, 5, 7, 16), dtype=torch.float16)
    found = runtime_module("streaming_tma").dims_of(tensor, tensor.stride(), batch)
    assert found == (shape and (shape, (1680, 560, 112, 16, 1)))


@pytest.mark.parametrize("given", [True, False])
def test_an_optional_table_of_relative_positions(
    given: bool, tmp_path: Path, small: Callable[[ModuleType], None]
) -> None:
    """That is read at computed positions, and only where a caller has one."""
    case = CASES["relative_positions"]
    optional = case.inputs.replace("P]", "P=96] = 0")
    operator = built(replace(case, inputs=optional).spec(), tmp_path)
    small(operator)
    *qkv, table = case.tensors(torch.float64)
    found = operator.attend(*qkv, table) if given else operator.attend(*qkv)
    torch.testing.assert_close(found, case.torch(*qkv, table) if given else _full(*qkv), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_no_scores_are_stored(name: str) -> None:
    """By the forward, nor by its gradient but where that says so: no tensor has both rows and what streams."""
    case = CASES[name]
    spec = case.spec()
    forward = forward_of(spec)
    assert isinstance(forward.program, StreamingProgram)
    backward = backward_of(spec, forward)
    if backward is None:
        return
    assert isinstance(backward.forward.program, StreamingProgram)
    steps = backward.plan.steps
    assert len(steps) == case.steps
    assert sum(isinstance(step.program, StreamingProgram) for step in steps) == case.passes
    for step in (backward.forward, *(step for step in steps if step.op.results[0].output.name != case.stored)):
        for one in step.family.steps(step.program) or (step,):
            scores = [result.output.name for result in one.op.results if {"M", "N"} <= set(result.axes)]
            assert scores in ([], [case.tiles])


def test_what_follows_the_mean_is_one_pass_over_rows() -> None:
    """Its gradient reads and writes whole rows, though it sums them up: no columns are summed."""
    spec = CASES["gate"].spec()
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    before, *_ = backward.plan.steps
    assert [result.output.name for result in before.op.results] == ["dmean", "delta", "dgate"]
    assert before.family.rows(before.program) == ("B", "H", "M")


def test_a_sink_of_rows_that_are_masked_as_a_whole(tmp_path: Path) -> None:
    """Such rows are 0 and have no gradient: all that they have is the sink's."""
    operator = built(CASES["sink"].spec(), tmp_path)
    q, k, v, sink = (one.requires_grad_() for one in CASES["sink"].tensors(torch.float64))
    results = []
    for compute in (operator.attend, _sink):
        o = compute(q, k[:, :, :20], v[:, :, :20], sink)
        results.append((o, *torch.autograd.grad(o, (q, k, v, sink), torch.ones_like(o))))
    assert not results[0][0][:, :, : SIZES["M"] - 20].any()
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("tiles", "n_cols", "n_splits"),
    [
        (128, 131072, 1),
        (8, 131072, 16),
        (8, 8192, 16),
        (8, 4096, 8),
        (8, 960, 1),
        (8, 0, 1),
        (50, 8192, 3),
        (1, 10**7, 132),
    ],
)
def test_splits_are_about_as_many_as_fill_the_sms(tiles: int, n_cols: int, n_splits: int) -> None:
    """Of 132, as an H100 has, with eight blocks or more each."""
    heuristics = runtime_module("heuristics")
    config = heuristics.streamed_tile(16, 64, 4, 3)
    assert heuristics.choose_stream_splits(tiles, n_cols, config, torch.device("cpu")) == n_splits


@pytest.mark.parametrize("n_splits", [1, 3])
def test_rows_that_are_masked_as_a_whole(n_splits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are NaN, as torch's softmax is, and others are not; so is lse minus infinity."""
    case = Case(QKV, f"{CAUSAL}\nlse = logsumexp(s, N){MEAN}", _causal, outputs="o:q; lse:float32", by="")
    q, k, v = case.tensors(torch.float32)
    k, v = k[:, :, :20], v[:, :, :20]
    operator = built(case.spec(), tmp_path)
    monkeypatch.setattr(runtime_of(operator, "heuristics"), "choose_stream_splits", lambda *_: n_splits)
    o, lse = operator.attend(q, k, v)
    masked = torch.arange(SIZES["M"]) < SIZES["M"] - 20
    assert torch.equal(o.isnan().all(-1), masked.expand(2, 2, -1))
    assert torch.equal(lse == -torch.inf, masked.expand(2, 2, -1))
    wanted = _causal(q[:, :, -20:].double(), k.double(), v.double())
    torch.testing.assert_close(o[:, :, -20:].double(), wanted, rtol=2e-4, atol=2e-4)


def test_blocks_of_other_documents_are_skipped(tmp_path: Path, small: Callable[[ModuleType], None]) -> None:
    """Forward and backward, by numbers in any order: what streams beyond the document's blocks is never multiplied."""
    case = Case(
        f"{QKV}; of_q:int32[B, M]; of_k:int32[B, N]",
        f"s = where((of_q == of_k) & (index(N) <= index(M)), sum(q * k, D) * 0.25, -inf){MEAN}",
        _documents,
    )
    operator = built(case.spec(), tmp_path)
    small(operator)
    q, k, v = (torch.randn(2, 2, 48, 24, dtype=torch.float64, requires_grad=True) for _ in range(3))
    documents = torch.tensor([[7, 3, 5], [1, 9, 0]], dtype=torch.int32).repeat_interleave(16, 1)
    seed = torch.randn(2, 2, 48, 24, dtype=torch.float64)
    mask = (documents[:, None, :, None] == documents[:, None, None]) & (_behind(q, k) >= 0)
    wanted = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.25)
    gradients = torch.autograd.grad(wanted, (q, k, v), seed)
    for document in range(3):
        others = torch.arange(48) // 16 != document
        spoiled = (one.detach().masked_fill(others[:, None], torch.nan).requires_grad_() for one in (q, k, v))
        leaves = tuple(spoiled)
        o = operator.attend(*leaves, documents, documents)
        found = torch.autograd.grad(o, leaves, seed.masked_fill(others[:, None], torch.nan))
        for one, other in zip((o, *found), (wanted, *gradients), strict=True):
            torch.testing.assert_close(one[:, :, ~others], other[:, :, ~others])


def test_blocks_of_a_document_end_where_the_mask_does(tmp_path: Path, small: Callable[[ModuleType], None]) -> None:
    """What is past the diagonal is never multiplied, though it is of the same document."""
    inputs = f"{QKV}; of_q:int32[B, M]; of_k:int32[B, N]"
    condition = "(of_q == of_k) & (index(N) <= index(M))"
    case = Case(inputs, f"s = where({condition}, sum(q * k, D) * 0.25, -inf){MEAN}", _documents, by="")
    operator = built(case.spec(), tmp_path)
    small(operator)
    q, k, v = (torch.randn(2, 2, 48, 24, dtype=torch.float64) for _ in range(3))
    document = torch.zeros(2, 48, dtype=torch.int32)
    spoiled = v.masked_fill(torch.arange(48)[:, None] >= 16, torch.nan)
    found = operator.attend(q, k, spoiled, document, document)[:, :, :16]
    torch.testing.assert_close(found, _causal(q, k, v)[:, :, :16])


def test_layers_of_a_perceptron_are_no_attention() -> None:
    """What is multiplied there is wider than a tile."""
    case = Case("x:T[B, D]; w:T[N, D]; v:T[N, E]", "h = gelu(sum(x * w, D))\no = sum(h * v, N)", _full, "o:x", by="")
    assert not isinstance(forward_of(case.spec()).program, StreamingProgram)


@pytest.mark.parametrize("schedule", ["autotune = true", "block_m = 8", "block_n = 8"])
def test_a_schedule_that_no_kernel_has_is_refused(schedule: str) -> None:
    text = (Path(__file__).parents[2] / "specs" / "attention.toml").read_text(encoding="utf-8")
    with pytest.raises(Mistakes, match=r"autotuned|at least 16"):
        forward_of(read_spec("attention.toml", f"{text}\n[schedule]\n{schedule}\n"))
    forward_of(read_spec("attention.toml", f"{text}\n[schedule]\nblock_m = 32\nnum_stages = 2\n"))


def test_whole_blocks_take_no_mask(tmp_path: Path) -> None:
    """Those of a causal mask are told apart, and those that it masks away are skipped."""
    built(CASES["causal"].spec(), tmp_path)
    text = (tmp_path / "attend" / "kernels.py").read_text()
    assert text.count("blocks_from_start(") == 2
    assert text.count("blocks_between(") == 1
    for line in text.splitlines():
        if "tl.where(" in line:
            assert line.startswith(" " * 16)  # under an `if`


def test_blocks_are_told_by_what_is_the_same_in_a_tile() -> None:
    """Beside what differs from row to row, which each block is masked by."""
    text = generate(CASES["limits"].spec())["kernels.py"]
    assert "bounds = blocks_from_start(tl.minimum(first_row + 10, n_cols), " in text


def test_whole_blocks_compute_what_is_not_implied() -> None:
    """Of a condition, that is the part by documents; the other is computed in masked blocks alone."""
    condition = "(index(N) <= index(M)) & (of_q == of_k)"
    inputs = f"{QKV}; of_q:int32[B, M]; of_k:int32[B, N]"
    case = Case(inputs, f"s = where({condition}, sum(q * k, D) * 0.25, -inf){MEAN}", _documents)
    text = generate(case.spec())["kernels.py"]
    assert "s = tl.where(of_q == of_k, s_sum * 0.25, float('-inf'))" in text
    for line in text.splitlines():
        if "tl.where(" in line and "<=" in line:
            assert line.startswith(" " * 16)  # under an `if`


def test_an_exponential_of_several_sums_is_one_line() -> None:
    """That of a sink is of the dtype of two inputs in one sum, and of three in the other."""
    forward, _ = generate(CASES["sink_in_lse"].spec())["kernels.py"].split("def attend_reduce_kernel")
    assert forward.count("exp_of(s, shift)") == 1


@pytest.mark.parametrize("name", ["heads_that_share_keys", "gradient_by_the_bias"])
def test_turns_that_are_far_apart(
    name: str, tmp_path: Path, small: Callable[[ModuleType], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads of a group and the batch are summed in turn, also where int32 does not hold where the last one is."""
    for axis, size in {"B": 3 if "bias" in name else 1, "G": 1, "H": 1, "M": 4, "N": 4, "D": 16, "E": 16}.items():
        monkeypatch.setitem(SIZES, axis, size)
    case = CASES[name]
    operator = built(case.spec(), tmp_path)
    small(operator)
    q, *others = case.tensors(torch.float16)
    step = 2**30
    apart = torch.empty(2 * step + q.numel(), dtype=q.dtype)
    strides = (step, 0, 16, 1) if "bias" in name else (0, step, 16, 1)
    results = []
    for one in (q, apart.as_strided(q.shape, strides).copy_(q)):
        leaves = [leaf.detach().requires_grad_() for leaf in (one, *others)]
        o = operator.attend(*leaves)
        results.append(torch.autograd.grad(o, leaves, torch.ones_like(o)))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("dtype", "rtol", "atol"), [(torch.float32, 1e-6, 0.0), (torch.float16, 0.0, 1.2e-5), (torch.float64, 1e-14, 0.0)]
)
def test_a_cap_of_scores(dtype: torch.dtype, rtol: float, atol: float, tmp_path: Path) -> None:
    """Its tanh is exact to the last digits, and of half precision as exact as an exponential of it is rounded."""
    compute = f"s = 30.0 * tanh(sum(q * k, D) / 30.0)\nlse = logsumexp(s, N){MEAN}"
    outputs = f"o:q; lse:{'float64' if dtype == torch.float64 else 'float32'}"
    operator = built(Case(QKV, compute, _full, outputs=outputs, by="").spec(), tmp_path)
    q, k = torch.zeros(1, 1, 512, 16, dtype=dtype), torch.ones(1, 1, 1, 16, dtype=dtype)
    q[..., 0] = torch.linspace(-9, 9, 512, dtype=torch.float64).exp2().to(dtype) * torch.tensor([-1, 1]).repeat(256)
    _, lse = operator.attend(q, k, k)
    wanted = 30 * torch.tanh(q[..., 0].double() / 30)
    torch.testing.assert_close(lse.double(), wanted, rtol=rtol, atol=atol)
