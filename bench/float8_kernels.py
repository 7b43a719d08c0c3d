# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Matmuls of float8 for Hopper in Gluon: a warp loads by TMA, and two or three warp groups multiply 64 rows each.

Tensor cores accumulate float8 with 14 bits, so a product has 128 terms, and the groups add products in float32. While a
group adds, the tensor cores need another product: `overlap` issues the next one of its own, and `alternate` leaves them
to the other groups.
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

# Triton 3.6 has other names for them.
async_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
async_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.constexpr_function
def product_layout():
    """The register layout of a product of 64 x 128."""
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 32])


@gluon.jit
def locate(tile, memory, sizes, SWIZZLE: gl.constexpr):
    """The first row and column of a tile; tiles are in groups of SWIZZLE rows, for the L2 cache."""
    _, a_mem, b_mem, _, full, _, _ = memory
    _, row_tiles, col_tiles, _, _ = sizes
    first = tile // (SWIZZLE * col_tiles) * SWIZZLE
    height = gl.minimum(row_tiles - first, SWIZZLE)
    within = tile % (SWIZZLE * col_tiles)
    ROWS: gl.constexpr = a_mem.shape[0] // full.shape[0] * 64
    COLS: gl.constexpr = b_mem.shape[0] // full.shape[0] * 128
    return (first + within % height) * ROWS, within // height * COLS


@gluon.jit
def wait(barriers, step, PARITY: gl.constexpr = 0):
    """Wait for the block of a step; with PARITY 1, for all who read the one before it. Returns the stage of it."""
    STAGES: gl.constexpr = barriers.shape[0]
    mbarrier.wait(barriers.index(step % STAGES), (step // STAGES) & 1 ^ PARITY)
    return step % STAGES


@gluon.jit
def load(a_desc, b_desc, memory, sizes, SWIZZLE: gl.constexpr):
    """Fill the ring: of each step the rows of all groups and all columns, behind one barrier."""
    _, a_mem, b_mem, _, full, free, _ = memory
    n_tiles, _, _, _, steps = sizes
    ROWS: gl.constexpr = a_mem.shape[0] // full.shape[0]
    COLS: gl.constexpr = b_mem.shape[0] // full.shape[0]
    step = 0
    for tile in range(gl.program_id(0), n_tiles, gl.num_programs(0)):
        row, col = locate(tile, memory, sizes, SWIZZLE)
        for k in range(steps):
            stage = wait(free, step, 1)
            ready = full.index(stage)
            mbarrier.expect(ready, ROWS * 64 * 128 + COLS * 128 * 128)
            for i in gl.static_range(COLS):
                async_load(b_desc, [col + i * 128, k * 128], ready, b_mem.index(stage * COLS + i))
            for i in gl.static_range(ROWS):
                async_load(a_desc, [row + i * 64, k * 128], ready, a_mem.index(stage * ROWS + i))
            step += 1


@gluon.jit
def begin(a, b):
    """Issue the product of 64 rows and 128 columns."""
    zeros = gl.zeros([64, 128], gl.float32, product_layout())
    return warpgroup_mma(a, b.permute((1, 0)), zeros, use_acc=False, is_async=True)


@gluon.jit
def pin(sums):
    """Sums that are complete here. LLVM else moves additions down, past the next product: the registers of one product
    more are live then, and spill. It moves nothing past volatile assembly.
    """
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=f,f", [sums], gl.float32, is_pure=False, pack=1)


@gluon.jit
def row_offsets(row, n_rows, stride):
    """Where the scales of a group's rows are; rows past the last have its scale."""
    rows = gl.minimum(row + gl.arange(0, 64, gl.SliceLayout(1, product_layout())), n_rows - 1)
    return rows * stride


@gluon.jit
def column_scales(pointer, col):
    """The scales of 128 columns, one to a thread: threads would hold 32 each from the first product to the store."""
    return gl.load(pointer + col + gl.arange(0, 128, gl.BlockedLayout([1], [32], [4], [0])))


@gluon.jit
def scaled(sums, a_scale, b_scale):
    """Sums times a scale for each row and each column."""
    b_scale = gl.convert_layout(b_scale, gl.SliceLayout(0, product_layout()))
    return sums * a_scale[:, None] * b_scale[None, :]


@gluon.jit
def store(y_desc, staging, row, col, sums):
    """Store a group's 64 x 128 results by TMA, through shared memory of its own."""
    tma.store_wait(0)  # The store before has read it.
    staging.store(sums.to(y_desc.dtype))
    fence_async_shared()
    async_store(y_desc, [row, col], staging)


@gluon.jit
def alternate(WHICH: gl.constexpr, memory, sizes, scales, SWIZZLE: gl.constexpr, BY_BLOCK: gl.constexpr):
    """A warp group with one product in flight, of one or two that it has for each step; two only by blocks."""
    y_desc, a_mem, b_mem, y_mem, full, free, follow = memory
    n_tiles, _, _, n_rows, steps = sizes
    a_scale, stride_am, stride_ak, b_scale, stride_bn, stride_bk = scales
    ROWS: gl.constexpr = a_mem.shape[0] // full.shape[0]
    COLS: gl.constexpr = b_mem.shape[0] // full.shape[0]
    step, n_done = gl.to_tensor(0), gl.to_tensor(0)
    for tile in range(gl.program_id(0), n_tiles, gl.num_programs(0)):
        row, col = locate(tile, memory, sizes, SWIZZLE)
        row += WHICH * 64
        a_offsets = row_offsets(row, n_rows, stride_am)
        if not BY_BLOCK:
            of_rows, of_cols = gl.load(a_scale + a_offsets), column_scales(b_scale, col)
        left = gl.zeros([64, 128], gl.float32, product_layout())
        right = left
        if COLS == 2 and WHICH == 1:  # One product behind the first group, so that one adds while the other multiplies.
            mbarrier.wait(follow.index(0), n_done & 1)
        for k in range(steps):
            if BY_BLOCK:  # Before the wait for blocks: scales arrive by the time the product is complete.
                of_row = gl.load(a_scale + k * stride_ak + a_offsets)
                b_pointer = b_scale + col // 128 * stride_bn + k * stride_bk
                scale = of_row * gl.load(b_pointer)
                if COLS == 2:
                    right_scale = of_row * gl.load(b_pointer + stride_bn)
            stage = wait(full, step)
            a = a_mem.index(stage * ROWS + WHICH)
            product = warpgroup_mma_wait(0, deps=(begin(a, b_mem.index(stage * COLS)),))
            if COLS == 2 and WHICH == 0 and k == 0:
                mbarrier.arrive(follow.index(0))
            if COLS == 1:
                mbarrier.arrive(free.index(stage))
            if BY_BLOCK:
                left = gl.fma(product, scale[:, None].broadcast_to([64, 128]), left)
            else:
                left += product
            left = pin(left)
            if COLS == 2:
                # It is over, but ptxas moves no additions past it, as it would past the product.
                wait(full, step)
                product = warpgroup_mma_wait(0, deps=(begin(a, b_mem.index(stage * COLS + 1)),))
                mbarrier.arrive(free.index(stage))
                right = pin(gl.fma(product, right_scale[:, None].broadcast_to([64, 128]), right))
            step += 1
        n_done += 1
        if not BY_BLOCK:
            left = scaled(left, of_rows, of_cols)
        store(y_desc, y_mem.index(WHICH), row, col, left)
        if COLS == 2:
            store(y_desc, y_mem.index(WHICH), row, col + 128, right)
    tma.store_wait(0)


@gluon.jit
def overlap(WHICH: gl.constexpr, memory, sizes, scales, SWIZZLE: gl.constexpr, UNROLL: gl.constexpr):
    """A warp group with two products in flight, scaled by rows; steps are a multiple of UNROLL.

    None is in flight at the end of UNROLL steps: of products across the back edge of a loop ptxas makes all wait for
    one another (its warning C7514).
    """
    y_desc, a_mem, b_mem, y_mem, full, free, _ = memory
    n_tiles, _, _, n_rows, steps = sizes
    a_scale, stride_am, _, b_scale, _, _ = scales
    ROWS: gl.constexpr = a_mem.shape[0] // full.shape[0]
    step = gl.to_tensor(0)
    for tile in range(gl.program_id(0), n_tiles, gl.num_programs(0)):
        row, col = locate(tile, memory, sizes, SWIZZLE)
        row += WHICH * 64
        of_rows = gl.load(a_scale + row_offsets(row, n_rows, stride_am))
        of_cols = column_scales(b_scale, col)
        sums = gl.zeros([64, 128], gl.float32, product_layout())
        for _k in range(0, steps, UNROLL):
            stage = wait(full, step)
            product = begin(a_mem.index(stage * ROWS + WHICH), b_mem.index(stage))
            for i in gl.static_range(UNROLL):
                before, following = stage, product
                if i < UNROLL - 1:
                    stage = wait(full, step + 1)
                    following = begin(a_mem.index(stage * ROWS + WHICH), b_mem.index(stage))
                    product = warpgroup_mma_wait(1, deps=(product,))
                else:
                    product = warpgroup_mma_wait(0, deps=(product,))
                mbarrier.arrive(free.index(before))
                sums = pin(sums + product)
                product = following
                step += 1
        store(y_desc, y_mem.index(WHICH), row, col, scaled(sums, of_rows, of_cols))
    tma.store_wait(0)


@gluon.jit
def multiply(WHICH: gl.constexpr, own, SWIZZLE: gl.constexpr, UNROLL: gl.constexpr, BY_BLOCK: gl.constexpr):
    """What a warp group does."""
    memory, sizes, scales = own
    if UNROLL > 1:
        overlap(WHICH, memory, sizes, scales, SWIZZLE, UNROLL)
    else:
        alternate(WHICH, memory, sizes, scales, SWIZZLE, BY_BLOCK)


@gluon.jit
def kernel(
    a_desc, b_desc, y_desc, n_rows, n_cols, n_inner,
    a_scale, stride_am, stride_ak, b_scale, stride_bn, stride_bk,
    GROUPS: gl.constexpr, COLS: gl.constexpr, STAGES: gl.constexpr, SWIZZLE: gl.constexpr,
    UNROLL: gl.constexpr, BY_BLOCK: gl.constexpr,
):  # fmt: skip
    """Tiles of GROUPS x 64 rows and COLS x 128 columns, of which programs take one after the other."""
    a_mem = gl.allocate_shared_memory(a_desc.dtype, [STAGES * GROUPS, 64, 128], a_desc.layout)
    b_mem = gl.allocate_shared_memory(b_desc.dtype, [STAGES * COLS, 128, 128], b_desc.layout)
    y_mem = gl.allocate_shared_memory(y_desc.dtype, [GROUPS, 64, 128], y_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    follow = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(free.index(stage), count=GROUPS)
    mbarrier.init(follow.index(0), count=1)
    fence_async_shared()
    row_tiles, col_tiles = gl.cdiv(n_rows, GROUPS * 64), gl.cdiv(n_cols, COLS * 128)
    sizes = row_tiles * col_tiles, row_tiles, col_tiles, n_rows, n_inner // 128
    memory = y_desc, a_mem, b_mem, y_mem, full, free, follow
    own = memory, sizes, (a_scale, stride_am, stride_ak, b_scale, stride_bn, stride_bk)
    if GROUPS == 3:
        gl.warp_specialize([
            (multiply, (0, own, SWIZZLE, UNROLL, BY_BLOCK)),
            (multiply, (1, own, SWIZZLE, UNROLL, BY_BLOCK)),
            (multiply, (2, own, SWIZZLE, UNROLL, BY_BLOCK)),
            (load, (a_desc, b_desc, memory, sizes, SWIZZLE)),
        ], [4, 4, 1], [160, 160, 24])  # fmt: skip
    else:
        gl.warp_specialize([
            (multiply, (0, own, SWIZZLE, UNROLL, BY_BLOCK)),
            (multiply, (1, own, SWIZZLE, UNROLL, BY_BLOCK)),
            (load, (a_desc, b_desc, memory, sizes, SWIZZLE)),
        ], [4, 1], [240, 24])  # fmt: skip
