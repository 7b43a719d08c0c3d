"""Which tiles masks leave empty, full or mixed, against all positions of random conditions."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from random_masks import Case, RandomConditions, Tile, op_of

from tritongen.lang.ir import Op
from tritongen.passes.masks.expressions import FALSE
from tritongen.passes.masks.tiles import Tiles, tiles_of

SIDES = (("M", "N"), ("N", "M"))


def blocks_of(length: int, size: int) -> list[tuple[int, int]]:
    return [(first, min(first + size, length) - 1) for first in range(0, length, size)]


class Checked:
    """A condition of one case, with the streamed axis second, and what a pass says of it."""

    def __init__(self, op: Op, tiles: Tiles, case: Case, truth: np.ndarray, side: tuple[str, str]) -> None:
        self.op, self.tiles, self.case, self.side = op, tiles, case, side
        self.truth = truth if side == ("M", "N") else truth.T
        rest = True if tiles.rest is None else np.asarray(case.node(op, tiles.rest), dtype=bool)
        rest = np.broadcast_to(rest, truth.shape)
        self.rest = rest if side == ("M", "N") else rest.T

    def tile(self, block: tuple[int, int], columns: tuple[int, int] = (0, 0)) -> Tile:
        firsts = dict(zip(self.side, (block[0], columns[0]), strict=True))
        lasts = dict(zip(self.side, (block[1], columns[1]), strict=True))
        return Tile(self.op, self.case, firsts, lasts, self.tiles.held)

    def ranges(self, block: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
        tile = self.tile(block)
        some, every = self.tiles.some, self.tiles.every
        ends = [tile.compute(end) for end in (some.first, some.last, every.first, every.last)]
        return (ends[0], ends[1]), (ends[2], ends[3])

    def check(self, block: tuple[int, int], width: int) -> None:
        """Nothing is claimed of a block that is not so."""
        rows = self.truth[block[0] : block[1] + 1]
        length = rows.shape[1]
        some, every = self.ranges(block)
        assert min(some[0], every[0]) >= 0
        assert max(some[1], every[1]) <= length
        assert not rows[:, : some[0]].any()
        assert not rows[:, max(some[1], 0) :].any()
        inside = slice(every[0], max(every[1], 0))
        assert (rows[:, inside] == self.rest[block[0] : block[1] + 1, inside]).all()
        for first, last in blocks_of(length, width):
            tile = self.tile(block, (first, last))
            part = rows[:, first : last + 1]
            assert not (tile.compute(self.tiles.empty) and part.any())
            if tile.compute(self.tiles.full) and every[0] <= first and last < every[1]:
                assert part.all()


def check_random(seed: int, count: int, huge: bool) -> list[Tiles]:
    """Checks random conditions, and tells what was found of them."""
    rng = random.Random(seed)
    texts = RandomConditions(seed)
    found = []
    for _ in range(0, count, 50):
        conditions = [texts.condition() for _ in range(50)]
        all_of_them = op_of(conditions)
        for number, text in enumerate(conditions):
            values = tuple(all_of_them.value(name) for name in ("behind", f"c{number}"))
            op, node = replace(all_of_them, values=values), values[1].node
            for side in SIDES:
                tiles = tiles_of(op, node, *side)
                found.append(tiles)
                for _ in range(2):
                    case = Case.drawn(rng, huge)
                    try:
                        checked = Checked(op, tiles, case, case.truth(text), side)
                        length = case.sizes[side[0]]
                        for block in blocks_of(length, rng.randint(1, length)):
                            checked.check(block, rng.randint(1, 6))
                    except AssertionError as error:
                        raise AssertionError(f"{text}, blocks of {side[0]}: {case}") from error
    return found


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_claimed_that_is_not_so(seed: int) -> None:
    found = check_random(seed, 1000, huge=False)
    unknown = sum(tiles.rest is not None and tiles.empty == tiles.full == FALSE for tiles in found)
    assert unknown < len(found) / 3  # or else nothing was checked
