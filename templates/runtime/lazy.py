"""Lazy imports: packages of operators import what they export, and thereby Triton, on first use."""

import importlib
from collections.abc import Callable, Sequence


def exports(package: str, module: str, names: Sequence[str]) -> Callable[[str], object]:
    """The `__getattr__` of a package that exports names of one of its modules."""

    def get(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f".{module}", package), name)

    return get
