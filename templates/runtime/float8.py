# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Rounding to float8, as device functions."""

import triton
import triton.language as tl

_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def nearest_float8(x, dtype: tl.constexpr):
    """x rounded to the nearest float8, ties to even; NaN has all mantissa bits set."""
    digits: tl.constexpr = 2 if dtype == tl.float8e5 else 3
    least: tl.constexpr = 113 if dtype == tl.float8e5 else 121
    bits = x.to(tl.int32, bitcast=True)
    exponent = tl.maximum(bits & 0x7F800000, least << 23)
    # Three halves of a power of two so large that the digits which do not stay are lost in the sum.
    large = ((exponent + ((23 - digits) << 23)) | 0x400000).to(tl.float32, bitcast=True)
    nan = ((bits | 0x7FFFFFFF) & (-1 << (23 - digits))).to(tl.float32, bitcast=True)
    return tl.where(x == x, (x + large) - large, nan)


@triton.jit
def to_float8(x, dtype: tl.constexpr):
    """x in a float8, whose largest stands for all that is larger, infinities included; NaN stays."""
    largest: tl.constexpr = 57344.0 if dtype == tl.float8e5 else 448.0
    x = tl.clamp(x.to(tl.float32), -largest, largest, propagate_nan=tl.PropagateNan.ALL)
    if _INTERPRETED:  # Triton's interpreter does not round to the nearest.
        x = nearest_float8(x, dtype)
    return x.to(dtype)
