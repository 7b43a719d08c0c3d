"""Where the arguments of a launch come from when a later call repeats it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch


class Sources:
    """Where the arguments of launches come from in another call: its tensors and params in order, and then the `rest`,
    which stays, but for what is `made` of these values in each call. No tensor of this call is kept.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.places = {name: place for place, name in enumerate(given)}
        self.rest: list[Any] = []
        self.made: list[tuple[int, Callable[[list[Any]], Any]]] = []
        self.known: dict[int, int] = {}

    def add(self, value: Any) -> int:
        self.rest.append(value)
        return len(self.places) + len(self.rest) - 1

    def make(self, arg: Any, make: Callable[[list[Any]], Any]) -> int:
        if id(arg) not in self.known:
            self.known[id(arg)] = self.add(None)
            self.made.append((self.known[id(arg)], make))
        return self.known[id(arg)]

    def find(self, name: str, arg: Any) -> int | None:
        """The place of an argument among the values of another call; None for a tensor of this call alone.

        What has the name of a tensor of the call is that tensor or a view, of which kernels get the same address. A
        tensor without a name is memory between kernels.
        """
        own = self.given.get(name)
        if not isinstance(arg, torch.Tensor):
            is_param = name in self.given and not isinstance(own, torch.Tensor)
            return self.places[name] if is_param else self.add(arg)
        if isinstance(own, torch.Tensor) and own.data_ptr() == arg.data_ptr():
            return self.places[name]
        for place, one in enumerate(self.given.values()):
            if one is arg:
                return place
        if isinstance(own, torch.Tensor):
            return None
        shape, dtype, device = arg.shape, arg.dtype, arg.device
        return self.make(arg, lambda _: torch.empty(shape, dtype=dtype, device=device))


class DescribedSources(Sources):
    """`Sources` that also remake copies from the tensors of another call, and find tensors behind descriptors."""

    def find(self, name: str, arg: Any) -> int | None:
        arg = tensor_of(arg)
        copied = copied_from(arg)
        if copied is None:
            return super().find(name, arg)
        own = self.given.get(name)
        if isinstance(own, torch.Tensor) and own.data_ptr() == copied.address:
            place, again = self.places[name], copied.again
            return self.make(arg, lambda values: again(values[place]))
        return super().find(name, arg) if name in self.given else None


def tensor_of(arg: Any) -> Any:
    """The tensor of a descriptor; any other argument unchanged."""
    return arg.base if is_descriptor(arg) else arg


def is_tensor(arg: Any) -> bool:
    """Whether an argument is a tensor, or a descriptor of one."""
    return isinstance(tensor_of(arg), torch.Tensor)


def is_descriptor(arg: Any) -> bool:
    """Whether an argument is a descriptor of a tensor, for Triton or for Gluon."""
    # torch.compile cannot trace hasattr of a number.
    return not isinstance(arg, (int, float)) and hasattr(arg, "block_shape")


class Copied(NamedTuple):
    """The origin of a copy: the address of its source, and how repeated calls copy theirs."""

    address: int
    again: Callable[[torch.Tensor], torch.Tensor]


def copied_from(arg: Any) -> Copied | None:
    """The origin of a tensor, if it is a copy."""
    found: Copied | None = getattr(arg, "copied_from", None)
    return found
