"""Peak rates of devices, memory bandwidth and dense matmul operations: from data sheets, or given by the user."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..diagnostics.report import BadOption, did_you_mean

GIGA, TERA = 10**9, 10**12
LAUNCH = 2e-6  # seconds that a kernel takes at least, from its launch to the next one's


@dataclass(frozen=True, slots=True)
class Device:
    """`flops` are operations per second by dtype of the operands; "tf32" is float32 that is rounded first."""

    name: str
    bandwidth: int
    flops: Mapping[str, int]

    def peak(self, dtype: str, precision: str) -> float:
        """Operations per second of matmuls of a dtype; for float32, in the `precision` of the spec."""
        if dtype == "float32" and precision != "ieee":
            kind, _, pairs = precision.partition("x")
            return self.flops["bfloat16" if kind == "bf16" else kind] / int(pairs or 1)
        kind = "float8" if dtype.startswith("float8") else dtype
        return self.flops.get(kind, self.flops["float16"])


def _flops(half: int, byte: int, float8: int, tf32: int, single: float, double: float) -> dict[str, int]:
    named = {"float16": half, "bfloat16": half, "int8": byte, "float8": float8, "tf32": tf32}
    return {name: int(each * TERA) for name, each in {**named, "float32": single, "float64": double}.items()}


_HOPPER = _flops(989, 1979, 1979, 494, 67, 67)
DEVICES = {
    "h100": Device("H100 SXM", 3350 * GIGA, _HOPPER),
    "h200": Device("H200 SXM", 4800 * GIGA, _HOPPER),
    "b200": Device("B200 SXM", 8000 * GIGA, _flops(2250, 4500, 4500, 1100, 75, 37)),
    "mi300x": Device("MI300X", 5300 * GIGA, _flops(1307, 2615, 2615, 654, 163, 163)),
    # Without tensor cores for float8, which is multiplied in float16.
    "a100": Device("A100 SXM 80GB", 2039 * GIGA, _flops(312, 624, 312, 156, 19.5, 19.5)),
}

# Relative to the rate of half precision, if only that is given.
_RELATIVE_RATES = {
    "float8": 2,
    "int8": 2,
    "float16": 1,
    "bfloat16": 1,
    "tf32": 1 / 2,
    "float32": 1 / 16,
    "float64": 1 / 16,
}
_RATE = re.compile(r"(?:(\w+) ?= ?)?(\d+(?:\.\d+)?) ?([GTP])(B|FLOP)/s", re.ASCII)
_UNITS = {"G": GIGA, "T": TERA, "P": 1000 * TERA}
EXAMPLE = "3.3TB/s,990TFLOP/s"


class BadDevice(BadOption):
    """An unknown device, or rates that cannot be parsed."""

    option = "--device"


def device_of(text: str) -> Device:
    """A device by its name, or by its rates: `3.3TB/s,990TFLOP/s,float32=67TFLOP/s`. Raises `BadDevice`."""
    if text in DEVICES:
        return DEVICES[text]
    if text.isalnum():
        hint = did_you_mean(text, DEVICES, f"known are {', '.join(DEVICES)}; your own is {EXAMPLE}")
        raise BadDevice(f"there is no device {text!r}; {hint}")
    rates: dict[str, int] = {}
    for entry in (one.strip() for one in text.split(",")):
        name, rate = _rate(entry)
        if name in rates:
            raise BadDevice(f"{entry!r} is the second rate of {name}")
        rates[name] = rate
    for name, what in (("bytes", "its bandwidth"), ("float16", "the rate of its matmuls in half precision")):
        if not rates.get(name):
            raise BadDevice(f"{text!r} lacks {what}; write bandwidth and rate, as in {EXAMPLE}")
    bandwidth = rates.pop("bytes")
    derived = {name: int(rates["float16"] * ratio) for name, ratio in _RELATIVE_RATES.items()}
    return Device(text, bandwidth, {**derived, **rates})


def _rate(text: str) -> tuple[str, int]:
    """The key of a rate, "bytes" or a dtype, and the rate per second."""
    found = _RATE.fullmatch(text)
    if found is None:
        raise BadDevice(f"{text!r} is no rate such as 3.3TB/s, 990TFLOP/s or float32=67TFLOP/s")
    name, number, unit, of = found.groups()
    if name is not None and (of == "B" or name not in _RELATIVE_RATES):
        hint = did_you_mean(name, _RELATIVE_RATES, f"matmuls are of {', '.join(_RELATIVE_RATES)}")
        raise BadDevice(f"{text!r} is the rate of no dtype; {hint}")
    return name or ("bytes" if of == "B" else "float16"), int(float(number) * _UNITS[unit])
