"""Kernels compile for GPUs of two makers, with none at hand: the gallery's, and a few of other specs.

The interpreter accepts what the compiler refuses, so the emitted tests alone do not show this. All specs for all GPUs
take long: with --long a fifth of them is compiled for each GPU, and a fifth of wide types, in small tiles; without it,
a fifth of those. With --all-targets, each but the examples is compiled for all, in a tile of its own table; .ci/run
says what CI leaves to runs by hand.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import triton.backends.amd.compiler as amd
import triton.backends.nvidia.compiler as nvidia

from tests.cases import step_scans
from tests.cases.paged_forms import FORMS
from tests.cases.step_cases import CASES, Case
from tests.harness.importing import written
from tests.harness.processes import python
from tritongen.emit.hygiene import LAUNCH
from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]
PASSES = ("sm_90", "gfx942", "sm_100", "wide", "sm_80")
TARGETS = [one for one in PASSES if one != "wide"]
# Specs and the folders that they became.
GALLERY, EXAMPLES = (
    [(spec, ROOT / ops / spec.stem) for spec in sorted((ROOT / specs).glob("*.toml"))]
    for specs, ops in (("specs", "generated"), ("examples/specs", "examples/ops"))
)
# What the gallery has not: casts, many dimensions, gathers, mixed dtypes, optional inputs, lines of rows, reductions.
OTHERS = (
    "attention_decode attention_documents attention_gate attention_halves attention_sink arg_two_axes"
    " bool_and_numbers casts choice_of_matmul choice_of_steps embedding float8 float8_outputs gradient_in_place_kl_div"
    " gradient_product_prologue gradient_product_sums gradient_registered gradient_take_axes gradient_taps"
    " gradient_whole_max gradient_whole_norm gradient_whole_softmax group_pair heads integer_math integer_reductions"
    " integers_beside_floats many_reductions mixed_dtypes norm_of_choice numbers_first numbers_in_float64"
    " optional_in_functions optional_in_rows optional_inputs permute_six pixel_shuffle powers product_float64_mixed"
    " product_float8_batched product_float8_result gradient_options product_int32_of_int8 product_masked"
    " product_unpacked product_around product_bf16x3_prologue product_bf16x6 product_many_axes product_prologue"
    " product_quantised product_strips product_sums product_sums_batched registered_heads registered_product"
    " registered_scans registered_take reverse row_constants scaled_softmax scan_of_choice scans"
    " spelled_dtypes standard_scores steps_sinkhorn take_optional"
    " take_optional_map variances vector_reductions whole_statistics wide_positions wide_reductions"
    " attention_dilated"
).split()


def printed(program: str, *arguments: str) -> list[str]:
    """The lines that a program of tests/compiling prints."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    done = python("-m", f"tests.compiling.{program}", *arguments, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def compiled(told: list[str]) -> int:
    """How many kernels were compiled, of which none was refused."""
    count, total = told[-1].removeprefix("compiled ").split(" of ")
    assert count == total, "\n".join(told)[-3000:]
    return int(count)


def compile_all(pairs: list[tuple[Path, Path]], *options: str) -> list[str]:
    """Compile the kernels of specs and their folders; what the program prints."""
    told = printed("operators", *options, *(str(path) for pair in pairs for path in pair))
    assert compiled(told) >= len(pairs)
    return told


@pytest.fixture
def all_targets(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--all-targets"))


@pytest.fixture
def in_ci(all_targets: bool) -> None:
    """Leaves a test to CI, and to who changes what it compiles."""
    if not all_targets:
        pytest.skip("needs --all-targets")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("place", range(len(PASSES)))
def test_specs(place: int, all_targets: bool, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """One in five of the gallery, and of the others; without --all-targets for one GPU, and fewer of the others; and
    without --long half a dozen of the gallery, which CI compiles as they are in the lock, too.
    """
    if all_targets or request.config.getoption("--long"):
        gallery, others = GALLERY[place :: len(PASSES)], OTHERS[place :: len(PASSES) * (1 if all_targets else 5)]
    else:  # Names that follow one another are of operators that are alike.
        gallery, others = GALLERY[6 * place :: 52], OTHERS[6 * place :: 52]
    pairs = [*gallery, *generated(others, tmp_path)]
    compile_all(pairs, *(() if all_targets else ("--target", PASSES[place])))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("place", range(len(PASSES)))
@pytest.mark.usefixtures("in_ci")
def test_examples(place: int) -> None:
    """One in five for each GPU: their kernels are of the gallery's kinds."""
    compile_all(EXAMPLES[place :: len(PASSES)], "--target", PASSES[place])


@pytest.mark.parametrize("place", range(len(TARGETS)))
@pytest.mark.usefixtures("in_ci")
def test_scans(place: int, tmp_path: Path) -> None:
    """One in four for each GPU, forward and backward."""
    cases = [*step_scans.CASES.items()][place :: len(TARGETS)]
    compile_all([_written(case, tmp_path / name) for name, case in cases], "--target", TARGETS[place])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("place", range(len(TARGETS)))
@pytest.mark.usefixtures("in_ci")
def test_operators_of_several_steps(place: int, tmp_path: Path) -> None:
    """One in sixteen for each GPU, for all take half an hour."""
    pairs = [_written(CASES[name], tmp_path / name) for name in [*CASES][place :: 4 * len(TARGETS)]]
    compile_all(pairs, "--target", TARGETS[place])


def _written(case: Case, home: Path) -> tuple[Path, Path]:
    """The spec of a case, and its folder."""
    spec = home / "steps.toml"
    home.mkdir()
    spec.write_text(case.text(), encoding="utf-8")
    return spec, written(case.spec(), home)


@pytest.mark.sampled(4)
def test_kernels_that_torch_copies() -> None:
    """Into the modules from which torch.compile's workers compile them."""
    folders = [folder for _, folder in GALLERY + EXAMPLES if (folder / "kernels.py").exists()]
    found = printed("copied_kernels", *(".".join(folder.relative_to(ROOT).parts) for folder in folders))
    assert len(found) >= len(folders)
    assert [line for line in found if " " in line] == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", ["sm_90", "sm_80", "sm_100", "gfx942"])
@pytest.mark.usefixtures("in_ci")
def test_the_runtime(target: str) -> None:
    """Hopper's tensor cores multiply half precision in each kernel; float32 is tf32 only where asked for. A batch that
    is summed is copied in vectors, as other matrices are.
    """
    told = printed("gemm", target)
    assert compiled(told) > 20
    if target.startswith("sm_"):
        assert {"ieee multiplies no tf32", "tf32 multiplies tf32", "bf16x6 multiplies bf16"} <= set(told)
        assert "a batch is summed by copies of 0x10 bytes" in told
    if target == "sm_90":
        kernels = {f"gemm_{kind}kernel multiplies f16.f16" for kind in ("", "tma_", "stream_k_")}
        assert {*kernels, "gemm_split_kernel multiplies bf16.bf16"} <= set(told)


@pytest.mark.parametrize("target", ["sm_90", "sm_80", "sm_100", "gfx942"])
@pytest.mark.usefixtures("in_ci")
def test_the_scatter_add(target: str) -> None:
    """For every dtype, for wide rows and for single elements."""
    assert compiled(printed("scatter", target)) > 20


@pytest.mark.sampled(4)
def test_the_largest_tiles_have_the_memory_that_they_take(all_targets: bool, tmp_path: Path) -> None:
    """Of kernels that sum one, two and three products at once."""
    compile_all(
        generated(["gradient_product_three"], tmp_path), "--largest", *(() if all_targets else ("--target", "sm_80"))
    )


@pytest.mark.sampled(4)
def test_no_product_or_quotient_is_fused_where_the_largest_is_looked_for(tmp_path: Path) -> None:
    """Neither in the forward, which saves the largest, nor in its gradient, which compares with it what it computes
    again. Where nothing is compared, products are fused.
    """

    def fusing(function: str, number: str) -> list[str]:
        case = Case("x:M, N; w:N; b:M, N", f"y = {function}({number} + b, N)", torch.Tensor.sum, wrt="b")
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        told = compile_all([_written(case, folder)], "--target", "sm_90")
        return [line for line in told if "fuses" in line]

    assert fusing("max", "where(b > 0, x * w, 0.5)") == fusing("max", "x / w") == []
    assert "steps_loop_kernel fuses products" in fusing("sum", "where(b > 0, x * w, 0.5)")
    assert "steps_loop_kernel fuses products" in fusing("sum", "x / w")


@pytest.mark.sampled(4)
def test_lengths_compile_nothing() -> None:
    """Attention of a hundred pairs of lengths, forward and backward. The first compiles all, and the first past which
    programs split what streams the two kernels for that.
    """
    told = printed("lengths", str(ROOT / "generated" / "attention"))
    assert compiled(told) == 5
    backward = "attention_backward_dk_dv_kernel attention_backward_dq_kernel"
    assert told[:-1] == [f"{backward} attention_kernel", "attention_kernel attention_reduce_kernel"]


@pytest.mark.sampled(4)
def test_rows_of_a_multiple_of_8_are_read_16_bytes_at_a_time() -> None:
    """As those of a multiple of 16, of which Triton knows by itself; rows of other lengths are read in pieces."""
    told = printed("rows", str(ROOT / "generated" / "rms_norm"), "3000", "3004", "4096")
    widths = {(length, kernel): bits for length, kernel, *bits in map(str.split, told)}
    for kernel in ("rms_norm_kernel", "rms_norm_backward_kernel"):
        assert widths["3000", kernel][-1] == widths["4096", kernel][-1] == "128"
        assert widths["3004", kernel] == ["16", "32"]
    assert "16" not in widths["3000", "rms_norm_kernel"]


@pytest.mark.sampled(4)
def test_matmuls_copy_as_wide_as_lengths_allow() -> None:
    """Whichever axes are contiguous: in the forward and both gradients of a linear layer."""
    told = printed("matmuls", str(ROOT / "generated" / "linear"), "1000", "1004")
    kernels = "linear_kernel", "gemm_kernel", "gemm_kernel"
    assert told == [f"{length} {name} {size}" for length, size in ((1000, 16), (1004, 8)) for name in kernels]


@pytest.mark.parametrize("path", ["specs/attention.toml", "examples/specs/attention_paged.toml"])
@pytest.mark.usefixtures("in_ci")
def test_tiles_of_attention_have_the_memory_that_they_take(path: str, tmp_path: Path) -> None:
    """As many stages as a GPU has room for, of heads of 128, forward and backward, and of small pages."""
    spec = ROOT / path
    folder = written(read_spec(spec.name, spec.read_text(encoding="utf-8")), tmp_path)
    compile_all([(spec, folder)], "--largest")


@pytest.mark.parametrize("target", ["sm_90", "sm_100"])
@pytest.mark.usefixtures("in_ci")
def test_bytes_in_small_pages_have_scales(target: str, tmp_path: Path) -> None:
    """Of each position: also where pages of five positions are read element by element."""
    path = tmp_path / "attend.toml"
    path.write_text(FORMS["scales_in_pages"].text(), encoding="utf-8")
    compile_all([(path, written(FORMS["scales_in_pages"].spec(), tmp_path))], "--target", target)


@pytest.mark.sampled(4)
def test_attention_for_hopper_is_in_gluon_besides(all_targets: bool, tmp_path: Path) -> None:
    """By tensor cores, with and without the log-sum-exp that its gradient needs; and this gradient."""
    paths = [ROOT / "specs" / "attention.toml"]
    if all_targets:
        forms = ("documents", "lengths")  # Others of the examples are compiled without a look at machine code.
        paths += [ROOT / "examples" / "specs" / f"attention_{name}.toml" for name in forms]
        paths.append(tmp_path / "attention_numbers.toml")
        text = paths[-2].read_text(encoding="utf-8").replace("attention_lengths", "attention_numbers")
        text = text.replace('length = "int32[B]"', 'temper = "float32[H, M]"\nbias = "T[B, N]"')
        text = text.replace("scale, -inf", "scale / sqrt(size(D)) * temper + bias, -inf").replace(
            "index(N) < length", "bias < 9"
        )
        paths[-1].write_text(text.partition("[test]")[0], encoding="utf-8")
        paths.append(ROOT / "tests" / "specs" / "attention_dilated.toml")
    pairs = [(path, written(read_spec(path.name, path.read_text(encoding="utf-8")), tmp_path)) for path in paths]
    told = compile_all(pairs, "--target", "sm_90", "--tma")
    assert {f"{path.stem}_gluon_kernel multiplies bf16.bf16" for path in paths} <= set(told)
    gradients = [f"{path.stem}_backward_{name}" for path in paths for name in ("dq", "dk_dv")]
    assert {f"{name}_gluon_kernel multiplies bf16.bf16" for name in gradients} <= set(told)


@pytest.mark.usefixtures("in_ci")
def test_gradients_read_a_bias_by_descriptors(tmp_path: Path) -> None:
    """Of each score, which dk and dv take across, in as much shared memory as there is."""
    text = (ROOT / "examples" / "specs" / "attention_bias.toml").read_text(encoding="utf-8").replace(', "bias"]', "]")
    path = tmp_path / "attention_bias.toml"
    path.write_text(text, encoding="utf-8")
    told = compile_all([(path, written(read_spec(path.name, text), tmp_path))], "--target", "sm_90", "--tma")
    kernels = [f"attention_bias_backward_{name}_gluon_kernel" for name in ("dq", "dk_dv")]
    assert {f"{kernel} multiplies bf16.bf16" for kernel in kernels} <= set(told)


@pytest.mark.usefixtures("in_ci")
def test_gradients_of_attention_read_by_descriptors(tmp_path: Path) -> None:
    """Blocks for tensor cores, beside a Gluon kernel of the forward that has a sink for each head."""
    told = compile_all(generated(["attention_sink"], tmp_path), "--target", "sm_90", "--tma")
    kernels = ["attention_sink_gluon_kernel", "attention_sink_backward_dk_dv_kernel"]
    assert {f"{kernel} reads by TMA" for kernel in kernels} <= set(told)
    assert {f"{kernel} multiplies bf16.bf16" for kernel in kernels} <= set(told)


@pytest.mark.sampled(4)
def test_scales_leave_float8_to_tensor_cores(all_targets: bool, tmp_path: Path) -> None:
    """Those of a row, of a tensor and of a group do not turn what is multiplied into float32."""
    gallery = {"fp8_matmul_scaled": "e4m3.e4m3", "fp8_matmul_blocks": "e4m3.e4m3"}
    others = {"product_groups_of_weights": "bf16.bf16"}
    if all_targets:
        others |= {"product_float8": "e4m3.e4m3", "product_groups": "e4m3.e4m3", "product_group_bytes": "s8.s8"}
    pairs = [(ROOT / "specs" / f"{name}.toml", ROOT / "generated" / name) for name in gallery]
    pairs += generated([*others], tmp_path)
    told = compile_all(pairs, *(() if all_targets else ("--target", "sm_90")))
    assert set(re.findall(r"\b(\w+)_tma_kernel multiplies (.+)", "\n".join(told))) == {*(gallery | others).items()}


def generated(names: Sequence[str], folder: Path) -> list[tuple[Path, Path]]:
    """Specs of tests/specs, and the folders that they are generated into."""
    paths = [ROOT / "tests" / "specs" / f"{name}.toml" for name in names]
    return [(path, written(read_spec(path.name, path.read_text(encoding="utf-8")), folder)) for path in paths]


def test_no_param_has_the_name_of_an_option() -> None:
    """Triton takes an argument of such a name for itself."""
    options = {*nvidia.CUDAOptions.__dataclass_fields__, *amd.HIPOptions.__dataclass_fields__}
    assert options <= LAUNCH
