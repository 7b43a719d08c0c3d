"""The `[reference]` of a spec: a call of the original function or module."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Container, Mapping

from torch.utils._pytree import tree_map_only

from ..lang.torch_names import FUNCTIONAL_CALL
from .targets import Example, Target, init_text
from .tracing import Trace, signature_of

_WIDE = 110  # characters of a line


def reference_lines(target: Target, trace: Trace, inputs: Container[str], params: Container[str]) -> list[str]:
    """The lines of the table; none if no call by names repeats the traced call."""
    if target.is_region:
        return []
    home, _, name = target.spelled.rpartition(":")
    module = _module_of(home)
    call = _call(target, trace, name, inputs, params)
    if not module or not name.isidentifier() or name in inputs or not call:
        return []
    escaped = call.replace("\\", "\\\\").replace('"', '\\"')
    text = f'"{escaped}"'
    if len(text) > _WIDE and all(" " not in one for one in call.split("'")[1::2]):
        bound = escaped.replace(": ", ":\0")  # A key stays on the line of its value.
        lines = textwrap.wrap(bound, _WIDE - 4, break_long_words=False, break_on_hyphens=False)
        text = '"""' + "\n  ".join(lines).replace("\0", " ") + '"""'
    return [f'from = "{module}"', f"torch = {text}"]


def _module_of(home: str) -> str:
    """The name by which Python imports a file or a module; "" if there is none."""
    if not home.endswith(".py"):
        return home
    folder, file = os.path.split(os.path.abspath(home))
    names = [os.path.splitext(file)[0]]
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, package = os.path.split(folder)
        names.insert(0, package)
    return ".".join(names) if all(map(str.isidentifier, names)) else ""


def _call(target: Target, trace: Trace, name: str, inputs: Container[str], params: Container[str]) -> str:
    """The call, by names of the spec; "" if the spec lacks an argument of the original."""
    given: dict[str, str] = {}
    tensors = (one.name if one.name in inputs else "" for one in trace.arguments)
    for key, value in trace.given.items():
        text = key if key in params else _literal(tree_map_only(Example, lambda _: Name(next(tensors)), value))
        if not text:
            return ""
        given[key] = text
    positional, named = _arranged(signature_of(target), given, trace.scalars, params)
    if target.module is None:
        return f"{name}({', '.join([*positional, *(f'{key}={text}' for key, text in named.items())])})"
    made = name if target.init is None else f"{name}({', '.join(map(init_text, target.init))})"
    state = [f"{one.path!r}: {one.name}" for one in trace.arguments if one.path and one.name in inputs]
    args = positional[0] if len(positional) == 1 else f"({', '.join(positional)})"
    names = [made, f"{{{', '.join(state)}}}", args]
    names += [f"{{{', '.join(f'{key!r}: {text}' for key, text in named.items())}}}"] if named else []
    return f"{FUNCTIONAL_CALL}({', '.join(names)})"


def _arranged(
    signature: inspect.Signature | None, given: Mapping[str, str], scalars: Mapping[str, object], params: Container[str]
) -> tuple[list[str], dict[str, str]]:
    """The arguments by position and by name, without those that equal their defaults."""
    if signature is None:
        return list(given.values()), {}
    known = signature.parameters
    has_starred = any(one.kind is one.VAR_POSITIONAL and name in given for name, one in known.items())
    positional: list[str] = []
    for (key, text), (own, parameter) in zip(given.items(), known.items(), strict=False):
        by_position = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        is_starred = parameter.kind is parameter.VAR_POSITIONAL
        if key != own or not (is_starred or (by_position and (key not in scalars or has_starred))):
            break
        positional.append(text[1:-1].rstrip(",") if is_starred else text)

    def is_default(key: str) -> bool:
        is_number = key in scalars and key not in params and key in known
        return is_number and known[key].default == scalars[key]

    rest = list(given.items())[len(positional) :]
    return positional, {key: text for key, text in rest if not is_default(key)}


class Name(str):
    """A variable in place of a value."""


def _literal(value: object) -> str:
    """A value as a Python literal; "" if it has none."""
    if isinstance(value, Name):
        return str(value)
    if isinstance(value, bool | int | float | str | None) or type(value).__name__ == "dtype":
        return repr(value)
    if isinstance(value, tuple | list):
        texts = list(map(_literal, value))
        open_, close = ("(", ",)" if len(texts) == 1 else ")") if isinstance(value, tuple) else ("[", "]")
        return open_ + ", ".join(texts) + close if all(texts) else ""
    return ""
