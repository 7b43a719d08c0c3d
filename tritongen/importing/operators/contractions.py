"""Matmuls and einsum: sums of products."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ..axes import Dim
from ..building import Building
from ..expressions import Expr, Input, subexpressions
from ..refusals import Refusal
from ..table import operator
from ..values import Value

Labels = Sequence[Hashable]


_WISHES = {"k": ("K J L", 3), "m": ("M", 4), "n": ("N E F", 4)}  # names and ranks for axes of matmuls, by label
_OF_HEADS = {"k": ("D N J", 2), "m": ("M", 4), "n": ("E N", 3)}  # with batch and heads, as in attention


def contracted(
    t: Building,
    operands: Sequence[tuple[Value, Labels]],
    result: Labels,
    wishes: Mapping[Any, tuple[str, int]] = _WISHES,
) -> Value:
    """Einsum with a label for each dimension: the sum of products over the labels that `result` lacks."""
    values, dims = t.aligned(operands)
    for label, (names, rank) in wishes.items():
        t.axes.wish(dims.get(label, ()), names, rank)
    left = tuple(dims.get(label, ()) for label in result)
    made, *others = values
    if not others:
        summed = [dim for label, dim in dims.items() if label not in result]
        return t.reduced("sum", made, summed, left) if summed else made.of(dims=left)
    needed = [{*result}.union(*(labels for _, labels in operands[place:])) for place in range(2, len(values) + 1)]
    for other, later in zip(others, needed, strict=True):  # Each axis is summed as soon as no later operand has it.
        made = product(t, made, other, [dims.pop(label) for label in {**dims} if label not in later], left)
    return made


def product(t: Building, x: Value, y: Value, summed: list[Dim], left: tuple[Dim, ...]) -> Value:
    """The sum of products of two tensors with aligned axes, over the dimensions `summed`."""
    x, y = t.multiplied(x), t.multiplied(y)
    t.same_dtype.append(frozenset(_floats(t, x.expr) | _floats(t, y.expr)))
    terms = t.apply("mul", x.of(dims=()), y.of(dims=()))
    terms = Value(terms.expr, (), t.dtype, t.natural([x, y], t.dtype))
    axes = [dim for dim in summed if t.axes.atoms(dim)]
    if not axes:
        return terms.of(dims=left)
    return t.reduced("sum", terms, axes, left)


def _floats(t: Building, expr: Expr) -> set[str]:
    """The float inputs that determine the dtype of an operand."""
    if isinstance(expr, Input):
        found = t.inputs.get(expr.name)
        return {expr.name} if found is not None and found.dtype.is_floating_point else set()
    if getattr(expr, "function", "") == "cast":
        return set()
    return set().union(*(_floats(t, one) for one in subexpressions(expr)), set())


def matmul(t: Building, x: Value, y: Value) -> Value:
    """torch.matmul, with its broadcasting."""
    batch = range(max(x.rank, y.rank) - 2)
    own, its = ([*batch[len(batch) - one.rank + 2 :]] if one.rank > 2 else [] for one in (x, y))
    rows, columns = (["m"] if x.rank > 1 else []), (["n"] if y.rank > 1 else [])
    wishes: dict[Any, tuple[str, int]] = {**_OF_HEADS, batch[-1]: ("H", 3)} if len(batch) == 2 else _WISHES
    return contracted(t, [(x, [*own, *rows, "k"]), (y, [*its, "k", *columns])], [*batch, *rows, *columns], wishes)


@operator("mm", "bmm", "matmul", "mv", "dot")
def _matmul(t: Building, x: Value, y: Value) -> Value:
    if t.packet == "bmm":
        t.axes.wish(x.dims[0], "B", 3)
    return matmul(t, x, y)


@operator("addmm", "baddbmm", "addmv", "addbmm")
def _addmm(t: Building, bias: Value, x: Value, y: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    if t.packet == "addbmm":
        t.axes.wish(x.dims[0], "B", 3)
    made = contracted(t, [(x, "bmk"), (y, "bkn")], "mn") if t.packet == "addbmm" else matmul(t, x, y)
    if alpha != 1:
        made = t.apply("mul", alpha, made)
    if beta == 0:
        return made
    return t.apply("add", made, bias if beta == 1 else t.apply("mul", beta, bias))


@operator("linear")
def _linear(t: Building, x: Value, weight: Value, bias: Value | None = None) -> Value:
    batch = range(x.rank - 1)
    columns = ["n"] if weight.rank > 1 else []
    wishes = {"k": ("K J L", 3), "n": ("N E F", 3)}
    made = contracted(t, [(x, [*batch, "k"]), (weight, [*columns, "k"])], [*batch, *columns], wishes)
    return made if bias is None else t.apply("add", made, bias)


@operator("bilinear")
def _bilinear(t: Building, x: Value, y: Value, weight: Value, bias: Value | None = None) -> Value:
    batch = range(x.rank - 1)
    made = contracted(t, [(x, [*batch, "i"]), (weight, "nij"), (y, [*batch, "j"])], [*batch, "n"])
    return made if bias is None else t.apply("add", made, bias)


@operator("einsum")
def _einsum(t: Building, equation: str, tensors: list[Value], path: Any = None) -> Value:
    spelled, _, result = equation.replace(" ", "").partition("->")
    terms = spelled.split(",")
    if "..." in equation:
        terms, result = _spelled_out(terms, result, tensors)
    if "->" not in equation:
        letters = "".join(terms)
        result = "".join(sorted(one for one in set(letters) if letters.count(one) == 1))
    for term in terms:
        if len(set(term)) != len(term):
            raise Refusal("an axis twice in one operand of einsum", "a diagonal is take(x, index(M), N)")
    wishes = {letter: (letter.upper(), 2) for letter in "".join(terms) if letter.isalpha()}
    return contracted(t, list(zip(tensors, terms, strict=True)), result, wishes)


def _spelled_out(terms: list[str], result: str, tensors: list[Value]) -> tuple[list[str], str]:
    """The terms and result with digits as labels in place of `...`, aligned at the last dimension."""
    ranks = [tensor.rank - len(term) + 3 for term, tensor in zip(terms, tensors, strict=True) if "..." in term]
    digits = "0123456789"[: max(ranks, default=0)]
    found = [
        term.replace("...", digits[len(digits) - (tensor.rank - len(term) + 3) :] if "..." in term else "")
        for term, tensor in zip(terms, tensors, strict=True)
    ]
    return found, result.replace("...", digits)
