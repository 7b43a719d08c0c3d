"""The typed form of a spec's math: nodes over named axes, each with its axes and its dtype.

An `Op` is what every family plans; a derived gradient is an `Op` like any other. Nodes compare by structure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import is_
from typing import Any, Literal, TypeGuard, TypeVar, cast

from ..spec.types import BOOLS, COMPUTED, INTS, AxisTerm, Input, Output, Param, default_shape
from .hashed import Hashed

Kind = Literal["bool", "int", "float", "any"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Dtype:
    """A dtype as far as it is known before the tensors are.

    `of` names the inputs (or dtypes) whose promotion it is, "" among them for none. `rule` tells
    what is done to that promotion: "float" turns integers into the default float, "sum" turns
    them into int64, as torch's `exp` and `sum` do, and "int" turns booleans into int64, as adding 1 does;
    "compute" is the dtype in which the kernel computes. An input that is absent has no dtype: `otherwise` names those
    whose promotion it is where all of `of` are absent, which they may be if it is `optional`.
    """

    kind: Kind
    of: tuple[str, ...] = ()
    rule: Literal["", "float", "sum", "int", "compute"] = ""
    otherwise: tuple[str, ...] = ()
    optional: bool = field(default=False, compare=False)  # as `of` says

    @property
    def weak(self) -> bool:
        """Whether it is a Python number's, which gives way to a tensor's dtype of the same kind."""
        return not self.of

    @property
    def leaves(self) -> tuple[str, ...]:
        """All inputs and dtypes that it may be the promotion of."""
        return (*self.of, *(leaf for leaf in self.otherwise if leaf not in self.of))

    def renamed(self, name: Callable[[str], str]) -> Dtype:
        of, otherwise = (tuple(dict.fromkeys(map(name, leaves))) for leaves in (self.of, self.otherwise))
        return replace(self, of=of, otherwise=otherwise)

    @property
    def intermediate(self) -> Dtype:
        """The dtype in which steps pass a value of it on: floats as kernels compute, of which positions may have more
        digits than float32.
        """
        return self if self.kind in ("bool", "int") else COMPUTE

    @property
    def intermediates(self) -> tuple[str, ...]:
        """The dtypes that it may be then."""
        known = self.of if {*self.of} <= {*INTS} else INTS
        return {"bool": BOOLS, "int": known or INTS}.get(self.kind, COMPUTED)


BOOL = Dtype("bool", ("bool",))
INT64 = Dtype("int", ("int64",))
COMPUTE = Dtype("float", (), "compute")  # the dtype in which the kernels of a call compute


def _below(own: Callable[[Node], Iterable[T]]) -> cached_property[frozenset[T]]:
    """What a node and all below it have; a part that many share is looked at once."""

    def found(node: Node) -> frozenset[T]:
        return frozenset(own(node)).union(*(getattr(part, str(made.attrname)) for part in children(node)))

    made = cached_property(found)
    return made


class Tree(Hashed):
    """A node with all below it, of which planning asks the same again and again; references are not followed."""

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The node and all below it, arguments first."""
        return (*(node for part in children(self) for node in part.nodes), cast("Node", self))

    @cached_property
    def count(self) -> int:
        """How many nodes there are, those that occur twice counted twice."""
        return 1 + sum(part.count for part in children(self))

    @cached_property
    def operations(self) -> int:
        """How many functions, reductions and scans there are, those that occur twice counted twice."""
        return isinstance(self, Call | Reduce | Scan) + sum(part.operations for part in children(self))

    kinds = _below(lambda node: (type(node),))
    functions = _below(lambda node: (node.function,) if isinstance(node, Call) else ())
    references = _below(lambda node: (node.name,) if isinstance(node, Ref) else ())  # the lines that are read
    reads = _below(lambda node: (node.name,) if isinstance(node, Load) else ())
    leaves = _below(lambda node: node.dtype.leaves)  # the inputs and dtypes to whose promotions something is computed
    casts = _below(lambda node: node.dtype.of if isinstance(node, Cast) else ())  # those that something is cast to

    @cached_property
    def gathers(self) -> bool:
        """Whether an element of an input at a computed position is read."""
        return (isinstance(self, Load) and bool(self.at)) or any(part.gathers for part in children(self))


@dataclass(frozen=True)
class Constant(Tree):
    """A number of the spec, a word to compare a param with, or None for an argument left out."""

    value: float | int | bool | str | None
    dtype: Dtype
    axes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scalar(Tree):
    """A param."""

    name: str
    dtype: Dtype
    axes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Load(Tree):
    """An element of an input. `at` replaces the position along an axis by a computed one (`take`)."""

    name: str
    axes: tuple[str, ...]
    dtype: Dtype
    at: tuple[tuple[str, Node], ...] = ()


@dataclass(frozen=True)
class Ref(Tree):
    """An earlier line of `[compute]`."""

    name: str
    axes: tuple[str, ...]
    dtype: Dtype


@dataclass(frozen=True)
class Take(Tree):
    """An element of an earlier line that has a reduction behind it, which a step before has to store.

    `at` is as in `Load`, which steps read it by.
    """

    arg: Node
    at: tuple[tuple[str, Node], ...]
    axes: tuple[str, ...]
    dtype: Dtype


@dataclass(frozen=True)
class Call(Tree):
    """A row of the function table, applied.

    Where it is `rounded`, no compiler may fuse a product of it with what is added: it is the same number in any kernel.
    `exact` quotients are rounded to nearest, and `exact` negations have the sign of zero: see `exact.py`.
    """

    function: str
    args: tuple[Node, ...]
    axes: tuple[str, ...]
    dtype: Dtype
    rounded: bool = False
    exact: bool = False


@dataclass(frozen=True)
class Cast(Tree):
    arg: Node
    dtype: Dtype
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Choose(Tree):
    """`a if param else b`: decided when the kernel is compiled."""

    condition: Node
    then: Node
    other: Node
    axes: tuple[str, ...]
    dtype: Dtype


@dataclass(frozen=True)
class Index(Tree):
    """The position along an axis."""

    axis: str
    axes: tuple[str, ...]
    dtype: Dtype = INT64


@dataclass(frozen=True)
class Size(Tree):
    """The product of the lengths of some axes."""

    over: tuple[str, ...]
    axes: tuple[str, ...] = ()
    dtype: Dtype = Dtype("int")


@dataclass(frozen=True)
class Reduce(Tree):
    """A primitive reduction: sum, prod, max, min, argmax, argmin, any, all, mean or var.

    `correction` is var's alone: the sum of squares is divided by the length less it. Along the axis `strips`, each of
    those has a number of its own; there are two more kinds of such: "exps", the sum of exponentials below the largest,
    or below 0 where that is infinite, and "squares", the sum of squared distances from the mean.
    """

    kind: str
    arg: Node
    over: tuple[str, ...]
    axes: tuple[str, ...]
    dtype: Dtype
    correction: float = 0
    strips: str = ""


@dataclass(frozen=True)
class ScatterSum(Tree):
    """The transpose of `take`: along `into`, each element is the sum of the argument over the positions `at` it.

    `at` are positions in the elements along `into`, counted in the order of those; what is outside of them adds to
    nothing. Axes that `at` shares with the result beside `into` are lines, each of which has positions of its own;
    the others of `at` are summed over, though the result may have axes of the same names.
    """

    arg: Node
    at: Node
    into: tuple[str, ...]
    axes: tuple[str, ...]
    dtype: Dtype

    @property
    def kind(self) -> str:
        return "scatter_sum"

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(axis for axis in self.at.axes if axis in self.axes and axis not in self.into)

    @property
    def over(self) -> tuple[str, ...]:
        """The axes of the positions that are summed over."""
        return tuple(axis for axis in self.at.axes if axis not in self.lines)


@dataclass(frozen=True)
class Scan(Tree):
    """A running reduction along an axis, from its last element back if it is in `reverse`: cumsum, cumprod, or
    recurrence, in which each element is the one before it times its `decay`, plus the argument; or argsort, the
    positions of the elements in their order, in `reverse` from the largest on.
    """

    kind: str
    arg: Node
    over: str
    axes: tuple[str, ...]
    dtype: Dtype
    decay: Node | None = None
    reverse: bool = False


def is_order(node: Tree) -> TypeGuard[Scan]:
    """Whether a node is the positions of elements in their order."""
    return isinstance(node, Scan) and node.kind == "argsort"


Node = Constant | Scalar | Load | Ref | Take | Call | Cast | Choose | Index | Size | Reduce | ScatterSum | Scan


# Conditions on params, each with whether it holds; () is always taken.
Path = tuple[tuple[Node, bool], ...]
ALWAYS: tuple[Path, ...] = ((),)


@dataclass(frozen=True)
class Value(Hashed):
    """A named line of the math, with the text that it came from; or `why` it is computed, as a comment of kernels."""

    name: str
    node: Node
    source: str
    why: str = ""

    @property
    def ref(self) -> Ref:
        return Ref(self.name, self.node.axes, self.node.dtype)

    def of(self, node: Node) -> Value:
        """The line of another node."""
        return self if node is self.node else replace(self, node=node)


@dataclass(frozen=True)
class Result(Hashed):
    """An output: its place in the signature, its dtype, and the axes of its dimensions in order.

    With `when`, an expression of the host, it is made where that holds and None elsewhere, and so with `paths` where
    none of them is taken. It may be written `over` an input of its shape, element by element. What is `saved` is for
    the backward alone. A gradient `vanishes` if it may be 0 where something was not chosen.
    """

    output: Output
    node: Node
    axes: tuple[str, ...]
    dtype: Dtype
    when: str = ""
    over: str = ""
    paths: tuple[Path, ...] = ALWAYS
    saved: bool = False
    vanishes: bool = False


@dataclass(frozen=True, slots=True)
class Strips:
    """An axis that counts strips of others: so many neighbours along those, fewer in the last."""

    axis: str
    over: tuple[str, ...]
    width: int


@dataclass(frozen=True)
class Formula(Hashed):
    """The length of an axis that [axes] computes, of lengths and integer params, and its text in the spec."""

    axis: str
    node: Node
    source: str

    @cached_property
    def reads(self) -> frozenset[str]:
        """The axes whose lengths it is computed of."""
        return frozenset(axis for node in walk(self.node) if isinstance(node, Size) for axis in node.over)

    @cached_property
    def params(self) -> frozenset[str]:
        return frozenset(node.name for node in walk(self.node) if isinstance(node, Scalar))


@dataclass(frozen=True)
class Op(Hashed):
    """An operator: typed inputs, params, the math in order, and the results.

    `axes` has every axis in the order in which iteration visits them; `sizes` those of fixed size, and `typical` what
    others are taken to be where times are compared.
    `precision` is that of matmuls in float32. If not `deterministic`, what is scattered may be added up in any order.
    `by_row` are tensors of ours that have one value per row, in the order of the rows. `chosen` are optional inputs
    that are there wherever what reads them is chosen. Without `fuse` its lines are computed one by one. `strips` are
    axes of what steps reduce by strips alone. `formulas` are of the axes whose lengths are computed, each after those
    that it reads: inputs need not have these axes.
    """

    name: str
    summary: str
    inputs: tuple[Input, ...]
    params: tuple[Param, ...]
    values: tuple[Value, ...]
    results: tuple[Result, ...]
    axes: tuple[str, ...]
    sizes: tuple[tuple[str, int], ...] = ()
    precision: str = "ieee"
    deterministic: bool = True
    by_row: frozenset[str] = frozenset()
    chosen: frozenset[str] = frozenset()
    fuse: bool = True
    strips: tuple[Strips, ...] = ()
    typical: tuple[tuple[str, int], ...] = ()
    formulas: tuple[Formula, ...] = ()

    @cached_property
    def facts(self) -> dict[tuple[object, ...], object]:
        """What is known of it by functions that are a `fact`."""
        return {}

    @cached_property
    def computed(self) -> frozenset[str]:
        """The axes whose lengths are computed, and are not fixed."""
        return frozenset(formula.axis for formula in self.formulas) - dict(self.sizes).keys()

    def is_as_long(self, one: str, other: str) -> bool:
        """Whether two axes surely have one length: one is another name of the other, or both are fixed."""
        firsts = {formula.axis: formula.node.over[0] for formula in self.formulas if isinstance(formula.node, Size)}
        fixed = dict(self.sizes)
        while one in firsts:
            one = firsts[one]
        while other in firsts:
            other = firsts[other]
        return one == other or (one in fixed and fixed[one] == fixed.get(other))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of its tensors and params, in order."""
        return tuple(one.name for several in (self.inputs, self.params) for one in several)

    @cached_property
    def tensors(self) -> dict[str, tuple[str, ...]]:
        """The axes of its inputs and results."""
        inputs = {tensor.name: tensor.type.axes for tensor in self.inputs}
        return inputs | {result.output.name: result.axes for result in self.results}

    @property
    def lengths(self) -> dict[str, int]:
        """Lengths of axes that are known or assumed."""
        return dict(self.typical) | dict(self.sizes)

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The values that readers see: lines of [compute], or of a gradient's formula."""
        return tuple(value.name for value in self.values if value.source)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of its values."""
        return tuple(node for value in self.values for node in value.node.nodes)

    @cached_property
    def by_name(self) -> dict[str, Value]:
        return {value.name: value for value in self.values}

    @cached_property
    def refs(self) -> dict[str, frozenset[str]]:
        """What each value refers to."""
        return {value.name: value.node.references for value in self.values}

    def of(self, values: Iterable[Value]) -> Op:
        """The operator of other values, itself where they are no others."""
        values = tuple(values)
        is_same = len(values) == len(self.values) and all(map(is_, values, self.values))
        return self if is_same else replace(self, values=values)

    def value(self, name: str) -> Value:
        return self.by_name[name]

    @cached_property
    def inputs_by_name(self) -> dict[str, Input]:
        return {tensor.name: tensor for tensor in self.inputs}

    def input(self, name: str) -> Input:
        return self.inputs_by_name[name]

    def with_nodes(self, other: Callable[[Node], Node]) -> Op:
        """The operator, whose values are made of other nodes in place of theirs."""
        return self.of(value.of(other(value.node)) for value in self.values)

    def grouping(self, result: Result) -> tuple[AxisTerm, ...]:
        """The dimensions of a result, as it spells them or as an input of the same axes has them."""
        return result.output.shape or default_shape(self.inputs, result.axes)

    def strips_along(self, axis: str) -> Strips:
        return next(strips for strips in self.strips if strips.axis == axis)

    @property
    def names(self) -> set[str]:
        """What inputs, params and lines are called, and the means that kernels compute beside variances."""
        means = {f"{v.name}_mean" for v in self.values if isinstance(v.node, Reduce) and v.node.kind == "var"}
        return means | {named.name for group in (self.inputs, self.params, self.values) for named in group}


def children(node: Tree) -> tuple[Node, ...]:
    """The nodes that a node is made of directly; `rebuild` replaces them."""
    getter = _CHILDREN.get(type(node))
    return getter(node) if getter else ()


_CHILDREN: dict[type, Callable[[Any], tuple[Node, ...]]] = {
    Call: lambda node: node.args,
    Cast: lambda node: (node.arg,),
    Reduce: lambda node: (node.arg,),
    Scan: lambda node: (node.arg,) if node.decay is None else (node.arg, node.decay),
    Choose: lambda node: (node.condition, node.then, node.other),
    Load: lambda node: tuple(index for _, index in node.at),
    Take: lambda node: (node.arg, *(index for _, index in node.at)),
    ScatterSum: lambda node: (node.arg, node.at),
}


def walk(node: Node) -> tuple[Node, ...]:
    """The node and all below it, arguments first; references are not followed."""
    return node.nodes


def distinct(nodes: Iterable[Node]) -> list[Node]:
    """Some nodes and all below them as `walk` comes to them, each once: a gradient may have few that occur a million
    times.
    """
    found: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node not in found:
            for part in children(node):
                visit(part)
            found[node] = None

    for node in nodes:
        visit(node)
    return list(found)
