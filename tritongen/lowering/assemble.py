"""Puts a kernel together: pointers, the arguments that its lines mention, masks and device functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..lang.ir import Op, Result, Value
from ..lang.names import shown
from ..lang.promotion import is_float8
from ..nest.ir import BLANK, ROWS, Branch, Loop, Nest, Walk, lines_of
from ..passes.scalars import passed_numbers
from .choices import Choices, condition
from .lines import Line, condition_text, mentions, nested, shared_path, under
from .lower import Compute, Lowering
from .tile import Tile, loads
from .views import Argument, Kernel, Pass

BLOCKS = ("BLOCK_M", "BLOCK_N", "INDEX")
# How kernels that loop along rows go along columns and rows, and what their tiles are called.
_ALONG_ROWS = {
    "kernel": ("cols", "staged rows", ("STAGES", *BLOCKS)),
    "tiles_kernel": ("tiles of cols", "rows", BLOCKS),
    "cooperative_kernel": ("cols of a member", "shared rows", ("CTAS_PER_ROW", *BLOCKS)),
}


@dataclass(frozen=True, slots=True)
class Assembler:
    """Builds the kernels of one operator over one space. An argument exists where a line uses it.

    With `grouped` the strides of tensors of rows and columns come first, then of those of columns, then of rows.
    """

    tile: Tile
    grouped: bool = False
    choices: Choices = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "choices", Choices(self.tile.op))

    def bases(self, results: tuple[Result, ...], inputs: bool = True) -> list[Line]:
        lines: list[Line] = []
        tensors = [self.tile.tensor(tensor) for tensor in self.tile.op.inputs] if inputs else []
        tensors += [self.tile.result(result) for result in results]
        plain = {load.name for load in loads(value.node for value in self.tile.op.values)}
        names = plain | {result.output.name for result in results}
        for tensor in tensors:
            line = self.tile.base_line(tensor)
            if line is not None and tensor.name in names:
                lines.append(line)
        return lines

    def reads(
        self,
        values: list[Value],
        tiles: bool | None = None,
        policy: str = "",
        first: str = "",
        window: bool | None = None,
    ) -> list[Line]:
        """The loads that some values need; with `tiles`, only those that vary along columns or not, and with `window`
        along what each element goes through.

        In a loop along the columns, `first` is the first of a block.
        """
        names = {load.name for load in loads(value.node for value in values)}
        lines: list[Line] = []
        for tensor in self.tile.op.inputs:
            steps, along = self.tile.moves(tensor.type.axes)
            inside = bool(self.tile.space.steps(tensor.type.axes, self.tile.space.taken))
            if tensor.name in names and tiles in (None, along) and window in (None, inside):
                path = self.choices.reading(tensor.name, values)
                lines += under(path, self.tile.load_lines(tensor, policy if steps and along else "", first))
        return lines

    def stores(self, results: Iterable[Result]) -> list[Line]:
        return [line for result in results for line in self.store(result)]

    def store(self, result: Result, where: str = "") -> list[Line]:
        lines = self.tile.store_lines(result, stored(self.tile.op, result), where)
        return lines if result.when else under(condition(result.paths), lines)

    def walked(self, walk: Pass, how: str = "cols") -> Nest:
        """The loop of a walk, under the `if` of what all that it does depends on."""
        path = shared_path([line.path for line in walk.body])
        count = len(path)
        inside = next((n for n, line in enumerate(walk.after) if line.path[:count] != path), len(walk.after))
        start, body, after = (
            nested(replace(line, path=line.path[count:]) for line in lines)
            for lines in (walk.start, walk.body, walk.after[:inside])
        )
        loop = Loop(how + " backwards" * walk.backwards, (*self.tile.col_decode(), *body))
        own: Nest = (*start, loop, *after)
        own = (Branch(Line(f"if {condition_text(path)}:"), own),) if path else own
        comment = (Line(f"# {walk.comment}"),) if walk.comment else ()
        return (*comment, *own, *nested(walk.after[inside:]))

    def kernel(
        self,
        suffix: str,
        doc: str,
        lowering: Lowering,
        setup: list[Line],
        *nests: Sequence[Any],
        walks: Nest = (ROWS,),
        blocks: tuple[str, ...] = BLOCKS,
        tiles: bool = True,
    ) -> Kernel:
        """A kernel that knows its positions by `walks`, finds what it reads, and does what is in the nests."""
        inside = tuple(one for nest in nests for one in nested(nest))
        inner = [*lines_of(inside)]
        setup = [*nested(setup)]
        setup = [line for line in setup if not line.assigned or mentions([*setup, *inner], line.assigned, 2)]
        lines = [*setup, *inner]
        decode = tuple(line for line in self.tile.row_decode() if any(mentions(lines, name) for name in line.targets))
        every = [*decode, *lines]
        casts = [
            line for line in param_casts(self.tile.op, self.tile.compute, lowering) if mentions(lines, line.assigned)
        ]
        pointers = [f"{t.name}_ptr" for t in self.tile.op.inputs] + [
            f"{r.output.name}_ptr" for r in self.tile.op.results
        ]
        arguments = [Argument(p, p[:-4]) for p in pointers if mentions(every, p)]
        arguments += self.size_arguments(every, tiles)
        arguments += self.stride_arguments(every)
        arguments += param_arguments(self.tile.op, self.tile.compute, every)
        constexprs = [p.name for p in self.tile.op.params if p.kind in ("bool", "enum") and mentions(every, p.name)]
        fixed = tuple(p.name for p in self.tile.op.params if p.kind == "int" and mentions(every, p.name))
        compute = ("COMPUTE",) if self.tile.compute.constexpr and mentions([*lines, *casts], "COMPUTE") else ()
        of_blocks = tuple(name for name in ("VECTOR", "UNIFORM") if mentions(lines, name))
        # The one mask of a flat kernel is an argument.
        uses_mask = not self.tile.space.flat and mentions(lines, "tile_mask")
        aligned = self.tile.aligned and tiles and (uses_mask or any(mentions(every, n) for n in ("col_mask", "ALIGN")))
        if not (uses_mask or mentions(lines, "row_mask")):
            arguments = [argument for argument in arguments if argument.spelling != "n_rows"]
        before = (*casts, *decode, *setup)
        return Kernel(
            name=f"{self.tile.op.name}_{suffix}",
            doc=doc,
            arguments=tuple(arguments),
            constexprs=(*constexprs, *compute, *of_blocks, *(("ALIGN",) if aligned else ())),
            blocks=blocks,
            setup=before,
            body=(*walks, *before, *inside),
            fixed=fixed,
            aligned=aligned,
        )

    def part(
        self, suffix: str, doc: str, lowering: Lowering, setup: list[Line], walk: Pass, stores: Sequence[Any]
    ) -> Kernel:
        """A kernel that goes along a part of the columns."""
        part = Walk("part" + " backwards" * walk.backwards)
        return self.kernel(suffix, doc, lowering, setup, [BLANK, part, *self.walked(walk, "part")], stores)

    def along_rows(
        self,
        suffix: str,
        doc: str,
        lowering: Lowering,
        before: Sequence[Line],
        stages: Sequence[Sequence[Line]],
        after: Sequence[Line] = (),
    ) -> Kernel:
        """A kernel that loops along rows, in stages where CTAs share these: it reads a row two steps ahead of its use,
        reduces it one step ahead. Params come before the loop, what finds a row in memory before what reads it.
        """
        how, loop, blocks = _ALONG_ROWS[suffix]
        before, after = nested(before), nested(after)
        stages = [nested(stage) for stage in stages]
        bases = self.bases(self.tile.op.results)
        kernel = self.kernel(suffix, doc, lowering, bases, before, *stages, after, blocks=blocks)
        casts = [line for line in param_casts(self.tile.op, self.tile.compute, lowering) if line in kernel.setup]
        bases = [line for line in kernel.setup if line not in casts]
        steps = map(Walk, ("two steps ahead", "one step ahead", "now") if len(stages) > 1 else ("rows of a step",))
        inside = (one for step, stage in zip(steps, stages, strict=True) for one in (step, *_located(bases, stage)))
        return replace(kernel, body=(Walk(how), *casts, *before, Loop(loop, tuple(inside)), *after))

    def size_arguments(self, lines: list[Line], tiles: bool) -> list[Argument]:
        found = [Argument("n_rows", "n_rows")] if self.tile.space.dims else []
        if tiles or mentions(lines, "n_cols"):
            found.append(Argument("n_cols", "n_cols"))
        names = [dim.size for dim in self.tile.space.rows[1:]] + [dim.size for dim in self.tile.space.cols[1:]]
        for axis in self.tile.op.axes:
            name = self.tile.size_name(axis)
            if name not in ("n_cols", *names) and mentions(lines, name):
                names.append(name)
        for name in names:
            if name.isidentifier() and mentions(lines, name):
                found.append(Argument(name, self.size_value(name)))
        return found

    def size_value(self, name: str) -> str:
        for position, dim in enumerate(self.tile.space.rows):
            if dim.size == name and len(self.tile.space.rows) > 1:
                return f"row_sizes[{position}]"
        for position, dim in enumerate(self.tile.space.cols):
            if dim.size == name:
                return f"col_sizes[{position}]"
        if name == "size_batch":
            return "math.prod(batch)"
        return next(axis for axis in self.tile.op.axes if self.tile.size_name(axis) == name)

    def stride_arguments(self, lines: list[Line]) -> list[Argument]:
        found: list[Argument] = []
        tensors = [self.tile.tensor(tensor) for tensor in self.tile.op.inputs]
        tensors += [self.tile.result(result) for result in self.tile.op.results]
        if self.grouped:
            tensors.sort(key=lambda tensor: _GROUPS.index(self.tile.moves(tensor.axes)))
        for tensor in tensors:
            for group, dims in (("rows", self.tile.space.rows), ("cols", self.tile.space.cols)):
                for position, dim in enumerate(dims):
                    name = tensor.stride(dim)
                    if dim in self.tile.space.steps(tensor.axes, dims) and mentions(lines, name):
                        found.append(Argument(name, f"{tensor.name}_{group}[{position}]"))
            for dim in self.tile.space.steps(tensor.axes, self.tile.space.taken):
                if mentions(lines, tensor.stride(dim)):
                    position = tensor.axes.index(dim.axes[0]) - len(tensor.axes)
                    stride = f"{tensor.name}.stride({position})"
                    otherwise = f" if {tensor.name} is not None else 0" if tensor.optional else ""
                    found.append(Argument(tensor.stride(dim), stride + otherwise))
        return found


# Whether tensors move along rows and along columns, in the order of groups.
_GROUPS = ((True, True), (False, True), (True, False), (False, False))


def stored(op: Op, result: Result) -> str:
    """A result in the dtype that it is stored in, where the store itself does not see to that."""
    kinds = (result.dtype.kind, result.node.dtype.kind)
    bools = kinds != ("bool", "bool") and (kinds[0] in ("any", "bool") or kinds[1] == "bool")
    return converted(op, result) if bools or is_float8(op, result.dtype) else result.output.name


def converted(op: Op, result: Result) -> str:
    """A result in the dtype that it is stored in."""
    name = result.output.name
    dtype = f"{name}_ptr.dtype.element_ty"
    return f"to_float8({name}, {dtype})" if is_float8(op, result.dtype) else f"{name}.to({dtype})"


def param_casts(op: Op, compute: Compute, lowering: Lowering) -> list[Line]:
    """Float params come as float64 where the kernel may compute in it, others in what Triton finds enough."""
    casts = dict.fromkeys(sorted(lowering.integers.wide, key=shown), "tl.int64")
    if compute.constexpr:
        casts |= {name: "COMPUTE" for name, kind in passed_numbers(op).items() if kind == "float"}
    names = (name for name in passed_numbers(op) if name in casts)
    return [Line(f"{name} = tl.full((), {name}, {casts[name]})") for name in names]


def param_arguments(op: Op, compute: Compute, lines: list[Line]) -> list[Argument]:
    """The numbers among the params, and those that the host computes of them, that some lines mention."""
    found = []
    for name, kind in passed_numbers(op).items():
        if mentions(lines, name):
            wide = kind == "float" and compute.constexpr
            found.append(Argument(f"{name}: tl.float64" if wide else name, name))
    return found


def _located(bases: Sequence[Line], lines: Sequence[Any]) -> Nest:
    """Some lines after those that find what they read or write in memory."""
    found = list(lines)
    for line in reversed(bases):
        if any(mentions(lines_of(found), name) for name in line.targets):
            found.insert(0, line)
    return tuple(found)
