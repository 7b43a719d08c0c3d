# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Where elements are, as device functions."""

import triton
import triton.language as tl


@triton.jit
def aligned(n, ALIGN: tl.constexpr):
    """n, a multiple of ALIGN, in a form that shows it: of an argument Triton knows only whether 16 divides it."""
    return n // ALIGN * ALIGN


@triton.jit
def padded(n, ALIGN: tl.constexpr):
    """n, rounded up to a multiple of ALIGN, to which copies of matrices are padded.

    With masks that end within 16 bytes, loads would be of single elements.
    """
    return tl.cdiv(n, ALIGN) * ALIGN


@triton.jit
def offsets(positions, stride, ALIGN: tl.constexpr):
    """Offsets of positions along an axis: `stride`, which ALIGN divides, apart, or 1 apart if it is None."""
    if stride is None:
        return positions
    else:
        return positions * aligned(stride, ALIGN)


@triton.jit
def unravel(positions, size_1, size_2):
    """Positions in three dimensions, of which the last two have these sizes, along each of the three."""
    return (
        positions // size_2 // size_1,
        positions // size_2 % size_1,
        positions % size_2,
    )


@triton.jit
def second_id(INDEX: tl.constexpr):
    """The number of a program along the second axis of a grid, which goes on along the third after 65,535 programs."""
    return tl.program_id(1).to(INDEX) + tl.program_id(2).to(INDEX) * tl.num_programs(1)
