"""Contractions in the math: sums of products of two sides, each of which has axes that the other lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

from ..lang.facts import fact
from ..lang.ir import Call, Load, Node, Op, Reduce, Result, Value
from ..lang.promotion import promote
from ..lang.rewrite import named
from ..spec.types import FLOATS
from .empty_sums import outside
from .epilogues import STRIP_COLS, check_reductions, groups_of, refused
from .factors import factors_of, scales_by_group, without_casts
from .gathered import Gathered
from .structure import below, of_strips, reached


@dataclass(frozen=True, slots=True)
class Product:
    """A value that sums a left side [rows, inner] times a right side [inner, cols] over the inner axes.

    `scale` multiplies the partial sum of each group of the inner axes. The result is accumulated into the value `sum`.
    """

    name: str
    left: Node
    right: Node
    sum: str
    scale: Node | None = None

    @property
    def sides(self) -> tuple[Node, Node]:
        return self.left, self.right


@dataclass(frozen=True, slots=True)
class Contraction:
    """The products of an operator and the roles of its axes, each role in the order of the results.

    `groups` are the first of the inner axes, along which scales vary. `col_groups` are the last of the columns if the
    epilogue reduces the result over groups of adjacent columns.
    """

    products: tuple[Product, ...]
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    cols: tuple[str, ...]
    inner: tuple[str, ...]
    groups: tuple[str, ...] = ()
    col_groups: tuple[str, ...] = ()

    @property
    def sums(self) -> tuple[str, ...]:
        """The values that products accumulate into: one per product, or one for several that are only added."""
        return tuple(dict.fromkeys(product.sum for product in self.products))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the products."""
        return tuple(product.name for product in self.products)

    @property
    def factors(self) -> tuple[Node, ...]:
        """The operands: the left and the right side of each product."""
        return tuple(side for product in self.products for side in product.sides)

    @property
    def is_plain(self) -> bool:
        """Whether all operands are inputs as loaded, without a prologue."""
        return all(isinstance(factor, Load) for factor in self.factors)

    @property
    def within(self) -> tuple[str, ...]:
        """The inner axes along which no scale of a group varies."""
        return tuple(axis for axis in self.inner if axis not in self.groups)

    def lacking(self, role: str, axes: tuple[str, ...]) -> tuple[str, ...]:
        """The last axes of a role, along which a tensor with `axes` is constant; () if its own are not the first."""
        every = self.addressing(role, axes)
        has = tuple(axis for axis in every if axis in axes)
        return every[len(has) :] if has == every[: len(has)] else ()

    def axes(self, role: str) -> tuple[str, ...]:
        found: tuple[str, ...] = getattr(self, role)
        return found

    def addressing(self, role: str, axes: tuple[str, ...]) -> tuple[str, ...]:
        """The axes of a role that address a tensor with `axes`.

        For grouped columns: those of the groups, or those within a group, if the tensor has no others.
        """
        every = self.axes(role)
        if role == "cols" and self.col_groups:
            mine = {axis for axis in axes if axis in every}
            groups = every[: -len(self.col_groups)], self.col_groups
            return next((group for group in groups if mine <= set(group)), every)
        return every

    def strips_axis(self, node: Reduce) -> int:
        """The axis of a tile along which `node` reduces by strips: 1 if it is over the columns, else 0."""
        return int(set(node.over) == set(self.cols))

    def roles(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """The roles of `axes`, ordered by the last axis of each role, which is adjacent to the next role."""
        role = {axis: name for name in ("batch", "rows", "cols", "inner") for axis in self.axes(name)}
        return tuple(dict.fromkeys(role[axis] for axis in reversed(axes)))[::-1]


def contraction_of(op: Op) -> tuple[Op, Contraction] | None:
    """The operator with each matmul as a value of its own, and its `Contraction`; None if it has no matmul.

    Raises `Mistakes` if one kernel cannot compute all of its products.
    """
    found, groups = _by_group(op)
    if not found:
        found = _all_sides(op, False)
    if not found:
        return None
    op, names = _with_sums_alone(op, found, op.names)
    first = next(iter(found.values()))
    found = {name: sides if sides.free == first.free else sides.transposed for name, sides in found.items()}
    first = _same_sides(op, found)
    inside = _check(op, names, first, found)
    left, right = first.free
    transposed = _is_transposed(op, left - right, right - left)
    rows, cols = (right - left, left - right) if transposed else (left - right, right - left)
    order = list(dict.fromkeys([axis for result in _plain(op) for axis in result.axes] + list(op.axes)))
    in_order = tuple(axis for axis in order if axis in cols)
    col_groups = () if groups else groups_of(op, names, inside, in_order)
    if not col_groups:
        check_reductions(op, names, rows, cols)
    products = [_product(op, *pair, groups, transposed) for pair in zip(names, found.values(), strict=True)]
    order.sort(key=lambda axis: axis not in groups)
    batch = left & right or (frozenset() if groups else _leading_axes(op, products, first.over))
    roles = (batch, rows - batch, cols - batch, set(first.over), set(groups), set(col_groups))
    contraction = Contraction(tuple(products), *(tuple(axis for axis in order if axis in role) for role in roles))
    _check_results(op, contraction)
    return op, contraction


def _same_sides(op: Op, found: dict[str, _Sides]) -> _Sides:
    """The first of the products. Raises `Mistakes` unless all have the same free and summed axes."""
    first = next(iter(found.values()))
    for name, sides in found.items():
        if (sides.free, sides.over) != (first.free, first.over):
            over, others_over = (", ".join(one.over) for one in (first, sides))
            what = f"sums products over {others_over} beside others over {over}"
            raise refused(op, name, what, "two contractions of one spec are over the same axes; write a spec for each")
    return first


def _product(op: Op, name: str, sides: _Sides, groups: tuple[str, ...], transposed: bool) -> Product:
    left, right = without_casts(op, product_of(sides.left), product_of(sides.right), bool(groups))
    within = tuple(axis for axis in sides.over if axis not in groups)
    scales = tuple(outside(op, name, scale, within, groups) for scale in sides.scales)
    pair = (right, left) if transposed else (left, right)
    return Product(name, *pair, name, product_of(scales) if scales else None)


def _check_results(op: Op, contraction: Contraction) -> None:
    """Refuse results with only some axes of a role, as tiles have all; they may have one value per column group."""
    groups = set(contraction.cols[: -len(contraction.col_groups)]) if contraction.col_groups else set()
    for result in _plain(op):
        for role in ("batch", "rows", "cols"):
            every = contraction.axes(role)
            has = {axis for axis in result.axes if axis in every}
            if has not in (set(), set(every), groups):
                lacks = ", ".join(axis for axis in every if axis not in has)
                what = f"lacks {lacks}, which its contraction has beside {', '.join(sorted(has))}"
                raise refused(op, result.output.name, what, "write a spec for each step")


def _plain(op: Op) -> list[Result]:
    """The results that are not reduced by strips."""
    return [result for result in op.results if of_strips(op, result) is None]


def _is_transposed(op: Op, rows: frozenset[str], cols: frozenset[str]) -> bool:
    """Whether `rows` are the columns of tiles: as strips are reduced, or else if the first result ends in one."""
    used = {value.node.strips for value in op.values if isinstance(value.node, Reduce)}
    for strips in op.strips:
        if strips.axis in used:
            return set(strips.over) == (rows if strips.width == STRIP_COLS else cols)
    return not rows.isdisjoint(op.results[0].axes[-1:])


def _leading_axes(op: Op, products: list[Product], over: tuple[str, ...]) -> frozenset[str]:
    """The free axes of one side that precede the summed ones, if others of that side follow these, as in a convolution
    with windows of one element. They become a batch that the other side does not vary along; as rows or columns,
    together with those that follow, they would need a copy.
    """
    names = {product.name for product in products}
    if any(isinstance(value.node, Reduce) and value.name not in names for value in op.values):
        return frozenset()  # Such a reduction is over all columns of a tile.
    for side in zip(*(product.sides for product in products), strict=True):
        found = {_before(op.input(node.name).type.axes, over) if isinstance(node, Load) else () for node in side}
        if len(found) == 1 and (axes := found.pop()):
            return frozenset(axes)
    return frozenset()


def _before(axes: tuple[str, ...], over: tuple[str, ...]) -> tuple[str, ...]:
    """The axes before the summed ones, if these are adjacent and others follow them; else ()."""
    summed = [n for n, axis in enumerate(axes) if axis in over]
    together = len(summed) == summed[-1] - summed[0] + 1
    return axes[: summed[0]] if together and summed[-1] + 1 < len(axes) else ()


def is_product(op: Op, node: Node) -> bool:
    """Whether a node is a sum of products of two sides."""
    return _sides(op, node, False) is not None


def comes_of_matmuls(op: Op, name: str) -> bool:
    """Whether a value is a matmul, or computed elementwise from the results of matmuls only."""
    reductions = {value.name for value in op.values if isinstance(value.node, Reduce)}
    found = reached(op.refs, {name}, reductions) & reductions
    return bool(found) and all(is_product(op, op.value(other).node) for other in found)


def free_sides(op: Op, node: Node) -> tuple[frozenset[str], ...]:
    """The free (not summed) axes of each side of a sum of products; () for any other node."""
    sides = _sides(op, node, False)
    return sides.free if sides else ()


def sides_of(op: Op, node: Node) -> tuple[Node, Node, tuple[Node, ...]] | None:
    """The two sides of a sum of products, and the factors that lack all summed axes; None for any other node."""
    sides = _sides(op, node, False)
    return (product_of(sides.left), product_of(sides.right), sides.outside) if sides else None


def dot_of(node: Reduce, factors: tuple[Node, ...]) -> Reduce:
    """The sum `node` of only `factors`, over the same axes."""
    core = product_of(factors)
    return replace(node, arg=core, axes=tuple(axis for axis in core.axes if axis not in node.over))


def with_factors_outside(op: Op, axis: str, used: set[str]) -> Op:
    """The operator in which factors that lack all summed axes multiply the results of matmuls that have `axis`."""
    every = _all_sides(op, False)
    found = {name: one for name, one in every.items() if one.outside and axis in op.value(name).node.axes}
    return _with_sums_alone(op, found, used)[0]


@dataclass(frozen=True, slots=True)
class _Sides:
    """The factors of a sum of products; `outside` lack all inner axes, `scales` vary along groups of them only."""

    left: tuple[Node, ...]
    right: tuple[Node, ...]
    outside: tuple[Node, ...]
    over: tuple[str, ...]
    scales: tuple[Node, ...] = ()

    def scaled(self, scales: set[Node]) -> _Sides:
        """A copy with `scales` moved out of both sides."""
        left, right = (tuple(f for f in side if f not in scales) for side in (self.left, self.right))
        return replace(self, left=left, right=right, scales=tuple(f for f in (*self.left, *self.right) if f in scales))

    @property
    def inside(self) -> tuple[Node, ...]:
        return *self.left, *self.right, *self.scales

    @property
    def transposed(self) -> _Sides:
        return replace(self, left=self.right, right=self.left)

    @property
    def free(self) -> tuple[frozenset[str], frozenset[str]]:
        return free_axes(self.left, self.over), free_axes(self.right, self.over)


def _by_group(op: Op) -> tuple[dict[str, _Sides], tuple[str, ...]]:
    """The matmuls with scales of groups factored out, and the axes of the groups; both empty if there are no groups."""
    found = _all_sides(op, True)
    overs = {sides.over for sides in found.values()}
    if len(overs) != 1:
        return {}, ()
    scales, groups = scales_by_group(op, [(sides.left, sides.right) for sides in found.values()], *overs)
    return {name: sides.scaled(scales) for name, sides in found.items()} if groups else {}, groups


def _all_sides(op: Op, by_group: bool) -> dict[str, _Sides]:
    """The two sides of each sum of products. A sum over a single axis has no groups."""
    sums = [(value.name, value.node) for value in op.values if isinstance(value.node, Reduce)]
    found = ((name, _sides(op, node, by_group and len(node.over) > 1)) for name, node in sums)
    return {name: sides for name, sides in found if sides}


@fact
def _sides(op: Op, node: Node, by_group: bool) -> _Sides | None:
    """The two sides of a sum of products; None if a side has no axis that the other lacks."""
    if not isinstance(node, Reduce) or node.kind != "sum":
        return None
    factors = factors_of(op, node.arg, node.over, by_group)
    if len(factors) < 2:
        return None
    outside = tuple(factor for factor in factors if not set(factor.axes) & set(node.over))
    inside = [factor for factor in factors if factor not in outside]
    # Integers would wrap around before they are widened.
    sides = two_sides(inside, node.over, node.dtype.kind == "float") if inside else None
    return _Sides(*sides, outside, node.over) if sides else None


def two_sides(
    factors: list[Node], over: tuple[str, ...], outer: bool
) -> tuple[tuple[Node, ...], tuple[Node, ...]] | None:
    """The factors by side, each side with a free axis that the other lacks; None if that is impossible.

    A factor with a free axis that neither side has joins the side with fewer, if `outer` products are allowed.
    """
    first, *others = sorted(factors, key=lambda factor: -len(factor.axes))
    left: tuple[Node, ...] = (first,)
    right: tuple[Node, ...] = ()
    for factor in others:
        own, ours, theirs = (free_axes(side, over) for side in ((factor,), left, right))
        joins_right = not right or own <= theirs
        if not (own <= ours or joins_right or outer):
            return None
        if own <= ours or (not joins_right and len(ours) < len(theirs)):
            left = (*left, factor)
        else:
            right = (*right, factor)
    ours, theirs = free_axes(left, over), free_axes(right, over)
    return (left, right) if ours - theirs and theirs - ours else None


def free_axes(factors: tuple[Node, ...], over: tuple[str, ...]) -> frozenset[str]:
    """The axes of a side that are not summed."""
    return frozenset(axis for factor in factors for axis in factor.axes) - set(over)


def product_of(factors: tuple[Node, ...]) -> Node:
    """The product of `factors`, multiplied from left to right."""
    return reduce(times, factors)


def times(left: Node, right: Node) -> Node:
    return applied("mul", left, right)


def applied(function: str, left: Node, right: Node) -> Call:
    """A function of two nodes, over the axes of both."""
    axes = tuple(dict.fromkeys((*left.axes, *right.axes)))
    return Call(function, (left, right), axes, promote(left, right))


def _with_sums_alone(op: Op, found: Mapping[str, _Sides], used: set[str]) -> tuple[Op, tuple[str, ...]]:
    """The operator in which factors without inner axes multiply sums and not their terms, and the names of the sums."""
    values: list[Value] = []
    names = []
    for value in op.values:
        if (sides := found.get(value.name)) is not None:
            assert isinstance(value.node, Reduce)
            dot: Node = dot_of(value.node, sides.inside)
            names.append(value.name)
            if sides.outside:
                ref = named(dot, f"{value.name}_dot", used, values)
                names[-1] = ref.name
                dot = product_of((ref, *(outside(op, value.name, one, value.node.over) for one in sides.outside)))
            value = value.of(dot)
        values.append(value)
    return op.of(values), tuple(names)


def _check(op: Op, names: tuple[str, ...], sides: _Sides, found: dict[str, _Sides]) -> set[str]:
    """The inputs that factors are computed from. Refuses math that the kernels of a contraction do not compute."""
    line = names[0]
    for axis in sides.over:
        if not all(any(axis in factor.axes for factor in side) for side in (sides.left, sides.right)):
            raise refused(op, line, f"sums one side alone over {axis}", f"sum that side over {axis} first")
    inside = _factors_read(op, line, names, found)
    for tensor in op.inputs:
        if tensor.name in inside and tensor.default is not None and len(tensor.type.axes) > 1:
            raise refused(op, line, f"multiplies {tensor.name}, which may be None", "make it a required input")
    for one in found.values():
        _check_dtypes(op, line, without_casts(op, product_of(one.left), product_of(one.right), bool(one.scales)))
    for load in (node for node in op.nodes if isinstance(node, Load) and node.at):
        raise refused(op, line, f"stands beside take({load.name}, …)", "take in a spec of its own")
    known = sides.free[0] | sides.free[1]
    for result in _plain(op):
        if more := ", ".join(axis for axis in result.axes if axis not in known):
            what = f"has the axis {more} more than its contraction"
            raise refused(op, result.output.name, what, "write a spec for each step")
    return inside


def _factors_read(op: Op, line: str, names: tuple[str, ...], found: dict[str, _Sides]) -> set[str]:
    """The inputs that factors are computed from. Refuses factors that depend on reductions."""
    nodes = {node for one in found.values() for factor in one.inside for node in below(op, factor)}
    if reductions := [node for node in nodes if isinstance(node, Reduce)]:
        products = [op.value(name).node for name in names]
        what = "a sum of products" if all(node in products for node in reductions) else "a reduction"
        raise refused(op, line, f"multiplies {what}", "write a spec for each step")
    return {node.name for node in nodes if isinstance(node, Load)}


def check_gathered(op: Op, contraction: Contraction, gathered: Gathered) -> None:
    """Refuse gathered matrices, except one per batch element, as an operand of a single plain matmul of floats."""
    axes = op.input(gathered.name).type.axes
    is_matrix = contraction.batch == (gathered.batch,) and len(axes) == len(contraction.roles(axes))
    plain = contraction.is_plain and len(contraction.products) == 1 and not contraction.groups
    floats = all(set(op.input(name).type.dtypes) <= set(FLOATS) for name in _factors_of(contraction))
    if not is_matrix or not plain or not floats or gathered.name not in _factors_of(contraction):
        line = contraction.names[0]
        raise refused(op, line, f"stands beside take({gathered.name}, …)", "take in a spec of its own")


def _factors_of(contraction: Contraction) -> set[str]:
    return {factor.name for factor in contraction.factors if isinstance(factor, Load)}


def _check_dtypes(op: Op, line: str, sides: tuple[Node, Node]) -> None:
    """Refuse operands of integers other than int8; inputs of other integer dtypes may be cast to int8."""
    known = {tensor.name: set(tensor.type.dtypes) for tensor in op.inputs}
    if promote(*sides).kind == "float":
        return
    for leaf in sorted(leaf for side in sides for leaf in side.dtype.leaves):
        others = ", ".join(sorted(known.get(leaf, {leaf}) - {"int8"}))
        if others:
            hint = f"declare {leaf} as int8, or cast it to a float" if leaf in known else "cast to int8 or a float"
            what = f"{others} ({leaf})" if leaf in known else others
            raise refused(op, line, f"multiplies {what}, where only int8 and floats can be", hint)
