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
    """An imported spec, with its target and trace."""

    imported: Imported
    target: Target
    trace: Trace


@rejecting()
def imported(spelled: str, init: Sequence[str], example: str, name: str = "") -> Result:
    """Imports a function or module as a spec. Raises `Rejected` with all operators that the language cannot express."""
    return imported_target(load(spelled, init, example), parse_example(example), name)


@rejecting()
def imported_target(target: Target, given: Mapping[str, Example | object], name: str = "") -> Result:
    """The spec of a loaded target, by the arguments of an example call. Raises `Rejected`."""
    traced = trace(target, given)
    return Result(written(target, traced, _scalars(target, given), name or target.name), target, traced)


@rejecting()
def partially(spelled: str, init: Sequence[str], example: str, name: str = "") -> Partial:
    """The regions of a function that a spec can state, and Python that calls them. Raises `Rejected`."""
    target, given = load(spelled, init, example), parse_example(example)
    return partial(target, trace(target, given), _scalars(target, given), name or target.name)


def _scalars(target: Target, given: Mapping[str, Example | object]) -> dict[str, float | int]:
    """The scalars of a target and of its example, by name, without bools."""
    found = {name: value for name, value in bound(target, given).items() if isinstance(value, int | float)}
    return dict(target.scalars) | {name: value for name, value in found.items() if not isinstance(value, bool)}
