"""What someone may mean who writes a name or a function that the language does not have."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..diagnostics.report import did_you_mean
from ..spec.types import BATCH
from .functions import FUNCTIONS
from .reductions import REDUCTIONS
from .special import SPECIAL
from .syntax import CONSTANTS

if TYPE_CHECKING:
    from .expressions import Expressions

# What Python and torch convert by, and the dtypes that are meant.
_CONVERSIONS = {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "long": "int64"}
_CONVERSIONS |= {"bool": "bool", "bfloat16": "bfloat16", "to": "float32"}
# What torch computes along an axis and the language has no word for.
_SCANS = frozenset("cummax cummin logcumsumexp".split())
_TRIANGLES = {"tril": "<=", "triu": ">="}
ONE_SIDED = {("clamp", "max"): "clamp_min(x, min) has no max", ("clamp", "min"): "clamp_max(x, max) has no min"}


def for_name(found: Expressions, name: str) -> str:
    """The hint for a name that is not defined."""
    if any(name == statement.name for statement in found.spec.compute):
        return "lines of [compute] see only the lines above them"
    if name in ("true", "false"):
        return f"write {name.capitalize()}"
    if name in FUNCTIONS or name in REDUCTIONS:
        return f"{name} is a function: write {name}(x)"
    if name.upper() in found.axes:
        return f"{name.upper()} is an axis: size({name.upper()}) is its length"
    known = [*found.values, *found.inputs, *found.params, *CONSTANTS]
    return did_you_mean(name, known, "an expression sees the inputs, the params and the lines above it")


def for_function(found: Expressions, name: str, tree: ast.Call) -> str:
    """The hint for a call of a function that there is not."""
    if name in (*found.values, *found.inputs, *found.params):
        return f"{name} is a value: write * to multiply it, take({name}, i, N) to read at a position"
    if name in _CONVERSIONS:
        word = str(getattr(tree.args[0], "value", "")) if tree.args else ""
        if word.lstrip("+-") in CONSTANTS:
            return f"write {word}"
        return f"write cast({ast.unparse(tree.args[0]) if tree.args else 'x'}, {_CONVERSIONS[name]})"
    if name in _TRIANGLES:
        return _triangle(found, name, tree)
    if name in _SCANS:
        return f"{name} is a scan: those along an axis are cumsum and cumprod"
    return did_you_mean(name, [*FUNCTIONS, *REDUCTIONS, *SPECIAL], "docs/spec.md lists all functions")


def _triangle(found: Expressions, name: str, tree: ast.Call) -> str:
    """How torch's tril and triu are written, by the positions along the last two axes."""
    texts = [ast.unparse(part) for part in tree.args] or ["x"]
    axes = found.visit(tree.args[0]).axes if tree.args else ()
    rows, columns = axes[-2:] if len(axes) > 1 and BATCH not in axes[-2:] else ("M", "N")
    offset = f" + {texts[1]}" if len(texts) > 1 else ""
    return f"write where(index({columns}) {_TRIANGLES[name]} index({rows}){offset}, {texts[0]}, 0)"
