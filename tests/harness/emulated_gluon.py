"""Run emitted Gluon kernels without a GPU, with torch in place of Gluon's language.

Triton has no interpreter for Gluon. Here warp groups are threads. Asynchronous operations happen as late as possible:
matmuls and TMA stores read their operands when they are waited for, and the destination of a TMA load is NaN until it
arrives. A TMA load to memory that threads have read without a fence since then fails. Layouts and errors of the
compiler are not checked.
"""

from __future__ import annotations

import math
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import triton.language as tl

PATIENCE = 20.0  # seconds until waiting for a barrier fails
CHANGED = threading.Condition()  # notified when a barrier changes
OWN = threading.local()  # the matmuls and TMA stores in flight of a warp group
UNFENCED: set[tuple[int, int]] = set()  # warp groups and addresses of shared memory that they read since their fence


class Tensor(torch.Tensor):
    """A tensor in registers, which no operation changes in place."""

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


# Global memory


class Pointer:
    """A pointer, or a block of pointers, to a tensor's memory."""

    def __init__(self, base: torch.Tensor, offsets: Any = 0) -> None:
        self.memory, self.offsets = base.detach(), offsets

    def __add__(self, offsets: Any) -> Pointer:
        return Pointer(self.memory, self.offsets + offsets)

    def places(self, mask: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mask = torch.as_tensor(True if mask is None else mask)
        offsets, mask = torch.broadcast_tensors(torch.as_tensor(self.offsets), mask)  # type: ignore[no-untyped-call]
        size = self.memory.untyped_storage().nbytes() // self.memory.itemsize
        flat = torch.as_strided(self.memory, (size,), (1,), 0)
        return flat, offsets + self.memory.storage_offset(), mask


class Descriptor:
    """A TMA descriptor, made from one of the host."""

    def __init__(self, host: Any) -> None:
        self.tensor = host.base.detach().as_strided(tuple(host.shape), tuple(host.strides))
        self.shape = tuple(host.shape)
        self.block_shape, self.dtype, self.layout = list(host.block_shape), host.base.dtype, None
        self.block_type = types.SimpleNamespace(nbytes=math.prod(self.block_shape) * host.base.itemsize)

    def part(self, at: Sequence[Any]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """The slices of a block's in-bounds elements, in the tensor and in the block."""
        spans = [
            (int(first), max(int(first), min(int(first) + size, length)))
            for first, size, length in zip(at, self.block_shape, self.tensor.shape, strict=True)
        ]
        return tuple(slice(*span) for span in spans), tuple(slice(0, end - first) for first, end in spans)


# Shared memory


class Memory:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.dtype, self.shape = tensor, tensor.dtype, tuple(tensor.shape)

    def index(self, place: Any) -> Memory:
        return Memory(self.tensor[int(place)])

    def reshape(self, shape: Sequence[int]) -> Memory:
        return Memory(self.tensor.view(*shape))

    def permute(self, order: Sequence[int]) -> Memory:
        return Memory(self.tensor.permute(*order))

    def load(self, layout: object) -> Any:
        UNFENCED.add((threading.get_ident(), self.tensor.data_ptr()))
        return tensor(self.tensor.clone())

    def store(self, x: Any) -> None:
        self.tensor.copy_(x)


class Barrier:
    """An mbarrier: a phase completes when all arrivals and all expected bytes are there."""

    def __init__(self) -> None:
        self.count = self.missing = self.bytes = self.phase = 0

    def init(self, count: int) -> None:
        self.count = self.missing = count

    def change(self, arrived: int, more_bytes: int) -> None:
        with CHANGED:
            self.missing -= arrived
            self.bytes += more_bytes
            assert self.missing >= 0
            if self.missing == self.bytes == 0:
                self.phase ^= 1
                self.missing = self.count
            CHANGED.notify_all()

    def wait(self, phase: Any) -> None:
        with CHANGED:
            if not CHANGED.wait_for(lambda: self.phase != int(phase), PATIENCE):
                raise AssertionError("a barrier is waited for that no one completes")


class Barriers:
    """An array of barriers in shared memory."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape, self.every = tuple(shape), [Barrier() for _ in range(shape[0])]

    def index(self, place: Any) -> Barrier:
        return self.every[int(place)]


def fence() -> None:
    own = threading.get_ident()
    UNFENCED.difference_update({read for read in list(UNFENCED) if read[0] == own})


def async_load(desc: Descriptor, at: Sequence[Any], barrier: Barrier, block: Memory) -> None:
    assert all(place != block.tensor.data_ptr() for _, place in list(UNFENCED)), (
        "TMA fills what was read without a fence"
    )
    block.tensor.fill_(math.nan)

    def arrive() -> None:
        source, target = desc.part(at)
        block.tensor.zero_()
        block.tensor[target] = desc.tensor[source]
        barrier.change(0, -desc.block_type.nbytes)

    threading.Timer(0.001, arrive).start()


def async_store(desc: Descriptor, at: Sequence[Any], block: Memory) -> None:
    OWN.stores.append((desc, at, block))


def store_wait(pending: int) -> None:
    while len(OWN.stores) > pending:
        desc, at, block = OWN.stores.pop(0)
        target, source = desc.part(at)
        desc.tensor[target] = block.tensor[source]


# Matmuls


class Product:
    """A matmul in flight."""

    def __init__(self, left: Any, right: Memory, so_far: Any) -> None:
        self.left, self.right, self.so_far = left, right, so_far
        self.value: Any = None

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("a matmul is read that is in flight")

    def __mul__(self, other: Any) -> Any:
        raise AssertionError("a matmul is read that is in flight")

    def end(self) -> None:
        left = self.left.tensor if isinstance(self.left, Memory) else self.left
        so_far: Any = self.so_far.value if isinstance(self.so_far, Product) else self.so_far
        self.value = tensor(left.float() @ self.right.tensor.float() + so_far)


def warpgroup_mma(left: Any, right: Memory, so_far: Any, use_acc: bool = True, is_async: bool = False) -> Product:
    assert is_async
    found = Product(left, right, so_far if use_acc else 0.0)
    OWN.products.append(found)
    return found


def warpgroup_mma_wait(pending: int, deps: Sequence[Any]) -> Any:
    while len(OWN.products) > pending:
        OWN.products.pop(0).end()
    found = tuple(one.value if isinstance(one, Product) and one.value is not None else one for one in deps)
    return found if len(found) > 1 else found[0]


# The language


def numbers(first: Any, *others: Any) -> Iterator[Any]:
    """The iterations of `range`, whose values are tensors in kernels."""
    return map(tensor, range(int(first), *map(int, others)))


class Language:
    """The functions of `gl` and `tl` that emitted kernels call; dtypes and elementwise functions are torch's."""

    uint16, uint32 = torch.int16, torch.int64
    program = (0, 1)
    constexpr = staticmethod(lambda x: x)
    static_range = range
    PropagateNan = types.SimpleNamespace(ALL=None)  # torch propagates NaN, too

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
        if text == "mov.b32 $0, $1;":
            return args[0]
        assert text == "mov.b32 $0, {$1, $2};"
        low, high = (one.to(torch.int64) & 0xFFFF for one in args)
        return low | high << 16

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return tensor((tensor(x).double() * y + z).to(x.dtype))

    def load(self, pointer: Pointer, mask: Any = None, other: Any = 0) -> Any:
        flat, offsets, mask = pointer.places(mask)
        read = flat[torch.where(mask, offsets, 0)]
        return tensor(torch.where(mask, read, torch.as_tensor(other).to(read.dtype)))

    def store(self, pointer: Pointer, x: Any, mask: Any = None) -> None:
        flat, offsets, mask = pointer.places(mask)
        flat[offsets[mask]] = x.expand(mask.shape)[mask].to(flat.dtype).as_subclass(torch.Tensor)

    def allocate_shared_memory(self, dtype: torch.dtype, shape: Sequence[int], _: object) -> Any:
        if dtype is torch.int64:
            return Barriers(shape)
        return Memory(torch.full(tuple(shape), math.nan, dtype=dtype))

    def warp_specialize(self, groups: Sequence[tuple[Callable[..., None], Sequence[Any]]], *_: object) -> None:
        mistakes: list[BaseException] = []
        UNFENCED.clear()

        def work(function: Callable[..., None], args: Sequence[Any]) -> None:
            OWN.products, OWN.stores = [], []
            try:
                function(*args)
                assert not OWN.products
                assert not OWN.stores
            except BaseException as mistake:  # The thread that started this one raises it.
                mistakes.append(mistake)

        threads = [threading.Thread(target=work, args=one, daemon=True) for one in groups]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if mistakes:
            raise mistakes[0]


LANGUAGE = Language()
INSTEAD: dict[str, Any] = {
    "gl": LANGUAGE,
    "tl": LANGUAGE,
    "range": numbers,
    "mbarrier": types.SimpleNamespace(
        MBarrierLayout=lambda: None,
        init=lambda barrier, count: barrier.init(count),
        expect=lambda barrier, n_bytes: barrier.change(1, n_bytes),
        wait=lambda barrier, phase: barrier.wait(phase),
        arrive=lambda barrier: barrier.change(1, 0),
    ),
    "tma": types.SimpleNamespace(store_wait=store_wait),
    "async_load": async_load,
    "async_store": async_store,
    "barrier": lambda: None,
    "fence_async_shared": fence,
    "warpgroup_mma": warpgroup_mma,
    "warpgroup_mma_wait": warpgroup_mma_wait,
}


def emulated(function: Any, known: dict[Any, Any] | None = None) -> Callable[..., Any]:
    """A device function for torch tensors, with the functions that it calls; `known` memoizes them."""
    known, body = {} if known is None else known, function.fn
    if body not in known:
        inside = body.__globals__ | INSTEAD
        known[body] = types.FunctionType(body.__code__, inside, body.__name__, body.__defaults__)
        for name in {*body.__code__.co_names} & {*inside} - {*INSTEAD}:
            value = inside[name]
            if isinstance(value, tl.constexpr):
                inside[name] = value.value
            elif hasattr(value, "fn"):
                inside[name] = emulated(value, known)
    found: Callable[..., Any] = known[body]
    return found


def argument(given: Any) -> Any:
    """The value in a kernel of an argument of its launch."""
    if isinstance(given, torch.Tensor):
        return Pointer(given)
    if hasattr(given, "base"):
        return Descriptor(given)
    return tensor(given) if isinstance(given, int) else given


def launch(kernel: Any, grid: Sequence[int], args: Sequence[Any], constants: dict[str, Any]) -> None:
    """Run all programs of a launch sequentially."""
    function = emulated(kernel)
    given = [argument(one) for one in args]
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    for place in range(grid[0]):
        LANGUAGE.program = place, grid[0]
        function(*given, **constants)
