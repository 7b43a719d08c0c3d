"""Temporary values for attributes of other modules and classes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def swapped(owner: Any, **values: Any) -> Iterator[None]:
    """Replaces attributes that `owner` (an object, class or module) itself has, until the context exits."""
    before = {name: vars(owner)[name] for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)
