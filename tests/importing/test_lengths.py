"""Open lengths: their arithmetic is that of integers, and a trace needs nothing of torch's for them."""

from __future__ import annotations

import operator
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tritongen.importing.formulas import (
    COMPUTED,
    Applied,
    Formula,
    Symbol,
    exact_quotient,
    made,
    of_symbol,
    replaced,
    solved,
    steps_of,
    symbol_of,
    symbols_of,
    value,
)

HERE = Path(__file__).parent
SYMBOLS = [Symbol(number) for number in range(4)]
FUNCTIONS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "minimum": min,
    "maximum": max,
}


@pytest.mark.parametrize("seed", range(40))
def test_formulas_have_the_values_of_pythons_arithmetic(seed: int) -> None:
    """At lengths from 2 on, which open lengths have."""
    draw = random.Random(seed)
    lengths = [{one: draw.randint(2, 40) for one in SYMBOLS} for _ in range(5)]
    pool = [(of_symbol(one), [at[one] for at in lengths]) for one in SYMBOLS]
    pool += [(number, [number] * len(lengths)) for number in (1, 2, 3, 8)]
    for _ in range(12):
        name = draw.choice(list(FUNCTIONS))
        (one, ones), (other, others) = draw.choice(pool), draw.choice(pool)
        if name in ("floor_divide", "remainder") and not all(number > 0 for number in others):
            continue
        found = made(name, one, other)
        wanted = [FUNCTIONS[name](a, b) for a, b in zip(ones, others, strict=True)]
        assert [value(found, at) for at in lengths] == [by_steps(found, at) for at in lengths] == wanted
        renamed = replaced(found, {SYMBOLS[0]: of_symbol(SYMBOLS[1])})
        assert [value(renamed, at | {SYMBOLS[0]: at[SYMBOLS[1]]}) for at in lengths] == [
            value(found, at | {SYMBOLS[0]: at[SYMBOLS[1]]}) for at in lengths
        ]
        pool.append((found, wanted))


def test_equal_formulas_have_one_form() -> None:
    a, b, *_ = map(of_symbol, SYMBOLS)
    assert made("add", made("mul", a, 2), b) == made("sub", made("add", b, made("add", a, a)), 0)
    assert made("floor_divide", made("mul", made("mul", a, b), 8), made("mul", a, 4)) == made("mul", 2, b)
    assert made("floor_divide", made("add", a, 4), 2) == made("add", made("floor_divide", a, 2), 2)
    assert made("remainder", made("mul", a, 6), 3) == 0
    assert made("add", made("mul", a, a), a) == made("add", a, made("mul", a, a))


def test_an_equation_makes_a_symbol_a_formula_of_others() -> None:
    a, b, c, _ = map(of_symbol, SYMBOLS)
    assert solved(made("mul", made("mul", a, b), 4), made("mul", a, c)) == (SYMBOLS[2], made("mul", 4, b))
    symbol, found = solved(made("add", a, b), made("sub", c, 1)) or (None, None)
    assert symbol is not None
    assert symbol not in symbols_of(found)
    assert solved(made("mul", a, a), b) == (SYMBOLS[1], made("mul", a, a))


def by_steps(expr: Any, lengths: dict[Symbol, int]) -> Any:
    if not isinstance(expr, Applied | Formula) or symbol_of(expr) is not None:
        return value(expr, lengths)
    function, args = steps_of(expr)
    return COMPUTED[function](*(by_steps(one, lengths) for one in args))


def test_steps_of_exact_quotients_are_exact() -> None:
    """The terms of a sum that a number divides need not be divisible by it."""
    a, b, c, _ = map(of_symbol, SYMBOLS)
    lengths = dict(zip(SYMBOLS, (5, 7, 3, 2), strict=True))
    for one, other in ((made("add", a, 1), 2), (made("add", a, b), 4), (made("sub", 1, made("mul", a, b)), 2)):
        found = exact_quotient(one, other)
        assert by_steps(found, lengths) == value(one, lengths) // other
        assert by_steps(made("sub", c, found), lengths) == 3 - value(one, lengths) // other


@pytest.mark.sampled(1)
def test_nothing_is_imported_that_torchs_symbolic_lengths_need() -> None:
    program = """if True:
        import sys
        from tritongen.importing.run import imported
        for name, example in (("functions.py:gated_norm", "x=bf16[4,8,64] gate=bf16[4,8,64] weight=bf16[64]"),
                              ("functions.py:attention", "q=f32[2,4,8,16] k=f32[2,4,12,16] v=f32[2,4,12,16]"),
                              ("functions.py:alibi", "q=f32[2,4,8,16] k=f32[2,4,9,16] v=f32[2,4,9,16] slopes=f32[4]"),
                              ("windows.py:concatenated", "x=f32[2,4] y=f32[2,6]"),
                              ("torch.nn:Conv1d", "input=f32[2,4,9]")):
            init = ["in_channels=4", "out_channels=6", "kernel_size=3"] if "Conv" in name else []
            imported(name, init, example)
        print(*sorted({"sympy", "torch._dynamo", "torch._inductor"} & sys.modules.keys()))
    """
    found = subprocess.run([sys.executable, "-c", program], cwd=HERE, check=True, capture_output=True, text=True)
    assert found.stdout == "\n"


def test_another_name_of_a_module_that_is_stood_in_for_is_imported() -> None:
    """As another torch may ask for it; outside, there are the modules themselves, which are not imported twice."""
    import sympy as itself
    from torch.utils._sympy import value_ranges

    from tritongen.importing.symbols import StandIn, without_sympy

    with without_sympy(), without_sympy():
        import sympy
        from torch.fx.experimental.symbolic_shapes import DimConstraints, free_symbols

        assert isinstance(sympy, StandIn)
        assert sympy.Symbol is itself.Symbol
    assert {one.__module__ for one in (DimConstraints, free_symbols)} == {"torch.fx.experimental.symbolic_shapes"}
    assert not any(isinstance(one, StandIn) for one in sys.modules.values())
    assert sys.modules["torch.utils._sympy.value_ranges"] is value_ranges
