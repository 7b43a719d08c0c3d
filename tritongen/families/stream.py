"""What a kernel streams past a tile of rows: the scores of the two, and the sums of what is made of those."""

from __future__ import annotations

from dataclasses import dataclass

from ..lang.ir import BOOL, INT64, Call, Constant, Dtype, Load, Node, Op, Ref, Size
from ..spec.types import FLOAT8S


@dataclass(frozen=True, slots=True)
class Scores:
    """A matmul of a matrix along the rows with one along the streamed axis, over whole rows of both."""

    name: str
    left: Load
    right: Load
    over: str


@dataclass(frozen=True, slots=True)
class StreamSum:
    """A value that adds up along the streamed axis: a factor times a matrix [streamed, …], or the factor alone.

    It is scaled as the largest grows, if it falls with that.
    """

    name: str
    factor: Node
    matrix: Load | None
    falls: bool


@dataclass(frozen=True, slots=True)
class Stream:
    """What a kernel does that holds a tile of `rows` and goes along `streamed`, for each index of the batch.

    `widths` are the axes that tiles hold whole: those that scores are summed over, and of the matrices of sums. `turns`
    are axes that are summed besides. `largest` is the value that exponentials are taken below, "" where there is none.
    `group` is the axis of heads that share what streams, "" where none do: its rows may be in one tile.
    """

    batch: tuple[str, ...]
    rows: str
    streamed: str
    turns: tuple[str, ...]
    widths: tuple[str, ...]
    scores: tuple[Scores, ...]
    sums: tuple[StreamSum, ...]
    largest: str
    group: str = ""

    @property
    def summed(self) -> tuple[Load, ...]:
        """The matrices of the sums that are matmuls."""
        return tuple(one.matrix for one in self.sums if one.matrix is not None)

    @property
    def heads(self) -> tuple[str, ...]:
        """The axis of the heads of a group, if there is one."""
        return (self.group,) if self.group else ()

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """What a split leaves of each row: the largest and the sums, each with the axis across it, if it has one."""
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


def is_exponent(node: Node, score: str, largest: str) -> bool:
    """Whether a node is exp(score - largest)."""
    match node:
        case Call(function="exp", args=(Call(function="sub", args=(Ref(name=x), Ref(name=y))),)):
            return (x, y) == (score, largest)
    return False


def unless_empty(factor: Node, *over: str) -> Call:
    """A factor of the terms of a sum over some axes, and 1 where they are empty: whatever it is, such a sum is 0."""
    some = Call("ne", (Size(over), Constant(0, INT64)), (), BOOL)
    return Call("where", (some, factor, Constant(1.0, Dtype("float"))), factor.axes, factor.dtype)


def where_not_empty(node: Node) -> Node:
    """What `unless_empty` was given; another node as it is."""
    match node:
        case Call(function="where", args=(Call(function="ne", args=(Size(over=over), _)), factor, _)):
            return factor if node == unless_empty(factor, *over) else node
    return node


def is_float8(op: Op, load: Load) -> bool:
    """Whether a matrix is of float8, which tiles convert to what is multiplied."""
    return set(op.input(load.name).type.dtypes) <= set(FLOAT8S)


def multiplied_as(op: Op, stream: Stream) -> str:
    """The matrix in whose dtype all are multiplied, the first that is not of float8; "" where all are."""
    return next((load.name for load in stream.matrices if not is_float8(op, load)), "")
