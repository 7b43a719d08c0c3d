"""Random texts of specs: mixtures of experts, gathers, attentions, scans, convolutions by `take`, and what follows.

`python -m tests.random.texts FIRST COUNT --jobs 32 --seconds 500` builds them and compares their results and gradients
with what the text itself evaluates to in float64: of drawn lengths, with each axis empty in turn, and without inputs
that have a default. Memory that no kernel writes is NaN. They run in the interpreter if there is no GPU, or
TRITON_INTERPRET is 1; there, none is accessed outside of tensors, either.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import traceback
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

if os.environ.get("TRITON_INTERPRET") == "1":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch

os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")

from templates.testing.launches import check_bounds
from tests.harness.written import Written
from tests.random import processes
from tests.random.blocks_of_texts import BLOCKS, CHOICES, STARTS
from tests.random.drawn_texts import Text
from tests.random.evaluated import Undecided
from tests.random.processes import REFUSED, RIGHT, Outcome, Task
from tritongen.diagnostics.report import Mistakes

MEMORY = 8 << 30  # bytes of a process in the interpreter


def drawn(seed: int) -> Text:
    return Text(seed, STARTS, BLOCKS, CHOICES)


def check(text: Text, written: Written) -> None:
    """Raises AssertionError for wrong results and gradients, and whatever calls raise."""
    params = {"on": True} if "on" in text.params else {}
    written.compare(text.lengths, text.drawn(written), params, finite=text.outside or text.lost)
    if text.optional:
        params = {"on": False} if params else {}
        missing = {name: None for name in text.optional if text.maybe(0.8)}
        written.compare(text.lengths, text.drawn(written, 1) | missing, params, finite=text.outside or text.lost)
    free = [] if text.outside else [(axis, length) for axis, length in text.lengths.items() if axis not in text.fixed]
    for axis, length in free:
        text.lengths[axis] = 0
        tensors = text.drawn(written, 2)
        # Over nothing, a largest has no value; what torch makes of it otherwise is what is wanted.
        if written.has_results(text.lengths, tensors, params):
            # What no result reads has a gradient of 0 times what it computes, of nothing, in torch.
            written.compare(text.lengths, tensors, params, finite="take(" in text.text or text.lost)
        text.lengths[axis] = length


def outcomes(seed: int) -> Iterator[Outcome]:
    """What comes of a seed: right, or what goes wrong in drawing, building or calling, or with which values."""
    kind, spec, lengths = "DRAW", "", dict[str, int]()
    with tempfile.TemporaryDirectory() as folder:
        try:
            text = drawn(seed)
            spec, lengths = text.text, text.lengths
            yield Outcome(RIGHT, text=spec)
            kind = "BUILD"
            written = Written(spec, Path(folder))
            kind = "CALL"
            check(text, written)
        except Undecided:
            yield Outcome(RIGHT, text=spec)
        except Mistakes as mistakes:
            yield Outcome(REFUSED, str(mistakes), spec)
        except (Exception, AssertionError) as error:
            if isinstance(error, AssertionError) and kind == "CALL":
                kind = "WRONG"
            where = "".join(traceback.format_tb(error.__traceback__)[-1:]).strip()
            yield Outcome(kind, f"{type(error).__name__}: {error} at {lengths}, {where}", spec)


def prepare() -> None:
    """Has a process warn of nothing, use one core, and interpret kernels where there is no GPU."""
    if os.environ["TRITON_INTERPRET"] == "1":
        from tritongen.residues import fast_interpreter  # noqa: F401

        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    check_bounds(types.SimpleNamespace(setattr=setattr))  # type: ignore[arg-type]


if __name__ == "__main__":
    arguments = processes.arguments("Compare random specs with what they say.")
    sys.exit(processes.main(Task(outcomes, prepare), arguments) > 0)
