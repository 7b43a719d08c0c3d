"""How packages of operators import what they export, and Triton with it, when it is first asked for."""

import importlib
from collections.abc import Callable, Sequence


def exports(package: str, module: str, names: Sequence[str]) -> Callable[[str], object]:
    """The `__getattr__` of a package that exports some names of a module in it."""

    def get(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f".{module}", package), name)

    return get
