"""Splits the statements that are too long as black does, so that it finds nothing to do.

black takes twice as long over text that it must change, and it is nearly all of a cold build. This
follows its algorithm (`right_hand_split` and `delimiter_split` of black/linegen.py) for what our
templates emit: statements on one line, without comments and trailing commas. black still has the
last word, so that what is not known here costs time and nothing else.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..lang.literals import masked

WIDTH = 88
LONGEST = 110  # of a comment, which black leaves as it is
INDENT = "    "
COMPREHENSION, COMMA, TERNARY, COMPARATOR, DOT = 20, 18, 16, 10, 1
# How readily a line is broken before an operator.
PRIORITIES = (
    {"for": COMPREHENSION, "if": TERNARY, "else": TERNARY, "and": 14, "or": 14}
    | dict.fromkeys(("<", ">", "==", "!=", "<=", ">=", "in", "is"), COMPARATOR)
    | {"|": 9, "^": 8, "&": 7, "<<": 6, ">>": 6, "+": 5, "-": 5, "**": 2}
    | dict.fromkeys(("*", "/", "//", "%", "@"), 4)
)
KEYWORDS = frozenset("and assert else for from if in is lambda not or raise return".split())
TOKEN = re.compile(
    r"\s*([a-z]{0,2}\"(?:[^\"\\]|\\.)*\"|[a-z]{0,2}'(?:[^'\\]|\\.)*'"
    r"|\d[\d_]*\.?\d*(?:e[+-]?\d+)?|not\s+in\b|is\s+not\b|\w+"
    r"|\*\*|//|<<|>>|->|:=|[-+*/%=!<>&|^]=|\S)"
)
IMPORT = re.compile(r"(from \S+ import) (\w+(?: as \w+)?(?:, \w+(?: as \w+)?)*)")
QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'((?:[^'\\]|\\.)*)'")
TRIPLE = re.compile(rf'(""")|{QUOTED.pattern}')


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

    @property
    def width(self) -> int:
        return len(self.space) + len(self.text)


@dataclass(slots=True)
class Line:
    leaves: list[Leaf]
    indent: str
    inside: bool = False  # of brackets, where lines can break at operators
    whole: bool = False  # a statement, not a part of one
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
    """The text of a module with black's quotes, and its long statements on several lines."""
    lines: list[str] = []
    quoted = False
    for line in text.split("\n"):
        comment = not quoted and line.lstrip().startswith("#")
        quotes = 0 if comment else _triple_quotes(line, quoted)
        plain = not (quoted or quotes or comment)
        line = QUOTED.sub(_requoted, line) if plain and "'" in line else line
        if comment and line.lstrip().startswith("# "):
            lines += wrapped(line, after="# ")
        else:
            lines += statement(line, width) if plain and len(line) > width else [line]
        quoted ^= quotes % 2 == 1
    return "\n".join(lines)


def wrapped(line: str, after: str = "    ", width: int = LONGEST) -> list[str]:
    """A line of prose or of the math on as many lines as it needs, the others after something more."""
    indent = line[: -len(line.lstrip())] if line.strip() else ""
    return textwrap.wrap(line, width, subsequent_indent=indent + after, break_long_words=False) or [line]


def _triple_quotes(line: str, quoted: bool) -> int:
    """How many triple quotes of a line begin or end a docstring: other strings may hold some."""
    begins = 0 if quoted else next((found.start() for found in TRIPLE.finditer(line) if found[1]), len(line))
    return line.count('"""', begins)


def _requoted(match: re.Match[str]) -> str:
    """A string in double quotes, where that takes no backslash."""
    return match[0] if match[1] is None or re.search(r"[\"\\]", match[1]) else f'"{match[1]}"'


def statement(text: str, width: int = WIDTH) -> list[str]:
    """A statement, a decorator or the head of a compound one, on as many lines as it needs."""
    code = text.lstrip()
    if found := IMPORT.fullmatch(code):
        indent = text[: -len(code)]
        return [f"{indent}{found[1]} (", *(f"{indent}{INDENT}{name}," for name in found[2].split(", ")), f"{indent})"]
    if not code.isascii():  # `ast` tells columns in bytes.
        return [text]
    rest = " pass" if code.endswith(":") else "\ndef _(): pass" if code.startswith("@") else ""
    try:
        tree = ast.parse(code + rest)
    except SyntaxError:
        return [text]
    if not tree.body or "#" in masked(code):
        return [text]
    definition = code.startswith("def ")
    line = Line(_leaves(code, tree.body[0]), text[: -len(code)], whole=True, definition=definition)
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
                ends.append((stop, Leaf("", space, opens=True, literal=True)))
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
    if not leaves or leaves[-1].opener:
        return bool(leaves)
    last = leaves[-1].text
    return bool(re.search(r"[\w\"']$", last)) and last not in KEYWORDS


def _before(text: str, leaves: list[Leaf]) -> int:
    if text == ".":
        return DOT if leaves and leaves[-1].opener else 0
    if text.startswith(("not ", "is ")):
        return COMPARATOR
    looping = [leaf.text for leaf in leaves if leaf.text in ("for", "in")][-1:] == ["for"]
    if (text == "in" and looping) or not _operand(leaves):
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
        ways: list[Way] = [_Splitter.right_hand_split_with_omits]
        if line.definition:
            ways = [_Splitter.left_hand_split]
        elif line.inside:
            ways.insert(0, _Splitter.delimiter_split)
        for way in ways:
            try:
                return self.run(line, way, force)
            except CannotSplit:
                continue
        return [str(line)]

    def run(self, line: Line, way: Way, force: bool) -> list[str]:
        before, result = str(line), []
        hidden = [leaf for leaf, depth in _depths(line.leaves) if leaf.opens and not leaf.text]
        outer = [leaf for leaf, depth in _depths(line.leaves) if leaf in hidden and depth == 0]
        for part in way(self, line, force):
            if str(part) == before:
                raise CannotSplit
            result += self.transform(part, force)
        optional = way is _Splitter.right_hand_split_with_omits and hidden
        if force or not optional or not (line.inside or line.whole):
            return result
        if len(result[0]) <= self.width or any(leaf.text for leaf in outer):
            return result
        second = self.run(line, way, True)
        return second if all(len(text) <= self.width for text in second) else result

    def left_hand_split(self, line: Line, force: bool) -> list[Line]:
        opening = next((at for at, leaf in enumerate(line.leaves) if leaf.text == "("), 0)
        closing = next(at for at, leaf in enumerate(line.leaves) if leaf.opener is line.leaves[opening])
        head, tail = line.leaves[: opening + 1], line.leaves[closing:]
        body = line.leaves[opening + 1 : closing]
        if body and all(leaf.text != "," for leaf in body):
            body.append(Leaf(","))
        return list(self.parts(line, head, body, tail, line.leaves[opening]).lines)

    def right_hand_split_with_omits(self, line: Line, force: bool) -> list[Line]:
        first: list[Line] = []
        for omit in self.trailers(line):
            prefix = len(line.indent)
            closing = next((leaf for leaf in reversed(line.leaves) if leaf.opener and leaf not in omit), None)
            for leaf in line.leaves:
                if closing and leaf is closing.opener:
                    break
                prefix += leaf.width
            if omit and closing and closing.opener and closing.opener.text and prefix > self.width:
                continue
            lines = self.right_hand_split(line, omit, force)
            first = first or lines
            if self.short(lines[0]):
                return lines
        return first

    def trailers(self, line: Line) -> Iterator[set[Leaf]]:
        """Closing brackets to overlook, ever more of them, as long as what follows them fits."""
        omit: set[Leaf] = set()
        yield set()
        length = len(line.indent)
        opening: Leaf | None = None
        closing: Leaf | None = None
        inner: set[Leaf] = set()
        for at in range(len(line.leaves) - 1, -1, -1):
            leaf = line.leaves[at]
            length += leaf.width
            if length > self.width:
                return
            if opening:
                if leaf is opening:
                    opening = None
                elif leaf.opener:
                    inner.add(leaf)
            elif leaf.opener:
                if at and line.leaves[at - 1].opens:
                    inner.add(leaf)
                    continue
                if closing:
                    omit |= {closing, *inner}
                    inner = set()
                    yield set(omit)
                if leaf.text:
                    opening, closing = leaf.opener, leaf

    def right_hand_split(self, line: Line, omit: set[Leaf], force: bool) -> list[Line]:
        split = self.first_right_hand_split(line, omit)
        if not force and not split.opening.text and self.can_omit_parens(split):
            try:
                omit = {split.closing, *omit}
                if self.prefer(self.first_right_hand_split(line, omit), split):
                    return self.right_hand_split(line, omit, force)
            except CannotSplit:
                if len(split.body.leaves) < 2 and not self.short(split.body):
                    raise
        if not split.opening.text:
            split.opening.text, split.closing.text = "(", ")"
        return list(split.lines)

    def first_right_hand_split(self, line: Line, omit: set[Leaf]) -> Split:
        head: list[Leaf] = []
        body: list[Leaf] = []
        tail: list[Leaf] = []
        current = tail
        opening: Leaf | None = None
        closing: Leaf | None = None
        for leaf in reversed(line.leaves):
            if current is body and leaf is opening:
                current = head if body else tail
            current.append(leaf)
            if current is tail and leaf.opener and leaf not in omit:
                opening, closing, current = leaf.opener, leaf, body
        if not (opening and closing and head):
            raise CannotSplit
        return self.parts(line, head[::-1], body[::-1], tail[::-1], opening, closing)

    def parts(
        self,
        line: Line,
        head: list[Leaf],
        body: list[Leaf],
        tail: list[Leaf],
        opening: Leaf,
        closing: Leaf | None = None,
    ) -> Split:
        if not body and len("".join(leaf.space + leaf.text for leaf in tail).strip()) < 3:
            raise CannotSplit
        inner = Line(body, line.indent + INDENT, inside=True)
        inner.explode = opening.literal and inner.priority() == COMMA
        return Split(Line(head, line.indent), inner, Line(tail, line.indent), opening, closing or tail[0])

    def prefer(self, without: Split, split: Split) -> bool:
        """Whether a split without the optional parentheses is better."""
        leaves = split.head.leaves
        if len(leaves) < 2 or leaves[-2].text != "=":
            return True
        if not any(leaf.opens or leaf.opener for leaf in leaves[:-1]):
            return True
        if not self.short(split.head, less=1):
            return True
        texts = [leaf.text for leaf in without.head.leaves]
        if "=" not in texts:
            return any(leaf.opener for leaf in without.head.leaves)
        last = len(texts) - 1 - texts[::-1].index("=")
        return any(leaf.opener for leaf in without.head.leaves[last:]) or self.short(without.head)

    def can_omit_parens(self, split: Split) -> bool:
        line = split.body
        if not line.delimiters:
            return True
        priority = max(line.delimiters.values())
        if line.count(priority) > 1:
            return False
        if priority == DOT:
            return True
        first, second, last = line.leaves[0], line.leaves[1], line.leaves[-1]
        if first.opens and not second.opener and self.can_omit_opening(line, first):
            return True
        index = last.text == "]" and last.opener is not None and not last.opener.literal
        if last.opener and not index and not line.leaves[-2].opens:
            return self.can_omit_closing(line, last)
        return False

    def can_omit_opening(self, line: Line, first: Leaf) -> bool:
        length, rest = len(line.indent), False
        for leaf in line.leaves:
            rest = rest or leaf.opener is first
            if rest:
                length += leaf.width
                if length > self.width:
                    return False
                rest = not leaf.opens
        return True

    def can_omit_closing(self, line: Line, last: Leaf) -> bool:
        length, others = len(line.indent), False
        for leaf in line.leaves:
            length += leaf.width
            if leaf is last.opener:
                return others or length <= self.width
            others = others or leaf.opens
        return False

    def delimiter_split(self, line: Line, force: bool) -> list[Line]:
        priority = line.priority()
        if not priority or (priority == DOT and line.count(DOT) == 1):
            raise CannotSplit
        lines: list[Line] = []
        current: list[Leaf] = []
        for at, leaf in enumerate(line.leaves):
            current.append(leaf)
            if line.delimiters.get(at) == priority:
                lines.append(Line(current, line.indent, inside=True))
                current = []
        if current:
            if priority == COMMA:
                current.append(Leaf(","))
            lines.append(Line(current, line.indent, inside=True))
        return lines


Way = Callable[[_Splitter, Line, bool], list[Line]]


def _depths(leaves: list[Leaf]) -> Iterator[tuple[Leaf, int]]:
    depth = 0
    for leaf in leaves:
        depth -= leaf.opener is not None
        yield leaf, depth
        depth += leaf.opens
