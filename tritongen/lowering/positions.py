"""Where a program of a kernel over rows and columns is, and how it goes along them."""

from __future__ import annotations

from ..nest.ir import BLANK, For, Given, Line, Nest, Positions

COLUMNS, LANES = "[:, None]", "[None, :]"  # how the positions of rows, and of columns, lie in a tile


def rows_from(start: str, mask: str = "rows < n_rows", comment: str = "") -> Nest:
    """The rows of an iteration, and which of them exist."""
    rows = Positions(start, comment, name="rows", block="BLOCK_M", lanes=COLUMNS, wide=True)
    return (rows, Given(f"row_mask = {mask}"))


def cols_from(start: str, end: str, wide: bool = False) -> Nest:
    """The columns of a block, and which of them are before the end."""
    return (
        Positions(start, name="cols", block="BLOCK_N", lanes=LANES, wide=wide),
        Given(f"col_mask = cols < {end}"),
    )


ROWS = (
    Positions("tl.program_id(0).to(INDEX) * BLOCK_M", name="rows", block="BLOCK_M", lanes=COLUMNS),
    Given("row_mask = rows < n_rows"),
)
TILE = Given("tile_mask = row_mask & col_mask")
SPLIT_LANES = Positions("0", name="splits", block="BLOCK_N", lanes=LANES)
PARTS = (SPLIT_LANES, Given("tile_mask = row_mask & (splits < n_splits)"))
# The part of the columns that a program has, forwards and backwards.
_PART = (Line("split = tl.program_id(1)"), Line("first = split.to(INDEX) * split_cols"))
PART = (*_PART, Line("end = tl.minimum(first + split_cols, n_cols)"), BLANK)
PART_BACKWARDS = (*_PART, Line("length = tl.minimum(split_cols, n_cols - first)"))

# A tile in which rows or columns are stepped along in iterations, and how the loop along rows begins.
_IS_ROW = "(rows >= 0) & (rows < n_rows)"
STEP = (*rows_from("start"), TILE)
# Where CTAs share rows: the tiles two iterations ahead, one ahead, and now.
STAGES = (
    (
        rows_from("start + 2 * step", comment="Prefetch stage 1: load the rows two steps ahead.")[0],
        Given("tile_mask = (rows < n_rows) & col_mask"),
    ),
    (
        BLANK,
        *rows_from(
            "start + step",
            _IS_ROW,
            "Prefetch stage 2: publish the partial results of the next rows to the other CTAs.",
        ),
    ),
    (BLANK, *rows_from("start", _IS_ROW), TILE),
)
_STRIDED = Line("first, step = tl.program_id(0) * BLOCK_M, tl.num_programs(0) * BLOCK_M")
MEMBER = Line("group, member = tl.program_id(0) // CTAS_PER_ROW, tl.program_id(0) % CTAS_PER_ROW")


def along_rows(suffix: str, body: Nest) -> Nest:
    """The loop of a kernel along rows, by the number of programs."""
    if suffix == "cooperative_kernel":
        step = Line("step = tl.num_programs(0) // CTAS_PER_ROW * BLOCK_M")
        return (step, For("range(group * BLOCK_M - 2 * step, n_rows, step)", index="start", body=body))
    every = "tl.range(first, n_rows, step, num_stages=STAGES)" if suffix == "kernel" else "range(first, n_rows, step)"
    return (_STRIDED, For(every, index="start", body=body))


def along_cols(body: Nest, end: str, part: bool, backwards: bool) -> Nest:
    """The loop along all columns, or the part of a program, block by block."""
    span = ("0, length" if backwards else "first, end") if part else "0, n_cols"
    start = "last - start" if backwards else "start"
    loop = For(f"range({span}, BLOCK_N)", index="start", body=(*cols_from(start, end, wide=True), TILE, *body))
    length, first = ("length", "first + ") if part else ("n_cols", "")
    last = Line(f"last = {first}tl.cdiv({length}, BLOCK_N) * BLOCK_N - BLOCK_N")
    return (last, loop) if backwards else (loop,)


def rows_by_cols(end: str, separate: bool = False, cols: str = "cols") -> Nest:
    """A tile of rows by columns to each program, with separate masks of rows and columns where these are read
    `separate`.
    """
    found = Line(f"rows, {cols} = rows_and_cols(n_cols, BLOCK_M, BLOCK_N, INDEX)")
    if not separate:
        return (found, Given(f"tile_mask = (rows < n_rows) & (cols < {end})"))
    return (found, Given("row_mask = rows < n_rows"), Given(f"col_mask = cols < {end}"), TILE)


def block(name: str) -> Nest:
    """A run of elements to each program."""
    return (Line("start = tl.program_id(0).to(INDEX) * BLOCK"), Positions("start", name=name, block="BLOCK"))


COLS_IN_LINE = (
    Positions("tl.program_id(0).to(INDEX) * BLOCK", name="cols", block="BLOCK"),
    Given("col_mask = cols < n_cols"),
)
