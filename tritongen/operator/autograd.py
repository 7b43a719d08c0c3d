"""A forward and its backward -> the view of a module that takes part in torch's autograd."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ..diagnostics.report import listed
from ..emit.configs import Table, Traffic, matmul_tables, row_tables
from ..emit.host_checks import IS_FAKE, returned_types
from ..emit.matmul_configs import tables_of
from ..emit.module import Around, Module, formula
from ..emit.registration import Registered, registration_view, typed
from ..families.columns.host import SumsModule
from ..families.columns.kernels import SumsProgram
from ..families.registry import module_of
from ..families.scaled.host import ScaledModule
from ..families.scaled.kernels import ScaledProgram
from ..lang.ir import ALWAYS
from ..passes.structure import Program
from ..plan.backward import Backward, BackwardHost, Part
from ..plan.gradient_in_forward import AheadHost
from ..spec.types import Schedule, Spec
from .autograd_class import class_view, is_saved
from .gradient_in_forward import ahead_view, notes, raises

ROWS = "_BACKWARD"  # what the names of the tables of rows end with, those of a backward


def autograd_module(backward: Backward, spec: Spec) -> tuple[Module, tuple[Module, ...]]:
    """The module of an operator with its gradient, and those of the parts of the gradient."""
    op, register = backward.forward.op, spec.register
    is_registered = register != "none"
    optional = frozenset(tensor.name for tensor in op.inputs if tensor.default is not None)
    saves = any(result.when for result in op.results) and not is_registered
    program = _always_saving(backward.forward) if is_registered else backward.forward
    extra = (IS_FAKE,) if is_registered else ("saves",) if saves else ()
    forward = module_of(program, spec.schedule.autotune, Around(f"_{op.name}_forward", extra, register=register))
    each = tuple(dict.fromkeys(one for part in backward.parts for one in (*_called_by(part), part)))
    parts = tuple(_part_module(backward, part, register) for part in each)
    functions = [_function(part, is_registered and part in backward.parts, optional) for part in each]
    is_ahead = backward.write != "backward"
    own = ahead_view(backward) if is_ahead else class_view(backward, spec.namespace if is_registered else "")
    view = dict(forward.view)
    if is_ahead:
        view |= {"notes": notes(backward), "also_raises": raises(backward)}
    view["results"] = [field for field in view["results"] if not is_saved(op, field.name)]
    view["returns"] = returned_types(len(view["results"]))
    view["also_untyped"] = ", allow-untyped-calls"  # torch has no types for Function.apply.
    signature = [*typed(op), *([f"{name}: bool" for name in extra])]
    saved = len(op.results) - len(view["results"])
    returns = returned_types(len(op.results)) if is_registered else returned_types(len(view["results"]), saved)
    says = "The forward, with what the backward needs if it saves that" if saves else "The forward"
    if is_registered:
        others = [_registered_part(part, optional) for part in backward.parts]
        view["registration"] = registration_view(spec, program, others)
        says = "The forward, with what the backward needs" if saved else says
    view["gradient"] = {
        "parts": [part.view | function for part, function in zip(parts, functions, strict=True)],
        "forward_signature": ", ".join(signature),
        "forward_returns": returns,
        "forward_says": f"{says}.",
        **own,
    }
    return replace(forward, view=view), parts


def _always_saving(program: Program) -> Program:
    """The forward of which what is saved is a result like the others: what torch registers has no fewer at times."""
    results = tuple(replace(result, when="", paths=ALWAYS) for result in program.op.results)
    return replace(program, op=replace(program.op, results=results))


def traffic_of(parts: tuple[Module, ...]) -> Traffic:
    """What the launches of all parts have together, but for matmuls."""
    traffic = [part.traffic for part in parts]
    rows = [one for one in traffic if "loop" in one.kinds]
    return Traffic(
        frozenset().union(*(one.kinds for one in traffic)),
        max(one.streams for one in traffic),
        max(one.vectors for one in traffic),
        all(one.flags for one in rows),
        all(one.reducing for one in rows),
        any(one.online for one in rows),
        any(one.in_place for one in rows),
        max(one.sums for one in traffic),
    )


def backward_tables(parts: tuple[Module, ...]) -> tuple[Table, ...]:
    """The tables of a backward: one of each kind for all its rows, and those of each matmul."""
    rows = row_tables(traffic_of(parts), Schedule(), ROWS)
    matmuls = [(part.traffic.summing, part.view["tables"]) for part in parts]
    each = (matmul_tables(tables_of(summing, Schedule()), suffix) for summing, suffix in matmuls if summing)
    return (*rows, *(table for tables in each for table in tables))


def _suffix(part: Part) -> str:
    """What the names of a part's tables end with."""
    if not (isinstance(part.program, Program) and part.program.contraction):
        return ROWS
    return f"_{part.op.name.partition('_backward_')[2].upper() or 'BACKWARD'}"


def _part_module(backward: Backward, part: Part, register: str) -> Module:
    is_registered = register != "none" and part in backward.parts
    host = partial(BackwardHost, gradient=backward.gradient, fills=is_registered)
    extra = (*_extra(part), *([IS_FAKE] if is_registered else []))
    around = Around(f"_{part.op.name}", extra, _suffix(part), host, register)
    if isinstance(part.program, SumsProgram):
        return SumsModule(part.program, around, part.rows.op if part.rows else None).module()
    if isinstance(part.program, ScaledProgram):
        return ScaledModule(part.program, around).module()
    if backward.write != "backward":
        around = replace(around, host=partial(AheadHost, checked=backward.forward.op))
    # torch.compile sees no kernels of a registered part but those that are launched by wrap_triton.
    return module_of(part.program, False, around, by_gemm=part.by_gemm and register == "none")


def _extra(part: Part) -> tuple[str, ...]:
    """The arguments of a part's function besides its tensors and params."""
    shapes = [f"{name}_shape" for name in part.shapes]
    dtypes = [f"{name}_dtype" for name in part.dtypes]
    return (*shapes, *dtypes, *part.flags, *(result.when for result in part.op.results if result.when))


def _called_by(part: Part) -> tuple[Part, ...]:
    """What a part calls for rows that are too long to be whole in registers."""
    return (Part(part.rows, (), ()),) if part.rows else ()


def _registered_part(part: Part, optional: frozenset[str]) -> Registered:
    """A part as an operator of torch's, which knows shapes as lists."""
    op, extra = part.op, _extra(part)
    signature = [*typed(op), *(f"{name}: {_kind(name, optional).replace('torch.Size', 'list[int]')}" for name in extra)]
    names = [*(tensor.name for tensor in op.inputs), *(param.name for param in op.params), *extra]
    passed = [f"torch.Size({name})" if name in extra and _kind(name) == "torch.Size" else name for name in names]
    return Registered(
        op.name, signature, passed, len(op.results), f"{_summary(part)} What is not needed has no elements."
    )


def _kind(name: str, optional: frozenset[str] = frozenset()) -> str:
    """The type of an argument of a part besides its tensors and params."""
    source, _, what = name.rpartition("_")
    kind = {"shape": "torch.Size", "dtype": "torch.dtype"}.get(what, "bool")
    return f"{kind} | None" if what == "dtype" and source in optional else kind


def _summary(part: Part) -> str:
    return part.says or f"Computes {listed(result.output.name for result in part.op.results).replace(' or ', ' and ')}."


def _function(part: Part, is_registered: bool, optional: frozenset[str]) -> dict[str, Any]:
    """The head of a part's function."""
    op = part.op
    extra = [f"{name}: {_kind(name, optional)}" for name in (*_extra(part), *([IS_FAKE] if is_registered else []))]
    count = len(op.results)
    perhaps = 0 if is_registered else sum(bool(result.when) for result in op.results)
    return {
        "function": f"_{op.name}",
        "signature": ", ".join([*typed(op), *extra]),
        "returns": returned_types(count - perhaps, perhaps),
        "summary": _summary(part),
        "formula": _wrapped(part),
    }


def _wrapped(part: Part) -> tuple[str, ...]:
    """The lines of a part's math, on lines that are not too long."""
    lines: list[str] = []
    for value in part.op.values:
        if value.source:
            lines += formula(value, 100)
    return tuple(lines)
