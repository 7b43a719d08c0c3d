"""The runtime as modules of its own: what it imports, and that importing it does nothing else."""

from __future__ import annotations

import ast
import os
import sys
import textwrap
from pathlib import Path

import pytest

from tests.harness.importing import written
from tests.harness.processes import python
from tritongen.emit.imports import DEVICE_MODULES, device_names
from tritongen.spec.read import read_spec

TEMPLATES = Path(__file__).parents[2] / "templates"
FOLDERS = ("runtime", "testing")
FILES = sorted(path.relative_to(TEMPLATES).as_posix() for name in FOLDERS for path in (TEMPLATES / name).glob("*.py"))


def imported(tree: ast.AST) -> set[str]:
    """The packages that a module imports anywhere, without those that it is in."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("file", FILES)
def test_it_needs_torch_and_triton_alone(file: str) -> None:
    """And what tests with it needs pytest, which nothing else does."""
    allowed = {"torch", "triton", *sys.stdlib_module_names} | ({"pytest"} if file.startswith("testing/") else set())
    assert imported(ast.parse((TEMPLATES / file).read_text(encoding="utf-8"))) <= allowed


def test_what_launches_does_not_import_what_tests_and_measures() -> None:
    """Tests and benchmarks are for whoever works on operators: no operator loads pytest."""
    for file in (one for one in FILES if one.startswith("runtime/")):
        nodes = ast.walk(ast.parse((TEMPLATES / file).read_text(encoding="utf-8")))
        own = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level]
        names = {(node.module or alias.name).partition(".")[0] for node in own for alias in node.names}
        assert "testing" not in names, file


@pytest.mark.sampled(2)
@pytest.mark.parametrize("interpret", [False, True])
def test_importing_it_has_no_effects(interpret: bool, tmp_path: Path) -> None:
    """Nor does it take a GPU: it leaves torch, the environment and the disk as they were, and knows no launches."""
    for folder in FOLDERS:
        (tmp_path / "home" / folder).parent.mkdir(exist_ok=True)
        (tmp_path / "home" / folder).symlink_to(TEMPLATES / folder)
    empty = tmp_path / "empty"
    empty.mkdir()
    names = [file.removesuffix(".py").replace("/", ".") for file in FILES if "__init__" not in file]
    program = f"""
        import importlib, os, pathlib, random, sys, threading, warnings
        import torch, triton, pytest, triton.testing, triton.tools.tensor_descriptor

        def state():
            return (
                dict(os.environ), list(sys.path), threading.active_count(), list(warnings.filters),
                torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(),
                torch.get_rng_state().tolist(), random.getstate(), torch.cuda.is_initialized(),
                torch.backends.cuda.matmul.allow_tf32,
            )

        before = state()
        for name in {names!r}:
            importlib.import_module(f"home.{{name}}")
        assert state() == before
        assert sys.modules["home.runtime.launch"].LAUNCHES == {{}}
        assert not list(pathlib.Path().iterdir())
        print("imported")
    """
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"TRITON_INTERPRET": "1"} if interpret else {}
    done = python("-c", textwrap.dedent(program), cwd=empty, env=environment)
    assert (done.stdout, done.returncode) == ("imported\n", 0), done.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["softmax", "fp8_matmul_scaled"])
def test_importing_an_operator_loads_what_it_launches(name: str, tmp_path: Path) -> None:
    """No pytest, and no kernels of the runtime's matmul where there is no gradient that they compute."""
    path = Path(__file__).parents[2] / "specs" / f"{name}.toml"
    written(read_spec(path.name, path.read_text(encoding="utf-8")), tmp_path)
    program = f"import sys, {name}; {name}.{name}; print(*sys.modules, sep='\\n')"
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "TRITON_INTERPRET": "1"}
    done = python("-c", program, env=environment)
    runtime = {f"{name}._runtime.{module}" for module in ("gemm_kernels", "split_kernels")}
    assert not {"pytest", f"{name}._testing", *runtime} & set(done.stdout.split()), done.stderr
    assert f"{name}._runtime.launch" in done.stdout, done.stderr


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", ["softmax", "matmul", "sum"])
@pytest.mark.parametrize("autotune", [False, True])
def test_without_a_gpu_it_is_said_what_to_set(name: str, autotune: bool, tmp_path: Path) -> None:
    """Triton says "0 active drivers"."""
    path = Path(__file__).parents[2] / "specs" / f"{name}.toml"
    schedule = "\n[schedule]\nautotune = true\n" if autotune else ""
    written(read_spec(path.name, path.read_text(encoding="utf-8") + schedule), tmp_path)
    program = f"import torch; from {name} import {name}; {name}(*[torch.ones(4, 4)] * {1 + (name == 'matmul')})"
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    done = python("-c", program, env=environment)
    assert "RuntimeError: there is no GPU" in done.stderr
    assert "set the environment variable TRITON_INTERPRET=1" in done.stderr


def test_device_functions_have_names_of_their_own() -> None:
    """Kernels import them by these, from whichever module has one."""
    names = [name for module in (*DEVICE_MODULES, "rings") for name in device_names(module)]
    assert len(set(names)) == len(names)


@pytest.mark.sampled(2)
def test_operators_are_traced_with_their_gradients() -> None:
    """By torch.compile as far as it goes without a GPU; what reads the environment it does not trace."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = python(str(Path(__file__).with_name("traced.py")), env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["linear", "bij_bjk", "attention", "rms_norm", "sum", "outer"]


def test_torch_compile_traces_what_compares() -> None:
    """That of torch 2.11 traces neither `min` nor `max` with a key."""
    for file in FILES:
        for node in ast.walk(ast.parse((TEMPLATES / file).read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
                keyed = [one for one in node.keywords if one.arg == "key"]
                assert not keyed or file.startswith("testing/"), f"{file}:{node.lineno}"
