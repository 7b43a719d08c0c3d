"""How each primitive reduction is computed: over a full row at once, or iteratively along it.

In a loop, every lane of a tile has a state of its own; the states are merged along the columns at the end. Merged
states can be merged again, as in a split reduction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..lang.ir import Call, Constant, Load, Node, Op, Reduce, Ref, Value
from ..nest.ir import Accumulate, Let, Line
from ..nest.values import Expr, Term, V, expr, runtime, tl
from ..passes.exponentials import maximum_of

# The value of masked lanes that leaves a reduction unchanged.
IDENTITY = {
    "sum": 0,
    "mean": 0,
    "var": 0,
    "prod": 1,
    "max": -math.inf,
    "argmax": -math.inf,
    "min": math.inf,
    "argmin": math.inf,
    "any": False,
    "all": True,
}


@dataclass(frozen=True, slots=True)
class State:
    """An accumulator that every lane carries along a row, with its initial value `identity` and its dtype.

    `start` is the initial tile if lanes differ. `lanes` and `rows` are the lengths of the tile; `rows` is "" without
    rows.
    """

    name: str
    identity: Expr
    dtype: str
    start: Expr | None = None
    lanes: Term = "BLOCK_N"
    rows: str = "BLOCK_M"

    @property
    def line(self) -> Line:
        if self.start:
            return Let(self.name, self.start)
        shape = [self.rows, self.lanes] if self.rows else [self.lanes]
        is_zero = self.identity.text in ("0", "0.0")
        zeros = tl.zeros(shape, self.dtype) if is_zero else tl.full(shape, self.identity, self.dtype)
        return Let(self.name, zeros)


@dataclass(frozen=True, slots=True)
class Running:
    """An iterative reduction along a row: its states (one has the value's own name), the `step` that accumulates a
    tile, the `merge` of lanes, and the lines that `finish` the value from merged states.

    `lanes` are lines that the merge of lanes needs, and `partials` those for merging chunks of a split row; with
    `counts`, both count columns. `inner` are states that are not needed after lanes are merged.
    """

    states: tuple[State, ...]
    step: Callable[[Expr], tuple[Line, ...]]  # of the masked argument's expression
    merge: tuple[Line, ...]
    finish: tuple[Line, ...] = ()
    masked: bool = True  # whether masked lanes must hold the identity
    lanes: tuple[Line, ...] = ()
    partials: tuple[Line, ...] = ()
    inner: tuple[State, ...] = ()
    counts: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(state.name for state in self.states)

    @property
    def start(self) -> tuple[Line, ...]:
        return tuple(state.line for state in (*self.states, *self.inner))

    @property
    def result(self) -> tuple[Line, ...]:
        """The lines from the merge to the value: a single one if both assign only the same name."""
        match self.merge, self.finish:
            case [Let(name=name, value=merge)], [Let(name=same, value=value)] if name == same:
                return (Let(name, value.with_names({name: merge})),)
        return (*self.merge, *self.finish)


@dataclass(frozen=True, slots=True)
class Span:
    """The columns that a kernel reduces: the names of the first and of their count."""

    first: str
    count: str

    @property
    def iteration(self) -> Expr:
        """The number of the iteration of the loop along them, counted from 1."""
        walked = V.start if self.first == "0" else V.start - self.first
        return walked // V.BLOCK_N + 1


ROW = Span("0", "n_cols")
CHUNK = Span("first", "length")  # of a split row


@dataclass(frozen=True, slots=True)
class Accumulator:
    """How a kernel spells a reduction: its dtype, mask and extent."""

    dtype: str  # "tl.float32", "COMPUTE", "tl.int64"
    kind: str  # "float", "int" or "any"
    rows: str = "BLOCK_M"  # length along rows: "1" if the argument varies along the columns only
    span: Span = ROW

    @property
    def count(self) -> str:
        return self.span.count

    @property
    def mask(self) -> str:
        return "tile_mask" if self.rows == "BLOCK_M" else "col_mask"

    def identity(self, kind: str) -> Expr:
        match IDENTITY[kind]:
            case float(value):
                bound = "lowest" if value < 0 else "highest"
                return expr(value) if self.kind == "float" else runtime[bound](self.dtype)
            case bool(value):
                return expr(value)
            case value:
                return expr(float(value) if self.kind == "float" else value)


def masked(kind: str, accumulator: Accumulator, x: Expr) -> Expr:
    """The argument of a reduction, with the identity in lanes past the columns."""
    match kind:
        case "any":
            return V.col_mask & x
        case "all":
            return ~V.col_mask | x
    return tl.where(V.col_mask, x, accumulator.identity(kind))


def full_reduction(node: Reduce, accumulator: Accumulator, cols: Term, plain_max: bool, x: Expr, axis: int = 1) -> Expr:
    """A reduction over `x`, the argument with its masked lanes at the identity."""
    if node.kind in ("argmax", "argmin"):
        return runtime[node.kind](x, cols)[1]
    x = x.to(FLAG) if node.kind in ("any", "all") else x
    return finished(node, accumulator, merged(node.kind, accumulator, plain_max, x, axis))


FLAG = "tl.int32"  # A boolean carried along a loop is slower by a fifth.


def merged(kind: str, accumulator: Accumulator, plain_max: bool, x: Expr, axis: int = 1) -> Expr:
    """The reduction over the lanes of a tile, or of a state."""
    rows = {"axis": axis, "keep_dims": True}
    match kind:
        case "prod":
            return tl.reduce(x, axis, V.multiply, keep_dims=True)
        case "max" | "min" if not plain_max and accumulator.kind != "int":
            return tl.reduce(x, axis, f"nan_{kind}", keep_dims=True)
    return tl[{"any": "max", "all": "min", "mean": "sum", "var": "sum"}.get(kind, kind)](x, **rows)


def finished(node: Reduce, accumulator: Accumulator, x: Expr) -> Expr:
    """The value of a reduction from the result `x` of merging its lanes."""
    match node.kind:
        case "mean":
            return x / accumulator.count
        case "var":
            return x / _degrees(node, accumulator)
        case "any" | "all":
            return x.differs(0)
    return x


def running(value: Value, accumulator: Accumulator, plain_max: bool, mean_of_var: str = "") -> Running:
    """The states of a reduction along the columns, named after its value; `mean_of_var` may name a variance's mean."""
    assert isinstance(value.node, Reduce)
    node, name, kind = value.node, value.name, value.node.kind
    identity = accumulator.identity(kind)
    finish = finished(node, accumulator, V[name])
    final = (Let(name, finish),) if finish != V[name] else ()
    match kind:
        case "argmax" | "argmin":
            best = State(f"{name}_best", identity, accumulator.dtype, rows=accumulator.rows)
            lanes = tl.zeros([accumulator.rows, V.BLOCK_N], V.INDEX) + tl.arange(0, V.BLOCK_N)[None, :]
            at = State(name, expr(0), "INDEX", start=lanes)
            both, states = f"{best.name}, {name}", (best.name, name)
            return Running(
                (best, at),
                lambda x: (Let(both, runtime[f"{kind}_update"](*states, x, V.cols)),),
                (Let(both, runtime[kind](*states)),),
            )
        case "var":
            zero = expr(0.0)
            mean = State(mean_of_var or f"{name}_mean", zero, accumulator.dtype, rows=accumulator.rows)
            squares = State(name, zero, accumulator.dtype, rows=accumulator.rows)
            both, states, counts = f"{mean.name}, {name}", (mean.name, name), f"{name}_count"
            # Counts per lane and chunk, from their positions: as stored values they gave poor layouts in Triton 3.6.
            of_lane = tl.cdiv(V[accumulator.count] - tl.arange(0, V.BLOCK_N)[None, :], V.BLOCK_N)
            of_chunk = tl.maximum(tl.minimum(V.n_cols - V.splits.to("INDEX") * V.split_cols, V.split_cols), 0)
            return Running(
                (mean, squares),
                lambda x: (Let(both, runtime.welford(*states, x, accumulator.mask, accumulator.span.iteration)),),
                (Let(both, runtime.merge_welford(*states, counts, accumulator.count)),),
                final,
                masked=False,
                lanes=(Let(counts, of_lane.to(accumulator.dtype)),),
                partials=(Let(counts, of_chunk.to(accumulator.dtype)),),
                counts=True,
            )
    is_flag = kind in ("any", "all")
    start, dtype = (expr(int(IDENTITY[kind])), FLAG) if is_flag else (identity, accumulator.dtype)

    def step(x: Expr) -> tuple[Line, ...]:
        if kind in ("max", "min"):
            plain = accumulator.kind == "int" or plain_max
            larger = tl[f"{kind}imum"] if plain else runtime[f"nan_{kind}"]
            return (Let(name, larger(name, x)),)
        operator = {"prod": "*", "any": "|", "all": "&"}.get(kind, "+")
        return (Accumulate(name, operator, x.to(FLAG) if is_flag else x),)

    one = State(name, start, dtype, rows=accumulator.rows)
    return Running((one,), step, (Let(name, merged(kind, accumulator, plain_max, V[name])),), final)


_VECTORS = V.BLOCK_N // V.VECTOR


def running_sum(value: Value, accumulator: Accumulator) -> Running:
    """The states of a long sum or mean, which also accumulates its rounding errors (Kahan).

    Neighbouring columns share a state, so that this takes no more registers than a plain sum.
    """
    plain = running(value, accumulator, False)
    name, lost, lanes, zero = value.name, f"{value.name}_lost", _VECTORS, expr(0.0)
    return replace(
        plain,
        states=(State(name, zero, accumulator.dtype, lanes=lanes, rows=accumulator.rows),),
        step=lambda x: (Let(f"{name}, {lost}", runtime.kahan_add(name, lost, x)),),
        lanes=(Accumulate(name, "-", V[lost]),),
        inner=(State(lost, zero, accumulator.dtype, lanes=lanes, rows=accumulator.rows),),
    )


def _degrees(node: Reduce, accumulator: Accumulator) -> Expr:
    """The divisor of a variance; as in torch never below 0, so that no elements give NaN."""
    if not node.correction:
        return V[accumulator.count]
    integer = int(node.correction)
    return tl.maximum(V[accumulator.count] - (integer if integer == node.correction else node.correction), 0)


def running_exp(largest: Value, total: Value, accumulator: Accumulator, finite: bool) -> Running:
    """The states of a maximum and of the sum of exp(x - maximum), in one pass.

    If `finite`, the sum subtracts 0 instead of an infinite maximum. Neighbouring columns share a state: each update
    rescales a state by an exponential, and with a state per column these would be as many as the summands.
    """
    both, names = f"{largest.name}, {total.name}", (largest.name, total.name)
    states = (
        State(largest.name, expr(-math.inf), accumulator.dtype, lanes=_VECTORS, rows=accumulator.rows),
        State(total.name, expr(0.0), accumulator.dtype, lanes=_VECTORS, rows=accumulator.rows),
    )
    return Running(
        states,
        lambda x: (Let(both, runtime.online_exp(*names, x, finite=finite)),),
        (Let(both, runtime.merge_online_exp(*names, finite=finite)),),
    )


def padding_value(
    op: Op, node: Node, cols: tuple[str, ...], other: float, is_masked: Callable[[Call], bool] = lambda _: False
) -> str:
    """The value of a node in masked lanes if loads give `other` there: "0", "-inf", or "?" if unknown.

    "row" is an unknown value that is uniform in the row. `is_masked` says whether a `where` is a masked load, which
    gives its constant in masked lanes.
    """
    if not set(node.axes) & set(cols):
        return "0" if isinstance(node, Constant) and node.value == 0 else "row"
    match node:
        case Load(at=()):
            tensor = op.input(node.name)
            floating = all("float" in dtype for dtype in tensor.type.dtypes)
            if tensor.default is not None:
                return "0" if tensor.default == other == 0 else "?"
            return "-inf" if floating and other != 0 else "0"
        case Ref():
            return padding_value(op, op.value(node.name).node, cols, other, is_masked)
        case Call(function="where", args=(_, _, Constant(0))) if is_masked(node):
            return "0"
        case Call(args=args):
            return _padding_value_of(op, node, [padding_value(op, arg, cols, other, is_masked) for arg in args])
    return "?"


def _padding_value_of(op: Op, call: Call, lanes: list[str]) -> str:
    """The value of a call in masked lanes. Rows and params may be infinite, which makes NaN from 0 and from -inf."""
    function, args = call.function, call.args
    if function in _OF_ZEROS and set(lanes) == {"0"}:
        return "0"
    if function == "exp" and lanes == ["-inf"]:
        return "0"
    if function in ("sub", "add") and lanes[0] == "-inf" and _is_finite(args[1]):
        return "-inf"
    if function == "sub" and lanes[0] == "-inf" and maximum_of(op, *args):
        return "-inf"
    if function == "mul" and "0" in lanes and _is_finite(args[1 - lanes.index("0")]):
        return "0"
    return "?"


_OF_ZEROS = frozenset("add sub mul square abs sqrt neg relu maximum minimum".split())


def _is_finite(node: Node) -> bool:
    return isinstance(node, Constant) and isinstance(node.value, int | float) and math.isfinite(node.value)
