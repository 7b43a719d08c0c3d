"""What users of torch are told to write is part of the language."""

from __future__ import annotations

import re

import pytest

from tritongen.lang.functions import FUNCTIONS
from tritongen.lang.habits import ANSWERS
from tritongen.lang.reductions import REDUCTIONS
from tritongen.lang.special import SPECIAL
from tritongen.lang.typecheck import typecheck
from tritongen.spec.read import read_spec

SPEC = """
[op]
name = "told"
[inputs]
x = "float[B, M, N]"
w = "float[N, K]"
mask = "bool[B, M, N]"
i = "int64[B, M]"
target = "int64[B, M]"
weight = "float[V, E]"
part = "float[C, P, R]"
bias = "float[K]"
q = "float[B, M, D]"
k = "float[B, N, D]"
v = "float[B, N, E]"
[params]
eps = 1e-6
p = 0.5
scale = 0.5
start = 1
[compute]
used = "sum(w * x, B, M, N, K) + sum(mask, B, M, N) + sum(i + target, B, M) + sum(weight, V, E) + sum(part, C, P, R)"
more = "sum(bias, K) + sum(q, B, M, D) + sum(k, B, N, D) + sum(v, B, N, E) + eps + p + scale + start"
y = "{line}"
[outputs]
used = "auto"
more = "auto"
y = "auto"
"""
WORDS = {"x": "x", "y": "w", "z": "0", "M": "M", "N": "N", "K": "N", "axes": "B, M, N", "named": "N", "plus": " + 1"}
OTHERS = {"one_hot": {"x": "i"}, "select": {"y": "0"}, "roll": {"y": "1"}, "repeat_interleave": {"y": "2"}}
OTHERS |= {name: {"y": "target", "x": "q", "V": "D"} for name in ("cross_entropy", "nll_loss")}
OTHERS |= {"masked_fill": {"y": "mask"}, "cosine_similarity": {"y": "x"}}
TOLD = {name: text for name, text in ANSWERS.items() if text.startswith("write ") and text != ANSWERS["zeros"]}
del TOLD["einsum"]  # prose


def test_what_the_language_has_needs_no_answer() -> None:
    assert not ANSWERS.keys() & {*FUNCTIONS, *REDUCTIONS, *SPECIAL}


@pytest.mark.parametrize("name", TOLD)
def test_what_to_write(name: str) -> None:
    words = {**WORDS, **OTHERS.get(name, {})}
    told = TOLD[name].format(**words).removeprefix("write ")
    line = re.split(r", with |: |, summed|, over | for | and |, on |, a window|, the number", told)[0].rstrip(":, ")
    line = line.replace(", V)", ", D)") if "V" in words else line
    line = line.replace("(value, x)", "(i, x)").replace("* w, C", "* part, C")
    typecheck(read_spec("told.toml", SPEC.format(line=line)))
