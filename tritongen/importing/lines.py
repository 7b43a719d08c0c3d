"""Chooses the expressions that are lines of [compute], their names and their text."""

from __future__ import annotations

import keyword
from collections import Counter
from collections.abc import Iterable, Sequence

from ..lang.along import ALONG
from ..lang.reductions import REDUCTIONS
from ..lang.syntax import CONSTANTS
from .expressions import Apply, Expr, Input, Line, bare, subexpressions, text
from .naming import Names

_WIDTH = 88
# Names, by function, of lines that have no variable in the source.
_CALLED = dict(
    pair.split(":")
    for pair in """
    mean:mu var:var std:std rsqrt:rstd logsumexp:lse softmax:p log_softmax:logp max:top min:low sum:h sub:d take:part
    exp:w norm:norm argmax:best sigmoid:gate silu:gate
    """.split()
)
_PLAIN = ("h", "u", "z")
GENERIC = frozenset(("out", "output", "result", "res", "ret", "hidden_states", "x", "y"))
_NEVER = frozenset(("index", "size"))


class Lines:
    """The lines of some results, in order; `results` are pairs of a wanted name and an expression."""

    def __init__(
        self, results: Sequence[tuple[str, Expr]], names: Names, used: Iterable[str], inputs: Iterable[str]
    ) -> None:
        self._names = names
        self._inputs = frozenset(inputs)
        self._used = set(used) | set(CONSTANTS)
        self._wanted: dict[int, tuple[str, bool]] = {}
        self._uses: Counter[int] = Counter()
        self._reserved = GENERIC | (self._used - self._inputs)  # names that are not numbered
        self._stems: dict[str, str] = {}  # of generated names
        self._order: list[Expr] = []
        for _, expr in results:
            self._count(expr)
        self._of: dict[int, str] = {}
        outputs = {id(bare(expr)): name for name, expr in results}
        for one in self._order:
            if id(one) in outputs:
                self._of[id(one)] = self._name(one, outputs[id(one)])
        self._reserved |= set(self._of.values())
        for one in self._order:
            if id(one) not in outputs and self._is_line(one):
                self._of[id(one)] = self._name(one)
        self._break_long()
        self._merge_equal(set(outputs))
        self._number()
        self.results = [self._of.get(id(bare(expr)), "") for _, expr in results]

    def texts(self) -> list[tuple[str, str]]:
        """Names and expressions of the lines, each after those that it reads."""
        return list({self._of[id(one)]: self._text(one) for one in self._lines()}.items())

    def _lines(self) -> list[Expr]:
        return [one for one in self._order if id(one) in self._of]

    def _text(self, expr: Expr) -> str:
        return text(expr, self._names.over, self._of)

    def _count(self, expr: Expr) -> None:
        while isinstance(expr, Line):
            name, required = self._wanted.get(id(bare(expr)), ("", False))
            if not name or (expr.required and not required):
                self._wanted[id(bare(expr))] = expr.name, expr.required
            expr = expr.expr
        self._uses[id(expr)] += 1
        if self._uses[id(expr)] > 1:
            return
        for inner in subexpressions(expr):
            self._count(inner)
        self._order.append(expr)

    def _is_line(self, expr: Expr) -> bool:
        if not isinstance(expr, Apply) or expr.function in _NEVER or not self._has_tensors(expr):
            return False
        name, required = self._wanted.get(id(expr), ("", False))
        if required:
            return True
        if self._uses[id(expr)] > 1:
            return not self._is_short(expr)
        if not name or (name in self._used and self._operations(expr) < 6):
            return False
        return expr.function in REDUCTIONS or expr.function in ALONG or self._operations(expr) > 2

    def _is_short(self, expr: Apply) -> bool:
        """Whether an expression may be repeated: a cast, a sign, a `detach`, or math that reads no input."""
        return expr.function in ("cast", "neg", "detach") or not self._reads_inputs(expr)

    def _has_tensors(self, expr: Expr) -> bool:
        """Whether an expression is more than arithmetic of constants, params and lengths."""
        if isinstance(expr, Apply):
            return expr.function != "size" and (
                expr.function == "index" or any(map(self._has_tensors, subexpressions(expr)))
            )
        return isinstance(bare(expr), Input) or (isinstance(expr, Line) and self._has_tensors(expr.expr))

    def _reads_inputs(self, expr: Expr) -> bool:
        return isinstance(expr, Input) or any(map(self._reads_inputs, subexpressions(expr)))

    def _operations(self, expr: Expr) -> int:
        """The number of functions in the text of a line."""
        expr = bare(expr)
        inside = sum(self._operations(inner) for inner in subexpressions(expr) if id(bare(inner)) not in self._of)
        return inside + isinstance(expr, Apply)

    def _name(self, expr: Expr, output: str = "") -> str:
        """The name of the variable in the source, or else a common name for the function."""
        wanted = output or self._wanted.get(id(expr), ("", False))[0]
        for name in (wanted, *([f"new_{output}"] if output in self._inputs else []), *(["y"] if output else [])):
            if name and self._is_free(name):
                self._used.add(name)
                return name
        called = _CALLED.get(expr.function if isinstance(expr, Apply) else "", "h")
        is_name = wanted.isidentifier() and not keyword.iskeyword(wanted)
        stem = wanted if is_name and wanted not in self._reserved else called
        name = self._made(stem)
        self._stems[name] = stem
        return name

    def _made(self, stem: str) -> str:
        choices = (*_PLAIN, *(f"h{number}" for number in range(2, 999))) if stem == _PLAIN[0] else ()
        name = next(one for one in (*choices, stem, *(f"{stem}{n}" for n in range(2, 999))) if self._is_free(one))
        self._used.add(name)
        return name

    def _number(self) -> None:
        """Renumbers generated names in the order of the lines."""
        self._used -= set(self._stems)
        lines = [self._of[id(one)] for one in self._lines()]
        names = {name: self._made(self._stems[name]) for name in dict.fromkeys(lines) if name in self._stems}
        self._of = {key: names.get(name, name) for key, name in self._of.items()}

    def _is_free(self, name: str) -> bool:
        return name.isidentifier() and not keyword.iskeyword(name) and name not in self._used

    def _break_long(self) -> None:
        """Splits lines that are too long: a subexpression becomes a line."""
        while True:
            for one in self._lines():
                source = self._text(one)
                if len(source) + len(self._of[id(one)]) > _WIDTH:
                    middle = self._middle(one, len(source))
                    if middle is not None:
                        self._of[id(middle)] = self._name(middle)
                        break
            else:
                return

    def _middle(self, expr: Expr, length: int) -> Expr | None:
        """The subexpression with text closest to half of `length`, of those with a wished name if there are any."""
        found: dict[int, Expr] = {}

        def visit(one: Expr) -> None:
            one = bare(one)
            if id(one) in self._of and one is not expr:
                return
            if one is not expr and isinstance(one, Apply) and self._has_tensors(one) and self._operations(one) > 1:
                found[id(one)] = one
            for inner in subexpressions(one):
                visit(inner)

        visit(expr)
        named = [one for one in found.values() if id(one) in self._wanted]
        choices = named or list(found.values())
        return min(choices, key=lambda one: abs(len(self._text(one)) - length / 2), default=None)

    def _merge_equal(self, outputs: set[int]) -> None:
        """Merges lines of the same text, except outputs."""
        while True:
            known: dict[str, int] = {}
            for one in self._lines():
                first = known.setdefault(self._text(one), id(one))
                if first != id(one) and self._of[first] != self._of[id(one)] and id(one) not in outputs:
                    self._of[id(one)] = self._of[first]
                    break
            else:
                return
