"""The figures of a run of benchmarks: stored as JSON and CSV, shown as a table, compared with an earlier run."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields

NOISE = 0.02  # relative differences up to this are ignored
_VERSION = 1
_LISTS = ("peers", "not installed")


class BadRun(ValueError):
    """A text that is not the JSON of a run."""


@dataclass(frozen=True, order=True)
class Case:
    """A call to measure: an operator or its backward, with inputs of a dtype and of a size of its benchmark."""

    op: str
    direction: str  # forward or backward
    dtype: str  # empty if the benchmark has no choice of dtypes
    argument: str  # the name of the size
    size: int

    def __str__(self) -> str:
        dtype = f" {self.dtype}" if self.dtype else ""
        return f"{self.op} {self.direction}{dtype} {self.argument}={self.size}"


@dataclass(frozen=True)
class Figure:
    """A provider's rate in a case: median, minimum and maximum over rounds, in which providers alternate.

    `share` is relative to the rate of a measured copy or matmul. `host_us` is the time in microseconds until a call
    returns, without waiting for the GPU. A provider that failed has `error` and no rate.
    """

    case: Case
    provider: str
    unit: str
    rate: float | None = None
    low: float | None = None
    high: float | None = None
    share: float | None = None
    host_us: float | None = None
    error: str = ""


@dataclass(frozen=True)
class Run:
    """Figures, and the device, driver, versions and command that they were measured with."""

    about: dict[str, str]
    figures: tuple[Figure, ...]

    @property
    def machine(self) -> str:
        """The device and the versions in words."""
        words = ("device", ""), ("driver", "driver "), ("torch", "torch "), ("triton", "Triton "), ("peers", "")
        return ", ".join(f"{word}{self.about[name]}" for name, word in words if name in self.about)

    def cases(self) -> dict[Case, list[Figure]]:
        found: dict[Case, list[Figure]] = {}
        for figure in self.figures:
            found.setdefault(figure.case, []).append(figure)
        return found

    def json(self) -> str:
        data = {"version": _VERSION, "about": self.about, "figures": [asdict(one) for one in self.figures]}
        return json.dumps(data, indent=1) + "\n"

    def csv(self) -> str:
        """A line for each figure; the columns of its case first."""
        keys = [one.name for one in fields(Case)]
        others = [one.name for one in fields(Figure) if one.name != "case"]
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow([*keys, *others])
        for one in self.figures:
            rows.writerow([*(getattr(one.case, key) for key in keys), *(getattr(one, key) for key in others)])
        return text.getvalue()


def joined(earlier: Run, now: Run) -> Run:
    """Merge an interrupted run with its continuation. For a case in both, the earlier figures are taken.

    Raises `BadRun` if the device or the version of torch, triton or tritongen differs.
    """
    for name in ("device", "torch", "triton", "tritongen"):
        if earlier.about.get(name) != now.about.get(name):
            raise BadRun(f"its {name} was {earlier.about.get(name)}, and is {now.about.get(name)}")
    listed = {key: [run.about[key].split(", ") for run in (earlier, now) if key in run.about] for key in _LISTS}
    here, missing = (list(dict.fromkeys(name for names in listed[key] for name in names)) for key in _LISTS)
    known = {name.partition(" ")[0] for name in here}
    lists = dict(zip(_LISTS, (here, [name for name in missing if name not in known]), strict=True))
    lists["command"] = [f"{earlier.about['command']}\n{now.about['command']}"]
    about = {**earlier.about, **now.about, **{key: ", ".join(names) for key, names in lists.items()}}
    measured = earlier.cases()
    added = tuple(one for one in now.figures if one.case not in measured)
    return Run({key: value for key, value in about.items() if value}, earlier.figures + added)


def read_run(text: str) -> Run:
    """Parse the text that `Run.json` wrote. Raises `BadRun`."""
    try:
        data = json.loads(text)
        if data["version"] != _VERSION:
            raise BadRun(f"its version is {data['version']}, not {_VERSION}")
        return Run(data["about"], tuple(Figure(**one | {"case": Case(**one["case"])}) for one in data["figures"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise error if isinstance(error, BadRun) else BadRun("it is not the JSON of a run") from None


def ceiling(figures: Iterable[Figure]) -> float:
    """The median rate of the ceiling, NaN if no figure has a share."""
    found = [one.rate / one.share for one in figures if one.rate and one.share]
    return statistics.median(found) if found else math.nan


def ratio(figures: Iterable[Figure]) -> float:
    """The operator's rate relative to its fastest peer; NaN if it or all its peers have no rate."""
    own, *peers = (one.rate or 0.0 for one in figures)
    return own / max(peers) if own and any(peers) else math.nan


def regressions(before: Run, now: Run) -> Iterator[tuple[Case, str]]:
    """Cases in which the operator fails now, or is slower than in an earlier run beyond noise and the spread of both.

    If both runs have torch in a case, rates are compared relative to torch's, so that another clock or load of the
    machine does not count as a change of the operator.
    """
    old = before.cases()
    for case, figures in now.cases().items():
        if not (earlier := old.get(case)):
            continue
        own, then = figures[0], earlier[0]
        if then.rate and not own.rate:
            yield case, f"failed: {own.error}"
        elif (lost := _lost(then, own, _torch(earlier), _torch(figures))) is not None:
            yield case, f"{own.rate:,.0f} {own.unit}, before {then.rate:,.0f}: {lost:.1%} slower"


def _torch(figures: Iterable[Figure]) -> float | None:
    return next((one.rate for one in figures if one.provider == "torch" and one.rate), None)


def _lost(then: Figure, now: Figure, torch_then: float | None, torch_now: float | None) -> float | None:
    """The fraction of its rate that an operator lost, None within noise or the spread of rounds."""
    if not (then.rate and then.low and now.rate and now.high):
        return None
    scale = torch_then / torch_now if torch_then and torch_now else 1.0
    lost = 1 - now.rate * scale / then.rate
    return lost if lost > NOISE and now.high * scale < then.low else None


def rows(run: Run) -> Iterator[tuple[str, ...]]:
    """The rows of a table: a head, then for each case rates of operator and peers, share of the ceiling, and ratio."""
    yield "operator", "call", "size", "rate", "share", "peers", "ratio", "host us"
    before = ""
    for case, figures in run.cases().items():
        own = figures[0]
        if before and before != case.op:
            yield ("",) * 8
        before = case.op
        yield (
            case.op,
            f"{case.direction} {case.dtype}".strip(),
            f"{case.argument}={case.size:,}",
            f"{_shown(own.rate, ',.0f')} {own.unit}" if own.rate else "failed",
            _shown(own.share, ".0%"),
            " ".join(f"{one.provider} {_shown(one.rate, ',.0f')}" for one in figures[1:]),
            _shown(ratio(figures), ".2f"),
            _shown(own.host_us, ".1f"),
        )


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None or math.isnan(value) else format(value, form)
