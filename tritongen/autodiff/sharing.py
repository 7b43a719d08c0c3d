"""Names common subexpressions, so that a kernel computes them once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby

from ..lang.functions import FUNCTIONS
from ..lang.ir import Call, Constant, Load, Node, Reduce, Ref, Value, children, distinct
from ..lang.names import shown
from ..lang.rewrite import rebuild, shared
from ..lang.unparse import spelled
from ..passes.structure import references

_WORDS = {"mul": "", "add": "plus_", "sub": "minus_", "div": "over_"}
_ROOTS = {"mul": "product", "add": "total", "sub": "difference", "div": "ratio", "where": "masked", "eq": "equal"}


def named_subexpressions(
    nodes: Mapping[str, Node], hints: Mapping[Node, str], fresh: Callable[[str], str]
) -> list[tuple[str, Node]]:
    """The nodes by name, and subexpressions that occur twice under names of their own, each after those it uses.

    `hints` has names for some subexpressions, and `fresh` turns a wanted name into an unused one.
    """
    every = iter(shared([*nodes.values(), *hints]))
    given = [(name, next(every)) for name in nodes]
    hints = dict(zip(every, hints.values(), strict=True))
    found: dict[str, Node] = {}
    for name, node in given:
        same = next((other for other, known in found.items() if known == node and children(node)), None)
        found[name] = _ref(same, node) if same else node
    for name, node in list(found.items()):
        if children(node):
            found = _replaced(found, node, name) | {name: found[name]}
    first = next(iter(found), "")  # A plan may need nothing but values that are loaded.
    refs = {one: _ref(fresh(hints.get(one) or _name(one, first)), one) for one in _repeated(found.values())}
    known: dict[Node, Node] = {**refs}

    def of(node: Node) -> Node:
        if node not in known:
            known[node] = rebuild(node, tuple(map(of, children(node))))
        return known[node]

    found = {name: of(node) for name, node in found.items()}
    found |= {ref.name: rebuild(one, tuple(map(of, children(one)))) for one, ref in refs.items()}
    return in_order(found)


def _repeated(nodes: Iterable[Node]) -> Iterator[Node]:
    """The subexpressions that are worth a name and occur more than once where larger ones have names, largest first."""
    counts = Counter(nodes)
    # All nodes that contain a node are larger.
    for _, group in groupby(sorted(distinct(counts), key=lambda node: -node.count), lambda node: node.count):
        level = [*group]
        often = [node for node in level if counts[node] > 1 and _is_worth_a_name(node)]
        yield from sorted(often, key=lambda node: shown(spelled(node)), reverse=True) if len(often) > 1 else often
        named = {*often}
        for node in level:
            for child in children(node):
                counts[child] += 1 if node in named else counts[node]


def _is_worth_a_name(node: Node) -> bool:
    """Whether a subexpression is longer than a name, unlike a comparison, or a sum or product with a scalar."""
    if not isinstance(node, Call | Reduce) or not node.axes or node.dtype.kind == "int":
        return False
    short = isinstance(node, Call) and (node.function in _WORDS or FUNCTIONS[node.function].result == "bool")
    tensors = [arg for arg in children(node) if arg.axes]
    is_bool = node.dtype.kind == "bool"
    return not short or any(children(arg) for arg in tensors) or (len(tensors) > 1 and not is_bool)


def _replaced(nodes: Mapping[str, Node], shared: Node, name: str) -> dict[str, Node]:
    """The nodes with `shared` replaced by a reference to `name`; equal nodes become the same object."""
    known: dict[Node, Node] = {shared: _ref(name, shared)}

    def of(node: Node) -> Node:
        if node not in known:
            known[node] = node if node.count <= shared.count else rebuild(node, tuple(map(of, children(node))))
        return known[node]

    return {other: of(node) for other, node in nodes.items()}


def _ref(name: str, node: Node) -> Ref:
    return Ref(name, node.axes, node.dtype)


def _name(node: Node, first: str) -> str:
    """A readable name: dy_weight for dy * weight, x_sigmoid for sigmoid(x)."""
    names = list(dict.fromkeys(leaf.name for leaf in distinct([node]) if isinstance(leaf, Load | Ref)))
    match node:
        case Call(function=function, args=(left, right)) if (
            function in _WORDS and isinstance(left, Load | Ref) and isinstance(right, Load | Ref)
        ):
            return f"{left.name}_{_WORDS[function]}{right.name}"
        case Call(function="where", args=(Ref(name=condition), Load(name=name) | Ref(name=name), Constant())):
            return f"{name}_{condition}"
        case Call(function=function, args=(Load(name=name) | Ref(name=name), *_)) if len(names) == 1:
            return f"{name}_{_WORDS.get(function, '') or function}".rstrip("_")
        case Call(function=function) if len(names) == 1 and function not in _WORDS:
            return f"{names[0]}_{function}"
        case Reduce(kind=kind, arg=Load(name=name) | Ref(name=name)):
            return f"{name}_{kind}"
        case Reduce(kind=kind):
            return f"{first}_{kind}"
    if len(names) == 2 and all("_" not in shown(name) for name in names):
        return "_".join(names)
    # Name it by the operation at its root: a longer name says no more.
    root = node.function if isinstance(node, Call) else node.kind if isinstance(node, Reduce) else "shared"
    return f"{first}_{_ROOTS.get(root, root)}"


def values_in_order(values: Mapping[str, Value]) -> tuple[Value, ...]:
    """The values, each after those it uses."""
    return tuple(values[name] for name, _ in in_order({name: value.node for name, value in values.items()}))


def in_order(nodes: Mapping[str, Node]) -> list[tuple[str, Node]]:
    """The nodes by name, each after those it uses."""
    order: dict[str, Node] = {}

    def visit(name: str) -> None:
        if name not in nodes or name in order:
            return
        for other in sorted(references(nodes[name]), key=shown):
            visit(other)
        order[name] = nodes[name]

    for name in nodes:
        visit(name)
    return list(order.items())
