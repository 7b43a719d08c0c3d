"""Gradients of nested functions that read what comes to them twice: as large as the nesting, not as its power."""

from __future__ import annotations

import cProfile
import pstats
from functools import reduce
from pathlib import Path

import pytest
import torch

from tests.harness.importing import built
from tests.harness.oracles import compare
from tritongen.autodiff.gradient import derive
from tritongen.lang.typecheck import typecheck
from tritongen.spec.read import read_spec


def nested(terms: int, by_lines: bool = False) -> str:
    """The largest of so many inputs, in one line or in a line for each."""
    names = [f"x{n}" for n in range(terms)]
    inputs = "\n".join(f'{name} = "float[N]"' for name in names)
    listed = ", ".join(f'"{name}"' for name in names)
    lines = [f'y = "{reduce("maximum({}, {})".format, names)}"']
    if by_lines:
        before = ["x0", *(f"y{n}" for n in range(1, terms - 1)), "y"]
        lines = [f'{before[n]} = "maximum({before[n - 1]}, x{n})"' for n in range(1, terms)]
    compute = "\n".join(lines)
    tables = f"[inputs]\n{inputs}\n[compute]\n{compute}\n[outputs]\ny = 'auto'\n[grad]\nwrt = [{listed}]\n"
    return f'[op]\nname = "largest"\n{tables}'


@pytest.mark.parametrize("by_lines", [False, True])
def test_gradients_of_nested_maxima_do_not_double(by_lines: bool) -> None:
    def size(terms: int) -> int:
        spec = read_spec("largest.toml", nested(terms, by_lines))
        assert spec.grad is not None
        return sum(value.node.count for value in derive(typecheck(spec), spec.grad).op.values)

    assert size(12) < 6 * size(6)


def test_gradients_of_residual_norms_are_derived_in_as_many_steps_as_there_are_lines() -> None:
    """Each line is read three times by the next, and so is its gradient."""

    def calls(blocks: int) -> int:
        lines, before = [], "x"
        for n in range(blocks):
            lines += [f'a{n} = "{before} - mean({before}, N)"', f'b{n} = "a{n} * rsqrt(mean(a{n} * a{n}, M) + 1e-5)"']
            lines += [f'y{n} = "tanh(b{n}) + {before}"']
            before = f"y{n}"
        tables = '[inputs]\nx = "float[M, N]"\n[compute]\n' + "\n".join(lines)
        tables += f"\n[outputs]\n{before} = 'auto'\n[grad]\nwrt = ['x']\n"
        spec = read_spec("norms.toml", f'[op]\nname = "norms"\n{tables}')
        assert spec.grad is not None
        with cProfile.Profile() as profile:
            derive(typecheck(spec), spec.grad)
        return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]

    assert calls(8) < 6 * calls(4)


def test_gradients_of_nested_maxima(tmp_path: Path) -> None:
    """Of which several are the same."""
    operator = built(read_spec("largest.toml", nested(7)), tmp_path).largest
    random = torch.Generator().manual_seed(0)
    tensors = [torch.randint(-2, 3, (50,), generator=random).double() for _ in range(7)]
    compare(operator, lambda *given: reduce(torch.maximum, given), tensors, range(7), 1e-12)
