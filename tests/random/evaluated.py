"""An oracle for a spec in torch: its own text, evaluated by Python's `eval` on tensors that have all axes.

It shares no code with tritongen. Tensors have length 1 along axes that they lack, so that torch broadcasts; a matmul is
a product and a sum, and gradients are autograd's.
"""

from __future__ import annotations

import ast
import functools
import math
import re
import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

LEADING = ("...0", "...1")  # the dimensions of `...`; inputs with fewer have length 1 on the left
LOWEST = -1e300  # replaces -inf as the lse of lost rows: less than the lse of rows that a finite value masks
F = torch.nn.functional


@dataclass(frozen=True)
class Tensor:
    """An input or a result: its dtype, and its dimensions, each of which has one or more axes."""

    name: str
    dtype: str
    dims: tuple[tuple[str, ...], ...]
    default: float | None = None
    has_shape: bool = True  # else it has the shape of the input that its dtype names

    @classmethod
    def read(cls, name: str, text: str) -> Tensor:
        text, _, default = text.partition(" = ")
        dtype, _, axes = text.rstrip("] ").partition("[")
        dims = (dim.strip("() ").split() for dim in axes.split(",") if dim.strip())
        numbers = {"": None, "true": 1.0, "false": 0.0}
        number = numbers[default] if default in numbers else float(default)
        each = tuple(tuple(axis.partition("=")[0] for axis in dim) for dim in dims)
        return cls(name, dtype.strip(), each, number, "[" in text)

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(axis for dim in self.dims for axis in (LEADING if dim == ("...",) else dim))


class Undecided(Exception):
    """Results depend on rounding, because two elements are about the largest, or an exact 0 has a sign."""


class Evaluated:
    """A spec that can be called with lengths of its axes, where `...` has the axes `...0` and `...1`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tables = tomllib.loads(text)
        self.inputs = [Tensor.read(*entry) for entry in self.tables["inputs"].items()]
        self.outputs = [Tensor.read(*entry) for entry in self.tables["outputs"].items()]
        words = " ".join(self.tables["inputs"].values())
        self.fixed = {name: int(length) for name, length in re.findall(r"(\w+)=(\d+)", words)}
        self.lines = {name: _compiled(line) for name, line in self.tables["compute"].items()}

    @cached_property
    def axes(self) -> list[str]:
        return [*dict.fromkeys(axis for one in self.inputs for axis in one.axes)]

    @cached_property
    def by(self) -> list[str]:
        return list(self.tables.get("grad", {}).get("wrt", []))

    def __call__(
        self,
        lengths: Mapping[str, int],
        given: Sequence[torch.Tensor | None],
        params: Mapping[str, float],
        without_lost: bool = False,
        leading: int = len(LEADING),
    ) -> tuple[torch.Tensor, ...]:
        """The results, with `leading` dimensions for `...`. With `without_lost`, lost rows contribute nothing, where
        torch has NaN.
        """
        sizes = {**lengths, **self.fixed}
        names = Names(self.axes, sizes, without_lost)
        names.update({**{n: p for n, p in self.params().items() if p is not None}, **params})
        for one, tensor in zip(self.inputs, given, strict=True):
            names[one.name] = self.spread(one, tensor, sizes)
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)  # for functions of integers
        try:
            for name, line in self.lines.items():
                names[name] = eval(line, {}, names)
        finally:
            torch.set_default_dtype(default)
        return tuple(self.gathered(one, names[one.name], sizes, leading) for one in self.outputs)

    def params(self) -> dict[str, Any]:
        """The params with their defaults, None if they have none."""
        tables = self.tables.get("params", {})
        return {name: one.get("default") if isinstance(one, dict) else one for name, one in tables.items()}

    def shape(self, one: Tensor, lengths: Mapping[str, int], leading: int = len(LEADING)) -> list[int]:
        """The shape of an input with `leading` dimensions for `...`."""
        sizes, shape = {**lengths, **self.fixed}, list[int]()
        for dim in one.dims:
            shape += (
                [sizes[axis] for axis in LEADING[len(LEADING) - leading :]]
                if dim == ("...",)
                else [math.prod(sizes[axis] for axis in dim)]
            )
        return shape

    def spread(self, one: Tensor, tensor: torch.Tensor | None, sizes: Mapping[str, int]) -> torch.Tensor:
        """An input as a tensor with all axes; an absent one is filled with its default."""
        if tensor is None:
            dtype = torch.bool if one.dtype == "bool" else torch.float64
            whole = [sizes[axis] if axis in one.axes else 1 for axis in self.axes]  # for the number of terms of sums
            return torch.full(whole, one.default or 0, dtype=dtype)
        axes = one.axes
        if ("...",) in one.dims:
            own = tensor.ndim - len(one.dims) + 1
            tensor = tensor.reshape([1] * (len(LEADING) - own) + [*tensor.shape])
            shape = [*tensor.shape[: len(LEADING)], *(sizes[axis] for axis in axes[len(LEADING) :])]
        else:
            shape = [sizes[axis] for axis in axes]
        apart = tensor.reshape(shape)
        order = sorted(range(len(axes)), key=lambda place: self.axes.index(axes[place]))
        wide = apart.permute(order)
        lengths = dict(zip((axes[place] for place in order), wide.shape, strict=True))
        return wide.reshape([lengths.get(axis, 1) for axis in self.axes])

    def gathered(self, one: Tensor, value: torch.Tensor, sizes: Mapping[str, int], leading: int) -> torch.Tensor:
        """A value expanded to the axes of a result, with the result's dimensions."""
        if not one.has_shape:
            like = next(other for other in self.inputs if other.name == one.dtype)
            one = Tensor(one.name, "", like.dims)
        whole = value.expand([sizes[axis] if axis in one.axes else 1 for axis in self.axes])
        order = [axis for axis in self.axes if axis in one.axes]
        apart = whole.reshape([sizes[axis] for axis in order]).permute([order.index(axis) for axis in one.axes])
        return apart.reshape(self.shape(one, sizes, leading))


class Written(ast.NodeTransformer):
    """Rewrites an expression for tensors: quotients and `==` become calls; `and`, `or`, `not` become `&`, `|`, `~`."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return _call("div", node.left, node.right) if isinstance(node.op, ast.Div) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        op = ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr()
        return functools.reduce(lambda a, b: ast.BinOp(a, op, b), node.values)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return ast.UnaryOp(ast.Invert(), node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) == 1:
            is_equal = isinstance(node.ops[0], ast.Eq)
            return _call("eq", node.left, node.comparators[0]) if is_equal else node
        sides = [node.left, *node.comparators]
        pairs = (ast.Compare(a, [op], [b]) for a, op, b in zip(sides, node.ops, sides[1:], strict=False))
        return functools.reduce(lambda a, b: ast.BinOp(a, ast.BitAnd(), b), pairs)


def _call(name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), [*args], [])


def _compiled(line: str) -> types.CodeType:
    tree = Written().visit(ast.parse(f"({line})", mode="eval"))
    return compile(ast.fix_missing_locations(tree), "<spec>", "eval")


class Names(dict[str, Any]):
    """The values of names in expressions: functions, params and lines. The value of an axis is its name."""

    def __init__(self, axes: Sequence[str], sizes: Mapping[str, int], without_lost: bool) -> None:
        super().__init__(inf=math.inf, nan=math.nan, pi=math.pi, e=math.e)
        self.axes, self.sizes, self.without_lost = axes, sizes, without_lost
        own = [name for name in vars(Names) if name.startswith("of_")]
        self.update({name.removeprefix("of_"): getattr(self, name) for name in own})
        self.update(amax=self.of_max, amin=self.of_min)
        self.update(gelu_tanh=lambda x: F.gelu(x, approximate="tanh"))
        for name in ("maximum", "minimum", "logaddexp", "logaddexp2", "pow", "floor_divide"):
            self[name] = _of_numbers(getattr(torch, name), 2)
        self["div"] = self.quotient

    def __missing__(self, name: str) -> Any:
        function = getattr(torch, name, None) or getattr(F, name, None) or getattr(torch.special, name, None)
        return _of_numbers(function) if name not in self.axes and callable(function) else name

    def dims(self, over: Sequence[Any]) -> list[int]:
        names = [axis for one in over for axis in (LEADING if one is ... else (one,))]
        return [self.axes.index(axis) for axis in names] if names else [*range(len(self.axes))]

    def quotient(self, x: Any, other: Any) -> Any:
        """A quotient; with `without_lost` the divisor 0 is replaced by 1, so that 0 / 0 of lost rows is 0."""
        return x / torch.where(other == 0, 1.0, other) if self.without_lost and torch.is_tensor(other) else x / other

    def of_eq(self, x: Any, other: Any) -> Any:
        """Equality, where the lse of a lost row equals -inf although `LOWEST` replaces it."""
        is_lost = self.without_lost and other == -math.inf if isinstance(other, float) else False
        return x <= LOWEST if is_lost else x == other

    def of_index(self, *axes: str) -> torch.Tensor:
        found = torch.zeros([1] * len(self.axes), dtype=torch.int64)
        for axis in axes:
            place = self.axes.index(axis)
            along = torch.arange(self.sizes[axis]).view([-1 if n == place else 1 for n in range(len(self.axes))])
            found = found * self.sizes[axis] + along
        return found

    def of_size(self, *axes: Any) -> int:
        return math.prod(self.sizes[axis] for one in axes for axis in (LEADING if one is ... else (one,)))

    def of_take(self, x: torch.Tensor, at: torch.Tensor | int, axis: str) -> torch.Tensor:
        place = self.axes.index(axis)
        at = at if isinstance(at, torch.Tensor) else torch.full([1] * x.ndim, at)
        shape = [max(a, b) if a and b else 0 for a, b in zip(x.shape, at.shape, strict=True)]
        shape[place] = at.shape[place]
        if not x.shape[place]:  # All indices are out of range.
            x = torch.cat([x, x.new_zeros([1 if n == place else length for n, length in enumerate(x.shape)])], place)
        rows = x.expand([x.shape[place] if n == place else length for n, length in enumerate(shape)])
        inside = (at >= 0) & (at < self.sizes[axis])
        found = rows.gather(place, at.clamp(0, x.shape[place] - 1).long().expand(shape))
        return torch.where(inside, found, torch.tensor(math.nan if x.is_floating_point() else 0).to(x.dtype))

    def of_cast(self, x: torch.Tensor, to: Any) -> torch.Tensor:
        name = to if isinstance(to, str) else str(to.dtype).removeprefix("torch.")
        return x.double() if "float" in name else x.to(getattr(torch, name))

    def of_where(self, condition: Any, x: Any, other: Any) -> torch.Tensor:
        x, other = (one if isinstance(one, torch.Tensor) else _number(one) for one in (x, other))
        return torch.where(torch.as_tensor(condition) != 0, x, other)

    def of_sum(self, x: torch.Tensor, *over: Any) -> torch.Tensor:
        return x.sum(self.dims(over), keepdim=True)

    def of_mean(self, x: torch.Tensor, *over: Any) -> torch.Tensor:
        return x.double().mean(self.dims(over), keepdim=True)

    def of_any(self, x: torch.Tensor, *over: Any) -> torch.Tensor:
        return (x != 0).sum(self.dims(over), keepdim=True) > 0

    def of_all(self, x: torch.Tensor, *over: Any) -> torch.Tensor:
        return (x == 0).sum(self.dims(over), keepdim=True) == 0

    def of_max(self, x: torch.Tensor, *over: Any) -> torch.Tensor:
        lost, x = self.found_lost(x, over)
        return torch.where(lost, LOWEST, _extremum(torch.amax, x, self.dims(over)))

    def of_min(self, x: torch.Tensor, *over: Any) -> torch.Tensor:
        return _extremum(torch.amin, x, self.dims(over))

    def of_argmax(self, x: torch.Tensor, *over: Any) -> torch.Tensor:
        return _position(torch.argmax, x, self.dims(over))

    def of_argmin(self, x: torch.Tensor, *over: Any) -> torch.Tensor:
        return _position(torch.argmin, x, self.dims(over))

    def of_prod(self, x: torch.Tensor, *over: Any) -> torch.Tensor:
        return functools.reduce(lambda x, dim: x.prod(dim, keepdim=True), self.dims(over), x)

    def of_count_nonzero(self, x: torch.Tensor, *over: Any) -> torch.Tensor:
        return (x != 0).sum(self.dims(over), keepdim=True)

    def of_cumsum(self, x: torch.Tensor, axis: str, reverse: bool = False) -> torch.Tensor:
        return self.scanned(torch.cumsum, x, axis, reverse)

    def of_cumprod(self, x: torch.Tensor, axis: str, reverse: bool = False) -> torch.Tensor:
        return self.scanned(torch.cumprod, x, axis, reverse)

    def scanned(self, of: Callable[..., torch.Tensor], x: torch.Tensor, axis: str, reverse: bool) -> torch.Tensor:
        place = self.axes.index(axis)
        x = self.along(x, axis)
        return of(x.flip(place), place).flip(place) if reverse else of(x, place)

    def of_argsort(self, x: torch.Tensor, axis: str, descending: bool = False) -> torch.Tensor:
        return torch.argsort(self.along(x, axis), dim=self.axes.index(axis), descending=descending, stable=True)

    def of_sort(self, x: torch.Tensor, axis: str, descending: bool = False) -> torch.Tensor:
        return self.along(x, axis).gather(self.axes.index(axis), self.of_argsort(x, axis, descending))

    def of_recurrence(self, x: Any, decay: Any, axis: str, reverse: bool = False) -> torch.Tensor:
        """A linear recurrence, computed sequentially."""
        place = self.axes.index(axis)
        x, decay = (one if isinstance(one, torch.Tensor) else _number(float(one)) for one in (x, decay))
        pairs = [one.unbind(place) for one in torch.broadcast_tensors(self.along(x, axis), decay)]
        found: list[torch.Tensor] = []
        for term, factor in reversed([*zip(*pairs, strict=True)]) if reverse else zip(*pairs, strict=True):
            found.append(factor * found[-1] + term if found else term)
        return torch.stack(found[::-1] if reverse else found, place)

    def of_scatter_sum(self, x: Any, at: torch.Tensor, *axes: str, over: Any = ()) -> torch.Tensor:
        """The sum of terms by index: each index is compared with all indices of the result."""
        named = [over] if isinstance(over, str) else [*over]
        summed = [axis for axis, n in zip(self.axes, at.shape, strict=True) if n != 1 and (not named or axis in named)]
        x = x if isinstance(x, torch.Tensor) else _number(x)
        wide, at = (self.apart(one, summed) for one in (x.expand(torch.broadcast_shapes(x.shape, at.shape)), at))
        found = torch.where(at == self.of_index(*axes).unsqueeze(-1), wide, 0)
        return found.sum(-1)

    def apart(self, x: torch.Tensor, axes: Sequence[str]) -> torch.Tensor:
        """The tensor with some axes moved to one last dimension."""
        places = [self.axes.index(axis) for axis in axes]
        moved = x.movedim(places, [*range(-len(places), 0)]) if places else x.unsqueeze(-1)
        flat = moved.flatten(-len(places), -1) if places else moved
        return flat.reshape([1 if n in places else length for n, length in enumerate(x.shape)] + [flat.shape[-1]])

    def along(self, x: torch.Tensor, axis: str) -> torch.Tensor:
        """The tensor expanded along an axis, which params and absent inputs lack."""
        x = x if x.ndim else x.reshape([1] * len(self.axes))
        return x.expand([self.sizes[one] if one == axis else n for one, n in zip(self.axes, x.shape, strict=True)])

    def of_var(self, x: torch.Tensor, *over: Any, correction: float = 1) -> torch.Tensor:
        dims = self.dims(over)  # torch.var of equal elements is 0; here the mean may be rounded
        squares = (x - x.mean(dims, keepdim=True)).square()
        return squares.sum(dims, keepdim=True) / max(0, math.prod(x.shape[dim] for dim in dims) - correction)

    def of_std(self, x: torch.Tensor, *over: Any, correction: float = 1) -> torch.Tensor:
        return self.of_var(x, *over, correction=correction).sqrt()

    def of_norm(self, x: torch.Tensor, *over: Any, p: float = 2) -> torch.Tensor:
        return torch.linalg.vector_norm(x, p, self.dims(over), keepdim=True)

    def of_logsumexp(self, x: torch.Tensor, *over: Any) -> torch.Tensor:
        lost, x = self.found_lost(x, over)
        return torch.where(lost, LOWEST, torch.logsumexp(x, self.dims(over), keepdim=True))

    def of_softmax(self, x: torch.Tensor, *over: Any) -> torch.Tensor:
        return torch.exp(self.of_log_softmax(x, *over))

    def of_log_softmax(self, x: torch.Tensor, *over: Any) -> torch.Tensor:
        """log_softmax after subtracting the maximum, so that it is exact for equal scores of any size, too."""
        lost, x = self.found_lost(x, over)
        dims = self.dims(over)
        below = x - x.detach().amax(dims, keepdim=True) if x.numel() else x
        return torch.where(lost, -math.inf, below - below.exp().sum(dims, keepdim=True).log())

    def found_lost(self, x: torch.Tensor, over: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """A mask of lost rows (all false unless `without_lost`), and the tensor with 0 in their place."""
        lost = (x == -math.inf).sum(self.dims(over), keepdim=True) == self.of_size(*over)
        lost = lost & torch.tensor(self.without_lost)
        return lost, torch.where(lost, 0.0, x)


def _extremum(of: Callable[..., torch.Tensor], x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """The maximum or minimum, with the gradient going to the same elements if a dispatch mode rounds operands."""
    if not x.is_floating_point():
        return of(x, dims, keepdim=True)
    with _disable_current_modes():
        exact = of(x.detach(), dims, keepdim=True)
        here = x.detach() == exact
        count = here.sum(dims, keepdim=True)
        mean = torch.where(here, x.detach(), 0).sum(dims, keepdim=True) / count
        off = (exact - mean).nan_to_num(0, 0, 0)  # The mean of equal values may be rounded.
    return torch.where(here, x, 0).sum(dims, keepdim=True) / count + off


def _position(of: Callable[..., torch.Tensor], x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    kept = [dim for dim in range(x.ndim) if dim not in dims]
    positions = math.prod(x.shape[dim] for dim in dims)
    flat = x.permute([*kept, *dims]).reshape([*(x.shape[dim] for dim in kept), positions])
    found = of(flat, -1)
    best = flat.gather(-1, found.unsqueeze(-1))
    if bool(((flat != best) & ((flat - best).abs() <= 1e-9 * best.abs().clamp_min(1))).any()):
        raise Undecided
    return found.reshape([1 if dim in dims else n for dim, n in enumerate(x.shape)])


def _number(value: Any) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)


def _of_numbers(function: Callable[..., torch.Tensor], tensors: int = 1) -> Callable[..., torch.Tensor]:
    """A torch function that accepts Python scalars for its first `tensors` arguments, too."""

    def call(*args: Any) -> torch.Tensor:
        first = (one if isinstance(one, torch.Tensor) else _number(float(one)) for one in args[:tensors])
        return function(*first, *args[tensors:])

    return call
