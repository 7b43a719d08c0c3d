"""Tensors and params of no particular values that compile an operator's kernels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tritongen.spec.types import Input, Param, Spec

HEAD = 128  # the width of heads whose tiles take the most shared memory
HEADS = frozenset("... B H G R".split())  # the axes of a batch of matrices, as specs of attention call them


def leaf(one: Input, spec: Spec, tensor: torch.Tensor | None) -> torch.Tensor | None:
    """A tensor that requires a gradient, if the operator has one by it."""
    if tensor is None or spec.grad is None or one.name not in spec.grad.wrt:
        return tensor
    found = tensor.detach().requires_grad_(tensor.is_floating_point())
    made: Any = Made
    return made.apply(found) if spec.grad.write == "in_place" else found


class Made(torch.autograd.Function):
    """A tensor that is no leaf, and so may be overwritten, as it is laid out."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def value(param: Param, other: bool) -> Any:
    if param.kind == "bool":
        return not other
    if param.kind == "enum":
        return param.choices[-1 if other else 0]
    return 2 if param.default is None else param.default


def draw(tensor: Input, spec: Spec, dtypes: tuple[str, ...], layout: str, largest: bool = False) -> torch.Tensor:
    """A tensor of no particular values; 96 is divisible by 16, which makes a kernel of its own.

    "Even" ones are few matrices with lengths that are divisible by 16. A "line" is long in one dimension alone,
    and so one run of elements in whatever order.
    """
    named = list(axes(spec))
    lengths = dict(zip(named, itertools.cycle((HEAD if largest else 96, 3, 5))))
    if layout == "even":
        lengths = {name: 2 if name in HEADS else 96 for name in named}
    if layout == "line":
        lengths = dict.fromkeys(named, 1) | {named[-1]: 96}
    shape = [
        math.prod(size or lengths[name] for name, size in zip(term.names, term.sizes, strict=True))
        for term in tensor.type.shape
    ]
    dtype = next(dtype for dtype in (*dtypes, *tensor.type.dtypes) if dtype in tensor.type.dtypes)
    return arranged(shape, getattr(torch, dtype), layout)


def arranged(shape: Sequence[int], dtype: torch.dtype, layout: str) -> torch.Tensor:
    step = 2 if layout == "sliced" else 1
    room = torch.empty([step * size for size in shape], dtype=dtype)
    return room[(slice(None, None, step),) * len(shape)]


def axes(spec: Spec) -> Iterator[str]:
    """The axes of a spec, the innermost of an input first."""
    terms = [term for tensor in spec.inputs for term in reversed(tensor.type.shape)]
    yield from dict.fromkeys(name for term in terms for name in reversed(term.names))
