"""How launches of what streams past tiles, as keys and values do, pick tiles, splits and kernels."""

import torch
import triton

from . import heuristics
from .launch import capability, memoized
from .tensors import cdiv, power_of_two

# The Triton that Gluon kernels compile with, and the first that they were not tried with.
GLUON, GLUON_END = (3, 6), (3, 10)
Tiling = tuple[int, int, int, int, int]
Timed = tuple[int, int, int, int]


def use_gluon(
    device: torch.device,
    dtype: torch.dtype,
    lengths: tuple[int, int, int],
    widths: tuple[int, ...],
    is_gradient: bool,
) -> bool:
    """Whether attention of so many heads, rows and columns is computed by a Gluon kernel: of half precision, in heads
    of up to 128, on NVIDIA's Hopper, by a Triton that it was tried with, where rows fill more than half a tile. Of
    gradients, in heads of more than 64: of others plain kernels are as fast.
    """
    _, n_rows, n_cols = lengths
    return (
        not torch.compiler.is_compiling()  # It does not tell where tensors lie.
        and capability(device)[0] == 9
        and dtype in (torch.float16, torch.bfloat16)
        and n_rows > 64
        and n_cols > 0
        and (64 if is_gradient else 0) < max(widths) <= 128
        and GLUON <= tuple(map(int, triton.__version__.split(".")[:2])) < GLUON_END
    )


def use_descriptors(device: torch.device, n_rows: int, n_cols: int) -> bool:
    """Whether blocks of what streams past so many rows are read by TMA: on NVIDIA's Hopper and later, where rows fill
    more than half a tile.
    """
    return (
        not torch.compiler.is_compiling()  # It does not tell where tensors lie.
        and capability(device) >= (9, 0)
        and n_rows > 64
        and n_cols > 0
    )


def streamed_tile(rows: int, block: int, warps: int, stages: int) -> triton.Config:
    """Rows of a tile, and the length of the blocks that stream past them."""
    tile = {"BLOCK_M": rows, "BLOCK_N": block}
    return triton.Config(tile, num_warps=warps, num_stages=stages)


def streamed_elements(
    rows: int,
    block: int,
    stages: int,
    tile_widths: tuple[int, ...],
    block_widths: tuple[int, ...],
) -> int:
    """How many elements a program has in shared memory: its tile of matrices of such widths, and blocks in flight."""
    return rows * sum(tile_widths) + stages * block * sum(block_widths)


class Streamed:
    """For tiles of rows past which an axis streams, of half precision, of what is wider, and of half precision whose
    blocks TMA reads: up to which width of the widest matrix, rows, length of a block, warps and stages. Tiles that are
    `timed` have no width, and are for half precision and for what is wider. Of `float8` are blocks with half the bytes:
    few rows take longer ones, and two programs an SM, to read as fast.
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
        """Those of a dtype of so many bytes, by pointers or by TMA."""
        if itemsize > 2:
            return self.wide
        return self.described if is_described else self.half

    @memoized
    def choose(
        self,
        n_rows: int,
        tile_widths: tuple[int, ...],
        block_widths: tuple[int, ...],
        itemsize: int,
        device: torch.device,
        is_described: bool = False,
    ) -> triton.Config:
        """The tile for matrices of such widths: no more rows than there are, and no more than shared memory holds."""
        tiles = self.of(itemsize, is_described)
        widest = max(*tile_widths, *block_widths)
        limits = [width for width in tiles if widest <= width] or [*tiles][-1:]
        config = tiles[limits[0]]
        rows: int = min(config.kwargs["BLOCK_M"], max(16, power_of_two(n_rows)))
        block: int = config.kwargs["BLOCK_N"] * (2 if self.float8 and rows == 16 else 1)
        stages: int = config.num_stages
        room: int = heuristics.shared_memory(device) // itemsize

        def fits() -> bool:
            read = tile_widths, block_widths
            return streamed_elements(rows, block, stages, *read) <= room

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
        tile_widths: tuple[int, ...],
        block_widths: tuple[int, ...],
        itemsize: int,
        device: torch.device,
        is_described: bool = False,
    ) -> list[triton.Config]:
        """What is searched: the rule's choice, and other tiles that shared memory holds, of no more rows than there are
        and of no less than half of the most of these.
        """
        room: int = heuristics.shared_memory(device) // itemsize
        most = max(16, power_of_two(n_rows))
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
    """Whether a tile has the rows of several heads of a group, and not of one: where it has room for two."""
    rows: int = config.kwargs["BLOCK_M"]
    return in_group > 1 and 2 * n_rows <= rows


def choose_stream_splits(
    tiles: int,
    n_cols: int,
    config: triton.Config,
    device: torch.device,
    float8: bool = False,
) -> int:
    """How many programs share what streams past a tile: about one for each SM, which reads as fast as several do, or
    two where that is `float8`, with eight blocks or more.
    """
    blocks: int = cdiv(n_cols, config.kwargs["BLOCK_N"])
    programs: int = heuristics.sm_count(device) * (2 if float8 else 1)
    per_tile: int = (programs + (tiles - 1) // 2) // tiles  # rounded
    return max(1, min(per_tile, blocks // 8))
