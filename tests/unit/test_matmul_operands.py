"""What matmuls read: which of them share a matrix or a sum, and which axes are a batch."""

from __future__ import annotations

import pytest

from tritongen.families.contraction.copies import alternate
from tritongen.families.contraction.operands import is_described, operands_of
from tritongen.lang.ir import Op
from tritongen.operator.compile import forward_of
from tritongen.passes.contractions import Contraction
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec


def matmuls_of(spec: Spec) -> tuple[Op, Contraction]:
    forward = forward_of(spec)
    contraction = forward.family.matmuls(forward.program)
    assert contraction is not None
    return forward.op, contraction


PAIR = """
[op]
name = "pair"
summary = "Two products."

[types]
T = "float"

[inputs]
x = "T[{x}]"
gate = "T[{gate}]"
up = "T[{gate}]"
{more}

[compute]
g = "sum(x * gate, K)"
u = "sum({left} * up, K)"
y = "silu(g) * u{plus}"

[outputs]
y = "x"

[reference]
torch = "x"
"""


ALIKE = {"x": "..., K", "gate": "N, K", "more": "", "left": "x", "plus": ""}


@pytest.mark.parametrize(
    ("differs", "joined"),
    [
        ({}, True),
        ({"gate": "K, N"}, False),
        ({"x": "B, M, K", "gate": "B, N, K"}, False),
        ({"left": "relu(x)"}, False),
        ({"more": 'gate_up = "T[N]"', "plus": " + gate_up"}, True),
        ({"more": 'bias = "T[N]"', "plus": " + bias"}, True),
    ],
    ids=["rows", "columns", "batched", "other_left", "of_their_name", "beside_others"],
)
def test_two_matrices_of_one_are_joined(differs: dict[str, str], joined: bool) -> None:
    op, contraction = matmuls_of(read_spec("pair.toml", PAIR.format(**ALIKE | differs)))
    assert (operands_of(op, contraction).joined is not None) == joined


SUMS = """
[op]
name = "sums"
summary = "Products that are added."

[types]
T = "float"

[inputs]
x = "{x}"
z = "T[M, K]"
one = "T[N, K]"
other = "T[N, K]"

[compute]
{lines}

[outputs]
y = "z"

[reference]
torch = "x"
"""


@pytest.mark.parametrize(
    ("lines", "sums"),
    [
        ('y = "sum(x * one, K) + sum(z * other, K)"', ["y"]),
        ('y = "tanh(sum(x * one, K) + sum(z * other, K) + sum(z * one, K))"', ["y_sums"]),
        ('p = "sum(x * one, K)"\nq = "sum(z * other, K)"\ny = "exp(p + q)"', ["y_sums"]),
        ('p = "sum(x * one, K)"\nq = "sum(z * other, K)"\ny = "p + q + exp(q)"', ["p", "q"]),
        ('y = "sum(x * one, K) - sum(z * other, K)"', ["y_sum", "y_sum_2"]),
        ('y = "sum(x * one, K) + exp(sum(z * other, K)) + sum(z * one, K)"', ["y_sum", "y_sum_2", "y_sum_3"]),
        (
            'y = "sum(x * one, K) + sum(z * other, K) + exp(sum(z * one, K) + sum(x * other, K))"',
            ["y_sums", "y_sums_2"],
        ),
    ],
    ids=["line", "inside", "names", "used_twice", "difference", "apart", "two_sums"],
)
def test_products_that_are_only_added_share_a_sum(lines: str, sums: list[str]) -> None:
    _, contraction = matmuls_of(read_spec("sums.toml", SUMS.format(lines=lines, x="T[M, K]")))
    assert list(contraction.sums) == sums


@pytest.mark.parametrize(
    ("x", "lines", "in_turn"),
    [
        ("T[M, K]", 'y = "sum(x * one, K) + sum(z * other, K)"', True),
        ("T[M, K]", 'y = "sum(x * one, K) + exp(sum(z * other, K))"', False),
        ("T[M, K]", 'y = "sum(relu(x) * one, K) + sum(z * other, K)"', False),
        ("float32[M, K]", 'y = "sum(x * one, K) + sum(z * other, K)"', False),
    ],
    ids=["added", "apart", "computed", "other_dtype"],
)
def test_products_of_one_sum_take_turns(x: str, lines: str, in_turn: bool) -> None:
    """In a step each, where descriptors copy what is multiplied."""
    op, contraction = matmuls_of(read_spec("sums.toml", SUMS.format(lines=lines, x=x)))
    assert alternate(op, contraction, operands_of(op, contraction)) == in_turn


@pytest.mark.parametrize(("length", "described"), [("N", True), ("N=129", True), ("N=128", False)])
def test_what_the_rule_never_copies_by_descriptors_has_none(length: str, described: bool) -> None:
    text = SUMS.format(lines='y = "sum(x * one, K) + sum(z * other, K)"', x="T[M, K]").replace(
        "T[N, K]", f"T[{length}, K]"
    )
    op, contraction = matmuls_of(read_spec("sums.toml", text))
    assert is_described(op, contraction, operands_of(op, contraction)) == described


@pytest.mark.parametrize(
    ("x", "weight", "y", "batch", "roles"),
    [
        ("B, C, H, W", "O, C", "B, O, H, W", ("B",), ("batch", "inner", "cols")),
        ("B, D, C, H", "O, C", "O, B, D, H", ("B", "D"), ("batch", "inner", "cols")),
        ("..., C, H", "C, O", "..., O, H", ("...",), ("batch", "inner", "cols")),
        ("B, H, C", "O, C", "B, H, O", (), ("rows", "inner")),
        ("C, B, H", "O, C", "B, H, O", (), ("inner", "rows")),
        ("B, C, H", "B, O, C", "B, O, H", ("B",), ("batch", "inner", "cols")),
    ],
    ids=["convolution", "two", "leading", "together", "behind", "both"],
)
def test_axes_around_the_summed_one_are_a_batch(
    x: str, weight: str, y: str, batch: tuple[str, ...], roles: tuple[str, ...]
) -> None:
    """Of one side: with those behind, they would need a copy. The role of the last axis comes last."""
    text = f"""
[op]
name = "around"

[types]
T = "float"

[inputs]
x = "T[{x}]"
weight = "T[{weight}]"

[compute]
y = "sum(x * weight, C)"

[outputs]
y = "x[{y}]"
"""
    op, contraction = matmuls_of(read_spec("around.toml", text))
    assert contraction.batch == batch
    assert contraction.roles(op.input("x").type.axes) == roles
