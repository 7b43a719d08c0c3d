"""Steps of an operator: what they know of the whole operator, and their host functions."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Protocol

from ..emit.host import Host
from ..emit.host_checks import targets_text
from ..lang.ir import Cast, Dtype, Index, Load, Node, Op, Reduce, Result, Size, Value, children, rebuild, walk
from ..lang.names import shown
from ..lowering.tile import needed
from ..passes.empty_sums import is_seen
from ..passes.exponentials import is_hidden
from ..spec.types import BATCH, FLOATS, AxisTerm, Input, plain_shape, told_in_order, untold


class Origin(Protocol):
    """The operator that steps are a part of, which has checked what they are passed.

    `seeds` are its results, each with the name of its gradient; `alike` has inputs of it, each with a tensor of
    the steps that has its dtype.
    """

    @property
    def forward(self) -> Op: ...

    @property
    def seeds(self) -> tuple[tuple[str, str], ...]: ...

    @property
    def alike(self) -> tuple[tuple[str, str], ...]: ...

    @property
    def is_gradient(self) -> bool: ...

    @property
    def short(self) -> frozenset[str]:
        """The inputs that may have fewer leading axes than they have together, or some of length 1."""
        ...


@dataclass(frozen=True, slots=True)
class Whole:
    """The origin of the steps of an operator that no single kernel computes, which has expanded its inputs."""

    forward: Op
    seeds: tuple[tuple[str, str], ...] = ()
    alike: tuple[tuple[str, str], ...] = ()
    short: frozenset[str] = frozenset()
    is_gradient: bool = False


def restricted(op: Op, results: tuple[Result, ...], suffix: str) -> Op:
    """The operator of some of its results alone."""
    values = tuple(needed(op.values, [result.output.name for result in results]))
    nodes = [node for value in values for node in walk(value.node)]
    read = {node.name for node in nodes if isinstance(node, Load)}
    nodes += [node for result in results for path in result.paths for test, _ in path for node in walk(test)]
    return replace(
        op,
        name=f"{op.name}{suffix}",
        inputs=tuple(tensor for tensor in op.inputs if tensor.name in read),
        params=tuple(p for p in op.params if any(getattr(node, "name", "") == p.name for node in nodes)),
        values=values,
        results=results,
    )


def perhaps_without(op: Op, names: Container[str]) -> Op:
    """The operator, some of whose inputs are None where what reads them is not chosen."""
    absent = frozenset(tensor.name for tensor in op.inputs if tensor.name in names)
    inputs = tuple(replace(tensor, default=0.0) if tensor.name in absent else tensor for tensor in op.inputs)
    return replace(op, inputs=inputs, chosen=op.chosen | absent)


def unknown(origin: Origin, op: Op, more: tuple[str, ...] = ()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Inputs of the forward whose shapes or dtypes are needed, though their values are not.

    Dtypes are those of the results, and of `more`. A shape has the leading axes of all inputs together, which no input
    of the forward tells by itself.
    """
    axes = {axis for result in op.results for axis in result.axes}
    for node in (node for value in op.values for node in walk(value.node)):
        axes |= set(node.over) if isinstance(node, Reduce | Size) else set()
        axes |= {node.axis} if isinstance(node, Index) else set()
        axes |= {axis for axis, _ in node.at} if isinstance(node, Load) else set()
    axes -= {strips.axis for strips in op.strips}
    mine = [one for one in op.inputs if one.name not in op.by_row | op.chosen and one.default is None]
    short = frozenset() if at_full_length(origin, op) or origin.short <= {t.name for t in op.inputs} else origin.short
    axes -= {axis for tensor in mine for axis in tensor.type.axes if axis != BATCH or tensor.name not in short}
    telling = [tensor for tensor in told_in_order(origin.forward.inputs) if tensor.default is None]
    missing = sorted(axes - dict(op.sizes).keys(), key=shown)
    found = [next(t for t in telling if axis in t.type.axes) for axis in missing]
    for tensor in telling:
        if tensor not in (*mine, *found) and set(tensor.type.axes) & untold((*mine, *found)):
            found.append(tensor)
    shapes = dict.fromkeys(tensor.name for tensor in found)
    known = {tensor.name for tensor in op.inputs} | dict(stand_ins(origin, op)).keys()
    every = [*(leaf for result in op.results for leaf in result.dtype.of), *more]
    known |= set(every) - {tensor.name for tensor in origin.forward.inputs}
    leaves = [leaf for leaf in every if leaf not in known]
    return tuple(shapes), tuple(dict.fromkeys(leaves))


def at_full_length(origin: Origin, op: Op) -> Input | None:
    """An input that has the leading axes at full length."""
    return next((t for t in op.inputs if BATCH in t.type.axes and t.name not in origin.short), None)


def stand_ins(origin: Origin, op: Op) -> list[tuple[str, str]]:
    """Inputs of the forward, each with an input of an operator of the gradient that has its dtype for sure."""
    found = []
    names = {tensor.name for tensor in op.inputs}
    seeds = dict(origin.seeds)
    types = {t.name: t.type.variable for t in origin.forward.inputs}
    for result in origin.forward.results:
        one_type = len({types.get(leaf) or leaf for leaf in result.dtype.of}) == 1
        for name in (seeds.get(result.output.name, ""), result.output.name):
            if one_type and name in names and name not in {t.name for t in origin.forward.inputs}:
                found.append((result.dtype.of[0], name))
    found += [(leaf, name) for leaf, name in origin.alike if name in names]
    shared = {types[leaf]: name for leaf, name in found if types.get(leaf)}
    shared |= {t.type.variable: t.name for t in op.inputs if t.type.variable and t.default is None}
    return found + [(name, shared[own]) for name, own in types.items() if own in shared and name not in names]


def in_own_dtypes(origin: Origin, op: Op) -> Op:
    """The operator, with dtypes of its own inputs where those are surely the same as others of the forward.

    Of two inputs of its own that are alike, the one of the forward tells the dtype, and the type that they share. What
    inputs promote to has the dtype of a result, or of its gradient, if that is what they promote to as well. Inputs of
    a single dtype need no stand-in.
    """
    names, pairs = {tensor.name for tensor in op.inputs}, stand_ins(origin, op)
    alike = {(name if leaf in names else leaf): (leaf if leaf in names else name) for leaf, name in pairs}
    alike |= {name: alike[leaf] for leaf, name in pairs if leaf in alike and alike[leaf] != name}
    others = [tensor for tensor in origin.forward.inputs if tensor.name not in names | alike.keys()]
    alike |= {tensor.name: dtype for tensor in others for dtype in FLOATS if tensor.type.dtypes == (dtype,)}
    variables = {tensor.name: tensor.type.variable for tensor in origin.forward.inputs}

    def shared(tensor: Input) -> Input:
        variable = variables.get(alike.get(tensor.name, ""), "")
        return replace(tensor, type=replace(tensor.type, variable=variable)) if variable else tensor

    own = with_dtypes(replace(op, inputs=tuple(map(shared, op.inputs))), alike)
    return _with_promoted(own, promotions(origin, op))


def promotions(origin: Origin, op: Op) -> dict[str, frozenset[str]]:
    """Inputs of an operator of the gradient that have the dtype to which several inputs of the forward promote."""
    given = {tensor.name for tensor in origin.forward.inputs}
    seeds = dict(origin.seeds)
    found = {}
    for result in origin.forward.results:
        for name in (seeds.get(result.output.name, ""), result.output.name):
            if name in {tensor.name for tensor in op.inputs} - given and not result.dtype.rule:
                found[name] = frozenset(result.dtype.of)
    return {name: leaves for name, leaves in found.items() if len(leaves) > 1}


def casts_in_own_dtypes(origin: Origin, op: Op) -> Op:
    """The operator, in which values are cast to dtypes of its own inputs instead of others that surely are the same."""
    names = {tensor.name for tensor in op.inputs}
    return with_casts(op, {leaf: name for leaf, name in stand_ins(origin, op) if leaf not in names})


def with_casts(op: Op, alike: Mapping[str, str]) -> Op:
    """The operator, whose values are cast to the dtypes of some inputs instead of others that are alike."""
    return op.with_nodes(lambda node: cast_as(node, alike))


def with_dtypes(op: Op, alike: Mapping[str, str]) -> Op:
    """The operator, whose dtypes are those of some inputs instead of others that are alike."""
    typed = op.with_nodes(lambda node: typed_as(node, alike))
    return replace(typed, results=tuple(result_as(result, alike) for result in op.results))


def cast_as(node: Node, alike: Mapping[str, str]) -> Node:
    """The node, with casts to the dtypes of some inputs instead of others that are alike."""
    return _typed(node, alike.keys(), lambda dtype: _own(dtype, alike), Cast)


def typed_as(node: Node, alike: Mapping[str, str]) -> Node:
    """The node, with dtypes of some inputs instead of others that are alike."""
    return _typed(node, alike.keys(), lambda dtype: _own(dtype, alike))


def result_as(result: Result, alike: Mapping[str, str]) -> Result:
    """The result, with dtypes of some inputs instead of others that are alike."""
    return replace(result, node=typed_as(result.node, alike), dtype=_own(result.dtype, alike))


def _typed(node: Node, leaves: AbstractSet[str], other: Callable[[Dtype], Dtype], kind: type = object) -> Node:
    """The node, of which those of a kind have other dtypes where some leaves are among what these are made of."""
    if leaves.isdisjoint(node.leaves):
        return node
    found = rebuild(node, tuple(_typed(child, leaves, other, kind) for child in children(node)))
    dtype = other(node.dtype) if isinstance(node, kind) else node.dtype
    return found if dtype is node.dtype else replace(found, dtype=dtype)


def _with_promoted(op: Op, known: Mapping[str, frozenset[str]]) -> Op:
    """The operator, with what has the dtype to which others promote in place of these."""
    leaves = {*known}.union(*known.values())
    if not leaves:
        return op

    def typed(node: Node) -> Node:
        return _typed(node, leaves, lambda dtype: _promoted(dtype, known))

    results = (replace(one, node=typed(one.node), dtype=_promoted(one.dtype, known)) for one in op.results)
    return replace(op.with_nodes(typed), results=tuple(results))


def _promoted(dtype: Dtype, known: Mapping[str, frozenset[str]]) -> Dtype:
    """The dtype, with what has the dtype to which others promote in place of these."""
    of = dict.fromkeys(dtype.of)
    for name, leaves in known.items():
        if name in of or leaves <= of.keys():
            of = dict.fromkeys((name, *(leaf for leaf in of if leaf not in leaves)))
    return dtype if tuple(of) == dtype.of else replace(dtype, of=tuple(of))


def _own(dtype: Dtype, alike: Mapping[str, str]) -> Dtype:
    if alike.keys().isdisjoint(dtype.of):
        return dtype
    return replace(dtype, of=tuple(dict.fromkeys(alike.get(leaf, leaf) for leaf in dtype.of)))


@dataclass(frozen=True)
class StepHost(Host):
    """Writes the function of a step: the forward has checked all that there is to check."""

    origin: Origin | None = None
    fills: bool = False  # whether each result is a tensor, though one may not be asked for

    @property
    def operator(self) -> str:
        return self.forward.name

    def regrouped(self, result: Result) -> str:
        text = super().regrouped(result)
        first = self.first()
        assert first is not None
        return f"library.filled({text}, {first.name})" if self.fills and result.when else text

    def told_inputs(self) -> tuple[Input, ...]:
        mine = {tensor.name for tensor in self.op.inputs}
        return tuple(
            tensor
            for tensor in self.forward.inputs
            if tensor.name not in mine and {f"{tensor.name}_shape", f"{tensor.name}_dtype"} & set(self.extra)
        )

    def alike(self) -> tuple[tuple[str, str], ...]:
        assert self.origin is not None
        return tuple(stand_ins(self.origin, self.op))

    def checks(self) -> list[str]:
        return []

    def empty_errors(self) -> list[tuple[str, str]]:
        """None in a gradient: the forward has refused what has no value over nothing, unless nothing comes of it."""
        assert self.origin is not None
        return [] if self.origin.is_gradient else super().empty_errors()

    def is_seen_over_nothing(self, value: Value) -> bool:
        """Of the whole, whose results may be empty where those of this step are not, and hide what this step stores."""
        whole = replace(self.forward, results=tuple(r for r in self.forward.results if not r.saved))
        own = next((one for one in whole.values if one.name == value.name), None)
        if own is None or not isinstance(own.node, Reduce):
            return super().is_seen_over_nothing(value)
        over = frozenset(own.node.over)
        return not is_hidden(whole, own) and is_seen(whole, own.name, over, over)

    def shapes(self) -> list[str]:
        """The lengths of the axes, each from the first tensor that has it, and the tensors at full length."""
        own = {axis for tensor in self.op.inputs if tensor.default is None for axis in tensor.type.axes}
        lines = [f"{axis} = {size}" for axis, size in self.op.sizes if axis not in own]
        known: set[str] = set()
        mine = [tensor for tensor in self.op.inputs if tensor.name not in self.op.by_row]
        given = self.given_shapes()
        for tensor in told_in_order((*mine, *given)):
            if tensor in given:
                lines += self.lengths_of(tensor.name, tensor.type.shape, known)
                continue
            block: list[str] = []
            for position, term in enumerate(tensor.type.shape):
                if len(term.names) > 1:
                    block += self.unflatten(tensor, position - len(tensor.type.shape), term, known)[-1:]
            if tensor.default is None:
                # The leading axes are those of a tensor, or a shape, that has them at full length.
                elsewhere = {BATCH} - known if self.may_be_short(tensor) else set()
                known |= elsewhere
                block += self.lengths_of(f"{tensor.name}.shape", plain_shape(tensor.type.axes), known)
                known -= elsewhere
            lines += self.guarded(tensor, block)
        return lines + self.expansions()

    @property
    def forward(self) -> Op:
        assert self.origin is not None
        return self.origin.forward

    def lengths_of(self, shape: str, terms: tuple[AxisTerm, ...], known: set[str]) -> list[str]:
        """Unpacks what is not known yet of a shape."""
        axes = tuple(axis for term in terms for axis in term.names)
        if set(axes) <= known:
            return []
        if any(len(term.names) > 1 for term in terms):
            return self.lengths_of_groups(shape, terms, known)
        targets = ["_" if axis in known else axis for axis in axes if axis != BATCH]
        if axes == (BATCH,):
            line = f"batch = {shape}"
        elif BATCH in axes and BATCH not in known:
            line = f"{', '.join(['*batch', *targets])} = {shape}"
        else:
            line = f"{targets_text(targets)} = {shape}{f'[{-len(targets)}:]' if BATCH in axes else ''}"
        known |= set(axes)
        return [line]

    def lengths_of_groups(self, shape: str, terms: tuple[AxisTerm, ...], known: set[str]) -> list[str]:
        """Reads what is not known yet off a shape whose dimensions may be groups of axes, each by itself."""
        lines = []
        for position, term in enumerate(terms, -len(terms)):
            if term.names == (BATCH,):
                source, new = f"{shape}[:{position + 1}]", ["batch"] if BATCH not in known else []
            else:
                lengths = self.told(term, known)
                product = " * ".join(lengths.values())
                source = f"{shape}[{position}]"
                source += f" // ({product})" if len(lengths) > 1 else f" // {product}" if lengths else ""
                new = [name for name in term.names if name not in lengths and name not in known]
            lines += [f"{name} = {source}" for name in new]
            known |= set(term.names)
        return lines

    def given_shapes(self) -> list[Input]:
        """The shapes that the step is told, each in place of an input of the forward."""
        names = [name for name in self.extra if name.endswith("_shape")]
        return [replace(self.forward.input(name.removesuffix("_shape")), name=name) for name in names]

    def expansions(self) -> list[str]:
        """Expands inputs of the forward along leading axes, where it may have done so."""
        assert self.origin is not None
        whole = at_full_length(self.origin, self.op)
        told = next((tensor for tensor in self.given_shapes() if BATCH in tensor.type.axes), None)
        if whole is None and told is None:
            return self.batches() if any(map(self.may_be_short, self.op.inputs)) else []
        lines = []
        for tensor in filter(self.may_be_short, self.batch_inputs()):
            shapes = [self.batch_shape(tensor)]
            if whole is not None and whole.type.axes == tensor.type.axes:
                shapes = [f"{tensor.name}.shape", f"{whole.name}.shape"]
            elif whole is not None:
                shapes.append(self.batch_shape(whole))
            else:
                assert told is not None
                named = len(told.type.shape) - 1
                shapes.append(f"{told.name}[:-{named}]" if named else told.name)
            axes = ["*batch", *(axis for axis in tensor.type.axes if axis != BATCH)]
            expanded = f"    {tensor.name} = {tensor.name}.expand({', '.join(axes)})"
            lines += self.guarded(tensor, [f"if {shapes[0]} != {shapes[1]}:", expanded])
        return lines

    def may_be_short(self, tensor: Input) -> bool:
        """Whether an input of the forward may lack leading axes that others have."""
        assert self.origin is not None
        return tensor.name in self.origin.short

    def dtype(self, dtype: Dtype) -> str:
        assert self.origin is not None
        if dtype.rule == "compute":
            return super().dtype(dtype)
        own = {tensor.name for tensor in self.op.inputs}
        alike = dict(stand_ins(self.origin, self.op))
        parts = {
            leaf: f"{leaf}.dtype"
            if leaf in own
            else f"{alike[leaf]}.dtype"
            if leaf in alike
            else f"{leaf}_dtype"
            if f"{leaf}_dtype" in self.extra
            else f"torch.{leaf}"
            for leaf in dtype.of
        }
        optional = {tensor.name for tensor in self.forward.inputs if tensor.default is not None}
        for leaf, text in parts.items():  # Of inputs that share a gradient, some may not be there.
            if leaf in optional and leaf not in alike:
                absent = f"{leaf} is None" if leaf in own else f"{leaf}_dtype is None"
                parts[leaf] = f"*(() if {absent} else ({text},))"
        first, *others = dict.fromkeys(parts.values())
        return f"dtypes.promote({', '.join([first, *others])})" if others or first.startswith("*") else first

    def condition(self, result: Result) -> str:
        """Where a gradient is asked for; by an input that is not there none is."""
        given = [t for t in self.op.inputs if t.name not in self.op.chosen]
        optional = [t.name for t in given if t.default is not None and result.dtype.of == (t.name,)]
        return " and ".join([super().condition(result), *(f"{name} is not None" for name in optional)])

    def like(self, result: Result) -> Input | None:
        """The input that a gradient is by, which is made where that is there, or else another of its shape."""
        if result.output.name in self.op.by_row:
            return None
        own = [t for t in self.op.inputs if t.name in result.dtype.of and t.type.axes == result.axes]
        own = [t for t in own if result.when or t.default is None]
        plain = [t for t in own if all(len(term.names) == 1 for term in t.type.shape)]
        others = [t for t in self.op.inputs if t.name not in self.op.by_row]
        return plain[0] if plain else replace(self, op=replace(self.op, inputs=tuple(others))).usual_like(result)

    def usual_like(self, result: Result) -> Input | None:
        return super().like(result)
