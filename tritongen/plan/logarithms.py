"""What nodes are worth beside the sums of a softmax: their logarithms, as sums of terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..families.stream import where_not_empty, where_not_zero
from ..lang.ir import Call, Constant, Dtype, Load, Node, Op, Ref
from ..lang.unparse import spelled
from ..passes.contractions import applied
from ..passes.structure import references


@dataclass(frozen=True, slots=True)
class LogSum:
    """The logarithm of a sum times a matrix, of exponentials of the scores as they are."""

    name: str


@dataclass(frozen=True, slots=True)
class Lse:
    """The logarithm of the sum of the exponentials of the scores as they are, and of sinks."""

    sinks: tuple[Node, ...] = ()


Terms = dict[Node | LogSum | Lse, int]  # what is added up, and how often
Kind = tuple[str, Lse]  # a mean, by the name of its sum; lse, by none


class Logarithms:
    """Decomposes nodes of an operator that are made of sums of exponentials below the largest.

    `raw` are that, the `total` and the sums of products with `matrices`, by name, or with constants where there is
    none; `of_sums` are all values of these.
    """

    op: Op
    total: str
    largest: Ref
    matrices: Mapping[str, Load | None]
    raw: set[str]
    of_sums: set[str]
    logs: dict[Lse, tuple[Node, Terms]]

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
        """What a node is the sum of."""
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
            case Call(function="neg", args=(arg,)):
                return plus({}, self.terms(arg), -1)
            case Call(function="where", args=(Call(function="isinf", args=(test,)), Constant(value=0.0), other)):
                return self.terms(other) if test == other else {node: 1}
            case Call(function="log", args=(arg,)):
                return self.log(arg)
            case Call(function="logaddexp", args=(left, right)):
                return self.both(self.terms(left), self.terms(right), node) or {node: 1}
        return {node: 1}

    def log(self, node: Node) -> Terms:
        """What the logarithm of a node is the sum of."""
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
        """The logarithm of the sum of two exponentials: of the scores, and of a sink; None where it is another."""
        for one, other in ((left, right), (right, left)):
            for part, times in one.items():
                if not isinstance(part, Lse) or times != 1:
                    continue
                more = plus(one, {part: 1}, -1)
                sink = self.sum_of(plus(other, more, -1))
                if sink is not None and self.is_of_rows(sink):
                    return self.divisor(Lse(tuple(sorted((*part.sinks, sink), key=spelled))), more, log)
        return None

    def is_of_rows(self, sink: Node) -> bool:
        return set(sink.axes) <= set(self.largest.axes) and not references(sink) & self.of_sums

    def divisor(self, lse: Lse, more: Terms, log: Node) -> Terms:
        """lse and more, which a logarithm is."""
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
