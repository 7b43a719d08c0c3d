# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The kernels of `gemm`: left [rows, inner] times right [cols, inner], contracted along the inner axis.

The result [rows, cols] is contiguous, and computed in tiles of BLOCK_M by BLOCK_N. With BATCHED, all three have a batch
axis in front, and tiles are numbered matrix by matrix; without it, strides of that axis are None. ACC is the dtype of
accumulators, INDEX that of offsets, and PRECISION is the `input_precision` of tl.dot.
"""

import triton
import triton.language as tl

from .matmul import halves, swizzle


@triton.jit
def locate_tile(
    tile,
    n_rows,
    n_cols,
    BATCHED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP: tl.constexpr,
):
    """The matrix of the batch that a tile belongs to, and the row and the column of tiles where it lies."""
    row_tiles, col_tiles = tl.cdiv(n_rows, BLOCK_M), tl.cdiv(n_cols, BLOCK_N)
    matrix = 0
    if BATCHED:
        matrix = tile // (row_tiles * col_tiles)
        tile %= row_tiles * col_tiles
    row_tile, col_tile = swizzle(tile, row_tiles, col_tiles, GROUP)
    return matrix, row_tile, col_tile


@triton.jit
def load_block(
    desc,
    matrix,
    first,
    start,
    INNER_LAST: tl.constexpr,
    BATCHED: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """BLOCK rows or columns by BLOCK_K of the inner axis, which is the descriptor's last one or the one before."""
    if BATCHED:
        if INNER_LAST:
            block = desc.load([matrix, first, start]).reshape(BLOCK, BLOCK_K)
        else:
            block = desc.load([matrix, start, first]).reshape(BLOCK_K, BLOCK).T
    else:
        if INNER_LAST:
            block = desc.load([first, start])
        else:
            block = desc.load([start, first]).T
    return block


@triton.jit
def store_tile(
    result_ptr,
    tile,
    matrix,
    rows,
    cols,
    n_rows,
    n_cols,
    BATCHED: tl.constexpr,
    INDEX: tl.constexpr,
):
    """Store a tile of the result, as far as it is inside."""
    mask = (rows < n_rows) & (cols < n_cols)
    if BATCHED:
        rows += matrix.to(INDEX) * n_rows
    tl.store(result_ptr + rows * n_cols + cols, tile, mask=mask)


@triton.jit
def partial_offsets(place, rows, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Where some rows of a partial sum are: partial sums are whole tiles, one after another."""
    return (place * BLOCK_M + rows)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]


@triton.jit
def gemm_kernel(
    left_ptr,
    right_ptr,
    result_ptr,
    n_rows,
    n_cols,
    n_inner,
    stride_left_batch,
    stride_left_row,
    stride_left_inner,
    stride_right_batch,
    stride_right_col,
    stride_right_inner,
    BATCHED: tl.constexpr,
    PRECISION: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    INDEX: tl.constexpr,
):
    """A tile for each program, of matrices with any strides."""
    matrix, row_tile, col_tile = locate_tile(
        tl.program_id(0), n_rows, n_cols, BATCHED, BLOCK_M, BLOCK_N, GROUP
    )
    rows = (row_tile.to(INDEX) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    cols = (col_tile.to(INDEX) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    row_mask = rows < n_rows
    col_mask = cols < n_cols
    if BATCHED:
        left_ptr += matrix.to(INDEX) * stride_left_batch
        right_ptr += matrix.to(INDEX) * stride_right_batch

    left_rows = left_ptr + rows * stride_left_row
    right_cols = right_ptr + cols * stride_right_col
    acc = tl.zeros([BLOCK_M, BLOCK_N], ACC)
    for start in range(0, n_inner, BLOCK_K):
        inner = (start + tl.arange(0, BLOCK_K)).to(INDEX)
        inner_mask = inner < n_inner
        left = tl.load(
            left_rows + inner[None, :] * stride_left_inner,
            mask=row_mask & inner_mask[None, :],
            other=0.0,
        )
        right = tl.load(
            right_cols + inner[:, None] * stride_right_inner,
            mask=col_mask & inner_mask[:, None],
            other=0.0,
        )
        acc = tl.dot(left, right, acc, input_precision=PRECISION, out_dtype=ACC)

    store_tile(result_ptr, acc, matrix, rows, cols, n_rows, n_cols, BATCHED, INDEX)


@triton.jit
def gemm_tma_kernel(
    left_desc,
    right_desc,
    result_desc,
    result_ptr,
    n_rows,
    n_cols,
    n_inner,
    n_tiles,
    LEFT_INNER_LAST: tl.constexpr,
    RIGHT_INNER_LAST: tl.constexpr,
    BATCHED: tl.constexpr,
    PRECISION: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    INDEX: tl.constexpr,
):
    """The first n_tiles tiles, which persistent programs load by TMA; `result_desc` is None where TMA cannot store."""
    # Flattened, so that the next tile is being loaded while this one is finished and stored.
    for tile in tl.range(tl.program_id(0), n_tiles, tl.num_programs(0), flatten=True):
        matrix, row_tile, col_tile = locate_tile(
            tile, n_rows, n_cols, BATCHED, BLOCK_M, BLOCK_N, GROUP
        )
        first_row, first_col = row_tile * BLOCK_M, col_tile * BLOCK_N
        acc = tl.zeros([BLOCK_M, BLOCK_N], ACC)
        for start in range(0, n_inner, BLOCK_K):
            left = load_block(
                left_desc,
                matrix,
                first_row,
                start,
                LEFT_INNER_LAST,
                BATCHED,
                BLOCK_M,
                BLOCK_K,
            )
            right = load_block(
                right_desc,
                matrix,
                first_col,
                start,
                RIGHT_INNER_LAST,
                BATCHED,
                BLOCK_N,
                BLOCK_K,
            )
            acc = tl.dot(left, right.T, acc, input_precision=PRECISION, out_dtype=ACC)

        rows = (first_row.to(INDEX) + tl.arange(0, BLOCK_M))[:, None]
        # Half by half, so that one is being stored while the next is computed.
        slices = halves(acc, BLOCK_M, BLOCK_N)
        for part in tl.static_range(2):
            part_col = first_col + part * (BLOCK_N // 2)
            cols = (part_col.to(INDEX) + tl.arange(0, BLOCK_N // 2))[None, :]
            half = slices[part]
            if result_desc is None:
                store_tile(
                    result_ptr, half, matrix, rows, cols, n_rows, n_cols, BATCHED, INDEX
                )
            elif BATCHED:
                half = half.to(result_ptr.dtype.element_ty)
                result_desc.store(
                    [matrix, first_row, part_col],
                    half.reshape(1, BLOCK_M, BLOCK_N // 2),
                )
            else:
                half = half.to(result_ptr.dtype.element_ty)
                result_desc.store([first_row, part_col], half)


@triton.jit
def gemm_stream_k_kernel(
    left_desc,
    right_desc,
    partial_ptr,
    n_rows,
    n_cols,
    first_tile,
    n_long,
    long_parts,
    n_short,
    short_parts,
    tile_steps,
    LEFT_INNER_LAST: tl.constexpr,
    RIGHT_INNER_LAST: tl.constexpr,
    BATCHED: tl.constexpr,
    PRECISION: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    INDEX: tl.constexpr,
):
    """Partial sums of the tail wave, the tiles from `first_tile` on, whose inner axis several programs divide up.

    It has n_long tiles of long_parts parts each, then n_short of short_parts.
    """
    # Programs at the same steps of their tiles share in the cache what they read.
    place = tl.program_id(0)
    is_long = place < n_long * long_parts
    within = place - tl.where(is_long, 0, n_long * long_parts)
    apart = tl.where(is_long, n_long, n_short)
    tile = first_tile + tl.where(is_long, 0, n_long) + within % apart
    steps = tl.cdiv(tile_steps, tl.where(is_long, long_parts, short_parts))
    first_step = within // apart * steps
    matrix, row_tile, col_tile = locate_tile(
        tile, n_rows, n_cols, BATCHED, BLOCK_M, BLOCK_N, GROUP
    )
    first_row, first_col = row_tile * BLOCK_M, col_tile * BLOCK_N
    acc = tl.zeros([BLOCK_M, BLOCK_N], ACC)
    for step in range(first_step, tl.minimum(first_step + steps, tile_steps)):
        start = step * BLOCK_K
        left = load_block(
            left_desc,
            matrix,
            first_row,
            start,
            LEFT_INNER_LAST,
            BATCHED,
            BLOCK_M,
            BLOCK_K,
        )
        right = load_block(
            right_desc,
            matrix,
            first_col,
            start,
            RIGHT_INNER_LAST,
            BATCHED,
            BLOCK_N,
            BLOCK_K,
        )
        acc = tl.dot(left, right.T, acc, input_precision=PRECISION, out_dtype=ACC)

    partial = partial_offsets(place, tl.arange(0, BLOCK_M), BLOCK_M, BLOCK_N)
    tl.store(partial_ptr + partial, acc)


@triton.jit
def gemm_split_k_kernel(
    left_ptr,
    right_ptr,
    partial_ptr,
    n_rows,
    n_cols,
    n_inner,
    steps,
    stride_left_batch,
    stride_left_row,
    stride_left_inner,
    stride_right_batch,
    stride_right_col,
    stride_right_inner,
    BATCHED: tl.constexpr,
    PRECISION: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    INDEX: tl.constexpr,
):
    """Partial sums of all tiles, each over `steps` blocks of the inner axis, of matrices with any strides."""
    tile = tl.program_id(0)
    matrix, row_tile, col_tile = locate_tile(
        tile, n_rows, n_cols, BATCHED, BLOCK_M, BLOCK_N, GROUP
    )
    split = tl.program_id(1).to(INDEX)
    rows = (row_tile.to(INDEX) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    cols = (col_tile.to(INDEX) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    row_mask = rows < n_rows
    col_mask = cols < n_cols
    if BATCHED:
        left_ptr += matrix.to(INDEX) * stride_left_batch
        right_ptr += matrix.to(INDEX) * stride_right_batch

    left_rows = left_ptr + rows * stride_left_row
    right_cols = right_ptr + cols * stride_right_col
    acc = tl.zeros([BLOCK_M, BLOCK_N], ACC)
    end = tl.minimum((split + 1) * steps * BLOCK_K, n_inner)
    for start in range(split * steps * BLOCK_K, end, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        inner_mask = inner < n_inner
        left = tl.load(
            left_rows + inner[None, :] * stride_left_inner,
            mask=row_mask & inner_mask[None, :],
            other=0.0,
        )
        right = tl.load(
            right_cols + inner[:, None] * stride_right_inner,
            mask=col_mask & inner_mask[:, None],
            other=0.0,
        )
        acc = tl.dot(left, right, acc, input_precision=PRECISION, out_dtype=ACC)

    place = tl.program_id(1) * tl.num_programs(0) + tile
    partial = partial_offsets(place, tl.arange(0, BLOCK_M), BLOCK_M, BLOCK_N)
    tl.store(partial_ptr + partial, acc)


@triton.jit
def gemm_reduce_kernel(
    result_ptr,
    partial_ptr,
    n_rows,
    n_cols,
    first_tile,
    n_long,
    long_parts,
    n_short,
    short_parts,
    BATCHED: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    REDUCE_M: tl.constexpr,
    GROUP: tl.constexpr,
    INDEX: tl.constexpr,
):
    """The sums of the partial sums of some tiles, always in the same order: REDUCE_M rows of a tile for each program.

    `gemm_stream_k_kernel` says which tiles have how many parts.
    """
    first = tl.program_id(0) * REDUCE_M
    shared, first_row = first // BLOCK_M, first % BLOCK_M
    tile = first_tile + shared
    matrix, row_tile, col_tile = locate_tile(
        tile, n_rows, n_cols, BATCHED, BLOCK_M, BLOCK_N, GROUP
    )
    within = first_row + tl.arange(0, REDUCE_M)
    rows = (row_tile.to(INDEX) * BLOCK_M + within)[:, None]
    cols = (col_tile.to(INDEX) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]

    acc = tl.zeros([REDUCE_M, BLOCK_N], ACC)
    is_long = shared < n_long
    place = shared + tl.where(is_long, 0, n_long * (long_parts - 1))
    for _ in range(tl.where(is_long, long_parts, short_parts)):
        partial = partial_offsets(place, within, BLOCK_M, BLOCK_N)
        acc += tl.load(partial_ptr + partial)
        place += tl.where(is_long, n_long, n_short)
    store_tile(result_ptr, acc, matrix, rows, cols, n_rows, n_cols, BATCHED, INDEX)
