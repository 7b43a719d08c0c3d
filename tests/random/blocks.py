"""Random specs of the blocks that people fuse: norms, matmuls, activations, losses, gathers, quantisation.

`python -m tests.random.blocks FIRST COUNT [N]` builds them and compares results with an oracle. For every Nth seed the
emitted tests run, too. Seeds from 1,000 on have more kinds of blocks, seeds from 4,000 on also scans.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

os.environ.setdefault("TRITON_INTERPRET", "1")

import torch

from tests.harness.importing import built, emitted_tests, written
from tests.harness.oracles import compare
from tests.random.blocks_of_layers import LAYERS, reduced, statistics
from tests.random.blocks_of_losses import LOSSES
from tests.random.blocks_of_scans import SCANS
from tests.random.blocks_of_sums import SUMS
from tests.random.drawn_blocks import Blocks
from tests.random.specs import rounded_off

MORE, SCANNED = 1000, 4000  # the first seeds that have blocks of sums, too, and of scans


def drawn(seed: int) -> Blocks:
    blocks = (*LAYERS, *(SUMS + SUMS if seed >= MORE else ()), *(SCANS * 3 if seed >= SCANNED else ()))
    return Blocks(seed, blocks, (*LOSSES, reduced, statistics))


def check(blocks: Blocks, folder: Path) -> None:
    """Compare in float64, in float32 unless results are discrete, and with other lengths and strides."""
    spec = blocks.spec()
    operator = built(spec, folder).blocks
    by = [place for place, one in enumerate(spec.inputs) if spec.grad and one.name in spec.grad.wrt]

    def compared(dtype: torch.dtype, draw: int, out: int = 0, apart: bool = False) -> None:
        torch.set_default_dtype(torch.float64)
        try:
            formula = blocks.formula()
            tensors = blocks.tensors(spec, dtype, draw, apart)
            given = tensors[: len(tensors) - out]
            own = [place for place in by if place < len(given)]
            bounds = 1e-7 if dtype == torch.float64 else rounded_off(formula, given, own)
        finally:
            torch.set_default_dtype(torch.float32)

        def wanted(*args: torch.Tensor) -> object:
            torch.set_default_dtype(torch.float64)
            try:
                return formula(*args)
            finally:
                torch.set_default_dtype(torch.float32)

        compare(operator, wanted, given, own, bounds)

    optional = sum(one.default is not None for one in spec.inputs)
    compared(torch.float64, 0)
    if not blocks.discrete:
        compared(torch.float32, 1)
    blocks.draw_lengths()
    compared(torch.float64, 2, optional, apart=True)


def told_by_emitted_tests(blocks: Blocks, folder: Path) -> str:
    """Run the emitted tests of dtypes, gradients and layouts; the errors of those that fail."""
    written(blocks.spec(), folder / "emitted")
    done = emitted_tests(folder / "emitted", "-x", "--tb=short", "-k", "test_dtypes or test_gradients or test_layouts")
    lines = (line for line in done.stdout.splitlines() if line.startswith("E ") or "FAILED" in line)
    return "\n".join(lines)[:1500] if done.returncode else ""


def main(first: int, count: int, tests: int = 0) -> int:
    warnings.simplefilter("ignore", RuntimeWarning)
    torch.set_num_threads(1)
    wrong = 0
    start = time.perf_counter()
    for seed in range(first, first + count):
        began = time.perf_counter()
        blocks = drawn(seed)
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(blocks, Path(folder))
                if tests and seed % tests == 0 and (told := told_by_emitted_tests(drawn(seed), Path(folder))):
                    raise AssertionError(told)
            except (Exception, AssertionError) as error:
                wrong += 1
                where = "".join(traceback.format_tb(error.__traceback__)[-2:])[-600:]
                print(
                    f"--- {seed}: {type(error).__name__}: {error}"[:1500],
                    where,
                    getattr(blocks, "told", blocks.lines),
                    sep="\n",
                    flush=True,
                )
        if time.perf_counter() - began > 40:
            print(f"--- {seed} took {time.perf_counter() - began:.0f} s", flush=True)
    print(f"{wrong} of {count} are wrong; {time.perf_counter() - start:.0f} s")
    return wrong


if __name__ == "__main__":
    from tritongen.residues import fast_interpreter  # noqa: F401

    sys.exit(main(*map(int, sys.argv[1:])) > 0)
