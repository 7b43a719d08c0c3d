"""The Gluon kernel of attention beside the plain one: which operators have one, and on Hopper what it computes."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

IS_HOPPER = torch.cuda.is_available() and not torch.version.hip and torch.cuda.get_device_capability()[0] == 9
DEVICE = "cuda" if IS_HOPPER else "cpu"
HALF = torch.bfloat16 if IS_HOPPER else torch.float16  # of which interpreters of plain kernels know more
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import emulated_gluon  # noqa: E402
from importing import built, runtime_of  # noqa: E402

from tritongen.operator.compile import generate  # noqa: E402
from tritongen.spec.read import read_spec  # noqa: E402
from tritongen.spec.types import Spec  # noqa: E402

QKV = 'q = "T[..., M, D]"\nk = "T[..., N, D]"\nv = "T[..., N, E]"'
MEAN = 'o = "sum(softmax(s, N) * v, N)"'
CAUSAL = f's = "where(index(N) <= index(M), sum(q * k, D) * scale, -inf)"\n{MEAN}'
GROUPED = 'q = "T[..., (G R), M, D]"\nk = "T[..., G, N, D]"\nv = "T[..., G, N, E]"'
POSITIONS_FIRST = 'q = "T[B, M, (G R), D]"\nk = "T[B, N, G, D]"\nv = "T[B, N, G, E]"'
OF_HEADS = QKV.replace("...", "..., H")
SLOPES = CAUSAL.replace("* scale", "* scale - slope * (index(M) - index(N))")
SINK = f"""{CAUSAL.partition(MEAN)[0]}m = "maximum(max(s, N), sink)"
o = "sum(exp(s - m) * v, N) / (sum(exp(s - m), N) + exp(sink - m))\""""
DOCUMENTS = f'{QKV}\nof_q = "int32[..., M]"\nof_k = "int32[..., N]"'
LENGTHS = f'limit = "length + 1"\n{CAUSAL.replace("index(N) <=", "(index(N) < limit) & (index(N) <=")}'
LENGTHS = LENGTHS.replace("index(M),", "index(M)),")
COLUMNS = CAUSAL.replace("* scale", "* scale * temper + bias")
GRADIENT = '[grad]\nwrt = ["q", "k", "v"]'
LOG = '\nlse = "logsumexp(s, N)"'


def spec_of(
    compute: str = CAUSAL,
    inputs: str = QKV,
    outputs: str = 'o = "q"',
    params: str = 'scale = { type = "float" }',
    kind: str = "float",
    more: str = "",
) -> Spec:
    head = f'[op]\nname = "attend"\nsummary = "Attends."\n[types]\nT = "{kind}"\n'
    text = f"{head}[inputs]\n{inputs}\n[params]\n{params}\n[compute]\n{compute}\n[outputs]\n{outputs}\n{more}"
    return read_spec("attend.toml", text)


def kernel_of(spec: Spec) -> str:
    """The text of the Gluon kernel, "" where there is none."""
    return generate(spec).get("gluon_kernels.py", "")


@pytest.mark.parametrize(
    "spec",
    [
        spec_of(kind="float32"),
        spec_of('s = "sum(q * k, D) * scale"\no = "sum(sigmoid(s) * v, N)"'),
        spec_of(CAUSAL.replace("* scale", "* scale + bias"), f'{QKV}\nbias = "T[..., N, M]"'),
        spec_of(CAUSAL.replace("* scale", "* scale + bias"), f'{QKV}\nbias = "float32[..., M, N]"'),
        spec_of(CAUSAL.replace("* scale", "* scale + one + two"), f'{QKV}\none = "T[M, N]"\ntwo = "T[M, N]"'),
        spec_of(CAUSAL.replace("* scale", "* scale + bias"), f'{QKV}\nbias = "T[N]"'),
        spec_of(inputs=QKV.replace("T[..., N, D]", "T[..., D, N]")),
        spec_of(CAUSAL.replace("scale", "where(raw, 1, scale)"), params='scale = { type = "float" }\nraw = false'),
        spec_of(more='[torch]\nregister = "triton_op"\n'),
    ],
    ids=[
        "float32",
        "no largest",
        "a bias across",
        "a wide bias",
        "two biases",
        "of all heads",
        "keys across",
        "a flag",
        "torch sees launches",
    ],
)
def test_other_math_has_a_plain_kernel_alone(spec: Spec) -> None:
    assert not kernel_of(spec)


def test_the_scores_are_those_of_the_plain_kernel() -> None:
    """Between the matmuls stand the same lines, but for the scale, which exponents take where nothing else reads it."""
    plain, gluon = generate(spec_of())["kernels.py"], kernel_of(spec_of())
    assert "s = tl.where(col_mask & (cols <= rows), s, float(" in plain
    assert "s = gl.where(cols <= rows, s, float(" in gluon
    assert "s = s_sum * scale" in plain
    assert "s = s_sum\n" in gluon
    assert "s_sum * scale" in kernel_of(spec_of(CAUSAL.replace('* scale, -inf)"', '* scale, -1.0)"')))
    capped = CAUSAL.replace("sum(q * k, D) * scale", "30 * tanh(sum(q * k, D) * scale / 30)")
    assert "tanh(" in kernel_of(spec_of(capped))


def test_the_last_block_alone_has_what_is_past_the_end() -> None:
    """It comes first, outside the loop."""
    causal, whole = kernel_of(spec_of()), kernel_of(spec_of(f's = "sum(q * k, D) * scale"\n{MEAN}'))
    assert "factor, n_cols, True, True)" in causal
    assert "factor, n_cols, part != 0, False)" in causal
    assert "factor, n_cols, True)" in whole
    assert "factor, n_cols, False)" in whole


def test_numbers_that_are_the_scale() -> None:
    """One above 0 needs no care for its sign."""
    assert "negate(q)" in kernel_of(spec_of())
    assert "negate(q)" not in kernel_of(spec_of(CAUSAL.replace("scale", "0.125"), params=""))
    assert "s = s_sum * -0.125" in kernel_of(spec_of(CAUSAL.replace("scale", "(-0.125)"), params=""))


def test_the_gradient_is_that_of_the_plain_kernel() -> None:
    """But for scores, which are in base 2 where only exponentials read them, and numbers of rows are vectors."""
    spec = spec_of(more=GRADIENT)
    plain, gluon = generate(spec)["kernels.py"], kernel_of(spec).partition("_backward_dq_half(")[2]
    lines = {
        "s = s_sum * scale": "s = s_sum * factor",
        "p = exp_below(s, lse)": "p = gl.exp2(s - in_base_2(lse)[:, None])",
        "ds = p * (dp - delta)": "ds = p * (dp - delta[:, None])",
        "ds_where = tl.where(col_mask & (cols <= rows), ds_where, 0.0)": (
            "ds_where = gl.where(col_mask & (cols <= rows[:, None]), ds_where, 0.0)"
        ),
    }
    assert all(one in plain and other in gluon for one, other in lines.items())
    raised = kernel_of(spec_of(CAUSAL.replace('* scale, -inf)"', '* scale, -1.0)"'), more=GRADIENT))
    assert "p = exp_below(s, lse[:, None])" in raised


@pytest.mark.parametrize(
    ("compute", "inputs"),
    [
        (CAUSAL.replace("* scale", "* scale + bias"), f'{QKV}\nbias = "T[M, N]"'),
        (CAUSAL.replace("index(N) <= index(M)", "of_q == of_k"), DOCUMENTS),
        ('s = "sum(q * k, D) * scale"\no = "sum(s * v, N)"', QKV),
    ],
    ids=["another matrix", "documents", "one score"],
)
def test_gradients_of_other_math_have_a_plain_kernel_alone(compute: str, inputs: str) -> None:
    assert "_backward_" not in kernel_of(spec_of(compute, inputs, more=GRADIENT))


def test_a_soft_cap_leaves_no_registers_for_two_sums() -> None:
    capped = CAUSAL.replace("sum(q * k, D) * scale", "30 * tanh(sum(q * k, D) * scale / 30)")
    text = kernel_of(spec_of(capped, more=GRADIENT))
    assert "def attend_backward_dq_gluon_kernel(" in text
    assert "_backward_dk_dv_" not in text


def test_heads_of_a_group_read_the_same_blocks() -> None:
    """TMA steps through five dimensions, so that the last of the batch has a length of 1 where rows have a group."""
    text = kernel_of(spec_of(inputs=GROUPED, outputs='o = "q[..., (G R), M, E]"'))
    assert "fill(k_ring, step, k_desc, (i0, i1, i2), start)" in text
    assert "fill(q_ring, q_step + half, q_desc, (i0, i1, i_r), row)" in text
    assert "store_block(o_desc, o_blocks, half, (i0, i1, i_r), first_row, o)" in text


def test_positions_before_heads() -> None:
    """Tensors are seen with the heads first, as descriptors have them."""
    files = generate(spec_of(inputs=POSITIONS_FIRST, outputs='o = "q[B, M, (G R), E]"'))
    assert "store_block(o_desc, o_blocks, half, (i0, i1, i_r), first_row, o)" in files["gluon_kernels.py"]
    assert "q_by_head = tensors.with_last(q, -3, -2, -4, -1)\n" in files["op.py"]


def test_results_are_given_in_their_order() -> None:
    """As the host has them, whichever is the matrix."""
    text = kernel_of(spec_of(CAUSAL + LOG, outputs='lse = "float32"\no = "q"'))
    signature = text.partition("def attend_gluon_kernel(")[2].partition("n_heads")[0]
    assert signature.split(", ")[:5] == ["q_desc", "k_desc", "v_desc", "lse_ptr", "o_desc"]


def test_numbers_of_heads_are_read_once_for_a_tile() -> None:
    """Before the loop where scores have them, and behind it where only the mean has."""
    slopes = kernel_of(spec_of(SLOPES, f'{OF_HEADS}\nslope = "float32[H]"'))
    tile, read, loop = (slopes.index(one) for one in ("_tile(tile, lengths", "slope = gl.load", "for part in"))
    assert slopes.count("gl.load(") == 1
    assert tile < read < loop
    sink = kernel_of(spec_of(SINK, f'{OF_HEADS}\nsink = "float32[H]"'))
    assert sink.count("gl.load(") == 1
    assert sink.index("for part in") < sink.index("sink = gl.load")


# On Hopper; on others emulated, and of the many cases some


def some(cases: list[Any], *places: int) -> list[Any]:
    return cases if IS_HOPPER else [cases[place] for place in places]


@pytest.fixture
def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, list[str]]:
    """Causal attention with its log-sum-exp, and the kernels that it launches."""
    return launching(spec_of(CAUSAL + LOG, outputs='o = "q"\nlse = "float32"'), tmp_path, monkeypatch)


def launching(spec: Spec, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, list[str]]:
    """An operator, and the kernels that it launches. Those in Gluon are emulated where there is no Hopper."""
    operator = built(spec, folder)
    names: list[str] = []
    launch: Any = importlib.import_module(runtime_of(operator, "launch").__name__)
    run = launch.run

    def spy(key: Any, kernel: Any, grid: Any, config: Any, *args: Any, **options: Any) -> None:
        names.append(kernel.__name__)
        if kernel.__name__.endswith("_gluon_kernel") and not IS_HOPPER:
            emulated_gluon.launch(kernel, grid, sum(args, ()), options)
        else:
            run(key, kernel, grid, config, *args, **options)

    def spy_named(kernel: Any, grid: Any, by_name: Any, args: Any, **options: Any) -> None:
        """Of several launches of a call, one."""
        options.pop("names", None)
        spy(None, kernel, grid, None, args, **options)

    monkeypatch.setattr(launch, "run", spy)
    if not IS_HOPPER:
        monkeypatch.setattr(launch, "run_named", spy_named)
    if not IS_HOPPER:
        monkeypatch.setattr(runtime_of(operator, "streaming_heuristics"), "capability", lambda _: (9, 0))
    return operator, names


def masked_scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of rows and what they attend to, and values, in float64; those that heads of a group share for each."""
    in_group = q.shape[-3] // k.shape[-3]
    every_k, every_v = (one.double().repeat_interleave(in_group, -3) for one in (k, v))
    s = q.double() @ every_k.mT * scale
    rows, cols = (torch.arange(n, device=q.device) for n in s.shape[-2:])
    return s.masked_fill(cols > rows[:, None], -torch.inf), every_v


def check(
    operator: ModuleType, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, heads: int = -3
) -> None:
    """Twice, since the second call launches what the first compiled."""
    s, every_v = masked_scores(q.movedim(heads, -3), k.movedim(heads, -3), v.movedim(heads, -3), scale)
    tolerance = 2e-2 if q.dtype == torch.bfloat16 else 3e-3
    for _ in range(2 if IS_HOPPER else 1):
        o, lse = (one.movedim(heads + dim, -3 + dim) for dim, one in enumerate(operator.attend(q, k, v, scale=scale)))
        torch.testing.assert_close(o.double(), torch.softmax(s, -1) @ every_v, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(lse.double(), torch.logsumexp(s, -1), rtol=1e-4, atol=1e-4)


def drawn(*sizes: tuple[int, int], dtype: torch.dtype = HALF) -> list[torch.Tensor]:
    """Matrices of 2 x 3 heads."""
    random = torch.Generator().manual_seed(0)
    return [torch.randn((2, 3, *size), generator=random).to(DEVICE, dtype) for size in sizes]


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


def test_numbers_of_columns_are_read_while_matmuls_run() -> None:
    """Those of rows once for a tile, as those of heads; lengths for the bounds of a tile as well."""
    numbers = kernel_of(spec_of(COLUMNS, f'{QKV}\ntemper = "float32[..., M]"\nbias = "float32[..., N]"'))
    begin, read, wait = (numbers.rindex(one) for one in ("begin_scores(", "bias = attend_columns(", "mma_wait(1"))
    assert begin < read < wait
    assert numbers.index("temper = gl.load(") < numbers.index("for part in")
    lengths = kernel_of(spec_of(LENGTHS, f'{OF_HEADS}\nlength = "int32[H]"'))
    assert lengths.count("length = gl.load(") == 2
    assert lengths.index("length = gl.load(") < lengths.index("bounds = ")


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


BIAS = CAUSAL.replace("* scale", "* scale + bias")


def test_a_bias_is_read_while_matmuls_run() -> None:
    """Where heads of several sequences have the same one after another."""
    kernel = kernel_of(spec_of(BIAS, f'{OF_HEADS}\nbias = "T[H, M, N]"'))
    begin, read, wait = (kernel.rindex(one) for one in ("begin_scores(", "bias = read_scores(", "mma_wait(1"))
    assert begin < read < wait
    assert kernel.index("first_length = n_heads") < kernel.index("i0, i1, i2 = unravel(head")
    assert "first_length" not in kernel_of(spec_of(BIAS, f'{OF_HEADS}\nbias = "T[..., H, M, N]"'))


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


def check_gradient(operator: ModuleType, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> None:
    """By queries, whose heads may be several to one of keys and values, and by these; twice, as `check`."""
    do = torch.flip(q, (-1,))[..., : v.shape[-1]].contiguous()
    given, exact = ([one.to(dtype).clone().requires_grad_() for one in (q, k, v)] for dtype in (q.dtype, torch.float64))
    s, every_v = masked_scores(*exact, scale)
    wanted = torch.autograd.grad(torch.softmax(s, -1) @ every_v, exact, do.double())
    for _ in range(2 if IS_HOPPER else 1):
        found = torch.autograd.grad(operator.attend(*given, scale=scale), given, do)
        check_errors(found, wanted)


def check_errors(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> None:
    for one, exact in zip(found, wanted, strict=True):
        error = (one.double() - exact).norm() / exact.norm()
        assert error < (5e-3 if one.dtype == torch.bfloat16 else 1e-3)


FORWARD, DQ, DK_DV = "attend_gluon_kernel", "attend_backward_dq_gluon_kernel", "attend_backward_dk_dv_gluon_kernel"


@pytest.mark.parametrize("scale", some([0.1, -0.1, 0.0], 1))
@pytest.mark.parametrize("dtype", some([torch.float16, torch.bfloat16], 0))
@pytest.mark.parametrize(
    "sizes", some([(200, 333, 128, 128), (500, 129, 128, 96), (65, 65, 80, 24), (1000, 1, 80, 128)], 0, 2)
)
def test_gradients(
    sizes: tuple[int, int, int, int], dtype: torch.dtype, scale: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In heads that are wider than 64; dk and dv of few keys by the plain kernel."""
    operator, names = launching(spec_of(more=GRADIENT), tmp_path, monkeypatch)
    m, n, d, e = sizes
    q, k, v = drawn((m, d), (n, d), (n, e), dtype=dtype)
    check_gradient(operator, q, k, v, scale)
    assert names[:3] == [FORWARD, DQ, *([DK_DV] if n > 64 else [])]


def test_gradients_of_heads_that_are_narrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, names = launching(spec_of(more=GRADIENT), tmp_path, monkeypatch)
    q, k, v = drawn((200, 64), (333, 64), (333, 64))
    check_gradient(operator, q, k, v, 0.125)
    assert names[:2] == [FORWARD, "attend_backward_dq_kernel"]


GROUPS = GROUPED, 'o = "q[..., (G R), M, E]"'


def test_gradients_of_grouped_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, names = launching(spec_of(CAUSAL, *GROUPS, more=GRADIENT), tmp_path, monkeypatch)
    q, k, v = drawn((200, 128), (333, 128), (333, 96))
    check_gradient(operator, q, k[:, :1], v[:, :1], 0.125)
    assert names[:2] == [FORWARD, DQ]


@pytest.mark.parametrize(
    ("condition", "meets"),
    [
        ("", lambda rows, cols, length: cols >= 0),
        ("index(N) < length", lambda rows, cols, length: cols < length),
        (
            "(index(M) - index(N) >= 0) & (index(M) - index(N) < window)",
            lambda rows, cols, length: (cols <= rows) & (rows - cols < 100),
        ),
        ("index(N) - index(M) >= 150", lambda rows, cols, length: cols - rows >= 150),
    ],
    ids=["none", "lengths", "window", "rows without keys"],
)
def test_gradients_under_other_masks(
    condition: str, meets: Callable[..., torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None, lengths of heads, a window, and what some rows meet nothing of, which have no gradient."""
    compute = CAUSAL.replace("index(N) <= index(M)", condition)
    inputs = f'{OF_HEADS}\nlength = "int32[H]"' if "length" in condition else QKV
    if not condition:
        compute = CAUSAL.replace("where(index(N) <= index(M), ", "").replace(", -inf)", "")
    params = 'scale = { type = "float" }' + "\nwindow = 100" * ("window" in condition)
    operator, names = launching(spec_of(compute, inputs, params=params, more=GRADIENT), tmp_path, monkeypatch)
    q, k, v, do = drawn((300, 128), (333, 128), (333, 80), (300, 80))
    length = torch.tensor([333, 64, 1], device=DEVICE, dtype=torch.int32)
    given, exact = ([one.to(dtype).clone().requires_grad_() for one in (q, k, v)] for dtype in (HALF, torch.float64))
    rows, cols = torch.arange(300, device=DEVICE)[:, None], torch.arange(333, device=DEVICE)
    is_met = meets(rows, cols, length[:, None, None]).expand(2, 3, 300, 333)
    s = (exact[0] @ exact[1].mT * 0.125).masked_fill(~is_met, -torch.inf)
    is_alone = ~is_met.any(-1, keepdim=True)
    p = torch.softmax(s.masked_fill(is_alone, 0.0), -1).masked_fill(is_alone, 0.0)
    wanted = torch.autograd.grad(p @ exact[2], exact, do.double())
    for _ in range(2 if IS_HOPPER else 1):
        o = operator.attend(*given, *([length] if "length" in condition else []), scale=0.125)
        found = torch.autograd.grad(o, given, do)
        # The weights of a row without keys are NaN, as its mean.
        is_number = 2 if is_alone.any() else 3
        check_errors(found[:is_number], wanted[:is_number])
    assert names[1:3] == [DQ, DK_DV]


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
