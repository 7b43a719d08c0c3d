"""Traces without torch's symbolic lengths: the same specs, without what torch imports for these."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.importing.test_values import CASES, HERE, NAMES
from tritongen.importing.run import _result, _scalars
from tritongen.importing.symbols import NeedsSymbols
from tritongen.importing.targets import Target, load, parse_example
from tritongen.importing.tracing import plain_trace, trace

USUAL = ["gated_norm", "attention", "apply_rotary_pos_emb", "LlamaMLP", "lm_loss", "gqa", "packed_attention"]
USUAL += ["modulate", "LayerNorm_normalized_shape=64", "with_class_token", "rms_norm_gated", "message_passing", "route"]


def target_of(name: str) -> tuple[Target, str]:
    spelled, example, *init = CASES[NAMES.index(name)]
    home = f"{HERE}{os.sep}" if ".py:" in spelled else ""
    return load(home + spelled, init[0].split() if init else []), example


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", USUAL)
def test_specs_are_those_of_symbolic_lengths(name: str) -> None:
    target, example = target_of(name)
    given = parse_example(example)
    texts = [
        _result(target, one(target, given), _scalars(target, given), "").imported.text for one in (plain_trace, trace)
    ]
    assert texts[0] == texts[1]


def test_lengths_of_windows_need_them() -> None:
    target, example = target_of("Conv1d_in_channels=4_out_channels=6_kernel_size=3_padding=1")
    given = parse_example(example)
    traced = plain_trace(target, given)
    with pytest.raises(NeedsSymbols):
        _result(target, traced, _scalars(target, given), "")


def test_a_length_that_is_a_number_needs_them() -> None:
    """A branch by a length is the example's, with that length open: for torch alone to say."""
    target = replace(target_of("gated_norm")[0], function=lambda x: x * 2 if x.shape[0] > 5 else x, name="by_length")
    with pytest.raises(NeedsSymbols):
        plain_trace(target, parse_example("x=f32[4,8]"))


@pytest.mark.sampled(1)
def test_nothing_is_imported_that_only_symbols_need() -> None:
    program = """if True:
        import sys
        from tritongen.importing.run import imported
        for name, example in (("gated_norm", "x=bf16[4,8,64] gate=bf16[4,8,64] weight=bf16[64]"),
                              ("attention", "q=f32[2,4,8,16] k=f32[2,4,12,16] v=f32[2,4,12,16]")):
            imported(f"functions.py:{name}", [], example)
        print(*sorted({"sympy", "torch._dynamo", "torch._inductor"} & sys.modules.keys()))
    """
    found = subprocess.run([sys.executable, "-c", program], cwd=HERE, check=True, capture_output=True, text=True)
    assert found.stdout == "\n"
