"""Host functions of generated modules. tritongen copies the ones that a module needs into it."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def _check(
    name: str,
    tensor: torch.Tensor,
    dtypes: tuple[torch.dtype, ...],
    axes: str,
    ndim: int,
    leading: bool,
) -> None:
    """Refuse a tensor of another dtype or rank than the operator is written for."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(tensor).__name__}")
    if tensor.dtype not in dtypes:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise TypeError(f"{name} must be {known}, not {tensor.dtype}")
    if tensor.ndim < ndim or (tensor.ndim > ndim and not leading):
        raise ValueError(f"{name} must have the shape {axes}, not {list(tensor.shape)}")


def _check_param(name: str, value: object, kind: str, *types: type) -> None:
    """Refuse a param of another type: a kernel would take it for something else."""
    if not isinstance(value, types):
        raise TypeError(f"{name} must be {kind}, not {value!r}")


def _needs_gradient(*tensors: torch.Tensor | None) -> bool:
    """Whether autograd is to know of a call: what is no tensor is refused later."""
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            return torch.is_grad_enabled()
    return False


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether elements of a tensor may share memory, as those of an expanded one do."""
    reached = 0
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if step <= reached:
                return True
            reached += (size - 1) * step
    return False


def _taken_over(
    name: str, tensor: torch.Tensor, *others: torch.Tensor | None
) -> torch.Tensor:
    """The memory of a tensor that is overwritten, of which autograd is told.

    It is new memory where elements share theirs, or where others of the inputs may be in it.
    """
    storage = tensor.untyped_storage().data_ptr()
    shared = (
        other is not None and other.untyped_storage().data_ptr() == storage
        for other in others
    )
    if _overlaps(tensor) or any(shared):
        return torch.empty_like(tensor)
    base = tensor._base
    source = tensor if base is None or not base.requires_grad else base
    if source.is_leaf and source.requires_grad:
        raise RuntimeError(
            f"{name} is a leaf that requires grad, or a view of one: its gradient cannot be written over it"
        )
    torch.autograd.graph.increment_version(tensor)
    return tensor.detach()


def _spend(name: str, ctx: Any) -> None:
    """Refuse a second backward: the first gives on the memory in which the gradient was kept."""
    if getattr(ctx, "is_spent", False):
        raise RuntimeError(
            f"{name}: trying to backward through the graph a second time, "
            "but its gradient was kept for one: call it again for another"
        )
    ctx.is_spent = True


def _remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """functools.lru_cache, but for torch.compile, which traces what the function does."""
    remembered = functools.lru_cache(1024)(function)

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        if torch.compiler.is_compiling():
            return function(*args)
        return remembered(*args)

    return call


@_remembered
def _fold(
    most: int,
    shape: Sequence[int],
    strides: Sequence[Sequence[int]],
    columns: bool = False,
) -> tuple[Sequence[int], Sequence[tuple[int, ...]]] | None:
    """Merge neighbouring dimensions that every tensor steps through evenly.

    Returns `most` sizes and the strides of each tensor; None where more remain. Sizes of 1 fill up
    what is missing innermost, where Triton drops the division by them, but for the `columns`.
    """
    sizes: list[int] = []
    steps: list[tuple[int, ...]] = []
    for size, *step in zip(shape, *strides, strict=True):
        if size == 0:
            return (0,) * most, [(0,) * most] * len(strides)
        if size == 1:
            continue
        if sizes and steps[-1] == tuple(inner * size for inner in step):
            sizes[-1] *= size
            steps[-1] = tuple(step)
        else:
            sizes.append(size)
            steps.append(tuple(step))
    missing = most - len(sizes)
    if missing < 0:
        return None
    place = len(sizes) - columns
    sizes[place:place] = [1] * missing
    steps[place:place] = [(0,) * len(strides)] * missing
    return tuple(sizes), list(zip(*steps, strict=True))


@_remembered
def _fold_by_stride(
    most: int, shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[Sequence[int], Sequence[tuple[int, ...]]] | None:
    """`_fold`, with the dimensions in the order of the last tensor's strides, the result's."""
    order = sorted(range(len(shape)), key=lambda dim: -strides[-1][dim])
    folded: tuple[Sequence[int], Sequence[tuple[int, ...]]] | None = _fold(
        most,
        tuple(shape[dim] for dim in order),
        tuple(tuple(step[dim] for dim in order) for step in strides),
        True,
    )
    return folded


def _broadcast(name: str, one: Sequence[int], other: Sequence[int]) -> torch.Size:
    """The leading axes that two tensors have together, as torch broadcasts them."""
    sizes: list[int] = []
    for a, b in itertools.zip_longest(reversed(one), reversed(other), fillvalue=1):
        if a != b and a != 1 and b != 1:
            raise ValueError(
                f"{name}: the leading axes {list(one)} and {list(other)} do not broadcast"
            )
        sizes.insert(0, b if a == 1 else a)
    return torch.Size(sizes)


def _check_float8(name: str, dtype: torch.dtype, device: torch.device) -> None:
    """Refuse a float8 that Triton does not have on an older GPU."""
    if (
        dtype == torch.float8_e4m3fn
        and device.type == "cuda"
        and torch.version.hip is None
        and torch.cuda.get_device_capability(device) < (8, 9)
    ):
        raise TypeError(
            f"{name} is float8_e4m3fn, for which a GPU of compute capability 8.9 or later is needed"
        )


def _index_dtype(*tensors: torch.Tensor | None) -> tl.dtype:
    """int64 where an offset may leave int32; a tile reaches at most 2**20 elements past the end."""
    for tensor in tensors:
        if tensor is None:
            continue
        span = tensor.numel()
        if not tensor.is_contiguous():
            span = 1
            for size, step in zip(tensor.shape, tensor.stride(), strict=True):
                span += (size - 1) * step
        if span > 2**31 - 2**20:
            return tl.int64
    return tl.int32


def _on(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Make a device the current one, on which Triton launches."""
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        return torch.cuda.device(device)
    return contextlib.nullcontext()


def _cdiv(count: int, size: int) -> int:
    """How many parts of a size hold `count`. (Triton's own takes microseconds on the host.)"""
    return -(-count // size)


def _power_of_two(count: int) -> int:
    """The least power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()


def _promote(*dtypes: torch.dtype) -> torch.dtype:
    """torch's promotion of several dtypes."""
    return functools.reduce(torch.promote_types, dtypes)


def _as_float(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a float function's result."""
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def _int_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of arithmetic with an integer of Python's, which makes int64 of booleans."""
    return torch.int64 if dtype == torch.bool else dtype


def _sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a sum: integers and booleans add up as int64."""
    return dtype if dtype.is_floating_point else torch.int64


def _compute_dtype(dtype: torch.dtype) -> tl.dtype:
    """What a dtype is computed in: half precision in float32, booleans as integers."""
    widened = {torch.float16: "float32", torch.bfloat16: "float32", torch.bool: "int8"}
    return getattr(tl, widened.get(dtype, str(dtype).removeprefix("torch.")))


def _wide_compute_dtype(dtype: torch.dtype) -> tl.dtype:
    """What a dtype is reduced in: half precision in float32, integers in int64."""
    if dtype == torch.float64:
        return tl.float64
    return tl.float32 if dtype.is_floating_point else tl.int64


def _torch_dtype(dtype: tl.dtype) -> torch.dtype:
    """The torch dtype of a Triton one."""
    return {
        tl.float32: torch.float32,
        tl.float64: torch.float64,
        tl.int64: torch.int64,
    }[dtype]


def _triton_dtype(dtype: torch.dtype) -> tl.dtype:
    """What Triton calls a dtype of torch."""
    return getattr(tl, str(dtype).removeprefix("torch."))


def _is_aligned(tensor: torch.Tensor, apart: int = 16) -> bool:
    """Whether a descriptor can step through a tensor: its rows in one piece, 16 bytes apart or a multiple, or more."""
    whole = apart // tensor.itemsize
    *outer, last = tensor.stride()
    return (
        last == 1
        and tensor.data_ptr() % 16 == 0
        and all(step > 0 and step % whole == 0 for step in outer)
    )


def _aligned_empty(like: torch.Tensor, *shape: int) -> torch.Tensor:
    """Memory for a tensor whose rows start with the 128 bytes that are copied at once."""
    whole = 128 // like.itemsize
    *outer, length = shape
    return like.new_empty((*outer, _cdiv(length, whole) * whole))[..., :length]


def _aligned(tensor: torch.Tensor, apart: int = 16) -> torch.Tensor:
    """The tensor where a descriptor can step through it, with its rows so far apart, else a copy where one can."""
    if _is_aligned(tensor, apart):
        return tensor
    copy = _aligned_empty(tensor, *tensor.shape)
    places = tensor.shape[-1], tensor.storage_offset()
    if _is_aligned(tensor) and all(n * tensor.itemsize % 16 == 0 for n in places):
        # 16 bytes at a time, of which it has whole ones.
        copy.view(torch.complex128).copy_(tensor.view(torch.complex128))
        return copy
    return copy.copy_(tensor)


def _descriptor(
    tensor: torch.Tensor, block: int, block_inner: int, n_others: int = 0
) -> tuple[TensorDescriptor, bool]:
    """A descriptor of a matrix whose last axis is the inner one, and whether that is last in memory too.

    Else tiles are copied as they lie, transposed. A matrix that no descriptor can step through, or of bytes,
    which tensor cores read along the inner axis alone, is copied to where one can; and one whose rows start amid the
    128 bytes that are copied at once, where the other matrix has so many rows that it is read often.
    """
    apart = 128 if n_others >= 4096 else 16
    shape, inner_last = [block, block_inner], True
    if not _is_aligned(tensor) and _is_aligned(tensor.mT) and tensor.itemsize > 1:
        tensor, shape, inner_last = tensor.mT, shape[::-1], False
    blocks = [*[1] * (tensor.ndim - 2), *shape]
    return _described(tensor, blocks, apart), inner_last


def _described(
    tensor: torch.Tensor, blocks: list[int], apart: int = 16
) -> TensorDescriptor:
    """A descriptor of a tensor, or of a copy of it that says how calls alike make theirs."""
    descriptor = TensorDescriptor.from_tensor(_aligned(tensor, apart), blocks)
    if descriptor.base is not tensor:
        copied = functools.partial(_copied, tensor.size(), tensor.stride(), apart)
        vars(descriptor).update(source=tensor.data_ptr(), copied=copied)
    return descriptor


def _copied(
    size: Sequence[int], stride: Sequence[int], apart: int, tensor: torch.Tensor
) -> torch.Tensor:
    """An aligned copy of the memory of a tensor, seen with some sizes and strides."""
    return _aligned(torch.as_strided(tensor, size, stride), apart)


def _descriptors(
    tensors: tuple[torch.Tensor, ...], block: int, block_inner: int, n_others: int = 0
) -> tuple[list[TensorDescriptor], bool]:
    """Descriptors of matrices, as `_descriptor` gives one, that are all taken as the first lies; others are copied."""
    first, inner_last = _descriptor(tensors[0], block, block_inner, n_others)
    others = [tensor if inner_last else tensor.mT for tensor in tensors[1:]]
    described = [_described(tensor, first.block_shape) for tensor in others]
    return [first, *described], inner_last


def _joined_descriptor(
    first: torch.Tensor, second: torch.Tensor, block: int, block_inner: int
) -> tuple[TensorDescriptor, bool]:
    """A descriptor of two matrices of one shape, whose last axis is the inner one, and whether `first` is the first.

    One block is a block of each. Where no descriptor can step from one to the other, they are copied to where it can.
    """
    is_first = first.data_ptr() < second.data_ptr()
    lower, upper = (first, second) if is_first else (second, first)
    step = (upper.data_ptr() - lower.data_ptr()) // lower.itemsize
    blocks = [2, block, block_inner]
    aligned = _is_aligned(lower) and lower.stride() == upper.stride()
    if aligned and _is_aligned(upper) and 0 < step < 2**38:
        return (
            TensorDescriptor(lower, [2, *lower.shape], [step, *lower.stride()], blocks),
            is_first,
        )
    both = _aligned_empty(first, 2, *first.shape)
    torch.stack((first, second), out=both)
    return TensorDescriptor.from_tensor(both, blocks), True


def _result_descriptor(
    tensor: torch.Tensor, block_m: int, block_n: int
) -> TensorDescriptor | None:
    """A descriptor that tiles of a result are written through, where there can be one."""
    if not _is_aligned(tensor):
        return None
    return TensorDescriptor.from_tensor(
        tensor, [*[1] * (tensor.ndim - 2), block_m, block_n]
    )
