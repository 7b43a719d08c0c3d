"""The specs that `init` and `new` begin with, and the settings."""

from __future__ import annotations

SETTINGS = """\
# Paths are beside this file. See `tritongen --help`.
specs = ["specs"]
out = "generated"
line-length = 88
"""

_ELEMENTWISE = """\
[op]
name = "{name}"
summary = "{summary}"

[inputs]                     # dtype class or dtypes, then axes; `...` is any number of leading axes
x = "float[...]"

[params]                     # scalars; they become keyword arguments
slope = 0.01

[compute]                    # in order; function names are torch's
y = "where(x > 0, x, slope * x)"

[outputs]                    # the dtype of an input, a dtype, or "auto" for torch's promotion
y = "x"

[reference]                  # an independent oracle, for the emitted tests only
torch = "torch.nn.functional.leaky_relu(x, slope)"
"""

_REDUCTION = """\
[op]
name = "{name}"
summary = "{summary}"

[inputs]                     # dtype class or dtypes, then axes; `...` is any number of leading axes
x = "float[..., N]"

[compute]                    # a reduction names the axes that it is over
y = "sum(x * x, N)"

[outputs]                    # the dtype of an input, a dtype, or "auto" for torch's promotion
y = "x"

[reference]                  # an independent oracle, for the emitted tests only
torch = "(x * x).sum(-1)"
"""

_ROWWISE = """\
[op]
name = "{name}"
summary = "{summary}"

[inputs]                     # dtype class or dtypes, then axes; `...` is any number of leading axes
x = "float[..., N]"
weight = "float[N]"

[params]                     # scalars; they become keyword arguments
eps = 1e-6

[compute]                    # in order; every name is a tensor with named axes
rstd = "rsqrt(mean(x * x, N) + eps)"
y = "x * rstd * weight"

[outputs]                    # the dtype of an input, a dtype, or "auto" for torch's promotion
y = "x"

[reference]                  # an independent oracle, for the emitted tests only
torch = "torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps)"
"""

STARTERS = {
    "elementwise": (_ELEMENTWISE, "a ReLU with a slope for negative values"),
    "reduction": (_REDUCTION, "a sum of squares over the last axis"),
    "rowwise": (_ROWWISE, "a root-mean-square normalisation over the last axis"),
}


def starter(name: str, family: str, summary: str = "") -> str:
    """The text of a spec to start from, whose summary says of what is new what it starts as."""
    text, does = STARTERS[family]
    summary = summary or f"What {name} computes: for a start, {does}."
    return text.format(name=name, summary=summary)
