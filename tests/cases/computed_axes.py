"""Operators whose axes have lengths that [axes] computes, each with what torch computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Computed:
    """The tables of a spec, torch's function of the same tensors and params, and calls: shapes and params.

    `by` are the places of the inputs by which there is a gradient.
    """

    text: str
    torch: Callable[..., Any]
    calls: Sequence[tuple[Sequence[Shape], dict[str, int]]]
    by: Sequence[int] = (0,)
    positions: Sequence[int] = ()  # the inputs of integers, which are drawn from 0 to 4


def _conv(dims: str, axes: dict[str, str]) -> str:
    """A convolution over some dimensions of x, each with the axes of windows and of places."""
    lengths = "\n".join(
        f'{place} = "({axis} + 2 * pad - dilation * ({window} - 1) - 1) // stride + 1"'
        for axis, (window, place) in axes.items()
    )
    taken = "x"
    for axis, (window, place) in axes.items():
        at = f"stride * index({place}) + dilation * index({window}) - pad"
        taken = f"take({taken}, {at}, {axis}, fill=0.0)"
    windows = ", ".join(window for window, _ in axes.values())
    places = ", ".join(place for _, place in axes.values())
    return f"""[inputs]
x = "float[B, C, {dims}]"
w = "float[O, C, {windows}]"
bias = "float[O] = 0"
[params]
stride = {{ default = 1, min = 1 }}
pad = {{ default = 0, min = 0 }}
dilation = {{ default = 1, min = 1 }}
[axes]
{lengths}
[compute]
patches = "{taken}"
y = "sum(patches * w, C, {windows}) + bias"
[outputs]
y = "x[B, O, {places}]"
[grad]
wrt = ["x", "w", "bias"]
"""


COMPUTED = {
    "conv1d": Computed(
        _conv("H", {"H": "RP"}),
        lambda x, w, bias, *, stride=1, pad=0, dilation=1: F.conv1d(x, w, bias, stride, pad, dilation),
        [
            (((2, 3, 11), (4, 3, 3), (4,)), {}),
            (((2, 3, 10), (5, 3, 3), (5,)), {"stride": 2, "pad": 1}),
            (((1, 1, 9), (1, 1, 4), (1,)), {"stride": 3, "pad": 2, "dilation": 2}),
            (((2, 3, 5), (4, 3, 5), (4,)), {}),
            (((0, 3, 5), (4, 3, 2), (4,)), {}),
        ],
        by=(0, 1, 2),
    ),
    "conv2d": Computed(
        _conv("H, W", {"H": "RP", "W": "SQ"}),
        lambda x, w, bias, *, stride=1, pad=0, dilation=1: F.conv2d(x, w, bias, stride, pad, dilation),
        [
            (((2, 3, 6, 7), (2, 3, 3, 2), (2,)), {}),
            (((1, 2, 7, 5), (3, 2, 3, 3), (3,)), {"stride": 2, "pad": 1}),
        ],
        by=(0, 1, 2),
    ),
    "causal_conv": Computed(
        """[inputs]
x = "float[..., T, C]"
w = "float[K, C]"
[compute]
y = "sum(take(x, index(T) + index(K) - size(K) + 1, T, fill=0.0) * w, K)"
[outputs]
y = "x"
[grad]
wrt = ["x", "w"]
""",
        lambda x, w: F.conv1d(
            F.pad(x.transpose(-1, -2), (w.shape[0] - 1, 0)), w.T[:, None], groups=w.shape[1]
        ).transpose(-1, -2),
        [(((2, 7, 3), (4, 3)), {}), (((1, 2, 5), (4, 5)), {}), (((0, 2, 5), (3, 5)), {})],
        by=(0, 1),
    ),
    "max_pool": Computed(
        """[inputs]
x = "float[..., H, W]"
[params]
stride = { default = 2, min = 1 }
pad = { default = 0, min = 0, max = 1 }
[axes]
R = 3
S = 2
P = "(H + 2 * pad - R) // stride + 1"
Q = "(W + 2 * pad - S) // stride + 1"
[compute]
rows = "take(x, stride * index(P) + index(R) - pad, H, fill=-inf)"
y = "max(take(rows, stride * index(Q) + index(S) - pad, W, fill=-inf), R, S)"
[outputs]
y = "x"
[grad]
wrt = ["x"]
""",
        lambda x, *, stride=2, pad=0: F.max_pool2d(x, (3, 2), stride, pad),
        [(((2, 3, 7, 6),), {}), (((2, 1, 5, 4),), {"stride": 1, "pad": 1}), (((1, 3, 2),), {}), (((0, 1, 5, 4),), {})],
    ),
    "unfold": Computed(
        """[inputs]
x = "float[B, C, H, W]"
[params]
stride = { default = 1, min = 1 }
pad = { default = 0, min = 0 }
[axes]
R = 2
S = 3
P = "(H + 2 * pad - R) // stride + 1"
Q = "(W + 2 * pad - S) // stride + 1"
[compute]
rows = "take(x, stride * index(P) + index(R) - pad, H, fill=0.0)"
y = "take(rows, stride * index(Q) + index(S) - pad, W, fill=0.0)"
[outputs]
y = "x[B, (C R S), (P Q)]"
[grad]
wrt = ["x"]
""",
        lambda x, *, stride=1, pad=0: F.unfold(x, (2, 3), padding=pad, stride=stride),
        [(((2, 3, 5, 4),), {}), (((1, 2, 5, 6),), {"stride": 2, "pad": 1}), (((1, 1, 2, 3),), {})],
    ),
    "concatenation": Computed(
        """[inputs]
a = "float[..., N]"
b = "float[..., K]"
[axes]
L = "N + K"
[compute]
y = "where(index(L) < size(N), take(a, index(L), N), take(b, index(L) - size(N), K))"
[outputs]
y = "a[..., L]"
[grad]
wrt = ["a", "b"]
""",
        lambda a, b: torch.cat([a, b], -1),
        [
            (((2, 3), (2, 5)), {}),
            (((2, 0), (2, 5)), {}),
            (((3, 4), (3, 0)), {}),
            (((3, 0), (3, 0)), {}),
            (((0, 1), (0, 1)), {}),
            (((7,), (130,)), {}),
        ],
        by=(0, 1),
    ),
    "padded": Computed(
        """[inputs]
x = "float[..., H, W]"
[params]
top = { default = 1, min = 0 }
left = 2
right = 0
value = 0.5
[axes]
P = "H + top"
Q = "W + left + right"
[compute]
y = "take(take(x, index(P) - top, H, fill=value), index(Q) - left, W, fill=value)"
[outputs]
y = "x"
[grad]
wrt = ["x"]
""",
        lambda x, *, top=1, left=2, right=0: F.pad(x, (left, right, top, 0), value=0.5),
        [(((2, 3, 5),), {}), (((1, 4),), {"right": 3, "left": -1}), (((0, 4),), {"top": 2}), (((3, 0),), {"right": 1})],
    ),
    "upsampled": Computed(
        """[inputs]
x = "float[..., H, W]"
[params]
scale = { default = 2, min = 1 }
[axes]
P = "H * scale"
Q = "W * scale"
[compute]
y = "take(take(x, index(P) // scale, H), index(Q) // scale, W)"
[outputs]
y = "x"
[grad]
wrt = ["x"]
""",
        lambda x, *, scale=2: F.interpolate(x, scale_factor=scale, mode="nearest"),
        [(((2, 1, 3, 5),), {}), (((1, 2, 1, 4),), {"scale": 3}), (((2, 1, 3, 1),), {"scale": 1})],
    ),
    "one_hot": Computed(
        """[inputs]
i = "int[...]"
x = "float[...]"
[params]
experts = { type = "int", min = 1 }
[axes]
E = "experts"
[compute]
y = "where(i == index(E), x, 0.0)"
[outputs]
y = "x"
[grad]
wrt = ["x"]
""",
        lambda i, x, *, experts: F.one_hot(i, experts) * x[..., None],
        [(((3, 4), (3, 4)), {"experts": 7}), (((5,), (5,)), {"experts": 5}), (((0,), (0,)), {"experts": 6})],
        by=(1,),
        positions=(0,),
    ),
    "gram": Computed(
        """[inputs]
x = "float[..., M, K]"
[axes]
M2 = "M"
[compute]
y = "sum(x * take(x, index(M2), M), K)"
[outputs]
y = "x"
[grad]
wrt = ["x"]
""",
        lambda x: x @ x.mT,
        [(((5, 7),), {}), (((2, 3, 4),), {}), (((2, 0, 4),), {}), (((1, 33),), {}), (((3, 0),), {})],
    ),
    "self_attention": Computed(
        """[inputs]
x = "float[B, T, C]"
wq = "float[C, (H=2 D)]"
wk = "float[C, (H D)]"
wv = "float[C, (H D)]"
[axes]
T2 = "T"
[compute]
q = "sum(x * wq, C)"
k = "sum(x * wk, C)"
v = "sum(x * wv, C)"
s = "where(index(T2) <= index(T), sum(q * take(k, index(T2), T), D), -inf)"
y = "sum(softmax(s, T2) * take(v, index(T2), T), T2)"
[outputs]
y = "x[B, T, (H D)]"
[grad]
wrt = ["x", "wq", "wk", "wv"]
""",
        lambda x, *w: (
            F.scaled_dot_product_attention(
                *((x @ one).unflatten(2, (2, -1)).transpose(1, 2) for one in w), is_causal=True, scale=1.0
            )
            .transpose(1, 2)
            .flatten(2)
        ),
        [(((2, 7, 5), (5, 8), (5, 8), (5, 8)), {}), (((1, 1, 3), (3, 4), (3, 4), (3, 4)), {})],
        by=(0, 1, 2, 3),
    ),
    "distances": Computed(
        """[inputs]
x = "float[M, K]"
[axes]
M2 = "M"
[compute]
y = "sum(square(x - take(x, index(M2), M)), K)"
[outputs]
y = "x"
[grad]
wrt = ["x"]
""",
        lambda x: (x[:, None] - x[None]).square().sum(-1),
        [(((5, 7),), {}), (((1, 3),), {}), (((0, 3),), {})],
    ),
    "positions": Computed(
        """[inputs]
table = "float[V, D]"
[params]
first = { default = 0, min = 0 }
count = { type = "int", min = 0 }
[axes]
T = "count"
[compute]
y = "take(table, index(T) + first, V, fill=0.0)"
[outputs]
y = "table"
[grad]
wrt = ["table"]
""",
        lambda table, *, first=0, count: F.pad(table, (0, 0, 0, 99))[first : first + count],
        [(((6, 3),), {"count": 4}), (((6, 3),), {"count": 5, "first": 3}), (((6, 3),), {"count": 0})],
    ),
    "group_norm": Computed(
        """[inputs]
x = "float[B, (G D), H]"
weight = "float[(G D)]"
[params]
groups = { default = 2, min = 1 }
eps = 1e-5
[axes]
G = "groups"
[compute]
centred = "x - mean(x, D, H)"
y = "centred * rsqrt(mean(square(centred), D, H) + eps) * weight"
[outputs]
y = "x"
[grad]
wrt = ["x", "weight"]
""",
        lambda x, weight, *, groups=2: F.group_norm(x, groups, weight),
        [(((3, 6, 5), (6,)), {}), (((2, 6, 4), (6,)), {"groups": 3}), (((2, 5, 3), (5,)), {"groups": 1})],
        by=(0, 1),
    ),
    "sums_over_places": Computed(
        """[inputs]
x = "float[C, H]"
[axes]
R = 3
P = "H - R + 1"
[compute]
y = "sum(square(take(x, index(P) + index(R), H)), P, R)"
[outputs]
y = "x"
[grad]
wrt = ["x"]
""",
        lambda x: x.unfold(-1, 3, 1).square().sum((-1, -2)),
        [(((2, 7),), {}), (((3, 3),), {})],
    ),
}
