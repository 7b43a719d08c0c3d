"""Builds nodes in the form in which an engineer would write them: like terms merged, common factors extracted.

Sums and products are decomposed (`terms`), simplified, and rebuilt as nodes in one fixed order.
Sums are never multiplied out, so that no cancellation is introduced.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..lang.exact import exact_arguments
from ..lang.functions import FUNCTIONS, OPERATORS
from ..lang.ir import BOOL, Call, Choose, Constant, Index, Load, Node, Op, Reduce, Ref, Size, Value, children
from ..lang.promotion import as_float, constant, fold_constants, promote
from ..lang.syntax import SYMBOLS
from ..lang.trees import parse
from ..passes.empty_sums import Axes, possibly_empty, undefined_over
from ..passes.factors import unless_empty
from .outcomes import outcome
from .terms import (
    ZERO,
    Term,
    contains,
    factors,
    half_of,
    has,
    is_half,
    may_be_outside,
    merged,
    shared_by,
    shared_by_some,
    terms,
)

ONE = constant(1)
IsSeen = Callable[[Axes, Axes], bool]
_LOGIC = {ast.BitAnd: "logical_and", ast.BitOr: "logical_or"}


@dataclass
class Algebra:
    """Makes nodes over the axes of an operator.

    `known` are named values of the forward that may replace their definitions, `seeds` names of the gradients of its
    results.
    """

    op: Op
    known: tuple[Value, ...] = ()
    seeds: frozenset[str] = frozenset()

    # Any function

    def call(self, name: str, *args: Node) -> Node:
        """Apply a function of the table; constants are folded, and arithmetic is simplified."""
        folded = fold_constants(name, list(args)) or outcome(name, args)
        if folded is not None:
            return folded
        match name, args:
            case "add" | "sub", (left, right):
                sign = 1.0 if name == "add" else -1.0
                return self.sum([*terms(left), *(Term(sign) * term for term in terms(right))])
            case "mul" | "div", (left, right):
                return self.product(factors(left) * factors(right) ** (1 if name == "mul" else -1))
            case "neg" | "square" | "reciprocal" | "positive", (arg,):
                return self.product(factors(self.plain(name, arg)))
            case "where", (condition, then, other):
                return self.where(condition, then, other)
        return self.plain(name, *args)

    def plain(self, name: str, *args: Node) -> Node:
        """The call, not simplified."""
        row = FUNCTIONS[name]
        axes = self.order(tuple(axis for arg in args for axis in arg.axes))
        if row.accepts == "where":
            return Call(name, args, axes, promote(*args[1:]))
        dtype = promote(*(arg for want, arg in zip(row.args, args, strict=True) if want.required))
        if row.result == "bool":
            dtype = BOOL
        args = exact_arguments(name, args, {})
        return Call(name, args, axes, as_float(dtype) if row.result == "float" else dtype)

    def order(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(axis for axis in self.op.axes if axis in axes)

    def parsed(self, text: str, names: Mapping[str, Node]) -> Node:
        """An expression of the language, such as a derivative in the table of functions."""
        return self._visit(parse(text), names)

    def _visit(self, tree: ast.expr, names: Mapping[str, Node]) -> Node:
        match tree:
            case ast.Constant(value=bool() | int() | float() as value):
                return constant(value)
            case ast.Name(id=name):
                return names[name]
            case ast.UnaryOp(op=op, operand=operand):
                return self.call(OPERATORS[SYMBOLS[type(op)]], self._visit(operand, names))
            case ast.BinOp(left=left, op=op, right=right):
                return self.call(
                    _LOGIC.get(type(op)) or OPERATORS[SYMBOLS[type(op)]],
                    self._visit(left, names),
                    self._visit(right, names),
                )
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.call(OPERATORS[SYMBOLS[type(op)]], self._visit(left, names), self._visit(right, names))
            case ast.Call(func=ast.Name(id=name), args=args):
                options = [
                    constant(arg.default) for arg in FUNCTIONS[name].args[len(args) :] if arg.default is not None
                ]
                return self.call(name, *(self._visit(arg, names) for arg in args), *options)
        raise AssertionError(f"a derivative of the table has {ast.dump(tree)}")

    # Choices

    def where(self, condition: Node, then: Node, other: Node) -> Node:
        """A choice by the values of tensors, multiplied by the common factor of both sides."""
        return self._chosen(Call, condition, then, other)

    def choose(self, condition: Node, then: Node, other: Node) -> Node:
        """A choice by a param, multiplied by the common factor of both sides."""
        return self._chosen(Choose, condition, then, other)

    def _chosen(self, kind: type[Node], condition: Node, then: Node, other: Node) -> Node:
        if then == other:
            return then
        if isinstance(condition, Constant):
            return then if condition.value else other
        shared, then, other = self._common_factor(then, other)
        return self.product(shared * Term(1.0, {self._choice(kind, condition, then, other): 1}))

    def _choice(self, kind: type[Node], condition: Node, then: Node, other: Node) -> Node:
        """A choice by tensors (`Call`) or by a param (`Choose`), not simplified."""
        if kind is Call:
            return self.plain("where", condition, then, other)
        return Choose(condition, then, other, self.order((*then.axes, *other.axes)), promote(then, other))

    def _common_factor(self, then: Node, other: Node) -> tuple[Term, Node, Node]:
        """The common factor of two nodes, and the nodes divided by it; 1 where one of them is zero."""
        if ZERO in (then, other):
            return Term(1.0), then, other
        shared = shared_by([factors(then), factors(other)])
        return shared, *(self.product(factors(side) / shared) for side in (then, other))  # type: ignore[return-value]

    def _entered(self, term: Term) -> Term:
        """Move factors of the term into the nonzero side of a choice whose other side is zero.

        So the gradient through a side that is not chosen is 0 even if its derivative is infinite, where torch gives
        NaN. Elements taken at positions loaded from a tensor move in too, because they are NaN out of bounds.
        """
        for node, power in term.factors.items():
            if power != 1 or not is_half(node):
                continue
            rest = {n: p for n, p in term.factors.items() if n != node}
            static = isinstance(node, Choose)
            own = set(node.axes)
            inner = {n: p for n, p in rest.items() if static or (n.axes and set(n.axes) <= own) or may_be_outside(n)}
            if inner:
                outer = Term(term.coefficient, {n: p for n, p in rest.items() if n not in inner})
                return outer * Term(1.0, {self._times_choice(node, Term(1.0, inner)): 1})
        return term

    def _times_choice(self, node: Node, term: Term) -> Node:
        """The choice with both sides multiplied by the term; a side that is zero stays zero."""
        condition, *sides = children(node)
        then, other = (self.product(factors(side) * term) if side != ZERO else ZERO for side in sides)
        return self._choice(type(node), condition, then, other)

    def within(self, node: Node, choice: Node, made: Callable[[Node], Node]) -> Node:
        """The node, which has `choice` as a factor, with `made` applied to each nonzero side of the choice."""
        condition, *sides = children(choice)
        then, other = (side if side == ZERO else made(side) for side in sides)
        return self.product(
            factors(node) * Term(1.0, {choice: -1, self._choice(type(choice), condition, then, other): 1})
        )

    # Sums

    def add(self, *nodes: Node) -> Node:
        return self.sum([term for node in nodes for term in terms(node)])

    def sum(self, terms: list[Term]) -> Node:
        """The sum of terms: like terms merged, common factors in front of a parenthesis."""
        left = merged(self._joined(merged(terms)))
        if len(left) < 2:
            return self.product(left[0]) if left else ZERO
        shared = shared_by(left)
        if shared.factors or shared.coefficient != 1:
            inner = self.sum([term / shared for term in left])
            return self.product(shared * factors(inner))
        if len(left) > 2 and (common := shared_by_some(left)) is not None:
            having = [term / common for term in left if has(term, common)]
            return self.sum([common * factors(self.sum(having)), *(term for term in left if not has(term, common))])
        left.sort(key=lambda term: term.coefficient < 0)
        first, *rest = left
        node = self.product(first)
        for term in rest:
            size = self.product(Term(abs(term.coefficient), term.factors))
            node = self.plain("sub" if term.coefficient < 0 else "add", node, size)
        return node

    def _joined(self, terms: list[Term]) -> list[Term]:
        """Merge choices by the same condition: `where(c, a, 0) + where(c, 0, b)` becomes `where(c, a, b)`."""
        found: dict[object, list[Term]] = {}
        for term in terms:
            half = half_of(term)
            found.setdefault(id(term) if half is None else (type(half), children(half)[0]), []).append(term)
        joined = []
        for same in found.values():
            half = half_of(same[0])
            if half is None or len(same) < 2:
                joined += same
                continue
            condition, *_ = children(half)
            sides = zip(*map(self._sides, same), strict=True)
            joined.append(factors(self._chosen(type(half), condition, *(self.add(*side) for side in sides))))
        return joined

    def _sides(self, term: Term) -> tuple[Node, ...]:
        """The two sides of the choice in a term, each multiplied by the other factors of the term."""
        half = half_of(term)
        assert half is not None
        return children(self._times_choice(half, term / Term(1.0, {half: 1})))[1:]

    def summed_to(self, own: tuple[str, ...], node: Node) -> Node:
        """The sum of a node over its axes that are not in `own`."""
        over = tuple(axis for axis in node.axes if axis not in own)
        return self.reduce_sum(node, over) if over else node

    def reduce_sum(self, node: Node, over: tuple[str, ...], is_seen: IsSeen | None = None) -> Node:
        """The sum of a node over axes, some of which it may lack; factors that are constant along them move outside.

        Such a factor is guarded if it is undefined where an axis is empty, and `is_seen` says that gradients have
        elements then: a length becomes at least 1, another factor is multiplied only where the sum is not empty.
        """
        lacking = tuple(axis for axis in over if axis not in node.axes)
        summed, over = possibly_empty(self.op, over), tuple(axis for axis in over if axis in node.axes)
        product = factors(node)
        inside, outside, undefined = Term(1.0), Term(product.coefficient), Term(1.0)
        times = Term(1.0, {Size(lacking): 1} if lacking else {})
        for factor, power in product.factors.items():
            term = Term(1.0, {factor: power})
            if set(factor.axes) & set(over):
                inside *= term
            elif is_seen and is_seen(summed, undefined_over(self.op, factor, power < 0)):
                alone = isinstance(factor, Size) and not lacking
                undefined *= Term(1.0) if alone else term
                outside *= Term(1.0, {self.plain("clamp_min", factor, ONE): power}) if alone else Term(1.0)
            else:
                outside *= term
        if undefined.factors:
            found = unless_empty(self.product(times * undefined), *self.order(tuple(summed)))
            condition, factor, _ = found.args
            times = Term(1.0, {self.plain("where", condition, factor, ZERO) if lacking else found: 1})
        outside *= times
        if not over:
            return self.product(outside)
        arg = self.product(inside)
        axes = tuple(axis for axis in arg.axes if axis not in over)
        reduced = Reduce("sum", arg, self.order(over), axes, arg.dtype)
        return self.product(outside * Term(1.0, {reduced: 1}))

    # Products

    def product(self, term: Term) -> Node:
        """A term as a node: constants and factors with fewer axes first, then gradients, then the other factors."""
        term = self._entered(self._recognised(term))
        if term.coefficient == 0:
            return ZERO
        if term.coefficient == -1:
            return self.plain("neg", self.product(Term(1.0, term.factors)))
        axes = self.order(tuple(axis for node in term.factors for axis in node.axes))
        ranked = sorted(term.factors.items(), key=lambda item: self._rank(item[0], axes))
        small = [(n, p) for n, p in ranked if self._rank(n, axes) < 2]
        large = [(n, p) for n, p in ranked if self._rank(n, axes) >= 2]
        if not small or not large:
            return self._quotient(term.coefficient, ranked)
        back = self._quotient(1, large)
        if term.coefficient != 1 or any(power > 0 for _, power in small):
            return self.plain("mul", self._quotient(term.coefficient, small), back)
        return self.plain("div", back, self._quotient(1, [(node, -power) for node, power in small]))

    def _quotient(self, coefficient: float, powers: list[tuple[Node, int]]) -> Node:
        above = [node for node, power in powers for _ in range(max(power, 0))]
        below = [node for node, power in powers for _ in range(max(-power, 0))]
        is_integral = abs(coefficient) < 2**31 and coefficient == int(coefficient)  # Triton's integers are of 64 bits.
        number = int(coefficient) if is_integral else coefficient
        upper = self._times([*([constant(number)] if number != 1 or not above else []), *above])
        if not below:
            return upper
        return self.plain("div", upper, self._times(below))

    def _times(self, nodes: list[Node]) -> Node:
        result, *rest = nodes
        for node in rest:
            result = self.plain("mul", result, node)
        return result

    def _rank(self, node: Node, axes: tuple[str, ...]) -> int:
        """0 for factors with fewer axes than the product (1 for reductions), 2 for gradients, 3 for vectors, else 4."""
        small = set(node.axes) < set(axes)
        if small and not (isinstance(node, Load) and node.axes and node.name not in self.seeds):
            return int(isinstance(node, Reduce))
        if not node.reads.isdisjoint(self.seeds):
            return 2
        return 3 if small else 4

    def _recognised(self, term: Term) -> Term:
        """The term with sums divided by a length as means, and definitions of known values replaced by their names."""
        term = self._with_means(term)
        for value in self.known:
            own = factors(value.node)
            fits = sum(map(abs, own.factors.values())) > 1 and own.coefficient == 1
            if fits and all(contains(term.factors.get(node, 0), power) for node, power in own.factors.items()):
                return self._recognised(term * own**-1 * Term(1.0, {value.ref: 1}))
        return self._with_logarithms(term)

    def _with_means(self, term: Term) -> Term:
        for node, power in term.factors.items():
            size = Size(node.over) if isinstance(node, Reduce) else None
            if power == 1 and isinstance(node, Reduce) and node.kind == "sum" and term.factors.get(size, 0) < 0:  # type: ignore[arg-type]
                assert size is not None
                mean = replace(node, kind="mean", dtype=as_float(node.dtype))
                return self._with_means(term * Term(1.0, {node: -1, size: 1, mean: 1}))
        return term

    def _with_logarithms(self, term: Term) -> Term:
        """exp(u) / s as exp(u - log(s)), if a known value shortens the exponent: `exp(x - logsumexp)`."""
        exponents = {node: self._exponent(node) for node, power in term.factors.items() if power == 1}
        sums = [n for n, p in term.factors.items() if p == -1 and isinstance(n, Ref)]
        for power, exponent in exponents.items():
            for total in sums:
                if exponent is None:
                    continue
                logarithm = self.plain("log", total)
                wanted = self.linear(exponent)
                wanted[logarithm] = wanted.get(logarithm, 0.0) - 1
                short = self._shortened(wanted, logarithm) if wanted[logarithm] else None
                if short is not None:
                    return term * Term(1.0, {power: -1, total: 1, self.plain("exp", short): 1})
        return term

    def _exponent(self, node: Node) -> Node | None:
        """The exponent of an exponential, which may be a named value; None for any other node."""
        match self._definition(node) if isinstance(node, Ref) else node:
            case Call(function="exp", args=(exponent,)):
                return exponent
        return None

    def _definition(self, ref: Ref) -> Node | None:
        return self.op.by_name[ref.name].node if ref.name in self.op.by_name else None

    def _shortened(self, wanted: dict[Node, float], logarithm: Node) -> Node | None:
        """The sum `wanted` in terms of a known value that contains the logarithm, if that is shorter."""
        for value in self.known:
            if logarithm not in self._summands(value.node):
                continue  # Its products may be such quotients, and `linear` would shorten them again without end.
            own = self.linear(value.node)
            if abs(own.get(logarithm, 0)) != 1 or len(own) < 2:
                continue
            times = wanted[logarithm] / own[logarithm]
            rest = {node: wanted.get(node, 0) - times * own.get(node, 0) for node in {**wanted, **own}}
            left = [Term(c, {node: 1}) for node, c in rest.items() if c]
            if len(left) < len(wanted) - 1:
                return self.sum([*left, Term(times, {value.ref: 1})])
        return None

    def linear(self, node: Node) -> dict[Node, float]:
        """A sum as coefficients of its summands, with named sums expanded."""
        found: dict[Node, float] = {}
        for term in self._written_out(node):
            alone = list(term.factors.values()) == [1]
            own = next(iter(term.factors)) if alone else self.product(term)
            found[own] = found.get(own, 0) + (term.coefficient if alone else 1.0)
        return {addend: coefficient for addend, coefficient in found.items() if coefficient}

    def _summands(self, node: Node) -> set[Node]:
        """The summands that are a single factor, not a product."""
        return {next(iter(term.factors)) for term in self._written_out(node) if list(term.factors.values()) == [1]}

    def _written_out(self, node: Node) -> Iterator[Term]:
        """The terms of a sum, with named sums expanded into their terms."""
        for term in terms(node):
            ref = next(iter(term.factors)) if list(term.factors.values()) == [1] else None
            definition = self._definition(ref) if isinstance(ref, Ref) else None
            if isinstance(definition, Call) and definition.function in ("add", "sub", "neg"):
                yield from (one * Term(term.coefficient) for one in self._written_out(definition))
            else:
                yield term


def position(axis: str) -> Index:
    return Index(axis, (axis,))
