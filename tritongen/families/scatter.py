"""The family of scatter-adds, as the gradient of `take` is, which the runtime's kernels compute for all operators."""

from __future__ import annotations

from dataclasses import dataclass

from ..emit.module import Around, Common, Module
from ..emit.statements import Launch, Let, Statement, call
from ..lang.ir import Load, Node, Op, Result, ScatterSum
from ..lowering.axes import length_of, lengths, regrouped, spread
from ..lowering.lower import compute_of
from ..lowering.space import Space
from ..nest.values import Expr, V, expr
from ..passes.exponentials import resolve
from ..passes.structure import Program
from ..spec.types import BATCH
from .family import Family, Step


@dataclass(frozen=True, slots=True)
class ScatterProgram(Program):
    """An operator whose only result is the scatter-add of an input at the positions in another."""

    sum: ScatterSum


# The kernels of the runtime's scatter_sums_kernels.
KEYS = ("keys_kernel", "Which row of the result each position is, by which torch sorts them.")
SEGMENTS = (
    "segments_kernel",
    "Sorted terms, equally many per program: complete and partial sums; launched again for the partial ones.",
)
ATOMIC = ("atomic_kernel", "Atomics, in any order.")


class ScatterModule(Common):
    """The tensors as the runtime takes them: a row for each position, positions in lines, a row for each element."""

    def __init__(self, program: ScatterProgram, around: Around) -> None:
        super().__init__(program, False, Space((), ()), compute_of(program.op), [], around)
        self.sum = program.sum
        self.result_of_all = program.op.results[0]
        order = program.op.axes
        self.lines = tuple(axis for axis in order if axis in self.sum.lines)
        self.over = tuple(axis for axis in order if axis in self.sum.over)
        self.cols = tuple(axis for axis in order if axis in self.sum.axes and axis not in (*self.lines, *self.sum.into))

    def module(self) -> Module:
        name = self.result_of_all.output.name
        options = {
            "deterministic": None if self.op.deterministic else expr(False),
            "wrap": V.library.field("wrap_triton") if self.around.register == "triton_op" else None,
        }
        launches: list[Statement] = [
            Let("terms", self.rows(self.sum.arg, (*self.lines, *self.over), self.cols)),
            Let("positions", self.rows(self.sum.at, self.lines, self.over)),
            Launch(call("scatter_sums.scatter_sum", "terms", "positions", name, **options)),
        ]
        kernels = (KEYS, SEGMENTS if self.op.deterministic else ATOMIC)
        return self.built(self.function(launches), kernels=kernels)

    def rows(self, node: Node, rows: tuple[str, ...], cols: tuple[str, ...]) -> Expr:
        """A tensor as a matrix."""
        assert isinstance(node, Load)
        axes = self.op.input(node.name).type.axes
        if axes == (*rows, *cols) and len(rows) == len(cols) == 1 and BATCH not in axes:
            return V[node.name]
        return spread(V[node.name], axes, [*rows, *cols]).method("reshape", length_of(rows), length_of(cols))

    def memory(self, result: Result) -> Expr:
        """The memory of the result: a row for each element that is taken from, those of each line together.

        Zeros from the start: torch.compile of torch 2.11 gives no gradient to what is changed in place, by `zero_`.
        """
        shape = length_of((*self.lines, *self.sum.into)), length_of(self.cols)
        return self.host.new(result, shape, "new_zeros")

    @property
    def returned(self) -> Expr:
        """The result with its axes unflattened, and in its own order."""
        result = self.result_of_all
        value, made = V[result.output.name], (*self.lines, *self.sum.into, *self.cols)
        if len((*self.lines, *self.sum.into)) > 1 or len(self.cols) != 1 or BATCH in made:
            value = value.method("view", *lengths(made))
        return regrouped(spread(value, made, list(result.axes)), self.op.grouping(result))


class Scatter(Family[ScatterProgram]):
    """A tensor that is scattered to the positions in another; if these are computed, earlier steps store them."""

    title = "a scatter-add"

    def take(self, op: Op) -> ScatterProgram | None:
        node = resolve(op, op.results[0].node)
        if len(op.results) > 1 or not isinstance(node, ScatterSum):
            return None
        optional = {tensor.name for tensor in op.inputs if tensor.default is not None}
        plain = all(isinstance(one, Load) and not one.at and one.name not in optional for one in (node.arg, node.at))
        return ScatterProgram(op, (), node) if plain else None

    def module(self, program: ScatterProgram, before: Step | None, around: Around, autotune: bool) -> Module:
        return ScatterModule(program, around).module()


SCATTER = Scatter()
