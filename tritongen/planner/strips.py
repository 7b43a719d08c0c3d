"""Two-stage reductions of a matmul's result: strips of its tiles in the epilogue, then the partial results.

If nothing else reads the result, it is not stored; otherwise one read is saved. The partial results are small, have the
dtype of the computation, and are reduced in a fixed order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import combinations

from ..lang.facts import fact
from ..lang.ir import ALWAYS, Call, Constant, Dtype, Index, Node, Op, Reduce, Ref, Result, Size, Strips, Value, walk
from ..lang.names import fresh
from ..lang.unparse import spelled
from ..lowering.choices import Choices
from ..passes.contractions import applied, is_product, sides_of
from ..passes.epilogues import STRIP_COLS, STRIP_ROWS
from ..passes.exponentials import exp_pairs, resolve
from ..passes.structure import references
from ..spec.types import BATCH

KINDS = ("sum", "mean", "max", "min", "var")


def by_strips(op: Op) -> Iterator[Op]:
    """Variants of the operator with such reductions split in two: all of them, and those over rows or columns only.

    Reductions that params decide about stay, because not all arguments of their steps determine the number of strips.
    """
    paths = Choices(op).paths
    always = [value for value in op.values if paths.get(value.name, ALWAYS) == ALWAYS]
    found = {value.name: over for value in always if (over := _over_side(op, value))}
    overs = sorted(set(found.values()))
    for count in range(len(overs), 0, -1):
        for chosen in combinations(overs, count):
            yield _Splitter(op).reduced({name for name, over in found.items() if over in chosen})


def reduced_by_strips(op: Op) -> list[str]:
    """The tile-wise partial reductions: they are stored, since no step has both stages of a reduction."""
    return [value.name for value in op.values if isinstance(value.node, Reduce) and value.node.strips]


def merged_strips(op: Op) -> dict[str, tuple[str, ...]]:
    """The values that reduce tile-wise partial results, with their axes."""
    axes = {strips.axis for strips in op.strips}
    nodes = {value.name: value.node for value in op.values}
    return {name: node.axes for name, node in nodes.items() if isinstance(node, Reduce) and {*node.over} <= axes}


def spreads(merged: Collection[tuple[str, ...]], results: Iterable[Result]) -> bool:
    """Whether partial results would be reduced again for each element of a result that has more axes."""
    return any(not {*result.axes} <= {*axes} for axes in merged for result in results)


def made_for(op: Op, name: str) -> set[str]:
    """The values from matmuls up to the operand of a tile-wise reduction, all computed by the step of the matmuls."""
    found: set[str] = set()
    left = [*references(op.value(name).node)]
    while left:
        one = left.pop()
        node = op.value(one).node
        found.add(one)
        left += () if is_product(op, node) else references(node)
    return found


def _over_side(op: Op, value: Value) -> tuple[str, ...]:
    """The axes over which a value reduces a matmul's result, if they are all of its rows or columns; else none."""
    node = value.node
    if not isinstance(node, Reduce) or node.kind not in KINDS or node.dtype.kind != "float" or is_product(op, node):
        return ()
    arg = _summed(op, value)
    products = _products(op, arg)
    if not products:
        return ()
    one, other = _sides(op, products[0])
    is_side = set(node.over) in (one - other, other - one) and set(arg.axes) == one | other
    return node.over if is_side and arg.dtype.kind == "float" else ()


def _summed(op: Op, value: Value) -> Node:
    """The operand of a reduction; for a sum of exp(x - max(x)), the operand of the maximum."""
    node = exp_pairs(op).get(value.name, value).node
    assert isinstance(node, Reduce)
    return node.arg


def _products(op: Op, node: Node) -> list[str] | None:
    """The matmuls from which a node is computed elementwise; None if it gathers or needs other reductions."""
    if node.gathers:
        return None
    found: list[str] = []
    for leaf in walk(node):
        if isinstance(leaf, Ref):
            inner = _products_of(op, leaf.name)
            if inner is None:
                return None
            found += inner
    return found


@fact
def _products_of(op: Op, name: str) -> list[str] | None:
    """As `_products`, of a value."""
    node = op.value(name).node
    if isinstance(node, Reduce):
        return [name] if is_product(op, node) else None
    return _products(op, node)


def _sides(op: Op, product: str) -> tuple[set[str], set[str]]:
    """The free axes of the two operands of a matmul."""
    node = op.value(product).node
    sides = sides_of(op, node)
    assert isinstance(node, Reduce)
    assert sides is not None
    one, other = (set(side.axes) - set(node.over) for side in sides[:2])
    return one, other


class _Splitter:
    """Splits reductions of an operator into tile-wise partial reductions."""

    def __init__(self, op: Op) -> None:
        self.op, self.taken = op, op.names
        self.values: list[Value] = []
        self.known: dict[Reduce, Ref] = {}
        self.strips: dict[tuple[str, ...], Strips] = {}

    def reduced(self, names: set[str]) -> Op:
        """The operator with the reductions in `names` split in two."""
        for value in self.op.values:
            if value.name in names:
                node = self.merged(value)
                value = replace(value, node=node, source=value.source and spelled(node))
            self.values.append(value)
        strips = tuple(self.strips.values())
        axes = (*self.op.axes, *(one.axis for one in strips))  # Last, so that the second stage reads adjacent elements.
        return replace(self.op, values=tuple(self.values), axes=axes, strips=strips)

    def merged(self, value: Value) -> Node:
        """The second stage of a reduction: its value computed from tile-wise partial results."""
        node, name = value.node, value.name
        assert isinstance(node, Reduce)
        arg, length = _summed(self.op, value), Size(node.over)
        if arg != node.arg:
            largest, exps = (self.by_strips(kind, arg, node, name) for kind in ("max", "exps"))
            power = resolve(self.op, node.arg)
            difference = resolve(self.op, power.args[0]) if isinstance(power, Call) else power
            assert isinstance(difference, Call)
            shrunk = _called("exp", applied("sub", largest, difference.args[1]))
            return self.over_strips(applied("mul", exps, shrunk), node)
        if node.kind == "mean":
            return applied("div", self.total(node, name), length)
        if node.kind == "var":
            sums, squares = (self.by_strips(kind, arg, node, name) for kind in ("sum", "squares"))
            mean = applied("div", self.total(node, name), length)
            count = self.count(node)
            distance = applied("sub", applied("div", sums, count), mean)
            around = applied("add", squares, applied("mul", count, _called("square", distance)))
            total = self.named(f"{name}_squares", self.over_strips(around, node))
            degrees = applied("maximum", applied("sub", length, _number(node.correction)), _number(0))
            return applied("div", total, degrees if node.correction else length)
        return self.over_strips(self.by_strips(node.kind, arg, node, name), node, node.kind)

    def total(self, node: Reduce, name: str) -> Ref:
        """The sum of a mean's or variance's operand, in two stages."""
        return self.named(f"{name}_sum", self.over_strips(self.by_strips("sum", node.arg, node, name), node))

    def by_strips(self, kind: str, arg: Node, node: Reduce, name: str) -> Ref:
        axis = self.along(node).axis
        reduction = Reduce(kind, arg, node.over, (*node.axes, axis), node.dtype, strips=axis)
        word = "" if kind == node.kind else f"_{kind}"
        return self.named(f"{name}{word}_strips", reduction)

    def over_strips(self, arg: Node, node: Reduce, kind: str = "sum") -> Reduce:
        return Reduce(kind, arg, (self.along(node).axis,), node.axes, node.dtype)

    def named(self, name: str, node: Reduce) -> Ref:
        """A reference to a reduction, which gets a name at its first use."""
        if node not in self.known:
            self.known[node] = Ref(fresh(name, self.taken), node.axes, node.dtype)
            self.values.append(Value(self.known[node].name, node, ""))
        return self.known[node]

    def along(self, node: Reduce) -> Strips:
        if node.over not in self.strips:
            name = "_".join("batch" if axis == BATCH else axis for axis in node.over)
            axis = fresh(f"{name}_strips", {*self.op.axes})
            width = STRIP_COLS if self.last_free(node) in node.over else STRIP_ROWS
            self.strips[node.over] = Strips(axis, node.over, width)
        return self.strips[node.over]

    def last_free(self, node: Reduce) -> str:
        """The last axis of the operand of a reduction, in the order of a result with these axes, or of the operator."""
        axes = {*node.axes, *node.over}
        orders = [result.axes for result in self.op.results if set(result.axes) == axes]
        order = orders[0] if orders else self.op.axes
        return [axis for axis in order if axis in axes][-1]

    def count(self, node: Reduce) -> Node:
        """The number of elements in each strip; the last one may be shorter."""
        strips = self.along(node)
        first = applied("mul", Index(strips.axis, (strips.axis,)), _number(strips.width))
        return applied("minimum", applied("sub", Size(node.over), first), _number(strips.width))


def _number(value: float) -> Constant:
    return Constant(int(value), Dtype("int")) if value == int(value) else Constant(value, Dtype("float"))


def _called(function: str, arg: Node) -> Call:
    return Call(function, (arg,), arg.axes, arg.dtype)
