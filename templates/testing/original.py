# mypy: allow-untyped-calls
"""Specs that restate a function or module: compared with the original where it is installed."""

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .harness import Harness, Shape, each, results


class InFloat64(TorchDispatchMode):
    """Casts of float64 to narrower floats leave it as it is, so that an oracle rounds nothing."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        is_cast = func is torch.ops.aten._to_copy.default
        dtype = kwargs.get("dtype") if is_cast else None
        if dtype and dtype.is_floating_point and args[0].dtype == torch.float64:
            kwargs = {**kwargs, "dtype": torch.float64}
        return func(*args, **kwargs)


class OriginalTests(Harness):
    """The function or module that the spec restates is the oracle of a test of its own."""

    original: ClassVar[Callable[..., Any]]

    @each("shape", lambda cls: list(dict.fromkeys([cls.ragged, *cls.shapes[:1]])))
    def test_original(self, shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
        """Results and gradients are the original's. Skips where that is not installed, or refuses the shape."""
        cls = type(self)
        own, tensors = cls.reference, cls.make(shape)
        if any(one.isnan().any() for one in results(cls.oracle(*tensors))):
            pytest.skip("some results have no value, for which originals have others")

        def reference(*tensors: Any, **params: Any) -> Any:
            with InFloat64():
                found = cls.original(*tensors, **params)
            values = list(found.values()) if isinstance(found, dict) else found
            pairs = zip(
                [one for one in results(values) if one is not None],
                results(own(*tensors, **params)),
                strict=True,
            )
            return tuple(one.reshape(other.shape) for one, other in pairs)

        try:
            cls.exactly(reference, *tensors)
        except ImportError as error:
            pytest.skip(f"the original is not installed: {error}")
        except (RuntimeError, ValueError, IndexError, AssertionError) as error:
            pytest.skip(f"the original refuses this shape: {error}")
        monkeypatch.setattr(cls, "reference", staticmethod(reference))
        cls.check_pass(None, tensors)
