"""Edits of emitted code that cannot change the result of a call, which `mutations` leaves out."""

from __future__ import annotations

import ast
import re

from tests.harness.emitted_code import Function


def always_holds(function: Function, condition: ast.expr) -> bool:
    """Whether a condition of a mask always holds.

    A combine kernel has one program per row, and none past the last row. A group whose length is a power of two has no
    tail, since blocks are at most as long.
    """
    text = function.text(condition).partition("[")[0]
    if function.name.endswith("_combine_kernel") and text in ("row_mask", "rows < n_rows"):
        return True
    if text == "inner_mask":
        text = next(function.text(one.value) for one in function.assigned(text))
    group = re.fullmatch(r"inner < \(group \+ 1\) \* (\d+)", text)
    return bool(group) and int(group[1]).bit_count() == 1


def is_made_good(function: Function, node: ast.AST) -> bool:
    """Whether a later statement recomputes a name that this one reads from this one's target, as chunks from steps."""
    statement = function.statement(node)
    if not isinstance(statement, ast.Assign):
        return False
    target = function.text(statement.targets[0])
    read = {one.id for one in ast.walk(statement.value) if isinstance(one, ast.Name)}
    return any(
        isinstance(later, ast.Assign)
        and later.lineno > statement.lineno
        and function.text(later.targets[0]) in read
        and re.search(rf"\b{re.escape(target)}\b", function.text(later.value))
        for later in function.nodes
    )


_MERGES = re.compile(
    r"\btl\.(sum|max|min|reduce|dot|argmax|argmin|associative_scan)\b|block_dot|(online|welford|merge|add|kahan_add)\w*"
    r"|(?P<pairs>arg(max|min)(_update)?)$"
)


def is_reduced(function: Function, load: ast.Call) -> bool:
    """Whether the masked elements of a load can reach a reduction along the masked axis."""
    statement = function.statement(load)
    mask = next(function.text(one.value) for one in load.keywords if one.arg == "mask")
    rows_only = "row" in mask and "col" not in mask and "inner" not in mask
    # Nor can they show in a matmul without a tail along its inner axis: only in rows or columns that are not stored.
    parts = [one for keyword in load.keywords if keyword.arg == "mask" for one in ast.walk(keyword.value)]
    has_no_tail = any(isinstance(one, ast.expr) and always_holds(function, one) for one in parts)
    reached = {("", statement), *function.readers(statement)}
    for name, reader in (waiting := list(reached)):  # Grows on the way.
        for node in ast.walk(reader):
            if isinstance(node, ast.Call) and (match := _MERGES.match(function.text(node.func))):
                # Indices are paired with values, and those of masked values are not chosen.
                args = node.args[::2] if match["pairs"] else node.args
                inside = [one for arg in args for one in ast.walk(arg)]
                # A reduction along rows does not mix in rows past the last, which are not stored.
                if (
                    (load in inside or any(isinstance(one, ast.Name) and one.id == name for one in inside))
                    and not re.search("tl.where|mask", function.text(node))  # masked again
                    and not (rows_only and "axis=1" in function.text(node))
                    and not (has_no_tail and match[0] in ("tl.dot", "block_dot"))
                ):
                    return True
        masked = reader is not statement and re.search("tl.where|mask", function.text(reader))
        if isinstance(reader, ast.Assign | ast.AugAssign) and not masked:
            new = [one for one in function.readers(reader) if one not in reached]
            reached.update(new)
            waiting.extend(new)
    return False


def is_loaded_again(function: Function, load: ast.Call) -> bool:
    """Whether a loop that waits for other programs repeats the load until all programs have published."""
    statement = function.text(function.statement(load))
    waits = [node for node in function.nodes if isinstance(node, ast.While) and node.lineno > load.lineno]
    return any(function.text(one) == statement for node in waits for one in node.body)


def computes_once(function: Function) -> bool:
    """Whether a kernel has at most one operation, and so one rounding, so that its compute dtype does not show."""
    work = 0
    for node in function.nodes:
        if isinstance(node, ast.BinOp) and not function.is_address(node) and not isinstance(node.op, ast.BitAnd):
            work += 1
        if isinstance(node, ast.Call) and not re.search(
            r"load|store|arange|program_id|\.to$|cdiv", function.text(node.func)
        ):
            work += 1
    return work <= 1


_ORDERS = re.compile(r"(tl\.)?(arg)?(max|min|maximum|minimum)(_update)?$")


def is_compared(function: Function, node: ast.AST) -> bool:
    """Whether the result of a cast is only used in maxima and minima, which are the same in any dtype."""
    statement = function.statement(node)
    readers = function.readers(statement)
    uses = [
        use
        for name, reader in readers
        for use in ast.walk(reader)
        if isinstance(use, ast.Name) and use.id == name and isinstance(use.ctx, ast.Load)
    ]

    def orders(use: ast.AST) -> bool:
        outer = function.parents[use]
        name = function.text(outer.func) if isinstance(outer, ast.Call) else ""
        return orders(outer) if name == "tl.where" else bool(_ORDERS.match(name))

    return bool(uses) and getattr(statement, "value", None) is node and all(map(orders, uses))


def _computed(function: Function) -> set[str]:
    """The names of values that are cast to the compute dtype or depend on such values."""
    found: set[str] = set()
    for statement in function.statements:
        if isinstance(statement, ast.Assign):
            names = {one.id for one in ast.walk(statement.value) if isinstance(one, ast.Name)}
            if names & {"COMPUTE", *found} and not isinstance(statement.value, ast.Compare):
                found |= {one.id for one in ast.walk(statement.targets[0]) if isinstance(one, ast.Name)}
    return found


def is_promoted(function: Function, node: ast.AST) -> bool:
    """Whether the result of a cast is only combined with values of the compute dtype, which promote it anyway."""
    statement, around = function.statement(node), function.parents[node]
    if isinstance(around, ast.BinOp):
        other = around.right if node is around.left else around.left
        return isinstance(other, ast.Name) and other.id in _computed(function)
    if not isinstance(statement, ast.Assign):
        return False
    target = function.text(statement.targets[0])
    for use in function.nodes:
        outer = function.parents[use]
        if isinstance(use, ast.Name) and use.id == target and isinstance(use.ctx, ast.Load):
            if not isinstance(outer, ast.BinOp):
                return False
            other = outer.right if use is outer.left else outer.left
            if isinstance(other, ast.Constant) or function.text(other) == target:
                return False
    return True
