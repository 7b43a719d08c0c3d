"""The conditions on params that guard lines of a kernel, as Python and Triton expressions."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..lang.ir import Call, Constant, Node, Path, Scalar
from ..lang.trees import parenthesized


def condition_tree(path: Path) -> ast.expr:
    """A path of one or more conditions as an expression, for kernels and for the host."""
    trees = [_tree(test, holds) for test, holds in without_implied(path)]
    return parenthesized(ast.BoolOp(ast.And(), trees) if len(trees) > 1 else trees[0])


def without_implied(path: Path) -> Path:
    """A path without conditions that a param is not one word, if it has the condition that it is another."""
    words = {_word_of(test) for test, holds in path if holds} - {None}
    return tuple((test, holds) for test, holds in path if holds or _word_of(test) not in words)


def implies(path: Path, other: Path) -> bool:
    """Whether the conditions of `path` imply all of `other`: a param that equals one word equals no other."""
    words = {_word_of(test) for test, holds in path if holds} - {None}
    return all(
        (test, holds) in path or (not holds and (test, True) not in path and _word_of(test) in words)
        for test, holds in other
    )


def _word_of(test: Node) -> str | None:
    """The param that a condition compares with a word."""
    match test:
        case Call(function="eq", args=(Scalar(name=name), Constant(value=str()))):
            return name
        case Call(function="eq", args=(Constant(value=str()), Scalar(name=name))):
            return name
    return None


def _tree(test: Node, holds: bool = True) -> ast.expr:
    match test:
        case Scalar(name=name):
            return ast.Name(name) if holds else ast.UnaryOp(ast.Not(), ast.Name(name))
        case Constant(value=value):
            return ast.Constant(value if holds else not value) if isinstance(value, bool) else ast.Constant(value)
        case Call(function="logical_not", args=(inner,)):
            return _tree(inner, not holds)
        case Call(function="eq" | "ne" as function, args=(left, right)):
            same = (function == "eq") == holds
            return ast.Compare(_tree(left), [ast.Eq() if same else ast.NotEq()], [_tree(right)])
        case Call(function="logical_and" | "logical_or" as function, args=args):
            # De Morgan: the opposite joins the opposites of the operands.
            joins = ast.And() if (function == "logical_and") == holds else ast.Or()
            trees = [_tree(arg, holds) for arg in args]
            groups = [
                tree.values if isinstance(tree, ast.BoolOp) and type(tree.op) is type(joins) else [tree]
                for tree in trees
            ]
            return ast.BoolOp(joins, [one for several in groups for one in several])
    raise AssertionError(f"no condition on params: {test}")


def is_condition(node: Node) -> bool:
    """Whether a node has only params, constants, logical operators and (in)equality, as a condition of an `if`."""
    match node:
        case Scalar() | Constant():
            return True
        case Call(function="logical_not" | "logical_and" | "logical_or" | "eq" | "ne", args=args):
            return all(map(is_condition, args))
    return False


def shared_path(paths: Sequence[Path]) -> Path:
    """The longest common prefix of some paths."""
    first = paths[0]
    count = next(n for n in range(len(first), -1, -1) if all(path[:n] == first[:n] for path in paths))
    return first[:count]
