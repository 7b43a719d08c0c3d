"""What the values of a nest are, as far as what accesses memory has to know: pointers, booleans, and integers.

Integers are "wide" where they are as the kernel's INDEX, which is int64 where offsets need that, and "narrow" where
they are int32 at least sometimes; "unit" are 0 and 1, by which a product does not grow. Of all else, floats among it,
nothing is known: "".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

_DTYPES = {"INDEX": "wide", "tl.int64": "wide", "tl.int32": "narrow", "tl.int1": "bool"}
# What arguments are, as their names say.
_ARGUMENTS = {"narrow": re.compile("^(stride|size|n|BLOCK)_"), "pointer": re.compile("_ptr$")}
_PLACES = frozenset("tl.program_id tl.num_programs tl.arange".split())
_OF_ARGUMENTS = frozenset("tl.minimum tl.maximum tl.cdiv aligned padded".split())


class Kinds:
    """What names are."""

    def __init__(self, arguments: Iterable[str]) -> None:
        self.known = {name: kind for kind, like in _ARGUMENTS.items() for name in arguments if like.search(name)}

    def of(self, tree: ast.AST) -> str:
        match tree:
            case ast.Name(id=name):
                return self.known.get(name, "")
            case ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return "bool"
            case ast.Constant(value=bool()):
                return "bool"
            case ast.Constant(value=int(value)):
                return "unit" if value in (0, 1) else "narrow"
            case ast.Subscript(value=inner) | ast.Attribute(value=inner, attr="T") | ast.UnaryOp(operand=inner):
                return self.of(inner)
            case ast.BinOp(left=left, right=right):
                return together(self.of(left), self.of(right))
            case ast.IfExp(body=left, orelse=right):
                return self.of(left) if self.of(left) == self.of(right) else ""
            case ast.Call():
                return self.of_call(tree)
        return ""

    def of_call(self, call: ast.Call) -> str:
        match ast.unparse(call.func), call.args:
            case (("tl.full" | "tl.zeros"), [_, *_, dtype]):
                return _DTYPES.get(ast.unparse(dtype), "")
            case "tl.where", [_, left, right]:
                return together(self.of(left), self.of(right))
            case name, _ if name in _PLACES:
                return "narrow"
            case name, args if name in _OF_ARGUMENTS:
                return together(*map(self.of, args))
            case name, [dtype] if name.endswith(".to"):
                return _DTYPES.get(ast.unparse(dtype), "")
        return ""

    def narrow_product(self, address: ast.AST) -> str:
        """A product in an address that may be larger than int32 holds, and is int32."""
        for node in ast.walk(address):
            match node:
                case ast.BinOp(left=left, op=ast.Mult(), right=right):
                    if self.of(left) == self.of(right) == "narrow":
                        return ast.unparse(node)
        return ""


def together(*kinds: str) -> str:
    """What arithmetic makes of values."""
    first = next((one for one in ("pointer", "", "wide") if one in kinds), None)
    return first if first is not None else "bool" if {*kinds} == {"bool"} else "narrow"
