"""Launches of contractions: the choice of kernels and tiles, split-K and stream-K.

All kernels take their arguments in the same order. "Lengths" are the numbers of rows and columns, and the length of the
inner axis or its number of groups:

- strided: matrices, results, partial sums, lengths, steps of split-K, strides of matrices (None for 1)
- TMA: descriptors, a descriptor and the tensor of each result, lengths, the number of tiles
- stream-K: descriptors, partial sums, lengths, the first tile, the split as in `choose_stream_k`
- reduction: results, partial sums, rows and columns, the first tile, the split
- Gluon: descriptors of the matrices and of the result, lengths

Then come further arguments of the inner loop, arguments shared by the loop and the epilogue, and arguments of the
epilogue, for kernels that have these; then the layouts of descriptors, and constexprs. None stands for partial sums
that a kernel does not write, for unwanted results, and for matrices that the chosen matmuls do not read.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from . import copies, launch, matmul_heuristics, tensors, tma
from .matmul_heuristics import blocks_of, count_tiles

REDUCE_M = 4  # rows of a tile per program of the reduction, so that many programs read
SHORTEST = 32  # terms of a block, and of a group with its own scale in TMA kernels

Args = tuple[Any, ...]
Matrices = tuple[torch.Tensor | None, ...]
Search = Callable[..., triton.Config | None]


class Strided(NamedTuple):
    """The kernel that reads through pointers."""

    table: matmul_heuristics.Strided
    kernel: Any
    # How many strides it takes of each matrix, None for absent ones; () for all that matrices have.
    n_strides: tuple[int, ...] = ()
    n_beside: tuple[int, int] = (0, 0)  # other tensors it loads: of rows, of columns
    pads: bool = False  # whether it may load the padding of copies
    swaps: bool = True  # whether it takes SWAPS, for float32


class Tma(NamedTuple):
    """The TMA kernel and, optionally, its stream-K variant."""

    table: matmul_heuristics.Tma
    kernel: Any
    stream_k: Any = None
    describe: Callable[..., tma.Descriptors] = tma.each
    n_turns: int = 1  # matmuls of one layout that alternate by iteration
    n_halves: int = 1  # in which a tile is summed, by columns
    n_slices: int = 2  # in which it is written
    specializes: bool = False  # whether it takes WARP_SPECIALIZE
    gluon: Any = None  # a `Gluon`


class Kernels(NamedTuple):
    """The kernels of a contraction, each with its table of tiles."""

    strided: Strided
    reduction: Any  # adds up partial sums
    tma: Tma | None = None
    n_sums: int = 1  # of a tile
    reduced_rows: int = REDUCE_M  # of a tile, in a program of the reduction
    precision: str = "ieee"  # how float32 is multiplied


class Operands(NamedTuple):
    """The matrices that kernels multiply, and their other operands."""

    lengths: tuple[int, int, int]  # rows, columns and the inner axis
    left: Matrices  # [rows, inner], or [batch, rows, inner]
    right: Matrices  # [columns, inner], or [batch, columns, inner]
    results: Matrices  # rows by columns in each element of the batch, contiguous
    n_batch: int | None = None  # None if there is no batch
    n_summed: int = 1  # matrices of a batch that are summed, as the inner axis is
    group_size: int = 0  # of groups of the inner axis with scales of their own
    dtype: torch.dtype | None = None  # of the matmul, if not the matrices' own
    accumulator: tl.dtype | None = None  # of sums, if not the default for that
    loop: Args = ()  # further arguments of the loop
    both: Args = ()  # that the loop and the epilogue share
    epilogue: Args = ()

    def matrices(self) -> Matrices:
        return (*self.left, *self.right)

    def batch(self) -> int:
        return 1 if self.n_batch is None else self.n_batch

    def n_terms(self) -> int:
        """The number of terms of each element of the result."""
        return self.n_summed * self.lengths[2]

    def terms(self) -> tuple[int, int, int]:
        """The lengths that kernels take."""
        n_rows, n_cols, n_inner = self.lengths
        return n_rows, n_cols, n_inner // (self.group_size or 1)


class Facts(NamedTuple):
    """Properties of the operands that all kernels are chosen by."""

    device: torch.device
    dtype: torch.dtype
    index: tl.dtype
    accumulator: tl.dtype
    is_readable: bool  # whether TMA can read all matrices in place


class Gluon(NamedTuple):
    """The Gluon kernel that multiplies float8 on Hopper: the name of a module in the package of `gluon_kernels`, and
    the operator's.
    """

    module: str
    name: str

    def stages(self, operands: Operands, facts: Facts) -> list[launch.Stage]:
        """Its launch; none where it is not for these matrices."""
        matrices = (*operands.left, *operands.right, *operands.results)
        left, right, result = _given(matrices)
        dtypes, sizes = (left.dtype, right.dtype, result.dtype), operands.lengths
        has_groups = operands.group_size > 0
        tile = matmul_heuristics.gluon_tile(facts.device, dtypes, *sizes, has_groups)
        beside = (*operands.loop, *operands.both, *operands.epilogue)
        others = [one for one in beside if isinstance(one, torch.Tensor)]
        is_wide = tensors.index_dtype(*others) == tl.int64
        if tile is None or is_wide or not tma.is_aligned(result.view(sizes[:2])):
            return []
        from . import contraction_gluon  # Gluon is imported where it is launched.

        kernels = launch.gluon_kernels(self.module, self.name)
        kernel = getattr(kernels, f"{self.name}_gluon_kernel")
        args = (*operands.terms(), *beside)
        return [contraction_gluon.stage(kernel, left, right, result, args, tile)]


def run(
    key: launch.Key | None,
    by_name: dict[str, Any],
    kernels: Kernels,
    operands: Operands,
    search: Search | None = None,
) -> None:
    """Launch the kernels of a contraction.

    Args:
        key: that of the call by `launch.lookup`; None if its launches cannot be repeated.
        by_name: the tensors and params of the call, by name.
        kernels: what may be launched.
        operands: what it multiplies.
        search: `search.fastest`, to time tiles at the first call of a size rather than choose by rule.
    """
    first, *_ = _given((*operands.matrices(), *operands.results))
    device, dtype = first.device, operands.dtype or first.dtype
    accumulator = operands.accumulator or tensors.accumulator_dtype(dtype)
    axis = matmul_heuristics.contiguous_axis(device, dtype, kernels.precision)
    if axis is not None:
        operands = _arranged(operands, axis)
    beside = (*operands.loop, *operands.both, *operands.epilogue)
    others = [it for it in beside if isinstance(it, torch.Tensor)]
    index = tensors.index_dtype(*operands.matrices(), *operands.results, *others)
    is_readable = all_readable(_given(operands.matrices()))
    facts = Facts(device, dtype, index, accumulator, is_readable)
    table: matmul_heuristics.Tma | matmul_heuristics.Strided
    if kernels.tma is not None and _use_tma(operands, facts, kernels.tma):
        own = kernels.tma.gluon
        if own is not None and (stages := own.stages(operands, facts)):
            launch.run_stages(key, by_name, stages)
            return
        table = kernels.tma.table
        way = partial(_by_tma, kernels, kernels.tma, operands, facts)
    else:
        table = kernels.strided.table
        way = partial(_by_pointers, kernels, operands, facts)
    config = None
    if search is not None:
        lies = tuple(one.stride(-1) == 1 for one in _given(operands.matrices()))
        counts = operands.lengths, operands.batch(), operands.n_summed
        sizes = table, *counts, device, dtype, is_readable, lies
        config = search(sizes, table.candidates(dtype), way, device)
    launch.run_stages(key, by_name, way(config))


def _use_tma(operands: Operands, facts: Facts, kernels: Tma) -> bool:
    """Whether the kernel that reads by TMA is launched."""
    n_rows, n_cols, _ = operands.lengths
    device, dtype, *_, is_readable = facts
    sizes = n_rows, n_cols, operands.n_terms(), operands.batch()
    narrow = narrowest(operands.left, operands.right, n_rows, n_cols, is_readable)
    rules = is_readable, kernels.stream_k is not None, narrow
    return (
        operands.group_size % SHORTEST == 0
        and all(matrix.numel() for matrix in _given(operands.matrices()))
        and matmul_heuristics.use_tma(device, dtype, *sizes, *rules)
    )


def _by_tma(
    kernels: Kernels,
    own: Tma,
    operands: Operands,
    facts: Facts,
    config: triton.Config | None,
) -> list[launch.Stage]:
    """Persistent programs, and stream-K for the tail wave where that saves time."""
    device, index = facts.device, facts.index
    n_rows, n_cols, n_inner = operands.lengths
    n_batch, n_summed = operands.batch(), operands.n_summed
    if config is None:
        n_terms = 0 if own.stream_k is None else own.n_turns * operands.n_terms()
        reading = _reading(operands.left, 0), _reading(operands.right, n_rows)
        config = own.table.choose(n_batch * n_rows, n_cols, n_terms, device, reading)
    block_m, block_n, block_k = blocks_of(config)
    if operands.group_size:  # Groups are multiples of blocks.
        block_k = math.gcd(block_k, operands.group_size)
    if n_summed > 1:
        block_k = matmul_heuristics.even_block_k(n_inner, block_k)
    blocks = block_m, block_n // own.n_halves, block_k
    descs, flags = own.describe(operands.left, operands.right, blocks, n_rows)
    batch = () if operands.n_batch is None else (n_batch,)
    shape, slices = (*batch, n_rows, n_cols), (block_m, block_n // own.n_slices)
    written = [
        one
        for result in operands.results
        for one in (tma.result_descriptor(result, shape, *slices), result)
    ]
    tiles = count_tiles(config, n_rows, n_cols, n_batch)
    programs = matmul_heuristics.persistent_programs(device)
    split = (0, 0, 0, 0)
    if own.stream_k is not None:
        steps = own.n_turns * _steps(operands, block_k) * block_k
        steps //= matmul_heuristics.shortest(own.table.configs)
        size = block_m * block_n
        split = matmul_heuristics.choose_stream_k(tiles, steps, programs, size)
    n_long, long_splits, n_short, short_splits = split
    first_tile = tiles - n_long - n_short
    options = options_of(config, block_k, config.num_stages, facts.accumulator)
    terms, both = operands.terms(), operands.both
    launches: list[launch.Stage] = []
    if first_tile:
        rest = (*operands.loop, *both, *operands.epilogue, *flags)
        compile_options = {"INDEX": index}
        if own.specializes:
            compile_options["WARP_SPECIALIZE"] = (
                # Triton 3.9 does not compile it in tiles of 32 columns.
                config.kwargs["BLOCK_N"] > 32
                and matmul_heuristics.warps_specialize(device)
            )
        args = (*descs, *written, *terms, first_tile, *rest)
        grid = (min(tiles, programs),)
        launches.append(launch.Stage(own.kernel, grid, args, options | compile_options))
    if n_long:
        n_splits = n_long * long_splits + n_short * short_splits
        partial = _partial_sums(kernels, facts, (n_splits, block_m, block_n))
        args = (*descs, *partial, *terms, first_tile, *split, *operands.loop, *both)
        compile_options = {"INDEX": index} if "INDEX" in own.stream_k.arg_names else {}
        if not operands.loop:  # Whatever else it reads takes shared memory too.
            stage = sum(map(tma.block_bytes, descs)) * own.n_halves // own.n_turns
            compile_options["num_stages"] = matmul_heuristics.stages_without_epilogue(
                config, stage, device
            )
        grid = (n_splits,)
        args = (*args, *flags)
        launches.append(
            launch.Stage(own.stream_k, grid, args, options | compile_options)
        )
        added = _reduce(kernels, operands, facts, config, partial, first_tile, split)
        launches.append(added)
    return launches


def _by_pointers(
    kernels: Kernels, operands: Operands, facts: Facts, config: triton.Config | None
) -> list[launch.Stage]:
    """One program per tile, or split-K for few tiles with a long inner axis."""
    own, device, dtype = kernels.strided, facts.device, facts.dtype
    n_rows, n_cols, n_inner = operands.lengths
    n_batch, n_terms = operands.batch(), operands.n_terms()
    lefts, rights = _given(operands.left), _given(operands.right)
    by_fma = None
    if dtype == torch.float32 and kernels.precision == "ieee":
        swapped = any(matrix.stride(-1) == 1 for matrix in rights)
        by_fma = matmul_heuristics.FmaSums(n_batch, n_rows, n_cols, n_terms, swapped)
    if config is None:
        cols_last = any(matrix.stride(-2) == 1 for matrix in rights)
        sizes = n_rows, n_cols, dtype, cols_last, device, n_batch
        config = own.table.choose(*sizes, by_fma)
    block_m, block_n, block_k = blocks_of(config)
    while block_k > SHORTEST and block_k >= 2 * (operands.group_size or n_inner):
        block_k //= 2
    if operands.n_summed > 1:
        block_k = matmul_heuristics.even_block_k(n_inner, block_k)
    if not facts.is_readable:
        block_k = matmul_heuristics.scalar_block_k(config, block_k)
    tiles = count_tiles(config, n_rows, n_cols, n_batch)
    n_splits = matmul_heuristics.choose_split_k(tiles, n_terms, device, config, by_fma)
    itemsize = max([dtype.itemsize, *(one.itemsize for one in lefts + rights)])
    n_left, n_right = len(lefts) + own.n_beside[0], len(rights) + own.n_beside[1]
    stage = (n_left * block_m + n_right * block_n) * block_k * itemsize
    n_steps = _steps(operands, block_k)
    stages = matmul_heuristics.choose_stages(config, tiles * n_splits, stage, device)
    # More stages than a program has blocks keep others from the SM. Symbolic lengths need a number, too.
    while stages > 1 + tensors.cdiv(n_steps, n_splits):
        stages -= 1
    options = options_of(config, block_k, stages, facts.accumulator)
    options["INDEX"] = facts.index
    if own.swaps:
        options["SWAPS"] = by_fma is not None and by_fma.swaps
    pads = own.pads and not launch.is_traced()  # Copies are not padded there.
    options |= copies.alignments(lefts, rights, operands.lengths, pads)
    rest = (*operands.loop, *operands.both, *operands.epilogue)
    args = (*_strides(operands.matrices(), own.n_strides), *rest)
    written = (*operands.matrices(), *operands.results)
    if n_splits == 1:
        none = (None,) * kernels.n_sums
        args = (*written, *none, *operands.terms(), None, *args)
        return [launch.Stage(own.kernel, (tiles,), args, options)]
    steps = tensors.cdiv(n_steps, n_splits)
    n_splits = tensors.cdiv(n_steps, steps)
    partial = _partial_sums(kernels, facts, (tiles * n_splits, block_m, block_n))
    args = (*written, *partial, *operands.terms(), steps, *args)
    split = (tiles, n_splits, 0, 0)
    return [
        launch.Stage(own.kernel, (tiles, n_splits), args, options),
        _reduce(kernels, operands, facts, config, partial, 0, split),
    ]


def _reduce(
    kernels: Kernels,
    operands: Operands,
    facts: Facts,
    config: triton.Config,
    partial: list[torch.Tensor],
    first_tile: int,
    split: tuple[int, int, int, int],
) -> launch.Stage:
    """Add up the partial sums of tiles, some rows of a tile per program."""
    n_long, _, n_short, _ = split
    tile = {name: config.kwargs[name] for name in ("BLOCK_M", "BLOCK_N", "GROUP")}
    rows = kernels.reduced_rows
    grid = ((n_long + n_short) * tile["BLOCK_M"] // rows,)
    args = (*operands.results, *partial, *operands.lengths[:2], first_tile, *split)
    args = (*args, *operands.both, *operands.epilogue)
    dtypes = {"INDEX": facts.index, "ACC": facts.accumulator}
    options = {**tile, **dtypes, "REDUCE_M": rows, "num_warps": 4}
    return launch.Stage(kernels.reduction, grid, args, options)


def narrowest(
    left: Matrices, right: Matrices, n_rows: int, n_cols: int, is_readable: bool
) -> int:
    """From how many rows or columns on, whichever are fewer, TMA is used: half of its narrowest tile if only the matrix
    with the fewer has to be copied.
    """
    wide = left if n_rows >= n_cols else right
    return 33 if not is_readable and all_readable(_given(wide)) else 129


def all_readable(matrices: tuple[torch.Tensor, ...], alignment: int = 16) -> bool:
    """Whether TMA can read matrices in place, at this row stride in bytes; under a trace, addresses are unknown."""
    return launch.is_traced() or all(
        tma.is_readable(one, alignment) for one in matrices
    )


def _reading(side: Matrices, n_others: int) -> int:
    """The cost of reading one row of a side's blocks by TMA: the maximum over its matrices."""
    costs = [
        matmul_heuristics.reading(one.itemsize, tma.alignment(one, n_others))
        for one in _given(side)
    ]
    return max([0, *costs])  # Matmuls that are not chosen read none.


def _arranged(operands: Operands, axis: str) -> Operands:
    """Operands with float32 matrices whose "rows" (or columns) or "inner" axis is contiguous."""
    n_rows, n_cols, _ = operands.lengths
    n_terms = operands.batch() * n_rows * n_cols * operands.n_terms()
    sides = operands.left, operands.right
    pair = all(any(map(_is_contiguous, _given(side))) for side in sides)
    left, right = (
        tuple(_copied(one, axis, n_others, n_terms, pair) for one in side)
        for side, n_others in zip(sides, (n_cols, n_rows), strict=True)
    )
    return operands._replace(left=left, right=right)


def _copied(
    matrix: torch.Tensor | None, axis: str, n_others: int, n_terms: int, pair: bool
) -> torch.Tensor | None:
    """A matrix whose `axis` is contiguous: itself or a copy.

    It is copied if the other matrix has enough rows to hide the cost, and if a batch does not select from more
    matrices than it has. `pair`: the inner axis is contiguous on both sides; then the side with fewer rows is
    copied first.
    """
    if matrix is None or matrix.itemsize != 4 or matrix.numel() * n_others > n_terms:
        return matrix
    rows, why = axis == "rows", axis
    lies = matrix.mT if rows else matrix
    if rows and _is_contiguous(matrix):
        why = "first" if pair and matrix.shape[-2] <= n_others else "only"
    pays = matmul_heuristics.use_copies(n_others, n_terms, why)
    if not pays or _is_contiguous(lies):
        return matrix
    if launch.is_traced():
        return lies.contiguous().mT if rows else lies.contiguous()
    return copies.with_rows_last(matrix) if rows else copies.with_cols_last(matrix)


def _is_contiguous(matrix: torch.Tensor) -> bool:
    """Whether the last axis is contiguous and rows are aligned to 16 bytes; under a trace, addresses are unknown."""
    return matrix.stride(-1) == 1 if launch.is_traced() else tma.is_aligned(matrix)


def _strides(matrices: Matrices, counts: tuple[int, ...]) -> list[int | None]:
    """The strides of each matrix, filled up to its entry of `counts`; None for a contiguous axis, on which kernels
    specialise.
    """
    strides: list[int | None] = []
    for place, matrix in enumerate(matrices):
        own: list[int | None] = []
        if matrix is not None:
            *batch, row, inner = matrix.stride()
            last = (None if copies.is_one(step) else step for step in (row, inner))
            own = [*batch, *last]
        missing = counts[place] - len(own) if counts else 0
        strides += [*[None] * missing, *own]
    return strides


def _given(matrices: Matrices) -> tuple[torch.Tensor, ...]:
    return tuple(matrix for matrix in matrices if matrix is not None)


def options_of(
    config: triton.Config, block_k: int, num_stages: int, accumulator: tl.dtype
) -> dict[str, Any]:
    """The constexprs of kernels that multiply."""
    tile = {**config.kwargs, "BLOCK_K": block_k, "ACC": accumulator}
    return {**tile, "num_warps": config.num_warps, "num_stages": num_stages}


def _steps(operands: Operands, block_k: int) -> int:
    """The total number of blocks along all inner axes; each group is divided into blocks separately."""
    n_inner, group_size = operands.lengths[2], operands.group_size
    if not group_size:
        return operands.n_summed * tensors.cdiv(n_inner, block_k)
    return n_inner // group_size * tensors.cdiv(group_size, block_k)


def _partial_sums(
    kernels: Kernels, facts: Facts, shape: tuple[int, int, int]
) -> list[torch.Tensor]:
    """Memory for the partial sums of a tile, of the given shape, one tensor per accumulator."""
    dtype, device = tensors.torch_dtype(facts.accumulator), facts.device
    count = range(kernels.n_sums)
    return [torch.empty(shape, dtype=dtype, device=device) for _ in count]
