"""The statements of a wrapper that check arguments and unpack the lengths of axes."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import groupby

from ..diagnostics.report import listed
from ..lang.formulas import by_params, inputs_in_order, may_be_negative, python
from ..lang.ir import Formula, Op, Reduce, Value, walk
from ..lang.literals import word
from ..lang.names import shown
from ..lowering.axes import lengths
from ..lowering.choices import Choices
from ..lowering.lower import Compute
from ..lowering.space import Space
from ..nest.conditions import condition_tree
from ..nest.values import Expr, Term, V, expr, product, quoted, tensors, torch
from ..passes.exponentials import VALUELESS, is_hidden
from ..spec.types import BATCH, DTYPE_CLASSES, AxisTerm, Input, Param
from .statements import CheckShape, Do, If, Length, Let, Statement, refused

# The tuples of the runtime's tensors.py.
CLASS_NAMES = {dtypes: f"tensors.{name.upper()}S" for name, dtypes in DTYPE_CLASSES.items() if name != "any"}
CLASS_NAMES[DTYPE_CLASSES["any"]] = "tensors.ANY"


IS_FAKE = "is_fake"  # the argument of a registered function that asks for results without their values
EMPTY = V.n_cols.equals(0)


def constants(op: Op) -> dict[str, Expr]:
    """The constants of a module: dtypes of inputs for which the runtime has no tuple."""
    found = [(dtype_constant(one), one.type.dtypes) for one in op.inputs if one.type.dtypes not in CLASS_NAMES]
    ordered = sorted(found, key=lambda one: shown(one[0]))
    return {name: expr(tuple(map(V.torch.field, dtypes))) for name, dtypes in ordered}


def dtype_constant(tensor: Input) -> str:
    return CLASS_NAMES.get(tensor.type.dtypes, f"_{tensor.name.upper()}_DTYPES")


def assigned(formula: Formula) -> Length:
    return Length(formula.axis, Expr(python(formula.node)))


def _named(tensor: Input) -> list[str]:
    return [axis for axis in tensor.type.axes if axis != BATCH]


def shape_text(shape: tuple[AxisTerm, ...]) -> str:
    def term(t: AxisTerm) -> str:
        names = [f"{n}={s}" if s is not None else n for n, s in zip(t.names, t.sizes, strict=True)]
        return names[0] if len(names) == 1 else f"({' '.join(names)})"

    return f"[{', '.join(term(t) for t in shape)}]"


def lengths_in(shape: Expr, axes: Sequence[str], known: Set[str]) -> Length:
    """Unpacks the lengths of a shape that are not `known` yet."""
    targets = tuple("_" if axis in known else axis for axis in axes if axis != BATCH)
    if BATCH in axes and BATCH not in known:
        return Length((V.batch.each, *targets), shape)
    return Length(targets, shape[-len(targets) :] if BATCH in axes else shape)


@dataclass(frozen=True)
class Checks:
    """The checks and shapes of one operator over one space."""

    op: Op
    space: Space
    compute: Compute
    function: str  # the name of the function with these statements
    extra: tuple[str, ...] = ()  # its further arguments

    @property
    def operator(self) -> str:
        """The operator's name in messages, as users know it."""
        return self.op.name

    @property
    def is_registered(self) -> bool:
        """Whether torch's dispatcher calls the function, so that arguments have the correct types."""
        return IS_FAKE in self.extra

    def checks(self) -> list[Statement]:
        found: list[Statement] = []
        first = self.first
        for tensor in self.op.inputs:
            shape = quoted(shape_text(tensor.type.shape))
            block = [self.refusal("check", tensor.name, tensor.name, dtype_constant(tensor), shape)]
            if "float8_e4m3fn" in tensor.type.dtypes:
                block.append(self.float8_check(tensor.name, V[tensor.name].dtype))
            if tensor is not first:
                is_same_type = bool(tensor.type.variable) and tensor.type.variable == first.type.variable
                check = "check_alike" if is_same_type else "check_device"
                block.append(self.refusal(check, tensor.name, tensor.name, quoted(first.name), first.name))
            found += self.guarded(tensor, block)
        shapes = ((tensor, self.shape_of_other(tensor)) for tensor in self.ordered())
        found += [self.shape_check(tensor, shape) for tensor, shape in shapes if shape is not None]
        for result in self.op.results:
            if result.dtype.of == ("float8_e4m3fn",):
                found.append(self.float8_check(result.output.name, V.torch.field("float8_e4m3fn")))
        return [*found, *(one for param in self.op.params for one in self.param_checks(param))]

    def refusal(self, function: str, name: str, *passed: Term) -> Do:
        """The call that refuses an incorrect argument."""
        return Do(tensors[function](quoted(f"{self.op.name}: {name}"), *passed))

    def float8_check(self, name: str, dtype: Expr) -> Do:
        return self.refusal("check_float8", name, dtype, V[self.first.name].field("device"))

    def guarded(self, tensor: Input, block: Sequence[Statement]) -> list[Statement]:
        if tensor.default is None or not block:
            return [*block]
        given = V[tensor.name].is_given
        match block:
            case [If(test, body)]:
                return [If(given.and_(test), body)]
        return [If(given, tuple(block))]

    def param_checks(self, param: Param) -> list[Statement]:
        name, where, value = param.name, self.op.name, V[param.name]
        is_word = param.kind == "enum"
        found: list[Statement] = [] if is_word or self.is_registered else [kind_check(self.op, param)]
        if is_word:
            must = f"{where}: {name} must be one of {listed(map(word, param.choices))}, not "
            as_repr = Expr(ast.FormattedValue(value.tree, ord("r")))
            found.append(refused(value.is_not_in(tuple(map(quoted, param.choices))), must, as_repr))
        for bound, inside, outside, words in (
            (param.minimum, Expr.__ge__, Expr.__lt__, "at least"),
            (param.maximum, Expr.__le__, Expr.__gt__, "at most"),
        ):
            if bound is not None:  # NaN is outside of every range.
                is_outside = inside(value, bound).negated if param.kind == "float" else outside(value, bound)
                found.append(refused(is_outside, f"{where}: {name} must be {words} {bound!r}, not ", value))
        return found

    @property
    def first(self) -> Input:
        """The first tensor that is always there."""
        return next(tensor for tensor in self.op.inputs if tensor.default is None)

    def ordered(self) -> list[Input]:
        """The inputs, those that define the axes first."""
        return inputs_in_order(self.op)

    def shapes(self) -> list[Statement]:
        """Unpacks the shapes: afterwards every axis is a variable, and no dimension has a group of axes."""
        required = {axis for tensor in self.op.inputs if tensor.default is None for axis in tensor.type.axes}
        found, known = self.fixed(self.early())
        checks: list[Statement] = []
        for formula in self.early():
            found += self.computed(formula)
            known.add(formula.axis)
        unpacked: list[Input] = []
        for tensor in self.ordered():
            named = _named(tensor)
            is_unpacked = tensor.default is None and not known.issuperset(named)
            places = enumerate(tensor.type.shape, -len(tensor.type.shape))
            groups = ((place, term) for place, term in places if len(term.names) > 1)
            block = [one for place, term in groups for one in self.unflatten(tensor, place, term, known)]
            checks += self.length_checks(tensor, known, is_unpacked)
            if is_unpacked:
                is_batch = self.batch_inputs() == [tensor]
                shape = V[tensor.name].shape
                block.append(lengths_in(shape, tensor.type.axes, known if is_batch else known | {BATCH}))
                unpacked.append(tensor)
                known |= set(named)
            found += self.guarded(tensor, block)
        late = [one for one in self.op.formulas if one not in self.early() and one.axis in self.op.computed]
        lengths = [length for one in late for length in self.computed(one, one.axis in required)]
        return [*found, *lengths, *checks, *self.batches(unpacked)]

    def length_checks(self, tensor: Input, known: set[str], is_unpacked: bool) -> list[Do]:
        """The check of lengths that are known before a tensor is unpacked, or all are."""
        named, sizes = _named(tensor), dict(self.op.sizes)
        alone = {term.names[0] for term in tensor.type.shape if len(term.names) == 1}
        if is_unpacked:
            wanted = tuple(axis if axis in known else sizes.get(axis, axis) for axis in named)
            return [self.shape_check(tensor, wanted)] * (not alone.isdisjoint({*known, *sizes} & {*named}))
        # Groups of known axes have been checked as they were split.
        is_checked = self.shape_of_other(tensor) or all(axis in known and axis not in alone for axis in named)
        return [] if is_checked else [self.shape_check(tensor, tuple(named))]

    def fixed(self, formulas: Iterable[Formula]) -> tuple[list[Statement], set[str]]:
        """The fixed lengths that no shape determines before formulas read them; and the axes of inputs among them."""
        own = {axis for tensor in self.op.inputs if tensor.default is None for axis in tensor.type.axes}
        read = {axis for formula in formulas for axis in formula.reads & own}
        found: list[Statement] = [Length(axis, size) for axis, size in self.op.sizes if axis not in own - read]
        return found, read & dict(self.op.sizes).keys()

    def early(self) -> tuple[Formula, ...]:
        """The formulas by which groups of axes are unflattened."""
        return by_params(self.op.formulas, self.op.inputs, dict(self.op.sizes))

    def computed(self, formula: Formula, is_known: bool = False) -> list[Statement]:
        """The length of an axis by its formula, with a refusal of negative ones; if a shape has determined it, the
        refusal of another length.
        """
        axis, own, source = V[formula.axis], Expr(python(formula.node)), formula.source
        length = f"{self.op.name}: the length of {formula.axis}"
        if is_known:
            return [refused(axis.differs(own), f"{length} must be {source} = ", own, ", not ", axis)]
        negative = refused(axis < 0, f"{length}, {source}, cannot be ", axis)
        return [assigned(formula), *([negative] if may_be_negative(self.op, formula) else [])]

    def shape_check(self, tensor: Input, sizes: Term) -> CheckShape:
        """The refusal of a tensor whose shape has other `sizes`."""
        shape = quoted(shape_text(tensor.type.shape))
        return CheckShape(self.refusal("check_shape", tensor.name, tensor.name, shape, sizes).value)

    def shape_of_other(self, tensor: Input) -> Expr | None:
        """The shape of an earlier input, or its end, that a tensor must match. None if no earlier input ends in its
        axes, or if one of these had been determined before that input, whose shape may then be the incorrect one.
        """
        named = _named(tensor)
        known = {axis for axis, _ in self.op.sizes}
        for other in self.ordered():
            if other is tensor or not named:
                break
            own = _named(other)
            plain = tensor.type.is_plain and other.type.is_plain
            if plain and other.default is None and own[-len(named) :] == named and not known & {*named}:
                shape = V[other.name].shape
                return shape if own == named and BATCH not in other.type.axes else shape[-len(named) :]
            known |= {*own}
        return None

    def unflatten(self, tensor: Input, position: int, term: AxisTerm, known: set[str]) -> list[Statement]:
        """Splits a dimension into the axes of its group; an axis of unknown length gets the rest."""
        length, expected = V[tensor.name].shape[position], self.split_lengths(term, known)
        is_split = len(expected) < len(term.names)
        fixed = [size for size in expected.values() if isinstance(size, int)]
        others = product(*(expected[name] for name in term.names if name in expected))
        wrong: Expr = others.equals(0).or_(length % others)  # Lengths of other inputs may be 0.
        must: str | Expr = others
        if len(fixed) == len(expected):
            others = expr(math.prod(fixed))
            wrong, must = length % others, others.text
        what = f"{self.op.name}: the length of {shape_text((term,))[1:-1]} in {tensor.name} must be "
        what, wrong = (f"{what}a multiple of ", wrong) if is_split else (what, length.differs(others))
        split = tuple(expected.get(name) or length // others for name in term.names)
        return [
            refused(wrong, what, must, ", not ", length),
            Let(tensor.name, torch.unflatten(tensor.name, position, split)),
        ]

    def split_lengths(self, term: AxisTerm, known: set[str]) -> dict[str, int | Expr]:
        """The lengths by which a group is split, without the first unknown one: fixed ones, and those of other axes."""
        fixed = dict(self.op.sizes)
        others = [name for name in term.names if name not in fixed]
        rest = [name for name in others if name not in known][:1]
        found: dict[str, int | Expr] = {name: fixed[name] for name in term.names if name in fixed}
        return found | {name: V[name] for name in others if name not in rest}

    def batch_inputs(self) -> list[Input]:
        return [tensor for tensor in self.ordered() if BATCH in tensor.type.axes]

    def batches(self, unpacked: Sequence[Input] = ()) -> list[Statement]:
        """The leading axes, if no unpacked shape is the only one with them, and inputs expanded along them."""
        inputs = self.batch_inputs()
        if len(inputs) < 2:
            return [Length("batch", self.batch_shape(one)) for one in inputs if one not in unpacked]
        first = next(t for t in inputs if t.default is None)
        found: list[Statement] = [Length("batch", self.batch_shape(first))]
        for tensor in (one for one in inputs if one is not first):
            own = self.batch_shape(tensor)
            every = tensors.broadcast(quoted(f"{self.op.name}: {tensor.name}"), "batch", own)
            found += self.guarded(tensor, [If(own.differs("batch"), (Let("batch", every),))])
        for tensor in inputs:
            found += self.guarded(tensor, [self.expanded(tensor, self.batch_shape(tensor), V.batch)])
        return found

    def expanded(self, tensor: Input, own: Expr, every: Expr) -> If:
        """Expands a tensor along all leading axes, if its own differ from these."""
        value = V[tensor.name].method("expand", *lengths((BATCH, *_named(tensor))))
        return If(own.differs(every), (Let(tensor.name, value),))

    def batch_shape(self, tensor: Input) -> Expr:
        count, shape = len(_named(tensor)), V[tensor.name].shape
        return shape[:-count] if count else shape

    def empty_errors(self) -> list[Statement]:
        """Refusals of reductions that have no value over no elements.

        Reductions that results depend on must have one; saved values are of no use over no elements.
        """
        choices = Choices(replace(self.op, results=tuple(r for r in self.op.results if not r.saved)))
        found: dict[Expr, str] = {}
        for value in self.op.values:
            for node in walk(value.node) if choices.paths[value.name] else ():
                if isinstance(node, Reduce) and node.kind in VALUELESS and self.is_seen_over_nothing(value):
                    path = choices.of(value.name)
                    condition = EMPTY.and_(condition_tree(path)) if path else EMPTY
                    found.setdefault(condition, f"{self.operator}: {node.kind} has no value over an empty axis")
        return [refused(*one) for one in found.items() if one[0] == EMPTY or EMPTY not in found]

    def is_seen_over_nothing(self, value: Value) -> bool:
        """Whether results have elements that depend on a reduction over no elements."""
        return not is_hidden(self.op, value)


def once(statements: Sequence[Statement]) -> Iterator[Statement]:
    """The statements, with checks of shapes skipped in a call that replays one with the same shapes."""
    for is_check, several in groupby(statements, lambda one: isinstance(one, CheckShape)):
        found = tuple(several)
        yield from (If(V.replay.is_none, found),) if is_check else found


_KINDS = {
    "bool": ("a flag", "bool"),
    "enum": ("a word", "str"),
    "int": ("an integer", "int"),
    "float": ("a number", "int", "float"),
}


def kind_check(op: Op, param: Param) -> Do:
    """The refusal of a param of another type."""
    what, *types = _KINDS[param.kind]
    return Do(tensors.check_param(quoted(f"{op.name}: {param.name}"), param.name, quoted(what), *types))


INTS = frozenset(DTYPE_CLASSES["int"] + DTYPE_CLASSES["bool"])


def returned_types(*optional: bool) -> str:
    """The annotation of some tensors, each of which may be None or not."""
    items = ["torch.Tensor | None" if is_optional else "torch.Tensor" for is_optional in optional]
    return items[0] if len(items) == 1 else f"tuple[{', '.join(items)}]"


def tuple_text(items: list[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
