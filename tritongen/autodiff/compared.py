"""Makes operands of max and min reductions bitwise equal in every kernel, so that gradients can compare them.

The forward saves the maximum, and the gradient looks for the elements that equal it. If a product, or a quotient (which
a GPU computes as a product), is added to something, a compiler may contract both to a fused multiply-add in one kernel
and not in another; the results would differ in the last bit, and no element would equal the maximum.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection
from dataclasses import replace

from ..lang.functions import FUNCTIONS
from ..lang.ir import Call, Node, Op, Reduce, Ref, Scan, Take, children
from ..lang.rewrite import rebuild
from ..lang.trees import multiplies, parse


def rounded(op: Op, extrema: Collection[str]) -> Op:
    """The operator with products and quotients rounded before they are added, in the operands of `extrema`.

    Reductions, scans and takes within these operands are not entered: the gradient reads their saved results.
    """
    added: dict[str, bool] = {}  # the lines that operands of extrema read, and whether something is added to them

    def marked(node: Node, is_added: bool) -> Node:
        match node:
            case Ref(name=name):
                added[name] = added.get(name, False) or is_added
            case Call(function=function, args=args):
                adds, is_product = _operations(function)
                below = adds or (is_added and not is_product)
                node = replace(node, args=tuple(marked(arg, below) for arg in args))
                return replace(node, rounded=True) if (is_added or adds) and is_product else node
            case Reduce() | Scan() | Take():
                return node
        return rebuild(node, tuple(marked(child, is_added) for child in children(node)))

    values = []
    for value in reversed(op.values):
        node = value.node
        if value.name in extrema:
            assert isinstance(node, Reduce)
            node = replace(node, arg=marked(node.arg, False))
        elif value.name in added:
            node = marked(node, added[value.name])
        values.append(replace(value, node=node))
    return replace(op, values=tuple(reversed(values)))


@functools.cache
def _operations(function: str) -> tuple[bool, bool]:
    """Whether a function adds, and whether it multiplies; a call of a device function counts as adding."""
    tree = list(ast.walk(parse(FUNCTIONS[function].triton)))
    is_called = any(isinstance(node, ast.Call) and isinstance(node.func, ast.Name) for node in tree)
    adds = any(isinstance(node, ast.Add | ast.Sub) for node in tree)
    return adds or is_called, any(isinstance(node, ast.expr) and multiplies(node) for node in tree)
