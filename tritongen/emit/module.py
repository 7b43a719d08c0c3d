"""Op -> the views of its generated modules: everything that a template prints, ready as text."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..lang.formulas import may_be_negative
from ..lang.ir import Formula, Op, Result, Value
from ..lang.literals import prose
from ..lang.names import in_string, public, shown
from ..lang.trees import parse, walk
from ..lang.unparse import spelled
from ..lowering.axes import lengths
from ..lowering.lower import Compute
from ..lowering.space import Space
from ..lowering.views import Field, Kernel
from ..nest.values import Expr, Term, V, expr, quoted, runtime, tensors
from ..passes.scalars import host_scalars, passed_scalars
from ..passes.structure import Program
from ..spec.types import BATCH
from .configs import Traffic
from .format import LONGEST, wrapped
from .host import Host
from .host_checks import IS_FAKE, constants, once, returned_types
from .statements import Allocate, Do, If, Length, Let, Return, Statement, call, called, finished, in_place

# The lookup of an earlier launch with like arguments, and the call that replays it; None where launches are not reused.
Known = tuple[Expr, Expr] | None
NO_TRAFFIC = Traffic(frozenset())
OF_BLOCKS = ("VECTOR", "UNIFORM")  # constants of kernels that follow from their blocks of columns


@dataclass(frozen=True, slots=True)
class Module:
    """The view that templates have of the kernels of a program and of the function that launches them."""

    view: dict[str, Any]
    traffic: Traffic
    steps: tuple[Module, ...] = ()  # the modules of the functions that it calls
    gluon: tuple[Kernel, ...] = ()  # the kernel in Gluon, after the functions that it calls
    unread: frozenset[str] = frozenset()  # flags that the function does not read

    @property
    def every(self) -> Iterator[Module]:
        """This module, and those of the functions that it calls."""
        yield self
        for step in self.steps:
            yield from step.every

    @property
    def gluon_kernels(self) -> list[Kernel]:
        return [kernel for one in self.every for kernel in one.gluon]

    @property
    def called(self) -> frozenset[str]:
        """The functions that its function calls, including the runtime's launches."""
        return called(self.view["body"])

    @property
    def launches(self) -> list[tuple[Traffic, str]]:
        """The traffic of each function, its own and called ones, by which it is configured, and its tables' suffix."""
        return [(one.traffic, one.view["tables"]) for one in self.every]


@dataclass(frozen=True, slots=True)
class Around:
    """The function that launches the kernels: its name, its further arguments, and who writes its lines."""

    function: str
    extra: tuple[str, ...] = ()
    tables: str = ""  # the suffix of its tables in configs.py
    host: Callable[..., Host] = Host
    register: str = "none"
    is_gradient: bool = False
    before: int = 0  # how many earlier tables have the same suffix with a number
    forward: Program | None = None  # of a gradient whose operator has a function for it, which the gradient may call

    def wrapped(self, kernel: Term) -> Expr | None:
        """A kernel that torch has to see launched, wrapped; else nothing."""
        return call("library.wrap_triton", kernel) if self.register == "triton_op" else None


class Common:
    """The common base of the modules of all families."""

    def __init__(
        self,
        program: Program,
        autotune: bool,
        space: Space,
        compute: Compute,
        kernels: list[Kernel],
        around: Around,
    ) -> None:
        self.program, self.op = program, program.op
        # A kernel that overwrites its input would read other values when it is timed again.
        self.autotune = autotune and not any(result.over for result in program.op.results)
        self.host = around.host(program.op, space, compute, around.function, around.extra)
        self.outer = self.host  # as callers see the operator
        self.around, self.tables = around, around.tables
        self.space, self.compute, self.kernels = space, compute, kernels

    def built(self, body: Iterable[Statement], traffic: Traffic = NO_TRAFFIC, **extra: Any) -> Module:
        """The module of a function with the statements `body`; `extra` is added to the view of templates."""
        outer = self.outer
        op, known = outer.op, constants(outer.op)
        tensors, params = outer.tensor_fields(), outer.param_fields()
        results = outer.result_fields()
        view = {
            "name": op.name,
            "function": self.around.function,
            "arguments": ", ".join(op.arguments),
            "summary": _sentence(op),
            "formula": [line for one in said(op) for line in formula(one)],
            "notes": (),
            "also_raises": (),
            "signature": ", ".join([*map(_declared, tensors), *(["*"] if params else []), *map(_declared, params)]),
            "returns": returned_types(*[False] * len(results)),
            "fields": [*tensors, *params],
            "results": results,
            "raises": raises(op),
            "body": finished(body, (*op.arguments, *known, *outer.extra)),
            "constants": known,
            "tables": self.tables,
            "also_untyped": "",
            "registration": None,
            "kernels": tuple((kernel.name, kernel.doc) for kernel in self.kernels),
            "nests": self.kernels,
            "gradient": None,
            "steps": (),
            "inline": (),
        }
        return Module(view | extra, traffic)

    # Statements of functions

    @property
    def returned(self) -> Term:
        return self.host.result()

    def function(
        self, launches: Iterable[Statement], known: Known = None, between: Iterable[Statement] = ()
    ) -> list[Statement]:
        """The statements of most functions; those `between` come after results are allocated and before launches."""
        fake = [If(IS_FAKE, (Return(self.returned),))] if IS_FAKE in self.around.extra else []
        start = [*self.begun(known), *self.allocated(), *self.again(known), *between, *fake]
        return [*start, Length("index", self.index()), *self.launched(launches)]

    def begun(self, known: Known = None) -> list[Statement]:
        """It looks up a call like this one, checks arguments, and unpacks shapes."""
        refusals, shapes = tuple(self.outer.checks()), self.unpacked()
        scalars = [Length(scalar.name, Expr(scalar.tree)) for scalar in host_scalars(self.op).values()]
        if known is None:
            return [*refusals, *shapes, *scalars]
        first = [If(V.replay.is_none, refusals)] if refusals else []
        return [Let(("key", "replay"), known[0]), *first, *once(shapes), *scalars]

    def unpacked(self) -> list[Statement]:
        return self.outer.shapes()

    def allocated(self) -> list[Statement]:
        wide = [Let("compute", self.host.compute_value())] if self.host.allocates_wide() else []
        return [*wide, *(Allocate(result.output.name, self.memory(result)) for result in self.op.results)]

    def memory(self, result: Result) -> Expr:
        return self.host.made(result)

    def again(self, known: Known) -> list[Statement]:
        """Replays the launches of an earlier call with like arguments."""
        return [If(V.replay.is_given, (Do(known[1]), Return(self.returned)))] if known else []

    def nothing_for(self, is_empty: Expr | None, *before: Statement) -> list[Statement]:
        """Nothing is launched for no elements."""
        return [If(is_empty, (*before, Return(self.returned)))] if is_empty else []

    def launched(self, launches: Iterable[Statement]) -> list[Statement]:
        """The launches, after which the function returns its results, and the dtype to compute in, if they read it."""
        found = tuple(launches)
        if not self.host.allocates_wide():
            found = in_place(Length("compute", self.host.compute_value()), found)
        return [*found, Return(self.returned)]

    def index(self) -> Expr:
        return tensors.index_dtype(*(name for name in self.op.tensors if name not in self.op.by_row))

    @property
    def knows(self) -> bool:
        """Whether calls replay earlier launches: not those of registered operators, which torch must see, nor with a
        search, which launches several, nor if a result takes the memory of an input, which may differ another time.
        """
        in_place = any(result.over for result in self.op.results)
        return self.around.register == "none" and not self.autotune and not in_place

    def arguments(self, kernel: Kernel) -> tuple[tuple[str, ...], tuple[Expr, ...], tuple[str, ...]]:
        """The arguments of a kernel: tensors, integers and params, in this order."""
        passed = [one.value.text for one in kernel.arguments]
        tensors = tuple(one.value.text for one in kernel.arguments if one.spelling == f"{one.value}_ptr")
        params = tuple(name for name in passed if name in passed_scalars(self.op))
        integers = kernel.passed[len(tensors) : len(passed) - len(params)]
        assert [*tensors, *map(str, integers), *params] == passed
        return tensors, integers, params

    def constants_of(self, kernel: Kernel, index: Expr | None = None) -> dict[str, Expr]:
        """The constexprs of a kernel without its tiles; with an `index` dtype, if the runtime does not pass one."""
        names = [name for name in kernel.constexprs if name not in OF_BLOCKS]
        return {in_string(name): self.constant(name) for name in names} | ({"INDEX": index} if index else {})

    def launcher(self, kernel: Kernel) -> Expr:
        """The kernel as it is launched; in a triton_op it is wrapped, so that torch sees the launch."""
        own = V.kernels.field(kernel.name)
        return self.around.wrapped(own) or own

    def table_of(self, kind: str) -> Expr:
        """A table of configs.py, by its kind."""
        return V.configs.field(f"{kind}{self.tables}")

    @property
    def key(self) -> Term:
        """The key by which the runtime finds an earlier launch with like arguments."""
        return "key" if self.knows else None

    def alignment(self) -> Expr:
        """The alignment of the lengths of rows, determined by the tensors that have rows and columns."""
        tiles = [name for name, axes, _ in self.host.moving(self.space.cols) if self.space.steps(axes, self.space.rows)]
        return tensors.alignment(*tiles)

    def constant(self, name: str) -> Expr:
        """The host's expression for a constexpr of a kernel."""
        return self.alignment() if name == "ALIGN" else V["compute" if name == "COMPUTE" else name]

    def known(self, kernel: Kernel, *sums: str) -> Known:
        """The lookup and the replay of a kernel's launch; `sums` are partial sums, for which a replay needs memory."""
        if not self.knows:
            return None
        tensors, params = self.given(kernel)
        return (self.lookup(), call("replay", (*tensors, *sums), *filter(None, [params])))

    def given(self, kernel: Kernel) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The tensors and params of a kernel that the function is given or makes."""
        tensors, _, params = self.arguments(kernel)
        return tuple(name for name in tensors if name in self.op.tensors), params

    def lookup(self, *more: Term) -> Expr:
        """The lookup of the launch of an earlier call with like arguments."""
        settings: list[Term] = []
        for one in self.op.params:  # A launch depends only on the type of an unlimited float.
            settings += [runtime.type(one.name), *([one.name] if one.kind != "float" or _limited(one) else [])]
        inputs = tuple(tensor.name for tensor in self.op.inputs)
        return call("launch.lookup", quoted(self.around.function), inputs, *settings, *more, *self.around.extra)

    def searched(self, kernel: Kernel | None, candidates: str) -> Kernel | None:
        """The kernel, its configurations left to @triton.autotune where the spec asks for that."""
        if kernel is None or not self.autotune:
            return kernel
        sizes = [name for name in ("n", "n_rows", "n_cols") if name in kernel.names]
        key = ", ".join(f'"{name}"' for name in sizes)
        return replace(kernel, search=f"{candidates}{self.tables}", search_key=f"[{key}]")


def is_empty(axes: tuple[str, ...]) -> Expr | None:
    """Whether some axes have a length of 0; None where there are none."""
    if len(axes) == 1 and axes != (BATCH,):
        return V[axes[0]].equals(0)
    return expr(0).is_in("batch" if axes == (BATCH,) else lengths(axes)) if axes else None


def docstring_values(op: Op) -> list[Value]:
    """The lines of a docstring: those of [compute] or of a gradient, results, and other values that these name.

    A line that names what a step does not have is written as the step computes it.
    """
    axes = {*op.axes, *dict(op.sizes)}.union(*(tensor.type.axes for tensor in op.inputs))
    known = {shown(name) for name in op.names | axes}
    found: list[Value] = []
    named = {shown(result.output.name) for result in op.results}
    for value in reversed(op.values):
        if value.source or shown(value.name) in named:
            own = spelled(value.node)
            text = value.source if value.source and _names(value.source) <= known | _names(own) else own
            found.insert(0, replace(value, source=text))
            named |= _names(text)
    return found


def _names(text: str) -> set[str]:
    """The names in an expression, but for functions."""
    nodes = walk(parse(f"(\n{shown(text)}\n)"))
    functions = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in functions}


def formula(line: Value | Formula, width: int = LONGEST) -> list[str]:
    """The lines of a docstring that give a line of [compute], or a length of [axes]."""
    name = line.name if isinstance(line, Value) else line.axis
    return [prose(text) for text in wrapped(shown(f"{name} = {line.source}"), width=width)]


def said(op: Op) -> list[Value | Formula]:
    """The lines of an operator's docstring: its lengths, and its math."""
    return [*op.formulas, *(value for value in op.values if value.source)]


def raises(op: Op) -> str:
    """The further reasons for a ValueError, as text."""
    length = ", or a length that would be negative" if any(may_be_negative(op, one) for one in op.formulas) else ""
    return length + (", or a param out of its range" if any(_limited(p) for p in op.params) else "")


def _declared(field: Field) -> str:
    """An argument as the signature of the public function has it."""
    return f"{public(field.name)}: {field.annotation}{f' = {field.default}' if field.default else ''}"


def _sentence(op: Op) -> str:
    text = prose(" ".join(op.summary.split())) or f"The operator {op.name}"
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _limited(param: Any) -> bool:
    return bool(param.choices) or param.minimum is not None or param.maximum is not None
