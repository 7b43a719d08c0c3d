"""Kernels of contractions: tiles of rows by columns, summed over blocks of the inner axes.

Four kernels of the same math: a strided one for any layout, which does split-K too, for few tiles and a long sum; a
persistent one whose tiles are copied by TMA; stream-K for the tail wave of that one; and the reduction of the partial
sums that those leave. Which of them run is decided on the host, by the runtime's `contraction`, which passes arguments
in one order.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from ...lang.ir import Cast, Dtype, Load, Node, Op, Path, Reduce, Ref, Result, Value
from ...lang.promotion import is_float8
from ...lang.trees import parse, substitute
from ...lowering.accumulate import Numbers, lane, whole
from ...lowering.assemble import converted, param_arguments, param_casts, stored
from ...lowering.choices import Choices, condition
from ...lowering.lines import Line, mentions, nested, under
from ...lowering.lower import Compute, Lowering, compute_of
from ...lowering.tile import loads, needed
from ...lowering.views import Argument, Kernel
from ...passes.contractions import Product
from ...passes.structure import references
from ...passes.triangles import kept_where
from ...spec.types import BATCH, FLOAT8S
from .addressing import Places, inner_of, stride
from .arguments import Arguments, beside
from .copies import HALVES, TURNS, copied, take_turns, turns
from .operands import Operand, Operands, is_described, operands_of, tensors_of, widened
from .program import ContractionProgram

SLICERS = {2: "halves", 4: "quarters"}


@dataclass(frozen=True, slots=True)
class ContractionKernels:
    """The kernels of a contraction. `dot` is the dtype of the matmul, where kernels are given it."""

    compute: Compute
    operands: Operands
    dot: Dtype | None
    widened: tuple[str, ...]  # operands of a float64 matmul that the wrapper widens
    accumulator: str  # the dtype of the sums, "ACC" where it follows from what is multiplied
    whole_rows: bool  # whether results are reduced over their columns
    slices: int  # in which a program finishes a tile
    takes_turns: bool  # whether matmuls alternate in the TMA kernel
    halved: bool  # whether the TMA kernel accumulates a tile in two halves
    skips: bool  # whether tiles that are masked away are not summed
    pointers: Kernel
    descriptors: Kernel | None  # None where nothing comes in half precision
    shares: Kernel | None  # stream-K, of the tiles in the tail wave
    combine: Kernel
    parts: tuple[Line, ...]  # the stores of partial sums
    arguments: Arguments


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
        builder.combine(),
        builder.parts(),
        builder.arguments,
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
        options += [f"out_dtype={self.summed}"] if self.summed else []
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
        """What launches tell of the dtype in which all adds up: with scales of groups, that of the math."""
        if not self.contraction.groups:
            return ""
        return "compute" if self.compute.constexpr else self.compute.text

    @property
    def summed(self) -> str:
        """The dtype in which tensor cores add up, where it may be another than float32."""
        if self.operands.dot.kind == "float" and "float64" not in self.operands.dtypes:
            return ""
        return "SUM" if self.contraction.groups else "ACC"

    def limit(self) -> list[Line]:
        """Where the sums end: at once, in a tile that is masked away."""
        if self.kept is None:
            return []
        condition, last = self.kept
        rows, cols = self.contraction.rows[0], self.contraction.cols[0]

        def index(axis: str) -> ast.expr:
            first, block = ("first_row", "BLOCK_M") if axis == rows else ("first_col", "BLOCK_N")
            return parse(f"{first} + {block} - 1" if last[axis] else first)

        assert {rows, cols} == set(last)
        every = "n_steps" if self.contraction.groups else "n_inner"
        lowering = self.lowering()
        lowering.index = index
        text = ast.unparse(lowering.expression(condition))
        return [Line(f"n_summed = tl.where({text}, {every}, 0)", "A tile that is masked as a whole is not summed.")]

    def start(self, width: str = "BLOCK_N", names: Iterable[str] = ()) -> list[Line]:
        zeros = f"tl.zeros([BLOCK_M, {width}], ACC)"
        return [Line(f"{name} = {zeros}") for name in names or self.contraction.sums]

    def after(self, described: bool = False, whole_rows: bool = False) -> list[Line]:
        """The epilogue: the rest of the math, and the stores."""
        lowering = self.lowering()
        lines: list[Line] = []
        outputs = [result.output.name for result in self.op.results]
        values = [v for v in self.needed_after(outputs) if v.name not in self.contraction.sums]
        names = {load.name for load in loads(value.node for value in values)}
        for tensor in self.op.inputs:
            if tensor.name in names:
                lines += under(self.choices.reading(tensor.name, values), self.places.load(tensor))
        for value in values:
            lines += lowering.line(value)
        col = "part_col" if described and not whole_rows else "first_col"
        for result in self.op.results:
            lines += self.store(result, col, described)
        return lines

    def store(self, result: Result, col: str, described: bool) -> list[Line]:
        name = result.output.name
        if self.is_full(result):
            batch, suffix = ("matrix, ", "_in_batch") if self.contraction.batch else ("", "")
            desc = f"{name}_desc" if described else "None"
            value = converted(self.op, result) if is_float8(self.op, result.dtype) else name
            at = f"{batch}first_row, {col}, n_rows, n_cols, INDEX"
            line = Line(f"store_tile{suffix}({desc}, {name}_ptr, {value}, {at})")
            if value == name:
                return under(condition(result.paths), [line])
        else:
            at, mask = self.places.of_result(result), self.places.mask(result.axes)
            line = Line(f"tl.store({at}, {stored(self.op, result)}, mask={mask})")
        if result.when:
            return [Line(f"if {name}_ptr is not None:"), Line(f"    {line.text}")]
        return under(condition(result.paths), [line])

    def needed_after(self, roots: Iterable[str]) -> list[Value]:
        """The values that the results need, up to the sums."""
        wanted, found = set(roots), []
        for value in reversed(self.op.values):
            if value.name in wanted:
                found.append(value)
                if value.name not in self.contraction.sums:
                    wanted |= references(value.node)
        return found[::-1]

    def is_full(self, result: Result) -> bool:
        """Whether a result has all rows and columns, as a tile has them."""
        return {"rows", "cols"} <= set(self.contraction.roles(result.axes))

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
        lines.end += self.after()
        doc = "Tiles of rows by columns, with any strides; or, for split-K, partial sums over `steps` blocks."
        return self.kernel("kernel", doc, self.arguments.strided(), lines)

    def read_parts(self) -> list[Line]:
        loads = {name: Line(f"{name} += tl.load({name}_part_ptr + offsets)") for name in self.contraction.sums}
        return [line for name, load in loads.items() for line in under(self.choices.of(name), [load])]

    def combine(self) -> Kernel:
        zeros = "tl.zeros([REDUCE_M, BLOCK_N], ACC)"
        lines = _Lines(setup=[Line(f"{name} = {zeros}") for name in self.contraction.sums])
        lines.loop += self.read_parts()
        lines.end += self.after()
        doc = "The sums of partial sums of split-K or stream-K, always in the same order, and the epilogue."
        return self.kernel("reduce_kernel", doc, self.arguments.reduction(), lines)

    def parts(self) -> tuple[Line, ...]:
        stores = {name: Line(f"tl.store({name}_part_ptr + offsets, {name})") for name in self.contraction.sums}
        return nested(line for name, store in stores.items() for line in under(self.choices.of(name), [store]))

    @property
    def may_share(self) -> bool:
        """Whether the tail wave may be split by stream-K: tiles all take the same time, and are summed as a whole."""
        return self.kept is None and not self.halved

    def shares(self) -> Kernel:
        doc = "Stream-K: partial sums of the tiles in the tail wave, which are too few for all SMs."
        return self.kernel("stream_k_kernel", doc, self.arguments.stream_k(), self.described())

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
        lines.end += self.after(True, self.reduces_rows())
        doc = "A persistent kernel whose tiles of rows by columns are copied by TMA."
        return self.kernel("tma_kernel", doc, self.arguments.tma(), lines)

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

    def casts(self, lines: list[Line], loops: bool = True) -> list[Line]:
        """What some lines need first: params in the dtype of the math, and how many blocks groups have."""
        casts = param_casts(self.op, self.compute, self.lowering())
        casts = [line for line in casts if mentions(lines, line.assigned)]
        if self.contraction.groups and loops:
            size = self.operands.group_size
            casts.append(Line(f"group_blocks = tl.cdiv({size}, BLOCK_K)"))
            casts.append(Line("n_steps = n_groups * group_blocks"))
        return casts

    @cached_property
    def arguments(self) -> Arguments:
        lines = _Lines(setup=self.limit())
        self.block(lines, self.places.read_by_pointer)
        loop, end = [*nested([*lines.setup, *lines.loop])], [*nested([*self.read_parts(), *self.after()])]
        loop, end = [*self.casts(loop), *loop], [*self.casts(end, False), *end]
        full = tuple(result.output.name for result in self.op.results if self.is_full(result))
        found = beside(self.candidates([*loop, *end]), loop, end)
        return Arguments(self.contraction, self.operands, self.takes_turns, full, found)

    def candidates(self, lines: list[Line]) -> list[Argument]:
        """What some lines may mention beside matrices and results that have all rows and columns."""
        found = []
        for tensor in self.op.inputs:
            if tensor.name not in self.operands.names:
                found.append(Argument(f"{tensor.name}_ptr", tensor.name))
                for n, role in enumerate(self.contraction.roles(tensor.type.axes)):
                    step = f"{tensor.name}.stride({n})"
                    step = step if tensor.default is None else f"tensors.stride({tensor.name}, {n})"
                    found.append(Argument(stride(tensor.name, role), step))
        apart = [result.output.name for result in self.op.results if not self.is_full(result)]
        found += [Argument(f"{name}_ptr", name) for name in apart]
        for axis in self.op.axes:
            found.append(Argument(self.places.size_name(axis), "math.prod(batch)" if axis == BATCH else axis))
        found.append(Argument("group_size", "group_size"))
        found += param_arguments(self.op, self.compute, lines)
        dot = "dot" if self.operands.converts else f"{self.operands.matrices[0].name}.dtype"
        constexprs = {param.name: param.name for param in self.op.params if param.kind in ("bool", "enum")}
        constexprs |= {"DOT": f"dtypes.triton_dtype({dot})", "SUM": f"dtypes.accumulator_dtype({dot})"}
        constexprs["COMPUTE"] = "compute"
        return found + [Argument(f"{name}: tl.constexpr", value) for name, value in constexprs.items()]

    def kernel(self, suffix: str, doc: str, spelled: list[str], lines: _Lines) -> Kernel:
        """The kernel of some lines."""
        lines = _Lines(*([*nested(part)] for part in (lines.setup, lines.loop, lines.end)))
        body = [*lines.setup, *lines.loop, *lines.end]
        arguments = tuple(Argument(one, "") for one in spelled)
        names = {argument.name for argument in arguments}
        return Kernel(
            name=f"{self.op.name}_{suffix}",
            doc=doc,
            arguments=arguments,
            constexprs=("ACC",),
            casts=tuple(self.casts(body, suffix != "reduce_kernel")),
            setup=tuple(lines.setup),
            body=tuple(lines.loop),
            stores=tuple(lines.end),
            fixed=tuple(param.name for param in self.op.params if param.kind == "int" and param.name in names),
            use_batch=mentions(body, "batch"),
        )


def _lane(op: Op, node: Node, inner: tuple[str, ...]) -> str:
    """What a side holds past the end of the inner axes, where what is read is 0."""
    if isinstance(node, Ref):
        return _lane(op, op.value(node.name).node, inner)
    if isinstance(node, Cast):
        return _lane(op, node.arg, inner)
    return lane(op, node, inner, "0.0")
