"""Prints functions of a model as Python that calls operators, from a trace in which operators replace regions."""

from __future__ import annotations

import builtins
import inspect
import keyword
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from torch.utils._pytree import tree_leaves

from ..importing.calls import At, Call
from ..importing.formulas import symbols_of
from ..importing.printed_calls import called, literal, named_arguments, plain
from ..importing.regions import is_number
from ..importing.targets import snake
from ..importing.variables import variables
from ..spec.types import Spec
from .finding import Found
from .rewriting import put
from .run import Search
from .scopes import Scope, Stays, scope_of

_LONG = 88  # characters; shorter expressions with one use are inlined


@dataclass(frozen=True, slots=True)
class Function:
    """A replaced function: the source of its replacement (`text`), and `examples` of calls that this accepts."""

    code: CodeType
    name: str
    text: str
    examples: tuple[str, ...]
    operators: tuple[str, ...]
    calls: int


@dataclass(frozen=True, slots=True)
class Left:
    found: Found
    why: str


def functions(search: Search) -> tuple[list[Function], list[Left]]:
    """Replacements of functions that contain regions, by first call, and the regions left out. Changes the trace."""
    held: dict[Call, list[Found]] = {}
    scopes: dict[Call, Scope] = {}
    left = []
    for found in search.report.found:
        try:
            scope, one = scope_of(search, found)
        except Stays as error:
            left.append(Left(found, str(error)))
            continue
        scopes[scope.call] = scope
        held.setdefault(scope.call, []).append(one)
    calls = search.trace.recording.calls
    names = variables(search.trace)
    made: dict[str, Any] = {}  # the nodes that replace the roots of regions
    for call, one in reversed([(call, one) for call, regions in held.items() for one in regions]):
        nodes = put(search.trace.graph.graph, one, _named(one.operator.spec.name))
        calls |= {node.name: call for node in nodes}
        made[one.root.name] = nodes[-1]
        nodes[-1].meta["val"] = one.root.meta["val"]
        names[nodes[-1].name] = names.get(one.root.name, "")
    texts = _Texts(search, made, names)
    done = []
    for code in dict.fromkeys(call.code for call in held):
        own = {call: regions for call, regions in held.items() if call.code is code}
        try:
            done += list(_functions(texts, code, {scopes[call]: regions for call, regions in own.items()}))
        except Stays as error:
            left += [Left(one, str(error)) for regions in own.values() for one in regions]
    return done, left


def _named(name: str) -> Callable[..., Any]:
    def operator(**_: Any) -> Any:
        raise AssertionError

    operator.__name__ = name
    return operator


def _functions(texts: _Texts, code: CodeType, scopes: Mapping[Scope, list[Found]]) -> Iterator[Function]:
    """Yields one replacement for each distinct body, which calls with the same lines share. Raises `Stays`."""
    name = snake(code.co_qualname.removesuffix(".forward"))
    calls = {call for one in texts.calls.values() for call in one.enclosing() if call.code is code}
    bodies: dict[str, list[_Body]] = {}
    for scope, regions in scopes.items():
        body = _Body(texts, scope, regions)
        bodies.setdefault(body.text(), []).append(body)
    for place, (text, same) in enumerate(bodies.items(), 1):
        examples = dict.fromkeys(one.example() for one in same)
        others = calls - {one.call for one in same}
        if any(_Body(texts, Scope(texts.search, one), ()).example(same[0]) in examples for one in others):
            raise Stays(f"other calls of {code.co_qualname} are like those that it is in")
        own = name if place == 1 else f"{name}_{place}"
        operators = dict.fromkeys(found.operator.spec.name for one in same for found in one.regions)
        source = f"def {own}({_signature(code)}):\n{text}"
        yield Function(code, own, source, tuple(examples), tuple(operators), len(same))


def _function_of(code: CodeType) -> FunctionType:
    import gc

    gc.unfreeze()  # Frozen objects, as before a fork, are not found as referrers.
    return next(one for one in gc.get_referrers(code) if isinstance(one, FunctionType))


def _signature(code: CodeType) -> str:
    pieces = []
    for one in inspect.signature(_function_of(code)).parameters.values():
        default = one.default if one.default is not inspect.Parameter.empty else None
        if not isinstance(default, int | float | str | None):
            raise Stays(f"{code.co_qualname} has a default that is no number")
        pieces.append(str(one.replace(annotation=inspect.Parameter.empty)))
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not any(piece.startswith("*") for piece in pieces[:-1]):
            pieces.insert(-1, "*")
    return ", ".join(pieces)


class _Texts:
    """State that all functions of a trace share."""

    def __init__(self, search: Search, made: Mapping[str, Any], names: Mapping[str, str]) -> None:
        self.search, self.names = search, names
        self.calls = search.trace.recording.calls
        self.order = list(search.trace.graph.graph.nodes)
        self._made = made
        self._nodes = {node.name: node for node in self.order}

    def node(self, one: At) -> Any:
        """The node of the original trace, with the example's metadata."""
        return self._nodes[one.node]

    def at(self, one: At) -> Any:
        """The node after replacement."""
        return self._made.get(one.node) or self._nodes[one.node]


class _Body:
    """The body of a function, printed for one of its calls."""

    def __init__(self, texts: _Texts, scope: Scope, regions: Iterable[Found]) -> None:
        self._texts, self._scope, self.call = texts, scope, scope.call
        self.regions = list(regions)
        self._conditions = {node.name: text for one in self.regions for node, text in one.conditions.items()}
        made = {texts.at(At(node.name)): text for node, text in scope.given.items()}
        self._text: dict[Any, str] = made  # the expressions of nodes
        self._given = frozenset(made)
        operators = (one.operator.spec.name for one in self.regions)
        self._taken = {*scope.call.arguments, *dir(builtins), *keyword.kwlist, "torch", *operators}
        self._uses: dict[Any, int] = {}
        self._used: set[str] = set()  # scalar arguments and attributes that the text has by name
        self._literals: set[float] = set()  # literals that may equal an argument
        self._is_strict = False  # whether lengths of the example are written as literals
        self._lengths = self._lengths_of_arguments()
        names = (one.code.co_names for one in self._calls_of_regions())
        self._attributes = frozenset(name for some in names for name in some)

    def _calls_of_regions(self) -> Iterator[Call]:
        """The calls that made nodes of the regions, from the innermost to the function's own."""
        for node in (node for one in self.regions for node in (one.root, *one.nodes)):
            call = self._texts.calls.get(node.name)
            for outer in call.enclosing() if call is not None else ():
                yield outer
                if outer is self.call:
                    break

    def text(self) -> str:
        units = self._units()
        lines = [line for unit in units for line in self._lines(unit)]
        return "\n".join(f"    {line}" for line in [*lines, f"return {self._written(self.call.result)}"])

    def _units(self) -> list[Any]:
        """The nodes and calls of modules that the result needs, in order."""
        wanted = [self._texts.at(one) for one in _tensors(self.call.result)]
        self._uses = dict.fromkeys(wanted, 1)
        units: dict[Any, None] = {}
        for node in reversed(self._texts.order):
            if node not in self._uses or node in self._given:
                continue
            unit = self._module_call(node) or node
            if unit in units:
                continue
            units[unit] = None
            for one in self._read_by(unit):
                self._uses[one] = self._uses.get(one, 0) + 1
        return list(reversed(units))

    def _read_by(self, unit: Any) -> Iterator[Any]:
        if isinstance(unit, Call):
            yield from (self._texts.at(one) for one in _tensors(unit.arguments))
            return
        if not self._scope.makes(unit):
            raise Stays(f"{self.call.code.co_qualname} reads what is made outside of it")
        schema = getattr(unit.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            raise Stays(f"{self.call.code.co_qualname} writes to a tensor in place")
        yield from (one for one in unit.all_input_nodes if not is_number(one))

    def _module_call(self, node: Any) -> Call | None:
        """The outermost module call in the function that returns `node` and may stay as it is, or None."""
        found = None
        call = self._texts.calls.get(node.name)
        for one in call.enclosing() if call is not None else ():
            if one is self.call:
                return found
            if self._is_module_call(one) and node in map(self._texts.at, _tensors(one.result)):
                found = one
        return None

    def _is_module_call(self, call: Call) -> bool:
        module = next(iter(call.arguments.values()), None)
        if call.code.co_name != "forward" or not self._path_of(module):
            return False
        rest = [value for name, value in call.arguments.items() if value is not module]
        return all(isinstance(one, At | int | float | str | None) for value in rest for one in tree_leaves(value))

    def _path_of(self, module: Any) -> str:
        paths = (path for path, one in self._texts.search.model.named_modules() if one is module)
        return next(filter(None, map(self._scope.path_of, paths)), "")

    # Lines.

    def _lines(self, unit: Any) -> Iterator[str]:
        if isinstance(unit, Call):
            yield from self._lines_of_call(unit)
            return
        text = self._value(unit)
        if self._uses[unit] == 1 and len(text) < _LONG:
            self._text[unit] = text
            return
        self._text[unit] = self._name(self._texts.names.get(unit.name, ""), self._base(unit))
        yield f"{self._text[unit]} = {text}"

    def _lines_of_call(self, call: Call) -> Iterator[str]:
        (_, module), *rest = call.arguments.items()
        path = self._path_of(module)
        args: list[str] = []
        for name, value in rest:
            if name == call.rest[0]:
                args += map(self._written, value)
            elif name == call.rest[1]:
                args += [f"{key}={self._written(one)}" for key, one in value.items()]
            elif value is not None:
                args.append(self._written(value) if len(rest) == 1 else f"{name}={self._written(value)}")
        text = f"{path}({', '.join(args)})"
        results = [self._texts.at(one) for one in _tensors(call.result)]
        if isinstance(call.result, At) and self._uses.get(results[0]) == 1 and len(text) < _LONG:
            self._text[results[0]] = text
            return
        base = path.rpartition(".")[2].strip("]").replace("[", "_")
        names = [self._name(self._texts.names.get(one.name, ""), base) for one in results]
        self._text |= dict(zip(results, names, strict=True))
        if isinstance(call.result, At):
            yield f"{names[0]} = {text}"
        else:
            given = iter(names)
            yield ", ".join(next(given) if isinstance(one, At) else "_" for one in call.result) + f" = {text}"

    def _base(self, node: Any) -> str:
        """The default name of a value that has no variable in the source."""
        schema = getattr(node.target, "_schema", None)
        if schema is not None:
            return str(schema.name.split("::")[1].strip("_"))
        spec = self._spec(node)
        return spec.outputs[0].name if spec is not None else "value"

    def _spec(self, node: Any) -> Spec | None:
        name = getattr(node.target, "__name__", "")
        return next(
            (one.operator.spec for one in self._texts.search.report.found if one.operator.spec.name == name), None
        )

    def _name(self, wanted: str, base: str) -> str:
        name = wanted or base
        count = 2
        while name in self._taken:
            name, count = f"{wanted or base}_{count}", count + 1
        self._taken.add(name)
        return name

    def _value(self, node: Any) -> str:
        import torch

        schema = getattr(node.target, "_schema", None)
        if schema is None:
            return self._plain(node)
        if _is_same(node):
            return self._written(node.args[0])
        kinds = [str(one.real_type) for one in schema.arguments]
        names = [one.name for one in schema.arguments]
        args = [
            self._argument(one, *pair) for one, pair in zip(node.args, zip(names, kinds, strict=True), strict=False)
        ]
        by_name = dict(zip(names, kinds, strict=True))
        makes = not any(isinstance(one, torch.fx.Node) and not is_number(one) for one in tree_leaves(node.args))
        self._is_strict |= makes and any(type(one) is int and one > 1 for one in tree_leaves(node.args))
        named = {name: self._argument(one, name, by_name[name]) for name, one in named_arguments(node).items()}
        return called(node, args, named)

    def _plain(self, node: Any) -> str:
        """A call of an operator, an item of a list, or arithmetic of lengths. Raises `Stays` for other functions."""
        if text := plain(node, list(map(self._written, node.args))):
            return text
        name = getattr(node.target, "__name__", str(node.target))
        spec = self._spec(node)
        if spec is None:
            raise Stays(f"`{name}` in {self.call.code.co_qualname}")
        args: list[str] = []
        for one in spec.inputs:
            if one.name in node.kwargs:
                text = self._written(node.kwargs[one.name])
                args.append(text if len(args) == spec.inputs.index(one) else f"{one.name}={text}")
        params = [one.name for one in spec.params if one.name in node.kwargs]
        return f"{name}({', '.join([*args, *(f'{one}={self._param(one, node.kwargs[one])}' for one in params)])})"

    def _param(self, name: str, value: Any) -> str:
        """A param of an operator: the name of an argument or attribute that has its value, or else a literal."""
        if isinstance(value, bool | str):
            return repr(value)
        text = self._name_of_number(value, name)
        self._is_strict = self._is_strict or not text
        return text or repr(value)

    def _name_of_number(self, value: float | int, name: str = "") -> str:
        """The only argument of the function, or attribute that it reads, with this value; "" for none or several."""
        found = {key: key for key, one in self.call.arguments.items() if _is_equal(one, value)}
        for prefix, key in self._scope.modules.items():
            own = vars(self._texts.search.model.get_submodule(prefix))
            names = (one for one in own if one in self._attributes and _is_equal(own[one], value))
            found |= {one: f"{key}.{one}" for one in names}
        if len(found) > 1 and name:
            found = {key: text for key, text in found.items() if name in key or key in name}
        if len(found) != 1:
            return ""
        self._used |= set(found)
        return next(iter(found.values()))

    # Arguments.

    def _argument(self, value: Any, name: str, kind: str) -> str:
        if "SymInt" in kind and any(type(one) is int and one > 1 for one in tree_leaves(value)):
            self._is_strict = self._is_strict or name not in ("dim", "dim0", "dim1", "start", "end", "step")
        if ("number" in kind or "float" in kind) and type(value) in (int, float) and value not in (-1, 0, 1, 2):
            text = next((key for key, one in self.call.arguments.items() if _is_equal(one, value)), "")
            self._literals |= set() if text else {float(value)}
            self._used |= {text} if text else set()
            return text or repr(value)
        if name in ("train", "training") and isinstance(value, bool) and self._scope.modules:
            return f"{next(iter(self._scope.modules.values()))}.training"
        return self._written(value)

    def _written(self, value: Any) -> str:
        import torch

        if isinstance(value, At):
            return self._text[self._texts.at(value)]
        if isinstance(value, torch.fx.Node):
            return self._text[value] if not is_number(value) else self._number(value.meta["val"])
        if isinstance(value, torch.SymInt | torch.SymFloat):
            return self._number(value)
        if isinstance(value, tuple):
            return f"({', '.join(map(self._written, value))}{',' * (len(value) == 1)})"
        if isinstance(value, list):
            return f"[{', '.join(map(self._written, value))}]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {self._written(one)}" for key, one in value.items()) + "}"
        if text := literal(value):
            return text
        if isinstance(value, torch.device):
            return f"{next(iter(self._scope.given.values()))}.device"
        raise Stays(f"{self.call.code.co_qualname} returns or passes on a {type(value).__name__}")

    def _number(self, value: Any) -> str:
        """Arithmetic of lengths, with shapes of arguments for symbols. Raises `Stays` if no argument has a length."""
        known = self._lengths
        text = str(value.node.expr)
        if text in known:
            return known[text]
        made = re.sub(r"[A-Za-z_]\w*", lambda found: known.get(found[0], found[0]), text)
        if any(str(one) not in known for one in symbols_of(value.node.expr)):
            raise Stays(f"{self.call.code.co_qualname} has no tensor of the length {text}")
        return f"({made})" if made != known.get(text) else made

    def _lengths_of_arguments(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for node, text in self._scope.given.items():
            for place, length in enumerate(node.meta["val"].shape):
                if not isinstance(length, int):
                    found.setdefault(str(length.node.expr), f"{text}.shape[{place}]")
        return found

    # Examples.

    def example(self, like: _Body | None = None) -> str:
        """The patterns of a call's arguments, as Python; as strict as for the body `like`, if its text is used."""
        import torch

        of = like or self
        self._is_strict, self._used, self._literals = of._is_strict, of._used, of._literals
        letters: dict[str, str] = {}
        rest = dict(self.call.arguments)
        named = rest.pop(self.call.rest[1], {}) if self.call.rest[1] else {}
        rest.pop(self.call.rest[0], None)
        integers = {one for one in rest.values() if type(one) is int and one > 1}
        used = [name for name, one in rest.items() if name in self._used and one not in self._literals]
        given = {name: one for name, one in rest.items() if name not in used}
        given |= _of(named, lambda one: not isinstance(one, bool | None))
        modules = _of(given, lambda one: isinstance(one, torch.nn.Module))
        plain = _of(given, lambda one: not isinstance(one, torch.nn.Module))
        texts = {name: self._like(one, letters, integers) for name, one in (_of(plain, _tensors) | plain).items()}
        texts |= _of({name: self._has(one, of._attributes) for name, one in modules.items()}, bool)
        texts |= dict.fromkeys([*used, *_of(named, _tensors)], "ANY")
        return "{" + ", ".join(f'"{name}": {text}' for name, text in texts.items()) + "}"

    def _has(self, module: Any, read: frozenset[str]) -> str:
        """The pattern of the module's attributes that a function reads; "" if its text holds for all values."""
        if not self._is_strict:
            return ""
        own = {
            name: one for name, one in vars(module).items() if name in read and name not in (*self._used, "training")
        }
        shown = [f"{name}={one!r}" for name, one in own.items() if isinstance(one, bool | int | float | str | None)]
        return f"Has({', '.join(shown)})" if shown else ""

    def _like(self, value: Any, letters: dict[str, str], integers: set[int]) -> str:
        import torch

        if isinstance(value, At):
            tensor = self._texts.node(value).meta["val"]
            dims = [self._dim(one, letters, integers) for one in tensor.shape]
            if value.node in self._conditions:
                return f"Mask(lambda i, n: {self._conditions[value.node]}, {', '.join(dims)})"
            return f"Like({', '.join([str(tensor.dtype), *dims])})"
        if isinstance(value, tuple | list):
            texts = [self._like(one, letters, integers) for one in value]
            return f"({', '.join(texts)}{',' * (len(texts) == 1)})"
        if isinstance(value, torch.device):
            return "ANY"
        if isinstance(value, torch.SymInt):
            return f"Like(int, {self._dim(value, letters, integers)})"
        if type(value) is int and str(value) in letters:
            return f"Like(int, {letters[str(value)]})"
        if isinstance(value, torch.dtype | int | float | str | None):
            return repr(value)
        raise Stays(f"{self.call.code.co_qualname} is given a {type(value).__name__}")

    def _dim(self, length: Any, letters: dict[str, str], integers: set[int]) -> str:
        if isinstance(length, int) and (self._is_strict or length < 2):
            return str(length)
        if isinstance(length, int) and length not in integers:
            return "ANY"
        text = str(length) if isinstance(length, int) else str(length.node.expr)
        return letters.setdefault(text, f'"{chr(ord("A") + len(letters))}"')


def _of(given: Mapping[str, Any], is_wanted: Callable[[Any], object]) -> dict[str, Any]:
    return {name: one for name, one in given.items() if is_wanted(one)}


def _tensors(value: Any) -> list[At]:
    return [one for one in tree_leaves(value) if isinstance(one, At)]


def _is_same(node: Any) -> bool:
    """Whether a view, reshape, expand or alias keeps the shape."""
    if node.target._schema.name not in ("aten::view", "aten::reshape", "aten::expand", "aten::alias"):
        return False
    one, other = (each.meta.get("val") for each in (node, node.args[0]))
    return one is not None and other is not None and one.shape == other.shape


def _is_equal(one: Any, value: Any) -> bool:
    return type(one) in (int, float) and math.isclose(one, value, rel_tol=1e-9)
