"""The subclasses of torch.autograd.Function of an operator whose forward writes the gradient."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from ..emit.statements import Do, If, Length, Let, Return, Statement, call, finished, one_or_all
from ..lang.names import shown
from ..nest.values import Expr, Term, V, either, quoted, runtime
from ..plan.backward import Backward
from ..plan.gradient_in_forward import IN_PLACE, scaling_of
from .autograd_class import base_view, marked_constant

IS_COMPILING = call("torch.compiler.is_compiling")


def ahead_view(backward: Backward) -> dict[str, Any]:
    """As `autograd_class.class_view`: nothing is saved but gradients, which one backward returns.

    The functions that torch.compile and torch.func trace write into new memory, since both rely on functional code.
    """
    op, gradient = backward.forward.op, backward.gradient
    joint = backward.plan.steps[0].op
    inputs = [tensor.name for tensor in op.inputs]
    own = [result.output.name for result in op.results]
    grads = [result.output.name for result in joint.results[len(own) :]]
    seeds = dict(gradient.seeds)
    places = [inputs.index(name) for name in gradient.wrt]
    flags = [result.when for result in joint.results if result.when]
    needs = V.ctx.field("needs_input_grad")
    eager = {flag: needs[place] for flag, place in zip(flags, places, strict=False)}
    in_place = backward.write == IN_PLACE
    outgoing = {result: seeds.get(result, f"_d{result}") for result in [*own, *grads]}
    flat = [result for result in own if result not in seeds]

    save = Do(V.ctx.method("save_for_backward", *grads))
    saved = [Let(tuple(grads), "ctx.saved_tensors"), Length("needs", needs)]

    def forward(flags: Mapping[str, Term], place: Term) -> Expr:
        return runtime[f"_{joint.name}"](*op.arguments, **flags, **({IN_PLACE: place} if in_place else {}))

    return {
        "in_forward": True,
        "forward": [
            Let((*own, *grads), forward(eager, IS_COMPILING.negated)),
            save,
            *marked_constant(flat),
            Return(one_or_all(own)),
        ],
        "call_forward_alone": forward(dict.fromkeys(flags, True), False),
        "picked": "[0]" if len(own) == 1 else f"[:{len(own)}]",
        "wrt": ", ".join(gradient.wrt),
        "seeds": ", ".join(outgoing[result] for result in own),
        "eager": finished(
            [*saved, *_once(op.name, grads, bool(flags)), _returned(backward, False)],
            ("ctx", *outgoing.values()),
        ),
        "setup": finished(
            [Length((*own, *grads), "output"), save, *marked_constant([*flat, *grads])],
            ("ctx", "output"),
        ),
        "all_seeds": ", ".join(outgoing.values()),
        "backward": finished(
            [*saved, _returned(backward, True)],
            ("ctx", *outgoing.values(), *(f"_{step.op.name}" for step in backward.plan.steps)),
        ),
        **base_view(op, joint),
    }


def _once(name: str, grads: list[str], optional: bool) -> list[Statement]:
    """Makes sure that the saved gradient is scaled only once."""
    clones = {own: V[own].method("clone") for own in grads}
    copies = (Let(own, either(V[own].is_none, None, one) if optional else one) for own, one in clones.items())
    spend = Do(call("autograd.spend", quoted(name), "ctx"))
    return [If(IS_COMPILING, tuple(copies), other=(spend,))]


def _returned(backward: Backward, is_traced: bool) -> Return:
    op = backward.forward.op
    ((_, seed),) = backward.gradient.seeds
    several = len(backward.gradient.wrt) > 1
    found: list[Term] = []
    for place, tensor in enumerate(op.inputs):
        own = backward.plan.spelled.get(tensor.name)
        if own is None:
            found.append(None)
            continue
        step = f"_{scaling_of(backward, tensor.name).op.name}"
        scaled = call("autograd.Once.apply", step, seed, own.method("clone")) if is_traced else call(step, seed, own)
        found.append(either(V.needs[place], scaled, None) if several else scaled)
    return Return(one_or_all([*found, *[None] * len(op.params)]))


def notes(backward: Backward) -> list[str]:
    """The lines of the public function's docstring about where the gradient is written."""
    ((result, _),) = backward.gradient.seeds
    names = " and ".join(backward.gradient.wrt)
    grads = " and ".join(map(str, backward.plan.spelled.values()))
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
