"""Splits the statements that are too long as black does, so that it finds nothing to do.

black takes twice as long over text that it must change, and it is nearly all of a cold build. This
follows its algorithm (`right_hand_split` and `delimiter_split` of black/linegen.py) for what our
templates emit: statements on one line, without comments and trailing commas. black still has the
last word, so that what is not known here costs time and nothing else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

WIDTH = 88
INDENT = "    "
COMPREHENSION, COMMA, TERNARY, COMPARATOR, DOT = 20, 18, 16, 10, 1
# How readily a line is broken before an operator.
PRIORITIES = {"|": 9, "^": 8, "&": 7, "<<": 6, ">>": 6, "+": 5, "-": 5, "**": 2} | {
    **dict.fromkeys(("*", "/", "//", "%", "@"), 4),
    **dict.fromkeys(("<", ">", "==", "!=", "<=", ">=", "in", "is"), COMPARATOR),
    **{"and": 14, "or": 14, "if": TERNARY, "else": TERNARY, "for": COMPREHENSION},
}
KEYWORDS = frozenset("and assert else for from if in is lambda not or raise return".split())
TOKEN = re.compile(
    r"\s*([a-z]{0,2}\"(?:[^\"\\]|\\.)*\"|[a-z]{0,2}'(?:[^'\\]|\\.)*'"
    r"|\d[\d_]*\.?\d*(?:e[+-]?\d+)?|not\s+in\b|is\s+not\b|\w+"
    r"|\*\*|//|<<|>>|->|:=|[-+*/%=!<>&|^]=|\S)"
)


class CannotSplit(Exception):
    """This way leads nowhere."""


@dataclass(slots=True, eq=False)
class Leaf:
    """A token. A closing bracket knows its `opener`; brackets without text could be written."""

    text: str
    space: str = ""
    opens: bool = False
    opener: Leaf | None = None
    literal: bool = False  # opens a tuple or list, rather than arguments or an index
    before: int = 0  # the priority of a break before it

    def __len__(self) -> int:
        return len(self.space) + len(self.text)


@dataclass(slots=True)
class Line:
    leaves: list[Leaf]
    indent: str
    inside: bool = False  # of brackets, where lines can break at operators
    definition: bool = False
    explode: bool = False
    delimiters: dict[int, int] = field(default_factory=dict)  # position of a leaf -> priority

    def __post_init__(self) -> None:
        self.delimiters = dict(_delimiters(self.leaves)) if self.inside else {}

    def __str__(self) -> str:
        return self.indent + "".join(leaf.space + leaf.text for leaf in self.leaves).lstrip()

    def priority(self) -> int:
        """The highest priority of a break, but for one at the end."""
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

    @property
    def lines(self) -> tuple[Line, ...]:
        return tuple(line for line in (self.head, self.body, self.tail) if line.leaves)


def laid_out(text: str, width: int = WIDTH) -> str:
    """The text of a module, with its long statements on several lines."""
    lines: list[str] = []
    quoted = False
    for line in text.split("\n"):
        quotes = line.count('"""')
        lines += [line] if quoted or quotes or len(line) <= width else statement(line, width)
        quoted ^= quotes % 2 == 1
    return "\n".join(lines)


def statement(text: str, width: int = WIDTH) -> list[str]:
    """A statement, or the first line of a compound one, on as many lines as it needs."""
    code = text.lstrip()
    try:
        tree = ast.parse(f"{code} pass" if code.endswith(":") else code)
    except SyntaxError:
        return [text]
    if not tree.body or "#" in re.sub(r"\"[^\"]*\"", "", code):
        return [text]
    definition = isinstance(tree.body[0], ast.FunctionDef)
    line = Line(_leaves(code, tree.body[0]), text[: -len(code)], definition=definition)
    return _Splitter(width).transform(line)


def _leaves(code: str, tree: ast.stmt) -> list[Leaf]:
    """The tokens of a statement, with brackets without text where black may put some."""
    hidden = [getattr(tree, name, None) for name in ("value", "test", "iter")]
    places = [] if isinstance(tree, ast.Expr) else [node for node in hidden if node is not None]
    filters = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp) and node not in places:
            places.append(node)
        if isinstance(node, ast.comprehension):
            filters |= {code.rindex("if", 0, test.col_offset) for test in node.ifs}
    extents = sorted((n.col_offset, -(n.end_col_offset or 0)) for n in places)
    leaves: list[Leaf] = []
    opened: list[Leaf] = []
    ends: list[tuple[int, Leaf]] = []
    for match in TOKEN.finditer(code):
        start, end, text = match.start(1), match.end(1), match[1]
        space = code[match.start() : start]
        while extents and extents[0][0] <= start:
            stop = -extents.pop(0)[1]
            if not (leaves and leaves[-1].text == "(" and code[stop : stop + 1] == ")"):
                ends.append((stop, Leaf("", space, opens=True)))
                leaves.append(ends[-1][1])
                space = ""
        leaf = Leaf(text, space, before=_before(text, leaves))
        if text in ("(", "[", "{"):
            leaf.opens, leaf.literal = True, not _operand(leaves)
            opened.append(leaf)
        elif text in (")", "]", "}"):
            leaf.opener = opened.pop()
        elif start in filters:
            leaf.before = COMPREHENSION
        leaves.append(leaf)
        while ends and ends[-1][0] <= end:
            leaves.append(Leaf("", opener=ends.pop()[1]))
    return leaves


def _operand(leaves: list[Leaf]) -> bool:
    """Whether these end in something that an operator or a call can follow."""
    last = leaves[-1] if leaves else None
    if last is None or not last.text:
        return last is not None and last.opener is not None
    return bool(last.opener) or last.text not in KEYWORDS and last.text[-1] in "\"'_" or (
        last.text not in KEYWORDS and last.text[-1].isalnum()
    )


def _before(text: str, leaves: list[Leaf]) -> int:
    if text == ".":
        return DOT if leaves and leaves[-1].opener else 0
    if text.startswith(("not ", "is ")):
        return COMPARATOR
    looping = [leaf.text for leaf in leaves if leaf.text in ("for", "in")][-1:] == ["for"]
    if text == "in" and looping or not _operand(leaves):
        return 0
    return PRIORITIES.get(text, 0)


def _delimiters(leaves: list[Leaf]) -> Iterator[tuple[int, int]]:
    depth = 0
    for at, leaf in enumerate(leaves):
        depth -= leaf.opener is not None
        if depth == 0 and at and leaf.before:
            yield at - 1, leaf.before
        if depth == 0 and leaf.text == ",":
            yield at, COMMA
        depth += leaf.opens


@dataclass(frozen=True, slots=True)
class _Splitter:
    """The names are those of black's functions, which say why."""

    width: int

    def short(self, line: Line, less: int = 0) -> bool:
        return len(str(line)) <= self.width - less

    def transform(self, line: Line, force: bool = False) -> list[str]:
        if not line.explode and self.short(line):
            return [str(line)]
        ways: list[Callable[[Line, bool], list[Line]]] = [self.right_hand_split_with_omits]
        if line.definition:
            ways = [self.left_hand_split]
        elif line.inside:
            ways = [self.delimiter_split, self.right_hand_split_with_omits]
        for way in ways:
            try:
                return self.run(line, way, force)
            except CannotSplit:
                continue
        return [str(line)]

    def run(self, line: Line, way: Callable[[Line, bool], list[Line]], force: bool) -> list[str]:
        before, result = str(line), []
        for part in way(line, force):
            if str(part) == before:
                raise CannotSplit
            result += self.transform(part, force)
        hidden = [leaf for leaf in line.leaves if leaf.opens and not leaf.literal]
        invisible = any(not leaf.text for leaf in hidden)
        last = way == self.delimiter_split or way == self.left_hand_split
        if force or last or not invisible or len(result[0]) <= self.width:
            return result
        if any(leaf.text and not leaf.literal and leaf in self.outer(line) for leaf in hidden):
            return result
        second = self.run(line, way, True)
        return second if all(len(text) <= self.width for text in second) else result
