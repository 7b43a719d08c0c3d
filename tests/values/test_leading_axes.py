"""Inputs that broadcast along leading axes over which all is reduced: gradients are those of all elements together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.harness.importing import built
from tests.harness.oracles import compare
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

LENGTHS = {"": (), "M": (6,), "N": (4,), "M, N": (6, 4), "N, M": (4, 6), "(N P=2)": (8,)}
LEADING = [((3,), (2, 3)), ((2, 3), (3,)), ((1, 3), (2, 1)), ((), (2, 3)), ((2, 1, 3), (1,)), ((3,), (3,))]
# The axes of x and z behind the leading ones, [compute], and what it is of tensors that have one leading axis.
CASES: dict[str, tuple[str, str, str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "together": ("N", "N", "y = sum(x * z, ...)", lambda x, z: (x * z).sum(0)),
    "each_alone": ("N", "N", "y = sum(tanh(x) + z, ...)", lambda x, z: (x.tanh() + z).sum(0)),
    "of_other_axes": ("N", "", "y = sum(x * x, ...) + sum(z, ...)", lambda x, z: (x * x).sum(0) + z.sum()),
    "of_a_group": (
        "(N P=2)",
        "N",
        "y = sum(tanh(x) * tanh(x), P, ...) + mean(z, ...)",
        lambda x, z: x.unflatten(1, (4, 2)).tanh().square().sum((0, 2)) + z.mean(0),
    ),
    "means_of_norms": (
        "N",
        "N",
        "h = x * rsqrt(mean(x * x, N) + 0.1)\ny = mean(h, ...) * sum(exp(z), ...)",
        lambda x, z: (x * (x.square().mean(1, keepdim=True) + 0.1).rsqrt()).mean(0) * z.exp().sum(0),
    ),
    "largest": ("N", "N", "y = max(tanh(x), ..., N) + sum(z, ..., N)", lambda x, z: x.tanh().amax() + z.sum()),
    "matmuls": (
        "M, N",
        "N",
        "h = sum(x * z, N)\ny = sum(gelu(h), ...) + sum(sin(x), ..., N)",
        lambda x, z: torch.nn.functional.gelu((x * z[:, None]).sum(2)).sum(0) + x.sin().sum((0, 2)),
    ),
    "batch_of_a_matmul": ("M, N", "N, M", "y = sum(x * z, ..., N)", lambda x, z: (x * z.mT).sum((0, 2))),
    "other_result": ("N", "N", "y = sum(x * x, ...)\nv = sum(z, N)", lambda x, z: (x.square().sum(0), z.sum(1))),
}


def _spec(name: str, more: str = "") -> Spec:
    x, z, compute, _ = CASES[name]
    inputs = "".join(f"{one} = 'T[{', '.join(filter(None, ('...', axes)))}]'\n" for one, axes in (("x", x), ("z", z)))
    lines = "".join("{} = '{}'\n".format(*line.split(" = ", 1)) for line in compute.split("\n"))
    outputs = "y = 'auto'\n" + "v = 'auto'\n" * ("\nv" in compute)
    head = "[op]\nname = 'steps'\nsummary = 'Steps.'\n[types]\nT = 'float'\n"
    return read_spec(
        "steps.toml",
        f"{head}[inputs]\n{inputs}[compute]\n{lines}[outputs]\n{outputs}[grad]\nwrt = ['x', 'z']\n{more}",
    )


def _compare(operator: Callable[..., object], name: str) -> None:
    *axes, _, formula = CASES[name]
    own = [LENGTHS[behind] for behind in axes]

    def of_all(*tensors: torch.Tensor) -> object:
        pairs = [*zip(tensors, own, strict=True)]
        batch = torch.broadcast_shapes(*(one.shape[: one.ndim - len(lengths)] for one, lengths in pairs))
        found = formula(*(one.expand(*batch, *lengths).reshape(-1, *lengths) for one, lengths in pairs))
        return (found[0], found[1].view(batch)) if isinstance(found, tuple) else found

    random = torch.Generator().manual_seed(0)
    for leading in LEADING:
        shapes = [(*first, *lengths) for first, lengths in zip(leading, own, strict=True)]
        given = [torch.randn(shape, generator=random, dtype=torch.float64) for shape in shapes]
        for by in ((0, 1), (0,), (1,)):
            compare(operator, of_all, given, by, 1e-9)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, tmp_path: Path) -> None:
    _compare(built(_spec(name), tmp_path).steps, name)


@pytest.mark.parametrize("name", ["each_alone", "means_of_norms"])
def test_gradients_of_registered_operators(name: str, tmp_path: Path) -> None:
    more = f"[torch]\nregister = 'custom_op'\nnamespace = 'leading_axes_{name}'\n"
    _compare(built(_spec(name, more), tmp_path).steps, name)


def test_numbers_of_rows_alone_at_full_length(tmp_path: Path) -> None:
    """The kernel that counts the largest reads two inputs, each of which may lack leading axes, and the largest."""
    spec = read_spec(
        "gated.toml",
        "[op]\nname = 'gated'\nsummary = 'Gates.'\n[types]\nT = 'float'\n"
        "[inputs]\nx = 'T[..., N]'\nz = 'T[..., N]'\nw = 'T[N]'\n"
        "[compute]\ny = 'silu(x) * z * w'\nm = 'max(abs(y), N)'\n[outputs]\ny = 'x'\nm = 'x[...]'\n"
        "[grad]\nwrt = ['x', 'z', 'w']\n",
    )
    operator = built(spec, tmp_path).gated

    def gated(x: torch.Tensor, z: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.nn.functional.silu(x) * z * w
        return y, y.abs().amax(-1)

    random = torch.Generator().manual_seed(0)
    for leading in LEADING:
        shapes = [(*first, 20) for first in (*leading, ())]
        given = [torch.randn(shape, generator=random, dtype=torch.float64) for shape in shapes]
        compare(operator, gated, given, (0, 1, 2), 1e-9)
