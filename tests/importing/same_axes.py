"""Functions that read a tensor along one axis twice, and parts of tensors whose lengths are what they are by chance.

Behind each is the example that it is imported with.
"""

import torch
import torch.nn.functional as F
from torch import nn


def sym(x):  # x=f32[6,6]
    return x + x.transpose(-1, -2)


def bsym(x):  # x=f32[3,6,6]
    return x + x.transpose(-1, -2)


def outer_self(x):  # x=f32[6]
    return x[:, None] - x[None, :]


def outer_part(x):  # x=f32[4,8]
    return x[:, :4, None] - x[:, None, 4:]


def outer_part2(x):  # x=f32[4,8]
    return x[:, 1:, None] - x[:, None, :]


def cat_t(x):  # x=f32[6,6]
    return torch.cat([x, x.transpose(-1, -2)], -1)


def permute3(x):  # x=f32[4,4,4]
    return x + x.permute(2, 1, 0) + x.permute(1, 2, 0)


def matmul_t(x):  # x=f32[6,6]
    return x @ x.T + x.T @ x


def cube(x):  # x=f32[6,6]
    return x @ x @ x


def lin_twice(x, w):  # x=f32[4,6] w=f32[6,6]
    return F.linear(F.linear(x, w), w)


def residual_square(x, w):  # x=f32[4,6] w=f32[6,6]
    return x + F.linear(x, w)


def residual_in(x, w):  # x=f32[6,6] w=f32[6,6]
    return w * F.linear(x, w)


def sym_mask(x):  # x=f32[6,6]
    return torch.where(torch.triu(torch.ones_like(x)) > 0, x, x.mT)


def gated_sym(x, y):  # x=f32[6,6] y=f32[6,6]
    return x * y.mT + y * x.mT


def softmax_sym(x):  # x=f32[6,6]
    return F.softmax(x, -1) + F.softmax(x, -2).mT


def rowsum_col(x):  # x=f32[6,6]
    return x + x.sum(1)[None, :]


def bound(x, y):  # x=f32[6] y=f32[6]
    u = x[:, None] * y[None, :]
    return u.sum(1) + y


def outer_t(x, y):  # x=f32[6] y=f32[6]
    u = x[:, None] * y[None, :]
    return u + u.T


def flip_t(x):  # x=f32[6,6]
    return x + x.T.flip(0)


def rot90(x):  # x=f32[6,6]
    return torch.rot90(x) + x


def view_swap2(x):  # x=f32[2,9]
    B, N = x.shape
    return x + x.view(B, 3, 3).transpose(1, 2).reshape(B, N)


def take_perm(x, i):  # x=f32[6,6] i=i64[6]
    return x[i] + x[:, i]


def take_rows(x, i):  # x=f32[6,5] i=i64[6]
    return x[:, i] * i[:, None]


def einsum_3(x):  # x=f32[6,6]
    return torch.einsum("ij,jk,kl->il", x, x, x)


def einsum_t(x):  # x=f32[6,6]
    return torch.einsum("ij,kj->ik", x, x) + torch.einsum("ij,ji->i", x, x)


def bilin(x, w):  # x=f32[4,6] w=f32[5,6,6]
    return F.bilinear(x, x, w)


def mahal(x, y, w):  # x=f32[4,6] y=f32[4,6] w=f32[6,6]
    d = x - y
    return (d @ w * d).sum(-1)


def gram_norm(x):  # x=f32[4,6]
    g = x @ x.T
    return g / (g.diagonal()[:, None] * g.diagonal()[None]).sqrt()


def sdpa_symb(x, b):  # x=f32[2,5,6] b=f32[5,5]
    return F.scaled_dot_product_attention(x, x, x, b + b.T)


def third(x):  # x=f32[6]
    return x[:, None, None] + x[None, :, None] * x[None, None, :]


def conv_twice(x, w):  # x=f32[2,4,9] w=f32[4,4,3]
    return F.conv1d(F.conv1d(x, w), w)


def logits(x):  # x=f32[4,6]
    n = F.normalize(x, dim=-1)
    s = n @ n.T
    return s - torch.logsumexp(s, 1, keepdim=True) - torch.logsumexp(s, 0)


def cs_T(x):  # x=f32[6,6]
    return torch.cumsum(x, 0) + torch.cumsum(x, 1).T


def tail(x):  # x=f32[3,16]
    return x[..., 8:]


def head(x):  # x=f32[3,16]
    return x[..., :8] * 2


def nohead(x):  # x=f32[3,16]
    return x[..., :-8] * 2


def tails2(x):  # x=f32[3,16]
    return x[..., 8:].sum(-1) + x[..., :8].sum(-1)


def split8(x):  # x=f32[3,16]
    a, b = x.split(8, -1)
    return a.sum(-1) * b.sum(-1)


def splitk(x, k):  # x=f32[3,16] k=8
    a, b = x.split(k, -1)
    return a.sum(-1) * b.sum(-1)


def halves(x):  # x=f32[3,16]
    h = x.shape[-1] // 2
    return torch.cat([-x[..., h:], x[..., :h]], -1)


def partial(x, c):  # x=f32[3,16] c=f32[3,8]
    n = c.shape[-1]
    return torch.cat([x[..., :n] * c, x[..., n:]], -1)


def partial4(x, c):  # x=f32[3,16] c=f32[3,4]
    n = c.shape[-1]
    return torch.cat([x[..., :n] * c, x[..., n:]], -1)


def cat3(x, y):  # x=f32[3,15] y=f32[3,16]
    return torch.cat([x, y[:, 1:]], -1)


def sl4(x):  # x=f32[3,16]
    n = x.shape[1]
    return x[:, n // 4 : n // 2]


def sl5(x):  # x=f32[3,16]
    n = x.shape[1]
    return x[:, n // 4 :]


def cat_self(x):  # x=f32[4,8]
    return torch.cat([x, x], -1)


def expand_n(x, n):  # x=f32[4,8] n=3
    return x[:, None].expand(x.shape[0], n, x.shape[1])


def expand_as2(x, y):  # x=f32[8] y=f32[4,8]
    return x.expand_as(y), y * 2


def expand_i(x):  # x=i64[8]
    return x.expand(4, 8)


def rep2(x):  # x=f32[4,8]
    return x.repeat_interleave(3, 1)


def const3(x):  # x=f32[4,8]
    return torch.zeros_like(x) + x.sum()


class Gru(nn.Module):  # x=f32[2,6] h=f32[2,6]
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(6, 6)

    def forward(self, x, h):
        ofx = F.linear(x, self.cell.weight_ih, self.cell.bias_ih)
        ofh = F.linear(h, self.cell.weight_hh, self.cell.bias_hh)
        (xr, xz, xn), (hr, hz, hn) = ofx.chunk(3, -1), ofh.chunk(3, -1)
        r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        return (1 - z) * torch.tanh(xn + r * hn) + z * h
