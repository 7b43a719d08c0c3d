"""The package around operators: whichever way one is accessed, torch.compile traces it into one graph."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.harness.oracles import DEVICE
from tests.harness.processes import python

ROOT = Path(__file__).parents[2]
WAYS = {
    "attribute": "f = lambda x: generated.softmax(x)",
    "imported": "from generated import softmax as f",
    "imported by the function": "def f(x):\n    from generated import softmax\n    return softmax(x)",
    "imported from its own package": "def f(x):\n    from generated.softmax import softmax\n    return softmax(x)",
    "attribute, its module imported before": "import generated.softmax.op\nf = lambda x: generated.softmax(x)",
    "attribute of its own package": "own = importlib.import_module('generated.softmax')\nf = lambda x: own.softmax(x)",
}
TRACE = """
import importlib, types
import torch, torch.utils._triton
# Else torch takes kernels for Python functions.
torch.utils._triton.has_triton = torch.utils._triton.has_triton_package = lambda *_: True
import generated

assert type(generated) is types.ModuleType  # What torch 2.11 traces imports of.
{way}


class Traced(Exception):
    pass


def stop(*_):
    raise Traced


try:
    torch.compile(f, fullgraph=True, backend=stop)(torch.randn(4, 8, requires_grad=True))
except torch._dynamo.exc.BackendCompilerFailed as error:
    assert isinstance(error.inner_exception, Traced), error
assert callable(generated.softmax)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("project")
    (home / "specs").mkdir()
    for name in ("softmax", "relu"):
        shutil.copy(ROOT / "specs" / f"{name}.toml", home / "specs")
    run(home, "-m", "tritongen", "build", "specs/")
    return home


def run(home: Path, *arguments: str) -> None:
    environment = os.environ | {"PYTHONPATH": f"{home}{os.pathsep}{ROOT}", "TRITON_INTERPRET": "0"}
    done = python(*arguments, cwd=home, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.sampled(3)
@pytest.mark.skipif(DEVICE == "cuda", reason="nothing of it depends on a GPU")
@pytest.mark.parametrize("way", WAYS)
def test_one_graph(way: str, project: Path) -> None:
    run(project, "-c", TRACE.format(way=WAYS[way]))
