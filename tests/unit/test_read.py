"""Reading specs: what a right one becomes, where a mistake is found, and the schema's agreement."""

import json
import tomllib
from pathlib import Path

import pytest

from tritongen.diagnostics.locate import locate
from tritongen.diagnostics.report import Mistake, Mistakes
from tritongen.lang.typecheck import typecheck
from tritongen.project.starters import STARTERS, starter
from tritongen.spec.nodes import examine
from tritongen.spec.read import read_spec
from tritongen.spec.schema import schema
from tritongen.spec.tables import SPEC
from tritongen.spec.toml import BadToml
from tritongen.spec.types import BATCH, AxisTerm, Grad, Input, Output, Param, Range, Schedule, TensorType

FLOATS = ("float16", "bfloat16", "float32", "float64")
ROOT = Path(__file__).parents[2]
WRONG = sorted((ROOT / "tests" / "diagnostics" / "wrong").glob("*.toml"))
RIGHT = sorted((ROOT / "specs").glob("*.toml"))

EVERYTHING = """
[op]
name = "norm"
summary = "Everything at once."

[types]
T = "float16|float32"

[inputs]
x = "T[..., N]"
weight = "T[N] = 1"
bias = "float[(H=2 D), C=3] = -0.5"
mask = "bool[] = true"
index = "int64[...]"

[params]
eps = 1e-6
shift = 3
flag = true
mode = { choices = ["none", "tanh"], default = "none" }
p = { default = 0, type = "float", min = 0, max = 1 }
k = { type = "int" }

[compute]
rstd = "rsqrt(mean(x * x, N) + eps)"
y = "x * rstd * weight"

[outputs]
y = "x[N, D]"
rstd = "float32"

[grad]
wrt = ["x", "weight"]
save = ["rstd"]

[reference]
torch = "x"

[schedule]
block_m = 4
block_n = [1024, 2048]
num_stages = 3
autotune = true

[torch]
register = "none"

[test]
index = { low = 0, high = "N" }
"""


def tensor(text: str) -> TensorType:
    spec = read_spec("x.toml", minimal(inputs=f'x = "{text}"'))
    return spec.inputs[0].type


def minimal(inputs: str = 'x = "float[N]"', more: str = "") -> str:
    head = f'[op]\nname = "it"\n[inputs]\n{inputs}\n'
    return head + f'[compute]\ny = "x"\n[outputs]\ny = "x"\n{more}\n'


def mistakes_in(text: str) -> tuple[Mistake, ...]:
    with pytest.raises(Mistakes) as raised:
        read_spec("x.toml", text)
    return raised.value.mistakes


def test_everything() -> None:
    spec = read_spec("specs/norm.toml", EVERYTHING)
    t = ("float16", "float32")
    batch, n = AxisTerm((BATCH,), (None,)), AxisTerm(("N",), (None,))
    group, c = AxisTerm(("H", "D"), (2, None)), AxisTerm(("C",), (3,))
    assert (spec.path, spec.name, spec.summary) == (
        "specs/norm.toml",
        "norm",
        "Everything at once.",
    )
    assert spec.inputs == (
        Input("x", TensorType(t, (batch, n), "T")),
        Input("weight", TensorType(t, (n,), "T"), 1),
        Input("bias", TensorType(FLOATS, (group, c)), -0.5),
        Input("mask", TensorType(("bool",), ()), True),
        Input("index", TensorType(("int64",), (batch,))),
    )
    assert spec.params == (
        Param("eps", "float", 1e-6),
        Param("shift", "int", 3),
        Param("flag", "bool", True),
        Param("mode", "enum", "none", ("none", "tanh")),
        Param("p", "float", 0.0, (), 0, 1),
        Param("k", "int"),
    )
    assert isinstance(spec.params[4].default, float)
    assert [(one.name, one.expression) for one in spec.compute] == [
        ("rstd", "rsqrt(mean(x * x, N) + eps)"),
        ("y", "x * rstd * weight"),
    ]
    assert spec.outputs == (
        Output("y", "x", (n, AxisTerm(("D",), (None,)))),
        Output("rstd", "float32"),
    )
    assert spec.grad == Grad(("x", "weight"), ("rstd",))
    assert spec.schedule == Schedule((4,), (1024, 2048), (), (), (3,), True)
    assert (spec.reference, spec.register) == ("x", "none")
    assert spec.ranges == (("index", Range(0, "N")),)


@pytest.mark.parametrize(
    ("text", "dtypes"),
    [
        ("float[N]", FLOATS),
        ("bool[N]", ("bool",)),
        ("float32|float16[N]", ("float16", "float32")),
        ("bool|float64 [N]", ("float64", "bool")),
    ],
)
def test_dtypes(text: str, dtypes: tuple[str, ...]) -> None:
    assert tensor(text).dtypes == dtypes


def test_axes() -> None:
    assert tensor("float[ ... ,N,(A=2 B), C = 3 ]").axes == (BATCH, "N", "A", "B", "C")
    assert tensor("float[]").axes == ()


@pytest.mark.parametrize("name", ["max", "mean", "nan", "threshold", "take", "mask", "end", "loss"])
def test_names_of_functions_are_free(name: str) -> None:
    """Calls and values never meet in an expression."""
    text = minimal(f'{name} = "float[N]"\nx = "float[N]"')
    assert read_spec("x.toml", text).inputs[0].name == name


@pytest.mark.parametrize("name", ["configs", "kernels", "op", "y", "x"])
def test_the_op_has_a_name_of_its_own(name: str) -> None:
    (mistake,) = mistakes_in(minimal().replace('"it"', f'"{name}"', 1))
    assert (mistake.code, mistake.key) == ("TG111" if len(name) > 1 else "TG113", ("op", "name"))


def test_all_mistakes_at_once() -> None:
    text = minimal('x = "float"\ny2 = "flot[N]"', '[schedule]\nblock_n = 3\n[gard]\nwrt = ["x"]')
    assert {one.code for one in mistakes_in(text)} == {"TG103", "TG120", "TG122", "TG501"}


def test_a_mistake_does_not_cause_others() -> None:
    """A wrong input is still a name, so that what refers to it is right."""
    text = minimal('x = "float[N"', '[grad]\nwrt = ["x"]\n[test]\nx = { low = 0, high = 1 }')
    assert [one.code for one in mistakes_in(text)] == ["TG121"]


@pytest.mark.parametrize(
    "text",
    ["[" * 5000, "x = " + "[" * 5000, 'a.b = 1\na.b.c = 2\n"', "\ufeff[op]", "x = 1e", "\x00"],
)
def test_hopeless_toml(text: str) -> None:
    with pytest.raises(BadToml):
        read_spec("x.toml", text)


@pytest.mark.parametrize(
    ("toml", "key", "start", "found"),
    [
        ("[a]\nb = 'xyz'", ("a", "b"), None, "b"),
        ("[a]\nb = 'xyz'", ("a", "b"), 1, "y"),
        ("a.b = 'xyz'", ("a", "b"), 2, "z"),
        ("a = { c = 1, b = 'xyz' }", ("a", "b"), 0, "x"),
        ("[ a . 'b c' ]\nd = 5", ("a", "b c", "d"), 0, "5"),
        ('"a\\u0062" = "x\\ty"', ("ab",), 2, "y"),
        ('a = """\nx\\\n   y"""', ("a",), 1, "y"),
        ("a = '''\nx'y'''", ("a",), 2, "y"),
        ("a = [ 1, # one\n 22 ]", ("a", "1"), 0, "22"),
        ("a = [[1], ['x', 'y']]", ("a", "1", "1"), 0, "y"),
        ("# a = 0\n[x]\n[y]\na = '#' # '\nb = 7", ("y", "b"), 0, "7"),
        ("[[a]]\nb = 1\n[c]\nd = 2020-01-01 10:00:00 # no", ("c", "d"), 0, "2020-01-01 10:00:00"),
        ("[a]\nb = 1", ("a", "missing"), None, "[a]"),
    ],
)
def test_positions(toml: str, key: tuple[str, ...], start: int | None, found: str) -> None:
    tomllib.loads(toml)
    length = 1 if start is None else len(found)
    (one,) = locate("x.toml", toml, [Mistake("TG000", "", key, start, length)])
    assert one.source[one.column - 1 :][: one.length] == found


def valid(document: object) -> bool:
    jsonschema = pytest.importorskip("jsonschema")
    return bool(jsonschema.Draft202012Validator(schema()).is_valid(document))


@pytest.mark.parametrize("text", [path.read_text() for path in RIGHT] + [starter("it", family) for family in STARTERS])
def test_schema_admits_what_is_right(text: str) -> None:
    read_spec("it.toml", text)
    assert valid(json.loads(json.dumps(tomllib.loads(text))))


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_schema_agrees_with_the_reader(path: Path) -> None:
    """The schema refuses all that `examine` does, but for characters; of names it knows only the pattern."""
    try:
        document = tomllib.loads(path.read_text())
    except ValueError:  # Python reads no integer of thousands of digits.
        return
    told = list(examine(SPEC, document))
    if {one.code for one in told} - {"TG108", "TG116"}:
        assert not valid(json.loads(json.dumps(document, default=str)))


def test_outputs_of_a_shared_type_have_the_dtype_of_an_input_that_is_always_given() -> None:
    shared = '[op]\nname = "f"\n[types]\nT = "float"\n[inputs]\nx = "float[N]"\nz = "T[N]"\nbias = "T[N] = 0"\n'
    text = f'{shared}[compute]\ny = "cast(x, T) * z + bias"\n[outputs]\ny = "T[N]"\n'
    spec = read_spec("x.toml", text)
    assert spec.outputs == (Output("y", "z", (AxisTerm(("N",), (None,)),)),)
    assert typecheck(spec).results == typecheck(read_spec("x.toml", text.replace(", T)", ", z)"))).results
