# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""How tiles are reduced along their columns, and read for that, as device functions."""

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
