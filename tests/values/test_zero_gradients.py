"""Gradients that are zero though a derivative is infinite: as torch's are, or as docs/spec.md promises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.harness.importing import built
from tritongen.spec.read import read_spec


def operator(folder: Path, inputs: str, compute: str, outputs: str = "y", params: str = "") -> Callable[..., object]:
    """An operator of `;`-separated entries, with gradients by all inputs that are floats."""
    tables = {"inputs": inputs, "params": params, "compute": compute}
    text = '[op]\nname = "it"\nsummary = "It."\n'
    for name, entries in tables.items():
        pairs = [entry.split(" = ", 1) for entry in entries.split("; ") if entry]
        text += f"[{name}]\n" + "".join(f'{own} = "{value}"\n' for own, value in pairs).replace('"0"', "0") if pairs else ""
    text += "[outputs]\n" + "".join(f'{name} = "auto"\n' for name in outputs.split())
    floats = [entry.split(" = ")[0] for entry in inputs.split("; ") if "float" in entry]
    text += f"[grad]\nwrt = {floats}\n".replace("'", '"')
    return built(read_spec("it.toml", text), folder).it


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("correction", ["1", "0", "param"])
def test_deviation_of_equal_elements(dim: int, correction: str, tmp_path: Path) -> None:
    option = {"1": "", "0": ", correction=0", "param": ", correction=c"}[correction]
    params = "c = 0" if correction == "param" else ""
    std = operator(tmp_path, "x = float[M, N]", f"y = std(x, {'MN'[dim]}{option})", params=params)
    x = torch.tensor([[2.0, 2.0, 2.0], [2.0, 3.0, 5.0], [2.0, -1.0, 0.5]], dtype=torch.float64)
    x, own = x.requires_grad_(), x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(x.std(dim, correction=int(correction == "1")).sum(), x)
    (found,) = torch.autograd.grad(std(own).sum(), own)
    torch.testing.assert_close(found, wanted)
