"""A generator that forgets a mask makes no kernel, of any family."""

from __future__ import annotations

import pytest

from tests.cases.step_case import Case
from tritongen.families.contraction import addressing
from tritongen.families.streaming.places import Places
from tritongen.lowering.tile import Tile
from tritongen.nest.values import Expr, V
from tritongen.operator.compile import generate, made_of

# No other test has these numbers: what is planned of a spec may be remembered.
CASES = {
    "map": Case("x:M,N; b:N", "y = 0.7731 * x + b", lambda x, b: 0.7731 * x + b, wrt="-"),
    "rows": Case("x:M,N", "y = softmax(0.7731 * x, N)", lambda x: (0.7731 * x).softmax(-1), wrt="-"),
    "matmul": Case(
        "x:M,K; w:K,N; b:N", "h = sum(x * w, K)\ny = 0.7731 * h + b", lambda x, w, b: 0.7731 * x @ w + b, wrt="-"
    ),
    "attention": Case(
        "q:M,D; k:N,D; v:N,E; bias:M,N",
        "s = 0.7731 * sum(q * k, D) + bias\ny = sum(softmax(s, N) * v, N)",
        lambda q, k, v, bias: (0.7731 * q @ k.T + bias).softmax(-1) @ v,
        wrt="-",
    ),
}


@pytest.mark.parametrize(
    ("case", "kind", "method", "mask", "message"),
    [
        ("map", Tile, "mask", V.row_mask, "the mask has no BLOCK_N"),
        ("rows", Tile, "mask", V.row_mask, "the mask has no BLOCK_N"),
        ("rows", Tile, "mask", V.col_mask, "the mask has no BLOCK_M"),
        ("matmul", addressing.Places, "mask", V.row_mask, "the mask has no BLOCK_"),
        ("attention", Places, "mask_of", None, "the mask has no BLOCK_M and no BLOCK_N"),
        ("attention", Places, "mask_of", V.row_mask, "the mask has no BLOCK_N"),
    ],
)
def test_forgotten_mask_is_found(
    case: str, kind: type, method: str, mask: Expr | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, method, lambda *_: mask)
    made_of.cache_clear()  # Kernels are checked where they are printed, and may have been made before.
    with pytest.raises(TypeError, match=message):
        generate(CASES[case].spec())
