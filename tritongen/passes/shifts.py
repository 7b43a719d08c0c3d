"""Finds the maxima that only shift what a softmax and its like compute, and so have no gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..lang.ir import Call, Constant, Node, Op, Reduce, Ref, walk


@dataclass(frozen=True, slots=True)
class _Move:
    """What a value does as a maximum grows by t: `times` t is added to it, or exp(`times` t) multiplies it."""

    kind: str  # "adds" or "multiplies"
    times: float


_Moves = Mapping[str, _Move | None]
_STILL = _Move("adds", 0)


def only_shifts(op: Op, name: str, results: Sequence[str]) -> bool:
    """Whether some results stay the same when a maximum is another number, as in x - (log(sum(exp(x - m))) + m)."""
    node = op.value(name).node
    if not isinstance(node, Reduce) or node.kind not in ("max", "min"):
        return False
    moves = _moves(op, name)
    return all((move := moves[result]) is not None and move.times == 0 for result in results)


def falls_with(op: Op, name: str, node: Node) -> float | None:
    """By which power of exp(t) a node is multiplied as a maximum grows by t; None where it changes otherwise."""
    move = _moved(node, _moves(op, name))
    return None if move is None or (move.kind == "adds" and move.times) else move.times


def _moves(op: Op, name: str) -> dict[str, _Move | None]:
    """What each value does as a maximum grows."""
    moves: dict[str, _Move | None] = {}
    for value in op.values:
        moves[value.name] = _Move("adds", 1) if value.name == name else _moved(value.node, moves)
    return moves


def _moved(node: Node, moves: _Moves) -> _Move | None:
    """How a node moves; None where that is neither of the two ways."""
    if not any(isinstance(part, Ref) and moves[part.name] != _STILL for part in walk(node)):
        return _STILL
    match node:
        case Ref(name=name):
            return moves[name]
        case Call(function="where", args=(Call(function="isinf", args=(test,)), Constant(), other)) if test == other:
            return _moved(other, moves)  # Infinities are shifted by nothing.
        case Call(function=function, args=args):
            return _of_call(function, [_moved(arg, moves) for arg in args])
        case Reduce(kind=kind, arg=arg):
            move = _moved(arg, moves)
            fits = {"sum": "multiplies", "mean": "multiplies", "max": "adds", "min": "adds"}
            return move if move and move.kind == fits.get(kind) else None
    return None


def _of_call(function: str, args: Sequence[_Move | None]) -> _Move | None:
    found = [arg for arg in args if arg is not None]
    if len(found) < len(args):
        return None
    match function, found:
        case "exp", [_Move("adds", times)]:
            return _Move("multiplies", times)
        case "log", [_Move("multiplies", times)]:
            return _Move("adds", times)
        case "add" | "sub", [left, right] if left.kind == right.kind == "adds":
            return _Move("adds", left.times + (right.times if function == "add" else -right.times))
        case "mul" | "div", [left, right] if all(m == _STILL or m.kind == "multiplies" for m in found):
            return _Move("multiplies", left.times + (right.times if function == "mul" else -right.times))
    return None
