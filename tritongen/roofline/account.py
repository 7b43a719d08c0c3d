"""Spec -> what its steps cost, forward and backward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..diagnostics.report import Mistake
from ..emit.registration import autocast_rule
from ..families.family import Step
from ..families.stream import StoredScores
from ..lang.names import in_spec_names, without_marks
from ..lang.unparse import spelled
from ..operator.autograd import autograd_module
from ..operator.compile import backward_of, forward_module, forward_of, made_of, stored_in
from ..operator.scheduled import schedule_warnings
from ..passes.renamed import renamed
from ..plan.backward import Backward
from ..spec.types import Spec
from .count import Counted, StepCost
from .devices import DEVICES, Device
from .hidden import hidden_costs
from .sizes import lengths_of


@dataclass(frozen=True, slots=True)
class Account:
    """What an operator costs: its steps, numbered from the first of the forward to the last of the backward.

    Where the forward writes the gradient, `in_forward`, the steps of the backward begin with another forward,
    which autograd runs instead. `without_kernel` are gradients that are no more than an expression of the host.
    `stored` are scores of attention that the steps of a pass store, by its name. `warnings` are of costs that the math
    does not show.
    """

    name: str
    summary: str
    device: Device
    lengths: tuple[tuple[str, int], ...]
    forward: tuple[StepCost, ...]
    backward: tuple[StepCost, ...] = ()
    in_forward: bool = False
    without_kernel: tuple[tuple[str, str], ...] = ()
    stored: tuple[tuple[str, StoredScores], ...] = ()
    warnings: tuple[Mistake, ...] = ()

    @property
    def steps(self) -> tuple[StepCost, ...]:
        return (*self.forward, *self.backward)


def account_of(spec: Spec, given: Mapping[str, int], device: Device) -> Account:
    """What a spec costs where axes have given lengths. Raises `Mistakes` for what is wrong with its math."""
    forward = forward_of(spec)
    backward = backward_of(spec, forward)
    account = _costs_of(spec, forward, backward, given, device)
    autocast = autocast_rule(forward.program, forward.family.autocast)
    if backward is None:
        module = forward_module(forward, spec, autocast)
        functions = _by_function(module.view["steps"])
    else:
        module = autograd_module(backward, spec, autocast)[0]
        functions = _by_function((*module.view["steps"], *module.view["gradient"]["functions"]))
    view = module.view
    first = forward if backward is None else backward.forward
    own = view if backward is None else view | {"function": f"_{first.op.name}_forward"}
    before = tuple(_named(step, {**functions, _function(first): own}) for step in account.forward)
    after = tuple(_named(step, functions) for step in account.backward)
    warnings = (*account.warnings, *schedule_warnings(spec, module, backward is not None))
    return replace(account, forward=before, backward=after, warnings=warnings)


def warnings_of(spec: Spec) -> tuple[Mistake, ...]:
    """Costs that the math of a spec does not show, on an H100 at the lengths that it tells, and what its schedule lists
    in vain.
    """
    made = made_of(spec)
    with in_spec_names():
        account = _costs_of(made.spec, made.forward, made.backward, {}, DEVICES["h100"])
        scheduled = schedule_warnings(made.spec, made.module, made.backward is not None)
    return tuple(map(without_marks, (*account.warnings, *scheduled)))


def _costs_of(
    spec: Spec, forward: Step, backward: Backward | None, given: Mapping[str, int], device: Device
) -> Account:
    """The account, but for what functions are called."""
    usual = forward.family.benchmark(spec, forward.program).typical
    counted = Counted(forward.op, lengths_of(forward.op, given, usual), device)
    first = forward if backward is None else backward.forward
    saved = frozenset(result.output.name for result in first.op.results if result.saved)
    before, after = counted.steps(first, saved), list[StepCost]()
    in_forward, without = False, tuple[tuple[str, str], ...]()
    if backward is not None:
        in_forward = backward.write != "backward"
        counted.differentiate(backward)
        if in_forward:
            counted.computed.clear()
        after = [cost for step in backward.plan.steps for cost in counted.steps(step)]
        made = {tensor.name for cost in after for tensor in cost.writes}
        spelled = () if in_forward else backward.plan.spelled.items()
        without = tuple((f"d{name}", text) for name, text in spelled if text not in made)
    costs = tuple(_with_uses((*before, *after)))
    account = Account(
        spec.name,
        " ".join(spec.summary.split()),
        device,
        tuple(counted.lengths.items()),
        costs[: len(before)],
        costs[len(before) :],
        in_forward,
        without,
        stored_in(forward, backward),
    )
    warnings = hidden_costs(spec, forward.op, counted, costs)
    return replace(account, warnings=tuple(warnings))


def _with_uses(costs: Sequence[StepCost]) -> Iterator[StepCost]:
    """Steps whose results say which steps read them."""
    uses: dict[tuple[str, int], list[int]] = {}
    for cost in costs:
        for tensor in cost.reads:
            uses.setdefault((tensor.name, tensor.source), []).append(cost.number)
    for cost in costs:
        writes = (replace(one, uses=tuple(uses.get((one.name, one.source), ()))) for one in cost.writes)
        yield replace(cost, writes=tuple(writes))


def _named(cost: StepCost, functions: Mapping[str, Any]) -> StepCost:
    """A step with its function, and what that chooses from; without one it is a view, which moves nothing."""
    if renamed(cost.step.op) and _function(cost.step) not in functions:
        reads, writes = (tuple(replace(one, bytes=0) for one in tensors) for tensors in (cost.reads, cost.writes))
        math = tuple(f"{value.name} = {spelled(value.node)}" for value in cost.step.op.values)
        name = cost.step.op.results[0].output.name
        return replace(
            cost, family="view", function=name, reads=reads, writes=writes, operations=0, seconds=0.0, math=math
        )
    view = functions[_function(cost.step)]
    before = cost.step.family.before(cost.step.program)
    kernels = view["kernels"] + (functions[_function(before)]["kernels"] if before is not None else ())
    called = view["inline"][0] if view["inline"] else view.get("function", cost.step.op.name)
    return replace(cost, function=called, math=tuple(view["formula"]), kernels=kernels)


def _by_function(views: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The functions of steps, and of those that they are made of, by name."""
    found: dict[str, Mapping[str, Any]] = {}
    for view in views:
        found |= {view["function"]: view, **_by_function(view["steps"])}
    return found


def _function(step: Step) -> str:
    return f"_{step.op.name}"
