"""Runs of nodes of a trace that are operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .tracing import Trace
from .writing import Imported


@dataclass(frozen=True, slots=True)
class Region:
    """A run of nodes that is one operator, the nodes that it reads (`given`), and those of it that others read."""

    nodes: tuple[Any, ...]
    given: tuple[Any, ...]
    results: tuple[Any, ...]
    trace: Trace
    imported: Imported


def is_number(node: Any) -> bool:
    return isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool)
