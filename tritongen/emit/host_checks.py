"""The lines of a wrapper that check arguments and unpack the lengths of axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..lang.formulas import by_params, inputs_in_order, may_be_negative, python
from ..lang.ir import Formula, Op, Reduce, Value, walk
from ..lang.literals import literal, message, word
from ..lang.names import shown
from ..lowering.choices import Choices
from ..lowering.lower import Compute
from ..lowering.space import Space
from ..nest.conditions import condition_operand
from ..passes.exponentials import VALUELESS, is_hidden
from ..spec.types import BATCH, DTYPE_CLASSES, AxisTerm, Input, Param

# The tuples of the runtime's tensors.py.
CLASS_NAMES = {dtypes: f"tensors.{name.upper()}S" for name, dtypes in DTYPE_CLASSES.items() if name != "any"}
CLASS_NAMES[DTYPE_CLASSES["any"]] = "tensors.ANY"


IS_FAKE = "is_fake"  # the argument of a registered function that asks for results without their values
CHECK_SHAPE = "tensors.check_shape"


@dataclass(frozen=True, slots=True)
class Constant:
    """A module constant: a tuple of the dtypes that some input may have, say."""

    name: str
    value: str


def constants(op: Op) -> tuple[Constant, ...]:
    """What the runtime has no tuple for."""
    found = {}
    for tensor in op.inputs:
        dtypes = tensor.type.dtypes
        name = dtype_constant(tensor)
        if dtypes in CLASS_NAMES:
            continue
        found[name] = Constant(name, tuple_text([f"torch.{dtype}" for dtype in dtypes]))
    return tuple(found[name] for name in sorted(found, key=shown))


def dtype_constant(tensor: Input) -> str:
    return CLASS_NAMES.get(tensor.type.dtypes, f"_{tensor.name.upper()}_DTYPES")


def assigned(formula: Formula) -> str:
    """The line that computes a length."""
    return f"{formula.axis} = {python(formula.node)}"


def _named(tensor: Input) -> list[str]:
    return [axis for axis in tensor.type.axes if axis != BATCH]


def shape_text(shape: tuple[AxisTerm, ...]) -> str:
    def term(t: AxisTerm) -> str:
        names = [f"{n}={s}" if s is not None else n for n, s in zip(t.names, t.sizes, strict=True)]
        return names[0] if len(names) == 1 else f"({' '.join(names)})"

    return f"[{', '.join(term(t) for t in shape)}]"


@dataclass(frozen=True)
class Checks:
    """Of one operator over one space."""

    op: Op
    space: Space
    compute: Compute
    function: str  # what the function is called that these lines are of
    extra: tuple[str, ...] = ()  # its further arguments

    @property
    def operator(self) -> str:
        """The name by which a user knows what is computed."""
        return self.op.name

    @property
    def is_registered(self) -> bool:
        """Whether torch's dispatcher calls the function, which so has arguments of the right kinds."""
        return IS_FAKE in self.extra

    def checks(self) -> list[str]:
        lines: list[str] = []
        first = self.first()
        for tensor in self.op.inputs:
            block = [self.check(tensor)]
            if "float8_e4m3fn" in tensor.type.dtypes:
                block.append(self.float8_check(tensor.name, f"{tensor.name}.dtype"))
            if first is not None and tensor is not first:
                alike = bool(tensor.type.variable) and tensor.type.variable == first.type.variable
                check = "check_alike" if alike else "check_device"
                named = f'"{self.op.name}: {tensor.name}", {tensor.name}, "{first.name}", {first.name}'
                block.append(f"tensors.{check}({named})")
            lines += self.guarded(tensor, block)
        shapes = ((tensor, self.shape_of_other(tensor)) for tensor in self.ordered())
        lines += [self.shape_check(tensor, shape) for tensor, shape in shapes if shape]
        for result in self.op.results:
            if result.dtype.of == ("float8_e4m3fn",):
                lines.append(self.float8_check(result.output.name, "torch.float8_e4m3fn"))
        for param in self.op.params:
            lines += self.param_checks(param)
        return lines

    def float8_check(self, name: str, dtype: str) -> str:
        first = self.first()
        return f'tensors.check_float8("{self.op.name}: {name}", {dtype}, {first.name if first else name}.device)'

    def guarded(self, tensor: Input, block: list[str]) -> list[str]:
        if tensor.default is None or not block:
            return block
        given = f"if {tensor.name} is not None"
        if block[0].startswith("if ") and all(line.startswith(" ") for line in block[1:]):
            return [f"{given} and {block[0].removeprefix('if ')}", *block[1:]]
        return [f"{given}:", *(f"    {line}" for line in block)]

    def check(self, tensor: Input) -> str:
        given = f'"{self.op.name}: {tensor.name}", {tensor.name}, {dtype_constant(tensor)}'
        return f'tensors.check({given}, "{shape_text(tensor.type.shape)}")'

    def param_checks(self, param: Param) -> list[str]:
        name, where = param.name, self.op.name
        lines = [] if self.is_registered else kind_check(self.op, param)
        if param.kind == "enum":
            choices = message(word_list(tuple(map(word, param.choices))))
            lines += [
                f"if {name} not in {literal(param.choices)}:",
                f'    raise ValueError(f"{where}: {name} must be one of {choices}, not {{{name}!r}}")',
            ]
        for bound, inside, outside, words in (
            (param.minimum, ">=", "<", "at least"),
            (param.maximum, "<=", ">", "at most"),
        ):
            if bound is not None:  # NaN is outside of every range.
                is_outside = f"not {name} {inside}" if param.kind == "float" else f"{name} {outside}"
                lines += [
                    f"if {is_outside} {literal(bound)}:",
                    f'    raise ValueError(f"{where}: {name} must be {words} {bound!r}, not {{{name}}}")',
                ]
        return lines

    def first(self) -> Input | None:
        return next((tensor for tensor in self.op.inputs if tensor.default is None), None)

    def ordered(self) -> list[Input]:
        """The inputs with those first that define the axes."""
        return inputs_in_order(self.op)

    def shapes(self) -> list[str]:
        """Unpacks the shapes: afterwards every axis is a variable, and no dimension has a group of axes."""
        required = {axis for tensor in self.op.inputs if tensor.default is None for axis in tensor.type.axes}
        lines, known = self.fixed(self.early())
        checks: list[str] = []
        for formula in self.early():
            lines += self.computed(formula)
            known.add(formula.axis)
        unpacked: list[Input] = []
        for tensor in self.ordered():
            named = _named(tensor)
            is_unpacked = tensor.default is None and not known.issuperset(named)
            places = enumerate(tensor.type.shape, -len(tensor.type.shape))
            groups = ((place, term) for place, term in places if len(term.names) > 1)
            block = [line for place, term in groups for line in self.unflatten(tensor, place, term, known)]
            checks += self.length_checks(tensor, known, is_unpacked)
            if is_unpacked:
                block.append(self.unpack(tensor, named, known))
                unpacked.append(tensor)
                known |= set(named)
            lines += self.guarded(tensor, block)
        late = [one for one in self.op.formulas if one not in self.early() and one.axis in self.op.computed]
        lengths = [line for one in late for line in self.computed(one, one.axis in required)]
        return [*lines, *lengths, *checks, *self.batches(unpacked)]

    def length_checks(self, tensor: Input, known: set[str], is_unpacked: bool) -> list[str]:
        """The check of lengths that are known before a tensor is unpacked, or all are."""
        named, sizes = _named(tensor), dict(self.op.sizes)
        alone = {term.names[0] for term in tensor.type.shape if len(term.names) == 1}
        if is_unpacked:
            lengths = [axis if axis in known else str(sizes.get(axis, axis)) for axis in named]
            return [self.shape_check(tensor, tuple_text(lengths))] * (not alone.isdisjoint({*known, *sizes} & {*named}))
        # Groups of known axes have been checked as they were split.
        is_checked = self.shape_of_other(tensor) or all(axis in known and axis not in alone for axis in named)
        return [] if is_checked else [self.shape_check(tensor, tuple_text(named))]

    def fixed(self, formulas: Iterable[Formula]) -> tuple[list[str], set[str]]:
        """The lines of the lengths that are fixed and that no shape determines before formulas read them; and the
        axes that these determine, of those that inputs have.
        """
        own = {axis for tensor in self.op.inputs if tensor.default is None for axis in tensor.type.axes}
        read = {axis for formula in formulas for axis in formula.reads & own}
        lines = [f"{axis} = {size}" for axis, size in self.op.sizes if axis not in own - read]
        return lines, read & dict(self.op.sizes).keys()

    def early(self) -> tuple[Formula, ...]:
        """The formulas by which groups of axes are unflattened."""
        return by_params(self.op.formulas, self.op.inputs, dict(self.op.sizes))

    def computed(self, formula: Formula, is_known: bool = False) -> list[str]:
        """The length of an axis by its formula, and the refusal of a negative one; where a shape determines it, that of
        another length.
        """
        axis, text, source = formula.axis, python(formula.node), message(formula.source)
        if is_known:
            return [
                f"if {axis} != {text}:",
                f'    raise ValueError(f"{self.op.name}: the length of {axis} must be {source} = {{{text}}}, '
                f'not {{{axis}}}")',
            ]
        lines = [assigned(formula)]
        if may_be_negative(self.op, formula):
            lines += [
                f"if {axis} < 0:",
                f'    raise ValueError(f"{self.op.name}: the length of {axis}, {source}, cannot be {{{axis}}}")',
            ]
        return lines

    def shape_check(self, tensor: Input, sizes: str) -> str:
        """The refusal of a tensor whose axes do not have these lengths."""
        named = f'"{self.op.name}: {tensor.name}", {tensor.name}, "{shape_text(tensor.type.shape)}"'
        return f"{CHECK_SHAPE}({named}, {sizes})"

    def shape_of_other(self, tensor: Input) -> str:
        """The shape of an earlier input, or its end, that a tensor must have, too; "" if none ends in its axes, and is
        the first that has them: it may be the wrong one otherwise.
        """
        named = _named(tensor)
        known = {axis for axis, _ in self.op.sizes}
        for other in self.ordered():
            if other is tensor or not named:
                break
            own = _named(other)
            plain = all(len(term.names) == 1 for one in (tensor, other) for term in one.type.shape)
            if plain and other.default is None and own[-len(named) :] == named and not known & {*named}:
                end = "" if own == named and BATCH not in other.type.axes else f"[-{len(named)}:]"
                return f"{other.name}.shape{end}"
            known |= {*own}
        return ""

    def unpack(self, tensor: Input, named: list[str], known: set[str]) -> str:
        targets = ["_" if axis in known else axis for axis in named]
        batch = BATCH in tensor.type.axes
        has_batch = self.batch_inputs() and tensor is self.batch_inputs()[0]
        if batch and has_batch and len(self.batch_inputs()) == 1:
            return f"{', '.join(['*batch', *targets])} = {tensor.name}.shape"
        return f"{targets_text(targets)} = {tensor.name}.shape{f'[{-len(named)}:]' if batch else ''}"

    def unflatten(self, tensor: Input, position: int, term: AxisTerm, known: set[str]) -> list[str]:
        """Splits a dimension into the axes of its group, of which the one of unknown length gets the rest."""
        length = f"{tensor.name}.shape[{position}]"
        expected = self.split_lengths(term, known)
        sizes = [expected.get(name, "") for name in term.names]
        product = " * ".join(filter(None, sizes))
        if product.replace(" * ", "").isdigit():
            product = str(math.prod(map(int, filter(None, sizes))))
            wrong, must = f"{length} % {product}", f"a multiple of {product}"
        else:  # Lengths of other inputs may be 0.
            product = f"({product})" if "*" in product else product
            wrong, must = f"{product} == 0 or {length} % {product}", f"a multiple of {{{product}}}"
        if all(sizes):
            product = product.strip("()")
            wrong, must = f"{length} != {product}", product if product.isdigit() else f"{{{product}}}"
        split = ", ".join(size or f"{length} // {product}" for size in sizes)
        lines = [
            f"if {wrong}:",
            f'    raise ValueError(f"{self.op.name}: the length of {shape_text((term,))[1:-1]} in {tensor.name} '
            f'must be {must}, not {{{length}}}")',
        ]
        return [*lines, f"{tensor.name} = torch.unflatten({tensor.name}, {position}, ({split}))"]

    def split_lengths(self, term: AxisTerm, known: set[str]) -> dict[str, str]:
        """The lengths in a group by which it is split, all but one unless all are known: fixed ones, then others'."""
        fixed = dict(self.op.sizes)
        lengths = {name: str(fixed[name]) for name in term.names if name in fixed}
        others = [name for name in term.names if name not in fixed]
        rest = [name for name in others if name not in known][:1]
        return lengths | {name: name for name in others if name not in rest}

    def batch_inputs(self) -> list[Input]:
        return [tensor for tensor in self.ordered() if BATCH in tensor.type.axes]

    def named_count(self, axes: tuple[str, ...]) -> int:
        return len([axis for axis in axes if axis != BATCH])

    def batches(self, unpacked: Sequence[Input] = ()) -> list[str]:
        """The leading axes, where no shape has been unpacked that alone has them, and inputs expanded along them."""
        inputs = self.batch_inputs()
        if not inputs:
            return []
        if len(inputs) == 1:
            return [] if inputs[0] in unpacked else [f"batch = {self.batch_shape(inputs[0])}"]
        lines = []
        required = [t for t in inputs if t.default is None]
        lines.append(f"batch = {self.batch_shape(required[0])}")
        for tensor in inputs:
            if tensor is required[0]:
                continue
            text = self.batch_shape(tensor)
            block = [
                f"if {text} != batch:",
                f'    batch = tensors.broadcast("{self.op.name}: {tensor.name}", batch, {text})',
            ]
            lines += self.guarded(tensor, block)
        for tensor in inputs:
            named = [axis for axis in tensor.type.axes if axis != BATCH]
            text = self.batch_shape(tensor)
            shape = ", ".join(["*batch", *named])
            block = [f"if {text} != batch:", f"    {tensor.name} = {tensor.name}.expand({shape})"]
            lines += self.guarded(tensor, block)
        return lines

    def batch_shape(self, tensor: Input) -> str:
        count = self.named_count(tensor.type.axes)
        return f"{tensor.name}.shape[:-{count}]" if count else f"{tensor.name}.shape"

    def empty_errors(self) -> list[tuple[str, str]]:
        """Refusals of reductions that have no value over no elements, each with the condition that it stands under.

        What results are made of has to have one; what is saved besides is of no use over no elements.
        """
        choices = Choices(replace(self.op, results=tuple(r for r in self.op.results if not r.saved)))
        found: dict[str, str] = {}
        for value in self.op.values:
            for node in walk(value.node) if choices.paths[value.name] else ():
                if isinstance(node, Reduce) and node.kind in VALUELESS and self.is_seen_over_nothing(value):
                    path = choices.of(value.name)
                    condition = f"n_cols == 0 and {condition_operand(path)}" if path else "n_cols == 0"
                    error = f'raise ValueError("{self.operator}: {node.kind} has no value over an empty axis")'
                    found.setdefault(condition, error)
        always = "n_cols == 0"
        return [(always, found[always])] if always in found else list(found.items())

    def is_seen_over_nothing(self, value: Value) -> bool:
        """Whether results have elements that are made of a reduction over no elements."""
        return not is_hidden(self.op, value)


def once(lines: Sequence[str]) -> list[str]:
    """Lines of which those that check shapes stand where no call of the same shapes is repeated."""
    found: list[str] = []
    for line, before in zip(lines, ["", *lines], strict=False):
        if line.startswith(CHECK_SHAPE):
            found += [] if before.startswith(CHECK_SHAPE) else ["if replay is None:"]
            found.append(f"    {line}")
        else:
            found.append(line)
    return found


def kind_check(op: Op, param: Param) -> list[str]:
    """The refusal of a param of another type; that of a word is with its choices."""
    kinds = {"bool": '"a flag", bool', "int": '"an integer", int', "float": '"a number", int, float'}
    if param.kind not in kinds:
        return []
    return [f'tensors.check_param("{op.name}: {param.name}", {param.name}, {kinds[param.kind]})']


INTS = frozenset(DTYPE_CLASSES["int"] + DTYPE_CLASSES["bool"])


def returned_types(*optional: bool) -> str:
    """The annotation of some tensors, each of which may be None or not."""
    items = ["torch.Tensor | None" if is_optional else "torch.Tensor" for is_optional in optional]
    return items[0] if len(items) == 1 else f"tuple[{', '.join(items)}]"


def tuple_text(items: list[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def keywords(**fields: object) -> str:
    """The arguments of a call, by name."""
    return ", ".join(f"{name}={text}" for name, text in fields.items())


def targets_text(names: list[str]) -> str:
    """What a shape is unpacked into."""
    return ", ".join(names) if len(names) > 1 else tuple_text(names)


def word_list(words: tuple[str, ...], last: str = "or") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"
