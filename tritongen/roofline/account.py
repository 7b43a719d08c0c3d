"""Spec -> the costs of its steps, forward and backward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ..diagnostics.report import Mistake
from ..families.stream import StoredScores
from ..lang.names import in_spec_names, shown, without_marks
from ..lang.unparse import spelled
from ..operator.compile import Made, made_of, stored_in
from ..operator.scheduled import schedule_warnings
from ..passes.renamed import renamed
from ..spec.types import Spec
from .count import Counted, StepCost, Tensor
from .devices import DEVICES, Device
from .hidden import hidden_costs
from .sizes import lengths_of


@dataclass(frozen=True, slots=True)
class Account:
    """The costs of an operator: its steps, numbered from the first of the forward to the last of the backward.

    If the forward writes the gradient (`in_forward`), the steps of the backward begin with another forward, which
    autograd runs instead. `without_kernel` are gradients that the host computes without a kernel, as expressions.
    `stored` are attention scores that steps store, by name of the pass. `warnings` report costs that the math does not
    show.
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
    """The costs of a spec at the given lengths. Raises `Mistakes` for errors in its math."""
    made = made_of(spec)
    with in_spec_names():
        view, account = made.module.view, _costs_of(made, given, device)
    views = _by_name([view, *(view["gradient"]["functions"] if made.backward else ())])
    before, after = (tuple(_named(step, views) for step in steps) for steps in (account.forward, account.backward))
    found: Account = _in_spec_names(replace(account, forward=before, backward=after))
    return found


def _in_spec_names(value: Any) -> Any:
    """The value with all names in its texts as they are in the spec; `Step` objects stay unchanged."""
    match value:
        case str():
            return shown(value)
        case tuple():
            return tuple(map(_in_spec_names, value))
        case Mistake():
            return without_marks(value)
        case Account() | StepCost() | Tensor() | StoredScores():
            named = {one.name: getattr(value, one.name) for one in fields(value)}
            return replace(value, **{name: _in_spec_names(inner) for name, inner in named.items()})
    return value


def warnings_of(spec: Spec) -> tuple[Mistake, ...]:
    """Warnings of costs that the math of a spec does not show, on an H100 at the spec's own lengths, and of entries of
    its schedule without effect.
    """
    made = made_of(spec)
    with in_spec_names():
        return tuple(map(without_marks, _costs_of(made, {}, DEVICES["h100"]).warnings))


def _costs_of(made: Made, given: Mapping[str, int], device: Device) -> Account:
    """The account, without the names of functions."""
    spec, forward, backward = made.spec, made.forward, made.backward
    usual = forward.family.benchmark(spec, forward.program).typical
    asked = {axis: given[name] for axis in forward.op.axes if (name := shown(axis)) in given}
    counted = Counted(forward.op, lengths_of(forward.op, asked, usual), device)
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
        written = {tensor.name for cost in after for tensor in cost.writes}
        spelled = () if in_forward else backward.plan.spelled.items()
        without = tuple((f"d{name}", value.text) for name, value in spelled if value.text not in written)
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
    scheduled = schedule_warnings(spec, made.module, backward is not None)
    return replace(account, warnings=(*hidden_costs(spec, forward.op, counted, costs), *scheduled))


def _with_uses(costs: Sequence[StepCost]) -> Iterator[StepCost]:
    """The steps, with `uses` of their results filled in: the steps that read them."""
    uses: dict[tuple[str, int], list[int]] = {}
    for cost in costs:
        for tensor in cost.reads:
            uses.setdefault((tensor.name, tensor.source), []).append(cost.number)
    for cost in costs:
        writes = (replace(one, uses=tuple(uses.get((one.name, one.source), ()))) for one in cost.writes)
        yield replace(cost, writes=tuple(writes))


def _named(cost: StepCost, views: Mapping[str, Any]) -> StepCost:
    """The step with the name of its function, its math and its kernels; a view has no function and moves nothing."""
    if renamed(cost.step.op) and cost.step.op.name not in views:
        reads, writes = (tuple(replace(one, bytes=0) for one in tensors) for tensors in (cost.reads, cost.writes))
        math = tuple(f"{value.name} = {spelled(value.node)}" for value in cost.step.op.values)
        name = cost.step.op.results[0].output.name
        return replace(
            cost, family="view", function=name, reads=reads, writes=writes, operations=0, seconds=0.0, math=math
        )
    view = views[cost.step.op.name]
    before = cost.step.family.before(cost.step.program)
    kernels = view["kernels"] + (views[before.op.name]["kernels"] if before is not None else ())
    called = view["inline"][0] if view["inline"] else view["function"]
    return replace(cost, function=called, math=tuple(view["formula"]), kernels=kernels)


def _by_name(views: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The views of functions by name, including those of inner steps."""
    found: dict[str, Mapping[str, Any]] = {}
    for view in views:
        found |= {**_by_name(view["steps"]), view["name"]: view}
    return found
