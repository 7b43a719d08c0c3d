"""Tests of gradients in the forward, written to new memory or over its inputs."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch

from .gradients import GradientTests
from .harness import each, only, results, wide
from .inputs import Layout, contiguous


def smooth(found: Any) -> torch.Tensor:
    """The result that has a gradient."""
    return next(one for one in results(found) if one.is_floating_point())


class GradientInForwardTests(GradientTests):
    """The forward saves only the gradient, for a single backward."""

    @classmethod
    def check_gradients(
        cls,
        *tensors: Any,
        wrt: Sequence[str] = (),
        arranged: Layout = contiguous,
        **params: Any,
    ) -> None:
        """The gradients and the results."""
        super().check_gradients(*tensors, wrt=wrt, arranged=arranged, **params)
        given = cls.handed(cls.leaves(tensors, wrt))
        got = cls.call(*given, **params)
        want = cls.expected(cls.oracle, *tensors, **params)
        if want is not None:
            cls.compare(got, want, tensors)

    def test_gradients_of_mean(self) -> None:
        """All rows are weighted by one expanded factor."""

        def averaged(function: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *tensors: smooth(function(*tensors)).mean()

        tensors = self.make(self.ragged)
        got = self.gradients(averaged(self.call), *tensors)
        want = self.gradients(averaged(self.oracle), *wide(tensors))
        self.compare_gradients(got, want)

    def test_gradients_of_some_rows(self) -> None:
        """Rows with a factor of 1 stay as they are; others are scaled."""
        tensors = self.make(self.ragged)

        def halves(function: Callable[..., Any], given: list[Any]) -> Any:
            result = smooth(function(*self.handed(given)))
            outgoing = torch.ones_like(result)
            outgoing.view(-1)[1::2] = 2
            by = [given[place] for place in self.places()]
            return torch.autograd.grad(result, by, outgoing)

        self.compare_gradients(
            halves(self.call, self.leaves(tensors)),
            halves(self.oracle, self.leaves(wide(tensors))),
        )

    @each("number", lambda _: (float("inf"), float("nan")))
    def test_zeros_stay(self, number: float) -> None:
        """Where the gradient of a sum is zero, it stays zero for any incoming gradient."""
        tensors = self.make(self.ragged)
        given = self.leaves(tensors)
        result = smooth(self.call(*self.handed(given)))
        by = [given[place] for place in self.places()]
        got = torch.autograd.grad(result, by, torch.full_like(result, number))
        for one, usual in zip(got, self.of_ones(*tensors), strict=True):
            torch.testing.assert_close(one == 0, usual == 0)
            assert not one[usual != 0].isfinite().any()

    def test_second_backward_is_refused(self) -> None:
        """The first returned the memory in which the gradient was stored."""
        given = self.leaves(self.make(self.ragged))
        total = smooth(self.call(*self.handed(given))).sum()
        leaf = given[self.places()[0]]
        torch.autograd.grad(total, leaf, retain_graph=True)
        with pytest.raises(RuntimeError, match="backward through the graph a second"):
            torch.autograd.grad(total, leaf)

    @only(lambda cls: not issubclass(cls, GradientInPlaceTests))
    def test_inputs_stay(self) -> None:
        tensors = self.make(self.ragged)
        given = self.leaves(tensors)
        total: Any = smooth(self.call(*given)).sum()
        total.backward()
        _same([one.detach() for one in given], self.make(self.ragged))
        assert all(one._version == 0 for one in given)


class _Copied(torch.autograd.Function):
    """A copy with the same layout, which is no leaf and so may be overwritten."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        size = tensor.untyped_storage().nbytes() // tensor.itemsize
        memory = tensor.as_strided((size,), (1,), 0).clone()
        return memory.as_strided(
            tensor.shape, tensor.stride(), tensor.storage_offset()
        ).detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def leaf(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def view(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view_as(tensor)


class GradientInPlaceTests(GradientInForwardTests):
    """The gradient is written over the input."""

    @classmethod
    def handed(cls, given: Iterable[Any]) -> list[Any]:
        """The tensors, with copies of those that require gradients, since the test's own must not be overwritten."""
        copied: Any = _Copied
        return [
            one if one is None or not one.requires_grad else copied.apply(one)
            for one in given
        ]

    def test_gradients_take_the_place_of_inputs(self) -> None:
        """They are marked as modified, so that autograd refuses to use them where they were saved elsewhere."""
        tensors = self.make(self.ragged)
        given = self.handed(self.leaves(tensors))
        by = [given[place] for place in self.places()]
        squares = [one.square().sum() for one in by]
        found = torch.autograd.grad(smooth(self.call(*given)).sum(), by)
        assert [one.data_ptr() for one in found] == [one.data_ptr() for one in by]
        leaves = self.leaves(wide(tensors))
        self.compare_gradients(found, self.of_ones_by(self.oracle(*leaves), leaves))
        for square in squares:
            total: Any = square
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                total.backward()

    def test_inputs_stay_without_autograd(self) -> None:
        tensors = self.make(self.ragged)
        given = [tensor.clone() for tensor in tensors]
        self.call(*given)
        with torch.no_grad():
            self.call(*self.leaves(given))
        _same(given, tensors)

    @each("seen", lambda _: (leaf, view))
    def test_leaves_are_not_overwritten(
        self, seen: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        tensors = self.make(self.ragged)
        given = [seen(one) for one in self.leaves(tensors)]
        with pytest.raises(RuntimeError, match="is a leaf that requires grad"):
            self.call(*given)
        _same([one.detach() for one in given], tensors)


def _same(got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> None:
    torch.testing.assert_close(list(got), list(want), rtol=0, atol=0)
