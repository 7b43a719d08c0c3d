"""Kernels compile for GPUs of two makers, with none at hand: the gallery's, and a few of other specs.

The interpreter accepts what the compiler refuses, so the emitted tests alone do not show this.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import triton.backends.amd.compiler as amd
import triton.backends.nvidia.compiler as nvidia

from tritongen.compile import generate
from tritongen.read import LAUNCH, read_spec

ROOT = Path(__file__).parent.parent
GALLERY = sorted((ROOT / "specs").glob("*.toml"))
# What the gallery has not: casts, many dimensions, gathers, mixed dtypes, optional inputs, lines of rows, reductions.
OTHERS = (
    "arg_two_axes bool_and_numbers casts embedding float8 heads integer_math integer_reductions integers_beside_floats"
    " many_reductions mixed_dtypes optional_in_functions optional_in_rows optional_inputs permute_six pixel_shuffle"
    " powers product_many_axes product_prologue product_quantised reverse row_constants scaled_softmax spelled_dtypes"
    " standard_scores take_optional take_optional_map variances wide_positions wide_reductions"
).split()


def compile_all(pairs: list[tuple[Path, Path]]) -> None:
    command = [sys.executable, str(ROOT / "tests" / "compiling.py"), *(str(path) for pair in pairs for path in pair)]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    last = done.stdout.splitlines()[-1]
    compiled, total = last.removeprefix("compiled ").split(" of ")
    assert int(total) >= 5 * len(pairs)
    assert compiled == total, done.stdout[-3000:]


@pytest.mark.parametrize("first", range(0, len(GALLERY), 8))
def test_the_gallery(first: int) -> None:
    compile_all([(spec, ROOT / "generated" / spec.stem) for spec in GALLERY[first : first + 8]])


@pytest.mark.parametrize("first", range(0, len(OTHERS), 8))
def test_other_specs(first: int, tmp_path: Path) -> None:
    names = OTHERS[first : first + 8]
    pairs = [(ROOT / "tests" / "specs" / f"{name}.toml", tmp_path / name) for name in names]
    for path, folder in pairs:
        folder.mkdir()
        for name, text in generate(read_spec(path.name, path.read_text(encoding="utf-8"))).items():
            (folder / name).write_text(text, encoding="utf-8")
    compile_all(pairs)


def test_no_param_has_the_name_of_an_option() -> None:
    """Triton takes an argument of such a name for itself."""
    options = {*nvidia.CUDAOptions.__dataclass_fields__, *amd.HIPOptions.__dataclass_fields__}
    assert options <= LAUNCH
