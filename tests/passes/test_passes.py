"""What each pass makes of the math of a spec, and what each recogniser finds in it: tests/passes/PASS/CASE.txt.

A golden has the spec, the operator before the pass and the operator after it, in the syntax of specs. Add a case by
writing its spec into a new file. TRITONGEN_UPDATE=1 writes the rest anew, to be read in the diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from tritongen.autodiff.compared import rounded
from tritongen.autodiff.gradient import derive
from tritongen.families.streaming.family import STREAMING
from tritongen.families.streaming.scores import sloped
from tritongen.families.streaming.tile_sums import tile_sum_of
from tritongen.lang.ir import Call, Node, Op, Reduce, Tree, walk
from tritongen.lang.names import shown
from tritongen.lang.typecheck import typecheck
from tritongen.lang.unparse import spelled
from tritongen.passes.contractions import contraction_of
from tritongen.passes.exponentials import exp_pairs
from tritongen.passes.gathered import gathered_in, with_gathers_inside
from tritongen.passes.lost_rows import with_lost_rows
from tritongen.passes.merged_axes import axes_together
from tritongen.passes.merged_sums import sharing_sums
from tritongen.passes.operand_sums import means_as_sums, operand_sums_first
from tritongen.passes.paged import pages_of
from tritongen.passes.rounded_weights import weights_before_casts
from tritongen.passes.shared_sums import shared_sums_first
from tritongen.passes.structure import name_reductions, read_lines, without_aliases
from tritongen.passes.taken_integers import integers_named
from tritongen.passes.triangles import triangle_condition
from tritongen.planner import naming
from tritongen.spec.read import read_spec
from tritongen.spec.types import Grad, Spec

FOLDER = Path(__file__).parent
CASES = sorted(FOLDER.glob("*/*.txt"))
BEFORE, AFTER = "---- before\n", "---- after\n"


def lines(spec: Spec) -> Op:
    return typecheck(spec)


def named(spec: Spec) -> Op:
    """As families see an operator."""
    return means_as_sums(read_lines(without_aliases(lines(spec), ()), ()))


def gradient(spec: Spec) -> Op:
    assert spec.grad is not None
    return name_reductions(derive(lines(spec), spec.grad).op)


def slopes(op: Op) -> object:
    program = STREAMING.take(op)
    assert program is not None
    values = [value.name for value in program.op.values if program.stream.streamed in value.node.axes]
    found = {name: sloped(program.op, name, program.stream) for name in values}
    return {name: slope for name, slope in found.items() if slope}


def streamed(op: Op) -> object:
    program = STREAMING.take(op)
    return program and (program.op, program.stream)


def shared(op: Op) -> Op:
    found = contraction_of(op)
    assert found is not None
    return sharing_sums(*found)[0]


def triangle(op: Op) -> object:
    found = contraction_of(op)
    assert found is not None
    return triangle_condition(*found)


def extrema(op: Op) -> set[str]:
    return {value.name for value in op.values if isinstance(value.node, Reduce) and value.node.kind in ("max", "min")}


def derived(op: Op) -> Op:
    wrt = tuple(tensor.name for tensor in op.inputs if tensor.type.may_be_float)
    return derive(op, Grad(wrt)).op


# What each is given, and what it does with that.
PASSES: dict[str, tuple[Callable[[Spec], Op], Callable[[Op], object]]] = {
    "axes_together": (named, lambda op: axes_together(op, op.axes)),
    "compared": (lambda spec: name_reductions(lines(spec)), lambda op: rounded(op, extrema(op))),
    "contraction": (named, contraction_of),
    "exponentials": (named, lambda op: {name: value.name for name, value in exp_pairs(op).items()}),
    "factors_named": (named, naming.factors_named),
    "gradients": (named, derived),
    "integers_named": (named, integers_named),
    "lost_rows": (named, with_lost_rows),
    "means_as_sums": (lambda spec: name_reductions(lines(spec)), means_as_sums),
    "merged_sums": (named, shared),
    "name_reductions": (lines, name_reductions),
    "operand_sums": (named, operand_sums_first),
    "paged": (named, pages_of),
    "picked": (named, gathered_in),
    "picks_inside": (named, with_gathers_inside),
    "read_lines": (lines, lambda op: read_lines(op, ())),
    "rows_named": (named, naming.rows_named),
    "scattered_named": (gradient, naming.scattered_named),
    "shared_sums": (gradient, shared_sums_first),
    "slopes": (named, slopes),
    "streams": (named, streamed),
    "sums_parted": (named, naming.sums_parted),
    "takes_resolved": (named, naming.takes_resolved),
    "tile_sums": (named, tile_sum_of),
    "triangles": (named, triangle),
    "weights_before_casts": (named, weights_before_casts),
    "without_aliases": (lines, lambda op: without_aliases(op, ())),
}


def printed(op: Op) -> str:
    inputs = [f"{tensor.name}[{', '.join(tensor.type.axes)}]" for tensor in op.inputs]
    values = [
        f"{value.name}[{', '.join(value.node.axes)}] = {spelled(value.node)}{marks(value.node)}" for value in op.values
    ]
    results = [f"{result.output.name}[{', '.join(result.axes)}]" for result in op.results]
    return "\n".join([f"inputs {', '.join(inputs)}", *values, f"outputs {', '.join(results)}", ""])


def marks(node: Node) -> str:
    """What the syntax of specs has no word for."""
    return "  # rounded" if any(isinstance(part, Call) and part.rounded for part in walk(node)) else ""


def told(found: object) -> str:
    """What a recogniser found, an item to a line."""
    if isinstance(found, tuple) and any(isinstance(one, Op) for one in found):
        return "".join(map(told, found))
    if isinstance(found, Op):
        return printed(found)
    if is_dataclass(found) and not isinstance(found, Tree):
        own = [f"{field.name} = {item(getattr(found, field.name))}" for field in fields(found) if field.repr]
        return "\n".join([type(found).__name__, *own, ""])
    return f"{item(found)}\n"


def item(found: object) -> str:
    match found:
        case Tree():
            return spelled(found)
        case tuple() | list():
            return f"[{', '.join(map(item, found))}]"
        case set() | frozenset():
            return f"{{{', '.join(sorted(map(item, found)))}}}"
        case dict():
            return f"{{{', '.join(f'{item(key)}: {item(one)}' for key, one in found.items())}}}"
        case str():
            return found
    if is_dataclass(found):
        own = ", ".join(f"{field.name}={item(getattr(found, field.name))}" for field in fields(found))
        return f"{type(found).__name__}({own})"
    return str(found)


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_pass(path: Path) -> None:
    given, apply = PASSES[path.parent.name]
    golden = path.read_text(encoding="utf-8")
    text = golden.partition(BEFORE)[0]
    before = given(read_spec(f"{path.stem}.toml", text))
    after = apply(before)
    said = "unchanged\n" if after is before or after == before else told(after)
    found = shown(f"{text.rstrip()}\n{BEFORE}{printed(before)}{AFTER}{said}")
    if "TRITONGEN_UPDATE" in os.environ:
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


def test_each_pass_has_two_cases() -> None:
    cases = [path.parent.name for path in CASES]
    assert {name: cases.count(name) for name in PASSES if cases.count(name) < 2} == {}
    assert {*cases} <= PASSES.keys()
