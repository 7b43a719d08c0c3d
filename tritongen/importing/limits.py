"""Limits of dtypes, such as `torch.finfo(x.dtype).eps`: a spec has those of the example's dtypes, as constants."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .swapping import swapped
from .targets import is_library

_NORM = ("input", "normalized_shape", "weight", "eps")


@contextmanager
def limits(of: Callable[[Any, FrameType], Any]) -> Iterator[None]:
    """Whoever asks torch for limits of a dtype, or leaves out an eps that follows one, gets what `of` gives for it.

    `of` is called with the limits that torch has, and with the frame that asks.
    """
    original = torch.finfo

    class Kind(type):
        """That of `torch.finfo` for whoever compares it, or looks at it while a module is imported meanwhile."""

        def __call__(cls, *dtype: Any, **named: Any) -> Any:
            frame = sys._getframe(1)
            found = original(*dtype, **named)
            return found if is_library(frame.f_code.co_filename) else of(found, frame)

        def __instancecheck__(cls, one: object) -> bool:
            return isinstance(one, original)

        def __eq__(cls, other: object) -> bool:
            return other is original or other is cls

        def __hash__(cls) -> int:
            return hash(original)

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = dict(zip(_NORM, args, strict=False)) | (kwargs or {})
            name = getattr(function, "__name__", "").partition(".")[0]
            if name != "rms_norm" or given.get("eps") is not None:
                return function(*args, **(kwargs or {}))
            own = original(torch.promote_types(given["input"].dtype, torch.float32))  # It computes in this dtype.
            return function(**given | {"eps": of(own, _users(sys._getframe(1))).eps})

    with swapped(torch, finfo=Kind("finfo", (), {})), Mode():
        yield


def _users(frame: FrameType) -> FrameType:
    """The innermost frame of code that is no library's."""
    found: FrameType | None = frame
    while found is not None and is_library(found.f_code.co_filename):
        found = found.f_back
    return found or frame
