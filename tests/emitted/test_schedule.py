"""What a spec's [schedule] asks for: the emitted tests of gallery specs pass under other configurations."""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path

import pytest

from tests.harness.importing import INTERPRETING, written
from tests.harness.processes import python
from tritongen.spec.read import read_spec

SPECS = Path(__file__).parents[2] / "specs"
STRESS = Path(__file__).parents[1] / "specs"
EXAMPLES = Path(__file__).parents[2] / "examples" / "specs"
SEARCH = "autotune = true"
LISTS = "block_n = [512, 1024]\nnum_warps = [4, 8]"
ELSEWHERE = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
ELSEWHERE["PYTHONPATH"] = os.pathsep.join(sys.path)
# What configurations may change: all else is tested of the gallery.
CONCERNED = "configs or shapes or dtypes or splits or loop"


TILES = "block_m = [32]\nblock_n = [32, 64]\nnum_stages = [2]"
# A map, a broadcast, rows in registers, a reduction, two sums; several steps, without and with matmuls; a product, and
# one whose tiles hold rows of 64.
CASES = [
    (SPECS / name, schedule)
    for name in ("vector_add", "add_bias", "softmax", "sum", "var")
    for schedule in (SEARCH, LISTS)
]
CASES += [
    (STRESS / "gradient_whole_norm", SEARCH),
    (EXAMPLES / "linear_layer_norm", SEARCH),
    (EXAMPLES / "mlp", SEARCH),
]
CASES += [(SPECS / "matmul", TILES), (SPECS / "router", TILES), (SPECS / "matmul", f"{SEARCH}\nblock_k = [32, 64]")]


@pytest.mark.sampled(4)
def test_emitted_tests_pass(tmp_path: Path) -> None:
    """In a process of its own, as a user runs them, each operator by a name of its own."""
    for place, (path, schedule) in enumerate(CASES):
        own = f"{path.name}_{place}"
        text = path.with_suffix(".toml").read_text(encoding="utf-8").replace(f'"{path.name}"', f'"{own}"', 1)
        folder = written(read_spec(f"{own}.toml", f"{text}\n[schedule]\n{schedule}\n"), tmp_path)
        texts = [(folder / name).read_text(encoding="utf-8") for name in ("kernels.py", "op.py")]
        assert any("@triton.autotune" in text or "search=" in text for text in texts) == (SEARCH in schedule)
    command = ["-m", "pytest", "-v", "-W", "ignore", "-p", "no:cacheprovider", str(tmp_path)]
    command += ["--import-mode=importlib", f"--rootdir={tmp_path}", "-k", CONCERNED, *INTERPRETING]
    done = python(*command, env=ELSEWHERE)
    assert done.returncode == 0, done.stdout
    assert all(f"{path.name}_{place}/" in done.stdout for place, (path, _) in enumerate(CASES))


def searched_kernels(folder: Path) -> set[str]:
    """The kernels that @triton.autotune searches."""
    kernels = ast.parse((folder / "kernels.py").read_text(encoding="utf-8"))
    functions = [node for node in kernels.body if isinstance(node, ast.FunctionDef)]
    return {f.name for f in functions if any("triton.autotune" in ast.unparse(one) for one in f.decorator_list)}


SEARCHING = ("contraction.run", "gemm.gemm", "streaming.Kernel")


@pytest.mark.parametrize("name", ["layer_norm", "bias_gelu_residual", "linear_gelu", "attention", "mlp"])
def test_every_step_of_a_backward_is_searched(name: str, tmp_path: Path) -> None:
    """By the runtime, or by @triton.autotune; column sums have nothing to search."""
    path = (EXAMPLES if name == "mlp" else SPECS) / f"{name}.toml"
    folder = written(read_spec(path.name, f"{path.read_text(encoding='utf-8')}\n[schedule]\n{SEARCH}\n"), tmp_path)
    host = ast.parse((folder / "op.py").read_text(encoding="utf-8"))
    calls = [(ast.unparse(node.func), ast.unparse(node)) for node in ast.walk(host) if isinstance(node, ast.Call)]
    timed = [text for function, text in calls if function in SEARCHING]
    assert not {"rowwise.run_loop", "rowwise.run_registers", "rowwise.run_sums"} & {function for function, _ in calls}
    by_rows = [function for function, _ in calls if function == "rowwise.search_loop"]
    mapped = [text for function, text in calls if function.startswith("elementwise.run")]
    assert timed or mapped or by_rows
    assert all("search=" in text for text in timed)
    assert not any("configs." in text for text in mapped)
    assert {kernel for text in mapped for kernel in re.findall(r"kernels\.(\w+)", text)} <= searched_kernels(folder)


def test_what_is_written_over_its_input_is_not_searched(tmp_path: Path) -> None:
    """Kernels that are timed run many times."""
    text = (SPECS / "cross_entropy_in_place.toml").read_text(encoding="utf-8")
    folder = written(read_spec("in_place.toml", f"{text}\n[schedule]\n{SEARCH}\n"), tmp_path)
    found = searched_kernels(folder)
    assert found
    assert not any("gradient" in name or "backward" in name for name in found)
