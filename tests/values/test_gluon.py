"""The Gluon kernel of attention beside the plain one: which operators have one, and on Hopper what it computes."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

IS_HOPPER = torch.cuda.is_available() and not torch.version.hip and torch.cuda.get_device_capability()[0] == 9
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import emulated_gluon  # noqa: E402
import triton  # noqa: E402
from importing import built, runtime_of  # noqa: E402

from tritongen.operator.compile import generate  # noqa: E402
from tritongen.spec.read import read_spec  # noqa: E402
from tritongen.spec.types import Spec  # noqa: E402

QKV = 'q = "T[..., M, D]"\nk = "T[..., N, D]"\nv = "T[..., N, E]"'
MEAN = 'o = "sum(softmax(s, N) * v, N)"'
CAUSAL = f's = "where(index(N) <= index(M), sum(q * k, D) * scale, -inf)"\n{MEAN}'
GROUPED = 'q = "T[..., (G R), M, D]"\nk = "T[..., G, N, D]"\nv = "T[..., G, N, E]"'
OF_HEADS = QKV.replace("...", "..., H")
SLOPES = CAUSAL.replace("* scale", "* scale - slope * (index(M) - index(N))")
SINK = f"""{CAUSAL.partition(MEAN)[0]}m = "maximum(max(s, N), sink)"
o = "sum(exp(s - m) * v, N) / (sum(exp(s - m), N) + exp(sink - m))\""""
GRADIENT = '[grad]\nwrt = ["q"]'
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
        spec_of(CAUSAL.replace("* scale", "* scale + bias"), f'{QKV}\nbias = "T[M, N]"'),
        spec_of(CAUSAL.replace("index(M)", "length"), f'{OF_HEADS}\nlength = "int32[H]"'),
        spec_of(inputs=QKV.replace("T[..., N, D]", "T[..., D, N]")),
        spec_of(CAUSAL.replace("scale", "where(raw, 1, scale)"), params='scale = { type = "float" }\nraw = false'),
        spec_of(more='[torch]\nregister = "triton_op"\n'),
    ],
    ids=["float32", "no largest", "another matrix", "lengths", "keys across", "a flag", "torch sees launches"],
)
def test_other_math_has_a_plain_kernel_alone(spec: Spec) -> None:
    assert not kernel_of(spec)


def test_the_scores_are_those_of_the_plain_kernel() -> None:
    """Between the matmuls stand the same lines, but for the scale, which exponents take where nothing else reads it."""
    plain, gluon = generate(spec_of())["kernels.py"], kernel_of(spec_of())
    mask = 's = tl.where(col_mask & (cols <= rows), s, float("-inf"))'.replace('"', "'")
    assert mask in plain.replace('"', "'")
    assert mask.replace("tl.", "gl.") in gluon.replace('"', "'")
    assert "s = s_sum * scale" in plain
    assert "s = s_sum\n" in gluon
    assert "s_sum * scale" in kernel_of(spec_of(CAUSAL.replace('* scale, -inf)"', '* scale, -1.0)"')))
    capped = CAUSAL.replace("sum(q * k, D) * scale", "30 * tanh(sum(q * k, D) * scale / 30)")
    assert "tanh(" in kernel_of(spec_of(capped))


def test_numbers_that_are_the_scale() -> None:
    """One above 0 needs no care for its sign."""
    assert "negate(q)" in kernel_of(spec_of())
    assert "negate(q)" not in kernel_of(spec_of(CAUSAL.replace("scale", "0.125"), params=""))
    assert "s = s_sum * -0.125" in kernel_of(spec_of(CAUSAL.replace("scale", "(-0.125)"), params=""))


def test_the_gradient_is_that_of_the_plain_kernel() -> None:
    """But for scores, which are in base 2 where only exponentials read them, and numbers of rows are vectors."""
    spec = spec_of(more=GRADIENT.replace('"q"', '"q", "k", "v"'))
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
        (CAUSAL.replace("index(M)", "length"), f'{OF_HEADS}\nlength = "int32[H]"'),
        ('s = "sum(q * k, D) * scale"\no = "sum(s * v, N)"', QKV),
    ],
    ids=["another matrix", "lengths", "one score"],
)
def test_gradients_of_other_math_have_a_plain_kernel_alone(compute: str, inputs: str) -> None:
    assert "_backward_" not in kernel_of(spec_of(compute, inputs, more=GRADIENT))


def test_heads_of_a_group_read_the_same_blocks() -> None:
    """TMA steps through five dimensions, so that the last of the batch has a length of 1 where rows have a group."""
    text = kernel_of(spec_of(inputs=GROUPED, outputs='o = "q[..., (G R), M, E]"'))
    assert "fill(k_ring, step, k_desc, (i0, i1, i2), start)" in text
    assert "fill(q_ring, q_step + half, q_desc, (i0, i1, i_r), row)" in text
    assert "store_block(o_desc, o_blocks, half, (i0, i1, i_r), first_row, o)" in text


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


# Without a GPU


def emulating(spec: Spec, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, list[str]]:
    """An operator on the CPU, and the kernels that it launches, of which those in Gluon are emulated."""
    operator = built(spec, folder)
    names: list[str] = []
    heuristics, launch = (runtime_of(operator, name) for name in ("heuristics", "launch"))
    monkeypatch.setattr(heuristics, "use_gluon", lambda *_: True)
    monkeypatch.setattr(heuristics, "sm_count", lambda _: 3)
    run = launch.run

    def spy(key: Any, kernel: Any, grid: Any, config: Any, *args: Any, **options: Any) -> None:
        names.append(kernel.__name__)
        if kernel.__name__.endswith("_gluon_kernel"):
            emulated_gluon.launch(kernel, grid, [one for group in args for one in group], options)
        else:
            run(key, kernel, grid, config, *args, **options)

    monkeypatch.setattr(launch, "run", spy)
    return operator, names


def halves(*sizes: tuple[int, int]) -> list[torch.Tensor]:
    """Matrices of two heads."""
    random = torch.Generator().manual_seed(0)
    return [torch.randn((1, 2, *size), generator=random).half() for size in sizes]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU runs them")
@pytest.mark.parametrize(("sizes", "scale"), [((150, 200, 48, 40), 0.3), ((130, 70, 96, 16), -0.3)])
def test_values_emulated(
    sizes: tuple[int, int, int, int], scale: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of lengths that no tile divides, in programs of several tiles and of one, and of scales of either sign."""
    operator, names = emulating(spec_of(CAUSAL + LOG, outputs='o = "q"\nlse = "float32"'), tmp_path, monkeypatch)
    m, n, d, e = sizes
    q, k, v = halves((m, d), (n, d), (n, e))
    check(operator, q, k, v, scale)
    assert set(names) == {"attend_gluon_kernel"}


def check_gradient(operator: ModuleType, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> None:
    """By queries, whose heads may be several to one of keys and values; twice, as `check`."""
    do = torch.flip(q, (-1,))[..., : v.shape[-1]].contiguous()
    given, exact = q.clone().requires_grad_(), q.double().requires_grad_()
    every_k, every_v = (one.double().repeat_interleave(q.shape[-3] // k.shape[-3], -3) for one in (k, v))
    s = exact @ every_k.mT * scale
    rows, cols = (torch.arange(n, device=q.device) for n in s.shape[-2:])
    mean = torch.softmax(s.masked_fill(cols > rows[:, None], -torch.inf), -1) @ every_v
    (wanted,) = torch.autograd.grad(mean, exact, do.double())
    for _ in range(2 if q.is_cuda else 1):
        (found,) = torch.autograd.grad(operator.attend(given, k, v, scale=scale), given, do)
        error = (found.double() - wanted).norm() / wanted.norm()
        assert error < (5e-3 if q.dtype == torch.bfloat16 else 1e-3)


GROUPS = GROUPED, 'o = "q[..., (G R), M, E]"'


@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU runs them")
@pytest.mark.parametrize(
    ("sizes", "scale", "spec"),
    [
        ((150, 200, 48, 40), 0.3, spec_of(more=GRADIENT)),
        ((200, 140, 96, 16), -0.3, spec_of(CAUSAL, *GROUPS, more=GRADIENT)),
    ],
    ids=["heads", "grouped heads"],
)
def test_gradients_emulated(
    sizes: tuple[int, int, int, int], scale: float, spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, names = emulating(spec, tmp_path, monkeypatch)
    m, n, d, e = sizes
    q, k, v = halves((m, d), (n, d), (n, e))
    if "G" in spec.inputs[1].type.axes:
        k, v = k[:, :1], v[:, :1]
    check_gradient(operator, q, k, v, scale)
    assert names == ["attend_gluon_kernel", "attend_backward_dq_gluon_kernel"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU runs them")
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
    operator, _ = emulating(spec_of(CAUSAL + LOG, outputs='o = "q"\nlse = "float32"'), tmp_path, monkeypatch)
    monkeypatch.setattr(emulated_gluon, "PATIENCE", 0.3)
    kernels = Path(*operator.__path__) / "gluon_kernels.py"
    assert right in kernels.read_text(encoding="utf-8")
    kernels.write_text(kernels.read_text(encoding="utf-8").replace(right, wrong), encoding="utf-8")
    q, k, v = halves((500, 48), (500, 48), (500, 40))
    with pytest.raises(AssertionError):
        check(operator, q, k, v, 0.3)


# On Hopper


@pytest.fixture
def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, list[str]]:
    """Causal attention with its log-sum-exp, and the kernels that it launches."""
    return launching(spec_of(CAUSAL + LOG, outputs='o = "q"\nlse = "float32"'), tmp_path, monkeypatch)


def launching(spec: Spec, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, list[str]]:
    """An operator, and the kernels that it launches."""
    if not IS_HOPPER or triton.knobs.runtime.interpret:
        pytest.skip("needs NVIDIA's Hopper, and not the interpreter")
    operator = built(spec, folder)
    names: list[str] = []
    launch: Any = importlib.import_module(runtime_of(operator, "launch").__name__)
    run = launch.run

    def spy(key: Any, kernel: Any, *args: Any, **options: Any) -> None:
        names.append(kernel.__name__)
        run(key, kernel, *args, **options)

    monkeypatch.setattr(launch, "run", spy)
    return operator, names


def check(
    operator: ModuleType, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, in_group: int = 1
) -> None:
    """Twice, since the second call launches what the first compiled. Heads of a group share keys and values."""
    every_k, every_v = (one.double().repeat_interleave(in_group, -3) for one in (k, v))
    s = q.double() @ every_k.mT * scale
    rows, cols = (torch.arange(n, device=q.device) for n in s.shape[-2:])
    s = s.masked_fill(cols > rows[:, None], -torch.inf)
    tolerance = 2e-2 if q.dtype == torch.bfloat16 else 3e-3
    for _ in range(2):
        o, lse = operator.attend(q, k, v, scale=scale)
        torch.testing.assert_close(o.double(), torch.softmax(s, -1) @ every_v, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(lse.double(), torch.logsumexp(s, -1), rtol=1e-4, atol=1e-4)


def drawn(*sizes: tuple[int, int], dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
    """Matrices of 2 x 3 heads."""
    random = torch.Generator().manual_seed(0)
    return [torch.randn((2, 3, *size), generator=random).to("cuda", dtype) for size in sizes]


@pytest.mark.parametrize("scale", [0.1, -0.1, 0.0, 3.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(200, 333, 64, 64), (500, 129, 128, 96), (65, 65, 16, 24), (1000, 1, 80, 128)])
def test_values(
    launched: tuple[ModuleType, list[str]], sizes: tuple[int, int, int, int], dtype: torch.dtype, scale: float
) -> None:
    """Of lengths that no tile divides, and of scales of either sign."""
    operator, names = launched
    m, n, d, e = sizes
    q, k, v = drawn((m, d), (n, d), (n, e), dtype=dtype)
    check(operator, q, k, v, scale)
    assert names == ["attend_gluon_kernel"]


@pytest.mark.parametrize(
    ("laid_out", "takes"),
    [
        (lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), True),
        (lambda x: x[:, :1].expand(-1, 3, -1, -1), True),
        (lambda x: torch.cat([x, x], -1)[..., :64], True),
        (lambda x: torch.cat([x, x[..., :4]], -1)[..., :64], False),
        (lambda x: torch.cat([x, x], -1)[..., 4:68], False),
        (lambda x: x.mT.contiguous().mT, False),
    ],
    ids=["rows before heads", "one for all heads", "parts of rows", "rows 136 bytes apart", "unaligned", "columns"],
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
    assert names == ["attend_kernel"]


@pytest.mark.parametrize(
    ("laid_out", "rows", "name"),
    [
        (lambda x: x, 200, "attend_gluon_kernel"),
        (lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), 200, "attend_gluon_kernel"),
        (lambda x: x.unflatten(0, (1, 2)).transpose(0, 1).expand(2, 3, -1, -1, -1), 200, "attend_kernel"),
        (lambda x: x, 40, "attend_kernel"),
    ],
    ids=["contiguous", "rows before heads", "three dimensions", "few rows"],
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
        laid_out(torch.randn((2, *size), generator=random).to("cuda", torch.bfloat16))
        for size in ((6, rows, 64), (2, 333, 64), (2, 333, 96))
    )
    check(operator, q, k, v, 0.125, in_group=3)
    assert names == [name]


def slopes_of(s: torch.Tensor, v: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    rows, cols = (torch.arange(n, device=s.device) for n in s.shape[-2:])
    return torch.softmax(s - slope[:, None, None].double() * (rows[:, None] - cols), -1) @ v


def sink_of(s: torch.Tensor, v: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    more = sink[:, None, None].double().expand(*s.shape[:-1], 1)
    return torch.softmax(torch.cat((s, more), -1), -1)[..., :-1] @ v


@pytest.mark.parametrize(
    ("compute", "wanted", "in_group"), [(SLOPES, slopes_of, 1), (SINK, sink_of, 1), (SLOPES, slopes_of, 3)]
)
def test_numbers_of_heads(
    compute: str, wanted: Callable[..., torch.Tensor], in_group: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of slopes of the scores and of sinks, one of each head, or of each of a group."""
    name = "slope" if wanted is slopes_of else "sink"
    inputs, outputs, heads = (OF_HEADS, 'o = "q"', "H")
    if in_group > 1:
        inputs, outputs, heads = (GROUPED, 'o = "q[..., (G R), M, E]"', "(G R)")
    spec = spec_of(compute, f'{inputs}\n{name} = "float32[{heads}]"', outputs)
    operator, names = launching(spec, tmp_path, monkeypatch)
    random = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn((2, *size), generator=random).to("cuda", torch.bfloat16)
        for size in ((6, 200, 64), (6 // in_group, 333, 64), (6 // in_group, 333, 96))
    )
    numbers = torch.rand(6, generator=random).cuda() / 4
    every_k, every_v = (one.double().repeat_interleave(in_group, -3) for one in (k, v))
    s = q.double() @ every_k.mT * 0.125
    rows, cols = (torch.arange(n, device="cuda") for n in s.shape[-2:])
    s = s.masked_fill(cols > rows[:, None], -torch.inf)
    for _ in range(2):
        o = operator.attend(q, k, v, numbers, scale=0.125)
        torch.testing.assert_close(o.double(), wanted(s, every_v, numbers), rtol=2e-2, atol=2e-2)
    assert names == ["attend_gluon_kernel"]


@pytest.mark.parametrize("scale", [0.1, -0.1, 0.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(200, 333, 128, 128), (500, 129, 128, 96), (65, 65, 80, 24), (1000, 1, 80, 128)])
def test_gradients(
    sizes: tuple[int, int, int, int], dtype: torch.dtype, scale: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By queries, in heads that are wider than 64."""
    operator, names = launching(spec_of(more=GRADIENT), tmp_path, monkeypatch)
    m, n, d, e = sizes
    q, k, v = drawn((m, d), (n, d), (n, e), dtype=dtype)
    check_gradient(operator, q, k, v, scale)
    assert names == ["attend_gluon_kernel", "attend_backward_dq_gluon_kernel"]


def test_gradients_of_heads_that_are_narrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, names = launching(spec_of(more=GRADIENT), tmp_path, monkeypatch)
    q, k, v = drawn((200, 64), (333, 64), (333, 64))
    check_gradient(operator, q, k, v, 0.125)
    assert names == ["attend_gluon_kernel", "attend_backward_dq_kernel"]


def test_gradients_of_grouped_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, names = launching(spec_of(CAUSAL, *GROUPS, more=GRADIENT), tmp_path, monkeypatch)
    q, k, v = drawn((200, 128), (333, 128), (333, 96))
    check_gradient(operator, q, k[:, :1], v[:, :1], 0.125)
    assert names == ["attend_gluon_kernel", "attend_backward_dq_gluon_kernel"]
