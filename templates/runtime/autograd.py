# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
"""How operators take part in torch's autograd and in torch.func."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch._functorch.utils import unwrap_dead_wrappers

from .tensors import overlaps


def one_by_one(
    call: Callable[..., Any], info: Any, in_dims: Sequence[int | None], *args: Any
) -> tuple[Any, Any]:
    """The rule of torch.func.vmap that makes one call per element of the batch."""
    each = []
    for place in range(info.batch_size):
        pairs = zip(args, in_dims, strict=True)
        each.append(
            call(
                *(
                    arg.select(dim, place) if isinstance(dim, int) else arg
                    for arg, dim in pairs
                )
            )
        )
    if not isinstance(each[0], tuple):
        return torch.stack(each), 0
    columns = [
        None if column[0] is None else torch.stack(column)
        for column in zip(*each, strict=True)
    ]
    return tuple(columns), tuple(None if column is None else 0 for column in columns)


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
    moved = list(args)
    leading = 0
    for place, (arg, dim, count) in enumerate(zip(args, in_dims, named, strict=True)):
        if dim is not None and count is None:
            return one_by_one(call, info, in_dims, *args)
        if dim is not None:
            moved[place] = arg.movedim(dim, 0)
        if arg is not None and count is not None:
            leading = max(leading, arg.ndim - count - (dim is not None))
    for place, (dim, count) in enumerate(zip(in_dims, named, strict=True)):
        if dim is not None and count is not None:
            missing = leading + 1 + count - moved[place].ndim
            moved[place] = moved[place][(slice(None), *[None] * missing)]
    results = call(*moved)
    if isinstance(results, tuple):
        return results, tuple(None if one is None else 0 for one in results)
    return results, 0


class Once(torch.autograd.Function):
    """Launches as a single function for torch.func, without a derivative."""

    @staticmethod
    def forward(function, *args):
        return function(*args)

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Keeps nothing."""

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError(
            "a gradient has no derivative here: it is once_differentiable"
        )

    @staticmethod
    def vmap(info, in_dims, function, *args):
        call = functools.partial(Once.apply, function)
        return one_by_one(call, info, in_dims[1:], *args)


def directly(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def once(function: Callable[..., Any], *args: Any) -> Any:
    """A call of a registered operator, which torch.func does not accept by itself."""
    if torch._C._are_functorch_transforms_active():
        return Once.apply(function, *args)
    return function(*args)


class Operator:
    """An operator with a gradient: `forward`, `setup_context` and `backward` as in torch.autograd.Function.

    Two such classes are made from it: `Eager`, which autograd uses, and `Transformed`, which torch.func needs and
    which takes 15 microseconds more per call. `backward` launches its kernels through its argument `call`, which is a
    single function for torch.func.
    """

    # The number of axes of each argument after the leading ones, over which vmap batches.
    # None: one call per element of the batch.
    leading: ClassVar[tuple[int | None, ...] | None] = None
    n_results: ClassVar[int] = 1  # the others are saved for the backward
    constant: ClassVar[tuple[int, ...]] = ()  # the results that have no gradient
    Eager: ClassVar[type[torch.autograd.Function]]
    # What Eager.apply calls in the end, after microseconds that setup_context alone would need.
    record: ClassVar[Callable[..., Any]]
    Transformed: ClassVar[type[torch.autograd.Function]]

    def __init_subclass__(cls) -> None:
        cls.Eager = _eager(cls)
        cls.record = super(torch.autograd.Function, cls.Eager).apply  # type: ignore[misc]
        cls.Transformed = _transformed(cls)

    @staticmethod
    def forward(*args: Any) -> Any:
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keeps nothing."""

    @staticmethod
    def backward(ctx: Any, call: Callable[..., Any], *grads: Any) -> Any:
        raise NotImplementedError


def _eager(operator):
    forward, setup_context = operator.forward, operator.setup_context
    n_results, constant = operator.n_results, operator.constant
    # Where only one result has a gradient, torch need not fill zeros for the others.
    only = next(n for n in range(n_results) if n not in constant)
    alone = bool(constant) and len(constant) == n_results - 1

    @torch.autograd.function.once_differentiable
    def once_differentiable(ctx, *grads):
        return operator.backward(ctx, directly, *grads)

    class Eager(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *args):
            results = forward(*args)
            setup_context(ctx, args, results)
            if constant:
                ctx.mark_non_differentiable(*(results[n] for n in constant))
            if alone and not torch.compiler.is_compiling():
                ctx.set_materialize_grads(False)
            if not isinstance(results, tuple):
                return results
            return results[0] if n_results == 1 else results[:n_results]

        @staticmethod
        def backward(ctx, *grads):
            if grads[only] is None:  # What uses the result is constant.
                return (None,) * len(ctx.needs_input_grad)
            # No graph of the gradient is wanted, and the check that refuses one takes microseconds.
            if not torch.is_grad_enabled():
                return operator.backward(ctx, directly, *grads)
            return once_differentiable(ctx, *grads)

    return Eager


def _transformed(operator):
    class Transformed(torch.autograd.Function):
        @staticmethod
        def forward(*args):
            return operator.forward(*args)

        @staticmethod
        def setup_context(ctx, inputs, output):
            operator.setup_context(ctx, inputs, output)
            if isinstance(output, tuple):
                own = [output[n] for n in operator.constant]
                saved = (one for one in output[operator.n_results :] if one is not None)
                ctx.mark_non_differentiable(*own, *saved)

        @staticmethod
        def backward(ctx, *grads):
            return operator.backward(ctx, Once.apply, *grads[: operator.n_results])

        @staticmethod
        def vmap(info, in_dims, *args):
            apply = Transformed.apply
            if operator.leading is None:
                return one_by_one(apply, info, in_dims, *args)
            return over_batch(apply, operator.leading, info, in_dims, *args)

    return Transformed


def own_results(operator: type[Operator], results: Any) -> Any:
    """The results of a forward that the caller gets."""
    if not isinstance(results, tuple):
        return results
    return results[0] if operator.n_results == 1 else results[: operator.n_results]


def call(operator: type[Operator], *args: Any) -> Any:
    """Call an operator under autograd or torch.func."""
    if torch._C._are_functorch_transforms_active():
        return own_results(operator, operator.Transformed.apply(*args))
    if torch.compiler.is_compiling():  # It traces autograd.Function.apply.
        return operator.Eager.apply(*args)
    return operator.record(*unwrap_dead_wrappers(args))


def needs_gradient(*tensors: torch.Tensor | None) -> bool:
    """Whether autograd or torch.func must record a call. Arguments that are no tensors are refused later."""
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            if torch.is_grad_enabled():
                return True
            break
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
