"""A forward and its backward -> the bodies of the subclasses of torch.autograd.Function."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from ..emit.host import Dtypes
from ..emit.registration import leading, operator
from ..emit.statements import Do, If, Length, Let, Return, Statement, call, finished, given, one_or_all
from ..families.family import Step
from ..lang.ir import Op
from ..lang.names import shown
from ..nest.values import Expr, Term, V, either, tensors
from ..plan.backward import Backward
from ..spec.types import BATCH, Input


def class_view(
    backward: Backward, namespace: str, saves: bool, inline: Mapping[str, tuple[Term, ...]]
) -> dict[str, Any]:
    """The view of an operator's class: its `setup_context`, its `backward` and its vmap rule.

    `namespace` is the one of a registered operator, or "". With `saves`, the forward takes a flag whether to save.
    Steps that are `inline` are calls of another function, which comes with its arguments.
    """
    op, gradient = backward.forward.op, backward.gradient
    results = [result.output.name for result in op.results]
    own = [result.output.name for result in op.results if not result.when]
    grads = dict(gradient.seeds)
    picked = _picked(len(own), len(results))
    # A registered operator also returns saved values as results.
    constant = [name for name in results if name not in grads and (namespace or name in own)]
    is_alone = bool(constant) and not namespace and len(constant) == len(own) - 1
    (seed,) = [grads[name] for name in own if name in grads] if is_alone else ("",)
    read = {tensor.name for step in backward.plan.steps for tensor in step.op.inputs}
    saved = tuple(tensor for tensor in (*(one.name for one in op.inputs), *results) if tensor in read)
    seeds = [grads.get(name, f"_d{name}") for name in own]
    functions = *(f"_{step.op.name}" for step in backward.plan.steps), *(str(each[0]) for each in inline.values())
    return {
        "in_forward": False,
        "n_results": len(own),
        "picked": picked,
        "wrt": ", ".join(gradient.wrt),
        "all_seeds": ", ".join([*seeds, *["*_"] * bool(picked)]),
        "forwards": not saves,  # the flag that it is called with
        "setup": finished(_setup(backward, saved, constant, is_alone), ("ctx", "inputs", "output")),
        "backward": finished(
            [
                *([If(V[seed].is_none, (Return(one_or_all([None] * len(op.arguments))),))] if seed else []),
                *([Let(saved, "ctx.saved_tensors")] if saved else []),
                Length("needs", "ctx.needs_input_grad"),
                *_Backward(backward, namespace, inline).statements(),
            ],
            ("ctx", *seeds, *functions),
        ),
        **base_view(op, op),
    }


def _setup(backward: Backward, saved: Sequence[str], constant: Sequence[str], is_alone: bool) -> Iterator[Statement]:
    """Saves the tensors and attributes that the backward reads, and marks the results that are `constant`: all but one
    if it `is_alone`.
    """
    results = tuple(result.output.name for result in backward.forward.op.results)
    yield Length(backward.forward.op.arguments, "inputs")
    if len(results) > 1:
        yield Length(results, "output")
    if saved:
        yield Do(V.ctx.method("save_for_backward", *("output" if (name,) == results else name for name in saved)))
    yield from (Let(V.ctx.field(name), value) for name, value in _attributes(backward))
    if is_alone:
        yield Do(call("autograd.constant", "ctx", *constant))
    else:
        yield from marked_constant(constant)


def base_view(op: Op, computed: Op) -> dict[str, Any]:
    """The names of an operator's class and of its base, which determines the vmap rule, and the leading axes for it."""
    named = leading(computed)
    name = "_" + "".join(word.capitalize() for word in shown(op.name).split("_"))
    return {"class_name": name, "base": "BatchedOperator" if named else "Operator", "named": named}


def is_saved(op: Op, name: str) -> bool:
    return any(result.when and result.output.name == name for result in op.results)


def _attributes(backward: Backward) -> Iterator[tuple[str, Term]]:
    """The attributes of the context in addition to tensors: params, and shapes and dtypes of inputs."""
    op, plan = backward.forward.op, backward.plan
    shapes = dict.fromkeys(name for step in plan.steps for name in step.shapes)
    shapes |= dict.fromkeys(name for name, value in plan.spelled.items() if "ctx" in value.names)
    dtypes = dict.fromkeys(name for step in plan.steps for name in step.dtypes)
    inputs = {tensor.name for tensor in op.inputs}
    leaves = (leaf for _, dtype in plan.converted.values() for leaf in dtype.leaves)
    dtypes |= dict.fromkeys(leaf for leaf in leaves if leaf in inputs)
    optional = {tensor.name for tensor in op.inputs if tensor.default is not None}
    found = {f"{name}_shape": (name, _shape(op, name)) for name in shapes}
    found |= {f"{name}_dtype": (name, V[name].dtype) for name in dtypes}
    yield from dict.fromkeys((param.name, param.name) for step in plan.steps for param in step.op.params)
    yield from ((own, given(name, value) if name in optional else value) for own, (name, value) in found.items())


def _shape(op: Op, name: str) -> Expr:
    """The shape of an input, with leading axes at full length where others may have more of them."""
    counts = {t.name: len(t.type.shape) - 1 for t in op.inputs if BATCH in t.type.axes}
    others = [(other, count) for other, count in counts.items() if other != name]
    if name not in counts or not others:
        return V[name].shape
    return tensors.full_shape(name, counts[name], *others)


def marked_constant(names: Sequence[str]) -> list[Statement]:
    return [Do(V.ctx.method("mark_non_differentiable", *names))] if names else []


def _picked(own: int, count: int) -> str:
    """The index of the caller's results in the tuple of the inner function; "" for all of it."""
    if own == count:
        return ""
    return "[0]" if own == 1 else f"[:{own}]"


class _Backward:
    """Calls the steps and returns the gradients.

    The steps are functions, or operators registered in a namespace, which return a tensor for each gradient.
    """

    def __init__(self, backward: Backward, namespace: str, inline: Mapping[str, tuple[Term, ...]]) -> None:
        self.backward, self.namespace, self.inline = backward, namespace, inline
        self.op, self.plan = backward.forward.op, backward.plan
        self.inputs = [tensor.name for tensor in self.op.inputs]
        self.dtypes = {result.output.name: result.dtype for step in self.plan.steps for result in step.op.results}
        every = {self.plan.own(name) for name in self.plan.spelled}
        self.is_single = len(self.plan.steps) == 1 and every <= self.dtypes.keys()

    def statements(self) -> list[Statement]:
        found = [one for name in self.plan.converted for one in self.converted(name)]
        for step in self.plan.steps:
            found += self.called(step)
        returned = [self.returned(place, tensor) for place, tensor in enumerate(self.op.inputs)]
        result = Return(one_or_all([*returned, *[None] * len(self.op.params)]))
        match found:
            case [*before, Let() as last] if last.target == result.text:
                return [*before, Return(last.value)]
        return [*found, result]

    def needed(self, *names: str) -> Expr:
        """Whether any gradient is needed that depends on the results `names` of steps."""
        users = (users_of(self.backward, own) for own in names)
        every = (V.needs[self.inputs.index(name)] for some in users for name in self.plan.spelled if name in some)
        return functools.reduce(Expr.or_, dict.fromkeys(every))

    def converted(self, name: str) -> list[Statement]:
        """Converts an outgoing gradient to the dtype in which steps read it."""
        seed, dtype = self.plan.converted[name]
        optional = frozenset(tensor.name for tensor in self.op.inputs if tensor.default is not None)
        # Optional inputs that were left out have no dtype.
        saved = Dtypes({one: V.ctx.field(f"{one}_dtype") for one in self.inputs}, optional)
        return [Let(name, None), If(self.needed(name), (Let(name, V[seed].to(saved.of(dtype))),))]

    def called(self, step: Step) -> list[Statement]:
        """Calls a step if a result of it is needed and the results that it reads were computed."""
        names = [result.output.name for result in step.op.results]
        whens = dict.fromkeys(result.when for result in step.op.results if result.when)
        flags = (self.needed(*(r.output.name for r in step.op.results if r.when == when)) for when in whens)
        attributes = [param.name for param in step.op.params]
        attributes += [f"{name}_shape" for name in step.shapes] + [f"{name}_dtype" for name in step.dtypes]
        passed = [*map(self.passed, step.op.inputs), *map(V.ctx.field, attributes), *flags]
        name = f"_{step.op.name}"
        function = operator(self.namespace, name) if self.namespace else name
        value = call("autograd.once", *self.inline.get(step.op.name, (function, *passed)))
        made = Let(one_or_all(names), value)
        if self.is_single:
            return [made]
        condition = self.condition(step)
        let = Let(made.name, either(condition, value, None))
        if len(names) == 1 and len(shown(f"{let.target} = {let.source}")) + 8 <= 88:  # in the backward of a class
            return [let]
        return [Let([*names], None), If(condition, (made,))]

    def passed(self, tensor: Input) -> Expr:
        """A tensor as a step is passed it. A registered operator that made it returns an empty tensor in place of a
        gradient by an input that was left out.
        """
        dtype = self.dtypes.get(tensor.name) if self.namespace and tensor.default is not None else None
        name = V[tensor.name]
        return name if dtype is None else either(V.needs[self.inputs.index(dtype.of[0])], name, None)

    def condition(self, step: Step) -> Expr:
        needs = self.needed(*(result.output.name for result in step.op.results))
        made = self.dtypes.keys() | {*self.plan.converted}
        between = [V[one.name].is_given for one in step.op.inputs if one.name in made and one.default is None]
        return functools.reduce(Expr.and_, [*between, needs])

    @cached_property
    def optional(self) -> set[str]:
        """Results of steps that are computed only if they are needed."""
        return {result.output.name for step in self.plan.steps for result in step.op.results if result.when}

    @cached_property
    def together(self) -> set[str]:
        """Results of multi-step plans, which are computed together, whether or not each is needed."""
        several = (step for step in self.plan.steps if step.family.steps(step.program))
        return {result.output.name for step in several for result in step.op.results}

    def returned(self, place: int, tensor: Input) -> Expr | None:
        """The gradient by an input, None where it is not needed."""
        value, needed = self.plan.spelled.get(tensor.name), V.needs[place]
        if value is None:
            return None
        own = self.plan.own(tensor.name)
        is_optional = own in self.optional
        shared = not is_optional or own in self.together or self.needed(own) != needed
        absent = tensor.default is not None and shared  # An input that is not there has no gradient.
        is_none = not value.is_name and (is_optional or (own in self.dtypes and not self.is_single))
        filled = bool(self.namespace) and is_optional
        return either(needed, value, None) if absent or is_none or filled else value


def users_of(backward: Backward, own: str) -> set[str]:
    """The inputs whose gradients depend on a result of a step: on the host, or through steps that read it."""
    plan = backward.plan
    readers = [step for step in plan.steps if own in {tensor.name for tensor in step.op.inputs}]
    later = (users_of(backward, result.output.name) for step in readers for result in step.op.results)
    return {name for name in plan.spelled if plan.own(name) == own}.union(*later)
