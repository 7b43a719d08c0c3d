"""A traced graph -> values of the language, by operator; all operators that it cannot express are collected."""

from __future__ import annotations

import inspect
import operator as python
from dataclasses import replace
from typing import Any

import torch

from . import operators as _operators  # noqa: F401 - fills the table
from .axes import TWICE, Dim
from .building import Building, hint
from .decomposed import made_of
from .expressions import Apply, Expr, Input, Line, Number, Over, bare
from .formulas import symbol_of
from .naming import reachable
from .refusals import NOWHERE, Place, Refusal
from .symbols import Node
from .table import row_of
from .targets import COMPLEX
from .tracing import OWN_OPERATOR
from .values import GivenFloat, GivenInt, Symbolic, Value
from .writes import check_write, written_by

_IGNORED = frozenset(
    "memory_format layout device pin_memory requires_grad non_blocking copy out generator implicit".split()
)
_OF_VALUES = (
    "values decide the shape of this",
    "shapes of a spec follow from those of its inputs: write torch.where(mask, x, 0)",
)
_DEEP = 4  # nested decompositions of operators, at most


class Translation(Building):
    """Translates the nodes of a graph to `values`, and collects `problems`."""

    def run(self) -> list[Any]:
        """The values of the results; some are placeholders if there are `problems`."""
        nodes = self.trace.graph.graph.nodes
        results: list[Any] = []
        for size in (one for node in nodes for one in getattr(node.meta.get("val"), "shape", ())):
            if not isinstance(size, int) and size.node.hint == 0:
                size.node.number()  # A length of 0 is 0 in any call.
        arguments = iter(self.trace.arguments)
        for node in nodes:
            if node.op == "placeholder":
                self._placeholder(node, next(arguments))
            elif node.op == "output":
                found = node.args[0] if isinstance(node.args[0], list | tuple) else [node.args[0]]
                results = [self.values[one] for one in found]
                self.result_places = [self.trace.recording.place(one.name) for one in found]
            else:
                self._places = self.trace.recording.places.get(node.name, ())
                self._translate(node, self.trace.recording.place(node.name))
        return results

    def _placeholder(self, node: torch.fx.Node, argument: Any) -> None:
        dims: list[Dim] = []
        for length, size in zip(argument.shape, argument.tensor.shape, strict=True):
            formula = size.node.expr if isinstance(size, torch.SymInt) else None
            dim = self.axes.new(length.number, fixed=length.fixed, is_input=True, formula=formula)
            if length.name:
                self.axes.wish(dim, length.name, 0)
            used = symbol_of(size.node.written) if formula is not None else None
            if used in self.trace.recording.used:
                self.axes.fix(dim)
                self.used |= dict.fromkeys(dim, self.trace.recording.used[used])
            dims.append(dim)
        dtype = argument.tensor.dtype
        declared = tuple(self.axes.one() if not dim and argument.name in self._ones else dim for dim in dims)
        expr: Expr = Input(argument.name, declared)
        ones = tuple(axis for dim, own in zip(declared, dims, strict=True) if not own for axis in dim)
        if ones:
            expr = Apply("take", (expr, Number(0), Over(ones)))
        value = Value(expr, tuple(dims), dtype, dtype)
        self._note_axes(value)
        self.declared[argument.name] = declared
        self.inputs[argument.name] = value
        self.values[node] = value

    def _translate(self, node: torch.fx.Node, place: Place) -> None:
        outer, self.node = self.node, node
        try:
            self.values[node] = self._value(node)
            self._note_axes(self.values[node])
        except Refusal as refusal:
            if not any(map(_is_complex, node.all_input_nodes)):  # The operator that makes these is reported.
                refusal.place = place
                self.problems.append(refusal)
            self.refused += [] if self._depth else [node.name]
            self.values[node] = self._stand_in(node.meta.get("val"))
        finally:
            self.node = outer

    def _note_axes(self, value: Any) -> None:
        """Notes which axes occur in one value, so that they stay different. Refuses an axis in two dimensions."""
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, Value):
                atoms = self.axes.all_atoms(one.dims)
                if len(set(atoms)) < len(atoms):
                    raise Refusal(*TWICE)
                for expr in reachable([one.expr], self._noted):
                    self.axes.note(self.axes_of(expr))
                self.axes.note(atoms)

    def _stand_in(self, found: Any) -> Any:
        """Placeholder tensors with the shapes of a refused result, so that later operators are translated, too."""
        if isinstance(found, list | tuple):
            return [self._stand_in(one) for one in found]
        if not isinstance(found, torch.Tensor):
            return 1
        dims = tuple(self.axes.new(hint(one), is_input=True) for one in found.shape)
        return Value(Input("", dims), dims, found.dtype, found.dtype)

    def _value(self, node: torch.fx.Node) -> Any:
        found = node.meta.get("val")
        if isinstance(found, torch.SymInt | torch.SymFloat | torch.SymBool):
            return _number(found.node)
        if node.op == "get_attr":
            return self._constant(node)
        if node.target is python.getitem:
            several, place = self.argument(node.args[0]), node.args[1]
            return self._named(node, several[place])
        if node.target is torch._C._set_grad_enabled:
            self.is_detached = not node.args[0]
            return None
        if not isinstance(node.target, torch._ops.OpOverload):
            name = getattr(node.target, "__name__", str(node.target))
            if name == "_enter_autocast":
                dtype: Any = node.args[1] if node.args[2] else None
                self._autocast.append(dtype)
                return None
            if name == "_exit_autocast":
                self._autocast.pop()
                return None
            raise Refusal(f"the language has no `{name}`")
        _check_dtypes(node)
        value = self._called(node)
        return self._named(node, value)

    def _called(self, node: Any) -> Any:
        """The value of a call of an ATen operator."""
        target = node.target
        args, kwargs = self.argument(node.args), self.argument(dict(node.kwargs))
        packet = target._schema.name.split("::")[1]
        row = row_of(target) if target.namespace == "aten" else None
        writes = target._schema.is_mutable
        if writes:
            check_write(node, self.trace.arguments)
        if row is None:
            if writes:
                raise Refusal(f"`{packet}` writes in place", "compute a new tensor")
            return self._decomposed(node, packet)
        kwargs = {name: value for name, value in kwargs.items() if name not in _IGNORED}
        if self._autocast and self._autocast[-1] is not None and target._schema.returns:
            args, kwargs = self._cast((args, kwargs), self._autocast[-1])
        self.packet, build = row
        try:
            inspect.signature(build).bind(self, *args, **kwargs)
        except TypeError:
            raise Refusal(f"`{packet}` with these options") from None
        value = build(self, *args, **kwargs)
        for one in written_by(node):
            self.values[one] = value
        if self.is_detached and isinstance(value, Value):
            value = value.of(Apply("detach", (value.expr,)))
        return value

    def _cast(self, given: Any, dtype: torch.dtype) -> Any:
        """Float operands in the dtype of autocast, if the operator's result has that dtype."""
        if isinstance(given, dict):
            return {name: self._cast(one, dtype) for name, one in given.items()}
        if isinstance(given, list | tuple):
            return [self._cast(one, dtype) for one in given]
        is_cast = isinstance(given, Value) and given.dtype.is_floating_point and self.dtype == dtype
        return replace(given, dtype=dtype) if is_cast else given

    def argument(self, given: Any) -> Any:
        """An argument of an operator, with values in place of nodes, and Python numbers marked as given."""
        if isinstance(given, torch.fx.Node):
            return self.values[given]
        if isinstance(given, dict):
            return {name: self.argument(one) for name, one in given.items()}
        if isinstance(given, list | tuple):
            return [self.argument(one) for one in given]
        if type(given) in (int, float):
            return GivenInt(given) if type(given) is int else GivenFloat(given)
        return given

    def _constant(self, node: Any) -> Value:
        """A one-element tensor that the program made of a literal, as a constant. Raises `Refusal` for other ones."""
        tensor = getattr(self.trace.graph, node.target)
        if tensor.numel() != 1 or type(tensor).__name__ == "FakeTensor":
            message = f"a tensor of shape {list(tensor.shape)} that is no argument, parameter or buffer"
            raise Refusal(message, "make it an argument, or register it as a buffer of the module")
        return Value(self.number(tensor.item()), ((),) * tensor.ndim, tensor.dtype, tensor.dtype)

    def _named(self, node: torch.fx.Node, value: Any) -> Any:
        """A value under the name of the variable that holds it."""
        name = self._names.get(node.name, "")
        if not self._depth and name and isinstance(value, Value) and isinstance(bare(value.expr), Apply):
            return value.of(Line(name, value.expr))
        return value

    def _decomposed(self, node: Any, packet: str) -> Any:
        """The value of an operator without a row in the table, by torch's decomposition. Raises `Refusal`."""
        if node.target.namespace not in ("aten", "prims"):
            raise Refusal(f"`{node.target.namespace}::{packet}` {OWN_OPERATOR[0]}", OWN_OPERATOR[1])
        graph, given = made_of(node)
        if graph is None or self._depth >= _DEEP:
            raise Refusal(f"the language has no `{packet}`")
        inner = self._depth
        self._depth += 1
        before = len(self.problems)
        try:
            values = iter([self.values[one] for one in given])
            result: Any = None
            for one in graph.nodes:
                if one.op == "placeholder":
                    self.values[one] = next(values)
                elif one.op == "output":
                    result = self.argument(one.args[0])
                else:
                    self._translate(one, NOWHERE)
        finally:
            self._depth = inner
        if len(self.problems) > before:
            first = self.problems[before]
            del self.problems[before:]
            message = first.message if packet in first.message else f"`{packet}`: {first.message}"
            raise Refusal(message, first.hint)
        return result


def _number(node: Node) -> Any:
    if not node.has_hint():
        raise Refusal("a number that is read from a tensor", "keep it a tensor: a spec has tensors without axes")
    return Symbolic(node.hint, node.written, node.expr) if node.is_symbolic() else node.written


def _is_complex(node: Any) -> bool:
    return bool(getattr(getattr(node.meta.get("val"), "dtype", None), "is_complex", False))


def _check_dtypes(node: Any) -> None:
    if any(map(_is_complex, (node, *node.all_input_nodes))):
        raise Refusal(*COMPLEX)
    found = node.meta.get("val")
    for one in found if isinstance(found, tuple | list) else [found]:
        if isinstance(one, torch.Tensor) and one.is_sparse:
            raise Refusal("a sparse tensor")
        for length in one.shape if isinstance(one, torch.Tensor) else ():
            if isinstance(length, torch.SymInt) and not length.node.has_hint():
                raise Refusal(*_OF_VALUES)
