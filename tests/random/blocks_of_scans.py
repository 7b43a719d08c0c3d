"""Blocks of random specs with scans: running means, decays, masks by cumulative sums, indices of unmasked elements."""

from __future__ import annotations

from tests.random.drawn_blocks import Block, Blocks, Value


def running(b: Blocks, h: Value) -> Value:
    n = b.one(h)
    way = b.random.choice(
        (
            "cumsum({0}, {1}) / (index({1}) + 1)",
            "{0} - cumsum({0}, {1}) * 0.1",
            "cumsum(softmax({0}, {1}), {1})",
            "{0} * cumprod(1 - 0.2 * sigmoid({0}), {1})",
            "cumprod(tanh({0}), {1})",
            "softmax(cumsum({0}, {1}) * 0.2, {1})",
        )
    )
    return b.line(way.format(h, n), h.axes)


def integral(b: Blocks, h: Value) -> Value:
    """Cumulative sums along two axes, nested, or one for each, or along one axis only."""
    if len(b.named(h)) < 2:
        return running(b, h)
    first, second = b.random.sample(b.named(h), 2)
    way = b.random.choice(
        (
            "cumsum(cumsum({0}, {1}), {2}) * 0.02",
            "(cumsum({0}, {1}) + cumsum({0}, {2})) * 0.1",
            "cumsum({0}, {1}) * 0.1",
        )
    )
    return b.line(way.format(h, first, second), h.axes)


def decayed(b: Blocks, h: Value) -> Value:
    """A cumulative sum with decay, as in gated linear attention."""
    n = b.one(h)
    gate = b.input("gate", (*b.some(b.without(h, n), 0), n))
    left = b.line(f"cumprod(1 - 0.2 * sigmoid({gate}), {n})", gate.axes, "left")
    return b.line(f"{left} * cumsum({h} / ({left} + 0.1), {n}) * 0.2", h.axes)


def alpha_compositing(b: Blocks, h: Value) -> Value:
    n = b.one(h)
    clear = b.line(f"exp(-softplus({h}))", h.axes, "clear")
    light = b.line(f"cumprod({clear}, {n})", h.axes, "light")
    before = b.line(f"where(index({n}) > 0, take({light}, index({n}) - 1, {n}), 1)", h.axes, "before")
    colour = b.input("colour", h.axes)
    return b.line(f"{before} * (1 - {clear}) * {colour}", h.axes)


def up_to_a_share(b: Blocks, h: Value) -> Value:
    """Probabilities up to a cumulative share, as in top-p sampling; rounding decides which is the last one."""
    n = b.one(h)
    b.discrete = True
    p = b.line(f"softmax({h}, {n})", h.axes, "p")
    return b.line(f"where(cumsum({p}, {n}) - {p} < 0.7, {p}, 0)", h.axes)


def packed(b: Blocks, h: Value) -> Value:
    """Elements gathered by the count of true flags so far."""
    n = b.one(h)
    keep = b.input("keep", (*b.some(b.without(h, n), 0), n), "bool")
    at = f"clamp_min(cumsum({keep}, {n}) - 1, 0)"
    if b.maybe():
        at = str(b.line(at, keep.axes, "place"))
    return b.line(f"{h} + take({h}, {at}, {n})", h.axes)


def counted(b: Blocks, h: Value) -> Value:
    """A mask by the count of true flags so far, and a cumulative sum."""
    n = b.one(h)
    keep = b.input("keep", (n,), "bool")
    return b.line(f"where(cumsum({keep}, {n}) <= 3, {h}, {h} * 0.5) + cumsum({h}, {n}) * 0.1", h.axes)


SCANS: tuple[Block, ...] = (running, running, integral, decayed, alpha_compositing, up_to_a_share, packed, counted)
