"""Text is laid out as black lays it out, so that a build does not wait for black's changes."""

from pathlib import Path

import pytest

from tritongen.emit.format import format_python
from tritongen.emit.layout import laid_out
from tritongen.operator.compile import generate
from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]
SPECS = "add_bias amax bias_gelu_residual cross_entropy gelu layer_norm masked_fill rope softmax var"
SOURCES = sorted((ROOT / "templates" / "runtime").rglob("*.py"))
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
    text = laid_out(f"def f():\n    {code}{body}\n")
    assert text == format_python(text)


@pytest.mark.parametrize("count", [1, 3, 5, 9, 20])
@pytest.mark.parametrize("result", ["", " -> torch.Tensor", " -> tuple[torch.Tensor, torch.Tensor]"])
def test_definitions(count: int, result: str) -> None:
    arguments = ", ".join(["*", *(f"name_{at}: float = {at}e-06" for at in range(count))])
    text = laid_out(f"def definition({arguments}){result}:\n    pass\n")
    assert text == format_python(text)


@pytest.mark.parametrize("count", [1, 2, 5, 9])
@pytest.mark.parametrize("indent", ["", "    "])
def test_imports(indent: str, count: int) -> None:
    names = ", ".join(f"name_{at} as {'other' * at}_{at}" if at % 2 else f"name_{at}" for at in range(count))
    head = "if TYPE_CHECKING:\n" if indent else ""
    text = laid_out(f"{head}{indent}from ..package.of_a_long_name_of_seventy_one_letters import {names}\n")
    assert text == format_python(text)


@pytest.mark.parametrize("name", SPECS.split())
def test_generated_modules(name: str) -> None:
    path = ROOT / "specs" / f"{name}.toml"
    files = generate(read_spec(path.name, path.read_text()))
    for file, source in files.items():
        text = laid_out(source)
        assert text == format_python(text), file


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_sources_of_the_runtime(path: Path) -> None:
    """They are emitted as they are, and so are as black has them."""
    text = path.read_text()
    assert format_python(text) == text
