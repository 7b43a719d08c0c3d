"""Build specs of the gallery with random options and run their emitted tests.

`python -m tests.random.options FIRST COUNT [WORD]`: only specs whose names contain WORD.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import tomllib
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

os.environ.setdefault("TRITON_INTERPRET", "1")

from tests.harness.importing import emitted_tests, written
from tritongen.diagnostics.report import Mistakes
from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]
SPECS = sorted((*ROOT.glob("specs/*.toml"), *ROOT.glob("examples/specs/*.toml")), key=lambda path: path.name)
PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
DTYPES = ("float16", "bfloat16", "float32", "float64", "float16|float32")
TILES = {
    "block_m": (16, 32, 64),
    "block_n": (16, 32, 128),
    "block_k": (16, 32),
    "num_warps": (1, 2, 8),
    "num_stages": (1, 2),
}
# Tests of configurations are slow, and their tables do not depend on options.
TESTS = "(dtypes or shapes or gradients or registered or opcheck or compile or vmap or absent) and not configs"


@dataclass
class DrawnOptions:
    """A spec of the gallery with additional `options`."""

    seed: int
    word: str = ""
    options: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        path = self.random.choice([path for path in SPECS if self.word in path.stem])
        self.tables: dict[str, dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))
        self.tables.pop("bench", None)
        self.name: str = self.tables["op"]["name"]
        while not self.options:
            self.draw()

    def draw(self) -> None:
        if self.chance(0.3):
            self.set("schedule", "fuse", False)
        if self.chance(0.25):
            self.set("schedule", "autotune", True)
        if self.chance(0.3):
            self.set("op", "deterministic", False)
        if self.chance(0.3):
            self.set("op", "precision", self.random.choice(PRECISIONS))
        if self.chance(0.35):
            self.set("torch", "register", self.random.choice(("custom_op", "triton_op")))
            self.tables["torch"]["namespace"] = "random_options"
        if self.chance(0.3):
            for key, sizes in TILES.items():
                if self.chance(0.4):
                    self.set("schedule", key, self.random.choice(sizes))
        if self.chance(0.2) and "T" in self.tables.get("types", {}):
            self.set("types", "T", self.random.choice(DTYPES))
        if "grad" in self.tables:
            self.draw_gradient(self.tables["grad"]["wrt"])

    def draw_gradient(self, wrt: list[str]) -> None:
        if len(wrt) > 1 and self.chance(0.5):
            chosen = self.random.sample(wrt, self.random.randint(1, len(wrt) - 1))
            self.set("grad", "wrt", [name for name in wrt if name in chosen])
        lines = list(self.tables["compute"])
        if self.chance(0.3):
            self.set("grad", "save", self.random.sample(lines, self.random.randint(1, min(2, len(lines)))))

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    def set(self, table: str, key: str, value: object) -> None:
        self.tables.setdefault(table, {})[key] = value
        self.options.append(f"{key} = {text_of(value)}")

    def text(self) -> str:
        return "".join(
            f"[{name}]\n" + "".join(f"{key} = {text_of(value)}\n" for key, value in table.items())
            for name, table in self.tables.items()
        )


def text_of(value: object) -> str:
    """A value as TOML text."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {text_of(one)}' for key, one in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(text_of, value))}]"
    return json.dumps(value) if isinstance(value, str | bool) else repr(value)


def check(drawn: DrawnOptions, folder: Path) -> None:
    """Run the emitted tests. Raises `Mistakes` if options do not apply to the spec; unused ones are left out."""
    try:
        written(read_spec(f"{drawn.name}.toml", drawn.text()), folder)
    except Mistakes as found:
        unused = [one.key for one in found.mistakes if one.code == "TG609"]
        if len(unused) < len(found.mistakes):
            raise
        for table, key in unused:
            del drawn.tables[table][key]
        written(read_spec(f"{drawn.name}.toml", drawn.text()), folder)
    done = emitted_tests(folder, "-x", "--tb=short", "--show-capture=no", "-k", TESTS)
    # Some specs have none of these tests.
    assert done.returncode in (0, 5), done.stdout[-3000:]


def main(first: int, count: int, word: str = "") -> int:
    """Check `count` seeds, print those that fail, and return their number."""
    wrong = refused = 0
    start = time.perf_counter()
    for seed in range(first, first + count):
        drawn = DrawnOptions(seed, word)
        title = f"--- {seed}: {drawn.name}, {', '.join(drawn.options)}"
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(drawn, Path(folder))
            except Mistakes as mistakes:
                refused += 1
                print(title, *(one.message for one in mistakes.mistakes), sep="\n", flush=True)
            except (Exception, AssertionError) as error:
                wrong += 1
                print(title, "".join(traceback.format_exception(error)[-2:])[-3500:], sep="\n", flush=True)
        if time.perf_counter() - began > 120:
            print(f"{title} took {time.perf_counter() - began:.0f} s", flush=True)
    print(f"{wrong} of {count} are wrong, {refused} were refused; {time.perf_counter() - start:.0f} s")
    return wrong


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]) > 0)
