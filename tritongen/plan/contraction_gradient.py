"""The gradient of a contraction: a pass that differentiates the epilogue, and matmuls again.

The epilogue is an operator of its own, whose inputs are the contraction's results and the tensors that it
reads. One pass computes the gradients of all of them, those of the contraction's results in the dtype of
the matmul. The gradient of each operand is then a matmul: `da = sum(dc * b, N)`. There is no pass where
the gradient of the contraction's result is that of the operator's, or a number times it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from ..autodiff.gradient import Gradient, derive
from ..autodiff.terms import factors
from ..diagnostics.report import Mistakes
from ..families.contraction.operands import tensors_of
from ..families.family import Families, Step
from ..families.registry import single_step_of, step_of
from ..families.steps import in_own_dtypes, restricted, unknown
from ..lang.ir import (
    ALWAYS,
    Choose,
    Constant,
    Dtype,
    Load,
    Node,
    Op,
    Path,
    Reduce,
    Ref,
    Result,
    Value,
    as_loads,
    children,
    fresh,
    rebuild,
    replaced,
    walk,
)
from ..lang.promotion import promote
from ..lang.unparse import spelled
from ..lowering.choices import Choices
from ..lowering.tile import needed
from ..passes.contractions import Contraction, Product, is_product
from ..passes.picked import picked_in
from ..passes.structure import SAVES, name_reductions, references
from ..spec.types import BATCH, COMPUTED, FLOATS, Grad, Input, Output, TensorType, plain_shape
from .backward import Backward, Plan, Planner, unplanned


def plan_contraction_backward(op: Op, contraction: Contraction, grad: Grad, families: Families) -> Backward:
    """Raises `Mistakes` for a gradient that no family plans, or that is planned as a whole."""
    if picked_in(op) != ():
        raise Mistakes(unplanned(grad.wrt, grad.wrt[0], "is scattered, beside a matmul"))
    return _Planner(op, contraction, grad, families).backward()


class _Planner:
    def __init__(self, op: Op, contraction: Contraction, grad: Grad, families: Families) -> None:
        self.op, self.grad, self.families = op, grad, families
        self.products = {name: [p for p in contraction.products if p.sum == name] for name in contraction.sums}
        self.reduced = {product.name for product in contraction.products}
        self.is_grouped = bool(contraction.col_groups)
        made = (*contraction.batch, *contraction.rows, *contraction.cols)
        self.order = sorted(made, key=lambda axis: axis != BATCH)  # of what tiles give
        self.taken = self.op.names
        self.inside = {name: self.inputs_of(products) for name, products in self.products.items()}
        self.active = [name for name, inputs in self.inside.items() if set(inputs) & set(grad.wrt)]
        self.sums = {name: self.sum_of(name) for name in self.products}
        self.converted: dict[str, tuple[str, Dtype]] = {}

    def fresh(self, name: str) -> str:
        return fresh(name, self.taken)

    # The sums of products, as what follows them sees them

    def inputs_of(self, products: list[Product]) -> list[str]:
        """The inputs that are multiplied."""
        sides = [side for product in products for side in product.sides]
        names = [name for side in sides for name in references(side)]
        nodes = [*sides, *(value.node for value in needed(self.op.values, names))]
        return list(dict.fromkeys(n.name for node in nodes for n in walk(node) if isinstance(n, Load)))

    def dtype_of(self, name: str) -> Dtype:
        """The dtype that is multiplied."""
        product = self.products[name][0]
        dtype = promote(product.left.dtype, product.right.dtype)
        return self.shared(dtype) if dtype.kind == "float" else Dtype("int", ("int32",))

    def shared(self, dtype: Dtype) -> Dtype:
        """The dtype with one input for all that share a type."""
        variables = {tensor.name: tensor.type.variable for tensor in self.op.inputs}
        first = {variable: name for name, variable in reversed(variables.items()) if variable}
        return replace(dtype, of=tuple(dict.fromkeys(first.get(variables.get(leaf, ""), leaf) for leaf in dtype.of)))

    def sum_of(self, product: str) -> Input:
        """A sum of products as an input: under its own name, unless that is a result's."""
        node = self.op.value(product).node
        results = [result for result in self.op.results if set(result.axes) == set(node.axes)]
        axes = results[0].axes if results else tuple(axis for axis in self.order if axis in node.axes)
        is_result = any(result.output.name == product for result in self.op.results)
        name = self.fresh(f"{product}_sum") if is_result else product
        return Input(name, self.type_of(self.saved_dtype(product), axes))

    def saved_dtype(self, product: str) -> Dtype:
        """A softmax would tell what half precision rounds; rows that a tile holds are short.

        Those that are made of groups are not, and are reduced as they are rounded.
        """
        rows = [value for value in self.op.values if isinstance(value.node, Reduce) and value.name not in self.reduced]
        return Dtype("float", (), "compute") if rows and not self.is_grouped else self.dtype_of(product)

    def type_of(self, dtype: Dtype, axes: tuple[str, ...]) -> TensorType:
        if dtype.rule == "compute":
            return TensorType(COMPUTED, plain_shape(axes))
        shared = [t.type for t in self.op.inputs if dtype.of == (t.name,) and t.type.variable]
        if shared:
            return replace(shared[0], shape=plain_shape(axes))
        return TensorType(FLOATS if dtype.kind == "float" else dtype.of, plain_shape(axes))

    # The gradient

    def backward(self) -> Backward:
        after = self.after()
        found = self.gradient_after(after)
        outgoing = {name: self.outgoing(found, name) for name in self.active}
        between = {
            self.sums[name].name: self.dtype_of(name)
            for name, node in outgoing.items()
            if isinstance(node, Load) and node.name == self.own(found, name) and node.name not in self.converted
        }
        gradient = replace(found, forward=self.op, wrt=self.grad.wrt, alike=self.alike(found, between))
        first, texts, paths = self.pass_after(found, gradient, between)
        second = self.through_products(gradient, outgoing)
        texts |= second.spelled
        return Backward(
            gradient,
            self.forward(gradient, first, paths),
            Plan(
                (*first, *second.steps),
                {name: texts[name] for name in self.grad.wrt},
                self.converted,
            ),
        )

    def users(self, product: str) -> tuple[str, ...]:
        return tuple(name for name in self.inside[product] if name in self.grad.wrt)

    # The pass

    def after(self) -> Op:
        """The operator of what follows the products."""
        values = tuple(
            Value(value.name, self.load(value.name), "") if value.name in self.products else self.after_sums(value)
            for value in self.op.values
        )
        found = tuple(needed(values, [result.output.name for result in self.op.results]))
        results = tuple(replace(result, node=self.with_sums(result.node)) for result in self.op.results)
        return replace(self.op, inputs=(*self.op.inputs, *self.sums.values()), values=found, results=results)

    def load(self, product: str) -> Load:
        node = self.op.value(product).node
        return Load(self.sums[product].name, node.axes, node.dtype)

    def after_sums(self, value: Value) -> Value:
        node = self.with_sums(value.node)
        return value if node == value.node else Value(value.name, node, value.source and spelled(node))

    def with_sums(self, node: Node) -> Node:
        """The node with products as inputs, but for those that are results."""
        return as_loads(node, {name: name for name, tensor in self.sums.items() if tensor.name == name})

    def gradient_after(self, after: Op) -> Gradient:
        """The gradient of what follows the products, by them and by its other inputs."""
        read = {n.name for value in after.values for n in walk(value.node) if isinstance(n, Load)}
        beside = tuple(name for name in self.grad.wrt if name in read)
        both = [name for name in beside if any(name in inputs for inputs in self.inside.values())]
        if both:
            what = "is that of a factor and of what follows the product, which no kernel adds up"
            raise Mistakes(*(unplanned(self.grad.wrt, name, what) for name in both))
        lines = {value.name for value in after.values}
        by = tuple(self.sums[name].name for name in self.active)
        return derive(after, Grad((*by, *beside), tuple(name for name in self.grad.save if name in lines)))

    def own(self, found: Gradient, product: str) -> str:
        """What the gradient by a product is called."""
        return found.op.results[found.wrt.index(self.sums[product].name)].output.name

    def outgoing(self, found: Gradient, product: str) -> Node:
        """The gradient by a product: that of a result as it came, or else a tensor of ours."""
        own = self.own(found, product)
        node = found.op.value(own).node
        sums = {self.own(found, name) for name in self.active}
        while isinstance(node, Ref) and node.name in sums:
            own, node = node.name, found.op.value(node.name).node
        mine = Load(own, self.op.value(product).node.axes, Dtype("float", (own,)))
        seed = self.seed_of(found, product, node)
        if seed is None:
            return mine
        result = next(r for r in self.op.results if (r.output.name, seed.name) in found.seeds)
        dtype = self.dtype_of(product)
        if self.shared(result.dtype) == dtype:
            return node
        self.converted[own] = (seed.name, dtype)
        return replaced(node, lambda part: mine if part == seed else part)

    def seed_of(self, found: Gradient, product: str, node: Node) -> Load | None:
        """The gradient of a result that a gradient is, or is a number times."""
        seeds = {seed: result for result, seed in found.seeds}
        wide = [(factor, power) for factor, power in factors(node).factors.items() if factor.axes]
        if len(wide) != 1 or any(isinstance(part, Ref) for part in walk(node)):
            return None
        ((factor, power),) = wide
        if not isinstance(factor, Load) or factor.name not in seeds or power != 1 or factor.at:
            return None
        return factor if set(factor.axes) == set(self.op.value(product).node.axes) else None

    def alike(self, found: Gradient, between: dict[str, Dtype]) -> tuple[tuple[str, str], ...]:
        """Inputs of the forward, each with a gradient by a product that has its dtype."""
        products = {self.sums[name].name: name for name in self.active}
        leaves = {self.own(found, products[name]): dtype.of for name, dtype in between.items()}
        leaves |= {own: dtype.of for own, (_, dtype) in self.converted.items()}
        return tuple((of[0], own) for own, of in leaves.items() if len(of) == 1)

    def pass_after(
        self, found: Gradient, gradient: Gradient, between: dict[str, Dtype]
    ) -> tuple[tuple[Step, ...], dict[str, str], Mapping[str, tuple[Path, ...]]]:
        """The parts that give the gradients by the products and beside them, and those as the host spells them.

        Also where they read what the forward saves, if that is not always.
        """
        sums = {tensor.name for tensor in self.sums.values()}
        wanted = [name not in sums or name in between for name in found.wrt]
        wrt = tuple(name for name, one in zip(found.wrt, wanted, strict=True) if one)
        results = tuple(result for result, one in zip(found.op.results, wanted, strict=True) if one)
        own = replace(gradient, wrt=wrt, op=replace(found.op, results=results))
        try:
            planner = Planner(own, (), self.families, between, tuple(sums & {tensor.name for tensor in own.op.inputs}))
            return *planner.plan(), planner.paths
        except Mistakes as refused:
            told = {wrt[int(mistake.key[-1])]: mistake.message for mistake in refused.mistakes}
            factors_of = {self.sums[name].name: self.users(name)[0] for name in self.active}
            whys = {factors_of.get(name, name): why.partition(f" by {name} ")[2] for name, why in told.items()}
            raise Mistakes(*(unplanned(self.grad.wrt, name, why) for name, why in whys.items())) from None

    # The products of the gradient

    def through_products(self, gradient: Gradient, outgoing: dict[str, Node]) -> Plan:
        """The parts that give the gradients by what is multiplied."""
        wrt = tuple(name for name in self.grad.wrt if any(name in inputs for inputs in self.inside.values()))
        if not wrt:
            return Plan((), {})
        found = self.decided(derive(self.multiplied(gradient, outgoing), Grad(wrt), outgoing).op, outgoing)
        results = dict(zip(wrt, found.results, strict=True))
        parts, refused = dict[str, Step](), dict[str, Mistakes]()
        twins = {
            name: node.name
            for name, result in results.items()
            if isinstance(node := found.value(result.output.name).node, Ref) and self.has_twin(name, node, results)
        }
        pending = self.sharing(found, {name: one for name, one in results.items() if name not in twins})
        while pending:
            names = pending.pop(0)
            both = tuple(replace(results[name], when=f"needs_{name}" if len(names) > 1 else "") for name in names)
            try:
                step = self.step(gradient, restricted(found, both, f"_{both[0].output.name}"))
            except Mistakes as mistakes:
                if len(names) > 1:
                    pending = [*((name,) for name in names), *pending]
                else:
                    refused[names[0]] = mistakes
            else:
                parts |= dict.fromkeys(names, step)
        apart = self.apart(gradient, found, results, refused) if refused else Plan((), {})
        parts = {name: part for name, part in parts.items() if name not in apart.spelled}
        texts = {name: results[name].output.name for name in parts}
        own = {step.op.name: step for step in parts.values()}
        return Plan((*own.values(), *apart.steps), {**texts, **twins, **apart.spelled})

    def sharing(self, op: Op, results: dict[str, Result]) -> list[tuple[str, ...]]:
        """The inputs, those together whose gradients are made of one matmul, in the same pass over its result."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for name, result in results.items():
            below = needed(op.values, [result.output.name])
            sums = tuple(value.name for value in below if is_product(op, value.node))
            own = result.output.name in sums or not sums
            groups.setdefault((name,) if own else sums, []).append(name)
        return [tuple(names) for names in groups.values()]

    def decided(self, op: Op, outgoing: dict[str, Node]) -> Op:
        """The operator whose matmuls are only there where those of the forward are that they are the gradients of."""
        choices = Choices(self.op)
        readers = _readers(outgoing)

        def where_needed(node: Node) -> Node:
            if not isinstance(node, Reduce):
                return rebuild(node, tuple(map(where_needed, children(node))))
            names = [name for load in tensors_of(op, node) for name in readers.get(load, ())]
            return chosen(node, choices.of(*names)) if names else node

        values = tuple(replace(value, node=where_needed(value.node)) for value in op.values)
        return replace(op, params=self.op.params, values=values)

    def has_twin(self, name: str, node: Ref, results: dict[str, Result]) -> bool:
        """Whether a gradient is that by another input of the same dtype."""
        types = {result.output.name: self.op.input(other).type for other, result in results.items()}
        mine = self.op.input(name).type
        return node.name in types and bool(mine.variable) and types[node.name].variable == mine.variable

    def step(self, gradient: Gradient, op: Op) -> Step:
        step = single_step_of(in_own_dtypes(gradient, op), self.families)
        shapes, dtypes = unknown(gradient, step.op)
        return replace(step, shapes=shapes, dtypes=dtypes)

    def apart(self, gradient: Gradient, found: Op, results: dict[str, Result], refused: dict[str, Mistakes]) -> Plan:
        """Gradients that one contraction kernel cannot compute: the matmul by itself, and a pass over its result."""
        dtype = self.dtype_of(self.active[0])
        others = [one for name, one in results.items() if name in refused or self.shared(one.dtype) != dtype]
        op = self.sums_named(name_reductions(found), {one.output.name for one in others})
        behind = {
            name: {value.name for value in needed(op.values, [result.output.name]) if is_product(op, value.node)}
            for name, result in results.items()
        }
        sums = sorted(set().union(*(behind[name] for name in refused)))
        made = {one.output.name: one for name, one in results.items() if one.output.name in sums}
        wrt = tuple(name for name, one in results.items() if behind[name] & set(sums) and one.output.name not in sums)
        try:
            parts = [self.step(gradient, self.alone(op, name)) for name in sums if name not in made]
            given = {part.op.results[0].output.name: part.op.results[0] for part in parts} | made
            passed = replace(gradient, wrt=wrt, op=self.beyond(op, given, tuple(results[name] for name in wrt)))
            after, texts = Planner(passed, (), self.families).plan()
        except Mistakes:
            wrong = ((name, mistakes.mistakes[0].message.partition(" ")[2]) for name, mistakes in refused.items())
            raise Mistakes(*(unplanned(self.grad.wrt, name, why) for name, why in wrong)) from None
        return Plan((*parts, *after), texts)

    def sums_named(self, op: Op, names: Container[str]) -> Op:
        """The operator with names of their own for matmuls that are results of some names."""
        values: list[Value] = []
        for value in op.values:
            if value.name in names and is_product(op, value.node):
                values.append(replace(value, name=self.fresh(f"{value.name}_sum")))
                value = replace(value, node=Ref(values[-1].name, value.node.axes, value.node.dtype), source="")
            values.append(value)
        return replace(op, values=tuple(values))

    def alone(self, op: Op, name: str) -> Op:
        """The operator of a product alone, in the dtype that the forward multiplies."""
        node = op.value(name).node
        if not op.value(name).source:
            named = (replace(v, source=spelled(node)) if v.name == name else v for v in op.values)
            op = replace(op, values=tuple(named))
        dtype = self.dtype_of(self.active[0])
        axes = tuple(axis for axis in op.axes if axis in node.axes)
        result = Result(Output(name, "auto", plain_shape(axes)), Ref(name, node.axes, node.dtype), axes, dtype)
        return restricted(op, (result,), f"_{name}")

    def beyond(self, op: Op, given: dict[str, Result], results: tuple[Result, ...]) -> Op:
        """What follows some products, which are inputs."""
        names = {name: name for name in given}
        inputs = tuple(
            Input(name, replace(self.type_of(result.dtype, result.axes), shape=result.output.shape or ()))
            for name, result in given.items()
        )
        values = tuple(
            replace(value, node=as_loads(value.node, names)) for value in op.values if value.name not in given
        )
        return replace(op, name=f"{op.name}_inputs", inputs=(*inputs, *op.inputs), values=values, results=results)

    def multiplied(self, gradient: Gradient, outgoing: dict[str, Node]) -> Op:
        """The products alone, with the gradients by them among the inputs."""
        inputs = dict[str, Input]()
        results = []
        seeds = {seed: name for name, seed in gradient.seeds}
        for name, node in outgoing.items():
            sum_node = self.op.value(name).node
            for load in _tensors(node):
                own = self.type_of(self.dtype_of(name), self.sums[name].type.axes)
                seed, _ = self.converted.get(load.name, (load.name, None))
                if seed in seeds:
                    result = next(r for r in self.op.results if r.output.name == seeds[seed])
                    own = replace(own, shape=self.op.grouping(result))
                inputs.setdefault(load.name, Input(load.name, own))
            ref = Ref(name, sum_node.axes, sum_node.dtype)
            results.append(Result(Output(name), ref, sum_node.axes, sum_node.dtype))
        values = tuple(needed(self.op.values, outgoing))
        return replace(self.op, inputs=(*inputs.values(), *self.op.inputs), values=values, results=tuple(results))

    # The forward

    def forward(self, gradient: Gradient, steps: tuple[Step, ...], paths: Mapping[str, tuple[Path, ...]]) -> Step:
        """The forward with what the pass reads of it among its results."""
        op = self.op
        read = {tensor.name for step in steps for tensor in step.op.inputs}
        saved = {own: (name, Dtype("float", (), "compute")) for own, name in gradient.saved}
        saved |= {tensor.name: (name, self.saved_dtype(name)) for name, tensor in self.sums.items()}
        values, results = op.values, op.results
        for own, (name, dtype) in saved.items():
            if own not in read:
                continue
            node = op.value(name).node
            if own != name:
                values = (*values, Value(own, Ref(name, node.axes, node.dtype), ""))
            axes = next(t.type.axes for step in steps for t in step.op.inputs if t.name == own)
            output, ref = Output(own, "auto", plain_shape(axes)), Ref(own, node.axes, node.dtype)
            where = paths.get(own, ALWAYS)
            results = (*results, Result(output, ref, axes, dtype, when=SAVES, paths=where, saved=True))
        return step_of(replace(op, values=values, results=results), (), self.families)


def _tensors(node: Node) -> list[Load]:
    """What a gradient by a product reads, but for single numbers."""
    return [part for part in walk(node) if isinstance(part, Load) and part.axes]


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
