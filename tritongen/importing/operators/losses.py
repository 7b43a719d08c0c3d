"""Losses, in the formulas that people write for them; torch decomposes most others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ..building import Building
from ..expressions import size
from ..refusals import Refusal
from ..table import operator
from ..values import Value

_REDUCED = {0: "", 1: "mean", 2: "sum"}


def reduced(t: Building, loss: Value, reduction: int) -> Value:
    """A loss reduced by torch's `reduction`: 0 is none, 1 the mean, 2 the sum."""
    return t.reduce(_REDUCED[reduction], t.line("loss", loss, False), None) if reduction else loss


@operator("cross_entropy_loss")
def _cross_entropy(
    t: Building, x: Value, target: Value, weight: Value | None = None, reduction: int = 1, ignore_index: Any = -100,
    label_smoothing: Any = 0.0,
) -> Value:  # fmt: skip
    place = 0 if x.rank == 1 else 1
    t.axes.wish(x.dims[place], "V C", 2)
    if target.dtype.is_floating_point:
        return _soft(t, x, target, weight, reduction, label_smoothing, place)
    x, target = _met(t, x, target, place)
    rest = x.dims[:place] + x.dims[place + 1 :]
    lse = t.line("lse", t.reduced("logsumexp", x, [x.dims[place]], rest))
    valid, chosen = _valid(t, target, ignore_index)
    nll = t.apply("sub", lse, t.take(x, place, chosen, ()).of(dims=rest))
    if isinstance(label_smoothing, float) and label_smoothing:
        if weight is not None:
            raise Refusal("cross_entropy with weights and label_smoothing", "write its formula")
        smooth = t.apply("sub", lse, t.reduced("mean", x, [x.dims[place]], rest))
        smoothed = t.apply("mul", t.apply("sub", 1, label_smoothing), t.line("nll", nll))
        nll = t.apply("add", smoothed, t.apply("mul", label_smoothing, t.line("smooth", smooth)))
    return _averaged(t, nll, valid, chosen, weight, reduction)


def _met(t: Building, x: Value, target: Value, place: int) -> tuple[Value, Value]:
    """Logits and class indices with aligned axes: one index for each element of the other dimensions."""
    labels = range(x.rank)
    (x, target), _ = t.aligned([(x, labels), (target, [*labels[:place], *labels[place + 1 :]])])
    return x, target


def _valid(t: Building, target: Value, ignore_index: Any) -> tuple[Value, Value]:
    """The mask of targets that are not ignored, and class indices with 0 for ignored ones."""
    valid = t.line("valid", t.compared("ne", target, ignore_index))
    chosen = replace(t.apply("where", valid, target, 0), dtype=torch.int64, natural=torch.int64)
    return valid, chosen


def _averaged(t: Building, nll: Value, valid: Value, chosen: Value, weight: Value | None, reduction: int) -> Value:
    count = valid
    if weight is not None:
        t.axes.wish(weight.dims[0], "V C", 2)
        weights = t.line("w", t.apply("where", valid, t.take(weight, 0, chosen, ()).of(dims=chosen.dims), 0.0))
        nll = t.apply("mul", weights, nll)
        count = weights
    loss = t.line("loss", t.apply("where", valid, nll, 0.0))
    if not reduction:
        return loss
    total = t.reduce("sum", loss, None)
    return t.apply("div", total, t.reduce("sum", count, None)) if reduction == 1 else total


def _soft(
    t: Building, x: Value, target: Value, weight: Value | None, reduction: int, smoothing: Any, place: int
) -> Value:
    """Cross entropy with class probabilities as targets."""
    (x, target), _ = t.broadcast(x, target)
    rest = x.dims[:place] + x.dims[place + 1 :]
    logs = Value(t.along("log_softmax", x, place).expr, x.dims, x.dtype, x.natural)
    if weight is not None:
        logs = t.apply("mul", weight.of(dims=(weight.dims[0], *[()] * (x.rank - place - 1))), logs)
    if isinstance(smoothing, float) and smoothing:
        share = t.apply("div", smoothing, t.at(size(x.dims[place])))
        target = t.apply("add", t.apply("mul", target, t.apply("sub", 1, smoothing)), share)
    loss = t.apply("neg", t.reduced("sum", t.apply("mul", target, logs), [x.dims[place]], rest))
    if reduction != 1:
        return reduced(t, loss, reduction)
    return t.reduce("mean", t.line("loss", loss), None) if loss.rank else loss


@operator("huber_loss", "smooth_l1_loss")
def _huber(t: Building, x: Value, target: Value, reduction: int = 1, delta: Any = 1.0) -> Value:
    d = t.line("d", t.apply("abs", t.apply("sub", x, target)))
    if t.packet == "smooth_l1_loss" and delta == 0:
        return reduced(t, d, reduction)
    half = t.apply("mul", 0.5, t.apply("mul", d, d))
    linear = t.apply("sub", d, t.apply("mul", 0.5, delta))
    if t.packet == "huber_loss":
        linear = t.apply("mul", delta, linear)
    elif not t.is_one(delta):
        half = t.apply("div", half, delta)
    return reduced(t, t.apply("where", t.compared("lt", d, delta), half, linear), reduction)
