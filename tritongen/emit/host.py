"""The public function of a module: checks, shapes, allocation and the strides that launches pass."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain

from ..diagnostics.report import listed
from ..lang.ir import Dtype, Result
from ..lang.literals import literal, prose, word
from ..lang.names import public
from ..lowering.axes import N_BATCH, lengths, ones, regrouped, stride
from ..lowering.choices import condition
from ..lowering.space import Dim
from ..lowering.views import Field
from ..nest.conditions import condition_tree
from ..nest.values import Expr, Term, V, either, expr, runtime, tensors, torch
from ..passes.structure import without_strides
from ..spec.types import BATCH, FLOATS, AxisTerm, Input
from .host_checks import INTS, Checks, shape_text
from .statements import If, Length, Let, Return, Statement, call, given, one_or_all

UNFOLDED = "Dimensions that do not fold: contiguous copies fold into one."


@dataclass(frozen=True, slots=True)
class Dtypes:
    """The dtypes of tensors in host code; tensors in `optional` may be None."""

    known: Mapping[str, Expr]
    optional: Set[str] = frozenset()

    def promoted(self, leaves: Iterable[str], are_given: bool = False) -> Expr:
        """The promotion of the dtypes of tensors, and of others by name."""
        first, *others = dict.fromkeys(map(self.given if are_given else self.given_or_none, leaves))
        return tensors.promote(first, *others) if others or isinstance(first.tree, ast.Starred) else first

    def given(self, leaf: str) -> Expr:
        return self.known.get(leaf) or V.torch.field(leaf)

    def absent(self, leaf: str) -> Expr:
        match self.given(leaf).tree:
            case ast.Attribute(tensor, "dtype"):
                return Expr(tensor).is_none
        return self.given(leaf).is_none

    def given_or_none(self, leaf: str) -> Expr:
        own = self.given(leaf)
        return either(self.absent(leaf), (), (own,)).each if leaf in self.optional else own

    def of(self, dtype: Dtype) -> Expr:
        """The host expression of a dtype: the promotion of its leaves, or of `otherwise` where all are left out."""
        if not dtype.otherwise or not self.optional >= {*dtype.of}:
            return self.promoted(dtype.of)
        are_absent = functools.reduce(Expr.and_, map(self.absent, dtype.of))
        return either(are_absent, self.promoted(dtype.otherwise), self.promoted(dtype.of, len(dtype.of) == 1))


@dataclass(frozen=True)
class Host(Checks):
    """Makes the statements of the wrapper of one operator over one space.

    `parted` has the tensors that callers see along more axes, with the arguments of `unflatten` for each. `tables` are
    inputs by which kernels index others, and that the math does not mention.
    """

    parted: Mapping[str, Sequence[tuple[Term, ...]]] = field(default_factory=dict)
    tables: frozenset[str] = frozenset()

    @property
    def known_inputs(self) -> tuple[Input, ...]:
        """The tensors whose dtypes are known."""
        return self.op.inputs

    @property
    def dtypes(self) -> Dtypes:
        optional = frozenset(tensor.name for tensor in self.op.inputs if tensor.default is not None)
        return Dtypes({tensor.name: V[tensor.name].dtype for tensor in self.op.inputs}, optional)

    def dtype_of(self, result: Result) -> Expr:
        return self.dtype(result.dtype)

    def dtype(self, dtype: Dtype, is_there: bool = False) -> Expr:
        """The host expression of a dtype; with `is_there`, none of its tensors is left out."""
        if dtype.rule == "compute":
            return tensors.torch_dtype("compute") if self.compute.constexpr else expr("torch.float32")
        if not dtype.leaves:
            return torch.get_default_dtype()
        inputs = {tensor.name: tensor for tensor in self.known_inputs}
        known = {leaf: {*inputs[leaf].type.dtypes} if leaf in inputs else {leaf} for leaf in dtype.leaves}
        ints = [leaf for leaf, own in known.items() if own <= INTS]
        floats = [leaf for leaf in dtype.of if known[leaf] <= {*FLOATS}]
        is_float = any(leaf not in inputs or inputs[leaf].default is None for leaf in floats)
        own = tuple(leaf for leaf in dtype.of if not is_float or leaf not in ints)
        dtypes = replace(self.dtypes, optional=frozenset()) if is_there else self.dtypes
        found = dtypes.of(replace(dtype, of=own))
        if is_float:
            return found
        if dtype.rule == "float":
            return torch.get_default_dtype() if len(ints) == len(known) else tensors.as_float(found)
        if dtype.rule == "int" and any("bool" in own for own in known.values()):
            return tensors.int_dtype(found)
        return tensors.sum_dtype(found) if dtype.rule == "sum" else found

    def shape_inputs(self) -> tuple[Input, ...]:
        """Tensors that are not passed, but whose shapes or dtypes are."""
        return ()

    def same_dtypes(self) -> tuple[tuple[str, str], ...]:
        """Inputs that are not passed, each with one of the same dtype that is."""
        return ()

    def made(self, result: Result) -> Expr:
        """The memory of a result; if it is not computed, None, or one element where callers expect a tensor."""
        return self.optional_result(result, self.empty(result), self.shape_of(result))

    def optional_result(self, result: Result, empty: Expr, shape: Term) -> Expr:
        """The memory of a result of some shape, if it is computed."""
        path = condition(result.paths)
        if result.when:
            return either(self.condition(result), empty, None)
        if not path or not result.saved:
            return empty
        unwritten = call("library.unwritten", self.first.name, shape, self.dtype_of(result))
        return either(condition_tree(path), empty, unwritten)

    def shape_of(self, result: Result) -> Term:
        like = self.like(result)
        return self.sizes(result.axes) if like is None else V[like.name].shape

    def condition(self, result: Result) -> Expr:
        """The condition under which an optional result is computed."""
        path = condition(result.paths)
        return V[result.when].and_(condition_tree(path)) if path else V[result.when]

    def allocates_wide(self) -> bool:
        """Whether a result has the compute dtype, which must then be known before allocation."""
        return self.compute.constexpr and any(result.dtype.rule == "compute" for result in self.op.results)

    def empty(self, result: Result) -> Expr:
        like = self.like(result)
        if like is None:
            return self.new(result, self.shape_of(result))
        return call("torch.empty_like", like.name, dtype=self.other_dtype(result, like))

    def new(self, result: Result, shape: Term, kind: str = "new_empty") -> Expr:
        """Memory of some shape for a result: empty, or zeros."""
        return call(V[self.first.name].field(kind), shape, dtype=self.other_dtype(result, self.first))

    def other_dtype(self, result: Result, tensor: Input) -> Expr | None:
        """The dtype of a result, None if it is the dtype of `tensor`."""
        dtype = self.dtype_of(result)
        return None if dtype == V[tensor.name].dtype else dtype

    def like(self, result: Result) -> Input | None:
        """An input with the same shape as the result, which takes over its layout, as torch's results do."""
        if result.output.name in self.op.by_row:
            return None
        candidates = (t for t in self.op.inputs if t.type.axes == result.axes and t.default is None and t.type.is_plain)
        return next(candidates, None)

    def result(self) -> Term:
        return one_or_all([*map(self.regrouped, self.op.results)])

    def regrouped(self, result: Result) -> Expr:
        """The result with its groups of axes flattened again."""
        name = result.output.name
        value = self.as_given(name, V[name], self.op.grouping(result))
        return given(name, value) if result.when and not value.is_name else value

    def as_given(self, name: str, value: Expr, shape: tuple[AxisTerm, ...]) -> Expr:
        """A tensor with the dimensions in which callers see it."""
        value = regrouped(value, shape)
        for passed in self.parted.get(name, ()):
            value = value.method("unflatten", *passed)
        return value

    def moving(self, dims: tuple[Dim, ...]) -> list[tuple[str, tuple[str, ...], bool]]:
        """The tensors that move along some dimensions: name, axes, whether optional."""
        found = [(t.name, t.type.axes, t.default is not None) for t in self.op.inputs]
        found += [(r.output.name, r.axes, bool(r.when)) for r in self.op.results]
        still = without_strides(self.op) - self.tables
        return [entry for entry in found if self.space.steps(entry[1], dims) and entry[0] not in still]

    def stride(self, name: str, axes: tuple[str, ...], axis: str, optional: bool = False) -> Expr:
        """The stride along a named axis, counted from the end since leading axes may be any number; 0 of a tensor that
        is left out.
        """
        if axis not in axes:
            return expr(0)
        place = axes.index(axis) - len(axes)
        return stride(name, place, optional)

    def strides(self, name: str, axes: tuple[str, ...], over: tuple[str, ...]) -> Term:
        """All strides along some axes, as a tuple in the order of the axes."""
        every, count = V[name].method("stride"), len(axes) - (BATCH in axes)
        if over == axes:
            return every
        if BATCH in over and axes[: len(over)] == over:
            return every[: len(over) - len(axes)]
        found: list[Term] = []
        for axis in over:
            if axis != BATCH:
                found.append(self.stride(name, axes, axis))
            elif BATCH not in axes:
                found += ones([BATCH], 0)
            else:
                found.append((every[:-count] if count else every).each)
        return tuple(found)

    def sizes(self, over: tuple[str, ...], hashed: bool = False) -> Term:
        if over == (BATCH,):
            return runtime.tuple("batch") if hashed else V.batch
        return lengths(over)

    def retry(self) -> Expr:
        """A second call of the function, with every tensor contiguous."""
        others = [*(param.name for param in self.op.params), *self.extra]
        is_public = self.function == self.op.name  # Its params are keywords alone.
        names, own = [tensor.name for tensor in self.op.inputs], runtime[self.function]
        named = {public(name) if is_public else name: name for name in others}
        given_as = [self.as_given(t.name, V[t.name].method("contiguous"), t.type.shape) for t in self.op.inputs]
        if len(names) > 1 and given_as == [V[name].method("contiguous") for name in names]:
            every = tensors.contiguous(*names, *([] if is_public else others)).each
            return own(every, **(named if is_public else {}))
        optional = [tensor.default is not None for tensor in self.op.inputs]
        each = zip(names, given_as, optional, strict=True)
        return own(*(given(name, value) if is_none else value for name, value, is_none in each), **named)

    def fold(self, group: str, dims: tuple[Dim, ...]) -> list[Statement]:
        """Sets `<group>_sizes`, and `<tensor>_<group>` for every tensor that moves along these dimensions."""
        if not dims:
            return []
        free = tuple(dim for dim in dims if not dim.pinned)
        free_axes = tuple(dict.fromkeys(chain.from_iterable(dim.axes for dim in free)))
        folds = len(free) > 1 or free_axes[:1] == (BATCH,)
        rest = [dim for dim in dims if dim.pinned] if folds else dims
        found = self.fold_free(group, free, free_axes) if folds else []
        sizes, lengths = f"{group[:-1]}_sizes", tuple(dim.axes[0] for dim in rest)
        if folds and rest:
            found.append(Length(sizes, _with_folded(V[sizes].each, [*lengths], dims)))
        elif len(rest) > 1:
            found.append(Length(sizes, self.sizes(lengths)))
        for name, axes, optional in self.moving(dims) if rest else ():
            own = [self.stride(name, axes, one) for one in lengths]
            steps = V[f"{name}_{group}"] if self.space.steps(axes, free) else expr((0,)) * len(free)
            every = _with_folded(steps.each, own, dims) if folds else tuple(own)
            found.append(Let(f"{name}_{group}", given(name, every, (0,) * len(dims)) if optional else every))
        return found

    def fold_free(self, group: str, free: tuple[Dim, ...], axes: tuple[str, ...]) -> list[Statement]:
        """Folds dimensions whose axes are adjacent in all tensors that move along them."""
        named = self.moving(free)
        more = len(axes) - 1
        zeros = expr((0,)) * (N_BATCH + more if more else N_BATCH) if BATCH in axes else (0,) * len(axes)
        each = ((name, self.strides(name, own, axes), optional) for name, own, optional in named)
        strides = tuple(given(name, own, zeros) if optional else own for name, own, optional in each)
        targets = tuple(f"{name}_{group}" for name, _, _ in named)
        fold = tensors.fold(len(free), self.sizes(axes, True), strides)
        return self.folded((f"{group[:-1]}_sizes", targets), fold, axes, len(free))

    def folded(self, target: Term, fold: Expr, axes: tuple[str, ...], n_dims: int) -> list[Statement]:
        """Sets `target` to folded axes, or calls the function again if they do not fold into `n_dims` dimensions."""
        if BATCH not in axes and len(axes) <= n_dims:
            return [Let(target, tensors.folded(fold))]
        name = target if isinstance(target, str) else "folded"
        unfolded = If(V[name].is_none, (Return(self.retry()),), UNFOLDED)
        return [Let(name, fold), unfolded, *([] if name == target else [Let(target, name)])]

    def column_strides(self) -> dict[str, Expr]:
        """The stride along the columns of every tensor that has one, where they are one dimension and stay so."""
        (dim, *others) = self.space.cols or (None,)
        if dim is None or others or dim.axes[:1] == (BATCH,):
            return {}
        moving = self.moving(self.space.cols)
        return {name: self.stride(name, axes, dim.axes[0], optional) for name, axes, optional in moving}

    def compute_value(self) -> Expr:
        if self.compute.in_float64:
            return expr("tl.float64")
        if self.compute.mode == "float":
            doubles = {tensor.name: tensor for tensor in self.op.inputs if "float64" in tensor.type.dtypes}
            names = [name for name in self.compute.of if name in doubles]
            if all(doubles[name].default is not None for name in names):  # Left out, they determine nothing.
                names += [name for name, one in doubles.items() if one.default is None and name not in names]
            return tensors.widest(*names)
        helper = tensors.wide_compute_dtype if self.compute.wide else tensors.compute_dtype
        dtype = self.dtype(Dtype("any", self.compute.of, "int" if self.compute.counts else ""))
        made = [] if self.allocates_wide() else [result for result in self.op.results if not result.when]
        same = (V[result.output.name].dtype for result in made if self.dtype(result.dtype) == dtype)
        return helper(next(same, dtype) if dtype.calls else dtype)

    def tensor_fields(self) -> list[Field]:
        fields = []
        for tensor in self.op.inputs:
            text = f"{shape_text(tensor.type.shape)}, {listed(tensor.type.dtypes)}."
            if tensor.default is None:
                fields.append(Field(tensor.name, "torch.Tensor", "", text))
            else:
                text += f" None stands for {tensor.default}."
                fields.append(Field(tensor.name, "torch.Tensor | None", "None", text))
        return fields

    def param_fields(self) -> list[Field]:
        fields = []
        for param in self.op.params:
            limits = [f"one of {prose(listed(map(word, param.choices)))}"] if param.choices else []
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
        text = f"the promotion of {listed(of, 'and')}"
        if len(of) == 1:
            text = f"{of[0]}'s dtype" if of[0] in inputs else of[0]
        if result.dtype.otherwise:
            without = listed(result.dtype.otherwise, "and")
            text += f", or that of {without} without {'it' if len(of) == 1 else 'them'}"
        otherwise = {"sum": "int64", "float": "torch's default dtype"}.get(result.dtype.rule)
        return f"{text}, or {otherwise} where that is no float" if otherwise else text


def _with_folded(folded: Expr, own: Sequence[Term], dims: tuple[Dim, ...]) -> tuple[Term, ...]:
    """The folded and the other dimensions, in order."""
    return (*own, folded) if dims[0].pinned else (folded, *own)
