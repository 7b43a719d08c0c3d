"""The subclasses of torch.autograd.Function of an operator whose forward writes the gradient."""

from __future__ import annotations

import textwrap
from typing import Any

from ..emit.statements import Call, Do, If, Length, Let, Return, Statement, finished
from ..lang.names import shown
from ..plan.backward import Backward
from ..plan.gradient_in_forward import IN_PLACE, scaling_of
from .autograd_class import base_view, marked_constant

NOT_COMPILING = "not torch.compiler.is_compiling()"


def ahead_view(backward: Backward) -> dict[str, Any]:
    """As `autograd_class.class_view`: nothing is saved but gradients, which one backward returns.

    What torch.compile and torch.func trace writes into new memory and is functional, which both rely on.
    """
    op, gradient = backward.forward.op, backward.gradient
    joint = backward.plan.steps[0].op
    inputs = [tensor.name for tensor in op.inputs]
    own = [result.output.name for result in op.results]
    grads = [result.output.name for result in joint.results[len(own) :]]
    seeds = dict(gradient.seeds)
    arguments = ", ".join(op.arguments)
    places = [inputs.index(name) for name in gradient.wrt]
    flags = [result.when for result in joint.results if result.when]
    eager = [f"{flag}=ctx.needs_input_grad[{place}]" for flag, place in zip(flags, places, strict=False)]
    in_place = backward.write == IN_PLACE
    outgoing = {result: seeds.get(result, f"_d{result}") for result in [*own, *grads]}
    flat = [result for result in own if result not in seeds]

    save = Do(Call("ctx.save_for_backward", tuple(grads)))
    saved = [Let(tuple(grads), "ctx.saved_tensors"), Length("needs", "ctx.needs_input_grad")]

    def call(flags: list[str], place: str) -> str:
        return f"_{joint.name}({', '.join([arguments, *flags, *([f'{IN_PLACE}={place}'] if in_place else [])])})"

    return {
        "in_forward": True,
        "forward": [
            Let((*own, *grads), call(eager, NOT_COMPILING)),
            save,
            *marked_constant(flat),
            Return(", ".join(own)),
        ],
        "call_forward_alone": call([f"{flag}=True" for flag in flags], "False"),
        "picked": "[0]" if len(own) == 1 else f"[:{len(own)}]",
        "wrt": ", ".join(gradient.wrt),
        "seeds": ", ".join(outgoing[result] for result in own),
        "eager": finished(
            [*saved, *_once(op.name, grads, bool(flags)), _returned(backward, "{step}({seed}, {own})")],
            ("ctx", *outgoing.values()),
        ),
        "setup": finished(
            [Length((*own, *grads), "output"), save, *marked_constant([*flat, *grads])],
            ("ctx", "output"),
        ),
        "all_seeds": ", ".join(outgoing.values()),
        "backward": finished(
            [*saved, _returned(backward, "autograd.Once.apply({step}, {seed}, {own}.clone())")],
            ("ctx", *outgoing.values(), *(f"_{step.op.name}" for step in backward.plan.steps)),
        ),
        **base_view(op, joint),
    }


def _once(name: str, grads: list[str], optional: bool) -> list[Statement]:
    """Makes sure that the saved gradient is scaled only once."""
    copies = (Let(own, f"None if {own} is None else {own}.clone()" if optional else f"{own}.clone()") for own in grads)
    return [
        If("torch.compiler.is_compiling()", tuple(copies), other=(Do(Call("autograd.spend", (f'"{name}"', "ctx"))),)),
    ]


def _returned(backward: Backward, call: str) -> Return:
    op = backward.forward.op
    ((_, seed),) = backward.gradient.seeds
    several = len(backward.gradient.wrt) > 1
    texts = []
    for place, tensor in enumerate(op.inputs):
        own = backward.plan.spelled.get(tensor.name)
        text = "None"
        if own is not None:
            text = call.format(step=f"_{scaling_of(backward, tensor.name).op.name}", seed=seed, own=own)
            text = f"{text} if needs[{place}] else None" if several else text
        texts.append(text)
    return Return(", ".join([*texts, *(["None"] * len(op.params))]))


def notes(backward: Backward) -> list[str]:
    """What the docstring of the public function says of where the gradient is."""
    ((result, _),) = backward.gradient.seeds
    names = " and ".join(backward.gradient.wrt)
    grads = " and ".join(backward.plan.spelled.values())
    where = "into new memory"
    if backward.write == IN_PLACE:
        where = f"over {names}"
    text = (
        f"Under autograd this writes {grads}, for an incoming gradient of 1, {where}. Nothing else is saved. There can "
        f"be one backward, which scales {grads} in place by the gradient of {result}, unless that is 1, and returns it."
    )
    if backward.write == IN_PLACE:
        text += " (Under torch.compile and torch.func, and where elements overlap, new memory is used.)"
    return textwrap.wrap(shown(text), 84)


def raises(backward: Backward) -> list[str]:
    text = "RuntimeError: for a second backward"
    if backward.write == IN_PLACE:
        text += ", or to write over a leaf that requires grad"
    return [f"{text}."]
