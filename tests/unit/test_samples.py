"""The shapes that emitted tests run on."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tritongen.families.family import MultiStepProgram
from tritongen.families.multi_step.family import StepShapes
from tritongen.families.rowwise.family import ROWWISE
from tritongen.families.streaming.shapes import StreamingShapes
from tritongen.operator.compile import forward_of, generate
from tritongen.spec.read import read_spec
from tritongen.spec.types import Range
from tritongen.testing.samples import Shapes, other_values, range_of

ROOT = Path(__file__).parents[2]
SPECS = sorted([*(ROOT / "specs").glob("*.toml"), *(ROOT / "tests" / "specs").glob("*.toml")])


@pytest.mark.parametrize("path", SPECS, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_loops_run_along_few_long_rows(path: Path) -> None:
    """The interpreter takes the better part of a second for a program of a wide tile."""
    spec = read_spec(path.name, path.read_text(encoding="utf-8"))
    forward = forward_of(spec)
    program, shapes = forward.program, Shapes(spec, forward.program)
    if forward.family is not ROWWISE:
        return
    wide = shapes.wide()
    batch = wide[: len(wide) - shapes.named]
    lengths = dict(zip([axis for axis in shapes.axes if axis != "..."], wide[len(batch) :], strict=True))
    lengths |= {"...": math.prod(batch)} | dict(program.op.sizes)
    columns = math.prod(lengths[axis] for axis in program.over)
    rows = math.prod(lengths[axis] for axis in program.op.axes if axis not in program.over)
    assert rows <= 16
    # Three programs of blocks of 32 columns have three parts to combine, which is no power of two.
    split = math.ceil(columns / 3 / 32) * 32
    assert math.ceil(columns / split) == 3 or set(program.over) <= dict(program.op.sizes).keys()


def test_no_shape_is_shorter_than_the_smallest() -> None:
    path = ROOT / "tests" / "emitted" / "specs" / "smallest_rows.toml"
    spec = read_spec(path.name, path.read_text(encoding="utf-8"))
    shapes = Shapes(spec, forward_of(spec).program)
    assert spec.smallest == (("N", 2),)
    tried = [*shapes.small(), *shapes.large(), *shapes.empty(), shapes.wide(), shapes.special()]
    assert min(shape[shapes.axes.index("N")] for shape in tried) == 2
    assert min(shape[shapes.axes.index("C")] for shape in tried) == 0
    emitted = generate(spec)["test_smallest_rows.py"]
    assert "shapes = ((37, 5), (64, 4), (2, 1), (2, 6), (37, 1), (130, 7))" in emitted
    assert "empty = ((37, 0),)" in emitted


def test_what_has_no_value_over_one_axis_may_be_empty_along_others() -> None:
    spec = read_spec(
        "best.toml",
        """
        op.name = "best"
        inputs = { x = "float[M, K]", w = "float[N, K]" }
        compute = { h = "silu(sum(x * w, K))", top = "max(h, N)", part = "softmax(h, N)", mean = "mean(part, M)" }
        outputs = { top = "x", mean = "x" }
        """,
    )
    assert "valueless = ((3, 5, 0),)" in generate(spec)["test_best.py"]


def test_axes_that_steps_reduce_are_empty_too() -> None:
    spec = read_spec(
        "batch_norm.toml",
        """
        op.name = "norm"
        inputs = { x = "float[..., K]", w = "float[N, K]" }
        compute = { h = "sum(x * w, K)", y = "(h - mean(h, ...)) * rsqrt(var(h, ..., correction=0) + 0.1)" }
        outputs = { y = "x" }
        """,
    )
    program = forward_of(spec).program
    assert isinstance(program, MultiStepProgram)
    empty = StepShapes(spec, program).empty()
    assert {tuple(length == 0 for length in shape[-3:]) for shape in empty} >= {
        (True, False, False), (False, True, False), (False, False, True)
    }  # fmt: skip


def test_there_are_values_below_the_length_of_an_axis() -> None:
    """A sequence has a length from 1 up to, and not including, N: none where N is 1."""
    path = ROOT / "examples" / "specs" / "attention_decode.toml"
    spec = read_spec(path.name, path.read_text(encoding="utf-8"))
    shapes = StreamingShapes(spec, forward_of(spec).program)
    tried = [*shapes.small(), *shapes.large(), *shapes.empty(), shapes.wide(), shapes.special()]
    assert spec.smallest == ()
    assert min(shape[shapes.axes.index("N")] for shape in tried) == 2


def test_params_that_integers_are_equal_to() -> None:
    """Of targets the first is 0, so that a param that is 0 leaves it out. A tail of rows needs an odd number."""
    path = ROOT / "specs" / "cross_entropy.toml"
    spec = read_spec(path.name, path.read_text(encoding="utf-8"))
    program = forward_of(spec).program
    assert {"ignore_index": 0} in other_values(program.op, Shapes(spec, program))
    assert Shapes(spec, program).wide() == (3, 88)


def test_other_params_leave_elements() -> None:
    """Windows that are dilated fit, too, so that each integer is tried with another value than the rest."""
    path = ROOT / "examples" / "specs" / "conv1d.toml"
    spec = read_spec(path.name, path.read_text(encoding="utf-8"))
    op = forward_of(spec).program.op
    assert other_values(op, StepShapes(spec, forward_of(spec).program)) == [{"stride": 2}, {"pad": 2}, {"dilation": 2}]


@pytest.mark.parametrize(
    ("name", "deep"),
    [
        ("gelu", (2, 3, 2, 2, 40)),
        ("softmax", (2, 3, 2, 2, 40)),
        ("rope", (2, 3, 2, 2, 40)),
        ("attention", (2, 3, 2, 2, 7, 40, 7)),
    ],
)
def test_kernels_step_through_all_dimensions_but_one(name: str, deep: tuple[int, ...]) -> None:
    """Of more, copies are made, which have the strides of none of the inputs."""
    files = generate(read_spec(f"{name}.toml", (ROOT / "specs" / f"{name}.toml").read_text(encoding="utf-8")))
    assert f"    deep = {deep}\n" in files[f"test_{name}.py"]


def test_emitted_shapes_are_no_shorter() -> None:
    """Nor are those that are emitted, of operators whose names are marked."""
    path = ROOT / "tests" / "emitted" / "specs" / "smallest_rows.toml"
    text = generate(read_spec(path.name, path.read_text(encoding="utf-8")))["test_smallest_rows.py"]
    shapes = next(line for line in text.splitlines() if line.startswith("    shapes = "))
    assert "(2, 1)" in shapes
    assert "(1, " not in shapes


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ({"y": "where(index(N) < n, x, 0.0)"}, Range(1, 40)),
        ({"y": "where(n - size(M) > index(N) - index(M), x, 0.0)"}, Range(1, 40)),
        ({"past": "index(N) - n", "far": "past + 1", "y": "where(far >= 0, 0.0, x)"}, Range(1, 40)),
        ({"y": "where(index(N) == n, x, 0.0)"}, None),
        ({"y": "where((index(N) < index(M)) & (n < 2), x, 0.0)"}, None),
        ({"y": "where(index(N) < n, x, 0.0) / (7 // n)"}, Range(1, 5)),
        ({"h": "where(index(N) < n, x, 0.0)", "y": "h + take(w, n, V)"}, Range(0, "V")),
    ],
)
def test_integers_that_positions_are_compared_with_are_positive(lines: dict[str, str], expected: Range | None) -> None:
    """Of lengths below 1, a mask would leave rows nothing."""
    compute = "\n".join(f'{name} = "{line}"' for name, line in lines.items())
    text = f"""
op.name = "masked"
inputs = {{ x = "float32[M, N]", n = "int64[M]", w = "float32[V]" }}
outputs.y = "x"
[compute]
{compute}
"""
    spec = read_spec("masked.toml", text)
    assert range_of(spec.inputs[1], spec) == expected


def test_steps_whose_axes_are_all_fixed_have_one_shape() -> None:
    spec = read_spec(
        "fixed.toml",
        """
        op.name = "fixed"
        inputs = { w = "float[M=3, K=2]", x = "float[N=4, X=5, M=3]", t = "float[N=4]" }
        compute = { s = "sum(w * x, M)", y = "sum(s * softmax(t, N), N)" }
        outputs = { y = "auto[X, K]" }
        """,
    )
    assert "shapes = ((),)" in generate(spec)["test_fixed.py"]


def test_widths_that_follow_from_others_are_known() -> None:
    """Of values that have as many columns as keys by [axes], shapes of Gluon kernels are checked too."""
    spec = read_spec(
        "equal_heads",
        """
        [op]
        name = "equal_heads"
        [types]
        T = "float"
        [inputs]
        q = "T[..., M, D]"
        k = "T[..., N, D]"
        v = "T[..., N, E]"
        [axes]
        E = "D"
        [compute]
        o = "sum(softmax(sum(q * k, D), N) * v, N)"
        [outputs]
        o = "q"
        """,
    )
    assert "gluon = ((" in generate(spec, ".")["test_equal_heads.py"]
