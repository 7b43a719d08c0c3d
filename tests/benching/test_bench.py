"""`tritongen bench`: figures of runs, what is a regression, the report, and mistakes of the command."""

from __future__ import annotations

import csv
import io
import math
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from tests.harness.processes import python
from tritongen.benching.report import report
from tritongen.benching.run import BadRun, Case, Figure, Run, joined, ratio, read_run, regressions, rows

ROOT = Path(__file__).parents[2]
ABOUT = {"device": "a <GPU>", "driver": "1", "torch": "2.13", "triton": "3.9", "command": "tritongen bench"}


def figure(provider: str, rate: float, size: int = 4096, spread: float = 0.01) -> Figure:
    case = Case("softmax", "forward", "bfloat16", "elements", size)
    return Figure(case, provider, "GB/s", rate, rate * (1 - spread), rate * (1 + spread), rate / 4000, 7.5)


def run_of(ours: float, torchs: float = 1000.0, spread: float = 0.01) -> Run:
    return Run(ABOUT, (figure("softmax", ours, spread=spread), figure("torch", torchs, spread=spread)))


FAILED = Figure(Case("softmax", "forward", "bfloat16", "elements", 2**20), "torch", "GB/s", error="out of <memory>")
RUN = Run(ABOUT, (figure("softmax", 2000), figure("torch", 1600), figure("softmax", 2500, 2**20), FAILED))


def test_a_run_is_read_as_it_was_written() -> None:
    assert read_run(RUN.json()) == RUN
    rows = [*csv.DictReader(io.StringIO(RUN.csv()))]
    assert [(row["op"], row["size"], row["provider"], row["rate"]) for row in rows] == [
        ("softmax", "4096", "softmax", "2000"),
        ("softmax", "4096", "torch", "1600"),
        ("softmax", "1048576", "softmax", "2500"),
        ("softmax", "1048576", "torch", ""),
    ]


def test_an_interrupted_run_goes_on() -> None:
    """With the packages of both runs, and on the same machine alone."""
    first = Run(ABOUT | {"peers": "liger 0.8", "not installed": "quack", "date": "yesterday"}, RUN.figures[:2])
    now = ABOUT | {"peers": "helion 1.4, liger 0.8", "not installed": "quack, flash", "date": "today"}
    now["command"] = "tritongen bench --resume"
    found = joined(first, Run(now, RUN.figures[2:]))
    assert found.figures == RUN.figures
    command = "tritongen bench\ntritongen bench --resume"
    assert found.about == now | {"peers": "liger 0.8, helion 1.4", "command": command}
    assert joined(first, Run(ABOUT | {"not installed": "liger"}, ())).about["not installed"] == "quack"
    assert joined(first, RUN).figures == RUN.figures, "a case of both is there once"
    with pytest.raises(BadRun, match=r"its triton was 3\.9, and is 3\.10"):
        joined(first, Run(now | {"triton": "3.10"}, ()))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "about": {}, "figures": [3]}'])
def test_what_is_no_run_is_refused(text: str) -> None:
    with pytest.raises(BadRun):
        read_run(text)


def test_the_ratio_is_to_the_fastest_peer() -> None:
    assert ratio([figure("softmax", 2000), figure("torch", 1000), figure("torch.compile", 1600)]) == 1.25
    assert math.isnan(ratio([figure("softmax", 2000), FAILED]))


@pytest.mark.parametrize(
    ("then", "now", "wanted"),
    [
        (run_of(2000), run_of(1900), "5.0% slower"),
        (run_of(2000), run_of(1970), ""),  # 1.5 % is noise
        (run_of(2000, spread=0.1), run_of(1900, spread=0.1), ""),  # within the spread of rounds
        (run_of(2000), run_of(1000, torchs=500), ""),  # the machine is slower
        (run_of(2000), run_of(2000, torchs=1200), "16.7% slower"),  # the machine is faster, and the operator is not
        (run_of(2000), Run(ABOUT, (Figure(figure("softmax", 1).case, "softmax", "GB/s", error="KeyError"),)), "failed"),
        (Run(ABOUT, ()), run_of(1), ""),
    ],
)
def test_regressions_are_beyond_the_noise(then: Run, now: Run, wanted: str) -> None:
    found = [message for _, message in regressions(then, now)]
    assert bool(found) == bool(wanted)
    assert all(wanted in message for message in found)


def test_the_table_has_a_line_for_each_case() -> None:
    assert [*rows(RUN)] == [
        ("operator", "call", "size", "rate", "share", "peers", "ratio", "host us"),
        ("softmax", "forward bfloat16", "elements=4,096", "2,000 GB/s", "50%", "torch 1,600", "1.25", "7.5"),
        ("softmax", "forward bfloat16", "elements=1,048,576", "2,500 GB/s", "62%", "torch -", "-", "7.5"),
    ]


class Page(HTMLParser):
    """Tags and texts of a page, and whatever it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attributes if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def test_the_report_is_one_file_with_all_figures() -> None:
    text = report(RUN)
    page = Page(text)
    assert page.loads == []
    assert "http" not in text
    assert page.tags.count("svg") == 1
    assert page.tags.count("circle") == 3  # of two sizes of the operator, and one of torch
    assert {"a <GPU>", "2,000", "2,500", "1,600", "failed", "1.25"} <= set(page.texts)
    assert 'title="out of &lt;memory&gt;"' in text


def test_one_size_is_a_chart_of_bars() -> None:
    """Side by side from the axis up, as high as the rates are."""
    text = report(run_of(2000, torchs=1000))
    bars = [[float(one) for one in found] for found in re.findall(r'<rect .* x="(.*?)" .*height="(.*?)"', text)]
    (torch_x, torch_height), (own_x, own_height) = bars
    assert own_x < torch_x
    assert own_height == pytest.approx(2 * torch_height, abs=0.2)
    assert "<polyline" not in text


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium")
def test_a_browser_shows_the_report(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(report(RUN), encoding="utf-8")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"{tmp_path}/report.html"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert Page(shown).tags.count("polyline") == 2


def bench(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "tritongen", "bench", *arguments, cwd=ROOT, env=os.environ | variables)


def test_no_gpu_is_said(tmp_path: Path) -> None:
    done = bench("specs/softmax.toml", "--json", f"{tmp_path}/run.json", TRITON_INTERPRET="1")
    assert (done.returncode, done.stdout, [*tmp_path.iterdir()]) == (4, "", [])
    assert "`bench` needs a GPU" in done.stderr


@pytest.mark.parametrize("option", ["--baseline", "--resume"])
def test_what_is_no_run_is_refused_before_anything_runs(option: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}", encoding="utf-8")
    done = bench("specs/softmax.toml", option, f"{tmp_path}/run.json", TRITON_INTERPRET="1")
    assert done.returncode == 2
    assert "it is not the JSON of a run" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_an_operator_is_measured_beside_its_peers(tmp_path: Path) -> None:
    file = f"{tmp_path}/run.json"
    arguments = "specs/rms_norm.toml", "--sizes", "largest", "--call", "both", "--rounds", "3"
    done = bench(*arguments, "--json", file, "--html", f"{tmp_path}/report.html", TRITON_INTERPRET="0")
    assert done.returncode == 0, done.stderr
    run = read_run(Path(file).read_text(encoding="utf-8"))
    assert [(one.case.direction, one.provider) for one in run.figures] == [
        (direction, provider)
        for direction in ("forward", "backward")
        for provider in ("rms_norm", "torch", "torch.compile")
    ]
    assert all(one.rate and one.low and one.high and one.low <= one.rate <= one.high for one in run.figures)
    again = bench(*arguments, "--baseline", file, TRITON_INTERPRET="0")
    assert "in 2 cases that both runs have" in again.stderr
