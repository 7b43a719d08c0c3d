"""What the docstrings of steps name: values that the steps make, of what they are passed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.cases.step_cases import CASES
from tritongen.operator.compile import backward_of, forward_of, generate

CHOSEN = [
    "sinkhorn",
    "reductions_over_different_axes",
    "two_softmaxes",
    "softmax_over_rows_of_a_matmul",
    "layer_norm_of_a_matmul",
    "matmul_of_a_softmax",
    "mlp",
    "mlp_with_biases",
    "lora",
    "stored_and_returned",
    "matmul_of_rows_of_a_table",
    "attention_by_pages",
    "smallest_of_sums_of_rows",
    "rows_at_the_positions_of_largest",
    "norm_line_by_line",
    "line_of_two_steps",
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CHOSEN)
def test_docstrings_of_steps_define_what_they_name(name: str) -> None:
    spec = CASES[name].spec()
    forward = forward_of(spec)
    backward = backward_of(spec, forward)
    axes = {*forward.op.axes, *(backward.gradient.op.axes if backward else ())}
    tree = ast.parse(generate(spec)["op.py"])
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    listed = dict(step for function in functions.values() for step in _steps(function))
    assert listed
    for step, names in listed.items():
        assert all(found == names for found in (*_returned(functions[step]), *_assigned(tree, step)))
        assert _computed(functions[step]) == names
    for function in functions.values():
        if names := _computed(function):
            _check_lines(function, names, axes)


def _steps(function: ast.FunctionDef) -> Iterator[tuple[str, list[str]]]:
    """The steps that a docstring lists, each with the names of its results."""
    _, _, text = (ast.get_docstring(function) or "").partition("Steps:\n")
    for entry in re.split(r"\n(?=    \d+\. )", text.partition("\n\n")[0]):
        if entry:
            found = re.fullmatch(r"\d+\. (\w+), [^:]*: (.*)", " ".join(entry.split()))
            assert found
            yield found[1], found[2].split(", ")


def _returned(function: ast.FunctionDef) -> Iterator[list[str]]:
    """The names that a function returns, unless it returns other expressions."""
    last = function.body[-1]
    assert isinstance(last, ast.Return)
    results = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    names = [result.id for result in results if isinstance(result, ast.Name)]
    if len(names) == len(results):
        yield names


def _assigned(tree: ast.AST, function: str) -> Iterator[list[str]]:
    """The names that are given to the results of a function where it is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and f"{function}(" in ast.unparse(node.value):
            yield [name.id for name in ast.walk(node.targets[0]) if isinstance(name, ast.Name)]


def _computed(function: ast.FunctionDef) -> list[str]:
    """What the docstring of a step says that it computes."""
    says, _, _ = (ast.get_docstring(function) or "").partition("\n\n")
    names, _, _ = says.removeprefix("Computes").partition(" = ")
    return re.findall(r"\w+", names.replace(" and ", " ")) if says.startswith("Computes") else []


def _check_lines(function: ast.FunctionDef, names: list[str], axes: set[str]) -> None:
    """The lines of a step define its results, of what it is passed and what lines before define."""
    says, _, lines = (ast.get_docstring(function) or "").partition("\n\n")
    if " = " in says:  # One line, which stands where it is said what is computed.
        lines = says.removeprefix("Computes").strip().removesuffix(".")
    known = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
    for line in ast.parse(re.sub(r"\n +", " ", lines.partition("\n\nSteps:")[0])).body:
        assert isinstance(line, ast.Assign)
        others = {id(node.func) for node in ast.walk(line) if isinstance(node, ast.Call)}
        mentioned = {n.id for n in ast.walk(line.value) if isinstance(n, ast.Name) and id(n) not in others}
        assert {one for one in mentioned if not _is_axis(one, axes)} <= known | {"int64", "inf"}, ast.unparse(line)
        known |= {target.id for target in line.targets if isinstance(target, ast.Name)}
    assert {*names} <= known


def _is_axis(name: str, axes: set[str]) -> bool:
    """Whether a name is an axis, several in one, or what numbers the strips of one."""
    return {*name.removesuffix("_strips").split("_")} <= axes
