"""The torch function that emitted tests and benchmarks compare a kernel with, as source text.

It is the spec's own reference expression, checked by an allow-list of syntax, or else the spec's math printed line by
line in torch. The math is printed from the expressions as the user wrote them and not from the IR, so that a test
shares as little as possible with the kernel it tests.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ..lang.ir import Op
from ..lang.literals import literal
from ..lang.names import public
from ..lang.syntax import Text
from ..lang.trees import parenthesized
from ..spec.types import FLOAT8S, Original, Spec
from .torch_calls import OnDeviceOfInput
from .torch_printer import Printer


def torch_lines(spec: Spec, op: Op) -> tuple[str, ...]:
    """The body of a function of the inputs and params that returns the outputs, in torch."""
    if spec.reference:
        return (f"return {expression(spec.reference, op)}",)
    return own_lines(spec, op)


def original_lines(original: Original, op: Op) -> tuple[str, ...]:
    """A body that calls the original which the spec restates; its import raises if that is not installed."""
    imports = f"from {original.module} import {', '.join(original.names)}"
    return imports, f"return {expression(original.call, op)}"


def own_lines(spec: Spec, op: Op) -> tuple[str, ...]:
    """A body that computes the spec's own math, even if the spec has a reference."""
    # torch computes nothing in float8.
    names = [tensor.name for tensor in op.inputs if set(tensor.type.dtypes) <= set(FLOAT8S)]
    widened = [f"{name} = {name}.float() if {name}.itemsize == 1 else {name}" for name in names]
    return *widened, *Printer(spec, op).lines()


def expression(text: str, op: Op) -> str:
    """A reference, or an expression of a peer, as it is emitted."""
    made = OnDeviceOfInput(op.inputs[0].name).visit(Text(text).parse())
    return ast.unparse(parenthesized(made))


def signature(op: Op, given: Iterable[str] = ()) -> str:
    """The arguments of such a function: all tensors, which are never None, the names `given`, and params."""
    tensors = [f"{tensor.name}: torch.Tensor" for tensor in op.inputs] + [f"{name}: Any" for name in given]
    params = [
        f"{param.name}: {param.annotation}" + ("" if param.default is None else f" = {literal(param.default)}")
        for param in op.params
    ]
    return public(", ".join([*tensors, *(["*", *params] if params else [])]))
