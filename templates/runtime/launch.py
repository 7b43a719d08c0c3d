"""Launches of kernels. Repeated calls reuse the compiled kernels of the first one, at a fraction of the host time."""

import contextlib
import copy
import functools
import importlib
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton import KernelInterface
from triton.compiler import CompiledKernel

from .sources import DescribedSources, Sources, is_tensor, tensor_of
from .tensor_maps import with_maps

# Decided at import, as it is for kernels; torch.compile cannot trace reads of the environment.
INTERPRETED: bool = triton.knobs.runtime.interpret
Key = tuple[object, ...]
# Programs that CUDA launches along the first and the second axis of a grid.
MOST_FIRST, MOST_SECOND = 2**31 - 1, 65_535
FUNCTIONAL = torch._C._TorchDispatchModeKey.FUNCTIONAL
Values = tuple[Any, ...]
Args = tuple[Values, Values, Values]  # tensors, sizes and params, but for constexprs


def is_traced() -> bool:
    """Whether torch traces the call, so that tensors have no addresses and the memory behind them is unknown.

    torch.compiler.is_compiling() alone does not tell of the trace into a triton_op before torch 2.13.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._get_dispatch_mode(FUNCTIONAL) is not None
    )


def memoized(function: Callable[..., Any]) -> Callable[..., Any]:
    """functools.lru_cache, bypassed under torch.compile, which traces the function itself."""
    remembered = functools.lru_cache(1024)(function)

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        if not torch.compiler.is_compiling():
            with contextlib.suppress(TypeError):  # Symbolic sizes are not hashable.
                return remembered(*args)
        return function(*args)

    return call


def check_gpu() -> None:
    """Refuse to launch without a GPU, with a clearer message than Triton's "0 active drivers"."""
    try:
        triton.runtime.driver.active.get_current_device()
    except RuntimeError:
        raise RuntimeError(
            "there is no GPU: set the environment variable TRITON_INTERPRET=1 before Triton loads to interpret kernels"
        ) from None


# Launches of earlier calls by their keys: to find a compiled kernel anew takes longer than to launch it.
LAUNCHES: dict[Key, Callable[..., None]] = {}


def remember(key: Key | None, launch: Callable[..., None]) -> None:
    """Cache the launch for a key, if there is one; the cache is cleared when it is full."""
    if key is not None:
        if len(LAUNCHES) >= 8192:
            LAUNCHES.clear()
        LAUNCHES[key] = launch


def lookup(
    function: str, tensors: tuple[Any, ...], *others: object
) -> tuple[Key | None, Callable[..., None] | None]:
    """The key of a call, everything that its launches depend on except the values of tensors, and its cached launch.

    There is no key under a trace, nor for calls with an unhashable argument, which are refused later.
    """
    if torch.compiler.is_compiling():
        return None, None
    key = (function, *others, *map(layout, tensors))
    try:
        return key, LAUNCHES.get(key)
    except TypeError:
        return None, None


def layout(tensor: torch.Tensor | None) -> object:
    """Everything about a tensor that a launch depends on."""
    if not isinstance(tensor, torch.Tensor):
        return tensor is None
    device, place = tensor.get_device(), tensor.data_ptr() % 16
    return tensor.shape, tensor.stride(), tensor.dtype, device, place


def distance(first: torch.Tensor, second: torch.Tensor) -> int | None:
    """The distance of two tensors in memory. Arguments that are no tensors are refused later."""
    if is_traced() or not (
        isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor)
    ):
        return None
    return second.data_ptr() - first.data_ptr()


def first_of(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The tensor with the lower address; under a trace addresses are unknown."""
    if is_traced():
        return first
    return first if first.data_ptr() <= second.data_ptr() else second


def legal(grid: tuple[int, int]) -> tuple[int, ...]:
    """A grid that a GPU accepts: CUDA limits the second axis to 65,535 programs, so the rest continues along the
    third, which kernels read by `second_id`. Programs beyond the end mask everything.
    """
    first, second = grid
    if second <= MOST_SECOND:
        return grid
    planes = -(-second // MOST_SECOND)
    return first, -(-second // planes), planes


def again(
    compiled: Any,
    grid: tuple[int, int, int],
    args: tuple[Any, ...],
    constants: Sequence[Any],
    launcher: Any = None,
    adapt: Callable[..., Sequence[Any]] | None = None,
    by_triton: Callable[..., None] | None = None,
) -> Callable[..., None]:
    """A function that repeats the launch of a compiled kernel with other `args`, on the current device.

    Triton's own, `compiled[grid]`, describes each launch for hooks, and asks the driver about each tensor. If nothing
    has set hooks, as profilers do, this calls what that calls in the end, with addresses. Another launcher than the
    kernel's takes what `adapt` makes of arguments and addresses.
    """
    own: Callable[..., None] = compiled[grid]
    by_triton = by_triton or (lambda *args: own(*args, *constants))
    if not isinstance(compiled, CompiledKernel):
        return by_triton
    described = compiled.function, compiled.packed_metadata, None, None, None
    start = _in_c(launcher or compiled.run, grid, described)
    places = [place for place, arg in enumerate(args) if isinstance(arg, torch.Tensor)]
    device, stream_of = torch.cuda.current_device(), torch._C._cuda_getCurrentRawStream
    hooks = triton.knobs.runtime

    def launch(*args: Any) -> None:
        if device != torch.cuda.current_device():
            with torch.cuda.device(device):
                launch(*args)
            return
        enter, leave = hooks.launch_enter_hook, hooks.launch_exit_hook
        if getattr(enter, "calls", enter) or getattr(leave, "calls", leave):
            by_triton(*args)
            return
        values = [*args, *constants]
        for place in places:
            values[place] = values[place].data_ptr()
        start(stream_of(device), values if adapt is None else adapt(args, values))

    return launch


def _in_c(
    launcher: Any, grid: tuple[int, int, int], described: tuple[Any, ...]
) -> Callable[[Any, Sequence[Any]], None]:
    """A function that calls Triton's C launcher on a stream, and the arguments it passes after a kernel's own:
    separately in Triton 3.6, later as one tuple. The Python launcher itself where a kernel allocates memory or is
    instrumented.
    """
    call: Any = getattr(launcher, "launch", None)
    given: list[Any] = []
    more = "global_scratch_size", "profile_scratch_size", "gsan_enabled"
    if call is not None and not any(getattr(launcher, one, False) for one in more):
        probe = copy.copy(launcher)
        probe.launch = lambda *args: given.extend(args)
        probe(*grid, "stream", *described, "values")
    match given:
        case [_, _, _, "stream", *options, "values"]:
            return lambda stream, values: call(*grid, stream, *options, *values)
        case [_, _, _, "stream", *options, ("values",)]:
            return lambda stream, values: call(*grid, stream, *options, values)
    return lambda stream, values: launcher(*grid, stream, *described, *values)


def launched(
    kernel: Any,
    grid: Any,
    args: tuple[Any, ...],
    options: dict[str, Any],
    device: torch.device,
    repeat: Callable[..., Callable[..., None]] = again,
) -> Callable[..., None] | None:
    """Launch a kernel. Returns a function that repeats the launch on other non-constexpr arguments, or None."""
    if INTERPRETED:
        from .interpreter import mend

        mend()
    elif not torch.compiler.is_compiling() and isinstance(kernel, KernelInterface):
        if device.type == "cpu":
            check_gpu()
        # From Triton 3.10 on it is off by default. torch's wrappers of kernels refuse options.
        options = options | {"enable_fp_fusion": True}
    if "num_warps" in options:
        # Triton 3.6 can mix up int64 columns of a single warp: LLVM shifts two halves of a register together,
        # one left over from another layout. AMD's warps have 64 threads of a program's 1,024 at most.
        least = 2 if options.get("INDEX") == tl.int64 else 1
        most = 16 if torch.version.hip else 32
        options = options | {"num_warps": min(max(options["num_warps"], least), most)}
    is_current = device.type != "cuda" or device.index == torch.cuda.current_device()
    with contextlib.nullcontext() if is_current else torch.cuda.device(device):
        compiled = kernel[grid](*args, **options)
        if compiled is None or callable(grid) or not is_replayed(device):
            return None
        grid = (*grid, 1, 1)[:3]
        constants = [options[name] for name in kernel.arg_names if name in options]
        return repeat(compiled, grid, args, constants)


def run(
    key: Key | None,
    kernel: Any,
    grid: Any,
    config: triton.Config | None,
    tensors: tuple[torch.Tensor | None, ...],
    sizes: tuple[int | None, ...] = (),
    params: tuple[Any, ...] = (),
    made: Callable[[], Values] = tuple,
    /,
    **options: Any,
) -> None:
    """Launch a kernel on what is `made` for each launch, `tensors`, `sizes` and `params`; options are its constexprs.
    Later calls with the same key repeat the launch directly, on their own tensors and params.
    """
    if config is not None:
        options |= {**config.kwargs, "num_warps": config.num_warps}
    args = (*made(), *tensors, *sizes, *params)
    relaunch = launched(kernel, grid, args, options, device_of(tensors))
    if relaunch is None:
        return

    def replay(tensors: Values, params: Values = ()) -> None:
        relaunch(*made(), *tensors, *sizes, *params)

    remember(key, replay)


class Launcher:
    """A kernel, its grid, options and device. `launch` takes its other arguments, directly from the second time on."""

    def __init__(self, *of: Any) -> None:
        self.of, self.launch = of, self.launch_first

    def launch_first(self, *args: Any) -> None:
        kernel, grid, options, device = self.of
        relaunch = launched(kernel, grid, args, options, device)
        self.launch = relaunch or self.launch_first


def is_nvidia(device: torch.device) -> bool:
    return device.type == "cuda" and torch.version.hip is None


def capability(device: torch.device) -> tuple[int, int]:
    """The compute capability of an NVIDIA GPU; (0, 0) for other devices."""
    return torch.cuda.get_device_capability(device) if is_nvidia(device) else (0, 0)


def is_replayed(device: torch.device) -> bool:
    """Whether a compiled kernel is valid for all calls with the same key: on AMD it depends on sizes in bytes too."""
    return is_nvidia(device)


def device_of(args: tuple[Any, ...]) -> torch.device:
    """The device of the first argument that is a tensor."""
    return next(arg.device for arg in args if isinstance(arg, torch.Tensor))


def gluon_kernels(module: str, name: str) -> Any:
    """The module of an operator's Gluon kernels, imported at their first launch: the operator's own file with
    `runtime = "file"`, otherwise a module of its package.
    """
    own = sys.modules[module]
    if hasattr(own, f"{name}_gluon_kernel"):
        return own
    return importlib.import_module(".gluon_kernels", module.rpartition(".")[0])


class Stage(NamedTuple):
    """One of the launches of a call: a kernel, its grid, its arguments other than constexprs, and these with options of
    the compiler.
    """

    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    options: dict[str, Any]


def run_in_turn(
    key: Key | None, given: dict[str, Any], stages: Sequence[Stage]
) -> None:
    """Launch kernels one after another.

    With a key, later calls with the same key repeat the launches directly, on their own tensors and params, in the
    order of `given`, which has those of this call by the names that kernels have for them. A stage of which every
    tensor is absent stores nothing and is not launched.
    """
    stages = [
        one for one in stages if any(isinstance(arg, torch.Tensor) for arg in one.args)
    ]
    _run_from(key, Sources(given), stages, device_of(stages[0].args))


def mend_dots() -> None:
    """Before kernels that multiply matrices, in Triton's interpreter: see there."""
    if INTERPRETED:
        from . import interpreter

        interpreter.mend_dots()


def run_stages(key: Key | None, given: dict[str, Any], stages: Sequence[Stage]) -> None:
    """`run_in_turn` of kernels that multiply matrices, whose arguments may be descriptors and copies of tensors."""
    mend_dots()
    stages = [one for one in stages if any(map(is_tensor, one.args))]
    device = device_of(tuple(map(tensor_of, stages[0].args)))
    repeat = functools.partial(with_maps, again)
    _run_from(key, DescribedSources(given), stages, device, repeat)


def _run_from(
    key: Key | None,
    sources: Sources,
    stages: Sequence[Stage],
    device: torch.device,
    repeat: Callable[..., Callable[..., None]] = again,
) -> None:
    runs = [launched(*stage, device, repeat) for stage in stages]
    if None in runs:
        return
    picks: list[tuple[Any, Callable[[list[Any]], Any]]] = []
    for (kernel, _, args, _), run in zip(stages, runs, strict=True):
        names = own_names(kernel)
        picked = [sources.find(*one) for one in zip(names, args, strict=False)]
        if None in picked:
            return
        picks.append((run, operator.itemgetter(*picked)))
    rest, made = sources.rest, sources.made

    def replay(tensors: tuple[Any, ...], params: tuple[Any, ...] = ()) -> None:
        values = [*tensors, *params, *rest]
        for place, make in made:
            values[place] = make(values)
        for run, pick in picks:
            run(*pick(values))

    remember(key, replay)


def own_names(kernel: Any) -> list[str]:
    """The names of a kernel's arguments; tensors by the names that the operator has for them."""
    return [
        name.removesuffix("_ptr").removesuffix("_desc") for name in kernel.arg_names
    ]


def named(kernel: Any, args: Args) -> dict[str, Any]:
    """The tensors and params of a launch, in order, by the kernel's names for them."""
    tensors, sizes, params = args
    names = own_names(kernel)
    behind = len(tensors) + len(sizes)
    names = names[: len(tensors)] + names[behind : behind + len(params)]
    return dict(zip(names, (*tensors, *params), strict=True))
