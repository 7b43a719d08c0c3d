"""A translated function -> the text of a spec."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ..autodiff.gradient import derive
from ..diagnostics.report import Mistakes, Rejected
from ..lang.ir import Op
from ..lang.reference import reference_mistakes
from ..lang.typecheck import typecheck
from ..spec.read import read_spec
from ..spec.types import AxisTerm
from .axes import Axes, Dims
from .expressions import Apply, Expr, Input, Line, Number, Over, Param, bare, subexpressions, tidy
from .formulas import symbol_of
from .lengths import Computed
from .lines import GENERIC, Lines
from .naming import (
    BATCH,
    Names,
    along,
    axis_names,
    axis_of_variable,
    batch_axes,
    is_complete,
    led,
    reachable,
    wish_by_place,
)
from .originals import reference_lines
from .refusals import Place, Refusal, diagnostic
from .rounding import rounded_dtypes
from .simpler import Simpler
from .targets import Target
from .tracing import Trace
from .translation import Translation
from .values import Value, dtype_class, dtype_name

_OF_NOTHING = ("a result that is computed of no tensor", "a spec has inputs: give what it is computed of as a tensor")


@dataclass(frozen=True, slots=True)
class Imported:
    """A spec, and how its call differs from the original's."""

    text: str
    name: str
    inputs: tuple[str, ...]  # the names of its tensors, in order
    params: Mapping[str, float | int]
    differentiated: tuple[str, ...]
    ones: tuple[tuple[int, ...], ...] = ()  # for each result, the original's dimensions of length 1
    notes: tuple[str, ...] = ()
    axes: Axes = field(default_factory=Axes)
    dims: Mapping[str, Dims] = field(default_factory=dict)  # of inputs
    free: frozenset[int] = frozenset()  # axes of these whose lengths may vary
    positions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # the axes that integers index


class NeedsOnes(Exception):
    """Inputs, by name, whose dimensions of length 1 have to be axes."""


def written(
    target: Target, trace: Trace, scalars: Mapping[str, float | int], name: str, ones: Collection[str] = ()
) -> Imported:
    """The spec of a function, if the language can express each operator. Raises `Rejected` or `Refusal`."""
    translation = Translation(trace, scalars, ones)
    values = translation.run()
    if translation.problems:
        raise Rejected(map(diagnostic, translation.problems))
    if not all(isinstance(one, Value) for one in values):
        raise Refusal("a result that is no tensor")
    if target.is_region and not any(isinstance(bare(one.expr), Apply) for one in values):
        raise Refusal("a part that computes nothing")
    try:
        return _Writer(target, trace, translation, values, name).imported()
    except NeedsOnes as error:
        return written(target, trace, scalars, name, error.args)


class _Writer:
    def __init__(
        self, target: Target, trace: Trace, translation: Translation, values: Sequence[Value], name: str
    ) -> None:
        self.target, self.trace, self.t, self.name = target, trace, translation, name.strip("_")
        while self.name in {*translation.inputs, *translation.params}:
            self.name += "_op"
        self.axes, self.axes_of = translation.axes, translation.axes_of
        self.values = list(values)
        self.exprs = reachable(value.expr for value in values)
        self._find_made_axes()
        simpler = Simpler(self.axes, {one.name for one in trace.arguments if one.wants_gradient})
        self.values = [self._result(value.of(simpler(value.expr))) for value in values]
        self.exprs = reachable(value.expr for value in self.values)
        used = {one.name for one in self.exprs if isinstance(one, Input)}
        self.inputs = {name: value for name, value in translation.inputs.items() if name in used}
        self.declared = {name: translation.declared[name] for name in self.inputs}
        self._equate_lengths()
        self.types = self._types()
        self.computed = Computed(self.axes, translation.lengths)
        self._check_results()
        self.names = self._named()

    def imported(self) -> Imported:
        exprs = [*self.exprs, *reachable(self.computed.of.values())]
        read = {one.name for one in exprs if isinstance(one, Param)}
        params = {one: self.t.params[one] for one in self.t.scalars if one in self.t.params and one in read}
        used = {self.name, *self.inputs, *params, *self.names.of.values(), *self.types.values()}
        wanted = list(zip(self._result_names(), [one.expr for one in self.values], strict=True))
        lines = Lines(wanted, self.names, used, self.inputs)
        tables = {
            "types": [f'{name} = "float"' for name in dict.fromkeys(self.types.values())],
            "inputs": list(self._inputs()),
            "params": [f"{name} = {tidy(repr(value))}" for name, value in params.items()],
            "axes": [*self._equal_axes(), *self.computed.lines(self.names.of)],
            "compute": [f'{name} = "{source}"' for name, source in lines.texts()],
        }
        outputs = dict(zip(lines.results, self.values, strict=True))
        wanting = (one for one in self.trace.arguments if one.wants_gradient and one.tensor.dtype.is_floating_point)
        smooth = [one.name for one in wanting if one.name in self.inputs]
        text, differentiable = self._finished(tables, outputs, smooth)
        return Imported(
            text,
            self.name,
            tuple(self.inputs),
            params,
            tuple(differentiable),
            tuple(tuple(place for place, dim in enumerate(one.dims) if not dim) for one in self.values),
            tuple(self._notes(smooth, differentiable)),
            self.axes,
            {name: tuple(map(self.axes.atoms, dims)) for name, dims in self.declared.items()},
            frozenset(self._all_axes()) - self._stated(),
            dict(self._positions()),
        )

    def _equate_lengths(self) -> None:
        """Equates axes that computed lengths depend on, where the original has one length for both."""
        first: dict[object, int] = {}
        read = self._axes_along(reachable(self.t.lengths.values()))
        for axis in self._all_axes():
            formula = self.axes[axis].formula
            if axis in read and symbol_of(formula) is not None:
                self.axes.equate(first.setdefault(formula, axis), axis)

    def _equal_axes(self) -> Iterable[str]:
        """Lines of [axes] for input axes that must have the same length as an earlier input axis."""
        first: dict[int, int] = {}
        for axis in self._all_axes():
            one = first.setdefault(self.axes.root(axis), axis)
            if one != axis and not self.axes[axis].fixed:
                yield f'{self.names.of[axis]} = "{self.names.of[one]}"'

    def _all_axes(self) -> Sequence[int]:
        return list(dict.fromkeys(axis for dims in self.declared.values() for axis in self.axes.all_atoms(dims)))

    def _stated(self) -> set[int]:
        """The axes with a single length, in the spec or in the original."""
        stated = {axis for axis in self._all_axes() if self.axes[axis].fixed}
        for one in self.trace.arguments:
            for dim, length in zip(self.declared.get(one.name, ()), one.tensor.shape, strict=False):
                if isinstance(length, int) or isinstance(length.node.expr, int):
                    stated |= set(self.axes.atoms(dim))
        return stated

    def _positions(self) -> Iterable[tuple[str, tuple[int, ...]]]:
        """The inputs that `take` uses as indices, and the axes that they index."""
        for one, over in along(self.exprs, self.axes):
            for index in reachable(subexpressions(one)[1:] if one.function == "take" else ()):
                if isinstance(index, Input):
                    yield index.name, over

    def _notes(self, smooth: Sequence[str], differentiable: Sequence[str]) -> Iterable[str]:
        if any(not dim for value in self.values for dim in value.dims):
            yield "a result's dimensions of length 1 are left out"
        for axis, place in self.t.used.items():
            shown = " ".join(self.names.of[one] for one in self.axes.atoms((axis,)) if one in self.names.of)
            if shown:
                length = self.axes.length((axis,))
                yield f"{shown} is always {length}, which is a number to the original, as in a loop ({_where(place)})"
        left = [one for one in smooth if one not in differentiable]
        if left:
            yield f"no gradient by {', '.join(left)}"
        for name, place in self.trace.recording.own_gradients.items():
            own = f"`{name}` has a backward of its own ({_where(place)})"
            yield f"{own}; [grad] is the gradient of its math: --check compares"
        for dtype, where in dict.fromkeys((one.dtype, _where(place)) for one, place in self.trace.recording.limits):
            yield f"a constant is a limit of {dtype}, as in the example ({where})"

    # The text of the spec.

    def _finished(
        self, tables: dict[str, list[str]], outputs: Mapping[str, Value], smooth: Sequence[str]
    ) -> tuple[str, list[str]]:
        """The text, and the inputs with a gradient. Results state orders of axes only if not the default."""
        dtypes = {name: self._dtype(value) for name, value in outputs.items()}
        orders = {name: self._terms(value.dims) for name, value in outputs.items()}
        order = {name: "[" + ", ".join(terms) + "]" if terms else "" for name, terms in orders.items()}
        with suppress(Mistakes):
            op = self._read(tables | {"outputs": [f'{name} = "{dtype}"' for name, dtype in dtypes.items()]})
            for result in op.results:
                if _spelled(op.grouping(result)) == tuple(orders[result.output.name]):
                    order[result.output.name] = ""
        tables = tables | {"outputs": [f'{name} = "{dtypes[name]}{order[name]}"' for name in outputs]}
        try:
            op = self._read(tables)
        except Mistakes as mistakes:
            raise Rejected(diagnostic(Refusal(one.message, one.hint)) for one in mistakes.mistakes) from None
        differentiable = self._differentiable(tables, smooth)
        tables = tables | _gradient(differentiable)
        return self._text(tables | self._reference(tables, op)), differentiable

    def _reference(self, tables: dict[str, list[str]], op: Op) -> dict[str, list[str]]:
        """[reference], a call of the original; none if its float64 result rounds differently or has other constants."""
        lines = reference_lines(self.target, self.trace, self.inputs, self.t.params)
        if not lines or self.trace.recording.limits or rounded_dtypes(op) & {"bfloat16", "float16"}:
            return {}
        found = {"reference": lines}
        return {} if reference_mistakes(read_spec(self.name, self._text(tables | found))) else found

    def _differentiable(self, tables: dict[str, list[str]], smooth: Sequence[str]) -> list[str]:
        """The inputs of `smooth` with respect to which the math has a gradient."""
        found: list[str] = []
        for wrt in (list(smooth), *([one] for one in smooth)):
            if wrt and len(found) < len(smooth) and self._is_differentiable(tables | _gradient([*found, *wrt])):
                found += wrt
        return found

    def _is_differentiable(self, tables: dict[str, list[str]]) -> bool:
        spec = read_spec(self.name, self._text(tables))
        assert spec.grad is not None
        try:
            derive(typecheck(spec), spec.grad)
        except Mistakes:
            return False
        return True

    def _read(self, tables: dict[str, list[str]]) -> Op:
        """The typed math of a spec with these tables. Raises `Mistakes`."""
        return typecheck(read_spec(self.name, self._text(tables)))

    def _text(self, tables: Mapping[str, list[str]]) -> str:
        summary = self.target.summary or f"Imported from {self.target.spelled}."
        escaped = summary.replace("\\", "\\\\").replace('"', '\\"')
        head = [f'name = "{self.name}"', f'summary = "{escaped}"']
        sections = [
            f"[{table}]\n" + "\n".join(lines) for table, lines in ({"op": head} | dict(tables)).items() if lines
        ]
        return f"# {self.target.command}\n" + "\n\n".join(sections) + "\n"

    def _inputs(self) -> Iterable[str]:
        stated: set[int] = set()
        for name, value in self.inputs.items():
            terms = self._terms(self.declared[name], stated)
            dtype = self.types.get(name) or dtype_class(value.dtype)
            yield f'{name} = "{dtype}[{", ".join(terms)}]"'

    def _terms(self, dims: Dims, stated: set[int] | None = None) -> list[str]:
        """Dimensions as terms of a type; given `stated`, with fixed lengths of axes not in it, which are added."""
        batch = self.names.batch
        count = led(self.axes, dims, batch)
        is_led = stated is not None or any(self.axes.atoms(dim) for dim in dims[:count])
        terms = [BATCH] if count and is_led else []
        for dim in dims[count:]:
            atoms = self.axes.atoms(dim)
            shown = []
            for axis in atoms:
                length = ""
                if stated is not None and self.axes[axis].fixed and axis not in stated:
                    length = f"={self.axes.length((axis,))}"
                    stated.add(axis)
                shown.append(self.names.of[axis] + length)
            if shown:
                terms.append(shown[0] if len(shown) == 1 else f"({' '.join(shown)})")
        return terms

    def _dtype(self, value: Value) -> str:
        """The dtype of a result: an input's name if it follows that, a dtype's name, or "auto"."""
        if not value.dtype.is_floating_point:
            return "auto" if value.dtype == value.natural else dtype_name(value.dtype)
        same = [name for name, one in self.inputs.items() if one.dtype == value.dtype]
        shape = [self.axes.atoms(dim) for dim in value.dims]
        same_shape = [name for name in same if [self.axes.atoms(dim) for dim in self.inputs[name].dims] == shape]
        if value.rank and same_shape:
            return same_shape[0]
        if value.dtype != value.natural:
            return dtype_name(value.dtype)
        floats = [one for one in self.inputs.values() if one.dtype.is_floating_point]
        if not value.rank or any(one.dtype != value.dtype for one in floats):
            return "auto"
        return next((name for name in same if self.inputs[name].rank), "auto")

    # Names and checks.

    def _types(self) -> dict[str, str]:
        """The type variables of inputs that a matmul requires to have one dtype, by input."""
        groups: list[set[str]] = []
        for one in self.t.same_dtype:
            names = {name for name in one if name in self.inputs}
            joined = [group for group in groups if group & names]
            groups = [group for group in groups if not group & names] + [names.union(*joined)]
        shared = [group for group in groups if len(group) > 1]
        order = list(self.inputs)
        shared.sort(key=lambda group: min(map(order.index, group)))
        return {name: f"T{place or ''}" for place, group in enumerate(shared) for name in order if name in group}

    def _named(self) -> Names:
        tensors = list(self.declared.values())
        for symbol, variable in self.trace.recording.lengths.items():
            wanted = axis_of_variable(variable)
            with suppress(Refusal):
                self.axes.wish(self.t.dim_of(symbol) if wanted else (), wanted, 1)
        self._fix_groups(tensors)
        wish_by_place(self.axes, tensors)
        roots = Counter(map(self.axes.root, self._all_axes()))
        made = along(self.exprs, self.axes)
        named = {axis for one, atoms in made if not is_complete(one, atoms, self.axes_of) for axis in atoms}
        named |= {axis for axis in self._all_axes() if roots[self.axes.root(axis)] > 1}
        results = [value.dims for value in self.values]
        batch = batch_axes(self.axes, tensors, results, named)
        order = [axis for axis in self._all_axes() if axis not in batch]
        used = {*self.inputs, *self.t.params, *self.types.values()}
        ones = {name for name, dims in self.declared.items() if not all(dims[led(self.axes, dims, batch) :])}
        if ones:
            raise NeedsOnes(*ones)
        of = axis_names(self.axes, [*order, *self.computed.firsts], used)
        of |= self.computed.seconds(of, used)
        return Names(of, batch, self.axes, self.axes_of)

    def _fix_groups(self, tensors: Sequence[Dims]) -> None:
        """Fixes all but the longest axis of each group whose lengths no other dimension determines."""
        alone = {self.axes.atoms(dim)[0] for dims in tensors for dim in dims if len(self.axes.atoms(dim)) == 1}
        for dims in tensors:
            for dim in dims:
                atoms = self.axes.atoms(dim)
                open_ = [axis for axis in atoms if axis not in alone and not self.axes[axis].fixed]
                for axis in sorted(open_, key=lambda one: self.axes.length((one,)))[: max(0, len(open_) - 1)]:
                    self.axes.fix((axis,))
                alone |= set(atoms)

    def _check_results(self) -> None:
        problems: list[Refusal] = []
        read = set(self._all_axes())
        for value, place in zip(self.values, self.t.result_places, strict=True):
            if not self.inputs:
                problems.append(Refusal(*_OF_NOTHING, "TG001", place))
            elif any(self.axes[axis].is_input for axis in self._axes_along(reachable([value.expr])) - read):
                message = "a result that needs a length of a tensor that it does not read"
                problems.append(Refusal(message, "give the length as a number", "TG001", place))
        used = self._used_axes()
        for axis, place in self.t.made:
            missing = [one for one in self.axes.atoms((axis,)) if one in used and not self.axes[one].is_input]
            missing = [one for one in missing if not self.computed.has(one)]
            if missing:
                length = self.axes.length(missing)
                message = f"an axis of length {length} that no input has"
                problems.append(Refusal(message, "every axis of a spec is one of its inputs'", "TG001", place))
                used -= set(missing)
        if problems:
            raise Rejected(map(diagnostic, problems))

    def _axes_along(self, exprs: Iterable[Expr]) -> set[int]:
        """The axes that functions take, as reductions, positions and sizes do."""
        return {axis for _, atoms in along(exprs, self.axes) for axis in atoms}

    def _used_axes(self) -> set[int]:
        """The axes that expressions and results have, or whose sizes the math uses."""
        sizes = (atoms for one, atoms in along(self.exprs, self.axes) if one.function == "size")
        results = (self.axes.all_atoms(value.dims) for value in self.values)
        return set().union(*map(self.axes_of, self.exprs), *sizes, *results)

    def _find_made_axes(self) -> None:
        """Joins each axis that the program makes with an input axis of the same length, unless a value has both."""
        used = self._used_axes()
        known = [axis for value in self.t.inputs.values() for axis in self.axes.all_atoms(value.dims)]
        for axis in [one for made, _ in self.t.made for one in self.axes.atoms((made,))]:
            if self.axes[axis].is_input or axis not in used:
                continue
            for other in known:
                if self.axes.is_as_long(axis, other) and self.axes.may_join(axis, other):
                    self.axes.join((other,), (axis,))
                    break

    def _result(self, value: Value) -> Value:
        """A result as math along all of its axes, as outputs have to be: a plain input becomes `positive(x)`."""
        has = self.axes_of(value.expr)
        expanded = tuple(axis for axis in self.axes.all_atoms(value.dims) if axis not in has)
        if expanded:
            anywhere = Apply("ge", (Apply("index", (Over(expanded),)), Number(0)))
            made = Apply("mul", (bare(value.expr), anywhere))
            return value.of(Line(value.expr.name, made) if isinstance(value.expr, Line) else made)
        if isinstance(bare(value.expr), Apply):
            return value
        return replace(value, expr=Apply("positive", (value.expr,)))

    def _result_names(self) -> list[str]:
        found = list(self.trace.results) or [getattr(value.expr, "name", "") for value in self.values]
        if len(found) != len(self.values):
            found = [""] * len(self.values)
        names: list[str] = []
        for place, name in enumerate(found):
            is_name = name.isidentifier() and name not in GENERIC and name not in names
            names.append(name if is_name else "y" if len(found) == 1 else f"y{place}")
        return names


def _gradient(wrt: Sequence[str]) -> dict[str, list[str]]:
    listed = ", ".join(f'"{one}"' for one in wrt)
    return {"grad": [f"wrt = [{listed}]"]} if wrt else {}


def _where(place: Place) -> str:
    return f"{os.path.basename(place.path)}:{place.line}"


def _spelled(terms: Sequence[AxisTerm]) -> tuple[str, ...]:
    return tuple(term.names[0] if len(term.names) == 1 else f"({' '.join(term.names)})" for term in terms)
