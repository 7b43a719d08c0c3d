"""Launches of contractions: the choice of kernels and tiles, split-K and stream-K.

All kernels take their arguments in the same order, where lengths are those of rows, columns, and of the inner axis, or
its number of groups:

- strided: matrices, results, partial sums, lengths, steps of split-K, strides of matrices (None for 1)
- TMA: descriptors, a descriptor and the tensor of each result, lengths, the number of tiles
- stream-K: descriptors, partial sums, lengths, the first tile, the split as in `choose_stream_k`
- reduction: results, partial sums, rows and columns, the first tile, the split

Then come the other arguments of the loop over the inner axis, those that the loop and the epilogue share, and those of
the epilogue, for kernels that have these; then the layouts of descriptors, and constexprs. None stands for partial sums
that a kernel does not write, for results that are not wanted, and for matrices that the chosen matmuls do not read.
"""

import math
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from . import copies, launch, matmul_heuristics, tensors, tma
from .dtypes import accumulator_dtype, torch_dtype
from .matmul_heuristics import blocks_of, count_tiles
from .search import fastest

REDUCE_M = 4  # rows of a tile per program of the reduction, so that many programs read
SHORTEST = 32  # terms of a block, and of a group with its own scale in TMA kernels

Args = tuple[Any, ...]
Lengths = tuple[int, int, int]
Matrices = tuple[torch.Tensor | None, ...]
Results = tuple[torch.Tensor | None, ...]


def run(
    key: launch.Key | None,
    by_name: dict[str, Any],
    *,
    lengths: Lengths,
    left: Matrices,
    right: Matrices,
    results: Results,
    strided: tuple[matmul_heuristics.Strided, Any],
    reduction: Any,
    described: tuple[matmul_heuristics.Tma, Any, Any] | None = None,
    n_sums: int = 1,
    n_batch: int | None = None,
    n_summed: int = 1,
    group_size: int = 0,
    dtype: torch.dtype | None = None,
    precision: str = "ieee",
    accumulator: tl.dtype | None = None,
    loop: Args = (),
    both: Args = (),
    epilogue: Args = (),
    reduced_rows: int = REDUCE_M,
    n_strides: tuple[int, ...] = (),
    n_beside: tuple[int, int] = (0, 0),
    search: bool = False,
    pads: bool = False,
    swaps: bool = True,
    **layout: Any,
) -> None:
    """Launch the kernels of a contraction.

    Args:
        key: that of the call by `launch.lookup`; None if its launches cannot be repeated.
        by_name: the tensors and params of the call, by name.
        lengths: of rows, columns and the inner axis.
        left: matrices [rows, inner], or [batch, rows, inner].
        right: matrices [columns, inner], or [batch, columns, inner].
        results: with rows by columns in each batch element, contiguous.
        strided: a table, and the kernel that reads through pointers.
        reduction: the kernel that adds up partial sums.
        described: a table, the kernel that reads by TMA, and the stream-K kernel or None.
        n_sums: the number of sums of a tile.
        n_batch: the number of matrices in the batch; None if there is none.
        n_summed: the number of matrices of a batch that are summed, besides the inner axis.
        group_size: the length of groups of the inner axis that have scales of their own; 0 if there are none.
        dtype: the dtype that tensor cores multiply, if not that of the matrices.
        precision: how float32 is multiplied.
        accumulator: the dtype of sums, if not the default for that.
        loop: arguments of the loop besides matrices.
        both: arguments that the loop and the epilogue share.
        epilogue: arguments of the epilogue.
        reduced_rows: the rows of a tile that a program of the reduction takes.
        n_strides: the number of strides that a kernel takes of each matrix, None for absent ones; () for all they have.
        n_beside: how many other tensors the loop reads blocks of, along rows and along columns.
        search: whether tiles are timed at the first call of a size, rather than chosen by rule.
        pads: whether the kernel that reads through pointers takes the padding of copies of matrices.
        swaps: whether it takes SWAPS, for float32.
        layout: how TMA reads and writes, as for `_by_tma`.
    """
    matrices, beside = (*left, *right), (loop, both, epilogue)
    first = next(one for one in (*matrices, *results) if one is not None)
    device, dtype = first.device, dtype or first.dtype
    accumulator = accumulator or accumulator_dtype(dtype)
    others = [it for group in beside for it in group if isinstance(it, torch.Tensor)]
    n_rows, n_cols, n_inner = lengths
    has_batch, n_batch = n_batch is not None, 1 if n_batch is None else n_batch
    n_terms = n_batch * n_rows * n_cols * n_summed * n_inner
    if axis := matmul_heuristics.contiguous_axis(device, dtype, precision):
        pair = all(any(map(_is_contiguous, _given(side))) for side in (left, right))
        left = tuple(_arranged(one, axis, n_cols, n_terms, pair) for one in left)
        right = tuple(_arranged(one, axis, n_rows, n_terms, pair) for one in right)
    index = tensors.index_dtype(*left, *right, *results, *others)
    is_readable = all_readable(_given((*left, *right)))
    sums = n_sums, torch_dtype(accumulator)
    reducing = reduction, reduced_rows
    counts = n_batch, n_summed, group_size
    given = left, right, results, beside, sums, lengths, counts, index
    if (
        described is not None
        and group_size % SHORTEST == 0
        and all(matrix.numel() for matrix in _given(matrices))
        and matmul_heuristics.use_tma(
            device,
            dtype,
            n_rows,
            n_cols,
            n_summed * n_inner,
            n_batch,
            is_readable,
            described[2] is not None,
            narrowest(left, right, n_rows, n_cols, is_readable),
        )
    ):
        table: matmul_heuristics.Tma | matmul_heuristics.Strided = described[0]
        present = _given(matrices)
        batched = any(one.ndim > 2 for one in present) if present else has_batch
        way = partial(_by_tma, described, reducing, *given, device, batched, **layout)
    else:
        table = strided[0]
        way = partial(
            _by_pointers,
            *(strided, reducing, *given, device, dtype, precision, n_strides, n_beside),
            *(is_readable, pads, swaps),
        )

    def stages(config: triton.Config | None) -> list[launch.Stage]:
        return [
            one._replace(options={"ACC": accumulator, **one.options})
            for one in way(config=config)
        ]

    config = None
    if search:
        lies = tuple(one.stride(-1) == 1 for one in _given((*left, *right)))
        sizes = (table, lengths, n_batch, n_summed, device, dtype, is_readable, lies)
        config = fastest(sizes, table.candidates(dtype), stages, device)
    launch.run_stages(key, by_name, stages(config))


def _by_tma(
    described: tuple[matmul_heuristics.Tma, Any, Any],
    reduction: tuple[Any, int],
    left: Matrices,
    right: Matrices,
    results: Results,
    beside: tuple[Args, Args, Args],
    sums: tuple[int, torch.dtype],
    lengths: Lengths,
    counts: Lengths,
    index: Any,
    device: torch.device,
    is_batched: bool,
    *,
    config: triton.Config | None,
    n_turns: int = 1,
    is_joined: bool = False,
    n_halves: int = 1,
    n_slices: int = 2,
    may_specialize: bool = False,
) -> list[launch.Stage]:
    """Persistent programs, and stream-K for the tail wave where that saves time.

    `n_turns` matmuls take turns by iteration, with matrices of the same layout; if `is_joined`, one descriptor reads
    both right matrices. A tile is summed in `n_halves` of its columns, and written in `n_slices`; some kernels may
    be warp specialised.
    """
    table, kernel, stream_k = described
    loop, both, epilogue = beside
    n_rows, n_cols, n_inner = lengths
    n_batch, n_summed, group_size = counts
    terms = n_rows, n_cols, n_inner // group_size if group_size else n_inner
    n_terms = n_turns * n_summed * n_inner if stream_k is not None else 0
    if config is None:
        config = table.choose(n_batch * n_rows, n_cols, n_terms, device)
    block_m, block_n, block_k = blocks_of(config)
    if group_size:
        block_k = math.gcd(block_k, group_size)  # Groups are made of whole blocks.
    if n_summed > 1:
        block_k = matmul_heuristics.full_block(n_inner, block_k)
    rights = block_n // n_halves, block_k, n_rows
    if n_turns > 1:
        left_descs, left_inner_last = tma.descriptors(_given(left), block_m, block_k)
        right_descs, right_inner_last = tma.descriptors(_given(right), *rights)
        descs, flags = [*left_descs, *right_descs], [left_inner_last, right_inner_last]
    else:
        pairs = [_descriptor(matrix, block_m, block_k) for matrix in left]
        if is_joined:
            first, second = _given(right)
            pairs.append(tma.joined_descriptor(first, second, block_n, block_k))
        else:
            pairs += [_descriptor(matrix, *rights) for matrix in right]
        descs, flags = [desc for desc, _ in pairs], [flag for _, flag in pairs]
    shape = (*(n_batch,) * (is_batched and n_summed == 1), n_rows, n_cols)
    slices = block_m, block_n // n_slices
    written = [
        one
        for result in results
        for one in (_result_descriptor(result, shape, *slices), result)
    ]
    tiles = count_tiles(config, n_rows, n_cols, n_batch)
    programs = matmul_heuristics.persistent_programs(device)
    tile_steps = n_turns * n_summed * _steps(n_inner, group_size, block_k)
    split = (0, 0, 0, 0)
    if stream_k is not None:
        split = matmul_heuristics.choose_stream_k(tiles, tile_steps, programs)
    n_long, long_parts, n_short, short_parts = split
    first_tile = tiles - n_long - n_short
    options = options_of(config, block_k, config.num_stages)
    launches: list[launch.Stage] = []
    if first_tile:
        args = (*descs, *written, *terms, first_tile, *loop, *both, *epilogue, *flags)
        ways = {"INDEX": index}
        if may_specialize:
            ways["WARP_SPECIALIZE"] = matmul_heuristics.warps_specialize(device)
        grid = (min(tiles, programs),)
        launches.append(launch.Stage(kernel, grid, args, options | ways))
    if n_long:
        n_parts = n_long * long_parts + n_short * short_parts
        partial = _partial_sums(sums, n_parts, block_m, block_n, device)
        args = (*descs, *partial, *terms, first_tile, *split, *loop, *both, *flags)
        own = {"INDEX": index} if "INDEX" in stream_k.arg_names else {}
        if not loop:  # Whatever else it reads takes shared memory too.
            stage = sum(map(tma.block_bytes, descs)) * n_halves // n_turns
            own["num_stages"] = matmul_heuristics.stages_alone(config, stage, device)
        launches.append(launch.Stage(stream_k, (n_parts,), args, options | own))
        args = (*results, *partial, n_rows, n_cols, first_tile, *split)
        args = (*args, *both, *epilogue)
        launches.append(_reduce(reduction, args, split, config, index))
    return launches


def _by_pointers(
    strided: tuple[matmul_heuristics.Strided, Any],
    reduction: tuple[Any, int],
    left: Matrices,
    right: Matrices,
    results: Results,
    beside: tuple[Args, Args, Args],
    sums: tuple[int, torch.dtype],
    lengths: Lengths,
    counts: Lengths,
    index: Any,
    device: torch.device,
    dtype: torch.dtype,
    precision: str,
    n_strides: tuple[int, ...],
    n_beside: tuple[int, int],
    is_readable: bool,
    pads: bool,
    swaps: bool,
    *,
    config: triton.Config | None,
) -> list[launch.Stage]:
    """One program per tile, or split-K for few tiles with a long inner axis."""
    table, kernel = strided
    loop, both, epilogue = beside
    n_rows, n_cols, n_inner = lengths
    n_batch, n_summed, group_size = counts
    terms = n_rows, n_cols, n_inner // group_size if group_size else n_inner
    matrices = (*left, *right)
    lefts, rights = _given(left), _given(right)
    cols_last = any(matrix.stride(-2) == 1 for matrix in rights)
    n_terms = n_summed * n_inner
    by_fma = None
    if dtype == torch.float32 and precision == "ieee":
        swapped = any(matrix.stride(-1) == 1 for matrix in rights)
        by_fma = matmul_heuristics.FmaSums(n_batch, n_rows, n_cols, n_terms, swapped)
    if config is None:
        sizes = n_rows, n_cols, dtype, cols_last, device, n_batch
        config = table.choose(*sizes, by_fma)
    block_m, block_n, block_k = blocks_of(config)
    while block_k > SHORTEST and block_k >= 2 * (group_size or n_inner):
        block_k //= 2
    if n_summed > 1:
        block_k = matmul_heuristics.full_block(n_inner, block_k)
    if not is_readable:
        block_k = matmul_heuristics.short_block(config, block_k)
    tiles = count_tiles(config, n_rows, n_cols, n_batch)
    n_parts = matmul_heuristics.choose_split_k(tiles, n_terms, device, config, by_fma)
    itemsize = max([dtype.itemsize, *(one.itemsize for one in lefts + rights)])
    n_left, n_right = len(lefts) + n_beside[0], len(rights) + n_beside[1]
    stage = (n_left * block_m + n_right * block_n) * block_k * itemsize
    stages = matmul_heuristics.choose_stages(config, tiles * n_parts, stage, device)
    options = options_of(config, block_k, stages) | {"INDEX": index}
    if swaps:
        options["SWAPS"] = by_fma is not None and by_fma.swaps
    pads = pads and not launch.is_traced()  # Copies are not padded there.
    options |= copies.alignments(lefts, rights, lengths, pads)
    own = [() if one is None else _strides(one) for one in matrices]
    dims = n_strides or [len(steps) for steps in own]
    strides = [
        step
        for steps, count in zip(own, dims, strict=True)
        for step in (*[None] * (count - len(steps)), *steps)
    ]
    rest = (*strides, *loop, *both, *epilogue)
    if n_parts == 1:
        none = (None,) * sums[0]
        args = (*matrices, *results, *none, *terms, None, *rest)
        return [launch.Stage(kernel, (tiles,), args, options)]
    n_steps = n_summed * _steps(n_inner, group_size, block_k)
    steps = tensors.cdiv(n_steps, n_parts)
    n_parts = tensors.cdiv(n_steps, steps)
    partial = _partial_sums(sums, tiles * n_parts, block_m, block_n, device)
    args = (*matrices, *results, *partial, *terms, steps, *rest)
    split = (tiles, n_parts, 0, 0)
    reduced = (*results, *partial, n_rows, n_cols, 0, *split, *both, *epilogue)
    return [
        launch.Stage(kernel, (tiles, n_parts), args, options),
        _reduce(reduction, reduced, split, config, index),
    ]


def narrowest(
    left: Matrices, right: Matrices, n_rows: int, n_cols: int, is_readable: bool
) -> int:
    """From how many rows or columns on, whichever are fewer, TMA is used: half of its narrowest tile if only the matrix
    with the fewer has to be copied.
    """
    wide = left if n_rows >= n_cols else right
    return 33 if not is_readable and all_readable(_given(wide)) else 129


def all_readable(matrices: tuple[torch.Tensor, ...], apart: int = 16) -> bool:
    """Whether TMA can read matrices in place, with rows so many bytes apart; under a trace, addresses are unknown."""
    return launch.is_traced() or all(tma.is_readable(one, apart) for one in matrices)


def _arranged(
    matrix: torch.Tensor | None, axis: str, n_others: int, n_terms: int, pair: bool
) -> torch.Tensor | None:
    """A float32 matrix with contiguous "rows" (or columns) or "inner" axis: a copy, if the other matrix has so many
    rows that its cost does not show, and if no batch selects from more matrices than it has. `pair`: whether the inner
    axis is contiguous on both sides, of which that with fewer rows is copied for the least.
    """
    if matrix is None or matrix.itemsize != 4 or matrix.numel() * n_others > n_terms:
        return matrix
    lies = matrix.mT if axis == "rows" else matrix
    why = axis
    if axis == "rows" and _is_contiguous(matrix):
        why = "first" if pair and matrix.shape[-2] <= n_others else "only"
    copies_it = matmul_heuristics.use_copies(n_others, n_terms, why)
    if _is_contiguous(lies) or not copies_it:
        return matrix
    if launch.is_traced():
        copy = lies.contiguous()
        return copy.mT if axis == "rows" else copy
    arrange = copies.with_rows_last if axis == "rows" else copies.with_cols_last
    return arrange(matrix)


def _is_contiguous(matrix: torch.Tensor) -> bool:
    """Whether the last axis is contiguous, and rows begin at 16 bytes; under a trace, addresses are unknown."""
    return matrix.stride(-1) == 1 if launch.is_traced() else tma.is_aligned(matrix)


def _strides(matrix: torch.Tensor) -> tuple[int | None, ...]:
    """The strides of a matrix, None for that of a contiguous axis, of which kernels have to know."""
    *batch, row, inner = matrix.stride()
    return (*batch, *(None if copies.is_one(step) else step for step in (row, inner)))


def _given(matrices: Matrices) -> tuple[torch.Tensor, ...]:
    return tuple(matrix for matrix in matrices if matrix is not None)


def _reduce(
    reduction: tuple[Any, int],
    args: Args,
    split: tuple[int, int, int, int],
    config: triton.Config,
    index: Any,
) -> launch.Stage:
    """Reduce the tiles that are split, some rows of a tile per program."""
    kernel, rows = reduction
    n_long, _, n_short, _ = split
    tile = {name: config.kwargs[name] for name in ("BLOCK_M", "BLOCK_N", "GROUP")}
    grid = ((n_long + n_short) * tile["BLOCK_M"] // rows,)
    options = {**tile, "REDUCE_M": rows, "INDEX": index, "num_warps": 4}
    return launch.Stage(kernel, grid, args, options)


def options_of(config: triton.Config, block_k: int, num_stages: int) -> dict[str, Any]:
    """The constexprs of kernels that multiply."""
    tile = {**config.kwargs, "BLOCK_K": block_k}
    return {**tile, "num_warps": config.num_warps, "num_stages": num_stages}


def _steps(n_inner: int, group_size: int, block_k: int) -> int:
    """The number of blocks of the inner axis, each group divided by itself."""
    if not group_size:
        return tensors.cdiv(n_inner, block_k)
    return n_inner // group_size * tensors.cdiv(group_size, block_k)


def _partial_sums(
    sums: tuple[int, torch.dtype],
    n_parts: int,
    block_m: int,
    block_n: int,
    device: torch.device,
) -> list[torch.Tensor]:
    """Memory for so many partial sums of each sum of a tile."""
    count, dtype = sums
    shape = (n_parts, block_m, block_n)
    return [torch.empty(shape, dtype=dtype, device=device) for _ in range(count)]


def _descriptor(
    matrix: torch.Tensor | None, *blocks: int
) -> tuple[TensorDescriptor | None, bool]:
    return (None, False) if matrix is None else tma.descriptor(matrix, *blocks)


def _result_descriptor(
    result: torch.Tensor | None, shape: tuple[int, ...], block_m: int, block_n: int
) -> TensorDescriptor | None:
    if result is None:
        return None
    return tma.result_descriptor(result.view(shape), block_m, block_n)
