"""The signatures and docstrings of the functions that compute steps."""

from __future__ import annotations

from typing import Any

from ..diagnostics.report import listed
from ..emit.format import LONGEST, wrapped
from ..emit.host_checks import IS_FAKE, returned_types
from ..emit.module import docstring_values, formula
from ..emit.registration import typed
from ..lang.names import shown
from .family import Step


def kind_of(name: str, optional: frozenset[str] = frozenset()) -> str:
    """The type of an argument of a step that is no tensor or param."""
    source, _, what = name.rpartition("_")
    kind = {"shape": "torch.Size", "dtype": "torch.dtype"}.get(what, "bool")
    return f"{kind} | None" if what == "dtype" and source in optional else kind


def summary(step: Step) -> str:
    names = listed((result.output.name for result in step.op.results), "and")
    text = step.says or f"Computes {names}."
    return "\n    ".join(wrapped(shown(text), after="")) if len(shown(text)) > LONGEST else text


def function_view(step: Step, is_registered: bool, optional: frozenset[str]) -> dict[str, Any]:
    """The head of a step's function."""
    op = step.op
    extra = [f"{name}: {kind_of(name, optional)}" for name in (*step.extra, *([IS_FAKE] if is_registered else []))]
    lines = tuple(line for value in docstring_values(op) for line in formula(value, 100))
    room = 88 - len('    """Computes ."""')  # of a docstring on one line
    is_one = len(lines) == 1 and not step.says and len(shown(lines[0])) <= room
    return {
        "signature": ", ".join([*typed(op), *extra]),
        "returns": returned_types(*(bool(result.when) and not is_registered for result in op.results)),
        "summary": f"Computes {lines[0]}." if is_one else summary(step),
        "formula": () if is_one else lines,
    }
