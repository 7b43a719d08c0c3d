"""Build random attention operators and compare them with an oracle: `python -m tests.random.attention FIRST COUNT`."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from random import Random
from typing import Any

os.environ.setdefault("TRITON_INTERPRET", "1")

if os.environ["TRITON_INTERPRET"] == "1":
    from tritongen.residues import fast_interpreter  # noqa: F401
import pytest
import torch

from tests.cases.gluon import launched
from tests.harness.importing import built, runtime_of
from tests.harness.oracles import differentiated
from tests.random.drawn_attention import DrawnAttention
from tests.random.evaluated import LEADING, Evaluated, Tensor
from tests.random.specs import rounded_off
from tritongen.families.streaming.family import Streaming
from tritongen.operator.compile import backward_of, forward_of, stored_in
from tritongen.spec.read import read_spec

FINITE = ("-1e9", "-3e38")
COARSE = {torch.float32: 2e-4, torch.float16: 1e-2}
PARAMS = {"scale": 0.3}
ROWS = ((33, 40), (17, 50), (50, 17), (1, 40), (40, 1), (3, 70), (16, 16), (35, 35), (70, 3), (5, 5))
HEADS = (1, 2, 2, 3)
KEYS = ("N", "X", "Y", "J", "S")
WIDTHS = (1, 3, 8, 16, 16, 17, 24)


class Comparison:
    """An operator and its oracle, which are compared for drawn lengths and values."""

    def __init__(self, drawn: DrawnAttention, folder: Path) -> None:
        self.drawn = drawn
        self.random = Random(drawn.seed)
        self.evaluated = Evaluated(drawn.text())
        spec = read_spec("drawn.toml", drawn.text())
        self.operator = built(spec, folder)
        self.has_gluon = (folder / "drawn" / "gluon_kernels.py").exists()
        # The rounding errors of scores that are masked by a finite value are as large as that value.
        text = drawn.text()
        for low in FINITE:
            text = text.replace(f", {low})", ", -inf)")
        self.is_finite = text != drawn.text()
        self.masked = Evaluated(text)
        # Gradients do not depend on the maximum; the noise of gradients through it would cancel other noise.
        self.rounded = Evaluated(re.sub(r"\bmax\(s, .*?\)", r"detach(\g<0>)", text))
        self.params = {name: value for name, value in PARAMS.items() if name in self.evaluated.params()}

    @cached_property
    def stores(self) -> bool:
        """Whether all gradients are computed from stored scores, as with pages, so that lost rows are as in torch.

        If only the gradient of the scores is stored, the other gradients stream.
        """
        if self.drawn.paged:
            return True
        forward = forward_of(read_spec("drawn.toml", self.drawn.text()))
        backward = backward_of(read_spec("drawn.toml", self.drawn.text()), forward)
        streams = any(isinstance(step.family, Streaming) for step in backward.plan.steps) if backward else False
        return bool(stored_in(forward, backward)) and not streams

    def lengths(self, rows: int, keys: int) -> dict[str, int]:
        found = {axis: self.random.choice(HEADS) for axis in ("B", "G", "R", "H", *LEADING, "C", "P")}
        found |= {axis: self.random.choice(WIDTHS) for axis in ("D", "E", "K")}
        if self.drawn.image or self.drawn.paged:
            # Keys are in rows of an image, or in pages.
            found["Y"] = found["S"] = self.random.choice((1, 4, 7, 16))
            found["X"] = found["J"] = -(-keys // found["S"])
            keys = found["X"] * found["Y"]
        found |= {"L": self.random.choice((1, 20, 33)), "U": self.random.choice((1, 5))}
        return {**found, "M": rows, "N": keys, "W": max(1, rows + keys - 1)}

    def tensors(self, dtype: torch.dtype, lengths: dict[str, int]) -> list[torch.Tensor]:
        random = torch.Generator().manual_seed(self.drawn.seed)
        made = []
        always = [one for one in self.evaluated.inputs if ("...",) in one.dims and one.default is None]
        for one in self.evaluated.inputs:
            leading = len(LEADING) if one in always[:1] else self.random.choice((0, 1, 2, 2, 2))
            shape = self.evaluated.shape(one, lengths, leading)
            if one not in always[:1] and ("...",) in one.dims and leading and self.random.random() < 0.2:
                shape[self.random.randrange(leading)] = 1
            drawn = torch.randn(shape, generator=random, dtype=torch.float64)
            if one.dtype == "bool":
                chosen = drawn < 0.5
                if one.name == "keep" and chosen.numel():
                    chosen[self.first_key(one)] = True  # In torch, dropping a full row turns NaN into 0.
                made.append(chosen)
            elif "int" in one.dtype:
                high = self.drawn.high[one.name]
                most = max(1, lengths[high] if isinstance(high, str) else high)
                made.append(torch.randint(0, most, shape, generator=random).to(getattr(torch, one.dtype)))
            else:
                own = one.dtype if "float8" in one.dtype or one.dtype == "float32" else ""
                made.append(drawn.to(getattr(torch, own) if own else dtype))
        return made

    def first_key(self, one: Tensor) -> tuple[Any, ...]:
        """The index into an input of its elements for the first key."""
        return tuple(... if dim == ("...",) else 0 if {*KEYS} & {*dim} else slice(None) for dim in one.dims)

    def apart(self, tensor: torch.Tensor) -> torch.Tensor:
        """A strided copy, with dimensions in another order in memory, and perhaps gaps between elements."""
        order = self.random.sample(range(tensor.ndim), tensor.ndim)
        step = self.random.choice((1, 1, 2))
        memory = torch.zeros([step * tensor.shape[place] for place in order], dtype=tensor.dtype)
        every = tuple([slice(None, None, step)] * tensor.ndim)
        return memory[every].permute([order.index(place) for place in range(tensor.ndim)]).copy_(tensor)

    def compare(
        self, dtype: torch.dtype, lengths: dict[str, int], without: Collection[str] = (), apart: bool = False
    ) -> None:
        """Compare results and gradients for some lengths, `without` optional inputs; `apart` makes tensors strided."""
        inputs = self.evaluated.inputs
        given = [one for one in inputs if one.name not in without]
        made = self.tensors(dtype, lengths)
        tensors = [
            self.apart(tensor) if apart else tensor for one, tensor in zip(inputs, made, strict=True) if one in given
        ]
        by = [place for place, one in enumerate(given) if one.name in self.drawn.by]
        wide = [one.double() if one.is_floating_point() else one for one in tensors]

        def whole(own: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
            named = dict(zip((one.name for one in given), own, strict=True))
            return [named.get(one.name) for one in inputs]

        def call(*own: torch.Tensor) -> object:
            return self.operator.drawn(*whole(own), **self.params)

        def formula(evaluated: Evaluated, without_lost: bool, *own: torch.Tensor) -> object:
            results = evaluated(lengths, whole(own), self.params, without_lost)
            return results if len(results) > 1 else results[0]

        number = len(self.evaluated.outputs)
        try:
            in_torch = differentiated(partial(formula, self.evaluated, False), wide, by, dtype)
        except IndexError:  # a maximum over an empty axis, which has no result
            with contextlib.suppress(ValueError):
                differentiated(call, tensors, by, dtype)
            return
        # Rows masked by a finite value have a gradient if lse shows their number of keys, or scores are stored.
        is_told = dtype == torch.float64 and FINITE[1] not in self.evaluated.text
        like = self.evaluated if is_told or (self.is_finite and self.stores) else self.masked
        alone = differentiated(partial(formula, like, True), wide, by, dtype)
        wanted = [*in_torch[:number], *alone[number:]]
        if self.is_finite:  # Gradients of inputs after the means depend on all rows.
            own = {number + place for place, at in enumerate(by) if given[at].name in self.drawn.after}
            every = differentiated(partial(formula, self.evaluated, True), wide, by, dtype)
            wanted = [every[place] if place in own else one for place, one in enumerate(wanted)]
        if dtype == torch.float64:
            # lse of a row that -1e9 masks has seven decimal places left.
            bounds = [(1e-6 if self.is_finite else 1e-8) * largest(one) for one in wanted]
        else:
            ulp = max(torch.finfo(dtype).eps, 2.0**-23)
            # Sums with cancellation, as the gradient of a slope, have larger errors than the rounding of torch's terms.
            moved = rounded_off(partial(formula, self.rounded, True), tensors, by, ulp)
            bounds = [max(4 * off, COARSE[dtype] * largest(one)) for off, one in zip(moved, alone, strict=True)]
        found = differentiated(call, tensors, by, dtype)
        names = [*(one.name for one in self.evaluated.outputs), *(f"d{given[place].name}" for place in by)]
        for name, one, other, exact, bound in zip(names, found, wanted, in_torch, bounds, strict=True):
            found_dtype = one.dtype
            assert one.shape == other.shape, f"{name} is {tuple(one.shape)} instead of {tuple(other.shape)}"
            lost = one.isnan() & exact.isnan()
            if name[1:] in self.drawn.after or (name.startswith("d") and bool(lost.any()) and self.stores):
                one = torch.where(lost, other.to(one.dtype), one)
            too_large = one.isinf() & (other.abs() + bound > torch.finfo(dtype).max)
            one = torch.where(too_large, other, one.double())
            rtol = torch.finfo(found_dtype).eps
            torch.testing.assert_close(
                one, other, rtol=rtol, atol=bound, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}"
            )


def largest(values: torch.Tensor) -> float:
    """The largest finite magnitude, at least 1."""
    return max(1.0, float(values.nan_to_num(0, 0, 0).abs().max())) if values.numel() else 1.0


@contextlib.contextmanager
def small_tiles(operator: Any, n_splits: int | None = None) -> Iterator[None]:
    """Have launches use several tiles of 16 rows and blocks of 16, and split the streamed axis into `n_splits`."""
    heuristics = runtime_of(operator, "streaming_heuristics")
    choose, splits = heuristics.Streamed.choose, heuristics.choose_stream_splits
    tile = heuristics.streamed_tile(16, 16, 4, 1)
    heuristics.Streamed.choose = lambda *_: tile
    if n_splits is not None:
        heuristics.choose_stream_splits = lambda *_: n_splits
    try:
        yield
    finally:
        heuristics.Streamed.choose, heuristics.choose_stream_splits = choose, splits


def check(drawn: DrawnAttention, folder: Path) -> None:
    """Compare in float64 and float32 with small tiles, with split axes, in float16, with Gluon, and with empty axes."""
    comparison = Comparison(drawn, folder)
    random, operator = comparison.random, comparison.operator
    optional = [one.name for one in comparison.evaluated.inputs if one.default is not None]
    first, second, third, fourth = random.sample(ROWS, 4)
    with small_tiles(operator):
        comparison.compare(torch.float64, comparison.lengths(*first))
        comparison.compare(torch.float32, comparison.lengths(*second), optional, apart=True)
    with small_tiles(operator, random.choice((2, 3, 5))):
        comparison.compare(torch.float64, comparison.lengths(*third), apart=True)
    comparison.compare(torch.float16, comparison.lengths(*fourth))
    if comparison.has_gluon and random.random() < 0.5:
        with pytest.MonkeyPatch.context() as patch:
            launched(operator, patch)
            lengths = comparison.lengths(*random.choice(((70, 90), (130, 33))))
            comparison.compare(
                torch.float16, lengths | {"B": 2, "H": 1, "G": 1, "D": 72, "E": random.choice((72, 128))}
            )
    empty = random.choice(((0, 20), (20, 0), (0, 0)))
    lengths = comparison.lengths(*empty)
    if random.random() < 0.3:
        lengths |= {"M": 20, "N": 20, "B": 0, "H": 0}
    # On empty axes, steps may differ from torch: they may refuse a maximum.
    with contextlib.suppress(ValueError):
        comparison.compare(torch.float32, lengths)


def main(first: int, count: int) -> int:
    """Check operators of `count` seeds, print those that fail, and return their number."""
    warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, in Triton's interpreter
    torch.set_num_threads(1)
    wrong = 0
    start = time.perf_counter()
    for seed in range(first, first + count):
        drawn = DrawnAttention(seed)
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(drawn, Path(folder))
            except (Exception, AssertionError) as error:
                wrong += 1
                trace = "".join(traceback.format_exception(error)[-4:])[-1500:]
                print(f"--- {seed}: {trace}", drawn.text(), sep="\n", flush=True)
        if time.perf_counter() - began > 30:
            print(f"--- {seed} took {time.perf_counter() - began:.0f} s", drawn.text(), sep="\n", flush=True)
    print(f"{wrong} of {count} are wrong; {time.perf_counter() - start:.0f} s")
    return wrong


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])) > 0)
