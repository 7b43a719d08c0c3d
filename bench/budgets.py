"""How many lines a project with one spec checks in, beside the budget for it.

    python bench/budgets.py [NAME ...]

Of each spec of the gallery or the examples, a project is built with it alone and `tests = false`: the operator, its
runtime and `__init__`. `_testing/` is what a project with its tests has besides; "file" is
the file of `runtime = "file"`. Blank lines and headers count.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tritongen.project.build import build

ROOT = Path(__file__).resolve().parent.parent
BUDGETS = {"vector_add": 700, "softmax": 1300, "rms_norm": 2000, "matmul": 2500, "attention": 4200}
OPERATOR = {"vector_add": 130, "softmax": 340, "rms_norm": 650, "layer_norm": 780, "matmul": 300}
TESTING = 1800


def lines(folder: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))


def sizes(name: str) -> dict[str, int]:
    """Lines of the parts of a project that has one spec."""
    folders = (ROOT / "specs", ROOT / "examples" / "specs")
    spec = next(path for folder in folders if (path := folder / f"{name}.toml").exists())
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "specs").mkdir()
        (Path(home) / "specs" / spec.name).write_text(spec.read_text(encoding="utf-8"), encoding="utf-8")
        os.chdir(home)
        Path("tritongen.toml").write_text("tests = false\n", encoding="utf-8")
        build()
        out = Path("generated")
        found = {"operator": lines(out / name), "runtime": lines(out / "_runtime"), "all": lines(out)}
        Path("tritongen.toml").write_text("", encoding="utf-8")
        build()
        testing = lines(out / "_testing")
        Path("tritongen.toml").write_text('runtime = "file"\n', encoding="utf-8")
        build()
        file = len((out / f"{name}.py").read_text(encoding="utf-8").splitlines())
        os.chdir(ROOT)
        return {**found, "_testing": testing, "file": file}


def main(names: list[str]) -> None:
    print("| operator | alone | budget | runtime | all | budget | `_testing/` | budget | file |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name in names or sorted({*BUDGETS, *OPERATOR}):
        one = sizes(name)
        cells = one["operator"], OPERATOR.get(name, ""), one["runtime"], one["all"], BUDGETS.get(name, "")
        print(f"| {name} | {' | '.join(map(str, cells))} | {one['_testing']} | {TESTING} | {one['file']} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
