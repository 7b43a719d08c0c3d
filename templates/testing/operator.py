"""Tests of any operator's forward."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from triton import Config

from ..runtime import heuristics
from .harness import (
    Dtypes,
    Harness,
    Patch,
    Shape,
    each,
    gpu,
    is_backward,
    only,
    results,
)
from .inputs import DEVICE, Layout, backwards, contiguous, misaligned, scattered
from .launches import once

SMALL_BLOCK = Config({"BLOCK": 16})
SMALL_TILE = Config({"BLOCK_M": 2, "BLOCK_N": 32})
TALL_TILE = Config({"BLOCK_M": 16, "BLOCK_N": 8})


class OperatorTests(Harness):
    """The forward against its oracle, and the arguments that it refuses."""

    # Values

    @each("dtypes", lambda cls: cls.dtypes() or [()])
    def test_dtypes(self, dtypes: Dtypes) -> None:
        tensors = self.make(self.ragged, dtypes)
        got = self.check(*tensors)
        assert tuple(x.dtype for x in results(got)) == self.result_dtypes(*tensors)

    @each("shape", lambda cls: cls.shapes)
    def test_shapes(self, shape: Shape) -> None:
        self.check_pass(None, self.make(shape))

    @each("shift", lambda cls: cls.shifts)
    def test_shifted_values(self, shift: float) -> None:
        """Values so large that exp overflows unless the maximum is subtracted."""
        self.check_pass(None, self.shifted(shift))

    @gpu
    @each("shape", lambda cls: cls.large)
    def test_large_shapes(self, shape: Shape) -> None:
        self.check_pass(None, self.make(shape))

    @each("shape", lambda cls: cls.empty)
    def test_empty(self, shape: Shape) -> None:
        self.check_pass(None, self.make(shape))

    @each("shape", lambda cls: cls.valueless)
    def test_empty_axis_without_a_value(self, shape: Shape) -> None:
        with pytest.raises(ValueError, match="empty"):
            self.call(*self.make(shape))

    @each("narrow, place", lambda cls: cls.batched and cls.narrowed_places())
    def test_broadcast(self, narrow: int, place: Any, patch: Patch) -> None:
        """One input has fewer leading axes, or some of length 1; results have all of them."""
        tensors = list(self.make(self.two_batches))
        shape, reference = tensors[narrow].shape, self.reference
        tensors[narrow] = tensors[narrow][place]

        def expanded(*given: torch.Tensor, **params: Any) -> Any:
            whole = list(given)
            whole[narrow] = whole[narrow].expand(shape)
            return reference(*whole, **params)

        patch.setattr(type(self), "reference", staticmethod(expanded))
        self.check_pass(None, tensors)

    # Gradients, if any, are tried with the first of these shapes, and results too.
    @each("shape", lambda cls: cls.layout_shapes()[cls.has_gradient() :])
    @each("layout", lambda cls: cls.layouts())
    def test_layouts(self, layout: Layout, shape: Shape) -> None:
        self.check(*map(layout, self.make(shape)))

    @each("layout", lambda cls: cls.layouts() if len(cls.inputs) > 1 else ())
    def test_one_layout_for_each(self, layout: Layout) -> None:
        """Of the first input alone, then of each another one, while nothing folds."""
        first, *others = self.make(self.unfolded())
        self.check_pass(None, (layout(first), *others))
        laid, start = [scattered(first)], self.layouts().index(layout)
        for place, tensor in enumerate(others, 1):
            own = [contiguous, *self.layouts(self.inputs[place])]
            laid.append(own[(start + place) % len(own)](tensor))
        self.check_pass(None, laid, arranged=scattered)

    @each("dtypes", lambda cls: cls.floats())
    def test_special_values(self, dtypes: Dtypes) -> None:
        self.check_special_values(dtypes)

    @classmethod
    def check_special_values(cls, dtypes: Dtypes) -> None:
        """Zeros of both signs, infinities and NaN."""
        # Indices are random: torch's own cross_entropy is NaN at an infinite logit.
        tensors = cls.make(cls.special, dtypes, ends=False)
        for one, tensor in zip(cls.inputs, tensors, strict=True):
            for value in (0.0, -0.0, math.inf, -math.inf, math.nan):
                if one.is_float and one.name not in cls.finite:
                    chosen = torch.rand(tensor.shape).to(DEVICE) < 0.015
                    tensor.masked_fill_(chosen, value)
        oracle = cls.in_torch if cls.own_range else cls.oracle
        cls.compare(cls.call(*tensors), oracle(*tensors), tensors)

    @only(lambda cls: cls.indices)
    def test_positions_outside(self) -> None:
        """No memory is read there, which `check_bounds` ensures in the interpreter."""
        self.call(*self.astray())

    @each("absent", lambda cls: cls.absent)
    def test_optional_inputs(self, absent: tuple[str, ...]) -> None:
        tensors = self.make(self.ragged)
        given, filled = self.without(absent, tensors)
        self.compare(self.call(*given), self.oracle(*filled), given)

    @each("params", lambda cls: cls.other_params)
    def test_params(self, params: Mapping[str, Any]) -> None:
        """In each kernel that is chosen by layout, and with params that need float64 precision."""
        double = self.all_of(torch.float64)
        self.check_pass(None, self.make(self.ragged, double), **params)
        self.check_pass(None, self.make(self.unfolded()), scattered, **params)

    def test_deterministic(self) -> None:
        tensors = self.make(self.wide)
        once, again = (self.call(*tensors) for _ in range(2))
        torch.testing.assert_close(once, again, rtol=0, atol=0, equal_nan=True)

    # What is refused

    @each("name", lambda cls: cls.names())
    def test_wrong_dtype(self, name: str) -> None:
        tensors: list[Any] = list(self.make(self.ragged))
        place = self.names().index(name)
        for wrong in (tensors[place].to(torch.complex64), "no tensor"):
            tensors[place] = wrong
            with pytest.raises(TypeError, match=name):
                self.call(*tensors)

    @each("name, shape", lambda cls: cls.wrong_shapes)
    def test_wrong_shape(self, name: str, shape: Shape) -> None:
        tensors = list(self.make(self.ragged))
        place = self.names().index(name)
        tensors[place] = tensors[place].new_zeros(shape)
        with pytest.raises(ValueError, match=name):
            self.call(*tensors)

    @each("params", lambda cls: cls.strange_params)
    def test_param_of_another_kind(self, params: Mapping[str, Any]) -> None:
        with pytest.raises(TypeError, match="|".join(params)):
            self.call(*self.make(self.ragged), **params)

    @each("params", lambda cls: cls.bad_params)
    def test_param_out_of_range(self, params: Mapping[str, Any]) -> None:
        with pytest.raises(ValueError, match="|".join(params)):
            self.call(*self.make(self.ragged), **params)

    # On a GPU

    @gpu
    def test_calls_alike(self) -> None:
        """With one shape, but other values, alignments and the first ones again: each launches a matching kernel."""
        self.check(*self.make(self.ragged))
        self.check(*self.make(self.ragged, seed=1))
        self.check(*map(misaligned, self.make(self.ragged)))
        self.check(*map(backwards, self.make(self.ragged)))
        self.check(*self.make(self.ragged, seed=2))

    @only(lambda cls: cls.far)
    def test_offsets_beyond_int32(self) -> None:
        """An input has a first stride of 2**30 elements, and does not fold; a CPU gives memory as it is written."""
        assert self.far is not None
        name, shape = self.far
        groups = self.groups().values()
        smallest = tuple(min(own, key=lambda one: one.itemsize) for own in groups)
        tensors = list(self.make(shape, smallest))
        place = self.names().index(name)
        near = scattered(tensors[place])
        elements = (len(near) - 1) * 2**30 + near.stride(0)
        try:
            storage = near.new_empty(elements)
        except RuntimeError:
            pytest.skip("needs more free memory")
        strides = (2**30, *near.stride()[1:-1], 1)[: near.ndim]
        tensors[place] = storage.as_strided(near.shape, strides).copy_(near)
        self.check(*tensors)

    @gpu
    @once
    def test_graph_capture(self) -> None:
        self.check_capture(self.call)

    @gpu
    @once
    def test_torch_compile(self) -> None:
        """Of several shapes, whose sizes torch traces as symbols from the second on."""
        compiled = torch.compile(self.op, fullgraph=True)
        for shape in (self.ragged, self.wide, self.shapes[-1]):
            tensors = self.make(shape)
            got = compiled(*tensors, **self.params)
            self.compare(got, self.oracle(*tensors), tensors)


class ForwardTests(Harness):
    """Besides, of an operator without gradients, whose tests are as well of its results."""

    @gpu
    @each("dtypes", lambda cls: cls.floats() if cls.gives_one_float() else ())
    def test_no_less_accurate_than_torch(self, dtypes: Dtypes) -> None:
        tensors = self.make(self.large[0], dtypes)
        self.check_accuracy(
            self.call(*tensors), self.in_torch(*tensors), self.oracle(*tensors)
        )


class MapKernels(OperatorTests):
    """Contiguous data in blocks, any other in tiles, in the forward and in the backward."""

    @each("table, config", lambda cls: cls.configs(heuristics.Flat, SMALL_BLOCK))
    def test_flat_configs(self, table: str, config: Config, patch: Patch) -> None:
        self.force(patch, table, config)
        self.check_pass(is_backward(table), self.make(self.wide))

    @each(
        "table, config",
        lambda cls: cls.configs(heuristics.Tile, SMALL_TILE, TALL_TILE),
    )
    def test_tile_configs(self, table: str, config: Config, patch: Patch) -> None:
        """Several tiles along rows and columns."""
        self.force(patch, table, config)
        few = config.kwargs["BLOCK_N"]  # columns, fewer than rows in tall tiles
        is_tall = few < config.kwargs["BLOCK_M"]
        tensors = self.make(self.unfolded() if is_tall else self.wide)
        self.check_pass(is_backward(table), tensors, scattered)
