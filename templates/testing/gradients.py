"""Tests of an operator's gradients, and of torch.func.vmap."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch

from .harness import Dtypes, Harness, each, gpu, only, results, wide
from .inputs import Layout, backwards, contiguous, scattered
from .launches import once


def one_for_all(tensor: torch.Tensor) -> torch.Tensor:
    """One value, expanded by strides of zero."""
    return tensor.new_ones(()).expand_as(tensor)


OUTGOING = (one_for_all, backwards, scattered, torch.zeros_like)


def smooth(found: Any) -> list[torch.Tensor]:
    """The results of a call that have gradients."""
    return [one for one in results(found) if one.requires_grad]


def batches(cls: type[Harness]) -> list[tuple[str, ...]]:
    """The inputs with a mapped axis: all, then each alone."""
    names = tuple(cls.names())
    return list(dict.fromkeys([names, *((name,) for name in names)]))


class VmapTests(Harness):
    """torch.func.vmap compared with one call per element."""

    @each("batched", batches)
    def test_vmap(self, batched: tuple[str, ...]) -> None:
        """Inputs are mapped over their last axis, and results get it as their first."""
        pair = [list(self.make(self.ragged, seed=seed)) for seed in range(2)]
        self.check_vmap(pair, [name in batched for name in self.names()], -1)

    @classmethod
    def check_vmap(
        cls, pair: list[list[torch.Tensor]], batched: list[bool], dim: int
    ) -> None:
        """Two calls as one, with inputs that differ where they are `batched`."""
        first, second = pair
        given: list[Any] = list(first)
        for place, differs in enumerate(batched):
            if differs:
                given[place] = torch.stack([first[place], second[place]], dim)
            else:
                second[place] = first[place]
        dims = tuple(dim if differs else None for differs in batched)
        got = torch.func.vmap(cls.call, dims)(*given)
        want = [results(cls.call(*tensors)) for tensors in pair]
        stacked = tuple(torch.stack(column) for column in zip(*want, strict=True))
        cls.compare(results(got), stacked)


class BackwardTests(Harness):
    """The gradients of an operator, and how they are compared."""

    wrt: ClassVar[tuple[str, ...]]  # the inputs that have gradients
    # Whether rows without keys, which make torch's gradients NaN, have no part in ours.
    leaves_rows_out: ClassVar[bool] = False

    # Gradients

    @classmethod
    def places(cls, wrt: Sequence[str] = ()) -> list[int]:
        return [cls.names().index(name) for name in wrt or cls.wrt]

    @classmethod
    def leaves(cls, tensors: Iterable[Any], wrt: Sequence[str] = ()) -> list[Any]:
        """The tensors, as leaves that require a gradient if they are in `wrt`."""
        places = cls.places(wrt)
        return [
            None if one is None else one.detach().requires_grad_(place in places)
            for place, one in enumerate(tensors)
        ]

    @classmethod
    def handed(cls, given: Iterable[Any]) -> list[Any]:
        """The arguments that are passed to the operator for a test's own tensors."""
        return list(given)

    @classmethod
    def gradients(
        cls, function: Callable[..., Any], *tensors: Any, **options: Any
    ) -> tuple[torch.Tensor, ...]:
        """The gradients of `both`."""
        return cls.both(function, *tensors, **options)[1]

    @classmethod
    def both(
        cls,
        function: Callable[..., Any],
        *tensors: Any,
        wrt: Sequence[str] = (),
        arranged: Layout = contiguous,
        **params: Any,
    ) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        """The results, and the gradients of some inputs for random incoming ones with a given layout."""
        given = cls.leaves(tensors, wrt)
        found = results(function(*cls.handed(given), **params))
        random = torch.Generator().manual_seed(1)
        # The same for every device and dtype.
        outgoing = [
            torch.randn(one.shape, generator=random).bfloat16().to(one) for one in found
        ]
        outgoing = cls.masked(outgoing, (tensors, params))
        pairs = zip(found, outgoing, strict=True)
        arriving = [arranged(other) for one, other in pairs if one.requires_grad]
        by = [given[place] for place in cls.places(wrt)]
        gradients = torch.autograd.grad(smooth(found), by, arriving)
        return tuple(one.detach() for one in found), gradients

    @classmethod
    def compare_gradients(
        cls,
        got: Sequence[torch.Tensor],
        want: Sequence[torch.Tensor],
        tensors: Iterable[Any] = (),
        errors: Sequence[float] = (),
    ) -> None:
        """Equal within the tolerance of the dtypes, relative to the maximum of a gradient, or within torch's `errors`.

        Results that are saved for a float32 gradient are rounded to half precision if some `tensors` are half
        precision.
        """
        given = [one for one in tensors if one is not None]
        floats = [one.dtype for one in given]
        rounding = max((cls.tolerances.get(dtype, 0.0) for dtype in floats), default=0)
        errors = errors or [0.0 for _ in want]
        for one, other, error in zip(got, want, errors, strict=True):
            if cls.leaves_rows_out:
                other = other.where(~other.isnan() | ~one.isfinite(), one.to(other))
            if any(0 in one.shape for one in given):  # NaN of 0 times a mean of nothing
                other = other.where(~other.isnan() | (one != 0).to(other.device), 0)
            tolerance = max(rounding, cls.tolerances[one.dtype])
            scale = max(1.0, float(other.abs().max())) if other.numel() else 1.0
            atol = max(tolerance * scale, cls.error_factor * error)
            cls.check_near(one, other, tolerance, atol)

    @classmethod
    def check_gradients(cls, *tensors: Any, **options: Any) -> None:
        """The gradients against those of the oracle."""
        got = cls.gradients(cls.call, *tensors, **options)
        cls.check_found(got, *tensors, **options)

    @classmethod
    def check_both(
        cls, *tensors: Any, arranged: Layout = contiguous, **params: Any
    ) -> None:
        """The results and the gradients, by one forward."""
        found, got = cls.both(cls.call, *tensors, arranged=arranged, **params)
        cls.check_results(found, *tensors, **params)
        cls.check_found(got, *tensors, arranged=arranged, **params)

    @classmethod
    def check_found(
        cls, got: Sequence[torch.Tensor], *tensors: Any, **options: Any
    ) -> None:
        """Gradients that the operator computed against those of the oracle."""
        oracle = partial(cls.gradients, cls.oracle, **options)
        want = cls.expected(oracle, *wide(tensors))
        if want is not None:
            in_torch = partial(cls.gradients, cls.in_torch, **options)
            errors = cls.errors(in_torch, tensors, want, backward=True)
            cls.compare_gradients(got, want, tensors, errors)


class GradientTests(BackwardTests, VmapTests):
    """Gradients against those of the oracle, by torch's autograd."""

    deterministic: ClassVar[bool] = True

    @each("dtypes", lambda cls: cls.floats())
    def test_gradients(self, dtypes: Dtypes) -> None:
        self.check_gradients(*self.make(self.ragged, dtypes))

    @each("layout", lambda cls: cls.layouts())
    def test_gradients_of_layouts(self, layout: Layout) -> None:
        self.check_both(*map(layout, self.make(self.unfolded())))

    @each("outgoing", lambda cls: OUTGOING[cls.masked_math is not None :])
    def test_layouts_of_outgoing_gradients(self, outgoing: Layout) -> None:
        """Incoming gradients that are not contiguous, zero, or expanded, which those of masked rows are not."""
        tensors = self.make(self.unfolded())
        self.check_gradients(*tensors, arranged=outgoing)

    @each("name", lambda cls: cls.wrt if len(cls.wrt) > 1 else ())
    def test_gradients_of_some_inputs(self, name: str) -> None:
        self.check_gradients(*self.make(self.ragged), wrt=(name,))

    @each("absent", lambda cls: cls.absent)
    def test_gradients_without_optional_inputs(self, absent: tuple[str, ...]) -> None:
        given, filled = self.without(absent, self.make(self.ragged))
        wrt = tuple(name for name in self.wrt if name not in absent)
        got = self.gradients(self.call, *given, wrt=wrt)
        want = self.gradients(self.oracle, *wide(filled), wrt=wrt)
        self.compare_gradients(got, want)

    @only(lambda cls: cls.indices)
    def test_gradients_at_positions_outside(self) -> None:
        """No memory is read or written there."""
        self.gradients(self.call, *self.astray())

    @only(lambda cls: cls.deterministic)
    def test_gradients_are_deterministic(self) -> None:
        tensors = self.make(self.wide)
        once, again = (self.gradients(self.call, *tensors) for _ in range(2))
        torch.testing.assert_close(once, again, rtol=0, atol=0, equal_nan=True)

    # Autograd and torch.func

    def test_torch_func(self) -> None:
        tensors = self.make(self.ragged)
        self.compare_gradients(self.by_torch_func(*tensors), self.of_ones(*tensors))

    def test_vmap_of_gradients(self) -> None:
        """The gradients of each element of a batch."""
        pair = [self.make(self.ragged, seed=seed) for seed in range(2)]
        stacked = [torch.stack(both, -1) for both in zip(*pair, strict=True)]
        mapped = torch.func.vmap(self.by_torch_func, -1)
        want = [self.of_ones(*tensors) for tensors in pair]
        together = [torch.stack(both) for both in zip(*want, strict=True)]
        self.compare_gradients(mapped(*stacked), together)

    # On a GPU

    @gpu
    @each("dtypes", lambda cls: cls.floats())
    def test_accuracy_of_gradients(self, dtypes: Dtypes) -> None:
        """And of results."""
        tensors = self.make(self.large[0], dtypes)
        found = self.both(self.call, *tensors)
        torchs = self.both(self.in_torch, *tensors)
        wanted = self.both(self.oracle, *wide(tensors))
        first = 0 if self.gives_one_float() else 1
        for one, other, exact in [*zip(found, torchs, wanted, strict=True)][first:]:
            for got, own, want in zip(one, other, exact, strict=True):
                self.check_accuracy(got, own, want)

    @gpu
    @once
    def test_graph_capture_of_gradients(self) -> None:
        self.check_capture(self.of_ones)

    @gpu
    @once
    def test_torch_compile_of_gradients(self) -> None:
        torch.compiler.reset()  # torch 2.11 fails where other tests made sizes symbols.
        tensors = self.make(self.ragged)
        compiled = torch.compile(self.op, fullgraph=True)
        got = self.gradients(compiled, *tensors, **self.params)
        want = self.gradients(self.oracle, *wide(tensors))
        self.compare_gradients(got, want)

    @classmethod
    def of_ones_by(cls, found: Any, given: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """The gradients of some inputs, for incoming gradients of 1."""
        by = [given[place] for place in cls.places()]
        ones = [torch.ones_like(one) for one in smooth(found)]
        return torch.autograd.grad(smooth(found), by, ones)

    @classmethod
    def of_ones(cls, *tensors: Any) -> tuple[torch.Tensor, ...]:
        """The operator's gradients of some inputs, for incoming gradients of 1."""
        given = cls.leaves(tensors)
        return cls.of_ones_by(cls.call(*cls.handed(given)), given)

    @classmethod
    def by_torch_func(cls, *tensors: Any) -> list[torch.Tensor]:
        """`of_ones` by torch.func.vjp."""

        def call(*chosen: torch.Tensor) -> list[torch.Tensor]:
            given = list(tensors)
            for place, tensor in zip(cls.places(), chosen, strict=True):
                given[place] = tensor
            return smooth(cls.call(*given))

        chosen = [tensors[place] for place in cls.places()]
        both: Any = torch.func.vjp(call, *chosen)
        found, pull = both
        return list(pull([torch.ones_like(one) for one in found]))
