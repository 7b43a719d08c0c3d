"""A family that is added from outside: a module, templates and a registration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.family.contiguous import Contiguous
from tests.harness.importing import built
from tritongen import resources
from tritongen.families import registry
from tritongen.operator.compile import forward_of, generate, made_of
from tritongen.spec.read import read_spec

TEXT = """
[op]
name = "damped"
summary = "A wave that is damped by another."

[inputs]
x = "float32[M, N]"
w = "float32[{axes}]"

[compute]
y = "sin(x) * exp(-w * w)"

[outputs]
y = "x"

[grad]
wrt = ["x", "w"]

[reference]
torch = "torch.sin(x) * torch.exp(-w * w)"
"""
SPEC, COLUMN = (read_spec("damped.toml", TEXT.format(axes=axes)) for axes in ("M, N", "M"))


@pytest.fixture
def registered() -> Iterator[Contiguous]:
    family = Contiguous()
    registry.register(family, str(Path(__file__).parents[1] / "family" / "templates"))
    yield family
    registry._FAMILIES.remove(family)
    resources._ADDED.pop()
    made_of.cache_clear()


def test_it_is_asked_before_the_others(registered: Contiguous) -> None:
    assert forward_of(SPEC).family is registered
    assert forward_of(COLUMN).family is not registered


def test_it_computes_forward_and_gradient(registered: Contiguous, tmp_path: Path) -> None:
    kernels = generate(SPEC)["kernels.py"]
    assert kernels.count("@triton.jit") == kernels.count("_contiguous_kernel(") == 2
    damped = built(SPEC, tmp_path).damped
    inputs = [torch.randn(37, 61).mT.requires_grad_() for _ in range(2)]
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    y, exact = damped(*inputs), torch.sin(wide[0]) * torch.exp(-wide[1] * wide[1])
    torch.testing.assert_close(y, exact.float())
    seed = torch.randn_like(y)
    found, wanted = torch.autograd.grad(y, inputs, seed), torch.autograd.grad(exact, wide, seed.double())
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other.float())


def test_without_it_all_is_as_before() -> None:
    assert "contiguous" not in generate(SPEC)["kernels.py"]
    assert resources.template_folders() == (resources.templates_dir(),)
