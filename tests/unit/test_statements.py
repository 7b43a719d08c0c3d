"""What functions of the host do, as values: what is printed of them, what is left out of them, and what is refused."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable

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
    call,
    called,
    check_function,
    in_place,
    reads,
    values_of,
    without_unread,
)
from tritongen.nest.values import Expr, Term, V, expr, quoted, tensors
from tritongen.operator.compile import environment
from tritongen.resources import template_folders


def run(*passed: Term, **named: Term) -> Launch:
    return Launch(call("run", *passed, **named))


@pytest.mark.parametrize("value", [(), (1,), (1, (2,), {}), {"A": 1, "B": (2, 3)}, ((), {"C": ()})])
def test_tuples_and_dictionaries_are_printed_as_python_reads_them(value: Term) -> None:
    assert ast.literal_eval(expr(value).text) == value


def test_arguments_that_are_as_by_default_are_left_out() -> None:
    launch = call("f", "x", call("g"), a="", b=None, c=False, d=(), e={}, of=call("h", n=2))
    assert launch.text == "f(x, g(), d=(), e={}, of=h(n=2))"


def test_what_is_inside() -> None:
    launch = Launch(call("f", ("x", call("a.g", a="y"))), when=V.z, instead=call("h", b={"k": "w"}))
    statements = [Let("n", launch.call), launch]
    assert called(statements) == {"f", "a.g", "h"}
    assert reads(statements) == {"x": 2, "y": 2, "a": 2, "z": 1, "w": 1}
    assert [value.text for value in values_of([launch])] == ["z", "f((x, a.g(a=y)))", "h(b={'k': w})"]


def test_dtype_that_one_argument_reads_stands_in_it() -> None:
    def of_compute(**constants: Term) -> Launch:
        return run(constants={"COMPUTE": "compute", **constants})

    other, let = Let("rows", call("Rows", "x")), Let("compute", tensors.widest("one", "another"))
    assert in_place(let, (other, of_compute())) == (other, run(constants={"COMPUTE": let.value}))
    refused: list[tuple[Statement, ...]] = [
        (of_compute(), of_compute()),
        (run(V.f["compute"]),),
        (of_compute(ALIGN=tensors.alignment("one", "another", "third", "and_a_fourth")),),
        (Launch(of_compute().call, when=V.n > 0),),
        (other,),
    ]
    assert [in_place(let, one) for one in refused] == [(let, *one) for one in refused]


def test_names_that_an_expression_reads() -> None:
    text = """f(x.shape[:-1], "y", *z, dtype=one.dtype) if n == 0 else (w,)"""
    assert {*Expr(ast.parse(text, mode="eval").body).variables} == {"x", "z", "one", "n", "w"}


@pytest.mark.parametrize("joined", [Expr.and_, Expr.or_])
def test_comparisons_that_are_joined_have_no_parentheses(joined: Callable[[Expr, Expr], Expr]) -> None:
    every = functools.reduce(joined, [V.a.is_given, V.b.equals(0), V.c > 1, V.d.is_none, V.e])
    kind = "and" if joined is Expr.and_ else "or"
    assert every.text == f" {kind} ".join(["a is not None", "b == 0", "c > 1", "d is None", "e"])


UNREAD = {
    "all of it is read": ([Length(("m", "n"), "x.shape"), Return(V.m * V.n)], None),
    "nothing reads it": ([Length(("n",), "x.shape"), Return("x")], [Return("x")]),
    "a part of it is read": (
        [Length((V.batch.each, "é", "n"), "x.shape"), Return("n")],
        [Length((V._batch.each, V["_é"], "n"), "x.shape"), Return("n")],
    ),
    "one of two values is read": (
        [Length(("m", "n"), ("M", "N")), Return("n")],
        [Length("n", "N"), Return("n")],
    ),
    "nothing reads what reads it": ([Length("m", 2), Length("n", "m"), Return("x")], [Return("x")]),
    "only itself reads it": ([Length("n", (1,)), Length("n", (V.n.each, 2)), Return("x")], [Return("x")]),
    "a string has its name": ([Length("n", 1), Return(quoted("n"))], [Return(quoted("n"))]),
    "a message reads it": ([Length("n", 1), If("x", (Raise(("n is ", V.n)),))], None),
    "a keyword has its name": ([Length("n", 1), Return(call("x.sum", n=2))], [Return(call("x.sum", n=2))]),
    "it is no length": ([Let("n", call("x.item")), Return("x")], None),
    "it is in a block": ([If("x", (Length("n", 1), Do(call("f", "x"))))], [If("x", (Do(call("f", "x")),))]),
}


@pytest.mark.parametrize("case", UNREAD)
def test_lengths_that_nothing_reads(case: str) -> None:
    before, after = UNREAD[case]
    assert without_unread(before) == tuple(before if after is None else after)
    assert without_unread(without_unread(before)) == without_unread(before)


SOUND: list[Statement] = [
    Length(("N",), "x.shape"),
    Allocate("y", call("x.new_empty", ("N",))),
    Launch(call("run", operands=("x", "y"))),
    Return("y"),
]


def test_functions_that_are_sound() -> None:
    check_function(SOUND, ["x"])
    check_function([Let("N", 1), If(V.N.negated, (Let("k", ["N", call("math.prod", "N")]), Return("k")))], [])


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ([SOUND[1], SOUND[0], *SOUND[2:]], "N is read before it has a value"),
        ([Return("N")], "N is read before"),
        ([If("x", (Return("n"),)), Let("n", 1)], "n is read before"),
        ([If(V.n.equals(0), ()), Let("n", 1)], "n is read before"),
        ([*SOUND[:2], Return("y")], "no launch writes y"),
    ],
)
def test_functions_that_are_not_sound(statements: list[Statement], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        check_function(statements, ["x"])


def test_statements_as_python() -> None:
    run = call("run", "x")
    statements: list[Statement] = [
        Let(("key", "replay"), call("lookup", "x")),
        If(V.replay.is_none, (Do(call("check", "x")), If("x", (Raise(("of {}: ", V.x)),), "Why."))),
        Length(("N",), "x.shape"),
        Let(["a", "b"], None),
        Launch(run, V.a, ends=("y", "z")),
        Launch(run, V.a),
        Launch(run, instead=call("other")),
        Launch(run),
        Do(V.a.is_given, "assert"),
        Do(("a", "b"), "del"),
        Return("y"),
    ]
    host = environment(template_folders()).get_template("host.jinja").module
    assert host.statements(statements).splitlines() == [  # type: ignore[attr-defined]
        "key, replay = lookup(x)",
        "if replay is None:",
        "    check(x)",
        "    if x:  # Why.",
        "        raise ValueError(f'of {{}}: {x}')",
        "(N,) = x.shape",
        "a = b = None",
        "if a and run(x):",
        "    return y, z",
        "if a:",
        "    run(x)",
        "if not run(x):",
        "    other()",
        "run(x)",
        "assert a is not None",
        "del a, b",
        "return y",
    ]
