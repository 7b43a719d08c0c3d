"""Bytes, operations and seconds as people read them."""

from __future__ import annotations

from collections.abc import Iterable

UNITS = ("", "k", "M", "G", "T", "P")


def bytes_of(number: int) -> str:
    return f"{scaled(number)}B"


def scaled(number: int) -> str:
    """An integer with three digits and a unit prefix: 33.6 M, 12 k, 7."""
    value, place = float(number), 0
    while value >= 999.5 and place + 1 < len(UNITS):
        value, place = value / 1000, place + 1
    return f"{value:.3g} {UNITS[place]}"


def time_of(seconds: float) -> str:
    unit, factor = ("s", 1.0) if seconds >= 1 else ("ms", 1e3) if seconds >= 1e-3 else ("us", 1e6)
    return f"{seconds * factor:,.3g} {unit}"


def lengths_text(lengths: Iterable[tuple[str, int]]) -> str:
    """The lengths of axes, equal ones grouped: M = N = 4,096, K = 64."""
    by_length: dict[int, list[str]] = {}
    for axis, length in lengths:
        by_length.setdefault(length, []).append(axis)
    return ", ".join(f"{' = '.join(axes)} = {length:,}" for length, axes in by_length.items()) or "one element"
