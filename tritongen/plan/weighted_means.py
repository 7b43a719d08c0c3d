"""The values of a streamed softmax: means of matrices by its probabilities, and lse, the logarithm of their divisor.

With scores s and their largest m, sums S = sum(exp(s - m) * v, N) and L = sum(exp(s - m), N) are divided by U = L +
exp(x - m) + ..., where each x is a score without a value: a sink. Then lse = m + log(U), and the mean S / U is
sum(exp(s - lse) * v, N). The matrix v may have a weight w in the sum, as exponentials have: S is then sum(exp(s - m) *
w * v, N). These nodes are recognised by their values, not by how they are written: the logarithm of a product is a sum
of terms, and so is lse.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from ..autodiff.sharing import values_in_order
from ..families.stream import Stream, is_exponent, power_below, unless_zero, where_not_empty, where_not_zero
from ..lang.ir import BOOL, Call, Cast, Constant, Dtype, Load, Node, Op, Reduce, Ref, Value, children
from ..lang.names import fresh
from ..lang.rewrite import named, rebuild, renamed_values
from ..lang.unparse import spelled
from ..lowering.tile import needed
from ..passes.contractions import applied, product_of
from ..passes.exponentials import resolve
from ..passes.factors import flat_product
from ..passes.rounded_weights import is_of
from ..passes.structure import references


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean of rows of `matrix`, each multiplied by `weight` if there is one; without a matrix, a mean of `weight`
    alone, which may depend on scores.

    If `is_sum`, a plain sum, in which no factor is a probability.
    """

    name: str
    matrix: Load | None
    weight: Node | None = None
    is_sum: bool = False


@dataclass(frozen=True, slots=True)
class Means:
    """The operator, in which means and lse are values; `sinks` are the terms of lse in addition to the scores.

    All results depend on the stream through these values alone. Plain sums are among the means; without a softmax, all
    means are plain sums, and there is no lse. Sums of rows have no matrix.
    """

    op: Op
    means: tuple[Mean, ...]
    score: Ref | None = None
    lse: str = ""
    sinks: tuple[Node, ...] = ()


def means_of(op: Op, stream: Stream, used: Iterable[str] = ()) -> Means | None:
    """The means and lse; None if the math after the sums of a softmax depends on more than these.

    New values get names that are not in `used`.
    """
    if not stream.largest:
        return Means(op, tuple(Mean(one.name, one.matrix, is_sum=True) for one in stream.sums))
    largest = op.value(stream.largest).node
    if not isinstance(largest, Reduce) or not isinstance(largest.arg, Ref):
        return None
    score = largest.arg
    weights = _weights(op, stream, score.name)
    if weights is None:
        return None
    totals = [one.name for one in stream.sums if one.matrix is None and weights.get(one.name, score) is None]
    return _Finder(op, stream, totals[0], weights, used).found(score) if len(totals) == 1 else None


def _weights(op: Op, stream: Stream, score: str) -> dict[str, Node | None] | None:
    """The factor of exp(score) in each sum that has it, None for 1. Returns None if a sum has another form."""
    weights: dict[str, Node | None] = {}
    for one in stream.sums:
        every = list(flat_product(one.factor, op))
        others = [operand for operand in every if not is_exponent(resolve(op, operand), score, stream.largest)]
        made_of = {value.name for value in needed(op.values, set().union(*map(references, others)))}
        if made_of & {stream.largest, *(total.name for total in stream.sums)}:
            return None
        if len(every) == len(others):
            continue
        if len(every) - len(others) > 1 or (one.matrix is not None and score in made_of):
            return None
        weights[one.name] = product_of(tuple(others)) if others else None
    return weights


@dataclass(frozen=True, slots=True)
class LogSum:
    """The logarithm of a sum of exp(score) times a matrix, without the largest subtracted."""

    name: str


@dataclass(frozen=True, slots=True)
class Lse:
    """The logarithm of the sum of exp(score) and of exp(sink), without the largest subtracted."""

    sinks: tuple[Node, ...] = ()


Terms = dict[Node | LogSum | Lse, int]  # the terms of a sum, with their integer factors
Kind = tuple[str, Lse]  # of a mean, the name of its sum; of lse, ""


class _Finder:
    """Looks for the means and lse that results depend on; if `is_plain`, only for those without sinks, from which it
    computes the others.

    It decomposes nodes that depend on sums of exponentials. `raw` are the largest, the `total` and the other sums,
    which have `matrices` by name, or None; `of_sums` are all values that depend on these.
    """

    def __init__(
        self,
        op: Op,
        stream: Stream,
        total: str,
        weights: Mapping[str, Node | None],
        used: Iterable[str],
        is_plain: bool = False,
    ) -> None:
        self.op, self.total, self.weights, self.is_plain = op, total, weights, is_plain
        self.again = partial(_Finder, op, stream, total, weights, used, is_plain=True)
        self.largest = op.value(stream.largest).ref
        self.matrices = {one.name: one.matrix for one in stream.sums if one.name in weights and one.name != total}
        self.sums = {one.name: one.matrix for one in stream.sums if one.name not in weights}
        self.raw = {total, stream.largest, *self.matrices}
        self.used = op.names.union(used)
        nodes = (*(value.node for value in op.values), *(result.node for result in op.results))
        self.users = Counter(name for node in nodes for name in references(node))
        self.of_sums = set(self.raw)  # the values that depend on sums
        for value in op.values:
            if references(value.node) & self.of_sums and not {*stream.positions} & {*value.node.axes}:
                self.of_sums.add(value.name)
        self.values: list[Value] = []
        self.fit: set[str] = set()  # means, lse, and values that depend on sums through these alone
        self.named: dict[Kind, str] = {}  # the values that are means and lse
        self.logs: dict[Lse, tuple[Node, Terms]] = {}  # nodes that equal lse plus some terms, and these terms

    def found(self, score: Ref) -> Means | None:
        for value in self.op.values:
            self.values.append(self.seen(value) if value.name in self.of_sums - self.raw else value)
        roots = {name for result in self.op.results for name in references(result.node)}
        if roots & self.of_sums - self.fit:
            return None
        reached = self.reached(roots)
        ends = [kind for kind, name in self.named.items() if name in reached]
        sums = [name for name, _ in ends if name]
        divisors = {divisor for _, divisor in ends}
        if len(divisors) > 1:
            return self.again().found(score)
        if not sums:
            return None
        divisor = divisors.pop()
        lse = self.named.get(("", divisor)) or self.lse_named(divisor)
        names = {name: self.named[name, divisor] for name in sums}
        called = self.means_called(names.values())
        # A test whether the largest is -inf reads lse now, and may come before the sums of lse.
        values = values_in_order({value.name: value for value in self.values})
        op = renamed_values(replace(self.op, values=values), called)
        means = [Mean(called.get(own, own), self.matrices[name], self.weights[name]) for name, own in names.items()]
        means += [Mean(name, matrix, is_sum=True) for name, matrix in self.sums.items() if name in reached]
        return Means(op, tuple(means), score, lse, divisor.sinks)

    def means_called(self, means: Iterable[str]) -> dict[str, str]:
        """New names for means that are neither lines nor results."""
        lines = {value.name for value in self.values if value.source} | {one.output.name for one in self.op.results}
        return {name: fresh("mean", self.used) for name in means if name not in lines}

    def reached(self, roots: Iterable[str]) -> set[str]:
        """The values that `roots` depend on, up to means, sums and lse."""
        ends = {*self.named.values(), *self.sums}
        values = (replace(v, node=Constant(0.0, v.node.dtype)) if v.name in ends else v for v in self.values)
        return {value.name for value in needed(tuple(values), roots)}

    # Values as functions of means and lse

    def seen(self, value: Value) -> Value:
        """The value as a function of means and lse, if possible."""
        if self.is_only_rounded(value):
            return value
        kind = self.kind_of(value.node) or self.rounded(value.node)
        if kind is not None and kind not in self.named and self.is_known(kind):
            self.named[kind] = value.name
            self.fit.add(value.name)
            return value
        node = self.made(value.node)
        if node is None:
            return value
        self.fit.add(value.name)
        return replace(value, node=node)

    def rounded(self, node: Node) -> Kind | None:
        """The mean that a node casts to the dtype of its matrix, in which a mean is saved, if nothing else reads it."""
        inner = resolve(self.op, node.arg) if isinstance(node, Cast) else node
        kind = self.kind_of(inner) if isinstance(node, Cast) else None
        matrix = self.matrices.get(kind[0]) if kind else None
        if kind is None or matrix is None or not isinstance(node, Cast) or not is_of(self.op, node, matrix):
            return None
        return kind if self.users[kind[0]] == 1 else None

    def is_only_rounded(self, value: Value) -> bool:
        """Whether a mean is read only as cast to the dtype of its matrix."""
        if self.users[value.name] != 1:
            return False
        user = next((one.node for one in self.op.values if value.name in references(one.node)), value.node)
        return isinstance(user, Cast) and isinstance(user.arg, Ref) and self.rounded(user) is not None

    def made(self, node: Node) -> Node | None:
        """The node as a function of means and lse, or detached; None if it depends on sums otherwise."""
        if not references(node) & self.of_sums or (isinstance(node, Call) and node.function == "detach"):
            return node
        kind = self.kind_of(node)
        if kind is not None:
            return self.named_as(kind, node)
        match node:
            case Ref(name=name):
                return node if name in self.fit else None
            case Call(args=(self.largest, Constant(value=value) as low)) if value == -math.inf and node.dtype == BOOL:
                return rebuild(node, (self.lse_of_scores(), low))  # The largest is -inf where lse is.
        if (product := self.product(node)) is not None:
            return product
        made = [self.made(child) for child in children(node)]
        return None if None in made else rebuild(node, tuple(filter(None, made)))

    def factors(self, node: Node, times: int) -> Iterator[tuple[Node, int]]:
        """The factors (1) and divisors (-1) of a node; values of sums are decomposed unless they fit."""
        match node:
            case Call(function="mul", args=args):
                for arg in args:
                    yield from self.factors(arg, times)
            case Call(function="div", args=(above, below)):
                yield from self.factors(above, times)
                yield from self.factors(below, -times)
            case Ref(name=name) if name in self.of_sums - self.raw - self.fit:
                yield from self.factors(self.op.value(name).node, times)
            case _:
                yield node, times

    def product(self, node: Node) -> Node | None:
        """A mean times and divided by other factors; None if the factors that depend on sums form no mean."""
        factors = list(self.factors(node, 1))
        inner = [(factor, times) for factor, times in factors if references(factor) & self.of_sums - self.fit]
        terms: Terms = {}
        for factor, times in inner:
            terms = plus(terms, self.log(factor), times)
        kind = self.mean_of(terms)
        if kind is None:
            return None
        above, below = (tuple(factor for factor, times in inner if times == way) for way in (1, -1))
        mean = applied("div", product_of(above), product_of(below)) if below else product_of(above)
        found: Node = self.named_as(kind, mean)
        for factor, times in factors:
            if (factor, times) not in inner:
                found = applied("mul" if times > 0 else "div", found, factor)
        return found

    def named_as(self, kind: Kind, node: Node) -> Node:
        if not self.is_known(kind):
            return self.with_sinks(kind)
        if kind not in self.named:
            self.named[kind] = self.value("lse" if not kind[0] else f"{kind[0]}_mean", node)
        self.fit.add(self.named[kind])
        return Ref(self.named[kind], node.axes, node.dtype)

    def is_known(self, kind: Kind) -> bool:
        """Whether a mean or lse is looked for: if `is_plain`, only without sinks."""
        return not (self.is_plain and kind[1].sinks)

    def with_sinks(self, kind: Kind) -> Node:
        """A mean or lse with sinks, computed from those without: fully masked rows have a mean of 0."""
        name, divisor = kind
        lse = own = self.lse_of_scores()
        for sink in divisor.sinks:
            lse = applied("logaddexp", lse, sink)
        if not name:
            return lse
        above, below = (self.op.value(one).ref for one in (name, self.total))
        mean = self.named_as((name, Lse()), applied("div", above, unless_zero(below)))
        return applied("mul", mean, power_below(own, lse))

    def value(self, name: str, node: Node) -> str:
        return named(node, name, self.used, self.values).name

    def lse_named(self, divisor: Lse) -> str:
        log, more = self.logs[divisor]
        less = self.sum_of(plus({}, more, -1))
        assert less is not None
        return self.value("lse", applied("add", less, log) if more else log)

    def lse_of_scores(self) -> Node:
        plain = Lse()
        if ("", plain) not in self.named:
            self.log(self.op.value(self.total).ref)
            self.named["", plain] = self.lse_named(plain)
        return self.named_as(("", plain), self.largest)

    # Logarithms, as sums of terms

    def kind_of(self, node: Node) -> Kind | None:
        match tuple(self.terms(node).items()):
            case ((Lse() as divisor, 1),):
                return "", divisor
        return self.mean_of(self.log(node))

    def mean_of(self, terms: Terms) -> Kind | None:
        match sorted(terms.items(), key=lambda item: item[1]):
            case [(Lse() as divisor, -1), (LogSum(name=name), 1)]:
                return name, divisor
        return None

    def terms(self, node: Node) -> Terms:
        """The terms whose sum a node is."""
        match node:
            case Constant(value=0):
                return {}
            case Ref(name=self.largest.name):
                return {self.largest: 1}
            case Ref(name=name) if name in self.of_sums - self.raw:
                inner = self.op.value(name).node
                found = self.terms(inner)
                return {node: 1} if found == {inner: 1} and not isinstance(inner, Ref) else found
            case Call(function="add" | "sub" as function, args=(left, right)):
                return plus(self.terms(left), self.terms(right), 1 if function == "add" else -1)
            case Call(function="where", args=(Call(function="isinf", args=(test,)), Constant(value=0.0), other)):
                return self.terms(other) if test == other else {node: 1}
            case Call(function="log", args=(arg,)):
                return self.log(arg)
            case Call(function="logaddexp", args=(left, right)):
                return self.both(self.terms(left), self.terms(right), node) or {node: 1}
        return {node: 1}

    def log(self, node: Node) -> Terms:
        """The terms whose sum the logarithm of a node is."""
        node = where_not_zero(where_not_empty(node))
        log = Call("log", (node,), node.axes, node.dtype)
        match node:
            case Constant(value=1):
                return {}
            case Ref(name=name) if name in self.matrices:
                return {LogSum(name): 1, self.largest: -1}
            case Ref(name=self.total):
                return self.divisor(Lse(), {self.largest: -1}, log)
            case Ref(name=name) if name in self.of_sums - self.raw:
                return self.log(self.op.value(name).node)
            case Call(function="exp", args=(arg,)):
                return self.terms(arg)
            case Call(function="mul" | "div" as function, args=(left, right)):
                return plus(self.log(left), self.log(right), 1 if function == "mul" else -1)
            case Call(function="add", args=(left, right)):
                return self.both(self.log(left), self.log(right), log) or {log: 1}
        return {log: 1}

    def both(self, left: Terms, right: Terms, log: Node) -> Terms | None:
        """The terms of log(exp(left) + exp(right)), if one is of the scores and the other a sink; else None."""
        for one, other in ((left, right), (right, left)):
            for term, times in one.items():
                if not isinstance(term, Lse) or times != 1:
                    continue
                more = plus(one, {term: 1}, -1)
                sink = self.sum_of(plus(other, more, -1))
                if sink is not None and self.is_of_rows(sink):
                    return self.divisor(Lse(tuple(sorted((*term.sinks, sink), key=spelled))), more, log)
        return None

    def is_of_rows(self, sink: Node) -> bool:
        return set(sink.axes) <= set(self.largest.axes) and not references(sink) & self.of_sums

    def divisor(self, lse: Lse, more: Terms, log: Node) -> Terms:
        """The terms of lse and `more`, whose sum the logarithm `log` is; records that node."""
        self.logs.setdefault(lse, (log, more))
        return plus({lse: 1}, more)

    def sum_of(self, terms: Terms) -> Node | None:
        """The node that terms add up to; None where they are not all nodes."""
        found: Node | None = None
        for term, times in sorted(terms.items(), key=lambda item: -item[1]):
            if isinstance(term, LogSum | Lse) or abs(times) != 1 or (found is None and times < 0):
                return None
            found = term if found is None else applied("add" if times > 0 else "sub", found, term)
        return Constant(0.0, Dtype("float")) if found is None else found


def plus(left: Terms, right: Terms, times: int = 1) -> Terms:
    found = dict(left)
    for term, count in right.items():
        found[term] = found.get(term, 0) + times * count
    return {term: count for term, count in found.items() if count}
