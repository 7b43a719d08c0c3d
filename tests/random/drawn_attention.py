"""A random spec of attention and its kin: heads, layouts, scores, masks, weights and epilogue."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

# Leading axes of queries -> choices for the keys, and the axes of a bias per head.
HEADS = {
    "": ([""], ""),
    "B, H": (["B, H", "B, H", "H", "B"], "H"),
    "...": (["...", "...", ""], ""),
    "..., H": (["..., H", "H", "..."], "H"),
    "B, (G R)": (["B, G", "B, G", "G"], "(G R)"),
    "..., (G R)": (["..., G", "..., G", "G"], "(G R)"),
    "B, G, R": (["B, G", "B, G", "G, R", "B"], "G, R"),
    "B, (R G)": (["B, G"], "(R G)"),
}
MASKS = {
    "": 3,
    "index(N) <= index(M)": 2,
    "index(N) - size(N) <= index(M) - size(M)": 2,
    "(index(N) <= index(M)) & (index(M) - index(N) < window)": 1,
    "abs(index(M) - index(N)) <= 7": 1,
    "(index(N) < 5) | ((index(N) <= index(M)) & (index(M) - index(N) < 11))": 1,
    "index(N) // 8 == index(M) // 8": 1,
    "(index(M) - index(N)) % 3 == 0": 1,
    "(index(M) // 16 - index(N) // 16 <= 1) & (index(N) // 16 <= index(M) // 16)": 1,
    "index(N) < prefix": 1,
    "(index(N) <= index(M)) | (index(N) < prefix)": 1,
    "(q_of == k_of) & (index(N) <= index(M))": 1,
    "q_of == k_of": 1,
    "(q_of == k_of) | (k_of == 0)": 1,
    "(index(N) <= index(M)) if causal else (index(M) >= 0)": 1,
    "~mask": 2,
    "mask & (index(N) <= index(M))": 1,
    "index(N) <= limit": 1,
    "(first <= index(N)) & (index(N) < last)": 1,
    "index(N) // 8 % 2 == 0": 1,
    "take(chosen, index(N) // 16, L)": 1,
    "(k_of >= 0) & (k_of <= q_of)": 1,
}
TAKEN = 5000  # the first seed whose document ids may be gathered from a table, or combined with a limit, too
DOCUMENTS = {
    "(qd == kd) & (index(N) <= index(M))": 4,
    "qd == kd": 2,
    "(qd == kd) & (index(N) <= limit)": 2,
    "(take(docs, index(M), L) >= take(docs, index(N), L)) & (index(N) - size(N) <= index(M) - size(M))": 2,
    "(q_of == take(docs, index(N), L)) | (index(N) == index(M))": 2,
    "(q_of == k_of) & (index(N) <= limit)": 4,
    "(q_of == k_of) & (first <= index(N)) & (index(N) < last)": 2,
}
PARAMS = {"window": "window = 9", "causal": "causal = true", "scale": 'scale = { type = "float" }', "cap": "cap = 5.0"}


@dataclass
class DrawnAttention:
    """`high` has exclusive upper bounds of integer inputs: integers, or axes for their length."""

    seed: int
    inputs: dict[str, str] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    smooth: list[str] = field(default_factory=list)
    high: dict[str, int | str] = field(default_factory=dict)
    after: set[str] = field(default_factory=set)  # inputs that only math after the mean reads
    first_of_two: str = ""  # a mean to which another is added

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        lead = self.random.choice([*HEADS])
        choices, self.own = HEADS[lead]
        self.lead, self.of_keys = lead, self.random.choice(choices)
        self.of_values = self.of_keys if self.random.random() < 0.85 else self.random.choice(choices)
        self.type = self.random.choice(("T", "T", "float"))
        self.head, self.over = self.random.choice(
            (("D", "D"),) * 5 + (("(P=2 D)", "P, D"), ("(D P=2)", "D, P"), ("P, D", "P, D"))
        )
        self.wide = self.random.choice(("E",) * 6 + ("D", "C, E", "(C=2 E)") if self.head == "D" else ("E",))
        self.first = self.random.random() < 0.25 and bool(lead)  # positions are before heads
        self.across = self.random.random() < 0.1  # heads are before positions
        self.fixed = {axis: self.random.choice((3, 16, 32)) for axis in "DE" if self.chance(0.15)}
        # Keys have one axis N, or two, as of an image, or are paged.
        self.image = self.chance(0.06)
        self.paged = not self.image and self.of_keys[:1] == "B" and self.head == "D" and self.chance(0.15)
        # A quantized cache has scales. Values may be the keys, as in latent attention.
        self.cached = (
            self.random.choice(("float8_e4m3fn", "float8_e5m2", "int8"))
            if self.head == "D" and not self.paged and self.chance(0.08)
            else ""
        )
        self.values = "k" if self.head == self.wide == "D" and self.chance(0.5) else "v"
        self.given("q", self.lead, "M", self.head)
        self.given("k", self.of_keys, "N", self.head, dtype=self.cached)
        if self.values == "v":
            self.given("v", self.of_values, "N", self.wide, dtype=self.cached)
        if self.cached == "int8":
            self.high |= {"k": 5, "v": 5}
        mean = self.mean(self.scores("q", "k"))
        if self.chance(0.1) and not self.cached:
            mean = self.second(mean)
        self.follow(mean)
        self.by = [name for name in self.smooth if self.chance(0.75)] or self.smooth[:1]
        if self.paged and self.chance(0.7):
            self.by = []
        if self.image:
            self.rename_keys("X, Y")
        if self.paged:
            self.put_in_pages()

    # Drawing

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    def given(self, name: str, *dims: str, dtype: str = "", default: str = "", after: bool = False) -> str:
        """Add an input, in which positions may come before heads; its name."""
        lead, *others = dims
        places = [one.strip() for one in lead.split(",") if one.strip()]
        if self.first and len(places) > 1 and others and others[0] in ("M", "N", "L"):
            places.insert(1, others.pop(0))
        elif self.across and len(others) == 2 and others[0] in ("M", "N"):
            others.reverse()
        self.inputs[name] = f"{dtype or self.type}[{', '.join([*places, *(one for one in others if one)])}]{default}"
        if not dtype:
            self.smooth.append(name)
        if after:
            self.after.add(name)
        return name

    def some_heads(self) -> str:
        """Some of the leading axes, for a bias or a mask."""
        whole = [one.strip() for one in self.lead.split(",") if one.strip()]
        return ", ".join(one for one in whole if self.chance(0.5))

    def line(self, name: str, text: str) -> str:
        self.lines[name] = text
        return name

    def scores(self, q: str, k: str) -> str:
        if self.head == "(P=2 D)" and self.chance(0.5):
            q, k = (self.turned(one, axis) for one, axis in ((q, "M"), (k, "N")))
        if self.chance(0.15):
            q = self.normed(q)
            if self.chance(0.3) and not self.cached and not self.paged:
                k = self.normed(k)
        s = f"sum({q} * {k}, {self.over})"
        if self.cached:
            s = f"({s} * {self.scale_of('k')})"
        if self.chance(0.12):
            self.given("q2", self.lead, "M", "K")
            self.given("k2", self.random.choice((self.of_keys, "B" if "B" in self.of_keys else self.of_keys)), "N", "K")
            s = f"({s} + sum(q2 * k2, K))"
        s = self.random.choice((s, f"{s} * 0.25", f"{s} * scale", f"{s} / 4", f"{s} * size(D) ** -0.5"))
        for of, change in (
            (0.1, self.scaled), (0.15, lambda s: f"cap * tanh(({s}) / cap)"), (0.2, self.biased), (0.12, self.sloped),
            (0.12, self.tabled), (0.12, self.keyed), (0.06, self.decayed), (0.06, lambda s: f"clamp({s}, -cap, cap)"),
        ):  # fmt: skip
            if self.chance(of):
                s = change(s)
        return s

    def normed(self, name: str) -> str:
        over = self.over
        norm = self.random.choice(
            (
                f"{name} * rsqrt(mean({name} * {name}, {over}) + 1e-6)",
                f"{name} / sqrt(sum({name} * {name}, {over}) + 1e-6)",
                f"({name} - mean({name}, {over})) * rsqrt(var({name}, {over}, correction=0) + 1e-3)",
            )
        )
        return self.line(f"{name}n", f"cast({norm}, {name[0]})")

    def scale_of(self, name: str) -> str:
        axes = self.random.choice((("",), ("B" if "B" in self.of_keys else "",), ("", "N")))
        return self.given(f"{name}_scale", *axes, dtype="float32")

    def turned(self, name: str, axis: str) -> str:
        """Apply a rotary position embedding."""
        for what in ("cosine", "sine"):
            self.inputs[f"{name}_{what}"] = f"float32[{axis}, D]"
        self.line(f"{name}_other", f"take({name}, 1 - index(P), P)")
        self.line(f"{name}_turned", f"where(index(P) == 0, -{name}_other, {name}_other)")
        return self.line(f"{name}r", f"cast({name} * {name}_cosine + {name}_turned * {name}_sine, {name})")

    def scaled(self, s: str) -> str:
        axes = self.random.choice((self.own, self.own, f"{self.own}, M".strip(", "), "N", ""))
        return f"{s} * {self.given('temper', axes)}"

    def biased(self, s: str) -> str:
        default = " = 0" if self.chance(0.3) else ""
        rows, keys = self.random.choice((("M", "N"), ("M", "N"), ("M", "N"), ("M", ""), ("N", "M")))
        return f"{s} + {self.given('bias', self.some_heads(), rows, keys, default=default)}"

    def sloped(self, s: str) -> str:
        slope = self.given("slope", self.own) if self.own else "0.125"
        distance = self.random.choice(("(index(M) - index(N))", "abs(index(M) - index(N))"))
        return f"{s} - {slope} * {distance}"

    def decayed(self, s: str) -> str:
        """Add the decay between two positions, as a difference of per-row and per-key values."""
        return f"{s} + {self.given('of_rows', self.own, 'M')} - {self.given('of_keys', self.own, 'N')}"

    def tabled(self, s: str) -> str:
        if self.chance(0.3):
            self.given("bucket", self.some_heads(), "M", "N", dtype=self.random.choice(("int32", "int64")))
            self.high["bucket"] = 17
            table = self.given("table", *self.random.choice(((self.own, "V=17"), ("V=17", self.own))))
            return f"{s} + take({table}, bucket, V)"
        table = self.given("table", self.own, "W" if self.chance(0.5) else "V=17")
        if "W" in self.inputs[table]:
            return f"{s} + take({table}, index(M) - index(N) + size(N) - 1, W)"
        return f"{s} + take({table}, clamp(index(M) - index(N), -8, 8) + 8, V)"

    def keyed(self, s: str) -> str:
        return f"{s} + {self.given('of_key', self.random.choice((self.own, self.of_keys, '')), 'N')}"

    @property
    def masks(self) -> Mapping[str, int]:
        return MASKS if self.seed < TAKEN else {**MASKS, **DOCUMENTS}

    def mask(self, of: Mapping[str, int]) -> str:
        found = self.random.choices([*of], [*of.values()])[0]
        if "mask" in found:
            rows = "M" if self.chance(0.6) else ""
            self.given(
                "mask",
                self.some_heads(),
                rows,
                "N",
                dtype="bool",
                default=" = false" if found[0] == "~" and self.chance(0.3) else "",
            )
        lead = "B" if re.search(r"q_of|docs|qd", found) and "B" in self.lead and self.chance(0.6) else ""
        for name, axis in (("q_of", "M"), ("k_of", "N")):
            if name in found:
                self.given(name, lead, axis, dtype="int32")
                self.high[name] = 3 if "==" in found else 30
        if "docs" in found or "qd" in found:
            self.given("docs", lead, "L", dtype=self.random.choice(("int32", "int64")))
            self.high["docs"] = 3
        if "qd" in found:
            rows = self.random.choice(("index(M)", "index(M)", "index(M) + size(N) - size(M)", "index(M) // 2"))
            self.line("qd", f"take(docs, {rows}, L)")
            self.line("kd", "take(docs, index(N), L)")
        if "prefix" in found:
            self.given("prefix", "B" if "B" in self.lead else "", dtype="int32")
            self.high["prefix"] = "N"
        rows = "M" if self.chance(0.6) else ""
        for name in ("limit", "first", "last"):
            if re.search(rf"\b{name}\b", found):
                self.given(name, self.some_heads(), rows, dtype=self.random.choice(("int32", "int64")))
                self.high[name] = 5 if name == "first" else "N"
        if "chosen" in found:
            self.given("chosen", self.some_heads(), "M", "L", dtype="bool")
        return found

    def mean(self, s: str) -> str:
        """The sum along the keys: a softmax in one of many spellings, with sinks, or unnormalized weights."""
        kind = self.random.choice(
            ("softmax",) * 8
            + ("by_max", "by_sum", "by_lse", "by_line", "by_log", "sink", "sink", "sink_by_max", "sink_of_1", "none")
            + ("none",)
        )
        v = f"({self.values} * {self.scale_of('v')})" if self.cached else self.values
        s = f"cap * tanh(({s}) / cap)" if kind == "by_sum" else s  # Else exp might overflow.
        if kind == "none":
            return self.unnormalised(s, v)
        mask = self.mask(self.masks)
        low = self.random.choice(("-inf",) * 6 + ("-1e9", "-3e38") * (kind not in ("by_lse", "by_line", "by_sum")))
        self.line("s", f"where({mask}, {s}, {low})" if mask else s)
        if self.chance(0.2):
            self.line("z", "logsumexp(s, N)")
            self.outputs["z"] = "auto"
        if "sink" in kind:
            sink = "0.0" if kind == "sink_of_1" else self.given("sink", self.own)
            if kind != "sink_by_max":
                self.line("total", f"logaddexp(logsumexp(s, N), {sink})")
                return f"sum(exp(s - total) * {v}, N)"
            self.line("m", f"maximum(max(s, N), {sink})")
            self.line("p", "exp(s - m)")
            return f"sum(p * {v}, N) / (sum(p, N) + exp({sink} - m))"
        if kind in ("by_max", "by_sum"):
            self.line("p", "exp(s - max(s, N))" if kind == "by_max" else "exp(s)")
            return self.random.choice((f"sum(p * {v}, N) / sum(p, N)", f"sum(p / sum(p, N) * {v}, N)"))
        if kind == "by_line":
            self.line("lse", "logsumexp(s, N)")
        ways = {"by_lse": "exp(s - logsumexp(s, N))", "by_line": "exp(s - lse)", "by_log": "exp(log_softmax(s, N))"}
        p = ways.get(kind, "softmax(s, N)")
        if self.chance(0.1):
            self.given("keep", self.some_heads(), "M", "N", dtype="bool")
            p = f"where(keep, {p} / 0.9, 0.0)"
        if self.chance(0.08):
            v = f"({v} * {self.given('weight', self.own, 'N')})"
        return f"sum({p} * {v}, N)"

    def unnormalised(self, s: str, v: str) -> str:
        """A sum with weights that have no softmax. Their mask depends on positions, whatever the head dims are."""
        mask = self.mask({text: weight for text, weight in self.masks.items() if "index" in text})
        if self.chance(0.3) and self.own:
            decay = self.given("decay", self.own)
            s = f"({s}) * exp(-abs({decay}) * abs(index(M) - index(N)))"
        weigh = self.random.choice(("{}", "sigmoid({})", "square(relu({}))", "silu({})", "{} / (1 + index(M))"))
        self.line("p", f"where({mask}, {weigh.format(f'({s})')}, 0.0)")
        if self.chance(0.25):
            return f"sum(p * {v}, N) / maximum(abs(sum(p, N)), 1.0)"
        return f"sum(p * {v}, N)"

    def second(self, mean: str) -> str:
        """A second attention: of the same queries to other keys, of other queries to these keys, or of the result."""
        kind = self.random.choice(("other keys", "differential", "chain" if self.wide == "E" else "other keys"))
        self.first_of_two = mean if kind != "chain" else ""
        if kind == "differential":
            self.given("qb", self.lead, "M", self.head)
            self.line("sb", f"sum(qb * k, {self.over}) * 0.25")
            return f"{mean} - 0.5 * sum(softmax(sb, N) * {self.values}, N)"
        if kind == "chain":
            self.line("a", self.without_lost(mean))
            n = self.random.choice(
                ("a", "a * rsqrt(mean(a * a, E) + 1e-5)", "(a - mean(a, E)) * sigmoid(mean(a * a, E))")
            )
            self.line("n", n)
            self.given("kb", self.of_keys, "L", "E", after=True)
            self.given("vb", self.of_values, "L", "E", after=True)
            mask = self.random.choice(("index(L) >= 0", "index(L) - size(L) <= index(M) - size(M)"))
            self.line("sb", f"where({mask}, sum(n * kb, E) * 0.25, -inf)")
            return "sum(softmax(sb, L) * vb, L)"
        self.given("kb", self.of_keys, "L", self.head, after=True)
        self.given("vb", self.of_values, "L", self.wide, after=True)
        self.line("sb", f"sum(q * kb, {self.over}) * 0.25")
        return f"{mean} + 0.5 * sum(softmax(sb, L) * vb, L)"

    def without_lost(self, mean: str) -> str:
        """The mean with 0 in lost rows, because NaN would reach later math and all gradients by other keys."""
        return f"where(logsumexp(s, N) == -inf, 0.0, {mean})" if "s" in self.lines else mean

    def follow(self, mean: str) -> None:
        """Add the epilogue of the mean, and the results."""
        o = f"({mean})" if any(sign in mean for sign in ("/", " + ", " - ")) else mean
        if self.chance(0.12):
            o = f"sigmoid({self.given('gate', self.lead, 'M', self.wide, after=True)}) * {o}"
        if self.chance(0.08):
            o = f"{o} + {self.given('residual', self.lead, 'M', self.wide, after=True)}"
        if self.chance(0.08) and self.own:
            o = f"{o} * {self.given('of_head', self.own, after=True)}"
        self.line("o", o)
        result = "o"
        if self.chance(0.08) and self.wide == "E":
            if self.first_of_two:
                o = o.replace(self.first_of_two, self.without_lost(self.first_of_two), 1)
                self.line("o", o)
            result = self.line("y", "o * rsqrt(mean(o * o, E) + 1e-5)")
        if self.chance(0.08) and "z" in self.lines:
            result = self.line("w", f"where(z == -inf, 0.0, {result})")
        dims = [self.lead, "M", self.wide]
        order = self.inputs.copy(), list(self.smooth)
        self.given(result, *dims)
        dtype = "auto" if self.chance(0.8) else "q"
        self.outputs[result] = self.inputs[result].replace(f"{self.type}[", f"{dtype}[", 1)
        self.inputs, self.smooth = order
        if "z" in self.outputs:
            self.outputs["z"] = f"auto[{', '.join(one for one in (self.lead, 'M') if one)}]"

    def rename_keys(self, axes: str) -> None:
        for texts in (self.inputs, self.lines, self.outputs):
            texts |= {name: re.sub(r"\bN\b", axes, one) for name, one in texts.items()}

    def put_in_pages(self) -> None:
        """Put keys and values in pages of S, gathered by a table of J pages."""
        self.rename_keys("J, S")
        for name in sorted({"k", self.values}):
            _, *dims = re.findall(r"\(.*?\)|[^, \[\]]+", self.inputs[name].partition("[")[2])
            self.inputs[name] = f"{self.type}[U, {', '.join(one for one in dims if one not in ('B', 'J'))}]"
            self.lines = {
                line: re.sub(rf"\b{name}\b", f"take({name}, page, U)", one) for line, one in self.lines.items()
            }
        self.inputs["page"] = "int32[B, J]"
        self.high["page"] = "U"

    # Its text

    def text(self) -> str:
        def told(shape: str) -> str:
            return re.sub(r"(?<=[ \[])([DE])(?=\])", lambda found: self.with_length(found[1]), shape)

        required = {name: one for name, one in self.inputs.items() if " = " not in one}
        inputs = "\n".join(f'{name} = "{told(one)}"' for name, one in {**required, **self.inputs}.items())
        lines = "\n".join(f'{name} = "{one}"' for name, one in self.lines.items())
        outputs = "\n".join(f'{name} = "{one}"' for name, one in self.outputs.items())
        params = "\n".join(one for name, one in PARAMS.items() if re.search(rf"\b{name}\b", lines))
        by = ", ".join(f'"{name}"' for name in self.by)
        types = '[types]\nT = "float"\n' if self.type == "T" else ""
        tables = {"inputs": inputs, "params": params, "compute": lines, "outputs": outputs}
        tables["grad"] = f"wrt = [{by}]" if by else ""
        head = f'[op]\nname = "drawn"\nsummary = "Attends."\n{types}'
        return head + "".join(f"[{name}]\n{table}\n" for name, table in tables.items() if table)

    def with_length(self, axis: str) -> str:
        return f"{axis}={self.fixed[axis]}" if axis in self.fixed else axis
