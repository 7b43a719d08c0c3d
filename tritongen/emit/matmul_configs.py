"""The candidate launch configurations of matmuls, which fit registers and shared memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..spec.types import Schedule
from .candidates import Config, listed

_FIELDS = ("warps", "block_m", "block_n", "block_k", "stages")


# Measured: see docs/design/contraction.md. For matrices in half precision, by TMA.
DESCRIPTORS = (
    Config(8, 128, 256, 64, 3),
    Config(4, 128, 128, 64, 5),
    Config(4, 64, 128, 128, 4),
    Config(4, 128, 64, 128, 4),
)
# The same by pointers, mostly for few rows or columns.
POINTERS = (
    Config(8, 128, 128, 64, 3),
    Config(4, 64, 128, 128, 3),
    Config(4, 64, 64, 128, 4),
    Config(4, 128, 32, 64, 4),
    Config(4, 64, 32, 128, 5),
    Config(4, 32, 128, 64, 5),
    Config(4, 32, 64, 256, 3),
    Config(4, 32, 32, 256, 4),
    Config(4, 16, 128, 64, 4),
    Config(4, 16, 64, 256, 3),
    Config(4, 16, 64, 128, 4),
)
# For float32 as it is, without tensor cores.
POINTERS_FMA = (
    Config(4, 128, 128, 16, 3),
    Config(4, 64, 128, 16, 3),
    Config(4, 64, 64, 32, 3),
    Config(2, 32, 64, 32, 3),
    Config(2, 16, 64, 32, 3),
)
# For float32 on tensor cores, rounded or split.
POINTERS_SINGLE = (
    Config(8, 128, 128, 32, 3),
    Config(4, 64, 64, 64, 3),
    Config(4, 64, 32, 32, 4),
    Config(4, 16, 64, 64, 3),
    Config(4, 16, 32, 64, 3),
)
# For float64.
POINTERS_DOUBLE = (
    Config(8, 128, 64, 16, 3),
    Config(4, 64, 64, 16, 3),
    Config(4, 16, 64, 32, 3),
    Config(4, 16, 32, 64, 3),
)
# Shared memory of a program, in bytes: on GPUs with TMA, and on those with the least.
HOPPER, ADA = 227 * 1024, 99 * 1024


@dataclass(frozen=True, slots=True)
class Summing:
    """The sums of a kernel of a contraction, all in one loop."""

    products: int
    sides: tuple[int, int]  # how many matrices it reads of the left, and of the right
    described: bool  # whether descriptors may copy them
    bytes: bool = False  # whether they are multiplied as bytes
    twice: bool = False  # whether each block has a sum of its own, in addition to the total
    halved: bool = False  # whether such a tile is summed in two halves, with TMA
    alternates: bool = False  # whether TMA copies one product's matrices after another's
    terms: int = 1  # how many products are added to one sum
    splits: bool = False  # whether float32 is rounded or split, for tensor cores
    width: int = 0  # the columns that a tile must have, where it has to hold full rows
    strips: int = 0  # the columns of each tile-wise partial reduction
    slices: int = 2  # in which a TMA kernel writes a tile
    computes: bool = False  # whether there is math in addition to the matmuls


@dataclass(frozen=True, slots=True)
class Tables:
    """The candidates for each way to read matrices."""

    descriptors: tuple[Config, ...]
    pointers: tuple[Config, ...]
    pointers_single: tuple[Config, ...]
    pointers_double: tuple[Config, ...]


def fitting(summing: Summing, schedule: Schedule) -> Tables:
    """The candidates that fit the sums of a kernel."""
    bytes_of_half = 1 if summing.bytes else 2
    described = summing
    if summing.alternates:
        described = replace(described, sides=(1, 1), terms=1)
    if summing.halved:
        described = replace(described, twice=False)
    described = replace(described, strips=2 * summing.strips)  # Tiles are finished in halves.
    return Tables(
        _fitting(DESCRIPTORS, described, schedule, _Memory(bytes_of_half, HOPPER, True)) if summing.described else (),
        _fitting(POINTERS, summing, schedule, _Memory(bytes_of_half, ADA, False)),
        _fitting(POINTERS_SINGLE if summing.splits else POINTERS_FMA, summing, schedule, _Memory(4, ADA, False)),
        _fitting(POINTERS_DOUBLE, summing, schedule, _Memory(8, ADA, False)),
    )


@dataclass(frozen=True, slots=True)
class _Memory:
    """Shared memory and its use: stages of elements, and half of a tile's results with TMA.

    On GPUs with the least shared memory, Triton keeps one of the stages in registers.
    """

    itemsize: int
    most: int
    described: bool

    def holds(self, tiles: Config, summing: Summing) -> bool:
        left, right = summing.sides
        stage = (left * tiles.block_m + right * tiles.block_n) * tiles.block_k * self.itemsize
        if self.described:
            return tiles.stages * stage + tiles.block_m * tiles.block_n // 2 * 4 <= self.most
        return (tiles.stages - 1) * stage <= self.most


def _fitting(table: tuple[Config, ...], summing: Summing, schedule: Schedule, memory: _Memory) -> tuple[Config, ...]:
    """The tiles of a table, narrowed for several sums or widened to a full row."""
    if memory.described and (summing.twice or summing.computes):
        table = tuple(tiles if _has_room(tiles) else replace(tiles, warps=8) for tiles in table)
    if summing.twice:
        table = tuple(filter(_has_room, table))
    # Without a search, the rule does not compare tiles of the same blocks.
    values = listed(schedule, _FIELDS, () if schedule.autotune else ("warps", "stages"))
    is_listed = any(values)
    explicit = tuple(replace(table[0], **one) for one in values)
    table = _shaped(explicit if is_listed else table, summing, schedule, memory.described and not is_listed)
    if not is_listed:
        if summing.width or summing.strips:  # 128 values per thread leave registers for the rest.
            table = tuple(one for one in table if one.block_m * one.block_n <= 128 * 32 * one.warps) or table
        table = tuple(_within(memory, tiles, summing) for tiles in table)
    return tuple(dict.fromkeys(table))


def _shaped(table: tuple[Config, ...], summing: Summing, schedule: Schedule, keeps_bytes: bool) -> tuple[Config, ...]:
    """Tiles with blocks of the length and width that dtypes, terms, sums and rows need."""
    if summing.bytes and not schedule.block_k:  # As long in memory as blocks of half precision.
        table = tuple(replace(tiles, block_k=min(256, 2 * tiles.block_k)) for tiles in table)
    if summing.terms > 1 and not schedule.block_k:  # As much in memory as a block of one product.
        longest = 1 << (summing.terms - 1).bit_length()
        table = tuple(replace(tiles, block_k=max(min(32, tiles.block_k), tiles.block_k // longest)) for tiles in table)
    if summing.width:
        table = tuple(replace(tiles, block_n=summing.width) for tiles in table)
    elif not schedule.block_n:
        share = 1 << (summing.products - 1).bit_length()
        table = tuple(replace(tiles, block_n=max(32, tiles.block_n // share)) for tiles in table)
    if summing.strips:
        table = tuple(_widened(tiles, summing.strips, keeps_bytes) for tiles in table)
    return table


def _has_room(tiles: Config) -> bool:
    """Whether threads have registers for as many more values as a tile's accumulator has."""
    return tiles.block_m * tiles.block_n <= 64 * 32 * tiles.warps


def _widened(tiles: Config, width: int, keeps_bytes: bool) -> Config:
    """A tile of at least `width` columns; if it `keeps_bytes`, with about as many bytes in flight."""
    if tiles.block_n >= width:
        return tiles
    stages = -(-tiles.stages * (tiles.block_m + tiles.block_n) // (tiles.block_m + width))
    return replace(tiles, block_n=width, stages=max(2, stages) if keeps_bytes else tiles.stages)


def _within(memory: _Memory, tiles: Config, summing: Summing) -> Config:
    """The tiles with the most stages and the longest blocks that fit into memory; three stages of 128 bytes that TMA
    copies are preferred to two longer ones.
    """
    while not memory.holds(tiles, summing):
        if memory.described and tiles.stages == 3 and tiles.block_k * memory.itemsize > 128:
            tiles = replace(tiles, block_k=tiles.block_k // 2)
        elif tiles.stages > 2:
            tiles = replace(tiles, stages=tiles.stages - 1)
        elif tiles.block_k > 32:
            tiles = replace(tiles, block_k=tiles.block_k // 2)
        elif tiles.block_m > 16:
            tiles = replace(tiles, block_m=tiles.block_m // 2)
        else:
            break
    return tiles
