"""Runs Gluon kernels for Hopper without a GPU, on small tensors: Triton has no interpreter for them.

Warp groups are threads. What is asynchronous on the GPU happens as late as it may: a matmul reads its operands when it
is waited for, and so does a store by TMA, while memory that a load by TMA will fill is NaN until then. Layouts are not
looked at.
"""

from __future__ import annotations

import ast
import inspect
import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from tritongen.emit.imports import RUNTIME_FOLDER

MODULES = ("addressing", "matmul", "reduce", "special", "rings")  # of the runtime, that Gluon kernels call
CHANGED = threading.Condition()
PATIENCE = 20.0  # seconds that a barrier is waited for
OWN = threading.local()  # what a warp group has begun: matmuls, and stores by TMA


class Tensor(torch.Tensor):
    """A tensor in registers."""

    type = SimpleNamespace(layout=None)  # type: ignore[assignment]


def held(x: Any) -> Any:
    """What is a tensor to kernels."""
    return torch.as_tensor(x).as_subclass(Tensor)


class Pointer:
    def __init__(self, tensor: torch.Tensor, at: Any = 0) -> None:
        self.tensor, self.at = tensor.detach(), at

    def __add__(self, steps: Any) -> Pointer:
        return Pointer(self.tensor, self.at + steps)

    def of(self, mask: Any) -> tuple[torch.Tensor, Any]:
        """The elements in memory, and where they are that a mask leaves; the first where it does not."""
        memory = self.tensor.as_strided((self.tensor.untyped_storage().nbytes() // self.tensor.itemsize,), (1,), 0)
        at = torch.as_tensor(self.at + self.tensor.storage_offset())
        return memory, at if mask is None else torch.where(torch.as_tensor(mask), at, 0)


class Descriptor:
    """A tensor that TMA steps through, as a descriptor of the host says."""

    def __init__(self, host: Any) -> None:
        self.tensor = host.base.detach().as_strided(tuple(host.shape), tuple(host.strides))
        self.block_shape, self.dtype, self.layout = list(host.block_shape), host.base.dtype, None
        self.block_type = SimpleNamespace(nbytes=math.prod(self.block_shape) * host.base.itemsize)

    def part(self, at: Sequence[Any]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Where a block is in the tensor, and where in the block what of it is inside of the tensor."""
        spans = [
            (int(first), max(int(first), min(int(first) + size, length)))
            for first, size, length in zip(at, self.block_shape, self.tensor.shape, strict=True)
        ]
        return tuple(slice(*span) for span in spans), tuple(slice(0, end - first) for first, end in spans)


class Memory:
    """Shared memory."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.dtype, self.shape = tensor, tensor.dtype, tuple(tensor.shape)

    def index(self, place: Any) -> Memory:
        return Memory(self.tensor[int(place)])

    def reshape(self, shape: Sequence[int]) -> Memory:
        return Memory(self.tensor.view(*shape))

    def permute(self, order: Sequence[int]) -> Memory:
        return Memory(self.tensor.permute(*order))

    def load(self, layout: object) -> Tensor:
        found: Tensor = self.tensor.clone().as_subclass(Tensor)
        return found

    def store(self, x: Any) -> None:
        self.tensor.copy_(held(x))


class Barrier:
    """Completes a phase as soon as all have arrived and all bytes that are expected are there."""

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


class Product:
    """A matmul in flight."""

    type = SimpleNamespace(layout=None)

    def __init__(self, left: Any, right: Memory, so_far: Any) -> None:
        self.left, self.right, self.so_far = left, right, so_far
        self.value: Any = None

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("a matmul is read that is in flight")

    def __mul__(self, other: Any) -> Any:
        raise AssertionError("a matmul is read that is in flight")

    def end(self) -> None:
        left = self.left.tensor if isinstance(self.left, Memory) else self.left
        so_far = self.so_far.value if isinstance(self.so_far, Product) else self.so_far
        self.value = held(left.float() @ self.right.tensor.float() + so_far)


def warpgroup_mma(left: Any, right: Memory, so_far: Any, use_acc: bool = True, is_async: bool = False) -> Product:
    assert is_async
    OWN.products.append(Product(left, right, so_far if use_acc else 0.0))
    found: Product = OWN.products[-1]
    return found


def warpgroup_mma_wait(pending: int, deps: Sequence[Any]) -> Any:
    while len(OWN.products) > pending:
        OWN.products.pop(0).end()
    found = tuple(one.value if isinstance(one, Product) and one.value is not None else one for one in deps)
    return found if len(found) > 1 else found[0]


def async_load(desc: Descriptor, at: Sequence[Any], barrier: Barrier, block: Memory) -> None:
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


def warp_specialize(groups: Sequence[tuple[Callable[..., None], Sequence[Any]]], *_: object) -> None:
    mistakes: list[BaseException] = []

    def work(function: Callable[..., None], args: Sequence[Any]) -> None:
        OWN.products, OWN.stores = [], []
        try:
            function(*args)
            assert not OWN.products
            assert not OWN.stores
        except BaseException as mistake:  # It is raised by the thread that has started this one.
            mistakes.append(mistake)

    threads = [threading.Thread(target=work, args=one, daemon=True) for one in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if mistakes:
        raise mistakes[0]


def load(pointer: Pointer, mask: Any = None, other: float = math.nan) -> Tensor:
    memory, at = pointer.of(mask)
    found = memory[at.long()]
    result: Tensor = held(found if mask is None else torch.where(torch.as_tensor(mask), found, other))
    return result


def store(pointer: Pointer, x: Any, mask: Any) -> None:
    memory, at = pointer.of(None)
    chosen = torch.as_tensor(mask)
    memory[at[chosen].long()] = held(x)[chosen].to(memory.dtype)


def numbers(first: Any, *others: Any) -> Iterator[Tensor]:
    """The numbers of a loop, which are tensors to kernels."""
    return (held(number) for number in range(int(first), *map(int, others)))


def of_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors, some of which are numbers."""
    return lambda *args: function(*map(held, args))


def language(program: int, programs: int) -> SimpleNamespace:
    """What kernels call of Gluon's language and of Triton's."""
    nothing = ("SliceLayout", "BlockedLayout", "DotOperandLayout", "NVMMADistributedLayout")
    dtypes = ("float16", "bfloat16", "float32", "float64", "int32", "int64")
    functions = ("abs", "exp", "exp2", "floor", "log", "log2", "maximum", "minimum")
    return SimpleNamespace(
        **{name: lambda *_: None for name in nothing},
        **{name: getattr(torch, name) for name in dtypes},
        **{name: of_tensors(getattr(torch, name)) for name in functions},
        constexpr=None,
        program_id=lambda _: held(program),
        num_programs=lambda _: held(programs),
        static_range=range,
        to_tensor=held,
        cdiv=lambda x, y: -(-x // y),
        arange=lambda first, end, layout=None: held(torch.arange(first, end)),
        zeros=lambda shape, dtype, layout=None: held(torch.zeros(shape, dtype=dtype)),
        full=lambda shape, value, dtype, layout=None: held(torch.full(tuple(shape), value, dtype=dtype)),
        where=lambda test, x, y: held(torch.where(held(test), x, y)),
        max=lambda x, axis: held(x).amax(axis),
        sum=lambda x, axis: held(x).sum(axis),
        load=load,
        store=store,
        convert_layout=lambda x, layout: held(x),
        warp_specialize=warp_specialize,
        allocate_shared_memory=lambda dtype, shape, layout: (
            SimpleNamespace(index=[Barrier() for _ in range(shape[0])].__getitem__)
            if dtype is torch.int64
            else Memory(torch.full(tuple(shape), math.nan, dtype=dtype))
        ),
    )


def jit(function: Any = None, **_: object) -> Any:
    return function or jit


def run(kernel: Any, grid: Sequence[int], args: Sequence[Any], constants: dict[str, Any]) -> None:
    """Run a kernel of a generated module, whose package has the runtime in it, in one program after another."""
    path = Path(inspect.getfile(sys.modules[kernel.__module__]))
    runtime = path.parent / RUNTIME_FOLDER
    files = [*(runtime / f"{name}.py" for name in MODULES), path]
    mbarrier = SimpleNamespace(
        MBarrierLayout=lambda: None,
        init=lambda barrier, count: barrier.init(count),
        expect=lambda barrier, n_bytes: barrier.change(1, n_bytes),
        wait=lambda barrier, phase: barrier.wait(phase),
        arrive=lambda barrier: barrier.change(1, 0),
    )
    tma = SimpleNamespace(
        store_wait=store_wait, async_copy_global_to_shared=async_load, async_copy_shared_to_global=async_store
    )
    given = [
        Descriptor(one) if hasattr(one, "block_shape") else Pointer(one) if isinstance(one, torch.Tensor) else one
        for one in args
    ]
    for program in range(grid[0]):
        words = language(program, grid[0])
        names: dict[str, Any] = {
            "gluon": SimpleNamespace(jit=jit, constexpr_function=lambda function: function),
            "triton": SimpleNamespace(jit=jit, constexpr_function=lambda function: function),
            "gl": words,
            "tl": words,
            "range": numbers,
            "mbarrier": mbarrier,
            "tma": tma,
            "warpgroup_mma": warpgroup_mma,
            "warpgroup_mma_wait": warpgroup_mma_wait,
            "fence_async_shared": lambda: None,
        }
        for file in files:
            exec(compile(_functions(file), str(file), "exec"), names)
        names[kernel.__name__](*given, **constants)


def _functions(path: Path) -> ast.Module:
    """The functions of a module, without annotations, and other names that it has for functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.Assign)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for arg in node.args.args:
                arg.annotation = None
    return tree
