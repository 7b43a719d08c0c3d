# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Running sums, products and linear recurrences along the columns of a tile, as device functions.

Each continues from `carry` [BLOCK_M, 1], the state before the block of columns, and also returns the state after it. In
reverse, the last column comes first.
"""

import triton
import triton.language as tl


@triton.jit
def last_of(x, reverse: tl.constexpr):
    """The last column of a tile, or the first in reverse."""
    last: tl.constexpr = 0 if reverse else x.shape[1] - 1
    cols = tl.arange(0, x.shape[1])[None, :]
    return tl.sum(tl.where(cols == last, x, 0), axis=1, keep_dims=True)


@triton.jit
def cumsum(x, carry, reverse: tl.constexpr):
    x = tl.cumsum(x, axis=1, reverse=reverse) + carry
    return x, last_of(x, reverse)


@triton.jit
def cumprod(x, carry, reverse: tl.constexpr):
    x = tl.cumprod(x, axis=1, reverse=reverse) * carry
    return x, last_of(x, reverse)


@triton.jit
def compose(decay, x, later_decay, later_x):
    """Compose two steps of a linear recurrence."""
    return decay * later_decay, later_decay * x + later_x


@triton.jit
def compose_tile(decay, x, reverse: tl.constexpr):
    """The composition of a linear recurrence's steps up to each column."""
    decay, x = tl.broadcast(decay, x)
    return tl.associative_scan((decay, x), 1, compose, reverse=reverse)


@triton.jit
def recurrence(decay, x, carry, reverse: tl.constexpr):
    """Each column is the one before it times its decay, plus x."""
    decay, x = compose_tile(decay, x, reverse)
    x += decay * carry
    return x, last_of(x, reverse)


@triton.jit
def end_of_recurrence(decay, x, carry_decay, carry, reverse: tl.constexpr):
    """The composition of all steps of a tile: the factor of the carried state, and the summand."""
    decay, x = compose_tile(decay, x, reverse)
    decay, x = last_of(decay, reverse), last_of(x, reverse)
    return carry_decay * decay, decay * carry + x
