"""Operands of matmuls in float64 that are computed from bools and small integers.

Triton 3.6 derives the layout of an operand from the narrowest load that it is computed from, and asserts in a matmul of
float64 beside fewer than 32 bits, whatever the tile. Only that version's compiler shows it; here, what kernels are
given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.harness.importing import built, runtime_of
from tests.harness.oracles import compare
from tritongen.spec.read import read_spec

SPEC = """
[op]
name = "matmul"
[types]
T = "float"
[inputs]
x = "T[M, K]"
w = "T[N, K]"
{narrow}
[compute]
y = "sum({product}, K) + 1"
[outputs]
y = "auto[M, N]"
[grad]
wrt = ["x", "w"]
"""
M, N, K = 19, 21, 37


@dataclass(frozen=True)
class Case:
    narrow: str
    product: str
    torch: Callable[..., torch.Tensor]
    optional: bool = False


CASES = {
    "bool": Case(
        'keep = "bool[M, K]"',
        "where(keep, x * 1.25, 0.0) * w",
        lambda x, w, keep: torch.where(keep, x * 1.25, 0) @ w.mT + 1,
    ),
    "optional_bool": Case(
        'keep = "bool[M, K] = true"',
        "where(keep, x * 1.25, 0.0) * w",
        lambda x, w, keep=None: torch.where(torch.tensor(True) if keep is None else keep, x * 1.25, 0) @ w.mT + 1,
        optional=True,
    ),
    "small_integer": Case(
        'codes = "int8[M, K]"',
        "where(codes * codes == -112, x, 0.5 * x) * w",  # 12 * 12 in eight bits
        lambda x, w, codes: torch.where(codes * codes == -112, x, 0.5 * x) @ w.mT + 1,
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("name", "is_given"), [*((name, True) for name in CASES), ("optional_bool", False)])
def test_values_and_what_kernels_read(
    name: str, is_given: bool, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    text = SPEC.format(narrow=case.narrow, product=case.product)
    operator = built(read_spec("matmul.toml", text), tmp_path)
    contraction = runtime_of(operator, "contraction")
    run, read = contraction.run, list[torch.dtype]()

    def noted(key: Any, by_name: Any, kernels: Any, operands: Any, *search: Any) -> None:
        read.extend(one.dtype for one in operands.matrices() if one is not None)
        run(key, by_name, kernels, operands, *search)

    monkeypatch.setattr(contraction, "run", noted)
    random = torch.Generator().manual_seed(0)
    x, w = (torch.randn(n, K, generator=random, dtype=dtype) for n in (M, N))
    narrow = torch.randint(0, 2, (M, K), generator=random) * 12
    given = [x, w, narrow.to(torch.int8 if name == "small_integer" else torch.bool)]
    compare(
        operator.matmul, case.torch, given if is_given else given[:2], [0, 1], 2e-5 if dtype.itemsize == 4 else 1e-12
    )
    if dtype == torch.float64:
        assert set(read) <= {torch.float64, torch.int32}
    else:
        assert torch.int32 not in read
