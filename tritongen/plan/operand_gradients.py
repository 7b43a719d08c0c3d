"""The gradients of what a contraction multiplies: matmuls again, of the gradients by its sums."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from ..autodiff.gradient import Gradient, derive
from ..diagnostics.report import Mistakes
from ..families.contraction.operands import tensors_of
from ..families.family import Families, Step
from ..families.registry import single_step_of
from ..lang.ir import Choose, Constant, Dtype, Load, Node, Op, Path, Reduce, Ref, Result, Value, children, walk
from ..lang.rewrite import as_loads, rebuild
from ..lang.unparse import spelled
from ..lowering.choices import Choices
from ..lowering.tile import needed
from ..passes.contractions import is_product
from ..passes.structure import name_reductions
from ..planner.steps import in_own_dtypes, informed, restricted
from ..spec.types import Grad, Input, Output, plain_shape
from .backward import Plan, Planner, unplanned
from .multiplied import Multiplied


class OperandGradients:
    """Plans the gradients by the inputs that are multiplied, of those by the sums of products.

    `outgoing` has a node for each sum; tensors that are `converted` to the dtype of a matmul are with the results'
    gradients that they are made of.
    """

    def __init__(
        self,
        multiplied: Multiplied,
        gradient: Gradient,
        outgoing: Mapping[str, Node],
        converted: Mapping[str, tuple[str, Dtype]],
        families: Families,
    ) -> None:
        self.op, self.grad = multiplied.op, multiplied.grad
        self.multiplied, self.gradient, self.families = multiplied, gradient, families
        self.outgoing, self.converted = outgoing, converted

    def plan(self) -> Plan:
        """The steps of the gradients by the operands of matmuls."""
        wrt = tuple(name for name in self.grad.wrt if any(name in inputs for inputs in self.multiplied.inside.values()))
        if not wrt:
            return Plan((), {})
        found = self.decided(derive(self.products_alone(), Grad(wrt), self.outgoing).op)
        results = dict(zip(wrt, found.results, strict=True))
        twins = {
            name: node.name
            for name, result in results.items()
            if isinstance(node := found.value(result.output.name).node, Ref) and self.has_twin(name, node, results)
        }
        steps, refused = self.steps(found, {name: one for name, one in results.items() if name not in twins})
        unfused = self.unfused(found, results, refused) if refused else Plan((), {})
        steps = {name: part for name, part in steps.items() if name not in unfused.spelled}
        texts = {name: results[name].output.name for name in steps}
        own = {step.op.name: step for step in steps.values()}
        return Plan((*own.values(), *unfused.steps), {**texts, **twins, **unfused.spelled})

    def steps(self, op: Op, results: dict[str, Result]) -> tuple[dict[str, Step], dict[str, Mistakes]]:
        """The steps of gradients by inputs, and why others have none."""
        steps, refused = dict[str, Step](), dict[str, Mistakes]()
        pending = self.sharing(op, results)
        while pending:
            names = pending.pop(0)
            both = tuple(replace(results[name], when=f"needs_{name}" if len(names) > 1 else "") for name in names)
            try:
                step = self.step(restricted(op, both, f"_{both[0].output.name}"))
            except Mistakes as mistakes:
                if len(names) > 1:
                    pending = [*((name,) for name in names), *pending]
                else:
                    refused[names[0]] = mistakes
            else:
                steps |= dict.fromkeys(names, step)
        return steps, refused

    def sharing(self, op: Op, results: dict[str, Result]) -> list[tuple[str, ...]]:
        """The inputs, those together whose gradients are made of one matmul, in the same pass over its result."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for name, result in results.items():
            sums = _products(op, result)
            own = result.output.name in sums or not sums
            groups.setdefault((name,) if own else sums, []).append(name)
        return [tuple(names) for names in groups.values()]

    def decided(self, op: Op) -> Op:
        """The operator whose matmuls are only there where those of the forward are that they are the gradients of."""
        choices = Choices(self.op)
        readers = _readers(self.outgoing)

        def where_needed(node: Node) -> Node:
            if not isinstance(node, Reduce):
                return rebuild(node, tuple(map(where_needed, children(node))))
            names = [name for load in tensors_of(op, node) for name in readers.get(load, ())]
            return chosen(node, choices.of(*names)) if names else node

        return replace(op.with_nodes(where_needed), params=self.op.params)

    def has_twin(self, name: str, node: Ref, results: dict[str, Result]) -> bool:
        """Whether a gradient is that by another input of the same dtype."""
        types = {result.output.name: self.op.input(other).type for other, result in results.items()}
        mine = self.op.input(name).type
        return node.name in types and bool(mine.variable) and types[node.name].variable == mine.variable

    def step(self, op: Op) -> Step:
        return informed(self.gradient, single_step_of(in_own_dtypes(self.gradient, op), self.families))

    def unfused(self, found: Op, results: dict[str, Result], refused: dict[str, Mistakes]) -> Plan:
        """Gradients that one contraction kernel cannot compute: the matmul unfused, and a pass over its result."""
        dtype = self.multiplied.dtype_of(self.multiplied.active[0])
        others = [one for name, one in results.items() if name in refused or self.multiplied.shared(one.dtype) != dtype]
        op = self.sums_named(name_reductions(found), {one.output.name for one in others})
        behind = {name: {*_products(op, result)} for name, result in results.items()}
        sums = sorted(set().union(*(behind[name] for name in refused)))
        made = {one.output.name: one for name, one in results.items() if one.output.name in sums}
        wrt = tuple(name for name, one in results.items() if behind[name] & set(sums) and one.output.name not in sums)
        try:
            steps = [self.step(self.alone(op, name)) for name in sums if name not in made]
            given = {part.op.results[0].output.name: part.op.results[0] for part in steps} | made
            passed = replace(self.gradient, wrt=wrt, op=self.beyond(op, given, tuple(results[name] for name in wrt)))
            after, texts = Planner(passed, (), self.families).plan()
        except Mistakes:
            wrong = ((name, mistakes.mistakes[0].message.partition(" ")[2]) for name, mistakes in refused.items())
            raise Mistakes(*(unplanned(self.grad.wrt, name, why) for name, why in wrong)) from None
        return Plan((*steps, *after), texts)

    def sums_named(self, op: Op, names: Container[str]) -> Op:
        """The operator with names of their own for matmuls that are results of some names."""
        values: list[Value] = []
        for value in op.values:
            if value.name in names and is_product(op, value.node):
                values.append(replace(value, name=self.multiplied.fresh(f"{value.name}_sum")))
                value = replace(value, node=Ref(values[-1].name, value.node.axes, value.node.dtype), source="")
            values.append(value)
        return replace(op, values=tuple(values))

    def alone(self, op: Op, name: str) -> Op:
        """The operator of a product alone, in the dtype that the forward multiplies."""
        node = op.value(name).node
        if not op.value(name).source:
            named = (replace(v, source=spelled(node)) if v.name == name else v for v in op.values)
            op = replace(op, values=tuple(named))
        dtype = self.multiplied.dtype_of(self.multiplied.active[0])
        axes = tuple(axis for axis in op.axes if axis in node.axes)
        result = Result(Output(name, "auto", plain_shape(axes)), Ref(name, node.axes, node.dtype), axes, dtype)
        return restricted(op, (result,), f"_{name}")

    def beyond(self, op: Op, given: dict[str, Result], results: tuple[Result, ...]) -> Op:
        """What follows some products, which are inputs."""
        names = {name: name for name in given}
        inputs = tuple(
            Input(name, replace(self.multiplied.type_of(result.dtype, result.axes), shape=result.output.shape or ()))
            for name, result in given.items()
        )
        values = tuple(
            replace(value, node=as_loads(value.node, names)) for value in op.values if value.name not in given
        )
        return replace(op, name=f"{op.name}_inputs", inputs=(*inputs, *op.inputs), values=values, results=results)

    def products_alone(self) -> Op:
        """The products alone, with the gradients by them among the inputs."""
        inputs = dict[str, Input]()
        results = []
        seeds = {seed: name for name, seed in self.gradient.seeds}
        for name, node in self.outgoing.items():
            sum_node = self.op.value(name).node
            for load in _tensors(node):
                own = self.multiplied.type_of(self.multiplied.dtype_of(name), self.multiplied.sums[name].type.axes)
                seed, _ = self.converted.get(load.name, (load.name, None))
                if seed in seeds:
                    result = next(r for r in self.op.results if r.output.name == seeds[seed])
                    own = replace(own, shape=self.op.grouping(result))
                inputs.setdefault(load.name, Input(load.name, own))
            ref = Ref(name, sum_node.axes, sum_node.dtype)
            results.append(Result(Output(name), ref, sum_node.axes, sum_node.dtype))
        values = tuple(needed(self.op.values, self.outgoing))
        return replace(self.op, inputs=(*inputs.values(), *self.op.inputs), values=values, results=tuple(results))


def _tensors(node: Node) -> list[Load]:
    """What a gradient by a matmul reads, but for scalars."""
    return [part for part in walk(node) if isinstance(part, Load) and part.axes]


def _products(op: Op, result: Result) -> tuple[str, ...]:
    """The matmuls that a result is made of."""
    return tuple(value.name for value in needed(op.values, [result.output.name]) if is_product(op, value.node))


def _readers(outgoing: Mapping[str, Node]) -> dict[str, list[str]]:
    """The products whose gradients read a tensor, for each that they read."""
    found: dict[str, list[str]] = {}
    for name, node in outgoing.items():
        for tensor in _tensors(node):
            found.setdefault(tensor.name, []).append(name)
    return found


def chosen(node: Node, path: Path) -> Node:
    """A number where a path is taken, and 0 elsewhere."""
    zero = Constant(0.0, Dtype("float"))
    for test, holds in reversed(path):
        then, other = (node, zero) if holds else (zero, node)
        node = Choose(test, then, other, node.axes, node.dtype)
    return node
