"""A forward and its backward -> the view of a module that takes part in torch's autograd."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from functools import partial
from typing import Any

from .backward import Backward, BackwardHost, Part
from .diagnostics import listed
from .families.sums import SumsProgram
from .ir import Op
from .launch import Traffic
from .modules import Around, Module, kernel_module, sources
from .spec import Param
from .sums_module import SumsModule


def autograd_module(backward: Backward, autotune: bool) -> tuple[Module, tuple[Module, ...]]:
    """The module of an operator with its gradient, and those of the parts of the gradient."""
    op = backward.forward.op
    saves = any(result.when for result in op.results)
    extra = ("saves",) if saves else ()
    forward = kernel_module(backward.forward, autotune, Around(f"_{op.name}_forward", extra))
    each = tuple(one for part in backward.parts for one in (*_rows_of(part), part))
    parts = tuple(_part_module(backward, part) for part in each)
    functions = [_function(part) for part in each]
    own = _class_view(backward)
    autograd = {"cdiv": False, "devices": frozenset[str](), **own}
    view = forward.view | sources(forward.view, autograd, *(part.view for part in parts))
    view["results"] = [field for field in view["results"] if not _is_saved(op, field.name)]
    view["returns"] = _returns(len(view["results"]), 0)
    view["config_modules"] = "configs, configs_backward" if parts else "configs"
    view["also_untyped"] = ", allow-untyped-calls"  # torch has no types for Function.apply.
    view["gradient"] = {
        "parts": [part.view | function for part, function in zip(parts, functions, strict=True)],
        "forward_signature": ", ".join([*_typed(op), *(["saves: bool"] if saves else [])]),
        "forward_returns": _returns(len(view["results"]), len(op.results) - len(view["results"])),
        **own,
    }
    return replace(forward, view=view), parts


def traffic_of(parts: tuple[Module, ...]) -> Traffic:
    """What the launches of all parts have together."""
    traffic = [part.traffic for part in parts]
    rows = [one for one in traffic if "loop" in one.kinds]
    return Traffic(
        frozenset().union(*(one.kinds for one in traffic)),
        max(one.streams for one in traffic),
        max(one.vectors for one in traffic),
        all(one.flags for one in rows),
        all(one.reducing for one in rows),
        any(one.online for one in rows),
        max(one.sums for one in traffic),
    )


def _part_module(backward: Backward, part: Part) -> Module:
    host = partial(BackwardHost, gradient=backward.gradient)
    around = Around(f"_{part.op.name}", _extra(part), "configs_backward", host)
    if isinstance(part.program, SumsProgram):
        return SumsModule(part.program, around, part.rows.op if part.rows else None).module()
    return kernel_module(part.program, False, around)


def _extra(part: Part) -> tuple[str, ...]:
    """The arguments of a part's function besides its tensors and params."""
    shapes = [f"{name}_shape" for name in part.shapes]
    dtypes = [f"{name}_dtype" for name in part.dtypes]
    return (*shapes, *dtypes, *(result.when for result in part.op.results if result.when))


def _rows_of(part: Part) -> tuple[Part, ...]:
    """What a part calls for rows that are too long to be whole in registers."""
    return (Part(part.rows, (), ()),) if part.rows else ()


def _function(part: Part) -> dict[str, Any]:
    """The head of a part's function."""
    op = part.op
    kinds = {"shape": "torch.Size", "dtype": "torch.dtype"}
    extra = [f"{name}: {kinds.get(name.rsplit('_', 1)[-1], 'bool')}" for name in _extra(part)]
    one = "torch.Tensor | None" if op.results[0].when else "torch.Tensor"
    several = len(op.results) > 1
    return {
        "function": f"_{op.name}",
        "signature": ", ".join([*_typed(op), *extra]),
        "returns": f"tuple[{', '.join([one] * len(op.results))}]" if several else one,
        "summary": f"Computes {listed(result.output.name for result in op.results).replace(' or ', ' and ')}.",
        "formula": _wrapped(part),
    }


def _wrapped(part: Part) -> tuple[str, ...]:
    """The lines of a part's math, on lines that are not too long."""
    lines: list[str] = []
    for value in part.op.values:
        if value.source:
            lines += textwrap.wrap(f"{value.name} = {value.source}", 100, subsequent_indent="    ")
    return tuple(lines)


def _class_view(backward: Backward) -> dict[str, Any]:
    """What the subclass of torch.autograd.Function says."""
    op, gradient = backward.forward.op, backward.gradient
    inputs = [tensor.name for tensor in op.inputs]
    params = [param.name for param in op.params]
    results = [result.output.name for result in op.results]
    own = [result.output.name for result in op.results if not result.when]
    read = dict.fromkeys(tensor.name for part in backward.parts for tensor in part.op.inputs)
    seeds = dict(gradient.seeds)
    saved = [name for name in (*inputs, *results) if name in read]
    used = dict.fromkeys(param.name for part in backward.parts for param in part.op.params)
    shapes = dict.fromkeys(name for part in backward.parts for name in part.shapes)
    shapes |= dict.fromkeys(name for name, text in backward.spelled.items() if f"ctx.{name}_shape" in text)
    dtypes = dict.fromkeys(name for part in backward.parts for name in part.dtypes)
    attributes = [(name, name) for name in used]
    attributes += [(f"{name}_shape", f"{name}.shape") for name in shapes]
    optional = {tensor.name for tensor in op.inputs if tensor.default is not None}
    guards = {name: f" if {name} is not None else None" for name in optional}
    attributes += [(f"{name}_dtype", f"{name}.dtype{guards.get(name, '')}") for name in dtypes]
    grads = [seeds.get(name, f"_d{name}") for name in own]
    returned = [backward.spelled.get(name, "None") for name in inputs] + ["None"] * len(params)
    lines, needs = _calls(backward)
    *before, last = lines or [""]
    target, _, call = last.partition(" = ")
    result = ", ".join(returned)
    lines = [*before, f"return {call}"] if target == result else [*lines, f"return {result}"]
    saves = len(results) > len(own)
    return {
        "class_name": "_" + "".join(word.capitalize() for word in op.name.split("_")),
        "arguments": ", ".join([*inputs, *params]),
        "call_forward": f"_{op.name}_forward({', '.join([*inputs, *params, *(['saves=True'] if saves else [])])})",
        "call_plain": f"_{op.name}_forward({', '.join([*inputs, *params, *(['saves=False'] if saves else [])])})",
        "picked": _picked(len(own), len(results)),
        "targets": ", ".join(results),
        "own_results": ", ".join(own),
        "saved": ", ".join(saved),
        "unpacked": f"({saved[0]},)" if len(saved) == 1 else ", ".join(saved),
        "attributes": attributes,
        "keeps_nothing": not saved and not attributes and all(name in seeds for name in own) and not saves,
        "flat_results": ", ".join(name for name in own if name not in seeds),
        "requires": f"_needs_gradient({', '.join(gradient.wrt)})",
        "seeds": ", ".join(grads),
        "needs": needs,
        "lines": lines,
    }


def _picked(own: int, count: int) -> str:
    """Of what the inner function returns, what the caller gets."""
    if own == count:
        return ""
    return "[0]" if own == 1 else f"[:{own}]"


def _calls(backward: Backward) -> tuple[list[str], bool]:
    """The lines that call the parts, and whether they ask what is needed."""
    inputs = [tensor.name for tensor in backward.forward.op.inputs]
    computed = {result.output.name for part in backward.parts for result in part.op.results}
    alone = len(backward.parts) == 1 and all(_own(text) in computed for text in backward.spelled.values())
    lines: list[str] = []
    for part in backward.parts:
        names = [result.output.name for result in part.op.results]
        needed = {own: _needed(backward, own, inputs) for own in names}
        flags = [f"{r.when}={needed[r.output.name]}" for r in part.op.results if r.when]
        passed = [*(tensor.name for tensor in part.op.inputs), *(f"ctx.{param.name}" for param in part.op.params)]
        passed += [f"ctx.{name}_shape" for name in part.shapes] + [f"ctx.{name}_dtype" for name in part.dtypes]
        call = f"{', '.join(names)} = _{part.op.name}({', '.join([*passed, *flags])})"
        if alone:
            lines.append(call)
            continue
        condition = " or ".join(dict.fromkeys(needed.values()))
        lines += [f"{' = '.join(names)} = None", f"if {condition}:", f"    {call}"]
    return lines, any("needs[" in line for line in lines)


def _needed(backward: Backward, own: str, inputs: list[str]) -> str:
    """Whether any gradient is needed that a result of a part is for."""
    users = [name for name, text in backward.spelled.items() if _own(text) == own]
    return " or ".join(f"needs[{inputs.index(name)}]" for name in users)


def _own(text: str) -> str:
    """The name of the gradient that an expression of the host is made of."""
    return text.partition("[")[0].partition(".")[0]


def _is_saved(op: Op, name: str) -> bool:
    return any(result.when and result.output.name == name for result in op.results)


def _typed(op: Op) -> list[str]:
    """The tensors and params of an inner function, none of which it leaves to a default."""
    tensors = [f"{t.name}: torch.Tensor{' | None' if t.default is not None else ''}" for t in op.inputs]
    return [*tensors, *(f"{param.name}: {_kind(param)}" for param in op.params)]


def _kind(param: Param) -> str:
    return {"enum": "str"}.get(param.kind, param.kind)


def _returns(own: int, saved: int) -> str:
    parts = ["torch.Tensor"] * own + ["torch.Tensor | None"] * saved
    return parts[0] if len(parts) == 1 else f"tuple[{', '.join(parts)}]"
