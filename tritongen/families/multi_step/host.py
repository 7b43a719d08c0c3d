"""The view of a host function that calls the functions of its steps."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from functools import partial

from ...emit.format import LONGEST, wrapped
from ...emit.host_checks import IS_FAKE
from ...emit.module import Around, Common, Module
from ...emit.statements import Do, If, Let, Return, Statement, call, given, one_or_all, reads
from ...lang.ir import ALWAYS, Dtype, Op, Result
from ...lang.names import shown
from ...lowering.axes import spread
from ...lowering.choices import condition
from ...lowering.lower import compute_of
from ...lowering.space import Space
from ...nest.conditions import condition_tree
from ...nest.values import Expr, Term, V, either, expr
from ...passes.renamed import renamed
from ...passes.structure import SAVES, taken_from
from ...planner.steps import Enclosing, informed, with_dtypes, without_optional
from ...spec.types import DTYPE_CLASSES, FLOATS, Input, TensorType, plain_shape
from ..family import MultiStepProgram, Step, module_of
from ..functions import function_view
from ..step_host import StepHost
from .decided import may_be_absent, paths_of, running

OTHERS = (*DTYPE_CLASSES["int"], *DTYPE_CLASSES["bool"])


@dataclass(frozen=True)
class InnerHost(StepHost):
    """Writes the function of a step; its first result overwrites the input `over`, if there is one."""

    over: str = ""

    def empty(self, result: Result) -> Expr:
        return V[self.over] if self.over and result == self.op.results[0] else super().empty(result)


def noted(steps: tuple[Step, ...], views: Container[str]) -> Iterator[str]:
    """The list of steps for the docstring of the function that calls them."""
    yield "Steps:"
    for number, step in enumerate(steps, 1):
        names = ", ".join(result.output.name for result in step.op.results)
        line = (
            f"    {number}. {names}, a view"
            if names in views
            else (f"    {number}. _{step.op.name}, {step.family.title}: {names}")
        )
        yield from wrapped(shown(line)) if len(shown(line)) > LONGEST else (line,)


class MultiStepModule(Common):
    def __init__(self, program: MultiStepProgram, around: Around, autotune: bool) -> None:
        super().__init__(program, autotune, Space((), ()), compute_of(program.op), [], around)
        self.fake = (IS_FAKE,) if IS_FAKE in around.extra else ()
        shapes = self.host.shape_inputs()
        mine = {tensor.name for tensor in (*program.op.inputs, *shapes)}
        every = {*program.leaves, *(leaf for result in program.op.results for leaf in result.dtype.leaves)}
        others = sorted(every - mine - {*FLOATS, *OTHERS}, key=shown)
        of_dtype = (Input(leaf, TensorType(FLOATS, ())) for leaf in others)  # passed for their dtypes
        # Groups of axes are unflattened before steps are called, except of tensors that are passed only as shapes.
        own = (replace(t, type=replace(t.type, shape=plain_shape(t.type.axes))) for t in program.op.inputs)
        name, inputs = self.host.operator, (*own, *shapes, *of_dtype)
        enclosing = replace(program.op, name=name, inputs=inputs, by_row=frozenset())
        self.enclosing = Enclosing(enclosing, same_dtypes=self.host.same_dtypes(), is_gradient=around.is_gradient)
        self.shape_names = {tensor.name for tensor in shapes}
        self.paths = paths_of(program.steps, program.op)
        self.steps = tuple(map(self.informed, program.steps))
        self.made = {result.output.name: result for step in self.steps for result in step.op.results}
        views = {step.op.results[0].output.name: self.view_of(step) for step in self.steps}
        self.views = {name: view for name, view in views.items() if view is not None}

    def informed(self, step: Step) -> Step:
        """The step with shapes and dtypes as further arguments; its results are optional where the operator's are."""
        whens = {result.output.name: result.when for result in self.op.results}
        optional = {(tensor.name,) for tensor in self.op.inputs if tensor.default is not None}
        # A step of several results computes the gradient by an optional input only if the input is given.
        together = len(step.op.results) > 1
        results = tuple(
            replace(r, when=whens.get(r.output.name, "") if r.when or (together and r.dtype.of in optional) else "")
            for r in step.op.results
        )
        step = self.without(may_be_absent(step, self.paths), replace(step.op, results=results), step)
        step = informed(self.enclosing, step, step.family.leaves(step.program))
        return replace(step, before=step.family.before(step.program))

    def without(self, absent: frozenset[str], op: Op, step: Step) -> Step:
        """The step with inputs in `absent` made optional, and dtypes expressed by inputs of the same types instead."""
        tensors, gone = (*op.inputs, *self.enclosing.forward.inputs), absent | self.op.chosen
        there = [t for t in tensors if t.name not in gone and t.default is None]
        first = {t.type.variable: t.name for t in reversed(there) if t.type.variable}
        renames = {t.name: first[t.type.variable] for t in tensors if t.name in gone and t.type.variable in first}
        program = step.family.take(with_dtypes(op, renames)) if renames else replace(step.program, op=op)
        assert program is not None
        return replace(step, program=replace(program, op=without_optional(program.op, absent)))

    def view_of(self, step: Step) -> Expr | None:
        """The view that a step makes of a tensor by renaming its axes, without a kernel. None for other steps, for
        results of registered operators, which must not alias, and for results that would be views of an input.
        """
        found = renamed(step.op)
        if found is None:
            return None
        (name, names), result = found, step.op.results[0]
        own = self.made.get(name)
        axes = own.axes if own else self.op.input(name).type.axes
        is_returned = any(one.output.name == result.output.name for one in self.op.results)
        if is_returned and (own is None or self.around.register != "none"):
            return None
        if not self.has_same_dtype(own.dtype if own else Dtype("any", (name,)), result.dtype):
            return None
        return spread(V[name], tuple(names.get(axis, axis) for axis in axes), list(result.axes))

    def module(self) -> Module:
        launching = [step for step in self.steps if step.op.results[0].output.name not in self.views]
        inner = [one for step in launching for one in (step.before, step) if one is not None]
        modules = [module_of(step, self.around_of(step), self.autotune) for step in inner]
        optional = frozenset(tensor.name for tensor in self.op.inputs if tensor.default is not None)
        functions = [
            module.view | function_view(step, bool(self.fake) and step in self.steps, optional)
            for step, module in zip(inner, modules, strict=True)
        ]
        body = [*self.begun(), *(one for step in self.steps for one in self.called(step))]
        # Flags are read if they decide about a step, are passed to one, or decide about returned values.
        unread = frozenset(result.when for result in self.op.results) - reads(body).keys()
        made = self.built(body, steps=functions, notes=tuple(noted(self.steps, self.views)))
        return replace(made, steps=tuple(modules), unread=unread)

    def read_last(self, step: Step) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Stored tensors that no step after this one reads, so that their memory may be reused; second, those for which
        that holds unless they are saved for a backward.
        """
        conditions = {result.output.name: result.when for result in self.op.results}
        later = {tensor.name for one in self.steps[self.steps.index(step) + 1 :] for tensor in one.op.inputs}
        last = [tensor.name for tensor in step.op.inputs if tensor.name in self.made.keys() - later]
        return tuple(n for n in last if n not in conditions), tuple(n for n in last if conditions.get(n) == SAVES)

    def overwritten(self, step: Step) -> str:
        """The input that a step may overwrite with its first result, of the same shape and dtype; "" if there is none.
        The step must read each element once, where it writes, and run once, without autotuning.
        """
        if not step.family.maps_in_place or self.autotune or step not in self.steps:
            return ""
        first, taken, (last, _) = step.op.results[0], taken_from(step.op), self.read_last(step)
        there = [tensor for tensor in step.op.inputs if tensor.default is None]  # others may be None
        shaped = [tensor.name for tensor in there if tensor.type.axes == first.axes]
        viewed = {*self.views, *(tensor.name for one in self.steps for tensor in one.op.inputs
                                 if one.op.results[0].output.name in self.views)}  # fmt: skip
        free = [name for name in shaped if name in last and name not in {*taken, *viewed}]
        return next((name for name in free if self.has_same_dtype(self.made[name].dtype, first.dtype)), "")

    def has_same_dtype(self, one: Dtype, other: Dtype) -> bool:
        """Whether two dtypes certainly are the same, whatever dtypes the inputs have."""
        return one.rule == other.rule != "compute" and self.types(one) == self.types(other)

    def types(self, dtype: Dtype) -> set[str]:
        """The type variables, or else the inputs, that promote to a dtype."""
        variables = {tensor.name: tensor.type.variable for tensor in (*self.enclosing.forward.inputs, *self.op.inputs)}
        first = {name: leaf for leaf, name in self.enclosing.same_dtypes}
        found: set[str] = set()
        for leaf in dtype.leaves:
            own = first.get(leaf, leaf)
            found |= self.types(self.made[leaf].dtype) if leaf in self.made else {variables.get(own) or own}
        return found

    @property
    def returned(self) -> Term:
        """The returned expression: values that are only saved for a backward are None without one; those that steps
        read, too, are returned under their own conditions.
        """
        found: dict[str, Expr] = {}
        for result in self.op.results:
            value = self.host.regrouped(result)
            is_some = self.is_decided(result)
            found[result.output.name] = either(self.host.condition(result), value, None) if is_some else value
        dropped = {name for step in self.steps[:-1] for name in self.read_last(step)[1]}
        every = one_or_all([*found.values()])
        without = one_or_all([None if name in dropped else value for name, value in found.items()])
        return either(SAVES, every, without) if dropped else every

    def is_decided(self, result: Result) -> bool:
        """Whether a result that other steps read, too, is returned under a condition of its own."""
        return bool(result.when) and result.paths != ALWAYS and self.is_read(result)

    def is_read(self, result: Result) -> bool:
        return any(tensor.name == result.output.name for step in self.steps for tensor in step.op.inputs)

    def around_of(self, step: Step) -> Around:
        host = partial(InnerHost, origin=self.enclosing, over=self.overwritten(step))
        own = [one for one in self.steps if one.family.has_own_tables]
        number = self.around.before + own.index(step) + 1 if step in own else 0
        tables = f"{self.tables}{number if number > 1 else ''}"
        extra = (*step.extra, *(self.fake if step in self.steps else ()))
        return Around(f"_{step.op.name}", extra, tables, host, self.around.register, self.around.is_gradient)

    def called(self, step: Step) -> Iterator[Statement]:
        """The call of a step, under its condition, and the release of tensors that no later step reads."""
        names = tuple(result.output.name for result in step.op.results)
        flags = dict.fromkeys(result.when for result in step.op.results if result.when)
        value = self.views.get(names[0]) or call(
            f"_{step.op.name}", *self.passed(step), *flags, **{name: name for name in self.fake}
        )
        condition, is_last = self.condition(step), step is self.steps[-1]
        results = one_or_all(names)
        if is_last and condition is None and expr(results) == expr(self.returned):
            yield Return(value)
            return
        let = Let(results, value)
        if condition:  # It implies that some optional inputs are given, which type checkers cannot know.
            present = [one.name for one in step.op.inputs if one.default is None and one.name in self.paths]
            present = [name for name in present if self.paths[name] != ALWAYS]
            asserted = [Do(V[name].is_given, "assert") for name in present]
            yield from (Let(results, one_or_all([None] * len(names))), If(condition, (*asserted, let)))
        else:
            yield let
        if is_last:
            yield Return(self.returned)
            return
        freed, dropped = self.read_last(step)
        if freed:
            yield Do(one_or_all(freed), "del")
        if dropped:
            yield If(V[SAVES].negated, (Do(one_or_all(dropped), "del"),))

    def passed(self, step: Step) -> Iterator[Term]:
        """The arguments of a step: tensors, params, and shapes and dtypes of other tensors."""
        yield from step.op.arguments
        for name in step.shapes:
            yield f"{name}_shape" if name in self.shape_names else V[name].shape
        yield from map(self.dtype_of, step.dtypes)

    def condition(self, step: Step) -> Expr | None:
        """The condition of a step, None if it always runs: any of its results is requested, if no other step reads
        them; else their readers run.
        """
        optional = {result.output.name: result for result in self.op.results if result.when}
        returned = [None if self.is_read(one) else optional.get(one.output.name) for one in step.op.results]
        if all(returned):
            return functools.reduce(Expr.or_, dict.fromkeys(self.host.condition(one) for one in returned if one))
        path = condition(running(step, self.paths))
        return Expr(condition_tree(path)) if path else None

    def dtype_of(self, name: str) -> Expr:
        """The dtype of an input of the operator, or of a tensor that stands in for it; None for an absent input."""
        if any(tensor.name == name and tensor.default is not None for tensor in self.op.inputs):
            return given(name, V[name].dtype)
        return self.host.dtype(Dtype("any", (name,)))
