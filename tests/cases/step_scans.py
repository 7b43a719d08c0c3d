"""Specs of scans, and of math around them, each with its formula in torch."""

from __future__ import annotations

import torch

from tests.cases.step_case import Case, F


def _kept(x: torch.Tensor, top: float = 0.7) -> torch.Tensor:
    p = x.softmax(1)
    return torch.where(p.cumsum(1) - p < top, p, torch.zeros_like(p))


def _nucleus(p: torch.Tensor) -> torch.Tensor:
    return torch.where(p.cumsum(1) - p < 0.9, p, torch.zeros_like(p))


def _between(x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    sums = F.pad(x.cumsum(0), (0, 0, 1, 0))
    return sums[ends + 2] - sums[ends]


def _place(x: torch.Tensor, e: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """What is looked up by how many tokens before each have the same number."""
    same = at[:, None] == torch.arange(7)
    before = same.cumsum(0) - same.long()
    return x[before.gather(1, at[:, None])[:, 0]] * e[at]


def _back(x: torch.Tensor) -> torch.Tensor:
    return x.flip(1)


def _steps(x: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
    """A recurrence, column after column."""
    found = [x[:, 0]]
    for n, factor in enumerate(decay.expand_as(x).unbind(1)[1:], 1):
        found.append(factor * found[-1] + x[:, n])
    return torch.stack(found, 1)


def _discounted(x: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    decay = d.sigmoid().cumprod(1)
    return (x / decay).cumsum(1) * decay


CASES = {
    "cumsum": Case("x:M, N", "y = cumsum(x, N)", lambda x: x.cumsum(1)),
    "cumprod": Case("x:M, N", "y = cumprod(x, N)", lambda x: x.cumprod(1)),
    "of_the_middle": Case(
        "x:B, M, N", "y = cumsum(x, M)\nz = cumprod(x, M)", lambda x: (x.cumsum(1), x.cumprod(1)), "y z"
    ),
    "of_the_first": Case(
        "x:B, M, N", "y = cumsum(x, B)\nz = cumprod(x, B)", lambda x: (x.cumsum(0), x.cumprod(0)), "y z"
    ),
    "of_one_row": Case("x:L", "y = cumsum(x, L)\nz = cumprod(x, L)", lambda x: (x.cumsum(0), x.cumprod(0)), "y z"),
    "of_a_dimension_of_two_axes": Case(
        "x:M, (C=6 N)", "y = cumsum(x, N)", lambda x: x.unflatten(1, (6, 45)).cumsum(2).flatten(1)
    ),
    "math_around": Case("x:M, N; w:N; b:N", "y = 2 * cumsum(x * w, N) + b", lambda x, w, b: 2 * (x * w).cumsum(1) + b),
    "functions_around": Case(
        "x:M, N; w:M",
        "y = tanh(cumsum(exp(x) * w, N)) * x\nz = cumprod(sigmoid(x) + 0.5, N) * w",
        lambda x, w: (
            (x.exp() * w[:, None]).cumsum(1).tanh() * x,
            (x.sigmoid() + 0.5).cumprod(1) * w[:, None],
        ),
        "y z",
    ),
    "of_what_lacks_an_axis": Case(
        "x:M, N; w:N; v:M",
        "y = x * cumsum(w, N)\nz = cumprod(w * v, N)",
        lambda x, w, v: (x * w.cumsum(0), (w * v[:, None]).cumprod(1)),
        "y z",
    ),
    "condition_on_sums": Case("x:M, N", "c = cumsum(x, N)\ny = where(c - x < 0.9, x, 0)", _nucleus),
    "condition_of_a_name": Case("x:M, N", "c = cumsum(x, N)\nkept = c - x < 0.9\ny = where(kept, x, 0)", _nucleus),
    "sums_within_limits": Case(
        "x:M, N; w:M, N", "y = w * clamp(cumsum(x, N), -1, 1)", lambda x, w: w * x.cumsum(1).clamp(-1, 1)
    ),
    "conditions_on_sums_and_others": Case(
        "x:M, N; w:M, N",
        "c = cumsum(x, N)\ny = where((c < 1) & (w > 0), x, 0) + where(c > -1, w, x)",
        lambda x, w: torch.where((x.cumsum(1) < 1) & (w > 0), x, 0.0) + torch.where(x.cumsum(1) > -1, w, x),
    ),
    "several_in_one_kernel": Case(
        "x:M, N; w:M, N",
        "y = cumsum(x, N) * cumsum(w, N)\nz = cumprod(x * 0.5 + 1, N) - cumsum(x * w, N)",
        lambda x, w: (x.cumsum(1) * w.cumsum(1), (x * 0.5 + 1).cumprod(1) - (x * w).cumsum(1)),
        "y z",
    ),
    "of_different_axes": Case("x:M, N", "y = cumsum(x, N) * cumsum(x, M)", lambda x: x.cumsum(1) * x.cumsum(0)),
    "from_the_end": Case(
        "x:M, N",
        "r = size(N) - 1 - index(N)\nc = cumsum(take(x, r, N), N)\ny = take(c, r, N)",
        lambda x: x.flip(1).cumsum(1).flip(1),
    ),
    "in_reverse": Case(
        "x:M, N",
        "y = cumsum(x, N, reverse=True)\nz = cumprod(x, N, reverse=True)\nm = mean(cumsum(x, N, reverse=True), N)",
        lambda x: (_back(x.flip(1).cumsum(1)), _back(x.flip(1).cumprod(1)), x.flip(1).cumsum(1).mean(1)),
        "y z m",
    ),
    "recurrence": Case(
        "x:M, N; d:M, N", "h = recurrence(x * 2, sigmoid(d), N) - x", lambda x, d: _steps(x * 2, d.sigmoid()) - x, "h"
    ),
    "recurrence_in_reverse": Case(
        "x:M, N; d:M",
        "h = recurrence(x, sigmoid(d), N, reverse=True)",
        lambda x, d: _back(_steps(x.flip(1), d.sigmoid()[:, None])),
        "h",
    ),
    "recurrence_of_a_number": Case("x:M, N", "h = recurrence(x, 0.9, N)", lambda x: _steps(x, x.new_tensor(0.9)), "h"),
    "mean_of_a_recurrence": Case(
        "x:M, N; d:N",
        "h = mean(recurrence(x, sigmoid(d), N), N)",
        lambda x, d: _steps(x, d.sigmoid()).mean(1),
        "h",
    ),
    "an_integral_image": Case("x:B, M, N", "y = cumsum(cumsum(x, N), M)", lambda x: x.cumsum(2).cumsum(1)),
    "a_scan_of_a_scan": Case("x:M, N", "y = cumsum(cumsum(x, N) * 0.1, N)", lambda x: (x.cumsum(1) * 0.1).cumsum(1)),
    "a_product_of_sums": Case(
        "x:M, N", "y = cumprod(tanh(cumsum(x, N)) + 0.1, N)", lambda x: (x.cumsum(1).tanh() + 0.1).cumprod(1)
    ),
    "softmax_of_a_scan": Case("x:M, N", "y = softmax(cumsum(x, N), N)", lambda x: x.cumsum(1).softmax(1)),
    "softmax_of_columns_of_a_scan": Case("x:M, N", "y = softmax(cumsum(x, N), M)", lambda x: x.cumsum(1).softmax(0)),
    "scan_of_a_softmax": Case("x:M, N", "y = cumsum(softmax(x, N), N)", lambda x: x.softmax(1).cumsum(1)),
    "top_p": Case("x:M, N", "p = softmax(x, N)\ny = where(cumsum(p, N) - p < 0.7, p, 0)", _kept),
    "mean_of_a_scan": Case("x:M, N", "y = mean(cumsum(x, N), N)", lambda x: x.cumsum(1).mean(1)),
    "max_of_a_scan": Case("x:M, N; w:M", "y = max(cumsum(x, N), N) * w", lambda x, w: x.cumsum(1).amax(1) * w),
    "drawdown": Case(
        "x:M, N", "c = cumsum(x, N)\ny = max(c, N) - c", lambda x: x.cumsum(1).amax(1, keepdim=True) - x.cumsum(1)
    ),
    "sum_of_a_product": Case("x:M, N", "y = sum(cumprod(x, N), M, N)", lambda x: x.cumprod(1).sum()),
    # What lies behind the end of a row has gradients too.
    "sum_of_exponentials": Case(
        "x:M, N", "y = sum(exp(cumsum(x, N) * 0.1), N)", lambda x: (x.cumsum(1) * 0.1).exp().sum(1)
    ),
    "sum_of_a_polynomial": Case(
        "x:M, N",
        "z = cumprod(x, N)\ny = sum(z * z + 3 * z, N)",
        lambda x: (x.cumprod(1).square() + 3 * x.cumprod(1)).sum(1),
    ),
    "norm_of_a_scan": Case(
        "x:M, N; w:N",
        "h = cumsum(x, N)\ny = h * rsqrt(mean(h * h, N) + 0.1) * w",
        lambda x, w: x.cumsum(1) * (x.cumsum(1).square().mean(1, keepdim=True) + 0.1).rsqrt() * w,
    ),
    "scan_of_a_norm": Case(
        "x:M, N",
        "y = cumsum(x - mean(x, N), N)\nz = cumprod(x / max(abs(x), M), N)",
        lambda x: ((x - x.mean(1, keepdim=True)).cumsum(1), (x / x.abs().amax(0)).cumprod(1)),
        "y z",
    ),
    "running_mean": Case(
        "x:M, N", "y = cumsum(x, N) / (index(N) + 1)", lambda x: x.cumsum(1) / torch.arange(1, x.shape[1] + 1)
    ),
    "discounted_sum": Case(
        "x:M, N; d:M, N",
        "a = cumprod(sigmoid(d) * 0.25 + 0.75, N)\ny = cumsum(x / a, N) * a",
        lambda x, d: (x / (d.sigmoid() * 0.25 + 0.75).cumprod(1)).cumsum(1) * (d.sigmoid() * 0.25 + 0.75).cumprod(1),
    ),
    "transmittance": Case(
        "s:M, N; c:M, N",
        "a = 1 - exp(-softplus(s))\nt = cumprod(1 - a, N)\n"
        "y = sum(a * where(index(N) > 0, take(t, index(N) - 1, N), 1) * c, N)",
        lambda s, c: (
            (1 - (-F.softplus(s)).exp()) * F.pad((-F.softplus(s)).exp().cumprod(1)[:, :-1], (1, 0), value=1.0) * c
        ).sum(1),
    ),
    "scan_of_a_matmul": Case(
        "x:M, K; w:N, K; b:N", "y = cumsum(sum(x * w, K) + b, M)", lambda x, w, b: (x @ w.T + b).cumsum(0)
    ),
    "matmul_of_a_scan": Case("x:M, K; w:N, K", "y = sum(cumsum(x, K) * w, K)", lambda x, w: x.cumsum(1) @ w.T),
    "sums_of_segments": Case(
        "x:M, N; ends:int64[T]",
        "c = cumsum(x, M)\ny = take(c, ends + 1, M) - where(ends > 0, take(c, ends - 1, M), 0)",
        _between,
    ),
    "places_in_buffers": Case(
        "x:T; e:V; at:int64[T]",
        "same = at == index(V)\ncount = cumsum(same, T)\ny = take(x, take(count, at, V) - 1, T) * take(e, at, V)",
        _place,
    ),
    "positions_of_what_is_kept": Case(
        "x:M; w:N; at:int64[N]",
        "y = where(at > 3, take(x, cumsum(at > 3, N) - 1, M) * w, 0)",
        lambda x, w, at: torch.where(at > 3, x[((at > 3).cumsum(0) - 1).clamp(min=0)] * w, torch.zeros_like(w)),
    ),
    "counts": Case(
        "x:M, N; at:int64[M, N]",
        "y = x * cumsum(at, N)\nz = cumsum(at > 2, N)\np = cumprod(at - 2, M)",
        lambda x, at: (x * at.cumsum(1), (at > 2).cumsum(1), (at - 2).cumprod(0)),
        "y z p",
    ),
    "line_by_line": Case(
        "x:M, N; w:N",
        "h = x * w\nc = cumsum(h, N)\ny = gelu(c)",
        lambda x, w: F.gelu((x * w).cumsum(1)),
        schedule="fuse = false",
    ),
}
