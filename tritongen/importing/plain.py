"""Traces of functions whose lengths are only passed on: by torch's own kernels for `meta` tensors.

Torch's traces with symbolic lengths import sympy and dynamo, which takes longer than all the rest of an import. Here
each operator is called twice on tensors without memory: with the example's lengths, and with multiples of these. A
length that is the same in both is a number of the program; another is the length of a dimension of a node, which the
translation knows by its axes. `NeedsSymbols` is raised where more has to be known of lengths, or of values.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import PreDispatchTorchFunctionMode, ProxyTorchDispatchMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .symbols import Formula, NeedsSymbols, made
from .targets import Length
from .values import Symbolic

_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)


class OtherLengths(NeedsSymbols):
    """The function is another one at the other lengths, or none."""


@dataclass(frozen=True, eq=False, slots=True)
class _Node(Symbolic):
    """What torch reads of a number that lengths decide, with its value at the other lengths."""

    other: float | int

    @property
    def expr(self) -> Any:
        return self.formula

    def has_hint(self) -> bool:
        return True

    def is_symbolic(self) -> bool:
        return isinstance(self.formula, Formula)

    def is_constant(self) -> bool:
        return not self.is_symbolic()

    def is_nested_int(self) -> bool:
        return False

    def is_bool(self) -> bool:
        return isinstance(self.hint, bool)

    def is_int(self) -> bool:
        return isinstance(self.hint, int) and not self.is_bool()

    def is_float(self) -> bool:
        return isinstance(self.hint, float)

    def maybe_as_int(self) -> int | None:
        return None if self.is_symbolic() else int(self.hint)

    def wrap(self, number: Any) -> _Node:
        return _node(number, number, number)

    def fixed(self, *_: Any) -> Any:
        """The number, where the program needs to know it."""
        if self.is_symbolic():
            raise NeedsSymbols
        return self.hint

    def condition(self, *_: Any) -> bool:
        """What torch does for a length before it calls an operator is known by the example's."""
        return bool(self.hint)

    wrap_int = wrap_float = wrap_bool = wrap
    guard_int = guard_float = int_ = fixed
    guard_bool = bool_ = guard_size_oblivious = guard_or_true = guard_or_false = statically_known_true = condition

    def str(self) -> str:
        return str(self.formula)

    _graph_repr = str


def _node(formula: Any, hint: Any, other: Any) -> _Node:
    return _Node(hint, formula, formula, other)


def _compared(function: str) -> Callable[[_Node, _Node], _Node]:
    compute = getattr(operator, function)
    return lambda one, two: _node(
        Formula(function, (one.formula, two.formula)), compute(one.hint, two.hint), compute(one.other, two.other)
    )


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
for _name in _COMPARISONS:
    setattr(_Node, _name, _compared(_name))


def _number(function: str, compute: Callable[..., Any], *given: Any) -> Any:
    """A function of numbers, some of which lengths decide."""
    nodes = [one.node if isinstance(one, Int | Float) else _node(one, one, one) for one in given]
    values = [compute(*(getattr(one, name) for one in nodes)) for name in ("hint", "other")]
    if function in _COMPARISONS:
        if values[0] == values[1]:
            return values[0]
        raise OtherLengths if (function, values[0]) in (("eq", True), ("ne", False)) else NeedsSymbols
    formulas = [one.formula for one in nodes]
    node = _node(made(function, *formulas) if function else formulas[0], *values)
    return _number_of(node)


def _number_of(node: _Node) -> Any:
    return (Int if node.is_int() else Float)(node)


class _Arithmetic:
    """Torch's own arithmetic of symbolic numbers, without what it imports."""

    def __neg__(self) -> Any:
        return _number("neg", operator.neg, self)

    def __sym_float__(self) -> Any:
        return _number("", float, self)

    def __sym_sqrt__(self) -> Any:
        return _number("pow", operator.pow, self, 0.5)

    __hash__ = object.__hash__


def _define(name: str, function: str) -> None:
    compute = getattr(operator, name)

    def method(self: Any, other: Any) -> Any:
        return _number(function, compute, self, other) if isinstance(other, _SCALARS) else NotImplemented

    def reflected(self: Any, other: Any) -> Any:
        return _number(function, compute, other, self) if isinstance(other, _SCALARS) else NotImplemented

    setattr(_Arithmetic, f"__{name}__", method)
    if name not in _COMPARISONS:
        setattr(_Arithmetic, f"__r{name}__", reflected)


_FUNCTIONS = {"truediv": "div", "floordiv": "floor_divide", "mod": "remainder"}
for _name in ("add", "sub", "mul", "pow", "truediv", "floordiv", "mod", *_COMPARISONS):
    _define(_name, _FUNCTIONS.get(_name, _name))


class Int(_Arithmetic, torch.SymInt):
    """An integer that lengths decide."""


class Float(_Arithmetic, torch.SymFloat):
    """A number that lengths decide."""


_SCALARS = (int, float, Int, Float)


class Tensor(torch.Tensor):
    """A tensor of a trace: its node, and what it is at the example's lengths and at others, without memory."""

    node: torch.fx.Node
    here: torch.Tensor
    other: torch.Tensor

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @property
    def shape(self) -> torch.Size:  # type: ignore[override]
        pairs = zip(self.here.shape, self.other.shape, strict=True)
        return torch.Size([self._length(place, *pair) for place, pair in enumerate(pairs)])

    def _length(self, place: int, here: int, there: int) -> Any:
        if here == there:
            return here
        return _number_of(_node(Formula("length", (self.node, place)), here, there))

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> Any:
        return self.shape.numel()

    nelement = numel

    def __len__(self) -> int:
        return operator.index(self.shape[0])

    def stride(self, *_: Any) -> Any:
        raise NeedsSymbols


class Tracer(ProxyTorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes a graph of the operators that are called, composite ones as they are."""

    def __init__(self, scales: Mapping[int, int]) -> None:
        TorchDispatchMode.__init__(self, torch._C.DispatchKey.PreDispatch)  # type: ignore[no-untyped-call]
        self._mode_key = torch._C._TorchDispatchModeKey.PROXY
        self.enter_stack: list[Any] = []
        self.graph = torch.fx.Graph()
        self.tracer: Any = SimpleNamespace(graph=self.graph, tensor_tracker={})
        self._scales = scales
        self._stated: set[int] | None = {1, 0} if len({*scales.values()}) < min(len(scales), 2) else None

    @contextmanager
    def tracing(self) -> Iterator[None]:
        factories = Factories()  # type: ignore[no-untyped-call]
        switches = Switches(self.tracer)
        with torch.device("meta"), torch._C._EnablePythonDispatcher(), self, factories, switches:
            yield
        if switches.autocasts:
            raise NeedsSymbols

    def argument(self, name: str, shape: Sequence[Length], dtype: torch.dtype) -> Tensor:
        lengths = [one.number for one in shape]
        others = [one.number * (1 if one.fixed else self._scales.get(one.number, 1)) for one in shape]
        tensors = [torch.empty(one, dtype=dtype, device="meta") for one in (lengths, others)]
        return self._tensor(self.graph.placeholder(name), tensors[0], tensors[1])

    def state(self, tensor: torch.Tensor) -> Tensor:
        raise NeedsSymbols

    def returns(self, results: Sequence[Any]) -> None:
        if not all(isinstance(one, Tensor) for one in results):
            raise NeedsSymbols
        self.graph.output(tuple(one.node for one in results))

    def _tensor(self, node: torch.fx.Node, here: torch.Tensor, other: torch.Tensor, of: Tensor | None = None) -> Tensor:
        tensor = here.as_subclass(Tensor) if of is None else of
        tensor.node, tensor.here, tensor.other = node, here, other
        node.meta["val"] = tensor
        return tensor

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # Torch would import it.

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        flat, structure = pytree.tree_flatten((args, kwargs or {}))
        given, *calls = (
            pytree.tree_unflatten(list(one), structure) for one in zip(*map(self._seen, flat), strict=True)
        )
        with torch._C._DisablePythonDispatcher(), _stand_ins():
            here = func(*calls[0][0], **calls[0][1])
            try:
                other = func(*calls[1][0], **calls[1][1])
            except Exception:
                raise OtherLengths from None
        if func is torch.ops.prim.device.default:
            return here
        name = self.graph._target_to_str(func.overloadpacket.__name__)
        node = self.graph.create_node("call_function", func, given[0], given[1], name)
        if self._stated is not None:
            self._stated |= {one for one in flat if type(one) is int}
            for one in flat:
                if isinstance(one, Tensor):
                    self._stated |= {length for length in one.shape if type(length) is int}
        written = [one for one in flat if isinstance(one, Tensor)] if func._schema.is_mutable else []
        return self._results(node, here, other, written)

    def _seen(self, given: Any) -> tuple[Any, Any, Any]:
        """An argument in the graph, at the lengths of the example, and at others."""
        if isinstance(given, Tensor):
            return given.node, given.here, given.other
        if isinstance(given, torch.Tensor):
            raise NeedsSymbols  # A constant, whose value may matter.
        if isinstance(given, torch.SymInt | torch.SymFloat | torch.SymBool):
            number: Any = given.node
            return number, number.hint, number.other
        return given, given, given

    def _results(self, node: torch.fx.Node, here: Any, other: Any, written: Sequence[Tensor]) -> Any:
        if isinstance(here, torch.Tensor):
            pairs = zip(here.shape, other.shape, strict=True)
            if self._stated is not None and any(a == b and a not in self._stated for a, b in pairs):
                raise NeedsSymbols  # It may be how many times as long one length is as another.
            return self._tensor(node, here, other, next((one for one in written if one.here is here), None))
        if not isinstance(here, tuple | list):
            raise NeedsSymbols
        if len(here) != len(other):
            raise OtherLengths
        parts = []
        for place, pair in enumerate(zip(here, other, strict=True)):
            part = self.graph.create_node("call_function", operator.getitem, (node, place), {})
            parts.append(self._results(part, *pair, written))
        node.meta["val"] = type(here)(parts)
        return node.meta["val"]


def scales(shapes: Iterable[Sequence[Length]]) -> Iterator[dict[int, int]]:
    """What to multiply lengths of an example by: each by a prime, all by one, or all but one, as of weights."""
    scalars = [[one.number for one in shape if one.number > 1 and not one.fixed] for shape in shapes]
    lengths = list(dict.fromkeys(one for shape in scalars for one in shape))
    if len(lengths) <= len(_PRIMES):
        each = dict(zip(lengths, _PRIMES, strict=False))
        yield each
        yield dict.fromkeys(lengths, _PRIMES[0])
        for one in lengths:
            if all(shape.count(one) < 2 for shape in scalars):
                yield each | {one: 1}


class Factories(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Brings what makes tensors of numbers to the tracer, before which torch makes them."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def _stand_ins() -> Iterator[None]:
    """In the place of modules that torch's shape functions import for symbolic lengths, of which they get none."""
    marked = list[Any]()

    def disable(function: Any, *_: Any, **__: Any) -> Any:
        marked.append(function)
        return function

    every = {**_STAND_INS, "torch._dynamo": SimpleNamespace(disable=disable)}
    absent = {name: one for name, one in every.items() if name not in sys.modules}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
        for one in marked:
            del one.__dynamo_disable


_ITSELF = (
    "expect_true guard_int guard_or_false guard_or_true guard_size_oblivious guarding_hint_or_throw size_hint"
    " statically_known_true"
).split()
_STAND_INS: dict[str, Any] = {
    "torch.fx.experimental.symbolic_shapes": SimpleNamespace(
        **dict.fromkeys(_ITSELF, lambda number, *_, **__: number),
        **dict.fromkeys(("has_guarding_hint", "has_hint"), lambda _: True),
        is_nested_int=lambda _: False,
        sym_and=lambda *given: all(given),
        sym_eq=operator.eq,
        sym_or=lambda *given: any(given),
    ),
    "sympy": SimpleNamespace(Basic=_Node),  # What no number is here.
    "torch.utils._sympy.functions": SimpleNamespace(Max=max),
}


class Switches(PreDispatchTorchFunctionMode):
    """Puts switches of gradients into the graph, and refuses those of autocast."""

    autocasts = False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name in ("_enter_autocast", "_exit_autocast"):  # What is raised here would leave autocast on.
            self.autocasts = True
            return None
        if self.autocasts or name == "numel":
            raise NeedsSymbols
        if function is torch._C._set_grad_enabled:
            self.tracer.graph.create_node("call_function", function, args, {})
        return function(*args, **(kwargs or {}))
