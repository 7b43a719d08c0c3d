"""Typical bugs as text edits of emitted code, which tests/harness/planted_bugs.py plants one at a time.

Places are found in the syntax tree and edited in the text, so that a mutant differs from its module in one place.
Edits that cannot change the result of a call are left out, by the rules of unnoticed.py.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Callable, Iterator

from tests.harness.emitted_code import Function, Module, Mutation
from tests.harness.unnoticed import (
    always_holds,
    computes_once,
    is_compared,
    is_loaded_again,
    is_made_good,
    is_promoted,
    is_reduced,
)

KINDS = ("mask", "load mask", "stride", "bound", "constant", "operator", "grid", "missing term", "gradient")


def _feeding(function: Function, kinds: tuple[str, ...]) -> list[ast.expr]:
    """The expressions that the masks of some accesses depend on, through assigned names, too."""
    found = [keyword.value for call in function.calls(*kinds) for keyword in call.keywords if keyword.arg == "mask"]
    for expression in found:  # Grows on the way.
        names = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
        if isinstance(expression, ast.Compare):
            continue
        for node in function.nodes:
            if isinstance(node, ast.Assign) and function.text(node.targets[0]) in names and node.value not in found:
                found.append(node.value)
    return found


def _masks(function: Function) -> Iterator[Mutation]:
    for call in function.calls("tl.load", "tl.store", "tl.atomic_xchg"):
        kind = "load mask" if function.text(call.func) == "tl.load" else "mask"
        if any(keyword.arg == "mask" for keyword in call.keywords):
            if any(keyword.arg == "mask" and always_holds(function, keyword.value) for keyword in call.keywords):
                continue
            # `other` is removed, too: without a mask Triton refuses it.
            kept = [one for one in call.keywords if one.arg not in ("mask", "other")]
            parts = ", ".join(function.text(one) for one in (*call.args, *kept))
            yield function.edit(kind, "no mask", call, f"{function.text(call.func)}({parts})", call)
    storing = {id(node) for one in _feeding(function, ("tl.store", "tl.atomic_xchg")) for node in ast.walk(one)}
    loading = {id(node) for one in _feeding(function, ("tl.load",)) for node in ast.walk(one)}
    for node in function.nodes:
        # A mask that is passed to a helper guards its stores, too.
        kind = "load mask" if id(node) in loading - storing else "mask"
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt):
            limit = node.comparators[0]
            if always_holds(function, node):
                continue
            if id(node) in loading | storing or (isinstance(limit, ast.Name) and re.match(r"n(_|$)", limit.id)):
                yield function.between(kind, "one too many", node.left, limit, "<", "<=")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd) and id(node) in loading | storing:
            for left, dropped in ((node.left, node.right), (node.right, node.left)):
                if not always_holds(function, dropped):
                    yield function.edit(kind, "a condition dropped", node, function.operand(left), node)


def _is_step(node: ast.AST, function: Function) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and "stride_" in function.text(node.right)


def _alike(one: str, other: str) -> int:
    """The length of the common prefix of two names."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _strides(function: Function) -> Iterator[Mutation]:
    strides = [name for name in function.args if name.startswith("stride_")]
    for node in function.nodes:
        if isinstance(node, ast.Name) and node.id in strides:
            # The stride of another axis of the same tensor, if it has one.
            others = [name for name in strides if name != node.id and _alike(name, node.id) > len("stride_")]
            if others:
                other = max(others, key=functools.partial(_alike, node.id))
                yield function.edit("stride", "of another axis", node, other, node)
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.Add) and _is_step(node.right, function):
                yield function.edit("stride", "a step dropped", node, function.operand(node.left), node)
            if isinstance(node.op, ast.FloorDiv) and function.is_kernel:
                yield function.between("stride", "// as %", node.left, node.right, "//", "%")
            if isinstance(node.op, ast.Mod) and function.is_kernel:
                yield function.between("stride", "% as //", node.left, node.right, "%", "//")
        if isinstance(node, ast.Call) and not function.is_kernel and re.search(r"\bstride$", function.text(node.func)):
            for arg in node.args[-1:]:  # of a method, or of a helper that takes the tensor, too
                axis = {"0": "1", "1": "0", "-1": "-2", "-2": "-1"}.get(function.text(arg))
                if axis is not None:
                    yield function.edit("stride", "of another axis", arg, axis, node)
        if isinstance(node, ast.Tuple) and not function.is_kernel:
            steps = [one for one in node.elts if isinstance(one, ast.Starred) and function.text(one).endswith("_rows")]
            for left, right in itertools.pairwise(steps):
                yield function.edit("stride", "of another tensor", left, function.text(right), node)


def _bounds(function: Function) -> Iterator[Mutation]:
    for node in function.nodes:
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and function.is_kernel:
            args = node.iter.args
            step = function.text(args[2]) if len(args) > 2 else "1"
            stop = args[1] if len(args) > 1 else args[0]
            # One more block is masked, and adds nothing: only one less is planted.
            yield function.edit("bound", "a block short", stop, f"{function.text(stop)} - {step}", node)
            if len(args) > 1:
                yield function.edit(
                    "bound", "from the second block", args[0], f"{function.text(args[0])} + {step}", node
                )
    for call in function.calls("tl.cdiv", "triton.cdiv", "tensors.cdiv", "cdiv"):
        count, size = map(function.text, call.args)
        # Steps rounded down give more chunks; blocks divide a power of two without a remainder.
        is_exact = count.isdecimal() and int(count).bit_count() == 1
        if not (_in_grid(function, call) or is_made_good(function, call) or is_exact):
            yield function.edit("bound", "rounded down", call, f"(({count}) // ({size}))", call)
    for call in function.calls("tl.minimum"):
        if function.text(call.args[-1]).startswith("n_") and function.is_kernel:
            # The end of a chunk. The other bound is not dropped, since a mask guards the end of the axis.
            yield function.edit("bound", "to the end of all", call, function.text(call.args[-1]), call)
    for node in function.nodes:
        if isinstance(node, ast.Tuple) and not function.is_kernel and isinstance(node.ctx, ast.Load):
            if re.match(r"\w+_(partial|slots) = ", function.text(function.statement(node))):
                continue  # The shape of a buffer that kernels address as contiguous.
            for left, right in itertools.pairwise(node.elts):
                counts = [function.text(one) for one in (left, right)]
                if all(re.fullmatch(r"n_\w+", count) for count in counts):
                    yield function.swapped("bound", "two counts swapped", left, right)


def _constants(function: Function) -> Iterator[Mutation]:
    if not function.is_kernel:
        return
    for call in function.calls("tl.load"):
        for keyword in call.keywords:
            # A value that no reduction reads does not show, since the store is masked, too.
            if keyword.arg == "other" and is_reduced(function, call) and not is_loaded_again(function, call):
                old = function.text(keyword.value)
                # Not 1.0, which times the 0.0 of another load is the same.
                new = {"0.0": 'float("nan")', "0": "1"}.get(old, "0.0")
                yield function.edit("constant", "another other", keyword.value, new, call)
    for node in function.nodes:
        if not isinstance(node, ast.Assign):
            continue
        target, value = function.text(node.targets[0]), node.value
        if not isinstance(value, ast.Call):
            continue
        # Accumulators only: a variable that is assigned before it is read can have any initial value.
        grows = any(
            (isinstance(one, ast.AugAssign) and function.text(one.target) == target)
            or (
                isinstance(one, ast.Assign)
                and one is not node
                and isinstance(one.value, ast.Call)
                and target in re.findall(r"\w+", function.text(one.targets[0]))
                and target in [function.text(arg) for arg in one.value.args]
                # The first value replaces the initial mean.
                and not (function.text(one.value.func) == "welford" and target == function.text(one.value.args[0]))
            )
            for one in function.nodes
        )
        if function.text(value.func) == "tl.zeros" and grows:
            shape, dtype = map(function.text, value.args)
            yield function.edit("constant", "begins at 1", value, f"tl.full({shape}, 1.0, {dtype})", node)
        lowest = function.text(value.args[1]) if function.text(value.func) == "tl.full" else ""
        # A maximum of absolute values is at least 0.
        of_absolute = "-inf" in lowest and any("tl.abs(" in function.text(one) for one in function.assigned(target))
        if grows and "inf" in lowest and not of_absolute:
            yield function.edit("constant", "begins at 0", value.args[1], "0.0", node)
    for node in function.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, float) and not function.is_address(node):
            outer = [one for one in function.above(node) if isinstance(one, ast.expr | ast.keyword)]
            nearest = function.parents[node]
            # Branches and clamps are continuous at their threshold, so that a small change of it may not show.
            threshold = any(isinstance(one, ast.Compare) for one in outer) or (
                isinstance(nearest, ast.Call) and re.search("imum|clamp", function.text(nearest.func))
            )
            # Any finite value can replace an infinity that is subtracted.
            finite = isinstance(nearest, ast.Call) and 'float("' in function.text(nearest.args[0])
            if not threshold and not finite and not any(isinstance(one, ast.keyword) for one in outer):
                new = repr(node.value * 1.01) if node.value else "1.0"
                yield function.edit("constant", "1 % more" if node.value else "1 for 0", node, new, node)


_OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
}
_FLIPPED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", ">"),
    ast.Gt: (">", "<"),
    ast.LtE: ("<=", ">="),
    ast.GtE: (">=", "<="),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}


def _operators(function: Function) -> Iterator[Mutation]:
    for node in function.nodes:
        # The choice of a configuration does not change results.
        choosing = any(
            isinstance(one, ast.Call) and "configs" in function.text(one.func) for one in function.above(node)
        )
        if isinstance(node, ast.BoolOp) and not choosing:
            words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            for left, right in itertools.pairwise(node.values):
                yield function.between("operator", " for ".join(reversed(words)), left, right, *words)
        if not function.is_kernel:
            continue
        # Addresses are mutated by `_strides`.
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS and "stride_" not in function.text(node):
            symbols = _OPERATORS[type(node.op)]
            yield function.between("operator", f"{symbols[1]} for {symbols[0]}", node.left, node.right, *symbols)
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _FLIPPED:
            symbols = _FLIPPED[type(node.ops[0])]
            yield function.between(
                "operator", f"{symbols[1]} for {symbols[0]}", node.left, node.comparators[0], *symbols
            )
        for name, other in (("maximum", "minimum"), ("max", "min"), ("minimum", "maximum"), ("min", "max")):
            if isinstance(node, ast.Call) and function.text(node.func) == f"tl.{name}":
                yield function.edit("operator", f"{other} for {name}", node.func, f"tl.{other}", node)


def _in_grid(function: Function, node: ast.AST) -> bool:
    return any(node in ast.walk(grid) for grid, _ in function.grids)


def _grid(function: Function) -> Iterator[Mutation]:
    for grid, kernel in function.grids:
        # In persistent kernels, other programs do the work of a missing one.
        if "num_programs" not in function.module.kernels[kernel]:
            for count in grid.elts:
                yield function.edit("grid", "one short", count, f"{function.text(count)} - 1", count)
        for left, right in itertools.pairwise(grid.elts):
            yield function.swapped("grid", "dimensions swapped", left, right)
        for node in ast.walk(grid):
            if isinstance(node, ast.Constant) and node.value in ("BLOCK_M", "BLOCK_N"):
                other = '"BLOCK_N"' if node.value == "BLOCK_M" else '"BLOCK_M"'
                yield function.edit("grid", "another block", node, other, node)
    if function.is_kernel and {"BLOCK_M", "BLOCK_N"} <= set(function.args):
        for node in function.nodes:
            if isinstance(node, ast.Name) and node.id in ("BLOCK_M", "BLOCK_N"):
                other = "BLOCK_N" if node.id == "BLOCK_M" else "BLOCK_M"
                yield function.edit("grid", "another block", node, other, node)


def _missing(function: Function) -> Iterator[Mutation]:
    if not function.is_kernel:
        return
    kind = "missing term"
    for node in function.nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and not function.is_address(node):
            yield function.edit(kind, "the second term", node, function.operand(node.left), node)
            if isinstance(node.op, ast.Add):
                yield function.edit(kind, "the first term", node, function.operand(node.right), node)
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            yield function.between(kind, "= for +=", node.target, node.value, "+=", "=")
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call | ast.BinOp):
            names = {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
            # `tl.full` without axes only gives a scalar its dtype.
            if function.text(node.targets[0]) in names and "tl.full(()" not in function.text(node):
                yield function.edit(kind, "a statement", node, "pass", node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield function.edit(kind, "a statement", node, "pass", node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            yield function.edit(kind, "a negation", node, function.operand(node.operand), node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            to = function.text(node.args[0])
            # In the interpreter int32 and int64 agree below 2**31; a store converts anyway.
            is_seen = not (computes_once(function) or is_promoted(function, node) or is_compared(function, node))
            if to in ("COMPUTE", "ACC") and is_seen:
                yield function.edit(kind, "a cast", node, function.text(node.func.value), node)
            if to in ("INDEX", "tl.int64"):
                yield function.edit(kind, "a cast", node, function.text(node.func.value), node, "2**31 elements")


def _gradients(function: Function) -> Iterator[Mutation]:
    if function.is_kernel:
        return
    kind = "gradient"
    in_backward = function.name.endswith(".backward")
    for node in function.nodes:
        args: list[ast.expr] = []
        if isinstance(node, ast.Call):
            callee = function.text(node.func)
            if callee.endswith("save_for_backward"):
                args = node.args
            if in_backward and callee == "call":  # The launching function, then its arguments.
                args = node.args[1:]
        if isinstance(node, ast.Assign) and "saved_tensors" in function.text(node.value):
            args = getattr(node.targets[0], "elts", [])
        if isinstance(node, ast.Return) and in_backward and isinstance(node.value, ast.Tuple):
            args = node.value.elts
        for left, right in itertools.pairwise(args):
            if isinstance(left, ast.Name) and isinstance(right, ast.Name) and left.id != right.id:
                yield function.swapped(kind, "two swapped", left, right)
        if in_backward and isinstance(node, ast.Subscript) and function.text(node.value).startswith("needs"):
            other = "1" if function.text(node.slice) == "0" else "0"
            if f"[{other}]" in function.text(function.node):
                yield function.edit(kind, "another is asked for", node.slice, other, node)


RULES: tuple[Callable[[Function], Iterator[Mutation]], ...] = (
    _masks,
    _strides,
    _bounds,
    _constants,
    _operators,
    _grid,
    _missing,
    _gradients,
)


def mutations(text: str, beside: str = "", host: Callable[[str], bool] = lambda name: True) -> list[Mutation]:
    """All mutations of a module, in the order of its text.

    `beside` is the text of the modules with the kernels that this one launches; `host` selects host functions by name.
    """
    found = {
        mutation
        for function in Module(text, beside).functions
        if function.is_kernel or host(function.name)
        for rule in RULES
        for mutation in rule(function)
    }
    return sorted(found, key=lambda one: (one.start, one.end, one.kind, one.new))
