"""The blocks of random texts: each adds lines to a text, which read existing or new lines and inputs."""

from __future__ import annotations

import math

from tests.random.drawn_texts import PARAMS, ROOM, Block, Text, Value, listed, words

UNARY = (
    "tanh({})",
    "sigmoid({})",
    "exp(-square({}))",
    "({} * 0.5 + 0.25)",
    "silu({})",
    "abs({})",
    "relu({})",
    "sin({})",
)
BINARY = ("({} + {})", "({} - {})", "({} * {})", "maximum({}, {})", "({} / (1 + square({})))", "where({} > 0, {}, 0.5)")
REDUCE = ("sum({}, {})", "mean({}, {})", "max({}, {})", "logsumexp({}, {})", "min({}, {})", "norm({}, {})",
          "var({}, {}, correction=0)")  # fmt: skip
BACK = (
    "softmax({}, {})",
    "log_softmax({}, {})",
    "({0} - mean({0}, {1}))",
    "({0} * rsqrt(mean(square({0}), {1}) + 0.1))",
)


def mapped(text: Text) -> Value:
    x = text.value()
    return text.line(text.random.choice(UNARY).format(x.name), x.axes)


def met(text: Text) -> Value:
    """A binary function with an input, which may have another axis."""
    x = text.value()
    own = text.some(x.axes, 0)
    other = text.input([*own, text.axis(*x.axes)] if text.maybe(0.3) else own, optional=True)
    form = text.random.choice(BINARY)
    names = (x.name, other.name) if text.maybe() else (other.name, x.name)
    return text.line(form.format(*names), (*x.axes, *other.axes))


def joined(text: Text) -> Value:
    """A binary function of two lines."""
    x, other = text.value(), text.value()
    if math.prod(text.lengths[axis] for axis in {*x.axes, *other.axes}) > ROOM:
        return x
    return text.line(text.random.choice(BINARY).format(x.name, other.name), (*x.axes, *other.axes))


def reduced(text: Text) -> Value:
    x = text.value()
    if not x.axes:
        return x
    over = text.some(x.axes)
    return text.line(text.random.choice(REDUCE).format(x.name, listed(over)), text.without(x.axes, *over))


def unlike(text: Text) -> Value:
    """Reductions of one value over different axes."""
    x = text.value(2)
    for over in dict.fromkeys(tuple(sorted(text.some(x.axes))) for _ in range(text.random.randint(1, 2))):
        text.line(text.random.choice(REDUCE).format(x.name, listed(over)), text.without(x.axes, *over))
    return normed(text, x)


def normed(text: Text, x: Value | None = None) -> Value:
    x = x or text.value()
    if not x.axes:
        return x
    return text.line(text.random.choice(BACK).format(x.name, listed(text.some(x.axes))), x.axes)


def positioned(text: Text) -> Value:
    """A mask by the index of the largest or smallest element."""
    x = text.value()
    if not x.axes:
        return x
    over = text.some(x.axes)
    at = text.line(f"{text.random.choice(('argmax', 'argmin'))}({x.name}, {listed(over)})", text.without(x.axes, *over))
    weights = text.input(over)
    return text.line(f"where(index({listed(over)}) == {at.name}, {weights.name}, 0.25)", x.axes)


def product(text: Text) -> Value:
    x = text.value()
    if not x.axes:
        return x
    over = text.random.choice(x.axes)
    free = text.axis(*x.axes)
    batch = text.some(text.without(x.axes, over), 0) if text.maybe(0.25) else []
    w = text.input([over, *batch, *([free] if free != over else [])])
    return text.line(f"sum({x.name} * {w.name}, {over})", text.without((*x.axes, *w.axes), over))


def epilogue(text: Text) -> Value:
    """A matmul combined with another result, which has some of its axes."""
    y = product(text)
    if not y.axes:
        return y
    own = text.some(y.axes)
    inputs = [text.input(text.some(own, 0)).name, text.input(own, optional=True).name]
    form = text.random.choice((*BINARY[:5], "erf(minimum({}, {}))"))
    total = text.line(form.format(*inputs), own)
    text.shown.add(total.name)
    names = [y.name, total.name]
    return text.line(text.random.choice(BINARY).format(*text.random.sample(names, 2)), y.axes)


def mixture(text: Text) -> Value:
    """A mixture of experts: a matrix for each, and a sum weighted by a softmax."""
    n, k, f = text.axis(), "", ""
    k = text.axis(n)
    f = text.axis(n, k)
    experts = text.axis(n, k, f, longest=4)
    if len({n, k, f, experts}) < 4:
        return product(text)
    x = text.input([n, k] if text.maybe(0.8) else [n, k, experts])
    w = text.input([k, experts, f])
    gate = text.input(text.random.choice(([n, experts], [n, experts], [experts], [n, experts, f])))
    y = text.line(f"sum({x.name} * {w.name}, {k})", (n, experts, f))
    weights = f"softmax({gate.name}, {experts})"
    if text.maybe(0.2):
        weights = f"exp({gate.name} - logsumexp({gate.name}, {experts}))"
    return text.line(f"sum({y.name} * {weights}, {experts})", (n, f))


def attention(text: Text) -> Value:
    m, n, d = "", "", ""
    m = text.axis()
    n = text.axis(m)
    d = text.axis(m, n)
    e = text.axis(m, n)
    if len({m, n, d, e}) < 4:
        return normed(text)
    heads = [text.axis(m, n, d)] if text.maybe(0.3) else []
    heads = [] if {*heads} & {m, n, d, e} else heads
    q, k, v = (text.input([*own, *axes]) for own, axes in (
        (heads, (m, d)), (heads if text.maybe() else [], (n, d)), (heads if text.maybe() else [], (n, e))))  # fmt: skip
    score = f"sum({q.name} * {k.name}, {d}) * 0.3"
    if text.maybe(0.4):
        bias = text.input(text.random.choice(([n], [m, n], [m], [], [*heads, n], [*heads])))
        score += f" + {bias.name}" if text.maybe() else f" * {bias.name}"
    lost = text.maybe(0.15)  # whether the first row has no keys
    if lost or text.maybe(0.3):
        score = f"where(index({n}) {'<' if lost else '<='} index({m}), {score}, -inf)"
    s = text.line(score, (*dict.fromkeys((*heads, m, n)),))
    p = f"softmax({s.name}, {n})"
    if lost:
        text.lost = True
        p = f"where(index({m}) > 0, {p}, 0.0)"
    elif text.maybe(0.2):
        p = f"where({text.input([m, n] if text.maybe() else [m], 'bool').name}, {p}, 0.0)"
    free = [*dict.fromkeys((*heads, m, e))]
    has_heads = heads and any(set(heads) & {*one.axes} for one in (q, k, v))
    return text.line(f"sum({p} * {v.name}, {n})", free if has_heads else (m, e))


def gather(text: Text) -> Value:
    """Gather elements of a line or an input at indices of an input, which may be out of range and then masked."""
    x = text.value()
    if not x.axes:
        return x
    axis = text.random.choice(x.axes)
    rest = text.without(x.axes, axis)
    to = [text.axis(*x.axes)] if text.maybe(0.85) else text.some(rest, 0)
    at = text.indices(to, axis)
    arg = text.random.choice((x.name, x.name, f"softmax({x.name}, {axis})", f"({x.name} * 2 + 1)", f"tanh({x.name})"))
    taken = f"take({arg}, {at}, {axis})"
    if text.outside and text.maybe():
        taken = f"where(({at} >= 0) & ({at} < size({axis})), {taken}, 0.5)"
    return text.line(taken, (*rest, *to))


def scan(text: Text) -> Value:
    x = text.value()
    if not x.axes:
        return x
    form = text.random.choice(("cumsum({}, {})", "cumsum({}, {})", "cumprod(1 + 0.1 * tanh({}), {})"))
    return text.line(form.format(x.name, text.random.choice(x.axes)), x.axes)


def convolution(text: Text) -> Value:
    """A convolution along an axis with zero padding."""
    x = text.value()
    if not x.axes:
        return x
    axis, taps = text.random.choice(x.axes), text.axis(*x.axes, longest=4)
    if taps in x.axes:
        return x
    text.fixed.add(taps)
    channels = text.some(text.without(x.axes, axis), 0)
    w = text.input(
        [taps, *channels, *([f] if (f := text.axis(*x.axes, taps)) not in (taps, *x.axes) and text.maybe() else [])]
    )
    at = f"index({axis}) - index({taps})" if text.maybe() else f"index({axis}) + index({taps}) - 1"
    inside = f"where(({at} >= 0) & ({at} < size({axis})), take({x.name}, {at}, {axis}), 0.0)"
    over = [taps, *(text.some(channels, 0) if text.maybe() else [])]
    return text.line(f"sum({inside} * {w.name}, {listed(over)})", text.without((*x.axes, *w.axes), *over))


def chosen(text: Text) -> Value:
    """A branch by a bool param."""
    x = text.value()
    other = text.input(text.some(x.axes, 0), optional=True)
    return text.line(f"{x.name} * {other.name} if {text.param('on')} else {x.name} + 1", x.axes)


def scaled(text: Text) -> Value:
    """A param, whose name may clash with one in generated code."""
    x = text.value()
    name = text.param(text.random.choice([*PARAMS][1:]))
    if name in words(" ".join((*text.inputs, *text.optional, *text.lines))):
        return x
    form = text.random.choice(("{0} * {1}", "maximum({0}, {1})", "where({0} > {1}, {0}, {1} - 1.0)"))
    return text.line(form.format(x.name, name), x.axes)


def masked(text: Text) -> Value:
    """A mask by a bool input."""
    x = text.value()
    mask = text.input(text.some(x.axes, 0), "bool")
    form = text.random.choice(("where({1}, {0}, 0.0)", "where({1}, {0} * 2, {0})", "{0} * cast({1}, float64)"))
    return text.line(form.format(x.name, mask.name), x.axes)


def positive(text: Text) -> Value:
    """A function with an infinite derivative at masked elements."""
    x = text.value()
    g = text.line(f"relu({x.name})", x.axes)
    text.lost = True
    form = text.random.choice(("log({0})", "sqrt({0})", "1 / {0}", "{0} * log({0})", "rsqrt({0})"))
    return text.line(f"where({g.name} > 0, {form.format(g.name)}, 0.0)", x.axes)


def positive_sum(text: Text) -> Value:
    """The same for a sum, where the mask has fewer axes than the masked value."""
    x = text.value(2)
    over = text.some(x.axes)
    s = text.line(f"sum(relu({x.name}), {listed(over)})", text.without(x.axes, *over))
    text.lost = True
    form = text.random.choice(("{0} / {1}", "{0} * rsqrt({1})", "{0} * log({1})", "{0} + sqrt({1})"))
    return text.line(f"where({s.name} > 2, {form.format(x.name, f'relu({s.name} - 2)')}, 0.0)", x.axes)


BLOCKS: tuple[Block, ...] = (
    mapped, met, met, joined, joined, reduced, reduced, unlike, unlike, normed, positioned, product, epilogue, mixture,
    attention, gather, gather, scan, convolution, chosen, scaled, masked,
)  # fmt: skip
STARTS: tuple[Block, ...] = (*BLOCKS, mixture, mixture, attention, gather)
CHOICES: tuple[Block, ...] = (positive, positive_sum)
