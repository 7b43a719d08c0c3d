"""The functions of a model that contain regions: the innermost ones whose arguments provide an operator's inputs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import CodeType, FunctionType
from typing import Any

from ..importing.calls import At, Call
from ..importing.regions import is_number
from .finding import Found
from .layouts import Argument
from .masks import Mask
from .rewriting import narrowed
from .run import Search


class Stays(Exception):
    """Why a function is not replaced."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Where a function is stored under a name: a module, a class, or a dict in one of these."""

    module: str
    path: str  # of the class or dict in the module; "" for the module itself
    name: str
    is_key: bool


def owners(code: CodeType) -> tuple[Owner, ...]:
    """The modules, classes and dicts that have a function under a name; empty for functions nested in functions."""
    found: dict[tuple[int, str], Owner] = {}
    for module_name, module in sorted(sys.modules.items()):
        for path, holder in _holders(module_name, module):
            for name, value in list(holder.items()):
                if isinstance(value, FunctionType) and value.__code__ is code and isinstance(name, str):
                    owner = Owner(module_name, path, name, type(holder) is dict and holder is not vars(module))
                    found.setdefault((id(holder) if owner.is_key else hash((module_name, path)), name), owner)
    return tuple(found.values())


def _holders(module_name: str, module: Any) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    """The namespaces of a module and its own classes, and the dicts in both, by path. None of torch or tritongen."""
    names = getattr(module, "__dict__", None)
    if not isinstance(names, dict) or module_name.partition(".")[0] in ("torch", "tritongen"):
        return
    yield "", names
    for name, value in list(names.items()):
        if type(value) is dict and not name.startswith("__"):
            yield name, value
        elif isinstance(value, type) and vars(value).get("__module__") == module_name and value.__name__ == name:
            yield name, vars(value)
            yield from ((f"{name}.{key}", one) for key, one in vars(value).items() if type(one) is dict)


class Scope:
    """A call of a function. `given` has the expression by which it reads each node that its arguments provide."""

    def __init__(self, search: Search, call: Call) -> None:
        self.call = call
        self._calls = search.trace.recording.calls
        self.given: dict[Any, str] = {}
        self.modules: dict[str, str] = {}  # names of arguments that are modules of the model, by module path
        nodes = {node.name: node for node in search.trace.graph.graph.nodes}
        paths = {id(module): path for path, module in search.model.named_modules()}
        for name, value in call.arguments.items():
            if name in call.rest:
                continue
            if id(value) in paths:
                self.modules.setdefault(paths[id(value)], name)
            for text, one in _leaves(name, value):
                if isinstance(one, At) and one.node in nodes:
                    self.given.setdefault(nodes[one.node], text)
        placeholders = (node for node in search.trace.graph.graph.nodes if node.op == "placeholder")
        for node, argument in zip(placeholders, search.trace.arguments, strict=False):
            text = self.path_of(argument.path) if argument.path else ""
            if text:
                self.given.setdefault(node, text)

    def path_of(self, path: str) -> str:
        """The expression for a `path` of the model, as an attribute of an argument; "" if no argument leads there."""
        for prefix, name in self.modules.items():
            if path.startswith(f"{prefix}." if prefix else ""):
                names = path[len(prefix) :].strip(".").split(".")
                return name + "".join(f"[{one}]" if one.isdigit() else f".{one}" for one in names)
        return ""

    def makes(self, node: Any) -> bool:
        call = self._calls.get(node.name)
        return call is not None and self.call in call.enclosing()

    def has(self, node: Any) -> bool:
        return node in self.given or self.makes(node)

    def holds(self, found: Found) -> Found | None:
        """The region with inputs that the function has; None if it lacks one, or does not make a node in between."""
        best, mine = narrowed(found), narrowed(found, self.has)
        chosen = {}
        for name, choices in mine.choices.items():
            most = best.inputs[name].node.meta["val"].itemsize  # Operators need no copy in a wider dtype.
            fits = [one for one in map(self._of_here, choices) if one and one.node.meta["val"].itemsize <= most]
            if not fits:
                return None
            chosen[name] = (fits[0],)
        made = replace(found, choices=chosen)
        inside = made.inside | {one.node for one in found.masks}
        conditions = dict(self._conditions(found.masks, made.between(inside)))
        nodes = (one for one in made.between(inside, conditions) if not is_number(one))
        return replace(made, conditions=conditions) if all(map(self.makes, nodes)) else None

    def _conditions(self, masks: Iterable[Mask], nodes: Iterable[Any]) -> Iterator[tuple[Any, str]]:
        """The boolean masks of `nodes` that are arguments, each with the condition that a call has to check."""
        for node in nodes:
            if node in self.given and not self.makes(node) and not is_number(node):
                text = next(filter(None, (one.condition(node) for one in masks)), "")
                if text and str(node.meta["val"].dtype) == "torch.bool":
                    yield node, text

    def _of_here(self, argument: Argument) -> Argument | None:
        """The argument with lengths of tensors available in the function; None if a length or the tensor is not."""
        lengths = tuple(tuple(one for one in dims if self.has(one[0])) for dims in argument.lengths)
        has_all = all(bool(one) == bool(other) for one, other in zip(lengths, argument.lengths, strict=True))
        return replace(argument, lengths=lengths) if has_all and self.has(argument.node) else None


def _leaves(text: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, tuple | list):
        for place, one in enumerate(value):
            yield from _leaves(f"{text}[{place}]", one)
    else:
        yield text, value


def scope_of(search: Search, found: Found) -> tuple[Scope, Found]:
    """The innermost call that provides a region's inputs, and the region with these inputs. Raises `Stays`."""
    call = search.trace.recording.calls.get(found.root.name)
    why = "no function was followed that it is in"
    for one in call.enclosing() if call is not None else ():
        if one.rest[0] and one.arguments[one.rest[0]]:
            continue
        scope = Scope(search, one)
        held = scope.holds(found)
        if held is not None and owners(one.code):
            return scope, held
        if held is None and found.masks and not all(scope.makes(one.node) for one in found.masks):
            why = f"its mask is made outside of {one.code.co_qualname}"
        elif why.startswith("no function"):
            why = f"{one.code.co_qualname} has not all of what it reads"
    raise Stays(why)
