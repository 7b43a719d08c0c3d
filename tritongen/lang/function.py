"""A row of the table of elementwise functions in `tritongen.lang.functions`.

A row has the name of the function in torch, the kinds of its arguments and result, its spelling in Triton and torch,
and its derivative. Tensors reach the `triton` expression in the dtype they were promoted to, half precision already
widened: float32 or float64, an integer's own dtype, or `tl.int1`. Functions that the expression calls without a module
are device functions of `templates/runtime/math.py` or `special.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arg:
    """An argument, required unless it has a default or is `optional`: then the default or None is passed."""

    name: str
    default: float | int | bool | None = None
    optional: bool = False

    @property
    def required(self) -> bool:
        return self.default is None and not self.optional


@dataclass(frozen=True, slots=True)
class Function:
    """One row. The spellings are Python expressions over the names of `args`."""

    name: str
    form: str  # "clamp(x, min, max)", with the defaults of arguments
    args: tuple[Arg, ...]
    # "any" | "number" | "integral" (ints and bool) | "float" (ints are promoted to float)
    # | "bool" (a number counts as x != 0) | "where" (a bool, then two of any that are promoted)
    accepts: str
    result: str  # "promote" | "float" | "bool"
    triton: str
    torch: str
    triton_int: str = ""  # the spelling for integers if it differs from `triton`
    triton_bool: str = ""  # the spelling for bools if it differs from integers
    # (argument, its gradient in the spec language over the arguments, the result `y` and the
    # result's gradient `g`); "0.0" where the function is flat
    derivative: tuple[tuple[str, str], ...] = ()
    summary: str = ""

    def spelling(self, kind: str) -> str:
        """The Triton expression for arguments of a kind: "float", "int" or "bool"."""
        if kind == "float":
            return self.triton
        integer = self.triton_int or self.triton
        return self.triton_bool or integer if kind == "bool" else integer


_RESULTS = {"any": "promote", "number": "promote", "integral": "promote", "where": "promote"}


def _arg(text: str) -> Arg:
    name, _, default = text.partition("=")
    if not default:
        return Arg(name)
    return Arg(name, ast.literal_eval(default), optional=default == "None")


def row(
    form: str,
    summary: str,
    triton: str = "",
    *,
    accepts: str = "float",
    result: str = "",
    torch: str = "",
    triton_int: str = "",
    triton_bool: str = "",
    **derivative: str,
) -> Function:
    """A row: its `form` as "clamp(x, min=0.0)", each derivative as a keyword named after its argument. `triton`
    and `torch` default to a call of the function by its name.
    """
    name, arguments = _name_and_args(form)
    call = _call(name, arguments)
    return Function(
        name,
        form,
        arguments,
        accepts,
        result or _RESULTS.get(accepts, accepts),
        triton or call,
        torch or f"torch.{call}",
        triton_int,
        triton_bool,
        tuple(derivative.items()),
        summary,
    )


def activation(form: str, summary: str, triton: str = "", torch: str = "", **more: str) -> Function:
    return row(form, summary, triton, torch=torch or f"torch.nn.functional.{_call(*_name_and_args(form))}", **more)


def _name_and_args(form: str) -> tuple[str, tuple[Arg, ...]]:
    name, _, args = form.removesuffix(")").partition("(")
    return name, tuple(map(_arg, args.split(", ")))


def _call(name: str, args: Iterable[Arg]) -> str:
    return f"{name}({', '.join(one.name for one in args)})"
