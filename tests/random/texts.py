"""Random texts of specs: mixtures of experts, gathers, attentions, scans, convolutions by `take`, and what follows.

`python -m tests.random.texts FIRST COUNT --jobs 32 --seconds 500` builds them and compares their results and gradients
with what the text itself evaluates to in float64: of drawn lengths, with an empty axis, and without inputs that have a
default. Memory that no kernel writes is NaN, and none is accessed outside of tensors.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
import types
import warnings
from pathlib import Path

os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import torch

from templates.testing.bounds import check_bounds
from tests.harness.written import Written
from tests.random import processes
from tests.random.blocks_of_texts import BLOCKS, STARTS
from tests.random.drawn_texts import Text
from tests.random.processes import REFUSED, RIGHT, Outcome
from tritongen.diagnostics.report import Mistakes


def drawn(seed: int) -> Text:
    return Text(seed, STARTS, BLOCKS)


def check(text: Text, written: Written) -> None:
    """Raises AssertionError for wrong results and gradients, and whatever calls raise."""
    params = {"on": True} if text.flag else {}
    written.compare(text.lengths, text.drawn(written), params, finite=text.outside)
    if text.optional:
        params = {"on": False} if text.flag else {}
        missing = {name: None for name in text.optional if text.maybe(0.8)}
        written.compare(text.lengths, text.drawn(written, 1) | missing, params, finite=text.outside)
    free = [axis for axis in text.lengths if axis not in text.fixed]
    if free and not text.outside:
        text.lengths[text.random.choice(free)] = 0
        tensors = text.drawn(written, 2)
        # Over nothing, a largest has no value; what torch makes of it otherwise is what is wanted.
        if written.has_results(text.lengths, tensors, params):
            written.compare(text.lengths, tensors, params)


def outcome(seed: int) -> Outcome:
    """What comes of a seed: right, or what goes wrong in drawing, building or calling, or with which values."""
    kind, spec, lengths = "DRAW", "", dict[str, int]()
    with tempfile.TemporaryDirectory() as folder:
        try:
            text = drawn(seed)
            spec, lengths = text.text, text.lengths
            kind = "BUILD"
            written = Written(spec, Path(folder))
            kind = "CALL"
            check(text, written)
        except Mistakes as mistakes:
            return Outcome(REFUSED, str(mistakes), spec)
        except (Exception, AssertionError) as error:
            if isinstance(error, AssertionError) and kind == "CALL":
                kind = "WRONG"
            where = "".join(traceback.format_tb(error.__traceback__)[-1:]).strip()
            return Outcome(kind, f"{type(error).__name__}: {error} at {lengths}, {where}", spec)
    return Outcome(RIGHT)


def main() -> int:
    given = processes.arguments("Compare random specs with what they say.")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    check_bounds(types.SimpleNamespace(setattr=setattr))  # type: ignore[arg-type]
    outcome(0)  # What is imported and cached at first is there for all.
    return processes.main(outcome, lambda seed: drawn(seed).text, given)


if __name__ == "__main__":
    from tests.harness import fast_interpreter  # noqa: F401

    sys.exit(main() > 0)
