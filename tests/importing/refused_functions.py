"""Functions that have no spec, and why: each is the name of a golden text in refused/."""

import torch
import torch.nn.functional as F
from torch import nn


def branches_on_values(x):
    if x.sum() > 0:
        return x
    return -x


def shape_from_values(x):
    return x[x > 0].sum()


def nonzero(x):
    return x.nonzero()


def writes_to_its_input(x):
    y = x * 2
    x += 1
    return x + y


def writes_to_a_part(x):
    y = x * 2
    y[:, 0] = 0.0
    return y


def item(x):
    return x * x.max().item()


def complex_numbers(x):
    return torch.view_as_real(torch.fft.fft(x)).sum(-1)


def several(x, weight):
    """All that has no words is named at once."""
    h = F.dropout(x, 0.1)
    h = F.conv1d(h, weight)
    return torch.cummax(h, -1)[0] + torch.randn_like(h)


def lengths_that_do_not_fit(x, y):
    return x + y


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_forward_hook(lambda module, args, output: output * 2)

    def forward(self, x):
        return x + 1


class HookedBackward(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_full_backward_hook(lambda module, gradients, outer: (gradients[0] * 2,))

    def forward(self, x):
        return x + 1


class NeedsArguments(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return x * self.weight


@torch.library.custom_op("refused::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


def custom_operator(x):
    return torch.ops.refused.twice(x)


def along_a_scalar(x):
    h = x.sum()
    return torch.softmax(h, 0) + h.cumsum(0) + h.scatter_add(0, x.argmax(), h)


def length_of_values(x):
    return x[:, : int(x.max().item())]


def a_number_among_results(x):
    return {"twice": x * 2, "count": 3}


def length_of_what_is_not_read(x, y):
    return x[:, : y.shape[1]].sum(1)
