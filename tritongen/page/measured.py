"""Shares of the ceiling for the plots of a page: of a run of `tritongen bench`, or of a document's table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..benching.run import Case, Figure, read_run

Shares = Mapping[str, int]  # of providers, in %
_SERIES = ("tritongen", "torch", "torch.compile")
_SHARES = re.compile(r"^\| (\w+) \|[^|]*\|[^|]*\| (\d+)% \| (\d+)% \| (\d+)% \|", re.MULTILINE)
_DEVICE = re.compile(r"^- \*\*Device and versions\*\*: (.*)\.$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Measured:
    """Of each operator, the shares of its forward, and what they were measured on."""

    shares: Mapping[str, Shares]
    device: str = ""


def measured_in(text: str) -> Measured:
    """What a text says: JSON of `tritongen bench`, or a document with tables as docs/performance.md has.

    Raises `BadRun` for other JSON.
    """
    if text.lstrip().startswith("{"):
        run = read_run(text)
        return Measured(dict(_largest(run.cases())), run.machine)
    found: dict[str, Shares] = {}
    for name, *shares in _SHARES.findall(text):  # The first table is the gallery's.
        found.setdefault(name, dict(zip(_SERIES, map(int, shares), strict=True)))
    about = _DEVICE.search(text)
    return Measured(found, about[1] if about else "")


def _largest(cases: Mapping[Case, list[Figure]]) -> Iterator[tuple[str, Shares]]:
    """Of each operator, the forward of the largest size, in the dtype that its benchmark has first."""
    dtypes: dict[str, str] = {}
    for case, figures in sorted(cases.items(), key=lambda one: one[0].size):
        if case.direction == "forward" and case.dtype == dtypes.setdefault(case.op, case.dtype):
            yield case.op, {one.provider: round(100 * one.share) for one in figures if one.share is not None}
