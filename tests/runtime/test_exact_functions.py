"""Functions that jump, or have zeros, beside exact results: in Triton's interpreter, or on a GPU where there is one."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import pytest
import torch

from tests.harness.importing import built
from tests.harness.oracles import DEVICE
from tritongen.spec.read import read_spec

LINES = {
    "rest": "fmod(x, z)",
    "modulus": "x % z",
    "whole": "x // z",
    "floor": "floor(x / z)",
    "named": "trunc(t)",
    "half": "round(x / z * 0.5)",
    "cast": "cast(x / z, int64)",
    "angle": "atan2(x, -x)",
    "turned": "copysign(1.0, -x)",
    "inverse": "1 / (-x)",
    "gamma": "lgamma(abs(x))",
}


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Any:
    text = '[op]\nname = "functions"\nsummary = "Functions."\n[inputs]\nx = "float[N]"\nz = "float[N]"\n'
    text += '[compute]\nt = "x / z"\n'
    text += "".join(f'{name} = "{line}"\n' for name, line in LINES.items())
    text += "[outputs]\n" + "".join(f'{name} = "auto"\n' for name in LINES)
    return built(read_spec("functions.toml", text), tmp_path_factory.mktemp("functions")).functions


def results(functions: Any, x: torch.Tensor, z: torch.Tensor) -> dict[str, torch.Tensor]:
    return dict(zip(LINES, (one.cpu() for one in functions(x.to(DEVICE), z.to(DEVICE))), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_remainders_of_large_quotients(functions: Any, dtype: torch.dtype) -> None:
    """Beside Python's fractions, which are exact."""
    gen = torch.Generator().manual_seed(0)
    largest = 120 if dtype == torch.float32 else 1000
    x, z = (
        (torch.rand(300, generator=gen, dtype=dtype) + 1)
        * 2.0 ** torch.randint(-largest, largest, (300,), generator=gen).double()
        for _ in range(2)
    )
    x, z = x * (1 - 2 * torch.randint(0, 2, (300,), generator=gen)), z.to(dtype)
    x[:4], z[:4] = torch.tensor([1e20, 3e38, -1e20, 2.0**-149], dtype=dtype), torch.tensor([3, 1e-38, 3, 2.0**-149])
    found = results(functions, x.to(dtype), z)
    pairs = [(Fraction(a), Fraction(b)) for a, b in zip(x.to(dtype).tolist(), z.tolist(), strict=True)]
    rests = [float(abs(a) % b) * (1 if a >= 0 else -1) for a, b in pairs]
    torch.testing.assert_close(found["rest"].double(), torch.tensor(rests, dtype=torch.float64), rtol=0, atol=0)
    moduli = torch.tensor([float(a % b) for a, b in pairs], dtype=torch.float64).to(dtype)
    torch.testing.assert_close(found["modulus"], moduli, rtol=torch.finfo(dtype).eps, atol=0)
    wholes = [a // b for a, b in pairs]
    within = [n for n, whole in enumerate(wholes) if abs(whole) < 2 ** (120 if dtype == torch.float32 else 1000)]
    wanted = torch.tensor([float(wholes[n]) for n in within], dtype=torch.float64).to(dtype)
    torch.testing.assert_close(found["whole"][within], wanted, rtol=torch.finfo(dtype).eps, atol=0)


def test_quotients_that_are_rounded_to_integers(functions: Any) -> None:
    """A division that is two units off gives 3 where 4 is the quotient."""
    n = torch.arange(1, 60, dtype=torch.float32)
    z = torch.rand(60, generator=torch.Generator().manual_seed(1)) + 0.5
    x = (n[:, None] * z).flatten()
    z = z.expand(59, 60).flatten().contiguous()
    found, quotient = results(functions, x, z), x / z
    assert torch.equal(found["floor"], quotient.floor())
    assert torch.equal(found["named"], quotient.trunc())
    assert torch.equal(found["half"], (quotient * 0.5).round())
    assert torch.equal(found["cast"], quotient.long())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_signs_of_zeros(functions: Any, dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, -0.0, 1.0, -1.0], dtype=dtype)
    found = results(functions, x, torch.ones_like(x))
    torch.testing.assert_close(found["angle"], torch.atan2(x, -x))
    assert torch.equal(found["turned"], torch.copysign(torch.ones_like(x), -x))
    assert torch.equal(found["inverse"], 1 / -x)


@pytest.mark.parametrize(("dtype", "ulps"), [(torch.float32, 16), (torch.float64, 80)])
def test_lgamma_beside_its_zeros(functions: Any, dtype: torch.dtype, ulps: int) -> None:
    off = 2.0 ** -torch.arange(2, 20, dtype=torch.float64)
    x = torch.cat([1 + off, 1 - off, 2 + off, 2 - off, torch.linspace(0.1, 6, 100, dtype=torch.float64)]).to(dtype)
    wanted = torch.tensor([float(mpmath.loggamma(one)) for one in x.tolist()], dtype=torch.float64)
    found = results(functions, x, torch.ones_like(x))["gamma"].double()
    assert ((found - wanted).abs() <= ulps * torch.finfo(dtype).eps / 2 * wanted.abs()).all()


def test_the_gradient_of_an_angle_of_small_numbers(tmp_path: Path) -> None:
    text = '[op]\nname = "angle"\nsummary = "An angle."\n[inputs]\nx = "float[N]"\nz = "float[N]"\n[compute]\n'
    text += 'y = "atan2(x, z)"\n[outputs]\ny = "auto"\n[grad]\nwrt = ["x", "z"]\n'
    angle = built(read_spec("angle.toml", text), tmp_path).angle
    for size in (1e-30, 1e-22, 1.0, 1e22, 1e30):
        x, z = (torch.tensor(one, device=DEVICE) * size for one in ([3.0, -1.0, 0.0], [4.0, 2.0, -1.0]))
        own = x.requires_grad_(), z.requires_grad_()
        wide = tuple(one.detach().double().requires_grad_() for one in own)
        wanted = torch.autograd.grad(torch.atan2(*wide).sum(), wide)
        found = torch.autograd.grad(angle(*own).sum(), own)
        torch.testing.assert_close(found, tuple(one.float() for one in wanted), rtol=1e-5, atol=0)
