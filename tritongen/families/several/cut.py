"""Where an operator is cut into steps: which of its values are stored between kernels.

Of all choices of at most `MOST` values to store, those that leave steps which families take are compared by the bytes
that the steps move, then by how many there are. Where so few do not, reductions are stored, and what rows are made of
them: all but those without which it costs less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from ...diagnostics.report import Mistakes
from ...lang.ir import (
    ALWAYS,
    Call,
    Dtype,
    Load,
    Node,
    Op,
    Reduce,
    Ref,
    Result,
    Value,
    children,
    numbered,
    rebuild,
    walk,
)
from ...lang.unparse import spelled
from ...lowering.choices import Choices
from ...passes.contractions import is_product
from ...spec.types import FLOATS, Input, Output, TensorType, plain_shape
from ..family import Step
from ..steps import restricted

MOST = 2  # values that are stored, tried in all combinations
LENGTH = 1024  # of an axis whose length is not known
ITEMSIZE = 4

Take = Callable[[Op], Step]  # which raises `Mistakes` for what it does not take


@dataclass(frozen=True, slots=True)
class Cut:
    """Steps in the order in which they run, and what moves through memory for them."""

    steps: tuple[Step, ...]
    bytes: int

    @property
    def cost(self) -> tuple[int, int]:
        return self.bytes, len(self.steps)


def cut(op: Op, take: Take) -> Cut | None:
    """The steps of an operator whose reductions have names; None where values of no dtype of ours would be stored."""
    plain = _rows_named(_plain(op))
    names = [value.name for value in plain.values if _may_be_stored(plain, value)]
    for count in range(1, MOST + 1):
        found = [one for chosen in combinations(names, count) if (one := _steps(plain, chosen, take))]
        if found:
            return min(found, key=lambda one: one.cost)
    made = {value.name for value in plain.values} - {value.name for value in op.values}
    reduced = {name for name in names if isinstance(plain.value(name).node, Reduce)}
    return _fewest(plain, [name for name in names if name in made | reduced], take)


def _fewest(op: Op, names: list[str], take: Take) -> Cut | None:
    """The steps where all of some values are stored, but for those without which it costs less."""
    best = _steps(op, names, take)
    while best is not None:
        fewer = [[name for name in names if name != left] for left in names]
        found = [(one.cost, others, one) for others in fewer if (one := _steps(op, others, take))]
        cost, others, one = min(found, key=lambda each: each[0], default=(best.cost, names, best))
        if cost >= best.cost:
            return best
        names, best = others, one
    return None


def _plain(op: Op) -> Op:
    """The operator with the axes of each tensor apart, as its steps see them: the whole takes groups of axes apart."""
    inputs = tuple(replace(t, type=replace(t.type, shape=plain_shape(t.type.axes))) for t in op.inputs)
    results = tuple(replace(r, output=replace(r.output, shape=plain_shape(r.axes))) for r in op.results)
    return replace(op, inputs=inputs, results=results, by_row=frozenset())


def _rows_named(op: Op) -> Op:
    """The operator with a name for what reductions are made into before it meets values with more axes."""
    reductions = {value.name for value in op.values if isinstance(value.node, Reduce)}
    taken = op.names
    values: list[Value] = []

    def named(node: Node, line: Value) -> Node:
        refers = any(isinstance(part, Ref) and part.name in reductions for part in walk(node))
        if isinstance(node, Call) and refers and set(node.axes) < set(line.node.axes):
            name = numbered(f"{line.name}_{node.function}", taken)
            taken.add(name)
            values.append(Value(name, node, ""))
            return Ref(name, node.axes, node.dtype)
        return rebuild(node, tuple(named(part, line) for part in children(node)))

    for value in op.values:
        node = value.node if isinstance(value.node, Reduce) else named(value.node, value)
        values.append(replace(value, node=node))
    return replace(op, values=tuple(values))


def _may_be_stored(op: Op, value: Value) -> bool:
    """Whether others are made of a value, and it is no copy of another and of a dtype of its own."""
    node = value.node
    used = any(isinstance(part, Ref) and part.name == value.name for one in op.values for part in walk(one.node))
    return used and not isinstance(node, Ref | Load) and bool(_dtype_of(op, value))


def _dtype_of(op: Op, value: Value) -> Dtype | None:
    """In which dtype a value is stored: numbers of rows as they are computed, others as torch would have them."""
    dtype = value.node.dtype
    widest = max(len(one.node.axes) for one in op.values)
    is_row = isinstance(value.node, Reduce) or len(value.node.axes) < widest
    if dtype.kind == "float" and is_row and not is_product(op, value.node):
        return Dtype("float", (), "compute")
    if dtype.kind == "float":
        floats = {tensor.name for tensor in op.inputs if set(tensor.type.dtypes) <= set(FLOATS)} | set(FLOATS)
        return replace(dtype, rule="") if dtype.of and set(dtype.of) <= floats else None
    return dtype if len(dtype.of) == 1 and dtype.of[0] in ("int64", "int32", "bool") and not dtype.rule else None


def _steps(op: Op, chosen: Sequence[str], take: Take) -> Cut | None:
    """The steps where some values are stored; None where a family does not take one of them."""
    stored = {name: _stored(op, name) for name in chosen}
    targets = [*stored.values(), *op.results]
    inputs = {name: _as_input(op, op.value(name), stored[name]) for name in chosen}
    parts = [_part(op, (target,), inputs) for target in targets]
    pending = list(range(len(targets)))
    done: set[str] = set()
    steps: list[Step] = []
    while pending:
        ready = [place for place in pending if _intermediates(parts[place], inputs) <= done]
        if not ready:
            return None
        together = _together(op, [targets[place] for place in ready], inputs, take)
        if together is None:
            return None
        steps += together
        done |= {targets[place].output.name for place in ready}
        pending = [place for place in pending if place not in ready]
    sizes = dict(op.sizes)
    return Cut(tuple(steps), sum(_moved(step.op, sizes) for step in steps))


def _together(op: Op, targets: list[Result], inputs: dict[str, Input], take: Take) -> list[Step] | None:
    """The fewest steps for results none of which is made of another, as far as they go together in their order.

    What only one side of a choice needs is a step of its own, which runs where that side is chosen.
    """
    paths = {name: found for name, found in Choices(op).paths.items() if name in inputs}
    needed = {target.output.name: paths.get(_value_of(target, _outputs(op)), ALWAYS) for target in targets}
    groups: list[list[Result]] = []
    steps: list[Step] = []
    for target in targets:
        for place, group in enumerate(groups):
            if needed[group[0].output.name] != needed[target.output.name]:
                continue
            if (joint := _taken(_part(op, (*group, target), inputs), take)) is not None:
                groups[place], steps[place] = [*group, target], joint
                break
        else:
            if (alone := _taken(_part(op, (target,), inputs), take)) is None:
                return None
            groups.append([target])
            steps.append(alone)
    return steps


def _taken(op: Op, take: Take) -> Step | None:
    """The step, whose only result is made wherever it is called."""
    if len(op.results) == 1:
        op = replace(op, results=(replace(op.results[0], when="", paths=ALWAYS),))
    try:
        return take(op)
    except Mistakes:
        return None


def _stored(op: Op, name: str) -> Result:
    value = op.value(name)
    dtype = _dtype_of(op, value)
    assert dtype is not None
    own = numbered(f"{name}_kept", op.names) if any(r.output.name == name for r in op.results) else name
    axes = tuple(axis for axis in op.axes if axis in value.node.axes)
    node = Ref(name, value.node.axes, value.node.dtype)
    return Result(Output(own, "auto", plain_shape(axes)), node, axes, dtype)


def _as_input(op: Op, value: Value, stored: Result) -> Input:
    """What is stored, as the steps after it read it."""
    dtype = stored.dtype
    if dtype.rule == "compute":
        return Input(stored.output.name, TensorType(("float32", "float64"), stored.output.shape or ()))
    dtypes = FLOATS if dtype.kind == "float" else dtype.of
    variables = {tensor.type.variable for tensor in op.inputs if tensor.name in dtype.of}
    variable = next(iter(variables)) if len(variables) == 1 and len(dtype.of) == 1 else ""
    if variable:
        dtypes = next(tensor.type.dtypes for tensor in op.inputs if tensor.type.variable == variable)
    return Input(stored.output.name, TensorType(dtypes, stored.output.shape or (), variable))


def _part(op: Op, targets: tuple[Result, ...], inputs: dict[str, Input]) -> Op:
    """The operator of some results, which reads what other steps have stored."""
    outputs = _outputs(op)
    own = {_value_of(target, outputs) for target in targets}
    read = {name: tensor for name, tensor in inputs.items() if name not in own}

    def loaded(node: Node) -> Node:
        if isinstance(node, Ref) and node.name in read:
            return Load(read[node.name].name, node.axes, node.dtype)
        return rebuild(node, tuple(map(loaded, children(node))))

    kept = [value for value in op.values if value.name not in read]
    values = tuple(_spelled(value, loaded(value.node), value.name in own) for value in kept)
    for target in targets:
        if target.output.name not in {value.name for value in values}:
            values = (*values, Value(target.output.name, target.node, ""))
    whole = replace(op, inputs=(*op.inputs, *read.values()), values=values)
    return restricted(whole, targets, f"_{targets[0].output.name}")


def _spelled(value: Value, node: Node, is_target: bool) -> Value:
    """The value with a line for readers, where it has one or is computed for another step."""
    if node == value.node and value.source:
        return value
    return Value(value.name, node, spelled(node) if value.source or is_target else "")


def _outputs(op: Op) -> set[str]:
    return {result.output.name for result in op.results}


def _value_of(target: Result, outputs: set[str]) -> str:
    """The value that a target is: an output is the one of its name, what is stored refers to one."""
    if target.output.name in outputs:
        return target.output.name
    assert isinstance(target.node, Ref)
    return target.node.name


def _intermediates(part: Op, inputs: dict[str, Input]) -> set[str]:
    names = {tensor.name for tensor in inputs.values()}
    return {tensor.name for tensor in part.inputs if tensor.name in names}


def _moved(op: Op, sizes: dict[str, int]) -> int:
    """The bytes that a step reads and writes."""
    return sum(ITEMSIZE * math.prod(sizes.get(axis, LENGTH) for axis in axes) for axes in _tensors(op))


def _tensors(op: Op) -> Iterator[tuple[str, ...]]:
    yield from (tensor.type.axes for tensor in op.inputs)
    yield from (result.axes for result in op.results)
