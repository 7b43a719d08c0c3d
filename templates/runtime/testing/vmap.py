"""Tests of torch.func.vmap."""

from typing import Any

import torch

from .harness import Harness, each, results


def batches(cls: type[Harness]) -> list[tuple[str, ...]]:
    """The inputs that have another axis: all, then each alone."""
    names = tuple(cls.names())
    return list(dict.fromkeys([names, *((name,) for name in names)]))


class VmapTests(Harness):
    """A batch of calls as one."""

    @each("batched", batches)
    def test_vmap(self, batched: tuple[str, ...]) -> None:
        """Some inputs have another axis, the last, and so have the results, as the first."""
        pair = [list(self.make(self.ragged, seed=seed)) for seed in range(2)]
        self.check_vmap(pair, [name in batched for name in self.names()], -1)

    @each("narrow", lambda cls: cls.batched())
    def test_vmap_of_broadcast(self, narrow: int) -> None:
        """Inputs with leading axes have the other axis too, and one has fewer leading ones."""
        pair = [list(self.make(self.two_batches, seed=seed)) for seed in range(2)]
        for tensors in pair:
            tensors[narrow] = tensors[narrow][0]
        every = range(len(self.inputs))
        self.check_vmap(pair, [place in self.batched() for place in every], 0)

    @classmethod
    def check_vmap(
        cls, pair: list[list[torch.Tensor]], batched: list[bool], dim: int
    ) -> None:
        """Two calls as one, of inputs that are different where they are `batched`."""
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
