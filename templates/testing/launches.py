"""What tests do with launches: check in the interpreter that kernels access nothing outside of their tensors, and
compile kernels in threads before tests on a GPU, most of whose time is compilation.
"""

import contextlib
import inspect
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import triton
from triton.runtime import interpreter
from triton.tools.tensor_descriptor import TensorDescriptor

from ..runtime import launch
from .inputs import DEVICE

FEW = 8  # tests for which threads are not worth it
hopper = pytest.mark.skipif(
    launch.capability(torch.device(DEVICE))[0] != 9, reason="needs NVIDIA's Hopper"
)


def once(test: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a test that is not called to compile its kernels: it has torch compile or capture them."""
    vars(test)["once"] = True
    return test


compiled: set[type] = set()


def compile_ahead(request: pytest.FixtureRequest) -> None:
    """Compile the kernels of all selected tests of a class once; workers of pytest-xdist share them anyhow."""
    if request.cls in compiled:
        return
    compiled.add(request.cls)
    items = [
        one
        for one in request.session.items
        if isinstance(one, pytest.Function) and one.cls is request.cls
    ]
    interpreted = DEVICE == "cpu" or triton.knobs.runtime.interpret
    if not interpreted and len(items) > FEW and "PYTEST_XDIST_WORKER" not in os.environ:
        compile_in_threads([one for one in items if not hasattr(one.function, "once")])


def compile_in_threads(items: Sequence[pytest.Function]) -> None:
    """Call tests with launches that only compile. Results stay unwritten, by which most tests fail; this is ignored."""
    try:
        from triton.runtime._async_compile import AsyncCompileMode, active_mode
    except ImportError:  # It is not public.
        return
    kernels: list[Any] = []
    run = triton.JITFunction.run
    with ThreadPoolExecutor() as pool, pytest.MonkeyPatch.context() as patch:
        with AsyncCompileMode(pool, ignore_errors=True) as mode:

            def warm_up(self: Any, *args: Any, **options: Any) -> None:
                mine = active_mode.set(mode)  # The threads of autograd have their own.
                try:
                    kernels.append(run(self, *args, **options | {"warmup": True}))
                finally:
                    active_mode.reset(mine)

            patch.setattr(triton.JITFunction, "run", warm_up)
            for one in items:
                call(one)
        # Before Triton 3.8 a C compiler builds a launcher for each signature.
        list(pool.map(load, kernels))


def call(item: pytest.Function) -> None:
    """Call a test whatever comes of it."""
    with pytest.MonkeyPatch.context() as patch:
        callspec = getattr(item, "callspec", None)
        given = {"patch": patch} | (callspec.params if callspec else {})
        _, *names = inspect.signature(item.function).parameters
        ignored = Exception, pytest.skip.Exception, pytest.fail.Exception
        with contextlib.suppress(*ignored):
            item.function(item.cls(), **{name: given[name] for name in names})


def load(kernel: Any) -> None:
    """Load a compiled kernel, and build its launcher."""
    with contextlib.suppress(Exception):  # It did not compile, which its test shows.
        torch.cuda.set_device(torch.cuda.current_device())
        getattr(kernel, "result", lambda: kernel)()[1, 1, 1]


def span(one: Any) -> tuple[int, int]:
    """The range of addresses of a tensor, or of the tensor of a descriptor."""
    described = isinstance(one, TensorDescriptor)
    base = one.base if described else one
    strides = one.strides if described else one.stride()
    steps = zip(one.shape, strides, strict=True)
    last = sum((size - 1) * step for size, step in steps) if 0 not in one.shape else -1
    return base.data_ptr(), base.data_ptr() + (last + 1) * base.itemsize


def check_bounds(patch: pytest.MonkeyPatch) -> None:
    """Make the interpreter refuse accesses out of bounds, even where they do not affect values."""
    if not triton.knobs.runtime.interpret:
        return
    executor: Any = interpreter.GridExecutor
    builder: Any = interpreter.InterpreterBuilder
    begin = executor._init_args_hst
    allowed: list[tuple[int, int]] = []

    def begin_with(self: Any, args: Any, kwargs: Any) -> Any:
        found = begin(self, args, kwargs)
        allowed[:] = [
            span(one)
            for one in (*found[0], *found[1].values())
            if isinstance(one, (torch.Tensor, TensorDescriptor))
        ]
        return found

    def checked(access: Callable[..., Any], place: int) -> Callable[..., Any]:
        """A load or store with bounds checks; one argument after the pointers is the mask."""

        def call(self: Any, pointers: Any, *rest: Any, **named: Any) -> Any:
            # Before Triton 3.9, loads by descriptors pass a bare array.
            handled = isinstance(rest[place], interpreter.TensorHandle)
            mask = rest[place].data if handled else rest[place]
            outside = pointers.data[mask.astype(bool)]
            for first, end in allowed:
                outside = outside[(outside < first) | (outside >= end)]
            assert not outside.size, "an access outside of the tensors"
            return access(self, pointers, *rest, **named)

        return call

    patch.setattr(executor, "_init_args_hst", begin_with)
    for name, place in (("create_masked_load", 0), ("create_masked_store", 1)):
        patch.setattr(builder, name, checked(getattr(builder, name), place))
