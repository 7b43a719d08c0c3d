"""How the TMA kernel copies blocks of matrices, where an iteration does more than copy a block of each."""

from __future__ import annotations

from ...lang.ir import Load, Op
from ...lowering.choices import Choices
from ...nest.ir import Branch, Let, Line, Nest
from ...nest.values import Expr, V, runtime
from ...passes.contractions import Contraction
from .operands import Operands

HALVES = "_first", "_second"  # suffixes of the names of a tile's halves
ALTERNATED = {"left": "LEFT_INNER_LAST", "right": "RIGHT_INNER_LAST"}  # the operands of the matmul whose turn it is


def copied(name: str, side: int, flag: str, batched: bool, half: str = "", matrix: Expr = V.matrix) -> Line:
    """The line that copies a block of a side, or half of its columns, of a `matrix` of a batch."""
    at = (V.first_row, V.first_col + V.BLOCK_N // 2 if half == HALVES[1] else V.first_col)[side]
    load = runtime.load_block(f"{name}_desc", at, V.start, flag, *([matrix] if batched else []))
    return Let(f"{name}{half}", load.T if side else load)


def alternate(op: Op, contraction: Contraction, operands: Operands) -> bool:
    """Whether matmuls that share an accumulator alternate, an iteration each, whatever the params are.

    Two in one iteration would wait for each other: tensor cores add to an accumulator one matmul at a time.
    """
    one_sum = len(contraction.sums) == 1 < len(contraction.products)
    batched = {"batch" in contraction.roles(operand.tensor.type.axes) for operand in operands.matrices}
    plain = contraction.is_plain and not operands.converts
    return one_sum and plain and len(batched) == 1 and not any(map(Choices(op).of, contraction.names))


def alternation(contraction: Contraction) -> list[Line]:
    """The lines that choose the matmul whose turn it is in an iteration, and where its block starts."""
    chosen: Nest = ()
    for n, product in reversed([*enumerate(contraction.products, 1)]):
        loads = [(name, side) for name, side in zip(ALTERNATED, product.sides, strict=True) if isinstance(side, Load)]
        lines = tuple(Let(f"{name}_desc", V[f"{side.name}_desc"]) for name, side in loads)
        end = n * V.n_steps if n > 1 else V.n_steps
        chosen = (Branch(V.step < end, lines, chosen),) if chosen else lines
    return [*chosen, Let("start", V.step % V.n_steps * V.BLOCK_K)]
