"""Elements that replace floats: pairs of residues, for which sums and products are exact.

An element is a residue modulo a prime P and a residue modulo the prime Q = (P - 1) / 2; both are the value of the same
formula. Sums and products are associative in any order, each nonzero element has an inverse, and a float is mapped as
a fraction of integers, so that 0.5 * 2 is 1. Powers of a generator of order Q make exp a homomorphism from the second
residues to the first: exp(a + b) = exp(a) * exp(b). log is its inverse but for the sign, which is stored. The result
of exp has no second residue. All other functions are hashes of the first residue, and so is exp of an element that
has no second one.

First residues above P / 2 are negative, so that `<` is a total order, from -inf to inf.

Elements are packed in uint64: the first residue in 21 bits, the second in 20, the sign of a logarithm in one, a mark of
what is rounded to half precision in one, and two bits that mark NaN, inf and -inf.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Elements = NDArray[np.uint64]
Bools = NDArray[np.bool_]

Q = 1048571
P = 2 * Q + 1
_U = np.uint64
SECOND, SIGN, KIND = _U(21), _U(41), _U(62)
_FIRST_BITS, _SECOND_BITS = _U(2**21 - 1), _U(2**20 - 1)
NONE = _U(2**20 - 1)  # no second residue
HALF = _U(1 << 42)  # rounded to half precision: moved with the element, and dropped by arithmetic
NAN, POSITIVE, NEGATIVE = _U(1 << 62), _U(2 << 62), _U(3 << 62)
_P, _Q, _ONE, _ZERO = _U(P), _U(Q), _U(1), _U(0)


@functools.cache
def _tables() -> tuple[Elements, Elements, Elements, Elements]:
    """Powers of a generator and discrete logarithms modulo P, then modulo Q; the logarithm of 0 is stored as 0."""
    found = []
    for prime in (P, Q):
        generator = _generator(prime)
        powers = np.ones(prime - 1, np.uint64)
        done, factor = 1, generator
        while done < prime - 1:
            more = min(done, prime - 1 - done)
            powers[done : done + more] = powers[:more] * _U(factor) % _U(prime)
            done, factor = done + more, factor * factor % prime
        logarithms = np.zeros(prime, np.uint64)
        logarithms[powers] = np.arange(prime - 1, dtype=np.uint64)
        found += [powers, logarithms]
    return found[0], found[1], found[2], found[3]


def _generator(prime: int) -> int:
    rest, factors, n = prime - 1, set[int](), 2
    while n * n <= rest:
        while rest % n == 0:
            factors.add(n)
            rest //= n
        n += 1
    factors |= {rest} - {1}
    return next(g for g in range(2, prime) if all(pow(g, (prime - 1) // one, prime) != 1 for one in factors))


# Components


def first(u: Elements) -> Elements:
    return u & _FIRST_BITS


def second(u: Elements) -> Elements:
    return (u >> SECOND) & _SECOND_BITS


def _sign(u: Elements) -> Elements:
    return (u >> SIGN) & _ONE


def packed(one: Elements, other: Elements, sign: Any = None) -> Elements:
    made = one | other << SECOND
    return made if sign is None else made | sign << SIGN


def is_number(u: Elements) -> Bools:
    return np.asarray(u >> KIND == 0)


def _all_numeric(*elements: Elements) -> bool:
    return all(u.size == 0 or u.max() < NAN for u in elements)


def is_equal(u: Elements, v: Elements) -> Bools:
    """Compare first residues, or kinds if one is NaN or infinite; second residues, which may be absent, are ignored."""
    numeric = is_number(u) & is_number(v)
    return np.asarray(np.where(numeric, first(u) == first(v), u >> KIND == v >> KIND))


# Conversion


@functools.cache
def _twos() -> tuple[Elements, Elements]:
    """The powers of two from 2**-1200 to 2**1199, modulo P and modulo Q."""
    return tuple(  # type: ignore[return-value]
        np.array([pow(2, power, prime) for power in range(-1200, 1200)], np.uint64) for prime in (P, Q)
    )


LN2, LOG2E = np.float32(0.6931471805599453), np.float32(1.4426950408889634)


LARGEST = 2.0**28


def embed(values: Any) -> Elements:
    """Elements of integers or bools, and of floats, which are rounded to float32 and mapped as fractions of integers.

    `LN2` becomes the inverse of `LOG2E`. Magnitudes from `LARGEST` on become infinities, since kernels use them so.
    """
    given = np.asarray(values)
    if given.dtype.kind in "iub":
        wide = given.astype(np.int64)
        return packed((wide % P).astype(np.uint64), (wide % Q).astype(np.uint64))
    floats = given.astype(np.float32)
    numeric = np.abs(floats) < LARGEST
    mantissas, exponents = np.frexp(np.where(numeric, floats, 0).astype(np.float64))
    integers, powers = (mantissas * 2.0**24).astype(np.int64), exponents - 24 + 1200
    residues = [
        (integers % prime).astype(np.uint64) * two[powers] % _U(prime)
        for prime, two in zip((P, Q), _twos(), strict=True)
    ]
    made = packed(*residues)
    is_ln2 = np.abs(floats) == LN2
    if is_ln2.any():
        inverse = inv(embed(LOG2E))
        made = np.where(is_ln2, np.where(floats < 0, neg(inverse), inverse), made)
    made = np.where(numeric, made, np.where(np.isnan(floats), NAN, np.where(floats > 0, POSITIVE, NEGATIVE)))
    return np.asarray(made, np.uint64)


def integers(u: Elements) -> NDArray[np.int64]:
    """The integer of least magnitude for each first residue; -2**40 for NaN and infinities."""
    return np.where(is_number(u), _signed(u), -(2**40))


def _signed(u: Elements) -> NDArray[np.int64]:
    value = first(u).astype(np.int64)
    return np.where(value > Q, value - P, value)


def key(u: Elements) -> NDArray[np.int64]:
    """Integers that order elements, with infinities at the ends; NaN has an arbitrary key."""
    value = _signed(u)
    if _all_numeric(u):
        return value
    kind = u >> KIND
    return np.where(kind == 2, 2**40, np.where(kind == 3, -(2**40), value))


def is_nan(u: Elements) -> Bools:
    return np.asarray(u >> KIND == 1)


# Arithmetic


def _below(sums: Elements, prime: np.uint64) -> Elements:
    return np.where(sums >= prime, sums - prime, sums)


def add(u: Elements, v: Elements) -> Elements:
    one = _below(first(u) + first(v), _P)
    a, b = second(u), second(v)
    other = np.where((a == NONE) | (b == NONE), NONE, _below(a + b, _Q))
    made = packed(one, other, _sign(u) ^ _sign(v))
    if _all_numeric(u, v):
        return made
    one_kind, other_kind = u >> KIND, v >> KIND
    made = np.where(one_kind > 1, u, np.where(other_kind > 1, v, made))
    opposite = (one_kind > 1) & (other_kind > 1) & (one_kind != other_kind)
    return np.where((one_kind == 1) | (other_kind == 1) | opposite, NAN, made)


def neg(u: Elements) -> Elements:
    one, other = first(u), second(u)
    made = packed(
        np.where(one == 0, _ZERO, _P - one),
        np.where((other == 0) | (other == NONE), other, _Q - np.minimum(other, _Q)),
        _sign(u),
    )
    kind = u >> KIND
    return np.where(kind > 1, np.where(kind == 2, NEGATIVE, POSITIVE), np.where(kind == 1, NAN, made))


def sub(u: Elements, v: Elements) -> Elements:
    return add(u, neg(v))


def mul(u: Elements, v: Elements) -> Elements:
    one = first(u) * first(v) % _P
    a, b = second(u), second(v)
    other = np.where((a == NONE) | (b == NONE), NONE, a * b % _Q)
    made = packed(one, other, _sign(u) ^ _sign(v))
    if _all_numeric(u, v):
        return made
    return _infinite_product(u, v, made)


def _infinite_product(u: Elements, v: Elements, made: Elements) -> Elements:
    """Products with an infinity: 0 gives NaN, -1 and -inf flip its sign, any other element keeps it; else `made`."""
    flips, zero = np.zeros(1, bool), np.zeros(1, bool)
    for one in (u, v):
        kind = one >> KIND
        flips = flips ^ (kind == 3) ^ ((kind == 0) & (first(one) == _P - _ONE))
        zero = zero | ((kind == 0) & (first(one) == 0))
    is_infinite = (u >= POSITIVE) | (v >= POSITIVE)
    made = np.where(is_infinite, np.where(zero, NAN, np.where(flips, NEGATIVE, POSITIVE)), made)
    return np.where(is_nan(u) | is_nan(v), NAN, made)


def inv(u: Elements) -> Elements:
    powers, logs, powers_q, logs_q = _tables()
    one, other = first(u), second(u)
    up = powers[(_U(P - 1) - logs[one]) % _U(P - 1)]
    low = np.where(other < _Q, other, _ONE)
    down = powers_q[(_U(Q - 1) - logs_q[low]) % _U(Q - 1)]
    made = packed(up, np.where((other == NONE) | (other == 0), NONE, down), _sign(u))
    return np.where(u >> KIND > 1, _ZERO, np.where((u >> KIND == 1) | (one == 0), NAN, made))


def div(u: Elements, v: Elements) -> Elements:
    return mul(u, inv(v))


def fma(u: Elements, v: Elements, w: Elements) -> Elements:
    return add(mul(u, v), w)


# Functions


def exp(u: Elements) -> Elements:
    powers = _tables()[0]
    other = second(u)
    by_hash = hashed("exp")(u)
    known = powers[_U(2) * np.where(other == NONE, _ZERO, other)]
    known = np.where(_sign(u) == 1, _P - known, known)
    made = packed(np.where(other == NONE, first(by_hash), known), np.asarray(NONE))
    kind = u >> KIND
    return np.where(kind == 0, made, np.where(kind == 3, _ZERO, u))


def log(u: Elements) -> Elements:
    """The inverse of exp in the second residue and sign. The first is a hash: not a homomorphism, but enough for the
    sum of exponentials that are rescaled to one maximum.
    """
    logs = _tables()[1][first(u)]
    odd = logs & _ONE
    half = np.where(odd == 1, (logs + _Q) % _U(P - 1), logs) >> _ONE
    made = packed(first(hashed("log")(u)), half, odd)
    kind = u >> KIND
    made = np.where(first(u) == 0, NEGATIVE, made)
    return np.where(kind == 0, made, np.where(kind == 2, u, NAN))


@functools.cache
def _log2e() -> tuple[Elements, Elements]:
    log2e = embed(LOG2E)
    return log2e, inv(log2e)


def exp2(u: Elements) -> Elements:
    return exp(mul(u, _log2e()[1]))


def log2(u: Elements) -> Elements:
    return mul(log(u), _log2e()[0])


def rsqrt(u: Elements) -> Elements:
    return inv(sqrt(u))


def mixed(u: Elements, salt: np.uint64) -> Elements:
    with np.errstate(over="ignore"):
        u = (u ^ salt) * _U(0xBF58476D1CE4E5B9)
        u ^= u >> _U(31)
        u = u * _U(0x94D049BB133111EB)
        return u ^ (u >> _U(29))


@functools.cache
def hashed(name: str) -> Callable[..., Elements]:
    """A pseudorandom function determined by its name: NaN if an argument is NaN, else a finite element."""
    salt = _U(int.from_bytes(name.encode()[:7].ljust(7, b"."), "little"))

    def of(*args: Elements) -> Elements:
        bits = np.full((), salt)
        for u in args:
            bits = mixed(bits ^ np.where(is_number(u), first(u), u), salt)
        made = packed(bits % _P, (bits >> _U(24)) % _Q)
        return np.where(functools.reduce(np.logical_or, map(is_nan, args)), NAN, made)

    return of


sqrt = hashed("sqrt")


def less(u: Elements, v: Elements) -> Bools:
    return (key(u) < key(v)) & ~is_nan(u) & ~is_nan(v)


def maximum(u: Elements, v: Elements) -> Elements:
    return np.where(is_nan(u) | is_nan(v), NAN, np.where(key(u) < key(v), v, u))


def minimum(u: Elements, v: Elements) -> Elements:
    return np.where(is_nan(u) | is_nan(v), NAN, np.where(key(v) < key(u), v, u))


def absolute(u: Elements) -> Elements:
    return np.where(is_nan(u), u, np.where(key(u) < 0, neg(u), u))


# Reductions


def total(u: Elements, axis: Any, keepdims: bool = False) -> Elements:
    def along(values: NDArray[Any], by: Any = np.sum) -> NDArray[Any]:
        return np.asarray(by(values, axis=axis, keepdims=keepdims))

    a = second(u)
    none = a == NONE
    one = along(first(u)) % _P
    other = np.where(along(none, np.any), NONE, along(np.where(none, _ZERO, a)) % _Q)
    made = packed(one, other, np.asarray(along(_sign(u))) & _ONE)
    if _all_numeric(u):
        return made
    nan, up, down = (along(u >> KIND == kind, np.any) for kind in (1, 2, 3))
    made = np.where(up, POSITIVE, np.where(down, NEGATIVE, made))
    return np.where(nan | (up & down), NAN, made)


def running(u: Elements, axis: int) -> Elements:
    """Cumulative sums along an axis, of finite elements."""
    a = second(u)
    none = a == NONE
    one = np.cumsum(first(u), axis=axis) % _P
    other = np.cumsum(np.where(none, _ZERO, a), axis=axis) % _Q
    return packed(one, np.where(np.logical_or.accumulate(none, axis=axis), NONE, other))


def extreme(u: Elements, axis: Any, largest: bool, keepdims: bool = False) -> Elements:
    if axis is None:
        flat = extreme(u.reshape(-1), 0, largest)
        return flat.reshape((1,) * u.ndim) if keepdims else flat
    order = np.where(is_nan(u), 2**41 if largest else -(2**41), key(u))
    at = (np.argmax if largest else np.argmin)(order, axis=axis)
    found = np.take_along_axis(u, np.expand_dims(at, axis), axis)
    return found if keepdims else found.squeeze(axis)


_TERMS = 2048  # products of 42 bits whose sum is exact in float64


def matmul(u: Elements, v: Elements) -> Elements:
    """Matmuls, exact in float64 by chunks of `_TERMS`; rows and columns with NaN or infinities give NaN."""

    def product(one: Elements, other: Elements, prime: np.uint64) -> Elements:
        found = np.zeros((), np.uint64)
        for start in range(0, one.shape[-1], _TERMS):
            left, right = one[..., start : start + _TERMS], other[..., start : start + _TERMS, :]
            partial = np.matmul(left.astype(np.float64), right.astype(np.float64))
            found = (found + partial.astype(np.uint64)) % prime
        return np.asarray(found)

    a, b = second(u), second(v)
    none = np.any(a == NONE, -1, keepdims=True) | np.any(b == NONE, -2, keepdims=True)
    other = product(np.where(a == NONE, _ZERO, a), np.where(b == NONE, _ZERO, b), _Q)
    made = packed(product(first(u), first(v), _P), np.where(none, NONE, other))
    if _all_numeric(u, v):
        return made
    odd = np.any(~is_number(u), -1, keepdims=True) | np.any(~is_number(v), -2, keepdims=True)
    return np.where(odd, NAN, made)
