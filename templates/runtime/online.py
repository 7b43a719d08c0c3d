# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The online softmax of attention in base 2, as device functions."""

import triton
import triton.language as tl

from .reduce import exp_shift


@triton.jit
def exp2_sub(x, y):
    """exp(x - y) as exp2(fma(x, log2e, -y * log2e)), for a y with fewer elements than x."""
    return exp2_shifted(x, to_base2(y))


# The maximum of a row is rounded when it is scaled to base 2, but exp2(s * scale - maximum)
# is one FMA, whose product is not: far from 0, the power of the maximum itself is not 1.
# Down to this number it is at most 2**64; lower down it would overflow. So, in float32,
# scores below -1.1e9 count as minus infinity, except where a mask may make them (`LOW`).
LOWEST: tl.constexpr = tl.constexpr(-1.5 * 2**30)


@triton.jit
def init_row_max(ROWS: tl.constexpr, dtype: tl.constexpr):
    """The initial value of the running maximum of each row."""
    lowest: tl.constexpr = float("-inf") if dtype == tl.float64 else LOWEST
    return tl.full([ROWS, 1], lowest, dtype)


@triton.jit
def exp2_shifted(x, shift):
    """exp(x) / 2**shift as exp2(x * log2e - shift); in base e throughout for float64."""
    return exp_in_base(to_base2(x) - shift)


@triton.jit
def to_base2(x):
    """x * log2e, so that exp2 of it is exp(x); x itself for float64."""
    return x if x.dtype == tl.float64 else x * 1.4426950408889634


@triton.jit
def base2_to_e(x):
    """A running maximum from base 2 back to base e: x * ln2, and minus infinity for a row without scores (`LOWEST`)."""
    if x.dtype != tl.float64:
        x = tl.where(x == LOWEST, float("-inf"), x * 0.6931471805599453)
    return x


@triton.jit
def exp_in_base(x):
    """exp2(x); exp(x) for float64."""
    return tl.exp(x) if x.dtype == tl.float64 else tl.exp2(x)


@triton.jit
def online_max(largest, x):
    """Update the running maximum of rows (base 2) with a tile of scores.

    Returns the new maximum, the shift to subtract before exp2, and the factor that rescales old sums. The maximum is
    rounded to base 2 once, so that the shift is exact. Where it is infinite the shift is 0: the sum of a row is 0 as
    long as that has minus infinity alone.
    """
    larger = tl.maximum(largest, to_base2(tl.max(x, 1, keep_dims=True)))
    shift = exp_shift(larger, True)
    return larger, shift, exp_in_base(largest - shift)


@triton.jit
def merge_max(largest, partials):
    """Merge the running maxima of splits [partials, 1] into the row's, all in base 2. Returns the new maximum, and
    the factors that rescale the partial sums and the old sums.
    """
    larger = tl.maximum(largest, tl.max(partials, 0, keep_dims=True))
    shift = exp_shift(larger, True)
    return larger, exp_in_base(partials - shift), exp_in_base(largest - shift)


# A mask of finite numbers makes scores that may be lower. Below this number float32 are at least
# 32 apart, so that of rows below it the exponential of the largest is 1, and of other scores
# nothing beside it, to any base. To base 2 itself nothing is scaled, rounded or overflows.
LOW: tl.constexpr = tl.constexpr(-(2.0**28))


@triton.jit
def init_row_max_low(ROWS: tl.constexpr, dtype: tl.constexpr):
    """`init_row_max` of scores that may be low."""
    return tl.full([ROWS, 1], float("-inf"), dtype)


@triton.jit
def exp_shift_low(largest):
    """The shift to subtract (base 2), and the factor that takes scores to base 2, for each row."""
    factor = tl.where(largest < LOW, 1.0, 1.4426950408889634)
    return scaled_low(exp_shift(largest, True), factor), factor


@triton.jit
def scaled_low(x, factor):
    """Per-row values in base 2, rounded before anything is subtracted."""
    return x if x.dtype == tl.float64 else tl.fma(x, factor, 0.0)


@triton.jit
def exp2_shifted_low(x, shift, factor):
    """`exp2_shifted`, with a scale factor for each row."""
    return tl.exp(x - shift) if x.dtype == tl.float64 else tl.exp2(x * factor - shift)


@triton.jit
def online_max_low(largest, x):
    """`online_max` of scores that may be low: the largest is not in base 2, and rows have a factor each for that."""
    larger = tl.maximum(largest, tl.max(x, 1, keep_dims=True))
    shift, factor = exp_shift_low(larger)
    return larger, shift, factor, exp_in_base(scaled_low(largest, factor) - shift)


@triton.jit
def merge_max_low(largest, partials):
    """`merge_max` of the results of `online_max_low`."""
    larger = tl.maximum(largest, tl.max(partials, 0, keep_dims=True))
    shift, factor = exp_shift_low(larger)
    shrink = exp_in_base(scaled_low(partials, factor) - shift)
    return larger, shrink, exp_in_base(scaled_low(largest, factor) - shift)


@triton.jit
def base2_to_e_low(largest):
    """The shift of a row's sums in base e: the maximum as it was rounded in base 2."""
    if largest.dtype != tl.float64:
        rounded = tl.fma(largest, 1.4426950408889634, 0.0) * 0.6931471805599453
        largest = tl.where(largest < LOW, largest, rounded)
    return largest
