"""Finds the regions of a trace that operators of specs can replace."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..importing.partial import kind_of
from ..importing.refusals import Place
from ..importing.tracing import Trace
from .forms import Form, reached, within
from .layouts import Argument, Dim, DoesNotFit, arguments, axes_of, result
from .masks import Mask, mask_of
from .matching import Bound, Matcher, solved
from .reading import Operator
from .windows import Window, Windows

_MOST_WINDOWS = 48  # tried for one root
_MORE = 3  # added to symbolic lengths, to find scalars that depend on them
_PROMISING = 0.25  # share of matched functions above which windows grow by single nodes, too
_NEAR = 0.6  # share of matched functions above which a miss is reported
_SMALL = 4  # functions; misses of specs with no more are not reported, since they are everywhere
_PLAIN = ("", "shapes", "creation")


@dataclass(frozen=True, slots=True)
class Found:
    """A region, and the operator call that replaces it."""

    operator: Operator
    root: Any
    inside: frozenset[Any]  # the nodes of the window
    choices: Mapping[str, tuple[Argument, ...]]  # for each input, the tensors that may be passed
    masks: tuple[Mask, ...]
    params: Mapping[str, object]
    result: tuple[int, ...]
    place: Place
    conditions: Mapping[Any, str] = field(default_factory=dict)  # of masks that are arguments of the region's function

    @property
    def inputs(self) -> dict[str, Argument]:
        return {name: choices[0] for name, choices in self.choices.items()}

    @property
    def nodes(self) -> tuple[Any, ...]:
        """The nodes that compute the root from the inputs."""
        return self.between(self.inside)

    def between(self, inside: Container[Any], given: Iterable[Any] = ()) -> tuple[Any, ...]:
        """The nodes of `inside` that compute the root from the inputs and the nodes `given`."""
        inputs = {*given, *(one.node for one in self.inputs.values())}

        def neighbours(node: Any) -> list[Any]:
            return [one for one in node.all_input_nodes if one in inside and one not in inputs]

        return tuple(reached([self.root], neighbours))


@dataclass(frozen=True, slots=True)
class Near:
    """A region that nearly matches an operator, and why it does not."""

    operator: Operator
    place: Place
    why: str


@dataclass(frozen=True, slots=True)
class Report:
    found: tuple[Found, ...]
    near: tuple[Near, ...]


def find(trace: Trace, operators: Sequence[Operator]) -> Report:
    """The largest regions; no root is inside of another region. Also the near misses."""
    windows = Windows(trace)
    found: list[Found] = []
    near: dict[tuple[str, Place], Near] = {}
    covered: set[Any] = set()
    for node in reversed(list(trace.graph.graph.nodes)):
        if node in covered or windows.functions(node) is None or windows.is_layout(node):
            continue
        best, misses = _best(trace, windows, operators, node)
        if best is not None:
            found.append(best)
            covered |= set(best.nodes)
            continue
        for miss in misses:
            near.setdefault((miss.operator.spec.name, miss.place), miss)
    names = {(one.operator.spec.name, one.place) for one in found}
    left = [one for key, one in near.items() if key not in names]
    return Report(tuple(reversed(found)), tuple(reversed(left)))


def _best(trace: Trace, windows: Windows, operators: Sequence[Operator], node: Any) -> tuple[Found | None, list[Near]]:
    best: Found | None = None
    misses = []
    for operator in operators:
        tops = ("sum", "mul") if operator.form.kind == "mul" else (operator.form.kind,)
        if windows.top(node) not in tops:  # Factors are moved out of a sum.
            continue
        one = _matched(trace, windows, operator, node)
        if isinstance(one, Near):
            misses.append(one)
        elif one is not None and (best is None or _size(one) > _size(best)):
            best = one
    return best, misses


def _size(found: Found) -> int:
    return len([one for one in found.nodes if kind_of(one) not in _PLAIN])


@dataclass(slots=True)
class _Look:
    """The outcome of matching one window."""

    found: Found | None = None
    why: str = ""
    share: float = 0.0  # the fraction of the spec's functions that matched
    more: frozenset[Any] = frozenset()  # nodes to add to the window


def _matched(trace: Trace, windows: Windows, operator: Operator, root: Any) -> Found | Near | None:
    place = trace.recording.place(root.name)
    look = _searched(windows, operator, root)
    if look.found is not None:
        return replace(look.found, place=place) if _is_worth(look.found.nodes) else None
    is_near = look.share > _NEAR and _n_functions(operator.form) > _SMALL
    return Near(operator, place, look.why) if is_near else None


def _searched(windows: Windows, operator: Operator, root: Any) -> _Look:
    """The largest match of windows that grow by all candidates at once; if none, but a promising share matches, the
    first match of windows that grow by single candidates, the best share first. Or else the best miss.
    """
    best, first = _Look(), frozenset((root,))
    queue: list[tuple[bool, float, int, frozenset[Any]]] = [(False, 0.0, 0, first)]
    seen = {(False, first)}
    for _ in range(_MOST_WINDOWS):
        if not queue or (queue[0][0] and (best.found is not None or best.share <= _PROMISING)):
            break
        is_inner, _, _, nodes = heapq.heappop(queue)
        window = windows.of(root, nodes)
        if window is None:
            continue
        look = _looked(windows, operator, window)
        if look.found is not None or (best.found is None and not is_inner and look.share >= best.share):
            best = look
        more = [] if is_inner else [(False, look.more)]
        if is_inner or nodes is first:
            moves = frozenset(one for one in look.more if _only_moves(windows, one))
            more += [(True, one) for one in ([moves] if moves else [frozenset((one,)) for one in look.more])]
        for each, one in more:
            if (each, nodes | one) not in seen:
                seen.add((each, nodes | one))
                heapq.heappush(queue, (each, -look.share, len(seen), nodes | one))
    return best


def _looked(windows: Windows, operator: Operator, window: Window) -> _Look:
    """A match, and its input nodes that only move elements; or a miss, and the input nodes that may complete it."""
    matcher = Matcher(window.made.forms)
    look = _Look()
    behind: set[Any] = set()
    for bound in matcher.match(operator.form, window.forms[window.root], Bound()):
        free = [window.given.get(str(form.data)) for form in bound.inputs.values() if form.kind == "input"]
        look.more = frozenset(one for one in free if _only_moves(windows, one))
        try:
            look.found = _completed(operator, window, bound)
            return look
        except DoesNotFit as error:
            look.why = look.why or str(error)
            behind |= {one for one in _behind(window, bound, error.behind) if windows.functions(one) is not None}
    wanted = [one for one in map(window.given.get, matcher.wanted) if _is_inner(windows, operator, one)]
    look.more |= frozenset(wanted) | behind
    look.share = len(matcher.met) / max(1, _n_functions(operator.form))
    if not look.why and matcher.differs is not None:
        look.why = _difference(*matcher.differs)
    return look


def _behind(window: Window, bound: Bound, name: str) -> set[Any]:
    """The window's input nodes that are read by the form of input `name`."""
    forms = within(bound.inputs[name]) if name in bound.inputs else []
    return {window.given.get(str(one.data)) for one in forms if one.kind == "input"} - {None}


def _n_functions(form: Form) -> int:
    return sum(bool(one.args) for one in within(form))


def _only_moves(windows: Windows, node: Any) -> bool:
    if node is None or node.op != "call_function":
        return False
    return windows.functions(node) is not None and (windows.is_layout(node) or not windows.functions(node))


def _is_inner(windows: Windows, operator: Operator, node: Any) -> bool:
    if node is None or node.op != "call_function":
        return False
    functions = windows.functions(node)
    return windows.is_layout(node) or (functions is not None and functions <= operator.functions)


def _is_worth(nodes: Iterable[Any]) -> bool:
    """Whether a kernel saves anything: for several operators, or one that is no pointwise, matmul or reduction."""
    kinds = [kind for kind in map(kind_of, nodes) if kind not in _PLAIN]
    return len(kinds) > 1 or any(kind not in ("pointwise", "contractions", "reductions") for kind in kinds)


def _difference(one: Form, other: Form) -> str:
    return f"the spec has {_shown(one)} where this has {_shown(other)}"


def _shown(form: Form) -> str:
    names = {"add": "a sum of terms", "mul": "a product", "input": "another tensor", "sum": "a sum over axes"}
    if form.kind == "number":
        return f"{form.data:g}"
    return f"the param {form.data}" if form.kind == "param" else names.get(form.kind, form.kind)


def _completed(operator: Operator, window: Window, bound: Bound) -> Found:
    """The operator call for a match, with the first map of axes that fits. Raises `DoesNotFit`."""
    missing = [name for name in operator.inputs if name not in bound.inputs]
    if missing:
        raise DoesNotFit(f"nothing is {', '.join(missing)}")
    why = DoesNotFit("axes of other lengths")
    for axes in axes_of(operator, window, bound):
        try:
            return _called(operator, window, bound, axes)
        except DoesNotFit as error:
            why = error
    raise why


def _called(operator: Operator, window: Window, bound: Bound, axes: Mapping[str, Dim]) -> Found:
    solution = _solved(operator, window, bound, axes)
    by_number = {operator.axis_ids[name]: dim for name, dim in axes.items()}
    masks: list[Mask] = []
    for form, leaf in bound.masks:
        mask = mask_of(form, leaf, window, by_number, solution)
        if mask is None:
            raise DoesNotFit("another condition of positions")
        solution |= mask.params
        masks.append(mask)
    params = dict(_checked(operator, solution))
    choices = {name: arguments(operator, window, bound, axes, name) for name in operator.inputs}
    inside = frozenset(window.nodes)
    made = result(operator, window, axes)
    found = Found(operator, window.root, inside, choices, tuple(masks), params, made, Place(""))
    _check_overwritten(operator, found.inputs, found.nodes)
    return found


def _check_overwritten(operator: Operator, inputs: Mapping[str, Argument], used: Sequence[Any]) -> None:
    """Checks that nothing else reads the inputs that a loss overwrites, as logits. Raises `DoesNotFit`."""
    grad = operator.spec.grad
    if grad is None or grad.write != "in_place":
        return
    for name in grad.wrt:
        seen = reached([inputs[name].node], _sharing)  # All nodes that share its memory.
        if any(user not in seen and user not in used for node in seen for user in node.users):
            raise DoesNotFit(f"it overwrites {name}, which is read elsewhere, too")


_VIEWS = frozenset(
    "view reshape slice select transpose permute to contiguous detach alias expand unsqueeze squeeze flatten unflatten"
    " narrow".split()
)


def _sharing(node: Any) -> list[Any]:
    """The users and inputs of a node that may share its memory as views."""
    return [*filter(_is_view, node.users), *(node.all_input_nodes if _is_view(node) else ())]


def _is_view(node: Any) -> bool:
    return hasattr(node.target, "_schema") and node.target._schema.name.split("::")[1] in _VIEWS


def _solved(operator: Operator, window: Window, bound: Bound, axes: Mapping[str, Dim]) -> dict[str, float]:
    """The params that make the scalars equal, also at other lengths. Raises `DoesNotFit`."""
    names = {number: name for name, number in operator.axis_ids.items()}

    def at(more: int) -> dict[str, float] | None:
        def length(axis: int) -> float:
            return window.length(axis) + (more if window.is_open(axis) else 0)

        def ours(axis: int) -> float | None:
            made = 1.0
            for atom in axes.get(names[axis], ()):
                made *= length(atom)
            return made

        def theirs(form: Form) -> float | None:
            return length(form.data) if form.kind == "size" else None  # type: ignore[arg-type]

        return solved(bound, ours, theirs)

    found = at(0)
    if found is None or found != at(_MORE):
        raise DoesNotFit("another number, or one that follows a length")
    return found


def _checked(operator: Operator, found: Mapping[str, float]) -> Iterator[tuple[str, object]]:
    for param in operator.spec.params:
        if param.name in operator.params:
            if operator.params[param.name] != param.default:
                yield param.name, operator.params[param.name]
        elif param.name in found:
            number = found[param.name]
            low, high = param.minimum, param.maximum
            if (low is not None and number < low) or (high is not None and number > high):
                raise DoesNotFit(f"{param.name} = {number:g} is out of its range")
            if param.kind == "int" and number != int(number):
                raise DoesNotFit(f"{param.name} = {number:g} is no integer")
            yield param.name, int(number) if param.kind == "int" else number
        elif param.default is None:
            raise DoesNotFit(f"nothing is {param.name}")
