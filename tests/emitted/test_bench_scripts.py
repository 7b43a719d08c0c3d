"""The repository's own benchmarks, bench/*.py, as far as no GPU is needed to try them."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import sys
from pathlib import Path
from types import SimpleNamespace
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


def test_gallery_goes_on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """One provider fails, another operator cannot be imported; the third is slow."""
    gallery = script("gallery")

    def benchmark(compiled: float | None) -> Any:
        def measure(provider: str, elements: int, dtype: torch.dtype) -> list[float]:
            if provider == "torch.compile" and compiled is None:
                raise RuntimeError("no luck\nat all")
            return [{"torch.compile": compiled or 0.0, "torch's copy": 3000.0}.get(provider, 1500.0)]

        providers = ["it", "torch", "torch.compile", "torch's copy"]
        inputs = {"inputs": lambda elements, dtype: (torch.zeros(4, elements),)}
        return SimpleNamespace(BENCHMARK=SimpleNamespace(providers=providers, measure=measure, **inputs))

    for name, compiled in (("broken", None), ("slow", 2000.0)):
        monkeypatch.setitem(sys.modules, f"generated.{name}.bench_{name}", benchmark(compiled))
    rows = [gallery.measure(name, 5) for name in ("broken", "absent", "slow")]
    run = dict.fromkeys("device driver torch triton command dtype".split(), "?") | {"elements": 5}
    lines = gallery.markdown(rows, run, 3000.0).splitlines()
    assert "| broken | 4 x 5 | 1,500 | 50% | 50% | failed | failed |" in lines
    assert "| slow | 4 x 5 | 1,500 | 50% | 50% | 67% | **0.75** |" in lines
    assert "- broken, compile: RuntimeError: no luck" in lines
    assert any(line.startswith("- absent, inputs: ModuleNotFoundError") for line in lines)
    ops = json.loads(json.dumps(gallery.record(rows, run, 3000.0), allow_nan=False))["ops"]
    assert ops["slow"]["ours_over_compile"] == 0.75
    assert ops["broken"]["gb_per_s"] == {"ours": 1500.0, "torch": 1500.0, "compile": None, "copy": 3000.0}


def operator_file(folder: Path, name: str, text: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(text, encoding="utf-8")


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """bench/compare.py with two trees, of which one multiplies by 2 and the other by 3."""
    compare = script("compare")
    for factor, tree in enumerate(compare.TREES, 2):
        monkeypatch.setitem(sys.modules, tree, None)
        operator_file(
            tmp_path / tree / "generated", "times", f"def times(x, power=1):\n    return x**power * {factor}\n"
        )
        compare.load(tmp_path / tree, tree)
    yield compare
    for tree in compare.TREES:
        sys.modules.pop(f"{tree}.times", None)


def test_compare_calls_both_trees(trees: Any) -> None:
    x = torch.tensor([5.0])
    forward, backward = trees.Case("it", "times", (x,), {"power": 2}), trees.Case("it", "times", (x,), wrt=(0,))
    assert [trees.call_of(forward, tree)().item() for tree in trees.TREES] == [50, 75]
    torch.manual_seed(0)
    before = trees.call_of(backward, "before")()[0]
    torch.manual_seed(0)
    after = trees.call_of(backward, "after")()[0]
    torch.testing.assert_close(after, before * 1.5)


class Clock:
    """Stands for a GPU, and for what of torch.cuda times calls and graphs on one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock, self.now, self.replayed = self, 0.0, []

        class Event:
            def __init__(self, enable_timing: bool) -> None: ...

            def record(self) -> None:
                self.at = clock.now

            def synchronize(self) -> None: ...

            def elapsed_time(self, end: Any) -> float:
                return float(end.at - self.at)

        class Graph:
            def replay(self) -> None:
                clock.now += self.taken
                clock.replayed.append(self)

        @contextlib.contextmanager
        def capture(graph: Graph, stream: object) -> Any:
            start = clock.now
            yield
            graph.taken = clock.now - start

        stream = SimpleNamespace(wait_stream=lambda other: None)
        for name, stand_in in {
            "Event": Event,
            "CUDAGraph": Graph,
            "Stream": lambda: stream,
            "current_stream": lambda: stream,
            "stream": lambda stream: contextlib.nullcontext(),
            "graph": capture,
        }.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)


@pytest.mark.parametrize(("taken", "rounds"), [((0.5, 0.5), 7), ((0.01, 0.02), 21), ((30.0, 20.0), 7)])
def test_compare_takes_turns(
    taken: tuple[float, float], rounds: int, trees: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of short calls a graph has many, and what seems slower is measured in more rounds."""
    clock = Clock(monkeypatch)

    def call_of(case: Any, tree: str) -> Any:
        milliseconds = taken[tree == "after"]
        return lambda: setattr(clock, "now", clock.now + milliseconds)

    monkeypatch.setattr(trees, "call_of", call_of)
    assert trees.compare(trees.Case("it", "times", ())) == pytest.approx([1000 * one for one in taken])
    turns = [graph for graph, _ in itertools.groupby(map(id, clock.replayed))]
    assert len(turns) == 2 + rounds  # After one each; the last of a round is the first of the next.


def test_compare_refuses_a_folder_without_operators(trees: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="empty has no operators"):
        trees.load(tmp_path / "empty", "before")


def test_compare_goes_on_after_a_failure(
    trees: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The worst is last, what failed or was late is told, and one that is slower makes the run fail."""
    made = {name: (lambda name=name: trees.Case(name, "times", ())) for name in ("slow", "broken", "fast")}
    found = {"slow": (100.0, 103.0), "fast": (100.0, 99.0)}
    monkeypatch.setitem(trees.CASES, "gallery", lambda: iter(made.items()))
    monkeypatch.setattr(trees, "compare", lambda case: found[case.name])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    written = tmp_path / "rows.json"
    options = ["--before", str(tmp_path / "before"), "--after", str(tmp_path / "after"), "--part", "gallery"]
    monkeypatch.setattr(sys, "argv", ["compare.py", *options, "--json", str(written)])
    with pytest.raises(SystemExit) as raised:
        trees.main()
    assert raised.value.code == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:4] == [
        "| gallery | fast | 100.00 | 99.00 | 0.990 |",
        "| gallery | slow | 100.00 | 103.00 | **1.030** |",
    ]
    assert "- broken: failed in gallery: KeyError: 'broken'" in lines
    assert lines[-1] == "1 of 3 are slower by more than 2%."
    assert [row["name"] for row in json.loads(written.read_text())] == ["slow", "broken", "fast"]

    monkeypatch.setattr(sys, "argv", ["compare.py", *options, "--only", "fast", "--seconds", "-1"])
    with pytest.raises(SystemExit):
        trees.main()
    assert "- fast: failed in gallery: TimeoutError: left out" in capsys.readouterr().out


def test_compare_counts_host_time(trees: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "HOST", [("times", ((2, 3),))])
    monkeypatch.setattr(trees, "CALLS", 20)
    rows = list(trees.compare_host("cpu", lambda: None, ""))
    assert [row.name for row in rows] == ["times of 2x3", "times of 2x3 under autograd"]
    assert all(row.before > 0 < row.after for row in rows)


@pytest.mark.parametrize("name", ["products", "matmuls", "masks", "steps", "ragged"])
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
    if name in ("matmuls", "masks", "steps"):
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


def test_lines(tmp_path: Path) -> None:
    """A definition counts as repeated where two operators have it, with its decorators, and the runtime once."""
    lines = script("lines")
    same = "import os\n\n\n@property\ndef f():\n    return 1\n"
    for folder, name, text in (
        ("one", "kernel.py", same),
        ("one", "test_one.py", same),
        ("two", "op.py", same + "\n\ndef g():\n    return 2\n"),
        ("two", "bench_two.py", "def g():\n    return 3\n"),
        ("_runtime", "launch.py", same),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(text, encoding="utf-8")
    sizes, repeated = lines.count(tmp_path)
    assert sizes["one"] == {"code": 6, "test": 6}
    assert sizes["two"] == {"code": 10, "bench": 2}
    assert repeated == {"code": 6, "test": 3}
    assert "| together | 24 | 9 | 37.5% |" in lines.table(tmp_path)
    assert "2 operators, 6 lines of runtime, 30 in all." in lines.table(tmp_path)


def test_masks_are_those_of_flex_attention() -> None:
    """Blocks of positions and of documents, beside those that torch makes of all scores."""
    from torch.nn.attention.flex_attention import create_block_mask

    masks = script("masks")
    documents = torch.arange(1024)[None].expand(2, -1) // torch.tensor([[300], [128]])
    for mask in (masks.causal, masks.same_document(documents, documents)):
        some, every = masks.tiles(mask, 2, 1024, "cpu")
        found = masks.block_mask(mask, some, every)
        expected = create_block_mask(mask, 2, None, 1024, 1024, "cpu")
        torch.testing.assert_close(found.to_dense(), expected.to_dense())
        assert torch.equal(found.full_kv_num_blocks, expected.full_kv_num_blocks)
        assert torch.equal(found.kv_num_blocks, expected.kv_num_blocks)
