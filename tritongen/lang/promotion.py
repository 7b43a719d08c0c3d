"""The dtype of an expression by torch's rules, as far as it is known before the operator is called."""

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
    """torch's promotion: tensors with axes take precedence over tensors without, and both over constants, unless these
    are of a higher kind.
    """
    dtypes = [node.dtype for node in nodes]
    tensors = [dtype for dtype in dtypes if not dtype.weak]
    strong = _with_axes(nodes) or tensors or dtypes
    found = _of_tensors(strong, [dtype for dtype in tensors if dtype not in strong])
    return _with_number(found, _highest(dtype for dtype in dtypes if dtype.weak)) if found.of else found


def _highest(dtypes: Iterable[Dtype]) -> Kind:
    return max((dtype.kind for dtype in dtypes), key=_RANK.__getitem__, default="bool")


def _of_tensors(strong: list[Dtype], others: list[Dtype]) -> Dtype:
    """The promotion of the dtypes that decide, and also of `others` if all that decide may be absent."""
    kind = _highest(strong)
    # Only floats decide which float it is, or tensors without axes if all of these may be absent.
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
    """The promotion of tensors of `dtype` with a Python scalar of kind `number`."""
    match dtype.kind, number:
        case "bool" | "int" | "any", "float":
            return as_float(dtype)
        case "bool", "int":
            return INT64
        case "any", "int" if not dtype.rule:
            return replace(dtype, rule="int")  # It may be a boolean.
    return dtype


def summed(dtype: Dtype) -> Dtype:
    """The dtype of a sum: int64 for integers and booleans."""
    if dtype.kind in ("int", "bool"):
        return INT64
    return replace(dtype, rule="sum") if dtype.kind == "any" else dtype


def _with_axes(nodes: Iterable[Node]) -> list[Dtype]:
    """The dtypes of the tensors with axes; [] if a tensor may be of a higher kind than these are known to be.

    Also [] if all of these may be absent, and a sum or a constant widens the integers of a tensor without axes.
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
    """The dtype after a float function of torch: integers become the default float."""
    return dtype if dtype.kind == "float" else replace(dtype, kind="float", rule="float")


def constant(value: float | int | bool) -> Constant:
    kind: Kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float"
    return Constant(value, Dtype(kind))


def fold_constants(name: str, args: list[Node]) -> Constant | None:
    """Constant folding in Python's arithmetic; None if an argument is no constant, or `ARITHMETIC` lacks the function.

    Raises `ArithmeticError`, with the reason, if the result is undefined or out of range.
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
    """Return `number`. Raises `ArithmeticError` for an integer that int64 cannot hold."""
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
    """The larger or smaller of two constants: NaN if either is NaN, a float if either is a float."""

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
