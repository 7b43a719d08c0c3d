"""Addresses that kernels read and write, and their loads, for all families."""

from __future__ import annotations

from dataclasses import dataclass

from ..spec.types import Input
from .ir import Branch, Let, Line
from .values import Expr, Term, V, expr, runtime, tl, total


@dataclass(frozen=True, slots=True)
class Address:
    """A pointer, and the offsets from it: positions times strides."""

    pointer: Term
    offsets: tuple[Term, ...] = ()

    def moved(self, *offsets: Term) -> Address:
        return Address(self.pointer, (*self.offsets, *offsets))

    @property
    def value(self) -> Expr:
        return total(expr(self.pointer), *self.offsets)

    def __str__(self) -> str:
        return self.value.text


@dataclass(frozen=True, slots=True)
class Access:
    """A load under `mask`, with `other` elsewhere, cast to each dtype of `to`, one after the other; "bool" compares
    with 0. `by` is the runtime's function that loads, which determines the cache policy.
    """

    address: Address
    mask: Expr | None = None
    other: Expr | float | None = None
    to: tuple[str, ...] = ()
    by: str = ""

    @property
    def value(self) -> Expr:
        at = self.address.value
        if self.by:
            read = runtime[self.by](at, self.mask, self.other)
        else:
            words = {"mask": self.mask, "other": self.other} if self.mask is not None else {}
            read = tl.load(at, **{word: given for word, given in words.items() if given is not None})
        return as_dtype(read, self.to)

    def __str__(self) -> str:
        return self.value.text

    def instead(self, otherwise: Term) -> Expr | None:
        """The call of `load_or`, which gives `otherwise` where the pointer is None; None if `load_or` cannot do this
        load.
        """
        pointer, offsets = expr(self.address.pointer), [*map(expr, self.address.offsets)]
        is_plain = not self.by and bool(offsets) and pointer.text.endswith("_ptr")
        is_masked = self.mask is not None and self.other == 0
        if not (is_plain and is_masked and len(self.to) == 1 and self.to != ("bool",)):
            return None
        return runtime.load_or(pointer, total(*offsets), self.mask, otherwise, *self.to)


def as_dtype(value: Expr, to: tuple[str, ...]) -> Expr:
    return value.differs(0) if to == ("bool",) else value.to(*to)


def if_given(tensor: Input, name: str, value: Access, otherwise: Term) -> list[Line]:
    """The lines that assign a name the loaded value of an optional input, or `otherwise` if it is absent."""
    if otherwise is tensor.default and (call := value.instead(otherwise)):
        return [Let(name, call)]
    return [Let(name, expr(otherwise)), Branch(V[f"{tensor.name}_ptr"].is_given, (Let(name, value.value),))]
