"""The positions of a program in kernels over rows and columns, and its loops over them."""

from __future__ import annotations

from ..nest.ir import BLANK, For, Given, Let, Nest, Positions
from ..nest.values import Expr, Term, V, expr, runtime, tl

COLUMNS, LANES = "[:, None]", "[None, :]"  # how the positions of rows, and of columns, lie in a tile
ROW_MASK = Given("row_mask", V.rows < V.n_rows)


def rows_from(start: Expr, mask: Expr = ROW_MASK.value, comment: str = "") -> Nest:
    """The rows of an iteration, and which of them exist."""
    rows = Positions(start, comment=comment, name="rows", block="BLOCK_M", lanes=COLUMNS, wide=True)
    return (rows, Given("row_mask", mask))


def cols_from(start: Expr, end: Term, wide: bool = False) -> Nest:
    """The columns of a block, and which of them are before the end."""
    return (
        Positions(start, name="cols", block="BLOCK_N", lanes=LANES, wide=wide),
        Given("col_mask", V.cols < end),
    )


ROWS = (Positions(tl.program_id(0).to("INDEX") * "BLOCK_M", name="rows", block="BLOCK_M", lanes=COLUMNS), ROW_MASK)
TILE = Given("tile_mask", V.row_mask & V.col_mask)
SPLIT_LANES = Positions(expr(0), name="splits", block="BLOCK_N", lanes=LANES)
CHUNKS = (SPLIT_LANES, Given("tile_mask", V.row_mask & (V.splits < V.n_splits)))
# The chunk of columns of a program, for loops forwards and backwards.
_CHUNK = (Let("split", tl.program_id(1)), Let("first", V.split.to("INDEX") * V.split_cols))
CHUNK = (*_CHUNK, Let("end", tl.minimum(V.first + V.split_cols, V.n_cols)), BLANK)
CHUNK_BACKWARDS = (*_CHUNK, Let("length", tl.minimum(V.split_cols, V.n_cols - V.first)))

# The rows of an iteration that exist, and the beginning of a loop over rows.
_IS_ROW = (V.rows >= 0) & (V.rows < V.n_rows)
STEP = (*rows_from(V.start), TILE)
# Where CTAs share rows: the tiles two iterations ahead, one ahead, and now.
STAGES = (
    (
        rows_from(V.start + 2 * V.step, comment="Prefetch stage 1: load the rows two steps ahead.")[0],
        Given("tile_mask", ROW_MASK.value & V.col_mask),
    ),
    (
        BLANK,
        *rows_from(
            V.start + V.step,
            _IS_ROW,
            "Prefetch stage 2: publish the partial results of the next rows to the other CTAs.",
        ),
    ),
    (BLANK, *rows_from(V.start, _IS_ROW), TILE),
)
_PROGRAM = tl.program_id(0)
_STRIDED = Let("first, step", expr((_PROGRAM * V.BLOCK_M, tl.num_programs(0) * V.BLOCK_M)))
MEMBER = Let("group, member", expr((_PROGRAM // V.CTAS_PER_ROW, _PROGRAM % V.CTAS_PER_ROW)))


def along_rows(suffix: str, body: Nest) -> Nest:
    """The loop of a kernel over rows, strided by the number of programs."""
    if suffix == "cooperative_kernel":
        step = Let("step", tl.num_programs(0) // V.CTAS_PER_ROW * V.BLOCK_M)
        every = runtime.range(V.group * V.BLOCK_M - 2 * V.step, V.n_rows, V.step)
        return (step, For(every, index="start", body=body))
    span = (V.first, V.n_rows, V.step)
    every = tl.range(*span, num_stages=V.STAGES) if suffix == "kernel" else runtime.range(*span)
    return (_STRIDED, For(every, index="start", body=body))


def along_cols(body: Nest, end: Term, is_chunk: bool, backwards: bool) -> Nest:
    """The loop over all columns, or over the chunk of a program, block by block."""
    length = V.length if is_chunk else V.n_cols
    span = (0, length) if backwards or not is_chunk else (V.first, V.end)
    start = V.last - V.start if backwards else V.start
    inside = (*cols_from(start, end, wide=True), TILE, *body)
    loop = For(runtime.range(*span, V.BLOCK_N), index="start", body=inside)
    blocks = tl.cdiv(length, V.BLOCK_N) * V.BLOCK_N
    last = Let("last", (V.first + blocks if is_chunk else blocks) - V.BLOCK_N)
    return (last, loop) if backwards else (loop,)


def rows_by_cols(end: Term, separate: bool = False, cols: str = "cols") -> Nest:
    """One tile of rows by columns per program; with `separate`, rows and columns have masks of their own, too."""
    found = Let(f"rows, {cols}", runtime.rows_and_cols(V.n_cols, V.BLOCK_M, V.BLOCK_N, V.INDEX))
    before_end = V.cols < end
    if not separate:
        return (found, Given("tile_mask", ROW_MASK.value & before_end))
    return (found, ROW_MASK, Given("col_mask", before_end), TILE)


def block(name: str) -> Nest:
    """One block of contiguous positions per program."""
    return (Let("start", tl.program_id(0).to("INDEX") * V.BLOCK), Positions(V.start, name=name, block="BLOCK"))


COLS_IN_LINE = (
    Positions(tl.program_id(0).to("INDEX") * V.BLOCK, name="cols", block="BLOCK"),
    Given("col_mask", V.cols < V.n_cols),
)
