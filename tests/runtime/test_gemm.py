"""The runtime's gemm, which computes gradients of matmuls: its values, and that its kernels compile for GPUs."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from importing import module_at

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import triton
from triton.runtime.interpreter import InterpretedFunction

from tritongen.diagnostics.report import Mistakes
from tritongen.operator.compile import generate
from tritongen.resources import templates_dir
from tritongen.spec.read import read_spec

GEMM = importlib.import_module(f"{module_at(Path(templates_dir(), 'runtime')).__name__}.gemm")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRET: Any = InterpretedFunction.__getitem__
# Relative to the largest result. Triton's interpreter computes tl.dot of bfloat16 incorrectly.
TOLERANCES = {torch.float16: 1e-3, torch.float32: 1e-6, torch.float64: 1e-14}
if DEVICE == "cuda":
    TOLERANCES[torch.bfloat16] = 8e-3
BATCHES = [(), (2,)]
RAGGED = (21, 69, 45)  # rows, columns, inner
SMALL = triton.Config({"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP": 2}, num_stages=2)
needs_tma = pytest.mark.skipif(
    DEVICE == "cuda" and torch.cuda.get_device_capability() < (9, 0), reason="needs TMA, or the interpreter"
)


def make(
    batch: tuple[int, ...], shape: tuple[int, int, int] = RAGGED, dtype: torch.dtype = torch.float16, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """A left and a right matrix for (rows, columns, inner)."""
    n_rows, n_cols, n_inner = shape
    random = torch.Generator().manual_seed(seed)
    sizes = (*batch, n_rows, n_inner), (*batch, n_cols, n_inner)
    left, right = (torch.rand(size, generator=random, dtype=torch.float64) - 0.5 for size in sizes)
    return left.to(DEVICE, dtype), right.to(DEVICE, dtype)


def check(left: torch.Tensor, right: torch.Tensor) -> None:
    got = GEMM.gemm(left, right)
    want = left.double() @ right.double().mT
    assert (got.dtype, got.shape, got.is_contiguous()) == (left.dtype, want.shape, True)
    atol = TOLERANCES[left.dtype] * max(1.0, want.abs().max().item() if want.numel() else 0.0)
    torch.testing.assert_close(got.double(), want, rtol=0, atol=atol)


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has rules of the heuristics choose something, and forgets the launches of other choices."""
    GEMM.launch.Launches.known.clear()

    def choose(config: triton.Config | None = None, **answers: Any) -> None:
        for rule, answer in answers.items():
            monkeypatch.setattr(GEMM.heuristics, rule, answer if callable(answer) else lambda *_, it=answer: it)
        for table in ("TMA", "STRIDED") if config else ():
            monkeypatch.setattr(getattr(GEMM, table), "choose", lambda *_: config)

    return choose


def label(config: triton.Config) -> str:
    return "-".join(map(str, (*config.kwargs.values(), config.num_warps)))


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_dtypes(dtype: torch.dtype, batch: tuple[int, ...]) -> None:
    check(*make(batch, dtype=dtype))


@pytest.mark.parametrize(
    ("batch", "shape"),
    [
        *(
            (batch, shape)
            for batch in BATCHES
            for shape in ((1, 1, 1), (1, 40, 7), (40, 1, 7), (5, 6, 1), (16, 32, 64))
        ),
        *((batch, shape) for batch in BATCHES for shape in ((0, 5, 6), (5, 0, 6), (5, 6, 0), (0, 0, 0))),
        ((0,), (5, 6, 7)),
        ((1,), RAGGED),
        ((), (200, 150, 40)),
    ],
    ids=str,
)
def test_shapes(batch: tuple[int, ...], shape: tuple[int, int, int]) -> None:
    check(*make(batch, shape, torch.float32))


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.mT.contiguous().mT


def batch_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.movedim(0, -1).contiguous().movedim(-1, 0)


def sliced(tensor: torch.Tensor) -> torch.Tensor:
    """Every second element of a larger tensor, along each axis."""
    large = tensor.new_zeros([2 * size for size in tensor.shape])
    return large[(slice(None, None, 2),) * tensor.ndim].copy_(tensor)


def misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """One element past an aligned address."""
    return torch.cat((tensor.new_zeros(1), tensor.flatten()))[1:].view(tensor.shape)


def same_rows(tensor: torch.Tensor) -> torch.Tensor:
    """One row for all, by a stride of zero."""
    return tensor[..., :1, :].expand_as(tensor)


LAYOUTS = [torch.clone, transposed, batch_last, sliced, misaligned, same_rows]
Layout = Callable[[torch.Tensor], torch.Tensor]


@pytest.mark.parametrize("tma", [False, pytest.param(True, marks=needs_tma)], ids=["strided", "tma"])
@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: Layout, batch: tuple[int, ...], tma: bool, choose: Callable[..., None]) -> None:
    """Of either matrix, and of both. For TMA, rows of 45 are copied, and those of 48 are taken as they are."""
    choose(SMALL, use_tma=tma)
    for shape in (RAGGED, (24, 72, 48)):
        left, right = make(batch, shape)
        check(layout(left), right)
        check(left, layout(right))
        check(layout(left), layout(right))


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("config", [*GEMM.STRIDED.half, SMALL], ids=label)
def test_strided_configs(config: triton.Config, batch: tuple[int, ...], choose: Callable[..., None]) -> None:
    choose(config, use_tma=False, choose_split_k=1)
    check(*make(batch))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("config", GEMM.STRIDED.wide, ids=label)
def test_wide_strided_configs(config: triton.Config, dtype: torch.dtype, choose: Callable[..., None]) -> None:
    choose(config, use_tma=False, choose_split_k=1)
    check(*make((), dtype=dtype))


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("n_parts", [2, 3])
def test_split_k(n_parts: int, dtype: torch.dtype, batch: tuple[int, ...], choose: Callable[..., None]) -> None:
    choose(SMALL, use_tma=False, choose_split_k=n_parts)
    check(*make(batch, dtype=dtype))
    check(*make(batch, (17, 33, 200), dtype))


def test_few_tiles_of_long_sums_are_split(monkeypatch: pytest.MonkeyPatch, choose: Callable[..., None]) -> None:
    """By the rules as they are."""
    launched = []
    run = GEMM.launch.run_named
    monkeypatch.setattr(
        GEMM.launch,
        "run_named",
        lambda kernel, *args, **options: launched.append(kernel.__name__) or run(kernel, *args, **options),
    )
    choose()
    check(*make((), (20, 30, 1024)))
    assert launched == ["gemm_kernel", "gemm_reduce_kernel"]


@needs_tma
@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("config", [*GEMM.TMA, SMALL], ids=label)
def test_tma_configs(config: triton.Config, batch: tuple[int, ...], choose: Callable[..., None]) -> None:
    """Where TMA stores the result, and where it cannot: 69 columns are no multiple of 16 bytes."""
    choose(config, use_tma=True, choose_stream_k=(0, 0, 0, 0))
    for shape in (RAGGED, (140, 264, 72)):
        check(*make(batch, shape))
        check(*map(transposed, make(batch, shape)))


@needs_tma
@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize(("long_parts", "short_parts"), [(1, 3), (5, 2)])
def test_stream_k(long_parts: int, short_parts: int, batch: tuple[int, ...], choose: Callable[..., None]) -> None:
    """Half of the tiles are split, a quarter of all into short parts; then all are."""
    for kept in (lambda tiles: tiles // 2, lambda tiles: 0):

        def split(tiles: int, *_: int, kept: Callable[[int], int] = kept) -> tuple[int, int, int, int]:
            return tiles - kept(tiles) - tiles // 4, long_parts, tiles // 4, short_parts

        choose(SMALL, use_tma=True, choose_stream_k=split)
        check(*make(batch))
        check(*map(transposed, make(batch)))


WAYS: dict[str, dict[str, Any]] = {
    "strided": {"use_tma": False, "choose_split_k": 1},
    "split_k": {"use_tma": False, "choose_split_k": 3},
    "tma": {"use_tma": True, "choose_stream_k": (0, 0, 0, 0)},
    "stream_k": {"use_tma": True, "choose_stream_k": lambda tiles, *_: (tiles - tiles // 2 - 1, 2, 1, 3)},
}


class Rerun:
    """Stands for the compiled kernel of a launch in the interpreter: it interprets the kernel anew."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *args: INTERPRET(self.kernel, grid)(*args)


@pytest.mark.skipif(DEVICE == "cuda", reason="the emitted tests show it on a GPU")
@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_launched_again(
    way: str, batch: tuple[int, ...], choose: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls alike, with other values in other memory, through the launches of the first."""
    choose(SMALL, **WAYS[way])

    def launching(kernel: Any, grid: tuple[int, ...]) -> Any:
        def launch(*args: Any, **options: Any) -> Rerun:
            INTERPRET(kernel, grid)(*args, **options)
            return Rerun(kernel)

        return launch

    monkeypatch.setattr(InterpretedFunction, "__getitem__", launching)
    monkeypatch.setattr(GEMM.launch, "is_replayed", lambda _: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)  # The index of the CPU.
    for seed in range(3):
        check(*make(batch, seed=seed))
        assert len(GEMM.launch.Launches.known) == 1
    GEMM.gemm(*make(batch), "tf32")
    assert len(GEMM.launch.Launches.known) == 2


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (torch.zeros(3, 4), torch.zeros(5, 6)),
        (torch.zeros(2, 3, 4), torch.zeros(5, 4)),
        (torch.zeros(2, 3, 4), torch.zeros(1, 5, 4)),
        (torch.zeros(3, 4), torch.zeros(5, 4, dtype=torch.float16)),
    ],
    ids=["inner", "one_batch", "batches", "dtypes"],
)
def test_matrices_that_do_not_fit(left: torch.Tensor, right: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=re.escape(f"left is {left.dtype} {list(left.shape)}, right {right.dtype}")):
        GEMM.gemm(left, right)


SPEC = """
[op]
name = "product"
summary = "A product."
{op}

[types]
T = "float"

[inputs]
a = "T[M, K]"
b = "{b}[K, N]"

[compute]
c = "{c}"

[outputs]
c = "a"

[grad]
wrt = [{wrt}]

[reference]
torch = "a @ b"
{more}
"""
PLAIN = {"op": "", "b": "T", "c": "sum(a * b, K)", "wrt": '"a", "b"', "more": ""}


@pytest.mark.parametrize(
    ("differs", "calls"),
    [
        ({}, ["gemm.gemm(dc, b)", "gemm.gemm(a.mT, dc.mT)"]),
        ({"op": 'precision = "tf32"'}, ['gemm.gemm(dc, b, "tf32")', 'gemm.gemm(a.mT, dc.mT, "tf32")']),
        ({"wrt": '"b"'}, ["gemm.gemm(a.mT, dc.mT)"]),
        ({"c": "sum(relu(a) * b, K)"}, []),
        ({"c": "2 * sum(a * b, K)"}, []),
        ({"b": "float"}, []),
        ({"more": '[torch]\nregister = "triton_op"\nnamespace = "of_tests"'}, []),
    ],
    ids=["plain", "precision", "one", "prologue", "scaled", "dtypes", "registered"],
)
def test_what_is_left_to_gemm(differs: dict[str, str], calls: list[str]) -> None:
    """Gradients that are matmuls of two matrices of one dtype and nothing else, which have no kernels of their own."""
    files = generate(read_spec("product.toml", SPEC.format(**PLAIN | differs)))
    assert re.findall(r"gemm\.gemm\(.*\)", files["op.py"]) == calls
    own = set(re.findall(r"def product_backward_(\w+?)_(?:tma_|stream_k_|reduce_)?kernel\(", files["kernels.py"]))
    assert len(own) == (0 if calls else 2)
    assert len(set(re.findall(r"STRIDED_(\w+)", files["configs.py"]))) == len(own)


def test_gradients_with_kernels_of_their_own_have_the_precision_of_the_forward() -> None:
    text = SPEC.format(**PLAIN | {"op": 'precision = "tf32"', "c": "2 * sum(a * b, K)"})
    kernels = generate(read_spec("product.toml", text))["kernels.py"]
    assert set(re.findall(r"input_precision=(.+?)[,)]", kernels)) == {'"tf32"'}
    assert "product_backward_da_kernel" in kernels


def test_nothing_has_its_name() -> None:
    with pytest.raises(Mistakes, match="'gemm' cannot be the name of an operator"):
        read_spec("gemm.toml", SPEC.format(**PLAIN).replace('"product"', '"gemm"'))
