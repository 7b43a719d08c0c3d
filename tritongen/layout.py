"""Splits the lines that are too long as black splits them, so that it finds nothing to do.

black takes twice as long over text that it must change, and it is nearly all of a cold build. This
follows its algorithm (black/linegen.py, right_hand_split and delimiter_split) for what templates
emit: statements on one line, without comments or trailing commas. black has the last word, so that
what this does not know costs time and nothing else.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

WIDTH = 88
STEP = "    "
COMPREHENSION, COMMA, TERNARY, LOGIC, COMPARATOR, DOT = 20, 18, 16, 14, 10, 1
PRIORITIES = {"|": 9, "^": 8, "&": 7, "<<": 6, ">>": 6, "+": 5, "-": 5} | {
    **dict.fromkeys(("*", "/", "//", "%", "@"), 4),
    **dict.fromkeys(("<", ">", "==", "!=", "<=", ">=", "in", "is"), COMPARATOR),
    **dict.fromkeys(("and", "or"), LOGIC),
    **dict.fromkeys(("if", "else"), TERNARY),
    **{"for": COMPREHENSION, "**": 2},
}
WORDS = frozenset("and or not if else in is for return lambda raise assert".split())


class CannotSplit(Exception):
    """Another way must be tried."""


@dataclass(slots=True, eq=False)
class Leaf:
    """A token. `opener` is what a closing bracket closes; invisible brackets have no text."""

    text: str
    space: str = ""
    opens: bool = False
    opener: Leaf | None = None
    literal: bool = False  # opens a tuple, list or parentheses rather than arguments or an index
    before: int = 0  # how well a line may be broken before it

    @property
    def width(self) -> int:
        return len(self.space) + len(self.text)


@dataclass(slots=True)
class Line:
    leaves: list[Leaf]
    indent: str
    inside: bool = False  # of brackets
    definition: bool = False
    explode: bool = False
    delimiters: dict[int, int] = field(default_factory=dict)  # position of a leaf -> priority

    def __post_init__(self) -> None:
        if self.inside:
            self.delimiters = dict(_delimiters(self.leaves))

    def __str__(self) -> str:
        return self.indent + "".join(leaf.space + leaf.text for leaf in self.leaves).lstrip()

    def priority(self) -> int:
        last = len(self.leaves) - 1
        return max((rank for at, rank in self.delimiters.items() if at != last), default=0)

    def count(self, priority: int) -> int:
        return sum(rank == priority for rank in self.delimiters.values())


@dataclass(slots=True)
class Split:
    head: Line
    body: Line
    tail: Line
    opening: Leaf
    closing: Leaf


def laid_out(text: str, width: int = WIDTH) -> str:
    """The text of a module with its long statements on several lines."""
    lines: list[str] = []
    quoted = False
    for line in text.split("\n"):
        plain = not quoted and '"""' not in line
        quoted ^= line.count('"""') % 2 == 1
        lines += statement(line, width) if plain and len(line) > width else [line]
    return "\n".join(lines)


def statement(text: str, width: int = WIDTH) -> list[str]:
    """A statement, or the head of a compound one, on as many lines as it needs."""
    code = text.lstrip()
    try:
        tree = ast.parse(f"{code} pass" if code.endswith(":") else code).body[0]
        leaves = _leaves(code, tree)
    except (SyntaxError, tokenize.TokenError):
        return [text]
    if leaves is None:
        return [text]
    line = Line(leaves, text[: len(text) - len(code)], definition=isinstance(tree, ast.FunctionDef))
    return [str(part) for part in _Splitter(width).transform(line)]


def _leaves(code: str, tree: ast.stmt) -> list[Leaf] | None:
    """The tokens of a statement; None where it has a comment."""
    filters = {id(test) for n in ast.walk(tree) if isinstance(n, ast.comprehension) for test in n.ifs}
    values = [v for v in (getattr(tree, name, None) for name in ("value", "test", "iter")) if v]
    values = [] if isinstance(tree, ast.Expr) else values
    values += [n for n in ast.walk(tree) if isinstance(n, ast.IfExp) and n not in values]
    opening = {node.col_offset: node for node in reversed(values)}
    closing = {node.end_col_offset: node for node in values}
    wheres = {n.col_offset for n in ast.walk(tree) if id(n) in filters}
    found: list[Leaf] = []
    stack: list[Leaf] = []
    hidden: dict[int, Leaf] = {}
    end = 0
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            return None
        if not token.string.strip() or token.type in (tokenize.INDENT, tokenize.DEDENT):
            continue
        start = token.start[1]
        space = code[end:start]
        if start in opening:
            node = opening[start]
            enclosed = bool(found) and found[-1].text == "(" and code[node.end_col_offset :][:1] == ")"
            if not enclosed:
                hidden[id(node)] = Leaf("", space, opens=True)
                found.append(hidden[id(node)])
                space = ""
        found.append(_leaf(token.string, space, found, stack))
        if token.string == "if" and any(code[token.end[1] :].lstrip() and at > start and not code[token.end[1] : at].strip() for at in wheres):
            found[-1].before = COMPREHENSION
        end = token.end[1]
        if end in closing and id(closing[end]) in hidden:
            found.append(Leaf("", opener=hidden[id(closing[end])]))
    return found
