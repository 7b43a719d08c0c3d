"""Attention with math before it, each with its formula in torch: heads that are normed, turned, or projected, and
queries that are used again behind it.
"""

from __future__ import annotations

import torch

from tests.cases.streaming_behind import ATTENDED, rms
from tests.cases.streaming_cases import GROUPED, QKV, Case
from tests.cases.streaming_formulas import causal, decayed, full, grouped

WEIGHTS = "wq:T[D]; wk:T[D]"
NORMED = "qn = q * rsqrt(mean(q * q, D) + 1e-5) * wq\nkn = k * rsqrt(mean(k * k, D) + 1e-5) * wk"
OF_NORMED = "s = where(index(N) - size(N) <= index(M) - size(M), sum(qn * kn, D) * 0.25, -inf)"
MEAN = "o = sum(softmax(s, N) * v, N)"
PROJECTED = "q = sum(x * wq, K)\nk = sum(z * wk, K)\nv = sum(z * wv, K)"
X = "x:T[B, M, K]; z:T[B, N, K]; wq:T[H, D, K]; wk:T[H, D, K]; wv:T[H, E, K]"


def _projected(x: torch.Tensor, z: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    return causal(*(torch.einsum("bnk,hdk->bhnd", one, by) for one, by in zip((x, z, z), weights, strict=True)))


def _features(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.exp(x @ w.mT - 0.5 * x.square().sum(-1, keepdim=True))


def _absorbed(x: torch.Tensor, wk: torch.Tensor, c: torch.Tensor, wv: torch.Tensor) -> torch.Tensor:
    q = torch.einsum("bmhd,hde->bhme", x, wk)
    return torch.einsum("bhme,hek->bmhk", full(q, c[:, None], c[:, None]), wv)


CASES = {
    "projections_of_latent_queries_and_means": Case(
        "x:T[B, M, H, D]; wk:T[H, D, E]; c:T[B, N, E]; wv:T[H, E, K]",
        "q = sum(x * wk, D)\ns = sum(q * c, E) * 0.25\na = sum(softmax(s, N) * c, N)\no = sum(a * wv, E)",
        _absorbed,
        outputs="o:x[B, M, H, K]",
        by="x wk c wv",
        steps=7,
    ),
    "functions_of_queries_keys_and_values": Case(
        QKV,
        "s = sum(sigmoid(q) * sigmoid(k), D)\no = sum(softmax(s, N) * sigmoid(v), N)",
        lambda q, k, v: full(4 * torch.sigmoid(q), torch.sigmoid(k), torch.sigmoid(v)),
        by="q k v",
        steps=5,
    ),
    "exponentials_as_features": Case(
        f"{QKV}; w:T[H, K, D]",
        "fq = exp(sum(q * w, D) - 0.5 * sum(q * q, D))\nfk = exp(sum(k * w, D) - 0.5 * sum(k * k, D))\n"
        "p = where(index(N) <= index(M), sum(fq * fk, K), 0.0)\no = sum(p * v, N)",
        lambda q, k, v, w: (_features(q, w) @ _features(k, w).mT).tril() @ v,
        by="q k v w",
        steps=6,
        passes=6,
    ),
    "values_of_two_layers": Case(
        f"{QKV}; first:T[B, H, N, E]; lam:T[]",
        "vv = lam * v + (1 - lam) * first\ns = sum(q * k, D) * 0.25\no = sum(softmax(s, N) * vv, N)",
        lambda q, k, v, first, lam: full(q, k, lam * v + (1 - lam) * first),
        by="q k v first lam",
        steps=4,
    ),
    "biases_of_keys_and_values": Case(
        f"{QKV}; bk:T[H, D]; bv:T[H, E]",
        "s = sum(q * (k + bk), D) * 0.25\no = sum(softmax(s, N) * (v + bv), N)",
        lambda q, k, v, bk, bv: full(q, k + bk[:, None], v + bv[:, None]),
        by="q k v bk bv",
        steps=4,
    ),
    "norms_of_heads": Case(
        f"{GROUPED}; {WEIGHTS}",
        f"{NORMED}\n{OF_NORMED}\n{MEAN}",
        lambda q, k, v, wq, wk: grouped(rms(q) * wq, rms(k) * wk, v),
        outputs="o:q[B, (G R), M, E]",
        by="q k v wq wk",
        steps=4,
    ),
    "norm_of_keys_by_some": Case(
        f"{QKV}; {WEIGHTS}",
        f"{NORMED}\n{OF_NORMED}\n{MEAN}",
        lambda q, k, v, wq, wk: causal(rms(q) * wq, rms(k) * wk, v),
        by="v wk",
        steps=4,
        passes=1,
    ),
    "norms_by_values_alone": Case(
        f"{QKV}; {WEIGHTS}",
        f"{NORMED}\n{OF_NORMED}\n{MEAN}",
        lambda q, k, v, wq, wk: causal(rms(q) * wq, rms(k) * wk, v),
        by="v",
        steps=1,
        passes=1,
    ),
    "norms_and_a_norm_behind": Case(
        f"{QKV}; {WEIGHTS}",
        f"{NORMED}\n{OF_NORMED}\na = sum(softmax(s, N) * v, N)\no = a * rsqrt(mean(a * a, E) + 1e-5)",
        lambda q, k, v, wq, wk: rms(causal(rms(q) * wq, rms(k) * wk, v)),
        by="q k v wq wk",
        steps=5,
    ),
    "norm_of_queries_that_are_added_behind": Case(
        QKV.replace("E]", "D]"),
        f"qn = q * rsqrt(mean(q * q, D) + 1e-5)\ns = sum(qn * k, D) * 0.25\n{MEAN} + q",
        lambda q, k, v: full(rms(q), k, v) + q,
        steps=4,
    ),
    "norms_of_linear_attention": Case(
        QKV,
        "qn = q * rsqrt(mean(q * q, D) + 1e-5)\nkn = k * rsqrt(mean(k * k, D) + 1e-5)\n"
        "s = where(index(N) - size(N) <= index(M) - size(M), sum(qn * kn, D), 0.0)\no = sum(s * v, N)",
        lambda q, k, v: decayed(rms(q), rms(k), v, torch.zeros(1)),
        steps=4,
    ),
    "norm_of_values_with_a_gate": Case(
        f"{QKV}; gate:T[B, H, M, E]",
        "vn = cast(v * rsqrt(mean(v * v, E) + 1e-5), v)\n"
        "s = sum(q * k, D) * 0.25\no = gate * sum(softmax(s, N) * vn, N)",
        lambda q, k, v, gate: gate * full(q, k, rms(v)),
        by="q v gate",
        steps=4,
    ),
    "norms_that_are_results": Case(
        QKV,
        f"qn = q * rsqrt(mean(q * q, D) + 1e-5)\ns = sum(qn * k, D) * 0.25\n{MEAN}",
        lambda q, k, v: (full(rms(q), k, v), rms(q)),
        outputs="o:q; qn:q",
        steps=3,
    ),
    "keys_chosen_by_their_norms": Case(
        QKV,
        f"t = mean(k * k, D)\ns = where(t > 1.0, sum(q * k, D) * 0.25, -2.0)\n{MEAN}",
        lambda q, k, v: torch.where((k.square().mean(-1) > 1.0)[:, :, None], (q @ k.mT) * 0.25, -2.0).softmax(-1) @ v,
        steps=2,
    ),
    "projections": Case(
        X,
        f"{PROJECTED}\ns = where(index(N) - size(N) <= index(M) - size(M), sum(q * k, D) * 0.25, -inf)\n{MEAN}",
        _projected,
        outputs="o:x[B, H, M, E]",
        by="x z wq wk wv",
        steps=8,
    ),
    "layer": Case(
        "x:T[B, M, K]; z:T[B, N, K]; weight:T[K]; wq:T[H, D, K]; wk:T[H, D, K]; wv:T[H, E, K]; wo:T[P, H, E]",
        "h = x * rsqrt(mean(x * x, K) + 1e-5) * weight\nq = sum(h * wq, K)\nk = sum(z * wk, K)\nv = sum(z * wv, K)\n"
        "s = where(index(N) - size(N) <= index(M) - size(M), sum(q * k, D) * 0.25, -inf)\n"
        "a = sum(softmax(s, N) * v, N)\no = sum(a * wo, H, E)",
        lambda x, z, weight, wq, wk, wv, wo: torch.einsum(
            "bhme,phe->bmp", _projected(rms(x) * weight, z, wq, wk, wv), wo
        ),
        outputs="o:x[B, M, P]",
        by="x z weight wq wk wv wo",
        steps=13,
    ),
    "residual": Case(
        QKV.replace("E]", "D]"), f"{ATTENDED.replace('a =', 'o =')} + q", lambda q, k, v: full(q, k, v) + q, steps=3
    ),
    "gate_of_queries": Case(
        QKV.replace("E]", "D]"),
        f"{ATTENDED}\no = a * sigmoid(q)",
        lambda q, k, v: full(q, k, v) * q.sigmoid(),
        steps=3,
    ),
}
