"""Attention whose scores have a learned value of one position, beside a float64 oracle."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from random import Random

import pytest
import torch

from tests.harness.importing import built
from tests.harness.oracles import compare
from tests.random.evaluated import Evaluated
from tritongen.operator.compile import generate
from tritongen.spec.read import read_spec

INPUTS = {
    "q": "float[M, D]",
    "k": "float[N, D]",
    "v": "float[N, E]",
    "h": "float[]",
    "b": "float[N]",
    "c": "float[M]",
    "bias": "float[M, N]",
    "mask": "bool[M, N]",
}
LENGTHS = {"M": 20, "N": 37, "D": 16, "E": 8}
TERMS = (
    *("h", "h * b", "h * c", "h * bias", "h * b * c", "h * (b - c)", "square(h) * c", "h * tanh(b)", "sigmoid(h * b)"),
    *("h * (index(N) - index(M))", "-exp(h) * abs(index(M) - index(N))", "softplus(h) * (b + c)", "exp(h) * b"),
    *("h / (1.0 + exp(b))", "h * sigmoid(b + c)", "log(1.0 + exp(h + b))"),
)
AROUND = (
    *("({}) * h", "({}) / exp(h)", "h * tanh({})", "tanh({}) * h + b"),
    *("where(index(N) <= index(M), {}, -inf)", "where(mask, {}, -inf)"),
)


def drawn(seed: int) -> str:
    """A spec with a random formula of scores."""
    random = Random(seed)
    s = "sum(q * k, D)" + random.choice(["", " * h", " * 0.25"])
    for _ in range(random.randint(1, 3)):
        s += f" {random.choice('+-')} {random.choice(TERMS)}"
    for _ in range(random.randint(0, 2)):
        s = random.choice(AROUND).format(s)
    used = [name for name in INPUTS if name in "qkvh" or re.search(rf"\b{name}\b", s)]
    if not re.search(r"\bh\b", s):
        return drawn(seed + 100_000)
    wrt = [name for name in used if name == "h" or (name != "mask" and random.random() < 0.35)]
    inputs = "\n".join(f'{name} = "{INPUTS[name]}"' for name in used)
    listed = ", ".join(f'"{name}"' for name in wrt)
    return f"""
[op]
name = "attend"

[inputs]
{inputs}

[compute]
s = "{s}"
o = "sum(softmax(s, N) * v, N)"

[outputs]
o = "auto[M, E]"

[grad]
wrt = [{listed}]
"""


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_gradients_are_planned(first: int) -> None:
    for seed in range(first, first + 8):
        tree = ast.parse(generate(read_spec("attend.toml", drawn(seed)))["op.py"])
        takes = {node.name: len(node.args.args) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        once = [node.args for node in ast.walk(tree) if isinstance(node, ast.Call) and "once" in ast.unparse(node.func)]
        assert [len(passed) for _, *passed in once] == [takes[ast.unparse(function)] for function, *_ in once], seed


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_gradients(seed: int, tmp_path: Path) -> None:
    evaluated = Evaluated(drawn(seed))
    operator = built(read_spec("attend.toml", evaluated.text), tmp_path).attend
    random = torch.Generator().manual_seed(seed)
    tensors = [
        torch.rand(evaluated.shape(one, LENGTHS), generator=random, dtype=torch.float64) - 0.25
        for one in evaluated.inputs
    ]
    tensors = [
        t > 0 if one.dtype == "bool" else t + 0.5 * (one.name == "h")
        for t, one in zip(tensors, evaluated.inputs, strict=True)
    ]
    by = [place for place, one in enumerate(evaluated.inputs) if one.name in evaluated.by]
    compare(operator, lambda *given: evaluated(LENGTHS, given, {}), tensors, by, 1e-8)
