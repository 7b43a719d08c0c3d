"""Contractions in the math: sums of products whose two sides each have axes that the other lacks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

from ..lang.facts import fact
from ..lang.ir import Call, Load, Node, Op, Reduce, Result, Value
from ..lang.promotion import promote
from ..lang.rewrite import named
from ..spec.types import FLOATS
from .empty_sums import outside
from .epilogues import STRIP_COLS, below, check_reductions, groups_of, refused
from .factors import factors_of, scales_by_group, without_casts
from .picked import Picked
from .sides import free_axes, two_sides
from .structure import of_strips, reached


@dataclass(frozen=True, slots=True)
class Product:
    """A value that sums a left side [rows, inner] times a right side [inner, cols] over the inner axes.

    `scale` multiplies what a group of the inner axes sums up to. All that it gives is added to the value `sum`.
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
    """The products of an operator, and what the axes are to them, each in the order of the results.

    The first of the inner axes are `groups`, along which scales vary that the others leave alone. The last of the
    columns are `col_groups`, where the result is reduced over such groups of columns.
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
        """The values that products add up to: their own, or one for several that are only added."""
        return tuple(dict.fromkeys(product.sum for product in self.products))

    @property
    def names(self) -> tuple[str, ...]:
        """The values that are products."""
        return tuple(product.name for product in self.products)

    @property
    def factors(self) -> tuple[Node, ...]:
        """What is multiplied: the left and the right side of each product."""
        return tuple(side for product in self.products for side in product.sides)

    @property
    def is_plain(self) -> bool:
        """Whether only inputs are multiplied, and nothing that is computed of them."""
        return all(isinstance(factor, Load) for factor in self.factors)

    @property
    def within(self) -> tuple[str, ...]:
        """The inner axes along which no scale of a group varies."""
        return tuple(axis for axis in self.inner if axis not in self.groups)

    def lacking(self, role: str, axes: tuple[str, ...]) -> tuple[str, ...]:
        """The last axes of a role, along which a tensor that has the first of them stays the same."""
        every = self.telling(role, axes)
        has = tuple(axis for axis in every if axis in axes)
        return every[len(has) :] if has == every[: len(has)] else ()

    def axes(self, role: str) -> tuple[str, ...]:
        found: tuple[str, ...] = getattr(self, role)
        return found

    def telling(self, role: str, axes: tuple[str, ...]) -> tuple[str, ...]:
        """The axes of a role that tell where a tensor with some of them lies.

        Of columns in groups, those tell in which group alone, or where in one, if the tensor has no others.
        """
        every = self.axes(role)
        if role == "cols" and self.col_groups:
            mine = {axis for axis in axes if axis in every}
            groups = every[: -len(self.col_groups)], self.col_groups
            return next((part for part in groups if mine <= set(part)), every)
        return every

    def strips_axis(self, node: Reduce) -> int:
        """The axis of tiles, 0 or 1, that a node reduces by strips."""
        return int(set(node.over) == set(self.cols))

    def roles(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """The roles that some axes play, in the order in which the last of each comes: that is next to what follows."""
        role = {axis: name for name in ("batch", "rows", "cols", "inner") for axis in self.axes(name)}
        return tuple(dict.fromkeys(role[axis] for axis in reversed(axes)))[::-1]


def contraction_of(op: Op) -> tuple[Op, Contraction] | None:
    """The operator with its matmuls as separate values, and what they are; None where there is none.

    Raises `Mistakes` where there are products that one kernel does not compute.
    """
    found, groups = _by_group(op)
    if not found:
        found = _all_sides(op, False)
    if not found:
        return None
    op, names = _without_scales(op, found)
    first = next(iter(found.values()))
    found = {name: sides if sides.free == first.free else sides.turned for name, sides in found.items()}
    first = _alike(op, found)
    inside = _check(op, names, first, found)
    left, right = first.free
    turned = _is_turned(op, left - right, right - left)
    rows, cols = (right - left, left - right) if turned else (left - right, right - left)
    order = list(dict.fromkeys([axis for result in _plain(op) for axis in result.axes] + list(op.axes)))
    in_order = tuple(axis for axis in order if axis in cols)
    col_groups = () if groups else groups_of(op, names, inside, in_order)
    if not col_groups:
        check_reductions(op, names, rows, cols)
    products = [_product(op, *pair, groups, turned) for pair in zip(names, found.values(), strict=True)]
    order.sort(key=lambda axis: axis not in groups)
    batch = left & right or (frozenset() if groups else _leading_axes(op, products, first.over))
    roles = (batch, rows - batch, cols - batch, set(first.over), set(groups), set(col_groups))
    contraction = Contraction(tuple(products), *(tuple(axis for axis in order if axis in role) for role in roles))
    _check_results(op, contraction)
    return op, contraction


def _alike(op: Op, found: dict[str, _Sides]) -> _Sides:
    """The first of some products, which all are over the same axes. Raises `Mistakes` where they are not."""
    first = next(iter(found.values()))
    for name, sides in found.items():
        if (sides.free, sides.over) != (first.free, first.over):
            over, others_over = (", ".join(one.over) for one in (first, sides))
            what = f"sums products over {others_over} beside others over {over}"
            raise refused(op, name, what, "two contractions of one spec are over the same axes; write a spec for each")
    return first


def _product(op: Op, name: str, sides: _Sides, groups: tuple[str, ...], turned: bool) -> Product:
    left, right = without_casts(op, product_of(sides.left), product_of(sides.right), bool(groups))
    within = tuple(axis for axis in sides.over if axis not in groups)
    scales = tuple(outside(op, name, scale, within, groups) for scale in sides.scales)
    pair = (right, left) if turned else (left, right)
    return Product(name, *pair, name, product_of(scales) if scales else None)


def _check_results(op: Op, contraction: Contraction) -> None:
    """Refuse what has some of the axes of a side alone, which a tile has all of: but for a number of each group."""
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
    """The results that do not have a value for each strip."""
    return [result for result in op.results if of_strips(op, result) is None]


def _is_turned(op: Op, rows: frozenset[str], cols: frozenset[str]) -> bool:
    """Whether such rows are the columns of tiles: as strips are reduced, or as the first result has them."""
    used = {value.node.strips for value in op.values if isinstance(value.node, Reduce)}
    for strips in op.strips:
        if strips.axis in used:
            return set(strips.over) == (rows if strips.width == STRIP_COLS else cols)
    return not rows.isdisjoint(op.results[0].axes[-1:])


def _leading_axes(op: Op, products: list[Product], over: tuple[str, ...]) -> frozenset[str]:
    """Free axes of one side that stand before the summed ones, while others of that side stand behind, as in a
    convolution with windows of one element: they are a batch, in which the other side is always the same. As rows or
    columns, together with those behind, they would need a copy.
    """
    names = {product.name for product in products}
    if any(isinstance(value.node, Reduce) and value.name not in names for value in op.values):
        return frozenset()  # It is over all columns of a tile.
    for side in zip(*(product.sides for product in products), strict=True):
        found = {_before(op.input(node.name).type.axes, over) if isinstance(node, Load) else () for node in side}
        if len(found) == 1 and (axes := found.pop()):
            return frozenset(axes)
    return frozenset()


def _before(axes: tuple[str, ...], over: tuple[str, ...]) -> tuple[str, ...]:
    """The axes before some summed ones, where those stand together and others behind them."""
    summed = [n for n, axis in enumerate(axes) if axis in over]
    together = len(summed) == summed[-1] - summed[0] + 1
    return axes[: summed[0]] if together and summed[-1] + 1 < len(axes) else ()


def is_product(op: Op, node: Node) -> bool:
    """Whether a node is a sum of products of two sides."""
    return _sides(op, node, False) is not None


def comes_of_matmuls(op: Op, name: str) -> bool:
    """Whether a value is what matmuls give, or is made of that element by element."""
    reductions = {value.name for value in op.values if isinstance(value.node, Reduce)}
    found = reached(op.refs, {name}, reductions) & reductions
    return bool(found) and all(is_product(op, op.value(other).node) for other in found)


def free_sides(op: Op, node: Node) -> tuple[frozenset[str], ...]:
    """The axes of either side of a sum of products that are not summed; () for any other node."""
    sides = _sides(op, node, False)
    return sides.free if sides else ()


def sides_of(op: Op, node: Node) -> tuple[Node, Node, tuple[Node, ...]] | None:
    """The two sides of a sum of products, and the factors that lack all summed axes; None for any other node."""
    sides = _sides(op, node, False)
    return (product_of(sides.left), product_of(sides.right), sides.outside) if sides else None


def dot_of(node: Reduce, factors: tuple[Node, ...]) -> Reduce:
    """The sum of some of a sum's factors alone, over the same axes."""
    core = product_of(factors)
    return replace(node, arg=core, axes=tuple(axis for axis in core.axes if axis not in node.over))


def with_factors_outside(op: Op, axis: str, taken: set[str]) -> Op:
    """The operator whose matmuls along an axis are such alone: factors that lack all summed axes multiply these."""
    values: list[Value] = []
    for value in op.values:
        node, sides = value.node, sides_of(op, value.node)
        if isinstance(node, Reduce) and sides is not None and sides[2] and axis in node.axes:
            dot = dot_of(node, sides[:2])
            others = (outside(op, value.name, factor, node.over) for factor in sides[2])
            node = product_of((named(dot, f"{value.name}_dot", taken, values), *others))
        values.append(value.of(node))
    return replace(op, values=tuple(values))


@dataclass(frozen=True, slots=True)
class _Sides:
    """The factors of a sum of products: those of either side, those that lack all inner axes, and those
    that vary with groups of them alone."""

    left: tuple[Node, ...]
    right: tuple[Node, ...]
    outside: tuple[Node, ...]
    over: tuple[str, ...]
    scales: tuple[Node, ...] = ()

    def scaled(self, scales: set[Node]) -> _Sides:
        """With some factors separate, as scales of groups."""
        left, right = (tuple(f for f in side if f not in scales) for side in (self.left, self.right))
        return replace(self, left=left, right=right, scales=tuple(f for f in (*self.left, *self.right) if f in scales))

    @property
    def inside(self) -> tuple[Node, ...]:
        return *self.left, *self.right, *self.scales

    @property
    def turned(self) -> _Sides:
        return replace(self, left=self.right, right=self.left)

    @property
    def free(self) -> tuple[frozenset[str], frozenset[str]]:
        return free_axes(self.left, self.over), free_axes(self.right, self.over)


def _by_group(op: Op) -> tuple[dict[str, _Sides], tuple[str, ...]]:
    """The matmuls with the scales of groups factored out, and the axes of the groups; neither where there are none."""
    found = _all_sides(op, True)
    overs = {sides.over for sides in found.values()}
    if len(overs) != 1:
        return {}, ()
    scales, groups = scales_by_group(op, [(sides.left, sides.right) for sides in found.values()], *overs)
    return {name: sides.scaled(scales) for name, sides in found.items()} if groups else {}, groups


def _all_sides(op: Op, by_group: bool) -> dict[str, _Sides]:
    """The two sides of each sum of products. There are no groups along one axis."""
    sums = [(value.name, value.node) for value in op.values if isinstance(value.node, Reduce)]
    found = ((name, _sides(op, node, by_group and len(node.over) > 1)) for name, node in sums)
    return {name: sides for name, sides in found if sides}


@fact
def _sides(op: Op, node: Node, by_group: bool) -> _Sides | None:
    """The two sides of a sum of products; None where one side has no axis of its own."""
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


def product_of(factors: tuple[Node, ...]) -> Node:
    """Some factors, multiplied one by one."""
    return reduce(times, factors)


def times(left: Node, right: Node) -> Node:
    return applied("mul", left, right)


def applied(function: str, left: Node, right: Node) -> Call:
    """A function of two nodes, over the axes of both."""
    axes = tuple(dict.fromkeys((*left.axes, *right.axes)))
    return Call(function, (left, right), axes, promote(left, right))


def _without_scales(op: Op, found: dict[str, _Sides]) -> tuple[Op, tuple[str, ...]]:
    """Factors without an inner axis multiply the sum, not each of its terms. Also the sums' names."""
    values: list[Value] = []
    names, taken = [], op.names
    for value in op.values:
        sides = found.get(value.name)
        if sides is None or not isinstance(value.node, Reduce):
            values.append(value)
            continue
        dot: Node = dot_of(value.node, sides.inside)
        names.append(value.name)
        if sides.outside:
            ref = named(dot, f"{value.name}_dot", taken, values)
            names[-1] = ref.name
            dot = product_of((ref, *(outside(op, value.name, one, value.node.over) for one in sides.outside)))
        values.append(replace(value, node=dot))
    return replace(op, values=tuple(values)), tuple(names)


def _check(op: Op, names: tuple[str, ...], sides: _Sides, found: dict[str, _Sides]) -> set[str]:
    """The inputs that factors are made of. Refuses what the kernels of a contraction do not compute beside it."""
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
    """The inputs that factors are made of. Refuses factors that are made of reductions."""
    nodes = {node for one in found.values() for factor in one.inside for node in below(op, factor)}
    if reductions := [node for node in nodes if isinstance(node, Reduce)]:
        products = [op.value(name).node for name in names]
        what = "a sum of products" if all(node in products for node in reductions) else "a reduction"
        raise refused(op, line, f"multiplies {what}", "write a spec for each step")
    return {node.name for node in nodes if isinstance(node, Load)}


def check_picked(op: Op, contraction: Contraction, picked: Picked) -> None:
    """Refuse matrices that are picked but for a single plain product of floats, and along the batch."""
    axes = op.input(picked.name).type.axes
    is_matrix = contraction.batch == (picked.batch,) and len(axes) == len(contraction.roles(axes))
    plain = contraction.is_plain and len(contraction.products) == 1 and not contraction.groups
    floats = all(set(op.input(name).type.dtypes) <= set(FLOATS) for name in _factors_of(contraction))
    if not is_matrix or not plain or not floats or picked.name not in _factors_of(contraction):
        line = contraction.names[0]
        raise refused(op, line, f"stands beside take({picked.name}, …)", "take in a spec of its own")


def _factors_of(contraction: Contraction) -> set[str]:
    return {factor.name for factor in contraction.factors if isinstance(factor, Load)}


def _check_dtypes(op: Op, line: str, sides: tuple[Node, Node]) -> None:
    """Refuse integers other than int8; what a side reads may be other integers that it makes int8 of."""
    known = {tensor.name: set(tensor.type.dtypes) for tensor in op.inputs}
    if promote(*sides).kind == "float":
        return
    for leaf in sorted(leaf for side in sides for leaf in side.dtype.leaves):
        others = ", ".join(sorted(known.get(leaf, {leaf}) - {"int8"}))
        if others:
            hint = f"declare {leaf} as int8, or cast it to a float" if leaf in known else "cast to int8 or a float"
            what = f"{others} ({leaf})" if leaf in known else others
            raise refused(op, line, f"multiplies {what}, where only int8 and floats can be", hint)
