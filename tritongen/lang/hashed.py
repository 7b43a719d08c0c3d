"""Cached hashes, since planning looks up the same trees again and again."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar


class Hashed:
    """A frozen dataclass that computes its hash once."""

    __match_args__: ClassVar[tuple[str, ...]]  # its fields

    def __init_subclass__(cls) -> None:
        cls.__hash__ = Hashed.__hash__  # type: ignore[method-assign]  # A dataclass does not override it.

    def __hash__(self) -> int:
        return self.hashed

    @cached_property
    def hashed(self) -> int:
        return hash(tuple([getattr(self, name) for name in self.__match_args__]))
