"""The values of kernels: expressions as trees, from which their text is printed.

Operators and calls combine them, spelled as in kernels: `tl.load(V.x_row + V.cols, mask=V.col_mask)`.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from ..lang.trees import changed, literal, walk


def _binary(kind: ast.operator) -> Callable[[Expr, Term], Expr]:
    return lambda left, right: Expr(ast.BinOp(left.tree, kind, tree_of(right)))


def _comparison(kind: ast.cmpop) -> Callable[..., Expr]:
    return lambda left, *others: Expr(ast.Compare(left.tree, [kind] * len(others), [*map(tree_of, others)]))


def _joined(kind: ast.boolop) -> Callable[[Expr, Term], Expr]:
    def operands(tree: ast.expr) -> list[ast.expr]:
        return tree.values if isinstance(tree, ast.BoolOp) and type(tree.op) is type(kind) else [tree]

    return lambda left, right: Expr(ast.BoolOp(kind, [*operands(left.tree), *operands(tree_of(right))]))


class Expr:
    """An immutable expression. Two with the same text are equal."""

    def __init__(self, tree: ast.expr) -> None:
        self.tree = tree

    @cached_property
    def text(self) -> str:
        if isinstance(self.tree, ast.Name):
            return self.tree.id
        text = ast.unparse(self.tree)
        is_grouped = (" & " in text and " | " in text) or " and (" in text or " or (" in text
        return ast.unparse(changed(self.tree, _grouped)) if is_grouped else text

    @property
    def bare(self) -> str:
        """The text; without parentheses if it is a tuple."""
        return ", ".join(map(ast.unparse, self.tree.elts)) if isinstance(self.tree, ast.Tuple) else self.text

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names that it reads, each once per use."""
        return tuple(node.id for node in walk(self.tree) if isinstance(node, ast.Name))

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The names that it reads, except functions that it calls."""
        nodes = walk(self.tree)
        functions = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        return tuple(node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in functions)

    @property
    def is_name(self) -> bool:
        return isinstance(self.tree, ast.Name)

    @cached_property
    def calls(self) -> bool:
        return any(isinstance(node, ast.Call) for node in walk(self.tree))

    def changed(self, change: Callable[[ast.AST], ast.AST | None]) -> Expr:
        return Expr(changed(self.tree, change))

    def with_names(self, others: Mapping[str, Expr]) -> Expr:
        """The value with names replaced by the values in `others`."""
        if others.keys().isdisjoint(self.names):
            return self
        trees = {name: other.tree for name, other in others.items()}
        return self.changed(lambda node: trees.get(node.id) if isinstance(node, ast.Name) else None)

    def to(self, *dtypes: Term) -> Expr:
        """The value cast to each of `dtypes`, one after the other."""
        return functools.reduce(lambda found, dtype: found.method("to", dtype), dtypes, self)

    __add__, __sub__ = _binary(ast.Add()), _binary(ast.Sub())
    __mul__, __truediv__ = _binary(ast.Mult()), _binary(ast.Div())
    __floordiv__, __mod__ = _binary(ast.FloorDiv()), _binary(ast.Mod())
    __and__, __or__ = _binary(ast.BitAnd()), _binary(ast.BitOr())
    __lt__, __le__ = _comparison(ast.Lt()), _comparison(ast.LtE())
    __gt__, __ge__ = _comparison(ast.Gt()), _comparison(ast.GtE())
    equals, differs = _comparison(ast.Eq()), _comparison(ast.NotEq())
    is_in, is_not_in = _comparison(ast.In()), _comparison(ast.NotIn())
    and_, or_ = _joined(ast.And()), _joined(ast.Or())

    def __rmul__(self, other: Term) -> Expr:
        return expr(other) * self

    def __neg__(self) -> Expr:
        return Expr(ast.UnaryOp(ast.USub(), self.tree))

    def __invert__(self) -> Expr:
        return Expr(ast.UnaryOp(ast.Invert(), self.tree))

    @property
    def is_given(self) -> Expr:
        return _comparison(ast.IsNot())(self, None)

    @property
    def is_none(self) -> Expr:
        return _comparison(ast.Is())(self, None)

    def field(self, name: str) -> Expr:
        return Expr(ast.Attribute(self.tree, name))

    def method(self, name: str, *args: Term, **keywords: Term) -> Expr:
        words = [ast.keyword(word, tree_of(given)) for word, given in keywords.items()]
        return Expr(ast.Call(ast.Attribute(self.tree, name), [*map(tree_of, args)], words))

    @cached_property
    def shape(self) -> Expr:
        return self.field("shape")

    @cached_property
    def dtype(self) -> Expr:
        return self.field("dtype")

    @property
    def each(self) -> Expr:
        """Its elements, unpacked in a tuple or among arguments: `*value`."""
        return Expr(ast.Starred(self.tree))

    @property
    def negated(self) -> Expr:
        return Expr(ast.UnaryOp(ast.Not(), self.tree))

    @property
    def T(self) -> Expr:
        return Expr(ast.Attribute(self.tree, "T"))

    def __getitem__(self, at: Term | slice | tuple[Term | slice, ...]) -> Expr:
        """An element, or the value with new dims where there is None, as in `[:, None]`."""
        if isinstance(at, tuple):
            return Expr(ast.Subscript(self.tree, ast.Tuple([*map(_place, at)])))
        return Expr(ast.Subscript(self.tree, _place(at)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def _place(at: Term | slice) -> ast.expr:
    if not isinstance(at, slice):
        return tree_of(at)
    return ast.Slice(*(None if end is None else tree_of(end) for end in (at.start, at.stop)))


def _grouped(node: ast.AST) -> ast.AST | None:
    """Adds parentheses around `&` in operands of `|`, `(a & b) | c`, though Python needs none, and drops those that
    `ast.unparse` writes around the last of several comparisons in `and` or `or`.
    """

    def side(one: ast.expr) -> ast.expr:
        both = isinstance(one, ast.BinOp) and isinstance(one.op, ast.BitAnd)
        return ast.Name(f"({Expr(one).text})") if both else changed(one, _grouped)

    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return ast.BinOp(side(node.left), node.op, side(node.right))
    if isinstance(node, ast.BoolOp):
        bare = (one if isinstance(one, ast.BoolOp | ast.IfExp) else ast.Name(Expr(one).text) for one in node.values)
        return ast.BoolOp(node.op, [*bare])
    return None


Term = Expr | ast.expr | str | float | bool | Sequence["Term"] | Mapping[str, "Term"] | None


def tree_of(operand: Term) -> ast.expr:
    """The tree of a value, a name, a constant, or a collection of these."""
    match operand:
        case Expr(tree=tree):
            return tree
        case ast.expr():
            return operand
        case str():
            return named(operand).tree
        case list():
            return ast.List([*map(tree_of, operand)])
        case tuple():
            return ast.Tuple([*map(tree_of, operand)])
        case Mapping():
            return ast.Dict([*map(ast.Constant, operand)], [*map(tree_of, operand.values())])
    assert operand is None or isinstance(operand, int | float)
    return literal(operand)


def quoted(text: str) -> Expr:
    """A string literal."""
    return Expr(ast.Constant(text))


def either(test: Term, value: Term, other: Term) -> Expr:
    """`value if test else other`."""
    return Expr(ast.IfExp(tree_of(test), tree_of(value), tree_of(other)))


def total(first: Expr, *others: Term) -> Expr:
    return functools.reduce(operator.add, others, first)


def product(first: Term, *others: Term) -> Expr:
    return functools.reduce(operator.mul, others, expr(first))


def joined(*tests: Expr | None) -> Expr | None:
    """The tests that are not None, joined by `&`; None if there are none."""
    found = [test for test in tests if test is not None]
    return functools.reduce(Expr.__and__, found) if found else None


@functools.cache
def _variable(name: str) -> Expr:
    assert name.isidentifier(), name
    return Expr(ast.Name(name))


class _Variables:
    """The names of a kernel."""

    def __getattr__(self, name: str) -> Expr:
        return _variable(name)

    __getitem__ = __getattr__


class Functions:
    """The functions that a kernel or a host calls: functions of a module, or of the runtime."""

    def __init__(self, module: str = "") -> None:
        self._module = module

    def __getattr__(self, name: str) -> Callable[..., Expr]:
        function = ast.Attribute(ast.Name(self._module), name) if self._module else ast.Name(name)

        def call(*args: Term, **keywords: Term) -> Expr:
            words = [ast.keyword(word, tree_of(given)) for word, given in keywords.items()]
            return Expr(ast.Call(function, [*map(tree_of, args)], words))

        return call

    __getitem__ = __getattr__


V = _Variables()
tl, runtime = Functions("tl"), Functions()
tensors, torch = Functions("tensors"), Functions("torch")  # of hosts


def expr(operand: Term) -> Expr:
    """An operand as an `Expr`."""
    return (
        operand if isinstance(operand, Expr) else named(operand) if isinstance(operand, str) else Expr(tree_of(operand))
    )


@functools.cache
def named(text: str) -> Expr:
    """The value of a name, with fields as in `x_ptr.dtype`, or of an integer's text."""
    first, *fields = text.split(".")
    if not fields and first.isdigit():
        return Expr(ast.Constant(int(first)))
    assert all(map(str.isidentifier, (first, *fields))), text
    return functools.reduce(Expr.field, fields, V[first])
