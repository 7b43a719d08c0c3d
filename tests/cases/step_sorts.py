"""Specs that sort, each with its formula in torch."""

from __future__ import annotations

import torch

from tests.cases.step_case import Case


def _first(x: torch.Tensor, k: int, largest: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    values, positions = torch.sort(x, dim=1, descending=largest, stable=True)
    return values[:, :k], positions[:, :k]


def _routed(x: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    p = _first(x.softmax(1), 6)[0]
    return p / p.sum(1, keepdim=True) + r


CASES = {
    "positions": Case("x:M, N", "y = argsort(x, N)", lambda x: x.argsort(dim=1, stable=True), wrt="-"),
    "elements": Case("x:M, N", "y = sort(x, N)", lambda x: x.sort(1).values),
    "from_the_largest": Case(
        "x:M, N; w:N",
        "y = sort(x * w, N, descending=True) * w + x",
        lambda x, w: (x * w).sort(1, descending=True).values * w + x,
    ),
    "along_the_first_axis": Case("x:M, N", "y = sort(x, M)\ni = argsort(x, M)", lambda x: tuple(x.sort(0)), "y i"),
    "one_row": Case("x:N", "y = sort(x, N)", lambda x: x.sort(0).values),
    "of_what_lacks_rows": Case("x:M, N; w:N", "y = x * sort(w, N)", lambda x, w: x * w.sort(0).values),
    "integers": Case("w:N; i:int64[M, N]", "y = sort(i - 3, N) + w", lambda w, i: (i - 3).sort(1).values + w),
    "in_steps": Case(
        "x:M, N",
        "y = cumsum(sort(softmax(x, N), N, descending=True), N)",
        lambda x: x.softmax(1).sort(1, descending=True).values.cumsum(1),
    ),
    "another_by_the_order": Case(
        "x:M, N; z:M, N", "y = take(z, argsort(x, N), N)", lambda x, z: z.gather(1, x.argsort(1)), wrt="z"
    ),
    "median": Case("x:M, N", "y = take(sort(x, N), (size(N) - 1) // 2, N)", lambda x: x.median(1).values),
    "first": Case(
        "x:M, N; r:K",
        "v = topk(x, K, N) * r\ni = argtopk(x, K, N)",
        lambda x, r: (_first(x, 33)[0] * r, _first(x, 33)[1]),
        "v i",
    ),
    "smallest": Case(
        "x:M, N; r:C", "v = topk(x, C, N, largest=False) * r", lambda x, r: _first(x, 6, False)[0] * r, "v"
    ),
    "routing": Case("x:M, N; r:C", "p = topk(softmax(x, N), C, N)\nv = p / sum(p, C) + r", _routed, "v"),
}
