"""The math of a spec in torch, which emitted tests compare with if the spec has no reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tritongen.lang.typecheck import typecheck
from tritongen.spec.types import Spec
from tritongen.testing.oracle import own_lines, signature


def printed(spec: Spec) -> Callable[..., Any]:
    """A function of the spec's inputs and params."""
    op = typecheck(spec)
    lines = "\n    ".join(own_lines(spec, op))
    scope: dict[str, Any] = {"torch": torch, "math": math, "Any": Any}
    exec(f"def function({signature(op)}):\n    {lines}\n", scope)
    function: Callable[..., Any] = scope["function"]
    return function
