"""The harness of the operators' benchmarks: an operator compared with torch and torch.compile, in tables and plots."""

import argparse
import functools
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from importlib.util import find_spec
from typing import Any, ClassVar

import torch
import torch._functorch.config
import triton
from torch.nn.attention import SDPBackend, sdpa_kernel

DEVICE = "cuda"
LENGTHS = tuple(2**n for n in range(8, 19, 2))  # of rows
Tensors = tuple[torch.Tensor, ...]


def draw(
    shape: tuple[int, ...], dtype: torch.dtype, low: float = -4, high: float = 4
) -> torch.Tensor:
    """Random values from low to high."""
    if dtype.is_floating_point:  # Nothing draws float8.
        return torch.empty(shape, device=DEVICE).uniform_(low, high).to(dtype)
    if not dtype.is_signed:  # bool and uint8
        low, high = 0, 2
    return torch.randint(int(low), int(high), shape, dtype=dtype, device=DEVICE)


def bytes_of(*tensors: torch.Tensor) -> int:
    """The bytes of tensors that are each read or written once."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def quantiles(run: Callable[[], Any], work: float) -> list[float]:
    """Work per second: the median, and the 20th and 80th percentiles of the runs."""
    times = triton.testing.do_bench(run, quantiles=[0.5, 0.8, 0.2])
    return [work / milliseconds * 1e3 for milliseconds in times]


@functools.cache
def copy_rate() -> list[float]:
    """GB/s of torch's own copy of 1 GiB, bytes read plus written."""
    source = torch.empty(2**30, dtype=torch.uint8, device=DEVICE)
    return quantiles(source.clone, 2 * bytes_of(source) * 1e-9)


@functools.cache
def matmul_rate() -> list[float]:
    """TFLOP/s of torch's own matmul of two 8192 by 8192 bfloat16 matrices."""
    a, b = (
        torch.randn(8192, 8192, dtype=torch.bfloat16, device=DEVICE) for _ in range(2)
    )
    return quantiles(lambda: torch.matmul(a, b), 2 * 8192**3 * 1e-12)


class Graph:
    """A call under autograd in which the inputs at the given positions require gradients, and random incoming ones."""

    def __init__(
        self,
        function: Callable[..., Any],
        tensors: Tensors,
        wrt: tuple[int, ...],
        more: tuple[Any, ...] = (),
    ) -> None:
        tensors = tuple(tensor.detach() for tensor in tensors)
        self.inputs = [tensors[place].requires_grad_() for place in wrt]
        results = listed(function(*tensors, *more))
        self.results = [one for one in results if one.requires_grad]
        self.outgoing = [torch.randn_like(one) for one in self.results]

    def backward(self) -> Tensors:
        """The gradients; the graph is retained."""
        return torch.autograd.grad(
            self.results, self.inputs, self.outgoing, retain_graph=True
        )


def listed(results: Any) -> Tensors:
    """The results of a call, always as a tuple."""
    return results if isinstance(results, tuple) else (results,)


@dataclass(frozen=True)
class Peer:
    """A peer of an operator: a function of its inputs, of what is `given`, and of its params.

    What is given is computed once from inputs and params, and not measured. The forward runs `under` a context. A peer
    of a `package` that is not installed is left out.
    """

    function: Callable[..., Any]
    given: Callable[..., tuple[Any, ...]] | None = None
    _: KW_ONLY
    compiled: bool = False
    under: Callable[[], AbstractContextManager[Any]] = nullcontext
    package: str = ""


@functools.cache
def imported(path: str) -> Callable[..., Any]:
    """The function at a path such as package.module.function."""
    module, _, name = path.rpartition(".")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


BACKENDS = {
    "SDPA cuDNN": SDPBackend.CUDNN_ATTENTION,
    "SDPA flash": SDPBackend.FLASH_ATTENTION,
    "SDPA efficient": SDPBackend.EFFICIENT_ATTENTION,
    "SDPA math": SDPBackend.MATH,
}


def backends(reference: Callable[..., Any]) -> dict[str, Peer]:
    """A reference that calls torch's scaled_dot_product_attention, restricted to each of its backends in turn."""
    return {
        name: Peer(reference, under=functools.partial(sdpa_kernel, backend))
        for name, backend in BACKENDS.items()
    }


@dataclass(frozen=True)
class Benchmark:
    """The declarations of a benchmark: the operator, its peers, and how inputs are made.

    `make` takes a size, and a dtype if there are several; `params` are passed to both functions. If `wrt` has positions
    of inputs, the backward with respect to those is measured too. A peer that fails, for example for lack of memory,
    has no rate.
    """

    op: Callable[..., Any]
    reference: Callable[..., Any]
    make: Callable[..., Tensors]
    _: KW_ONLY
    dtypes: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    wrt: tuple[int, ...] = ()
    peers: Mapping[str, Peer] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()

    unit: ClassVar[str]
    argument: ClassVar[str]  # the size that `make` takes
    ceiling_name: ClassVar[str]

    @property
    def compared(self) -> dict[str, Peer]:
        """The operator and its peers, as far as their packages are installed."""
        own = {
            self.op.__name__: Peer(self.op),
            "torch": Peer(self.reference),
            "torch.compile": Peer(self.reference, compiled=True),
        }
        return own | {
            name: peer
            for name, peer in self.peers.items()
            if not peer.package or find_spec(peer.package)
        }

    @property
    def providers(self) -> list[str]:
        """What is measured."""
        return [*self.compared, self.ceiling_name]

    def ceiling(self) -> list[float]:
        """The rate that shares are relative to."""
        raise NotImplementedError

    def work(self, tensors: Tensors, backward: bool, size: int) -> float:
        """The work of a call, which rates divide by its time."""
        raise NotImplementedError

    def inputs(self, **made: Any) -> Tensors:
        """The same for the same arguments of `make`."""
        torch.manual_seed(0)
        return self.make(**made)

    def function(self, provider: str, backward: bool = False) -> Callable[..., Any]:
        """The function of a provider, of tensors only, and what it is given."""
        peer = self.compared[provider]
        function = functools.partial(peer.function, **self.params)
        if not peer.compiled:
            return function
        # A graph that is retained for the next run cannot hand over its memory.
        torch._functorch.config.donated_buffer = not backward
        return torch.compile(function, dynamic=False)

    def measure(
        self, provider: str, backward: bool = False, **made: Any
    ) -> list[float]:
        """The rate of a provider with inputs of some size, as `quantiles` has it."""
        if provider == self.ceiling_name:
            return self.ceiling()
        torch.compiler.reset()  # So that each size is compiled separately.
        tensors = self.inputs(**made)
        work = self.work(tensors, backward, made[self.argument])
        try:
            with self.compared[provider].under():
                return quantiles(self.run(provider, backward, tensors), work)
        except (RuntimeError, ValueError) as error:
            if provider == self.op.__name__:
                raise
            size = f"{self.argument} = {made[self.argument]:,}"
            print(f"{provider} at {size}: {' '.join(str(error).split()):.200}")
            return [float("nan")] * 3

    def run(self, provider: str, backward: bool, tensors: Tensors) -> Callable[[], Any]:
        """What is measured of a provider."""
        given = self.compared[provider].given
        more = given(*tensors, **self.params) if given else ()
        function = self.function(provider, backward)
        if backward:
            return Graph(function, tensors, self.wrt, more).backward
        return lambda: function(*tensors, *more)

    def print_kernels(self, backward: bool = False, **made: Any) -> None:
        """What a call launches, and its share of the time."""
        run = self.run(self.op.__name__, backward, self.inputs(**made))
        run()  # Compiles.
        with torch.profiler.profile() as profile:
            run()
        print(profile.key_averages().table("self_device_time_total", row_limit=20))

    def report(
        self, argument: str, sizes: Sequence[int], **others: int
    ) -> triton.testing.Benchmark:
        """By one argument of `make`, with the others given."""
        return triton.testing.Benchmark(
            [argument],
            sizes,
            line_arg="provider",
            line_vals=self.providers,
            line_names=self.providers,
            plot_name=f"{self.op.__name__}-{argument}",
            args=others,
            ylabel=self.unit,
            x_log=True,
        )

    def reports(self, sizes: Sequence[int]) -> list[triton.testing.Benchmark]:
        """The tables of a run."""
        return [self.report(self.argument, sizes)]

    def parser(self) -> argparse.ArgumentParser:
        """The options of a run."""
        parser = argparse.ArgumentParser(
            description=f"{self.op.__name__}, torch and torch.compile in {self.unit}."
        )
        add = parser.add_argument
        if self.dtypes:
            add("--dtype", choices=self.dtypes.split())
        if self.wrt:
            add("--backward", action="store_true", help="measure the backward instead")
        add("--sizes", type=int, nargs="+", default=self.sizes, help=self.argument)
        add("--save-path", default="", metavar="FOLDER", help="write CSV and plots too")
        return parser

    def main(self) -> None:
        """The command line of a benchmark."""
        parser = self.parser()
        options = vars(parser.parse_args())
        sizes, folder = options.pop("sizes"), options.pop("save_path")
        if dtype := options.pop("dtype", None):
            options["dtype"] = getattr(torch, dtype)
            if options.get("backward") and not options["dtype"].is_floating_point:
                parser.error(f"{dtype} has no gradient")
        if not torch.cuda.is_available():
            parser.exit(4, f"{parser.prog} needs a GPU\n")
        missing = [name for name in ("matplotlib", "pandas") if find_spec(name) is None]
        if needed := " and ".join(missing):
            parser.exit(4, f"{parser.prog} needs {needed}, as triton.testing does\n")
        if folder:
            os.makedirs(folder, exist_ok=True)
        report = triton.testing.perf_report(self.reports(sizes))(self.measure)
        for table in report.run(
            print_data=True, return_df=True, save_path=folder, **options
        ):
            ceiling = self.ceiling()[0]
            shares = table.set_index(table.columns[0]) / ceiling
            print(f"Shares of {self.ceiling_name}, {ceiling:,.0f} {self.unit}:")
            print(shares.to_string(header=self.providers, float_format="{:.1%}".format))
        self.print_kernels(**{self.argument: max(sizes)}, **options)


@dataclass(frozen=True)
class ByBytes(Benchmark):
    """In GB/s of minimal bytes, by number of elements and, if `make` takes that axis, by row length."""

    _: KW_ONLY
    row: str = ""
    sizes: tuple[int, ...] = tuple(2**n for n in range(18, 29, 2))

    unit = "GB/s"
    argument = "elements"
    ceiling_name = "torch's copy"

    def ceiling(self) -> list[float]:
        return copy_rate()

    def work(self, tensors: Tensors, backward: bool, size: int) -> float:
        """All inputs and results once; for the backward, the saved tensors in place of the inputs."""
        function = self.function(self.op.__name__)
        if not backward:
            return bytes_of(*tensors, *listed(function(*tensors))) * 1e-9
        kept: dict[int, torch.Tensor] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            return kept.setdefault(tensor.data_ptr(), tensor)

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            graph = Graph(function, tensors, self.wrt)
        return bytes_of(*kept.values(), *graph.outgoing, *graph.backward()) * 1e-9

    def reports(self, sizes: Sequence[int]) -> list[triton.testing.Benchmark]:
        """By the number of elements, and by the length of rows."""
        by_row = [self.report(self.row, LENGTHS, elements=2**26)] if self.row else []
        return [*super().reports(sizes), *by_row]


@dataclass(frozen=True)
class ByLength(ByBytes):
    """In GB/s of minimal bytes, by the length of the streamed axis: a cache that few rows read."""

    argument = "size"


@dataclass(frozen=True)
class ByOperations(Benchmark):
    """In TFLOP/s of the matmuls: the operations at a size, and a multiple of them for the backward: twice if each
    matmul has a gradient for both of its factors, and more if matmuls are recomputed.
    """

    _: KW_ONLY
    operations: Callable[[int], int]
    times_backward: float = 2
    sizes: tuple[int, ...] = tuple(2**n for n in range(9, 14))

    unit = "TFLOP/s"
    argument = "size"
    ceiling_name = "torch.matmul"

    def ceiling(self) -> list[float]:
        return matmul_rate()

    def work(self, tensors: Tensors, backward: bool, size: int) -> float:
        return self.operations(size) * (self.times_backward if backward else 1) * 1e-12
