"""Operators under autograd: those of which one result alone has a gradient make no zeros for the others."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch.utils.checkpoint

from tests.harness.importing import runtime_module


def _squared() -> tuple[Any, list[tuple[Any, ...]]]:
    """An operator with a result, a constant one and one that is saved, and the gradients that it is passed."""
    autograd = runtime_module("autograd")
    passed: list[tuple[Any, ...]] = []

    class Squared(torch.autograd.Function):
        @staticmethod
        def forward(x: torch.Tensor, factor: float) -> tuple[torch.Tensor, ...]:
            return factor * x * x, x.sum(), 2 * factor * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            _y, total, slope = output
            ctx.save_for_backward(slope)
            autograd.constant(ctx, total)

        @staticmethod
        def backward(ctx: Any, dy: Any, dtotal: Any, *_: Any) -> Any:
            if dy is None:
                return None, None
            if not torch.compiler.is_compiling():
                passed.append((dy, dtotal))
            (slope,) = ctx.saved_tensors
            return slope * dy, None

    return (lambda x, factor=3.0: autograd.call_and_save(Squared, x, factor, n_results=2)), passed


def test_no_zeros_are_made_for_results_without_gradients() -> None:
    squared, passed = _squared()
    x = torch.randn(5, requires_grad=True)
    y, total = squared(x)
    assert not total.requires_grad
    (dx,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(dx, 6 * x)
    assert [one[1] for one in passed] == [None]


def test_result_whose_use_has_no_gradient() -> None:
    """What comes later may pass on None, and so does the operator."""

    class Stops(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> None:
            return None

    squared, passed = _squared()
    x = torch.randn(5, requires_grad=True)
    stopped = Stops.apply(squared(x)[0])
    (dx,) = torch.autograd.grad(stopped.sum(), x, allow_unused=True)  # type: ignore[no-untyped-call]
    assert dx is None
    assert passed == []


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile_traces_it(backend: str) -> None:
    squared, _ = _squared()
    x = torch.randn(5, requires_grad=True)
    y, total = torch.compile(squared, fullgraph=True, backend=backend)(x)
    assert not total.requires_grad
    (dx,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(dx, 6 * x)


def test_input_of_a_transform_that_has_ended() -> None:
    """It is still wrapped, and stands for the tensor inside, as for torch.autograd.Function."""
    squared, _ = _squared()
    kept: list[torch.Tensor] = []
    x = torch.randn(5)
    torch.func.grad(lambda x: kept.append(x) or squared(x)[0].sum())(x)  # type: ignore[func-returns-value]
    y, _ = squared(kept[0])
    torch.testing.assert_close(y, 3 * x * x)
    factor = torch.ones(5, requires_grad=True)
    (dfactor,) = torch.autograd.grad((squared(factor)[0] * kept[0]).sum(), factor)
    torch.testing.assert_close(dfactor, 6 * x)


@pytest.mark.parametrize("base", ["Operator", "BatchedOperator"])
def test_what_operators_inherit_is_traced_and_mapped(base: str) -> None:
    """By torch.compile and by vmap of a gradient: the classes of operators say what they save, if anything."""
    autograd = runtime_module("autograd")
    calls: list[tuple[int, ...]] = []

    class Doubled(getattr(autograd, base)):  # type: ignore[misc]
        named = (1,)

        @staticmethod
        def forward(x: torch.Tensor) -> torch.Tensor:
            if not torch.compiler.is_compiling():
                calls.append(tuple(x.shape))
            return 2 * x

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
            return 2 * dy

    def loss(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = autograd.call(Doubled, x).square().sum()
        return found

    x = torch.randn(3, 5)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(x), 8 * x)
    assert calls == ([(5,)] * 3 if base == "Operator" else [(3, 5)])
    given = x.clone().requires_grad_()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    (dx,) = torch.autograd.grad(compiled(given), given)
    torch.testing.assert_close(dx, 8 * x)


def _attention() -> tuple[Any, list[torch.Tensor]]:
    """An operator of the gallery, and inputs of which keys and values lack a leading axis."""
    from generated.attention import attention

    return functools.partial(attention, scale=0.5), [torch.randn(*shape, 5, 4) for shape in ((2, 3), (3,), (3,))]


def test_vmap_of_inputs_with_fewer_leading_axes() -> None:
    call, (q, k, v) = _attention()
    pairs = [torch.stack((one, one + 1)) for one in (q, k, v)]
    for dims in ((0, 0, 0), (0, None, 0), (None, 0, None)):
        given = [one[0] if dim is None else one for one, dim in zip(pairs, dims, strict=True)]
        want = [
            call(*(one[0] if dim is None else one[n] for one, dim in zip(pairs, dims, strict=True))) for n in (0, 1)
        ]
        torch.testing.assert_close(torch.func.vmap(call, dims)(*given), torch.stack(want))


def test_a_forward_that_is_repeated_in_the_backward() -> None:
    call, tensors = _attention()

    def again(*given: torch.Tensor) -> Any:
        return torch.utils.checkpoint.checkpoint(call, *given, use_reentrant=False)

    leaves = [one.requires_grad_() for one in tensors]
    found, want = (torch.autograd.grad(function(*leaves).sum(), leaves) for function in (again, call))
    torch.testing.assert_close(found, want)


def test_a_gradient_has_no_derivative() -> None:
    call, tensors = _attention()
    q = tensors[0].requires_grad_()
    (first,) = torch.autograd.grad(call(*tensors).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
