"""Kernels compiled in threads before the tests of an operator, most of whose time on a GPU is compilation."""

import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import triton

from .inputs import DEVICE

FEW = 8  # tests for which threads are not worth it


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
        names = item.function.__code__.co_varnames[
            1 : item.function.__code__.co_argcount
        ]
        ignored = Exception, pytest.skip.Exception, pytest.fail.Exception
        with contextlib.suppress(*ignored):
            item.function(item.cls(), **{name: given[name] for name in names})


def load(kernel: Any) -> None:
    """Load a compiled kernel, and build its launcher."""
    with contextlib.suppress(Exception):  # It did not compile, which its test shows.
        torch.cuda.set_device(torch.cuda.current_device())
        getattr(kernel, "result", lambda: kernel)()[1, 1, 1]
