"""Lines of a kernel, the names in them, and the conditions on params under which they stand."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..lang.ir import Call, Constant, Node, Path, Scalar
from ..lang.trees import literal, parenthesized
from ..spec.types import Input


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a kernel, with the comment that goes above it.

    It stands where its `path` is taken: see `nested`. The comment goes above that many of the last conditions.
    """

    text: str
    comment: str = ""
    path: Path = ()
    above: int = 0

    @property
    def indent(self) -> str:
        return self.text[: len(self.text) - len(self.text.lstrip())]

    @property
    def assigned(self) -> str:
        """The name that it gives a value, if it is an assignment to one."""
        targets = self.targets
        return targets[0] if len(targets) == 1 else ""

    @property
    def targets(self) -> tuple[str, ...]:
        """The names that it gives values."""
        return _targets_and_names(self.text)[0]

    @property
    def names(self) -> frozenset[str]:
        """The names in it, that which it assigns among them."""
        return _targets_and_names(self.text)[1]


@functools.cache
def _targets_and_names(text: str) -> tuple[tuple[str, ...], frozenset[str]]:
    code = text.strip().removeprefix("else:")
    code = code.removeprefix("el") if code.startswith("elif ") else code
    tree = ast.parse(f"{code} pass" if code.endswith(":") else code)
    names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    match tree.body:
        case [ast.Assign(targets=[target])]:
            return tuple(node.id for node in ast.walk(target) if isinstance(node, ast.Name)), names
    return (), names


def names_of(lines: Iterable[Line]) -> set[str]:
    """The names in some lines."""
    return set[str]().union(*(line.names for line in lines))


def without_unread(lines: Iterable[Line], names: set[str]) -> list[Line]:
    """Some lines without those that give names values which neither lines behind them read nor `names` has, to which
    the names of what is left are added.
    """
    found: list[Line] = []
    for line in reversed([*lines]):
        if not line.targets or not names.isdisjoint(line.targets):
            found.insert(0, line)
            names |= line.names
    return found


def condition_tree(path: Path) -> ast.expr:
    """A path, of one condition or more, as Python and Triton read it, in a kernel or on the host."""
    trees = [_tree(test, holds) for test, holds in without_implied(path)]
    return parenthesized(ast.BoolOp(ast.And(), trees) if len(trees) > 1 else trees[0])


def without_implied(path: Path) -> Path:
    """A path without that a param is not this word, where it is that one."""
    words = {_word_of(test) for test, holds in path if holds} - {None}
    return tuple((test, holds) for test, holds in path if holds or _word_of(test) not in words)


def implies(path: Path, other: Path) -> bool:
    """Whether what holds on a path is all that another asks for: a param that is one word is no other."""
    words = {_word_of(test) for test, holds in path if holds} - {None}
    return all(
        (test, holds) in path or (not holds and (test, True) not in path and _word_of(test) in words)
        for test, holds in other
    )


def _word_of(test: Node) -> str | None:
    """The param that a condition compares with a word."""
    match test:
        case Call(function="eq", args=(Scalar(name=name), Constant(value=str()))):
            return name
        case Call(function="eq", args=(Constant(value=str()), Scalar(name=name))):
            return name
    return None


def condition_text(path: Path) -> str:
    return ast.unparse(condition_tree(path))


def condition_operand(path: Path) -> str:
    """A path of one condition or more, after an `and`."""
    return after_and(condition_tree(path))


def after_and(tree: ast.expr) -> str:
    """A condition as it is spelled after an `and`."""
    joined = isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.Or)
    return f"({ast.unparse(tree)})" if joined else ast.unparse(tree)


def _tree(test: Node, holds: bool = True) -> ast.expr:
    match test:
        case Scalar(name=name):
            return ast.Name(name) if holds else ast.UnaryOp(ast.Not(), ast.Name(name))
        case Constant(value=value):
            return ast.Constant(value if holds else not value) if isinstance(value, bool) else ast.Constant(value)
        case Call(function="logical_not", args=(inner,)):
            return _tree(inner, not holds)
        case Call(function="eq" | "ne" as function, args=(left, right)):
            same = (function == "eq") == holds
            return ast.Compare(_tree(left), [ast.Eq() if same else ast.NotEq()], [_tree(right)])
        case Call(function="logical_and" | "logical_or" as function, args=args):
            # Of the opposite, each part is the opposite.
            joins = ast.And() if (function == "logical_and") == holds else ast.Or()
            trees = [_tree(arg, holds) for arg in args]
            alike = [
                tree.values if isinstance(tree, ast.BoolOp) and type(tree.op) is type(joins) else [tree]
                for tree in trees
            ]
            return ast.BoolOp(joins, [one for several in alike for one in several])
    raise AssertionError(f"no condition on params: {test}")


def is_condition(node: Node) -> bool:
    """Whether a node is made of words and flags as a condition of an `if` is."""
    match node:
        case Scalar() | Constant():
            return True
        case Call(function="logical_not" | "logical_and" | "logical_or" | "eq" | "ne", args=args):
            return all(map(is_condition, args))
    return False


def under(path: Path, lines: Iterable[Line]) -> list[Line]:
    """The lines where a path is taken."""
    return [replace(line, path=(*path, *line.path)) for line in lines]


def nested(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Lines under the `if`s of their conditions; neighbours under the same one share it, and what holds otherwise
    follows in its `else`.
    """
    left, found = list(lines), list[Line]()
    while left:
        if not left[0].path:
            found.append(left.pop(0))
            continue
        test = left[0].path[0][0]
        count = next((n for n, line in enumerate(left) if not line.path or line.path[0][0] != test), len(left))
        block, left = left[:count], left[count:]
        found += _block(test, block)
    return tuple(found)


def _block(test: Node, lines: list[Line]) -> list[Line]:
    """Lines that all depend on a condition."""
    tops = [bool(line.comment) and line.above == len(line.path) for line in lines]
    said = "; ".join(dict.fromkeys(line.comment for line, top in zip(lines, tops, strict=True) if top))
    lines = [replace(line, comment="", above=0) if top else line for line, top in zip(lines, tops, strict=True)]
    path = shared_path([line.path for line in lines])
    if path:
        rest = nested(replace(line, path=line.path[len(path) :]) for line in lines)
        return [Line(f"if {condition_text(path)}:", said), *indented(rest)]
    then, other = (
        nested(replace(line, path=line.path[1:]) for line in lines if line.path[0][1] == holds)
        for holds in (True, False)
    )
    found = [Line(f"if {condition_text(((test, True),))}:", said), *indented(then)]
    if other[0].text.startswith("if ") and not other[0].comment and _is_one_if(other):
        return [*found, Line(f"el{other[0].text}"), *other[1:]]
    return [*found, Line("else:"), *indented(other)]


def shared_path(paths: Sequence[Path]) -> Path:
    """What some paths begin with."""
    first = paths[0]
    count = next(n for n in range(len(first), -1, -1) if all(path[:n] == first[:n] for path in paths))
    return first[:count]


def _is_one_if(lines: Sequence[Line]) -> bool:
    """Whether lines are an `if` with what belongs to it, of words and flags alone."""
    return all(line.text.startswith((" ", "else:", "elif ")) for line in lines[1:])


def indented(lines: Iterable[Line]) -> list[Line]:
    """The lines one level deeper."""
    return [replace(line, text=f"    {line.text}") for line in lines]


def load_default(tensor: Input) -> str:
    """How a kernel spells the number that an absent optional input stands for."""
    return ast.unparse(literal(tensor.default))


# A load that masks with 0, of a dtype that is told.
_LOAD = re.compile(r"tl\.load\(([^ (),]+_ptr) \+ (.+), mask=([^,]+), other=0(?:\.0)?\)\.to\(([^()]+)\)")


def if_given(tensor: Input, name: str, value: str, otherwise: str) -> list[Line]:
    """Lines that give a name what is read of an optional input, or the number that stands for it."""
    load = _LOAD.fullmatch(value)
    if load and otherwise == load_default(tensor):
        pointer, offsets, mask, dtype = load.groups()
        return [Line(f"{name} = load_or({pointer}, {offsets}, {mask}, {otherwise}, {dtype})")]
    return [
        Line(f"{name} = {otherwise}"),
        Line(f"if {tensor.name}_ptr is not None:"),
        Line(f"    {name} = {value}"),
    ]
