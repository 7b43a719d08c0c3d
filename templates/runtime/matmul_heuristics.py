"""The rules by which launches of matmuls choose tiles, TMA or pointers, copies, split-K and stream-K.

The rules were measured on an H100, and scale with the number of SMs of the device.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton

from . import heuristics
from .launch import capability, is_nvidia, is_traced, memoized
from .tensors import cdiv

Configs = tuple[triton.Config, ...]


def persistent_programs(device: torch.device) -> int:
    """The number of programs of a persistent kernel: one per SM, two in the interpreter."""
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
    narrowest: int = 129,
) -> bool:
    """Whether tiles are copied by TMA: for half precision or 1-byte elements, on NVIDIA's Hopper and later, where
    the matmul has enough terms to be faster than through pointers, each result counted as 128 more, and the result
    has at least `narrowest` rows and columns.

    If less than a quarter of the SMs have a tile, more terms are needed, to hide the reduction of split tiles.
    Through pointers, 1-byte elements are as fast, and so are few tiles that stream-K does not split; copies that
    TMA needs must pay for themselves.
    """
    n_tiles = n_batch * cdiv(n_rows, 128) * cdiv(n_cols, 128)
    n_sms = heuristics.sm_count(device)
    least = 2**31 if 4 * n_tiles < n_sms else 2**30
    if dtype.itemsize == 1:
        least = 3 * 2**31
    if n_tiles < n_sms and (dtype.itemsize == 1 or not splits_tiles):
        least = 2**34
    if not is_readable:
        least = 3 * 2**29
    return (
        n_batch * n_rows * n_cols * (n_inner + 128) >= least
        and min(n_rows, n_cols) >= narrowest
        and n_inner > 0
        and dtype.itemsize <= 2
        and capability(device) >= (9, 0)
        and not is_traced()  # Under a trace, addresses are unknown.
    )


def contiguous_axis(
    device: torch.device, dtype: torch.dtype, precision: str
) -> str | None:
    """Which axis of matrices must be contiguous in kernels that read through pointers, on NVIDIA GPUs: the "rows" for
    full float32, where threads then load 16 bytes from shared memory at once; the "inner" axis for tf32, since tensor
    cores support no other; None if it does not matter.
    """
    if dtype != torch.float32 or not is_nvidia(device):
        return None
    return {"ieee": "rows", "tf32": "inner", "tf32x3": "inner"}.get(precision)


def scalar_block_k(config: triton.Config, block_k: int) -> int:
    """The inner length of a block that is read one element at a time: threads hold 64 elements without spilling."""
    block_m, block_n = config.kwargs["BLOCK_M"], config.kwargs["BLOCK_N"]
    most: int = 64 * 32 * config.num_warps // (block_m + block_n)
    return min(block_k, max(32, 1 << (most.bit_length() - 1)))


def fills(n_inner: int, block_k: int) -> bool:
    """Whether blocks of an inner axis are nearly full: at most an eighth is padding."""
    return 8 * cdiv(n_inner, block_k) * block_k <= 9 * n_inner


def even_block_k(n_inner: int, block_k: int) -> int:
    """The inner length of a block, up to a maximum, where a sum goes over many matrices with separate inner axes."""
    while block_k > 32 and not fills(n_inner, block_k):
        block_k //= 2
    return block_k


def use_copies(n_others: int, n_terms: int, why: str) -> bool:
    """Whether copying a matrix costs less than a matmul gains by it: if there are many terms, and many rows or columns
    of the other matrix. Of matrices that are to have contiguous "inner" axes, or "rows" in place of neither; or in
    place of an inner axis, of the "only" one, which gains a tenth, or of the "first" of two, which gains half.
    """
    least = {"inner": 256, "rows": 64, "only": 512, "first": 16}[why]
    least_terms = {"inner": 2**28, "rows": 2**26, "only": 2**29, "first": 2**24}[why]
    return n_others >= least and n_terms >= least_terms


@memoized
def _tail_wave(
    tiles: int, tile_steps: int, programs: int, tile_size: int = 128 * 256
) -> tuple[float, tuple[int, int, int, int]]:
    """The number of waves of some tiles, and how the tiles of the tail wave are split.

    Measured: two more kernels cost 12 iterations of tiles of 128 x 256, and a wave of split tiles another 12. A
    wave with idle SMs leaves power to the others, and takes 0.88 of the time of a full one.
    """
    launches = cdiv(12 * 128 * 256, tile_size)
    waves, left = tiles // programs, tiles % programs
    least, split = 0.88 * tile_steps, (0, 0, 0, 0)
    most = min(32, tile_steps // 8) if left else 0
    for long_splits in range(2, most + 1):
        n_long = min(left, programs // long_splits)
        n_short = left - n_long
        short_splits = min(most, programs // n_short) if n_short else 0
        steps = cdiv(tile_steps, long_splits)
        steps += cdiv(tile_steps, short_splits) if n_short else 0
        n_splits = n_long * long_splits + n_short * short_splits
        taken = launches + steps + 12 * n_splits / programs
        if taken < least:
            least, split = taken, (n_long, long_splits, n_short, short_splits)
    if split[0] == 0:
        return cdiv(tiles, programs), split
    return waves + least / tile_steps, split


def choose_stream_k(
    tiles: int, tile_steps: int, programs: int, tile_size: int = 128 * 256
) -> tuple[int, int, int, int]:
    """How the tiles of the tail wave, of `tile_size` elements, are split, if that saves time: n_long tiles into
    long_splits, which fill one wave, and n_short tiles into short_splits, which fill another.

    All programs of a wave are at the same iterations of their tiles, so that they share reads through the cache.
    With contiguous ranges of iterations per program, long sums took twice as long.
    """
    split: tuple[int, int, int, int]
    _, split = _tail_wave(tiles, tile_steps, programs, tile_size)
    return split


def _cheapest(
    configs: tuple[Any, ...], cost: Callable[[Any], float], gain: float = 0.0
) -> Any:
    """The first of the tiles that cost least, later ones if they save more than a share of it: a loop, since
    torch.compile of torch 2.11 traces no `min` with a key.
    """
    best, least = configs[0], cost(configs[0])
    for config in configs[1:]:
        other = cost(config)
        if other < (1 - gain) * least:
            best, least = config, other
    return best


class GluonTile(NamedTuple):
    """A tile of the Gluon kernel for float8: its rows, 64 for each warp group, and columns; stages of its ring, rows of
    tiles that the L2 swizzle goes down, and steps from one wait for all products to the next.
    """

    block_m: int
    block_n: int
    stages: int
    group: int
    unroll: int = 1


# The tiles for one sum of all terms, and for one of each group of 128 with a scale of its own.
OF_ALL = GluonTile(128, 128, 6, 16, 4), GluonTile(192, 128, 4, 8)
OF_GROUPS = (GluonTile(128, 256, 4, 8),)


@memoized
def gluon_tile(
    device: torch.device,
    dtypes: tuple[torch.dtype, torch.dtype, torch.dtype],
    n_rows: int,
    n_cols: int,
    n_terms: int,
    has_groups: bool,
) -> GluonTile | None:
    """The tile in which a Gluon kernel multiplies float8, of two matrices and a result of these dtypes; None where
    another kernel does: where it is not NVIDIA's Hopper with a tested Triton, and where SMs have nothing to do in more
    than a third of the time. It was measured with e4m3fn from 9e9 multiply-adds on.
    """
    left, right, result = dtypes
    # Of groups, one warp group waits for the other once in a tile, which must be no shorter than its ring.
    least = 128 * OF_GROUPS[0].stages if has_groups else 1
    known = left == right and result.itemsize == 2 and n_terms >= least
    if not known or capability(device)[0] != 9 or not heuristics.knows_gluon():
        return None
    n_sms = heuristics.sm_count(device)

    def tiles(one: GluonTile) -> int:
        return cdiv(n_rows, one.block_m) * cdiv(n_cols, one.block_n)

    def time(one: GluonTile) -> float:
        steps = cdiv(n_terms, 128 * one.unroll) * one.unroll
        waves = cdiv(tiles(one), n_sms)
        # In tiles of 192 rows less is read for each: they take 0.93 of the time at 8192^3.
        faster = 0.95 if one.block_m > 128 else 1.0
        return faster * steps * waves * one.block_m * one.block_n

    best: GluonTile = _cheapest(OF_GROUPS if has_groups else OF_ALL, time)
    waves = cdiv(tiles(best), n_sms)
    return best if 3 * tiles(best) >= 2 * waves * n_sms else None


def shortest(configs: Configs) -> int:
    """The inner length of the shortest blocks, by which sums are split: it does not depend on the tile."""
    least: int = min(config.kwargs["BLOCK_K"] for config in configs)
    return least


def row_alignment(n_others: int) -> int:
    """The alignment in bytes that rows need to be read by TMA in place: a cache sector where the other matrix's
    tiles read them often enough that a copy pays, otherwise 16.
    """
    return 32 if n_others >= 2048 else 16


def reading(itemsize: int, alignment: int) -> int:
    """The cost of reading one row of a block by TMA, in multiply-adds per term, given the alignment of rows in
    bytes. An SM of an H200 reads about 125 bytes per ns if rows begin at cache lines, 85 at sectors, 56 otherwise.
    """
    if itemsize == 1:  # 50 bytes a ns, wherever rows begin.
        return 400
    return {128: 32, 32: 100}.get(alignment, 400)


def _least(
    configs: Configs,
    n_rows: int,
    n_cols: int,
    reading: tuple[int, int],
    programs: int,
    n_terms: int = 0,
    n_batch: int = 1,
    gain: float = 0.0,
) -> triton.Config:
    """The tile with the least modelled time: the time to compute and read a tile, times the number of waves. The
    tail wave may be split over the terms.
    """

    steps = cdiv(n_terms, shortest(configs))

    def work(config: triton.Config) -> float:
        block_m, block_n, _ = blocks_of(config)
        tiles = count_tiles(config, n_rows, n_cols, n_batch)
        waves, _ = _tail_wave(tiles, steps, programs, block_m * block_n)
        read = reading[0] * block_m + reading[1] * block_n
        cost: float = waves * (block_m * block_n + read)
        return cost

    return _cheapest(configs, work, gain)


class Tma(heuristics.Table):
    """Tiles copied by TMA. For 8,192 terms, 128 x 256, 128 x 128 and 64 x 128 take 98, 52 and 30 us; 144, 81 and 58
    where rows are aligned to 16 bytes alone.
    """

    def candidates(self, dtype: torch.dtype) -> Configs:
        """The candidates of the search."""
        return self.configs

    @memoized  # It takes longer than a small kernel.
    def choose(
        self,
        n_rows: int,
        n_cols: int,
        n_terms: int,
        device: torch.device,
        reading: tuple[int, int] = (400, 400),
    ) -> triton.Config:
        """The tile for a result of rows by columns, whose tail wave may be split over the terms; `reading` a row and a
        column of it costs so much. The largest that comes within 4 %: with smaller ones more is read through the cache.
        """
        n_sms, gain = heuristics.sm_count(device), 0.04
        sizes = n_rows, n_cols, reading, n_sms, n_terms
        return _least(self.configs, *sizes, gain=gain)


def _suited(configs: Configs, n_rows: int, n_cols: int, cols_last: bool) -> Configs:
    """The half-precision tiles that read the right matrix few times, for all rows or 64 at once, and in long pieces: 64
    contiguous columns, if that leaves enough tiles; for few rows in shorter blocks and with more stages.
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


def tile(block_m: int, block_n: int, block_k: int, **options: int) -> triton.Config:
    """Rows and columns of a tile and its block of the inner axis, with `num_warps` and `num_stages`. GROUP is how many
    rows of tiles the L2 swizzle goes down.
    """
    blocks = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config({**blocks, "GROUP": 8}, **options)


def blocks_of(config: triton.Config) -> tuple[int, int, int]:
    block_m, block_n, block_k = (config.kwargs[f"BLOCK_{side}"] for side in "MNK")
    return block_m, block_n, block_k


def count_tiles(config: triton.Config, n_rows: int, n_cols: int, n_batch: int) -> int:
    block_m, block_n, _ = blocks_of(config)
    return n_batch * cdiv(n_rows, block_m) * cdiv(n_cols, block_n)


class FmaSums(NamedTuple):
    """Sums of float32 without tensor cores: how many, of how many terms, and whether their factors swap places."""

    n_batch: int
    n_rows: int
    n_cols: int
    n_terms: int
    swaps: bool


def _fma_splits(config: triton.Config, sums: FmaSums, n_sms: int) -> tuple[int, float]:
    """How many programs share a sum, and the time that takes: one, or as many as give each SM two to six."""
    tiles = count_tiles(config, sums.n_rows, sums.n_cols, sums.n_batch)
    best, least = 1, _fma_time(config, sums, tiles, 1, n_sms)
    for per_sm in (2, 4, 6):
        n_splits = min(per_sm * n_sms // max(1, tiles), sums.n_terms // 120)
        if n_splits > best:
            time = _fma_time(config, sums, tiles, n_splits, n_sms)
            if time < least:
                best, least = n_splits, time
    return best, least


def _fma_time(
    config: triton.Config, sums: FmaSums, tiles: int, n_splits: int, n_sms: int
) -> float:
    """The time of tiles whose sums are shared, in multiply-adds of an SM, as fitted to measurements.

    A term costs 5 for each row and column of a tile, too, and 1,600 for all programs of an SM, which share its time;
    but each waits for its own loads, the longer the more elements a thread has. As many run at once as registers allow;
    the last begin late. A program costs as much as 20 terms, an element of both matrices at least 0.33, to be read, a
    partial sum 0.25, and their reduction 450,000, and 20,000 for each of those that are added to one another. In tiles
    of few rows, swapped factors are in the same banks.
    """
    n_batch, n_rows, n_cols, n_terms, swaps = sums
    block_m, block_n, _ = blocks_of(config)
    n_elements = block_m * block_n // (32 * config.num_warps)
    work = block_m * block_n + 5 * (block_m + block_n)
    alone = 5_500 + 2 * n_elements * n_elements
    resident = 65536 // (32 * config.num_warps * (n_elements + 96))
    programs, at_once = tiles * n_splits, resident * n_sms
    waves, left = programs // at_once, programs % at_once
    term = waves * max(alone, resident * work + 1_600)
    if left:
        beside = max(cdiv(left, n_sms), 0.5 * resident if waves else 0)
        term += max(alone, beside * work + 1_600)
    taken: float = term * (cdiv(n_terms, n_splits) + 20)
    taken *= 1.1 if swaps and block_m < 64 else 1.0
    taken = max(taken, 0.33 * n_batch * (n_rows + n_cols) * n_terms)
    if n_splits > 1:
        taken += 450_000 + n_splits * (20_000 + 0.25 * tiles * block_m * block_n)
    return taken


class Strided:
    """For tiles that are read through pointers: for half precision and bytes, for float32, and for float64."""

    def __init__(self, half: Configs, single: Configs, double: Configs) -> None:
        self.half, self.single, self.double = half, single, double

    def candidates(self, dtype: torch.dtype) -> Configs:
        """The candidates of the search and of the rule."""
        return {4: self.single, 8: self.double}.get(dtype.itemsize, self.half)

    @memoized
    def choose(
        self,
        n_rows: int,
        n_cols: int,
        dtype: torch.dtype,
        cols_last: bool,
        device: torch.device,
        n_batch: int = 1,
        by_fma: FmaSums | None = None,
    ) -> triton.Config:
        """The tile for results of rows by columns; `cols_last`: whether columns of a right matrix are contiguous;
        `by_fma`: their sums, if float32 is multiplied without tensor cores.
        """
        configs, n_sms = self.candidates(dtype), heuristics.sm_count(device)
        if by_fma is not None and by_fma.n_terms:
            return _cheapest(configs, lambda one: _fma_splits(one, by_fma, n_sms)[1])
        if dtype.itemsize <= 2:
            configs = _suited(configs, n_rows, n_cols, cols_last)
        # float32 is so compute-bound that reads hardly show.
        reading = 4 if dtype.itemsize == 4 else 64
        both = reading, reading
        return _least(configs, n_rows, n_cols, both, n_sms, n_batch=n_batch)


def choose_stages(
    config: triton.Config, programs: int, stage_bytes: int, device: torch.device
) -> int:
    """The number of pipeline stages.

    As many as fit in shared memory with one program per SM; if more than half of the SMs are busy, the measured optimum
    leaves some of it free, and if all are, it is that of the table, fewer where those do not fit. Blocks that are
    computed rather than copied take no shared memory.
    """
    stages: int = config.num_stages
    if not stage_bytes:
        return stages
    sms, shared = heuristics.sm_count(device), heuristics.shared_memory(device)
    stages = min(stages, max(1, shared // stage_bytes))
    if programs > sms:
        return stages
    most = 208 * 1024 if programs <= sms // 2 else 176 * 1024
    room: int = min(shared - 16384, most) // stage_bytes
    return max(stages, min(8, room))


def stages_without_epilogue(
    config: triton.Config, stage_bytes: int, device: torch.device
) -> int:
    """The number of pipeline stages of a TMA kernel without an epilogue: one more, if shared memory has room for it."""
    stages: int = config.num_stages + 1
    fits = stages * stage_bytes <= heuristics.shared_memory(device) - 16384
    return stages if fits else config.num_stages


def choose_split_k(
    tiles: int,
    n_inner: int,
    device: torch.device,
    config: triton.Config | None = None,
    by_fma: FmaSums | None = None,
) -> int:
    """How many programs share a sum: enough for all SMs, with 256 terms or more each, or 1,024 if each SM has a tile. A
    split in two does not pay for the reduction.

    Of sums `by_fma`, in tiles of a `config`, an SM needs several programs, whose warps wait in turn.
    """
    n_sms = heuristics.sm_count(device)
    if config is not None and by_fma is not None:
        return _fma_splits(config, by_fma, n_sms)[0]
    least = 256 if tiles < n_sms else 1024
    n_splits = min(n_sms // max(1, tiles), n_inner // least)
    return n_splits if n_splits > 2 else 1


def warps_specialize(device: torch.device) -> bool:
    """Whether warps specialise in copying or computing: on Hopper, where that was measured to be faster."""
    return capability(device)[0] == 9
