# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The kernels that copy a matrix, or its split into bfloat16s, to a layout that matmuls read faster."""

import triton
import triton.language as tl


@triton.jit
def load_tile(
    tensor_ptr, n_rows, n_cols,
    stride_batch, stride_row, stride_col,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, INDEX: tl.constexpr,
):  # fmt: skip
    """Load a program's tile of a matrix with any strides: the matrix's index in the batch, rows, columns, a mask
    and elements.
    """
    row_tiles, col_tiles = tl.cdiv(n_rows, BLOCK_M), tl.cdiv(n_cols, BLOCK_N)
    row_tile, col_tile = tl.program_id(0) // col_tiles, tl.program_id(0) % col_tiles
    batch = (row_tile // row_tiles).to(INDEX)
    rows = (row_tile % row_tiles).to(INDEX) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = col_tile.to(INDEX) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    offsets = batch * stride_batch + rows * stride_row + cols * stride_col
    return batch, rows, cols, mask, tl.load(tensor_ptr + offsets, mask=mask)


@triton.jit
def copy_kernel(
    tensor_ptr, copy_ptr, n_rows, n_cols, stride_copy,
    stride_batch, stride_row, stride_col,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, INDEX: tl.constexpr,
):  # fmt: skip
    """Copy a tile of a matrix to contiguous rows with a stride of stride_copy elements."""
    batch, rows, cols, mask, tile = load_tile(
        tensor_ptr, n_rows, n_cols, stride_batch, stride_row, stride_col,
        BLOCK_M, BLOCK_N, INDEX,
    )  # fmt: skip
    tl.store(copy_ptr + (batch * n_rows + rows) * stride_copy + cols, tile, mask=mask)


@triton.jit
def contiguous_copy_kernel(
    tensor_ptr, copy_ptr, n_elements, n_cols, stride_copy,
    BLOCK: tl.constexpr, INDEX: tl.constexpr,
):  # fmt: skip
    """The same of a contiguous matrix, whose elements are loaded in vectors wherever its rows end."""
    places = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n_elements
    elements = tl.load(tensor_ptr + places, mask=mask)
    rows = places // n_cols
    cols = places - rows * n_cols
    tl.store(copy_ptr + rows * stride_copy + cols, elements, mask=mask)


@triton.jit
def split_kernel(
    tensor_ptr, components_ptr, n_rows, n_cols, stride_copy,
    stride_batch, stride_row, stride_col,
    N_COMPONENTS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    INDEX: tl.constexpr,
):  # fmt: skip
    """The bfloat16s that add up to the elements of a tile, likewise: the components of a matrix follow one another."""
    batch, rows, cols, mask, rest = load_tile(
        tensor_ptr, n_rows, n_cols, stride_batch, stride_row, stride_col,
        BLOCK_M, BLOCK_N, INDEX,
    )  # fmt: skip
    for component in tl.static_range(N_COMPONENTS):
        rounded = rest.to(tl.bfloat16).to(tl.float32)
        if component == 0:
            # What is rounded up to infinity is cut off instead.
            bits = rest.to(tl.int32, bitcast=True) & -65536
            cut = bits.to(tl.float32, bitcast=True)
            rounded = tl.where(tl.abs(rounded) == float("inf"), cut, rounded)
        at = ((batch * N_COMPONENTS + component) * n_rows + rows) * stride_copy + cols
        tl.store(components_ptr + at, rounded, mask=mask)
        rest -= rounded
