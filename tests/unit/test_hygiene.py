"""Who gives way where two things of a module have one name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tritongen.emit.hygiene import LAUNCH, resolved
from tritongen.lang.names import in_string, public
from tritongen.lang.trees import walk
from tritongen.operator.compile import generate
from tritongen.spec.read import read_spec


def test_names_without_a_collision_are_as_they_show() -> None:
    (text,) = resolved("def f(ǂxǂ_ptr, n):\n    ǂxǂ = ǂxǂ_ptr + n  # ǂxǂ")
    assert text == "def f(x_ptr, n):\n    x = x_ptr + n  # x"


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        # A variable of ours gives way; a keyword and a builtin do not.
        ("def _f(ǂnǂ):\n    n = ǂnǂ + 1\n    return n", "def _f(n):\n    n_ = n + 1\n    return n_"),
        ("def _f(ǂnǂ, n):\n    pass\n_f(1, n=2)", "def _f(n_, n):\n    pass\n_f(1, n=2)"),
        ("def _f(ǂlenǂ):\n    return len(ǂlenǂ)", "def _f(len_):\n    return len(len_)"),
        ("def _f(ǂdimǂ):\n    return g(dim=ǂdimǂ)", "def _f(dim):\n    return g(dim=dim)"),
        # What is made of a name gives way to a name.
        ("def _f(ǂx_ptrǂ, ǂxǂ_ptr):\n    pass", "def _f(x_ptr, x_ptr_2):\n    pass"),
        # Prose keeps the user's spelling, and code in an f-string does not.
        (
            "def _f(ǂlenǂ):\n    raise E(f'ǂlenǂ is {len(ǂlenǂ)!r}')  # ǂlenǂ",
            "def _f(len_):\n    raise E(f'len is {len(len_)!r}')  # len",
        ),
        # Attributes and variables do not meet.
        ("def _f(ctx, ǂxǂ):\n    ctx.ǂto_saveǂ = ǂxǂ.x", "def _f(ctx, x):\n    ctx.to_save_ = x.x"),
    ],
)
def test_who_gives_way(marked: str, text: str) -> None:
    assert resolved(marked) == (text,)


def test_public_parameters_keep_their_names() -> None:
    signature = public("ǂlenǂ: int, *, ǂnǂ: int = 1")
    (text,) = resolved(f'def f({signature}) -> int:\n    """Of ǂlenǂ."""\n    return len(ǂlenǂ) + ǂnǂ')
    assert text == (
        'def f(len: int, *, n: int = 1) -> int:\n    """Of len."""\n    return _f_(len, n)\n\n\n'
        "def _f_(len_: int, n: int) -> int:\n    return len(len_) + n"
    )


def test_arguments_of_kernels_are_no_options_of_a_launch() -> None:
    for option in LAUNCH:
        text = f"@triton.jit(do_not_specialize=['{in_string(f'ǂ{option}ǂ')}'])\ndef _k(ǂ{option}ǂ):\n    pass"
        (found,) = resolved(text)
        assert found == f"@triton.jit(do_not_specialize=['{option}_'])\ndef _k({option}_):\n    pass"


def test_modules_spell_what_is_passed_by_name_alike() -> None:
    kernels = "def _k(ǂsize_eǂ, size_ǂeǂ):\n    pass"
    found = resolved(kernels, f"_k(1, **{{'{in_string('size_ǂeǂ')}': 2}})")
    assert found == ("def _k(size_e, size_e_2):\n    pass", "_k(1, **{'size_e_2': 2})")


def test_modules_spell_functions_of_one_another_alike() -> None:
    kernels = "def ǂx_maxǂ_kernel(n):\n    pass\ndef ǂxǂ_max_kernel(n):\n    pass"
    found = resolved(kernels, "kernels.ǂx_maxǂ_kernel(1)\nkernels.ǂxǂ_max_kernel(2)")
    assert found == (
        "def x_max_kernel(n):\n    pass\ndef x_max_kernel_2(n):\n    pass",
        "kernels.x_max_kernel(1)\nkernels.x_max_kernel_2(2)",
    )


def test_walks_reach_what_those_of_ast_reach() -> None:
    """But contexts and operators, which have no parts."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    shared = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
    left = [node for node in walk(tree) if not isinstance(node, shared)]
    assert left == [node for node in ast.walk(tree) if not isinstance(node, shared)]
    assert not any(isinstance(node, ast.expr_context) for node in walk(tree))


ATTENTION = """
[op]
name = "self_attention"
[types]
T = "float"
[inputs]
x = "T[..., M, K]"
wq = "T[(H R=2 D=4), K]"
wk = "T[(H D), K]"
wv = "T[(H E=4), K]"
wo = "T[L, (H R E)]"
[axes]
M2 = "M"
[compute]
q = "sum(x * wq, K)"
k = "sum(x * wk, K)"
v = "sum(x * wv, K)"
p = "softmax(sum(q * take(k, index(M2), M), D), M2)"
o = "sum(sum(p * take(v, index(M2), M), M2) * wo, H, R, E)"
[outputs]
o = "x"
p = "x[..., (H R), M, M2]"
[grad]
wrt = ["x", "wq", "wk", "wv", "wo"]
"""


def test_lines_of_kernels_have_no_names_of_what_steps_read() -> None:
    """A step reads dq_factor, which an earlier one stores, and sums products of it and of a factor of its own."""
    assert generate(read_spec("self_attention", ATTENTION), ".")
