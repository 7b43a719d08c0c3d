"""Functions that a patched file writes anew."""

import gc

import pytest

pytest.importorskip("torch")

from tritongen.patching.functions import _signature


def scaled(x: object, *, scale: float = 2.0) -> object:
    return (x, scale)


def test_a_function_is_found_in_a_process_that_froze_its_objects() -> None:
    gc.freeze()
    assert _signature(scaled.__code__) == "x, *, scale=2.0"
