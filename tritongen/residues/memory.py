"""The elements of tensors, kept in addition to the floats in torch's storages, and torch's operators on them.

A storage is embedded when a tensor of it is first used. From then on its floats mean nothing: operators of torch are
computed on the elements instead, or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from . import field
from .field import Elements

# Operators of torch whose results do not depend on the values of tensors.
BY_SHAPE = frozenset(
    "empty_like new_empty new_empty_strided zeros_like ones_like full_like new_zeros new_ones new_full "
    "rand_like randn_like set_ is_same_size _unsafe_view".split()
)


class HostMath(Exception):
    """An operator of torch that has no meaning over elements."""


class Memory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Elements by storage, and a dispatch mode of torch that keeps them up to date."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.known: dict[tuple[int, int], tuple[Any, Elements]] = {}

        self.joined: list[Elements] = []  # arrays of several tensors that one descriptor describes
        self.compared = 0  # number of compared tensors
        self.words: dict[int, torch.dtype] = {}  # dtypes of float storages that are viewed as integers to copy them

    def _key(self, tensor: torch.Tensor) -> tuple[int, int]:
        return tensor.untyped_storage().data_ptr(), tensor.itemsize

    def has(self, tensor: Any) -> bool:
        return isinstance(tensor, torch.Tensor) and self.is_float(tensor) and self._key(tensor) in self.known

    def is_float(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor holds floats, or views their bits as integers."""
        return tensor.is_floating_point() or tensor.untyped_storage().data_ptr() in self.words

    def storage(self, tensor: torch.Tensor) -> Elements:
        key = self._key(tensor)
        if key not in self.known:
            with torch._C._DisableTorchDispatch():
                storage = tensor.untyped_storage()
                size = storage.nbytes() // tensor.itemsize
                dtype = tensor.dtype if tensor.is_floating_point() else self.words[key[0]]
                flat = torch.empty(0, dtype=dtype).set_(storage, 0, (size,), (1,))
                self.known[key] = storage, field.embed(flat.float().numpy())
        return self.known[key][1]

    def address(self, tensor: torch.Tensor) -> tuple[int, int]:
        """The address of a tensor's first element in its elements' storage, and the bytes per element."""
        return self.storage(tensor).ctypes.data + 8 * int(tensor.storage_offset()), 8

    def is_inside(self, tensor: torch.Tensor, step: int) -> bool:
        """Whether the element `step` elements after a tensor's first is in its storage."""
        return 0 <= tensor.storage_offset() + step < max(1, len(self.storage(tensor)))

    def at(self, tensor: torch.Tensor, step: int, shape: Sequence[int], strides: Sequence[int]) -> Elements:
        """A view of the elements from `step` after a tensor's first on, in whichever storage has that address."""
        address = tensor.data_ptr() + step * tensor.itemsize
        for (start, itemsize), (_, flat) in self.known.items():
            first, rest = divmod(address - start, tensor.itemsize)
            if itemsize == tensor.itemsize and 0 <= first < len(flat) and not rest:
                return np.lib.stride_tricks.as_strided(flat[first:], tuple(shape), [8 * one for one in strides])
        raise HostMath("an address of no tensor")

    def of(self, tensor: torch.Tensor) -> Elements:
        """The elements of a tensor as a writable view."""
        steps = [8 * step for step in tensor.stride()]
        flat = self.storage(tensor)[tensor.storage_offset() :]
        return np.lib.stride_tricks.as_strided(flat, tuple(tensor.shape), steps)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [one for one in tree_leaves((args, kwargs)) if self.has(one)]
        name = func._schema.name.partition("::")[2]
        if func is torch.ops.aten.view.dtype and args[0].is_floating_point() and not args[1].is_floating_point:
            if args[0].itemsize != args[1].itemsize:
                raise HostMath(f"torch's view as {args[1]}")
            self.words[args[0].untyped_storage().data_ptr()] = args[0].dtype
        if not tensors or name in BY_SHAPE or self._is_view(func):
            return func(*args, **kwargs)
        handled = HANDLED.get(name.rstrip("_"))  # in place, too
        if handled is None:
            raise HostMath(f"torch's {name}")
        result = func(*args, **kwargs)
        if not self.is_float(result):
            raise HostMath(f"torch's {name} to {result.dtype}")
        given = [self._elements(one) for one in args]
        self.of(result)[...] = handled(*given, **{key: value for key, value in kwargs.items() if key != "out"})
        return result

    def _is_view(self, func: Any) -> bool:
        results = func._schema.returns
        return bool(results) and all(one.alias_info is not None and not one.alias_info.is_write for one in results)

    def _elements(self, given: Any) -> Any:
        if isinstance(given, torch.Tensor):
            return self.of(given).copy() if self.is_float(given) else field.embed(given.numpy())
        return [*map(self._elements, given)] if isinstance(given, list) else given


def _number(given: Any) -> Elements:
    return given if isinstance(given, np.ndarray) else field.embed(given)


def _sum(x: Elements, dim: Iterable[int] = (), keepdim: bool = False, **_: Any) -> Elements:
    axes = tuple(dim) or tuple(range(x.ndim))
    return field.total(x, axes, keepdim)


HANDLED: Mapping[str, Callable[..., Any]] = {
    "clone": lambda x, **_: x,
    "_to_copy": lambda x, **_: x,
    "copy": lambda _, other, *__: other,
    "fill": lambda _, value: _number(value),
    "zero": lambda _: field.embed(0),
    "add": lambda x, y, alpha=1: field.add(x, field.mul(field.embed(alpha), _number(y))),
    "sub": lambda x, y: field.sub(x, _number(y)),
    "mul": lambda x, y: field.mul(x, _number(y)),
    "div": lambda x, y: field.div(x, _number(y)),
    "neg": field.neg,
    "sum": _sum,
    "stack": lambda tensors, dim=0: np.stack(tensors, dim),
    "cat": lambda tensors, dim=0: np.concatenate(tensors, dim),
}
