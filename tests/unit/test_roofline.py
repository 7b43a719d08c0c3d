"""What `tritongen plan` counts, and how it prints that."""

from dataclasses import replace
from pathlib import Path

import pytest

from tritongen.lang.ir import Dtype
from tritongen.operator.compile import generate
from tritongen.roofline.account import Account, account_of, warnings_of
from tritongen.roofline.devices import DEVICES, LAUNCH, BadDevice, device_of
from tritongen.roofline.sizes import resolved
from tritongen.roofline.text import as_text
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

ROOT = Path(__file__).parents[2]
H100 = DEVICES["h100"]
NORM = """\
rms_norm: RMS normalisation over the last axis, with weight.
... = 8,192, N = 4,096; times at the roofline of an H100 SXM, at least 2 us a step

forward
  x, weight           -> [1 row-wise   ] -> y, rstd
backward
  dy, x, weight, rstd -> [2 column sums] -> dx, dweight

1  _rms_norm_forward: row-wise
   rstd = rsqrt(mean(x * x, N) + eps)
   y = x * rstd * weight
   reads       x[..., N]  bfloat16  67.1 MB
               weight[N]  bfloat16  8.19 kB
   writes      y[..., N]  bfloat16  67.1 MB
               rstd[...]  float32   32.8 kB  saved for the backward, read by step 2
   kernels     kernel  what it is for
   costs       134 MB, 40.1 us, 40% of total

2  _rms_norm_backward: column sums
   dy_weight = dy * weight
   dx = rstd * (dy_weight - rstd * rstd * mean(dy_weight * x, N) * x)
   dweight = sum(rstd * (dy * x), ...)
   reads       dy[..., N]  bfloat16  67.1 MB
               x[..., N]   bfloat16  67.1 MB
               weight[N]   bfloat16  8.19 kB
               rstd[...]   float32   32.8 kB
   writes      dx[..., N]  bfloat16  67.1 MB
               dweight[N]  bfloat16  8.19 kB
   kernels     kernel  what it is for
   costs       201 MB, 60.1 us, 60% of total

forward         1 step, 134 MB, 40.1 us
backward        1 step, 201 MB, 60.1 us
both            2 steps, 336 MB, 100 us
saved           rstd: 32.8 kB
kept alive      x, weight: 67.1 MB
"""
STEPS = """\
steps
M = K = N = 1,024, N_strips = 16; times at the roofline of an H100 SXM, at least 2 us a step

forward
  x, w                            -> [1 contraction] -> y_max_strips, y_sum_exps_strips
  y_max_strips, y_sum_exps_strips -> [2 row-wise   ] -> y

1  _steps_y_max_strips: contraction
   h = gelu(sum(x * w, K))
   y_max_strips = strip_max(h, N)
   y_sum_exps_strips = strip_exps(h, N)
   reads       x[M, K]                         bfloat16   2.1 MB
               w[N, K]                         bfloat16   2.1 MB
   writes      y_max_strips[M, N_strips]       float32   65.5 kB  read by step 2
               y_sum_exps_strips[M, N_strips]  float32   65.5 kB  read by step 2
   kernels     kernel  what it is for
   costs       4.33 MB, 2.15 GFLOP of matmuls, 2.17 us, 52% of total

2  _steps_y: row-wise
   y_max = max(y_max_strips, N_strips)
   y_shift = where(isinf(y_max), 0.0, y_max)
   y_sum = sum(y_sum_exps_strips * exp(y_max_strips - y_shift), N_strips)
   y = log(y_sum) + y_shift
   reads       y_max_strips[M, N_strips]       float32   65.5 kB
               y_sum_exps_strips[M, N_strips]  float32   65.5 kB
   writes      y[M]                            bfloat16  2.05 kB
   kernels     kernel  what it is for
   costs       133 kB, 2 us, 48% of total

forward         2 steps, 4.46 MB, 2.15 GFLOP of matmuls, 4.17 us
host            not counted: a call takes 10 to 25 us on the CPU, longer than these kernels may
stored          y_max_strips, y_sum_exps_strips: 131 kB
"""


def gallery(name: str) -> Spec:
    return read_spec(name, (ROOT / "specs" / f"{name}.toml").read_text(encoding="utf-8"))


def spec(inputs: str, compute: str, more: str = "") -> Spec:
    tables = [("inputs", inputs), ("compute", compute)]
    lines = "".join(f"[{name}]\n" + text.replace("; ", "\n") + "\n" for name, text in tables)
    return read_spec("steps.toml", f'[op]\nname = "steps"\n{lines}[outputs]\ny = "auto"\n{more}')


def printed(account: Account) -> str:
    """The text, without what the kernels of a family are called."""
    kernels = (("kernel", "what it is for"),)
    forward, backward = (
        tuple(replace(step, kernels=kernels) for step in steps) for steps in (account.forward, account.backward)
    )
    return as_text(replace(account, forward=forward, backward=backward))


def test_text_of_a_kernel_and_its_gradient() -> None:
    assert printed(account_of(gallery("rms_norm"), {"...": 8192, "N": 4096}, H100)) == NORM


def test_text_of_steps() -> None:
    found = spec('x = "float[M, K]"; w = "float[N, K]"', 'h = "gelu(sum(x * w, K))"; y = "logsumexp(h, N)"')
    assert printed(account_of(found, dict.fromkeys("MNK", 1024), H100)) == STEPS


def test_matmuls_take_as_long_as_tensor_cores_do() -> None:
    found = spec('x = "{0}[M, K]"; w = "{0}[N, K]"'.format("float16"), 'y = "sum(x * w, K)"')
    (step,) = account_of(found, {"M": 8192, "N": 4096, "K": 2048}, H100).forward
    assert step.flops == 2 * 8192 * 4096 * 2048
    assert step.seconds == pytest.approx(step.flops / 989e12)
    (short,) = account_of(found, {"M": 8192, "N": 4096, "K": 16}, H100).forward
    assert short.seconds == pytest.approx(2 * (8192 * 16 + 4096 * 16 + 8192 * 4096) / 3350e9)


def test_numbers_of_rows_do_not_widen_what_is_multiplied() -> None:
    """They are float32, the matrices that they scale and the tensor cores' operands are not."""
    text = (ROOT / "examples" / "specs" / "norm_linear.toml").read_text(encoding="utf-8")
    account = account_of(read_spec("norm_linear.toml", text), dict.fromkeys("MNK", 4096), H100)
    matmuls = [step for step in account.steps if step.flops]
    assert [step.seconds for step in matmuls] == pytest.approx([2 * 4096**3 / 989e12] * 3)


def test_a_step_takes_no_less_than_a_launch() -> None:
    found = spec('x = "float[N]"', 'y = "exp(x)"')
    (step,) = account_of(found, {"N": 1}, H100).forward
    assert step.seconds == LAUNCH
    (longer,) = account_of(found, {"N": 1 << 30}, H100).forward
    assert longer.seconds == pytest.approx(4 * 2**30 / 3350e9)


def test_float8_is_multiplied_on_its_tensor_cores() -> None:
    (step,) = account_of(gallery("fp8_matmul_scaled"), dict.fromkeys("MNK", 4096), H100).forward
    assert step.seconds == pytest.approx(2 * 4096**3 / 1979e12)


def test_a_build_plans_with_the_lengths_that_plan_counts_with() -> None:
    text = (ROOT / "examples" / "specs" / "lora_linear.toml").read_text(encoding="utf-8")
    found = read_spec("lora_linear.toml", text)
    account, files = account_of(found, {}, H100), generate(found)
    assert dict(account.lengths)["R"] == 64
    assert all(f"def {step.function}(" in files["op.py"] for step in account.steps)


def test_a_device_of_ones_own() -> None:
    own = device_of("3.3TB/s,990TFLOP/s")
    assert (own.bandwidth, own.peak("bfloat16", "ieee"), own.peak("float8_e5m2", "ieee")) == (33e11, 99e13, 198e13)
    assert device_of("1.5 PB/s, 2TFLOP/s, float32=1.5GFLOP/s").flops["float32"] == 15 * 10**8
    assert device_of("b200") is DEVICES["b200"]
    found = spec('x = "float[N]"', 'y = "exp(x)"')
    (step,) = account_of(found, {"N": 1 << 28}, device_of("1TB/s,100TFLOP/s")).forward
    assert step.seconds == pytest.approx(2**30 / 1e12)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("h10", "there is no device 'h10'; did you mean 'h100'?"),
        ("", "'' is no rate such as"),
        ("1TB/s", "'1TB/s' lacks the rate of its matmuls in half precision"),
        ("990TFLOP/s", "'990TFLOP/s' lacks its bandwidth"),
        ("1TB/s,990TFLOPS", "'990TFLOPS' is no rate such as 3.3TB/s"),
        ("0TB/s,990TFLOP/s", "'0TB/s,990TFLOP/s' lacks its bandwidth"),
        ("1TB/s,2TB/s", "'2TB/s' is the second rate of bytes"),
        ("1TB/s,float9=2TFLOP/s", "'float9=2TFLOP/s' is the rate of no dtype; did you mean 'float8'?"),
    ],
)
def test_no_device(text: str, said: str) -> None:
    with pytest.raises(BadDevice) as error:
        device_of(text)
    assert said in str(error.value)


def test_take_reads_no_more_than_it_has_positions_for() -> None:
    found = spec('table = "float32[V, E]"; at = "int64[T]"', 'y = "take(table, at, V)"')
    (step,) = account_of(found, {"V": 100_000, "E": 64, "T": 10}, H100).forward
    assert [tensor.bytes for tensor in (*step.reads, *step.writes)] == [2560, 80, 2560]


def test_what_is_computed_twice_is_told() -> None:
    found = spec(
        'x = "float[M, N]"; w = "float[N]"',
        'h = "exp(x * w)"; r = "sum(h, N)"; y = "sum(r * h, M)"',
    )
    account = account_of(found, {}, H100)
    assert [step.recomputes for step in account.steps] == [(), ("h",)]


def test_a_gradient_in_the_forward_is_another_forward() -> None:
    account = account_of(gallery("cross_entropy_in_place"), {}, H100)
    text = as_text(account)
    assert "\nwith gradients\n" in text
    assert "\nboth" not in text
    assert [step.recomputes for step in account.backward] == [(), ()]


@pytest.mark.parametrize("name", ["rms_norm", "gelu", "linear_gelu", "cross_entropy_in_place"])
def test_kernels_are_those_of_the_module(name: str) -> None:
    kernels = generate(gallery(name))["kernels.py"]
    for step in account_of(gallery(name), {}, H100).steps:
        assert all(f"\ndef {kernel}(" in kernels for kernel, _ in step.kernels)


def test_dtypes_are_those_of_torch() -> None:
    import torch

    known = {"h": "float16", "b": "bfloat16", "f": "float32", "d": "float64", "i": "int32", "u": "uint8", "t": "bool"}
    for one, first in known.items():
        for two, second in known.items():
            wanted = torch.promote_types(getattr(torch, first), getattr(torch, second))
            kind = "float" if wanted.is_floating_point else "bool" if wanted == torch.bool else "int"
            assert f"torch.{resolved(Dtype(kind, (one, two)), known)}" == str(wanted)
    assert resolved(Dtype("float", ("i",), "float"), known) == "float32"
    assert resolved(Dtype("int", ("t",), "sum"), known) == "int64"


def test_sums_of_columns_take_as_long_as_their_steps() -> None:
    """The backward of a mean over the columns of a matmul reads each tensor once, and no column for each row."""
    found = spec(
        'x = "float[M, K]"\nw = "float[N, K]"\nb = "float[N]"',
        'y = "mean(sum(x * w, K) + b, N)"',
        '[grad]\nwrt = ["x"]',
    )
    (sums, scaled) = account_of(found, dict.fromkeys("MNK", 8192), H100).backward
    assert [tensor.axes for tensor in sums.writes] == [("K",)]
    assert [tensor.axes for tensor in scaled.writes] == [("M", "K")]


def test_what_is_repeated_for_each_row_is_counted_for_each() -> None:
    found = spec(
        'x = "float[M, K]"\nw = "float[N, K]"', 'y = "sum(x * x, K) + sum(w * w, K)"', "[schedule]\nfuse = false"
    )
    (step,) = account_of(found, dict.fromkeys("MNK", 4096), H100).forward
    assert step.operations >= 4096**3


def test_what_is_taken_from_is_no_matrix_of_a_product() -> None:
    """Along the axis that it is taken from, it has no place in a matmul."""
    path = ROOT / "tests" / "specs" / "gradient_product_picked.toml"
    assert warnings_of(read_spec(path.name, path.read_text(encoding="utf-8"))) == ()


def test_gradients_that_the_forward_computes_are_its_calls() -> None:
    """With its kernels; those of a step that the runtime's matmul computes are not the operator's."""
    found = account_of(gallery("matmul"), dict.fromkeys("MNK", 1024), H100)
    forward, *gradients = found.steps
    assert [step.function for step in gradients] == ["_matmul_forward"] * 2
    assert all(step.kernels == forward.kernels for step in gradients)
    assert any(not step.kernels for step in account_of(gallery("linear"), {"M": 64, "N": 64, "K": 64}, H100).backward)


def test_lengths_that_nobody_gives_are_those_of_the_benchmark() -> None:
    """Heads and batches of attention are not of 4,096."""
    text = (ROOT / "examples/specs/attention_gqa.toml").read_text(encoding="utf-8")
    found = dict(account_of(read_spec("attention_gqa.toml", text), {"G": 2}, H100).lengths)
    assert found == {"...": 4, "G": 2, "R": 4, "M": 4096, "D": 128, "N": 4096, "E": 128}


@pytest.mark.parametrize("path", sorted((ROOT / "bench/plans/specs").glob("*.toml")), ids=lambda path: path.stem)
def test_plan_of_names_that_kernels_have_too(path: Path) -> None:
    """Such as `q` beside `dq`: what is planned keeps the names of a spec, and builds no file."""
    assert account_of(read_spec(path.name, path.read_text(encoding="utf-8")), {}, H100).steps


def test_names_of_a_spec_that_the_generator_has_too() -> None:
    """They clash with none of its own, and are printed as they are in the spec."""
    text = (
        '[op]\nname = "clash"\n[inputs]\nx = "float[M, N]"\n[params]\nn_rows = 0.5\n'
        '[compute]\ny = "softmax(x, N) * n_rows"\n[outputs]\ny = "x"\n[grad]\nwrt = ["x"]\n'
    )
    account = account_of(read_spec("clash.toml", text), {"M": 64}, H100)
    assert dict(account.lengths) == {"M": 64, "N": 4096}
    assert [one.name for step in account.forward for one in step.writes][:1] == ["y"]
    assert any("n_rows" in line for step in account.forward for line in step.math)
