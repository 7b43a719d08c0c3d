"""What Gluon kernels of the gradients of attention compute, as those of the forward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.cases.gluon import (
    BIAS,
    CAUSAL,
    DEVICE,
    DOCUMENTS,
    GRADIENT,
    GROUPED,
    HALF,
    IS_HOPPER,
    MEAN,
    OF_HEADS,
    QKV,
    drawn,
    launching,
    masked_scores,
    some,
    spec_of,
)
from tritongen.operator.compile import generate


def check_gradient(
    operator: ModuleType, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor, scale: float
) -> None:
    """By queries, whose heads may be several to one of keys and values, and by these; twice, as `check`."""
    given, exact = ([one.to(dtype).clone().requires_grad_() for one in (q, k, v)] for dtype in (q.dtype, torch.float64))
    s, every_v = masked_scores(*exact, scale)
    wanted = torch.autograd.grad(torch.softmax(s, -1) @ every_v, exact, do.double())
    for _ in range(2 if IS_HOPPER else 1):
        found = torch.autograd.grad(operator.attend(*given, scale=scale), given, do)
        check_errors(found, wanted)


def check_errors(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> None:
    for one, exact in zip(found, wanted, strict=True):
        tolerance = 8e-3 if one.dtype == torch.bfloat16 else 1e-3  # whose roundings are 8 times those of float16
        # Those of a scale of zero, and of one key, are zero: there sums in float32 leave what they round.
        allowed = tolerance * exact.norm() if exact.any() else 1e-4 * exact.numel() ** 0.5
        assert (one.double() - exact).norm() <= allowed


FORWARD, DQ, DK_DV = "attend_gluon_kernel", "attend_backward_dq_gluon_kernel", "attend_backward_dk_dv_gluon_kernel"


@pytest.mark.parametrize("scale", some([0.1, -0.1, 0.0], 1))
@pytest.mark.parametrize("dtype", some([torch.float16, torch.bfloat16], 0))
@pytest.mark.parametrize(
    "sizes", some([(200, 333, 128, 128), (500, 129, 128, 96), (65, 65, 80, 24), (1000, 1, 80, 128)], 0, 2)
)
def test_gradients(
    sizes: tuple[int, int, int, int], dtype: torch.dtype, scale: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In heads that are wider than 64; dk and dv of few keys by the plain kernel."""
    operator, names = launching(spec_of(more=GRADIENT), tmp_path, monkeypatch)
    m, n, d, e = sizes
    q, k, v, do = drawn((m, d), (n, d), (n, e), (m, e), dtype=dtype)
    check_gradient(operator, q, k, v, do, scale)
    assert names[:3] == [FORWARD, DQ, DK_DV if n > 64 else "attend_backward_dk_dv_kernel"]


@pytest.mark.parametrize(
    ("spelled", "scale"),
    some([("/ sqrt(size(D))", 80**-0.5), ("* rsqrt(size(E))", 96**-0.5), ("/ 8", 0.125), ("* 0.1", 0.1)], 0, 1),
)
def test_scales_that_the_spec_has(spelled: str, scale: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of lengths of heads, too, which exponents take as they take those of a param."""
    spec = spec_of(CAUSAL.replace("* scale", spelled), params="", more=GRADIENT)
    operator, names = launching(spec, tmp_path, monkeypatch)
    assert generate(spec)["gluon_kernels.py"].count("factor = to_base2(") == 3
    given = [one.requires_grad_() for one in drawn((130, 80), (150, 80), (150, 96))]
    (do,) = drawn((130, 96))
    exact = [one.detach().double().requires_grad_() for one in given]
    s, v = masked_scores(*exact, scale)
    wanted = torch.autograd.grad(torch.softmax(s, -1) @ v, exact, do.double())
    check_errors(torch.autograd.grad(operator.attend(*given), given, do), wanted)
    assert names[:3] == [FORWARD, DQ, DK_DV]


def test_gradients_of_heads_that_are_narrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, names = launching(spec_of(more=GRADIENT), tmp_path, monkeypatch)
    q, k, v, do = drawn((200, 64), (333, 64), (333, 64), (200, 64))
    check_gradient(operator, q, k, v, do, 0.125)
    assert names[:2] == [FORWARD, "attend_backward_dq_kernel"]


WITHOUT_MASK = f's = "sum(q * k, D) * scale + bias"\n{MEAN}'
GROUPS = GROUPED, 'o = "q[..., (G R), M, E]"'


def test_gradients_of_grouped_heads_with_a_bias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which each head of a group has its own, the same for all of the batch; dk and dv by the plain kernel."""
    inputs, outputs = f'{GROUPED}\nbias = "T[(G R), M, N]"', GROUPS[1]
    operator, names = launching(spec_of(BIAS, inputs, outputs, more=GRADIENT), tmp_path, monkeypatch)
    q, k, v, do = drawn((200, 128), (336, 128), (336, 96), (200, 96))
    k, v = k[:, :1], v[:, :1]
    bias = torch.randn((3, 200, 336), generator=torch.Generator().manual_seed(1)).to(DEVICE, HALF)
    given, exact = ([one.to(dtype).clone().requires_grad_() for one in (q, k, v)] for dtype in (HALF, torch.float64))
    s, every_v = masked_scores(*exact, 0.125)
    wanted = torch.autograd.grad(torch.softmax(s + bias.double(), -1) @ every_v, exact, do.double())
    check_errors(torch.autograd.grad(operator.attend(*given, bias, scale=0.125), given, do), wanted)
    assert names[:2] == [FORWARD, DQ]


def test_gradients_of_grouped_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, names = launching(spec_of(CAUSAL, *GROUPS, more=GRADIENT), tmp_path, monkeypatch)
    q, k, v, do = drawn((200, 128), (333, 128), (333, 96), (200, 96))
    check_gradient(operator, q, k[:, :1], v[:, :1], do, 0.125)
    assert names[:2] == [FORWARD, DQ]


@pytest.mark.parametrize(
    ("kind", "compute", "sizes"),
    some(
        [
            ("T[H, M, N]", BIAS, (200, 336, 128, 96)),
            ("T[H, M, N]", WITHOUT_MASK, (300, 72, 96, 128)),
            ("T[M, N]", BIAS, (65, 200, 128, 80)),
            ("T[M, N]", WITHOUT_MASK, (129, 136, 80, 96)),
            ("T[..., H, M, N]", WITHOUT_MASK, (200, 336, 128, 128)),
        ],
        0,
        1,
        3,
    ),
)
def test_gradients_with_a_bias(
    kind: str, compute: str, sizes: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which dk and dv read across; blocks past the last row and the last key, too. Its own is by another kernel."""
    gradient = GRADIENT.replace('"v"', '"v", "bias"')
    operator, names = launching(spec_of(compute, f'{OF_HEADS}\nbias = "{kind}"', more=gradient), tmp_path, monkeypatch)
    m, n, d, e = sizes
    q, k, v, do = drawn((m, d), (n, d), (n, e), (m, e))
    shape = {"T[M, N]": (m, n), "T[H, M, N]": (3, m, n)}.get(kind, (2, 3, m, n))
    bias = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(DEVICE, HALF)
    given, exact = (
        [one.to(dtype).clone().requires_grad_() for one in (q, k, v, bias)] for dtype in (HALF, torch.float64)
    )
    s = exact[0] @ exact[1].mT * 0.125 + exact[3]
    if compute == BIAS:
        s = s.masked_fill(torch.ones(m, n, dtype=torch.bool, device=DEVICE).triu(1), -torch.inf)
    wanted = torch.autograd.grad(torch.softmax(s, -1) @ exact[2], exact, do.double())
    for _ in range(2 if IS_HOPPER else 1):
        check_errors(torch.autograd.grad(operator.attend(*given, scale=0.125), given, do), wanted)
    assert names[:3] == [FORWARD, DQ, DK_DV]


@pytest.mark.parametrize(
    ("condition", "meets"),
    [
        ("", lambda rows, cols, length: cols >= 0),
        ("index(N) < length", lambda rows, cols, length: cols < length),
        (
            "(index(M) - index(N) >= 0) & (index(M) - index(N) < window)",
            lambda rows, cols, length: (cols <= rows) & (rows - cols < 100),
        ),
        ("index(N) - index(M) >= 150", lambda rows, cols, length: cols - rows >= 150),
    ],
    ids=["none", "lengths", "window", "rows without keys"],
)
def test_gradients_under_other_masks(
    condition: str, meets: Callable[..., torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None, lengths of heads, a window, and what some rows meet nothing of, which have no gradient."""
    compute = CAUSAL.replace("index(N) <= index(M)", condition)
    inputs = f'{OF_HEADS}\nlength = "int32[H]"' if "length" in condition else QKV
    if not condition:
        compute = CAUSAL.replace("where(index(N) <= index(M), ", "").replace(", -inf)", "")
    params = 'scale = { type = "float" }' + "\nwindow = 100" * ("window" in condition)
    operator, names = launching(spec_of(compute, inputs, params=params, more=GRADIENT), tmp_path, monkeypatch)
    q, k, v, do = drawn((300, 128), (333, 128), (333, 80), (300, 80))
    length = torch.tensor([333, 64, 1], device=DEVICE, dtype=torch.int32)
    given, exact = ([one.to(dtype).clone().requires_grad_() for one in (q, k, v)] for dtype in (HALF, torch.float64))
    rows, cols = torch.arange(300, device=DEVICE)[:, None], torch.arange(333, device=DEVICE)
    is_met = meets(rows, cols, length[:, None, None]).expand(2, 3, 300, 333)
    s = (exact[0] @ exact[1].mT * 0.125).masked_fill(~is_met, -torch.inf)
    is_alone = ~is_met.any(-1, keepdim=True)
    p = torch.softmax(s.masked_fill(is_alone, 0.0), -1).masked_fill(is_alone, 0.0)
    wanted = torch.autograd.grad(p @ exact[2], exact, do.double())
    for _ in range(2 if IS_HOPPER else 1):
        o = operator.attend(*given, *([length] if "length" in condition else []), scale=0.125)
        found = torch.autograd.grad(o, given, do)
        # The weights of a row without keys are NaN, as its mean.
        is_number = 2 if is_alone.any() else 3
        check_errors(found[:is_number], wanted[:is_number])
    assert names[1:3] == [DQ, DK_DV]


def test_gradients_of_a_decay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a softmax, where columns end for all rows at once: that limit is one number."""
    lines = (
        'behind = "index(M) + size(N) - size(M) - index(N)"',
        'p = "where(behind >= 0, sum(q * k, D) * scale * exp(-decay * behind), 0.0)"',
        'o = "sum(p * v, N)"',
    )
    spec = spec_of("\n".join(lines), f'{OF_HEADS}\ndecay = "float32[H]"', more=GRADIENT)
    operator, names = launching(spec, tmp_path, monkeypatch)
    q, k, v, do = drawn((140, 128), (205, 128), (205, 80), (140, 80))
    decay = torch.tensor([0.01, 0.1, 0.5], device=DEVICE)
    given, exact = ([one.to(dtype).clone().requires_grad_() for one in (q, k, v)] for dtype in (HALF, torch.float64))
    behind = torch.arange(140, device=DEVICE)[:, None] + 65 - torch.arange(205, device=DEVICE)
    weights = torch.exp(-decay.double()[:, None, None] * behind).masked_fill(behind < 0, 0.0)
    wanted = torch.autograd.grad(exact[0] @ exact[1].mT * 0.125 * weights @ exact[2], exact, do.double())
    found = torch.autograd.grad(operator.attend(*given, decay, scale=0.125), given, do)
    check_errors(found, wanted)
    assert names[-1] == DK_DV
    assert "cols < row_end)" in (Path(*operator.__path__) / "gluon_kernels.py").read_text(encoding="utf-8")


def test_gradients_with_weights_of_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward, of values that have a value for each position inside the sum; dv, which these multiply
    behind the loop, by the plain kernel.
    """
    compute = CAUSAL.replace("* v", "* (v * weight)")
    spec = spec_of(compute, f'{OF_HEADS}\nweight = "float32[..., H, N]"', more=GRADIENT)
    operator, names = launching(spec, tmp_path, monkeypatch)
    q, k, v, do = drawn((205, 128), (205, 128), (205, 80), (205, 80))
    weight = drawn((205, 1), dtype=torch.float32)[0][..., 0]
    given, exact = ([one.to(dtype).clone().requires_grad_() for one in (q, k, v)] for dtype in (HALF, torch.float64))
    s, every_v = masked_scores(*exact, 0.125)
    wanted = torch.softmax(s, -1) @ (every_v * weight.double()[..., None])
    o = operator.attend(*given, weight, scale=0.125)
    check_errors([o, *torch.autograd.grad(o, given, do)], [wanted, *torch.autograd.grad(wanted, exact, do.double())])
    assert names[:2] == [FORWARD, DQ]


PACKED = "(index(N) <= index(M)) & (of_q == of_k)"
PADDED = "(index(N) <= index(M)) & ((of_q == of_k) | (index(N) == index(M)))"


@pytest.mark.parametrize(
    ("condition", "of_q", "of_k"),
    [
        pytest.param(PACKED, [(0, 70), (1, 3), (2, 330), (3, 50)], [(0, 70), (1, 3), (2, 330), (3, 50)], id="several"),
        pytest.param(PACKED, [(0, 150), (1, 100), (0, 150)], [(0, 150), (1, 100), (0, 150)], id="one in two parts"),
        pytest.param(PADDED, [(0, 130), (1, 170), (-1, 50)], [(0, 130), (1, 170), (-2, 50)], id="padding"),
        pytest.param("of_q == of_k", [(0, 150), (1, 190)], [(1, 260), (3, 140), (0, 90)], id="in both directions"),
        pytest.param("of_q == of_k", [(0, 150), (5, 150), (1, 3)], [(1, 90), (0, 110)], id="rows without keys"),
    ],
)
def test_gradients_of_documents(
    condition: str,
    of_q: list[tuple[int, int]],
    of_k: list[tuple[int, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs of the same number, in another order in each of two sequences; tiles may be of one, or meet nothing."""
    compute = CAUSAL.replace("index(N) <= index(M)", condition)
    operator, names = launching(spec_of(compute, DOCUMENTS, more=GRADIENT), tmp_path, monkeypatch)
    rows, cols = (documents(runs) for runs in (of_q, of_k))
    m, n = rows.shape[-1], cols.shape[-1]
    q, k, v, do = (one[:, :2] for one in drawn((m, 80), (n, 80), (n, 72), (m, 72)))
    given, exact = ([one.to(dtype).clone().requires_grad_() for one in (q, k, v)] for dtype in (HALF, torch.float64))
    at_rows, at_cols = (torch.arange(count, device=DEVICE) for count in (m, n))
    is_met = rows[..., :, None] == cols[..., None, :]
    if condition == PADDED:
        is_met |= at_rows[:, None] == at_cols
    if condition != "of_q == of_k":
        is_met = is_met.tril()
    s = (exact[0] @ exact[1].mT * 0.125).masked_fill(~is_met, -torch.inf)
    is_alone = ~is_met.any(-1, keepdim=True)
    p = torch.softmax(s.masked_fill(is_alone, 0.0), -1).masked_fill(is_alone, 0.0)
    wanted = torch.autograd.grad(p @ exact[2], exact, do.double())
    for _ in range(2 if IS_HOPPER else 1):
        found = torch.autograd.grad(operator.attend(*given, rows, cols, scale=0.125), given, do)
        # The weights of a row without keys are NaN, as its mean.
        is_number = 2 if is_alone.any() else 3
        check_errors(found[:is_number], wanted[:is_number])
    finders = [name.replace("_gluon_", "_bounds_") for name in (DQ, DK_DV)]
    assert IS_HOPPER or names[-4:] == [finders[0], DQ, finders[1], DK_DV]


def documents(runs: list[tuple[int, int]]) -> torch.Tensor:
    """Numbers of runs of so many positions each, for two heads of two sequences, the second the other way round."""
    numbers = torch.cat([torch.full((length,), number, dtype=torch.int32) for number, length in runs]).to(DEVICE)
    return torch.stack([numbers, numbers.flip(0)])[:, None].expand(-1, 2, -1)


@pytest.mark.parametrize("block", some([128, 256, 64, 40], 0, 1, 3))
def test_dilated_masks(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward; also where tiles cross their blocks, or none divides them."""
    behind = "index(M) // block - index(N) // block"
    compute = CAUSAL.replace("index(N) <= index(M)", f"({behind} >= 0) & (({behind}) % 2 == 0)")
    params = 'scale = { type = "float" }\nblock = { default = 128, min = 1 }'
    operator, names = launching(spec_of(compute, params=params, more=GRADIENT), tmp_path, monkeypatch)
    q, k, v, do = drawn((500, 80), (450, 80), (450, 80), (500, 80))
    given, exact = ([one.to(dtype).clone().requires_grad_() for one in (q, k, v)] for dtype in (HALF, torch.float64))
    rows, cols = (torch.arange(n, device=DEVICE) // block for n in (500, 450))
    apart = rows[:, None] - cols
    kept = (apart >= 0) & (apart % 2 == 0)
    some_rows = kept.any(-1)
    s = (exact[0] @ exact[1].mT * 0.1).masked_fill(~kept, -torch.inf)[..., some_rows, :]
    o = torch.softmax(s, -1) @ exact[2]
    wanted = torch.autograd.grad(o, exact, do[..., some_rows, :].double())
    found = operator.attend(*given, scale=0.1, block=block)
    torch.testing.assert_close(found[..., some_rows, :].double(), o, rtol=2e-2, atol=2e-2)
    check_errors(torch.autograd.grad(found, given, do), wanted)
    assert names[:3] == [FORWARD, DQ, DK_DV]
