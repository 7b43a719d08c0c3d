"""Calls of every row of the function table, and kernels that make them."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, field
from typing import Any

from tritongen.emit.imports import device_imports, imports_of
from tritongen.lang.functions import FUNCTIONS, Function

INF, NAN = math.inf, math.nan


@dataclass(frozen=True)
class Case:
    """A call of a row, in which some arguments are numbers and the others tensors."""

    function: str
    numbers: dict[str, Any] = field(default_factory=dict)

    @property
    def row(self) -> Function:
        return FUNCTIONS[self.function]

    @property
    def tensors(self) -> list[str]:
        return [arg.name for arg in self.row.args if arg.name not in self.numbers]

    @property
    def label(self) -> str:
        said = [f"{name}={value}" for name, value in self.numbers.items()]
        return "-".join([self.function, *said])


def plain(row: Function) -> Case:
    if row.name == "threshold":  # torch takes no tensors for these.
        return Case("threshold", {"threshold": 1, "value": 20})
    return Case(row.name, {arg.name: arg.default for arg in row.args if not arg.required})


# 0.1 is no float32, so that a number which passes through one on its way to float64 shows.
NUMBERS = [
    Case("add", {"other": 0.1}),
    Case("addcmul", {"value": 0.1}),
    Case("atan2", {"other": -0.1}),
    Case("atan2", {"x": 0.1}),
    Case("celu", {"alpha": 1.7}),
    Case("clamp", {"min": -0.1, "max": 0.3}),
    Case("clamp", {"min": 0.1}),
    Case("clamp_max", {"max": 0.1}),
    Case("clamp_min", {"min": 0.1}),
    Case("copysign", {"other": -0.1}),
    Case("copysign", {"x": 0.1}),
    Case("elu", {"alpha": 0.1}),
    Case("floor_divide", {"other": 0.1}),
    Case("fmax", {"other": 0.1}),
    Case("fmin", {"other": 0.1}),
    Case("fmod", {"other": -0.1}),
    Case("fmod", {"x": 2.1}),
    Case("hardshrink", {"lambd": 0.1}),
    Case("hardtanh", {"min_val": -0.1, "max_val": 0.3}),
    Case("heaviside", {"values": 0.1}),
    Case("heaviside", {"x": 0.1}),
    Case("hypot", {"other": 0.1}),
    Case("isclose", {"other": 0.1, "rtol": 0.1, "atol": 0.1}),
    Case("ldexp", {"other": 2}),
    Case("leaky_relu", {"negative_slope": 0.3}),
    Case("lerp", {"end": 0.1, "weight": 0.3}),
    Case("logaddexp", {"other": 0.1}),
    Case("logaddexp2", {"other": 0.1}),
    Case("lt", {"other": 0.1}),
    Case("maximum", {"other": 0.1}),
    Case("minimum", {"other": 0.1}),
    Case("nan_to_num", {"nan": 0.1, "posinf": 0.3, "neginf": -0.3}),
    Case("pow", {"exponent": 0.1}),
    Case("pow", {"exponent": -3.0}),
    Case("pow", {"x": 2.1}),
    Case("remainder", {"other": -0.1}),
    Case("softplus", {"beta": 0.1, "threshold": 3.0}),
    Case("softshrink", {"lambd": 0.1}),
    Case("where", {"x": 0.1, "other": 0.3}),
    Case("xlog1py", {"x": 0.1}),
    Case("xlogy", {"x": 0.1}),
    Case("xlogy", {"other": 2.1}),
]
INT_NUMBERS = [
    Case("add", {"other": 3}),
    Case("bitwise_left_shift", {"other": 3}),
    Case("bitwise_left_shift", {"x": 3}),
    Case("bitwise_right_shift", {"other": 2}),
    Case("clamp", {"min": 2, "max": 9}),
    Case("floor_divide", {"other": 3}),
    Case("fmod", {"other": 3}),
    Case("maximum", {"other": 3}),
    Case("pow", {"exponent": 3}),
    Case("pow", {"x": 3}),
    Case("remainder", {"other": 3}),
]
FLOAT_CASES = [plain(row) for row in FUNCTIONS.values() if row.accepts not in ("integral", "bool")]
INT_CASES = [plain(r) for r in FUNCTIONS.values() if r.accepts in ("any", "number", "integral")]
SHIFTS = ("bitwise_left_shift", "bitwise_right_shift")
BOOL_CASES = [
    plain(row) for row in FUNCTIONS.values() if row.accepts in ("any", "integral", "bool") and row.name not in SHIFTS
]
KINDS = {
    "float": FLOAT_CASES + NUMBERS,
    "int": INT_CASES + INT_NUMBERS,
    "bool": BOOL_CASES,
}


# Kernels


class _Substitute(ast.NodeTransformer):
    def __init__(self, numbers: dict[str, Any]) -> None:
        self.numbers = numbers

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self.numbers[node.id]) if node.id in self.numbers else node


def spelled(case: Case, kind: str) -> str:
    tree = ast.parse(case.row.spelling(kind), mode="eval")
    return ast.unparse(_Substitute(case.numbers).visit(tree))


def kernel(name: str, cases: list[Case], kind: str) -> str:
    """The source of a kernel that stores the results of some cases one after the other."""
    tensors = list(dict.fromkeys(tensor for case in cases for tensor in case.tensors))
    lines = [
        "@triton.jit",
        f"def {name}({''.join(t + '_ptr, ' for t in tensors)}out_ptr, N: tl.constexpr):",
    ]
    lines += ["    index = tl.program_id(0) * N + tl.arange(0, N)"]
    for tensor in tensors:
        test = " != 0" if tensor == "condition" or kind == "bool" else ""
        lines.append(f"    {tensor} = tl.load({tensor}_ptr + index){test}")
    for place, case in enumerate(cases):
        lines.append(f"    tl.store(out_ptr + {place} * N + index, {spelled(case, kind)})")
    return "\n".join(lines) + "\n\n\n"


def source(kernels: list[str]) -> str:
    text = "\n\n\n".join(kernels)
    return "\n".join([*imports_of(text, device_imports("._runtime")), "\n", text])
