"""What Gluon kernels of float8 compute: on Hopper; elsewhere emulated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.cases.gluon import DEVICE, IS_HOPPER, kernel_of, launched, some
from tests.harness.importing import built, runtime_module, runtime_of
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

MATRICES = {"a": "float8[M, K]", "b": "float8[N, K]"}
GROUPED = {"a": "float8[M, (G J=128)]", "b": "float8[(P Q=128), (G J=128)]"}
SCALES = {"a_scale": "float32[M, G]", "b_scale": "float32[P, G]"}
BY_GROUP = "sum(a * a_scale * b * b_scale, G, J)"
EACH = {"a_scale": "float32[M]", "b_scale": "float32[N]"}
BY_ROW = "sum(a * b, K) * a_scale * b_scale"


def spec_of(inputs: dict[str, str], compute: str = BY_ROW, output: str = "bfloat16", params: str = "") -> Spec:
    given = "\n".join(f'{name} = "{kind}"' for name, kind in inputs.items())
    text = f'[op]\nname = "multiply"\nsummary = "Multiplies."\n[inputs]\n{given}\n[params]\n{params}\n'
    return read_spec("multiply.toml", f'{text}[compute]\ny = "{compute}"\n[outputs]\ny = "{output}"\n')


@pytest.fixture
def multiplying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[ModuleType, list[str]]]:
    """An operator of a spec that multiplies all matrices by TMA, in a given tile, and the kernels that it launches."""

    def make(spec: Spec, tile: str = "") -> tuple[ModuleType, list[str]]:
        operator = built(spec, tmp_path)
        rules: Any = runtime_of(operator, "matmul_heuristics")
        names = launched(operator, monkeypatch, "matmul_heuristics")
        monkeypatch.setattr(rules, "use_tma", lambda *_: True)
        monkeypatch.setattr(rules, "persistent_programs", lambda _: 2)
        if tile:
            known = {f"{one.block_m} x {one.block_n}": one for one in (*rules.OF_ALL, *rules.OF_GROUPS)}
            monkeypatch.setattr(rules, "gluon_tile", lambda *_: known[tile])
        return operator, names

    return make


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Normal numbers of float8, or positive ones."""
    random = torch.Generator().manual_seed(seed)
    make = torch.rand if dtype == torch.float32 else torch.randn
    return make(*shape, generator=random).to(DEVICE, dtype)


def check(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Products of e5m2 have large terms that cancel: what is rounded is small beside the greatest of all."""
    assert found.dtype == torch.bfloat16
    assert float((found.double() - wanted).abs().max() / wanted.abs().max()) < 4e-3


FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize(
    ("tile", "sizes"),
    some(
        [
            ("128 x 128", (300, 264, 1040)),
            ("192 x 128", (400, 520, 528)),
            ("128 x 128", (129, 136, 16)),
            ("192 x 128", (130, 136, 16)),
            ("128 x 128", (1000, 1000, 3000)),
        ],
        0,
        1,
        2,
        3,
    ),
)
def test_scales_of_rows_and_columns(
    tile: str, sizes: tuple[int, int, int], dtype: torch.dtype, multiplying: Callable[..., Any]
) -> None:
    """Of lengths that no tile divides: several tiles for each program, and more products than there are in a sum."""
    operator, names = multiplying(spec_of(MATRICES | EACH), tile)
    m, n, k = sizes
    a, b, of_a, of_b = drawn(m, k, dtype=dtype), drawn(n, k, dtype=dtype, seed=1), drawn(m), drawn(n, seed=2)
    wanted = a.double() @ b.double().mT * of_a[:, None].double() * of_b.double()
    for _ in range(2 if IS_HOPPER else 1):
        check(operator.multiply(a, b, of_a, of_b), wanted)
    assert {*names} == {"multiply_gluon_kernel"}


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("sizes", some([(300, 384, 512), (150, 256, 1280), (1000, 1152, 3072)], 0, 1))
def test_scales_of_groups(sizes: tuple[int, int, int], dtype: torch.dtype, multiplying: Callable[..., Any]) -> None:
    """Where a tile is cut off, its second block of columns may be outside of the result."""
    operator, names = multiplying(spec_of(GROUPED | SCALES, BY_GROUP, "bfloat16[M, (P Q)]"), "128 x 256")
    m, n, k = sizes
    a, b = drawn(m, k, dtype=dtype), drawn(n, k, dtype=dtype, seed=1)
    of_a, of_b = drawn(m, k // 128), drawn(n // 128, k // 128, seed=2)
    left = a.double() * of_a.double().repeat_interleave(128, 1)
    right = b.double() * of_b.double().repeat_interleave(128, 0).repeat_interleave(128, 1)
    for _ in range(2 if IS_HOPPER else 1):
        check(operator.multiply(a, b, of_a, of_b), left @ right.mT)
    assert {*names} == {"multiply_gluon_kernel"}


def test_the_math_behind_the_sums(multiplying: Callable[..., Any]) -> None:
    """A bias of half precision, a number for all, a param, and a function."""
    more = {"scale": "float32[]", "bias": "bfloat16[N]"}
    spec = spec_of(
        MATRICES | more, "exp(minimum(sum(a * b, K) * scale + bias, limit))", params='limit = { type = "float" }'
    )
    operator, names = multiplying(spec, "128 x 128")
    a, b = drawn(200, 256, dtype=FLOAT8[0]), drawn(264, 256, dtype=FLOAT8[0], seed=1)
    scale, bias = torch.tensor(0.01, device=DEVICE), drawn(264).bfloat16()
    wanted = (a.double() @ b.double().mT * scale.double() + bias.double()).clamp(max=0.5).exp()
    check(operator.multiply(a, b, scale, bias, limit=0.5), wanted)
    assert {*names} == {"multiply_gluon_kernel"}


def test_the_math_behind_the_sums_of_groups(multiplying: Callable[..., Any]) -> None:
    """For both blocks of the columns of a tile, of which one is outside; with a scale that is made of others."""
    more = {"bias": "float32[(P Q)]", "weight": "float32[M]"}
    compute = BY_GROUP.replace("* b_scale", "* exp(b_scale)")
    spec = spec_of(GROUPED | SCALES | more, f"{compute} * weight + bias", "bfloat16[M, (P Q)]")
    operator, names = multiplying(spec, "128 x 256")
    a, b = drawn(150, 512, dtype=FLOAT8[0]), drawn(384, 512, dtype=FLOAT8[0], seed=1)
    of_a, of_b, bias, weight = drawn(150, 4), drawn(3, 4, seed=2), drawn(384), drawn(150, seed=3)
    left = a.double() * of_a.double().repeat_interleave(128, 1)
    right = b.double() * of_b.double().exp().repeat_interleave(128, 0).repeat_interleave(128, 1)
    wanted = left @ right.mT * weight[:, None].double() + bias.double()
    check(operator.multiply(a, b, of_a, of_b, bias, weight), wanted)
    assert {*names} == {"multiply_gluon_kernel"}


@pytest.mark.parametrize(
    "laid_out",
    [
        pytest.param(lambda x: x.T.contiguous().T, id="columns"),
        pytest.param(lambda x: torch.cat([x, x[:, :24]], 1)[:, : x.shape[1]], id="rows 24 bytes further apart"),
    ],
)
def test_matrices_that_are_copied(
    laid_out: Callable[[torch.Tensor], torch.Tensor], multiplying: Callable[..., Any]
) -> None:
    operator, names = multiplying(spec_of(MATRICES | EACH), "128 x 128")
    a, b, of_a, of_b = (
        drawn(130, 144, dtype=FLOAT8[0]), drawn(136, 144, dtype=FLOAT8[0], seed=1), drawn(130), drawn(136, seed=2)
    )  # fmt: skip
    wanted = a.double() @ b.double().mT * of_a[:, None].double() * of_b.double()
    for _ in range(2 if IS_HOPPER else 1):
        check(operator.multiply(laid_out(a), laid_out(b), of_a, of_b), wanted)
    assert names[-1] == "multiply_gluon_kernel"


def test_results_that_are_not_written_by_tma(multiplying: Callable[..., Any]) -> None:
    """Where rows do not begin at 16 bytes the plain kernel multiplies."""
    operator, names = multiplying(spec_of(MATRICES | EACH), "128 x 128")
    a, b, of_a, of_b = drawn(130, 128).to(FLOAT8[0]), drawn(130, 128).to(FLOAT8[0]), drawn(130), drawn(130)
    if IS_HOPPER:
        operator.multiply(a, b, of_a, of_b)
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime_of(operator, "launch"), "run_stages", lambda *_: names.append("plain"))
            operator.multiply(a, b, of_a, of_b)
    assert "multiply_gluon_kernel" not in names


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(spec_of(MATRICES | EACH | {"c": "bfloat16[M, N]"}, f"{BY_ROW} + c"), id="a matrix besides"),
        pytest.param(spec_of(MATRICES | EACH | {"c": "float32[N] = 1"}, f"{BY_ROW} * c"), id="what may be left out"),
        pytest.param(spec_of(MATRICES | EACH, output="float32"), id="float32"),
        pytest.param(spec_of({"a": "float8[B, M, K]", "b": "float8[B, N, K]"}, "sum(a * b, K)"), id="a batch"),
        pytest.param(spec_of(MATRICES, "sum(a * b, K) * index(M)"), id="positions"),
        pytest.param(spec_of({"a": "int8[M, K]", "b": "int8[N, K]"}, "sum(a * b, K)", "float16"), id="int8"),
        pytest.param(
            spec_of(
                {"a": "float8[M, (G J=64)]", "b": "float8[N, (G J=64)]", "a_scale": "float32[M, G]"},
                "sum(a * a_scale * b, G, J)",
            ),
            id="groups of 64",
        ),
        pytest.param(
            spec_of(
                {"a": "float8[M, (G J=128)]", "b": "float8[N, (G J=128)]", "b_scale": "float32[N, G]"},
                "sum(a * b * b_scale, G, J)",
            ),
            id="scales of columns",
        ),
    ],
)
def test_other_math_has_plain_kernels(spec: Spec) -> None:
    assert kernel_of(spec) == ""


CPU = torch.device("cpu")
E4M3, HALF = torch.float8_e4m3fn, torch.bfloat16


@pytest.mark.parametrize(
    ("sizes", "dtypes", "has_groups", "tile"),
    [
        ((4096, 4096, 4096), (E4M3, E4M3, HALF), False, (128, 128)),
        ((8192, 8192, 8192), (E4M3, E4M3, HALF), False, (192, 128)),
        ((4096, 7168, 2048), (E4M3, E4M3, HALF), False, (128, 128)),
        ((4096, 4096, 4096), (E4M3, E4M3, HALF), True, (128, 256)),
        ((4096, 4096, 384), (E4M3, E4M3, HALF), True, None),
        ((1024, 1024, 8192), (E4M3, E4M3, HALF), False, None),
        ((4096, 4096, 4096), (E4M3, FLOAT8[1], HALF), False, None),
        ((4096, 4096, 4096), (E4M3, E4M3, torch.float32), False, None),
    ],
)
def test_the_choice(
    sizes: tuple[int, int, int],
    dtypes: tuple[torch.dtype, ...],
    has_groups: bool,
    tile: tuple[int, int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By waves; not for short sums of groups, where most SMs are idle, and for dtypes that no kernel has."""
    rules: Any = runtime_module("matmul_heuristics")
    choose = rules.gluon_tile.__wrapped__
    monkeypatch.setattr(rules, "capability", lambda _: (9, 0))
    found = choose(CPU, dtypes, *sizes, has_groups)
    assert (None if found is None else found[:2]) == tile
    monkeypatch.setattr(rules, "capability", lambda _: (10, 0))
    assert choose(CPU, dtypes, *sizes, has_groups) is None
