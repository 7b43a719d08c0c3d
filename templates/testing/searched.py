"""Tests of kernels whose configurations @triton.autotune picks."""

from types import ModuleType
from typing import Any, ClassVar

from triton import Config
from triton.runtime.autotuner import Autotuner

from ..runtime import heuristics
from .harness import Harness, Patch


class SearchedTests(Harness):
    """Kernels are searched with one configuration, where tests force that."""

    searched: ClassVar[ModuleType]  # kernels.py

    @classmethod
    def force(cls, patch: Patch, table: Any, config: Config) -> None:
        super().force(patch, table, config)
        table = getattr(cls.tables, table) if isinstance(table, str) else table
        is_searched = isinstance(table, heuristics.Table)
        for kernel in vars(cls.searched).values() if is_searched else ():
            # The interpreter tries only the first of a table.
            if isinstance(kernel, Autotuner) and kernel.configs[0] is table.configs[0]:
                patch.setattr(kernel, "configs", [config])
