# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Device functions of matmuls: the order of tiles, split-K and stream-K, loads of blocks and stores of tiles."""

import triton
import triton.language as tl

from .dtypes import dot_precision
from .math import remainder_int

# How float32 is multiplied that is split into two or three bfloat16s.
BF16X3: tl.constexpr = tl.constexpr(dot_precision("bf16x3"))
BF16X6: tl.constexpr = tl.constexpr(dot_precision("bf16x6"))


@triton.jit
def swizzle(tile, row_tiles, col_tiles, GROUP: tl.constexpr):
    """The row and column of a tile: down GROUP rows of tiles before the next column, so that L2 has what they share."""
    first = tile // (GROUP * col_tiles) * GROUP
    height = tl.minimum(row_tiles - first, GROUP)
    within = tile % (GROUP * col_tiles)
    return first + within % height, within // height


@triton.jit
def locate(
    tile,
    n_rows,
    n_cols,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP: tl.constexpr,
):
    """The first row and the first column of a tile."""
    row_tiles, col_tiles = tl.cdiv(n_rows, BLOCK_M), tl.cdiv(n_cols, BLOCK_N)
    row_tile, col_tile = swizzle(tile, row_tiles, col_tiles, GROUP)
    return row_tile * BLOCK_M, col_tile * BLOCK_N


@triton.jit
def locate_in_batch(
    tile,
    n_rows,
    n_cols,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP: tl.constexpr,
):
    """The matrix of a batch that a tile belongs to, its first row and its first column."""
    row_tiles, col_tiles = tl.cdiv(n_rows, BLOCK_M), tl.cdiv(n_cols, BLOCK_N)
    matrix, tile = tile // (row_tiles * col_tiles), tile % (row_tiles * col_tiles)
    row_tile, col_tile = swizzle(tile, row_tiles, col_tiles, GROUP)
    return matrix, row_tile * BLOCK_M, col_tile * BLOCK_N


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


@triton.jit
def block_dot(left, right, acc, PRECISION: tl.constexpr, SWAPS: tl.constexpr):
    """`tl.dot`; or, if it SWAPS blocks, that of the transposed ones, transposed: without
    tensor cores, a warp reads few rows of the first block at once, and many columns of the
    second, which are in the same banks where the inner axis is contiguous.
    """
    if SWAPS:
        left, right, acc = right.T, left.T, acc.T
    acc = tl.dot(left, right, acc, input_precision=PRECISION, out_dtype=acc.dtype)
    return acc.T if SWAPS else acc


@triton.jit
def load_block(desc, first, start, INNER_LAST: tl.constexpr, matrix=None):
    """A block of rows or columns by the inner axis, which is the last of the descriptor or the one before; of a matrix
    of a batch, if there is one.
    """
    if matrix is not None:
        if INNER_LAST:
            block = desc.load([matrix, first, start])
        else:
            block = desc.load([matrix, start, first])
        block = block.reshape(block.shape[1], block.shape[2])
    elif INNER_LAST:
        block = desc.load([first, start])
    else:
        block = desc.load([start, first])
    return block if INNER_LAST else block.T


@triton.jit
def store_tile(
    desc,
    ptr,
    tile,
    first_row,
    first_col,
    n_rows,
    n_cols,
    INDEX: tl.constexpr,
    matrix=None,
):
    """Store a tile of a contiguous result, as far as it is inside: by TMA where there is a descriptor, and not at all
    where nobody asked for the result; of a matrix of a batch, if there is one.
    """
    if desc is not None:
        tile = tile.to(ptr.dtype.element_ty)
        if matrix is None:
            desc.store([first_row, first_col], tile)
        else:
            tile = tile.reshape(1, tile.shape[0], tile.shape[1])
            desc.store([matrix, first_row, first_col], tile)
    elif ptr is not None:
        rows = (first_row.to(INDEX) + tl.arange(0, tile.shape[0]))[:, None]
        cols = (first_col.to(INDEX) + tl.arange(0, tile.shape[1]))[None, :]
        mask = (rows < n_rows) & (cols < n_cols)
        if matrix is not None:
            ptr += matrix.to(INDEX) * n_rows * n_cols
        tl.store(ptr + rows * n_cols + cols, tile, mask=mask)


@triton.jit
def halves(tile, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The left and the right half of a tile."""
    return tl.split(tl.permute(tl.reshape(tile, [BLOCK_M, 2, BLOCK_N // 2]), (0, 2, 1)))


@triton.jit
def quarters(tile, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The quarters of a tile, from left to right."""
    left, right = halves(tile, BLOCK_M, BLOCK_N)
    return halves(left, BLOCK_M, BLOCK_N // 2) + halves(right, BLOCK_M, BLOCK_N // 2)


@triton.jit
def load_rows(
    ptr,
    rows,
    n_rows,
    stride_row,
    stride_col,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    masked: tl.constexpr,
):
    """Some rows of a matrix as a whole: 0 beyond the SIZE of a row, and beyond the last row where they are masked."""
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
    """What a table of the numbers of pages, which have SIZE positions each, has for the block from `start` on.

    That is one number where a block is within a page, and else one for each position. Of positions before `first` and
    from `last` on, nothing is read.
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
    """The page of each position of a block, by its `page_numbers`.

    It is -1 before `first` and from `last` on, and where the table has no page's number.
    """
    exists = (numbers >= 0) & (numbers < n_pages)
    if len(numbers.shape) == 0:  # One for a block that may not be needed as a whole.
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
    PADDED: tl.constexpr,
):
    """Rows of a matrix as a whole, each at a place of a page: 0 beyond the SIZE of a row, and in page -1."""
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
    """Rows of a matrix from some index on, as a whole: by TMA, 0 beyond the matrix."""
    place = at[:0]
    for dim in tl.static_range(len(at)):
        place += (tl.cast(at[dim], tl.int32),)
    block = desc.load(place + (0,))  # noqa: RUF005 (Triton 3.6 unpacks no tuples.)
    return block.reshape(block.shape[-2], block.shape[-1])


@triton.jit
def tiles_of_group(n_rows, n_heads, BLOCK: tl.constexpr, PACK_HEADS: tl.constexpr):
    """How many tiles the heads of a group have: each its own, or all together."""
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
    """The head of a group that a tile is of, the first of its rows, and all of them [BLOCK]: n_rows beyond the last.

    With PACK_HEADS, a tile has the rows of several heads, one after another. Then heads are [BLOCK, 1], and the first
    row is that of a head. A head has no more rows than a tile.
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
def blocks_between(first, whole_first, whole_last, last, BLOCK: tl.constexpr):
    """The bounds of three runs of blocks, that have all positions from `first` to `last`: in the second, a block has no
    position outside of `whole_first` to `whole_last`.

    They are int64: in int32, ptxas 12.8 (that of Triton 3.6) has one matmul of a loop wait for the other.
    """
    end = tl.cdiv(tl.maximum(last, 0), BLOCK)
    start = tl.minimum(tl.maximum(first, 0) // BLOCK, end)
    whole = tl.minimum(tl.maximum(tl.cdiv(whole_first, BLOCK), start), end)
    rest = tl.minimum(tl.maximum(whole_last // BLOCK, whole), end)
    return start * BLOCK, whole * BLOCK, rest * BLOCK, end * BLOCK


@triton.jit
def blocks_from_start(whole_last, last, BLOCK: tl.constexpr):
    """The bounds of two runs of blocks, that have all positions up to `last`: in the first, a block has none beyond
    `whole_last`. They are int64, as those of `blocks_between`.
    """
    end = tl.cdiv(tl.maximum(last, 0), BLOCK)
    rest = tl.minimum(tl.maximum(whole_last, 0) // BLOCK, end)
    return 0, rest * BLOCK, end * BLOCK


@triton.jit
def blocks_around(bounds, first, last, BLOCK: tl.constexpr):
    """The bounds of three runs of blocks, with a second run of blocks within `first` to `last`, which are skipped."""
    start, whole, rest, end = bounds
    skip = tl.cdiv(tl.maximum(first, 0), BLOCK) * BLOCK
    skip = tl.minimum(tl.maximum(skip, start), end)
    back = tl.minimum(tl.maximum(last // BLOCK * BLOCK, skip), end)
    return start, skip, back, tl.maximum(whole, back), tl.maximum(rest, back), end


@triton.jit
def blocks_of_cycle(first, last, whole_first, whole_last, period, BLOCK: tl.constexpr):
    """Which blocks have positions from `first` to `last`, or some periods before or
    after these: how many of a cycle are ahead of the axis, how many it needs, from its
    start on, and how many it has. All are needed where blocks do not divide a period.
    And whether those that are needed have none outside of `whole_first` to `whole_last`.
    """
    whole_first, whole_last = whole_first - first, whole_last - first
    first, length = remainder_int(first, period), last - first
    start, blocks = first // BLOCK, period // BLOCK
    needed = tl.cdiv(first + length, BLOCK) - start
    # A cycle of one block is left as it is: ptxas 12.8 (Triton 3.6) fails on it.
    divides = (period % BLOCK == 0) & (blocks > 1)
    begin, is_some = start * BLOCK - first, divides & (needed > 0)
    is_whole = (begin >= whole_first) & (begin + needed * BLOCK <= whole_last) & is_some
    is_part = is_some & (needed < blocks)
    ahead, needed = tl.where(is_part, blocks - start, 0), tl.where(is_part, needed, 1)
    return ahead, needed, tl.where(is_part, blocks, 1), is_whole


@triton.jit
def count_blocks(bounds, cycle, BLOCK: tl.constexpr):
    """The bounds of runs of blocks, with those left out that cycles do not need. The run
    before the last, of whole blocks, has none unless all that are needed are whole.
    """
    ahead, needed, blocks, is_whole = cycle
    found = bounds[:0]
    for run in tl.static_range(len(bounds)):
        bound = bounds[run]
        if run == len(bounds) - 2:
            bound = tl.where(is_whole, bound, bounds[run - 1])
        at = bound // BLOCK + ahead
        found += ((at // blocks * needed + tl.minimum(at % blocks, needed)) * BLOCK,)
    return found


@triton.jit
def counted_block(count, cycle, BLOCK: tl.constexpr):
    """Where the block starts that would start at `count` if those were left out."""
    ahead, needed, blocks, _ = cycle
    at = count // BLOCK
    return (at // needed * blocks + at % needed - ahead) * BLOCK


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


@triton.jit
def hold(x):
    """An integer, no further from 0 than that positions may be added to it."""
    return tl.minimum(tl.maximum(x.to(tl.int64), -(2**48)), 2**48)
