"""What functions of the host do, as values: what is printed of them, what is left out of them, and what is refused."""

from __future__ import annotations

import ast

import pytest

from tritongen.emit.statements import (
    Allocate,
    Do,
    If,
    Launch,
    Length,
    Let,
    Raise,
    Return,
    Statement,
    Value,
    call,
    called,
    check_function,
    in_place,
    inside,
    names_in,
    without_unread,
    written,
)
from tritongen.operator.compile import environment
from tritongen.resources import template_folders


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
    assert called([launch]) == {"f", "g", "h"}
    assert {one for one in found if isinstance(one, str)} == {"x", "y", "z", "w"}


def test_dtype_that_one_argument_reads_stands_in_it() -> None:
    def run(*more: str, **given: str) -> Launch:
        return Launch(call("run", *more, constants={"COMPUTE": "compute", **given}))

    other, let = Let("rows", call("Rows", "x")), Let("compute", "tensors.widest(one, another)")
    new = Launch(call("run", constants={"COMPUTE": let.value}))
    assert in_place(let, (other, run())) == (other, new)
    refused: list[tuple[Statement, ...]] = [
        (run(), run()),
        (run("f[compute]"),),
        (run(ALIGN="tensors.alignment(one, another, third)"),),
        (Launch(call("run", constants={"COMPUTE": "compute"}), when="n > 0"),),
        (other,),
    ]
    assert [in_place(let, one) for one in refused] == [(let, *one) for one in refused]


def test_names_that_an_expression_reads() -> None:
    text = """f(x.shape[:-1], "y", *z, dtype=one.dtype) if n == 0 else (w,)"""
    assert {*names_in(text)} - {"if", "else"} == {"x", "z", "one", "n", "w"}


UNREAD = {
    "all of it is read": ([Length(("m", "n"), "x.shape"), Return("m * n")], None),
    "nothing reads it": ([Length(("n",), "x.shape"), Return("x")], [Return("x")]),
    "a part of it is read": (
        [Length(("*batch", "é", "n"), "x.shape"), Return("n")],
        [Length(("*_batch", "_é", "n"), "x.shape"), Return("n")],
    ),
    "one of two values is read": (
        [Length(("m", "n"), ("M", "N")), Return("n")],
        [Length("n", "N"), Return("n")],
    ),
    "nothing reads what reads it": ([Length("m", "2"), Length("n", "m"), Return("x")], [Return("x")]),
    "only itself reads it": ([Length("n", "(1,)"), Length("n", "(*n, 2)"), Return("x")], [Return("x")]),
    "a string has its name": ([Length("n", "1"), Return('"n"')], [Return('"n"')]),
    "a message reads it": ([Length("n", "1"), If("x", (Raise("{n!r}"),))], None),
    "a keyword has its name": ([Length("n", "1"), Return("x.sum(n=2)")], [Return("x.sum(n=2)")]),
    "it is no length": ([Let("n", "x.item()"), Return("x")], None),
    "it is in a block": ([If("x", (Length("n", "1"), Do("f(x)")))], [If("x", (Do("f(x)"),))]),
}


@pytest.mark.parametrize("case", UNREAD)
def test_lengths_that_nothing_reads(case: str) -> None:
    before, after = UNREAD[case]
    assert without_unread(before) == tuple(before if after is None else after)
    assert without_unread(without_unread(before)) == without_unread(before)


SOUND: list[Statement] = [
    Length(("N",), "x.shape"),
    Allocate("y", "x.new_empty((N,))"),
    Launch(call("run", operands=("x", "y"))),
    Return("y"),
]


def test_functions_that_are_sound() -> None:
    check_function(SOUND, ["x"])
    check_function([Let("N", "1"), If("not N", (Let("k", "[N, math.prod(N)]"), Return("k")))], [])


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ([SOUND[1], SOUND[0], *SOUND[2:]], "N is read before it has a value"),
        ([Return("N")], "N is read before"),
        ([If("x", (Return("n"),)), Let("n", "1")], "n is read before"),
        ([If("n == 0", ()), Let("n", "1")], "n is read before"),
        ([*SOUND[:2], Return("y")], "no launch writes y"),
    ],
)
def test_functions_that_are_not_sound(statements: list[Statement], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        check_function(statements, ["x"])


def test_statements_as_python() -> None:
    run = call("run", "x")
    statements = [
        Let(("key", "replay"), call("lookup", "x")),
        If("replay is None", (Do(call("check", "x")), If("x", (Raise("{x}"),), "Why.")), ""),
        Length(("N",), "x.shape"),
        Launch(run, "a", ends="y"),
        Launch(run, "a"),
        Launch(run, instead=call("other")),
        Launch(run),
        Return("y"),
    ]
    host = environment(template_folders()).get_template("host.jinja").module
    assert host.statements(statements).splitlines() == [  # type: ignore[attr-defined]
        "key, replay = lookup(x)",
        "if replay is None:",
        "    check(x)",
        "    if x:  # Why.",
        '        raise ValueError(f"{x}")',
        "(N,) = x.shape",
        "if a and run(x):",
        "    return y",
        "if a:",
        "    run(x)",
        "if not run(x):",
        "    other()",
        "run(x)",
        "return y",
    ]
