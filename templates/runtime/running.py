# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Statistics of rows in one pass, as device functions: Welford, and maxima with sums of exponentials."""

import triton
import triton.language as tl

from .reduce import nan_max


@triton.jit
def welford(mean, squares, x, mask, step):
    """Take `x` into a running mean and sum of squared distances from it (Welford, 1962).

    `step` counts from 1; lanes that are masked off stay as they are.
    """
    distance = tl.where(mask, x - mean, 0.0)
    mean += distance * (tl.full((), 1.0, mean.dtype) / step)
    squares += distance * tl.where(mask, x - mean, 0.0)
    return mean, squares


@triton.jit
def merge_welford(mean, squares, count, total):
    """Merge a tile of running means along its columns (Chan, Golub and LeVeque, 1979).

    Each is of `count` numbers, and all together of `total`.
    """
    merged = tl.sum(mean * (count / total), axis=1, keep_dims=True)
    distance = mean - merged
    squares = tl.sum(squares + count * distance * distance, axis=1, keep_dims=True)
    return merged, squares


@triton.jit
def moments(x, mask, count):
    """The mean of each row of a tile of `count` columns, the others 0, and the sum of squared distances from it."""
    mean = tl.sum(x, axis=1, keep_dims=True) / count
    distance = tl.where(mask, x - mean, 0.0)
    return mean, tl.sum(distance * distance, axis=1, keep_dims=True)


@triton.jit
def exp_shift(largest, finite: tl.constexpr):
    """What is subtracted before exp: the maximum, or 0 where that would give inf - inf.

    With `finite` an infinite maximum does not count either, as in logsumexp; else it makes NaN of
    the row, as in softmax.
    """
    if finite:
        return tl.where(tl.abs(largest) == float("inf"), 0.0, largest)
    else:
        return tl.where(largest == float("-inf"), 0.0, largest)


@triton.jit
def online_exp(largest, total, x, finite: tl.constexpr):
    """Take `x` into running maxima and sums of exp(x - maximum) (Milakov and Gimelshein, 2018).

    Neighbouring columns of `x` share one, as those of a thread, so that few sums are to be rescaled.
    """
    width: tl.constexpr = x.shape[1] // largest.shape[1]
    groups = tl.reshape(x, [largest.shape[0], largest.shape[1], width])
    larger = nan_max(largest, tl.reduce(groups, 2, nan_max))
    shift = exp_shift(larger, finite)
    added = tl.sum(tl.exp(groups - shift[:, :, None]), axis=2)
    return larger, total * tl.exp(largest - shift) + added


@triton.jit
def exp_normal(x):
    """exp(x), and 0 for what is subnormal: that takes half as many instructions as tl.exp."""
    return tl.exp2(x * 1.4426950408889634)


@triton.jit
def exp_sum(x, finite: tl.constexpr):
    """The largest of each row of a tile, and the sum of exp(x - largest), as `merge_online_exp` merges them."""
    largest = tl.reduce(x, 1, nan_max, keep_dims=True)
    powers = exp_normal(x - exp_shift(largest, finite))
    return largest, tl.sum(powers, axis=1, keep_dims=True)


@triton.jit
def merge_online_exp(largest, total, finite: tl.constexpr):
    """Merge a tile of running maxima and sums along its columns."""
    larger = tl.reduce(largest, 1, nan_max, keep_dims=True)
    parts = total * tl.exp(largest - exp_shift(larger, finite))
    return larger, tl.sum(parts, axis=1, keep_dims=True)
