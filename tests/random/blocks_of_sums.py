"""More blocks of random specs: row and column statistics, sums that can be factored, factors that are read twice."""

from __future__ import annotations

from tests.random.drawn_blocks import Block, Blocks, Value
from tritongen.spec.types import BATCH


def centred(b: Blocks, h: Value) -> Value:
    """Subtract means or maxima along two axes."""
    if len(b.named(h)) < 2:
        return b.line(f"{h} - mean({h}, {b.one(h)})", h.axes)
    first, second = b.random.sample(b.named(h), 2)
    way = b.random.choice(("{0} - mean({0}, {1}) - mean({0}, {2})", "{0} - max({0}, {1}) - mean({0}, {1}, {2})"))
    return b.line(way.format(h, first, second), h.axes)


def sinkhorn(b: Blocks, h: Value) -> Value:
    if len(b.named(h)) < 2:
        return b.line(f"softmax({h}, {b.one(h)})", h.axes)
    first, second = b.random.sample(b.named(h), 2)
    rows = b.line(f"{h} - logsumexp({h}, {first})", h.axes)
    return b.line(f"exp({rows} - logsumexp({rows}, {second}))", h.axes)


def group_norm(b: Blocks, h: Value) -> Value:
    """Group norm over a new axis and an existing one; the weight has the new axis."""
    if len(h.axes) > 3 or b.group[0]:
        return centred(b, h)
    c, s = b.axis(length=4, fixed=b.maybe()), b.one(h)
    wide = b.line(f"{h} * {b.input('spread', (*b.without(h, s)[:1], c), optional=None)}", (*h.axes, c))
    norm = f"({wide} - mean({wide}, {c}, {s})) * rsqrt(var({wide}, {c}, {s}, correction=0) + 1e-2)"
    normed = b.line(f"{norm} * {b.input('g', (c,), optional=1)}", wide.axes)
    return normed if b.maybe() else b.line(f"silu(sum({normed} * {b.input('mix', (c,))}, {c}))", h.axes)


def scores_without_softmax(b: Blocks, h: Value) -> Value:
    k = b.one(h)
    t, e = b.axis(room=h.axes), b.axis(length=5)
    keys, values = b.input("keys", (t, k)), b.input("values", (t, e))
    s = b.line(f"sum({h} * {keys}, {k}) * 0.2", (*b.without(h, k), t), "s")
    act = b.random.choice(("{}", "relu({})", "{} * {}")).format(s, s)
    return b.line(f"sum({act} * {values}, {t}) * 0.2", (*b.without(h, k), e))


def factored(b: Blocks, h: Value) -> Value:
    """A sum of products, also over axes that one factor lacks, in one line or two."""
    k = b.one(h)
    n = b.axis(room=h.axes)
    w = b.input("w", (n, k))
    u = f" * {b.input('u', (n,), optional=1)}" if b.maybe() else ""
    way = b.random.choice(("sum", "mean"))
    if b.maybe():
        over = b.some(b.without(h, k), 0) if b.maybe() else ()
        names = ", ".join((k, n, *(axis for axis in over if axis != BATCH)))
        y = b.line(f"{way}({h} * {w}{u}, {names}) * 0.2", b.without(h, *names.split(", ")))
    else:
        m = b.line(f"sum({h} * {w}, {k}) * 0.2", (*b.without(h, k), n), "m")
        y = b.line(f"{way}({m}{u}, {n})", b.without(h, k))
    return b.line(f"{h} * sigmoid({y})", h.axes) if not b.named(y) or b.maybe() else y


def tied(b: Blocks, h: Value) -> Value:
    """A weight that two matmuls read, and perhaps the epilogue as well."""
    k = b.one(h)
    n = b.axis(room=h.axes)
    w = b.input("w", (n, k))
    z = b.line(f"{b.random.choice(('gelu', 'relu', ''))}(sum({h} * {w}, {k}) * 0.3)", (*b.without(h, k), n), "z")
    if b.maybe():
        return b.line(f"sum({z} * {w}, {n}) * 0.3", h.axes)
    return b.line(f"sum({z} * {w}, {n}) * 0.1 + {h} * sum({w} * {w}, {n}) * 0.1", h.axes)


def normed_in_a_matmul(b: Blocks, h: Value) -> Value:
    """RMS norm as factors in the sum of a matmul."""
    k = b.one(h)
    n = b.axis(room=h.axes)
    w = b.input("w", (n, k))
    r = b.line(f"rsqrt(mean({h} * {h}, {k}) + 1e-2)", b.without(h, k), "r")
    g = f" * {b.input('g', (k,), optional=1)}" if b.maybe() else ""
    return b.line(f"sum({h} * {r}{g} * {w}, {k}) * 0.3", (*b.without(h, k), n))


def first_of(b: Blocks, h: Value) -> Value:
    """The first element of each row, or the row minus it."""
    n = b.one(h)
    if not [axis for axis in b.without(h, n) if axis != BATCH]:
        return b.line(f"{h} - take({h}, 0, {n})", h.axes)
    return b.line(f"take({h}, 0, {n})", b.without(h, n)) if b.maybe() else b.line(f"{h} - take({h}, 0, {n})", h.axes)


def chosen(b: Blocks, h: Value) -> Value:
    """A branch by a bool param, or math with float params."""
    if b.maybe():
        flag = b.param("flag", b.random.choice(("true", "false")))
        return b.line(f"gelu({h}) if {flag} else {h} - mean({h}, {b.one(h)})", h.axes)
    return b.line(f"{h} * {b.param('slope', '0.75')} + {b.param('shift', '0.125')}", h.axes)


def halves(b: Blocks, h: Value) -> Value:
    """A matmul to two halves; the first gates the second."""
    if b.group[0]:
        return tied(b, h)
    k = b.one(h)
    p, n = b.axis(length=2, fixed=True), b.axis(length=8)
    b.group = (p, n)
    w = b.input("w", (p, n, k))
    z = b.line(f"sum({h} * {w}, {k}) * 0.3", (*b.without(h, k), p, n), "z")
    return b.line(f"silu(take({z}, 0, {p})) * take({z}, 1, {p})", (*b.without(h, k), n))


SUMS: tuple[Block, ...] = (
    centred, sinkhorn, group_norm, scores_without_softmax, factored, factored, tied, normed_in_a_matmul, first_of,
    chosen, halves,
)  # fmt: skip
