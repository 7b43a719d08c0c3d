"""Peak rates of devices by their data sheets: memory bandwidth, and dense matmul operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

GIGA, TERA = 10**9, 10**12


@dataclass(frozen=True, slots=True)
class Device:
    """`flops` are operations a second by what is multiplied; "tf32" is float32 that is rounded first."""

    name: str
    bandwidth: int
    flops: Mapping[str, int]

    def peak(self, dtype: str, precision: str) -> float:
        """Operations a second of matmuls of a dtype, of float32 in a precision of the spec."""
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
    # Without tensor cores for float8, which is multiplied in float16.
    "a100": Device("A100 SXM 80GB", 2039 * GIGA, _flops(312, 624, 312, 156, 19.5, 19.5)),
}
