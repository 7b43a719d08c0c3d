"""How tensors become matrices of batch by rows by columns, and how results get their axes back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...emit.axes import regrouped, sizes, spread
from ...emit.module import Common, length_text
from ...emit.statements import Length, Let, Statement, given
from ...lang.ir import Reduce, Result
from ...passes.contractions import Contraction
from ...passes.structure import of_strips
from ...spec.types import BATCH, Input
from .addressing import COUNTS
from .operands import Operand, Operands
from .program import ContractionProgram


class Matrices(Common):
    """Spells them for the wrapper of a contraction."""

    contraction: Contraction
    operands: Operands
    program: ContractionProgram

    def present(self, roles: tuple[str, ...]) -> list[str]:
        return [role for role in roles if self.contraction.axes(role)]

    def counts(self) -> Iterator[Length]:
        """The lengths that roles have together, and that of groups where it is no number."""
        present = self.present(tuple(COUNTS))
        yield Length(
            tuple(COUNTS[role] for role in present),
            tuple(length_text(self.contraction.axes(role)) for role in present),
        )
        if self.operands.group_size == "group_size":
            yield Length("group_size", f"max(1, {length_text(self.contraction.within)})")

    def merged_inputs(self) -> list[Statement]:
        """The inputs whose axes are not already one for each role get one dimension for each."""
        found = [(tensor, self.merged(tensor)) for tensor in self.program.seen.inputs]
        changed = ((tensor, Let(tensor.name, text)) for tensor, text in found if text != tensor.name)
        return [one for tensor, let in changed for one in self.host.guarded(tensor, [let])]

    def merged(self, tensor: Input) -> str:
        """A tensor with one dimension for each role that its axes play."""
        axes = tensor.type.axes
        roles = self.contraction.roles(axes)
        is_matrix = tensor.name in self.operands.names
        lacks = {role: () if is_matrix else self.contraction.lacking(role, axes) for role in roles}
        telling = {role: self.contraction.telling(role, axes) for role in roles}
        every = [axis for role in roles for axis in telling[role] if axis not in lacks[role]]
        text = spread(tensor.name, axes, every)  # What it lacks of a role's axes is the same along them.
        if len(every) == len(axes) == len(roles) and BATCH not in axes:
            return text
        has = {role: tuple(axis for axis in self.contraction.axes(role) if axis in every) for role in roles}
        lengths = (COUNTS[r] if has[r] == self.contraction.axes(r) else length_text(has[r]) for r in roles)
        return f"{text}.reshape({', '.join(lengths)})"

    def inner_last(self, operand: Operand) -> str:
        """A matrix, merged, with the inner axes last; None where it is."""
        roles = self.contraction.roles(operand.tensor.type.axes)
        if (roles[-1] == "inner" and roles[0] == "batch") or roles == (("rows", "cols")[operand.side], "inner"):
            return operand.name
        if len(roles) == 2 or roles[0] == "batch":
            text = f"{operand.name}.mT"
        else:
            order = [roles.index(role) for role in ("batch", ("rows", "cols")[operand.side], "inner")]
            text = f"{operand.name}.permute({', '.join(map(str, order))})"
        return text if operand.tensor.default is None else f"None if {operand.name} is None else {text}"

    def memory(self, result: Result) -> str:
        shape = self.host.sizes(self.ordered(result))
        return self.host.optional_result(result, self.host.new(result, shape), shape)

    def unfolding(self, result: Result) -> str:
        """The view of a result with one dimension for each role by its axes; "" where those are its axes."""
        made = self.ordered(result)
        if BATCH not in made and len(made) == len(self.contraction.roles(result.axes)):
            return ""
        return ".view(batch)" if made == (BATCH,) else f".view({sizes(list(made))})"

    def as_made(self, result: Result, unfolding: str = "") -> str:
        """The result in its own order, and as its dimensions group axes."""
        name, made = result.output.name, self.ordered(result)
        text = spread(f"{name}{unfolding}", made, list(result.axes)) + regrouped(self.op.grouping(result))
        return given(name, text) if result.when and text != name else text

    def ordered(self, result: Result) -> tuple[str, ...]:
        """The axes of a result in the order in which its memory has them: strips come last."""
        node = of_strips(self.op, result)
        strips = (node.strips,) if node else ()
        roles = self.contraction.roles(tuple(axis for axis in result.axes if axis not in strips))
        present = [role for role in ("batch", "rows", "cols") if role in roles]
        return (*(axis for role in present for axis in self.contraction.telling(role, result.axes)), *strips)

    def strips(self, reductions: Iterable[Reduce]) -> list[Let]:
        """How many strips there are along each of their axes."""
        found = {}
        for node in reductions:
            count = ("n_rows", "n_cols")[self.contraction.strips_axis(node)]
            found[node.strips] = f"tensors.cdiv({count}, {self.op.strips_along(node.strips).width})"
        return [Let(*one) for one in found.items()]
