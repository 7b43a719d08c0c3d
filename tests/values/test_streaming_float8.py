"""Attention to keys and values in float8, or int8, with scales, beside a float64 oracle: no scores are stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from tests.harness.importing import built
from tests.harness.oracles import DEVICE
from tritongen.families.streaming.program import StreamingProgram
from tritongen.operator.compile import backward_of, forward_of, generate
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

B, H, M, N, D = 2, 3, 37, 70, 40
Q, K, V = "q:T[B, H, M, D]", "k:float8[B, H, N, D]", "v:float8[B, H, N, E]"
CAUSAL = "where(index(N) - size(N) <= index(M) - size(M), {}, -inf)"
SHAPES = {"B": B, "H": H, "M": M, "N": N, "D": D, "E": D}


@dataclass(frozen=True)
class Case:
    """Inputs, the scores under a causal mask, the sum that is the result, and what factors of them are in torch."""

    inputs: str
    scores: str
    o: str
    of_scores: Callable[..., torch.Tensor | float]
    of_values: Callable[..., torch.Tensor | float]
    output: str = "q"
    wrt: str = ""

    def spec(self) -> Spec:
        pairs = [entry.split(":") for entry in self.inputs.split("; ")]
        inputs = "\n".join(f'{name} = "{text}"' for name, text in pairs)
        compute = f's = "{CAUSAL.format(self.scores)}"\no = "{self.o}"'
        grad = f'[grad]\nwrt = ["{self.wrt}"]\n' if self.wrt else ""
        text = f'[op]\nname = "attend"\n[types]\nT = "float"\n[inputs]\n{inputs}\n[compute]\n{compute}\n'
        return read_spec("attend.toml", f'{text}[outputs]\no = "{self.output}"\n{grad}')

    def tensors(self, dtype: torch.dtype, float8: torch.dtype) -> list[torch.Tensor]:
        random = torch.Generator().manual_seed(0)
        made = []
        for entry in self.inputs.split("; "):
            kind, axes = entry.split(":")[1].rstrip("]").split("[")
            drawn = torch.randn([SHAPES[axis] for axis in axes.split(", ")], generator=random, dtype=torch.float64)
            if kind == "int8":
                drawn = (50 * drawn).round().clamp(-128, 127)
            kinds = {"float8": float8, "int8": torch.int8}
            wide = drawn.abs().float() if kind == "float32" else drawn.to(kinds.get(kind, dtype))
            made.append(wide.to(DEVICE))
        return made

    def torch(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *scales: torch.Tensor) -> torch.Tensor:
        q, k, v, *scales = (one.double() for one in (q, k, v, *scales))
        mask = torch.ones(M, N, device=q.device).tril(N - M).bool()
        s = (q @ k.mT * self.of_scores(*scales)).masked_fill(~mask, -torch.inf)
        return s.softmax(-1) @ (v * self.of_values(*scales))


CASES = {
    "scales_of_heads": Case(
        f"{Q}; {K}; {V}; a:float32[B, H]; b:float32[H]",
        "sum(q * k, D) * a * 0.2",
        "sum(softmax(s, N) * v, N) * b",
        lambda a, b: a[..., None, None] * 0.2,
        lambda a, b: b[:, None, None],
        wrt="q",
    ),
    "scales_of_positions": Case(
        f"{Q}; {K}; {V}; a:float32[B, H, N]; b:float32[B, N]",
        "sum(q * (k * a), D) * 0.2",
        "sum(softmax(s, N) * (v * b), N)",
        lambda a, b: a[:, :, None] * 0.2,
        lambda a, b: b[:, None, :, None],
        wrt="q",
    ),
    "all_in_float8": Case(
        f"{Q.replace('T', 'float8')}; {K}; {V}; a:float32[B, H]; b:float32[B, H, M]",
        "sum(q * k, D) * a * b * 0.1",
        "sum(softmax(s, N) * v, N)",
        lambda a, b: a[..., None, None] * b[..., None] * 0.1,
        lambda a, b: 1,
        output="float32",
    ),
    "keys_alone": Case(
        f"{Q}; {K}; {V.replace('float8', 'T')}",
        "sum(q * k, D) * 0.2",
        "sum(softmax(s, N) * v, N)",
        lambda: 0.2,
        lambda: 1,
        wrt="v",
    ),
}
INT8 = f"{Q}; {K}; {V}".replace("float8", "int8")
CASES |= {
    "int8": Case(
        f"{INT8}; a:float32[B, H]; b:float32[H]",
        "sum(q * k, D) * a * 0.004",
        "sum(softmax(s, N) * v, N) * b",
        lambda a, b: a[..., None, None] * 0.004,
        lambda a, b: b[:, None, None],
        wrt="q",
    ),
    "casts_of_int8": Case(
        f"{INT8}; a:float32[B, H, N]; b:float32[B, N]",
        "sum(q * (cast(k, q) * a), D) * 0.004",
        "sum(softmax(s, N) * (cast(v, q) * b), N)",
        lambda a, b: a[:, :, None] * 0.004,
        lambda a, b: b[:, None, :, None],
        wrt="q",
    ),
    "values_in_int8": Case(
        f"{Q}; {K.replace('float8', 'T')}; {V.replace('float8', 'int8')}; b:float32[B, H, N]",
        "sum(q * k, D) * 0.2",
        "sum(softmax(s, N) * (v * b), N)",
        lambda b: 0.2,
        lambda b: b[..., None],
        wrt="k",
    ),
}
TOLERANCES = {torch.float16: 4e-3, torch.float32: 1e-5, torch.float64: 1e-12}


@pytest.mark.parametrize("float8", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, float8: torch.dtype, tmp_path: Path) -> None:
    """float8 and int8 are exact in whatever they are converted to; all of float8 is multiplied in float16."""
    case = CASES[name]
    attend = built(case.spec(), tmp_path).attend
    for dtype, tolerance in TOLERANCES.items():
        given = case.tensors(dtype, float8)
        place = {"q": 0, "k": 1, "v": 2}.get(case.wrt)
        if place is not None:
            given[place].requires_grad_()
        found, wanted = attend(*given), case.torch(*given)
        assert found.dtype == (torch.float32 if case.output != "q" else dtype)
        tolerance = TOLERANCES[torch.float16] if case.output != "q" else tolerance
        torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance * wanted.abs().max().item())
        if place is None:
            continue
        do = torch.randn(found.shape, generator=torch.Generator().manual_seed(1)).to(found)
        gradients = [torch.autograd.grad(one, given[place], do.to(one))[0].double() for one in (found, wanted)]
        scale = gradients[1].abs().max().item()
        torch.testing.assert_close(*gradients, rtol=tolerance, atol=tolerance * scale)


SHARED = """
[op]
name = "attend"
[inputs]
q = "float[B, H, M, D]"
k = "{bytes}[B, {heads}N, D]"
v = "{bytes}[B, N, E]"
bias = "float[B, M, N]"
sink = "float[H]"
[compute]
s = "where(index(N) - size(N) <= index(M) - size(M), sum(q * k, D) * 0.004 + bias, -inf)"
m = "maximum(max(s, N), sink)"
p = "exp(s - m)"
o = "sum(p * v, N) / (sum(p, N) + exp(sink - m))"
[outputs]
o = "q"
[grad]
wrt = ["q", "bias", "sink"]
"""


@pytest.mark.parametrize("heads", ["", "H, "], ids=["shared_keys", "keys_of_heads"])
@pytest.mark.parametrize("of_bytes", [torch.float8_e5m2, torch.int8], ids=str)
def test_gradient_of_a_bias_that_heads_share(of_bytes: torch.dtype, heads: str, tmp_path: Path) -> None:
    """A tile of it adds heads in turn, whose queries are read after the bytes that all of them share."""
    text = SHARED.format(bytes=str(of_bytes).removeprefix("torch."), heads=heads)
    attend = built(read_spec("attend.toml", text), tmp_path).attend
    random = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64).to(DEVICE)

    k, v = ((20 * drawn(*shape)).to(of_bytes) for shape in ((B, H, N, D) if heads else (B, N, D), (B, N, D)))
    exact = drawn(B, H, M, D), drawn(B, M, N), drawn(H)
    do = drawn(B, H, M, D)
    wide = [one.double() if heads and one is k else one.double()[:, None] for one in (k, v)]
    mask = torch.ones(M, N, device=DEVICE).tril(N - M).bool()
    for dtype, tolerance in TOLERANCES.items():
        q, bias, sink = leaves = [one.to(dtype).requires_grad_() for one in exact]
        found = attend(q, k, v, bias, sink)
        s = (q.double() @ wide[0].mT * 0.004 + bias.double()[:, None]).masked_fill(~mask, -torch.inf)
        ends = sink.double()[None, :, None, None].expand(B, H, M, 1)
        wanted = torch.cat([s, ends], -1).softmax(-1)[..., :-1] @ wide[1]
        pairs = [(found, wanted)]
        gradients = (torch.autograd.grad(one, leaves, do.to(dtype).to(one)) for one in (found, wanted))
        pairs += zip(*gradients, strict=True)
        for one, other in pairs:
            torch.testing.assert_close(
                one.double(), other.double(), rtol=tolerance, atol=2 * tolerance * other.abs().max().item()
            )


NORMED = """
[op]
name = "attend"
[types]
T = "float"
[inputs]
q = "T[B, H, M, D]"
k = "float8_e5m2[B, H, N, D]"
v = "float8_e5m2[B, H, N, E]"
scale = "float32[]"
[compute]
n = "cast(q * rsqrt(mean(q * q, D) + 1e-6), q)"
s = "sum(n * k, D)"
o = "sum(softmax(s, N) * (v * scale), N)"
[outputs]
o = "q[B, H, M, E]"
[grad]
wrt = ["q"]
"""


def test_normed_queries(tmp_path: Path) -> None:
    """Normed queries have a dtype that a step of the backward needs without reading them."""
    attend = built(read_spec("attend.toml", NORMED), tmp_path).attend
    random = torch.Generator().manual_seed(0)
    exact, *of_keys = (torch.randn(B, H, n, D, generator=random, dtype=torch.float64) for n in (M, N, N))
    k, v = (one.to(DEVICE, torch.float8_e5m2) for one in of_keys)
    scale = torch.tensor(0.3, device=DEVICE)
    for dtype, tolerance in TOLERANCES.items():
        q = exact.to(DEVICE, dtype).requires_grad_()
        n = q * (q.double().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        pair = attend(q, k, v, scale), (n @ k.double().mT).softmax(-1) @ (v.double() * scale)
        gradients = (torch.autograd.grad(one.square().sum(), q)[0] for one in pair)
        for one, other in (pair, tuple(gradients)):
            bound = 2 * tolerance * other.abs().max().item()
            torch.testing.assert_close(one.double(), other.double(), rtol=tolerance, atol=bound)


@pytest.mark.parametrize("name", CASES)
def test_no_scores_are_stored(name: str) -> None:
    spec = CASES[name].spec()
    forward = forward_of(spec)
    assert isinstance(forward.program, StreamingProgram)
    backward = backward_of(spec, forward)
    for step in backward.plan.steps if backward else ():
        assert not any({"M", "N"} <= set(result.axes) for result in step.op.results)


def test_blocks_are_as_long_as_a_schedule_says() -> None:
    """Few rows take longer ones of float8 otherwise."""
    spec = replace(CASES["scales_of_positions"], wrt="").spec()
    assert "float8=True" in generate(spec)["configs.py"]
    scheduled = replace(spec, schedule=replace(spec.schedule, block_n=(64,)))
    assert "float8=True" not in generate(scheduled)["configs.py"]
