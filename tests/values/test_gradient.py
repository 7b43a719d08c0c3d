"""Gradients: what is derived, as text, and its values against torch's autograd of the reference in float64."""

from __future__ import annotations

import importlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from tests.harness.importing import built, runtime_of
from tests.harness.oracles import DEVICE
from tritongen.autodiff.gradient import derive
from tritongen.lang.typecheck import typecheck
from tritongen.operator.compile import backward_of, forward_of, generate
from tritongen.spec.read import read_spec
from tritongen.spec.types import Grad, Spec

ROOT = Path(__file__).parents[2]
GALLERY = sorted((ROOT / "specs").glob("*.toml"))
EXAMPLES = sorted((ROOT / "examples" / "specs").glob("*.toml"))
STRESS = sorted((ROOT / "tests" / "specs").glob("gradient_*.toml"))


def spec_of(path: Path) -> Spec:
    return read_spec(path.name, path.read_text(encoding="utf-8"))


def formulas(name: str) -> list[str]:
    """The lines that a gradient of the gallery computes; what it reads of the forward comes first."""
    spec = spec_of(ROOT / "specs" / f"{name}.toml")
    assert spec.grad is not None
    gradient = derive(typecheck(spec), spec.grad)
    names = [tensor.name for tensor in gradient.op.inputs]
    return [", ".join(names), *(f"{value.name} = {value.source}" for value in gradient.op.values)]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("softmax", ["dy, y", "dx = (dy - sum(dy * y, N)) * y"]),
        ("log_softmax", ["dy, y", "dx = dy - sum(dy, N) * exp(y)"]),
        ("logsumexp", ["dy, x, y_exact", "dx = dy * exp(x - y_exact)"]),
        ("tanh", ["dy, y", "dx = dy * (1 - y * y)"]),
        ("sum", ["dy", "dx = dy"]),
        ("mean", ["dy", "dx = dy / size(N)"]),
        ("fma", ["dy, a, b", "da = dy * b", "db = dy * a", "dc = dy"]),
        ("amax", ["dy, x, y", "dx = where(x == y, dy / sum(where(x == y, 1.0, 0.0), N), 0.0)"]),
        ("leaky_relu", ["dy, x", "dx = dy * where(x > 0, 1, negative_slope)"]),
        ("mse_loss", ["dloss, x, target", "dx = 2 * dloss / size(...) * (x - target)", "dtarget = -dx"]),
        (
            "silu",
            ["dy, x", "y = x * sigmoid(x)", "x_sigmoid = sigmoid(x)", "dx = dy * (x_sigmoid + y * (1 - x_sigmoid))"],
        ),
        (
            "rms_norm",
            [
                "dy, x, weight, rstd",
                "dy_weight = dy * weight",
                "dx = rstd * (dy_weight - rstd * rstd * mean(dy_weight * x, N) * x)",
                "dweight = sum(rstd * (dy * x), ...)",
            ],
        ),
        (
            "layer_norm",
            [
                "dy, x, weight, mu, rstd",
                "dy_weight = dy * weight",
                "x_minus_mu = x - mu",
                "dx = rstd * (dy_weight - rstd * rstd * mean(dy_weight * x_minus_mu, N) * x_minus_mu"
                " - mean(dy_weight, N))",
                "dweight = sum(rstd * (dy * x_minus_mu), ...)",
                "dbias = sum(dy, ...)",
            ],
        ),
        (
            "fused_add_rms_norm",
            [
                "dy, dstream, weight, stream, rstd",
                "dy_weight = dy * weight",
                "dx = rstd * (dy_weight - rstd * rstd * mean(dy_weight * stream, N) * stream) + dstream",
                "dresidual = dx",
                "dweight = sum(rstd * (dy * stream), ...)",
            ],
        ),
    ],
)
def test_formulas(name: str, lines: list[str]) -> None:
    assert formulas(name) == lines


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("matmul", ["da = sum(dc * b, N)", "db = sum(dc * a, M)"]),
        ("addmm", ["dc = beta * dy", "da = alpha * sum(dy * b, N)", "db = alpha * sum(dy * a, M)"]),
        ("linear", ["dbias = sum(dy, ...)", "dx = sum(dy * weight, N)", "dweight = sum(dy * x, ...)"]),
        (
            "matmul_bias_relu",
            [
                "dy_sum = where(y <= 0, 0.0, dy)",
                "dbias = sum(dy_sum, M)",
                "da = sum(dy_sum * b, N)",
                "db = sum(dy_sum * a, M)",
            ],
        ),
        (
            "logits_softcap",
            [
                "logits_sum_tanh = tanh(logits_sum / cap)",
                "dlogits_sum = dlogits * (1 - logits_sum_tanh * logits_sum_tanh)",
                "dx = sum(dlogits_sum * weight, N)",
                "dweight = sum(dlogits_sum * x, ...)",
            ],
        ),
        (
            "linear_silu_mul",
            [
                "g_sigmoid = sigmoid(g)",
                "dg = dy * u * g_sigmoid * (1 + g * (1 - g_sigmoid))",
                "du = dy * silu(g)",
                "dx = sum(du * up, N) + sum(dg * gate, N)",
                "dgate = sum(dg * x, ...)",
                "dup = sum(du * x, ...)",
            ],
        ),
        (
            "router",
            [
                "dlogits = (dp + (dlse - sum(dp * p, E))) * p",
                "dx = sum(dlogits * weight, E)",
                "dweight = sum(dlogits * x, ...)",
            ],
        ),
    ],
)
def test_formulas_of_products(name: str, lines: list[str]) -> None:
    """Of all parts: one pass over what follows the products, and then products again."""
    (path,) = (path for folder in ("specs", "examples/specs") if (path := ROOT / folder / f"{name}.toml").exists())
    spec = spec_of(path)
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    values = [value for step in backward.plan.steps for value in step.op.values]
    assert [f"{value.name} = {value.source}" for value in values if value.source] == lines


@pytest.mark.parametrize(
    ("name", "saved", "outputs"),
    [
        ("matmul", [], ()),
        ("linear", [], ()),
        ("tril_matmul", [], ()),
        ("router", [], ("p",)),
        ("matmul_bias_relu", [], ("y",)),
        ("linear_gelu", ["y_sum"], ()),
        ("linear_silu_mul", ["g", "u"], ()),
        ("matmul_scale_residual", ["y_sum"], ()),
        ("gradient_product_sums", ["z_sums"], ()),
    ],
)
def test_what_products_save(name: str, saved: list[str], outputs: tuple[str, ...]) -> None:
    """A product where what follows it needs it, unless a result does as well; computing it again costs the most.

    Products that are only added are one tensor.
    """
    (path,) = (path for path in (*GALLERY, *EXAMPLES, *STRESS) if path.stem == name)
    spec = spec_of(path)
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    assert [result.output.name for result in backward.forward.op.results if result.when] == saved
    assert backward.gradient.outputs == outputs


def test_what_is_saved_can_be_said() -> None:
    """Otherwise it is what moves the fewest bytes."""
    op = typecheck(spec_of(ROOT / "specs" / "tanh.toml"))
    assert derive(op, Grad(("x",))).outputs == ("y",)
    op = typecheck(spec_of(ROOT / "specs" / "rms_norm.toml"))
    saved = derive(op, Grad(("x", "weight")))
    assert (saved.saved, saved.outputs) == ((("rstd", "rstd"),), ())
    op = typecheck(spec_of(ROOT / "specs" / "softmax.toml"))
    assert derive(op, Grad(("x",))).outputs == ("y",)
    again = derive(op, Grad(("x",), ("m",)))
    assert (again.saved, again.outputs) == ((("m", "m"),), ())


def imported(spec: Spec, folder: Path) -> Any:
    return getattr(built(spec, folder), spec.name)


def drawn(spec: Spec) -> list[torch.Tensor]:
    torch.manual_seed(0)
    # M and K alike, on purpose.
    lengths = {"...": (2, 3), "M": (4,), "N": (7,), "K": (4,), "S": (3,), "D": (5,), "H": (2,), "B": (3,), "E": (5,)}
    tensors = []
    for tensor in spec.inputs:
        terms = tensor.type.shape
        sized = {name: (size,) for t in terms for name, size in zip(t.names, t.sizes, strict=True) if size}
        shape: list[int] = []
        for term in terms:
            found = [length for axis in term.names for length in sized.get(axis) or lengths[axis]]
            shape += [math.prod(found)] if len(term.names) > 1 else found
        if "float64" in tensor.type.dtypes:
            tensors.append(torch.rand(shape, dtype=torch.float64, device=DEVICE) * 2 - 0.5)
        else:
            dtypes = (torch.int64, torch.int8, torch.bool)
            dtype = next(one for one in dtypes if str(one).removeprefix("torch.") in tensor.type.dtypes)
            tensors.append(torch.randint(0, 2 if dtype == torch.bool else 4, shape, device=DEVICE).to(dtype))
    return tensors


@pytest.mark.parametrize("path", STRESS, ids=lambda path: path.stem)
def test_values(path: Path, tmp_path: Path) -> None:
    spec = spec_of(path)
    assert spec.grad is not None
    function = imported(spec, tmp_path)
    tensors = [abs(x) if spec.ranges and x.is_floating_point() else x for x in drawn(spec)]
    params = {param.name: param.default for param in spec.params}

    def gradients(results: Any, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
        found = [one for one in (results if isinstance(results, tuple) else (results,)) if one.requires_grad]
        random = torch.Generator().manual_seed(1)
        given = [torch.randn(one.shape, generator=random).to(one) for one in found]
        return list(torch.autograd.grad(found, leaves, given))

    places = [n for n, tensor in enumerate(spec.inputs) if tensor.name in spec.grad.wrt]
    ours = [x.detach().requires_grad_(n in places) for n, x in enumerate(tensors)]
    theirs = [x.detach().requires_grad_(n in places) for n, x in enumerate(tensors)]
    names = dict(zip((tensor.name for tensor in spec.inputs), theirs, strict=True))
    # What is overwritten is no leaf.
    results = function(
        *([x + 0 if x.requires_grad else x for x in ours] if spec.grad.write == "in_place" else ours), **params
    )
    wanted = eval(spec.reference, {"torch": torch} | names | params)
    close = 1e-5 if any(output.dtype == "float32" for output in spec.outputs) else 1e-10
    torch.testing.assert_close(results, wanted, rtol=close, atol=close, check_dtype=False)
    got = gradients(results, [ours[n] for n in places])
    want = gradients(wanted, [theirs[n] for n in places])
    torch.testing.assert_close(got, want, rtol=close, atol=close)


def test_norms_of_zeros_have_the_gradient_zero(tmp_path: Path) -> None:
    """As torch's norms have, whoever says the power."""
    text = """
[op]
name = "lengths"
[inputs]
x = "float[..., N]"
[params]
p = { default = 2.0, min = 1, max = 8 }
[compute]
y = "norm(x, N, p=p) + norm(x, N, p=3)"
[outputs]
y = "x"
[grad]
wrt = ["x"]
"""
    function = imported(read_spec("lengths.toml", text), tmp_path)
    x = torch.tensor([[1.0, -2.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64, device=DEVICE)
    for p in (1.0, 1.5, 2.0, 7.0):
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        function(ours, p=p).sum().backward()
        wanted = [torch.linalg.vector_norm(theirs, order, dim=-1) for order in (p, 3)]
        sum(wanted).sum().backward()  # type: ignore[union-attr]
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-10)


def test_only_what_is_needed_is_computed(tmp_path: Path) -> None:
    spec = spec_of(ROOT / "specs" / "rms_norm.toml")
    function = imported(replace(spec, name="rms_norm"), tmp_path)
    x, weight = torch.randn(3, 8, device=DEVICE), torch.randn(8, device=DEVICE, requires_grad=True)
    assert not function(x, weight.detach()).requires_grad
    function(x, weight).sum().backward()
    assert weight.grad is not None
    assert x.grad is None
    with torch.no_grad():
        assert function(x, weight).grad_fn is None


def op_of(name: str, inputs: str, compute: str, rest: str) -> Spec:
    return read_spec("spec.toml", f'[op]\nname = "{name}"\n[inputs]\n{inputs}\n[compute]\n{compute}\n{rest}')


def test_of_inputs_some_are_frozen(tmp_path: Path) -> None:
    """A gradient that the host expands is None where it is not needed, and its part is not called."""
    rest = '[outputs]\ny = "x"\n[grad]\nwrt = ["x", "weight"]'
    inputs = 'x = "float[M, K]"\nweight = "float[K, N]"'
    function = imported(op_of("scaled_sum", inputs, 'y = "sum(x * weight, K, N)"', rest), tmp_path)
    x, weight = torch.randn(3, 4, device=DEVICE).double(), torch.randn(4, 5, device=DEVICE).double()
    for frozen in (x, weight):
        tensors = [tensor.clone().requires_grad_(tensor is not frozen) for tensor in (x, weight)]
        function(*tensors).sum().backward()
        wanted = [torch.ones(3, 1).to(x) * weight.sum(1), x.sum(0)[:, None].expand(4, 5)]
        for tensor, gradient in zip(tensors, wanted, strict=True):
            if tensor.requires_grad:
                torch.testing.assert_close(tensor.grad, gradient)
            else:
                assert tensor.grad is None


@pytest.mark.parametrize("register", ["none", "custom_op", "triton_op"])
def test_results_of_other_inputs_are_constants(register: str, tmp_path: Path) -> None:
    rest = f'[outputs]\ny = "x"\ntwice = "x"\n[grad]\nwrt = ["x"]\n[torch]\nregister = "{register}"'
    inputs = 'x = "float[M, N]"\nother = "float[M, N]"'
    compute = 'y = "x * other"\ntwice = "other * 2"'
    function = imported(op_of(f"beside_{register}", inputs, compute, rest), tmp_path)
    x, other = (torch.randn(3, 4, device=DEVICE, requires_grad=True) for _ in range(2))
    y, twice = function(x, other)
    assert (y.requires_grad, twice.requires_grad) == (True, False)
    y.sum().backward()
    torch.testing.assert_close(x.grad, other.detach())


@pytest.mark.parametrize(("wrt", "splits"), [('["x", "scale"]', 1), ('["scale"]', 1), ('["scale"]', 2)])
def test_sums_over_everything_keep_their_digits(
    wrt: str, splits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a thousand numbers to each lane; an infinity among them stays one."""
    rest = f'[outputs]\ny = "x"\n[grad]\nwrt = {wrt}'
    spec = op_of("scaled", 'x = "float[M, N]"\nscale = "float[]"', 'y = "x * scale"', rest)
    module = built(spec, tmp_path)
    function: Any = module.scaled
    configs = importlib.import_module(f"{module.__name__}.configs")
    heuristics = runtime_of(module, "heuristics")
    tile = triton.Config({"BLOCK_M": 1, "BLOCK_N": 8}, num_warps=4)
    if hasattr(configs, "REGISTERS_BACKWARD"):
        monkeypatch.setattr(configs.REGISTERS_BACKWARD, "fits", lambda *_: False)
    monkeypatch.setattr(configs.LOOP_BACKWARD, "choose", lambda *_: tile)
    monkeypatch.setattr(heuristics, "choose_splits", lambda *_: splits)
    two = {"VECTOR": 2}
    monkeypatch.setattr(runtime_of(module, "rowwise"), "_vector", lambda rows: {} if rows.vector is None else two)
    for rows, special in ((8, 0.1), (1, math.inf), (1, math.nan)):
        x = torch.full((rows, 1000), 0.1, device=DEVICE)
        x[0, 7] = special
        scale = torch.ones((), device=DEVICE, requires_grad=True)
        function(x, scale).sum().backward()
        torch.testing.assert_close(scale.grad, x.double().sum().float(), rtol=2e-7, atol=0, equal_nan=True)


@pytest.mark.parametrize("default", ["", " = 0", " = 1"])
def test_inputs_that_may_be_absent_are_not_read_ahead(default: str) -> None:
    """By the kernel whose CTAs share rows, which reads each of its inputs without asking whether it is there."""
    text = f"""
        op = {{ name = "shifted_norm", summary = "Shifted rows by their root mean square." }}
        inputs = {{ x = "float[M, N]", weight = "float[N]", shift = "float[M, N]{default}" }}
        compute = {{ h = "x + shift", y = "h * rsqrt(mean(h * h, N) + 1e-6) * weight" }}
        outputs = {{ y = "x" }}
        grad = {{ wrt = ["x", "weight"] }}
        reference = {{ torch = "torch.nn.functional.rms_norm(x + shift, (x.shape[-1],), weight, 1e-6)" }}
    """
    kernels = generate(read_spec("spec.toml", text))["kernels.py"]
    assert ("def shifted_norm_backward_cooperative_kernel(" in kernels) == (default == "")


def test_formulas_are_in_the_language_of_specs() -> None:
    """What a flag leaves out is told by `not`, as a spec would have it."""
    text = generate(spec_of(ROOT / "tests" / "specs" / "choice_of_many.toml"))["op.py"]
    assert "dcentre = dy * (1 if not weighted else x_min)" in text
    assert "logical_not" not in text


def test_groups_of_fixed_lengths_tell_themselves(tmp_path: Path) -> None:
    """A backward that reads no input is told no shape of one for them."""
    compute = 'p = "softmax(s + take(bias, index(W) - index(J) + size(J) - 1, D), I, J)"'
    inputs = 's = "float[B, (H=3 W), (I=2 J)]"\nbias = "float[D]"'
    spec = op_of("grouped", inputs, compute, '[outputs]\np = "s"\n[grad]\nwrt = ["s", "bias"]')
    function = imported(spec, tmp_path)
    assert " s_shape" not in generate(spec, ".")["op.py"]
    s, bias = (torch.randn(shape, dtype=torch.float64, device=DEVICE) for shape in ((2, 12, 10), (8,)))
    at = torch.arange(4)[:, None] - torch.arange(5) + 4
    found, wanted = ([one.clone().requires_grad_() for one in (s, bias)] for _ in range(2))
    function(*found).square().sum().backward()
    scores = wanted[0].view(2, 3, 4, 2, 5) + wanted[1][at][:, None]
    scores.flatten(-2).softmax(-1).square().sum().backward()
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.grad, other.grad)
