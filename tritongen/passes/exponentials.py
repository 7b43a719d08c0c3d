"""Finds sums of exp(x - max(x)), as in softmax and logsumexp.

Such a sum and its maximum take one pass over a row together, and the sum alone has to propagate NaN for both.
"""

from __future__ import annotations

from ..lang.facts import fact
from ..lang.ir import Call, Cast, Constant, Load, Node, Op, Reduce, Ref, Take, Value, children, walk
from ..lang.rewrite import rebuild
from ..lang.special import PASSES_NAN

VALUELESS = ("max", "min", "argmax", "argmin")  # Reductions that are undefined over no elements, if results show them.


@fact
def exp_pairs(op: Op) -> dict[str, Value]:
    """Maps the name of each sum of exp(x - max(x)) to the value of its maximum."""
    pairs: dict[str, Value] = {}
    for value in op.values:
        summed = powers_summed(op, value)
        largest = maximum_of(op, *summed) if summed else None
        if largest is not None and largest not in pairs.values():
            pairs[value.name] = largest
    return pairs


def powers_summed(op: Op, value: Value) -> tuple[Node, Node] | None:
    """x and y if a value is the sum of exp(x - y), else None."""
    match value.node:
        case Reduce(kind="sum", arg=arg):
            return exponent_of(arg, op)
    return None


def exponent_of(node: Node, op: Op | None = None) -> tuple[Node, Node] | None:
    """x and y if a node is exp(x - y), through lines of `op` if given; else None."""
    match resolve(op, node) if op else node:
        case Call(function="exp", args=(power,)):
            match resolve(op, power) if op else power:
                case Call(function="sub", args=(x, y)):
                    return x, y
    return None


def walks(op: Op) -> dict[str, int]:
    """The number of passes over the row before each value is known."""
    refs = op.refs
    reductions = {value.name for value in op.values if isinstance(value.node, Reduce)}
    largest = {name: value.name for name, value in exp_pairs(op).items()}
    found: dict[str, int] = {}

    def of(name: str) -> int:
        if name not in found:
            below = max((of(ref) for ref in refs[name]), default=0)
            found[name] = of(largest[name]) if name in largest else below + (name in reductions)
        return found[name]

    return {value.name: of(value.name) for value in op.values}


def maximum_of(op: Op, x: Node, subtracted: Node) -> Value | None:
    """The maximum of `x`, if it is subtracted as it is or with infinities replaced by zero; else None."""
    largest = _largest(op, subtracted)
    return largest if largest is not None and isinstance(largest.node, Reduce) and largest.node.arg == x else None


def _largest(op: Op, subtracted: Node) -> Value | None:
    """The maximum (of any argument) that is subtracted, as it is or with infinities replaced by zero; else None."""
    if not isinstance(subtracted, Ref):
        return None
    value = op.value(subtracted.name)
    match value.node:
        case Reduce(kind="max"):
            return value
        case Ref():
            return _largest(op, value.node)
        case Call(function="where", args=(Call(function="isinf", args=(test,)), Constant(value=0.0), other)):
            return _largest(op, other) if test == other else None
    return None


def takes_finite(op: Op, total: Value) -> bool:
    """Whether a sum of exponentials subtracts its maximum with infinities replaced by 0."""
    summed = powers_summed(op, total)
    return summed is not None and not isinstance(resolve(op, summed[1]), Reduce)


def total_of_lse(op: Op, x: Node, subtracted: Node) -> Ref | None:
    """The sum of exponentials of `x` below their maximum, if that and the logarithm of the sum are subtracted."""
    match resolve(op, subtracted):
        case Call(function="add", args=(left, right)):
            for log, shift in ((left, right), (right, left)):
                match resolve(op, log):
                    case Call(function="log", args=(Ref(name=name) as total,)):
                        if powers_summed(op, op.value(name)) == (x, shift) and maximum_of(op, x, shift):
                            return total
    return None


def resolve(op: Op, node: Node) -> Node:
    while isinstance(node, Ref):
        node = op.value(node.name).node
    return node


def inlined(op: Op, node: Node) -> Node:
    """The node with references to lines replaced by their expressions."""
    node = resolve(op, node)
    return rebuild(node, tuple(inlined(op, child) for child in children(node)))


def is_hidden(op: Op, largest: Value) -> bool:
    """Whether a maximum only shifts exponentials, as in softmax and logsumexp, so that an empty row needs none.

    Over no elements nothing is shifted, and a maximum with infinities replaced by zero is zero. Elements taken from an
    empty row are NaN, shifted or not. A maximum of maxima also shifts their arguments.
    """
    unnamed = [value for value in op.values if not value.source and resolve(op, value.node) == largest.node]
    names = {value.name for value in unnamed}

    def is_seen(node: Node) -> bool:
        match node:
            case Ref(name=name):
                return name in names
            case Call(function="sub", args=(x, y)) if _shifts(op, x, y, largest):
                return is_seen(x)
            case Call(function="sub", args=(x, y)) if _largest(op, y) == largest and _is_taken(x, largest.node):
                return is_seen(x)
            case Call(function="where", args=(Call(function="isinf", args=(x,)), Constant(value=0.0), y)) if x == y:
                return not isinstance(y, Ref) and is_seen(y)
            case Reduce(kind="max", arg=Ref(name=name)) if name in names:
                return not all(is_hidden(op, value) for value in op.values if value.node == node)
        return any(map(is_seen, children(node)))

    return largest in unnamed and not any(is_seen(value.node) for value in op.values if value not in unnamed)


def _shifts(op: Op, x: Node, subtracted: Node, largest: Value) -> bool:
    """Whether a maximum of `x`, or of maxima of `x`, is subtracted, and `largest` is one of these."""
    value = _largest(op, subtracted)
    node = None if value is None else value.node
    is_made = False
    while isinstance(node, Reduce) and node.kind == "max":
        is_made = is_made or node == largest.node
        if node.arg == x:
            return is_made
        node = resolve(op, node.arg)
    return False


def _is_taken(x: Node, largest: Node) -> bool:
    """Whether `x` takes elements by position along an axis that the maximum `largest` reduces."""
    return isinstance(largest, Reduce) and any(
        axis in largest.over for node in walk(x) if isinstance(node, Load | Take) for axis, _ in node.at
    )


def propagates_nan(op: Op, largest: Value, total: Value) -> bool:
    """Whether a maximum may drop NaN, because every result that depends on it gets NaN from its sum."""
    nan_fates: dict[str, str] = {largest.name: "dropped", total.name: "kept"}
    for value in op.values:
        nan_fates.setdefault(value.name, _nan_in(value.node, nan_fates))
    return all(nan_fates[result.output.name] != "dropped" for result in op.results)


def _nan_in(node: Node, nan_fates: dict[str, str]) -> str:
    """What happens to a row's NaN in a node: "dropped", "kept" if surely propagated, or "" if it reads no maximum."""
    if isinstance(node, Ref):
        return nan_fates[node.name]
    states = {_nan_in(child, nan_fates) for child in children(node)}
    passes = isinstance(node, Cast) or (isinstance(node, Call) and node.function in PASSES_NAN)
    if "kept" in states and passes and node.dtype.kind == "float":
        return "kept"
    return "dropped" if "dropped" in states else ""
