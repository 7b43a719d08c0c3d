"""The view of a function that calls those of its steps, one after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from ...emit.configs import Traffic
from ...emit.format import LONGEST, wrapped
from ...emit.host_checks import IS_FAKE
from ...emit.module import Around, Common, Module
from ...lang.ir import ALWAYS, Dtype, Op
from ...lang.names import shown
from ...lowering.choices import condition, simplified
from ...lowering.lines import condition_text
from ...lowering.lower import compute_of
from ...lowering.space import Space
from ...spec.types import DTYPE_CLASSES, FLOATS, Input, TensorType, plain_shape
from ..family import Step, module_of
from ..functions import function_view
from ..steps import StepHost, Whole, perhaps_without, unknown, with_dtypes
from .decided import paths_of, paths_of_inputs, perhaps_absent
from .program import SeveralProgram

OTHERS = (*DTYPE_CLASSES["int"], *DTYPE_CLASSES["bool"])


def noted(steps: tuple[Step, ...]) -> Iterator[str]:
    """The steps in the docstring of what calls them."""
    yield "Steps:"
    for number, step in enumerate(steps, 1):
        names = ", ".join(result.output.name for result in step.op.results)
        line = f"    {number}. _{step.op.name}, {step.family.title}: {names}"
        yield from wrapped(shown(line)) if len(shown(line)) > LONGEST else (line,)


class SeveralModule(Common):
    def __init__(self, program: SeveralProgram, around: Around, autotune: bool) -> None:
        super().__init__(program, autotune, Space((), ()), compute_of(program.op), [], around)
        self.fake = (IS_FAKE,) if IS_FAKE in around.extra else ()
        shapes = self.host.told_inputs()
        mine = {tensor.name for tensor in (*program.op.inputs, *shapes)}
        every = {*(leaf for result in program.op.results for leaf in result.dtype.of)}
        every |= {leaf for step in program.steps for leaf in step.family.leaves(step.program)}
        others = sorted(every - mine - {*FLOATS, *OTHERS}, key=shown)
        of_dtype = (Input(leaf, TensorType(FLOATS, ())) for leaf in others)  # whose dtype is that of another
        # Groups of axes are taken apart before steps are called, but for those of which only the shape is told.
        own = (replace(t, type=replace(t.type, shape=plain_shape(t.type.axes))) for t in program.op.inputs)
        whole = replace(program.op, inputs=(*own, *shapes, *of_dtype), by_row=frozenset())
        self.whole = Whole(whole, alike=self.host.alike())
        self.told = {tensor.name for tensor in shapes}
        self.paths = paths_of(program.steps, program.op.results) | paths_of_inputs(program.op)
        self.steps = tuple(map(self.informed, program.steps))

    def informed(self, step: Step) -> Step:
        """The step, told of shapes and dtypes besides, with results that are made where those of the whole are."""
        whens = {result.output.name: result.when for result in self.op.results}
        optional = {(tensor.name,) for tensor in self.op.inputs if tensor.default is not None}
        # Beside others, what is by an input that may be None is only made where that is there.
        together = len(step.op.results) > 1
        results = tuple(
            replace(r, when=whens.get(r.output.name, "") if r.when or (together and r.dtype.of in optional) else "")
            for r in step.op.results
        )
        step = self.without(perhaps_absent(step, self.paths), replace(step.op, results=results), step)
        shapes, dtypes = unknown(self.whole, step.op, step.family.leaves(step.program))
        return replace(step, shapes=shapes, dtypes=dtypes, before=step.family.before(step.program))

    def without(self, absent: frozenset[str], op: Op, step: Step) -> Step:
        """The step of an operator, some of whose inputs are None at times, with dtypes of others of their types."""
        tensors, gone = (*op.inputs, *self.whole.forward.inputs), absent | self.op.chosen
        there = [t for t in tensors if t.name not in gone and t.default is None]
        first = {t.type.variable: t.name for t in reversed(there) if t.type.variable}
        alike = {t.name: first[t.type.variable] for t in tensors if t.name in gone and t.type.variable in first}
        program = step.family.take(with_dtypes(op, alike)) if alike else replace(step.program, op=op)
        assert program is not None
        return replace(step, program=replace(program, op=perhaps_without(program.op, absent)))

    def module(self) -> Module:
        inner = [one for step in self.steps for one in (step.before, step) if one is not None]
        modules = [module_of(step, self.around_of(step), self.autotune) for step in inner]
        optional = frozenset(tensor.name for tensor in self.op.inputs if tensor.default is not None)
        functions = [
            module.view | function_view(step, bool(self.fake), optional)
            for step, module in zip(inner, modules, strict=True)
        ]
        calls: list[dict[str, Any]] = [self.call(step) for step in self.steps]
        for call in calls:
            call["is_returned"] = call is calls[-1] and not call["condition"] and call["results"] == self.result()
        extra: dict[str, Any] = {
            "family": "several",
            "steps": functions,
            "calls": calls,
            "notes": tuple(noted(self.steps)),
            "result": self.result(),
        }
        return Module(self.view(extra), Traffic(frozenset()), tuple(modules))

    def result(self) -> str:
        """What is returned: of what other steps read too, that which is to be saved where it is."""
        texts = []
        for result in self.op.results:
            text, is_decided = self.host.regrouped(result), result.when and result.paths != ALWAYS
            if is_decided and any(t.name == result.output.name for step in self.steps for t in step.op.inputs):
                text = f"{text} if {self.host.condition(result)} else None"
            texts.append(text)
        return ", ".join(texts)

    def around_of(self, step: Step) -> Around:
        host = partial(StepHost, origin=self.whole)
        own = [one for one in self.steps if one.family.has_own_tables]
        number = own.index(step) + 1 if step in own else 0
        tables = f"{self.tables}{number if number > 1 else ''}"
        extra = (*step.extra, *self.fake)
        return Around(f"_{step.op.name}", extra, tables, host, self.around.register, self.around.is_gradient)

    def call(self, step: Step) -> dict[str, Any]:
        """The results of a step, and its call; where it is for what is asked for alone, under what condition."""
        op = step.op
        results = {result.output.name: self.host.condition(result) for result in self.op.results if result.when}
        read = {tensor.name for one in self.steps for tensor in one.op.inputs}
        names = [result.output.name for result in op.results]
        whens = dict.fromkeys("" if name in read else results.get(name, "") for name in names)
        passed = [*(tensor.name for tensor in op.inputs), *(param.name for param in op.params)]
        passed += [f"{name}_shape" if name in self.told else f"{name}.shape" for name in step.shapes]
        passed += [self.dtype_of(name) for name in step.dtypes]
        passed += dict.fromkeys(result.when for result in op.results if result.when)
        path = condition(simplified([path for r in op.results for path in self.paths[r.output.name]]))
        decided = condition_text(path) if path else ""
        return {
            "condition": decided if "" in whens else " or ".join(whens),
            "nothing": ", ".join("None" for _ in op.results),
            "results": ", ".join(result.output.name for result in op.results),
            "function": f"_{op.name}",
            "passed": ", ".join([*passed, *(f"{name}={name}" for name in self.fake)]),
        }

    def dtype_of(self, name: str) -> str:
        """The dtype of an input of the whole, or of what that is told of."""
        text = self.host.dtype(Dtype("any", (name,)))
        optional = any(tensor.name == name and tensor.default is not None for tensor in self.op.inputs)
        return f"{text} if {name} is not None else None" if optional else text
