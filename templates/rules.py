"""The launch rules of generated modules: measured on an H100, see docs/performance.md."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import triton

FLAT: tuple[triton.Config, ...] = ()
TILE: tuple[triton.Config, ...] = ()
REGISTERS: tuple[tuple[int, int, int], ...] = ()
LOOP: tuple[triton.Config, ...] = ()
WHOLE: tuple[tuple[int, int, int, int], ...] = ()
SUMS: tuple[triton.Config, ...] = ()
DESCRIPTORS: tuple[triton.Config, ...] = ()
POINTERS: tuple[triton.Config, ...] = ()
POINTERS_WIDE: tuple[triton.Config, ...] = ()


def _cdiv(count: int, size: int) -> int:
    """How many parts of a size hold `count`. (Triton's own takes microseconds on the host.)"""
    return -(-count // size)


def _power_of_two(count: int) -> int:
    """The least power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()


def choose_flat(n: int) -> triton.Config:
    """The configuration for `n` elements in a run: the largest block that still fills the device."""
    for config in FLAT[:-1]:
        if n >= config.kwargs["BLOCK"] * 1024:
            return config
    return FLAT[-1]


def choose_tile(n_rows: int, n_cols: int, contiguous: bool) -> triton.Config:
    """The configuration for rows by columns: square tiles where some tensor steps along its rows."""
    if not contiguous:
        return TILE[0]
    return next(
        (config for config in TILE[1:] if config.kwargs["BLOCK_N"] < 2 * n_cols),
        TILE[-1],
    )


def in_registers(n_rows: int, n_cols: int, contiguous: bool) -> bool:
    """Whether a row is held in registers rather than walked along."""
    return n_cols <= (REGISTERS[-1][0] if contiguous else 1024)


def _remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """functools.lru_cache, but for torch.compile, which traces what the function does."""
    remembered = functools.lru_cache(1024)(function)

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        if torch.compiler.is_compiling():
            return function(*args)
        return remembered(*args)

    return call


@_remembered
def choose_registers(n_rows: int, n_cols: int, contiguous: bool) -> triton.Config:
    """Whole rows: several short ones to a program, warps by the row's length."""
    block_n = _power_of_two(n_cols)
    if not contiguous:  # What lies next to each other is in neighbouring rows.
        rows = min(64, 32768 // block_n)
        num_warps = max(4, rows * block_n // 1024)
        return triton.Config({"BLOCK_M": rows, "BLOCK_N": block_n}, num_warps=num_warps)
    _, elements, num_warps = next(
        (config for config in REGISTERS if block_n <= config[0]), REGISTERS[-1]
    )
    rows = max(1, elements // block_n)
    while rows > 1 and _cdiv(n_rows, rows) < 256:
        rows //= 2
    return triton.Config({"BLOCK_M": rows, "BLOCK_N": block_n}, num_warps=num_warps)


def choose_loop(n_rows: int, n_cols: int, contiguous: bool = True) -> triton.Config:
    """A loop along the row: wide steps where columns lie next to each other, else many rows at once."""
    if not contiguous:
        return LOOP[-1]
    return next(
        (config for config in LOOP[:-1] if n_cols <= config.kwargs["BLOCK_N"] * 4),
        LOOP[-2],
    )


def choose_vector(n_cols: int, contiguous: bool, element_size: int) -> int:
    """How many columns share a running number: those that a thread loads at once, 16 bytes of a row that allows it."""
    return 16 // element_size if contiguous and n_cols % 16 == 0 else 1


def choose_splits(n_rows: int, n_cols: int, config: triton.Config) -> int:
    """How many programs share a row: enough for about four programs on each of 132 multiprocessors."""
    programs = _cdiv(n_rows, config.kwargs["BLOCK_M"])
    steps = _cdiv(n_cols, config.kwargs["BLOCK_N"])
    if programs >= 264 or steps < 8:
        return 1
    return min(_cdiv(528, programs), steps // 4)


def is_whole(n_cols: int) -> bool:
    """Whether a row is held in registers beside the sums over the rows."""
    return n_cols <= WHOLE[-1][0]


@functools.lru_cache(16)
def shared_memory(device: torch.device) -> int:
    """The bytes of shared memory that a program can have."""
    if device.type != "cuda":
        return 2**16
    return (
        torch.cuda.get_device_properties(device).shared_memory_per_multiprocessor - 1024
    )


def choose_whole(
    n_rows: int, n_cols: int, column_bytes: int, device: torch.device
) -> triton.Config:
    """Whole rows beside sums over them: several short ones to a step, and as many steps in flight as shared
    memory has room for, with so many bytes a column.
    """
    block_n = _power_of_two(n_cols)
    _, elements, num_warps, stages = next(
        (config for config in WHOLE if block_n <= config[0]), WHOLE[-1]
    )
    rows = max(1, elements // block_n)
    ahead = (shared_memory(device) - 4096) // (column_bytes * rows * block_n)
    stages = min(stages, 1 + ahead)
    tile = {"STAGES": stages, "BLOCK_M": rows, "BLOCK_N": block_n}
    return triton.Config(tile, num_warps=num_warps)


def choose_sums(n_rows: int, n_cols: int) -> triton.Config:
    """Tiles beside sums over the rows: the widest that the columns fill."""
    return next(
        (config for config in SUMS if config.kwargs["BLOCK_N"] < 2 * n_cols), SUMS[-1]
    )


def choose_programs(n_rows: int, n_tiles: int, config: triton.Config) -> int:
    """How many programs share the rows of a tile of columns: 16 warps on each of 132 multiprocessors, measured."""
    steps = _cdiv(n_rows, config.kwargs["BLOCK_M"])
    warps: int = config.num_warps * n_tiles
    return min(steps, max(1, 2112 // warps))


def choose_whole_programs(n_rows: int, config: triton.Config) -> int:
    """How many programs share whole rows: 8 warps or more on each of 132 multiprocessors, measured."""
    warps: int = config.num_warps
    return min(_cdiv(n_rows, config.kwargs["BLOCK_M"]), 132 * max(1, 8 // warps))


def use_shared(n_cols: int, device: torch.device) -> bool:
    """Whether programs that have a part of each row wait for one another; they must all run at once."""
    return (
        device.type == "cuda"
        and torch.version.hip is None
        and n_cols <= 4096 * resident_programs(device)
        and not torch.compiler.is_compiling()  # It does not launch so that all run at once.
        and not triton.knobs.runtime.interpret
    )


def choose_shared(n_cols: int, column_bytes: int) -> triton.Config:
    """The configuration for rows that programs share: 2048 columns each, three of them in registers at once, which take
    fewer where they have so few bytes.
    """
    tile = {"MEMBERS": _cdiv(n_cols, 2048), "BLOCK_M": 1, "BLOCK_N": 2048}
    return triton.Config(tile, num_warps=8, maxnreg=80 if column_bytes <= 4 else 128)


def choose_groups(n_rows: int, config: triton.Config, device: torch.device) -> int:
    """How many groups of programs take rows: as many programs as the registers of all multiprocessors allow."""
    members: int = config.kwargs["MEMBERS"]
    together: int = 65536 // (32 * config.num_warps * config.maxnreg)
    return min(n_rows, together * resident_programs(device) // members)


def use_descriptors(
    device: torch.device,
    dtype: torch.dtype,
    n_rows: int,
    n_cols: int,
    n_inner: int,
    n_batch: int = 1,
) -> bool:
    """Whether tiles are copied through descriptors: of half precision or bytes, on NVIDIA's Hopper and later,
    and for so many terms in all sums, a result counted as 128, that the time on the host to make descriptors does not
    show.
    """
    return (
        n_batch * n_rows * n_cols * (n_inner + 128) >= 2**34
        and min(n_rows, n_cols) > 128
        and n_inner > 0
        and dtype.itemsize <= 2
        and device.type == "cuda"
        and torch.version.hip is None
        and torch.cuda.get_device_capability(device) >= (9, 0)
        and not torch.compiler.is_compiling()  # It does not tell where tensors lie.
    )


@functools.lru_cache(16)
def resident_programs(device: torch.device) -> int:
    """How many programs run at once where each takes a multiprocessor; the interpreter has two."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.lru_cache(1024)
def _last_round(
    tiles: int, tile_steps: int, programs: int
) -> tuple[float, tuple[int, int, int, int]]:
    """In how many rounds programs take some tiles, and how they share those that whole rounds leave.

    Measured: two more kernels take as long as 12 steps, and a round of parts as 12. A round in which some
    multiprocessors have nothing to do leaves power to the others, and is as fast as 0.88 of one.
    """
    rounds, left = divmod(tiles, programs)
    least, shared = 0.88 * tile_steps, (0, 0, 0, 0)
    most = min(32, tile_steps // 8) if left else 0
    for long_parts in range(2, most + 1):
        n_long = min(left, programs // long_parts)
        n_short = left - n_long
        short_parts = min(most, programs // n_short) if n_short else 0
        steps = _cdiv(tile_steps, long_parts)
        steps += _cdiv(tile_steps, short_parts) if n_short else 0
        n_parts = n_long * long_parts + n_short * short_parts
        taken = 12 + steps + 12 * n_parts / programs
        if taken < least:
            least, shared = taken, (n_long, long_parts, n_short, short_parts)
    if shared[0] == 0:
        return _cdiv(tiles, programs), shared
    return rounds + least / tile_steps, shared


def choose_shares(
    tiles: int, tile_steps: int, programs: int
) -> tuple[int, int, int, int]:
    """How programs share the tiles that whole rounds leave, where that saves time: how many tiles are cut into how many
    long parts, a round of them, and how many into how many short ones, another round.

    All of a round are at the same steps of their tiles, so that they read the same from the cache: in one line, where
    each goes on where another ends, long sums took twice as long.
    """
    return _last_round(tiles, tile_steps, programs)[1]


def _least(
    configs: tuple[triton.Config, ...],
    n_rows: int,
    n_cols: int,
    reading: int,
    n_terms: int = 0,
) -> triton.Config:
    """The tiles that take the least time: what each computes, and what it reads at so much a row and column, in as many
    rounds as 132 multiprocessors need for all, which may share sums of so many terms.
    """
    best, least = configs[0], 0.0
    for config in configs:
        block_m, block_n, block_k = (config.kwargs[f"BLOCK_{side}"] for side in "MNK")
        tiles = _cdiv(n_rows, block_m) * _cdiv(n_cols, block_n)
        rounds, _ = _last_round(tiles, _cdiv(n_terms, block_k), 132)
        work = rounds * (block_m * block_n + reading * (block_m + block_n))
        if least == 0 or work < least:
            best, least = config, work
    return best


@functools.lru_cache(1024)  # It takes longer than a small kernel does.
def choose_descriptors(n_rows: int, n_cols: int, n_terms: int) -> triton.Config:
    """The configuration for tiles that descriptors copy, whose sums of so many terms programs may share.

    Those of 128 x 256, 128 x 128 and 64 x 128 take 94, 58 and 42 us for 8,192 terms; 66, 42 and 29 of float8.
    """
    return _least(DESCRIPTORS, n_rows, n_cols, 400, n_terms)


def _suited(
    configs: tuple[triton.Config, ...],
    n_rows: int,
    n_cols: int,
    dtype: torch.dtype,
    cols_last: bool,
) -> tuple[triton.Config, ...]:
    """The tiles of half precision that read the right matrix few times, all rows at once or 64, and in long pieces: 64
    columns that lie next to one another, if that leaves enough tiles.
    """
    if dtype.itemsize > 2:
        return configs
    rows = min(n_rows, 64)
    cols = 64 if cols_last and n_cols >= 4096 else 0
    suited = (
        config
        for config in configs
        if config.kwargs["BLOCK_M"] >= rows and config.kwargs["BLOCK_N"] >= cols
    )
    return tuple(suited) or configs


@functools.lru_cache(1024)
def choose_pointers(
    n_rows: int, n_cols: int, dtype: torch.dtype, cols_last: bool
) -> triton.Config:
    """The configuration for tiles that are read by pointers."""
    table = POINTERS if dtype.itemsize <= 2 else POINTERS_WIDE
    return _least(_suited(table, n_rows, n_cols, dtype, cols_last), n_rows, n_cols, 64)


def choose_stages(
    config: triton.Config, programs: int, stage_bytes: int, device: torch.device
) -> int:
    """In how many stages blocks of the inner axes are on their way.

    As many as shared memory has room for, where each program has a multiprocessor to itself; what is best for more
    than half of 132 leaves some of it free, as measured.
    """
    stages: int = config.num_stages
    if programs > 132:
        return stages
    most = 208 * 1024 if programs <= 66 else 176 * 1024
    return max(stages, min(8, min(shared_memory(device) - 16384, most) // stage_bytes))


def choose_parts(tiles: int, n_inner: int) -> int:
    """How many programs share a sum: enough for 132 multiprocessors, with 256 terms or more each.

    Two would not make up for the kernel that adds their parts up.
    """
    n_parts = min(132 // max(1, tiles), n_inner // 256)
    return n_parts if n_parts > 2 else 1


@functools.lru_cache(16)
def warps_specialize(device: torch.device) -> bool:
    """Whether some warps copy and others compute: on Hopper, where it was measured to be faster."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] == 9
