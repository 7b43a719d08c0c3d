"""Where the tensors of a matmul are, in the block, the tile and the group that a kernel has in hand."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...lang.ir import Node, Op, Result
from ...lowering.lower import Compute
from ...lowering.tile import Tensor, meets_tensors, nothing_of, widening
from ...nest.access import Access, Address, if_given
from ...nest.ir import Branch, Let, Line
from ...nest.values import Expr, Term, V, expr, joined, product, runtime, tl
from ...passes.contractions import Contraction
from ...passes.picked import Picked
from ...passes.structure import guaranteed_axes
from ...spec.types import BATCH, Input
from .operands import Operand

COUNTS = {"batch": "n_batch", "rows": "n_rows", "cols": "n_cols", "inner": "n_inner"}
ALIGN = {"rows": "ALIGN_M", "cols": "ALIGN_N", "inner": "ALIGN_K"}  # of contiguous axes, in the strided kernel
BLOCK = {"rows": "BLOCK_M", "cols": "BLOCK_N"}
NONE: Mapping[str, int] = {}
SUFFIX = {"batch": "batch", "rows": "row", "cols": "col", "inner": "inner"}


@dataclass(frozen=True, slots=True)
class Places:
    """Spells addresses, masks and positions: batch, rows and cols are a tile's, inner ones a block's, on a side."""

    op: Op
    contraction: Contraction
    compute: Compute
    picked: tuple[Picked, ...] = ()
    restored: tuple[str, ...] = ()  # integers that may be passed as int32, and are converted back when loaded

    def roles(self, name: str) -> tuple[str, ...]:
        return self.contraction.roles(self.op.input(name).type.axes)

    def base_line(self, operand: Operand) -> Line:
        """The pointers to where the rows or the columns of a matrix begin."""
        roles = [role for role in ("batch", "rows", "cols") if role in self.roles(operand.name)]
        steps = [
            V[role] * stride(operand.name, role)
            if role == "batch"
            else runtime.offsets(role, stride(operand.name, role), ALIGN["inner"])
            for role in roles
        ]
        if self.is_picked(operand.name):
            steps[0] = V[f"{operand.name}_at"].to("INDEX") * stride(operand.name, "batch")
        return Let(self.base(operand), Address(f"{operand.name}_ptr", (*steps,)).value)

    def is_picked(self, name: str) -> bool:
        return any(one.name == name for one in self.picked)

    def picks(self, operands: Iterable[Operand], masks: bool = False) -> list[Line]:
        """The index of each gathered matrix, and whether it exists; with `masks`, for loads by pointers."""
        lines: list[Line] = []
        for operand in operands:
            for one in (one for one in self.picked if one.name == operand.name):
                name, at = one.name, f"{one.name}_at"
                place = Address(f"{one.index}_ptr", (V.batch * stride(one.index, "batch"),))
                lines.append(Let(at, Access(place).value))
                lines.append(Let(f"{name}_exists", (V[at] >= 0) & (V[at] < self.size_name(one.axis))))
                if masks:
                    side = ("row_mask", "col_mask")[operand.side]
                    lines.append(Let(f"{name}_mask", tl.where(f"{name}_exists", side, False)))
        return lines

    def base(self, operand: Operand) -> str:
        return f"{operand.name}_{('rows', 'cols')[operand.side]}"

    def address(self, tensor: Tensor, side: int | None = None, uniform: Mapping[str, int] = NONE) -> Address:
        """Of the elements of a block of a side, or else of a tile and the group in hand.

        Of a tile's rows or columns, `uniform` has those along which the tensor has one element for all.
        """
        places = {"batch": V.batch, "rows": V.rows, "cols": V.cols, "inner": inner_of(side)}
        if side is None:
            places["cols"] = V[self.columns(tensor.axes)]
        places |= {role: self.first(role) for role in uniform}
        terms: list[Expr] = []
        for role in sorted(self.contraction.roles(tensor.axes), key=list(places).index):
            lacks = self.contraction.lacking(role, tensor.axes)
            if role == "inner" and side is None:
                lacks = tuple(axis for axis in lacks if axis in self.contraction.groups)
            at = functools.reduce(operator.floordiv, map(self.size_name, reversed(lacks)), places[role])
            terms.append(at * stride(tensor.name, role))
        return Address(tensor.pointer, (*terms,))

    def first(self, role: str) -> Expr:
        """Where the rows or the columns of a tile begin."""
        return V[f"first_{SUFFIX[role]}"].to("INDEX")

    def of_result(self, result: Result) -> Address:
        """The address of a contiguous result that has not all of batch, rows and columns."""
        roles = self.contraction.roles(result.axes)
        counts = {"rows": V.n_rows, "cols": V.n_cols // self.group if self.group else V.n_cols}
        places = {"batch": V.batch, "rows": V.rows, "cols": V[self.columns(result.axes)]}
        at = (
            product(place, *(counts[other] for other in ("rows", "cols")[n:] if other in roles))
            for n, (role, place) in enumerate(places.items())
            if role in roles
        )
        return Address(f"{result.output.name}_ptr", (*at,))

    @property
    def group(self) -> int:
        """How many columns a group has; 0 where there are none."""
        sizes = dict(self.op.sizes)
        return math.prod(sizes[axis] for axis in self.contraction.col_groups) if self.contraction.col_groups else 0

    def columns(self, axes: tuple[str, ...]) -> str:
        """The positions of a tile that tell where a tensor with some of the columns' axes lies."""
        telling = self.contraction.telling("cols", axes)
        return {self.contraction.cols: "cols", self.contraction.col_groups: "inside"}.get(telling, "groups")

    def mask(self, axes: tuple[str, ...], side: int | None = None) -> Expr | None:
        roles = set(self.contraction.roles(axes))
        if side is None and self.group:  # Tiles have full groups: no mask within one.
            roles -= {"cols"} if self.columns(axes) == "inside" else set()
        if {"rows", "cols"} <= roles:
            return V.tile_mask
        found = {
            "rows": V.row_mask,
            "cols": V.col_mask,
            "inner": None if side is None else inner_of(side, "inner_mask"),
        }
        return joined(*(mask for role, mask in found.items() if role in roles))

    def load(self, tensor: Input, side: int | None = None) -> list[Line]:
        read = self.loaded(tensor, side)
        if tensor.default is None or tensor.name in self.op.chosen:
            plain = Let(tensor.name, read.value)
            uniform = self.uniform(tensor) if side is None else NONE
            if not uniform:
                return [plain]
            fits = functools.reduce(Expr.and_, ((expr(size) % BLOCK[role]).equals(0) for role, size in uniform.items()))
            one = Let(tensor.name, self.loaded(tensor, side, uniform).value)
            return [Branch(fits, (one,), (plain,), comment="One element for the entire tile.")]
        typed = meets_tensors(self.op, tensor.name) or tensor.type.dtypes == ("bool",)
        # It may be stored as a full tile.
        shape = "tile_mask.shape" if side is None and self.mask(tensor.type.axes) == V.tile_mask else ()
        number: Term = tensor.default if typed else tl.full(shape, tensor.default, self.compute.text)
        return if_given(tensor, tensor.name, read, number)

    @property
    def full_mask(self) -> Expr:
        """The mask of all elements of a tile, where `tile_mask` has one element for each group."""
        return V.row_mask & (V.cols < V.n_cols) if self.group else V.tile_mask

    def fills(self, node: Node) -> bool:
        """Whether something has its rows and columns, whatever params choose and whichever inputs are left out."""
        sums = {*self.contraction.names, *self.contraction.sums}
        sides = (*self.contraction.rows, *self.contraction.cols)
        lasting = guaranteed_axes(self.op, node, sums).intersection(sides, node.axes)
        return {*self.contraction.roles(tuple(lasting))} == {*self.contraction.roles(sides)}

    def loaded(self, tensor: Input, side: int | None, uniform: Mapping[str, int] = NONE) -> Access:
        mine = Tensor(tensor.name, tensor.type.axes, tensor.default is not None)
        varies = tuple(axis for axis in mine.axes if self.contraction.roles((axis,))[0] not in uniform)
        mask = self.mask(varies, side)
        to = widening(self.op, self.compute, tensor) + self.restoring(tensor)
        return Access(self.address(mine, side, uniform), mask, nothing_of(tensor), to)

    def uniform(self, tensor: Input) -> dict[str, int]:
        """The roles along which adjacent positions share an element, and how many do: fixed lengths that tiles may
        divide.
        """
        sizes, found = dict(self.op.sizes), dict[str, int]()
        for role in ("rows",) if self.group else ("rows", "cols"):
            lacks = self.contraction.lacking(role, tensor.type.axes)
            if lacks and role in self.contraction.roles(tensor.type.axes) and all(axis in sizes for axis in lacks):
                found[role] = math.prod(sizes[axis] for axis in lacks)
        return found

    def restoring(self, tensor: Input) -> tuple[str, ...]:
        """The conversion of integers that may be passed as int32 to the dtype of the spec; () for other inputs."""
        if tensor.name not in self.restored:
            return ()
        (dtype,) = tensor.type.dtypes
        return (f"tl.{'int1' if dtype == 'bool' else dtype}",)

    def read_by_pointer(self, operand: Operand) -> list[Line]:
        name, inner = operand.name, inner_of(operand.side)
        alignment = ALIGN[("rows", "cols")[operand.side]]
        at = Address(self.base(operand), (runtime.offsets(inner, stride(name, "inner"), alignment),))
        mask = self.mask(operand.tensor.type.axes, operand.side)
        if self.is_picked(name):
            mask = V[f"{name}_mask"] & inner_of(operand.side, "inner_mask")
        restoring = self.restoring(operand.tensor)
        comment = "The wrapper widens it for a float64 matmul." if restoring else ""
        return [Let(name, Access(at, mask, nothing_of(operand.tensor), restoring).value, comment=comment)]

    def index(self, axis: str, side: int | None) -> Expr:
        """The position along an axis."""
        role = self.contraction.roles((axis,))[0]
        found, axes = V[role], self.contraction.axes(role)
        if role == "cols" and side is None:
            found, axes = V[self.columns((axis,))], self.contraction.telling(role, (axis,))
        if role == "inner":
            found = inner_of(side)
            axes = axes if side is not None else self.contraction.groups
        for below in reversed(axes[axes.index(axis) + 1 :]):
            found //= self.size_name(below)
        return found % self.size_name(axis) if axis != axes[0] else found

    def size(self, axes: tuple[str, ...]) -> Expr:
        for role in ("rows", "cols"):
            if set(axes) == set(self.contraction.axes(role)):
                return V[COUNTS[role]]
        return product(*(expr(self.size_name(axis)) for axis in axes))

    def size_name(self, axis: str) -> str:
        fixed = dict(self.op.sizes).get(axis)
        return str(fixed) if fixed else "size_batch" if axis == BATCH else f"size_{axis.lower()}"


def inner_of(side: int | None, name: str = "inner") -> Expr:
    """The positions in a block of the inner axes, or their mask, as they lie on a side; else the group in hand."""
    return V.group if side is None else V[name][:, None] if side else V[name][None, :]


def stride(name: str, role: str) -> str:
    return f"stride_{name}_{SUFFIX[role]}"
