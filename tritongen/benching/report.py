"""The report of a run: one self-contained HTML file with plots."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .run import Case, Figure, Run, ceiling, ratio

WIDTH, HEIGHT = 460, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 34  # margins of a chart
STEPS = (1, 2, 2.5, 5, 10)
COLORS = 8  # number of colors in the template
OWN = "tritongen"
_POWERS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Line:
    """A provider in a chart: its name in the legend, and points with their tooltips."""

    name: str
    points: tuple[tuple[float, float, str], ...]

    @property
    def path(self) -> str:
        return " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in self.points)


@dataclass(frozen=True)
class Chart:
    """Rates of an operator over sizes in one direction and dtype; with one size only, bars."""

    op: str
    call: str
    unit: str
    argument: str
    across: tuple[tuple[float, str], ...]  # ticks of sizes
    up: tuple[tuple[float, str], ...]  # ticks of rates
    ceiling: float  # its height, or NaN where it is above the chart
    lines: tuple[Line, ...]
    rows: tuple[tuple[Case, tuple[Figure, ...], float], ...]
    providers: tuple[str, ...]

    @property
    def bars(self) -> bool:
        return len(self.across) == 1

    @property
    def title(self) -> str:
        return f"{self.op} {self.call}"


def report(run: Run) -> str:
    """The text of the file."""
    from ..operator.compile import environment
    from ..resources import template_folders

    charts = [*_charts(run)]
    ratios = [found for chart in charts for *_, found in chart.rows if not math.isnan(found)]
    mean = statistics.geometric_mean(ratios) if ratios else math.nan
    peers = list(dict.fromkeys(name for chart in charts for name in chart.providers[1:]))
    colors = {name: min(place, COLORS - 1) for place, name in enumerate(peers, 1)}
    template = environment(template_folders()).get_template("report.html.jinja")
    return template.render(
        run=run,
        charts=charts,
        mean=mean,
        slower=sum(found < 1 for found in ratios),
        cases=len(ratios),
        colors={OWN: 0} | colors,
        size=(WIDTH, HEIGHT),
        plot=(LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM),
        is_number=lambda value: value is not None and not math.isnan(value),
    )


def _charts(run: Run) -> Iterator[Chart]:
    groups: dict[tuple[str, str, str], list[tuple[Case, list[Figure]]]] = {}
    for case, figures in run.cases().items():
        groups.setdefault((case.op, case.direction, case.dtype), []).append((case, figures))
    for (op, direction, dtype), found in groups.items():
        yield _chart(op, f"{direction} {dtype}".strip(), sorted(found, key=lambda one: one[0].size))


def _chart(op: str, call: str, found: Sequence[tuple[Case, list[Figure]]]) -> Chart:
    providers = [figure.provider for figure in found[0][1]]
    unit = found[0][1][0].unit
    most = max((one.rate or 0 for _, figures in found for one in figures), default=0) or 1.0
    bound = ceiling(one for _, figures in found for one in figures)
    top = max(most, bound if not math.isnan(bound) and bound < 4 * most else 0) * 1.05
    sizes = [case.size for case, _ in found]
    low, high = math.log2(sizes[0]), math.log2(sizes[-1])

    def across(size: int, place: float) -> float:
        share = (math.log2(size) - low) / (high - low) if high > low else (place + 0.5) / len(providers)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def up(rate: float) -> float:
        return HEIGHT - BOTTOM - rate / top * (HEIGHT - TOP - BOTTOM)

    def points(place: int) -> Iterator[tuple[float, float, str]]:
        for case, figures in found:
            one = figures[place]
            if one.rate and one.low and one.high:
                spread = f"{one.low:,.0f} to {one.high:,.0f}"
                text = f"{one.provider}, {case.argument} {case.size:,}: {one.rate:,.0f} {unit} ({spread})"
                yield across(case.size, place), up(one.rate), text

    names = [OWN, *providers[1:]]
    lines = [Line(name, tuple(points(place))) for place, name in enumerate(names)]
    return Chart(
        op,
        call,
        unit,
        found[0][0].argument,
        tuple((across(size, len(providers) / 2 - 0.5), _power(size)) for size in sizes),
        tuple((up(rate), f"{rate:,.0f}" if rate >= 1 or not rate else f"{rate:.2g}") for rate in _ticks(top)),
        up(bound) if bound <= top else math.nan,
        tuple(line for line in lines if line.points),
        tuple((case, tuple(figures), ratio(figures)) for case, figures in found),
        tuple(providers),
    )


def _ticks(top: float) -> list[float]:
    """Three to six ticks at round values from 0 to at most `top`."""
    raw = top / 5
    base = 10 ** math.floor(math.log10(raw))
    step = next(base * one for one in STEPS if base * one >= raw)
    return [step * place for place in range(int(top / step) + 1)]


def _power(size: int) -> str:
    """`4,096` or `2¹⁸`"""
    exponent = size.bit_length() - 1
    return "2" + str(exponent).translate(_POWERS) if size == 1 << exponent and exponent >= 14 else f"{size:,}"
