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


def writes_to_out(x, out):
    return torch.mul(x, 2, out=out)


def writes_to_several(x, y):
    torch._foreach_add_([x, y], 1.0)
    return x


@torch.library.custom_op("refused::untraced", mutates_args=())
def untraced(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def custom_operator_without_shapes(x):
    return untraced(x)


def numpy_in_it(x):
    return torch.from_numpy(x.numpy() * 2)


def of_nothing(x):
    return torch.ones(4)


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.BatchNorm1d(8), nn.InstanceNorm1d(8, track_running_stats=True)

    def forward(self, x):
        return self.second(self.first(x))


class HookedInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.linear.register_forward_pre_hook(lambda module, args: (args[0] * 2,))

    def forward(self, x):
        return self.linear(x)


def bits_of_floats(x):
    return x.view(torch.int32) + 1
