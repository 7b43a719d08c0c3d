"""Which exponentials and quotients are finite, for any finite inputs."""

from __future__ import annotations

import pytest

from tritongen.autodiff.algebra import Algebra
from tritongen.autodiff.vanishing import Vanishing
from tritongen.lang.typecheck import typecheck
from tritongen.spec.read import read_spec

SPEC = """
[op]
name = "it"
summary = "It."

[inputs]
x = "float[M, N]"
w = "float[M, N]"
v = "float[K=3]"
byte = "uint8[N]"
near = "int64[N]"

[params]
eps = 1e-6
scale = {{ type = "float", default = 1.0, min = -1.0 }}

[compute]
used = "x * w * eps * scale * byte * near + sum(v, K)"
y = "{expression}"

[outputs]
used = "auto"
y = "auto"
"""


def is_infinite(expression: str) -> bool:
    op = typecheck(read_spec("it.toml", SPEC.format(expression=expression)))
    return Vanishing(op, Algebra(op), frozenset(), {}).is_infinite(op.value("y").node, lambda _: False)


@pytest.mark.parametrize(
    "expression",
    [
        "exp(-x * x)",
        "1 / (1 + exp(-square(x)))",
        "x / (abs(x) + eps)",
        "x * rsqrt(mean(x * x, N) + eps)",
        "x / maximum(norm(x, N), eps)",
        "rsqrt(var(x, N) + 1e-5)",
        "exp(x - max(x, N))",
        "exp(eps * x - max(eps * x, N))",
        "exp(min(x, N) - x)",
        "exp(x - logsumexp(x, N))",
        "softmax(x, N) * log_softmax(w, N)",
        "log(sum(exp(x - max(x, N)), N))",
        "log1p(exp(-abs(x)))",
        "1 / (2 + sin(x))",
        "1 / (tanh(x) - 2)",
        "x / clamp(w, 0.5, 2.0)",
        "1 / (1 + x * w * x * w)",
        "norm(x, N) / (2 - 1 / (1 + x * x))",
        "where(x > 0, x, w)",
        "x / (index(N) + 1)",
        "x / (size(N) + eps)",
        "x / (cast(byte, int64) + 1)",
        "take(v, clamp(near, 0, 2), K)",
        "mean(x, M)",
    ],
)
def test_finite(expression: str) -> None:
    assert not is_infinite(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "1 / (x + 1)",
        "1 / (x + eps)",
        "1 / (x * x)",
        "1 / (x * w + 1)",
        "1 / (square(x) - 1)",
        "1 / maximum(x, -1.0)",
        "x / maximum(w, scale)",
        "1 / (1 + sin(x))",
        "1 / norm(x, N)",
        "sqrt(x + 1)",
        "log(1 + x)",
        "log1p(x)",
        "exp(x)",
        "exp(max(x, N))",
        "exp(max(x, N) - x)",
        "exp(x - max(w, N))",
        "exp(x - min(x, N))",
        "exp(2 * x - max(x, N))",
        "exp(abs(x))",
        "1 / exp(x - max(x, N))",
        "log(sum(exp(x - max(x, M, N)), N))",
        "ldexp(1.0, x)",
        "cosh(-abs(x))",
        "x / index(N)",
        "x / byte",
        "x / (near + 1)",
        "take(v, near, K)",
        "take(v, index(N), K)",
        "addcdiv(x, x, w)",
    ],
)
def test_infinite(expression: str) -> None:
    assert is_infinite(expression)
