"""Finds the regions of a model that specs describe, and replaces them by operators."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..importing.refusals import Refusal, rejecting
from ..importing.targets import Target, load_model, of_module, parse_example
from ..importing.tracing import Trace, trace
from ..project.render import all_made_of
from ..project.settings import find_projects
from .finding import Report, find
from .losses import decompose_reductions
from .reading import Operator, operators

if TYPE_CHECKING:
    import torch

    from .rewriting import Patched


@dataclass(frozen=True, slots=True)
class Search:
    """A model, its trace, and the regions found in it."""

    model: torch.nn.Module
    trace: Trace
    report: Report
    packages: Mapping[str, str]  # packages of the operators, by operator name


def patch(
    model: torch.nn.Module,
    example: str,
    specs: Sequence[str],
    package: ModuleType | Mapping[str, Callable[..., Any]],
    results: Sequence[str] = (),
) -> Patched:
    """The model with operators in place of the regions that specs describe.

    Args:
        model: the model, in the mode (train or eval) and on the device in which it will run.
        example: a call by keywords, as `tritongen import` takes it: "input_ids=i64[2,128] labels=i64[2,128]". Lengths
            stay symbolic unless marked as fixed; arguments that are no tensors become constants.
        specs: files or folders of specs.
        package: a module or mapping of the generated operators, by the names of their specs.
        results: the names of the results to compute, for a model that returns a dict; by default all.

    Raises:
        Rejected: for incorrect specs, and for models that cannot be traced.
    """
    from .rewriting import patched

    found = search(of_module("model", "", type(model).__name__, model), example, specs, results)
    names = dict.fromkeys(one.operator.spec.name for one in found.report.found)
    calls = {one: package[one] if isinstance(package, Mapping) else getattr(package, one) for one in names}
    return patched(model, found.trace, found.report.found, calls)


@rejecting()
def search_model(expression: str, example: str, specs: Sequence[str], results: Sequence[str] = ()) -> Search:
    """Searches a model, `package.module:Model(config)` or `FILE.py:model`, for regions of specs. Raises `Rejected`."""
    return search(load_model(expression), example, specs, results)


@rejecting()
def search(target: Target, example: str, specs: Sequence[str], results: Sequence[str] = ()) -> Search:
    """Traces a loaded model and searches it for regions that specs describe. Raises `Rejected`."""
    known, packages = read(specs)
    traced = _with_results(trace(target, parse_example(example), is_model=True), results)
    decompose_reductions(traced)
    assert target.module is not None
    return Search(target.module, traced, find(traced, known), packages)


def read(paths: Sequence[str]) -> tuple[list[Operator], dict[str, str]]:
    """The forms of all specs, and the packages of their operators, by name. Raises `Rejected`."""
    sources = (source for project in find_projects(tuple(paths)) for source in project.sources)
    found, packages = list[Operator](), dict[str, str]()
    for source, _, forms in all_made_of(sources, lambda spec: list(operators(spec))):
        folder = os.path.relpath(source.settings.out_dir)
        package = ".".join(one for one in folder.split(os.sep) if one not in (".", ".."))
        found += forms
        packages |= {one.spec.name: package for one in forms}
    return found, packages


def _with_results(traced: Trace, wanted: Sequence[str]) -> Trace:
    """The trace reduced to the `wanted` results; unchanged if there are none. Raises `Refusal` for unknown names."""
    missing = [one for one in wanted if one not in traced.results]
    if missing:
        hint = f"it has {', '.join(traced.results)}" if traced.results else "its results have no names"
        raise Refusal(f"the model has no result {', '.join(missing)}", hint, "TG003")
    if not wanted:
        return traced
    structure, has = traced.structure
    places = [place for place, one in enumerate(has) if one]
    wanted_places = {place for place, name in zip(places, traced.results, strict=True) if name in wanted}
    output = next(node for node in traced.graph.graph.nodes if node.op == "output")
    output.args = ([one for one, name in zip(output.args[0], traced.results, strict=True) if name in wanted],)
    traced.graph.graph.eliminate_dead_code()
    return replace(traced, structure=(structure, tuple(place in wanted_places for place in range(len(has)))))


def as_text(found: Search) -> str:
    """The report of `tritongen patch`."""
    names = list(dict.fromkeys(one.operator.spec.name for one in found.report.found))
    calls = Counter[str]()
    for one in sorted(found.report.found, key=lambda one: names.index(one.operator.spec.name)):
        params = (
            f"{key}={value:.6g}" if isinstance(value, float) else f"{key}={value}" for key, value in one.params.items()
        )
        call = f"{one.operator.spec.name}({', '.join([*one.inputs, *params])})"
        calls[f"{call}  {shortened(one.place.path)}:{one.place.line}"] += 1
    lines = [f"{count:4} x {call}" for call, count in calls.items()]
    if found.report.near:
        lines += ["", "nearly, but not replaced:"]
        near = dict.fromkeys(
            f"  {one.operator.spec.name}  {shortened(one.place.path)}:{one.place.line}: {one.why}"
            for one in found.report.near
        )
        lines += near
    count = len(found.report.found)
    return "\n".join([*lines, "", f"{count} {'region' if count == 1 else 'regions'} of {len(names)} operators"])


def shortened(path: str) -> str:
    """A file's path relative to site-packages or to the working directory; unchanged outside of both."""
    if "site-packages/" in path:
        return path.rpartition("site-packages/")[2]
    here = os.path.relpath(path)
    return path if here.startswith("..") else here
