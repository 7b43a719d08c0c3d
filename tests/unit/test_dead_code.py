"""Generated functions assign nothing that they do not read."""

import ast
import textwrap
from pathlib import Path

import pytest

from tritongen.emit.dead_code import without_dead_code
from tritongen.lang.trees import walk

CASES = {
    "all of it is read": ("m, n = x.shape\nreturn m * n", "m, n = x.shape\nreturn m * n"),
    "nothing reads it": ("(n,) = x.shape\nreturn x", "return x"),
    "a part of it is read": ("*batch, é, n = x.shape\nreturn n", "*_batch, _é, n = x.shape\nreturn n"),
    "nothing reads what reads it": ("m = 2\nn = m\nreturn x", "return x"),
    "only itself reads it": ("n = (1,)\nn = (*n, 2)\nreturn x", "return x"),
    "a string has its name": ("n = 1\nreturn 'n'", "return 'n'"),
    "an f-string reads it": ("n = 1\nreturn f'{n}'", "n = 1\nreturn f'{n}'"),
    "a keyword has its name": ("n = 1\nreturn x.sum(n=2)", "return x.sum(n=2)"),
    "a function within reads it": ("n = 1\nreturn lambda: n", "n = 1\nreturn lambda: n"),
    "its value is a call": ("n = x.item()\nreturn x", "n = x.item()\nreturn x"),
    "its value is a number of a call": ("n = abs(scalars.f(2))\nreturn x", "return x"),
    "its value is converted": ("n = x.to(float)\nreturn x", "n = x.to(float)\nreturn x"),
    "it is an attribute": ("x.n = 1\nreturn x", "x.n = 1\nreturn x"),
    "it is all of a block": ("if x:\n    n = 1\nreturn x", "if x:\n    n = 1\nreturn x"),
    "it is in a block": ("if x:\n    n = 1\n    f(x)\nreturn x", "if x:\n    f(x)\nreturn x"),
    "it is in what handles an exception": (
        "try:\n    f(x)\nexcept E:\n    m = 1\n    g(x)\nfinally:\n    n = 1\n    h(x)\nreturn x",
        "try:\n    f(x)\nexcept E:\n    g(x)\nfinally:\n    h(x)\nreturn x",
    ),
    "it is longer than a line": ("n = (\n    1,\n)\nreturn x", "return x"),
}


def function(body: str) -> str:
    return "def f(x):\n" + textwrap.indent(body, "    ") + "\n"


def method(body: str) -> str:
    return "class C:\n" + textwrap.indent(function(body), "    ")


@pytest.mark.parametrize("case", CASES)
def test_assignments(case: str) -> None:
    before, after = CASES[case]
    assert without_dead_code(function(before)) == function(after)
    assert without_dead_code(method(before)) == method(after)


def test_other_functions_have_names_of_their_own() -> None:
    text = function("n = 1\nreturn n") + function("n = 1\nreturn x")
    assert without_dead_code(text) == function("n = 1\nreturn n") + function("return x")


def test_walks_reach_what_those_of_ast_reach() -> None:
    """But contexts and operators, which have no parts."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    shared = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
    left = [node for node in walk(tree) if not isinstance(node, shared)]
    assert left == [node for node in ast.walk(tree) if not isinstance(node, shared)]
    assert not any(isinstance(node, ast.expr_context) for node in walk(tree))
