"""Checks that the dims of values and addresses in a nest fit those of what takes them."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from .ir import For, Nest, lines_of, tree_of

Dims = frozenset[str]

_ROWS, _COLS = frozenset({"rows"}), frozenset({"cols"})
# The names that walks and loops give, with the dims of their lanes, and the lengths of tiles along those; other names
# have the dims of what they are made of.
_GIVEN = {
    "rows": _ROWS,
    "row_mask": _ROWS,
    "cols": _COLS,
    "col_mask": _COLS,
    "offsets": _COLS,
    "splits": _COLS,
    "tile_mask": _ROWS | _COLS,
    "receive": _COLS,  # a lane for each CTA
    "receive_pair": _COLS,
    "BLOCK": _COLS,
    "BLOCK_M": _ROWS,
    "BLOCK_N": _COLS,
}
# Functions that access memory, with the places of the arguments that make the address, and of the mask.
_ACCESSES = {
    "tl.load": ((0,), 1),
    "tl.store": ((0,), 2),
    "read_once": ((0,), 1),
    "read_again": ((0,), 1),
    "load_or": ((0, 1), 2),
}
# Functions that take lanes along an axis together, and those of the runtime that do so along columns.
_REDUCTIONS = frozenset("tl.sum tl.max tl.min tl.reduce".split())
_OF_ROWS = frozenset(
    "sum_pair exp_sum moments argmax argmin merge_online_exp merge_welford end_of_recurrence"
    " collect collect_pair".split()
)


def check(nest: Nest) -> None:
    """Raises `TypeError` for an access whose mask leaves out a dim, a store of a value with a dim that neither address
    nor mask has, a reduction along a dim that the value lacks, and a tile of sums to which something smaller is added.
    """
    dims: dict[str, Dims] = dict(_GIVEN)
    lines = [*lines_of(nest)]
    by_lane = {line for one in lines if isinstance(one, For) for line in lines_of(one.body)}  # Windows merge no lanes.
    for line in lines:
        tree = tree_of(line.text)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if wrong := _wrong(call, dims):
                raise TypeError(f"{line.text}: {wrong}")
        if isinstance(tree, ast.Assign | ast.AugAssign):
            found = _of(tree.value, dims)
            lacking = _of(tree.target, dims) - found if isinstance(tree, ast.AugAssign) else frozenset()
            if lacking and line not in by_lane and not _GIVEN.keys() & _targets(tree):
                raise TypeError(f"{line.text}: what is added has {_without(lacking)}")
            read = {node.id for node in ast.walk(tree.value) if isinstance(node, ast.Name)}
            for name in _targets(tree):  # What branches make of it may have the dims of either.
                is_new = name in read and isinstance(tree, ast.Assign)
                dims[name] = found if is_new else found | dims.get(name, frozenset())


def _targets(tree: ast.Assign | ast.AugAssign) -> set[str]:
    targets = tree.targets if isinstance(tree, ast.Assign) else [tree.target]
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _wrong(call: ast.Call, dims: Mapping[str, Dims]) -> str:
    """What is wrong with a call; "" if nothing is."""
    name = ast.unparse(call.func)
    if name in _REDUCTIONS:
        missing = _reduced(call) - frozenset[str]().union(*(_of(arg, dims) for arg in call.args))
        return f"what is reduced has {_without(missing)}" if missing else ""
    places, at = _ACCESSES.get(name, ((), 0))
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    mask = given.get("mask", call.args[at] if len(call.args) > at else None)
    moves = frozenset[str]().union(*(_of(call.args[place], dims) for place in places))
    if missing := moves - (_of(mask, dims) if mask else frozenset()):
        return f"the mask has {_without(missing)}"
    covered = moves | (_of(mask, dims) if mask else frozenset())
    extra = _of(call.args[1], dims) - covered if name == "tl.store" else frozenset()
    return f"the address has {_without(extra)}" if extra else ""


def _without(dims: Dims) -> str:
    return f"no {' and no '.join(sorted(dims))}"


def _reduced(call: ast.Call) -> Dims:
    """The dim that a call takes away, if it takes one."""
    name = ast.unparse(call.func)
    axes = [one.value for one in call.keywords if one.arg == "axis"] or call.args[1 : 2 * (name in _REDUCTIONS)]
    known = [one.value for one in axes if isinstance(one, ast.Constant)] + [1] * (name in _OF_ROWS)
    return (_COLS if 1 in known else frozenset()) | (_ROWS if 0 in known else frozenset())


def _of(tree: ast.AST, dims: Mapping[str, Dims]) -> Dims:
    """The dims of an expression: those of all that it is made of, but for those that a reduction takes away."""
    if isinstance(tree, ast.Name):
        return dims.get(tree.id, frozenset())
    found = frozenset[str]().union(*(_of(child, dims) for child in ast.iter_child_nodes(tree)))
    return found - _reduced(tree) if isinstance(tree, ast.Call) else found
