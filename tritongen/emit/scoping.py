"""The names that a module reads of others, by Python's own scopes.

Of what it does not define, Python and Triton tell only when the line runs, which may be in a kernel that few shapes
launch. Where a function defines a name is not asked here: nests are, see `tritongen/nest/check.py`.
"""

from __future__ import annotations

import builtins
import symtable
from collections.abc import Iterator

OF_ALL = frozenset({*dir(builtins), "__class__", "__file__", "__name__"})


def undefined_names(text: str) -> list[str]:
    """What a module mentions and does not define."""
    table = symtable.symtable(text, "module", "exec")
    defined = {one.get_name() for one in table.get_symbols() if one.is_assigned() or one.is_imported()}
    return sorted({*global_names(table)} - defined - OF_ALL)


def global_names(table: symtable.SymbolTable) -> Iterator[str]:
    """What a module reads of its own names, and of those that are not its own."""
    is_module = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() if is_module else symbol.is_global():
            yield symbol.get_name()
    for inner in table.get_children():
        yield from global_names(inner)
