"""The derived gradient of a spec, as the text of another spec."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..autodiff.gradient import Gradient, derive
from ..diagnostics.report import Mistake, Mistakes
from ..emit.host_checks import shape_text
from ..lang.formulas import alone, wanted_of
from ..lang.ir import BOOL, Call, Formula, Load, Op, Ref, Size, Value
from ..lang.names import fresh
from ..lang.typecheck import typecheck
from ..lang.unparse import spelled
from ..passes.structure import name_reductions
from ..spec.read import read_spec
from ..spec.types import DTYPE_CLASSES, Input, Param, Spec, TensorType
from .compile import check


def printed_gradient(spec: Spec) -> str:
    """The text of a spec that computes the gradient of another, without values that the forward could save for it.

    Raises `Mistakes` where there is no gradient, or where the language cannot say it.
    """
    assert spec.grad is not None
    gradient = derive(typecheck(spec), replace(spec.grad, save=(), write="backward"), saves=False)
    text = _Printed(spec, gradient).text()
    try:
        check(read_spec(f"{spec.name}_backward.toml", text))
    except Mistakes as refused:
        said = refused.mistakes[0]
        line = said.key[1] if len(said.key) > 1 else ""
        raise _unsaid(f"its line {line} is none that a spec can have: {said.message}") from None
    return text


def _unsaid(why: str) -> Mistakes:
    hint = "build the spec itself: [grad] computes it"
    return Mistakes(Mistake("TG610", f"the language cannot say this gradient: {why}", ("grad", "wrt"), hint=hint))


@dataclass(frozen=True, slots=True)
class _Printed:
    """A gradient on its way to a spec."""

    spec: Spec
    gradient: Gradient

    def text(self) -> str:
        op, forward = self.gradient.op, self.gradient.forward
        values, given = list(_said(op)), {tensor.name: tensor for tensor in op.inputs}
        used = {*op.names, *(tensor.name for tensor in forward.inputs)}
        outputs: dict[str, str] = {}
        for name, result in zip(self.gradient.wrt, op.results, strict=True):
            own, full = result.output.name, forward.input(name)
            value = next(value for value in values if value.name == own)
            if name not in given or set(value.node.axes) != set(full.type.axes):
                given[name] = full
                values = list(_spread(values, value, full, fresh(f"{own}_term", used)))
            outputs[own] = name + shape_text(full.type.shape)
        inputs = [given.pop(tensor.name) for tensor in forward.inputs if tensor.name in given]
        inputs = [*given.values(), *inputs]
        return "\n".join(_table(name, lines) for name, lines in self.tables(inputs, values, outputs).items() if lines)

    def tables(
        self, inputs: Sequence[Input], values: Sequence[Value], outputs: Mapping[str, str]
    ) -> dict[str, Mapping[str, str]]:
        op = self.gradient.op
        head = {"name": f"{self.spec.name}_backward", "summary": f"The gradient of {self.spec.name}."}
        if op.precision != "ieee":
            head["precision"] = op.precision
        formulas = _formulas(op, inputs, values)
        read = {node.name for value in values for node in value.node.nodes if hasattr(node, "name")}
        read.update(name for formula in formulas for name in formula.params)
        params = [param for param in self.gradient.forward.params if param.name in read]
        return {
            "op": {key: json.dumps(text) for key, text in head.items()},
            "types": {one.type.variable: _quoted(_dtypes(one.type)) for one in inputs if one.type.variable},
            "inputs": {one.name: _input(one) for one in inputs},
            "params": {one.name: _param(one) for one in params},
            "axes": {one.axis: one.source if one.source.isdigit() else _quoted(one.source) for one in formulas},
            "compute": {value.name: _quoted(spelled(value.node)) for value in values},
            "outputs": {name: _quoted(text) for name, text in outputs.items()},
        }


def _formulas(op: Op, inputs: Iterable[Input], values: Iterable[Value]) -> list[Formula]:
    """The lengths that a gradient has to compute: of axes in its math that are no full dimension of its own inputs."""
    nodes = [node for value in values for node in value.node.nodes]
    wanted = {axis for node in nodes for axis in (*node.axes, *(node.over if isinstance(node, Size) else ()))}
    wanted |= {axis for tensor in inputs for axis in tensor.type.axes}
    return wanted_of(wanted - alone(inputs), op.formulas)


def _table(name: str, lines: Mapping[str, str]) -> str:
    return f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items())


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _input(tensor: Input) -> str:
    text = (tensor.type.variable or _dtypes(tensor.type)) + shape_text(tensor.type.shape)
    if tensor.default is not None:
        text += f" = {json.dumps(tensor.default)}"
    return _quoted(text)


def _dtypes(kind: TensorType) -> str:
    named = (name for name, dtypes in DTYPE_CLASSES.items() if set(dtypes) == set(kind.dtypes) and len(dtypes) > 1)
    return next(named, "|".join(kind.dtypes))


def _param(param: Param) -> str:
    """A param as the tables of a spec have it, with all its keys."""
    fields: dict[str, object] = {"choices": list(param.choices)} if param.kind == "enum" else {"type": param.kind}
    fields |= {"default": param.default} if param.default is not None else {}
    fields |= {"min": param.minimum} if param.minimum is not None else {}
    fields |= {"max": param.maximum} if param.maximum is not None else {}
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in fields.items()) + " }"


def _spread(values: Iterable[Value], value: Value, full: Input, spread: str) -> Iterator[Value]:
    """The values, one of which gets all axes of an input: `where` reads that input without changing the result."""
    axes, dtype = full.type.axes, value.node.dtype
    for one in values:
        if one is not value:
            yield one
            continue
        yield Value(spread, one.node, "")
        same = Ref(spread, one.node.axes, dtype)
        test = Call("isnan", (Load(full.name, axes, dtype),), axes, BOOL)
        yield Value(one.name, Call("where", (test, same, same), axes, dtype), "")


def _said(op: Op) -> Iterator[Value]:
    """The values, if the language can say them. Raises `Mistakes` for tile-wise partial reductions."""
    for value in name_reductions(op).values:
        if any(getattr(node, "strips", "") for node in value.node.nodes):
            raise _unsaid(f"{value.name} = {spelled(value.node)}")
        yield value
