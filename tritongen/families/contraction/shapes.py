"""How tensors become matrices of batch by rows by columns, and how results get their axes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...emit.axes import places, sizes, spread
from ...emit.host import Host
from ...emit.host_checks import tuple_text
from ...emit.module import length_text
from ...lang.ir import Result
from ...passes.contractions import Contraction
from ...spec.types import BATCH, Input
from .addressing import COUNTS
from .operands import Operand, Operands


@dataclass(frozen=True, slots=True)
class Shapes:
    """Spells them for the wrapper of a contraction."""

    contraction: Contraction
    operands: Operands
    host: Host
    inputs: tuple[Input, ...]  # as kernels see them

    def present(self, roles: tuple[str, ...]) -> list[str]:
        return [role for role in roles if self.contraction.axes(role)]

    def counts(self, roles: tuple[str, ...]) -> dict[str, str]:
        """The lengths that some roles have together, and that of groups where it is no number."""
        present, size = self.present(roles), self.operands.group_size
        return {
            "names": ", ".join(COUNTS[role] for role in present),
            "lengths": ", ".join(length_text(self.contraction.axes(role)) for role in present),
            "within": f"max(1, {length_text(self.contraction.within)})" if size == "group_size" else "",
        }

    def merged_inputs(self) -> list[dict[str, Any]]:
        """The inputs whose axes are not already one for each role."""
        found = [(tensor, self.merged(tensor)) for tensor in self.inputs]
        return [
            {"name": tensor.name, "merged": text, "is_optional": tensor.default is not None}
            for tensor, text in found
            if text != tensor.name
        ]

    def merged(self, tensor: Input) -> str:
        """A tensor with one dimension for each role that its axes play."""
        axes, text = tensor.type.axes, tensor.name
        roles = self.contraction.roles(axes)
        wanted = [axis for role in roles for axis in self.contraction.axes(role) if axis in axes]
        if list(axes) != wanted:
            text += f".permute({places(axes, wanted)})"
        is_matrix = tensor.name in self.operands.names
        lacks = {role: () if is_matrix else self.contraction.lacking(role, axes) for role in roles}
        every = [axis for role in roles for axis in self.contraction.axes(role) if axis not in lacks[role]]
        if len(every) == len(wanted) == len(roles) and BATCH not in wanted:
            return text
        if len(every) > len(wanted):  # What it lacks of a role's axes is the same along them.
            text = spread(tensor.name, axes, every)
        has = {role: tuple(axis for axis in self.contraction.axes(role) if axis in every) for role in roles}
        return f"{text}.reshape({', '.join(length_text(has[r]) if lacks[r] else COUNTS[r] for r in roles)})"

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

    def made(self, result: Result) -> str:
        """The memory of a result, or None where it is not made."""
        host, first = self.host, self.host.first()
        assert first is not None
        sizes = tuple_text([COUNTS[role] for role in self.ordered(result.axes)])
        text = f"torch.empty({sizes}, dtype={host.dtype(result.dtype)}, device={first.name}.device)"
        return host.perhaps(result, text, sizes)

    def returned(self, result: Result) -> str:
        """The result with its axes apart again, and in its own order."""
        name, axes = result.output.name, result.axes
        roles = self.ordered(axes)
        made = [axis for role in roles for axis in self.contraction.axes(role)]
        text = name
        if (
            any(self.contraction.axes(role) != (axis,) for role, axis in zip(roles, made, strict=False))
            or BATCH in made
        ):
            text += ".view(batch)" if made == [BATCH] else f".view({sizes(made)})"
        if tuple(made) != axes:
            text += f".permute({places(tuple(made), list(axes))})"
        shape = result.output.shape or self.host.grouped(result)
        for position, term in zip(range(-1, -len(shape) - 1, -1), reversed(shape), strict=True):
            if len(term.names) > 1:
                text += f".flatten({position - len(term.names) + 1}, {position})"
        return f"{text} if {name} is not None else None" if result.when and text != name else text

    def ordered(self, axes: tuple[str, ...]) -> list[str]:
        """The roles of a result in the order in which its memory has them."""
        return [role for role in ("batch", "rows", "cols") if role in self.contraction.roles(axes)]
