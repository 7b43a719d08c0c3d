"""Emitted tests accept either of two elements that are equal but for rounding, and no other."""

import torch

from templates.testing.ties import TiesTests


class Nearest(TiesTests):
    @staticmethod
    def reference(x: torch.Tensor, centre: torch.Tensor) -> torch.Tensor:
        both = (one * torch.rsqrt(one * one + 1e-6) for one in (x, centre))
        return torch.outer(*both).argmax(1)


def test_an_equal_element_is_accepted_and_a_smaller_one_is_not() -> None:
    tensors = (torch.tensor([3.0, -4.0]), torch.tensor([50.0, 50.0000001, -70.0]))
    want = Nearest.oracle(*tensors)
    assert want[1] == 2
    (tied,) = Nearest.without_ties((torch.tensor([1 - want[0], 2]),), (want,), tensors, {})
    assert torch.equal(tied, want)
    (wrong,) = Nearest.without_ties((torch.tensor([want[0], 0]),), (want,), tensors, {})
    assert wrong.tolist() == [want[0], 0]
