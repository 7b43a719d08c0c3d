"""How a kernel over rows and columns reads, writes and indexes: the lines that all families share."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..lang.integers import INT64, Integers, bounds_of_dtypes, operands
from ..lang.ir import Call, Choose, Constant, Index, Load, Node, Op, Reduce, Ref, Result, Scalar, Value, children, walk
from ..nest.access import Access, Address, if_given
from ..nest.ir import Branch, Do, Let, Line
from ..nest.values import Expr, Term, V, expr, joined, product, runtime, tl, total
from ..passes.structure import below
from ..spec.types import BATCH, FLOAT8S, Input
from .choices import Choices
from .guards import Guard
from .lower import Compute, Lowering
from .space import Dim, Space


@dataclass(frozen=True, slots=True)
class Tensor:
    """A pointer argument of a kernel: its name in the math and the axes along which it moves."""

    name: str
    axes: tuple[str, ...]
    optional: bool = False

    @property
    def pointer(self) -> str:
        return f"{self.name}_ptr"

    def stride(self, dim: Dim) -> str:
        return f"stride_{self.name}_{dim.suffix}"

    def strides(self, dims: tuple[Dim, ...]) -> tuple[str, ...]:
        return tuple(self.stride(dim) for dim in dims)


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of a kernel over a space. `other` is the padding value of loads of floats along the columns.

    If `aligned`, the kernel has ALIGN, which divides the lengths and strides of rows.
    """

    op: Op
    space: Space
    compute: Compute
    other: float = 0.0
    aligned: bool = False

    def moves(self, axes: tuple[str, ...]) -> tuple[bool, bool]:
        """Whether a value with these axes varies along the rows and along the columns."""
        rows = bool(self.space.steps(axes, self.space.rows))
        return rows, bool(self.space.steps(axes, self.space.cols))

    def mask(self, axes: tuple[str, ...]) -> Expr | None:
        names = {(True, True): V.tile_mask, (True, False): V.row_mask, (False, True): V.col_mask}
        if self.space.flat:
            names[False, True] = V.tile_mask
        return names.get(self.moves(axes))

    def tensor(self, tensor: Input) -> Tensor:
        return Tensor(tensor.name, tensor.type.axes, tensor.default is not None)

    def result(self, result: Result) -> Tensor:
        return Tensor(result.output.name, result.axes, bool(result.when))

    # Where things are

    def row_decode(self) -> tuple[Line, ...]:
        """The lines that compute the position of a row in each dimension of the rows."""
        dims = self.space.rows
        if self.folds:
            return (Let("i", runtime.unravel(V.rows, dims[1].size, dims[2].size)),)
        return () if dims and dims[0].index == "rows" else decoded("rows", dims)

    @property
    def folds(self) -> bool:
        """Whether `row_of` computes pointers to rows: three free dimensions, whose positions are one tuple."""
        return self.aligned and len(self.space.rows) == 3 and not any(dim.pinned for dim in self.space.rows)

    def position(self, dim: Dim) -> Expr:
        """The position along a dimension, as addresses use it."""
        return V.i[self.space.rows.index(dim)] if self.folds and dim in self.space.rows else V[dim.index]

    def col_decode(self) -> tuple[Line, ...]:
        dims = self.space.cols
        return () if len(dims) == 1 else decoded("cols", dims)

    def base(self, tensor: Tensor) -> str:
        """The name of the pointer to a tensor's row, or to the tensor if addresses begin there."""
        return (
            f"{tensor.name}_row"
            if not self.is_full(tensor) and self.space.steps(tensor.axes, self.space.rows)
            else tensor.pointer
        )

    def is_full(self, tensor: Tensor) -> bool:
        """Whether addresses begin at the tensor's own pointer and not at a row of it."""
        return tensor.optional or tensor.name in self.op.by_row

    def base_line(self, tensor: Tensor) -> Line | None:
        dims = self.space.steps(tensor.axes, self.space.rows)
        if not dims or self.is_full(tensor):
            return None
        return Let(self.base(tensor), self.sum(tensor.pointer, dims, tensor).value)

    def address(self, tensor: Tensor) -> Address:
        if tensor.name in self.op.by_row:  # A single value for all rows is at the start.
            return Address(tensor.pointer, ("rows",) if tensor.axes else ())
        dims = self.space.dims if tensor.optional else self.space.cols
        return self.sum(self.base(tensor), self.space.steps(tensor.axes, (*dims, *self.space.taken)), tensor)

    def sum(self, base: Term, dims: tuple[Dim, ...], tensor: Tensor) -> Address:
        """A pointer and the offsets along some dimensions."""
        if self.space.flat:
            return Address(base)
        in_rows = [dim for dim in dims if dim in self.space.rows]
        rows = [self.position(dim) * tensor.stride(dim) for dim in in_rows]
        is_aligned = rows and self.aligned and all(self.moves(tensor.axes))
        if is_aligned and self.folds:
            base, rows = runtime.row_of(base, V.i, *map(tensor.stride, in_rows), V.ALIGN), []
        elif is_aligned:
            rows = [runtime.aligned(total(*rows), V.ALIGN)]
        others = (V[dim.index] * tensor.stride(dim) for dim in dims if dim not in self.space.rows)
        return Address(base, (*rows, *others))

    # Reading and writing

    def raw(self, tensor: Input, policy: str = "") -> Access:
        """The load of an input without casts, by the function `policy` if it is masked."""
        mine = self.tensor(tensor)
        mask, other = self.mask(mine.axes), None if self.space.flat else self.fill(tensor)
        return Access(self.address(mine), mask, other, by=policy if None not in (mask, other) else "")

    def load_lines(self, tensor: Input, policy: str = "", first: Expr | None = None) -> list[Line]:
        """The loads of an input; of one element if the full block, whose `first` column is given, shares it."""
        if first is not None and self.is_uniform(tensor):
            one = Let(tensor.name, self.read_once(tensor, first).value)
            return [
                Branch(
                    expr("UNIFORM"),
                    (one,),
                    (*self.load_lines(tensor, policy),),
                    comment="One element for the entire block.",
                )
            ]
        mine = self.tensor(tensor)
        read = replace(self.raw(tensor, policy), to=self.widen(tensor))
        if mine.optional and tensor.name not in self.op.chosen:
            return if_given(tensor, tensor.name, read, self.default(tensor, mine.axes))
        return [Let(tensor.name, read.value)]

    def is_uniform(self, tensor: Input) -> bool:
        """Whether neighbouring columns may share an element, because the input lacks the last of their axes."""
        cols, own = self.space.col_axes, tensor.type.axes
        free = len(self.space.cols) > 1 and not any(dim.pinned for dim in self.space.cols)
        return free and tensor.default is None and cols[-1] not in own and bool({*cols} & {*own})

    def read_once(self, tensor: Input, first: Expr) -> Access:
        """The load of the one element of a row in the block of columns that begins at `first`."""
        mine = self.tensor(tensor)
        dims = self.space.cols
        steps = (_along(first, dims, n).to("INDEX") * mine.stride(dim) for n, dim in enumerate(dims[:-1]))
        mask = V.row_mask if self.moves(mine.axes)[0] else None
        return Access(Address(self.base(mine), (*steps,)), mask, self.fill(tensor), self.widen(tensor))

    def default(self, tensor: Input, axes: tuple[str, ...]) -> Term:
        """The value of an absent input along `axes`: its default, as a tensor if nothing else determines its dtype."""
        number = tensor.default
        dtypes = set(tensor.type.dtypes)
        mask = self.mask(axes)
        # Operands of reductions and offsets of pointers have the shape that they have if the input is given.
        shape = mask.field("shape") if mask is not None and not self.space.flat else ()
        if mask is not None and tensor.name in indices(self.op):
            return tl.full(shape, number, "tl.int64")
        if dtypes == {"bool"} or meets_tensors(self.op, tensor.name):
            return number
        dtype = self.compute.text
        if bounds_of_dtypes(tensor.type.dtypes):
            dtype = dtype if "int" in dtype or self.compute.mode == "promote" else "tl.int32"
            dtype = "tl.int64" if dtypes == {"int64"} else dtype
        return tl.full(shape, number, dtype or "tl.float32")

    def fill(self, tensor: Input) -> float:
        floating = all("float" in dtype for dtype in tensor.type.dtypes)
        if not floating:
            return 0
        return self.other if self.moves(tensor.type.axes)[1] else 0.0

    def widen(self, tensor: Input) -> tuple[str, ...]:
        return widening(self.op, self.compute, tensor)

    def gather(self, node: Load, lowering: Lowering) -> Expr:
        """An element at computed positions; NaN (0 for integers) where one is out of range."""
        tensor = self.op.input(node.name)
        address, checks, fixed = self.located(node, lowering)
        mask = None if self.may_be_one(node) else self.mask_of_gather(node.axes)
        is_checked = bool(checks or fixed)
        if fixed and (mask is not None or checks):
            # Triton's interpreter takes no mask that is a tile's & a scalar's.
            mask, checks = (mask, checks) if mask is not None else (joined(*checks), [])
            mask, fixed = tl.where(joined(*fixed), mask, False), []
        other = math.nan if tensor.type.may_be_float and is_checked else nothing_of(tensor)
        read = Access(address, joined(mask, *fixed, *checks), other, self.widen(tensor))
        if tensor.default is None:
            return read.value
        return lowering.optional(tensor, read, self.default(tensor, node.axes))

    def guarded(self, guard: Guard, lowering: Lowering) -> Expr | None:
        """An element that is read only where a condition holds; None if its positions may be out of range there."""
        tensor = self.op.input(guard.read.name)
        address, checks, fixed = self.located(guard.read, lowering)
        moves = [self.moves(axes) for _, axes in guard.conditions]
        if fixed or tensor.default is not None or not guard.comparisons.issuperset(checks) or not all(map(any, moves)):
            return None
        # Conditions along rows only, and along columns only, are joined first, and then those of the full tile.
        found: dict[tuple[bool, bool], Expr | None] = {}
        for (condition, _), moved in zip(guard.conditions, moves, strict=True):
            found[moved] = joined(found.get(moved), condition)
        mask = joined(self.mask_of_gather(guard.read.axes), *found.values())
        return Access(address, mask, guard.otherwise, self.widen(tensor)).value

    def located(self, node: Load, lowering: Lowering) -> tuple[Address, list[Expr], list[Expr]]:
        """The address of a gathered element, and the comparisons that check its bounds, in two lists.

        The second list checks positions that are, or may be, uniform in a tile.
        """
        mine = self.tensor(self.op.input(node.name))
        checks: list[Expr] = []
        fixed: list[Expr] = []
        terms: list[Expr] = []
        at = dict(node.at)
        mask = self.mask_of_gather(node.axes)
        for dim in self.space.steps(mine.axes, (*self.space.dims, *self.space.taken)):
            moved = next((axis for axis in dim.axes if axis in at), None)
            if moved is None:
                terms.append(self.position(dim) * mine.stride(dim))
                continue
            position = lowering.expression(at[moved])
            if not position.is_name:
                position = lowering.hoist("at", position)
            terms.append(self.offset(position, at[moved], lowering.integers) * mine.stride(dim))
            if bounds := self.open_bounds(position, at[moved], moved, lowering.integers):
                masks = below(self.op, at[moved])
                varies = any(self.moves(at[moved].axes)) and not any(map(self.is_one_for_a_block, masks))
                is_tile = varies or (mask is None and any(isinstance(inner, Reduce) for inner in masks))
                own = checks if is_tile else fixed
                own += bounds
        return Address(mine.pointer, (*terms,)), checks, fixed

    def is_one_for_a_block(self, node: Node) -> bool:
        """Whether a node is an input that a block of columns may share one element of."""
        return isinstance(node, Load) and not node.at and self.is_uniform(self.op.input(node.name))

    def may_be_one(self, node: Load) -> bool:
        """Whether a block of columns may gather one element, at a position that lanes beyond the end have, too."""
        nodes = [inner for _, index in node.at for inner in below(self.op, index)]
        fixed = any(map(self.is_one_for_a_block, nodes)) and {*self.op.input(node.name).type.axes} <= {*dict(node.at)}
        moving = [inner for inner in nodes if isinstance(inner, Load | Index | Reduce) and any(self.moves(inner.axes))]
        return fixed and not self.moves(node.axes)[0] and all(map(self.is_one_for_a_block, moving))

    def mask_of_gather(self, axes: tuple[str, ...]) -> Expr | None:
        """The mask of a gather, without its bounds checks."""
        return self.mask(axes)

    def offset(self, at: Expr, node: Node, integers: Integers) -> Expr:
        """A position to be multiplied by a stride: in the dtype of offsets, whatever its own is."""
        made_of = [*_computed(node)]
        if any(isinstance(n, Load | Ref | Scalar) or n in integers.widened for n in made_of):
            return at.to("INDEX")
        is_small = isinstance(node, Constant) and node.value in (0, 1)
        return at if is_small or any(isinstance(n, Index) for n in made_of) else tl.full((), at, V.INDEX)

    def open_bounds(self, at: Expr, node: Node, axis: str, integers: Integers) -> list[Expr]:
        """The bounds checks of an index along an axis, without those that are known to hold."""
        before, behind = integers.known.may_be_outside(node, axis)
        past_low, past_high = integers.known.past(node, axis) or INT64
        known = {at >= 0: not before or past_low >= 0, at < self.size((axis,)): not behind or past_high <= 0}
        return [test for test, holds in known.items() if not holds]

    def store_lines(self, result: Result, value: Term, where: Expr | None = None) -> list[Line]:
        """The lines that store a result, `where` a condition holds."""
        mine = self.result(result)
        axes, first = mine.axes, list[Line]()
        address = self.address(mine) if axes or not self.space.dims else Address(mine.pointer, ("rows",))
        if mine.optional and not self.space.flat and axes and all(self.moves(axes)):
            row = replace(mine, optional=False)
            first, address = [line for line in [self.base_line(row)] if line], self.address(row)
        mask = (self.mask(axes) or V.row_mask) if self.space.dims else None
        # A result over an input: the input has been read for the last time.
        policy: dict[str, Term] = {"eviction_policy": ast.Constant("evict_first")} if result.over else {}
        store = Do(tl.store(address.value, value, **({"mask": mask} if mask else {}), **policy))
        is_given = V[mine.pointer].is_given if mine.optional else None
        test = is_given.and_(where) if is_given and where else is_given or where
        return [Branch(test, (*first, store))] if test else [*first, store]

    # For the lowering

    def lowering(
        self, choices: Choices, reduce: Callable[[Any, Lowering], Expr] | None = None, kind: type[Lowering] = Lowering
    ) -> Lowering:
        own = self.index, self.size, self.load, choices, reduce, self.dtype_of, self.guarded
        return kind(self.op, self.compute, *own)

    def dtype_of(self, name: str) -> str:
        """How kernels spell the dtype of an input."""
        return f"{name}_ptr.dtype.element_ty"

    def index(self, axis: str) -> Expr:
        dim = next(dim for dim in (*self.space.dims, *self.space.taken) if axis in dim.axes)
        return V[dim.index]

    def size(self, axes: tuple[str, ...]) -> Expr:
        if self.space.split and set(axes) == set(self.space.col_axes):
            return V.n_cols
        known = dict(self.op.sizes)
        if set(axes) <= set(known):
            return expr(math.prod(known[axis] for axis in axes))
        return self.product(axes)

    def product(self, axes: tuple[str, ...]) -> Expr:
        """The product of the lengths of axes: each fits in int32, but their product may not."""
        first, *others = (expr(self.size_name(axis)) for axis in axes)
        return product(tl.full((), first, "tl.int64"), *others) if others else first

    def size_name(self, axis: str) -> str:
        if self.space.split and self.space.col_axes == (axis,):
            return "n_cols"
        return "size_batch" if axis == BATCH else f"size_{axis.lower()}"

    def load(self, node: Load, lowering: Lowering) -> Expr:
        return self.gather(node, lowering) if node.at else V[node.name]


def nothing_of(tensor: Input) -> float:
    """The value of masked elements of a tensor."""
    return 0.0 if tensor.type.may_be_float else 0


def widening(op: Op, compute: Compute, tensor: Input) -> tuple[str, ...]:
    """The dtypes that an input is cast to for the computation, one after the other."""
    dtypes = set(tensor.type.dtypes)
    to = compute.text
    if not to or dtypes == {"bool"} or f"tl.{'|'.join(dtypes)}" == to:
        return ()
    if dtypes <= set(FLOAT8S):
        return widen_float8(to)
    if tensor.name in indices(op):
        return ()
    promotes = compute.constexpr and tensor.name in compute.of and not dtypes <= _AS_IN_TORCH
    return (to,) if tensor.type.may_be_float or tensor.type.joins_bools or promotes else ()


def widen_float8(compute: str) -> tuple[str, ...]:
    """The casts from float8 to `compute`, by way of float32."""
    return ("tl.float32", *((compute,) if compute != "tl.float32" else ()))


# Triton promotes these with all compute dtypes as torch does, so they keep all their digits until then.
_AS_IN_TORCH = frozenset({"int16", "int32", "int64"})


def _computed(node: Node) -> Iterator[Node]:
    """The nodes of an expression, without conditions of choices."""
    for child in children(node)[1 if isinstance(node, Choose) else 0 :]:
        yield from _computed(child)
    yield node


def meets_tensors(op: Op, name: str) -> bool:
    """Whether an input is used only in arithmetic with a tensor that is always present."""

    def there(node: Node) -> bool:
        if isinstance(node, Load):  # Elements of an absent tensor are absent, too.
            return op.input(node.name).default is None
        if isinstance(node, Ref):
            return node.name in always
        return isinstance(node, Index) or any(map(there, children(node)))

    always: set[str] = set()
    for value in op.values:
        always |= {value.name} if there(value.node) else set()
    uses = [node for node in op.nodes if any(isinstance(n, Load) and n.name == name for n in children(node))]
    plain = [n for n in uses if isinstance(n, Call) and n.function in ("add", "sub", "mul", "div", "where")]
    bare = any(isinstance(value.node, Load) and value.node.name == name for value in op.values)
    return not bare and len(plain) == len(uses) and all(any(map(there, operands(node))) for node in plain)


def indices(op: Op) -> set[str]:
    """The inputs that are used as positions; they keep their integer dtypes."""
    nodes = [node for node in op.nodes if isinstance(node, Load)]
    return {n.name for node in nodes for _, at in node.at for n in walk(at) if isinstance(n, Load)}


def loads(values: Iterable[Node]) -> list[Load]:
    """The plain loads of some nodes, without gathers."""
    return [n for value in values for n in walk(value) if isinstance(n, Load) and not n.at]


def needed(values: tuple[Value, ...], roots: Iterable[str], known: Container[str] = ()) -> list[Value]:
    """The values that `roots` need, themselves included, in order; without `known` ones, and what only they need."""
    left = [value for value in values if value.name not in known]
    wanted = set(roots)
    for value in reversed(left):
        if value.name in wanted:
            wanted |= value.node.references
    return [value for value in left if value.name in wanted]


def decoded(flat: Term, dims: tuple[Dim, ...]) -> tuple[Line, ...]:
    """The lines that unflatten a position along folded dimensions."""
    if len(dims) == 3 and not any(dim.pinned for dim in dims):
        first, second, third = (dim.index for dim in dims)
        return (Let(f"{first}, {second}, {third}", runtime.unravel(expr(flat), dims[1].size, dims[2].size)),)
    return tuple(Let(dim.index, _along(expr(flat), dims, place)) for place, dim in enumerate(dims))


def _along(flat: Expr, dims: tuple[Dim, ...], place: int) -> Expr:
    """The position along the dimension at `place` of several folded ones."""
    found = functools.reduce(lambda at, inner: at // inner.size, reversed(dims[place + 1 :]), flat)
    return found % dims[place].size if place else found
