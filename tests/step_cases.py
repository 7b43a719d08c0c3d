"""Specs that no single kernel computes, each with its formula in torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

F = torch.nn.functional
SIZES = {"B": 3, "M": 37, "N": 45, "K": 33, "P": 21, "R": 5, "D": 18, "E": 8, "S": 19, "T": 23, "C": 6, "G": 4, "V": 7}
SIZES |= {"Q": 72, "L": 150}  # several tiles of a matmul


@dataclass(frozen=True)
class Case:
    """Axes of the inputs, lines of [compute], the outputs, and what torch computes."""

    inputs: str
    compute: str
    torch: Callable[..., object]
    outputs: str = "y"
    wrt: str = ""  # all that are float by default; "-" for no gradient
    schedule: str = ""

    def spec(self) -> Spec:
        return read_spec("steps.toml", self.text())

    def text(self) -> str:
        pairs = [entry.split(":") for entry in self.inputs.split("; ")]
        inputs = "\n".join(f'{name} = "{axes if axes.startswith("int") else f"T[{axes}]"}"' for name, axes in pairs)
        statements = (line.split(" = ", 1) for line in self.compute.split("\n"))
        lines = "\n".join(f'{name} = "{expression}"' for name, expression in statements)
        outputs = "\n".join(f'{name} = "auto"' for name in self.outputs.split())
        grad = "" if self.wrt == "-" else f"[grad]\nwrt = {self.by()}\n".replace("'", '"')
        grad += f"[schedule]\n{self.schedule}\n"
        head = '[op]\nname = "steps"\nsummary = "Several steps."\n[types]\nT = "float"\n'
        return f"{head}[inputs]\n{inputs}\n[compute]\n{lines}\n[outputs]\n{outputs}\n{grad}"

    def by(self) -> list[str]:
        names = [entry.split(":")[0] for entry in self.inputs.split("; ") if ":int" not in entry]
        return self.wrt.split() or names

    def tensors(self, dtype: torch.dtype) -> list[torch.Tensor]:
        random = torch.Generator().manual_seed(0)
        made = []
        for entry in self.inputs.split("; "):
            _, axes = entry.split(":")
            shape = [_length(axis) for axis in axes.removeprefix("int64[").rstrip("]").split(", ") if axis]
            if axes.startswith("int"):
                made.append(torch.randint(0, 7, shape, generator=random))
            else:
                made.append(torch.randn(shape, generator=random, dtype=torch.float64).to(dtype))
        return made


def _length(dimension: str) -> int:
    """Of an axis, one of fixed length, or several that are a dimension."""
    terms = dimension.strip("()").split()
    return math.prod(int(term.partition("=")[2] or SIZES[term.partition("=")[0]]) for term in terms)


def _rms(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def _between(sums: torch.Tensor, w: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    h = w + (w * sums).mean()
    y = h * torch.rsqrt((h * h).mean() + 0.1)
    return y, F.gelu(torch.maximum(y, x).sum())


def _of_products(h: torch.Tensor, s: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (torch.where(b > 0, 1 - h * h, s * 0.7) - 0.1 * b).amax(1), (h * 3 + b).amin()


def _log_likelihood(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return x.log_softmax(2).gather(2, at[..., None]).sum((1, 2))


def _clipped(ratio: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    return -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()


def _sinkhorn(x: torch.Tensor) -> torch.Tensor:
    for axis in (1, 0, 1):
        x = x - torch.logsumexp(x, axis, keepdim=True)
    return x.exp()


def _group_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.group_norm(x, 4, w, b)


def _products_of_a_softmax(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    a = x[:, at].softmax(0)
    h = torch.tanh((x * a[:, None]).sum(2))
    return h @ (h.T @ a)


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    s = torch.einsum("bsd,btd->bst", q, k) * 0.125
    mask = torch.arange(k.shape[1])[None, :] <= torch.arange(q.shape[1])[:, None]
    return torch.einsum("bst,btd->bsd", torch.softmax(s.masked_fill(~mask, -torch.inf), -1), v)


CASES = {
    "reductions_over_different_axes": Case(
        "x:M, N", "y = x - sum(x, M) - sum(x, N)", lambda x: x - x.sum(0) - x.sum(1, keepdim=True)
    ),
    "reductions_in_one_line": Case("x:M, N", "y = sum(x, N) + sum(x, M, N)", lambda x: x.sum(1) + x.sum()),
    "two_softmaxes": Case("x:M, N", "y = softmax(x, M) * softmax(x, N)", lambda x: x.softmax(0) * x.softmax(1)),
    "sinkhorn": Case(
        "x:M, N",
        "a = x - logsumexp(x, N)\nb = a - logsumexp(a, M)\ny = exp(b - logsumexp(b, N))",
        _sinkhorn,
    ),
    "outputs_of_different_axes": Case(
        "x:M, N", "y = x * 2\ns = sum(x, N)\nt = sum(x, M)", lambda x: (x * 2, x.sum(1), x.sum(0)), "y s t"
    ),
    "output_apart": Case("x:M, N; w:N", "y = x * w\nv = w * w", lambda x, w: (x * w, w * w), "y v"),
    "output_beside_a_matmul": Case(
        "x:B, M, K; w:(G E=8), K; v:M, E=8",
        "y = sum(x * w, K) + v\nz = v * 2",
        lambda x, w, v: ((x @ w.T).unflatten(-1, (-1, 8)) + v[:, None], v * 2),
        "y z",
    ),
    "norm_of_all": Case(
        "x:M, N", "y = x / sqrt(sum(x * x))\nz = max(x, N)", lambda x: (x / x.norm(), x.amax(1)), "y z"
    ),
    "norm_of_everything": Case(
        "x:M, N; w:N",
        "r = rsqrt(mean(x * x, M, N) + 1e-6)\ny = x * r * w",
        lambda x, w: x * torch.rsqrt((x * x).mean() + 1e-6) * w,
    ),
    "scale_of_everything": Case("x:M, N; s:", "y = gelu(x) * s", lambda x, s: F.gelu(x) * s),
    "softmax_beside_a_mean": Case(
        "a:M, K; b:K, N",
        "h = sum(a * b, K)\ny = softmax(h, N) - mean(h, M)",
        lambda a, b: (a @ b).softmax(-1) - (a @ b).mean(0),
    ),
    "group_norm": Case(
        "x:B, (G=4 C), S; w:(G=4 C); b:(G=4 C)",
        "y = (x - mean(x, C, S)) * rsqrt(var(x, C, S, correction=0) + 1e-5) * w + b",
        _group_norm,
    ),
    "group_norm_of_one": Case(
        "x:(G=4 C), S; w:(G=4 C)",
        "y = (x - mean(x, C, S)) * rsqrt(var(x, C, S, correction=0) + 1e-5) * w",
        lambda x, w: F.group_norm(x[None], 4, w)[0],
    ),
    "instance_norm": Case(
        "x:B, C, S; w:C; b:C",
        "y = (x - mean(x, S)) * rsqrt(var(x, S, correction=0) + 1e-5) * w + b",
        lambda x, w, b: F.instance_norm(x, None, None, w, b),
    ),
    "batch_norm": Case(
        "x:B, C; w:C; running:C",
        "m = mean(x, B)\ny = (x - m) * rsqrt(var(x, B, correction=0) + 1e-5) * w\nnext = 0.9 * running + 0.1 * m",
        lambda x, w, running: (F.batch_norm(x, None, None, w, training=True), 0.9 * running + 0.1 * x.mean(0)),
        "y next",
        "x w",
    ),
    "bias_in_a_norm": Case(
        "x:M, N; b:N; w:N",
        "h = x + b\ny = h * rsqrt(mean(h * h, N) + 1e-6) * w",
        lambda x, b, w: _rms(x + b) * w,
    ),
    "temperature": Case("x:M, N; t:", "y = softmax(x * t, N)", lambda x, t: (x * t).softmax(-1)),
    "gradient_of_what_lacks_an_axis": Case(
        "x:M, N; w:N",
        "total = sum(w * w, N)\ny = x * total + rsqrt(total)",
        lambda x, w: x * (w * w).sum() + torch.rsqrt((w * w).sum()),
    ),
    "layer_norm_of_a_matmul": Case(
        "x:M, K; w:N, K; b:N",
        "h = sum(x * w, K) + b\ny = (h - mean(h, N)) * rsqrt(var(h, N, correction=0) + 1e-5)",
        lambda x, w, b: F.layer_norm(x @ w.T + b, (w.shape[0],)),
    ),
    "softmax_of_a_matmul": Case("a:M, K; b:K, N", "y = softmax(sum(a * b, K), N)", lambda a, b: (a @ b).softmax(-1)),
    "softmax_over_rows_of_a_matmul": Case(
        "a:B, K; b:E, K", "y = softmax(sum(a * b, K), B)", lambda a, b: (a @ b.T).softmax(0)
    ),
    "matmul_of_a_norm": Case(
        "a:M, K; b:K, N", "r = rsqrt(mean(a * a, K) + 1e-6)\ny = sum(a * r * b, K)", lambda a, b: _rms(a) @ b
    ),
    "chained_matmuls": Case(
        "a:M, K; b:K, N; c:N, P", "ab = sum(a * b, K)\ny = sum(ab * c, N)", lambda a, b, c: a @ b @ c
    ),
    "lora": Case(
        "x:M, K; w:N, K; a:R, K; b:N, R",
        "y = sum(x * w, K) + 0.5 * sum(sum(x * a, K) * b, R)",
        lambda x, w, a, b: x @ w.T + 0.5 * (x @ a.T) @ b.T,
    ),
    "matmul_of_a_layer_norm": Case(
        "x:M, K; g:K; b:K; w:N, K",
        "h = (x - mean(x, K)) * rsqrt(var(x, K, correction=0) + 1e-5) * g + b\ny = sum(h * w, K)",
        lambda x, g, b, w: F.layer_norm(x, x.shape[1:], g, b) @ w.T,
    ),
    "gates_in_a_matmul": Case(
        "x:M, K; u:M, K; w:N, K", "y = sum(silu(x) * u * w, K)", lambda x, u, w: (F.silu(x) * u) @ w.T
    ),
    "mean_of_products": Case("x:M, K; w:N, K", "y = mean(x * w, K)", lambda x, w: x @ w.T / x.shape[1]),
    "quotient_in_a_matmul": Case(
        "x:M, K; s:M; w:N, K", "y = sum(x / s * w, K)", lambda x, s, w: (x / s[:, None]) @ w.T, wrt="x w"
    ),
    "matmul_of_a_softmax": Case("x:M, K; w:N, K", "y = sum(softmax(x, K) * w, K)", lambda x, w: x.softmax(-1) @ w.T),
    "statistics_of_a_matmul": Case(
        "x:M, K; w:N, K",
        "h = sum(x * w, K)\nm = mean(h, N)\nv = var(h, N, correction=0)",
        lambda x, w: ((x @ w.T).mean(1), (x @ w.T).var(1, correction=0)),
        "m v",
    ),
    "norm_of_an_mlp": Case(
        "x:M, K; w:N, K; v:K, N",
        "h = silu(sum(x * w, K))\no = sum(h * v, N)\ny = o * rsqrt(mean(o * o, K) + 1e-6)",
        lambda x, w, v: _rms(F.silu(x @ w.T) @ v.T),
    ),
    "mlp_with_biases": Case(
        "x:M, K; w:N, K; c:N; v:P, N; d:P",
        "h = gelu(sum(x * w, K) + c)\ny = sum(h * v, N) + d",
        lambda x, w, c, v, d: F.linear(F.gelu(F.linear(x, w, c)), v, d),
    ),
    "mlp": Case(
        "x:M, K; w:N, K; v:P, N",
        "h = gelu(sum(x * w, K))\ny = sum(h * v, N)",
        lambda x, w, v: F.gelu(x @ w.T) @ v.T,
    ),
    "gated_mlp_of_a_norm": Case(
        "x:M, K; s:K; w:N, K; v:N, K; u:P, N",
        "n = x * rsqrt(mean(x * x, K) + 1e-6) * s\nh = silu(sum(n * w, K)) * sum(n * v, K)\ny = sum(h * u, N)",
        lambda x, s, w, v, u: (F.silu(_rms(x) * s @ w.T) * (_rms(x) * s @ v.T)) @ u.T,
    ),
    "rms_of_heads": Case(
        "x:M, K; w:(E=8 D), K",
        "h = sum(x * w, K)\ny = h * rsqrt(mean(h * h, D) + 1e-6)",
        lambda x, w: _rms((x @ w.T).unflatten(1, (8, -1))).permute(1, 2, 0),
    ),
    "matmul_to_a_number": Case("a:B, K; b:K, N", "y = sum(sum(a * b, K), B, N)", lambda a, b: (a @ b).sum()),
    "axis_of_the_epilogue_alone": Case(
        "a:M, K; b:K, N; c:P", "y = sum(a * b, K) * c", lambda a, b, c: (a @ b)[:, :, None] * c
    ),
    "matmul_beside_a_line": Case(
        "a:M, K; b:K, N; bias:V, N; kind:int64[M]",
        "y = sum(a * b, K) + take(bias, kind, V)",
        lambda a, b, bias, kind: a @ b + bias[kind],
        wrt="-",
    ),
    "factor_beside": Case(
        "x:M, K; w:K, N; gate:M",
        "y = gate * sum(exp(x + gate) * w, K)",
        lambda x, w, gate: gate[:, None] * (torch.exp(x + gate[:, None]) @ w),
        wrt="x gate",
    ),
    "temperature_of_scores": Case(
        "x:M, K; w:E=8, K; scale:",
        "y = softmax(scale * sum(x * w, K), E)",
        lambda x, w, scale: (scale * (x @ w.T)).softmax(-1),
        wrt="x scale",
    ),
    "stored_and_returned": Case(
        "x:M, K; w:N, K; v:P, N",
        "h = gelu(sum(x * w, K))\ny = sum(h * v, N)",
        lambda x, w, v: (F.gelu(x @ w.T), F.gelu(x @ w.T) @ v.T),
        "h y",
    ),
    "scores_without_softmax": Case(
        "q:B, S, D; k:B, T, D; v:B, T, P",
        "s = sum(q * k, D)\ny = sum(s * v, T)",
        lambda q, k, v: (q @ k.mT) @ v,
    ),
    "take_of_a_sum": Case(
        "x:M, N; at:int64[T]", "s = sum(x, N)\ny = take(s, at, M)", lambda x, at: x.sum(1)[at], wrt="-"
    ),
    "take_of_a_matmul": Case(
        "a:M, K; b:K, N; at:int64[T]",
        "h = sum(a * b, K)\ny = gelu(take(h, at, M))",
        lambda a, b, at: F.gelu(a @ b)[at].T,
        wrt="-",
    ),
    "take_of_what_is_taken": Case(
        "a:M, K; b:K, N; at:int64[T]",
        "h = sum(a * b, K)\ny = take(take(h, at, M), at + 1, N)",
        lambda a, b, at: (a @ b)[at, at + 1],
        wrt="-",
    ),
    "cross_entropy_of_a_matmul": Case(
        "a:M, K; b:K, V; at:int64[M]",
        "h = sum(a * b, K)\ny = logsumexp(h, V) - take(h, at, V)",
        lambda a, b, at: F.cross_entropy(a @ b, at, reduction="none"),
    ),
    "mean_cross_entropy_of_a_matmul": Case(
        "x:Q, K; w:L, K; at:int64[Q]",
        "h = sum(x * w, K)\ny = mean(logsumexp(h, L) - take(h, at, L), Q)",
        lambda x, w, at: F.cross_entropy(x @ w.T, at),
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
    "bias_behind_two_matmuls": Case(
        "x:M, K; u:R, K; v:N, R; b:N",
        "y = gelu(sum(sum(x * u, K) * v, R) + b)",
        lambda x, u, v, b: F.gelu(x @ u.T @ v.T + b),
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
    "convolution_along_one_axis": Case(
        "x:B, C, S; w:C, R; b:C",
        "p = where(index(S) >= index(R), take(x, index(S) - index(R), S), 0)\ny = silu(sum(p * w, R) + b)",
        lambda x, w, b: F.silu(F.conv1d(F.pad(x, (4, 0)), w.flip(1)[:, None], b, groups=6)),
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
        lambda x, w, expert: (w[expert] @ x[:, :, None])[..., 0].T,
    ),
    "attention_by_pages": Case(
        "q:S, D; k:V, T, D; v:V, T, D; pages:int64[P]",
        "s = sum(q * take(k, pages, V), D) * 0.125\np = softmax(s, P, T)\ny = sum(p * take(v, pages, V), P, T)",
        lambda q, k, v, pages: ((q @ k[pages].flatten(0, 1).T * 0.125).softmax(-1) @ v[pages].flatten(0, 1)).T,
    ),
    "matmul_of_matmuls": Case(
        "a:M, K; b:K, N; c:N, D; d:D, P",
        "y = sum(sum(a * b, K) * sum(c * d, D), N)",
        lambda a, b, c, d: (a @ b) @ (c @ d),
    ),
    "sum_of_one_side": Case("x:M, K; w:P, K, N", "y = sum(x * w, K, N)", lambda x, w: w.sum(2) @ x.T),
    "sums_of_both_sides": Case(
        "x:M, K, E; w:K, N, P",
        "y = relu(sum(2 * x * w, E, K, N))",
        lambda x, w: F.relu(2 * x.sum(2) @ w.sum(1)),
    ),
    "sum_of_both_sides_alone": Case("x:M, K; w:K, N", "y = sum(x * w)", lambda x, w: (x @ w).sum()),
    "sum_of_one_side_without_a_matmul": Case("x:M, K; w:K, N", "y = sum(x * w, M)", lambda x, w: x.sum(0)[:, None] * w),
    "mean_of_both_sides": Case("x:M, K; w:K, N", "y = 2 * mean(x * w, M, N)", lambda x, w: 2 * x.mean(0) * w.mean(1)),
    "bilinear_form_of_rows": Case(
        "x:B, M; w:M, N; z:B, N", "y = sum(x * w * z, M, N)", lambda x, w, z: ((x @ w) * z).sum(1)
    ),
    "sum_of_three_matrices": Case("x:M, K; w:K, N; u:N, P", "y = sum(x * w * u)", lambda x, w, u: (x @ w @ u).sum()),
    "mlp_along_another_axis": Case(
        "x:B, S, D; w:P, S; u:S, P",
        "h = gelu(sum(x * w, S))\ny = x + sum(h * u, P)",
        lambda x, w, u: x + torch.einsum("bpd,sp->bsd", F.gelu(torch.einsum("bsd,ps->bpd", x, w)), u),
    ),
    "matmul_of_a_line_and_its_neighbour": Case(
        "x:B, S, D; m:D; w:E, D",
        "p = where(index(S) > 0, take(x, index(S) - 1, S), 0)\ny = relu(sum((x * m + p * (1 - m)) * w, D)) ** 2",
        lambda x, m, w: F.relu((x * m + F.pad(x, (0, 0, 1, 0))[:, :-1] * (1 - m)) @ w.T) ** 2,
    ),
    "sum_of_a_vectors_side": Case(
        "x:M, K; w:K, N; b:M", "y = b * sum(x * w, K, N)", lambda x, w, b: b * (x @ w.sum(1))
    ),
    "square_of_one_side": Case(
        "x:M, K; w:K, N",
        "v = w * w\ny = sum(x * v, K, N) + sum(x * w * w, K, N)",
        lambda x, w: 2 * (x @ (w * w)).sum(1),
    ),
    "variance_of_a_norm": Case(
        "x:M, N",
        "y = var(x * rsqrt(mean(x * x, N) + 0.1), N, correction=0)",
        lambda x: (x * torch.rsqrt((x * x).mean(1, keepdim=True) + 0.1)).var(1, correction=0),
    ),
    "softmax_of_the_largest": Case("x:M, N, D", "y = softmax(max(x, D), N)", lambda x: x.amax(2).softmax(1)),
    "one_gradient_in_two_orders": Case(
        "x:M, N; z:N, M; w:N",
        "y = tanh(x + z)\nt = max(w * y, M)",
        lambda x, z, w: (torch.tanh(x + z.T), (w * torch.tanh(x + z.T)).amax(0)),
        "y t",
    ),
    "single_elements_beside_others": Case(
        "x:M, N; s:; t:; at:int64[]",
        "h = sigmoid(s * t)\ny = h * x\nz = exp(-h * h)\nv = take(take(x, at, M), at, N) * h + max(x, M, N)",
        lambda x, s, t, at: (
            torch.sigmoid(s * t) * x,
            torch.exp(-(torch.sigmoid(s * t) ** 2)),
            x[at, at] * torch.sigmoid(s * t) + x.max(),
        ),
        "y z v",
    ),
    "reductions_between_single_elements": Case(
        "x:N, M; s:; w:M",
        "h = mean(w * sum(x - s, N), M)\ny = (w + h) * rsqrt(mean((w + h) * (w + h), M) + 0.1)"
        "\nz = gelu(sum(maximum(y, x), M, N))",
        lambda x, s, w: _between((x - s).sum(0), w, x),
        "y z",
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
    "largest_of_sums_of_products": Case(
        "x:M, N; w:N; s:; b:N, M",
        "h = gelu(x * w) * 0.3 + s\ny = max(where(b > 0, 1 - h * h, s * 0.7) - 0.1 * b, N)\nz = min(h * 3 + b, M, N)",
        lambda x, w, s, b: _of_products(F.gelu(x * w) * 0.3 + s, s, b.T),
        "y z",
    ),
    "gradient_of_a_table_by_positions_along_its_rows": Case(
        "x:K, D, E; w:D, E",
        "y = where(index(D) < 7, x * w, 0.5)",
        lambda x, w: torch.where(torch.arange(x.shape[1])[:, None] < 7, x * w, 0.5),
    ),
    "products_about_a_mean": Case(
        "x:M, K; z:N, K; m:K",
        "s = exp(m)\ny = sum((x - s) * (z + s), K)",
        lambda x, z, m: (x - m.exp()) @ (z + m.exp()).T,
    ),
    "two_products_with_one_scale_on_either_side": Case(
        "x:M, K; z:N, K; u:M, K; v:N, K; s:K",
        "y = sum(x * s * z, K) + sum(u * (v + s), K)",
        lambda x, z, u, v, s: (x * s) @ z.T + u @ (v + s).T,
    ),
    "factor_with_an_axis_that_the_product_lacks": Case(
        "a:M, K; b:K, N; c:P, M",
        "h = logsumexp(c, M)\ny = sum(a * b * h, K)",
        lambda a, b, c: (a @ b)[:, :, None] * c.logsumexp(1),
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
    "softmax_of_sums_of_what_has_maxima": Case(
        "x:M, K; v:K",
        "h = max(x, K)\ny = softmax(sum(tanh(v + h), M), K)",
        lambda x, v: (v + x.amax(1, keepdim=True)).tanh().sum(0).softmax(0),
    ),
    "products_in_the_dtype_of_a_factor": Case(
        "x:M, K; w:N, K",
        "h = nan_to_num(cast(sum(x * w, K), x))\ny = h * sum(square(cast(x - 1, w)) * w, K)",
        lambda x, w: (x @ w.T) * ((x - 1).square() @ w.T),
        wrt="-",
    ),
    "least_of_rows_at_positions_of_a_window": Case(
        "x:K, N; at:int64[E=8]", "y = min(take(x, at, K), E)", lambda x, at: x[at].amin(0)
    ),
    "gelu_of_products_in_the_dtype_of_a_factor": Case(
        "x:M, K; w:N, K",
        "y = gelu(cast(sum(x * w, K), x))",
        lambda x, w: F.gelu(x @ w.T),
    ),
    "three_matrices_in_one_sum": Case(
        "x:M, K; w:K, N; u:N, P", "y = sum(x * w * u, K, N)", lambda x, w, u: torch.einsum("mk,kn,np->mp", x, w, u)
    ),
    "three_factors_over_one_axis": Case(
        "x:K, M; w:K, N; u:K, P", "y = sum(x * w * u, K)", lambda x, w, u: torch.einsum("km,kn,kp->mnp", x, w, u)
    ),
    "bilinear": Case("x:B, M; w:P, M, N; z:B, N", "y = sum(x * w * z, M, N)", lambda x, w, z: F.bilinear(x, z, w).T),
    "three_factors_over_two_axes": Case(
        "x:B, M, K; w:B, N, K; u:B, N, P",
        "y = sum(x * w * u, N, K)",
        lambda x, w, u: torch.einsum("bmk,bnk,bnp->bmp", x, w, u),
    ),
    "computed_factors": Case(
        "x:P, M; z:P, N; at:int64[K]",
        "y = sum(where(at > 3, x, 0.125) * tanh(z * x), P, M)",
        lambda x, z, at: torch.einsum(
            "kpm,pmn->nk", torch.where(at[:, None, None] > 3, x, 0.125), torch.tanh(x[:, :, None] * z[:, None])
        ),
    ),
    "factor_of_one_side_alone": Case(
        "x:M, N; z:M, P; s:K",
        "y = sum(tanh(x * s) * x * z, M, N)",
        lambda x, z, s: torch.einsum("kmn,mn,mp->pk", torch.tanh(x * s[:, None, None]), x, z),
    ),
    "attention": Case(
        "q:B, S, D; k:B, T, D; v:B, T, D",
        "s = sum(q * k, D) * 0.125\np = softmax(where(index(T) <= index(S), s, -inf), T)\ny = sum(p * v, T)",
        _attention,
    ),
}


APART = {
    "norm_line_by_line": Case(
        "x:M, N; w:N",
        "s = x * x\nr = rsqrt(mean(s, N) + 1e-6)\ny = x * r * w",
        lambda x, w: _rms(x) * w,
        schedule="fuse = false",
    ),
    "mlp_line_by_line": Case(
        "x:M, K; w:N, K; b:N",
        "h = sum(x * w, K)\nz = h + b\ny = gelu(z)",
        lambda x, w, b: F.gelu(x @ w.T + b),
        schedule="fuse = false",
    ),
    "line_of_two_steps": Case(
        "x:M, N",
        "z = exp(x)\ny = softmax(z, M) * softmax(z, N)",
        lambda x: x.exp().softmax(0) * x.exp().softmax(1),
        schedule="fuse = false",
    ),
}
CASES |= APART
