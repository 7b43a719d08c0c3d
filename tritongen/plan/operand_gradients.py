"""The gradients of what a contraction multiplies: matmuls again, of the gradients by its sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..autodiff.gradient import Gradient, derive
from ..diagnostics.report import Mistakes
from ..families.contraction.operands import tensors_of
from ..families.family import Families, Step
from ..families.registry import single_step_of
from ..lang.ir import Choose, Constant, Dtype, Load, Node, Op, Path, Reduce, Ref, Result, children, walk
from ..lang.rewrite import rebuild
from ..lowering.choices import Choices
from ..lowering.tile import needed
from ..passes.contractions import is_product
from ..planner.steps import in_own_dtypes, informed, restricted
from ..spec.types import Grad, Input, Output
from .backward import Plan, unplanned
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
        steps = self.steps(found, {name: one for name, one in results.items() if name not in twins})
        texts = {name: results[name].output.name for name in steps}
        own = {step.op.name: step for step in steps.values()}
        return Plan(tuple(own.values()), texts | twins)

    def steps(self, op: Op, results: dict[str, Result]) -> dict[str, Step]:
        """The steps of gradients by inputs. Raises `Mistakes` for those that no contraction computes."""
        steps = dict[str, Step]()
        pending = self.sharing(op, results)
        while pending:
            names = pending.pop(0)
            both = tuple(replace(results[name], when=f"needs_{name}" if len(names) > 1 else "") for name in names)
            try:
                step = self.step(restricted(op, both, f"_{both[0].output.name}"))
            except Mistakes as refused:
                if len(names) == 1:
                    why = refused.mistakes[0].message.partition(" ")[2]
                    raise Mistakes(unplanned(self.grad.wrt, names[0], why)) from None
                pending = [*((name,) for name in names), *pending]
            else:
                steps |= dict.fromkeys(names, step)
        return steps

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
