"""Launches as values, `tritongen.emit.launches`: what is printed of them, and what they are asked."""

from __future__ import annotations

import ast

import pytest

from tritongen.emit.launches import Call, Launch, Let, Value, call, inside
from tritongen.operator.compile import environment
from tritongen.resources import template_folders


def printed(value: Value) -> ast.expr:
    module = environment(template_folders()).get_template("launches.jinja").module
    return ast.parse(module.value(value), mode="eval").body  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", [(), ("1",), ("1", ("2",), {}), {"A": "1", "B": ("2", "3")}, ((), {"C": ()})])
def test_tuples_and_dictionaries_are_printed_as_python_reads_them(value: Value) -> None:
    def numbers(one: Value) -> Value:
        if isinstance(one, dict):
            return {key: numbers(own) for key, own in one.items()}
        return tuple(map(numbers, one)) if isinstance(one, tuple) else int(one)

    assert ast.literal_eval(printed(value)) == numbers(value)


def test_arguments_that_are_as_by_default_are_left_out() -> None:
    launch = call("f", "x", call("g"), a="", b=None, c=False, d=(), e={}, of=call("h", n=2))
    assert ast.unparse(printed(launch)) == "f(x, g(), d=(), e={}, of=h(n=2))"


def test_what_is_inside() -> None:
    launch = Launch(call("f", ("x", call("g", a="y"))), when="z", instead=call("h", b={"k": "w"}))
    found = [*inside([Let("n", launch.call), launch])]
    assert {one.function for one in found if isinstance(one, Call)} == {"f", "g", "h"}
    assert {one for one in found if isinstance(one, str)} == {"x", "y", "z", "w"}
