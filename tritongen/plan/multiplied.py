"""The operands of a contraction, and its matmuls as inputs of the gradient's kernels."""

from __future__ import annotations

from dataclasses import replace

from ..lang.ir import COMPUTE, Dtype, Load, Op, Reduce, walk
from ..lang.names import fresh
from ..lang.promotion import promote
from ..lowering.tile import needed
from ..passes.contractions import Contraction, Product
from ..passes.structure import references
from ..spec.types import BATCH, COMPUTED, FLOATS, Grad, Input, TensorType, plain_shape


class Multiplied:
    """The matmuls of an operator whose gradient is planned, and the inputs that each multiplies."""

    def __init__(self, op: Op, contraction: Contraction, grad: Grad) -> None:
        self.op, self.grad = op, grad
        self.products = {name: [p for p in contraction.products if p.sum == name] for name in contraction.sums}
        self.reduced = {product.name for product in contraction.products}
        self.is_grouped = bool(contraction.col_groups)
        made = (*contraction.batch, *contraction.rows, *contraction.cols)
        self.order = sorted(made, key=lambda axis: axis != BATCH)  # of a tile's results
        self.taken = self.op.names
        self.inside = {name: self.inputs_of(products) for name, products in self.products.items()}
        self.active = [name for name, inputs in self.inside.items() if set(inputs) & set(grad.wrt)]
        self.sums = {name: self.sum_of(name) for name in self.products}

    def fresh(self, name: str) -> str:
        return fresh(name, self.taken)

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

    def sum_of(self, product: str) -> Input:
        """A sum of products as an input: under its own name, unless that is a result's."""
        node = self.op.value(product).node
        results = [result for result in self.op.results if set(result.axes) == set(node.axes)]
        axes = results[0].axes if results else tuple(axis for axis in self.order if axis in node.axes)
        is_result = any(result.output.name == product for result in self.op.results)
        name = self.fresh(f"{product}_sum") if is_result else product
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
