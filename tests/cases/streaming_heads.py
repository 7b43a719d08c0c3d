"""Attention whose heads have two axes, folded into one dimension or each with its own, with its formula in torch.

Those of `ROTARY` are turned before, by angles of rotary position embedding.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.cases.streaming_before import rms
from tests.cases.streaming_cases import MEAN, Case
from tests.cases.streaming_formulas import causal, full, grouped, positions_first, scores, with_sink

HALVES = "q:T[B, H, M, (P=2 D)]; k:T[B, H, N, (P=2 D)]; v:T[B, H, N, E]"
GROUPED = "q:T[B, (G R), M, (P=2 D)]; k:T[B, G, N, (P=2 D)]; v:T[B, G, N, E]"
APART = "q:T[B, H, M, C, D]; k:T[B, H, N, C, D]; v:T[B, H, N, F, K]"
SUM = "sum(q * k, P, D) * 0.25"
CAUSAL = f"s = where(index(N) - size(N) <= index(M) - size(M), {SUM}, -inf)"


def flat(formula: Callable[..., torch.Tensor], *others: int) -> Callable[..., torch.Tensor]:
    """A formula of heads of one axis, of those of two; what it returns has those of the last tensor again."""

    def of_two(*tensors: torch.Tensor) -> torch.Tensor:
        found = formula(*(one.flatten(-2) if n not in others else one for n, one in enumerate(tensors)))
        return found.unflatten(-1, tensors[2].shape[-2:])

    return of_two


CASES = {
    "halves": Case(HALVES, f"{CAUSAL}{MEAN}", causal),
    "pairs": Case(HALVES.replace("(P=2 D)", "(D P=2)"), f"{CAUSAL}{MEAN}", causal),
    "halves_of_leading_axes": Case(HALVES.replace("B, H", "..."), f"{CAUSAL}{MEAN}", causal),
    "halves_of_groups": Case(GROUPED, f"{CAUSAL}{MEAN}", grouped, outputs="o:q[B, (G R), M, E]"),
    "halves_of_positions_first": Case(
        "q:T[B, M, (G R), (P=2 D)]; k:T[B, N, G, (P=2 D)]; v:T[B, N, G, E]",
        f"{CAUSAL}{MEAN}",
        positions_first,
        outputs="o:q[B, M, (G R), E]",
    ),
    "halves_of_queries_keys_and_values": Case(
        HALVES.replace("N, E]", "N, (F=4 K)]"), f"{CAUSAL}{MEAN}", causal, outputs="o:q[B, H, M, (F K)]"
    ),
    "dimensions": Case(APART, f"s = sum(q * k, C, D) * 0.25{MEAN}", flat(full), outputs="o:q[B, H, M, F, K]"),
    "dimensions_of_groups": Case(
        "q:T[B, (G R), M, C, D]; k:T[B, G, N, C, D]; v:T[B, G, N, F, K]",
        f"{CAUSAL.replace('P, D', 'C, D')}{MEAN}",
        flat(grouped),
        outputs="o:q[B, (G R), M, F, K]",
    ),
    "dimensions_of_leading_axes": Case(
        APART.replace("B, H", "..."), f"s = sum(q * k, C, D) * 0.25{MEAN}", flat(full), outputs="o:q[..., M, F, K]"
    ),
    "dimensions_and_a_bias_without_leading_axes": Case(
        f"{APART.replace('B, H', '..., H')}; bias:T[H, M, N]",
        f"s = sum(q * k, C, D) * 0.25 + bias{MEAN}",
        lambda q, k, v, bias: (
            torch.softmax(scores(q.flatten(-2), k.flatten(-2)) + bias, -1) @ v.flatten(-2)
        ).unflatten(-1, v.shape[-2:]),
        outputs="o:q[..., H, M, F, K]",
        by="q k v bias",
        steps=3,
        passes=3,
        tiles="dbias",
    ),
    "dimensions_of_values": Case(
        "q:T[B, H, M, D]; k:T[B, H, N, D]; v:T[B, H, N, C, K]; gate:T[B, H, M, C, K]",
        f"s = sum(q * k, D) * 0.25{MEAN.replace('o =', 'a =')}\no = a * sigmoid(gate)",
        lambda q, k, v, gate: full(q, k, v.flatten(-2)).unflatten(-1, v.shape[-2:]) * gate.sigmoid(),
        outputs="o:q[B, H, M, C, K]",
        by="q k v gate",
        steps=3,
    ),
    "halves_and_a_sink": Case(
        f"{HALVES}; sink:T[H]",
        f"{CAUSAL}\nm = maximum(max(s, N), sink)\ne = exp(s - m)\no = sum(e * v, N) / (sum(e, N) + exp(sink - m))",
        with_sink,
        by="q k v sink",
        steps=3,
    ),
    "halves_and_a_bias": Case(
        f"{HALVES}; bias:T[H, M, N]",
        f"s = {SUM} + bias{MEAN}",
        lambda q, k, v, bias: torch.softmax(scores(q, k) + bias, -1) @ v,
        by="q k v bias",
        steps=3,
        passes=3,
        tiles="dbias",
    ),
    "halves_without_a_softmax": Case(
        HALVES,
        f"o = sum(where(index(N) - size(N) <= index(M) - size(M), {SUM}, 0.0) * v, N)",
        lambda q, k, v: torch.tril(scores(q, k), k.shape[-2] - q.shape[-2]) @ v,
    ),
    "scale_by_both_lengths": Case(
        HALVES,
        f"s = sum(q * k, P, D) * rsqrt(cast(size(P, D), q)) * (size(D) / 24.0){MEAN}",
        lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v),
    ),
}

ANGLES = "cosq:T[M, D]; sinq:T[M, D]; cosk:T[N, D]; sink:T[N, D]"
TURNED = "\n".join(
    f"{x}o = take({x}, 1 - index(P), P)\n{x}t = where(index(P) == 0, -{x}o, {x}o)\n{x}r = {x} * cos{x} + {x}t * sin{x}"
    for x in "qk"
)
OF_TURNED = f"{CAUSAL.replace('q * k', 'qr * kr')}{MEAN}"


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    one, other = x.chunk(2, -1)
    return torch.cat((one * cos - other * sin, other * cos + one * sin), -1)


def _pairs_turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    one, other = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((one * cos - other * sin, other * cos + one * sin), -1).flatten(-2)


def _rotary(q, k, v, cosq, sinq, cosk, sink, turn=turned, attend=causal):  # type: ignore[no-untyped-def]
    return attend(turn(q, cosq, sinq), turn(k, cosk, sink), v)


ROTARY = {
    "rotary": Case(f"{HALVES}; {ANGLES}", f"{TURNED}\n{OF_TURNED}", _rotary, steps=4),
    "rotary_of_leading_axes": Case(
        f"{HALVES.replace('B, H', '...')}; {ANGLES}", f"{TURNED}\n{OF_TURNED}", _rotary, steps=4
    ),
    "rotary_of_groups": Case(
        f"{GROUPED}; {ANGLES}",
        f"{TURNED}\n{OF_TURNED}",
        lambda *tensors: _rotary(*tensors, attend=grouped),
        outputs="o:q[B, (G R), M, E]",
        steps=4,
    ),
    "rotary_of_pairs": Case(
        f"{HALVES.replace('(P=2 D)', '(D P=2)')}; {ANGLES}",
        f"{TURNED}\n{OF_TURNED}",
        lambda *tensors: _rotary(*tensors, turn=_pairs_turned),
        steps=4,
    ),
    "rotary_of_dimensions": Case(
        f"{HALVES.replace('(P=2 D)', 'P=2, D')}; {ANGLES}",
        f"{TURNED}\n{OF_TURNED}",
        lambda q, k, *others: _rotary(q.flatten(-2), k.flatten(-2), *others),
        steps=4,
    ),
    "rotary_of_norms": Case(
        f"{HALVES}; {ANGLES}",
        "\n".join(f"{x}n = {x} * rsqrt(mean({x} * {x}, P, D) + 1e-5)" for x in "qk")
        + "\n"
        + TURNED.replace("take(q", "take(qn")
        .replace("take(k", "take(kn")
        .replace("q * c", "qn * c")
        .replace("k * c", "kn * c")
        + f"\n{OF_TURNED}",
        lambda q, k, *others: _rotary(rms(q), rms(k), *others),
        steps=4,
    ),
    "norms_of_rotary": Case(
        f"{HALVES}; {ANGLES}",
        f"{TURNED}\n"
        + "\n".join(f"{x}n = {x}r * rsqrt(mean({x}r * {x}r, P, D) + 1e-5)" for x in "qk")
        + "\n"
        + OF_TURNED.replace("qr", "qn").replace("kr", "kn"),
        lambda *tensors: _rotary(*tensors, turn=lambda x, cos, sin: rms(turned(x, cos, sin))),
        steps=4,
    ),
    "rotary_of_projections": Case(
        f"x:T[B, M, K]; z:T[B, N, K]; wq:T[(G R), (P=2 D), K]; wk:T[G, (P=2 D), K]; wv:T[G, E, K]; {ANGLES}",
        "q = sum(x * wq, K)\nk = sum(z * wk, K)\nv = sum(z * wv, K)\n" + f"{TURNED}\n{OF_TURNED}",
        lambda x, z, wq, wk, wv, *angles: _rotary(
            *(torch.einsum("bnk,hdk->bhnd", one, by) for one, by in ((x, wq), (z, wk), (z, wv))),
            *angles,
            attend=grouped,
        ),
        outputs="o:x[B, (G R), M, E]",
        by="x z wq wk wv",
        steps=10,
    ),
    "rotary_and_a_gate": Case(
        f"{HALVES}; {ANGLES}; gate:T[B, H, M, E]",
        f"{TURNED}\n{OF_TURNED.replace('o = sum', 'a = sum')}\no = a * sigmoid(gate)",
        lambda *tensors: _rotary(*tensors[:-1]) * tensors[-1].sigmoid(),
        by="q k v gate",
        steps=5,
    ),
}
