"""Specs that take from what other steps compute, or at positions, each with its formula in torch."""

from __future__ import annotations

import math

import torch

from tests.cases.step_case import Case, F


def _log_likelihood(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return x.log_softmax(2).gather(2, at[..., None]).sum((1, 2))


def _clipped(ratio: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    return -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()


def _products_of_a_softmax(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    a = x[:, at].softmax(0)
    h = torch.tanh((x * a[:, None]).sum(2))
    return h @ (h.T @ a)


def _largest_and_norm(h: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    p = ((h - F.pad(h[:-2], (0, 0, 2, 0))) @ w).softmax(1)
    return p, p.amax(1), (p / p.norm(dim=0)).log_softmax(1).square().sum(0)


def _of_a_softmax_of_takes(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    h = x - x.sum(1, keepdim=True)
    h = h + h.gather(2, at)
    return (h - h[:1]).softmax(2).logsumexp(2)


def _scaled(g: torch.Tensor, z: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.tanh((g * z.square().mean(1, keepdim=True) + g.amax(1, keepdim=True)) @ w)


CASES = {
    "take_of_a_sum": Case(
        "x:M, N; at:int64[T]", "s = sum(x, N)\ny = take(s, at, M)", lambda x, at: x.sum(1)[at], wrt="-"
    ),
    "take_of_a_matmul": Case(
        "a:M, K; b:K, N; at:int64[T]",
        "h = sum(a * b, K)\ny = gelu(take(h, at, M))",
        lambda a, b, at: F.gelu(a @ b)[at],
        wrt="-",
    ),
    "loss_of_capped_logits": Case(
        "x:M, K; w:N, K; at:int64[M]",
        "l = sum(x * w, K)\nz = 3.0 * tanh(l / 3.0)\ny = logsumexp(z, N) - take(z, at, N)",
        lambda x, w, at: F.cross_entropy(3 * torch.tanh(x @ w.T / 3), at, reduction="none"),
    ),
    "loss_of_scaled_logits": Case(
        "x:M, K; w:N, K; s:; at:int64[M]",
        "z = sum(x * w, K) * s\ny = logsumexp(z, N) - take(z, at, N)",
        lambda x, w, s, at: F.cross_entropy(x @ w.T * s, at, reduction="none"),
    ),
    "take_of_what_is_taken": Case(
        "a:M, K; b:K, N; at:int64[T]",
        "h = sum(a * b, K)\ny = take(take(h, at, M), at + 1, N)",
        lambda a, b, at: (a @ b)[at, at + 1],
        wrt="-",
    ),
    "preferences_of_sequences": Case(
        "x:B, S, N; z:B, S, N; at:int64[B, S]",
        "p = sum(take(log_softmax(x, N), at, N), S)\nq = sum(take(log_softmax(z, N), at, N), S)\n"
        "y = -mean(logsigmoid(0.1 * (p - q)), B)",
        lambda x, z, at: -F.logsigmoid(0.1 * (_log_likelihood(x, at) - _log_likelihood(z, at))).mean(),
    ),
    "ratios_of_likelihoods": Case(
        "x:B, S, N; at:int64[B, S]; old:B, S; a:B",
        "l = take(x, at, N) - logsumexp(x, N)\nr = exp(l - old)\ny = -mean(minimum(r * a, clamp(r, 0.8, 1.2) * a))",
        lambda x, at, old, a: _clipped((x.log_softmax(2).gather(2, at[..., None])[..., 0] - old).exp(), a[:, None]),
    ),
    # The gradient computes again what one step stores in the dtype of what another does.
    "softmax_of_what_is_taken_of_what_is_taken": Case(
        "x:B, S, D; at:int64[B, S, D]",
        "h = x - sum(x, S)\ng = h + take(h, at, D)\np = softmax(g - take(g, 0, B), D)\ny = logsumexp(p, D)",
        _of_a_softmax_of_takes,
    ),
    "take_of_a_neighbour": Case(
        "x:M, N",
        "s = sum(x, N)\ny = s * where(index(M) > 0, take(s, index(M) - 1, M), 1)",
        lambda x: x.sum(1) * torch.cat([torch.ones(1, dtype=x.dtype), x.sum(1)[:-1]]),
    ),
    "take_of_a_line_that_nothing_else_reads": Case(
        "x:M, N; z:K; at:int64[M]",
        "h = exp(x * 0.1 + z)\ny = sum(take(h, at, K), N)",
        lambda x, z, at: (x * 0.1 + z[at][:, None]).exp().sum(1),
    ),
    "gradient_of_a_mean_of_neighbours": Case(
        "x:M, N",
        "h = 0.5 * x + 0.5 * where(index(N) + 1 < size(N), take(x, index(N) + 1, N), 0.25)\ny = relu(h)",
        lambda x: F.relu(0.5 * x + 0.5 * F.pad(x[:, 1:], (0, 1), value=0.25)),
    ),
    "largest_of_what_a_norm_along_the_other_axis_reads": Case(
        "x:M, D; w:D, E=8",
        "h = x / max(abs(x), D)\ng = h - where(index(M) >= 2, take(h, index(M) - 2, M), 0)\n"
        "p = softmax(sum(g * w, D), E)\nb = max(p, E)\ny = sum(square(log_softmax(p / norm(p, M), E)), M)",
        lambda x, w: _largest_and_norm(x / x.abs().amax(1, keepdim=True), w),
        "p b y",
    ),
    "largest_of_the_row_at_a_position": Case(
        "x:P, N; at:int64[]",
        "h = take(x, at, P)\ny = take(h, argmax(h, N), N)",
        lambda x, at: x[at].amax(),
    ),
    "largest_of_rows_that_a_matmul_reads_as_stored": Case(
        "x:T, N; at:int64[M]; z:M, K; w:N, L",
        "h = take(x, at, T)\ng = h - take(h, 0, N)\na = g * mean(z * z, K) + max(g, N)\ny = tanh(sum(a * w, N))",
        lambda x, at, z, w: _scaled(x[at] - x[at][:, :1], z, w),
    ),
    "convolution_along_one_axis": Case(
        "x:B, C, S; w:C, R; b:C",
        "p = where(index(S) >= index(R), take(x, index(S) - index(R), S), 0)\ny = silu(sum(p * w, R) + b)",
        lambda x, w, b: F.silu(F.conv1d(F.pad(x, (4, 0)), w.flip(1)[:, None], b, groups=6)),
    ),
    "convolution_along_an_axis_shorter_than_its_taps_may_be": Case(
        "x:M, H=4; w:K",
        "y = sum(where(index(H) >= index(K), take(x, index(H) - index(K), H), 0) * w, K)",
        lambda x, w: torch.stack([(x[:, : n + 1].flip(1) * w[: n + 1]).sum(1) for n in range(4)], 1),
    ),
    "rows_of_what_reads_neighbours": Case(
        "x:N; z:N, M; at:int64[E=8]",
        "h = where(index(N) > 0, take(x, index(N) - 1, N), 0)\ny = take(h * mean(z, M) + max(h, N), at, N)",
        lambda x, z, at: (
            F.pad(x[:-1], (1, 0)),
            (F.pad(x[:-1], (1, 0)) * z.mean(1) + F.pad(x[:-1], (1, 0)).amax())[at],
        ),
        "h y",
    ),
    "convolution_without_padding": Case(
        "x:B, S; w:R=3; z:B, T=17",
        "y = sum(take(x, index(T) + index(R), S) * w, R) * z",
        lambda x, w, z: F.conv1d(x[:, None], w[None, None])[:, 0] * z,
    ),
    "rows_at_their_own_positions": Case(
        "a:B, D; b:M, D", "y = sum(a * take(b, index(B), M), D)", lambda a, b: (a * b[:3]).sum(1)
    ),
    "take_at_an_offset_of_rows": Case(
        "x:B, N; at:int64[B]",
        "y = take(x, index(N) + at, N) * 2",
        lambda x, at: 2 * F.pad(x, (0, 7), value=math.nan).gather(1, torch.arange(45) + at[:, None]),
    ),
    "softmax_with_a_table_of_biases": Case(
        "s:B, M, N; t:V; at:int64[M, N]",
        "y = softmax(s + take(t, at, V), N)",
        lambda s, t, at: (s + t[at]).softmax(-1),
    ),
    "take_of_an_expression": Case(
        "x:M, N; w:N; at:int64[N]",
        "y = take(exp(x) / sum(exp(x), N), at, M) * w",
        lambda x, w, at: x.softmax(1)[at, torch.arange(len(at))] * w,
    ),
    "take_from_more_axes_than_there_are": Case(
        "x:M, N; w:N; at:int64[N]",
        "y = take(x, at, M) * w",
        lambda x, w, at: x[at, torch.arange(len(at))] * w,
    ),
    "matmul_of_rows_of_a_table": Case(
        "table:V, K; ids:int64[N]; w:M, K",
        "y = sum(take(table, ids, V) * w, K)",
        lambda table, ids, w: table[ids] @ w.T,
    ),
    "matmul_of_scaled_rows_of_a_table": Case(
        "table:V, K; ids:int64[N]; scale:V; w:M, K",
        "y = silu(sum(take(table * scale, ids, V) * w, K))",
        lambda table, ids, scale, w: F.silu((table * scale[:, None])[ids] @ w.T),
        wrt="table w",
    ),
    "matmul_of_two_tables": Case(
        "table:V, K; ids:int64[N]; others:int64[M]",
        "y = sum(take(table, ids, V) * take(table, others, V), K)",
        lambda table, ids, others: table[ids] @ table[others].T,
    ),
    "matmul_of_taken_channels": Case(
        "x:N, V; w:M, K; channel:int64[K]",
        "y = sum(take(x, channel, V) * w, K)",
        lambda x, w, channel: x[:, channel] @ w.T,
    ),
    "matmul_of_rows_turned": Case(
        "x:N, K; w:M, K",
        "y = sum(take(x, size(N) - 1 - index(N), N) * w, K)",
        lambda x, w: x.flip(0) @ w.T,
    ),
    "weights_of_an_expert": Case(
        "x:B, N, K; w:V, M, K; expert:int64[B]",
        "y = relu(sum(x * take(w, expert, V), K))",
        lambda x, w, expert: F.relu(x @ w[expert].mT),
    ),
    "weights_of_one_expert": Case(
        "x:N, K; w:V, M, K; expert:int64[]",
        "y = gelu(sum(x * take(w, expert, V), K))",
        lambda x, w, expert: F.gelu(x @ w[expert].T).T,
    ),
    "weights_of_an_expert_for_each_row": Case(
        "x:N, K; w:V, M, K; expert:int64[N]",
        "y = sum(x * take(w, expert, V), K)",
        lambda x, w, expert: (w[expert] @ x[:, :, None])[..., 0],
    ),
    "attention_by_pages": Case(
        "q:S, D; k:V, T, D; v:V, T, D; pages:int64[P]",
        "s = sum(q * take(k, pages, V), D) * 0.125\np = softmax(s, P, T)\ny = sum(p * take(v, pages, V), P, T)",
        lambda q, k, v, pages: ((q @ k[pages].flatten(0, 1).T * 0.125).softmax(-1) @ v[pages].flatten(0, 1)).T,
    ),
    "positions_of_positions": Case(
        "x:S, M; a:M; b:S, M; at:int64[S, M]; last:int64[]",
        "h = sum(x * b, S)\ny = take(take(a - h, at, M), last, M)",
        lambda x, a, b, at, last: (a - (x * b).sum(0))[at][:, last],
    ),
    "smallest_of_sums_of_rows": Case(
        "x:K, N; w:M; s:; z:N, M",
        "h = gelu(s * 0.5)\nt = min(w + gelu(x), M, N)\ny = sigmoid(z + h)",
        lambda x, w, s, z: (
            F.gelu(s * 0.5),
            (w + F.gelu(x)[:, :, None]).amin((1, 2)),
            torch.sigmoid(z + F.gelu(s * 0.5)),
        ),
        "h t y",
    ),
    "positions_along_columns_of_two_axes": Case(
        "x:K, E=8; z:D; w:E=8, K; at:int64[K]",
        "y = tanh(where(index(E) <= index(K), take(x * x, at, K), 0.125) - z)\nv = sin(take(w, at, K))",
        lambda x, z, w, at: (
            torch.tanh(
                torch.where(torch.arange(8) <= torch.arange(len(x))[:, None], (x * x)[at], 0.125)[:, :, None] - z
            ),
            torch.sin(w[:, at]).T,
        ),
        "y v",
    ),
    "rows_at_the_positions_of_largest": Case(
        "x:M, N, K; w:K; at:int64[M]",
        "h = take(take(x, argmax(x, N), N), at, M)\ny = tanh(h * w)",
        lambda x, w, at: torch.tanh(x.amax(1)[at] * w),
    ),
    "gradient_of_a_table_by_positions_along_its_rows": Case(
        "x:K, D, E; w:D, E",
        "y = where(index(D) < 7, x * w, 0.5)",
        lambda x, w: torch.where(torch.arange(x.shape[1])[:, None] < 7, x * w, 0.5),
    ),
    "products_of_a_softmax_of_what_is_taken": Case(
        "x:N, M, R; at:int64[]",
        "a = softmax(take(x, at, M), N)\nh = tanh(sum(a * x, R))\ny = sum(sum(h * a, N) * h, M)",
        _products_of_a_softmax,
    ),
    "sum_along_an_axis_of_positions_alone": Case(
        "x:K; z:K, M",
        "h = logsumexp(where(index(K) <= index(M), x, 0.125), M)\ny = tanh(h)\nt = sum(z, K)",
        lambda x, z: (
            torch.where(torch.ones_like(z).triu() > 0, x[:, None], 0.125).logsumexp(1).tanh(),
            z.sum(0),
        ),
        "y t",
    ),
    # Its gradient by w sums along T, by which the positions go.
    "convolution_with_repeated_edges": Case(
        "x:B, E, T; w:D, E, R",
        "y = sum(take(x, clamp_max(index(T) + index(R), size(T) - 1), T) * w, E, R)",
        lambda x, w: F.conv1d(F.pad(x, (0, 4), mode="replicate"), w).mT,
    ),
    "least_of_rows_at_positions_of_a_window": Case(
        "x:K, N; at:int64[E=8]", "y = min(take(x, at, K), E)", lambda x, at: x[at].amin(0)
    ),
}
