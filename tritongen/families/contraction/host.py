"""Op -> the view of the generated module of a matmul."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from ...emit.configs import Traffic
from ...emit.host_checks import IS_FAKE
from ...emit.matmul_configs import Summing
from ...emit.module import Around, Common, Known, Module
from ...emit.statements import If, Launch, Length, Let, Note, Return, Statement, call, given, one_or_all
from ...lang.ir import Result
from ...lowering.axes import length_of, lengths, regrouped, spread
from ...lowering.space import Space
from ...nest.values import Expr, Term, V, either, expr, quoted, runtime, tensors
from ...passes.epilogues import STRIP_COLS, STRIP_ROWS
from ...passes.scalars import passed_scalars
from ...passes.structure import of_strips
from ...spec.types import BATCH, SPLIT_PRECISIONS, Input
from .addressing import COUNTS
from .forward import call_of_forward
from .gluon import gluon_functions
from .kernels import ContractionKernels
from .operands import Operand
from .program import ContractionProgram, summed_batch


class Products(Common):
    """The module of a contraction. Matrices come as batch by rows by columns, whatever their axes.

    With `by_gemm`, the runtime's gemm computes it, and it has no kernels of its own. With `search`, tiles are timed.
    """

    def __init__(
        self, program: ContractionProgram, around: Around, by_gemm: bool = False, search: bool = False
    ) -> None:
        self.by_gemm = by_gemm
        # A result that takes the memory of an input is computed once.
        self.search = search and not any(result.over for result in program.op.results)
        self.plan = ContractionKernels(program)
        self.operands = self.plan.operands
        self.summed = summed_batch(program) if by_gemm else ()
        self.contraction = program.contraction
        if self.summed:
            inner = tuple(axis for axis in self.contraction.inner if axis not in self.summed)
            self.contraction = replace(self.contraction, batch=self.summed, inner=inner)
        plan = self.plan
        kernels = [] if by_gemm else plan.kernels
        super().__init__(program, False, Space((), ()), plan.compute, kernels, around)
        # Torch has to trace the launches of a triton_op.
        has_gluon = plan.descriptors is not None and around.register != "triton_op"
        self.gluon = gluon_functions(program, plan) if has_gluon else ()

    def module(self) -> Module:
        if self.by_gemm:
            return self.calling()
        plan = self.plan
        kinds = frozenset(kind for kind in ("pointers", "descriptors", "shares") if getattr(plan, kind))
        return replace(self.built(self.launching(), Traffic(kinds, summing=self.summing())), gluon=self.gluon)

    def launching(self) -> list[Statement]:
        known, counts = self.recalled(), [*self.counts()]
        empty = [V[COUNTS[role]].equals(0) for role in self.present(("batch", "rows", "cols"))]
        empty += [V[IS_FAKE]] if IS_FAKE in self.around.extra else []
        by_name = {name: V[name] for name in self.by_name()} | self.joined()
        said = "Tiles are chosen by the lengths, so that a trace has them as constants."
        traced: list[Statement] = [Note(said), Let(counts[0].name, runtime.map("int", counts[0].name))]
        return [
            *self.begun(known),
            *counts,
            *self.splits(),
            *self.strips(),
            *self.allocated(),
            *self.nothing_for(functools.reduce(Expr.or_, empty)),
            *(traced if self.is_traced else ()),
            *self.merged_inputs(),
            *self.again(known),
            *([Let("by_name", by_name)] if known else []),
            *self.of_one_dtype(),
            *self.launched([Launch(self.launch())]),
        ]

    @property
    def returned(self) -> Term:
        return one_or_all([*map(self.as_made, self.op.results)])

    def of_one_dtype(self) -> Iterator[Statement]:
        if self.plan.given_dtype is None:
            return
        yield Let("dot", self.host.dtype(self.plan.given_dtype))
        widened: list[Statement] = []
        if names := self.operands.widened:
            widened.append(Let(one_or_all(names), one_or_all([V[name].to("dot") for name in names])))
        for tensor in map(self.op.input, self.operands.widened_integers):
            value = V[tensor.name].method("int")
            widened.append(Let(tensor.name, value if tensor.default is None else given(tensor.name, value)))
        if widened:
            note = "Triton 3.6 multiplies that by nothing that was narrower."
            yield If(V.dot.equals("torch.float64"), tuple(widened), note)

    def matrices(self, side: int) -> tuple[Expr, ...]:
        """The matrices of a side, with the inner axes last."""
        operands = [operand for operand in self.operands.matrices if operand.side == side]
        return tuple(map(self.inner_last, operands))

    def launch(self) -> Expr:
        """The launch: its kernels, in order, and its operands, where these differ from the default."""
        plan, alternation = self.plan, len(self.contraction.products)
        strided = call(
            "contraction.Strided",
            self.table_of("STRIDED"),
            self.launcher(plan.pointers),
            n_strides=self.n_strides(),
            n_beside=self.n_beside(),
            pads=self.plan.pads,
            swaps=None if "SWAPS" in plan.pointers.constexprs else expr(False),
        )
        kernels = [strided, self.launcher(plan.combine)]
        if plan.descriptors is not None:
            tma = call(
                "contraction.Tma",
                self.table_of("TMA"),
                self.launcher(plan.descriptors),
                *([self.launcher(plan.shares)] if plan.shares else []),
                describe="tma.joined" if self.operands.joined else "tma.alike" if plan.alternates else "",
                n_turns=alternation if plan.alternates else "",
                n_halves=2 if plan.halved else "",
                n_slices=1 if plan.full_rows else plan.slices if plan.slices > 2 else "",
                specializes=plan.specialises,
                gluon=call("contraction.Gluon", module="__name__", name=quoted(self.op.name)) if self.gluon else None,
            )
            kernels.append(tma)
        operands = call(
            "contraction.Operands",
            lengths=("n_rows", "n_cols", "n_inner"),
            left=self.matrices(0),
            right=self.matrices(1),
            results=plan.full,
            n_batch="n_batch" if self.contraction.batch else "",
            group_size=self.operands.group_size,
            dtype="dot" if plan.given_dtype else "",
            accumulator=plan.accumulator,
            **{use: tuple(one.value for one in passed) or None for use, passed in plan.extras.items()},
        )
        n_sums, rows = len(self.contraction.sums), self.reduced_rows()
        every = call(
            "contraction.Kernels",
            *kernels,
            n_sums=n_sums if n_sums > 1 else "",
            reduced_rows=rows,
            precision=self.precision,
        )
        found: tuple[Term, ...] = ("key", "by_name") if self.knows else (None, {})
        return call("contraction.run", *found, every, operands, search="search.fastest" if self.search else "")

    def reduced_rows(self) -> int | str:
        """How many rows of a tile the reduction takes, where it takes strips of them."""
        rows = [node for node in self.plan.strips if not self.contraction.strips_axis(node)]
        return STRIP_ROWS if rows else ""

    def n_strides(self) -> Term:
        """The number of strides of each matrix, if a matrix may be None, since then it cannot be inferred."""
        matrices = self.operands.by_side
        if all(operand.tensor.default is None for operand in matrices):
            return ""
        return tuple(len(self.plan.places.strides(operand.tensor)) for operand in matrices)

    def n_beside(self) -> Term:
        """The numbers of tensors other than matrices that the loop reads in blocks, along rows and along columns."""
        extras = self.plan.extras
        read = {argument.value.text for use in ("loop", "both") for argument in extras[use]}
        axes = [set(tensor.type.axes) for tensor in self.op.inputs if tensor.name in read]
        blocks = [] if self.operands.group_size else [one for one in axes if one & {*self.contraction.inner}]
        sides = self.contraction.rows, self.contraction.cols
        counts = tuple(sum(bool(one & {*side}) for one in blocks) for side in sides)
        return counts if any(counts) else ""

    def calling(self) -> Module:
        """A function that calls gemm."""
        merged, call = self.merged_inputs(), self.called()
        forward = self.around.forward if self.by_forward else None
        kernels = ContractionKernels(forward).kernels if isinstance(forward, ContractionProgram) else ()
        named = tuple((kernel.name, kernel.doc) for kernel in kernels)
        inline = () if merged or len(call) > 1 else self.by_forward
        return self.built([*self.begun(), *self.counts(), *merged, *call], kernels=named, inline=inline)

    def called(self) -> list[Statement]:
        """The call that multiplies two matrices: of the operator's own forward if it does just that, or of gemm."""
        (result,) = self.op.results
        name, returned = result.output.name, self.as_made(result, self.unfolded(result))
        multiply = "split_gemm.multiply" if self.splits_to_bfloat16 else "gemm.gemm"
        passed = *self.sides_of_call(), *filter(None, [self.precision])
        search = "search.fastest" if self.search else ""
        by_gemm = call(multiply, *passed, sums_batch=bool(self.summed), search=search)
        every = call(*self.by_forward) if self.by_forward else by_gemm
        return [Return(every)] if returned.is_name else [Let(name, every), Return(returned)]

    def sides_of_call(self) -> list[Expr]:
        return [*map(self.inner_last, self.operands.by_side)]

    @property
    def by_forward(self) -> tuple[Term, ...]:
        """The operator's own forward and its arguments, if it can compute this gradient."""
        roles = [self.contraction.roles(one.tensor.type.axes) for one in self.operands.matrices]
        if self.summed or len({*map(len, roles)}) > 1:
            return ()
        return call_of_forward(self.around.forward, self.sides_of_call(), len(roles[0]))

    @property
    def precision(self) -> Expr | None:
        """How float32 is multiplied, None where as it is."""
        return quoted(self.op.precision) if self.op.precision != "ieee" else None

    @property
    def splits_to_bfloat16(self) -> bool:
        """Whether large float32 matrices may be split into bfloat16s by a kernel of their own."""
        return self.op.precision in SPLIT_PRECISIONS and "float32" in self.operands.dtypes

    def splits(self) -> list[If]:
        """The call in place of a launch, for large matrices that are split beforehand."""
        if not self.splits_to_bfloat16 or not self.knows or not self.plan.pads:
            return []
        n_batch = COUNTS["batch"] if self.contraction.batch else 1
        shape = ("n_rows", "n_cols", "n_inner")
        splits = call("split_gemm.splits", self.operands.matrices[0].name, shape, n_batch, self.precision)
        return [If(V.replay.is_none.and_(splits), (*self.merged_inputs(), *self.called()))]

    def summing(self) -> Summing:
        plan, sides, fixed = self.plan, [one.side for one in self.operands.matrices], dict(self.op.sizes)
        width = math.prod(fixed[axis] for axis in self.contraction.cols) if plan.full_rows else 0
        return Summing(
            len(self.contraction.sums),
            (sides.count(0), sides.count(1)),
            plan.descriptors is not None,
            self.operands.multiplies_bytes,
            twice=bool(self.operands.group_size) or self.operands.float8,
            splits=self.op.precision != "ieee",
            width=width and max(16, 1 << (width - 1).bit_length()),
            strips=plan.places.group or (STRIP_COLS if any(map(self.contraction.strips_axis, plan.strips)) else 0),
            slices=plan.slices,
            halved=plan.halved,
            alternates=plan.alternates,
            terms=max(Counter(product.sum for product in self.contraction.products).values()),
            computes=not self.plan.pads,
        )

    @property
    def is_traced(self) -> bool:
        """Whether a trace has symbolic lengths and strides, where rules need integers."""
        return self.around.register == "triton_op"

    # How tensors become matrices, and results get their axes back

    def present(self, roles: tuple[str, ...]) -> list[str]:
        return [role for role in roles if self.contraction.axes(role)]

    def counts(self) -> Iterator[Length]:
        """The merged lengths of roles, and the length of groups if it is no literal."""
        present = self.present(tuple(COUNTS))
        yield Length(
            tuple(COUNTS[role] for role in present),
            tuple(length_of(self.contraction.axes(role)) for role in present),
        )
        if self.operands.group_size == "group_size":
            yield Length("group_size", runtime.max(1, length_of(self.contraction.within)))

    def merged_inputs(self) -> list[Statement]:
        """The inputs whose axes are not already one for each role get one dimension for each."""
        found = [(tensor, self.merged(tensor)) for tensor in self.plan.op.inputs]
        changed = ((tensor, Let(tensor.name, value)) for tensor, value in found if not value.is_name)
        return [one for tensor, let in changed for one in self.host.guarded(tensor, [let])]

    def merged(self, tensor: Input) -> Expr:
        """A tensor with one dimension for each role that its axes play."""
        axes = tensor.type.axes
        roles = self.contraction.roles(axes)
        is_matrix = tensor.name in self.operands.names
        lacks = {role: () if is_matrix else self.contraction.lacking(role, axes) for role in roles}
        addressing = {role: self.contraction.addressing(role, axes) for role in roles}
        every = [axis for role in roles for axis in addressing[role] if axis not in lacks[role]]
        value = spread(V[tensor.name], axes, every)  # What it lacks of a role's axes is the same along them.
        if len(every) == len(axes) == len(roles) and BATCH not in axes:
            return value
        has = {role: tuple(axis for axis in self.contraction.axes(role) if axis in every) for role in roles}
        counts = (COUNTS[r] if has[r] == self.contraction.axes(r) else length_of(has[r]) for r in roles)
        return value.method("reshape", *counts)

    def inner_last(self, operand: Operand) -> Expr:
        """A matrix, merged, with the inner axes last; None where it is."""
        roles = self.contraction.roles(operand.tensor.type.axes)
        if (roles[-1] == "inner" and roles[0] == "batch") or roles == (("rows", "cols")[operand.side], "inner"):
            return V[operand.name]
        own = V[operand.name]
        if len(roles) == 2 or roles[0] == "batch":
            value = own.field("mT")
        else:
            order = [roles.index(role) for role in ("batch", ("rows", "cols")[operand.side], "inner")]
            value = own.method("permute", *order)
        return value if operand.tensor.default is None else either(own.is_none, None, value)

    def memory(self, result: Result) -> Expr:
        shape = self.host.sizes(self.ordered(result))
        return self.host.optional_result(result, self.host.new(result, shape), shape)

    def unfolded(self, result: Result) -> Expr:
        """A result with one dimension for each role as a view by its axes, where those are not its axes."""
        made, value = self.ordered(result), V[result.output.name]
        if BATCH not in made and len(made) == len(self.contraction.roles(result.axes)):
            return value
        return value.method("view", *(["batch"] if made == (BATCH,) else lengths(made)))

    def as_made(self, result: Result, value: Expr | None = None) -> Expr:
        """The result in its own order, and as its dimensions group axes."""
        name, made = result.output.name, self.ordered(result)
        value = regrouped(spread(value or V[name], made, list(result.axes)), self.op.grouping(result))
        return given(name, value) if result.when and not value.is_name else value

    def ordered(self, result: Result) -> tuple[str, ...]:
        """The axes of a result in the order in which its memory has them: strips come last."""
        node = of_strips(self.op, result)
        strips = (node.strips,) if node else ()
        roles = self.contraction.roles(tuple(axis for axis in result.axes if axis not in strips))
        present = [role for role in ("batch", "rows", "cols") if role in roles]
        return (*(axis for role in present for axis in self.contraction.addressing(role, result.axes)), *strips)

    def strips(self) -> list[Let]:
        """The number of strips along each of their axes."""
        counts = {node.strips: ("n_rows", "n_cols")[self.contraction.strips_axis(node)] for node in self.plan.strips}
        return [Let(axis, tensors.cdiv(count, self.op.strips_along(axis).width)) for axis, count in counts.items()]

    # Launches

    def passed_params(self) -> list[str]:
        """The params, and the scalars that the host computes from them for kernels."""
        extras, params = self.plan.extras, [param.name for param in self.op.params]
        passed = {argument.value.text for group in extras.values() for argument in group}
        return [*params, *(name for name in passed_scalars(self.op) if name in passed and name not in params)]

    def by_name(self) -> list[str]:
        """The arguments that repeated launches are passed by name."""
        return [*self.op.tensors, *self.passed_params()]

    def joined(self, function: str = "launch.first_of") -> dict[str, Expr]:
        """The tensor that represents two matrices with one descriptor."""
        joined = self.operands.joined if self.plan.descriptors else None
        return {joined.name: call(function, joined.first.name, joined.second.name)} if joined else {}

    def recalled(self) -> Known:
        """The key by which launches of a repeated call are looked up, and the call that replays them."""
        if not self.knows:
            return None
        separate, joined = self.joined("launch.distance").values(), self.joined().values()
        return self.lookup(*separate), call("replay", (*self.by_name(), *joined))
