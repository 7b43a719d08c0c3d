"""Values of an operator that may be stored between its steps: their dtypes, and the results and inputs they become."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

from ..lang.facts import fact
from ..lang.ir import (
    ALWAYS,
    COMPUTE,
    Dtype,
    Load,
    Node,
    Op,
    Reduce,
    Ref,
    Result,
    ScatterSum,
    Take,
    Value,
    children,
    walk,
)
from ..lang.names import fresh
from ..lang.promotion import kind_of
from ..lang.rewrite import as_loads
from ..lowering.tile import needed
from ..passes.contractions import is_product, sides_of
from ..passes.structure import SAVES, below, is_extremum, reached, reads, references
from ..passes.taken_integers import integers_taken
from ..spec.types import BATCH, BOOLS, COMPUTED, DTYPE_CLASSES, FLOATS, INTS, Input, Output, TensorType, plain_shape
from .naming import is_full, may_be_absent


def always_stored(op: Op) -> list[str]:
    """The values that must be stored: operands of `take`, operands, indices and results of scatter-adds, and integers
    that are taken for the mask of an attention.
    """
    integers = integers_taken(op)
    if all(value.node.kinds.isdisjoint((ScatterSum, Take)) for value in op.values):
        return integers
    scattered = {value.name for value in op.values if isinstance(value.node, ScatterSum)}
    found = dict.fromkeys(integers)
    for node in op.nodes:
        read = children(node) if isinstance(node, ScatterSum) else (node.arg,) if isinstance(node, Take) else ()
        found |= {inner.name: None for inner in read if isinstance(inner, Ref)}
        found |= {node.name: None} if isinstance(node, Ref) and node.name in scattered else {}
    return list(found)


def may_be_stored(op: Op, value: Value, runtime_dtypes: bool = False) -> bool:
    """Whether storing a value makes sense: others use it, its dtype is known, and it is no copy of another, except of a
    maximum: stored, the copy keeps the maximum from being an input of steps that subtract it in exponentials. With
    `runtime_dtypes`, its dtype may be a runtime dtype.
    """
    node = value.node
    is_copy = is_full(node) and not may_be_absent(op, node)
    is_copy |= isinstance(node, Ref) and not is_extremum(op.value(node.name).node)
    return value.name in _used(op) and not is_copy and (runtime_dtypes or bool(stored_dtype(op, value)))


@fact
def _used(op: Op) -> frozenset[str]:
    """The values that others refer to."""
    return frozenset[str]().union(*op.refs.values())


@fact
def stored_dtype(op: Op, value: Value) -> Dtype | None:
    """The dtype in which a value is stored: the compute dtype for row statistics, torch's for other values.

    The compute dtype is unknown to a step that reads only scalars or positions, no tensors.
    """
    dtype = value.node.dtype
    if dtype.kind == "float" and _is_of_rows(op, value) and value.name not in _multiplied(op):
        reads_any = any(reads(one.node) for one in needed(op.values, [value.name]))
        return COMPUTE if reads_any else None
    if dtype.kind == "float":
        known = _promoted_dtype(op, dtype)
        floats = {tensor.name for tensor in op.inputs if set(tensor.type.dtypes) <= set(FLOATS)} | set(FLOATS)
        if not dtype.rule:  # What a gradient is no longer made of is a float, too, whose dtype is passed to its steps.
            floats |= {*known.leaves} - {tensor.name for tensor in op.inputs}
        return known if known.of and set(known.leaves) <= floats else None
    own = [name for name in dtype.of if name in {*INTS, *BOOLS} or _is_integral(op, name)]
    return dtype if len(dtype.leaves) == 1 and own and not dtype.rule else None


def _runtime_dtype(op: Op, value: Value) -> Dtype:
    """The stored dtype of a value with a runtime dtype: the compute dtype for floats, and for row statistics that may
    be floats; else its own.
    """
    dtype = value.node.dtype
    is_wide = dtype.kind == "float" or (dtype.kind == "any" and _is_of_rows(op, value))
    return Dtype(dtype.kind, (), "compute") if is_wide else dtype


def _is_integral(op: Op, name: str) -> bool:
    """Whether a leaf of a dtype names an input of integers or booleans."""
    return any(tensor.name == name and {*tensor.type.dtypes} <= {*INTS, *BOOLS} for tensor in op.inputs)


def _is_of_rows(op: Op, value: Value) -> bool:
    """Whether a value is per-row: a reduction, no matmul, or with fewer axes than others or a reduced operand."""
    if isinstance(value.node, Reduce) or is_product(op, value.node):
        return not is_product(op, value.node)
    if len(value.node.axes) < max(len(one.node.axes) for one in op.values):
        return True
    reductions = (op.value(name).node for name in _reductions(op) & reached(op.refs, op.refs[value.name], ()))
    return any({*node.arg.axes} > {*value.node.axes} for node in reductions if isinstance(node, Reduce))


@fact
def _reductions(op: Op) -> frozenset[str]:
    nodes = {value.name: value.node for value in op.values}
    return frozenset(name for name, one in nodes.items() if isinstance(one, Reduce) and not is_product(op, one))


def _promoted_dtype(op: Op, dtype: Dtype) -> Dtype:
    """The dtype that floats promote to: integers and per-row values do not count if there are others, and inputs of one
    type variable count once, as the first.
    """
    types = {tensor.name: tensor.type for tensor in op.inputs}
    integers = {*INTS, *BOOLS, *(name for name, own in types.items() if kind_of(own.dtypes) in ("int", "bool"))}
    rows = {name for name, own in types.items() if own.dtypes == COMPUTED}
    first = {own.variable: name for name, own in reversed(types.items()) if own.variable}
    leaves = [leaf for leaf in dtype.of if leaf not in integers] or dtype.of
    leaves = [leaf for leaf in leaves if leaf not in rows] or leaves
    known = replace(dtype, kind="float", of=tuple(leaves), rule="")
    return known.renamed(lambda leaf: first.get(types[leaf].variable, leaf) if leaf in types else leaf)


@fact
def _multiplied(op: Op) -> frozenset[str]:
    """The values that are operands of matmuls: they have an axis that the matmul sums over."""
    sums = [value.node for value in op.values if isinstance(value.node, Reduce) and is_product(op, value.node)]
    refs = ((inner, node) for node in sums for inner in walk(node) if isinstance(inner, Ref))
    return frozenset(ref.name for ref, node in refs if {*ref.axes} & {*node.over})


@fact
def stored_result(op: Op, name: str) -> Result:
    """A value as the result of a step: a result of the operator if that is the same tensor.

    A result that is expanded is not, nor the gradient by an optional input, since it is None without the input.
    """
    value = op.value(name)
    optional = {tensor.name for tensor in op.inputs if tensor.default is not None}
    dtype = stored_dtype(op, value) or _runtime_dtype(op, value)
    for result in op.results:
        is_same_dtype = result.dtype == dtype or (
            dtype.kind == "float" and not dtype.rule and _promoted_dtype(op, result.dtype) == dtype
        )
        may_be_absent = bool(result.dtype.of) and optional.issuperset(result.dtype.of)
        is_full = not result.over and {*result.axes} == {*value.node.axes}
        same = result.output.name == name and is_same_dtype and is_full and not may_be_absent
        if same and result.when in ("", SAVES):
            return replace(result, when="", paths=ALWAYS, saved=False)
    own = fresh(f"{name}_stored", op.names) if any(r.output.name == name for r in op.results) else name
    axes = axes_in_order(op, value.node)
    for sum in (one.node for one in op.values if isinstance(one.node, ScatterSum)):
        if isinstance(sum.arg, Ref) and sum.arg.name == name:  # A row for each position.
            axes = tuple(sorted(axes, key=lambda a: (a != BATCH, a not in sum.lines, a not in sum.over)))
    node = Ref(name, value.node.axes, value.node.dtype)
    return Result(Output(own, "auto", plain_shape(axes)), node, axes, dtype)


def axes_in_order(op: Op, node: Node) -> tuple[str, ...]:
    """The axes of a value, in the order of an input that it reads, or else of a result, with the same axes, so that
    steps access both alike.

    Otherwise a matmul has the axes of its activations and then those of its weights, if these can be distinguished. A
    value computed from one with the same axes has its order. A value computed elementwise from inputs that each lack
    axes keeps the order of each input, so that adjacent elements stay adjacent.
    """
    axes = {*node.axes}
    orders = [*(tensor.type.axes for tensor in _made_of(op, node)), *(result.axes for result in op.results)]
    if same := [order for order in orders if {*order} == axes]:
        return same[0]
    found = op.axes
    if sides := sides_of(op, node):
        ordered = (axes_in_order(op, side) for side in _activations_first(op, node, *sides[:2]))
        found = (*(axis for order in ordered for axis in order), *op.axes)
    else:
        read = (op.value(name).node for name in sorted(references(node)))
        inner = next((other for other in read if {*other.axes} == axes), None)
        if inner is not None:
            found = axes_in_order(op, inner)
        elif not isinstance(node, Reduce):
            found = _as_in(_made_of(op, node), found)
    return tuple(sorted((axis for axis in dict.fromkeys(found) if axis in axes), key=lambda axis: axis != BATCH))


def _as_in(inputs: Sequence[Input], axes: Sequence[str]) -> tuple[str, ...]:
    """The axes in an order that is consistent with each input, and otherwise in the given order."""
    left, found = [*axes], []
    while left:
        behind = {b for one in inputs for a, b in combinations(one.type.axes, 2) if a in left}
        found.append(next((axis for axis in left if axis not in behind), left[0]))
        left.remove(found[-1])
    return tuple(found)


def _activations_first(op: Op, node: Node, left: Node, right: Node) -> tuple[Node, ...]:
    """The operands of a matmul, activations first: the operand that reads earlier inputs, if it also has the results'
    first axis that is not a batch axis. Empty if they cannot be distinguished.
    """
    first, second = sorted((left, right), key=lambda side: [op.inputs.index(one) for one in _made_of(op, side)])
    both = {*left.axes} & {*right.axes}
    axes = (axis for result in op.results for axis in result.axes if axis in (*left.axes, *right.axes))
    outer = next((axis for axis in axes if axis not in both or axis not in node.axes), "")
    return (first, second) if outer in first.axes and outer not in both else ()


def _made_of(op: Op, node: Node) -> list[Input]:
    read = {inner.name for inner in below(op, node) if isinstance(inner, Load)}
    return [tensor for tensor in op.inputs if tensor.name in read]


def result_of(value: Value, dtype: Dtype | None = None) -> Result:
    """A value as a result of a step that others read, in its own dtype or the given one."""
    output = Output(value.name, "auto", plain_shape(value.node.axes))
    return Result(output, value.ref, value.node.axes, dtype or value.node.dtype)


def reading(op: Op, stored: Iterable[Input]) -> Op:
    """The operator with the values that other steps have stored under the names in `stored` read as inputs."""
    tensors = {tensor.name: tensor for tensor in stored}
    names = {name: name for name in tensors}
    values = (replace(one, node=as_loads(one.node, names)) for one in op.values if one.name not in names)
    results = (replace(one, node=as_loads(one.node, names)) for one in op.results)
    inputs = (*op.inputs, *tensors.values())
    return replace(op, inputs=inputs, values=tuple(values), results=tuple(results))


@fact
def as_input(op: Op, stored: Result) -> Input:
    """A stored result as an input of later steps."""
    return Input(stored.output.name, _type_of(op, stored), vanishes=stored.vanishes)


def _type_of(op: Op, stored: Result) -> TensorType:
    dtype, shape = stored.dtype, stored.output.shape or ()
    if dtype.rule == "compute":
        return TensorType(COMPUTED if dtype.kind == "float" else DTYPE_CLASSES["number"], shape)
    if dtype.rule or (dtype.kind != "float" and len(dtype.leaves) > 1):
        return TensorType(DTYPE_CLASSES[dtype.kind], shape)
    own = next((tensor.type.dtypes for tensor in op.inputs if dtype.of == (tensor.name,)), dtype.of)
    dtypes = FLOATS if dtype.kind == "float" else own
    variables = {tensor.type.variable for tensor in op.inputs if tensor.name in dtype.of}
    variable = next(iter(variables)) if len(variables) == 1 and len(dtype.leaves) == 1 else ""
    if variable:
        dtypes = next(tensor.type.dtypes for tensor in op.inputs if tensor.type.variable == variable)
    return TensorType(dtypes, shape, variable)
