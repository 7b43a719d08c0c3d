"""What is found out of operators once."""

from __future__ import annotations

from dataclasses import replace

from tritongen.lang.facts import fact
from tritongen.lang.ir import Op
from tritongen.lang.typecheck import typecheck
from tritongen.spec.read import read_spec

TEXT = '[op]\nname = "double"\n[inputs]\nx = "float[N]"\n[compute]\ny = "2 * x"\n[outputs]\ny = "x"\n'


def test_facts_are_found_once_for_each_operator_and_arguments() -> None:
    calls = list[str]()

    @fact
    def named(op: Op, suffix: str) -> str:
        calls.append(suffix)
        return f"{op.name}{suffix}"

    op = typecheck(read_spec("double.toml", TEXT))
    other = replace(op, name="other")
    for _ in range(2):
        assert [named(op, "_a"), named(op, "_b"), named(other, "_a")] == ["double_a", "double_b", "other_a"]
    assert calls == ["_a", "_b", "_a"]
