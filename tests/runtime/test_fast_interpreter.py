# mypy: allow-untyped-defs, allow-untyped-decorators
"""What tritongen/residues/fast_interpreter.py puts in place of the interpreter's own computes the same."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="Triton's interpreter is for CPUs")


@triton.jit
def after(scale, shift, then_scale, then_shift):
    """One affine map after another: the order counts, and how they are grouped does not."""
    return scale * then_scale, shift * then_scale + then_shift


@triton.jit
def compose_kernel(
    scale_ptr, shift_ptr, y_ptr, AXIS: tl.constexpr, KEEP: tl.constexpr, M: tl.constexpr, N: tl.constexpr
):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    pair = tl.load(scale_ptr + at), tl.load(shift_ptr + at)
    scale, shift = tl.reduce(pair, AXIS, after, keep_dims=KEEP)
    if KEEP:
        at = tl.arange(0, M)[:, None] if AXIS == 1 else tl.arange(0, N)[None, :]
    else:
        at = tl.arange(0, M if AXIS == 1 else N)
    tl.store(y_ptr + 2 * at, scale)
    tl.store(y_ptr + 2 * at + 1, shift)


@triton.jit
def compose_all_kernel(scale_ptr, shift_ptr, y_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    scale, shift = tl.reduce((tl.load(scale_ptr + at), tl.load(shift_ptr + at)), None, after)
    tl.store(y_ptr, scale)
    tl.store(y_ptr + 1, shift)


def composed(maps: torch.Tensor) -> torch.Tensor:
    """The maps (scale, shift) along the first axis, one after another."""
    scale, shift = torch.ones_like(maps[0, ..., 0]), torch.zeros_like(maps[0, ..., 0])
    for one in maps:
        scale, shift = scale * one[..., 0], shift * one[..., 0] + one[..., 1]
    return torch.stack([scale, shift], -1)


@pytest.mark.parametrize("shape", [(4, 8), (1, 8), (8, 1), (2, 2)])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions_keep_the_order(axis: int, keep: bool, shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    maps = torch.randn(*shape, 2, dtype=torch.float64)
    y = maps.new_empty(shape[1 - axis], 2)
    compose_kernel[(1,)](*(one.contiguous() for one in maps.unbind(-1)), y, axis, keep, *shape)
    torch.testing.assert_close(y, composed(maps.movedim(axis, 0)))


def test_reductions_over_all_axes() -> None:
    torch.manual_seed(0)
    maps = torch.randn(16, 2, dtype=torch.float64)
    y = maps.new_empty(2)
    compose_all_kernel[(1,)](*(one.contiguous() for one in maps.unbind(-1)), y, 16)
    torch.testing.assert_close(y, composed(maps))


@triton.jit
def add_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.store(y_ptr + at, x + x * 2, mask=at < n)


def test_integers_wrap_around() -> None:
    """As on a GPU, where no debugging was asked for."""
    x = torch.tensor([2**31 - 1, -(2**31), 1, 0], dtype=torch.int32)
    y = torch.empty_like(x)
    add_kernel[(2,)](x, y, len(x), 2)
    assert y.tolist() == (3 * x).tolist()


@triton.jit
def outer_kernel(x_ptr, y_ptr, N: tl.constexpr):
    rows, cols = tl.arange(0, N), tl.arange(0, N)
    x = tl.load(x_ptr + rows)
    tl.store(y_ptr + rows[:, None] * N + cols[None, :], x[:, None] * tl.load(x_ptr + cols)[None, :] + (x + x)[:, None])


def test_shapes_are_broadcast() -> None:
    """Those that are equal, and those that are not."""
    x = torch.randn(4)
    y = x.new_empty(4, 4)
    outer_kernel[(1,)](x, y, 4)
    torch.testing.assert_close(y, x[:, None] * x + 2 * x[:, None])


@triton.jit
def promote_kernel(x_ptr, y_ptr, total_ptr, quotient_ptr, is_less_ptr, TOTAL: tl.constexpr, QUOTIENT: tl.constexpr):
    at = tl.arange(0, 4)
    x, y = tl.load(x_ptr + at)[:, None], tl.load(y_ptr + at)[None, :]
    total, quotient, is_less = x + y, x / y, x < y
    tl.static_assert(total.dtype == TOTAL and quotient.dtype == QUOTIENT and is_less.dtype == tl.int1)
    at = 4 * at[:, None] + at[None, :]
    tl.store(total_ptr + at, total)
    tl.store(quotient_ptr + at, quotient)
    tl.store(is_less_ptr + at, is_less)


DTYPES = (torch.int8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64)


@pytest.mark.parametrize("other", DTYPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_are_promoted(dtype: torch.dtype, other: torch.dtype) -> None:
    """As torch promotes, but that halves are divided in float32: the first time, and by what is kept of it."""
    x, y = torch.tensor([-5, 3, 7, 100]).to(dtype), torch.tensor([2, -3, 90, 120]).to(other)
    total = torch.result_type(x, y)
    quotient = torch.float64 if total == torch.float64 else torch.float32
    kinds = {torch.float64: tl.float64, torch.float32: tl.float32, torch.float16: tl.float16}
    kinds |= {torch.int8: tl.int8, torch.int32: tl.int32, torch.int64: tl.int64}
    for _ in range(2):
        found = torch.empty(4, 4, dtype=total), torch.empty(4, 4, dtype=quotient), torch.empty(4, 4, dtype=torch.bool)
        promote_kernel[(1,)](x, y, *found, kinds[total], kinds[quotient])
        x_wide, y_wide = x[:, None].to(total), y[None, :].to(total)
        assert torch.equal(found[0], x_wide + y_wide)
        torch.testing.assert_close(found[1], x_wide.to(quotient) / y_wide.to(quotient))
        assert torch.equal(found[2], x[:, None] < y)


@triton.jit
def scalars_kernel(x_ptr, y_ptr, scale, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    whole = tl.full([], 3, tl.int32)
    tl.store(y_ptr + at, (scale * x - 0.5) * whole + (1 if N > 2 else 0))
    tl.store(y_ptr + N + N * at[:, None] + at[None, :], tl.zeros([N, N], tl.float32) + x)


def test_scalars_and_ranks_are_broadcast() -> None:
    """Numbers, arguments, tensors of no axes, and those of fewer axes."""
    x = torch.randn(4)
    y = x.new_empty(5, 4)
    scalars_kernel[(1,)](x, y, 1.25, 4)
    torch.testing.assert_close(y[0], (1.25 * x - 0.5) * 3 + 1)
    assert torch.equal(y[1:], x.expand(4, 4))


@triton.jit
def operands_kernel(x_ptr, n_ptr, y_ptr, z_ptr, count, N: tl.constexpr):
    """Operands of other shapes than the result's, also of what is cast, chosen and added to pointers after."""
    at = tl.arange(0, N)
    x, n = tl.load(x_ptr + at), tl.load(n_ptr + at)
    rows, cols = n[:, None], n[None, :]
    to = N * at[:, None] + at[None, :]
    for _row in tl.static_range(2):  # Shapes meet for the first time, and again.
        tl.store(y_ptr + to, rows / cols)
        tl.store(y_ptr + N * N + to, tl.where(rows > cols, x[:, None], x[None, :]))
        tl.store(y_ptr + 2 * N * N + to, tl.where(count > 2, x[:, None] - count, x[None, :] * count))
        tl.store(z_ptr + to, tl.maximum(rows // count, cols % count) + (rows << (cols & 3)))
        tl.store((z_ptr + N * N + N * at)[:, None] + at[None, :], (rows < cols) & (cols > count))
        tl.store(z_ptr + count - count + 2 * N * N + at, tl.sum(rows * cols + (count - rows), 0))


def test_operands_are_broadcast() -> None:
    x, n = torch.randn(4), torch.tensor([1, 5, 3, 9])
    y, z = x.new_empty(3, 4, 4), n.new_empty(9, 4)
    operands_kernel[(1,)](x, n, y, z, 3, 4)
    rows, cols, wide = n[:, None], n[None, :], x[:, None].expand(4, 4)
    torch.testing.assert_close(y[0], rows / cols)
    assert torch.equal(y[1], wide.where(rows > cols, x))
    assert torch.equal(y[2], wide - 3)
    assert torch.equal(z[:4], torch.maximum(rows // 3, cols % 3) + (rows << (cols & 3)))
    assert torch.equal(z[4:8], ((rows < cols) & (cols > 3)).long())
    assert torch.equal(z[8], (rows * cols + (3 - rows)).sum(0))


@triton.jit
def convert_kernel(x_ptr, half_ptr, wide_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    half = tl.load(x_ptr + at).to(tl.bfloat16)
    tl.store(half_ptr + at, half)
    tl.store(wide_ptr + at, half.to(tl.float32))


def test_bfloat16_is_the_upper_half_of_float32() -> None:
    """Whether the interpreter cuts off what does not fit, or rounds, where the runtime has mended it."""
    inf = float("inf")
    numbers = [1.0, -1.5, 0.0, -0.0, inf, -inf, float("nan"), 3.140625, 1e38, 2.0**-126, -7.0, 65280.0]
    x = torch.tensor([*numbers, *range(4)])
    half, wide = x.new_empty(16, dtype=torch.bfloat16), torch.empty_like(x)
    convert_kernel[(1,)](x, half, wide, 16)
    cut = (x.view(torch.int32) & -0x10000).view(torch.float32)
    torch.testing.assert_close(wide, cut, rtol=0, atol=0, equal_nan=True)
    numbered = ~x.isnan()  # A NaN has whatever sign a conversion gives it.
    assert torch.equal(wide.signbit()[numbered], x.signbit()[numbered])
    torch.testing.assert_close(half.float(), wide, rtol=0, atol=0, equal_nan=True)


@triton.jit
def numbers_kernel(x_ptr, y_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, x / 0.0)
    tl.store(y_ptr + N + at, x / -0.0)
    tl.store(y_ptr + 2 * N + at, x + 2)
    tl.store(y_ptr + 3 * N + at, x // 2 / 2.0)


def test_numbers_beside_tensors_are_themselves() -> None:
    """Zeros have signs, which Triton 3.6 does not know of, and integers and floats are apart."""
    x, y = torch.tensor([3, 5]), torch.empty(4, 2)
    numbers_kernel[(1,)](x, y, 2)
    negative = -1 if tuple(map(int, triton.__version__.split(".")[:2])) > (3, 6) else 1
    inf = float("inf")
    assert y.tolist() == [[inf, inf], [negative * inf] * 2, [5, 7], [0.5, 1]]
