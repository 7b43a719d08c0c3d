"""The views that templates render: strings, booleans and tuples, all decided before a template runs."""

from __future__ import annotations

from dataclasses import dataclass

from ..lang.names import in_string
from ..nest.ir import Line, Nest, names_of, with_values
from ..nest.values import Expr, V, expr

NOTHING = expr(None)


@dataclass(frozen=True, slots=True)
class Argument:
    """A run-time argument of a kernel: how its signature spells it, and what the launch passes."""

    spelling: str
    value: Expr = NOTHING  # None if only the runtime knows it

    @property
    def name(self) -> str:
        return self.spelling.split(":")[0]


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass over the columns: the lines before the loop, in it and after it."""

    comment: str
    start: tuple[Line, ...]
    body: tuple[Line, ...]
    after: tuple[Line, ...]
    backwards: bool = False


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a generated module."""

    name: str
    doc: str
    arguments: tuple[Argument, ...]
    constexprs: tuple[str, ...]
    blocks: tuple[str, ...] = ()  # further constexprs, such as tile sizes from a table
    body: Nest = ()
    fixed: tuple[str, ...] = ()  # integer arguments that must not multiply the specialisations
    search: str = ""  # the candidates of configs.py that @triton.autotune searches, if it does
    search_key: str = ""
    language: str = "tl"  # "gl" if it is written in Gluon, whose values are nests of `tl` until they are printed

    @property
    def signature(self) -> str:
        spelled = [argument.spelling for argument in self.arguments]
        blocks = (name for name in self.blocks if name != "INDEX" or name in names_of(self.body))
        return ", ".join([*spelled, *(f"{name}: tl.constexpr" for name in (*self.constexprs, *blocks))])

    @property
    def printed(self) -> Nest:
        return self.body if self.language == "tl" else with_values(self.body, lambda one: one.with_names({"tl": V.gl}))

    @property
    def fixed_names(self) -> str:
        """The `fixed` arguments as a list of strings."""
        return repr([*map(in_string, self.fixed)])

    @property
    def passed(self) -> tuple[Expr, ...]:
        return tuple(argument.value for argument in self.arguments)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(argument.name for argument in self.arguments)


@dataclass(frozen=True, slots=True)
class Field:
    """An argument or result of the public function, for its docstring and its signature."""

    name: str
    annotation: str
    default: str  # "" where it is required
    text: str
