"""Rows that CTAs share, in the interpreter, which runs CTAs one after another: once to fill the mailbox, in which no
CTA waits, and once more to take from it. What a CTA gives depends on nothing that it takes, so that on a GPU none waits
for ever.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from tests.harness.importing import built, runtime_module, runtime_of
from tritongen.operator.compile import generate
from tritongen.spec.read import read_spec

PLACE = 'w = "float[N]"'
INPUTS = '[op]\nname = "mapped"\n[inputs]\nx = "float[..., N]"\nw = "float[N]"\n[outputs]\ny = "x"\n[compute]\n'
SPECS = {
    "softmax": 'y = "softmax(2 * x, N) * w"',
    "norm": 'm = "mean(x, N)"\ny = "(x - m) * rsqrt(var(x, N) + 0.5) * w"',
    # A word for each: of rows that are negative, what stands for no CTA would be seen.
    "several": 'z = "x - 9"\ny = "z * w / (sum(z * z, N) + max(z, N)) + min(z, N) * mean(z * w, N)"',
    # Parts of two tensors are held.
    "added": 'z = "x + w"\ny = "z * rsqrt(mean(z * z, N) + 0.5)"',
}


@triton.jit
def take(slots, mask):  # type: ignore[no-untyped-def]
    return tl.load(slots, mask=mask, other=1)


def run_twice(function: Any, given: tuple[torch.Tensor, ...], monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """What a function makes with the mailbox that it has filled."""
    zeros, mailboxes = torch.zeros, list[torch.Tensor]()

    def made(*size: Any, **options: Any) -> torch.Tensor:
        mailboxes.append(mailboxes[0] if mailboxes else zeros(*size, **options))
        return mailboxes[0]

    with monkeypatch.context() as patch:
        patch.setattr(torch, "zeros", made)
        function(*given)
        assert (mailboxes[0] != 0).all()
        result: torch.Tensor = function(*given)
    return result


@pytest.mark.skipif(torch.cuda.is_available(), reason="CTAs of a GPU wait")
@pytest.mark.parametrize("name", SPECS)
def test_parts_of_rows_are_exchanged(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among as many CTAs as there are blocks in a row, the last of which may be short, two rows at a time."""
    is_long = name == "added"
    inputs = INPUTS.replace(PLACE, 'w = "float[..., N]"') if is_long else INPUTS
    module = built(read_spec("mapped.toml", inputs + SPECS[name]), tmp_path)
    heuristics, reduce = (runtime_of(module, name) for name in ("heuristics", "reduce"))

    def choose(n_cols: int, *_: object) -> triton.Config:
        tile = {"CTAS_PER_ROW": -(-n_cols // 16), "BLOCK_M": 1, "BLOCK_N": 16}
        return triton.Config(tile, num_warps=4, maxnreg=128)

    monkeypatch.setattr(reduce, "wait", take)
    monkeypatch.setattr(heuristics, "choose_cooperative_rows", choose)
    monkeypatch.setattr(heuristics, "choose_groups", lambda n_rows, *_: min(n_rows, 2))
    monkeypatch.setattr(heuristics.Registers, "fits", lambda *_: False)
    for shape in ((5, 40), (2, 96), (2, 3, 40)):
        x = torch.randn(*shape).movedim(0, -2)  # The last rows are of two dimensions.
        w = torch.randn(x.shape if is_long else shape[-1:])
        d, v = x.double(), w.double()
        z, both = d - 9, d + v
        wanted = {
            "softmax": torch.softmax(2 * d, -1) * v,
            "norm": (d - d.mean(-1, True)) * (d.var(-1, keepdim=True) + 0.5).rsqrt() * v,
            "added": both * ((both * both).mean(-1, True) + 0.5).rsqrt(),
            "several": z * v / ((z * z).sum(-1, True) + z.amax(-1, True)) + z.amin(-1, True) * (z * v).mean(-1, True),
        }
        found = run_twice(module.mapped, (x, w), monkeypatch)
        torch.testing.assert_close(found.double(), wanted[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "is_shared"),
    [
        ('y = "softmax(x, N) * (x + w)"', True),
        ('m = "max(x, N)"\ny = "w * x / sum(abs(x - m), N)"', False),  # One after the other.
        ('y = "w * x * sum(where(x > 0, index(N), 0), N)"', False),  # Of integers.
        ('y = "x * sum(w, N)"', False),  # The row is not what is reduced.
    ],
)
def test_rows_that_are_shared(text: str, is_shared: bool) -> None:
    files = generate(read_spec("mapped.toml", INPUTS + text))
    kernels = next(text for path, text in files.items() if str(path).endswith("kernels.py"))
    assert ("_cooperative_kernel" in kernels) == is_shared


def test_lengths_that_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half precision, from where it was measured to be faster, up to what all SMs hold."""
    heuristics = runtime_module("heuristics")
    monkeypatch.setattr(heuristics, "may_wait", lambda _: True)
    monkeypatch.setattr(heuristics, "sm_count", lambda _: 132)
    half, single = torch.empty(1, dtype=torch.bfloat16), torch.empty(1)

    def use(n_cols: int, *held: torch.Tensor) -> bool:
        return heuristics.choose_cooperative_rows(n_cols, held, "pairs") is not None

    assert use(65_536, half)
    assert not use(65_520, half)
    assert not use(131_072, single)
    assert not use(100_003, half)
    assert use(132 * 16_384, half)
    assert not use(132 * 16_384 + 16, half)
    assert use(132 * 8_192, half, half)
    assert not use(132 * 8_192 + 16, half, half)

    # As many CTAs as share the longest row run at once.
    for n_held, merges in ((1, "sums"), (1, "pairs"), (1, "moments"), (2, "sums"), (2, "moments")):
        for n_cols in (65_536, 100_000, 131_072, 262_144, 524_288, 132 * 16_384 // n_held):
            config = heuristics.choose_cooperative_rows(n_cols, [half] * n_held, merges)
            assert heuristics.choose_groups(8, config, half.device) >= 1
            assert config.kwargs["BLOCK_N"] * config.kwargs["CTAS_PER_ROW"] >= n_cols
