"""The Gluon kernel of a matmul of float8: on Hopper one warp loads blocks by TMA, and warp groups multiply and add."""

from __future__ import annotations

from functools import cached_property
from itertools import chain

from ...lang.promotion import is_float8
from ...lowering.assemble import param_casts
from ...lowering.tile import loads
from ...lowering.views import Kernel
from ...nest.ir import (
    BLANK,
    Accumulate,
    Branch,
    Constant,
    Do,
    For,
    Given,
    Let,
    Line,
    Nest,
    Return,
    free_names,
    names_of,
    needed_by,
    nested,
)
from ...nest.values import Expr, V, expr, runtime, tl
from ...passes.factors import dtypes_of
from ...spec.types import Input
from ..gluon import BLOCKS, FENCE, SHARED, STORED, TILES, called, calls_only, function, kernel, passed, specialised
from .addressing import Places
from .arguments import Arguments
from .kernels import ContractionKernels
from .program import ContractionProgram
from .sums import Lines

TERMS, COLS = 128, 128  # of a product, and its columns
PAST_THE_LAST = "Steps of 128 terms. What is past the last is 0."
HALF = {"float16", "bfloat16"}


def gluon_functions(program: ContractionProgram, arguments: Arguments) -> tuple[Kernel, ...]:
    """The kernel of a product of two matrices of float8, in groups of 128 terms with scales of their own or without
    groups, and of math that has numbers of rows and of columns besides, after what it calls; none for other math.

    It takes the `arguments` of plain kernels.
    """
    builder = GluonBuilder(program)
    return builder.functions(arguments) if builder.takes(arguments) else ()


class Vectors(Places):
    """Reads vectors: along the other axis threads would hold each number many times. All positions are inside."""

    def mask(self, axes: tuple[str, ...], side: int | None = None) -> None:
        return None

    def first(self, role: str) -> Expr:
        return V.first_col

    def uniform(self, tensor: Input) -> dict[str, int]:
        return {role: n for role, n in super().uniform(tensor).items() if role == "cols" and n % COLS == 0}

    def load(self, tensor: Input, side: int | None = None) -> list[Line]:
        read = self.loaded(tensor, side, self.uniform(tensor)).value
        return [Let(tensor.name, read[slice(None), None] if "rows" in self.roles(tensor.name) else read)]

    def is_of_cols(self, tensor: Input) -> bool:
        """Whether the columns of a product have numbers of their own."""
        return "cols" in self.roles(tensor.name) and not self.uniform(tensor)


class GluonBuilder(ContractionKernels):
    """Makes the lines of a scale, of what is read besides matrices, and of the math behind the sums."""

    places: Vectors

    def __init__(self, program: ContractionProgram) -> None:
        super().__init__(program)
        self.places = Vectors(self.op, self.contraction, self.compute, program.picked)
        self.has_groups = bool(self.contraction.groups)
        self.beside = [one for one in self.op.inputs if one.name not in self.operands.names]

    def takes(self, arguments: Arguments) -> bool:
        return self.is_product() and self.is_tile() and self.reads_vectors() and self.calls_known(arguments)

    def is_product(self) -> bool:
        """Whether there is one product, of two matrices of float8, in blocks of 128 terms."""
        operands = self.operands
        return (
            operands.float8
            and len(self.contraction.products) == 1
            and len(operands.matrices) == 2
            and operands.group_size in ("", str(TERMS))
            and not (self.contraction.batch or self.places.picked or self.triangle)
            and not any(map(self.choices.of, self.products))
        )

    def is_tile(self) -> bool:
        """Whether the result has all rows and columns, and there is no other, in half precision as it may be."""
        (result, *others) = self.op.results
        known = chain.from_iterable(dtypes_of(self.op, leaf) for leaf in result.dtype.of)
        return (
            not others
            and self.is_full(result)
            and self.places.fills(result.node)
            and bool({*known} & HALF)
            and not is_float8(self.op, result.dtype)
            and not (result.when or self.others or self.strips)
        )

    def reads_vectors(self) -> bool:
        """Whether tensors besides matrices have a number for each row or each column, or one for many of those."""
        every = [{*self.places.roles(one.name)} for one in self.beside]
        return (
            all(one.default is None for one in self.op.inputs)
            and all(len(roles - {"inner"}) < 2 for roles in every)
            and all(param.kind == "float" for param in self.op.params)
            and self.compute.text == "tl.float32"
        )

    def calls_known(self, arguments: Arguments) -> bool:
        """Whether Gluon has what lines call, and these have no positions but those of what they read."""
        scale, _ = self.scaling
        reads, math = self.ending
        behind = names_of(math)
        has_constants = any(":" in one for one in arguments.spelled(*arguments.beside))  # of dtypes, or of choices
        return (
            not has_constants
            and calls_only([*scale, *reads, *math], SHARED | {"load"})
            and behind.isdisjoint(("rows", "cols", "first_col"))
            # Columns of a group have one scale, and the second block of a tile may begin past the last.
            and not any(map(self.places.is_of_cols, self.read_in(scale)))
            and not (self.has_groups and ("rows" not in names_of(scale) or "first_col" in names_of(reads)))
        )

    def read_in(self, lines: list[Line]) -> list[Input]:
        names = {line.assigned for line in lines}
        return [one for one in self.beside if one.name in names]

    @cached_property
    def scaling(self) -> tuple[list[Line], Expr]:
        """The scale of a group's product, after the lines that it is made of."""
        (product,) = self.contraction.products
        if product.scale is None:
            return [], expr(1.0)
        lines = Lines()
        scale = self.scale(product, lines, {})
        return [*nested(lines.loop)], scale

    @cached_property
    def ending(self) -> tuple[list[Line], list[Line]]:
        """What is read besides, and the math of the result."""
        values = [v for v in self.needed_after([self.op.results[0].output.name]) if v.name not in self.contraction.sums]
        names = {load.name for load in loads(value.node for value in values)}
        reads = [line for one in self.beside if one.name in names for line in self.places.load(one)]
        lowering = self.lowering()
        return reads, [*nested(line for value in values for line in lowering.line(value))]

    # The pipeline

    def functions(self, arguments: Arguments) -> tuple[Kernel, ...]:
        name, beside = self.op.name, arguments.spelled(*arguments.beside)
        left, right = (one.name for one in arguments.matrices)
        (y,) = arguments.full
        constants = (*BLOCKS, "GROUP: gl.constexpr", *([] if self.has_groups else ["UNROLL: gl.constexpr"]))
        shared = ["ring", "turn", "lengths", "given"]
        scales: tuple[Kernel, ...] = ()
        if self.has_groups:
            lines, factor = self.scaling
            doc = "The factor of a product: a group of 64 rows by 128 columns from one on."
            body = (*lines, Return(factor))
            scales = (function(f"{name}_scale", doc, body, ["group", "rows", "first_col", *beside]),)
        nest = self.warp_group(self.in_groups(scales[0], y) if self.has_groups else self.in_one(y))
        given = [one for one in (f"{y}_desc", f"{y}_blocks", *beside) if one in free_names(nest)]
        unpacked = Let("n_rows, n_cols, n_steps", V.lengths), Let(", ".join(given), V.given)
        doc = "Consumer warp group: computes 64 rows of each tile"
        doc += ", in two blocks of columns." if self.has_groups else "."
        rows = function(f"{name}_rows", doc, (*unpacked, *nest), ["which: gl.constexpr", *shared, *constants])
        loads = V.ring, f"{left}_desc", f"{right}_desc", "lengths", "BLOCK_M", "BLOCK_N", "GROUP"
        two, three = (
            specialised(*((V[rows.name], passed(rows, which=n)) for n in range(count)), ("fill_tiles", "loads"))
            for count in (2, 3)
        )
        terms = V[arguments.lengths[-1]]
        if not self.has_groups:
            terms = tl.cdiv(terms, 128 * V.UNROLL) * V.UNROLL
        given_line = Let("given", expr((*given,)))
        body = (
            *needed_by([given_line], param_casts(self.op, self.compute)),
            Let("ring", runtime.ring_of_tiles(f"{left}_desc", f"{right}_desc", "STAGES", "BLOCK_M", "BLOCK_N")),
            Let(f"{y}_blocks", runtime.memory(f"{y}_desc", V.BLOCK_M // 64)),
            Given("turn", runtime.barriers(1, 1)),
            Let("lengths", expr(("n_rows", "n_cols", terms)), comment="" if self.has_groups else PAST_THE_LAST),
            given_line,
            FENCE,
            Let("loads", expr(loads)),
            two if self.has_groups else Branch(V.BLOCK_M.equals(192), (three,), (two,)),
        )
        doc = "Persistent. One producer warp (TMA), and consumer warp groups with 64 rows of a tile each."
        described = (f"{one}_desc" for one in (left, right, y))
        taken = (*described, *arguments.lengths, *beside, "STAGES: gl.constexpr", *constants)
        return (*scales, rows, kernel(name, doc, body, taken))

    def warp_group(self, tile: Nest) -> Nest:
        """What a warp group does, with each tile what computes that."""
        past = "What is past the last row or column has the numbers of that, and is not stored."
        rows = tl.minimum(V.first_row + tl.arange(0, 64, V.by_row), V.n_rows - 1)
        blocks = "n_rows", "n_cols", "BLOCK_M", "BLOCK_N"
        return (
            Constant("layout", runtime.product_layout(128, 32)),
            Constant("by_row", tl.SliceLayout(1, "layout")),
            Constant("by_col", tl.SliceLayout(0, "layout")),
            Constant("each", tl.BlockedLayout([1], [32], [4], [0])),
            Let("step", tl.to_tensor(0)),
            Given("n_done", tl.to_tensor(0)),
            Let("n_tiles", runtime.count_tiles(*blocks)),
            For(
                TILES,
                index="tile",
                body=(
                    Let("first_row, first_col", runtime.locate("tile", *blocks, "GROUP")),
                    Accumulate("first_row", "+", V.which * 64),
                    Given("rows", rows, comment=past),
                    *tile,
                ),
            ),
            STORED,
        )

    def in_one(self, y: str) -> Nest:
        """A tile whose products are added up as they are."""
        summed = runtime.sum_products("ring", "step", "n_steps", "which", "UNROLL")
        reads, math = self.ended(y)
        return (*reads, Let(f"{self.contraction.sums[0]}, step", summed), BLANK, *math)

    def in_groups(self, scale: Kernel, y: str) -> Nest:
        """A tile of two blocks of columns, whose products are added up with a scale for each group."""
        early = "Before the wait for blocks: scales arrive by the time the product is complete."
        late = "One product behind the first group, so that one adds while the other multiplies."
        left, right = (runtime.begin_product("ring", "step", "which", n) for n in (0, 1))
        is_first = V.which.equals(0).and_(V.group.equals(0))
        group = (
            Let("left_scale", called(scale), comment=early),
            Let("right_scale", called(scale, first_col="second_col")),
            Let("product", runtime.warpgroup_mma_wait(0, deps=(left,))),
            Branch(is_first, (Do(runtime.arrive("turn", 0)),)),
            Let("left", runtime.add_scaled("left", "product", "left_scale")),
            Let("product", runtime.warpgroup_mma_wait(0, deps=(right,))),
            Do(runtime.give_back("ring", "step")),
            Let("right", runtime.add_scaled("right", "product", "right_scale")),
            Accumulate("step", "+", expr(1)),
        )
        half = (
            Let(self.contraction.sums[0], V.sums[V.half]),
            *chain(*self.ended(y)),
            Accumulate("first_col", "+", expr(128)),
        )
        return (
            Let("second_col", tl.minimum(V.first_col + 128, V.n_cols - 1)),
            Let("left", tl.zeros([64, 128], "tl.float32", "layout")),
            Let("right", V.left),
            Branch(V.which.equals(1), (Do(runtime.wait_for("turn", "n_done"), comment=late),)),
            For(runtime.range("n_steps"), index="group", body=group),
            Accumulate("n_done", "+", expr(1)),
            BLANK,
            Let("sums", expr(("left", "right"))),
            For(tl.static_range(2), index="half", body=half),
        )

    def ended(self, y: str) -> tuple[Nest, Nest]:
        """What is read besides matrices, and the math of a result up to its store. Of columns one number to a thread is
        read, which would else hold 32 each up to the store.
        """
        reads, math = self.ending
        cols = Given("cols", tl.minimum(V.first_col + tl.arange(0, 128, V.each), V.n_cols - 1))
        names = [one.name for one in self.read_in(reads) if self.places.is_of_cols(one)]
        spread = (Let(name, tl.convert_layout(name, "by_col")[None, :]) for name in names)
        store = runtime.store_block(f"{y}_desc", f"{y}_blocks", "which", (), "first_row", y, "first_col")
        return (cols, *reads), (*spread, *math, Do(store))
