"""A target and an example -> its graph of ATen operators, with symbols for lengths, traced without memory or a GPU."""

from __future__ import annotations

import inspect
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, UnsupportedOperatorException
from torch.cuda.amp import common
from torch.utils import _pytree as pytree

from .formulas import symbol_of
from .limits import limits
from .recording import Recording, place_in, recorded
from .refusals import NOWHERE, Place, Refusal
from .swapping import swapped
from .symbols import Lengths, OfValues
from .targets import Example, Length, Target, is_library, place_of, snake, tensors_of, user_place
from .tracer import Tracer

_OF_VALUES = ("values decide what is computed here", "write torch.where(condition, a, b)")
OWN_OPERATOR = ("is an operator of somebody's own", "write its math")


@dataclass(frozen=True, slots=True)
class Argument:
    """A tensor that the function is called with: of an argument, or a module's parameter or buffer at `path`."""

    name: str
    tensor: torch.Tensor  # fake
    shape: tuple[Length, ...]
    path: str = ""
    wants_gradient: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """A traced call: its graph, whose placeholders are `arguments`, and the scalars that were passed."""

    graph: Any  # of torch.fx
    arguments: tuple[Argument, ...]
    scalars: Mapping[str, object]
    recording: Recording
    results: tuple[str, ...] = ()  # names of results, where the function has them
    symbols: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # the (argument, dimension) of each symbol
    given: Mapping[str, object] = field(default_factory=dict)  # the arguments of a call, tensors as examples
    structure: Any = None  # of a result: its pytree spec, and which leaves are tensors


def trace(target: Target, example: Mapping[str, Example | object], is_model: bool = False) -> Trace:
    """Traces the call of `target` by `example`. Raises `Refusal` for what cannot be traced.

    With `is_model`, parameters keep lengths, dtypes and device; else lengths are symbolic, and floats as in `example`.
    """
    made = _trace(target, example, is_model)
    for node in made.graph.graph.nodes:
        if getattr(node.target, "__name__", "") == "_enter_autocast" and node.args[0] != "cpu" and node.args[2]:
            return _trace(target, example, is_model, node.args[0])  # Autocast casts only tensors on its device.
    return made


def _trace(target: Target, example: Mapping[str, Example | object], is_model: bool, device: str = "") -> Trace:
    lengths = Lengths()
    tracer = Tracer(lengths)
    given = bound(target, example)
    arguments = tuple(_arguments(target, given, tracer, is_model, device))
    scalars = {name: value for name, value in given.items() if not any(tensors_of(value))}
    recording = Recording(unpacked={one.name for one in arguments if one.name not in given and not one.path})
    followed = recorded(recording, follow_calls=is_model)
    made = Trace(tracer.constants, arguments, scalars, recording, given=given)
    try:
        with (
            swapped(common, amp_definitely_not_available=lambda: False),  # Traces autocast for GPUs without one.
            swapped(logging.getLogger("torch._subclasses.fake_tensor"), disabled=True),  # Its errors are raised.
            swapped(torch.autograd.Function, apply=_noted_gradients(recording)),
            limits(_noted_limits(recording)),
            tracer.tracing(device),
            followed,
        ):
            found = call(target, made, tuple(one.tensor for one in arguments), scalars)
        found = _tensors_alone(found) if is_model else found
        names, flat = flat_results(found, place_of(_called(target)))
    except Refusal:
        raise
    except Exception as error:
        raise _explained(error, {str(one): str(length) for one, length in lengths.hints.items()}) from None
    tracer.returns(flat)
    made = replace(made, arguments=tuple(_renamed(arguments, recording)))
    return replace(
        made, results=tuple(names), symbols=symbols_in(made.arguments, "written"), structure=_structure(found)
    )


def _noted_gradients(recording: Recording) -> Any:
    """Records functions with a backward by the user, which may not be the gradient of their math."""
    original = vars(torch.autograd.Function)["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        path = getattr(sys.modules.get(cls.__module__), "__file__", None)
        if not is_library(path or ""):
            recording.own_gradients[cls.__name__] = place_in(sys._getframe(1))
        return original.__get__(None, cls)(*args, **kwargs)

    return classmethod(apply)


def _noted_limits(recording: Recording) -> Callable[[Any, FrameType], Any]:
    def of(found: Any, frame: FrameType) -> Any:
        recording.limits.append((found, place_in(frame)))
        return found

    return of


def bound(target: Target, example: Mapping[str, Example | object]) -> dict[str, Example | object]:
    """The example's arguments in the order of the signature, and numeric defaults. Raises `Refusal`."""
    signature = signature_of(target)
    if signature is None:
        return dict(example)
    try:
        args, keywords = _arranged(signature, example)
        found = signature.bind(*args, **keywords)
    except TypeError as error:
        message = f"the example does not fit {target.name}{signature}: {error}"
        hint = "--example gives the arguments by their names"
        raise Refusal(message, hint, "TG003", place_of(_called(target))) from None
    given = dict(found.arguments)
    for name, parameter in signature.parameters.items():
        if name not in given and isinstance(parameter.default, int | float):
            given[name] = parameter.default
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            given |= given.pop(name, {})
    names = [*signature.parameters, *given]
    return {name: given[name] for name in dict.fromkeys(names) if name in given}


def call(target: Target, trace: Trace, tensors: tuple[torch.Tensor, ...], scalars: Mapping[str, object]) -> Any:
    """Calls the original with `tensors` in place of its arguments, parameters and buffers."""
    pairs = list(zip(trace.arguments, tensors, strict=True))
    own = (tensor for one, tensor in pairs if not one.path)
    keywords = {
        name: pytree.tree_map_only(Example, lambda _: next(own), scalars.get(name, one))
        for name, one in trace.given.items()
    }
    signature = signature_of(target)
    args, keywords = _arranged(signature, keywords) if signature is not None else ((), keywords)
    if target.module is not None:
        state = {one.path: tensor for one, tensor in pairs if one.path}
        return torch.func.functional_call(target.module, state, tuple(args), keywords)
    try:
        return target.function(*args, **keywords)
    except TypeError:
        if signature is not None:
            raise
        return target.function(*keywords.values())  # A few builtins take no keywords.


def _called(target: Target) -> Callable[..., Any]:
    return target.function if target.module is None else target.module.forward


def signature_of(target: Target) -> inspect.Signature | None:
    """The signature of the function or of the module's forward; None if it has none, as some builtins."""
    try:
        return inspect.signature(_called(target))
    except (TypeError, ValueError):
        return None


def _arranged(signature: inspect.Signature, given: Mapping[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Positional and keyword arguments: `*args`, if given, and those before it by position, the others by keyword."""
    starred = next((one.name for one in signature.parameters.values() if one.kind is one.VAR_POSITIONAL), "")
    if starred not in given:
        return (), dict(given)
    before = [name for name in [*signature.parameters][: [*signature.parameters].index(starred)] if name in given]
    several = given[starred] if isinstance(given[starred], tuple | list) else (given[starred],)
    rest = {name: value for name, value in given.items() if name not in (*before, starred)}
    return [*(given[name] for name in before), *several], rest


def _arguments(
    target: Target, given: Mapping[str, object], tracer: Tracer, is_model: bool, device: str
) -> list[Argument]:
    own_device = next((one.device for one in target.module.parameters()), None) if is_model and target.module else None
    used = set(given)
    found = []
    for name, value in given.items():
        for place, one in enumerate(tensors_of(value)):
            dtype = getattr(torch, one.dtype)
            own_name = name if one is value else f"{name}_{place}"
            made = tracer.argument(own_name, one.shape, dtype, device or own_device)
            found.append(Argument(own_name, made, one.shape, "", dtype.is_floating_point))
    if target.module is None:
        return found
    floats = (one.tensor.dtype for one in found if one.tensor.dtype.is_floating_point)
    dtype = next(floats, torch.float32)
    state = [*target.module.named_parameters(), *target.module.named_buffers()]
    for path, tensor in state:
        name = _name_of(target.module, path)
        while name in used:
            name += "_param"
        used.add(name)
        shape = tuple(Length(length, "", is_model) for length in tensor.shape)
        own = dtype if tensor.dtype.is_floating_point and not is_model else tensor.dtype
        made = tracer.state(name, tensor) if is_model else tracer.argument(name, shape, own, device or None)
        found.append(Argument(name, made, shape, path, tensor.requires_grad))
    return found


def _name_of(module: Any, path: str) -> str:
    """`mlp.fc.weight` as a name; an index of `nn.Sequential` gets the layer's type as a prefix: `linear_0_weight`."""
    first, _, _ = path.partition(".")
    prefix = f"{snake(type(module.get_submodule(first)).__name__)}_" if first.isdigit() else ""
    return prefix + path.replace(".", "_").strip("_")


def _renamed(arguments: Sequence[Argument], recording: Recording) -> Iterator[Argument]:
    """Renames tensors of tuples after the variables that hold them, as in `cos, sin = position_embeddings`."""
    used = {one.name for one in arguments}
    for one in arguments:
        _, name = recording.names.get(one.name, (0, "")) if one.name in recording.unpacked else (0, "")
        yield replace(one, name=name) if name and name not in used else one
        used.add(name)


def symbols_in(arguments: Iterable[Argument], formula: str) -> dict[str, tuple[str, int]]:
    """The (argument, dimension) of each symbolic length, by its symbol in the attribute `formula` of SymInt nodes."""
    return {
        str(symbol_of(getattr(length.node, formula))): (one.name, place)  # type: ignore[attr-defined]
        for one in arguments
        for place, length in enumerate(one.tensor.shape)
        if isinstance(length, torch.SymInt)
    }


def _tensors_alone(found: Any) -> Any:
    """A model's dict of results, with None for those that are no tensors, such as a cache."""
    if isinstance(found, MutableMapping):
        for name, value in list(found.items()):
            if not isinstance(value, torch.Tensor):
                found[name] = None
    return found


def flat_results(found: Any, place: Place = NOWHERE) -> tuple[list[str], list[torch.Tensor]]:
    """The names of a result's tensors, if it has any, and the tensors. Raises `Refusal` for other results."""
    if isinstance(found, Mapping):
        names, values = list(map(str, found)), list(found.values())
    else:
        names = list(getattr(found, "_fields", ()))
        values = list(found) if isinstance(found, tuple | list) else [found]
    flat, named = list[torch.Tensor](), list[str]()
    for number, value in enumerate(values):
        if isinstance(value, Mapping | tuple | list):
            inner, tensors = flat_results(value, place)
            labels = inner or map(str, range(len(tensors)))
            named += [f"{names[number]}_{one}" if names else "" for one in labels]
            flat += tensors
        elif isinstance(value, torch.Tensor):
            named.append(names[number] if names else "")
            flat.append(value)
        elif value is not None:
            flat.clear()
            break
    if not flat:
        message = f"its result is {_kind_of(found)}, and not a tensor, or a tuple or dict of tensors"
        raise Refusal(message, "", "TG004", place)
    return named if any(named) else [], flat


def _kind_of(found: Any) -> str:
    kind = type(found).__name__
    return "None" if found is None else f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"


def _structure(found: Any) -> Any:
    """The structure of a result, and which of its leaves are tensors."""
    leaves, structure = pytree.tree_flatten(found)
    return structure, tuple(isinstance(one, torch.Tensor) for one in leaves)


def _explained(error: Exception, lengths: Mapping[str, str]) -> Refusal:
    """An exception of a trace, explained to the author of the function, with the example's lengths for symbols."""
    place = user_place(error, any_of_torch=True)
    text = str(error).strip().split("\n")[0] or type(error).__name__
    text = re.sub(r"\bs\d+\b", lambda found: lengths.get(found[0], found[0]), text)
    if isinstance(error, DataDependentOutputException | OfValues) or "Cannot cast FakeTensor" in text:
        return Refusal(*_OF_VALUES, "TG004", place)
    custom = re.search(r"<CustomOpDef\((\S+)\)>|no fake impl\w* .*?(\w+[:.]+\w+)", text)
    if custom or isinstance(error, UnsupportedOperatorException):
        name = custom[1] or custom[2] if custom else str(getattr(error, "func", ""))
        return Refusal(f"`{name}` {OWN_OPERATOR[0]}", OWN_OPERATOR[1], "TG001", place)
    if "numpy" in text:
        return Refusal("NumPy computes here, of values", "write it in torch", "TG004", place)
    fits = isinstance(error, RuntimeError | ValueError | IndexError | AssertionError | TypeError)
    hint = "the example may not fit the function" if fits and place != NOWHERE else ""
    return Refusal(f"calling it raises {type(error).__name__}: {_short(text)}", hint, "TG004", place)


def _short(text: str) -> str:
    return text if len(text) < 160 else text[:157] + "..."
