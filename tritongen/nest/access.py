"""Where elements are that kernels read and write, and how they are read: of all kernels, whatever they go along."""

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
    """A load, where a mask holds, which gives `other` elsewhere, then in the dtypes `to`, one after the other; "bool"
    asks whether it is not 0. `by` is the function that loads, which tells how it is cached.
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
        """The call that gives a number instead where the pointer is None; None where the runtime's function does not
        read like this.
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
    """What gives a name what is read of an optional input, or the number that stands for it."""
    if otherwise is tensor.default and (call := value.instead(otherwise)):
        return [Let(name, call)]
    return [Let(name, expr(otherwise)), Branch(V[f"{tensor.name}_ptr"].is_given, (Let(name, value.value),))]
