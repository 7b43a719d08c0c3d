"""What is read of inputs that may be absent."""

from __future__ import annotations

import ast
import re

from ..lang.trees import literal
from ..nest.ir import Branch, Line
from ..spec.types import Input


def load_default(tensor: Input) -> str:
    """How a kernel spells the number that an absent optional input stands for."""
    return ast.unparse(literal(tensor.default))


# A load that masks with 0, of a dtype that is told.
_LOAD = re.compile(r"tl\.load\(([^ (),]+_ptr) \+ (.+), mask=([^,]+), other=0(?:\.0)?\)\.to\(([^()]+)\)")


def if_given(tensor: Input, name: str, value: str, otherwise: str) -> list[Line]:
    """What gives a name what is read of an optional input, or the number that stands for it."""
    load = _LOAD.fullmatch(value)
    if load and otherwise == load_default(tensor):
        pointer, offsets, mask, dtype = load.groups()
        return [Line(f"{name} = load_or({pointer}, {offsets}, {mask}, {otherwise}, {dtype})")]
    return [Line(f"{name} = {otherwise}"), Branch(f"{tensor.name}_ptr is not None", body=(Line(f"{name} = {value}"),))]
