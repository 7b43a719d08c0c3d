# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""How CTAs of a cooperative launch exchange what rows reduce to, through global memory: device functions."""

import triton
import triton.language as tl


@triton.jit
def publish(slots, number, mask):
    """Publish a float32 to other CTAs: value and flag share one word, so that a reader of the flag has the value."""
    word = number.to(tl.uint32, bitcast=True).to(tl.int64) + 0x100000000
    tl.atomic_xchg(slots, word, mask=mask, sem="relaxed")


@triton.jit
def publish_pair(slots, one, other, mask):
    """Publish two float32 in one word. 0 means empty: bits are flipped, and no NaN has all bits set."""
    one = (
        tl.where(one == one, one, float("nan")).to(tl.uint32, bitcast=True).to(tl.int64)
    )
    word = (one << 32) | other.to(tl.uint32, bitcast=True).to(tl.int64)
    tl.atomic_xchg(slots, ~word, mask=mask, sem="relaxed")


@triton.jit
def wait(slots, mask):
    """Wait until all slots are filled, and load their words."""
    words = tl.load(slots, mask=mask, other=1, volatile=True)
    while tl.max(tl.max((words == 0).to(tl.int32), axis=1), axis=0) == 1:
        words = tl.load(slots, mask=mask, other=1, volatile=True)
    return words


@triton.jit
def columns_of(count: tl.constexpr):
    """Indices of `count` slots, padded to 32 or more: Triton lays out tiles narrower than a warp badly."""
    return tl.arange(0, max(32, triton.next_power_of_2(count)))[None, :]


@triton.jit
def receive(slots, count: tl.constexpr, mask, absent):
    """Wait for the first `count` slots, along columns; other lanes and masked ones are `absent` (the identity)."""
    columns = columns_of(count)
    mask = mask & (columns < count)
    number = wait(slots + columns, mask).to(tl.uint32).to(tl.float32, bitcast=True)
    return tl.where(mask, number, absent)


@triton.jit
def receive_pair(slots, count: tl.constexpr, mask, absent, other_absent):
    """As `receive`, for the values of `publish_pair`."""
    columns = columns_of(count)
    mask = mask & (columns < count)
    words = ~wait(slots + columns, mask)
    one = (words >> 32).to(tl.uint32).to(tl.float32, bitcast=True)
    other = words.to(tl.uint32).to(tl.float32, bitcast=True)
    return tl.where(mask, one, absent), tl.where(mask, other, other_absent)


@triton.jit
def collect(slots, COUNT: tl.constexpr, mask):
    """The sum of the published values of the first `COUNT` slots."""
    members = tl.arange(0, triton.next_power_of_2(COUNT))[None, :]
    mask = mask & (members < COUNT)
    number = wait(slots + members, mask).to(tl.uint32).to(tl.float32, bitcast=True)
    return tl.sum(tl.where(mask, number, 0.0), axis=1, keep_dims=True)


@triton.jit
def collect_pair(slots, COUNT: tl.constexpr, mask):
    """The two sums of the published pairs of the first `COUNT` slots."""
    members = tl.arange(0, triton.next_power_of_2(COUNT))[None, :]
    mask = mask & (members < COUNT)
    words = ~wait(slots + members, mask)
    one = (words >> 32).to(tl.uint32).to(tl.float32, bitcast=True)
    other = words.to(tl.uint32).to(tl.float32, bitcast=True)
    one = tl.sum(tl.where(mask, one, 0.0), axis=1, keep_dims=True)
    return one, tl.sum(tl.where(mask, other, 0.0), axis=1, keep_dims=True)
