"""A target and an example -> its graph of ATen operators, with symbols for lengths, traced without memory or a GPU."""

from __future__ import annotations

import inspect
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import TYPE_CHECKING, Any

from .formulas import symbol_of
from .limits import limits
from .recording import Recording, place_in, recorded
from .refusals import NOWHERE, Place, Refusal
from .targets import Example, Length, Located, Target, is_library, place_of, snake, user_place

if TYPE_CHECKING:
    import torch

    from .tracer import Tracer


@dataclass(frozen=True, slots=True)
class Argument:
    """A tensor that the function is called with: an argument's or, with its path in the module, a parameter's."""

    name: str
    tensor: torch.Tensor  # fake
    shape: tuple[Length, ...]
    path: str = ""
    wants_gradient: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """What is known of a call: its graph, whose placeholders are `arguments`, and the scalars that it was given."""

    graph: Any  # of torch.fx
    arguments: tuple[Argument, ...]
    scalars: Mapping[str, object]
    recording: Recording
    results: tuple[str, ...] = ()  # names of results, where the function has them
    symbols: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # which argument's which dimension
    order: tuple[str, ...] = ()  # of the arguments of a call, tensors and others
    structure: Any = None  # of a result, as torch.utils._pytree has it, where its leaves are tensors


def trace(target: Target, example: Mapping[str, Example | object], is_model: bool = False) -> Trace:
    """Parameters of a model have the lengths, dtypes and device that they have; others those of the example.

    Raises `Located` for what cannot be traced.
    """
    made = _trace(target, example, is_model)
    for node in made.graph.graph.nodes:
        if getattr(node.target, "__name__", "") == "_enter_autocast" and node.args[0] != "cpu" and node.args[2]:
            return _trace(target, example, is_model, node.args[0])  # It casts tensors of its device alone.
    return made


def _trace(target: Target, example: Mapping[str, Example | object], is_model: bool, device: str = "") -> Trace:
    from .symbols import Lengths
    from .tracer import Tracer

    lengths = Lengths()
    tracer = Tracer(lengths)
    given = bound(target, example)
    arguments = tuple(_arguments(target, given, tracer, is_model, device))
    scalars = {name: value for name, value in given.items() if not isinstance(value, Example)}
    recording = Recording()
    followed = recorded(recording, follow_calls=is_model)
    made = Trace(tracer.constants, arguments, scalars, recording, (), dict(_symbols(arguments)), tuple(given))
    try:
        noted = _noted_gradients(recording), limits(_noted_limits(recording))
        with _autocast_of_any_device(), _unlogged(), noted[0], noted[1], tracer.tracing(device), followed:
            found = call(target, made, tuple(one.tensor for one in arguments), scalars)
        found = _tensors_alone(found) if is_model else found
        names, flat = _flat(found, place_of(target.function if target.module is None else target.module.forward))
    except Located:
        raise
    except Exception as error:
        raise _explained(error, {str(one): str(length) for one, length in lengths.hints.items()}) from None
    tracer.returns(flat)
    return replace(made, results=tuple(names), structure=_structure(found))


@contextmanager
def _unlogged() -> Iterator[None]:
    """What a fake tensor refuses is raised, and is not logged besides."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


@contextmanager
def _noted_gradients(recording: Recording) -> Iterator[None]:
    """Notes functions whose backward the user wrote, which may not be the gradient of their math."""
    import torch

    original = vars(torch.autograd.Function)["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        path = getattr(sys.modules.get(cls.__module__), "__file__", None)
        if not is_library(path or ""):
            recording.own_gradients[cls.__name__] = place_in(sys._getframe(1))
        return original.__get__(None, cls)(*args, **kwargs)

    torch.autograd.Function.apply = classmethod(apply)  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        torch.autograd.Function.apply = original  # type: ignore[method-assign]


def _noted_limits(recording: Recording) -> Callable[[Any, FrameType], Any]:
    def of(found: Any, frame: FrameType) -> Any:
        recording.limits.append((found, place_in(frame)))
        return found

    return of


@contextmanager
def _autocast_of_any_device() -> Iterator[None]:
    """Autocast of a GPU is what it is where there is none, too."""
    from torch.cuda.amp import common

    original = common.amp_definitely_not_available
    common.amp_definitely_not_available = lambda: False
    try:
        yield
    finally:
        common.amp_definitely_not_available = original


def bound(target: Target, example: Mapping[str, Example | object]) -> dict[str, Example | object]:
    """The example's arguments in the order of the function's, with its numbers that have defaults."""
    try:
        forward: Callable[..., Any] = target.module.forward if target.module is not None else target.function
        signature = inspect.signature(forward)
    except (TypeError, ValueError):
        return dict(example)
    try:
        found = signature.bind(**example)
    except TypeError as error:
        message = f"the example does not fit {target.name}{signature}: {error}"
        hint = "--example gives the arguments by their names"
        raise Located(Refusal(message, hint, "TG003"), place_of(forward)) from None
    given = dict(found.arguments)
    for name, parameter in signature.parameters.items():
        if name not in given and isinstance(parameter.default, int | float):
            given[name] = parameter.default
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            given |= given.pop(name, {})
    names = [*signature.parameters, *given]
    return {name: given[name] for name in dict.fromkeys(names) if name in given}


def call(target: Target, trace: Trace, tensors: tuple[torch.Tensor, ...], scalars: Mapping[str, object]) -> Any:
    """The original's result of tensors in the place of its arguments, parameters and buffers."""
    import torch

    pairs = list(zip(trace.arguments, tensors, strict=True))
    keywords = {one.name: tensor for one, tensor in pairs if not one.path} | dict(scalars)
    if target.module is None:
        if not _has_signature(target.function):  # Builtins take arguments by names too, but for a few.
            try:
                return target.function(**keywords)
            except TypeError:
                return target.function(*(keywords[name] for name in trace.order))
        return target.function(**keywords)
    state = {one.path: tensor for one, tensor in pairs if one.path}
    return torch.func.functional_call(target.module, state, (), keywords)


def _has_signature(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function)
    except (TypeError, ValueError):
        return False
    return True


def _arguments(
    target: Target, given: Mapping[str, object], tracer: Tracer, is_model: bool, device: str
) -> list[Argument]:
    import torch

    own_device = next((one.device for one in target.module.parameters()), None) if is_model and target.module else None
    taken = set(given)
    found = []
    for name, one in given.items():
        if isinstance(one, Example):
            dtype = getattr(torch, one.dtype)
            made = tracer.argument(name, one.shape, dtype, device or own_device)
            found.append(Argument(name, made, one.shape, "", dtype.is_floating_point))
    if target.module is None:
        return found
    floats = (one.tensor.dtype for one in found if one.tensor.dtype.is_floating_point)
    dtype = next(floats, torch.float32)
    state = [*target.module.named_parameters(), *target.module.named_buffers()]
    for path, tensor in state:
        name = _name_of(target.module, path)
        while name in taken:
            name += "_param"
        taken.add(name)
        shape = tuple(Length(length, "", is_model) for length in tensor.shape)
        own = dtype if tensor.dtype.is_floating_point and not is_model else tensor.dtype
        made = tracer.state(name, tensor) if is_model else tracer.argument(name, shape, own, device or None)
        found.append(Argument(name, made, shape, path, tensor.requires_grad))
    return found


def _name_of(module: Any, path: str) -> str:
    """`mlp.fc.weight` as a name; of what `nn.Sequential` only counts, the layer is said: `linear_0_weight`."""
    first, _, _ = path.partition(".")
    prefix = f"{snake(type(module.get_submodule(first)).__name__)}_" if first.isdigit() else ""
    return prefix + path.replace(".", "_").strip("_")


def _symbols(arguments: tuple[Argument, ...]) -> list[tuple[str, tuple[str, int]]]:
    import torch

    return [
        (str(symbol_of(length.node.written)), (one.name, place))  # type: ignore[attr-defined]
        for one in arguments
        for place, length in enumerate(one.tensor.shape)
        if isinstance(length, torch.SymInt)
    ]


def _tensors_alone(found: Any) -> Any:
    """A model's dict of results without those that are no tensors, such as a cache."""
    import torch

    if isinstance(found, MutableMapping):
        for name, value in list(found.items()):
            if not isinstance(value, torch.Tensor):
                found[name] = None
    return found


def _flat(found: Any, place: Place) -> tuple[list[str], list[torch.Tensor]]:
    """The tensors of a result and, where it has names for them, those."""
    import torch

    if isinstance(found, torch.Tensor):
        return [], [found]
    if isinstance(found, Mapping):
        names, values = list(map(str, found)), list(found.values())
    else:
        names = list(getattr(found, "_fields", ()))
        values = list(found) if isinstance(found, tuple | list) else [found]
    original = [place for place, one in enumerate(values) if one is not None]
    if not original or not all(isinstance(values[place], torch.Tensor) for place in original):
        raise Located(Refusal("its result is no tensor, and no tuple or dict of tensors", "", "TG004"), place)
    return [names[place] for place in original] if names else [], [values[place] for place in original]


def _structure(found: Any) -> Any:
    """The structure of a result, and which of its leaves are tensors."""
    import torch
    from torch.utils import _pytree as pytree

    leaves, structure = pytree.tree_flatten(found)
    return structure, tuple(isinstance(one, torch.Tensor) for one in leaves)


def _explained(error: Exception, lengths: Mapping[str, str]) -> Located:
    """What an exception of a trace means to whoever wrote the function, with the example's lengths for symbols."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    from .symbols import OfValues

    place = user_place(error, any_of_torch=True)
    if isinstance(error, DataDependentOutputException | OfValues):
        return Located(
            Refusal("values decide what is computed here", "write torch.where(condition, a, b)", "TG004"), place
        )
    if isinstance(error, DynamicOutputShapeException):
        message = f"values decide the shape of {_short(str(error))}"
        return Located(Refusal(message, "shapes of a spec follow from those of its inputs", "TG004"), place)
    text = str(error).strip().split("\n")[0] or type(error).__name__
    text = re.sub(r"\bs\d+\b", lambda found: lengths.get(found[0], found[0]), text)
    if "data-dependent" in text.lower() or "Cannot cast FakeTensor" in text:
        return Located(
            Refusal("values decide what is computed here", "write torch.where(condition, a, b)", "TG004"), place
        )
    fits = isinstance(error, RuntimeError | ValueError | IndexError | AssertionError | TypeError)
    hint = "the example may not fit the function" if fits and place != NOWHERE else ""
    return Located(Refusal(f"calling it raises {type(error).__name__}: {_short(text)}", hint, "TG004"), place)


def _short(text: str) -> str:
    return text if len(text) < 160 else text[:157] + "..."
