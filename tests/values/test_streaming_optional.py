"""Attention with inputs that may be left out, beside a float64 oracle of torch's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.cases.streaming_cases import CASES, MEAN, QKV, Case
from tests.cases.streaming_formulas import full
from tests.harness.importing import built
from tests.harness.oracles import compare


@pytest.mark.parametrize("given", [True, False])
def test_an_optional_table_of_relative_positions(given: bool, tmp_path: Path, small: Callable[..., None]) -> None:
    """That is read at computed positions, and only where a caller has one."""
    case = CASES["relative_positions"]
    optional = case.inputs.replace("P]", "P=96] = 0")
    operator = built(replace(case, inputs=optional).spec(), tmp_path)
    small(operator)
    *qkv, table = case.tensors(torch.float64)
    found = operator.attend(*qkv, table) if given else operator.attend(*qkv)
    torch.testing.assert_close(found, case.torch(*qkv, table) if given else full(*qkv), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("given", [True, False])
def test_optional_integers(given: bool, tmp_path: Path, small: Callable[..., None]) -> None:
    """That tell which blocks are needed, and where a table is read."""
    inputs = f"{QKV}; table:T[P=4]; limit:int32[B] = 30; bucket:int64[M, N] = 2"
    compute = f"s = where(index(N) < limit, sum(q * k, D) * 0.25 + take(table, bucket, P), -inf){MEAN}"
    operator = built(Case(inputs, compute, full).spec(), tmp_path)
    small(operator)
    *tensors, bucket = Case(f"{QKV}; table:T[P=4]; bucket:int64[M, N]", "", full).tensors(torch.float64)
    limit = torch.tensor([20, 30])
    own = (limit.int(), bucket) if given else ()
    limit, bucket = (limit, bucket) if given else (torch.tensor([30, 30]), torch.full_like(bucket, 2))

    def formula(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, table: torch.Tensor, *_: torch.Tensor) -> object:
        biased = q @ k.mT * 0.25 + table[bucket]
        near = torch.arange(k.shape[-2]) < limit[:, None, None, None]
        return torch.softmax(biased.masked_fill(~near, -torch.inf), -1) @ v

    compare(operator.attend, formula, [*tensors, *own], [0, 1, 2], 1e-9)


@pytest.mark.parametrize("given", [True, False])
def test_an_optional_mask(given: bool, tmp_path: Path, small: Callable[..., None]) -> None:
    """Whose flags are converted where matrices are float64."""
    case = CASES["boolean_mask"]
    operator = built(replace(case, inputs=f"{case.inputs} = true").spec(), tmp_path)
    small(operator)
    *qkv, mask = case.tensors(torch.float64)
    found = operator.attend(*qkv, mask) if given else operator.attend(*qkv)
    torch.testing.assert_close(found, case.torch(*qkv, mask) if given else full(*qkv), rtol=1e-9, atol=1e-9)
