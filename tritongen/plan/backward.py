"""A gradient -> the operators that compute it, and the functions of the host that launch them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..autodiff.gradient import Gradient, grouping
from ..diagnostics.report import Mistake, Mistakes
from ..emit.host import Host
from ..emit.host_checks import tuple_text
from ..families.family import Families, Step
from ..families.registry import step_of
from ..lang.ir import ALWAYS, Dtype, Index, Load, Node, Op, Path, Reduce, Ref, Result, Size, Value, walk
from ..lang.names import shown
from ..lowering.choices import Choices
from ..lowering.space import row_space
from ..lowering.tile import needed
from ..passes.structure import SAVES, Program, line_of, name_reductions
from ..spec.types import BATCH, AxisTerm, Input, Output, TensorType, plain_shape, told_in_order, untold

APART = "reduces along axes that do not go together"


@dataclass(frozen=True, slots=True)
class Plan:
    """How some results come about: by which steps, in their order.

    `spelled` has the results that need no kernel, or no other than another's: an expression of the host
    over what the steps are given and what they compute. `uses` has the results of steps that other steps go on from,
    each with the results that are made of them; `converted` those of them that are an input in another dtype.
    """

    steps: tuple[Step, ...]
    spelled: Mapping[str, str]
    uses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    converted: Mapping[str, tuple[str, Dtype]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Backward:
    """How the gradients of an operator come about, by the inputs that they are by.

    `forward` has what is saved among its results. `write` tells where gradients are written, as `Grad` has it.
    """

    gradient: Gradient
    forward: Step
    plan: Plan
    write: str = "backward"


def plan_backward(gradient: Gradient, program: Program, families: Families) -> Backward:
    """Raises `Mistakes` for a gradient that no family plans."""
    rows = row_space(program.op, program.over, tuple(v.node for v in program.op.values)).row_axes
    planner = Planner(gradient, rows, families)
    steps, spelled = planner.plan()
    return Backward(gradient, planner.forward(), Plan(steps, spelled))


class Planner:
    """Plans a gradient whose forward goes through some `rows`, by steps of some `families`.

    `between` are those of its results from which other steps go on, with their dtypes.
    """

    def __init__(
        self,
        gradient: Gradient,
        rows: tuple[str, ...],
        families: Families,
        between: Mapping[str, Dtype] | None = None,
    ) -> None:
        self.families = families
        self.gradient, self.op, self.rows = gradient, gradient.op, rows
        self.between = between or {}
        self.values = {value.name: value for value in self.op.values}
        self.paths = self.paths_of_saved()

    def paths_of_saved(self) -> dict[str, tuple[Path, ...]]:
        """Of what the forward saves for each row, where the gradient reads it, if that is not always."""
        choices = Choices(self.op)
        saved = [self.ordered(self.op.input(own)) for own, _ in self.gradient.saved]
        paths = {t.name: choices.reading_paths(t.name, self.op.values) for t in saved if t.type.axes == self.rows}
        return {name: found for name, found in paths.items() if found != ALWAYS}

    def plan(self) -> tuple[tuple[Step, ...], dict[str, str]]:
        """The steps, and the gradients as the host spells them."""
        spelled: dict[str, str] = {}
        computed: dict[str, Result] = {}
        users: dict[str, list[str]] = {}
        for name, result in zip(self.gradient.wrt, self.op.results, strict=True):
            node = self.values[result.output.name].node
            if name in self.between:
                computed[result.output.name] = result
                users[result.output.name] = [name]
                continue
            if isinstance(node, Ref) and node.name in computed:
                spelled[name] = node.name
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
        return tuple(self.step(op, users) for op in self.split(results)), spelled

    def is_seed(self, node: Load, result: Result) -> bool:
        """Whether a gradient is that of a result as it came, with dimensions in the same order."""
        for forward, seed in self.gradient.seeds:
            if seed == node.name:
                given = next(r for r in self.gradient.forward.results if r.output.name == forward)
                plain = all(len(term.names) == 1 for term in result.output.shape or ())
                same = grouping(self.gradient.forward, given) == result.output.shape
                return given.axes == result.axes and (plain or same)
        return False

    def narrowed(self, result: Result, node: Node) -> Result:
        """The result over the axes along which it varies; the host expands it where that is plain."""
        plain = all(len(term.names) == 1 for term in result.output.shape or ())
        axes = tuple(axis for axis in result.axes if axis in node.axes)
        return replace(result, axes=axes) if plain and (axes or isinstance(node, Load)) else result

    def expanded(self, text: str, name: str, result: Result) -> str:
        axes = self.op_input(name).type.axes
        if axes == result.axes:
            return text
        parts = ["..."] if BATCH in result.axes else []
        parts += [":" if axis in result.axes else "None" for axis in axes if axis != BATCH]
        index = f"[{', '.join(parts)}]" if "None" in parts and result.axes else ""
        return f"{text}{index}.expand(ctx.{name}_shape)"

    def op_input(self, name: str) -> Input:
        return self.gradient.forward.input(name)

    def split(self, results: tuple[Result, ...]) -> list[Op]:
        """The results by the operators that can compute them together: one, if that can be."""
        if not results:
            return []
        whole = self.restricted(results, 0)
        if self.planned(whole) is not None:
            return [whole]
        groups: dict[tuple[frozenset[str], ...], list[Result]] = {}
        for result in results:
            values = needed(self.op.values, [result.output.name])
            over = frozenset(axis for v in values for n in walk(v.node) if isinstance(n, Reduce) for axis in n.over)
            groups.setdefault((over, frozenset(result.axes) | over), []).append(result)
        ops = [self.restricted(tuple(group), place) for place, group in enumerate(groups.values())]
        mistakes = [self.unplanned(op) for op in ops if self.planned(op) is None]
        if mistakes:
            raise Mistakes(*mistakes)
        return ops

    def unplanned(self, op: Op) -> Mistake:
        own = op.results[0].output.name
        name = next(n for n, r in zip(self.gradient.wrt, self.op.results, strict=True) if r.output.name == own)
        return unplanned(self.gradient.wrt, name, apart(op, self.gradient.forward))

    def restricted(self, results: tuple[Result, ...], place: int) -> Op:
        """The operator of some results alone."""
        op = restricted(self.op, results, "" if place == 0 else f"_{results[0].output.name}")
        saved = {name for name, _ in self.gradient.saved}
        inputs = tuple(self.ordered(t) if t.name in saved else t for t in op.inputs)
        inputs = tuple(replace(t, default=0.0) if t.name in self.paths else t for t in inputs)
        return replace(op, inputs=inputs, chosen=frozenset(t.name for t in inputs if t.name in self.paths))

    def ordered(self, tensor: Input) -> Input:
        """A saved tensor with its axes in the order of the rows of the forward, in which it is stored."""
        if not set(tensor.type.axes) <= set(self.rows):
            return tensor
        axes = tuple(axis for axis in self.rows if axis in tensor.type.axes)
        return replace(tensor, type=TensorType(tensor.type.dtypes, plain_shape(axes)))

    def planned(self, op: Op) -> Step | None:
        """The step that computes an operator, its reductions named; None where no family takes it."""
        try:
            return step_of(op, self.families)
        except Mistakes:
            return None

    def step(self, op: Op, users: dict[str, list[str]]) -> Step:
        """The step that computes some of the results, each where a user of it is asked for."""
        step = self.planned(op)
        assert step is not None
        results = step.op.results
        if len(results) > 1:
            results = tuple(replace(r, when=f"needs_{users[r.output.name][0]}") for r in results)
        op = replace(step.op, results=results)
        if step.family.rows(step.program) == self.rows:
            op = replace(op, by_row=frozenset(t.name for t in op.inputs if self.is_by_row(t)))
        program = replace(step.program, op=op)
        shapes, dtypes = unknown(self.gradient, op)
        return replace(step, program=program, shapes=shapes, dtypes=dtypes, before=step.family.before(program))

    def is_by_row(self, tensor: Input) -> bool:
        return tensor.name in dict(self.gradient.saved) and tensor.type.axes == self.rows

    def forward(self) -> Step:
        """The forward with what it saves among its results."""
        op = self.gradient.forward
        values, results, by_row = op.values, op.results, set()
        for own, name in self.gradient.saved:
            node = op.value(name).node
            if own != name:
                values = (*values, Value(own, Ref(name, node.axes, node.dtype), ""))
            tensor = self.ordered(self.gradient.op.input(own))
            ref = Ref(own, node.axes, node.dtype)
            output = Output(own, "auto", tensor.type.shape)
            dtype, paths = Dtype("float", (), "compute"), self.paths.get(own, ALWAYS)
            results = (*results, Result(output, ref, tensor.type.axes, dtype, when=SAVES, paths=paths, saved=True))
            if tensor.type.axes == self.rows:
                by_row.add(own)
        return step_of(replace(op, values=values, results=results, by_row=frozenset(by_row)))


def restricted(op: Op, results: tuple[Result, ...], suffix: str) -> Op:
    """The operator of some of its results alone."""
    values = tuple(needed(op.values, [result.output.name for result in results]))
    nodes = [node for value in values for node in walk(value.node)]
    read = {node.name for node in nodes if isinstance(node, Load)}
    return replace(
        op,
        name=f"{op.name}{suffix}",
        inputs=tuple(tensor for tensor in op.inputs if tensor.name in read),
        params=tuple(p for p in op.params if any(getattr(node, "name", "") == p.name for node in nodes)),
        values=values,
        results=results,
    )


def unknown(gradient: Gradient, op: Op) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Inputs of the forward whose shapes or dtypes are needed, though their values are not."""
    axes = {axis for result in op.results for axis in result.axes}
    for node in (node for value in op.values for node in walk(value.node)):
        axes |= set(node.over) if isinstance(node, Reduce | Size) else set()
        axes |= {node.axis} if isinstance(node, Index) else set()
    axes -= {axis for tensor in op.inputs if tensor.name not in op.by_row for axis in tensor.type.axes}
    telling = [tensor for tensor in told_in_order(gradient.forward.inputs) if tensor.default is None]
    missing = sorted(axes - dict(op.sizes).keys(), key=shown)
    found = [next(t for t in telling if axis in t.type.axes) for axis in missing]
    mine = [tensor for tensor in op.inputs if tensor.name not in op.by_row]
    for tensor in telling:
        if tensor not in (*mine, *found) and set(tensor.type.axes) & untold((*mine, *found)):
            found.append(tensor)
    shapes = dict.fromkeys(tensor.name for tensor in found)
    known = {tensor.name for tensor in op.inputs} | dict(stand_ins(gradient, op)).keys()
    known |= {leaf for result in op.results for leaf in result.dtype.of} - {t.name for t in gradient.forward.inputs}
    leaves = [leaf for result in op.results for leaf in result.dtype.of if leaf not in known]
    return tuple(shapes), tuple(dict.fromkeys(leaves))


def apart(op: Op, forward: Op) -> str:
    """What is said of a gradient whose reductions no kernel computes together, beside lines of the forward."""
    lines: dict[tuple[str, ...], str] = {}
    forward = name_reductions(forward)
    for value in forward.values:
        line = line_of(forward, value)
        if isinstance(value.node, Reduce) and forward.value(line).source:
            lines.setdefault(value.node.over, line)
    overs = dict.fromkeys(value.node.over for value in name_reductions(op).values if isinstance(value.node, Reduce))
    if len(overs) < 2:
        return APART
    said = [", ".join(over) + (f" (as {lines[over]} does)" if over in lines else "") for over in overs]
    return f"reduces over {' and then over '.join(said)}, which no kernel family plans together"


def unplanned(wrt: tuple[str, ...], name: str, what: str) -> Mistake:
    """The gradient by an input, one of those asked for, is what no family plans."""
    hint = "leave it out, or write a spec for each part"
    place = ("grad", "wrt", str(wrt.index(name)))
    return Mistake("TG604", f"the gradient by {name} {what}", place, 0, len(shown(name)), hint)


def stand_ins(gradient: Gradient, op: Op) -> list[tuple[str, str]]:
    """Inputs of the forward, each with an input of an operator of the gradient that has its dtype for sure."""
    found = []
    names = {tensor.name for tensor in op.inputs}
    seeds = dict(gradient.seeds)
    for result in gradient.forward.results:
        for name in (seeds.get(result.output.name, ""), result.output.name):
            if len(result.dtype.of) == 1 and name in names and name not in {t.name for t in gradient.forward.inputs}:
                found.append((result.dtype.of[0], name))
    found += [(leaf, name) for leaf, name in gradient.alike if name in names]
    types = {t.name: t.type.variable for t in gradient.forward.inputs}
    shared = {types[leaf]: name for leaf, name in found if types.get(leaf)}
    shared |= {t.type.variable: t.name for t in op.inputs if t.type.variable and t.default is None}
    return found + [(name, shared[own]) for name, own in types.items() if own in shared and name not in names]


@dataclass(frozen=True)
class BackwardHost(Host):
    """Writes the function of a step: the forward has checked all that there is to check."""

    gradient: Gradient | None = None
    fills: bool = False  # whether each result is a tensor, though one may not be asked for

    def regrouped(self, result: Result) -> str:
        text = super().regrouped(result)
        first = self.first()
        assert first is not None
        return f"library.filled({text}, {first.name})" if self.fills and result.when else text

    def checks(self) -> list[str]:
        return []

    def shapes(self) -> list[str]:
        """The lengths of the axes, each from the first tensor that has it, and the tensors at full length."""
        own = {axis for tensor in self.op.inputs for axis in tensor.type.axes}
        lines = [f"{axis} = {size}" for axis, size in self.op.sizes if axis not in own]
        # Where no tensor has them at full length, leading axes are broadcast at the end.
        known = {BATCH} if self.whole is None and len(self.batch_inputs()) > 1 else set()
        mine = [tensor for tensor in self.op.inputs if tensor.name not in self.op.by_row]
        given = [self.forward.input(name.removesuffix("_shape")) for name in self.extra if name.endswith("_shape")]
        for tensor in told_in_order((*mine, *given)):
            if tensor in given:
                lines += self.lengths_of(f"{tensor.name}_shape", tensor.type.shape, known)
                continue
            block: list[str] = []
            for position, term in enumerate(tensor.type.shape):
                if len(term.names) > 1:
                    block += self.unflatten(tensor, position - len(tensor.type.shape), term, known)[-1:]
            if tensor.default is None:
                block += self.lengths_of(f"{tensor.name}.shape", plain_shape(tensor.type.axes), known)
            lines += self.guarded(tensor, block)
        return lines + self.at_full_length()

    @property
    def forward(self) -> Op:
        assert self.gradient is not None
        return self.gradient.forward

    def lengths_of(self, shape: str, terms: tuple[AxisTerm, ...], known: set[str]) -> list[str]:
        """Unpacks what is not known yet of a shape."""
        axes = tuple(axis for term in terms for axis in term.names)
        if set(axes) <= known:
            return []
        if any(len(term.names) > 1 for term in terms):
            return self.lengths_of_groups(shape, terms, known)
        targets = ["_" if axis in known else axis for axis in axes if axis != BATCH]
        if axes == (BATCH,):
            line = f"batch = {shape}"
        elif BATCH in axes and BATCH not in known:
            line = f"{', '.join(['*batch', *targets])} = {shape}"
        else:
            line = f"{_targets(targets)} = {shape}{f'[{-len(targets)}:]' if BATCH in axes else ''}"
        known |= set(axes)
        return [line]

    def lengths_of_groups(self, shape: str, terms: tuple[AxisTerm, ...], known: set[str]) -> list[str]:
        """Reads what is not known yet off a shape whose dimensions may be groups of axes, each by itself."""
        lines = []
        for position, term in enumerate(terms, -len(terms)):
            if term.names == (BATCH,):
                source, new = f"{shape}[:{position + 1}]", ["batch"] if BATCH not in known else []
            else:
                lengths = self.told(term, known)
                product = " * ".join(lengths.values())
                source = f"{shape}[{position}]"
                source += f" // ({product})" if len(lengths) > 1 else f" // {product}" if lengths else ""
                new = [name for name in term.names if name not in lengths and name not in known]
            lines += [f"{name} = {source}" for name in new]
            known |= set(term.names)
        return lines

    @property
    def whole(self) -> Input | None:
        """A tensor that has the leading axes at full length."""
        return next((t for t in self.op.inputs if BATCH in t.type.axes and not self.may_be_short(t)), None)

    def at_full_length(self) -> list[str]:
        """Expands inputs of the forward along leading axes, where it may have done so."""
        whole = self.whole
        if whole is None:
            return self.batches() if len(self.batch_inputs()) > 1 else []
        lines = []
        for tensor in self.batch_inputs() if self.may_broadcast() else []:
            if self.may_be_short(tensor):
                named = [axis for axis in tensor.type.axes if axis != BATCH]
                same = tensor.type.axes == whole.type.axes
                shapes = [f"{t.name}.shape" if same else self.batch_shape(t) for t in (tensor, whole)]
                expanded = f"    {tensor.name} = {tensor.name}.expand({', '.join(['*batch', *named])})"
                lines += self.guarded(tensor, [f"if {shapes[0]} != {shapes[1]}:", expanded])
        return lines

    def may_broadcast(self) -> bool:
        """Whether inputs of the forward may differ in their leading axes."""
        return sum(BATCH in tensor.type.axes for tensor in self.forward.inputs) > 1

    def may_be_short(self, tensor: Input) -> bool:
        return any(tensor.name == own.name for own in self.forward.inputs)

    def dtype(self, dtype: Dtype) -> str:
        assert self.gradient is not None
        if dtype.rule == "compute":
            return super().dtype(dtype)
        own = {tensor.name for tensor in self.op.inputs}
        alike = dict(stand_ins(self.gradient, self.op))
        parts = {
            leaf: f"{leaf}.dtype"
            if leaf in own
            else f"{alike[leaf]}.dtype"
            if leaf in alike
            else f"{leaf}_dtype"
            if f"{leaf}_dtype" in self.extra
            else f"torch.{leaf}"
            for leaf in dtype.of
        }
        if len(set(parts.values())) == 1:
            return parts[dtype.of[0]]
        optional = {tensor.name for tensor in self.forward.inputs if tensor.default is not None}
        for leaf, text in parts.items():  # Of inputs that share a gradient, some may not be there.
            if leaf in optional and leaf not in alike:
                absent = f"{leaf} is None" if leaf in own else f"{leaf}_dtype is None"
                parts[leaf] = f"*(() if {absent} else ({text},))"
        return f"dtypes.promote({', '.join(dict.fromkeys(parts.values()))})"

    def condition(self, result: Result) -> str:
        """Where a gradient is asked for; by an input that is not there none is."""
        optional = [t.name for t in self.op.inputs if t.default is not None and result.dtype.of == (t.name,)]
        return " and ".join([result.when, *(f"{name} is not None" for name in optional)])

    def like(self, result: Result) -> Input | None:
        """The input that a gradient is by, or else another of its shape."""
        if result.output.name in self.op.by_row:
            return None
        own = [t for t in self.op.inputs if t.name in result.dtype.of and t.type.axes == result.axes]
        plain = [t for t in own if all(len(term.names) == 1 for term in t.type.shape)]
        others = [t for t in self.op.inputs if t.name not in self.op.by_row]
        return plain[0] if plain else replace(self, op=replace(self.op, inputs=tuple(others))).usual_like(result)

    def usual_like(self, result: Result) -> Input | None:
        return super().like(result)


def _targets(names: list[str]) -> str:
    return ", ".join(names) if len(names) > 1 else tuple_text(names)
