"""Repeated launches of kernels that read by TMA, with the tensor maps of earlier calls at the same addresses."""

import inspect
import operator
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.compiler import CompiledKernel

from .sources import is_descriptor

MOST = 256  # addresses for which a descriptor's tensor maps are cached


def with_maps(
    again: Callable[..., Callable[..., None]],
    compiled: Any,
    grid: tuple[int, int, int],
    args: tuple[Any, ...],
    constants: Sequence[Any],
) -> Callable[..., None]:
    """A function that repeats the launch of a compiled kernel, as `again` does, on tensors in place of descriptors.

    Triton's launcher encodes a tensor map for each descriptor in every launch, and copies all arguments in Python.
    A launcher of the same class, with the expanded arguments, takes existing tensor maps: `again` calls it.
    """
    run = again(compiled, grid, args, constants)
    described = {
        place: moved(arg, None) for place, arg in enumerate(args) if is_descriptor(arg)
    }
    if not described:
        return run

    def by_descriptors(*args: Any) -> None:
        values = [*args]
        for place, descriptor in described.items():
            values[place] = moved(descriptor, values[place])
        run(*values)

    metas = getattr(getattr(compiled, "metadata", None), "tensordesc_meta", None)
    if not isinstance(compiled, CompiledKernel) or not metas:
        return by_descriptors
    try:
        launcher, picked, rest = _launcher(compiled, described)
        makers: list[tuple[int, dict[int, Any], Callable[..., Any]]] = [
            (place, {}, _maker(described[place], meta))
            for place, meta in zip(described, metas, strict=True)
        ]
    except (AttributeError, ImportError, KeyError, TypeError, ValueError):
        return by_descriptors  # A Triton whose launcher is another one.

    def by_maps(args: tuple[Any, ...], values: list[Any]) -> Any:
        for place, known, make in makers:
            tensor = args[place]
            address = tensor.data_ptr()
            if address not in known:
                if len(known) >= MOST:
                    known.clear()
                known[address] = make(tensor)
            values.append(known[address])
        return picked((*values, *rest))

    return again(compiled, grid, args, constants, launcher, by_maps, by_descriptors)


def _launcher(compiled: Any, described: dict[int, Any]) -> tuple[Any, Any, list[int]]:
    """Triton's launcher for the expanded arguments, in which each descriptor is a tensor map, sizes and strides; a
    function that picks its arguments from the kernel's, the maps and the remaining ones; and these remaining ones.
    """
    signature: dict[str, str] = {}
    places: list[int] = []
    rest: list[int] = []
    maps, first = [*described], len(compiled.src.signature)
    for place, (name, kind) in enumerate(compiled.src.signature.items()):
        if place not in described:
            signature[name] = kind
            places.append(place)
            continue
        signature[name] = "nvTmaDesc"
        places.append(first + maps.index(place))
        sizes, strides = described[place].shape, described[place].strides
        for value, kind in [(n, "i32") for n in sizes] + [(n, "i64") for n in strides]:
            signature[f"{name} {len(rest)}"] = kind
            places.append(first + len(maps) + len(rest))
            rest.append(value)
    source = SimpleNamespace(signature=signature, constants={}, fn=compiled.src.fn)
    metadata = compiled.metadata._replace(tensordesc_meta=None)
    launcher = triton.runtime.driver.active.launcher_cls(source, metadata)
    return launcher, operator.itemgetter(*places), rest


def _maker(descriptor: Any, meta: Any) -> Callable[[torch.Tensor], Any]:
    """A function that encodes the tensor map of a tensor with the layout of a descriptor."""
    from triton.backends.nvidia.driver import make_tensordesc_arg

    # From Triton 3.8 on, it takes another argument, which is for other GPUs.
    others = [None] * (len(inspect.signature(make_tensordesc_arg).parameters) - 2)

    def make(tensor: torch.Tensor) -> Any:
        encoded, *_ = make_tensordesc_arg(moved(descriptor, tensor), meta, *others)
        return encoded

    return make


def moved(descriptor: Any, tensor: torch.Tensor | None) -> Any:
    """The descriptor of another tensor of the same layout, unchecked, since checks take longer than everything else."""
    moved = object.__new__(type(descriptor))
    fields = vars(moved)
    fields.update(vars(descriptor))
    fields["base"] = tensor
    return moved
