"""How launches of matmuls pick tiles, ways to read matrices, and parts of sums.

The rules were measured on an H100, and count in SMs of the device at hand.
"""

import torch
import triton

from . import heuristics
from .launch import capability, is_nvidia, memoized
from .tensors import cdiv

Configs = tuple[triton.Config, ...]


def persistent_programs(device: torch.device) -> int:
    """How many programs of a persistent kernel run, one to an SM; the interpreter has two."""
    return heuristics.sm_count(device) if device.type == "cuda" else 2


def use_tma(
    device: torch.device,
    dtype: torch.dtype,
    n_rows: int,
    n_cols: int,
    n_inner: int,
    n_batch: int = 1,
    is_readable: bool = True,
    splits_tiles: bool = False,
) -> bool:
    """Whether tiles are copied by TMA: of half precision or bytes, on NVIDIA's Hopper and later, and for so many terms
    in all sums, a result counted as 128, that the time on the host to make descriptors does not show. That are fewer
    where there is a tile for each SM; fewer still where matrices lie so that TMA reads copies alone, for pointers read
    such matrices an element at a time; and where stream-K splits large tiles that are too few for an eighth of the SMs,
    for pointers read small tiles there.
    """
    n_tiles = n_batch * cdiv(n_rows, 128) * cdiv(n_cols, 128)
    n_sms = heuristics.sm_count(device)
    least = 3 * 2**31 if n_tiles >= n_sms else 2**34
    if not is_readable or (splits_tiles and 8 * n_tiles <= n_sms):
        least = 2**32
    return (
        n_batch * n_rows * n_cols * (n_inner + 128) >= least
        and min(n_rows, n_cols) > 128
        and n_inner > 0
        and dtype.itemsize <= 2
        and capability(device) >= (9, 0)
        and not torch.compiler.is_compiling()  # It does not tell where tensors lie.
    )


def contiguous_axis(
    device: torch.device, dtype: torch.dtype, precision: str
) -> str | None:
    """Which axis of matrices has to be contiguous where kernels read them through pointers, on NVIDIA's GPUs: the
    "rows" where float32 is multiplied as it is, as threads then load 16 bytes from shared memory at once; the "inner"
    axis where tensor cores multiply tf32, as they take no other; None for either.
    """
    if dtype != torch.float32 or not is_nvidia(device):
        return None
    return {"ieee": "rows", "tf32": "inner", "tf32x3": "inner"}.get(precision)


def short_block(config: triton.Config, block_k: int) -> int:
    """The inner elements of a block that is read an element at a time: threads hold 64 without spilling."""
    block_m, block_n = config.kwargs["BLOCK_M"], config.kwargs["BLOCK_N"]
    most: int = 64 * 32 * config.num_warps // (block_m + block_n)
    return min(block_k, max(32, 1 << (most.bit_length() - 1)))


def fills(n_inner: int, block_k: int) -> bool:
    """Whether blocks of an inner axis are nearly full: an eighth more than it has, at most."""
    return 8 * cdiv(n_inner, block_k) * block_k <= 9 * n_inner


def full_block(n_inner: int, block_k: int) -> int:
    """The inner elements of a block, at most so many, where the inner axes of many matrices are cut apart."""
    while block_k > 32 and not fills(n_inner, block_k):
        block_k //= 2
    return block_k


def use_copies(n_others: int, n_terms: int) -> bool:
    """Whether a copy of a matrix costs less than a matmul gains by it: of many terms, and read for many rows or columns
    of the other matrix.
    """
    return n_others >= 256 and n_terms >= 2**28


@memoized
def _tail_wave(
    tiles: int, tile_steps: int, programs: int
) -> tuple[float, tuple[int, int, int, int]]:
    """How many waves of programs some tiles take, and how the tiles of the tail wave are split.

    Measured: two more kernels take as long as 12 steps, and a wave of split tiles as 12. A wave in which some SMs have
    nothing to do leaves power to the others, and is as fast as 0.88 of one.
    """
    waves, left = tiles // programs, tiles % programs
    least, split = 0.88 * tile_steps, (0, 0, 0, 0)
    most = min(32, tile_steps // 8) if left else 0
    for long_parts in range(2, most + 1):
        n_long = min(left, programs // long_parts)
        n_short = left - n_long
        short_parts = min(most, programs // n_short) if n_short else 0
        steps = cdiv(tile_steps, long_parts)
        steps += cdiv(tile_steps, short_parts) if n_short else 0
        n_parts = n_long * long_parts + n_short * short_parts
        taken = 12 + steps + 12 * n_parts / programs
        if taken < least:
            least, split = taken, (n_long, long_parts, n_short, short_parts)
    if split[0] == 0:
        return cdiv(tiles, programs), split
    return waves + least / tile_steps, split


def choose_stream_k(
    tiles: int, tile_steps: int, programs: int
) -> tuple[int, int, int, int]:
    """How the tiles of the tail wave are split, where that saves time: how many tiles into how many long parts, a wave
    of them, and how many into how many short ones, another wave.

    All programs of a wave are at the same steps of their tiles, so that they read the same from the cache: in one line,
    where each goes on where another ends, long sums took twice as long.
    """
    split: tuple[int, int, int, int]
    _, split = _tail_wave(tiles, tile_steps, programs)
    return split


def _least(
    configs: Configs,
    n_rows: int,
    n_cols: int,
    reading: int,
    programs: int,
    n_terms: int = 0,
) -> triton.Config:
    """The tiles that take the least time: what each computes, and what it reads at so much a row and column, in as many
    waves as the programs need for all, the last of which may be split over so many terms.
    """
    best, least = configs[0], 0.0
    for config in configs:
        block_m, block_n, block_k = (config.kwargs[f"BLOCK_{side}"] for side in "MNK")
        tiles = cdiv(n_rows, block_m) * cdiv(n_cols, block_n)
        waves, _ = _tail_wave(tiles, cdiv(n_terms, block_k), programs)
        work = waves * (block_m * block_n + reading * (block_m + block_n))
        if least == 0 or work < least:
            best, least = config, work
    return best


class Tma(heuristics.Table):
    """For tiles that TMA copies. Those of 128 x 256, 128 x 128 and 64 x 128 take 94, 58 and 42 us for 8,192 terms; 66,
    42 and 29 of float8.
    """

    def candidates(self, dtype: torch.dtype) -> Configs:
        """What is searched."""
        return self.configs

    @memoized  # It takes longer than a small kernel does.
    def choose(
        self, n_rows: int, n_cols: int, n_terms: int, device: torch.device
    ) -> triton.Config:
        """For a result of rows by columns, whose tail wave may be split over so many terms."""
        return _least(
            self.configs, n_rows, n_cols, 400, heuristics.sm_count(device), n_terms
        )


def _suited(configs: Configs, n_rows: int, n_cols: int, cols_last: bool) -> Configs:
    """The tiles of half precision that read the right matrix few times, all rows at once or 64, and in long pieces: 64
    columns that lie next to one another, if that leaves enough tiles, past few rows in shorter blocks and more stages.
    """
    rows = min(n_rows, 64)
    cols = 64 if cols_last and n_cols >= 4096 else 0
    inner = 128 if cols and n_rows <= 16 else 256
    suited = (
        config
        for config in configs
        if config.kwargs["BLOCK_M"] >= rows
        and config.kwargs["BLOCK_N"] >= cols
        and config.kwargs["BLOCK_K"] <= inner
    )
    return tuple(suited) or configs


def tile(
    block_m: int,
    block_n: int,
    block_k: int,
    num_warps: int,
    num_stages: int,
    group: int = 8,
) -> triton.Config:
    """Rows by columns of a tile, how much of the inner axis is read at once, and how many rows of tiles L2 swizzles."""
    blocks = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(
        {**blocks, "GROUP": group}, num_warps=num_warps, num_stages=num_stages
    )


class Strided:
    """For tiles that are read by pointers: of half precision and bytes, of float32, and of float64."""

    def __init__(self, half: Configs, single: Configs, double: Configs) -> None:
        self.half, self.single, self.double = half, single, double

    def of(self, dtype: torch.dtype) -> Configs:
        """Those of a dtype."""
        return {4: self.single, 8: self.double}.get(dtype.itemsize, self.half)

    def candidates(self, dtype: torch.dtype) -> Configs:
        """What is searched."""
        return self.of(dtype)

    @memoized
    def choose(
        self,
        n_rows: int,
        n_cols: int,
        dtype: torch.dtype,
        cols_last: bool,
        device: torch.device,
    ) -> triton.Config:
        """For a result of rows by columns; `cols_last`: whether columns of a right matrix are contiguous."""
        configs = self.of(dtype)
        if dtype.itemsize <= 2:
            configs = _suited(configs, n_rows, n_cols, cols_last)
        # The math of float32 takes so long that what is read hardly shows.
        reading = 4 if dtype.itemsize == 4 else 64
        return _least(configs, n_rows, n_cols, reading, heuristics.sm_count(device))


def choose_stages(
    config: triton.Config, programs: int, stage_bytes: int, device: torch.device
) -> int:
    """How many pipeline stages blocks of the inner axes have.

    As many as shared memory has room for, where each program has an SM to itself; what is best for more than half of
    them leaves some of it free, as measured. Blocks that are computed, and not copied, have none there.
    """
    stages: int = config.num_stages
    sms = heuristics.sm_count(device)
    if programs > sms or not stage_bytes:
        return stages
    most = 208 * 1024 if programs <= sms // 2 else 176 * 1024
    room: int = min(heuristics.shared_memory(device) - 16384, most) // stage_bytes
    return max(stages, min(8, room))


def programs_per_sm(config: triton.Config, dtype: torch.dtype, precision: str) -> int:
    """How many programs an SM needs: one, but of float32 without tensor cores as many as registers and shared memory
    have room for, since warps of one alone do not hide how long they wait.
    """
    if dtype != torch.float32 or precision != "ieee":
        return 1
    elements: int = config.kwargs["BLOCK_M"] * config.kwargs["BLOCK_N"]
    return min(4, 2 * 128 * 128 // elements)


def choose_split_k(
    tiles: int, n_inner: int, device: torch.device, per_sm: int = 1
) -> int:
    """How many programs share a sum: enough for all SMs, with 256 terms or more each, or 1,024 where each SM has a
    tile.

    Two would not make up for the kernel that adds their parts up, but where an SM needs several programs.
    """
    n_sms = heuristics.sm_count(device)
    least = 256 if tiles < n_sms else 1024
    n_parts = min(per_sm * n_sms // max(1, tiles), n_inner // least)
    return n_parts if n_parts > (2 if per_sm == 1 else 1) else 1


@memoized
def warps_specialize(device: torch.device) -> bool:
    """Whether some warps copy and others compute: on Hopper, where it was measured to be faster."""
    return capability(device)[0] == 9
