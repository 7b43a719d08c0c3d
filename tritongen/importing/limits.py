"""Limits of dtypes, such as `torch.finfo(x.dtype).eps`: constants in a spec, for the dtypes of the example."""

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
    """Replaces `torch.finfo` in user code, and the default eps of `rms_norm`, by the limits that `of` returns.

    `of` is called with torch's own limits, and with the frame of the caller.
    """
    original = torch.finfo

    class Kind(type):
        """Passes for `torch.finfo` in comparisons, and in modules that are imported meanwhile."""

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
            own = original(torch.promote_types(given["input"].dtype, torch.float32))  # The dtype that it computes in.
            return function(**given | {"eps": of(own, _users(sys._getframe(1))).eps})

    with swapped(torch, finfo=Kind("finfo", (), {})), Mode():
        yield


def _users(frame: FrameType) -> FrameType:
    """The innermost frame of user code; `frame` if there is none."""
    found: FrameType | None = frame
    while found is not None and is_library(found.f_code.co_filename):
        found = found.f_back
    return found or frame
