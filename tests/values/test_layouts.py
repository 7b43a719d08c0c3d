"""The order of a result's dimensions where [outputs] does not state it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.harness.importing import built
from tests.harness.oracles import DEVICE
from tritongen.spec.read import read_spec

# The inputs, the line, its entry in [outputs], and what torch computes of the inputs.
LAYOUTS = {
    "take": (
        {"table": ("V E", (7, 3)), "i": ("... T", (2, 4))},
        ("take(table, i, V)", "table"),
        lambda table, i: table[i],
    ),
    "take_of_the_promoted_dtype": (
        {"table": ("V E", (7, 3)), "i": ("... T", (2, 4))},
        ("take(table, i, V) * 2", "auto"),
        lambda table, i: table[i] * 2,
    ),
    "take_of_a_take": (
        {"x": ("N D", (5, 3)), "i": ("A", (4,)), "j": ("S T", (2, 6))},
        ("take(take(x, i, N), j, A)", "x"),
        lambda x, i, j: x[i][j],
    ),
    "take_beside_its_axis": (
        {"x": ("N D", (5, 3)), "i": ("M", (4,))},
        ("x - take(x, i, N)", "x"),
        lambda x, i: x[:, :, None] - x[i].T,
    ),
    "named_before_the_longest": (
        {"w": ("A B C", (2, 3, 4)), "x": ("C A", (4, 2))},
        ("x * w", "x"),
        lambda w, x: x[:, :, None] * w.permute(2, 0, 1),
    ),
    "groups_of_the_named": (
        {"w": ("A D C", (2, 3, 4)), "x": ("C (A D=3)", (4, 6))},
        ("x * w", "x"),
        lambda w, x: x * w.permute(2, 0, 1).reshape(4, 6),
    ),
    "a_group_beside_others": (
        {"x": ("(A D=3)", (6,)), "w": ("N", (5,))},
        ("x * w", "x"),
        lambda x, w: x[:, None] * w,
    ),
    "what_a_group_leaves": (
        {"w": ("A B", (2, 5)), "x": ("C (A D=3)", (4, 6))},
        ("sum(x, D) * w", "x"),
        lambda w, x: x.view(4, 2, 3).sum(-1)[:, :, None] * w,
    ),
    "a_matmul": (
        {"w": ("K N M2", (4, 5, 3)), "x": ("M K", (2, 4))},
        ("sum(x * w, K)", "x"),
        lambda w, x: torch.einsum("mk,kno->mno", x, w),
    ),
}


def text_of(inputs: dict[str, tuple[str, tuple[int, ...]]], line: str, output: str) -> str:
    typed = {name: f"{'int64' if name in 'ij' else 'float'}[{_dimensions(axes)}]" for name, (axes, _) in inputs.items()}
    wrt = ", ".join(f'"{name}"' for name in inputs if name not in "ij")
    listed = "\n".join(f'{name} = "{type_}"' for name, type_ in typed.items())
    return f"""
[op]
name = "laid_out"
[inputs]
{listed}
[compute]
y = "{line}"
[outputs]
y = "{output}"
[grad]
wrt = [{wrt}]
"""


def _dimensions(axes: str) -> str:
    return axes.replace(" (", ", (") if "(" in axes else axes.replace(" ", ", ")


@pytest.mark.parametrize("case", LAYOUTS)
def test_layout(case: str, tmp_path: Path) -> None:
    inputs, (line, output), oracle = LAYOUTS[case]
    function = built(read_spec("laid_out.toml", text_of(inputs, line, output)), tmp_path).laid_out
    draw = torch.Generator().manual_seed(0)
    tensors = [
        torch.randint(0, 4, shape, generator=draw).to(DEVICE)
        if name in "ij"
        else torch.randn(shape, generator=draw, dtype=torch.float64).to(DEVICE).requires_grad_()
        for name, (_, shape) in inputs.items()
    ]
    learned = [tensor for tensor in tensors if tensor.requires_grad]
    got, wanted = function(*tensors), oracle(*tensors)
    torch.testing.assert_close(got, wanted)
    incoming = torch.randn(wanted.shape, generator=draw, dtype=torch.float64).to(DEVICE)
    for found, exact in zip(
        torch.autograd.grad(got, learned, incoming), torch.autograd.grad(wanted, learned, incoming), strict=True
    ):
        torch.testing.assert_close(found, exact)
