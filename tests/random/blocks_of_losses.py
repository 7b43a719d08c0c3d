"""Final blocks of random specs: losses by rows along a last axis."""

from __future__ import annotations

from tests.random.drawn_blocks import Block, Blocks, Value
from tritongen.spec.types import BATCH


def _rows(b: Blocks, h: Value) -> tuple[tuple[str, ...], str]:
    v = b.named(h)[-1]
    return b.without(h, v), v


def _total(b: Blocks, loss: Value) -> Value:
    if not loss.axes or b.maybe():
        return loss
    axes = b.some(loss.axes)
    names = ", ".join(axes)
    return b.line(f"{b.random.choice(('mean', 'sum'))}({loss}, {names})", b.without(loss, *axes), "total")


def cross_entropy(b: Blocks, h: Value) -> Value:
    rows, v = _rows(b, h)
    at = b.positions("target", rows, v)
    lse = b.line(f"logsumexp({h}, {v})", rows, "lse")
    text = f"{lse} - take({h}, {at}, {v})"
    if b.maybe(0.4):
        text = f"{lse} - 0.9 * take({h}, {at}, {v}) - 0.1 * mean({h}, {v})"
    if b.maybe(0.4):
        text += f" + 1e-2 * {lse} * {lse}"
    ignored = b.maybe(0.4)
    if ignored:
        text = f"where({at} == 1, 0, {text})"
    loss = b.line(text, rows, "loss")
    if ignored and b.named(loss) and b.maybe():
        names = ", ".join(rows)
        return b.line(f"sum({loss}, {names}) / clamp_min(sum(where({at} == 1, 0.0, 1.0), {names}), 1)", (), "total")
    return _total(b, loss)


def divergence(b: Blocks, h: Value) -> Value:
    rows, v = _rows(b, h)
    teacher = b.input("teacher", h.axes)
    p = b.line(f"log_softmax({h}, {v})", h.axes, "lp")
    q = b.line(f"log_softmax({teacher}, {v})", h.axes, "lq")
    if b.maybe():
        return _total(b, b.line(f"sum(exp({q}) * ({q} - {p}), {v})", rows, "loss"))
    m = b.line(f"log(0.5 * exp({p}) + 0.5 * exp({q}))", h.axes, "lm")
    return _total(b, b.line(f"0.5 * sum(exp({p}) * ({p} - {m}) + exp({q}) * ({q} - {m}), {v})", rows, "loss"))


def focal(b: Blocks, h: Value) -> Value:
    target = b.input("hit", h.axes, "bool")
    p = b.line(f"sigmoid({h})", h.axes, "p")
    pt = b.line(f"where({target}, {p}, 1 - {p})", h.axes, "pt")
    return _total(b, b.line(f"-square(1 - {pt}) * log({pt} + 1e-3)", h.axes, "loss"))


def dice(b: Blocks, h: Value) -> Value:
    target = b.input("hit", h.axes)
    over = b.some(h.axes)
    names = ", ".join(over)
    p = b.line(f"sigmoid({h})", h.axes, "p")
    text = f"1 - (2 * sum({p} * {target}, {names}) + 1) / (sum({p}, {names}) + sum(square({target}), {names}) + 1)"
    return _total(b, b.line(text, b.without(h, *over), "loss"))


def infonce(b: Blocks, h: Value) -> Value:
    rows, k = _rows(b, h)
    if not rows or rows[-1] == BATCH:
        return huber(b, h)
    t = b.axis(length=b.lengths[rows[-1]])
    other = b.input("keys", (t, k))
    s = b.line(f"sum({h} * {other}, {k}) / 0.7", (*rows, t), "s")
    at = b.positions("match", rows[-1:], t)
    return _total(b, b.line(f"logsumexp({s}, {t}) - take({s}, {at}, {t})", rows, "loss"))


def triplet(b: Blocks, h: Value) -> Value:
    rows, k = _rows(b, h)
    pos, neg = b.input("pos", h.axes), b.input("neg", h.axes)
    near, far = (b.line(f"sqrt(sum(square({h} - {o}), {k}) + 1e-2)", rows, "dist") for o in (pos, neg))
    return _total(b, b.line(f"relu({near} - {far} + 0.3)", rows, "loss"))


def huber(b: Blocks, h: Value) -> Value:
    target = b.input("y", h.axes)
    d = b.line(f"{h} - {target}", h.axes, "d")
    return _total(b, b.line(f"where(abs({d}) < 0.5, 0.5 * {d} * {d}, 0.5 * (abs({d}) - 0.25))", h.axes, "loss"))


def policy(b: Blocks, h: Value) -> Value:
    """GRPO or DPO, from log-probabilities of tokens."""
    rows, v = _rows(b, h)
    if not [a for a in rows if a != BATCH]:
        return cross_entropy(b, h)
    s = rows[-1]
    at = b.positions("token", rows, v)
    logp = b.line(f"take({h}, {at}, {v}) - logsumexp({h}, {v})", rows, "logp")
    if b.maybe():
        old, adv = b.input("old", rows), b.input("adv", b.without(logp, s))
        r = b.line(f"exp(clamp_max({logp} - 0.1 * {old}, 3))", rows, "ratio")
        loss = f"-minimum({r} * {adv}, clamp({r}, 0.8, 1.2) * {adv})"
        if b.maybe():
            ref = b.input("ref", rows)
            loss += f" + 0.04 * (exp(0.1 * {ref} - {logp} * 0.1) - 0.1 * {ref} + 0.1 * {logp} - 1)"
        one = b.line(loss, rows, "loss")
        keep = b.input("keep", rows, "bool")
        return b.line(
            f"sum(where({keep}, {one}, 0), {s}) / clamp_min(sum(cast({keep}, int32), {s}), 1)",
            b.without(one, s),
            "total",
        )
    ref = b.input("ref", b.without(logp, s))
    return _total(b, b.line(f"-logsigmoid(0.1 * (sum({logp}, {s}) - {ref}))", b.without(logp, s), "loss"))


LOSSES: tuple[Block, ...] = (
    cross_entropy, cross_entropy, divergence, focal, dice, infonce, triplet, huber, policy
)  # fmt: skip
