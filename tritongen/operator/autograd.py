"""A forward and its backward -> the view of a module with a torch.autograd function."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from functools import partial
from itertools import accumulate

from ..emit.host import Host
from ..emit.host_checks import IS_FAKE, returned_types
from ..emit.module import Around, Module
from ..emit.registration import Registered, registration_view, typed
from ..emit.statements import call
from ..families.family import Step, module_of
from ..families.functions import function_view, kind_of, summary
from ..families.step_host import StepHost
from ..lang.ir import Op
from ..lang.names import shown
from ..nest.values import runtime, torch
from ..passes.structure import SAVES
from ..plan.backward import Backward
from ..plan.gradient_in_forward import AheadHost
from ..spec.types import Spec
from .autograd_class import class_view, is_saved, users_of
from .gradient_in_forward import ahead_view, notes, raises

BACKWARD = "_BACKWARD"  # the suffix of the tables of rows of a backward


def autograd_module(backward: Backward, spec: Spec, autocast: str) -> tuple[Module, tuple[tuple[Step, Module], ...]]:
    """The module of an operator with its gradient, and the steps of the gradient with their own modules."""
    op, register, is_registered = backward.forward.op, spec.register, spec.register != "none"
    optional = frozenset(tensor.name for tensor in op.inputs if tensor.default is not None)
    saves = any(result.when for result in op.results) and not is_registered
    step = _unconditional(backward.forward, {SAVES}) if is_registered else backward.forward
    extra = (IS_FAKE,) if is_registered else (SAVES,) if saves else ()
    around = Around(f"_{op.name}_forward", extra, register=register)
    forward = module_of(step, around, spec.schedule.autotune)
    if SAVES in forward.unread:
        saves, extra, around = False, (), replace(around, extra=())
        forward = module_of(_unconditional(step, forward.unread), around, spec.schedule.autotune)
    backward, computed = _computed(backward, register, spec.schedule.autotune)
    _check_steps(backward, optional)
    steps = backward.plan.steps
    functions = [
        module.view | function_view(step, is_registered and step in steps, optional) for step, module in computed
    ]
    inline = {step.op.name: call for step, module in computed if (call := module.view["inline"])}
    view = dict(forward.view)
    if backward.write != "backward":
        own = ahead_view(backward)
        view |= {"notes": notes(backward), "also_raises": raises(backward)}
    else:
        own = class_view(backward, spec.namespace if is_registered else "", saves, inline)
    view["results"] = [field for field in view["results"] if not is_saved(op, field.name)]
    view["returns"] = returned_types(*[False] * len(view["results"]))
    view["also_untyped"] = ", allow-untyped-calls"  # torch has no types for Function.apply.
    if is_registered:
        view["registration"] = registration_view(spec, op, autocast, [_registered(step, optional) for step in steps])
    saved = len(op.results) - len(view["results"])
    view["gradient"] = {"functions": functions, **_forward_view(op, extra, saved, saves), **own}
    return replace(forward, view=view), computed


def _forward_view(op: Op, extra: tuple[str, ...], saved: int, is_asked: bool) -> dict[str, str]:
    """The forward function, with saved values among its results; if `is_asked`, they may be None."""
    results = [False] * (len(op.results) - saved) + [is_asked] * saved
    says = f"The results, and what the backward needs{' if that is saved' if is_asked else ''}."
    return {
        "forward_signature": ", ".join([*typed(op), *(f"{name}: bool" for name in extra)]),
        "forward_returns": returned_types(*results),
        "forward_says": says if saved else "",
    }


def _check_steps(backward: Backward, optional: frozenset[str]) -> None:
    """Raises AssertionError if a step reads the gradient by an optional input, which is None without that input, for
    gradients by other inputs.
    """
    by: dict[str, set[str]] = {}
    for step in backward.plan.steps:
        given = {tensor.name for tensor in step.op.inputs if tensor.name not in step.op.chosen}
        for one in step.op.results:  # As host functions make them.
            leaves = {*one.dtype.of}
            if one.when and len(leaves) == 1 and leaves <= given and not leaves.isdisjoint(optional):
                by[one.output.name] = leaves
    for step in backward.plan.steps:
        for name in (tensor.name for tensor in step.op.inputs if tensor.name in by and tensor.default is None):
            if any(not users_of(backward, one.output.name) <= by[name] for one in step.op.results):
                raise AssertionError(shown(f"{step.op.name} reads {name} where there may be none"))


def _unconditional(step: Step, flags: Container[str]) -> Step:
    """The step, whose results do not depend on `flags`.

    A registered operator always returns all results: those that no chosen branch needs are not computed, and have no
    memory.
    """
    program = step.program
    results = tuple(replace(one, when="" if one.when in flags else one.when) for one in program.op.results)
    return replace(step, program=replace(program, op=replace(program.op, results=results)))


def _computed(backward: Backward, register: str, autotune: bool) -> tuple[Backward, tuple[tuple[Step, Module], ...]]:
    """The backward, whose steps take no flag for a gradient that they compute in any case; and each step with its
    module, after the modules of steps that it calls (`before`).
    """
    original = backward.plan.steps
    offsets = [*accumulate(map(_tables, original), initial=0)][:-1]  # of the tables before each step
    modules = {step: _module(backward, step, register, autotune, n) for step, n in zip(original, offsets, strict=True)}
    steps = tuple(_unconditional(step, modules[step].unread) for step in original)
    before = dict(zip(steps, offsets, strict=True))
    backward = replace(backward, plan=replace(backward.plan, steps=steps))
    each = dict.fromkeys(one for step in steps for one in (step.before, step) if one is not None)
    made = {
        step: modules.get(step) or _module(backward, step, register, autotune, before.get(step, 0)) for step in each
    }
    return backward, tuple(made.items())


def _tables(step: Step) -> int:
    """The number of tables of a step among those that the steps of a backward number."""
    every = step.family.steps(step.program) or ([step] if _suffix(step) == BACKWARD else [])
    return sum(one.family.has_own_tables for one in every)


def _suffix(step: Step) -> str:
    """The suffix of the names of a step's tables."""
    if not step.family.has_own_tables:
        return BACKWARD
    return f"_{step.op.name.partition('_backward_')[2].upper() or 'BACKWARD'}"


def _module(backward: Backward, step: Step, register: str, autotune: bool, before: int = 0) -> Module:
    is_registered = register != "none" and step in backward.plan.steps
    host: Callable[..., Host] = partial(StepHost, origin=backward.gradient, fills=is_registered)
    if backward.write != "backward" and step == backward.plan.steps[0]:
        host = partial(AheadHost, checked=backward.forward.op)
    extra = (*step.extra, *([IS_FAKE] if is_registered else []))
    tables = _suffix(step)
    if step.family.has_own_tables and tables == BACKWARD and before:
        tables = f"{tables}{before + 1}"
    forward = backward.forward.program if register == "none" and backward.write == "backward" else None
    around = Around(f"_{step.op.name}", extra, tables, host, register, True, before, forward)
    return module_of(step, around, autotune)


def _registered(step: Step, optional: frozenset[str]) -> Registered:
    """A step as a registered operator, which gets shapes as lists."""
    op, extra = step.op, step.extra
    kinds = (f"{name}: {kind_of(name, optional).replace('torch.Size', 'list[int]')}" for name in extra)
    names = *op.arguments, *extra
    passed = [torch.Size(name) if name in extra and kind_of(name) == "torch.Size" else name for name in names]
    return Registered(
        f"_{op.name}",
        f"_{op.name}_op",
        ", ".join([*typed(op), *kinds]),
        runtime[f"_{op.name}"](*passed, is_fake=False),
        returned_types(*[False] * len(op.results)),
        f"{summary(step)} What is not needed has no elements.",
        call("functools.partial", "autograd.one_by_one", f"_{op.name}_op"),
    )
