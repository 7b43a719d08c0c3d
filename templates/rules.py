"""The launch rules of generated modules: measured on an H100, see docs/performance.md."""

import triton

FLAT: tuple[triton.Config, ...] = ()
TILE: tuple[triton.Config, ...] = ()
REGISTERS: tuple[tuple[int, int, int], ...] = ()
LOOP: tuple[triton.Config, ...] = ()
WHOLE: tuple[tuple[int, int, int], ...] = ()
SUMS: tuple[triton.Config, ...] = ()


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
    return n_cols <= (32768 if contiguous else 1024)


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


def choose_whole(n_rows: int, n_cols: int) -> triton.Config:
    """Whole rows beside sums over them: several short ones to a step."""
    block_n = _power_of_two(n_cols)
    _, elements, num_warps = next(
        (config for config in WHOLE if block_n <= config[0]), WHOLE[-1]
    )
    rows = max(1, elements // block_n)
    return triton.Config({"BLOCK_M": rows, "BLOCK_N": block_n}, num_warps=num_warps)


def choose_sums(n_rows: int, n_cols: int) -> triton.Config:
    """Tiles beside sums over the rows: the widest that the columns fill."""
    return next((config for config in SUMS if config.kwargs["BLOCK_N"] < 2 * n_cols), SUMS[-1])


def choose_programs(n_rows: int, n_tiles: int, config: triton.Config) -> int:
    """How many programs share the rows: what runs at once, 32 warps on each of 132 multiprocessors."""
    steps = _cdiv(n_rows, config.kwargs["BLOCK_M"])
    warps: int = config.num_warps * n_tiles
    return min(steps, max(1, 4224 // warps))
