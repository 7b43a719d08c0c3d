"""The elementwise functions of the spec language: one table with a row per function.

This module has the rows that select a value, and torch.nn.functional's activations; the other rows
are in `tritongen.lang.function_rows`. Reductions, casts, indices and sizes have no rows: they are
not elementwise.
"""

from __future__ import annotations

from .function import Arg, Function, activation, row
from .function_rows import MATH

__all__ = ["FUNCTIONS", "OPERATORS", "POWERS", "Arg", "Function"]

_SELECTION = (
    row(
        "where(condition, x, other)",
        "x where the condition is true, otherwise other.",
        "tl.where(condition, x, other)",
        accepts="where",
        x="where(condition, g, 0.0)",
        other="where(condition, 0.0, g)",
    ),
    row(
        "clamp(x, min, max)",
        "x limited to [min, max]; max where min > max.",
        accepts="number",
        x="where((x >= min) & (x <= max), g, 0.0)",
        min="where((x < min) & (min < max), g, 0.0)",
        max="where((x > max) | (max < min), g, 0.0)",
    ),
    row(
        "clamp_min(x, min)",
        "x, but at least min.",
        "maximum(x, min)",
        accepts="number",
        x="where(x >= min, g, 0.0)",
        min="where(x < min, g, 0.0)",
    ),
    row(
        "clamp_max(x, max)",
        "x, but at most max.",
        "minimum(x, max)",
        accepts="number",
        x="where(x <= max, g, 0.0)",
        max="where(x > max, g, 0.0)",
    ),
    row(
        "maximum(x, other)",
        "The larger of both; NaN if either is NaN.",
        accepts="any",
        triton_bool="x | other",
        x="where(x == other, g / 2, where(x < other, 0.0, g))",
        other="where(x == other, g / 2, where(x > other, 0.0, g))",
    ),
    row(
        "minimum(x, other)",
        "The smaller of both; NaN if either is NaN.",
        accepts="any",
        triton_bool="x & other",
        x="where(x == other, g / 2, where(x > other, 0.0, g))",
        other="where(x == other, g / 2, where(x < other, 0.0, g))",
    ),
    row(
        "fmax(x, other)",
        "The larger of both; if one is NaN, the other.",
        accepts="any",
        triton_bool="x | other",
        x="where((x >= other) | isnan(other), g, 0.0)",
        other="where((x >= other) | isnan(other), 0.0, g)",
    ),
    row(
        "fmin(x, other)",
        "The smaller of both; if one is NaN, the other.",
        accepts="any",
        triton_bool="x & other",
        x="where((x <= other) | isnan(other), g, 0.0)",
        other="where((x <= other) | isnan(other), 0.0, g)",
    ),
    row(
        "nan_to_num(x, nan=0.0, posinf=None, neginf=None)",
        "NaN and infinities replaced; None stands for the largest finite values.",
        accepts="any",
        triton_int="x",
        x="where(isfinite(x), g, 0.0)",
    ),
    row(
        "heaviside(x, values)",
        "0 where x < 0, 1 where x > 0, values where x is 0.",
        accepts="any",
        triton_bool="x | values",
    ),
)

_ACTIVATIONS = (
    row("sigmoid(x)", "1 / (1 + exp(-x)).", "tl.sigmoid(x)", x="g * y * (1 - y)"),
    row("logit(x)", "The inverse of sigmoid.", "tl.log(x / (1 - x))", x="g / (x * (1 - x))"),
    activation("logsigmoid(x)", "log(sigmoid(x)).", x="g * sigmoid(-x)"),
    activation(
        "relu(x)",
        "max(x, 0).",
        "tl.maximum(x, 0, propagate_nan=tl.PropagateNan.ALL)",
        accepts="number",
        x="where(y <= 0, 0.0, g)",
    ),
    activation(
        "relu6(x)",
        "x limited to [0, 6].",
        "clamp(x, 0, 6)",
        accepts="number",
        x="where((x <= 0) | (x >= 6), 0.0, where(x == x, g, g * x))",
    ),
    activation(
        "leaky_relu(x, negative_slope=0.01)",
        "x where x > 0, otherwise negative_slope * x.",
        x="where(x > 0, g, g * negative_slope)",
    ),
    activation(
        "elu(x, alpha=1.0)", "x where x > 0, otherwise alpha * expm1(x).", x="where(x > 0, g, g * alpha * exp(x))"
    ),
    activation(
        "selu(x)",
        "Scaled elu, with the constants that preserve mean 0 and variance 1.",
        x="where(x > 0, 1.0507009873554805 * g, 1.7580993408473766 * g * exp(x))",
    ),
    activation(
        "celu(x, alpha=1.0)",
        "x where x > 0, otherwise alpha * expm1(x / alpha).",
        x="where(x > 0, g, g * exp(x / alpha))",
    ),
    activation(
        "gelu(x)",
        "x times the normal CDF of x.",
        "x * normal_cdf(x)",
        x="g * (0.5 * (1 + erf(x * 0.7071067811865476)) + x * 0.3989422804014327 * exp(-0.5 * x * x))",
    ),
    activation(
        "gelu_tanh(x)",
        "The tanh approximation of gelu.",
        torch="torch.nn.functional.gelu(x, approximate='tanh')",
        x="g * sigmoid(1.5957691216057308 * x * (1 + 0.044715 * x * x))"
        " * (1 + (1 - sigmoid(1.5957691216057308 * x * (1 + 0.044715 * x * x)))"
        " * 1.5957691216057308 * x * (1 + 0.134145 * x * x))",
    ),
    activation("silu(x)", "x * sigmoid(x).", x="g * sigmoid(x) * (1 + x * (1 - sigmoid(x)))"),
    activation(
        "mish(x)",
        "x * tanh(softplus(x)).",
        x="g * (tanh(softplus(x)) + x * sigmoid(x) * (1 - square(tanh(softplus(x)))))",
    ),
    activation(
        "softplus(x, beta=1.0, threshold=20.0)",
        "log1p(exp(beta * x)) / beta; x where beta * x > threshold.",
        x="where(x * beta > threshold, g, g * sigmoid(x * beta))",
    ),
    activation("softsign(x)", "x / (1 + abs(x)).", "x / (1 + tl.abs(x))", x="g / square(1 + abs(x))"),
    activation(
        "hardtanh(x, min_val=-1, max_val=1)",
        "x limited to [min_val, max_val].",
        "clamp(x, min_val, max_val)",
        accepts="number",
        x="where((x <= min_val) | (x >= max_val), 0.0, where(x == x, g, g * x))",
    ),
    activation(
        "hardsigmoid(x)",
        "A piecewise linear sigmoid: (x + 3) / 6 limited to [0, 1].",
        "clamp(x + 3, 0, 6) * 0.16666666666666666",
        x="where((x > -3) & (x < 3), g * 0.16666666666666666, 0.0)",
    ),
    activation(
        "hardswish(x)",
        "x * hardsigmoid(x).",
        "x * (clamp(x + 3, 0, 6) * 0.16666666666666666)",
        x="where(x <= -3, 0.0, where(x >= 3, g, g * (x * 0.3333333333333333 + 0.5)))",
    ),
    activation("tanhshrink(x)", "x - tanh(x).", "x - tanh(x)", x="g * square(tanh(x))"),
    activation(
        "softshrink(x, lambd=0.5)",
        "x moved towards 0 by lambd; 0 where abs(x) <= lambd.",
        "x - clamp(x, -lambd, lambd)",
        x="where(abs(x) <= lambd, 0.0, where(x == x, g, g * x))",
    ),
    activation(
        "hardshrink(x, lambd=0.5)",
        "x, but 0 where abs(x) <= lambd.",
        "tl.where(tl.abs(x) <= lambd, 0.0, x)",
        x="where(abs(x) <= lambd, 0.0, where(x == x, g, g * x))",
    ),
    activation(
        "threshold(x, threshold, value)",
        "x where x > threshold, otherwise value.",
        "tl.where(x <= threshold, value, x)",
        accepts="number",
        x="where(x <= threshold, 0.0, g)",
    ),
)

FUNCTIONS: dict[str, Function] = {function.name: function for function in (*MATH, *_SELECTION, *_ACTIVATIONS)}

# Functions that replace pow for constant exponents: they are shorter, and torch does the same.
POWERS: dict[float, str] = {
    -1.0: "reciprocal",
    -0.5: "rsqrt",
    0.5: "sqrt",
    1.0: "positive",
    2.0: "square",
}

# Every Python operator of the language; "u-" and "u+" are the unary ones.
OPERATORS: dict[str, str] = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "//": "floor_divide",
    "%": "remainder",
    "**": "pow",
    "u-": "neg",
    "u+": "positive",
    "==": "eq",
    "!=": "ne",
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
    "and": "logical_and",
    "or": "logical_or",
    "not": "logical_not",
    "&": "bitwise_and",
    "|": "bitwise_or",
    "^": "bitwise_xor",
    "~": "bitwise_not",
    "<<": "bitwise_left_shift",
    ">>": "bitwise_right_shift",
}
