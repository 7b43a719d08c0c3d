"""An operator -> its registration with torch.library: schema, fake, vmap and autocast."""

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
# The dtypes that an input must admit for autocast to lower it.
LOWER = ("float16", "bfloat16", "float32")


@dataclass(frozen=True, slots=True)
class Registered:
    """An operator of torch.ops: its name, its function, the call inside of that, and the vmap rule."""

    name: str
    function: str
    signature: str
    call: Expr
    returns: str
    says: str
    vmap: Expr


def registration_view(spec: Spec, op: Op, autocast: str, others: Sequence[Registered] = ()) -> dict[str, Any]:
    """The view of registered.jinja. `others` compute the gradient; vmap calls them one by one."""
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
    """The operator that torch has under a name when called: a later copy of a folder replaces an earlier one."""
    return f"torch.ops.{namespace}.{name}.default"


def typed(op: Op) -> list[str]:
    """The parameters of an inner function for tensors and params, without defaults."""
    tensors = [f"{t.name}: torch.Tensor{' | None' if t.default is not None else ''}" for t in op.inputs]
    return [*tensors, *(f"{param.name}: {param.annotation}" for param in op.params)]


def _checks(op: Op) -> list[Statement]:
    """Checks of arguments that torch's dispatcher would refuse with messages of its own."""
    found: list[Statement] = []
    for tensor in op.inputs:
        check = Do(tensors.check_tensor(quoted(f"{op.name}: {tensor.name}"), tensor.name))
        found.append(check if tensor.default is None else If(V[tensor.name].is_given, (check,)))
    for param in op.params:
        found.append(kind_check(op, param))
    return found


def over_batch(op: Op, function: str) -> Expr:
    """The vmap rule: one call if the batch can be a leading axis of all results, else one call for each element."""
    named = leading(op)
    passed = ("autograd.over_batch", function, named) if named else ("autograd.one_by_one", function)
    return call("functools.partial", *passed)


def leading(op: Op) -> Expr | None:
    """For each argument, how many axes follow the leading ones; None if vmap's batch cannot be a leading axis."""
    named = (*map(_named, op.inputs), *[None] * len(op.params))
    reduced = any(isinstance(node, Reduce | Size) and BATCH in node.over for node in op.nodes)
    if reduced or not all(BATCH in result.axes for result in op.results):
        return None
    return expr(named)


def _named(tensor: Input) -> int | None:
    """How many dimensions follow the leading ones, if there are leading ones."""
    return len(tensor.type.shape) - 1 if BATCH in tensor.type.axes else None


def autocast_rule(program: Program, rule: str) -> str:
    """The autocast rule, as of torch's own operators: "lower" the inputs, widen them to "float32", or "" for neither.

    It is the family's `rule`, where dtypes and reductions admit it.
    """
    floats = [tensor.type.dtypes for tensor in program.op.inputs if set(tensor.type.dtypes) & set(FLOATS)]
    if rule == "lower":
        return rule if floats and all(set(LOWER) <= set(dtypes) for dtypes in floats) else ""
    sums = any(isinstance(value.node, Reduce) and value.node.kind not in EXACT for value in program.reductions)
    return rule if sums and floats and all("float32" in dtypes for dtypes in floats) else ""
