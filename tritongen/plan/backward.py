"""A gradient -> the steps that compute it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from ..autodiff.gradient import Gradient, conditions_named, derive
from ..diagnostics.report import Mistake, Mistakes
from ..families.family import Families, Step
from ..families.multi_step.decided import read_unchosen
from ..families.registry import single_step_of, step_of
from ..families.stream import StoredScores
from ..lang.ir import ALWAYS, Dtype, Load, Node, Op, Path, Reduce, Ref, Result, Value, walk
from ..lang.names import shown
from ..lowering.axes import with_dims
from ..lowering.choices import Choices
from ..lowering.space import row_space
from ..lowering.tile import needed
from ..nest.values import Expr, V
from ..passes.contractions import is_product
from ..passes.shared_sums import shared_sums_first
from ..passes.structure import SAVES, line_of, name_reductions, reached
from ..passes.times import ITEMSIZE
from ..planner.cost import ROUNDED, is_strided, leaves_idle, multiplies_outer, repeats_reductions, time_of
from ..planner.steps import casts_in_own_dtypes, in_own_dtypes, informed, restricted, without_optional
from ..planner.stored import as_input, axes_in_order, stored_dtype, stored_result
from ..planner.strips import made_for, reduced_by_strips
from ..spec.types import BATCH, BOOLS, Grad, Input, Output, TensorType, plain_shape
from .rounding import rounded_as_stored

SEPARATE_AXES = "reduces along axes that do not go together"


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps that compute some results, in order.

    `spelled` has each result as a host expression of arguments and results of steps, since some need no kernel or share
    one. `converted` has arguments of steps that are outgoing gradients in another dtype.
    """

    steps: tuple[Step, ...]
    spelled: Mapping[str, Expr]
    converted: Mapping[str, tuple[str, Dtype]] = field(default_factory=dict)

    def own(self, name: str) -> str:
        """The result of a step, or the outgoing gradient, that the gradient by an input is computed from."""
        return next(own for own in self.spelled[name].names if own != "ctx")


@dataclass(frozen=True, slots=True)
class Backward:
    """The plan of an operator's gradients, and its forward, whose results include the saved values.

    `write` says where gradients are written, as in `Grad`. `stored` are scores that the backward stores, although the
    forward alone streams them.
    """

    gradient: Gradient
    forward: Step
    plan: Plan
    write: str = "backward"
    stored: StoredScores | None = None

    @property
    def time(self) -> float:
        """Nanoseconds of forward and backward."""
        return time_of(self.forward) + sum(map(time_of, self.plan.steps))


FEW = 8  # conditions or saved values of a gradient up to which each is tried by itself


def plan_backward(gradient: Gradient, first: Step, families: Families, similar: Backward | None = None) -> Backward:
    """The plan of a gradient, `first` being the forward that saves nothing. Raises `Mistakes` for a gradient that no
    family plans. The search for its steps also starts at those of a `similar` one.
    """
    program, rows = first.program, tuple[str, ...]()
    if first.family.steps(program):
        gradient = _laid_out_as_stored(gradient)
    elif program.over:  # Elements by themselves are no rows.
        rows = row_space(program.op, program.over).row_axes
    forward = Planner(gradient, rows, families).forward()
    gradient = rounded_as_stored(_read_as_saved(gradient, forward.op), forward)
    near = _stored_by(similar.plan) if similar else frozenset[str]()
    best = Planner(gradient, rows, families, near=near).backward(forward)
    shared = replace(gradient, op=shared_sums_first(gradient.op))
    if shared == gradient:
        return best
    try:
        near = _stored_by(best.plan)
        other = Planner(shared, rows, families, near=near).backward(forward)
    except Mistakes:
        return best
    return other if other.time < best.time else best


def plan_operator(op: Op, grad: Grad, forward: Step, families: Families) -> Backward:
    """Plans the gradient in one piece, with a forward that saves the values that make all steps together fastest.

    Intermediates that the gradient would recompute are saved one by one, or in `FEW` groups if there are more, as long
    as that lowers the time of forward and backward: first those that the forward stores anyway, then those that the
    backward would store. Raises `Mistakes` for a gradient that no family plans.
    """
    best = plan_backward(derive(op, grad), forward, families)
    before = {tensor.name for step in forward.family.steps(forward.program) for tensor in step.op.inputs}
    after = _stored_by(best.plan) - before
    again = {value.name for value in best.gradient.op.values} - {tensor.name for tensor in op.inputs}
    names = [value.name for stored in (before, after) for value in op.values if value.name in again & stored]
    saved: tuple[str, ...] = ()
    size = math.ceil(len(names) / FEW)
    for first in range(0, len(names), size) if grad.save is None and names else ():
        more = (*saved, *names[first : first + size])
        try:
            other = plan_backward(derive(op, grad, stored=more), forward, families, best)
        except Mistakes:
            continue
        if other.time < ROUNDED * best.time:
            best, saved = other, more
    return _with_conditions(best, op, grad, saved, forward, families) if grad.save is None else best


def _with_conditions(
    best: Backward, op: Op, grad: Grad, extra_saved: tuple[str, ...], forward: Step, families: Families
) -> Backward:
    """The backward, or one that reads saved conditions instead of the values that they compare, if that is faster and
    moves fewer bytes. Of up to `FEW` conditions, those are left out that are not worth saving.
    """
    left_out = list[str]()
    every = conditions_named(op, grad)[1]
    for name in ("", *(every if len(every) <= FEW else ())):
        named, saved = conditions_named(op, grad, (*left_out, name))
        if not saved:
            break
        with suppress(Mistakes):
            other = plan_backward(derive(named, grad, stored=(*extra_saved, *saved)), forward, families, best)
            moves_less = _moved_for(other.gradient) < _moved_for(best.gradient)
            if moves_less and other.time < ROUNDED * best.time:
                best = other
                left_out.append(name)
    return best


def _moved_for(gradient: Gradient) -> int:
    """The bytes per element that a gradient reads of its largest inputs, counted twice for saved ones."""
    saved, most = dict(gradient.saved), max(len(tensor.type.axes) for tensor in gradient.op.inputs)
    large = [tensor for tensor in gradient.op.inputs if len(tensor.type.axes) == most]
    sizes = [(1 if one.type.dtypes == BOOLS else ITEMSIZE) * (1 + (one.name in saved)) for one in large]
    return sum(sizes)


def _stored_by(plan: Plan) -> frozenset[str]:
    inner = (one for step in plan.steps for one in step.family.steps(step.program))
    return frozenset(result.output.name for one in inner for result in one.op.results)


def _laid_out_as_stored(gradient: Gradient) -> Gradient:
    """The gradient that reads saved values with their axes in the order in which steps store them."""
    saved, op = dict(gradient.saved), gradient.forward

    def laid_out(tensor: Input) -> Input:
        if tensor.name not in saved:
            return tensor
        axes = axes_in_order(op, op.value(saved[tensor.name]).node)
        return replace(tensor, type=replace(tensor.type, shape=plain_shape(axes)))

    return replace(gradient, op=replace(gradient.op, inputs=tuple(map(laid_out, gradient.op.inputs))))


def _read_as_saved(gradient: Gradient, forward: Op) -> Gradient:
    """The gradient that reads saved values in the dtypes in which the forward saves them."""
    own = {r.output.name: as_input(forward, r) for r in forward.results if r.saved and r.dtype.rule != "compute"}
    inputs = tuple(own.get(tensor.name, tensor) for tensor in gradient.op.inputs)
    return replace(gradient, op=replace(gradient.op, inputs=inputs))


class Planner:
    """Plans the steps of a gradient by `families`; `rows` are the axes of rows of its forward.

    `between` are inputs whose gradients other steps read, with their dtypes; `saved` are inputs that the forward saves
    in addition to those of the gradient. A similar gradient stores the values `near`, where the search starts.
    """

    def __init__(
        self,
        gradient: Gradient,
        rows: tuple[str, ...],
        families: Families,
        between: Mapping[str, Dtype] | None = None,
        saved: tuple[str, ...] = (),
        near: frozenset[str] = frozenset(),
    ) -> None:
        self.families, self.near = families, near
        self.gradient, self.op, self.rows = gradient, gradient.op, rows
        self.between = between or {}
        self.values = {value.name: value for value in self.op.values}
        self.paths = self.paths_of_saved((*(own for own, _ in gradient.saved), *saved))

    def paths_of_saved(self, saved: Iterable[str]) -> dict[str, tuple[Path, ...]]:
        """The choices under which the gradient reads each saved value, without values that it always reads."""
        choices = Choices(self.op)
        paths = {name: choices.reading_paths(name, self.op.values, gathered=True) for name in saved}
        return {name: found for name, found in paths.items() if found and found != ALWAYS}

    def backward(self, forward: Step) -> Backward:
        """The plan, with a forward that saves the values that it reads."""
        expected = self.paths
        plan = Plan(*self.plan())
        return Backward(self.gradient, forward if self.paths == expected else self.forward(), plan)

    def plan(self) -> tuple[tuple[Step, ...], dict[str, Expr]]:
        """The steps, and the gradients as the host spells them."""
        spelled: dict[str, Expr] = {}
        computed: dict[str, Result] = {}
        users: dict[str, list[str]] = {}
        for name, result in zip(self.gradient.wrt, self.op.results, strict=True):
            node = self.values[result.output.name].node
            if name in self.between:
                computed[result.output.name] = result
                users[result.output.name] = [name]
                spelled[name] = V[result.output.name]
                continue
            if isinstance(node, Ref) and node.name in computed and self.is_laid_out_as(result, node.name):
                spelled[name] = self.expanded(node.name, name, computed[node.name])
                users[node.name].append(name)
                continue
            own = result.output.name
            result = self.narrowed(result, node)
            given = isinstance(node, Load) and not node.at and self.is_seed(node, result)
            computed |= {} if given else {own: result}
            users[own] = [name]
            spelled[name] = self.expanded(node.name if given and isinstance(node, Load) else own, name, result)
        dtypes = {own: self.between.get(names[0], Dtype("float", tuple(names))) for own, names in users.items()}
        results = tuple(replace(r, dtype=dtypes[own]) for own, r in computed.items())
        steps = self.split(results)
        for step in steps:  # A value that a step reads whatever the params are is always saved.
            read = read_unchosen(step.family.steps(step.program), without_optional(step.op, self.paths))
            self.paths = {name: paths for name, paths in self.paths.items() if name not in read}
        return tuple(self.informed(step, users) for step in steps), spelled

    def is_laid_out_as(self, result: Result, other: str) -> bool:
        """Whether a gradient has the dimensions of another in the same order."""
        found = next(one for one in self.op.results if one.output.name == other)
        return (result.axes, result.output.shape) == (found.axes, found.output.shape)

    def is_seed(self, node: Load, result: Result) -> bool:
        """Whether a gradient is an unchanged outgoing gradient, with dimensions in the same order."""
        for forward, seed in self.gradient.seeds:
            if seed == node.name:
                given = next(r for r in self.gradient.forward.results if r.output.name == forward)
                shape = self.gradient.forward.grouping(given)
                plain = all(len(term.names) == 1 for term in (*shape, *(result.output.shape or ())))
                return given.axes == result.axes and (plain or shape == result.output.shape)
        return False

    def narrowed(self, result: Result, node: Node) -> Result:
        """The result over the axes along which it varies; the host expands it where that is plain."""
        plain = all(len(term.names) == 1 for term in result.output.shape or ())
        axes = tuple(axis for axis in result.axes if axis in node.axes)
        return replace(result, axes=axes) if plain and (axes or isinstance(node, Load)) else result

    def expanded(self, own: str, name: str, result: Result) -> Expr:
        """A result expanded to the shape of an input, along some of whose dimensions it is constant."""
        axes, value = self.op_input(name).type.axes, V[own]
        if axes == result.axes:
            return value
        dims = [axis for axis in axes if axis != BATCH or axis in result.axes]
        if result.axes and not {*dims} <= {*result.axes}:
            value = with_dims(value, dims, result.axes)
        return value.method("expand", V.ctx.field(f"{name}_shape"))

    def op_input(self, name: str) -> Input:
        return self.gradient.forward.input(name)

    def split(self, results: tuple[Result, ...]) -> list[Step]:
        """The steps that compute the results: one, if that can be."""
        if not results:
            return []
        all_results = self.restricted(results, 0)
        single = self.found(single_step_of, all_results)
        if single is not None and (multiplies_outer(single) or repeats_reductions(single)):
            return [self.in_steps(all_results) or single]
        fills = None if single is None or leaves_idle(single) else single
        if fills is not None and not is_strided(fills):
            return [fills]
        groups = self.by_reductions(results)
        ops = [self.restricted(group, place) for place, group in enumerate(groups)]
        steps = [self.found(single_step_of, op) for op in ops]
        alone = [*filter(None, steps)]
        time = sum(map(time_of, alone)) if len(alone) == len(ops) else math.inf
        if fills is not None:  # Which may read strided tensors twice.
            return alone if time < time_of(fills) else [fills]
        time = math.inf if any(map(leaves_idle, alone)) else time
        several = self.in_steps(all_results) if time == math.inf or len(ops) > 1 else None
        if several is not None and time_of(several) < time:
            return [several]  # Its steps may share values between results.
        return self.planned(steps, ops, groups)

    def by_reductions(self, results: tuple[Result, ...]) -> list[list[Result]]:
        """Results grouped by their axes and by the axes that their values are reduced over."""
        groups: dict[tuple[frozenset[str], ...], list[Result]] = {}
        for result in results:
            values = needed(self.op.values, [result.output.name])
            over = frozenset(axis for v in values for n in walk(v.node) if isinstance(n, Reduce) for axis in n.over)
            groups.setdefault((over, frozenset(result.axes) | over), []).append(result)
        return [*groups.values()]

    def in_steps(self, op: Op) -> Step | None:
        return self.found(partial(step_of, near=self.near), in_own_dtypes(self.gradient, op))

    def planned(self, steps: Sequence[Step | None], ops: list[Op], groups: Sequence[Sequence[Result]]) -> list[Step]:
        """The steps of `ops`; a multi-step plan for those without a single step, or whose step repeats reductions."""
        if len(ops) > 1 and steps[0] is None:  # Its steps need names that differ from those of the others.
            ops[0] = self.restricted(groups[0], 1)
        found: list[Step] = []
        mistakes: list[Mistake] = []
        for step, op in zip(steps, ops, strict=True):
            if step is None or repeats_reductions(step):
                step = self.found(partial(step_of, near=self.near), op)
            if step is None:
                mistakes.append(self.unplanned(op))
            else:
                found.append(step)
        if mistakes:
            raise Mistakes(*mistakes)
        return found

    def found(self, find: Callable[[Op, Families], Step], op: Op) -> Step | None:
        """The step that computes an operator; None where it is refused."""
        try:
            return find(op, self.families)
        except Mistakes:
            return None

    def unplanned(self, op: Op) -> Mistake:
        own = op.results[0].output.name
        name = next(n for n, r in zip(self.gradient.wrt, self.op.results, strict=True) if r.output.name == own)
        return unplanned(self.gradient.wrt, name, axes_mismatch(op, self.gradient.forward))

    def restricted(self, results: Sequence[Result], place: int) -> Op:
        """The operator restricted to `results`."""
        op = restricted(self.op, tuple(results), "" if place == 0 else f"_{results[0].output.name}")
        saved = {name for name, _ in self.gradient.saved}
        inputs = tuple(self.ordered(t) if t.name in saved else t for t in op.inputs)
        return casts_in_own_dtypes(self.gradient, replace(op, inputs=inputs))

    def ordered(self, tensor: Input) -> Input:
        """A saved tensor with its axes in the order of the rows of the forward, in which it is stored."""
        if not set(tensor.type.axes) <= set(self.rows):
            return tensor
        axes = tuple(axis for axis in self.rows if axis in tensor.type.axes)
        return replace(tensor, type=TensorType(tensor.type.dtypes, plain_shape(axes)))

    def informed(self, step: Step, users: dict[str, list[str]]) -> Step:
        """The step with its arguments that are no tensors; each of several results depends on its first user's flag."""
        results = step.op.results
        if len(results) > 1:
            results = tuple(replace(r, when=f"needs_{users[r.output.name][0]}") for r in results)
        op = without_optional(replace(step.op, results=results), self.paths)
        if step.family.rows(step.program) == self.rows:
            op = replace(op, by_row=frozenset(t.name for t in op.inputs if self.is_by_row(t, op)))
        leaves = step.family.leaves(step.program)
        step = informed(self.gradient, replace(step, program=replace(step.program, op=op)), leaves)
        return replace(step, before=step.family.before(step.program))

    def is_by_row(self, tensor: Input, op: Op) -> bool:
        nodes = (node for node in op.nodes if isinstance(node, Load) and node.at)
        is_saved = tensor.name in dict(self.gradient.saved) and tensor.type.axes == self.rows
        return is_saved and tensor.name not in {node.name for node in nodes}

    def forward(self) -> Step:
        """The forward with the saved values among its results.

        A multi-step forward saves matrices in the dtypes in which its steps store them, or would without tile-wise
        reductions. If rows of a matrix are reduced, and no step reads it rounded, it is saved in the compute dtype,
        since rounding would show in the backward.
        """
        op = self.gradient.forward
        names = dict(self.gradient.saved)
        found = {own: stored_dtype(op, op.value(name)) for own, name in names.items()}
        dtypes = {own: dtype for own, dtype in found.items() if dtype is not None and dtype.rule != "compute"}
        step = self.step_of(self.saving(dtypes))
        if not step.family.steps(step.program):
            return self.step_of(self.saving({})) if dtypes else step
        exact = self.reduced_exactly(names, step)
        rounded = {own: dtype for own, dtype in dtypes.items() if own not in exact}
        return step if rounded == dtypes else self.step_of(self.saving(rounded))

    def reduced_exactly(self, names: Mapping[str, str], forward: Step) -> set[str]:
        """The saved values that reductions read, and that no step of the forward reads as they are stored."""
        op = self.gradient.forward
        reductions = [v.name for v in op.values if isinstance(v.node, Reduce) and not is_product(op, v.node)]
        if not reductions:
            return set()
        refs, steps = op.refs, forward.family.steps(forward.program)
        read = {tensor.name for step in steps for tensor in step.op.inputs}
        read |= {name for step in steps for strips in reduced_by_strips(step.op) for name in made_for(step.op, strips)}
        reduced = reached(refs, {ref for name in reductions for ref in refs[name]}, read)
        stored = {own: {own, name, stored_result(op, name).output.name} for own, name in names.items()}
        return {own for own, name in names.items() if name in reduced and not stored[own] & read}

    def step_of(self, forward: Op) -> Step:
        return step_of(forward, (), self.families)

    def saving(self, dtypes: Mapping[str, Dtype]) -> Op:
        """The forward with the saved values among its results, in `dtypes`, or by default in the compute dtype."""
        op, by_row = self.gradient.forward, set[str]()
        for own, name in self.gradient.saved:
            axes = self.ordered(self.gradient.op.input(own)).type.axes
            dtype = dtypes.get(own, op.value(name).node.dtype.intermediate)
            op = with_saved(op, own, name, axes, dtype, self.paths.get(own, ALWAYS))
            by_row |= {own} if axes == self.rows else set()
        return replace(op, by_row=frozenset(by_row))


def with_saved(
    op: Op, own: str, name: str, axes: tuple[str, ...], dtype: Dtype, paths: tuple[Path, ...] = ALWAYS
) -> Op:
    """The forward with the value `name` as a further result `own`, which it saves for the backward."""
    ref = op.value(name).ref
    values = op.values if own == name else (*op.values, Value(own, ref, ""))
    output = Output(own, "auto", plain_shape(axes))
    result = Result(output, replace(ref, name=own), axes, dtype, when=SAVES, paths=paths, saved=True)
    return replace(op, values=values, results=(*op.results, result))


def axes_mismatch(op: Op, forward: Op) -> str:
    """The message that no kernel computes all reductions of a gradient, with the lines of the forward for each."""
    lines: dict[tuple[str, ...], str] = {}
    forward = name_reductions(forward)
    for value in forward.values:
        line = line_of(forward, value)
        if isinstance(value.node, Reduce) and forward.value(line).source:
            lines.setdefault(value.node.over, line)
    overs = dict.fromkeys(value.node.over for value in name_reductions(op).values if isinstance(value.node, Reduce))
    if len(overs) < 2:
        return SEPARATE_AXES
    said = [", ".join(over) + (f" (as {lines[over]} does)" if over in lines else "") for over in overs]
    return f"reduces over {' and then over '.join(said)}, which no kernel family plans together"


def unplanned(wrt: tuple[str, ...], name: str, what: str) -> Mistake:
    """The mistake about the gradient by the input `name`, which no family plans; `what` continues its message."""
    hint = "leave it out, or write a spec for each part"
    place = ("grad", "wrt", str(wrt.index(name)))
    return Mistake("TG604", f"the gradient by {name} {what}", place, 0, len(shown(name)), hint)
