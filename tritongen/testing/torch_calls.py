"""Calls of torch as Python's syntax trees, for the printer of the oracle."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import ascii_letters

from ..lang.names import shown
from ..lang.reductions import REDUCTIONS
from ..lang.trees import parse
from ..nest.values import Term as Operand
from ..nest.values import tree_of
from ..spec.types import BATCH

CONSTANTS = ("inf", "nan", "pi", "e")

# Arguments that torch wants, or takes, as Python scalars; others must be tensors.
SCALARS = frozenset(
    "clamp.min clamp.max clamp_min.min clamp_max.max pow.exponent where.x where.other fmod.other"
    " remainder.other floor_divide.other lerp.weight xlogy.other copysign.other threshold.threshold"
    " threshold.value add.other sub.other mul.other div.other eq.other ne.other lt.other le.other"
    " gt.other ge.other bitwise_and.other bitwise_or.other bitwise_xor.other"
    " bitwise_left_shift.other bitwise_right_shift.other".split()
)
# Reductions that torch does along one dimension at a time, and those that reduce all by default.
ONE_DIM = frozenset(("prod", "argmax", "argmin", "cumsum", "cumprod"))
ANY_DIMS = frozenset((*REDUCTIONS, "amax", "amin")) - {"softmax", "log_softmax", "logsumexp", "cumsum", "cumprod"}


@dataclass(frozen=True, slots=True)
class Term:
    """A torch expression: its axes, whether it is a tensor or a Python number, and the kind of its values."""

    tree: ast.expr
    axes: tuple[str, ...]
    tensor: bool
    kind: str = ""  # "bool" and "float" where that is known
    is_chosen: bool = False  # whether a tensor is of floats whose dtype callers choose: torch multiplies those alone


def chosen(*terms: Term) -> bool:
    """Whether a result of some terms has the floats among them whose dtype callers choose."""
    others = (not term.tensor or term.kind in ("bool", "int") for term in terms if not term.is_chosen)
    return any(term.is_chosen for term in terms) and all(others)


def attribute(name: str) -> ast.expr:
    assert name in CONSTANTS, name
    return ast.Attribute(ast.Name("torch"), name)


def zero() -> Term:
    return Term(ast.Constant(0), (), False, "int")


def as_tensor(term: Term) -> ast.expr:
    """A Python number as a tensor; in float64 it keeps its value, and promotes nothing."""
    dtype: dict[str, Operand] = {"dtype": parse("torch.float64")} if term.kind in ("float", "") else {}
    return call("torch.tensor", term.tree, **dtype)


def call(function: str, *args: Operand, **named: Operand) -> ast.expr:
    return ast.Call(parse(function), *_passed(args, named))


def method(value: ast.expr, name: str, *args: Operand, **named: Operand) -> ast.expr:
    return ast.Call(ast.Attribute(value, name), *_passed(args, named))


def _passed(args: Iterable[Operand], named: Mapping[str, Operand]) -> tuple[list[ast.expr], list[ast.keyword]]:
    return [*map(tree_of, args)], [ast.keyword(name, tree_of(arg)) for name, arg in named.items()]


def axis_of(tree: ast.expr) -> str:
    return BATCH if isinstance(tree, ast.Constant) else ast.unparse(tree)


def einsum(terms: list[Term], rest: tuple[str, ...]) -> ast.expr:
    """The sum of products of tensors over the axes that are not in `rest`."""
    letters: dict[str, str] = {BATCH: BATCH}
    for axis in (axis for term in terms for axis in term.axes):
        if axis not in letters:
            own = [letter for letter in (shown(axis)[0].lower(), *ascii_letters) if letter in ascii_letters]
            letters[axis] = next(letter for letter in own if letter not in letters.values())
    sides = ["".join(letters[axis] for axis in axes) for axes in (*(term.axes for term in terms), rest)]
    equation = ast.Constant(f"{','.join(sides[:-1])}->{sides[-1]}")
    return call("torch.einsum", equation, *(term.tree for term in terms))


def factors_of(tree: ast.expr) -> list[ast.expr]:
    """The factors of a product, or a single expression."""
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Mult):
        return [*factors_of(tree.left), *factors_of(tree.right)]
    return [tree]


def replaced(axes: tuple[str, ...], axis: str, by: tuple[str, ...]) -> tuple[str, ...]:
    position = axes.index(axis)
    return (*axes[:position], *by, *axes[position + 1 :])


def indexed(source: Term, position: int, index: Term) -> ast.expr:
    """The source with an index in one place."""
    if BATCH in source.axes:
        indices = [ast.Constant(...), index.tree, *[ast.Slice()] * (-position - 1)]
    else:
        indices = [*[ast.Slice()] * (len(source.axes) + position), index.tree]
    return ast.Subscript(source.tree, indices[0] if len(indices) == 1 else ast.Tuple(indices))


def permuted(tree: ast.expr, has: tuple[str, ...], wants: tuple[str, ...]) -> ast.expr:
    return parse(ast.unparse(tree) + moved(has, wants))


def moved(has: tuple[str, ...], wants: tuple[str, ...]) -> str:
    """The method call that brings dimensions into another order; `...` comes first in both."""
    if has == wants:
        return ""
    if BATCH not in has:
        return f".permute({', '.join(str(has.index(axis)) for axis in wants)})"
    named = [axis for axis in wants if axis != BATCH]
    source = tuple(has.index(axis) - len(has) for axis in named)
    return f".movedim({source}, {tuple(range(-len(named), 0))})"


def reduced(name: str, x: ast.expr, dims: tuple[int, ...], options: dict[str, ast.expr]) -> ast.expr:
    function = "torch.linalg.vector_norm" if name == "norm" else f"torch.{name}"
    given: dict[str, Operand] = {"dim": dims[0] if len(dims) == 1 else dims} if dims else {}
    return call(function, x, **given, **{{"p": "ord"}.get(key, key): value for key, value in options.items()})


def merged(x: ast.expr, dims: tuple[int, ...]) -> tuple[ast.expr, tuple[int, ...]]:
    """Several dimensions merged into one, for reductions of torch that take one at a time."""
    last = tuple(range(-len(dims), 0))
    if dims != tuple(range(dims[0], dims[0] + len(dims))):
        x, dims = method(x, "movedim", dims, last), last
    return method(x, "flatten", dims[0], dims[-1]), (dims[-1],)


def normalised(name: str, x: ast.expr, dims: tuple[int, ...]) -> ast.expr:
    if len(dims) == 1:
        return call(f"torch.{name}", x, dims[0])
    shifted = ast.BinOp(x, ast.Sub(), call("torch.logsumexp", x, dims, keepdim=True))
    return shifted if name == "log_softmax" else call("torch.exp", shifted)


# Functions of torch that make a tensor of none, or a mask.
MAKERS = frozenset(
    "arange empty eye full linspace logspace ones tensor tril_indices triu_indices zeros"
    " nn.attention.flex_attention.create_block_mask".split()
)


@dataclass(frozen=True, slots=True)
class OnDeviceOfInput(ast.NodeTransformer):
    """Puts the tensors that a reference makes on the device of an input, since it runs on a GPU too."""

    tensor: str

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        makes = ast.unparse(node.func).removeprefix("torch.") in MAKERS
        if makes and all(keyword.arg != "device" for keyword in node.keywords):
            node.keywords.append(ast.keyword("device", ast.Attribute(ast.Name(self.tensor), "device")))
        return node
