"""What Gluon kernels of attention compute: on Hopper; elsewhere emulated, and of the many cases some."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.cases.gluon import (
    BIAS,
    CAUSAL,
    COLUMNS,
    DEVICE,
    DOCUMENTS,
    GROUPED,
    HALF,
    IS_HOPPER,
    LENGTHS,
    LOG,
    MEAN,
    OF_HEADS,
    POSITIONS_FIRST,
    QKV,
    SINK,
    SLOPES,
    check,
    drawn,
    kernel_of,
    launching,
    masked_scores,
    some,
    spec_of,
)
from tests.harness import emulated_gluon
from tests.harness.importing import built, runtime_module, runtime_of


@pytest.fixture
def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, list[str]]:
    """Causal attention with its log-sum-exp, and the kernels that it launches."""
    return launching(spec_of(CAUSAL + LOG, outputs='o = "q"\nlse = "float32"'), tmp_path, monkeypatch)


@pytest.mark.parametrize("scale", some([0.1, -0.1, 0.0, 3.0], 1))
@pytest.mark.parametrize("dtype", some([torch.float16, torch.bfloat16], 1))
@pytest.mark.parametrize(
    "sizes", some([(200, 333, 64, 64), (500, 129, 128, 96), (65, 65, 16, 24), (1000, 1, 80, 128)], 2, 3)
)
def test_values(
    launched: tuple[ModuleType, list[str]], sizes: tuple[int, int, int, int], dtype: torch.dtype, scale: float
) -> None:
    """Of lengths that no tile divides, and of scales of either sign."""
    operator, names = launched
    m, n, d, e = sizes
    q, k, v = drawn((m, d), (n, d), (n, e), dtype=dtype)
    check(operator, q, k, v, scale)
    assert {*names} == {"attend_gluon_kernel"}


def test_programs_of_several_tiles(launched: tuple[ModuleType, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Six heads of three tiles, one of them a part, by fewer programs: four have four turns, and one has two."""
    operator, names = launched
    monkeypatch.setattr(runtime_of(operator, "heuristics"), "sm_count", lambda _: 5)
    q, k, v = drawn((300, 32), (300, 32), (300, 32))
    check(operator, q, k, v, 0.125)
    assert {*names} == {"attend_gluon_kernel"}


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, int, int], list[int]]:
    """The tiles of all turns, of so many heads with so many tiles by so many programs."""
    rings: Any = runtime_of(built(spec_of(), tmp_path_factory.mktemp("mirrored")), "rings")
    emulated = emulated_gluon.emulated(rings.mirrored)

    def tiles_of(heads: int, tiles: int, programs: int) -> list[int]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(emulated_gluon.LANGUAGE, "program", (0, programs))
            found: list[int] = emulated(torch.arange(heads * tiles), heads * tiles, 8 * tiles).tolist()
        return found

    return tiles_of


def test_each_tile_has_one_turn(mirrored: Callable[[int, int, int], list[int]]) -> None:
    random = torch.Generator().manual_seed(0)
    for _ in range(300):
        heads, tiles, programs = (int(torch.randint(1, most, (), generator=random)) for most in (40, 20, 200))
        assert sorted(mirrored(heads, tiles, programs)) == [*range(heads * tiles)], (heads, tiles, programs)


@pytest.mark.parametrize("heads", [32, 20])
def test_the_longest_tile_is_paired_with_the_shortest(
    mirrored: Callable[[int, int, int], list[int]], heads: int
) -> None:
    """In groups of eight heads, or what is left of them: the first and the last place of a head, and so on."""
    programs, tiles = 11, 16
    turns = [mirrored(heads, tiles, programs)[first::programs] for first in range(programs)]
    for first, second in (pair for own in turns for pair in zip(own[::2], own[1::2], strict=False)):
        group = first // (8 * tiles)
        width = min(heads - 8 * group, 8)
        places = [(tile - 8 * tiles * group) // width for tile in (first, second)]
        assert second // (8 * tiles) == group
        assert sum(places) == tiles - 1


@pytest.mark.parametrize(
    ("laid_out", "takes"),
    some(
        [
            pytest.param(lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), True, id="rows before heads"),
            pytest.param(lambda x: x[:, :1].expand(-1, 3, -1, -1), True, id="one for all heads"),
            pytest.param(lambda x: torch.cat([x, x], -1)[..., :64], True, id="parts of rows"),
            pytest.param(lambda x: torch.cat([x, x[..., :4]], -1)[..., :64], False, id="rows 136 bytes apart"),
            pytest.param(lambda x: torch.cat([x, x], -1)[..., 4:68], False, id="unaligned"),
            pytest.param(lambda x: x.mT.contiguous().mT, False, id="columns"),
        ],
        1,
        3,
    ),
)
def test_layouts(
    launched: tuple[ModuleType, list[str]], laid_out: Callable[[torch.Tensor], torch.Tensor], takes: bool
) -> None:
    """Where TMA cannot step through a tensor, the plain kernel is launched."""
    operator, names = launched
    q, k, v = map(laid_out, drawn((200, 64), (300, 64), (300, 64)))
    check(operator, q, k, v, 0.125)
    assert names[0].endswith("_gluon_kernel") == takes


def test_rows_that_are_few(launched: tuple[ModuleType, list[str]]) -> None:
    operator, names = launched
    q, k, v = drawn((64, 64), (300, 64), (300, 64))
    check(operator, q, k, v, 0.125)
    assert {*names} == {"attend_kernel"}


@pytest.mark.parametrize(
    ("laid_out", "rows", "name"),
    some(
        [
            pytest.param(lambda x: x, 200, "attend_gluon_kernel", id="contiguous"),
            pytest.param(
                lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
                200,
                "attend_gluon_kernel",
                id="rows before heads",
            ),
            pytest.param(
                lambda x: x.unflatten(0, (1, 2)).transpose(0, 1).expand(2, 3, -1, -1, -1),
                200,
                "attend_kernel",
                id="three dimensions",
            ),
            pytest.param(lambda x: x, 40, "attend_kernel", id="few rows"),
        ],
        1,
    ),
)
def test_grouped_heads(
    laid_out: Callable[[torch.Tensor], torch.Tensor],
    rows: int,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their rows are in tiles of their own, where they are not so few that a tile has those of several."""
    outputs = 'o = "q[..., (G R), M, E]"\nlse = "float32[..., (G R), M]"'
    operator, names = launching(spec_of(CAUSAL + LOG, GROUPED, outputs), tmp_path, monkeypatch)
    random = torch.Generator().manual_seed(0)
    q, k, v = (
        laid_out(torch.randn((2, *size), generator=random).to(DEVICE, HALF))
        for size in ((6, rows, 64), (2, 333, 64), (2, 333, 96))
    )
    check(operator, q, k, v, 0.125)
    assert {*names} == {name}


def test_parts_of_a_projection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions before heads, as a fused projection leaves them, of which queries, keys and values are slices."""
    outputs = 'o = "q[B, M, (G R), E]"\nlse = "float32[B, M, (G R)]"'
    operator, names = launching(spec_of(CAUSAL + LOG, POSITIONS_FIRST, outputs), tmp_path, monkeypatch)
    random = torch.Generator().manual_seed(0)
    joined = torch.randn((2, 200, 10, 64), generator=random).to(DEVICE, HALF)
    check(operator, joined[:, :, :6], joined[:, :, 6:8], joined[:, :, 8:], 0.125, heads=-2)
    assert {*names} == {"attend_gluon_kernel"}


def slopes_of(s: torch.Tensor, v: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    rows, cols = (torch.arange(n, device=s.device) for n in s.shape[-2:])
    return torch.softmax(s - slope[:, None, None].double() * (rows[:, None] - cols), -1) @ v


def sink_of(s: torch.Tensor, v: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    more = sink[:, None, None].double().expand(*s.shape[:-1], 1)
    return torch.softmax(torch.cat((s, more), -1), -1)[..., :-1] @ v


def test_lengths_that_no_int32_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last block is computed also where a row meets nothing of it, and is NaN."""
    compute = CAUSAL.replace("index(N) <= index(M)", "index(N) - length <= index(M) - size(M)")
    operator, names = launching(spec_of(compute, f'{OF_HEADS}\nlength = "int64[H]"'), tmp_path, monkeypatch)
    q, k, v = drawn((100, 32), (128, 32), (128, 32))
    length = torch.tensor([128, 50 - 2**32, 40], device=DEVICE)
    o = operator.attend(q, k, v, length, scale=0.125)
    assert o.isnan().all((-1, -2)).tolist() == [[False, True, False]] * 2
    assert {*names} == {"attend_gluon_kernel"}


def bias_of(s: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.softmax(s + bias.double(), -1) @ v


@pytest.mark.parametrize(
    ("laid_out", "name"),
    [
        pytest.param(lambda x: x, "attend_gluon_kernel", id="even"),
        pytest.param(lambda x: x[..., :1, :].expand_as(x), "attend_gluon_kernel", id="one for all rows"),
        pytest.param(lambda x: x[..., 1:], "attend_kernel", id="unaligned"),
        pytest.param(lambda x: x[..., :333].contiguous(), "attend_kernel", id="rows 666 bytes apart"),
    ],
)
def test_layouts_of_a_bias(
    laid_out: Callable[[torch.Tensor], torch.Tensor], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, names = launching(spec_of(BIAS, f'{OF_HEADS}\nbias = "T[H, M, N]"'), tmp_path, monkeypatch)
    random = torch.Generator().manual_seed(0)
    bias = laid_out(torch.randn((3, 200, 336), generator=random).to(DEVICE, HALF))
    q, k, v = drawn((200, 64), (bias.shape[-1], 64), (bias.shape[-1], 64))
    o = operator.attend(q, k, v, bias, scale=0.125)
    s, every_v = masked_scores(q, k, v, 0.125)
    torch.testing.assert_close(o.double(), bias_of(s, every_v, bias), rtol=2e-2, atol=2e-2)
    assert {*names} == {name}


@pytest.mark.parametrize("shape", [(1, 3, 200, 336), (2, 1, 200, 336), (1, 1, 200, 336)])
def test_a_bias_that_is_the_same_along_the_batch(
    shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, names = launching(spec_of(BIAS, f'{OF_HEADS}\nbias = "T[..., H, M, N]"'), tmp_path, monkeypatch)
    bias = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(DEVICE, HALF).expand(2, 3, -1, -1)
    q, k, v = drawn((200, 64), (336, 64), (336, 64))
    o = operator.attend(q, k, v, bias, scale=0.125)
    s, every_v = masked_scores(q, k, v, 0.125)
    torch.testing.assert_close(o.double(), bias_of(s, every_v, bias), rtol=2e-2, atol=2e-2)
    assert {*names} == {"attend_gluon_kernel"}


@pytest.mark.parametrize(
    ("batch", "steps_of_bias", "order"),
    [
        ((4, 32), (0, 9), (1, 0)),
        ((4, 32), (9, 0), (0, 1)),
        ((4, 32), (0, 0), (0, 1)),
        ((4, 32, 1), (0, 9, 0), (1, 0, 2)),
        ((1, 32), (0, 9), (1, 0)),
    ],
    ids=["of heads", "of sequences", "of all", "folded", "one sequence"],
)
def test_heads_that_read_the_same_scores_are_side_by_side(
    batch: tuple[int, ...], steps_of_bias: tuple[int, ...], order: tuple[int, ...]
) -> None:
    """What scores have no steps along comes last, but for dimensions of length 1, which descriptors may lack."""
    steps = [(*range(1, len(batch) + 1), 8, 1), (*steps_of_bias, 7, 1), (5,) * len(batch)]
    run = runtime_module("streaming_gluon").with_shared_last
    sizes, found = run(batch, steps, ("rows", "scores", ""))
    assert sizes == tuple(batch[dim] for dim in order)
    assert found == [(*(one[dim] for dim in order), *one[len(batch) :]) for one in steps]
    assert run(batch, steps, ("rows", "cols", "")) == (batch, steps)


@pytest.mark.parametrize(
    ("condition", "lengths", "in_order"),
    some(
        [
            pytest.param("(index(N) <= index(M)) & (of_q == of_k)", [700], True, id="one"),
            pytest.param("(index(N) <= index(M)) & (of_q == of_k)", [100, 450, 3, 147], True, id="several"),
            pytest.param("(index(N) <= index(M)) & (of_q == of_k)", [200, 300, 200], False, id="one in two parts"),
            pytest.param("of_q == of_k", [100, 450, 3, 147], True, id="in both directions"),
            pytest.param("of_q == of_k", [10] * 70, True, id="short"),
            pytest.param("of_q == of_k", [300, 400], False, id="of others"),
        ],
        1,
        2,
        3,
        5,
    ),
)
def test_documents(
    condition: str, lengths: list[int], in_order: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of some rows are of nothing, which makes them NaN, as sums of nothing are; those of heads differ."""
    operator, names = launching(
        spec_of(CAUSAL.replace("index(N) <= index(M)", condition), DOCUMENTS), tmp_path, monkeypatch
    )
    numbers = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    numbers = numbers if in_order else numbers % 2
    of_k = torch.stack([numbers, numbers.flip(0)]).int().to(DEVICE)[:, None].expand(2, 3, -1)
    of_q = of_k if in_order else of_k + (of_k == 1) * 5 * torch.arange(3, device=DEVICE)[:, None]
    q, k, v = drawn((700, 64), (700, 64), (700, 64))
    s = q.double() @ k.double().mT * 0.125
    sees = of_q.unsqueeze(-1) == of_k.unsqueeze(-2)
    sees = sees.tril() if "index" in condition else sees
    wanted = torch.softmax(s.masked_fill(~sees, -torch.inf), -1) @ v.double()
    for _ in range(2 if IS_HOPPER else 1):
        o = operator.attend(q, k, v, of_q.int(), of_k, scale=0.125)
        torch.testing.assert_close(o.double(), wanted, rtol=2e-2, atol=2e-2, equal_nan=True)
    assert IS_HOPPER or names == ["attend_bounds_kernel", "attend_gluon_kernel"]


def columns_of(s: torch.Tensor, v: torch.Tensor, temper: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.softmax(s * temper[..., None].double() + bias[:, None, None].double(), -1) @ v


def lengths_of(s: torch.Tensor, v: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    cols = torch.arange(s.shape[-1], device=s.device)
    return torch.softmax(s.masked_fill(cols > length[:, None, None], -torch.inf), -1) @ v


@pytest.mark.parametrize(
    ("compute", "numbers", "wanted"),
    some(
        [
            (SLOPES, ["slope: float32[H]"], slopes_of),
            (SINK, ["sink: float32[H]"], sink_of),
            (SLOPES, ["slope: float32[(G R)]"], slopes_of),
            (COLUMNS, ["temper: float32[H, M]", "bias: float32[..., N]"], columns_of),
            (LENGTHS, ["length: int32[H]"], lengths_of),
            (BIAS, ["bias: T[H, M, N]"], bias_of),
            (BIAS, ["bias: T[..., H, M, N]"], bias_of),
            (BIAS, ["bias: T[M, N]"], bias_of),
            (BIAS, ["bias: T[(G R), M, N]"], bias_of),
        ],
        1,
        2,
        3,
        4,
        5,
        7,
        8,
    ),
)
def test_numbers(
    compute: str,
    numbers: list[str],
    wanted: Callable[..., torch.Tensor],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of heads, of each of a group, of rows and of columns, some of them past the last."""
    inputs, outputs, in_group = (OF_HEADS, 'o = "q"', 1)
    if "(G R)" in numbers[0]:
        inputs, outputs, in_group = (GROUPED, 'o = "q[..., (G R), M, E]"', 3)
    declared = [one.split(": ") for one in numbers]
    more = "".join(f'\n{name} = "{kind}"' for name, kind in declared)
    operator, names = launching(spec_of(compute, inputs + more, outputs), tmp_path, monkeypatch)
    sizes = {"...": 2, "H": 6, "(G R)": 6, "M": 350, "N": 336 if "M, N" in numbers[0] else 333}
    random = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn((2, *size), generator=random).to(DEVICE, HALF)
        for size in ((6, 350, 64), (6 // in_group, sizes["N"], 64), (6 // in_group, sizes["N"], 96))
    )
    given = []
    for _, kind in declared:
        dtype, _, axes = kind.rstrip("]").partition("[")
        shape = [sizes[axis] for axis in axes.split(", ")]
        drawn = torch.rand(shape, generator=random) / 4
        number = (drawn * 1200).int() + 1 if dtype == "int32" else drawn.to(HALF if dtype == "T" else torch.float32)
        given.append(number.to(DEVICE))
    s, every_v = masked_scores(q, k, v, 0.125)
    for _ in range(2 if IS_HOPPER else 1):
        o = operator.attend(q, k, v, *given, scale=0.125)
        torch.testing.assert_close(o.double(), wanted(s, every_v, *given), rtol=2e-2, atol=2e-2)
    assert {*names} == {"attend_gluon_kernel"}


def test_flags_of_rows_and_of_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and columns that meet all, as the first of a document do."""
    flags = '\nof_q = "bool[..., M]"\nof_k = "bool[..., N]"'
    compute = f's = "where((abs(index(M) - index(N)) <= 9) | of_q | of_k, sum(q * k, D) * scale, -inf)"\n{MEAN}'
    operator, names = launching(spec_of(compute, QKV + flags), tmp_path, monkeypatch)
    q, k, v = drawn((150, 16), (70, 16), (70, 16))
    of_q, of_k = (torch.arange(n, device=DEVICE).expand(2, 3, n) % 31 == 3 for n in (150, 70))
    apart = torch.arange(150, device=DEVICE)[:, None] - torch.arange(70, device=DEVICE)
    s = q.double() @ k.double().mT * 0.25
    s = s.masked_fill((apart.abs() > 9) & ~of_q[..., None] & ~of_k[..., None, :], -torch.inf)
    o = operator.attend(q, k, v, of_q, of_k, scale=0.25)
    torch.testing.assert_close(o.double(), torch.softmax(s, -1) @ v.double(), rtol=2e-2, atol=2e-2)
    assert {*names} == {"attend_gluon_kernel"}


FAR = 'far = "index(N) - index(M) + size(M)"\n'


@pytest.mark.parametrize(
    ("compute", "is_causal"),
    some(
        [
            (f'{FAR}s = "slope * far + sum(q * k, D) * scale"\n{MEAN}', False),
            (f'fall = "-((index(M) - index(N)) * slope)"\n{CAUSAL.replace("* scale", "* scale + fall")}', True),
            (SLOPES.replace("- slope", "- abs(slope)"), True),
        ],
        0,
        1,
        2,
    ),
)
def test_slopes(compute: str, is_causal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However they are written; a distance that nothing else reads is not computed."""
    spec = spec_of(compute + LOG, f'{OF_HEADS}\nslope = "float32[H]"', 'o = "q"\nlse = "float32[..., H, M]"')
    text = kernel_of(spec)
    assert "online_row_max_led" in text
    assert not re.search(r"^ *(far|fall) =", text, re.MULTILINE)
    operator, names = launching(spec, tmp_path, monkeypatch)
    q, k, v = drawn((350, 64), (333, 64), (333, 96))
    slope = torch.tensor([0.5, 0.02, 0.0], device=DEVICE)
    rows, cols = (torch.arange(n, device=DEVICE) for n in (350, 333))
    far = cols - rows[:, None] + (0 if is_causal else 350)
    s = q.double() @ k.double().mT * 0.125 + slope.double()[:, None, None] * far
    s = s.masked_fill(cols > rows[:, None], -torch.inf) if is_causal else s
    o, lse = operator.attend(q, k, v, slope, scale=0.125)
    torch.testing.assert_close(o.double(), torch.softmax(s, -1) @ v.double(), rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(lse.double(), torch.logsumexp(s, -1), rtol=1e-4, atol=1e-4)
    assert {*names} == {"attend_gluon_kernel"}


@pytest.mark.skipif(IS_HOPPER, reason="kernels are emulated on others")
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("give_back(v_ring, step)\n", "pass\n"),
        ("o_dot, left, weights = warpgroup_mma_wait(0", "o_dot, left, weights = warpgroup_mma_wait(1"),
        ("s_sum = warpgroup_mma_wait(1, deps=(s_sum,))\n", "give_back(k_ring, step + 1)\n"),
    ],
    ids=["a block is not given back", "a matmul is read in flight", "a matmul is not waited for"],
)
def test_emulation_sees_what_a_gpu_does_not_forgive(
    right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, _ = launching(spec_of(CAUSAL + LOG, outputs='o = "q"\nlse = "float32"'), tmp_path, monkeypatch)
    monkeypatch.setattr(emulated_gluon, "PATIENCE", 0.3)
    kernels = Path(*operator.__path__) / "gluon_kernels.py"
    assert right in kernels.read_text(encoding="utf-8")
    kernels.write_text(kernels.read_text(encoding="utf-8").replace(right, wrong), encoding="utf-8")
    q, k, v = drawn((500, 48), (500, 48), (500, 40))
    with pytest.raises(AssertionError):
        check(operator, q, k, v, 0.3)
