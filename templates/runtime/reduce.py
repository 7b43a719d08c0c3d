# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Device functions that load tiles, reduce them along their columns, and exchange and add up partial results."""

import triton
import triton.language as tl


@triton.jit
def nan_max(a, b):
    """The larger of two, or NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def nan_min(a, b):
    """The smaller of two, or NaN if either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def multiply(a, b):
    return a * b


@triton.jit
def kahan_add(total, lost, x):
    """Add `x` to compensated running sums (Kahan, 1965): returns these and the rounding error so far.

    Neighbouring columns of `x` share one, as those of a thread.
    """
    width: tl.constexpr = x.shape[1] // total.shape[1]
    groups = tl.reshape(x, [x.shape[0], total.shape[1], width])
    x = tl.sum(groups, axis=2) - lost
    larger = total + x
    # Of infinities and NaN nothing is known.
    return larger, tl.where(tl.abs(larger) < float("inf"), (larger - total) - x, 0.0)


@triton.jit
def add_at(sums, place: tl.constexpr, x):
    """Add `x` to one of several running sums."""
    return sums[:place] + (sums[place] + x,) + sums[place + 1 :]  # noqa: RUF005


@triton.jit
def sum_pair(a, b):
    """The sums of two tiles along their columns, [BLOCK_M, 1] each, in one reduction."""
    return tl.split(tl.sum(tl.join(a, b), axis=1, keep_dims=True))


@triton.jit
def read_once(pointers, mask, other):
    """Load a tile that is not read again: evict it from L2 first."""
    return tl.load(pointers, mask=mask, other=other, eviction_policy="evict_first")


@triton.jit
def read_again(pointers, mask, other):
    """Load a tile that a later pass of the program reads again: keep it in L2 if it fits."""
    return tl.load(pointers, mask=mask, other=other, eviction_policy="evict_last")


@triton.jit
def argmax(value, at):
    """Per row, the largest of a tile and the first position of it; [BLOCK_M, 1] each.

    NaN is the largest, as it is in torch.
    """
    largest = tl.reduce(value, 1, nan_max, keep_dims=True)
    leads = (value == largest) | (value != value)
    last = tl.max(at, axis=1, keep_dims=True)
    return largest, tl.min(tl.where(leads, at, last), axis=1, keep_dims=True)


@triton.jit
def argmin(value, at):
    """Per row, the smallest of a tile and the first position of it; [BLOCK_M, 1] each.

    NaN is the smallest, as it is in torch.
    """
    smallest = tl.reduce(value, 1, nan_min, keep_dims=True)
    leads = (value == smallest) | (value != value)
    last = tl.max(at, axis=1, keep_dims=True)
    return smallest, tl.min(tl.where(leads, at, last), axis=1, keep_dims=True)


@triton.jit
def argmax_update(best, best_at, value, at):
    """The larger of two with its position; of equals the first, and NaN is the largest."""
    leads = (value > best) | ((value != value) & (best == best))
    return tl.where(leads, value, best), tl.where(leads, at, best_at)


@triton.jit
def argmin_update(best, best_at, value, at):
    """The smaller of two with its position; of equals the first, and NaN is the smallest."""
    leads = (value < best) | ((value != value) & (best == best))
    return tl.where(leads, value, best), tl.where(leads, at, best_at)


@triton.jit
def lowest(dtype: tl.constexpr):
    """The lowest value of a dtype."""
    if dtype.is_floating():
        return tl.full((), float("-inf"), dtype)
    else:
        return tl.full((), -(2**63), dtype)


@triton.jit
def highest(dtype: tl.constexpr):
    """The highest value of a dtype."""
    if dtype.is_floating():
        return tl.full((), float("inf"), dtype)
    else:
        return tl.full((), 2**63 - 1, dtype)


@triton.jit
def welford(mean, squares, x, mask, step):
    """Update a running mean and sum of squared distances from it (Welford, 1962).

    `step` counts from 1; lanes that are masked off stay as they are.
    """
    distance = tl.where(mask, x - mean, 0.0)
    mean += distance * (tl.full((), 1.0, mean.dtype) / step)
    squares += distance * tl.where(mask, x - mean, 0.0)
    return mean, squares


@triton.jit
def merge_welford(mean, squares, count, total):
    """Merge the running means of a tile's columns (Chan, Golub and LeVeque, 1979). Each has `count` elements, all
    together `total`.
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
    """Update running maxima and sums of exp(x - maximum) (Milakov and Gimelshein, 2018).

    Neighbouring columns of `x` share one, as those of a thread, so that few sums are to be rescaled.
    """
    width: tl.constexpr = x.shape[1] // largest.shape[1]
    groups = tl.reshape(x, [largest.shape[0], largest.shape[1], width])
    larger = nan_max(largest, tl.reduce(groups, 2, nan_max))
    shift = exp_shift(larger, finite)
    added = tl.sum(tl.exp(groups - shift[:, :, None]), axis=2)
    return larger, total * tl.exp(largest - shift) + added


@triton.jit
def exp_ftz(x):
    """exp(x) that flushes subnormal results to 0, in half the instructions of tl.exp."""
    return tl.exp2(x * 1.4426950408889634)


@triton.jit
def exp_sum(x, finite: tl.constexpr):
    """The largest of each row of a tile, and the sum of exp(x - largest), as `merge_online_exp` merges them."""
    largest = tl.reduce(x, 1, nan_max, keep_dims=True)
    powers = exp_ftz(x - exp_shift(largest, finite))
    return largest, tl.sum(powers, axis=1, keep_dims=True)


@triton.jit
def merge_online_exp(largest, total, finite: tl.constexpr):
    """Merge a tile of running maxima and sums along its columns."""
    larger = tl.reduce(largest, 1, nan_max, keep_dims=True)
    partials = total * tl.exp(largest - exp_shift(larger, finite))
    return larger, tl.sum(partials, axis=1, keep_dims=True)


@triton.jit
def publish(slots, number, mask):
    """Publish a float32 to other CTAs: value and flag share one word, so that a reader of the flag has the value."""
    word = number.to(tl.uint32, bitcast=True).to(tl.int64) + 0x100000000
    tl.atomic_xchg(slots, word, mask=mask, sem="relaxed")


@triton.jit
def publish_pair(slots, one, other, mask):
    """Publish two float32 in one word. 0 means empty: bits are flipped, and no NaN has all bits set."""
    one = tl.where(one == one, one, float("nan"))
    word = one.to(tl.uint32, bitcast=True).to(tl.int64) << 32
    word |= other.to(tl.uint32, bitcast=True).to(tl.int64)
    tl.atomic_xchg(slots, ~word, mask=mask, sem="relaxed")


@triton.jit
def wait(slots, mask):
    """Wait until all slots are filled, and load their words."""
    words = tl.load(slots, mask=mask, other=1, volatile=True)
    while tl.max(tl.max((words == 0).to(tl.int32), axis=1), axis=0) == 1:
        words = tl.load(slots, mask=mask, other=1, volatile=True)
    return words


@triton.jit
def columns_of(n: tl.constexpr, least: tl.constexpr):
    """Indices of `n` slots, padded to `least` or more: Triton merges pairs slowly within less than a warp."""
    return tl.arange(0, max(least, triton.next_power_of_2(n)))[None, :]


@triton.jit
def receive(slots, n: tl.constexpr, mask, absent):
    """Wait for the first `n` slots, along columns; other lanes and masked ones are `absent` (the identity)."""
    columns = columns_of(n, 1)
    mask = mask & (columns < n)
    number = wait(slots + columns, mask).to(tl.uint32).to(tl.float32, bitcast=True)
    return tl.where(mask, number, absent)


@triton.jit
def receive_pair(slots, n: tl.constexpr, mask, absent, other, least: tl.constexpr = 32):
    """As `receive`, for the values of `publish_pair`; `other` is the identity of the second ones."""
    columns = columns_of(n, least)
    mask = mask & (columns < n)
    words = ~wait(slots + columns, mask)
    one = (words >> 32).to(tl.uint32).to(tl.float32, bitcast=True)
    two = words.to(tl.uint32).to(tl.float32, bitcast=True)
    return tl.where(mask, one, absent), tl.where(mask, two, other)


@triton.jit
def reduce_partials(
    partial_ptr, sum_ptr, n_partials, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Add up [n_partials, n] to [n], in the same order always."""
    cols = (tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    col_mask = cols < n
    total = tl.zeros([BLOCK_M, BLOCK_N], partial_ptr.dtype.element_ty)
    for start in range(0, n_partials, BLOCK_M):
        partials = start + tl.arange(0, BLOCK_M)[:, None]
        total += tl.load(
            partial_ptr + partials * n + cols,
            mask=(partials < n_partials) & col_mask,
            other=0,
        )
    total = tl.sum(total, axis=0, keep_dims=True)
    tl.store(sum_ptr + cols, total.to(sum_ptr.dtype.element_ty), mask=col_mask)


@triton.jit
def reduce_partials_kernel(
    partial_ptr, sum_ptr, other_partial_ptr, other_sum_ptr,
    n_partials, n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One sum, and another where there is one."""
    reduce_partials(partial_ptr, sum_ptr, n_partials, n, BLOCK_M, BLOCK_N)
    if other_sum_ptr is not None:
        reduce_partials(
            other_partial_ptr, other_sum_ptr, n_partials, n, BLOCK_M, BLOCK_N
        )
