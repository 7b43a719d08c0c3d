"""Blocks of random specs: norms, matmuls, activations, gathers, reductions, quantisation."""

from __future__ import annotations

from tests.random.drawn_blocks import Block, Blocks, Value
from tritongen.spec.types import BATCH

# Norms


def layer_norm(b: Blocks, h: Value) -> Value:
    n = b.one(h)
    text = f"({h} - mean({h}, {n})) * rsqrt(var({h}, {n}, correction=0) + 1e-2)"
    if b.maybe():
        m = b.line(f"mean({h}, {n})", b.without(h, n), "mu")
        r = b.line(f"rsqrt(mean(square({h} - {m}), {n}) + 1e-2)", b.without(h, n), "rstd")
        text = f"({h} - {m}) * {r}"
    if b.maybe():
        text += f" * {b.input('g', (n,), optional=1)}"
    if b.maybe():
        text += f" + {b.input('beta', (n,), optional=0)}"
    return b.line(text, h.axes)


def rms_norm(b: Blocks, h: Value) -> Value:
    over = b.one(h)
    dims = over if b.maybe(0.8) else ", ".join(b.named(h)[-2:])
    text = f"{h} * rsqrt(mean({h} * {h}, {dims}) + 1e-2)"
    if b.maybe():
        text += f" * {b.random.choice(('', '(1 + '))}{(w := b.input('g', (over,), optional=1))}"
        text += ")" if "(1 + " in text.split(w.name)[0][-6:] else ""
    return b.line(text, h.axes)


def batch_norm(b: Blocks, h: Value) -> Value:
    c = b.one(h)
    over = ", ".join(b.without(h, c))
    if not over:
        return activation(b, h)
    m = b.line(f"mean({h}, {over})", (c,), "mu")
    v = b.line(f"var({h}, {over}, correction=0)", (c,), "v")
    g = b.input("g", (c,))
    y = b.line(f"({h} - {m}) * rsqrt({v} + 1e-2) * {g} + {b.input('beta', (c,), optional=0)}", h.axes)
    if b.maybe():
        run = b.input("running", (c,))
        b.line(f"0.9 * {run} + 0.1 * {m}", (c,), "next_mean")
    return y


def batch_norm_inference(b: Blocks, h: Value) -> Value:
    c = b.one(h)
    m, v, g = b.input("rm", (c,)), b.input("rv", (c,)), b.input("g", (c,))
    b.ranges[v.name] = "low = 0.5, high = 2.0"
    return b.line(f"({h} - {m}) * rsqrt({v} + 1e-5) * {g}", h.axes)


def instance_norm(b: Blocks, h: Value) -> Value:
    over = ", ".join(b.named(h)[1:] or b.named(h))
    return b.line(f"({h} - mean({h}, {over})) * rsqrt(var({h}, {over}, correction=0) + 1e-2)", h.axes)


def l2_normalise(b: Blocks, h: Value) -> Value:
    n = b.one(h)
    way = b.random.choice(
        ("{0} / clamp_min(norm({0}, {1}), 1e-3)", "{0} / norm({0}, {1})", "{0} * rsqrt(sum({0} * {0}, {1}) + 1e-2)")
    )
    return b.line(way.format(h, n), h.axes)


def softmaxes(b: Blocks, h: Value) -> Value:
    n = b.one(h)
    way = b.random.choice(
        (
            "softmax({0}, {1})",
            "softmax({0} / 0.7, {1})",
            "log_softmax({0}, {1})",
            "{0} - logsumexp({0}, {1})",
            "exp({0} - max({0}, {1}))",
        )
    )
    return b.line(way.format(h, n), h.axes)


# Matmuls


def weight(b: Blocks, name: str, axes: tuple[str, ...], k: str) -> str:
    """A weight matrix as it is in practice: plain, normed, int8, with scales, of an expert."""
    n = [axis for axis in axes if axis != k][-1] if len(axes) > 1 else k
    way = b.random.choice(("plain", "plain", "plain", "normed", "int8", "groups", "expert", "scaled", "float32"))
    if way == "normed":
        w = b.input(name, axes)
        return str(b.line(f"{w} * rsqrt(sum({w} * {w}, {k}) + 1e-2)", axes, "wn"))
    if way == "int8":
        w = b.input(name, axes, "int8")
        b.ranges[w.name] = "low = -8, high = 8"
        s = b.input("ws", (n,))
        return f"{w} * 0.2 * {s}" if b.maybe() else str(b.line(f"cast({w}, {s}) * {s} * 0.2", axes, "wd"))
    if way == "groups" and k in b.fixed and b.fixed[k] % 2 == 0 and len(axes) == 2:
        w = b.input(name, axes)
        return f"{w} * {b.input('ws', (n,))}"
    if way == "expert":
        e = b.axis("", b.random.choice((2, 3)), fixed=None)
        w = b.input(name, (e, *axes))
        at = b.positions("expert", (), e)
        return f"take({w}, {at}, {e})"
    if way == "scaled":
        return f"{b.input(name, axes)} * {b.input('ws', (b.random.choice(axes),), optional=1)}"
    return str(b.input(name, axes))


def linear(b: Blocks, h: Value) -> Value:
    k = b.one(h)
    rest = b.without(h, k)
    n = b.axis(room=h.axes)
    batch = b.some(b.named(h), 0) if b.maybe(0.15) else ()
    axes = (*(axis for axis in batch if axis != k), n, k)
    w = weight(b, "w", axes, k)
    x = b.random.choice((str(h), str(h), f"gelu({h})", f"relu({h})", f"{h} * 0.5"))
    text = f"sum({x} * {w}, {k}) * 0.25"
    if b.maybe(0.3):
        text += f" + {b.input('bias', (n,), optional=0)}"
    if b.maybe(0.25):
        text = b.random.choice(
            ("gelu({})", "silu({})", "square(relu({}))", "20 * tanh(({}) / 20)", "clamp({}, -1, 1)")
        ).format(text)
    return b.line(text, (*rest, n))


def lora(b: Blocks, h: Value) -> Value:
    k = b.one(h)
    n, r = b.axis(room=h.axes), b.axis(length=3)
    w, down, up = b.input("w", (n, k)), b.input("down", (r, k)), b.input("up", (n, r))
    return b.line(
        f"sum({h} * {w}, {k}) * 0.2 + 0.5 * sum(sum({h} * {down}, {k}) * {up}, {r}) * 0.1", (*b.without(h, k), n)
    )


def gated(b: Blocks, h: Value) -> Value:
    k = b.one(h)
    n = b.axis(room=h.axes)
    gate, up = b.input("gate", (n, k)), b.input("up", (n, k))
    act = b.random.choice(("silu", "gelu", "sigmoid", "relu"))
    text = f"{act}(sum({h} * {gate}, {k}) * 0.3) * sum({h} * {up}, {k}) * 0.3"
    g = b.line(text, (*b.without(h, k), n))
    if b.maybe():
        down = b.input("wd", (k, n))
        return b.line(f"sum({g} * {down}, {n}) * 0.3" + (f" + {h}" if b.maybe() else ""), h.axes)
    return g


def mlp(b: Blocks, h: Value) -> Value:
    k = b.one(h)
    n = b.axis(room=h.axes)
    w1, w2 = b.input("w1", (n, k)), b.input("w2", (k, n))
    a = b.line(f"gelu(sum({h} * {w1}, {k}) * 0.3 + {b.input('b1', (n,), optional=0)})", (*b.without(h, k), n), "a")
    return b.line(f"{h} + 0.3 * sum({a} * {w2}, {n})", h.axes)


def similarities(b: Blocks, h: Value) -> Value:
    k = b.one(h)
    t = b.axis(room=h.axes)
    other = b.input("other", (t, k))
    if b.maybe():
        return b.line(f"sum({h} * {other}, {k}) * 0.3", (*b.without(h, k), t))
    o = b.line(f"{other} * rsqrt(sum({other} * {other}, {k}) + 1e-2)", (t, k), "o")
    q = b.line(f"{h} * rsqrt(sum({h} * {h}, {k}) + 1e-2)", h.axes, "q")
    return b.line(f"sum({q} * {o}, {k}) * {b.input('temperature', (), optional=1)}", (*b.without(h, k), t))


def moe(b: Blocks, h: Value) -> Value:
    """A matmul with an expert's matrix, chosen for each row or each batch element."""
    k = b.one(h)
    rows = b.without(h, k)
    at_axes = tuple(axis for axis in rows if axis != BATCH)[:1]
    e, n = b.axis(length=3), b.axis(length=5)
    w = b.input("experts", (e, n, k))
    at = b.positions("expert", at_axes, e)
    return b.line(f"sum({h} * take({w}, {at}, {e}), {k}) * 0.3", (*rows, n))


def router(b: Blocks, h: Value) -> Value:
    k = b.one(h)
    e = b.axis(length=8, fixed=True)
    w = b.input("router", (e, k))
    p = b.line(f"softmax(sum({h} * {w}, {k}) * 0.3, {e})", (*b.without(h, k), e), "p")
    if b.maybe():
        b.line(f"max({p}, {e})", b.without(p, e), "best")
    if b.maybe(0.3):
        b.discrete = True
        b.line(f"argmax({p}, {e})", b.without(p, e), "which")
    return p


def folded_linear(b: Blocks, h: Value) -> Value:
    """A linear layer to heads, which may be normed each."""
    k = b.one(h)
    if b.group[0] or len(h.axes) > 3:
        return linear(b, h)
    e, d = b.axis(length=2), b.axis(length=8, fixed=True)
    b.group = (e, d)
    w = b.input("w", (e, d, k))
    y = b.line(f"sum({h} * {w}, {k}) * 0.3", (*b.without(h, k), e, d))
    return b.line(f"{y} * rsqrt(mean({y} * {y}, {d}) + 1e-2)", y.axes) if b.maybe() else y


# Maps


def activation(b: Blocks, h: Value) -> Value:
    way = b.random.choice(
        (
            "gelu({})",
            "silu({})",
            "gelu_tanh({})",
            "relu({})",
            "30 * tanh({} / 30)",
            "clamp({}, -1.5, 1.5)",
            "mish({})",
            "softplus({})",
            "square(relu({}))",
            "elu({})",
            "leaky_relu({})",
            "hardswish({})",
            "sigmoid({})",
        )
    )
    return b.line(way.format(h), h.axes)


def gate(b: Blocks, h: Value) -> Value:
    act = b.random.choice(("silu", "gelu", "gelu_tanh", "sigmoid", "relu"))
    other = b.input("up", h.axes)
    return b.line(
        b.random.choice((f"{act}({h}) * {other}", f"{act}({other}) * {h}", f"{act}({h} * 1.7) * ({other} + 1)")), h.axes
    )


def residual(b: Blocks, h: Value) -> Value:
    earlier = [v for v in b.values.values() if {*v.axes} <= {*h.axes} and v.name != h.name]
    other = b.random.choice(earlier) if earlier and b.maybe() else b.input("res", h.axes)
    return b.line(
        f"{h} + {other}" if b.maybe(0.7) else f"{h} * 0.5 + {other} * {b.input('rs', (), optional=0.5)}", h.axes
    )


def scale(b: Blocks, h: Value) -> Value:
    s = b.input("s", b.some(h.axes, 0), optional=1)
    t = b.input("t", b.some(h.axes, 0), optional=0)
    return b.line(f"{h} * {s} + {t}", h.axes)


def masked(b: Blocks, h: Value) -> Value:
    fill = b.random.choice(("0", "0.5", "-2.0"))
    if len(b.named(h)) > 1 and b.maybe():
        first, second = b.random.sample(b.named(h), 2)
        return b.line(f"where(index({first}) <= index({second}), {h}, {fill})", h.axes)
    if b.maybe():
        n = b.one(h)
        length = b.input("lens", b.some(tuple(a for a in b.without(h, n) if a != BATCH), 0), "int32")
        b.ranges[length.name] = f'low = 1, high = "{n}"' if b.lengths[n] > 1 else "low = 1, high = 2"
        b.ranges[length.name] = "low = 0, high = 20"
        return b.line(f"where(index({n}) < {length}, {h}, {fill})", h.axes)
    keep = b.input("keep", b.some(h.axes), "bool")
    return b.line(f"where({keep}, {h} / 0.9, {fill})", h.axes)


# Gathers


def rows_by_index(b: Blocks, h: Value) -> Value:
    n = b.one(h)
    t = b.axis(length=b.random.choice((3, 7, 12)))
    others = b.some(tuple(a for a in b.without(h, n) if a != BATCH), 0) if b.maybe(0.3) else ()
    at = b.positions("at", (*others, t), n)
    return b.line(f"take({h}, {at}, {n})", tuple(t if axis == n else axis for axis in h.axes))


def shifted(b: Blocks, h: Value) -> Value:
    n = b.one(h)
    way = b.random.choice(
        (
            "where(index({1}) > 0, take({0}, index({1}) - 1, {1}), 0)",
            "take({0}, size({1}) - 1 - index({1}), {1})",
            "0.5 * {0} + 0.5 * where(index({1}) + 1 < size({1}), take({0}, index({1}) + 1, {1}), 0.25)",
            "{0} - where(index({1}) >= 2, take({0}, index({1}) - 2, {1}), 0)",
        )
    )
    return b.line(way.format(h, n), h.axes)


def repeated(b: Blocks, h: Value) -> Value:
    """Elements repeated along a new axis, which another input has: each twice in a row, or the row twice."""
    n = b.one(h)
    t = b.axis(length=2 * b.lengths[n] if n not in b.fixed else 2 * b.fixed[n])
    other = b.input("r", (t,))
    way = b.random.choice((f"take({h}, index({t}) // 2 % size({n}), {n})", f"take({h}, index({t}) % size({n}), {n})"))
    return b.line(f"{way} * {other}", tuple(t if axis == n else axis for axis in h.axes))


def table(b: Blocks, h: Value) -> Value:
    """Add an embedding or a table of biases."""
    v = b.axis(length=9)
    at = b.positions("kind", b.some(tuple(a for a in h.axes if a != BATCH)), v)
    axes = b.some(tuple(a for a in h.axes if a not in at.axes and a != BATCH), 0)
    return b.line(f"{h} + take({b.input('table', (v, *axes))}, {at}, {v})", h.axes)


def convolution(b: Blocks, h: Value) -> Value:
    s = b.one(h)
    r = b.axis(length=3, fixed=b.maybe())
    axes = b.some(tuple(a for a in h.axes if a not in (s, BATCH)), 0)
    w = b.input("taps", (*axes[-1:], r))
    p = f"where(index({s}) >= index({r}), take({h}, index({s}) - index({r}), {s}), 0)"
    return b.line(f"sum({p} * {w}, {r})", h.axes)


# Reductions


def reduced(b: Blocks, h: Value) -> Value:
    over = b.some(b.named(h))
    if len(over) == len(h.axes) and b.maybe():
        return activation(b, h)
    way = b.random.choice(("mean", "sum", "max", "min", "logsumexp", "var", "std", "norm"))
    extra = {"var": ", correction=0", "std": ", correction=0"}.get(way, "")
    scaled = " * 0.2" if way == "sum" else ""
    inner = f"{h} + 0.01 * index({over[0]})" if way == "std" else h
    y = b.line(f"{way}({inner}, {', '.join(over)}{extra}){scaled}", b.without(h, *over))
    if b.maybe(0.6) or not y.axes or not b.named(y):
        return b.line(f"{h} - {y}" if b.maybe() else f"{h} * sigmoid({y})", h.axes)
    return y


def statistics(b: Blocks, h: Value) -> Value:
    """One or two statistics of the value as separate results, then an activation."""
    for _ in range(b.random.randint(1, 2)):
        over = b.some(b.named(h))
        way = b.random.choice(("mean", "sum", "max", "argmax", "logsumexp", "any"))
        if way == "argmax":
            b.discrete = True
            b.line(f"argmax({h}, {over[0]})", b.without(h, over[0]), "stat")
        elif way == "any":
            b.discrete = True
            b.line(f"any({h} > 1, {', '.join(over)})", b.without(h, *over), "stat")
        else:
            b.line(f"{way}({h}, {', '.join(over)})", b.without(h, *over), "stat")
    return activation(b, h)


def pooled(b: Blocks, h: Value) -> Value:
    """A reduction of another input by groups of a folded axis, combined with the value."""
    if b.group[0] or (BATCH in h.axes and len(h.axes) > 2):
        return reduced(b, h)
    p, q = b.axis(), b.axis(length=b.random.choice((2, 3, 4)), fixed=True)
    b.group = (p, q)
    other = b.input("wide", (*h.axes[:1], p, q))
    way = b.random.choice(("max", "mean", "min", "sum", "logsumexp"))
    y = b.line(f"{way}({other} * {other}, {q})", (*h.axes[:1], p))
    return b.line(f"{h} * mean({y}, {p}) + max({h}, {b.one(h)})", h.axes)


def cosine(b: Blocks, h: Value) -> Value:
    n = b.one(h)
    other = b.input("z", h.axes)
    y = b.line(f"sum({h} * {other}, {n}) / clamp_min(norm({h}, {n}) * norm({other}, {n}), 1e-4)", b.without(h, n))
    return y if b.named(y) and b.maybe() else b.line(f"{h} * (1 - {y})", h.axes)


# Quantisation


def quantised(b: Blocks, h: Value) -> Value:
    """Quantize to int8 by row, which may be a result, and back, with a straight-through gradient or none."""
    n = b.one(h)
    b.discrete = True
    s = b.line(f"clamp_min(max(abs({h}), {n}) / 127, 1e-4)", b.without(h, n), "scale")
    q = b.line(f"clamp(round({h} / {s}), -127, 127)", h.axes, "q")
    if b.maybe():
        b.line(f"cast({q}, int8)", h.axes, "q8")
    return b.line(f"{h} + detach({q} * {s} - {h})" if b.maybe() else f"detach({q}) * {s}", h.axes)


def dequantised(b: Blocks, h: Value) -> Value:
    """A matmul with an int8 weight, dequantized by a scale and an optional zero point per column."""
    k = b.one(h)
    n = b.axis(room=h.axes)
    w = b.input("w8", (n, k), "int8")
    b.ranges[w.name] = "low = -8, high = 8"
    zero = b.input("zero", (n,), optional=0)
    s = b.input("ws", (n,))
    return b.line(f"sum({h} * (cast({w}, {s}) - {zero}) * {s}, {k}) * 0.05", (*b.without(h, k), n))


LAYERS: tuple[Block, ...] = (
    layer_norm, rms_norm, rms_norm, batch_norm, batch_norm_inference, instance_norm, l2_normalise, softmaxes,
    linear, linear, linear, linear, lora, gated, mlp, similarities, moe, router, folded_linear,
    activation, gate, residual, scale, masked, rows_by_index, shifted, repeated, table, convolution,
    reduced, reduced, statistics, pooled, cosine, quantised, dequantised,
)  # fmt: skip
