"""Where elements are that kernels read and write, and how they are read: of all kernels, whatever they go along."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Address:
    """A pointer, and the offsets from it: positions times strides."""

    pointer: str
    offsets: tuple[str, ...] = ()

    def moved(self, *offsets: str) -> Address:
        return Address(self.pointer, (*self.offsets, *offsets))

    def __str__(self) -> str:
        return " + ".join((self.pointer, *self.offsets))


@dataclass(frozen=True, slots=True)
class Access:
    """A load, where a mask holds, which gives `other` elsewhere; `to` converts what it gives. `by` is the function that
    loads, which tells how it is cached.
    """

    address: Address
    mask: str = ""
    other: str = ""
    to: str = ""
    by: str = "tl.load"

    def __str__(self) -> str:
        if self.by != "tl.load":
            return f"{self.by}({self.address}, {self.mask}, {self.other}){self.to}"
        arguments = [str(self.address)]
        arguments += [f"mask={self.mask}"] if self.mask else []
        arguments += [f"other={self.other}"] if self.mask and self.other else []
        return f"tl.load({', '.join(arguments)}){self.to}"

    def instead(self, otherwise: str) -> str:
        """The call that gives a number instead where the pointer is None; "" where the runtime's function does not read
        like this.
        """
        dtype = self.to.removeprefix(".to(").removesuffix(")")
        is_cast = self.to == f".to({dtype})" and not {*"()"} & {*dtype}
        is_plain = self.by == "tl.load" and bool(self.address.offsets) and self.address.pointer.endswith("_ptr")
        is_masked = bool(self.mask) and "," not in self.mask and self.other in ("0", "0.0")
        if not (is_cast and is_plain and is_masked):
            return ""
        offsets = " + ".join(self.address.offsets)
        return f"load_or({self.address.pointer}, {offsets}, {self.mask}, {otherwise}, {dtype})"
