"""The gradient of a contraction: a pass that differentiates the epilogue, and matmuls again.

The epilogue is an operator of its own, whose inputs are the contraction's results and the tensors that it
reads. One pass computes the gradients of all of them, those of the contraction's results in the dtype of
the matmul. The gradient of each operand is then a matmul: `da = sum(dc * b, N)`. There is no pass where
the gradient of the contraction's result is the outgoing gradient, or a scalar multiple of it.

If gradients by operands share more than inputs, such as a matmul, the gradient is planned in one piece, by modelled
time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ..autodiff.algebra import Algebra
from ..autodiff.gradient import Gradient, derive
from ..autodiff.terms import ZERO, factors, is_half
from ..autodiff.vanishing import Vanishing
from ..diagnostics.report import Mistakes
from ..families.contraction.operands import tensors_of
from ..families.family import Families, Step
from ..families.registry import single_step_of, step_of
from ..lang.ir import (
    ALWAYS,
    COMPUTE,
    Call,
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
    children,
    walk,
)
from ..lang.names import fresh
from ..lang.promotion import promote
from ..lang.rewrite import as_loads, rebuild, replaced
from ..lang.unparse import spelled
from ..lowering.choices import Choices
from ..lowering.tile import needed
from ..nest.values import Expr, V
from ..passes.contractions import Contraction, Product, is_product
from ..passes.gathered import gathered_in
from ..passes.structure import references
from ..planner.steps import in_own_dtypes, informed, restricted
from ..spec.types import BATCH, COMPUTED, FLOATS, Grad, Input, Output, TensorType, plain_shape
from .backward import Backward, Plan, Planner, unplanned, with_saved


def plan_contraction_backward(op: Op, contraction: Contraction, grad: Grad, families: Families) -> Backward:
    """Raises `Mistakes` for a gradient that no family plans, or that is planned in one piece."""
    if gathered_in(op) != ():
        raise Mistakes(unplanned(grad.wrt, grad.wrt[0], "is scattered, beside a matmul"))
    return _Planner(op, contraction, grad, families).backward()


class _Planner:
    """Plans the gradient; `inside` are the inputs that each matmul multiplies, and `sums` the matmuls as inputs."""

    def __init__(self, op: Op, contraction: Contraction, grad: Grad, families: Families) -> None:
        self.op, self.grad, self.families = op, grad, families
        self.products = {name: [p for p in contraction.products if p.sum == name] for name in contraction.sums}
        self.reduced = {product.name for product in contraction.products}
        self.is_grouped = bool(contraction.col_groups)
        made = (*contraction.batch, *contraction.rows, *contraction.cols)
        self.order = sorted(made, key=lambda axis: axis != BATCH)  # of a tile's results
        self.inside = {name: self.inputs_of(products) for name, products in self.products.items()}
        self.active = [name for name, inputs in self.inside.items() if {*inputs} & {*grad.wrt}]
        used = op.names
        self.sums = {name: self.sum_of(name, used) for name in self.products}
        self.converted: dict[str, tuple[str, Dtype]] = {}
        self.zeros: set[str] = set()  # the products whose gradients may be 0 where a choice leaves them out

    def backward(self) -> Backward:
        after = self.after()
        found = self.gradient_after(after)
        outgoing = {name: self.outgoing(found, name) for name in self.active}
        zeros = {name for name, result in found.by.items() if result.vanishes}
        self.zeros = {name for name in outgoing if self.sums[name].name in zeros}
        given = {name: self.chosen_again(found, name, node) for name, node in outgoing.items()}
        between = {
            self.sums[name].name: self.dtype_of(name)
            for name, node in outgoing.items()
            if isinstance(node, Load) and node.name == self.own(found, name) and node.name not in self.converted
        }
        gradient = replace(found, forward=self.op, wrt=self.grad.wrt, same_dtypes=self.same_dtypes(found, between))
        first, texts, paths = self.pass_after(found, gradient, between)
        second, names = self.operands(gradient, outgoing, given)
        spelled_as = {name: (texts | names)[name] for name in self.grad.wrt}
        return Backward(
            gradient, self.forward(gradient, first, paths), Plan((*first, *second), spelled_as, self.converted)
        )

    def users(self, product: str) -> tuple[str, ...]:
        return tuple(name for name in self.inside[product] if name in self.grad.wrt)

    def inputs_of(self, products: list[Product]) -> list[str]:
        """The inputs that `products` multiply, including inputs of the scales of groups of terms."""
        sides = [side for product in products for side in product.sides]
        sides += [product.scale for product in products if product.scale is not None]
        names = [name for side in sides for name in references(side)]
        nodes = [*sides, *(value.node for value in needed(self.op.values, names))]
        return list(dict.fromkeys(n.name for node in nodes for n in walk(node) if isinstance(n, Load)))

    def dtype_of(self, name: str) -> Dtype:
        product = self.products[name][0]
        dtype = promote(product.left, product.right)
        return self.shared(dtype) if dtype.kind == "float" else Dtype("int", ("int32",))

    def shared(self, dtype: Dtype) -> Dtype:
        """The dtype, in which one input stands for all inputs that share a type."""
        variables = {tensor.name: tensor.type.variable for tensor in self.op.inputs}
        first = {variable: name for name, variable in reversed(variables.items()) if variable}
        return dtype.renamed(lambda leaf: first.get(variables.get(leaf, ""), leaf))

    def sum_of(self, product: str, used: set[str]) -> Input:
        """A sum of products as an input: under its own name, unless that is a result's."""
        node = self.op.value(product).node
        results = [result for result in self.op.results if set(result.axes) == set(node.axes)]
        axes = results[0].axes if results else tuple(axis for axis in self.order if axis in node.axes)
        is_result = any(result.output.name == product for result in self.op.results)
        name = fresh(f"{product}_sum", used) if is_result else product
        return Input(name, self.type_of(self.saved_dtype(product), axes))

    def saved_dtype(self, product: str) -> Dtype:
        """The compute dtype if rows are reduced, as a softmax would show rounding, and rows in a tile are short.

        Rows of grouped columns are not short, and are reduced as they are rounded.
        """
        rows = [value for value in self.op.values if isinstance(value.node, Reduce) and value.name not in self.reduced]
        return COMPUTE if rows and not self.is_grouped else self.dtype_of(product)

    def type_of(self, dtype: Dtype, axes: tuple[str, ...]) -> TensorType:
        if dtype.rule == "compute":
            return TensorType(COMPUTED, plain_shape(axes))
        shared = [t.type for t in self.op.inputs if dtype.of == (t.name,) and t.type.variable]
        if shared:
            return replace(shared[0], shape=plain_shape(axes))
        return TensorType(FLOATS if dtype.kind == "float" else dtype.of, plain_shape(axes))

    # The pass

    def after(self) -> Op:
        """The operator of the epilogue, with the products as inputs."""
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
        """The node with products as inputs, except for products that are results."""
        return as_loads(node, {name: name for name, tensor in self.sums.items() if tensor.name == name})

    def gradient_after(self, after: Op) -> Gradient:
        """The gradient of the epilogue, by the products and by its other inputs."""
        read = {n.name for n in after.nodes if isinstance(n, Load)}
        direct = tuple(name for name in self.grad.wrt if name in read)
        both = [name for name in direct if any(name in inputs for inputs in self.inside.values())]
        if both:
            what = "is that of a factor and of what follows the product, which no kernel adds up"
            raise Mistakes(*(unplanned(self.grad.wrt, name, what) for name in both))
        lines = {value.name for value in after.values}
        by = tuple(self.sums[name].name for name in self.active)
        save = tuple(name for name in self.grad.save or () if name in lines)
        return derive(after, Grad((*by, *direct), save or None))

    def own(self, found: Gradient, product: str) -> str:
        """The name of the gradient by a product."""
        return found.op.results[found.wrt.index(self.sums[product].name)].output.name

    def outgoing(self, found: Gradient, product: str) -> Node:
        """The gradient by a product: an expression of an outgoing gradient, or else a tensor that the pass computes."""
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
        return replaced(node, lambda inner: mine if inner == seed else inner)

    def seed_of(self, found: Gradient, product: str, node: Node) -> Load | None:
        """The outgoing gradient that a gradient equals or is a scalar multiple of, if there is one."""
        seeds = {seed: result for result, seed in found.seeds}
        wide = [(factor, power) for factor, power in factors(node).factors.items() if factor.axes]
        if len(wide) != 1 or any(isinstance(inner, Ref) for inner in walk(node)):
            return None
        ((factor, power),) = wide
        if not isinstance(factor, Load) or factor.name not in seeds or power != 1 or factor.at:
            return None
        return factor if set(factor.axes) == set(self.op.value(product).node.axes) else None

    def chosen_again(self, found: Gradient, product: str, outgoing: Node) -> Node:
        """The gradient by a product, with choices along an operand applied again if that may be infinite: the gradient
        is 0 where they leave it out, and a matmul would multiply 0 by infinity.
        """
        if product not in self.zeros:
            return outgoing
        vanishing = Vanishing(self.op, Algebra(self.op), frozenset(), {})
        sides = [side for one in self.products[product] for side in one.sides]
        infinite = [{*side.axes} for side in sides if vanishing.is_infinite(side, lambda _: True)]
        inputs = {tensor.name for tensor in self.op.inputs}
        for choice in filter(is_half, factors(found.op.value(self.own(found, product)).node).factors):
            condition, then, _ = children(choice)
            is_known = condition.reads <= inputs and not condition.references
            if is_known and isinstance(choice, Call) and any({*condition.axes} <= axes for axes in infinite):
                sides = [ZERO, outgoing] if then == ZERO else [outgoing, ZERO]
                outgoing = replace(choice, args=(condition, *sides), axes=outgoing.axes, dtype=outgoing.dtype)
        return outgoing

    def same_dtypes(self, found: Gradient, between: dict[str, Dtype]) -> tuple[tuple[str, str], ...]:
        """Inputs of the forward, each with a gradient by a product that has its dtype."""
        products = {self.sums[name].name: name for name in self.active}
        leaves = {self.own(found, products[name]): dtype.of for name, dtype in between.items()}
        leaves |= {own: dtype.of for own, (_, dtype) in self.converted.items()}
        return tuple((of[0], own) for own, of in leaves.items() if len(of) == 1)

    def pass_after(
        self, found: Gradient, gradient: Gradient, between: dict[str, Dtype]
    ) -> tuple[tuple[Step, ...], dict[str, Expr], Mapping[str, tuple[Path, ...]]]:
        """The steps of the pass, the gradients as host expressions, and the choices under which values are saved."""
        sums = {tensor.name for tensor in self.sums.values()}
        wanted = [name not in sums or name in between for name in found.wrt]
        wrt = tuple(name for name, one in zip(found.wrt, wanted, strict=True) if one)
        results = tuple(result for result, one in zip(found.op.results, wanted, strict=True) if one)
        own = replace(gradient, wrt=wrt, op=replace(found.op, results=results))
        try:
            planner = Planner(own, (), self.families, between, tuple(sums & {tensor.name for tensor in own.op.inputs}))
            return *planner.plan(), planner.paths
        except Mistakes as refused:
            messages = {wrt[int(mistake.key[-1])]: mistake.message for mistake in refused.mistakes}
            factors_of = {self.sums[name].name: self.users(name)[0] for name in self.active}
            whys = {factors_of.get(name, name): why.partition(f" by {name} ")[2] for name, why in messages.items()}
            raise Mistakes(*(unplanned(self.grad.wrt, name, why) for name, why in whys.items())) from None

    # The operands

    def operands(
        self, gradient: Gradient, outgoing: Mapping[str, Node], given: Mapping[str, Node]
    ) -> tuple[list[Step], dict[str, Expr]]:
        """The steps of the gradients by operands, a matmul each, and the names of their results.

        `outgoing` has the gradient by each sum, `given` the same with choices.
        """
        wrt = tuple(name for name in self.grad.wrt if any(name in inputs for inputs in self.inside.values()))
        if not wrt:
            return [], {}
        found = self.decided(derive(self.products_alone(gradient, outgoing), Grad(wrt), given).op, outgoing)
        results = dict(zip(wrt, found.results, strict=True))
        made = {one.output.name: _products(found, one.output.name) for one in found.results}
        shared = Counter(made.values())
        steps: list[Step] = []
        for name, result in results.items():
            own = result.output.name
            if isinstance(found.value(own).node, Ref) or (made[own] and own not in made[own] and shared[made[own]] > 1):
                raise Mistakes(unplanned(self.grad.wrt, name, "is made of the same matmul as another"))
            op = in_own_dtypes(gradient, restricted(found, (result,), f"_{own}"))
            try:
                steps.append(informed(gradient, single_step_of(op, self.families)))
            except Mistakes as refused:
                why = refused.mistakes[0].message.partition(" ")[2]
                raise Mistakes(unplanned(self.grad.wrt, name, why)) from None
        return steps, {name: V[result.output.name] for name, result in results.items()}

    def decided(self, op: Op, outgoing: Mapping[str, Node]) -> Op:
        """The operator, with each matmul under the choices of the forward's matmuls that it is a gradient of."""
        choices = Choices(self.op)

        def where_needed(node: Node) -> Node:
            if not isinstance(node, Reduce):
                return rebuild(node, tuple(map(where_needed, children(node))))
            read = tensors_of(op, node)
            names = [name for name, one in outgoing.items() if any(tensor.name in read for tensor in _tensors(one))]
            return chosen(node, choices.of(*names)) if names else node

        return replace(op.with_nodes(where_needed), params=self.op.params)

    def products_alone(self, gradient: Gradient, outgoing: Mapping[str, Node]) -> Op:
        """The products alone, with the gradients by them among the inputs."""
        inputs = dict[str, Input]()
        results = []
        seeds = {seed: name for name, seed in gradient.seeds}
        for name, node in outgoing.items():
            total = self.op.value(name)
            for load in _tensors(node):
                own = self.type_of(self.dtype_of(name), self.sums[name].type.axes)
                seed, _ = self.converted.get(load.name, (load.name, None))
                if seed in seeds:
                    result = next(r for r in self.op.results if r.output.name == seeds[seed])
                    own = replace(own, shape=self.op.grouping(result))
                inputs.setdefault(load.name, Input(load.name, own, vanishes=name in self.zeros))
            results.append(Result(Output(name), total.ref, total.node.axes, total.node.dtype))
        values = tuple(needed(self.op.values, outgoing))
        return replace(self.op, inputs=(*inputs.values(), *self.op.inputs), values=values, results=tuple(results))

    # The forward

    def forward(self, gradient: Gradient, steps: tuple[Step, ...], paths: Mapping[str, tuple[Path, ...]]) -> Step:
        """The forward with the values that the pass reads among its results."""
        op = self.op
        saved = {own: (name, COMPUTE) for own, name in gradient.saved}
        saved |= {tensor.name: (name, self.saved_dtype(name)) for name, tensor in self.sums.items()}
        axes = {tensor.name: tensor.type.axes for step in reversed(steps) for tensor in step.op.inputs}
        for own, (name, dtype) in saved.items():
            if own in axes:
                op = with_saved(op, own, name, axes[own], dtype, paths.get(own, ALWAYS))
        return step_of(op, (), self.families)


def _products(op: Op, name: str) -> tuple[str, ...]:
    """The matmuls that a value depends on."""
    return tuple(value.name for value in needed(op.values, [name]) if is_product(op, value.node))


def _tensors(node: Node) -> list[Load]:
    """The tensors that a gradient by a matmul reads, without scalars."""
    return [inner for inner in walk(node) if isinstance(inner, Load) and inner.axes]


def chosen(node: Node, path: Path) -> Node:
    """The node where a path of choices is taken, and 0 elsewhere."""
    zero = Constant(0.0, Dtype("float"))
    for test, holds in reversed(path):
        then, other = (node, zero) if holds else (zero, node)
        node = Choose(test, then, other, node.axes, node.dtype)
    return node
