"""Terms of random specs: their text, and their value in torch, where tensors have all axes of the spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

F = torch.nn.functional
BY = 0.75  # the value of a param

Values = Mapping[str, torch.Tensor]


BATCH = "..."


@dataclass(frozen=True)
class Term:
    """An expression, the axes along which it varies, and its value as a function of the values of inputs and lines."""

    text: str
    axes: frozenset[str]
    value: Callable[[Values], torch.Tensor]


@dataclass(frozen=True)
class Tensor:
    """An input or a result: its dimensions, each an axis or a group; of a `type`, or indices along the axis `of`.

    With a `default`, it is optional.
    """

    name: str
    dims: tuple[tuple[str, ...], ...]
    of: str = ""
    type: str = "T"
    default: float | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(axis for dim in self.dims for axis in dim)


class Unclear(Exception):
    """Rounding decides which of two elements is the largest."""


UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tanh({})": torch.tanh,
    "sigmoid({})": torch.sigmoid,
    "silu({})": F.silu,
    "gelu({})": F.gelu,
    "sin({})": torch.sin,
    "softplus({})": F.softplus,
    "square({})": torch.square,
    "exp(-square({}))": lambda x: torch.exp(-(x * x)),
    "log(1 + square({}))": lambda x: torch.log(1 + x * x),
    "({} * 0.5 + 0.25)": lambda x: x * 0.5 + 0.25,
    "({} * by + 0.25)": lambda x: x * BY + 0.25,
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "({} + {})": torch.add,
    "({} - {})": torch.sub,
    "({} * {})": torch.mul,
    "({} / (1 + square({})))": lambda a, b: a / (1 + b * b),
    "maximum({}, {})": torch.maximum,
}
REDUCE: dict[str, Callable[[torch.Tensor, list[int]], torch.Tensor]] = {
    "sum({}, {})": lambda x, dims: x.sum(dims, keepdim=True),
    "mean({}, {})": lambda x, dims: x.mean(dims, keepdim=True),
    "max({}, {})": lambda x, dims: x.amax(dims, keepdim=True),
    "min({}, {})": lambda x, dims: x.amin(dims, keepdim=True),
    "var({}, {}, correction=0)": lambda x, dims: x.var(dims, correction=0, keepdim=True),
    "logsumexp({}, {})": lambda x, dims: x.logsumexp(dims, keepdim=True),
}
MAPPED_BACK: dict[str, Callable[[torch.Tensor, list[int]], torch.Tensor]] = {
    "softmax({0}, {1})": lambda x, dims: torch.exp(x - x.logsumexp(dims, keepdim=True)),
    "({0} * rsqrt(mean(square({0}), {1}) + 0.1))": lambda x, dims: (
        x * (x.square().mean(dims, keepdim=True) + 0.1).rsqrt()
    ),
    "({0} - mean({0}, {1}))": lambda x, dims: x - x.mean(dims, keepdim=True),
}
# Results stay small, however long an axis is.
SCANS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "(cumsum({0}, {1}) * 0.25)": lambda x, dim: x.cumsum(dim) * 0.25,
    "(cumsum({0}, {1}) / (index({1}) + 1))": lambda x, dim: (
        x.cumsum(dim) / torch.arange(1, x.shape[dim] + 1).view([-1 if n == dim else 1 for n in range(x.ndim)])
    ),
    "cumprod(tanh({0}), {1})": lambda x, dim: x.tanh().cumprod(dim),
    "cumprod(1 - 0.25 * sigmoid({0}), {1})": lambda x, dim: (1 - 0.25 * x.sigmoid()).cumprod(dim),
}
DEFAULTS: dict[str, tuple[float, ...]] = {"T": (0, 1, 0.5, -2), "bool": (True, False), "int64": (0,)}


def position(x: torch.Tensor, place: int, largest: bool, least: float) -> torch.Tensor:
    """The first index of the largest or smallest element along a dimension.

    Raises `Unclear` if the next one differs by at most `least` times the largest magnitude.
    """
    if least and x.shape[place] > 1:
        ends = x.topk(2, place, largest)[0]
        if (ends.diff(dim=place).abs() <= least * x.abs().amax()).any():
            raise Unclear
    return x.argmax(place, keepdim=True) if largest else x.argmin(place, keepdim=True)


def names(text: str) -> set[str]:
    return set("".join(c if c.isalnum() else " " for c in text).split())
