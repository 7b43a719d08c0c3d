"""The gradient in the forward: computed for an incoming gradient of 1, and scaled by the actual one in the backward.

The forward is then an operator with one more result for each gradient, and nothing else is saved for
the backward: neither inputs nor row statistics. That fits losses, with one value per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..autodiff.gradient import Gradient, derive_ahead
from ..diagnostics.report import Mistake, Mistakes, listed
from ..emit.host import Host
from ..emit.statements import Statement, call
from ..families.family import Families, Step
from ..families.registry import single_step_of, step_of
from ..lang.ir import Call, Dtype, Load, Node, Op, Reduce, Ref, Result, Value, children, walk
from ..lang.names import shown
from ..lang.rewrite import named, rebuild
from ..lowering.space import row_space
from ..nest.values import Expr, V, either, quoted
from ..passes.structure import Program
from ..spec.types import FLOATS, Grad, Input, Output, TensorType
from .backward import Backward, Plan, axes_mismatch, unplanned

IN_PLACE = "in_place"  # the argument that lets gradients take the memory of inputs
_LEAVE_OUT = "leave it out: the backward writes gradients of any kind"


def plan_ahead(gradient: Gradient, forward: Step, grad: Grad, families: Families, register: str) -> Backward:
    """The plan of a gradient in the forward. Raises `Mistakes` where there is none."""
    program = forward.program
    if mistakes := list(_refused(gradient, forward, grad, register)):
        raise Mistakes(*mistakes)
    in_place = grad.write == IN_PLACE
    ((result, seed),) = gradient.seeds
    joint = derive_ahead(program.op, grad, result)
    if in_place:
        joint = _taken_before(joint, grad.wrt, program.over)
    several = len(grad.wrt) > 1
    count = len(program.op.results)
    gradients = tuple(
        replace(one, when=f"needs_{name}" if several else "", over=name if in_place else "")
        for name, one in zip(grad.wrt, joint.results[count:], strict=True)
    )
    joint = replace(joint, name=f"{joint.name}_with_gradient", results=(*joint.results[:count], *gradients))
    names = listed((one.output.name for one in gradients), "and")
    says = f"The forward, with {names} where {seed} is 1."
    try:
        first = replace(single_step_of(joint), flags=(IN_PLACE,) if in_place else (), says=says)
    except Mistakes:
        raise Mistakes(
            *(unplanned(grad.wrt, name, axes_mismatch(joint, program.op)) for name in grad.wrt[:1])
        ) from None
    others = (
        replace(step_of(op, families), says=f"Multiplies {op.inputs[1].name} by {seed}, in place.")
        for op in _scaled(program.op, gradient, gradients)
    )
    spelled = {name: V[one.output.name] for name, one in zip(grad.wrt, gradients, strict=True)}
    return Backward(gradient, forward, Plan((first, *others), spelled), grad.write)


def _refused(gradient: Gradient, forward: Step, grad: Grad, register: str) -> Iterator[Mistake]:
    if register != "none":
        message = "a registered operator returns what it saves, so that every call would compute the gradient"
        yield _mistake(grad, message, "leave [torch] register out")
    if grad.save:
        message = "nothing is saved beside a gradient that the forward writes"
        yield Mistake("TG608", message, ("grad", "save"), hint="leave it out")
    if steps := forward.family.steps(forward.program):
        lines = ([line for line in forward.program.op.lines if line in step.op.lines] for step in steps)
        reason = "; ".join(", ".join(names) for names in lines if names)
        message = f"a forward writes the gradient of one row-wise step, and this operator takes several: {reason}"
        yield _mistake(grad, message, f"{_LEAVE_OUT}; or give the lines of a row-wise step a spec of their own")
    elif unfit := _unfit(gradient, forward):
        message = f"{unfit}, and the forward writes a gradient of one result with one number for each row"
        yield _mistake(grad, message, _LEAVE_OUT)
    else:
        yield from _unfit_inputs(forward.program, grad)


def _mistake(grad: Grad, message: str, hint: str) -> Mistake:
    return Mistake("TG608", message, ("grad", "write"), 0, len(grad.write), hint)


def _unfit(gradient: Gradient, forward: Step) -> str:
    """Why the results do not admit a gradient in the forward; "" where they do."""
    program = forward.program
    if not forward.family.rows_are_independent:
        return f"this operator is {forward.family.title}"
    seeds = dict(gradient.seeds)
    smooth = [result for result in program.op.results if result.output.name in seeds]
    if len(smooth) > 1:
        names = listed((result.output.name for result in smooth), "and")
        return f"{names} have gradients"
    name, axes = smooth[0].output.name, smooth[0].axes
    along = [axis for axis in axes if axis in program.over]
    # A single program would loop over all elements of the inputs.
    return f"{name} has the axis {', '.join(along)}" if along else "" if axes else f"{name} is one number for all"


def _unfit_inputs(program: Program, grad: Grad) -> Iterator[Mistake]:
    op, over = program.op, program.over
    rows = row_space(op, over).row_axes
    for place, name in enumerate(grad.wrt):
        tensor = op.input(name)
        key = ("grad", "wrt", str(place))
        lacks = [axis for axis in (*rows, *over) if axis not in tensor.type.axes]
        if tensor.default is not None:
            message = f"{name} is optional, and what the forward writes is there whenever it is asked for"
            yield Mistake("TG608", message, key, 0, len(shown(name)), "leave it out, or let the backward write")
        elif lacks:
            message = f"{name} lacks {', '.join(lacks)}, along which its gradient sums up those of the result"
            yield Mistake("TG608", message, key, 0, len(shown(name)), "leave it out, or let the backward write")
        elif grad.write == IN_PLACE and (line := _crossing(op, name, over)):
            message = f"{line} takes {name} from other columns, which may be overwritten by then"
            yield Mistake("TG608", message, ("compute", line), hint='write = "forward" takes memory of its own')


def _crossing(op: Op, name: str, over: tuple[str, ...]) -> str:
    """The line that takes elements of an input by positions that vary along the columns; "" if none does."""
    lines = [value.name for value in op.values]
    for value in op.values:
        for node in walk(value.node):
            if isinstance(node, Load) and node.name == name and node.at and set(node.axes) & set(over):
                after = op.values[lines.index(value.name) :]
                return next((one.name for one in after if one.source), value.name)
    return ""


def _taken_before(op: Op, names: tuple[str, ...], over: tuple[str, ...]) -> Op:
    """The operator with gathers from `names` in lines along the columns hoisted into lines before these."""
    values: list[Value] = []
    used = op.names
    known: dict[Node, Ref] = {}

    def hoist(node: Node, line: str) -> Node:
        node = rebuild(node, tuple(hoist(child, line) for child in children(node)))
        if not isinstance(node, Load) or node.name not in names or not node.at:
            return node
        if node not in known:
            known[node] = named(node, f"{line}_taken", used, values)
        return known[node]

    for value in op.values:
        along = isinstance(value.node, Reduce) or set(value.node.axes) & set(over)
        values.append(replace(value, node=hoist(value.node, value.name)) if along else value)
    return replace(op, values=tuple(values))


def _scaled(op: Op, gradient: Gradient, gradients: tuple[Result, ...]) -> Iterator[Op]:
    """The operators that scale the gradients by the gradient of the result: one for each shape."""
    ((name, seed),) = gradient.seeds
    result = next(one for one in op.results if one.output.name == name)
    factor = Load(seed, result.axes, Dtype("float", (seed,)))
    shapes: list[object] = []
    for one in gradients:
        own, tensor = one.output.name, op.input(one.over or one.dtype.of[0])
        if tensor.type.shape in shapes:
            continue
        shapes.append(tensor.type.shape)
        dtype = Dtype("float", (own,))
        node = Call("mul", (factor, Load(own, one.axes, dtype)), one.axes, dtype)
        yield replace(
            op,
            name=f"{op.name}_backward" + (f"_{own}" if len(shapes) > 1 else ""),
            inputs=(
                Input(seed, TensorType(FLOATS, op.grouping(result))),
                Input(own, TensorType(tensor.type.dtypes, tensor.type.shape)),
            ),
            params=(),
            values=(Value(own, node, f"{own} * {seed}"),),
            results=(Result(Output(own, own, tensor.type.shape), node, one.axes, dtype),),
        )


def scaling_of(backward: Backward, name: str) -> Step:
    """The step that scales the gradient of an input."""
    shape = backward.forward.op.input(name).type.shape
    _, *scaling = backward.plan.steps
    return next(step for step in scaling if step.op.inputs[1].type.shape == shape)


@dataclass(frozen=True)
class AheadHost(Host):
    """Writes the function of the forward with its gradient; the argument checks are those of the operator `checked`."""

    checked: Op | None = None

    @property
    def plain(self) -> Host:
        assert self.checked is not None
        return Host(self.checked, self.space, self.compute, self.function, self.extra)

    def checks(self) -> list[Statement]:
        return self.plain.checks()

    def shapes(self) -> list[Statement]:
        return self.plain.shapes()

    def empty_errors(self) -> list[Statement]:
        return self.plain.empty_errors()

    def empty(self, result: Result) -> Expr:
        made = super().empty(result)
        if not result.over:
            return made
        assert self.checked is not None
        others = [t.name for t in self.op.inputs if t.name != result.over and set(t.type.dtypes) & set(FLOATS)]
        reused = call("autograd.take_over", quoted(f"{self.checked.name}: {result.over}"), result.over, *others)
        return either(IN_PLACE, reused, made)
