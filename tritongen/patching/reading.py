"""Canonical forms of a spec, and of the expressions that importing translates a trace to."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..importing.axes import Axes
from ..importing.expressions import KEEPS_AXES, Apply, Expr, Input, Line, Number, Over, Word
from ..lang.functions import OPERATORS
from ..lang.ir import Scan, ScatterSum, walk
from ..lang.literals import literal
from ..lang.reductions import REDUCTIONS
from ..lang.syntax import CONSTANTS, SYMBOLS, Text
from ..lang.typecheck import typecheck
from ..spec.types import BATCH, FLOATS, Spec
from .forms import Form, Forms, within

_ALONG = frozenset(REDUCTIONS) | KEEPS_AXES
_VALUES = {"cast": 1, "index": 0, "size": 0, "take": 2}  # number of arguments before axes and dtypes


@dataclass(frozen=True, slots=True)
class Operator:
    """One form of a spec with one result, for a choice of absent optional inputs and of params with fixed values."""

    spec: Spec
    form: Form
    result: tuple[tuple[str, ...], ...]  # the axes of each dimension of the result
    inputs: Mapping[str, tuple[tuple[str, ...], ...]]  # and of each input that is present
    axis_ids: Mapping[str, int]  # the ids of axes in forms, by axis name
    lengths: Mapping[str, int]  # of axes with a fixed length
    params: Mapping[str, object]  # with a fixed value in this form
    functions: frozenset[str]


def operators(spec: Spec) -> Iterator[Operator]:
    """The forms of a spec, the most general first. Raises `Mistakes`.

    None for specs with several results, `[axes]`, sorting, sums by index or recurrences: these are not matched.
    """
    op = typecheck(spec)
    nodes = (node for value in op.values for node in walk(value.node))
    has_others = any(isinstance(node, Scan | ScatterSum) and node.kind not in _ALONG for node in nodes)
    if len(spec.outputs) != 1 or spec.computed or has_others:
        return
    (result,) = op.results
    shape = tuple(term.names for term in op.grouping(result))
    optional = [one.name for one in spec.inputs if one.default is not None]
    choices = [one.name for one in spec.params if one.kind in ("bool", "enum")]
    values = [_values(spec, name) for name in choices]
    defaults = {one.name: one.default for one in spec.params if one.default is not None}
    plain = {name: value for name, value in defaults.items() if name not in choices}
    for count in range(len(optional) + 1):
        for absent in itertools.combinations(optional, count):
            for chosen in itertools.product(*values):
                for fixed in [{}, plain] if plain else [{}]:
                    yield _operator(spec, shape, absent, dict(zip(choices, chosen, strict=True)) | fixed)


def _values(spec: Spec, name: str) -> Sequence[object]:
    param = next(one for one in spec.params if one.name == name)
    return param.choices or (False, True)


def _operator(
    spec: Spec, shape: tuple[tuple[str, ...], ...], absent: Sequence[str], params: Mapping[str, object]
) -> Operator:
    reader = _Reader(spec, absent, params)
    form = reader.result()
    inputs = {one.name: tuple(term.names for term in one.type.shape) for one in spec.inputs if one.name not in absent}
    return Operator(spec, form, shape, inputs, reader.axis_ids, reader.lengths, params, functions_of(form))


def functions_of(form: Form) -> frozenset[str]:
    """The functions in a form (`sqrt` as `rsqrt`), except `reciprocal` and `logical_not`, which equal math may lack."""
    found = frozenset("rsqrt" if one.kind == "sqrt" else one.kind for one in within(form) if one.args)
    return found - {"reciprocal", "logical_not"}


class _Reader:
    """The lines of a spec as forms."""

    def __init__(self, spec: Spec, absent: Sequence[str], params: Mapping[str, object]) -> None:
        self.axis_ids: dict[str, int] = {}
        self.lengths: dict[str, int] = {}
        self._params = params
        for tensor in spec.inputs:
            for term in tensor.type.shape:
                for name, size in zip(term.names, term.sizes, strict=True):
                    self.axis_ids.setdefault(name, len(self.axis_ids))
                    self.lengths |= {name: size} if size is not None else {}
        by_number = {self.axis_ids[name]: length for name, length in self.lengths.items()}
        self.forms = Forms(lambda axis: by_number.get(axis, 0))
        self._names: dict[str, Form] = {}
        for tensor in spec.inputs:
            axes = [self.axis_ids[name] for term in tensor.type.shape for name in term.names]
            default = tensor.default if tensor.name in absent else None
            form = self.forms.input(tensor.name, axes) if default is None else self.forms.number(default)
            self._names[tensor.name] = form
        for param in spec.params:
            self._names[param.name] = self._param(param.name)
        self._lines = {one.name: one.expression for one in spec.compute}
        self._output = spec.outputs[0].name

    def _param(self, name: str) -> Form:
        given = self._params.get(name)
        return self.forms.number(given) if isinstance(given, int | float) else self.forms.param(name)

    def result(self) -> Form:
        for name, line in self._lines.items():
            self._names[name] = self._read(Text(line).parse())
        return self._names[self._output]

    def _read(self, tree: ast.expr) -> Form:
        if isinstance(tree, ast.Name):
            return self._names[tree.id] if tree.id in self._names else self.forms.number(CONSTANTS[tree.id])
        if isinstance(tree, ast.Constant) and isinstance(tree.value, int | float):
            return self.forms.number(tree.value)
        if isinstance(tree, ast.BinOp | ast.UnaryOp):
            args = [tree.left, tree.right] if isinstance(tree, ast.BinOp) else [tree.operand]
            return self.forms.call(OPERATORS[SYMBOLS[type(tree.op)]], [self._read(one) for one in args])
        if isinstance(tree, ast.BoolOp):
            name = "logical_and" if isinstance(tree.op, ast.And) else "logical_or"
            made = [self._read(one) for one in tree.values]
            return made[0] if len(made) == 1 else self.forms.call(name, made)
        if isinstance(tree, ast.Compare):
            return self._compared(tree)
        if isinstance(tree, ast.IfExp):
            return self.forms.where(*(self._read(one) for one in (tree.test, tree.body, tree.orelse)))
        assert isinstance(tree, ast.Call)
        return self._called(tree)

    def _compared(self, tree: ast.Compare) -> Form:
        if isinstance(tree.comparators[0], ast.Constant) and isinstance(tree.comparators[0].value, str):
            assert isinstance(tree.left, ast.Name)
            is_chosen = self._params.get(tree.left.id) == tree.comparators[0].value
            return self.forms.number(is_chosen == isinstance(tree.ops[0], ast.Eq))
        values = [self._read(one) for one in (tree.left, *tree.comparators)]
        pairs = [
            self.forms.call(OPERATORS[SYMBOLS[type(op)]], [one, other])
            for op, one, other in zip(tree.ops, values, values[1:], strict=False)
        ]
        made = pairs[0]
        for pair in pairs[1:]:
            made = self.forms.call("logical_and", [made, pair])
        return made

    def _called(self, tree: ast.Call) -> Form:
        assert isinstance(tree.func, ast.Name)
        name = tree.func.id
        count = 1 if name in _ALONG else _VALUES.get(name, len(tree.args))
        names = [BATCH if isinstance(one, ast.Constant) else ast.unparse(one) for one in tree.args[count:]]
        args = [self._read(one) for one in tree.args[:count]]
        if name == "cast":
            return applied(self.forms, name, args, words=names)
        over = [self.axis_ids[one] for one in names]
        options = [(one.arg or "", self._read(one.value)) for one in tree.keywords]
        return applied(self.forms, name, args, over, options=options)


class ExprForms:
    """The forms of a window of a trace."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        self.forms = Forms(lambda axis: axes.length((axis,)) if axes[axis].fixed else 0)
        self._known: dict[int, tuple[Expr, Form]] = {}

    def __call__(self, expr: Expr) -> Form:
        if id(expr) not in self._known:
            self._known[id(expr)] = expr, self._of(expr)
        return self._known[id(expr)][1]

    def _of(self, expr: Expr) -> Form:
        if isinstance(expr, Line):
            return self(expr.expr)
        if isinstance(expr, Input):
            return self.forms.input(expr.name, self._axes.all_atoms(expr.dims))
        if isinstance(expr, Number):
            return self.forms.number(expr.value)
        if not isinstance(expr, Apply):
            return self.forms.param(expr.name)
        return self._applied(expr)

    def _applied(self, expr: Apply) -> Form:
        over = [axis for one in expr.args if isinstance(one, Over) for axis in self._axes.atoms(one.dim)]
        words = [one.text for one in expr.args if isinstance(one, Word)]
        args = [self(one) for one in expr.args if not isinstance(one, Over | Word)]
        options = [(one, self(value)) for one, value in expr.options]
        return applied(self.forms, expr.function, args, over, words, options)


def applied(
    forms: Forms,
    name: str,
    args: Sequence[Form],
    over: Sequence[int] = (),
    words: Sequence[str] = (),
    options: Sequence[tuple[str, Form]] = (),
) -> Form:
    """The form of a function of the language, with axes (`over`), dtypes (`words`) and options."""
    if name == "cast" and words[0] in FLOATS:
        return args[0]
    if name in ("index", "size"):
        return forms.index(over) if name == "index" else forms.size(over)
    if name == "take":
        return forms.take(args[0], args[1], over, *(value for _, value in options))
    if name in _ALONG:
        usual = REDUCTIONS[name].keywords if name in REDUCTIONS else ()
        known = dict[str, object](usual) | {one: value.data for one, value in options}
        return forms.reduced(name, args[0], frozenset(over) or args[0].axes, tuple(known.values()))
    named: list[tuple[str, object]] = [(one, literal(value.data)) for one, value in options]
    named += [("over", tuple(over))] if over else []  # For sorting and sums by index, which no spec's form has.
    return forms.call(name, args, [*named, *(("dtype", one) for one in words)])
