"""Which maxima only shift what is computed: they have no gradient."""

from __future__ import annotations

import pytest

from tritongen.operator.compile import backward_of, forward_of
from tritongen.spec.read import read_spec


def _gradient(line: str) -> str:
    text = '[op]\nname = "shifted"\nsummary = "A map of a softmax."\n[inputs]\nx = "float[M, N]"\n[compute]\n'
    text += f'y = "{line}"\n[outputs]\ny = "auto"\n[grad]\nwrt = ["x"]\n'
    spec = read_spec("shifted.toml", text)
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    return " ".join(value.source for value in backward.gradient.op.values)


@pytest.mark.parametrize(
    "line",
    ["softmax(x, N)", "tanh(softmax(x, N))", "sum(gelu(softmax(x, N)), N)", "exp(-sum(softmax(x, N) * x, N))"],
)
def test_maxima_of_softmax(line: str) -> None:
    """Whatever is made of it."""
    assert "where" not in _gradient(line)


@pytest.mark.parametrize("line", ["tanh(x - max(x, N))", "exp(x - max(x, N)) / (sum(exp(x - max(x, N)), N) + 1)"])
def test_other_maxima(line: str) -> None:
    assert "where" in _gradient(line)
