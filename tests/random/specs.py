"""Build random specs and compare their results with an oracle: `python -m tests.random.specs FIRST COUNT`."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_INTERPRET", "1")

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.harness.importing import built
from tests.harness.oracles import compare, differentiated
from tests.random.drawn_specs import Drawn
from tests.random.terms import Unclear

ULP = 2.0**-23  # of float32
SAFE = 16


class Rounded(TorchDispatchMode):
    """Have torch operations round their operands and results, up or down by a unit in the last place.

    Results then differ from exact ones about as much as with another order of operations in that precision.
    """

    def __init__(self, seed: int, ulp: float = ULP) -> None:
        super().__init__()
        self.random, self.ulp = torch.Generator().manual_seed(seed), ulp

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.is_view or func._schema.is_mutable:
            return func(*args, **(kwargs or {}))
        return self.off(func(*map(self.off, args), **(kwargs or {})))

    def off(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float64:
            return value
        up = torch.randint(0, 2, value.shape, generator=self.random)
        return value * (1 + self.ulp * (2 * up - 1))


class Comparison:
    """An operator and its oracle."""

    def __init__(self, drawn: Drawn, folder: Path) -> None:
        self.drawn = drawn
        self.operator = built(drawn.spec(), folder).drawn
        self.unclear = 0  # comparisons without a clear index of the largest element

    def call(self, *given: torch.Tensor | None) -> object:
        return self.operator(*given, **self.drawn.params())

    def formula(self, *given: torch.Tensor | None) -> object:
        results = self.drawn.torch(*given)
        return results if len(results) > 1 else results[0]

    def compare(self, dtype: torch.dtype, out: Collection[int] = (), apart: bool = False) -> None:
        """Compare for tensors without the inputs at `out`, drawn up to four times until indices are clear."""
        self.drawn.rounding = torch.finfo(dtype).eps
        here = [place for place, _ in enumerate(self.drawn.inputs) if place not in out]
        by = [here.index(place) for place in self.drawn.smooth if place in here]

        def filled(function: Callable[..., object]) -> Callable[..., object]:
            def of_some(*own: torch.Tensor) -> object:
                whole: list[torch.Tensor | None] = [None] * len(self.drawn.inputs)
                for place, one in zip(here, own, strict=True):
                    whole[place] = one
                return function(*whole)

            return of_some

        for draw in range(4):
            tensors = self.drawn.tensors(dtype, draw)
            given = [self.drawn.apart(tensors[place]) if apart else tensors[place] for place in here]
            try:
                bounds = 1e-7 if dtype == torch.float64 else rounded_off(filled(self.formula), given, by)
                compare(filled(self.call), filled(self.formula), given, by, bounds)
            except Unclear:
                continue
            return
        self.unclear += 1


def rounded_off(
    formula: Callable[..., object], given: Sequence[torch.Tensor], by: Sequence[int], ulp: float = ULP
) -> list[float]:
    """Tolerances of the results and gradients of a formula, if they are computed with the precision `ulp`.

    They are the changes if each float64 operation is rounded, times `SAFE`, and at least 8 `ulp` of the largest value.
    """
    wide = [one.double() if one.is_floating_point() else one for one in given]
    wanted = differentiated(formula, wide, by, torch.float32)
    moved = [8 * ulp * max(1.0, _largest(one)) for one in wanted]
    for seed in range(3):
        with Rounded(seed, ulp):
            found = differentiated(formula, wide, by, torch.float32)
        moved = [max(most, SAFE * _largest(a - b)) for most, a, b in zip(moved, found, wanted, strict=True)]
    return moved


def _largest(values: torch.Tensor) -> float:
    return float(values.nan_to_num(0, 0, 0).abs().max()) if values.numel() else 0.0


def check(drawn: Drawn, folder: Path, again: bool = False) -> int:
    """Compare results and gradients in float64 and float32, with and without optional inputs.

    With `again`, also for other lengths and strides, and check that a call with an empty axis returns. Returns the
    number of comparisons that were skipped because rounding decides which element is the largest.
    """
    comparison = Comparison(drawn, folder)
    optional = [place for place, one in enumerate(drawn.inputs) if one.default is not None]
    some = drawn.random.sample(optional, drawn.random.randint(0, len(optional)))
    comparison.compare(torch.float64)
    comparison.compare(torch.float32, some)
    if optional:
        comparison.compare(torch.float64, optional)
    if again:
        drawn.draw_lengths()
        comparison.compare(torch.float64, some, apart=True)
        drawn.without_length()
        # On empty axes, steps may differ from torch: 0, NaN, or a refused maximum.
        with contextlib.suppress(ValueError):
            differentiated(comparison.call, drawn.tensors(torch.float64), drawn.smooth, torch.float64)
    return comparison.unclear


def main(first: int, count: int) -> int:
    """Check `count` seeds, print those that fail, and return their number."""
    warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, in Triton's interpreter
    wrong = unclear = 0
    start = time.perf_counter()
    for seed in range(first, first + count):
        drawn = Drawn(seed)
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            try:
                unclear += check(drawn, Path(folder), again=True)
            except (Exception, AssertionError) as error:
                wrong += 1
                print(f"--- {seed}: {type(error).__name__}: {error}"[:1500], drawn.text(), sep="\n", flush=True)
        if time.perf_counter() - began > 30:
            print(f"--- {seed} took {time.perf_counter() - began:.0f} s", drawn.text(), sep="\n", flush=True)
    print(f"{wrong} of {count} are wrong, {unclear} comparisons were unclear; {time.perf_counter() - start:.0f} s")
    return wrong


if __name__ == "__main__":
    from tritongen.residues import fast_interpreter  # noqa: F401

    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])) > 0)
