# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Where elements are, as device functions."""

import triton
import triton.language as tl


@triton.jit
def aligned(n, ALIGN: tl.constexpr):
    """n, with divisibility by ALIGN visible to Triton, which knows of an argument only whether 16 divides it."""
    return n // ALIGN * ALIGN


@triton.jit
def padded(n, ALIGN: tl.constexpr):
    """n, rounded up to a multiple of ALIGN, to which copies of matrices are padded.

    With masks that end within 16 bytes, loads would be of single elements.
    """
    return tl.cdiv(n, ALIGN) * ALIGN


@triton.jit
def row_of(ptr, i, stride_0, stride_1, stride_2, ALIGN: tl.constexpr):
    """Pointers to the rows at positions `i` in three dimensions; ALIGN divides the distances between rows."""
    return ptr + aligned(i[0] * stride_0 + i[1] * stride_1 + i[2] * stride_2, ALIGN)


@triton.jit
def offsets(positions, stride, ALIGN: tl.constexpr):
    """Offsets of positions along an axis. ALIGN divides the stride; None means contiguous."""
    if stride is None:
        return positions
    else:
        return positions * aligned(stride, ALIGN)


@triton.jit
def load_or(ptr, offsets, mask, default, dtype: tl.constexpr):
    """Load an optional tensor in a dtype: its default value if it is absent, 0 in masked lanes."""
    if ptr is None:
        value = tl.full((), default, dtype)
    else:
        value = tl.load(ptr + offsets, mask=mask, other=0.0).to(dtype)
    return value


@triton.jit
def unravel(positions, size_1, size_2):
    """Split linear positions into three coordinates, given the sizes of the two inner dimensions."""
    return (
        positions // size_2 // size_1,
        positions // size_2 % size_1,
        positions % size_2,
    )


@triton.jit
def second_id(INDEX: tl.constexpr):
    """The program id along the second grid axis, which wraps into the third after 65,535 programs."""
    return tl.program_id(1).to(INDEX) + tl.program_id(2).to(INDEX) * tl.num_programs(1)
