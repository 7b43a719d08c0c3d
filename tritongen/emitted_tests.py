"""Spec -> what the template of an operator's pytest file sees."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .functions import FUNCTIONS
from .ir import Op, Result
from .modules import Module
from .oracle import signature, torch_lines
from .spec import BATCH, BOOLS, FLOATS, INTS, Input, Param, ParamValue, Range, Spec
from .structure import Program

# What the emitted files call things; an operator of such a name goes by another in them.
HELPERS = frozenset(
    "apart beyond check compare configs contiguous copy_rate draw gpu kernel main make measure"
    " misaligned narrow oracle os pytest reference repeated reversed scattered torch triton".split()
)
_RAGGED, _PLAIN = (3, 37), (2, 64)


def local_name(op: Op) -> str:
    """What a test calls the operator: its name, unless that means something else there."""
    return f"{op.name}_op" if op.name in HELPERS or hasattr(builtins, op.name) else op.name


def imported(op: Op) -> str:
    name = local_name(op)
    return op.name if name == op.name else f"{op.name} as {name}"


def tests_view(spec: Spec, program: Program, kernel: Module) -> dict[str, Any]:
    op = program.op
    columns = dtype_columns(op)
    floats = tuple(d for d in FLOATS if all(d in t.type.dtypes for _, t in columns))
    shapes = Shapes(program)
    tensors = tuple(t.name for t in op.inputs)
    several = len(columns) > 1
    view: dict[str, Any] = {
        "name": op.name,
        "call": local_name(op),
        "imported": imported(op),
        "oracle": "the spec's reference" if spec.reference else "the spec's own math in torch",
        "independent": bool(spec.reference),
        "signature": signature(op),
        "returns": returns(op),
        "lines": torch_lines(spec, op),
        "tensors": tensors,
        "single": len(tensors) == 1,
        "results": tuple(result.output.name for result in op.results),
        "several": several,
        "dtype_names": _words([t.name for _, t in columns]),
        "dtypes": dtype_cases(columns),
        "dtype": "dtypes" if several else "dtype",
        "dtype_type": "tuple[torch.dtype, ...]" if several else "torch.dtype",
        "floats": tuple(f"torch.{d}" for d in floats),
        "first_float": _one_dtype(columns, "float32" if "float32" in floats else floats[0]) if floats else "",
        "axes": ", ".join("*batch" if axis == BATCH else axis for axis in shapes.axes),
        "axes_text": ", ".join(shapes.axes),
        "draws": tuple(_draw(t, columns, program, spec) for t in op.inputs),
        "draws_ints": any(set(t.type.dtypes) & set(INTS + BOOLS) for t in op.inputs),
        "draws_unsigned": any("uint8" in t.type.dtypes for t in op.inputs),
        "draws_bools": any("bool" in t.type.dtypes for t in op.inputs),
        "draws_floats": any(set(t.type.dtypes) & set(FLOATS) for t in op.inputs),
        "required": _literal({p.name: _required(p, n) for n, p in enumerate(op.params) if p.default is None}),
        "params": tuple(_literal(case) for case in param_cases(op)),
        "tolerances": _tolerances(program),
        "expected_dtypes": tuple((r.output.name, result_dtype(op, r)) for r in op.results),
        "result_tensors": tuple(
            name for name in tensors if any(name in result_dtype(op, r) for r in op.results)
        ),
        "optional": tuple((t.name, repr(t.default)) for t in op.inputs if t.default is not None),
        "batched": tuple(n for n, t in enumerate(op.inputs) if BATCH in t.type.axes),
        "shape": shapes.ragged,
        "shapes": shapes.small(),
        "large": shapes.large(),
        "empty": shapes.empty(),
        "valueless": shapes.valueless(),
        "deep": shapes.deep(),
        "wide": shapes.wide(),
        "special": shapes.special(),
        "kinds": kernel.kinds,
        "splits": bool(kernel.view.get("partial")),
        "bad_shapes": tuple(bad_shapes(op, shapes)),
        "bad_params": tuple(bad_params(op)),
    }
    view["broadcasts"] = len(view["batched"]) > 1
    return view


def returns(op: Op) -> str:
    count = len(op.results)
    return "torch.Tensor" if count == 1 else f"tuple[{', '.join(['torch.Tensor'] * count)}]"


# Dtypes


def dtype_columns(op: Op) -> list[tuple[str, Input]]:
    """The inputs whose dtype a test chooses: (shared type or name, the first input of it)."""
    columns: dict[str, Input] = {}
    for tensor in op.inputs:
        if len(tensor.type.dtypes) > 1:
            columns.setdefault(tensor.type.variable or tensor.name, tensor)
    return list(columns.items())


def dtype_cases(columns: list[tuple[str, Input]]) -> tuple[str, ...]:
    """Each dtype on all inputs that have it, then mixtures; every dtype of every input is there."""
    sets = [tensor.type.dtypes for _, tensor in columns]
    if len(sets) == 1:
        return tuple(f"torch.{dtype}" for dtype in sets[0])
    every = dict.fromkeys(dtype for dtypes in sets for dtype in dtypes)
    cases = [
        tuple(d if d in dtypes else dtypes[n % len(dtypes)] for dtypes in sets)
        for n, d in enumerate(every)
    ]
    cases += [
        tuple(dtypes[(n + shift) % len(dtypes)] for shift, dtypes in enumerate(sets))
        for n in range(max(map(len, sets), default=0))
    ]
    return tuple(f"({', '.join(f'torch.{d}' for d in case)})" for case in dict.fromkeys(cases) if case)


def _one_dtype(columns: list[tuple[str, Input]], dtype: str) -> str:
    return f"torch.{dtype}" if len(columns) == 1 else f"(torch.{dtype},) * {len(columns)}"


def result_dtype(op: Op, result: Result) -> str:
    """The dtype of a result as torch would promote it, over the inputs' names."""
    inputs = {tensor.name for tensor in op.inputs}
    parts = [f"{leaf}.dtype" if leaf in inputs else f"torch.{leaf}" for leaf in result.dtype.of]
    if not parts:
        return "torch.get_default_dtype()"
    text = parts[0]
    for part in parts[1:]:
        text = f"torch.promote_types({text}, {part})"
    if result.dtype.rule == "float":
        return f"{text} if {text}.is_floating_point else torch.get_default_dtype()"
    if result.dtype.rule == "sum":
        return f"{text} if {text}.is_floating_point else torch.int64"
    return text


def _tolerances(program: Program) -> tuple[tuple[str, str], ...]:
    """Half precision is rounded once; sums in float32 lose a digit more than single operations."""
    wide = ("1e-4", "1e-9") if program.over else ("1e-5", "1e-10")
    return (("float16", "2e-3"), ("bfloat16", "1.6e-2"), ("float32", wide[0]), ("float64", wide[1]))


# Values


def _draw(
    tensor: Input, columns: list[tuple[str, Input]], program: Program, spec: Spec
) -> tuple[str, str]:
    """The name of an input and the call that draws its values."""
    return tensor.name, f"draw({_shape(tensor, program.op)}, {_dtype(tensor, columns)}{_range(tensor, program.op, spec)})"


def _shape(tensor: Input, op: Op) -> str:
    sizes = dict(op.sizes)
    parts = []
    for term in tensor.type.shape:
        parts.append(" * ".join("*batch" if n == BATCH else str(sizes.get(n, n)) for n in term.names))
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _dtype(tensor: Input, columns: list[tuple[str, Input]]) -> str:
    if len(tensor.type.dtypes) == 1:
        return f"torch.{tensor.type.dtypes[0]}"
    if len(columns) == 1:
        return "dtype"
    names = [name for name, _ in columns]
    return f"dtypes[{names.index(tensor.type.variable or tensor.name)}]"


def _range(tensor: Input, op: Op, spec: Spec) -> str:
    found = dict(spec.ranges).get(tensor.name) or inferred_range(tensor, spec)
    if found is None:
        return ""
    sizes = dict(op.sizes)
    low, high = (sizes.get(str(bound), bound) for bound in (found.low, found.high))
    return f", {low}, {high}"


def inferred_range(tensor: Input, spec: Spec) -> Range | None:
    """Where the values of an input must lie for the math to be defined, as far as it tells."""
    ints = set(tensor.type.dtypes) & set(INTS)
    for statement in spec.compute:
        for node in ast.walk(ast.parse(f"({statement.expression})", mode="eval")):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                divides = isinstance(node, ast.BinOp) and isinstance(
                    node.op, ast.FloorDiv | ast.Mod | ast.LShift | ast.RShift | ast.Pow
                )
                if ints and divides:
                    return Range(1, 5)
                continue
            if node.func.id == "take" and tensor.name in _names(node.args[1]):
                return Range(0, ast.unparse(node.args[2]))
            if ints and node.func.id in _PARTIAL:
                return Range(1, 5)
    return None


# Functions that integers have no value of everywhere.
_PARTIAL = frozenset(
    "floor_divide remainder fmod bitwise_left_shift bitwise_right_shift pow".split()
)


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


# Params


def _required(param: Param, position: int) -> ParamValue:
    """A value for a param that has none: whole numbers, one larger than the other."""
    if param.kind == "enum":
        return param.choices[0]
    if param.kind == "bool":
        return False
    return next(_within(param, (position + 1, 1)))


def _within(param: Param, wanted: tuple[float, ...]) -> Iterator[ParamValue]:
    """Those of some values that the param admits, then what lies between its bounds."""
    low, high = param.minimum, param.maximum
    number = float if param.kind == "float" else int
    if low is not None and high is not None:
        wanted = (*wanted, (low + high) / 2)
    for value in (*wanted, *(bound for bound in (low, high) if bound is not None)):
        if (low is None or value >= low) and (high is None or value <= high):
            yield number(value)


def param_cases(op: Op) -> list[dict[str, ParamValue]]:
    """Keyword arguments to try: all words and flags, and for numbers others than the default."""
    cases: list[dict[str, ParamValue]] = []
    for param in op.params:
        values: list[ParamValue]
        if param.kind == "enum":
            values = list(param.choices)
        elif param.kind == "bool":
            values = [False, True]
        else:
            wanted = (0.25, 0.5) if param.kind == "float" else (1, -1)
            values = list(_within(param, wanted))[: 1 if param.kind == "float" else 2]
        values = [v for v in dict.fromkeys(values) if v != param.default or isinstance(v, bool | str)]
        cases += [{param.name: value} for value in values if value != param.default]
    return cases


def bad_params(op: Op) -> Iterator[tuple[str, str]]:
    """(name, a value that it refuses)"""
    for param in op.params:
        if param.kind == "enum":
            yield param.name, repr("no such choice")
        elif param.minimum is not None:
            yield param.name, repr(param.minimum - 1)
        elif param.maximum is not None:
            yield param.name, repr(param.maximum + 1)


# Shapes


@dataclass(frozen=True)
class Shapes:
    """Shapes to test with: tuples of the lengths of all axes that are not of a fixed size."""

    program: Program

    @property
    def axes(self) -> tuple[str, ...]:
        sizes = dict(self.program.op.sizes)
        return tuple(axis for axis in self.program.op.axes if axis not in sizes)

    @property
    def batch(self) -> bool:
        return BATCH in self.axes

    @property
    def named(self) -> int:
        return len(self.axes) - self.batch

    def of(self, batch: tuple[int, ...], *named: int) -> tuple[int, ...]:
        """Batch axes and as many named ones as there are, the last given last."""
        if not self.named:
            return (*batch, *named[-1:]) if batch or not named else named[-1:]
        filled = (3,) * (self.named - len(named)) + named
        return (*(batch if self.batch else ()), *filled[len(filled) - self.named :])

    @property
    def ragged(self) -> tuple[int, ...]:
        return self.of((3,), 5, 37)

    def small(self) -> list[tuple[int, ...]]:
        cases = [
            self.ragged,
            self.of((2, 3), 4, 64),
            self.of((1,), 1, 1),
            self.of((4,), 6, 1),
            self.of((1,), 1, 17),
            self.of((), 7, 130),
        ]
        if self.batch:
            cases.append(self.of((2, 1, 3, 2), 5))
        if not self.named:
            cases += [(), (1030,)]
        return list(dict.fromkeys(cases))

    def large(self) -> list[tuple[int, ...]]:
        """For a GPU: every kernel of the module by its own rule, full tiles and ragged ones."""
        if not self.named:
            return [(1 << 22,), (1023, 4097)]
        if self.named + self.batch == 1:
            return [(1 << 22,), (4_194_301,)]
        cases = [self.of((1024,), 2, 1024), self.of((5,), 2, 100_003), self.of((4097,), 1, 257)]
        return [*cases, self.of((2,), 1, 1 << 20)] if self.program.over else cases

    def reduced(self) -> set[int]:
        """Which of the named axes are reduced, counted from the end."""
        return {self.axes.index(axis) - len(self.axes) for axis in self.program.over if axis in self.axes}

    def empty(self) -> list[tuple[int, ...]]:
        return [shape for shape in self._empty() if not self._has_no_value(shape)]

    def valueless(self) -> list[tuple[int, ...]]:
        return [shape for shape in self._empty() if self._has_no_value(shape)]

    def _empty(self) -> list[tuple[int, ...]]:
        bounds = {str(bound) for _, r in self._ranges() for bound in (r.low, r.high)}
        cases = []
        for position, axis in enumerate(self.axes):
            if axis not in bounds:
                shape = list(self.ragged)
                shape[position] = 0
                cases.append(tuple(shape))
        return cases

    def _ranges(self) -> list[tuple[str, Range]]:
        return self.ranges

    def _has_no_value(self, shape: tuple[int, ...]) -> bool:
        return False

    def deep(self) -> tuple[int, ...]:
        """Five dimensions, where there may be any number."""
        return self.of((2, 3, 2, 3), 2, 5)[:5] if self.batch else ()

    def wide(self) -> tuple[int, ...]:
        """Enough for several steps of a loop and several programs, with a tail."""
        return self.of((5,), 5, 100)

    def special(self) -> tuple[int, ...]:
        return self.of((24,), 3, 21)
