# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The sorted order of the elements of rows, as device functions, for rows of up to 32,768 columns.

Triton sorts scalars: a 32-bit key and its column are packed into 64 bits, so that no two are equal. Columns are stored
descending, so that of equal elements the first comes first where the largest does.
"""

import triton
import triton.language as tl


@triton.jit
def ordered(x):
    """Map floats to integers of the same order: zeros of both signs are equal, and NaN is the largest."""
    if x.dtype == tl.float64:
        wide = x.to(tl.int64, bitcast=True)
        wide ^= (wide >> 63) & 0x7FFFFFFFFFFFFFFF
        return tl.where(x == x, tl.where(x == 0, 0, wide), 0x7FFFFFFFFFFFFFFF)
    elif x.dtype.is_floating():
        bits = x.to(tl.float32).to(tl.int32, bitcast=True)
        bits ^= (bits >> 31) & 0x7FFFFFFF
        return tl.where(x == x, tl.where(x == 0, 0, bits), 0x7FFFFFFF)
    else:
        return x


@triton.jit
def places(number):
    """The columns of 32-bit elements, from the largest on."""
    last: tl.constexpr = number.shape[1] - 1
    place = tl.arange(0, number.shape[1])[None, :]
    key = (number.to(tl.int64) << 32) | (place ^ last)
    return (tl.sort(key, descending=True) & 0xFFFFFFFF) ^ last


@triton.jit
def wide_places(number):
    """The columns of 64-bit elements, from the largest on, by three sorts."""
    last: tl.constexpr = number.shape[1] - 1
    place = tl.arange(0, number.shape[1])[None, :]
    # By the lower halves first: where each place comes in that order is the order of those places.
    by_low = places((number & 0xFFFFFFFF) - 0x80000000)
    rank = places(by_low ^ last)
    key = ((number >> 32) << 32) | ((rank ^ last) << 16) | (place ^ last)
    return (tl.sort(key, descending=True) & 0xFFFF) ^ last


@triton.jit
def argsort(x, mask, descending: tl.constexpr):
    """The columns of the elements of each row in their order; those that are masked come last."""
    number = ordered(x)
    if not descending:
        number = ~number
    if number.dtype == tl.int64:
        return wide_places(tl.where(mask, number, -0x7FFFFFFFFFFFFFFF - 1))
    else:
        return places(tl.where(mask, number.to(tl.int64), -0x80000000))
