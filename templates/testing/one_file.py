"""The harness for operators in one file each, which have copies of their own of what they use of the runtime."""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, cast


class Section:
    """A module of the runtime as a file has it; what the file has no use for is the runtime's.

    It has no `__dict__`, from which pytest would take what it restores.
    """

    __slots__ = ("_file", "_module")
    _file: ModuleType
    _module: ModuleType

    def __init__(self, file: ModuleType, module: ModuleType) -> None:
        object.__setattr__(self, "_file", file)
        object.__setattr__(self, "_module", module)

    def _home(self, name: str) -> tuple[ModuleType, str]:
        """Where a name is defined, and what it is called there: by its module, if another has the name, too."""
        section = self._module.__name__.rpartition(".")[2]
        section = section.upper() if name.isupper() else section
        own = f"_{section}{name}" if name.startswith("_") else f"{section}_{name}"
        for called in (own, name):
            if hasattr(self._file, called):
                return self._file, called
        return self._module, name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(*self._home(name))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(*self._home(name), value)


def file_of(op: Callable[..., Any]) -> ModuleType:
    """The file of an operator."""
    return sys.modules[op.__module__]


def tables_in(op: Callable[..., Any], *names: str) -> SimpleNamespace:
    """The tables of configurations in the file of an operator."""
    return SimpleNamespace(**{name: getattr(file_of(op), name) for name in names})


def of(op: Callable[..., Any]) -> Any:
    """The harness anew, for tests of an operator by what its file has of the runtime."""
    assert __package__
    home = __package__.rpartition(".")[0]
    names = (__package__, f"{home}._runtime")
    before = {
        name: module
        for name, module in sys.modules.items()
        if name in names or name.rpartition(".")[0] in names
    }
    runtime = before.get(names[1], ModuleType(names[1]))
    sections = {
        name.rpartition(".")[2]: Section(file_of(op), module)
        for name, module in before.items()
        if name.rpartition(".")[0] == names[1]
    }
    try:
        for name in before:
            if name != names[1]:
                del sys.modules[name]
        seen = ModuleType(names[1])
        vars(seen).update(sections, __path__=runtime.__path__)
        sys.modules[names[1]] = seen
        for name, section in sections.items():
            sys.modules[f"{names[1]}.{name}"] = cast(ModuleType, section)
        return importlib.import_module(__package__)
    finally:
        for name in [one for one in sys.modules if one.rpartition(".")[0] in names]:
            del sys.modules[name]
        sys.modules.update(before)
