"""Hints for names of torch, numpy and Python: how this language writes the same, or that it cannot.

In an answer, {x}, {y} and {z} are the first arguments as written (for a method, {x} is its object), {N} is the axis
that the call gives or the last axis of {x}, {M} the second to last axis of {x}, {K} the axis that {x} and {y} share if
it is only one, {axes} all axes of {x}, and {plus} is ` + {y}` if there is a second argument.
"""

from __future__ import annotations

_MATMUL = "write sum({x} * {y}, {K}): the product, summed over the axis that both have"
_JOINED = "there is no concatenation: return the parts as several results, each under its name in [outputs]"
_BY_NAME = "there is no need: values broadcast by the names of their axes"
_ORDER = 'axes are matched by name: [outputs] states the order of a result, as in y = "auto[{N}, {M}]"'
_SHAPE = "axes have names: a dimension that is a group of them is (H D) in [inputs] and [outputs]"
_RANDOM = "there are no random numbers: make them an input"
_SORTED = "write sort(x, {N}), and take the element at a position of it: take(s, (size({N}) - 1) // 2, {N})"
_NUMBER = "write the number itself, which broadcasts: 0.0, 1.0"
_SLICE = "write take({x}, index(P) + start, {N}), with P an axis of an input that is as long as the part"
_SCATTER = "write scatter_sum(x, i, V), with V the axis of the result that i is a position along"
_WINDOW = "write take({x}, index(P) + index(R), {N}), a window of R at each P, both of them axes of inputs"
_CONVOLUTION = "write sum(take(x, index(P) + index(R), N) * w, C, R), with P an axis of an input"
_POOLING = "write max(take({x}, index(P) * size(R) + index(R), {N}), R), with P and R axes of inputs"
_REPEATED = "write take({x}, index(P) % size({N}), {N}), with P a longer axis of an input"
_NOT_NEEDED = "leave it out: every result is a new tensor of its own"
_NO_SCAN = "the scans along an axis are cumsum, cumprod and recurrence"
_LENGTH = "write size({N}) for the length of an axis"

# By the name of a function, a method or an attribute.
ANSWERS: dict[str, str] = {
    **dict.fromkeys("matmul mm bmm mv dot vdot inner tensordot".split(), _MATMUL),
    "einsum": "write the product and its sum, as in sum(a * b, K): letters that the result lacks are summed over",
    "outer": "write {x} * {y}: values broadcast by the names of their axes",
    "linear": "write sum({x} * {y}, {K}) + bias, over the axis that both have",
    **dict.fromkeys("cat concat concatenate hstack vstack stack column_stack".split(), _JOINED),
    **dict.fromkeys("split chunk unbind tensor_split".split(), _SLICE),
    **dict.fromkeys("arange range linspace".split(), "write index(N) for the positions along an axis of an input"),
    **dict.fromkeys("rand randn randint rand_like randn_like bernoulli multinomial normal".split(), _RANDOM),
    "dropout": "there are no random numbers: make the mask an input, and write where(mask, {x} / (1 - p), 0.0)",
    **dict.fromkeys("msort kthvalue median quantile".split(), _SORTED),
    "layer_norm": "write ({x} - mean({x}, {N})) * rsqrt(var({x}, {N}, correction=0) + eps)",
    "rms_norm": "write {x} * rsqrt(mean({x} * {x}, {N}) + eps)",
    **dict.fromkeys(
        "group_norm batch_norm instance_norm".split(),
        "write (x - mean(x, N)) * rsqrt(var(x, N, correction=0) + eps), over all axes that share their statistics",
    ),
    "normalize": "write {x} / maximum(norm({x}, {N}), 1e-12)",
    **dict.fromkeys("reshape view flatten unflatten ravel".split(), _SHAPE),
    **dict.fromkeys("transpose permute swapaxes movedim moveaxis t T mT H".split(), _ORDER),
    **dict.fromkeys("flip fliplr flipud".split(), "write take({x}, size({N}) - 1 - index({N}), {N})"),
    "roll": "write take({x}, (index({N}) - {y}) % size({N}), {N})",
    **dict.fromkeys("gather index_select take_along_dim".split(), "write take({x}, i, {N}), with i an integer input"),
    "embedding": "write take(weight, i, V), with V the axis of weight that i is a position along",
    "select": "write take({x}, {z}, {N})",
    "narrow": _SLICE,
    "one_hot": "write {x} == index(V), with V an axis of an input",
    **dict.fromkeys("scatter scatter_add index_add index_put bincount segment_sum scatter_reduce".split(), _SCATTER),
    **dict.fromkeys("squeeze unsqueeze expand expand_as broadcast_to view_as reshape_as".split(), _BY_NAME),
    "pad": "choose by the position: where((i >= 0) & (i < size({N})), take({x}, i, {N}), 0.0), with i = index(P) - 1",
    "unfold": _WINDOW,
    **dict.fromkeys("repeat tile".split(), _REPEATED),
    "repeat_interleave": "write take({x}, index(P) // {y}, {N}), with P a longer axis of an input",
    **dict.fromkeys("conv1d conv2d conv3d convolution".split(), _CONVOLUTION),
    **dict.fromkeys("max_pool1d max_pool2d max_pool3d".split(), _POOLING),
    **dict.fromkeys("avg_pool1d avg_pool2d avg_pool3d".split(), _POOLING.replace("max(", "mean(")),
    **dict.fromkeys("zeros ones full empty zeros_like ones_like full_like empty_like tensor".split(), _NUMBER),
    **dict.fromkeys("len shape".split(), _LENGTH),
    "numel": "write size({axes}), the number of elements over these axes",
    "masked_fill": "write where({y}, {z}, {x})",
    **dict.fromkeys("contiguous clone cpu cuda".split(), _NOT_NEEDED),
    "item": "there is no need: a tensor without axes is a number of the caller's, float[] in [inputs]",
    **dict.fromkeys("dtype type_as".split(), "write cast(value, x) for a value in the dtype of the input x"),
    "device": "there are no devices: results are where the inputs are",
    "print": "there is none: [schedule] fuse = false stores each line, so that op.py can show it",
    "tril": "write where(index({N}) <= index({M}){plus}, {x}, 0)",
    "triu": "write where(index({N}) >= index({M}){plus}, {x}, 0)",
    **dict.fromkeys("cummax cummin logcumsumexp".split(), _NO_SCAN),
    "diff": "write take({x}, index(P) + 1, {N}) - take({x}, index(P), {N}), with P an axis of an input",
    **dict.fromkeys("diag diagonal trace".split(), "write take({x}, index({M}), {N}) for the diagonal"),
    "swish": "write silu({x})",
    "logistic": "write sigmoid({x})",
    "quick_gelu": "write {x} * sigmoid(1.702 * {x})",
    **dict.fromkeys("gelu_new gelu_fast gelu_pytorch_tanh".split(), "write gelu_tanh({x})"),
    **dict.fromkeys("relu2 relu_squared squared_relu".split(), "write square(relu({x}))"),
    **dict.fromkeys("invsqrt inv_sqrt inverse_sqrt".split(), "write rsqrt({x})"),
    **dict.fromkeys("inv rcp recip".split(), "write reciprocal({x})"),
    "ln": "write log({x})",
    "swiglu": "write silu({x}) * {y}",
    "geglu": "write gelu({x}) * {y}",
    "scaled_dot_product_attention": "write sum(softmax(sum(q * k, D) * scale, N) * v, N)",
    "cross_entropy": "write logsumexp({x}, V) - take({x}, target, V), with V the axis of the classes",
    "nll_loss": "write -take({x}, target, V), with V the axis of the classes",
    "mse_loss": "write mean(square({x} - {y}), {N})",
    "l1_loss": "write mean(abs({x} - {y}), {N})",
    "cosine_similarity": "write sum({x} * {y}, {N}) / (norm({x}, {N}) * norm({y}, {N}))",
    "std_mean": "write std({x}, {N}) and mean({x}, {N}), on a line each",
    "var_mean": "write var({x}, {N}) and mean({x}, {N}), on a line each",
    **dict.fromkeys(
        "values indices".split(), "max, sort and topk give elements alone; argmax, argsort and argtopk their positions"
    ),
    "topk": "write topk({x}, K, {N}), with an axis of [axes] for as many as there are, K = 8",
    **dict.fromkeys(("sort", "argsort"), "write sort({x}, {N}), and argsort({x}, {N}) for the positions"),
    "unique": "there is no result of a length that values decide: write sort(x, N)",
    "nonzero": "there is no result of a length that values decide: write where(condition, x, 0)",
}

# Keywords of functions in torch and numpy, by the function ("" for any reduction) and the keyword.
KEYWORDS: dict[tuple[str, str], str] = {
    **{("", name): "axes follow the value by name: {form}" for name in ("dim", "axis")},
    **{
        ("", name): "there is no need: what was reduced broadcasts by the names of its axes"
        for name in ("keepdim", "keepdims")
    },
    ("", "unbiased"): "write correction=0 for unbiased=False; correction=1 is the default",
    ("", "ddof"): "write correction=0 for ddof=0; correction=1 is the default",
    ("", "dtype"): "cast the value: {name}(cast(x, float32), N)",
    ("gelu", "approximate"): "write gelu_tanh(x) for approximate='tanh', gelu(x) for 'none'",
    ("relu", "inplace"): "leave it out: every result is a new tensor",
}

# The position of the first argument that is an axis, if there is one; for reductions it is 1.
AXIS_AT = {"size": 1, "shape": 1, "flip": 1, "gather": 1, "index_select": 1, "select": 1, "narrow": 1, "roll": 2}
AXIS_AT |= {"sort": 1, "argsort": 1, "topk": 2, "repeat_interleave": 2, "layer_norm": 1, "rms_norm": 1}

# Modules that qualify the names of functions in torch, numpy and jax.
MODULES = frozenset("torch np numpy math F tl nn functional jnp jax special linalg".split())

# Functions and methods that cast in torch, numpy and Python, with the dtype to suggest.
CASTS = {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "long": "int64"}
CASTS |= {"bool": "bool", "bfloat16": "bfloat16", "to": "float32", "type": "float32", "astype": "float32"}
