# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The online softmax of attention in base 2, as device functions."""

import triton
import triton.language as tl

from .running import exp_shift


@triton.jit
def exp_below(x, y):
    """exp(x - y), where there are fewer numbers y than x: in base 2, for a multiplication and a subtraction in one."""
    return exp_of(x, in_base_2(y))


# The maximum of a row is rounded when it is scaled to base 2, but exp2(s * scale - maximum)
# is one FMA, whose product is not: far from 0, the power of the maximum itself is not 1.
# Down to this number it is at most 2**64; lower down it would overflow. So, in float32,
# scores below -1.1e9 count as minus infinity, except where a mask may make them (`LOW`).
LOWEST: tl.constexpr = tl.constexpr(-1.5 * 2**30)


@triton.jit
def first_max(ROWS: tl.constexpr, dtype: tl.constexpr):
    """The running maximum of each row before any score."""
    lowest: tl.constexpr = float("-inf") if dtype == tl.float64 else LOWEST
    return tl.full([ROWS, 1], lowest, dtype)


@triton.jit
def exp_of(x, shift):
    """exp(x) by the power of two whose exponent is less by a shift; float64 has base e throughout."""
    return exp_in_base(in_base_2(x) - shift)


@triton.jit
def in_base_2(x):
    """The exponent to 2 that gives exp(x)."""
    return x if x.dtype == tl.float64 else x * 1.4426950408889634


@triton.jit
def in_base_e(x):
    """The exponent to e that gives 2 to the power of x: of the largest of a row, minus infinity where none is above
    `LOWEST`.
    """
    if x.dtype != tl.float64:
        x = tl.where(x == LOWEST, float("-inf"), x * 0.6931471805599453)
    return x


@triton.jit
def exp_in_base(x):
    """What `x` is the exponent of: in base 2, and of float64 in base e."""
    return tl.exp(x) if x.dtype == tl.float64 else tl.exp2(x)


@triton.jit
def online_max(largest, x):
    """The largest of rows so far, a tile of them included, what exponentials are below, and what sums so far shrink to.

    All are in base 2, in which the largest is rounded once, so that what a sum is below is known to the last digit.
    Nothing is below the infinities: the sum of a row is 0 as long as that has minus infinity alone.
    """
    larger = tl.maximum(largest, in_base_2(tl.max(x, 1, keep_dims=True)))
    shift = exp_shift(larger, True)
    return larger, shift, exp_in_base(largest - shift)


@triton.jit
def merge_max(largest, parts):
    """The largest so far of a row, some of its parts [parts, 1] included, what their sums shrink to, and what sums so
    far do; all in base 2, as `online_max` gives it.
    """
    larger = tl.maximum(largest, tl.max(parts, 0, keep_dims=True))
    shift = exp_shift(larger, True)
    return larger, exp_in_base(parts - shift), exp_in_base(largest - shift)


# A mask of finite numbers makes scores that may be lower. Below this number float32 are at least
# 32 apart, so that of rows below it the exponential of the largest is 1, and of other scores
# nothing beside it, to any base. To base 2 itself nothing is scaled, rounded or overflows.
LOW: tl.constexpr = tl.constexpr(-(2.0**28))


@triton.jit
def first_max_low(ROWS: tl.constexpr, dtype: tl.constexpr):
    """`first_max` of scores that may be low."""
    return tl.full([ROWS, 1], float("-inf"), dtype)


@triton.jit
def shift_low(largest):
    """What exponentials of rows of any size are below, and what takes these rows to base 2, in which that is."""
    factor = tl.where(largest < LOW, 1.0, 1.4426950408889634)
    return scaled_low(exp_shift(largest, True), factor), factor


@triton.jit
def scaled_low(x, factor):
    """Numbers of rows in base 2, rounded before anything is taken away from them."""
    return x if x.dtype == tl.float64 else tl.fma(x, factor, 0.0)


@triton.jit
def exp_low(x, shift, factor):
    """`exp_of`, of rows that have a factor."""
    return tl.exp(x - shift) if x.dtype == tl.float64 else tl.exp2(x * factor - shift)


@triton.jit
def online_max_low(largest, x):
    """`online_max` of scores that may be low: the largest is not in base 2, and rows have a factor each for that."""
    larger = tl.maximum(largest, tl.max(x, 1, keep_dims=True))
    shift, factor = shift_low(larger)
    return larger, shift, factor, exp_in_base(scaled_low(largest, factor) - shift)


@triton.jit
def merge_max_low(largest, parts):
    """`merge_max` of what `online_max_low` gives."""
    larger = tl.maximum(largest, tl.max(parts, 0, keep_dims=True))
    shift, factor = shift_low(larger)
    shrink = exp_in_base(scaled_low(parts, factor) - shift)
    return larger, shrink, exp_in_base(scaled_low(largest, factor) - shift)


@triton.jit
def in_base_e_low(largest):
    """What sums of rows are below, to base e: the largest as it was rounded in base 2."""
    if largest.dtype != tl.float64:
        rounded = tl.fma(largest, 1.4426950408889634, 0.0) * 0.6931471805599453
        largest = tl.where(largest < LOW, largest, rounded)
    return largest
