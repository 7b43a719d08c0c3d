"""Random conditions of masks, their values at all positions, and the values that a kernel computes for a tile.

The oracle is Python's `eval` of the condition's text over arrays of Python integers, which never overflow.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from tritongen.lang.ir import Call, Cast, Choose, Constant, Index, Load, Node, Op, Reduce, Ref, Scalar, Size
from tritongen.lang.typecheck import typecheck
from tritongen.passes.masks.expressions import HELD, Apply, Expression, Extreme, First, Last, Number, Sum, Value
from tritongen.spec.read import read_spec

SPEC = """
[op]
name = "masked"

[inputs]
x = "float[B, M, N]"
length = "int[B]"
start = "int64[B]"
row = "int64[B, M]"
narrow = "int32[B, M]"
col = "int64[B, N]"
row_ok = "bool[B, M]"
col_ok = "bool[B, N]"
ok = "bool[B, M, N]"

[params]
p = {{ type = "int" }}
step = {{ type = "int", default = 2, min = 1 }}
small = {{ type = "int", default = 2, min = 1, max = 100 }}
limit = {{ type = "float", default = 2.5 }}
flag = {{ type = "bool", default = true }}

[compute]
behind = "index(M) + size(N) - size(M) - index(N)"
{lines}
used = "x * (length + start + row + narrow + col + p + step + small + behind) * limit"
used_too = "where(row_ok & col_ok & ok, used, 0.0 if flag else used)"

[outputs]
used_too = "auto"
{outputs}
"""


def op_of(conditions: list[str]) -> Op:
    """An Op with the conditions as lines c0, c1 and so on."""
    lines = "\n".join(f'c{n} = "{text}"' for n, text in enumerate(conditions))
    outputs = "\n".join(f'c{n} = "bool"' for n, _ in enumerate(conditions))
    return typecheck(read_spec("masked.toml", SPEC.format(lines=lines, outputs=outputs)))


class RandomConditions:
    """Well-typed conditions, as text."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def condition(self, depth: int = 2) -> str:
        pick = self.random.random()
        if depth == 0 or pick < 0.45:
            return self.comparison()
        parts = [self.condition(depth - 1) for _ in range(3)]
        if pick < 0.62:
            return f"({parts[0]}) & ({parts[1]})"
        if pick < 0.76:
            return f"({parts[0]}) | ({parts[1]})"
        if pick < 0.84:
            return f"~({parts[0]})"
        if pick < 0.88:
            return f"({parts[0]}) ^ ({parts[1]})"
        if pick < 0.91:
            return f"({parts[0]}) {self.random.choice(['==', '!='])} ({parts[1]})"
        if pick < 0.94:
            test = self.random.choice([parts[0], "max(col, N) > 1", "p > 0"])
            return f"where({test}, {parts[1]}, {parts[2]})"
        if pick < 0.96:
            return f"(({parts[0]}) if flag else ({parts[1]})) & (index(N) >= 0)"  # axes cannot depend on the flag
        return self.random.choice(["row_ok", "col_ok", "ok", "(row > col) & flag", "index(N) < limit", "p > 0"])

    def comparison(self) -> str:
        sign = self.random.choice(["<", "<=", ">", ">=", "==", "!="])
        if self.random.random() < 0.3:  # typical of masks
            left = self.random.choice(["behind", "index(N) - index(M)", "index(N)", f"index(N) // {self.divisor()}"])
            return f"{left} {sign} {self.random.choice([self.leaf(), str(self.number()), 'index(M)'])}"
        return f"{self.integer(2)} {sign} {self.integer(2)}"

    def integer(self, depth: int) -> str:
        pick = self.random.random()
        if depth == 0 or pick < 0.4:
            return self.random.choice(["index(M)", "index(N)", "index(N)", "behind", self.leaf()])
        one, other = self.integer(depth - 1), self.integer(depth - 1)
        if pick < 0.6:
            return f"({one} {self.random.choice('+-')} {self.random.choice([other, str(self.number())])})"
        if pick < 0.68:
            return f"({one}) * {self.number()}"
        if pick < 0.82:
            return f"({one}) {self.random.choice(['//', '//', '%'])} {self.divisor()}"
        if pick < 0.86:
            return f"{self.random.choice(['step', 'small'])} * ({one})"
        if pick < 0.92:
            return f"{self.random.choice(['maximum', 'minimum'])}({one}, {other})"
        if pick < 0.94:
            return f"abs({one})"
        if pick < 0.96:
            return f"clamp({one}, {self.integer(0)}, {self.number()})"
        if pick < 0.98:
            return f"where({self.comparison()}, {one}, {other})"
        return f"-({one})"

    def leaf(self) -> str:
        leaves = "p p step small length start row narrow col size(M) size(N)".split()
        return self.random.choice([*leaves, "length + start", "narrow - 1", "max(col, N)"])

    def number(self) -> int:
        return self.random.choice([-7, -3, -2, -1, 1, 1, 2, 3, 4, 8])

    def divisor(self) -> str:
        return self.random.choice(["2", "3", "4", "-2", "-3", "step", "small"])


@dataclass(frozen=True)
class Case:
    """Lengths, and params and tensors of one batch entry as Python integers."""

    sizes: dict[str, int]
    names: dict[str, object]

    @staticmethod
    def drawn(rng: random.Random, huge: bool = False) -> Case:
        """Draw a case; with `huge`, integers may be as large as int64 allows."""
        sizes = {"M": rng.randint(1, 14), "N": rng.randint(1, 14), "B": 1}
        far = [2**63 - 1, -(2**63), 2**62, 2**48 + 1, -(2**48) - 1, 2**31, 0, 3]

        def number(low: int, high: int) -> int:
            fits = [n for n in far if low > 0 <= n - low or low <= 0]
            return rng.choice(fits) if huge and rng.random() < 0.7 else rng.randint(low, high)

        def scalar(value: int) -> np.ndarray:
            return np.array([[value]], dtype=object)  # an array, whose `~` negates bools

        def numbers(axis: str, low: int, high: int) -> np.ndarray:
            values = np.array([number(low, high) for _ in range(sizes[axis])], dtype=object)
            return values[:, None] if axis == "M" else values[None, :]

        def truths(*shape: int) -> np.ndarray:
            return np.array([rng.random() < 0.7 for _ in range(int(np.prod(shape)))]).reshape(shape)

        m, n = sizes["M"], sizes["N"]
        names = {
            **{name: scalar(number(-6, 12)) for name in ("p", "length", "start")},
            "step": scalar(number(1, 5)),
            "small": scalar(rng.randint(1, 5)),
            "limit": np.array([[rng.choice([-1.0, 2.5, 7.0])]]),
            "flag": truths(1, 1),
            "row": numbers("M", 0, 3),
            "narrow": np.array([rng.randint(-3, 15) for _ in range(m)], dtype=object)[:, None],
            "col": numbers("N", 0, 3),
            "row_ok": truths(m, 1),
            "col_ok": truths(1, n),
            "ok": truths(m, n),
        }
        return Case(sizes, names)

    def index(self, axis: str) -> np.ndarray:
        positions = np.arange(self.sizes[axis]).astype(object)
        return positions[:, None] if axis == "M" else positions[None, :]

    def truth(self, text: str) -> np.ndarray:
        """The condition at all rows and columns, by its text."""
        behind = self.index("M") + self.sizes["N"] - self.sizes["M"] - self.index("N")
        functions = {
            "index": self.index,
            "size": lambda axis: np.array([[self.sizes[axis]]], dtype=object),
            "maximum": np.maximum,
            "minimum": np.minimum,
            "abs": abs,
            "max": lambda x, axis: x.max(axis="MN".index(axis), keepdims=True),
            "where": np.where,
            "clamp": lambda x, low, high: np.minimum(np.maximum(x, low), high),
        }
        found = eval(text, {**functions, **self.names, "behind": behind, "M": "M", "N": "N"})
        return np.broadcast_to(np.asarray(found, dtype=bool), (self.sizes["M"], self.sizes["N"]))

    def node(self, op: Op, node: Node) -> object:
        """A node of the Op at all rows and columns."""
        match node:
            case Constant(value=value):
                return value
            case Scalar(name=name) | Load(name=name):
                return self.names[name]
            case Ref(name=name):
                return self.node(op, op.value(name).node)
            case Index(axis=axis):
                return self.index(axis)
            case Size(over=(axis,)):
                return np.array([[self.sizes[axis]]], dtype=object)
            case Cast(arg=arg):
                return self.node(op, arg)
            case Choose(condition=condition, then=then, other=other):
                return self.node(op, then if self.node(op, condition) else other)
            case Reduce(kind="max", arg=arg, over=(axis,)):
                return self.node(op, arg).max(axis="MN".index(axis), keepdims=True)
            case Call(function=function, args=args):
                return _FUNCTIONS[function](*(self.node(op, arg) for arg in args))
        raise AssertionError(node)


_FUNCTIONS = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "neg": lambda x: -x,
    "floor_divide": lambda x, y: x // y,
    "remainder": lambda x, y: x % y,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "abs": abs,
    "clamp": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "where": np.where,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    **dict.fromkeys(("bitwise_and", "logical_and"), lambda x, y: np.asarray(x, bool) & np.asarray(y, bool)),
    **dict.fromkeys(("bitwise_or", "logical_or"), lambda x, y: np.asarray(x, bool) | np.asarray(y, bool)),
    **dict.fromkeys(("bitwise_not", "logical_not"), lambda x: ~np.asarray(x, bool)),
    "bitwise_xor": lambda x, y: np.asarray(x, bool) ^ np.asarray(y, bool),
}


class MathOverflows(Exception):
    """A value of the condition itself exceeds its integer dtype."""


@dataclass(frozen=True)
class Tile:
    """The values that a kernel has for a tile: the first and last positions along both axes."""

    op: Op
    case: Case
    firsts: dict[str, int]
    lasts: dict[str, int]

    def compute(self, expression: Expression) -> int | bool:
        """An expression as a kernel computes it in int64, which must not overflow unless the math itself does."""
        found = self.value(expression)
        is_leaf = isinstance(expression, Value | Extreme)
        bits = 32 if is_leaf and expression.node.dtype.of == ("narrow",) else 64
        if not -(2 ** (bits - 1)) <= found < 2 ** (bits - 1):
            assert is_leaf, expression
            raise MathOverflows
        return found

    def value(self, expression: Expression) -> int | bool:
        match expression:
            case Number(value=value):
                return value
            case First(axis=axis):
                return self.firsts[axis]
            case Last(axis=axis):
                return self.lasts[axis]
            case Value(node=node):
                found = np.asarray(self.case.node(self.op, node)).reshape(-1)
                assert len(found) == 1
                return self.number(node, found)[0]
            case Extreme(kind=kind, node=node, axis=axis):
                values = np.asarray(self.case.node(self.op, node)).reshape(-1)
                assert len(values) == self.case.sizes[axis]
                values = self.number(node, values[self.firsts[axis] : self.lasts[axis] + 1])
                return min(values) if kind == "min" else max(values)
            case Sum(terms=terms, constant=constant):
                for part, factor in terms:
                    constant += factor * self.compute(part)
                return constant
            case Apply(function=function, args=args):
                return self.call(function, [self.compute(arg) for arg in args])

    def number(self, node: Node, values: np.ndarray) -> list:
        if node.dtype.kind == "bool":
            return [bool(value) for value in values]
        return [int(value) for value in values]

    def call(self, function: str, args: list) -> int | bool:
        match function:
            case "held":
                return min(max(args[0], -HELD), HELD)
            case "mul":
                return args[0] * args[1]
            case "floor_divide":
                assert args[1] > 0
                return args[0] // args[1]
            case "minimum":
                return min(args)
            case "maximum":
                return max(args)
            case "where":
                return args[1] if args[0] else args[2]
            case "ge":
                return args[0] >= args[1]
            case "gt":
                return args[0] > args[1]
            case "and":
                return all(args)
            case "or":
                return any(args)
            case "not":
                return not args[0]
        raise AssertionError(function)
