"""An operator -> what its module says to torch.library: schema, fake, vmap and autocast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..lang.ir import Op, Reduce, Size
from ..lang.names import public
from ..nest.values import Expr, V, expr, quoted, runtime, tensors
from ..passes.structure import Program
from ..spec.types import BATCH, FLOATS, Input, Spec
from .host_checks import IS_FAKE, kind_check, returned_types
from .statements import Do, If, Statement, call

# Reductions that are exact in whatever dtype, so that autocast leaves their inputs alone.
EXACT = ("max", "min", "argmax", "argmin", "any", "all")
# What autocast casts to: dtypes that an input must admit to be cast.
LOWER = ("float16", "bfloat16", "float32")


@dataclass(frozen=True, slots=True)
class Registered:
    """One of torch.ops: its name there, its function, the call in that, and the rule of vmap."""

    name: str
    function: str
    signature: str
    call: Expr
    returns: str
    says: str
    vmap: Expr


def registration_view(spec: Spec, op: Op, autocast: str, others: Sequence[Registered] = ()) -> dict[str, Any]:
    """What registered.jinja sees. `others` compute the gradient; vmap calls them one by one."""
    function, returns = f"_{op.name}_op", returned_types(*[False] * len(op.results))
    extra = [result.output.name for result in op.results[len(spec.outputs) :]]
    says = f"torch.ops.{spec.namespace}.{op.name}{', and what the backward needs: ' * bool(extra)}{', '.join(extra)}."
    inner = runtime[f"_{op.name}_forward"](*op.arguments, is_fake=False)
    signature, vmap = ", ".join(map(public, typed(op))), over_batch(op, function)
    return {
        "kind": spec.register,
        "namespace": spec.namespace,
        "ops": [
            Registered(op.name, function, signature, inner, returns, says, vmap),
            *others,
        ],
        "autocast": autocast,
        "checks": _checks(op),
        "signature": ", ".join([*typed(op), f"{IS_FAKE}: bool"]),
        "returns": returns,
    }


def operator(namespace: str, name: str) -> str:
    """What torch has under a name now: a later copy of a folder has taken it over from an earlier one."""
    return f"torch.ops.{namespace}.{name}.default"


def typed(op: Op) -> list[str]:
    """The tensors and params of an inner function, none of which it leaves to a default."""
    tensors = [f"{t.name}: torch.Tensor{' | None' if t.default is not None else ''}" for t in op.inputs]
    return [*tensors, *(f"{param.name}: {param.annotation}" for param in op.params)]


def _checks(op: Op) -> list[Statement]:
    """Refusals of arguments of which torch's dispatcher would tell in its own words."""
    found: list[Statement] = []
    for tensor in op.inputs:
        check = Do(tensors.check_tensor(quoted(f"{op.name}: {tensor.name}"), tensor.name))
        found.append(check if tensor.default is None else If(V[tensor.name].is_given, (check,)))
    for param in op.params:
        found.append(kind_check(op, param))
    return found


def over_batch(op: Op, function: str) -> Expr:
    """What vmap calls: the operator once where the batch can be a leading axis of all results, else one by one."""
    named = leading(op)
    passed = ("autograd.over_batch", function, named) if named else ("autograd.one_by_one", function)
    return call("functools.partial", *passed)


def leading(op: Op) -> Expr | None:
    """Of each argument, how many axes follow the leading ones, where the batch of vmap can be one of those."""
    named = (*map(_named, op.inputs), *[None] * len(op.params))
    reduced = any(isinstance(node, Reduce | Size) and BATCH in node.over for node in op.nodes)
    if reduced or not all(BATCH in result.axes for result in op.results):
        return None
    return expr(named)


def _named(tensor: Input) -> int | None:
    """How many dimensions follow the leading ones, if there are leading ones."""
    return len(tensor.type.shape) - 1 if BATCH in tensor.type.axes else None


def autocast_rule(program: Program, rule: str) -> str:
    """What autocast does to the inputs, as to torch's own: "lower" them, widen them to "float32", or "" for nothing.

    It is the family's `rule`, where dtypes and reductions admit it.
    """
    floats = [tensor.type.dtypes for tensor in program.op.inputs if set(tensor.type.dtypes) & set(FLOATS)]
    if rule == "lower":
        return rule if floats and all(set(LOWER) <= set(dtypes) for dtypes in floats) else ""
    sums = any(isinstance(value.node, Reduce) and value.node.kind not in EXACT for value in program.reductions)
    return rule if sums and floats and all("float32" in dtypes for dtypes in floats) else ""
