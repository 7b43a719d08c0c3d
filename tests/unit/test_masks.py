"""Which tiles masks leave empty, full or mixed, against all positions of random conditions."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.random.masks import Case, MathOverflows, RandomConditions, Tile, op_of
from tritongen.lang.ir import Op
from tritongen.lang.unparse import spelled
from tritongen.passes.masks.expressions import FALSE, Extreme, subexpressions
from tritongen.passes.masks.tiles import Tiles, tiles_of

SIDES = (("M", "N"), ("N", "M"))


def blocks_of(length: int, size: int, ragged: bool = True) -> list[tuple[int, int]]:
    """The first and last positions of blocks, of which the last one may reach beyond the axis."""
    return [(first, first + size - 1 if ragged else min(first + size, length) - 1) for first in range(0, length, size)]


class Checked:
    """A condition of one case, with the streamed axis second, and what a pass says of it."""

    def __init__(self, op: Op, tiles: Tiles, case: Case, truth: np.ndarray, side: tuple[str, str]) -> None:
        self.op, self.tiles, self.case, self.side = op, tiles, case, side
        self.shape, self.truth = truth.shape, truth if side == ("M", "N") else truth.T
        rest = True if tiles.rest is None else np.asarray(case.node(op, tiles.rest), dtype=bool)
        rest = np.broadcast_to(rest, truth.shape)
        self.rest = rest if side == ("M", "N") else rest.T

    def tile(self, block: tuple[int, int], columns: tuple[int, int] = (0, 0)) -> Tile:
        firsts = dict(zip(self.side, (block[0], columns[0]), strict=True))
        lasts = dict(zip(self.side, (block[1], columns[1]), strict=True))
        return Tile(self.op, self.case, firsts, lasts)

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
        if self.tiles.gap is not None:
            gap = [self.tile(block).compute(end) for end in (self.tiles.gap.first, self.tiles.gap.last)]
            assert not rows[:, max(gap[0], 0) : max(gap[1], 0)].any()
        inside = slice(every[0], max(every[1], 0))
        assert (rows[:, inside] == self.rest[block[0] : block[1] + 1, inside]).all()
        for first, last in blocks_of(length, width):
            tile = self.tile(block, (first, last))
            part = rows[:, first : last + 1]
            assert not (tile.compute(self.tiles.empty) and part.any())
            if tile.compute(self.tiles.full) and every[0] <= first and min(last, length - 1) < every[1]:
                assert part.all()


def check_claims(op: Op, number: int, text: str, rng: random.Random, cases: int, huge: bool) -> list[Tiles]:
    """Checks a condition of an operator on random cases, and tells what was found for both axes."""
    values = tuple(op.value(name) for name in ("behind", f"c{number}"))
    op = replace(op, values=values)
    found = []
    for side in SIDES:
        exact = tiles_of(op, values[1].node, *side)
        found.append(exact)
        loose = tiles_of(op, values[1].node, *side, extremes=False)
        ends = (loose.some.first, loose.some.last, loose.every.first, loose.every.last)
        assert not any(isinstance(part, Extreme) for end in ends for part in subexpressions(end))
        for tiles in [exact] * cases + [loose] * (loose != exact):
            case = Case.drawn(rng, huge)
            length = case.sizes[side[0]]
            try:
                checked = Checked(op, tiles, case, case.truth(text), side)
                for block in blocks_of(length, rng.randint(1, length), rng.random() < 0.5):
                    checked.check(block, rng.randint(1, 6))
            except MathOverflows:
                continue
            except AssertionError as error:
                raise AssertionError(f"{text}, blocks of {side[0]}: {case}") from error
    return found


def check_random(seed: int, count: int, huge: bool) -> list[Tiles]:
    """Checks random conditions."""
    rng, texts = random.Random(seed), RandomConditions(seed)
    found = []
    for _ in range(0, count, 50):
        conditions = [texts.condition() for _ in range(50)]
        op = op_of(conditions)
        for number, text in enumerate(conditions):
            found += check_claims(op, number, text, rng, 2, huge)
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_claimed_that_is_not_so(seed: int) -> None:
    found = check_random(seed, 500, huge=False)
    unknown = sum(tiles.rest is not None and tiles.empty == tiles.full == FALSE for tiles in found)
    assert unknown < len(found) / 3  # or else nothing was checked


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(2))
def test_nothing_overflows(seed: int) -> None:
    """Where integers are as large as int64 has them, expressions do not overflow, and claim nothing that is not so."""
    check_random(100 + seed, 250, huge=True)


@pytest.mark.parametrize(
    "text",
    [
        "index(N) + p > length",
        "index(N) - p < length",
        "index(N) - p // 2 < start",
        "(index(N) + p) // 2 <= index(M)",
        "index(N) // step >= index(M) // step - p",
        "2 * index(N) + p - length >= index(M)",
        "maximum(index(N), p) - start <= length",
        "row - col >= p",
        "row == col",
        "index(N) - row < start",
    ],
)
def test_large_integers_are_compared_as_they_are(text: str) -> None:
    """Of two that are too large to subtract one from the other, nothing is claimed but by what they are."""
    check_claims(op_of([text]), 0, text, random.Random(text), cases=100, huge=True)


# Masks whose ranges are as narrow, and as wide, as they can be: in both directions, or for blocks of one axis alone.
TIGHT = {
    "index(N) <= index(M)": "MN",
    "behind >= 0": "MN",
    "behind < step": "MN",
    "(behind >= 0) & (behind < step)": "MN",
    "(index(M) - index(N) < step) & (index(N) <= index(M))": "MN",
    "abs(behind) <= step": "MN",
    "(index(N) < p) | (index(N) <= index(M))": "MN",
    "(index(N) < length) | (behind >= 0)": "MN",
    "(behind >= 0) & ((behind < step) | (p <= 0))": "MN",
    "((behind >= 0) & (behind < step)) if flag else (behind >= 0)": "MN",
    "where(flag, behind >= 0, index(N) < length)": "MN",
    "index(N) // 3 <= index(M) // 3": "MN",
    "index(N) // 3 == index(M) // 3": "MN",
    "(index(N) // 4 == index(M) // 4) & (index(N) <= index(M))": "MN",
    "index(N) // step == index(M) // step": "MN",
    "index(N) // 2 >= index(M) // 2 - 1": "MN",
    "(behind // 2 <= 1) & (behind >= 0)": "MN",
    "2 * index(N) <= 3 * index(M) + p": "MN",
    "index(N) < length": "MN",
    "index(N) < p + step": "MN",
    "(index(N) < length) & (index(M) < start)": "MN",
    "(index(N) >= start) & (index(N) < start + length)": "M",
    "~(index(N) >= length)": "MN",
    "~((index(N) > index(M)) | (index(N) >= length))": "MN",
    "index(N) < row": "M",
    "index(N) < narrow + 1": "M",
    "index(N) >= narrow": "M",
    "index(M) >= col": "N",
    "row_ok & (index(N) < length)": "M",
    "(index(N) <= index(M)) & flag": "MN",
    "maximum(index(N), 2) <= index(M)": "MN",
    "minimum(index(N), length) <= index(M)": "N",
    "where(index(N) < index(M), 0, 1) == 0": "MN",
    "clamp(behind, 0, 4) == behind": "MN",
}


def runs(truth: np.ndarray) -> tuple[int, int]:
    """The first of the positions that are true, and the one after the last; they are one run."""
    found = np.flatnonzero(truth)
    return (int(found[0]), int(found[-1]) + 1) if len(found) else (0, 0)


@pytest.mark.parametrize("text", TIGHT)
def test_ranges_are_tight(text: str) -> None:
    op, rng = op_of([text]), random.Random(text)
    for side in SIDES:
        if side[0] not in TIGHT[text]:
            continue
        tiles = tiles_of(op, op.value("c0").node, *side)
        assert tiles.rest is None
        assert tiles.empty == FALSE
        for _ in range(60):
            case = Case.drawn(rng)
            checked = Checked(op, tiles, case, case.truth(text), side)
            for block in blocks_of(case.sizes[side[0]], rng.randint(1, case.sizes[side[0]]), ragged=False):
                rows = checked.truth[block[0] : block[1] + 1]
                for found, truth in zip(checked.ranges(block), (rows.any(axis=0), rows.all(axis=0)), strict=True):
                    first, last = runs(truth)
                    assert found == (first, last) or (first == last and found[0] >= found[1]), (case, block)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("ok", "ok"),
        ("ok & (behind >= 0)", "ok"),
        ("(behind >= 0) & (row == col) & ok", "row == col and ok"),
        ("(behind >= 0) & ((row == col) | (index(N) == index(M)))", "bitwise_or(row == col, index(N) == index(M))"),
        ("index(N) % 2 == index(M) % 2", "index(N) % 2 == index(M) % 2"),
        ("(index(N) % 2 > 0) & (behind >= 0)", "index(N) % 2 > 0"),
        ("x > 0", "x > 0"),
        ("cast(index(N), int8) * 100 > index(M)", "cast(index(N), int8) * 100 > index(M)"),  # It wraps around.
        ("argmax(x, B) > 0", "argmax(x, B) > 0"),
        ("index(N) * limit < 3", "index(N) * limit < 3"),
        ("(behind >= 0) & (index(N) * p <= index(M))", "index(N) * p <= index(M)"),  # p may be negative.
    ],
)
def test_what_is_not_understood_is_left(text: str, rest: str) -> None:
    op = op_of([text])
    tiles = tiles_of(op, op.value("c0").node, "M", "N")
    assert tiles.rest is not None
    assert spelled(tiles.rest) == rest


def count_tiles(text: str, side: tuple[str, str]) -> tuple[int, int, int, int]:
    """How many tiles of random cases are empty, and are told to be, and how many are full, and are told to be."""
    op, rng = op_of([text]), random.Random(text)
    tiles = tiles_of(op, op.value("c0").node, *side)
    counts = np.zeros(4, dtype=int)
    for _ in range(200):
        case = Case.drawn(rng)
        checked = Checked(op, tiles, case, case.truth(text), side)
        for block in blocks_of(case.sizes[side[0]], 4, ragged=False):
            some, every = checked.ranges(block)
            for columns in blocks_of(case.sizes[side[1]], 2, ragged=False):
                part = checked.truth[block[0] : block[1] + 1, columns[0] : columns[1] + 1]
                tile = checked.tile(block, columns)
                empty = some[1] <= columns[0] or some[0] > columns[1] or tile.compute(tiles.empty)
                full = every[0] <= columns[0] and every[1] > columns[1]
                full = full and (tiles.rest is None or tile.compute(tiles.full))
                counts += (not part.any(), empty, part.all(), full)
    return tuple(map(int, counts))


@pytest.mark.parametrize(
    ("text", "side"),
    [
        ("(behind >= 0) & ((index(N) < 2) | (behind < 3))", SIDES[0]),  # attention sinks
        *product(("index(N) != index(M)", "col_ok", "row_ok", "index(N) < row"), SIDES),
    ],
)
def test_tiles_are_told_apart(text: str, side: tuple[str, str]) -> None:
    empty, told_empty, full, told_full = count_tiles(text, side)
    assert told_empty == empty > 0
    assert told_full == full > 0


def test_holes_of_a_range_are_told() -> None:
    empty, told_empty, _, _ = count_tiles("(index(N) < 2) | col_ok", SIDES[0])
    assert told_empty == empty > 0


@pytest.mark.parametrize("first", ["index(N) < 2", "index(N) < length"])
def test_a_gap_is_told(first: str) -> None:
    """Attention sinks before a window: kernels skip what lies between, and apply no mask where the window has none."""
    text = f"({first}) | ((behind >= 0) & (behind < 3))"
    op, rng, gaps = op_of([text]), random.Random(0), 0
    tiles = tiles_of(op, op.value("c0").node, "M", "N", extremes=False)
    assert tiles.gap is not None
    for _ in range(60):
        case = Case.drawn(rng)
        checked = Checked(op, tiles, case, case.truth(text), SIDES[0])
        for block in blocks_of(case.sizes["M"], rng.randint(1, 3), ragged=False):
            some = checked.truth[block[0] : block[1] + 1].any(axis=0)
            begin, end = (checked.tile(block).compute(one) for one in (tiles.gap.first, tiles.gap.last))
            first_of_all, last = runs(some)
            holes = [n for n in range(first_of_all, last) if not some[n]]
            assert [n for n in range(max(begin, 0), end) if first_of_all <= n < last] == holes
            gaps += bool(holes)
    assert gaps > 10


def test_documents_are_told_by_their_least_and_greatest() -> None:
    """Tiles are full where both sides are of one document, and empty where their documents do not overlap."""
    empty, told_empty, full, told_full = count_tiles("row == col", SIDES[0])
    assert told_full == full > 0
    assert empty > told_empty > empty / 10  # {0, 2} and {1} have no document in common.


def test_a_window_that_never_ends_hides_nothing() -> None:
    text = "(behind >= 0) & (behind < p)"
    op = op_of([text])
    tiles = tiles_of(op, op.value("c0").node, "M", "N")
    case = Case.drawn(random.Random(0))
    case.sizes.update(M=9, N=5)  # where p is not held, 5 - 9 - (2**63 - 1) + 1 overflows
    case.names["p"] = np.array([[2**63 - 1]], dtype=object)
    assert Checked(op, tiles, case, case.truth(text), SIDES[0]).ranges((0, 8)) == ((0, 5), (0, -3))


def test_integers_that_wrap_around_are_not_taken_apart() -> None:
    """Of int32 and int32, and of int32 and a param, a sum is an int32, which need not be what mathematics has."""
    for text in ("narrow + narrow > index(N)", "narrow - p > index(N)"):
        op = op_of([text])
        tiles = tiles_of(op, op.value("c0").node, "M", "N")
        nodes = {spelled(part.node) for part in subexpressions(tiles.some.last) if isinstance(part, Extreme)}
        assert nodes == {text.partition(" > ")[0]}
