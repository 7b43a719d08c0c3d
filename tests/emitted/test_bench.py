"""The benchmarks that come with generated operators, as far as no GPU is needed to try them."""

from __future__ import annotations

import importlib
import math
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.harness.importing import with_runtime
from tests.harness.oracles import DEVICE
from tests.harness.processes import python
from tritongen.operator.compile import generate
from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]
GALLERY = [path.stem for path in sorted((ROOT / "specs").glob("*.toml"))]
PRODUCTS = [name for name in GALLERY if "Strided(" in (ROOT / "generated" / name / "configs.py").read_text()]
STREAMED = ["attention", "attention_bshd", "attention_gqa", "attention_window"]
FORMS = ["alibi", "bias", "documents", "lengths", "softcap"]
PACKAGE = "bench_gallery"  # the folder of all folders, where an import finds it
BFLOAT16 = 2  # bytes


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("home")
    with_runtime(folder / PACKAGE, {})
    sys.path.insert(0, str(folder))
    yield folder / PACKAGE
    sys.path.remove(str(folder))


@cache
def written(home: Path, name: str) -> Path:
    folders = ROOT / "specs", ROOT / "examples" / "specs", Path(__file__).parent / "specs"
    path = next(folder / f"{name}.toml" for folder in folders if (folder / f"{name}.toml").exists())
    return write(home / name, path.read_text(encoding="utf-8"))


def write(folder: Path, spec: str) -> Path:
    """The files of a spec."""
    folder.mkdir(parents=True)
    for file, text in generate(read_spec(f"{folder.name}.toml", spec)).items():
        (folder / file).write_text(text, encoding="utf-8")
    importlib.invalidate_caches()
    return folder


@pytest.fixture
def harness(home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the benchmarks share, which is to work where the tests do."""
    module = importlib.import_module(f"{PACKAGE}._testing.benchmarking")
    monkeypatch.setattr(module, "DEVICE", DEVICE)
    return module


@pytest.fixture
def load(home: Path, harness: Any) -> Any:
    """Imports what an operator's benchmark says."""

    def found(name: str) -> Any:
        written(home, name)
        return importlib.import_module(f"{PACKAGE}.{name}.bench_{name}").BENCHMARK

    return found


@pytest.fixture
def counted(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures how much work there is, and no time."""
    monkeypatch.setattr(harness, "quantiles", lambda run, work: [work])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name in GALLERY if name not in [*PRODUCTS, *STREAMED, "outer"]])
def test_inputs(name: str, load: Any) -> None:
    """As many elements as were asked for, in the dtype that was, and full rows of them."""
    bench = load(name)
    for dtype in (torch.bfloat16, torch.float32):
        tensors = bench.inputs(elements=2**14, dtype=dtype)
        assert max(tensor.numel() for tensor in tensors) == 2**14
        assert dtype in {tensor.dtype for tensor in tensors}
        assert {tensor.dtype for tensor in tensors} <= {dtype, torch.bool, torch.int64}
        assert all(tensor.device.type == DEVICE for tensor in tensors)
    again = bench.inputs(elements=2**14, dtype=torch.float32)
    assert all(map(torch.equal, tensors, again))
    assert {"elements"} <= {x for report in bench.reports([2**14]) for x in report.x_names}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.usefixtures("counted")
def test_products(name: str, load: Any) -> None:
    """Matrices of such a size, and as many operations as they take."""
    bench = load(name)
    tensors = bench.inputs(size=128)
    (operations,) = bench.measure("torch", size=128)
    results = bench.op(*tensors, **bench.params)
    first = results[0] if isinstance(results, tuple) else results
    count = 2 if name == "linear_silu_mul" else 1
    assert operations == pytest.approx(2 * count * first.numel() * 128 * 1e-12)
    assert {x for report in bench.reports([128]) for x in report.x_names} == {"size"}


@pytest.mark.parametrize(
    ("name", "shapes", "matmuls"),
    [
        ("mlp", [(64, 64)] * 3, 2),
        ("lora_linear", [(64, 64)] * 4, 3),
        ("norm_linear", [(64, 64)] * 2, 1),
        ("linear_layer_norm", [(64, 64), (64, 64), (64,)], 1),
    ],
)
@pytest.mark.usefixtures("counted")
def test_steps_with_matmuls(name: str, shapes: list[tuple[int, ...]], matmuls: int, load: Any, harness: Any) -> None:
    """Every side of every matmul is of the size, and the operations are those of all of them, twice in the backward."""
    bench = load(name)
    tensors = bench.inputs(size=64, dtype=torch.float32)
    assert [tensor.shape for tensor in tensors] == shapes
    assert bench.measure("torch", size=64) == pytest.approx([2 * matmuls * 64**3 * 1e-12])
    assert bench.measure("torch", True, size=64) == pytest.approx([4 * matmuls * 64**3 * 1e-12])
    assert (bench.unit, bench.sizes) == ("TFLOP/s", harness.ByOperations.sizes)
    torch.testing.assert_close(bench.op(*tensors), bench.reference(*tensors), rtol=1e-3, atol=1e-2)


@pytest.mark.usefixtures("counted")
def test_steps_that_stream(load: Any, home: Path, harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The matmuls of what streams are counted where the mask leaves scores, and others in full."""
    bench = load("retention_norm")
    q, k, v, weight = bench.inputs(size=32)
    assert (q.shape, k.shape, v.shape, weight.shape) == ((128, 32, 128), (128, 32, 128), (128, 32, 128), (128,))
    assert bench.operations(32) == 4 * 128 * 128 * 32 * 33 / 2
    write(home / "projected", PROJECTED)
    bench = importlib.import_module(f"{PACKAGE}.projected.bench_projected").BENCHMARK
    monkeypatch.setattr(harness, "DEVICE", "meta")
    shapes = [(4, 32, 1024, 128), (4, 32, 1024, 128), (4, 32, 1024, 128), (32, 128, 1024)]
    assert [one.shape for one in bench.make(1024)] == shapes
    assert bench.operations(1024) == 4 * (4 * 32) * 1024**2 * 128 + 2 * 4 * 1024**2 * 32 * 128


PROJECTED = """
[op]
name = "projected"
[types]
T = "float"
[inputs]
q = "T[B, H, M, D]"
k = "T[B, H, N, D]"
v = "T[B, H, N, E]"
w = "T[H, E, C]"
[compute]
o = "sum(softmax(sum(q * k, D), N) * v, N)"
y = "sum(o * w, H, E)"
[outputs]
y = "q"
"""


def test_sizes_of_steps(load: Any, home: Path, harness: Any) -> None:
    """Those for which no tensor is too large; [bench] gives others, and lengths."""

    def given(name: str, lengths: str) -> Any:
        write(home / name, SCORED.replace("scored", name) + lengths)
        return importlib.import_module(f"{PACKAGE}.{name}.bench_{name}").BENCHMARK

    bench = given("scored", "")
    assert [one.shape for one in bench.inputs(size=32)] == [(8, 32, 32), (8, 32, 32), (8, 32, 32)]
    assert (bench.sizes, bench.operations(32)) == (harness.ByOperations.sizes, 4 * 8 * 32**3)
    bench = given("scored_large", "[bench]\nB = 128\n")
    assert bench.sizes == (512, 1024, 2048, 4096)
    bench = given("scored_short", "[bench]\nD = 16\nM = [8, 24]\n")
    assert [one.shape for one in bench.inputs(size=24)] == [(8, 24, 16), (8, 24, 16), (8, 24, 24)]
    # Where they are sums of 16, scores are computed twice rather than stored.
    assert (bench.sizes, bench.operations(24)) == ((8, 24), 2 * 8 * (2 * 24**2 * 16 + 24**3))


SCORED = """
[op]
name = "scored"
[inputs]
q = "float[B, M, D]"
k = "float[B, N, D]"
v = "float[B, N, E]"
[compute]
s = "tanh(sum(q * k, D))"
p = "s * rsqrt(sum(s * s, M) + 1)"
y = "sum(p * v, N)"
[outputs]
y = "q"
s = "q"
"""


@pytest.mark.parametrize("name", STREAMED)
@pytest.mark.usefixtures("counted")
def test_streams(name: str, load: Any) -> None:
    """4 times 32 heads, in dimensions as torch's fused kernels ask for, and the operations of scores that are left."""
    bench = load(name)
    q, k, v = bench.inputs(size=64)
    assert q.abs().max() <= 1
    if name == "attention_bshd":
        q, k, v = (one.transpose(1, 2) for one in (q, k, v))
    assert q.shape == (4, 32, 64, 128)
    assert k.shape == v.shape == (4, 32 if name in ("attention", "attention_window") else 8, 64, 128)
    left = torch.ones(2048, 2048, dtype=torch.bool).tril()
    if name == "attention_window":
        left = left.triu(-1023)
    assert bench.operations(2048) == 4 * 128 * 128 * int(left.sum())
    assert bench.measure("torch", size=64) == pytest.approx([4 * 128 * 128 * 64 * 65 / 2 * 1e-12])
    assert {x for report in bench.reports([128]) for x in report.x_names} == {"size"}


def test_lengths_that_a_spec_gives(load: Any, home: Path, harness: Any) -> None:
    """Of decoding one row and long caches, in pages or not; of a product a side, and of rows what they are long."""
    for name in ("attention_decode", "attention_paged"):
        bench = load(name)
        assert bench.sizes == (8192, 32768, 131072)
        q, k, _, *_, length = bench.inputs(size=64)
        assert q.shape == (16, 32, 1, 128)
        assert k.shape == ((64, 16, 8, 128) if name == "attention_paged" else (16, 8, 64, 128))
        assert int(length.min()) >= max(bench.sizes)
        assert (type(bench), bench.unit) == (harness.ByLength, "GB/s")
        tensors = bench.inputs(size=16)
        assert bench.work(tensors, False, 16) == (harness.bytes_of(*tensors) + 2 * 16 * 32 * 128) * 1e-9

    def given(name: str, lengths: str) -> Any:
        text = (ROOT / "specs" / f"{name}.toml").read_text(encoding="utf-8")
        write(home / f"{name}_given", f"{text.replace(name, f'{name}_given', 1)}\n[bench]\n{lengths}\n")
        return importlib.import_module(f"{PACKAGE}.{name}_given.bench_{name}_given").BENCHMARK

    bench = given("matmul", "M = 3\nK = [16, 64]")
    assert [one.shape for one in bench.inputs(size=32)] == [(3, 32), (32, 32)]
    assert (bench.sizes, bench.operations(32)) == ((16, 64), 2 * 3 * 32 * 32)
    bench = given("bij_bjk", "B = 5")
    assert [one.shape for one in bench.inputs(size=32)] == [(5, 32, 32)] * 2
    assert (bench.sizes, bench.operations(32)) == (harness.ByOperations.sizes, 2 * 5 * 32**3)
    (x,) = given("softmax", "N = 96").inputs(elements=960)
    assert x.shape == (10, 96)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [*STREAMED, *(f"attention_{form}" for form in FORMS)])
def test_peers_of_attention(name: str, load: Any, harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every peer computes what the reference does; what is compiled is traced here, and no more."""
    compiled = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **options: compiled(f, **{"backend": "aot_eager", **options}))
    bench = load(name)
    backends = [f"SDPA {one}" for one in ("cuDNN", "flash", "efficient", "math")]
    plain = name.endswith(("window", "alibi", "documents", "softcap"))  # Their references are not SDPA.
    assert bench.providers[3:-1] == [*([] if plain else backends), "flex_attention"]
    tensors = bench.inputs(size=40, dtype=torch.float32)
    expected = bench.run("torch", False, tensors)()
    for provider in ("flex_attention",) if plain else ("SDPA math", "flex_attention"):
        with bench.compared[provider].under():
            torch.testing.assert_close(bench.run(provider, False, tensors)(), expected)


def test_peers_run_under_their_backend(load: Any, harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}

    def note(run: Any, work: float) -> list[float]:
        found[provider] = (torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.flash_sdp_enabled())
        return [work]

    monkeypatch.setattr(harness, "quantiles", note)
    for provider in ("torch", "SDPA math", "SDPA flash"):
        load("attention").measure(provider, size=16)
    assert found == {"torch": (True, True), "SDPA math": (True, False), "SDPA flash": (False, True)}


@pytest.mark.parametrize("provider", ["SDPA math", "torch.compile", "flex_attention"])
def test_a_peer_that_fails_has_no_rate(
    provider: str, load: Any, harness: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(run: Any, work: float) -> list[float]:
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to")

    monkeypatch.setattr(torch, "compile", lambda function, dynamic: function)
    monkeypatch.setattr(harness, "quantiles", fail)
    bench = load("attention")
    assert all(math.isnan(rate) for rate in bench.measure(provider, size=16))
    assert capsys.readouterr().out == f"{provider} at size = 16: CUDA out of memory. Tried to\n"
    with pytest.raises(torch.OutOfMemoryError):
        bench.measure("attention", size=16)


def test_peers_by_any_name(home: Path, harness: Any) -> None:
    """What a spec calls as the benchmark calls its own is what the spec means; lambdas have names of their own."""
    write(home / "scaled", SCALED)
    bench = importlib.import_module(f"{PACKAGE}.scaled.bench_scaled").BENCHMARK
    assert bench.providers == ["scaled", "torch", "torch.compile", "make", "draw", "torch's copy"]
    tensors = bench.inputs(elements=2**12, dtype=torch.float32)
    expected = bench.run("torch", False, tensors)()
    for provider in ("make", "draw"):
        torch.testing.assert_close(bench.run(provider, False, tensors)(), expected)


def test_a_peer_of_a_package_that_may_be_installed(
    home: Path, harness: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without the package it is left out; with it, its function is called."""
    write(home / "halved", HALVED)
    bench = importlib.import_module(f"{PACKAGE}.halved.bench_halved").BENCHMARK
    assert bench.providers == ["halved", "torch", "torch.compile", "torch's copy"]
    (tmp_path / "quack").mkdir()
    (tmp_path / "quack" / "__init__.py").write_text("")
    (tmp_path / "quack" / "halves.py").write_text("def halve(x):\n    return x / 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert bench.providers == ["halved", "torch", "torch.compile", "quack", "torch's copy"]
    tensors = bench.inputs(elements=2**12, dtype=torch.float32)
    torch.testing.assert_close(bench.run("quack", False, tensors)(), tensors[0] / 2)


HALVED = """
[op]
name = "halved"
[inputs]
x = "float[A, N]"
[compute]
y = "x * 0.5"
[outputs]
y = "x"
[bench.quack]
function = "quack.halves.halve"
torch = "halve(x)"
"""
SCALED = """
[op]
name = "scaled"
[inputs]
torch = "float[A, N]"
benchmarking = "float[N]"
[params]
elements = 2.0
[compute]
y = "torch * benchmarking * elements"
[outputs]
y = "torch"
[bench.make]
torch = "torch * reference"
given = { reference = "benchmarking * elements" }
[bench.draw]
torch = "torch * (lambda benchmarking: benchmarking * Any)(benchmarking)"
given.Any = "benchmarking.new_full((1,), elements)"
"""


@pytest.mark.usefixtures("counted")
def test_operations_of_an_attention_backward(load: Any) -> None:
    """The scores are computed again, and of two matmuls each factor has a gradient: five where the forward has two."""
    forward, backward = (load("attention").measure("SDPA math", backward, size=16) for backward in (False, True))
    assert backward == pytest.approx([2.5 * forward[0]])


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("outer", [(16,), (4096,)]),
        ("matvec", [(16, 4096), (4096,)]),
        ("gelu", [(2**16,)]),
        ("vector_add", [(2**16,), (2**16,)]),
        ("add_bias", [(16, 4096), (4096,)]),
        ("softmax", [(16, 4096)]),
        ("mse_loss", [(2**16,), (2**16,)]),
        ("cross_entropy", [(16, 4096), (16,)]),
        ("tril", [(1, 16, 4096)]),
        ("rope", [(1, 512, 128), (512, 64), (512, 64)]),
    ],
)
def test_shapes(name: str, shapes: list[tuple[int, ...]], load: Any) -> None:
    assert [tuple(tensor.shape) for tensor in load(name).make(2**16)] == shapes


def test_shapes_of_many_elements(load: Any, harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "DEVICE", "meta")
    assert [tensor.shape for tensor in load("rope").make(2**28)] == [(512, 4096, 128), (4096, 64), (4096, 64)]
    assert [tensor.shape for tensor in load("tril").make(2**28)] == [(16, 4096, 4096)]


def test_length_of_rows(load: Any) -> None:
    softmax, cross_entropy, gelu = load("softmax"), load("cross_entropy"), load("gelu")
    assert [tensor.shape for tensor in softmax.make(2**16, N=256)] == [(256, 256)]
    assert [tensor.shape for tensor in cross_entropy.make(2**16, V=256)] == [(256, 256), (256,)]
    assert [report.x_names for report in cross_entropy.reports([2**20])] == [["elements"], ["V"]]
    assert [report.x_names for report in gelu.reports([2**20])] == [["elements"]]


def test_values_lie_where_the_spec_says(load: Any) -> None:
    logits, target = load("cross_entropy").inputs(elements=2**14, V=64)
    assert logits.min() < -3 < 3 < logits.max()
    assert (target.min(), target.max()) == (0, 63)
    x, target = load("kl_div").inputs(elements=2**14)
    assert x.max() <= 0 <= target.min()


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32])
def test_other_dtypes(dtype: torch.dtype, load: Any) -> None:
    (x,) = load("sum").make(2**14, dtype=dtype)
    assert x.dtype == dtype
    assert len(x.unique()) > 1


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("vector_add", 3 * 8192 * BFLOAT16),
        ("masked_fill", 2 * 8192 * BFLOAT16 + 8192),
        ("where", 2 * 8192 * BFLOAT16 + 8192 + 8192 * BFLOAT16),
        ("softmax", 2 * 8192 * BFLOAT16),
        ("layer_norm", 2 * 8192 * BFLOAT16 + 2 * 4096 * BFLOAT16),
        ("fused_add_rms_norm", 4 * 8192 * BFLOAT16 + 4096 * BFLOAT16),
        ("cross_entropy", 8192 * BFLOAT16 + 2 * 8 + 2 * BFLOAT16),
        ("argmax", 8192 * BFLOAT16 + 2 * 8),
        ("any", 8192 * BFLOAT16 + 2),
        ("mse_loss", 2 * 8192 * BFLOAT16 + BFLOAT16),
        ("rope", 2 * 8192 * BFLOAT16 + 2 * 64 * 64 * BFLOAT16),
    ],
)
@pytest.mark.usefixtures("counted")
def test_bytes(name: str, count: int, load: Any) -> None:
    bench = load(name)
    for provider in bench.providers[:2]:
        assert bench.measure(provider, elements=8192) == pytest.approx([count * 1e-9])


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("gelu", 3 * 8192 * BFLOAT16),  # x; dy and dx
        ("softmax", 3 * 8192 * BFLOAT16),  # y; dy and dx
        ("swiglu", 5 * 8192 * BFLOAT16),  # a and b; dy, da and db
        ("sum", 8192 * BFLOAT16 + 2 * BFLOAT16),  # dy and dx alone
        ("masked_fill", 2 * 8192 * BFLOAT16 + 8192),  # the mask; dy and dx
    ],
)
@pytest.mark.usefixtures("counted")
def test_bytes_of_the_backward(name: str, count: int, load: Any) -> None:
    """What it reads of the forward is counted, which may be less or other than the inputs."""
    bench = load(name)
    for provider in bench.providers[:2]:
        assert bench.measure(provider, elements=8192, backward=True) == pytest.approx([count * 1e-9])


@pytest.mark.usefixtures("counted")
def test_operations_of_the_backward(load: Any) -> None:
    """Each factor's gradient takes as many as the product."""
    forward, backward = (load("matmul").measure("torch", backward, size=64) for backward in (False, True))
    assert backward == pytest.approx([2 * forward[0]])


def test_backward_is_measured_where_it_can_be_repeated(load: Any) -> None:
    assert load("cross_entropy").wrt == (0,)
    assert not load("cross_entropy_in_place").wrt
    assert not load("argmax").wrt


@pytest.mark.parametrize("name", ["gelu", "cross_entropy", "linear_gelu", "rms_norm"])
def test_same_gradients_as_the_peer(name: str, load: Any, harness: Any) -> None:
    bench = load(name)
    tensors = bench.inputs(**{bench.argument: 128 if name == "linear_gelu" else 8192}, dtype=torch.float32)
    found = []
    for provider in bench.providers[:2]:
        torch.manual_seed(1)
        found.append(harness.Graph(bench.function(provider), tensors, bench.wrt).backward())
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-3)


def test_rates(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Milliseconds become work per second: the median, the lower and the higher end."""
    monkeypatch.setattr(harness.triton.testing, "do_bench", lambda _, quantiles: [1 + q for q in quantiles])
    assert harness.quantiles(lambda: None, 3) == pytest.approx([2000, 3000 / 1.8, 2500])


@pytest.mark.parametrize("name", ["clamp", "cross_entropy", "fused_add_rms_norm", "kl_div", "rope", "sum", "where"])
def test_same_values_as_the_peer(name: str, load: Any) -> None:
    """What is timed against each other computes the same."""
    bench = load(name)
    tensors = bench.inputs(elements=8192, dtype=torch.float32)
    got, want = (bench.function(provider)(*tensors) for provider in bench.providers[:2])
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["softmax", "all"])
def test_report(
    name: str,
    load: Any,
    harness: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    bench = load(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(harness.ByBytes, "measure", lambda bench, provider, **_: [900.0, 800.0, 950.0])
    monkeypatch.setattr(harness, "copy_rate", lambda: [1000.0, 990.0, 1010.0])
    saved = tmp_path / "new" / "results"
    monkeypatch.setattr(sys, "argv", ["bench", "--sizes", "4096", "8192", "--save-path", str(saved)])
    bench.main()
    files = [f"{name}-{x}.{kind}" for x in ("N", "elements") for kind in ("csv", "png")]
    assert sorted(path.name for path in saved.iterdir()) == sorted([*files, "results.html"])
    printed = capsys.readouterr().out
    assert "Shares of torch's copy, 1,000 GB/s" in printed
    assert "90.0%" in printed


@pytest.mark.parametrize("backward", [False, True])
def test_kernels(backward: bool, load: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """torch's profiler lists what a call runs: here, of torch's own."""
    bench = load("softmax")
    bench.print_kernels(backward, elements=8192)
    printed = capsys.readouterr().out
    assert "Self CPU" in printed
    assert "aten::empty" in printed


def test_run_as_a_script_without_a_gpu(home: Path, tmp_path: Path) -> None:
    script = written(home, "sum") / "bench_sum.py"
    done = python(str(script), cwd=tmp_path, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
    assert (done.returncode, done.stderr) == (4, "bench_sum.py needs a GPU\n")
