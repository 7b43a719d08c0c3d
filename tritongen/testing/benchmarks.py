"""Spec -> what the template of an operator's benchmark sees."""

from __future__ import annotations

import math
from typing import Any

from ..emit.scoping import undefined_names
from ..lang.ir import Op
from ..lang.names import in_string
from ..passes.structure import Program
from ..spec.types import BATCH, FLOATS, Input, Spec
from .samples import Shapes, dtype_columns, range_of
from .tests import bound_text, imports, oracle_view, tuple_text

ROW = 4096
HEAD = 64  # of a dimension that is split into axes: heads of two halves, say
PREFERRED = ("bfloat16", "float32", "int64", "int32")


def bench_view(spec: Spec, program: Program, runtime: str) -> dict[str, Any]:
    """`runtime` is the package that the harness is in."""
    op = program.op
    lengths = Sizes(program) if program.contraction else Lengths(program, Shapes(spec, program))
    view = oracle_view(spec, op)
    return {
        **{key: view[key] for key in ("name", "call", "oracle", "signature", "lines", "required")},
        **lengths.view(),
        **dtypes_view(op),
        "imports": f"from {runtime} import benchmarking\n{imports(op)}",
        "imports_math": "math" in undefined_names("\n".join(view["lines"])),
        "tensors": ", ".join(tensor.name for tensor in op.inputs),
        "drawn": tuple_text([draw(tensor, spec, op, lengths.names) for tensor in op.inputs]),
        "wrt": backward_places(spec, op),
    }


def backward_places(spec: Spec, op: Op) -> tuple[int, ...]:
    """Which inputs the backward is measured by; none where it writes over them, so that a graph has one only."""
    if spec.grad is None or spec.grad.write == "in_place":
        return ()
    names = [tensor.name for tensor in op.inputs]
    return tuple(map(names.index, spec.grad.wrt))


class Lengths:
    """How long the axes are: rows of 4,096, and as many of them as the number of elements asks for.

    An operator without rows has one axis, of all elements. One that reduces each row is measured
    over the length of rows as well.
    """

    def __init__(self, program: Program, shapes: Shapes) -> None:
        self.op, self.axes = program.op, shapes.axes
        self.long = shapes.long or "".join(self.axes[-1:])
        self.fixed = math.prod(size for _, size in self.op.sizes)
        self.by_row = self.long in program.over and set(self.axes) > set(program.over)
        self.names: dict[str, str] = {axis: str(size) for axis, size in self.op.sizes}
        self.names |= {axis: local(axis) for axis in self.axes}
        if len(self.axes) == 1 and self.fixed == 1:
            self.names[self.axes[0]] = "elements"

    def view(self) -> dict[str, Any]:
        row = self.names.get(self.long, "")
        several = len(self.axes) > 1
        return {
            "row": in_string(row) if self.by_row else "",
            "row_argument": f", {row}: int = {ROW}" if self.by_row else "",
            "in_rows": f" in rows of {row}" if several else "",
            "lengths": list(self.assigned()),
        }

    def assigned(self) -> list[tuple[str, str]]:
        """The axes that are not arguments, with their lengths, from the rows outwards."""
        if len(self.axes) < 2:
            return [(self.names[axis], f"elements // {self.fixed}") for axis in self.axes if self.fixed > 1]
        outermost, *inner = [axis for axis in self.axes if axis != self.long]
        most = ROW if len(inner) == 1 else HEAD
        found = [] if self.by_row else [(self.names[self.long], str(HEAD if self.is_split() else ROW))]
        block = [str(self.fixed)] * (self.fixed > 1) + [self.names[self.long]]
        for axis in reversed(inner):
            found.append((self.names[axis], f"min(elements // {product(block)}, {most})"))
            block.append(self.names[axis])
        return [*found, (self.names[outermost], f"elements // {product(block)}")]

    def is_split(self) -> bool:
        """Whether rows are a part of a dimension."""
        terms = [term for tensor in self.op.inputs for term in tensor.type.shape]
        return any(self.long in term.names and len(term.names) > 1 for term in terms)


class Sizes:
    """How long the axes of a matmul are: each side of so many elements, and 8 matrices in a batch.

    Where several axes make a side, the last of them is a head of 128 and the rest are of 1, but for the first.
    """

    def __init__(self, program: Program) -> None:
        assert program.contraction is not None
        self.contraction = program.contraction
        self.fixed = dict(program.op.sizes)
        self.names = {axis: str(self.fixed[axis]) if axis in self.fixed else local(axis) for axis in program.op.axes}

    def view(self) -> dict[str, Any]:
        sides = [self.contraction.batch, self.contraction.rows, self.contraction.cols, self.contraction.inner]
        number = 2 * len(self.contraction.products) * (8 if sides[0] else 1)
        counts = [self.length(side) for side in sides[1:]]
        return {
            "lengths": [pair for side in sides for pair in self.assigned(side, side == sides[0])],
            "operations": " * ".join([str(number), *counts]),
        }

    def length(self, side: tuple[str, ...]) -> str:
        """Of all axes of a side together."""
        free = any(axis not in self.fixed for axis in side)
        return "size" if free else str(math.prod(self.fixed[axis] for axis in side))

    def assigned(self, side: tuple[str, ...], batch: bool) -> list[tuple[str, str]]:
        free = [axis for axis in side if axis not in self.fixed]
        fixed = math.prod(self.fixed[axis] for axis in side if axis in self.fixed)
        lengths = dict.fromkeys(free, "1")
        if batch:
            return [(self.names[axis], "8" if axis == free[0] else "1") for axis in free]
        head = 128 if len(free) > 1 else 1
        if free:
            lengths[free[-1]] = str(head)
            lengths[free[0]] = f"size // {head * fixed}" if head * fixed > 1 else "size"
        return [(self.names[axis], length) for axis, length in lengths.items()]


def local(axis: str) -> str:
    return "batch" if axis == BATCH else axis


def product(factors: list[str]) -> str:
    return f"({' * '.join(factors)})" if len(factors) > 1 else factors[0]


def draw(tensor: Input, spec: Spec, op: Op, names: dict[str, str]) -> str:
    """The call that draws an input."""
    shape = [" * ".join(names[axis] for axis in term.names) for term in tensor.type.shape]
    found = range_of(tensor, spec)
    bounds = [bound_text(bound, names) for bound in (found.low, found.high)] if found else []
    return f"benchmarking.draw({', '.join([tuple_text(shape), dtype_of(tensor, op), *bounds])})"


# Dtypes: one is chosen, and the inputs that may have it do.


def dtypes_view(op: Op) -> dict[str, Any]:
    dtypes = chosen_dtypes(op)
    default = preferred(dtypes) if dtypes else ""
    return {
        "dtypes": " ".join(dtypes),
        "dtype_argument": f", dtype: torch.dtype = torch.{default}" if dtypes else "",
    }


def chosen_dtypes(op: Op) -> list[str]:
    """What all inputs may be that may be of a float dtype; without any, what all may be."""
    columns = [*dtype_columns(op).values()]
    columns = [column for column in columns if set(column) & set(FLOATS)] or columns
    first = columns[0] if columns else ()
    return [dtype for dtype in first if all(dtype in column for column in columns)] or [*first]


def dtype_of(tensor: Input, op: Op) -> str:
    if len(tensor.type.dtypes) == 1:
        return f"torch.{tensor.type.dtypes[0]}"
    follows = set(chosen_dtypes(op)) <= set(tensor.type.dtypes)
    return "dtype" if follows else f"torch.{preferred(tensor.type.dtypes)}"


def preferred(dtypes: tuple[str, ...] | list[str]) -> str:
    return next((dtype for dtype in PREFERRED if dtype in dtypes), dtypes[0])
