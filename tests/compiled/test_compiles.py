"""Kernels compile for GPUs of two makers, with none at hand: the gallery's, and a few of other specs.

The interpreter accepts what the compiler refuses, so the emitted tests alone do not show this. All specs for all GPUs
take ten minutes: eight specs are compiled for one GPU, the next eight for another, and with --all-targets, as in CI,
each for all.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import triton.backends.amd.compiler as amd
import triton.backends.nvidia.compiler as nvidia
from importing import written

from tritongen.emit.hygiene import LAUNCH
from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]
TARGETS = ("sm_90", "gfx942", "sm_100", "sm_80")
GALLERY = sorted((ROOT / "specs").glob("*.toml"))
# What the gallery has not: casts, many dimensions, gathers, mixed dtypes, optional inputs, lines of rows, reductions.
OTHERS = (
    "arg_two_axes bool_and_numbers casts choice_of_matmul choice_of_steps embedding float8 float8_outputs"
    " gradient_in_place_kl_div gradient_product_prologue gradient_product_sums gradient_registered gradient_whole_max"
    " gradient_whole_norm gradient_whole_softmax group_pair heads integer_math"
    " integer_reductions integers_beside_floats many_reductions mixed_dtypes norm_of_choice numbers_first"
    " numbers_in_float64 optional_in_functions optional_in_rows"
    " optional_inputs permute_six pixel_shuffle powers product_float64_mixed product_float8_batched"
    " product_float8_result gradient_options product_int32_of_int8 product_masked product_unpacked"
    " product_many_axes product_prologue product_quantised product_sums product_sums_batched"
    " registered_heads registered_product reverse row_constants scaled_softmax spelled_dtypes standard_scores"
    " steps_sinkhorn take_optional take_optional_map variances vector_reductions whole_statistics wide_positions"
    " wide_reductions"
).split()


def compile_all(pairs: list[tuple[Path, Path]], *options: str) -> str:
    """Compile the kernels of specs and their folders; what the program prints."""
    paths = [str(path) for pair in pairs for path in pair]
    command = [sys.executable, str(ROOT / "tests" / "compiling.py"), *options, *paths]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    last = done.stdout.splitlines()[-1]
    compiled, total = last.removeprefix("compiled ").split(" of ")
    assert int(total) >= len(pairs)
    assert compiled == total, done.stdout[-3000:]
    return done.stdout


@pytest.mark.parametrize("first", range(0, len(GALLERY), 8))
def test_the_gallery(first: int, target: list[str]) -> None:
    compile_all([(spec, ROOT / "generated" / spec.stem) for spec in GALLERY[first : first + 8]], *target)


@pytest.mark.parametrize("first", range(0, len(OTHERS), 8))
def test_other_specs(first: int, target: list[str], tmp_path: Path) -> None:
    compile_all(generated(OTHERS[first : first + 8], tmp_path), *target)


@pytest.fixture
def target(request: pytest.FixtureRequest, first: int) -> list[str]:
    """The option that names a GPU for eight specs, if it is one alone."""
    if request.config.getoption("--all-targets"):
        return []
    return ["--target", TARGETS[first // 8 % len(TARGETS)]]


def test_the_largest_tiles_have_the_memory_that_they_take(tmp_path: Path) -> None:
    """Of kernels that sum one, two and three products at once."""
    compile_all(generated(["gradient_product_three"], tmp_path), "--largest")


def test_tiles_of_attention_have_the_memory_that_they_take(tmp_path: Path) -> None:
    """As many stages as each GPU has room for, of heads of 128, forward and backward."""
    spec = ROOT / "specs" / "attention.toml"
    folder = written(read_spec(spec.name, spec.read_text(encoding="utf-8")), tmp_path)
    compile_all([(spec, folder)], "--largest")


def test_scales_leave_float8_to_tensor_cores(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Those of a row, of a tensor and of a group do not turn what is multiplied into float32."""
    names = ["product_float8", "product_groups", "product_group_bytes", "product_groups_of_weights"]
    gallery = [ROOT / "specs" / f"{name}.toml" for name in ("fp8_matmul_scaled", "fp8_matmul_blocks")]
    pairs = [*generated(names, tmp_path), *((spec, ROOT / "generated" / spec.stem) for spec in gallery)]
    told = compile_all(pairs, *([] if request.config.getoption("--all-targets") else ["--target", "sm_90"]))
    assert set(re.findall(r"\b(\w+)_tma_kernel multiplies (.+)", told)) == {
        ("fp8_matmul_scaled", "e4m3.e4m3"),
        ("fp8_matmul_blocks", "e4m3.e4m3"),
        ("product_float8", "e4m3.e4m3"),
        ("product_groups", "e4m3.e4m3"),
        ("product_group_bytes", "s8.s8"),
        ("product_groups_of_weights", "bf16.bf16"),
    }


def generated(names: Sequence[str], folder: Path) -> list[tuple[Path, Path]]:
    """Specs of tests/specs, and the folders that they are generated into."""
    paths = [ROOT / "tests" / "specs" / f"{name}.toml" for name in names]
    return [(path, written(read_spec(path.name, path.read_text(encoding="utf-8")), folder)) for path in paths]


def test_no_param_has_the_name_of_an_option() -> None:
    """Triton takes an argument of such a name for itself."""
    options = {*nvidia.CUDAOptions.__dataclass_fields__, *amd.HIPOptions.__dataclass_fields__}
    assert options <= LAUNCH
