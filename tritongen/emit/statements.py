"""Statements of host functions, as values: families make them, and `templates/host.jinja` prints them.

Their leaves are the same values as in kernels: trees, which know the names that they read.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..lang.names import shown
from ..lang.trees import walk
from ..nest.values import Expr, Term, V, either, expr, tree_of
from .format import LINE
from .imports import host_imports
from .scoping import OF_ALL


@dataclass(frozen=True)
class Let:
    """Binds a value to a name, or its elements to several."""

    name: Term  # or a list of names that get the same
    value: Term

    @property
    def target(self) -> str:
        return " = ".join(map(str, self.name)) if isinstance(self.name, list) else bare(self.name)

    @property
    def source(self) -> str:
        """The value's source as the right-hand side of the names."""
        of_each = isinstance(expr(self.name).tree, ast.Tuple)
        return bare(self.value) if of_each else expr(self.value).text

    @property
    def bound(self) -> tuple[str, ...]:
        return expr(self.name).names


@dataclass(frozen=True)
class Length(Let):
    """Binds lengths or other integers to names: one that nothing reads is left out."""


@dataclass(frozen=True)
class Allocate(Let):
    """Allocates a result, which launches write."""


@dataclass(frozen=True)
class Do:
    """Calls a function for its effect: to refuse arguments, or to move memory."""

    value: Term
    keyword: str = ""  # of a statement that is no call

    @property
    def text(self) -> str:
        return f"{self.keyword} {bare(self.value)}" if self.keyword else str(expr(self.value))


@dataclass(frozen=True)
class CheckShape(Do):
    """Refuses a shape."""


@dataclass(frozen=True)
class Raise:
    """Refuses arguments with a message that may contain values."""

    words: tuple[str | Expr, ...]

    @property
    def text(self) -> str:
        pieces = [ast.Constant(one) if isinstance(one, str) else _formatted(one.tree) for one in self.words]
        return ast.unparse(ast.JoinedStr(pieces) if len(pieces) > 1 else pieces[0])


@dataclass(frozen=True)
class Return:
    value: Term

    @property
    def text(self) -> str:
        return bare(self.value)


@dataclass(frozen=True)
class Launch:
    """A call of the runtime that launches kernels, if `when` holds.

    With `ends` or `instead`, the call returns whether it has launched all: if so, the function returns `ends`; if not,
    `instead` is called.
    """

    call: Expr
    when: Expr | None = None
    ends: Term = None
    instead: Expr | None = None

    @property
    def statement(self) -> Statement:
        """The launch in terms of other statements."""
        if self.ends:
            return If(self.when.and_(self.call) if self.when else self.call, (Return(self.ends),))
        if self.instead:
            return If(self.call.negated, (Do(self.instead),))
        return If(self.when, (Do(self.call),)) if self.when else Do(self.call)


@dataclass(frozen=True)
class If:
    test: Term
    body: tuple[Statement, ...]
    note: str = ""
    other: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class Note:
    """A comment on the next statement."""

    text: str


Statement = Let | Do | Raise | Return | Launch | If | Note


def call(function: Term, *passed: Term, **named: Term) -> Expr:
    """A call without the keyword arguments that have a default's value: "", False or None."""
    words = [ast.keyword(name, tree_of(value)) for name, value in named.items() if value not in ("", False, None)]
    return Expr(ast.Call(tree_of(function), [*map(tree_of, passed)], words))


def given(name: str, value: Term, otherwise: Term = None) -> Expr:
    """`value` if the tensor `name` is given, else `otherwise`."""
    return either(V[name].is_given, value, otherwise)


def one_or_all(values: Sequence[Term]) -> Term:
    return values[0] if len(values) == 1 else tuple(values)


def refused(test: Term, *words: str | Expr) -> If:
    return If(test, (Raise(words),))


def bare(value: Term) -> str:
    """The source of a value, without parentheses around several elements."""
    found = expr(value)
    return found.text[1:-1] if isinstance(found.tree, ast.Tuple) and len(found.tree.elts) > 1 else found.text


def _formatted(tree: ast.expr) -> ast.expr:
    return tree if isinstance(tree, ast.FormattedValue) else ast.FormattedValue(tree, -1)


# The names that statements read


def reads(statements: Iterable[Statement]) -> Counter[str]:
    """How often some statements read each name, except names of functions that they call."""
    return Counter(name for value in values_of(statements) for name in value.variables)


def called(statements: Iterable[Statement]) -> frozenset[str]:
    """The functions that some statements call."""
    nodes = (node for value in values_of(statements) for node in walk(value.tree))
    return frozenset(ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call))


def values_of(statements: Iterable[Statement]) -> Iterator[Expr]:
    """The values in some statements."""
    for one in statements:
        match one:
            case Raise(words):
                yield from (word for word in words if isinstance(word, Expr))
            case Let(value=value) | Do(value) | Return(value):
                yield expr(value)
            case Launch():
                yield from (expr(term) for term in (one.when, one.call, one.instead, one.ends) if term)
            case If():
                yield expr(one.test)
                yield from values_of((*one.body, *one.other))


# Simplifications


def finished(statements: Iterable[Statement], given: Iterable[str]) -> tuple[Statement, ...]:
    """The statements of a function with arguments `given`, without unread lengths. Raises `TypeError` if unsound."""
    left = without_unread(statements)
    check_function(left, given)
    return left


def without_unread(statements: Iterable[Statement]) -> tuple[Statement, ...]:
    """The statements without lengths that nothing reads; next to one that is read, in a shape, `N` becomes `_N`."""
    every = tuple(statements)
    read = reads(every)
    left = tuple(one for each in every for one in _without_unread(each, read))
    return left if left == every else without_unread(left)


def _without_unread(one: Statement, read: Counter[str]) -> Iterator[Statement]:
    if isinstance(one, If):
        body, other = (tuple(left for each in b for left in _without_unread(each, read)) for b in (one.body, one.other))
        yield replace(one, body=body, other=other)
        return
    if not isinstance(one, Length):
        yield one
        return
    own = reads([one])
    known = {name for name in one.bound if read[name] > own[name]}
    match one.name, one.value:
        case tuple() as names, tuple() as values:
            pairs = [pair for pair in zip(names, values, strict=True) if pair[0] in known]
            yield from [Length(*zip(*pairs, strict=True))] if len(pairs) > 1 else [Length(*pair) for pair in pairs]
        case tuple() as names, _ if known:
            yield replace(one, name=tuple(name if {*expr(name).names} <= known else _unread(name) for name in names))
        case _ if known:
            yield one


def _unread(name: Term) -> Expr:
    (own,) = expr(name).names
    return expr(name).with_names({own: V[own if own[0] == "_" else f"_{own}"]})


def in_place(let: Let, statements: Sequence[Statement]) -> tuple[Statement, ...]:
    """The statements after `let`, which is inlined if they read it once, in a keyword argument that fits into a line
    with its value.
    """
    name, value = str(let.name), expr(let.value)
    readers = [one for one in statements if name in reads([one])]
    match readers:
        case [Let() | Launch(when=None, ends=None, instead=None) as reader] if reads(readers)[name] == 1:
            nodes = [node for one in values_of(readers) for node in walk(one.tree)]
            words = (n for n in nodes if isinstance(n, ast.keyword) and name in Expr(n.value).names)
            lengths = (len(shown(f"        {ast.unparse(word)},")) for word in words)
            if any(length + len(value.text) - len(name) <= LINE for length in lengths):
                other = _with(reader, {name: value})
                return tuple(other if one is reader else one for one in statements)
    return (let, *statements)


def _with(one: Let | Launch, others: Mapping[str, Expr]) -> Let | Launch:
    if isinstance(one, Let):
        return replace(one, value=expr(one.value).with_names(others))
    return replace(one, call=one.call.with_names(others))


# Soundness

_OF_MODULES = host_imports("").keys()


def check_function(statements: Sequence[Statement], given: Iterable[str]) -> None:
    """Raises `TypeError` where a function reads a name before it has a value, and for memory that nothing writes."""
    lets = [one for one in _all(statements) if isinstance(one, Let)]
    made = {name for one in lets if isinstance(one, Allocate) for name in one.bound}
    launches = [one for one in _all(statements) if isinstance(one, Launch)]
    if unwritten := made - reads([*lets, *launches]).keys():
        raise TypeError(f"no launch writes {', '.join(sorted(unwritten))}")
    _check_names(statements, {*given, *_OF_MODULES, *OF_ALL})


def _check_names(statements: Sequence[Statement], known: set[str]) -> None:
    for one in statements:
        own = expr(one.test).variables if isinstance(one, If) else reads([one])
        if missing := {*own} - known:
            raise TypeError(f"{', '.join(sorted(missing))} is read before it has a value: {one}")
        if isinstance(one, If):
            _check_names((*one.body, *one.other), known)
        if isinstance(one, Let):
            known |= {*one.bound}


def _all(statements: Sequence[Statement]) -> Iterator[Statement]:
    for one in statements:
        yield one
        yield from _all((*one.body, *one.other)) if isinstance(one, If) else ()
