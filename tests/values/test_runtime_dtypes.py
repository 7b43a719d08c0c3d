"""Steps whose results have dtypes that a call tells, or that are not those of their inputs."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.harness.importing import built
from tests.harness.oracles import DEVICE, compare, differentiated, on_device
from tritongen.operator.compile import backward_of, forward_of
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

NUMBERS = {
    "y": "x - max(x, N) - max(x, M)",
    "total": "take(sum(x, N), at, M)",
    "running": "take(cumsum(x, N), at, N)",
    "squares": "0.5 * max(sum(x * x, N), M)",
}


def spec_of(inputs: str, lines: str, outputs: str, wrt: str = "") -> Spec:
    def table(name: str, entries: str) -> str:
        pairs = (entry.split(" = ", 1) for entry in entries.split("\n"))
        return f"[{name}]\n" + "\n".join(f'{own} = "{text}"' for own, text in pairs) + "\n"

    text = '[op]\nname = "steps"\nsummary = "Several steps."\n'
    text += table("inputs", inputs) + table("compute", lines) + table("outputs", outputs)
    text += f"[grad]\nwrt = {wrt.split()}\n".replace("'", '"') if wrt else ""
    return read_spec("steps.toml", text)


def operator(inputs: str, lines: str, outputs: str, folder: Path, wrt: str = "") -> Callable[..., object]:
    return built(spec_of(inputs, lines, outputs, wrt), folder).steps


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., object]:
    lines = "\n".join(f"{name} = {text}" for name, text in NUMBERS.items())
    outputs = "\n".join(f"{name} = auto" for name in NUMBERS)
    return operator("x = number[M, N]\nat = int64[T]", lines, outputs, tmp_path_factory.mktemp("numbers"))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.float16, torch.float64])
def test_numbers_of_any_class(numbers: Callable[..., object], dtype: torch.dtype) -> None:
    x = (torch.randn(5, 7, generator=torch.Generator().manual_seed(0)) * 40).to(dtype)
    at = torch.tensor([3, 0, 4])
    whole = x.double() if dtype.is_floating_point else x.long()
    own = dtype if dtype.is_floating_point else torch.int64
    squares = 0.5 * (whole * whole).sum(1).max()
    wanted = (
        x - x.amax(1, keepdim=True) - x.amax(0),
        whole.sum(1)[at].to(own),
        whole.cumsum(1)[:, at].to(own),
        squares.to(dtype if dtype.is_floating_point else torch.float32),
    )
    torch.testing.assert_close(numbers(x, at), wanted)


def test_floats_of_integers_are_floats(tmp_path: Path) -> None:
    lines = "y = sum(exp(0.1 * i), N)\nz = sum(exp(0.1 * i), M)\n"
    lines += "e = exp(0.1 * index(N))\nt = take(cumsum(i / 4, N), at, M)"
    outputs = "y = auto\nz = auto\ne = auto\nt = auto"
    of_integers = operator("i = int32[M, N]\nat = int64[T]", lines, outputs, tmp_path)
    i = torch.arange(15, dtype=torch.int32).reshape(3, 5)
    powers, at = (0.1 * i).exp(), torch.tensor([2, 0])
    wanted = (powers.sum(1), powers.sum(0), (0.1 * torch.arange(5)).exp(), (i / 4).cumsum(1)[at])
    torch.testing.assert_close(of_integers(i, at), wanted)


def test_sums_of_numbers_do_not_wrap(tmp_path: Path) -> None:
    both = operator("x = any[M, N]", "y = sum(x, N)\nz = sum(x, M)", "y = auto\nz = auto", tmp_path)
    x = torch.full((3, 4), 100, dtype=torch.int8)
    torch.testing.assert_close(both(x), (x.sum(1), x.sum(0)))


def test_positions_alone_are_as_wide_as_the_rest(tmp_path: Path) -> None:
    lines = "decay = cumprod(0.9 + 0.1 / (1 + index(N)), N)\ny = x * take(decay, size(N) - 1 - index(N), N)"
    decayed = operator("x = float[M, N]", lines, "y = x", tmp_path, "x")

    def formula(x: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(x.shape[1], dtype=torch.float64)
        return x * (0.9 + 0.1 / (1 + steps)).cumprod(0).flip(0)

    compare(decayed, formula, [torch.randn(3, 9, dtype=torch.float64)], [0], 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_of_what_reads_no_input_of_a_sum(tmp_path: Path, dtype: torch.dtype) -> None:
    """The gradient reads p of the forward, and never the bias of which p's dtype is a promotion."""
    inputs = "x = float[B, H, K]\nw = float[N, K]\nbias = float[N]\ncolour = float[B, H, N]"
    lines = "p = softmax(sum(x * w, K) + bias, N)\nleft = cumprod(p, H)\n"
    lines += "y = sum(take(left, index(H), H) * (1 - p) * colour, N)"
    rendered = operator(inputs, lines, "y = auto", tmp_path, "x bias colour")

    def formula(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, colour: torch.Tensor) -> torch.Tensor:
        p = (x @ w.T + bias).softmax(-1)
        return (p.cumprod(1) * (1 - p) * colour).sum(-1)

    random = torch.Generator().manual_seed(0)
    shapes = ((2, 5, 6), (7, 6), (7,), (2, 5, 7))
    tensors = [torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes]
    compare(rendered, formula, tensors, [0, 2, 3], 1e-9 if dtype == torch.float64 else 1e-5)


# Inputs, lines and their formula, with a bias that the gradient does not read, of which dtypes are promotions.
NO_LONGER_READ: dict[str, tuple[str, str, Callable[..., torch.Tensor], tuple[int, ...]]] = {
    "norm": (
        "x = float[T, D]\nw = float[F, D]\nb = float[F]\nf = float[F]",
        "h = sum(x * w, D) + b\ny = h * rsqrt(mean(h * h, F) + 0.1) * f",
        lambda x, w, b, f: (h := x @ w.T + b) * (h * h).mean(1, keepdim=True).add(0.1).rsqrt() * f,
        (7,),
    ),
    "loss": (
        "x = float[T, D]\nw = float[F, D]\nb = float[F]\nf = float[T]",
        "y = f * logsumexp(sum(x * w, D) + b, F)",
        lambda x, w, b, f: (x @ w.T + b).logsumexp(1) * f,
        (5,),
    ),
}


@pytest.mark.parametrize("output", ["auto", "x"])
@pytest.mark.parametrize("name", NO_LONGER_READ)
def test_gradients_of_an_input_that_is_not_read(tmp_path: Path, name: str, output: str) -> None:
    """The factor of the matmuls is stored once, in torch's dtype, and not computed for each tile of both."""
    inputs, lines, formula, last = NO_LONGER_READ[name]
    spec = spec_of(inputs, lines, f"y = {output}", "x w b")
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    inner = [one for step in backward.plan.steps for one in step.family.steps(step.program) or (step,)]
    matmuls = [one.family.matmuls(one.program) for one in inner]
    assert [one.is_plain for one in matmuls if one] == [True, True]
    rendered = built(spec, tmp_path).steps
    random = torch.Generator().manual_seed(0)
    tensors = [torch.randn(shape, generator=random) for shape in ((5, 6), (7, 6), (7,), last)]
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
        compare(rendered, formula, [one.to(dtype) for one in tensors], [0, 1, 2], tolerance)
    halves = [one if place == 2 else one.half() for place, one in enumerate(tensors)]
    dtype = torch.float32 if output == "auto" else torch.float16
    mixed = differentiated(on_device(rendered), [one.to(DEVICE) for one in halves], [0, 1, 2], dtype)
    exact = differentiated(formula, [one.double() for one in halves], [0, 1, 2], dtype)
    assert [one.dtype for one in mixed] == [dtype, torch.float16, torch.float16, torch.float32]
    for one, wanted in zip(mixed, exact, strict=True):
        torch.testing.assert_close(one.cpu().double(), wanted, rtol=4e-3, atol=4e-3 * float(wanted.abs().max()))
