"""What is read of inputs that may be absent."""

from __future__ import annotations

from ..nest.access import Access
from ..nest.ir import Branch, Let, Line
from ..nest.values import Term, V, expr
from ..spec.types import Input


def if_given(tensor: Input, name: str, value: Access, otherwise: Term) -> list[Line]:
    """What gives a name what is read of an optional input, or the number that stands for it."""
    if otherwise is tensor.default and (call := value.instead(otherwise)):
        return [Let(name, call)]
    return [Let(name, expr(otherwise)), Branch(V[f"{tensor.name}_ptr"].is_given, (Let(name, value.value),))]
