"""The tests that are emitted with a kernel pass.

Those of the specs in tests/emitted/specs, whose oracles are their own math: of dtypes that Triton's interpreter does
not multiply or torch does not compare, of scores that are stored, of lines that are not fused. And those of operators
of tests/specs that are registered with torch, contract computed values, which are rounded to the dtype of the matmul,
or have few rows past which an axis streams.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.harness.importing import emitted_tests, written
from tritongen.operator.compile import forward_of
from tritongen.spec.read import read_spec
from tritongen.testing.oracle import own_lines, signature, torch_lines
from tritongen.testing.samples import required_values

ROOT = Path(__file__).parents[2]
STRESS = ROOT / "tests" / "specs"
SPECS = sorted(
    (
        *(Path(__file__).parent / "specs").glob("*.toml"),
        *STRESS.glob("*registered*.toml"),
        STRESS / "attention_decode.toml",
        STRESS / "gradient_shared_optional.toml",
        STRESS / "gradient_whole_norm.toml",
        STRESS / "product_float64_mixed.toml",
        STRESS / "product_prologue.toml",
    )
)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("part", range(16))
def test_emitted_tests_pass(part: int, tmp_path: Path) -> None:
    for path in SPECS[part::16]:
        written(read_spec(path.name, path.read_text(encoding="utf-8")), tmp_path)
    # Configurations, splits and vmap are tried on the gallery.
    done = emitted_tests(tmp_path, "-k", "not (configs or splits or vmap)")
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("matmul", [(5, 7), (7, 3)]),
        ("batched_matmul", [(2, 1, 5, 7), (3, 7, 4)]),
        ("bshd_hdm", [(2, 5, 3, 4), (3, 4, 6)]),
        ("addmm", [(5, 3), (5, 7), (7, 3)]),
        ("linear_silu_mul", [(5, 7), (3, 7), (3, 7)]),
        ("attention", [(2, 5, 8), (2, 5, 8), (2, 5, 8)]),
        ("lora_linear", [(5, 7), (6, 7), (4, 7), (6, 4)]),
        ("norm_linear", [(5, 7), (6, 7)]),
    ],
)
def test_own_math_multiplies_matrices(name: str, shapes: list[tuple[int, ...]]) -> None:
    """Sums of products of floats are matmuls of torch, and not sums over all the products."""
    path = next(ROOT.glob(f"**/specs/{name}.toml"))
    spec = read_spec(path.name, path.read_text(encoding="utf-8"))
    op = forward_of(spec).op
    torch.manual_seed(0)
    tensors = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    found = []
    for math in (own_lines(spec, op), torch_lines(spec, op)):
        names: dict[str, Any] = {"torch": torch}
        exec("\n    ".join((f"def math({signature(op)}):", *math)), names)
        found.append(names["math"](*tensors, **required_values(op)))
    torch.testing.assert_close(*found)
    assert "torch.einsum" in "".join(own_lines(spec, op))


@pytest.mark.parametrize(
    ("inputs", "line", "printed"),
    [
        ({"a": "float[M, K]", "b": "float[K, N]", "s": "float[K]"}, "a * s * b", "torch.einsum('mk,kn->mn', a * s, b)"),
        ({"a": "float[M, K]", "b": "int8[K, N]"}, "a * b", "torch.einsum('mk,kn->mn', a, b.to(a))"),
        ({"a": "int8[M, K]", "b": "int8[K, N]"}, "a * b", "torch.sum(a[..., None] * b, dim=-2)"),
        ({"a": "float[M, K]", "b": "float[K]"}, "a * b", "torch.sum(a * b, dim=-1)"),
    ],
)
def test_matmuls_of_the_oracle(inputs: dict[str, str], line: str, printed: str) -> None:
    tensors = "\n".join(f'{name} = "{kind}"' for name, kind in inputs.items())
    text = f'[op]\nname = "f"\n[inputs]\n{tensors}\n[compute]\ny = "sum({line}, K)"\n[outputs]\ny = "float32"'
    spec = read_spec("f.toml", text)
    assert own_lines(spec, forward_of(spec).op) == (f"return {printed}",)


@pytest.mark.parametrize(
    ("reference", "called"),
    [
        ("x + torch.arange(x.shape[0])", "x + torch.arange(x.shape[0], device=x.device)"),
        ("x * torch.ones(x.shape).tril(-1)", "x * torch.ones(x.shape, device=x.device).tril(-1)"),
        ("x + torch.arange(3, device=x.device)", "x + torch.arange(3, device=x.device)"),
        ("x.new_zeros(3) + torch.sum(x)", "x.new_zeros(3) + torch.sum(x)"),
    ],
)
def test_a_reference_makes_tensors_where_its_inputs_are(reference: str, called: str) -> None:
    text = (ROOT / "specs" / "relu.toml").read_text(encoding="utf-8")
    spec = replace(read_spec("relu.toml", text), reference=reference)
    assert torch_lines(spec, forward_of(spec).op) == (f"return {called}",)
