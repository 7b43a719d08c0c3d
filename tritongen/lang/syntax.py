"""Text of expressions: parsed by Python's `ast`, with positions of nodes and a limit on depth."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass

from .literals import masked

MAX_DEPTH = 100
# Predefined names.
CONSTANTS = {
    "inf": float("inf"),
    "nan": float("nan"),
    "pi": 3.141592653589793,
    "e": 2.718281828459045,
}
# Every Python operator of the language, as the function table writes it.
SYMBOLS: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.USub: "u-",
    ast.UAdd: "u+",
    ast.Invert: "~",
    ast.Not: "not",
}
# Syntax of other languages, with the hint for this one.
_FOREIGN = {
    "&&": "write `and`",
    "||": "write `or`",
    "!": "write `not`",
    "?": "write where(condition, x, other)",
    "=": "values compare by ==; the name of a line is its key",
    ";": "one line of [compute] is one tensor: write several lines",
    "\u00d7": "write *",
    "\u00f7": "write /",
    "\u00b2": "write ** 2",
}
_ALLOWED = "expressions are made of names, numbers, operators and functions"
LEFT_OUT = 'an input with a default may be left out, and stands for that number then: w = "float[N] = 1"'
_INSTEAD: tuple[tuple[tuple[type[ast.AST], ...], str], ...] = (
    ((ast.Compare,), "compare by == != < <= > >="),
    ((ast.NamedExpr,), "give it a line of its own in [compute]"),
    ((ast.Tuple, ast.List, ast.Set), "one line of [compute] is one tensor: write several lines"),
    ((ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp), "a reduction is over axes: sum(x, N)"),
    ((ast.Lambda,), "there are no functions of one's own: give each part a line in [compute]"),
)
_ASSIGNED = re.compile(r"(?<![=!<>])=(?!=)")
# Python's messages about brackets are the same in all versions; the others are not.
_BRACKETS = ("was never closed", "unmatched", "does not match")


@dataclass(frozen=True, slots=True)
class NotAnExpression(Exception):
    message: str
    start: int
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """The text of an expression in the spec, on one line or several."""

    text: str

    def parse(self) -> ast.expr:
        """The syntax tree. Raises `NotAnExpression`."""
        if "#" in masked(self._line):
            hint = "a comment of TOML follows the string"
            start = masked(self._line).index("#")
            raise NotAnExpression("an expression has no comments", start, hint)
        try:
            with warnings.catch_warnings(action="ignore"):  # Python warns about valid but suspicious code.
                tree = ast.parse(self._line.strip(), mode="eval").body
        except SyntaxError as error:
            if "too many nested" in error.msg:
                raise self._too_deep() from None
            if assigned := _ASSIGNED.search(self._line) if "keyword" in error.msg else None:
                hint = _FOREIGN["="]
                raise NotAnExpression("this is not an expression", assigned.start(), hint) from None
            known = any(words in error.msg for words in _BRACKETS)
            message = "this is not an expression" + (f": {error.msg}" if known else "")
            # Python gives no offset if something is missing at the end.
            place = self._lead + error.offset - 1 if error.offset else len(self.text.rstrip()) - 1
            raise NotAnExpression(message, place, "" if known else self._meant(place)) from None
        except ValueError:
            raise NotAnExpression("this is not an expression", self._lead) from None
        except (RecursionError, MemoryError):
            raise self._too_deep() from None
        if _depth(tree) > MAX_DEPTH:
            raise self._too_deep()
        return tree

    def _meant(self, place: int) -> str:
        """The hint for the text at which Python stopped parsing."""
        if place >= len(self.text.rstrip()) - 1 and self.text.rstrip()[-1:] in "+-*/%&|^~<>=,.":
            return "a value must follow"
        if self.text.split()[:1] == ["if"]:
            return "write where(condition, x, other), or `x if flag else other` for a flag of [params]"
        if self.text[place:].split("(")[0].split()[:1] == ["not"]:
            return "`not` binds less tightly than other operators: put it and its value in parentheses"
        found = [hint for sign, hint in _FOREIGN.items() if sign in self.text[max(place - 1, 0) : place + 1]]
        return found[0] if found else "values are joined by operators or commas"

    def _too_deep(self) -> NotAnExpression:
        hint = "give parts of it lines of their own"
        return NotAnExpression("this expression is nested too deeply", self._lead, hint)

    def span(self, node: ast.AST) -> tuple[int, int]:
        """The offset and length of a subtree, in characters of the text."""
        line = self._line.strip().encode()

        def characters(column: int) -> int:
            return self._lead + len(line[:column].decode(errors="ignore"))

        start = characters(getattr(node, "col_offset", 0))
        end = characters(getattr(node, "end_col_offset", None) or len(line))
        return start, max(end - start, 1)

    @property
    def _line(self) -> str:
        return self.text.translate({ord("\n"): " ", ord("\r"): " "})

    @property
    def _lead(self) -> int:
        return len(self._line) - len(self._line.lstrip())


def _depth(tree: ast.AST) -> int:
    deepest, left = 0, [(tree, 1)]
    while left:
        node, depth = left.pop()
        # `a or b or c` is one node of Python with all operands, but here one node per operator.
        depth += len(node.values) - 2 if isinstance(node, ast.BoolOp) else 0
        depth += len(node.ops) - 1 if isinstance(node, ast.Compare) else 0
        deepest = max(deepest, depth)
        left += [(child, depth + 1) for child in ast.iter_child_nodes(node)]
    return deepest


def symbol(tree: ast.AST) -> str:
    """The operator at the root of a tree; "" if there is none."""
    if isinstance(tree, ast.BinOp | ast.UnaryOp):
        return SYMBOLS.get(type(tree.op), "").removeprefix("u")
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
        return SYMBOLS.get(type(tree.ops[0]), "")
    return ""


def instead(tree: ast.AST) -> str:
    """The hint for syntax that the language does not have."""
    return next((hint for kinds, hint in _INSTEAD if isinstance(tree, kinds)), _ALLOWED)


def is_none(tree: ast.AST) -> bool:
    """Whether an expression is None or compares with None."""
    operands = (tree.left, *tree.comparators) if isinstance(tree, ast.Compare) else (tree,)
    return any(isinstance(operand, ast.Constant) and operand.value is None for operand in operands)
