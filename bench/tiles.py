"""Rates of the matrix products of bench/products.py with other tiles than the rule picks: what the tables came from.

    python bench/tiles.py --only NAME [--rounds COUNT] [alone] [TILE ...]
    python bench/tiles.py --size 1000x1000x1000 --layout nn 64x128x64/4/7@tma 64x128x64/4/7@pointers

--size has the rows, columns and terms of a matmul that is none of those. "alone" is what the rule picks, with no tile
shared by programs. A tile is ROWSxCOLSxINNER/WARPS/STAGES, with /PROGRAMS for how many programs take tiles in turn,
/PROGRAMS/GROUP for how many rows of tiles are one group besides, and @tma or @pointers for how it is read if not by
rule. Random data, as CUDA graphs; the rule's choice, the others and torch's alternate in an order that is drawn for
each round, and the medians of the rounds are compared.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import triton
from products import Case, cases, product
from runner import ROUNDS, graph, operator, rates
from triton.runtime.errors import OutOfResources


@dataclass(frozen=True)
class Choice:
    """A configuration, and how many programs run at once; None where the rule says."""

    name: str
    config: triton.Config | None
    programs: int | None
    shares: bool = True
    by: str = ""


def choice(text: str) -> Choice:
    """What is written as ROWSxCOLSxINNER/WARPS/STAGES[/PROGRAMS[/GROUP]][@tma|@pointers] or alone; else ValueError."""
    if text == "alone":
        return Choice(text, None, None, shares=False)
    numbered, _, by = text.partition("@")
    tile, *numbers = numbered.split("/")
    if by not in ("", "tma", "pointers"):
        raise ValueError(f"{by} is no way to read tiles")
    rows, cols, inner = (int(length) for length in tile.split("x"))
    warps, stages, programs, group = (*map(int, numbers), *(0, 8)[len(numbers) - 2 :])
    blocks = {"BLOCK_M": rows, "BLOCK_N": cols, "BLOCK_K": inner, "GROUP": group}
    return Choice(text, triton.Config(blocks, num_warps=warps, num_stages=stages), programs or None, by=by)


def rules(one: Choice) -> Iterator[tuple[Any, str, Any]]:
    """What the runtime is to say for one choice: the owner of a rule, its name, and the rule."""
    from generated._runtime import matmul_heuristics

    if one.by:
        yield matmul_heuristics, "use_tma", lambda *_: one.by == "tma"
    if one.config is not None:
        for table in (matmul_heuristics.Tma, matmul_heuristics.Strided):
            yield table, "choose", lambda *_: one.config
        yield matmul_heuristics, "choose_stages", lambda config, *_: config.num_stages
    if one.programs is not None:
        yield matmul_heuristics, "persistent_programs", lambda _: one.programs
    if not one.shares:
        yield matmul_heuristics, "choose_stream_k", lambda *_: (0, 0, 0, 0)


def as_chosen(run: Callable[[], Any], one: Choice) -> Callable[[], Any]:
    """A call of an operator with the rules saying one choice. Raises OutOfResources where that does not fit."""
    from generated._runtime import launch

    known: dict[Any, Any] = {}
    said = [(launch, "LAUNCHES", known), *rules(one)]
    own = [(owner, name, vars(owner)[name]) for owner, name, _ in said]

    def chosen() -> Any:
        for owner, name, rule in said:
            setattr(owner, name, rule)
        try:
            return run()
        finally:
            for owner, name, rule in own:
                setattr(owner, name, rule)

    chosen()
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tiles", nargs="*", type=choice)
    parser.add_argument("--only", default="", help="the cases whose name has this in it")
    parser.add_argument("--size", default="", help="rows x columns x terms of a matmul")
    parser.add_argument("--layout", choices=("nn", "nt", "tn", "tt"), default="nn")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    choices = [Choice("as the rule says", None, None), *options.tiles]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {triton.__version__}")
    found: Iterable[Case] = cases(options.only)
    if options.size:
        m, n, k = map(int, options.size.split("x"))
        found = [product(m, n, k, options.layout)]
    for case in found:
        runs = dict(case.peers)
        for one in choices:
            with contextlib.suppress(OutOfResources):  # What does not fit is left out.
                runs[one.name] = as_chosen(partial(operator(case.operator), *case.inputs), one)
        print(f"\n{case.name}, TFLOP/s")
        for label, rate in rates(
            {name: graph(run) for name, run in runs.items()}, case.operations, options.rounds
        ).items():
            print(f"  {rate:7,.0f}  {label}", flush=True)


if __name__ == "__main__":
    main()
