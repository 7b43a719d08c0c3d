"""Names for addresses and masks that make a load or store longer than a line.

`x_ptrs`, as Triton's tutorials call a block of pointers, and `x_mask`, each on a line above.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..lang.trees import walk

# What takes an address first.
ACCESSES = frozenset("tl.load tl.store tl.atomic_add read_once read_again".split())
_FUNCTION = re.compile(r"(?m)^@(?:triton|gluon)\.jit\b")


def with_pointers_named(text: str, width: int) -> str:
    """A module in whose kernels the addresses of loads and stores that do not fit into a line have names."""
    if not _FUNCTION.search(text):
        return text
    lines = text.encode().split(b"\n")  # `ast` counts columns in bytes.
    above: dict[int, list[bytes]] = {}
    for function in ast.parse(text).body:
        if isinstance(function, ast.FunctionDef) and _is_kernel(function):
            names = {node.id for node in walk(function) if isinstance(node, ast.Name)}
            kernel = _Kernel(lines, width, names | {one.arg for one in function.args.args})
            for statement, scope in _statements(function.body, ()):
                above[statement.lineno - 1] = kernel.shortened(statement, scope)
    found = (part for number, line in enumerate(lines) for part in (*above.get(number, ()), line))
    return b"\n".join(found).decode()


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(one).startswith(("triton.jit", "gluon.jit")) for one in function.decorator_list)


Simple = ast.Assign | ast.AugAssign | ast.Expr
Scope = tuple[int, ...]  # the lines of the blocks around a statement


def _statements(block: list[ast.stmt], scope: Scope) -> Iterator[tuple[Simple, Scope]]:
    """The simple statements of a block and of those inside it."""
    for node in block:
        if isinstance(node, Simple):
            yield node, scope
        for inner in (getattr(node, "body", []), getattr(node, "orelse", [])):
            yield from _statements(inner, (*scope, inner[0].lineno)) if inner else ()


@dataclass
class _Kernel:
    """A kernel whose lines are changed in place."""

    lines: list[bytes]
    width: int
    names: set[str]
    made: dict[str, tuple[str, Scope]] = field(default_factory=dict)  # the text that a name stands for, and where

    def shortened(self, statement: Simple, scope: Scope) -> list[bytes]:
        """The lines above a statement that name what is too long in it; none if it does not fit into a line then."""
        line = self.lines[statement.lineno - 1]
        if len(line) <= self.width or statement.end_lineno != statement.lineno:
            return []
        accesses = [node for node in _taken(statement.value) if ast.unparse(node.func) in ACCESSES]
        if len(accesses) != 1 or not accesses[0].args:
            return []
        masks = [(word.value, "mask") for word in accesses[0].keywords if word.arg == "mask"]
        long = [(part, end) for part, end in [(accesses[0].args[0], "ptrs"), *masks] if isinstance(part, ast.BinOp)]
        for base in _bases(statement, accesses[0].args[0]):
            for count in range(1, len(long) + 1):
                named = {f"{base}_{end}": part for part, end in long[:count]}
                short = _with_names(line, named)
                if len(short) <= self.width and all(self.is_free(name, named[name], scope) for name in named):
                    self.made |= {name: (ast.unparse(part), scope) for name, part in named.items()}
                    self.lines[statement.lineno - 1] = short
                    indent = line[: statement.col_offset]
                    texts = {name: line[part.col_offset : part.end_col_offset] for name, part in named.items()}
                    return [indent + name.encode() + b" = " + text for name, text in texts.items()]
        return []

    def is_free(self, name: str, part: ast.expr, scope: Scope) -> bool:
        """Whether a name is new, or stands for the same in another block: Triton gives a name one type in a loop."""
        if name not in self.made:
            return name not in self.names
        text, other = self.made[name]
        return text == ast.unparse(part) and scope[: len(other)] != other


def _with_names(line: bytes, named: dict[str, ast.BinOp]) -> bytes:
    """A line with names for some parts of it, which are in order."""
    for name, part in reversed(named.items()):
        line = line[: part.col_offset] + name.encode() + line[part.end_col_offset :]
    return line


def _bases(statement: Simple, address: ast.expr) -> list[str]:
    """What the names in a statement may begin with: the tensor that it accesses, else what is read for."""
    while isinstance(address, ast.BinOp):
        address = address.left
    found = [re.sub(r"_(ptr|row|rows|head|cols)$", "", address.id)] if isinstance(address, ast.Name) else []
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    return [*found, target.id] if isinstance(target, ast.Name) else found


def _taken(node: ast.AST) -> Iterator[ast.Call]:
    """The calls in an expression that are made whatever a condition in it says."""
    if isinstance(node, ast.Call):
        yield node
    if not isinstance(node, ast.IfExp):
        for child in ast.iter_child_nodes(node):
            yield from _taken(child)
