# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Device functions of split-K and stream-K: which program sums which terms, and where partial sums are stored."""

import triton
import triton.language as tl


@triton.jit
def split_k(n, steps, BLOCK: tl.constexpr, INDEX: tl.constexpr):
    """A program's range of the n terms: all of them, or with split-K its `steps` blocks."""
    if steps is None:
        first, end = 0, n
    else:
        first = tl.program_id(1).to(INDEX) * steps * BLOCK
        end = tl.minimum(first + steps * BLOCK, n)
    return first, end


@triton.jit
def stream_k(
    partial, first_tile, n_long, long_splits, n_short, short_splits, tile_steps
):
    """The tile whose partial sum a program computes, and its range of iterations.

    There are n_long tiles of long_splits partial sums each, then n_short of short_splits. Programs at the same
    iterations of their tiles share in L2 what they read.
    """
    is_long = partial < n_long * long_splits
    within = partial - tl.where(is_long, 0, n_long * long_splits)
    distance = tl.where(is_long, n_long, n_short)
    tile = first_tile + tl.where(is_long, 0, n_long) + within % distance
    steps = tl.cdiv(tile_steps, tl.where(is_long, long_splits, short_splits))
    first = within // distance * steps
    return tile, first, tl.minimum(first + steps, tile_steps)


@triton.jit
def partials_of(shared, n_long, long_splits, n_short, short_splits):
    """The first partial sum of a tile that is split, how many it has, and the distance between them."""
    is_long = shared < n_long
    first = shared + tl.where(is_long, 0, n_long * (long_splits - 1))
    count = tl.where(is_long, long_splits, short_splits)
    return first, count, tl.where(is_long, n_long, n_short)


@triton.jit
def partial_offsets(partial, rows, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Offsets of some rows of a partial sum: each is a contiguous tile."""
    return (partial * BLOCK_M + rows)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[
        None, :
    ]


@triton.jit
def store_partial(ptr, partial, tile):
    """Store a partial sum."""
    rows = tl.arange(0, tile.shape[0])
    tl.store(ptr + partial_offsets(partial, rows, tile.shape[0], tile.shape[1]), tile)


@triton.jit
def sum_partials(acc, ptr, partials, first, BLOCK_M: tl.constexpr):
    """Add up partial sums, always in the same order: some rows of a tile, from `first` on."""
    partial, count, distance = partials
    rows = first + tl.arange(0, acc.shape[0])
    for _ in range(count):
        acc += tl.load(ptr + partial_offsets(partial, rows, BLOCK_M, acc.shape[1]))
        partial += distance
    return acc
