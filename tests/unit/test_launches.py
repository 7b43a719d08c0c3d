"""Launches as values, `tritongen.emit.launches`: what is printed of them, and what they are asked."""

from __future__ import annotations

import ast

import pytest

from tritongen.emit.launches import Call, Launch, Let, Value, call, in_place, inside, written


def printed(value: Value) -> ast.expr:
    return ast.parse(written(value), mode="eval").body


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


def test_dtype_that_one_argument_reads_stands_in_it() -> None:
    def run(*more: str, **given: str) -> Launch:
        return Launch(call("run", *more, constants={"COMPUTE": "compute", **given}))

    other, value = Let("rows", call("Rows", "x")), "tensors.widest(one, another)"
    new = Launch(call("run", constants={"COMPUTE": value}))
    assert in_place("compute", value, (other, run())) == (other, new)
    refused = [
        (run(), run()),
        (run("dtype=compute"),),
        (run(ALIGN="tensors.alignment(one, another, third)"),),
        (Launch(call("run", constants={"COMPUTE": "compute"}), when="n > 0"),),
        (other,),
    ]
    assert [in_place("compute", value, one) for one in refused] == [()] * len(refused)
