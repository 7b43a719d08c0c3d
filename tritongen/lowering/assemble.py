"""Puts a kernel together: pointers, the arguments that its lines mention, masks and device functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from ..lang.integers import integers_of
from ..lang.ir import Op, Result, Value
from ..lang.names import shown
from ..lang.promotion import is_float8
from ..nest.conditions import condition_tree, shared_path
from ..nest.ir import BLANK, Branch, Let, Line, Nest, names_of, needed_by, nested, under, without_dead_code
from ..nest.values import Expr, V, either, expr, runtime, tl
from ..passes.scalars import passed_scalars
from ..spec.types import Input
from .axes import length_of
from .choices import Choices, condition
from .lower import Compute, Lowering
from .positions import CHUNK, CHUNK_BACKWARDS, MEMBER, ROWS, STAGES, STEP, along_cols, along_rows, cols_from
from .tile import Tensor, Tile, loads
from .views import Argument, Kernel, Pass

Further = tuple[Sequence[Argument], Sequence[Argument]]  # arguments before and after the pointers to tensors
NONE: Further = ((), ())
BLOCKS = ("BLOCK_M", "BLOCK_N", "INDEX")
# The tiles of kernels that loop along rows.
_BLOCKS_ALONG_ROWS = {
    "kernel": ("STAGES", *BLOCKS),
    "tiles_kernel": BLOCKS,
    "cooperative_kernel": ("CTAS_PER_ROW", *BLOCKS),
}


@dataclass(frozen=True, slots=True)
class Assembler:
    """Builds the kernels of one operator over one space. An argument exists if a line uses it.

    If `grouped`, strides come in the order of tensors of rows and columns, of columns only, of rows only.
    """

    tile: Tile
    grouped: bool = False
    choices: Choices = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "choices", Choices(self.tile.op))

    def bases(self, results: tuple[Result, ...], inputs: bool = True) -> list[Line]:
        tensors = [*map(self.tile.tensor, self.inputs_of(self.tile.op.values) if inputs else ())]
        tensors += map(self.tile.result, results)
        return [line for line in map(self.tile.base_line, tensors) if line is not None]

    def lowering(
        self, reduce: Callable[[Any, Lowering], Expr] | None = None, kind: type[Lowering] = Lowering
    ) -> Lowering:
        """The lowering of nodes to expressions of its kernels."""
        return self.tile.lowering(self.choices, reduce, kind)

    def inputs_of(
        self, values: Iterable[Value], rows: bool | None = None, cols: bool | None = None, window: bool | None = None
    ) -> list[Input]:
        """The inputs that values load. `rows`, `cols` and `window`, unless None, select inputs that do or do not vary
        along rows, along columns, and along the window that each element iterates over.
        """
        names = {load.name for load in loads(v.node for v in values if self.choices.is_needed(v.name))}
        found = []
        for tensor in self.tile.op.inputs:
            inside = bool(self.tile.space.steps(tensor.type.axes, self.tile.space.taken))
            known = zip((rows, cols, window), (*self.tile.moves(tensor.type.axes), inside), strict=True)
            found += [tensor] if tensor.name in names and all(one in (None, own) for one, own in known) else []
        return found

    def reads(
        self,
        values: Sequence[Value],
        rows: bool | None = None,
        cols: bool | None = None,
        policy: str = "",
        first: Expr | None = None,
        window: bool | None = None,
    ) -> list[Line]:
        """The loads of inputs that values need, selected as by `inputs_of`; `first` is the first column of a block in a
        loop along columns.
        """
        lines: list[Line] = []
        for tensor in self.inputs_of(values, rows, cols, window):
            own = policy if all(self.tile.moves(tensor.type.axes)) else ""
            lines += under(self.choices.reading(tensor.name, values), self.tile.load_lines(tensor, own, first))
        return lines

    def stores(self, results: Iterable[Result]) -> list[Line]:
        return [line for result in results for line in self.store(result)]

    def store(self, result: Result, where: Expr | None = None) -> list[Line]:
        lines = self.tile.store_lines(result, stored(self.tile.op, result), where)
        return lines if result.when else under(condition(result.paths), lines)

    @property
    def end(self) -> Expr:
        return runtime.aligned(V.n_cols, V.ALIGN) if self.tile.aligned else V.n_cols

    def walked(self, walk: Pass, is_chunk: bool = False) -> Nest:
        """The loop of a pass, inside an `if` of the conditions that all of its body depends on."""
        path = shared_path([line.path for line in walk.body])
        count = len(path)
        inside = next((n for n, line in enumerate(walk.after) if line.path[:count] != path), len(walk.after))
        start, body, after = (
            nested(replace(line, path=line.path[count:]) for line in lines)
            for lines in (walk.start, walk.body, walk.after[:inside])
        )
        loop = along_cols((*self.tile.col_decode(), *body), self.end, is_chunk, walk.backwards)
        own: Nest = (*start, *loop, *after)
        own = (Branch(Expr(condition_tree(path)), own),) if path else own
        return (replace(own[0], comment=walk.comment), *own[1:], *nested(walk.after[inside:]))

    def kernel(
        self,
        suffix: str,
        doc: str,
        setup: list[Line],
        *nests: Sequence[Any],
        walks: Nest = ROWS,
        blocks: tuple[str, ...] = BLOCKS,
        further: Further = NONE,
    ) -> Kernel:
        """A kernel that computes its positions by `walks`, then what `nests` need of `setup`, then `nests`. Its
        arguments are the names that these read, with `further` ones before and after the pointers to tensors.
        """
        inside = tuple(one for nest in nests for one in nested(nest))
        return self.made(suffix, doc, (*walks, *self.needed(setup, inside), *inside), blocks, further)

    def needed(self, setup: list[Line], inside: Nest) -> list[Line]:
        """The lines that a nest needs before it: casts of params, positions of rows, and lines of `setup`."""
        casts = param_casts(self.tile.op, self.tile.compute)
        return [*needed_by(inside, [*casts, *self.tile.row_decode(), *nested(setup)])]

    def made(self, suffix: str, doc: str, body: Nest, blocks: tuple[str, ...], further: Further = NONE) -> Kernel:
        """A kernel whose arguments are the names that its body reads."""
        others, constexprs = [*self.sizes(), *self.strides()], ("VECTOR", "UNIFORM", "ALIGN")
        found = kernel_of(self.tile.op, self.tile.compute, self.tensors(), body, further, others, constexprs)
        return replace(found, name=f"{self.tile.op.name}_{suffix}", doc=doc, blocks=blocks)

    def by_chunks(
        self,
        suffix: str,
        doc: str,
        setup: list[Line],
        walk: Pass,
        stores: Sequence[Any],
        further: Further = NONE,
    ) -> Kernel:
        """A kernel that iterates over one chunk of the columns."""
        nest = (BLANK, *(CHUNK_BACKWARDS if walk.backwards else CHUNK), *self.walked(walk, is_chunk=True))
        return self.kernel(suffix, doc, setup, nest, stores, further=further)

    def along_rows(
        self,
        suffix: str,
        doc: str,
        before: Sequence[Line],
        stages: Sequence[Sequence[Line]],
        after: Sequence[Line] = (),
        further: Further = NONE,
    ) -> Kernel:
        """A kernel that loops over rows, in stages if CTAs share rows: it loads a row two steps ahead of its use, and
        reduces it one step ahead. Casts of params precede the loop, pointers to rows the lines that read them.
        """
        before, after = nested(before), nested(after)
        stages = [nested(stage) for stage in stages]
        found = self.needed(self.bases(self.tile.op.results), (*before, *chain(*stages), *after))
        bases = [line for line in found if line.assigned not in passed_scalars(self.tile.op)]
        casts = [line for line in found if line not in bases]
        steps = STAGES if len(stages) > 1 else (STEP,)
        inside = chain(*((*step, *needed_by(stage, bases), *stage) for step, stage in zip(steps, stages, strict=True)))
        body = (*self.cols_of(suffix), *casts, *before, *along_rows(suffix, tuple(inside)), *after)
        return self.made(suffix, doc, body, _BLOCKS_ALONG_ROWS[suffix], further)

    def cols_of(self, suffix: str) -> Nest:
        """The columns of a program that loops over rows: all columns, or those in its tile, or in its CTA."""
        if suffix == "cooperative_kernel":
            return (MEMBER, *cols_from(V.member.to("INDEX") * V.BLOCK_N, self.end))
        is_tile = suffix == "tiles_kernel"
        first = runtime.second_id(V.INDEX) * V.BLOCK_N if is_tile else expr(0)
        return cols_from(first, self.end, wide=not is_tile)

    def tensors(self) -> list[Tensor]:
        return [*map(self.tile.tensor, self.tile.op.inputs), *map(self.tile.result, self.tile.op.results)]

    def sizes(self) -> list[Argument]:
        """The arguments for lengths of rows and columns, of the dimensions that these fold, and of axes."""
        space, size_name = self.tile.space, self.tile.size_name
        values = {size_name(axis): length_of((axis,)) for axis in self.tile.op.axes}
        for group, dims in (("col", space.cols), ("row", space.rows)):
            values |= {dim.size: V[f"{group}_sizes"][n] for n, dim in enumerate(dims)} if len(dims) > 1 else {}
        values |= {"n_rows": V.n_rows, "n_cols": V.n_cols}
        inner = (dim.size for dims in (space.rows, space.cols) for dim in dims[1:])
        names = dict.fromkeys(("n_rows", "n_cols", *inner, *values))
        return [Argument(name, values[name]) for name in names if name.isidentifier()]

    def strides(self) -> list[Argument]:
        """The arguments for strides of each tensor along rows, columns, and axes read at computed positions."""
        found: list[Argument] = []
        tensors, space = self.tensors(), self.tile.space
        if self.grouped:
            tensors.sort(key=lambda tensor: _GROUPS.index(self.tile.moves(tensor.axes)))
        for tensor in tensors:
            for group, dims in (("rows", space.rows), ("cols", space.cols)):
                mine = space.steps(tensor.axes, dims)
                steps = (Argument(tensor.stride(dim), V[f"{tensor.name}_{group}"][n]) for n, dim in enumerate(dims))
                found += (step for step, dim in zip(steps, dims, strict=True) if dim in mine)
            for dim in space.steps(tensor.axes, space.taken):
                own = V[tensor.name]
                stride = own.method("stride", tensor.axes.index(dim.axes[0]) - len(tensor.axes))
                value = either(own.is_given, stride, 0) if tensor.optional else stride
                found.append(Argument(tensor.stride(dim), value))
        return found


# Whether tensors move along rows and along columns, in the order of groups.
_GROUPS = ((True, True), (False, True), (True, False), (False, False))


def kernel_of(
    op: Op,
    compute: Compute,
    tensors: Iterable[Tensor],
    body: Nest,
    further: Further,
    others: Iterable[Argument],
    constexprs: Iterable[str],
) -> Kernel:
    """A kernel whose arguments are `further` ones and tensors, `others`, params and constexprs that its body reads."""
    body = without_dead_code(body)
    names = names_of(body)
    pointers = (Argument(one.pointer, V[one.name]) for one in tensors)
    flags = (param.name for param in op.params if param.kind in ("bool", "enum"))
    constexprs = (*flags, *(["COMPUTE"] if compute.constexpr else []), *constexprs)
    return Kernel(
        name=op.name,
        doc="",
        arguments=(
            *further[0],
            *(one for one in pointers if one.name in names),
            *further[1],
            *(one for one in (*others, *param_arguments(op, compute)) if one.name in names),
        ),
        constexprs=tuple(name for name in constexprs if name in names),
        body=body,
        fixed=tuple(param.name for param in op.params if param.kind == "int" and param.name in names),
    )


def stored(op: Op, result: Result) -> Expr:
    """A result, cast to its stored dtype if the store itself would not convert it correctly (booleans, float8)."""
    kinds = (result.dtype.kind, result.node.dtype.kind)
    bools = kinds != ("bool", "bool") and (kinds[0] in ("any", "bool") or kinds[1] == "bool")
    return converted(op, result) if bools or is_float8(op, result.dtype) else V[result.output.name]


def converted(op: Op, result: Result) -> Expr:
    """A result in the dtype that it is stored in."""
    name = result.output.name
    dtype = f"{name}_ptr.dtype.element_ty"
    return runtime.to_float8(name, dtype) if is_float8(op, result.dtype) else V[name].to(dtype)


def param_casts(op: Op, compute: Compute) -> list[Line]:
    """Casts of scalars: wide integers to int64, and floats to COMPUTE if that is float32 or float64. If COMPUTE may be
    an integer dtype, float params are only compared and cast themselves: it would truncate them.
    """
    casts = dict.fromkeys(sorted(integers_of(op).wide, key=shown), "tl.int64")
    if compute.mode == "float":
        casts |= {name: "COMPUTE" for name, kind in passed_scalars(op).items() if kind == "float"}
    names = (name for name in passed_scalars(op) if name in casts)
    return [Let(name, tl.full((), name, casts[name])) for name in names]


def param_arguments(op: Op, compute: Compute) -> list[Argument]:
    """The arguments for scalar params, and for the scalars that the host computes from them."""
    wide = {name for name, kind in passed_scalars(op).items() if kind == "float" and compute.constexpr}
    return [Argument(f"{name}: tl.float64" if name in wide else name, V[name]) for name in passed_scalars(op)]
