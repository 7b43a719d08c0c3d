"""What elementwise kernels are launched on: what a launch is passed, which stands in for one."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch

from tests.harness.importing import runtime_module

FLAT, STRIDED = "flat kernel", "strided kernel"
REST = ("sizes", "params", "is_fake")  # what follows operands, in calls of these tests
KERNELS = (FLAT, STRIDED)


def run(
    host: ModuleType,
    kernels: Any,
    tables: Any,
    axes: str,
    n_dims: int,
    operands: Any,
    *rest: Any,
    constants: Any = None,
) -> Any:
    given = dict(zip(REST, rest, strict=False), constants=constants or {})
    return host.run(None, kernels=kernels, tables=tables, axes=axes, n_dims=n_dims, operands=operands, **given)


def run_tiles(
    host: ModuleType, kernel: Any, table: Any, axes: str, n_dims: int, operands: Any, *rest: Any, constants: Any = None
) -> Any:
    given = dict(zip(REST, rest, strict=False), constants=constants or {})
    return host.run_tiles(None, kernel=kernel, table=table, axes=axes, n_dims=n_dims, operands=operands, **given)


def run_line(host: ModuleType, kernel: Any, table: Any, operands: Any, *rest: Any, constants: Any = None) -> None:
    given = dict(zip(REST, rest, strict=False), constants=constants or {})
    host.run_line(None, kernel=kernel, table=table, operands=operands, **given)


@pytest.fixture
def host() -> ModuleType:
    return runtime_module("elementwise")


@pytest.fixture
def launches(host: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Of each launch the kernel, the grid, the configuration's tile, and what is passed but for tensors."""
    found: list[tuple[Any, ...]] = []

    def run(key: Any, kernel: Any, grid: Any, config: Any, operands: Any, *passed: Any, **constants: Any) -> None:
        tile = tuple(config.kwargs.values()) if config else ()
        found.append((kernel, grid if config else grid({"BLOCK": 4, "BLOCK_M": 4, "BLOCK_N": 4}), tile, *passed))

    monkeypatch.setattr(host.launch, "run", run)
    return found


@pytest.fixture
def tables(host: ModuleType) -> tuple[Any, Any]:
    return host.heuristics.Flat((16, 4)), host.heuristics.Tile((8, 8), (2, 64, 8), (4, 4))


def test_what_tensors_and_kernel_step_through(host: ModuleType) -> None:
    assert host.parse("..., () -> (...)") == ((("...",), ()), ("...",), ())
    assert host.parse("... M N, N -> (... M) N") == ((("...", "M", "N"), ("N",)), ("...", "M"), ("N",))
    assert host.parse("M, N -> M H=2 1") == ((("M",), ("N",)), (), ("M", "H=2", "1"))


def test_one_run_of_elements(host: ModuleType, launches: list[Any], tables: Any) -> None:
    """Contiguous tensors, and such as are in the same order: their elements are visited as they lie in memory.

    What has no axes, or is not there, is none of these.
    """
    x = torch.empty(3, 5, 7)
    for one in (x, x.mT, x.permute(2, 0, 1), x[:, :, None].expand(3, 5, 1, 7)):
        operands = (one, x, None, one)
        assert run(host, KERNELS, tables, "..., (), ..., ... -> (...)", 4, operands, (6,), (0.5,))
        assert launches.pop() == (FLAT, (7,), (16,), (105, 6), (0.5,))


def test_axes_in_another_order_are_no_run(host: ModuleType, launches: list[Any], tables: Any) -> None:
    """Though all tensors are contiguous, and square."""
    x = torch.empty(16, 16)
    assert run(host, KERNELS, tables, "N M, M N -> (M N)", 2, (x, x))
    assert launches.pop() == (STRIDED, (4,), (8, 8), (16, 16, 1, 16, 16, 1), ())
    assert run(host, KERNELS, tables, "N M, M N -> (M N)", 2, (x, x.mT))
    assert launches.pop()[0] == FLAT


def test_tiles_are_wide_where_columns_are_close(host: ModuleType, launches: list[Any], tables: Any) -> None:
    """Every eighth shares sectors with the next, which a square tile would read once for each row."""
    for step, tile in ((8, (4, 4)), (9, (8, 8))):
        x, y = torch.empty(64, 20 * step + 1)[:, : 20 * step : step], torch.empty(64, 20)
        assert run(host, KERNELS, tables, "M N, M N -> (M N)", 2, (x, y))
        assert launches.pop()[2] == tile
        assert run_tiles(host, STRIDED, tables[1], "M N, M N -> M N", 1, (x, y))
        assert launches.pop()[2] == tile


def test_columns_of_several_axes(host: ModuleType, launches: list[Any], tables: Any) -> None:
    """The kernel takes them apart, whose lengths it knows but for the first."""
    x, y = torch.empty(6, 10), torch.empty(6, 10, 2)
    assert run_tiles(host, STRIDED, tables[1], "M W, M W S -> M W*S=2", 1, (x, y))
    assert launches.pop() == (STRIDED, (10,), (4, 4), (6, 20, 10, 1, 20, 2, 1), ())


def test_tiles_of_any_strides(host: ModuleType, launches: list[Any], tables: Any) -> None:
    """What is not there has strides of 0, and does not say in which order the others are visited."""
    x, y = torch.empty(6, 10)[::2], torch.empty(3, 10)
    for operands in ((x, None, y), (x, y, None)):
        assert run(host, KERNELS, tables, "..., ..., ... -> (...)", 3, operands)
        strides = [(0, 0, 0) if one is None else (one.stride(0), 0, 1) for one in operands]
        flattened = [stride for step in strides for stride in step]
        assert launches.pop() == (STRIDED, (3,), (4, 4), (3, 10, 1, *flattened), ())
    turned = torch.empty(10, 3).mT
    assert run(host, KERNELS, tables, "..., ..., ... -> (...)", 2, (x, turned, None))
    assert launches.pop()[3] == (10, 3, 1, 20, 3, 1, 0, 0)


def test_more_dimensions_than_a_kernel_has(host: ModuleType, launches: list[Any], tables: Any) -> None:
    x = torch.empty(4, 4, 4, 4, 4, 4)[::2, ::2, ::2, ::2, ::2, ::2]
    assert not run(host, KERNELS, tables, "..., ... -> (...)", 4, (x, torch.empty_like(x)))
    assert not run_tiles(host, STRIDED, tables[1], "... N, ... N -> (...) N", 3, (x, torch.empty_like(x)))
    assert not launches


def test_rows_by_columns(host: ModuleType, launches: list[Any], tables: Any) -> None:
    """Lengths of the rows' dimensions but the first and those that are known; strides along what a tensor has."""
    x, scale, y = torch.empty(5, 3, 2, 8), torch.empty(3, 8), torch.empty(5, 3, 2, 8)
    axes = "... S H D, S D, (), ... S H D -> (... S) H=2 D"
    assert run_tiles(host, STRIDED, tables[1], axes, 3, (x, scale, scale, y), (7,), (0.5,))
    sizes = (30, 8, 3, 1, 48, 16, 0, 8, 1, 0, 8, 0, 1, 48, 16, 0, 8, 1, 7)
    assert launches.pop() == (STRIDED, (16,), (4, 4), sizes, (0.5,))
    # Nothing folds: M, whose length is not passed, by N.
    assert run_tiles(host, STRIDED, tables[1], "M, N, M N -> M N", 0, (x[:, 0, 0, 0], None, y[:, 0, 0]))
    assert launches.pop() == (STRIDED, (4,), (4, 4), (5, 8, 48, 0, 48, 1), ())
    # One column.
    assert run_tiles(host, STRIDED, tables[1], "V, ..., ... -> (...) 1", 3, (scale[0], scale, scale))
    assert launches.pop() == (STRIDED, (24,), (1, 1), (24, 1, 1, 1, 1, 0, 0, 1, 0, 0), ())


def test_elements_in_a_line(host: ModuleType, launches: list[Any], tables: Any) -> None:
    x = torch.empty(40)[::2]
    run_line(host, FLAT, tables[0], (x, None, x.clone()), (20, 2, 0, 1, 20), (True,))
    assert launches.pop() == (FLAT, (2,), (16,), (20, 2, 0, 1, 20), (True,))


def test_nothing_is_launched_on_no_elements(host: ModuleType, launches: list[Any], tables: Any) -> None:
    """Nor on fake tensors, of which is told all the same what more dimensions there are."""
    for x, is_fake in ((torch.empty(3, 0), False), (torch.empty(3, 5), True)):
        rest = ((x, x), (), (), is_fake)
        assert run(host, KERNELS, tables, "..., ... -> (...)", 4, *rest)
        assert run_tiles(host, STRIDED, tables[1], "... N, ... N -> (...) N", 3, *rest)
        run_line(host, FLAT, tables[0], (x[0], x[0]), (x.shape[1], 1, 1), *rest[2:])
    assert not launches


def test_searched_kernels_get_a_grid_for_each_tile(host: ModuleType, launches: list[Any]) -> None:
    x = torch.empty(3, 10)
    run(host, KERNELS, (None, None), "..., ... -> (...)", 4, (x, x))
    run_tiles(host, STRIDED, None, "... N, ... N -> (...) N", 3, (x, x))
    assert [launch[:3] for launch in launches] == [(FLAT, (8,), ()), (STRIDED, (3,), ())]


def test_params_may_have_any_name(host: ModuleType, monkeypatch: pytest.MonkeyPatch, tables: Any) -> None:
    """Those that are constants of a kernel are passed by their names."""
    found: dict[str, Any] = {}

    class Kernel:
        arg_names = ()

        def __getitem__(self, grid: Any) -> Any:
            return lambda *_, **options: found.update(options)

    x = torch.empty(4)
    names = dict.fromkeys(("key", "kernel", "kernels", "config", "tensors", "operands", "sizes", "is_fake"), True)
    run_line(host, Kernel(), tables[0], (x, x), (4, 1, 1), constants=names)
    run(host, (Kernel(), Kernel()), tables, "..., ... -> (...)", 4, (x, x), constants=names)
    assert found.items() >= names.items()


@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_compile_traces_it(host: ModuleType, monkeypatch: pytest.MonkeyPatch, tables: Any, dynamic: bool) -> None:
    """In one graph; a copy stands in for the kernel."""

    def copy(key: Any, kernel: Any, grid: Any, config: Any, operands: Any, *passed: Any, **constants: Any) -> None:
        operands[-1].copy_(operands[0] * grid[0] + constants["scale"])

    monkeypatch.setattr(host.launch, "run", copy)

    def function(x: torch.Tensor, bias: torch.Tensor) -> list[torch.Tensor]:
        found = [torch.empty_like(x) for _ in range(3)]
        assert run(host, (None, None), tables, "..., ... -> (...)", 4, (x, found[0]), constants={"scale": 2})
        axes = "... N, N, ... N -> (...) N"
        assert run_tiles(host, None, tables[1], axes, 3, (x, bias, found[1]), constants={"scale": 2})
        n, both = x.shape[2], (x[0, 0], found[2][0, 0])
        run_line(host, None, tables[0], both, (n, *(one.stride(0) for one in both)), constants={"scale": 2})
        return [*found[:2], found[2][0, 0]]

    compiled = torch.compile(function, backend="eager", fullgraph=True, dynamic=dynamic)
    inputs = [torch.rand(3, 5, 24), torch.rand(4, 6, 32)]
    if not dynamic:  # It does not sort unknown strides.
        inputs += [torch.rand(24, 5, 3).transpose(0, 2), torch.rand(6, 5, 32)[::2]]
    for x in inputs:
        torch.testing.assert_close(compiled(x, x[0, 0]), function(x, x[0, 0]))
