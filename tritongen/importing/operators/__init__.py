"""ATen operators in the language, a module for each kind: importing this package fills the table."""

from . import (
    attention,
    contractions,
    creation,
    indexing,
    losses,
    norms,
    pointwise,
    reductions,
    shapes,
    sorting,
    windows,
)

__all__ = [
    "attention",
    "contractions",
    "creation",
    "indexing",
    "losses",
    "norms",
    "pointwise",
    "reductions",
    "shapes",
    "sorting",
    "windows",
]
