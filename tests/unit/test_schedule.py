"""Tables of `[schedule]`: rules can choose all that they list, and what is listed in vain is reported."""

import re
from pathlib import Path
from typing import Any

import pytest

from templates.runtime import heuristics
from tritongen.diagnostics.report import Mistake
from tritongen.emit.candidates import Config
from tritongen.emit.configs import LOOP, REGISTERS, TILE, explicit
from tritongen.operator.compile import generate
from tritongen.roofline.account import account_of, warnings_of
from tritongen.roofline.devices import DEVICES
from tritongen.spec.read import read_spec
from tritongen.spec.types import Schedule, Spec

SPECS = Path(__file__).parents[2] / "specs"
GUIDE = "block_m = [1, 4]\nblock_n = [512, 1024]\nnum_warps = [4, 8]"


def scheduled(name: str, schedule: str) -> Spec:
    text = (SPECS / f"{name}.toml").read_text(encoding="utf-8")
    return read_spec(f"{name}.toml", f"{text}\n[schedule]\n{schedule}\n")


def vain(found: Spec) -> list[str]:
    def is_scheduled(one: Mistake) -> bool:
        return one.code in ("TG504", "TG505")

    told = [one for one in warnings_of(found) if is_scheduled(one)]
    assert told == [one for one in account_of(found, {}, DEVICES["h100"]).warnings if is_scheduled(one)]
    return [f"{one.code} {one.key[1]}: {one.message}" for one in told]


def test_rows_stay_in_registers() -> None:
    """Columns are those of loops: a row of 4,096 was moved to one by blocks of 1,024."""
    tables: dict[str, Any] = {"heuristics": heuristics}
    exec(re.sub(r"^from .*", "", generate(scheduled("softmax", GUIDE))["configs.py"], flags=re.MULTILINE), tables)
    table = tables["REGISTERS"]
    assert table.fits(8, 4096, True)
    chosen = table.choose(1 << 20, 4096, True)
    assert (chosen.kwargs, chosen.num_warps) == ({"BLOCK_M": 1, "BLOCK_N": 4096}, 4)


@pytest.mark.parametrize("rows", [1, 4, 1 << 12])
def test_rows_in_registers_are_as_many_as_is_said(rows: int) -> None:
    table = heuristics.Registers((4096, 4096, 4), block_m=rows)
    assert table.choose(100, 128, True).kwargs["BLOCK_M"] == rows
    assert table.choose(100, 128, False).kwargs["BLOCK_M"] == rows
    assert table.choose(100, 4096, True).kwargs["BLOCK_M"] == min(rows, (1 << 20) // 4096)


def test_what_is_not_listed_stays() -> None:
    assert explicit("tile", TILE, Schedule()) == TILE
    assert {one.warps for one in explicit("tile", TILE, Schedule(num_warps=(2,)))} == {2}
    assert [one.block_n for one in explicit("tile", TILE, Schedule(num_warps=(2,)))] == [one.block_n for one in TILE]
    listed = explicit("loop", LOOP, Schedule(block_n=(1024,)))
    assert {(one.block_m, one.block_n) for one in listed} == {(2, 1024), (4, 1024)}
    rows = explicit("registers", REGISTERS, Schedule(block_m=(2,), block_n=(512,), num_warps=(2,)))
    assert rows == tuple(Config(2, block=one.block, block_n=one.block_n) for one in REGISTERS)


@pytest.mark.parametrize("close", [True, False])
def test_rules_choose_all_columns_that_are_listed(close: bool) -> None:
    listed = explicit("tile", TILE, Schedule(block_n=(256, 1024, 64)))
    tile = heuristics.Tile(*((one.block_m, one.block_n, one.warps) for one in listed))
    chosen = {tile.choose(1 << 20, cols, close).kwargs["BLOCK_N"] for cols in (100 if close else 130, 400, 5000)}
    assert chosen == ({64, 256, 1024} if close else {256})
    listed = explicit("loop", LOOP, Schedule(block_n=(256, 2048)))
    loop = heuristics.Loop(*((one.block_m, one.block_n, one.warps) for one in listed))
    assert {loop.choose(64, cols, True).kwargs["BLOCK_N"] for cols in (1000, 50_000)} == {256, 2048}


def test_a_search_times_all() -> None:
    listed = explicit("tile", TILE, Schedule(block_m=(1, 4), block_n=(64, 512), num_warps=(4, 8), autotune=True))
    assert {(one.block_m, one.block_n, one.warps) for one in listed} == {
        (m, n, w) for m in (1, 4) for n in (64, 512) for w in (4, 8)
    }
    assert vain(scheduled("matmul", "num_warps = [4, 8]\nautotune = true")) == [
        "TG505 num_warps: this is of the forward alone: kernels of the backward keep the measured tiles and warps"
    ]


@pytest.mark.parametrize(
    ("name", "schedule", "told"),
    [
        ("triu", "block_m = 4\nblock_n = [256, 512]\nnum_warps = 8", ["TG505 block_m: this is of the forward alone"]),
        (
            "triu",
            "num_warps = [4, 8]",
            ["TG504 num_warps: of num_warps, 8 is never chosen:", "TG505 num_warps"],
        ),
        ("argmax", "block_m = [1, 2, 4]", ["TG504 block_m: of block_m, 2 and 4 are never chosen"]),
        ("int8_matmul_dequant", "block_m = [32, 64]\nblock_k = 64", []),
        ("int8_matmul_dequant", "num_stages = [2, 3]", ["TG504 num_stages: of num_stages, 3 is never chosen"]),
        ("router", "block_n = [32, 128]", ["TG504 block_n: no kernel of this operator takes block_n", "TG505 block_n"]),
        ("attention", "block_m = [64, 128]", ["TG504 block_m: of block_m, 128 is never chosen", "TG505 block_m"]),
    ],
)
def test_what_is_listed_in_vain_is_reported(name: str, schedule: str, told: list[str]) -> None:
    found = vain(scheduled(name, schedule))
    assert len(found) == len(told)
    assert all(message.startswith(start) for message, start in zip(found, told, strict=True))
