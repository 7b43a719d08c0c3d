"""The elementwise functions of the spec language: one table, one row a function.

A row says what torch calls it, what it takes and gives, how Triton and torch spell it, and its
derivative. Tensors reach the `triton` expression in the dtype they were promoted to, half
precision already widened: float32 or float64, an integer's own dtype, or `tl.int1`. A name there
that starts with an underscore is a device function of `templates/functions.py`.

Reductions, casts, indices and sizes are no rows: they are not elementwise.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument. It must be given unless it has a default or is `optional`, which passes None."""

    name: str
    default: float | int | bool | None = None
    optional: bool = False

    @property
    def required(self) -> bool:
        return self.default is None and not self.optional


@dataclass(frozen=True, slots=True)
class Function:
    """One row. The spellings are Python expressions over the names of `args`."""

    name: str
    args: tuple[Arg, ...]
    # "any" | "number" | "integral" (ints and bool) | "float" (ints are promoted to float)
    # | "bool" (a number counts as x != 0) | "where" (a bool, then two of any that are promoted)
    accepts: str
    result: str  # "promote" | "float" | "bool"
    triton: str
    torch: str
    triton_int: str = ""  # where integers need another spelling; "" is the same
    triton_bool: str = ""  # where bools need another than integers; "" is the same
    # (argument, its gradient in the spec language over the arguments, the result `y` and the
    # result's gradient `g`); "0.0" where the function is flat
    derivative: tuple[tuple[str, str], ...] = ()
    summary: str = ""

    def spelling(self, kind: str) -> str:
        """The Triton expression for arguments of a kind: "float", "int" or "bool"."""
        if kind == "float":
            return self.triton
        integer = self.triton_int or self.triton
        return self.triton_bool or integer if kind == "bool" else integer


_RESULTS = {"any": "promote", "number": "promote", "integral": "promote", "where": "promote"}


def _arg(text: str) -> Arg:
    name, _, default = text.partition("=")
    if not default:
        return Arg(name)
    return Arg(name, ast.literal_eval(default), optional=default == "None")


def _row(
    name: str,
    args: str,
    triton: str,
    summary: str,
    *,
    accepts: str = "float",
    result: str = "",
    torch: str = "",
    triton_int: str = "",
    triton_bool: str = "",
    **derivative: str,
) -> Function:
    """A row: `args` as "x min=0.0", each derivative as a keyword named after its argument."""
    arguments = tuple(_arg(text) for text in args.split())
    call = ", ".join(argument.name for argument in arguments)
    return Function(
        name,
        arguments,
        accepts,
        result or _RESULTS.get(accepts, accepts),
        triton,
        torch or f"torch.{name}({call})",
        triton_int,
        triton_bool,
        tuple(derivative.items()),
        summary,
    )


def _activation(name: str, args: str, triton: str, summary: str, **more: str) -> Function:
    call = ", ".join(text.partition("=")[0] for text in args.split())
    spelled = more.pop("torch", f"torch.nn.functional.{name}({call})")
    return _row(name, args, triton, summary, torch=spelled, **more)


def _compare(name: str, sign: str, summary: str) -> Function:
    spelled = f"x {sign} other"
    return _row(name, "x other", spelled, summary, accepts="any", result="bool")


_ARITHMETIC = (
    _row(
        "add",
        "x other",
        "x + other",
        "The sum; of bools, whether either is true.",
        accepts="any",
        triton_bool="x | other",
        x="g",
        other="g",
    ),
    _row("sub", "x other", "x - other", "The difference.", accepts="number", x="g", other="-g"),
    _row(
        "mul",
        "x other",
        "x * other",
        "The product; of bools, whether both are true.",
        accepts="any",
        triton_bool="x & other",
        x="g * other",
        other="g * x",
    ),
    _row(
        "div", "x other", "x / other", "The true quotient.", x="g / other", other="-g * y / other"
    ),
    _row(
        "floor_divide",
        "x other",
        "_floor_divide(x, other)",
        "The quotient rounded down.",
        accepts="number",
        triton_int="_floor_divide_int(x, other)",
        x="0.0",
        other="0.0",
    ),
    _row(
        "remainder",
        "x other",
        "_remainder(x, other)",
        "What floor_divide leaves over, with the sign of the divisor.",
        accepts="number",
        triton_int="_remainder_int(x, other)",
        x="g",
        other="-g * floor_divide(x, other)",
    ),
    _row(
        "fmod",
        "x other",
        "_fmod(x, other)",
        "What the quotient rounded to zero leaves over, with the sign of x.",
        accepts="number",
        triton_int="_fmod_int(x, other)",
        x="g",
        other="-g * trunc(x / other)",
    ),
    _row(
        "pow",
        "x exponent",
        "_pow(x, exponent)",
        "x to the power of exponent.",
        accepts="number",
        triton_int="_pow_int(x, exponent)",
        x="where(exponent == 0, 0.0, g * exponent * pow(x, exponent - 1))",
        exponent="where((x == 0) & (exponent >= 0), 0.0, g * y * log(x))",
    ),
    _row("neg", "x", "-x", "x with the other sign.", accepts="number", x="-g"),
    _row("positive", "x", "x", "x itself.", accepts="number", x="g"),
    _row("reciprocal", "x", "1.0 / x", "One over x.", x="-g * y * y"),
    _row("square", "x", "x * x", "x times x.", accepts="number", x="2 * g * x"),
    _row("abs", "x", "tl.abs(x)", "x without its sign.", accepts="number", x="g * sign(x)"),
    _row(
        "sign", "x", "_sign(x)", "-1, 0 or 1; 0 for NaN.", accepts="any", triton_bool="x", x="0.0"
    ),
    _row(
        "sgn",
        "x",
        "_sign(x)",
        "-1, 0 or 1, as sign: the language has no complex numbers.",
        accepts="any",
        triton_bool="x",
        x="0.0",
    ),
    _row(
        "copysign",
        "x other",
        "_copysign(x, other)",
        "x with the sign of other, that of zeros and NaN included.",
        x="where(x == 0, 0.0, g * (y / x))",
        other="0.0",
    ),
    _row(
        "addcmul",
        "x tensor1 tensor2 value=1",
        "x + value * tensor1 * tensor2",
        "x + value * tensor1 * tensor2.",
        accepts="number",
        torch="torch.addcmul(x, tensor1, tensor2, value=value)",
        x="g",
        tensor1="g * value * tensor2",
        tensor2="g * value * tensor1",
    ),
    _row(
        "addcdiv",
        "x tensor1 tensor2 value=1",
        "x + value * (tensor1 / tensor2)",
        "x + value * (tensor1 / tensor2).",
        torch="torch.addcdiv(x, tensor1, tensor2, value=value)",
        x="g",
        tensor1="g * value / tensor2",
        tensor2="-g * value * tensor1 / (tensor2 * tensor2)",
    ),
    _row(
        "lerp",
        "x end weight",
        "_lerp(x, end, weight)",
        "x where weight is 0, end where it is 1, a straight line between.",
        x="g * (1 - weight)",
        end="g * weight",
        weight="g * (end - x)",
    ),
    _row(
        "ldexp",
        "x other",
        "x * tl.exp2(other)",
        "x times two to the power of other.",
        x="g * exp2(other)",
        other="g * y * 0.6931471805599453",
    ),
    _row(
        "hypot",
        "x other",
        "_hypot(x, other)",
        "The square root of x * x + other * other, without overflow between.",
        x="g * (x / y)",
        other="g * (other / y)",
    ),
    _row("sqrt", "x", "tl.sqrt(x)", "The square root.", x="g / (2 * y)"),
    _row("rsqrt", "x", "tl.rsqrt(x)", "One over the square root.", x="-0.5 * g * y * y * y"),
)

_COMPARISON = (
    _compare("eq", "==", "Whether both are equal."),
    _compare("ne", "!=", "Whether they differ."),
    _compare("lt", "<", "Whether x is less."),
    _compare("le", "<=", "Whether x is less or equal."),
    _compare("gt", ">", "Whether x is greater."),
    _compare("ge", ">=", "Whether x is greater or equal."),
    _row(
        "isclose",
        "x other rtol=1e-05 atol=1e-08",
        "_isclose(x, other, rtol, atol)",
        "Whether they differ by no more than atol + rtol * abs(other).",
        result="bool",
    ),
    _row("isnan", "x", "x != x", "Whether x is NaN.", accepts="any", result="bool"),
    _row(
        "isinf",
        "x",
        "tl.abs(x) == float('inf')",
        "Whether x is an infinity.",
        accepts="any",
        result="bool",
        triton_int="x != x",
    ),
    _row(
        "isfinite",
        "x",
        "tl.abs(x) < float('inf')",
        "Whether x is neither NaN nor an infinity.",
        accepts="any",
        result="bool",
        triton_int="x == x",
    ),
    _row(
        "isposinf",
        "x",
        "x == float('inf')",
        "Whether x is +infinity.",
        accepts="any",
        result="bool",
        triton_int="x != x",
    ),
    _row(
        "isneginf",
        "x",
        "x == float('-inf')",
        "Whether x is -infinity.",
        accepts="any",
        result="bool",
        triton_int="x != x",
    ),
    _row(
        "signbit",
        "x",
        "_signbit(x)",
        "Whether the sign bit is set, that of zeros and NaN included.",
        accepts="any",
        result="bool",
        triton_int="x < 0",
    ),
)

_LOGIC = (
    _row("logical_and", "x other", "x & other", "Whether both are nonzero.", accepts="bool"),
    _row("logical_or", "x other", "x | other", "Whether either is nonzero.", accepts="bool"),
    _row("logical_xor", "x other", "x ^ other", "Whether just one is nonzero.", accepts="bool"),
    _row("logical_not", "x", "~x", "Whether x is zero.", accepts="bool"),
    _row("bitwise_and", "x other", "x & other", "Bits set in both.", accepts="integral"),
    _row("bitwise_or", "x other", "x | other", "Bits set in either.", accepts="integral"),
    _row("bitwise_xor", "x other", "x ^ other", "Bits set in just one.", accepts="integral"),
    _row("bitwise_not", "x", "~x", "Every bit flipped.", accepts="integral"),
    _row(
        "bitwise_left_shift",
        "x other",
        "_shift_left(x, other)",
        "x shifted to the left by other bits; 0 once all are out.",
        accepts="integral",
    ),
    _row(
        "bitwise_right_shift",
        "x other",
        "_shift_right(x, other)",
        "x shifted to the right by other bits, its sign filling in.",
        accepts="integral",
    ),
)

_ROUNDING = (
    _row("floor", "x", "tl.floor(x)", "Down.", accepts="number", triton_int="x", x="0.0"),
    _row("ceil", "x", "tl.ceil(x)", "Up.", accepts="number", triton_int="x", x="0.0"),
    _row("trunc", "x", "_trunc(x)", "Towards zero.", accepts="number", triton_int="x", x="0.0"),
    _row(
        "round",
        "x",
        "_round(x)",
        "To the nearest integer, halves to the even one.",
        accepts="number",
        triton_int="x",
        x="0.0",
    ),
    _row("frac", "x", "x - _trunc(x)", "What trunc takes away.", x="g"),
)

_EXPONENTIAL = (
    _row("exp", "x", "tl.exp(x)", "e to the power of x.", x="g * y"),
    _row("exp2", "x", "tl.exp2(x)", "2 to the power of x.", x="g * y * 0.6931471805599453"),
    _row("expm1", "x", "_expm1(x)", "exp(x) - 1, accurate near 0.", x="g * (y + 1)"),
    _row("log", "x", "tl.log(x)", "The natural logarithm.", x="g / x"),
    _row("log2", "x", "tl.log2(x)", "The logarithm to base 2.", x="g / (x * 0.6931471805599453)"),
    _row(
        "log10",
        "x",
        "tl.log2(x) * 0.30102999566398120",
        "The logarithm to base 10.",
        x="g / (x * 2.302585092994046)",
    ),
    _row("log1p", "x", "_log1p(x)", "log(1 + x), accurate near 0.", x="g / (x + 1)"),
    _row(
        "logaddexp",
        "x other",
        "_logaddexp(x, other)",
        "log(exp(x) + exp(other)), without overflow between.",
        x="g * sigmoid(x - other)",
        other="g * sigmoid(other - x)",
    ),
    _row(
        "logaddexp2",
        "x other",
        "_logaddexp2(x, other)",
        "log2(exp2(x) + exp2(other)), without overflow between.",
        x="g / (1 + exp2(other - x))",
        other="g / (1 + exp2(x - other))",
    ),
    _row(
        "xlogy",
        "x other",
        "_xlogy(x, other)",
        "x * log(other), 0 where x is 0.",
        x="where((x == 0) & (other <= 0), 0.0, g * log(other))",
        other="g * x / other",
    ),
    _row(
        "xlog1py",
        "x other",
        "_xlog1py(x, other)",
        "x * log1p(other), 0 where x is 0.",
        torch="torch.special.xlog1py(x, other)",
        x="where((x == 0) & (other <= -1), 0.0, g * log1p(other))",
        other="g * x / (other + 1)",
    ),
)

_TRIGONOMETRY = (
    _row("sin", "x", "tl.sin(x)", "The sine.", x="g * cos(x)"),
    _row("cos", "x", "tl.cos(x)", "The cosine.", x="-g * sin(x)"),
    _row("tan", "x", "tl.sin(x) / tl.cos(x)", "The tangent.", x="g * (1 + y * y)"),
    _row("asin", "x", "_asin(x)", "The inverse sine.", x="g * rsqrt(1 - x * x)"),
    _row("acos", "x", "_acos(x)", "The inverse cosine.", x="-g * rsqrt(1 - x * x)"),
    _row("atan", "x", "_atan(x)", "The inverse tangent.", x="g / (1 + x * x)"),
    _row(
        "atan2",
        "x other",
        "_atan2(x, other)",
        "The angle of the point (other, x), in all four quadrants.",
        x="g * other / (x * x + other * other)",
        other="-g * x / (x * x + other * other)",
    ),
    _row("sinh", "x", "_sinh(x)", "The hyperbolic sine.", x="g * cosh(x)"),
    _row("cosh", "x", "_cosh(x)", "The hyperbolic cosine.", x="g * sinh(x)"),
    _row("tanh", "x", "_tanh(x)", "The hyperbolic tangent.", x="g * (1 - y * y)"),
    _row("asinh", "x", "_asinh(x)", "The inverse hyperbolic sine.", x="g * rsqrt(x * x + 1)"),
    _row("acosh", "x", "_acosh(x)", "The inverse hyperbolic cosine.", x="g * rsqrt(x * x - 1)"),
    _row("atanh", "x", "_atanh(x)", "The inverse hyperbolic tangent.", x="g / (1 - x * x)"),
    _row(
        "sinc",
        "x",
        "_sinc(x)",
        "sin(pi * x) / (pi * x), 1 at 0.",
        x="where(x == 0, 0.0, g * (cos(3.141592653589793 * x) - y) / x)",
    ),
    _row(
        "deg2rad",
        "x",
        "x * 0.017453292519943295",
        "Degrees in radians.",
        x="g * 0.017453292519943295",
    ),
    _row("rad2deg", "x", "x * 57.29577951308232", "Radians in degrees.", x="g * 57.29577951308232"),
)

_SPECIAL = (
    _row("erf", "x", "tl.erf(x)", "The error function.", x="1.1283791670955126 * g * exp(-x * x)"),
    _row(
        "erfc",
        "x",
        "_erfc(x)",
        "1 - erf(x), accurate where that is small.",
        x="-1.1283791670955126 * g * exp(-x * x)",
    ),
    _row(
        "erfinv", "x", "_erfinv(x)", "The inverse of erf.", x="0.886226925452758 * g * exp(y * y)"
    ),
    _row(
        "lgamma",
        "x",
        "_lgamma(x)",
        "The logarithm of the gamma function's magnitude.",
        x="g * digamma(x)",
    ),
    _row("digamma", "x", "_digamma(x)", "The derivative of lgamma; it has none itself here."),
)

_SELECTION = (
    _row(
        "where",
        "condition x other",
        "tl.where(condition, x, other)",
        "x where the condition is true, else other.",
        accepts="where",
        x="where(condition, g, 0.0)",
        other="where(condition, 0.0, g)",
    ),
    _row(
        "clamp",
        "x min max",
        "_clamp(x, min, max)",
        "x held between min and max; max where min is above it.",
        accepts="number",
        x="where((x < min) | (x > max), 0.0, g)",
        min="where((x < min) & (min < max), g, 0.0)",
        max="where((x > max) | (max < min), g, 0.0)",
    ),
    _row(
        "clamp_min",
        "x min",
        "_maximum(x, min)",
        "x, but no less than min.",
        accepts="number",
        x="where(x < min, 0.0, g)",
        min="where(x < min, g, 0.0)",
    ),
    _row(
        "clamp_max",
        "x max",
        "_minimum(x, max)",
        "x, but no more than max.",
        accepts="number",
        x="where(x > max, 0.0, g)",
        max="where(x > max, g, 0.0)",
    ),
    _row(
        "maximum",
        "x other",
        "_maximum(x, other)",
        "The larger; NaN if either is.",
        accepts="any",
        triton_bool="x | other",
        x="where(x == other, g / 2, where(x < other, 0.0, g))",
        other="where(x == other, g / 2, where(x > other, 0.0, g))",
    ),
    _row(
        "minimum",
        "x other",
        "_minimum(x, other)",
        "The smaller; NaN if either is.",
        accepts="any",
        triton_bool="x & other",
        x="where(x == other, g / 2, where(x > other, 0.0, g))",
        other="where(x == other, g / 2, where(x < other, 0.0, g))",
    ),
    _row(
        "fmax",
        "x other",
        "_fmax(x, other)",
        "The larger; the number if the other is NaN.",
        accepts="any",
        triton_bool="x | other",
        x="where((x >= other) | isnan(other), g, 0.0)",
        other="where((x >= other) | isnan(other), 0.0, g)",
    ),
    _row(
        "fmin",
        "x other",
        "_fmin(x, other)",
        "The smaller; the number if the other is NaN.",
        accepts="any",
        triton_bool="x & other",
        x="where((x <= other) | isnan(other), g, 0.0)",
        other="where((x <= other) | isnan(other), 0.0, g)",
    ),
    _row(
        "nan_to_num",
        "x nan=0.0 posinf=None neginf=None",
        "_nan_to_num(x, nan, posinf, neginf)",
        "Numbers for NaN and infinities; without them the largest finite ones.",
        accepts="any",
        triton_int="x",
        x="where(isfinite(x), g, 0.0)",
    ),
    _row(
        "heaviside",
        "x values",
        "_heaviside(x, values)",
        "0 below zero, 1 above it, values at it.",
        accepts="any",
        triton_bool="x | values",
    ),
)

_ACTIVATIONS = (
    _row("sigmoid", "x", "tl.sigmoid(x)", "1 / (1 + exp(-x)).", x="g * y * (1 - y)"),
    _row("logit", "x", "tl.log(x / (1 - x))", "The inverse of sigmoid.", x="g / (x * (1 - x))"),
    _activation("logsigmoid", "x", "_logsigmoid(x)", "log(sigmoid(x)).", x="g * sigmoid(-x)"),
    _activation(
        "relu",
        "x",
        "tl.maximum(x, 0, propagate_nan=tl.PropagateNan.ALL)",
        "x, but no less than 0.",
        accepts="number",
        x="where(x <= 0, 0.0, g)",
    ),
    _activation(
        "relu6",
        "x",
        "_clamp(x, 0, 6)",
        "x held between 0 and 6.",
        accepts="number",
        x="where((x <= 0) | (x >= 6), 0.0, g)",
    ),
    _activation(
        "leaky_relu",
        "x negative_slope=0.01",
        "_leaky_relu(x, negative_slope)",
        "x, below 0 times negative_slope.",
        x="where(x > 0, g, g * negative_slope)",
    ),
    _activation(
        "elu",
        "x alpha=1.0",
        "_elu(x, alpha)",
        "x, below 0 alpha * expm1(x).",
        x="where(x > 0, g, g * alpha * exp(x))",
    ),
    _activation(
        "selu",
        "x",
        "_selu(x)",
        "elu with the alpha and scale that keep mean 0 and variance 1.",
        x="where(x > 0, 1.0507009873554805 * g, 1.7580993408473766 * g * exp(x))",
    ),
    _activation(
        "celu",
        "x alpha=1.0",
        "_celu(x, alpha)",
        "x, below 0 alpha * expm1(x / alpha).",
        x="where(x > 0, g, g * exp(x / alpha))",
    ),
    _activation(
        "gelu",
        "x",
        "0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))",
        "x times the normal distribution function of x.",
        x="g * (0.5 * (1 + erf(x * 0.7071067811865476))"
        " + x * 0.3989422804014327 * exp(-0.5 * x * x))",
    ),
    _activation(
        "gelu_tanh",
        "x",
        "_gelu_tanh(x)",
        "gelu by its tanh approximation.",
        torch="torch.nn.functional.gelu(x, approximate='tanh')",
        x="g * sigmoid(1.5957691216057308 * x * (1 + 0.044715 * x * x))"
        " * (1 + (1 - sigmoid(1.5957691216057308 * x * (1 + 0.044715 * x * x)))"
        " * 1.5957691216057308 * x * (1 + 0.134145 * x * x))",
    ),
    _activation(
        "silu",
        "x",
        "x * tl.sigmoid(x)",
        "x * sigmoid(x).",
        x="g * sigmoid(x) * (1 + x * (1 - sigmoid(x)))",
    ),
    _activation(
        "mish",
        "x",
        "_mish(x)",
        "x * tanh(softplus(x)).",
        x="g * (tanh(softplus(x)) + x * sigmoid(x) * (1 - square(tanh(softplus(x)))))",
    ),
    _activation(
        "softplus",
        "x beta=1.0 threshold=20.0",
        "_softplus(x, beta, threshold)",
        "log1p(exp(beta * x)) / beta, and x where beta * x is above threshold.",
        x="where(x * beta > threshold, g, g * sigmoid(x * beta))",
    ),
    _activation(
        "softsign", "x", "x / (1 + tl.abs(x))", "x / (1 + abs(x)).", x="g / square(1 + abs(x))"
    ),
    _activation(
        "hardtanh",
        "x min_val=-1 max_val=1",
        "_clamp(x, min_val, max_val)",
        "x held between min_val and max_val.",
        accepts="number",
        x="where((x <= min_val) | (x >= max_val), 0.0, g)",
    ),
    _activation(
        "hardsigmoid",
        "x",
        "_clamp(x + 3, 0, 6) * 0.16666666666666666",
        "A straight line for sigmoid: (x + 3) / 6 held between 0 and 1.",
        x="where((x > -3) & (x < 3), g * 0.16666666666666666, 0.0)",
    ),
    _activation(
        "hardswish",
        "x",
        "x * (_clamp(x + 3, 0, 6) * 0.16666666666666666)",
        "x * hardsigmoid(x).",
        x="where(x <= -3, 0.0, where(x < 3, g * (x * 0.3333333333333333 + 0.5), g))",
    ),
    _activation("tanhshrink", "x", "x - _tanh(x)", "x - tanh(x).", x="g * square(tanh(x))"),
    _activation(
        "softshrink",
        "x lambd=0.5",
        "x - _clamp(x, -lambd, lambd)",
        "x, brought nearer to 0 by lambd.",
        x="where(abs(x) <= lambd, 0.0, g)",
    ),
    _activation(
        "hardshrink",
        "x lambd=0.5",
        "tl.where(tl.abs(x) <= lambd, 0.0, x)",
        "x, but 0 where it is within lambd of 0.",
        x="where(abs(x) <= lambd, 0.0, g)",
    ),
    _activation(
        "threshold",
        "x threshold value",
        "tl.where(x <= threshold, value, x)",
        "x where it is above threshold, else value.",
        accepts="number",
        x="where(x <= threshold, 0.0, g)",
    ),
)

FUNCTIONS: dict[str, Function] = {
    function.name: function
    for group in (
        _ARITHMETIC,
        _COMPARISON,
        _LOGIC,
        _ROUNDING,
        _EXPONENTIAL,
        _TRIGONOMETRY,
        _SPECIAL,
        _SELECTION,
        _ACTIVATIONS,
    )
    for function in group
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
