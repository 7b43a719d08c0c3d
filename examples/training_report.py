"""A page, a table and a plot of what `train_transformer.py run` measured."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, Self

from examples.train_transformer import DEFAULT_VARIANTS, PHASES, VARIANTS, Settings

BASE, OURS = "unpatched", "tritongen"
LAST = 20  # steps at the end, over which losses are averaged
GIB = 2**30


@dataclass(frozen=True)
class Variant:
    """The rounds of a variant, in order."""

    name: str
    rounds: list[dict[str, Any]]

    @property
    def losses(self) -> list[list[float]]:
        return [one["losses"] for one in self.rounds]

    def phase(self, name: str) -> float:
        """The median over the counted steps of all rounds, ms."""
        return median(span for one in self.rounds for span in counted(one, one["milliseconds"][name]))

    def step(self, number: int | None = None) -> float:
        """The median step of a round or of all, ms."""
        rounds = self.rounds if number is None else [self.rounds[number]]
        return median(span for one in rounds for span in counted(one, steps(one)))

    @property
    def peak(self) -> float | None:
        """GiB; None where none was measured."""
        peaks = [one["peak_bytes"] for one in self.rounds]
        return None if None in peaks else max(peaks) / GIB


def counted(one: dict[str, Any], spans: list[float]) -> list[float]:
    return spans[one["settings"]["warm_up"] :]


def steps(one: dict[str, Any]) -> list[float]:
    return [sum(spans) for spans in zip(*(one["milliseconds"][phase] for phase in PHASES), strict=True)]


def load(folder: Path) -> list[Variant]:
    """What a folder holds, in the order of VARIANTS.

    Raises:
        SystemExit: unless there are runs of the unpatched and the patched model, and all started alike.
    """
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in VARIANTS}
    for path in sorted(folder.glob("*-[0-9]*.json")):
        one = json.loads(path.read_text(encoding="utf-8"))
        runs[one["variant"]].append(one)
    every = [one for rounds in runs.values() for one in rounds]
    for name in (BASE, OURS):
        if not runs[name]:
            raise SystemExit(f"{folder} has no run of {name}")
    for key in ("settings", "start", "device"):
        if len({json.dumps(one[key]) for one in every}) > 1:
            raise SystemExit(f"the runs in {folder} differ in their {key}")
    return [Variant(name, rounds) for name, rounds in runs.items() if rounds]


@dataclass(frozen=True)
class Apart:
    """By how much two curves differ: in the median of all steps, at most at any step, and in the mean of the last
    steps (signed).
    """

    middle: float
    most: float
    end: float

    @classmethod
    def of(cls, losses: list[float], base: list[float]) -> Self:
        every = [abs(one - other) for one, other in zip(losses, base, strict=True)]
        return cls(median(every), max(every), fmean(losses[-LAST:]) - fmean(base[-LAST:]))


def table(variants: list[Variant]) -> str:
    base = next(variant for variant in variants if variant.name == BASE)
    lines = [
        "| | step, ms (by round) | forward | backward | optimizer | tokens/s | peak memory, GiB | final loss |"
        " from unpatched: median | most | at the end |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for variant in variants:
        settings = variant.rounds[0]["settings"]
        times = " ".join(f"{variant.step(number):.1f}" for number in range(len(variant.rounds)))
        rate = settings["batch"] * settings["length"] / variant.step() * 1e3
        found = Apart.of(variant.losses[0], base.losses[0])
        memory = "-" if variant.peak is None or base.peak is None else against(variant.peak, base.peak, 2)
        cells = [
            variant.name,
            f"{against(variant.step(), base.step(), 1)} [{times}]",
            *(f"{variant.phase(phase):.1f}" for phase in PHASES),
            f"{rate:,.0f}",
            memory,
            f"{fmean(variant.losses[0][-LAST:]):.4f}",
            *(("", "", "") if variant is base else (f"{found.middle:.1e}", f"{found.most:.1e}", f"{found.end:+.1e}")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def against(value: float, base: float, digits: int) -> str:
    return f"{value:.{digits}f}" if value == base else f"{value:.{digits}f} ({value / base - 1:+.0%})"


def repeated(variants: list[Variant]) -> str:
    """How far rounds of one variant are apart: the noise that other differences are to be held against."""
    found = []
    for variant in variants:
        for number, losses in enumerate(variant.losses[1:], 2):
            one = Apart.of(losses, variant.losses[0])
            by = f"by {one.middle:.1e}, {one.most:.1e} and {one.end:+.1e}" if one.most else "gave the same losses"
            found.append(f"{variant.name} in round {number} {by}")
    return f"From their own first round: {'; '.join(found)}." if found else "There was one round."


def wrapped(text: str, mark: str = "") -> str:
    return textwrap.fill(text, 115, initial_indent=mark, subsequent_indent=" " * len(mark), break_on_hyphens=False)


def page(variants: list[Variant]) -> str:
    first = variants[0].rounds[0]
    settings = first["settings"]
    versions = {name: version for variant in variants for name, version in variant.rounds[0]["versions"].items()}
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    named = "\n".join(f"- **{variant.name}**: {VARIANTS[variant.name]}." for variant in variants)
    counted_steps = settings["steps"] - settings["warm_up"]
    trained = (
        f"{first['device']}, {told}. {first['parameters']:,} weights in {settings['dtype']}:"
        f" {settings['layers']} layers of {settings['hidden']:,}, {settings['heads']} heads,"
        f" {settings['kv_heads']} of keys and values, vocabulary {settings['vocabulary']:,}."
        f" {settings['batch']} sequences of {settings['length']:,} tokens a step, {settings['steps']} steps of AdamW,"
        f" gradients clipped to a norm of {settings['largest_norm']:g}."
    )
    columns = (
        "The last three columns are the difference of a variant's loss from the unpatched model's in the first round:"
        f" the median and the largest of all steps, and that of the means of the last {LAST} steps."
        f" {repeated(variants)}"
    )
    memory = "Peak memory is what torch's allocator held at most in those steps."
    if first["held_bytes"] is not None:
        memory += f" Weights, their copies and AdamW's state are {first['held_bytes'] / GIB:.2f} GiB of it."
    return f"""\
# Training a transformer

<!-- Written by `python examples/train_transformer.py report`: run that again rather than edit this. -->

A Llama of the transformers library with random weights, trained as it is and with generated operators in the place
of its own ([examples/patch_llama.py](../examples/patch_llama.py)): RMSNorm, SwiGLU, RoPE, attention and the loss,
forward and backward. Beside it, where they were run, Liger-Kernel's patch and torch.compile.

![losses, their differences, step times and peak memory](training.svg)

{table(variants)}

{wrapped(trained)}

{named}

## How to read it

- All runs began with the same weights and saw the same data ("start" {first["start"]} in every file). Weights, their
  copies in float32 that AdamW updates, the clipping of gradients and the learning rate are treated alike in every
  variant.
- The data are random text in which two tokens of context tell the odds of four followers. The loss can fall to
  {first["floor"]:.3f}, the entropy of these odds, and not below but by chance.
{wrapped(columns, "- ")}
- A kernel that rounds elsewhere, as a fused one does, gives other last bits, and training makes them grow: what
  torch.compile, which changes rounding alone, or another round differs by, is what such a difference amounts to.
- Times are medians of {counted_steps} steps a round (the first {settings["warm_up"]} are left out), over all rounds,
  in brackets of each; every round of a variant is a process of its own, and variants alternate.
{wrapped(memory, "- ")}

## How to repeat it

```sh
pip install -e '.[example]' liger-kernel
python examples/train_transformer.py run --out runs{asked(variants)}
python examples/train_transformer.py report --runs runs --report docs
```
"""


def asked(variants: list[Variant]) -> str:
    """What was asked of `run` beyond its defaults."""
    settings = variants[0].rounds[0]["settings"]
    rounds = max(len(variant.rounds) for variant in variants)
    options = ["--steps", str(settings["steps"])] if settings["steps"] != Settings().steps else []
    names = [variant.name for variant in variants]
    options += ["--variants", *names] if names != DEFAULT_VARIANTS else []
    options += ["--rounds", *map(str, range(1, rounds + 1))] if rounds != 2 else []
    return "".join(f" {option}" for option in options)


def draw(variants: list[Variant], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "tritongen", "font.size": 9, "svg.fonttype": "none"})
    from matplotlib import pyplot

    figure, ((curves, differences), (times, memory)) = pyplot.subplots(2, 2, figsize=(11, 7), layout="constrained")
    base = next(variant for variant in variants if variant.name == BASE)
    colors = {name: f"C{number}" for number, name in enumerate(VARIANTS)}
    count = len(base.losses[0])
    for number, variant in enumerate(variants):
        color = colors[variant.name]
        # Dashes that alternate let curves show that lie on each other.
        dashes = (4 * number, (4, 4 * (len(variants) - 1))) if number else "-"
        curves.plot(range(count), variant.losses[0], color=color, linestyle=dashes)
        curves.plot([], [], color=color, label=variant.name)  # for the legend, without gaps
        if variant is not base:
            apart = [one - other for one, other in zip(variant.losses[0], base.losses[0], strict=True)]
            differences.plot(range(count), apart, color=color, linewidth=0.8, label=variant.name)
    for losses in base.losses[1:]:
        apart = [one - other for one, other in zip(losses, base.losses[0], strict=True)]
        differences.plot(range(count), apart, color="0.7", linewidth=0.8, zorder=1, label=f"{BASE}, another round")
    curves.axhline(base.rounds[0]["floor"], color="black", linewidth=0.6, linestyle=":", label="entropy of the data")
    curves.set(title="loss", xlabel="step")
    differences.set(title="loss less that of the unpatched model", xlabel="step")
    curves.legend()
    differences.legend(fontsize="x-small")

    names = [variant.name for variant in variants]
    left = [0.0] * len(variants)
    for shade, phase in zip(("0.35", "0.6", "0.8"), PHASES, strict=True):
        spans = [variant.phase(phase) for variant in variants]
        times.barh(names, spans, left=left, color=shade, label=phase)
        left = [one + span for one, span in zip(left, spans, strict=True)]
    times.set(title="median step, ms")
    times.legend(ncols=len(PHASES), loc="upper center", bbox_to_anchor=(0.5, -0.08))
    peaks = [variant.peak for variant in variants]
    if None in peaks:
        memory.set_axis_off()
    else:
        bars = memory.barh(names, peaks, color=[colors[name] for name in names])
        memory.bar_label(bars, fmt="%.1f", padding=2)
        memory.set(title="peak memory, GiB")
        memory.margins(x=0.1)
    for axes in (times, memory):
        axes.invert_yaxis()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def report(runs: Path, folder: Path) -> None:
    """Write training.md and training.svg into a folder."""
    variants = load(runs)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "training.md").write_text(page(variants), encoding="utf-8")
    draw(variants, folder / "training.svg")
    print(f"wrote {folder / 'training.md'} and {folder / 'training.svg'}")
