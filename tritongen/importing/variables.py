"""Which variable holds the result of each node of a trace."""

from __future__ import annotations

import operator as python
from typing import Any

from .refusals import Place
from .sources import bound_names
from .tracing import Trace


def variables(trace: Trace) -> dict[str, str]:
    """The variable that holds the result of each node, by the name of the node."""
    recording = trace.recording
    found = dict(recording.names)
    nodes = [one.name for one in trace.graph.graph.nodes if one.name in recording.places]
    places_of = {one.name: one for one in trace.graph.graph.nodes}
    for name, following in zip(nodes, [*nodes[1:], ""], strict=False):
        outer, after = (tuple(reversed(recording.places.get(one, ()))) for one in (name, following))
        for depth, place in enumerate(outer):
            same = depth < len(after) and (after[depth].path, after[depth].line) == (place.path, place.line)
            bound = _bound(places_of[name], place)
            if (
                (not same or places_of[name].target is python.getitem)
                and bound
                and (name not in found or found[name][0] > depth)
            ):
                found[name] = depth, bound
                break
    return {name: variable for name, (_, variable) in found.items()}


def _bound(node: Any, place: Place) -> str:
    """The variable that a statement assigns a node to."""
    names = ["" if name == "_" else name for name in bound_names(place)]
    if node.target is python.getitem and len(names) > 1:
        return names[node.args[1]] if node.args[1] < len(names) else ""
    return names[0] if len(names) == 1 else ""
