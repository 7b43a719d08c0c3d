"""The typed form of a spec's math: nodes over named axes, each with its axes and its dtype.

Every family plans an `Op`; a derived gradient is an `Op` like any other. Nodes compare by structure.
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
    """A dtype as far as it is known before the operator is called.

    It is the promotion of the inputs (or dtypes) that `of` names, where "" stands for none. `rule` is then
    applied: "float" turns integers into the default float, "sum" turns them into int64, as torch's
    `exp` and `sum` do, and "int" turns booleans into int64, as adding 1 does; "compute" is the dtype in which
    the kernel computes. If it is `optional`, all inputs of `of` may be absent: then it is the promotion of
    `otherwise`.
    """

    kind: Kind
    of: tuple[str, ...] = ()
    rule: Literal["", "float", "sum", "int", "compute"] = ""
    otherwise: tuple[str, ...] = ()
    optional: bool = field(default=False, compare=False)  # whether all inputs of `of` may be absent

    @property
    def weak(self) -> bool:
        """Whether it is the dtype of a Python scalar, over which a tensor's dtype of the same kind takes precedence."""
        return not self.of

    @property
    def leaves(self) -> tuple[str, ...]:
        """All inputs and dtypes that the promotion may read."""
        return (*self.of, *(leaf for leaf in self.otherwise if leaf not in self.of))

    def renamed(self, name: Callable[[str], str]) -> Dtype:
        of, otherwise = (tuple(dict.fromkeys(map(name, leaves))) for leaves in (self.of, self.otherwise))
        return replace(self, of=of, otherwise=otherwise)

    @property
    def intermediate(self) -> Dtype:
        """The dtype in which steps store a value of it for later steps: integers and booleans as they are (an index may
        not fit float32), everything else in the dtype in which kernels compute.
        """
        return self if self.kind in ("bool", "int") else COMPUTE

    @property
    def intermediates(self) -> tuple[str, ...]:
        """The dtypes that `intermediate` may be."""
        known = self.of if {*self.of} <= {*INTS} else INTS
        return {"bool": BOOLS, "int": known or INTS}.get(self.kind, COMPUTED)


BOOL = Dtype("bool", ("bool",))
INT64 = Dtype("int", ("int64",))
COMPUTE = Dtype("float", (), "compute")  # the dtype in which the kernels of a call compute


def _below(own: Callable[[Node], Iterable[T]]) -> cached_property[frozenset[T]]:
    """The union of `own` over a node and all below it; a subexpression that many nodes share is visited once."""

    def found(node: Node) -> frozenset[T]:
        return frozenset(own(node)).union(*(getattr(child, str(made.attrname)) for child in children(node)))

    made = cached_property(found)
    return made


class Tree(Hashed):
    """A node with all below it. It caches facts that planning asks for repeatedly; references are not followed."""

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The node and all below it, arguments first."""
        return (*(node for child in children(self) for node in child.nodes), cast("Node", self))

    @cached_property
    def count(self) -> int:
        """The number of nodes; repeated ones are counted each time."""
        return 1 + sum(child.count for child in children(self))

    @cached_property
    def operations(self) -> int:
        """The number of functions, reductions and scans; repeated ones are counted each time."""
        return isinstance(self, Call | Reduce | Scan) + sum(child.operations for child in children(self))

    kinds = _below(lambda node: (type(node),))
    functions = _below(lambda node: (node.function,) if isinstance(node, Call) else ())
    references = _below(lambda node: (node.name,) if isinstance(node, Ref) else ())  # the lines that are read
    reads = _below(lambda node: (node.name,) if isinstance(node, Load) else ())
    leaves = _below(lambda node: node.dtype.leaves)  # the inputs and dtypes that the nodes' dtypes promote
    casts = _below(lambda node: node.dtype.of if isinstance(node, Cast) else ())  # the inputs and dtypes of casts

    @cached_property
    def gathers(self) -> bool:
        """Whether an input is read at a computed index."""
        return (isinstance(self, Load) and bool(self.at)) or any(child.gathers for child in children(self))


@dataclass(frozen=True)
class Constant(Tree):
    """A constant of the spec, a word to compare a param with, or None for an omitted argument."""

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
    """An element of an input. `at` replaces the index along an axis by a computed one (`take`)."""

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
    """An element of an earlier line that depends on a reduction, so that an earlier step has to store the line.

    Steps read it by a `Load` with the same `at`.
    """

    arg: Node
    at: tuple[tuple[str, Node], ...]
    axes: tuple[str, ...]
    dtype: Dtype


@dataclass(frozen=True)
class Call(Tree):
    """A row of the function table, applied.

    If `rounded`, the compiler may not fuse its multiplication into an FMA, so that every kernel gives the same value.
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

    `correction` applies to var alone: its divisor is the length minus `correction`. With `strips`, the result has one
    value per strip along that axis, and there are two more kinds: "exps", the sum of exponentials after the maximum
    (0 where that is infinite) is subtracted, and "squares", the sum of squared distances from the mean.
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
    """The transpose of `take`: each element along `into` is the sum of the argument where `at` is its index.

    `at` are flattened indices into the axes `into`; indices out of range are ignored. Axes that `at` shares with the
    result, other than `into`, are `lines`: each line has indices of its own. The other axes of `at` are summed over,
    though the result may have axes of the same names.
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
        """The axes of `at` that are summed over."""
        return tuple(axis for axis in self.at.axes if axis not in self.lines)


@dataclass(frozen=True)
class Scan(Tree):
    """A scan along an axis, backwards if `reverse`: cumsum, cumprod, or recurrence, where each element is the previous
    result times its `decay`, plus the argument; or argsort, the indices that sort the elements, descending if
    `reverse`.
    """

    kind: str
    arg: Node
    over: str
    axes: tuple[str, ...]
    dtype: Dtype
    decay: Node | None = None
    reverse: bool = False


def is_order(node: Tree) -> TypeGuard[Scan]:
    """Whether a node is an argsort."""
    return isinstance(node, Scan) and node.kind == "argsort"


Node = Constant | Scalar | Load | Ref | Take | Call | Cast | Choose | Index | Size | Reduce | ScatterSum | Scan


# Conditions on params, each with the truth value that it must have; () is always taken.
Path = tuple[tuple[Node, bool], ...]
ALWAYS: tuple[Path, ...] = ((),)


@dataclass(frozen=True)
class Value(Hashed):
    """A named line of the math, with its text in the spec, or `why` it is computed, for a comment in kernels."""

    name: str
    node: Node
    source: str
    why: str = ""

    @property
    def ref(self) -> Ref:
        return Ref(self.name, self.node.axes, self.node.dtype)

    def of(self, node: Node) -> Value:
        """The line with another node."""
        return self if node is self.node else replace(self, node=node)


@dataclass(frozen=True)
class Result(Hashed):
    """An output: its place in the signature, its dtype, and the axes of its dimensions in order.

    It is None if the host expression `when` is false, or if none of `paths` is taken. It may be written in place,
    `over` an input of its shape, element by element. A `saved` result is for the backward alone. A gradient
    `vanishes` if it may be 0 in elements that were not selected, as by a `where`.
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
    """An axis that counts strips of the axes `over`: `width` adjacent elements each, fewer in the last strip."""

    axis: str
    over: tuple[str, ...]
    width: int


@dataclass(frozen=True)
class Formula(Hashed):
    """The length of an axis that [axes] computes from lengths and integer params, with its text in the spec."""

    axis: str
    node: Node
    source: str

    @cached_property
    def reads(self) -> frozenset[str]:
        """The axes whose lengths the formula reads."""
        return frozenset(axis for node in walk(self.node) if isinstance(node, Size) for axis in node.over)

    @cached_property
    def params(self) -> frozenset[str]:
        return frozenset(node.name for node in walk(self.node) if isinstance(node, Scalar))


@dataclass(frozen=True)
class Op(Hashed):
    """An operator: typed inputs, params, the math in order, and the results.

    `axes` has every axis in iteration order; `sizes` the fixed lengths, and `typical` the lengths that cost estimates
    assume for the other axes.
    `precision` applies to float32 matmuls. If not `deterministic`, scattered elements may be summed in any order.
    `by_row` names generated tensors with one value per row, in the order of the rows. `chosen` names optional inputs
    that are present whenever a line that reads them is chosen. Without `fuse`, each line is computed by a step of its
    own. `strips` are the axes of strip-wise reductions. `formulas` give the computed lengths, each after the formulas
    that it reads; inputs need not have these axes.
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
        """The cached results of functions decorated with `fact`."""
        return {}

    @cached_property
    def computed(self) -> frozenset[str]:
        """The axes with computed lengths that are not fixed."""
        return frozenset(formula.axis for formula in self.formulas) - dict(self.sizes).keys()

    def is_as_long(self, one: str, other: str) -> bool:
        """Whether two axes surely have the same length: an alias in [axes], or equal fixed lengths."""
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
        """The names of values with a source: lines of [compute], or of a gradient's formula."""
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
        """The lines that each value references."""
        return {value.name: value.node.references for value in self.values}

    def of(self, values: Iterable[Value]) -> Op:
        """The operator with other values; itself if they are the same objects."""
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
        """The operator with `other` applied to the node of each value."""
        return self.of(value.of(other(value.node)) for value in self.values)

    def grouping(self, result: Result) -> tuple[AxisTerm, ...]:
        """The dimensions of a result: as its output states them, else as in the first input with the same axes."""
        return result.output.shape or default_shape(self.inputs, result.axes)

    def strips_along(self, axis: str) -> Strips:
        return next(strips for strips in self.strips if strips.axis == axis)

    @property
    def names(self) -> set[str]:
        """The names of inputs, params and lines, and of the means that kernels compute together with variances."""
        means = {f"{v.name}_mean" for v in self.values if isinstance(v.node, Reduce) and v.node.kind == "var"}
        return means | {named.name for group in (self.inputs, self.params, self.values) for named in group}


def children(node: Tree) -> tuple[Node, ...]:
    """The direct children of a node; `rebuild` replaces them."""
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
    """The nodes and all below them in the order of `walk`, each once: a gradient may have few distinct nodes that occur
    a million times.
    """
    found: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node not in found:
            for child in children(node):
                visit(child)
            found[node] = None

    for node in nodes:
        visit(node)
    return list(found)
