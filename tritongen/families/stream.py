"""The math of a streaming kernel: scores of a tile of rows, and sums of values computed from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from ..lang.ir import BOOL, Call, Constant, Dtype, Load, Node, Op, Reduce, Ref, Take
from ..passes.contractions import applied
from ..passes.empty_sums import unless_empty_of
from ..passes.exponentials import exponent_of
from ..passes.masks.tiles import both
from ..spec.types import FLOAT8S, have_same_dtype


class NotStreamed(Exception):
    """Why no kernel streams an axis, as a part of a sentence."""


@dataclass(frozen=True, slots=True)
class StoredScores:
    """Scores that steps store, with the axes of rows and of what would stream, and why, as a part of a sentence."""

    axes: tuple[str, str]
    why: str

    def sentence(self, title: str) -> str:
        """The sentence about the forward or the backward, without a full stop."""
        return f"scores [{', '.join(self.axes)}] are stored in the {title}: {self.why}"


def write_instead(op: Op, streamed: str) -> str:
    """A hint, appended to the reason, on how to respell a softmax whose scores are stored; "" if the
    math has no such spelling.
    """
    nodes = [node for node in op.nodes if streamed in node.axes]
    calls = [node for node in nodes if isinstance(node, Call)]
    functions = {call.function for call in calls}
    if "exp2" in functions:
        return ". Write exp, not exp2, of scores below their maximum"
    if functions & {"nan_to_num", "isnan"}:
        return f". Test logsumexp(s, {streamed}) == -inf, not whether probabilities are NaN"
    if any("exp" in side.functions for call in calls if call.function == "where" for side in call.args[1:]):
        return ". Choose scores, where(kept, s, -inf), and not their exponentials"
    if any(isinstance(node, Call) and node.function == "logaddexp" for node in op.nodes):
        sums = f"sum(e, {streamed}) + exp(x - m), where e = exp(s - m) and m = maximum(max(s, {streamed}), x)"
        return f". Divide by {sums}, and not exp(s - logaddexp(lse, x))"
    if any(map(_multiplies_taken_rows, nodes)):
        return ". Take from products, take(sum(q * w, D), r, R), and not sum(q * take(w, r, R), D)"
    return ""


def _multiplies_taken_rows(node: Node) -> bool:
    """Whether a sum reduces rows that are gathered by positions with several axes."""
    if not isinstance(node, Reduce):
        return False
    taken = (inner for inner in node.nodes if isinstance(inner, Load | Take) and {*inner.axes} & {*node.over})
    return any(len({axis for _, at in inner.at for axis in at.axes}) > 1 for inner in taken)


@dataclass(frozen=True, slots=True)
class Scores:
    """A matmul of a matrix of the tile by a streamed matrix, over full heads."""

    name: str
    left: Load
    right: Load
    over: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamSum:
    """A sum along the streamed axis: of a factor times a matrix [streamed, …], or of the factor alone.

    It is rescaled when the running maximum grows, if it depends on that.
    """

    name: str
    factor: Node
    matrix: Load | None
    is_rescaled: bool


@dataclass(frozen=True, slots=True)
class Stream:
    """The work of a kernel that holds a tile of `rows` and streams `streamed`, for each index of the batch.

    `widths` are the axes that tiles hold in full: those that scores are summed over, and those of the matrices of sums.
    `outer_axes` are further summed axes. `largest` is the maximum that exponentials subtract, "" if there is none.
    `group` is the axis of heads that share the streamed matrices, whose rows may share a tile; "" if there is none.
    Streamed matrices may be stored in pages.
    """

    batch: tuple[str, ...]
    rows: str
    streamed: str
    outer_axes: tuple[str, ...]
    widths: tuple[str, ...]
    scores: tuple[Scores, ...]
    sums: tuple[StreamSum, ...]
    largest: str
    group: str = ""
    is_paged: bool = False

    @property
    def positions(self) -> tuple[str, ...]:
        """The streamed axis, after the axes of the loops around it."""
        return (*self.outer_axes, self.streamed)

    @property
    def tile(self) -> frozenset[str]:
        """The axes along which scores may vary."""
        return frozenset((*self.batch, *self.outer_axes, self.rows, self.streamed))

    @property
    def tile_rows(self) -> frozenset[str]:
        """The axes along which per-row values may vary."""
        return frozenset((*self.batch, self.rows))

    @property
    def summed(self) -> tuple[Load, ...]:
        """The matrices of the sums that are matmuls."""
        return tuple(one.matrix for one in self.sums if one.matrix is not None)

    @property
    def heads(self) -> tuple[str, ...]:
        """The axis of the heads of a group, if there is one."""
        return (self.group,) if self.group else ()

    @property
    def partial_results(self) -> tuple[tuple[str, str], ...]:
        """The partial results of a split for each row: the maximum and the sums, each with its width, if it has one."""
        sums = [(one.name, "" if one.matrix is None else self.width(one.matrix)) for one in self.sums]
        return tuple([(self.largest, ""), *sums] if self.largest else sums)

    def width(self, matrix: Load) -> str:
        """The axis across a matrix."""
        return next(axis for axis in matrix.axes if axis in self.widths)

    @property
    def matrices(self) -> tuple[Load, ...]:
        """The matrices that tiles are read of."""
        found = [side for scores in self.scores for side in (scores.left, scores.right)]
        return tuple(dict.fromkeys([*found, *self.summed]))


# Functions of scores of which a tile takes few registers.
LIGHT = frozenset(
    "add sub mul neg where minimum maximum eq ne lt le gt ge bitwise_and bitwise_or bitwise_not exp".split()
)


def computes_much(op: Op, stream: Stream) -> bool:
    """Whether scores are made by functions such as a soft cap's tanh, or of what is read at computed positions."""
    of_scores = [node for node in op.nodes if {stream.rows, stream.streamed} <= {*node.axes}]
    functions = {node.function for node in of_scores if isinstance(node, Call)}
    return not functions <= LIGHT or any(isinstance(node, Load) and node.at for node in of_scores)


def is_exponent(node: Node, score: str, largest: str) -> bool:
    """Whether a node is exp(score - largest)."""
    return [inner.name for inner in exponent_of(node) or () if isinstance(inner, Ref)] == [score, largest]


def power_below(score: Node, less: Node) -> Call:
    """exp(score - less)."""
    below = applied("sub", score, less)
    return Call("exp", (below,), below.axes, below.dtype)


def where_not_empty(node: Node) -> Node:
    """The factor that `unless_empty` was given; another node as it is."""
    found = unless_empty_of(node)
    return found[0] if found else node


def unless_zero(divisor: Node, but: Iterable[Node] = ()) -> Call:
    """A divisor of sums, and 1 where it is 0, as they are then, but where all of some conditions of rows hold."""
    zero, one = (Constant(number, Dtype("float")) for number in (0.0, 1.0))
    test = Call("eq", (divisor, zero), divisor.axes, BOOL)
    if holds := [*but]:
        held = reduce(both, holds)
        test = both(test, Call("logical_not", (held,), held.axes, BOOL))
    axes = (*divisor.axes, *(axis for axis in test.axes if axis not in divisor.axes))
    return Call("where", (test, one, divisor), axes, divisor.dtype)


def where_not_zero(node: Node) -> Node:
    """The argument of `unless_zero`; any other node unchanged."""
    match node:
        case Call(function="where", args=(Call(args=(test, *_)), Constant(value=1.0), divisor)):
            tests = (unless_zero(divisor).args[0], node.args[0])
            return divisor if tests[0] in (test, tests[1]) else node
    return node


def of_bytes(op: Op, load: Load) -> bool:
    """Whether a matrix is float8 or int8, which tiles convert to the dtype that is multiplied."""
    return set(op.input(load.name).type.dtypes) <= {*FLOAT8S, "int8"}


def promoted(op: Op, stream: Stream) -> tuple[str, ...]:
    """The matrices that are converted to the widest of their dtypes before tiles multiply them, if these may differ."""
    names = _wide(op, stream)
    return () if have_same_dtype([op.input(name).type for name in names]) else names


def multiplied_as(op: Op, stream: Stream) -> str:
    """The matrix in whose dtype all are multiplied, the first that is not of single bytes; "" if all are."""
    return next(iter(_wide(op, stream)), "")


def _wide(op: Op, stream: Stream) -> tuple[str, ...]:
    """The matrices that are not of single bytes."""
    return tuple(dict.fromkeys(load.name for load in stream.matrices if not of_bytes(op, load)))


def in_kernels(stream: Stream, axes: tuple[str, ...]) -> tuple[str, ...]:
    """The axes of a tensor in the order of kernels: unchanged if batch, head and outer loop axes come first; else these
    come first, and rows, the streamed axis and widths last.
    """
    first = tuple(axis for axis in (*stream.batch, *stream.heads, *stream.outer_axes) if axis in axes)
    if axes[: len(first)] == first:
        return axes
    last = tuple(axis for axis in (stream.rows, stream.streamed, *stream.widths) if axis in axes)
    return (*first, *(axis for axis in axes if axis not in (*first, *last)), *last)


def moved(axes: tuple[str, ...], order: tuple[str, ...]) -> tuple[int, ...]:
    """The dimensions of a tensor from the first that differs in `order` on, as negative indices; () if none does."""
    same = next((place for place, (one, other) in enumerate(zip(axes, order, strict=True)) if one != other), len(axes))
    return tuple(axes.index(axis) - len(axes) for axis in order[same:])
