"""The document of a run: Markdown with a table for each direction and unit."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence

from .run import NOISE, Case, Figure, Run, ceiling, ratio

_SLOWER = 1 - NOISE  # ratios to the fastest peer below it are set in bold
_COLUMNS = ("torch", "torch.compile")
_TITLES = {
    ("GB/s", "forward"): "Bound by memory",
    ("TFLOP/s", "forward"): "Matmuls and attention",
    ("GB/s", "backward"): "Bound by memory, backward",
    ("TFLOP/s", "backward"): "Matmuls and attention, backward",
}
_BOUNDS = {"GB/s": "a copy of 1 GiB by torch", "TFLOP/s": "a matmul of 8,192 by 8,192 in bfloat16 by torch"}
_Row = tuple[Case, list[Figure]]


def page(run: Run) -> str:
    """The text of the file."""
    return "\n".join([*_head(run), *(line for section in _sections(run) for line in section), *_errors(run)])


def _head(run: Run) -> Iterator[str]:
    rounds = run.about.get("rounds", "some")
    commands = ", then ".join(f"`{one}`" for one in run.about["command"].splitlines())
    yield from (
        "# Performance",
        "",
        "Made by `tritongen bench --docs`: edit nothing here.",
        "",
        f"- **Device and versions**: {run.machine}.",
        f"- **Command**: {commands}, {run.about.get('date', 'at an unknown date')}.",
    )
    if missing := run.about.get("not installed"):
        yield f"- **Not installed**: {missing}."
    yield from (
        "- **Rates** are of minimal bytes (each input read once, each result written once) or of the operations of",
        f"  matmuls: medians of {rounds} rounds, in which the operator and its peers take turns in random order, each",
        "  call with a cleared L2 cache; in brackets the slowest and the fastest round. Peers return what the operator",
        "  returns, which is checked first.",
        "- **Shares** are of the rate of a plain copy, or of a large matmul of torch, in the same run.",
        "- **Ratios** are to the fastest of the peers. **Host** is the time in microseconds until a call returns, of",
        "  the operator and of torch.",
        "",
    )


def _sections(run: Run) -> Iterator[list[str]]:
    groups: dict[tuple[str, str], list[_Row]] = {}
    for case, figures in run.cases().items():
        groups.setdefault((figures[0].unit, case.direction), []).append((case, figures))
    for key, title in _TITLES.items():
        if key in groups:
            yield _section(run, title, sorted(groups[key], key=lambda row: row[0]))


def _section(run: Run, title: str, rows: Sequence[_Row]) -> list[str]:
    unit, hosts = rows[0][1][0].unit, any(one.host_us for _, figures in rows for one in figures)
    head = ["operator", "inputs", unit, "share", *_COLUMNS, "other peers", "ratio", *(["host"] if hosts else [])]
    sides = ["---", "---", *["--:"] * (2 + len(_COLUMNS)), "---", "--:", *(["--:"] if hosts else [])]
    lines = [head, sides, *(_cells(case, figures, hosts) for case, figures in rows)]
    return [
        f"## {title}",
        "",
        f"{run.machine}. {_summary(rows)}",
        "",
        *(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines),
        "",
    ]


def _summary(rows: Sequence[_Row]) -> str:
    """The ceiling, and how the operators compare with the fastest of their peers."""
    unit = rows[0][1][0].unit
    rate = ceiling(one for _, figures in rows for one in figures)
    ratios = [found for _, figures in rows if not math.isnan(found := ratio(figures))]
    slower = sum(found < _SLOWER for found in ratios)
    bound = [] if math.isnan(rate) else [f"100% is {rate:,.0f} {unit}: {_BOUNDS[unit]}."]
    mean = f"{statistics.geometric_mean(ratios):.2f}" if ratios else "-"
    return " ".join([*bound, f"Geometric mean of the ratios: {mean}; {slower} of {len(ratios)} are below {_SLOWER}."])


def _cells(case: Case, figures: Sequence[Figure], hosts: bool) -> list[str]:
    own, *peers = figures
    known = {one.provider: one for one in peers}
    others = [one for one in peers if one.provider not in _COLUMNS]
    found = ratio(figures)
    mark = "**" if found < _SLOWER else ""
    return [
        case.op,
        f"{case.dtype} {case.argument}={case.size:,}".strip(),
        f"{own.rate:,.0f} [{own.low:,.0f}, {own.high:,.0f}]" if own.rate else "failed",
        _percent(own),
        *(_percent(known.get(name)) for name in _COLUMNS),
        ", ".join(f"{one.provider} {_percent(one)}" for one in others),
        "" if math.isnan(found) else f"{mark}{found:.2f}{mark}",
        *([", ".join(_host([own, known.get("torch")]))] if hosts else []),
    ]


def _percent(figure: Figure | None) -> str:
    if figure is None:
        return ""
    return "failed" if figure.share is None else f"{figure.share:.0%}"


def _host(figures: Iterable[Figure | None]) -> Iterator[str]:
    return (f"{one.host_us:.1f}" if one and one.host_us else "-" for one in figures)


def _errors(run: Run) -> Iterator[str]:
    """The failures, each error once with its cases."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in run.figures:
        if one.error:
            groups.setdefault((one.provider, one.error), []).append(f"{one.case.op} {one.case.direction}")
    if groups:
        yield from ("## Failed", "")
    for (provider, error), cases in sorted(groups.items()):
        text = error.replace("`", "'").replace("<", "&lt;")
        yield f"- {provider}, {', '.join(dict.fromkeys(cases))}: {text}"
    if groups:
        yield ""
