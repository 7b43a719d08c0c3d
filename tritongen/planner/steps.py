"""Steps of an operator: the shapes and dtypes that they are passed, and dtypes expressed by their own inputs."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..autodiff.gradient import Gradient
from ..lang.formulas import alone, inputs_in_order, wanted_of
from ..lang.ir import Cast, Dtype, Formula, Index, Load, Node, Op, Reduce, Result, Size, children, walk
from ..lang.names import shown
from ..lang.rewrite import rebuild
from ..lowering.tile import needed
from ..spec.types import BATCH, FLOATS, Input, divided, undetermined_axes

if TYPE_CHECKING:
    from ..families.family import Step


@dataclass(frozen=True, slots=True)
class Enclosing:
    """The origin of the steps of a multi-step operator, whose host function has checked and expanded its inputs.

    As in a `Gradient`, `seeds` are its results, each with the name of its gradient, `same_dtypes` pairs its inputs with
    tensors of the steps that have the same dtype, shapes of inputs that steps have computed (`made`) are not passed,
    and leading axes of inputs in `short` may be fewer, or have length 1.
    """

    forward: Op
    seeds: tuple[tuple[str, str], ...] = ()
    same_dtypes: tuple[tuple[str, str], ...] = ()
    made: frozenset[str] = frozenset()
    short: frozenset[str] = frozenset()
    is_gradient: bool = False


Origin = Gradient | Enclosing  # what steps belong to


def restricted(op: Op, results: tuple[Result, ...], suffix: str) -> Op:
    """The operator restricted to `results` and to the inputs, params and values that they need."""
    values = tuple(needed(op.values, [result.output.name for result in results]))
    read = frozenset[str]().union(*[value.node.reads for value in values])
    nodes = [value.node for value in values if op.params]
    nodes += [test for result in results if op.params for path in result.paths for test, _ in path]
    names = {getattr(inner, "name", "") for node in nodes for inner in walk(node)}
    return replace(
        op,
        name=f"{op.name}{suffix}",
        inputs=tuple([tensor for tensor in op.inputs if tensor.name in read]),
        params=tuple([param for param in op.params if param.name in names]),
        values=values,
        results=results,
    )


def without_optional(op: Op, names: Container[str]) -> Op:
    """The operator whose inputs in `names` are optional: None if params do not choose the side that reads them."""
    absent = frozenset(tensor.name for tensor in op.inputs if tensor.name in names)
    inputs = tuple(replace(tensor, default=0.0) if tensor.name in absent else tensor for tensor in op.inputs)
    return replace(op, inputs=inputs, chosen=op.chosen | absent)


def lengths_read(op: Op) -> set[str]:
    """The axes whose lengths the host function of an operator reads."""
    axes = {axis for result in op.results for axis in result.axes}
    for node in op.nodes:
        axes |= set(node.over) if isinstance(node, Reduce | Size) else set()
        axes |= {node.axis} if isinstance(node, Index) else set()
        axes |= {axis for axis, _ in node.at} if isinstance(node, Load) else set()
    return axes - {strips.axis for strips in op.strips}


def unknown(origin: Origin, op: Op, more: tuple[str, ...] = ()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Inputs of the forward whose shapes, and those whose dtypes, a step needs, though not their values.

    Dtypes are needed for the results and for `more`. A passed shape has the broadcast leading axes, which no single
    input of the forward may have.
    """
    found = _also_determining(origin, op)
    shapes = dict.fromkeys(tensor.name for tensor in found)
    known = {tensor.name for tensor in op.inputs} | dict(stand_ins(origin, op)).keys()
    every = [*(leaf for result in op.results for leaf in result.dtype.leaves), *more]
    known |= set(every) - {tensor.name for tensor in origin.forward.inputs}
    leaves = [leaf for leaf in every if leaf not in known]
    return tuple(shapes), tuple(dict.fromkeys(leaves))


def _also_determining(origin: Origin, op: Op) -> list[Input]:
    """The fewest inputs of the forward that determine the lengths which the inputs of a step do not."""
    mine = _determining(op)
    is_long = at_full_length(origin, op) or origin.short <= {tensor.name for tensor in op.inputs}
    short = frozenset() if is_long else origin.short
    formulas = computed_in(origin, op)
    fixed = {*dict(op.sizes), *(formula.axis for formula in formulas)}
    axes = lengths_read(op).union(*(formula.reads for formula in formulas))
    axes -= {axis for tensor in mine for axis in tensor.type.axes if axis != BATCH or tensor.name not in short}
    determining = _inference_order(origin)
    missing = sorted(axes - fixed, key=shown)

    def determines_more(tensor: Input, found: list[Input]) -> bool:
        return _determines_more(tensor, (*mine, *found), fixed)

    found = [*dict.fromkeys(next(t for t in determining if axis in t.type.axes) for axis in missing)]
    for tensor in determining:
        found += [tensor] if determines_more(tensor, found) else []
    for tensor in found[::]:
        others = [one for one in found if one != tensor]
        covered = set[str]().union(*(one.type.axes for one in others))
        if others and covered.issuperset(missing) and not any(determines_more(one, others) for one in determining):
            found = others
    return found


def _determines_more(tensor: Input, others: tuple[Input, ...], fixed: AbstractSet[str]) -> bool:
    """Whether a tensor determines a length that others do not."""
    covered = undetermined_axes(others, fixed)
    return tensor not in others and bool({*tensor.type.axes} & covered or divided(others, fixed, tensor))


def _determining(op: Op) -> list[Input]:
    """The inputs whose shapes determine lengths."""
    return [one for one in op.inputs if one.name not in op.by_row | op.chosen and one.default is None]


def _inference_order(origin: Origin) -> list[Input]:
    """The inputs of the forward that determine lengths, in the order of `inputs_in_order`."""
    every = inputs_in_order(origin.forward)
    return [one for one in every if one.default is None and one.name not in origin.made]


def computed_in(origin: Origin, op: Op) -> tuple[Formula, ...]:
    """The formulas by which the host function of a step computes lengths that it reads, or unflattens groups of axes
    with: lengths of axes that no tensor, of its inputs or the forward's, has as a dimension of its own.
    """
    wanted = lengths_read(op) | {axis for tensor in op.inputs for axis in tensor.type.axes}
    wanted -= alone((*_determining(op), *_inference_order(origin)))
    return tuple(wanted_of(wanted, (formula for formula in op.formulas if formula.axis in op.computed)))


def informed(origin: Origin, step: Step, more: tuple[str, ...] = ()) -> Step:
    """The step with further arguments for its function: shapes and dtypes of inputs of the forward, and params from
    which lengths are computed.
    """
    op = step.op
    read = frozenset[str]().union(*(formula.params for formula in computed_in(origin, op)))
    params = [one for one in origin.forward.params if one.name in read - {own.name for own in op.params}]
    if params:
        step = replace(step, program=replace(step.program, op=replace(op, params=(*op.params, *params))))
    shapes, dtypes = unknown(origin, op, more)
    return replace(step, shapes=shapes, dtypes=dtypes)


def at_full_length(origin: Origin, op: Op) -> Input | None:
    """An input that has the leading axes at full length."""
    return next((t for t in op.inputs if BATCH in t.type.axes and t.name not in origin.short), None)


def stand_ins(origin: Origin, op: Op) -> list[tuple[str, str]]:
    """Inputs of the forward, each with an input of `op` that certainly has its dtype. Results whose dtype depends on an
    optional input do not count.
    """
    names = {tensor.name for tensor in op.inputs}
    types = {t.name: t.type.variable for t in origin.forward.inputs}
    seeds, own = dict(origin.seeds), names - types.keys()
    found = []
    for result in origin.forward.results:
        if len({types.get(leaf) or leaf for leaf in result.dtype.of}) == 1 and not result.dtype.optional:
            pair = (seeds.get(result.output.name, ""), result.output.name)
            found += [(result.dtype.of[0], name) for name in pair if name in own]
    found += [(leaf, name) for leaf, name in origin.same_dtypes if name in names]
    shared = {types[leaf]: name for leaf, name in found if types.get(leaf)}
    shared |= {t.type.variable: t.name for t in op.inputs if t.type.variable and t.default is None}
    return found + [(name, shared[kind]) for name, kind in types.items() if kind in shared and name not in names]


def in_own_dtypes(origin: Origin, op: Op) -> Op:
    """The operator with dtypes expressed by its own inputs where they certainly equal those of the forward's inputs.

    Of two own inputs that are alike, the forward's determines the dtype, and the type that they share. A promotion of
    inputs becomes the dtype of a result, or of its gradient, that is the same promotion. Inputs of a single dtype need
    no stand-in.
    """
    names, pairs = {tensor.name for tensor in op.inputs}, stand_ins(origin, op)
    renames = {(name if leaf in names else leaf): (leaf if leaf in names else name) for leaf, name in pairs}
    renames |= {name: renames[leaf] for leaf, name in pairs if leaf in renames and renames[leaf] != name}
    others = [tensor for tensor in origin.forward.inputs if tensor.name not in names | renames.keys()]
    renames |= {tensor.name: dtype for tensor in others for dtype in FLOATS if tensor.type.dtypes == (dtype,)}
    variables = {tensor.name: tensor.type.variable for tensor in origin.forward.inputs}

    def shared(tensor: Input) -> Input:
        variable = variables.get(renames.get(tensor.name, ""), "")
        return replace(tensor, type=replace(tensor.type, variable=variable)) if variable else tensor

    own = with_dtypes(replace(op, inputs=tuple(map(shared, op.inputs))), renames)
    known = promotions(origin, op)
    return _with(own, {*known}.union(*known.values()), lambda dtype: _promoted(dtype, known))


def promotions(origin: Origin, op: Op) -> dict[str, frozenset[str]]:
    """Inputs of `op` whose dtype is the promotion of several inputs of the forward, with the names of these."""
    given = {tensor.name for tensor in origin.forward.inputs}
    seeds = dict(origin.seeds)
    found = {}
    for result in origin.forward.results:
        certain = not result.dtype.rule and not result.dtype.optional
        for name in (seeds.get(result.output.name, ""), result.output.name):
            if certain and name in {tensor.name for tensor in op.inputs} - given:
                found[name] = frozenset(result.dtype.of)
    return {name: leaves for name, leaves in found.items() if len(leaves) > 1}


def casts_in_own_dtypes(origin: Origin, op: Op) -> Op:
    """The operator with casts to dtypes of its own inputs instead of the forward's, where they certainly are equal."""
    names = {tensor.name for tensor in op.inputs}
    return with_casts(op, {leaf: name for leaf, name in stand_ins(origin, op) if leaf not in names})


def with_casts(op: Op, renames: Mapping[str, str]) -> Op:
    """The operator with casts to dtypes of the inputs in `renames` replaced by casts to those that they map to."""
    return op.with_nodes(lambda node: cast_as(node, renames))


def with_dtypes(op: Op, renames: Mapping[str, str]) -> Op:
    """The operator with dtypes of the inputs in `renames` replaced by dtypes of those that they map to."""
    return _with(op, renames.keys(), lambda dtype: _own(dtype, renames))


def _with(op: Op, leaves: AbstractSet[str], other: Callable[[Dtype], Dtype]) -> Op:
    """The operator with `other` applied to dtypes that depend on any of `leaves`."""
    results = (replace(r, node=_typed(r.node, leaves, other), dtype=other(r.dtype)) for r in op.results)
    return replace(op.with_nodes(lambda node: _typed(node, leaves, other)), results=tuple(results))


def cast_as(node: Node, renames: Mapping[str, str]) -> Node:
    """The node with casts replaced as in `with_casts`."""
    return _typed(node, renames.keys(), lambda dtype: _own(dtype, renames), Cast)


def typed_as(node: Node, renames: Mapping[str, str]) -> Node:
    """The node with dtypes replaced as in `with_dtypes`."""
    return _typed(node, renames.keys(), lambda dtype: _own(dtype, renames))


def result_as(result: Result, renames: Mapping[str, str]) -> Result:
    """The result with dtypes replaced as in `with_dtypes`."""
    node, dtype = typed_as(result.node, renames), _own(result.dtype, renames)
    return result if node is result.node and dtype is result.dtype else replace(result, node=node, dtype=dtype)


def _typed(node: Node, leaves: AbstractSet[str], other: Callable[[Dtype], Dtype], kind: type = object) -> Node:
    """The node with `other` applied to the dtypes of all subexpressions of a `kind`, if any depends on `leaves`."""
    if leaves.isdisjoint(node.leaves):
        return node
    found = rebuild(node, tuple(_typed(child, leaves, other, kind) for child in children(node)))
    dtype = other(node.dtype) if isinstance(node, kind) else node.dtype
    return found if dtype is node.dtype else replace(found, dtype=dtype)


def _promoted(dtype: Dtype, known: Mapping[str, frozenset[str]]) -> Dtype:
    """The dtype with the inputs in `known` in place of the inputs that promote to their dtypes."""
    of = dict.fromkeys(dtype.of)
    for name, leaves in known.items():
        if name in of or leaves <= of.keys():
            of = dict.fromkeys((name, *(leaf for leaf in of if leaf not in leaves)))
    return dtype if tuple(of) == dtype.of else replace(dtype, of=tuple(of))


def _own(dtype: Dtype, renames: Mapping[str, str]) -> Dtype:
    if renames.keys().isdisjoint(dtype.leaves):
        return dtype
    return dtype.renamed(lambda leaf: renames.get(leaf, leaf))
