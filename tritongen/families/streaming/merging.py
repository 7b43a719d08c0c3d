"""How the host flattens the axes of heads, and unflattens them."""

from __future__ import annotations

from collections.abc import Iterator

from ...emit.host import Host
from ...emit.host_checks import tuple_text
from ...emit.statements import Length, Let, Statement
from ...lang.ir import Op
from ...passes.merged_axes import MergedAxes, is_grouped
from ...spec.types import BATCH


def merging(host: Host, merged: MergedAxes) -> list[Statement]:
    """Gives tensors one dimension for merged axes, where each axis has had its own.

    That is a view wherever strides allow it, as they do for what was one dimension, and otherwise a copy.
    """
    found: list[Statement] = [Let(name, "math.prod(batch)") for name, group in merged.every if group == (BATCH,)]
    for tensor in host.op.inputs:
        axes, calls, own = tensor.type.axes, "", list[Statement]()
        for name, group in merged.every:
            if group == (BATCH,) and BATCH in axes:
                own = [Let(tensor.name, f"{tensor.name}.reshape({name}, *{tensor.name}.shape[len(batch):])")]
            elif group[0] in axes:
                first = axes.index(group[0]) - len(axes)
                calls += f".flatten({first}, {first + len(group) - 1})"
                axes = tuple(name if axis == group[0] else axis for axis in axes if axis not in group[1:])
        found += host.guarded(tensor, [*own, *([Let(tensor.name, f"{tensor.name}{calls}")] if calls else [])])
    return [*found, *(Length(name, " * ".join(group)) for name, group in merged.every if group != (BATCH,))]


def parted_tensors(op: Op, merged: MergedAxes) -> Iterator[tuple[str, str]]:
    """The tensors of an operator that have a dimension for each of merged axes, with the calls that make these."""
    shapes = [(tensor.name, tensor.type.shape) for tensor in op.inputs]
    shapes += [(result.output.name, op.grouping(result)) for result in op.results]
    for tensor, shape in shapes:
        calls = ""
        dims = [term.names for term in merged.joined_shape(shape)]
        for name, group in merged.every:
            if (name,) in dims and not is_grouped(shape, group):
                place = dims.index((name,))
                calls += f".unflatten({place - len(dims)}, {tuple_text([*group])})"
                dims[place : place + 1] = [(axis,) for axis in group]
        if calls:
            yield tensor, calls
