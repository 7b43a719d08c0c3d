"""What a spec computes, in torch: its own text, evaluated on tensors that have all of its axes.

It shares nothing with the program but the reader of TOML. A tensor has a dimension for every axis of the spec, of
length 1 where it does not vary, so that an axis is a number here, and everything broadcasts. The dimensions of `...`
are one axis, of as many elements.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch.utils._python_dispatch import _disable_current_modes

from tritongen.lang.functions import FUNCTIONS
from tritongen.spec.types import BATCH, AxisTerm, Input, Output, Spec

F = torch.nn.functional
LEADING = "leading_axes"  # the name of `...` in the text that is evaluated
DTYPES = {name: getattr(torch, name) for name in ("float16", "bfloat16", "float32", "float64")}
DTYPES |= {name: getattr(torch, name) for name in ("uint8", "int8", "int16", "int32", "int64", "bool")}
CONSTANTS = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan}


@dataclass(frozen=True)
class Axis:
    name: str
    dim: int
    length: int


class Oracle:
    """A spec, with the lengths of its axes."""

    def __init__(self, spec: Spec, lengths: Mapping[str, int], batch: tuple[int, ...] = ()) -> None:
        self.spec = spec
        self.batch = batch
        terms = [term for one in spec.inputs for term in one.type.shape]
        fixed = {n: size for t in terms for n, size in zip(t.names, t.sizes, strict=False) if size is not None}
        names = dict.fromkeys(name for term in terms for name in term.names)
        self.lengths = {name: fixed.get(name) or lengths.get(name, 0) for name in names}
        if BATCH in self.lengths:
            self.lengths[BATCH] = math.prod(batch)
        self.axes = {name: Axis(name, dim, self.lengths[name]) for dim, name in enumerate(self.lengths)}

    def __call__(self, *tensors: torch.Tensor | None) -> object:
        values: dict[str, object] = {**CONSTANTS, **DTYPES, **functions_of(self), **self.axes}
        values[LEADING] = self.axes.get(BATCH)
        for param in self.spec.params:
            values[param.name] = param.default
        for one, tensor in zip(self.spec.inputs, [*tensors, *[None] * len(self.spec.inputs)], strict=False):
            values[one.name] = self.filled(one, tensors) if tensor is None else self.spread(one.type.shape, tensor)
        for statement in self.spec.compute:
            values[statement.name] = evaluated(statement.expression, values)
        results = tuple(self.gathered(one, values[one.name]) for one in self.spec.outputs)
        return results if len(results) > 1 else results[0]

    def positions(self, *axes: Axis) -> torch.Tensor:
        found = torch.zeros([1] * len(self.axes), dtype=torch.int64)
        for axis in axes:
            shape = [axis.length if other is axis else 1 for other in self.axes.values()]
            found = found * axis.length + torch.arange(axis.length).view(shape)
        return found

    def taken(self, x: torch.Tensor, at: object, axis: Axis) -> torch.Tensor:
        places = _tensor(at)
        places = places.reshape([1] * (len(self.axes) - places.ndim) + [*places.shape]).long()
        shape = torch.broadcast_shapes([1 if dim == axis.dim else n for dim, n in enumerate(x.shape)], places.shape)
        rows = x.expand([axis.length if dim == axis.dim else n for dim, n in enumerate(shape)])
        found = rows.gather(axis.dim, places.expand(shape).clamp(0, axis.length - 1))
        return torch.where((places >= 0) & (places < axis.length), found, math.nan if x.is_floating_point() else 0)

    def spread(self, shape: Sequence[AxisTerm], tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of an input with all axes, in the order of the spec's."""
        names = [name for term in shape for name in term.names]
        if BATCH in names:
            leading = tensor.ndim - len(shape) + 1
            tensor = tensor.expand([*self.batch, *tensor.shape[leading:]])
        tensor = tensor.reshape([self.lengths[name] for name in names])
        order = sorted(range(len(names)), key=lambda place: self.axes[names[place]].dim)
        full = [axis.length if axis.name in names else 1 for axis in self.axes.values()]
        return tensor.permute(order).reshape(full)

    def filled(self, one: Input, tensors: Sequence[torch.Tensor | None]) -> torch.Tensor:
        dtype = next((t.dtype for t in tensors if t is not None and t.is_floating_point()), torch.float64)
        full = [axis.length if axis.name in one.type.axes else 1 for axis in self.axes.values()]
        kind = dtype if {"float32", "float64"} & {*one.type.dtypes} else DTYPES[one.type.dtypes[-1]]
        return torch.full(full, one.default, dtype=kind)  # type: ignore[arg-type]

    def gathered(self, output: Output, value: object) -> torch.Tensor:
        """A result with the dimensions that the spec gives it."""
        assert output.shape is not None, "the oracle wants shapes of outputs"
        assert isinstance(value, torch.Tensor)
        names = [name for term in output.shape for name in term.names]
        full = [axis.length if axis.name in names else 1 for axis in self.axes.values()]
        value = value.expand(full)
        kept = [axis.name for axis in self.axes.values() if axis.name in names]
        value = value.reshape([self.lengths[name] for name in kept]).permute([kept.index(name) for name in names])
        shape: list[int] = []
        for term in output.shape:
            shape += self.batch if term.names == (BATCH,) else [math.prod(self.lengths[name] for name in term.names)]
        return value.reshape(shape)


def functions_of(oracle: Oracle) -> dict[str, object]:
    """What the language has, by name, for tensors with all axes."""

    def reduced(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def call(x: object, *axes: Axis, **options: float) -> torch.Tensor:
            return function(_tensor(x), [axis.dim for axis in axes] or [*range(len(oracle.axes))], **options)

        return call

    found: dict[str, object] = {name: _of_torch(name) for name in FUNCTIONS}
    found |= {name: reduced(function) for name, function in REDUCTIONS.items()}
    found |= {"index": oracle.positions, "take": oracle.taken, "cast": _cast, "where": torch.where}
    found["size"] = lambda *axes: math.prod(axis.length for axis in axes)
    return found


def evaluated(expression: str, values: Mapping[str, object]) -> object:
    text = " ".join(expression.split()).replace("...", LEADING)
    text = re.sub(r"\bnot\b", "~", text)
    return eval(text, {}, dict(values))


def _tensor(x: object) -> torch.Tensor:
    return x if isinstance(x, torch.Tensor) else torch.tensor(x)


def _sum(x: torch.Tensor, d: Sequence[int]) -> torch.Tensor:
    return x.sum(d, keepdim=True)


def _prod(x: torch.Tensor, d: Sequence[int]) -> torch.Tensor:
    for one in d:
        x = x.prod(one, keepdim=True)
    return x


def _extremum(of: Callable[..., torch.Tensor], x: torch.Tensor, d: Sequence[int]) -> torch.Tensor:
    """Such that the gradient goes to the same elements where a mode rounds what is compared."""
    if not x.is_floating_point():
        return of(x, d, keepdim=True)
    with _disable_current_modes():
        here = x.detach() == of(x.detach(), d, keepdim=True)
        count = here.sum(d, keepdim=True)
    return _sum(torch.where(here, x, 0), d) / count


def _var(x: torch.Tensor, d: Sequence[int], correction: float = 1) -> torch.Tensor:
    return x.var(d, correction=correction, keepdim=True)


def _position(x: torch.Tensor, d: Sequence[int], largest: bool) -> torch.Tensor:
    kept = [dim for dim in range(x.ndim) if dim not in d]
    flat = x.permute([*kept, *d]).reshape([x.shape[dim] for dim in kept] + [-1])
    found = flat.argmax(-1) if largest else flat.argmin(-1)
    return found.reshape([1 if dim in d else n for dim, n in enumerate(x.shape)])


def _cast(x: object, to: object) -> torch.Tensor:
    """To a dtype. Floats are float64 here, so that a cast between floats changes nothing."""
    x = _tensor(x)
    dtype = to.dtype if isinstance(to, torch.Tensor) else to
    assert isinstance(dtype, torch.dtype)
    if dtype.is_floating_point:
        return x if x.is_floating_point() else x.double()
    return x.to(dtype)


def _softmax(x: torch.Tensor, d: Sequence[int]) -> torch.Tensor:
    return torch.exp(x - x.amax(d, keepdim=True).detach()) / _sum(torch.exp(x - x.amax(d, keepdim=True).detach()), d)


def _of_torch(name: str) -> object:
    if name == "gelu_tanh":
        return partial(F.gelu, approximate="tanh")
    function = getattr(torch, name, None) or getattr(F, name, None)
    return lambda x, *args, **options: function(_tensor(x), *args, **options)


REDUCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "sum": _sum,
    "prod": _prod,
    "mean": lambda x, d: x.mean(d, keepdim=True),
    "max": partial(_extremum, torch.amax),
    "min": partial(_extremum, torch.amin),
    "amax": partial(_extremum, torch.amax),
    "amin": partial(_extremum, torch.amin),
    "argmax": partial(_position, largest=True),
    "argmin": partial(_position, largest=False),
    "any": lambda x, d: _sum(x != 0, d) > 0,
    "all": lambda x, d: _sum(x == 0, d) == 0,
    "count_nonzero": lambda x, d: _sum(x != 0, d),
    "var": _var,
    "std": lambda x, d, correction=1: _var(x, d, correction).sqrt(),
    "norm": lambda x, d, p=2: torch.linalg.vector_norm(x, p, d, keepdim=True),
    "logsumexp": lambda x, d: x.logsumexp(d, keepdim=True),
    "softmax": _softmax,
    "log_softmax": lambda x, d: x - x.logsumexp(d, keepdim=True),
}
