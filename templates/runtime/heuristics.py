"""Tables of an operator's candidate configurations, each with the rule by which launches pick one.

The rules were measured on an H100, and scale with the number of SMs of the device.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import triton

from .launch import INTERPRETED, is_nvidia, memoized
from .tensors import cdiv, power_of_two

# The first Triton that Gluon kernels compile with, and the first that they were not tested with.
GLUON, GLUON_END = (3, 6), (3, 10)
TRITON = tuple(map(int, triton.__version__.split(".")[:2]))
LARGEST = 1 << 20  # elements of a tensor of Triton's
SHORTEST_BLOCK = 1024  # columns of a block that reads one element of some inputs
STRIDED_WHOLE = 128  # columns of full rows with sums over rows, if not contiguous
SHORTEST_SPLIT = 16_384  # elements of a program, where several reduce a row and broadcast the result back


@memoized
def sm_count(device: torch.device) -> int:
    """The number of SMs of a GPU; the interpreter behaves like an H100."""
    if device.type != "cuda":
        return 132
    return torch.cuda.get_device_properties(device).multi_processor_count


@memoized
def shared_memory(device: torch.device) -> int:
    """The bytes of shared memory available to a program."""
    if device.type != "cuda":
        return 2**16
    properties = torch.cuda.get_device_properties(device)
    return properties.shared_memory_per_multiprocessor - 1024


def knows_gluon() -> bool:
    """Whether Gluon kernels were tested with this Triton."""
    return GLUON <= TRITON < GLUON_END


class Table:
    """Candidate configurations. Rules are methods of the tables below, and cache their choices."""

    def __init__(self, *configs: triton.Config) -> None:
        self.configs = configs

    def __iter__(self) -> Iterator[triton.Config]:
        return iter(self.configs)


def searched(table: Table) -> list[triton.Config]:
    """The configurations that @triton.autotune tries: only the first in the interpreter, which cannot time."""
    return [*table][: 1 if INTERPRETED else None]


class Flat(Table):
    """For flat elements: elements and warps of a program, the largest block first."""

    def __init__(self, *blocks: tuple[int, int]) -> None:
        super().__init__(
            *(triton.Config({"BLOCK": block}, num_warps=w) for block, w in blocks)
        )

    def choose(self, n: int) -> triton.Config:
        """The largest block with which `n` elements still fill the device."""
        for config in self.configs[:-1]:
            if n >= config.kwargs["BLOCK"] * 1024:
                return config
        return self.configs[-1]


def tile(rows: int, cols: int, num_warps: int = 4) -> triton.Config:
    """A configuration for programs that have a tile."""
    return triton.Config({"BLOCK_M": rows, "BLOCK_N": cols}, num_warps=num_warps)


class Tiles(Table):
    """Rows and columns of a program, and warps if not 4."""

    def __init__(self, *tiles: tuple[int, int] | tuple[int, int, int]) -> None:
        super().__init__(*(tile(*one) for one in tiles))


class Tile(Tiles):
    """For any strides: first the square tile, then the widest."""

    @memoized
    def choose(self, n_rows: int, n_cols: int, close: bool) -> triton.Config:
        """The widest tile that the columns fill if those are close together, otherwise the square one."""
        if not close:
            return _narrowed(self.configs[0], n_rows, n_cols)
        found = next(
            (c for c in self.configs[1:] if c.kwargs["BLOCK_N"] < 2 * n_cols),
            self.configs[-1],
        )
        return _narrowed(found, n_rows, n_cols)


# Full rows in registers with strided columns: at most so many columns, rows and elements of a program, and
# elements of a warp; at least so many warps.
Strided = tuple[int, int, int, int, int]
STRIDED: Strided = (1024, 64, 16_384, 1024, 4)
# Where columns are of two dimensions.
STRIDED_FOLDED: Strided = (1024, 32, 16_384, 512, 4)
# Where a row reduces to one value, fewer warps synchronise faster, and a loop is
# faster from fewer columns on.
STRIDED_REDUCED: Strided = (256, 64, 8192, 2048, 1)


class Registers:
    """For full rows in registers: the maximal row length, elements per program, and warps; and the rows of a program
    where somebody has pinned them.
    """

    def __init__(
        self, *rows: tuple[int, int, int], strided: Strided = STRIDED, block_m: int = 0
    ) -> None:
        self.rows, self.strided, self.block_m = rows, strided, block_m

    def fits(self, n_rows: int, n_cols: int, contiguous: bool) -> bool:
        """Whether a row is held in registers rather than looped over, for which there may be too few strided rows."""
        if contiguous:
            return n_cols <= self.rows[-1][0]
        return n_cols <= (STRIDED if n_rows < 32_768 else self.strided)[0]

    @memoized
    def choose(self, n_rows: int, n_cols: int, contiguous: bool) -> triton.Config:
        """Several short rows per program, and warps by the length of a row."""
        block_n = power_of_two(n_cols)
        if not contiguous:  # Neighbours in memory are in neighbouring rows.
            _, most_rows, elements, of_warp, warps = self.strided
            rows = min(most_rows, elements // block_n)
            num_warps = max(warps, rows * block_n // of_warp)
        else:
            _, elements, num_warps = next(
                (row for row in self.rows if block_n <= row[0]), self.rows[-1]
            )
            rows = _filling(n_rows, elements // block_n)
            if block_n <= 128 and n_cols % 16 == 0:  # Read in vectors, few by a thread.
                num_warps = max(2, num_warps)
        rows = min(self.block_m or rows, LARGEST // block_n)
        return tile(rows, block_n, num_warps)


class Sorted(Tiles):
    """For rows that are sorted in registers: rows and columns of a program by the length of a row."""

    @memoized
    def choose(self, n_rows: int, n_cols: int, *_: object) -> triton.Config:
        """The elements of the first tile that rows fit. Raises ValueError for rows that fit none."""
        found = next((c for c in self.configs if n_cols <= c.kwargs["BLOCK_N"]), None)
        if found is None:
            most = self.configs[-1].kwargs["BLOCK_N"]
            raise ValueError(
                f"a row of {n_cols} elements is not sorted in registers, as rows of {most} are: "
                "sort it by torch.sort, and pass the positions"
            )
        block_n = max(2, power_of_two(n_cols))  # A tile of one element has no pairs.
        block_m = found.kwargs["BLOCK_M"] * found.kwargs["BLOCK_N"] // block_n
        block_m = min(block_m, max(1, power_of_two(n_rows)))
        return tile(block_m, block_n, found.num_warps)


class Loop(Tiles):
    """For a loop over the row: rows by columns per iteration, the last tile for columns that are not contiguous."""

    @memoized
    def choose(self, n_rows: int, n_cols: int, contiguous: bool) -> triton.Config:
        """Wide blocks if columns are contiguous, otherwise many rows at once, but fewer elements of short ones: the
        states of lanes are costly to merge.
        """
        *wide, found = self.configs
        if contiguous:
            fitting = (c for c in wide if n_cols <= c.kwargs["BLOCK_N"] * 4)
            found = next(fitting, [found, *wide][-1])
        elif n_cols <= 1024:
            block_m, block_n = found.kwargs["BLOCK_M"], found.kwargs["BLOCK_N"]
            num_warps = max(1, found.num_warps // 2)
            return tile(2 * block_m, max(1, block_n // 4), num_warps)
        return _narrowed(found, n_rows, n_cols)


class Simple(Loop):
    """A table for lanes whose state is one value."""

    def __init__(self, table: Loop) -> None:
        self.table = table

    def choose(self, n_rows: int, n_cols: int, contiguous: bool) -> triton.Config:
        """If strided columns are few, threads hold all columns of their rows, and merge nothing with others: of 8 rows,
        which they load at once, two or 16 columns at a time; of lengths between, four columns of 4 rows are faster.
        """
        if contiguous:
            return self.table.choose(n_rows, n_cols, contiguous)
        strided = self.table.choose(n_rows, LARGEST, contiguous)  # of long rows
        rows = _filling(n_rows, 1024, 512)
        if n_cols > 4 * strided.kwargs["BLOCK_N"] or rows < 512:
            return _narrowed(strided, n_rows, n_cols)
        if 64 < n_cols <= 128:
            return tile(rows, 4, rows // 128)
        return tile(rows, 2 if n_cols <= 64 else 16, rows // 256)


def _narrowed(config: triton.Config, n_rows: int, n_cols: int) -> triton.Config:
    """The tile with more rows in proportion, if rows are shorter than it is wide."""
    block_m, block_n = config.kwargs["BLOCK_M"], config.kwargs["BLOCK_N"]
    if not 0 < 2 * n_cols <= block_n:
        return config
    short = power_of_two(n_cols)
    rows = _filling(n_rows, block_m * block_n // short)
    return tile(rows, short, config.num_warps)


def _filling(n_rows: int, most: int, programs: int = 256) -> int:
    """The rows per program, up to a maximum, that leave at least the given number of programs."""
    rows = max(1, most)
    while rows > 1 and cdiv(n_rows, rows) < programs:
        rows //= 2
    return rows


class Uniform(Loop):
    """A table for a `length` of adjacent columns that share an element of some inputs, which blocks within it read
    once, as their constexpr UNIFORM says.
    """

    def __init__(self, table: Loop, length: int) -> None:
        self.table, self.length = table, length

    def reads_once(self, n_cols: int) -> bool:
        """Whether long rows are looped over, in such blocks, where they would fit in registers."""
        length = self.length
        return n_cols > max(4096, length) and length % SHORTEST_BLOCK == 0

    def choose(self, *args: Any) -> triton.Config:
        """The tile of the table, with blocks of columns that divide the length, if these are long enough."""
        config = self.table.choose(*args)
        divides = block_n = config.kwargs["BLOCK_N"]
        while self.length % divides:
            divides //= 2
        is_uniform = divides >= min(block_n, SHORTEST_BLOCK)
        num_warps = config.num_warps
        if is_uniform:
            num_warps, block_n = max(4, num_warps * divides // block_n), divides
        kwargs = {**config.kwargs, "BLOCK_N": block_n, "UNIFORM": is_uniform}
        return triton.Config(kwargs, num_warps=num_warps)


def choose_splits(
    n_rows: int, n_cols: int, config: triton.Config, device: torch.device
) -> int:
    """How many programs share a row: enough for about four programs per SM."""
    programs = cdiv(n_rows, config.kwargs["BLOCK_M"])
    blocks = cdiv(n_cols, config.kwargs["BLOCK_N"])
    sms = sm_count(device)
    if programs >= 2 * sms or blocks < 8:
        return 1
    return min(cdiv(4 * sms, programs), blocks // 4)


def choose_tap_splits(
    n_rows: int, n_cols: int, n_outer: int, config: triton.Config, device: torch.device
) -> tuple[int, int]:
    """Among how many programs columns and an outer axis are divided: columns first, for up to 32 programs per SM."""
    programs = cdiv(32 * sm_count(device), cdiv(n_rows, config.kwargs["BLOCK_M"]))
    n_splits = max(1, min(programs, cdiv(n_cols, config.kwargs["BLOCK_N"])))
    return n_splits, max(1, min(n_outer, programs // n_splits))


def choose_mapped_splits(
    n_rows: int, n_cols: int, config: triton.Config, device: torch.device
) -> int:
    """How many programs reduce a row that is broadcast back: as many as run at once, with 32 warps per SM.

    Both stages read the row, and the second launch takes as long as a short part. So rows are shared only if they are
    fewer than half of all SMs, which are enough to saturate memory.
    """
    programs = cdiv(n_rows, config.kwargs["BLOCK_M"])
    if 2 * programs > sm_count(device):
        return 1
    shares: int = sm_count(device) * max(1, 32 // config.num_warps) // programs
    elements: int = n_cols * config.kwargs["BLOCK_M"]
    return max(1, min(shares, elements // SHORTEST_SPLIT))


class Whole:
    """For full rows with sums over the rows: the maximal row length, elements per iteration, warps, and stages; and
    the rows of an iteration where somebody has pinned them.
    """

    def __init__(
        self, *rows: tuple[int, int, int, int], warps_per_sm: int = 8, block_m: int = 0
    ) -> None:
        self.rows, self.warps_per_sm, self.block_m = rows, warps_per_sm, block_m

    def fits(self, n_cols: int, contiguous: bool) -> bool:
        """Whether a row fits in registers together with the sums over the rows."""
        return n_cols <= (self.rows[-1][0] if contiguous else STRIDED_WHOLE)

    @memoized
    def choose(
        self, n_cols: int, column_bytes: int, device: torch.device, contiguous: bool
    ) -> triton.Config:
        """Several short rows per iteration, and as many pipeline stages as fit in shared memory at that many bytes per
        column. Where neighbours in memory are in neighbouring rows, more of these, and no pipeline: what comes out of
        its buffers is computed once for sums and once for rows, in a layout for each.
        """
        block_n = power_of_two(n_cols)
        _, elements, num_warps, stages = next(
            (row for row in self.rows if block_n <= row[0]), self.rows[-1]
        )
        rows = max(1, elements // block_n)
        buffers = (shared_memory(device) - 4096) // (column_bytes * block_n)
        if not contiguous:
            rows = max(rows, min(32, 16_384 // block_n))
            num_warps = max(num_warps, rows * block_n // 1024)
            stages = 1
        elif buffers < 2 * rows:
            rows = max(1, rows // 2)  # Rather than fewer than three stages.
        rows = min(self.block_m or rows, LARGEST // block_n)
        stages = min(stages, 1 + buffers // rows)
        kwargs = {"STAGES": stages, "BLOCK_M": rows, "BLOCK_N": block_n}
        return triton.Config(kwargs, num_warps=num_warps)


def choose_full_programs(
    n_rows: int, config: triton.Config, table: Whole, device: torch.device
) -> int:
    """The number of persistent programs for full rows: one to four per SM, by the warps of the table's tile."""
    per_sm = min(4, max(1, table.warps_per_sm // config.num_warps))
    programs: int = sm_count(device) * per_sm
    return min(cdiv(n_rows, config.kwargs["BLOCK_M"]), programs)


class Sums(Tiles):
    """For tiles with sums over the rows: rows by columns per iteration, the widest first, the last one for columns that
    are not contiguous.
    """

    def choose(self, n_rows: int, n_cols: int, contiguous: bool) -> triton.Config:
        """The widest tile that the columns fill, if they are contiguous."""
        if not contiguous:
            return _narrowed(self.configs[-1], n_rows, n_cols)
        return next(
            (c for c in self.configs if c.kwargs["BLOCK_N"] < 2 * n_cols),
            self.configs[-1],
        )


def choose_programs(
    n_rows: int, n_tiles: int, config: triton.Config, device: torch.device
) -> int:
    """How many programs share the rows of a tile of columns: 16 warps per SM, as measured."""
    blocks = cdiv(n_rows, config.kwargs["BLOCK_M"])
    programs: int = 16 * sm_count(device) // (config.num_warps * n_tiles)
    return min(blocks, max(1, programs))


def choose_cooperative_sums(
    n_cols: int, column_bytes: int, device: torch.device
) -> triton.Config | None:
    """For rows split over resident CTAs, if all fit: 2048 columns per CTA and three rows in registers at once, which
    need fewer registers if columns have few bytes.
    """
    if not may_wait(device) or n_cols > 4096 * sm_count(device):
        return None
    kwargs = {"CTAS_PER_ROW": cdiv(n_cols, 2048), "BLOCK_M": 1, "BLOCK_N": 2048}
    maxnreg = 80 if column_bytes <= 4 else 128
    return triton.Config(kwargs, num_warps=8, maxnreg=maxnreg)


def choose_cooperative_rows(
    n_cols: int, held: Sequence[torch.Tensor], merges: str
) -> triton.Config | None:
    """For rows split over CTAs, broadcast back, each with a part of the tensors `held` in registers, if the loop would
    read most of a row from memory twice: 16 warps per SM, with three rows in registers. Up to 32 CTAs of at
    least 4 warps share a row whose pairs are merged, so that one continues while another waits. Moments take few
    instructions: half the warps with twice the registers merge them faster.
    """
    device, n_held = held[0].device, len(held)
    longest = SHORTEST_SPLIT // n_held * sm_count(device)
    # Rows of other lengths are read one element at a time.
    suits = n_cols % 16 == 0 and all(one.element_size() == 2 for one in held)
    if not (may_wait(device) and suits and 65_536 <= n_cols <= longest):
        return None
    elements = SHORTEST_SPLIT
    if merges != "sums":
        elements = min(elements, max(4096, power_of_two(cdiv(n_cols, 32)) * n_held))
    block_n = elements // n_held
    kwargs = {"CTAS_PER_ROW": cdiv(n_cols, block_n), "BLOCK_M": 1, "BLOCK_N": block_n}
    if merges == "moments" and elements > 4096:
        return triton.Config(kwargs, num_warps=elements // 2048, maxnreg=255)
    return triton.Config(kwargs, num_warps=elements // 1024, maxnreg=128)


def may_wait(device: torch.device) -> bool:
    """Whether CTAs can wait for one another, as in a cooperative launch: not in the interpreter or under a trace."""
    return is_nvidia(device) and not (INTERPRETED or torch.compiler.is_compiling())


def choose_groups(n_rows: int, config: triton.Config, device: torch.device) -> int:
    """How many rows are processed at once: as many CTAs as the registers of all SMs allow."""
    resident = 65536 // (32 * config.num_warps * config.maxnreg)
    groups: int = resident * sm_count(device) // config.kwargs["CTAS_PER_ROW"]
    return min(n_rows, groups)
