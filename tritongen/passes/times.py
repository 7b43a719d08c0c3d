"""Estimates times of kernels on an H100, to compare plans.

A roofline: the bytes that a kernel moves over the bandwidth, or the operations of its matmuls over the peak of the
tensor cores, whichever takes longer, plus the fraction `EXPOSED` of the other, plus a launch. Times are in nanoseconds.
Lengths that a spec does not fix are `LENGTH`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ..spec.lengths import LENGTH

ITEMSIZE = 2
LAUNCH = 3_000.0
BANDWIDTH = 3_000.0  # bytes per ns
CACHED = 5_500.0  # bytes per ns from the L2 cache, where programs of other rows have read the same
RATE = 600_000.0  # floating-point operations of tensor cores per ns
SCALAR_RATE = 20_000.0  # operations of other math per ns
# How much longer a matmul takes with a prologue, whose tiles pass through registers, again for each tile of the result.
# 3.5 times was measured with loads by TMA, and 20 times without.
PROLOGUE = 4
# The same without TMA, if the prologue multiplies factors that each lack an axis of the side: all are reloaded
# for each tile. A bilinear form of 4,096 rows by 64 x 64 x 64 took 226 us, 60 times as long.
OUTER = 20
# Memory traffic and tensor cores overlap except for this fraction, so that reads and writes in addition to a matmul's
# operands are not free.
EXPOSED = 0.125
SMS = 132
CLEARLY = 1.3  # how much faster several steps have to be than a kernel that does the same
NARROW = 128  # rows or columns of matrices that TMA does not read
BY_TMA = 2**30  # multiply-adds of matmuls whose tiles TMA loads, where an element of the result counts as `NARROW`


def count(axes: Iterable[str], lengths: Mapping[str, int]) -> int:
    return math.prod(lengths.get(axis, LENGTH) for axis in axes)


def stored(axes: Iterable[str], lengths: Mapping[str, int]) -> int:
    """The bytes of a tensor."""
    return ITEMSIZE * count(axes, lengths)


def kernel(moved: float, multiplied: float = 0.0) -> float:
    """The time of a kernel whose memory traffic takes `moved` and whose matmuls on tensor cores take `multiplied`."""
    return LAUNCH + max(moved, multiplied) + EXPOSED * min(moved, multiplied)


def multiplied(batch: int, rows: int, cols: int, inner: int) -> float:
    """The time of a matmul on tensor cores alone."""
    return 2 * batch * rows * cols * inner / RATE


def outer(batch: int, rows: int, cols: int, inner: int) -> int:
    """How much longer a matmul takes if its prologue multiplies factors that each lack an axis of the side."""
    is_copied = min(rows, cols) > NARROW and batch * rows * cols * max(inner, NARROW) >= BY_TMA
    return PROLOGUE if is_copied else OUTER
