"""Where the tensors of a matmul are: in the tile of rows and columns and the group in hand, or in a block of a side."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...lang.ir import Load, Node, Result
from ...lowering.lower import Lowering
from ...lowering.space import Dim, Space
from ...lowering.tile import Tensor, Tile, nothing_of
from ...nest.access import Access, Address
from ...nest.ir import Branch, Let, Line
from ...nest.values import Expr, V, expr, joined, product, runtime, tl
from ...passes.contractions import Contraction
from ...passes.gathered import Gathered
from ...passes.structure import guaranteed_axes
from ...spec.types import BATCH, Input
from .operands import Operand

ALIGN = {"rows": "ALIGN_M", "cols": "ALIGN_N", "inner": "ALIGN_K"}  # of contiguous axes, in the strided kernel
BLOCK = {"rows": "BLOCK_M", "cols": "BLOCK_N"}
SUFFIX = {"batch": "batch", "rows": "row", "cols": "col", "inner": "inner"}
COUNTS = {role: f"n_{role}" for role in SUFFIX}


def space_of(contraction: Contraction) -> Space:
    """Tiles of rows by columns; they are of a matrix of the batch, and summed over the inner axes."""
    dims = {role: Dim(contraction.axes(role), role, COUNTS[role], suffix, False) for role, suffix in SUFFIX.items()}
    return Space((dims["rows"],), (dims["cols"],), taken=(dims["batch"], dims["inner"]))


@dataclass(frozen=True, slots=True)
class Places(Tile):
    """A tile: of rows and columns, or of a `side` in a block of the inner axes, where `matrices` are read as they are.

    `starts` are the roles of which a tile's first position is read, instead of each.
    """

    contraction: Contraction = field(kw_only=True)
    matrices: frozenset[str] = frozenset()
    gathered: tuple[Gathered, ...] = ()
    restored: tuple[str, ...] = ()  # integers that may be passed as int32, and are converted back when loaded
    side: int | None = None
    starts: Mapping[str, Expr] = field(default_factory=dict)

    def on(self, side: int | None) -> Places:
        return replace(self, side=side)

    def roles(self, name: str) -> tuple[str, ...]:
        return self.contraction.roles(self.op.input(name).type.axes)

    # Matrices, by pointers to where their rows or columns begin

    def base_of(self, operand: Operand) -> Line:
        """The line that makes these pointers."""
        name, roles = operand.name, self.roles(operand.name)
        sides = (role for role in ("rows", "cols") if role in roles)
        steps = [runtime.offsets(role, stride(name, role), ALIGN["inner"]) for role in sides]
        if "batch" in roles:
            matrix = V[f"{name}_at"].to("INDEX") if self.is_gathered(name) else V.batch
            steps.insert(0, matrix * stride(name, "batch"))
        return Let(_side_of(operand), Address(f"{name}_ptr", (*steps,)).value)

    def read_by_pointer(self, operand: Operand) -> list[Line]:
        name, inner = operand.name, inner_of(operand.side)
        alignment = ALIGN[("rows", "cols")[operand.side]]
        at = Address(_side_of(operand), (runtime.offsets(inner, stride(name, "inner"), alignment),))
        mask = self.on(operand.side).mask(operand.tensor.type.axes)
        if self.is_gathered(name):
            mask = V[f"{name}_mask"] & inner_of(operand.side, "inner_mask")
        restoring = self.restoring(operand.tensor)
        comment = "The wrapper widens it for a float64 matmul." if restoring else ""
        return [Let(name, Access(at, mask, nothing_of(operand.tensor), restoring).value, comment=comment)]

    def is_gathered(self, name: str) -> bool:
        return any(one.name == name for one in self.gathered)

    def gathers(self, operands: Iterable[Operand], masks: bool = False) -> list[Line]:
        """The index of each gathered matrix, and whether it exists; with `masks`, for loads by pointers."""
        lines: list[Line] = []
        for operand, one in (
            (operand, one) for operand in operands for one in self.gathered if one.name == operand.name
        ):
            name, at = one.name, f"{one.name}_at"
            place = Address(f"{one.index}_ptr", (V.batch * stride(one.index, "batch"),))
            lines.append(Let(at, Access(place).value))
            lines.append(Let(f"{name}_exists", (V[at] >= 0) & (V[at] < self.size_name(one.axis))))
            if masks:
                side = ("row_mask", "col_mask")[operand.side]
                lines.append(Let(f"{name}_mask", tl.where(f"{name}_exists", side, False)))
        return lines

    # Positions

    def folded(self, axes: tuple[str, ...]) -> tuple[Expr, tuple[str, ...]]:
        """The positions at which a tensor with some `axes` of a role is read, and the axes that these fold."""
        (role,) = self.contraction.roles(axes)
        every = self.contraction.axes(role)
        if role == "inner":
            return inner_of(self.side), every if self.side is not None else self.contraction.groups
        if role in self.starts:
            return self.starts[role], every
        if role == "cols" and self.side is None:
            return V[self.columns(axes)], self.contraction.addressing(role, axes)
        return V[role], every

    def along(self, axes: tuple[str, ...]) -> Expr:
        """The position along the first of the axes that a role folds."""
        at, every = self.folded(axes)
        below = every[max(every.index(axis) for axis in axes if axis in every) + 1 :]
        return functools.reduce(operator.floordiv, map(self.size_name, reversed(below)), at)

    def index(self, axis: str) -> Expr:
        first, at = self.folded((axis,))[1][0], self.along((axis,))
        return at if axis == first else at % self.size_name(axis)

    def dims(self, axes: tuple[str, ...]) -> dict[Dim, tuple[str, ...]]:
        """The dims along which a tensor moves, and the first axes of each, which it has: all that tell where it is, if
        it is expanded to these.
        """
        every = (*self.space.taken[:1], *self.space.dims, *self.space.taken[1:])
        found = {}
        for dim in self.space.steps(axes, every):
            addressing = self.contraction.addressing(dim.index, axes)
            found[dim] = addressing[: len(addressing) - len(self.contraction.lacking(dim.index, axes))]
        return found

    def strides(self, tensor: Input) -> tuple[str, ...]:
        return self.tensor(tensor).strides((*self.dims(tensor.type.axes),))

    def address(self, tensor: Tensor) -> Address:
        steps = (self.along(own) * tensor.stride(dim) for dim, own in self.dims(tensor.axes).items())
        return Address(tensor.pointer, (*steps,))

    def of_result(self, result: Result) -> Address:
        """The address of a contiguous result that has not all of batch, rows and columns."""
        dims = self.dims(result.axes)
        counts = [V.n_cols // self.group if self.group and dim.index == "cols" else V[dim.size] for dim in dims]
        at = (product(self.along(own), *counts[n:]) for n, own in enumerate(dims.values(), 1))
        return Address(f"{result.output.name}_ptr", (*at,))

    @property
    def group(self) -> int:
        """How many columns a group has; 0 where there are none."""
        sizes = dict(self.op.sizes)
        return math.prod(sizes[axis] for axis in self.contraction.col_groups) if self.contraction.col_groups else 0

    def columns(self, axes: tuple[str, ...]) -> str:
        """The positions of a tile that tell where a tensor with some of the columns' axes lies."""
        addressing = self.contraction.addressing("cols", axes)
        return {self.contraction.cols: "cols", self.contraction.col_groups: "inside"}.get(addressing, "groups")

    def mask(self, axes: tuple[str, ...]) -> Expr | None:
        mine = tuple(axis for axis in axes if self.contraction.roles((axis,))[0] not in self.starts)
        if self.side is not None:
            inner = inner_of(self.side, "inner_mask") if {*mine} & {*self.contraction.inner} else None
            return joined(Tile.mask(self, mine), inner)
        if self.group and self.columns(axes) == "inside":  # Tiles have full groups: no mask within one.
            mine = tuple(axis for axis in mine if axis not in self.contraction.cols)
        return Tile.mask(self, mine)

    @property
    def full_mask(self) -> Expr:
        """The mask of all elements of a tile, where `tile_mask` has one element for each group."""
        return V.row_mask & (V.cols < V.n_cols) if self.group else V.tile_mask

    def fills(self, node: Node) -> bool:
        """Whether something has its rows and columns, whatever params choose and whichever inputs are left out."""
        sums = {*self.contraction.names, *self.contraction.sums}
        sides = (*self.contraction.rows, *self.contraction.cols)
        guaranteed = guaranteed_axes(self.op, node, sums).intersection(sides, node.axes)
        return {*self.contraction.roles(tuple(guaranteed))} == {*self.contraction.roles(sides)}

    # Reading

    def load_lines(self, tensor: Input, policy: str = "", first: Expr | None = None) -> list[Line]:
        lines, uniform = Tile.load_lines(self, tensor, policy), self.uniform(tensor)
        if not uniform or (tensor.default is not None and tensor.name not in self.op.chosen):
            return lines
        fits = functools.reduce(Expr.and_, ((expr(size) % BLOCK[role]).equals(0) for role, size in uniform.items()))
        starts = {role: V[f"first_{SUFFIX[role]}"].to("INDEX") for role in uniform}
        one = Tile.load_lines(replace(self, starts=starts), tensor)
        return [Branch(fits, (*one,), (*lines,), comment="One element for the entire tile.")]

    def uniform(self, tensor: Input) -> dict[str, int]:
        """The roles along which adjacent positions share an element, and how many do: fixed lengths that tiles may
        divide. None on a side.
        """
        sizes, found = dict(self.op.sizes), dict[str, int]()
        for role in () if self.side is not None else ("rows",) if self.group else ("rows", "cols"):
            lacks = self.contraction.lacking(role, tensor.type.axes)
            if lacks and role in self.contraction.roles(tensor.type.axes) and all(axis in sizes for axis in lacks):
                found[role] = math.prod(sizes[axis] for axis in lacks)
        return found

    def widen(self, tensor: Input) -> tuple[str, ...]:
        return Tile.widen(self, tensor) + self.restoring(tensor)

    def restoring(self, tensor: Input) -> tuple[str, ...]:
        """The conversion of integers that may be passed as int32 to the dtype of the spec; () for other inputs."""
        if tensor.name not in self.restored:
            return ()
        (dtype,) = tensor.type.dtypes
        return (f"tl.{'int1' if dtype == 'bool' else dtype}",)

    # For the lowering

    def load(self, node: Load, lowering: Lowering) -> Expr:
        is_read = self.side is not None and node.name in self.matrices
        return V[node.name].to(*(Tile.widen(self, self.op.input(node.name)) if is_read else ()))

    def dtype_of(self, name: str) -> str:
        """Of a matrix, to which not all kernels have a pointer, it is a constant."""
        return f"{name.upper()}_DTYPE" if name in self.matrices else Tile.dtype_of(self, name)

    def size(self, axes: tuple[str, ...]) -> Expr:
        return V.n_rows if {*axes} == {*self.contraction.rows} else Tile.size(self, axes)

    def size_name(self, axis: str) -> str:
        fixed = dict(self.op.sizes).get(axis)
        return str(fixed) if fixed else "size_batch" if axis == BATCH else f"size_{axis.lower()}"


def _side_of(operand: Operand) -> str:
    """The name of the pointers to where the rows or columns of a matrix begin."""
    return f"{operand.name}_{('rows', 'cols')[operand.side]}"


def inner_of(side: int | None, name: str = "inner") -> Expr:
    """The positions in a block of the inner axes, or their mask, as they lie on a side; else the group in hand."""
    return V.group if side is None else V[name][:, None] if side else V[name][None, :]


def stride(name: str, role: str) -> str:
    return f"stride_{name}_{SUFFIX[role]}"
