"""The choices of values to store from which the search for a cut starts."""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import combinations

from ..lang.ir import Op, Reduce, Value
from ..passes.attentions import Attention, attentions
from ..passes.contractions import sides_of
from ..passes.structure import reached, references
from ..spec.types import FLOATS

MOST = 2  # the number of stored values up to which all combinations are tried
MANY = 20  # the number of values above which each is only tried by itself


def choices(op: Op, names: Sequence[str], rows: Container[str], saved: Container[str]) -> list[tuple[str, ...]]:
    """The choices of `names` to store from which the search starts: few of them, all lines except few, choices
    without scores of attention, and all lines and `rows`.
    """
    lines = [name for name in names if name in op.lines]
    found = few_of(names)
    found += [tuple(name for name in lines if name not in left) for left in few_of(op.lines)]
    found += but_scores(op, names, saved)
    found.append(tuple(name for name in names if name in rows or name in op.lines))
    return [*dict.fromkeys(found)]


def few_of(names: Sequence[str]) -> list[tuple[str, ...]]:
    most = MOST if len(names) <= MANY else 1
    return [chosen for count in range(most + 1) for chosen in combinations(names, count)]


def but_scores(op: Op, names: Sequence[str], saved: Container[str]) -> list[tuple[str, ...]]:
    """Choices without values that have the axes of attention scores: all lines together with the attentions, the saved
    values, the operands of attentions, or the reductions; and the reductions alone. The first three also leave out
    values between scores and the attention, such as an lse with a sink.
    """
    found, scores = attentions(op), {value.name for value in _crossing(op)}
    if not found:
        return []
    others = [value for value in op.values if value.name in names and value.name not in scores]
    totals, refs = {one.total.name for one in found}, op.refs
    below = {name: reached(refs, refs[name], ()) for name in refs}
    inside = {name for one in found for name in below[one.total.name] if one.score in below[name]} - totals
    outside = [value for value in others if value.name not in inside]
    lines = [_lines(outside, more) for more in (totals, saved, _matrices(op, found))]
    reductions = tuple(value.name for value in others if isinstance(value.node, Reduce))
    return [*lines, _lines(others, reductions), reductions]


def _lines(values: Sequence[Value], more: Container[str]) -> tuple[str, ...]:
    return tuple(value.name for value in values if value.source or value.name in more)


def _matrices(op: Op, found: Sequence[Attention]) -> set[str]:
    products = [node for one in found for node in (op.value(one.score).node, one.total.node)]
    sides = (side for node in products for side in (sides_of(op, node) or ())[:2])
    return {name for side in sides for name in references(side)}


def scores_of(op: Op) -> set[str]:
    """The values that have the axes of scores of an attention, except those whose axes all are axes of one result or
    float input, which is as large.
    """
    floats = [tensor.type.axes for tensor in op.inputs if {*tensor.type.dtypes} & {*FLOATS}]
    given = [{*axes} for axes in (*floats, *(result.axes for result in op.results))]
    return {value.name for value in _crossing(op) if not any({*value.node.axes} <= axes for axes in given)}


def _crossing(op: Op) -> list[Value]:
    """The values that have the axes of scores of an attention."""
    pairs = {(one.rows, one.streamed) for one in attentions(op)}
    return [value for value in op.values if any({*pair} <= {*value.node.axes} for pair in pairs)]
