"""Records, while a function is traced, the source lines of each node and the variables that hold its result."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.overrides import TorchFunctionMode

from .calls import Call, Calls
from .formulas import of_symbol, symbol_of, symbols_of
from .refusals import NOWHERE, Place
from .swapping import swapped
from .symbols import without_sympy
from .targets import is_library, placed


@dataclass(slots=True)
class Recording:
    """Facts about nodes, by node name: `places`, the innermost first, and variables (`names`)."""

    places: dict[str, tuple[Place, ...]] = field(default_factory=dict)
    names: dict[str, tuple[int, str]] = field(default_factory=dict)  # variables, with the depth of their frame
    lengths: dict[Any, str] = field(default_factory=dict)  # variables that are lengths, by the symbol
    used: dict[Any, Place] = field(default_factory=dict)  # symbols that the program converts to Python's numbers
    own_gradients: dict[str, Place] = field(default_factory=dict)  # classes of torch.autograd.Function, where called
    limits: list[tuple[torch.finfo, Place]] = field(default_factory=list)  # of dtypes, in the order of calls
    unpacked: set[str] = field(default_factory=set)  # tensors of tuples among arguments
    calls: dict[str, Call] = field(default_factory=dict)  # the innermost call that made each node, if followed

    def place(self, node: str) -> Place:
        """The innermost line of user code that made a node; a line of torch.nn only if there is none."""
        places = self.places.get(node, ())
        return next((one for one in places if not is_library(one.path)), places[-1] if places else NOWHERE)


@contextmanager
def recorded(recording: Recording, follow_calls: bool = False) -> Iterator[None]:
    """Records the function that is traced inside of the context."""
    recorder = _Recorder(recording, sys._getframe(2))
    with recorder, _scalars(recorder), recorder.calls.followed() if follow_calls else nullcontext():
        yield


class _Recorder(TorchFunctionMode):
    def __init__(self, recording: Recording, root: FrameType) -> None:
        super().__init__()
        self.recording, self.root = recording, root
        self.calls = Calls(self._node_of)
        self._arguments: dict[int, tuple[FrameType, frozenset[int]]] = {}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        mode, kwargs = get_proxy_mode(), kwargs or {}
        if mode is None:
            return function(*args, **kwargs)
        frames = list(self._frames(sys._getframe(1)))
        for depth, frame in enumerate(reversed(frames)):
            self._note(frame, depth)
        nodes = mode.tracer.graph._root
        last = nodes.prev
        try:
            return function(*args, **kwargs)
        finally:
            places = tuple(map(place_in, frames))
            call = self.calls.current()
            node = nodes.prev
            while node is not last and node is not nodes:
                self.recording.places.setdefault(node.name, places)
                if call is not None:
                    self.recording.calls.setdefault(node.name, call)
                node = node.prev

    def _frames(self, frame: FrameType | None) -> Iterator[FrameType]:
        """The frames of user code and of torch.nn up to the traced function, the innermost first."""
        while frame is not None and frame is not self.root:
            path = frame.f_code.co_filename
            is_nn = path.endswith("nn/functional.py") or ("/torch/nn/modules/" in path and "module.py" not in path)
            if is_nn or not is_library(path):
                yield frame
            frame = frame.f_back

    def _note(self, frame: FrameType, depth: int) -> None:
        """Records variables of a frame that hold results of nodes, except arguments, which callers have names for."""
        if is_library(frame.f_code.co_filename):
            return
        values = {name: value for name, value in frame.f_locals.items() if not name.startswith("_")}
        if id(frame) not in self._arguments or self._arguments[id(frame)][0] is not frame:
            given = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
            self._arguments[id(frame)] = frame, frozenset(id(values[name]) for name in given if name in values)
        arguments = self._arguments[id(frame)][1]
        for name, value in values.items():
            if id(value) not in arguments:
                self._named(name, value, depth)

    def _named(self, name: str, value: object, depth: int) -> None:
        if isinstance(value, torch.SymInt):
            symbol = symbol_of(value.node.expr)
            if symbol is not None:
                self.recording.lengths.setdefault(symbol, name)
        elif isinstance(value, torch.Tensor):
            node = self._node_of(value)
            if node is not None and (node.op != "placeholder" or node.name in self.recording.unpacked):
                self.recording.names[node.name] = min(self.recording.names.get(node.name, (depth, name)), (depth, name))

    def _node_of(self, value: torch.Tensor) -> Any:
        mode: Any = get_proxy_mode()
        return mode.node_of(value) if mode is not None else None

    def made_number(self, node: Any, place: Place) -> None:
        """Records the symbols that a number was made from, and those that are known to depend on these."""
        own, lengths = symbols_of(node.expr), node.shape_env
        for symbol in lengths.hints:
            if symbols_of(lengths.current(of_symbol(symbol))) & own:
                self.recording.used.setdefault(symbol, place)


@contextmanager
def _scalars(recorder: _Recorder) -> Iterator[None]:
    """Keeps powers of lengths symbolic, and records the lengths that the user converts to numbers."""
    original = math.sqrt
    names = ("__index__", "__int__", "__pow__", "__rpow__")

    def sqrt(value: Any) -> Any:
        return torch.sym_sqrt(value) if isinstance(value, torch.SymInt | torch.SymFloat) else original(value)

    def noted(method: Callable[..., Any]) -> Callable[..., Any]:
        def number(self: Any) -> Any:
            frame = sys._getframe(1)
            if not is_library(frame.f_code.co_filename):
                recorder.made_number(self.node, place_in(frame))
            return method(self)

        return number

    def alone(method: Callable[..., Any]) -> Callable[..., Any]:
        def power(self: Any, other: Any) -> Any:
            with without_sympy():
                return method(self, other)

        return power

    with ExitStack() as swaps:
        swaps.enter_context(swapped(math, sqrt=sqrt))
        for kind in (torch.SymInt, torch.SymFloat):
            own = {name: vars(kind)[name] for name in names if name in vars(kind)}
            made = {name: (alone if "pow" in name else noted)(method) for name, method in own.items()}
            swaps.enter_context(swapped(kind, **made))
        yield


def place_in(frame: FrameType) -> Place:
    positions = list(frame.f_code.co_positions())
    line, end, column, last = positions[frame.f_lasti // 2] if frame.f_lasti >= 0 else (None,) * 4
    return placed(frame.f_code.co_filename, line or frame.f_lineno, end, column, last)
