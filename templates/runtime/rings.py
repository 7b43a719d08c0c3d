# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Device functions of Gluon kernels for Hopper: rings of shared memory blocks, filled by a producer warp by TMA and
read by the warp groups that compute, and their matmuls.
"""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from .matmul import locate
from .online import exp_shift_low, scaled_low

# Triton 3.6 has other names for them.
async_load = getattr(tma, "async_load", tma.async_copy_global_to_shared)
async_store = getattr(tma, "async_store", tma.async_copy_shared_to_global)
barrier = getattr(gl, "thread_barrier", None) or gl.barrier


@gluon.constexpr_function
def several(count, shape):
    """The shape of a ring of blocks."""
    return [count, *shape]


@gluon.jit
def mirrored(turn, n_tiles, in_group):
    """The tile of an iteration of a persistent program: mirrored for balance, since later tiles of a group are faster.

    After each tile from the front of a group a program takes the one that is as far from its end, so that all pairs
    take as long. Each tile has one turn. Groups have an even number of tiles, but for the last.
    """
    programs = gl.num_programs(0)
    place = turn // (2 * programs) * programs + turn % programs
    place = gl.where(turn // programs % 2 == 0, place, n_tiles - 1 - place)
    pair = gl.minimum(place, n_tiles - 1 - place)
    first = pair // (in_group // 2) * in_group
    within = pair % (in_group // 2)
    last = gl.minimum(n_tiles - first, in_group) - 1
    return first + gl.where(place == pair, within, last - within)


@gluon.jit
def read_bounds(pointer, tile):
    """The bounds of three runs of blocks, as a kernel before has found them for a tile of a head."""
    first = pointer + tile * 4
    start, unmasked = gl.load(first).to(gl.int64), gl.load(first + 1).to(gl.int64)
    rest, end = gl.load(first + 2).to(gl.int64), gl.load(first + 3).to(gl.int64)
    return start, unmasked, rest, end


@gluon.jit
def memory(desc, COUNT: gl.constexpr):
    """Shared memory for COUNT blocks of a tensor."""
    shape: gl.constexpr = several(COUNT, desc.block_shape)
    return gl.allocate_shared_memory(desc.dtype, shape, desc.layout)


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """COUNT barriers, which complete after ARRIVALS arrivals each."""
    found = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for place in gl.static_range(COUNT):
        mbarrier.init(found.index(place), count=ARRIVALS)
    return found


@gluon.jit
def ring(desc, STAGES: gl.constexpr, READERS: gl.constexpr):
    """Shared memory for a ring of blocks, with full and empty barriers for each."""
    return memory(desc, STAGES), barriers(STAGES, 1), barriers(STAGES, READERS)


@gluon.jit
def wait_for(barriers, step, BEFORE: gl.constexpr = 0):
    """Wait for the barrier of a step, or with BEFORE 1 for the turn before it; the stage of the step."""
    STAGES: gl.constexpr = barriers.shape[0]
    mbarrier.wait(barriers.index(step % STAGES), step // STAGES & 1 ^ BEFORE)
    return step % STAGES


@gluon.jit
def arrive(barriers, step):
    """Arrive at the barrier of a step."""
    mbarrier.arrive(barriers.index(step % barriers.shape[0]))


@gluon.jit
def fill(ring, step, desc, head, row, col=0):
    """Begin to load the block of a step, from some row and column of a head on, as soon as what was there before has
    been read.
    """
    blocks, full, free = ring
    stage = wait_for(free, step, 1)
    mbarrier.expect(full.index(stage), desc.block_type.nbytes)
    place = row.to(gl.int32), gl.to_tensor(col).to(gl.int32)
    async_load(desc, head + place, full.index(stage), blocks.index(stage))


@gluon.jit
def take(ring, step):
    """Wait for the block of a step, and view it as a matrix."""
    blocks, full, _ = ring
    return as_matrix(blocks.index(wait_for(full, step)))


@gluon.jit
def give_back(ring, step):
    """Signal that the block of a step has been read (its empty barrier)."""
    _, _, free = ring
    arrive(free, step)


@gluon.jit
def read_scores(ring, step, ACROSS: gl.constexpr = False):
    """The block of a step as scores are held, which is given back as soon as all warps of the group have read it; with
    rows and columns exchanged where it lies across.
    """
    block = take(ring, step).permute((1, 0)) if ACROSS else take(ring, step)
    x = block.load(product_layout(block.shape[1]))
    # TMA is another proxy: without the fence, it was seen to write the next block before this one was read.
    fence_async_shared()
    barrier()
    give_back(ring, step)
    return x


@gluon.jit
def as_matrix(block):
    """A block without the dimensions of the batch."""
    ROWS: gl.constexpr = block.shape[-2]
    COLS: gl.constexpr = block.shape[-1]
    return block.reshape([ROWS, COLS])


@gluon.constexpr_function
def product_layout(n_cols, n_terms=16):
    """The register layout of a WGMMA accumulator of four warps; an instruction takes 32 terms of bytes."""
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, n_cols, n_terms])


@gluon.jit
def begin_scores(left, right):
    """Issue an asynchronous WGMMA of the rows of two matrices in shared memory."""
    ROWS: gl.constexpr = left.shape[0]
    COLS: gl.constexpr = right.shape[0]
    zeros = gl.zeros([ROWS, COLS], gl.float32, product_layout(COLS))
    return warpgroup_mma(
        left, right.permute((1, 0)), zeros, use_acc=False, is_async=True
    )


@gluon.jit
def as_left(x, dtype: gl.constexpr, layout: gl.constexpr):
    """The left operand of a WGMMA with an accumulator of this layout, in registers."""
    return gl.convert_layout(x.to(dtype), gl.DotOperandLayout(0, layout, 2))


@gluon.jit
def begin_sum(ROWS: gl.constexpr, ring):
    """The zero accumulator of matmuls with blocks of a ring."""
    COLS: gl.constexpr = ring[0].shape[-1]
    return gl.zeros([ROWS, COLS], gl.float32, product_layout(COLS))


@gluon.jit
def add_product(so_far, x, right):
    """Issue an asynchronous WGMMA into an accumulator; the left operand must stay live until it has completed."""
    dtype: gl.constexpr = right.dtype
    layout: gl.constexpr = so_far.type.layout
    left = as_left(x, dtype, layout)
    return warpgroup_mma(left, right, so_far, is_async=True), left


@gluon.jit
def in_float32(block):
    """Load a matrix from shared memory into registers."""
    COLS: gl.constexpr = block.shape[1]
    return block.load(product_layout(COLS)).to(gl.float32)


@gluon.jit
def sum_of_rows(x, layout: gl.constexpr):
    """The sum of each row, in a layout of per-row values."""
    return gl.convert_layout(gl.sum(x, 1), layout)


@gluon.jit
def in_pairs(x, dtype: gl.constexpr):
    """Pack half-precision values, two neighbours into 32 bits.

    The form in which an iteration passes them to the next: of single values ptxas swaps the halves of each register
    and swaps them back, 64 of 530 instructions.
    """
    ROWS: gl.constexpr = x.shape[0]
    PAIRS: gl.constexpr = x.shape[1] // 2
    halves = x.to(dtype).to(gl.uint16, bitcast=True)
    first, second = halves.reshape([ROWS, PAIRS, 2]).split()
    # Where LLVM knows how they are made, it hands on the halves again.
    return gl.inline_asm_elementwise(
        "mov.b32 $0, {$1, $2};",
        "=r,h,h",
        [first, second],
        gl.uint32,
        is_pure=True,
        pack=1,
    )


@gluon.jit
def left_of(pairs, dtype: gl.constexpr, layout: gl.constexpr):
    """The left operand of a WGMMA, from packed pairs."""
    ROWS: gl.constexpr = pairs.shape[0]
    COLS: gl.constexpr = 2 * pairs.shape[1]
    halves = gl.join(pairs.to(gl.uint16), (pairs >> 16).to(gl.uint16))
    x = halves.reshape([ROWS, COLS]).to(dtype, bitcast=True)
    return as_left(x, dtype, layout)


@gluon.jit
def negate(block):
    """Negate a matrix in shared memory."""
    block.store(-block.load(gl.BlockedLayout([1, 8], [16, 2], [4, 1], [1, 0])))
    fence_async_shared()


@gluon.jit
def online_row_max(largest, x, factor):
    """`online_max` of `x` times a factor that converts it to base 2, with per-row values that have no column axis:
    along one, threads would hold each many times.
    """
    larger = gl.maximum(largest, gl.max(x, 1) * factor)
    shift = gl.where(gl.abs(larger) == float("inf"), 0.0, larger)
    return larger, shift, gl.exp2(largest - shift)


@gluon.jit
def online_row_max_led(largest, x, factor, lead):
    """`online_row_max` of `x` plus a per-row value; the shift is without that value."""
    larger = gl.maximum(largest, (gl.max(x, 1) + lead) * factor)
    shift = gl.where(gl.abs(larger) == float("inf"), 0.0, larger)
    return larger, shift - lead * factor, gl.exp2(largest - shift)


@gluon.jit
def online_row_max_low(largest, x):
    """`online_max_low` of per-row values without a column axis."""
    larger = gl.maximum(largest, gl.max(x, 1))
    shift, factor = exp_shift_low(larger)
    rescale = gl.exp2(scaled_low(largest, factor) - shift)
    return larger, shift, factor, rescale


@gluon.jit
def add_columns(sums, rescale, x):
    """Rescale row sums and add the columns of `x`. A row has eight partial sums, two per thread, so that no block
    needs shuffles between threads.
    """
    ROWS: gl.constexpr = x.shape[0]
    PARTS: gl.constexpr = x.shape[1] // 8
    layout: gl.constexpr = sums.type.layout
    scale = gl.convert_layout(rescale, gl.SliceLayout(1, layout))[:, None]
    own = gl.sum(x.reshape([ROWS, PARTS, 8]), 1)
    return sums * scale + gl.convert_layout(own, layout)


@gluon.jit
def across_columns(x):
    """Per-column values, converted from one per thread to the layout of scores."""
    layout: gl.constexpr = gl.SliceLayout(0, product_layout(x.shape[0]))
    return gl.convert_layout(x, layout)[None, :]


@gluon.jit
def store_block(desc, blocks, place, head, row, x, col=0):
    """Store the result of a warp group by TMA, through shared memory of its own."""
    tma.store_wait(0)  # The store before has read its staging buffer.
    as_matrix(blocks.index(place)).store(x.to(desc.dtype))
    fence_async_shared()
    at = head + (row.to(gl.int32), gl.to_tensor(col).to(gl.int32))  # noqa: RUF005
    async_store(desc, at, blocks.index(place))


# Products of float8: tensor cores accumulate it with 14 bits, so that a product has 128 terms, and warp
# groups add products in float32. Each has 64 rows of a tile, and multiplies by 128 columns at a time.


@gluon.jit
def ring_of_tiles(
    a_desc,
    b_desc,
    STAGES: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
):
    """A ring whose stages hold the blocks of all rows and columns of a tile, with one barrier each."""
    ROWS: gl.constexpr = BLOCK_M // a_desc.block_shape[0]
    COLS: gl.constexpr = BLOCK_N // b_desc.block_shape[0]
    blocks = memory(a_desc, STAGES * ROWS), memory(b_desc, STAGES * COLS)
    return blocks, barriers(STAGES, 1), barriers(STAGES, ROWS)


@gluon.jit
def count_tiles(n_rows, n_cols, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
    """The number of tiles of a result."""
    return gl.cdiv(n_rows, BLOCK_M) * gl.cdiv(n_cols, BLOCK_N)


@gluon.jit
def fill_tiles(
    ring,
    a_desc,
    b_desc,
    lengths,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP: gl.constexpr,
):
    """Producer warp: loads the blocks of all steps of a program's tiles. What is outside of matrices is 0."""
    blocks, full, free = ring
    a_blocks, b_blocks = blocks  # Triton 3.6 refuses targets within targets.
    n_rows, n_cols, n_steps = lengths
    ROWS: gl.constexpr = a_blocks.shape[0] // full.shape[0]
    COLS: gl.constexpr = b_blocks.shape[0] // full.shape[0]
    step = gl.to_tensor(0)
    n_tiles = count_tiles(n_rows, n_cols, BLOCK_M, BLOCK_N)
    for tile in range(gl.program_id(0), n_tiles, gl.num_programs(0)):
        row, col = locate(tile, n_rows, n_cols, BLOCK_M, BLOCK_N, GROUP)
        for block in range(n_steps):
            stage = wait_for(free, step, 1)
            ready, start = full.index(stage), block * a_desc.block_shape[1]
            n_bytes: gl.constexpr = (
                ROWS * a_desc.block_type.nbytes + COLS * b_desc.block_type.nbytes
            )
            mbarrier.expect(ready, n_bytes)
            for i in gl.static_range(COLS):
                at = [col + i * b_desc.block_shape[0], start]
                async_load(b_desc, at, ready, b_blocks.index(stage * COLS + i))
            for i in gl.static_range(ROWS):
                at = [row + i * a_desc.block_shape[0], start]
                async_load(a_desc, at, ready, a_blocks.index(stage * ROWS + i))
            step += 1


@gluon.jit
def begin_product(ring, step, ROW: gl.constexpr, COL: gl.constexpr):
    """Wait for the blocks of a step, and issue the product of one of the rows and one of the columns."""
    blocks, full, _ = ring
    a_blocks, b_blocks = blocks
    ROWS: gl.constexpr = a_blocks.shape[0] // full.shape[0]
    COLS: gl.constexpr = b_blocks.shape[0] // full.shape[0]
    stage = wait_for(full, step)
    left = a_blocks.index(stage * ROWS + ROW)
    right = b_blocks.index(stage * COLS + COL).permute((1, 0))
    zeros = gl.zeros([64, 128], gl.float32, product_layout(128, 32))
    return warpgroup_mma(left, right, zeros, use_acc=False, is_async=True)


@gluon.jit
def pin(sums):
    """Sums that are complete here. LLVM else moves additions down, past the next product: the registers of one product
    more are live then, and spill. It moves nothing past volatile assembly.
    """
    return gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=f,f", [sums], gl.float32, is_pure=False, pack=1
    )


@gluon.jit
def add_scaled(sums, product, scale):
    """Sums and a product times a scale of its own."""
    return pin(gl.fma(product, scale.broadcast_to(product.shape), sums))


@gluon.jit
def sum_products(ring, step, n_steps, ROW: gl.constexpr, UNROLL: gl.constexpr):
    """A warp group's sums over the steps of a tile, and the step after these.

    While a product is added the next one is in flight, except for the last of UNROLL: for products across the back
    edge of a loop ptxas makes all wait for one another (its warning C7514).
    """
    sums = gl.zeros([64, 128], gl.float32, product_layout(128, 32))
    for _block in range(0, n_steps, UNROLL):
        product = begin_product(ring, step, ROW, 0)
        for i in gl.static_range(UNROLL):
            following = product
            if i < UNROLL - 1:
                following = begin_product(ring, step + 1, ROW, 0)
                product = warpgroup_mma_wait(1, deps=(product,))
            else:
                product = warpgroup_mma_wait(0, deps=(product,))
            give_back(ring, step)
            sums = pin(sums + product)
            product = following
            step += 1
    return sums, step
