"""What of ATen the table has rows for, for the documents."""

from __future__ import annotations

from . import operators
from .table import OPERATORS


def rows() -> list[tuple[str, list[str]]]:
    """The operators of the table, by the module that has them; with other overloads and private names left out."""
    found = []
    for kind in operators.__all__:
        made = [(name, build) for name, build in OPERATORS.items() if not build.__name__.startswith("_no_")]
        of_kind = {name.partition(".")[0] for name, build in made if build.__module__.endswith(f".{kind}")}
        found.append((kind, sorted(name for name in of_kind if not name.startswith("_"))))
    return found
