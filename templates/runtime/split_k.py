# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Device functions of split-K and stream-K: which program sums which terms, and where partial sums are stored."""

import triton
import triton.language as tl


@triton.jit
def split_k(n, steps, BLOCK: tl.constexpr, INDEX: tl.constexpr):
    """The range of a program along n terms: all of them, or with split-K those of `steps` blocks."""
    if steps is None:
        first, end = 0, n
    else:
        first = tl.program_id(1).to(INDEX) * steps * BLOCK
        end = tl.minimum(first + steps * BLOCK, n)
    return first, end


@triton.jit
def stream_k(part, first_tile, n_long, long_parts, n_short, short_parts, tile_steps):
    """The tile whose partial sum a program computes, and its range of iterations.

    There are n_long tiles of long_parts partial sums each, then n_short of short_parts. Programs at the same iterations
    of their tiles share in L2 what they read.
    """
    is_long = part < n_long * long_parts
    within = part - tl.where(is_long, 0, n_long * long_parts)
    apart = tl.where(is_long, n_long, n_short)
    tile = first_tile + tl.where(is_long, 0, n_long) + within % apart
    steps = tl.cdiv(tile_steps, tl.where(is_long, long_parts, short_parts))
    first = within // apart * steps
    return tile, first, tl.minimum(first + steps, tile_steps)


@triton.jit
def parts_of(shared, n_long, long_parts, n_short, short_parts):
    """The first partial sum of a tile that is split, how many it has, and the distance between them."""
    is_long = shared < n_long
    first = shared + tl.where(is_long, 0, n_long * (long_parts - 1))
    count = tl.where(is_long, long_parts, short_parts)
    return first, count, tl.where(is_long, n_long, n_short)


@triton.jit
def part_offsets(part, rows, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Offsets of some rows of a partial sum: each is a contiguous tile."""
    return (part * BLOCK_M + rows)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]


@triton.jit
def store_part(ptr, part, tile):
    """Store a partial sum."""
    rows = tl.arange(0, tile.shape[0])
    tl.store(ptr + part_offsets(part, rows, tile.shape[0], tile.shape[1]), tile)


@triton.jit
def sum_parts(acc, ptr, parts, first, BLOCK_M: tl.constexpr):
    """Add up partial sums, always in the same order: some rows of a tile, from `first` on."""
    part, count, apart = parts
    rows = first + tl.arange(0, acc.shape[0])
    for _ in range(count):
        acc += tl.load(ptr + part_offsets(part, rows, BLOCK_M, acc.shape[1]))
        part += apart
    return acc
