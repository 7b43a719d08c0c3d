"""Random texts of specs: mixtures of experts, gathers, attention, scans, convolutions by `take`, and epilogues.

`python -m tests.random.texts FIRST COUNT --jobs 32 --seconds 500` builds them and compares results and gradients with
the same text evaluated in float64: for drawn lengths, with each axis empty once, and without optional inputs. Memory
that no kernel writes is NaN. They run in the interpreter if there is no GPU or TRITON_INTERPRET is 1; then accesses
are checked to be in bounds, too.
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

MEMORY = 8 << 30  # limit of bytes per process in the interpreter


def drawn(seed: int) -> Text:
    return Text(seed, STARTS, BLOCKS, CHOICES)


def check(text: Text, written: Written) -> None:
    """Compare results and gradients. Raises AssertionError if they are incorrect, and all errors of calls."""
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
        # A maximum over an empty axis has no value; else torch's results for empty axes are expected.
        if written.has_results(text.lengths, tensors, params):
            # In torch, the gradient of a line that no result reads is 0 times its value, which may be NaN if empty.
            written.compare(text.lengths, tensors, params, finite="take(" in text.text or text.lost)
        text.lengths[axis] = length


def outcomes(seed: int) -> Iterator[Outcome]:
    """The outcomes of a seed: right, or an error in drawing, building, calling or comparing."""
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
    """Set up a process: no warnings, one core, and interpreted kernels if there is no GPU."""
    if os.environ["TRITON_INTERPRET"] == "1":
        from tritongen.residues import fast_interpreter  # noqa: F401

        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    check_bounds(types.SimpleNamespace(setattr=setattr))  # type: ignore[arg-type]


if __name__ == "__main__":
    arguments = processes.arguments("Compare random specs with what they say.")
    sys.exit(processes.main(Task(outcomes, prepare), arguments) > 0)
