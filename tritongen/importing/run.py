"""`tritongen import`, from a target and an example to the text of a spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .partial import Partial, partial
from .refusals import rejecting
from .targets import Example, Target, load, parse_example
from .tracing import Trace, bound, trace
from .writing import Imported, written


@dataclass(frozen=True, slots=True)
class Result:
    """What was imported, and what it was imported from."""

    imported: Imported
    target: Target
    trace: Trace


@rejecting()
def imported(spelled: str, init: Sequence[str], example: str, name: str = "") -> Result:
    """The spec of a function or module of somebody's. Raises `Rejected` with all that keeps it from being one."""
    return imported_target(load(spelled, init, example), parse_example(example), name)


@rejecting()
def imported_target(target: Target, given: Mapping[str, Example | object], name: str = "") -> Result:
    """The spec of a target that is loaded, by an example of its call. Raises `Rejected`."""
    traced = trace(target, given)
    return Result(written(target, traced, _scalars(target, given), name or target.name), target, traced)


@rejecting()
def partially(spelled: str, init: Sequence[str], example: str, name: str = "") -> Partial:
    """The regions of a function that a spec can state, and Python that calls them. Raises `Rejected`."""
    target, given = load(spelled, init, example), parse_example(example)
    return partial(target, trace(target, given), _scalars(target, given), name or target.name)


def _scalars(target: Target, given: Mapping[str, Example | object]) -> dict[str, float | int]:
    """The numbers of a target and its example, by their names."""
    found = {name: value for name, value in bound(target, given).items() if isinstance(value, int | float)}
    return dict(target.scalars) | {name: value for name, value in found.items() if not isinstance(value, bool)}
