"""Tests of torch.func.vmap."""

from typing import Any

import torch

from .harness import Harness, each, results


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

    @each("narrow", lambda cls: cls.batched)
    def test_vmap_of_broadcast(self, narrow: int) -> None:
        """Inputs with leading axes are mapped too, and one has fewer leading axes."""
        pair = [list(self.make(self.two_batches, seed=seed)) for seed in range(2)]
        for tensors in pair:
            tensors[narrow] = tensors[narrow][0]
        every = range(len(self.inputs))
        self.check_vmap(pair, [place in self.batched for place in every], 0)

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
