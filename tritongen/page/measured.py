"""Shares of the ceiling for the plots of a page, from a run of `tritongen bench`, or from a document's table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..benching.run import Case, Figure, read_run

Shares = Mapping[str, int]  # by provider, in %
_SERIES = ("tritongen", "torch", "torch.compile")
_SHARES = re.compile(r"^\| (\w+) \|[^|]*\|[^|]*\| (\d+)% \| (\d+)% \| (\d+)% \|", re.MULTILINE)
_DEVICE = re.compile(r"^- \*\*Device and versions\*\*: (.*)\.$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Measured:
    """The shares of the forward by operator, and the device and versions that they were measured with."""

    shares: Mapping[str, Shares]
    device: str = ""


def measured_in(text: str) -> Measured:
    """Parse JSON of `tritongen bench`, or a document with tables as in docs/performance.md.

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
    """The forward of each operator in its benchmark's first dtype, by increasing size, so that the largest is last."""
    dtypes: dict[str, str] = {}
    for case, figures in sorted(cases.items(), key=lambda one: one[0].size):
        if case.direction == "forward" and case.dtype == dtypes.setdefault(case.op, case.dtype):
            yield case.op, {one.provider: round(100 * one.share) for one in figures if one.share is not None}
