# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Device functions of attention: which blocks of keys a tile sees, and how they and their matrices are loaded."""

import triton
import triton.language as tl


@triton.jit
def load_rows(
    ptr,
    rows,
    n_rows,
    stride_row,
    stride_col,
    SIZE: tl.constexpr,
    masked: tl.constexpr,
):
    """Load full rows of a matrix: 0 beyond the SIZE of a row, and in masked rows."""
    PADDED: tl.constexpr = max(16, triton.next_power_of_2(SIZE))
    rows = rows[:, None]
    cols = tl.arange(0, PADDED).to(rows.dtype)[None, :]
    at = ptr + rows * stride_row + cols * stride_col
    if masked and SIZE < PADDED:
        block = tl.load(at, mask=(rows < n_rows) & (cols < SIZE), other=0.0)
    elif masked:
        block = tl.load(at, mask=rows < n_rows, other=0.0)
    elif SIZE < PADDED:
        block = tl.load(at, mask=cols < SIZE, other=0.0)
    else:
        block = tl.load(at)
    return block


@triton.jit
def page_numbers(
    table_ptr,
    start,
    first,
    last,
    stride,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    INDEX: tl.constexpr,
):
    """Load the page indices of the block that begins at `start`, for pages of SIZE positions.

    One index where the block lies within a page, otherwise one per position. Nothing is read for positions before
    `first` or from `last` on.
    """
    if SIZE % BLOCK == 0:
        at = tl.full((), start // SIZE, INDEX)
        return tl.load(table_ptr + at * stride, mask=start < last, other=-1)
    else:
        positions = (start + tl.arange(0, BLOCK)).to(INDEX)
        needed = (positions >= first) & (positions < last)
        return tl.load(table_ptr + positions // SIZE * stride, mask=needed, other=-1)


@triton.jit
def pages_at(numbers, positions, first, last, n_pages):
    """The page of each position of a block, from its `page_numbers`: -1 before `first`, from `last` on, and for
    invalid table entries.
    """
    exists = (numbers >= 0) & (numbers < n_pages)
    if len(numbers.shape) == 0:  # One for a block that may need a mask.
        exists &= (positions >= first) & (positions < last)
    return tl.where(exists, numbers.to(positions.dtype), -1)


@triton.jit
def load_rows_at(
    ptr,
    pages,
    places,
    stride_page,
    stride_row,
    stride_col,
    SIZE: tl.constexpr,
):
    """Load full rows of a matrix, each at its offset in a page: 0 beyond the SIZE of a row, and in page -1."""
    PADDED: tl.constexpr = max(16, triton.next_power_of_2(SIZE))
    pages, places = pages[:, None], places[:, None]
    cols = tl.arange(0, PADDED).to(places.dtype)[None, :]
    at = ptr + (pages * stride_page + places * stride_row) + cols * stride_col
    if SIZE < PADDED:
        block = tl.load(at, mask=(pages >= 0) & (cols < SIZE), other=0.0)
    else:
        block = tl.load(at, mask=pages >= 0, other=0.0)
    return block


@triton.jit
def load_described(desc, at):
    """Load full rows of a matrix from an index on, by TMA: 0 beyond the matrix."""
    place = at[:0]
    for dim in tl.static_range(len(at)):
        place += (tl.cast(at[dim], tl.int32),)
    block = desc.load(place + (0,))  # noqa: RUF005 (Triton 3.6 unpacks no tuples.)
    return block.reshape(block.shape[-2], block.shape[-1])


@triton.jit
def tiles_of_group(n_rows, n_heads, BLOCK: tl.constexpr, PACK_HEADS: tl.constexpr):
    """The number of tiles of a group of heads: tiles per head, or shared by all heads."""
    if PACK_HEADS:
        tiles = tl.cdiv(n_heads * n_rows, BLOCK)
    else:
        tiles = n_heads * tl.cdiv(n_rows, BLOCK)
    return tiles


@triton.jit
def rows_of_group(
    tile,
    n_rows,
    n_heads,
    BLOCK: tl.constexpr,
    PACK_HEADS: tl.constexpr,
    INDEX: tl.constexpr,
):
    """Locate a tile within a group of heads: the head, its first row, and all row indices [BLOCK], n_rows beyond
    the last.

    With PACK_HEADS a tile holds the rows of several heads one after another. Then heads are [BLOCK, 1], the first
    row counts within its head, and a head has no more rows than a tile.
    """
    if PACK_HEADS:
        lines = tile * BLOCK + tl.arange(0, BLOCK)
        head = tl.minimum(lines // n_rows, n_heads - 1)[:, None]
        first_row = tl.full((), 0, tl.int64)
        rows = tl.where(lines < n_heads * n_rows, lines % n_rows, n_rows)
    else:
        tiles = tl.cdiv(n_rows, BLOCK)
        head = tile // tiles
        first_row = (tile % tiles).to(tl.int64) * BLOCK
        rows = first_row + tl.arange(0, BLOCK)
    return head.to(INDEX), first_row, rows.to(INDEX)


@triton.jit
def blocks_between(first, unmasked_first, unmasked_last, last, BLOCK: tl.constexpr):
    """The bounds of three runs of blocks that cover `first` to `last`. Blocks of the second run lie within
    `unmasked_first` to `unmasked_last` and need no mask.

    Bounds are int64: with int32, ptxas 12.8 (Triton 3.6) serialises the two matmuls of a loop.
    """
    end = tl.cdiv(tl.maximum(last, 0), BLOCK)
    start = tl.minimum(tl.maximum(first, 0) // BLOCK, end)
    unmasked = tl.minimum(tl.maximum(tl.cdiv(unmasked_first, BLOCK), start), end)
    rest = tl.minimum(tl.maximum(unmasked_last // BLOCK, unmasked), end)
    return start * BLOCK, unmasked * BLOCK, rest * BLOCK, end * BLOCK


@triton.jit
def blocks_from_start(unmasked_last, last, BLOCK: tl.constexpr):
    """The bounds of two runs of blocks that cover all positions up to `last`. Blocks of the first run end before
    `unmasked_last` and need no mask. Bounds are int64, see `blocks_between`.
    """
    end = tl.cdiv(tl.maximum(last, 0), BLOCK)
    rest = tl.minimum(tl.maximum(unmasked_last, 0) // BLOCK, end)
    return 0, rest * BLOCK, end * BLOCK


@triton.jit
def blocks_around(bounds, first, last, BLOCK: tl.constexpr):
    """The bounds of three runs of blocks, with a second run of blocks within `first` to `last`, which are skipped."""
    start, unmasked, rest, end = bounds
    skip = tl.cdiv(tl.maximum(first, 0), BLOCK) * BLOCK
    skip = tl.minimum(tl.maximum(skip, start), end)
    back = tl.minimum(tl.maximum(last // BLOCK * BLOCK, skip), end)
    return start, skip, back, tl.maximum(unmasked, back), tl.maximum(rest, back), end


@triton.jit
def split_blocks(bounds, BLOCK: tl.constexpr):
    """The bounds of runs of blocks, as far as they are the program's: programs split all blocks evenly, in order."""
    first_block = bounds[0] // BLOCK
    n_blocks = tl.cdiv(bounds[len(bounds) - 1], BLOCK) - first_block
    blocks = tl.cdiv(n_blocks, tl.num_programs(1))
    start = first_block + tl.program_id(1).to(tl.int64) * blocks
    found = bounds[:0]
    for run in tl.static_range(len(bounds)):
        bound = tl.maximum(tl.cdiv(bounds[run], BLOCK), start)
        found += (tl.minimum(bound, start + blocks) * BLOCK,)
    return found
