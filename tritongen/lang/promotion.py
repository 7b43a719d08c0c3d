"""The dtype of an expression, by torch's rules, as far as it is known before the tensors are."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

from ..spec.types import BOOLS, FLOAT8S, FLOATS, INTS
from .ir import INT64, Constant, Dtype, Kind, Node, Op

_RANK: dict[Kind, int] = {"bool": 0, "int": 1, "any": 2, "float": 3}


def kind_of(dtypes: Iterable[str]) -> Kind:
    names = set(dtypes)
    if names <= {*FLOATS, *FLOAT8S}:
        return "float"
    if names <= set(INTS):
        return "int"
    return "bool" if names <= set(BOOLS) else "any"


def promote(*nodes: Node) -> Dtype:
    """torch's promotion: tensors without axes give way to those with axes, and constants to both, unless they are of a
    higher kind.
    """
    dtypes = [node.dtype for node in nodes]
    tensors = [dtype for dtype in dtypes if not dtype.weak]
    strong = _with_axes(nodes) or tensors or dtypes
    found = _of_tensors(strong, [dtype for dtype in tensors if dtype not in strong])
    return _with_number(found, _highest(dtype for dtype in dtypes if dtype.weak)) if found.of else found


def _highest(dtypes: Iterable[Dtype]) -> Kind:
    return max((dtype.kind for dtype in dtypes), key=_RANK.__getitem__, default="bool")


def _of_tensors(strong: list[Dtype], others: list[Dtype]) -> Dtype:
    """The dtype of those that decide, and of others where all that decide may be absent."""
    kind = _highest(strong)
    # Only floats decide which float it is; where all of them may be absent, others without axes do.
    floats = [dtype for dtype in strong if kind != "float" or dtype.kind in ("float", "any")]
    optional = all(dtype.optional for dtype in floats)
    others = others if optional else []
    of = tuple(dict.fromkeys(chain.from_iterable(dtype.of for dtype in (floats if optional else strong))))
    absent = dict.fromkeys(chain.from_iterable(dtype.leaves for dtype in [*others, *floats] if optional))
    rules = {dtype.rule for dtype in strong}
    rule = next((rule for rule in ("sum", "int") if rule in rules), "")
    if kind == "float" and any(d.kind != "float" or d.rule == "float" for d in [*strong, *others]):
        rule = "float"
    return Dtype(kind, of, rule, tuple(leaf for leaf in absent if leaf not in of), optional)  # type: ignore[arg-type]


def _with_number(dtype: Dtype, number: Kind) -> Dtype:
    """The dtype of what tensors of a dtype and a number give."""
    match dtype.kind, number:
        case "bool" | "int" | "any", "float":
            return as_float(dtype)
        case "bool", "int":
            return INT64
        case "any", "int" if not dtype.rule:
            return replace(dtype, rule="int")  # It may be a boolean.
    return dtype


def summed(dtype: Dtype) -> Dtype:
    """The dtype of a sum: int64 of integers and booleans."""
    if dtype.kind in ("int", "bool"):
        return INT64
    return replace(dtype, rule="sum") if dtype.kind == "any" else dtype


def _with_axes(nodes: Iterable[Node]) -> list[Dtype]:
    """The dtypes of the tensors with axes, where those without surely are of no higher kind; else none.

    Those whose integers a sum or a number widens count where all others may be absent.
    """
    tensors = [node for node in nodes if not node.dtype.weak]
    wide = [node.dtype for node in tensors if node.axes]
    lowest = max((0 if dtype.kind == "any" else _RANK[dtype.kind] for dtype in wide), default=-1)
    highest = max((_RANK["float" if node.dtype.kind == "any" else node.dtype.kind] for node in tensors), default=0)
    optional = all(dtype.optional for dtype in wide)
    widened = any(node.dtype.rule in ("sum", "int") for node in tensors if not node.axes)
    return wide if highest <= lowest and not (optional and widened) else []


def is_float8(op: Op, dtype: Dtype) -> bool:
    """Whether a result's dtype is a float8."""
    known = {tensor.name: tensor.type.dtypes for tensor in op.inputs}
    return bool(dtype.of) and all(set(known.get(leaf, (leaf,))) <= set(FLOAT8S) for leaf in dtype.of)


def as_float(dtype: Dtype) -> Dtype:
    """What torch's float functions make of an argument: integers become the default float."""
    return dtype if dtype.kind == "float" else replace(dtype, kind="float", rule="float")


def constant(value: float | int | bool) -> Constant:
    kind: Kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float"
    return Constant(value, Dtype(kind))


def fold_constants(name: str, args: list[Node]) -> Constant | None:
    """Constant folding: arithmetic and functions of constants alone, in Python's numbers as the spec wrote them.

    Raises `ArithmeticError` with what is wrong where there is no such number.
    """
    values = [arg.value for arg in args if isinstance(arg, Constant)]
    constants = [value for value in values if isinstance(value, int | float)]
    if name not in ARITHMETIC or len(constants) < len(args):
        return None
    try:
        result = ARITHMETIC[name](*constants)
    except ZeroDivisionError:
        raise ArithmeticError("it divides by zero") from None
    except OverflowError:
        raise ArithmeticError("it is too large for a float") from None
    except ValueError:
        raise ArithmeticError(f"{name} has no value there") from None
    if not isinstance(result, int | float):
        raise ArithmeticError("it is no real number")
    return constant(in_range(result))


def in_range(number: float | int) -> float | int:
    """The number. Raises `ArithmeticError` for an integer that int64 cannot hold."""
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        raise ArithmeticError("it does not fit in 64 bits; a float would, as in 1e30")
    return number


def _power(base: float | int, exponent: float | int) -> object:
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 63 and abs(base) > 1:
        in_range(2**64)
    try:
        return base**exponent
    except OverflowError:
        return float("inf")


def _largest(choose: Callable[..., float | int]) -> Callable[..., object]:
    """The larger or smaller of two constants, NaN if either is, and a float if either is."""

    def chosen(x: float | int, other: float | int) -> float | int:
        if isinstance(x, float) or isinstance(other, float):
            x, other = float(x), float(other)
        return x if x != x else other if other != other else choose(x, other)

    return chosen


_OF_ONE = ("sqrt", "exp", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "erf")
ARITHMETIC: dict[str, Callable[..., Any]] = {
    **{name: getattr(math, name) for name in _OF_ONE},
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "maximum": _largest(max),
    "minimum": _largest(min),
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "pow": _power,
    "neg": operator.neg,
}
