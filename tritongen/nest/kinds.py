"""The kinds of values in a nest, as needed to check accesses to memory: pointers, booleans, and integers.

Integers are "wide" if they have the kernel's INDEX type, which is int64 where offsets need it, or int64, and "narrow"
if they may be int32; "unit" are 0 and 1, which make no product larger. All others, floats among them, are "".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

_DTYPES = {"INDEX": "wide", "tl.int64": "wide", "tl.int32": "narrow", "tl.int1": "bool"}
# The kinds of arguments, by their names.
_ARGUMENTS = {"narrow": re.compile("^(stride|size|n|BLOCK)_"), "pointer": re.compile("_ptr$")}
_PLACES = frozenset("tl.program_id tl.num_programs tl.arange".split())
_OF_ARGUMENTS = frozenset("tl.minimum tl.maximum tl.cdiv aligned padded".split())


class Kinds:
    """The kinds of names and expressions."""

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
        """A product of int32 in an address that may overflow; "" if there is none."""
        for node in ast.walk(address):
            match node:
                case ast.BinOp(left=left, op=ast.Mult(), right=right):
                    if self.of(left) == self.of(right) == "narrow":
                        return ast.unparse(node)
        return ""


def together(*kinds: str) -> str:
    """The kind of the result of arithmetic on values of these kinds."""
    first = next((one for one in ("pointer", "", "wide") if one in kinds), None)
    return first if first is not None else "bool" if {*kinds} == {"bool"} else "narrow"
