"""Gluon kernels without a GPU: their functions as they are emitted, with torch in the place of Gluon's language.

Triton has no interpreter for Gluon. Here the warp that loads runs first, into rings without an end, and then one warp
group after the other. What is computed and where it is stored is the kernel's; layouts, barriers and what a compiler
refuses are not looked at.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton.language as tl


class Tensor(torch.Tensor):
    """A tensor as kernels have it. None is changed in place."""

    @property
    def type(self) -> Any:
        return types.SimpleNamespace(layout=None)

    def to(self, dtype: torch.dtype, bitcast: bool = False) -> Any:  # type: ignore[override]
        return self.view(dtype) if bitcast else super().to(dtype)

    def split(self) -> Any:  # type: ignore[override]
        return self[..., 0], self[..., 1]

    def __iadd__(self, other: Any) -> Any:  # type: ignore[misc]
        return self + other

    def __imul__(self, other: Any) -> Any:  # type: ignore[misc]
        return self * other

    def __ifloordiv__(self, other: Any) -> Any:  # type: ignore[misc]
        return self // other


def tensor(x: Any) -> Any:
    return torch.as_tensor(x).as_subclass(Tensor)


class Pointer:
    """A place in a tensor's memory, or several."""

    def __init__(self, base: torch.Tensor, offsets: Any = 0) -> None:
        self.memory, self.offsets = base, offsets

    def __add__(self, offsets: Any) -> Pointer:
        return Pointer(self.memory, self.offsets + offsets)

    def places(self, mask: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mask = torch.as_tensor(True if mask is None else mask)
        offsets, mask = torch.broadcast_tensors(torch.as_tensor(self.offsets), mask)  # type: ignore[no-untyped-call]
        size = self.memory.untyped_storage().nbytes() // self.memory.itemsize
        flat = torch.as_strided(self.memory, (size,), (1,), 0)
        return flat, offsets + self.memory.storage_offset(), mask


class Language:
    """What emitted kernels call of `gl` and `tl`; dtypes and functions of numbers are torch's."""

    uint16, uint32 = torch.int16, torch.int64
    program = (0, 1)
    constexpr = staticmethod(lambda x: x)
    static_range = range
    PropagateNan = types.SimpleNamespace(ALL=None)  # as torch does

    def __getattr__(self, name: str) -> Any:
        found = getattr(torch, name)
        if isinstance(found, torch.dtype):
            return found
        return lambda *args, **_: found(*(one if isinstance(one, tuple) else tensor(one) for one in args))

    def program_id(self, _: int) -> Any:
        return tensor(self.program[0])

    def num_programs(self, _: int) -> Any:
        return tensor(self.program[1])

    def layout(self, *_: object, **__: object) -> None:
        return None

    SliceLayout = NVMMADistributedLayout = BlockedLayout = DotOperandLayout = layout

    def convert_layout(self, x: Any, _: None) -> Any:
        return x

    def to_tensor(self, x: Any) -> Any:
        return tensor(x)

    def arange(self, start: int, end: int, _: None = None) -> Any:
        return tensor(torch.arange(start, end))

    def zeros(self, shape: Sequence[int], dtype: torch.dtype, _: None = None) -> Any:
        return tensor(torch.zeros(*shape, dtype=dtype))

    def full(self, shape: Sequence[int], number: float, dtype: torch.dtype, _: None = None) -> Any:
        return tensor(torch.full(tuple(shape), number, dtype=dtype))

    def cdiv(self, x: Any, y: Any) -> Any:
        return -(-x // y)

    def sum(self, x: Any, dim: int) -> Any:
        return torch.sum(x, dim)

    def max(self, x: Any, dim: int) -> Any:
        return torch.amax(x, dim)

    def join(self, x: Any, y: Any) -> Any:
        return torch.stack((x, y), -1)

    def inline_asm_elementwise(self, text: str, _: str, args: Sequence[Any], *__: object, **___: object) -> Any:
        assert text == "mov.b32 $0, {$1, $2};"
        low, high = (one.to(torch.int64) & 0xFFFF for one in args)
        return low | high << 16

    def load(self, pointer: Pointer, mask: Any = None, other: Any = 0) -> Any:
        flat, offsets, mask = pointer.places(mask)
        read = flat[torch.where(mask, offsets, 0)]
        return tensor(torch.where(mask, read, torch.as_tensor(other).to(read.dtype)))

    def store(self, pointer: Pointer, x: Any, mask: Any = None) -> None:
        flat, offsets, mask = pointer.places(mask)
        flat[offsets[mask]] = x.expand(mask.shape)[mask].to(flat.dtype).as_subclass(torch.Tensor)

    def warp_specialize(self, parts: Sequence[tuple[Callable[..., None], tuple[Any, ...]]], *_: object) -> None:
        *groups, loads = parts
        for function, args in (loads, *groups):
            function(*args)


class Ring(dict[int, Any]):
    """The blocks of all steps. Its own first is what kernels ask the dtype of."""

    def __init__(self, desc: Any) -> None:
        self.desc = desc

    def __getitem__(self, place: int) -> Any:
        return self.desc.base if place == 0 else None


def matrix(desc: Any, head: Sequence[Any], row: Any) -> tuple[torch.Tensor, int, int]:
    """A head of what is described, and between which of its rows a block is."""
    whole = torch.as_strided(desc.base, desc.shape, desc.strides)
    first = int(row)
    return whole[tuple(map(int, head))], first, min(first + desc.block_shape[-2], desc.shape[-2])


def fill(ring: Ring, step: Any, desc: Any, head: Sequence[Any], row: Any) -> None:
    """A block of a matrix; 0 beyond its end."""
    source, first, last = matrix(desc, head, row)
    block = torch.zeros(desc.block_shape[-2:], dtype=desc.base.dtype)
    if last > first:
        block[: last - first, : source.shape[1]] = source[first:last]
    assert int(step) not in ring
    ring.update({int(step): block})


def take(ring: Ring, step: Any) -> Any:
    return tensor(ring.get(int(step)))


def give_back(ring: Ring, step: Any) -> None:
    assert int(step) in ring


def negate(block: Any) -> None:
    block.neg_()


def store_block(desc: Any, _: None, __: int, head: Sequence[Any], row: Any, x: Any) -> None:
    target, first, last = matrix(desc, head, row)
    if last > first:
        target[first:last] = x[: last - first, : target.shape[1]].to(target.dtype).as_subclass(torch.Tensor)


def multiply(left: Any, right: Any, so_far: Any, **_: object) -> Any:
    return so_far + left.float() @ right.float()


def wait(_: int, deps: tuple[Any, ...]) -> Any:
    return deps if len(deps) > 1 else deps[0]


LANGUAGE = Language()
INSTEAD: dict[str, Any] = {
    "gl": LANGUAGE,
    "tl": LANGUAGE,
    "tma": types.SimpleNamespace(store_wait=lambda _: None),
    "fence_async_shared": lambda: None,
    "product_layout": LANGUAGE.layout,
    "memory": LANGUAGE.layout,
    "ring": lambda desc, *_: Ring(desc),
    "fill": fill,
    "take": take,
    "give_back": give_back,
    "negate": negate,
    "store_block": store_block,
    "begin_scores": lambda left, right: left.float() @ right.float().mT,
    "warpgroup_mma": multiply,
    "warpgroup_mma_wait": wait,
}


def emulated(function: Any, known: dict[Any, Any] | None = None) -> Callable[..., Any]:
    """A device function, and those that it calls, on tensors of torch."""
    known, body = {} if known is None else known, function.fn
    if body not in known:
        inside = dict(body.__globals__)
        known[body] = types.FunctionType(body.__code__, inside, body.__name__, body.__defaults__)
        for name in {*body.__code__.co_names} & {*inside}:
            value = inside[name]
            if name in INSTEAD:
                inside[name] = INSTEAD[name]
            elif isinstance(value, tl.constexpr):
                inside[name] = value.value
            elif hasattr(value, "fn"):
                inside[name] = emulated(value, known)
    found: Callable[..., Any] = known[body]
    return found


def launch(kernel: Any, grid: Sequence[int], args: Sequence[Any], constants: dict[str, Any]) -> None:
    """Run all programs of a launch, one after another."""
    function = emulated(kernel)
    given = [
        Pointer(one) if isinstance(one, torch.Tensor) else one if one is None or hasattr(one, "base") else tensor(one)
        for one in args
    ]
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    for place in range(grid[0]):
        LANGUAGE.program = place, grid[0]
        function(*given, **constants)
