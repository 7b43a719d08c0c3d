"""Canonical forms of a traced node and of a chosen set of its ancestors."""

from __future__ import annotations

import operator as python
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..importing.axes import Dims
from ..importing.building import hint
from ..importing.partial import kind_of, subgraph_of
from ..importing.regions import is_number
from ..importing.tracing import Trace
from ..importing.translation import Translation
from ..importing.values import Value
from .forms import Form, reached
from .reading import ExprForms, functions_of


@dataclass(frozen=True, slots=True)
class Window:
    """A node (`root`) and some of its ancestors (`nodes`), with `values` and `forms` of these and of their inputs."""

    root: Any
    nodes: tuple[Any, ...]
    given: Mapping[str, Any]  # input nodes, by their names in forms
    values: Mapping[Any, Value]
    forms: Mapping[Any, Form]
    made: ExprForms
    translation: Translation

    def dims(self, node: Any) -> Dims:
        return tuple(map(self.translation.axes.atoms, self.values[node].dims))

    def length(self, axis: int) -> int:
        return self.translation.axes.length((axis,))

    def is_open(self, axis: int) -> bool:
        """Whether the axis may have another length in another call."""
        return not self.translation.axes[axis].fixed


class Windows:
    """Windows of one trace; functions of single nodes are cached."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._order = {one: place for place, one in enumerate(trace.graph.graph.nodes)}
        self._functions: dict[Any, frozenset[str] | None] = {}
        self._tops: dict[Any, str] = {}

    def of(self, root: Any, nodes: frozenset[Any]) -> Window | None:
        """The window of `root` and `nodes`; None if the language cannot express a node, or `root` is no tensor."""
        ordered = sorted(self._with_scalars(nodes), key=self._order.__getitem__)
        trace, given = subgraph_of(self._trace, ordered, [root], {})
        translation = Translation(trace, {})
        translation.run()
        if translation.problems:
            return None
        made = ExprForms(translation.axes)
        by_name = {one.name: one for one in trace.graph.graph.nodes}
        values, forms = {}, {}
        names = {one.name: node for one, node in zip(trace.arguments, given, strict=True)}
        copies: dict[Any, Any] = dict(zip(given, trace.graph.graph.nodes, strict=False))
        for node in (*given, *(one for one in ordered if not is_number(one))):
            value = translation.values.get(copies[node] if node in copies else by_name[node.name])
            if isinstance(value, Value):
                values[node], forms[node] = value, made(value.expr)
        if root not in forms:
            return None
        return Window(root, tuple(ordered), names, values, forms, made, translation)

    def _with_scalars(self, nodes: frozenset[Any]) -> set[Any]:
        """`nodes` and, transitively, their inputs that are symbolic scalars or lists of tensors."""

        def neighbours(node: Any) -> list[Any]:
            read = node.all_input_nodes
            return [one for one in read if is_number(one) or isinstance(one.meta.get("val"), list | tuple)]

        return set(reached(nodes, neighbours))

    def functions(self, node: Any) -> frozenset[str] | None:
        """The functions in a node's form; None if the node computes no tensor, or the language cannot express it."""
        if node not in self._functions:
            window = self._alone(node)
            self._functions[node] = None if window is None else functions_of(window.forms[node])
            self._tops[node] = "" if window is None else window.forms[node].kind
        return self._functions[node]

    def is_layout(self, node: Any) -> bool:
        """Whether the node is a shape or creation operator, or an item of a list that one returns."""
        made = node.args[0] if node.target is python.getitem else node
        return node.op == "call_function" and kind_of(made) in ("shapes", "creation")

    def top(self, node: Any) -> str:
        self.functions(node)
        return self._tops[node]

    def _alone(self, node: Any) -> Window | None:
        import torch

        if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
            return None
        try:
            return self.of(node, frozenset((node,)))
        except (KeyError, AssertionError, NotImplementedError):
            return None


def lengths_of(node: Any) -> list[int]:
    return [hint(one) for one in node.meta["val"].shape]
