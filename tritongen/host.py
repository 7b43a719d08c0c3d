"""The public function of a module: checks, shapes, allocation and the strides that launches pass."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .exponentials import exp_pairs, tells_of_nan
from .ir import Dtype, Op, Reduce, Result, walk
from .lower import Compute
from .space import Dim, Space
from .spec import BATCH, DTYPE_CLASSES, AxisTerm, Input, Param, told_in_order
from .views import Field

CLASS_NAMES = {dtypes: f"_{name.upper()}S" for name, dtypes in DTYPE_CLASSES.items() if name != "any"}
CLASS_NAMES[DTYPE_CLASSES["any"]] = "_DTYPES"
CLASS_NAMES[DTYPE_CLASSES["bool"]] = "_BOOL"


IS_FAKE = "is_fake"  # the argument of a registered function that asks for results without their values


@dataclass(frozen=True, slots=True)
class Constant:
    """A module constant: a tuple of the dtypes that some input may have."""

    name: str
    value: str


def constants(op: Op) -> tuple[Constant, ...]:
    found = {}
    for tensor in op.inputs:
        dtypes = tensor.type.dtypes
        name = dtype_constant(tensor)
        found[name] = Constant(name, tuple_text([f"torch.{dtype}" for dtype in dtypes]))
    return tuple(found[name] for name in sorted(found))


def dtype_constant(tensor: Input) -> str:
    return CLASS_NAMES.get(tensor.type.dtypes, f"_{tensor.name.upper()}_DTYPES")


def shape_text(shape: tuple[AxisTerm, ...]) -> str:
    def term(t: AxisTerm) -> str:
        names = [f"{n}={s}" if s is not None else n for n, s in zip(t.names, t.sizes, strict=True)]
        return names[0] if len(names) == 1 else f"({' '.join(names)})"

    return f"[{', '.join(term(t) for t in shape)}]"


@dataclass(frozen=True)
class Host:
    """Writes the lines of the wrapper of one operator over one space."""

    op: Op
    space: Space
    compute: Compute
    function: str  # what the function is called that these lines are of
    extra: tuple[str, ...] = ()  # its further arguments

    @property
    def is_registered(self) -> bool:
        """Whether torch's dispatcher calls the function, which so has arguments of the right kinds."""
        return IS_FAKE in self.extra

    # Checks and shapes

    def checks(self) -> list[str]:
        lines: list[str] = []
        first = self.first()
        for tensor in self.op.inputs:
            block = [self.check(tensor)]
            if "float8_e4m3fn" in tensor.type.dtypes:
                block.append(f'_check_float8("{self.op.name}: {tensor.name}", {tensor.name})')
            if first is not None and tensor is not first:
                block += [
                    f"if {tensor.name}.device != {first.name}.device:",
                    f'    raise ValueError(f"{self.op.name}: {tensor.name} is on {{{tensor.name}.device}}, '
                    f'{first.name} on {{{first.name}.device}}")',
                ]
                if tensor.type.variable and tensor.type.variable == first.type.variable:
                    block += [
                        f"if {tensor.name}.dtype != {first.name}.dtype:",
                        f'    raise TypeError(f"{self.op.name}: {tensor.name} must have the dtype of '
                        f'{first.name}, {{{first.name}.dtype}}, not {{{tensor.name}.dtype}}")',
                    ]
            lines += self.guarded(tensor, block)
        for param in self.op.params:
            lines += self.param_checks(param)
        return lines

    def guarded(self, tensor: Input, block: list[str]) -> list[str]:
        if tensor.default is None or not block:
            return block
        given = f"if {tensor.name} is not None"
        if block[0].startswith("if ") and all(line.startswith(" ") for line in block[1:]):
            return [f"{given} and {block[0].removeprefix('if ')}", *block[1:]]
        return [f"{given}:", *(f"    {line}" for line in block)]

    def check(self, tensor: Input) -> str:
        leading = BATCH in tensor.type.axes
        ndim = len(tensor.type.shape) - leading
        return (
            f'_check("{self.op.name}: {tensor.name}", {tensor.name}, {dtype_constant(tensor)}, '
            f'"{shape_text(tensor.type.shape)}", {ndim}, {leading})'
        )

    def param_checks(self, param: Param) -> list[str]:
        name, where = param.name, self.op.name
        lines = [] if self.is_registered else kind_check(self.op, param)
        if param.kind == "enum":
            lines += [
                f"if {name} not in {param.choices!r}:",
                f'    raise ValueError(f"{where}: {name} must be one of {_words(param.choices)}, not {{{name}!r}}")',
            ]
        for bound, sign, words in ((param.minimum, "<", "at least"), (param.maximum, ">", "at most")):
            if bound is not None:
                lines += [
                    f"if {name} {sign} {bound!r}:",
                    f'    raise ValueError(f"{where}: {name} must be {words} {bound!r}, not {{{name}}}")',
                ]
        return lines

    def first(self) -> Input | None:
        return next((tensor for tensor in self.op.inputs if tensor.default is None), None)

    def ordered(self) -> list[Input]:
        """The inputs with those first that define the axes."""
        return told_in_order(self.op.inputs)

    def shapes(self) -> list[str]:
        """Unpacks the shapes: afterwards every axis is a variable, and each tensor has its axes apart."""
        known = {axis for tensor in self.op.inputs if tensor.default is None for axis in tensor.type.axes}
        lines = [f"{axis} = {size}" for axis, size in self.op.sizes if axis not in known]
        known = set()
        for tensor in self.ordered():
            block: list[str] = []
            for position, term in enumerate(tensor.type.shape):
                if len(term.names) > 1:
                    block += self.unflatten(tensor, position - len(tensor.type.shape), term, known)
            named = [axis for axis in tensor.type.axes if axis != BATCH]
            new = [axis for axis in named if axis not in known]
            sizes = dict(self.op.sizes)
            if new and tensor.default is None:
                block += self.unpack(tensor, named, known)
                known |= set(named)
                grouped = {name for term in tensor.type.shape if len(term.names) > 1 for name in term.names}
                for axis in new:
                    if axis in sizes and axis not in grouped:
                        block += self.differs(tensor, f"{axis} != {sizes[axis]}", f"{axis} is {sizes[axis]}")
            elif named:
                has = f"{tensor.name}.shape[{-len(named)}:]" if BATCH in tensor.type.axes else f"{tensor.name}.shape"
                wanted = "(" + ", ".join(named) + ("," if len(named) == 1 else "") + ")"
                refuses = [
                    f"if {has} != {wanted}:",
                    f'    raise ValueError(f"{self.op.name}: {tensor.name} must be {shape_text(tensor.type.shape)} '
                    f'with {self.lengths(named)}, not {{list({tensor.name}.shape)}}")',
                ]
                block += refuses
            lines += self.guarded(tensor, block)
        return [*lines, *self.batches()]

    def lengths(self, named: list[str]) -> str:
        return ", ".join(f"{axis} = {{{axis}}}" for axis in named)

    def unpack(self, tensor: Input, named: list[str], known: set[str]) -> list[str]:
        groups = [self.told(term, known) for term in tensor.type.shape if len(term.names) > 1]
        split = {name for group in groups for name in group}
        again = {axis: "_" if axis in split else f"{axis}_{tensor.name}" for axis in known}
        targets = [again.get(axis, axis) for axis in named]
        batch = BATCH in tensor.type.axes
        has_batch = self.batch_inputs() and tensor is self.batch_inputs()[0]
        if batch and has_batch and len(self.batch_inputs()) == 1:
            names = ", ".join(["*batch", *targets])
            line = f"{names} = {tensor.name}.shape"
        elif batch:
            line = f"{_targets(targets)} = {tensor.name}.shape[{-len(named)}:]"
        else:
            line = f"{_targets(targets)} = {tensor.name}.shape"
        lines = [line]
        for axis, target in zip(named, targets, strict=True):
            if target not in (axis, "_"):
                lines += self.differs(tensor, f"{target} != {axis}", f"axis {axis} is {{{axis}}} in another input")
        return lines

    def differs(self, tensor: Input, condition: str, says: str) -> list[str]:
        return [
            f"if {condition}:",
            f'    raise ValueError(f"{self.op.name}: {says}, but {tensor.name} is {{list({tensor.name}.shape)}}")',
        ]

    def unflatten(self, tensor: Input, position: int, term: AxisTerm, known: set[str]) -> list[str]:
        """Splits a dimension into the axes of its group, of which the one of unknown length gets the rest."""
        whole = f"{tensor.name}.shape[{position}]"
        told = self.told(term, known)
        sizes = [told.get(name, "") for name in term.names]
        product = " * ".join(filter(None, sizes))
        if product.replace(" * ", "").isdigit():
            product = str(math.prod(map(int, filter(None, sizes))))
            wrong, must = f"{whole} % {product}", f"a multiple of {product}"
            if all(sizes):
                wrong, must = f"{whole} != {product}", product
        else:  # Lengths of other inputs may be 0.
            product = f"({product})" if "*" in product else product
            wrong, must = f"{product} == 0 or {whole} % {product}", f"a multiple of {{{product}}}"
        split = ", ".join(size or f"{whole} // {product}" for size in sizes)
        lines = [
            f"if {wrong}:",
            f'    raise ValueError(f"{self.op.name}: the length of {shape_text((term,))[1:-1]} in {tensor.name} '
            f'must be {must}, not {{{whole}}}")',
        ]
        return [*lines, f"{tensor.name} = torch.unflatten({tensor.name}, {position}, ({split}))"]

    def told(self, term: AxisTerm, known: set[str]) -> dict[str, str]:
        """The lengths in a group by which it is split, all but one: fixed ones, then those of other inputs."""
        fixed = dict(self.op.sizes)
        lengths = {name: str(fixed[name]) for name in term.names if name in fixed}
        others = [name for name in term.names if name not in fixed]
        rest = [*(name for name in others if name not in known), *others][:1]
        return lengths | {name: name for name in others if name not in rest}

    def batch_inputs(self) -> list[Input]:
        return [tensor for tensor in self.ordered() if BATCH in tensor.type.axes]

    def named_count(self, axes: tuple[str, ...]) -> int:
        return len([axis for axis in axes if axis != BATCH])

    def batches(self) -> list[str]:
        inputs = self.batch_inputs()
        if not inputs:
            return []
        if len(inputs) == 1:
            tensor = inputs[0]
            named = [axis for axis in tensor.type.axes if axis != BATCH]
            return [f"batch = {tensor.name}.shape"] if not named else []
        lines = []
        required = [t for t in inputs if t.default is None]
        lines.append(f"batch = {self.batch_shape(required[0])}")
        for tensor in inputs:
            if tensor is required[0]:
                continue
            text = self.batch_shape(tensor)
            block = [
                f"if {text} != batch:",
                f'    batch = _broadcast("{self.op.name}: {tensor.name}", batch, {text})',
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

    # Results

    def dtype(self, dtype: Dtype) -> str:
        if dtype.rule == "compute":
            return "_torch_dtype(compute)" if self.compute.constexpr else "torch.float32"
        inputs = {tensor.name: tensor for tensor in self.op.inputs}
        parts = []
        for leaf in dtype.of:
            tensor = inputs.get(leaf)
            if tensor is None:
                parts.append(f"torch.{leaf}")
            elif tensor.default is None:
                parts.append(f"{leaf}.dtype")
            else:
                parts.append(f"*(() if {leaf} is None else ({leaf}.dtype,))")
        if not parts:
            return "torch.get_default_dtype()"
        text = parts[0] if len(parts) == 1 and not parts[0].startswith("*") else f"_promote({', '.join(parts)})"
        if dtype.rule == "float":
            ints = all(INTS.issuperset(inputs[leaf].type.dtypes if leaf in inputs else {leaf}) for leaf in dtype.of)
            return "torch.get_default_dtype()" if ints else f"_as_float({text})"
        if dtype.rule == "int" and any("bool" in inputs[leaf].type.dtypes for leaf in dtype.of if leaf in inputs):
            return f"_int_dtype({text})"
        return f"_sum_dtype({text})" if dtype.rule == "sum" else text

    def allocate(self) -> list[str]:
        otherwise = {r.output.name: f" if {self.condition(r)} else None" for r in self.op.results if r.when}
        lines = [f"{r.output.name} = {self.empty(r)}{otherwise.get(r.output.name, '')}" for r in self.op.results]
        return [f"compute = {self.compute_value()}", *lines] if self.allocates_wide() else lines

    def condition(self, result: Result) -> str:
        """Where a result is made that is not always."""
        return result.when

    def allocates_wide(self) -> bool:
        """Whether a result is in the dtype of the computation, which so has to be known first."""
        return self.compute.constexpr and any(result.dtype.rule == "compute" for result in self.op.results)

    def empty(self, result: Result) -> str:
        dtype = self.dtype(result.dtype)
        like = self.like(result)
        if like is not None:
            name = like.name
            return (
                f"torch.empty_like({name})" if dtype == f"{name}.dtype" else f"torch.empty_like({name}, dtype={dtype})"
            )
        sizes = ", ".join("*batch" if axis == BATCH else axis for axis in result.axes)
        comma = "," if len(result.axes) == 1 else ""
        first = self.first()
        assert first is not None
        return f"torch.empty(({sizes}{comma}), dtype={dtype}, device={first.name}.device)"

    def like(self, result: Result) -> Input | None:
        """An input of the result's very shape, whose layout the result takes over, as torch's do."""
        if result.output.name in self.op.by_row:
            return None
        for tensor in self.op.inputs:
            plain = all(len(term.names) == 1 for term in tensor.type.shape)
            if tensor.type.axes == result.axes and tensor.default is None and plain:
                return tensor
        return None

    def result(self) -> str:
        names = [self.regrouped(result) for result in self.op.results]
        return ", ".join(names)

    def regrouped(self, result: Result) -> str:
        """The result with its grouped axes put together again."""
        shape = result.output.shape or self.grouped(result)
        text = result.output.name
        position = -1
        for term in reversed(shape):
            if len(term.names) > 1:
                text += f".flatten({position - len(term.names) + 1}, {position})"
            position -= 1
        return text

    def grouped(self, result: Result) -> tuple[AxisTerm, ...]:
        for tensor in self.op.inputs:
            if tensor.type.axes == result.axes:
                return tensor.type.shape
        return tuple(AxisTerm((axis,), (None,)) for axis in result.axes)

    # Strides

    def moving(self, dims: tuple[Dim, ...]) -> list[tuple[str, tuple[str, ...], bool]]:
        """The tensors that move along some dimensions: name, axes, whether optional."""
        found = [(t.name, t.type.axes, t.default is not None) for t in self.op.inputs]
        found += [(r.output.name, r.axes, bool(r.when)) for r in self.op.results]
        return [entry for entry in found if self.space.steps(entry[1], dims) and entry[0] not in self.op.by_row]

    def stride(self, name: str, axes: tuple[str, ...], axis: str) -> str:
        """The stride along a named axis, counted from the end since leading axes may be any number."""
        return f"{name}.stride({axes.index(axis) - len(axes)})" if axis in axes else "0"

    def strides(self, name: str, axes: tuple[str, ...], over: tuple[str, ...]) -> str:
        """All strides along some axes, as a tuple in the order of the axes."""
        if tuple(axis for axis in axes if axis in over) == over and over == axes:
            return f"{name}.stride()"
        count = self.named_count(axes)
        if BATCH in over and tuple(axes[: len(over)]) == over:
            return f"{name}.stride()[:{len(over) - len(axes)}]"
        parts = []
        for axis in over:
            if axis != BATCH:
                parts.append(self.stride(name, axes, axis))
            elif BATCH not in axes:
                parts.append("*(0,) * len(batch)")
            else:
                parts.append(f"*{name}.stride()[:-{count}]" if count else f"*{name}.stride()")
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

    def sizes(self, over: tuple[str, ...], hashed: bool = False) -> str:
        if over == (BATCH,):
            return "tuple(batch)" if hashed else "batch"
        parts = ["*batch" if axis == BATCH else axis for axis in over]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

    def retry(self) -> str:
        """The call of the function again with every tensor contiguous."""
        tensors = []
        for tensor in self.op.inputs:
            text = f"{tensor.name}.contiguous()"
            for position, term in reversed(list(enumerate(tensor.type.shape))):
                if len(term.names) > 1:
                    end = position - len(tensor.type.shape)
                    text += f".flatten({end - len(term.names) + 1}, {end})"
            tensors.append(f"{text} if {tensor.name} is not None else None" if tensor.default is not None else text)
        named = [f"{name}={name}" for name in (*(param.name for param in self.op.params), *self.extra)]
        return f"{self.function}({', '.join(tensors + named)})"

    def fold(self, group: str, dims: tuple[Dim, ...], folder: str = "_fold") -> list[str]:
        """Lines that set `<group>_sizes`, and `<tensor>_<group>` of every tensor that moves there."""
        if not dims:
            return []
        free = tuple(dim for dim in dims if not dim.pinned)
        pinned = tuple(dim for dim in dims if dim.pinned)
        free_axes = tuple(dict.fromkeys(axis for dim in free for axis in dim.axes))
        singular = group[:-1]
        lines: list[str] = []
        tensors = self.moving(dims)
        folds = len(free) > 1 or free_axes[:1] == (BATCH,)
        if folds:
            named = self.moving(free)
            strides = [self.optional(self.strides(n, a, free_axes), n, o, free_axes) for n, a, o in named]
            targets = tuple_text([f"{n}_{group}" for n, _, _ in named])
            lines += [
                f"folded = {folder}({len(free)}, {self.sizes(free_axes, True)}, {tuple_text(strides)})",
                "if folded is None:  # More dimensions than the kernel steps through.",
                f"    return {self.retry()}",
                f"{singular}_sizes, {targets} = folded",
            ]
            if pinned:
                lines.append(f"{singular}_sizes = (*{singular}_sizes, {', '.join(dim.axes[0] for dim in pinned)})")
        else:
            axes = tuple(dim.axes[0] for dim in dims)
            if len(dims) > 1:
                lines.append(f"{singular}_sizes = {self.sizes(axes)}")
        for name, axes, optional in tensors:
            steps = self.space.steps(axes, free) if folds else ()
            rest = pinned if folds else dims
            if not rest:
                continue
            own = tuple(self.stride(name, axes, dim.axes[0]) for dim in rest)
            start = f"*{name}_{group}, " if steps else "*(0,) * " + str(len(free)) + ", " if folds else ""
            text = f"({start}{', '.join(own)}{',' if len(own) == 1 and not start else ''})"
            if optional:
                text = f"{text} if {name} is not None else {tuple_text(['0'] * len(dims))}"
            lines.append(f"{name}_{group} = {text}")
        return lines

    def optional(self, text: str, name: str, optional: bool, axes: tuple[str, ...]) -> str:
        if not optional:
            return text
        zeros = tuple_text(["0"] * len(axes))
        if BATCH in axes:
            more = len(axes) - 1
            zeros = f"(0,) * (len(batch) + {more})" if more else "(0,) * len(batch)"
        return f"{text} if {name} is not None else {zeros}"

    def compute_value(self) -> str:
        inputs = {tensor.name: tensor for tensor in self.op.inputs}
        if self.compute.mode == "float":
            tests = []
            for name in self.compute.of:
                if "float64" in inputs[name].type.dtypes:
                    test = f"{name}.dtype == torch.float64"
                    optional = inputs[name].default is not None
                    tests.append(f"({name} is not None and {test})" if optional else test)
            return f"tl.float64 if {' or '.join(tests)} else tl.float32"
        helper = "_wide_compute_dtype" if self.compute.wide else "_compute_dtype"
        return f"{helper}({self.dtype(Dtype('any', self.compute.of, 'int' if self.compute.counts else ''))})"

    # Documentation

    def tensor_fields(self) -> list[Field]:
        fields = []
        for tensor in self.op.inputs:
            optional = tensor.default is not None
            text = f"{shape_text(tensor.type.shape)}, {_words(tensor.type.dtypes)}."
            if optional:
                text += f" None stands for {tensor.default}."
            annotation = "torch.Tensor | None" if optional else "torch.Tensor"
            fields.append(Field(tensor.name, annotation, "None" if optional else "", text))
        return fields

    def param_fields(self) -> list[Field]:
        fields = []
        for param in self.op.params:
            annotation = {"enum": "str"}.get(param.kind, param.kind)
            default = "" if param.default is None else repr(param.default)
            limits = []
            if param.kind == "enum":
                limits.append(f"one of {_words(param.choices)}")
            if param.minimum is not None:
                limits.append(f"at least {param.minimum!r}")
            if param.maximum is not None:
                limits.append(f"at most {param.maximum!r}")
            text = f"{', '.join(limits)}." if limits else f"{'a number' if annotation != 'bool' else 'a flag'}."
            fields.append(Field(param.name, annotation, default, text))
        return fields

    def result_fields(self) -> list[Field]:
        fields = []
        for result in self.op.results:
            shape = shape_text(result.output.shape or self.grouped(result))
            fields.append(Field(result.output.name, "torch.Tensor", "", f"{shape}, {self.dtype_words(result)}."))
        return fields

    def dtype_words(self, result: Result) -> str:
        of = result.dtype.of
        inputs = {tensor.name for tensor in self.op.inputs}
        if not of:
            return "torch's default dtype"
        text = f"the promotion of {_words(of, 'and')}"
        if len(of) == 1:
            text = f"{of[0]}'s dtype" if of[0] in inputs else of[0]
        otherwise = {"sum": "int64", "float": "torch's default dtype"}.get(result.dtype.rule)
        return f"{text}, or {otherwise} where that is no float" if otherwise else text

    def empty_errors(self) -> list[str]:
        """Refusals of reductions that have no value over no elements."""
        lines = []
        pairs = {largest: self.op.value(total) for total, largest in exp_pairs(self.op).items() if not largest.source}
        # Those of softmax and logsumexp are in no result but beside their sums, which have a value.
        paired = {largest for largest, total in pairs.items() if tells_of_nan(self.op, largest, total)}
        for value in self.op.values:
            for node in walk(value.node):
                if isinstance(node, Reduce) and node.kind in ("max", "min", "argmax", "argmin") and value not in paired:
                    lines.append(f'raise ValueError("{self.op.name}: {node.kind} has no value over an empty axis")')
        return lines[:1]


def kind_check(op: Op, param: Param) -> list[str]:
    """The refusal of a param of another type; that of a word is with its choices."""
    kinds = {"bool": '"a flag", bool', "int": '"an integer", int', "float": '"a number", int, float'}
    if param.kind not in kinds:
        return []
    return [f'_check_param("{op.name}: {param.name}", {param.name}, {kinds[param.kind]})']


INTS = frozenset(DTYPE_CLASSES["int"] + DTYPE_CLASSES["bool"])


def tuple_text(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _targets(names: list[str]) -> str:
    return ", ".join(names) if len(names) > 1 else tuple_text(names)


def _words(words: tuple[str, ...], last: str = "or") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"
