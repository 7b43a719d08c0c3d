"""Writes the Python file that replaces functions of a model by ones that call operators."""

from __future__ import annotations

from collections.abc import Iterable

from ..diagnostics.report import Rejected
from ..emit.format import black_mode, wrapped
from ..importing.refusals import Refusal, diagnostic
from ..operator.compile import render
from .functions import Function, Left, functions
from .run import Search, shortened
from .scopes import Owner, owners

_WIDTH = 120


def written(search: Search, command: str) -> tuple[str, list[Left]]:
    """The text of the file, and the regions left out. Changes the trace. Raises `Rejected` if nothing is replaced."""
    import black

    found, left = functions(search)
    if not found:
        why = [Refusal(note, "", "TG001") for note in dict.fromkeys(notes(left))]
        nothing = Refusal("no region of the model is an operator", "see `tritongen patch` without -o", "TG001")
        raise Rejected(map(diagnostic, why or [nothing]))
    imports: dict[str, str] = {}
    views = [_view(one, imports) for one in found]
    packages: dict[str, list[str]] = {}
    for name in sorted({name for one in found for name in one.operators}):
        packages.setdefault(search.packages[name], []).append(name)
    view = {
        "summary": f"Operators in the place of math of {type(search.model).__name__}.",
        "command": "\n".join(wrapped(command, width=_WIDTH)),
        "overwritten": _overwritten(search),
        "notes": list(dict.fromkeys(notes(left))),
        "imports": [f"import {module}" + f" as {name}" * (module != name) for module, name in sorted(imports.items())],
        "operators": [f"from {package} import {', '.join(names)}" for package, names in packages.items()],
        "functions": views,
        "has_masks": any("Mask(" in example for one in found for example in one.examples),
    }
    return black.format_str(render("patch.py.jinja", view), mode=black_mode(_WIDTH)), left


def _overwritten(search: Search) -> list[str]:
    """A note for each operator whose gradient overwrites its inputs."""
    specs = (one.operator.spec for one in search.report.found)
    in_place = {spec.name: spec.grad.wrt for spec in specs if spec.grad is not None and spec.grad.write == "in_place"}
    return [f"{name} writes the gradient over {', '.join(wrt)}" for name, wrt in in_place.items()]


def notes(left: Iterable[Left]) -> list[str]:
    places = ((one.found.operator.spec.name, one.found.place, one.why) for one in left)
    return [f"{name} at {shortened(place.path)}:{place.line}: {why}" for name, place, why in places]


def _view(function: Function, imports: dict[str, str]) -> dict[str, object]:
    return {
        "name": function.name,
        "text": function.text,
        "place": _place(function),
        "owners": [_owner(one, imports) for one in owners(function.code)],
        "examples": function.examples,
    }


def _place(function: Function) -> str:
    count = "one call" if function.calls == 1 else f"{function.calls} calls"
    return f"{shortened(function.code.co_filename)}:{function.code.co_firstlineno}, {count}"


def _owner(owner: Owner, imports: dict[str, str]) -> str:
    """An owner of a function, and the function's name in it, as Python."""
    if owner.module not in imports:
        last = owner.module.rpartition(".")[2]
        imports[owner.module] = last if last not in imports.values() else owner.module.replace(".", "_")
    path = f"{imports[owner.module]}.{owner.path}" if owner.path else imports[owner.module]
    return f'({path}, "{owner.name}")'
