"""What calls like earlier calls launch: a stand-in for a compiled kernel says what it was launched with."""

from __future__ import annotations

import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch._subclasses.functional_tensor import FunctionalTensorMode
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.harness.importing import module_at, runtime_module, runtime_of
from tests.harness.oracles import DEVICE
from tests.harness.replaying import replay_on_the_cpu

GENERATED = Path(__file__).parents[2] / "generated"


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The runtime's module of launches, with none known yet; tensors of the CPU stand for those of a GPU."""
    module = runtime_module("launch")
    replay_on_the_cpu(module, monkeypatch)
    return module


class Kernel:
    """A kernel that counts how often Triton would look it up, and remembers the arguments of its launches."""

    arg_names = ("x_ptr", "n", "eps", "WIDE", "BLOCK")

    def __init__(self) -> None:
        self.looked_up = 0
        self.launches: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*args: Any, **options: Any) -> Any:
            self.looked_up += 1
            return Compiled(self)

        return launch


class Compiled:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *args: self.kernel.launches.append((grid, *args))


def call(host: ModuleType, kernel: Kernel, x: torch.Tensor, eps: float = 1e-6, *others: object) -> None:
    """As a generated module calls a kernel."""
    key, launch = host.lookup("scale", (x,), type(eps), *others)
    if launch is not None:
        launch((x,), (eps,))
        return
    options = {"BLOCK": 64, "WIDE": False, "num_warps": 4}
    host.run(key, kernel, (x.numel(),), None, (x,), (x.numel(),), (eps,), **options)


def test_a_call_like_one_before_is_launched_with_its_own_values(host: ModuleType) -> None:
    kernel, x, other = Kernel(), torch.zeros(3, 4), torch.ones(3, 4)
    call(host, kernel, x)
    call(host, kernel, other, 1e-5)
    assert kernel.looked_up == 1
    # The constants last, in the order of the kernel's arguments.
    assert kernel.launches == [((12, 1, 1), other, 12, 1e-5, False, 64)]
    assert kernel.launches[0][1] is other


@pytest.mark.parametrize(
    "other",
    [
        torch.zeros(4, 3),
        torch.zeros(4, 3).T,
        torch.zeros(3, 4, dtype=torch.float64),
        torch.zeros(13)[1:].view(3, 4),
        torch.zeros(3, 4, device="meta"),
    ],
    ids=["shape", "strides", "dtype", "alignment", "device"],
)
def test_another_layout_is_another_call(host: ModuleType, other: torch.Tensor) -> None:
    if other.device.type == "meta":  # The CPU and it have no index; a GPU does.
        other.get_device = lambda: 1  # type: ignore[method-assign]
    kernel = Kernel()
    call(host, kernel, torch.zeros(3, 4))
    call(host, kernel, other)
    assert kernel.looked_up == 2


@pytest.mark.parametrize(
    ("hip", "index", "num_warps", "launched"),
    [
        (None, "int64", 1, 2),
        (None, "int64", 4, 4),
        (None, "int32", 1, 1),
        (None, "int32", 32, 32),
        ("7.0", "int32", 32, 16),
    ],
)
def test_warps_that_a_program_can_have(
    host: ModuleType, hip: str | None, index: str, num_warps: int, launched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton 3.6 miscompiles some kernels of a single warp; AMD's warps have 64 threads."""
    monkeypatch.setattr(torch.version, "hip", hip)
    given: list[dict[str, Any]] = []

    class Noted(Kernel):
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            return lambda *args, **options: given.append(options)

    config = triton.Config({"BLOCK": 64}, num_warps=num_warps)
    host.run(None, Noted(), (1,), config, (torch.ones(3),), INDEX=getattr(tl, index))
    assert given == [{"BLOCK": 64, "INDEX": getattr(tl, index), "num_warps": launched}]


def test_other_params_are_another_call(host: ModuleType) -> None:
    kernel, x = Kernel(), torch.zeros(3, 4)
    call(host, kernel, x, 1e-6, int, 1)
    call(host, kernel, x, 1e-6, int, 2)
    call(host, kernel, x, 1e-6, bool, True)
    call(host, kernel, x, 1, int, 1)
    assert kernel.looked_up == 4


def test_what_is_no_key_is_left_to_the_checks(host: ModuleType) -> None:
    _, launch = host.lookup("scale", (None, [1]), list, [2])
    assert launch is None


def test_launches_are_forgotten_before_they_are_too_many(host: ModuleType) -> None:
    kernel = Kernel()
    for size in range(1, 8300):
        call(host, kernel, torch.zeros(size))
    assert len(host.LAUNCHES) < 8192


def test_the_interpreter_and_tracing_know_no_launches(host: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interpreted(Kernel):
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            return lambda *args, **options: None

    call(host, Interpreted(), torch.zeros(3, 4))
    assert not host.LAUNCHES
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert host.lookup("scale", (torch.zeros(3),)) == (None, None)
    call(host, Kernel(), torch.zeros(3, 4))
    assert not host.LAUNCHES


class Tiles(Kernel):
    """A kernel of tiles: a descriptor, an optional tensor, a part of its own, a result, a number and a param."""

    arg_names = ("x_desc", "bias_ptr", "y_partial_ptr", "y_ptr", "n_rows", "alpha", "BLOCK")


def product(host: ModuleType, kernel: Kernel, x: torch.Tensor, alpha: float = 2.0, copied: bool = False) -> bool:
    """As a generated module calls kernels of a matrix product, twice; whether it knew the launches."""
    key, launch = host.lookup("product", (x, None), type(alpha))
    y = torch.empty(8, 16)
    by_name = {"x": x, "bias": None, "y": y, "alpha": alpha}
    if launch is not None:
        launch((x, None, y), (alpha,))
        return True
    described = TensorDescriptor.from_tensor(x.clone() if copied else x, [4, 8])
    args = (described, None, torch.empty(3, 8, 16), y, 8, alpha)
    host.run_stages(key, by_name, [host.Stage(kernel, (5,), args, {"BLOCK": 64, "num_warps": 4})] * 2)
    return False


def test_launches_of_tiles_take_what_has_the_names_of_their_arguments(host: ModuleType) -> None:
    kernel, x, other = Tiles(), torch.zeros(8, 16), torch.ones(8, 16)
    assert not product(host, kernel, x)
    assert product(host, kernel, other, 3.0)
    assert kernel.looked_up == 2
    first, second = kernel.launches
    grid, described, bias, part, y, *rest = first
    assert grid == (5, 1, 1)
    assert described.base is other
    assert (described.shape, described.block_shape) == (x.shape, [4, 8])
    assert bias is None
    assert (part.shape, part.dtype, y.shape) == ((3, 8, 16), torch.float32, (8, 16))
    assert rest == [8, 3.0, 64]
    assert second[3] is part  # What one kernel wrote, the next one reads.
    assert second[4] is y


class Stages(Kernel):
    """A kernel of one of two stages: a tensor, an optional one, a part of its own, a result, a number and a param."""

    arg_names = ("x_ptr", "bias_ptr", "y_partial_ptr", "y_ptr", "n_rows", "alpha", "BLOCK")


def test_stages_of_tensors_in_order_are_launched_again(host: ModuleType) -> None:
    kernel, x, y = Stages(), torch.zeros(8, 16), torch.empty(8)
    key, _ = host.lookup("sum", (x, None), float)
    args = (x, None, torch.empty(8, 3), y, 8, 2.0)
    by_name = {"x": x, "bias": None, "y": y, "alpha": 2.0}
    stages = [host.Stage(kernel, grid, args, {"BLOCK": 64}) for grid in ((5,), (5, 2))]
    host.run_stages(key, by_name, stages)
    _, launch = host.lookup("sum", (x, None), float)
    other, result = torch.ones(8, 16), torch.empty(8)
    for _ in range(2):
        launch((other, None, result), (3.0,))
    assert kernel.looked_up == 2
    (grid, *first), (other_grid, *second), (_, *third), _ = kernel.launches
    assert (grid, other_grid) == ((5, 1, 1), (5, 2, 1))
    assert (first[0] is other, first[1], first[3] is result, first[4:]) == (True, None, True, [8, 3.0, 64])
    assert (first[2].shape, first[2].dtype) == ((8, 3), torch.float32)
    assert first[2] is second[2]  # What one kernel wrote, the next one reads,
    assert first[2] is not third[2]  # and no other call.


class Bounds(Kernel):
    """A kernel that finds what the next one reads."""

    arg_names = ("x_ptr", "bounds_ptr", "n_rows")


class Described(Kernel):
    """A kernel in Gluon: a descriptor, a result, what the one before has found, a number and a param."""

    arg_names = ("x_desc", "y_ptr", "bounds_ptr", "n_rows", "alpha")


def test_a_gluon_kernel_reads_what_a_kernel_before_has_found(host: ModuleType) -> None:
    """By descriptors of Gluon, which are of another class."""
    finder, kernel, x, y = Bounds(), Described(), torch.zeros(8, 16), torch.empty(8, 16)
    key, _ = host.lookup("attend", (x,), float)
    bounds = torch.empty(3, 4, dtype=torch.int32)
    layout = NVMMASharedLayout.get_default_for([4, 16], tl.float32)
    described = GluonDescriptor(x, [8, 16], [16, 1], [4, 16], layout)
    named = host.named(kernel, ((x, y), (None, 8), (2.0,)))
    assert [*named] == ["x", "y", "alpha"]
    stages = [
        host.Stage(finder, (3,), (x, bounds, 8), {}),
        host.Stage(kernel, (5,), (described, y, bounds, 8, 2.0), {}),
    ]
    host.run_stages(key, named, stages)
    _, launch = host.lookup("attend", (x,), float)
    other, result = torch.ones(8, 16), torch.empty(8, 16)
    launch((other, result), (3.0,))
    (_, found_of, found, _), (_, again, stored, read, *rest) = finder.launches[0], kernel.launches[0]
    assert (found_of is other, again.base is other, stored is result, rest) == (True, True, True, [8, 3.0])
    assert found is read
    assert found is not bounds
    assert (found.shape, found.dtype) == (bounds.shape, bounds.dtype)


def test_each_call_has_memory_of_its_own_between_kernels(host: ModuleType) -> None:
    kernel, x = Tiles(), torch.zeros(8, 16)
    for _ in range(3):
        product(host, kernel, x)
    parts = [launch[3].data_ptr() for launch in kernel.launches]
    assert len(set(parts)) == 2
    assert parts[0] == parts[1]


def test_a_copy_is_of_one_call(host: ModuleType) -> None:
    kernel, x = Tiles(), torch.zeros(8, 16)
    assert not product(host, kernel, x, copied=True)
    assert not product(host, kernel, x, copied=True)
    assert not host.LAUNCHES
    by_name = {"x": x, "y": torch.empty(8, 16), "alpha": 2.0}
    copy = by_name["y"].clone()
    described = TensorDescriptor.from_tensor(x, [4, 8])
    host.run_stages(("copied",), by_name, [host.Stage(kernel, (5,), (described, None, x, copy, 8, 2.0), {"BLOCK": 64})])
    assert not host.LAUNCHES


@pytest.mark.skipif(DEVICE == "cuda", reason="a copy is launched while tensors of the CPU stand for those of a GPU")
def test_what_a_descriptor_has_a_copy_of_is_copied_for_each_call(host: ModuleType) -> None:
    kernel, first, other = Tiles(), torch.randn(12, 5001), torch.randn(12, 5001)

    def launch(x: torch.Tensor) -> None:
        by_name = {"x": x, "bias": None, "y": torch.empty(8, 16), "alpha": 2.0}
        key, known = host.lookup("product", (x,))
        if known is not None:
            known((*by_name.values(),))
            return
        described, _ = runtime_module("tma").descriptor(x.T, 64, 4, 300)
        args = (described, None, torch.empty(3, 8, 16), by_name["y"], 8, 2.0)
        host.run_stages(key, by_name, [host.Stage(kernel, (5,), args, {"BLOCK": 64})] * 2)

    for x in (first, other):
        launch(x)
        again = weakref.ref(x)
    assert kernel.looked_up == 2
    one, two = (launched[1].base for launched in kernel.launches)
    assert one is two  # Copied once for both kernels.
    assert one.stride() == (5024, 1)  # As it lies.
    assert torch.equal(one, other)
    kernel.launches.clear()
    del x, first, other, one, two
    assert again() is None


@pytest.mark.parametrize(
    ("n_inner", "n_others", "apart", "is_copy"),
    [
        (4104, 2048, 4160, True),
        (4104, 2047, 4104, False),
        (4112, 4096, 4112, False),
        (4093, 300, 4096, True),
        (4160, 4096, 4160, False),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_rows_that_start_amid_32_bytes_are_copied_where_they_are_read_often(
    n_inner: int, n_others: int, apart: int, is_copy: bool, turned: bool
) -> None:
    matrix = torch.randn(192, n_inner, device=DEVICE).half()
    given = matrix.T if turned else matrix
    described, inner_last = runtime_module("tma").descriptor(given, 64, 32, n_others)
    # Of a matrix that lies the other way, tiles are copied as they lie.
    assert inner_last == (not turned)
    assert described.block_shape == ([32, 64] if turned else [64, 32])
    assert (described.base.stride(), hasattr(described.base, "copied_from")) == ((apart, 1), is_copy)
    assert torch.equal(described.base, matrix)


def test_of_two_matrices_with_such_rows_the_right_one_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles have twice as many rows of it; with the left one copied too, the product is no faster."""
    module = module_at(GENERATED / "matmul")
    runtime = {name: runtime_of(module, name) for name in ("launch", "matmul_heuristics")}
    launched: list[tuple[Any, ...]] = []
    monkeypatch.setattr(runtime["launch"], "launched", lambda kernel, grid, args, *_: launched.append(args))
    monkeypatch.setattr(runtime["matmul_heuristics"], "use_tma", lambda *_: True)
    a, b = (torch.randn(shape, device=DEVICE).half() for shape in ((4096, 72), (72, 4104)))
    module.matmul(a, b)
    left, right, *_ = next(args for args in launched if isinstance(args[0], TensorDescriptor))  # After the copy.
    assert left.base is a
    assert right.base.stride() == (4160, 1)


def test_a_trace_into_a_triton_op_is_known(host: ModuleType) -> None:
    """Of torch 2.11, too, which does not call it compiling: tensors have no address there."""
    assert not host.is_traced()
    with FunctionalTensorMode():
        assert host.is_traced()
    assert not host.is_traced()


def test_a_view_of_a_tensor_is_known_again_and_a_copy_is_not(host: ModuleType) -> None:
    """A kernel is given an address, which a copy of another call has not."""
    x = torch.randn(4, 8)
    assert runtime_module("sources").DescribedSources({"x": x}).find("x", x.mT) == 0
    assert runtime_module("sources").DescribedSources({"x": x}).find("x", x.clone()) is None
    assert runtime_module("sources").DescribedSources({"x": x}).find("y", x) == 0
    sources = runtime_module("sources").DescribedSources({"x": x})
    place = sources.find("partial", x.clone())  # Memory between kernels, which each call has of its own.
    ((made, make),) = sources.made
    assert (made, make([]).shape) == (place, x.shape)


def test_no_tensor_of_a_call_is_kept(host: ModuleType) -> None:
    kernel, x = Tiles(), torch.zeros(8, 16)
    gone = weakref.ref(x)
    product(host, kernel, x)
    kernel.launches.clear()
    del x
    assert host.LAUNCHES
    assert gone() is None


def test_two_matrices_are_known_by_how_far_apart_they_are(host: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    both = torch.zeros(2, 4)
    assert host.distance(both[0], both[1]) == 16
    assert host.distance(both[1], both[0]) == -16
    assert host.first_of(both[1], both[0]).data_ptr() == both.data_ptr()
    assert host.distance(both, [1]) is None
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert host.distance(both[0], both[1]) is None


@pytest.mark.parametrize("dynamic", [True, False])
def test_torch_compile_traces_arguments(dynamic: bool) -> None:
    """It cannot ask lengths, which it knows as symbols, for attributes."""
    sources = runtime_module("sources")

    def tensors(x: torch.Tensor) -> tuple[int, ...]:
        return tuple(place for place, one in enumerate((x, x.shape[0], 3, 0.5, None)) if sources.is_tensor(one))

    compiled = torch.compile(tensors, backend="eager", fullgraph=True, dynamic=dynamic)
    assert compiled(torch.ones(5)) == compiled(torch.ones(7)) == (0,)
