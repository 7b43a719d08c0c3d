"""Functions with axes that no argument has: convolutions, pooling, padding, positions, pairs."""

import torch
import torch.nn.functional as F


def strided_conv(x, weight, bias):
    return F.conv1d(x, weight, bias, stride=2, padding=1)


def image_conv(x, weight):
    return F.conv2d(x, weight, padding=1)


def depthwise(x, weight):
    return F.conv1d(x, weight, padding=2, groups=x.shape[1])


def grouped_conv(x, weight):
    return F.conv2d(x, weight, padding=1, groups=2)


def same_length(x, weight):
    return F.conv1d(x, weight, padding="same", dilation=2)


def causal_conv(x, weight, bias):
    return F.conv1d(F.pad(x, (weight.shape[-1] - 1, 0)), weight, bias)


def transposed_conv(x, weight):
    return F.conv_transpose1d(x, weight, stride=2, padding=1)


def overlapping_pool(x):
    return F.max_pool2d(x, 3, 2, 1)


def partial_pool(x):
    return F.max_pool1d(x, 3, 2, ceil_mode=True)


def patches(x):
    return F.unfold(x, 3, padding=1)


def concatenated(x, y):
    return torch.cat([x, y], -1)


def three_together(x, y, z):
    return torch.cat([x, y, z], 1)


def with_class_token(x, token):
    return torch.cat([token.expand(x.shape[0], -1, -1), x], 1)


def doubled(x):
    return F.interpolate(x, scale_factor=2, mode="nearest")


def one_hot(i, n: int):
    return F.one_hot(i, n).float()


def its_own_transpose(x):
    return (x @ x.T).softmax(-1)


def self_attention(x):
    scores = x @ x.mT
    return scores.softmax(-1) @ x


def distances(x):
    return (x[:, None] - x[None]).square().sum(-1)


def similarities(x):
    n = F.normalize(x, dim=-1)
    return torch.einsum("ik,jk->ij", n, n)


def an_axis_of_nothing(x):
    positions = torch.arange(12)
    return x[:, None] * positions


def projected_attention(x, wq, wk, wv):
    B, T, C = x.shape
    q, k, v = ((x @ w).view(B, T, 2, -1).transpose(1, 2) for w in (wq, wk, wv))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)


def masked_attention(x, wq, wk):
    q, k = x @ wq, x @ wk
    later = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
    return (q @ k.mT).masked_fill(later, float("-inf")).softmax(-1) @ x
