"""The public function of a module: checks, shapes, allocation and the strides that launches pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from itertools import chain

from ..lang.ir import Dtype, Result
from ..lang.literals import literal, prose, word
from ..lang.names import public
from ..lowering.choices import condition
from ..lowering.space import Dim
from ..lowering.views import Field
from ..nest.conditions import condition_operand, condition_text
from ..passes.structure import without_strides
from ..spec.types import BATCH, FLOATS, AxisTerm, Input
from .axes import regrouped
from .host_checks import INTS, Checks, shape_text, tuple_text, word_list
from .statements import Call, If, Length, Let, Return, Statement, given

UNFOLDED = "Dimensions that do not fold: contiguous copies fold into one."


@dataclass(frozen=True, slots=True)
class Dtypes:
    """How host code spells the dtypes of tensors, of which some are left out at times."""

    texts: Mapping[str, str]
    optional: Set[str] = frozenset()

    def promoted(self, leaves: Iterable[str], are_given: bool = False) -> str:
        """The promotion of the dtypes of tensors, and of others by name."""
        texts = dict.fromkeys(map(self.given if are_given else self.given_or_none, leaves))
        first, *others = texts
        return f"tensors.promote({', '.join([first, *others])})" if others or first.startswith("*") else first

    def given(self, leaf: str) -> str:
        return self.texts.get(leaf, f"torch.{leaf}")

    def absent(self, leaf: str) -> str:
        return f"{self.given(leaf).removesuffix('.dtype')} is None"

    def given_or_none(self, leaf: str) -> str:
        return f"*(() if {self.absent(leaf)} else ({self.given(leaf)},))" if leaf in self.optional else self.given(leaf)

    def of(self, dtype: Dtype) -> str:
        """What a dtype is the promotion of."""
        if not dtype.otherwise or not self.optional >= {*dtype.of}:
            return self.promoted(dtype.of)
        are_absent = " and ".join(map(self.absent, dtype.of))
        return f"{self.promoted(dtype.otherwise)} if {are_absent} else {self.promoted(dtype.of, len(dtype.of) == 1)}"


@dataclass(frozen=True)
class Host(Checks):
    """Says what the wrapper of one operator over one space does.

    `parted` are tensors that callers see along more axes, each with the calls that part its own. `tables` are inputs by
    which kernels look others up, of which the math does not tell.
    """

    parted: tuple[tuple[str, str], ...] = ()
    tables: frozenset[str] = frozenset()

    @property
    def known_inputs(self) -> tuple[Input, ...]:
        """The tensors of which it has dtypes."""
        return self.op.inputs

    @property
    def dtypes(self) -> Dtypes:
        optional = frozenset(tensor.name for tensor in self.op.inputs if tensor.default is not None)
        return Dtypes({tensor.name: f"{tensor.name}.dtype" for tensor in self.op.inputs}, optional)

    def dtype_of(self, result: Result) -> str:
        return self.dtype(result.dtype)

    def dtype(self, dtype: Dtype, is_there: bool = False) -> str:
        """The dtype, of tensors that are all there if that `is_there`."""
        if dtype.rule == "compute":
            return "tensors.torch_dtype(compute)" if self.compute.constexpr else "torch.float32"
        if not dtype.leaves:
            return "torch.get_default_dtype()"
        inputs = {tensor.name: tensor for tensor in self.known_inputs}
        known = {leaf: {*inputs[leaf].type.dtypes} if leaf in inputs else {leaf} for leaf in dtype.leaves}
        ints = [leaf for leaf, own in known.items() if own <= INTS]
        floats = [leaf for leaf in dtype.of if known[leaf] <= {*FLOATS}]
        is_float = any(leaf not in inputs or inputs[leaf].default is None for leaf in floats)
        own = tuple(leaf for leaf in dtype.of if not is_float or leaf not in ints)
        dtypes = replace(self.dtypes, optional=frozenset()) if is_there else self.dtypes
        text = dtypes.of(replace(dtype, of=own))
        if is_float:
            return text
        if dtype.rule == "float":
            return "torch.get_default_dtype()" if len(ints) == len(known) else f"tensors.as_float({text})"
        if dtype.rule == "int" and any("bool" in own for own in known.values()):
            return f"tensors.int_dtype({text})"
        return f"tensors.sum_dtype({text})" if dtype.rule == "sum" else text

    def shape_inputs(self) -> tuple[Input, ...]:
        """Tensors whose shapes or dtypes are passed though they are not."""
        return ()

    def alike(self) -> tuple[tuple[str, str], ...]:
        """Inputs that are not passed, each with one that is and has its dtype."""
        return ()

    def made(self, result: Result) -> str:
        """The memory of a result; where it is not made None, or one element where there is always a tensor."""
        return self.optional_result(result, self.empty(result), self.shape_of(result))

    def optional_result(self, result: Result, empty: str, shape: str) -> str:
        """The memory of a result of some shape, where it is made."""
        path = condition(result.paths)
        if result.when:
            return f"{empty} if {self.condition(result)} else None"
        if not path or not result.saved:
            return empty
        unwritten = f"library.unwritten({self.first.name}, {shape}, {self.dtype_of(result)})"
        return f"{empty} if {condition_text(path)} else {unwritten}"

    def shape_of(self, result: Result) -> str:
        like = self.like(result)
        sizes = tuple_text(["*batch" if axis == BATCH else axis for axis in result.axes])
        sizes = "batch" if result.axes == (BATCH,) else sizes
        return sizes if like is None else f"{like.name}.shape"

    def condition(self, result: Result) -> str:
        """Where a result is made that is not always."""
        path = condition(result.paths)
        return f"{result.when} and {condition_operand(path)}" if path else result.when

    def allocates_wide(self) -> bool:
        """Whether a result is in the dtype of the computation, which so has to be known first."""
        return self.compute.constexpr and any(result.dtype.rule == "compute" for result in self.op.results)

    def empty(self, result: Result) -> str:
        like = self.like(result)
        if like is None:
            return self.new(result, self.shape_of(result))
        return f"torch.empty_like({like.name}{self.other_dtype(result, like)})"

    def new(self, result: Result, shape: str, kind: str = "empty") -> str:
        """Memory of some shape for a result: empty, or zeros."""
        return f"{self.first.name}.new_{kind}({shape}{self.other_dtype(result, self.first)})"

    def other_dtype(self, result: Result, tensor: Input) -> str:
        """The argument that tells the dtype of a result, where it is not that of a tensor."""
        dtype = self.dtype_of(result)
        return "" if dtype == f"{tensor.name}.dtype" else f", dtype={dtype}"

    def like(self, result: Result) -> Input | None:
        """An input of the result's very shape, whose layout the result takes over, as torch's do."""
        if result.output.name in self.op.by_row:
            return None
        alike = (t for t in self.op.inputs if t.type.axes == result.axes and t.default is None and t.type.is_plain)
        return next(alike, None)

    def result(self) -> str:
        return ", ".join(map(self.regrouped, self.op.results))

    def regrouped(self, result: Result) -> str:
        """The result with its grouped axes put together again."""
        name = result.output.name
        text = name + self.as_given(name, self.op.grouping(result))
        return given(name, text) if result.when and text != name else text

    def as_given(self, name: str, shape: tuple[AxisTerm, ...]) -> str:
        """The calls that give a tensor the dimensions in which callers see it."""
        return regrouped(shape) + dict(self.parted).get(name, "")

    def moving(self, dims: tuple[Dim, ...]) -> list[tuple[str, tuple[str, ...], bool]]:
        """The tensors that move along some dimensions: name, axes, whether optional."""
        found = [(t.name, t.type.axes, t.default is not None) for t in self.op.inputs]
        found += [(r.output.name, r.axes, bool(r.when)) for r in self.op.results]
        still = without_strides(self.op) - self.tables
        return [entry for entry in found if self.space.steps(entry[1], dims) and entry[0] not in still]

    def stride(self, name: str, axes: tuple[str, ...], axis: str, optional: bool = False) -> str:
        """The stride along a named axis, counted from the end since leading axes may be any number; 0 of a tensor that
        is left out.
        """
        if axis not in axes:
            return "0"
        place = axes.index(axis) - len(axes)
        return f"tensors.stride({name}, {place})" if optional else f"{name}.stride({place})"

    def strides(self, name: str, axes: tuple[str, ...], over: tuple[str, ...]) -> str:
        """All strides along some axes, as a tuple in the order of the axes."""
        if tuple(axis for axis in axes if axis in over) == over and over == axes:
            return f"{name}.stride()"
        count = self.named_count(axes)
        if BATCH in over and tuple(axes[: len(over)]) == over:
            return f"{name}.stride()[:{len(over) - len(axes)}]"
        leaf_texts = []
        for axis in over:
            if axis != BATCH:
                leaf_texts.append(self.stride(name, axes, axis))
            elif BATCH not in axes:
                leaf_texts.append("*(0,) * len(batch)")
            else:
                leaf_texts.append(f"*{name}.stride()[:-{count}]" if count else f"*{name}.stride()")
        return tuple_text(leaf_texts)

    def sizes(self, over: tuple[str, ...], hashed: bool = False) -> str:
        if over == (BATCH,):
            return "tuple(batch)" if hashed else "batch"
        leaf_texts = ["*batch" if axis == BATCH else axis for axis in over]
        return tuple_text(leaf_texts)

    def retry(self) -> str:
        """The call of the function again with every tensor contiguous."""
        others = [*(param.name for param in self.op.params), *self.extra]
        is_public = self.function == self.op.name  # Its params are keywords alone.
        named = [f"{public(name) if is_public else name}={name}" for name in others]
        if len(self.op.inputs) > 1 and not any(self.as_given(t.name, t.type.shape) for t in self.op.inputs):
            passed = ", ".join([*(tensor.name for tensor in self.op.inputs), *([] if is_public else others)])
            return f"{self.function}({', '.join([f'*tensors.contiguous({passed})', *(named if is_public else [])])})"
        tensors = []
        for tensor in self.op.inputs:
            text = f"{tensor.name}.contiguous(){self.as_given(tensor.name, tensor.type.shape)}"
            tensors.append(given(tensor.name, text) if tensor.default is not None else text)
        return f"{self.function}({', '.join(tensors + named)})"

    def fold(self, group: str, dims: tuple[Dim, ...]) -> list[Statement]:
        """Sets `<group>_sizes`, and `<tensor>_<group>` of every tensor that moves there."""
        if not dims:
            return []
        free = tuple(dim for dim in dims if not dim.pinned)
        free_axes = tuple(dict.fromkeys(chain.from_iterable(dim.axes for dim in free)))
        folds = len(free) > 1 or free_axes[:1] == (BATCH,)
        rest = [dim for dim in dims if dim.pinned] if folds else dims
        found = self.fold_free(group, free, free_axes) if folds else []
        sizes, lengths = f"{group[:-1]}_sizes", tuple(dim.axes[0] for dim in rest)
        if folds and rest:
            found.append(Length(sizes, f"({_beside(f'*{sizes}', [*lengths], dims)})"))
        elif len(rest) > 1:
            found.append(Length(sizes, self.sizes(lengths)))
        for name, axes, optional in self.moving(dims) if rest else ():
            own = [self.stride(name, axes, one) for one in lengths]
            steps = f"*{name}_{group}" if self.space.steps(axes, free) else f"*(0,) * {len(free)}"
            text = f"({_beside(steps, own, dims)})" if folds else tuple_text(own)
            if optional:
                text = given(name, text, tuple_text(["0"] * len(dims)))
            found.append(Let(f"{name}_{group}", text))
        return found

    def fold_free(self, group: str, free: tuple[Dim, ...], axes: tuple[str, ...]) -> list[Statement]:
        """Folds dimensions whose axes stand together in all tensors that move along them."""
        named = self.moving(free)
        strides = [self.optional(self.strides(n, own, axes), n, optional, axes) for n, own, optional in named]
        targets = tuple_text([f"{name}_{group}" for name, _, _ in named])
        call = Call("tensors.fold", (len(free), self.sizes(axes, True), tuple(strides)))
        return self.folded(f"{group[:-1]}_sizes, {targets}", call, axes, len(free))

    def folded(self, target: str, call: Call, axes: tuple[str, ...], n_dims: int) -> list[Statement]:
        """Sets what a call says of axes that it folds into `n_dims` dimensions, which may not be enough."""
        if BATCH not in axes and len(axes) <= n_dims:
            return [Let(target, Call("tensors.folded", (call,)))]
        name = target if target.isidentifier() else "folded"
        unfolded = If(f"{name} is None", (Return(self.retry()),), UNFOLDED)
        return [Let(name, call), unfolded, *([] if name == target else [Let(target, name)])]

    def column_strides(self) -> dict[str, str]:
        """The stride along the columns of every tensor that has one, where they are one dimension and stay so."""
        (dim, *others) = self.space.cols or (None,)
        if dim is None or others or dim.axes[:1] == (BATCH,):
            return {}
        moving = self.moving(self.space.cols)
        return {name: self.stride(name, axes, dim.axes[0], optional) for name, axes, optional in moving}

    def optional(self, text: str, name: str, optional: bool, axes: tuple[str, ...]) -> str:
        more = len(axes) - 1
        leading = f"(0,) * (len(batch) + {more})" if more else "(0,) * len(batch)"
        return given(name, text, leading if BATCH in axes else tuple_text(["0"] * len(axes))) if optional else text

    def compute_value(self) -> str:
        if self.compute.in_float64:
            return "tl.float64"
        if self.compute.mode == "float":
            doubles = {tensor.name: tensor for tensor in self.op.inputs if "float64" in tensor.type.dtypes}
            names = [name for name in self.compute.of if name in doubles]
            if all(doubles[name].default is not None for name in names):  # Left out, they tell nothing.
                names += [name for name, one in doubles.items() if one.default is None and name not in names]
            return f"tensors.widest({', '.join(names)})"
        helper = "tensors.wide_compute_dtype" if self.compute.wide else "tensors.compute_dtype"
        dtype = self.dtype(Dtype("any", self.compute.of, "int" if self.compute.counts else ""))
        made = [] if self.allocates_wide() else [result for result in self.op.results if not result.when]
        same = (f"{result.output.name}.dtype" for result in made if self.dtype(result.dtype) == dtype)
        return f"{helper}({next(same, dtype) if '(' in dtype else dtype})"

    def tensor_fields(self) -> list[Field]:
        fields = []
        for tensor in self.op.inputs:
            text = f"{shape_text(tensor.type.shape)}, {word_list(tensor.type.dtypes)}."
            if tensor.default is None:
                fields.append(Field(tensor.name, "torch.Tensor", "", text))
            else:
                text += f" None stands for {tensor.default}."
                fields.append(Field(tensor.name, "torch.Tensor | None", "None", text))
        return fields

    def param_fields(self) -> list[Field]:
        fields = []
        for param in self.op.params:
            limits = [f"one of {prose(word_list(tuple(map(word, param.choices))))}"] if param.choices else []
            limits += [f"at least {param.minimum!r}"] if param.minimum is not None else []
            limits += [f"at most {param.maximum!r}"] if param.maximum is not None else []
            kind = {"bool": "a flag", "int": "an integer"}.get(param.kind, "a number")
            default = "" if param.default is None else literal(param.default)
            fields.append(Field(param.name, param.annotation, default, f"{', '.join(limits) or kind}."))
        return fields

    def result_fields(self) -> list[Field]:
        shapes = ((result, shape_text(self.op.grouping(result))) for result in self.op.results)
        return [Field(r.output.name, "torch.Tensor", "", f"{s}, {self.dtype_words(r)}.") for r, s in shapes]

    def dtype_words(self, result: Result) -> str:
        of = result.dtype.of
        inputs = {tensor.name for tensor in self.op.inputs}
        if not of:
            return "torch's default dtype"
        text = f"the promotion of {word_list(of, 'and')}"
        if len(of) == 1:
            text = f"{of[0]}'s dtype" if of[0] in inputs else of[0]
        if result.dtype.otherwise:
            without = word_list(result.dtype.otherwise, "and")
            text += f", or that of {without} without {'it' if len(of) == 1 else 'them'}"
        otherwise = {"sum": "int64", "float": "torch's default dtype"}.get(result.dtype.rule)
        return f"{text}, or {otherwise} where that is no float" if otherwise else text


def _beside(folded: str, own: list[str], dims: tuple[Dim, ...]) -> str:
    """What is folded and what is not, in the order of the dimensions."""
    return ", ".join([*own, folded] if dims[0].pinned else [folded, *own])
