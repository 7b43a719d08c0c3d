"""Symbolic lengths for torch without sympy: nodes of SymInt, and stand-ins for torch's functions of these."""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import reduce
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from .formulas import (
    COMPUTED,
    NEGATED,
    Applied,
    Expr,
    Formula,
    Symbol,
    applied_of,
    exact_quotient,
    lower_bound,
    made,
    made_of_floats,
    of_symbol,
    reduced,
    replaced,
    solved,
    symbols_of,
    value,
)

_BOOLS = frozenset("eq ne lt le gt ge and or not".split())


class OfValues(Exception):
    """The computation depends on values of a tensor, which a trace does not have."""


class Lengths:
    """The symbolic lengths of a trace, and the known relations among them: equal lengths, and multiples.

    Torch takes it for its ShapeEnv.
    """

    settings = var_to_range = None
    fake_tensor_cache_enabled = False
    allow_scalar_outputs = allow_dynamic_output_shape_ops = True

    def __init__(self) -> None:
        self.hints: dict[Symbol, Any] = {}  # in the example; None if data-dependent
        self._known: dict[Any, Expr] = {}  # formulas that equal symbols or exact quotients
        self.pending_fresh_unbacked_symbols: list[Any] = []
        self.suppress_guards = self.ignore_fresh_unbacked_symbols = nullcontext

    def new(self, hint: int | None) -> Any:
        symbol = Symbol(len(self.hints))
        self.hints[symbol] = hint
        return Node(self, of_symbol(symbol), hint, int).symbolic()

    def node(self, expr: Expr) -> Node:
        """The node of a formula or of a constant."""
        hint = None if any(self.hints[one] is None for one in symbols_of(expr)) else value(expr, self.hints)
        return Node(self, expr, hint, int if isinstance(expr, Formula | int) else float)

    def create_unbacked_symint(self, *_: Any, **__: Any) -> Any:
        return self.new(None)

    def create_unbacked_symfloat(self, *_: Any, **__: Any) -> Any:
        return self.new(None).node.sym_float().symbolic()

    def create_unbacked_symbool(self, *_: Any, **__: Any) -> Any:
        return self.new(None).node.eq(self.new(None).node).symbolic()

    def current(self, expr: Expr) -> Expr:
        """A formula with all known relations substituted."""
        if not self._known or not isinstance(expr, Formula | Applied):
            return expr
        before = None
        while expr != before:
            before, expr = expr, replaced(expr, self._known)
        return expr

    def assume(self, relation: Expr, holds: bool) -> None:
        """Records the relations of lengths that follow from a condition's outcome."""
        if not isinstance(relation, Applied):
            return
        function, args = relation.function, relation.args
        if function == "not":
            self.assume(args[0], not holds)
        elif (function, holds) in (("and", True), ("or", False)):
            for one in args:
                self.assume(one, holds)
        elif (function, holds) in (("eq", True), ("ne", False)):
            self._equate(*map(self.current, args))

    def _equate(self, one: Expr, other: Expr) -> None:
        rest = applied_of(one)
        if rest is not None and rest.function == "remainder" and other == 0:
            exact = exact_quotient(*rest.args)
            if exact is not None:
                for args in (rest.args, reduced(*rest.args)):  # Quotients are written without common factors.
                    self._known[Applied("remainder", args)] = 0
                    self._known[Applied("floor_divide", args)] = exact
            return
        found = solved(one, other)
        if found is not None:
            self._known[found[0]] = found[1]


class Node:
    """The node of a SymInt, SymFloat or SymBool: a formula, and its value at the example's lengths."""

    def __init__(self, lengths: Lengths, expr: Expr, hint: Any, kind: type) -> None:
        self.shape_env, self.written, self.pytype = lengths, expr, kind
        self.hint = hint if self.is_symbolic() else expr

    @property
    def expr(self) -> Expr:
        return self.shape_env.current(self.written)

    _expr = expr

    def symbolic(self) -> Any:
        return (torch.SymInt if self.is_int() else torch.SymFloat if self.is_float() else torch.SymBool)(self)

    def clone(self) -> Node:
        return self

    def has_hint(self) -> bool:
        return self.hint is not None

    def is_symbolic(self) -> bool:
        return not self.is_constant()

    def is_constant(self) -> bool:
        return not isinstance(self.written, Formula | Applied)

    def is_nested_int(self) -> bool:
        return False

    def is_bool(self) -> bool:
        return self.pytype is bool

    def is_int(self) -> bool:
        return self.pytype is int

    def is_float(self) -> bool:
        return self.pytype is float

    def maybe_as_int(self) -> int | None:
        found = self.expr
        return found if isinstance(found, int) else None

    maybe_as_bool = maybe_as_float = maybe_as_int
    nested_int = constant_int = constant_bool = lambda self: None
    constant = None

    def wrap(self, number: Any) -> Node:
        return Node(self.shape_env, number, number, type(number))

    wrap_int = wrap_float = wrap_bool = wrap

    def require_hint(self, *_: Any, **__: Any) -> Any:
        if self.hint is None:
            raise OfValues
        return self.hint

    def number(self, *_: Any) -> Any:
        """The value, for a program that needs a Python number: an integer is fixed to the example's."""
        found = self.require_hint()
        if self.is_int():
            self.shape_env.assume(Applied("eq", (self.expr, found)), True)
        return found

    guard_int = guard_float = int_ = number

    def condition(self, *_: Any) -> bool:
        """Whether a condition holds; records the relations that follow."""
        if not self.has_hint() and _is_known(self.expr):
            return True
        if not self.has_hint() and _is_known(_negated(self.expr)):
            return False
        found = bool(self.require_hint())
        self.shape_env.assume(self.expr, found)
        return found

    guard_bool = bool_ = guard_size_oblivious = expect_true = expect_size = condition

    def guard_or_false(self, *_: Any) -> bool:
        return self.has_hint() and self.condition()

    def guard_or_true(self, *_: Any) -> bool:
        return not self.has_hint() or self.condition()

    def statically_known_true(self, *_: Any) -> bool:
        return _is_known(self.expr)

    def str(self) -> str:
        return str(self.expr)

    _graph_repr = __str__ = str

    def sym_sum(self, nodes: Any) -> Any:
        return reduce(lambda one, other: _node("add", None, one, other), nodes)

    def sym_float(self) -> Node:
        return self if self.is_float() else _node("to_float", float, self)

    def sym_int(self) -> Node:
        return self if self.is_int() else _node("to_int", int, self)


def _is_known(relation: Expr) -> bool:
    """Whether a condition holds for any lengths."""
    if not isinstance(relation, Applied):
        return bool(relation)
    if relation.function in ("and", "or"):
        return (all if relation.function == "and" else any)(map(_is_known, relation.args))
    if relation.function == "not" or any(isinstance(one, float | Applied) for one in relation.args):
        return False
    one, other = relation.args
    more, less = lower_bound(made("sub", one, other)), lower_bound(made("sub", other, one))
    match relation.function:
        case "eq":
            return bool(one == other)
        case "ne":
            return any(bound is not None and bound > 0 for bound in (more, less))
        case "ge" | "gt":
            return more is not None and (more > 0 or (more == 0 and relation.function == "ge"))
    return less is not None and (less > 0 or (less == 0 and relation.function == "le"))


def _negated(relation: Expr) -> Expr:
    if isinstance(relation, Applied) and relation.function in NEGATED:
        return Applied(NEGATED[relation.function], relation.args)
    return Applied("not", (relation,))


def _node(function: str, kind: type | None, *nodes: Node) -> Node:
    """A function of nodes: of integers in canonical form, of floats as written."""
    lengths = nodes[0].shape_env
    exprs = [one.expr for one in nodes]
    hints = [one.hint for one in nodes]
    hint = None if None in hints else COMPUTED[function](*hints)
    kind = kind or (float if any(one.is_float() for one in nodes) else int)
    if function in _BOOLS:
        relation = Applied(function, tuple(exprs))
        is_open = any(isinstance(one, Formula | Applied) for one in exprs)
        return Node(lengths, True if _is_known(relation) else relation if is_open else bool(hint), hint, bool)
    expr = (made if kind is int else made_of_floats)(function, *exprs)
    return Node(lengths, lengths.current(expr), hint, kind)


def _method(function: str, kind: type | None) -> Callable[..., Node]:
    return lambda self, *others: _node(function, kind, self, *others)


_METHODS: dict[type | None, str] = {  # by result type (None: the operands' type), as `method:function` if names differ
    None: "add sub mul neg pow floordiv:floor_divide int_floordiv:floor_divide mod:remainder sym_min:minimum "
    "sym_max:maximum pow_by_natural:pow",
    bool: "eq ne lt le gt ge and_:and sym_and:and or_:or sym_or:or sym_not:not",
    float: "truediv:div int_truediv:div float_truediv:div float_pow:pow sym_exp:exp sym_log:log",
    int: "floor ceil trunc:to_int",
}
for _kind, _names in _METHODS.items():
    for _name, _, _function in (one.partition(":") for one in _names.split()):
        setattr(Node, _name, _method(_function or _name, _kind))
Node.sym_sqrt = lambda self: _node("pow", float, self, self.wrap(0.5))  # type: ignore[attr-defined]


# Names that torch's shape functions import from torch.fx.experimental.symbolic_shapes, which imports sympy.


def _asked(method: str) -> Callable[..., Any]:
    return lambda one, *_, **__: getattr(one.node, method)() if isinstance(one, _SYMBOLIC) else bool(one)


def _is_symbolic(one: Any) -> bool:
    return isinstance(one, _SYMBOLIC) and one.node.is_symbolic()


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _hint(one: Any, *_: Any, **__: Any) -> Any:
    return one.node.require_hint() if isinstance(one, _SYMBOLIC) else one


def _number(one: Any, *_: Any, **__: Any) -> Any:
    return (one.node.condition if one.node.is_bool() else one.node.number)() if isinstance(one, _SYMBOLIC) else one


def _equal(one: Any, other: Any) -> Any:
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and _all(*map(_equal, one, other))
    return one == other


def _all(*given: Any) -> Any:
    return reduce(operator.and_, given, True)


_SYMBOLIC = torch.SymInt | torch.SymFloat | torch.SymBool
_NAMES: dict[str, Any] = {
    **dict.fromkeys(("expect_true", "guard_bool", "guard_size_oblivious"), _asked("condition")),
    **dict.fromkeys(("size_hint", "optimization_hint", "guarding_hint_or_throw"), _hint),
    **dict.fromkeys(("guard_int", "guard_float", "guard_scalar"), _number),
    **dict.fromkeys(("has_hint", "has_guarding_hint"), lambda one: not _is_symbolic(one) or one.node.has_hint()),
    **dict.fromkeys(("is_nested_int", "has_free_unbacked_symbols"), lambda *_: False),
    **dict.fromkeys(("constrain_range", "_constrain_range_for_size", "compute_unbacked_bindings"), _nothing),
    **{name: _asked(name) for name in ("guard_or_false", "guard_or_true", "statically_known_true")},
    "free_unbacked_symbols": lambda *_: set(),
    **dict.fromkeys(("has_free_symbols", "is_symbolic"), _is_symbolic),
    "sym_and": _all,
    "sym_or": lambda *given: reduce(operator.or_, given, False),
    "sym_eq": _equal,
    "GuardOnDataDependentSymNode": OfValues,
}


class Unused:
    """A class that torch imports but does not use, because these lengths are not its own symbols."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


_NAMES |= dict.fromkeys(("DimDynamic", "ShapeEnv", "StatelessSymbolicContext", "SubclassSymbolicContext"), Unused)


class StandIn(ModuleType):
    """A stand-in for a module that is slow to import; names that it lacks, for another torch, import the module."""

    def __init__(self, name: str, **names: Any) -> None:
        super().__init__(name)
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        ours = {key: one for key, one in sys.modules.items() if isinstance(one, StandIn)}
        for key in ours:
            del sys.modules[key]
        sys.modules.update(_IMPORTED)
        try:
            return getattr(importlib.import_module(self.__name__), name)
        finally:
            _IMPORTED.update({key: sys.modules[key] for key in ours if key in sys.modules})
            sys.modules.update(ours)


_IMPORTED: dict[str, Any] = {}  # the actual modules of stand-ins, once imported
_STAND_INS: Sequence[StandIn] = (
    StandIn("torch.fx.experimental.symbolic_shapes", **_NAMES),
    StandIn("torch.utils._sympy.functions", Max=torch.sym_max),
    StandIn("torch.utils._sympy.numbers", IntInfinity=type(None)),
    StandIn("torch.utils._sympy.value_ranges", bound_sympy=lambda *_: SimpleNamespace(upper=sys.maxsize)),
    StandIn("sympy", Basic=Formula),
)
_SOURCES = ("AttrSource", "CallMethodItemSource", "ConstantSource", "EphemeralSource", "FloatTensorSource")
_OPTIONS = ("_custom_ops_profile", "fake_tensor_cache_enabled", "fake_tensor_cache_crosscheck_enabled")
_DYNAMO = {
    "config": StandIn("torch._dynamo.config", **dict.fromkeys(_OPTIONS)),
    "source": StandIn("torch._dynamo.source", **dict.fromkeys((*_SOURCES, "RandomValueSource"), Unused)),
}


@contextmanager
def without_sympy() -> Iterator[None]:
    """While torch computes shapes, replaces the modules that it would import for symbolic lengths by stand-ins."""
    marked = list[Any]()

    def disable(function: Any, *_: Any, **__: Any) -> Any:
        marked.append(function)
        return function

    dynamo: Any = StandIn("torch._dynamo", disable=disable, **_DYNAMO)
    is_new = "torch._dynamo" not in sys.modules
    stand_ins = {one.__name__: one for one in (*_STAND_INS, *((dynamo, *_DYNAMO.values()) if is_new else ()))}
    before = {name: sys.modules.get(name) for name in stand_ins}
    # Imported a second time, a module would have classes of its own.
    _IMPORTED.update({name: one for name, one in before.items() if one is not None and not isinstance(one, StandIn)})
    sys.modules.update(stand_ins)
    if is_new:
        torch._dynamo = dynamo
    try:
        yield
    finally:
        if is_new and torch._dynamo is dynamo:
            del torch._dynamo
        for name, module in before.items():
            del sys.modules[name]
            if module is not None or name in _IMPORTED:
                sys.modules[name] = module if module is not None else _IMPORTED[name]
        for one in marked:
            vars(one).pop("__dynamo_disable", None)
