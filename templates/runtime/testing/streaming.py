"""Tests of tiles of rows past which an axis streams."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
import torch
import triton

from .. import heuristics, launch
from .harness import Dtypes, Shape, each
from .inputs import DEVICE, Layout, same_columns, same_rows
from .matmul import Products, Tiles
from .operator import OperatorTests

hopper = pytest.mark.skipif(
    DEVICE != "cuda"
    or torch.version.hip is not None
    or torch.cuda.get_device_capability()[0] != 9,
    reason="needs NVIDIA's Hopper",
)


def streamed(
    tests: type[Tiles], width: str, backward: bool = False
) -> list[tuple[str, triton.Config]]:
    """The names of tables of the forward or the backward, each with each tile of one `width`, and a small one."""
    tables: dict[heuristics.Streamed, str] = {}
    for name, table in vars(tests.tables).items():
        if isinstance(table, heuristics.Streamed) and ("_" in name) == backward:
            tables.setdefault(table, name)
    small = heuristics.streamed_tile(16, 16, 4, 1)
    return [
        (name, config)
        for table, name in tables.items()
        for config in (*getattr(table, width).values(), small)
    ]


class StreamingTests(Products, OperatorTests):
    """Each configuration, and a small one with several tiles and blocks."""

    rounds_factors = True
    gluon: ClassVar[Sequence[Shape]] = ()  # of tensors that a Gluon kernel takes
    error_factor = 8  # Scores are sums in another order, and exponentials tell.

    @classmethod
    def layouts(cls) -> list[Layout]:
        """Those of equal rows or columns are left out: scores of these are all alike."""
        return [
            one for one in super().layouts() if one not in (same_rows, same_columns)
        ]

    @classmethod
    def check_special_values(cls, dtypes: Dtypes) -> None:
        """Zeros of both signs, and NaN in a row of the first input. Elsewhere masks hide it from some rows and not from
        others: torch adds them to scores, and multiplies what is masked by 0.
        """
        tensors = cls.make(cls.special, dtypes, ends=False)
        for one, tensor in zip(cls.inputs, tensors, strict=True):
            for value in (0.0, -0.0):
                if one.is_float:
                    tensor.masked_fill_(
                        torch.rand(tensor.shape).to(DEVICE) < 0.02, value
                    )
        tensors[0].flatten()[0] = math.nan
        assert tensors[0].isnan().any()
        cls.compare(cls.call(*tensors), cls.oracle(*tensors), tensors)

    @each("table, config", lambda cls: streamed(cls, "half") if cls.half() else ())
    @each("shape", lambda cls: cls.tiled)
    def test_half_configs(
        self,
        shape: Shape,
        table: str,
        config: triton.Config,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(heuristics, "use_gluon", lambda *_: False)
        self.force(monkeypatch, table, config)
        self.check(*self.make(shape, self.half()))

    @each(
        "table, config",
        lambda cls: streamed(cls, "wide") if cls.all_of(torch.float32) else (),
    )
    @each("shape", lambda cls: cls.tiled)
    def test_wide_configs(
        self,
        shape: Shape,
        table: str,
        config: triton.Config,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.force(monkeypatch, table, config)
        self.check(*self.make(shape, self.all_of(torch.float32)))

    @hopper
    @each("dtype", lambda cls: [torch.float16, torch.bfloat16] if cls.half() else ())
    @each("shape", lambda cls: cls.gluon)
    def test_gluon_kernel(
        self, shape: Shape, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is launched on Hopper, and the plain kernel on the same tensors."""
        launched, run = list[str](), launch.run

        def spy(key: Any, kernel: Any, *args: Any, **options: Any) -> None:
            launched.append(kernel.__name__)
            run(key, kernel, *args, **options)

        monkeypatch.setattr(launch, "run", spy)
        tensors = self.make(shape, self.all_of(dtype))
        for is_gluon in (True, False):
            if not is_gluon:
                monkeypatch.setattr(heuristics, "use_gluon", lambda *_: False)
            launch.Launches.known.clear()
            launched.clear()
            self.check(*tensors)
            assert launched[0].endswith("_gluon_kernel") == is_gluon
