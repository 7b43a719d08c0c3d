"""Warnings of costs that the math of a spec does not show."""

from pathlib import Path

import pytest

from tritongen.diagnostics.report import Mistake
from tritongen.roofline.account import account_of, warnings_of
from tritongen.roofline.devices import DEVICES
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

ROOT = Path(__file__).parents[2]


def spec(inputs: str, compute: str, more: str = "") -> Spec:
    inputs, compute = (text.replace("; ", "\n") for text in (inputs, compute))
    text = f'[op]\nname = "costs"\n[inputs]\n{inputs}\n[compute]\n{compute}\n[outputs]\ny = "auto"\n{more}'
    return read_spec("costs.toml", text)


def warned(found: Spec, **lengths: int) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.code, one.key) for one in account_of(found, lengths, DEVICES["h100"]).warnings]


def only(found: Spec) -> Mistake:
    (warning,) = warnings_of(found)
    return warning


def test_the_gallery_hides_nothing() -> None:
    for path in sorted(ROOT.glob("specs/*.toml")):
        assert not warnings_of(read_spec(path.name, path.read_text(encoding="utf-8"))), path


def test_a_reduction_that_is_repeated_for_each_row() -> None:
    text = "sum(x * x, K) + sum(w * w, K)"
    inputs = 'x = "float[M, K]"; w = "float[N, K]"'
    warning = only(spec(inputs, f'y = "{text}"', "[schedule]\nfuse = false"))
    assert (warning.code, warning.key) == ("TG901", ("compute", "y"))
    assert "does not vary along N, and is computed again for each of 4,096: 137 Gop" in warning.message
    assert warned(spec(inputs, f'y = "{text}"')) == []
    apart = 'a = "sum(x * x, K)"; b = "sum(w * w, K)"; y = "a + b"'
    assert warned(spec(inputs, apart, "[schedule]\nfuse = false")) == []


def test_far_more_operations_than_bytes() -> None:
    distance = spec('x = "float[M, K]"; w = "float[N, K]"', 'h = "abs(x - w)"; y = "sum(h, K)"')
    warning = only(distance)
    assert (warning.code, warning.key) == ("TG902", ("compute", "h"))
    assert warning.message.endswith("6.15 ms at M = K = N = 4,096; memory takes 30 us")
    assert warned(distance, K=8) == []
    assert warned(distance, M=1, N=1) == []


def test_gradients_of_masked_matmuls_are_matmuls() -> None:
    """Though what they multiply may be infinite: no product is compared with 0."""
    inputs = 'x = "float[M, K]"; w = "float[K, N]"; v = "float[N, L]"; m = "bool[M, N]"'
    compute = 'h = "where(m, sum(x * exp(w), K), 0.0)"; y = "sum(gelu(h) * v, N)"'
    assert "TG902" not in {code for code, _ in warned(spec(inputs, compute, '[grad]\nwrt = ["x", "w", "v"]'))}


@pytest.mark.parametrize(
    ("inputs", "product", "why"),
    [
        ('x = "bfloat16[M, K]"; w = "bfloat16[N, K]"; t = "float32[K]"', "x * t * w", "t is float32"),
        ('x = "float32[M, K]"; w = "float32[N, K]"', "x * w", "x and w are float32"),
        ('x = "bfloat16[M, K]"; w = "float16[N, K]"', "x * w", "x is bfloat16 and w is float16"),
        ('x = "bfloat16[M, K]"; w = "int32[N, K]"', "cast(x, float32) * w", "an operand is cast to float32"),
    ],
)
def test_a_matmul_of_float32_says_why(inputs: str, product: str, why: str) -> None:
    warning = only(spec(inputs, f'y = "sum({product}, K)"'))
    assert (warning.code, warning.key) == ("TG903", ("compute", "y"))
    assert f"without tensor cores, since {why}" in warning.message


def test_matmuls_on_tensor_cores_are_none_of_float32() -> None:
    inputs = 'x = "{0}[M, K]"; w = "{0}[N, K]"'
    assert warned(spec(inputs.format("float"), 'y = "sum(x * w, K)"')) == []
    assert warned(spec(inputs.format("float64"), 'y = "sum(x * w, K)"')) == []
    assert warned(spec(inputs.format("float32"), 'y = "sum(x * w, K)"'), M=64, N=64, K=64) == []
    scaled = inputs.format("bfloat16") + '; s = "float32[M]"'
    assert warned(spec(scaled, 'y = "sum(x * w, K) * s"')) == []


def test_a_gradient_of_float32_is_reported_where_it_is_asked_for() -> None:
    inputs = 'x = "bfloat16[M, K]"; w = "bfloat16[N, K]"; t = "float32[K]"'
    found = warnings_of(spec(inputs, 'y = "sum(x * t * w, K)"', '[grad]\nwrt = ["w"]'))
    assert [(one.code, one.key) for one in found] == [("TG903", ("compute", "y")), ("TG903", ("grad", "wrt"))]
    assert found[1].message.startswith("dw: this multiplies in float32, without tensor cores, since")


def test_an_intermediate_that_is_larger_than_all_else() -> None:
    inputs = 'x = "float[M, K=64]"; w = "float[N, K]"'
    found = spec(inputs, 'h = "cumsum(sum(x * w, K), N)"; y = "max(h, M, N)"')
    warning = only(found)
    assert (warning.code, warning.key[0]) == ("TG904", "compute")
    assert "is stored" in warning.message
    assert warned(found, M=4, N=4) == []
    assert "TG904" not in {one for one, _ in warned(spec(inputs, 'y = "sum(x * w, K)"'))}


def test_positions_in_int64() -> None:
    inputs = 't = "bfloat16[V]"; i = "{}[N]"'
    warning = only(spec(inputs.format("int64"), 'y = "take(t, i, V)"', "[bench]\nN = 100000000"))
    assert (warning.code, warning.key) == ("TG905", ("inputs", "i"))
    for dtypes in ("int32", "int32|int64", "int"):
        assert warned(spec(inputs.format(dtypes), 'y = "take(t, i, V)"'), N=10**8) == []
    rows = spec('t = "bfloat16[V, E=512]"; i = "int64[N]"', 'y = "take(t, i, V)"')
    assert warned(rows, N=10**7) == []
    own = warned(spec('x = "bfloat16[M, N=1024]"', 'y = "sort(x, N)"', '[grad]\nwrt = ["x"]\n[bench]\nM = 1000000'))
    assert ("TG905", ("compute", "y")) in own, "what a line keeps for its gradient is that line's"
