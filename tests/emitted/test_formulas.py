# mypy: allow-untyped-defs, allow-untyped-decorators
"""Kernels of the gallery and of the examples compute their math over residues, to the last bit, and others do not."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from tests.harness.processes import python
from tritongen.diagnostics.report import Rejected
from tritongen.project.formulas import check_formulas
from tritongen.residues import field
from tritongen.residues.check import Verdict, verdicts
from tritongen.residues.field import Elements, add, div, embed, exp, inv, is_equal, log, matmul, mul, neg, sub, total
from tritongen.residues.formula import formula_of
from tritongen.residues.interpreter import interpreted as interpreted_kernels
from tritongen.residues.memory import Memory
from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]
SPECS = {
    path.stem: (path, package)
    for folder, package in (("specs", "generated"), ("examples/specs", "examples.ops"))
    for path in sorted((ROOT / folder).glob("*.toml"))
}
CASES = 8  # Of the cases of an operator, every so many without --long.
# What the field says nothing about; docs/design/formula-check.md tells why.
UNJUDGED = {"the bits of a float"}

TWICE = """\
[op]
name = "twice"
summary = "2 x"
[inputs]
x = "float[..., N]"
[outputs]
y = "x"
[compute]
y = "x + x"
"""

interpreted = pytest.mark.skipif(torch.cuda.is_available(), reason="in Triton's interpreter")


def checked(op: str, package: str, share: int = 1, words: str = "") -> list[Verdict]:
    """The verdicts on every case of so many, of tests whose names have some words."""
    path, _ = SPECS[op]
    formula = formula_of(read_spec(path.name, path.read_text(encoding="utf-8")))
    first = zlib.crc32(op.encode()) % share

    def wanted(test: str) -> bool:
        return words in test and zlib.crc32(test.encode()) % share == first

    return [*verdicts(op, package, formula, wanted)]


@interpreted
@pytest.mark.sampled(4)
@pytest.mark.parametrize("op", SPECS)
def test_kernels_compute_their_math(op: str, request: pytest.FixtureRequest) -> None:
    """In every configuration that the emitted tests force, forwards and gradients."""
    found = checked(op, SPECS[op][1], 1 if request.config.getoption("--long") else CASES)
    assert [one for one in found if one.difference] == []
    assert {one.unjudged for one in found if one.unjudged} <= UNJUDGED


@interpreted
@pytest.mark.parametrize(
    ("op", "test", "old", "new"),
    [
        ("rms_norm", "test_register_configs[backward=False", "rstd_mean + eps", "rstd_mean + 1.001 * eps"),
        ("softmax", "test_loop_configs[table=LOOP,", "y = p / p_sum", "y = p / (p_sum + 1e-12)"),
        ("layer_norm", "test_loop_configs[table=LOOP_BACKWARD,", "rstd * (", "1.000001 * rstd * ("),
        ("matmul", "test_tma_configs[layout=contiguous", "tl.dot(a, b, c,", "tl.dot(a, b, c + 1e-7 * c,"),
        ("attention", "test_stream_splits[shape=(1,", "o_sum * rescale", "o_sum"),
        ("attention", "test_backward_streamed_configs[dtype=torch.float16, table=STREAMED_DQ,", "(dp - delta)", "dp"),
        # Lanes that are masked off, params that are 1 by default, and sums in half precision.
        ("attention", "table=STREAMED_DK_DV,", "p = tl.where(col_mask, p, 0.0)", "p = p + 0.0"),
        ("addmm", "test_tma_configs[layout=contiguous", "beta * c + alpha * y_sum", "beta * (c + alpha * y_sum)"),
        ("sum", "test_loop_configs", "y += x", "y = (y + x).to(x_ptr.dtype.element_ty).to(COMPUTE)"),
    ],
)
def test_other_math_is_found(op: str, test: str, old: str, new: str, tmp_path: Path) -> None:
    """Far below any tolerance, or where no value shows it."""
    package = f"planted_{zlib.crc32(str(tmp_path).encode())}"
    for name in ("_runtime", "_testing", op):
        shutil.copytree(ROOT / "generated" / name, tmp_path / package / name)
    kernels = tmp_path / package / op / "kernels.py"
    text = kernels.read_text(encoding="utf-8")
    assert old in text
    kernels.write_text(text.replace(old, new), encoding="utf-8")
    sys.path.insert(0, str(tmp_path))
    try:
        importlib.invalidate_caches()
        found = checked(op, package, words=test)
    finally:
        sys.path.remove(str(tmp_path))
    assert [one for one in found if one.difference]


@triton.jit
def rounded_kernel(x_ptr, half_ptr, y_ptr, again_ptr, HOW: tl.constexpr):
    at = tl.arange(0, 4)
    x = tl.load(x_ptr + at)
    half = x.to(tl.float16)
    if HOW == "twice":
        half = half.to(tl.bfloat16)
    elif HOW == "turned":
        half = -half
    elif HOW == "chosen":
        half = tl.where(at < 4, half, 0.0)
    elif HOW == "shaped":
        half = tl.reshape(half, (2, 2)).reshape(4)
    elif HOW == "largest":
        half = tl.maximum(half, half)
    tl.store(half_ptr + at, half)
    tl.store(y_ptr + at, half.to(tl.float32))
    tl.store(again_ptr + at, tl.load(half_ptr + at).to(tl.float32))


@interpreted
@pytest.mark.parametrize("how", ["once", "twice", "turned", "chosen", "shaped", "largest"])
def test_computing_with_what_was_rounded_is_found(how: str) -> None:
    """Whatever happens to it before it is float32 again, but not if it was stored in between."""
    x, half = torch.randn(4), torch.empty(4, dtype=torch.bfloat16 if how == "twice" else torch.float16)
    y, again, memory = torch.empty(4), torch.empty(4), Memory()
    with memory, interpreted_kernels(memory):
        rounded_kernel[(1,)](x, half, y, again, how)
    wanted = embed(-x.numpy() if how == "turned" else x.numpy())
    assert is_equal(memory.of(half), wanted).all()
    assert is_equal(memory.of(again), wanted).all()
    assert not is_equal(memory.of(y), wanted).any()


@interpreted
def test_gradients_of_groups_with_fewer_leading_axes() -> None:
    """They are sums along the others, of a tensor in which a group is one dimension."""
    found = checked("attention_gqa", SPECS["attention_gqa"][1], words="test_broadcast[narrow=0, place=0")
    assert [(one.difference, one.unjudged) for one in found] == [("", "")]


@interpreted
def test_command(tmp_path: Path) -> None:
    """It checks specs elsewhere, and says what it found as data."""
    home = tmp_path / "specs"
    home.mkdir()
    (home / "twice.toml").write_text(TWICE, encoding="utf-8")
    command = ("-m", "tritongen", "formula", "--test", "flat", "--format", "json")
    done = python(*command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["diagnostics"] == []
    assert found["verdicts"]
    assert not any(one["difference"] or one["unjudged"] for one in found["verdicts"])


def test_mistakes_of_all_specs_are_reported(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.toml" for name in ("twice", "thrice")]
    for path in paths:
        path.write_text(TWICE.replace('name = "twice"', f'name = "{path.stem}"').replace("x + x", "x + unknown"))
    with pytest.raises(Rejected) as error:
        check_formulas(tuple(map(str, paths)), (), lambda found, _: found)
    assert [Path(one.path).stem for one in error.value.diagnostics] == ["thrice", "twice"]


# The field


def drawn(*shape: int, seed: int = 0) -> Elements:
    return embed(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def test_arithmetic_is_that_of_fractions() -> None:
    x, y = drawn(100), drawn(100, seed=1)
    assert is_equal(embed(np.float32(0.375) * np.arange(8)), mul(embed(0.375), embed(np.arange(8)))).all()
    assert is_equal(mul(x, inv(x)), embed(1)).all()
    assert is_equal(sub(add(x, y), y), x).all()
    assert is_equal(div(total(x, 0), embed(100)), total(div(x, embed(100)), 0)).all()
    assert is_equal(neg(x), mul(x, embed(-1))).all()
    assert not is_equal(x, mul(x, embed(1 + 2.0**-23))).any()


def test_exp_is_a_homomorphism_and_log_its_inverse() -> None:
    x, y = drawn(100), drawn(100, seed=1)
    assert is_equal(exp(add(x, y)), mul(exp(x), exp(y))).all()
    sums = total(exp(drawn(100, 7)), 1)
    assert is_equal(exp(sub(x, log(sums))), div(exp(x), sums)).all()
    assert is_equal(field.exp2(mul(x, embed(1.4426950408889634))), exp(x)).all()
    assert is_equal(exp(embed(-np.inf)), embed(0)).all()


def test_infinities() -> None:
    x, infinity = drawn(10), embed(np.inf)
    assert (field.key(x) < field.key(infinity)).all()
    assert (field.key(x) > field.key(neg(infinity))).all()
    assert is_equal(add(x, infinity), infinity).all()
    assert field.is_nan(sub(infinity, infinity)).all()
    assert is_equal(div(x, infinity), embed(0)).all()


def test_matmul_of_many_terms() -> None:
    a, b = drawn(3, 5000), drawn(5000, 2)
    assert is_equal(matmul(a, b), total(mul(a[:, :, None], b[None]), 1)).all()
