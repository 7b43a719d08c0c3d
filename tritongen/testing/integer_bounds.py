"""Between which integers an expression of a spec lies, as far as its text tells."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ..lang.integers import LONGEST, Bounds, bounds_of_call, bounds_of_dtypes, inside
from ..lang.ir import Op
from ..lang.syntax import Text
from ..spec.types import Spec

_FUNCTIONS: Mapping[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
}


def integer_bounds(tree: ast.expr, op: Op, lines: Mapping[str, ast.expr]) -> Bounds | None:
    """None where that is not known. `lines` are those of [compute] by name."""
    sizes = dict(op.sizes)

    def found(tree: ast.expr) -> Bounds | None:
        match tree:
            case ast.Constant(value=int() as value):
                return value, value
            case ast.Name(id=name) if name in lines:
                return found(lines[name])
            case ast.Name(id=name):
                return next((bounds_of_dtypes(one.type.dtypes) for one in op.inputs if one.name == name), None)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return bounds_of_call("neg", [found(operand)])
            case ast.BinOp(op=operator, left=left, right=right) if type(operator) in _FUNCTIONS:
                return bounds_of_call(_FUNCTIONS[type(operator)], [found(left), found(right)])
            case ast.Call(func=ast.Name(id="index"), args=[ast.Name(id=axis)]):
                return 0, sizes.get(axis, LONGEST) - 1
            case ast.Call(func=ast.Name(id="size"), args=[ast.Name(id=axis)]):
                return sizes.get(axis, 0), sizes.get(axis, LONGEST)
            case ast.Call(func=ast.Name(id="clamp"), args=[x, low, high]):
                above = bounds_of_call("maximum", [found(x), found(low)])
                return bounds_of_call("minimum", [above, found(high)])
            case ast.Call(func=ast.Name(id=("maximum" | "minimum" | "clamp_min" | "clamp_max" | "abs") as name)):
                return bounds_of_call(name, [*map(found, tree.args)])
        return None

    return found(tree)


def reads_outside(spec: Spec, op: Op) -> bool:
    """Whether something may be taken from outside of a table of a fixed length."""
    lines = {one.name: Text(one.expression).parse() for one in spec.compute}
    sizes, inputs = dict(op.sizes), {tensor.name for tensor in op.inputs}
    for tree in (node for line in lines.values() for node in ast.walk(line)):
        match tree:
            case ast.Call(func=ast.Name(id="take"), args=[_, at, ast.Name(id=axis)]):
                found = integer_bounds(at, op, lines)
                if axis in sizes and ast.unparse(at) not in inputs and not inside(found, (0, sizes[axis] - 1)):
                    return True
    return False
