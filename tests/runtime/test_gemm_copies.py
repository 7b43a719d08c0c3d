"""What the runtime's gemm copies before it multiplies, and how."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.cases.gemm import (
    BATCHES,
    DEVICE,
    GEMM,
    LAYOUTS,
    RAGGED,
    SMALL,
    Layout,
    check,
    make,
    needs_tma,
    sliced,
    transposed,
)
from tests.harness.replaying import replay_interpreted


def test_what_is_copied_of_a_summed_batch(choose: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    choose(SMALL, use_tma=False)
    copied = []
    whole = GEMM.in_a_row
    monkeypatch.setattr(GEMM, "in_a_row", lambda batch: copied.append(batch.shape[-1]) or whole(batch))
    for inner in (144, 136, 145, 48):  # Triton reads rows of 136 an element at a time; blocks of 48 are not full.
        check(*make((3,), (24, 72, inner)), sums_batch=True)
    check(*make((3,), (24, 72, 144), torch.float32), "bf16x6", sums_batch=True)
    assert copied == [136, 136, 145, 145, 48, 48, 144, 144]


@pytest.mark.parametrize(
    ("dtype", "width", "moved"),
    [
        (torch.float16, 45, torch.int16),
        (torch.float16, 46, torch.int32),
        (torch.float16, 48, torch.int64),
        (torch.float32, 45, torch.int32),
        (torch.float64, 45, torch.int64),
        (torch.int8, 44, torch.int32),
    ],
    ids=str,
)
def test_copies_are_moved_by_the_widest_integers(
    dtype: torch.dtype, width: int, moved: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = GEMM.contraction.copies
    launched = []
    launch = copies._launch
    monkeypatch.setattr(copies, "_launch", lambda *args: launched.append(args[2].dtype) or launch(*args))
    tensor = torch.arange(2 * 7 * width, device=DEVICE).to(dtype).view(2, 7, width)
    for one in (tensor, tensor[1], tensor[:, :, 1:], tensor.mT, tensor[:, ::2, ::3]):
        copy = copies.with_cols_last(one)
        assert torch.equal(copy, one)
        assert copy.stride(-1) == 1
        assert copy.stride(-2) * copy.itemsize % 128 == 0
    assert launched[0] == moved
    assert all(each.itemsize <= moved.itemsize for each in launched)


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8], ids=str)
@pytest.mark.parametrize("shape", [(2, 1), (70, 31), (3, 50, 49), (5, 1, 4099), (1, 130, 17)], ids=str)
def test_contiguous_copies_are_read_in_vectors(
    shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of an odd number of elements, in blocks that end within them; what lies apart is left to torch."""
    copies = GEMM.contraction.copies
    launched = []
    launch = copies._launch
    monkeypatch.setattr(copies, "_launch", lambda *args: launched.append(args[0]) or launch(*args))
    tensor = torch.randint(-100, 100, shape, device=DEVICE).to(dtype)
    copy = copies.with_cols_last(tensor)
    assert torch.equal(copy, tensor)
    assert copy.stride(-2) * copy.itemsize % 128 == 0
    assert launched == ["contiguous_copy"]
    wide = torch.cat((tensor, tensor), -1)[..., : shape[-1]]
    assert torch.equal(copies.with_cols_last(wide), tensor)
    assert launched == ["contiguous_copy"]


@needs_tma
@pytest.mark.skipif(torch.cuda.is_available(), reason="generated tests show it on a GPU")
@pytest.mark.parametrize("inner", [45, 46, 44], ids="moved by {} elements".format)
@pytest.mark.parametrize("layout", [lambda one: one, transposed, sliced], ids=["contiguous", "transposed", "sliced"])
def test_copies_are_made_again(
    layout: Layout, inner: int, choose: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By calls alike, of other values in other memory, through the launches of the first."""
    choose(SMALL, use_tma=True, choose_stream_k=(0, 0, 0, 0))
    replay_interpreted(GEMM.launch, monkeypatch)
    kept = []
    for _ in range(2):
        left, right = make((2,), (24, 70, inner))
        kept += [left, right]
        check(layout(left), layout(right))
        check(left, layout(right))


@needs_tma
@pytest.mark.parametrize(
    ("width", "n_rows", "apart"), [(64, 2048, 128), (48, 2048, 32), (40, 2048, 128), (40, 2047, 16), (41, 5, 128)]
)
def test_matrices_that_are_read_often_begin_rows_at_sectors(width: int, n_rows: int, apart: int) -> None:
    """Rows of 40 elements are copied if 2,048 rows of the other matrix are multiplied, and of 41 always."""
    tma = GEMM.contraction.tma
    right = make((), (1, 24, width))[1]
    for one in (right, transposed(make((), (1, width, 24))[1])):
        described, _ = tma.descriptor(one, 16, 16, n_rows)
        assert (described.base.data_ptr() != one.data_ptr()) == (tma.alignment(one, 0) != apart or width == 41)
        assert described.base.stride(0) * 2 % apart == 0
        assert tma.alignment(one, n_rows) == apart


@pytest.mark.parametrize(("width", "tile"), [(4096, (2, 1024)), (2052, (2, 1024)), (196, (32, 64)), (4, (2048, 1))])
def test_tiles_of_copies_are_as_wide_as_rows(
    width: int, tile: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elements of half precision are moved by fours here."""
    configs = []
    monkeypatch.setattr(GEMM.launch, "run", lambda *args, **_: configs.append(args[3]))
    GEMM.contraction.copies.with_cols_last(torch.empty(3, 5, width, dtype=torch.float16))
    assert [(one.kwargs["BLOCK_M"], one.kwargs["BLOCK_N"]) for one in configs] == [tile]


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", ["rows", "inner"])
def test_copies_with_a_contiguous_axis(
    axis: str, layout: Layout, batch: tuple[int, ...], choose: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of float32: matrices that lie so already are not copied."""
    choose(SMALL, contiguous_axis=axis, use_copies=True, choose_split_k=1)
    copied = []
    copies = GEMM.contraction.copies
    launched = copies._launch
    monkeypatch.setattr(copies, "_launch", lambda *args: copied.append(args) or launched(*args))
    for shape in (RAGGED, (24, 72, 48)):
        left, right = make(batch, shape, torch.float32)
        check(layout(left), right)
        check(left, layout(right))
    left, right = make(batch, (24, 72, 48), torch.float32)
    assert copied
    copied.clear()
    lying = transposed if axis == "rows" else torch.clone
    check(lying(left), lying(right))
    assert not copied


def test_copies_are_loaded_as_far_as_they_are_padded(
    choose: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of odd lengths too: what pads them goes into no sum that is stored."""
    choose(SMALL, contiguous_axis="rows", use_copies=True, choose_split_k=1)
    copies = GEMM.contraction.copies
    empty = copies.aligned_empty
    monkeypatch.setattr(copies, "aligned_empty", lambda like, *shape: with_nan(empty(like, *shape)))
    found = watch_alignments(monkeypatch)
    left, right = make((), (17, 33, 21), torch.float32)
    check(left, right)
    check(left, transposed(make((), (17, 32, 21), torch.float32)[1]))
    check(left, transposed(make((), (17, 40, 21), torch.float32)[1]))
    choose(SMALL, use_copies=False)
    check(left[1:], right)  # Of another shape: a launch like the first is repeated on a GPU.
    assert found == [(8, 8, 1), (8, 1, 1), (8, 8, 1), (1, 1, 1)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_loads_are_as_wide_as_contiguous_axes_allow(
    dtype: torch.dtype, choose: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, columns and inner axes, by what divides those of them that are contiguous and the strides beside them."""
    choose(SMALL, use_tma=False, use_copies=False)
    found = watch_alignments(monkeypatch)
    left, right = make((2,), (24, 36, 40), dtype)
    check(left, right)  # the inner axis, in both
    check(transposed(left), right)
    check(left, transposed(right))
    check(transposed(left), transposed(right))
    check(left[:, :23], transposed(right))  # A length that nothing lies along may be any.
    check(transposed(left)[:, :23], right)
    check(sliced(left), right)  # No axis of the left matrix is contiguous.
    check(*make((2,), (24, 36, 48), dtype))  # Triton sees this by itself.
    check(*make((2,), (24, 36, 45), dtype))
    expected = [(1, 1, 8), (8, 1, 8), (1, 4, 8), (8, 4, 1), (1, 4, 8), (1, 1, 8), (1, 1, 8), (1, 1, 1), (1, 1, 1)]
    assert found == expected


def watch_alignments(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """What the runtime will have found of how matrices are aligned."""
    found: list[tuple[int, ...]] = []
    copies, known = GEMM.contraction.copies, GEMM.contraction.copies.alignments

    def alignments(*args: object) -> dict[str, int]:
        known_of = known(*args)
        found.append(tuple(known_of.values()))
        return known_of

    monkeypatch.setattr(copies, "alignments", alignments)
    return found


def with_nan(matrix: torch.Tensor) -> torch.Tensor:
    """A matrix whose rows lie apart, with NaN there too."""
    torch.as_strided(matrix, (matrix.untyped_storage().nbytes() // matrix.itemsize,), (1,)).fill_(torch.nan)
    return matrix
