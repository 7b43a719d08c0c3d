"""Sums of functions of scores along a streamed axis: attention and its like, whose scores no kernel has to store.

A kernel holds a tile of rows and iterates over the streamed axis in blocks. For each block it computes matmuls of the
tile of rows by the block (scores), applies the math to these, and adds to its accumulators: a matmul with a third
matrix, or a row sum. Exponentials are taken below the running maximum (online softmax): when it grows, the accumulators
are rescaled.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeGuard

from ...lang.ir import Call, Cast, Constant, Index, Load, Node, Op, Reduce, Ref, Size, Take, Value, children, walk
from ...lang.names import fresh
from ...lang.rewrite import named, rebuild, replaced
from ...lowering.choices import Choices
from ...lowering.tile import needed
from ...passes.contractions import applied, dot_of, is_product, product_of, sides_of, with_factors_outside
from ...passes.empty_sums import undefined_over
from ...passes.epilogues import WIDEST
from ...passes.exponentials import exponent_of, maximum_of, resolve, total_of_lse
from ...passes.factors import unless_empty
from ...passes.likely_positions import by_likelihood
from ...passes.masks.scores import Mask, mask_of
from ...passes.masks.tiles import conditions_of
from ...passes.merged_axes import MergedAxes, axes_together
from ...passes.shifts import rescaling_of
from ...passes.structure import is_extremum, line_of, only_maps_and_reduces, reached, references
from ...spec.types import BATCH, FLOATS
from ..stream import NotStreamed, Scores, Stream, StreamSum, of_bytes, power_below, unless_zero

# Elements of a head that a tile holds: half precision in 160 KB of shared memory, backward, too.
WIDEST_HEAD = 1024


def sums_of_sums(op: Op) -> bool:
    """Whether a sum of the operator reduces an axis of an earlier sum, as in every streaming operator."""
    sums = {value.name: value.node for value in op.values if isinstance(value.node, Reduce)}
    refs = op.refs
    inner = ((node, sums[name]) for of, node in sums.items() for name in reached(refs, refs[of], ()) & sums.keys())
    return any(not set(node.over).isdisjoint(below.axes) for node, below in inner)


def stream_of(op: Op, is_narrow: bool = False) -> tuple[Op, Stream, MergedAxes] | None:
    """The operator with its sums separated from factors of the result, its `Stream`, and its merged axes; None for
    other math.

    Unless `is_narrow`, the math must show that heads fit in tiles.
    """
    # At least three axes: the rows, the streamed axis, and the axis that scores reduce.
    if len({*op.axes} - {BATCH}) < 3 or not only_maps_and_reduces(op):
        return None
    for streamed in dict.fromkeys(_summed_of_scores(op)):
        merged = merged_axes(op, streamed)
        with suppress(NotStreamed):
            return *Finder(merged.joined(op), merged.of(streamed), is_narrow).found(), merged
    return None


def _summed_of_scores(op: Op) -> Iterator[str]:
    """For each sum, the axes of scores (matmuls of two loads) below it that it reduces, the likeliest first."""
    scored = {value.name: {*value.node.axes} for value in op.values if _multiplies_tensors(op, value.node)}
    refs = op.refs
    for value in op.values:
        over = value.node.over if isinstance(value.node, Reduce) and value.node.kind == "sum" else ()
        below = reached(refs, refs[value.name], ()) if scored and over else set()
        axes = set().union(*(axes for name, axes in scored.items() if name in below))
        yield from by_likelihood(op, axes.intersection(over))


def _multiplies_tensors(op: Op, node: Node) -> bool:
    """Whether a node is a matmul of two loaded tensors, as scores are; casts of single bytes to floats are allowed."""
    sides = sides_of(op, node)
    return sides is not None and all(is_read(unconverted(op, side)) for side in sides[:2])


def is_read(node: Node) -> TypeGuard[Load]:
    """Whether a node is an element of a tensor as it is read."""
    return isinstance(node, Load) and not node.at


def unconverted(op: Op, node: Node) -> Node:
    """A matrix of single bytes without its cast to float, which is exact; other nodes, resolved."""
    node = resolve(op, node)
    inner = resolve(op, node.arg) if isinstance(node, Cast) and node.dtype.kind == "float" else node
    return inner if isinstance(inner, Load) and of_bytes(op, inner) else node


def merged_axes(op: Op, streamed: str) -> MergedAxes:
    """The head axes that are adjacent in all tensors: axes that scores reduce, and axes of matrices in sums along
    `streamed`; no computed value along `streamed` has any of them. Also the axes of a softmax that are always adjacent,
    as of an image, and `...` if no result has it: programs iterate over it.
    """
    nodes = [value.node for value in op.values]
    reductions = [node for node in nodes if isinstance(node, Reduce)]
    summed = [node for node in reductions if streamed in node.over]
    inside = {axis for node in nodes if streamed in node.axes and not isinstance(node, Load) for axis in node.axes}
    heads = {axis for node in reductions if streamed in node.axes for axis in node.over}
    operands = (inner for node in summed for inner in node.arg.nodes if isinstance(inner, Load))
    heads = heads.union(*(load.axes for load in operands))
    positions = set().union(*(node.over for node in filter(is_extremum, summed)))
    merged = axes_together(op, (heads - inside - {streamed} | positions) - {BATCH})
    lasts = any(BATCH in result.axes for result in op.results)
    return merged if lasts or BATCH not in op.axes else merged.with_batch(op)


@dataclass(frozen=True, slots=True)
class _Terms:
    """The terms of a sum along the streamed axis: the factors `inside`, which vary along it, their `matrices` and the
    product of the others (`factor`; `is_rescaled` when the running maximum grows), and factors and divisors `outside`.
    """

    inside: tuple[Node, ...]
    matrices: tuple[Node, ...]
    factor: Node
    outside: Sequence[tuple[Node, bool]]
    is_rescaled: bool


class Finder:
    """Matches an operator as one that streams an axis."""

    def __init__(self, op: Op, streamed: str, is_narrow: bool = False) -> None:
        self.op, self.streamed, self.is_narrow = op, streamed, is_narrow
        self.taken = op.names
        self.largest = ""  # the maximum that exponentials are taken below; "several" if there is more than one

    def found(self) -> tuple[Op, Stream]:
        """Raises `NotStreamed`."""
        self.op = with_factors_outside(self.op, self.streamed, self.taken)
        self.op = self.below_largest()
        self.op, sums = self.sums()
        in_loop = self.needed([one.factor for one in sums])
        if again := next((one.name for one in sums if one.name in in_loop), ""):
            raise NotStreamed(f"{self.line(again)} is summed along {self.streamed} before what reads it is")
        if all(one.matrix is None for one in sums) and not self.has_powers(in_loop):
            raise NotStreamed("no matrix is summed with them")
        scores: list[Scores] = []
        for name in in_loop:
            node = self.op.value(name).node
            if isinstance(node, Reduce) and name != self.largest and self.streams(node):
                found = self.scores_of(name, node)
                if found is None:
                    raise NotStreamed(f"{self.line(name)} {self.other_than_scores(node)}")
                scores.append(found)
        if not scores:
            raise NotStreamed("there are none")
        return self.stream(tuple(scores), sums, [name for name in in_loop if name != self.largest])

    def line(self, name: str) -> str:
        """The line of [compute] that a value came from."""
        return line_of(self.op, self.op.value(name))

    # Factors

    def streams(self, node: Node) -> bool:
        return self.streamed in node.axes

    def needed(self, nodes: Iterable[Node]) -> list[str]:
        """The names of the values that `nodes` depend on, in order."""
        return [value.name for value in needed(self.op.values, set().union(*map(references, nodes)))]

    def is_summed(self, node: Node) -> bool:
        """Whether a node depends on a reduction along the streamed axis."""
        below = (inner for name in self.needed([node]) for inner in walk(self.op.value(name).node))
        return any(isinstance(inner, Reduce) and self.streamed in inner.over for inner in below)

    def factors(self, node: Node) -> Iterator[tuple[Node, bool]]:
        """The factors of a node, and whether each is a divisor; a line is one factor if all of its own stream."""
        match node:
            case Call(function="mul", args=args):
                for arg in args:
                    yield from self.factors(arg)
            case Call(function="div", args=(above, below)) if not self.streams(below):
                yield from self.factors(above)
                yield below, True
            case Call(function="div", args=(above, below)) if not isinstance(above, Constant):
                yield from self.factors(above)
                yield applied("div", Constant(1.0, above.dtype), below), False
            case Call(function="where") if (chosen := self.chosen_of_means(node)) is not None:
                yield from self.chosen_factors(chosen, node)
            case Ref(name=name):
                found = list(self.factors(self.op.value(name).node))
                separate = any(not self.streams(factor) or isinstance(factor, Load) for factor, _ in found)
                yield from found if separate and len(found) > 1 else [(node, False)]
            case _:
                yield node, False

    def chosen_factors(self, chosen: Mask, node: Node) -> Iterator[tuple[Node, bool]]:
        """The factors and divisors of a `where` that chooses a product or else 0."""
        conditions, mask = conditions_of(self.op, chosen.condition), self.mask()
        is_masked = mask is not None and mask <= conditions
        of_rows = [] if is_masked else sorted((c for c in conditions if not self.streams(c)), key=repr)
        for factor, is_divisor in self.factors(chosen.score):
            is_sum = is_divisor and self.is_summed(factor)
            is_zero = is_sum and (is_masked or of_rows)
            yield unless_zero(factor, of_rows) if is_zero else factor, is_divisor
        if conditions != mask:
            constants = (Constant(number, node.dtype) for number in (1.0, 0.0))
            yield Call("where", (chosen.condition, *constants), chosen.condition.axes, node.dtype), False

    def chosen_of_means(self, node: Node) -> Mask | None:
        """The mask of a `where` of a product or else 0, if a factor is a sum along the streamed axis, as with dropout.

        Fully masked rows, whose sums are 0, give 0 and not NaN, if the condition excludes masked scores.
        """
        found = mask_of(self.op, node, 0.0) if self.largest else None
        if found is None or not self.streams(found.condition):
            return None
        factors = list(self.factors(found.score))
        sums = [is_divisor for factor, is_divisor in factors if not self.streams(factor) and self.is_summed(factor)]
        mask = self.mask()
        is_guarded = all(sums) or mask is None or not mask <= conditions_of(self.op, found.condition)
        return found if sums and is_guarded and len(sums) < len(factors) else None

    def mask(self) -> frozenset[Node] | None:
        """The conditions under which scores are unmasked; None without a mask."""
        largest = self.op.value(self.largest).node
        assert isinstance(largest, Reduce)
        mask = mask_of(self.op, largest.arg, float("-inf"))
        return None if mask is None else conditions_of(self.op, mask.condition)

    # Exponentials below the largest score so far (online softmax)

    def below_largest(self) -> Op:
        """The operator with each exponential taken below the maximum of its argument, and rescaled after the sums.

        exp(x - y), where y depends on sums along the streamed axis, is exp(x - largest) * exp(largest - y).
        """
        values: list[Value] = []

        def below(node: Node) -> Node:
            if "exp" not in node.functions:
                return node
            node = rebuild(node, tuple(map(below, children(node))))
            if not isinstance(node, Call) or node.function != "exp":
                return node
            match self.less_at_once(resolve(self.op, node.args[0])):
                case Call(function="sub", args=(x, y)) if self.streams(x) and not self.streams(y) and self.is_summed(y):
                    largest = self.largest_of(x, y, values)
                    shift = largest.ref
                    power = power_below(x, shift)  # Of the dtype of x, whatever else there is in y.
                    if maximum_of(self.op, x, y) == largest:
                        return power
                    if (total := total_of_lse(self.op, x, y)) is not None:
                        return applied("div", power, total)
                    rest = Call("exp", (Call("sub", (shift, y), y.axes, y.dtype),), y.axes, y.dtype)
                    return Call("mul", (power, rest), node.axes, node.dtype)
            return node

        for value in self.op.values:
            values.append(value.of(below(value.node)))
        return self.score_named(replace(self.op, values=tuple(values)))

    def less_at_once(self, difference: Node) -> Node:
        """Rewrites (x - largest) - y, as in log_softmax, to x - (largest + y); returns other differences unchanged."""
        match difference:
            case Call(function="sub", args=(less, y)):
                match resolve(self.op, less):
                    case Call(function="sub", args=(x, shift)) if maximum_of(self.op, x, shift):
                        return applied("sub", x, applied("add", shift, y))
        return difference

    def score_named(self, op: Op) -> Op:
        """The operator with a named value for the argument of the maximum."""
        if self.largest in ("", "several"):
            return op
        node = op.value(self.largest).node
        if not isinstance(node, Reduce) or isinstance(node.arg, Ref):
            return op
        name, score = fresh("score", self.taken), node.arg
        ref = Ref(name, score.axes, score.dtype)
        values: list[Value] = []
        for value in op.values:
            node = replaced(value.node, lambda inner: ref if inner == score else inner)
            if node != value.node and all(one.name != name for one in values):
                values.append(Value(name, score, ""))
            values.append(replace(value, node=node))
        return replace(op, values=tuple(values))

    def largest_of(self, x: Node, y: Node, values: list[Value]) -> Value:
        """The maximum that `x` is taken below: an existing one, possibly over more axes as in an lse, or a new one."""
        axes = tuple(axis for axis in x.axes if axis != self.streamed)
        node = Reduce("max", x, (self.streamed,), axes, x.dtype)
        inside = [(value, value.node) for value in map(self.op.value, self.needed([y]))]
        reduced = ((v, one) for v, one in inside if isinstance(one, Reduce) and self.streamed in one.over)
        wide = (value for value, one in reduced if (one.kind, one.arg) == (node.kind, node.arg))
        same = (value for value in self.op.values if value.node == node)
        found = maximum_of(self.op, x, y) or next(itertools.chain(wide, same), None)
        if found is None:
            named(node, "largest", self.taken, values)
            found = values[-1]
            self.op = replace(self.op, values=(*self.op.values, found))
        self.largest = found.name if self.largest in ("", found.name) else "several"
        return found

    # Sums

    def sums(self) -> tuple[Op, tuple[StreamSum, ...]]:
        """The operator with factors that lack the streamed axis moved out of sums along it, and the sums."""
        if self.largest == "several":
            raise NotStreamed(f"exponentials along {self.streamed} are below several maxima")
        values: list[Value] = []
        sums: dict[tuple[Node, ...], StreamSum] = {}  # by their factors
        for value in self.op.values:
            node = value.node
            is_largest = value.name == self.largest and isinstance(node, Reduce) and node.kind == "max"
            if not isinstance(node, Reduce) or self.streamed not in node.over or is_largest:
                values.append(value)
                continue
            terms = self.terms_of(line_of(self.op, value), node)
            dot = dot_of(replace(node, kind="sum"), terms.inside)
            of = (resolve(self.op, terms.factor), *terms.matrices)
            is_new = of not in sums
            if is_new:
                name = fresh(f"{value.name}_dot", self.taken) if terms.outside else value.name
                matrix = unconverted(self.op, terms.matrices[0]) if terms.matrices else None
                assert matrix is None or isinstance(matrix, Load)
                sums[of] = StreamSum(name, terms.factor, matrix, terms.is_rescaled)
                values.append(Value(name, dot, "") if terms.outside else replace(value, node=dot))
            if terms.outside or not is_new:
                total = Ref(sums[of].name, dot.axes, dot.dtype)
                values.append(replace(value, node=_scaled(total, terms.outside)))
        return replace(self.op, values=tuple(values)), tuple(sums.values())

    def terms_of(self, line: str, node: Reduce) -> _Terms:
        """What a reduction along the streamed axis sums. Raises `NotStreamed`."""
        if node.kind not in ("sum", "mean") or node.dtype.kind != "float":
            raise NotStreamed(f"{line} takes their {node.kind} along {self.streamed}")
        factors = list(self.factors(node.arg))
        inside = tuple(factor for factor, is_divisor in factors if not is_divisor and self.streams(factor))
        outside = [(self.outside(*one, node.over), one[1]) for one in factors if not self.streams(one[0])]
        divides = len(inside) + len(outside) < len(factors)
        outside += [(Size(node.over), True)] * (node.kind == "mean")  # A mean of nothing is NaN.
        if divides or not inside or any(set(factor.axes) & set(node.over) for factor, _ in outside):
            raise NotStreamed(f"{line} sums what varies along {self.streamed} otherwise than as a factor")
        matrices = tuple(factor for factor in inside if self.is_matrix(factor, inside))
        if len(matrices) > 1:
            raise NotStreamed(f"{line} multiplies two matrices along {self.streamed}")
        factor = product_of(tuple(f for f in inside if f not in matrices) or (inside[0],))
        is_rescaled = rescaling_of(self.op, self.largest, factor) if self.largest else 0
        if is_rescaled not in (0, -1):
            raise NotStreamed(f"{line} sums more than exponentials below their maximum")
        return _Terms(inside, matrices, factor, outside, is_rescaled == -1)

    def outside(self, factor: Node, is_divisor: bool, over: tuple[str, ...]) -> Node:
        """A factor of the terms of a sum over some axes, or a divisor, as it multiplies the sum."""
        may_be_undefined = self.is_summed(factor) or undefined_over(self.op, factor, is_divisor)
        return unless_empty(factor, *over) if may_be_undefined else factor

    def is_matrix(self, factor: Node, inside: Sequence[Node]) -> bool:
        """Whether a factor is an input, with an axis that the others lack, who have one that it lacks."""
        node = unconverted(self.op, factor)
        others = {axis for other in inside if other is not factor for axis in other.axes}
        return (
            isinstance(node, Load) and not node.at and bool(set(node.axes) - others) and bool(others - set(node.axes))
        )

    # Scores

    def scores_of(self, name: str, node: Reduce) -> Scores | None:
        sides = sides_of(self.op, node)
        if sides is None or len(node.over) > 1 or not self.streams(node):
            return None
        left, right = (unconverted(self.op, side) for side in sides[:2])
        if self.streams(left):
            left, right = right, left
        if sides[2] or not is_read(left) or not is_read(right):
            return None
        return Scores(name, left, right, node.over)

    def other_than_scores(self, node: Reduce) -> str:
        """What a reduction does that gives no scores."""
        sides = sides_of(self.op, node) if node.kind == "sum" else None
        if sides and len(node.over) > 1 and all(isinstance(unconverted(self.op, side), Load) for side in sides[:2]):
            return (
                f"sums over {' and '.join(node.over)}, which tensors do not all have next to one another in one order"
            )
        inner = (self.op.value(name).node for name in self.needed([node]))
        if any(self.streams(one) and is_product(self.op, one) for one in inner):
            return f"sums over {' and '.join(node.over)} what is made of scores"
        return "reduces what is no product of two inputs over one axis"

    def has_powers(self, names: list[str]) -> bool:
        return any(is_below(node) for name in names for node in walk(self.op.value(name).node))

    # Assembly

    def stream(self, scores: tuple[Scores, ...], sums: tuple[StreamSum, ...], in_loop: list[str]) -> tuple[Op, Stream]:
        rows = self.rows_of(scores, sums)
        names = [*(one.name for one in sums), *([self.largest] if self.largest else [])]
        overs = {node.over for name in names if isinstance(node := self.op.value(name).node, Reduce)}
        if rows is None:
            raise NotStreamed(f"no axis is one of rows, which nothing that has {self.streamed} has beside them")
        if len(overs) > 1:
            raise NotStreamed(f"sums along {self.streamed} are over different axes")
        outer_axes = tuple(axis for axis in overs.pop() if axis != self.streamed)
        widths = [axis for one in scores for axis in one.over]
        for one in sums:
            if one.matrix is not None:
                widths += [axis for axis in one.matrix.axes if axis not in one.factor.axes]
        inner = {rows, self.streamed, *outer_axes, *widths}
        last = {axis for result in self.op.results for axis in result.axes} - inner
        batch = tuple(axis for axis in self.op.axes if axis in last)
        found = Stream(batch, rows, self.streamed, outer_axes, tuple(dict.fromkeys(widths)), scores, sums, self.largest)
        self.check(found, in_loop)
        return self.op, found

    def rows_of(self, scores: tuple[Scores, ...], sums: tuple[StreamSum, ...]) -> str | None:
        """The axis of the rows: scores vary along it by their left matrix alone, and no streamed matrix does."""
        streamed = [one.right for one in scores] + [one.matrix for one in sums if one.matrix is not None]
        shared = set(scores[0].left.axes).intersection(*(set(one.left.axes) for one in scores))
        shared -= {axis for matrix in streamed for axis in matrix.axes}
        return next(iter(by_likelihood(self.op, shared - {BATCH})), None)

    def check(self, stream: Stream, in_loop: list[str]) -> None:
        """Raises `NotStreamed` where values have more axes than tiles, or something else is reduced."""
        names = self.check_scores(stream, in_loop)
        for value in needed(self.op.values, [result.output.name for result in self.op.results]):
            if value.name not in names:
                self.check_value(stream, value, value.name in in_loop)
        for total in stream.sums:
            self.check_sum(stream, total)
        self.check_results(stream)

    def check_scores(self, stream: Stream, in_loop: Iterable[str]) -> list[str]:
        """The names of scores, sums and the largest. Raises `NotStreamed` where no tile has such scores."""
        choices = Choices(self.op)
        names = [stream.largest, *(one.name for one in stream.scores), *(one.name for one in stream.sums)]
        if chosen := next((name for name in sorted(names) if name and choices.of(name)), ""):
            raise NotStreamed(f"a param decides whether {self.line(chosen)} is computed")
        if not self.is_worth_it(stream, in_loop):
            raise NotStreamed(f"{' and '.join(stream.widths)} may be as long as layers of a perceptron are")
        for score in stream.scores:
            self.check_score(stream, score)
        for load in stream.matrices:
            tensor = self.op.input(load.name)
            if tensor.default is not None or not (set(tensor.type.dtypes) <= set(FLOATS) or of_bytes(self.op, load)):
                raise NotStreamed(f"{load.name} may be None, or of a dtype that no tile multiplies")
        # All are converted to the dtype of one, or to float16 where all are float8.
        dtypes = {dtype for load in stream.matrices for dtype in self.op.input(load.name).type.dtypes}
        if "int8" in dtypes and all(of_bytes(self.op, load) for load in stream.matrices):
            raise NotStreamed(f"{', '.join(load.name for load in stream.matrices)} are integers")
        return names

    def check_value(self, stream: Stream, value: Value, in_loop: bool) -> None:
        if in_loop and is_row_sum(value, stream):
            return
        if any(isinstance(node, Reduce | Take) for node in walk(value.node)):
            what = "a reduction" if isinstance(value.node, Reduce) else "an element"
            raise NotStreamed(f"{self.line(value.name)} takes {what} of what no tile holds whole")
        extra = set(value.node.axes) - (stream.tile if in_loop else stream.tile_rows)
        is_tile = len(extra) == 1 and extra <= set(stream.widths) and not in_loop
        if extra and not is_tile:
            raise NotStreamed(self.too_wide(value.name, extra))

    def check_score(self, stream: Stream, score: Scores) -> None:
        sides = (score.left, stream.rows, stream.streamed), (score.right, stream.streamed, stream.rows)
        for matrix, along, across in sides:
            axes, tile = {*matrix.axes}, {*stream.tile, *score.over}
            if not {along, *score.over} <= axes <= tile - {across}:
                raise NotStreamed(self.too_wide(score.name, axes - tile))

    def check_sum(self, stream: Stream, total: StreamSum) -> None:
        axes = {*total.factor.axes}
        if total.matrix is not None and len(extra := set(total.matrix.axes) - stream.tile) != 1:
            raise NotStreamed(self.too_wide(total.name, extra))
        if extra := axes - stream.tile:
            raise NotStreamed(self.too_wide(total.name, extra))
        if total.matrix is None and (extra := axes - self.axes_of_scores(stream)):
            raise NotStreamed(f"{self.too_wide(total.name, extra)}: no matrix that is read has these values")
        if stream.rows not in axes:
            raise NotStreamed(f"{self.line(total.name)} sums what is the same for all {stream.rows}")

    def check_results(self, stream: Stream) -> None:
        rows = stream.tile_rows
        for result in self.op.results:
            extra = set(result.axes) - rows
            if not rows <= set(result.axes) or len(extra) > 1 or not extra <= set(stream.widths):
                raise NotStreamed(f"{result.output.name} has other axes than rows and a matrix of these")

    def axes_of_scores(self, stream: Stream) -> set[str]:
        """The axes of scores and of factors in sums of matrices, without the widths of matrices."""
        nodes: list[Node] = [side for one in stream.scores for side in (one.left, one.right)]
        nodes += [total.factor for total in stream.sums if total.matrix is not None]
        nodes += [self.op.value(stream.largest).node] if stream.largest else []
        return {stream.streamed, *(axis for node in nodes for axis in node.axes)} - {*stream.widths}

    def too_wide(self, name: str, axes: Iterable[str]) -> str:
        names = [axis for axis in self.op.axes if axis in axes]
        return f"{self.line(name)} varies along {', '.join(names) or 'axes'} where tiles do not"

    def is_worth_it(self, stream: Stream, in_loop: Iterable[str]) -> bool:
        """Whether matrices are known, or likely, to be as narrow as heads.

        Scores of heads wider than a tile are stored, since recomputing them for each block of a head takes more FLOPs.
        MLP layers have the same form. Attention and its gradients have exponentials below a value, or row sums of
        exponentials, and masks and decays have positions; otherwise the widths have to be known.
        """
        every = [*(self.op.value(name).node for name in in_loop), *(one.factor for one in stream.sums)]
        nodes = [node for root in every for node in walk(root)]
        sizes = dict(self.op.sizes)
        if any(sizes.get(axis, 0) > WIDEST_HEAD for axis in stream.widths):
            return False
        narrow = all(sizes.get(axis, WIDEST + 1) <= WIDEST for axis in stream.widths)
        if any(is_exponential(self.op, one.factor) for one in stream.sums if one.matrix is None):
            return True
        return self.is_narrow or narrow or any(is_below(node) or isinstance(node, Index) for node in nodes)


def is_row_sum(value: Value, stream: Stream) -> bool:
    """Whether a value is a row sum of a function of matrices of the tile, along one of their widths."""
    node = value.node
    if not isinstance(node, Reduce) or node.kind != "sum" or len(node.over) > 1:
        return False
    inside = {*stream.batch, stream.group, stream.rows, *node.over}
    loads = [inner for inner in walk(node.arg) if isinstance(inner, Load)]
    plain = not references(node) and all(not load.at and set(load.axes) <= inside for load in loads)
    return plain and node.over[0] in stream.widths and all({stream.rows, *node.over} <= set(one.axes) for one in loads)


def is_exponential(op: Op, node: Node) -> bool:
    """Whether a node is an exponential, possibly masked or times a factor."""
    match resolve(op, node):
        case Call(function="exp"):
            return True
        case Call(function="where", args=(_, *operands)) | Call(function="mul", args=operands):
            return any(is_exponential(op, arg) for arg in operands)
    return False


def is_below(node: Node) -> bool:
    """Whether a node is exp(x - y) with a y of fewer elements than x."""
    found = exponent_of(node)
    return found is not None and set(found[1].axes) < set(found[0].axes)


def _scaled(total: Node, outside: Sequence[tuple[Node, bool]]) -> Node:
    """A sum times some factors, or divided by them."""
    for factor, is_divisor in outside:
        total = applied("div" if is_divisor else "mul", total, factor)
    return total
