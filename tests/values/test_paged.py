"""Attention to keys and values in pages, whose numbers are in a table, beside a float64 oracle.

The oracle gathers the keys and values of a sequence one by one, and is torch's softmax of their scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.cases.paged_forms import FORM_SIZES, FORMS, MEAN, QKV, Form, R, rows_of
from tests.harness.importing import built
from tests.harness.oracles import compare
from tritongen.families.streaming.program import StreamingProgram
from tritongen.operator.compile import backward_of, forward_of, generate
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

B, G, D, E = 3, 2, 24, 40
LENGTHS = (1, 37, 60)
LAST = "index(J, S) - length <= index(M) - size(M)"
WINDOW = f"({LAST}) & (index(J, S) - length > index(M) - size(M) - 9)"
NOWHERE = 10**6, -1, -(2**31)  # what a table may have where no page is needed

Math = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def softmax_mean(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, _: torch.Tensor
) -> torch.Tensor:
    return torch.softmax((q @ k.mT * 0.25).masked_fill(~mask, -torch.inf), -1) @ v


def sigmoid_sum(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(q @ k.mT * 0.25).masked_fill(~mask, 0) @ v


def tapered(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    scores = q @ k.mT * 0.25 - of // 8 + 0.5 * (of % 8)
    return torch.softmax(scores.masked_fill(~mask, -torch.inf), -1) @ v


def behind(length: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions, and how far each row is beyond them."""
    of = torch.arange(length)
    return of, torch.arange(rows)[:, None] + length - rows - of


@dataclass(frozen=True)
class Case:
    """Lines of [compute], what a sequence computes of the positions up to its length, and which of these rows need.

    `size` is the number of positions of a page, and `S` what the spec says of it; `head` are the elements of a head.
    """

    compute: str
    math: Math = softmax_mean
    size: int = 8
    window: int = 1000
    S: str = "S"
    table: str = "int32[B, J]"
    keys: str = "P, S, G"
    head: str = "D"

    def spec(self, more: str = "") -> Spec:
        compute = "\n".join('{} = "{}"'.format(*line.split(" = ", 1)) for line in self.compute.split("\n"))
        k, v = (f"T[{self.keys.replace('S', self.S, 1)}, {width}]" for width in (self.head, "E"))
        text = f"""
[op]
name = "attend"
summary = "Attends to pages."
[types]
T = "float"
[inputs]
q = "T[B, (G R), M, {self.head}]"
k = "{k}"
v = "{v}"
page = "{self.table}"
length = "int32[B]"
[compute]
{compute}
[outputs]
o = "q[B, (G R), M, E]"
{more}"""
        return read_spec("attend.toml", text)

    def tensors(self, rows: int, dtype: torch.dtype) -> list[torch.Tensor]:
        """Sequences in pages in any order; what none of them needs is NaN, and in the table numbers of no page."""
        random = torch.Generator().manual_seed(0)
        n_pages = max(LENGTHS) // self.size + 2
        used = [-(-length // self.size) for length in LENGTHS]
        total = sum(used) + 1
        q = torch.randn(B, G * R, rows, D, generator=random, dtype=torch.float64)
        k, v = (torch.full((total, self.size, G, width), torch.nan, dtype=torch.float64) for width in (D, E))
        order = torch.randperm(total, generator=random)
        table = torch.tensor(NOWHERE)[torch.arange(B * n_pages) % 3].reshape(B, n_pages)
        for one, (length, count) in enumerate(zip(LENGTHS, used, strict=True)):
            table[one, :count] = order[sum(used[:one]) :][:count]
            first = max(0, length - rows - self.window + 1)
            for position in range(first, length):
                page, place = int(table[one, position // self.size]), position % self.size
                for matrix in (k, v):
                    matrix[page, place] = torch.randn(matrix.shape[2:], generator=random, dtype=torch.float64)
            table[one, : first // self.size] = NOWHERE[one]
        k, v = (one.permute(["PSG".index(axis) for axis in self.keys.split(", ")] + [3]) for one in (k, v))
        kinds = {"int32": torch.int32, "int64": torch.int64}
        table = table.to(kinds[self.table.partition("[")[0]])
        return [*(one.to(dtype) for one in (q, k, v)), table, torch.tensor(LENGTHS, dtype=torch.int32)]

    def full_tensors(self, rows: int) -> list[torch.Tensor]:
        """The same where all pages are there, and numbers in all their places, and each row has a position to see."""
        q, k, v, page, length = self.tensors(rows, torch.float64)
        length[0] = rows
        return [q, k.nan_to_num(0.5), v.nan_to_num(0.25), page.clamp(0, len(k) - 1), length]

    def oracle(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, page: torch.Tensor, *_: object) -> torch.Tensor:
        found = []
        order = [self.keys.split(", ").index(axis) for axis in "PSG"]
        k, v = (one.permute([*order, 3]) for one in (k, v))
        for one, length in enumerate(LENGTHS):
            of, after = behind(length, q.shape[2])
            mask = (after >= 0) & (after < self.window)
            needed = mask.any(0)
            at = page[one, of[needed] // self.size], of[needed] % self.size
            keys, values = (matrix[at].movedim(1, 0).repeat_interleave(R, 0) for matrix in (k, v))
            found.append(self.math(q[one], keys, values, mask[:, needed], of[needed]))
        return torch.stack(found)


PLAIN = f"s = where({LAST}, sum(q * take(k, page, P), D) * 0.25, -inf)\n{MEAN}"
BY_WINDOW = f"s = where({WINDOW}, sum(q * take(k, page, P), D) * 0.25, -inf)\n{MEAN}"
CASES = {
    "half_a_block": Case(PLAIN),
    "known_half_a_block": Case(PLAIN, S="S=8"),
    "a_block": Case(PLAIN, size=16, S="S=16"),
    "two_blocks": Case(PLAIN, size=32),
    "no_part_of_a_block": Case(PLAIN, size=5),
    "one_position": Case(PLAIN, size=1),
    "int64": Case(PLAIN, table="int64[B, J]"),
    "heads_first": Case(PLAIN, keys="G, P, S"),
    "halves": Case(PLAIN.replace("P), D)", "P), H, D)"), head="(H=2 D)"),
    "positions_by_hand": Case(PLAIN.replace("index(J, S)", "(index(S) + 8 * index(J))"), S="S=8"),
    "lines": Case(
        f"keys = take(k, page, P)\nvalues = take(v, page, P)\nfirst = index(J) * size(S)\n"
        f"s = where({LAST.replace('index(J, S)', 'first + index(S)')}, sum(q * keys, D) * 0.25, -inf)\n"
        "e = exp(s - max(s, J, S))\no = sum(e * values, J, S) / sum(e, J, S)"
    ),
    "window": Case(BY_WINDOW, window=9),
    "window_in_large_pages": Case(BY_WINDOW, window=9, size=32),
    "pages_and_places": Case(
        f"x = sum(q * take(k, page, P), D) * 0.25 - index(J) + 0.5 * index(S)\ns = where({LAST}, x, -inf)\n{MEAN}",
        tapered,
    ),
    "sigmoid": Case(
        f"p = where({LAST}, sigmoid(sum(q * take(k, page, P), D) * 0.25), 0)\no = sum(p * take(v, page, P), J, S)",
        sigmoid_sum,
    ),
}


@pytest.mark.parametrize("n_splits", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, n_splits: int, tmp_path: Path, small: Callable[..., None]) -> None:
    """Of one row and of several, whose heads share a tile, and of more than a tile: pages that are not needed, whose
    numbers may be anything, are not read.
    """
    case = CASES[name]
    operator = built(case.spec(), tmp_path)
    small(operator, n_splits)
    for rows, dtype, tolerance in ((1, torch.float64, 1e-9), (3, torch.float32, 2e-4), (20, torch.float64, 1e-9)):
        given = case.tensors(rows, dtype)
        wide = [one.double() if one.is_floating_point() else one for one in given]
        found, wanted = operator.attend(*given), case.oracle(*wide)
        torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("name", CASES)
def test_no_keys_are_gathered(name: str) -> None:
    """There is one step, of a kernel that goes along all positions."""
    program = forward_of(CASES[name].spec()).program
    assert isinstance(program, StreamingProgram)
    assert program.over == ("J", "S")
    assert program.stream.group == "R"


def test_a_page_that_is_missing(tmp_path: Path, small: Callable[..., None]) -> None:
    """Its sequence is NaN where a row needs it, and no memory is read for it; others are as ever."""
    case = CASES["half_a_block"]
    operator = built(case.spec(), tmp_path)
    for n_splits in (1, 3):
        small(operator, n_splits)
        for number in (-1, 10**6, -(2**31)):
            q, k, v, page, length = case.tensors(2, torch.float64)
            wanted = case.oracle(q, k, v, page)
            page[1, 2] = number
            found = operator.attend(q, k, v, page, length)
            assert found[1].isnan().all()
            for one in (0, 2):
                torch.testing.assert_close(found[one], wanted[one], rtol=1e-9, atol=1e-9, equal_nan=True)


def test_a_number_that_is_a_page_in_32_bits_only(tmp_path: Path) -> None:
    """It is none, though kernels count in 32 bits where all is near."""
    case = CASES["int64"]
    operator = built(case.spec(), tmp_path)
    q, k, v, page, length = case.tensors(1, torch.float64)
    page[2, 0] += 2**32
    assert operator.attend(q, k, v, page, length).isnan().all(-1).all(-1).all(-1).tolist() == [False, False, True]


def test_one_sequence(tmp_path: Path, small: Callable[..., None]) -> None:
    """Without a batch, and without a mask: all of its pages are full."""
    text = """
[op]
name = "attend"
summary = "Attends to the pages of one sequence."
[types]
T = "float"
[inputs]
q = "T[G, M, D]"
k = "T[G, P, S, D]"
v = "T[G, P, S, E]"
page = "int32[J]"
[compute]
s = "sum(q * take(k, page, P), D) * 0.25"
lse = "logsumexp(s, J, S)"
o = "sum(exp(s - lse) * take(v, page, P), J, S)"
[outputs]
o = "q[G, M, E]"
lse = "float32"
"""
    spec = read_spec("attend.toml", text)
    assert isinstance(forward_of(spec).program, StreamingProgram)
    operator = built(spec, tmp_path)
    small(operator, 1)
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(*n, generator=random, dtype=torch.float64) for n in ((2, 5, 8), (2, 9, 6, 8), (2, 9, 6, 12)))
    page = torch.tensor([4, 0, 8, 8, 1, 3, 7], dtype=torch.int32)
    o, lse = operator.attend(q, k, v, page)
    keys, values = (one[:, page].flatten(1, 2) for one in (k, v))
    scores = q @ keys.mT * 0.25
    torch.testing.assert_close(o, torch.softmax(scores, -1) @ values, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(lse, torch.logsumexp(scores, -1).float(), rtol=1e-6, atol=1e-6)


def test_gradients(tmp_path: Path) -> None:
    """They gather keys and values, and are right."""
    case = CASES["known_half_a_block"]
    spec = case.spec('[grad]\nwrt = ["q", "k", "v"]\n')
    assert backward_of(spec, forward_of(spec)) is not None
    operator = built(spec, tmp_path)
    given = case.full_tensors(3)

    def formula(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        return _of_rows(q, *(rows_of(one, given[3]) for one in (k, v)), given[4])

    compare(operator.attend, formula, given, [0, 1, 2], 1e-9)


def _of_rows(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, length: torch.Tensor, added: torch.Tensor | float = 0
) -> torch.Tensor:
    """What PLAIN computes of gathered keys and values, with something added to scores."""
    of, rows = torch.arange(k.shape[2]), torch.arange(q.shape[2])[:, None]
    mask = of - length[:, None, None, None] <= rows - q.shape[2]
    return torch.softmax((q @ k.mT * 0.25 + added).masked_fill(~mask, -torch.inf), -1) @ v


OTHERWISE = {
    "a_table_with_math": f"s = where({LAST}, sum(q * take(k, page + 0, P), D) * 0.25, -inf)\n"
    "o = sum(softmax(s, J, S) * take(v, page + 0, P), J, S)",
    "a_table_of_places": f"s = where({LAST}, sum(q * take(k, page, P), D) * 0.25 + index(J) * page, -inf)\n{MEAN}",
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_is_not_read_as_pages(name: str, tmp_path: Path) -> None:
    """It is computed otherwise, and right."""
    case = Case(OTHERWISE[name])
    operator = built(case.spec(), tmp_path)
    q, k, v, page, length = case.full_tensors(3)
    number = (page * torch.arange(page.shape[1])).repeat_interleave(case.size, 1)[:, None, None]
    wanted = _of_rows(q, rows_of(k, page), rows_of(v, page), length, number if name == "a_table_of_places" else 0)
    found = operator.attend(q, k, v, page, length)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str, tmp_path: Path, small: Callable[..., None]) -> None:
    form = FORMS[name]
    spec = form.spec()
    assert isinstance(forward_of(spec).program, StreamingProgram) == form.streams
    operator = built(spec, tmp_path)
    small(operator, 1)
    random = torch.Generator().manual_seed(0)
    given = []
    for entry in form.inputs.split("; "):
        dtype, _, axes = entry.split(":")[1].rstrip("]").partition("[")
        lengths = [math.prod(FORM_SIZES[axis] for axis in term.strip("()").split()) for term in axes.split(", ")]
        if "int" in dtype:
            given.append(torch.randint(7, lengths, generator=random).to(getattr(torch, dtype)))
        else:
            drawn = torch.randn(lengths, generator=random, dtype=torch.float64)
            given.append(drawn > 0 if dtype == "bool" else drawn if dtype == "T" else drawn.to(getattr(torch, dtype)))
    torch.testing.assert_close(operator.attend(*given), form.torch(*given), rtol=1e-9, atol=1e-9)


def test_booleans_of_pages_are_wide_beside_float64() -> None:
    """Triton 3.6 does not compile them otherwise."""
    assert "key, keep = None, keep.int()" in generate(FORMS["a_mask_of_positions"].spec())["op.py"]


def test_a_mask_of_the_table(tmp_path: Path) -> None:
    """Pages that the table does not have are masked by the table itself, in one kernel."""
    text = Form(QKV, f"s = where(page >= 0, sum(q * take(k, page, P), D) * 0.25, -inf)\n{MEAN}", softmax_mean).text()
    spec = read_spec("attend.toml", text)
    assert isinstance(forward_of(spec).program, StreamingProgram)
    sizes = FORM_SIZES
    q = torch.randn(sizes["B"], sizes["G"] * R, sizes["M"], sizes["D"], dtype=torch.float64)
    k, v = (torch.randn(sizes["P"], sizes["S"], sizes["G"], sizes[axis], dtype=torch.float64) for axis in "DE")
    page = torch.tensor([[3, 0, -1, 5, -1], [-1, -1, 6, 1, -1]], dtype=torch.int32)

    def of_pages(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, page: torch.Tensor) -> torch.Tensor:
        scores = q @ rows_of(k, page.clamp(min=0)).mT * 0.25
        is_there = (page >= 0).repeat_interleave(sizes["S"], 1)[:, None, None]
        return torch.softmax(scores.masked_fill(~is_there, -torch.inf), -1) @ rows_of(v, page.clamp(min=0))

    compare(built(spec, tmp_path).attend, of_pages, [q, k, v, page], (), 1e-9)
