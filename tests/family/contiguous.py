"""A family from outside: maps of tensors of the same axes, computed in float32, which it copies where they are not
contiguous."""

from __future__ import annotations

from tritongen.emit.module import Around, Common, Module
from tritongen.emit.statements import Allocate, Launch, Let, Return, Statement, call
from tritongen.families.family import Family, Step
from tritongen.lang.ir import Load, Op, Result
from tritongen.lowering.choices import Choices
from tritongen.lowering.lower import Compute, Lowering
from tritongen.lowering.space import Space
from tritongen.nest.values import Expr, V, either, tensors, torch
from tritongen.passes.structure import Program, plain
from tritongen.spec.types import FLOATS


class Contiguous(Family[Program]):
    title = "a map of contiguous elements"

    def take(self, op: Op) -> Program | None:
        program = plain(op)
        same = all(tensor.type.axes == op.results[0].axes for tensor in op.inputs)
        same = same and not op.params and set().union(*(tensor.type.dtypes for tensor in op.inputs)) <= set(FLOATS)
        return program if program is not None and not program.over and same else None

    def module(self, program: Program, before: Step | None, around: Around, autotune: bool) -> Module:
        return _Contiguous(program, around).module()


class _Contiguous(Common):
    def __init__(self, program: Program, around: Around) -> None:
        super().__init__(program, False, Space((), ()), Compute("tl.float32"), [], around)

    def module(self) -> Module:
        op = self.op
        lowering = Lowering(op, self.compute, _unused, _unused, _loaded, Choices(op))
        names = [*(tensor.name for tensor in op.inputs), *(result.output.name for result in op.results)]
        kernel = f"{op.name}_contiguous_kernel"
        view = {
            "family": "contiguous",
            "kernel": kernel,
            "reads": [tensor.name for tensor in op.inputs],
            "writes": [result.output.name for result in op.results],
            "math": [line for value in op.values for line in lowering.line(value)],
            "pointers": ", ".join(f"{name}_ptr" for name in names),
        }
        first = op.inputs[0].name
        body: list[Statement] = [
            *self.begun(),
            *(Let(tensor.name, V[tensor.name].method("contiguous")) for tensor in op.inputs),
            *(Allocate(result.output.name, self.memory(result)) for result in op.results),
            Let("n", V[first].method("numel")),
            Launch(call(V.kernels.field(kernel)[(tensors.cdiv("n", 1024),)], *names, "n", BLOCK=1024), when=V.n),
            Return(self.returned),
        ]
        return self.built(body, **view)

    def memory(self, result: Result) -> Expr:
        made = torch.empty_like(self.op.inputs[0].name, dtype=self.host.dtype(result.dtype))
        return either(result.when, made, None) if result.when else made


def _loaded(node: Load, _: Lowering) -> Expr:
    return V[node.name]


def _unused(*_: str | tuple[str, ...]) -> Expr:
    raise AssertionError("elements of the same axes have no positions, and no lengths")
