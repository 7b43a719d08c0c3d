"""Attention with other sums along what streams: plain ones, and those with a sink beside those without."""

from __future__ import annotations

import torch

from tests.cases.streaming_cases import CAUSAL, QKV, Case
from tests.cases.streaming_formulas import SIZES, behind, causal, full, in_order, kept_rows, masked, scores, with_sink

S = "s = sum(q * k, D) * 0.25\n"
MEAN = "o = sum(softmax(s, N) * v, N)"
LOWER = torch.ones(SIZES["M"], SIZES["N"], dtype=torch.bool).tril()


def _gated(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    s, factor = scores(q, k), torch.sigmoid(gate)[:, None, None]
    return factor * (torch.softmax(masked(s, LOWER), -1) @ v) + (1 - factor) * (s.tril() @ v)


def _lse(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(masked(scores(q, k), behind(q, k) >= 0), -1)


def apart(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return torch.arange(q.shape[-2])[:, None] - torch.arange(k.shape[-2])


def _kerple(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    d = apart(q, k).abs()
    a, b = a[:, None, None], b[:, None, None]
    return torch.softmax(scores(q, k) - a * torch.log1p(b.exp() * d), -1) @ v


def _cosine(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
    qn = q * (q.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
    s = qn @ k.mT * tau.clamp(max=1.0).exp()[:, None, None]
    return torch.softmax(s + 4 * torch.sigmoid(bias), -1) @ v


def _exponentials(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *integers: torch.Tensor) -> torch.Tensor:
    e = scores(q, k).exp().masked_fill(~in_order(*integers)[:, None], 0.0)
    return e @ v / (e.sum(-1, keepdim=True) + 0.1)


def _swin(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, table: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
    return _cosine(q, k, v, table[..., apart(q, k).clamp(-8, 8) + 8], tau)


def _forgotten(c: torch.Tensor) -> torch.Tensor:
    return c[..., : SIZES["M"], None] - c[..., None, : SIZES["N"]]


def _entropy(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    s = masked(scores(q, k), LOWER)
    p = torch.softmax(s, -1)
    return p @ v, torch.logsumexp(s, -1) - (p * scores(q, k).tril()).sum(-1)


# Numbers of documents tell which blocks are whole, and so do the other integers.
DOCUMENTS = f"{QKV}; of_q:int32[B, M]; of_k:int32[B, N]; limit:int32[B, M]; start:int32[B, N]"
FORGOTTEN = "far = take(c, index(M), P) - take(c, index(N), P)\n"
IN_ORDER = "kept = (of_q >= of_k) & (index(N) // 9 <= limit) & (index(M) // 9 >= start)\n"


def _decayed_by_positions(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    of_keys = torch.nn.functional.pad(b, (0, SIZES["N"] - SIZES["M"]))
    far = (b[..., :, None] - of_keys[..., None, :]).masked_fill(apart(q, k) < 0, -torch.inf)
    return q @ k.mT * torch.exp(far) @ v


CASES = {
    "documents_limits_and_starts": Case(
        DOCUMENTS,
        f"{IN_ORDER}s = where(kept, sum(q * k, D) * 0.25, -inf)\no = where(logsumexp(s, N) == -inf, 0.0, {MEAN[4:]})",
        lambda q, k, v, *integers: kept_rows(q, k, v, in_order(*integers)),
        steps=3,
    ),
    "rows_without_a_largest": Case(
        DOCUMENTS,
        f"{IN_ORDER}s = where(kept, sum(q * k, D) * 0.25, -inf)\no = where(max(s, N) == -inf, 0.0, {MEAN[4:]})",
        lambda q, k, v, *integers: kept_rows(q, k, v, in_order(*integers)),
        steps=3,
    ),
    "rows_without_a_largest_by_hand": Case(
        DOCUMENTS,
        f"{IN_ORDER}s = where(kept, sum(q * k, D) * 0.25, -inf)\nm = max(s, N)\nsome = m > -inf\n"
        "e = exp(s - where(some, m, 0.0))\no = where(some, sum(e * v, N) / sum(e, N), 0.0)",
        lambda q, k, v, *integers: kept_rows(q, k, v, in_order(*integers)),
        steps=3,
    ),
    "exponentials_of_a_mask": Case(
        DOCUMENTS,
        f"{IN_ORDER}e = where(kept, exp(sum(q * k, D) * 0.25), 0.0)\no = sum(e * v, N) / (sum(e, N) + 0.1)",
        _exponentials,
        steps=3,
    ),
    "probabilities_that_are_cast": Case(QKV, f"{CAUSAL}\np = cast(softmax(s, N), q)\no = sum(p * v, N)", causal),
    "probabilities_that_are_cast_and_chosen": Case(
        f"{QKV}; keep:bool[B, H, M, N]",
        f"{CAUSAL}\no = sum(where(keep, cast(softmax(s, N), v), 0.0) * v, N)",
        lambda q, k, v, keep: torch.softmax(masked(scores(q, k), behind(q, k) >= 0), -1).masked_fill(~keep, 0.0) @ v,
    ),
    "linear_and_softmax": Case(
        f"{QKV}; w:T[B, H, N, E]",
        f"{S}{MEAN} + sum(s * w, N)",
        lambda q, k, v, w: full(q, k, v) + scores(q, k) @ w,
        by="q k v w",
        steps=3,
    ),
    "linear_and_softmax_by_a_gate": Case(
        f"{QKV}; gate:T[H]",
        "x = sum(q * k, D) * 0.25\np = where(index(N) <= index(M), x, 0.0)\ns = where(index(N) <= index(M), x, -inf)\n"
        "g = sigmoid(gate)\no = g * sum(softmax(s, N) * v, N) + (1 - g) * sum(p * v, N)",
        _gated,
        by="q k v gate",
        steps=3,
    ),
    "linear_beside_softmax": Case(
        QKV,
        f"{S}{MEAN}\nu = sum(s * v, N)",
        lambda q, k, v: (full(q, k, v), scores(q, k) @ v),
        outputs="o:q; u:q",
        steps=3,
    ),
    "softmax_plus_sigmoid": Case(
        QKV,
        f"{S}o = sum(softmax(s, N) * v, N) + sum(sigmoid(s) * v, N)",
        lambda q, k, v: (torch.softmax(scores(q, k), -1) + torch.sigmoid(scores(q, k))) @ v,
        steps=3,
    ),
    "mean_of_scores_beside": Case(
        QKV,
        f"{S}{MEAN}\nz = mean(s, N)",
        lambda q, k, v: (full(q, k, v), scores(q, k).mean(-1)),
        outputs="o:q; z:q",
        steps=3,
    ),
    "detached_maximum_beside": Case(
        QKV,
        f"{CAUSAL}\n{MEAN}\nm = detach(max(s, N))",
        lambda q, k, v: (causal(q, k, v), masked(scores(q, k), behind(q, k) >= 0).amax(-1).detach()),
        outputs="o:q; m:q",
        steps=3,
    ),
    "sink_and_lse_without": Case(
        f"{QKV}; sink:T[H]",
        f"{CAUSAL}\nm = maximum(max(s, N), sink)\ne = exp(s - m)\no = sum(e * v, N) / (sum(e, N) + exp(sink - m))\n"
        "lse = logsumexp(s, N)",
        lambda q, k, v, sink: (with_sink(q, k, v, sink), _lse(q, k)),
        outputs="o:q; lse:q",
        by="q k v sink",
        steps=3,
    ),
    "sink_in_lse_alone": Case(
        f"{QKV}; sink:T[H]",
        f"{CAUSAL}\n{MEAN}\nlse = logaddexp(logsumexp(s, N), sink)",
        lambda q, k, v, sink: (causal(q, k, v), torch.logaddexp(_lse(q, k), sink[:, None])),
        outputs="o:q; lse:q",
        by="q k v sink",
        steps=4,
    ),
    "tanh_of_a_bias": Case(
        f"{QKV}; bias:T[M, N]",
        "s = sum(q * k, D) * 0.25 + 3 * tanh(bias)\n" + MEAN,
        lambda q, k, v, bias: torch.softmax(scores(q, k) + 3 * torch.tanh(bias), -1) @ v,
        by="q k v bias",
        steps=3,
        passes=3,
        tiles="dbias",
    ),
    "decay_of_any_batch": Case(  # The sums of rows have `...` first, too.
        "q:T[..., H, M, D]; k:T[..., H, N, D]; v:T[..., H, N, E]; decay:T[H]",
        "s = where(index(N) <= index(M), sum(q * k, D) * 0.25 * exp(-abs(decay) * abs(index(M) - index(N))), 0.0)\n"
        "o = sum(s * v, N)",
        lambda q, k, v, decay: (scores(q, k) * torch.exp(-decay.abs()[:, None, None] * apart(q, k).abs())).tril() @ v,
        by="q decay",
        steps=2,
        passes=1,
    ),
    "slopes_of_logarithms": Case(
        f"{QKV}; a:T[H]; b:T[H]",
        "d = abs(index(M) - index(N))\ns = sum(q * k, D) * 0.25 - a * log(1 + exp(b) * d)\n" + MEAN,
        _kerple,
        by="q k v a b",
        steps=3,
    ),
    "decay_of_each_step": Case(
        f"{QKV}; c:T[B, H, P]",
        f"{FORGOTTEN}s = where(index(N) <= index(M), sum(q * k, D) * exp(far), 0.0)\no = sum(s * v, N)",
        lambda q, k, v, c: (q @ k.mT * _forgotten(c).tril().exp()).tril() @ v,
        by="q k v c",
        steps=3,
    ),
    "decay_of_positions": Case(  # Read as rows are, and by position as keys are.
        f"{QKV}; b:T[B, H, M]",
        "s = where(index(N) <= index(M), sum(q * k, D) * exp(b - take(b, index(N), M)), 0.0)\no = sum(s * v, N)",
        _decayed_by_positions,
        by="q k v b",
        steps=3,
    ),
    "decay_of_positions_alike_in_all_heads": Case(
        f"{QKV}; b:T[M]",
        "s = where(index(N) <= index(M), sum(q * k, D) * exp(b - take(b, index(N), M)), 0.0)\no = sum(s * v, N)",
        _decayed_by_positions,
        by="q k v b",
        steps=3,
    ),
    "entropy": Case(
        QKV,
        "s = where(index(N) <= index(M), sum(q * k, D) * 0.25, -inf)\nlse = logsumexp(s, N)\np = exp(s - lse)\n"
        "o = sum(p * v, N)\nh = lse - sum(p * where(index(N) <= index(M), s, 0.0), N)",
        _entropy,
        outputs="o:q; h:q",
        steps=3,
    ),
    "means_of_numbers": Case(
        f"{QKV}; w:T[B, H, N]",
        f"{S}p = softmax(s, N)\no = sum(p * w * v, N) / (sum(p * abs(w), N) + 0.5)",
        lambda q, k, v, w: (
            (torch.softmax(scores(q, k), -1) @ (v * w[..., None]))
            / (torch.softmax(scores(q, k), -1) @ w.abs()[..., None] + 0.5)
        ),
        by="q k v w",
        steps=3,
    ),
    "masked_beside_all": Case(
        QKV,
        "x = sum(q * k, D) * 0.25\ns = where(index(N) < 7, x, -inf)\n"
        "o = sum(softmax(s, N) * v, N) + sum(sigmoid(x) * v, N)",
        lambda q, k, v: full(q, k[:, :, :7], v[:, :, :7]) + scores(q, k).sigmoid() @ v,
        steps=3,
    ),
    "means_without_nan": Case(
        QKV,
        "s = where(index(N) < index(M) - 3, sum(q * k, D) * 0.25, -inf)\no = nan_to_num(sum(softmax(s, N) * v, N))",
        lambda q, k, v: torch.nan_to_num(torch.softmax(masked(scores(q, k), apart(q, k) > 3), -1) @ v),
        by="",
    ),
    "limits_of_rows": Case(
        f"{QKV}; limit:int32[B, M]",
        f"s = where(index(N) <= limit, sum(q * k, D) * 0.25, -inf)\n{MEAN}",
        lambda q, k, v, limit: (
            torch.softmax(masked(scores(q, k), torch.arange(SIZES["N"]) <= limit[:, None, :, None]), -1) @ v
        ),
    ),
    "normed_heads_and_a_table_that_is_mapped": Case(
        f"{QKV}; table:T[H, P]; tau:T[H]",
        "qn = q * rsqrt(sum(q * q, D) + 1e-6)\nbias = take(table, clamp(index(M) - index(N), -8, 8) + 8, P)\n"
        "s = sum(qn * k, D) * exp(minimum(tau, 1.0)) + 4 * sigmoid(bias)\n" + MEAN,
        _swin,
        by="q k v table tau",
        steps=4,
        tiles="dtable_terms",
    ),
    "normed_heads_and_a_bias_that_is_mapped": Case(
        f"{QKV}; bias:T[H, M, N]; tau:T[H]",
        "qn = q * rsqrt(sum(q * q, D) + 1e-6)\ns = sum(qn * k, D) * exp(minimum(tau, 1.0)) + 4 * sigmoid(bias)\n"
        + MEAN,
        _cosine,
        by="q k v bias tau",
        steps=4,
        tiles="dbias",
    ),
}
