# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""How tiles are combined along their columns, as device functions: Welford, online softmax, argmax, and sums that
several programs of one launch exchange.
"""

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
def add(total, lost, x):
    """Take `x` into running sums, and into what additions have rounded up so far (Kahan, 1965).

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
    """Some sums, with `x` added to one of them."""
    return sums[:place] + (sums[place] + x,) + sums[place + 1 :]  # noqa: RUF005


@triton.jit
def sum_pair(a, b):
    """The sums of two tiles along their columns, [BLOCK_M, 1] each, in one reduction."""
    return tl.split(tl.sum(tl.join(a, b), axis=1, keep_dims=True))


@triton.jit
def read_once(pointers, mask, other):
    """A tile that nothing reads again, so that it need not stay in L2."""
    return tl.load(pointers, mask=mask, other=other, eviction_policy="evict_first")


@triton.jit
def read_again(pointers, mask, other):
    """A tile that a later pass of the program reads again, from L2 if it fits."""
    return tl.load(pointers, mask=mask, other=other, eviction_policy="evict_last")


@triton.jit
def publish(slots, number, mask):
    """Give a float32 to other programs: in one word with a flag, so that who sees the flag sees the number."""
    word = number.to(tl.uint32, bitcast=True).to(tl.int64) + 0x100000000
    tl.atomic_xchg(slots, word, mask=mask, sem="relaxed")


@triton.jit
def publish_pair(slots, one, other, mask):
    """Give two float32 to other programs, in one word. It is 0 until then: bits are flipped, and no NaN has all."""
    one = (
        tl.where(one == one, one, float("nan")).to(tl.uint32, bitcast=True).to(tl.int64)
    )
    word = (one << 32) | other.to(tl.uint32, bitcast=True).to(tl.int64)
    tl.atomic_xchg(slots, ~word, mask=mask, sem="relaxed")


@triton.jit
def wait(slots, mask):
    """Wait until all slots have been filled, and take the words in them."""
    words = tl.load(slots, mask=mask, other=1, volatile=True)
    while tl.max(tl.max((words == 0).to(tl.int32), axis=1), axis=0) == 1:
        words = tl.load(slots, mask=mask, other=1, volatile=True)
    return words


@triton.jit
def columns_of(count: tl.constexpr):
    """The numbers of `count` slots and of some behind them: of less than a warp, Triton lays out whole blocks badly."""
    return tl.arange(0, max(32, triton.next_power_of_2(count)))[None, :]


@triton.jit
def receive(slots, count: tl.constexpr, mask, absent):
    """What `publish` gave in the first `count` slots, along columns; behind these stands for nothing what is absent."""
    columns = columns_of(count)
    mask = mask & (columns < count)
    number = wait(slots + columns, mask).to(tl.uint32).to(tl.float32, bitcast=True)
    return tl.where(mask, number, absent)


@triton.jit
def receive_pair(slots, count: tl.constexpr, mask, absent, other_absent):
    """What `publish_pair` gave, as `receive` does."""
    columns = columns_of(count)
    mask = mask & (columns < count)
    words = ~wait(slots + columns, mask)
    one = (words >> 32).to(tl.uint32).to(tl.float32, bitcast=True)
    other = words.to(tl.uint32).to(tl.float32, bitcast=True)
    return tl.where(mask, one, absent), tl.where(mask, other, other_absent)


@triton.jit
def collect(slots, COUNT: tl.constexpr, mask):
    """The sum of what `publish` gave in the first `COUNT` slots."""
    members = tl.arange(0, triton.next_power_of_2(COUNT))[None, :]
    mask = mask & (members < COUNT)
    number = wait(slots + members, mask).to(tl.uint32).to(tl.float32, bitcast=True)
    return tl.sum(tl.where(mask, number, 0.0), axis=1, keep_dims=True)


@triton.jit
def collect_pair(slots, COUNT: tl.constexpr, mask):
    """The two sums of what `publish_pair` gave in the first `COUNT` slots."""
    members = tl.arange(0, triton.next_power_of_2(COUNT))[None, :]
    mask = mask & (members < COUNT)
    words = ~wait(slots + members, mask)
    one = (words >> 32).to(tl.uint32).to(tl.float32, bitcast=True)
    other = words.to(tl.uint32).to(tl.float32, bitcast=True)
    one = tl.sum(tl.where(mask, one, 0.0), axis=1, keep_dims=True)
    return one, tl.sum(tl.where(mask, other, 0.0), axis=1, keep_dims=True)


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
def lead_max(best, best_at, value, at):
    """The larger of two with its position; NaN is the largest, and the earlier stays of equals."""
    leads = (value > best) | ((value != value) & (best == best))
    return tl.where(leads, value, best), tl.where(leads, at, best_at)


@triton.jit
def lead_min(best, best_at, value, at):
    """The smaller of two with its position; NaN is the smallest, and the earlier stays of equals."""
    leads = (value < best) | ((value != value) & (best == best))
    return tl.where(leads, value, best), tl.where(leads, at, best_at)


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
def moments(x, mask, count):
    """The mean of each row of a tile of `count` columns, the others 0, and the sum of squared distances from it."""
    mean = tl.sum(x, axis=1, keep_dims=True) / count
    distance = tl.where(mask, x - mean, 0.0)
    return mean, tl.sum(distance * distance, axis=1, keep_dims=True)


@triton.jit
def merge_online_exp(largest, total, finite: tl.constexpr):
    """Merge a tile of running maxima and sums along its columns."""
    larger = tl.reduce(largest, 1, nan_max, keep_dims=True)
    parts = total * tl.exp(largest - exp_shift(larger, finite))
    return larger, tl.sum(parts, axis=1, keep_dims=True)


@triton.jit
def lowest(dtype: tl.constexpr):
    """What every value of a dtype is at least."""
    if dtype.is_floating():
        return tl.full((), float("-inf"), dtype)
    else:
        return tl.full((), -(2**63), dtype)


@triton.jit
def highest(dtype: tl.constexpr):
    """What every value of a dtype is at most."""
    if dtype.is_floating():
        return tl.full((), float("inf"), dtype)
    else:
        return tl.full((), 2**63 - 1, dtype)


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
