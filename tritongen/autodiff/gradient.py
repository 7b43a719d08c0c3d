"""Op -> its gradient, an Op like any other: reverse mode, and the choice of values that the forward saves."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache

from ..lang.ir import Constant, Dtype, Load, Node, Op, Ref, Result, Scalar, Take, Value, walk
from ..lang.names import shown
from ..lang.rewrite import as_loads, replaced
from ..lang.unparse import spelled
from ..passes.structure import name_reductions, references
from ..spec.types import BATCH, FLOATS, Grad, Input, Output, TensorType, plain_shape
from .compared import rounded
from .conditions import with_conditions, with_names
from .read_once import read_once
from .reverse import Reverse
from .save_policy import SavePolicy
from .sharing import named_subexpressions


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of an operator by some of its inputs.

    `op` has as inputs the gradients of the results and the tensors of the forward that it reads, and a result for each
    of `wrt`, in order. `saved` are values that the forward saves for it, under the names of its inputs; `outputs` are
    results of the forward that it reads. `same_dtypes` pairs inputs of the forward with tensors of this gradient that
    have the same dtype. Inputs of the forward that steps have computed (`made`) determine no lengths, because no caller
    passes them.
    """

    forward: Op
    op: Op
    wrt: tuple[str, ...]
    seeds: tuple[tuple[str, str], ...]  # results of the forward, each with the name of its gradient
    saved: tuple[tuple[str, str], ...]  # names of inputs, each with the saved value of the forward
    outputs: tuple[str, ...]
    same_dtypes: tuple[tuple[str, str], ...] = ()
    made: frozenset[str] = frozenset()

    @property
    def is_gradient(self) -> bool:
        return True

    @property
    def by(self) -> dict[str, Result]:
        """The results by the names of the inputs that are differentiated by."""
        return dict(zip(self.wrt, self.op.results, strict=True))

    def of(self, results: Mapping[str, Result]) -> Gradient:
        """The gradient with other results."""
        return replace(self, wrt=tuple(results), op=replace(self.op, results=tuple(results.values())))

    @property
    def short(self) -> frozenset[str]:
        """The inputs of the forward whose leading axes may broadcast: they may be fewer, or have length 1."""
        leading = frozenset(tensor.name for tensor in self.forward.inputs if BATCH in tensor.type.axes)
        return leading if len(leading) > 1 else frozenset()


def derive(
    op: Op, grad: Grad, given: Mapping[str, Node] | None = None, saves: bool = True, stored: tuple[str, ...] = ()
) -> Gradient:
    """The gradient. Raises `Mistakes` where there is none.

    `given` are the gradients of the results, computed from inputs of the operator; else they are inputs of the
    gradient. Unless `saves`, all values of the forward that the gradient reads are recomputed; `stored` are values to
    save in addition to those that always are.
    """
    return _assembled(*_found(op, grad, given), saves, stored)


def conditions_named(op: Op, grad: Grad, but: Container[str] = ()) -> tuple[Op, tuple[str, ...]]:
    """The operator with the conditions of its gradient as values, and their names, except those in `but`."""
    reverse, found = _found(op, grad)
    return with_conditions(reverse.op, found.values(), reverse.fresh, but)


def changes_smoothly(op: Op, name: str) -> bool:
    """Whether any result is differentiable by an input: not if only conditions read it."""
    op = name_reductions(op)
    reverse = Reverse(op, Grad((name,)), None)
    return any(reverse.is_active(result.node) for result in op.results)


def derive_ahead(op: Op, grad: Grad, result: str) -> Op:
    """The operator with its gradients as further results, computed for a gradient of `result` that is 1.

    Raises `Mistakes` where there is none.
    """
    return _joined(*_found(op, grad, {result: Constant(1.0, Dtype("float"))}))


def _found(op: Op, grad: Grad, given: Mapping[str, Node] | None = None) -> tuple[Reverse, dict[str, Node]]:
    """The gradients by reverse mode, cached for all save policies; the copy's reserved names are the caller's own."""
    reverse, found = _found_once(op, grad, tuple((given or {}).items()))
    reverse = copy(reverse)
    reverse.taken = {*reverse.taken}
    return reverse, found


@lru_cache(maxsize=1)
def _found_once(op: Op, grad: Grad, given: tuple[tuple[str, Node], ...]) -> tuple[Reverse, dict[str, Node]]:
    """Reverse mode over the operator with operands of extrema `rounded`, so that all kernels agree on them."""
    reverse = Reverse(name_reductions(op), grad, dict(given))
    rounded_op = rounded(reverse.op, reverse.extrema())
    reverse = reverse if rounded_op == reverse.op else Reverse(rounded_op, grad, dict(given))
    return reverse, reverse.found()


def _assembled(reverse: Reverse, found: dict[str, Node], saves: bool, stored: tuple[str, ...]) -> Gradient:
    """The gradient as an operator of its own: `found` has the gradients by name of the input."""
    names = {name: reverse.fresh(f"d{name}") for name in reverse.grad.wrt}
    conditions = {reverse.values[name].node: name for name in stored if reverse.values[name].node.dtype.kind == "bool"}
    found = {name: with_names(node, conditions) for name, node in found.items()}
    choice = SavePolicy(reverse.op, reverse.grad.save, stored)
    to_save, outputs = choice.of(found.values()) if saves else ([], set[str]())
    stand_ins = {name: _saved_name(reverse, name) for name in to_save}
    derived = named_subexpressions(_by_name(found, names), reverse.hints, reverse.fresh)
    derived = read_once(derived, reverse.op, reverse.algebra)
    roots = itertools.chain.from_iterable(references(node) for _, node in derived)
    recomputed = choice.closure(roots, {*to_save, *outputs})
    read_as = {name: name for name in outputs} | stand_ins
    own = [value for value in reverse.op.values if value.name in recomputed]
    turned = tuple(value.of(as_loads(value.node, read_as, of_their_own=True)) for value in own)
    nodes = [(name, as_loads(node, read_as, of_their_own=True)) for name, node in derived]
    turned += tuple(Value(name, node, spelled(node)) for name, node in nodes)
    op = _operator(reverse, turned, names, _inputs(reverse, stand_ins, outputs))
    saved = tuple((own, name) for name, own in stand_ins.items())
    return Gradient(
        reverse.op, op, reverse.grad.wrt, tuple(reverse.seeds.items()), saved, tuple(sorted(outputs, key=shown))
    )


def _operator(reverse: Reverse, values: tuple[Value, ...], names: dict[str, str], inputs: Iterable[Input]) -> Op:
    """The operator that computes the values of a gradient; `names` has the name of the result for each input."""
    read = {name for value in values for name in value.node.reads}
    final = {value.name: value.node for value in values}
    return Op(
        name=f"{reverse.op.name}_backward",
        summary="",
        inputs=tuple(tensor for tensor in inputs if tensor.name in read),
        params=tuple(p for p in reverse.op.params if any(_mentions(value.node, p.name) for value in values)),
        values=values,
        results=tuple(_result(reverse, name, own, final[own]) for name, own in names.items()),
        axes=reverse.op.axes,
        sizes=reverse.op.sizes,
        precision=reverse.op.precision,
        deterministic=reverse.op.deterministic,
        fuse=reverse.op.fuse,
        typical=reverse.op.typical,
        formulas=reverse.op.formulas,
    )


def _joined(reverse: Reverse, found: dict[str, Node]) -> Op:
    """The operator with the gradients in `found` as further results."""
    names = {name: reverse.fresh(f"d{name}") for name in reverse.grad.wrt}
    derived = named_subexpressions(_by_name(found, names), reverse.hints, reverse.fresh)
    values = (*reverse.op.values, *(Value(name, node, spelled(node)) for name, node in derived))
    results = (_result(reverse, name, own, dict(derived)[own]) for name, own in names.items())
    return replace(reverse.op, values=values, results=(*reverse.op.results, *results))


def _by_name(found: Mapping[str, Node], names: Mapping[str, str]) -> dict[str, Node]:
    """The gradients by their names; loads of gradients that others read become references to values."""
    shared = {name: node for name, node in found.items() if name not in names}

    def read(node: Node) -> Node:
        if not isinstance(node, Load) or node.name not in shared:
            return node
        full = Ref(node.name, shared[node.name].axes, node.dtype)
        at = tuple((axis, replaced(index, read)) for axis, index in node.at)
        return Take(full, at, node.axes, node.dtype) if at else full

    return {names.get(name, name): replaced(node, read) for name, node in found.items()}


def _result(reverse: Reverse, name: str, own: str, node: Node) -> Result:
    """The gradient by the input `name` as a result named `own`."""
    tensor = reverse.op.input(name)
    output, ref = Output(own, name, tensor.type.shape), Ref(own, node.axes, node.dtype)
    return Result(output, ref, tensor.type.axes, Dtype("float", (name,)), vanishes=name in reverse.zeros)


def _saved_name(reverse: Reverse, name: str) -> str:
    """The name of a saved value; an output is saved unrounded, so as another tensor, `NAME_exact`."""
    return reverse.fresh(f"{name}_exact") if any(r.output.name == name for r in reverse.op.results) else name


def _inputs(reverse: Reverse, saved: dict[str, str], outputs: set[str]) -> list[Input]:
    """All inputs that a gradient may read: gradients of results, inputs, outputs, and saved values."""
    found = []
    for result in reverse.op.results:
        if result.output.name in reverse.seeds:
            found.append(Input(reverse.seeds[result.output.name], TensorType(FLOATS, reverse.op.grouping(result))))
    found += list(reverse.op.inputs)
    found += [
        Input(r.output.name, TensorType(FLOATS, reverse.op.grouping(r)))
        for r in reverse.op.results
        if r.output.name in outputs
    ]
    for name, own in saved.items():
        node = reverse.values[name].node
        found.append(Input(own, TensorType(node.dtype.intermediates, plain_shape(node.axes))))
    return found


def _mentions(node: Node, param: str) -> bool:
    return any(isinstance(inner, Scalar) and inner.name == param for inner in walk(node))
