# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The kernels of sums over the positions that name an element: the gradient of a lookup.

Terms are the rows of a matrix. The key of a term is the row of the result that it is added to, n_rows where that is
none. Offsets along rows have 64 bits.
"""

import triton
import triton.language as tl


@triton.jit
def keys_kernel(
    position_ptr,
    key_ptr,
    n_keys,
    n_cols,
    n_elements,
    n_rows,
    stride_row,
    stride_col,
    BLOCK: tl.constexpr,
):
    """The keys of positions [lines, n_cols], where each line has n_elements rows of the result."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = place < n_keys
    line, col = place // n_cols, place % n_cols
    address = position_ptr + line * stride_row + col * stride_col
    position = tl.load(address, mask=mask, other=0).to(tl.int64)
    inside = (position >= 0) & (position < n_elements)
    key = tl.where(inside, line * n_elements + position, n_rows)
    tl.store(key_ptr + place, key, mask=mask)


@triton.jit
def key_at(key_ptr, place, mask):
    """The key at a place; where the mask has none, one that no term has."""
    return tl.load(key_ptr + place, mask=mask, other=-1).to(tl.int64)


@triton.jit
def term_at(term_ptr, order_ptr, place, mask, cols, col_mask, stride_row, stride_col):
    """The term at a place in the order of the keys."""
    row = place
    if order_ptr is not None:
        row = tl.load(order_ptr + place, mask=mask, other=0)
    address = term_ptr + row * stride_row + cols * stride_col
    return tl.load(address, mask=mask & col_mask, other=0.0)


@triton.jit(do_not_specialize=["first_term", "end_term", "first_partial"])
def segments_kernel(
    term_ptr,
    order_ptr,
    key_ptr,
    sum_ptr,
    partial_ptr,
    partial_key_ptr,
    first_term,
    end_term,
    first_partial,
    n_rows,
    n_cols,
    stride_row,
    stride_col,
    COMPUTE: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Add up terms in the order of their keys, which are sorted: BLOCK_M chunks of CHUNK terms per program.

    A segment is all terms of one key. Where a chunk holds all of it, its sum is stored. A chunk has at most two
    incomplete segments, at its first and last term: their partial sums are stored with their keys, for the next
    launch to add up.
    """
    n_blocks = tl.cdiv(n_cols, BLOCK_N)
    block = tl.program_id(0) % n_blocks
    chunk = (tl.program_id(0) // n_blocks).to(tl.int64) * BLOCK_M
    chunk += tl.arange(0, BLOCK_M)[:, None]
    cols = (block * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    col_mask = cols < n_cols
    first = first_term + chunk * CHUNK
    end = tl.minimum(first + CHUNK, end_term)
    before = key_at(key_ptr, first - 1, (first > first_term) & (first < end))
    key = key_at(key_ptr, first, first < end)
    mask = (first < end) & (key < n_rows)
    term = term_at(
        term_ptr, order_ptr, first, mask, cols, col_mask, stride_row, stride_col
    )
    last = before
    total = tl.zeros([BLOCK_M, BLOCK_N], COMPUTE)
    for step in range(CHUNK):
        # The next term is loaded while this one is added.
        place = first + step + 1
        next_key = key_at(key_ptr, place, place < end_term)
        next_mask = (place < end) & (next_key < n_rows)
        next_term = term_at(
            term_ptr,
            order_ptr,
            place,
            next_mask,
            cols,
            col_mask,
            stride_row,
            stride_col,
        )
        total = tl.where(key == last, total, 0) + term
        is_complete = (key != next_key) & (key != before)
        address = sum_ptr + key * n_cols + cols
        tl.store(address, total, mask=mask & is_complete & col_mask)
        if partial_ptr is not None:
            is_partial = ((key != next_key) | (place == end)) & ~is_complete
            partial = first_partial + 2 * chunk + (key != before)
            address = partial_ptr + partial * n_cols + cols
            tl.store(address, total, mask=mask & is_partial & col_mask)
        last = key
        key, mask, term = next_key, next_mask, next_term
    if partial_ptr is not None:
        # A chunk with one open end stores 0 for its other partial sum.
        first_key = key_at(key_ptr, first, first < end)
        last_key = key_at(key_ptr, end - 1, first < end)
        after = key_at(key_ptr, end, end < end_term)
        has_first = (first < end) & (first_key == before)
        has_last = (first < end) & (last_key == after) & (last_key != before)
        zero = tl.zeros([BLOCK_M, BLOCK_N], COMPUTE)
        address = partial_ptr + (first_partial + 2 * chunk) * n_cols + cols
        tl.store(address, zero, mask=has_last & ~has_first & col_mask)
        tl.store(address + n_cols, zero, mask=has_first & ~has_last & col_mask)
        if block == 0:
            key_address = partial_key_ptr + first_partial + 2 * chunk
            either = tl.where(has_last, last_key, n_rows)
            partial_key = tl.where(has_first, first_key, either)
            tl.store(key_address, partial_key, mask=first < end)
            partial_key = tl.where(has_last, last_key, partial_key)
            tl.store(key_address + 1, partial_key, mask=first < end)


@triton.jit
def atomic_kernel(
    term_ptr,
    key_ptr,
    sum_ptr,
    n_terms,
    n_rows,
    n_cols,
    stride_row,
    stride_col,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Add terms to the sums of their keys, as they come."""
    n_blocks = tl.cdiv(n_cols, BLOCK_N)
    place = (tl.program_id(0) // n_blocks).to(tl.int64) * BLOCK_M
    place += tl.arange(0, BLOCK_M)[:, None]
    cols = tl.program_id(0) % n_blocks * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    key = tl.load(key_ptr + place, mask=place < n_terms, other=n_rows).to(tl.int64)
    mask = (key < n_rows) & (cols < n_cols)
    term = tl.load(term_ptr + place * stride_row + cols * stride_col, mask=mask)
    term = term.to(sum_ptr.dtype.element_ty)
    tl.atomic_add(sum_ptr + key * n_cols + cols, term, mask=mask, sem="relaxed")
