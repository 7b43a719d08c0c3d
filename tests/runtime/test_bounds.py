# mypy: allow-untyped-defs, allow-untyped-decorators
"""That the harness of emitted tests notices accesses outside of tensors, which change no value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

if torch.cuda.is_available():
    pytest.skip("the check is of Triton's interpreter", allow_module_level=True)
import triton
import triton.language as tl
from triton.runtime import interpreter
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.harness.importing import runtime_module


@triton.jit
def _copy_kernel(x_ptr, y_ptr, n, stride, LOAD_MASKED: tl.constexpr, STORE_MASKED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * stride, mask=at < n if LOAD_MASKED else None)
    tl.store(y_ptr + at, x, mask=at < n if STORE_MASKED else None)


@pytest.fixture
def check_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    harness: Any = runtime_module("testing.launches")
    harness.check_bounds(monkeypatch)


def copy(size: int, load_masked: bool = True, store_masked: bool = True) -> None:
    """Of five elements into so many, with eight lanes."""
    x, y = torch.arange(64.0)[8:].as_strided((5,), (3,)), torch.zeros(64)
    _copy_kernel[(1,)](x, y[:size], 5, 3, load_masked, store_masked, 8)
    assert y[:5].tolist() == x.tolist()


@pytest.mark.usefixtures("check_bounds")
def test_within() -> None:
    copy(5)
    copy(8, store_masked=False)


@pytest.mark.usefixtures("check_bounds")
@pytest.mark.parametrize("launch", [lambda: copy(8, load_masked=False), lambda: copy(5, store_masked=False)])
def test_outside(launch: Callable[[], None]) -> None:
    with pytest.raises(Exception, match="outside of the tensors"):
        launch()


@triton.jit
def _copy_block_kernel(x_desc, y_ptr, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, BLOCK), x_desc.load([0]))


@pytest.mark.usefixtures("check_bounds")
def test_bare_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Triton 3.9, the interpreter's loads by descriptors have an array as their mask."""
    described: Any = interpreter.TensorDescHandle
    pointers_of = described.materialize_pointers

    def bare(self: Any, offsets: Any) -> Any:
        pointers, mask = pointers_of(self, offsets)
        return pointers, getattr(mask, "data", mask) if isinstance(mask, interpreter.TensorHandle) else mask

    monkeypatch.setattr(described, "materialize_pointers", bare)
    x, y = torch.arange(8.0), torch.zeros(8)
    _copy_block_kernel[(1,)](TensorDescriptor.from_tensor(x, [8]), y, 8)
    assert y.tolist() == x.tolist()


def test_only_where_it_is_asked_for() -> None:
    copy(8, load_masked=False)
