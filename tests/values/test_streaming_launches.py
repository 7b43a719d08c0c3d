"""What kernels that stream an axis are launched with: what they are compiled for, and tiles that are timed."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import triton
from triton.runtime.errors import OutOfResources

from tests.harness.importing import built, runtime_module, runtime_of
from tests.harness.oracles import compare
from tritongen.operator.compile import generate
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

ROOT = Path(__file__).parents[2]
SEARCH = "\n[schedule]\nautotune = true\n"
F = torch.nn.functional


def gallery(name: str, more: str = "") -> Spec:
    """A spec of the gallery or of the examples, with `more` in it."""
    path = next(path for path in ROOT.glob(f"**/specs/{name}.toml") if path.parts[len(ROOT.parts)] != "tests")
    return read_spec(f"{name}.toml", path.read_text(encoding="utf-8") + more)


def test_a_bias_is_read_in_whole_pieces() -> None:
    """Triton is told nothing of steps that are as long as rows are many, but for those of full matrices of scores."""
    kernels = ast.parse(generate(gallery("attention_bias"))["kernels.py"]).body
    found = {
        one.name: {part.value for part in ast.walk(one.decorator_list[0]) if isinstance(part, ast.Constant)}
        for one in kernels
        if isinstance(one, ast.FunctionDef)
    }
    assert {"n_rows", "n_cols", "stride_lse_0"} <= found["attention_bias_kernel"]
    assert not [name for names in found.values() for name in names if "bias" in str(name)]


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType], list[Any]]:
    """Has launches search by a clock by which more rows take less time, and so do longer blocks: what is timed, as keys
    and configurations in order.
    """

    def searching(operator: ModuleType) -> list[Any]:
        search, streaming = (runtime_of(operator, name) for name in ("search", "streaming"))
        told: list[Any] = []
        fastest = search.fastest
        monkeypatch.setattr(search, "INTERPRETED", False)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)

        def on_gpu(key: Any, configs: Any, stages: Any, _: torch.device) -> Any:
            def noted(config: triton.Config) -> Any:
                told.append((key, config))
                return stages(config)

            return fastest(key, configs, noted, torch.device("cuda"))

        def do_bench(call: Callable[[], None], **_: Any) -> float:
            call()
            _, config = told[-1]
            return -float(config.kwargs["BLOCK_M"]) - config.kwargs["BLOCK_N"] / 1000

        monkeypatch.setattr(triton.testing, "do_bench", do_bench)
        monkeypatch.setattr(streaming, "fastest", on_gpu)
        return told

    return searching


def test_searched_tiles(
    tmp_path: Path, timed: Callable[[ModuleType], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the forward and of each gradient, all of which give what torch does; the fastest is launched from then on."""
    operator = built(gallery("attention", SEARCH), tmp_path)
    told = timed(operator)
    tensors = [torch.randn(2, length, width) for length, width in ((40, 16), (37, 16), (37, 24))]

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = operator.attention(q, k, v, scale=0.25)
        return found

    def formula(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.25)

    compare(attend, formula, tensors, (0, 1, 2), 1e-5)
    timed_tiles: dict[Any, list[tuple[int, int]]] = {}
    for key, config in told:
        timed_tiles.setdefault(key, []).append((config.kwargs["BLOCK_M"], config.kwargs["BLOCK_N"]))
    assert len(timed_tiles) == 3
    assert all(len(set(tiles)) > 3 for tiles in timed_tiles.values())

    launch, launched = runtime_of(operator, "launch"), list[tuple[int, int]]()
    run = launch.launched

    def noted(kernel: Any, grid: Any, args: Any, options: Any, device: torch.device) -> Any:
        launched.append((options["BLOCK_M"], options["BLOCK_N"]))
        return run(kernel, grid, args, options, device)

    monkeypatch.setattr(launch, "launched", noted)
    launch.LAUNCHES.clear()  # What a GPU has launched is launched again without `launched`.
    compare(attend, formula, [one + 1 for one in tensors], (0, 1, 2), 1e-5)
    assert launched == [max(tiles) for tiles in timed_tiles.values()]


@pytest.mark.parametrize(("rows", "n_splits"), [(1, 1), (3, 2)])
def test_searched_splits(
    rows: int, n_splits: int, tmp_path: Path, timed: Callable[[ModuleType], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles with the rows of a group's heads, and both kernels of a split."""
    operator = built(gallery("attention_decode", SEARCH), tmp_path)
    told = timed(operator)
    monkeypatch.setattr(runtime_of(operator, "streaming_heuristics"), "choose_stream_splits", lambda *_: n_splits)
    q, k, v = (torch.randn(2, heads, length, 16) for heads, length in ((4, rows), (2, 50), (2, 50)))
    found = operator.attention_decode(q, k, v, torch.tensor([50, 50], dtype=torch.int32), scale=0.25)
    mask = torch.ones(rows, 50, dtype=torch.bool).tril(50 - rows)
    wanted = F.scaled_dot_product_attention(*(one.double() for one in (q, k, v)), mask, scale=0.25, enable_gqa=True)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
    assert len(told) > 1
    assert {config.kwargs["BLOCK_M"] for _, config in told} == {16}


@cache
def tables() -> str:
    return generate(gallery("attention", SEARCH))["configs.py"]


@pytest.mark.parametrize("width", [16, 64, 128, 256, 512, 1024])
@pytest.mark.parametrize("n_rows", [1, 40, 4096])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_candidates_have_room(width: int, n_rows: int, itemsize: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For heads of any width: the rule's choice first, none twice, and none of more rows than there are."""
    streaming_heuristics = runtime_module("streaming_heuristics")
    room = 227 * 1024
    monkeypatch.setattr(streaming_heuristics.heuristics, "shared_memory", lambda _: room)
    names = {"streaming_heuristics": streaming_heuristics}
    exec(tables()[tables().index("STREAMED =") :], names)
    read = (width,), (width, width), itemsize, torch.device("cpu")
    for name in ("STREAMED", "STREAMED_DQ", "STREAMED_DK_DV"):
        table: Any = names[name]
        chosen, *others = table.candidates(n_rows, *read)
        assert str(chosen) == str(table.choose(n_rows, *read))
        assert len({*map(str, others), str(chosen)}) == 1 + len(others)
        for config in others:
            block_m, block_n = config.kwargs["BLOCK_M"], config.kwargs["BLOCK_N"]
            assert block_m <= max(16, triton.next_power_of_2(n_rows))
            assert itemsize * width * (block_m + 2 * config.num_stages * block_n) <= room
        assert others or width > 256


@pytest.mark.parametrize("version", [(3, 7), (3, 8)])
def test_no_block_lies_over_one_that_is_swizzled_otherwise(
    version: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In tiles of warp groups, of which ptxas 12.8 loses descriptors: in a gradient, too, of which a part is needed."""
    streaming_heuristics = runtime_module("streaming_heuristics")
    monkeypatch.setattr(streaming_heuristics.heuristics, "TRITON", version)
    monkeypatch.setattr(streaming_heuristics, "capability", lambda _: (9, 0))
    tile = (256, 64, 32, 4, 2)
    table = streaming_heuristics.Streamed((tile,), (tile,), timed_half=(tile[1:],), timed_wide=(tile[1:],))
    limited = 32 if version < (3, 8) else 64
    for widths, rows in (((64, 16), limited), ((32, 16), limited), ((64, 64), 64), ((128, 64), 64)):
        for tile_widths in (widths[:1], widths):
            found = table.candidates(4096, tile_widths, widths, 2, torch.device("cpu"))
            assert {config.kwargs["BLOCK_M"] for config in found} == {rows}


def test_lists_are_what_a_search_times() -> None:
    text = generate(gallery("attention", f"{SEARCH}block_m = [32, 64]\nnum_stages = [2]\n"))["configs.py"]
    forward = text[text.index("timed_half") : text.index("STREAMED_DQ")]
    tiles = [ast.literal_eval(line.strip(" ,")) for line in forward.splitlines() if line.startswith("        (")]
    assert {(rows, stages) for rows, _, _, stages in tiles} == {(32, 2), (64, 2)}
    assert len(set(tiles)) > 4


def test_heads_that_no_tile_holds_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what a spec can say to have scores stored, in place of what Triton would have changed."""
    operator = built(gallery("attention"), tmp_path)
    q = torch.ones(1, 4, 2048)

    def run(*_: Any) -> None:
        raise OutOfResources(262144, 232448, "shared memory")

    monkeypatch.setattr(runtime_of(operator, "launch"), "launched", run)
    with pytest.raises(ValueError, match=r"heads of 2048 elements of torch.float32 .* scores are stored"):
        operator.attention(q, q, q, scale=0.1)


@pytest.mark.parametrize(("d", "steps"), [("D=1024", 1), ("D=1025", 2), ("D", 1)])
def test_scores_of_heads_that_no_tile_holds_are_stored(d: str, steps: int) -> None:
    """Where the spec has their length."""
    text = (ROOT / "specs" / "attention.toml").read_text(encoding="utf-8").replace("M, D]", f"M, {d}]")
    op = generate(read_spec("attention.toml", text))["op.py"].partition("_backward")[0]
    assert ("streaming.run(" in op) == (steps == 1)
