"""What emitted functions are passed and assign is read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from importing import written
from step_cases import CASES

from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]
TREES = ("generated", "examples/ops")
SPECS = sorted(path for folder in ("tests/specs", "tests/emitted/specs") for path in (ROOT / folder).glob("*.toml"))


def unread(path: Path) -> Iterator[str]:
    """Parameters of functions of op.py, but for methods, whose parameters torch gives; and all assigned variables.

    Every kernel is passed INDEX, the dtype of its offsets, by the runtime, whether it has offsets or not.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        given = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        if path.name == "op.py" and function in tree.body:
            given |= {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
        read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        yield from (f"{path}: {name} of {function.name}" for name in sorted(given - read) if name[0] != "_")


@pytest.mark.parametrize("tree", TREES)
def test_everything_is_read_in(tree: str) -> None:
    files = [path for name in ("op.py", "kernels.py") for path in (ROOT / tree).glob(f"*/{name}")]
    assert files
    assert not [text for path in files for text in unread(path)]


def test_everything_is_read_of_specs(tmp_path: Path) -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in SPECS}
    for name, text in texts.items():
        folder = written(read_spec(name, text), tmp_path / name)
        assert not [found for file in ("op.py", "kernels.py") for found in unread(folder / file)]


@pytest.mark.parametrize("name", CASES)
def test_everything_is_read_of_steps(name: str, tmp_path: Path) -> None:
    folder = written(CASES[name].spec(), tmp_path)
    assert not [found for file in ("op.py", "kernels.py") for found in unread(folder / file)]
