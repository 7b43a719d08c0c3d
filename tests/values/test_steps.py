"""Operators that no single kernel computes: they are cut into steps, forward and backward, beside a float64 oracle.

The oracle is torch's own of a formula that stands beside each spec, its gradient by autograd.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.cases.step_case import rms
from tests.cases.step_cases import CASES, Case
from tests.harness.importing import built
from tests.harness.oracles import DEVICE, compare
from tritongen.spec.read import read_spec


@pytest.fixture
def on_device() -> Iterator[None]:
    """Tensors that a test makes are where it is compiled or interpreted."""
    with torch.device(DEVICE):
        yield


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tmp_path: Path) -> None:
    """In float64 to its last digits, so that no step is left out, there also by one input alone, not the same in each
    case; and every other case in float32.
    """
    case, place = CASES[name], [*CASES].index(name)
    function = built(case.spec(), tmp_path).steps
    names = [entry.split(":")[0] for entry in case.inputs.split("; ")]
    places = [names.index(one) for one in case.by()] if case.wrt != "-" else []
    given = case.tensors(torch.float64)
    compare(function, case.torch, given, (), 1e-9)
    compare(function, case.torch, given, places, 1e-8)
    if len(places) > 1:
        compare(function, case.torch, given, [places[place % len(places)]], 1e-8)
    if place % 2 == 0:
        given = case.tensors(torch.float32)
        compare(function, case.torch, given, (), 2e-4)
        compare(function, case.torch, given, places, 2e-3)


def test_matrices_are_saved_as_they_are_stored(tmp_path: Path) -> None:
    """In half precision what the backward reads is what the next step has read, as it is in torch."""
    for name, rows in (("mlp", 0), ("layer_norm_of_a_matmul", 2)):
        given = [one.to(DEVICE) for one in CASES[name].tensors(torch.float16)]
        package = built(CASES[name].spec(), tmp_path / name)
        module = importlib.import_module(f"{package.__name__}.op")
        saved = module._steps_forward(*given, saves=True)
        assert [one.dtype for one in saved] == [torch.float16] * (len(saved) - rows) + [torch.float32] * rows
        leaves = [one.requires_grad_() for one in given]
        exact = [one.detach().double().requires_grad_() for one in given]
        seed = torch.randn(saved[0].shape, generator=torch.Generator().manual_seed(1)).half().to(DEVICE)
        wanted = torch.autograd.grad(CASES[name].torch(*exact), exact, seed.double())
        ours = torch.autograd.grad(module.steps(*leaves), leaves, seed)
        eager = torch.autograd.grad(CASES[name].torch(*leaves), leaves, seed)
        for one, other, right in zip(ours, eager, wanted, strict=True):
            assert (one - right).norm() <= 1.25 * (other - right).norm() + 1e-3 * right.norm()


def test_what_is_cast_to_the_dtype_of_an_input_is_stored_so(tmp_path: Path) -> None:
    """A step that goes on from the sum alone does not know it."""
    case = replace(CASES["gelu_of_products_in_the_dtype_of_a_factor"], compute="y = softmax(cast(sum(x * w, K), x), M)")
    text = case.text().replace('T = "float"', 'T = "float"\nS = "float"').replace('x = "T', 'x = "S')
    x, w = (one.to(DEVICE) for one in case.tensors(torch.float64))
    y = built(read_spec("steps.toml", text), tmp_path).steps(x.float(), w)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.double(), (x @ w.T).softmax(0), rtol=1e-4, atol=1e-6)


def test_gradients_between_steps_have_the_dtype_that_inputs_promote_to(tmp_path: Path) -> None:
    """That of the result has it too, where each input has a dtype of its own."""
    case = Case(
        "a:M, K; b:N, K; c:P, N",
        "y = gelu(sum(sum(a * b, K) * c, N))",
        lambda a, b, c: torch.nn.functional.gelu(a @ b.T @ c.T),
        wrt="a",
    )
    text = case.text().replace('"T[', '"float[').replace('[types]\nT = "float"\n', "")
    function = built(read_spec("steps.toml", text), tmp_path).steps
    compare(function, case.torch, case.tensors(torch.float64), [0], 1e-8)


def test_operand_of_bytes_takes_its_dtype_from_another_input(tmp_path: Path) -> None:
    """The step that dequantises it is passed that input, of other axes, for its dtype alone."""
    text = """[op]
name = "steps"
[types]
T = "float"
[inputs]
x = "T[M, K]"
w = "int8[K, N]"
s = "T[N]"
zero = "T[N] = 0"
[compute]
y = "sum(sum(x * (cast(w, s) - zero), K), M, N)"
[outputs]
y = "x"
"""
    function = built(read_spec("steps.toml", text), tmp_path).steps
    w = torch.randint(-8, 8, (24, 33), dtype=torch.int8)
    x, s, zero = (torch.randn(shape, dtype=torch.float64) for shape in ((17, 24), (33,), (33,)))
    compare(function, lambda x, w, s, zero: (x @ (w - zero)).sum(), [x, w, s, zero], (), 1e-9)
    compare(function, lambda x, w, s: (x @ w.to(x)).sum(), [x, w, s], (), 1e-9)


@pytest.mark.parametrize("to", ["x", "s"])
def test_bytes_are_cast_to_the_dtype_of_an_input_that_a_step_does_not_read(to: str, tmp_path: Path) -> None:
    """In the forward a step is passed that input; the backward, which never reads it, does not round what is exact."""
    text = f"""[op]
name = "steps"
[inputs]
x = "float[M, K]"
w = "int8[N, K]"
s = "float[N]"
v = "float[P, N]"
[compute]
h = "gelu(sum(x * cast(w, {to}), K) * s)"
y = "sum(h * v, N)"
z = "y - max(y, M)"
[outputs]
z = "auto"
[grad]
wrt = ["x", "s", "v"]
"""

    def formula(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.gelu(x @ w.to(x).T * s) @ v.T
        return y - y.amax(0)

    function = built(read_spec("steps.toml", text), tmp_path).steps
    random = torch.Generator().manual_seed(0)
    x, s, v = (torch.randn(shape, generator=random, dtype=torch.float64) for shape in ((17, 24), (33,), (9, 33)))
    w = torch.randint(-4, 4, (33, 24), generator=random, dtype=torch.int8)
    compare(function, formula, [x, w, s, v], [0, 2, 3], 1e-8)


def test_docstrings_name_the_steps(tmp_path: Path) -> None:
    function = built(CASES["mlp"].spec(), tmp_path).steps
    assert function.__doc__ is not None
    assert (
        "    Steps:\n        1. _steps_h, a contraction: h, h_sum\n        2. _steps_y, a contraction: y\n"
        in function.__doc__
    )
    module = importlib.import_module(f"{function.__module__}")
    assert (
        "Steps:\n        1. _steps_backward_dx_product, a contraction: dx_product\n" in module._steps_backward.__doc__
    )


@pytest.mark.usefixtures("on_device")
def test_lengths_are_those_of_inputs_that_are_given(tmp_path: Path) -> None:
    text = '[op]\nname = "steps"\nsummary = "Steps."\n[types]\nT = "float"\n[inputs]\na = "T[]"\nx = "T[K, N]"\n'
    text += 'w = "T[N] = 0.5"\n[compute]\nh = "a * w"\ny = "x - mean(x, K, N)"\n[outputs]\nh = "auto"\ny = "auto"\n'
    operator = built(read_spec("steps.toml", text), tmp_path).steps
    a, x = torch.tensor(3.0), torch.randn(4, 7)
    assert operator(a, x)[0].tolist() == [1.5] * 7
    assert operator(a, x, torch.arange(7.0))[0].tolist() == [3.0 * n for n in range(7)]


@pytest.mark.usefixtures("on_device")
def test_stated_lengths_are_those_of_optional_inputs(tmp_path: Path) -> None:
    text = '[op]\nname = "steps"\nsummary = "Steps."\n[types]\nT = "float"\n[inputs]\nx = "T[N, K]"\n'
    text += 'w = "T[(M=3 K)] = 0.5"\n[compute]\nh = "w - mean(w, K, M)"\ny = "mean(x, N, K)"\n'
    operator = built(read_spec("steps.toml", f'{text}[outputs]\nh = "auto[(M K)]"\ny = "auto[]"\n'), tmp_path).steps
    x, w = torch.randn(2, 4), torch.arange(12.0)
    assert torch.equal(operator(x)[0], torch.zeros(12))
    assert torch.equal(operator(x, w)[0], w - 5.5)


@pytest.mark.usefixtures("on_device")
def test_lengths_of_optional_inputs_that_are_taken_from(tmp_path: Path) -> None:
    text = '[op]\nname = "steps"\nsummary = "Steps."\n[types]\nT = "float"\n[inputs]\nat = "int64[K]"\n'
    text += 'x = "T[K, N]"\nw = "T[N, K] = 0.5"\n[compute]\nh = "sum(take(w, at, N), K)"\ny = "x - mean(x, K, N)"\n'
    operator = built(read_spec("steps.toml", f'{text}[outputs]\nh = "auto"\ny = "auto"\n'), tmp_path).steps
    at, x, w = torch.tensor([2, 0, 1]), torch.randn(3, 4), torch.arange(12.0).view(4, 3)
    assert operator(at, x)[0].item() == 1.5
    assert operator(at, x, w)[0].item() == w[2, 0] + w[0, 1] + w[1, 2]


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize(("first", "dtype"), [("T[K, N]", torch.float64), ("int64[K, N]", torch.float32)])
def test_dtypes_are_those_of_inputs_that_are_given(first: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Of one type with a step's optional input, or torch's default where no float is given."""
    text = f'[op]\nname = "steps"\nsummary = "Steps."\n[types]\nT = "float"\n[inputs]\nx = "{first}"\n'
    text += 'w = "T[N] = 0.5"\n[compute]\nh = "max(w, N)"\ny = "x - max(x, K, N)"\n[outputs]\nh = "auto"\ny = "auto"\n'
    operator = built(read_spec("steps.toml", text), tmp_path).steps
    x = torch.arange(28.0, dtype=torch.float64).view(4, 7)
    x = x if first.startswith("T") else x.long()
    h, y = operator(x)
    assert (h.dtype, h.item()) == (dtype, 0.5)
    assert torch.equal(y, x - 27)
    assert operator(x, torch.arange(7.0, dtype=torch.float64))[0].dtype == torch.float64


@pytest.mark.usefixtures("on_device")
def test_columns_of_an_optional_input_are_reduced_alone(tmp_path: Path) -> None:
    """Nothing else that has columns tells how many of them a thread loads at once."""
    text = '[op]\nname = "steps"\nsummary = "Steps."\n[types]\nT = "float"\n[inputs]\na = "T[]"\nx = "T[K, N, M]"\n'
    text += 'w = "T[N, M] = 0.5"\n[compute]\nh = "a * w - mean(a * w, N, M)"\ny = "x - mean(x, K, N, M)"\n'
    operator = built(read_spec("steps.toml", f'{text}[outputs]\nh = "auto"\ny = "auto"\n'), tmp_path).steps
    a, x, w = torch.tensor(2.0), torch.randn(3, 4, 5), torch.arange(20.0).view(4, 5)
    assert torch.equal(operator(a, x)[0], torch.zeros(4, 5))
    assert torch.equal(operator(a, x, w)[0], 2 * w - 19)


@pytest.mark.usefixtures("on_device")
def test_positions_of_rows_that_are_left_out(tmp_path: Path) -> None:
    """They are as many as where they are given: a tile's mask needs a tile of pointers."""
    text = '[op]\nname = "steps"\nsummary = "Steps."\n[types]\nT = "float"\n[inputs]\nx = "T[M, N]"\nt = "T[V]"\n'
    text += 'at = "int64[M] = 1"\n[compute]\ny = "sum(x, N) * take(t, at, V)"\n[outputs]\ny = "auto[M]"\n'
    operator = built(read_spec("steps.toml", text), tmp_path).steps
    x, t, at = torch.arange(12.0).view(3, 4), torch.arange(5.0) + 1, torch.tensor([4, 0, 2])
    assert torch.equal(operator(x, t), x.sum(1) * 2)
    assert torch.equal(operator(x, t, at), x.sum(1) * t[at])


@pytest.mark.usefixtures("on_device")
def test_gradients_that_are_the_same_along_leading_axes_that_another_input_has(tmp_path: Path) -> None:
    """They are summed over those of the whole, which are more than the input's own."""
    text = '[op]\nname = "steps"\nsummary = "Steps."\n[types]\nT = "float"\n[inputs]\nx = "T[..., M]"\n'
    text += 'z = "T[..., M]"\nu = "T[M]"\n[compute]\nh = "x * 2"\ny = "mean(sum(z * u, M), ...)"\n'
    text += '[outputs]\nh = "auto"\ny = "auto"\n[grad]\nwrt = ["x", "z"]\n'
    operator = built(read_spec("steps.toml", text), tmp_path).steps
    x, z, u = torch.randn(2, 3, 4), torch.randn(4, requires_grad=True), torch.randn(4)
    (dz,) = torch.autograd.grad(operator(x, z, u)[1], z)
    torch.testing.assert_close(dz, u)


@pytest.mark.usefixtures("on_device")
def test_what_is_taken_from_may_have_another_name(tmp_path: Path) -> None:
    text = '[op]\nname = "steps"\nsummary = "Steps."\n[types]\nT = "float"\n[inputs]\nx = "T[M, K, P]"\n[compute]\n'
    text += 'p = "argmin(var(x, M) + 0.5 * index(P), P)"\ny = "take(var(x, M), p, P)"\n[outputs]\ny = "auto"\n'
    operator = built(read_spec("steps.toml", text), tmp_path).steps
    x = torch.randn(5, 3, 4)
    p = (x.var(0) + 0.5 * torch.arange(4)).argmin(1)
    torch.testing.assert_close(operator(x), x.var(0).gather(1, p[:, None])[:, 0])


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("shape", [(1, 1, 5), (4, 64, 5), (3, 2, 5)])
def test_blocks_of_columns_may_take_at_one_position(shape: tuple[int, int, int], tmp_path: Path) -> None:
    """It is a number then, and a mask is a tile, which Triton's interpreter does not combine by itself."""
    text = '[op]\nname = "steps"\nsummary = "Steps."\n[inputs]\nx = "float32[S, B, E=5]"\nmatch = "int64[S]"\n'
    text += '[compute]\ny = "mean(take(x, match, E), S, B)"\n[outputs]\ny = "auto[]"\n'
    operator = built(read_spec("steps.toml", text), tmp_path).steps
    x, match = torch.randn(shape), torch.randint(0, 5, shape[:1])
    want = x.gather(2, match[:, None, None].expand(*shape[:2], 1)).mean()
    torch.testing.assert_close(operator(x, match), want)


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_errors_of_steps_name_the_operator(shape: tuple[int, int], tmp_path: Path) -> None:
    """Of an axis that a step reduces: users do not know the steps."""
    case = Case("x:M, N", "a = max(x, M)\nb = x - a\ny = max(b, N)\nz = max(b, M)", torch.relu, "y z")
    with pytest.raises(ValueError, match=r"^steps: max has no value over an empty axis"):
        built(case.spec(), tmp_path).steps(torch.empty(shape))


def test_a_maximum_whose_elements_a_gradient_looks_for_line_by_line(tmp_path: Path) -> None:
    case = Case(
        "x:M, K; w:K, N",
        "h = sum(x * w, K)\nn = h * rsqrt(mean(h * h, N) + 1e-6)\ny = max(n, M)",
        lambda x, w: rms(x @ w).amax(0),
        schedule="fuse = false",
    )
    compare(built(case.spec(), tmp_path).steps, case.torch, case.tensors(torch.float64), range(2), 1e-9)


def test_a_gradient_that_is_one_value_for_all_rows(tmp_path: Path) -> None:
    """No tensor has the axes of its rows in an order of its own, so none of them is folded."""
    case = Case("x:M, K; w:M, N", "y = sum(x, M) + mean(w, M, N)", lambda x, w: x.sum(0) + w.mean())
    compare(built(case.spec(), tmp_path).steps, case.torch, case.tensors(torch.float64), range(2), 1e-9)
