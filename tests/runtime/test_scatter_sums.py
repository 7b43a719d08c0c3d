"""The runtime's scatter-add, which computes gradients of `take`: its values, and that its kernels compile for GPUs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.harness.importing import runtime_module
from tests.harness.oracles import DEVICE

SCATTER = runtime_module("scatter_sums")
# Relative to the largest sum: one rounding of half precision, which the interpreter cuts off for bfloat16.
TOLERANCES = {torch.float16: 2**-10, torch.bfloat16: 2**-7, torch.float32: 1e-6, torch.float64: 1e-15}
INTS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
Shape = tuple[int, int, int, int]  # lines, positions of each, elements of each, columns
CHUNKED = [(1, n, 7, 5) for n in (15, 16, 17, 31, 33, 64, 65, 1000)]
Layout = Callable[[torch.Tensor], torch.Tensor]


def make(shape: Shape, dtype: torch.dtype = torch.float32, beyond: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Terms, and positions of which some are outside of their line, by no more than `beyond`."""
    n_lines, n_positions, n_elements, n_cols = shape
    random = torch.Generator().manual_seed(0)
    terms = torch.randn((n_lines * n_positions, n_cols), generator=random, dtype=torch.float64)
    positions = torch.randint(-beyond, n_elements + beyond or 1, (n_lines, n_positions), generator=random)
    return terms.to(DEVICE, dtype), positions.to(DEVICE)


def scattered(
    terms: torch.Tensor, positions: torch.Tensor, n_elements: int, deterministic: bool = True
) -> torch.Tensor:
    """What the runtime makes of it."""
    sums = torch.zeros(len(positions) * n_elements, terms.shape[1], dtype=terms.dtype, device=DEVICE)
    SCATTER.scatter_sum(terms, positions, sums, deterministic=deterministic)
    return sums


def oracle(terms: torch.Tensor, positions: torch.Tensor, n_elements: int) -> torch.Tensor:
    """Line by line, in float64."""
    wanted = torch.zeros(len(positions), n_elements, terms.shape[1], dtype=torch.float64, device=DEVICE)
    apart = terms.double().reshape(*positions.shape, terms.shape[1])
    for line, (at, own) in enumerate(zip(positions.long(), apart, strict=True)):
        inside = (at >= 0) & (at < n_elements)
        wanted[line].index_add_(0, at[inside], own[inside])
    return wanted.flatten(0, 1)


def check(terms: torch.Tensor, positions: torch.Tensor, n_elements: int, deterministic: bool = True) -> None:
    got, want = scattered(terms, positions, n_elements, deterministic), oracle(terms, positions, n_elements)
    scale = max(1.0, want.abs().max().item() if want.numel() else 0.0)
    torch.testing.assert_close(got.double(), want, rtol=0, atol=TOLERANCES[terms.dtype] * scale)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_dtypes(dtype: torch.dtype, deterministic: bool) -> None:
    check(*make((2, 40, 7, 5), dtype), 7, deterministic)


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_dtypes_of_positions(dtype: torch.dtype) -> None:
    terms, positions = make((2, 40, 7, 5))
    check(terms, positions.to(dtype), 7)


@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (3, 19, 7, 1), (2, 33, 3, 130), (1, 5, 1, 1100), (40, 3, 2, 2), *CHUNKED], ids=str
)
def test_shapes(shape: Shape) -> None:
    """Segments that begin and end in any place of a chunk."""
    check(*make(shape), shape[2])


@pytest.mark.parametrize("shape", [(1, 0, 7, 5), (0, 9, 7, 5), (1, 9, 7, 0), (1, 9, 0, 5), (3, 0, 0, 0)], ids=str)
def test_empty(shape: Shape) -> None:
    check(*make(shape), shape[2])


@pytest.mark.parametrize("n", [1, 16, 17, 48, 1000, 5000])
def test_one_element_for_all(n: int) -> None:
    """Parts of parts are added up, until one program has them all."""
    terms, positions = make((1, n, 1, 3))
    check(terms, torch.full_like(positions, 4), 9)


@pytest.mark.parametrize("n", [16, 32, 48])
def test_segments_of_whole_chunks(n: int) -> None:
    terms, _ = make((1, 4 * n, 1, 3))
    check(terms, torch.arange(4, device=DEVICE).repeat_interleave(n)[None], 4)


def test_each_element_once() -> None:
    terms, _ = make((1, 300, 1, 3))
    check(terms, torch.arange(300, device=DEVICE).flip(0)[None], 300)


def test_nothing_inside() -> None:
    terms, positions = make((2, 40, 7, 5))
    check(terms, positions * 0 + 7, 7)


def sliced(tensor: torch.Tensor) -> torch.Tensor:
    """Every second element of a larger tensor, along each axis."""
    large = tensor.new_zeros([2 * size for size in tensor.shape])
    return large[(slice(None, None, 2),) * tensor.ndim].copy_(tensor)


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.mT.contiguous().mT


def misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """One element past an aligned address."""
    return torch.cat((tensor.new_zeros(1), tensor.flatten()))[1:].view(tensor.shape)


def same_rows(tensor: torch.Tensor) -> torch.Tensor:
    """One row for all, by a stride of zero."""
    return tensor[:1].expand_as(tensor)


def same_columns(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[:, :1].expand_as(tensor)


@pytest.mark.parametrize("layout", [sliced, transposed, misaligned, same_rows, same_columns])
@pytest.mark.parametrize("deterministic", [True, False])
def test_layouts(layout: Layout, deterministic: bool) -> None:
    terms, positions = make((2, 40, 7, 5))
    check(layout(terms), positions, 7, deterministic)
    check(terms, layout(positions), 7, deterministic)


def test_sums_of_half_precision_are_rounded_once() -> None:
    """In float16, 2048 and 1 are 2048."""
    terms = torch.ones((3000, 2), dtype=torch.float16, device=DEVICE)
    got = scattered(terms, torch.zeros((1, 3000), dtype=torch.int64, device=DEVICE), 2)
    assert got.tolist() == [[3000.0, 3000.0], [0.0, 0.0]]


@pytest.mark.parametrize("special", [torch.nan, torch.inf])
def test_special_values_stay_with_their_element(special: float) -> None:
    terms, positions = make((1, 1000, 7, 3), beyond=0)
    terms[positions[0] == 3] = special
    got = scattered(terms, positions, 7)
    assert not got[3].isfinite().any()
    assert got[[0, 1, 2, 4, 5, 6]].isfinite().all()


@pytest.mark.parametrize("n_cols", [1, 5, 130])
def test_equal_calls_give_equal_bits(n_cols: int) -> None:
    terms, positions = make((2, 700, 3, n_cols))
    assert torch.equal(scattered(terms, positions, 3), scattered(terms, positions, 3))


def test_keys_are_as_wide_as_the_sums_have_rows() -> None:
    _, positions = make((3, 5, 7, 1))
    for n_rows, dtype in ((3 * 7, torch.int32), (3 * 2**30, torch.int64)):
        launches = SCATTER._Launches((positions, torch.empty(1).expand(n_rows)), True, None)
        keys = SCATTER._keys(positions, n_rows, launches)
        inside = (positions >= 0) & (positions < n_rows // 3)
        line = torch.arange(3, device=DEVICE)[:, None] * (n_rows // 3)
        wanted = torch.where(inside, positions + line, n_rows).flatten()
        assert keys.dtype == dtype
        assert keys.tolist() == wanted.tolist()
