"""Groups of a matmul's columns that its epilogue reduces, beside torch in float64.

Every kernel of the matmuls is made to run, in small tiles with tails: by pointers, in partial sums, and by TMA.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch
import triton

from tests.cases.step_cases import Case
from tests.harness.importing import built, runtime_of
from tests.harness.oracles import compare
from tests.harness.written import Written
from tritongen.operator.compile import backward_of, forward_of, generate
from tritongen.spec.read import read_spec

F = torch.nn.functional


def _heads(x: torch.Tensor, w: torch.Tensor, length: int) -> torch.Tensor:
    return (x @ w.mT).unflatten(-1, (-1, length))


def _normed(x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(_heads(x, w, len(g)), g.shape, g, 1e-6)


def _layer_normed(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, r: torch.Tensor) -> tuple[torch.Tensor, ...]:
    h = _heads(x, w, 16) * s[:, None] + r
    return F.layer_norm(h, (16,)), h.std(-1), h.amin(-1) * s


def _halves(x: torch.Tensor, w: torch.Tensor, r: torch.Tensor, e: torch.Tensor) -> tuple[torch.Tensor, ...]:
    h = (x @ w.mT).unflatten(-1, (-1, 2, 8)) + r[:, None]
    n = (h * e).sum((-1, -2))
    return h / (1 + n.square())[..., None, None], n


def _gated(x: torch.Tensor, g: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return _heads(x, g, 32).softmax(-1) * _heads(x, u, 32), _heads(x, u, 32).square().sum(-1)


NORMED = Case(
    "x:B, P, K; w:(G E=64), K; g:E=64", "h = sum(x * w, K)\ny = h * rsqrt(mean(h * h, E) + 1e-6) * g", _normed
)
CASES = {
    "rms_norm": NORMED,
    "layer_norm": Case(
        "x:B, P, K; w:(G E=16), K; s:G; r:B, P, G, E=16",
        "h = sum(x * w, K) * s + r\ny = (h - mean(h, E)) * rsqrt(var(h, E, correction=0) + 1e-5)\n"
        "t = std(h, E)\nl = min(h, E) * s",
        _layer_normed,
        "y t l",
        "-",
    ),
    "of_two_axes": Case(
        "x:G, C, P, K; w:(B R=2 E=8), K; r:P, R=2, E=8; e:R=2, E=8",
        "h = sum(x * w, K) + r\nn = sum(h * e, R, E)\ny = h / (1 + n * n)",
        _halves,
        "y n",
        "-",
    ),
    "maxout": Case("x:B, P, K; w:(L R=4), K", "y = max(sum(x * w, K), R)", lambda x, w: _heads(x, w, 4).amax(-1)),
    "batched": Case(
        "x:C, B, P, K; w:C, (G E=32), K",
        "y = softmax(sum(x * w, K), E)",
        lambda x, w: _heads(x, w[:, None], 32).softmax(-1),
    ),
    "two_matmuls": Case(
        "x:B, P, K; g:(G E=32), K; u:(G E=32), K",
        "g_sum = sum(x * g, K)\nu_sum = sum(x * u, K)\ny = softmax(g_sum, E) * u_sum\nt = sum(u_sum * u_sum, E)",
        _gated,
        "y t",
    ),
}
# Each kernel of the matmuls.
WAYS = [("rms_norm", "tma"), ("layer_norm", "pointers"), ("layer_norm", "stream_k"), ("of_two_axes", "pointers")]
WAYS += [("maxout", "pointers"), ("batched", "tma"), ("two_matmuls", "split_k"), ("two_matmuls", "stream_k")]


def _force(way: str, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have matmuls be computed one way, in small tiles, each half of which has groups of up to 64."""
    configs = importlib.import_module(f"{module.__name__}.configs")
    heuristics = runtime_of(module, "matmul_heuristics")
    described = way in ("tma", "stream_k")
    monkeypatch.setattr(heuristics, "use_tma", lambda *_: described)
    monkeypatch.setattr(heuristics, "choose_split_k", lambda *_: 3 if way == "split_k" else 1)
    split = lambda tiles, *_: (tiles - tiles // 2 - tiles // 4, 2, tiles // 4, 3)  # noqa: E731
    monkeypatch.setattr(heuristics, "choose_stream_k", split if way == "stream_k" else lambda *_: (0, 0, 0, 0))
    for name in ("STRIDED", "TMA"):
        tile = {"BLOCK_M": 16, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP": 2}
        config = triton.Config(tile, num_warps=4)
        monkeypatch.setattr(getattr(configs, name), "choose", lambda *_, config=config: config)


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_values(name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64 to its last digits where nothing is by TMA, which copies half precision alone."""
    case = CASES[name]
    module = built(case.spec(), tmp_path)
    _force(way, module, monkeypatch)
    dtype, tolerance = (torch.float16, 4e-3) if way in ("tma", "stream_k") else (torch.float64, 1e-9)
    compare(module.steps, case.torch, case.tensors(dtype), (), tolerance)


@pytest.mark.parametrize("name", ["maxout", "two_matmuls"])
def test_gradients(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    given = case.tensors(torch.float64)
    compare(built(case.spec(), tmp_path).steps, case.torch, given, range(len(given)), 1e-8)


@pytest.mark.parametrize("name", CASES)
def test_they_are_reduced_by_the_matmul(name: str) -> None:
    """The backward reads what it gave in half precision, and numbers of groups in float32."""
    spec = CASES[name].spec()
    forward = forward_of(spec)
    assert not forward.family.steps(forward.program)
    backward = backward_of(spec, forward)
    assert backward is None or not backward.forward.family.steps(backward.forward.program)


@pytest.mark.parametrize(
    ("inputs", "line"),
    [
        ("x:B, P, K; w:(G E=24), K", "max(sum(x * w, K), E)"),  # of which tiles have no whole number
        ("x:B, P, K; w:(G E=256), K", "max(sum(x * w, K), E)"),  # wider than half of a tile
        ("x:B, P, K; w:(G E=16), K", "argmax(sum(x * w, K), E)"),
        ("x:B, P, K; w:(G E=16), K", "max(sum(x * w, K), G)"),  # not side by side
        ("x:B, P, K; w:(G E=16), K; s:E=16", "sum(s, E) * max(sum(x * w, K), E)"),
        ("x:B, P, K; w:(R=4 G), K", "max(sum(x * w, K), R)"),  # whose columns would have to be copied
    ],
)
def test_others_are_reduced_by_steps_of_their_own(inputs: str, line: str) -> None:
    forward = forward_of(Case(inputs, f"y = {line}", torch.add, wrt="-").spec())
    assert forward.family.steps(forward.program)


def test_groups_go_with_what_is_stored(tmp_path: Path) -> None:
    """Where one column dominates a softmax, there is no gradient, however coarse the product that is read."""
    case = Case("x:B, P, K; w:(G E=16), K", "y = softmax(sum(x * w, K), E)", torch.add)
    x, w = case.tensors(torch.float16)
    w[3] = x[0, 0].sign() * 2
    x = ((x.abs() + 1) * x[0, 0].sign()).requires_grad_()
    y = built(case.spec(), tmp_path).steps(x, w)
    assert _heads(x, w, 16)[..., 0, 3].amin() > 60
    (gradient,) = torch.autograd.grad(y[..., 0, 3].sum(), [x])
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-6)


def test_long_heads_are_reduced_before_the_gradient_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a function that is passed the gradient as its caller took it apart."""
    path = Path(__file__).parents[2] / "examples" / "specs" / "linear_head_norm.toml"
    module = built(read_spec(path.name, path.read_text(encoding="utf-8")), tmp_path)
    configs = importlib.import_module(f"{module.__name__}.configs")
    monkeypatch.setattr(configs.WHOLE_BACKWARD, "fits", lambda *_: False)
    given = [torch.randn(shape, dtype=torch.float64) for shape in ((2, 3, 33), (256, 33), (128,))]
    compare(module.linear_head_norm, lambda *given: _normed(*given).flatten(-2), given, range(3), 1e-8)


def test_no_gradient_by_an_input_that_is_not_there(tmp_path: Path) -> None:
    """Though a step of the backward makes it beside another."""
    text = """
        op.name = "maxout"
        types.T = "float"
        inputs = { x = "T[..., K]", w = "T[(G R=4), K]", b = "T[(G R=4)] = 0" }
        compute.y = "max(sum(x * w, K) + b, R)"
        outputs.y = "x[..., G]"
        grad.wrt = ["x", "w", "b"]
    """
    function = built(read_spec("maxout.toml", text), tmp_path).maxout
    given = [torch.randn(shape, dtype=torch.float64) for shape in ((5, 33), (12, 33))]
    compare(function, lambda x, w: _heads(x, w, 4).amax(-1), given, range(2), 1e-8)


def test_probabilities_that_are_reduced_again_are_no_attention() -> None:
    """Which a kernel that goes along an axis once does not have all of at any time."""
    text = """
        op.name = "again"
        types.T = "float"
        inputs = { x = "T[M, K]", w = "T[G, E=16, K]", top = "T[M, G]" }
        outputs.y = "x[M, G]"
        [compute]
        p = "exp(sum(x * w, K) - top)"
        s = "p / sum(p, E)"
        y = "sum(exp(s - max(s, E)), E)"
    """
    assert "again_kernel" in generate(read_spec("again.toml", text))["kernels.py"]


def test_two_attentions_of_grouped_queries(tmp_path: Path) -> None:
    """The gradient of a result whose groups only inputs split: what the first stores has no group, and is no input."""
    text = """[inputs]
q = "float[(R G), M, D]"
k = "float[G, N, D]"
v = "float[G, N, D]"
kb = "float[G, L, D]"
vb = "float[G, L, D]"
[compute]
a = "sum(softmax(sum(q * k, D), N) * v, N)"
b = "sum(softmax(sum(q * kb, D), L) * vb, L)"
o = "a + b"
[outputs]
o = "auto[(R G), M, D]"
[grad]
wrt = ["k", "vb"]
"""
    written = Written(text, tmp_path)
    lengths = {"R": 3, "G": 2, "M": 4, "D": 4, "N": 5, "L": 3}
    written.compare(lengths, written.drawn(lengths))
