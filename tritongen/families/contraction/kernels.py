"""Kernels of contractions: tiles of rows by columns, summed over blocks of the inner axes.

Five kernels of the same math: a strided one for any layout; a persistent one whose tiles are copied by TMA;
stream-K for the tail wave of that one; split-K for few tiles and a long sum; and the reduction of what the
last two leave. Which of them run is decided on the host.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from ...lang.ir import Cast, Dtype, Load, Node, Op, Path, Reduce, Ref, Result, Value
from ...lang.trees import parse, substitute
from ...lowering.accumulate import Numbers, lane, whole
from ...lowering.assemble import converted, param_arguments, param_casts, stored
from ...lowering.choices import Choices, condition
from ...lowering.lines import Line, mentions, nested, under
from ...lowering.lower import Compute, Lowering, compute_of
from ...lowering.tile import Tensor, loads, needed
from ...lowering.views import Argument, Kernel
from ...passes.contractions import Product
from ...passes.structure import references
from ...passes.triangles import kept_where
from ...spec.types import BATCH, FLOAT8S
from .addressing import COUNTS, Places, inner_of, stride
from .copies import HALVES, TURNS, copied, take_turns, turns
from .operands import Operand, Operands, is_described, operands_of, tensors_of, widened
from .program import ContractionProgram

# Of stream-K: how many tiles are in long parts, in how many each, and the same of short parts.
SHARED = ("n_long", "long_parts", "n_short", "short_parts")
# What kernels take beside lengths.
TAKEN = {
    "tma_kernel": ("n_tiles",),
    "stream_k_kernel": ("first_tile", *SHARED, "tile_steps"),
    "split_k_kernel": ("steps",),
    "reduce_kernel": ("first_tile", *SHARED),
}
# The reduction of parts takes so many rows of a tile at a time: few, so that many CTAs read.
COMBINED_ROWS = 4
SLICERS = {2: "halves", 4: "quarters"}


@dataclass(frozen=True, slots=True)
class ContractionKernels:
    """The kernels of a contraction. `dot` is the dtype of the matmul, where kernels are given it."""

    compute: Compute
    operands: Operands
    dot: Dtype | None
    widened: tuple[str, ...]  # operands of a float64 matmul that the wrapper widens
    accumulator: str  # the dtype of the sums, "ACC" where the launch tells it
    whole_rows: bool  # whether results are reduced over their columns
    slices: int  # in which a program finishes a tile
    takes_turns: bool  # whether matmuls alternate in the TMA kernel
    halved: bool  # whether the TMA kernel accumulates a tile in two halves
    skips: bool  # whether tiles that are masked away are not summed
    pointers: Kernel
    descriptors: Kernel | None  # None where nothing comes in half precision
    shares: Kernel | None  # stream-K, of the tiles in the tail wave
    parts: Kernel
    combine: Kernel


def plan_contraction(program: ContractionProgram) -> ContractionKernels:
    builder = _Builder(program)
    operands = builder.operands
    described = is_described(program.op, program.contraction, operands)
    return ContractionKernels(
        builder.compute,
        operands,
        operands.dot if operands.converts else None,
        widened(program.op, program.contraction, operands),
        builder.accumulator,
        builder.reduces_rows(),
        builder.slices,
        builder.takes_turns,
        builder.halved,
        builder.kept is not None,
        builder.pointers(),
        builder.descriptors() if described else None,
        builder.shares() if described and builder.may_share else None,
        builder.parts(),
        builder.combine(),
    )


@dataclass
class _Lines:
    """The lines of a kernel as they come, each with the path that it stands on."""

    setup: list[Line] = field(default_factory=list)
    loop: list[Line] = field(default_factory=list)
    end: list[Line] = field(default_factory=list)


class _Builder:
    def __init__(self, program: ContractionProgram) -> None:
        contraction = program.contraction
        self.op, self.contraction = program.op, contraction
        self.products = {product.name: product for product in contraction.products}
        self.choices = Choices(self.op)
        self.inside = needed(self.op.values, self.products)
        self.operands = operands_of(self.op, contraction)
        self.compute = compute_of(self.op)
        is_float = self.operands.dot.kind == "float" or self.compute.mode == "float"
        if not is_float and self.compute.text != "tl.float32":
            self.compute = Compute("tl.int32")
        self.takes_turns = take_turns(self.op, contraction, self.operands)
        self.places = Places(self.op, contraction, self.compute)
        self.kept = kept_where(self.op, contraction)

    # Expressions

    def lowering(self, side: int | None = None) -> Lowering:
        """Of the math of one side, or of what comes after the sums; in between, of the scales of a group."""

        def load(node: Load, lowering: Lowering) -> ast.expr:
            tensor = self.op.input(node.name)
            if side is not None and node.name in self.operands.names and (to := self.places.widening(tensor)):
                return parse(f"{node.name}{to}")
            return ast.Name(node.name)

        def index(axis: str) -> ast.expr:
            return self.places.index(axis, side)

        return Lowering(self.op, self.compute, index, self.places.size, load, self.row_reduction, self.choices)

    def path_of(self, node: Node, n: int) -> Path:
        """Where a side is multiplied that several products may have."""
        return self.choices.of(*(name for name, product in self.products.items() if product.sides[n] == node))

    def row_reduction(self, node: Reduce, lowering: Lowering) -> ast.expr:
        """A reduction of the result over its columns, all of which a tile holds."""
        kind = "any" if node.arg.dtype.kind == "any" else "float" if node.arg.dtype.kind == "float" else "int"
        numbers = Numbers(self.compute.text, kind)
        value = ast.unparse(lowering.operand(node.arg))
        if node.kind in ("any", "all"):
            value = value if node.arg.dtype.kind == "bool" else f"({value} != 0)"
            masked = f"col_mask & ({value})" if node.kind == "any" else f"~col_mask | ({value})"
        else:
            masked = f"tl.where(col_mask, {value}, {numbers.identity(node.kind)})"
        tree = lowering.name(whole(node, numbers, "cols", False))
        return substitute(tree, {"x": parse(masked)})

    # The parts of kernels

    def block(self, lines: _Lines, read: Callable[[Operand], list[Line]]) -> None:
        """What happens for every block of the inner axes."""
        for operand in self.operands.matrices:
            lines.loop += under(self.choices.reading(operand.name, self.inside), read(operand))
        for name in self.operands.inside:
            if name in self.operands.names:
                continue
            roles = self.places.roles(name)
            side = next(n for p in self.products.values() for n in range(2) if name in tensors_of(self.op, p.sides[n]))
            loaded = under(self.choices.reading(name, self.inside), self.places.load(self.op.input(name), side))
            (lines.loop if "inner" in roles else lines.setup).extend(loaded)
        done: set[str] = set()
        for product in self.products.values():
            names = [self.side(product, n, lines, done) for n in range(2)]
            if self.contraction.groups:
                scale = "" if product.scale is None else f" * {self.scale(product, lines, done)}"
                line = Line(f"{product.name} += {self.dot(*names)}{scale}")
            else:
                line = self.summing(product.sum, *names)
            lines.loop += under(self.choices.of(product.name), [line])

    def summing(self, name: str, left: str, right: str) -> Line:
        """The line that adds the matmul of a block to an accumulator."""
        comment = ""
        if self.operands.float8:
            comment = "Tensor cores of Hopper sum float8 with fewer digits than float32 has: a block at a time."
        return Line(f"{name} = {self.dot(left, right, name)}", comment)

    def dot(self, *terms: str) -> str:
        options = [f'input_precision="{self.op.precision}"'] if "float32" in self.operands.dtypes else []
        if self.operands.float8 and len(terms) > 2:
            options = ["max_num_imprecise_acc=BLOCK_K"]
        options += [f"out_dtype={self.summed}"] if self.summed != "tl.float32" else []
        return f"tl.dot({', '.join([*terms, *options])})"

    def scale(self, product: Product, lines: _Lines, done: set[str]) -> str:
        """The scale of the sum of a group's block, after the lines that compute it."""
        assert product.scale is not None
        for name in tensors_of(self.op, product.scale):
            if name not in done:
                path = self.choices.reading(name, self.inside)
                lines.loop += under(path, self.places.load(self.op.input(name)))
                done.add(name)
        lowering = self.lowering()
        for value in needed(self.op.values, references(product.scale)):
            if value.name not in done:
                lines.loop += lowering.line(value)
                done.add(value.name)
        lowering.begin(f"{product.name}_scale", self.choices.of(product.name))
        tree = lowering.expression(product.scale)
        lines.loop += lowering.pending
        text = ast.unparse(tree)
        return text if isinstance(tree, ast.Name) else f"({text})"

    def side(self, product: Product, n: int, lines: _Lines, done: set[str]) -> str:
        """The name or expression of a side, after the lines that compute it."""
        node = product.sides[n]
        to = self.conversion()
        if isinstance(node, Load):
            float8 = set(self.op.input(node.name).type.dtypes) <= set(FLOAT8S)
            return f"{node.name}{'.to(tl.float32)' if to and float8 and 'float64' in self.operands.dtypes else ''}{to}"
        lowering = self.lowering(n)
        for value in needed(self.op.values, references(node)):
            if value.name not in done:
                lines.loop += lowering.line(value)
                done.add(value.name)
        name = f"{product.name}_{('left', 'right')[n]}"
        name = next((known for known, (s, m) in self.sides(done).items() if s == node and m == n), name)
        if name not in done:
            lowering.begin(name, self.path_of(node, n))
            text = ast.unparse(lowering.expression(node))
            if _lane(self.op, node, self.contraction.inner) != "0":
                text = f"tl.where({inner_of(n, 'inner_mask')}, {text}, 0.0)"
            elif to and not isinstance(node, Ref | Load):
                text = f"({text})"
            lowering.put(Line(f"{name} = {text}{to}"))
            lines.loop += lowering.pending
            done.add(name)
        return name

    def sides(self, done: set[str]) -> dict[str, tuple[Node, int]]:
        """The sides that have been computed, by their names."""
        return {
            f"{p.name}_{word}": (p.sides[n], n)
            for p in self.products.values()
            for n, word in enumerate(("left", "right"))
            if f"{p.name}_{word}" in done
        }

    def conversion(self) -> str:
        return ".to(DOT)" if self.operands.converts else ""

    @property
    def accumulator(self) -> str:
        """The dtype in which all adds up: with scales of groups, that of the math."""
        return self.compute.text if self.contraction.groups else self.summed

    @property
    def summed(self) -> str:
        """The accumulator's dtype; launches give it where it may be float64."""
        if self.operands.dot.kind != "float":
            return "tl.int32"
        return "ACC" if "float64" in self.operands.dtypes else "tl.float32"

    def limit(self) -> list[Line]:
        """Where the sums end: at once, in a tile that is masked away."""
        if self.kept is None:
            return []
        condition, last = self.kept
        rows, cols = self.contraction.rows[0], self.contraction.cols[0]

        def index(axis: str) -> ast.expr:
            tile, block = ("row_tile", "BLOCK_M") if axis == rows else ("col_tile", "BLOCK_N")
            return parse(f"({tile} + 1) * {block} - 1" if last[axis] else f"{tile} * {block}")

        assert {rows, cols} == set(last)
        every = "n_steps" if self.contraction.groups else "n_inner"
        lowering = self.lowering()
        lowering.index = index
        text = ast.unparse(lowering.expression(condition))
        return [Line(f"n_summed = tl.where({text}, {every}, 0)", "A tile that is masked as a whole is not summed.")]

    def start(self, width: str = "BLOCK_N", names: Iterable[str] = ()) -> list[Line]:
        zeros = f"tl.zeros([BLOCK_M, {width}], {self.accumulator})"
        return [Line(f"{name} = {zeros}") for name in names or self.contraction.sums]

    def after(self, lines: _Lines, store: Callable[[Result, Line], list[Line]]) -> None:
        """The epilogue: the rest of the math, and the stores."""
        lowering = self.lowering()
        outputs = [result.output.name for result in self.op.results]
        values = [v for v in self.needed_after(outputs) if v.name not in self.contraction.sums]
        names = {load.name for load in loads(value.node for value in values)}
        for tensor in self.op.inputs:
            if tensor.name in names:
                lines.end += under(self.choices.reading(tensor.name, values), self.places.load(tensor))
        for value in values:
            lines.end += lowering.line(value)
        for result in self.op.results:
            name = result.output.name
            target, mask = self.places.address(Tensor(name, result.axes)), self.places.mask(result.axes)
            stores = store(result, Line(f"tl.store({target}, {stored(self.op, result)}, mask={mask})"))
            lines.end += stores if result.when else under(condition(result.paths), stores)

    def needed_after(self, roots: Iterable[str]) -> list[Value]:
        """The values that the results need, up to the sums."""
        wanted, found = set(roots), []
        for value in reversed(self.op.values):
            if value.name in wanted:
                found.append(value)
                if value.name not in self.contraction.sums:
                    wanted |= references(value.node)
        return found[::-1]

    def full(self) -> list[str]:
        """The results that have all rows and columns, which TMA can write."""
        return [r.output.name for r in self.op.results if {"rows", "cols"} <= set(self.contraction.roles(r.axes))]

    # Kernels

    def bases(self) -> list[Line]:
        """The pointers to where the rows and columns of matrices begin."""
        return [
            line
            for operand in self.operands.matrices
            for line in under(self.choices.reading(operand.name, self.inside), [self.places.base_line(operand)])
        ]

    def pointers(self) -> Kernel:
        lines = _Lines(setup=[*self.bases(), *self.limit(), *self.start()])
        self.block(lines, self.places.read_by_pointer)
        self.after(lines, _stored)
        return self.kernel("kernel", "Tiles of rows by columns, with any strides.", lines)

    def parts(self) -> Kernel:
        lines = _Lines(setup=[*self.bases(), *self.limit(), *self.start()])
        self.block(lines, self.places.read_by_pointer)
        lines.end += self.kept_parts()
        doc = "Split-K: a part of each sum, for few tiles and a long inner axis."
        return self.kernel("split_k_kernel", doc, lines)

    def kept_parts(self) -> list[Line]:
        stores = {name: Line(f"tl.store({name}_part_ptr + part, {name})") for name in self.contraction.sums}
        return [line for name, store in stores.items() for line in under(self.choices.of(name), [store])]

    def combine(self) -> Kernel:
        zeros = f"tl.zeros([{COMBINED_ROWS}, BLOCK_N], {self.accumulator})"
        lines = _Lines(setup=[Line(f"{name} = {zeros}") for name in self.contraction.sums])
        for name in self.contraction.sums:
            lines.loop += under(self.choices.of(name), [Line(f"{name} += tl.load({name}_part_ptr + part)")])
        self.after(lines, _stored)
        doc = "The reduction of split-K and stream-K: the sums of all parts, in their order, and the epilogue."
        return self.kernel("reduce_kernel", doc, lines)

    @property
    def may_share(self) -> bool:
        """Whether the tail wave may be split by stream-K: tiles all take the same time, and are summed as a whole."""
        return self.kept is None and not self.halved

    def shares(self) -> Kernel:
        lines = self.described()
        lines.end += self.kept_parts()
        doc = "Stream-K: parts of the tiles in the tail wave, which are too few for all SMs."
        return self.kernel("stream_k_kernel", doc, lines, described=True)

    def described(self) -> _Lines:
        """The sums of a tile whose blocks are copied by TMA."""
        lines = _Lines(setup=self.limit())

        def read(operand: Operand, half: str = "") -> list[Line]:
            batched = "batch" in self.places.roles(operand.name)
            return [copied(operand.name, operand.side, operand.flag, batched, half)]

        if joined := self.operands.joined:
            (left,) = (operand for operand in self.operands.matrices if operand.side == 0)
            both = f"{joined.name}_desc.load([0, first_col, start]).reshape(2 * BLOCK_N, BLOCK_K).T"
            lines.setup += self.start("2 * BLOCK_N", [joined.sum])
            lines.loop += [*read(left), Line(f"{joined.name} = {both}")]
            lines.loop.append(self.summing(joined.sum, left.name, joined.name))
        elif self.halved:
            (name,) = self.contraction.sums
            left, right = sorted(self.operands.matrices, key=lambda operand: operand.side)
            lines.setup += self.start("BLOCK_N // 2", [f"{name}{half}" for half in HALVES])
            first, second = (self.summing(f"{name}{half}", left.name, f"{right.name}{half}") for half in HALVES)
            lines.loop += [*read(left), *(line for half in HALVES for line in read(right, half))]
            lines.loop += [first, replace(second, comment="")]
        elif self.takes_turns:
            batched = "batch" in self.places.roles(self.operands.matrices[0].name)
            summed = "n_summed" if self.kept else "n_inner"
            lines.setup += [*self.start(), Line(f"n_steps = tl.cdiv({summed}, BLOCK_K)")]
            lines.loop += turns(self.contraction)
            lines.loop += [copied(name, side, flag, batched) for side, (name, flag) in enumerate(TURNS.items())]
            lines.loop.append(self.summing(*self.contraction.sums, *TURNS))
        else:
            lines.setup += self.start()
            self.block(lines, read)
        return lines

    def descriptors(self) -> Kernel:
        lines = self.described()
        whole_rows = self.reduces_rows()
        full = self.full()

        def store(result: Result, line: Line) -> list[Line]:
            name = result.output.name
            if name not in full:
                return _stored(result, line)
            batch = "matrix, " if self.contraction.batch else ""
            value = converted(self.op, result)
            if batch:
                width = "BLOCK_N" if whole_rows else f"BLOCK_N // {self.slices}"
                value += f".reshape(1, BLOCK_M, {width})"
            at = "first_col" if whole_rows else "part_col"
            return [
                Line(f"if {name}_desc is not None:"),
                Line(f"    {name}_desc.store([{batch}first_row, {at}], {value})"),
                Line(f"elif {name}_ptr is not None:" if result.when else "else:"),
                Line(f"    {line.text}"),
            ]

        self.after(lines, store)
        doc = "A persistent kernel whose tiles of rows by columns are copied by TMA."
        return self.kernel("tma_kernel", doc, lines, described=True)

    @property
    def halved(self) -> bool:
        """Whether a tile is summed in halves: of float8, a block's sum takes as many registers as the sum of all."""
        plain = len(self.contraction.products) == 1 and not self.contraction.groups and not self.reduces_rows()
        decided = any(map(self.choices.of, self.products))
        return self.operands.float8 and plain and self.slices == 2 and not decided

    @property
    def slices(self) -> int:
        """In how many slices the epilogue runs: matrices that it reads take shared memory."""
        outputs = [result.output.name for result in self.op.results]
        names = {load.name for load in loads(value.node for value in self.needed_after(outputs))}
        beside = names - self.operands.names
        return 4 if any({"rows", "cols"} <= set(self.places.roles(name)) for name in beside) else 2

    def reduces_rows(self) -> bool:
        return any(isinstance(v.node, Reduce) and v.name not in self.products for v in self.op.values)

    def kernel(self, suffix: str, doc: str, lines: _Lines, described: bool = False) -> Kernel:
        """The kernel of some lines, with the arguments that they mention."""
        lines = _Lines(*([*nested(part)] for part in (lines.setup, lines.loop, lines.end)))
        body = [*lines.setup, *lines.loop, *lines.end]
        casts = param_casts(self.op, self.compute, self.lowering())
        casts = [line for line in casts if mentions(body, line.assigned)]
        if self.contraction.groups and suffix != "reduce_kernel":
            casts.append(Line(f"group_blocks = tl.cdiv({self.operands.group_size}, BLOCK_K)"))
            casts += [] if suffix == "stream_k_kernel" else [Line("n_steps = n_groups * group_blocks")]
        every = [*casts, *body]
        arguments: list[Argument] = []
        made = [result.output.name for result in self.op.results]
        joined = self.operands.joined if described else None
        names = [tensor.name for tensor in self.op.inputs] + ([joined.name] if joined else []) + made
        for name in names + [f"{name}_part" for name in self.contraction.sums]:
            arguments += [
                Argument(f"{name}_{kind}", name if kind == "ptr" else f"{name}_desc")
                for kind in ("desc", "ptr")
                if mentions(every, f"{name}_{kind}")
            ]
        counts = ["n_rows", "n_cols"]
        summing = suffix != "reduce_kernel"
        if summing:
            counts += [name for name in ("n_groups", "group_size") if mentions(casts, name)]
        bounds = mentions(every, "inner") or mentions(every, "inner_mask") or suffix != "stream_k_kernel"
        if mentions(every, "n_inner") or (summing and bounds and not self.contraction.groups):
            counts.append("n_inner")
        counts += TAKEN.get(suffix, ())
        values = {"n_tiles": "first_tile" if self.may_share else "tiles"}
        arguments += [Argument(name, values.get(name, name)) for name in counts]
        for axis in self.op.axes:
            if mentions(every, f"size_{'batch' if axis == BATCH else axis.lower()}"):
                arguments.append(Argument(self.places.size_name(axis), "math.prod(batch)" if axis == BATCH else axis))
        optional = {tensor.name for tensor in self.op.inputs if tensor.default is not None}
        optional |= {result.output.name for result in self.op.results if result.when}
        tensors = [(t.name, t.type.axes) for t in self.op.inputs] + [(r.output.name, r.axes) for r in self.op.results]
        for name, axes in tensors:
            roles = self.contraction.roles(axes)
            if name in made:
                roles = tuple(role for role in COUNTS if role in roles)
            for n, role in enumerate(roles):
                if mentions(every, stride(name, role)):
                    rest = f" if {name} is not None else 0" if name in optional else ""
                    arguments.append(Argument(stride(name, role), f"{name}.stride({n}){rest}"))
        arguments += param_arguments(self.op, self.compute, every)
        constexprs = [p.name for p in self.op.params if p.kind in ("bool", "enum") and mentions(every, p.name)]
        constexprs += [operand.flag for operand in self.operands.matrices if mentions(every, operand.flag)]
        constexprs += list(TURNS.values()) if described and self.takes_turns else []
        constexprs += [joined.flag] if joined else []
        constexprs += [name for name in ("DOT", "ACC", "COMPUTE") if mentions(every, name)]
        fixed = tuple(p.name for p in self.op.params if p.kind == "int" and mentions(every, p.name))
        return Kernel(
            name=f"{self.op.name}_{suffix}",
            doc=doc,
            arguments=tuple(arguments),
            constexprs=tuple(constexprs),
            casts=tuple(casts),
            setup=tuple(lines.setup),
            body=tuple(lines.loop),
            stores=tuple(lines.end),
            fixed=fixed,
            use_row_mask=mentions(every, "row_mask") or mentions(every, "tile_mask"),
            use_col_mask=mentions(every, "col_mask") or mentions(every, "tile_mask"),
            use_mask=mentions(every, "tile_mask"),
            use_batch=mentions(every, "batch"),
            use_rows=mentions(every, "rows") or mentions(every, "row_mask") or mentions(every, "tile_mask"),
        )


def _stored(result: Result, line: Line) -> list[Line]:
    """The store of a result, which may not be asked for."""
    if not result.when:
        return [line]
    return [Line(f"if {result.output.name}_ptr is not None:"), Line(f"    {line.text}")]


def _lane(op: Op, node: Node, inner: tuple[str, ...]) -> str:
    """What a side holds past the end of the inner axes, where what is read is 0."""
    if isinstance(node, Ref):
        return _lane(op, op.value(node.name).node, inner)
    if isinstance(node, Cast):
        return _lane(op, node.arg, inner)
    return lane(op, node, inner, "0.0")
