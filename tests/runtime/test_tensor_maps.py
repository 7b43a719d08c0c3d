"""Repeated launches by TMA, beside Triton's own: what its launcher in C is given, of a kernel that is not there."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton.backends.nvidia import driver
from triton.compiler import CompiledKernel
from triton.runtime import _allocation
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.harness.importing import runtime_module

SIGNATURE = {
    "x_desc": "tensordesc<fp32[4, 8]>",
    "y_desc": "constexpr",
    "y_ptr": "*fp32",
    "w_desc": "tensordesc<fp32[1, 4, 8]>",
    "n": "i32",
    "BLOCK": "constexpr",
}
META = {"swizzle": 1, "elem_size": 4, "elem_type": 7, "fp4_padded": False}
GRID = (3, 1, 1)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the launcher in C is called with, and what its source is, in Triton 3.6, which writes one."""
    given: list[Any] = []

    def fill(address: int, *others: Any) -> tuple[Any, ...]:
        return ("map", address, *map(str, others))

    utils = SimpleNamespace(
        launch=lambda *args: given.append(args),
        build_signature_metadata=tuple,
        fill_tma_descriptor=fill,
        fill_tma_descriptor_tiled=fill,
    )
    active = SimpleNamespace(utils=utils, launcher_cls=driver.CudaLauncher, get_current_device=lambda: 0)
    active.get_current_stream = lambda _: 5
    monkeypatch.setattr(triton.runtime.driver, "_active", active)
    for name in ("ARG_CONSTEXPR", "ARG_KERNEL", "ARG_TUPLE"):
        monkeypatch.setattr(driver, name, name, raising=False)
    monkeypatch.setattr(driver, "PyKernelArg", lambda nested_tuple, type: (nested_tuple, type), raising=False)
    compiled = lambda src, **_: SimpleNamespace(launch=lambda *args: given.append((src, *args)))  # noqa: E731
    monkeypatch.setattr(driver, "compile_module_from_src", compiled, raising=False)
    monkeypatch.setattr(driver, "library_dirs", list, raising=False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 5, raising=False)
    return given


def kernel(signature: dict[str, str] = SIGNATURE, scratch_size: int = 0) -> Any:
    """A compiled kernel, but for its code."""
    scratch = {f"{kind}_scratch_{what}": 0 for kind in ("global", "profile") for what in ("size", "align")}
    scratch["global_scratch_size"] = scratch_size
    maps = [{**META, "block_size": [4, 8]}, {**META, "block_size": [1, 4, 8]}]
    fields = {"tensordesc_meta": maps if signature is SIGNATURE else [], **scratch}
    fields |= {"num_ctas": 1, "launch_cooperative_grid": False, "launch_pdl": False, "instrumentation_mode": ""}
    found = CompiledKernel.__new__(CompiledKernel)
    found.metadata = namedtuple("Metadata", fields)(**fields)
    found.src = SimpleNamespace(signature=signature, constants={}, fn=SimpleNamespace(arg_names=[*signature]))
    found._module_pid = None
    found.module, found.function, found.packed_metadata = object(), 7, (4, 1, 0)
    found._run = driver.CudaLauncher(found.src, found.metadata)
    return found


def tensors(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    shapes = (16, 24), (16, 8), (2, 16, 32)
    x, y, w = (torch.full(shape, float(seed)) for shape in shapes)
    return x, y, w


def arguments(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> tuple[Any, ...]:
    x_desc, w_desc = TensorDescriptor.from_tensor(x, [4, 8]), TensorDescriptor.from_tensor(w, [1, 4, 8])
    return x_desc, None, y, w_desc, 16


def again(compiled: Any, x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, maps: Any = None) -> Any:
    """What launches a kernel again on tensors."""
    maps = maps or runtime_module("tensor_maps")
    launch, args = runtime_module("launch"), arguments(x, y, w)
    return maps.with_maps(launch.again, compiled, GRID, args, [64])


def shown(values: Any) -> Any:
    """Nested arguments as text, lists as tuples, since kernels without descriptors are given tuples; and the address of
    a tensor, which is what Triton's launcher asks it for.
    """
    if isinstance(values, torch.Tensor):
        return str(values.data_ptr())
    return tuple(map(shown, values)) if isinstance(values, tuple | list) else str(values)


def test_the_launcher_is_given_what_triton_gives_it(calls: list[Any]) -> None:
    compiled = kernel()
    run = again(compiled, *tensors())
    for seed in (1, 2):
        x, y, w = tensors(seed)
        run(x, None, y, w, 16)
        compiled.run(*GRID, 5, 7, (4, 1, 0), None, None, None, *arguments(x, y, w), 64)
        ours, theirs = calls[-2:]
        assert shown(ours) == shown(theirs)
        assert str(x.data_ptr()) in str(ours)


@pytest.mark.parametrize("scratch_size", [0, 64])
def test_a_launcher_without_descriptors_is_given_what_triton_gives_it(
    scratch_size: int, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch that needs memory of its own asks Triton's allocator for it each time."""
    monkeypatch.setattr(_allocation, "_allocator", SimpleNamespace(get=lambda: lambda *given: ("allocated", *given)))
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    compiled, others = kernel(signature, scratch_size), tensors()
    run = runtime_module("launch").again(compiled, GRID, (torch.ones(2), None, 16), [64])
    for x in others:
        calls.clear()
        run(x, None, 16)
        compiled.run(*GRID, 5, 7, (4, 1, 0), None, None, None, x, None, 16, 64)
        ours, theirs = map(shown, calls)
        assert ours == theirs
        assert x.data_ptr() in calls[0] or x.data_ptr() in calls[0][-1]
        assert ("allocated" in str(calls[0])) == bool(scratch_size)


def test_a_tensor_map_is_made_once_for_an_address(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    maps = runtime_module("tensor_maps")
    made: list[int] = []
    run = again(kernel(), *tensors(), maps)
    fill = triton.runtime.driver.active.utils
    for name in ("fill_tma_descriptor", "fill_tma_descriptor_tiled"):
        monkeypatch.setattr(fill, name, lambda address, *_: made.append(address) or "map")
    x, y, w = tensors()
    for _ in range(3):
        run(x, None, y, w, 16)
    assert made == [x.data_ptr(), w.data_ptr()]
    monkeypatch.setattr(maps, "MOST", 2)
    others = [x[n:] for n in range(1, 5)]
    for other in others:
        run(other, None, y, w, 16)
    assert made[2:] == [other.data_ptr() for other in others]
    run(x, None, y, w, 16)
    assert made[-1] == x.data_ptr()  # There are no more than two.


def test_hooks_see_descriptors(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a launch that a profiler observes, Triton is given what it is given first."""
    compiled, x, y, w = kernel(), *tensors()
    run = again(compiled, x, y, w)
    seen: list[Any] = []
    monkeypatch.setattr(triton.knobs.runtime, "launch_enter_hook", seen.append)
    monkeypatch.setattr(compiled, "_run", lambda *args: seen.append(args))
    monkeypatch.setattr(compiled, "launch_metadata", lambda *_: None)
    run(x, None, y, w, 16)
    (launched,) = seen
    assert [arg.base for arg in launched if isinstance(arg, TensorDescriptor)] == [x, w]


def test_another_triton_launches_by_itself(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, x, y, w = kernel(), *tensors()
    monkeypatch.delattr(triton.runtime.driver.active, "launcher_cls")
    again(compiled, x, y, w)(x, None, y, w, 16)
    assert len(calls) == 1
