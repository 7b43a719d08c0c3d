"""Checks that the shapes of tiles in a nest fit the operations on them.

A shape names the length of each dim, as `("BLOCK_M", "1")`, and is () for scalars. Shapes of positions are given, and
all others are inferred; None is an unknown shape.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Sequence

from .ir import Accumulate, Advance, Branch, Do, For, Let, Line, Nest, Positions, Run, statements_of
from .kinds import Kinds, together

Shape = tuple[str, ...]

# Functions that access memory, with the places of the arguments that form the address, and of the mask.
_ACCESSES = {
    "tl.load": ((0,), 1),
    "tl.store": ((0,), 2),
    "read_once": ((0,), 1),
    "read_again": ((0,), 1),
    "load_or": ((0, 1), 2),
}
_REDUCTIONS = frozenset("tl.sum tl.max tl.min tl.reduce".split())
# Functions of the runtime that reduce the lanes along an axis.
_AXES = {
    **dict.fromkeys("sum_pair exp_sum moments argmax argmin merge_online_exp merge_welford".split(), 1),
}
# The same for updates of states, which reduce their last argument.
_STATES = {"online_max": 1, "online_max_low": 1, "merge_max": 0, "merge_max_low": 0}
# Functions that compute positions of a program, with the shapes of their results: heads in a group all exist.
_FOUND: dict[str, tuple[Shape, ...]] = {
    "rows_and_cols": (("1", "BLOCK_M"), ("BLOCK_N", "1")),
    "rows_of_group": (("BLOCK_M", "1"), (), ("BLOCK_M",)),
}
_OPAQUE = frozenset("load_block load_described halves quarters in_groups merge_groups group_squares".split())


def check(nest: Nest, arguments: Iterable[str] = (), narrow: bool = False) -> None:
    """Raises `TypeError` for an access whose mask lacks a dim, a store of a value with a dim that neither address nor
    mask has, a reduction along a dim that the value lacks, a smaller tile added to an accumulator, and tiles whose
    shapes do not broadcast; for access through no pointer, a mask that is no boolean, and an offset with a product of
    int32, unless the host ensures `narrow` offsets; and for a name that is read before it is assigned.
    """
    _Check(nest, arguments, narrow).statements(nest)


class _Check:
    def __init__(self, nest: Nest, arguments: Iterable[str], narrow: bool) -> None:
        self.narrow = narrow
        self.shapes: dict[str, Shape | None] = dict.fromkeys(arguments, ())
        self.kinds = Kinds(self.shapes)
        self.stored = {name for one in statements_of(nest) for name in one.stores}
        self.positions: set[str] = set()
        self.updated: set[str] = set()  # names whose last value was computed from the previous one
        self.clamped: set[str] = set()  # positions that are within bounds, masked or not
        self.padded: dict[str, set[str]] = {}  # the dims that pointers have as far as tiles reach
        self.is_unrolled = False  # in a loop whose iterations merge no lanes

    # Statements

    def statements(self, nest: Nest) -> None:
        for one in nest:
            for name in one.reads:
                if name in self.stored and name not in self.shapes:
                    raise TypeError(f"{name} is read before it has a value")
            match one:
                case Positions(name=name, start=start, block=block, lanes=lanes, wide=wide):
                    self.positions.add(name)
                    self.kinds.known[name] = together("wide" if wide else "narrow", self.kinds.of(start.tree))
                    shape = (str(block),)
                    self.shapes[name] = _lying(shape, [*lanes.strip("[]").split(", ")]) if lanes else shape
                case Branch(body=body, other=other):
                    self.branch(body, other)
                case For(span=span, index=index, body=body):
                    self.shapes[index] = ()
                    before, self.is_unrolled = self.is_unrolled, span.text.startswith("tl.static_range")
                    self.statements(body)
                    self.is_unrolled = before
                case Line():
                    try:
                        self.line(one)
                    except TypeError as error:
                        raise TypeError(f"{one.text}: {error}") from None
                case Advance(pointer=pointer, steps=steps):
                    moved = [self.shapes.get(index, ()) for terms in steps for index, _ in terms]
                    self.shapes[pointer] = _broadcast([self.shapes.get(pointer, ()), *moved])
                case Run(pointers=pointers, of=of):
                    mask = self.shapes.get(of or "tile_mask", ())
                    for pointer in pointers:
                        _covered(self.shapes.get(pointer, ()), mask)

    def branch(self, body: Nest, other: Nest) -> None:
        """A name gets the larger of its shapes in both branches; lanes merged in one branch stay merged after it."""
        before, found = self.shapes, list[dict[str, Shape | None]]()
        for side in (body, other):
            self.shapes = {**before}
            self.statements(side)
            found.append(self.shapes)
        merged = {name for name in self.updated & before.keys() if any(one[name] != before[name] for one in found)}
        for name in found[0].keys() | found[1].keys():
            shapes = [one[name] for one in found if name in one]
            if name in merged:
                shapes = [shape for shape in shapes if shape != before[name]]
            self.shapes[name] = _either(shapes[0], shapes[-1])

    def line(self, line: Line) -> None:
        match line:
            case Do(value=value):
                self.of(value.tree)
            case Accumulate(name=name, value=value):
                total, added = self.shapes.get(name, ()), self.of(value.tree)
                if lacking := [] if self.is_unrolled or name in self.positions else _lacking(total, added):
                    raise TypeError(f"what is added has no {' and no '.join(lacking)}")
                self.shapes[name] = _broadcast([total, added])
            case Let(targets=(name,), value=value):
                self.let(name, value.tree)
            case Let(targets=names, value=value):
                self.unpacked([*names], value.tree)

    def let(self, name: str, value: ast.expr) -> None:
        self.shapes[name] = self.of(value)
        self.kinds.known[name] = self.kinds.of(value)
        if self.kinds.known[name] == "pointer":
            self.fits(value, value, None)
        self.update({name}, value)
        read = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
        self.padded[name] = {one for one in read if one.startswith("PADDED_")}.difference(self.shapes[name] or ())
        clamps = (node for node in ast.walk(value) if isinstance(node, ast.Call))
        is_clamped = any(ast.unparse(node.func) == "tl.minimum" for node in clamps)
        self.clamped = self.clamped | {name} if is_clamped else self.clamped - {name}

    def update(self, names: set[str], value: ast.expr) -> None:
        read = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
        self.updated = (self.updated - names) | (names & read)

    def unpacked(self, names: list[str], value: ast.expr) -> None:
        """States that a call updates keep their shapes, unless the call merges their lanes."""
        if isinstance(value, ast.Tuple):
            found = [self.of(one) for one in value.elts]
        else:
            shape, own = self.of(value), {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
            merges = isinstance(value, ast.Call) and ast.unparse(value.func) in _AXES
            found = [self.shapes.get(name, ()) if name in own and not merges else shape for name in names]
            if isinstance(value, ast.Call) and (known := _FOUND.get(ast.unparse(value.func))):
                found = [*known]
                self.clamped |= {*names[:1]} if ast.unparse(value.func) == "rows_of_group" else set()
        self.update({*names}, value)
        self.shapes |= dict(zip(names, found, strict=True))

    # Expressions

    def of(self, tree: ast.AST) -> Shape | None:
        """The shape of an expression, and of each element of a tuple."""
        match tree:
            case ast.Name(id=name):
                return self.shapes.get(name, ())
            case ast.Attribute(value=value, attr="T"):
                return _reversed(self.of(value))
            case ast.Attribute() | ast.Constant():
                return ()
            case ast.Subscript(value=value, slice=ast.Tuple(elts=lanes)):
                shape = self.of(value)
                return shape and _lying(shape, ["None" if isinstance(lane, ast.Constant) else ":" for lane in lanes])
            case ast.Subscript(value=value):
                return self.of(value)
            case ast.IfExp(body=body, orelse=other):
                sides = self.of(body), self.of(other)
                return None if None in sides else _either(*sides)
            case ast.Call():
                return self.call(tree)
        return _broadcast([self.of(child) for child in ast.iter_child_nodes(tree) if isinstance(child, ast.expr)])

    def call(self, call: ast.Call) -> Shape | None:
        name = ast.unparse(call.func)
        if name in _ACCESSES:
            return self.access(name, call)
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) != "tl":
            return self.of(call.func.value) if call.func.attr == "to" else None
        args = [self.of(arg) for arg in call.args]
        if (made := self.made(name, call)) is not None:
            return made
        if name in ("tl.dot", "block_dot"):
            return _product(*args[:3]) if name == "tl.dot" or len(args) > 2 else None
        if name in ("receive", "receive_pair", "columns_of"):
            return _broadcast([*args, ("1", "CTAS_PER_ROW")])
        if name == "store_tile" and args[2] is not None and len({*args[2]} - {"1"}) < 2:
            raise TypeError(f"what is stored has {args[2]} alone")
        return _mapped(name, call, args)

    def made(self, name: str, call: ast.Call) -> Shape | None:
        """The shape that a call states; None if it states none."""
        match name, call.args:
            case "tl.arange", [_, last, *_]:
                return (ast.unparse(last),)
            case (("tl.zeros" | "tl.full"), [ast.List(elts=lengths) | ast.Tuple(elts=lengths), *_]):
                return tuple(map(ast.unparse, lengths))
            case "tl.full", [ast.Attribute(value=value), *_]:
                return self.of(value)
            case "init_row_max" | "init_row_max_low", [rows, *_]:
                return (ast.unparse(rows), "1")
            case (("load_rows" | "load_rows_at"), [_, rows, *_]):
                width = next(arg.id for arg in reversed(call.args) if isinstance(arg, ast.Name) and "size_" in arg.id)
                return (*(self.of(rows) or ()), f"PADDED_{width.partition('size_')[2].upper()}")
        return None

    def access(self, name: str, call: ast.Call) -> Shape | None:
        places, at = _ACCESSES[name]
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        mask = given.get("mask", call.args[at] if len(call.args) > at else None)
        covers = self.of(mask) if mask else ()
        self.fits(call.args[0], call.args[places[-1]], mask)
        address = _broadcast([self.of(call.args[place]) for place in places])
        before, self.shapes = self.shapes, self.shapes | dict.fromkeys(self.clamped, ())
        read = {node.id for place in places for node in ast.walk(call.args[place]) if isinstance(node, ast.Name)}
        reached = set[str]().union(*(self.padded.get(one, ()) for one in read))
        _covered(_broadcast([self.of(call.args[place]) for place in places]), covers, reached)
        self.shapes = before
        found = _broadcast([address, covers])
        if name == "tl.store" and (extra := _lacking(self.of(call.args[1]), found)):
            raise TypeError(f"the address has no {' and no '.join(extra)}")
        return found

    def fits(self, pointer: ast.expr, offset: ast.expr, mask: ast.expr | None) -> None:
        """Raises `TypeError` if an access is to no pointer, a mask no boolean, or an offset may overflow int32."""
        if self.kinds.of(pointer) not in ("", "pointer"):
            raise TypeError(f"what is accessed is no pointer: {ast.unparse(pointer)}")
        if mask and self.kinds.of(mask) not in ("", "bool"):
            raise TypeError(f"the mask is no boolean: {ast.unparse(mask)}")
        if not self.narrow and (narrow := self.kinds.narrow_product(offset)):
            raise TypeError(f"{narrow} may be more than int32 holds")


def _mapped(name: str, call: ast.Call, args: list[Shape | None]) -> Shape | None:
    """The shape of the result of a reduction along an axis, or of an elementwise function."""
    if name in _STATES:
        return _reduced(args[-1:], _STATES[name])
    if (axis := _AXES.get(name, _axis_of(name, call))) is not None:
        is_left = name in _REDUCTIONS and "keep_dims" not in {one.arg for one in call.keywords}
        found = _reduced(args, axis)
        return found and (*found[:axis], *found[axis + 1 :]) if is_left else found
    try:
        return None if name in _OPAQUE or name.startswith("strip_") else _broadcast(args)
    except TypeError:
        return None


# Shapes


def _broadcast(shapes: Sequence[Shape | None]) -> Shape | None:
    if None in shapes:
        return None
    known = [shape for shape in shapes if shape]
    rank = max(map(len, known), default=0)
    padded = [("1",) * (rank - len(shape)) + shape for shape in known]
    lengths = [{*lengths} - {"1"} for lengths in zip(*padded, strict=True)]
    if any(len(one) > 1 for one in lengths):
        raise TypeError(f"shapes {', '.join(map(_text, dict.fromkeys(known)))} do not fit")
    return tuple(one.pop() if one else "1" for one in lengths)


def _either(first: Shape | None, second: Shape | None) -> Shape | None:
    """The larger of two shapes, or the one that is known."""
    if first is None or second is None:
        return second if first is None else first
    try:
        return _broadcast([first, second])
    except TypeError:
        return None


def _text(shape: Shape) -> str:
    return f"[{', '.join(shape)}]"


def _lacking(shape: Shape | None, other: Shape | None) -> list[str]:
    """The dims of `shape` that `other` lacks."""
    if shape is None or other is None:
        return []
    padded = ("1",) * (len(shape) - len(other)) + other[-len(shape) or len(other) :]
    return [mine for mine, its in zip(shape, padded, strict=True) if mine not in ("1", its)]


def _covered(address: Shape | None, mask: Shape | None, reached: Container[str] = ()) -> None:
    # Lanes of a dim with a constant length all exist.
    if missing := [dim for dim in _lacking(address, mask) if not dim.isdigit() and dim not in reached]:
        raise TypeError(f"the mask has no {' and no '.join(missing)}")


def _lying(shape: Shape, lanes: list[str]) -> Shape:
    """A shape with new dims where `lanes` have None."""
    lengths: Iterator[str] = iter(shape)
    return tuple("1" if lane == "None" else next(lengths) for lane in lanes)


def _reversed(shape: Shape | None) -> Shape | None:
    return shape and shape[::-1]


def _product(left: Shape | None, right: Shape | None, total: Shape | None = None) -> Shape | None:
    """The shape of a matmul; the shape of its accumulator `total` if an operand's is unknown."""
    if left is None or right is None:
        return total
    if len(left) != 2 or len(right) != 2 or left[1] != right[0]:
        raise TypeError(f"a matmul of {_text(left)} and {_text(right)}")
    found = (left[0], right[1])
    if lacking := _lacking(found, total if total is not None else found):
        raise TypeError(f"what the matmul is added to has no {' and no '.join(lacking)}")
    return found


def _axis_of(name: str, call: ast.Call) -> int | None:
    """The axis along which a call reduces, if it does."""
    axes = [one.value for one in call.keywords if one.arg == "axis"] or call.args[1:2]
    known = [one.value for one in axes if isinstance(one, ast.Constant)] if name in _REDUCTIONS else []
    return known[0] if known and isinstance(known[0], int) else None


def _reduced(shapes: Sequence[Shape | None], axis: int) -> Shape | None:
    shape = next((one for one in shapes if one is None or len(one) > axis), ())
    if shape is None:
        return None
    if len(shape) <= axis or shape[axis] == "1":
        raise TypeError(f"what is reduced along axis {axis} has {_text(shape)}")
    return (*shape[:axis], "1", *shape[axis + 1 :])
