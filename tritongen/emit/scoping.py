"""The names that a module reads and does not define, by Python's own scopes.

Python and Triton report an undefined name only when the line runs, which may be in a kernel that few shapes launch.
Whether a name is defined before it is read is not checked here, but for nests in `tritongen/nest/check.py`.
"""

from __future__ import annotations

import builtins
import symtable
from collections.abc import Iterator

OF_ALL = frozenset({*dir(builtins), "__class__", "__file__", "__name__"})


def undefined_names(text: str) -> list[str]:
    """The names that a module mentions and does not define."""
    table = symtable.symtable(text, "module", "exec")
    defined = {one.get_name() for one in table.get_symbols() if one.is_assigned() or one.is_imported()}
    return sorted({*global_names(table)} - defined - OF_ALL)


def global_names(table: symtable.SymbolTable) -> Iterator[str]:
    """The global names that a module reads, its own and others."""
    is_module = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() if is_module else symbol.is_global():
            yield symbol.get_name()
    for inner in table.get_children():
        yield from global_names(inner)
