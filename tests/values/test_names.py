"""No name is reserved: whatever a spec calls things, it builds, computes the same, and is called as it says."""

from __future__ import annotations

import ast
import builtins
import inspect
import itertools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.harness.importing import built
from tritongen.emit.scoping import undefined_names
from tritongen.lang.names import MARKS
from tritongen.operator.compile import generate
from tritongen.spec.read import MODULES, read_spec

MAP = """
[op]
name = "mapped"
[inputs]
INPUT = "float[..., AXIS]"
slope = "float[AXIS]"
[params]
PARAM = 0.5
[compute]
VALUE = "INPUT * PARAM + slope"
OUTPUT = "exp(VALUE) + index(AXIS)"
[outputs]
OUTPUT = "INPUT"
"""
LOOP = """
[op]
name = "looped"
[inputs]
INPUT = "float[..., AXIS]"
[params]
PARAM = { type = "int", default = 2, min = 1 }
[compute]
VALUE = "var(INPUT, AXIS)"
best = "argmax(INPUT * PARAM, AXIS)"
OUTPUT = "VALUE + sum(INPUT, AXIS) / max(INPUT, AXIS)"
[outputs]
OUTPUT = "auto"
best = "auto"
[schedule]
autotune = true
"""
ROWS = """
[op]
name = "normalised"
[inputs]
INPUT = "float[..., AXIS]"
gain = "float[AXIS] = 1"
[params]
PARAM = 1e-3
[compute]
VALUE = "rsqrt(mean(INPUT * INPUT, AXIS) + PARAM)"
OUTPUT = "INPUT * VALUE * gain"
[outputs]
OUTPUT = "INPUT"
[grad]
wrt = ["INPUT", "gain"]
save = ["VALUE"]
"""
SUMS = """
[op]
name = "standardised"
[inputs]
INPUT = "float[B0, AXIS]"
gain = "float[AXIS]"
shift = "float[AXIS]"
[params]
PARAM = 1e-3
[compute]
VALUE = "(INPUT - mean(INPUT, AXIS)) * rsqrt(var(INPUT, AXIS) + PARAM)"
OUTPUT = "VALUE * gain + shift"
[outputs]
OUTPUT = "INPUT"
[grad]
wrt = ["INPUT", "gain", "shift"]
"""
PRODUCT = """
[op]
name = "multiplied"
[inputs]
INPUT = "float[..., M0, AXIS]"
factor = "float[N0, AXIS]"
shift = "float[N0] = 0"
[params]
PARAM = 1.5
[compute]
VALUE = "sum(INPUT * factor, AXIS)"
OUTPUT = "tanh(VALUE * PARAM + shift)"
[outputs]
OUTPUT = "INPUT"
[grad]
wrt = ["INPUT", "factor", "shift"]
"""
REGISTERED = """
[op]
name = "weighed"
[inputs]
INPUT = "float[..., AXIS]"
gain = "float[AXIS]"
[params]
PARAM = 0.5
[compute]
VALUE = "exp(INPUT * PARAM) * gain"
OUTPUT = "VALUE / sum(VALUE, AXIS)"
[outputs]
OUTPUT = "INPUT"
[grad]
wrt = ["INPUT", "gain"]
[torch]
register = "custom_op"
"""
FAMILIES = {
    "map": MAP,
    "loop": LOOP,
    "rows": ROWS,
    "sums": SUMS,
    "product": PRODUCT,
    "registered": REGISTERED,
}
ROLES = ("INPUT", "PARAM", "VALUE", "OUTPUT")
# What kernels, launches, wrappers, tests and benchmarks call their own, builtins, and what is made of other names.
NAMES = """
torch triton tl math functools typing contextlib itertools configs self Any Callable Literal Sequence TYPE_CHECKING
BLOCK BLOCK_M COMPUTE INDEX batch block_n col_mask col_sizes col_tile cols compute call_key config contiguous flat
folded grid index is_fake launch meta n n_cols n_rows n_splits offsets row_mask row_sizes row_tile rows size_n sizes
split_cols tile_mask tiles device stream num_warps num_stages options params specialization warmup backend size_0
stride_x_0 gain_cols gain_partial gain_ptr gain_row gain_rows gain_shape dgain i0 ic0 i_k TypeError bytes dict enumerate
float getattr hash id int isinstance len list map max min object open print property range reversed set slice str super
tuple type vars zip accumulator distance block_k block_m by_name dot end first_col first_row first_step first_tile inner
inner_mask is_long launches long_splits matrix n_batch n_inner n_tiles partial slice_col partials piece run place
programs shared
split stages start step steps tile tile_steps first last length splits group group_size factor_desc kernel ctx dy dx
dtype pytest make check reference DEVICE oracle compare tensors shape seed draw monkeypatch elements provider
measure name saves needs needs_gain results result args info in_dims output inputs save_for_backward saved_tensors
match case mask
other axis nan pi e sum exp take x_ y_ x_ptr out DTYPES gpu Layout kernels tensors key replay constants launched rowwise
columns elementwise contraction dtypes autograd gemm heuristics by_row
""".split()


def spec_of(family: str, op: str = "", **names: str) -> Any:
    """A spec with some names in it; the others are as one would call them."""
    usual = {"INPUT": "x", "PARAM": "scale", "VALUE": "v", "OUTPUT": "y", "AXIS": "K"} | names
    text = re.sub(r"\b[A-Z]{4,}\b", lambda found: usual.get(found[0], found[0]), FAMILIES[family])
    spec = read_spec("spec.toml", text)
    return read_spec("spec.toml", text.replace(f'name = "{spec.name}"', f'name = "{op}"')) if op else spec


def in_turn(family: str) -> list[tuple[str, ...]]:
    """Half of the names by fours, in roles that are others in each family: a name has three roles in three families."""
    turn = list(FAMILIES).index(family)
    rows = [NAMES[n : n + 4] for n in range(4 * (turn // 3), len(NAMES) - 3, 8)]
    return [(*row[turn % 4 :], *row[: turn % 4]) for row in rows]


@pytest.mark.parametrize(
    ("family", "names"), [(family, names) for family in FAMILIES for names in in_turn(family)], ids=str
)
def test_any_name_builds(family: str, names: tuple[str, ...]) -> None:
    files = generate(spec_of(family, **dict(zip(ROLES, names, strict=True))))
    for text in files.values():
        assert not set(text) & set(MARKS)
        assert not undefined_names(text)


# The same math with other names is the same kernels: here a loop, a launch, and a contraction meet their own variables.
HARD = [
    ("INPUT", "len"),
    ("INPUT", "x_ptr"),
    ("INPUT", "torch"),
    ("INPUT", "rows"),
    ("PARAM", "num_warps"),
    ("PARAM", "tl"),
    ("PARAM", "start"),
    ("VALUE", "range"),
    ("VALUE", "cols"),
    ("OUTPUT", "dx"),
    ("OUTPUT", "ctx"),
    ("AXIS", "BLOCK_M"),
    ("AXIS", "INDEX"),
]


def want(family: str, x: torch.Tensor, others: list[torch.Tensor], scale: float) -> torch.Tensor:
    """What the families compute, by torch."""
    match family:
        case "map":
            return torch.exp(x * scale + others[0]) + torch.arange(x.shape[-1])
        case "rows":
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + scale) * others[0]
        case "sums":
            rstd = torch.rsqrt(x.var(-1, keepdim=True) + scale)
            return (x - x.mean(-1, keepdim=True)) * rstd * others[0] + others[1]
        case "product":
            return torch.tanh(torch.matmul(x, others[0].mT) * scale + others[1])
        case _:
            weighed = torch.exp(x * scale) * others[0]
            return weighed / weighed.sum(-1, keepdim=True)


SHAPES = {"map": [(5,)], "rows": [(5,)], "sums": [(5,), (5,)], "product": [(4, 5), (4,)], "registered": [(5,)]}


@pytest.mark.parametrize(("family", "role", "name"), [(family, *case) for family in SHAPES for case in HARD], ids=str)
def test_values_are_the_same(family: str, role: str, name: str, tmp_path: Path) -> None:
    spec = spec_of(family, **{role: name})
    function = getattr(built(spec, tmp_path), spec.name)
    arguments = [tensor.name for tensor in spec.inputs]
    (param,) = spec.params
    assert list(inspect.signature(function).parameters) == [*arguments, param.name]
    torch.manual_seed(0)
    given = [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in [(3, 5), *SHAPES[family]]]
    named: dict[str, Any] = dict(zip(arguments, given, strict=True))
    got = function(**named, **{param.name: 0.25})
    expected = want(family, given[0], given[1:], 0.25)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
    with pytest.raises(TypeError, match=rf"\b{param.name}\b"):
        function(**named, **{param.name: "1"})
    with pytest.raises((TypeError, RuntimeError), match=rf"\b{arguments[0]}\b"):
        function(**named | {arguments[0]: given[0].to(torch.complex64)})
    if spec.grad:
        found, right = (torch.autograd.grad(result.square().sum(), given) for result in (got, expected))
        torch.testing.assert_close(found, right, rtol=1e-7, atol=1e-7)


FLAGS = {
    "map": ('x = "float[..., N]"', "x * 2 if {} else x"),
    "rows": ('x = "float[..., N]"', "softmax(x * 2 if {} else x, N)"),
    "product": ('x = "float[M, K]"\nw = "float[K, N]"', "sum(x * w, K) * (2 if {} else 1)"),
}


@pytest.mark.parametrize("family", FLAGS)
@pytest.mark.parametrize("name", ["kernels", "launch", "tensors", "grid", "debug", "num_warps", "self"])
def test_flags_are_passed_to_kernels_by_any_name(family: str, name: str, tmp_path: Path) -> None:
    """op.py passes them by the names that kernels.py has them by, whichever of the two has another use for the name."""
    inputs, math = FLAGS[family]
    spec = read_spec(
        "spec.toml",
        f'[op]\nname = "flagged"\n[inputs]\n{inputs}\n[params]\n{name} = false\n'
        f'[compute]\ny = "{math.format(name)}"\n[outputs]\ny = "x"\n',
    )
    x, w = torch.randn(2, 4, 4, dtype=torch.float64)
    expected = {"map": 2 * x, "rows": (2 * x).softmax(-1), "product": 2 * (x @ w)}[family]
    got = built(spec, tmp_path).flagged(*((x, w) if family == "product" else (x,)), **{name: True})
    torch.testing.assert_close(got, expected)


def taken_in(text: str) -> set[str]:
    """What a module imports, and the builtins that it reads."""
    nodes = list(ast.walk(ast.parse(text)))
    names = {alias.asname or alias.name for alias in nodes if isinstance(alias, ast.alias)}
    names |= {node.id for node in nodes if isinstance(node, ast.Name) and hasattr(builtins, node.id)}
    return {name for name in names if name[0] != "_"}


def read_in(text: str, name: str) -> int:
    """How often a module reads a name."""
    return sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(ast.parse(text)))


def bound(text: str) -> list[str]:
    """What the statements of a module bind, in order."""
    found = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found += [alias.asname or alias.name for alias in node.names]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.append(node.name)
    return found


def keywords(text: str) -> Counter[str | None]:
    return Counter(node.arg for node in ast.walk(ast.parse(text)) if isinstance(node, ast.keyword))


@pytest.mark.parametrize("family", FAMILIES)
def test_operators_have_any_name(family: str) -> None:
    """Of what the files take from elsewhere, a fifth in each family: an operator `rowwise` hid what launches it."""
    usual = generate(spec_of(family))
    own = spec_of(family).name
    names = sorted(set().union(*map(taken_in, usual.values())) - MODULES - {own})
    for name in names[list(FAMILIES).index(family) % 5 :: 5]:
        files = generate(spec_of(family, name))
        for file, text in files.items():
            assert not undefined_names(text), (name, file)
            assert len(set(bound(text))) == len(bound(text)), (name, file)
        assert keywords(files["op.py"]) == keywords(usual["op.py"]), name
        assert read_in(files["op.py"], name) == read_in(usual["op.py"], own), (
            name
        )  # As the operator, if it calls itself.


@pytest.mark.parametrize("name", ["AttributeError", "object", "str"])
def test_operators_hide_no_builtin_of_their_package(name: str) -> None:
    """Its `__init__.py` reads them, and imports nothing."""
    text = generate(spec_of("map", name))["__init__.py"]
    read = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name | ast.Attribute)]
    assert {ast.unparse(node) for node in read if name in ast.unparse(node)} == {name, f"_builtins.{name}"}


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("map", "launched"),
        ("map", "elementwise"),
        ("map", "torch"),
        ("rows", "rowwise"),
        ("rows", "exports"),
        ("sums", "columns"),
        ("product", "len"),
    ],
)
def test_operators_of_any_name_compute_the_same(family: str, name: str, tmp_path: Path) -> None:
    function = getattr(built(spec_of(family, name), tmp_path), name)
    assert function.__name__ == name
    torch.manual_seed(0)
    shape = (3, 5) if family == "sums" else (2, 3, 2, 2, 5)
    x = torch.randn(shape, dtype=torch.float64)
    x = x if family == "sums" else x.transpose(0, 2).transpose(1, 3)  # Dimensions that a kernel cannot fold.
    others = [torch.randn(shape, dtype=torch.float64) for shape in SHAPES[family]]
    torch.testing.assert_close(function(x, *others, scale=0.25), want(family, x, others, 0.25), rtol=1e-9, atol=1e-9)


def test_names_that_differ_in_case() -> None:
    """What is made of them in upper case is two names."""
    text = """
[op]
name = "cases"
[inputs]
x = "float32[M, N]"
X = "float64[N]"
[compute]
y = "x * X"
[outputs]
y = "float64"
"""
    op = generate(read_spec("cases.toml", text))["op.py"]
    assert "_X_DTYPES = (torch.float32,)" in op
    assert "_X_DTYPES_2 = (torch.float64,)" in op
    assert "'cases: X', X, _X_DTYPES_2" in op


def test_hoisted_reductions_are_numbered() -> None:
    lines = "sum(x * x, K) / sum(x * x * x, K)"
    toml = f'[op]\nname = "two"\n[inputs]\nx = "float[M, K]"\n[compute]\ny = "{lines}"\n[outputs]\ny = "x"'
    kernel = generate(read_spec("two.toml", toml))["kernels.py"]
    assert "y_sum_2 =" in kernel
    assert not re.search(r"y_sum_\b|__ptr", kernel)


@pytest.mark.parametrize("names", list(itertools.combinations(("s", "length", "rows", "start", "n"), 2)))
def test_a_verdict_is_not_of_names(names: tuple[str, str]) -> None:
    """A product beside a division was refused or not by what it was divided by."""
    a, b = names
    toml = f"""
[op]
name = "pair"
[inputs]
x = "float[M, K]"
{a} = "float[N, K]"
[params]
{b} = 2.0
[compute]
y = "sum(x / {b} * {a}, K)"
[outputs]
y = "x"
[grad]
wrt = ["x", "{a}"]
"""
    files = generate(read_spec("pair.toml", toml))
    assert not any(undefined_names(files[name]) for name in ("kernels.py", "op.py"))
