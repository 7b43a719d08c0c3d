"""A forward and its backward -> the view of a module that takes part in torch's autograd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ..emit.host import Host
from ..emit.host_checks import IS_FAKE, returned_types
from ..emit.module import Around, Module
from ..emit.registration import Registered, registration_view, typed
from ..families.family import Step, module_of
from ..families.functions import function_view, kind_of, summary
from ..families.steps import StepHost
from ..plan.backward import Backward
from ..plan.gradient_in_forward import AheadHost
from ..spec.types import Spec
from .autograd_class import class_view, is_saved
from .gradient_in_forward import ahead_view, notes, raises

BACKWARD = "_BACKWARD"  # what the names of the tables of rows end with, those of a backward


def autograd_module(backward: Backward, spec: Spec, autocast: str) -> tuple[Module, tuple[tuple[Step, Module], ...]]:
    """The module of an operator with its gradient, and the steps of that with modules of their own."""
    op, register, steps = backward.forward.op, spec.register, backward.plan.steps
    is_registered = register != "none"
    optional = frozenset(tensor.name for tensor in op.inputs if tensor.default is not None)
    saves = any(result.when for result in op.results) and not is_registered
    step = _always_saving(backward.forward) if is_registered else backward.forward
    extra = (IS_FAKE,) if is_registered else ("saves",) if saves else ()
    forward = module_of(step, Around(f"_{op.name}_forward", extra, register=register), spec.schedule.autotune)
    each = tuple(dict.fromkeys(one for step in steps for one in (step.before, step) if one is not None))
    computed = tuple((step, _module(backward, step, register, spec.schedule.autotune)) for step in each)
    functions = [
        module.view | function_view(step, is_registered and step in steps, optional) for step, module in computed
    ]
    is_ahead = backward.write != "backward"
    own = ahead_view(backward) if is_ahead else class_view(backward, spec.namespace if is_registered else "")
    view = dict(forward.view)
    if is_ahead:
        view |= {"notes": notes(backward), "also_raises": raises(backward)}
    view["results"] = [field for field in view["results"] if not is_saved(op, field.name)]
    view["returns"] = returned_types(len(view["results"]))
    view["also_untyped"] = ", allow-untyped-calls"  # torch has no types for Function.apply.
    signature = [*typed(op), *([f"{name}: bool" for name in extra])]
    saved = len(op.results) - len(view["results"])
    returns = returned_types(len(op.results)) if is_registered else returned_types(len(view["results"]), saved)
    says = "The forward, and what the backward needs if that is saved" if saves else "The forward"
    if is_registered:
        view["registration"] = registration_view(spec, op, autocast, [_registered(step, optional) for step in steps])
        says = "The forward, and what the backward needs" if saved else says
    view["gradient"] = {
        "parts": functions,
        "forward_signature": ", ".join(signature),
        "forward_returns": returns,
        "forward_says": f"{says}.",
        **own,
    }
    return replace(forward, view=view), computed


def _always_saving(forward: Step) -> Step:
    """The forward of which what is saved is a result like the others: what torch registers has no fewer at times.

    What no side that is chosen needs is not computed, and has no memory.
    """
    program = forward.program
    results = tuple(replace(result, when="") for result in program.op.results)
    return replace(forward, program=replace(program, op=replace(program.op, results=results)))


def _suffix(step: Step) -> str:
    """What the names of a step's tables end with."""
    if not step.family.has_own_tables:
        return BACKWARD
    return f"_{step.op.name.partition('_backward_')[2].upper() or 'BACKWARD'}"


def _module(backward: Backward, step: Step, register: str, autotune: bool) -> Module:
    is_registered = register != "none" and step in backward.plan.steps
    host: Callable[..., Host] = partial(StepHost, origin=backward.gradient, fills=is_registered)
    if backward.write != "backward" and step == backward.plan.steps[0]:
        host = partial(AheadHost, checked=backward.forward.op)
    extra = (*step.extra, *([IS_FAKE] if is_registered else []))
    around = Around(f"_{step.op.name}", extra, _suffix(step), host, register, is_gradient=True)
    return module_of(step, around, autotune)


def _registered(step: Step, optional: frozenset[str]) -> Registered:
    """A step as an operator of torch's, which knows shapes as lists."""
    op, extra = step.op, step.extra
    signature = [
        *typed(op),
        *(f"{name}: {kind_of(name, optional).replace('torch.Size', 'list[int]')}" for name in extra),
    ]
    names = [*(tensor.name for tensor in op.inputs), *(param.name for param in op.params), *extra]
    passed = [f"torch.Size({name})" if name in extra and kind_of(name) == "torch.Size" else name for name in names]
    return Registered(
        op.name, signature, passed, len(op.results), f"{summary(step)} What is not needed has no elements."
    )
