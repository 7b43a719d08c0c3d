"""Functions of params on the host, in float64. Python raises where IEEE arithmetic has an infinity or NaN."""

import math


def divide(x: float, y: float) -> float:
    """x / y."""
    if y != 0:
        return x / y
    return (
        math.nan
        if x == 0 or x != x
        else math.copysign(math.inf, x) * math.copysign(1.0, y)
    )


def power(x: float, y: float) -> float:
    """x to the power of y."""
    if x == 0 and y < 0:
        return math.copysign(math.inf, x) if y % 2 == 1 else math.inf
    if -math.inf < x < 0 and abs(y) < math.inf and y % 1 != 0:
        return math.nan
    try:
        return float(x**y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf


def exp(x: float) -> float:
    """e to the power of x."""
    return math.inf if x > 709.782712893384 else math.exp(x)


def exp2(x: float) -> float:
    """2 to the power of x."""
    return math.inf if x >= 1024 else 2.0**x


def expm1(x: float) -> float:
    """exp(x) - 1."""
    return math.inf if x > 709.782712893384 else math.expm1(x)


def log(x: float) -> float:
    """The natural logarithm."""
    if x > 0:
        return math.log(x)
    return -math.inf if x == 0 else math.nan


def log2(x: float) -> float:
    """The logarithm to base 2."""
    if x > 0:
        return math.log2(x)
    return -math.inf if x == 0 else math.nan


def log1p(x: float) -> float:
    """log(1 + x)."""
    if x > -1:
        return math.log1p(x)
    return -math.inf if x == -1 else math.nan


def sqrt(x: float) -> float:
    """The square root."""
    return math.sqrt(x) if x >= 0 else math.nan


def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + exp(-x))
