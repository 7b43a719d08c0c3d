"""Tests of operators that are registered with torch.library."""

from typing import Any, ClassVar

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from .gradients import BackwardTests, VmapTests
from .harness import Shape, each, results
from .inputs import DEVICE, Layout
from .launches import once


class RegisteredTests(VmapTests):
    """The operator in torch.ops, and the public function that calls it, under torch's transforms."""

    registered: ClassVar[Any]  # of torch.ops
    rest: ClassVar[tuple[Any, ...]] = ()  # what that takes besides tensors
    is_traced: ClassVar[bool] = False  # whether torch.compile sees its kernels
    autocast: ClassVar[str] = ""  # "float32", or "lower" for autocast's dtype

    def test_opcheck(self) -> None:
        """torch's own tests of a registered operator."""
        kinds = ["test_autograd_registration", "test_faketensor"]
        # torch cannot trace launches in Triton's interpreter.
        if DEVICE == "cuda" or not self.is_traced:
            kinds.append("test_aot_dispatch_dynamic")
        tensors: Any = self.without_nan()
        # torch has no allclose of float8, by which it looks for inputs that are written to.
        floats = [one for one in tensors if one is not None and one.is_floating_point()]
        if all(one.itemsize > 1 for one in floats):
            kinds.append("test_schema")
        if isinstance(self, BackwardTests):
            tensors = self.leaves(tensors)
        given = (*tensors, *self.rest)
        torch.library.opcheck(self.registered, given, test_utils=kinds)

    @classmethod
    def without_nan(cls) -> tuple[torch.Tensor, ...]:
        """Inputs without NaN in the results, which torch's tests take for a difference, if there are any."""
        for shape in (cls.ragged, *cls.shapes):
            tensors = cls.make(shape)
            found = results(cls.registered(*tensors, *cls.rest))
            if not any(one.isnan().any() for one in found):
                return tensors
        return cls.make(cls.ragged)

    @each("shape", lambda cls: cls.layout_shapes())
    @each("layout", lambda cls: cls.layouts())
    def test_fake_tensors(self, layout: Layout, shape: Shape) -> None:
        """Results of fake tensors have the same shapes, dtypes and strides as real ones."""
        tensors = [layout(tensor) for tensor in self.make(shape)]
        with FakeTensorMode() as mode:
            fakes = [mode.from_tensor(tensor) for tensor in tensors]
            found = self.registered(*fakes, *self.rest)
        real = self.registered(*tensors, *self.rest)
        for got, want in zip(results(found), results(real), strict=True):
            assert got.shape == want.shape
            assert got.dtype == want.dtype
            assert got.stride() == want.stride()

    def test_vmap_of_the_operator(self) -> None:
        """The operator in torch.ops has a vmap rule too."""
        name = self.registered._qualified_op_name
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        assert has_kernel(name, "FuncTorchBatched")
        tensors = self.make(self.ragged)
        twice = [torch.stack([tensor, tensor], -1) for tensor in tensors]
        mapped = torch.func.vmap(lambda *given: self.registered(*given, *self.rest), -1)
        want = results(self.registered(*tensors, *self.rest))
        for one, other in zip(results(mapped(*twice)), want, strict=True):
            # torch compares float8 only exactly.
            near = 0.0 if one.itemsize == 1 else 1e-5
            both = torch.stack([other, other])
            torch.testing.assert_close(one, both, rtol=near, atol=near, equal_nan=True)

    @each("half", lambda _: (torch.bfloat16, torch.float16))
    def test_autocast(self, half: torch.dtype) -> None:
        """Computes in float32, in autocast's dtype, or as without autocast, as declared."""
        outer, inner = {
            "float32": (half, torch.float32),
            "lower": (torch.float32, half),
        }.get(self.autocast, (None, None))

        def cast(
            tensors: tuple[torch.Tensor, ...], dtype: torch.dtype | None
        ) -> tuple[torch.Tensor, ...]:
            return tuple(
                one.to(dtype) if dtype and one.is_floating_point() else one
                for one in tensors
            )

        tensors = cast(self.make(self.ragged), outer)
        with torch.autocast(DEVICE, dtype=half):
            got = self.call(*tensors)
        want = self.call(*cast(tensors, inner))
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)

    @once
    def test_torch_compile_of_the_operator(self) -> None:
        """In one graph, in which the operator is one node; on a CPU without the backend that compiles it."""
        if self.is_traced and DEVICE == "cpu":
            pytest.skip("needs a GPU: torch cannot trace Triton's interpreter")
        tensors = self.make(self.ragged)
        backend = "aot_eager" if DEVICE == "cpu" else "inductor"
        compiled = torch.compile(self.op, fullgraph=True, backend=backend)
        if isinstance(self, BackwardTests):
            got = self.gradients(compiled, *tensors, **self.params)
            self.compare_gradients(got, self.gradients(self.call, *tensors))
        else:
            got = compiled(*tensors, **self.params)
            self.compare(got, self.oracle(*tensors), tensors)
