"""Functions of the language, and device functions of the runtime, over the field.

Functions defined by algebra are computed by their definitions; the others are hashes. A device function approximates by
polynomials and tables, which mean nothing over the field, so that it is replaced by the function that it is named for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import field
from .field import Elements, absolute, add, div, embed, exp, hashed, inv, key, log, maximum, minimum, mul, neg, sub

ONE, HALF, ZERO = embed(1), embed(0.5), embed(0)


def sigmoid(x: Elements) -> Elements:
    return inv(add(ONE, exp(neg(x))))


def softplus(x: Elements, beta: Elements = ONE, threshold: Elements | None = None) -> Elements:
    scaled = mul(x, beta)
    soft = div(hashed("softplus")(scaled), beta)
    return soft if threshold is None else np.where(key(scaled) > key(threshold), x, soft)


def normal_cdf(x: Elements) -> Elements:
    return mul(HALF, add(ONE, hashed("erf")(mul(x, embed(0.7071067811865476)))))


def where_positive(x: Elements, then: Elements, other: Elements) -> Elements:
    return np.where(key(x) > 0, then, other)


def expm1(x: Elements) -> Elements:
    return sub(exp(x), ONE)


def log1p(x: Elements) -> Elements:
    return log(add(ONE, x))


def gelu_tanh(x: Elements) -> Elements:
    cubic = mul(x, add(ONE, mul(embed(0.044715), mul(x, x))))
    return mul(x, sigmoid(mul(embed(1.5957691216057308), cubic)))


tanh = hashed("tanh")


def sign(x: Elements) -> Elements:
    return np.where(field.is_nan(x), ZERO, embed(np.sign(key(x))))


# Functions of the language that are device functions, too.
_DEFINED: dict[str, Callable[..., Elements]] = {
    "silu": lambda x: mul(x, sigmoid(x)),
    "mish": lambda x: mul(x, tanh(softplus(x))),
    "softplus": softplus,
    "logsigmoid": lambda x: neg(softplus(neg(x))),
    "normal_cdf": normal_cdf,
    "gelu_tanh": gelu_tanh,
    "expm1": expm1,
    "tanh_half": tanh,
    "log1p": log1p,
    "logaddexp": lambda x, other: log(add(exp(x), exp(other))),
    "leaky_relu": lambda x, slope: where_positive(x, x, mul(x, slope)),
    "elu": lambda x, alpha: where_positive(x, x, mul(alpha, expm1(x))),
    "celu": lambda x, alpha: where_positive(x, x, mul(alpha, expm1(div(x, alpha)))),
    "selu": lambda x: where_positive(x, mul(embed(1.0507009873554805), x), mul(embed(1.7580993408473766), expm1(x))),
    "lerp": lambda x, end, weight: add(x, mul(weight, sub(end, x))),
    "floor_divide": lambda x, other: hashed("floor")(div(x, other)),
}
_HASHES = (
    "tanh sinh cosh asin acos atan atan2 asinh acosh atanh sinc erf erfc erfinv lgamma digamma "
    "logaddexp2 xlogy xlog1py remainder fmod power trunc round_even hypot copysign"
).split()
SAME: Mapping[str, Callable[..., Elements]] = {**_DEFINED, **{name: hashed(name) for name in _HASHES}}


def nan_to_num(x: Elements, nan: Any, posinf: Any, neginf: Any) -> Elements:
    """None for `posinf` or `neginf` is the largest value of a dtype, which as an element is infinity again."""
    largest = embed(np.float32(3e38)) if posinf is None else posinf
    lowest = embed(np.float32(-3e38)) if neginf is None else neginf
    kind = x >> field.KIND
    return np.where(kind == 1, nan, np.where(kind == 2, largest, np.where(kind == 3, lowest, x)))


_OF_FIELD = "add sub mul div neg sqrt rsqrt exp exp2 log log2 maximum minimum".split()
# Functions of the language only: kernels compute them by operations of Triton, which run over the field as they are.
OWN: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(field, name) for name in _OF_FIELD},
    **{name: hashed(name) for name in ("floor", "ceil", "sin", "cos")},
    "positive": lambda x: x,
    "detach": lambda x: x,
    "reciprocal": inv,
    "square": lambda x: mul(x, x),
    "abs": absolute,
    "sign": sign,
    "sgn": sign,
    "pow": hashed("power"),
    "round": hashed("round_even"),
    "frac": lambda x: sub(x, hashed("trunc")(x)),
    "log10": lambda x: mul(field.log2(x), embed(0.30102999566398120)),
    "tan": lambda x: div(hashed("sin")(x), hashed("cos")(x)),
    "deg2rad": lambda x: mul(x, embed(0.017453292519943295)),
    "rad2deg": lambda x: mul(x, embed(57.29577951308232)),
    "sigmoid": sigmoid,
    "logit": lambda x: log(div(x, sub(ONE, x))),
    "relu": lambda x: maximum(x, ZERO),
    "relu6": lambda x: minimum(maximum(x, ZERO), embed(6)),
    "gelu": lambda x: mul(x, normal_cdf(x)),
    "softsign": lambda x: div(x, add(ONE, absolute(x))),
    "hardtanh": lambda x, low, high: minimum(maximum(x, low), high),
    "hardsigmoid": lambda x: mul(minimum(maximum(add(x, embed(3)), ZERO), embed(6)), embed(0.16666666666666666)),
    "hardswish": lambda x: mul(x, OWN["hardsigmoid"](x)),
    "tanhshrink": lambda x: sub(x, tanh(x)),
    "softshrink": lambda x, lambd: sub(x, minimum(maximum(x, neg(lambd)), lambd)),
    "hardshrink": lambda x, lambd: np.where(key(absolute(x)) <= key(lambd), ZERO, x),
    "threshold": lambda x, threshold, value: np.where(key(x) <= key(threshold), value, x),
    "clamp": lambda x, low, high: minimum(maximum(x, low), high),
    "clamp_min": maximum,
    "clamp_max": minimum,
    "fmax": lambda x, y: np.where(field.is_nan(x), y, np.where(field.is_nan(y), x, maximum(x, y))),
    "fmin": lambda x, y: np.where(field.is_nan(x), y, np.where(field.is_nan(y), x, minimum(x, y))),
    "addcmul": lambda x, a, b, value: add(x, mul(value, mul(a, b))),
    "addcdiv": lambda x, a, b, value: add(x, mul(value, div(a, b))),
    "ldexp": lambda x, other: mul(x, field.exp2(other)),
    "nan_to_num": nan_to_num,
    "heaviside": lambda x, values: np.where(key(x) == 0, values, embed(key(x) > 0)),
}

FUNCTIONS: Mapping[str, Callable[..., Any]] = {**SAME, **OWN}


def _is_infinite(x: Elements) -> Any:
    return x >= field.POSITIVE


# Functions that return bools.
TESTS: Mapping[str, Callable[..., Any]] = {
    "eq": lambda x, y: field.is_equal(x, y) & ~field.is_nan(x),
    "ne": lambda x, y: ~field.is_equal(x, y) | field.is_nan(x),
    "lt": field.less,
    "le": lambda x, y: ~field.less(y, x) & ~field.is_nan(x) & ~field.is_nan(y),
    "gt": lambda x, y: field.less(y, x),
    "ge": lambda x, y: ~field.less(x, y) & ~field.is_nan(x) & ~field.is_nan(y),
    "isnan": field.is_nan,
    "isinf": _is_infinite,
    "isfinite": field.is_number,
    "isposinf": lambda x: x >> field.KIND == 2,
    "isneginf": lambda x: x >> field.KIND == 3,
}
