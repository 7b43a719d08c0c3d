"""Constants of a spec that are invalid in operations with integers, whatever the tensors hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .functions import FUNCTIONS
from .integers import bounds_of_dtypes
from .ir import Constant, Dtype, Node
from .promotion import promote
from .syntax import symbol

if TYPE_CHECKING:
    from .expressions import Expressions

# Functions that return one of these arguments unchanged; in others a constant wraps around, as in torch.
_CHOOSING = {"where": (1, 2), "clamp": (1, 2), "maximum": (0, 1), "minimum": (0, 1), "fmax": (0, 1), "fmin": (0, 1)}


def check_constants(typer: Expressions, name: str, args: list[Node], tree: ast.AST) -> None:
    """Record the first constant that does not fit the integers that it meets, and raise `Abandoned`."""
    number = args[-1].value if isinstance(args[-1], Constant) else None
    if isinstance(number, int) and args[0].dtype.kind == "int":
        if number == 0 and name in ("floor_divide", "remainder", "fmod"):
            raise typer.fail("TG208", f"`{symbol(tree) or name}` divides integers by zero", tree)
        if number < 0 and name in ("bitwise_left_shift", "bitwise_right_shift"):
            raise typer.fail("TG208", f"`{symbol(tree) or name}` shifts by less than nothing", tree)
    chosen = {place: args[place] for place in _CHOOSING.get(name, ()) if place < len(args)}
    dtypes = _dtypes(typer, promote(*chosen.values(), *args[:1] if name == "clamp" else ())) if chosen else ()
    for place, low, high in _outside(chosen, dtypes):
        message = f"{name} may give {place[1]}, and {' or '.join(dtypes)} holds {low} to {high}"
        hint = "torch refuses it, too: cast to a wider dtype first, as in cast(x, int32)"
        raise typer.fail("TG208", message, _argument(name, place[0], tree), hint)


def _outside(chosen: dict[int, Node], dtypes: tuple[str, ...]) -> Iterator[tuple[tuple[int, int], int, int]]:
    """Yield each constant outside the range of `dtypes` with its position, and the bounds of the range."""
    bounds = bounds_of_dtypes(dtypes) if dtypes else None
    if bounds is None:
        return
    low, high = bounds
    for place, node in chosen.items():
        number = node.value if isinstance(node, Constant) else None
        lowest = low or -high  # With unsigned integers a negative constant wraps around, as in torch.
        if isinstance(number, int) and not isinstance(number, bool) and not lowest <= number <= high:
            yield (place, number), low, high


def _dtypes(typer: Expressions, dtype: Dtype) -> tuple[str, ...]:
    """The dtypes that integer operands may have; () if they may be of another kind or promote to another dtype."""
    if dtype.kind != "int" or dtype.rule:
        return ()
    of = {typer.inputs[name].type.dtypes if name in typer.inputs else (name,) for name in dtype.leaves}
    return of.pop() if len(of) == 1 else ()


def _argument(name: str, place: int, tree: ast.AST) -> ast.AST:
    """The subtree of a call that is the argument at position `place`."""
    if not isinstance(tree, ast.Call):
        return tree
    if place < len(tree.args):
        return tree.args[place]
    wanted = FUNCTIONS[name].args[place].name
    return next((keyword.value for keyword in tree.keywords if keyword.arg == wanted), tree)
