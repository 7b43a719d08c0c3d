"""The Python that calls the operators of regions, and torch for the nodes between them."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .printed_calls import called, literal, named_arguments, plain
from .refusals import Refusal
from .regions import Region, is_number
from .tracing import Trace
from .variables import variables


class Module:
    """Prints a function of a trace's arguments, line by line; variables have the source's names if there are any."""

    def __init__(self, trace: Trace, regions: Sequence[Region], name: str) -> None:
        self._trace, self._regions, self._name = trace, regions, name
        self._last = {region.nodes[-1]: region for region in regions}
        self._inside = {one for region in regions for one in region.nodes if not is_number(one)}
        self._wanted = variables(trace)
        self._names: dict[Any, str] = {}
        self._used = {"torch", "operator", "math", name, *(region.imported.name for region in regions)}

    def text(self) -> str:
        lines = list(self._lines())
        name, sign, value = lines[-2].partition(" = ") if len(lines) > 1 else ("", "", "")
        if sign and lines[-1] == f"return {name}":
            lines[-2:] = [f"return {value}"]
        arguments = ", ".join(one.name for one in self._trace.arguments)
        operators = ", ".join(sorted(region.imported.name for region in self._regions))
        body = "\n".join(f"    {line}" for line in lines)
        uses = "import torch\n\n" if "torch." in body else ""
        head = f'"""{self._name}: operators that tritongen generated, and torch for what no spec says."""'
        return f"{head}\n\n{uses}from generated import {operators}\n\n\ndef {self._name}({arguments}):\n{body}\n"

    def _lines(self) -> Iterator[str]:
        arguments = iter(self._trace.arguments)
        nodes = list(self._trace.graph.graph.nodes)
        needed = self._needed(nodes)
        for node in nodes:
            if node.op == "placeholder":
                self._names[node] = next(arguments).name
                self._used.add(self._names[node])
            elif node.op == "output":
                found = node.args[0] if isinstance(node.args[0], list | tuple) else [node.args[0]]
                yield "return " + ", ".join(map(self._written, found))
            elif node in self._last:
                yield from self._call(self._last[node])
            elif node in needed and node not in self._inside:
                value = self._value(node)
                yield f"{self._name_of(node)} = {value}"

    def _needed(self, nodes: Sequence[Any]) -> set[Any]:
        """The nodes that results and operators read, transitively."""
        needed: set[Any] = set()
        for node in reversed(nodes):
            if node in self._last:
                needed |= set(self._last[node].given)
            if node.op == "output" or (node in needed and node not in self._inside):
                needed |= set(node.all_input_nodes)
        return needed

    def _call(self, region: Region) -> Iterator[str]:
        by_name = {one.name: node for one, node in zip(region.trace.arguments, region.given, strict=True)}
        given = ", ".join(self._written(by_name[one]) for one in region.imported.inputs)
        names = ", ".join(map(self._name_of, region.results))
        yield f"{names} = {region.imported.name}({given})"
        for result, ones in zip(region.results, region.imported.ones, strict=True):
            if ones:
                name = self._names[result]
                yield f"{name} = {name}" + "".join(f".unsqueeze({place})" for place in ones)

    def _name_of(self, node: Any) -> str:
        name: str = self._wanted.get(node.name, node.name)
        if name in self._used or not name.isidentifier() or keyword.iskeyword(name):
            name = node.name
        while name in self._used:
            name += "_"
        self._used.add(name)
        self._names[node] = name
        return name

    def _value(self, node: Any) -> str:
        args = [self._written(one) for one in node.args]
        if text := plain(node, args):
            return text
        if node.op != "call_function" or not hasattr(node.target, "_schema"):
            name = getattr(node.target, "__name__", str(node.target))
            raise Refusal(f"`{name}` in the Python between operators")
        return called(node, args, {name: self._written(one) for name, one in named_arguments(node).items()})

    def _written(self, given: Any) -> str:
        if isinstance(given, torch.fx.Node):
            return self._names[given]
        if isinstance(given, list | tuple):
            return f"[{', '.join(map(self._written, given))}]"
        if isinstance(given, torch.device):
            return f"torch.device({str(given)!r})"
        return literal(given) or repr(given)
