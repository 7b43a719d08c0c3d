"""The calls of an operator whose launches are compiled: benchmark sizes, unaligned, int64 offsets, absent inputs.

Tensors are on the CPU, and no kernel runs.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

Call = Callable[[], None]


def sizes_of(benchmark: Any) -> Iterator[Mapping[str, Any]]:
    """Arguments of a benchmark's `make`: sizes, largest first, in the default dtype, then in float32 if it has that."""
    import torch

    dtypes = [{}, *({"dtype": torch.float32} for one in benchmark.dtypes.split() if one == "float32")]
    for dtype in dtypes:
        for one in benchmark.reports(benchmark.sizes):
            for length in sorted(one.x_vals, reverse=True):
                yield {one.x_names[0]: length, **one.args, **dtype}


def calls_of(package: str, benchmark: Any) -> Iterator[Call]:
    """Calls of a benchmark's operator and its gradient: in the largest size plain, unaligned, with int64 offsets, and
    without optional inputs; then in the other sizes.
    """
    _empty_draws(sys.modules[benchmark.make.__module__])
    largest, *others = sizes_of(benchmark)

    def call(change: Callable[[Sequence[Any]], Sequence[Any]] = list, **size: Any) -> None:
        _call(benchmark, change(benchmark.make(**(size or largest))))

    def without(absent: Sequence[int]) -> Call:
        return lambda: call(lambda tensors: [None if n in absent else one for n, one in enumerate(tensors)])

    yield call
    yield lambda: call(lambda tensors: [*map(_unaligned, tensors)])
    yield lambda: _with_wide_offsets(package, call)
    yield from map(without, _absent(benchmark))
    yield from (partial(call, **size) for size in others)


def _absent(benchmark: Any) -> list[tuple[int, ...]]:
    """The positions of optional inputs: each alone, then all together."""
    parameters = inspect.signature(benchmark.op).parameters.values()
    positional = [one for one in parameters if one.kind == one.POSITIONAL_OR_KEYWORD]
    optional = tuple(place for place, one in enumerate(positional) if one.default is None)
    return list(dict.fromkeys([*((place,) for place in optional), *([optional] if optional else [])]))


def _call(benchmark: Any, tensors: Sequence[Any]) -> None:
    import torch

    leaves = [tensors[place] for place in benchmark.wrt if tensors[place] is not None]
    leaves = [one.requires_grad_() for one in leaves if one.is_floating_point()]
    results = benchmark.op(*tensors, **benchmark.params)
    smooth = [one for one in (results if isinstance(results, tuple) else (results,)) if one.requires_grad]
    if smooth:
        torch.autograd.grad(smooth, leaves, [torch.empty_like(one) for one in smooth], allow_unused=True)


def _unaligned(tensor: Any) -> Any:
    """An empty tensor with the shape and strides of another, one element past an aligned address."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.new_empty(last + 2).as_strided(tensor.shape, tensor.stride(), 1)


def _with_wide_offsets(package: str, call: Call) -> None:
    """Make a call with int64 offsets, as for tensors whose offsets exceed int32."""
    import triton.language as tl

    names = vars(sys.modules[f"{package}._runtime.tensors"])
    own = names["index_dtype"]
    names["index_dtype"] = lambda *_: tl.int64
    try:
        call()
    finally:
        names["index_dtype"] = own


def _empty_draws(module: Any) -> None:
    """Have a benchmark allocate its inputs on the CPU without drawing values."""
    import torch

    harness = vars(module)["benchmarking"]
    harness.DEVICE = "cpu"
    harness.draw = lambda shape, dtype, *_: torch.empty(shape, dtype=dtype)
