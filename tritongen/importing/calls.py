"""Records, while a function is traced, the calls of Python functions in which nodes were made."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch

from .targets import is_library


@dataclass(frozen=True, slots=True)
class At:
    """A tensor in an argument or a result, by the name of its node."""

    node: str


@dataclass(eq=False, slots=True)
class Call:
    """A call of a user's function or of a torch module. Tensors in `arguments` and `result` are `At`."""

    code: CodeType
    scope: dict[str, Any]  # the globals of the function
    caller: Call | None
    arguments: dict[str, Any]
    rest: tuple[str, str]  # the names of *args and **kwargs, or ""
    result: Any = None

    def enclosing(self) -> Iterator[Call]:
        """Yields the call, its caller, and so on."""
        call: Call | None = self
        while call is not None:
            yield call
            call = call.caller


class Calls:
    """Follows calls by the interpreter's profiler, which sees arguments before the function reassigns them."""

    def __init__(self, node_of: Callable[[Any], Any]) -> None:
        self._node_of = node_of
        self._open: list[tuple[FrameType, Call]] = []

    def current(self) -> Call | None:
        return self._open[-1][1] if self._open else None

    @contextmanager
    def followed(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self._event)
        try:
            yield
        finally:
            sys.setprofile(before if callable(before) else None)

    def _event(self, frame: FrameType, event: str, value: Any) -> None:
        if event == "call" and _is_followed(frame.f_code):
            self._open.append((frame, self._called(frame)))
        elif event == "return" and self._open and self._open[-1][0] is frame:
            self._open.pop()[1].result = self._without_tensors(value)

    def _called(self, frame: FrameType) -> Call:
        code = frame.f_code
        count = code.co_argcount + code.co_kwonlyargcount
        starred, named = bool(code.co_flags & inspect.CO_VARARGS), bool(code.co_flags & inspect.CO_VARKEYWORDS)
        args = code.co_varnames[count] if starred else ""
        kwargs = code.co_varnames[count + starred] if named else ""
        names = [*code.co_varnames[:count], *filter(None, (args, kwargs))]
        given = {name: self._without_tensors(frame.f_locals.get(name)) for name in names}
        return Call(code, frame.f_globals, self.current(), given, (args, kwargs))

    def _without_tensors(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            node = self._node_of(value)
            return At(node.name) if node is not None else value
        if type(value) in (tuple, list):
            return type(value)(map(self._without_tensors, value))
        if type(value) is dict:
            return {name: self._without_tensors(one) for name, one in value.items()}
        return value


@functools.cache
def _is_followed(code: CodeType) -> bool:
    is_plain = not code.co_name.startswith("<") and not code.co_flags & inspect.CO_GENERATOR
    is_module = code.co_name == "forward" and "/torch/nn/modules/" in code.co_filename
    return is_plain and (is_module or not is_library(code.co_filename))
