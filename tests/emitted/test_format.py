"""One pass of black leaves generated text as two do, so that a build need not wait for the second."""

from pathlib import Path

import black
import pytest

from tritongen.emit.format import LONGEST, black_mode, format_python
from tritongen.operator.compile import generate
from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]
SPECS = "add_bias amax bias_gelu_residual cross_entropy gelu layer_norm masked_fill rope softmax var"
SOURCES = sorted(path for name in ("runtime", "testing") for path in (ROOT / "templates" / name).glob("*.py"))
STATEMENTS = """\
{t} = {a}({b}, {c} + {d} * {b})
{t} = {a} + {b} * {c} + {d}
{t} = {a} * {b} + {c}({d})
{t} = {a}({b}) + {c}
{t} = {a}({b}).to({c})
{t} = {a}({b}).flatten({c}).to({d})
{t} = {a} if {b} == {c} else {d}
{t} = {a}({b} if {c} else {d}, -{b}, **{c})
{t} = {a} and {b} in (0, 1) and {c} not in ({d}, 1)
{t} = ({a}, {b}, {c}, {d})
{t} = ({a} * {b} * {c}({d}),)
{t} = [{a}, *{b}, {c}[{d}]]
{t} = {{{a}: {b}, {c}: {d}}}[{a}]
{t} = {a}({b} for {c} in {d} if {a} < {b})
{t} = lambda meta: ({a}({b}, {c}), {d})
{t}, {a} = {b}({c}), {d}
{t}[0] = {a}({b}, {c}) + {d}
{t} += {a} | ({b} < {c}) & ~{d}
return {a}({b}, None if {c} is None else {d})
return {a}, {b}, {c}, {d}
raise ValueError(f"{a}: {b} must be {{{c}}}, not {{{d}}}")
{a}[grid]({b}, {c}, {d}, num_warps=4)
{a}[grid]({b}({c}), {d})
if {a}.shape != ({b}, {c}) and not {d}:
@{a}.parametrize({b}, [{c}, {d}], ids=str)
for {t} in {a}({b}, {c}, {d}):
"""


@pytest.mark.parametrize("length", [3, 11, 15, 17, 18, 19, 20, 21, 23, 26, 30, 34, 42, 60])
@pytest.mark.parametrize("statement", STATEMENTS.splitlines())
def test_statements(statement: str, length: int) -> None:
    names = {name: (name * length)[: length + place] for place, name in enumerate("abcd")}
    code = statement.format(t="target", **names)
    bodies = {":": "\n        pass", "@": "\n    def g():\n        pass"}
    body = bodies.get(code[-1]) or bodies.get(code[0], "")
    check(f"def f():\n    {code}{body}\n")


@pytest.mark.parametrize("count", [1, 3, 5, 9, 20])
@pytest.mark.parametrize("result", ["", " -> torch.Tensor", " -> tuple[torch.Tensor, torch.Tensor]"])
def test_definitions(count: int, result: str) -> None:
    arguments = ", ".join(["*", *(f"name_{at}: float = {at}e-06" for at in range(count))])
    check(f"def definition({arguments}){result}:\n    pass\n")


@pytest.mark.parametrize("count", [1, 2, 5, 9])
@pytest.mark.parametrize("indent", ["", "    "])
def test_imports(indent: str, count: int) -> None:
    names = ", ".join(f"name_{at} as {'other' * at}_{at}" if at % 2 else f"name_{at}" for at in range(count))
    head = "if TYPE_CHECKING:\n" if indent else ""
    check(f"{head}{indent}from ..package.of_a_long_name_of_seventy_one_letters import {names}\n")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("width", [40, 60, 88, 320])
@pytest.mark.parametrize("name", SPECS.split())
def test_generated_modules(name: str, width: int) -> None:
    path = ROOT / "specs" / f"{name}.toml"
    for source in generate(read_spec(path.name, path.read_text())).values():
        check(source, width)


def test_long_comments() -> None:
    """black leaves them as they are."""
    comment, code = f"    # {'word ' * LONGEST}".rstrip(), f'    x = "# {"word " * LONGEST}"'
    first, *rest, last = format_python(f"def g():\n{comment}\n{code}\n").splitlines()[1:]
    assert all(line.startswith("    # word") and len(line) <= LONGEST for line in (first, *rest))
    assert " ".join(line.removeprefix("    # ") for line in (first, *rest)) == comment.removeprefix("    # ")
    assert last == code


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_sources_of_the_runtime(path: Path) -> None:
    """They are emitted as they are, and so are as black has them."""
    text = path.read_text()
    assert format_python(text) == text


def check(text: str, width: int = 88) -> None:
    once = format_python(text, width)
    assert black.format_str(once, mode=black_mode(width)) == once


GROUPED = """\
@triton.jit
def scale_kernel(
    x_ptr, x_scale_ptr, y_ptr, bias_ptr,
    n_rows, n_cols,
    stride_x_0, stride_x_n,
    stride_y_0, stride_y_n,
    stride_x_scale_0, stride_bias_n,
    alpha: tl.float64,
    COMPUTE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    INDEX: tl.constexpr,
):  # fmt: skip
    pass
"""


def test_kernel_parameters_have_a_line_for_each_tensor() -> None:
    """A long signature is grouped by what its parameters are; black and ruff leave it so."""
    names = GROUPED.partition("(\n")[2].partition("):")[0].split()
    plain = f"@triton.jit\ndef scale_kernel({' '.join(names).rstrip(',')}):\n    pass\n"
    text = format_python(plain, 78)
    assert text == GROUPED
    assert black.format_str(text, mode=black_mode(78)) == text


def test_short_signature_of_a_kernel_stays_on_its_line() -> None:
    text = "@triton.jit\ndef scale_kernel(x_ptr, n, BLOCK: tl.constexpr):\n    pass\n"
    assert format_python(text) == text
