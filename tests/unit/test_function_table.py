"""The function table itself: its spellings, what they call, and its derivatives against torch's."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import triton.language as tl

from tritongen.lang.exact import EXACT
from tritongen.lang.functions import FUNCTIONS, OPERATORS, POWERS, Function

ROOT = Path(__file__).parents[2]
MODULES = ("math", "special")  # of the runtime


@cache
def device_functions() -> dict[str, dict[str, ast.FunctionDef]]:
    """The functions of each module that spellings call."""
    texts = {name: (ROOT / "templates" / "runtime" / f"{name}.py").read_text() for name in MODULES}
    nodes = {name: [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)] for name, text in texts.items()}
    return {name: {node.name: node for node in found} for name, found in nodes.items()}


def known() -> set[str]:
    return {name for functions in device_functions().values() for name in functions}


def imported(module: str) -> set[str]:
    """What a module has of the others."""
    tree = ast.parse((ROOT / "templates" / "runtime" / f"{module}.py").read_text())
    return {one.name for node in tree.body if isinstance(node, ast.ImportFrom) for one in node.names}


def names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def test_there_are_enough_rows() -> None:
    assert len(FUNCTIONS) >= 90
    assert all(name == row.name for name, row in FUNCTIONS.items())
    assert {*OPERATORS.values(), *POWERS.values()} <= set(FUNCTIONS)


@pytest.mark.parametrize("row", FUNCTIONS.values(), ids=lambda row: row.name)
def test_row(row: Function) -> None:
    arguments = {arg.name for arg in row.args}
    assert len(arguments) == len(row.args)
    assert not arguments & {"y", "g"}
    assert row.accepts in ("any", "number", "integral", "float", "bool", "where")
    assert row.result in ("promote", "float", "bool")
    assert row.summary.endswith(".")
    for text in {row.spelling(kind) for kind in ("float", "int", "bool")}:
        tree = ast.parse(text, mode="eval")
        assert names(tree) <= arguments | {"tl", "float"} | known()
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "tl":
                assert hasattr(tl, node.attr)
    assert names(ast.parse(row.torch, mode="eval")) == arguments | {"torch"}
    for argument, text in row.derivative:
        assert argument in arguments
        tree = ast.parse(text, mode="eval")
        called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
        calls = {ast.unparse(node) for node in called}
        assert calls <= set(FUNCTIONS)
        assert names(tree) - calls <= arguments | {"y", "g"}
    assert len(dict(row.derivative)) == len(row.derivative)


CONSTANTS = ("_INTERPRETED", "_NVIDIA")  # of modules of the runtime


def test_every_device_function_is_used_and_stands_alone() -> None:
    """By a row, by one that is, by scores, or by comparisons; a module imports what it takes from another."""
    used = {"tanh_of", "invert", "rounded", "rounded_product"} | {
        name
        for row in FUNCTIONS.values()
        for k in ("float", "int", "bool")
        for name in names(ast.parse(row.spelling(k)))
    }
    used |= {name for text in EXACT.values() for name in names(ast.parse(text))}
    for module, functions in device_functions().items():
        for name, node in functions.items():
            own = {arg.arg for arg in node.args.args}
            own |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            used |= names(node) - {name}
            assert names(node) - own <= {
                *functions,
                *imported(module),
                "tl",
                "triton",
                "float",
                "len",
                "_INTERPRETED",
                "_NVIDIA",
            }, name
            assert ast.get_docstring(node), name
    assert known() <= used
    assert len(known()) == sum(map(len, device_functions().values()))  # A name is of one module.


def in_torch(row: Function) -> Any:
    head = ", ".join(arg.name if arg.required else f"{arg.name}={arg.default!r}" for arg in row.args)
    return eval(f"lambda {head}: {row.torch}", {"torch": torch})


LANGUAGE = {row.name: in_torch(row) for row in FUNCTIONS.values()}


DERIVED = [row for row in FUNCTIONS.values() if row.derivative]
# Ties, corners, both zeros, infinities and NaN.
CORNERS = (-6, -3, -2, -1, -0.5, -0.0, 0.0, 0.5, 1, 2, 3, 4, 6, 20, torch.inf, -torch.inf, torch.nan)


# There torch has NaN, 0 or 1, as its loops are vectorised or not.
NAN_AT_NAN = "elu selu celu relu6 hardtanh hardswish softshrink hardshrink".split()


def check_derivative(row: Function, inputs: dict[str, torch.Tensor], numbers: dict[str, Any]) -> None:
    y = eval(row.torch, {"torch": torch}, numbers | inputs)
    g = torch.linspace(1, 2, y.numel(), dtype=torch.float64)
    for name, expression in row.derivative:
        got = eval(expression, LANGUAGE | numbers | inputs | {"y": y, "g": g})
        if expression == "0.0":
            got = torch.zeros_like(g)
        if row.name == "floor_divide" or not y.requires_grad:  # torch has none, which is flat too.
            want = torch.zeros_like(g)
        else:
            (want,) = torch.autograd.grad(y, inputs[name], g, retain_graph=True)
        if row.name in NAN_AT_NAN:
            want = torch.where(inputs[name].isnan(), torch.nan, want)
        close = 1e-7 if row.name == "hardsigmoid" else 1e-9  # There torch's own 1/6 is a float32.
        torch.testing.assert_close(got, want, rtol=close, atol=close, equal_nan=True)


def options(row: Function) -> dict[str, Any]:
    if row.name == "threshold":  # torch takes no tensors for these.
        return {"threshold": 1, "value": 20}
    return {arg.name: arg.default for arg in row.args if not arg.required}


@pytest.mark.parametrize("row", DERIVED, ids=lambda r: r.name)
def test_derivative(row: Function) -> None:
    generator = torch.Generator().manual_seed(1)
    inputs: dict[str, torch.Tensor] = {}
    for name in [arg.name for arg in row.args if arg.name not in options(row)]:
        values = torch.randn(500, generator=generator, dtype=torch.float64) * 2
        if row.name in ("acosh", "pow", "xlogy", "xlog1py", "lgamma"):
            values = values.abs() + 1.1
        if row.name in ("asin", "acos", "atanh", "erfinv", "logit"):
            values = torch.rand(500, generator=generator, dtype=torch.float64) * 0.98 + 0.01
        inputs[name] = values > 0 if name == "condition" else values.requires_grad_()
    check_derivative(row, inputs, options(row))


# torch's gradient of logit is NaN outside of 0 to 1, where its value is; of softsign, at infinities.
@pytest.mark.parametrize("row", [r for r in DERIVED if r.name not in ("logit", "softsign")], ids=lambda r: r.name)
def test_derivative_at_corners(row: Function) -> None:
    names = [arg.name for arg in row.args if arg.name not in options(row)]
    points = torch.tensor(CORNERS, dtype=torch.float64)
    grid = torch.meshgrid(*[points] * len(names), indexing="ij")
    inputs = dict(zip(names, (axis.flatten().clone() for axis in grid), strict=True))
    inputs = {name: x > 0 if name == "condition" else x.requires_grad_() for name, x in inputs.items()}
    check_derivative(row, inputs, options(row))


def test_which_functions_have_no_derivative() -> None:
    """Of what gives floats, these alone: torch has none of heaviside, and digamma's is no function of the language."""
    floats = [row for row in FUNCTIONS.values() if row.result != "bool" and row.accepts not in ("integral", "bool")]
    assert {row.name for row in floats if not row.derivative} == {"digamma", "heaviside"}
