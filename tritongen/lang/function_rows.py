"""The rows of arithmetic, comparison, logic and the functions of calculus."""

from __future__ import annotations

from .function import Function, row


def _test(form: str, summary: str, triton: str = "", triton_int: str = "") -> Function:
    return row(form, summary, triton, accepts="any", result="bool", triton_int=triton_int)


_ARITHMETIC = (
    row(
        "add(x, other)",
        "The sum; logical or of bools.",
        "x + other",
        accepts="any",
        triton_bool="x | other",
        x="g",
        other="g",
    ),
    row("sub(x, other)", "The difference.", "x - other", accepts="number", x="g", other="-g"),
    row(
        "mul(x, other)",
        "The product; logical and of bools.",
        "x * other",
        accepts="any",
        triton_bool="x & other",
        x="g * other",
        other="g * x",
    ),
    row("div(x, other)", "The true quotient.", "x / other", x="g / other", other="-g * y / other"),
    row(
        "floor_divide(x, other)",
        "The quotient rounded down.",
        accepts="number",
        triton_int="floor_divide_int(x, other)",
        x="0.0",
        other="0.0",
    ),
    row(
        "remainder(x, other)",
        "The remainder of floor_divide, with the sign of the divisor.",
        accepts="number",
        triton_int="remainder_int(x, other)",
        x="g",
        other="-g * floor_divide(x, other)",
    ),
    row(
        "fmod(x, other)",
        "The remainder of division rounded towards zero, with the sign of x.",
        accepts="number",
        triton_int="fmod_int(x, other)",
        x="g",
        other="-g * trunc(x / other)",
    ),
    row(
        "pow(x, exponent)",
        "x to the power of exponent.",
        "power(x, exponent)",
        accepts="number",
        triton_int="power_int(x, exponent)",
        x="where(exponent == 0, 0.0, g * exponent * pow(x, exponent - 1))",
        exponent="where((x == 0) & (exponent >= 0), 0.0, g * y * log(x))",
    ),
    row("neg(x)", "The negative of x.", "-x", accepts="number", x="-g"),
    row("positive(x)", "x itself.", "x", accepts="number", x="g"),
    row("detach(x)", "x itself, as a constant for gradients.", "x", accepts="any", x="0.0"),
    row("reciprocal(x)", "One over x.", "1.0 / x", x="-g * y * y"),
    row("square(x)", "x squared.", "x * x", accepts="number", x="2 * g * x"),
    row("abs(x)", "The absolute value.", "tl.abs(x)", accepts="number", x="g * sign(x)"),
    row("sign(x)", "-1, 0 or 1; 0 for NaN.", accepts="any", triton_bool="x", x="0.0"),
    row(
        "sgn(x)",
        "-1, 0 or 1, as sign: the language has no complex numbers.",
        "sign(x)",
        accepts="any",
        triton_bool="x",
        x="0.0",
    ),
    row(
        "copysign(x, other)",
        "x with the sign of other, including that of zeros and NaN.",
        x="where(x == 0, 0.0, g * (y / x))",
        other="0.0",
    ),
    row(
        "addcmul(x, tensor1, tensor2, value=1)",
        "x + value * tensor1 * tensor2.",
        "x + value * tensor1 * tensor2",
        accepts="number",
        torch="torch.addcmul(x, tensor1, tensor2, value=value)",
        x="g",
        tensor1="g * value * tensor2",
        tensor2="g * value * tensor1",
    ),
    row(
        "addcdiv(x, tensor1, tensor2, value=1)",
        "x + value * (tensor1 / tensor2).",
        "x + value * (tensor1 / tensor2)",
        torch="torch.addcdiv(x, tensor1, tensor2, value=value)",
        x="g",
        tensor1="g * value / tensor2",
        tensor2="-g * value * tensor1 / (tensor2 * tensor2)",
    ),
    row(
        "lerp(x, end, weight)",
        "Linear interpolation from x (weight 0) to end (weight 1).",
        x="g * (1 - weight)",
        end="g * weight",
        weight="g * (end - x)",
    ),
    row(
        "ldexp(x, other)",
        "x * 2 ** other.",
        "x * tl.exp2(like(other, x))",
        x="g * exp2(other)",
        other="g * y * 0.6931471805599453",
    ),
    row(
        "hypot(x, other)",
        "sqrt(x * x + other * other), without intermediate overflow.",
        x="g * (x / y)",
        other="g * (other / y)",
    ),
    row("sqrt(x)", "The square root.", "tl.sqrt(x)", x="g / (2 * y)"),
    row("rsqrt(x)", "One over the square root.", "tl.rsqrt(x)", x="-0.5 * g * y * y * y"),
)

_COMPARISON = (
    _test("eq(x, other)", "Whether both are equal.", "x == other"),
    _test("ne(x, other)", "Whether they differ.", "x != other"),
    _test("lt(x, other)", "Whether x is less than other.", "x < other"),
    _test("le(x, other)", "Whether x is less than or equal to other.", "x <= other"),
    _test("gt(x, other)", "Whether x is greater than other.", "x > other"),
    _test("ge(x, other)", "Whether x is greater than or equal to other.", "x >= other"),
    row(
        "isclose(x, other, rtol=1e-05, atol=1e-08)",
        "Whether they differ by no more than atol + rtol * abs(other).",
        result="bool",
    ),
    _test("isnan(x)", "Whether x is NaN.", "x != x"),
    _test("isinf(x)", "Whether x is infinite.", "tl.abs(x) == float('inf')", "x != x"),
    _test("isfinite(x)", "Whether x is neither NaN nor an infinity.", "tl.abs(x) < float('inf')", "x == x"),
    _test("isposinf(x)", "Whether x is +infinity.", "x == float('inf')", "x != x"),
    _test("isneginf(x)", "Whether x is -infinity.", "x == float('-inf')", "x != x"),
    _test("signbit(x)", "Whether the sign bit is set, including that of zeros and NaN.", triton_int="x < 0"),
)

_LOGIC = (
    row("logical_and(x, other)", "Whether both are nonzero.", "x & other", accepts="bool"),
    row("logical_or(x, other)", "Whether either is nonzero.", "x | other", accepts="bool"),
    row("logical_xor(x, other)", "Whether exactly one is nonzero.", "x ^ other", accepts="bool"),
    row("logical_not(x)", "Whether x is zero.", "~x", accepts="bool"),
    row("bitwise_and(x, other)", "Bitwise and.", "x & other", accepts="integral"),
    row("bitwise_or(x, other)", "Bitwise or.", "x | other", accepts="integral"),
    row("bitwise_xor(x, other)", "Bitwise exclusive or.", "x ^ other", accepts="integral"),
    row("bitwise_not(x)", "Bitwise not.", "~x", accepts="integral"),
    row(
        "bitwise_left_shift(x, other)",
        "x shifted left by other bits; 0 once all bits are shifted out.",
        "shift_left(x, other)",
        accepts="integral",
    ),
    row(
        "bitwise_right_shift(x, other)",
        "x shifted right by other bits, filled with the sign bit.",
        "shift_right(x, other)",
        accepts="integral",
    ),
)

_ROUNDING = (
    row("floor(x)", "Rounded down.", "tl.floor(x)", accepts="number", triton_int="x", x="0.0"),
    row("ceil(x)", "Rounded up.", "tl.ceil(x)", accepts="number", triton_int="x", x="0.0"),
    row("trunc(x)", "Rounded towards zero.", accepts="number", triton_int="x", x="0.0"),
    row(
        "round(x)",
        "Rounded to the nearest integer, ties to even.",
        "round_even(x)",
        accepts="number",
        triton_int="x",
        x="0.0",
    ),
    row("frac(x)", "The fractional part, x - trunc(x).", "x - trunc(x)", x="g"),
)

_EXPONENTIAL = (
    row("exp(x)", "e to the power of x.", "tl.exp(x)", x="g * y"),
    row("exp2(x)", "2 to the power of x.", "tl.exp2(x)", x="g * y * 0.6931471805599453"),
    row("expm1(x)", "exp(x) - 1, accurate near 0.", x="g * (y + 1)"),
    row("log(x)", "The natural logarithm.", "tl.log(x)", x="g / x"),
    row("log2(x)", "The logarithm to base 2.", "tl.log2(x)", x="g / (x * 0.6931471805599453)"),
    row("log10(x)", "The logarithm to base 10.", "tl.log2(x) * 0.30102999566398120", x="g / (x * 2.302585092994046)"),
    row("log1p(x)", "log(1 + x), accurate near 0.", x="g / (x + 1)"),
    row(
        "logaddexp(x, other)",
        "log(exp(x) + exp(other)), without intermediate overflow.",
        x="g * sigmoid(x - other)",
        other="g * sigmoid(other - x)",
    ),
    row(
        "logaddexp2(x, other)",
        "log2(exp2(x) + exp2(other)), without intermediate overflow.",
        x="g / (1 + exp2(other - x))",
        other="g / (1 + exp2(x - other))",
    ),
    row(
        "xlogy(x, other)",
        "x * log(other), 0 where x is 0.",
        x="where((x == 0) & (other <= 0), 0.0, g * log(other))",
        other="g * x / other",
    ),
    row(
        "xlog1py(x, other)",
        "x * log1p(other), 0 where x is 0.",
        torch="torch.special.xlog1py(x, other)",
        x="where((x == 0) & (other <= -1), 0.0, g * log1p(other))",
        other="g * x / (other + 1)",
    ),
)

_TRIGONOMETRY = (
    row("sin(x)", "The sine.", "tl.sin(x)", x="g * cos(x)"),
    row("cos(x)", "The cosine.", "tl.cos(x)", x="-g * sin(x)"),
    row("tan(x)", "The tangent.", "tl.sin(x) / tl.cos(x)", x="g * (1 + y * y)"),
    row("asin(x)", "The inverse sine.", x="g * rsqrt(1 - x * x)"),
    row("acos(x)", "The inverse cosine.", x="-g * rsqrt(1 - x * x)"),
    row("atan(x)", "The inverse tangent.", x="g / (1 + x * x)"),
    row(
        "atan2(x, other)",
        "The angle of the point (other, x), in all four quadrants.",
        x="where((x == 0) & (other == 0), 0.0, g * clamp(other / hypot(x, other), -1, 1) / hypot(x, other))",
        other="where((x == 0) & (other == 0), 0.0, -g * clamp(x / hypot(x, other), -1, 1) / hypot(x, other))",
    ),
    row("sinh(x)", "The hyperbolic sine.", x="g * cosh(x)"),
    row("cosh(x)", "The hyperbolic cosine.", x="g * sinh(x)"),
    row("tanh(x)", "The hyperbolic tangent.", x="g * (1 - y * y)"),
    row("asinh(x)", "The inverse hyperbolic sine.", x="g * rsqrt(x * x + 1)"),
    row("acosh(x)", "The inverse hyperbolic cosine.", x="g * rsqrt(x * x - 1)"),
    row("atanh(x)", "The inverse hyperbolic tangent.", x="g / (1 - x * x)"),
    row("sinc(x)", "sin(pi * x) / (pi * x), 1 at 0.", x="where(x == 0, 0.0, g * (cos(3.141592653589793 * x) - y) / x)"),
    row("deg2rad(x)", "Degrees to radians.", "x * 0.017453292519943295", x="g * 0.017453292519943295"),
    row("rad2deg(x)", "Radians to degrees.", "x * 57.29577951308232", x="g * 57.29577951308232"),
)

_SPECIAL = (
    row("erf(x)", "The error function.", "tl.erf(x)", x="1.1283791670955126 * g * exp(-x * x)"),
    row("erfc(x)", "1 - erf(x), accurate where it is small.", x="-1.1283791670955126 * g * exp(-x * x)"),
    row("erfinv(x)", "The inverse of erf.", x="0.886226925452758 * g * exp(y * y)"),
    row("lgamma(x)", "The logarithm of the absolute value of the gamma function.", x="g * digamma(x)"),
    row("digamma(x)", "The derivative of lgamma; it has no gradient itself."),
)

MATH = (
    *_ARITHMETIC,
    *_COMPARISON,
    *_LOGIC,
    *_ROUNDING,
    *_EXPONENTIAL,
    *_TRIGONOMETRY,
    *_SPECIAL,
)
