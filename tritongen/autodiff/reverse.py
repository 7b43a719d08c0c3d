"""Reverse mode over the nodes of an Op (Linnainmaa, 1970): the gradient by each input, as a node."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace

from ..diagnostics.report import Mistake, Mistakes
from ..lang.functions import FUNCTIONS
from ..lang.ir import (
    Call,
    Cast,
    Choose,
    Constant,
    Dtype,
    Load,
    Node,
    Op,
    Path,
    Reduce,
    Ref,
    Result,
    Scan,
    ScatterSum,
    Size,
    Take,
    Value,
    children,
)
from ..lang.names import fresh, shown
from ..lang.promotion import is_float8
from ..lang.rewrite import rebuild
from ..passes.empty_sums import Axes, possibly_empty
from ..passes.shifts import only_shifts
from ..passes.structure import is_extremum, line_of
from ..spec.types import FLOATS, Grad
from .algebra import ONE, Algebra
from .reals import IsSeen
from .scanned import Scanned
from .taken import Taken
from .terms import ZERO
from .vanishing import Vanishing, multiplied, summand

LARGE = 40  # nodes of a gradient; a larger one that is read twice gets a name
DIFFERENTIABLE = ("sum", "mean", "prod", "max", "min", "var")


class Reverse:
    """Propagates the gradients of the results backwards through the values to the inputs in `wrt`."""

    def __init__(self, op: Op, grad: Grad, given: Mapping[str, Node] | None) -> None:
        self.op, self.grad, self.given = op, grad, given or {}
        self.taken = op.names
        self.active: dict[str, bool] = {}
        for value in op.values:
            self.active[value.name] = self.is_active(value.node)
        differentiable = [r for r in op.results if r.dtype.kind in ("float", "any") and self.is_active(r.node)]
        self.seeds = {r.output.name: self.fresh(f"d{r.output.name}") for r in differentiable if not given}
        known = tuple(value for value in op.values if value.source and value.node.axes)
        seeds = frozenset(self.seeds.values()).union(*(node.reads for node in self.given.values()))
        self.algebra = Algebra(op, known, seeds)
        self.values = {value.name: value for value in op.values}
        self.flowing: dict[str, list[Node]] = {}
        self.shared: dict[str, Node] = {}  # gradients that others load by name, like inputs
        zeros = frozenset(self.seeds.values() if len(self.seeds) > 1 else ())
        zeros = zeros.union(one.name for one in op.inputs if one.vanishes)
        self.vanishing = Vanishing(op, self.algebra, zeros, self.shared)
        self.zeros: set[str] = set()  # inputs whose gradients may be 0 because a `where` did not choose an element
        self.hints: dict[Node, str] = {}  # names for gradients by named values, if they need any
        self.mistakes: list[Mistake] = []
        calls = (value for value in reversed(op.values) if value.source and isinstance(value.node, Call))
        self.lines: dict[Node, str] = {value.node: value.name for value in calls}
        self.renamed: dict[Node, Node] = {}  # results of `named`
        self.line = ""
        self.path: Path = ()
        self.still = {name for name in self.values if only_shifts(op, name, (*self.seeds, *self.given))}

    def extrema(self) -> set[str]:
        """The max and min reductions that gradients pass through, to the elements that equal them."""
        found = {name for name, value in self.values.items() if is_extremum(value.node) and self.active[name]}
        return found - self.still

    def fresh(self, name: str) -> str:
        return fresh(name, self.taken)

    def floats(self, node: Node) -> bool:
        return node.dtype.kind in ("float", "any")

    # Dependence on the inputs

    def is_active(self, node: Node) -> bool:
        """Whether a value changes smoothly with any of the inputs in `wrt`."""
        if not self.floats(node):
            return False
        match node:
            case Load(name=name):
                return name in self.grad.wrt
            case Ref(name=name):
                return self.active[name]
            case Call(function=function, args=args):
                flat = {name for name, text in FUNCTIONS[function].derivative if text == "0.0"}
                wanted = zip(FUNCTIONS[function].args, args, strict=True)
                return any(arg.name not in flat and self.is_active(given) for arg, given in wanted)
            case Cast(arg=arg) | Take(arg=arg):
                return self.is_active(arg)
            case Choose(then=then, other=other):
                return self.is_active(then) or self.is_active(other)
            case Reduce(kind=kind, arg=arg):
                return kind in DIFFERENTIABLE and self.is_active(arg)
            case Scan():
                return any(map(self.is_active, children(node)))
            case ScatterSum(arg=arg):
                return self.is_active(arg)
        return False

    # Backwards through the values

    def dtype_of_seed(self, result: Result) -> Dtype:
        """The dtype of the gradient of a result, from which matmuls and their stored operands get their dtypes.

        If the result is stored in another dtype than its math has, it is the math's own, as autograd casts it.
        """
        own = result.node.dtype
        is_converted = own.kind == "float" and own.of and not {*result.dtype.of} <= {*own.of}
        return own if is_converted else Dtype("float", (self.seeds[result.output.name],))

    def found(self) -> dict[str, Node]:
        """The gradients by name of the input, and the shared gradients that they read, by name."""
        self.begin()
        for value in reversed(self.op.values):
            if value.name in self.flowing and self.active[value.name] and value.name not in self.still:
                self.line = line_of(self.op, value)
                g = self.algebra.add(*self.flowing[value.name])
                self.push(value.node, g, value)
        for name in self.grad.wrt:
            if name not in self.flowing and not self.mistakes:
                self.mistakes.append(self.flat(name))
        if self.mistakes:
            raise Mistakes(*self.mistakes)
        found = self.simplest()
        read = {name for node in found.values() for name in node.reads}
        for name in reversed(self.shared):
            read |= self.shared[name].reads if name in read else set()
        return found | {name: self.named(node) for name, node in self.shared.items() if name in read}

    def begin(self) -> None:
        """Start with the gradients of the results, which flow to the values of the results."""
        self.mistakes += [self.unscaled(name) for name in self.grad.wrt if is_float8(self.op, Dtype("float", (name,)))]
        for result in self.op.results:
            name = result.output.name
            if is_float8(self.op, result.dtype):
                hint = "leave [grad] out, or give it another dtype"
                message = f"{name} is float8, which has no gradient: what is rounded to it does not change smoothly"
                self.mistakes.append(Mistake("TG604", message, ("outputs", name), hint=hint))
            if name in self.seeds:
                self.flow(name, Load(self.seeds[name], result.node.axes, self.dtype_of_seed(result)))
        for name, seed in self.given.items():
            self.flow(name, seed)

    def simplest(self) -> dict[str, Node]:
        """The gradients of inputs in terms of lines of the forward; the negative of an earlier one is `-` that one."""
        found: dict[str, Node] = {}
        for name in self.grad.wrt:
            g = self.algebra.add(*self.flowing[name])
            self.zeros |= {name} if self.vanishing.vanishes(g) else set()
            node = self.algebra.add(self.named(g))
            if node == ZERO:
                raise Mistakes(self.flat(name))
            twin = next((other for other in found.values() if self.algebra.call("neg", other) == node), None)
            found[name] = self.algebra.plain("neg", twin) if twin is not None else node
        return found

    def named(self, node: Node) -> Node:
        """The node with expressions that the forward computes replaced by references to its lines."""
        if node not in self.renamed:
            own = rebuild(node, tuple(map(self.named, children(node))))
            line = self.lines.get(own)
            self.renamed[node] = Ref(line, own.axes, own.dtype) if line else own
        return self.renamed[node]

    def flat(self, name: str) -> Mistake:
        dtypes = self.op.input(name).type.dtypes
        place = ("grad", "wrt", str(self.grad.wrt.index(name)))
        if not set(dtypes) & set(FLOATS):
            hint = "leave it out: gradients are by floats"
            return Mistake("TG604", f"{name} is no float, and has no gradient", place, 0, len(shown(name)), hint)
        message = f"no result changes smoothly with {name}, so that its gradient would be zero"
        return Mistake("TG604", message, place, 0, len(shown(name)), "leave it out")

    def unscaled(self, name: str) -> Mistake:
        place = ("grad", "wrt", str(self.grad.wrt.index(name)))
        message = f"{name} is float8, in which its gradient would be rounded without a scale, most of it to 0"
        hint = f"leave it out, or differentiate by the float that {name} was rounded from, in a spec without float8"
        return Mistake("TG604", message, place, 0, len(name), hint)

    def flow(self, name: str, node: Node) -> None:
        """Add a contribution to the gradient of a value, zero unless the params choose the current path."""
        if node != ZERO:
            for condition, holds in reversed(self.path):
                node = self.algebra.choose(condition, *((node, ZERO) if holds else (ZERO, node)))
            self.flowing.setdefault(name, []).append(node)

    def push(self, node: Node, g: Node, value: Value | None = None) -> None:
        """Propagate `g`, the gradient of the results by a node, to the node's operands.

        If `g` is a choice by params with a zero side, each side is propagated by itself, so that kernels skip the work
        that depends on it, reductions above all, when it is not chosen.
        """
        if g == ZERO or not self.is_active(node):
            return
        if _may_be_zero(g):
            assert isinstance(g, Choose)
            self.push_sides(g, (g.then, g.other), lambda side: self.push(node, side, value))
            return
        if value is not None and value.source:
            self.hints.setdefault(g, f"d{value.name}")
        match node:
            case Load(name=name, at=()):
                self.flow(name, g)
            case Load(name=name, at=at):
                self.scatter(name, self.op.input(name).type.axes, at, g)
            case Take(arg=Ref(name=name) as arg, at=at):
                self.scatter(name, arg.axes, at, g)
            case Ref(name=name):
                self.flow(name, g)
            case Cast(arg=arg):
                self.push(arg, g)
            case Choose():
                self.push_sides(node, (node.then, node.other), lambda side: self.to(side, node, g))
            case Reduce():
                self.through_reduction(node, g, value)
            case Call():
                self.through_call(node, g, value)
            case Scan():
                assert value is not None
                found = Scanned(node, value.name, self.algebra, self.takes, self.vanishing).gradients(g)
                for child, by in zip(children(node), found, strict=True):
                    self.summed(child, by)
            case ScatterSum():
                self.summed(node.arg, self.takes.taken_back(node, g))

    def push_sides(self, choice: Choose, sides: tuple[Node, Node], push: Callable[[Node], None]) -> None:
        """Propagate the gradient to each side of a choice, under the condition that the side is chosen."""
        for side, holds in zip(sides, (True, False), strict=True):
            with self.under(choice.condition, holds) as is_taken:
                if is_taken:
                    push(side)

    @contextmanager
    def under(self, condition: Node, holds: bool) -> Iterator[bool]:
        """Make contributions depend on whether a condition holds. Yields False if that contradicts the path."""
        path = self.path
        if (condition, holds) not in path:
            self.path = (*path, (condition, holds))
        yield (condition, not holds) not in path
        self.path = path

    def summed(self, arg: Node, g: Node) -> None:
        """Propagate the gradient by an argument, summed over the axes that the argument lacks."""
        self.push(arg, self.algebra.summed_to(arg.axes, g))

    def to(self, arg: Node, node: Node, g: Node) -> None:
        """Propagate the gradient by an argument, summed over the axes that only the node has."""
        over = tuple(axis for axis in node.axes if axis not in arg.axes)
        if not over or not self.is_active(arg):
            self.push(arg, g)
        else:
            self.push(arg, self.algebra.reduce_sum(g, over, functools.partial(self.is_seen, arg)))

    def is_seen(self, node: Node, summed: Axes, undefined: Axes) -> bool:
        """Whether the gradient of an input has elements that depend on the gradient of a node where one axis of
        `summed` and one of `undefined` are empty. A tensor with such an axis has no elements then.
        """
        left, seen = [(node, summed, undefined)], set[tuple[Node, Axes, Axes]]()
        while left:
            node, summed, undefined = one = left.pop()
            summed, undefined = summed - {*node.axes}, undefined - {*node.axes}
            if not summed or not undefined or one in seen or not self.is_active(node):
                continue
            seen.add(one)
            if isinstance(node, Load):
                own = {*self.op.input(node.name).type.axes}
                if not summed <= own and not undefined <= own:
                    return True
            below = (self.values[node.name].node,) if isinstance(node, Ref) else children(node)
            left += [(other, summed, undefined) for other in below]
        return False

    def through_call(self, node: Call, g: Node, value: Value | None) -> None:
        row = FUNCTIONS[node.function]
        y: Node = Ref(value.name, node.axes, node.dtype) if value else node
        derivative = dict(row.derivative)
        # At zero the gradient of a vector norm is zero, as in torch, and so is that of a standard deviation (std).
        if node.function == "sqrt" and (self.is_sum_of(_is_square, node.args[0]) or self.is_variance(node.args[0])):
            derivative = {"x": "0.5 * where(y == 0, 0.0, g / y)"}
        if node.function == "pow" and self.is_sum_of(_is_power_of_size, node.args[0]):
            derivative["x"] = "where(y == 0, 0.0, g * exponent * pow(x, exponent - 1))"
        names = {arg.name: given for arg, given in zip(row.args, node.args, strict=True)} | {"y": y, "g": g}
        if node.function == "div" and self.is_mean(*node.args):  # An empty mean has no gradient: avoid g / 0.
            names["other"] = self.algebra.plain("clamp_min", node.args[1], Constant(1, Dtype("int")))
        if any(len(re.findall(r"\bg\b", text)) > 1 for text in derivative.values()):
            names["g"] = self.by_name(g, f"d{node.function}")
        for arg, given in zip(row.args, node.args, strict=True):
            text = derivative.get(arg.name, "")
            if text == "0.0" or not self.is_active(given):
                continue
            if not text:
                self.refuse("TG604", f"{node.function} has no derivative by its argument {arg.name}")
                continue
            self.to(given, node, self.derived(text, names, given, node.axes))

    def derived(self, text: str, names: Mapping[str, Node], arg: Node, axes: tuple[str, ...]) -> Node:
        """The gradient by an argument, guarded if `g` may be 0 and `text` infinite; `axes` of the result or operand."""
        is_seen = functools.partial(self.is_seen_empty, axes, arg)
        g = names["g"]
        if self.vanishing.vanishes(g):
            derivative = self.algebra.parsed(text, {**names, "g": ONE})
            if self.vanishing.is_infinite(derivative, is_seen):
                if _is_matmul(g, derivative, {*axes} - {*arg.axes}):
                    return self.algebra.product(multiplied(g, derivative, self.algebra))
                return self.unless_zero(axes, g, text, names, is_seen)
        return self.algebra.parsed(text, names)

    def is_seen_empty(self, axes: tuple[str, ...], arg: Node, over: tuple[str, ...]) -> bool:
        """Whether gradients have elements that depend on an argument of a call where one axis of `over` is empty."""
        empty = possibly_empty(self.op, over) - {*axes}
        return self.is_seen(arg, empty, empty)

    def unless_zero(
        self, axes: tuple[str, ...], g: Node, text: str, names: Mapping[str, Node], is_seen: IsSeen
    ) -> Node:
        """The gradient by an argument of a call whose derivative may be infinite: 0 where the call's gradient is 0."""
        inner, over = summand(g, axes, self.algebra)
        choice = self.vanishing.choice_of(inner, axes)
        if choice is None:
            return self.algebra.where(self.algebra.plain("eq", g, ZERO), ZERO, self.algebra.parsed(text, names))
        derived = self.algebra.parsed(text, {**names, "g": inner})
        if self.vanishing.is_outside(derived, is_seen):
            derived = self.algebra.within(inner, choice, lambda side: self.algebra.parsed(text, {**names, "g": side}))
        return self.algebra.reduce_sum(derived, over)

    def by_name(self, g: Node, name: str) -> Node:
        """A gradient that is read twice: a load of a name if it is large, since nested copies double at each level."""
        if g.count <= LARGE:
            return g
        known = next((one for one, node in self.shared.items() if node == g), "")
        if not known:
            known = self.fresh(name)
            self.shared[known] = g
            self.algebra = replace(self.algebra, seeds=self.algebra.seeds | {known})
        return Load(known, g.axes, g.dtype)

    def is_mean(self, total: Node, size: Node) -> bool:
        """Whether a quotient is a mean, its sum possibly taken in steps, and gradients of inputs have elements that
        depend on it where an axis is empty.
        """
        if not isinstance(size, Size):
            return False
        over = possibly_empty(self.op, size.over)
        return all(self.is_summed(total, axis) for axis in over) and self.is_seen(total, over, over)

    def is_summed(self, node: Node, axis: str) -> bool:
        """Whether a node has a sum along an axis as a factor."""
        match node:
            case Ref(name=name):
                return self.is_summed(self.values[name].node, axis)
            case Reduce(kind="sum", arg=arg, over=over):
                return axis in over or self.is_summed(arg, axis)
            case Call(function="mul", args=args):
                return any(self.is_summed(arg, axis) for arg in args)
        return False

    def is_sum_of(self, what: Callable[[Call], bool], node: Node) -> bool:
        """Whether a node is a sum of calls that satisfy `what`, or a sum of such sums, as steps may compute it."""
        while isinstance(node, Ref):
            node = self.values[node.name].node
        if not isinstance(node, Reduce) or node.kind != "sum":
            return False
        return what(node.arg) if isinstance(node.arg, Call) else self.is_sum_of(what, node.arg)

    def is_variance(self, node: Node) -> bool:
        """Whether a node is a variance, possibly scaled by a correction that a param gives."""
        match node:
            case Ref(name=name):
                return self.is_variance(self.values[name].node)
            case Call(function="mul", args=(arg, Call(function="div", args=(Size(), _)))):
                return self.is_variance(arg)
        return isinstance(node, Reduce) and node.kind == "var"

    def through_reduction(self, node: Reduce, g: Node, value: Value | None) -> None:
        """Propagate the gradient to the operand of a reduction; it broadcasts by the names of its axes."""
        assert value is not None
        algebra, x = self.algebra, node.arg
        y: Node = Ref(value.name, node.axes, node.dtype)
        match node.kind:
            case "sum":
                self.push(x, g)
            case "mean":
                self.push(x, algebra.call("div", g, Size(node.over)))
            case "var":
                count = algebra.call("sub", Size(node.over), Constant(node.correction, Dtype("int")))
                distance = algebra.call("sub", x, self.mean_of(node))
                names = {"g": g, "d": distance, "n": count}
                self.push(x, self.derived("2 * g * d / n", names, x, x.axes))
            case "max" | "min":
                # Ties share the gradient evenly.
                hit = algebra.call("eq", x, y)
                count = algebra.reduce_sum(algebra.where(hit, Constant(1.0, Dtype("float")), ZERO), node.over)
                self.push(x, algebra.where(hit, algebra.call("div", g, count), ZERO))
            case "prod":
                self.through_product(node, g, y)

    def through_product(self, node: Reduce, g: Node, y: Node) -> None:
        """The gradient of a product: `g` times the other elements. In a row with one zero only the zero gets any."""
        algebra, x = self.algebra, node.arg
        zero = algebra.call("eq", x, ZERO)
        zeros = algebra.reduce_sum(algebra.where(zero, Constant(1.0, Dtype("float")), ZERO), node.over)
        rest = algebra.where(zero, Constant(1.0, Dtype("float")), x)
        others = Reduce("prod", rest, node.over, node.axes, node.dtype)
        names = {"x": x, "g": g, "zero": zero, "zeros": zeros, "others": others}
        text = "g * where(zero, where(zeros == 1, others, 0.0), where(zeros == 0, others / x, 0.0))"
        self.push(x, self.derived(text, names, x, x.axes))

    def mean_of(self, node: Reduce) -> Node:
        for value in self.op.values:
            match value.node:
                case Reduce(kind="mean", arg=arg, over=over) if (arg, over) == (node.arg, node.over):
                    return value.ref
        return replace(node, kind="mean", correction=0)

    def scatter(self, name: str, own: tuple[str, ...], at: tuple[tuple[str, Node], ...], g: Node) -> None:
        self.flow(name, self.takes.gradient(own, at, g))

    @property
    def takes(self) -> Taken:
        return Taken(self.op, self.algebra, self.values, self.axes_of, self.refuse)

    def axes_of(self, name: str) -> tuple[str, ...]:
        """The axes of an input, or of a gradient that is read by name."""
        if name in self.shared:
            return self.shared[name].axes
        for result in self.op.results:
            if self.seeds.get(result.output.name) == name:
                return result.axes
        return self.op.input(name).type.axes

    def refuse(self, code: str, message: str) -> None:
        hint = "leave [grad] out: the kernel can be built without it"
        self.mistakes.append(Mistake(code, message, ("compute", self.line), hint=hint))


def _may_be_zero(node: Node) -> bool:
    """Whether a node is a choice by params with a zero side, possibly nested."""
    return isinstance(node, Choose) and any(side == ZERO or _may_be_zero(side) for side in (node.then, node.other))


def _is_matmul(left: Node, right: Node, summed: AbstractSet[str]) -> bool:
    """Whether a sum of products over `summed` is a matmul. Comparing its products with 0 would take it off tensor
    cores.
    """
    one, other = {*left.axes}, {*right.axes}
    return bool(one & other & summed and one - other and other - one)


def _is_square(node: Call) -> bool:
    return node.function == "square" or (node.function == "mul" and node.args[0] == node.args[1])


def _is_power_of_size(node: Call) -> bool:
    base = node.args[0]
    return node.function == "pow" and isinstance(base, Call) and base.function == "abs"
