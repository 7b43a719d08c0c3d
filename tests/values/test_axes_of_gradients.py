"""Gradients by what lacks axes of what it is multiplied by: they are summed over these, wherever that is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.harness.written import HEAD, Written
from tritongen.lang.typecheck import typecheck
from tritongen.lang.verify import verify
from tritongen.spec.read import read_spec

MIXTURE = """[inputs]
x = "float[{x}]"
w = "float[{w}]"
gate = "float[{gate}]"
[compute]
y = "sum(x * w, K)"
o = "{o}"
[outputs]
o = "auto[N, F]"
[grad]
wrt = ["x", "w", "gate"]
"""
LENGTHS = {"N": 5, "K": 6, "F": 7, "X": 4}


@pytest.mark.parametrize("o", ["sum(y * softmax(gate, X), X)", "sum(y * softmax(gate - 0.5 * gate * gate, X), X)"])
@pytest.mark.parametrize(
    ("x", "w", "gate"),
    [("N, K", "K, X=4, F", "N, X=4"), ("N, K", "X=4, K, F", "X=4, N"), ("N, K", "X=4, F, K", "X=4")],
)
def test_gate_of_a_mixture_of_experts(x: str, w: str, gate: str, o: str, tmp_path: Path) -> None:
    """Its scores have no axis of the experts' outputs, of which each weight is a factor."""
    written = Written(MIXTURE.format(x=x, w=w, gate=gate, o=o), tmp_path)
    written.compare(LENGTHS, written.drawn(LENGTHS))


def test_missing_axes_are_found() -> None:
    """What would take one element for all, or store outside of a result, is no operator."""
    text = '[inputs]\nx = "float[M, N]"\n[compute]\ny = "x * 2"\nz = "y + 1"\n[outputs]\nz = "auto"\n'
    op = typecheck(read_spec("written.toml", HEAD + text))
    verify(op)
    first, second = op.values
    (result,) = op.results
    with pytest.raises(AssertionError, match="result z lacks axes of what it is made of: N"):
        verify(replace(op, results=(replace(result, axes=("M",)),)))
    with pytest.raises(AssertionError, match="lacks axes of what it is made of: N"):
        verify(replace(op, values=(replace(first, node=replace(first.node, axes=("M",))), second)))


@pytest.mark.parametrize("wrt", ["x, w", "w", "x"])
@pytest.mark.parametrize("shape", ["M, (H D=4)", "M, H, D=4", "(H D=4), M", "H, M, D=4"])
@pytest.mark.parametrize("y", ["sum(x, H, D) + w", "mean(x, H, D) * w"])
def test_beside_a_gradient_with_more_axes(y: str, shape: str, wrt: str, tmp_path: Path) -> None:
    """The gradient of a sum is the same along what was summed: no reason to add up that of a bias so often."""
    text = f"""[inputs]
x = "float[{shape}]"
w = "float[N]"
[compute]
y = "{y}"
[outputs]
y = "auto[M, N]"
[grad]
wrt = [{", ".join(repr(one) for one in wrt.split(", "))}]
"""
    written, lengths = Written(text, tmp_path), {"M": 2, "N": 5, "H": 3, "D": 4}
    written.compare(lengths, written.drawn(lengths))


@pytest.mark.parametrize("shape", ["B, (H D)", "(B H), D", "B, D, H", "H, B, D"])
def test_a_result_in_other_dimensions_than_its_argument(shape: str, tmp_path: Path) -> None:
    """Its gradient as it comes is that of the argument only where the dimensions are the same."""
    text = f"""[inputs]
x = "float[B, H, D]"
[compute]
y = "+x"
[outputs]
y = "x[{shape}]"
[grad]
wrt = ["x"]
"""
    written = Written(text, tmp_path)
    written.compare(lengths := {"B": 3, "H": 2, "D": 5}, written.drawn(lengths))
