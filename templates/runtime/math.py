# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Elementwise math that Triton itself does not have, as device functions.

They take float32 or float64 (never half precision), and integers where their names end in `_int`. Where a function has
several arguments, some may be Python numbers.

The accuracy each one states is the largest relative error over ordinary arguments in units of 2**-24 for float32 and
2**-53 for float64 ("ulp"), when `tl.exp`, `tl.log` and division are rounded well, as in the interpreter. Coefficients
without a source are our own minimax fits, made with 60 digits.
"""

import triton
import triton.language as tl


@triton.jit
def like(x, other):
    """x as a tensor of the type and shape that x and other have together."""
    both = x + other
    zeros = tl.where(both == both, 0, 0)  # Gluon's `full` asks for a layout.
    return x - zeros.to(both.dtype)


@triton.jit
def signbit(x):
    """Whether the sign bit is set; unlike x < 0 it sees the signs of zero and NaN."""
    return x.to(tl.int64 if x.dtype == tl.float64 else tl.int32, bitcast=True) < 0


@triton.jit
def copysign(x, other):
    """The magnitude of x with the sign of other."""
    size = tl.abs(like(x, other))
    return tl.where(signbit(like(other, x)), -1.0 * size, size)


@triton.jit
def sign(x):
    """-1, 0 or 1; 0 for NaN."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def heaviside(x, values):
    """0 below zero and for NaN, 1 above zero, values at zero."""
    x = like(x, values)
    return tl.where(x == 0, values, (x > 0).to(x.dtype))


@triton.jit
def maximum(x, other):
    """The larger, NaN if either is; a Python number first takes the dtype of the tensor."""
    return tl.maximum(like(x, other), like(other, x), propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(x, other):
    """The smaller, NaN if either is; a Python number first takes the dtype of the tensor."""
    return tl.minimum(like(x, other), like(other, x), propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def fmax(x, other):
    """The larger of two; where one is NaN, the other."""
    a, b = like(x, other), like(other, x)
    return tl.where(a != a, b, tl.where(b != b, a, tl.maximum(a, b)))


@triton.jit
def fmin(x, other):
    """The smaller of two; where one is NaN, the other."""
    a, b = like(x, other), like(other, x)
    return tl.where(a != a, b, tl.where(b != b, a, tl.minimum(a, b)))


@triton.jit
def clamp(x, low, high):
    """x held between low and high; high where low is above it, NaN if any of them is."""
    return minimum(maximum(x, low), high)


@triton.jit
def nan_to_num(x, nan, posinf, neginf, dtype: tl.constexpr = None):
    """x with finite values in place of NaN and the infinities. None stands for the largest finite value of `dtype`,
    the dtype of the argument before it was widened.
    """
    of: tl.constexpr = x.dtype if dtype is None else dtype
    largest = 3.4028234663852886e38
    if of == tl.float64:
        largest = 1.7976931348623157e308
    elif of == tl.float16:
        largest = 65504.0
    elif of == tl.bfloat16:
        largest = 3.3895313892515355e38
    if posinf is None:
        posinf = largest
    if neginf is None:
        neginf = -largest
    y = tl.where(x == float("inf"), posinf, x)
    y = tl.where(x == float("-inf"), neginf, y)
    return tl.where(x != x, nan, y)


@triton.jit
def invert(x, dtype: tl.constexpr):
    """~x for an argument of `dtype`; booleans are computed with as integers."""
    return 1 - x if dtype == tl.int1 else ~x


@triton.jit
def isclose(x, other, rtol, atol):
    """Whether x and other are equal, or finite and within atol + rtol * abs(other)."""
    x, other = like(x, other), like(other, x)
    distance = tl.abs(x - other)
    near = (distance <= atol + tl.abs(rtol * other)) & (distance < float("inf"))
    return (x == other) | near


@triton.jit
def lerp(x, end, weight):
    """x + weight * (end - x), from the nearer end, so that both ends are met exactly."""
    span = end - x
    return tl.where(tl.abs(weight) < 0.5, x + weight * span, end - span * (1 - weight))


@triton.jit
def shift_left(x, bits):
    """x shifted to the left; 0 for more bits than x has, and for less than 0."""
    x, bits = like(x, bits), like(bits, x)
    inside = (bits >= 0) & (bits < x.dtype.primitive_bitwidth)
    return tl.where(inside, x << tl.where(inside, bits, 0), 0)


@triton.jit
def shift_right(x, bits):
    """x shifted to the right, its sign filling in; all of it for more bits than x has."""
    x, bits = like(x, bits), like(bits, x)
    inside = (bits >= 0) & (bits < x.dtype.primitive_bitwidth)
    fill = x >> (x.dtype.primitive_bitwidth - 1) >> 1
    return tl.where(inside, x >> tl.where(inside, bits, 0), fill)


@triton.jit
def floor_divide_int(x, other):
    """The quotient rounded down: Triton's own `//` of integers rounds towards zero."""
    x, other = like(x, other), like(other, x)
    below = (x % other != 0) & ((x < 0) != (other < 0))
    return x // other - below.to(x.dtype)


@triton.jit
def remainder_int(x, other):
    """The remainder with the sign of the divisor. (Triton's `%` has the sign of x.)"""
    x, other = like(x, other), like(other, x)
    rest = x % other
    return tl.where((rest != 0) & ((rest < 0) != (other < 0)), rest + other, rest)


@triton.jit
def fmod_int(x, other):
    """The remainder with the sign of x."""
    return like(x, other) % like(other, x)


@triton.jit
def power_int(x, exponent):
    """x to an integer power by squaring, wrapped around; below 0 the power rounded to zero."""
    base = like(x, exponent)
    left = like(exponent, x)
    negative = left < 0
    inverse = tl.where(base == 1, base, 0)
    inverse = tl.where(base + 1 == 0, 1 - 2 * (left & 1), inverse)
    raised = tl.zeros_like(base) + 1
    bits: tl.constexpr = base.dtype.primitive_bitwidth
    for _ in tl.static_range(bits):
        raised = tl.where(left & 1 == 1, raised * base, raised)
        base *= base
        left >>= 1
    return tl.where(negative, inverse, raised)


@triton.jit
def trunc(x):
    """x rounded towards zero."""
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def round_even(x):
    """x rounded to the nearest integer, halves to the even one.

    Adding the power of two whose last place is 1 leaves the rounding to the hardware.
    """
    size = tl.abs(x)
    whole = 4503599627370496.0 if x.dtype == tl.float64 else 8388608.0
    return tl.where(size < whole, copysign((size + whole) - whole, x), x)


@triton.jit
def divide(x, other):
    """The quotient, rounded to nearest: `/` may be two ulp off in float32."""
    return tl.div_rn(x, other) if x.dtype == tl.float32 else x / other


@triton.jit
def quotient(x, other):
    """The quotient, rounded to nearest, for functions that round it to an integer; one may be a Python number."""
    return divide(like(x, other), like(other, x))


@triton.jit
def negative(x):
    """-x with the sign of zero: Triton's own is 0 - x."""
    return -1.0 * x


@triton.jit
def any_of(flags):
    """Whether any flag of a tile is set."""
    if len(flags.shape) == 0:
        found = flags
    else:
        found = tl.max(flags.to(tl.int32)) > 0
    return found


@triton.jit
def without_multiples(rest, size):
    """rest minus an integer multiple of size, by one fma, which is exact: a quotient of as many digits as there are.

    Of quotients that might overflow, size is first multiplied by a power of two.
    """
    power: tl.constexpr = 2.0**1000 if rest.dtype == tl.float64 else 2.0**120
    for _ in tl.static_range(2):
        size = tl.where(tl.abs(rest) * (1 / power) >= size, size * power, size)
    return tl.fma(-1.0 * tl.floor(divide(rest, size)), size, rest)


@triton.jit
def fmod(x, other):
    """x - other * trunc(x / other), without rounding.

    Each step takes a multiple away. Two steps do for quotients below 2**47 (2**105 in float64);
    only tiles with larger ones go on.
    """
    x, other = like(x, other), like(other, x)
    defined = (tl.abs(x) < float("inf")) & (tl.abs(other) > 0)
    size = tl.where(defined, tl.abs(other), 1.0)
    rest = tl.where(defined & (size < float("inf")), tl.abs(x), 0.0)
    for _ in tl.static_range(2):
        rest = without_multiples(rest, size)
    while any_of(tl.abs(rest) >= size):
        rest = without_multiples(rest, size)
    rest = tl.where(rest < 0, rest + size, rest)
    rest = tl.where(rest < size, rest, 0.0)
    rest = tl.where(size == float("inf"), tl.abs(x), rest)
    return copysign(tl.where(defined, rest, float("nan")), x)


@triton.jit
def remainder(x, other):
    """x - other * floor(x / other): fmod, moved to the sign of other."""
    rest = fmod(x, other)
    return tl.where((rest != 0) & ((rest < 0) != (other < 0)), rest + other, rest)


@triton.jit
def floor_divide(x, other):
    """The quotient rounded down, from fmod, so that it is consistent with remainder even near integers."""
    x, other = like(x, other), like(other, x)
    rest = fmod(x, other)
    quotient = divide(x - rest, other)
    quotient -= ((rest != 0) & ((rest < 0) != (other < 0))).to(x.dtype)
    whole = tl.floor(quotient)
    whole = tl.where(quotient - whole > 0.5, whole + 1, whole)
    plain = divide(x, other)
    whole = tl.where(quotient == 0, copysign(0.0, plain), whole)
    return tl.where(other == 0, plain, whole)


@triton.jit
def hypot(x, other):
    """sqrt(x * x + other * other), scaled by the larger so that no square overflows."""
    a, b = tl.abs(like(x, other)), tl.abs(like(other, x))
    large = maximum(a, b)
    ratio = minimum(a, b) / tl.where(large == 0, 1.0, large)
    infinite = (a == float("inf")) | (b == float("inf"))
    return tl.where(infinite, float("inf"), large * tl.sqrt(1 + ratio * ratio))


@triton.jit
def expm1(x):
    """exp(x) - 1, 2 ulp: near 0 by a polynomial in float32 and Kahan's quotient in float64."""
    e = tl.exp(x)
    if x.dtype == tl.float64:
        near = tl.where(e == 1, x, (e - 1) * (x / tl.log(e)))
    else:
        p = (2.50389912e-05 * x + 2.00788942e-04) * x + 1.3888306e-03
        p = ((p * x + 8.33274983e-03) * x + 4.16666716e-02) * x + 1.66666701e-01
        near = ((p * x + 0.5) * x + 1) * x
    return tl.where(tl.abs(x) < 0.7, near, e - 1)


@triton.jit
def log1p(x):
    """log(1 + x), 3 ulp, by Kahan's correction for the rounding of 1 + x."""
    u = 1 + x
    d = u - 1
    return tl.where(u == 1, x, tl.log(u) * tl.where(d == x, 1.0, x / d))


@triton.jit
def log1p_exp(x):
    """log(1 + exp(x)) for x <= 0, 3 ulp: in float32 a polynomial in exp(x)."""
    e = tl.exp(x)
    if x.dtype == tl.float64:
        y = log1p(e)
    else:
        p = (-4.46621142e-03 * e + 2.52240542e-02) * e - 6.67577237e-02
        p = ((p * e + 1.15618452e-01) * e - 1.58475652e-01) * e + 1.9854106e-01
        p = ((p * e - 2.49865264e-01) * e + 3.33328426e-01) * e - 4.9999997e-01
        y = e + e * e * p
    return y


@triton.jit
def logaddexp(x, other):
    """log(exp(x) + exp(other)) from the larger; equal infinities stay."""
    large = maximum(x, other)
    y = large + log1p_exp(-tl.abs(x - other))
    return tl.where(x == other, large + 0.6931471805599453, y)


@triton.jit
def logaddexp2(x, other):
    """log2(exp2(x) + exp2(other)) from the larger; equal infinities stay."""
    large = maximum(x, other)
    rest = log1p_exp(-0.6931471805599453 * tl.abs(x - other))
    return tl.where(x == other, large + 1.0, large + 1.4426950408889634 * rest)


@triton.jit
def xlogy(x, other):
    """x * log(other), 0 where x is 0 unless other is NaN."""
    x, other = like(x, other), like(other, x)
    return tl.where((x == 0) & (other == other), 0.0, x * tl.log(other))


@triton.jit
def xlog1py(x, other):
    """x * log1p(other), 0 where x is 0 unless other is NaN."""
    x, other = like(x, other), like(other, x)
    return tl.where((x == 0) & (other == other), 0.0, x * log1p(other))


@triton.jit
def exp2_sum(high, low):
    """2 ** (high + low) for a low of less than 2**-12: exp2 alone would round their sum."""
    return tl.exp2(high) * (1 + 0.6931471805599453 * low)


@triton.jit
def pow_float32(x, exponent):
    """x ** exponent for x >= 0, 2 ulp.

    log2(x) is taken as the sum of two float32: x = 2**k * m with m in [sqrt(1/2), sqrt(2)), and
    log(m) = 2 * atanh((m - 1) / (m + 1)), as in fdlibm's and CUDA's pow.
    """
    subnormal = x < 1.1754943508222875e-38
    bits = tl.where(subnormal, x * 16777216.0, x).to(tl.int32, bitcast=True)
    k = (bits - 1060439283) >> 23  # the bits of sqrt(1/2)
    m = (bits - (k << 23)).to(tl.float32, bitcast=True)
    k = k.to(tl.float32) - tl.where(subnormal, 24.0, 0.0)

    total = m + 1
    ratio = (m - 1) / total
    ratio_low = (tl.fma(-1.0 * ratio, total, m - 1) - ratio * (m - (total - 1))) / total
    square = ratio * ratio
    p = (1.16684057e-01 * square + 1.4275293e-01) * square + 2.00000614e-01
    tail = 2 * ratio_low + 2 * ratio * square * (p * square + 3.33333343e-01)

    head = 2 * ratio * 1.4426950408889634
    tail = tail * 1.4426950408889634 + 2 * ratio * 1.925963e-08
    tail += tl.fma(2 * ratio, 1.4426950408889634, -1.0 * head)
    high = k + head
    tail += head - (high - k)
    log2 = high + tail
    tail -= log2 - high

    log2 = tl.where(x == 0, float("-inf"), tl.where(x < float("inf"), log2, x))
    high = exponent * log2
    low = tl.fma(exponent, log2, -1.0 * high) + exponent * tail
    return exp2_sum(high, tl.where(tl.abs(high) < 256, low, 0.0))


@triton.jit
def power(x, exponent):
    """x ** exponent with the special cases of C, 2 ulp in float32 and 1e-13 in float64."""
    x, exponent = like(x, exponent), like(exponent, x)
    size = tl.abs(x)
    if x.dtype == tl.float64:
        raised = tl.exp2(exponent * tl.log2(size))
    else:
        raised = pow_float32(size, exponent)
    whole = tl.floor(exponent) == exponent
    odd = whole & (tl.floor(exponent * 0.5) != exponent * 0.5)
    raised = tl.where(odd, copysign(raised, x), raised)
    raised = tl.where((x < 0) & (size < float("inf")) & ~whole, float("nan"), raised)
    unit = (x == 1) | (exponent == 0) | ((x == -1) & (tl.abs(exponent) == float("inf")))
    return tl.where(unit, 1.0, raised)


@triton.jit
def rounded(x):
    """x, hidden from FMA contraction; -0.0 becomes 0."""
    return x + 0.0


@triton.jit
def rounded_product(x, other):
    """x * other, hidden from FMA contraction; -0.0 becomes 0."""
    x, other = like(x, other), like(other, x)
    return tl.fma(x, other, 0.0) if x.dtype.is_floating() else x * other
