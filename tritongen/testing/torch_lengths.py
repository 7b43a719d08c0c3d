"""The lengths of axes as variables of the oracle, from the shapes of its tensors and from formulas."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

from ..lang.formulas import python, wanted_of
from ..lang.ir import Op
from ..lang.names import shown
from ..spec.types import BATCH


def length_lines(op: Op, dims: Mapping[str, tuple[str, ...]], sized: AbstractSet[str]) -> Iterator[str]:
    """The lines of some lengths, those that are computed after all others. `dims` are the axes of each tensor."""
    had = {axis for tensor in op.inputs for axis in tensor.type.axes}
    computed = wanted_of(sized, (formula for formula in op.formulas if formula.axis in op.computed - had))
    read = {*sized}.union(*(formula.reads for formula in computed))
    fixed = dict(op.sizes)
    yield from (f"{axis} = {fixed[axis]}" for axis in sorted(read & fixed.keys(), key=shown))
    for axis in sorted(read - fixed.keys() - {formula.axis for formula in computed}, key=shown):
        name = next(tensor.name for tensor in op.inputs if axis in tensor.type.axes)
        position = dims[name].index(axis) - len(dims[name])
        if axis == BATCH:
            named = f"[:{position + 1}]" if len(dims[name]) > 1 else ""
            yield f"batch = {name}.shape{named}"
        else:
            yield f"{axis} = {name}.shape[{position}]"
    yield from (f"{one.axis} = {ast.unparse(python(one.node))}" for one in computed)
