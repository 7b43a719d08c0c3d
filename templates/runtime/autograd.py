# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""How operators take part in torch's autograd and in torch.func."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch._C._functorch import unwrap_if_dead
from torch.utils._pytree import tree_map

from .tensors import overlaps


def one_by_one(
    call: Callable[..., Any], info: Any, in_dims: Sequence[int | None], *args: Any
) -> tuple[Any, Any]:
    """The rule of torch.func.vmap that makes one call per element of the batch. Shapes have tuples of dimensions."""
    every = [
        arg.unbind(dim) if isinstance(dim, int) else [arg] * info.batch_size
        for arg, dim in zip(args, in_dims, strict=True)
    ]
    return _with_dims(tree_map(_stacked, *map(call, *every)))


def _stacked(*results: Any) -> Any:
    return None if results[0] is None else torch.stack(results)


def _with_dims(results: Any) -> tuple[Any, Any]:
    """Results with the batch as their first axis, and the `out_dims` that vmap expects."""
    return results, tree_map(lambda one: None if one is None else 0, results)


def over_batch(
    call: Callable[..., Any],
    named: Sequence[int | None],
    info: Any,
    in_dims: Sequence[int | None],
    *args: Any,
) -> tuple[Any, Any]:
    """The rule of torch.func.vmap that makes a single call, with the batch as the first leading axis.

    `named` has the number of axes of each argument after the leading ones; None if it has no leading ones.
    """
    every = list(zip(args, in_dims, named, strict=True))
    if any(dim is not None and count is None for _, dim, count in every):
        return one_by_one(call, info, in_dims, *args)
    leading = max(
        arg.ndim - count - (dim is not None)
        for arg, dim, count in every
        if arg is not None and count is not None
    )
    moved = []
    for arg, dim, count in every:
        if dim is not None and count is not None:
            missing = leading + 1 + count - arg.ndim
            arg = arg.movedim(dim, 0)[(slice(None), *[None] * missing)]
        moved.append(arg)
    return _with_dims(call(*moved))


def is_transformed() -> bool:
    """Whether torch.func or torch.compile records a call, each in its own way."""
    return torch._C._are_functorch_transforms_active() or torch.compiler.is_compiling()


def call(operator: type[torch.autograd.Function], *args: Any) -> Any:
    """Call an operator under autograd or torch.func."""
    if is_transformed():
        return operator.apply(*args)
    given = [  # Tensors of transforms that have ended stand for those inside, as in torch's own call.
        unwrap_if_dead(arg) if isinstance(arg, torch.Tensor) else arg for arg in args
    ]
    # What `apply` calls in the end, after microseconds of reading the signature of `forward`.
    return super(torch.autograd.Function, operator).apply(*given)  # type: ignore[misc]


def call_and_save(
    operator: type[torch.autograd.Function], *args: Any, n_results: int = 1
) -> Any:
    """Call an operator whose `forward` returns its `n_results` results followed by the tensors saved for the
    backward.
    """
    if is_transformed():
        return _picked(operator.apply(*args), n_results)
    return call(_Recorded, *args, operator, n_results)


class _Recorded(torch.autograd.Function):
    """An operator whose saved values are no results, for which autograd would make gradients of zeros; the last
    arguments are its class and its number of results.
    """

    @staticmethod
    def forward(ctx, *given):
        *args, operator, n_results = given
        results = operator.forward(*args)
        operator.setup_context(ctx, args, results)
        ctx.operator = operator
        return _picked(results, n_results)

    @staticmethod
    def backward(ctx, *grads):
        found = ctx.operator.backward(ctx, *grads)
        return *(found if isinstance(found, tuple) else (found,)), None, None


def _picked(results: tuple[Any, ...], n_results: int) -> Any:
    return results[0] if n_results == 1 else results[:n_results]


def constant(ctx: Any, *results: torch.Tensor) -> None:
    """Mark the results that have no gradient, all but one: torch need not fill zeros for them.

    The gradient that the other one gets is None where what uses it is constant.
    """
    ctx.mark_non_differentiable(*results)
    if not torch.compiler.is_compiling():
        ctx.set_materialize_grads(False)


class Operator(torch.autograd.Function):
    """An operator under autograd and torch.func, which saves nothing and maps over a batch one by one by default."""

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Saves nothing."""

    @classmethod
    def vmap(cls, info, in_dims, *args):
        return one_by_one(cls.apply, info, in_dims, *args)


class BatchedOperator(Operator):
    """An operator for which the batch of torch.func.vmap is a leading axis: see `over_batch`."""

    named: ClassVar[tuple[int | None, ...]]

    @classmethod
    def vmap(cls, info, in_dims, *args):
        return over_batch(cls.apply, cls.named, info, in_dims, *args)


class Once(Operator):
    """A function that launches kernels, as a single function without a derivative."""

    @staticmethod
    def forward(function, *args):
        return function(*args)

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError("a gradient is once_differentiable: it has no derivative")


def once(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that launches the kernels of a gradient; torch.func and `create_graph` see it as one."""
    recorded = torch.is_grad_enabled() or torch._C._are_functorch_transforms_active()
    if recorded and not torch.compiler.is_compiling():
        return Once.apply(function, *args)
    return function(*args)


def needs_gradient(*tensors: torch.Tensor | None) -> bool:
    """Whether autograd or torch.func must record a call. Arguments that are no tensors are refused later."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                return True
    return torch._C._are_functorch_transforms_active()


def take_over(
    name: str, tensor: torch.Tensor, *others: torch.Tensor | None
) -> torch.Tensor:
    """The memory of a tensor that is overwritten, which is marked as modified for autograd.

    New memory is used where elements share memory, or where other inputs may overlap.
    """
    storage = tensor.untyped_storage().data_ptr()
    shared = (
        other is not None and other.untyped_storage().data_ptr() == storage
        for other in others
    )
    if overlaps(tensor) or any(shared):
        return torch.empty_like(tensor)
    base = tensor._base
    source = tensor if base is None or not base.requires_grad else base
    if source.is_leaf and source.requires_grad:
        raise RuntimeError(
            f"{name} is a leaf that requires grad, or a view of one: its gradient cannot be written over it"
        )
    torch.autograd.graph.increment_version(tensor)
    return tensor.detach()


def spend(name: str, ctx: Any) -> None:
    """Refuse a second backward: the first returned the memory in which the gradient was stored."""
    if getattr(ctx, "is_spent", False):
        raise RuntimeError(
            f"{name}: trying to backward through the graph a second time, "
            "but its gradient was kept for one: call it again for another"
        )
    ctx.is_spent = True
