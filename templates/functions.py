"""Device functions: the elementwise math that Triton itself does not have.

They take float32 or float64 (never half precision), and integers where their names end in `_int`.
Each stands alone but for other functions of this file, so that a generated module can carry just
the few it needs. Where a function has several arguments, some may be Python numbers.

The accuracy each one states is the largest relative error over ordinary arguments in units of
2**-24 for float32 and 2**-53 for float64 ("ulp"), when `tl.exp`, `tl.log` and division are
rounded well, as in the interpreter; what a GPU adds is noted in the tests. Coefficients without
a source are our own least maximum fits, made with 60 digits.
"""

import triton
import triton.language as tl


@triton.jit
def _like(x, other):
    """x as a tensor of the type and shape that x and other have together."""
    return x - tl.zeros_like(x + other)


@triton.jit
def _signbit(x):
    """Whether the sign bit is set; unlike x < 0 it sees the signs of zero and NaN."""
    return x.to(tl.int64 if x.dtype == tl.float64 else tl.int32, bitcast=True) < 0


@triton.jit
def _copysign(x, other):
    """The magnitude of x with the sign of other."""
    size = tl.abs(_like(x, other))
    return tl.where(_signbit(_like(other, x)), -1.0 * size, size)


@triton.jit
def _sign(x):
    """-1, 0 or 1; 0 for NaN."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def _heaviside(x, values):
    """0 below zero and for NaN, 1 above zero, values at zero."""
    return tl.where(x == 0, values, (x > 0).to(x.dtype))


@triton.jit
def _maximum(x, other):
    """The larger, NaN if either is; a Python number first takes the dtype of the tensor."""
    return tl.maximum(
        _like(x, other), _like(other, x), propagate_nan=tl.PropagateNan.ALL
    )


@triton.jit
def _minimum(x, other):
    """The smaller, NaN if either is; a Python number first takes the dtype of the tensor."""
    return tl.minimum(
        _like(x, other), _like(other, x), propagate_nan=tl.PropagateNan.ALL
    )


@triton.jit
def _fmax(x, other):
    """The larger, or the one that is a number."""
    a, b = _like(x, other), _like(other, x)
    return tl.where(a != a, b, tl.where(b != b, a, tl.maximum(a, b)))


@triton.jit
def _fmin(x, other):
    """The smaller, or the one that is a number."""
    a, b = _like(x, other), _like(other, x)
    return tl.where(a != a, b, tl.where(b != b, a, tl.minimum(a, b)))


@triton.jit
def _clamp(x, low, high):
    """x held between low and high; high where low is above it, NaN if any of them is."""
    return _minimum(_maximum(x, low), high)


@triton.jit
def _nan_to_num(x, nan, posinf, neginf):
    """x with numbers for NaN and the infinities; None stands for the largest of the dtype."""
    largest = 1.7976931348623157e308 if x.dtype == tl.float64 else 3.4028234663852886e38
    if posinf is None:
        posinf = largest
    if neginf is None:
        neginf = -largest
    y = tl.where(x == float("inf"), posinf, x)
    y = tl.where(x == float("-inf"), neginf, y)
    return tl.where(x != x, nan, y)


@triton.jit
def _isclose(x, other, rtol, atol):
    """Whether x and other are equal, or finite and within atol + rtol * abs(other)."""
    x, other = _like(x, other), _like(other, x)
    distance = tl.abs(x - other)
    near = (distance <= atol + tl.abs(rtol * other)) & (distance < float("inf"))
    return (x == other) | near


@triton.jit
def _lerp(x, end, weight):
    """x + weight * (end - x), from the nearer end, so that both ends are met exactly."""
    span = end - x
    return tl.where(tl.abs(weight) < 0.5, x + weight * span, end - span * (1 - weight))


@triton.jit
def _shift_left(x, bits):
    """x shifted to the left; 0 for more bits than x has, and for less than 0."""
    x, bits = _like(x, bits), _like(bits, x)
    inside = (bits >= 0) & (bits < x.dtype.primitive_bitwidth)
    return tl.where(inside, x << tl.where(inside, bits, 0), 0)


@triton.jit
def _shift_right(x, bits):
    """x shifted to the right, its sign filling in; all of it for more bits than x has."""
    x, bits = _like(x, bits), _like(bits, x)
    inside = (bits >= 0) & (bits < x.dtype.primitive_bitwidth)
    fill = x >> (x.dtype.primitive_bitwidth - 1) >> 1
    return tl.where(inside, x >> tl.where(inside, bits, 0), fill)


@triton.jit
def _floor_divide_int(x, other):
    """The quotient rounded down: Triton's own `//` of integers rounds towards zero."""
    x, other = _like(x, other), _like(other, x)
    below = (x % other != 0) & ((x < 0) != (other < 0))
    return x // other - below.to(x.dtype)


@triton.jit
def _remainder_int(x, other):
    """The remainder with the sign of the divisor: Triton's own `%` has that of x."""
    x, other = _like(x, other), _like(other, x)
    rest = x % other
    return tl.where((rest != 0) & ((rest < 0) != (other < 0)), rest + other, rest)


@triton.jit
def _fmod_int(x, other):
    """The remainder with the sign of x."""
    return _like(x, other) % _like(other, x)


@triton.jit
def _pow_int(x, exponent):
    """x to an integer power by squaring, wrapped around; below 0 the power rounded to zero."""
    base = _like(x, exponent)
    left = _like(exponent, x)
    negative = left < 0
    inverse = tl.where(base == 1, base, 0)
    inverse = tl.where(base + 1 == 0, 1 - 2 * (left & 1), inverse)
    power = tl.zeros_like(base) + 1
    bits: tl.constexpr = base.dtype.primitive_bitwidth
    for _ in tl.static_range(bits):
        power = tl.where(left & 1 == 1, power * base, power)
        base *= base
        left >>= 1
    return tl.where(negative, inverse, power)


@triton.jit
def _trunc(x):
    """x rounded towards zero."""
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def _round(x):
    """x rounded to the nearest integer, halves to the even one.

    Adding the power of two whose last place is 1 leaves the rounding to the hardware.
    """
    size = tl.abs(x)
    whole = 4503599627370496.0 if x.dtype == tl.float64 else 8388608.0
    return tl.where(size < whole, _copysign((size + whole) - whole, x), x)


@triton.jit
def _divide(x, other):
    """The quotient, rounded to nearest: `/` may be two ulp off in float32."""
    return tl.div_rn(x, other) if x.dtype == tl.float32 else x / other


@triton.jit
def _fmod(x, other):
    """x - other * trunc(x / other), without rounding.

    Each step takes a rounded whole quotient away with one fma, which is exact. Two steps do for
    quotients below 2**47 (2**105 in float64); above, the result is only in the right range.
    """
    x, other = _like(x, other), _like(other, x)
    size = tl.abs(other)
    rest = tl.abs(x)
    for _ in tl.static_range(2):
        rest = tl.fma(-1.0 * tl.floor(_divide(rest, size)), size, rest)
    rest = tl.where(rest < 0, rest + size, rest)
    rest = tl.where(rest < size, rest, 0.0)
    rest = tl.where(size == float("inf"), tl.abs(x), rest)
    defined = (tl.abs(x) < float("inf")) & (size > 0)
    return _copysign(tl.where(defined, rest, float("nan")), x)


@triton.jit
def _remainder(x, other):
    """x - other * floor(x / other): _fmod, moved to the sign of other."""
    rest = _fmod(x, other)
    return tl.where((rest != 0) & ((rest < 0) != (other < 0)), rest + other, rest)


@triton.jit
def _floor_divide(x, other):
    """The quotient rounded down, from _fmod, so that it fits _remainder even near whole numbers."""
    x, other = _like(x, other), _like(other, x)
    rest = _fmod(x, other)
    quotient = _divide(x - rest, other)
    quotient -= ((rest != 0) & ((rest < 0) != (other < 0))).to(x.dtype)
    whole = tl.floor(quotient)
    whole = tl.where(quotient - whole > 0.5, whole + 1, whole)
    plain = _divide(x, other)
    whole = tl.where(quotient == 0, _copysign(0.0, plain), whole)
    return tl.where(other == 0, plain, whole)


@triton.jit
def _hypot(x, other):
    """sqrt(x * x + other * other), scaled by the larger so that no square overflows."""
    a, b = tl.abs(_like(x, other)), tl.abs(_like(other, x))
    large = _maximum(a, b)
    ratio = _minimum(a, b) / tl.where(large == 0, 1.0, large)
    infinite = (a == float("inf")) | (b == float("inf"))
    return tl.where(infinite, float("inf"), large * tl.sqrt(1 + ratio * ratio))


@triton.jit
def _expm1(x):
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
def _log1p(x):
    """log(1 + x), 3 ulp, by Kahan's correction for the rounding of 1 + x."""
    u = 1 + x
    d = u - 1
    return tl.where(u == 1, x, tl.log(u) * tl.where(d == x, 1.0, x / d))


@triton.jit
def _log1p_exp(x):
    """log(1 + exp(x)) for x <= 0, 3 ulp: in float32 a polynomial in exp(x)."""
    e = tl.exp(x)
    if x.dtype == tl.float64:
        y = _log1p(e)
    else:
        p = (-4.46621142e-03 * e + 2.52240542e-02) * e - 6.67577237e-02
        p = ((p * e + 1.15618452e-01) * e - 1.58475652e-01) * e + 1.9854106e-01
        p = ((p * e - 2.49865264e-01) * e + 3.33328426e-01) * e - 4.9999997e-01
        y = e + e * e * p
    return y


@triton.jit
def _logaddexp(x, other):
    """log(exp(x) + exp(other)) from the larger; equal infinities stay."""
    large = _maximum(x, other)
    y = large + _log1p_exp(-tl.abs(x - other))
    return tl.where(x == other, large + 0.6931471805599453, y)


@triton.jit
def _logaddexp2(x, other):
    """log2(exp2(x) + exp2(other)) from the larger; equal infinities stay."""
    large = _maximum(x, other)
    rest = _log1p_exp(-0.6931471805599453 * tl.abs(x - other))
    return tl.where(x == other, large + 1.0, large + 1.4426950408889634 * rest)


@triton.jit
def _xlogy(x, other):
    """x * log(other), 0 where x is 0 unless other is NaN."""
    other = _like(other, x)
    return tl.where((x == 0) & (other == other), 0.0, x * tl.log(other))


@triton.jit
def _xlog1py(x, other):
    """x * log1p(other), 0 where x is 0 unless other is NaN."""
    other = _like(other, x)
    return tl.where((x == 0) & (other == other), 0.0, x * _log1p(other))


@triton.jit
def _exp2_sum(high, low):
    """2 ** (high + low) for a low of less than 2**-12: exp2 alone would round their sum."""
    return tl.exp2(high) * (1 + 0.6931471805599453 * low)


@triton.jit
def _pow_float32(x, exponent):
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
    return _exp2_sum(high, tl.where(tl.abs(high) < 256, low, 0.0))


@triton.jit
def _pow(x, exponent):
    """x ** exponent with the special cases of C, 2 ulp in float32 and 1e-13 in float64."""
    x, exponent = _like(x, exponent), _like(exponent, x)
    size = tl.abs(x)
    if x.dtype == tl.float64:
        power = tl.exp2(exponent * tl.log2(size))
    else:
        power = _pow_float32(size, exponent)
    whole = tl.floor(exponent) == exponent
    odd = whole & (tl.floor(exponent * 0.5) != exponent * 0.5)
    power = tl.where(odd, _copysign(power, x), power)
    power = tl.where((x < 0) & (size < float("inf")) & ~whole, float("nan"), power)
    unit = (x == 1) | (exponent == 0) | ((x == -1) & (tl.abs(exponent) == float("inf")))
    return tl.where(unit, 1.0, power)


@triton.jit
def _atan_unit(x):
    """atan for x in [0, 1], 2 ulp: a polynomial; in float64 the angle that is left is added."""
    s = x * x
    p = (-2.386997220e-03 * s + 1.350777131e-02) * s - 3.587153926e-02
    p = ((p * s + 6.250169128e-02) * s - 8.65688026e-02) * s + 1.103376448e-01
    p = ((p * s - 1.427856833e-01) * s + 1.999973953e-01) * s - 3.333333135e-01
    y = x + x * s * p
    if x.dtype == tl.float64:
        sin, cos = tl.sin(y), tl.cos(y)
        y += (x * cos - sin) / (cos + x * sin)
    return y


@triton.jit
def _atan(x):
    """The inverse tangent, 2 ulp; above 1 by atan(x) = pi / 2 - atan(1 / x)."""
    size = tl.abs(x)
    y = _atan_unit(tl.where(size > 1, 1 / size, size))
    return _copysign(tl.where(size > 1, 1.5707963267948966 - y, y), x)


@triton.jit
def _atan2(y, x):
    """The angle of the point (x, y), 3 ulp, with the signs that C gives zeros and infinities."""
    y, x = _like(y, x), _like(x, y)
    a, b = tl.abs(x), tl.abs(y)
    large, small = _maximum(a, b), _minimum(a, b)
    ratio = tl.where(large == 0, 0.0, tl.where(large == small, 1.0, small / large))
    angle = _atan_unit(ratio)
    angle = tl.where(b > a, 1.5707963267948966 - angle, angle)
    angle = tl.where(_signbit(x), 3.141592653589793 - angle, angle)
    return _copysign(angle, y)


@triton.jit
def _asin_half(x):
    """asin for x in [0, 1/2], 2 ulp: a polynomial, and in float64 one Newton step."""
    s = x * x
    p = (3.80850248e-02 * s + 2.65545417e-02) * s + 4.50013801e-02
    y = x + x * s * ((p * s + 7.49885514e-02) * s + 1.66666731e-01)
    if x.dtype == tl.float64:
        y += (x - tl.sin(y)) / tl.cos(y)
    return y


@triton.jit
def _asin(x):
    """The inverse sine, 3 ulp; above 1/2 by asin(x) = pi / 2 - 2 * asin(sqrt((1 - x) / 2))."""
    size = tl.abs(x)
    y = _asin_half(tl.where(size > 0.5, tl.sqrt(0.5 * (1 - size)), size))
    return _copysign(tl.where(size > 0.5, 1.5707963267948966 - 2 * y, y), x)


@triton.jit
def _acos(x):
    """The inverse cosine, 3 ulp; outside [-1/2, 1/2] by acos(x) = 2 * asin(sqrt((1 - x) / 2))."""
    size = tl.abs(x)
    y = _asin_half(tl.where(size > 0.5, tl.sqrt(0.5 * (1 - size)), size))
    outer = tl.where(x > 0, 2 * y, 3.141592653589793 - 2 * y)
    return tl.where(size > 0.5, outer, 1.5707963267948966 - _copysign(y, x))


@triton.jit
def _half_exp(x):
    """exp(x) / 2 for x >= 0, 3 ulp, infinite only where that itself overflows."""
    x = tl.minimum(x, 1000.0, propagate_nan=tl.PropagateNan.ALL) - 0.75
    if x.dtype == tl.float64:
        y = tl.exp(x)
    else:
        high = x * 1.4426950408889634
        y = _exp2_sum(
            high, tl.fma(x, 1.4426950408889634, -1.0 * high) + x * 1.925963e-08
        )
    return y * 1.0585000083063374  # exp(0.75) / 2


@triton.jit
def _sinh(x):
    """The hyperbolic sine, 3 ulp; near 0 from expm1, where exponentials would cancel."""
    e = _expm1(x)
    half = _half_exp(tl.abs(x))
    return tl.where(
        tl.abs(x) < 1, 0.5 * (e + e / (e + 1)), _copysign(half - 0.25 / half, x)
    )


@triton.jit
def _cosh(x):
    """The hyperbolic cosine, 2 ulp."""
    half = _half_exp(tl.abs(x))
    return half + 0.25 / half


@triton.jit
def _tanh(x):
    """The hyperbolic tangent, 3 ulp, from expm1(2 * x); it is 1 from 20 on."""
    e = _expm1(2 * tl.minimum(x, 20.0, propagate_nan=tl.PropagateNan.ALL))
    return e / (e + 2)


@triton.jit
def _asinh(x):
    """The inverse hyperbolic sine, 4 ulp, from log1p; above 1e8 it is log(2 * x)."""
    size = tl.abs(x)
    s = size * size
    y = _log1p(size + s / (1 + tl.sqrt(1 + s)))
    return _copysign(tl.where(size > 1e8, tl.log(size) + 0.6931471805599453, y), x)


@triton.jit
def _acosh(x):
    """The inverse hyperbolic cosine, 4 ulp, from log1p; above 1e8 it is log(2 * x)."""
    t = x - 1
    y = _log1p(t + tl.sqrt(t * (t + 2)))
    y = tl.where(x > 1e8, tl.log(x) + 0.6931471805599453, y)
    return tl.where(x < 1, float("nan"), y)


@triton.jit
def _atanh(x):
    """The inverse hyperbolic tangent, 4 ulp, from log1p."""
    size = tl.abs(x)
    return _copysign(0.5 * _log1p(2 * size / (1 - size)), x)


@triton.jit
def _sinc(x):
    """sin(pi * x) / (pi * x), 1 at 0, 3 ulp: pi multiplies only what is left of a whole x."""
    whole = _round(x)
    sin = tl.sin(3.141592653589793 * (x - whole))
    sin = tl.where(tl.floor(0.5 * whole) == 0.5 * whole, sin, -1.0 * sin)
    return tl.where(x == 0, 1.0, sin / (3.141592653589793 * x))


@triton.jit
def _erfc(x):
    """1 - erf(x), 4 ulp.

    From 1/2 on exp(-x * x) / (1 + 2 * x) times a polynomial in (x - 3) / (x + 3), a form of
    Shepherd and Laframboise, Mathematics of Computation 36 (1981). Beyond 30 it is 0.
    """
    a = tl.minimum(x, 30.0, propagate_nan=tl.PropagateNan.ALL)
    t = 1 - 6 / (a + 3)
    if x.dtype == tl.float64:
        p = (
            -4.1450035652126114e-07 * t + 1.3107844427545226e-07
        ) * t + 3.2862445179585165e-06
        p = (p * t - 5.409118911356153e-07) * t - 2.0006792895787257e-05
        p = (p * t + 4.856593239898452e-06) * t + 1.2507242101952707e-04
        p = (p * t - 1.0513281517702131e-04) * t - 7.798280392697312e-04
        p = (p * t + 1.8886857383496377e-03) * t + 2.529391516765906e-03
        p = (p * t - 2.377051447776255e-02) * t + 6.830802734433174e-02
        p = (p * t - 1.1927366343598997e-01) * t + 1.2964515870356175e-01
        p = (p * t - 4.756229435308905e-02) * t - 1.3562110612459843e-01
        p = p * t + 1.2530080582697287
        e = tl.exp(-1.0 * a * a)
    else:
        p = (-2.01852105e-04 * t - 7.03791564e-04) * t + 1.96618098e-03
        p = (p * t + 2.5140238e-03) * t - 2.37921812e-02
        p = (p * t + 6.83089942e-02) * t - 1.19271167e-01
        p = (p * t + 1.29645169e-01) * t - 4.7562398e-02
        p = (p * t - 1.35621101e-01) * t + 1.25300801
        square = a * a
        low = tl.fma(a, a, -1.0 * square) * 1.4426950408889634 + square * 1.925963e-08
        high = square * 1.4426950408889634
        low += tl.fma(square, 1.4426950408889634, -1.0 * high)
        e = _exp2_sum(-1.0 * high, -1.0 * low)
    return tl.where(x < 0.5, 1 - tl.erf(x), e * p / (1 + 2 * a))


@triton.jit
def _erfinv(x):
    """The inverse of erf, 5 ulp.

    In float32 by the two polynomials of Giles, "Approximating the erfinv function", GPU Computing
    Gems (2010); in float64 by Winitzki's formula and Halley steps on erf, or on erfc near 1.
    """
    size = tl.abs(x)
    log = tl.log((1 - size) * (1 + size))
    if x.dtype == tl.float64:
        b = 4.330746750799873 + 0.5 * log
        y = tl.sqrt(tl.sqrt(b * b - log / 0.147) - b)
        y = tl.where(
            size < 0.25, size * (0.886226925452758 + 0.232013666534654 * size * size), y
        )
        for _ in tl.static_range(3):
            off = tl.where(size < 0.5, tl.erf(y) - size, (1 - size) - _erfc(y))
            step = off * 0.886226925452758 * tl.exp(y * y)
            y -= step / (1 + y * step)
    else:
        w = -2.5 - log
        p = (2.81022636e-08 * w + 3.43273939e-07) * w - 3.5233877e-06
        p = ((p * w - 4.39150654e-06) * w + 2.1858087e-04) * w - 1.25372503e-03
        p = ((p * w - 4.17768164e-03) * w + 2.46640727e-01) * w + 1.50140941
        w = tl.sqrt(-1.0 * log) - 3
        q = (-2.00214257e-04 * w + 1.00950558e-04) * w + 1.34934322e-03
        q = ((q * w - 3.67342844e-03) * w + 5.73950773e-03) * w - 7.6224613e-03
        q = ((q * w + 9.43887047e-03) * w + 1.00167406) * w + 2.83297682
        y = size * tl.where(log > -5, p, q)
    return _copysign(tl.where(size == 1, float("inf"), y), x)


@triton.jit
def _lgamma(x):
    """The logarithm of the gamma function's magnitude, absolute error 5e-7 and 1e-14 near 0.

    Stirling's series from 3 on, with fitted terms; below, the recurrence from x + 3; below 0, the
    reflection gamma(x) * gamma(1 - x) = pi / sin(pi * x).
    """
    z = tl.where(x < 0, 1 - x, x)
    w = tl.where(z < 3, z + 3, z)
    s = 1 / (w * w)
    if x.dtype == tl.float64:
        p = (
            -4.880263138745836e-03 * s + 3.700375394820536e-03
        ) * s - 1.7174074866606365e-03
        p = (p * s + 8.326101535475611e-04) * s - 5.949985453807092e-04
        p = (p * s + 7.93647610824745e-04) * s - 2.7777777613134805e-03
        p = p * s + 8.33333333333191e-02
    else:
        p = (7.08591077e-04 * s - 2.77438667e-03) * s + 8.33333135e-02
    y = (w - 0.5) * (tl.log(w) - 1) + 0.4189385332046727 + p / w
    y = tl.where(z < 3, y - tl.log(z * (z + 1) * (z + 2)), y)
    rest = tl.abs(x) - tl.floor(tl.abs(x))
    sin = tl.sin(3.141592653589793 * tl.minimum(rest, 1 - rest))
    reflected = 1.1447298858494002 - tl.log(sin) - y
    reflected = tl.where((rest > 0) | (x != x), reflected, float("inf"))
    return tl.where(x < 0, reflected, y)


@triton.jit
def _digamma(x):
    """The derivative of lgamma, absolute error 5e-7 and 1e-14 near 0.

    Its asymptotic series from 3 on, with fitted terms; below, the recurrence from x + 3; below 0,
    the reflection digamma(x) = digamma(1 - x) - pi / tan(pi * x).
    """
    z = tl.where(x < 0, 1 - x, x)
    w = tl.where(z < 3, z + 3, z)
    s = 1 / (w * w)
    if x.dtype == tl.float64:
        p = (
            2.1708035399145625e-01 * s - 1.575276605485407e-01
        ) * s + 6.111954781502217e-02
        p = (p * s - 1.9905394305932675e-02) * s + 7.535250429675628e-03
        p = (p * s - 4.1658535277135375e-03) * s + 3.9682455481728504e-03
        p = (p * s - 8.333333299043224e-03) * s + 8.333333333330992e-02
    else:
        p = (-2.96634878e-03 * s + 3.89351323e-03) * s - 8.33174214e-03
        p = p * s + 8.33333284e-02
    y = tl.log(w) - 0.5 / w - s * p
    y = tl.where(z < 3, y - (1 / z + 1 / (z + 1) + 1 / (z + 2)), y)
    rest = tl.abs(x) - tl.floor(tl.abs(x))
    angle = 3.141592653589793 * tl.where(rest > 0.5, rest - 1, rest)
    reflected = y + 3.141592653589793 * tl.cos(angle) / tl.sin(angle)
    reflected = tl.where(rest == 0, float("nan"), reflected)
    return tl.where(x < 0, reflected, y)


@triton.jit
def _logsigmoid(x):
    """log(sigmoid(x)), which neither overflows nor cancels in either tail."""
    return tl.minimum(x, 0.0, propagate_nan=tl.PropagateNan.ALL) - _log1p_exp(
        -1.0 * tl.abs(x)
    )


@triton.jit
def _softplus(x, beta, threshold):
    """log(1 + exp(beta * x)) / beta, and x where beta * x is above threshold."""
    z = x * beta
    y = tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL) + _log1p_exp(
        -1.0 * tl.abs(z)
    )
    return tl.where(z > threshold, x, y * (1.0 / beta))


@triton.jit
def _mish(x):
    """x * tanh(log(1 + exp(x))), where tanh(log(u)) = (u * u - 1) / (u * u + 1)."""
    e = tl.exp(tl.minimum(x, 20.0, propagate_nan=tl.PropagateNan.ALL))
    n = e * (e + 2)
    return x * (n / (n + 2))


@triton.jit
def _gelu_tanh(x):
    """0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))), spelled as a sigmoid."""
    return x * tl.sigmoid(1.5957691216057308 * x * (1 + 0.044715 * x * x))


@triton.jit
def _leaky_relu(x, negative_slope):
    """x, below 0 times negative_slope."""
    return tl.where(x > 0, x, x * negative_slope)


@triton.jit
def _elu(x, alpha):
    """x, below 0 alpha * (exp(x) - 1)."""
    return tl.where(x > 0, x, alpha * _expm1(x))


@triton.jit
def _celu(x, alpha):
    """x, below 0 alpha * (exp(x / alpha) - 1)."""
    return tl.where(x > 0, x, alpha * _expm1(x * (1.0 / alpha)))


@triton.jit
def _selu(x):
    """1.0507... times x, below 0 times 1.6732... * (exp(x) - 1)."""
    return tl.where(x > 0, 1.0507009873554805 * x, 1.7580993408473766 * _expm1(x))
