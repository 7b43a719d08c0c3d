"""Elementwise operators."""

from __future__ import annotations

from typing import Any

from ...lang.functions import FUNCTIONS
from ..building import Building
from ..expressions import Apply, Input, Number, Word, bare, subexpressions
from ..naming import reachable
from ..refusals import Refusal
from ..table import operator
from ..values import Value, dtype_name

# Torch's other names for functions of the language.
_OTHER_NAMES = dict(
    pair.split(":")
    for pair in """
    absolute:abs arccos:acos arcsin:asin arctan:atan arctan2:atan2 arccosh:acosh arcsinh:asinh arctanh:atanh
    subtract:sub true_divide:div divide:div negative:neg greater:gt greater_equal:ge less:lt less_equal:le
    not_equal:ne gammaln:lgamma expit:sigmoid log_sigmoid:logsigmoid fix:trunc __and__:bitwise_and __or__:bitwise_or
    __xor__:bitwise_xor __lshift__:bitwise_left_shift __rshift__:bitwise_right_shift
    """.split()
)
_OWN = frozenset(
    """add mul sub div pow clamp clamp_min clamp_max gelu where maximum minimum logit addcmul addcdiv square detach
    softplus round positive reciprocal""".split()
)


def _plain(name: str) -> Any:
    """The builder of an operator that the language has with the same arguments."""
    arguments = [one.name for one in FUNCTIONS[name].args]

    def build(t: Building, *args: Any, **options: Any) -> Value:
        given = [one for one in args if one is not None]
        if len(given) > len(arguments):
            raise Refusal(f"`{name}` with options that the language does not have")
        named = {("value" if one == "value" else one): value for one, value in options.items() if one in arguments}
        return t.apply(name, *given, **named)

    return build


for _name in FUNCTIONS:
    if _name not in _OWN:
        operator(_name)(_plain(_name))
for _other, _name in _OTHER_NAMES.items():
    if _name not in ("sub", "div", "mul"):
        operator(_other)(_plain(_name))


operator("log_sigmoid_forward")(lambda t, x: (t.apply("logsigmoid", x), None))


@operator("add", "sub", "subtract")
def _add(t: Building, x: Any, other: Any, alpha: Any = 1) -> Value:
    if t.packet.startswith("sub"):
        return t.apply("sub", x, _scaled(t, other, alpha))
    return t.apply("add", *_ordered(t, x, _scaled(t, other, alpha)))


operator("mul", "multiply")(lambda t, x, other: t.apply("mul", *_ordered(t, x, other)))


def _ordered(t: Building, x: Any, other: Any) -> tuple[Any, Any]:
    """Two operands in the order of the source, since torch puts numbers after tensors."""
    return (other, x) if not isinstance(other, Value) and t.is_number_first() else (x, other)


def _scaled(t: Building, value: Any, alpha: Any) -> Any:
    return value if alpha == 1 else t.apply("mul", alpha, value)


@operator("div", "divide", "true_divide")
def _div(t: Building, x: Any, other: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode == "floor":
        return t.apply("floor_divide", x, other)
    quotient = t.apply("div", x, other)
    return quotient if rounding_mode is None else t.apply("trunc", quotient)


operator("reciprocal")(lambda t, x: t.apply("div", 1, x))
operator("square")(lambda t, x: squared(t, x))


@operator("pow")
def _pow(t: Building, x: Any, exponent: Any) -> Value:
    if isinstance(x, Value) and isinstance(exponent, int | float):
        if not isinstance(t.number(exponent), Number):
            return t.apply("pow", x, exponent)
        if exponent == int(exponent):
            exponent = int(exponent)
        if exponent == 2:
            return squared(t, x)
        if exponent in _ROOTS:
            return t.apply(_ROOTS[exponent], x)
        if exponent == 1:
            return x
    return t.apply("pow", x, exponent)


_ROOTS = {0.5: "sqrt", -0.5: "rsqrt"}


def squared(t: Building, x: Value) -> Value:
    """`x * x` if x is an input or a named line, else `square(x)`."""
    simple = isinstance(bare(x.expr), Input) or x.expr is not bare(x.expr)
    return t.apply("mul", x, x) if simple else t.apply("square", x)


operator(*"positive clone contiguous alias lift_fresh lift resolve_conj resolve_neg".split())(lambda t, x: x)


@operator("detach")
def _detach(t: Building, x: Value) -> Value:
    reads = x.dtype.is_floating_point and any(isinstance(one, Input) for one in reachable([x.expr]))
    return x.of(Apply("detach", (x.expr,))) if reads else x


@operator("dropout", "native_dropout", "alpha_dropout", "feature_dropout")
def _dropout(t: Building, x: Value, p: float = 0.5, train: bool = True) -> Value:
    if train and p:
        raise Refusal("dropout in training: the language has no random numbers", "call .eval() or give p=0")
    return x


operator("gelu")(lambda t, x, approximate="none": t.apply("gelu_tanh" if approximate == "tanh" else "gelu", x))


@operator("softplus")
def _softplus(t: Building, x: Value, beta: Any = 1, threshold: Any = 20) -> Value:
    options = {"beta": beta} if beta != 1 else {}
    return t.apply("softplus", x, **options, **({"threshold": threshold} if threshold != 20 else {}))


@operator("clamp", "clip")
def _clamp(t: Building, x: Value, min: Any = None, max: Any = None) -> Value:
    if min is None or max is None:
        bound = max if min is None else min
        function = "minimum" if min is None else "maximum"
        return t.apply(function if isinstance(bound, Value) else "clamp_max" if min is None else "clamp_min", x, bound)
    return t.apply("clamp", x, min, max)


operator("clamp_min")(lambda t, x, min: _clamp(t, x, min))
operator("clamp_max")(lambda t, x, max: _clamp(t, x, None, max))
operator("maximum", "max.other")(lambda t, x, other: t.apply("maximum", x, other))
operator("minimum", "min.other")(lambda t, x, other: t.apply("minimum", x, other))
operator("logit")(lambda t, x, eps=None: t.apply("logit", x if eps is None else t.apply("clamp", x, eps, 1 - eps)))


@operator("round")
def _round(t: Building, x: Value, decimals: int = 0) -> Value:
    if not decimals:
        return t.apply("round", x)
    scale = 10.0**decimals
    return t.apply("div", t.apply("round", t.apply("mul", x, scale)), scale)


@operator("addcmul", "addcdiv")
def _addcmul(t: Building, x: Value, tensor1: Value, tensor2: Value, value: Any = 1) -> Value:
    return t.apply("add", x, _scaled(t, t.apply(t.packet.removeprefix("addc"), tensor1, tensor2), value))


operator("where")(lambda t, condition, x, other: t.apply("where", condition, x, other))


@operator("masked_fill")
def _masked_fill(t: Building, x: Value, mask: Value, value: Any) -> Value:
    keep_mask = bare(mask.expr)
    if isinstance(keep_mask, Apply) and keep_mask.function in ("bitwise_not", "logical_not"):
        return t.apply("where", mask.of(subexpressions(keep_mask)[0]), x, value)
    return t.apply("where", mask, value, x)


operator("to", "_to_copy")(lambda t, x, *_, **__: cast(t, x, t.dtype))


def cast(t: Building, x: Value, dtype: Any) -> Value:
    """A value in another dtype; a cast among floats changes no expression, since only results are rounded."""
    if x.dtype == dtype:
        return x
    if x.dtype.is_floating_point and dtype.is_floating_point:
        return Value(x.expr, x.dims, dtype, x.natural)
    return Value(Apply("cast", (x.expr, Word(dtype_name(dtype)))), x.dims, dtype, dtype)
