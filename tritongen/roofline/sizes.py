"""The lengths and dtypes for which costs are computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..diagnostics.report import BadOption, did_you_mean
from ..lang.formulas import typical_lengths
from ..lang.ir import Dtype, Op
from ..spec.lengths import LENGTH
from ..spec.types import FLOAT8S, FLOATS, INTS
from ..testing.benchmarks import chosen_dtypes, dtype_of, preferred

LONGEST = 1 << 40
ITEMSIZES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}


class BadSizes(BadOption):
    """Lengths that cannot be parsed or used."""

    option = "--sizes"


def parsed(text: str) -> dict[str, int]:
    """`M=4096,N=11008` as lengths by axis. Raises `BadSizes`."""
    found: dict[str, int] = {}
    for entry in text.split(",") if text else []:
        axis, equals, length = (each.strip() for each in entry.partition("="))
        if not axis or not equals:
            raise BadSizes(f"{entry.strip()!r} is no AXIS=LENGTH")
        if not length.isdecimal() or not length.isascii() or not 1 <= int(length) <= LONGEST:
            raise BadSizes(f"{axis} cannot be {length!r}; a length is a number from 1 to {LONGEST:,}")
        if axis in found:
            raise BadSizes(f"{axis} is given twice")
        found[axis] = int(length)
    return found


def require_axes(lengths: Iterable[Mapping[str, int]], given: Mapping[str, int]) -> None:
    """Raise `BadSizes` if no operator has an axis of `given`, or a spec fixes it at another length."""
    known: dict[str, set[int]] = {}
    for axis, length in (item for one in lengths for item in one.items()):
        known.setdefault(axis, set()).add(length)
    for axis, length in given.items():
        if axis not in known:
            hint = did_you_mean(axis, known, f"there are {', '.join(known)}")
            raise BadSizes(f"there is no axis {axis!r}; {hint}")
        if fixed := known[axis] - {length}:
            raise BadSizes(f"{axis} is {min(fixed)} by its spec")


def lengths_of(op: Op, given: Mapping[str, int], usual: Mapping[str, int]) -> dict[str, int]:
    """The length of each axis: fixed by the spec, given, from [bench], `usual` in its family's benchmarks, or 4,096."""
    typical = {**usual, **dict(op.typical)}
    found = {axis: given.get(axis, typical.get(axis, LENGTH)) for axis in op.axes} | dict(op.sizes)
    return found | {axis: given.get(axis, length) for axis, length in typical_lengths(op, found).items()}


def dtypes_of(op: Op) -> dict[str, str]:
    """The dtype of each input, as benchmarks choose it."""
    chosen = chosen_dtypes(op)
    dtypes = {tensor.name: dtype_of(tensor, op) for tensor in op.inputs}
    return {name: preferred(chosen) if text == "dtype" else text.partition(".")[2] for name, text in dtypes.items()}


def resolved(dtype: Dtype, known: Mapping[str, str]) -> str:
    """The name of a dtype, if the tensors have the `known` dtypes."""
    names = [known.get(leaf, leaf) for leaf in dtype.of if leaf]
    floats = [name for name in names if name in (*FLOATS, *FLOAT8S)]
    if dtype.rule == "compute":
        return "float64" if "float64" in known.values() else "float32"
    if dtype.kind in ("float", "any") and floats:
        halves = {"float16", "bfloat16"} <= set(floats)
        return "float32" if halves and "float64" not in floats else max(floats, key=itemsize)
    if dtype.kind == "float":
        return "float32"
    integers = [name for name in names if name in INTS]
    if dtype.kind == "bool" or not integers:
        return "int64" if dtype.rule in ("sum", "int") or dtype.kind == "int" else "bool"
    return "int64" if dtype.rule == "sum" else max(integers, key=itemsize)


def itemsize(dtype: str) -> int:
    return ITEMSIZES.get(dtype, 1)
