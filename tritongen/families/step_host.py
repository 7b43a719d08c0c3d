"""The host functions of steps, which get the shapes and dtypes that they need of the operator as arguments."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace

from ..emit.host import Dtypes, Host
from ..emit.host_checks import assigned, lengths_in
from ..emit.statements import Length, Statement, call
from ..lang.formulas import lengths_in_order
from ..lang.ir import Formula, Op, Reduce, Result, Value, walk
from ..nest.values import Expr, V, product
from ..passes.empty_sums import is_seen
from ..passes.exponentials import VALUELESS, is_hidden
from ..planner.steps import Origin, at_full_length, computed_in, stand_ins
from ..spec.types import BATCH, AxisTerm, Input, plain_shape


@dataclass(frozen=True)
class StepHost(Host):
    """Writes the function of a step, without checks, since the forward has checked its arguments."""

    origin: Origin = field(kw_only=True)
    fills: bool = False  # whether each result is a tensor, even if it is not requested

    @property
    def operator(self) -> str:
        return self.forward.name

    def regrouped(self, result: Result) -> Expr:
        value = super().regrouped(result)
        return call("library.filled", value, self.first.name) if self.fills and result.when else value

    def shape_inputs(self) -> tuple[Input, ...]:
        mine = {tensor.name for tensor in self.op.inputs}
        return tuple(
            tensor
            for tensor in self.forward.inputs
            if tensor.name not in mine and {f"{tensor.name}_shape", f"{tensor.name}_dtype"} & set(self.extra)
        )

    def same_dtypes(self) -> tuple[tuple[str, str], ...]:
        return tuple(stand_ins(self.origin, self.op))

    def checks(self) -> list[Statement]:
        return []

    def empty_errors(self) -> list[Statement]:
        """None in a gradient: the forward has rejected empty reductions without a value, unless results are empty."""
        return [] if self.origin.is_gradient else super().empty_errors()

    def is_seen_over_nothing(self, value: Value) -> bool:
        """As in the base class, but for the enclosing operator, since its results may be empty, and hide what the step
        stores, even if the step's results are not empty.
        """
        full = replace(self.forward, results=tuple(r for r in self.forward.results if not r.saved))
        over = frozenset(axis for node in walk(value.node) if isinstance(node, Reduce) for axis in node.over)
        every = [one for one in full.values if isinstance(one.node, Reduce) and one.node.kind in VALUELESS]
        # A partial maximum has a separate name.
        own = [one for one in every if one.name == value.name] or [
            one for one in every if isinstance(one.node, Reduce) and over <= {*one.node.over}
        ]
        if not own:
            return super().is_seen_over_nothing(value)

        def is_shown(one: Value) -> bool:
            assert isinstance(one.node, Reduce)
            every = frozenset(one.node.over)
            covered = over if over <= every else every  # An axis of strips stands for all of them.
            return not is_hidden(full, one) and is_seen(full, one.name, covered, covered)

        return any(map(is_shown, own))

    def shapes(self) -> list[Statement]:
        """The lengths of the axes, each from the first tensor that has it, and the tensors at full length."""
        formulas = computed_in(self.origin, self.op)
        found, known = self.fixed(formulas)
        mine = [
            tensor
            for tensor in self.op.inputs
            if tensor.name not in self.op.by_row or self.is_full_length_alone(tensor)
        ]
        given = self.given_shapes()
        for tensor in lengths_in_order((*mine, *given), formulas, dict(self.op.sizes)):
            if isinstance(tensor, Formula):
                found.append(assigned(tensor))
                known.add(tensor.axis)
                continue
            if tensor in given:
                found += self.lengths_of(V[tensor.name], tensor.type.shape, known)
                continue
            block: list[Statement] = []
            for position, term in enumerate(tensor.type.shape):
                if len(term.names) > 1:
                    block += self.unflatten(tensor, position - len(tensor.type.shape), term, known)[-1:]
            if tensor.default is None:
                # The leading axes are those of a tensor, or a shape, that has them at full length.
                elsewhere = {BATCH} - known if self.may_be_short(tensor) else set()
                known |= elsewhere
                block += self.lengths_of(V[tensor.name].shape, plain_shape(tensor.type.axes), known)
                known -= elsewhere
            found += self.guarded(tensor, block)
        return [*found, *self.expansions()]

    def is_full_length_alone(self, tensor: Input) -> bool:
        """Whether only per-row values have the leading axes at full length, and this tensor is the first of them."""
        rest = tuple(one for one in self.op.inputs if one.name not in self.op.by_row)
        others = at_full_length(self.origin, replace(self.op, inputs=rest)) or self.given_shapes()
        return not others and tensor == at_full_length(self.origin, self.op)

    @property
    def forward(self) -> Op:
        return self.origin.forward

    def lengths_of(self, shape: Expr, terms: tuple[AxisTerm, ...], known: set[str]) -> list[Length]:
        """Unpacks the lengths in `shape` that are not in `known` yet, and adds them to it."""
        axes = tuple(axis for term in terms for axis in term.names)
        if set(axes) <= known:
            return []
        if any(len(term.names) > 1 for term in terms):
            return self.lengths_of_groups(shape, terms, known)
        found = Length("batch", shape) if axes == (BATCH,) else lengths_in(shape, axes, known)
        known |= set(axes)
        return [found]

    def lengths_of_groups(self, shape: Expr, terms: tuple[AxisTerm, ...], known: set[str]) -> list[Length]:
        """Assigns each length that is not in `known` yet, from a shape whose dimensions may be groups of axes."""
        found = []
        for position, term in enumerate(terms, -len(terms)):
            if term.names == (BATCH,):
                source, new = shape[: position + 1], ["batch"] if BATCH not in known else []
            else:
                lengths, source = self.split_lengths(term, known), shape[position]
                source = source // product(*lengths.values()) if lengths else source
                new = [name for name in term.names if name not in lengths and name not in known]
            found += [Length(name, source) for name in new]
            known |= set(term.names)
        return found

    def given_shapes(self) -> list[Input]:
        """The shapes that the step gets, each in place of an input of the forward."""
        names = [name for name in self.extra if name.endswith("_shape")]
        return [replace(self.forward.input(name.removesuffix("_shape")), name=name) for name in names]

    def expansions(self) -> list[Statement]:
        """Expands inputs of the forward along leading axes, if the forward may have done so."""
        full = at_full_length(self.origin, self.op)
        source = next((tensor for tensor in self.given_shapes() if BATCH in tensor.type.axes), None)
        if full is None and source is None:
            return self.batches() if any(map(self.may_be_short, self.op.inputs)) else []
        found: list[Statement] = []
        for tensor in filter(self.may_be_short, self.batch_inputs()):
            own = self.batch_shape(tensor)
            if full is not None and full.type.axes == tensor.type.axes:
                own, every = V[tensor.name].shape, V[full.name].shape
            elif full is not None:
                every = self.batch_shape(full)
            else:
                assert source is not None
                named = len(source.type.shape) - 1
                every = V[source.name][:-named] if named else V[source.name]
            found += self.guarded(tensor, [self.expanded(tensor, own, every)])
        return found

    def may_be_short(self, tensor: Input) -> bool:
        """Whether an input of the forward may lack leading axes that others have."""
        return tensor.name in self.origin.short

    @property
    def is_gradient(self) -> bool:
        return self.origin.is_gradient

    def is_asked(self, result: Result) -> bool:
        """Whether a result is the gradient of an input, computed only if requested, and not saved by the forward."""
        return bool(result.when) and self.is_gradient

    def dtype_of(self, result: Result) -> Expr:
        """The dtype of a result. A gradient of an optional input is only computed if that is passed."""
        return self.dtype(result.dtype, self.is_asked(result) and len(result.dtype.of) == 1)

    @property
    def known_inputs(self) -> tuple[Input, ...]:
        return (*self.forward.inputs, *self.op.inputs)

    @property
    def dtypes(self) -> Dtypes:
        renames = dict(stand_ins(self.origin, self.op))
        known = {name.removesuffix("_dtype"): V[name] for name in self.extra if name.endswith("_dtype")}
        known |= {leaf: V[name].dtype for leaf, name in renames.items()} | dict(super().dtypes.known)
        optional = (t.name for t in self.forward.inputs if t.default is not None and t.name not in renames)
        return Dtypes(known, frozenset(optional))

    def condition(self, result: Result) -> Expr:
        """The condition for computing a result: its gradient is requested, and its optional input is passed."""
        given = [t for t in self.op.inputs if t.name not in self.op.chosen] if self.is_asked(result) else []
        optional = (V[t.name].is_given for t in given if t.default is not None and result.dtype.of == (t.name,))
        return functools.reduce(Expr.and_, optional, super().condition(result))

    def like(self, result: Result) -> Input | None:
        """The input that a result is allocated like: the gradient's own, or one of its shape; None if per-row."""
        if result.output.name in self.op.by_row:
            return None
        own = [t for t in self.op.inputs if t.name in result.dtype.of and t.type.axes == result.axes]
        own = [t for t in own if t.default is None or self.is_asked(result)]
        plain = [t for t in own if t.type.is_plain]
        others = [t for t in self.op.inputs if t.name not in self.op.by_row]
        return plain[0] if plain else Host.like(replace(self, op=replace(self.op, inputs=tuple(others))), result)
