"""Maps axes of a spec to axes of a trace, and tensors of the trace to arguments of the spec's operator."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..spec.types import BATCH
from .forms import Form
from .matching import Bound
from .reading import Operator
from .windows import Window

Dim = tuple[int, ...]


_MOST_ASSIGNMENTS = 2000  # of a trace's axes to a spec's


class DoesNotFit(Exception):
    """Why an operator cannot replace equal math. `behind` is an input that may fit with its producers in the window."""

    def __init__(self, why: str, behind: str = "") -> None:
        super().__init__(why)
        self.behind = behind


@dataclass(frozen=True, slots=True)
class Argument:
    """A tensor of the trace, and the steps that make it an argument: select index 0 of dimensions `selected`, narrow
    dimensions to the first of `n` equal chunks (`splits`), permute and flatten the remaining ones (`order`), where an
    empty group is a new dimension. New dimensions are expanded to `lengths`, in order."""

    node: Any
    selected: tuple[int, ...]
    splits: tuple[tuple[int, int], ...]
    order: tuple[tuple[int, ...], ...]
    lengths: tuple[tuple[tuple[Any, int], ...], ...] = ()  # (tensor, dimension) pairs of each length; none for 1
    new: tuple[int, ...] = ()  # dimensions of length 1 that are expanded as new ones


def axes_of(operator: Operator, window: Window, bound: Bound) -> Iterator[dict[str, Dim]]:
    """Yields each possible map from the spec's axis names to axes of the trace. Raises `DoesNotFit`."""
    names = {number: name for name, number in operator.axis_ids.items()}
    found: dict[str, Dim] = {}
    for ones, others in bound.axes:
        if len(ones) not in (1, len(others)):
            raise DoesNotFit("positions along other groups of axes")
        pairs = [(ones[0], others)] if len(ones) == 1 else [(a, (b,)) for a, b in zip(ones, others, strict=True)]
        for one, atoms in pairs:
            if found.setdefault(names[one], tuple(atoms)) != tuple(atoms):
                raise DoesNotFit(f"{names[one]} is two axes")
    for ours, theirs in bound.sets:
        left = [names[one] for one in sorted(ours) if names[one] not in found]
        rest = set(theirs) - {atom for name in found for atom in found[name]}
        if len(left) == 1:
            found[left[0]] = _ordered(rest, window)
    _check_inputs(operator, bound, found)
    for more in _by_tensors(operator, window, bound, found):
        made = found | more
        if _fits(operator, window, bound, made, names):
            yield made


def _check_inputs(operator: Operator, bound: Bound, found: Mapping[str, Dim]) -> None:
    """Checks that no input has an axis that the operator has only in other inputs. Raises `DoesNotFit`."""
    for name, form in bound.inputs.items():
        own = {atom for axis in _flat(operator.inputs[name]) for atom in found.get(axis, ())}
        known = {atom for dim in found.values() for atom in dim}
        if (form.axes & known) - own:
            raise DoesNotFit(f"{name} has an axis more", name)


def _ordered(atoms: Iterable[int], window: Window) -> Dim:
    """Axes in the order of the first tensor that has them."""
    wanted = set(atoms)
    has = list[int]()
    for node in (window.root, *window.values):
        has += [axis for dim in window.dims(node) for axis in dim if axis in wanted and axis not in has]
    return tuple(has)


def _by_tensors(operator: Operator, window: Window, bound: Bound, found: Mapping[str, Dim]) -> Iterator[dict[str, Dim]]:
    """Yields maps of axes that no function takes, inferred from tensors; those closest to the spec's order first."""
    shapes = {name: _flat(shape) for name, shape in operator.inputs.items()} | {"": _flat(operator.result)}
    atoms_of = {name: form.axes for name, form in bound.inputs.items()} | {"": window.forms[window.root].axes}
    open_ = [name for name in dict.fromkeys(itertools.chain(*shapes.values())) if name not in found]
    free = _ordered(set().union(*atoms_of.values()) - set(itertools.chain(*found.values())), window)
    tensors = {name: _having(name, shapes) for name in open_}
    choices = [_choices(_having(atom, atoms_of), tensors) for atom in free]
    if math.prod(map(len, choices)) > _MOST_ASSIGNMENTS:
        raise DoesNotFit("too many axes that may be each other's")
    for way in sorted(itertools.product(*choices), key=lambda way: _cost(way, open_)):
        yield {name: tuple(atom for atom, one in zip(free, way, strict=True) if one == name) for name in open_}


def _having(axis: object, axes_of: Mapping[str, Container[object]]) -> set[str]:
    return {name for name, axes in axes_of.items() if axis in axes}


def _choices(has: set[str], tensors: Mapping[str, set[str]]) -> list[str]:
    """The operator's axes that all tensors in `has`, which share an axis of the model, have in common."""
    fits = [name for name, own in tensors.items() if has <= own]
    if not fits:
        raise DoesNotFit("an axis that the operator has no name for", next((one for one in has if one), ""))
    return fits


def _cost(way: Sequence[str], names: Sequence[str]) -> tuple[int, int, int]:
    """The number of names without an axis, of names except `...` with several, and of pairs in another order."""
    empty = sum(name not in way for name in names)
    several = sum(way.count(name) > 1 for name in names if name != BATCH)
    places = [names.index(name) for name in way]
    turned = sum(one > other for at, one in enumerate(places) for other in places[at + 1 :])
    return empty, several, turned


def _fits(operator: Operator, window: Window, bound: Bound, found: Mapping[str, Dim], names: Mapping[int, str]) -> bool:
    lengths = all(
        math.prod(map(window.length, found.get(name, ()))) == length for name, length in operator.lengths.items()
    )
    sets = all(
        {atom for one in ours for atom in found.get(names[one], ())} == set(theirs) for ours, theirs in bound.sets
    )
    return lengths and sets


def _flat(shape: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(name for term in shape for name in term)


def arguments(
    operator: Operator, window: Window, bound: Bound, axes: Mapping[str, Dim], name: str
) -> tuple[Argument, ...]:
    """The arguments for input `name`, one for each tensor of the window with its form. Raises `DoesNotFit`."""
    form = bound.inputs[name]
    known = next(one.type.dtypes for one in operator.spec.inputs if one.name == name)
    found, why = [], DoesNotFit(f"no tensor is {name} alone")
    for node in (node for node, one in window.forms.items() if one is form):
        dtype = str(node.meta["val"].dtype).removeprefix("torch.")
        if dtype not in known:
            why = DoesNotFit(f"{name} is {dtype}")
            continue
        try:
            found.append(_argument(operator, window, form, axes, name, node))
        except DoesNotFit as error:
            why = error
    if not found:
        raise why
    return tuple(found)


def _argument(
    operator: Operator, window: Window, form: Form, axes: Mapping[str, Dim], name: str, node: Any
) -> Argument:
    dims = list(window.dims(node))
    selected = tuple(place for place, dim in enumerate(dims) if not form.axes.intersection(dim))
    left = [dim for place, dim in enumerate(dims) if place not in selected]
    splits: list[tuple[int, int]] = []
    order: list[tuple[int, ...]] = []
    lengths: list[tuple[tuple[Any, int], ...]] = []
    for term in operator.inputs[name]:
        wanted = tuple(itertools.chain.from_iterable(axes[one] for one in term))
        if term == (BATCH,):
            order += [(place,) for place in _places(left, wanted)]
            continue
        order.append(places := _places(left, form.axes.intersection(wanted)))
        if not places:
            lengths.append(_length(window, wanted))
        elif tuple(itertools.chain.from_iterable(left[place] for place in places)) != wanted:
            splits.append((places[0], _n_splits(window, form, left[places[0]], wanted, name)))
    if sorted(itertools.chain.from_iterable(order)) != list(range(len(left))):
        raise DoesNotFit(f"{name} has other dimensions")
    return Argument(node, selected, tuple(splits), tuple(order), tuple(lengths))


def _places(dims: Sequence[Dim], atoms: Iterable[int]) -> tuple[int, ...]:
    """The dimensions that have any of the axes `atoms`."""
    wanted = set(atoms)
    return tuple(place for place, dim in enumerate(dims) if wanted.intersection(dim))


def _n_splits(window: Window, form: Form, dim: Dim, wanted: Dim, name: str) -> int:
    """The number of equal chunks of a dimension whose inner axes are `wanted`. Raises `DoesNotFit`."""
    before = dim[: len(dim) - len(wanted)]
    if dim[len(before) :] != wanted or set(before) & form.axes or any(map(window.is_open, before)):
        raise DoesNotFit(f"{name} lies in memory in another way")
    return math.prod(map(window.length, before))


def _length(window: Window, wanted: Dim) -> tuple[tuple[Any, int], ...]:
    """The (tensor, dimension) pairs with a new dimension's axes `wanted`; none for length 1. Raises `DoesNotFit`."""
    found = [
        (node, place)
        for node in window.values
        for place, dim in enumerate(window.dims(node))
        if dim == wanted and node is not window.root and set(dim) <= window.forms[node].axes
    ]
    if wanted and not found:
        raise DoesNotFit("how long a new dimension is")
    return tuple(found) if wanted else ()


def result(operator: Operator, window: Window, axes: Mapping[str, Dim]) -> tuple[int, ...]:
    """For each dimension of the root, the dimension of the operator's result; -1 for a new one of length 1."""
    has: list[Dim] = []
    for term in operator.result:
        wanted = tuple(atom for one in term for atom in axes[one])
        if term == (BATCH,):
            has += [dim for dim in window.dims(window.root) if set(dim) & set(wanted)]
        else:
            has.append(wanted)
    places = []
    for dim in window.dims(window.root):
        if dim and dim not in has:
            raise DoesNotFit("the result lies in memory in another way")
        places.append(has.index(dim) if dim else -1)
    if sorted(place for place in places if place >= 0) != [place for place, dim in enumerate(has) if dim]:
        raise DoesNotFit("the result has other dimensions")
    return tuple(places)
