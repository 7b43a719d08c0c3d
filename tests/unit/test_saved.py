"""What forwards keep for their gradients: of a sample of operators tensors and bytes, and what the backward moves."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from random import Random

import pytest
import torch

from tests.cases.step_cases import CASES, Case
from tritongen.autodiff.gradient import derive
from tritongen.families.registry import families_of_steps
from tritongen.lang.ir import Reduce
from tritongen.operator.compile import backward_of, forward_of
from tritongen.passes.contractions import is_product
from tritongen.plan.backward import plan_backward
from tritongen.roofline.account import Account, account_of
from tritongen.roofline.devices import DEVICES
from tritongen.spec.read import read_spec

LENGTH = 4096
MATRIX, ROW = 2 * LENGTH**2, 4 * LENGTH  # bytes of a matrix of bfloat16, and of a number of float32 a row


@dataclass(frozen=True)
class Kept:
    """What a gradient reads of its forward, in matrices and in per-row values, and the matrices that it moves."""

    inputs: str
    compute: str
    names: str
    matrices: float
    rows: int
    moved: float
    outputs: str = "y"


LINEAR = "x:M, K; w:N, K"
NORM = "(h - mean(h, N)) * rsqrt(var(h, N, correction=0) + 1e-5)"
SAMPLE = {
    "norm": Kept("x:M, N; w:N", "r = rsqrt(mean(x * x, N) + 1e-6)\ny = x * r * w", "r", 0, 1, 3),
    "norm_of_a_sum": Kept(
        "x:M, N; o:M, N; w:N", "s = x + o\ny = s * rsqrt(mean(s * s, N) + 1e-6) * w", "s y_mean", 0, 1, 4, "s y"
    ),
    "norm_of_what_is_gated": Kept(
        "x:M, N; z:M, N; w:N", "h = x * silu(z)\ny = h * rsqrt(mean(h * h, N) + 1e-6) * w", "y_mean", 0, 1, 5
    ),
    "two_norms_of_a_mean": Kept(
        "x:M, N; a:N; b:N",
        "m = mean(x, N)\nr = rsqrt(var(x, N, correction=0) + 1e-5)\ny = (x - m) * r * a\nz = (x - m) * r * b",
        "m r",
        0,
        2,
        4,
        "y z",
    ),
    "distances": Kept("a:M, K; b:N, K", "y = sqrt(sum((a - b) ** 2, K))", "y", 0, 0, 10),
    "cosines": Kept("a:M, K; b:N, K", "y = sum(a * b, K) / (norm(a, K) * norm(b, K))", "y y_sum_2 y_sum_3", 0, 2, 12),
    "losses_of_cosines": Kept(
        "a:M, K; b:N, K",
        "u = a / norm(a, K)\nv = b / norm(b, K)\ny = logsumexp(sum(u * v, K), N)",
        "u u_sum v v_sum y_exact y_x",
        3,
        3,
        17.13,
    ),
    "softmax": Kept("x:M, N", "y = softmax(x, N)", "y", 0, 0, 3),
    "softmax_by_temperature": Kept("x:M, N; t:", "y = softmax(x / t, N)", "y_max y_sum", 0, 2, 3),
    "softmax_by_temperatures": Kept("x:M, N; t:M", "y = softmax(x * t, N)", "y_max y_sum", 0, 2, 3),
    "both_sums": Kept("x:M, N", "y = x - sum(x, M) - sum(x, N)", "", 0, 0, 3),
    "layer_norm_of_a_linear": Kept(f"{LINEAR}; b:N", f"h = sum(x * w, K) + b\ny = {NORM}", "h h_mean h_var", 1, 2, 9),
    "scaled_layer_norm_of_a_linear": Kept(
        f"{LINEAR}; b:N; g:N; c:N", f"h = sum(x * w, K) + b\ny = {NORM} * g + c", "h h_mean h_var", 1, 2, 9
    ),
    "linear_of_a_layer_norm": Kept(
        "x:M, N; g:N; b:N; w:K, N",
        f"h = {NORM.replace('h', 'x')} * g + b\ny = sum(h * w, N)".replace("xn", "hn"),
        "h x_mean x_var",
        1,
        2,
        9,
    ),
    "linear_of_a_norm": Kept(LINEAR, "r = rsqrt(mean(x * x, K) + 1e-6)\ny = sum(x * r * w, K)", "r", 0, 1, 11),
    "softmax_of_a_linear": Kept(LINEAR, "y = softmax(sum(x * w, K), N)", "y", 0, 0, 9),
    "mlp": Kept(f"{LINEAR}; v:P, N", "h = gelu(sum(x * w, K))\ny = sum(h * v, N)", "h h_sum", 2, 0, 13),
    "mlp_with_biases": Kept(
        f"{LINEAR}; c:N; v:P, N; d:P", "h = gelu(sum(x * w, K) + c)\ny = sum(h * v, N) + d", "h h_sum", 2, 0, 14.25
    ),
    "mlp_of_relu": Kept(f"{LINEAR}; v:P, N", "h = relu(sum(x * w, K))\ny = sum(h * v, N)", "h", 1, 0, 13),
    "mlp_with_its_activation": Kept(
        f"{LINEAR}; v:P, N", "h = gelu(sum(x * w, K))\ny = sum(h * v, N)", "h h_sum", 1, 0, 14, "h y"
    ),
    "norm_of_an_mlp": Kept(
        f"{LINEAR}; v:K, N",
        "h = silu(sum(x * w, K))\no = sum(h * v, N)\ny = o * rsqrt(mean(o * o, K) + 1e-6)",
        "h h_sum o y_mean",
        3,
        1,
        18,
    ),
    "capped": Kept(LINEAR, "l = sum(x * w, K)\ny = logsumexp(30 * tanh(l / 30), N)", "l y_exact", 1, 1, 9),
    "loss_of_capped": Kept(
        LINEAR,
        "l = sum(x * w, K)\nz = 30 * tanh(l / 30)\ny = logsumexp(z, N) - take(z, 0, N)",
        "l y_shift y_sum",
        1,
        2,
        8,
    ),
    "capped_beside": Kept(
        LINEAR, "l = sum(x * w, K)\nz = 30 * tanh(l / 30)\ny = logsumexp(z, N)", "l y_exact", 1, 1, 9, "y z"
    ),
    "logits_in_float32": Kept(
        LINEAR, "z = cast(sum(x * w, K), float32)\ny = logsumexp(z, N)", "y_exact z", 0, 1, 14, "y z"
    ),
    "sum_as_float32": Kept(
        LINEAR, "z = sum(x * w, K)\ny = logsumexp(z, N)", "y_exact z_exact", 1, 1, 10, "y z:float32"
    ),
    "normed_sum_as_float32": Kept(
        LINEAR, "z = sum(x * w, K)\ny = z * rsqrt(mean(z * z, N) + 1e-6)", "z_exact y_mean", 1, 1, 11, "y z:float32"
    ),
    "temperature": Kept(f"{LINEAR}; s:M", "z = sum(x * w, K) * s\ny = logsumexp(z, N)", "y_exact z_sum", 1, 1, 9),
    "linear_twice": Kept(f"{LINEAR}; v:P, N", "h = tanh(sum(x * w, K))\ny = sum(h * v, N)", "h", 0, 0, 14, "h y"),
    "condition_on_sums": Kept("p:M, N", "c = cumsum(p, N)\ny = where(c - p < 0.9, p, 0)", "c_condition", 0.5, 0, 2.5),
    "condition_of_a_name": Kept("p:M, N", "c = cumsum(p, N)\nm = c - p < 0.9\ny = where(m, p, 0)", "m", 0.5, 0, 2.5),
    "condition_on_what_is_read": Kept("x:M, N", "y = where(x > 0.5, x * x, 0)", "", 0, 0, 3),
    "condition_on_sums_that_are_read": Kept("x:M, N", "c = cumsum(x, N)\ny = where(c > 0, c * c, 0)", "c", 2, 0, 4),
    "lora": Kept(
        f"{LINEAR}; a:R, K; b:N, R", "y = sum(x * w, K) + 0.5 * sum(sum(x * a, K) * b, R)", "y_sum_2", 1, 0, 19
    ),
}


def account(case: Case) -> Account:
    return account_of(case.spec(), {}, DEVICES["h100"])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SAMPLE)
def test_what_is_kept(name: str) -> None:
    sample = SAMPLE[name]
    case = Case(sample.inputs, sample.compute, torch.nn.functional.relu, sample.outputs)
    found = account(case)
    made = {(tensor.name, tensor.source) for step in found.forward for tensor in step.writes}
    read = {tensor.name for step in found.backward for tensor in step.reads if (tensor.name, tensor.source) in made}
    assert read == set(sample.names.split())
    saved = [tensor for step in found.forward for tensor in step.writes if tensor.saved]
    assert sum(tensor.bytes for tensor in saved) == sample.matrices * MATRIX + sample.rows * ROW
    moved = sum(step.bytes for step in found.backward) / MATRIX
    assert moved == pytest.approx(sample.moved, abs=0.01), "numbers of rows are next to nothing"


@pytest.mark.parametrize(
    "compute",
    [
        "r = rsqrt(mean(x * x, K) + 1e-6)\ny = x * r * w",
        "y = gelu(sum(x * w, K))",
        "h = sum(x * w, K)\ny = h * rsqrt(mean(h * h, N) + 1e-6)",
        "y = softmax(sum(x * w, K), N)",
        "y = w * cumsum(x, K)",
    ],
)
def test_nothing_is_kept(compute: str) -> None:
    text = Case(LINEAR, compute, torch.nn.functional.relu).text().replace("[schedule]", "save = []\n[schedule]")
    spec = read_spec("steps.toml", text)
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    assert backward.forward.op.results == forward_of(spec).op.results
    made = {tensor.name for step in backward.plan.steps for tensor in step.op.inputs}
    assert made <= {"x", "w", "dy", *(r.output.name for step in backward.plan.steps for r in step.op.results)}


def test_what_is_compared_with_its_largest_is_read_as_it_was() -> None:
    """And what it is made of: reduced again in another order, that might differ, and nothing be the largest."""
    lines = "h = mean(take(x, 0, N), M)\ns = var(h * x, N, correction=0)\ny = max(s + h * x, M, N)"
    spec = Case("x:M, N", lines, torch.nn.functional.relu).spec()
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    assert all("s" not in {value.name for value in step.op.values} for step in backward.plan.steps)
    assert any("s" in {tensor.name for tensor in step.op.inputs} for step in backward.plan.steps)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_no_matmul_is_computed_again(name: str) -> None:
    """But for scores of attention, which are too many to be kept. Nor is a result kept in two dtypes."""
    spec = CASES[name].spec()
    first = forward_of(spec)
    backward = backward_of(spec, first)
    if backward is None or first.family.stream(first.program):
        return
    forward = backward.forward.op
    own = {v.name for v in forward.values if isinstance(v.node, Reduce) and is_product(forward, v.node)}
    for step in backward.plan.steps:
        assert not own & {value.name for value in step.op.values}
    names = {tensor.name for step in backward.plan.steps for tensor in step.op.inputs}
    assert not {f"{one}_exact" for one in names} & names


def drawn(seed: int) -> Case:
    """A chain of matmuls, activations and norms, of which some lines are results besides the last."""
    random = Random(seed)
    inputs, lines, axes = ["x:M, K"], [], ["K"]
    last = "x"
    for place in range(random.randint(2, 5)):
        axis, kind = axes[-1], random.choice(["matmul", "matmul", "map", "norm", "softmax", "residual"])
        name = f"h{place}"
        if kind == "matmul":
            other = random.choice([one for one in "KNP" if one != axis])
            inputs.append(f"w{place}:{other}, {axis}")
            lines.append(f"{name} = sum({last} * w{place}, {axis})")
            axes.append(other)
        elif kind == "map":
            lines.append(f"{name} = {random.choice(['gelu', 'silu', 'tanh', 'relu'])}({last})")
        elif kind == "norm":
            inputs.append(f"g{place}:{axis}")
            lines.append(f"{name} = {last} * rsqrt(mean({last} * {last}, {axis}) + 1e-6) * g{place}")
        elif kind == "softmax":
            lines.append(f"{name} = softmax({last}, {axis})")
        else:
            inputs.append(f"r{place}:M, {axis}")
            lines.append(f"{name} = {last} + r{place}")
        last = name
    results = [line.split()[0] for line in lines[:-1] if random.random() < 0.2]
    return Case("; ".join(inputs), "\n".join(lines), torch.nn.functional.relu, " ".join([*results, last]))


@pytest.mark.parametrize("seed", range(1, 8))  # The chain of 0 takes a minute.
def test_nothing_else_that_steps_store_is_better_kept(seed: int) -> None:
    """Than what is, of random chains: no matmul is computed again, and no other of the values makes all faster."""
    spec = drawn(seed).spec()
    first = forward_of(spec)
    backward = backward_of(spec, first)
    assert backward is not None
    assert spec.grad is not None
    if first.family.stream(first.program):
        return
    forward = backward.forward.op
    own = {v.name for v in forward.values if isinstance(v.node, Reduce) and is_product(forward, v.node)}
    assert not any(own & {value.name for value in step.op.values} for step in backward.plan.steps)
    stored = {tensor.name for step in first.family.steps(first.program) for tensor in step.op.inputs}
    names = [value.name for value in first.op.values if value.name in stored]
    for some in (some for count in range(1, 3) for some in combinations(names, count)):
        gradient = derive(first.op, spec.grad, stored=some)
        assert plan_backward(gradient, first, families_of_steps(False)).time >= backward.time - 1


def test_integers_are_saved_with_all_their_digits() -> None:
    """Positions and counts may have more than float32 has."""
    text = (
        '[op]\nname = "kept"\n[inputs]\nx = "float[M, N]"\n[compute]\nh = "argmax(x, N)"\nk = "sum(x > 0, N)"\n'
        'y = "exp(x) * k"\nz = "sum(x * where(index(N) == h, 2.0, 1.0), N)"\n[outputs]\ny = "x"\nz = "auto[M]"\n'
        '[grad]\nwrt = ["x"]\nsave = ["h", "k"]\n'
    )
    account = account_of(read_spec("kept.toml", text), {}, DEVICES["h100"])
    dtypes = {one.name: one.dtype for step in account.backward for one in step.reads}
    assert (dtypes["h"], dtypes["k"]) == ("int64", "int64")
