"""A target and an example -> its graph of ATen operators, with symbols for lengths, traced without memory or a GPU."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

from .recording import Recording, recorded
from .refusals import NOWHERE, Refusal
from .symbols import NeedsSymbols
from .targets import Example, Length, Located, Target, place_of, snake, user_place

if TYPE_CHECKING:
    import torch


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


def plain_trace(target: Target, example: Mapping[str, Example | object]) -> Trace:
    """A trace without torch's symbols for lengths. Raises `NeedsSymbols` for what needs them, and for what is wrong."""
    from .plain import OtherLengths, Tracer, scales

    given = bound(target, example)
    state = [] if target.module is None else [*target.module.parameters(), *target.module.buffers()]
    shapes = [one.shape for one in given.values() if isinstance(one, Example)]
    for one in scales([*shapes, *(tuple(map(Length, tensor.shape)) for tensor in state)]):
        with suppress(OtherLengths):
            return _traced_plainly(target, given, Tracer(one))
    raise NeedsSymbols


def _traced_plainly(target: Target, given: Mapping[str, Example | object], tracer: Any) -> Trace:
    arguments = tuple(_arguments(target, given, tracer, False))
    scalars = {name: value for name, value in given.items() if not isinstance(value, Example)}
    made = Trace(SimpleNamespace(graph=tracer.graph), arguments, scalars, Recording(), order=tuple(given))
    try:
        with tracer.tracing(), recorded(made.recording):
            found = call(target, made, tuple(one.tensor for one in arguments), scalars)
        names, flat = _flat(found)
    except NeedsSymbols:
        raise
    except Exception as error:
        raise NeedsSymbols from error
    tracer.returns(flat)
    return replace(made, results=tuple(names), structure=_structure(found))


def _trace(target: Target, example: Mapping[str, Example | object], is_model: bool, device: str = "") -> Trace:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    symbols = ShapeEnv(duck_shape=False)
    mode = FakeTensorMode(shape_env=symbols, allow_non_fake_inputs=True)
    given = bound(target, example)
    arguments = tuple(_arguments(target, given, _Fakes(mode, is_model, target.module), is_model))
    if device:
        with mode:
            arguments = tuple(replace(one, tensor=torch.empty_like(one.tensor, device=device)) for one in arguments)
    scalars = {name: value for name, value in given.items() if not isinstance(value, Example)}
    recording, results, structures = Recording(), list[str](), list[Any]()
    made = Trace(None, arguments, scalars, recording, (), dict(_symbols(arguments)), tuple(given))

    def traced(*tensors: torch.Tensor) -> list[torch.Tensor]:
        with torch.device(device) if device else nullcontext(), recorded(recording, follow_calls=is_model):
            found = call(target, made, tensors, scalars)
        found = _tensors_alone(found) if is_model else found
        names, flat = _flat(found)
        results.extend(names)
        structures.append(_structure(found))
        return flat

    try:
        with mode, _autocast_of_any_device(), _unlogged():
            graph = make_fx(traced, pre_dispatch=True)(*(one.tensor for one in arguments))
    except Located:
        raise
    except Exception as error:
        lengths = {str(one): str(length) for one, length in symbols.backed_var_to_val.items()}
        raise _explained(error, lengths) from None
    return replace(made, graph=graph, results=tuple(results), structure=structures[-1])


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


def _arguments(target: Target, given: Mapping[str, object], tensors: _Tensors, is_model: bool) -> list[Argument]:
    import torch

    taken = set(given)
    found = []
    for name, one in given.items():
        if isinstance(one, Example):
            dtype = getattr(torch, one.dtype)
            made = tensors.argument(name, one.shape, dtype)
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
        made = tensors.state(tensor) if is_model else tensors.argument(name, shape, own)
        found.append(Argument(name, made, shape, path, tensor.requires_grad))
    return found


def _name_of(module: Any, path: str) -> str:
    """`mlp.fc.weight` as a name; of what `nn.Sequential` only counts, the layer is said: `linear_0_weight`."""
    first, _, _ = path.partition(".")
    prefix = f"{snake(type(module.get_submodule(first)).__name__)}_" if first.isdigit() else ""
    return prefix + path.replace(".", "_").strip("_")


class _Tensors(Protocol):
    """Makes the tensors that a trace is called with."""

    def argument(self, name: str, shape: Sequence[Length], dtype: torch.dtype) -> torch.Tensor: ...

    def state(self, tensor: torch.Tensor) -> torch.Tensor: ...


class _Fakes:
    """Torch's tensors without memory, whose lengths are symbols where they are not fixed, on the device of a model."""

    def __init__(self, mode: Any, is_model: bool, module: torch.nn.Module | None) -> None:
        first = next(module.parameters(), None) if is_model and module is not None else None
        self._mode, self._device = mode, None if first is None else first.device

    def argument(self, name: str, shape: Sequence[Length], dtype: torch.dtype) -> torch.Tensor:
        import torch
        from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

        sizes = [DimDynamic.STATIC if one.fixed or one.number < 2 else DimDynamic.DYNAMIC for one in shape]
        real = torch.empty([one.number for one in shape], dtype=dtype, device=self._device)  # Nothing touches it.
        context: Any = StatelessSymbolicContext(dynamic_sizes=sizes)
        fake: torch.Tensor = self._mode.from_tensor(real, symbolic_context=context)
        return fake

    def state(self, tensor: torch.Tensor) -> torch.Tensor:
        fake: torch.Tensor = self._mode.from_tensor(tensor, static_shapes=True)
        return fake


def _symbols(arguments: tuple[Argument, ...]) -> list[tuple[str, tuple[str, int]]]:
    import torch

    return [
        (str(length.node.expr), (one.name, place))  # type: ignore[attr-defined]
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


def _flat(found: Any) -> tuple[list[str], list[torch.Tensor]]:
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
        raise Located(Refusal("its result is no tensor, and no tuple or dict of tensors", "", "TG004"))
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
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    place = user_place(error, any_of_torch=True)
    if isinstance(error, DataDependentOutputException | GuardOnDataDependentSymNode):
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
