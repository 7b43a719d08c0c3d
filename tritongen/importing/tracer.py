"""Makes a graph of the ATen operators that a function calls, with fake tensors whose lengths may be symbolic."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import PreDispatchTorchFunctionMode, ProxyTorchDispatchMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .formulas import COMPUTED, Expr, steps_of, symbol_of
from .symbols import Lengths, Node, without_sympy
from .targets import Length

_aten = torch.ops.aten
_ASKED = (torch.ops.prim.device.default, _aten.size.default, _aten.stride.default, _aten.storage_offset.default)
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"minimum": torch.sym_min, "maximum": torch.sym_max}
Decompositions = Mapping[Any, Callable[..., Any]]


class _WithoutDynamo:
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # Torch would import it.


class Tracer(_WithoutDynamo, ProxyTorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records ATen calls in a graph: composite operators as they are or, with `decompositions`, decomposed."""

    def __init__(
        self, lengths: Lengths, mode: FakeTensorMode | None = None, decompositions: Decompositions | None = None
    ) -> None:
        is_first = decompositions is None
        TorchDispatchMode.__init__(self, torch._C.DispatchKey.PreDispatch if is_first else None)  # type: ignore[no-untyped-call]
        self._mode_key = torch._C._TorchDispatchModeKey.PROXY
        self.enter_stack: list[Any] = []
        self.graph = torch.fx.Graph()
        self.tracer: Any = SimpleNamespace(graph=self.graph, tensor_tracker={}, create_node=self.graph.create_node)
        self.constants = SimpleNamespace(graph=self.graph)
        with without_sympy():
            self.mode = mode or Shapes(shape_env=lengths, static_shapes=True, allow_non_fake_inputs=True)  # type: ignore[arg-type]
        self.mode.cache_enabled = False
        self._lengths, self._decompositions = lengths, decompositions
        self._nodes: dict[int, tuple[Any, torch.fx.Node]] = {}
        self._scalars: dict[Expr, torch.fx.Node] = {}
        self._sources: dict[Any, tuple[torch.fx.Node, int]] = {}  # the (node, dimension) of each symbolic length

    @contextmanager
    def tracing(self, device: str = "") -> Iterator[None]:
        factories = Factories()  # type: ignore[no-untyped-call]
        switches = PreDispatchTorchFunctionMode(self.tracer) if self._decompositions is None else nullcontext()
        place = torch.device(device) if device else nullcontext()
        with self.mode, torch._C._EnablePythonDispatcher(), self, factories, switches, place:
            yield

    def argument(self, name: str, shape: Sequence[Length], dtype: torch.dtype, device: Any = None) -> Any:
        sizes = [one.number if one.fixed or one.number < 2 else self._lengths.new(one.number) for one in shape]
        with self.mode:
            made = torch.empty(sizes, dtype=dtype, device=device)
        return self.placed(self.graph.placeholder(name), made)

    def state(self, name: str, tensor: torch.Tensor) -> Any:
        with self.mode:
            made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        return self.placed(self.graph.placeholder(name), made)

    def placed(self, node: torch.fx.Node, tensor: Any) -> Any:
        node.meta["val"] = tensor
        self._nodes[id(tensor)] = tensor, node
        for place, size in enumerate(getattr(tensor, "shape", ())):
            if isinstance(size, torch.SymInt) and symbol_of(size.node.written) is not None:
                self._sources.setdefault(symbol_of(size.node.written), (node, place))
        return tensor

    def node_of(self, tensor: Any) -> Any:
        return self._nodes.get(id(tensor), (None, None))[1]

    def returns(self, results: Any) -> None:
        self.graph.output(pytree.tree_map(self._given, results))
        self.graph.eliminate_dead_code()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _ASKED:
            return func(*args, **kwargs)
        if self._decompositions is not None:
            with self, without_sympy():
                found = self._decompositions.get(func, func.decompose)(*args, **kwargs)
            if found is not NotImplemented:
                return found
        own_args, own_kwargs = pytree.tree_map(self._given, (args, kwargs))
        with without_sympy():
            found = func(*args, **kwargs)
        name = self.graph._target_to_str(func.overloadpacket.__name__)
        self._result(self.graph.create_node("call_function", func, own_args, own_kwargs, name), found)
        return found

    def _given(self, given: Any) -> Any:
        """A tensor or scalar as the argument of a node."""
        if isinstance(given, torch.SymInt | torch.SymFloat | torch.SymBool):
            return self._number(given.node)
        if not isinstance(given, torch.Tensor):
            return given
        node = self.node_of(given)
        if node is None:  # A constant.
            name = f"constant_{len(vars(self.constants))}"
            setattr(self.constants, name, given)
            node = self.graph.create_node("get_attr", name)
            self.placed(node, given)
        return node

    def _number(self, number: Node) -> Any:
        """The node that computes a symbolic scalar from lengths; a constant as it is."""
        if not number.is_symbolic():
            return number.written
        if number.written not in self._scalars:
            made = self._computed(number.written)
            made.meta["val"] = number.symbolic()
            self._scalars[number.written] = made
        return self._scalars[number.written]

    def _computed(self, expr: Expr) -> torch.fx.Node:
        if self._decompositions is not None:  # Nobody calls this graph.
            return self.graph.call_function(operator.index)
        symbol = symbol_of(expr)
        if symbol is not None:
            return self.graph.call_function(_aten.sym_size.int, self._sources[symbol])
        function, args = steps_of(expr)
        given = [self._number(self._lengths.node(one)) for one in args]
        return self.graph.call_function(_FUNCTIONS.get(function) or COMPUTED[function], tuple(given))

    def _result(self, node: torch.fx.Node, found: Any) -> None:
        if isinstance(found, tuple | list):
            node.meta["val"] = found
            for place, one in enumerate(found):
                self._result(self.graph.create_node("call_function", operator.getitem, (node, place), {}), one)
        elif isinstance(found, torch.Tensor):
            self.placed(node, found)
        else:
            node.meta["val"] = found
            if isinstance(found, torch.SymInt | torch.SymFloat | torch.SymBool):
                self._scalars.setdefault(found.node.written, node)


class Shapes(_WithoutDynamo, FakeTensorMode):  # type: ignore[no-untyped-call]
    """A fake tensor mode without the imports of sympy and dynamo that torch would make for it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with without_sympy():
            return super().__torch_dispatch__(func, types, args, kwargs)


class Factories(_WithoutDynamo, TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Passes factory functions, such as `zeros`, on to the tracer, since torch would run them before it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))
