"""The specs that `init` and `new` begin with, and the settings."""

from __future__ import annotations

SETTINGS = """\
# Paths are beside this file. See `tritongen --help`.
specs = ["specs"]
out = "generated"
line-length = 88
"""

_FRAME = """\
[op]
name = "{name}"
summary = "{summary}"

{math}
[outputs]                    # the dtype of an input, a dtype, or "auto" for torch's promotion
{outputs}
[reference]                  # an independent oracle, for the emitted tests only
torch = "{torch}"
"""
_INPUTS = "[inputs]                     # dtype class or dtypes, then axes; `...` is any number of leading axes\n"
_TYPES = '[types]                      # of one dtype, whichever it is\nT = "float"\n\n'
_GRAD = "\n[grad]                       # by which inputs there are gradients\nwrt = "

_ELEMENTWISE = """\
x = "float[...]"

[params]                     # scalars; they become keyword arguments
slope = 0.01

[compute]                    # in order; function names are torch's
y = "where(x > 0, x, slope * x)"
"""

_REDUCTION = """\
x = "float[..., N]"

[compute]                    # a reduction names the axes that it is over
y = "sum(x * x, N)"
"""

_ROWWISE = """\
x = "float[..., N]"
weight = "float[N]"

[params]                     # scalars; they become keyword arguments
eps = 1e-6

[compute]                    # in order; every name is a tensor with named axes
rstd = "rsqrt(mean(x * x, N) + eps)"
y = "x * rstd * weight"
"""

_MATMUL = """\
x = "T[..., K]"
weight = "T[N, K]"
bias = "T[N] = 0"            # may be left out

[compute]                    # a sum of products is a matmul; what follows is in the same kernel
y = "relu(sum(x * weight, K) + bias)"
"""

_ATTENTION = """\
[inputs]                     # queries M, keys and values N; `...` is any number of leading axes
q = "T[..., M, D]"
k = "T[..., N, D]"
v = "T[..., N, E]"

[params]                     # scalars; they become keyword arguments
scale = { type = "float" }

[compute]                    # one kernel, which stores no scores, whatever their math
s = "where(index(N) <= index(M), sum(q * k, D) * scale, -inf)"
o = "sum(softmax(s, N) * v, N)"
"""

# The schema by which editors complete and check specs; `init` writes it next to them.
SCHEMA = "spec.schema.json"
_SCHEMA_LINE = f"#:schema ./{SCHEMA}\n"

# For each family: its math, outputs and gradients, reference, and words for the summary.
STARTERS = {
    "elementwise": (
        _INPUTS + _ELEMENTWISE,
        'y = "x"\n',
        "torch.nn.functional.leaky_relu(x, slope)",
        "a ReLU with a slope for negative values",
    ),
    "reduction": (_INPUTS + _REDUCTION, 'y = "x"\n', "(x * x).sum(-1)", "a sum of squares over the last axis"),
    "rowwise": (
        _INPUTS + _ROWWISE,
        'y = "x"\n',
        "torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps)",
        "a root-mean-square normalisation over the last axis",
    ),
    "matmul": (
        _TYPES + _INPUTS + _MATMUL,
        f'y = "x"\n{_GRAD}["x", "weight", "bias"]\n',
        "torch.relu(torch.nn.functional.linear(x, weight, bias))",
        "a linear layer and a ReLU",
    ),
    "attention": (
        _TYPES + _ATTENTION,
        f'o = "q"\n{_GRAD}["q", "k", "v"]\n',
        "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)",
        "a causal attention",
    ),
}


def starter(name: str, family: str, summary: str = "", has_schema: bool = True) -> str:
    """The text of a spec to start from; by default its summary describes the math of this starter.

    With `has_schema`, its first line points editors to the schema in the same folder.
    """
    math, outputs, torch, does = STARTERS[family]
    summary = summary or f"What {name} computes: for a start, {does}."
    text = _FRAME.format(name=name, summary=summary, math=math, outputs=outputs, torch=torch)
    return (_SCHEMA_LINE if has_schema else "") + text
