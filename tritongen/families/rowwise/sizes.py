"""Lengths and strides, which the host passes to kernels over rows in addition to tensors and params.

One tuple has those for all kernels of a step; a kernel may take a slice of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

from ...emit.module import Around, Common
from ...emit.statements import Length, Let, Statement, call
from ...lang.ir import Load
from ...lowering.axes import length_of
from ...lowering.lower import compute_of
from ...lowering.space import row_space
from ...lowering.views import Kernel
from ...nest.values import Expr, Term, V, expr
from ...spec.types import BATCH
from ..family import P

_SHAPE = (V.n_rows, V.n_cols)
_OF_SPLITS = (V.n_splits, V.split_cols)  # which the runtime adds


class RowSizes(Common):
    """The modules of families over rows."""

    @cached_property
    def column_strides(self) -> dict[str, Expr]:
        return self.host.column_strides()

    @cached_property
    def every(self) -> list[Expr]:
        """The lengths and strides that the kernels take, in the order of `sizes`."""
        every = [size for kernel in self.kernels for size in self.own_sizes(kernel)]
        shape = [size for size in _SHAPE if size in every]
        return [*shape, *(size for size in dict.fromkeys(every) if size not in shape)]

    def own_sizes(self, kernel: Kernel) -> list[Expr]:
        """The lengths and strides that a kernel takes."""
        return [size for size in self.arguments(kernel)[1] if size not in _OF_SPLITS]

    def args(self, kernel: Kernel) -> tuple[Term, ...]:
        """The arguments of a kernel: its tensors, sizes and params."""
        tensors, params = self.given(kernel)
        return tensors, self.passed(kernel), params

    def passed(self, kernel: Kernel) -> Term:
        """The part of `sizes` that a kernel takes."""
        own, every = self.own_sizes(kernel), self.every
        if own == every:
            return V.sizes
        if set(own) <= {*_SHAPE}:
            return tuple(own)
        places = [every.index(size) for size in own]
        breaks = [n for n, (one, other) in enumerate(pairwise(places), 1) if other != one + 1]
        runs = [(places[a], places[b - 1] + 1) for a, b in pairwise([0, *breaks, len(places)])]
        found = [V.sizes[first or None : end if end < len(every) else None] for first, end in runs]
        return found[0] if len(runs) == 1 else tuple(one.each for one in found)

    def sized(self, empty: Iterable[Statement]) -> Iterator[Statement]:
        """Assigns `n_rows` and `n_cols`, then yields `empty`, the statements for empty tensors, and assigns `sizes`."""
        yield Length(("n_rows", "n_cols"), (length_of(self.space.row_axes), length_of(self.space.col_axes)))
        yield from empty
        if self.folds and self.is_plain():
            yield from self.folded()
            return
        yield from self.host.fold("rows", self.space.rows) if self.folds else ()
        yield from () if self.column_strides else self.host.fold("cols", self.space.cols)
        strides = {V[f"{name}_cols"][0]: own for name, own in self.column_strides.items()} | self.row_strides()
        yield Let("sizes", tuple(self.spelled(strides)))

    @property
    def folds(self) -> bool:
        """Whether the host folds dimensions of the rows: some kernel takes their sizes, and several may fold."""
        names = {name for size in self.every if size not in _SHAPE for name in size.names}
        if not any(name == "row_sizes" or name.endswith("_rows") for name in names):
            return False
        free = [dim for dim in self.space.rows if not dim.pinned]
        return len(free) > 1 or any(dim.axes[0] == BATCH for dim in free)

    def is_plain(self) -> bool:
        """Whether each tensor has all row axes, in their order, or none, and at most one axis of columns after them."""
        rows, cols = self.space.row_axes, self.space.col_axes
        if any(dim.pinned for dim in self.space.rows) or not self.column_strides:
            return False
        moving = {name: axes for group in self.groups() for name, axes in group}
        plain = ((*rows, *cols), cols, rows)
        return all(axes in plain for axes in moving.values()) and self.every == self.expected()

    def groups(self) -> list[list[tuple[str, tuple[str, ...]]]]:
        """The tensors whose strides are passed, with their axes: with rows and columns, with columns, and with rows."""
        rows, cols = self.space.rows, self.space.cols
        every = {name for size in self.every for name in size.names}
        found: dict[tuple[bool, bool], list[tuple[str, tuple[str, ...]]]] = {}
        for name, axes, _ in self.host.moving(self.space.dims):
            if {f"{name}_rows", f"{name}_cols"} & every:
                kind = (bool(self.space.steps(axes, rows)), bool(self.space.steps(axes, cols)))
                found.setdefault(kind, []).append((name, axes))
        return [found.get(kind, []) for kind in ((True, True), (False, True), (True, False))]

    def expected(self) -> list[Expr]:
        """The sizes in the order of the runtime."""
        tiles, by_col, by_row = ([name for name, _ in group] for group in self.groups())
        dims = range(len(self.space.rows))
        found = [*_SHAPE, *map(V.row_sizes.__getitem__, dims[1:])]
        for name in tiles:
            found += [*map(V[f"{name}_rows"].__getitem__, dims), V[f"{name}_cols"][0]]
        found += [V[f"{name}_cols"][0] for name in by_col]
        return [*found, *(V[f"{name}_rows"][dim] for name in by_row for dim in dims)]

    def folded(self) -> list[Statement]:
        """The rows folded by the runtime."""
        groups = zip(("tiles", "by_col", "by_row"), self.groups(), strict=True)
        every = {kind: tuple(name for name, _ in group) for kind, group in groups}
        named = {kind: names for kind, names in every.items() if names or kind == "tiles"}
        (cols,) = self.space.col_axes
        n_dims = len(self.space.rows)
        fixed = {"n_dims": n_dims, "rows": self.host.sizes(self.space.row_axes), "n_cols": cols}
        return self.host.folded("sizes", call("rowwise.sizes", **fixed, **named), self.space.row_axes, n_dims)

    def row_strides(self) -> dict[Expr, Expr]:
        """The lengths and strides of rows whose dimensions are passed as they are."""
        if self.folds:
            return {}
        found = {V.row_sizes[place]: V[dim.axes[0]] for place, dim in enumerate(self.space.rows)}
        for name, axes, optional in self.host.moving(self.space.rows):
            for place, dim in enumerate(self.space.rows):
                found[V[f"{name}_rows"][place]] = self.host.stride(name, axes, dim.axes[0], optional)
        return found

    def spelled(self, strides: dict[Expr, Expr]) -> list[Expr]:
        """All sizes; adjacent strides that are all of a tensor become `*x.stride()`, and all of `x_rows` `*x_rows`."""
        n_rows, n_cols = len(self.space.rows), len(self.space.cols)
        tensors = {name: len(axes) for name, axes in self.op.tensors.items()}
        lengths = {"row_sizes": n_rows, "col_sizes": n_cols}
        lengths |= {f"{name}_{group}": n for name in tensors for group, n in (("rows", n_rows), ("cols", n_cols))}
        runs = {V[name]: [*map(V[name].__getitem__, range(length))] for name, length in lengths.items()}
        runs |= {one[1:]: run[1:] for one, run in runs.items()}
        strides_of = {name: V[name].method for name in tensors}
        runs |= {
            strides_of[name]("stride"): [strides_of[name]("stride", n) for n in range(-rank, 0)]
            for name, rank in tensors.items()
        }
        found = [strides.get(size, size) for size in self.every]
        for short, run in runs.items():
            for first in range(len(found)):
                if len(run) > 1 and found[first : first + len(run)] == run:
                    found[first : first + len(run)] = [short.each]
        return found

    # How columns lie in memory

    def contiguous_cols(self) -> Expr:
        """Whether the largest tensor has contiguous columns; true if none has columns, false if read by rows."""
        if not self.host.moving(self.space.cols):
            return expr(True)
        if self.is_read_by_rows():
            return expr(False)
        largest = self.largest()
        stride = self.column_strides.get(largest)
        return stride.equals(1) if stride else expr(1).is_in(f"{largest}_cols")

    @property
    def loads(self) -> list[Load]:
        return [node for node in self.op.nodes if isinstance(node, Load)]

    def is_read_by_rows(self) -> bool:
        """Whether the inputs' axes determine that adjacent rows are coalesced in all inputs, but adjacent columns in
        the largest alone: each column may look up a row of a table.
        """
        rows, cols = self.space.row_axes[-1:], self.space.col_axes
        largest = [load for load in self.loads if load.name == self.largest()]
        by_col = [all(self.is_coalesced(load, cols) for load in some) for some in (largest, self.loads)]
        return by_col == [True, False] and all(self.is_coalesced(load, rows) for load in self.loads)

    def is_coalesced(self, load: Load, axes: tuple[str, ...]) -> bool:
        """Whether elements along `axes` are adjacent in memory, or the same element."""
        last = self.op.input(load.name).type.axes[-1:]
        return not {*load.axes} & {*axes} or (set(last) <= {*axes} and not set(last) & dict(load.at).keys())

    def largest(self) -> str:
        """The tensor with columns that has the most axes, or the first input if none has columns."""
        moving = self.host.moving(self.space.cols)
        return max(moving, key=lambda entry: len(entry[1]))[0] if moving else self.op.inputs[0].name


def row_after_row(program: P, around: Around) -> P:
    """The program, with per-row results stored row after row, unless rows have several dims and an input's layout."""
    op = program.op
    space = row_space(op, program.over)
    host = around.host(op, space, compute_of(op), around.function, around.extra)
    found = {
        result.output.name
        for result in op.results
        if result.axes == space.row_axes and not result.over and (host.like(result) is None or len(space.rows) == 1)
    }
    return replace(program, op=replace(op, by_row=op.by_row | found))
