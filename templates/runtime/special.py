# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Inverse, hyperbolic and special functions, and activations, as device functions.

What math.py says of its own holds for these too.
"""

import torch
import triton
import triton.language as tl

from .math import (
    copysign,
    exp2_sum,
    expm1,
    like,
    log1p,
    log1p_exp,
    maximum,
    minimum,
    round_even,
    signbit,
)

# Decided at import: torch.compile's workers, which compile kernels, have no driver to ask.
_NVIDIA = tl.constexpr(
    torch.version.cuda is not None and not triton.knobs.runtime.interpret
)


@triton.jit
def atan_unit(x):
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
def atan(x):
    """The inverse tangent, 2 ulp; above 1 by atan(x) = pi / 2 - atan(1 / x)."""
    size = tl.abs(x)
    y = atan_unit(tl.where(size > 1, 1 / size, size))
    return copysign(tl.where(size > 1, 1.5707963267948966 - y, y), x)


@triton.jit
def atan2(y, x):
    """The angle of the point (x, y), 3 ulp, with the signs that C gives zeros and infinities."""
    y, x = like(y, x), like(x, y)
    a, b = tl.abs(x), tl.abs(y)
    large, small = maximum(a, b), minimum(a, b)
    ratio = tl.where(large == 0, 0.0, tl.where(large == small, 1.0, small / large))
    angle = atan_unit(ratio)
    angle = tl.where(b > a, 1.5707963267948966 - angle, angle)
    angle = tl.where(signbit(x), 3.141592653589793 - angle, angle)
    return copysign(angle, y)


@triton.jit
def asin_half(x):
    """asin for x in [0, 1/2], 2 ulp: a polynomial, and in float64 one Newton step."""
    s = x * x
    p = (3.80850248e-02 * s + 2.65545417e-02) * s + 4.50013801e-02
    y = x + x * s * ((p * s + 7.49885514e-02) * s + 1.66666731e-01)
    if x.dtype == tl.float64:
        y += (x - tl.sin(y)) / tl.cos(y)
    return y


@triton.jit
def asin(x):
    """The inverse sine, 3 ulp; above 1/2 by asin(x) = pi / 2 - 2 * asin(sqrt((1 - x) / 2))."""
    size = tl.abs(x)
    y = asin_half(tl.where(size > 0.5, tl.sqrt(0.5 * (1 - size)), size))
    return copysign(tl.where(size > 0.5, 1.5707963267948966 - 2 * y, y), x)


@triton.jit
def acos(x):
    """The inverse cosine, 3 ulp; outside [-1/2, 1/2] by acos(x) = 2 * asin(sqrt((1 - x) / 2))."""
    size = tl.abs(x)
    y = asin_half(tl.where(size > 0.5, tl.sqrt(0.5 * (1 - size)), size))
    outer = tl.where(x > 0, 2 * y, 3.141592653589793 - 2 * y)
    return tl.where(size > 0.5, outer, 1.5707963267948966 - copysign(y, x))


@triton.jit
def half_exp(x):
    """exp(x) / 2 for x >= 0, 3 ulp, infinite only where that itself overflows."""
    x = tl.minimum(x, 1000.0, propagate_nan=tl.PropagateNan.ALL) - 0.75
    if x.dtype == tl.float64:
        y = tl.exp(x)
    else:
        high = x * 1.4426950408889634
        y = exp2_sum(
            high, tl.fma(x, 1.4426950408889634, -1.0 * high) + x * 1.925963e-08
        )
    return y * 1.0585000083063374  # exp(0.75) / 2


@triton.jit
def sinh(x):
    """The hyperbolic sine, 3 ulp; near 0 from expm1, where exponentials would cancel."""
    e = expm1(x)
    half = half_exp(tl.abs(x))
    return tl.where(
        tl.abs(x) < 1, 0.5 * (e + e / (e + 1)), copysign(half - 0.25 / half, x)
    )


@triton.jit
def cosh(x):
    """The hyperbolic cosine, 2 ulp."""
    half = half_exp(tl.abs(x))
    return half + 0.25 / half


@triton.jit
def tanh(x):
    """The hyperbolic tangent, 3 ulp, from expm1(2 * x); it is 1 from 20 on."""
    e = expm1(2 * tl.minimum(x, 20.0, propagate_nan=tl.PropagateNan.ALL))
    return e / (e + 2)


@triton.jit
def tanh_half(x):
    """tanh(x) of float32 as accurate as float16: the instruction of NVIDIA GPUs, off by 2**-11 of the result.

    Elsewhere the square of a reciprocal root, off by 5e-7, which takes two instructions where a division takes seven.
    """
    if _NVIDIA:
        y = tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1
        )
    else:
        root = tl.rsqrt(tl.exp2(2.885390081777927 * x) + 1)  # 2 / log(2)
        y = 1 - 2 * (root * root)
    return y


@triton.jit
def tanh_of(x, dtype: tl.constexpr):
    """tanh(x) of scores whose factors have `dtype`; for half precision as accurate as float16."""
    is_half = dtype == tl.float16 or dtype == tl.bfloat16
    if is_half and x.dtype == tl.float32:
        y = tanh_half(x)
    else:
        y = tanh(x)
    return y


@triton.jit
def asinh(x):
    """The inverse hyperbolic sine, 4 ulp, from log1p; above 1e8 it is log(2 * x)."""
    size = tl.abs(x)
    s = size * size
    y = log1p(size + s / (1 + tl.sqrt(1 + s)))
    return copysign(tl.where(size > 1e8, tl.log(size) + 0.6931471805599453, y), x)


@triton.jit
def acosh(x):
    """The inverse hyperbolic cosine, 4 ulp, from log1p; above 1e8 it is log(2 * x)."""
    t = x - 1
    y = log1p(t + tl.sqrt(t * (t + 2)))
    y = tl.where(x > 1e8, tl.log(x) + 0.6931471805599453, y)
    return tl.where(x < 1, float("nan"), y)


@triton.jit
def atanh(x):
    """The inverse hyperbolic tangent, 4 ulp, from log1p."""
    size = tl.abs(x)
    return copysign(0.5 * log1p(2 * size / (1 - size)), x)


@triton.jit
def sinc(x):
    """sin(pi * x) / (pi * x), 1 at 0, 3 ulp: pi multiplies only the fraction of x."""
    whole = round_even(x)
    sin = tl.sin(3.141592653589793 * (x - whole))
    sin = tl.where(tl.floor(0.5 * whole) == 0.5 * whole, sin, -1.0 * sin)
    return tl.where(x == 0, 1.0, sin / (3.141592653589793 * x))


@triton.jit
def erfc(x):
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
        e = exp2_sum(-1.0 * high, -1.0 * low)
    return tl.where(x < 0.5, 1 - tl.erf(x), e * p / (1 + 2 * a))


@triton.jit
def erfinv(x):
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
            off = tl.where(size < 0.5, tl.erf(y) - size, (1 - size) - erfc(y))
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
    return copysign(tl.where(size == 1, float("inf"), y), x)


@triton.jit
def lgamma_low(x):
    """lgamma(x) between 0.5 and 3, to full relative accuracy near its zeros at 1 and 2."""
    w = (x - 1.25) / (x + 1.25)
    if x.dtype == tl.float64:
        p = -0.075249307835439233 * w + 0.059889827137928092
        p = (p * w + 0.011770500304238041) * w + 0.0015193783977921573
        p = (p * w - 0.038142081545440749) * w + 0.031575235572699319
        p = (p * w - 0.026672060159742834) * w + 0.027062409796184676
        p = (p * w - 0.033338533399491437) * w + 0.03188437333808794
        p = (p * w - 0.037992407142875426) * w + 0.036359827063953888
        p = (p * w - 0.044838634976285749) * w + 0.042550608572669839
        p = (p * w - 0.054626719911515201) * w + 0.051249636604092444
        p = (p * w - 0.069885004482536053) * w + 0.06438030189207225
        p = (p * w - 0.09697900088879062) * w + 0.086348706979379047
        p = (p * w - 0.15859622433242859) * w + 0.1296399016142889
        p = (p * w - 0.46139596109204012) * w + 0.5241164609163369
    else:
        p = -0.0865827538 * w + 0.0761627889
        p = (p * w - 0.0634099582) * w + 0.0601548922
        p = (p * w - 0.0975094395) * w + 0.0866288478
        p = (p * w - 0.158579562) * w + 0.129633519
        p = (p * w - 0.461396096) * w + 0.524116484
    return (x - 1) * (x - 2) * p + 0.0  # not -0.0 at 1


@triton.jit
def lgamma(x):
    """The logarithm of the gamma function's magnitude, 8 ulp, in float64 40; below 0, absolute error 5e-7 and 1e-14.

    Stirling's series from 3 on, with fitted terms; a fit from 0.5 to 3; below, the recurrence from
    x + 3; below 0, the reflection gamma(x) * gamma(1 - x) = pi / sin(pi * x).
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
    y = tl.where(z < 0.5, y - tl.log(z * (z + 1) * (z + 2)), y)
    y = tl.where((z >= 0.5) & (z < 3), lgamma_low(z), y)
    rest = tl.abs(x) - tl.floor(tl.abs(x))
    sin = tl.sin(3.141592653589793 * tl.minimum(rest, 1 - rest))
    reflected = 1.1447298858494002 - tl.log(sin) - y
    reflected = tl.where((rest > 0) | (x != x), reflected, float("inf"))
    return tl.where(x < 0, reflected, y)


@triton.jit
def digamma(x):
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
def logsigmoid(x):
    """log(sigmoid(x)), which neither overflows nor cancels in either tail."""
    return tl.minimum(x, 0.0, propagate_nan=tl.PropagateNan.ALL) - log1p_exp(
        -1.0 * tl.abs(x)
    )


@triton.jit
def softplus(x, beta, threshold):
    """log(1 + exp(beta * x)) / beta, and x where beta * x is above threshold."""
    z = x * beta
    y = tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL) + log1p_exp(
        -1.0 * tl.abs(z)
    )
    return tl.where(z > threshold, x, y * (1.0 / beta))


@triton.jit
def mish(x):
    """x * tanh(log(1 + exp(x))), where tanh(log(u)) = (u * u - 1) / (u * u + 1)."""
    e = tl.exp(tl.minimum(x, 20.0, propagate_nan=tl.PropagateNan.ALL))
    n = e * (e + 2)
    return x * (n / (n + 2))


@triton.jit
def normal_cdf(x):
    """The normal distribution function, off by at most 6e-8, as rounding leaves 0.5 * (1 + erf).

    In float32 by a polynomial fitted to log2(erfc(a / sqrt(2)) / 2) on [0, 5] and falling after it:
    12 instructions, where erf takes 32. Of the two sides the smaller is computed, so that nothing cancels.
    """
    if x.dtype == tl.float64:
        return 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
    a = tl.abs(x)
    p = (
        -1.6413325738540152e-06 * a + 2.639946796989534e-05
    ) * a - 1.3262522406876087e-04
    p = (p * a - 2.4383819254580885e-04) * a + 7.172946818172932e-03
    p = (p * a - 5.2552636712789536e-02) * a - 4.5919510722160339e-01
    smaller = tl.exp2((p * a - 1.1511062383651733) * a - 1.0)
    return tl.where(x < 0, smaller, 1.0 - smaller)


@triton.jit
def gelu_tanh(x):
    """0.5 * x * (1 + tanh(u)) with u = sqrt(2 / pi) * (x + 0.044715 * x**3), as x / (1 + exp(-2 * u))."""
    if x.dtype == tl.float64:
        return x / (1.0 + tl.exp(-1.5957691216057308 * x * (1 + 0.044715 * x * x)))
    return x / (1.0 + tl.exp2(x * (-2.302208198144325 - 0.10294323958002348 * (x * x))))


@triton.jit
def silu(x):
    """x * sigmoid(x), by one division and exp2: 8 instructions, where x * tl.sigmoid(x) takes 13."""
    if x.dtype == tl.float64:
        return x / (1.0 + tl.exp(-x))
    return x / (1.0 + tl.exp2(-1.4426950408889634 * x))


@triton.jit
def leaky_relu(x, negative_slope):
    """x, below 0 times negative_slope."""
    return tl.where(x > 0, x, x * negative_slope)


@triton.jit
def elu(x, alpha):
    """x, below 0 alpha * (exp(x) - 1)."""
    return tl.where(x > 0, x, alpha * expm1(x))


@triton.jit
def celu(x, alpha):
    """x, below 0 alpha * (exp(x / alpha) - 1)."""
    return tl.where(x > 0, x, alpha * expm1(x * (1.0 / alpha)))


@triton.jit
def selu(x):
    """1.0507... times x, below 0 times 1.6732... * (exp(x) - 1)."""
    return tl.where(x > 0, 1.0507009873554805 * x, 1.7580993408473766 * expm1(x))
