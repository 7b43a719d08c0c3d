"""The candidate launch configurations of each kind of kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ..spec.types import Schedule
from .candidates import Config
from .matmul_configs import Summing, Tables, fitting
from .stream_configs import Streaming, explicit_streams, tiles_of, timed_streams


@dataclass(frozen=True, slots=True)
class Traffic:
    """The inputs of the choice of candidates: the kinds of launch ("flat", "tile", "registers", one of `LOOPS`,
    "descriptors", "shares", "pointers", "warps" if rows in registers are searched), how many inputs a row kernel reads
    along rows, how many along the columns alone.
    """

    kinds: frozenset[str]
    streams: int = 1
    vectors: int = 0
    flags: bool = False  # whether all it reduces are flags, which come as bytes
    reducing: bool = False  # whether results have one value per row alone
    online: bool = False  # whether exponentials are summed along rows
    in_place: bool = False  # whether rows are mapped into the memory that they are read from
    sums: int = 0  # how many sums over rows, in addition to the math of each row
    once: bool = False  # whether each row is read once, since nothing depends on its reductions
    taps: int = 0  # offsets of a window, with a sum over rows for each
    strided: bool = False  # whether sums over rows read tensors with strided columns
    summing: Summing | None = None  # of matmuls
    col_dims: int = 1  # dimensions that the columns of a row fold into
    windows: str = ""  # "of" where windows are reduced, "along" where results vary along them too
    streaming: Streaming | None = None  # of tiles of rows past which an axis streams


def tiles(*sizes: tuple[int, int] | tuple[int, int, int]) -> tuple[Config, ...]:
    """Candidates of configs.py from rows and columns of programs, and warps if not 4."""
    every = ((*one, 4)[:3] for one in sizes)
    return tuple(Config(warps, block_m=rows, block_n=cols) for rows, cols, warps in every)


FULL_ROWS = ("registers", "whole")  # kinds of tables by the length of a row
LOOPS = ("loop", "pairs", "lookup", "scan", "sort", "taps")  # kinds of tables of loops along rows

# Measured: see docs/design/rowwise.md and docs/design/elementwise.md.
FLAT = (Config(4, block=2048), Config(4, block=1024), Config(4, block=512), Config(4, block=256))
TILE = tiles((64, 64), (4, 1024, 8), (4, 512), (4, 128, 1), (8, 64, 1), (64, 16), (128, 8))
# Windows are unrolled, with much math for each row, so lanes along few columns compute several rows at once.
TILE_OF_WINDOWS = (*TILE[:3], *tiles((8, 128), (4, 64, 1), (8, 32, 1)), *TILE[5:])
# If results vary along windows, a lane holds several of them, and values of its window.
TILE_ALONG_WINDOWS = tiles((32, 64), (2, 1024, 8), (2, 512), (4, 128), (8, 64), (32, 16), (64, 8))
TILES = {"": TILE, "of": TILE_OF_WINDOWS, "along": TILE_ALONG_WINDOWS}  # by the use of windows in an operator
REGISTERS = (
    Config(4, block_n=4096, block=4096),
    Config(8, block_n=8192, block=8192),
    Config(16, block_n=16384, block=16384),
    Config(32, block_n=32768, block=32768),
)
# If a row has one value as its only result, small programs wait less for one another.
REGISTERS_REDUCING = (Config(1, block_n=1024, block=1024), Config(2, block_n=2048, block=2048), *REGISTERS)
# Two vectors along the columns (a weight and a bias) are worth reading for two rows at once.
REGISTERS_SHARED = (
    Config(1, block_n=512, block=1024),
    Config(4, block_n=1024, block=2048),
    Config(4, block_n=2048, block=4096),
    Config(4, block_n=4096, block=8192),
    Config(16, block_n=8192, block=16384),
    Config(16, block_n=16384, block=32768),
)
# Exponentials of a longer row are summed along it, as fast as memory is.
REGISTERS_ONLINE = REGISTERS_REDUCING[:4]
# Full rows together with sums over rows; and tiles of longer rows.
FULL = (
    Config(2, block_n=256, block=1024, stages=4),
    Config(4, block_n=1024, block=2048, stages=4),
    Config(4, block_n=2048, block=4096, stages=4),
    Config(8, block_n=4096, block=8192, stages=3),
    Config(8, block_n=8192, block=8192, stages=3),
    Config(32, block_n=16384, block=16384, stages=1),
)
# Rows that are read once: an iteration waits for the reductions of several.
FULL_ONCE = (
    FULL[0],
    Config(4, block_n=1024, block=4096, stages=3),
    Config(8, block_n=2048, block=8192, stages=3),
    Config(16, block_n=4096, block=16384, stages=3),
    Config(32, block_n=16384, block=16384, stages=3),
)
WARPS_ONCE = 16  # per SM, instead of 8
SUMS = tiles((4, 1024, 8), (16, 128), (64, 16))
# Of tensors that are not laid out alike, each is read or written in lines of 128 bytes.
SUMS_STRIDED = (*SUMS, *tiles((64, 64)))
LOOP = tiles((32, 256), (1, 2048, 8), (1, 8192, 16), (64, 64, 8))
# Two or more streams are in flight at once, so that each needs less.
LOOP_STREAMS = tiles((4, 256), (1, 1024), (1, 8192, 16), (64, 64, 8))
# Running exponentials are fastest in short steps, however long the row.
LOOP_ONLINE = (*LOOP[:2], LOOP[-1])
# Rows that are mapped afterwards are read again: the fewer rows are in flight, the more is still in the cache.
LOOP_MAPPED = Config(32, block_m=1, block_n=16384)
# If they are written in place, half as many columns per step are faster: 0.94 instead of 1.11 ms.
LOOP_IN_PLACE = Config(32, block_m=1, block_n=8192)
# Each element is of a pair of rows that many rows read: math and registers are the limit.
PAIRS = (*tiles((64, 32, 2)), LOOP[-1])
# Each column looks a row of a table up: lanes are along that, one row after another.
LOOKUP = (LOOP[0], *tiles((256, 1)))
# Few warps, which scan a block together.
SCAN = tiles((1, 2048, 2), (1, 8192, 8), (64, 32, 2))
# Full rows: sorting longer ones takes minutes to compile.
SORT = tiles((4, 128, 4), (1, 1024, 4), (1, 4096, 8))
SORTED = SORT[-1].block_n
# Every lane keeps a sum for each tap of a window.
TAPS = tiles((1, 256), (64, 16))
TAPS_MANY = (TAPS[0], *tiles((64, 8)))
# Flags come as bytes, and their instructions count: shorter steps.
LOOP_FLAGS = (LOOP[0], *LOOP_STREAMS[1:])


@dataclass(frozen=True, slots=True)
class Table:
    """A table of configs.py: its name, its class, and its candidates; or the name of another that has the same."""

    name: str
    kind: str  # the name without its suffix
    # For half precision, if other dtypes have their own.
    configs: tuple[Config, ...]
    single: tuple[Config, ...] = ()
    double: tuple[Config, ...] = ()
    wide: tuple[Config, ...] = ()
    described: tuple[Config, ...] = ()  # of half precision that TMA reads
    float8: bool = False  # whether the streamed operands are float8
    timed: tuple[tuple[Config, ...], ...] = ()  # for half precision, and for wider dtypes
    same_as: str = ""
    strided: str = ""  # the runtime's rule for strided rows in registers, if not the usual one
    warps_per_sm: int = 0  # of programs with full rows, if not the usual number
    block_m: int = 0  # rows of a program that holds full ones, where a schedule lists them


def tables_of(launches: Sequence[tuple[Traffic, str]], schedule: Schedule, suffix: str) -> tuple[Table, ...]:
    """The tables of some functions: one of each kind for all rows, and those of each matmul by its own suffix."""
    rows = [traffic for traffic, _ in launches if traffic.summing is None and traffic.streaming is None]
    shared = row_tables(merged(rows), schedule, suffix) if rows else ()
    streams = tuple(stream_table(one.streaming, schedule, name) for one, name in launches if one.streaming)
    matmuls = [(traffic.summing, own) for traffic, own in launches]
    own = (matmul_tables(fitting(summing, schedule), name) for summing, name in matmuls if summing is not None)
    return (*shared, *streams, *(table for tables in own for table in tables))


def merged(traffic: Sequence[Traffic]) -> Traffic:
    """The traffic of the launches of several functions combined, without matmuls."""
    rows = [one for one in traffic if "loop" in one.kinds]
    return Traffic(
        frozenset().union(*(one.kinds for one in traffic)),
        max(one.streams for one in traffic),
        max(one.vectors for one in traffic),
        all(one.flags for one in rows),
        all(one.reducing for one in rows),
        any(one.online for one in rows),
        any(one.in_place for one in rows),
        max(one.sums for one in traffic),
        all(one.once for one in traffic if "whole" in one.kinds),
        max(one.taps for one in traffic),
        any(one.strided for one in traffic),
        col_dims=max(one.col_dims for one in traffic),
        windows=max((one.windows for one in traffic), key=[*TILES].index),
    )


def row_tables(traffic: Traffic, schedule: Schedule, suffix: str = "") -> tuple[Table, ...]:
    """The tables of kernels other than matmuls and streams."""
    known = {
        "flat": FLAT,
        "tile": TILES[traffic.windows],
        "registers": registers(traffic),
        "whole": full(traffic),
        "sums": SUMS_STRIDED if traffic.strided else SUMS,
        "loop": loop(traffic),
        "pairs": PAIRS,
        "lookup": LOOKUP,
        "scan": SCAN,
        "sort": SORT,
        "taps": TAPS if traffic.taps <= 16 else TAPS_MANY,
    }
    rules = {"registers": strided(traffic)}
    warps_per_sm = {"whole": WARPS_ONCE} if traffic.once else {}
    found = [
        Table(
            f"{kind.upper()}{suffix}",
            kind,
            explicit(kind, configs, schedule),
            strided=rules.get(kind, ""),
            warps_per_sm=warps_per_sm.get(kind, 0),
            block_m=next(iter(schedule.block_m), 0) if kind in FULL_ROWS else 0,
        )
        for kind, configs in known.items()
        if kind in traffic.kinds
    ]
    if "warps" in traffic.kinds:
        warps = tuple(Config(number) for number in schedule.num_warps or (4, 8, 16, 32))
        found.append(Table(f"WARPS{suffix}", "warps", warps))
    return tuple(found)


def full(traffic: Traffic) -> tuple[Config, ...]:
    """The tiles of full rows."""
    configs = FULL_ONCE if traffic.once else FULL
    # Two sums of the longest rows take half of all registers.
    return configs[:-1] if traffic.sums > 1 else configs


def stream_table(streaming: Streaming, schedule: Schedule, suffix: str) -> Table:
    """The table of a streaming kernel."""
    half, wide, described = (explicit_streams(tiles, schedule) for tiles in tiles_of(streaming))
    timed = timed_streams(schedule) if schedule.autotune else ()
    lengthens = streaming.float8 and not schedule.block_n
    return Table(f"STREAMED{suffix}", "streamed", half, wide=wide, described=described, float8=lengthens, timed=timed)


def matmul_tables(tables: Tables, suffix: str = "") -> tuple[Table, ...]:
    """The tables of a matmul's kernels."""
    described = (Table(f"TMA{suffix}", "tma", tables.descriptors),) if tables.descriptors else ()
    pointers = tables.pointers, tables.pointers_single, tables.pointers_double
    return (*described, Table(f"STRIDED{suffix}", "strided", *pointers))


_MODULES = {"tma": "matmul_heuristics", "strided": "matmul_heuristics", "streamed": "streaming_heuristics"}


def configs_view(name: str, tables: Iterable[Table], schedule: Schedule) -> dict[str, Any]:
    """The view of the template of configs.py."""
    first: dict[Table, str] = {}
    listed = []
    for table in tables:
        earlier = first.setdefault(replace(table, name=""), table.name)
        # A search is identified by its table, so that it is not shared.
        listed.append(table if table.timed or earlier == table.name else replace(table, same_as=earlier))
    # Other tables have plain integers, or are for matmuls, which have their own constructor.
    names_configs = any(table.kind == "warps" for table in listed if not table.same_as)
    modules = sorted({_MODULES.get(table.kind, "heuristics") for table in listed})
    return {
        "name": name,
        "tables": listed,
        "search": schedule.autotune,
        "names_configs": names_configs,
        "tiles": {"tile": "Tile", "sums": "Sums", **dict.fromkeys(LOOPS, "Loop"), "sort": "Sorted"},
        "modules": modules,
    }


def registers(traffic: Traffic) -> tuple[Config, ...]:
    if traffic.vectors > 1:
        return REGISTERS_SHARED
    if traffic.online and traffic.reducing:
        return REGISTERS_ONLINE
    return REGISTERS_REDUCING if traffic.reducing else REGISTERS


def strided(traffic: Traffic) -> str:
    """The runtime's rule for rows in registers whose columns are strided, "" for the usual one.

    Pointers of two dimensions take twice the registers: with 64 rows a thread spilled 342 of them, and the code of
    ptxas 12.8 (in Triton 3.6) for that wrote out of bounds.
    """
    if traffic.col_dims > 1:
        return "STRIDED_FOLDED"
    return "STRIDED_REDUCED" if traffic.reducing and not traffic.online and traffic.streams == 1 else ""


def loop(traffic: Traffic) -> tuple[Config, ...]:
    if traffic.flags:
        return LOOP_FLAGS
    if traffic.online and traffic.reducing:
        return LOOP_ONLINE
    table = LOOP_STREAMS if traffic.streams > 1 else LOOP
    if traffic.in_place:
        return (*table[:2], LOOP_IN_PLACE, table[-1])
    return table if traffic.reducing else (*table[:-1], LOOP_MAPPED, table[-1])


def explicit(kind: str, configs: tuple[Config, ...], schedule: Schedule) -> tuple[Config, ...]:
    """The candidates as `[schedule]` lists them, if it does; with columns alone, tiles keep their number of elements.

    Rules compare columns alone, and would take the first of other lists. Full rows have their own length, whatever the
    columns of other tiles.
    """
    blocks_n = () if kind in FULL_ROWS else schedule.block_n
    blocks_m = () if kind in (*FULL_ROWS, "flat") else schedule.block_m
    warps = schedule.num_warps
    if not (blocks_m or blocks_n or warps):
        return configs
    if not schedule.autotune or kind in FULL_ROWS:
        blocks_m, warps = blocks_m[:1], warps[:1]
    last = [_listed(configs[-1], blocks_n[0] if blocks_n else 0)] if kind in LOOPS else []
    others = configs[:-1] if last else configs
    wide = [_listed(_nearest(others, n), n) for n in _in_order(kind, blocks_n)] or [*others]
    every = product((*wide, *last), blocks_m or (0,), warps or (0,))
    tiles = [replace(_shaped(tile, m), warps=number or tile.warps) for tile, m, number in every]
    if schedule.autotune:
        return tuple(dict.fromkeys(tiles))
    return tuple(one for one, after in zip(tiles, [*tiles[1:], None], strict=True) if one != after)


def _in_order(kind: str, blocks_n: tuple[int, ...]) -> list[int]:
    """Column counts in the order in which the rule of a kind of table tries them. For tiles whose columns are not
    contiguous, that is the first listed one.
    """
    descending = sorted(blocks_n, reverse=True)
    return descending[::-1] if kind in LOOPS else [*blocks_n[:1], *descending] if kind == "tile" else descending


def _nearest(configs: Sequence[Config], cols: int) -> Config:
    """The candidate whose columns are closest to `cols`."""
    return min(configs, key=lambda one: max(one.block_n or one.block, cols) / min(one.block_n or one.block, cols))


def _listed(tile: Config, cols: int) -> Config:
    """A tile with `cols` columns, or a run of `cols` elements, if they are listed."""
    if not cols:
        return tile
    if not tile.block_m:
        return replace(tile, block=cols)
    return replace(tile, block_m=max(1, tile.block_m * tile.block_n // cols), block_n=cols)


def _shaped(tile: Config, rows: int) -> Config:
    """A tile with `rows` rows, if they are listed."""
    return replace(tile, block_m=rows) if rows else tile
