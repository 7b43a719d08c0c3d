"""Device functions of the reductions: how tiles are combined along their columns.

tritongen copies the ones that a kernel needs, and those that they call, into its module.
"""

import triton
import triton.language as tl


@triton.jit
def _nan_max(a, b):
    """The larger of two, or NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _nan_min(a, b):
    """The smaller of two, or NaN if either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _product(a, b):
    return a * b


@triton.jit
def _leading_max(value, at, other, other_at):
    """The larger of two with its position. NaN is the largest, and the first of equals leads."""
    tie = (value == other) | ((value != value) & (other != other))
    leads = (value > other) | ((value != value) & (other == other)) | (tie & (at < other_at))
    return tl.where(leads, value, other), tl.where(leads, at, other_at)


@triton.jit
def _leading_min(value, at, other, other_at):
    """The smaller of two with its position. NaN is the smallest, and the first of equals leads."""
    tie = (value == other) | ((value != value) & (other != other))
    leads = (value < other) | ((value != value) & (other == other)) | (tie & (at < other_at))
    return tl.where(leads, value, other), tl.where(leads, at, other_at)


@triton.jit
def _argmax(value, at):
    """Per row, the largest of a tile and its position; [BLOCK_M, 1] each."""
    return tl.reduce((value, tl.broadcast_to(at, value.shape)), 1, _leading_max, keep_dims=True)


@triton.jit
def _argmin(value, at):
    """Per row, the smallest of a tile and its position; [BLOCK_M, 1] each."""
    return tl.reduce((value, tl.broadcast_to(at, value.shape)), 1, _leading_min, keep_dims=True)


@triton.jit
def _welford(mean, squares, count, x, mask):
    """Take `x` into a running mean and sum of squared distances from it (Welford, 1962)."""
    count += mask.to(count.dtype)
    distance = x - mean
    mean += tl.where(mask, distance / count, 0.0)
    squares += tl.where(mask, distance * (x - mean), 0.0)
    return mean, squares, count


@triton.jit
def _welford_merge(mean, squares, count):
    """Merge a tile of running means along its columns (Chan, Golub and LeVeque, 1979)."""
    total = tl.sum(count, axis=1, keep_dims=True)
    merged = tl.sum(mean * (count / total), axis=1, keep_dims=True)
    distance = mean - merged
    squares = tl.sum(squares + count * distance * distance, axis=1, keep_dims=True)
    return merged, squares, total


@triton.jit
def _finite(x):
    """`x`, or 0 where it is infinite: what may be subtracted from an infinity."""
    return tl.where(tl.abs(x) == float("inf"), 0.0, x)


@triton.jit
def _online_exp(largest, total, x):
    """Take `x` into a running maximum and sum of exp(x - maximum) (Milakov and Gimelshein, 2018)."""
    larger = tl.maximum(largest, x)
    shift = _finite(larger)
    return larger, total * tl.exp(largest - shift) + tl.exp(x - shift)


@triton.jit
def _online_exp_merge(largest, total):
    """Merge a tile of running maxima and sums along its columns."""
    larger = tl.max(largest, axis=1, keep_dims=True)
    return larger, tl.sum(total * tl.exp(largest - _finite(larger)), axis=1, keep_dims=True)


@triton.jit
def _lowest(dtype: tl.constexpr):
    """What every value of a dtype is at least."""
    if dtype.is_floating():
        return tl.full((), float("-inf"), dtype)
    else:
        return tl.full((), -(2**63), dtype)


@triton.jit
def _highest(dtype: tl.constexpr):
    """What every value of a dtype is at most."""
    if dtype.is_floating():
        return tl.full((), float("inf"), dtype)
    else:
        return tl.full((), 2**63 - 1, dtype)
