"""Finds maxima that only shift the exponentials of softmax and the like, and so have no gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..lang.ir import Call, Constant, Node, Op, Reduce, Ref, Size, children
from .structure import is_extremum


@dataclass(frozen=True, slots=True)
class _Move:
    """How a value changes as a maximum grows by t: `times` t is added to it, or exp(`times` t) multiplies it.

    Each row has its own t, so that a value reduced over rows changes in neither way.
    """

    kind: str  # "adds" or "multiplies"
    times: float
    rows: frozenset[str] = frozenset()  # the axes along which t varies


_Moves = Mapping[str, _Move | None]
_STILL = _Move("adds", 0)


def only_shifts(op: Op, name: str, results: Sequence[str]) -> bool:
    """Whether results do not depend on the value of a maximum, as in x - (log(sum(exp(x - m))) + m).

    Results that are unchanged inputs are no values of the operator.
    """
    node = op.value(name).node
    if not is_extremum(node):
        return False
    moves = _moves(op, name)
    return all((move := moves.get(result, _STILL)) is not None and move.times == 0 for result in results)


def rescaling_of(op: Op, name: str, node: Node) -> float | None:
    """The power of exp(t) that multiplies a node as a maximum grows by t; None if it changes in another way."""
    move = _moved(node, _moves(op, name), _over(op, name))
    return None if move is None or (move.kind == "adds" and move.times) else move.times


def _moves(op: Op, name: str) -> dict[str, _Move | None]:
    """How each value changes as the maximum `name` grows; None if neither by adding nor by multiplying."""
    moves: dict[str, _Move | None] = {}
    over = _over(op, name)
    for value in op.values:
        own = _Move("adds", 1, frozenset(value.node.axes))
        moves[value.name] = own if value.name == name else _moved(value.node, moves, over)
    return moves


def _over(op: Op, name: str) -> Sequence[str]:
    """The axes that an extremum reduces."""
    node = op.value(name).node
    return node.over if isinstance(node, Reduce) else ()


def _moved(node: Node, moves: _Moves, over: Sequence[str]) -> _Move | None:
    """How a node changes as an extremum `over` some axes grows; None if neither by adding nor by multiplying."""
    if isinstance(node, Ref):
        return moves[node.name]
    if all(_moved(child, moves, over) == _STILL for child in children(node)):
        return _STILL
    match node:
        case Call(function="where", args=(Call(function="isinf", args=(test,)), Constant(), other)) if test == other:
            return _moved(other, moves, over)  # A shift does not change infinities.
        case Call(
            function="where", args=(Call(function="ne", args=(Size(over=of), Constant(0))), other, Constant())
        ) if of == tuple(over):
            return _moved(other, moves, over)  # Over no elements there is no extremum.
        case Call(function="where", args=(test, then, other)) if _moved(test, moves, over) == _STILL:
            return _of_choice([_moved(arg, moves, over) for arg in (then, other) if not _is_zero(arg)])
        case Call(function=function, args=args):
            return _of_call(function, [_moved(arg, moves, over) for arg in args])
        case Reduce(kind=kind, arg=arg, over=summed):
            move = _moved(arg, moves, over)
            fits = {"sum": "multiplies", "mean": "multiplies", "max": "adds", "min": "adds"}
            return move if move and move.kind == fits.get(kind) and not move.rows & set(summed) else None
    return None


def _is_zero(node: Node) -> bool:
    return isinstance(node, Constant) and node.value == 0


def _of_choice(args: Sequence[_Move | None]) -> _Move | None:
    """How a choice changes if all its sides are multiplied alike; sides that are 0 are not among `args`."""
    first = args[0] if args else None
    return first if first and first.kind == "multiplies" and all(arg == first for arg in args) else None


def _of_call(function: str, args: Sequence[_Move | None]) -> _Move | None:
    found = [arg for arg in args if arg is not None]
    if len(found) < len(args):
        return None
    match function, found:
        case "exp", [_Move("adds") as move]:
            return replace(move, kind="multiplies")
        case "log", [_Move("multiplies") as move]:
            return replace(move, kind="adds")
        case "add" | "sub", [left, right] if left.kind == right.kind == "adds":
            return _joint("adds", left, right, 1 if function == "add" else -1)
        case "mul" | "div", [left, right] if all(m == _STILL or m.kind == "multiplies" for m in found):
            return _joint("multiplies", left, right, 1 if function == "mul" else -1)
    return None


def _joint(kind: str, left: _Move, right: _Move, sign: int) -> _Move:
    times = left.times + sign * right.times
    return _Move(kind, times, left.rows | right.rows) if times else _STILL
