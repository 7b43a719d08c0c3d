"""Subgraphs of an operator as operators of their own, which read values that other steps have stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ..lang.ir import Op, Ref, Result, Value
from ..lang.rewrite import as_loads
from ..lang.unparse import spelled
from ..spec.types import FLOATS, Input
from .steps import cast_as, restricted, result_as, typed_as
from .stored import as_input

CACHED = 2**15  # cached subgraphs: cuts share many, and so do plans of one spec

Reads = tuple[tuple[str, Result], ...]  # values, each as it is stored


def _same(one: Any) -> Any:
    """The argument; cached, so that equal arguments become the same object, the first."""
    return one


same_op: Callable[[Op], Op] = lru_cache(CACHED)(_same)
same_value: Callable[[Value], Value] = lru_cache(CACHED)(_same)
same_result: Callable[[Result], Result] = lru_cache(CACHED)(_same)


@lru_cache(maxsize=CACHED)
def subgraph_of(
    enclosing: Op, values: tuple[Value, ...], own: frozenset[str], targets: tuple[Result, ...], reads: Reads
) -> Op:
    """The operator that computes `targets` from `values`; `own` are the names of the values that the targets are.

    `enclosing` is the enclosing operator without values and results.
    """
    names = {name: result.output.name for name, result in reads}
    own_values = tuple([_spelled(value, _some(names, value.node.references), value.name in own) for value in values])
    known = {value.name for value in own_values}
    own_values += tuple([Value(one.output.name, one.node, "") for one in targets if one.output.name not in known])
    targets = tuple([_read_elsewhere(one) if _value_name(one) in names else one for one in targets])
    stored = tuple(as_input(enclosing, result) for _, result in reads)
    subgraph = restricted(
        replace(enclosing, inputs=(*enclosing.inputs, *stored), values=own_values),
        targets,
        f"_{targets[0].output.name}",
    )
    stored_dtypes = _stored_as(result for _, result in reads)
    inputs = (*_determining(enclosing, subgraph.inputs), *subgraph.inputs)
    inputs += tuple(_cast_to(enclosing, inputs, subgraph.values, stored_dtypes))
    return _in_types_of_inputs(enclosing, subgraph, inputs, stored_dtypes)


def _value_name(target: Result) -> str:
    return target.node.name if isinstance(target.node, Ref) else ""


def _read_elsewhere(target: Result) -> Result:
    """A result that is another name for a value that the step reads, referring to a value of its own name."""
    return replace(target, node=Ref(target.output.name, target.node.axes, target.node.dtype))


def _some(names: Mapping[str, str], keys: AbstractSet[str]) -> tuple[tuple[str, str], ...]:
    """The items of `names` whose keys are in `keys`."""
    return tuple([(name, names[name]) for name in names if name in keys])


@lru_cache(maxsize=CACHED)
def _spelled(value: Value, names: tuple[tuple[str, str], ...], is_target: bool) -> Value:
    """The value with stored values read as inputs, and with a line for readers if it has one or is a target."""
    node = as_loads(value.node, dict(names))
    line = value.source if node == value.node and value.source else ""
    return Value(value.name, node, line or (spelled(node) if value.source or is_target else ""))


def _determining(enclosing: Op, inputs: tuple[Input, ...]) -> tuple[Input, ...]:
    """An input that determines the device, or whether to compute in float64, if all (float) inputs are optional."""
    there = [tensor for tensor in inputs if tensor.default is None]
    floats = [tensor for tensor in inputs if set(tensor.type.dtypes) & set(FLOATS)]
    if there and (not floats or any(tensor in there for tensor in floats)):
        return ()
    others = [tensor for tensor in enclosing.inputs if tensor.default is None and tensor not in there]
    others.sort(key=lambda tensor: not set(tensor.type.dtypes) & set(FLOATS))
    return tuple(others[:1])


def _cast_to(
    enclosing: Op, inputs: tuple[Input, ...], values: Iterable[Value], stored: Mapping[str, str]
) -> list[Input]:
    """Further inputs to whose dtypes values are cast, if no input has that type and nothing is `stored` in it."""
    wanted = {leaf for value in values for leaf in value.node.casts}.difference(stored, (one.name for one in inputs))
    types = {tensor.type.variable for tensor in inputs if tensor.default is None} - {""}
    others = [tensor for tensor in enclosing.inputs if tensor.name in wanted and tensor.default is None]
    return [tensor for tensor in others if tensor.type.variable not in types]


def _in_types_of_inputs(enclosing: Op, subgraph: Op, inputs: tuple[Input, ...], stored: Mapping[str, str]) -> Op:
    """The part with dtypes expressed by its own `inputs`, unless these are optional, where they share a type. Casts to
    the dtype of an input that it lacks become casts to the dtype of a value `stored` in it.
    """
    own = {tensor.type.variable: tensor.name for tensor in reversed(inputs) if tensor.default is None}
    names = {tensor.name for tensor in inputs}
    others = [tensor for tensor in enclosing.inputs if tensor.name not in names and tensor.type.variable]
    renames = {tensor.name: own[tensor.type.variable] for tensor in others if tensor.type.variable in own}
    stored_dtypes = {leaf: name for leaf, name in stored.items() if leaf not in names}
    values = tuple([_typed(value, renames, stored_dtypes) for value in subgraph.values])
    results = tuple([result_as(result, renames) for result in subgraph.results])
    return replace(subgraph, inputs=inputs, values=values, results=results)


def _typed(value: Value, renames: Mapping[str, str], stored_dtypes: Mapping[str, str]) -> Value:
    """The value with dtypes expressed by inputs that are `renames`, and casts by stored values."""
    leaves = value.node.leaves
    if leaves.isdisjoint(renames) and leaves.isdisjoint(stored_dtypes):
        return value
    return _typed_as(value, _some(renames, leaves), _some(stored_dtypes, leaves))


@lru_cache(maxsize=CACHED)
def _typed_as(value: Value, renames: tuple[tuple[str, str], ...], stored_dtypes: tuple[tuple[str, str], ...]) -> Value:
    return value.of(cast_as(typed_as(value.node, dict(renames)), dict(stored_dtypes)))


def _stored_as(results: Iterable[Result]) -> dict[str, str]:
    """By name of an input: a result that is stored in exactly the dtype of this input."""
    floats = [one for one in results if one.dtype.kind == "float" and not one.dtype.rule and len(one.dtype.of) == 1]
    return {one.dtype.of[0]: one.output.name for one in floats}
