"""Evaluate an Op over the field, node by node: kernels of any tiling must return the same bits.

Values are arrays with a dimension per axis: elements for floats, else integers or bools. Leading axes are flattened
into one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..lang.formulas import lengths_by
from ..lang.ir import (
    Call,
    Cast,
    Choose,
    Constant,
    Dtype,
    Index,
    Load,
    Node,
    Op,
    Reduce,
    Ref,
    Scalar,
    Scan,
    ScatterSum,
    Size,
    Take,
)
from ..spec.types import BATCH, AxisTerm, Input, inference_order
from . import field as elements
from .functions import FUNCTIONS, TESTS

Array = NDArray[Any]


class Unknown(Exception):
    """A function or a node that has no meaning over the field."""


@dataclass(frozen=True, slots=True)
class Value:
    """An array and the axes of its dimensions; or a string or None, the value of a param, without axes.

    Constants and params stay numpy floats until they are combined with a tensor, as on the host.
    """

    axes: tuple[str, ...]
    data: Any


def _of_number(value: Any) -> Value:
    if value is None or isinstance(value, str):
        return Value((), value)
    return Value((), np.asarray(value))


@dataclass
class Math:
    """An Op bound to the lengths of its axes, its inputs and params; node values are memoized."""

    op: Op
    lengths: dict[str, int]
    inputs: Mapping[str, Value]
    params: Mapping[str, Any]
    leading: tuple[int, ...] = ()  # the lengths of the leading axes
    memo: dict[int, Value] = field(default_factory=dict)

    def result(self, name: str) -> Value:
        """A result, with its axes in order."""
        found = next(one for one in self.op.results if one.output.name == name)
        return Value(found.axes, self.along(self.of(found.node), found.axes))

    def of(self, node: Node) -> Value:
        key = id(node)
        if key not in self.memo:
            self.memo[key] = _RULES[type(node)](self, node)
        return self.memo[key]

    def kind_of(self, dtype: Dtype) -> str:
        """The kind of a dtype; of a runtime dtype, by the inputs that determine it."""
        dtypes = {self.inputs[leaf].data.dtype for leaf in dtype.leaves if leaf in self.inputs}
        if dtype.kind != "any" or not dtypes:
            return dtype.kind
        return "float" if np.dtype(np.uint64) in dtypes else "bool" if dtypes == {np.dtype(bool)} else "int"

    def along(self, value: Value, axes: Sequence[str], full: bool = True) -> Array:
        """The array with a dimension for each of `axes`; if it lacks one, of length 1, or broadcast if `full`."""
        own = [axis for axis in axes if axis in value.axes]
        assert len(own) == len(value.axes), (value.axes, axes)
        data = np.transpose(value.data, [value.axes.index(axis) for axis in own])
        data = data.reshape([data.shape[own.index(axis)] if axis in own else 1 for axis in axes])
        return np.broadcast_to(data, [self.lengths[axis] for axis in axes]) if full else data

    def ordered(self, values: Sequence[Value]) -> tuple[str, ...]:
        found = {axis for value in values for axis in value.axes}
        return tuple(axis for axis in self.op.axes if axis in found)

    def aligned(self, nodes: Sequence[Node]) -> tuple[tuple[str, ...], list[Any]]:
        """The union of the axes of some nodes, and their arrays with these dimensions (1 for missing axes)."""
        values = [self.of(node) for node in nodes]
        axes = self.ordered(values)
        return axes, [self.along(one, axes, False) if isinstance(one.data, np.ndarray) else one.data for one in values]

    def gathered(self, source: Value, at: Mapping[str, Node], axes: tuple[str, ...]) -> Value:
        """Elements of `source` at computed positions along the axes in `at`; positions out of range are clamped."""
        places = []
        for axis, length in zip(source.axes, source.data.shape, strict=True):
            place = self.of(at[axis]) if axis in at else Value((axis,), np.arange(length))
            places.append(np.clip(self.along(place, axes), 0, max(0, length - 1)))
        return Value(axes, np.broadcast_to(source.data[tuple(places)], [self.lengths[axis] for axis in axes]))


def math_of(
    op: Op, tensors: Mapping[str, Array | None], params: Mapping[str, Any], known: Mapping[str, int] | None = None
) -> Math:
    """An Op bound to arrays of its inputs (None if absent), params, and `known` lengths that no shape may determine."""
    lengths: dict[str, int] = {**dict(op.sizes), **(known or {})}
    batches = []
    for tensor in inference_order(op.inputs, {*lengths, *op.computed}):
        data = tensors[tensor.name]
        if data is not None:
            terms = without_batch(tensor.type.shape)
            batch = data.ndim - len(terms)
            batches += [data.shape[:batch]] if BATCH in tensor.type.axes else []
            _infer(lengths, terms, data.shape[batch:])
    leading = np.broadcast_shapes(*batches) if batches else ()
    lengths[BATCH] = math.prod(leading)
    lengths |= lengths_by(op, lengths, params)
    inputs = {tensor.name: _input(tensor, tensors[tensor.name], leading, lengths) for tensor in op.inputs}
    return Math(op, lengths, inputs, params, leading)


def without_batch(terms: Sequence[AxisTerm]) -> list[AxisTerm]:
    return [term for term in terms if term.names != (BATCH,)]


def _infer(lengths: dict[str, int], terms: Sequence[AxisTerm], shape: Sequence[int]) -> None:
    for term, size in zip(terms, shape, strict=True):
        unknown = [name for name in term.names if name not in lengths]
        if unknown:
            others = math.prod(lengths[name] for name in term.names if name in lengths)
            lengths[unknown[0]] = size // max(1, others)


def _input(tensor: Input, data: Array | None, leading: tuple[int, ...], lengths: Mapping[str, int]) -> Value:
    if data is None:
        assert tensor.default is not None
        return _of_number(float(tensor.default) if tensor.type.may_be_float else tensor.default)
    terms = without_batch(tensor.type.shape)
    inner = [lengths[name] for term in terms for name in term.names]
    axes = tuple(name for term in terms for name in term.names)
    if BATCH not in tensor.type.axes:
        return Value(axes, data.reshape(inner))
    assert tensor.type.axes[0] == BATCH
    data = np.broadcast_to(data, leading + data.shape[data.ndim - len(terms) :])
    return Value((BATCH, *axes), data.reshape([math.prod(leading), *inner]))


def _float(data: Any) -> Any:
    return data if data.dtype == np.uint64 else elements.embed(data)


def _elements(data: Array) -> Array:
    """Embed numpy floats as elements; other arrays are unchanged."""
    return elements.embed(data) if data.dtype.kind == "f" else data


def _load(run: Math, node: Load) -> Value:
    value = run.inputs[node.name]
    return run.gathered(value, dict(node.at), node.axes) if node.at else value


def _call(run: Math, node: Call) -> Value:
    axes, args = run.aligned(node.args)
    if node.function == "where":
        condition, *others = args
        if any(one.dtype == np.uint64 for one in others):
            others = [_float(one) for one in others]
        return Value(axes, np.where(_true(condition), *others))
    arrays = [one for one in args if isinstance(one, np.ndarray)]
    if len(arrays) < len(args) and node.function in ("eq", "ne"):  # A string or None.
        return Value((), np.asarray((args[0] == args[1]) == (node.function == "eq")))
    plain = _plain(node.function)
    if plain and node.kinds <= _OF_PARAMS and Scalar in node.kinds and node.function in _OF_HOST:
        return Value((), np.asarray(plain(*args)))
    is_float = any(one.dtype == np.uint64 for one in arrays) or node.dtype.kind == "float"
    if not is_float:
        return Value(axes, np.asarray(_of_integers(node, args)))
    given = [_float(one) if isinstance(one, np.ndarray) else one for one in args]
    function = TESTS.get(node.function) or FUNCTIONS.get(node.function)
    if function is None:
        raise Unknown(node.function)
    return Value(axes, np.asarray(function(*given)))


_OF_PARAMS = frozenset({Call, Cast, Constant, Scalar})
# Arithmetic of params alone, which the host does in float64.
_OF_HOST = frozenset("add sub mul div neg reciprocal square sqrt exp log".split())


def _true(data: Any) -> Any:
    if data.dtype == np.uint64:
        return ~elements.is_equal(data, elements.embed(0))
    return data.astype(bool)


# Functions whose names in `operator` and numpy are not the language's.
_NAMED: Mapping[str, Callable[..., Any]] = {
    "div": np.divide,
    "reciprocal": lambda x: 1 / x,
    "detach": np.positive,
    "clamp": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "clamp_min": np.maximum,
    "clamp_max": np.minimum,
    "relu": lambda x: np.maximum(x, 0),
    "bitwise_left_shift": np.left_shift,
    "bitwise_right_shift": np.right_shift,
}


def _plain(function: str) -> Callable[..., Any] | None:
    """A function of integers, or of scalars on the host, by its name in the language."""
    return _NAMED.get(function) or getattr(operator, function, None) or getattr(np, function, None)


def _of_integers(node: Call, args: Sequence[Any]) -> Any:
    function = _plain(node.function)
    if function is None:
        raise Unknown(f"{node.function} of integers")
    if node.dtype.kind == "int":
        args = [one.astype(np.int64) for one in args]
    return function(*args)


def _cast(run: Math, node: Cast) -> Value:
    """Convert to the kind of the dtype, and to its width only for integers: casts between floats keep elements."""
    value, kind = run.of(node.arg), run.kind_of(node.dtype)
    if kind == "float":
        return Value(value.axes, _float(value.data))
    if kind == "bool":
        return Value(value.axes, _true(value.data))
    data = _elements(value.data)
    data = elements.integers(data) if data.dtype == np.uint64 else data
    names = [name for name in node.dtype.of if name in ("int8", "int16", "int32", "int64", "uint8")]
    return Value(value.axes, data.astype(names[0] if names else np.int64))


def _choose(run: Math, node: Choose) -> Value:
    return run.of(node.then if bool(run.of(node.condition).data) else node.other)


def _reduce(run: Math, node: Reduce) -> Value:
    value = run.of(node.arg)
    own = run.ordered([value, *(Value((axis,), None) for axis in node.over)])
    data, places = _elements(run.along(value, own)), tuple(own.index(axis) for axis in node.over)
    axes = tuple(axis for axis in own if axis not in node.over)
    return Value(axes, np.asarray(_reduced(node, data, places)))


def _reduced(node: Reduce, data: Array, axes: tuple[int, ...]) -> Any:
    if node.kind in ("any", "all"):
        return getattr(_true(data), node.kind)(axis=axes)
    if data.dtype != np.uint64:
        if node.kind in ("mean", "var"):
            data = elements.embed(data)
        elif node.kind.startswith("arg"):
            return getattr(_as_rows(data, axes), node.kind)(-1)
        else:
            data = data.astype(np.int64) if node.kind in ("sum", "prod") else data
            return getattr(data, node.kind)(axis=axes)
    count = elements.embed(math.prod(data.shape[axis] for axis in axes))
    match node.kind:
        case "sum":
            return elements.total(data, axes)
        case "mean":
            return elements.div(elements.total(data, axes), count)
        case "var":
            mean = elements.div(elements.total(data, axes, keepdims=True), count)
            distance = elements.sub(data, mean)
            over = elements.sub(count, elements.embed(float(node.correction)))
            return elements.div(elements.total(elements.mul(distance, distance), axes), over)
    rows = _as_rows(data, axes)
    match node.kind:
        case "max" | "min":
            return elements.extreme(rows, -1, node.kind == "max")
        case "argmax" | "argmin":
            return getattr(elements.key(rows), node.kind)(-1)
        case "prod":
            return reduce(elements.mul, np.moveaxis(rows, -1, 0))
    raise Unknown(node.kind)


def _as_rows(data: Array, axes: tuple[int, ...]) -> Array:
    """Move the axes to the end and flatten them into one."""
    moved = np.moveaxis(data, axes, range(-len(axes), 0))
    return moved.reshape(*moved.shape[: -len(axes)], -1)


def _scan(run: Math, node: Scan) -> Value:
    if node.kind == "argsort":
        raise Unknown("the bits of a float")
    nodes = [node.arg] if node.decay is None else [node.arg, node.decay]
    axes = run.ordered([*map(run.of, nodes), Value((node.over,), None)])
    own = (_elements(run.along(run.of(one), axes)) for one in nodes)
    data, *decays = (np.moveaxis(one, axes.index(node.over), 0) for one in own)
    steps = range(len(data))
    data = data.astype(np.int64) if data.dtype == bool else data
    found = np.array(data)
    previous = None
    for step in reversed(steps) if node.reverse else steps:
        if previous is not None:
            found[step] = _stepped(node, found[previous], data[step], decays[0][step] if decays else None)
        previous = step
    return Value(axes, np.moveaxis(found, 0, axes.index(node.over)))


def _stepped(node: Scan, before: Array, own: Array, decay: Array | None) -> Array:
    is_float = own.dtype == np.uint64
    add = elements.add if is_float else np.add
    mul = elements.mul if is_float else np.multiply
    if node.kind == "cumprod":
        return mul(before, own)
    return add(before if decay is None else mul(before, decay), own)


def _scatter(run: Math, node: ScatterSum) -> Value:
    """Add each term at its position in the flattened `into` axes; positions out of range are skipped."""
    at = run.of(node.at)
    over = node.over
    rest = tuple(axis for axis in node.axes if axis not in node.into)
    columns = tuple(axis for axis in rest if axis not in node.lines)
    own = (*over, *node.lines, *columns)
    terms = _float(run.along(run.of(node.arg), own))
    places = run.along(at, (*over, *node.lines))
    size = math.prod(run.lengths[axis] for axis in node.into)
    made = np.zeros((size, *terms.shape[len(over) :]), np.uint64)
    for place in np.ndindex(*places.shape):
        to, line = int(places[place]), place[len(over) :]
        if 0 <= to < size:
            made[(to, *line)] = elements.add(made[(to, *line)], terms[place])
    axes = (*node.into, *node.lines, *columns)
    return Value(axes, made.reshape([run.lengths[axis] for axis in axes]))


_RULES: Mapping[type, Callable[[Math, Any], Value]] = {
    Constant: lambda _, node: _of_number(node.value),
    Scalar: lambda run, node: _of_number(run.params[node.name]),
    Load: _load,
    Ref: lambda run, node: run.of(run.op.value(node.name).node),
    Take: lambda run, node: run.gathered(run.of(node.arg), dict(node.at), node.axes),
    Call: _call,
    Cast: _cast,
    Choose: _choose,
    Index: lambda run, node: Value((node.axis,), np.arange(run.lengths[node.axis])),
    Size: lambda run, node: Value((), np.asarray(math.prod(run.lengths[axis] for axis in node.over))),
    Reduce: _reduce,
    Scan: _scan,
    ScatterSum: _scatter,
}
