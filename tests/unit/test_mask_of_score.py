"""The mask of a score, in all its spellings."""

from __future__ import annotations

import pytest
import torch

from tritongen.lang.ir import Call, Cast, Choose, Constant, Load, Node, Op, Ref, Scalar
from tritongen.lang.typecheck import typecheck
from tritongen.lang.unparse import spelled
from tritongen.passes.masks.scores import mask_of
from tritongen.spec.read import read_spec

SPEC = """
[op]
name = "masked"

[inputs]
x = "float[M, N]"
bias = "float[N]"
c = "bool[M, N]"
d = "bool[N]"

[params]
scale = {{ type = "float" }}
cap = {{ type = "float", default = 2.0, min = 0.5 }}
flag = true

[compute]
t = "x * scale"
m = "where(c, t, -inf)"
s = "{score}"
used = "where(c & d, t + bias + cap, m) if flag else x"

[outputs]
s = "auto"
used = "auto"
"""

INF = float("inf")


def op_of(score: str) -> Op:
    return typecheck(read_spec("masked.toml", SPEC.format(score=score)))


def computed(op: Op, node: Node, names: dict[str, object]) -> torch.Tensor:
    """A node, as torch has it."""
    match node:
        case Constant(value=value):
            return torch.as_tensor(value)
        case Scalar(name=name) | Load(name=name):
            return torch.as_tensor(names[name])
        case Ref(name=name):
            return computed(op, op.value(name).node, names)
        case Cast(arg=arg):
            return computed(op, arg, names)
        case Choose(condition=condition, then=then, other=other):
            return computed(op, then if computed(op, condition, names) else other, names)
        case Call(function=function, args=args):
            return getattr(torch, function)(*(computed(op, arg, names) for arg in args))
    raise AssertionError(node)


# Scores, the neutral number, and what is found.
FOUND = [
    ("where(c, x, -inf)", -INF, "c", "x", True),
    ("where(c, -inf, x)", -INF, "not c", "x", True),
    ("where(~c, -inf, x)", -INF, "c", "x", True),
    ("m", -INF, "c", "t", True),
    ("where(c, where(d, x, -inf), -inf)", -INF, "c and d", "x", True),
    ("where(d, m, -inf)", -INF, "d and c", "t", True),
    ("where(c, x, where(d, t, -inf))", -INF, "c or d", "where(c, x, t)", True),
    ("where(c, x, where(d, x, -inf))", -INF, "c or d", "x", True),
    ("where(c, where(d, x, -inf), t)", -INF, "not c or d", "where(c, x, t)", True),
    (
        "where(c, where(d, x, -inf), where(d, -inf, t))",
        -INF,
        "c and d or (not c and (not d))",
        "where(c, x, t)",
        True,
    ),
    ("x + where(c, 0, -inf)", -INF, "c", "x", False),
    ("where(c, 0.0, -inf) + x", -INF, "c", "x", False),
    ("x + where(c, bias, -inf)", -INF, "c", "x + bias", False),
    ("where(c, x, -inf) - bias", -INF, "c", "x - bias", False),
    ("m + where(d, 0, -inf)", -INF, "c and d", "t", False),
    ("m * 2", -INF, "c", "t * 2", True),
    ("cap * m / 3", -INF, "c", "cap * t / 3", True),
    ("cast(m, float32)", -INF, "c", "cast(t, float32)", True),
    ("m if flag else t", -INF, "c if flag else True", "t if flag else t", True),
    ("m if flag else -inf", -INF, "flag and c", "t", True),
    ("where(c, x, 0)", 0, "c", "x", True),
    ("x * where(c, 1, 0)", 0, "c", "x", False),
    ("where(c, x, 0.0) * scale", 0, "c", "x * scale", True),
    ("-where(c, x, 0) / bias", 0, "c", "-x / bias", False),
    ("where(c, x, 0) * where(d, t, 0)", 0, "c and d", "x * t", False),
    ("where(c, x, 0) * x * exp(bias)", 0, "c", "x * x * exp(bias)", False),
]


@pytest.mark.parametrize(("score", "neutral", "condition", "left", "exact"), FOUND)
def test_a_mask_is_found(score: str, neutral: float, condition: str, left: str, exact: bool) -> None:
    op = op_of(score)
    found = mask_of(op, op.value("s").node, neutral)
    assert found is not None
    assert (spelled(found.condition), spelled(found.score), found.exact) == (condition, left, exact)


@pytest.mark.parametrize(("score", "neutral"), [case[:2] for case in FOUND])
def test_a_mask_and_its_score_are_what_was_there(score: str, neutral: float) -> None:
    """As torch computes them, whatever the conditions are."""
    op = op_of(score)
    node = op.value("s").node
    found = mask_of(op, node, neutral)
    assert found is not None
    generator = torch.Generator().manual_seed(0)
    x, bias = (torch.rand(shape, generator=generator) + 0.5 for shape in ((8, 16), (16,)))
    c, d = (torch.rand(shape, generator=generator) < 0.5 for shape in ((8, 16), (16,)))
    for scale, flag in ((0.5, True), (-1.5, False)):
        names = {"x": x, "bias": bias, "c": c, "d": d, "scale": scale, "cap": 2.0, "flag": flag}
        condition, left, whole = (computed(op, each, names) for each in (found.condition, found.score, node))
        torch.testing.assert_close(torch.where(condition, left, neutral), whole.expand(8, 16))


@pytest.mark.parametrize(
    ("score", "neutral"),
    [
        ("x", -INF),
        ("where(c, x, t)", -INF),
        ("where(c, x, 0)", -INF),
        ("where(c, x, -inf)", 0),
        ("where(c, x, inf)", -INF),
        ("m * scale", -INF),  # It may be negative.
        ("bias - m", -INF),
        ("m - where(d, 0, -inf)", -INF),
        ("exp(m)", -INF),
        ("max(m, N)", -INF),
        ("where(c, x, 0) + 1", 0),
        ("bias / where(c, x, 0)", 0),
    ],
)
def test_no_mask_is_found(score: str, neutral: float) -> None:
    op = op_of(score)
    assert mask_of(op, op.value("s").node, neutral) is None
