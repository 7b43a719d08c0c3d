"""Checks that what a nest reads and writes in memory is masked along every dim along which its address moves."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache

from .ir import Nest, lines_of

Dims = frozenset[str]

_ROWS, _COLS = frozenset({"rows"}), frozenset({"cols"})
# The names that walks and loops give, with the dims of their lanes; other names have those of what they are made of.
_GIVEN = {
    "rows": _ROWS,
    "row_mask": _ROWS,
    "cols": _COLS,
    "col_mask": _COLS,
    "offsets": _COLS,
    "splits": _COLS,
    "tile_mask": _ROWS | _COLS,
}
# Functions that access memory, with the places of the arguments that make the address, and of the mask.
_ACCESSES = {
    "tl.load": ((0,), 1),
    "tl.store": ((0,), 2),
    "read_once": ((0,), 1),
    "read_again": ((0,), 1),
    "load_or": ((0, 1), 2),
}


def check(nest: Nest) -> None:
    """Raises `TypeError` for an access whose mask leaves out a dim."""
    dims: dict[str, Dims] = dict(_GIVEN)
    for line in lines_of(nest):
        tree = _tree(line.text)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if missing := _unmasked(call, dims):
                raise TypeError(f"{line.text.strip()}: the mask has no {' and no '.join(sorted(missing))}")
        if isinstance(tree, ast.Assign | ast.AugAssign):
            for name in _targets(tree):
                dims[name] = dims.get(name, frozenset()) | _of(tree.value, dims)


@lru_cache(maxsize=2**14)
def _tree(text: str) -> ast.AST:
    code = text.strip().removeprefix("else:").removeprefix("el")
    (tree,) = ast.parse(f"{code} pass" if code.endswith(":") else code).body or [ast.Pass()]
    return tree


def _targets(tree: ast.Assign | ast.AugAssign) -> Iterator[str]:
    for target in tree.targets if isinstance(tree, ast.Assign) else [tree.target]:
        yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def _unmasked(call: ast.Call, dims: Mapping[str, Dims]) -> Dims:
    places, at = _ACCESSES.get(ast.unparse(call.func), ((), 0))
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    mask = given.get("mask", call.args[at] if len(call.args) > at else None)
    moves = frozenset[str]().union(*(_of(call.args[place], dims) for place in places))
    return moves - (_of(mask, dims) if mask else frozenset())


def _of(tree: ast.AST, dims: Mapping[str, Dims]) -> Dims:
    """The dims of an expression: those of all that it is made of, but for those that a reduction takes away."""
    if isinstance(tree, ast.Name):
        return dims.get(tree.id, frozenset())
    found = frozenset[str]().union(*(_of(child, dims) for child in ast.iter_child_nodes(tree)))
    if isinstance(tree, ast.Call):
        axes = [one.value.value for one in tree.keywords if one.arg == "axis" and isinstance(one.value, ast.Constant)]
        return found - (_COLS if 1 in axes else frozenset()) - (_ROWS if 0 in axes else frozenset())
    return found
