"""Warnings about values of `[schedule]` that no launch uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..diagnostics.report import Mistake
from ..emit.configs import Table, tables_of
from ..emit.module import Module
from ..spec.types import Schedule, Spec

LISTS = ("block_m", "block_n", "block_k", "num_warps", "num_stages")
_FIELDS = {"num_warps": ("warps",), "num_stages": ("stages",), "block_n": ("block_n", "block")}


def schedule_warnings(spec: Spec, module: Module, has_backward: bool) -> Iterator[Mistake]:
    """Values of `[schedule]` that no table of the forward has, as no launch would choose them; and that the backward
    has tables of its own.
    """
    lists = {key: getattr(spec.schedule, key) for key in LISTS if getattr(spec.schedule, key)}
    tables = tables_of(module.launches, spec.schedule, "") if lists else ()
    for key, values in lists.items():
        used = set(_values(tables, key))
        if idle := [value for value in values if value not in used]:
            yield _in_vain(key, values, idle, spec.schedule)
    if lists and has_backward:
        key = next(iter(lists))
        message = "this is of the forward alone: kernels of the backward keep the measured tiles and warps"
        yield Mistake("TG505", message, ("schedule", key), hint="autotune = true times those of both")


def _in_vain(key: str, values: tuple[int, ...], idle: list[int], schedule: Schedule) -> Mistake:
    """The message about values that are never chosen."""
    if len(idle) == len(values):
        message = f"no kernel of this operator takes {key}"
        return Mistake("TG504", message, ("schedule", key), hint="leave it out")
    listed = " and ".join(map(str, idle))
    message = f"of {key}, {listed} {'are' if len(idle) > 1 else 'is'} never chosen"
    if schedule.autotune:
        return Mistake("TG504", message, ("schedule", key), hint="leave it out")
    message += f": without a search, launches take the first, {values[0]}"
    return Mistake("TG504", message, ("schedule", key), hint="list one, or write autotune = true")


def _values(tables: Iterable[Table], key: str) -> Iterator[int]:
    for table in tables:
        yield from (table.block_m,) if key == "block_m" else ()
        tuples = (table.configs, table.single, table.double, table.wide, table.described, *table.timed)
        for config in (one for several in tuples for one in several):
            yield from (getattr(config, name, 0) for name in _FIELDS.get(key, (key,)))
