"""A spec that no single kernel computes, with its formula in torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

F = torch.nn.functional
SIZES = {"B": 3, "M": 37, "N": 45, "K": 33, "P": 21, "R": 5, "D": 18, "E": 8, "S": 19, "T": 23, "C": 6, "G": 4, "V": 7}
SIZES |= {"Q": 72, "L": 150}  # several tiles of a matmul


@dataclass(frozen=True)
class Case:
    """Axes of the inputs, lines of [compute], the outputs, and what torch computes."""

    inputs: str
    compute: str
    torch: Callable[..., object]
    outputs: str = "y"  # "y z:float32" for one of another dtype than torch's
    wrt: str = ""  # all that are float by default; "-" for no gradient
    schedule: str = ""

    def spec(self) -> Spec:
        return read_spec("steps.toml", self.text())

    def text(self) -> str:
        pairs = [entry.split(":") for entry in self.inputs.split("; ")]
        inputs = "\n".join(f'{name} = "{axes if axes.startswith("int") else f"T[{axes}]"}"' for name, axes in pairs)
        statements = (line.split(" = ", 1) for line in self.compute.split("\n"))
        lines = "\n".join(f'{name} = "{expression}"' for name, expression in statements)
        results = (one.partition(":") for one in self.outputs.split())
        outputs = "\n".join(f'{name} = "{dtype or "auto"}"' for name, _, dtype in results)
        grad = "" if self.wrt == "-" else f"[grad]\nwrt = {self.by()}\n".replace("'", '"')
        grad += f"[schedule]\n{self.schedule}\n"
        head = '[op]\nname = "steps"\nsummary = "Several steps."\n[types]\nT = "float"\n'
        return f"{head}[inputs]\n{inputs}\n[compute]\n{lines}\n[outputs]\n{outputs}\n{grad}"

    def by(self) -> list[str]:
        names = [entry.split(":")[0] for entry in self.inputs.split("; ") if ":int" not in entry]
        return self.wrt.split() or names

    def tensors(self, dtype: torch.dtype) -> list[torch.Tensor]:
        random = torch.Generator().manual_seed(0)
        made = []
        for entry in self.inputs.split("; "):
            _, axes = entry.split(":")
            shape = [_length(axis) for axis in axes.removeprefix("int64[").rstrip("]").split(", ") if axis]
            if axes.startswith("int"):
                made.append(torch.randint(0, 7, shape, generator=random))
            else:
                made.append(torch.randn(shape, generator=random, dtype=torch.float64).to(dtype))
        return made


def _length(dimension: str) -> int:
    """Of an axis, one of fixed length, or several that are a dimension."""
    terms = dimension.strip("()").split()
    return math.prod(int(term.partition("=")[2] or SIZES[term.partition("=")[0]]) for term in terms)


def rms(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
