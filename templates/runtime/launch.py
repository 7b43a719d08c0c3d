"""Launches of kernels. Repeated calls reuse the compiled kernels of the first one, at a fraction of the host time."""

import contextlib
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
import triton
import triton.language as tl
from triton.compiler import CompiledKernel

from .dtypes import INTERPRETED

Key = tuple[object, ...]
# The programs that CUDA launches at most along the first axis of a grid, and along each of the others.
MOST_FIRST, MOST_SECOND = 2**31 - 1, 65_535
FUNCTIONAL = torch._C._TorchDispatchModeKey.FUNCTIONAL
# The arguments of a kernel other than constexprs: tensors, sizes and params.
Args = tuple[tuple[Any, ...], tuple[int | None, ...], tuple[Any, ...]]


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
        if torch.compiler.is_compiling():
            return function(*args)
        try:
            return remembered(*args)
        except TypeError:  # Symbolic sizes of fake tensors are not hashable.
            return function(*args)

    return call


def on_device(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Make a device the current one, where Triton launches."""
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        return torch.cuda.device(device)
    return contextlib.nullcontext()


def check_gpu(kernel: Any, device: torch.device) -> None:
    """Refuse to launch without a GPU, of which Triton says "0 active drivers". Interpreted kernels need none."""
    if device.type != "cpu" or torch.compiler.is_compiling():  # It cannot trace this.
        return
    compiled = (kernel, getattr(kernel, "fn", None))  # The second one is autotuned.
    if any(isinstance(one, triton.JITFunction) for one in compiled):
        try:
            triton.runtime.driver.active.get_current_device()
        except RuntimeError:
            raise RuntimeError(
                "there is no GPU: to run kernels in Triton's interpreter, which is slow, set the environment variable "
                "TRITON_INTERPRET=1 before triton is imported"
            ) from None


class Launches:
    """A cache of the launches of earlier calls. Triton's launcher finds the compiled kernel of its arguments anew in
    every launch, which takes longer than the launch itself.
    """

    known: ClassVar[dict[Key, Callable[..., None]]] = {}

    @classmethod
    def add(cls, key: Key, launch: Callable[..., None]) -> None:
        """Cache the launch for a key; the cache is cleared when it is full."""
        if len(cls.known) >= 8192:
            cls.known.clear()
        cls.known[key] = launch


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
        return key, Launches.known.get(key)
    except TypeError:
        return None, None


def layout(tensor: torch.Tensor | None) -> object:
    """Everything about a tensor that a launch depends on."""
    if not isinstance(tensor, torch.Tensor):
        return tensor is None
    return (
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.get_device(),
        tensor.data_ptr() % 16,
    )


def distance(first: torch.Tensor, second: torch.Tensor) -> int | None:
    """The distance of two tensors in memory. Arguments that are no tensors are refused later."""
    if is_traced() or not (
        isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor)
    ):
        return None
    return second.data_ptr() - first.data_ptr()


def first_of(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Whichever tensor comes first in memory; under a trace addresses are unknown."""
    if is_traced():
        return first
    return first if first.data_ptr() <= second.data_ptr() else second


def legal(grid: Any) -> Any:
    """A grid that a GPU accepts for any number of programs: the second axis, which CUDA ends at 65,535 programs, goes
    on along the third, which kernels with many programs there read by `second_id`.

    Some programs may be beyond the end, where kernels mask everything. A function of a configuration gives one axis.
    """
    if callable(grid):
        return grid
    first, *others = grid
    if not is_traced() and first > MOST_FIRST:
        raise ValueError(
            f"{first} programs are more than a launch may have, {MOST_FIRST}: split the tensors"
        )
    if len(others) != 1 or others[0] <= MOST_SECOND:
        return grid
    planes = -(-others[0] // MOST_SECOND)
    return first, -(-others[0] // planes), planes


def launched(
    kernel: Any, grid: Any, args: tuple[Any, ...], options: dict[str, Any]
) -> Callable[..., Any] | None:
    """Launch a kernel, and return what launches it again with the same constexprs; None in the interpreter."""
    if INTERPRETED:
        from .interpreter import mend_bfloat16

        mend_bfloat16()
    grid = legal(grid)
    compiled = kernel[grid](*args, **options)
    if compiled is None or callable(grid):
        return None
    return again(compiled, (*grid, 1, 1)[:3])


def again(compiled: Any, grid: tuple[int, int, int]) -> Callable[..., Any]:
    """What launches a compiled kernel again on the device that is the current one now.

    Triton's own, `compiled[grid]`, describes each launch for hooks, and calls them. Where nothing has set any, as
    profilers do, this calls what that calls in the end, as Inductor does.
    """
    by_triton: Callable[..., Any] = compiled[grid]
    if not isinstance(compiled, CompiledKernel):
        return by_triton
    start = functools.partial(compiled.run, *grid)
    described = compiled.function, compiled.packed_metadata, None, None, None
    device, stream_of = torch.cuda.current_device(), torch._C._cuda_getCurrentRawStream
    hooks = triton.knobs.runtime

    def launch(*args: Any) -> None:
        enter, leave = hooks.launch_enter_hook, hooks.launch_exit_hook
        if getattr(enter, "calls", enter) or getattr(leave, "calls", leave):
            by_triton(*args)
        else:
            start(stream_of(device), *described, *args)

    return launch


def compiled_right(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a launch, with two warps instead of one beside int64 offsets.

    Triton 3.6 can mix up the int64 columns of a single warp: LLVM shifts the two halves of a register together, of
    which one is left over from another layout.
    """
    if options.get("INDEX") == tl.int64 and options.get("num_warps") == 1:
        return options | {"num_warps": 2}
    return options


def run(
    key: Key | None,
    kernel: Any,
    grid: Any,
    config: triton.Config | None,
    tensors: tuple[Any, ...],
    sizes: tuple[int | None, ...] = (),
    params: tuple[Any, ...] = (),
    made: Callable[[], torch.Tensor] | None = None,
    /,
    **options: Any,
) -> Callable[..., None] | None:
    """Launch a kernel. Its arguments are, in this order: a tensor that is `made` for each launch, if any; `tensors`, or
    descriptors of some; `sizes`; and `params`. Options are its constexprs.

    With a key, later calls with the same key repeat the launch directly, on their own tensors and params. Returns what
    they call, if there is such.
    """
    if config is not None:
        options |= {**config.kwargs, "num_warps": config.num_warps}
    options = compiled_right(options)
    device = device_of(tensors)
    check_gpu(kernel, device)
    with on_device(device):
        own = (made(),) if made else ()
        args = (*own, *tensors, *sizes, *params)
        relaunch = launched(kernel, grid, args, options)
    if key is None or relaunch is None or not is_replayed(device):
        return None
    constants = [options[name] for name in kernel.arg_names if name in options]
    described = {
        place: moved(one, None)
        for place, one in enumerate(tensors)
        if is_descriptor(one)
    }

    def replay(tensors: tuple[Any, ...], params: tuple[Any, ...] = ()) -> None:
        if described:
            given = [*tensors]
            for place, one in described.items():
                given[place] = moved(one, given[place])
            tensors = tuple(given)
        own = (made(),) if made else ()
        if device.index == torch.cuda.current_device():
            relaunch(*own, *tensors, *sizes, *params, *constants)
        else:
            with torch.cuda.device(device):
                relaunch(*own, *tensors, *sizes, *params, *constants)

    Launches.add(key, replay)
    return replay


def is_nvidia(device: torch.device) -> bool:
    return device.type == "cuda" and torch.version.hip is None


def capability(device: torch.device) -> tuple[int, int]:
    """The compute capability of an NVIDIA GPU; (0, 0) for other devices."""
    return torch.cuda.get_device_capability(device) if is_nvidia(device) else (0, 0)


def is_replayed(device: torch.device) -> bool:
    """Whether a compiled kernel is valid for all calls with the same key: on AMD it depends on sizes in bytes too."""
    return is_nvidia(device)


def device_of(tensors: tuple[Any, ...]) -> torch.device:
    """The device of the first argument that is a tensor, or a descriptor of one."""
    for tensor in tensors:
        if is_descriptor(tensor):
            tensor = tensor.base
        if isinstance(tensor, torch.Tensor):
            return tensor.device
    raise TypeError("a launch takes a tensor")


def has_tensors(args: tuple[Any, ...]) -> bool:
    """Whether any argument of a launch is a tensor, or a descriptor of one."""
    return any(isinstance(arg, torch.Tensor) or is_descriptor(arg) for arg in args)


def is_descriptor(arg: Any) -> bool:
    """Whether an argument is a descriptor of a tensor, for Triton or for Gluon."""
    return hasattr(arg, "block_shape")


class Replay:
    """Launches a compiled kernel again, with the tensors and params that have the names of its arguments.

    A tensor without a name is made for each call, and copies, including those behind descriptors, are made again for
    each. No tensor of the first call is kept.
    """

    def __init__(
        self,
        run: Callable[..., Any],
        names: Sequence[str],
        args: tuple[Any, ...],
        by_name: dict[str, Any],
    ) -> None:
        self.run, self.values = run, list(args)
        self.device = device_of(args)
        self.named: list[tuple[int, str]] = []
        self.described: list[tuple[int, str, Any]] = []
        self.copies: list[tuple[str, str, Callable[[torch.Tensor], torch.Tensor]]] = []
        self.rooms: list[tuple[int, str, Callable[[], torch.Tensor]]] = []
        for place, (name, arg) in enumerate(zip(names, args, strict=False)):
            if copied := copied_from(arg):
                source, name = name, f"{name}, copied"
                self.copies.append((name, source, copied.again))
            if is_descriptor(arg):
                self.described.append((place, name, moved(arg, None)))
            elif copied:
                self.named.append((place, name))
            elif isinstance(arg, torch.Tensor) and name not in by_name:
                room = functools.partial(
                    torch.empty, arg.shape, dtype=arg.dtype, device=arg.device
                )
                self.rooms.append((place, name, room))
            elif arg is not None and name in by_name:
                self.named.append((place, name))
            else:
                continue
            self.values[place] = None

    def __call__(self, by_name: dict[str, Any]) -> None:
        values = self.values.copy()
        for name, source, copied in self.copies:
            if name not in by_name:
                by_name[name] = copied(by_name[source])
        for place, name in self.named:
            values[place] = by_name[name]
        for place, name, descriptor in self.described:
            values[place] = moved(descriptor, by_name[name])
        for place, name, room in self.rooms:
            if name not in by_name:
                by_name[name] = room()
            values[place] = by_name[name]
        if self.device.index == torch.cuda.current_device():
            self.run(*values)
        else:
            with torch.cuda.device(self.device):
                self.run(*values)


def moved(descriptor: Any, tensor: torch.Tensor | None) -> Any:
    """The descriptor of another tensor of the same layout, unchecked, since checks take longer than everything else."""
    moved = object.__new__(type(descriptor))
    fields = vars(moved)
    fields.update(vars(descriptor))
    fields["base"] = tensor
    return moved


class Copied(NamedTuple):
    """The origin of a copy: the address of its source, and how repeated calls copy theirs."""

    address: int
    again: Callable[[torch.Tensor], torch.Tensor]


def copied_from(arg: Any) -> Copied | None:
    """The origin of an argument, or of the tensor behind a descriptor, if it is a copy."""
    tensor = arg.base if is_descriptor(arg) else arg
    found: Copied | None = getattr(tensor, "copied_from", None)
    return found


def is_named(name: str, arg: Any, by_name: dict[str, Any]) -> bool:
    """Whether an argument is the call's tensor of that name, or a copy that repeated calls can make of theirs."""
    tensor = arg.base if is_descriptor(arg) else arg
    if not isinstance(tensor, torch.Tensor):
        return True
    copied = copied_from(arg)
    address = copied.address if copied else tensor.data_ptr()
    return bool(address == by_name.get(name, tensor).data_ptr())


def run_named(
    kernel: Any,
    grid: tuple[int, ...],
    by_name: dict[str, Any],
    args: tuple[Any, ...],
    names: Sequence[str] = (),
    **options: Any,
) -> Replay | None:
    """Launch a kernel, and return its replay; None if an argument belongs to this call alone.

    Its first tensors are called by `names`, and the other arguments by their own names.
    """
    options = compiled_right(options)
    check_gpu(kernel, device_of(args))
    with on_device(device_of(args)):
        relaunch = launched(kernel, grid, args, options)
    if relaunch is None or not is_replayed(device_of(args)):
        return None
    own = (
        name.removesuffix("_ptr").removesuffix("_desc")
        for name in kernel.arg_names[len(names) :]
    )
    names = [*names, *own]
    if not all(
        is_named(name, arg, by_name) for name, arg in zip(names, args, strict=False)
    ):
        return None
    constants = [options[name] for name in kernel.arg_names if name in options]
    return Replay(relaunch, names, (*args, *constants), by_name)


def remember(
    key: Key | None, *launches: Replay | None, names: Sequence[str] = ()
) -> None:
    """Cache the launches of a call for later calls with the same key, which pass their arguments by name, or as tensors
    and params in the order of `names`.
    """
    found = [launch for launch in launches if launch is not None]
    if key is None or len(found) < len(launches):
        return

    def launch(by_name: dict[str, Any]) -> None:
        for each in found:
            each(by_name)

    def in_order(tensors: tuple[Any, ...], params: tuple[Any, ...] = ()) -> None:
        launch(dict(zip(names, (*tensors, *params), strict=True)))

    if names and not any(one.described or one.copies for one in found):
        Launches.add(key, by_place(found, names))
    else:
        Launches.add(key, in_order if names else launch if len(found) > 1 else found[0])


def by_place(launches: Sequence[Replay], names: Sequence[str]) -> Callable[..., None]:
    """A function that launches kernels on tensors and params in the order of `names`, faster than by name."""
    rooms = {name: make for one in launches for _, name, make in one.rooms}
    places = {name: place for place, name in enumerate((*names, *rooms))}
    constants: list[Any] = []
    runs = []
    for one in launches:
        known = dict([*one.named, *((place, name) for place, name, _ in one.rooms)])
        picked = []
        for place, value in enumerate(one.values):
            if place in known:
                picked.append(places[known[place]])
            else:
                picked.append(len(places) + len(constants))
                constants.append(value)
        runs.append((one.run, operator.itemgetter(*picked)))
    device, makes = launches[0].device, (*rooms.values(),)

    def launch(tensors: tuple[Any, ...], params: tuple[Any, ...] = ()) -> None:
        every = (*tensors, *params, *[make() for make in makes], *constants)
        if device.index == torch.cuda.current_device():
            for run, picked in runs:
                run(*picked(every))
        else:
            with torch.cuda.device(device):
                for run, picked in runs:
                    run(*picked(every))

    return launch


class Stage(NamedTuple):
    """One of the launches of a call; `names` are those of its first tensors, if not the kernel's own."""

    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    options: dict[str, Any]
    names: Sequence[str] = ()


def run_stages(
    key: Key | None,
    by_name: dict[str, Any],
    stages: Sequence[Stage],
    names: Sequence[str] = (),
) -> None:
    """Launch kernels one after another, and cache the launches as `remember` does.

    A stage of which every tensor is absent stores nothing and is not launched.
    """
    stages = [stage for stage in stages if has_tensors(stage.args)]
    if key is None:
        for kernel, grid, args, options, _ in stages:
            run(None, kernel, grid, None, args, **options)
        return
    replays = [
        run_named(kernel, grid, by_name, args, names=own, **options)
        for kernel, grid, args, options, own in stages
    ]
    remember(key, *replays, names=names)


def named(kernel: Any, args: Args) -> dict[str, Any]:
    """The tensors and params of a launch, in order, by the kernel's names for them."""
    tensors, sizes, params = args
    names = [
        name.removesuffix("_ptr").removesuffix("_desc") for name in kernel.arg_names
    ]
    behind = len(tensors) + len(sizes)
    names = names[: len(tensors)] + names[behind : behind + len(params)]
    return dict(zip(names, (*tensors, *params), strict=True))
