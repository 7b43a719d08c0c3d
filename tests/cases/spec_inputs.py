"""Inputs that the types of a spec admit: their lengths, dtypes and layouts, and the values of its params."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import triton

from tests.harness.oracles import DEVICE
from tritongen.families.contraction.family import CONTRACTION, GEMM
from tritongen.families.streaming.family import STREAMING
from tritongen.operator.compile import forward_of
from tritongen.spec.read import read_spec
from tritongen.spec.types import BATCH, Input, Param, Spec

# Lengths of a spec's axes in order, so that neighbours differ and a mistaken axis shows. One axis
# at a time is long: more than a block, with a tail. All is small, for the interpreter is slow.
LENGTHS = (2, 3, 5, 4)
LONG, LONG_OF_MANY = 35, 11
LAYOUTS = ("contiguous", "turned", "sliced")
# The interpreter of Triton 3.6 cannot invert a uint8.
OLD = tuple(map(int, triton.__version__.split(".")[:2])) <= (3, 6)


@dataclass(frozen=True)
class Case:
    """How to draw the inputs of a call: with a length of 1 for every axis, with some NaN or infinities."""

    dtype: str = "float32"
    long: str = ""
    batch: tuple[int, ...] = (2, 3)
    layout: str = "contiguous"
    ones: bool = False
    special: tuple[float, ...] = ()


@cache
def spec_of(path: Path) -> Spec:
    return read_spec(path.name, path.read_text(encoding="utf-8"))


@cache
def multiplies(spec: Spec) -> bool:
    """Whether it has a step that multiplies matrices, whose operands are rounded to the dtype of the matmul."""
    forward = forward_of(spec)
    steps = forward.family.steps(forward.program) or (forward,)
    return any(step.family in (CONTRACTION, GEMM, STREAMING) for step in steps)


@cache
def has_groups(spec: Spec) -> bool:
    """Whether groups of a matmul's inner axis are scaled by themselves; their blocks have tails of their own, unless
    their length is fixed.
    """
    forward = forward_of(spec)
    contraction = forward.family.matmuls(forward.program)
    return contraction is not None and bool(contraction.groups)


def axes_of(spec: Spec) -> list[str]:
    """The axes that have no fixed length; leading ones count as one."""
    terms = [term for tensor in spec.inputs for term in tensor.type.shape]
    fixed = {name for term in terms for name, size in zip(term.names, term.sizes, strict=False) if size}
    named = dict.fromkeys(name for term in terms for name in term.names)
    return [name for name in named if name not in fixed]


def lengths(spec: Spec, case: Case) -> dict[str, int]:
    named = [axis for axis in axes_of(spec) if axis != BATCH]
    if case.ones:
        return dict.fromkeys(named, 1) | {"W": 2}  # torch wants two values for a variance by channel
    found = dict(zip(named, itertools.cycle(LENGTHS)))
    terms = [term for tensor in spec.inputs for term in tensor.type.shape if case.long in term.names]
    groups = has_groups(spec) and not any(size for term in terms for size in term.sizes)
    return found | {case.long: LONG if len(named) <= 2 or groups else LONG_OF_MANY}


def cases(spec: Spec) -> Iterator[Case]:
    """Every axis long and every layout, in one dtype; then the other dtypes in one shape and layout."""
    axes = axes_of(spec)
    for place in range(max(len(axes), len(LAYOUTS))):
        long = axes[place % len(axes)] if axes else ""
        batch = (2, LONG) if long == BATCH else (2, 3)
        yield Case(long=long, batch=batch, layout=LAYOUTS[place % len(LAYOUTS)])
    yield Case(ones=True)
    if not any("int" in output.dtype for output in spec.outputs):  # What NaN is as an integer, nobody says.
        yield Case(special=(math.nan,))
        yield Case(special=(math.inf, -math.inf))
    if BATCH in axes:
        yield Case(batch=())
        yield Case(batch=(3, 1, 2, 1, 2), layout="turned")
    admitted = dict.fromkeys(dtype for tensor in spec.inputs for dtype in tensor.type.dtypes)
    if OLD and any("~" in statement.expression for statement in spec.compute):
        admitted.pop("uint8", None)
    if multiplies(spec) and DEVICE == "cpu":  # The interpreter multiplies matrices of bfloat16 wrong.
        admitted.pop("bfloat16", None)
    for dtype in admitted:
        yield Case(dtype=dtype, batch=(3,))


def draw(spec: Spec, case: Case) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = lengths(spec, case)
    ranges = dict(spec.ranges)
    tensors = []
    for place, tensor in enumerate(spec.inputs):
        dtype = case.dtype if case.dtype in tensor.type.dtypes else default_dtype(tensor)
        shape = shape_of(tensor, sizes, batch_of(case, place))
        low, high = -4.0, 4.0
        if tensor.name in ranges:
            low, high = (
                float(sizes[bound] if isinstance(bound, str) else bound)
                for bound in (ranges[tensor.name].low, ranges[tensor.name].high)
            )
        elif dtype == "uint8":
            low, high = 0.0, 9.0
        values = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
        values = values > 0 if dtype == "bool" else values.floor() if "int" in dtype else values
        # The interpreter reads float8 without NaN and infinities.
        spoilt = "float" in dtype and (DEVICE == "cuda" or "float8" not in dtype)
        for step, special in enumerate(case.special if spoilt else ()):
            values.view(-1)[step::7] = special
        tensors.append(lay_out(values.to(getattr(torch, dtype)), case.layout).to(DEVICE))
    return tensors


def default_dtype(tensor: Input) -> str:
    preferred = ("float32", "int64", "bool")
    return next((one for one in preferred if one in tensor.type.dtypes), tensor.type.dtypes[0])


def batch_of(case: Case, place: int) -> tuple[int, ...]:
    """The first input has all leading axes, the second broadcasts in one, the third lacks one."""
    if place == 1 and len(case.batch) > 1:
        return (1, *case.batch[1:])
    return case.batch[1:] if place == 2 else case.batch


def shape_of(tensor: Input, sizes: dict[str, int], batch: tuple[int, ...]) -> list[int]:
    shape: list[int] = []
    for term in tensor.type.shape:
        if term.names == (BATCH,):
            shape += batch
            continue
        length = 1
        for name, size in zip(term.names, term.sizes, strict=True):
            length *= size or sizes[name]
        shape.append(length)
    return shape


def lay_out(values: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values at other places in memory."""
    if layout == "turned" and values.ndim:
        return values.permute(*range(values.ndim)[::-1]).contiguous().permute(*range(values.ndim)[::-1])
    if layout == "sliced":
        room = torch.zeros([2 * size + 1 for size in values.shape], dtype=values.dtype)
        view = room[tuple(slice(1, None, 2) for _ in values.shape)]
        return view.copy_(values)
    return values


def param_sets(spec: Spec) -> list[dict[str, Any]]:
    def values(param: Param) -> tuple[Any, ...]:
        given = {"float": 0.75, "int": 3, "bool": True, "enum": ""}[param.kind]
        first = given if param.default is None else param.default
        if param.kind == "bool":
            return (first, not first)
        return param.choices if param.kind == "enum" else (first,)

    named = [[(param.name, value) for value in values(param)] for param in spec.params]
    return [dict(chosen) for chosen in itertools.product(*named)]
