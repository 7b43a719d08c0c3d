"""Nodes -> Triton expressions, as Python `ast`, so that parentheses and literals are Python's own.

Tiles are two-dimensional throughout: a value that varies along rows is [BLOCK_M, 1], along columns
[1, BLOCK_N], along both [BLOCK_M, BLOCK_N]; so broadcasting needs no spelling.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ..lang.exact import EXACT
from ..lang.functions import FUNCTIONS, Function
from ..lang.integers import Integers, integers_of
from ..lang.ir import (
    INT64,
    Call,
    Cast,
    Choose,
    Constant,
    Dtype,
    Index,
    Load,
    Node,
    Op,
    Path,
    Reduce,
    Ref,
    Scalar,
    Scan,
    Size,
    Value,
    walk,
)
from ..lang.names import fresh, shown
from ..lang.trees import literal, parse, rounded
from ..nest.access import Access, if_given
from ..nest.conditions import condition_tree, is_condition
from ..nest.ir import Let, Line, under
from ..nest.values import Expr, Term, V, either, expr, tl
from ..passes.exponentials import resolve
from ..passes.scalars import host_scalars
from ..spec.types import FLOATS, Input
from .choices import Choices
from .guards import Guard, guard_of
from .scalar_types import ScalarTypes, compares

LONGEST = 100  # characters of a comment


@dataclass(frozen=True, slots=True)
class Compute:
    """The dtype that a kernel computes in.

    `text` is the kernel's spelling. If it is an argument of the kernel, the inputs `of` determine it, by `mode`:
    "float" (float64 if any of them is or `in_float64`, else float32) or "promote" (their promotion, widened: half to
    float32; with `wide`, integers to int64; with `counts`, booleans to int64, since the math counts with them).
    """

    text: str
    of: tuple[str, ...] = ()
    mode: str = ""
    wide: bool = False
    counts: bool = False
    in_float64: bool = False

    @property
    def constexpr(self) -> bool:
        return self.text == "COMPUTE"

    @property
    def is_double(self) -> bool:
        """Whether it may be float64, for which Triton's float32 of scalars and integers is too narrow."""
        return self.mode == "float" or self.text == "tl.float64"


def compute_of(op: Op) -> Compute:
    inputs = _computed_with(op)
    floats = [tensor for tensor in inputs if {*tensor.type.dtypes} & {*FLOATS}]
    if any(isinstance(node, Cast) and node.dtype.of == ("float64",) for node in op.nodes):
        return Compute("COMPUTE", mode="float", in_float64=True)
    if not any(node.dtype.kind == "float" for node in op.nodes if not isinstance(node, Constant | Scalar)):
        promoted = _promoted(op.nodes, inputs, floats)
        if promoted is not None:
            return promoted
    names = tuple(tensor.name for tensor in floats)
    if any("float64" in tensor.type.dtypes for tensor in floats):
        return Compute("COMPUTE", names, "float")
    return Compute("tl.float32")


def _promoted(nodes: Sequence[Node], inputs: list[Input], floats: list[Input]) -> Compute | None:
    """The dtype of math that may have no floats; None if that is decided by float inputs all the same."""
    others = tuple(tensor.name for tensor in inputs if tensor.type.dtypes != ("bool",))
    mixed = [tensor for tensor in floats if not {*tensor.type.dtypes} <= {*FLOATS}]
    if mixed or any(tensor.type.joins_bools for tensor in inputs):
        wide = any(isinstance(n, Reduce | Scan) and n.kind not in ("any", "all") for n in nodes)
        of = others if len(mixed) == len(floats) else tuple(tensor.name for tensor in floats)
        return Compute("COMPUTE", of, "promote", wide, counts(nodes))
    if floats:
        return None
    return Compute("COMPUTE", others, "promote") if len(others) > 1 else Compute("")


def _computed_with(op: Op) -> list[Input]:
    """The inputs that are computed with, not only used as positions; all inputs if the math loads none."""
    positions = [n for node in op.nodes if isinstance(node, Load) for _, at in node.at for n in walk(at)]
    data = {node.name for node in op.nodes if isinstance(node, Load) and node not in positions}
    # A step that loads nothing computes in the dtype that it is given.
    return [tensor for tensor in op.inputs if tensor.name in data or not (data or positions)]


def counts(nodes: Iterable[Node]) -> bool:
    """Whether integers of the spec meet possible booleans, other than by a `where` between 0 and 1."""

    def small(node: Node) -> bool:
        return not node.dtype.weak or (isinstance(node, Constant) and node.value in (0, 1))

    return any(
        isinstance(node, Call)
        and node.dtype.rule == "int"
        and not (node.function == "where" and all(map(small, node.args[1:])))
        for node in nodes
    )


@dataclass
class Lowering:
    """Lowers nodes to expressions of one kernel.

    Each kernel provides `index` for the position along an axis, `size` for the length of axes, `load` for an element of
    an input, `guarded` for one that a condition keeps within bounds (None if it does not, or the kernel loads all
    alike), and `dtype_of` for its dtype. Lines that an expression needs before it, such as an argument that a function
    uses twice, collect in `pending`, and run where `path` is taken.
    """

    op: Op
    compute: Compute
    index: Callable[[str], Expr]
    size: Callable[[tuple[str, ...]], Expr]
    load: Callable[[Load, Lowering], Expr]
    choices: Choices
    reduce: Callable[[Any, Lowering], Expr] | None = None  # of reductions, and of sorts
    dtype_of: Callable[[str], str] = "{}_ptr.dtype.element_ty".format
    guarded: Callable[[Guard, Lowering], Expr | None] | None = None
    pending: list[Line] = field(default_factory=list)
    target: str = ""
    path: Path = ()
    integers: Integers = field(init=False)
    scalar_types: ScalarTypes = field(init=False)

    def __post_init__(self) -> None:
        self.integers = integers_of(self.op)
        self.scalar_types = ScalarTypes(self.op, self.compute.text, self.compute.is_double)

    def line(self, value: Value, comment: bool = True) -> list[Line]:
        """The assignment of a value and the lines that it needs, on the path on which it is needed; [] if on none."""
        if not self.choices.is_needed(value.name):
            return []
        self.begin(value.name)
        self.assign(value, value.node)
        return self.finished(value, comment)

    def finished(self, value: Value, comment: bool = True) -> list[Line]:
        """The lines of a value since `begin`, with its source as a comment above the first."""
        lines, self.pending = self.pending, []
        source = f"{value.name} = {value.source}" if value.source and comment else ""
        if len(shown(source)) > LONGEST:  # The line below says the same, on several lines.
            source = ""
        source = source or value.why
        if source and lines and shown(source) != shown(lines[-1].text).replace("tl.", ""):
            lines[0] = replace(lines[0], comment=source, above=len(lines[0].path) - len(self.path))
        return lines

    def begin(self, name: str, path: Path | None = None) -> None:
        """Begins lowering the value `name`, which is needed on `path`, or if that is None, on its own path."""
        self.target, self.pending = name, []
        self.path = self.choices.of(name) if path is None else path

    def assign(self, value: Value, node: Node) -> None:
        if isinstance(node, Choose) and self.needs_branch(node):
            for side, holds in ((node.then, True), (node.other, False)):
                with self.under(node.condition, holds) as is_taken:
                    if is_taken:
                        self.assign(value, side)
            return
        # A named scalar is a tensor to Triton; a value that varies is exact until it is computed with.
        expression = self.expression(node) if value.node.axes else self.operand(node)
        if expression != V[value.name]:  # Else the host computes it.
            self.put(Let(value.name, expression))

    def put(self, *lines: Line) -> None:
        """Adds lines that run before whatever is lowered next."""
        self.pending += under(self.path, lines)

    @contextmanager
    def under(self, condition: Node, holds: bool) -> Iterator[bool]:
        """Lowers one side of a choice. Yields whether the current path allows that side."""
        path = self.path
        if (condition, holds) not in path:
            self.path = (*path, (condition, holds))
        yield (condition, not holds) not in path
        self.path = path

    def needs_branch(self, node: Choose) -> bool:
        """Whether the sides read values or inputs of their own, so that a branch saves the work of the other."""
        sides = [inner for side in (node.then, node.other) for inner in walk(side)]
        names = {inner.name for inner in sides if isinstance(inner, Ref)}
        read = {inner.name for inner in sides if isinstance(inner, Load) and not inner.at}
        paths = [*map(self.choices.of, names), *(self.choices.reading(name, self.op.values) for name in read)]
        return is_condition(node.condition) and any(set(path) - set(self.path) for path in paths)

    def expression(self, node: Node) -> Expr:
        match node:
            case Constant(value=value):
                return Expr(literal(value))
            case Scalar(name=name) | Ref(name=name):
                return V[name]
            case Load():
                return self.load(node, self)
            case Index(axis=axis):
                return self.index(axis)
            case Size(over=over):
                return self.size(over)
            case Reduce() | Scan() if self.reduce:
                return self.reduce(node, self)
            case Cast(arg=arg):
                return self.cast(arg, node.dtype)
            case Choose():
                return self.choose(node, self.expression)
            case Call():
                scalar = host_scalars(self.op).get(node)
                return V[scalar.name] if scalar else self.call(node)
            case _:
                raise AssertionError(f"nothing lowers {type(node).__name__}")

    def choose(self, node: Choose, lowered: Callable[[Node], Expr]) -> Expr:
        """A choice, or only the side that the current path allows."""
        if not is_condition(node.condition):
            return either(self.expression(node.condition), lowered(node.then), lowered(node.other))
        sides = []
        for side, holds in ((node.then, True), (node.other, False)):
            with self.under(node.condition, holds) as is_taken:
                sides += [lowered(side)] if is_taken else []
        return either(condition_tree(((node.condition, True),)), *sides) if len(sides) > 1 else sides[0]

    def cast(self, arg: Node, dtype: Dtype) -> Expr:
        inner = self.expression(arg)
        if dtype.kind == "bool":
            return inner if arg.dtype.kind == "bool" else inner.differs(0)
        if isinstance(arg, Constant | Scalar) and dtype.kind == "float":
            return inner
        leaf = dtype.of[0]
        inputs = {tensor.name for tensor in self.op.inputs}
        spelled, compute = self.spelled(leaf), self.compute.text
        if dtype.kind != "float" or not compute:
            return self.scalar_types.converted(arg, inner, spelled)
        if isinstance(resolve(self.op, arg), Size):  # A kernel may be compiled for it.
            inner = tl.full((), inner, "tl.int64")
        if arg.dtype.kind != "float":
            inner = inner.to(compute)
        if spelled == compute or leaf not in {*inputs, *FLOATS}:
            return inner  # The dtype of an input that a gradient does not read is unknown: its value is not rounded.
        # Rounded to the dtype; arithmetic goes on in the compute dtype.
        return inner.to(spelled, compute)

    def call(self, node: Call) -> Expr:
        return self.read_where(node) or self.applied(node)

    def read_where(self, node: Call) -> Expr | None:
        """A `where` between an element and a constant as one masked load; None for any other."""
        before = [*self.pending]
        guard = guard_of(self.op, node, self.expression) if self.guarded else None
        read = self.guarded(guard, self) if self.guarded and guard else None
        self.pending = self.pending if read else before
        return read

    def applied(self, node: Call) -> Expr:
        row = FUNCTIONS[node.function]
        kind = self.kind(row, node)
        template = parse(EXACT[node.function] if node.exact and kind == "float" else row.spelling(kind))
        if node.function == "bitwise_not" and node.args[0].dtype.kind == "any":
            template = parse("invert(x)")
        if node.rounded and kind == "float":
            template = rounded(template)
        uses = [n.id for n in ast.walk(template) if isinstance(n, ast.Name)]
        arguments: dict[str, Expr] = {}
        several = row.accepts in ("number", "any") and isinstance(template, ast.Call)
        takes_tensor = row.accepts == "float" or (several and sum(map(self.scalar_types.is_number, node.args)) > 1)
        for place, arg in enumerate(row.args[: len(node.args)]):
            value = self.typed(node, place, kind, takes_tensor and place == 0, compares(template, arg.name))
            if uses.count(arg.name) > 1 and not isinstance(value.tree, ast.Name | ast.Constant):
                value = self.hoist(arg.name, value)
            arguments[arg.name] = value
        needs_dtype = node.function in ("nan_to_num", "bitwise_not") and node.args[0].dtype.kind in ("float", "any")
        tree = Expr(template).with_names(arguments).tree
        if needs_dtype and isinstance(tree, ast.Call):
            tree = ast.Call(tree.func, [*tree.args, *self.element_types(node.args[0].dtype)], tree.keywords)
        return Expr(tree)

    def typed(self, node: Call, place: int, kind: str, takes_tensor: bool, is_compared: bool) -> Expr:
        """An argument of a call, in a dtype for which the function gives the same as torch's."""
        row, given = FUNCTIONS[node.function], node.args[place]
        if place == self.scalar_types.to_type(row.accepts, node):
            return self.in_compute(given)
        value = self.argument(row, given, node.dtype, kind, first=place == 0)
        is_widened = place == self.integers.widened.get(node)
        if is_widened:
            value = self.scalar_types.converted(given, value, "tl.int64")
        is_tensor = is_widened or given in self.integers.widened
        if takes_tensor and given.dtype.weak and not is_tensor and self.scalar_types.is_number(given):
            # Device functions take no plain scalars.
            return tl.full((), value, self.dtype_of_number(given, kind))
        if self.scalar_types.rounds(given) and is_compared:
            return self.scalar_types.full(value)
        narrower = self.scalar_types.narrower_operands(given, row.accepts, node)
        return self.wrapped(value, narrower) if narrower else value

    def wrapped(self, value: Expr, leaves: Sequence[str]) -> Expr:
        """A constant in the dtype that integers promote to, in which it wraps around if it does not fit."""
        number = tl.full((), value, "tl.int64")
        if self.compute.mode == "promote":
            return number.to(self.compute.text)
        return number.to(self.spelled(leaves[0])) if len(leaves) == 1 else number

    def spelled(self, leaf: str) -> str:
        """The kernel's spelling of a dtype: that `leaf` names, or of the input `leaf`."""
        return self.dtype_of(leaf) if leaf in {tensor.name for tensor in self.op.inputs} else f"tl.{leaf}"

    def dtype_of_number(self, node: Node, kind: str) -> str:
        """The dtype of the tensor that a function takes in place of a plain scalar."""
        if kind == "float":
            return self.compute.text or "tl.float32"
        return "tl.int32" if self.integers.fits_int32(node) else "tl.int64"

    def element_types(self, dtype: Dtype) -> list[ast.expr]:
        """The element type of the inputs that a value is computed from, if it is the same for all; else []."""
        inputs = [tensor for tensor in self.op.inputs if tensor.name in dtype.leaves]
        kinds = {tensor.type.variable or tensor.name for tensor in inputs}
        if len(kinds) != 1 or len(inputs) != len(dtype.leaves):
            return []
        return [expr(self.dtype_of(inputs[0].name)).tree]

    def operand(self, node: Node) -> Expr:
        """An expression to be reduced or named: floats are in the compute dtype, if that may be float64."""
        return self.in_compute(node) if self.compute.is_double and node.dtype.kind == "float" else self.expression(node)

    def in_compute(self, node: Node) -> Expr:
        """A value in the compute dtype."""
        if isinstance(node, Choose) and not self.scalar_types.is_typed(node):
            return self.choose(node, self.in_compute)
        return self.scalar_types.in_compute(node, self.expression(node))

    def kind(self, row: Function, node: Call) -> str:
        if row.accepts == "bool":
            return "bool"
        if row.accepts == "float":
            return "float"
        args = [given for want, given in zip(row.args, node.args, strict=True) if want.required]
        kinds = {arg.dtype.kind for arg in (args[1:] if row.accepts == "where" else args)}
        if "float" in kinds or any(map(self.may_be_float, args)):
            return "float"
        return "int" if kinds & {"int", "any"} else "bool"

    def may_be_float(self, node: Node) -> bool:
        """Whether a value whose dtype is known only at run time may be a float."""
        known = {tensor.name: tensor.type for tensor in self.op.inputs}
        if node.dtype.kind != "any":
            return False
        return any(leaf not in known or known[leaf].may_be_float for leaf in node.dtype.leaves)

    def argument(self, row: Function, node: Node, to: Dtype, kind: str, first: bool) -> Expr:
        value = self.expression(node)
        has = node.dtype.kind
        if row.accepts == "bool" or (row.accepts == "where" and first):
            return value if has == "bool" else value.differs(0)
        if to == INT64 and has == "bool" and node.axes:
            return value.to("tl.int64")
        becomes_float = row.accepts == "float" or (has == "int" and row.result == "float")
        if kind == "float" and has != "float" and becomes_float and not isinstance(node, Constant):
            return self.to_compute(value, node)
        if row.accepts in ("number", "any") and has == "bool" and kind == "float" and node.axes:
            return self.to_compute(value, node)
        return value

    def to_compute(self, value: Expr, node: Node) -> Expr:
        if node.dtype.kind == "any" or isinstance(node, Scalar):
            return value  # A load of any dtype is in the compute dtype already.
        if all(isinstance(inner, Size | Constant | Scalar | Call) for inner in walk(node)):
            return value  # A scalar of lengths alone, which may be a compile-time constant of Triton.
        return value.to(self.compute.text or "tl.float32")  # Math of integers alone has no compute dtype.

    def hoist(self, name: str, value: Expr) -> Expr:
        for line in self.pending:
            is_same = isinstance(line, Let) and line.assigned and line.value == value
            if is_same and line.path == self.path[: len(line.path)]:
                return V[line.assigned]
        new = self.new_name(name)
        self.put(Let(new, value))
        return V[new]

    def optional(self, tensor: Input, value: Access, otherwise: Term) -> Expr:
        """The name of an optional input's loaded value, which is `otherwise` if the input is absent."""
        wanted = self.new_name(tensor.name)
        self.put(*if_given(tensor, wanted, value, otherwise))
        return V[wanted]

    def new_name(self, name: str) -> str:
        done = {line.assigned for line in self.pending}
        return fresh(f"{self.target}_{name}", self.op.names | done)
