"""Matmuls that read the matrices that are picked by index, one for each of a batch, where they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.harness.importing import built, runtime_of
from tritongen.families.contraction.family import CONTRACTION
from tritongen.families.contraction.program import ContractionProgram
from tritongen.operator.compile import backward_of, forward_of
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

PATH = Path(__file__).parents[1] / "specs" / "gradient_product_picked.toml"


def spec_of(*changes: tuple[str, str]) -> Spec:
    text = PATH.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return read_spec(PATH.name, text)


def stored(spec: Spec) -> list[str]:
    """What the forward stores between steps."""
    steps = forward_of(spec).family.steps(forward_of(spec).program)
    return [result.output.name for step in steps[:-1] for result in step.op.results]


def test_no_step_stores_what_is_picked() -> None:
    spec = spec_of()
    forward = forward_of(spec)
    assert forward.family is CONTRACTION
    backward = backward_of(spec, forward)
    assert backward is not None
    inner = [one for step in backward.plan.steps for one in step.family.steps(step.program) or (step,)]
    (dx,) = (step for step in inner if step.op.results[0].output.name == "dx")
    assert isinstance(dx.program, ContractionProgram)
    assert [one.name for one in dx.program.gathered] == ["weight"]


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (("sum(x * mine, K)", "sum(x * exp(mine), K)"), "picked and computed with"),
        (("sum(x * mine, K)", "sum(x * mine, K) + sum(mine, K)"), "picked beside a matmul, too"),
        (('weight = "T[E, M, K]"', 'weight = "T[E, J, M, K]"'), "more axes than the batch has"),
    ],
)
def test_others_are_stored(change: tuple[str, str], kept: str) -> None:
    spec = spec_of(change, ('[grad]\nwrt = ["x", "weight", "bias"]\n', ""), ('y = "x[B, N, M]"', 'y = "auto"'))
    assert stored(spec), kept


@pytest.mark.parametrize("tma", [False, True])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_positions_outside(dtype: torch.dtype, tma: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory is read, and results are NaN."""
    module = built(spec_of(), tmp_path)
    monkeypatch.setattr(runtime_of(module, "matmul_heuristics"), "use_tma", lambda *_: tma)
    x, weight, bias = torch.randn(5, 17, 32), torch.randn(4, 24, 32), torch.randn(24)
    expert = torch.tensor([3, -1, 0, 4, 2], dtype=dtype)
    got = module.gradient_product_picked(x, weight, expert, bias)
    inside = [0, 2, 4]
    want = torch.nn.functional.gelu(x.double() @ weight.double()[expert.clamp(0, 3).long()].mT + bias)
    torch.testing.assert_close(got[inside].double(), want[inside], rtol=1e-4, atol=1e-4)
    assert got[[1, 3]].isnan().all()
    assert module.gradient_product_picked(x, weight[:0], expert, bias).isnan().all()
