"""Operators that no single kernel computes: they are cut into steps, forward and backward, beside a float64 oracle.

The oracle is torch's own of a formula that stands beside each spec, its gradient by autograd.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")

import torch
from importing import built

from tritongen.families.several.family import Several
from tritongen.families.streaming.program import StreamingProgram
from tritongen.lang.ir import Reduce, Ref
from tritongen.operator.compile import backward_of, forward_of
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

F = torch.nn.functional
SIZES = {"B": 3, "M": 37, "N": 45, "K": 33, "P": 21, "R": 5, "D": 18, "E": 8, "S": 19, "T": 23, "C": 6, "G": 4, "V": 7}


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
        pairs = [entry.split(":") for entry in self.inputs.split("; ")]
        inputs = "\n".join(f'{name} = "{axes if axes.startswith("int") else f"T[{axes}]"}"' for name, axes in pairs)
        statements = (line.split(" = ", 1) for line in self.compute.split("\n"))
        lines = "\n".join(f'{name} = "{expression}"' for name, expression in statements)
        outputs = "\n".join(f'{name} = "auto"' for name in self.outputs.split())
        grad = "" if self.wrt == "-" else f"[grad]\nwrt = {self.by()}\n".replace("'", '"')
        grad += f"[schedule]\n{self.schedule}\n"
        head = '[op]\nname = "steps"\nsummary = "Several steps."\n[types]\nT = "float"\n'
        return read_spec("steps.toml", f"{head}[inputs]\n{inputs}\n[compute]\n{lines}\n[outputs]\n{outputs}\n{grad}")

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


def _sinkhorn(x: torch.Tensor) -> torch.Tensor:
    for axis in (1, 0, 1, 0):
        x = x - torch.logsumexp(x, axis, keepdim=True)
    return x.exp()


def _group_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.group_norm(x, 4, w, b)


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
        "a = x - logsumexp(x, N)\nb = a - logsumexp(a, M)\nc = b - logsumexp(b, N)\ny = exp(c - logsumexp(c, M))",
        _sinkhorn,
    ),
    "outputs_of_different_axes": Case(
        "x:M, N", "y = x * 2\ns = sum(x, N)\nt = sum(x, M)", lambda x: (x * 2, x.sum(1), x.sum(0)), "y s t"
    ),
    "output_apart": Case("x:M, N; w:N", "y = x * w\nv = w * w", lambda x, w: (x * w, w * w), "y v"),
    "norm_of_all": Case(
        "x:M, N", "y = x / sqrt(sum(x * x))\nz = max(x, N)", lambda x: (x / x.norm(), x.amax(1)), "y z"
    ),
    "group_norm": Case(
        "x:B, (G=4 C), S; w:(G=4 C); b:(G=4 C)",
        "y = (x - mean(x, C, S)) * rsqrt(var(x, C, S, correction=0) + 1e-5) * w + b",
        _group_norm,
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
    "mlp": Case(
        "x:M, K; w:N, K; v:P, N",
        "h = gelu(sum(x * w, K))\ny = sum(h * v, N)",
        lambda x, w, v: F.gelu(x @ w.T) @ v.T,
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
    "take_of_a_neighbour": Case(
        "x:M, N",
        "s = sum(x, N)\ny = s * where(index(M) > 0, take(s, index(M) - 1, M), 1)",
        lambda x: x.sum(1) * torch.cat([torch.ones(1, dtype=x.dtype), x.sum(1)[:-1]]),
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
    "sum_of_a_vectors_side": Case(
        "x:M, K; w:K, N; b:M", "y = b * sum(x * w, K, N)", lambda x, w, b: b * (x @ w.sum(1))
    ),
    "square_of_one_side": Case(
        "x:M, K; w:K, N",
        "v = w * w\ny = sum(x * v, K, N) + sum(x * w * w, K, N)",
        lambda x, w: 2 * (x @ (w * w)).sum(1),
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


@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tmp_path: Path) -> None:
    """In float64 to its last digits, so that no step is left out, and in float32."""
    case = CASES[name]
    spec = case.spec()
    forward = forward_of(spec)
    backward = backward_of(spec, forward)
    function = built(spec, tmp_path).steps
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 2e-4)):
        given = case.tensors(dtype)
        wide = [one.double() if one.is_floating_point() else one for one in given]
        found, wanted = _results(function(*given)), _results(case.torch(*wide))
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == dtype
            torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance)
        if backward is not None:
            _compare_gradients(case, function, given, wide, tolerance * 10)


def _lines_of_steps(name: str) -> list[list[str]]:
    forward = forward_of(CASES[name].spec())
    return [list(step.op.lines) for step in forward.family.steps(forward.program)]


def test_lines_are_kept_apart() -> None:
    assert _lines_of_steps("norm_line_by_line") == [["s"], ["r"], ["y"]]
    assert _lines_of_steps("mlp_line_by_line") == [["h"], ["z"], ["y"]]
    first, *others = _lines_of_steps("line_of_two_steps")
    assert first == ["z"]
    assert len(others) > 1
    assert others[-1] == ["y"]
    fused = replace(CASES["norm_line_by_line"], schedule="fuse = true")
    assert not forward_of(fused.spec()).family.steps(forward_of(fused.spec()).program)


def test_lines_of_gradients_are_kept_apart() -> None:
    spec = CASES["norm_line_by_line"].spec()
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    steps = [step for one in backward.plan.steps for step in one.family.steps(one.program) or (one,)]
    assert len(steps) >= len(backward.gradient.op.lines) > 2
    assert all(len(step.op.lines) == 1 for step in steps)


@pytest.mark.parametrize("name", ["sinkhorn", "layer_norm_of_a_matmul", "lora"])
def test_no_single_kernel_computes_it(name: str) -> None:
    forward = forward_of(CASES[name].spec())
    assert isinstance(forward.family, Several)


def test_attention_is_one_kernel() -> None:
    forward = forward_of(CASES["attention"].spec())
    assert isinstance(forward.program, StreamingProgram)
    assert not forward.family.steps(forward.program)


def test_steps_are_as_few_as_they_can_be() -> None:
    """Sums of rows and of columns are a step each, and one of them goes with what is made of both."""
    forward = forward_of(CASES["reductions_over_different_axes"].spec())
    assert [step.op.name for step in forward.program.steps] == ["steps_y_sum", "steps_y"]
    lora = forward_of(CASES["lora"].spec())
    assert len(lora.program.steps) == 3


@pytest.mark.parametrize("name", ["mlp", "lora", "layer_norm_of_a_matmul", "stored_and_returned", *APART])
def test_nothing_is_stored_twice(name: str) -> None:
    """What the next step reads and what the backward or the caller does is one tensor."""
    spec = CASES[name].spec()
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    forward = backward.forward
    steps = forward.family.steps(forward.program)
    stored = [result.node.name for step in steps for result in step.op.results if isinstance(result.node, Ref)]
    assert len(stored) >= len(steps)
    assert len(stored) == len(set(stored))


def test_matrices_are_saved_as_they_are_stored(tmp_path: Path) -> None:
    """In half precision what the backward reads is what the next step has read, as it is in torch."""
    for name, rows in (("mlp", 0), ("layer_norm_of_a_matmul", 2)):
        given = CASES[name].tensors(torch.float16)
        package = built(CASES[name].spec(), tmp_path / name)
        module = importlib.import_module(f"{package.__name__}.op")
        saved = module._steps_forward(*given, saves=True)
        assert [one.dtype for one in saved] == [torch.float16] * (len(saved) - rows) + [torch.float32] * rows
        leaves = [one.requires_grad_() for one in given]
        exact = [one.detach().double().requires_grad_() for one in given]
        seed = torch.randn(saved[0].shape, generator=torch.Generator().manual_seed(1)).half()
        wanted = torch.autograd.grad(CASES[name].torch(*exact), exact, seed.double())
        ours = torch.autograd.grad(module.steps(*leaves), leaves, seed)
        eager = torch.autograd.grad(CASES[name].torch(*leaves), leaves, seed)
        for one, other, right in zip(ours, eager, wanted, strict=True):
            assert (one - right).norm() <= 1.25 * (other - right).norm() + 1e-3 * right.norm()


def test_docstrings_name_the_steps(tmp_path: Path) -> None:
    function = built(CASES["mlp"].spec(), tmp_path).steps
    assert function.__doc__ is not None
    assert (
        "    Steps:\n        1. _steps_h, a contraction: h, h_sum\n        2. _steps_y, a contraction: y\n"
        in function.__doc__
    )
    module = importlib.import_module(f"{function.__module__}")
    assert (
        "Steps:\n        1. _steps_backward_h_sum_dy_v, a contraction: h_sum_dy_v\n" in module._steps_backward.__doc__
    )


@pytest.mark.parametrize("name", ["sum_of_one_side", "sums_of_both_sides", "sum_of_a_vectors_side"])
def test_one_side_is_summed_first(name: str) -> None:
    """No step goes through more axes than the largest input has, or a matmul of two has."""
    forward = forward_of(CASES[name].spec())
    *sums, last = forward.family.steps(forward.program)
    assert sums
    assert all(len(one.op.inputs) == 1 for one in sums)
    reduced = {axis for value in last.op.values if isinstance(value.node, Reduce) for axis in value.node.over}
    assert reduced == {"K"}


def _compare_gradients(
    case: Case,
    function: Callable[..., object],
    given: list[torch.Tensor],
    wide: list[torch.Tensor],
    tolerance: float,
) -> None:
    names = [entry.split(":")[0] for entry in case.inputs.split("; ")]
    places = [names.index(name) for name in case.by()]
    for chosen in (places, *([place] for place in places[:-1])):
        gradients = []
        for tensors, compute in ((given, function), (wide, case.torch)):
            leaves = [one.detach().requires_grad_(place in chosen) for place, one in enumerate(tensors)]
            results = [one for one in _results(compute(*leaves)) if one.requires_grad]
            random = torch.Generator().manual_seed(1)
            seeds = [torch.randn(one.shape, generator=random, dtype=torch.float64).to(one.dtype) for one in results]
            gradients.append(torch.autograd.grad(results, [leaves[place] for place in chosen], seeds))
        for one, other in zip(*gradients, strict=True):
            scale = max(1.0, float(other.abs().max()))
            torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance * scale)


def _results(found: object) -> list[torch.Tensor]:
    return list(found) if isinstance(found, tuple) else [found]  # type: ignore[list-item]
