"""The host work before launches: checks of tensors, dtypes, folding of dimensions, index width."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
import triton.language as tl

from .launch import INTERPRETED, capability, is_nvidia, memoized

Found = TypeVar("Found")
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FLOAT8S = (torch.float8_e4m3fn, torch.float8_e5m2)
INTS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
BOOLS = (torch.bool,)
NUMBERS = (*FLOATS, *INTS)
ANY = (*NUMBERS, *BOOLS)
N_COMPONENTS = {"bf16x3": 2, "bf16x6": 3}  # by the precision of float32 matmuls


def check_tensor(name: str, tensor: object) -> None:
    """Refuse an argument that is no tensor, with a clearer message than torch's dispatcher has."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(tensor).__name__}")


def check(
    name: str, tensor: torch.Tensor, dtypes: tuple[torch.dtype, ...], axes: str
) -> None:
    """Refuse a tensor of a dtype or rank that the operator does not support; "[..., N, C=3]" has two axes or more."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(tensor).__name__}")
    if tensor.dtype not in dtypes:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise TypeError(f"{name} must be {known}, not {tensor.dtype}")
    ndim = len([one for one in axes[1:-1].split(", ") if one not in ("", "...")])
    if tensor.ndim < ndim or (tensor.ndim > ndim and "..." not in axes):
        raise ValueError(f"{name} must have the shape {axes}, not {list(tensor.shape)}")


def check_shape(
    name: str, tensor: torch.Tensor | None, axes: str, sizes: tuple[int, ...]
) -> None:
    """Refuse a tensor with `axes`, such as "[..., N, C=3]", whose last ones do not have these `sizes`."""
    if tensor is None or tensor.shape[tensor.ndim - len(sizes) :] == sizes:
        return
    names = axes.translate(str.maketrans("[](),", " " * 5)).split()[-len(sizes) :]
    terms = zip(names, sizes, strict=True)
    named = ", ".join(f"{axis} = {size}" for axis, size in terms if "=" not in axis)
    wanted = f"{axes} with {named}" if named else axes
    raise ValueError(f"{name} must be {wanted}, not {list(tensor.shape)}")


def check_device(
    name: str, tensor: torch.Tensor, other: str, beside: torch.Tensor
) -> None:
    """Refuse a tensor that is not on the device of another argument."""
    if tensor.device != beside.device:
        raise ValueError(f"{name} is on {tensor.device}, {other} on {beside.device}")


def check_alike(
    name: str, tensor: torch.Tensor, other: str, beside: torch.Tensor
) -> None:
    """Refuse a tensor that does not have the device and the dtype of another argument."""
    check_device(name, tensor, other, beside)
    if tensor.dtype != beside.dtype:
        raise TypeError(
            f"{name} must have the dtype of {other}, {beside.dtype}, not {tensor.dtype}"
        )


def check_param(name: str, value: object, kind: str, *types: type) -> None:
    """Refuse a param of the wrong type, which a kernel would misinterpret."""
    if not isinstance(value, types):
        raise TypeError(f"{name} must be {kind}, not {value!r}")


def overlaps(tensor: torch.Tensor) -> bool:
    """Whether elements of a tensor may share memory, as in an expanded one."""
    reached = 0
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if step <= reached:
                return True
            reached += (size - 1) * step
    return False


@memoized
def fold(
    most: int,
    shape: Sequence[int],
    strides: Sequence[Sequence[int]],
    columns: bool = False,
) -> tuple[Sequence[int], Sequence[tuple[int, ...]]] | None:
    """Merge adjacent dimensions that are contiguous with one another in every tensor.

    Returns `most` sizes and the strides of each tensor; None if more remain. Missing dimensions are
    filled up with sizes of 1, innermost except for the `columns`, where Triton drops the division by them.
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


def folded(found: Found | None) -> Found:
    """The result of folding, which must leave no more dimensions than kernels have."""
    assert found is not None
    return found


@memoized
def fold_by_stride(
    most: int, shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[Sequence[int], Sequence[tuple[int, ...]]] | None:
    """`fold`, with the dimensions in the order of the last tensor's strides, the result's."""
    order = sorted(range(len(shape)), key=lambda dim: -strides[-1][dim])
    folded: tuple[Sequence[int], Sequence[tuple[int, ...]]] | None = fold(
        most,
        tuple(shape[dim] for dim in order),
        tuple(tuple(step[dim] for dim in order) for step in strides),
        True,
    )
    return folded


def with_last(tensor: torch.Tensor | None, *dims: int) -> torch.Tensor | None:
    """A view with some dimensions, counted from the end, moved last in this order; None for an absent tensor."""
    if tensor is None:
        return None
    return tensor.movedim(dims, tuple(range(-len(dims), 0)))


def steady(sizes: Sequence[int], *strides: Sequence[int]) -> int:
    """How many adjacent positions share an element of every tensor: the length of trailing dimensions of stride 0."""
    length = 1
    for size, *steps in zip(sizes[::-1], *(own[::-1] for own in strides), strict=True):
        if any(steps):
            break
        length *= size
    return length


def full_shape(
    tensor: torch.Tensor, n: int, *others: tuple[torch.Tensor | None, int]
) -> torch.Size:
    """The shape of a tensor: the leading axes of all tensors, broadcast, and its own last n dimensions. Each of the
    other tensors comes with its number of own dimensions.
    """
    batch = tensor.shape[: tensor.dim() - n]
    for other, count in others:
        if other is not None:
            batch = broadcast("gradients", batch, other.shape[: other.dim() - count])
    return torch.Size((*batch, *tensor.shape[tensor.dim() - n :]))


def broadcast(name: str, one: Sequence[int], other: Sequence[int]) -> torch.Size:
    """The leading axes of two tensors, broadcast as in torch."""
    sizes: list[int] = []
    for a, b in itertools.zip_longest(reversed(one), reversed(other), fillvalue=1):
        if a != b and a != 1 and b != 1:
            raise ValueError(
                f"{name}: the leading axes {list(one)} and {list(other)} do not broadcast"
            )
        sizes.insert(0, b if a == 1 else a)
    return torch.Size(sizes)


def check_float8(name: str, dtype: torch.dtype, device: torch.device) -> None:
    """Refuse a float8 dtype that Triton does not support on older GPUs."""
    if (
        dtype == torch.float8_e4m3fn
        and is_nvidia(device)
        and capability(device) < (8, 9)
    ):
        raise TypeError(
            f"{name} is float8_e4m3fn, for which a GPU of compute capability 8.9 or later is needed"
        )


def index_dtype(*tensors: torch.Tensor | None) -> tl.dtype:
    """int64 if an offset may exceed int32; a tile reaches at most 2**20 elements past the end."""
    for tensor in tensors:
        if tensor is not None:
            axes = zip(tensor.shape, tensor.stride(), strict=True)
            if sum((size - 1) * step for size, step in axes) >= 2**31 - 2**20:
                return tl.int64
    return tl.int32


def alignment(*tiles: torch.Tensor | None) -> int:
    """8 where that divides the length of each row and the distances between rows, so that loads are 16 bytes wide.

    1 also where 16 divides all of them, which Triton sees by itself, and of sizes that are symbolic.
    """
    rows = [tile for tile in tiles if tile is not None]
    sizes = [n for row in rows for n in (row.shape[-1], *row.stride()[:-1])]
    known = all(isinstance(n, int) and n % 8 == 0 for n in sizes)
    return 8 if known and not all(n % 16 == 0 for n in sizes) else 1


def divisor(sizes: Sequence[int], *divisors: int) -> int:
    """The first of some powers of two that divides all sizes, or 1.

    1 also where 16 divides all of them, which Triton sees by itself, and of sizes that are symbolic.
    """
    known = all(isinstance(n, int) for n in sizes)
    if known and not all(n % 16 == 0 for n in sizes):
        for one in divisors:  # torch.compile traces remainders, and not math.gcd.
            if all(n % one == 0 for n in sizes):
                return one
    return 1


def stride(tensor: torch.Tensor | None, dim: int) -> int:
    """A stride of a tensor, 0 where there is none."""
    return 0 if tensor is None else tensor.stride(dim)


def cdiv(count: int, size: int) -> int:
    """Division rounded up. (Triton's own takes microseconds on the host.)"""
    return -(-count // size)


def power_of_two(count: int) -> int:
    """The smallest power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()


def contiguous(*args: Any) -> tuple[Any, ...]:
    """The arguments of a call with every tensor contiguous, in its strides too, also of one without elements."""
    return tuple(
        arg.flatten().view(arg.shape) if isinstance(arg, torch.Tensor) else arg
        for arg in args
    )


def promote(*dtypes: torch.dtype) -> torch.dtype:
    """torch's promotion of several dtypes; the default dtype if there are none, as all inputs may be optional."""
    return functools.reduce(torch.promote_types, dtypes or (torch.get_default_dtype(),))


def as_float(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a float function's result."""
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def int_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of arithmetic with a Python integer, which promotes booleans to int64."""
    return torch.int64 if dtype == torch.bool else dtype


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a sum: int64 for integers and booleans."""
    return dtype if dtype.is_floating_point else torch.int64


def compute_dtype(dtype: torch.dtype) -> tl.dtype:
    """The dtype of computations: float32 for half precision, integers for booleans."""
    widened = {torch.float16: "float32", torch.bfloat16: "float32", torch.bool: "int8"}
    return getattr(tl, widened.get(dtype, str(dtype).removeprefix("torch.")))


def widest(*tensors: torch.Tensor | None) -> tl.dtype:
    """The dtype in which floats are computed: float64 if a tensor has it, otherwise float32."""
    for tensor in tensors:
        if tensor is not None and tensor.dtype is torch.float64:
            return tl.float64
    return tl.float32


def wide_compute_dtype(dtype: torch.dtype) -> tl.dtype:
    """The dtype of reductions: float32 for half precision, int64 for integers."""
    if dtype == torch.float64:
        return tl.float64
    return tl.float32 if dtype.is_floating_point else tl.int64


def accumulator_dtype(dtype: torch.dtype) -> tl.dtype:
    """The dtype in which tensor cores accumulate products of a dtype."""
    if dtype == torch.float64:
        return tl.float64
    return tl.float32 if dtype.is_floating_point else tl.int32


def dot_precision(precision: str) -> str:
    """The `input_precision` of tl.dot for float32; the interpreter lacks some, and never splits or rounds."""
    return "ieee" if INTERPRETED else precision


def n_components(dtype: torch.dtype, precision: str) -> int:
    """The number of bfloat16 values that each element is split into; 0 if matrices are not split."""
    return N_COMPONENTS.get(precision, 0) if dtype == torch.float32 else 0


def component_dtype() -> torch.dtype:
    """The dtype of these components: float32 in the interpreter, which multiplies bfloat16 incorrectly."""
    return torch.float32 if INTERPRETED else torch.bfloat16


def torch_dtype(dtype: tl.dtype) -> torch.dtype:
    """The torch dtype of a Triton dtype."""
    if dtype == tl.int64:
        return torch.int64
    if dtype == tl.int32:
        return torch.int32
    return torch.float64 if dtype == tl.float64 else torch.float32


def triton_dtype(dtype: torch.dtype) -> tl.dtype:
    """The Triton dtype of a torch dtype."""
    return getattr(tl, str(dtype).removeprefix("torch."))
