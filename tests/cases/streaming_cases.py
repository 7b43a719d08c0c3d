"""Attention and its like, each with its formula in torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tests.cases.streaming_formulas import (
    SIZES,
    behind,
    by_documents,
    by_head,
    causal,
    decayed,
    divided,
    full,
    grouped,
    limited,
    masked,
    of_lengths,
    of_their_own,
    positions_first,
    relative,
    relative_factors,
    repeated,
    scores,
    sink_of_all,
    with_sink,
    zero_of_the_first,
)
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

F = torch.nn.functional
QKV = "q:T[B, H, M, D]; k:T[B, H, N, D]; v:T[B, H, N, E]"
GROUPED = "q:T[B, (G R), M, D]; k:T[B, G, N, D]; v:T[B, G, N, E]"
MEAN = "\no = sum(softmax(s, N) * v, N)"
CAUSAL = "s = where(index(N) - size(N) <= index(M) - size(M), sum(q * k, D) * 0.25, -inf)"
BEHIND = "behind = index(M) - size(M) - (index(N) - size(N))\n"


@dataclass(frozen=True)
class Case:
    """Inputs, lines of [compute], and what torch computes; `steps` of the backward, of which `passes` stream.

    Of the gradients, `tiles` has the axes of scores.
    """

    inputs: str
    compute: str
    torch: Callable[..., object]
    outputs: str = "o:q"
    by: str = "q k v"
    params: str = ""
    steps: int = 2
    passes: int = 2
    tiles: str = ""

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

    def places(self) -> list[int]:
        """Of the inputs that have a gradient."""
        names = [entry.split(":")[0] for entry in self.inputs.split("; ")]
        return [names.index(name) for name in self.by.split()]

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
                made.append(drawn.to(dtype if kind in ("T", "float") else getattr(torch, kind)))
        return made


def _length(term: str) -> int:
    found = 1
    for axis in term.strip("()").split():
        name, _, size = axis.partition("=")
        found *= int(size) if size else SIZES[name]
    return found


CASES = {
    "full": Case(QKV, f"s = sum(q * k, D) * 0.25{MEAN}", full),
    "causal": Case(QKV, CAUSAL + MEAN, causal),
    "leading_axes": Case(
        "q:T[..., M, D]; k:T[..., N, D]; v:T[..., N, E]".replace("...", "B, H"), CAUSAL + MEAN, causal
    ),
    "one_head": Case("q:T[M, D]; k:T[N, D]; v:T[N, D]", CAUSAL + MEAN, causal),
    "values_first": Case(
        "q:T[B, D, M]; k:T[B, N, D]; v:T[B, E, N]", CAUSAL + MEAN, lambda q, k, v: causal(q.mT, k, v.mT)
    ),
    "window": Case(
        QKV,
        f"{BEHIND}s = where((behind >= 0) & (behind < window), sum(q * k, D) * 0.25, -inf){MEAN}",
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, attn_mask=(behind(q, k) >= 0) & (behind(q, k) < 20), scale=0.25
        ),
        params="window = 20",
    ),
    "window_and_first": Case(
        QKV,
        f"{BEHIND}s = where((behind >= 0) & ((behind < window) | (index(N) < 3)), sum(q * k, D) * 0.25, -inf){MEAN}",
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, attn_mask=(behind(q, k) >= 0) & ((behind(q, k) < 9) | (torch.arange(SIZES["N"]) < 3)), scale=0.25
        ),
        params="window = 9",
    ),
    "softcap": Case(
        QKV,
        "x = 2.0 * tanh(sum(q * k, D) * 0.25 / 2.0)\ns = where(index(N) - size(N) <= index(M) - size(M), x, -inf)"
        + MEAN,
        lambda q, k, v: torch.softmax(masked(2 * torch.tanh(scores(q, k) / 2), behind(q, k) >= 0), -1) @ v,
    ),
    "alibi": Case(
        f"{QKV}; slope:float32[H]",
        f"{BEHIND}s = where(behind >= 0, sum(q * k, D) * 0.25 - slope * behind, -inf){MEAN}",
        lambda q, k, v, slope: (
            torch.softmax(masked(scores(q, k) - slope[:, None, None].to(q.dtype) * behind(q, k), behind(q, k) >= 0), -1)
            @ v
        ),
    ),
    "documents": Case(
        f"{QKV}; of_q:int32[B, M]; of_k:int32[B, N]",
        f"{BEHIND}s = where((of_q == of_k) | (behind == 0), sum(q * k, D) * 0.25, -inf){MEAN}",
        by_documents,
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
        limited,
    ),
    "scales": Case(
        f"{QKV}; scale:T[H]; common:T[]; weight:T[E]",
        "s = sum(q * k, D) * scale * common\no = sum(softmax(s, N) * v, N) * weight",
        lambda q, k, v, scale, common, weight: torch.softmax(q @ k.mT * scale[:, None, None] * common, -1) @ v * weight,
        by="q k v scale common weight",
        steps=5,
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
            torch.softmax(masked(scores(q, k) - slope[:, None, None] * behind(q, k), behind(q, k) >= 0), -1) @ v
        ),
        by="q k v slope",
        steps=3,
    ),
    "gradient_by_a_cap": Case(
        f"{QKV}; cap:T[]",
        f"s = cap * tanh(sum(q * k, D) * 0.25 / cap){MEAN}",
        lambda q, k, v, cap: torch.softmax(cap * torch.tanh(scores(q, k) / cap), -1) @ v,
        by="q k v cap",
        steps=3,
    ),
    "gradient_by_a_decay": Case(
        f"{QKV}; decay:T[H]",
        f"{BEHIND}p = where(behind >= 0, sum(q * k, D) * exp(-decay * decay * behind), 0.0)\no = sum(p * v, N)",
        lambda q, k, v, decay: (
            q @ k.mT * torch.exp(-(decay[:, None, None] ** 2) * behind(q, k)).masked_fill(behind(q, k) < 0, 0.0) @ v
        ),
        by="q k v decay",
        steps=3,
    ),
    "gradient_by_a_steep_decay": Case(
        f"{QKV}; decay:T[H]",
        f"{BEHIND}p = where(behind >= 0, sum(q * k, D) * exp(-99.0 * decay * decay * behind), 0.0)\no = sum(p * v, N)",
        lambda q, k, v, decay: decayed(q, k, v, -99 * decay * decay),
        by="q k v decay",
        steps=3,
    ),
    "gradient_by_a_decay_within_documents": Case(  # Of which each batch has its own.
        f"{QKV}; decay:T[H]; of_q:int32[B, M]; of_k:int32[B, N]",
        f"{BEHIND}mask = (of_q == of_k) & (behind >= 0)\n"
        "p = where(mask, sum(q * k, D) * exp(-99.0 * decay * decay * behind), 0.0)\no = sum(p * v, N)",
        lambda q, k, v, decay, of_q, of_k: (
            (decayed(q, k, torch.eye(SIZES["N"]).to(q), -99 * decay * decay))
            * (of_q[:, None, :, None] == of_k[:, None, None])
            @ v
        ),
        by="q k v decay",
        steps=3,
    ),
    "gradient_by_a_base": Case(
        f"{QKV}; base:T[H]",
        f"{BEHIND}p = where(behind >= 0, sum(q * k, D) * pow(sigmoid(base), behind), 0.0)\no = sum(p * v, N)",
        lambda q, k, v, base: decayed(q, k, v, torch.nn.functional.logsigmoid(base)),
        by="q k v base",
        steps=3,
    ),
    "gradient_by_a_base_of_groups": Case(
        f"{GROUPED}; base:T[G]",
        f"{BEHIND}p = where(behind >= 0, sum(q * k, D), 0.0)\no = sum(p * sigmoid(base) ** behind * v, N)",
        lambda q, k, v, base: decayed(
            q, repeated(k), repeated(v), torch.nn.functional.logsigmoid(base).repeat_interleave(SIZES["R"])
        ),
        outputs="o:q[B, (G R), M, E]",
        by="q k v base",
        steps=3,
    ),
    "weights_of_keys": Case(
        f"{QKV}; weight:T[B, H, N]",
        f"{CAUSAL}\no = sum(softmax(s, N) * (v * weight), N)",
        lambda q, k, v, weight: causal(q, k, v * weight[..., None]),
    ),
    "gradient_by_weights_of_keys": Case(
        f"{QKV}; weight:T[H, N]; gate:T[B, H, M, E]",
        f"{CAUSAL}\no = sum(softmax(s, N) * (v * sigmoid(weight)), N) * gate",
        lambda q, k, v, weight, gate: causal(q, k, v * torch.sigmoid(weight)[..., None]) * gate,
        by="q k v weight gate",
        steps=4,
    ),
    "gradient_by_weights_of_keys_alone": Case(
        f"{GROUPED}; weight:T[B, G, N]",
        f"{CAUSAL}\no = sum(softmax(s, N) * weight * v, N)",
        lambda q, k, v, weight: grouped(q, k, v * weight[..., None]),
        outputs="o:q[B, (G R), M, E]",
        by="weight",
        passes=1,
    ),
    "weights_of_a_mean_and_of_scores": Case(
        f"{QKV}; weight:T[B, H, N]; w:T[B, H, N, K]; sink:T[H]",
        f"{CAUSAL.replace('0.25', '0.25 * weight')}\nm = maximum(max(s, N), sink)\ne = exp(s - m)\n"
        "r = sum(e, N) + exp(sink - m)\no = sum(e * (v * weight), N) / r\nu = sum(e * w, N) / r",
        lambda q, k, v, weight, w, sink: (
            with_sink(q, k * weight[..., None], v * weight[..., None], sink),
            with_sink(q, k * weight[..., None], w, sink),
        ),
        outputs="o:q; u:q",
        by="q k v weight w sink",
        steps=3,
    ),
    "gradient_by_weights_of_probabilities": Case(
        f"{QKV}; weight:T[B, H, M, N]",
        "s = sum(q * k, D) * 0.25\no = sum(softmax(s, N) * weight * v, N)",
        lambda q, k, v, weight: torch.softmax(scores(q, k), -1) * weight @ v,
        by="q k v weight",
        steps=3,
        passes=3,
        tiles="dweight",
    ),
    "gradient_by_a_bias_of_keys": Case(
        f"{QKV}; bias:T[H, N]; all:T[B, N]",
        f"s = sum(q * k, D) * 0.25 + bias + all{MEAN}",
        lambda q, k, v, bias, every: torch.softmax(scores(q, k) + bias[:, None] + every[:, None, None], -1) @ v,
        by="q k v bias all",
        steps=4,
    ),
    "gradient_by_scales_of_groups": Case(
        f"{GROUPED}; scale:T[G]; bias:T[G, N]",
        f"{CAUSAL.replace('0.25', 'scale + bias')}{MEAN}",
        lambda q, k, v, scale, bias: (
            torch.softmax(
                masked(
                    q @ k.repeat_interleave(3, 1).mT * scale.repeat_interleave(3)[:, None, None]
                    + bias.repeat_interleave(3, 0)[:, None],
                    behind(q, k) >= 0,
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
    "logarithms_of_keys": Case(
        f"{QKV}; weight:T[B, N]",
        "s = sum(q * k, D) * 0.25\no = sum(softmax(s, N) * log(abs(weight)) * v, N)",
        lambda q, k, v, weight: torch.softmax(scores(q, k), -1) @ (v * torch.log(torch.abs(weight))[:, None, :, None]),
        by="",
    ),
    "values_over_numbers": Case(
        f"{QKV}; weight:T[B, N]",
        "s = sum(q * k, D) * 0.25\no = sum(softmax(s, N) * (v / weight), N)",
        lambda q, k, v, weight: torch.softmax(scores(q, k), -1) @ (v / weight[:, None, :, None]),
        by="",
    ),
    "scores_over_numbers": Case(
        f"{QKV}; of_q:T[B, M]; of_k:T[H, N]",
        f"s = sum(q * k, D) * 0.01 / of_q / of_k{MEAN}",
        lambda q, k, v, of_q, of_k: torch.softmax(q @ k.mT * 0.01 / of_q[:, None, :, None] / of_k[:, None], -1) @ v,
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
            q, k, v, attn_mask=masked(bias, behind(q, k) >= 0), scale=0.25
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
            q, k, v, attn_mask=masked(bias, (behind(q, k) >= 0) & (behind(q, k) < 20)), scale=0.25
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
                    masked(
                        q @ repeated(k).mT * weight.repeat_interleave(SIZES["R"], 0),
                        (behind(q, k) >= 0) & (behind(q, k) < 20),
                    ),
                    -1,
                )
                @ repeated(v)
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
        passes=3,
        tiles="dbias",
    ),
    "keys_without_leading_axes": Case(
        "q:T[..., H, M, D]; k:T[H, N, D]; v:T[H, N, E]; bias:T[H, M, N]",
        f"s = sum(q * k, D) * 0.25 + where(index(N) <= index(M), bias, -inf){MEAN}",
        lambda q, k, v, bias: (
            torch.softmax(masked(scores(q, k) + bias, torch.ones(SIZES["M"], SIZES["N"], dtype=torch.bool).tril()), -1)
            @ v
        ),
        by="q k v bias",
        steps=3,
        passes=3,
        tiles="dbias",
    ),
    "heads_that_share_keys": Case(GROUPED, CAUSAL + MEAN, grouped, outputs="o:q[B, (G R), M, E]"),
    "few_rows": Case(
        "q:T[B, (G R), F, D]; k:T[B, G, N, D]; v:T[B, G, N, E]",
        CAUSAL.replace("M", "F") + MEAN,
        grouped,
        outputs="o:q[B, (G R), F, E]",
    ),
    "few_rows_of_heads_of_their_own": Case(
        "q:T[B, F, (G R), D]; k:T[B, N, G, D]; v:T[B, N, G, E]; slope:float32[(G R)]; bias:T[(G R), F, N];"
        " scale:T[G, R, N]; gate:T[B, (G R), F, E]",
        "s = scale * sum(q * k, D) * 0.25 + slope * index(N) + index(R) * bias\nlse = logsumexp(s, N)"
        "\no = sigmoid(gate + slope) * sum(softmax(s, N) * v, N)",
        of_their_own,
        outputs="o:q[B, F, (G R), E]; lse:q[B, (G R), F]",
        by="",
    ),
    "few_rows_of_one_key_head": Case(
        "q:T[H, F, D]; k:T[N, D]; v:T[N, E]; sink:float32[H]",
        "s = sum(q * k, D) * 0.25\nm = maximum(max(s, N), sink)\ne = exp(s - m)"
        "\no = sum(e * v, N) / (sum(e, N) + exp(sink - m))",
        sink_of_all,
        outputs="o:q",
        by="",
    ),
    "few_rows_of_documents": Case(
        "q:T[B, (G R), F, D]; k:T[B, G, N, D]; v:T[B, G, N, E]; of_q:int32[B, F]; of_k:int32[B, N]",
        f"s = where(of_q == of_k, sum(q * k, D) * 0.25, -inf){MEAN}",
        lambda q, k, v, of_q, of_k: F.scaled_dot_product_attention(
            q,
            repeated(k),
            repeated(v),
            attn_mask=of_q[:, None, :, None] == of_k[:, None, None, :],
            scale=0.25,
        ),
        outputs="o:q[B, (G R), F, E]",
        by="",
    ),
    "few_rows_of_lengths_of_heads": Case(
        "q:T[B, (G R), F, D]; k:T[B, G, N, D]; v:T[B, G, N, E]; length:int32[(G R)]",
        f"s = where(index(N) <= 9 * length, sum(q * k, D) * 0.25, -inf){MEAN}",
        of_lengths,
        outputs="o:q[B, (G R), F, E]",
        by="",
    ),
    "positions_before_heads": Case(
        "q:T[B, M, (G R), D]; k:T[B, N, G, D]; v:T[B, N, G, D]", CAUSAL + MEAN, positions_first
    ),
    "numbers_of_positions_before_heads": Case(
        "q:T[B, M, H, D]; k:T[B, N, H, D]; v:T[B, N, H, E]; slope:float32[M, H]; bias:float32[B, N]",
        f"s = sum(q * k, D) * 0.25 * slope + bias{MEAN}",
        lambda q, k, v, slope, bias: (
            torch.softmax(scores(q.transpose(1, 2), k.transpose(1, 2)) * slope.T[:, :, None] + bias[:, None, None], -1)
            @ v.transpose(1, 2)
        ).transpose(1, 2),
        outputs="o:q[B, M, H, E]",
    ),
    "scores_of_two_matmuls": Case(
        f"{QKV}; qk:T[B, H, M, K]; kk:T[B, N, K]",
        f"s = (sum(q * k, D) + sum(qk * kk, K)) * 0.25{MEAN}",
        lambda q, k, v, qk, kk: torch.softmax(scores(q, k) + scores(qk, kk[:, None]), -1) @ v,
    ),
    "gradient_by_keys_that_heads_share": Case(
        f"{QKV}; qk:T[B, H, M, K]; kk:T[B, N, K]",
        f"s = (sum(q * k, D) + sum(qk * kk, K)) * 0.25{MEAN}",
        lambda q, k, v, qk, kk: torch.softmax(scores(q, k) + scores(qk, kk[:, None]), -1) @ v,
        by="q k v qk kk",
        steps=3,
        passes=3,
    ),
    "values_that_heads_share": Case(
        "q:T[B, H, M, D]; k:T[B, H, N, D]; v:T[B, N, E]",
        CAUSAL + MEAN,
        lambda q, k, v: causal(q, k, v[:, None].expand(-1, SIZES["H"], -1, -1)),
        steps=3,
        passes=3,
    ),
    "rows_without_keys_are_zero": Case(
        QKV,
        "s = where(index(N) < 27 * index(B), sum(q * k, D) * 0.25, -inf)\nlse = logsumexp(s, N)"
        "\no = where(lse == -inf, 0.0, sum(softmax(s, N) * v, N))",
        zero_of_the_first,
        steps=3,
    ),
    "exponentials_by_hand": Case(
        QKV,
        f"{CAUSAL}\ne = exp(s - max(s, N))\no = sum(e * v, N) / sum(e, N)",
        causal,
    ),
    "probabilities_by_lse": Case(QKV, f"{CAUSAL}\nlse = logsumexp(s, N)\no = sum(exp(s - lse) * v, N)", causal),
    "lse_beside": Case(
        QKV,
        f"s = sum(q * k, D) * 0.25\nlse = logsumexp(s, N){MEAN}",
        lambda q, k, v: (full(q, k, v), torch.logsumexp(scores(q, k), -1)),
        outputs="o:q; lse:q",
    ),
    "sigmoid": Case(
        QKV,
        "p = where(index(N) <= index(M), sigmoid(sum(q * k, D) * 0.25), 0.0)\no = sum(p * v, N)",
        lambda q, k, v: (torch.sigmoid(scores(q, k)) * torch.ones(SIZES["M"], SIZES["N"]).tril()) @ v,
    ),
    "linear": Case(
        QKV,
        "p = where(index(N) <= index(M), sum(q * k, D) * 0.25, 0.0)\no = sum(p * v, N)",
        lambda q, k, v: (scores(q, k) * torch.ones(SIZES["M"], SIZES["N"]).tril()) @ v,
    ),
    "linear_with_a_gate": Case(
        f"{QKV}; gate:T[B, H, M, E]",
        "p = where(index(N) <= index(M), sum(q * k, D) * 0.25, 0.0)\no = sum(p * v, N) * gate",
        lambda q, k, v, gate: (scores(q, k) * torch.ones(SIZES["M"], SIZES["N"]).tril()) @ v * gate,
        by="q k v gate",
        steps=3,
    ),
    "linear_with_a_divisor": Case(
        QKV,
        "p = where(index(N) <= index(M), square(sum(q * k, D)), 0.0)\no = sum(p * v, N) / (sum(p, N) + 1.0)",
        lambda q, k, v: divided((q @ k.mT).square() * torch.ones(SIZES["M"], SIZES["N"]).tril(), v),
        steps=3,
    ),
    "sink": Case(
        f"{QKV}; sink:T[H]",
        f"{CAUSAL}\nm = maximum(max(s, N), sink)\ne = exp(s - m)\no = sum(e * v, N) / (sum(e, N) + exp(sink - m))",
        with_sink,
        by="q k v sink",
        steps=3,
    ),
    "relative_positions": Case(
        f"{QKV}; table:T[H, P]",
        f"s = sum(q * k, D) * 0.25 + take(table, index(M) - index(N) + size(N) - 1, P){MEAN}",
        relative,
        by="q k v table",
        steps=4,
        passes=3,
        tiles="dtable_terms",
    ),
    "relative_positions_and_a_bias_of_the_same_gradient": Case(
        f"{QKV}; table:T[P]; bias:T[M, N]",
        f"s = sum(q * k, D) * 0.25 + bias + take(table, index(M) - index(N) + size(N) - 1, P){MEAN}",
        relative,
        by="q k v table bias",
        steps=4,
        passes=3,
        tiles="dbias",
    ),
    "relative_factors_of_a_group": Case(
        f"{GROUPED}; table:T[G, R, P]; scale:T[G, R]",
        "at = index(M) - index(N) + size(N) - 1\n"
        f"s = where(index(N) <= index(M), sum(q * k, D) * scale * take(table, at, P), -inf){MEAN}",
        relative_factors,
        outputs="o:q[B, (G R), M, E]",
        by="q k v table scale",
        steps=4,
        passes=3,
        tiles="dtable_terms",
    ),
    "gate_of_values_alone": Case(
        f"{QKV}; gate:float[B, H, M, E]".replace(":T", ":float"),
        "s = sum(q * k, D) * 0.25\no = sigmoid(gate) * sum(softmax(s, N) * v, N)",
        lambda q, k, v, gate: torch.sigmoid(gate) * full(q, k, v),
        outputs="o:auto[B, H, M, E]",
        by="v",
        passes=1,
    ),
    "residual_of_values_alone": Case(
        f"{QKV}; r:T[B, H, M, E]",
        "s = sum(q * k, D) * 0.25\no = r + sum(softmax(s, N) * v, N)",
        lambda q, k, v, r: r + full(q, k, v),
        by="v",
        steps=1,
        passes=1,
    ),
    "table_of_keys_for_all_of_the_batch": Case(
        "q:T[B, H, M, D]; k:T[H, N, D]; v:T[H, N, E]; table:T[H, P]",
        f"s = sum(q * k, D) * 0.25 + take(table, index(M) - index(N) + size(N) - 1, P){MEAN}",
        relative,
        by="table",
        steps=3,
        passes=1,
        tiles="dtable_terms",
    ),
    "gate": Case(
        f"{QKV}; gate:T[B, H, M, E]",
        "s = sum(q * k, D) * 0.25\no = sigmoid(gate) * sum(softmax(s, N) * v, N)",
        lambda q, k, v, gate: torch.sigmoid(gate) * full(q, k, v),
        by="q k v gate",
        steps=3,
    ),
    "gradient_by_a_gate_alone": Case(
        f"{QKV}; gate:T[B, H, M, E]",
        f"{CAUSAL}\no = sigmoid(gate) * sum(softmax(s, N) * v, N)",
        lambda q, k, v, gate: torch.sigmoid(gate) * causal(q, k, v),
        by="gate",
        steps=1,
        passes=0,
    ),
    "gate_and_sink": Case(
        f"{QKV}; gate:T[B, H, M, E]; sink:T[H]",
        f"{CAUSAL}\nm = maximum(max(s, N), sink)\ne = exp(s - m)\n"
        "o = sigmoid(gate) * sum(e * v, N) / (sum(e, N) + exp(sink - m))",
        lambda q, k, v, gate, sink: torch.sigmoid(gate) * with_sink(q, k, v, sink),
        by="q k v gate sink",
        steps=4,
    ),
    "sink_in_lse": Case(
        f"{QKV}; sink:T[H]",
        f"{CAUSAL}\nlse = logaddexp(logsumexp(s, N), sink)\no = sum(exp(s - lse) * v, N)",
        with_sink,
        by="q k v sink",
        steps=3,
    ),
    "sink_as_gate": Case(
        f"{QKV}; sink:T[H]",
        f"{CAUSAL}\na = sum(softmax(s, N) * v, N)\no = a * sigmoid(logsumexp(s, N) - sink)",
        with_sink,
        by="q k v sink",
        steps=3,
    ),
    "weight_and_residual": Case(
        f"{QKV}; x:T[B, H, M, E]; weight:T[E]",
        f"{CAUSAL}\na = sum(softmax(s, N) * v, N)\no = a * weight + x",
        lambda q, k, v, x, weight: causal(q, k, v) * weight + x,
        by="q k v x weight",
        steps=3,
    ),
    "mean_and_lse_beside": Case(
        f"{QKV}; gate:T[B, H, M, E]",
        "s = sum(q * k, D) * 0.25\na = sum(softmax(s, N) * v, N)\no = a * gate\nlse = logsumexp(s, N)",
        lambda q, k, v, gate: (full(q, k, v) * gate, full(q, k, v), torch.logsumexp(scores(q, k), -1)),
        outputs="o:q; a:q; lse:q",
        by="q k v gate",
        steps=3,
    ),
    "two_means": Case(
        f"{QKV}; w:T[B, H, N, K]; gate:T[B, H, M, K]",
        "s = sum(q * k, D) * 0.25\np = softmax(s, N)\no = sum(p * v, N)\nu = sum(p * w, N) * gate",
        lambda q, k, v, w, gate: (full(q, k, v), full(q, k, w) * gate),
        outputs="o:q; u:q",
        by="q k v w gate",
        steps=3,
    ),
    "positions_of_heads": Case(
        "q:T[B, H, M, D]; k:T[B, H, N, D]; v:T[B, H, N, E]; limit:int32[B]",
        "s = where(index(N) < limit + 9, sum(q * k, D) * 0.25 - index(H) * index(N), -inf)" + MEAN,
        by_head,
    ),
    "taken_weights": Case(
        "q:T[B, H, M, D]; k:T[B, H, N, D]; w:float32[F]; kind:int32[B, N]",
        "s = sum(q * k, D) * 0.25\no = sum(softmax(s, N) * take(w, kind, F), N)",
        lambda q, k, w, kind: (torch.softmax(scores(q, k), -1) @ w.to(q.dtype)[kind.long()][:, None, :, None])[..., 0],
        outputs="o:q[B, H, M]",
        by="",
    ),
    "names_of_gradients": Case(
        "q:T[B, H, M, D]; delta:T[B, H, N, D]; dp:T[B, H, N, E]; p:T[H]",
        "ds = sum(q * delta, D) * 0.25 + p\no = sum(softmax(ds, N) * dp, N)",
        lambda q, k, v, p: full(q, k, v),
        by="q delta dp",
    ),
    "exp_of_log_softmax": Case(QKV, "s = sum(q * k, D) * 0.25\no = sum(exp(log_softmax(s, N)) * v, N)", full),
    "exp_over_its_sum": Case(QKV, "p = exp(sum(q * k, D) * 0.25)\no = sum(p * v, N) / sum(p, N)", full, steps=3),
    "exp_divided_in_the_sum": Case(QKV, "p = exp(sum(q * k, D) * 0.25)\no = sum(p / sum(p, N) * v, N)", full, steps=3),
}
