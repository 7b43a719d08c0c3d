"""A forward and its backward -> what the subclasses of torch.autograd.Function say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from ..emit.host import Dtypes
from ..emit.registration import leading, operator
from ..emit.statements import Call, Do, If, Length, Let, Return, Statement, finished, given, written
from ..families.family import Step
from ..lang.ir import Op
from ..lang.names import shown
from ..plan.backward import Backward
from ..spec.types import BATCH, Input


def class_view(
    backward: Backward, namespace: str, saves: bool, inline: Mapping[str, tuple[str, ...]]
) -> dict[str, Any]:
    """What the class of an operator says, its `setup_context`, `backward` and rule of vmap.

    The namespace is that of a registered operator, "" of others. With `saves`, the forward takes a flag whether to
    save. Steps that are `inline` are calls of another function, which comes with its arguments.
    """
    op, gradient = backward.forward.op, backward.gradient
    results = [result.output.name for result in op.results]
    own = [result.output.name for result in op.results if not result.when]
    grads = dict(gradient.seeds)
    picked = _picked(len(own), len(results))
    # What is saved besides is a result of what is registered.
    constant = [name for name in results if name not in grads and (namespace or name in own)]
    is_alone = bool(constant) and not namespace and len(constant) == len(own) - 1
    (seed,) = [grads[name] for name in own if name in grads] if is_alone else ("",)
    read = {tensor.name for step in backward.plan.steps for tensor in step.op.inputs}
    saved = tuple(tensor for tensor in (*(one.name for one in op.inputs), *results) if tensor in read)
    seeds = [grads.get(name, f"_d{name}") for name in own]
    functions = *(f"_{step.op.name}" for step in backward.plan.steps), *(each[0] for each in inline.values())
    nothing = If(f"{seed} is None", (Return(", ".join(["None"] * len(op.arguments))),))
    return {
        "in_forward": False,
        "n_results": len(own),
        "picked": picked,
        "wrt": ", ".join(gradient.wrt),
        "all_seeds": ", ".join([*seeds, *["*_"] * bool(picked)]),
        "forwards": not saves,  # what it is called with
        "setup": finished(_setup(backward, saved, constant, is_alone), ("ctx", "inputs", "output")),
        "backward": finished(
            [
                *([nothing] if seed else []),
                *([Let(saved, "ctx.saved_tensors")] if saved else []),
                Length("needs", "ctx.needs_input_grad"),
                *_Backward(backward, namespace, inline).statements(),
            ],
            ("ctx", *seeds, *functions),
        ),
        **base_view(op, op),
    }


def _setup(backward: Backward, saved: Sequence[str], constant: Sequence[str], is_alone: bool) -> Iterator[Statement]:
    """Saves tensors and what else the backward reads, and marks the results that are `constant`: all but one of them if
    it `is_alone`.
    """
    results = tuple(result.output.name for result in backward.forward.op.results)
    yield Length(backward.forward.op.arguments, "inputs")
    if len(results) > 1:
        yield Length(results, "output")
    if saved:
        yield Do(Call("ctx.save_for_backward", tuple("output" if (name,) == results else name for name in saved)))
    yield from (Let(f"ctx.{name}", value) for name, value in _attributes(backward))
    if is_alone:
        yield Do(Call("autograd.constant", ("ctx", *constant)))
    else:
        yield from marked_constant(constant)


def base_view(op: Op, computed: Op) -> dict[str, str]:
    """The class that an operator's is derived from, by what torch.func.vmap calls, and what that needs to know."""
    named = leading(computed)
    name = "_" + "".join(word.capitalize() for word in shown(op.name).split("_"))
    return {"class_name": name, "base": "BatchedOperator" if named else "Operator", "named": named}


def is_saved(op: Op, name: str) -> bool:
    return any(result.when and result.output.name == name for result in op.results)


def _attributes(backward: Backward) -> Iterator[tuple[str, str]]:
    """What the context keeps besides tensors: params, and shapes and dtypes of inputs."""
    op, plan = backward.forward.op, backward.plan
    shapes = dict.fromkeys(name for step in plan.steps for name in step.shapes)
    shapes |= dict.fromkeys(name for name, text in plan.spelled.items() if f"ctx.{name}_shape" in text)
    dtypes = dict.fromkeys(name for step in plan.steps for name in step.dtypes)
    inputs = {tensor.name for tensor in op.inputs}
    leaves = (leaf for _, dtype in plan.converted.values() for leaf in dtype.leaves)
    dtypes |= dict.fromkeys(leaf for leaf in leaves if leaf in inputs)
    optional = {tensor.name for tensor in op.inputs if tensor.default is not None}
    found = {f"{name}_shape": (name, _shape(op, name)) for name in shapes}
    found |= {f"{name}_dtype": (name, f"{name}.dtype") for name in dtypes}
    yield from dict.fromkeys((param.name, param.name) for step in plan.steps for param in step.op.params)
    yield from ((own, given(name, text) if name in optional else text) for own, (name, text) in found.items())


def _shape(op: Op, name: str) -> str:
    """The shape of an input, with leading axes at full length where others may have more of them."""
    counts = {t.name: len(t.type.shape) - 1 for t in op.inputs if BATCH in t.type.axes}
    others = [(other, count) for other, count in counts.items() if other != name]
    if name not in counts or not others:
        return f"{name}.shape"
    return written(Call("tensors.full_shape", (name, counts[name], *others)))


def marked_constant(names: Sequence[str]) -> list[Statement]:
    return [Do(Call("ctx.mark_non_differentiable", tuple(names)))] if names else []


def _picked(own: int, count: int) -> str:
    """Of what the inner function returns, what the caller gets."""
    if own == count:
        return ""
    return "[0]" if own == 1 else f"[:{own}]"


class _Backward:
    """Calls the steps and returns the gradients.

    The steps are functions, or operators registered in a namespace, which return something for each gradient.
    """

    def __init__(self, backward: Backward, namespace: str, inline: Mapping[str, tuple[str, ...]]) -> None:
        self.backward, self.namespace, self.inline = backward, namespace, inline
        self.op, self.plan = backward.forward.op, backward.plan
        self.inputs = [tensor.name for tensor in self.op.inputs]
        self.dtypes = {result.output.name: result.dtype for step in self.plan.steps for result in step.op.results}
        self.is_single = len(self.plan.steps) == 1 and {*map(_own, self.plan.spelled.values())} <= self.dtypes.keys()

    def statements(self) -> list[Statement]:
        found = [one for name in self.plan.converted for one in self.converted(name)]
        for step in self.plan.steps:
            found += self.called(step)
        returned = [self.returned(place, tensor) for place, tensor in enumerate(self.op.inputs)]
        result = ", ".join([*returned, *(["None"] * len(self.op.params))])
        match found:
            case [*before, Let() as last] if last.target == result:
                return [*before, Return(last.value)]
        return [*found, Return(result)]

    def needed(self, *names: str) -> str:
        """Whether any gradient is needed that some results of steps are for."""
        users = (users_of(self.backward, own) for own in names)
        every = (f"needs[{self.inputs.index(name)}]" for some in users for name in self.plan.spelled if name in some)
        return " or ".join(dict.fromkeys(every))

    def converted(self, name: str) -> list[Statement]:
        """Converts what steps read in another dtype."""
        seed, dtype = self.plan.converted[name]
        optional = frozenset(tensor.name for tensor in self.op.inputs if tensor.default is not None)
        kept = Dtypes({one: f"ctx.{one}_dtype" for one in self.inputs}, optional)  # None of those that were left out
        to = Let(name, Call(f"{seed}.to", (kept.of(dtype),)))
        return [Let(name, "None"), If(self.needed(name), (to,))]

    def called(self, step: Step) -> list[Statement]:
        """Calls a step where it is needed, and what it reads was made."""
        names = [result.output.name for result in step.op.results]
        whens = dict.fromkeys(result.when for result in step.op.results if result.when)
        flags = (self.needed(*(r.output.name for r in step.op.results if r.when == when)) for when in whens)
        passed = [self.passed(tensor) for tensor in step.op.inputs]
        passed += [f"ctx.{param.name}" for param in step.op.params]
        passed += [f"ctx.{name}_shape" for name in step.shapes] + [f"ctx.{name}_dtype" for name in step.dtypes]
        name = f"_{step.op.name}"
        function = operator(self.namespace, name) if self.namespace else name
        called = self.inline.get(step.op.name, (function, *passed, *flags))
        made = Let(", ".join(names), Call("autograd.once", called))
        if self.is_single:
            return [made]
        condition = self.condition(step)
        let = Let(made.name, f"{made.source} if {condition} else None")
        if len(names) == 1 and len(shown(f"{let.target} = {let.source}")) + 8 <= 88:  # in the backward of a class
            return [let]
        return [Let(" = ".join(names), "None"), If(condition, (made,))]

    def passed(self, tensor: Input) -> str:
        """A tensor as a step is passed it. A registered operator that made it returns an empty tensor in place of a
        gradient by an input that was left out.
        """
        dtype = self.dtypes.get(tensor.name) if self.namespace and tensor.default is not None else None
        return tensor.name if dtype is None else f"{tensor.name} if needs[{self.inputs.index(dtype.of[0])}] else None"

    def condition(self, step: Step) -> str:
        needs = self.needed(*(result.output.name for result in step.op.results))
        made = self.dtypes.keys() | {*self.plan.converted}
        between = [f"{one.name} is not None" for one in step.op.inputs if one.name in made and one.default is None]
        needs = f"({needs})" if between and " or " in needs else needs
        return " and ".join([*between, needs])

    @cached_property
    def optional(self) -> set[str]:
        """Results of steps that are not always there."""
        return {result.output.name for step in self.plan.steps for result in step.op.results if result.when}

    @cached_property
    def together(self) -> set[str]:
        """Results that come with others, whether or not they are asked for."""
        several = (step for step in self.plan.steps if step.family.steps(step.program))
        return {result.output.name for step in several for result in step.op.results}

    def returned(self, place: int, tensor: Input) -> str:
        """The gradient by an input, None where it is not needed."""
        if tensor.name not in self.plan.spelled:
            return "None"
        text = self.plan.spelled[tensor.name]
        own = _own(text)
        is_optional = own in self.optional
        shared = self.needed(own) != f"needs[{place}]" or not is_optional or own in self.together
        absent = tensor.default is not None and shared  # An input that is not there has no gradient.
        is_none = text != own and (is_optional or (own in self.dtypes and not self.is_single))
        filled = bool(self.namespace) and is_optional
        return f"{text} if needs[{place}] else None" if absent or is_none or filled else text


def users_of(backward: Backward, own: str) -> set[str]:
    """The inputs whose gradients are made of a result of a step: by the host, or by steps that need it if called."""
    plan = backward.plan
    readers = [step for step in plan.steps if own in {tensor.name for tensor in step.op.inputs}]
    later = (users_of(backward, result.output.name) for step in readers for result in step.op.results)
    return {name for name, text in plan.spelled.items() if _own(text) == own}.union(*later)


def _own(text: str) -> str:
    """The name of the gradient that an expression of the host is made of."""
    return text.partition("[")[0].partition(".")[0]
