"""The types of math: axes and dtypes of every kind of expression, written here by hand."""

from __future__ import annotations

import math

import pytest

from tritongen.diagnostics.report import Mistakes
from tritongen.lang.integers import Integers
from tritongen.lang.ir import Constant, Op, Result
from tritongen.lang.typecheck import typecheck
from tritongen.lowering.tile import meets_tensors
from tritongen.spec.read import read_spec

# The inputs that every expression below may use.
INPUTS = """
x = "float[..., M, N]"
w = "float[N]"
h = "float16[N]"
s = "float32[N]"
d = "float64[M]"
i = "int64[M]"
k = "int8[N]"
u = "uint8[N]"
b = "bool[N]"
a = "any[N]"
number = "number[N]"
g = "float32[B, (H=2 D)]"
c = "float32[C=3]"
zf = "float32[]"
zi = "int64[]"
o = "float32[N] = 0"
"""
PARAMS = """
eps = 0.5
step = 2
flag = true
mode = { choices = ["sum", "mean"], default = "sum" }
"""


def op_of(expression: str, output: str = "auto", above: str = "") -> Op:
    """The op with this one result; everything that it does not use is made use of in others."""
    names = [line.split(" = ")[0] for line in (INPUTS + PARAMS).strip().splitlines() if line]
    rest = [name for name in names if name != "mode"]
    used = "".join(f'use_{name} = "{name}"\n' for name in rest) + "use_mode = \"eps if mode == 'sum' else step\"\n"
    lines = f'[op]\nname = "it"\n[inputs]{INPUTS}[params]{PARAMS}[compute]\n{above}y = "{expression}"\n{used}'
    returned = "".join(f'use_{name} = "auto"\n' for name in [*rest, "mode"])
    return typecheck(read_spec("masked.toml", f'{lines}[outputs]\ny = "{output}"\n{returned}'))


def result_of(expression: str, output: str = "auto", above: str = "") -> Result:
    return next(one for one in op_of(expression, output, above).results if one.output.name == "y")


@pytest.mark.parametrize(
    ("expression", "axes"),
    [
        ("2.5", ""),
        ("w", "N"),
        ("x", "... M N"),
        ("w * d", "M N"),
        ("x + d", "... M N"),
        ("-w if flag else d", "M N"),
        ("where(b, d, 0)", "M N"),
        ("w < d < 1", "M N"),
        ("b and d > 0", "M N"),
        ("clamp(w, d, c)", "M N C"),
        ("g", "B H D"),
        ("index(M)", "M"),
        ("index(M) + index(N)", "M N"),
        ("index(M, N)", "M N"),
        ("index(N, M)", "M N"),
        ("size(M, N)", ""),
        ("size(...) * w", "N"),
        ("take(w, i, N)", "M"),
        ("take(x, i, N)", "... M"),
        ("take(x, index(N), M)", "... N"),
        ("take(w * d, i, N)", "M"),
        ("take(g, 1 - index(H), H)", "B H D"),
        ("sum(x, N)", "... M"),
        ("sum(x, M, N)", "..."),
        ("sum(x, ..., N)", "M"),
        ("sum(x)", ""),
        ("x - mean(x, N)", "... M N"),
        ("sum(w * d, N)", "M"),
        ("softmax(x, M)", "... M N"),
        ("logsumexp(x, N)", "... M"),
        ("argmax(x, ...)", "M N"),
        ("cumsum(w, N)", "N"),
    ],
)
def test_axes(expression: str, axes: str) -> None:
    assert result_of(expression).axes == tuple(axes.split())


@pytest.mark.parametrize(
    ("expression", "kind", "of", "rule"),
    [
        # Tensors promote among themselves; of which dtypes is known when they are there.
        ("w * d", "float", "w d", ""),
        ("h * s", "float", "h s", ""),
        ("k + i", "int", "k i", ""),
        ("u * k", "int", "u k", ""),
        ("k * h", "float", "k h", "float"),
        ("b * k", "int", "b k", ""),
        ("a + k", "any", "a k", ""),
        ("where(b, h, s)", "float", "h s", ""),
        # Numbers of the spec and params give way, unless they are of a higher kind.
        ("h + 1", "float", "h", ""),
        ("h + 0.5", "float", "h", ""),
        ("h * step", "float", "h", ""),
        ("k + 1", "int", "k", ""),
        ("k * step", "int", "k", ""),
        ("k + 0.5", "float", "k", "float"),
        ("b + 1", "int", "int64", ""),
        ("b + 0.5", "float", "b", "float"),
        ("b | True", "bool", "b", ""),
        ("a + 1", "any", "a", "int"),
        ("a + True", "any", "a", ""),
        ("where(b, a, 7)", "any", "a", "int"),
        ("a + 0.5", "float", "a", "float"),
        ("number * 2.5", "float", "number", "float"),
        ("h * size(N)", "float", "h", ""),
        ("k + index(N)", "int", "k int64", ""),
        # So do tensors without axes.
        ("h * zf", "float", "h", ""),
        ("exp(zf) * h + zi", "float", "h", ""),
        ("sum(s, N) * h", "float", "h", ""),
        ("k * zi", "int", "k", ""),
        ("k * zf", "float", "k zf", "float"),
        ("b + zi", "int", "b zi", ""),
        ("(zi + zf) * h", "float", "h", ""),
        ("where(b, zf, 0.0) * h", "float", "zf h", ""),
        ("a + zi", "any", "a zi", ""),
        ("where(b, h, zf)", "float", "h", ""),
        # Numbers alone have torch's default dtypes.
        ("2 + 3", "int", "int64", ""),
        ("1 / 2", "float", "float32", ""),
        ("eps", "float", "float32", ""),
        # Functions.
        ("exp(h)", "float", "h", ""),
        ("exp(k)", "float", "k", "float"),
        ("exp(a)", "float", "a", "float"),
        ("k / k", "float", "k", "float"),
        ("k ** 2", "int", "k", ""),
        ("isnan(h)", "bool", "bool", ""),
        ("h < k", "bool", "bool", ""),
        ("k & u", "int", "k u", ""),
        ("b & k", "int", "b k", ""),
        ("cast(h, int32)", "int", "int32", ""),
        ("cast(k, h)", "float", "h", ""),
        ("cast(k, float16) + h", "float", "float16 h", ""),
        ("take(w, i, N)", "float", "w", ""),
        ("h if flag else s", "float", "h s", ""),
        ("h if flag else 0", "float", "h", ""),
        # Reductions.
        ("sum(h, N)", "float", "h", ""),
        ("sum(k, N)", "int", "int64", ""),
        ("sum(a, N)", "any", "a", "sum"),
        ("sum(a + 1, N)", "any", "a", "sum"),
        ("prod(u, N)", "int", "int64", ""),
        ("max(a, N)", "any", "a", ""),
        ("amin(b, N)", "bool", "b", ""),
        ("argmax(h, N)", "int", "int64", ""),
        ("any(h, N)", "bool", "bool", ""),
        ("count_nonzero(h, N)", "int", "int64", ""),
        ("mean(h, N)", "float", "h", ""),
        ("norm(h, N, p=3)", "float", "h", ""),
        ("norm(h, N, p=0)", "float", "h", ""),
        ("logsumexp(h, N)", "float", "h", ""),
        # An optional input counts like any other.
        ("h + o", "float", "h o", ""),
    ],
)
def test_dtypes(expression: str, kind: str, of: str, rule: str) -> None:
    dtype = result_of(expression).dtype
    assert (dtype.kind, " ".join(dtype.of), dtype.rule) == (kind, of, rule)


@pytest.mark.parametrize(
    ("output", "kind", "of", "axes"),
    [
        ("auto", "float", ("w", "d"), ("M", "N")),
        ("h", "float", ("h",), ("N", "M")),
        ("a", "any", ("a",), ("N", "M")),
        ("bool", "bool", ("bool",), ("M", "N")),
        ("bfloat16", "float", ("bfloat16",), ("M", "N")),
        ("auto[N, M]", "float", ("w", "d"), ("N", "M")),
        ("h[N, M]", "float", ("h",), ("N", "M")),
    ],
)
def test_outputs(output: str, kind: str, of: tuple[str, ...], axes: tuple[str, ...]) -> None:
    result = result_of("w * d", output)
    assert (result.dtype.kind, result.dtype.of, result.axes) == (kind, of, axes)


def test_an_output_groups_axes() -> None:
    assert result_of("g + d", "auto[M, B, (H D)]").axes == ("M", "B", "H", "D")


def test_lines_see_the_lines_above() -> None:
    result = result_of("t * t + q", above='t = "w * d"\nq = "mean(t, N)"\n')
    assert (result.axes, result.dtype.of) == (("M", "N"), ("w", "d"))


def test_fixed_sizes_and_order_of_axes() -> None:
    op = op_of("1")
    assert op.sizes == (("C", 3), ("H", 2))
    assert op.axes == ("...", "M", "N", "B", "H", "D", "C")


def test_a_line_that_is_wrong_is_told_once() -> None:
    with pytest.raises(Mistakes) as told:
        op_of("t + t", above='t = "wrong * 2"\n')
    assert [one.code for one in told.value.mistakes] == ["TG203"]


def test_a_long_chain_of_lines() -> None:
    """Each line is looked at once, however many lead to it."""
    lines = "\n".join(f'a{n + 1} = "a{n} * a{n} + left"' for n in range(2000))
    op = typecheck(
        read_spec(
            "masked.toml",
            f"""
[op]
name = "chain"
summary = "A chain."
[inputs]
a0 = "float[N]"
[params]
left = 2
[compute]
{lines}
[outputs]
a2000 = "a0"
""",
        )
    )
    assert Integers(op).wide == set()
    assert meets_tensors(op, "a0")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("sqrt(2.0 / pi)", (2 / math.pi) ** 0.5),
        ("rsqrt(4)", 0.5),
        ("log(exp(2))", 2.0),
        ("maximum(3, 2.5)", 3.0),
        ("minimum(3, 2)", 2),
    ],
)
def test_functions_of_numbers_alone_are_numbers(text: str, value: float) -> None:
    written = f'[op]\nname = "a"\n[inputs]\nx = "float[N]"\n[compute]\ny = "x * {text}"\n[outputs]\ny = "x"\n'
    op = typecheck(read_spec("a.toml", written))
    (number,) = [node.value for one in op.values for node in one.node.nodes if isinstance(node, Constant)]
    assert type(number) is type(value)
    assert number == pytest.approx(value, rel=1e-15)
