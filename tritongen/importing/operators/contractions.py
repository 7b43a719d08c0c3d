"""Matmuls: sums of products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..axes import Dim
from ..expressions import Input, parts
from ..refusals import Refusal
from ..table import operator
from ..values import Value

if TYPE_CHECKING:
    from ..building import Building
    from ..expressions import Expr


def product(t: Building, x: Value, y: Value, summed: list[Dim], left: tuple[Dim, ...]) -> Value:
    """The sum of products of two tensors, whose axes are joined already."""
    x, y = t.multiplied(x), t.multiplied(y)
    y, left = _apart(t, y, left)
    t.same_dtype.append(frozenset(_floats(t, x.expr) | _floats(t, y.expr)))
    t.once(left)
    terms = t.apply("mul", x.of(dims=()), y.of(dims=()))
    terms = Value(terms.expr, (), t.dtype, t.natural([x, y], t.dtype))
    axes = [dim for dim in summed if t.axes.atoms(dim)]
    if not axes:
        return terms.of(dims=left)
    return t.reduced("sum", terms, axes, left)


def _met(t: Building, x: Value, y: Value) -> tuple[Value, Value]:
    """Operands that are summed over one axis, where that of one is another name of that of the other."""
    inside, other = t.axes.atoms(x.dims[-1]), t.axes.atoms(y.dims[-2])
    if len(inside) == len(other) == 1:
        if t.axes.first(inside[0]) == other[0]:
            y = t.moved(y, y.rank - 2, inside)
        elif t.axes.first(other[0]) == inside[0]:
            x = t.moved(x, x.rank - 1, other)
    return x, y


def _apart(t: Building, y: Value, left: tuple[Dim, ...]) -> tuple[Value, tuple[Dim, ...]]:
    """The second operand of a product and the dimensions of that, where both operands have one axis of those each."""
    found: list[Dim] = []
    for dim in left:
        atoms = t.axes.atoms(dim)
        places = [place for place, own in enumerate(y.dims) if t.axes.atoms(own) == atoms]
        if atoms and places and atoms in map(t.axes.atoms, found):
            dim = t.renamed(dim)
            y = t.moved(y, places[0], dim)
        found.append(dim)
    return y, tuple(found)


def _floats(t: Building, expr: Expr) -> set[str]:
    """The float inputs that an operand has the dtype of."""
    if isinstance(expr, Input):
        found = t.inputs.get(expr.name)
        return {expr.name} if found is not None and found.dtype.is_floating_point else set()
    if getattr(expr, "function", "") == "cast":
        return set()
    return set().union(*(_floats(t, one) for one in parts(expr)), set())


def matmul(t: Building, x: Value, y: Value) -> Value:
    """torch.matmul, with its broadcasting."""
    vector = x.rank == 1, y.rank == 1
    if vector[0]:
        x = x.of(dims=((), *x.dims))
    if vector[1]:
        y = y.of(dims=(*y.dims, ()))
    x, y = _met(t, x, y)
    t.axes.join(x.dims[-1], y.dims[-2])
    batch = t.broadcast(x.of(dims=x.dims[:-2]), y.of(dims=y.dims[:-2]))
    rows, columns = x.dims[-2], y.dims[-1]
    inside = x.dims[-1]
    t.axes.wish(inside, "K J L", 3)
    t.axes.wish(rows, "M", 4)
    t.axes.wish(columns, "N E F", 4)
    left = (*batch, *(() if vector[0] else (rows,)), *(() if vector[1] else (columns,)))
    return product(t, x, y, [inside], left)


@operator("mm", "bmm", "matmul", "mv", "dot", "vdot", "inner", "__matmul__", "linalg_matmul")
def _matmul(t: Building, x: Value, y: Value) -> Value:
    if t.packet == "inner":
        if not x.rank or not y.rank:
            return t.apply("mul", x, y)
        y = y.of(dims=tuple(reversed(y.dims)))
    if t.packet == "bmm":
        t.axes.wish(x.dims[0], "B", 3)
        t.axes.join(x.dims[0], y.dims[0])
    return matmul(t, x, y)


@operator("addmm", "baddbmm", "addmv", "addbmm")
def _addmm(t: Building, bias: Value, x: Value, y: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    made = _summed_bmm(t, x, y) if t.packet == "addbmm" else matmul(t, x, y)
    if alpha != 1:
        made = t.apply("mul", alpha, made)
    if beta == 0:
        return made
    return t.apply("add", made, bias if beta == 1 else t.apply("mul", beta, bias))


def _summed_bmm(t: Building, x: Value, y: Value) -> Value:
    t.axes.wish(x.dims[0], "B", 3)
    t.axes.wish(x.dims[2], "K", 3)
    t.axes.join(x.dims[0], y.dims[0])
    t.axes.join(x.dims[2], y.dims[1])
    return product(t, x, y, [x.dims[0], x.dims[2]], (x.dims[1], y.dims[2]))


@operator("linear")
def _linear(t: Building, x: Value, weight: Value, bias: Value | None = None) -> Value:
    t.axes.join(x.dims[-1], weight.dims[-1])
    t.axes.wish(weight.dims[-1], "K J L", 3)
    if weight.rank == 1:
        made = product(t, x, weight, [x.dims[-1]], x.dims[:-1])
    else:
        t.axes.wish(weight.dims[0], "N E F", 3)
        made = product(t, x, weight, [x.dims[-1]], (*x.dims[:-1], weight.dims[0]))
    return made if bias is None else t.apply("add", made, bias)


@operator("bilinear")
def _bilinear(t: Building, x: Value, y: Value, weight: Value, bias: Value | None = None) -> Value:
    t.axes.join(x.dims[-1], weight.dims[1])
    t.axes.join(y.dims[-1], weight.dims[2])
    batch = t.broadcast(x.of(dims=x.dims[:-1]), y.of(dims=y.dims[:-1]))
    left = (*batch, weight.dims[0])
    pairs = product(t, x, weight, [], ())
    made = product(t, pairs, y, [x.dims[-1], y.dims[-1]], left)
    return made if bias is None else t.apply("add", made, bias)


@operator("outer", "ger")
def _outer(t: Building, x: Value, y: Value) -> Value:
    return t.apply("mul", x.of(dims=(*x.dims, ())), y)


@operator("einsum")
def _einsum(t: Building, equation: str, tensors: list[Value], path: Any = None) -> Value:
    spelled, _, result = equation.replace(" ", "").partition("->")
    terms = spelled.split(",")
    if "..." in equation:
        terms, result = _spelled_out(terms, result, tensors)
    if "->" not in equation:
        letters = "".join(terms)
        result = "".join(sorted(one for one in set(letters) if letters.count(one) == 1))
    axes: dict[str, Dim] = {}
    for term, tensor in zip(terms, tensors, strict=True):
        if len(set(term)) != len(term):
            raise Refusal("an axis twice in one operand of einsum", "a diagonal is take(x, index(M), N)")
        for letter, dim in zip(term, tensor.dims, strict=True):
            if dim and axes.get(letter):
                t.axes.join(axes[letter], dim)
            elif dim or letter not in axes:
                axes[letter] = dim
            if letter.isalpha():
                t.axes.wish(dim, letter.upper(), 2)
    made, others = tensors[0], tensors[1:]
    for place, other in enumerate(others):
        last = place == len(others) - 1
        summed = [axes[letter] for letter in dict.fromkeys("".join(terms)) if letter not in result] if last else []
        made = product(t, made, other, summed, tuple(axes[letter] for letter in result))
    if not others:
        summed = [axes[letter] for letter in dict.fromkeys(terms[0]) if letter not in result]
        left = tuple(axes[letter] for letter in result)
        made = t.reduced("sum", made, summed, left) if any(summed) else made.of(dims=left)
    return made


def _spelled_out(terms: list[str], result: str, tensors: list[Value]) -> tuple[list[str], str]:
    """Letters of their own in the place of `...`, aligned from the last."""
    ranks = [tensor.rank - len(term) + 3 for term, tensor in zip(terms, tensors, strict=True) if "..." in term]
    digits = "0123456789"[: max(ranks, default=0)]
    found = [
        term.replace("...", digits[len(digits) - (tensor.rank - len(term) + 3) :] if "..." in term else "")
        for term, tensor in zip(terms, tensors, strict=True)
    ]
    return found, result.replace("...", digits)
