"""Spec -> Op: expressions are parsed by Python's `ast` into an allow-list, and typed.

All mistakes of a spec are collected; later checks skip an expression with a mistake, so that each mistake
is reported once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..diagnostics.report import Mistake, Mistakes, listed
from ..spec.types import Output, Spec, default_shape, inference_order
from .expressions import Abandoned, Expressions, axis_list
from .formulas import by_params, formulas_of, typical_lengths
from .ir import Dtype, Formula, Index, Load, Op, Reduce, Ref, Result, Value
from .layout import dimensions
from .promotion import kind_of
from .syntax import NotAnExpression, Text


def typecheck(spec: Spec) -> Op:
    """The operator that a spec describes. Raises `Mistakes` with all mistakes of its math."""
    return _Typer(spec).op()


class _Typer(Expressions):
    """The type checker of one spec."""

    def op(self) -> Op:
        formulas = formulas_of(self)
        for statement in self.spec.compute:
            self.statement(statement.name, statement.expression)
        results = [result for output in self.spec.outputs if (result := self.result(output))]
        self.check_used()
        self.check_optional()
        self.check_groups(formulas)
        if self.mistakes:
            raise Mistakes(*self.mistakes)
        spec = self.spec
        op = Op(
            name=spec.name,
            summary=spec.summary,
            inputs=spec.inputs,
            params=spec.params,
            values=tuple(self.values.values()),
            results=tuple(results),
            axes=self.axes,
            sizes=tuple(sorted(self.sizes.items())),
            precision=spec.precision,
            deterministic=spec.deterministic,
            fuse=spec.schedule.fuse,
            typical=tuple((axis, max(several)) for axis, several in spec.lengths if axis not in self.sizes),
            formulas=formulas,
        )
        return replace(op, typical=(*op.typical, *typical_lengths(op, op.lengths).items()))

    def statement(self, name: str, text: str) -> None:
        self.key, self.text, self.target = ("compute", name), Text(text), name
        try:
            node = self.visit(self.text.parse())
        except NotAnExpression as error:
            self.report("TG201", error.message, error.start, hint=error.hint)
            self.broken.add(name)
        except Abandoned:
            self.broken.add(name)
        else:
            self.add(Value(name, node, " ".join(text.split())))

    def result(self, output: Output) -> Result | None:
        self.key = ("outputs", output.name)
        if output.name not in self.values:
            return None
        node = self.values[output.name].node
        choices = [choice for choice in self.choices[output.name] if self.has(self.tensors, choice, Load | Index)]
        kinds = {self.natural_order(choice.axes) for choice in choices}
        if len(kinds) > 1 and any(self.has(self.reduced, choice, Reduce) for choice in choices):
            has = listed(sorted(map(axis_list, kinds), key=len, reverse=True))
            message = f"the axes of {output.name} depend on a param: they are {has}"
            self.mistakes.append(Mistake("TG303", message, ("compute", output.name), hint="make them two operators"))
            return None
        if output.shape is None:
            shape = dimensions(self, output, node)
            axes = tuple(name for term in shape for name in term.names)
            if shape != default_shape(self.spec.inputs, axes):
                output = replace(output, shape=shape)
        else:
            axes = tuple(name for term in output.shape for name in term.names)
            if set(axes) != set(node.axes):
                has, wants = axis_list(node.axes), axis_list(axes)
                message = f"{output.name} has the axes {has}, but [outputs] says {wants}"
                self.report("TG303", message, None, hint=f"write {output.dtype}{has}")
                return None
        dtype = self.result_dtype(output, node.dtype)
        return None if dtype is None else Result(output, Ref(output.name, node.axes, node.dtype), axes, dtype)

    def result_dtype(self, output: Output, own: Dtype) -> Dtype | None:
        if output.dtype in self.inputs:
            return Dtype(kind_of(self.inputs[output.dtype].type.dtypes), (output.dtype,))
        if output.dtype != "auto":
            return Dtype(kind_of((output.dtype,)), (output.dtype,))
        if not own.weak:
            return own
        if own.kind == "float" and any(map(self.is_float8, self.inputs)):
            hint = f'spell it, as in {output.name} = "bfloat16"'
            self.report("TG406", f"{output.name} has no dtype: float8 values have none together", None, hint=hint)
            return None
        default = {"bool": "bool", "int": "int64"}.get(own.kind, "float32")
        return Dtype(kind_of((default,)), (default,))

    def check_used(self) -> None:
        used = self.used.union(*((output.name, output.dtype) for output in self.spec.outputs))
        if self.broken:  # The names that a broken line would have used are unknown.
            return
        used = used.union(*(tensor.type.axes for tensor in self.spec.inputs))
        for section, names in (
            ("inputs", self.inputs),
            ("params", self.params),
            ("axes", {s.name: s for s in self.spec.computed}),
            ("compute", {s.name: s for s in self.spec.compute}),
        ):
            for name in names:
                if name not in used:
                    message = f"{name} is never used"
                    hint = "use it, return it under [outputs], or delete it"
                    self.mistakes.append(Mistake("TG207", message, (section, name), hint=hint))

    def check_optional(self) -> None:
        """Check that optional inputs come last, and that required inputs determine all lengths."""
        required = [tensor for tensor in self.spec.inputs if tensor.default is None]
        known = {axis for tensor in required for axis in tensor.type.axes}
        known |= {statement.name for statement in self.spec.computed}
        if not required:
            message = "every input is optional, so nothing tells shapes, dtypes and the device"
            self.mistakes.append(Mistake("TG304", message, ("inputs",), hint="let one input have no default"))
            return
        for place, tensor in enumerate(self.spec.inputs):
            key = ("inputs", tensor.name)
            if tensor.default is None:
                if place and self.spec.inputs[place - 1].default is not None:
                    hint = "put the inputs that can be left out last, as arguments of Python are"
                    self.mistakes.append(Mistake("TG209", f"{tensor.name} follows an optional input", key, hint=hint))
                continue
            for axis in tensor.type.axes:
                if axis not in known and self.sizes.get(axis) is None:
                    message = f"only optional inputs have the axis {axis}, so its length is not known without them"
                    self.mistakes.append(Mistake("TG304", message, key, hint="give it to an input that is required"))

    def check_groups(self, formulas: Iterable[Formula]) -> None:
        """Check the groups: one length follows from the dimension, so all others must be known."""
        fixed = {*self.sizes, *(one.axis for one in by_params(formulas, self.spec.inputs, self.sizes))}
        ordered = inference_order(self.spec.inputs, fixed)
        known = {axis for tensor in ordered if tensor.default is None for axis in tensor.type.axes} | fixed
        for tensor in self.spec.inputs:
            for term in tensor.type.shape if tensor.default is None else ():
                first, *others = [axis for axis in term.names if axis not in known] or [""]
                if others:
                    message = f"nothing tells the lengths of {first} and {others[0]} in one dimension"
                    hint = f"fix one, as in {first}=2, or let another input have it by itself"
                    self.mistakes.append(Mistake("TG306", message, ("inputs", tensor.name), hint=hint))
