"""The operands of a contraction: its matrices, the dtype of the matmul, and how tiles may be read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain

from ...lang.ir import Dtype, Load, Node, Op, Value, walk
from ...lang.promotion import promote
from ...lowering.choices import Choices
from ...lowering.tile import needed
from ...passes.contractions import Contraction
from ...passes.factors import SHORTEST, dtypes_of, multiplied, not_as_floats
from ...passes.structure import references
from ...spec.types import FLOAT8S, FLOATS, Input, have_same_dtype

BYTES = ("bool", "uint8", "int8", "int16")  # integers of fewer bits than tensor cores of float64 take


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix read in blocks of the inner axes; `side` is 0 for the left and 1 for the right."""

    tensor: Input
    side: int

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def flag(self) -> str:
        """The kernel's name for whether the inner axes come last in memory."""
        return f"{self.name.upper()}_INNER_LAST"


@dataclass(frozen=True, slots=True)
class Joined:
    """Two right matrices of one left matrix: one descriptor copies tiles of both, for a single matmul."""

    first: Operand
    second: Operand
    sums: tuple[str, str]

    @property
    def name(self) -> str:
        return f"{self.first.name}_{self.second.name}"

    @property
    def sum(self) -> str:
        return "_".join(self.sums)

    @property
    def flag(self) -> str:
        """The kernel's name for whether the first comes first in memory."""
        return f"{self.first.name.upper()}_FIRST"


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of all operands of a contraction."""

    matrices: tuple[Operand, ...]
    inside: tuple[str, ...]  # all inputs that sides read
    dot: Dtype  # of the matmul
    converts: bool  # whether matrices are converted to it
    dtypes: frozenset[str]  # the names that it may have
    float8: bool  # whether the matmul takes float8
    widened: tuple[str, ...]  # inputs that the wrapper widens for a float64 matmul, to its dtype
    widened_integers: tuple[str, ...]  # inputs that it widens to int32: bools, and compared or counted integers
    group_size: str  # the length of inner-axis groups with scales of their own; "" where there are none
    joined: Joined | None

    @property
    def multiplies_bytes(self) -> bool:
        return self.dtypes <= {"int8", *FLOAT8S}

    @property
    def by_side(self) -> list[Operand]:
        return sorted(self.matrices, key=lambda operand: operand.side)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(operand.name for operand in self.matrices)


def operands_of(op: Op, contraction: Contraction) -> Operands:
    sides = [(side, n) for product in contraction.products for n, side in enumerate(product.sides)]
    dot = multiplied(op, promote(*contraction.products[0].sides))
    names = {(name, n): None for side, n in sides for name in tensors_of(op, side)}
    matrices = tuple(Operand(op.input(name), n) for name, n in names if _is_matrix(op, contraction, name, n))
    inside = tuple(dict.fromkeys(name for name, _ in names))
    one_kind = have_same_dtype([one.tensor.type for one in matrices])
    dtypes = {*chain.from_iterable(operand.tensor.type.dtypes for operand in matrices)}
    float8 = contraction.is_plain and dtypes <= set(FLOAT8S)
    converts = not (contraction.is_plain and (one_kind or float8))
    known = frozenset(dtypes if float8 else chain.from_iterable(dtypes_of(op, name) for name in dot.of))
    return Operands(
        matrices,
        inside,
        dot,
        converts,
        known,
        float8,
        *(_widened(op, contraction, inside) if converts and "float64" in known else ((), ())),
        _group_size(op, contraction),
        None if converts or float8 else _joined(op, contraction),
    )


def tensors_of(op: Op, node: Node) -> list[str]:
    """The inputs that a side reads, through the lines that it refers to."""
    values = needed(op.values, references(node))
    found = [n.name for v in [*values, Value("", node, "")] for n in walk(v.node) if isinstance(n, Load)]
    return list(dict.fromkeys(found))


def is_described(op: Op, contraction: Contraction, operands: Operands) -> bool:
    """Whether the TMA kernel is an option: of half precision or bytes, and where groups are full blocks.

    Never with so few rows or columns, of fixed lengths, that the rule for launches takes the strided kernel, and never
    of bools, which have one bit to Triton, while TMA copies bytes. Tiles of float64 results do not fit in shared memory
    beside the operands; of two matmuls with groups, Triton 3.6 made a row NaN.
    """
    floats = [known for name in operands.dot.of if (known := set(dtypes_of(op, name))) & set(FLOATS)]
    narrow = operands.multiplies_bytes or (floats and all(known & {"float16", "bfloat16"} for known in floats))
    wide = any(result.dtype.of == ("float64",) for result in op.results)
    size = operands.group_size
    grouped = bool(size) and (len(contraction.products) > 1 or (size.isdigit() and int(size) % SHORTEST > 0))
    sizes = dict(op.sizes)
    lengths = [[sizes.get(axis, math.inf) for axis in axes] for axes in (contraction.rows, contraction.cols)]
    few = any(math.prod(found) <= 128 for found in lengths)
    bools = any("bool" in operand.tensor.type.dtypes for operand in operands.matrices)
    return bool(narrow) and not wide and not grouped and not few and not bools


def _widened(op: Op, contraction: Contraction, inside: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The narrower inputs of operands of a float64 matmul that are widened to float64, and those to int32.

    Triton 3.6 derives the layout of an operand from the narrowest load that it is computed from, and tensor cores take
    float64 in its own layout only. All floats are widened if dtypes may differ; int32 is as wide as loads have to be.
    """
    tensors = [op.input(name) for name in inside]
    integers = not_as_floats(op, contraction.factors)
    ints = [one for one in tensors if one.type.dtypes == ("bool",) or one.name in integers]
    narrow = [one for one in ints if len(one.type.dtypes) == 1 and one.type.dtypes[0] in BYTES]
    others = [one for one in tensors if one not in ints]
    differ = len({one.type.variable or one for one in tensors}) > 1
    floats = [one.name for one in others if differ and one.type.dtypes != ("float64",) and one.default is None]
    return tuple(floats), tuple(one.name for one in narrow)


def _is_matrix(op: Op, contraction: Contraction, name: str, side: int) -> bool:
    """Whether an input has all inner axes and axes of its side, and no axis without a role, such as one that is indexed
    by a gather.
    """
    axes = op.input(name).type.axes
    if not {*axes} <= {axis for role in ("batch", "rows", "cols", "inner") for axis in contraction.axes(role)}:
        return False
    lacks = contraction.lacking("inner", axes)
    return {"inner", ("rows", "cols")[side]} <= set(contraction.roles(axes)) and not lacks


def _group_size(op: Op, contraction: Contraction) -> str:
    """The length of groups with scales of their own: a literal, or its name in kernels and wrappers; else ""."""
    if not contraction.groups:
        return ""
    sizes = [dict(op.sizes).get(axis, 0) for axis in contraction.within]
    return str(math.prod(sizes)) if all(sizes) else "group_size"


def _joined(op: Op, contraction: Contraction) -> Joined | None:
    """The two right matrices of one left matrix, in memory order, if both exist for all params; else None."""
    if len(contraction.products) != 2 or contraction.groups or contraction.batch:
        return None
    if any(map(Choices(op).of, contraction.names)):
        return None
    one, other = contraction.products
    rights = [side for side in (one.right, other.right) if isinstance(side, Load)]
    if one.left != other.left or one.sum == other.sum or len({side.name for side in rights}) < 2:
        return None
    first, second = (Operand(op.input(side.name), 1) for side in rights)
    if any(contraction.roles(each.tensor.type.axes) != ("cols", "inner") for each in (first, second)):
        return None
    return Joined(first, second, (one.name, other.name))
