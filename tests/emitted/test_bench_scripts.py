"""The repository's own benchmarks, bench/*.py, as far as no GPU is needed to try them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]


def script(name: str) -> Any:
    """One of the repository's own benchmarks."""
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "bench"))


@pytest.mark.parametrize("name", ["products", "steps"])
def test_programs_say_what_is_missing(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A GPU, or the operators that they time."""
    program, runner = script(name), script("runner")
    monkeypatch.setattr(sys, "argv", [f"{name}.py"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="4"):
        program.main()
    assert capsys.readouterr().err == f"bench/{name}.py needs a GPU\n"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="2"):
        program.main()
    assert "there are no kernels to time" in capsys.readouterr().err


def test_calls_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Medians of the rounds, in the order of the calls; ours beside the faster of its peers, in microseconds."""
    runner = script("runner")
    taken = {"ours": [0.002, 0.002, 9.0], "torch": [0.003, 9.0, 0.003], "compile": [0.001, 0.001, 0.001]}
    monkeypatch.setattr(runner, "milliseconds", lambda run: run())
    found = runner.medians({name: iter(times).__next__ for name, times in taken.items()}, rounds=3)
    assert found == {"ours": 0.002, "torch": 0.003, "compile": 0.001}
    assert runner.cells([*found.values()]) == ["2, 3, 1", "0.50"]


def test_tiles_change_what_the_rules_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the call alone, and without the launches that are known from others."""
    monkeypatch.syspath_prepend(str(ROOT))
    tiles = script("tiles")
    names = ("matmul_heuristics", "launch")
    matmul_heuristics, launch = (importlib.import_module(f"generated._runtime.{name}") for name in names)
    known, device = launch.LAUNCHES, torch.device("cpu")
    asked = (matmul_heuristics.Strided((), (), ()), matmul_heuristics.choose_stages)

    def run() -> Any:
        assert launch.LAUNCHES is not known
        table, _ = asked
        config = table.choose(64, 64, torch.float16, True, device)
        stages = matmul_heuristics.choose_stages(config, 1, 1, device)
        return config.kwargs["BLOCK_N"], stages, matmul_heuristics.persistent_programs(device)

    assert tiles.as_chosen(run, tiles.choice("32x48x64/4/5/7"))() == (48, 5, 7)
    assert launch.LAUNCHES is known
    assert matmul_heuristics.choose_stages is asked[1]
