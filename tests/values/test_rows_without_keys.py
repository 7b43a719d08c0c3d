"""Rows without keys: of the second of two attentions, which a norm or a matmul precedes,
and where scores are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.harness.importing import built
from tests.harness.oracles import differentiated
from tests.harness.written import Written
from tests.random.evaluated import Evaluated
from tritongen.spec.read import read_spec

SPEC = """[op]
name = "attend"
[types]
T = "float"
[inputs]
q = "T[B, M, D]"
k = "T[B, N, D]"
v = "T[B, N, E]"
j = "T[B, L, {head}]"
w = "T[B, L, E]"
weight = "T[E, F]"
document = "int32[M]"
other = "int32[L]"
[compute]
a = "sum(softmax(sum(q * k, D) * 0.3, N) * v, N)"
projected = "sum(a * weight, E)"
r = "{between}"
t = "where({mask}, sum(r * j, {head}) * 0.3, -inf)"
b = "sum(softmax(t, L) * w, L)"
o = "{result}"
[outputs]
o = "q[B, M, E]"
projected = "q[B, M, F]"
[grad]
wrt = ["q", "k", "v", "j", "w", "weight"]
"""
QUOTIENT = """[op]
name = "attend"
[types]
T = "float"
[inputs]
q = "T[B, M, D]"
k = "T[B, N, D]"
v = "T[B, N, E]"
document = "int32[M]"
other = "int32[N]"
[compute]
s = "where(document == other, sum(q * k, D) * 0.3, -inf)"
z = "logsumexp(s, N)"
p = "exp(s)"
o = "sum(p / sum(p, N) * v, N)"
[outputs]
o = "q[B, M, E]"
z = "auto[B, M]"
[grad]
wrt = ["q", "k", "v"]
"""
BOTH = """[op]
name = "attend"
[types]
T = "float"
[inputs]
q = "T[B, M, D]"
k = "T[B, N, D]"
v = "T[B, N, E]"
document = "int32[M]"
other = "int32[L]"
j = "T[B, L, D]"
w = "T[B, L, E]"
[compute]
t = "where(document == other, sum(q * j, D) * 0.3, -inf)"
of_t = "logsumexp(t, L)"
s = "where(index(N) < index(M), sum(q * k, D) * 0.3, -inf)"
of_s = "logsumexp(s, N)"
o = "where(of_s == -inf, 0.0, sum(softmax(s, N) * v, N)) + where(of_t == -inf, 0.0, sum(softmax(t, L) * w, L))"
[outputs]
o = "q[B, M, E]"
[grad]
wrt = ["q", "k", "v", "j", "w"]
"""
RMS = "a * rsqrt(mean(a * a, E) + 1e-5)"
LAYER = "(a - mean(a, E)) * rsqrt(var(a, E, correction=0) + 1e-5)"
CAUSAL = "(index(L) - size(L) <= index(M) - size(M)) & (document == document) & (other == other)"
DOCUMENTS = "document == other"


@pytest.mark.parametrize(
    ("between", "mask", "result"),
    [
        (RMS, CAUSAL, "b"),
        (LAYER, DOCUMENTS, "b"),
        (RMS, DOCUMENTS, "a + where(logsumexp(t, L) == -inf, 0.0, b)"),
        ("projected * rsqrt(mean(a * a, E) + 1e-5)", CAUSAL, "a + b"),
    ],
)
def test_only_the_second_has_rows_without_keys(
    between: str, mask: str, result: str, tmp_path: Path, small: Callable[..., None]
) -> None:
    head = "F" if "projected" in between else "E"
    check(SPEC.format(between=between, mask=mask, result=result, head=head), tmp_path, small)


def test_each_of_two_has_rows_without_keys(tmp_path: Path, small: Callable[..., None]) -> None:
    """Which the result asks the lse of each for: it is what gradients read of the first only if nothing else does."""
    check(BOTH, tmp_path, small)


def test_lse_of_rows_without_keys_beside_a_quotient(tmp_path: Path, small: Callable[..., None]) -> None:
    """It is minus infinity. Gradients are those of torch, since they store scores."""
    check(QUOTIENT, tmp_path, small, stores=True)


@pytest.mark.parametrize("result", ["sum(p / sum(p, N) * v, N)", "sum(p * v, N) / sum(p, N)"])
def test_quotients_of_rows_without_keys(result: str, tmp_path: Path, small: Callable[..., None]) -> None:
    """By sums of exponentials that are not below the largest: 0 / 0, which has no part in gradients."""
    text = "\n".join(line for line in QUOTIENT.splitlines() if not line.startswith("z = "))
    check(text.replace("sum(p / sum(p, N) * v, N)", result), tmp_path, small)


@pytest.mark.parametrize(
    "p",
    [
        "where((document < 4) & (other < 2), softmax(s, N), 0.0)",
        "where(other < 2, where(document < 4, softmax(s, N) / 0.9, 0.0), 0.0)",
    ],
)
def test_rows_that_are_not_chosen_are_0(p: str, tmp_path: Path, small: Callable[..., None]) -> None:
    """Of two documents without keys, one is not chosen, as padded queries are not: it is 0 where the other is NaN."""
    text = "\n".join(line for line in QUOTIENT.splitlines() if not line.startswith(("z = ", "p = ")))
    check(text.replace("p / sum(p, N)", p), tmp_path, small)


def test_rows_that_dropout_drops_are_0_if_the_spec_says_so(tmp_path: Path, small: Callable[..., None]) -> None:
    text = "\n".join(line for line in QUOTIENT.splitlines() if not line.startswith("z = "))
    p = "where((document + other + index(N)) % 3 != 0, softmax(s, N), 0.0)"
    o = "where(logsumexp(s, N) == -inf, 0.0, sum(p * v, N))"
    check(text.replace("exp(s)", p).replace("sum(p / sum(p, N) * v, N)", o), tmp_path, small)


ALONE = "sum(p * v, N)"
LARGER = "sum(p / (sum(p, N) + 1) * v, N)"
CLAMPED = "sum(p * v, N) / clamp_min(sum(p, N), 1e-6)"
CHOSEN = "where(max(s, N) == -inf, 0.0, sum(p * v, N) / (sum(p, N) + 1))"


def below_largest(o: str) -> str:
    text = QUOTIENT.replace('z = "logsumexp(s, N)"\n', "").replace('z = "auto[B, M]"\n', "")
    return text.replace("exp(s)", "exp(s - max(s, N))").replace("sum(p / sum(p, N) * v, N)", o)


@pytest.mark.parametrize("o", [ALONE, LARGER, CLAMPED, CHOSEN])
def test_exponentials_of_rows_without_keys_are_nan(o: str, tmp_path: Path) -> None:
    """As their math says, whether or not it divides by their sum."""
    written = Written(below_largest(o).partition("[grad]")[0], tmp_path)
    lengths = {"B": 1, "M": 9, "N": 20, "D": 8, "E": 16}
    tensors = written.drawn(lengths) | {"document": torch.arange(9, dtype=torch.int32) % 5}
    written.compare(lengths, tensors | {"other": torch.arange(20, dtype=torch.int32) % 3})


@pytest.mark.parametrize(("o", "stores"), [(ALONE, False), (LARGER, True), (CHOSEN, False)])
def test_gradients_of_exponentials_without_keys(
    o: str, stores: bool, tmp_path: Path, small: Callable[..., None]
) -> None:
    check(below_largest(o), tmp_path, small, stores)


def check(text: str, folder: Path, small: Callable[..., None], stores: bool = False) -> None:
    evaluated = Evaluated(text)
    lengths = {"B": 2, "M": 33, "N": 20, "L": 19, "D": 8, "E": 16, "F": 16, "...0": 1, "...1": 1}
    random = torch.Generator().manual_seed(0)
    tensors = [torch.randn(evaluated.shape(one, lengths), generator=random).double() for one in evaluated.inputs]
    for place, one in enumerate(evaluated.inputs):
        if one.dtype == "int32":
            high = 5 if one.name == "document" else 3
            tensors[place] = torch.randint(0, high, tensors[place].shape, generator=random, dtype=torch.int32)
    by = [place for place, one in enumerate(evaluated.inputs) if one.dtype != "int32"]

    def formula(without_lost: bool, *own: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return evaluated(lengths, own, {}, without_lost)

    operator = built(read_spec("attend.toml", text), folder)
    small(operator)
    found = differentiated(operator.attend, tensors, by, torch.float64)
    in_torch = differentiated(partial(formula, False), tensors, by, torch.float64)
    alone = differentiated(partial(formula, True), tensors, by, torch.float64)
    assert in_torch[0].isnan().any() or "-inf, 0.0" in text
    number = len(evaluated.outputs)
    wanted = in_torch if stores else [*in_torch[:number], *alone[number:]]
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9, equal_nan=True)


def test_rows_that_a_number_masks_are_not_without_keys() -> None:
    """For the oracle: not where the number is as low as float32 has any."""
    text = QUOTIENT.replace("0.3, -inf)", "0.3, -3e38)")
    text = text.replace("sum(p / sum(p, N) * v, N)", "where(z == -inf, 0.0, 1.0)").replace("M, E]", "M]")
    evaluated = Evaluated(text)
    lengths = {"B": 1, "M": 3, "N": 2, "D": 1, "E": 1, "...0": 1, "...1": 1}
    tensors = [torch.ones(evaluated.shape(one, lengths), dtype=torch.float64) for one in evaluated.inputs]
    tensors[-2:] = torch.arange(3), torch.ones(2)
    assert evaluated(lengths, tensors, {}, True)[0].tolist() == [[1.0, 1.0, 1.0]]
