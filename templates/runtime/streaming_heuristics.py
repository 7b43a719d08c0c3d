"""The rules by which launches of streaming kernels, like attention, choose tiles, splits and kernels."""

import torch
import triton

from . import heuristics
from .launch import capability, is_traced, memoized
from .tensors import cdiv, power_of_two

Tiling = tuple[int, int, int, int, int]
Timed = tuple[int, int, int, int]
Widths = tuple[int, ...]


def use_gluon(
    device: torch.device,
    dtype: torch.dtype,
    lengths: tuple[int, int, int],
    widths: Widths,
    is_gradient: bool,
) -> bool:
    """Whether attention is computed by a Gluon kernel: for half precision, heads of up to 128, on NVIDIA's Hopper,
    with a tested Triton, if rows fill more than half a tile.

    Gradients only for heads of more than 64: for narrower ones plain kernels are as fast.
    """
    _, n_rows, n_cols = lengths
    return (
        not is_traced()  # Under a trace, addresses are unknown.
        and capability(device)[0] == 9
        and dtype in (torch.float16, torch.bfloat16)
        and n_rows > 64
        and n_cols > 0
        and (64 if is_gradient else 0) < max(widths) <= 128
        and heuristics.knows_gluon()
    )


def use_descriptors(device: torch.device, n_rows: int, n_cols: int) -> bool:
    """Whether streamed blocks are read by TMA: on NVIDIA's Hopper and later, if the rows fill more than half a tile."""
    return (
        not is_traced()  # Under a trace, addresses are unknown.
        and capability(device) >= (9, 0)
        and n_rows > 64
        and n_cols > 0
    )


def streamed_tile(rows: int, block: int, warps: int, stages: int) -> triton.Config:
    """The rows of a tile, and the length of streamed blocks."""
    tile = {"BLOCK_M": rows, "BLOCK_N": block}
    return triton.Config(tile, num_warps=warps, num_stages=stages)


def most_rows(n_rows: int, widths: Widths, itemsize: int, device: torch.device) -> int:
    """No more than there are; and 32 where a block may lie over another that is swizzled otherwise: of such, ptxas 12.8
    (of Triton 3.6 and 3.7) leaves out descriptors that Hopper's warp groups read.
    """
    most = max(16, power_of_two(n_rows))
    are_lost = len(
        {min(one * itemsize, 128) for one in widths}
    ) > 1 and heuristics.TRITON < (3, 8)
    return min(most, 32) if are_lost and capability(device)[0] == 9 else most


def streamed_elements(
    rows: int, block: int, stages: int, tile_widths: Widths, block_widths: Widths
) -> int:
    """The elements that a program has in shared memory: its tile of matrices of these widths, and blocks in flight."""
    return rows * sum(tile_widths) + stages * block * sum(block_widths)


class Streamed:
    """For streaming kernels, for half precision, for wider dtypes, and for half precision with blocks read by TMA: the
    maximal width of the widest matrix, rows, length of a block, warps and stages. Tiles that are `timed` have no width,
    and are for half precision and for wider dtypes. With `float8`, blocks have half the bytes: few rows take longer
    ones, and two programs per SM, to reach the same bandwidth.
    """

    def __init__(
        self,
        half: tuple[Tiling, ...],
        wide: tuple[Tiling, ...],
        described: tuple[Tiling, ...] = (),
        timed_half: tuple[Timed, ...] = (),
        timed_wide: tuple[Timed, ...] = (),
        float8: bool = False,
    ) -> None:
        self.half = {width: streamed_tile(*tile) for width, *tile in half}
        self.wide = {width: streamed_tile(*tile) for width, *tile in wide}
        by_tma = {width: streamed_tile(*tile) for width, *tile in described}
        self.described = by_tma or self.half
        self.timed_half, self.timed_wide = timed_half, timed_wide
        self.float8 = float8

    def of(self, itemsize: int, is_described: bool = False) -> dict[int, triton.Config]:
        """The tiles for a dtype of `itemsize` bytes, read through pointers or by TMA."""
        if itemsize > 2:
            return self.wide
        return self.described if is_described else self.half

    @memoized
    def choose(
        self,
        n_rows: int,
        tile_widths: Widths,
        block_widths: Widths,
        itemsize: int,
        device: torch.device,
        is_described: bool = False,
    ) -> triton.Config:
        """The tile for matrices of these widths, with no more rows than there are and than fit in shared memory."""
        tiles = self.of(itemsize, is_described)
        widest = max(*tile_widths, *block_widths)
        limits = [width for width in tiles if widest <= width] or [*tiles][-1:]
        config = tiles[limits[0]]
        most = most_rows(n_rows, block_widths, itemsize, device)
        rows: int = min(config.kwargs["BLOCK_M"], most)
        block: int = config.kwargs["BLOCK_N"] * (2 if self.float8 and rows == 16 else 1)
        stages: int = config.num_stages
        room: int = heuristics.shared_memory(device) // itemsize
        read = tile_widths, block_widths

        def fits() -> bool:
            return streamed_elements(rows, block, stages, *read) <= room

        if itemsize == 8 and min(*tile_widths, *block_widths) >= 32:
            # Shorter blocks take more registers of each thread, too many of which ptxas 12.9 spills wrongly.
            longer = max(32, block)
            if 4 * streamed_elements(rows, longer, stages, *read) <= 3 * room:
                block = longer
        while stages > 2 and not fits():
            stages -= 1
        while block > 16 and not fits():
            block //= 2
        while rows > 16 and not fits():
            rows //= 2
        warps = config.num_warps if rows >= 64 else min(4, config.num_warps)
        return streamed_tile(rows, block, warps, stages if fits() else 1)

    def candidates(
        self,
        n_rows: int,
        tile_widths: Widths,
        block_widths: Widths,
        itemsize: int,
        device: torch.device,
        is_described: bool = False,
    ) -> list[triton.Config]:
        """The tiles to search: the rule's choice, and others that fit in shared memory, with no more rows than
        there are and at least half of the maximum among these.
        """
        room: int = heuristics.shared_memory(device) // itemsize
        most = most_rows(n_rows, block_widths, itemsize, device)
        fitting = [
            tile
            for tile in (self.timed_wide if itemsize > 2 else self.timed_half)
            if tile[0] <= most
            and streamed_elements(tile[0], tile[1], tile[3], tile_widths, block_widths)
            <= room
        ]
        least = max((rows for rows, *_ in fitting), default=0) // 2
        others = [streamed_tile(*tile) for tile in fitting if tile[0] >= least]
        chosen = self.choose(
            n_rows, tile_widths, block_widths, itemsize, device, is_described
        )
        return [chosen, *(tile for tile in others if str(tile) != str(chosen))]


def use_packed_heads(n_rows: int, in_group: int, config: triton.Config) -> bool:
    """Whether a tile has the rows of several heads of a group: if at least two of them fit."""
    rows: int = config.kwargs["BLOCK_M"]
    return in_group > 1 and 2 * n_rows <= rows


def choose_stream_splits(
    tiles: int,
    n_cols: int,
    config: triton.Config,
    device: torch.device,
    float8: bool = False,
) -> int:
    """How many programs split the streamed axis of a tile: about one per SM, which reads as fast as several, or two for
    `float8`, with eight blocks or more each.
    """
    blocks: int = cdiv(n_cols, config.kwargs["BLOCK_N"])
    programs: int = heuristics.sm_count(device) * (2 if float8 else 1)
    per_tile: int = (programs + (tiles - 1) // 2) // tiles  # rounded
    return max(1, min(per_tile, blocks // 8))
